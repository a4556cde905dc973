"""Speed of the search for a plan and of the chain; the chain against the simulation at a load of 95 %.

Run with ``pytest benchmarks/test_capacity.py -p benchmark -s``; nothing is asserted about times.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from perfmodel.planning.events import simulate
from perfmodel.planning.requests import drawn
from perfmodel.planning.size import size
from perfmodel.question import Options, resolve
from perfmodel.serving.chain import load_queue
from perfmodel.serving.objectives import Objectives, statistic
from perfmodel.serving.service import serve
from perfmodel.serving.step_times import step_times
from perfmodel.serving.traffic import lengths_of

SYSTEMS = ["dgx-h100", "dgx-h200", "dgx-b200", "sn40l-16", "lpu-v1"]


def test_search(capsys):
    """Goal: 100,000 candidates in 2 s on one core."""
    asked = Objectives({("ttft", "p99"): 1.0, ("tpot", "p99"): 0.05})
    size("llama-3.3-70b", SYSTEMS, 40.0, asked, Options(traffic="chat"))
    start = time.process_time()
    found = size("llama-3.3-70b", SYSTEMS, 40.0, asked, Options(traffic="chat"))
    spent = time.process_time() - start
    with capsys.disabled():
        print(f"\n{found.candidates:,} candidates and the chains of the front in {spent:.2f} s of CPU")
    assert found.answers


@pytest.fixture(scope="module")
def service():
    scenario = resolve("llama-3.3-70b", "dgx-h100:tp=8", Options(traffic="chat"))
    lengths = lengths_of(scenario.traffic)
    longest = float((lengths.prompt + lengths.output).max())
    return serve(step_times(scenario, longest_prompt=float(lengths.prompt.max()), longest=longest), lengths)


def test_chain(benchmark, service):
    benchmark(load_queue, service, 0.7 * service.capacity)


def test_percentile_laws(capsys, service):
    """Goal: 5 ms of CPU a plan for each law, on one core (``OPENBLAS_NUM_THREADS=1``)."""
    spent = []
    for used in np.linspace(0.2, 0.9, 8):
        parts = []
        for _ in range(5):
            start = time.process_time()
            queue = load_queue(service, used * service.capacity)
            chained = time.process_time()
            for name in ("ttft", "tpot", "itl"):
                statistic(queue, name, "p99")
            parts.append((chained - start, time.process_time() - chained))
        spent.append(np.min(parts, axis=0))
    chain, laws = np.median(spent, axis=0) * 1e3
    with capsys.disabled():
        print(f"\n{chain:.1f} ms the chain with the law of steps, {laws:.1f} ms P99 of TTFT, TPOT and ITL")


def test_at_95_percent(capsys, service):
    rate = 0.95 * service.capacity
    queue = load_queue(service, rate)
    ran = simulate(service.times, drawn(rate, 1.0, service.lengths, 40_000, 1)).after(0.2)
    with capsys.disabled():
        for name in ("ttft", "tpot", "latency"):
            values = getattr(ran, name)
            values = values[~np.isnan(values)]
            print(
                f"\n{name}: mean {statistic(queue, name, 'mean') / values.mean() - 1:+.0%}, "
                f"P99 {statistic(queue, name, 'p99') / np.percentile(values, 99) - 1:+.0%} against the simulation"
            )
    assert not queue.saturated

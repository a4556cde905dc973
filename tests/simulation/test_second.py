"""The simulation against a second one, whose step times come from the operators at each batch."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from perfmodel.planning.events import simulate
from perfmodel.planning.requests import drawn
from perfmodel.serving.lengths import lognormal
from perfmodel.serving.step_times import step_times
from tests.simulation import judge, second

#: Questions of each kind; the command in CONTRIBUTING asks all 20.
QUESTIONS = int(os.environ.get("PERFMODEL_EVERY_QUESTION", "2"))
KINDS = ("GPU, dense", "GPU, experts", "dataflow", "SRAM pipeline")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("question", range(QUESTIONS))
def test_two_simulations_agree(kind: str, question: int) -> None:
    """They get the same requests, so that what differs is the interpolation of step times and who is let in first."""
    generator = np.random.default_rng(100 * question + KINDS.index(kind))
    _, scenario = judge.scenario_of(kind, generator)
    prompt, output = float(generator.integers(200, 4000)), float(generator.integers(3, 120))
    lengths = lognormal(prompt, 0.5, output, 0.5)
    longest = float((lengths.prompt + lengths.output).max())
    times = step_times(scenario, longest_prompt=longest, longest=longest)
    service = judge.service_of(kind, scenario, lengths)
    count = 400
    load = drawn(float(generator.uniform(0.2, 0.85)) * service.capacity, 1.0, lengths, count, question)
    operators = second.Operators(scenario)
    closed = not times.rides and question % 2 == 1
    clients = int(generator.integers(2, 40))
    if closed and question % 4 == 1:
        # A pool that is too small for the clients: blocks grow and are taken away.
        pool = float(times.bytes_of(prompt + output)) * 4
        operators.pool, times = pool, replace(times, pool=pool)
        load.prompt[:], load.output[:] = np.minimum(load.prompt, 2 * prompt), np.minimum(load.output, 2 * output)
    if times.rides:
        jobs = second.ride(operators, load.prompt, load.output, load.arrival)
    else:
        jobs = second.run(
            operators,
            load.prompt,
            load.output,
            arrival=None if closed else load.arrival,
            clients=clients,
            cap=int(times.cap),
            budget=times.budget,
            grows=times.grows,
        )
    ran = simulate(times, load, clients=clients if closed else None)
    ttft = np.array([job.tokens[0] - job.sent for job in jobs])
    several = np.array([len(job.tokens) > 1 for job in jobs])
    tpot = np.array([(job.tokens[-1] - job.tokens[0]) / max(1, len(job.tokens) - 1) for job in jobs])
    whole = np.array([job.tokens[-1] - job.sent for job in jobs])
    assert np.mean(whole) == pytest.approx(np.mean(ran.latency), rel=0.02)
    assert np.mean(ttft) == pytest.approx(np.mean(ran.ttft), rel=0.04)
    assert np.mean(tpot[several]) == pytest.approx(np.nanmean(ran.tpot), rel=0.02)
    assert np.percentile(tpot[several], 90) == pytest.approx(np.nanpercentile(ran.tpot, 90), rel=0.05)
    gaps = np.concatenate([np.diff(job.tokens) for job in jobs])
    mean_gap = float(np.sum(ran.gap * ran.gap_count) / np.sum(ran.gap_count))
    assert np.mean(gaps) == pytest.approx(mean_gap, rel=0.02)

"""The laws of rounds and of tiers against published measurements."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfmodel.equations import caching
from perfmodel.question import Options, resolve
from perfmodel.serving.fit import fit, request_bytes
from perfmodel.serving.session_loop import session_answer
from perfmodel.serving.session_machine import SessionMachine, SessionRouting, Tier, load_time, session_machine
from perfmodel.serving.session_table import hit_table
from perfmodel.serving.sessions import Quantiles, SessionTraffic
from perfmodel.serving.step_times import step_times

MEASURED = Path(__file__).parents[1] / "data" / "sessions" / "measured.csv"


def rows(**wanted: str) -> list[dict[str, str]]:
    with MEASURED.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if all(value in row[name] for name, value in wanted.items())]


def tokens_in_memory(model: str, system: str, chips: float, longest: float) -> tuple[float, float]:
    """Return tokens that the cache of a replica holds, and the bytes of one on all chips."""
    scenario = resolve(model, system, Options(tp=chips, precision="bf16", engine="sglang"))
    token = float(np.asarray(request_bytes(scenario, np.array([longest])))[0]) / longest
    return float(fit(scenario, longest).room) / token, token * chips


def rounds(arm: str, hardware: str) -> dict[int, float]:
    """Return the measured hit rate by round, counted from 1; panels of the A100 count from 0."""
    found = {}
    for row in rows(set="rounds", hardware=hardware, metric="cache_hit_rate"):
        if row["arm"] == arm:
            said = row["turns"] if "round" in row["turns"] else row["prefix_or_reuse"]
            found[int(said.split()[1]) + ("A100" in hardware)] = float(row["value"])
    return found


@pytest.mark.parametrize("arm", ["GPU only", "GPU+host 240 GB", "+Mooncake 760 GB"])
def test_rounds_of_80_clients(arm):
    """Tiers are inclusive: the largest counts."""
    memory, token = tokens_in_memory("qwen3-235b-a22b", "h800-8", 8.0, 20480.0)
    capacity = max([memory, *(float(word) * 1e9 / token for word in arm.split() if word.isdigit())])
    found = rounds(arm, "H800")
    assert len(found) == 10
    for number, measured in found.items():
        held = capacity / (80 * (number - 0.5) * 2048)
        at_the_edge = abs(held - 1) < 0.25
        assert caching.round_hit_rate(round=number, fit=held) == pytest.approx(
            measured, abs=0.12 if at_the_edge else 0.05
        )


@pytest.mark.parametrize(
    ("arm", "times", "bytes_held"),
    [
        ("GPU only", 1.0, 0.0),
        ("GPU+host (ratio 2)", 2.0, 0.0),
        ("+Mooncake 80 GB", 1.0, 80 * 2**30),
        ("+Mooncake 80 GB+NVMe", 1.0, 1e15),
    ],
)
def test_rounds_of_20_clients(arm, times, bytes_held):
    memory, token = tokens_in_memory("qwen3-8b", "a100-40gb-8", 1.0, 40960.0)
    capacity = max(times * memory, bytes_held / token)
    found = rounds(arm, "A100")
    off = [
        caching.round_hit_rate(round=number, fit=capacity / (20 * (number - 0.5) * 4096)) - measured
        for number, measured in found.items()
    ]
    assert len(off) == 9
    assert np.abs(off).mean() <= 0.10


def test_host_loads_of_an_h100():
    """A prompt whose cache lies in host memory, at the 50 GB/s that the link gives for large blocks, within 15 %.

    Times are read off a chart to 10 ms.
    """
    scenario = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, engine="vllm"))
    times = step_times(scenario, longest_prompt=1e5, longest=1e5 + 200)
    machine = SessionMachine(
        times.pool, 131072.0, times.prompt, times.prefill(times.prompt, 1.0), times.first_token(times.prompt, 1.0),
        times.batch[1:], times.step(times.batch[1:], 1e4), front=times.front,
    )  # fmt: skip
    loaded = {row["isl"]: row for row in rows(set="tiers", arm="load from host DRAM", metric="ttft")}
    assert len(loaded) == 10
    for prompt, row in loaded.items():
        held = np.array([float(prompt)])
        load = float(load_time(machine, Tier("host", 1e12, 50e9), held, held)[0])
        found = 1e3 * (machine.front + machine.latency[0] + load)
        assert found == pytest.approx(float(row["value"]), rel=0.15, abs=10.0)
    for row in rows(set="tiers", arm="GPU compute", metric="ttft"):
        found = 1e3 * (machine.front + np.interp(float(row["isl"]), machine.prompt, machine.latency))
        assert found == pytest.approx(float(row["value"]), rel=0.15)


def test_a_mix_of_hits_and_misses_is_harmonic():
    """The ends are given, the nine rates between follow."""
    rates = {float(row["prefix_or_reuse"]): float(row["value"]) for row in rows(set="tiers", metric="prefill_tok_s")}
    assert len(rates) == 11
    for loaded, measured in rates.items():
        found = caching.mixed_rate(loaded=loaded, computing=rates[0.0], loading=rates[1.0])
        assert found == pytest.approx(measured, rel=0.15)


def test_pulls_from_a_peer():
    """Start and time a token from the shortest and the longest pull; those between follow."""
    pulled = {
        float(row["isl"]): float(row["value"]) / 1e3 for row in rows(set="tiers", model="gpt-oss", arm="pull from peer")
    }
    (short, first), *between, (long, last) = sorted(pulled.items())
    rate = (long - short) / (last - first)
    start = first - short / rate
    assert len(between) == 3
    for tokens, measured in between:
        assert caching.load_time(start=start, size=tokens, bandwidth=rate) == pytest.approx(measured, rel=0.15)


def test_crossover_of_a_slow_start():
    """A session floor of 1.7 s, 93 kB a token at 4.5 GB/s: pulling pays from 13.6 thousand tokens on, as measured."""
    computed = {float(row["isl"]): float(row["value"]) for row in rows(set="tiers", model="GLM", arm="recompute")}
    # Computing is faster for short prompts, so that the time a token is that of the two below the crossover.
    compute = np.mean([time / tokens for tokens, time in sorted(computed.items())[:2]])
    found = caching.crossover_tokens(start=1.7, compute=compute, load=93e3 / 4.5e9)
    assert found == pytest.approx(13648, rel=0.2)


@pytest.mark.parametrize(("arm", "tokens"), [("GPU+host 240 GB", 623e3), ("+Mooncake 760 GB", 2e6)])
def test_a_traffic_of_rounds(arm, tokens):
    """All ten rounds together, as a traffic: 80 sessions that grow by 2,048 tokens a round, output of one."""
    same = Quantiles.fixed
    traffic = SessionTraffic(
        turns=same(10), first=same(2048), growth=same(2048), output=same(1), rounds="random", population=80.0
    )
    weight = {number: number * hit for number, hit in rounds(arm, "H800").items()}
    found = hit_table(traffic).law(1.0, 4.0, tokens)
    assert found == pytest.approx(sum(weight.values()) / 55, abs=0.03)


def test_fixed_rounds_hit_all_or_nothing():
    same = Quantiles.fixed
    traffic = SessionTraffic(
        turns=same(2), first=same(1000), growth=same(1000), output=same(1), rounds="fixed", population=100.0
    )
    held, lost = hit_table(traffic).law(1.0, 4.0, np.array([151e3, 149e3]))
    assert held == pytest.approx(1001 / 3000, rel=1e-3)
    assert lost == 0.0


@pytest.mark.parametrize("arm", ["HBM only", "CPU offload 100 GB"])
@pytest.mark.parametrize("prefix", [8000.0, 30000.0])
def test_shared_prefixes_over_eight_replicas(prefix, arm):
    """45 clients, 45 prefixes, caches and host memory as printed, routed by prefix: nothing is fitted.

    30,000 tokens do not fit the memory, 8,000 do.  TTFT is that before the knee.
    """
    same = Quantiles.fixed
    traffic = SessionTraffic(
        turns=same(1), first=same(prefix + 256), growth=same(1), output=same(1024),
        shared_tokens=prefix, shared_groups=45.0,
    )  # fmt: skip
    scenario = resolve("qwen3-32b", "dgx-h100", Options(tp=2.0, engine="vllm"))
    replica = replace(session_machine(scenario, traffic), pool=24.3e9)
    tiers = [Tier("host", 100e9, 50e9)] if arm.startswith("CPU") else []
    found = session_answer(replica, traffic, 45.0, tiers, SessionRouting(8.0, "prefix"))
    measured = {
        row["metric"]: float(row["value"])
        for row in rows(set="groups", arm=arm)
        if f"{prefix:.0f}-token" in row["workload"]
    }
    assert found.call == pytest.approx(measured["e2e_mean"], rel=0.1)
    assert found.call_rate * (prefix + 256 + 1024) == pytest.approx(measured["total_tok_s"], rel=0.1)
    if prefix == 8000.0 and not tiers:
        assert found.ttft == pytest.approx(measured["ttft_mean"], rel=0.3)

"""Speed of predictions and sweeps: ratios in one run, absolute times printed as goals, nothing asserted.

Run with ``pytest benchmarks -p benchmark --benchmark-only``; OPENBLAS_NUM_THREADS=1 makes one core of it.
"""

import numpy as np
import pytest
from questions import BLOCK, POINTS, WANTED, axes, hand_written, scattered

from perfmodel.machines import kernels
from perfmodel.planning.tco.ownership import own
from perfmodel.planning.tco.uncertainty import draw_samples
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.sweeps.space import evaluate_grid


@pytest.fixture(scope="module")
def scenario():
    return resolve("llama-3.1-70b", "dgx-h100", Options(precision="fp8"))


def test_grid_of_a_million(benchmark, scenario):
    """Goal: 0.1 s on one core."""
    answer = benchmark.pedantic(lambda: evaluate_grid(scenario, axes(), WANTED), rounds=7, warmup_rounds=2)
    assert answer.metrics["tpot_s"].shape == (16, 16, 16, 4, 64)


def test_a_million_scattered_points_in_blocks(benchmark, scenario):
    """Goal: 1 M predictions/s on one core."""
    blocks = [scattered(scenario, BLOCK, seed) for seed in range(POINTS // BLOCK)]
    benchmark.pedantic(lambda: [evaluate(block, WANTED) for block in blocks], rounds=5, warmup_rounds=1)


@pytest.fixture(scope="module")
def steps(scenario):
    """What a decode step of each point is asked for: batch, context, TP and bandwidth."""
    block = scattered(scenario, BLOCK)
    context = block.traffic.prompt + block.traffic.output / 2
    return block, block.traffic.concurrency, context, block.deployment.tp, block.system.memory.hbm.bandwidth


def test_decode_steps(benchmark, steps):
    """Goal: within 3 times of the next; no prefill, no memory, no steady state."""
    block, batch, context, _, _ = steps
    benchmark(lambda: kernels.MACHINE.decode(block, batch, context).time)


def test_decode_steps_written_by_hand(benchmark, scenario, steps):
    block, batch, context, tp, bandwidth = steps
    time = benchmark(hand_written, scenario, batch, context, tp, bandwidth)
    np.testing.assert_allclose(time, kernels.MACHINE.decode(block, batch, context).time, rtol=1e-12)


@pytest.mark.parametrize("system", ["dgx-h100", "sn40l-16", "lpu-v1"])
def test_a_thousand_single_evaluations(benchmark, system):
    scenario = resolve("llama-3.1-70b", system, Options())
    benchmark.pedantic(lambda: [evaluate(scenario, WANTED) for _ in range(1000)], rounds=3, warmup_rounds=1)


# --- money -------------------------------------------------------------------------------------------------------

SYSTEMS = ("lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200")


def test_samples_of_cost(benchmark):
    """2^17 samples over every estimate of four systems; the goal is 3 s on one core."""
    scenarios = [resolve("llama-3.1-70b", name, Options(concurrency=32.0)) for name in SYSTEMS]
    sample = benchmark.pedantic(draw_samples, args=(scenarios, 2**17), rounds=3)
    assert all(len(drawn.results["blended"]) == 2**17 for drawn in sample.systems)


def test_tco_of_four_systems(benchmark):
    """What the command works out at a given concurrency, with bands, bills and swings."""
    options = Options(concurrency=32.0)
    result = benchmark.pedantic(own, args=("llama-3.1-70b", SYSTEMS, options), rounds=3)
    assert len(result.systems) == 4

"""Speed of predictions and sweeps: ratios in one run, absolute times printed as goals, nothing asserted.

Run with ``pytest benchmarks -p benchmark --benchmark-only``; OPENBLAS_NUM_THREADS=1 makes one core of it.
"""

import numpy as np
import pytest

from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import put
from perfmodel.studies.cost.ownership import own
from perfmodel.studies.cost.uncertainty import draw_samples
from perfmodel.studies.sweep import evaluate_grid

#: TTFT, TPOT and throughput; memory comes with every evaluation.
WANTED = ("ttft_s", "tpot_s", "output_tokens_per_s")
POINTS = 2**20


@pytest.fixture(scope="module")
def scenario():
    return resolve("llama-3.1-70b", "dgx-h100", Options(precision="fp8"))


def axes():
    """A million points over batch, context, P:D, TP and bandwidth."""
    return {
        "traffic.concurrency": np.linspace(1, 64, 16),
        "traffic.prompt": np.linspace(100, 16000, 16),
        "traffic.output": np.geomspace(16, 2000, 16),
        "deployment.tp": [1.0, 2.0, 4.0, 8.0],
        "system.memory.hbm.bandwidth": np.linspace(2e12, 8e12, 64),
    }


def scattered(scenario, points, seed=0):
    random = np.random.default_rng(seed)
    drawn = {
        "traffic.concurrency": random.integers(1, 64, points).astype(float),
        "traffic.prompt": random.uniform(100, 16000, points),
        "traffic.output": random.uniform(16, 2000, points),
        "deployment.tp": random.choice([1.0, 2.0, 4.0, 8.0], points),
        "system.memory.hbm.bandwidth": random.uniform(2e12, 8e12, points),
    }
    for path, values in drawn.items():
        scenario = put(scenario, path, values)
    return scenario


def hand_written(batch, context, tp, bandwidth):
    """The step time of the same dense model written out in NumPy: what the shared equations cost beside it."""
    layers, hidden, width, heads, kv = 80, 8192, 28672, 64, 8
    peak, time = 1979e12, 0.0
    shapes = (hidden * (heads + 2 * kv) * 128, heads * 128 * hidden, 2 * hidden * width, width * hidden)
    for parameters in shapes:
        compute = 2 * batch * parameters / tp / (peak * 0.61)
        time = time + layers * np.maximum(compute, parameters / tp / (bandwidth * 0.84))
    cache = batch * context * 2 * kv * 128 * 2
    time = time + layers * cache / np.minimum(tp, kv) / (bandwidth * 0.92)
    time = time + 128256 * hidden * 2 / tp / (bandwidth * 0.86)
    message = batch * hidden * 2
    small = 4.3e-6 * (1 + 0.05 * np.maximum(0, np.log2(tp) - 1)) + (tp - 1) * message / 302e9
    large = 4.9e-6 * (1 + 0.38 * np.maximum(0, np.log2(tp) - 1)) + 2 * (tp - 1) / tp * message / 278e9
    return time + 2 * layers * np.where(message < 2**19, small, large) + layers * 48e-6


def test_grid_of_a_million(benchmark, scenario):
    """Goal: 0.1 s on one core; 0.3 s since prompts share a step, which spreads prefill over batch and output."""
    answer = benchmark.pedantic(lambda: evaluate_grid(scenario, axes(), WANTED), rounds=7, warmup_rounds=2)
    assert answer.metrics["tpot_s"].shape == (16, 16, 16, 4, 64)


def test_a_million_scattered_points_in_blocks(benchmark, scenario):
    """Goal: 1 M predictions/s on one core."""
    blocks = [scattered(scenario, 2**15, seed) for seed in range(POINTS // 2**15)]
    benchmark.pedantic(lambda: [evaluate(block, WANTED) for block in blocks], rounds=5, warmup_rounds=1)


def test_hand_written_kernel_on_the_same_points(benchmark, scenario):
    """The step alone: no prefill, no memory, no steady state."""
    blocks = [scattered(scenario, 2**15, seed) for seed in range(POINTS // 2**15)]

    def run():
        for block in blocks:
            context = block.traffic.prompt + block.traffic.output / 2
            bandwidth = block.system.memory.hbm.bandwidth
            hand_written(block.traffic.concurrency, context, block.deployment.tp, bandwidth)

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)


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

"""The questions that the benchmarks time: a grid, scattered points, and a step written out by hand in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.machines.kernels_efficiency import KernelsEfficiency
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario

#: TTFT, TPOT and throughput; memory comes with every evaluation.
WANTED = ("ttft_s", "tpot_s", "output_tokens_per_s")
POINTS = 2**20
#: Scattered points of one array: few enough that intermediate results stay in the cache of a core.
BLOCK = 2**15


def axes() -> dict[str, Any]:
    """A million points over batch, context, P:D, TP and bandwidth."""
    return {
        "traffic.concurrency": np.linspace(1, 64, 16),
        "traffic.prompt": np.linspace(100, 16000, 16),
        "traffic.output": np.geomspace(16, 2000, 16),
        "deployment.tp": [1.0, 2.0, 4.0, 8.0],
        "system.memory.hbm.bandwidth": np.linspace(2e12, 8e12, 64),
    }


def scattered(scenario: Scenario, points: int, seed: int = 0) -> Scenario:
    """Points that share nothing: every input is drawn for each."""
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


def hand_written(scenario: Scenario, batch: Any, context: Any, tp: Any, bandwidth: Any) -> Any:
    """The time of a decode step of Llama-3.1-70B in FP8 on eight H100, written out by hand for this one case [s].

    The same formula, to the last digits, as the shared equations give for any model and machine.
    """
    e, rates = scenario.system.efficiency, scenario.system.rates
    assert isinstance(e, KernelsEfficiency)
    assert e.all_reduce is not None
    layers, hidden, width, heads, kv, dim, vocab = 80, 8192, 28672, 64, 8, 128, 128256
    query = heads * dim
    layer: Any = 0.0
    for parameters, columns in (
        (hidden * (heads + 2 * kv) * dim, hidden + (heads + 2 * kv) * dim),
        (query * hidden, query + hidden),
        (2 * hidden * width, hidden + width),
        (width * hidden, width + hidden),
    ):
        compute = batch / tp * (2 * parameters / (rates["fp8"] * e.gemm_compute["fp8"]))
        memory = (parameters + batch * (2 * columns)) / tp / (bandwidth * e.gemm_memory["fp8"])
        layer = layer + np.maximum(compute, memory)
    cache = batch * (context + 1) * (2 * kv * dim * 2) / np.minimum(tp, kv)
    compute = batch / tp * (context + 1) * (4 * query / (rates["bf16"] * e.attention_compute))
    memory = (batch / tp * (4 * query) + cache) / (bandwidth * e.attention_memory["bf16"])
    ramp = np.log1p(cache / 2**19) * (e.attention_growth["bf16"] / np.log(2))
    layer = layer + np.maximum(compute, memory) + ramp
    layer = layer + batch * (22 * hidden + 9 * width / tp) / (bandwidth * e.gemm_memory["bf16"])
    head = (vocab * hidden * 2 + batch * (2 * (hidden + vocab))) / tp / (bandwidth * e.gemm_memory["bf16"])
    compute = batch / tp * (2 * vocab * hidden / (rates["bf16"] * e.gemm_compute["bf16"]))
    message, doublings = batch * (2 * hidden), np.maximum(0, np.log2(tp) - 1)
    called = np.minimum(1, tp - 1)
    engine = e.all_reduce
    small = called * engine.small_latency * (1 + engine.small_growth * doublings)
    small = small + (tp - 1) * message / engine.small_bandwidth
    large = called * engine.large_latency * (1 + engine.large_growth * doublings)
    large = large + 2 * (tp - 1) / tp * message / (engine.large_bandwidth * engine.overlap)
    layer = layer + 2 * np.where(message < engine.threshold, small, large)
    layer = layer + (e.layer_time + e.quantise_time) + np.minimum(batch, 512) * e.sequence_traffic / bandwidth
    return layers * layer + np.maximum(compute, head) + e.sequence_time * batch + e.step_time

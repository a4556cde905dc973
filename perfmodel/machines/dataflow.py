"""Reconfigurable dataflow: the whole decoder is one fused pipeline.

Compute, memory and collectives of a decoder overlap.  KernelLooping synchronises once a loop over the decoders instead
of once a decoder; BatchStreaming fills the pipeline once a pass instead of once a layer; ScheduleOffloading asks the
host once in several tokens.
"""

from __future__ import annotations

from typing import Any, cast

from perfmodel.equations import pipeline, roofline
from perfmodel.machines.operators import (
    Operator,
    Overlap,
    Pass,
    Step,
    Work,
    busy_time,
    head_operator,
    layer_count,
    layer_operators,
)
from perfmodel.specs.types import DataflowEfficiency, Scenario
from perfmodel.trace import scope


def _fused(scenario: Scenario, operators: list[Operator], count: Any) -> tuple[Overlap, Any, Any]:
    """Return operators that overlap as one, so many times over, their FLOPs and their bytes."""
    system, tp = scenario.system, scenario.deployment.tp
    efficiency = cast(DataflowEfficiency, system.efficiency)
    hbm = system.memory.hbm
    assert hbm is not None
    compute: Any = 0.0
    flops: Any = 0.0
    moved: Any = 0.0
    for operator in operators:
        with scope(operator.name):
            precision = "bf16" if operator.kind == "attention" else operator.precision
            compute = compute + roofline.compute_time(
                flops=operator.flops / tp,
                peak=system.rates[system.computes_as[precision]],
                efficiency=efficiency.compute,
            )
        flops = flops + operator.flops
        # Activations flow from unit to unit without passing through memory.
        moved = moved + operator.weights + operator.cache
    memory = roofline.memory_time(bytes_moved=moved / tp, bandwidth=hbm.bandwidth, efficiency=efficiency.memory)
    return Overlap(count, compute, memory), flops, moved


def step(scenario: Scenario, work: Work) -> Step:
    """Return one forward step of a replica.

    The rate of the links between sockets is not published: collectives are taken as hidden, and the prediction names
    the least rate for which that holds.
    """
    model = scenario.model
    efficiency = cast(DataflowEfficiency, scenario.system.efficiency)
    layers = layer_count(model)
    overlaps: list[Overlap] = []
    flops: Any = 0.0
    moved: Any = 0.0
    for run in model.layers:
        with scope("decoder"):
            overlap, flops_part, moved_part = _fused(scenario, layer_operators(scenario, run, work), run.count)
        overlaps.append(overlap)
        flops = flops + run.count * flops_part
        moved = moved + run.count * moved_part
    with scope("head"):
        overlap, flops_part, moved_part = _fused(scenario, [head_operator(scenario, work)], 1.0)
    overlaps.append(overlap)
    fills: Any = 1.0
    if not efficiency.batch_streaming:
        fills = pipeline.exposed_warm_ups(layers=layers, sequences=work[0].sequences)
    overhead = efficiency.warm_up * fills if efficiency.kernel_looping else efficiency.kernel_boundary * layers
    host = efficiency.host_time
    if efficiency.schedule_offloading:
        host = host / efficiency.offloaded_tokens
    return Step(
        busy=busy_time(overlaps),
        overlaps=tuple(overlaps),
        overhead=overhead,
        host=host,
        flops=flops + flops_part,
        bytes_moved=moved + moved_part,
        sequences=work[0].sequences,
    )


def decode(scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
    """Return a decode step of a replica that runs ``running`` sequences, with so many new tokens each."""
    with scope("decode"):
        return step(scenario, (Pass(running, tokens, context, decoding=True),))


def prefill(scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any) -> tuple[Step, Any]:
    """Return the prefill of a group of prompts in one step, and the time that each takes from decoding."""
    with scope("prefill"):
        together = step(scenario, (Pass(group, prompt, 0.0),))
    return together, together.time / group

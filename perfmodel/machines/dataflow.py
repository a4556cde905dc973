"""Reconfigurable dataflow: the whole decoder is one fused pipeline.

A decoder lasts as long as its weights and cache stream in, and its arithmetic on top: public measurements of batched
speculation tell that the two do not hide each other.  It never lasts less than a sample takes to pass through.
Collectives are hidden.  KernelLooping replaces a boundary in every decoder by one fill of the loop; BatchStreaming lets
the samples of a batch follow each other into the next decoder; ScheduleOffloading asks the host once in several tokens.
"""

from __future__ import annotations

from typing import Any, cast

from perfmodel.equations import pipeline, roofline
from perfmodel.machines.operators import (
    Load,
    Operator,
    Overlap,
    Pass,
    Step,
    Work,
    busy_time,
    head_operator,
    layer_operators,
)
from perfmodel.specs.types import DataflowEfficiency, Scenario
from perfmodel.trace import scope


def _fused(scenario: Scenario, operators: list[Operator], count: Any) -> tuple[list[Overlap], Load]:
    """Return arithmetic and traffic of operators that run as one, so many times over, and their work."""
    system, tp = scenario.system, scenario.deployment.tp
    efficiency = cast(DataflowEfficiency, system.efficiency)
    hbm = system.memory.hbm
    assert hbm is not None
    compute: Any = 0.0
    flops: Any = 0.0
    weights: Any = 0.0
    cache: Any = 0.0
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
        weights = weights + operator.weights
        cache = cache + operator.cache
    memory = roofline.memory_time(bytes_moved=weights / tp, bandwidth=hbm.bandwidth, efficiency=efficiency.memory)
    memory = memory + roofline.memory_time(
        bytes_moved=cache / tp, bandwidth=hbm.bandwidth, efficiency=efficiency.cache_memory
    )
    return [Overlap(count, compute, 0.0), Overlap(count, 0.0, memory)], Load(count, flops, weights + cache)


def step(scenario: Scenario, work: Work) -> Step:
    """Return one forward step of a replica.

    The rate of the links between sockets is not published: collectives are taken as hidden, and the prediction names
    the least rate for which that holds.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Step
    """
    model = scenario.model
    efficiency = cast(DataflowEfficiency, scenario.system.efficiency)
    sequences = work[0].sequences
    latency = efficiency.warm_up
    if not efficiency.batch_streaming:
        latency = pipeline.decoder_latency(first=latency, sequences=sequences, each=efficiency.sample_time)
    overlaps: list[Overlap] = []
    overhead: Any = efficiency.step_time
    if efficiency.kernel_looping:
        overhead = overhead + efficiency.warm_up
    loads: list[Load] = []
    for run in model.layers:
        with scope("decoder"):
            parts, load = _fused(scenario, layer_operators(scenario, run, work), run.count)
            if not efficiency.kernel_looping:
                overhead = overhead + run.count * efficiency.kernel_boundary
            else:
                busy = busy_time(parts) / run.count
                overhead = overhead + run.count * pipeline.exposed_latency(latency=latency, busy=busy)
                if run.moe is not None:
                    # Which experts to fetch is known only when the router has run.
                    overhead = overhead + run.count * efficiency.expert_boundary * efficiency.kernel_boundary
        overlaps += parts
        loads.append(load)
    with scope("head"):
        parts, load = _fused(scenario, [head_operator(scenario, work)], 1.0)
    overlaps += parts
    loads.append(load)
    host = efficiency.host_time
    if efficiency.schedule_offloading:
        host = host / efficiency.offloaded_tokens
    return Step(
        busy=busy_time(overlaps),
        overlaps=tuple(overlaps),
        overhead=overhead,
        host=host,
        loads=tuple(loads),
        sequences=sequences,
    )


def decode(scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
    """Return a decode step of a replica that runs ``running`` sequences, with so many new tokens each.

    Parameters
    ----------
    scenario : Scenario
    running : Number
        Sequences that the replica runs [1].
    context : Number
        Mean tokens in the cache of a sequence [1].
    tokens : Number
        New tokens of each sequence [1].

    Returns
    -------
    Step
    """
    with scope("decode"):
        return step(scenario, (Pass(running, tokens, context, decoding=True),))


def prefill(scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any) -> tuple[Step, Any]:
    """Return the prefill of a group of prompts in one step, and the time that each takes from decoding.

    Parameters
    ----------
    scenario : Scenario
    running : Number
        Sequences that the replica runs [1].
    context : Number
        Mean tokens in the cache of a sequence that decodes [1].
    prompt : Number
        Tokens of each prompt [1].
    group : Number
        Prompts that are taken in at once [1].

    Returns
    -------
    tuple of Step and Number
        The step, and the time that one prompt takes from decoding [s].
    """
    with scope("prefill"):
        together = step(scenario, (Pass(group, prompt, 0.0),))
    return together, together.time / group

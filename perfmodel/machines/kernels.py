"""GPUs and other machines that run a step kernel by kernel.

A kernel lasts as long as the slower of its arithmetic and its traffic; collectives between kernels are not hidden;
every layer and every step cost a time that neither tensor parallelism nor bandwidth moves.
"""

from __future__ import annotations

import math
from typing import Any, cast

from perfmodel.equations import collectives, pipeline, roofline, transformer
from perfmodel.machines.operators import (
    ACTIVATION_BYTES,
    Load,
    Operator,
    Overlap,
    Pass,
    Step,
    Work,
    busy_time,
    head_operator,
    layer_count,
    layer_operators,
    summed_message,
    total,
)
from perfmodel.numerics import maximum, minimum
from perfmodel.specs.types import AllReduce, KernelsEfficiency, Link, Scenario, System
from perfmodel.trace import scope, value_of


def all_reduce_time(engine: AllReduce, message: Any, ranks: Any) -> Any:
    """All-reduce of an engine: one-shot below its threshold, two-shot from there on [s].

    Parameters
    ----------
    engine : AllReduce
        Its latencies, bandwidths and threshold.
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time [s].
    """
    small = collectives.one_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.small_latency, growth=engine.small_growth, ranks=ranks),
        bandwidth=engine.small_bandwidth,
    )
    large = collectives.two_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.large_latency, growth=engine.large_growth, ranks=ranks),
        bandwidth=engine.large_bandwidth,
    )
    return collectives.switched_all_reduce(message=message, threshold=engine.threshold, small=small, large=large)


def stage_link(system: System) -> Link:
    """Return the link between pipeline stages: the network, or the scale-up links where no network is published.

    Parameters
    ----------
    system : System

    Returns
    -------
    Link
    """
    bandwidth = value_of(system.network.bandwidth_per_direction)
    unpublished = isinstance(bandwidth, float) and math.isnan(bandwidth)
    return system.link if unpublished else system.network


def kernel(scenario: Scenario, operator: Operator, count: Any) -> tuple[Overlap, Load]:
    """Return arithmetic and traffic of one kernel, so many times over, and its work in the whole model.

    Parameters
    ----------
    scenario : Scenario
    operator : Operator
        Its work over the whole tensor-parallel group.
    count : Number
        Times that the kernel runs in a step [1].

    Returns
    -------
    tuple of Overlap and Load
    """
    system, plan = scenario.system, scenario.deployment
    efficiency = cast(KernelsEfficiency, system.efficiency)
    hbm = system.memory.hbm
    assert hbm is not None
    if operator.kind == "attention":
        rate = system.computes_as["bf16"]
        compute_efficiency = efficiency.attention_compute
        memory_efficiency = efficiency.attention_memory[cache_kind(operator.precision)]
    else:
        rate = system.computes_as[operator.precision]
        compute_efficiency, memory_efficiency = efficiency.gemm_compute[rate], efficiency.gemm_memory[rate]
    if operator.exchange is not None:
        converted = operator.precision in ("fp4", "mxfp4", "int4") and rate in ("bf16", "fp16")
        share = efficiency.dequantised_expert_compute if converted else efficiency.expert_compute
        compute_efficiency, memory_efficiency = compute_efficiency * share, efficiency.expert_memory
    shards = plan.tp if operator.shards is None else operator.shards
    flops = operator.flops / shards
    moved = (operator.weights + operator.activations) / shards
    if operator.kind == "attention":
        moved = moved + operator.cache / operator.cache_shards
    if operator.exchange is not None:
        fullest = transformer.imbalance_factor(imbalance=efficiency.expert_imbalance, ep=plan.ep)
        flops, moved = (operator.flops + operator.padding) / shards * fullest, moved * fullest
    return (
        Overlap(
            count,
            roofline.compute_time(flops=flops, peak=system.rates[rate], efficiency=compute_efficiency),
            roofline.memory_time(bytes_moved=moved, bandwidth=hbm.bandwidth, efficiency=memory_efficiency),
        ),
        Load(operator.count, operator.flops, moved, plan.tp),
    )


#: Cache bytes of a block of decode attention, the unit in which its growth was fitted.
ATTENTION_BLOCK = 2.0**19


def cache_kind(precision: str) -> str:
    """Return which of the two measured cache precisions stands for one.

    Parameters
    ----------
    precision : str
        Of the cache.

    Returns
    -------
    str
        ``bf16`` or ``fp8``.
    """
    return "bf16" if precision in ("bf16", "fp16") else "fp8"


def ramp_time(scenario: Scenario, operator: Operator) -> Any:
    """Time that an attention kernel takes beyond traffic and fixed time [s].

    Parameters
    ----------
    scenario : Scenario
    operator : Operator
        Its work over the whole tensor-parallel group.

    Returns
    -------
    Number
        Time [s].
    """
    efficiency = cast(KernelsEfficiency, scenario.system.efficiency)
    return roofline.attention_ramp(
        growth=efficiency.attention_growth[cache_kind(operator.precision)],
        moved=operator.cache / operator.cache_shards,
        block=ATTENTION_BLOCK,
    )


def collective_time(scenario: Scenario, operator: Operator, summed: Any) -> Any:
    """Return the collectives that follow one kernel [s]: a sum over the tensor ranks, an exchange between experts.

    Parameters
    ----------
    scenario : Scenario
    operator : Operator
        Its work over the whole tensor-parallel group.
    summed : Number
        Time of one sum over the tensor ranks [s].

    Returns
    -------
    Number
        Time [s].
    """
    plan = scenario.deployment
    time: Any = 0.0
    if operator.all_reduce is not None:
        time = summed
    if operator.exchange is not None:
        # Within a tensor-parallel group every rank has all tokens; only replicas that share experts exchange them.
        shared = minimum(1.0, maximum(0.0, plan.ep / plan.tp - 1))
        time = time + 2 * shared * _launched(scenario, expert_exchange(scenario, operator.exchange / plan.tp))
    return time


def _launched(scenario: Scenario, time: Any) -> Any:
    """Return a collective's time with or without a CUDA graph."""
    efficiency = cast(KernelsEfficiency, scenario.system.efficiency)
    if efficiency.cuda_graphs:
        return time
    return collectives.eager_collective(collective=time, launch=efficiency.eager_launch)


def expert_exchange(scenario: Scenario, message: Any) -> Any:
    """All-to-all between the expert ranks [s].

    Parameters
    ----------
    scenario : Scenario
    message : Number
        Bytes that each rank sends [B].

    Returns
    -------
    Number
        Time [s].
    """
    system, plan = scenario.system, scenario.deployment
    efficiency = cast(KernelsEfficiency, system.efficiency)
    return collectives.all_to_all(
        message=message,
        ranks=plan.ep,
        latency=efficiency.call_latency if efficiency.all_reduce is None else efficiency.all_reduce.small_latency,
        bandwidth=system.link.bandwidth_per_direction * efficiency.link_efficiency[system.link.topology],
    )


def topology_all_reduce(system: System, message: Any, ranks: Any) -> Any:
    """All-reduce by the closed form of the topology, where the engine's own was not measured [s].

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time [s].
    """
    efficiency, link = cast(KernelsEfficiency, system.efficiency), system.link
    bandwidth = link.bandwidth_per_direction * efficiency.link_efficiency[link.topology]
    latency = collectives.call_latency(base=efficiency.call_latency, growth=0.0, ranks=ranks)
    if link.topology == "mesh":
        return collectives.full_mesh_all_reduce(
            message=message, ranks=ranks, latency=latency, link_bandwidth=bandwidth / (system.chips_per_node - 1)
        )
    if link.topology.startswith("torus"):
        # The call's latency is per call and carries its hops: per-hop terms would count them twice.
        return collectives.torus_all_reduce(
            message=message,
            ranks=ranks,
            dimensions=float(link.topology[-2]),
            latency=latency,
            hop_latency=0.0,
            bandwidth=bandwidth,
        )
    return collectives.two_shot_all_reduce(message=message, ranks=ranks, latency=latency, bandwidth=bandwidth)


def tensor_all_reduce(scenario: Scenario, message: Any) -> Any:
    """All-reduce over the tensor ranks [s]: inside a node, or hierarchical over several.

    Parameters
    ----------
    scenario : Scenario
    message : Number
        Bytes that each rank contributes [B].

    Returns
    -------
    Number
        Time [s].
    """
    system, plan = scenario.system, scenario.deployment
    efficiency = cast(KernelsEfficiency, system.efficiency)
    # A torus has no node boundary: its links go on.
    reach = plan.tp if system.link.topology.startswith("torus") else system.chips_per_node
    inside = minimum(plan.tp, reach)
    if efficiency.all_reduce is None:
        local = topology_all_reduce(system, message, inside)
    else:
        local = all_reduce_time(efficiency.all_reduce, message, inside)
    across = collectives.ring_all_reduce(
        message=message / inside,
        ranks=plan.tp / inside,
        hop_latency=efficiency.stage_latency,
        bandwidth=stage_link(system).bandwidth_per_direction,
    )
    return _launched(scenario, collectives.hierarchical_all_reduce(local=local, across=across))


#: The most sequences in a step that the fitted rows hold; what a sequence moves is not known to go on growing beyond.
SEEN_SEQUENCES = 512.0


def fixed_time(scenario: Scenario, sequences: Any) -> Any:
    """Time that the layers take whatever they move or compute: launches, norms, routing, quantisation [s].

    Parameters
    ----------
    scenario : Scenario
    sequences : Number
        Sequences in the step [1].

    Returns
    -------
    Number
        Time [s].
    """
    system, plan = scenario.system, scenario.deployment
    efficiency = cast(KernelsEfficiency, system.efficiency)
    hbm = system.memory.hbm
    assert hbm is not None
    with scope("sequences"):
        moved = roofline.memory_time(
            bytes_moved=efficiency.sequence_traffic * minimum(sequences, SEEN_SEQUENCES),
            bandwidth=hbm.bandwidth,
            efficiency=1.0,
        )
    each = efficiency.layer_time
    if system.computes_as[plan.precision] not in ("bf16", "fp16"):
        each = each + efficiency.quantise_time
    time = layer_count(scenario.model) * (each + moved)
    for run in scenario.model.layers:
        if run.moe is not None:
            time = time + run.count * efficiency.expert_time
    return time


def step(scenario: Scenario, work: Work) -> Step:
    """Return one forward step of a replica: every pipeline stage in turn, on one micro-batch.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Step
    """
    system, model, plan = scenario.system, scenario.model, scenario.deployment
    efficiency = cast(KernelsEfficiency, system.efficiency)
    layers = layer_count(model)
    balance = pipeline.layers_per_stage(layers=layers, stages=plan.pp) * plan.pp / layers
    sequences = total(part.sequences for part in work)
    overlaps: list[Overlap] = []
    with scope("all_reduce"):
        # Every sum over the tensor ranks has the same message, so that one time stands for all of them.
        tokens = total(part.sequences * part.tokens for part in work)
        summed = tensor_all_reduce(scenario, summed_message(scenario, tokens))
    collective: Any = 0.0
    ramp: Any = 0.0
    loads: list[Load] = []
    for run in model.layers:
        repeated = run.count * balance
        for operator in layer_operators(scenario, run, work):
            with scope(operator.name):
                overlap, load = kernel(scenario, operator, repeated)
                if operator.kind == "attention":
                    ramp = ramp + repeated * ramp_time(scenario, operator)
                if operator.all_reduce is not None or operator.exchange is not None:
                    collective = collective + repeated * collective_time(scenario, operator, summed)
            overlaps.append(overlap)
            loads.append(load)
    head = head_operator(scenario, work)
    with scope("head"):
        overlap, load = kernel(scenario, head, 1.0)
    overlaps.append(overlap)
    loads.append(load)
    with scope("stages"):
        hop = collectives.hop_time(
            message=work[0].sequences * work[0].tokens * model.hidden * ACTIVATION_BYTES,
            hops=1.0,
            latency=efficiency.stage_latency,
            bandwidth=stage_link(system).bandwidth_per_direction * plan.tp,
        )
    return Step(
        busy=busy_time(overlaps),
        overlaps=tuple(overlaps),
        collective=collective + (plan.pp - 1) * hop,
        overhead=balance * fixed_time(scenario, sequences) + ramp,
        host=efficiency.step_time + efficiency.sequence_time * sequences,
        loads=tuple(loads),
        sequences=work[0].sequences,
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
    batch = pipeline.microbatch_size(running=running, stages=scenario.deployment.pp)
    with scope("decode"):
        return step(scenario, (Pass(batch, tokens, context, decoding=True),))


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
    return together, together.time / group / scenario.deployment.pp

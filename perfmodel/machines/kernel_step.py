"""A step of a GPU: one kernel an operator, collectives between them, and what the engine's host adds."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import collectives, experts, pipeline, roofline
from perfmodel.machines.all_reduce import group_all_reduce, launched
from perfmodel.machines.expert_exchange import DISPATCH_BYTES, expert_exchange
from perfmodel.machines.gemm import summed_message
from perfmodel.machines.kernels_efficiency import efficiency_of
from perfmodel.machines.kv_cache import ACTIVATION_BYTES, indexer_of
from perfmodel.machines.links import stage_link
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.step import Load, Operator, Overlap, Step, Work, busy_time
from perfmodel.machines.weight_bytes import storage_of
from perfmodel.numerics import maximum, minimum, total
from perfmodel.specs.types import (
    Layers,
    Scenario,
    System,
)
from perfmodel.specs.weights import is_recurrent, layer_count
from perfmodel.trace import scope


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
    efficiency = efficiency_of(system)
    hbm = system.memory.hbm
    assert hbm is not None
    if operator.kind == "attention":
        rate = system.computes_as["bf16"]
        recurrent = operator.name == "state"
        compute_efficiency = efficiency.recurrent_compute if recurrent else efficiency.attention_compute
        memory_efficiency = efficiency.attention_memory[cache_kind(operator.precision)]
    else:
        rate = system.computes_as[operator.precision]
        compute_efficiency, memory_efficiency = efficiency.gemm_compute[rate], efficiency.gemm_memory[rate]
    if operator.exchange is not None:
        share = efficiency.expert_compute[expert_kernels(system, operator.precision)]
        compute_efficiency, memory_efficiency = compute_efficiency * share, efficiency.expert_memory
    shards = plan.tp if operator.shards is None else operator.shards
    flops, useful = operator.flops / shards, operator.flops
    moved = (operator.weights + operator.activations) / shards
    if operator.kind == "attention":
        moved = moved + operator.cache / operator.cache_shards
    if operator.exchange is not None:
        fullest = experts.imbalance_factor(imbalance=efficiency.expert_imbalance, ep=plan.ep)
        flops, moved = (operator.flops + operator.padding) / shards * fullest, moved * fullest
        # Ranks of other groups share the experts: this group's part of the work is that of its own tokens.
        useful = operator.flops * plan.tp / shards
    return (
        Overlap(
            count,
            roofline.compute_time(flops=flops, peak=system.rates[rate], efficiency=compute_efficiency),
            roofline.memory_time(bytes_moved=moved, bandwidth=hbm.bandwidth, efficiency=memory_efficiency),
            operator.name,
        ),
        Load(operator.count, useful, moved, plan.tp, operator.name),
    )


def expert_kernels(system: System, precision: str) -> str:
    """Return which family of kernels runs experts that are stored in a precision.

    Parameters
    ----------
    system : System
    precision : str
        Storage of the experts.

    Returns
    -------
    str
        ``bf16``, ``fp8``, ``fp4``, ``mxfp4`` or ``dequantised``: weights that are converted on the way.
    """
    rate = system.computes_as[precision]
    if precision in ("fp4", "mxfp4", "int4"):
        if rate in ("bf16", "fp16") or precision == "int4":
            return "dequantised"
        return precision if "fp4" in system.rates else "fp8"
    return "bf16" if rate in ("bf16", "fp16") else "fp8"


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
    efficiency = efficiency_of(scenario.system)
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
        # Within a tensor-parallel group every rank has all tokens; only groups that share experts exchange them.
        shared = minimum(1.0, maximum(0.0, plan.ep / plan.tp - 1))
        eight_bits = scenario.system.computes_as[operator.precision] not in ("bf16", "fp16")
        with scope("dispatch"):
            there = expert_exchange(scenario, operator.exchange, DISPATCH_BYTES if eight_bits else ACTIVATION_BYTES)
        with scope("combine"):
            back = expert_exchange(scenario, operator.exchange, ACTIVATION_BYTES)
        time = time + shared * (launched(scenario, there, plan.ep) + launched(scenario, back, plan.ep))
    return time


#: What the classes of models are called in words.
CLASS_SAYS = {
    "dense": "dense models",
    "experts": "mixtures of experts",
    "latent": "models of latent attention",
    "sparse": "models of sparse attention",
    "recurrent": "models with recurrent layers",
}


#: By how much a band is wider where the efficiencies are those of a kin of the chip.
BY_KIN = 1.25


def spread_key(model: str) -> str:
    """Return the name under which the spread of a fitted model stands: paths have no room for its points.

    Parameters
    ----------
    model : str

    Returns
    -------
    str
    """
    return model.replace(".", "_")


def tensor_all_reduce(scenario: Scenario, message: Any) -> Any:
    """All-reduce over the tensor ranks [s], with or without a CUDA graph.

    Parameters
    ----------
    scenario : Scenario
    message : Number
        Bytes that each rank contributes [B].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    tp = scenario.deployment.tp
    return launched(scenario, group_all_reduce(scenario.system, message, tp), tp)


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
    efficiency = efficiency_of(system)
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
        if run.mla is not None or run.compressed is not None:
            time = time + run.count * efficiency.latent_time
        if indexer_of(run) is not None:
            time = time + run.count * efficiency.indexer_time
        if is_recurrent(run):
            time = time + run.count * efficiency.recurrent_time
        if run.moe is not None:
            experts = storage_of(scenario, "experts", run).precision
            time = time + run.count * efficiency.expert_time[expert_kernels(system, experts)]
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
    efficiency = efficiency_of(system)
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


def query_heads(run: Layers) -> tuple[float, float]:
    """Return the heads and the KV heads of a layer; latents have no heads to split: every rank holds them.

    Parameters
    ----------
    run : Layers

    Returns
    -------
    tuple of float
    """
    part = run.attention or run.mla
    return float(part.heads) if part else 1.0, float(run.attention.kv_heads) if run.attention else 1.0


def divides(heads: float, kv_heads: float, ranks: float) -> bool:
    """Whether ranks divide heads, and KV heads divide or are divided.

    Parameters
    ----------
    heads, kv_heads, ranks : float

    Returns
    -------
    bool
    """
    return not (heads % ranks or (kv_heads % ranks and ranks % kv_heads))

"""GPUs and other machines that run a step kernel by kernel.

A kernel lasts as long as the slower of its arithmetic and its traffic; collectives between kernels are not hidden;
every layer and every step cost a time that neither tensor parallelism nor bandwidth moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import collectives, experts, pipeline, roofline, topologies
from perfmodel.errors import UserError
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.base import FrontEnd, listed, scale_up_link, stage_link
from perfmodel.machines.gemm import summed_message
from perfmodel.machines.kv_cache import ACTIVATION_BYTES, indexer_of
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.power import CausePower
from perfmodel.machines.step import Exchange, Load, Operator, Overlap, Pass, Step, Work, busy_time
from perfmodel.machines.weight_bytes import storage_of
from perfmodel.numerics import maximum, minimum, total
from perfmodel.specs.types import (
    AtLeastOne,
    Bandwidth,
    Bytes,
    Deployment,
    Efficiency,
    Layers,
    Model,
    PositiveShare,
    Provenance,
    Ratio,
    Scenario,
    Seconds,
    System,
)
from perfmodel.specs.weights import CLASSES, is_recurrent, layer_count, model_class
from perfmodel.trace import is_given, scope

#: Nodes and pipeline stages up to which layouts are tried.
_NODES = 4
_STAGES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


@dataclass(frozen=True)
class AllReduce:
    """All-reduce of an engine: a one-shot algorithm below the threshold, a two-shot one from there on.

    It was measured over links of ``link_bandwidth``; on others its bandwidths go with the rate of the links.  By
    ``overlap`` a large one takes less time beside a prefill, which hides a part of it, than by itself.
    """

    small_latency: Seconds
    small_growth: Ratio
    small_bandwidth: Bandwidth
    large_latency: Seconds
    large_growth: Ratio
    large_bandwidth: Bandwidth
    threshold: Bytes
    link_bandwidth: Bandwidth
    overlap: AtLeastOne = 1.0


@dataclass(frozen=True)
class KernelsEfficiency(Efficiency):
    """How a GPU engine runs: efficiencies by rate name, and times that neither TP nor bandwidth moves.

    Where no all-reduce was measured, the topology's closed form applies with ``call_latency`` and ``link_efficiency``;
    over PCIe, where engines have no kernels of their own, a call is one of NCCL.
    Latencies of calls hold hops of ``hop_latency``; those of a system whose own are known take their place.
    """

    gemm_memory: Mapping[str, PositiveShare]
    gemm_compute: Mapping[str, PositiveShare]
    attention_memory: Mapping[str, PositiveShare]
    attention_growth: Mapping[str, Seconds]
    attention_compute: PositiveShare
    expert_memory: PositiveShare
    expert_compute: Mapping[str, PositiveShare]
    expert_evenness: PositiveShare
    expert_tile: AtLeastOne
    layer_time: Seconds
    latent_time: Seconds
    indexer_time: Seconds
    recurrent_time: Seconds
    recurrent_compute: PositiveShare
    expert_time: Mapping[str, Seconds]
    quantise_time: Seconds
    step_time: Seconds
    sequence_time: Seconds
    sequence_traffic: Bytes
    request_time: Seconds
    stream_time: Seconds
    prefill_group: AtLeastOne
    tpot_spread: Mapping[str, Ratio]
    ttft_spread: Mapping[str, Ratio]
    stage_latency: Seconds
    expert_imbalance: AtLeastOne
    call_latency: Seconds
    nccl_latency: Seconds
    nccl_growth: Ratio
    hop_latency: Seconds
    link_efficiency: Mapping[str, PositiveShare]
    eager_launch: Seconds
    all_reduce: AllReduce | None = None
    eager: bool = False

    def at_rates(self, rates: Iterable[str]) -> KernelsEfficiency:
        """Return what is reached at the rates that a system has.

        Parameters
        ----------
        rates : iterable of str

        Returns
        -------
        KernelsEfficiency
        """
        known = set(rates)
        memory, compute = (
            {rate: share for rate, share in part.items() if rate in known}
            for part in (self.gemm_memory, self.gemm_compute)
        )
        # Experts in 4 bits run as they are stored where a chip computes in 4 bits.
        unused = () if "fp4" in known else ("fp4", "mxfp4")
        time, share = (
            {kernels: value for kernels, value in part.items() if kernels not in unused}
            for part in (self.expert_time, self.expert_compute)
        )
        return replace(self, gemm_memory=memory, gemm_compute=compute, expert_time=time, expert_compute=share)

    def even_experts(self, experts: Any) -> Any:
        """Return how many evenly picked experts would be met as often as the real, unevenly picked ones.

        Parameters
        ----------
        experts : Number
            Of a layer [1].

        Returns
        -------
        Number
            Experts [1].
        """
        return self.expert_evenness * experts

    def expert_rows(self) -> Any:
        """Return the rows of a tile of grouped matrix products."""
        return self.expert_tile


def efficiency_of(system: System) -> KernelsEfficiency:
    """Return what the engine reaches on a system of this kind.

    Parameters
    ----------
    system : System

    Returns
    -------
    KernelsEfficiency
    """
    found = system.efficiency
    assert isinstance(found, KernelsEfficiency), system.name
    return found


def all_reduce_time(engine: AllReduce, message: Any, ranks: Any, faster: Any = 1.0, later: Any = 0.0) -> Any:
    """All-reduce of an engine: one-shot below its threshold, two-shot from there on [s].

    Parameters
    ----------
    engine : AllReduce
        Its latencies, bandwidths and threshold.
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].
    faster : Number
        Rate of the links over that of those on which it was measured [1].
    later : Number
        Time by which an exchange takes longer than on those [s].

    Returns
    -------
    Number
        Time [s].
    """
    small = collectives.one_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.small_latency, growth=engine.small_growth, ranks=ranks) + later,
        bandwidth=engine.small_bandwidth * faster,
    )
    large = collectives.two_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.large_latency, growth=engine.large_growth, ranks=ranks)
        + 2 * later,
        bandwidth=engine.large_bandwidth * engine.overlap * faster,
    )
    return collectives.switched_all_reduce(message=message, threshold=engine.threshold, small=small, large=large)


def later_hop(system: System, ranks: Any) -> Any:
    """Time by which a hop takes longer than one of those that the latencies of calls hold [s].

    Parameters
    ----------
    system : System
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time; 0 for one rank, and where the hops of the system are not published [s].
    """
    hop = system.link.hop_latency
    return minimum(1.0, ranks - 1) * (hop - efficiency_of(system).hop_latency) if is_given(hop) else 0.0


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
        ),
        Load(operator.count, useful, moved, plan.tp),
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
        time = time + shared * (_launched(scenario, there, plan.ep) + _launched(scenario, back, plan.ep))
    return time


def _launched(scenario: Scenario, time: Any, ranks: Any) -> Any:
    """Return a collective's time with or without a CUDA graph; one rank alone launches none."""
    efficiency = efficiency_of(scenario.system)
    if not efficiency.eager:
        return time
    return collectives.eager_collective(collective=time, launch=efficiency.eager_launch * minimum(1.0, ranks - 1))


#: Bytes of an element on the way to experts that compute in 8 bits or fewer: FP8 and an FP32 scale for 128 of them.
DISPATCH_BYTES = 1 + 4 / 128


def _reach(system: System, ranks: Any) -> Any:
    """Return the chips of a group that its scale-up links join; a torus has no node boundary, its links go on."""
    return ranks if system.link.topology.startswith("torus") else minimum(ranks, system.chips_per_node)


def expert_exchange(scenario: Scenario, exchange: Exchange, element: float) -> Any:
    """Exchange of tokens between the expert ranks, one way [s].

    Parameters
    ----------
    scenario : Scenario
    exchange : Exchange
    element : float
        Bytes of an element on the way [B].

    Returns
    -------
    Number
        Time [s].
    """
    plan = scenario.deployment
    # Each tensor rank sends its part of the tokens that the group shares.
    once = exchange.elements * element / plan.tp
    return exchanged(scenario.system, once, exchange, plan.ep)


def exchanged(system: System, once: Any, exchange: Exchange, ranks: Any) -> Any:
    """Exchange between ranks of which each sends so many bytes of vectors to the experts of their tokens, one way [s].

    Parameters
    ----------
    system : System
    once : Number
        Bytes of the vectors that a rank sends, each counted once [B].
    exchange : Exchange
        How many copies of a vector go where.
    ranks : Number
        Chips that share the experts [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    node = _reach(system, ranks)
    crossing = collectives.crossing_share(ranks=ranks, node=node)
    copies = exchange.copies
    if exchange.forwarded:
        nodes = ranks / node if exchange.node_limit is None else minimum(ranks / node, exchange.node_limit)
        across = collectives.reached_nodes(copies=copies, nodes=nodes) * crossing
        inside = copies * (node - 1) / node
    else:
        across, inside = copies * crossing, copies * (node - 1) / ranks
    call = efficiency.call_latency if efficiency.all_reduce is None else efficiency.all_reduce.small_latency
    latency = minimum(1.0, ranks - 1) * call
    if system.link.topology in BUSES:
        latency = nccl_call(system, node)
    latency = latency + later_hop(system, ranks)
    link = scale_up_link(system)
    return collectives.hierarchical_all_to_all(
        inside=inside * once,
        across=across * once,
        latency=latency + minimum(1.0, ranks / node - 1) * efficiency.stage_latency,
        bandwidth=link.bandwidth_per_direction * efficiency.link_efficiency[link.topology],
        network=stage_link(system).bandwidth_per_direction,
    )


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
#: Topologies on which chips share a bus.
BUSES = ("pcie", "pcie_host")


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


def nccl_call(system: System, ranks: Any) -> Any:
    """Fixed time of a collective of NCCL [s].

    Parameters
    ----------
    system : System
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    return collectives.call_latency(base=efficiency.nccl_latency, growth=efficiency.nccl_growth, ranks=ranks)


def nccl_all_reduce(system: System, message: Any, ranks: Any) -> Any:
    """All-reduce of NCCL over the links of a node, whatever the engine has of its own [s].

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
        Time; 0 for one rank [s].
    """
    link = scale_up_link(system)
    return collectives.two_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=nccl_call(system, ranks) + 2 * later_hop(system, ranks),
        bandwidth=link.bandwidth_per_direction * efficiency_of(system).link_efficiency[link.topology],
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
    efficiency, link = efficiency_of(system), scale_up_link(system)
    if link.topology in BUSES:
        return nccl_all_reduce(system, message, ranks)
    bandwidth = link.bandwidth_per_direction * efficiency.link_efficiency[link.topology]
    latency = collectives.call_latency(base=efficiency.call_latency, growth=0.0, ranks=ranks)
    later = later_hop(system, ranks)
    if link.topology.startswith("torus"):
        # The call's latency is per call and carries its hops: only what they take beyond those counts here.
        return topologies.torus_all_reduce(
            message=message,
            ranks=ranks,
            dimensions=float(link.topology[-2]),
            latency=latency,
            hop_latency=later,
            bandwidth=bandwidth,
        )
    latency = latency + 2 * later
    if link.topology == "mesh":
        return topologies.full_mesh_all_reduce(
            message=message,
            ranks=ranks,
            latency=latency,
            link_bandwidth=bandwidth / maximum(1.0, system.chips_per_node - 1),
        )
    return collectives.two_shot_all_reduce(message=message, ranks=ranks, latency=latency, bandwidth=bandwidth)


def group_all_reduce(system: System, message: Any, ranks: Any, nccl: bool = False) -> Any:
    """All-reduce of a group in a CUDA graph [s]: inside a node, or hierarchical over several.

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].
    nccl : bool
        Whether it is NCCL's, whatever the engine has of its own.

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    inside = _reach(system, ranks)
    if nccl:
        local = nccl_all_reduce(system, message, inside)
    elif efficiency.all_reduce is None:
        local = topology_all_reduce(system, message, inside)
    else:
        measured = efficiency.all_reduce
        local = all_reduce_time(
            measured,
            message,
            inside,
            faster=scale_up_link(system).bandwidth_per_direction / measured.link_bandwidth,
            later=later_hop(system, inside),
        )
    across = collectives.ring_all_reduce(
        message=message / inside,
        ranks=ranks / inside,
        hop_latency=efficiency.stage_latency,
        bandwidth=stage_link(system).bandwidth_per_direction,
    )
    return collectives.hierarchical_all_reduce(local=local, across=across)


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
    return _launched(scenario, group_all_reduce(scenario.system, message, tp), tp)


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


def _heads(run: Layers) -> tuple[float, float]:
    """Return the heads and the KV heads of a layer; latents have no heads to split: every rank holds them."""
    part = run.attention or run.mla
    return float(part.heads) if part else 1.0, float(run.attention.kv_heads) if run.attention else 1.0


def _divides(heads: float, kv_heads: float, ranks: float) -> bool:
    """Whether ranks divide heads, and KV heads divide or are divided."""
    return not (heads % ranks or (kv_heads % ranks and ranks % kv_heads))


class Kernels(Alternating):
    """GPUs and other machines that run a step kernel by kernel."""

    name = "kernels"
    efficiency = KernelsEfficiency
    power_shape = CausePower
    engines = ("vllm", "trtllm", "sglang")
    shards_by_head = True
    stores_activations = True
    free_degrees = True
    spreads_experts = True
    failures_published = True
    spread_holds_efficiencies = True
    draft_host_time = 1.2e-3
    draft_host_source = Provenance(
        "vLLM 0.10 on H100, Llama-3.1-8B with EAGLE: 1.2 ms a step (SpecDecode-Bench simulator profile)",
        "estimate",
        low=0.0,
        high=2.4e-3,
    )

    def step(self, scenario: Scenario, work: Work) -> Step:
        # One forward step of a replica, on one micro-batch.
        return step(scenario, work)

    def decode(self, scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
        # Micro-batches of all stages follow each other, and the host works for each of them.
        stages = scenario.deployment.pp
        batch = pipeline.mean_microbatch(running=running, stages=stages)
        with scope("decode"):
            one = step(scenario, (Pass(batch, tokens, context, decoding=True),))
            return replace(one, host=stages * one.host)

    def prefill(
        self, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
    ) -> tuple[Step, Any]:
        # Prompts of one cycle are dealt to the micro-batches, and those that decode wait for the longest.
        stages = scenario.deployment.pp
        batch = pipeline.mean_microbatch(running=group, stages=stages)
        with scope("prefill"):
            one = step(scenario, (Pass(batch, prompt, before),))
            return one, pipeline.stalled_share(stages=stages, jobs=group) * one.time / batch

    def batch_prefill(self, scenario: Scenario, batch: Any, prompt: Any) -> Any:
        # The time of a static batch of prompts in one step [s].
        return step(scenario, (Pass(batch, prompt, 0.0),)).time

    def layouts(self, scenario: Scenario) -> Iterator[tuple[float, float]]:
        # The degrees that divide a node or are whole nodes, with some numbers of stages.
        node = int(float(scenario.system.chips_per_node))
        degrees = [float(tp) for tp in range(1, node + 1) if node % tp == 0]
        degrees += [float(node * count) for count in range(2, _NODES + 1)] if node < 32 else []
        layers = float(layer_count(scenario.model))
        for tp in degrees:
            yield from ((tp, pp) for pp in _STAGES if pp <= layers and tp * pp <= node * _NODES)

    def unmeasured(self, scenario: Scenario) -> str:
        # Serving runs that were fitted and scored stand on tensor ranks of one node.
        plan = scenario.deployment
        if float(plan.pp) > 1:
            return "pipeline stages on GPUs"
        return "TP over nodes" if float(plan.tp) > float(scenario.system.chips_per_node) else ""

    def check_plan(self, model: Model, system: System, plan: Deployment) -> None:
        # Refuse ranks that do not divide the heads, and such that fit no nodes.
        node, tp, cores = float(system.chips_per_node), float(plan.tp), float(system.cores)
        for run in model.layers:
            if run.attention is None and run.mla is None:
                continue
            heads, kv_heads = _heads(run)
            if not system.pads_heads and not _divides(heads, kv_heads, tp * cores):
                ranks = f" of {cores:g} cores" if cores > 1 else ""
                degrees = listed(t for t in range(1, int(heads) + 1) if _divides(heads, kv_heads, t * cores))
                raise UserError(
                    f"--tp {tp:g}{ranks} does not divide the {heads:g} heads ({kv_heads:g} KV heads) of {model.name}; "
                    f"use {f'one of {degrees}' if degrees else 'another system'}"
                )
        if node % tp and tp % node:
            raise UserError(
                f"--tp {tp:g} neither divides nor is a multiple of the {node:g} chips of a {system.name} node"
            )

    def splits(self, model: Model, tp: float) -> bool:
        # Whether tensor ranks divide the heads of every layer of a model.
        return all(_divides(*_heads(run), tp) for run in model.layers if run.attention or run.mla)

    def stage_latency(self, system: System) -> float:
        # The calibrated latency between pipeline stages [s].
        return float(efficiency_of(system).stage_latency)

    def front_end(self, system: System) -> FrontEnd:
        # The calibrated front end of the engine.
        found = efficiency_of(system)
        return FrontEnd(found.request_time, found.stream_time, found.prefill_group)

    def drafting(self, target: Scenario, draft: Scenario) -> Scenario:
        # A draft on as many of the target's ranks as divide its heads.
        assert target.speculation is not None
        tp = minimum(target.deployment.tp, target.speculation.max_tp)
        return replace(draft, deployment=replace(draft.deployment, tp=tp))

    def outside(self, scenario: Scenario) -> list[str]:
        # What of a question the calibration did not see; bands widen by half there.
        plan, traffic = scenario.deployment, scenario.traffic
        asked = (
            (float(traffic.concurrency) / float(plan.dp), SEEN_SEQUENCES, "requests at once in a replica"),
            (float(traffic.prompt), 16384.0, "prompt tokens"),
            (float(plan.tp), 8.0, "tensor ranks"),
        )
        return [f"{value:,g} {name} (up to {limit:,g})" for value, limit, name in asked if value > limit]

    def spreads(self, scenario: Scenario) -> tuple[float, float]:
        # The spread of the serving rows whose model was left out of the fit, wider outside their range.  A model that
        # was fitted on this chip and engine has one of its own, others that of their class.
        found, model = efficiency_of(scenario.system), scenario.model
        wider = 1.5 if self.outside(scenario) else 1.0
        wider *= BY_KIN if scenario.system.kin else 1.0
        both = (found.ttft_spread, found.tpot_spread)
        key = spread_key(model.name)
        ttft, tpot = (float(part.get(key, part[model_class(model)])) * wider for part in both)
        return ttft, tpot

    def warnings(self, scenario: Scenario, token: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
        plan, node = scenario.deployment, float(scenario.system.chips_per_node)
        found = []
        kind, model, known = (
            model_class(scenario.model),
            scenario.model.name,
            efficiency_of(scenario.system).tpot_spread,
        )
        if spread_key(model) not in known and kind != "dense" and len(known) > len(CLASSES):
            found.append(
                f"{model} was not fitted on this chip and engine: 80 % of TPOT of {CLASS_SAYS[kind]} that were left "
                f"out lie within x{math.exp(float(known[kind])):.2f}"
            )
        if float(plan.tp) > node:
            found.append("TP across nodes: the all-reduce between nodes is a ring at the network's rate, uncalibrated")
        if float(plan.pp) > 1:
            found.append("pipeline stages on GPUs follow from the steps of one GPU: no measurement of them was fitted")
        if float(plan.attention_dp) > 1:
            found.append("attention DP: requests are taken as evenly spread over ranks that step together, not fitted")
        measured = efficiency_of(scenario.system).all_reduce
        if measured is not None and float(plan.tp) > 1:
            faster = float(scale_up_link(scenario.system).bandwidth_per_direction / measured.link_bandwidth)
            if faster != 1.0:
                found.append(
                    f"all-reduces are those measured over links of {float(measured.link_bandwidth) / 1e9:g} GB/s, "
                    f"x{faster:.3g} as fast: from H100 to B200 that misses large measured ones by a factor of 1.2 to "
                    "2.2"
                )
        return found

    def collective(self, system: System, operation: str, ranks: float, message: float) -> Mapping[str, Any]:
        """Return the engine's own algorithm, measured or by the form of the topology, and NCCL's [s].

        Parameters
        ----------
        system : System
        operation : str
        ranks, message : float

        Returns
        -------
        mapping of str to Number
        """
        if operation == "all-to-all":
            each = Exchange(1.0, 1.0, None, forwarded=False)
            return {"direct exchange": exchanged(system, message, each, ranks)}
        found = efficiency_of(system)
        own, alone = "closed form of the topology", system
        if found.all_reduce is not None:
            # Nothing runs beside it that would hide a part.
            own = "the engine's own, measured"
            alone = replace(system, efficiency=replace(found, all_reduce=replace(found.all_reduce, overlap=1.0)))
        return {
            own: group_all_reduce(alone, message, ranks),
            "NCCL, closed form": group_all_reduce(system, message, ranks, nccl=True),
        }


MACHINE = Kernels()

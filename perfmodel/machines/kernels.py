"""GPUs and other machines that run a step kernel by kernel.

A kernel lasts as long as the slower of its arithmetic and its traffic; collectives between kernels are not hidden;
every layer and every step cost a time that neither tensor parallelism nor bandwidth moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from perfmodel.equations import collectives, experts, pipeline, roofline
from perfmodel.errors import UserError
from perfmodel.machines.all_reduce import group_all_reduce, launched
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.base import FrontEnd, listed, scale_up_link, stage_link
from perfmodel.machines.expert_exchange import DISPATCH_BYTES, exchanged, expert_exchange
from perfmodel.machines.gemm import summed_message
from perfmodel.machines.kernels_efficiency import KernelsEfficiency, efficiency_of
from perfmodel.machines.kv_cache import ACTIVATION_BYTES, indexer_of
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.power import CausePower
from perfmodel.machines.step import Exchange, Load, Operator, Overlap, Pass, Step, Work, busy_time
from perfmodel.machines.weight_bytes import storage_of
from perfmodel.numerics import maximum, minimum, total
from perfmodel.specs.types import (
    Deployment,
    Layers,
    Model,
    Provenance,
    Scenario,
    System,
)
from perfmodel.specs.weights import CLASSES, is_recurrent, layer_count, model_class
from perfmodel.trace import scope

#: Nodes and pipeline stages up to which layouts are tried.
_NODES = 4
_STAGES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


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

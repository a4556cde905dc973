"""Beats of a pipeline of SRAM chips: what a stage takes for a micro-batch and the chunk of prefill beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from perfmodel.equations import collectives, memory, pipeline, roofline, topologies
from perfmodel.machines import links
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.step import Load, Operator, Overlap, Pass, Step, Work, busy_time
from perfmodel.machines.weight_bytes import precision_of
from perfmodel.numerics import ceil_div, maximum, minimum, total
from perfmodel.specs.types import (
    PRECISION_BYTES,
    UNPUBLISHED,
    AtLeastOne,
    Bandwidth,
    Bytes,
    Efficiency,
    PositiveRatio,
    PositiveShare,
    Scenario,
    Seconds,
    System,
)
from perfmodel.specs.weights import layer_count, vocabulary
from perfmodel.trace import is_given, scope


@dataclass(frozen=True)
class SramEfficiency(Efficiency):
    """How an SRAM pipeline runs.

    ``layer_overhead`` is the time a layer that the bare machine does not explain and that keeps the stage busy;
    ``layer_latency`` delays a token as long, but the stage takes the next micro-batch meanwhile.

    The all-reduce belongs to links of ``link_bandwidth`` and ``link_latency``, where those are given; on others its
    bandwidth and its latency go with theirs.

    The scheduler's means are switches: ``dynamic_chunks`` lets a chunk take what decoding leaves of a beat, else it is
    sized for the largest micro-batch; ``fused_batches`` lets both share a beat; ``fill_beats`` puts the next prompt
    behind the end of one; ``decode_first`` keeps prompts from delaying tokens; ``per_token_experts`` streams the
    experts of every token, else those that a micro-batch meets once.
    """

    memory: PositiveShare
    compute: PositiveShare
    layer_overhead: Seconds
    token_budget: AtLeastOne
    memory_utilisation: PositiveShare
    reserved_memory: Bytes
    all_reduce_latency: Seconds
    all_reduce_bandwidth: Bandwidth
    all_reduce_exponent: PositiveRatio
    layer_latency: Seconds = 0.0
    link_bandwidth: Bandwidth = UNPUBLISHED
    link_latency: Seconds = UNPUBLISHED
    beat: Literal["load", "fixed"] = "load"
    dynamic_chunks: bool = True
    fused_batches: bool = True
    fill_beats: bool = True
    decode_first: bool = True
    per_token_experts: bool = True


def efficiency_of(system: System) -> SramEfficiency:
    """Return what is reached on a system of this kind.

    Parameters
    ----------
    system : System

    Returns
    -------
    SramEfficiency
    """
    found = system.efficiency
    assert isinstance(found, SramEfficiency), system.name
    return found


def end_bytes(scenario: Scenario) -> Any:
    """Weights of embedding and head, which take stages of their own [B].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Bytes [B].
    """
    tables = 1.0 if scenario.model.tied_embeddings else 2.0
    return memory.weight_bytes(
        parameters=tables * vocabulary(scenario.model),
        bytes_per_parameter=PRECISION_BYTES[precision_of(scenario, "head")],
    )


def end_stages(scenario: Scenario) -> Any:
    """Stages that hold embedding and head.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Stages [1].
    """
    sram = scenario.system.memory.sram
    assert sram is not None
    capacity = memory.partition_capacity(chips=scenario.deployment.tp, capacity=sram.capacity)
    return pipeline.head_stages(end_bytes=end_bytes(scenario), stage_capacity=capacity)


def _streamed(scenario: Scenario, operator: Operator) -> Any:
    """Return the bytes that flow from SRAM: every token runs its own experts, unless tokens are gathered by expert."""
    per_token = efficiency_of(scenario.system).per_token_experts
    weights = operator.weights if operator.streamed is None or not per_token else operator.streamed
    return weights + operator.cache


def all_reduce_time(system: System, message: Any) -> Any:
    """All-reduce of a partition [s]: the curve, at the rate and the latency of this system's links.

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].

    Returns
    -------
    Number
        Time [s].
    """
    efficiency, link = efficiency_of(system), links.scale_up_link(system)
    latency, bandwidth = efficiency.all_reduce_latency, efficiency.all_reduce_bandwidth
    if is_given(efficiency.link_bandwidth):
        bandwidth = bandwidth * (link.bandwidth_per_direction / efficiency.link_bandwidth)
    if is_given(efficiency.link_latency):
        latency = latency * (link.hop_latency / efficiency.link_latency)
    return collectives.saturating_all_reduce(
        message=message, latency=latency, bandwidth=bandwidth, exponent=efficiency.all_reduce_exponent
    )


def _operator(scenario: Scenario, operator: Operator, count: Any) -> tuple[Overlap, Any]:
    """Return arithmetic and SRAM stream of one operator, so many times over, and its exposed collective [s]."""
    system, tp = scenario.system, scenario.deployment.tp
    efficiency = efficiency_of(system)
    sram = system.memory.sram
    assert sram is not None
    precision = "fp16" if operator.kind == "attention" else operator.precision
    compute = roofline.compute_time(
        flops=operator.flops / tp,
        peak=system.rates[system.computes_as[precision]],
        efficiency=efficiency.compute,
    )
    stream = roofline.memory_time(
        bytes_moved=_streamed(scenario, operator) / tp, bandwidth=sram.bandwidth, efficiency=efficiency.memory
    )
    exposed: Any = 0.0
    if operator.all_reduce is not None:
        exposed = collectives.exposed_collective(
            collective=minimum(1.0, tp - 1) * all_reduce_time(system, operator.all_reduce),
            hidden_behind=roofline.operator_time(compute=compute, memory=stream),
        )
    return Overlap(count, compute, stream, operator.name), exposed


@dataclass(frozen=True)
class Beat(Step):
    """The time of the slowest pipeline stage, and the work of all stages on one micro-batch.

    Attributes
    ----------
    way : Step
        The way of a micro-batch through all stages that nothing delays, without the links between them.
    """

    way: Step = field(default_factory=Step)


def beat(scenario: Scenario, work: Work) -> Beat:
    """Return the time of the slowest pipeline stage, the way through all stages, and the work on one micro-batch.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Beat
    """
    model, plan = scenario.model, scenario.deployment
    efficiency = efficiency_of(scenario.system)
    timed = work
    if efficiency.beat == "fixed":
        # The static program lasts as long as its token budget, however few tokens it carries.
        carried = total(part.sequences * part.tokens for part in work)
        spare = maximum(0.0, efficiency.token_budget - carried)
        # Empty places are compiled as those of a prefill chunk: they read no cache of sequences that are not there.
        timed = (*work, Pass(minimum(1.0, spare), maximum(1.0, spare), work[-1].context))
    ends = end_stages(scenario)
    layers = layer_count(model)
    share = pipeline.layers_per_stage(layers=layers, stages=plan.pp - ends) / layers
    overlaps: list[Overlap] = []
    collective: Any = 0.0
    loads: list[Load] = []
    for run in model.layers:
        operators = layer_operators(scenario, run, timed)
        for operator in operators:
            repeated = operator.count * share
            with scope(operator.name):
                overlap, exposed = _operator(scenario, operator, repeated)
            overlaps.append(overlap)
            collective = collective + repeated * exposed
        for operator in operators if timed is work else layer_operators(scenario, run, work):
            loads.append(Load(operator.count, operator.flops, _streamed(scenario, operator), operator=operator.name))
    busy = busy_time(overlaps)
    overhead = layers * share * efficiency.layer_overhead
    head = head_operator(scenario, work)
    with scope("head"):
        overlap, _ = _operator(scenario, head, 1.0)
        excess = pipeline.stage_excess(layers=busy + collective + overhead, head=busy_time([overlap]) / ends)
    stage = Step(
        busy=busy,
        overlaps=tuple(overlaps),
        collective=collective,
        overhead=overhead,
        loads=(*loads, Load(1.0, head.flops, head.weights, operator=head.name)),
        sequences=work[0].sequences,
    )
    # All layers stand to those of the fullest stage as all stages do.
    layers_of_all = stage.times(1 / share)
    way = replace(
        layers_of_all,
        busy=layers_of_all.busy + busy_time([overlap]),
        overlaps=(*layers_of_all.overlaps, overlap),
        loads=stage.loads,
    )
    return _with_way(replace(stage, imbalance=excess), way)


def _with_way(stage: Step, way: Step) -> Beat:
    """Return a beat of a stage's time and a way through all stages."""
    return Beat(**{part.name: getattr(stage, part.name) for part in fields(Step)}, way=way)


def hop_time(scenario: Scenario, tokens: Any) -> Any:
    """Time on the link from one stage to the next [s].

    Parameters
    ----------
    scenario : Scenario
    tokens : Number
        Tokens of the micro-batch [1].

    Returns
    -------
    Number
        Time [s].
    """
    system, plan = scenario.system, scenario.deployment
    link = links.scale_up_link(system)
    bandwidth = link.bandwidth_per_direction * plan.tp
    if link.topology == "quadfour":
        bandwidth = topologies.quadfour_forward_bandwidth(skipped=0.0, port_bandwidth=link.port_bandwidth_per_direction)
    return collectives.hop_time(
        message=tokens * scenario.model.hidden * ACTIVATION_BYTES,
        hops=1.0,
        latency=link.hop_latency,
        bandwidth=bandwidth,
    )


def waiting_time(scenario: Scenario) -> Any:
    """Time by which a stage delays a token while it already takes the next micro-batch [s].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Time [s].
    """
    efficiency = efficiency_of(scenario.system)
    stages = scenario.deployment.pp - end_stages(scenario)
    return pipeline.layers_per_stage(layers=layer_count(scenario.model), stages=stages) * efficiency.layer_latency


def lasting(scenario: Scenario, step: Beat, before: Any, tokens: Any) -> Step:
    """Return so many beats that go before, and then the way of so many tokens through all stages.

    Parameters
    ----------
    scenario : Scenario
    step : Beat
    before : Number
        Beats until the last micro-batch starts [1].
    tokens : Number
        Tokens that pass through all stages [1].

    Returns
    -------
    Step
    """
    stages = scenario.deployment.pp
    whole = step.way if isinstance(before, float) and before == 0 else step.way.after(step.times(before))
    return replace(
        whole,
        collective=whole.collective + stages * hop_time(scenario, tokens),
        overhead=whole.overhead + stages * waiting_time(scenario),
        loads=step.loads,
    )


def blend(first: Beat, other: Beat, share: Any) -> Beat:
    """Return the mean of two beats, ``share`` of it the other; the work stays that of the first.

    Parameters
    ----------
    first, other : Beat
    share : Number
        Share of the other [1].

    Returns
    -------
    Beat
    """
    mean = first.times(1 - share).after(other.times(share))
    way = first.way.times(1 - share).after(other.way.times(share))
    return _with_way(replace(mean, loads=first.loads), replace(way, loads=first.loads))


def plain_beat(scenario: Scenario, batch: Any, context: Any, tokens: Any = 1.0) -> Beat:
    """Return a beat of decode tokens and no prefill.

    Parameters
    ----------
    scenario : Scenario
    batch : Number
        Sequences of a micro-batch [1].
    context : Number
        Mean tokens in the cache of a sequence [1].
    tokens : Number
        New tokens of each sequence [1].

    Returns
    -------
    Beat
    """
    with scope("plain"):
        return beat(scenario, (Pass(batch, tokens, context, decoding=True),))


@dataclass(frozen=True)
class Chunks:
    """How a prompt enters a pipeline that decodes meanwhile.

    Attributes
    ----------
    full : Beat
        A beat with a chunk beside the decode tokens.
    tokens : Number
        Prompt tokens of a chunk.
    count : Number
        Chunks of a prompt.
    flops, bytes_moved : Number
        What one prompt adds to the work of decoding.
    added : Number
        Time that one prompt adds to the beats of decoding [s].
    """

    full: Beat
    tokens: Any
    count: Any
    flops: Any
    bytes_moved: Any
    added: Any


def chunked(
    scenario: Scenario,
    *,
    others: Any,
    prompt: Any,
    context: Any,
    bias: Any = 1.0,
    tokens: Any = 1.0,
    before: Any = 0.0,
) -> Chunks:
    """Return the chunks of a prompt; each takes what the decode tokens of the others leave of the budget.

    Parameters
    ----------
    scenario : Scenario
    others : Number
        Sequences that decode beside a chunk [1].
    prompt : Number
        Prompt tokens that are computed [1].
    context : Number
        Mean tokens in the cache of a decoding request [1].
    bias : Number
        Factor by which a request in flight is longer than the mean of all requests [1].
    tokens : Number
        New tokens of each sequence that decodes [1].
    before : Number
        Tokens of the prompt that are in the cache already [1].

    Returns
    -------
    Chunks
    """
    efficiency = efficiency_of(scenario.system)
    chunk = pipeline.chunk_tokens(budget=efficiency.token_budget, decode_tokens=others * tokens, prompt=prompt)
    count = ceil_div(prompt, chunk)
    beside = Pass(others, tokens, context, decoding=True)
    with scope("chunk"):
        full = beat(scenario, (Pass(1.0, chunk, bias * (before + (prompt - chunk) / 2)), beside))
    with scope("decode_only"):
        alone = beat(scenario, (beside,))
    # A chunk that rides along with decoding shares its read of the weights; a lone request's chunks pay for theirs.
    shared = minimum(1.0, others)
    return Chunks(
        full=full,
        tokens=chunk,
        count=count,
        flops=count * (full.flops - alone.flops),
        bytes_moved=count * (full.bytes_moved - shared * alone.bytes_moved),
        added=count * maximum(0.0, full.time - shared * alone.time),
    )


def prompt_step(scenario: Scenario, chunks: Chunks) -> Step:
    """Return the prefill of a prompt that waits for nobody: its chunks follow each other through all stages.

    Parameters
    ----------
    scenario : Scenario
    chunks : Chunks

    Returns
    -------
    Step
    """
    step = lasting(scenario, chunks.full, chunks.count - 1, chunks.tokens)
    return replace(step, loads=(Load(1.0, chunks.flops, chunks.bytes_moved, operator="chunks"),), sequences=1.0)

"""Pipelines of SRAM chips: weights and KV cache never leave the chip, hops are deterministic.

A stage lasts as long as the slower of SRAM stream and matrix unit, operator by operator, plus the part of each
collective that its matrix product does not cover, plus the overhead a layer that the bare machine does not explain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from perfmodel.equations import collectives, memory, pipeline, roofline
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
    precision_of,
    total,
    vocabulary,
)
from perfmodel.numerics import ceil_div, maximum, minimum
from perfmodel.specs.types import PRECISION_BYTES, Scenario, SramEfficiency
from perfmodel.trace import scope


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
    per_token = cast(SramEfficiency, scenario.system.efficiency).per_token_experts
    weights = operator.weights if operator.streamed is None or not per_token else operator.streamed
    return weights + operator.cache


def _operator(scenario: Scenario, operator: Operator, count: Any) -> tuple[Overlap, Any]:
    """Return arithmetic and SRAM stream of one operator, so many times over, and its exposed collective [s]."""
    system, tp = scenario.system, scenario.deployment.tp
    efficiency = cast(SramEfficiency, system.efficiency)
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
            collective=collectives.saturating_all_reduce(
                message=operator.all_reduce,
                latency=efficiency.all_reduce_latency,
                bandwidth=efficiency.all_reduce_bandwidth,
                exponent=efficiency.all_reduce_exponent,
            ),
            hidden_behind=roofline.operator_time(compute=compute, memory=stream),
        )
    return Overlap(count, compute, stream), exposed


def beat(scenario: Scenario, work: Work) -> Step:
    """Return the time of the slowest pipeline stage, and the work of all stages on one micro-batch.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Step
    """
    model, plan = scenario.model, scenario.deployment
    efficiency = cast(SramEfficiency, scenario.system.efficiency)
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
            loads.append(Load(operator.count, operator.flops, _streamed(scenario, operator)))
    busy = busy_time(overlaps)
    overhead = layers * share * efficiency.layer_overhead
    head = head_operator(scenario, work)
    with scope("head"):
        overlap, _ = _operator(scenario, head, 1.0)
        excess = pipeline.stage_excess(layers=busy + collective + overhead, head=busy_time([overlap]) / ends)
    return Step(
        busy=busy,
        overlaps=tuple(overlaps),
        imbalance=excess,
        collective=collective,
        overhead=overhead,
        loads=(*loads, Load(1.0, head.flops, head.weights)),
        sequences=work[0].sequences,
    )


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
    link = system.link
    bandwidth = link.bandwidth_per_direction * plan.tp
    if link.topology == "quadfour":
        bandwidth = collectives.quadfour_forward_bandwidth(
            skipped=0.0, port_bandwidth=link.port_bandwidth_per_direction
        )
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
    efficiency = cast(SramEfficiency, scenario.system.efficiency)
    stages = scenario.deployment.pp - end_stages(scenario)
    return pipeline.layers_per_stage(layers=layer_count(scenario.model), stages=stages) * efficiency.layer_latency


def lasting(scenario: Scenario, step: Step, beats: Any, tokens: Any) -> Step:
    """Return a step that lasts so many beats, and the way of so many tokens from stage to stage.

    Parameters
    ----------
    scenario : Scenario
    step : Step
        One beat.
    beats : Number
        Beats that it lasts [1].
    tokens : Number
        Tokens that pass through all stages [1].

    Returns
    -------
    Step
    """
    stages = scenario.deployment.pp
    whole = step.times(beats)
    return replace(
        whole,
        collective=whole.collective + stages * hop_time(scenario, tokens),
        overhead=whole.overhead + stages * waiting_time(scenario),
        loads=step.loads,
    )


def blend(one: Step, other: Step, share: Any) -> Step:
    """Return the mean of two steps, ``share`` of it the other; the work stays that of the first.

    Parameters
    ----------
    one, other : Step
    share : Number
        Share of the other [1].

    Returns
    -------
    Step
    """
    mean = one.times(1 - share).after(other.times(share))
    return replace(mean, loads=one.loads)


def decode(scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
    """Return a decode step with so many new tokens a sequence, and the work of one micro-batch.

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
    stages = scenario.deployment.pp
    batch = pipeline.microbatch_size(running=running, stages=stages)
    in_flight = pipeline.microbatches_in_flight(running=running, batch=batch)
    with scope("decode"):
        one = beat(scenario, (Pass(batch, tokens, context, decoding=True),))
        beats = pipeline.beats_per_token(stages=stages, in_flight=in_flight)
        return lasting(scenario, one, beats, batch * tokens)


def plain_beat(scenario: Scenario, batch: Any, context: Any) -> Step:
    """Return a beat of so many decode tokens and no prefill.

    Parameters
    ----------
    scenario : Scenario
    batch : Number
        Sequences of a micro-batch [1].
    context : Number
        Mean tokens in the cache of a sequence [1].

    Returns
    -------
    Step
    """
    with scope("plain"):
        return beat(scenario, (Pass(batch, 1.0, context, decoding=True),))


@dataclass(frozen=True)
class Chunks:
    """How a prompt enters a pipeline that decodes meanwhile.

    Attributes
    ----------
    full : Step
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

    full: Step
    tokens: Any
    count: Any
    flops: Any
    bytes_moved: Any
    added: Any


def chunked(scenario: Scenario, *, others: Any, prompt: Any, context: Any, bias: Any = 1.0) -> Chunks:
    """Return the chunks of a prompt; each takes what the decode tokens of the others leave of the budget.

    Parameters
    ----------
    scenario : Scenario
    others : Number
        Decode tokens beside a chunk [1].
    prompt : Number
        Prompt tokens [1].
    context : Number
        Mean tokens in the cache of a decoding request [1].
    bias : Number
        Factor by which a request in flight is longer than the mean of all requests [1].

    Returns
    -------
    Chunks
    """
    efficiency = cast(SramEfficiency, scenario.system.efficiency)
    tokens = pipeline.chunk_tokens(budget=efficiency.token_budget, decode_tokens=others, prompt=prompt)
    count = ceil_div(prompt, tokens)
    beside = Pass(others, 1.0, context, decoding=True)
    with scope("chunk"):
        full = beat(scenario, (Pass(1.0, tokens, bias * (prompt - tokens) / 2), beside))
    with scope("decode_only"):
        alone = beat(scenario, (beside,))
    # A chunk that rides along with decoding shares its read of the weights; a lone request's chunks pay for theirs.
    shared = minimum(1.0, others)
    return Chunks(
        full=full,
        tokens=tokens,
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
    step = lasting(scenario, chunks.full, chunks.count + scenario.deployment.pp - 1, chunks.tokens)
    return replace(step, loads=(Load(1.0, chunks.flops, chunks.bytes_moved),), sequences=1.0)


def prefill(scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any) -> tuple[Step, Any]:
    """Return the prefill of one prompt in chunks that ride along with decoding, and the time it takes from it.

    Chunks of a few tokens hold one prompt each, so the group of prompts that a GPU takes in at once plays no part.

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
    batch = pipeline.microbatch_size(running=running, stages=scenario.deployment.pp)
    others = minimum(batch, maximum(0.0, running - 1))
    with scope("prefill"):
        chunks = chunked(scenario, others=others, prompt=prompt, context=context)
        return prompt_step(scenario, chunks), chunks.added

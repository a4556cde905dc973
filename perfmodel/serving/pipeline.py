"""The closed loop of an SRAM pipeline: it decodes first and fills what is left of each beat with prefill.

Tokens of all requests flow through the same beats, so that the flow, not a queue of whole prefills, decides: either the
requests in flight are too few to fill the beats, or every beat is full and prompts wait for their turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from perfmodel.equations import pipeline, serving
from perfmodel.machines import sram_pipeline
from perfmodel.machines.operators import Step
from perfmodel.numerics import maximum, minimum
from perfmodel.specs.types import Scenario, SramEfficiency
from perfmodel.trace import scope

#: The latency of the stages moves the flow by what it adds to a life; two rounds settle it to a few per mille.
_ROUNDS = 2


@dataclass(frozen=True)
class Loop:
    """The closed loop of one replica.

    Attributes
    ----------
    prefill, decode : Step
        A prompt that waits for nobody, and the time between two tokens.
    life : Number
        Time that a request spends in service [s].
    rate : Number
        Requests finished [1/s].
    wait : Number
        Part of the time to first token in which the prompt waits for its turn [s].
    stall : Number
        Time by which prompts delay a token where they go first [s].
    chunk_share : Number
        Share of time in which prefill chunks are in flight.
    beat, full : Number
        Time of a stage on average, and of one whose token budget is used [s].
    entry : Number
        Time by which one more prompt token delays the first output token [s].
    """

    prefill: Step
    decode: Step
    life: Any
    rate: Any
    wait: Any
    stall: Any
    chunk_share: Any
    beat: Any
    full: Any
    entry: Any


def closed_loop(
    scenario: Scenario, *, running: Any, prompt: Any, output: Any, burst_share: Any = 0.0, bias: Any = 1.0
) -> Loop:
    """Return the closed loop of one replica of an SRAM pipeline.

    Parameters
    ----------
    scenario : Scenario
    running : Number
        Requests in service [1].
    prompt, output : Number
        Mean tokens of a request [1].
    burst_share : Number
        Share of the rounds in which all requests start at once [1].
    bias : Number
        Factor by which a request in flight is longer than the mean of all requests [1].

    Returns
    -------
    Loop
    """
    efficiency = cast(SramEfficiency, scenario.system.efficiency)
    budget, stages = efficiency.token_budget, scenario.deployment.pp
    steps = maximum(0.0, output - 1)
    context = serving.mean_decode_context(prompt=bias * prompt, output=bias * output)
    of_others = 1 - 1 / running
    # The largest micro-batch, for which a program without dynamic chunks keeps its places.
    reserved = pipeline.microbatch_size(running=running, stages=stages)
    entering, leaving = prompt / budget, steps / (budget if efficiency.fused_batches else reserved)
    most = pipeline.requests_of_full_beats(prefill=entering, decode=leaving)
    relative: Any = 0.0
    for _ in range(_ROUNDS):
        with scope("flow"):
            requests = pipeline.requests_per_beat(
                running=running,
                prompt=prompt,
                steps=steps,
                delay=stages * (1 + steps) * (1 + relative),
                budget=budget,
                most=most,
            )
            decoding = pipeline.decode_tokens_per_beat(requests=requests, steps=steps)
            batch = pipeline.microbatch_size(running=decoding, stages=1.0)
            beside = decoding if efficiency.dynamic_chunks else reserved
            if not efficiency.fused_batches or not efficiency.decode_first:
                beside = 0.0
            chunks = sram_pipeline.chunked(
                scenario, others=beside * of_others, prompt=prompt, context=context, bias=bias
            )
            if not efficiency.dynamic_chunks or not efficiency.fill_beats:
                pieces = prompt / chunks.tokens if efficiency.fill_beats else chunks.count
                most = minimum(most, pipeline.requests_of_full_beats(prefill=pieces, decode=0.0))
            plain = sram_pipeline.plain_beat(scenario, batch, context)
            share = pipeline.chunk_presence(requests=requests, beats=chunks.count + stages - 1)
            met = share * of_others * (1 - burst_share / 2)
            latency = sram_pipeline.hop_time(scenario, batch) + sram_pipeline.waiting_time(scenario)
            both = sram_pipeline.blend(plain, chunks.full, met)
            relative = latency / both.time
    first = sram_pipeline.prompt_step(scenario, chunks)
    step = sram_pipeline.lasting(scenario, both, stages, batch)
    occupancy = prompt / budget * chunks.full.time
    queued = serving.burst_wait(running=running, per_step=1.0, occupancy=occupancy)
    started = burst_share * maximum(0.0, queued - occupancy)
    stall: Any = 0.0
    if not efficiency.decode_first:
        # Prompts take whole beats, and every other request is prefilled once in the life of one.
        stall = serving.interference_per_token(running=running, occupancy=occupancy, output=output)
    alone = first.time + started + steps * (step.time + stall)
    pace = chunks.full.time
    if not efficiency.fused_batches:
        # Beats of decode are as long as what is in flight lets them be.
        pace = (entering * chunks.full.time + leaving * both.time) * most
    limit = pipeline.saturated_request_rate(requests=most, beat=pace)
    turn = serving.turn_wait(running=running, life=alone, limit=limit)
    life = alone + turn
    return Loop(
        prefill=first,
        decode=step,
        life=life,
        rate=running / life,
        wait=started + turn,
        stall=stall,
        chunk_share=share,
        beat=both.time,
        full=chunks.full.time,
        entry=chunks.full.time / chunks.tokens,
    )

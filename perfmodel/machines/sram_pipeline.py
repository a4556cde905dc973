"""Pipelines of SRAM chips: weights and KV cache never leave the chip, hops are deterministic.

A stage lasts as long as the slower of SRAM stream and matrix unit, operator by operator, plus the part of each
collective that its matrix product does not cover, plus the overhead a layer that the bare machine does not explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import pipeline, serving, speculative
from perfmodel.machines import speculation
from perfmodel.machines.base import Machine
from perfmodel.machines.closed_loop import Decoding, Load, Loop
from perfmodel.machines.power import MeanPower
from perfmodel.machines.sram_beat import (
    Beat,
    Chunks,
    SramEfficiency,
    all_reduce_time,
    beat,
    blend,
    chunked,
    efficiency_of,
    end_stages,
    lasting,
    plain_beat,
    prompt_step,
)
from perfmodel.machines.step import Pass, Step
from perfmodel.numerics import ceil_div, maximum, minimum
from perfmodel.specs.types import (
    Scenario,
    System,
)
from perfmodel.specs.weights import layer_count
from perfmodel.trace import scope

#: The time of a pass moves the flow and the flow the time of a pass; so many rounds settle it to a few per mille.
_ROUNDS = 6


@dataclass(frozen=True)
class Flow(Loop):
    """The closed loop of a pipeline, with what its beats are like.

    Attributes
    ----------
    beat, full : Number
        Time of a stage on average, and of one whose token budget is used [s].
    """

    beat: Any = 0.0
    full: Any = 0.0


@dataclass(frozen=True)
class _Drafted:
    """Where a draft runs: its step and its prefill, and the time that one more prompt takes from drafting [s]."""

    step: Step
    first: Step
    taken: Any


@dataclass(frozen=True)
class _Passes:
    """How a request decodes: passes through the pipeline, tokens of each, and time away before each [s], if any."""

    count: Any
    tokens: Any
    away: Any


@dataclass(frozen=True)
class _Settled:
    """The flow when it has settled.

    Attributes
    ----------
    chunks : Chunks
        Of a prompt.
    beat : Beat
        On average, of what is decoded and the chunks met.
    way : Step
        A pass through all stages.
    most, pace : Number
        Requests that full beats begin, and the time between such beats [s].
    """

    chunks: Chunks
    beat: Beat
    way: Step
    most: Any
    pace: Any


def _settled(scenario: Scenario, load: Load, passes: _Passes, context: Any) -> _Settled:
    """Return the flow of a closed loop: what is in a beat moves its time, and its time what is in it."""
    efficiency = efficiency_of(scenario.system)
    budget, stages = efficiency.token_budget, scenario.deployment.pp
    running, prompt = load.running, load.computed
    of_others = 1 - 1 / running
    # The largest micro-batch, for which a program without dynamic chunks keeps its places.
    reserved = pipeline.microbatch_size(running=running, stages=stages)
    decoded = passes.count if passes.away is None else passes.count * passes.tokens
    places = budget if efficiency.fused_batches else reserved * passes.tokens
    entering, leaving = prompt / budget, decoded / places
    most = pipeline.requests_of_full_beats(prefill=entering, decode=leaving)
    # Beats of a pass through all stages: at first as if their layers were all.
    layers = layer_count(scenario.model)
    through = layers / pipeline.layers_per_stage(layers=layers, stages=stages - end_stages(scenario))
    for _ in range(_ROUNDS):
        with scope("flow"):
            requests = pipeline.requests_per_beat(
                running=running,
                prompt=prompt,
                steps=decoded,
                delay=through * (1 + passes.count),
                budget=budget,
                most=most,
            )
            decoding = pipeline.decode_tokens_per_beat(requests=requests, steps=passes.count)
            batch = pipeline.mean_microbatch(running=decoding, stages=1.0)
            beside = decoding if efficiency.dynamic_chunks else reserved
            if not efficiency.fused_batches or not efficiency.decode_first:
                beside = 0.0
            chunks = chunked(
                scenario,
                others=beside * of_others,
                prompt=prompt,
                context=context,
                bias=load.bias,
                tokens=passes.tokens,
                before=load.cached,
            )
            if not efficiency.dynamic_chunks or not efficiency.fill_beats:
                pieces = prompt / chunks.tokens if efficiency.fill_beats else chunks.count
                most = minimum(most, pipeline.requests_of_full_beats(prefill=pieces, decode=0.0))
            plain = plain_beat(scenario, batch, context, passes.tokens)
            share = pipeline.chunk_presence(requests=requests, beats=chunks.count - 1 + through)
            met = share * of_others * (1 - load.burst_share / 2)
            both = blend(plain, chunks.full, met)
            way = lasting(scenario, both, 0.0, batch * passes.tokens)
            through = way.time / both.time
            if passes.away is not None:
                # Beats that a request is away with the draft, shared out over its passes.
                through = through + passes.away * passes.count / (both.time * (1 + passes.count))
    pace = maximum(chunks.full.time, both.time)
    if not efficiency.fused_batches:
        # Beats of decode are as long as what is in flight lets them be.
        pace = (entering * chunks.full.time + leaving * both.time) * most
    return _Settled(chunks, both, way, most, pace)


class SramPipeline(Machine):
    """Pipelines of SRAM chips: they decode first and fill what is left of each beat with prefill.

    Tokens of all requests flow through the same beats, so that the flow, not a queue of whole prefills, decides: either
    the requests in flight are too few to fill the beats, or every beat is full and prompts wait for their turn.
    """

    name = "sram_pipeline"
    efficiency = SramEfficiency
    power_shape = MeanPower
    weights_tier = cache_tier = "sram"
    finds_stages = True
    ends_apart = True
    drafts_apart = True
    prefill_rides = True
    skips_failed = True

    def decode(self, scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
        # A decode step, and the work of one micro-batch.
        stages = scenario.deployment.pp
        batch = pipeline.mean_microbatch(running=running, stages=stages)
        with scope("decode"):
            one = beat(scenario, (Pass(batch, tokens, context, decoding=True),))
            way = lasting(scenario, one, 0.0, batch * tokens)
            queued = pipeline.ring_wait(way=way.time, beat=one.time, in_flight=running / batch)
            return replace(way, imbalance=way.imbalance + queued)

    def prefill(
        self, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
    ) -> tuple[Step, Any]:
        # The prefill of one prompt in chunks that ride along with decoding, and the time it takes from it.
        # Chunks of a few tokens hold one prompt each, so the group of prompts that a GPU takes in at once
        # plays no part.
        others = self._others(scenario, running)
        with scope("prefill"):
            chunks = chunked(scenario, others=others, prompt=prompt, context=context, before=before)
            return prompt_step(scenario, chunks), chunks.added

    def _others(self, scenario: Scenario, running: Any) -> Any:
        """Return the decode tokens beside a chunk: a micro-batch, as far as others run."""
        batch = pipeline.microbatch_size(running=running, stages=scenario.deployment.pp)
        return minimum(batch, maximum(0.0, running - 1))

    def next_prompt(self, scenario: Scenario, running: Any, prompt: Any, latency: Any, occupancy: Any) -> Any:
        # The time until the next prompt can start: when the last chunk is in the first stage [s].
        chunk = pipeline.chunk_tokens(
            budget=efficiency_of(scenario.system).token_budget,
            decode_tokens=self._others(scenario, running),
            prompt=prompt,
        )
        stages = scenario.deployment.pp
        return latency * (1 - pipeline.bubble_fraction(chunks=ceil_div(prompt, chunk), stages=stages))

    def closed_loop(self, scenario: Scenario, load: Load) -> Flow:
        # With a draft a request passes through the pipeline once a step of speculation, with k + 1 tokens,
        # and is away with the draft in between. The stages of the draft run one replica's requests only, all
        # of them at worst.
        efficiency = efficiency_of(scenario.system)
        running, output, asked = load.running, load.output, scenario.speculation
        steps = maximum(0.0, output - 1)
        context = serving.mean_decode_context(prompt=load.bias * load.prompt, output=load.bias * output)
        draft, passes = None, _Passes(steps, 1.0, None)
        if asked is not None:
            draft = self._draft(scenario, context, load)
            length = speculative.tokens_to_end(length=speculation.tokens_per_step(asked), output=output)
            away = asked.host_time if draft is None else asked.host_time + asked.k * draft.step.time
            passes = _Passes(steps / length, asked.k + 1, away)
            scenario = speculation.target_scenario(scenario)
        flow = _settled(scenario, load, passes, context)
        first, full = prompt_step(scenario, flow.chunks), flow.chunks.full.time
        occupancy = load.computed / efficiency.token_budget * full
        queued = serving.burst_wait(running=running, per_step=1.0, occupancy=occupancy)
        started = load.burst_share * maximum(0.0, queued - occupancy)
        stall: Any = 0.0
        if not efficiency.decode_first:
            # Prompts take whole beats, and every other request is prefilled once in the life of one.
            stall = serving.interference_per_token(running=running, occupancy=occupancy, output=output, joining=0.0)
        decoding = Decoding(flow.way)
        if asked is not None:
            with scope("speculation"):
                decoding = speculation.stepped(asked, flow.way, None if draft is None else draft.step)
                decoding, _ = speculation.to_end(decoding, output)
            if draft is not None:
                first = first.after(draft.first.of("draft"))
                stall = stall + serving.interference_per_token(
                    running=running, occupancy=draft.taken, output=output, joining=0.0
                )
        alone = first.time + started + steps * (decoding.step.time + stall)
        limit = pipeline.saturated_request_rate(requests=flow.most, beat=flow.pace)
        queue = serving.station_wait(running=running, life=alone, limit=limit)
        wait = started + queue
        return Flow(
            prefill=first,
            decoding=decoding,
            front=0.0,
            wait=wait,
            median_wait=wait,
            stall=stall,
            life=alone - started + queue,
            occupancy=0.0,
            entry=full / flow.chunks.tokens,
            running=running,
            output=output,
            beat=flow.beat.time,
            full=full,
        )

    def _draft(self, scenario: Scenario, context: Any, load: Load) -> _Drafted | None:
        """Return what a draft takes on its own stages with all requests of the replica in them; None where nothing."""
        draft = speculation.draft_scenario(scenario)
        if draft is None:
            return None
        with scope("draft"):
            step = self.decode(draft, load.running, context)
            first, taken = self.prefill(draft, load.running, context, load.computed, 1.0, load.cached)
        return _Drafted(step, first, taken)

    def layouts(self, scenario: Scenario) -> Iterator[tuple[float, float]]:
        # The degrees of the system's plans with 1 to 8 layers a stage.
        layers = float(layer_count(scenario.model))
        for tp in sorted({float(plan.tp) for plan in scenario.system.plans}):
            laid = replace(scenario, deployment=replace(scenario.deployment, tp=tp))
            for held in range(1, 9):
                yield tp, ceil_div(layers, float(held)) + float(end_stages(laid))

    def end_stages(self, scenario: Scenario) -> Any:
        # The stages that hold embedding and head.
        return end_stages(scenario)

    def layer_stages(self, scenario: Scenario) -> Any:
        return scenario.deployment.pp - end_stages(scenario)

    def reserve(self, system: System) -> tuple[Any, Any]:
        found = efficiency_of(system)
        return found.memory_utilisation, found.reserved_memory

    def token_budget(self, system: System) -> Any:
        # The tokens of a beat.
        return efficiency_of(system).token_budget

    def drafting(self, target: Scenario, draft: Scenario) -> Scenario:
        # A draft on stages of its own, with as many layers each as the target's have.
        held = pipeline.layers_per_stage(layers=layer_count(target.model), stages=self.layer_stages(target))
        pp = end_stages(draft) + ceil_div(layer_count(draft.model), held)
        return replace(draft, deployment=replace(draft.deployment, pp=pp))

    def warnings(self, scenario: Scenario, token: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
        # How far the all-reduce was published, and how much of a token is a stage overhead.
        mind = []
        if float(scenario.deployment.tp) > 64:
            mind.append("the all-reduce curve is published for 8 to 64 LPUs; beyond it is extrapolated")
        if float(efficiency_of(scenario.system).layer_overhead) > 0:
            share = float(token["overhead"]) / sum(float(seconds) for seconds in token.values())
            if share == share:
                mind.append(
                    f"{share:.0%} of TPOT is a stage overhead drawn from public speeds, which the bare machine does "
                    "not explain; --set system.efficiency.layer_overhead=0 leaves it out"
                )
        return mind

    def draft_warnings(self) -> list[str]:
        # Stages idle while a draft runs.
        return ["draft and target take turns: micro-batches in the draft's stages leave those of the target idle"]

    def collective(self, system: System, operation: str, ranks: float, message: float) -> Mapping[str, Any]:
        """Return the all-reduce of the published knees [s].

        Parameters
        ----------
        system : System
        operation : str
        ranks, message : float

        Returns
        -------
        mapping of str to Number
        """
        if operation != "all-reduce":
            return {}
        return {"published knees of 8 to 64 chips": minimum(1.0, ranks - 1) * all_reduce_time(system, message)}

    def all_reduce(self, system: System, message: float) -> tuple[Any, Any]:
        # Time and greatest rate of an all-reduce, from the published curve [s, B/s].
        return all_reduce_time(system, message), efficiency_of(system).all_reduce_bandwidth


MACHINE = SramPipeline()

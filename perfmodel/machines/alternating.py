"""The closed loop of machines whose prefill and decoding take turns on the same chips."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from perfmodel.equations import serving
from perfmodel.machines import speculation
from perfmodel.machines.base import FrontEnd, Machine
from perfmodel.machines.closed_loop import Decoding, Load, Loop, SharedPrefill
from perfmodel.machines.step import Pass, Step, Work
from perfmodel.numerics import ceil_div, complement_power, maximum, minimum
from perfmodel.specs.types import Scenario
from perfmodel.trace import scope

#: Prompt tokens that an engine takes into one step by default: vLLM's and TensorRT-LLM's 8,192.
PREFILL_BUDGET = 8192.0
#: Share of a streaming backlog that shows before the first token; the rest spreads over the later ones.
STREAM_DELAYED = 0.3
#: Rounds that settle how the cycle of a client and the steps in it follow from each other.
_ROUNDS = 2


class Alternating(Machine):
    """A machine that prefills while nobody decodes; a kind says how long a step takes (:meth:`step`).

    In one life of a request every other running request is prefilled once, so that each of its tokens waits for
    (running - 1) / output prefills on average.
    """

    @abc.abstractmethod
    def step(self, scenario: Scenario, work: Work) -> Step:
        """Return one forward step of a replica.

        Parameters
        ----------
        scenario : Scenario
        work : tuple of Pass
            What runs in the step: passes that share one read of the weights.

        Returns
        -------
        Step
        """

    def decode(self, scenario: Scenario, running: Any, context: Any, tokens: Any = 1.0) -> Step:
        # A decode step of all sequences of a replica.
        with scope("decode"):
            return self.step(scenario, (Pass(running, tokens, context, decoding=True),))

    def prefill(
        self, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
    ) -> tuple[Step, Any]:
        with scope("prefill"):
            together = self.step(scenario, (Pass(group, prompt, before),))
        return together, together.time / group

    def closed_loop(self, scenario: Scenario, load: Load) -> Loop:
        running, prompt, output, front = load.running, load.computed, load.output, self.front_end(scenario.system)
        cut = load.budget is not None
        in_step = cut and load.lock_step
        with scope("load"):
            context = serving.mean_decode_context(prompt=load.bias * load.prompt, output=load.bias * output)
            # Each micro-batch of a pipeline takes in a budget of its own.
            budget = (load.budget if cut else PREFILL_BUDGET) * scenario.deployment.pp
            per_step = serving.prompts_per_step(budget=budget, prompt=prompt, running=running)
        chunks, chunk, before = 1.0, prompt, load.cached
        if cut:
            # A chunk comes on top of those before it, half of the prompt on average.
            chunks = ceil_div(prompt, minimum(prompt, budget))
            chunk = prompt / chunks
            before = load.bias * (load.cached + (prompt - chunk) / 2)
        first, occupancy = speculation.prefill(
            self, scenario, running, context, chunk, per_step if in_step else 1.0, before
        )
        entry = first.time / chunk
        if cut:
            first, occupancy = first.times(chunks), chunks * occupancy
        shared = None
        if in_step:
            # Nobody decodes before the last prompt is in, and what is prefilled before one's own is its wait.
            decoding, _ = speculation.to_end(speculation.decode(self, scenario, running, context), output)
            burst = serving.burst_wait(running=running, per_step=per_step, occupancy=occupancy)
            wait = median = burst - first.time
            stall = (running * occupancy - burst) / maximum(1.0, output - 1)
            life = front.request + burst + (output - 1) * (decoding.step.time + stall)
        else:
            with scope("together"):
                group = maximum(2.0, minimum(per_step, running / (output + 1)))
                several, each = speculation.prefill(self, scenario, running, context, chunk, group, before)
            if cut:
                several, each = several.times(chunks), chunks * each
            prefills = _Prefills(first.time, occupancy, group * each, group, per_step, budget / prompt)
            # The fixed part of a prefill reads the weights as a step of decoding does.
            guess = _cycle(load, front, prefills, maximum(0.0, prefills.fixed), 1.0, 1 / (output + 1), 1)
            decoding = speculation.decode(self, scenario, guess.decoding, context)
            decoding, brought = speculation.to_end(decoding, output)
            cycle = _cycle(load, front, prefills, decoding.step.time, brought, guess.share, _ROUNDS)
            wait, median, stall, life = _waits(load, front, prefills, decoding, brought, cycle)
            shared, occupancy = SharedPrefill(several, group, cycle.coscheduled), cycle.occupancy
        return Loop(
            prefill=first,
            decoding=decoding,
            front=front.request,
            wait=wait,
            median_wait=median,
            stall=stall,
            life=life,
            occupancy=occupancy,
            entry=entry,
            running=running,
            output=output,
            shared=shared,
        )


@dataclass(frozen=True)
class _Prefills:
    """Prefills of one prompt and of several in a step, as a line: a fixed part, and one for each [s].

    ``first`` is the time until the first token of a prompt alone, ``alone`` what it takes of decoding, and ``together``
    the time of a ``group``; a burst puts ``per_step`` of them in a step, which holds ``most``.
    """

    first: Any
    alone: Any
    together: Any
    group: Any
    per_step: Any
    most: Any

    @cached_property
    def each(self) -> Any:
        return serving.further_prompt(alone=self.alone, together=self.together, group=self.group)

    @cached_property
    def fixed(self) -> Any:
        return self.alone - self.each

    @cached_property
    def full(self) -> Any:
        """A step that is full of prompt tokens."""
        return minimum(1.0, self.most) * self.fixed + self.most * self.each

    @cached_property
    def in_burst(self) -> Any:
        """Each prompt, where steps are full of whole ones."""
        return self.each + self.fixed / self.per_step

    @cached_property
    def steps(self) -> Any:
        """Steps that a prompt takes."""
        return maximum(1.0, 1 / self.most)


@dataclass(frozen=True)
class _Cycle:
    """The cycle of a client in the long run.

    ``returning`` is the time from a last token until the step of the next prompt begins, with what the engine holds it,
    where that needs not wait for its turn (``turn``), ``own`` that of this step, ``met`` the prefill of others in each
    step; ``share`` the steps that hold one's own prefill, ``decoding`` the requests that decode, ``coscheduled`` the
    prompts of a step that has any, and ``occupancy`` what each of them takes of it.
    """

    share: Any
    decoding: Any
    returning: Any
    turn: Any
    own: Any
    met: Any
    coscheduled: Any
    occupancy: Any


def _cycle(
    load: Load, front: FrontEnd, prefills: _Prefills, token: Any, length: Any, share: Any, rounds: int
) -> _Cycle:
    """Return the cycle of a client whose steps decode for so long a token, and bring so many tokens.

    The prefill of a client is in one of the steps of its cycle, at any of those of the others, so that prefills of a
    step follow a binomial law, which conserves work.  The ``share`` of the steps that hold it comes from the cycle
    itself, in a few rounds.
    """
    running, output = load.running, load.output
    with scope("cycle"):
        passes = (output - 1) / length
        pass_time = length * token
        others = running - 1
        group = serving.prefill_group(group=front.group, running=running, jitter=load.jitter, rounds=load.rounds)
        # Those who come together with one's own prompt are met nowhere else.
        free = running - group
        for _ in range(rounds):
            busy = minimum(1.0, passes * share)
            no_prefill, no_decode = complement_power(share, free), complement_power(busy, others)
            met = serving.prefill_met(
                prompts=free * share, idle=no_prefill, fixed=prefills.fixed, each=prefills.each, full=prefills.full
            )
            decode = (1 - no_decode) * pass_time
            returning = serving.return_time(
                front=front.request, decode=decode, met=met, alone=prefills.alone, idle=no_prefill
            )
            returning = returning + load.held * (decode + met)
            own = serving.own_step(
                decode=decode,
                steps=prefills.steps,
                alone=prefills.first,
                beside=group - 1 + free * share,
                each=prefills.each,
                full=prefills.full,
            )
            lasting = own + passes * (pass_time + met)
            step = lasting / (prefills.steps + passes)
            once = returning + lasting
            # Where steps are full of prompt tokens, prompts wait for their turn: so many steps.
            turn = serving.station_wait(running=running, life=once / step, limit=prefills.most)
            last, share = share, serving.share_of_steps(cycle=once, step=step, waiting=turn)
        # One's own prefill and decoding are in the steps of all clients too.
        prompts = running * last
        any_prefills = 1 - no_prefill * (1 - last)
        any_decodes = 1 - no_decode * (1 - busy)
        # A client that comes back once in so many steps takes as long as those at least.
        steps = (any_decodes * pass_time + any_prefills * prefills.fixed + prompts * prefills.each) / last
        return _Cycle(
            share=share,
            decoding=minimum(
                running, maximum(1.0, running * minimum(1.0, passes * share) / maximum(1e-12, any_decodes))
            ),
            returning=returning,
            turn=maximum(turn * (decode + prefills.full), steps - once),
            own=own,
            met=met,
            coscheduled=prompts / any_prefills,
            occupancy=prefills.each + prefills.fixed * any_prefills / prompts,
        )


def _waits(
    load: Load, front: FrontEnd, prefills: _Prefills, decoding: Decoding, brought: Any, cycle: _Cycle
) -> tuple[Any, Any, Any, Any]:
    """Return how long a prompt waits for others, on average and outside a burst, a token, and a life [s]."""
    running, output, token = load.running, load.output, decoding.step.time
    with scope("steady"):
        met = cycle.met / brought

        def streamed(interference: Any) -> tuple[Any, Any]:
            backlog = serving.stream_backlog(running=running, per_token=front.stream, step=token + interference)
            return STREAM_DELAYED * output * backlog, interference + (1 - STREAM_DELAYED) * backlog

        settled = cycle.returning - front.request + cycle.turn + cycle.own - prefills.first
        late, stall = streamed(met)
        life = front.request + prefills.first + settled + late + (output - 1) * (token + stall)
        # In lock-step every round is a burst; else only the first one is.  What a burst prefills before the first token
        # does not delay the later ones.
        late, stall = streamed(met * (1 - load.burst_share / 2))
        burst = serving.burst_wait(running=running, per_step=prefills.per_step, occupancy=prefills.in_burst)
        started = maximum(0.0, burst - prefills.in_burst)
        wait = (1 - load.burst_share) * settled + load.burst_share * started + late
        return wait, wait if load.lock_step else settled + late, stall, life

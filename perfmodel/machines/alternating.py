"""The closed loop of machines whose prefill and decoding take turns on the same chips."""

from __future__ import annotations

import abc
from typing import Any

from perfmodel.equations import queueing, serving
from perfmodel.machines import speculation
from perfmodel.machines.base import Decoding, FrontEnd, Load, Loop, Machine
from perfmodel.machines.operators import Pass, Step, Work
from perfmodel.numerics import ceil_div, maximum, minimum
from perfmodel.specs.types import Scenario
from perfmodel.trace import scope

#: Prompt tokens that an engine takes into one step by default: vLLM's and TensorRT-LLM's 8,192.
PREFILL_BUDGET = 8192.0
#: Share of a streaming backlog that shows before the first token; the rest spreads over the later ones.
STREAM_DELAYED = 0.3


class Alternating(Machine):
    """A machine that prefills while nobody decodes; a kind says how long a step takes (:meth:`step`).

    In one life of a request every other running request is prefilled once, so that each of its tokens waits for
    (running - 1) / output prefills on average.

    Attributes
    ----------
    joining : float
        Share of the step under way that a request waits for: a half behind a front end, which lets it come at any time.
    """

    joining = 0.5

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
        with scope("load"):
            context = serving.mean_decode_context(prompt=load.bias * load.prompt, output=load.bias * output)
        cut = load.budget is not None
        with scope("load"):
            budget = load.budget if cut else PREFILL_BUDGET
            batch = serving.decoding_requests(running=running, output=output, prompt=prompt, budget=budget)
        decoding = speculation.decode(self, scenario, batch, context)
        with scope("load"):
            per_step = serving.prompts_per_step(budget=budget, prompt=prompt, running=running)
            together = per_step
            if not (cut and load.lock_step):
                together = serving.prompts_together(running=running, output=output, per_step=per_step)
        chunks, chunk, before = 1.0, prompt, load.cached
        if cut:
            # A chunk comes on top of those before it, half of the prompt on average.
            chunks = ceil_div(prompt, minimum(prompt, budget))
            chunk = prompt / chunks
            before = load.bias * (load.cached + (prompt - chunk) / 2)
        first, occupancy = speculation.prefill(self, scenario, running, context, chunk, together, before)
        entry = first.time / chunk
        if cut:
            first, occupancy = first.times(chunks), chunks * occupancy
        with scope("steady"):
            # In a burst prompts fill every stage.
            filled = first.time / together / scenario.deployment.pp
            burst = serving.burst_wait(running=running, per_step=per_step, occupancy=filled)
            if cut and load.lock_step:
                # Nobody decodes before the last prompt is in, and what is prefilled before one's own is its wait.
                wait = median = burst - first.time
                stall = (running * filled - burst) / maximum(1.0, output - 1)
            else:
                wait, median, stall = self._waits(
                    load, front, decoding, burst, budget, first.time, occupancy, filled, together
                )
        return Loop(
            prefill=first,
            decoding=decoding,
            front=front.request,
            wait=wait,
            median_wait=median,
            stall=stall,
            occupancy=occupancy,
            entry=entry,
            running=running,
            output=output,
        )

    def _waits(
        self,
        load: Load,
        front: FrontEnd,
        decoding: Decoding,
        burst: Any,
        budget: Any,
        first: Any,
        occupancy: Any,
        filled: Any,
        together: Any,
    ) -> tuple[Any, ...]:
        """Return how long a prompt waits for others, on average and outside a burst, and a token [s].

        ``first`` is the prefill of a group of prompts ``together``, each of which takes ``occupancy`` from decoding,
        and ``filled`` where prompts fill every stage.
        """
        running, output, step = load.running, load.output, decoding.step.time
        # A request joins between steps, each of which brings ``length`` tokens.
        joining = decoding.length * self.joining
        full = serving.full_prefill(occupancy=occupancy, prompt=load.computed, budget=budget)
        met = serving.interference_per_token(running=running, occupancy=occupancy, output=output, joining=joining)
        group = serving.prefill_group(group=front.group, running=running, jitter=load.jitter, rounds=load.rounds)
        found = serving.found_longer(running=running, occupancy=occupancy, met=met, step=step, joining=self.joining)
        beside = serving.prefills_beside(running=running, occupancy=occupancy, met=met, found=found, group=group)
        # The prompts of the group are in its prefill already.
        grouped = (together - 1) * occupancy
        beside = maximum(beside, grouped)
        later = serving.interference_later(
            running=running, occupancy=occupancy, beside=beside, output=output, joining=joining, full=full
        )
        # In lock-step every round is a burst; else only the first one is.  What a burst prefills before the first token
        # does not delay the later ones.
        interference = later * (1 - load.burst_share / 2)
        on_chip = step + interference
        backlog = serving.stream_backlog(running=running, per_token=front.stream, step=on_chip)
        join = joining * later + serving.join_wait(
            running=running, output=output, step=decoding.length * step, joining=self.joining
        )
        steps = maximum(1.0, load.computed / budget)
        shared = serving.shared_step(running=running, output=output, step=decoding.length * step) * steps
        undisturbed = join + shared + maximum(0.0, minimum(beside, full) - grouped)
        streamed = STREAM_DELAYED * output * backlog
        stall = interference + (1 - STREAM_DELAYED) * backlog
        # Where steps are full of prompt tokens, prompts wait for their turn.
        between = step * (1 - 1 / output)
        limit = queueing.prefill_rate(occupancy=occupancy, step=between, prompt=load.computed, budget=budget)
        life = front.request + first + undisturbed + streamed + (output - 1) * (step + stall)
        undisturbed = undisturbed + serving.turn_wait(running=running, life=life, limit=limit)
        started = maximum(0.0, burst - filled)
        wait = (1 - load.burst_share) * undisturbed + load.burst_share * started + streamed
        return wait, wait if load.lock_step else undisturbed + streamed, stall

"""Laws of the times of the requests of a replica under a load: to the first token, between tokens, of all of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.serving.arrivals import dispersion, excess
from perfmodel.serving.laws import Law, discrete, mixture, spread_over, sum_of
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.lives import lives
from perfmodel.serving.riding import Riding, single_file
from perfmodel.serving.service import Service
from perfmodel.serving.step_times import passes_of
from perfmodel.serving.steps import WAKE, Prompts, Steps, first_tokens, gaps, residuals, steps_of

#: Batch sizes that stand for their distribution in percentiles.
_BATCHES = 12
#: Groups of prompts, and of outputs, that stand for their distribution in percentiles.
_GROUPS, _LENGTHS = 48, 24
#: Middles of equal parts of what is as likely to be each value from 0 to 1.
_PARTS = (np.arange(8) + 0.5) / 8


def scv_of(values: Any, lengths: Lengths) -> float:
    """Return the squared coefficient of variation of a quantity over requests.

    Parameters
    ----------
    values : ndarray
        The quantity, by kind of request.
    lengths : Lengths

    Returns
    -------
    float
        [1]
    """
    mean = lengths.mean(values)
    return max(0.0, lengths.mean(values * values) / (mean * mean) - 1)


@dataclass(frozen=True)
class Work:
    """The prefills that a load brings: its arrivals, and moments of the time that a prompt takes [s, s2]."""

    rate: float
    scv: float
    coscheduled: float
    took: Any
    mean: float
    square: float
    share: float


def work_of(service: Service, rate: float, scv: float, coscheduled: float) -> Work:
    """Return the prefills that a load brings.

    Parameters
    ----------
    service : Service
    rate, scv : float
        Arrivals [1/s], and the squared coefficient of variation of the times between them [1].
    coscheduled : float
        See :meth:`Service.coscheduled` [1].

    Returns
    -------
    Work
    """
    lengths = service.lengths
    took = service.times.prefill(lengths.prompt, coscheduled, service.cached)
    mean = lengths.mean(took)
    return Work(rate, scv, coscheduled, took, mean, lengths.mean(took * took), min(0.98, rate * mean))


@dataclass(frozen=True)
class State:
    """A replica under a load: the law of its number, the mean time between tokens, and the wait for admission."""

    service: Service
    work: Work
    running: Any
    probability: Any
    inside: float
    cycle: float
    waiting: float
    #: Whether requests arrive as a step ends, because clients do not think, and not at any time.
    in_step: bool = False

    def batches(self) -> Any:
        """Return batch sizes as an arrival finds them, one for each slice of equal probability."""
        level = np.concatenate([[0.0], np.cumsum(self.probability / self.probability.sum())])
        middle = (np.arange(_BATCHES) + 0.5) / _BATCHES
        return np.minimum(self.service.cap, self.running[np.searchsorted(level, middle) - 1])

    def decode(self) -> tuple[Any, float]:
        """Return decode steps at these batches, and their mean where anything decodes [s]."""
        service, batches = self.service, self.batches()
        decode = service.times.step(np.maximum(1.0, batches) * (1 - 1 / service.output), service.context)
        # The batch drifts about its mean; a slower step stretches all that happens in it.
        return decode, float(decode[batches > 0].mean() if (batches > 0).any() else decode.mean())


@dataclass(frozen=True)
class Laws:
    """Laws of the times of the requests of a replica, each worked out when it is asked for.

    Attributes
    ----------
    state : State
    door : Door
    waiting : float
        Share of requests that wait for admission [1].
    held, held_scv : float
        Wait of those who do [s], and its squared coefficient of variation: 1 where it is exponential.
    """

    state: State
    door: Door
    waiting: float
    held: float
    held_scv: float = 1.0

    def _admitted(self, law: Law) -> Law:
        return law.plus(self.waiting, self.held, self.held_scv)

    @cached_property
    def wait(self) -> Law:
        """Law of the time until admission, as the step under way ends."""
        steps = self.door.steps
        if not isinstance(steps, Steps):
            return self._admitted(steps.wait)
        idle = float(self.state.probability[0]) * (not self.state.in_step)
        none = Law(np.zeros(2), np.array([0.0, 1.0]), 0.0)
        return self._admitted(mixture([1 - idle, idle], [residuals(steps), none]))

    @cached_property
    def ttft(self) -> Law:
        """Law of the time to the first token."""
        return self._admitted(self.door.ttft.later(self.state.service.times.front))

    @cached_property
    def itl(self) -> Law | None:
        """Law of each time between two tokens."""
        service, door = self.state.service, self.door
        number = service.passes - 1
        if service.lengths.mean(number) <= 0:
            return None
        gap = door.gap(service)
        if door.apart is not None:
            share = float(service.lengths.weight[number >= 1].sum()) / service.lengths.mean(number)
            gap = mixture([1 - share, share], [gap, spread_over(gap, door.apart)])
        # Slices of the batch of equal probability over tokens: a large batch brings more of them.
        running, seen = self.state.running, service.seen(np.maximum(1.0, self.state.running))
        level = np.cumsum(running * self.state.probability / seen)
        at = np.searchsorted(level, level[-1] * (np.arange(_BATCHES) + 0.5) / _BATCHES)
        return mixture([1.0], [gap], [seen[at] / door.step])

    @cached_property
    def lives(self) -> tuple[Any, Any, list[Law], Any]:
        """Weights of groups of requests of two tokens or more, their further tokens, laws of TPOT and factors on it."""
        state, door = self.state, self.door
        lengths = state.service.lengths
        more = np.round(lengths.output) - 1
        weight, more = _by_rank(lengths.weight[more >= 0.5], more[more >= 0.5])
        if not len(weight):
            return weight, more, [], np.ones((0, 1))
        more = np.maximum(1.0, np.round(more))
        value = np.maximum(1.0, np.round(passes_of(1 + more, state.service.times.tokens) - 1))
        steps = door.steps
        laws = lives(steps, value, door.filled) if isinstance(steps, Steps) else steps.lives(value)
        if door.apart is not None:
            laws = [
                spread_over(law.times_of(count), door.apart).times_of(1 / count)
                for law, count in zip(laws, value, strict=True)
            ]
        seen = state.service.seen(np.maximum(1.0, state.running))
        chance = state.running * state.probability
        typical = float(np.sum(chance * seen) / max(1e-300, float(chance.sum())))
        drift = state.service.seen(np.maximum(1.0, state.batches())) / typical
        drift = drift / float(drift.mean())
        # The batch drifts while a request runs: its step is averaged over the time of a life.
        spans = np.maximum(1e-9, value * state.cycle / max(state.inside / state.work.rate, 1e-12))
        kept = np.sqrt(np.minimum(1.0, 2 * (spans - 1 + np.exp(-spans)) / spans**2))
        factors = typical / door.step * (1 + kept[:, None] * (drift - 1)[None, :])
        # A step brings several tokens where something drafts them.
        laws = [law.times_of(count / tokens) for law, count, tokens in zip(laws, value, more, strict=True)]
        return weight, more, laws, factors

    @cached_property
    def tpot(self) -> Law | None:
        """Law of a request's mean time between tokens."""
        weight, _, found, factors = self.lives
        return mixture(list(weight / weight.sum()), found, factors) if found else None

    @cached_property
    def latency(self) -> Law:
        """Law of the time of a whole request."""
        weight, value, found, factors = self.lives
        if not found:
            return self.ttft
        wholes = [law.times_of(count) for law, count in zip(found, value, strict=True)]
        later = mixture(list(weight / weight.sum()), wholes, factors)
        front = self.door.ttft.later(self.state.service.times.front)
        level = (np.arange(24) + 0.5) / 24
        whole = spread_over(later, np.interp(level, front.shares, front.times))
        whole = whole.later(front.average + later.average - whole.average)
        single = max(0.0, 1 - float(weight.sum()))
        return self._admitted(mixture([1 - single, single], [whole, front]) if single > 1e-9 else whole)


@dataclass(frozen=True)
class Door:
    """What requests meet from admission on: the steps or the queue, and the law of the time to the first token.

    ``step`` is the decode step that the laws are told for, ``filled`` the law of the work of the step that holds the
    own prefill.  ``apart`` are equally likely times until the next step where first tokens do not come as a step ends.
    """

    steps: Steps | Riding
    ttft: Law
    step: float
    filled: Any
    apart: Any = None

    def cycle(self, step: float) -> float:
        """Return the mean time between tokens at any time.

        Parameters
        ----------
        step : float
            Decode step [s].

        Returns
        -------
        float
            Time [s].
        """
        return self.steps.mean * (step / self.step if self.step > 0 else 1.0)

    def gap(self, service: Service) -> Law:
        """Return the law of the time between two tokens, at the decode step that the laws are told for.

        Parameters
        ----------
        service : Service

        Returns
        -------
        Law
        """
        if not isinstance(self.steps, Steps):
            return self.steps.gaps
        number = service.passes - 1
        reached = [float(service.lengths.weight[number >= place].sum()) for place in range(1, WAKE + 1)]
        return gaps(self.steps, self.filled, np.array(reached) / service.lengths.mean(number))

    def life(self, service: Service, step: float) -> float:
        """Return the mean time from admission to the last token.

        Parameters
        ----------
        service : Service
        step : float
            Decode step [s].

        Returns
        -------
        float
            Time [s].
        """
        number = service.lengths.mean(service.passes - 1)
        if number == 0:
            return self.ttft.average
        return self.ttft.average + number * self.gap(service).average * step / self.step


def door_of(state: State) -> Door:
    """Work out what requests meet from admission on.

    Parameters
    ----------
    state : State

    Returns
    -------
    Door
    """
    service, work, times = state.service, state.work, state.service.times
    lengths = service.lengths
    weight, order = _grouped(lengths.weight, work.took)
    prompt = _means(lengths.prompt, lengths.weight, order)
    decode, step = state.decode()
    turnover = work.rate / max(1.0, state.inside)
    life_scv = scv_of(lengths.output, lengths)

    def spread_of_arrivals(window: Any) -> Any:
        """Where all places are taken, prompts enter as others end: each once in a life."""
        free = dispersion(work.rate, work.scv, window)
        return (1 - state.waiting) * free + state.waiting * dispersion(turnover, life_scv, window)

    def excess_of_arrivals(time: Any) -> Any:
        free = excess(work.rate, work.scv, time)
        return (1 - state.waiting) * free + state.waiting * excess(turnover, life_scv, time)

    # Of those who decode, at least one sees a prompt ride along.
    beside = max(2.0, work.coscheduled)
    coscheduled = [1.0, 2.0] if times.rides else times.coscheduled.tolist()
    took = np.array([times.prefill(prompt, beside if times.rides else one, service.cached) for one in coscheduled])
    prompts = Prompts(work.rate, weight, coscheduled, took, spread_of_arrivals, excess_of_arrivals)
    if times.rides:
        first = times.first_token(prompt, work.coscheduled, service.cached)
        slot = times.entry(prompt, work.coscheduled, service.cached)
        wait, taken = single_file(prompts, slot)
        slowed = np.minimum(0.9, took[0] / np.maximum(times.entry(prompt, beside, service.cached), 1e-12))
        full = step * float(np.max(1 / (1 - slowed)) - 1)
        calm = np.array([1 - taken, *(work.rate * weight * slot * (1 - slowed))])
        riding = Riding(
            wait,
            discrete(step / np.concatenate([[1.0], 1 - slowed]), calm),
            prompts,
            step,
            full,
        )
        return Door(riding, sum_of(wait, first, weight), step, np.ones(1), _PARTS * step)
    tokens = np.maximum(1.0, prompt * (1 - service.cached))
    steps = steps_of(prompts, step, _full_step(times.budget, tokens, prompts))
    ttft, filled = first_tokens(steps)
    idle = float(state.probability[0]) * (not state.in_step)
    if idle > 1e-6:
        alone = discrete(times.first_token(prompt, 1.0, service.cached), weight)
        ttft = mixture([1 - idle, idle], [ttft, alone])
    return Door(steps, spread_over(ttft, 1.5 * (decode - step)), step, filled)


def _full_step(budget: float, tokens: Any, prompts: Prompts) -> float:
    """Return the time of a budget of prompt tokens; long prompts fill steps more often than their share [s]."""
    share = prompts.weight * tokens * np.minimum(1.0, tokens / budget)
    share = share / float(np.sum(share))
    together = max(1.0, budget / float(np.sum(share * tokens)))
    return budget * float(np.sum(share * prompts.took(together) / tokens))


def _grouped(weight: Any, value: Any) -> tuple[Any, Any]:
    """Return weights of neighbours in order of value, in groups that thin out towards the largest, and the groups."""
    order = np.argsort(value)
    rank = np.cumsum(weight[order]) - weight[order] / 2
    group = np.floor(_GROUPS * (1 - np.maximum(0.0, 1 - rank) ** 0.4)).astype(int)
    _, start = np.unique(group, return_index=True)
    return np.add.reduceat(weight[order], start), (order, start)


def _means(value: Any, weight: Any, groups: Any) -> Any:
    order, start = groups
    return np.add.reduceat((weight * value)[order], start) / np.add.reduceat(weight[order], start)


def _by_rank(weight: Any, value: Any) -> tuple[Any, Any]:
    """Return weights and means of neighbours in order of value, in groups that thin out towards both ends."""
    if not len(weight):
        return weight, value
    order = np.argsort(value)
    rank = np.cumsum(weight[order]) - weight[order] / 2
    rank = rank / float(weight.sum())
    group = np.floor(_LENGTHS * np.arccos(np.clip(1 - 2 * rank, -1.0, 1.0)) / np.pi).astype(int)
    _, start = np.unique(group, return_index=True)
    together = np.add.reduceat(weight[order], start)
    return together, np.add.reduceat((weight * value)[order], start) / together

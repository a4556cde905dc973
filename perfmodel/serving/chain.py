r"""Continuous batching as a birth-death chain whose death rate comes from the machine's step at each batch size.

Up to the cap a replica shares itself among the running requests, so that the stationary law of their number depends on
the mean output only (Cohen 1979); spread of arrivals enters as an exponent of the ratio of rates.  Requests beyond the
cap wait for admission.  Within a step the engine is gated: what arrives during one step is prefilled in the next.
Percentiles are read off a mixture of shifted gamma laws over prompt, output and batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from perfmodel.equations import batching, queueing
from perfmodel.serving.laws import (
    Law,
    Prompts,
    Steps,
    discrete,
    first_tokens,
    gaps,
    lives,
    mixture,
    residuals,
    riding_lives,
    single_file,
    spread_over,
    steps_of,
    sum_of,
)
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.step_times import StepTimes, passes_of
from perfmodel.specs.types import Routing

#: Share of the capacity from which on a load counts as not served.
FULL = 0.995
#: Batch sizes that stand for their distribution in percentiles.
_BATCHES = 12
#: Groups of prompts, and of outputs, that stand for their distribution in percentiles.
_GROUPS, _LENGTHS = 48, 24
#: Middles of equal parts of what is as likely to be each value from 0 to 1.
_PARTS = (np.arange(8) + 0.5) / 8
#: Steps after a prefill until it is forgotten.
_WAKE = 12
#: Rounds that settle the prompts of a step; rounds in which the law of the number and the time of a life follow from
#: each other, and how near they are brought.
_ROUNDS, _SETTLED, _NEAR = 12, 4, 0.02
#: Difference of a decode step, or share who wait, up to which laws of times are those of the round before.
_ALIKE = 0.01
#: How near arrivals and departures of a chain are brought, and how far the search for that goes.
_BALANCE, _FARTHEST = 1e-4, 1e7


@dataclass(frozen=True)
class Service:
    """What one replica can do for a mix of lengths, whatever the load.

    Attributes
    ----------
    times : StepTimes
    lengths : Lengths
        Of the requests that some pool can hold.
    cap : int
        Requests in the replica at once.
    limit : str
        What sets the cap: ``memory`` or ``engine``.
    cached : float
        Share of each prompt that the prefix cache holds.
    capacity : float
        Requests that it finishes with a queue before it [1/s].
    binding : str
        What sets the capacity: ``memory``, ``engine``, ``prefill`` or ``speed``.
    refused : float
        Share of requests that no pool can hold.
    sway : float
        Standard deviation of the requests that the memory holds, for they are not all of one size.
    routing : str
        How requests are dealt to replicas like this one.
    """

    times: StepTimes
    lengths: Lengths
    cap: int
    limit: str
    cached: float
    capacity: float
    binding: str
    refused: float
    sway: float = 0.0
    routing: Routing = "least-loaded"

    @property
    def context(self) -> float:
        """Tokens in the cache of a running sequence, averaged over its tokens."""
        lengths = self.lengths
        steps = lengths.output
        return lengths.mean(steps * (lengths.prompt + lengths.output / 2)) / lengths.mean(steps)

    @cached_property
    def passes(self) -> Any:
        """Steps that bring the tokens of each kind of request, that of its prefill counted."""
        return passes_of(np.maximum(1.0, np.round(self.lengths.output)), self.times.tokens)

    @cached_property
    def output(self) -> float:
        """Mean steps of a request, that of its prefill counted."""
        return self.lengths.mean(self.passes)

    @property
    def prompt(self) -> float:
        """Mean prompt tokens that have to be computed."""
        return self.lengths.mean(np.maximum(1.0, self.lengths.prompt * (1 - self.cached)))

    def steps(self, running: Any) -> Any:
        """Mean decode step of a life whose first step is the prefill, with so many requests in the replica [s].

        Parameters
        ----------
        running : Number
            Requests in the replica [1].

        Returns
        -------
        Number
            Time [s].
        """
        return self.times.step(running * (1 - 1 / self.output), self.context)

    def seen(self, running: Any) -> Any:
        """Mean decode step that a decoding request sees; the others decode outside their prefill only [s].

        Parameters
        ----------
        running : Number
            Requests in the replica [1].

        Returns
        -------
        Number
            Time [s].
        """
        others = np.maximum(0.0, running - 1)
        return self.times.step(1 + others * (1 - 1 / self.output), self.context)

    def occupancy(self, company: float) -> float:
        """Mean time that a prompt takes from decoding [s].

        Parameters
        ----------
        company : float
            See :meth:`company` [1].

        Returns
        -------
        float
            Time [s].
        """
        return float(np.interp(company, self.times.company, self._occupancies))

    @cached_property
    def _occupancies(self) -> Any:
        """Mean time that a prompt takes from decoding, at each company of the tables [s]."""
        prompt, times = self.lengths.prompt, self.times
        return np.array([self.lengths.mean(times.prefill(prompt, one, self.cached)) for one in times.company.tolist()])

    def entry(self, company: float) -> float:
        """Mean time until the next prompt can start [s].

        Parameters
        ----------
        company : float
            See :meth:`company` [1].

        Returns
        -------
        float
            Time [s].
        """
        return self.lengths.mean(self.times.entry(self.lengths.prompt, company, self.cached))

    def company(self, running: float, arriving: float) -> float:
        """Return what stands for company in the tables: prompts in one step, or requests that decode meanwhile.

        Parameters
        ----------
        running : float
            Requests in the replica [1].
        arriving : float
            Prompts that arrive during a step [1].

        Returns
        -------
        float
            [1]
        """
        if self.times.rides:
            return running
        return max(1.0, min(arriving, max(1.0, self.times.budget / self.prompt), running))

    def shared(self, rate: float, step: float, running: float) -> float:
        """Return what stands for company in the tables where prompts of an open load share the steps.

        Parameters
        ----------
        rate : float
            Arrivals [1/s].
        step : float
            Time of a decode step [s].
        running : float
            Requests in the replica [1].

        Returns
        -------
        float
            [1]
        """
        if self.times.rides:
            return running
        most, cycle = max(1.0, self.times.budget / self.prompt), step
        for _ in range(_ROUNDS):
            # From below: the more prompts come in one step, the less each of them takes.
            company = min(most, 1 + rate * cycle)
            cycle = step + rate * cycle * self.occupancy(company)
        return company

    def rates(self, running: Any) -> Any:
        """Requests that the replica finishes with a queue before it, by requests that run [1/s].

        Parameters
        ----------
        running : Number
            Requests that run [1].

        Returns
        -------
        ndarray
            Rates [1/s].
        """
        running = np.atleast_1d(np.asarray(running, dtype=float))
        step = self.steps(running)
        found = np.empty(len(running))
        for at, (count, time) in enumerate(zip(running, step, strict=True)):
            company = self.company(float(count), float(count) / self.output)
            occupancy = self.occupancy(company)
            found[at] = batching.saturated_rate(running=count, output=self.output, step=time, occupancy=occupancy)
            found[at] = min(found[at], self.intake(company, occupancy, float(time)))
        return found

    def intake(self, company: float, occupancy: float, step: float) -> float:
        """Prompts that the replica can take in while it decodes [1/s].

        Parameters
        ----------
        company : float
            See :meth:`company` [1].
        occupancy : float
            Time that a prompt takes from decoding [s].
        step : float
            Time of a decode step [s].

        Returns
        -------
        float
            Rate [1/s].
        """
        if self.times.rides:
            return 1 / self.entry(company)
        return float(
            batching.prefill_rate(occupancy=occupancy, step=step, prompt=self.prompt, budget=self.times.budget)
        )


def serve(times: StepTimes, lengths: Lengths, cached: float = 0.0, routing: Routing = "least-loaded") -> Service:
    """Work out what a replica can do for a mix of lengths.

    Parameters
    ----------
    times : StepTimes
    lengths : Lengths
    cached : float
        Share of each prompt that the prefix cache holds.
    routing : str
        How requests are dealt to replicas like this one.

    Returns
    -------
    Service
    """
    held = times.bytes_of(lengths.prompt + lengths.output)
    fits = held <= times.pool
    refused = max(0.0, 1 - float(lengths.weight[fits].sum()))
    if not fits.any():
        return Service(times, lengths, 0, "memory", cached, 0.0, "memory", 1.0)
    kept = Lengths(lengths.prompt[fits], lengths.output[fits], lengths.weight[fits] / lengths.weight[fits].sum())
    held = held[fits]
    life, swing = held, 0.0 * held
    if times.grows:
        # A request holds its prompt at first and its full length at last.
        entry = times.bytes_of(kept.prompt)
        life, swing = times.bytes_of(kept.prompt + kept.output / 2), (held - entry) ** 2 / 12
    else:
        entry = held
    stays = kept.output / kept.mean(kept.output)
    biased = kept.mean(life * stays)
    deviation = np.sqrt(max(0.0, kept.mean((life**2 + swing) * stays) - biased**2))
    mean = kept.mean(entry)
    idle = kept.mean(entry * entry) / (2 * mean) - mean / 2 * (1 if len(kept.weight) == 1 else 0)
    room = float(batching.length_biased_cap(pool=times.pool, running=biased, idle=idle))
    cap = int(max(1.0, min(room, times.cap)))
    sway = float(np.sqrt(cap) * deviation / biased) if room < times.cap else 0.0
    limit = "memory" if room < times.cap else "engine"
    service = Service(times, kept, cap, limit, cached, 0.0, "", refused, sway, routing)
    tried = np.unique(np.round(np.geomspace(1.0, cap, 24)))
    rates = service.rates(tried)
    best = int(np.argmax(rates))
    step = float(service.steps(tried[best]))
    company = service.company(float(tried[best]), float(tried[best]) / service.output)
    binding = service.limit
    if rates[best] >= 0.999 * service.intake(company, service.occupancy(company), step):
        binding = "prefill"
    elif best < len(tried) - 1:
        binding = "speed"
    return replace(service, capacity=float(rates[best]), binding=binding)


@dataclass(frozen=True)
class Queue:
    """A replica under a load.

    Attributes
    ----------
    rate, utilisation : float
        Arrivals [1/s]; share of the capacity.
    saturated : bool
        Whether requests arrive faster than they can be finished.
    running : float
        Requests in the replica, averaged over time.
    waiting : float
        Share of requests that wait for admission.
    prefilling : float
        Share of time that it prefills.
    laws : Laws or None
        Of the times of requests, worked out when they are asked for.
    """

    rate: float
    utilisation: float
    saturated: bool
    running: float = math.nan
    waiting: float = math.nan
    prefilling: float = math.nan
    laws: Laws | None = None

    @property
    def wait(self) -> Law | None:
        """Law of the time until admission."""
        return None if self.laws is None else self.laws.wait

    @property
    def ttft(self) -> Law | None:
        """Law of the time to the first token."""
        return None if self.laws is None else self.laws.ttft

    @property
    def tpot(self) -> Law | None:
        """Law of a request's mean time between tokens; none where no request has two."""
        return None if self.laws is None else self.laws.tpot

    @property
    def itl(self) -> Law | None:
        """Law of each time between two tokens; none where no request has two."""
        return None if self.laws is None else self.laws.itl

    @property
    def latency(self) -> Law | None:
        """Law of the time of a whole request."""
        return None if self.laws is None else self.laws.latency


def overlap(lengths: Lengths) -> float:
    """Return the integral of the squared survival function of the outputs over their mean.

    Parameters
    ----------
    lengths : Lengths

    Returns
    -------
    float
        [1]
    """
    order = np.argsort(lengths.output)
    value, weight = lengths.output[order], lengths.weight[order]
    survival = 1 - np.concatenate([[0.0], np.cumsum(weight)[:-1]])
    return float(np.sum(survival**2 * np.diff(np.concatenate([[0.0], value]))) / np.sum(weight * value))


def _scv(values: Any, lengths: Lengths) -> float:
    mean = lengths.mean(values)
    return max(0.0, lengths.mean(values * values) / (mean * mean) - 1)


def stationary(log_ratio: Any, tail: float) -> tuple[Any, float, float]:
    """Return the law of the number in a birth-death chain with a geometric tail.

    Parameters
    ----------
    log_ratio : ndarray
        Logarithms of the ratio of neighbouring probabilities, up to the cap.
    tail : float
        Ratio beyond the cap, below 1.

    Returns
    -------
    probability : ndarray
        Of 0 to the cap.
    beyond : float
        Probability of more than the cap.
    excess : float
        Mean number beyond the cap.
    """
    logs = np.concatenate([[0.0], np.cumsum(log_ratio)])
    weight = np.exp(logs - logs.max())
    after = weight[-1] * tail / (1 - tail)
    total = weight.sum() + after
    return weight / total, float(after / total), float(after / total / (1 - tail))


def load_queue(service: Service, rate: float, arrival_scv: float = 1.0, level: int = 1) -> Queue:
    """Put a load on a replica.

    Parameters
    ----------
    service : Service
    rate : float
        Arrivals at this replica [1/s].
    arrival_scv : float
        Squared coefficient of variation of the times between them.
    level : int
        Replicas that a router keeps at the same number of requests, so that they vary as one.

    Returns
    -------
    Queue
        Without times where the load is not served.
    """
    used = rate / service.capacity if service.capacity > 0 else np.inf
    if used >= FULL:
        return Queue(rate, used, True)
    times, lengths, cap, output = service.times, service.lengths, service.cap, service.output
    counts, places, over = _places(service)
    step, seen = service.steps(places), service.seen(places)
    share = overlap(lengths)
    running = max(1.0, cap * used)
    full = max(float(service.rates(float(cap))[0]), rate / FULL)
    tail = (rate / full) ** (2 * level / (max(1.0, arrival_scv * level) + 1))
    life = wake = 0.0
    for _ in range(3):
        bare = float(service.seen(running))
        company = service.shared(rate, bare, running)
        work = _work(service, rate, arrival_scv, company)
        death = queueing.batch_rate(
            running=places, output=output, step=step, own=work.mean + wake, prefilling=work.share
        )
        together = dispersion(rate, arrival_scv * level, life)
        spread = float(queueing.peakedness(arrival_scv=together, overlap=share)) / level
        probability, beyond, excess = _balanced(rate, death, full, max(0.05 / level, spread), tail)
        inside = float(np.sum(places * probability[1:])) + cap * beyond
        running = max(1.0, inside)
        life = inside / rate
        bare = float(np.sum(probability[1:] * places * seen) + beyond * cap * seen[-1]) / max(inside, 1e-300)
        cycle = max(1e-9, bare / (1 - work.share))
        if not times.rides:
            wake = _wake(work, cycle, max(1.0, output - 1))
    # Prompts come in one after the other and those of a step share it, which the chain does not know: a life takes what
    # its laws say.
    stretch, door = 1.0, None
    for _ in range(_SETTLED):
        waiting = beyond + float(np.sum(probability[1:] * over))
        state = _State(service, work, np.concatenate([[0.0], places]), probability, inside, cycle, waiting)
        if door is None or abs(state.decode()[1] / max(door.step, 1e-300) - 1) > _ALIKE or state.waiting > _ALIKE:
            door = _door(state)
        cycle = max(1e-9, door.cycle(bare))
        lasts = door.life(service, bare) * rate / max(inside, 1e-300)
        if abs(lasts - 1) < _NEAR:
            break
        stretch *= lasts
        probability, beyond, excess = _balanced(rate, death / stretch, full, max(0.05 / level, spread), tail)
        inside = float(np.sum(places * probability[1:])) + cap * beyond
        bare = float(np.sum(probability[1:] * places * seen) + beyond * cap * seen[-1]) / max(inside, 1e-300)
    waiting = beyond + float(np.sum(probability[1:] * over))
    queued = excess + beyond * (len(counts) - cap) + float(np.sum(probability[1:] * (counts - places)))
    admission = queued / rate * _admission_factor(cap * level, rate / full, arrival_scv, _scv(lengths.output, lengths))
    held = admission / max(waiting, 1e-300)
    return Queue(rate, used, False, inside, waiting, 1 - bare / cycle, Laws(state, door, waiting, held))


def _places(service: Service) -> tuple[Any, Any, Any]:
    """Return numbers in the system, how many of them run on average, and how likely the next one waits."""
    from scipy.special import ndtr

    cap, sway = service.cap, service.sway
    counts = np.arange(1.0, cap + np.ceil(3 * sway) + 1)
    if sway == 0.0:
        return counts, counts, (counts >= cap) * 1.0
    beyond = (counts - cap) / sway
    running = counts - sway * (beyond * ndtr(beyond) + np.exp(-beyond * beyond / 2) / np.sqrt(2 * np.pi))
    return counts, np.maximum(np.minimum(1.0, counts), running), ndtr(beyond)


def closed_queue(service: Service, sessions: float, think: float = 0.0) -> Queue:
    """Return a replica that so many clients keep busy, each of whom thinks between two requests.

    Parameters
    ----------
    service : Service
    sessions : float
        Clients.
    think : float
        Mean time between the end of a request and the next one, exponential [s].

    Returns
    -------
    Queue
        Its ``rate`` is what the loop settles at.
    """
    cap, output = service.cap, service.output
    count = max(1, round(sessions))
    places = np.arange(1.0, count + 1)
    running = np.minimum(places, cap)
    full = float(service.rates(float(min(count, cap)))[0])
    rate, probability = full, np.zeros(count + 1)
    probability[-1] = 1.0
    for _ in range(6 if think > 0 else 1):
        inside = float(np.sum(np.minimum(np.arange(count + 1), cap) * probability))
        work = _work(service, rate, 1.0, service.company(max(1.0, inside), max(1.0, inside / output)))
        if think > 0:
            step = service.steps(running)
            death = batching.batch_rate(running=running, output=output, step=step, own=work.mean, prefilling=work.share)
            death = np.minimum(death, np.where(places >= cap, full, np.inf))
            probability, _, _ = stationary(np.log((count - places + 1) / think) - np.log(death), 0.0)
            rate = float(np.sum(probability[1:] * death))
    inside = float(np.sum(np.minimum(np.arange(count + 1), cap) * probability))
    waiting = float(probability[cap + 1 :].sum())
    queued = float(np.sum(np.maximum(0, np.arange(count + 1) - cap) * probability))
    steps = service.seen(np.minimum(np.arange(count + 1), cap))
    weight = np.minimum(np.arange(count + 1), cap) * probability
    bare = float(np.sum(weight * steps) / max(inside, 1e-300))
    cycle = max(1e-9, bare / (1 - work.share))
    held = queued / rate / max(waiting, 1e-300)
    # An arrival of a closed loop finds the others, not itself.
    found = np.zeros(cap + 1)
    others = np.minimum(np.arange(count), cap - 1)
    np.add.at(found, others, probability[1:])
    found[0] += probability[0]
    state = _State(service, work, np.arange(cap + 1.0), found, inside, cycle, min(1.0, waiting), think == 0)
    held_scv = 1 / max(1.0, queued / max(waiting, 1e-300))
    return Queue(
        rate,
        rate / service.capacity,
        False,
        inside,
        waiting,
        work.share,
        Laws(state, _door(state), min(1.0, waiting), held, held_scv),
    )


def _admission_factor(cap: int, used: float, arrival_scv: float, service_scv: float) -> float:
    """Return the wait for admission over that of a chain with exponential times."""
    wait = queueing.exponential_wait(servers=float(cap), load=used * cap, service=1.0)
    wait = max(1e-300, float(wait))
    fixed = queueing.deterministic_wait(wait=wait, servers=float(cap), load=used * cap)
    served = float(queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=service_scv)) / wait
    return served * min(1.0, (arrival_scv + service_scv) / (1 + service_scv))


@dataclass(frozen=True)
class _Work:
    """The prefills that a load brings: its arrivals, and moments of the time that a prompt takes [s, s2]."""

    rate: float
    scv: float
    company: float
    took: Any
    mean: float
    square: float
    share: float


def _work(service: Service, rate: float, scv: float, company: float) -> _Work:
    lengths = service.lengths
    took = service.times.prefill(lengths.prompt, company, service.cached)
    mean = lengths.mean(took)
    return _Work(rate, scv, company, took, mean, lengths.mean(took * took), min(0.98, rate * mean))


def _wake(work: _Work, cycle: float, steps: float) -> float:
    """Time by which own prefill and the arrivals that bunch behind it lengthen the steps after it [s]."""
    spread = batching.cycle_variance(cycle=cycle, rate=work.rate, prefilling=work.share, prefill_square=work.square)
    # An arrival finds a long step rather than a short one, and arrivals that bunch share it.
    window = cycle + spread / cycle
    one, many = (dispersion(work.rate, work.scv, window * scale) for scale in (1.0, 1 / (1 - work.share)))
    square = max(work.square - work.mean**2, float(work.square + (many - 1) * work.mean**2))
    found = batching.cycle_variance(cycle=cycle, rate=work.rate, prefilling=work.share, prefill_square=square)
    together = max(0.0, float(work.share * (cycle + found / cycle) + (one - 1) * work.mean))
    first = cycle * (1 - work.share) + work.mean + together
    drawn = batching.wake_of_prefill(first=first, cycle=cycle, cycles=steps, prefilling=work.share)
    behind = dispersion(work.rate, work.scv, steps * cycle) - dispersion(work.rate, work.scv, window)
    return float(drawn + behind / 2 * work.mean / (1 - work.share))


def dispersion(rate: float, scv: float, window: Any) -> Any:
    """Return variance over mean of the arrivals in a window, for a renewal process with gamma gaps.

    Parameters
    ----------
    rate : float
        Arrivals [1/s].
    scv : float
        Squared coefficient of variation of the gaps.
    window : float or ndarray
        Time [s].

    Returns
    -------
    Number
        [1]
    """
    window = np.asarray(window, dtype=float)
    if scv == 1.0:
        return np.ones_like(window)
    knots, table, _ = _dispersions(float(scv))
    return np.interp(np.log(np.maximum(1e-9, rate * window)), knots, table)


def excess(rate: float, scv: float, time: Any) -> Any:
    """Return the arrivals in a time after an arrival beyond those of any time, for a renewal process with gamma gaps.

    Parameters
    ----------
    rate : float
        Arrivals [1/s].
    scv : float
        Squared coefficient of variation of the gaps.
    time : float or ndarray
        Time [s].

    Returns
    -------
    Number
        [1]
    """
    time = np.asarray(time, dtype=float)
    if scv == 1.0:
        return np.zeros_like(time)
    knots, _, table = _dispersions(float(scv))
    return np.interp(np.log(np.maximum(1e-9, rate * time)), knots, table)


@cache
def _dispersions(scv: float) -> tuple[Any, Any, Any]:
    """Return logarithms of mean arrivals in a window, the dispersion of their number, and the excess after an arrival."""
    from scipy.special import gammainc

    shape = 1 / max(scv, 0.02)
    mean = np.geomspace(1e-5, 20 * max(1.0, scv), 60)
    # Mean arrivals within a time after an arrival, less those of a Poisson process.
    number = np.arange(1, int(2 * mean[-1]) + 20)
    more = gammainc(number * shape, shape * mean[:, None]).sum(axis=1) - mean
    parts = np.diff(mean, prepend=0.0) * (more + np.concatenate([[0.0], more[:-1]])) / 2
    return np.log(mean), 1 + 2 * np.cumsum(parts) / mean, more


def _balanced(rate: float, death: Any, full: float, spread: float, tail: float) -> tuple[Any, float, float]:
    """Return the law of the number whose mean death rate is the arrival rate, see :func:`stationary`."""
    from scipy.optimize import brentq

    base = (np.log(rate) - np.log(death)) / spread

    def over(shift: float) -> float:
        probability, beyond, _ = stationary(base + shift, tail)
        flow = float(np.sum(probability[1:] * death)) + beyond * full
        return math.log(max(flow, 1e-300) / rate)

    # More requests finish the more there are: the root lies between a shift that finishes too few and one too many.
    near = over(0.0)
    if abs(near) < _BALANCE:
        return stationary(base, tail)
    away = math.copysign(1.0, -near)
    while over(away) * near > 0 and abs(away) < _FARTHEST:
        away *= 4.0
    if over(away) * near > 0:
        return stationary(base + away, tail)
    low, high = sorted((0.0, away))
    return stationary(base + brentq(over, low, high, xtol=1e-7), tail)


@dataclass(frozen=True)
class _State:
    """A replica under a load: the law of its number, the mean time between tokens, and the wait for admission."""

    service: Service
    work: _Work
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
    state : _State
    door : _Door
    waiting : float
        Share of requests that wait for admission [1].
    held, held_scv : float
        Wait of those who do [s], and its squared coefficient of variation: 1 where it is exponential.
    """

    state: _State
    door: _Door
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
        if isinstance(door.steps, Steps):
            found = lives(door.steps, value, door.filled)
        else:
            found = door.steps.lives(value)
        if door.apart is not None:
            found = [
                spread_over(law.times_of(count), door.apart).times_of(1 / count)
                for law, count in zip(found, value, strict=True)
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
        found = [law.times_of(steps / tokens) for law, steps, tokens in zip(found, value, more, strict=True)]
        return weight, more, found, factors

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
class _Riding:
    """Where prompts ride along with decoding: the wait for one's turn, and what rides cost tokens."""

    wait: Law
    gaps: Law
    prompts: Prompts
    step: float
    full: float

    @property
    def mean(self) -> float:
        """Mean time of a step [s]."""
        return self.gaps.average

    def lives(self, number: Any) -> list[Law]:
        """Return the laws of the mean time between tokens over numbers of steps."""
        return riding_lives(self.prompts, self.step, self.full, number)


@dataclass(frozen=True)
class _Door:
    """What requests meet from admission on: the steps or the queue, and the law of the time to the first token.

    ``step`` is the decode step that the laws are told for, ``filled`` the law of the work of the step that holds the own
    prefill.  ``apart`` are equally likely times until the next step
    where first tokens do not come as a step ends.
    """

    steps: Steps | _Riding
    ttft: Law
    step: float
    filled: Any
    apart: Any = None

    def cycle(self, step: float) -> float:
        """Mean time between tokens at any time, with so long a decode step [s]."""
        return self.steps.mean * (step / self.step if self.step > 0 else 1.0)

    def gap(self, service: Service) -> Law:
        """Law of the time between two tokens, at the decode step that the laws are told for."""
        if not isinstance(self.steps, Steps):
            return self.steps.gaps
        number = service.passes - 1
        reached = [float(service.lengths.weight[number >= place].sum()) for place in range(1, _WAKE + 1)]
        return gaps(self.steps, self.filled, np.array(reached) / service.lengths.mean(number))

    def life(self, service: Service, step: float) -> float:
        """Mean time from admission to the last token, with so long a decode step [s]."""
        number = service.lengths.mean(service.passes - 1)
        if number == 0:
            return self.ttft.average
        return self.ttft.average + number * self.gap(service).average * step / self.step


def _door(state: _State) -> _Door:
    """Work out what requests meet from admission on."""
    service, work, times = state.service, state.work, state.service.times
    lengths = service.lengths
    weight, order = _grouped(lengths.weight, work.took)
    prompt = _means(lengths.prompt, lengths.weight, order)
    decode, step = state.decode()
    turnover = work.rate / max(1.0, state.inside)
    life_scv = _scv(lengths.output, lengths)

    def spread_of_arrivals(window: Any) -> Any:
        """Where all places are taken, prompts enter as others end: each once in a life."""
        free = dispersion(work.rate, work.scv, window)
        return (1 - state.waiting) * free + state.waiting * dispersion(turnover, life_scv, window)

    def excess_of_arrivals(time: Any) -> Any:
        free = excess(work.rate, work.scv, time)
        return (1 - state.waiting) * free + state.waiting * excess(turnover, life_scv, time)

    # Of those who decode, at least one sees a prompt ride along.
    beside = max(2.0, work.company)
    company = [1.0, 2.0] if times.rides else times.company.tolist()
    took = np.array([times.prefill(prompt, beside if times.rides else one, service.cached) for one in company])
    prompts = Prompts(work.rate, weight, company, took, spread_of_arrivals, excess_of_arrivals)
    if times.rides:
        first = times.first_token(prompt, work.company, service.cached)
        slot = times.entry(prompt, work.company, service.cached)
        wait, taken = single_file(prompts, slot)
        slowed = np.minimum(0.9, took[0] / np.maximum(times.entry(prompt, beside, service.cached), 1e-12))
        full = step * float(np.max(1 / (1 - slowed)) - 1)
        calm = np.array([1 - taken, *(work.rate * weight * slot * (1 - slowed))])
        riding = _Riding(
            wait,
            discrete(step / np.concatenate([[1.0], 1 - slowed]), calm),
            prompts,
            step,
            full,
        )
        return _Door(riding, sum_of(wait, first, weight), step, np.ones(1), _PARTS * step)
    tokens = np.maximum(1.0, prompt * (1 - service.cached))
    steps = steps_of(prompts, step, _full_step(times.budget, tokens, prompts))
    ttft, filled = first_tokens(steps)
    idle = float(state.probability[0]) * (not state.in_step)
    if idle > 1e-6:
        alone = discrete(times.first_token(prompt, 1.0, service.cached), weight)
        ttft = mixture([1 - idle, idle], [ttft, alone])
    return _Door(steps, spread_over(ttft, 1.5 * (decode - step)), step, filled)


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

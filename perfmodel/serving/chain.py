"""Continuous batching as a birth-death chain whose death rate comes from the machine's step at each batch size.

Up to the cap a replica shares itself among the running requests, so that the stationary law of their number depends on
the mean output only (Cohen 1979); spread of arrivals enters as an exponent of the ratio of rates.  Requests beyond the
cap wait for admission.  How long a request takes follows from the laws of its times, and these from the number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.equations import batching, queueing
from perfmodel.serving.arrivals import dispersion
from perfmodel.serving.laws import Law
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.response_times import Laws, State, Work, door_of, scv_of, work_of
from perfmodel.serving.service import Service

#: Share of the capacity from which on a load counts as not served.
FULL = 0.995
#: Rounds in which prefills and the law of the number follow from each other; then this law and the time of a life, and
#: how near these are brought.
_STARTED, _SETTLED, _NEAR = 3, 4, 0.02
#: Difference of a decode step, or share who wait, up to which laws of times are those of the round before.
_ALIKE = 0.01
#: How near arrivals and departures of a chain are brought, and how far the search for that goes.
_BALANCE, _FARTHEST = 1e-4, 1e7


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
    crowd = _Crowd.of(service, rate, arrival_scv, level)
    work, death, spread, number = crowd.started(max(1.0, service.cap * used))
    # Prompts come in one after the other and those of a step share it, which the chain does not know: a life takes what
    # its laws say.
    stretch, door = 1.0, None
    for _ in range(_SETTLED):
        state = crowd.state(work, number)
        if door is None or abs(state.decode()[1] / max(door.step, 1e-300) - 1) > _ALIKE or state.waiting > _ALIKE:
            door = door_of(state)
        lasts = door.life(service, number.step) * rate / max(number.inside, 1e-300)
        if abs(lasts - 1) < _NEAR:
            break
        stretch *= lasts
        number = crowd.number(death / stretch, spread)
    assert door is not None
    cycle = max(1e-9, door.cycle(number.step))
    waiting = crowd.waiting(number)
    held = crowd.queued(number) / rate * crowd.admission_factor() / max(waiting, 1e-300)
    laws = Laws(replace(state, cycle=cycle), door, waiting, held)
    return Queue(rate, used, False, number.inside, waiting, 1 - number.step / cycle, laws)


@dataclass(frozen=True)
class _Number:
    """The law of the number in a replica: see :func:`stationary`; who runs, and their mean decode step [s]."""

    probability: Any
    beyond: float
    excess: float
    inside: float
    step: float


@dataclass(frozen=True)
class _Crowd:
    """Requests of a load in a replica: by number in the system, how many run on average and how likely one waits.

    ``step`` and ``seen`` are decode steps by that number, ``full`` the rate of a full replica, ``tail`` the ratio of
    probabilities beyond the numbers.
    """

    service: Service
    rate: float
    scv: float
    level: int
    counts: Any
    places: Any
    over: Any
    step: Any
    seen: Any
    full: float
    tail: float

    @classmethod
    def of(cls, service: Service, rate: float, scv: float, level: int) -> _Crowd:
        """Return the crowd before the law of its number is known."""
        counts, places, over = _places(service)
        full = max(float(service.rates(float(service.cap))[0]), rate / FULL)
        tail = (rate / full) ** (2 * level / (max(1.0, scv * level) + 1))
        step, seen = service.steps(places), service.seen(places)
        return cls(service, rate, scv, level, counts, places, over, step, seen, full, tail)

    def started(self, running: float) -> tuple[Work, Any, float, _Number]:
        """Return the prefills, rates of ends, spread of the number and its law, as if prompts came in at once."""
        service, rate = self.service, self.rate
        share, life, aftereffect = overlap(service.lengths), 0.0, 0.0
        for _ in range(_STARTED):
            coscheduled = service.shared(rate, float(service.seen(running)), running)
            work = work_of(service, rate, self.scv, coscheduled)
            death = batching.batch_rate(
                running=self.places,
                output=service.output,
                step=self.step,
                own=work.mean + aftereffect,
                prefilling=work.share,
            )
            together = dispersion(rate, self.scv * self.level, life)
            spread = float(queueing.peakedness(arrival_scv=together, overlap=share)) / self.level
            number = self.number(death, spread)
            running = max(1.0, number.inside)
            life = number.inside / rate
            if not service.times.rides:
                aftereffect = _aftereffect(
                    work, max(1e-9, number.step / (1 - work.share)), max(1.0, service.output - 1)
                )
        return work, death, spread, number

    def number(self, death: Any, spread: float) -> _Number:
        """Return the law of the number whose rate of ends is that of arrivals."""
        least = max(0.05 / self.level, spread)
        probability, beyond, excess = _balanced(self.rate, death, self.full, least, self.tail)
        running, rest = probability[1:] * self.places, beyond * self.service.cap
        inside = float(np.sum(running)) + rest
        step = (float(np.sum(running * self.seen)) + rest * self.seen[-1]) / max(inside, 1e-300)
        return _Number(probability, beyond, excess, inside, step)

    def state(self, work: Work, number: _Number) -> State:
        """Return what the laws of times follow from."""
        cycle = max(1e-9, number.step / (1 - work.share))
        places = np.concatenate([[0.0], self.places])
        return State(self.service, work, places, number.probability, number.inside, cycle, self.waiting(number))

    def waiting(self, number: _Number) -> float:
        """Return the share of requests that wait for admission."""
        return number.beyond + float(np.sum(number.probability[1:] * self.over))

    def queued(self, number: _Number) -> float:
        """Return the mean number of those who do."""
        beyond = number.excess + number.beyond * (len(self.counts) - self.service.cap)
        return beyond + float(np.sum(number.probability[1:] * (self.counts - self.places)))

    def admission_factor(self) -> float:
        """Return the wait for admission over that of a chain with exponential times."""
        lengths, used = self.service.lengths, self.rate / self.full
        return _admission_factor(self.service.cap * self.level, used, self.scv, scv_of(lengths.output, lengths))


def _places(service: Service) -> tuple[Any, Any, Any]:
    """Return numbers in the system, how many of them run on average, and how likely the next one waits."""
    from scipy.special import ndtr

    cap, cap_deviation = service.cap, service.cap_deviation
    counts = np.arange(1.0, cap + np.ceil(3 * cap_deviation) + 1)
    if cap_deviation == 0.0:
        return counts, counts, (counts >= cap) * 1.0
    beyond = (counts - cap) / cap_deviation
    running = counts - cap_deviation * (beyond * ndtr(beyond) + np.exp(-beyond * beyond / 2) / np.sqrt(2 * np.pi))
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
        work = work_of(service, rate, 1.0, service.coscheduled(max(1.0, inside), max(1.0, inside / output)))
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
    queueing = queued / rate / max(waiting, 1e-300)
    # An arrival of a closed loop finds the others, not itself.
    weights = np.zeros(cap + 1)
    others = np.minimum(np.arange(count), cap - 1)
    np.add.at(weights, others, probability[1:])
    weights[0] += probability[0]
    state = State(service, work, np.arange(cap + 1.0), weights, inside, cycle, min(1.0, waiting), think == 0)
    held_scv = 1 / max(1.0, queued / max(waiting, 1e-300))
    return Queue(
        rate,
        rate / service.capacity,
        False,
        inside,
        waiting,
        work.share,
        Laws(state, door_of(state), min(1.0, waiting), queueing, held_scv),
    )


def _admission_factor(cap: int, used: float, arrival_scv: float, service_scv: float) -> float:
    """Return the wait for admission over that of a chain with exponential times."""
    wait = queueing.exponential_wait(servers=float(cap), load=used * cap, service=1.0)
    wait = max(1e-300, float(wait))
    fixed = queueing.deterministic_wait(wait=wait, servers=float(cap), load=used * cap)
    served = float(queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=service_scv)) / wait
    return served * min(1.0, (arrival_scv + service_scv) / (1 + service_scv))


def _aftereffect(work: Work, cycle: float, steps: float) -> float:
    """Time by which own prefill and the arrivals that bunch behind it lengthen the steps after it [s]."""
    spread = batching.cycle_variance(cycle=cycle, rate=work.rate, prefilling=work.share, prefill_square=work.square)
    # An arrival finds a long step rather than a short one, and arrivals that bunch share it.
    window = cycle + spread / cycle
    one, many = (dispersion(work.rate, work.scv, window * scale) for scale in (1.0, 1 / (1 - work.share)))
    square = max(work.square - work.mean**2, float(work.square + (many - 1) * work.mean**2))
    found = batching.cycle_variance(cycle=cycle, rate=work.rate, prefilling=work.share, prefill_square=square)
    together = max(0.0, float(work.share * (cycle + found / cycle) + (one - 1) * work.mean))
    first = cycle * (1 - work.share) + work.mean + together
    drawn = batching.prefill_aftereffect(first=first, cycle=cycle, cycles=steps, prefilling=work.share)
    behind = dispersion(work.rate, work.scv, steps * cycle) - dispersion(work.rate, work.scv, window)
    return float(drawn + behind / 2 * work.mean / (1 - work.share))


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

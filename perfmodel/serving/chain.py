r"""Continuous batching as a birth-death chain whose death rate comes from the machine's step at each batch size.

Up to the cap a replica shares itself among the running requests, so that the stationary law of their number depends on
the mean output only (Cohen 1979); spread of arrivals enters as an exponent of the ratio of rates.  Requests beyond the
cap wait for admission.  Within a step the engine is gated: what arrives during one step is prefilled in the next.
Percentiles are read off a mixture of shifted gamma laws over prompt, output and batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from perfmodel.equations import queueing
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.step_times import StepTimes

#: Shares of requests of which times are given.
QUANTILES = (0.5, 0.9, 0.99)
#: Share of the capacity from which on a load counts as not served.
FULL = 0.995
#: Batch sizes that stand for their distribution in percentiles.
_BATCHES = 12
#: Groups of prompts that stand for their distribution in percentiles of TTFT.
_GROUPS = 36


#: Slices of each gamma law, finer in the tail, and the standard normal quantiles of their middles.
_EDGES = np.array([0.0, 0.08, 0.2, 0.35, 0.5, 0.65, 0.78, 0.87, 0.93, 0.97, 0.99, 0.998, 1.0])
_SLICES = np.diff(_EDGES)
_NORMAL = np.array([-1.7507, -1.0803, -0.5978, -0.1891, 0.1891, 0.5651, 0.9346, 1.2816, 1.6449, 2.0537, 2.5121, 3.0902])


_PARTS = ("weight", "shift", "mean", "variance")


@dataclass(frozen=True)
class Law:
    """Distribution of a time [s] as a weighted mixture of shifted gamma laws."""

    weight: Any
    shift: Any
    mean: Any
    variance: Any

    @property
    def average(self) -> float:
        """Mean."""
        return float(np.sum(self.weight * (self.shift + self.mean)))

    @cached_property
    def points(self) -> tuple[Any, Any]:
        """Times in rising order and the probability to be at most each (Wilson and Hilferty 1931)."""
        mean = np.maximum(self.mean, 1e-12)[:, None]
        inverse = np.maximum(self.variance, 0.0)[:, None] / (9 * mean * mean)
        beyond = mean * np.maximum(0.0, 1 - inverse + _NORMAL * np.sqrt(inverse)) ** 3
        time = (self.shift[:, None] + beyond).ravel()
        weight = (self.weight[:, None] * _SLICES).ravel()
        order = np.argsort(time)
        return time[order], np.cumsum(weight[order])

    def share_below(self, time: float) -> float:
        """Probability to be at most a time.

        Parameters
        ----------
        time : float
            Time [s].

        Returns
        -------
        float
            Probability [1].
        """
        from scipy.special import ndtr

        mean = np.maximum(self.mean, 1e-12)
        inverse = np.maximum(self.variance, 1e-12 * mean * mean) / (9 * mean * mean)
        beyond = time - self.shift
        with np.errstate(invalid="ignore"):
            normal = ((np.maximum(0.0, beyond) / mean) ** (1 / 3) - 1 + inverse) / np.sqrt(inverse)
        return min(1.0, float(np.sum(self.weight * np.where(beyond < 0, 0.0, ndtr(normal)))))

    def quantile(self, share: float) -> float:
        """Time that so large a share does not exceed.

        Parameters
        ----------
        share : float
            Share of the requests [1].

        Returns
        -------
        float
            Time [s].
        """
        times, shares = self.points
        return float(times[min(len(times) - 1, int(np.searchsorted(shares, share * shares[-1])))])

    def mixed(self, share: float, later: float) -> Law:
        """Return the law where such a share of requests takes so much longer [s].

        Parameters
        ----------
        share : float
            Share of the requests [1].
        later : float
            Time [s].

        Returns
        -------
        Law
        """
        twice = {name: np.concatenate([getattr(self, name)] * 2) for name in _PARTS}
        twice["weight"] = np.concatenate([self.weight * (1 - share), self.weight * share])
        twice["shift"] = np.concatenate([self.shift, self.shift + later])
        return Law(**twice)

    def summary(self) -> dict[str, float]:
        """Mean and percentiles.

        Returns
        -------
        dict of str to float
            ``mean`` and ``p50``, ``p90``, ``p99`` [s].
        """
        return {"mean": self.average, **{f"p{share * 100:g}": self.quantile(share) for share in QUANTILES}}


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
    """

    times: StepTimes
    lengths: Lengths
    cap: int
    limit: str
    cached: float
    capacity: float
    binding: str
    refused: float

    @property
    def context(self) -> float:
        """Tokens in the cache of a running sequence, averaged over its tokens."""
        lengths = self.lengths
        steps = lengths.output
        return lengths.mean(steps * (lengths.prompt + lengths.output / 2)) / lengths.mean(steps)

    @property
    def output(self) -> float:
        """Mean output tokens."""
        return self.lengths.mean(self.lengths.output)

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
        return self.lengths.mean(self.times.prefill(self.lengths.prompt, company, self.cached))

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
            found[at] = queueing.saturated_rate(running=count, output=self.output, step=time, occupancy=occupancy)
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
            queueing.prefill_rate(occupancy=occupancy, step=step, prompt=self.prompt, budget=self.times.budget)
        )


def serve(times: StepTimes, lengths: Lengths, cached: float = 0.0) -> Service:
    """Work out what a replica can do for a mix of lengths.

    Parameters
    ----------
    times : StepTimes
    lengths : Lengths
    cached : float
        Share of each prompt that the prefix cache holds.

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
    mean = kept.mean(held)
    biased = kept.mean(held * kept.output) / kept.mean(kept.output)
    idle = kept.mean(held * held) / (2 * mean) - mean / 2 * (1 if len(kept.weight) == 1 else 0)
    room = float(queueing.length_biased_cap(pool=times.pool, running=biased, idle=idle))
    cap = int(max(1.0, min(room, times.cap)))
    service = Service(times, kept, cap, "memory" if room < times.cap else "engine", cached, 0.0, "", refused)
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
    return Service(times, kept, cap, service.limit, cached, float(rates[best]), binding, refused)


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
    wait, ttft, tpot, latency : Law or None
        Time until the prefill starts, to the first token, between tokens, and of a whole request.
    """

    rate: float
    utilisation: float
    saturated: bool
    running: float = math.nan
    waiting: float = math.nan
    prefilling: float = math.nan
    wait: Law | None = None
    ttft: Law | None = None
    tpot: Law | None = None
    latency: Law | None = None


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


def load_queue(service: Service, rate: float, arrival_scv: float = 1.0) -> Queue:
    """Put a load on a replica.

    Parameters
    ----------
    service : Service
    rate : float
        Arrivals at this replica [1/s].
    arrival_scv : float
        Squared coefficient of variation of the times between them.

    Returns
    -------
    Queue
        Without times where the load is not served.
    """
    used = rate / service.capacity if service.capacity > 0 else np.inf
    if used >= FULL:
        return Queue(rate, used, True)
    times, lengths, cap, output = service.times, service.lengths, service.cap, service.output
    counts = np.arange(1.0, cap + 1)
    step, seen = service.steps(counts), service.seen(counts)
    share = overlap(lengths)
    running = max(1.0, cap * used)
    full = max(float(service.rates(float(cap))[0]), rate / FULL)
    tail = (rate / full) ** (2 / (max(1.0, arrival_scv) + 1))
    cycle = life = wake = 0.0
    for _ in range(6):
        work = _work(service, rate, arrival_scv, service.company(running, 1 + rate * cycle))
        death = queueing.batch_rate(
            running=counts, output=output, step=step, own=work.mean + wake, prefilling=work.share
        )
        spread = float(queueing.peakedness(arrival_scv=dispersion(rate, arrival_scv, life), overlap=share))
        probability, beyond, excess = _balanced(rate, death, full, max(0.05, spread), tail)
        inside = float(np.sum(np.arange(cap + 1) * probability)) + cap * beyond
        running = max(1.0, inside)
        life = inside / rate
        bare = float(np.sum(probability[1:] * counts * seen) + beyond * cap * seen[-1]) / max(inside, 1e-300)
        cycle = max(1e-9, bare / (1 - work.share))
        if not times.rides:
            wake = float(_wake(work, _gate(work, cycle), work.mean, cycle, max(1.0, output - 1)))
    waiting = beyond + float(probability[-1])
    admission = excess / rate * _admission_factor(cap, rate / full, arrival_scv, _scv(lengths.output, lengths))
    state = _State(service, work, probability, inside, cycle, waiting, admission / max(waiting, 1e-300))
    ttft, wait, door = _first_token(state)
    tpot, latency = _tokens(state, door)
    return Queue(rate, used, False, inside, waiting, work.share, wait, ttft, tpot, latency)


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
            death = queueing.batch_rate(running=running, output=output, step=step, own=work.mean, prefilling=work.share)
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
    state = _State(
        service,
        work,
        found,
        inside,
        cycle,
        min(1.0, waiting),
        held,
        think == 0,
        1 / max(1.0, queued / max(waiting, 1e-300)),
    )
    ttft, wait, door = _first_token(state)
    tpot, latency = _tokens(state, door)
    return Queue(rate, rate / service.capacity, False, inside, waiting, work.share, wait, ttft, tpot, latency)


def _admission_factor(cap: int, used: float, arrival_scv: float, service_scv: float) -> float:
    """Return the wait for admission over that of a chain with exponential times."""
    wait = queueing.exponential_wait(servers=float(cap), load=used * cap, service=1.0)
    wait = max(1e-300, float(wait))
    fixed = queueing.deterministic_wait(wait=wait, servers=float(cap), load=used * cap)
    served = float(queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=service_scv)) / wait
    return served * min(1.0, (arrival_scv + service_scv) / (1 + service_scv))


@dataclass(frozen=True)
class _Work:
    """The prefills that a load brings: its arrivals, and moments of the time that a prompt takes [s]."""

    rate: float
    scv: float
    company: float
    took: Any
    mean: float
    square: float
    cube: float
    share: float


def _work(service: Service, rate: float, scv: float, company: float) -> _Work:
    lengths = service.lengths
    took = service.times.prefill(lengths.prompt, company, service.cached)
    mean = lengths.mean(took)
    moments = lengths.mean(took * took), lengths.mean(took**3)
    return _Work(rate, scv, company, took, mean, *moments, min(0.98, rate * mean))


@dataclass(frozen=True)
class _Gate:
    """What an arrival meets at the engine's door, where prompts of one step are prefilled in the next.

    Attributes
    ----------
    variance, skew : ndarray
        Of the time between two tokens: variance and third cumulant [s2, s3].
    square : ndarray
        Mean square of the prefills that an arrival brings, with how arrivals bunch [s2].
    found : ndarray
        Mean step that an arrival finds under way [s].
    together : ndarray
        Mean time of the other prompts of its step [s].
    bunched : ndarray
        The part of it that is due to how arrivals bunch [s].
    window : ndarray
        Time in which arrivals share a step [s].
    """

    variance: Any
    skew: Any
    square: Any
    found: Any
    together: Any
    bunched: Any
    window: Any


def _gate(work: _Work, cycle: Any) -> _Gate:
    """Work out what an arrival meets where the mean time between two tokens is given."""
    cycle = np.maximum(cycle, 1e-12)
    shared = {"cycle": cycle, "rate": work.rate, "prefilling": work.share}
    window = cycle + queueing.cycle_variance(**shared, prefill_square=work.square) / cycle
    one, two, many = (dispersion(work.rate, work.scv, window * scale) for scale in (1.0, 2.0, 1 / (1 - work.share)))
    square = np.maximum(work.square - work.mean**2, work.square + (many - 1) * work.mean**2)
    variance = queueing.cycle_variance(**shared, prefill_square=square)
    # Arrivals that bunch bring prefills in clusters, so that every cumulant grows.
    cube = work.cube * (square / work.square) ** 2
    skew = queueing.cycle_skew(**shared, variance=variance, prefill_square=square, prefill_cube=cube)
    # An arrival finds a long step rather than a short one.
    long = cycle + variance / cycle
    bunched = (one - 1) * work.mean
    found = np.maximum(0.0, long + (two - one) * work.mean)
    return _Gate(variance, skew, square, found, np.maximum(0.0, work.share * long + bunched), bunched, window)


def _wake(work: _Work, gate: _Gate, took: Any, cycle: Any, steps: Any) -> Any:
    """Time by which own prefill and the arrivals that bunch behind it lengthen the steps after it [s]."""
    first = cycle * (1 - work.share) + took + gate.together
    drawn = queueing.wake_of_prefill(first=first, cycle=cycle, cycles=steps, prefilling=work.share)
    behind = dispersion(work.rate, work.scv, steps * cycle) - dispersion(work.rate, work.scv, gate.window)
    return drawn + behind / 2 * work.mean / (1 - work.share)


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
    knots, table = _dispersions(float(scv))
    return np.interp(np.log(np.maximum(1e-9, rate * window)), knots, table)


@cache
def _dispersions(scv: float) -> tuple[Any, Any]:
    """Return logarithms of mean arrivals in a window, and the dispersion of their number."""
    from scipy.special import gammainc

    shape = 1 / max(scv, 0.02)
    mean = np.geomspace(1e-5, 20 * max(1.0, scv), 60)
    # Mean arrivals within a time after an arrival, less those of a Poisson process.
    number = np.arange(1, int(2 * mean[-1]) + 20)
    excess = gammainc(number * shape, shape * mean[:, None]).sum(axis=1) - mean
    parts = np.diff(mean, prepend=0.0) * (excess + np.concatenate([[0.0], excess[:-1]])) / 2
    return np.log(mean), 1 + 2 * np.cumsum(parts) / mean


def _balanced(rate: float, death: Any, full: float, spread: float, tail: float) -> tuple[Any, float, float]:
    """Return the law of the number whose mean death rate is the arrival rate, see :func:`stationary`."""
    base, shift = (np.log(rate) - np.log(death)) / spread, 0.0
    for _ in range(40):
        probability, beyond, excess = stationary(base + shift, tail)
        flow = float(np.sum(probability[1:] * death)) + beyond * full
        if abs(flow / rate - 1) < 1e-4 or spread == 1.0:
            break
        shift += 0.7 * np.log(rate / flow) / spread
    return probability, beyond, excess


@dataclass(frozen=True)
class _State:
    """A replica under a load: the law of its number, the mean time between tokens, and the wait for admission."""

    service: Service
    work: _Work
    probability: Any
    inside: float
    cycle: float
    waiting: float
    held: float
    #: Whether requests arrive as a step ends, because clients do not think, and not at any time.
    in_step: bool = False
    #: Variance of the wait for admission over its mean squared: 1 where it is exponential.
    held_scv: float = 1.0

    def batches(self) -> Any:
        """Return batch sizes as an arrival finds them, one for each slice of equal probability."""
        level = np.concatenate([[0.0], np.cumsum(self.probability / self.probability.sum())])
        middle = (np.arange(_BATCHES) + 0.5) / _BATCHES
        return np.minimum(self.service.cap, np.searchsorted(level, middle) - 1).astype(float)

    def admitted(self, weight: Any, shift: Any, mean: Any, variance: Any) -> Law:
        """Return a law with the wait for admission of those who wait."""
        calm = Law(weight * (1 - self.waiting), shift, mean, variance)
        queued = Law(weight * self.waiting, shift, mean + self.held, variance + self.held**2 * self.held_scv)
        return Law(*(np.concatenate([getattr(law, name) for law in (calm, queued)]) for name in _PARTS))


@dataclass(frozen=True)
class _Door:
    """From admission to the first token [s].

    Attributes
    ----------
    mean, variance : ndarray
        Of the delay by others, by batch.
    own : ndarray
        Own prefill, by length.
    step : ndarray
        Decode step that the prefill shares, by batch.
    wait, wait_variance : ndarray
        The part of the delay before the own prefill starts.
    """

    mean: Any
    variance: Any
    own: Any
    step: Any
    wait: Any
    wait_variance: Any


def _riding_door(state: _State) -> _Door:
    """Prompts ride along with decoding and follow each other: a queue of one server."""
    service, work = state.service, state.work
    prompt = service.lengths.prompt
    slot = service.times.entry(prompt, work.company, service.cached)
    mean, scv = service.lengths.mean(slot), _scv(slot, service.lengths)
    used = min(FULL, work.rate * mean)
    alone = queueing.exponential_wait(servers=1.0, load=used, service=mean)
    wait = queueing.allen_cunneen_wait(wait=alone, arrival_scv=work.scv, service_scv=scv)
    wait = wait * queueing.arrival_correction(
        utilisation=max(used, 1e-9), arrival_scv=work.scv, service_scv=max(scv, 0.05)
    )
    own = service.times.first_token(prompt, work.company, service.cached)
    each = np.full(_BATCHES, float(wait))
    variance = each**2 * (2 / max(used, 1e-9) - 1)
    return _Door(each, variance, own, np.zeros(_BATCHES), each, variance)


def _alternating_door(state: _State) -> _Door:
    """Prompts that arrive during a step are prefilled in the next one, up to the budget of tokens."""
    service, work = state.service, state.work
    prompt, times = service.lengths.prompt, service.times
    decode = times.step(state.batches() * (1 - 1 / service.output), service.context)
    cycle = np.maximum(queueing.cycle_time(step=decode, prefilling=work.share), 1e-12)
    gate = _gate(work, cycle)
    long_square = gate.skew / cycle + 3 * gate.variance + cycle**2
    long_variance = np.maximum(0.0, long_square - (cycle + gate.variance / cycle) ** 2)
    if state.in_step:
        # The next step has begun when a client sends again, so all of it is waited for; no step is found more often.
        mean = cycle * (1 + work.share)
        variance = gate.variance + work.rate * cycle * work.square
        own = work.took + np.maximum(0.0, np.ceil(prompt * (1 - service.cached) / times.budget) - 1) * decode.mean()
        return _Door(mean, variance, own, decode, cycle, gate.variance)
    mean = gate.found / 2 + gate.together
    variance = (
        (0.5 + work.share) ** 2 * long_variance
        + long_square / 12
        + work.rate * gate.found * gate.square
        + np.maximum(0.0, gate.bunched) ** 2
    )
    # Steps that are full of prompt tokens make prompts wait for the decoding in between.
    chunks = np.maximum(1.0, prompt * (1 - service.cached)) / times.budget
    between = float(decode.mean())
    entry = work.took + between * chunks
    used = min(FULL, work.rate * service.lengths.mean(entry))
    fuller = service.lengths.mean(entry * entry) / (1 - used) - work.square / (1 - work.share)
    queued = max(0.0, work.rate * fuller / 2)
    # A pipeline lets the next prompt in before this one's first token comes out.
    late = times.first_token(prompt, work.company, service.cached) - work.company * work.took
    own = work.took + np.maximum(0.0, late) + np.maximum(0.0, np.ceil(chunks) - 1) * between
    wait_variance = np.maximum(0.0, long_square / 3 - (cycle + gate.variance / cycle) ** 2 / 4) + queued**2
    return _Door(mean + queued, variance + queued**2, own, decode, gate.found / 2 + queued, wait_variance)


def _first_token(state: _State) -> tuple[Law, Law, _Door]:
    """Return the laws of TTFT and of the wait until the prefill starts."""
    service = state.service
    door = _riding_door(state) if service.times.rides else _alternating_door(state)
    weights, own = _grouped(service.lengths.weight, door.own)
    length, batch = (index.ravel() for index in np.indices((len(weights), _BATCHES)))
    ttft = state.admitted(
        weights[length] / _BATCHES,
        service.times.front + own[length] + door.step[batch],
        door.mean[batch],
        door.variance[batch],
    )
    none = np.zeros(_BATCHES)
    wait = state.admitted(np.full(_BATCHES, 1 / _BATCHES), none, door.wait, door.wait_variance)
    return ttft, wait, door


def _grouped(weight: Any, value: Any) -> tuple[Any, Any]:
    """Return weights and means of neighbours in order of value, in groups that thin out towards the largest."""
    order = np.argsort(value)
    rank = np.cumsum(weight[order]) - weight[order] / 2
    group = np.floor(_GROUPS * (1 - np.maximum(0.0, 1 - rank) ** (1 / 1.7))).astype(int)
    _, start = np.unique(group, return_index=True)
    together = np.add.reduceat(weight[order], start)
    return together, np.add.reduceat(weight[order] * value[order], start) / together


def _tokens(state: _State, door: _Door) -> tuple[Law, Law]:
    """Return the laws of TPOT, over requests of more than one token, and of the time of a whole request."""
    service, work, cycle = state.service, state.work, state.cycle
    lengths, times = service.lengths, service.times
    steps = np.maximum(0.0, lengths.output - 1)
    counted = np.maximum(1.0, steps)
    if times.rides:
        hits, life = np.zeros_like(steps), steps * cycle
    else:
        gate = _gate(work, cycle)
        hits = queueing.life_variance(variance=gate.variance, cycles=counted, prefilling=work.share)
        life = steps * cycle + _wake(work, gate, work.took, cycle, counted)
        life = np.maximum(life, steps * cycle * (1 - work.share))
    # The batch drifts while a request runs: its step is averaged over the time of a life.
    counts = np.arange(service.cap + 1.0)
    by_count = service.seen(counts) / (1 - work.share)
    seen = counts * state.probability / max(float(np.sum(counts * state.probability)), 1e-300)
    sway = float(np.sum(seen * (by_count - np.sum(seen * by_count)) ** 2))
    lives = np.maximum(1e-9, life / max(state.inside / work.rate, 1e-12))
    drift = sway * np.minimum(1.0, 2 * (lives - 1 + np.exp(-lives)) / (lives * lives))
    later = steps >= 0.5
    weight = lengths.weight[later] / max(float(lengths.weight[later].sum()), 1e-300)
    least = np.full(int(later.sum()), 0.8 * (1 - work.share) * cycle)
    spread = hits[later] / steps[later] ** 2 + drift[later]
    tpot = Law(weight, least, np.maximum(0.01 * cycle, life[later] / steps[later] - least), spread)
    latency = state.admitted(
        lengths.weight,
        times.front + door.own + float(door.step.mean()) + life / 2,
        life / 2 + float(door.mean.mean()),
        hits + drift * steps**2 + float(door.variance.mean()),
    )
    return tpot, latency

r"""Continuous batching as a birth-death chain whose death rate comes from the machine's step at each batch size.

Up to the cap a replica shares itself among the running requests, so that the stationary law of their number depends on
the mean output only (Cohen 1979); spread of arrivals enters as an exponent of the ratio of rates.  Requests beyond the
cap wait for admission.  Within a step the engine is gated: what arrives during one step is prefilled in the next.
Percentiles are read off a mixture of shifted gamma laws over prompt, output and batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.equations import queueing
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.step_times import StepTimes

#: Shares of requests of which times are given.
QUANTILES = (0.5, 0.9, 0.99)
#: Batch sizes that stand for their distribution in percentiles.
_BATCHES = 12


#: Slices of each gamma law, finer in the tail, and the standard normal quantiles of their middles.
_EDGES = np.array([0.0, 0.08, 0.2, 0.35, 0.5, 0.65, 0.78, 0.87, 0.93, 0.97, 0.99, 0.998, 1.0])
_SLICES = np.diff(_EDGES)
_NORMAL = np.array(
    [-1.7507, -1.0803, -0.5978, -0.1891, 0.1891, 0.5651, 0.9346, 1.2816, 1.6449, 2.0537, 2.5121, 3.0902]
)


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
        """Probability to be at most a time."""
        times, share = self.points
        return float(np.interp(time, times, share, left=0.0, right=1.0))

    def quantile(self, share: float) -> float:
        """Time that so large a share does not exceed."""
        times, shares = self.points
        return float(times[min(len(times) - 1, int(np.searchsorted(shares, share * shares[-1])))])

    def summary(self) -> dict[str, float]:
        """Mean and percentiles."""
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
        """Mean decode step of a life whose first step is the prefill, with so many requests in the replica [s]."""
        return self.times.step(running * (1 - 1 / self.output), self.context)

    def occupancy(self, company: float) -> float:
        """Mean time that a prompt takes from decoding [s]."""
        return self.lengths.mean(self.times.prefill(self.lengths.prompt, company, self.cached))

    def entry(self, company: float) -> float:
        """Mean time until the next prompt can start [s]."""
        return self.lengths.mean(self.times.entry(self.lengths.prompt, company, self.cached))

    def company(self, running: float, arriving: float) -> float:
        """Return what stands for company in the tables: prompts in one step, or requests that decode meanwhile."""
        if self.times.rides:
            return running
        return max(1.0, min(arriving, max(1.0, self.times.budget / self.prompt), running))

    def rates(self, running: Any) -> Any:
        """Requests that the replica finishes with a queue before it, by requests that run [1/s]."""
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
        """Prompts that the replica can take in while it decodes [1/s]."""
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
    refused = 1 - float(lengths.weight[fits].sum())
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
    wait, ttft, tpot, latency : Law
    batch : tuple of ndarray
        Requests found by an arrival, and their probability.
    joint : tuple of Law
        TTFT and TPOT over the same parts, for requests that must meet both.
    """

    rate: float
    utilisation: float
    saturated: bool
    running: float = float("nan")
    waiting: float = float("nan")
    wait: Law | None = None
    ttft: Law | None = None
    tpot: Law | None = None
    latency: Law | None = None
    gap: Law | None = None


def overlap(lengths: Lengths) -> float:
    """Return the integral of the squared survival function of the outputs over their mean."""
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
    if used >= 0.995:
        return Queue(rate, used, True)
    times, lengths, cap, output = service.times, service.lengths, service.cap, service.output
    counts = np.arange(1.0, cap + 1)
    step = service.steps(counts)
    share = overlap(lengths)
    spread = (arrival_scv + _scv(lengths.output, lengths)) / 2
    running = max(1.0, cap * used)
    full = max(float(service.rates(float(cap))[0]), rate * 1.0001)
    cycle = life = wake = 0.0
    probability: Any = None
    for _ in range(6):
        company = service.company(running, 1 + rate * cycle)
        took = times.prefill(lengths.prompt, company, service.cached)
        occupancy = lengths.mean(took)
        prefilling = min(0.98, rate * occupancy)
        death = queueing.batch_rate(
            running=counts, output=output, step=step, own=occupancy + wake, prefilling=prefilling
        )
        z = float(queueing.peakedness(arrival_scv=dispersion(rate, arrival_scv, life), overlap=share))
        tail = float(np.exp((np.log(rate) - np.log(full)) / max(0.05, spread)))
        probability, beyond, excess = _balanced(rate, death, full, max(0.05, z), tail)
        inside = float(np.sum(np.arange(cap + 1) * probability)) + cap * beyond
        running = max(1.0, inside)
        life = inside / rate
        bare = float(np.sum(probability[1:] * counts * step) + beyond * cap * step[-1]) / max(inside, 1e-300)
        cycle = max(1e-9, bare / (1 - prefilling))
        if not times.rides:
            square = lengths.mean(took * took) + (dispersion(rate, arrival_scv, cycle) - 1) * occupancy**2
            variance = queueing.cycle_variance(cycle=cycle, rate=rate, prefill_square=square, prefilling=prefilling)
            first = bare + occupancy + prefilling * (cycle + variance / cycle)
            wake = float(
                queueing.wake_of_prefill(
                    first=first, cycle=cycle, cycles=max(1.0, output - 1), prefilling=prefilling
                )
            )
    return _laws(service, rate, arrival_scv, used, probability, beyond, excess, inside, cycle, company)


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
    """
    from scipy.special import gammainc

    window = np.maximum(1e-12, np.asarray(window, dtype=float))
    if scv == 1.0:
        return np.ones_like(window)
    shape = 1 / max(scv, 0.02)
    # Mean arrivals within a time after an arrival, less those of a Poisson process; its mean over the window.
    at = window[..., None] * (np.arange(8) + 0.5) / 8
    most = int(min(400.0, 20 + 4 * float(np.max(window)) * rate))
    number = np.arange(1, most + 1)
    after = gammainc(number * shape, shape * rate * at[..., None]).sum(axis=-1)
    settled = (scv - 1) / 2
    excess = np.where(rate * at > most / 4, settled, after - rate * at)
    return 1 + 2 * excess.mean(axis=-1)


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


def _laws(
    service: Service,
    rate: float,
    arrival_scv: float,
    used: float,
    probability: Any,
    beyond: float,
    excess: float,
    inside: float,
    cycle: float,
    company: float,
) -> Queue:
    times, lengths, cap, output = service.times, service.lengths, service.cap, service.output
    took = times.prefill(lengths.prompt, company, service.cached)
    occupancy = lengths.mean(took)
    prefilling = min(0.98, rate * occupancy)
    whole = lengths.mean(took * took)
    # Batch sizes as an arrival finds them, cut into slices of equal probability.
    level = np.concatenate([[0.0], np.cumsum(probability / probability.sum())])
    middle = (np.arange(_BATCHES) + 0.5) / _BATCHES
    found = np.minimum(cap, np.searchsorted(level, middle) - 1).astype(float)
    # An arrival runs with the others and itself.
    decode = times.step(found * (1 - 1 / output), service.context)
    waiting = beyond + probability[-1] * 0.5
    admission = excess / rate
    # --- time to first token -------------------------------------------------------------------------------------
    if times.rides:
        slot = times.entry(lengths.prompt, company, service.cached)
        mean_slot = lengths.mean(slot)
        full = min(0.999, rate * mean_slot)
        wait_mean = float(
            queueing.single_server_wait(utilisation=full, service=mean_slot, service_scv=_scv(slot, lengths))
        ) * (arrival_scv + _scv(slot, lengths)) / (1 + _scv(slot, lengths))
        join_mean = np.full(_BATCHES, wait_mean)
        join_variance = np.full(_BATCHES, wait_mean**2 * (2 / max(full, 1e-9) - 1))
        own = times.first_token(lengths.prompt, company, service.cached)
        ride = np.zeros(_BATCHES)
    else:
        length = queueing.cycle_time(step=decode, prefilling=prefilling)
        bunched = dispersion(rate, arrival_scv, length) - 1
        settled = dispersion(rate, arrival_scv, length / (1 - prefilling)) - 1
        square = whole + settled * occupancy**2
        variance = queueing.cycle_variance(
            cycle=np.maximum(length, 1e-12), rate=rate, prefill_square=square, prefilling=prefilling
        )
        # What an arrival finds is a long cycle rather than a short one.
        long = length + variance / np.maximum(length, 1e-12)
        shape = length * length / np.maximum(variance, 1e-300)
        long_variance = variance * (1 + 1 / np.maximum(shape, 1e-12))
        together = np.maximum(0.0, prefilling * long + bunched * occupancy)
        join_mean = 0.5 * long + together
        join_variance = (
            (0.5 + prefilling) ** 2 * long_variance + (long**2 + long_variance) / 12 + rate * long * square
        )
        # Where a step holds few prompts they queue one after the other instead of all at once.
        computed = np.maximum(1.0, lengths.prompt * (1 - service.cached))
        chunks = computed / times.budget
        mean_step = float(decode.mean())
        entry = took + mean_step * chunks
        mean_entry = lengths.mean(entry)
        full = min(0.99, rate * mean_entry)
        settled = dispersion(rate, arrival_scv, cycle / (1 - full)) - 1
        queued = (lengths.mean(entry * entry) + settled * mean_entry**2) * rate / (2 * (1 - full))
        alone = min(1.0, lengths.mean(computed * computed) / lengths.mean(computed) / times.budget)
        in_line = decode / 2 + max(0.0, float(queued))
        join_mean = alone * in_line + (1 - alone) * join_mean
        third = rate * lengths.mean(entry**3) / (3 * (1 - full))
        join_variance = alone * (decode**2 / 12 + float(queued) ** 2 + third) + (1 - alone) * join_variance
        own = took + np.maximum(0.0, times.first_token(lengths.prompt, company, service.cached) - company * took)
        own = own + np.maximum(0.0, np.ceil(chunks) - 1) * mean_step
        ride = decode
    index = np.indices((len(lengths.weight), _BATCHES))
    p, b = index[0].ravel(), index[1].ravel()
    weight = lengths.weight[p] / _BATCHES
    shift = times.front + own[p] + ride[b]
    calm = Law(weight * (1 - waiting), shift, join_mean[b], join_variance[b])
    held = admission / max(waiting, 1e-300)
    queue = Law(weight * waiting, shift, join_mean[b] + held, join_variance[b] + held**2)
    ttft = _merged(calm, queue)
    wait = Law(np.array([1 - waiting, waiting]), np.zeros(2), np.array([0.0, held]), np.array([0.0, held**2]))
    # --- time per output token -----------------------------------------------------------------------------------
    steps = np.maximum(0.0, lengths.output - 1)
    later = steps >= 0.5
    life = inside / rate
    counts = np.arange(cap + 1.0)
    by_count = times.step(np.maximum(1.0, counts) * (1 - 1 / output), service.context) / (1 - prefilling)
    seen = counts * probability
    seen = seen / max(seen.sum(), 1e-300)
    centre = float(np.sum(seen * by_count))
    sway = float(np.sum(seen * (by_count - centre) ** 2))
    if times.rides:
        hits = np.zeros_like(steps)
        own_life = steps * cycle
    else:
        square = whole + (dispersion(rate, arrival_scv, cycle) - 1) * occupancy**2
        one = queueing.cycle_variance(cycle=max(cycle, 1e-12), rate=rate, prefill_square=square, prefilling=prefilling)
        hits = queueing.life_variance(variance=one, cycles=np.maximum(1.0, steps), prefilling=prefilling)
        first = cycle * (1 - prefilling) + took + prefilling * (cycle + one / cycle)
        own_life = steps * cycle + queueing.wake_of_prefill(
            first=first, cycle=cycle, cycles=np.maximum(1.0, steps), prefilling=prefilling
        )
    x = np.maximum(1e-9, own_life / max(life, 1e-12))
    kept = 2 * (x - 1 + np.exp(-x)) / (x * x)
    drift = sway * np.minimum(1.0, kept)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_variance = hits / steps**2 + drift
        mean = own_life[later] / steps[later]
    floor = (1 - prefilling) * cycle * 0.8
    tpot = Law(
        lengths.weight[later] / lengths.weight[later].sum() if later.any() else lengths.weight[later],
        np.full(int(later.sum()), floor),
        np.maximum(0.01 * cycle, mean - floor),
        tpot_variance[later],
    )
    # --- whole request ---------------------------------------------------------------------------------------------
    rest_variance = hits + drift * steps**2
    rest_mean = own_life * 0.5
    first_mean = float(np.mean(join_mean))
    first_variance = float(np.mean(join_variance))
    flat = times.front + own + float(np.mean(ride)) + own_life * 0.5
    calm = Law(lengths.weight * (1 - waiting), flat, rest_mean + first_mean, rest_variance + first_variance)
    queue = Law(
        lengths.weight * waiting, flat, rest_mean + first_mean + held, rest_variance + first_variance + held**2
    )
    return Queue(
        rate=rate,
        utilisation=used,
        saturated=False,
        running=inside,
        waiting=waiting,
        wait=wait,
        ttft=ttft,
        tpot=tpot,
        latency=_merged(calm, queue),
    )


def _merged(*laws: Law) -> Law:
    return Law(
        *(np.concatenate([getattr(law, name) for law in laws]) for name in ("weight", "shift", "mean", "variance"))
    )

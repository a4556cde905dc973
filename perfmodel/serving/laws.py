"""Laws of what a request meets under a load, as compound sums on a lattice of times.

A step takes in the prompts that arrived during the one before, so that the prefill work of successive steps is a
Markov chain: the next one is a compound sum over the arrivals within this one (a number of Panjer's class, sizes from
the table of lengths), and what is beyond the token budget waits. Its stationary law gives the gaps between tokens;
the step that an arrival finds, the prompts beside it and its own give the time to its first token. A request of n
tokens spans n - 1 steps, whose total is a branching sum: each prompt lengthens its step and brings the arrivals of
that time, so that the characteristic function follows from one recursion over the steps. Where prompts ride along
with decoding they wait in a queue of one server, whose law is a geometric sum of residual slots (Pollaczek and
Khinchine).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.equations import batching, queueing

#: Shares of requests of which times are given.
QUANTILES = (0.5, 0.9, 0.99)
#: States of the chain of prefill work, and places of the lattice on which sums are folded.
_STATES, _PLACES = 160, 512
#: Chance below which a state is not left.
_NEVER = 1e-100
#: Groups of states by which an arrival finds a step.
_FOUND = 16
#: Ages of that step, for prompts that are ahead in a full one.
_AGES = np.array([1 / 6, 0.5, 5 / 6])
#: Times of a prompt that stand for its law in the recursion over steps.
_SIZES = 28
#: Prefills that a request meets from which on their sum is near a gamma law.
_MANY = 24.0
#: Share of full steps from which on their limit shapes the law of a life, and steps of which it is followed.
_OFTEN_FULL, _EACH = 0.02, 64


@dataclass(frozen=True)
class Law:
    """Distribution of a time [s]: rising times, the probability to be at most each, and the mean."""

    times: Any
    shares: Any
    average: float

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
        return float(np.interp(time, self.times, self.shares, left=0.0, right=1.0))

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
        return float(np.interp(share, self.shares, self.times))

    def later(self, time: float) -> Law:
        """Return the law with a fixed time added [s].

        Parameters
        ----------
        time : float
            Time [s].

        Returns
        -------
        Law
        """
        return Law(self.times + time, self.shares, self.average + time)

    def times_of(self, count: float) -> Law:
        """Return the law of so many times the time.

        Parameters
        ----------
        count : float
            Factor [1].

        Returns
        -------
        Law
        """
        return Law(self.times * count, self.shares, self.average * count)

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
        return mixture([1 - share, share], [self, self.later(later)])

    def plus(self, share: float, mean: float, scv: float) -> Law:
        """Return the law where such a share waits before it, for a time with a gamma law.

        Parameters
        ----------
        share : float
            Share of the requests [1].
        mean : float
            Mean of the wait of those who wait [s].
        scv : float
            Its squared coefficient of variation [1].

        Returns
        -------
        Law
        """
        if share * mean <= 1e-6 * self.average:
            return self
        level = (np.arange(32) + 0.5) / 32
        # Finer towards the tail, where percentiles are read.
        edge = 1 - (1 - np.arange(33) / 32) ** 2.5
        wait = np.array(gamma_quantiles(mean, scv * mean * mean, (edge[1:] + edge[:-1]) / 2))
        wait *= mean / float(np.sum(wait * np.diff(edge)))
        own = np.interp(level, self.shares, self.times)
        times = (own[:, None] + wait[None, :]).ravel()
        weight = np.broadcast_to(np.diff(edge) / 32, (32, 32)).ravel()
        order = np.argsort(times)
        queued = Law(times[order], np.cumsum(weight[order]), self.average + mean)
        return mixture([1 - share, share], [self, queued])

    @cached_property
    def _summary(self) -> dict[str, float]:
        return {"mean": self.average, **{f"p{share * 100:g}": self.quantile(share) for share in QUANTILES}}

    def summary(self) -> dict[str, float]:
        """Mean and percentiles.

        Returns
        -------
        dict of str to float
            ``mean`` and ``p50``, ``p90``, ``p99`` [s].
        """
        return dict(self._summary)


#: Probabilities at which a law is told where others are made of it, finer towards the tail.
_LEVELS = np.concatenate([[0.0], 1 - (1 - (np.arange(40) + 0.5) / 40) ** 2.5, [1.0]])


def mixture(weights: Sequence[float], laws: Sequence[Law], factors: Any = ((1.0,),)) -> Law:
    """Return the law of a time that follows each law with a probability, stretched by one of several factors.

    Parameters
    ----------
    weights : sequence of float
        Probabilities of the laws [1].
    laws : sequence of Law
    factors : sequence of sequence of float
        Factors of each law, or of all, equally likely [1].

    Returns
    -------
    Law
    """
    stretch = np.broadcast_to(np.asarray(factors, dtype=float), (len(laws), len(factors[0])))
    told = np.array([np.interp(_LEVELS, law.shares, law.times) for law in laws])
    times = np.sort((told[:, :, None] * stretch[:, None, :]).ravel())
    if len(times) > 2 * _PLACES:
        times = times[np.linspace(0, len(times) - 1, 2 * _PLACES).round().astype(int)]
    shares = np.zeros_like(times)
    average = 0.0
    for weight, law, mine in zip(weights, laws, stretch, strict=True):
        average += weight * law.average * float(mine.mean())
        for factor in mine:
            shares += weight / len(mine) * np.interp(times / factor, law.times, law.shares, left=0.0, right=1.0)
    return Law(times, shares, average)


def discrete(times: Any, weight: Any) -> Law:
    """Return the law of a time that is one of several [s].

    Parameters
    ----------
    times, weight : ndarray
        Times [s] and their weights.

    Returns
    -------
    Law
    """
    order = np.argsort(times)
    shares = np.cumsum(weight[order]) / weight.sum()
    ends = np.repeat(times[order], 2)
    steps = np.concatenate([[0.0], np.repeat(shares, 2)[:-1]])
    return Law(ends, steps, float(np.sum(times * weight) / weight.sum()))


def spread_over(law: Law, later: Any) -> Law:
    """Return the law of a time with a delay that is equally likely to be each of several [s].

    Parameters
    ----------
    law : Law
    later : ndarray
        Delays [s].

    Returns
    -------
    Law
    """
    times = np.linspace(law.times[0] + later.min(), law.times[-1] + later.max(), 2 * _PLACES)
    shares = np.interp(times[None, :] - later[:, None], law.times, law.shares, left=0.0, right=1.0).mean(axis=0)
    return Law(times, shares, law.average + float(later.mean()))


def sum_of(law: Law, times: Any, weight: Any) -> Law:
    """Return the law of a time and an independent one of several [s].

    Parameters
    ----------
    law : Law
    times, weight : ndarray
        The several times [s], and their probabilities [1].

    Returns
    -------
    Law
    """
    grid = np.linspace(law.times[0] + times.min(), law.times[-1] + times.max(), 2 * _PLACES)
    shares = weight @ np.interp(grid[None, :] - times[:, None], law.times, law.shares, left=0.0, right=1.0)
    return Law(grid, shares, law.average + float(np.sum(weight * times)))


def gamma_quantiles(mean: float, variance: float, share: Any) -> Any:
    """Quantiles of a gamma law (Wilson and Hilferty 1931) [s].

    Parameters
    ----------
    mean : float
        Mean [s].
    variance : float
        Variance [s2].
    share : ndarray
        Probabilities between 0 and 1 [1].

    Returns
    -------
    ndarray
        Times [s].
    """
    from scipy.special import ndtri

    if mean <= 0:
        return np.zeros_like(share)
    inverse = max(variance, 0.0) / (9 * mean * mean)
    return mean * np.maximum(0.0, 1 - inverse + ndtri(share) * np.sqrt(inverse)) ** 3


def counts(mean: Any, dispersion: Any, most: int) -> Any:
    """Return the law of a number of arrivals, of Panjer's class: binomial, Poisson or negative binomial.

    Parameters
    ----------
    mean, dispersion : ndarray
        Mean, and variance over mean [1].
    most : int
        Largest number.

    Returns
    -------
    ndarray
        Probabilities, one row a mean and one column a number [1].
    """
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    spread = np.broadcast_to(np.asarray(dispersion, dtype=float), mean.shape)
    slope = 1 - 1 / spread
    found = np.empty((len(mean), most + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found[:, 0] = np.exp(np.where(np.abs(spread - 1) < 1e-6, -mean, -mean * np.log(spread) / (spread - 1)))
    for number in range(1, most + 1):
        found[:, number] = found[:, number - 1] * np.maximum(0.0, slope + (mean / spread - slope) / number)
    return found / found.sum(axis=1, keepdims=True)


def on_lattice(value: Any, weight: Any, step: float, places: int) -> Any:
    """Return weights on a lattice from 0 that keep the mean; what lies beyond its end goes there.

    Parameters
    ----------
    value, weight : ndarray
        Times [s], and their weights.
    step : float
        Of the lattice [s].
    places : int

    Returns
    -------
    ndarray
    """
    at = np.clip(value / step, 0.0, places - 1.001)
    low = at.astype(int)
    high = at - low
    return np.bincount(low, weight * (1 - high), places) + np.bincount(low + 1, weight * high, places)


def _folded(transform: Any, places: int) -> Any:
    return np.maximum(0.0, np.fft.irfft(transform, 2 * places)[..., :places])


def _transform(mass: Any) -> Any:
    """Transform of masses on a lattice, with room for a sum."""
    return np.fft.rfft(mass, 2 * mass.shape[-1])


@dataclass(frozen=True)
class Prompts:
    """Prompts of a load: their arrivals, and what each takes.

    Attributes
    ----------
    rate : float
        Arrivals [1/s].
    weight : ndarray
        Shares of kinds of prompts [1].
    took : callable
        Time that prompts take from decoding, each kind, by the number of prompts in a step [s].
    dispersion : callable
        Variance over mean of the arrivals in a window, by its length [1].
    """

    rate: float
    weight: Any
    took: Any
    dispersion: Any

    def mean(self, company: float) -> float:
        """Mean time of a prompt in a step of so many [s].

        Parameters
        ----------
        company : float
            Prompts [1].

        Returns
        -------
        float
            Time [s].
        """
        return float(np.sum(self.weight * self.took(company)))

    def square(self, company: float) -> float:
        """Mean square of it [s2].

        Parameters
        ----------
        company : float
            Prompts [1].

        Returns
        -------
        float
            Mean square [s2].
        """
        return float(np.sum(self.weight * self.took(company) ** 2))


@dataclass(frozen=True)
class Steps:
    """Stationary law of the prefill work before a step.

    Attributes
    ----------
    step, full : float
        Decoding in a step, and the prefill that it takes at most [s].
    unit : float
        Of the lattice [s].
    law : ndarray
        Probability of the work that waits as a step begins, on the lattice [1].
    chain : ndarray
        Probability of the work of the next step, one row a state [1].
    sums : ndarray
        Law of the work of 0, 1, 2, ... prompts, on the lattice [1].
    prompts : Prompts
    """

    step: float
    full: float
    unit: float
    law: Any
    chain: Any
    sums: Any
    prompts: Prompts

    @property
    def lengths(self) -> Any:
        """Time of a step at each work that waits [s]."""
        return self.step + np.minimum(np.arange(len(self.law)) * self.unit, self.full)

    @property
    def mean(self) -> float:
        """Mean time of a step [s]."""
        return float(np.sum(self.law * self.lengths))

    def arriving(self, window: Any, seen: bool = False) -> Any:
        """Law of the work that arrives in windows, on the lattice; ``seen`` by another arrival if so.

        Parameters
        ----------
        window : ndarray
            Times [s].
        seen : bool
            Whether another prompt arrives in it.

        Returns
        -------
        ndarray
            Probabilities, one row a window [1].
        """
        spread = np.maximum(0.05, self.prompts.dispersion(window))
        mean = self.prompts.rate * window
        if seen:
            mean = np.maximum(0.0, mean + spread - 1)
        return counts(mean, spread, len(self.sums) - 1) @ self.sums


def steps_of(prompts: Prompts, step: float, full: float) -> Steps:
    """Work out the stationary law of the work before a step.

    Parameters
    ----------
    prompts : Prompts
    step, full : float
        Decoding in a step, and the prefill that it takes at most [s].

    Returns
    -------
    Steps
    """
    rate = prompts.rate
    longest = float(prompts.took(1.0).max())
    company = 1 + rate * step
    for _ in range(3):
        mean, square = prompts.mean(company), prompts.square(company)
        used = min(0.97, rate * mean)
        cycle = max(step, 1e-3 * mean) / (1 - used)
        company = 1 + rate * min(cycle, step + full)
    bunch = max(1.0, float(prompts.dispersion(np.array([10 * cycle]))[0]))
    spread = np.sqrt(rate * cycle * square * bunch / (1 - used * used)) + square / mean
    most = used * cycle + 6 * spread + 1.5 * longest
    if most > full:
        load = min(0.99, rate * mean * (1 + step / full))
        most = min(most, full) + 2 * longest + 3 * bunch * rate * square * (1 + step / full) / (1 - load)
    unit = most / _STATES
    if full < most:
        # A full step ends on a place of the lattice.
        unit = full / np.ceil(full / unit)
    arriving = rate * (step + min(full, most))
    number = int(min(96, arriving + 6 * np.sqrt(arriving * bunch) + 6))
    sums = np.zeros((number + 1, _PLACES))
    sums[0, 0] = 1.0
    known = np.unique(np.round(np.geomspace(1.0, number, 12)))
    for first, last in zip(known, [*known[1:], number + 1], strict=True):
        one = _transform(on_lattice(prompts.took(float(first)), prompts.weight, unit, _PLACES))
        powers = np.arange(int(first), int(last))
        sums[powers] = _folded(one[None, :] ** powers[:, None], _PLACES)
    sums[:, -1] += 1 - sums.sum(axis=1)
    found = Steps(step, full, unit, np.zeros(_STATES), np.zeros((1, 1)), sums, prompts)
    lengths = found.lengths
    last = min(_STATES - 1, int(np.ceil(full / unit - 1e-9)))
    rows = found.arriving(lengths[: last + 1])
    if step <= 1e-6 * mean:
        # Nothing decodes: the next step begins as a prompt arrives.
        rows[0] = sums[1]
    chain = np.zeros((_STATES, _STATES))
    chain[: last + 1] = rows[:, :_STATES]
    for state in range(last + 1, _STATES):
        left = state - last
        chain[state, left:] = rows[last, : _STATES - left]
    chain[:, -1] += 1 - chain.sum(axis=1)
    return Steps(step, full, unit, stationary_law(chain), chain, sums, prompts)


def stationary_law(chain: Any) -> Any:
    """Return the law that a chain keeps, state by state taken out without a subtraction (Grassmann, Taksar, Heyman).

    Parameters
    ----------
    chain : ndarray
        Probability of the next state, one row a state [1].

    Returns
    -------
    ndarray
        Probabilities [1].
    """
    left = chain.copy()
    for last in range(len(left) - 1, 0, -1):
        # A state that no lower one is reached from is as good as absorbing.
        left[:last, last] /= max(float(left[last, :last].sum()), _NEVER)
        left[:last, :last] += left[:last, last, None] * left[last, None, :last]
    law = np.zeros(len(left))
    law[0] = 1.0
    for state in range(1, len(left)):
        law[state] = law[:state] @ left[:state, state]
        if law[state] > 1 / _NEVER:
            law /= law[state]
    return law / law.sum()


def gaps(steps: Steps, own: Any, survival: Any) -> Law:
    """Return the law of the time between two tokens, over all tokens of all requests.

    Parameters
    ----------
    steps : Steps
    own : ndarray
        Law of the work as the step begins that holds the own prefill [1].
    survival : ndarray
        Gaps of a request that are its 1st, 2nd, ... over all; what is left is far from the prefill [1].

    Returns
    -------
    Law
    """
    state = own
    mass = np.zeros_like(steps.law)
    for share in survival:
        state = state @ steps.chain
        mass += share * state
    mass += max(0.0, 1 - float(survival.sum())) * steps.law
    lengths = steps.lengths
    return Law(lengths, np.cumsum(mass), float(np.sum(mass * lengths)))


def residuals(steps: Steps) -> Law:
    """Return the law of the rest of the step that an arrival finds under way.

    Parameters
    ----------
    steps : Steps

    Returns
    -------
    Law
    """
    lengths, mean = steps.lengths, steps.mean
    longer = 1 - np.concatenate([[0.0], np.cumsum(steps.law)[:-1]])
    # A rest is as likely to be each time as a step is to last longer.
    shares = np.cumsum(np.diff(lengths, prepend=0.0) * longer) / mean
    rest = float(np.sum(steps.law * lengths**2)) / (2 * mean)
    return Law(np.concatenate([[0.0], lengths]), np.concatenate([[0.0], np.minimum(1.0, shares)]), rest)


def first_tokens(steps: Steps, own: Any, late: float) -> tuple[Law, Any]:
    """Return the laws of the time to the first token of a request that finds a step under way, and of its step's work.

    Parameters
    ----------
    steps : Steps
    own : ndarray
        Time of the own prefill, each kind of prompt [s].
    late : float
        Time by which the first token comes after its step, over the prefill of that step [1].

    Returns
    -------
    tuple of Law and ndarray
        The latter on the states of the chain.
    """
    unit, full, step, weight = steps.unit, steps.full, steps.step, steps.prompts.weight
    lengths = steps.lengths
    found = steps.law * lengths
    found = found / found.sum()
    last = min(len(found) - 1, int(np.ceil(full / unit - 1e-9)))
    # Groups thin out towards the long steps, in which percentiles are read.
    level = np.minimum(_FOUND - 1, (_FOUND * (1 - np.maximum(0.0, 1 - np.cumsum(found)) ** 0.4)).astype(int))
    level[last + 1 :] = _FOUND
    group, chance, window, before = [], [], [], []
    for one in np.unique(level):
        mine = level == one
        total = float(found[mine].sum())
        if total <= 1e-9:
            continue
        group.append(one)
        chance.append(total)
        window.append(float(np.sum(found[mine] * lengths[mine])) / total)
        left = np.zeros(_PLACES)
        left[0] = 1.0
        if one == _FOUND:
            left[:] = 0.0
            rest = found * mine / total
            left[: len(found) - last] = rest[last:]
        before.append(left)
    chances, windows = np.array(chance), np.array(window)
    others = _transform(np.array(before)) * _transform(steps.arriving(windows, True))
    work = (chances @ _folded(_transform(on_lattice(own, weight, unit, _PLACES)) * others, _PLACES))[:_STATES]
    # Of full steps, which hold work for later ones too, each is as likely as the next.
    over = steps.law[last:] / max(1e-300, float(steps.law[last:].sum()))
    work[last:] = over * max(0.0, 1 - float(work[:last].sum()))
    mine = _transform(on_lattice(own, weight, unit, _PLACES)) * _transform(np.array(before))
    beside = _folded(_transform(on_lattice(own, weight, unit, _PLACES)) * others, _PLACES)
    place = np.arange(_PLACES)
    # What is ahead and the own prompt decide in which step it is through; those behind fill that step up.
    within = place * unit < full - unit / 2
    if float(np.sum(chances @ (beside * ~within))) > 1e-4:
        ahead = sum(steps.arriving(windows * age, True) for age in _AGES) / len(_AGES)
        ahead = _folded(mine * _transform(ahead), _PLACES)
        taken = np.maximum(1.0, np.ceil(place * unit / full - 1e-9))
        share = min(1.0, steps.prompts.rate * steps.prompts.mean(1 + steps.prompts.rate * steps.mean))
        fill = share * (float(chances @ windows) / 2 + (taken - 1) * (full + step))
        through = place * unit + np.minimum(fill, taken * full - place * unit) + (taken - 1) * step
        through = (through + late * full) / (1 + late)
        stretched = np.zeros_like(beside)
        stretched[:, within] = beside[:, within]
        topped = np.maximum(0.0, np.sum(ahead * within, axis=1) - np.sum(beside * within, axis=1))
        spill = np.array([on_lattice(through[~within], row[~within], unit, _PLACES) for row in ahead])
        stretched += spill
        stretched[:, min(_PLACES - 1, round(full / unit))] += topped
        beside = stretched
    # A place stands for the prefill of a step and the time after it until its first tokens.
    wide = unit * (1 + late)
    residual = np.clip((windows[:, None] - place * wide) / wide, 0.0, 1.0) * (wide / windows[:, None])
    residual /= residual.sum(axis=1, keepdims=True)
    sums = _transform(beside) * _transform(residual)
    mass = np.maximum(0.0, chances @ np.fft.irfft(sums, 2 * _PLACES))
    times = (np.arange(len(mass)) + 0.5) * wide + step
    shares = np.cumsum(mass)
    shares /= shares[-1]
    return Law(times, shares, float(np.sum(mass * times) / mass.sum())), work / work.sum()


def lives(steps: Steps, number: Any, own: Any, own_work: Any) -> list[Law]:
    """Return the law of the mean time between tokens over each number of steps that follow a prefill.

    Parameters
    ----------
    steps : Steps
    number : ndarray
        Steps, whole numbers of at least 1 [1].
    own : ndarray
        Time of the own prefill, each kind of prompt [s].
    own_work : ndarray
        Law of the work as the step begins that holds it [1].

    Returns
    -------
    list of Law
    """
    if float(steps.law[steps.lengths >= steps.step + steps.full - steps.unit / 2].sum()) > _OFTEN_FULL:
        return _limited(steps, number, own_work)
    beside = max(steps.step, float(own_work @ steps.lengths) - float(np.sum(own * steps.prompts.weight)))
    return _unlimited(steps, number, own, beside)


def _limited(steps: Steps, number: Any, own_work: Any) -> list[Law]:
    """Return the laws of :func:`lives` where steps are often full: beta laws between an empty and a full step."""
    from scipy.special import betaincinv

    chain, lengths, longest = steps.chain, steps.lengths - steps.step, steps.full
    first, second = np.zeros_like(lengths), np.zeros_like(lengths)
    moments = [(0.0, 0.0)]
    for _ in range(int(min(_EACH, number.max()))):
        # The total over one step more: that step, and then the total from where it leads.
        second = chain @ (lengths**2 + 2 * lengths * first + second)
        first = chain @ (lengths + first)
        mean = float(own_work @ first)
        moments.append((mean, max(0.0, float(own_work @ second) - mean**2)))
    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    found = []
    for count in number:
        known = int(min(_EACH, count))
        mean, variance = moments[known]
        if count > known:
            further = zip(moments[known], moments[known - 1], strict=True)
            mean, variance = (now + (count - known) * (now - before) for now, before in further)
        part = min(1 - 1e-6, max(1e-6, mean / count / longest))
        spread = max(1e-9, variance / (count * longest) ** 2)
        size = max(1e-3, part * (1 - part) / spread - 1)
        times = steps.step + longest * betaincinv(part * size, (1 - part) * size, edge)
        found.append(Law(times, edge, steps.step + part * longest))
    return found


def _unlimited(steps: Steps, number: Any, own: Any, beside: float) -> list[Law]:
    """Return the laws of :func:`lives` where no step is full."""
    prompts, rate, step, cycle = steps.prompts, steps.prompts.rate, steps.step, steps.mean
    took = prompts.took(1 + rate * cycle)
    mean, square = float(np.sum(took * prompts.weight)), float(np.sum(took**2 * prompts.weight))
    used, longest = min(0.97, rate * mean), step + steps.full
    own_mean = float(np.sum(own * prompts.weight))
    drawn = used * (1 - used**number) / (1 - used)
    totals = number * step / (1 - used) + (beside + own_mean - step / (1 - used)) * drawn
    usual = step / (1 - used)
    single = batching.cycle_variance(cycle=usual, rate=rate, prefill_square=square, prefilling=used)
    spreads = batching.life_variance(variance=single, cycles=number, prefilling=used)
    spreads = np.maximum(single * 0.1, spreads) + drawn**2 * (float(np.sum(own**2 * prompts.weight)) - own_mean**2)
    # Arrivals that bunch bring their prefills together: the spread about the mean grows.
    bunch = np.maximum(0.05, prompts.dispersion(totals))
    stretch = np.sqrt(np.maximum(0.05, 1 + (bunch - 1) * mean * mean / square))
    later = np.maximum(0.0, bunch - 1) / 2 * mean / (1 - used)
    few = rate * totals <= _MANY
    reach = totals - number * step + 8 * np.sqrt(spreads)
    sums = _branching(steps, number[few], own, beside, float(reach[few].max()), took) if few.any() else []
    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    found, at = [], iter(sums)
    for count, total, spread, wide, more, exact in zip(number, totals, spreads, stretch, later, few, strict=True):
        if exact:
            times, shares, average = next(at)
        else:
            least = 0.8 * count * step
            times, shares, average = least + gamma_quantiles(total - least, spread, edge), edge, total
        times = np.maximum(count * step, more + average + (times - average) * wide) / count
        found.append(Law(np.minimum(times, longest), shares, min(longest, (average + more) / count)))
    return found


def _branching(
    steps: Steps, number: Any, own: Any, beside: float, reach: float, took: Any
) -> list[tuple[Any, Any, float]]:
    """Return times, shares and mean of the total of each number of steps, for Poisson arrivals."""
    prompts, step = steps.prompts, steps.step
    longest = max(float(took.max()), float(own.max()))
    unit, size = (reach + 2 * longest) / _PLACES, longest / _SIZES
    # Times of a prompt lie on places of the lattice of sums.
    unit, size = (size / np.floor(size / unit), size) if unit <= size else (unit, unit)
    most = int(np.ceil(longest / size)) + 2
    sizes, owns = on_lattice(took, prompts.weight, size, most), on_lattice(own, prompts.weight, size, most)
    angle = 2j * np.pi * np.fft.rfftfreq(2 * _PLACES, d=unit)

    def of(masses: Any, exponent: Any) -> Any:
        """Return the transform of a prompt's time at an exponent: a polynomial in one exponential."""
        base = np.exp(exponent * size)
        value = np.full_like(base, masses[-1])
        for mass in masses[-2::-1]:
            value = value * base + mass
        return value

    wanted = sorted({int(count) for count in number})
    growth, total = np.zeros_like(angle), np.zeros_like(angle)
    states: dict[int, tuple[Any, Any]] = {}
    for index in range(1, wanted[-1] + 1):
        before = growth
        # What the steps take without prefill is left out of the total.
        total = total + growth * step
        growth = prompts.rate * (of(sizes, growth - angle) - 1)
        states[index] = total, growth
        if index > 2 and float(np.max(np.abs(growth - before))) * wanted[-1] * step < 1e-2:
            break
    last = max(states)
    found = []
    for count in (int(count) for count in number):
        at = min(count, last)
        total, growth = states[at]
        total = total + (count - at) * growth * step
        mass = np.maximum(0.0, np.fft.irfft(np.exp(total + growth * beside) * of(owns, growth), 2 * _PLACES))
        times = count * step + np.arange(2 * _PLACES) * unit
        shares = np.cumsum(mass)
        found.append((times, shares / shares[-1], float(np.sum(mass * times) / shares[-1])))
    return found


def single_file(prompts: Prompts, slot: Any) -> tuple[Law, float]:
    """Return the law of the wait for one's turn where prompts follow each other, and the share of time it is taken.

    Parameters
    ----------
    prompts : Prompts
    slot : ndarray
        Time until the next prompt can start, each kind [s].

    Returns
    -------
    tuple of Law and float
    """
    mean, square = float(np.sum(prompts.weight * slot)), float(np.sum(prompts.weight * slot**2))
    used = min(0.995, prompts.rate * mean)
    wait = prompts.rate * square / 2 / (1 - used)
    unit = (8 * wait / used + 2 * float(slot.max())) / _PLACES
    mass = on_lattice(slot, prompts.weight, unit, _PLACES)
    # The residual time is as likely to lie in each place as the slot is to reach beyond it.
    residual = (1 - np.cumsum(mass) + mass / 2) * unit / mean
    residual = np.maximum(0.0, residual) / max(1e-300, float(np.maximum(0.0, residual).sum()))
    transform = (1 - used) / (1 - used * np.fft.rfft(residual, 4 * _PLACES))
    law = np.maximum(0.0, np.fft.irfft(transform, 4 * _PLACES))
    scv = float(prompts.dispersion(np.array([wait / used + mean]))[0])
    spread = max(0.05, square / mean**2 - 1)
    factor = (scv + spread) / (1 + spread)
    factor *= float(queueing.arrival_correction(utilisation=used, arrival_scv=scv, service_scv=spread))
    shares = np.cumsum(law)
    times = np.arange(len(law)) * unit * factor
    return Law(times, shares / shares[-1], wait * factor), used

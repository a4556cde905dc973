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

from perfmodel.equations import queueing
from perfmodel.serving.step_times import between

#: Shares of requests of which times are given.
QUANTILES = (0.5, 0.9, 0.99)
#: States of the chain of prefill work, and places of the lattice on which sums are folded.
_STATES, _PLACES = 108, 360
#: Groups of states by which an arrival finds a step.
_FOUND = 16
#: Ages of that step, for prompts that are ahead in a full one.
_AGES = np.array([1 / 6, 0.5, 5 / 6])
#: Times of a prompt that stand for its law in the recursion over steps.
_SIZES = 28
#: Prefills that a request meets from which on their sum is near a gamma law.
_MANY = 24.0
#: Rounds that settle the time of a mean step.
_ROUNDS = 12
#: Arrivals over which their spread is that of the long run.
_LONG = 1e3
#: Prompts in a step up to which their number is followed, and frequencies at which that is done.
_TOGETHER, _FREQUENCIES = 14, 192
#: Share of full steps from which on their limit shapes the law of a life, steps of which it is followed, and steps
#: until the own arrival is forgotten.
_OFTEN_FULL, _EACH, _WAKE = 0.02, 64, 12


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
_LEVELS = 1 - (1 - (np.arange(80) + 0.5) / 80) ** 2.5
_AROUND = np.diff(1 - (1 - np.arange(81) / 80) ** 2.5)


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
    share = np.asarray(weights, dtype=float)
    average = float(np.sum(share * [law.average for law in laws] * stretch.mean(axis=1)))
    # Each law is told at its levels, which stand for the probability around them.
    told = np.array([np.interp(_LEVELS, law.shares, law.times) for law in laws])
    times = (told[:, :, None] * stretch[:, None, :]).ravel()
    mass = share[:, None, None] * _AROUND[None, :, None] / stretch.shape[1]
    order = np.argsort(times)
    shares = np.cumsum(np.broadcast_to(mass, (*told.shape, stretch.shape[1])).ravel()[order])
    kept = np.linspace(0, len(times) - 1, min(len(times), 2 * _PLACES)).round().astype(int)
    return Law(times[order][kept], shares[kept] / shares[-1], average)


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
    each = slope[:, None] + (mean / spread - slope)[:, None] / np.arange(1.0, most + 1)
    found[:, 1:] = found[:, :1] * np.cumprod(np.maximum(0.0, each), axis=1)
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
    company : sequence of float
        Numbers of prompts in a step for which times are told, rising, two at least [1].
    times : ndarray
        Time that a prompt takes from decoding, by company and kind [s].
    dispersion : callable
        Variance over mean of the arrivals in a window, by its length [1].
    excess : callable
        Arrivals in a time after an arrival, beyond those at any time, by that time [1].
    """

    rate: float
    weight: Any
    company: Sequence[float]
    times: Any
    dispersion: Any
    excess: Any

    @cached_property
    def _means(self) -> tuple[Any, Any]:
        return self.times @ self.weight, self.times**2 @ self.weight

    def took(self, company: float) -> Any:
        """Time of a prompt of each kind in a step of so many [s].

        Parameters
        ----------
        company : float
            Prompts [1].

        Returns
        -------
        ndarray
            Times [s].
        """
        at, part = between(self.company, company)
        return self.times[at] * (1 - part) + self.times[at + 1] * part

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
        return float(np.interp(company, self.company, self._means[0]))

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
        return float(np.interp(company, self.company, self._means[1]))


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

    def arriving(self, window: Any) -> Any:
        """Law of the work that arrives in windows, on the lattice.

        Parameters
        ----------
        window : ndarray
            Times [s].

        Returns
        -------
        ndarray
            Probabilities, one row a window [1].
        """
        spread = np.maximum(0.05, self.prompts.dispersion(window))
        return counts(self.prompts.rate * window, spread, len(self.sums) - 1) @ self.sums

    def joined(self, window: Any) -> Any:
        """Law of the work of a prompt and of those that arrive in the window in which it does, on the lattice.

        Parameters
        ----------
        window : ndarray
            Times [s].

        Returns
        -------
        ndarray
            Probabilities, one row a window [1].
        """
        spread = np.maximum(0.05, self.prompts.dispersion(window))
        others = np.maximum(0.0, self.prompts.rate * window + spread - 1)
        # What a prompt takes hangs on how many there are, so that its own is in their sum.
        return counts(others, spread, len(self.sums) - 2) @ self.sums[1:]


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
    cycle = step
    for _ in range(_ROUNDS):
        # From below: the more prompts come in one step, the less each of them takes.
        mean = prompts.mean(1 + rate * cycle)
        cycle = min(step + full, max(step, 1e-3 * mean) + rate * cycle * mean)
    square, used = prompts.square(1 + rate * cycle), min(0.97, rate * mean)
    bunch = max(1.0, float(prompts.dispersion(np.array([10 * cycle]))[0]))
    spread = np.sqrt(rate * cycle * square * bunch / (1 - used * used)) + square / mean
    most = used * cycle + 6 * spread + 1.5 * longest
    if most > full:
        load = min(0.99, rate * prompts.mean(1 + rate * (step + full)) * (1 + step / full))
        most = min(most, full) + 2 * longest + 3 * bunch * rate * square * (1 + step / full) / (1 - load)
    # Places of the lattice reach beyond a step without prefill, too.
    unit = max(most / _STATES, step / (_PLACES - _STATES))
    # A limit that takes no time is none.
    full = max(full, unit)
    if full < most:
        # A full step ends on a place of the lattice.
        unit = full / np.ceil(full / unit)
    arriving = rate * (step + min(full, most))
    number = int(min(96, arriving + 5 * np.sqrt(arriving * bunch) + 5))
    sums = np.zeros((number + 1, _PLACES))
    sums[0, 0] = 1.0
    known = np.unique(np.round(np.geomspace(1.0, number, 12)))
    each = np.array([on_lattice(prompts.took(one), prompts.weight, unit, _PLACES) for one in known.tolist()])
    powers = np.arange(1, number + 1)
    sums[1:] = _folded(_transform(each)[np.searchsorted(known, powers, side="right") - 1] ** powers[:, None], _PLACES)
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
    balance = (np.eye(_STATES) - chain).T
    balance[-1] = 1.0
    law = np.maximum(0.0, np.linalg.solve(balance, np.eye(_STATES)[-1]))
    return Steps(step, full, unit, law / law.sum(), chain, sums, prompts)


def following(steps: Steps, own_work: Any, most: int) -> tuple[Any, Any]:
    """Return the laws of the work of the steps after the one with the own prefill, and the arrivals that they hold.

    Parameters
    ----------
    steps : Steps
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].
    most : int
        Steps.

    Returns
    -------
    tuple of ndarray
        Probabilities, one row a step [1], and arrivals over those at any time, which differ where arrivals bunch [1].
    """
    lengths, prompts = steps.lengths, steps.prompts
    last = min(_STATES - 1, int(np.ceil(steps.full / steps.unit - 1e-9)))
    half, own = float(np.sum(steps.law * lengths**2)) / (2 * steps.mean), float(own_work @ lengths)
    ages = half + np.concatenate([[0.0], own + steps.mean * np.arange(_WAKE)])
    known = np.maximum(0.0, 1 + np.diff(prompts.excess(ages)) / (prompts.rate * np.diff(ages)))
    state, laws, shares = own_work, np.empty((most, _STATES)), np.ones(most)
    for index in range(most):
        after = state @ steps.chain
        if index < _WAKE and known[index] != 1.0:
            share = shares[index] = float(known[index])
            # Fewer or more arrivals than at any time: less or more of a step like that, for one with none.
            none = np.concatenate([[state[: last + 1].sum()], state[last + 1 :], np.zeros(last)])
            after = np.maximum(0.0, share * after + (1 - share) * none)
            after = after / after.sum()
        state = laws[index] = after
    return laws, shares


def gaps(steps: Steps, own_work: Any, survival: Any) -> Law:
    """Return the law of the time between two tokens, over all tokens of all requests.

    Parameters
    ----------
    steps : Steps
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].
    survival : ndarray
        Gaps of a request that are its 1st, 2nd, ... over all; what is left is far from the prefill [1].

    Returns
    -------
    Law
    """
    mass = survival @ following(steps, own_work, len(survival))[0]
    mass = mass + max(0.0, 1 - float(survival.sum())) * steps.law
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


def first_tokens(steps: Steps) -> tuple[Law, Any]:
    """Return the laws of the time to the first token of a request that finds a step under way, and of its step's work.

    Parameters
    ----------
    steps : Steps

    Returns
    -------
    tuple of Law and ndarray
        The latter on the states of the chain.
    """
    unit, full, step = steps.unit, steps.full, steps.step
    lengths = steps.lengths
    found = steps.law * lengths
    found = found / found.sum()
    # Of arrivals that keep apart, or bunch, the step that one finds holds fewer prompts, or more.
    half = float(found @ lengths) / 2
    earlier = np.diff(steps.prompts.excess(np.array([half, half + steps.mean])))
    share = max(0.0, 1 + float(earlier[0]) / (steps.prompts.rate * steps.mean))
    found = np.maximum(0.0, share * found)
    found[0] = max(0.0, found[0] + 1 - share)
    found = found / found.sum()
    last = min(len(found) - 1, int(np.ceil(full / unit - 1e-9)))
    # Groups thin out towards the long steps, in which percentiles are read.
    level = np.minimum(_FOUND - 1, (_FOUND * (1 - np.maximum(0.0, 1 - np.cumsum(found)) ** 0.4)).astype(int))
    level[last + 1 :] = _FOUND
    chance, window, before = [], [], []
    for one in np.unique(level):
        mine = level == one
        total = float(found[mine].sum())
        if total <= 1e-9:
            continue
        chance.append(total)
        window.append(float(np.sum(found[mine] * lengths[mine])) / total)
        left = np.zeros(_PLACES)
        left[0] = 1.0
        if one == _FOUND:
            left[:] = 0.0
            rest = found * mine / total
            left[: len(found) - last] = rest[last:]
        before.append(left)
    chances, windows, ahead_of = np.array(chance), np.maximum(np.array(window), 1e-6 * unit), _transform(np.array(before))
    beside = _folded(ahead_of * _transform(steps.joined(windows)), _PLACES)
    work = (chances @ beside)[:_STATES]
    # Of full steps, which hold work for later ones too, each is as likely as the next.
    over = steps.law[last:] / max(1e-300, float(steps.law[last:].sum()))
    work[last:] = over * max(0.0, 1 - float(work[:last].sum()))
    place = np.arange(_PLACES)
    # What is ahead and the own prompt decide in which step it is through; those behind fill that step up.
    within = place * unit < full - unit / 2
    if float(np.sum(chances @ (beside * ~within))) > 1e-4:
        ahead = sum(steps.joined(windows * age) for age in _AGES) / len(_AGES)
        ahead = _folded(ahead_of * _transform(ahead), _PLACES)
        taken = np.maximum(1.0, np.ceil(place * unit / full - 1e-9))
        share = min(1.0, steps.prompts.rate * steps.prompts.mean(1 + steps.prompts.rate * steps.mean))
        fill = share * (float(chances @ windows) / 2 + (taken - 1) * (full + step))
        through = place * unit + np.minimum(fill, taken * full - place * unit) + (taken - 1) * step
        stretched = np.zeros_like(beside)
        stretched[:, within] = beside[:, within]
        topped = np.maximum(0.0, np.sum(ahead * within, axis=1) - np.sum(beside * within, axis=1))
        spill = np.array([on_lattice(through[~within], row[~within], unit, _PLACES) for row in ahead])
        stretched += spill
        stretched[:, min(_PLACES - 1, round(full / unit))] += topped
        beside = stretched
    residual = np.clip((windows[:, None] - place * unit) / unit, 0.0, 1.0) * (unit / windows[:, None])
    residual /= residual.sum(axis=1, keepdims=True)
    sums = _transform(beside) * _transform(residual)
    mass = np.maximum(0.0, chances @ np.fft.irfft(sums, 2 * _PLACES))
    times = (np.arange(len(mass)) + 0.5) * unit + step
    shares = np.cumsum(mass)
    shares /= shares[-1]
    return Law(times, shares, float(np.sum(mass * times) / mass.sum())), work / work.sum()


def _prefill_after(steps: Steps, number: Any, own_work: Any) -> tuple[Any, Any, Any]:
    """Return mean and variance of the prefill in numbers of steps after the own one, and their arrivals [s, s2, 1]."""
    chain, lengths = steps.chain, steps.lengths - steps.step
    most = int(min(_EACH, number.max()))
    moments = np.zeros((len(lengths), 2))
    mean, variance = [0.0], [0.0]
    for index in range(1, most + 1):
        # The total over one step more: that step, and then the total from where it leads.
        first, second = moments.T
        moments = chain @ np.stack([lengths + first, lengths**2 + 2 * lengths * first + second], axis=1)
        mean.append(float(own_work @ moments[:, 0]))
        variance.append(max(0.0, float(own_work @ moments[:, 1]) - mean[-1] ** 2))
        if index > _WAKE and abs(mean[-1] - 2 * mean[-2] + mean[-3]) <= 1e-4 * (mean[-1] - mean[-2]):
            break
    most = len(mean) - 1
    laws, shares = following(steps, own_work, min(most, _WAKE))
    if np.any(shares != 1.0):
        laws, shares = following(steps, own_work, most)
        shift = np.concatenate([[0.0], np.cumsum(laws @ lengths)]) - np.array(mean)
    else:
        shift = np.zeros(most + 1)
    known = np.minimum(number, most).astype(int)
    more = np.maximum(0.0, number - known)
    means, variances = np.array(mean), np.array(variance)
    return (
        means[known] + more * (means[known] - means[known - 1]) + shift[known],
        variances[known] + more * np.maximum(0.0, variances[known] - variances[known - 1]),
        shares,
    )


def lives(steps: Steps, number: Any, own_work: Any) -> list[Law]:
    """Return the law of the mean time between tokens over each number of steps that follow a prefill.

    Parameters
    ----------
    steps : Steps
    number : ndarray
        Steps, whole numbers of at least 1 [1].
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].

    Returns
    -------
    list of Law
    """
    mean, variance, shares = _prefill_after(steps, number, own_work)
    if float(steps.law[steps.lengths >= steps.step + steps.full - steps.unit / 2].sum()) > _OFTEN_FULL:
        return [_between_full(steps, *each) for each in zip(number, mean, variance, strict=True)]
    prompts, step, longest = steps.prompts, steps.step, steps.step + steps.full
    took = prompts.took(1 + prompts.rate * steps.mean)
    alike = float(np.sum(took * prompts.weight)) ** 2 / float(np.sum(took**2 * prompts.weight))
    # Arrivals that bunch bring their prefills together, beyond those of one step, which the chain knows.
    bunch, known = (np.maximum(0.05, prompts.dispersion(span)) for span in (number * step + mean, steps.mean))
    wider = np.sqrt(np.maximum(0.05, 1 + (bunch - 1) * alike) / np.maximum(0.05, 1 + (known - 1) * alike))
    arriving = prompts.rate * float(np.sum(steps.law * steps.lengths**2)) / steps.mean
    most = int(np.ceil(arriving + 4 * np.sqrt(arriving * max(1.0, float(known)))) + 3)
    few = (prompts.rate * (number * step + mean) <= _MANY) & (most <= _TOGETHER)
    reach = mean + 8 * np.sqrt(variance)
    sums = _followed(steps, number[few], own_work, shares, float(reach[few].max()), most) if few.any() else []
    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    found, at = [], iter(sums)
    for index, count in enumerate(number):
        if few[index]:
            times, level, average = next(at)
        else:
            # Steps of decoding differ less than prefills do.
            least = -0.2 * count * step
            times, level, average = least + gamma_quantiles(mean[index] - least, variance[index], edge), edge, mean[index]
        times = np.maximum(0.0, average + (times - average) * wider[index])
        found.append(Law(np.minimum(step + times / count, longest), level, min(longest, step + average / count)))
    return found


def _between_full(steps: Steps, count: float, mean: float, variance: float) -> Law:
    """Return a law of :func:`lives` where steps are often full: a beta law between an empty and a full step."""
    from scipy.special import betaincinv

    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    part = min(1 - 1e-6, max(1e-6, mean / count / steps.full))
    spread = max(1e-9, variance / (count * steps.full) ** 2)
    size = max(1e-3, part * (1 - part) / spread - 1)
    times = steps.step + steps.full * betaincinv(part * size, (1 - part) * size, edge)
    return Law(times, edge, steps.step + part * steps.full)


def _followed(
    steps: Steps, number: Any, own_work: Any, shares: Any, reach: float, most: int
) -> list[tuple[Any, Any, float]]:
    """Return times, shares and mean of the prefill in each number of steps, by the chain of prompts in a step.

    Prompts of a step bring its work, which brings the arrivals of its time: the transform of the total is a product of
    matrices over the number of prompts, at each frequency.
    """
    places = _FREQUENCIES
    # A coarser lattice, where the total reaches beyond the places.
    unit = steps.unit * max(1.0, np.ceil(reach / places / steps.unit))
    # A full step leaves work to the next one, which changes where it lies but not how much there is.
    work = np.arange(len(steps.law)) * steps.unit
    kept = max(2, int(np.ceil(work[-1] / unit)) + 2)
    into = np.maximum(0.0, 1 - np.abs(work[:, None] / unit - np.arange(kept)))
    brought = steps.sums[: most + 1, : len(work)] @ into
    brought[:, -1] += 1 - brought.sum(axis=1)
    lengths = steps.step + np.arange(kept) * unit
    spread = np.maximum(0.05, steps.prompts.dispersion(lengths))
    arriving = counts(steps.prompts.rate * lengths, spread, most)
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * places)[:, None] * np.arange(kept))
    both = (brought.T[:, :, None] * arriving[:, None, :]).reshape(kept, -1)
    matrix = (turn @ both).reshape(-1, most + 1, most + 1)
    alone = turn @ brought.T
    none = np.zeros(most + 1)
    none[0] = 1.0
    state = np.broadcast_to(shares[0] * (own_work @ into @ arriving) + (1 - shares[0]) * none, (len(turn), most + 1))
    wanted = sorted({int(count) for count in number})
    values = [np.ones(len(turn), dtype=complex)]
    for index in range(1, wanted[-1] + 1):
        share = shares[index] if index < len(shares) else 1.0
        leads = (state[:, None, :] @ matrix)[:, 0, :]
        values.append(leads.sum(axis=1))
        state = leads if share == 1.0 else share * leads + (1 - share) * np.sum(state * alone, axis=1)[:, None] * none
        if index > _WAKE:
            ratio = values[-1] / np.where(np.abs(values[-2]) < 1e-12, 1.0, values[-2])
            before = values[-2] / np.where(np.abs(values[-3]) < 1e-12, 1.0, values[-3])
            if float(np.max(np.abs(values[-1]) * np.abs(ratio - before))) * wanted[-1] < 1e-2:
                break
    last, found = len(values) - 1, []
    for count in (int(count) for count in number):
        value = values[count] if count <= last else values[last] * ratio ** (count - last)
        mass = np.maximum(0.0, np.fft.irfft(value, 2 * places))
        times, shares = np.arange(2 * places) * unit, np.cumsum(mass)
        found.append((times, shares / shares[-1], float(np.sum(mass * times) / shares[-1])))
    return found


def riding_lives(prompts: Prompts, step: float, full: float, number: Any) -> list[Law]:
    """Return the law of the mean time between tokens over each number of steps, where prompts ride along.

    Parameters
    ----------
    prompts : Prompts
    step, full : float
        Decoding in a step, and what rides at most add to it [s].
    number : ndarray
        Steps, whole numbers of at least 1 [1].

    Returns
    -------
    list of Law
    """
    rate, took, longest = prompts.rate, prompts.took(1.0), step + full
    mean, square = prompts.mean(1.0), prompts.square(1.0)
    used = min(0.97, rate * mean)
    drawn = used * (1 - used**number) / (1 - used)
    usual = step / (1 - used)
    totals = number * usual + (step + mean - usual) * drawn
    single = queueing.cycle_variance(cycle=usual, rate=rate, prefill_square=square, prefilling=used)
    spreads = queueing.life_variance(variance=single, cycles=number, prefilling=used)
    spreads = np.maximum(single * 0.1, spreads) + drawn**2 * (square - mean**2)
    # Arrivals that bunch bring their prefills together: the spread about the mean grows.
    bunch = np.maximum(0.05, prompts.dispersion(totals))
    stretch = np.sqrt(np.maximum(0.05, 1 + (bunch - 1) * mean * mean / square))
    later = np.maximum(0.0, bunch - 1) / 2 * mean / (1 - used)
    few = rate * totals <= _MANY
    reach = totals - number * step + 8 * np.sqrt(spreads)
    sums = _branching(prompts, step, number[few], float(reach[few].max())) if few.any() else []
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


def _branching(prompts: Prompts, step: float, number: Any, reach: float) -> list[tuple[Any, Any, float]]:
    """Return times, shares and mean of the total of each number of steps, for Poisson arrivals."""
    took = prompts.took(1.0)
    longest = float(took.max())
    unit, size = (reach + 2 * longest) / _PLACES, longest / _SIZES
    # Times of a prompt lie on places of the lattice of sums.
    unit, size = (size / np.floor(size / unit), size) if unit <= size else (unit, unit)
    most = int(np.ceil(longest / size)) + 2
    sizes = on_lattice(took, prompts.weight, size, most)
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
        mass = np.maximum(0.0, np.fft.irfft(np.exp(total + growth * step) * of(sizes, growth), 2 * _PLACES))
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
    scv = float(prompts.dispersion(np.array([_LONG / prompts.rate]))[0])
    spread = max(0.05, square / mean**2 - 1)
    factor = (scv + spread) / (1 + spread)
    factor *= float(queueing.arrival_correction(utilisation=used, arrival_scv=scv, service_scv=spread))
    shares = np.cumsum(law)
    times = np.arange(len(law)) * unit * factor
    return Law(times, shares / shares[-1], wait * factor), used

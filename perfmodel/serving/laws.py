"""Distributions of times, told by rising times and the probability to be at most each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.serving.lattice import PLACES

#: Shares of requests of which times are given.
QUANTILES = (0.5, 0.9, 0.99)


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
    kept = np.linspace(0, len(times) - 1, min(len(times), 2 * PLACES)).round().astype(int)
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
    times = np.linspace(law.times[0] + later.min(), law.times[-1] + later.max(), 2 * PLACES)
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
    grid = np.linspace(law.times[0] + times.min(), law.times[-1] + times.max(), 2 * PLACES)
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

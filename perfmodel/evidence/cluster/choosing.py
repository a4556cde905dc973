"""Which runs say most: those that leave the least variance over the questions that will be asked.

A prediction errs by what is not known of the machine's numbers, and by what its form leaves out; the latter is alike at
like loads.  Without that second part the runs that move most would be chosen, which lie at the ends of the range, where
the form is worst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfmodel.evidence.cluster.pooling import EIGHTY, FIRST_NOISE, TOKEN_NOISE

Array = NDArray[np.float64]
#: What the form of the model leaves out of the logarithms of TPOT and TTFT, and the distance over which it is alike, in
#: logarithms of clients, lengths and ranks.
TOKEN_FORM, FIRST_FORM, ALIKE = 0.15, 0.3, 4.0


@dataclass(frozen=True)
class Points:
    """Loads with the derivatives of the logarithms of TPOT and TTFT by those of the numbers of a machine.

    Attributes
    ----------
    tpot, ttft : ndarray, shape (points, numbers)
    where : ndarray, shape (points, 4)
        Logarithms of clients, prompt, output and ranks.
    """

    tpot: Array
    ttft: Array
    where: Array

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.where)

    def half_widths(self, covariance: Array) -> tuple[float, float]:
        """Return the half-widths that hold 80 % of the logarithms of TPOT and TTFT over the points.

        Parameters
        ----------
        covariance : ndarray, shape (numbers, numbers)

        Returns
        -------
        tuple of float
        """
        widths = []
        for slopes, noise in ((self.tpot, TOKEN_NOISE), (self.ttft, FIRST_NOISE)):
            variance = np.einsum("ij,jk,ik->i", slopes, covariance, slopes)
            widths.append(EIGHTY * float(np.sqrt(np.mean(variance) + noise**2)))
        return widths[0], widths[1]


def joined(parts: Sequence[Points]) -> Points:
    """Return the points of several as those of one."""
    return Points(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("tpot", "ttft", "where")))


def _covariance(points: Points, covariance: Array) -> Array:
    """Return the covariance of the errors of TPOT, then TTFT, of all points, each in units of its noise."""
    slopes = np.concatenate([points.tpot / TOKEN_NOISE, points.ttft / FIRST_NOISE])
    apart = ((points.where[:, None] - points.where) ** 2).sum(axis=-1)
    alike = np.exp(-apart / (2 * ALIKE**2))
    total: Array = slopes @ covariance @ slopes.T
    size = points.size
    total[:size, :size] += (TOKEN_FORM / TOKEN_NOISE) ** 2 * alike
    total[size:, size:] += (FIRST_FORM / FIRST_NOISE) ** 2 * alike
    return total


def chosen(runs: Points, questions: Points, covariance: Array, most: int) -> list[int]:
    """Return the runs that leave the least mean variance over the questions, the one that says most first.

    Parameters
    ----------
    runs : Points
        That may be made.
    questions : Points
    covariance : ndarray, shape (numbers, numbers)
        Of the numbers, before any of the runs.
    most : int
        How many are wanted.

    Returns
    -------
    list of int
        Places in ``runs``, none twice.
    """
    every = joined([runs, questions])
    known, size = _covariance(every, covariance), every.size
    asked = np.r_[runs.size : size, size + runs.size : 2 * size]
    picked: list[int] = []
    for _ in range(min(most, runs.size)):
        taken = {}
        for at in set(range(runs.size)) - set(picked):
            both = [at, size + at]
            across = known[np.ix_(asked, both)]
            own = known[np.ix_(both, both)] + np.eye(2)
            taken[at] = float(np.sum(across @ np.linalg.inv(own) * across))
        best = max(taken, key=lambda at: (taken[at], -at))
        both = [best, size + best]
        across = known[:, both]
        known = known - across @ np.linalg.solve(known[np.ix_(both, both)] + np.eye(2), across.T)
        picked.append(best)
    return picked


def after(covariance: Array, runs: Points) -> Array:
    """Return the covariance of numbers after some runs.

    Parameters
    ----------
    covariance : ndarray, shape (numbers, numbers)
    runs : Points

    Returns
    -------
    ndarray, shape (numbers, numbers)
    """
    measured = np.concatenate([runs.tpot / TOKEN_NOISE, runs.ttft / FIRST_NOISE])
    wide = measured @ covariance
    found: Array = covariance - wide.T @ np.linalg.solve(wide @ measured.T + np.eye(len(measured)), wide)
    return found

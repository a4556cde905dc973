"""Partial pooling: what a few runs say of the numbers of a machine that a fit on many others has set.

A number is the shipped one times exp(x).  Before any run x is normal around 0, as wide as its sort says; runs bend it
as far as they outweigh that, and a number of which they say nothing stays.  Errors are those of the logarithm, soft
beyond one spread, so that a bad run bends little.

The widths and the noise were chosen on a coarse grid where the learning curve over the groups of ``serving2.csv`` is
flat: halving or doubling one moves its medians by less than a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perfmodel.evidence.cluster.observed import Batch, sensitivities
from perfmodel.specs.paths import range_at

Array = NDArray[np.float64]
#: What repeated runs and the form of the model leave of the logarithm of a time: of tokens and rates, of first tokens.
TOKEN_NOISE, FIRST_NOISE = 0.06, 0.2
#: Standard deviation of the logarithm of a number between clusters: times, the front end and how prompts queue, shares
#: of a peak and the rest.
TIME_PRIOR, FRONT_PRIOR, SHARE_PRIOR = 0.4, 0.6, 0.25
_FRONT = ("request_time", "stream_time", "prefill_group")
#: Gauss-Newton steps, and rounds of weights in each.
_STEPS, _WEIGHTINGS = 4, 5
#: The least weight of a value.
_LEAST = 1e-3
#: Half-width of a normal law that holds 80 %.
EIGHTY = 1.2816


def prior_spread(efficiency: Any, path: str) -> float:
    """Return how far a number lies from the shipped one on another cluster: a standard deviation of the logarithm.

    Parameters
    ----------
    efficiency : Efficiency
    path : str
        Of the number.

    Returns
    -------
    float
    """
    if path in _FRONT:
        return FRONT_PRIOR
    return TIME_PRIOR if range_at(efficiency, path).unit == "s" else SHARE_PRIOR


def noise_of(first: NDArray[np.bool_]) -> Array:
    """Return the spread of the errors of values: of times to first token where ``first``, else of the others."""
    return np.where(first, FIRST_NOISE, TOKEN_NOISE)


@dataclass(frozen=True)
class Posterior:
    """What runs say of the numbers of a machine.

    Attributes
    ----------
    paths : tuple of str
    prior : ndarray, shape (numbers,)
        Standard deviations before.
    logs : ndarray, shape (numbers,)
        Logarithm of the factor on each.
    covariance : ndarray, shape (numbers, numbers)
    off : ndarray, shape (values,)
        Logarithm of predicted over measured, after.
    weights : ndarray, shape (values,)
        How much each value counted: near 0 where it lies apart from the others.
    """

    paths: tuple[str, ...]
    prior: Array
    logs: Array
    covariance: Array
    off: Array
    weights: Array

    @property
    def spreads(self) -> Array:
        """Standard deviations of the logarithms after the runs."""
        return np.sqrt(np.diag(self.covariance))

    def variance(self, slopes: Array) -> Array:
        """Return the variance of the logarithm of predictions from what is not known of the numbers.

        Parameters
        ----------
        slopes : ndarray, shape (values, numbers)

        Returns
        -------
        ndarray, shape (values,)
        """
        found: Array = np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes)
        return found


Observe = Callable[[Array], tuple[Array, Array]]


def settle(observe: Observe, prior: Array, noise: Array, paths: Sequence[str] = ()) -> Posterior:
    """Return the posterior of numbers, by Gauss-Newton steps on the whole model with soft weights.

    Parameters
    ----------
    observe : callable
        From logarithms, shape (numbers,), to the logarithms of predicted over measured, shape (values,), and their
        derivatives, shape (values, numbers).
    prior : ndarray, shape (numbers,)
        Standard deviations.
    noise : ndarray, shape (values,)
    paths : sequence of str
        Names of the numbers.

    Returns
    -------
    Posterior
    """
    at = np.zeros(prior.size)
    off, slopes = observe(at)
    for _ in range(_STEPS if off.size else 0):
        logs, _ = _linear(off - slopes @ at, slopes, prior, noise)
        cost = _cost(at, off, prior, noise)
        for _ in range(3):
            tried, turned = observe(logs)
            if _cost(logs, tried, prior, noise) <= cost:
                break
            logs = (at + logs) / 2
        else:
            break
        near = np.abs(logs - at).max() < 1e-3
        at, off, slopes = logs, tried, turned
        if near:
            break
    weights = 1 / np.sqrt(1 + (off / noise) ** 2)
    gain = _gain(slopes, prior, noise, weights)
    covariance = np.diag(prior**2) - gain @ (slopes * prior**2)
    return Posterior(tuple(paths), prior, at, covariance, off, weights)


def _linear(constant: Array, slopes: Array, prior: Array, noise: Array) -> tuple[Array, Array]:
    """Return the logarithms that bring ``constant + slopes @ logs`` nearest to 0, and the weights of the values."""
    weights = np.ones(constant.size)
    logs = np.zeros(prior.size)
    for _ in range(_WEIGHTINGS):
        logs = -_gain(slopes, prior, noise, weights) @ constant
        weights = np.maximum(_LEAST, 1 / np.sqrt(1 + ((constant + slopes @ logs) / noise) ** 2))
    return logs, weights


def _gain(slopes: Array, prior: Array, noise: Array, weights: Array) -> Array:
    wide = slopes * prior**2
    found = cast(Array, np.linalg.solve(wide @ slopes.T + np.diag(noise**2 / weights), wide)).T
    return found


def _cost(logs: Array, off: Array, prior: Array, noise: Array) -> float:
    squares = (off / noise) ** 2
    return float(np.sum((logs / prior) ** 2) + np.sum(2 * (np.sqrt(1 + squares) - 1)))


def pooled(batches: Sequence[Batch], efficiency: Any, paths: Sequence[str]) -> Posterior:
    """Return what runs of one chip and engine say of its numbers.

    Parameters
    ----------
    batches : sequence of Batch
        Values beyond what the cache holds do not count.
    efficiency : Efficiency
        The shipped one.
    paths : sequence of str
        Of the numbers that may move.

    Returns
    -------
    Posterior
    """
    used = [batch.only(batch.room) for batch in batches if batch.room.any()]
    prior = np.array([prior_spread(efficiency, path) for path in paths])
    first = np.concatenate([np.zeros(0, dtype=bool), *(batch.first for batch in used)])

    def observe(logs: Array) -> tuple[Array, Array]:
        found = [sensitivities(batch, paths, logs, efficiency) for batch in used]
        off = np.concatenate([np.zeros(0), *(part for part, _ in found)])
        return off, np.concatenate([np.zeros((0, len(paths))), *(part for _, part in found)])

    return settle(observe, prior, noise_of(first), paths)

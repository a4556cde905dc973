"""Numbers of arrivals of a renewal process, in windows and after an arrival."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


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
    probabilities = np.empty((len(mean), most + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        probabilities[:, 0] = np.exp(np.where(np.abs(spread - 1) < 1e-6, -mean, -mean * np.log(spread) / (spread - 1)))
    each = slope[:, None] + (mean / spread - slope)[:, None] / np.arange(1.0, most + 1)
    probabilities[:, 1:] = probabilities[:, :1] * np.cumprod(np.maximum(0.0, each), axis=1)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


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
    knots, table, _ = _tables(float(scv))
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
    knots, _, table = _tables(float(scv))
    return np.interp(np.log(np.maximum(1e-9, rate * time)), knots, table)


@cache
def _tables(scv: float) -> tuple[Any, Any, Any]:
    """Return logarithms of mean arrivals in a window, the dispersion of their number, and the excess."""
    from scipy.special import gammainc

    shape = 1 / max(scv, 0.02)
    mean = np.geomspace(1e-5, 20 * max(1.0, scv), 60)
    # Mean arrivals within a time after an arrival, less those of a Poisson process.
    number = np.arange(1, int(2 * mean[-1]) + 20)
    more = gammainc(number * shape, shape * mean[:, None]).sum(axis=1) - mean
    parts = np.diff(mean, prepend=0.0) * (more + np.concatenate([[0.0], more[:-1]])) / 2
    return np.log(mean), 1 + 2 * np.cumsum(parts) / mean, more

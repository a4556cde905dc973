"""Sums of independent times, folded on a lattice."""

from __future__ import annotations

from typing import Any

import numpy as np

#: States of the chain of prefill work, and places of the lattice on which sums are folded.
STATES, PLACES = 108, 360


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


def folded(transformed: Any, places: int) -> Any:
    """Return masses on a lattice from their transform, which has room for a sum.

    Parameters
    ----------
    transformed : ndarray
        See :func:`transform`.
    places : int
        Of the lattice; what lies beyond is left out.

    Returns
    -------
    ndarray
        Probabilities [1].
    """
    return np.maximum(0.0, np.fft.irfft(transformed, 2 * places)[..., :places])


def transform(mass: Any) -> Any:
    """Return the transform of masses on a lattice, with room for a sum.

    Parameters
    ----------
    mass : ndarray
        Probabilities [1].

    Returns
    -------
    ndarray
    """
    return np.fft.rfft(mass, 2 * mass.shape[-1])

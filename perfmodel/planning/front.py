"""The Pareto front."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Points whose own front sieves the others, and how many of that front do.
_SAMPLE, _STRONG = 2**10, 24


def front(costs: Any) -> Any:
    """Return the places of points that no other one equals or beats in every cost; of equal points the first.

    Parameters
    ----------
    costs : ndarray
        A row a point, less being better; a row with NaN or infinity is on no front.

    Returns
    -------
    ndarray
        Places of rows, in order.
    """
    import moocore  # Imported here: most questions have no front.

    columns = [np.ascontiguousarray(costs[:, at], dtype=float) for at in range(costs.shape[-1])]
    there = np.flatnonzero(_every(np.isfinite(column) for column in columns))
    if len(there) > 4 * _SAMPLE:
        sample = there[np.linspace(0, len(there) - 1, _SAMPLE).astype(int)]
        sample = sample[moocore.is_nondominated(costs[sample], keep_weakly=False)]
        there = _sieve(columns, there, sample[:: max(1, len(sample) // _STRONG)])
    return there[moocore.is_nondominated(costs[there], keep_weakly=False)] if len(there) else there


def _every(tests: Iterable[Any]) -> Any:
    return functools.reduce(np.logical_and, tests)


def _sieve(columns: Sequence[Any], there: Any, strong: Any) -> Any:
    """Return the places that none of some strong points beats: nearly all are beaten by one of few."""
    left = [column[there] for column in columns]
    for place in strong:
        costs = [column[place] for column in columns]
        beaten = _every(column >= cost for column, cost in zip(left, costs, strict=True))
        # Equal points stay, so that the first of them is the one that is kept.
        beaten &= ~_every(column == cost for column, cost in zip(left, costs, strict=True))
        kept = np.flatnonzero(~beaten)
        if len(kept) < 0.9 * len(there):
            there, left = there[kept], [column[kept] for column in left]
    return there

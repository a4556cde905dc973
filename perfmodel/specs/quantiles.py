"""Tables of quantiles, and the law that goes through them: lognormal from one quantile to the next."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

#: A quantile of a table is ``p`` and a whole percentage; ``p0`` and ``p100`` are the least and the greatest.
_KEY = re.compile(r"p(100|[1-9]?\d)")
#: What stands for nothing where logarithms are taken: a thousandth of a token or a millisecond.
_LEAST = 1e-3
#: The steepest tail that is looked for, as a spread of logarithms.
_STEEPEST = 6.0
_GRID = 1 - (1 - (np.arange(4096) + 0.5) / 4096) ** 1.7
_WEIGHT = np.diff(1 - (1 - np.arange(4097) / 4096) ** 1.7)


def fault(table: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the key of a table that is wrong and why, else None.

    Parameters
    ----------
    table : mapping of str to float

    Returns
    -------
    tuple of str, or None
    """
    for key in table:
        if key != "mean" and not _KEY.fullmatch(key):
            return key, "expected mean, or p and a whole percentage: p50, p99; p0 is the least, p100 the greatest"
    inner = [key for key in table if key not in ("mean", "p0", "p100")]
    if not inner and "mean" not in table:
        return "", "give a quantile such as p50, or mean"
    keys = sorted((key for key in table if key != "mean"), key=_percent)
    for below, above in pairwise(keys):
        if float(table[above]) < float(table[below]):
            return above, f"{float(table[above]):g} is less than the {float(table[below]):g} of {below}"
    if inner and "mean" in table:
        least, most = (_mean(_key(table), slope) for slope in (0.0, _STEEPEST))
        mean = float(table["mean"])
        if not least * (1 - 1e-6) <= mean <= most * (1 + 1e-6):
            return "mean", f"{mean:g} cannot be, for the quantiles allow {least:.6g} to {most:.6g}"
    return None


def at(table: Mapping[str, Any], shares: Any) -> Any:
    """Return the values below which given shares of a quantity lie.

    Parameters
    ----------
    table : mapping of str to float
        Quantiles ``p50``, ..., and ``mean``; a mean alone is a constant.
    shares : ndarray
        [1]

    Returns
    -------
    ndarray
        In the unit of the table.

    Notes
    -----
    The logarithm is linear in the normal quantile between two entries.  Beyond the last one it goes on so steeply that
    the mean is met, else as between the last two; ``p0`` and ``p100`` cut it off.
    """
    key = _key(table)
    return _law(key, np.asarray(shares, dtype=float), _tail(key))


def _percent(key: str) -> int:
    return int(key[1:])


def _key(table: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((key, float(value)) for key, value in table.items())


@functools.lru_cache(maxsize=256)
def _tail(key: tuple[tuple[str, float], ...]) -> float | None:
    """Return the slope of the logarithm beyond the last quantile that meets the mean; None where none is given."""
    from scipy.optimize import brentq

    table = dict(key)
    inner = [name for name in table if name not in ("mean", "p0", "p100")]
    if "mean" not in table or not inner:
        return None
    low, high = (_mean(key, slope) - table["mean"] for slope in (0.0, _STEEPEST))
    if low * high >= 0:
        return 0.0 if abs(low) <= abs(high) else _STEEPEST
    return float(brentq(lambda slope: _mean(key, slope) - table["mean"], 0.0, _STEEPEST, xtol=1e-9))


def _mean(key: tuple[tuple[str, float], ...], slope: float) -> float:
    return float(np.sum(_WEIGHT * _law(key, _GRID, slope)))


def _law(key: tuple[tuple[str, float], ...], shares: Any, tail: float | None) -> Any:
    from scipy.special import ndtri

    table = dict(key)
    names = sorted((name for name in table if name not in ("mean", "p0", "p100")), key=_percent)
    if not names:
        value = np.full(shares.shape, table["mean"])
    else:
        knots = ndtri(np.array([_percent(name) / 100 for name in names]))
        logs = np.log(np.maximum([table[name] for name in names], _LEAST))
        slopes = np.diff(logs) / np.diff(knots) if len(names) > 1 else np.array([0.0 if tail is None else tail])
        z = ndtri(np.clip(shares, 1e-12, 1 - 1e-12))
        found = np.interp(z, knots, logs)
        last = slopes[-1] if tail is None else tail
        found = found + np.minimum(0.0, z - knots[0]) * slopes[0] + np.maximum(0.0, z - knots[-1]) * last
        value = np.exp(np.minimum(found, 50.0))
    return np.clip(value, table.get("p0", 0.0), table.get("p100", np.inf))

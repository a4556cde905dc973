"""The hit rate of a traffic over response time, sessions and capacity, worked out once and read by interpolation."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.serving.session_cache import (
    kept_share,
    session_reuses,
    session_windows,
)
from perfmodel.serving.sessions import SessionCalls, SessionTraffic, drawn_calls

#: Knots of the table: response times [s], live sessions, capacity over live sessions and their mean context.
_RESPONSES = np.geomspace(0.02, 2e4, 25)
_SESSIONS = np.concatenate([[1.0, 2.0, 3.0], np.geomspace(4.0, 1e5, 18)])
_FITS = np.concatenate([np.geomspace(1e-4, 1e-2, 5)[:-1], np.geomspace(1e-2, 10.0, 40), [30.0, 1000.0]])
#: Windows for which moments are worked out at each response time, and gaps that stand for those of a shared prefix.
_WINDOWS, _SHARED = 12, 8


@dataclass(frozen=True)
class HitTable:
    """Hit rates of one traffic on one replica.

    Attributes
    ----------
    calls : SessionCalls
        Calls that stand for the traffic, as the replica sees them.
    traffic : SessionTraffic
        What they were drawn from.
    """

    calls: SessionCalls
    traffic: SessionTraffic

    @functools.cached_property
    def context(self) -> float:
        """Mean tokens of a context, output included [1]."""
        return float((self.calls.prompt + self.calls.output).mean())

    @functools.cached_property
    def _slabs(self) -> dict[int, Any]:
        return {}

    def slab(self, at: int) -> Any:
        """Return hit rates at a knot of the response time, by sessions and fit."""
        if at not in self._slabs:
            sessions = _SESSIONS[:, None]
            self._slabs[at] = self.law(float(_RESPONSES[at]), sessions, _FITS[None, :] * sessions * self.context)
        return self._slabs[at]

    def law(self, response: float, sessions: Any, capacity: Any) -> Any:
        """Return the hit rate by the laws themselves.

        Parameters
        ----------
        response : float
            Time that a call takes [s].
        sessions, capacity : ndarray
            Live sessions, and tokens that the cache holds [1].

        Returns
        -------
        ndarray
            Share of the prompt tokens [1].
        """
        calls, shared, ttl = self.calls, float(self.traffic.shared_tokens), float(self.traffic.ttl)
        groups = max(1.0, float(self.traffic.shared_groups))
        reuses = session_reuses(calls, response, ttl=ttl, shared=shared)
        low = max(1e-3, float(reuses.gap.min(initial=1.0)))
        high = max(2 * low, float(reuses.gap.max(initial=2.0)))
        windows = session_windows(calls, np.geomspace(low, high, _WINDOWS), response, ttl=ttl, shared=shared)
        sessions, capacity = (np.asarray(value, dtype=float)[..., None] for value in (sessions, capacity))
        rate = sessions * len(calls.session) / (calls.all_thought + calls.all_called * response)

        def found(context: Any, gap: Any, others: Any) -> Any:
            mean, variance = windows.at(gap)
            touched = -np.expm1(-rate * gap / groups)
            prefixes = shared * (groups - 1) * touched
            return kept_share(
                context, capacity, others * mean + prefixes, others * variance + prefixes * shared * (1 - touched)
            )

        # Its own prefix is touched with every call of a session, so it lies before the rest of the context.
        own = found(reuses.reusable + shared, reuses.gap, np.maximum(sessions - 1, 0.0))
        hit = (reuses.share * own).sum(axis=-1)
        if shared > 0:
            gap = -np.log1p(-(np.arange(_SHARED) + 0.5) / _SHARED) * groups / rate
            part = float(np.minimum(calls.reusable, shared).sum() / calls.prompt.sum())
            kept = found(shared, gap, sessions) * (gap <= ttl + response)
            hit = hit + part * kept.mean(axis=-1)
        return hit

    def at(self, response: Any, sessions: Any, capacity: Any) -> Any:
        """Return the hit rate by interpolation between the knots, in logarithms.

        Parameters
        ----------
        response : float or ndarray
            Time that a call takes [s].
        sessions, capacity : ndarray
            Live sessions, and tokens that the cache holds [1].

        Returns
        -------
        ndarray
            Share of the prompt tokens [1].
        """
        sessions = np.maximum(np.asarray(sessions, dtype=float), 1.0)
        fit = np.asarray(capacity, dtype=float) / (sessions * self.context)
        row, along = _place(np.log(_SESSIONS), np.log(sessions))
        column, across = _place(np.log(_FITS), np.log(np.maximum(fit, 1e-12)))
        slab, between = _place(np.log(_RESPONSES), np.log(np.maximum(np.asarray(response, dtype=float), 1e-6)))
        if np.ndim(response) == 0:
            at = int(slab)
            table = (1 - between) * self.slab(at) + between * self.slab(at + 1)
            return _bilinear(table, row, along, column, across)
        stack = np.stack([self.slab(at) for at in range(int(slab.min()), int(slab.max()) + 2)])
        size = stack[0].size
        flat = stack.reshape(-1)
        offset = (slab - int(slab.min())) * size + row * len(_FITS) + column
        low, high = (_corners(flat, offset + shift, along, across) for shift in (0, size))
        return low + between * (high - low)


def _place(knots: Any, value: Any) -> tuple[Any, Any]:
    """Return the interval of each value and the share of its upper end, clamped."""
    at = np.clip(np.searchsorted(knots, value) - 1, 0, len(knots) - 2)
    return at, np.clip((value - knots[at]) / (knots[at + 1] - knots[at]), 0.0, 1.0)


def _corners(flat: Any, at: Any, along: Any, across: Any) -> Any:
    width = len(_FITS)
    near = flat[at] + across * (flat[at + 1] - flat[at])
    far = flat[at + width] + across * (flat[at + width + 1] - flat[at + width])
    return near + along * (far - near)


def _bilinear(table: Any, row: Any, along: Any, column: Any, across: Any) -> Any:
    return _corners(table.reshape(-1), row * len(_FITS) + column, along, across)


@functools.lru_cache(maxsize=32)
def hit_table(traffic: SessionTraffic, holders: float = 1.0, groups: float | None = None) -> HitTable:
    """Return the table of a traffic.

    Parameters
    ----------
    traffic : SessionTraffic
    holders : float
        Replicas over which the calls of a session go at random [1].
    groups : float, optional
        Shared prefixes that one replica sees; all where not given [1].

    Returns
    -------
    HitTable
    """
    calls = drawn_calls(traffic)
    if holders > 1:
        calls = calls.seen(1 / holders)
    return HitTable(calls, traffic if groups is None else replace(traffic, shared_groups=max(1.0, groups)))

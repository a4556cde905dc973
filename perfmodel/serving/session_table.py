"""The hit rate of a traffic over response time, sessions and capacity, worked out once and read by interpolation."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.equations import caching
from perfmodel.serving.session_cache import (
    hit_rate,
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
_WINDOWS, _SHARED = 12, 64


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
        """Return hit rates at a knot of the response time.

        Parameters
        ----------
        at : int
            Which knot.

        Returns
        -------
        ndarray
            Share, by sessions and by fit [1].
        """
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
        sessions, capacity = (np.asarray(value, dtype=float)[..., None] for value in (sessions, capacity))
        others = np.maximum(sessions - 1, 0.0)
        reuses = session_reuses(calls, response, ttl=ttl, shared=shared)
        low, high = (float(np.quantile(reuses.gap, at)) if len(reuses.gap) else 1.0 for at in (0, 1))
        windows = np.geomspace(max(1e-3, low), max(2e-3, 2 * low, high), _WINDOWS)
        alone = session_windows(calls, windows, response, ttl=ttl, shared=shared)
        if shared == 0:
            return hit_rate(capacity[..., 0], sessions[..., 0], alone, reuses)
        groups = max(1.0, float(self.traffic.shared_groups))
        whole = session_windows(calls, windows, response, ttl=ttl)

        def touched(gap: Any, slots: Any, members: float) -> tuple[Any, ...]:
            """What sessions in so many slots touch in a gap, of the group itself too or only others."""
            mean, variance, number, called = alone.at(gap)
            strange = slots * (1 - (1 - members) / groups)
            # Sessions of one group touch one prefix; where each has its own, it comes and goes with the session.
            distinct = (groups - 1) * -np.expm1(-slots * number / groups)
            own = distinct / np.maximum(slots * number, 1e-12)
            spread = variance + own * np.maximum(whole.at(gap)[1] - variance, 0.0)
            return strange * mean + shared * distinct, strange * spread, (1 - called) ** strange

        # Its prefix is used after the rest of its context, so that it is evicted later.
        own = kept_share(reuses.reusable, capacity - shared, *touched(reuses.gap, others, 1.0))
        # A prefix may be asked for only by the next session that begins with it.
        rare = 20 * groups * calls.total(response) / float(calls.first.sum())
        time = np.geomspace(1e-5 * alone.time[0], max(30 * alone.time[-1], rare), _SHARED)

        def prefix(slots: Any) -> tuple[Any, Any]:
            """What is kept of a prefix by the gap of a session, and of a session that has not called before."""
            kept = kept_share(shared, capacity, *touched(time, slots, 0.0)) * (time <= ttl + response)
            unseen = np.exp(-slots * alone.at(time)[2] / groups)
            # By when another session of the group came last, up to each time.
            between = (kept + np.concatenate([np.ones_like(kept[..., :1]), kept[..., :-1]], axis=-1)) / 2
            seen = np.cumsum(between * -np.diff(unseen, axis=-1, prepend=1.0), axis=-1)
            return kept * unseen + seen, seen[..., -1]

        hits = np.minimum(calls.reusable, shared) / calls.prompt.sum()
        first = calls.first
        at = np.clip(np.searchsorted(time, np.diff(calls.clock(response), prepend=0.0)), 0, len(time) - 1)
        after = np.bincount(at[~first], weights=hits[~first], minlength=len(time))
        # Before the first call of a session its own slot had others.
        later, fresh = (after * prefix(others)[0]).sum(axis=-1), prefix(sessions)[1]
        return (reuses.share * own).sum(axis=-1) + later + hits[first].sum() * fresh

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
        return self.read(response, self.places(sessions, capacity))

    def places(self, sessions: Any, capacity: Any) -> Places:
        """Return where settings lie between the knots of the table.

        Parameters
        ----------
        sessions, capacity : ndarray
            Live sessions, and tokens that the cache holds [1].

        Returns
        -------
        Places
        """
        sessions = np.maximum(np.asarray(sessions, dtype=float), 1.0)
        fit = np.asarray(capacity, dtype=float) / (sessions * self.context)
        row, along = _place(np.log(_SESSIONS), np.log(sessions))
        column, across = _place(np.log(_FITS), np.log(np.maximum(fit, 1e-12)))
        return Places(row * len(_FITS) + column, along, across)

    def read(self, response: Any, places: Places) -> Any:
        """Return the hit rate at places by interpolation.

        Parameters
        ----------
        response : float or ndarray
            Time that a call takes [s].
        places : Places

        Returns
        -------
        ndarray
            Share of the prompt tokens [1].
        """
        slab, between = _place(np.log(_RESPONSES), np.log(np.maximum(np.asarray(response, dtype=float), 1e-6)))
        if np.ndim(response) == 0:
            at = int(slab)
            table = (1 - between) * self.slab(at) + between * self.slab(at + 1)
            return _corners(table.reshape(-1), places.at, places)
        first = int(slab.min())
        stack = np.stack([self.slab(at) for at in range(first, int(slab.max()) + 2)])
        size, flat = stack[0].size, stack.reshape(-1)
        at = (slab - first) * size + places.at
        low, high = (_corners(flat, at + shift, places) for shift in (0, size))
        return low + between * (high - low)


@dataclass(frozen=True)
class Places:
    """Where settings lie in a table by sessions and fit.

    Attributes
    ----------
    at : ndarray of int
        Knot below each in both, counted row by row.
    along, across : ndarray
        Share of the next knot in sessions and in fit [1].
    """

    at: Any
    along: Any
    across: Any

    def part(self, where: Any) -> Places:
        """Return the places of some settings.

        Parameters
        ----------
        where : slice or ndarray

        Returns
        -------
        Places
        """
        return Places(self.at[where], self.along[where], self.across[where])


@dataclass(frozen=True)
class RoundTable(HitTable):
    """Hit rates of a benchmark in rounds: between two calls of a session lie all others, however many are in flight."""

    def law(self, response: float, sessions: Any, capacity: Any) -> Any:
        """Return the hit rate by the law of rounds.

        Parameters
        ----------
        response : float
            Does not count [s].
        sessions, capacity : ndarray
            Calls in flight, which do not count, and tokens that the cache holds [1].

        Returns
        -------
        ndarray
            Share of the prompt tokens [1].
        """
        calls, population = self.calls, float(self.traffic.population)
        number = np.arange(len(calls.session)) - np.flatnonzero(calls.first)[calls.session]
        count = np.bincount(number)
        context = np.bincount(number, calls.prompt + calls.output) / count
        # Half of the others have been asked in this round when a session is, half in the one before.
        middle = (context + np.append(0.0, context[:-1])) / 2
        share = np.bincount(number, calls.reusable) / calls.prompt.sum()
        fit = np.asarray(capacity, dtype=float)[..., None] / (population * middle)
        kept = np.asarray(fit >= 1, dtype=float) if self.traffic.rounds == "fixed" else caching.round_kept(fit=fit)
        return (share * kept).sum(axis=-1) + np.zeros(np.shape(sessions))


def _place(knots: Any, value: Any) -> tuple[Any, Any]:
    """Return the interval of each value and the share of its upper end, clamped."""
    at = np.clip(np.searchsorted(knots, value) - 1, 0, len(knots) - 2)
    return at, np.clip((value - knots[at]) / (knots[at + 1] - knots[at]), 0.0, 1.0)


def _corners(flat: Any, at: Any, places: Places) -> Any:
    width = len(_FITS)
    near, far = flat[at], flat[at + width]
    near = near + places.across * (flat[at + 1] - near)
    far = far + places.across * (flat[at + width + 1] - far)
    return near + places.along * (far - near)


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
    if traffic.rounds:
        return RoundTable(calls, traffic)
    return HitTable(calls, traffic if groups is None else replace(traffic, shared_groups=max(1.0, groups)))

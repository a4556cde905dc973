"""Hit rate of a prefix cache under sessions: two moments of what others touch in a gap.

A call finds what the cache still holds of its context. Between the call before and this one the N - 1 other sessions
touch distinct tokens, each as one slot of sessions does in a window of that length; of their sum two moments are known,
and the cache, which evicts the oldest from the tail, keeps of the context what they leave room for. Che's
approximation is the same with the variance left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammainc

from perfmodel.equations import caching
from perfmodel.serving.sessions import SessionCalls

#: Gaps that stand for those of a traffic, and sizes of the context in each.
_GAPS, _SIZES = 24, 4
#: Contexts in the cache from which on the sum over other sessions is normal for all that counts.
MANY_CONTEXTS = 40.0
#: Tokens above which some are held, and not what sums lose to rounding.
_SOME = 1e-3


@dataclass(frozen=True)
class Windows:
    """Distinct tokens that one slot of sessions touches in a window, ended sessions included.

    Attributes
    ----------
    time : ndarray
        Rising lengths of windows [s].
    mean, variance : ndarray
        Of the tokens of the last call in the window of each session called in it [1].
    sessions : ndarray
        Mean number of the sessions called in it [1].
    touched : ndarray
        Share of the windows in which the slot makes a call at all [1].
    """

    time: Any
    mean: Any
    variance: Any
    sessions: Any
    touched: Any

    def at(self, time: Any) -> tuple[Any, ...]:
        """Return all of them in windows of other lengths: by power laws between the rows, in proportion beyond them.

        Parameters
        ----------
        time : ndarray
            Lengths of windows [s].

        Returns
        -------
        tuple of ndarray
            Mean and variance of the tokens, mean number of sessions, share of windows with a call [1].
        """
        asked = np.log(np.maximum(time, 1e-9))
        knots = np.log(self.time)
        beyond = np.minimum(asked - knots[0], 0.0) + np.maximum(asked - knots[-1], 0.0)
        *moments, touched = (
            np.exp(np.interp(asked, knots, np.log(np.maximum(values, 1e-9))) + beyond)
            for values in (self.mean, self.variance, self.sessions, self.touched)
        )
        return *moments, np.minimum(touched, 1.0)


@dataclass(frozen=True)
class Reuses:
    """What calls can use again, and after which gap.

    Attributes
    ----------
    gap : ndarray
        Time from the start of the call before to the start of this one [s].
    idle : ndarray
        The part of it in which nothing ran [s].
    reusable : ndarray
        Tokens that could be used again [1].
    share : ndarray
        These tokens as a share of all prompt tokens; the sum is the hit rate of a cache without bound [1].
    """

    gap: Any
    idle: Any
    reusable: Any
    share: Any


def session_windows(
    calls: SessionCalls, time: Any, response: float, *, ttl: float = np.inf, shared: float = 0.0
) -> Windows:
    """Return the moments of the tokens that one slot touches in windows, filled with one session after the other.

    Parameters
    ----------
    calls : SessionCalls
    time : ndarray
        Rising lengths of windows [s].
    response : float
        Time that a call takes [s].
    ttl : float
        Time after which a context that nobody asks for is dropped [s].
    shared : float
        Tokens at the head that belong to no single session, which are left out [1].

    Returns
    -------
    Windows
    """
    started, took, total = calls.clock(response), calls.took(response), calls.total(response)
    until = np.where(calls.last, np.inf, np.append(np.diff(started), np.inf))
    whole = np.maximum(calls.prompt + calls.output, shared)
    # What the next call does not use again stays in the cache as dead weight, as what a session leaves at its end.
    used = np.minimum(whole, np.where(calls.last, np.inf, np.maximum(np.append(calls.reusable[1:], 0.0), shared)))
    dead = np.flatnonzero(whole - used > _SOME)
    tokens = np.concatenate([used - shared, (whole - used)[dead]])
    started = np.concatenate([started, started[dead]])
    until = np.concatenate([until, np.full(len(dead), np.inf)])
    alive = np.concatenate([took, took[dead]]) + ttl
    count = len(whole)
    rows = []
    for window in time:
        held = np.minimum(until, np.minimum(window, alive))
        average = float((tokens * held).sum() / total)
        square, touched = _square(tokens, started, held, total)
        number = float(held[:count].sum() / total)
        rows.append((average, max(0.0, square / total - average**2), number, touched / total))
    return Windows(np.asarray(time, dtype=float), *np.array(rows).T)


def _square(tokens: Any, started: Any, held: Any, total: float) -> tuple[float, float]:
    """Return the integral of the square of all tokens held and the time in which any are; the slot goes in a circle."""
    ended = started + held
    rounds = np.floor(ended / total)
    times = np.concatenate([[0.0], started, ended - rounds * total])
    change = np.concatenate([[float((tokens * rounds).sum())], tokens, -tokens])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])
    time = np.diff(np.append(times[order], total))
    return float((level**2 * time).sum()), float(time[level > _SOME].sum())


def session_reuses(calls: SessionCalls, response: float, *, ttl: float = np.inf, shared: float = 0.0) -> Reuses:
    """Return what calls after the first of their session can use again, in groups by gap and by size.

    Parameters
    ----------
    calls : SessionCalls
    response : float
        Time that a call takes [s].
    ttl : float
        Time after which a context that nobody asks for is dropped [s].
    shared : float
        Tokens at the head that belong to no single session, which are left out [1].

    Returns
    -------
    Reuses
    """
    use = ~calls.first
    # Where calls went elsewhere in between, their responses are part of the gap.
    gap = np.diff(calls.clock(response), prepend=0.0)[use]
    idle = gap - np.roll(calls.took(response), 1)[use]
    reusable = np.maximum(calls.reusable - shared, 0.0)[use]
    total = float(calls.prompt.sum())
    rows = []
    for group in np.array_split(np.argsort(gap, kind="stable"), _GAPS):
        for part in np.array_split(group[np.argsort(reusable[group], kind="stable")], _SIZES):
            tokens = reusable[part]
            weight = float(tokens.sum())
            if weight > 0:
                means = ((tokens * values[part]).sum() / weight for values in (gap, idle))
                kept = float(tokens[idle[part] <= ttl].sum())
                rows.append((*means, weight / len(part), kept / total))
    return Reuses(*np.array(rows).reshape(-1, 4).T)


def kept_share(context: Any, capacity: Any, mean: Any, variance: Any, idle: Any = 0.0) -> Any:
    """Share of a context that the cache still holds, by a gamma law of what others touched in between.

    A sum of positive terms of which most are zero is skewed while few contexts fit, and may be zero itself; with many
    the gamma law is the normal one of :func:`~perfmodel.equations.caching.kept_tokens`, which then is used.

    Parameters
    ----------
    context, capacity, mean, variance : ndarray
        Tokens, and moments of the tokens that others touched [1].
    idle : ndarray
        Chance that they touched none [1].

    Returns
    -------
    ndarray
        Share [1].
    """
    context, capacity, mean, variance, idle = np.broadcast_arrays(
        *(np.asarray(value, dtype=float) for value in (context, capacity, mean, variance, idle))
    )
    tokens = caching.kept_tokens(context=context, capacity=capacity, mean=mean, variance=variance)
    tokens = np.asarray(tokens, dtype=float).copy()
    # Where others are certain to touch as much, no law matters.
    few = (capacity < MANY_CONTEXTS * np.maximum(context, 1.0)) & (mean > 0) & (variance > 1e-6 * mean**2)
    if few.any():
        size, room, m, v, none = context[few], capacity[few], mean[few], variance[few], idle[few]
        # Moments of what is touched where any is; the variance of a sum is no less than that of its sign.
        none = np.minimum(none, v / (v + m * m))
        some = np.maximum(1 - none, 1e-12)
        average = m / some
        spread = np.maximum((v + m * m) / some - average**2, 1e-6 * average**2)
        shape, scale = average**2 / spread, spread / average
        kept = _gamma_room(room, average, shape, scale) - _gamma_room(room - size, average, shape, scale)
        tokens[few] = none * np.clip(room, 0.0, size) + some * kept
    return np.clip(tokens / np.maximum(context, 1e-300), 0.0, 1.0)


def _gamma_room(capacity: Any, mean: Any, shape: Any, scale: Any) -> Any:
    """Return the mean room that a gamma law leaves below a capacity."""
    at = np.maximum(capacity, 0.0) / scale
    return np.maximum(capacity, 0.0) * gammainc(shape, at) - mean * gammainc(shape + 1, at)


def hit_rate(capacity: Any, sessions: Any, windows: Windows, reuses: Reuses) -> Any:
    """Return the share of prompt tokens that an LRU cache finds, where sessions share nothing.

    Parameters
    ----------
    capacity : ndarray
        Tokens that the cache holds [1].
    sessions : ndarray
        Live sessions on it [1].
    windows : Windows
        What one slot touches.
    reuses : Reuses
        What can be used again, and after which gap.

    Returns
    -------
    ndarray
        Share [1].
    """
    capacity = np.asarray(capacity, dtype=float)[..., None]
    others = np.maximum(np.asarray(sessions, dtype=float) - 1, 0.0)[..., None]
    mean, variance, _, touched = windows.at(reuses.gap)
    idle = (1 - touched) ** others
    return (reuses.share * kept_share(reuses.reusable, capacity, others * mean, others * variance, idle)).sum(axis=-1)


def ttl_hit_rate(ttl: Any, reuses: Reuses) -> Any:
    """Return the share of prompt tokens that a cache finds which keeps every context for so long after its last use.

    Parameters
    ----------
    ttl : ndarray
        Time to live [s].
    reuses : Reuses

    Returns
    -------
    ndarray
        Share [1].
    """
    return (reuses.share * (reuses.idle <= np.asarray(ttl, dtype=float)[..., None])).sum(axis=-1)

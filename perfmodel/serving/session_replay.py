"""A prefix cache under sessions, call by call: a length per session and shared prefix instead of every block.

Blocks of one session are used together and the cache evicts from the tail, so that what it holds of a session is a
head of its context: one number.  That is exact: it hits as a cache does that keeps every block in one list by last use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.serving.session_machine import SessionRouting
from perfmodel.serving.sessions import SessionCalls

#: Tokens of a block.
BLOCK = 64


class SessionCache:
    """LRU over sessions and shared prefixes with eviction from the tail, in blocks.

    Parameters
    ----------
    capacity : int
        Blocks that it holds [1].
    ttl : float
        Time after which what nobody asks for is dropped [s].
    """

    def __init__(self, capacity: int, ttl: float = float("inf")) -> None:
        self.room = capacity
        self.ttl = ttl
        # Entries by last use: [blocks, owner, time].  An owner is where its entry says so; what has none is dead
        # weight.
        self._order: OrderedDict[int, list[Any]] = OrderedDict()
        self._entry: dict[Any, int] = {}
        self._next = 0

    def held(self, owner: Any) -> int:
        """Return the blocks held of a session or of a shared prefix.

        Parameters
        ----------
        owner : hashable

        Returns
        -------
        int
        """
        at = self._entry.get(owner)
        return 0 if at is None else int(self._order[at][0])

    def take(self, owner: Any, kept: int) -> int:
        """Take what is held of a session out of the list of what may be evicted; its room stays taken.

        Parameters
        ----------
        owner : hashable
        kept : int
            Blocks that can be used again; what is held behind them stays in its place, dead [1].

        Returns
        -------
        int
            Blocks held of those.
        """
        at = self._entry.pop(owner, None)
        if at is None:
            return 0
        entry = self._order[at]
        blocks: int = entry[0]
        if blocks > kept:
            entry[0], entry[1] = blocks - kept, None
            return kept
        del self._order[at]
        return blocks

    def put(self, owner: Any, blocks: int, time: float) -> None:
        """Put blocks, whose room is taken, at the end of the list as the last that were used.

        Parameters
        ----------
        owner : hashable
        blocks : int
            Blocks [1].
        time : float
            Now [s].
        """
        if blocks:
            self._order[self._next] = [blocks, owner, time]
            self._entry[owner] = self._next
            self._next += 1

    def evict(self) -> None:
        """Evict the oldest from the tail until the room taken is no more than there is."""
        order = self._order
        while self.room < 0 and order:
            at = next(iter(order))
            entry = order[at]
            if entry[0] > -self.room:
                entry[0] += self.room
                self.room = 0
                return
            self.room += entry[0]
            self._forget(at)

    def expire(self, time: float) -> None:
        """Drop what nobody has asked for within the time to live.

        Parameters
        ----------
        time : float
            Now [s].
        """
        order = self._order
        while order:
            at = next(iter(order))
            if order[at][2] >= time - self.ttl:
                return
            self.room += order[at][0]
            self._forget(at)

    def _forget(self, at: int) -> None:
        owner = self._order.pop(at)[1]
        if owner is not None:
            del self._entry[owner]

    def call(self, session: Any, group: Any, time: float, reusable: int, whole: int, shared: int) -> int:
        """Serve a call that is over at once, and return the blocks that it finds.

        Parameters
        ----------
        session, group : hashable
            Whose call it is, and whose prefix it begins with.
        time : float
            Now [s].
        reusable, whole, shared : int
            Blocks that can be used again, of the whole context afterwards, and of the shared prefix [1].

        Returns
        -------
        int
            Blocks found [1].
        """
        if self.ttl < float("inf"):
            self.expire(time)
        prefix = self.take(group, shared) if shared else 0
        own = self.take(session, reusable - shared if reusable > shared else 0)
        self.room -= whole - prefix - own
        # The head is used last, so that it is evicted last.
        self.put(session, whole - shared, time)
        if shared:
            self.put(group, shared, time)
        if self.room < 0:
            self.evict()
        return min(prefix + own if prefix == shared else prefix, reusable)


@dataclass(frozen=True)
class Stream:
    """Calls in the order of time.

    Attributes
    ----------
    time : ndarray
        When each starts [s].
    session : ndarray of int
        Whose it is.
    group : ndarray of int
        Shared prefix that it begins with.
    prompt, output, reusable : ndarray
        Tokens [1].
    shared : int
        Tokens of a shared prefix [1].
    """

    time: Any
    session: Any
    group: Any
    prompt: Any
    output: Any
    reusable: Any
    shared: int = 0


def stream(
    calls: SessionCalls, sessions: int, horizon: float, response: float, seed: int, *, shared: int = 0, groups: int = 1
) -> Stream:
    """Return the calls of slots that run sessions one after the other, from a random time on.

    Parameters
    ----------
    calls : SessionCalls
        Sessions to draw from.
    sessions : int
        Slots [1].
    horizon : float
        Time that is looked at [s].
    response : float
        Time that a call takes [s].
    seed : int
        Of the draws.
    shared, groups : int
        Tokens of a shared prefix, and how many there are [1].

    Returns
    -------
    Stream
    """
    generator = np.random.default_rng(seed)
    first = np.flatnonzero(calls.first)
    count = np.diff(np.append(first, len(calls.session)))
    started = calls.clock(response)
    length = np.diff(np.append(started[first], calls.total(response)))
    parts, names = [], 0
    for _ in range(sessions):
        order = generator.permutation(len(first))
        begins = np.concatenate([[0.0], np.cumsum(length[order])])
        total = begins[-1]
        offset = generator.random() * total
        at = np.concatenate([np.arange(first[k], first[k] + count[k]) for k in order])
        clock = started[at] - np.repeat(started[first[order]] - begins[:-1], count[order])
        which = np.repeat(np.arange(len(order)), count[order])
        for turn in range(int(horizon // total) + 2):
            when = clock + turn * total - offset
            use = (when >= 0) & (when < horizon)
            parts.append((when[use], names + which[use], at[use]))
            # Going round again these are other sessions.
            names += len(order)
    time, session, at = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(time, kind="stable")
    session, at = session[order], at[order]
    group = generator.integers(0, groups, names)[session]
    return Stream(time[order], session, group, calls.prompt[at], calls.output[at], calls.reusable[at], shared)


def replay(
    calls: Stream,
    capacities: Sequence[float],
    routing: SessionRouting | None = None,
    *,
    ttl: float = float("inf"),
    seed: int = 0,
) -> Any:
    """Return the tokens that each call finds, in caches of several capacities.

    Parameters
    ----------
    calls : Stream
    capacities : sequence of float
        Tokens of one replica, one cache each: of the memory, of it and an exclusive tier below, or of an inclusive
        tier [1].
    routing : SessionRouting, optional
        One replica where not given.
    ttl : float
        Time to live [s].
    seed : int
        Of random routing.

    Returns
    -------
    ndarray
        Tokens found, by capacity and call [1].
    """
    routing = routing or SessionRouting()
    rows = _rows(calls)
    places = _places(calls, routing, seed)
    hits = np.zeros((len(capacities), len(calls.time)))
    for row, capacity in enumerate(capacities):
        caches = [SessionCache(int(capacity // BLOCK), ttl) for _ in range(int(routing.replicas))]
        if len(caches) == 1:
            call = caches[0].call
            hits[row] = [call(*of) for of in rows]
        else:
            hits[row] = [caches[place].call(*of) for place, of in zip(places, rows, strict=True)]
    return hits * BLOCK


def _rows(calls: Stream) -> list[tuple[Any, ...]]:
    """Return what the cache is asked, in plain numbers: they are faster than those of arrays."""
    blocks = [(np.asarray(part) // BLOCK).astype(int) for part in (calls.reusable, calls.prompt + calls.output)]
    shared = calls.shared // BLOCK
    names = (calls.session.tolist(), (-1 - calls.group).tolist())
    whole = np.maximum(blocks[1], shared)
    return list(
        zip(*names, calls.time.tolist(), blocks[0].tolist(), whole.tolist(), [shared] * len(whole), strict=True)
    )


def _places(calls: Stream, routing: SessionRouting, seed: int) -> list[int]:
    """Return the replica of each call."""
    replicas = int(routing.replicas)
    generator = np.random.default_rng(seed)
    count = len(calls.time)
    home = calls.group if routing.policy == "prefix" and calls.shared else calls.session
    spread = int(routing.spread)
    place = home % replicas if spread == 1 else (home + generator.integers(0, spread, count)) % replicas
    if routing.policy == "prefix" and routing.spill > 0:
        place = np.where(generator.random(count) < routing.spill, generator.integers(0, replicas, count), place)
    return [int(at) for at in place]

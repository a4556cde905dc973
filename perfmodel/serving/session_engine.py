"""Sessions on one replica, call by call: a cache, an engine that prefills and decodes in turns, pauses between calls.

Between two events the same sequences decode, so that time passes over all their steps at once.  A call holds the
cache of its whole length while it runs, which squeezes what others left; calls for which there is no room wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Literal

import numpy as np

from perfmodel.serving.session_machine import SessionMachine, Tier
from perfmodel.serving.session_replay import BLOCK, SessionCache
from perfmodel.serving.sessions import SessionCalls

Scheduler = Literal["arrival", "least-served"]


@dataclass(frozen=True)
class SessionRun:
    """Calls in the order in which they ended.

    Attributes
    ----------
    asked, first, ended : ndarray
        When each was made, had its first token and was over [s].
    prompt, found : ndarray
        Tokens of the prompt, and those found in a cache [1].
    loaded : ndarray
        Of these those that came from a tier below the memory [1].
    output : ndarray
        Output tokens [1].
    """

    asked: Any
    first: Any
    ended: Any
    prompt: Any
    found: Any
    loaded: Any
    output: Any

    def hit_rate(self, after: float = 0.5) -> float:
        """Share of the prompt tokens found, of the calls after so large a share of them [1].

        Parameters
        ----------
        after : float
            Share of the calls that is left out [1].

        Returns
        -------
        float
        """
        late = slice(int(after * len(self.prompt)), None)
        return float(self.found[late].sum() / self.prompt[late].sum())


class _Engine:
    """State of a replica and its users; one event after the other."""

    def __init__(
        self,
        machine: SessionMachine,
        calls: SessionCalls,
        users: int,
        tiers: Sequence[Tier],
        scheduler: Scheduler,
        seed: int,
    ) -> None:
        self.generator = np.random.default_rng(seed)
        self.front, self.least_served = float(machine.front), scheduler == "least-served"
        most = int(min(float(machine.slots), float(machine.batch[-1])))
        self.slots = most
        self.step = [0.0, *np.interp(np.arange(1, most + 1), machine.batch, machine.step).tolist()]
        self.prompt_knots, self.prefill_knots = np.asarray(machine.prompt), np.asarray(machine.prefill)
        self.least = float(machine.prefill[0])
        self.whole_time = np.interp(calls.prompt, machine.prompt, machine.prefill).tolist()
        self.saved_time = np.interp(calls.reusable, machine.prompt, machine.prefill).tolist()
        self.prompt, self.output = calls.prompt.tolist(), calls.output.tolist()
        self.reusable = (calls.reusable // BLOCK).astype(int).tolist()
        self.whole = np.maximum(1, (calls.prompt + calls.output) // BLOCK).astype(int).tolist()
        self.think, self.last = np.diff(calls.thought, append=0.0).tolist(), calls.last.tolist()
        self.starts = np.flatnonzero(calls.first).tolist()
        self.cache = SessionCache(int(float(machine.pool) / float(machine.token_bytes) // BLOCK))
        self.tiers = [
            (SessionCache(int(float(tier.capacity) / float(machine.token_bytes) // BLOCK)), float(tier.start),
             float(machine.token_bytes) / float(tier.bandwidth))
            for tier in tiers
        ]  # fmt: skip
        self.most_pinned = self.cache.room
        self.pinned = 0
        self.now, self.decoded = 0.0, 0.0
        self.at = self.generator.integers(0, len(self.prompt), users).tolist()
        self.session = list(range(users))
        self.sessions = users
        self.served = [0.0] * users
        self.wake: list[tuple[float, int]] = []
        self.queue: list[tuple[float, float, int]] = []
        self.running: list[tuple[float, int, float, float, int, int]] = []
        self.rows: list[tuple[float, ...]] = []

    def prefill(self, at: int, cached: int) -> float:
        """Return the time of a prompt of which so many blocks are held [s]."""
        if cached == self.reusable[at]:
            saved = self.saved_time[at]
        elif cached == 0:
            return float(self.whole_time[at])
        else:
            saved = float(np.interp(cached * BLOCK, self.prompt_knots, self.prefill_knots))
        return float(max(self.least, self.whole_time[at] - saved + self.least))

    def begin(self) -> bool:
        """Prefill the next prompt in line, if there is one and room for it."""
        if not self.queue or len(self.running) >= self.slots:
            return False
        user = self.queue[0][2]
        at = self.at[user]
        need = min(self.whole[at], self.most_pinned)
        if self.pinned + need > self.most_pinned:
            return False
        asked = heappop(self.queue)[1]
        session, cache = self.session[user], self.cache
        hit = cache.take(session, self.reusable[at])
        cache.room -= need - hit
        if cache.room < 0:
            cache.evict()
        self.pinned += need
        cached, load = hit, 0.0
        for tier, start, token in self.tiers:
            there = tier.call(session, None, self.now, self.reusable[at], self.whole[at], 0)
            if there > cached:
                load += start + (there - cached) * BLOCK * token
                cached = there
        time = self.prefill(at, cached) + load
        self.now += time
        self.served[user] += time
        heappush(
            self.running, (self.decoded + self.output[at] - 1, user, asked, self.now + self.front, cached, cached - hit)
        )
        if self.output[at] <= 1:
            self.end()
        return True

    def end(self) -> None:
        """End the call that is over first, and let its user think."""
        over, user, asked, first, finished, loaded = heappop(self.running)
        self.decoded = over
        at, session = self.at[user], self.session[user]
        need = min(self.whole[at], self.most_pinned)
        self.pinned -= need
        self.cache.put(session, need, self.now)
        over = self.now + self.front
        self.rows.append((asked, first, over, self.prompt[at], finished * BLOCK, loaded * BLOCK, self.output[at]))
        if self.last[at]:
            self.at[user] = self.starts[int(self.generator.random() * len(self.starts))]
            self.session[user] = self.sessions
            self.sessions += 1
            self.served[user] = 0.0
            heappush(self.wake, (self.now, user))
        else:
            self.at[user] = at + 1
            heappush(self.wake, (self.now + self.think[at], user))

    def advance(self) -> None:
        """Let time pass until the next event."""
        wake, running = self.wake, self.running
        while wake and wake[0][0] <= self.now:
            asked, user = heappop(wake)
            heappush(self.queue, (self.served[user] if self.least_served else asked, asked, user))
        if self.begin():
            return
        if not running:
            self.now = wake[0][0]
            return
        step = self.step[len(running)]
        over = self.now + (running[0][0] - self.decoded) * step
        if wake and wake[0][0] < over:
            self.decoded += (wake[0][0] - self.now) / step
            self.now = wake[0][0]
            return
        self.now = over
        self.end()


def run_sessions(
    machine: SessionMachine,
    calls: SessionCalls,
    users: int,
    count: int,
    *,
    warm: bool = True,
    tiers: Sequence[Tier] = (),
    scheduler: Scheduler = "arrival",
    seed: int = 0,
) -> SessionRun:
    """Run sessions of so many users on one replica until so many calls are over.

    Parameters
    ----------
    machine : SessionMachine
        Numbers plain floats.
    calls : SessionCalls
        Sessions to draw from, without a shared prefix.
    users : int
        Live sessions [1].
    count : int
        Calls to run [1].
    warm : bool
        Whether users are thinking and the cache holds their contexts; else it is empty and all call at once.
    tiers : sequence of Tier
        Inclusive tiers below the memory, from which the engine waits for loads.
    scheduler : str
        Who is first in line: who came first, or whose session was computed for the shortest time.
    seed : int
        Of the draws.

    Returns
    -------
    SessionRun
    """
    engine = _Engine(machine, calls, users, tiers, scheduler, seed)
    for user in range(users):
        at, time = engine.at[user], 0.0
        if warm:
            cached = engine.reusable[at]
            if cached and engine.cache.room >= cached:
                engine.cache.put(user, cached, 0.0)
                engine.cache.room -= cached
            for tier, *_ in engine.tiers:
                tier.call(user, None, 0.0, 0, cached, 0)
            gap = engine.think[at - 1] if at and not engine.last[at - 1] else 0.0
            time = gap * engine.generator.random()
        heappush(engine.wake, (time, user))
    while len(engine.rows) < count:
        engine.advance()
    return SessionRun(*np.array(engine.rows).T)

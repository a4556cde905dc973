"""Sessions on machines: a closed loop of calls and pauses whose hit rate depends on itself.

A hit saves prefill, so that calls take less time; calls that take longer stretch the gaps, in which more is evicted.
Where both agree is a fixed point. There may be two that are stable: a warm cache keeps to the fast one, a cold one
stays at the slow one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from perfmodel.equations import caching
from perfmodel.serving.session_machine import FirstToken, SessionMachine, SessionRouting, Tier, load_time, prefill_time
from perfmodel.serving.session_table import HitTable, Places, hit_table
from perfmodel.serving.sessions import SessionCalls, SessionTraffic, drawn_calls

__all__ = ["SessionAnswer", "SessionCliff", "SessionRouting", "session_answer", "session_cliff"]

#: Ratio of the response times at which fixed points are looked for, and halvings of an interval that has one.
_SCAN, _HALVINGS = 1.5, 7
#: Settings that are worked out together, so that they stay in the cache of a core.
_TOGETHER = 16384
#: Shares at which the law of the time of a call itself is read.
_SHARES = (np.arange(48) + 0.5) / 48
#: Ratio of response times from which on two fixed points are two.
_APART = 1.05


@dataclass(frozen=True)
class SessionAnswer:
    """What sessions meet; every number has the shape of the users and capacities asked for.

    Attributes
    ----------
    hit_rate : Number
        Share of the prompt tokens found in any tier [1].
    hit_by_tier : dict
        The same by tier, ``memory`` first [1].
    hit_ceiling : float
        Share that a cache without bound finds [1].
    ttft, ttft_hit, ttft_miss : Number
        Mean time to first token: of all calls, of those whose context is in memory, and of those whose context is
        lost [s].
    first_token : FirstToken
        Law of the time to first token, of which quantiles are read.
    tpot : Number
        Mean time of a token behind the first [s].
    call : Number
        Mean time of a call [s].
    task : Number
        Mean time from a message of a person to the end of the last call that it causes [s].
    calls_per_task : float
        Calls of a task, those of subagents included [1].
    call_rate : Number
        Calls a second, all replicas together [1/s].
    tasks_per_hour : Number
        Tasks an hour, all replicas together [1/s times an hour].
    running, waiting : Number
        Calls that run, and that wait for a place, of one replica [1].
    engine_load : Number
        Share of time in which the engine prefills [1].
    tier_load : dict
        Bandwidth that loads of a tier use, as a share of what it has [1].
    tier_bandwidth : dict
        The same of one replica [B/s].
    crossover : dict
        Tokens from which on a load from the tier is faster than computing, at the traffic's mean time a token [1].
    cold : SessionAnswer, optional
        What a start with an empty cache leads to, where that is another fixed point in any setting; the same numbers
        elsewhere.
    """

    hit_rate: Any
    hit_by_tier: dict[str, Any]
    hit_ceiling: float
    ttft: Any
    ttft_hit: Any
    ttft_miss: Any
    first_token: FirstToken
    tpot: Any
    call: Any
    task: Any
    calls_per_task: float
    call_rate: Any
    tasks_per_hour: Any
    running: Any
    waiting: Any
    engine_load: Any
    tier_load: dict[str, Any]
    tier_bandwidth: dict[str, Any]
    crossover: dict[str, Any]
    cold: SessionAnswer | None = None


@dataclass(frozen=True)
class SessionCliff:
    """Where the hit rate falls below a share of what could be hit.

    Attributes
    ----------
    share : float
        That share of the ceiling [1].
    users : float
        Users up to which it holds, from a warm start [1].
    users_cold : float
        Users up to which it also holds from a cold start [1].
    pool : float
        Memory of a replica from which on it holds for the users asked for [B].
    """

    share: float
    users: float
    users_cold: float
    pool: float


@dataclass(frozen=True)
class _Work:
    """Constants of a traffic on a machine: work of a call whose context is held, and of one whose context is lost."""

    output: float
    think: float
    prompt: float
    context: float
    ceiling: float
    lost: float
    flow: Any
    hit: tuple[float, float, float]
    miss: tuple[float, float, float]
    own: tuple[Any, Any]
    thinking: tuple[Any, Any]
    loads: tuple[Any, ...]
    calls_per_task: float
    tool_time: float


def _work(machine: SessionMachine, traffic: SessionTraffic, tiers: Sequence[Tier]) -> _Work:
    calls = drawn_calls(traffic)
    first = calls.first
    think = calls.all_thought / len(first)
    cached = caching.checkpointed_tokens(tokens=calls.reusable, spacing=machine.checkpoint)

    none = np.zeros_like(cached)

    def latency_of(kept: Any) -> Any:
        return prefill_time(machine, machine.latency, calls.prompt, kept)

    def moments(kept: Any) -> tuple[float, float, float]:
        time, latency = prefill_time(machine, machine.prefill, calls.prompt, kept), latency_of(kept)
        return float(time.mean()), float((time**2).mean()), float(latency.mean())

    tasks = float(calls.human.sum())
    tool = np.diff(calls.thought, prepend=0.0)
    return _Work(
        output=float(calls.output.mean()),
        think=float(think),
        prompt=float(calls.prompt.mean()),
        context=float((calls.prompt + calls.output).mean()),
        ceiling=calls.ceiling,
        lost=1 - float(cached.sum() / max(1.0, calls.reusable.sum())),
        # Calls a second by batch, if the engine did nothing but decode.
        flow=np.maximum.accumulate(np.asarray(machine.batch) / (calls.output.mean() * np.asarray(machine.step))),
        hit=moments(cached),
        miss=moments(none),
        own=(np.quantile(latency_of(cached), _SHARES), np.quantile(latency_of(none), _SHARES)),
        thinking=_thinking(calls),
        loads=tuple(load_time(machine, tier, calls.prompt, cached) for tier in tiers),
        calls_per_task=len(first) / tasks,
        tool_time=float(tool[~calls.human].sum() / tasks),
    )


def _thinking(calls: SessionCalls) -> tuple[Any, Any]:
    """Return the mean share of pauses that goes on within a time, over the logarithm of that time."""
    time = np.geomspace(1e-3, 1e5, 49)
    pause = np.quantile(np.diff(calls.thought, append=calls.all_thought), _SHARES)
    return np.log(time), np.minimum(pause, time[:, None]).mean(axis=-1) / time


@dataclass(frozen=True)
class _Setting:
    """Flat arrays of what varies, and how a response time is tried on them."""

    machine: SessionMachine
    work: _Work
    tiers: tuple[Tier, ...]
    #: Sessions of one replica; by tier, the memory first: a table, places in it, and the share of calls that may hit.
    users: Any
    places: tuple[tuple[HitTable, Places, float], ...]
    most: Any

    def part(self, where: Any) -> _Setting:
        """Return some of the settings."""
        loads = tuple(
            tuple(moment[where] if np.ndim(moment) else moment for moment in load) for load in self.work.loads
        )
        return replace(
            self,
            work=replace(self.work, loads=loads),
            users=self.users[where],
            places=tuple((table, places.part(where), share) for table, places, share in self.places),
            most=self.most[where],
        )

    def hits(self, response: Any) -> list[Any]:
        """Return the share of the prompt tokens that lies in each tier and in those above it."""
        rates: list[Any] = []
        for table, places, share in self.places:
            there = share * (1 - self.work.lost) * table.read(response, places)
            rates.append(np.maximum(rates[-1], there) if rates else there)
        return rates

    def tried(self, response: Any) -> dict[str, Any]:
        """Return what a response time leads to: the one that follows, and what it is made of."""
        work, machine = self.work, self.machine
        ceiling = max(1e-12, work.ceiling * (1 - work.lost))
        hits = self.hits(response)
        tier_share = [np.clip((low - high) / ceiling, 0.0, 1.0) for high, low in pairwise(hits)]
        lost = np.clip(1 - hits[-1] / ceiling, 0.0, 1.0)
        # Where the engine waits for a load it is part of its work.
        load, square = np.zeros_like(lost), (1 - lost) * work.hit[1] + lost * work.miss[1]
        for share, (added, squared) in zip(tier_share, work.loads, strict=True):
            load, square = load + share * added, square + share * (squared - work.hit[1])
        time = (1 - lost) * work.hit[0] + lost * work.miss[0] + load
        rate = caching.finite_source_rate(sessions=self.users, response=response, think=work.think)
        busy = rate * time
        variation = np.maximum(square / time**2 - 1, 0.0)
        left = np.maximum(1 - busy, 1e-9)
        # Work that a call meets lasts for so long, in which those that decode stand still and make no call.
        knots, survive = work.thinking
        flowing = np.interp(np.log(time * (1 + variation) / left), knots, survive)
        wait = caching.finite_source_wait(
            rate=rate, service=time, variation=variation, sessions=np.maximum(self.users, 1.0), flowing=flowing
        )
        running, full = self._running(rate / left)
        decode = running / rate
        latency = (1 - lost) * work.hit[2] + lost * work.miss[2] + load
        follows = machine.front + wait + latency + decode
        return {
            "hits": hits,
            "tier_share": tier_share,
            "lost": lost,
            "rate": rate,
            "busy": busy,
            "wait": wait,
            "met": flowing * busy / np.maximum(1 - busy * (1 - flowing), 1e-9),
            "load": load,
            "latency": latency,
            "decode": decode,
            "running": running,
            "follows": np.where((busy >= 1) | full, np.inf, follows),
            "plain": follows,
        }

    def _running(self, rate: Any) -> tuple[Any, Any]:
        """Return the calls that decode at a rate a second of decoding, and where there is no room for them."""
        flow, batch = self.work.flow, self.machine.batch
        running = np.where(rate < flow[0], rate / flow[0], np.interp(rate, flow, batch))
        return np.minimum(running, self.most), (rate > flow[-1]) | (running > np.maximum(self.most, 1.0))

    def bounds(self) -> tuple[float, float]:
        """Return response times between which all fixed points lie: one call alone, and all in line without a hit."""
        work, machine = self.work, self.machine
        alone = machine.front + min(work.hit[2], work.miss[2]) + 1 / work.flow[0]
        fewest = np.maximum(1.0, self.most.min())
        slowest = machine.front + work.miss[0] + work.miss[2] + 1 / float(np.interp(fewest, machine.batch, work.flow))
        return 0.8 * alone, 2 * alone + 2 * float(self.users.max() + 1) * slowest

    def able(self, response: Any) -> Any:
        """Whether calls need no more than this response time."""
        return self.tried(response)["follows"] <= response


def _fixed_points(setting: _Setting) -> tuple[Any, Any]:
    """Return the least and the greatest stable response time of each setting [s]."""
    low, high = setting.bounds()
    points = 2 + int(np.log(high / low) / np.log(_SCAN))
    scan = np.geomspace(low, high, points)
    size = len(setting.users)
    if size <= _TOGETHER // points:
        able = setting.able(np.broadcast_to(scan[:, None], (points, size)))
    else:
        able = np.array([setting.able(float(response)) for response in scan])
    able[-1] = True
    first = np.argmax(able, axis=0)
    last = points - np.argmin(able[::-1], axis=0)
    last = np.where(able.all(axis=0), 0, last)
    warm = _halved(setting, scan, first)
    cold, apart = warm.copy(), np.flatnonzero(last != first)
    if len(apart):
        cold[apart] = _halved(setting.part(apart), scan, last[apart])
    return warm, cold


def _halved(setting: _Setting, scan: Any, at: Any) -> Any:
    """Return the response time between a knot that is too short and the next one."""
    low, high = np.log(scan[np.maximum(at - 1, 0)]), np.log(scan[at])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        able = setting.able(np.exp(middle))
        low, high = np.where(able, low, middle), np.where(able, middle, high)
    return np.exp(high)


def session_answer(
    machine: SessionMachine,
    traffic: SessionTraffic,
    users: Any,
    tiers: Sequence[Tier] = (),
    routing: SessionRouting | None = None,
) -> SessionAnswer:
    """Return what users with sessions meet on replicas of a machine.

    Parameters
    ----------
    machine : SessionMachine
        One replica.
    traffic : SessionTraffic
    users : Number
        Users whose sessions are live, on all replicas together; a float, or an array that broadcasts with the pool of
        the machine and the capacities of the tiers [1].
    tiers : sequence of Tier
        Tiers below the memory of the chips, nearest first.
    routing : SessionRouting, optional
        One replica where not given.

    Returns
    -------
    SessionAnswer
        From a warm start; ``cold`` is there where a cold start leads elsewhere.

    Notes
    -----
    Means throughout.  Sessions are alike and independent, and loads are as fast as the link allows one call at a
    time; the first call of a session counts as computed but for the prefix that all share.
    """
    setting, shape = _setting(machine, traffic, users, tuple(tiers), routing or SessionRouting())
    parts = [setting.part(slice(at, at + _TOGETHER)) for at in range(0, len(setting.users), _TOGETHER)]
    warm, cold = (np.concatenate(column) for column in zip(*map(_fixed_points, parts), strict=True))
    answer = _answered(setting, warm, traffic, routing or SessionRouting(), shape)
    if not np.any(cold > _APART * warm):
        return answer
    slow = _answered(setting, np.where(cold > _APART * warm, cold, warm), traffic, routing or SessionRouting(), shape)
    return replace(answer, cold=slow)


def _setting(
    machine: SessionMachine, traffic: SessionTraffic, users: Any, tiers: tuple[Tier, ...], routing: SessionRouting
) -> tuple[_Setting, tuple[int, ...]]:
    replicas, spread = float(routing.replicas), routing.spread
    varied = [users, machine.pool, machine.token_bytes]
    varied += [value for tier in tiers for value in (tier.capacity, tier.bandwidth)]
    arrays = np.broadcast_arrays(*(np.asarray(value, dtype=float) for value in varied))
    shape = arrays[0].shape
    live, pool, token, *rest = (array.reshape(-1) for array in arrays)
    live = live * traffic.fan_out
    groups = traffic.shared_groups / replicas if routing.policy == "prefix" else None
    part = replace(traffic, population=traffic.population * spread / replicas) if traffic.rounds else traffic
    table = hit_table(part, spread, groups)
    sessions = live * spread / replicas
    tokens = capacity = pool / token
    places = [(table, table.places(sessions, capacity), 1 - routing.spill)]
    for tier, size in zip(tiers, rest[::2], strict=True):
        # What all replicas share is found wherever a call goes.
        above = tokens * replicas / spread if tier.pooled else tokens
        tokens = np.maximum(above, size / token) if tier.inclusive else above + size / token
        whole = hit_table(traffic) if tier.pooled else table
        where = whole.places(live if tier.pooled else sessions, tokens)
        places.append((whole, where, 1.0 if tier.pooled else 1 - routing.spill))
    work = _work(machine, traffic, tiers)
    # Loads are worked out once for each bandwidth that is given, not once for each setting.
    loads = tuple(
        tuple(np.broadcast_to(moment, shape).reshape(-1) if np.ndim(moment) else moment for moment in load)
        for load in work.loads
    )
    slots = np.minimum(machine.slots, np.asarray(machine.batch)[-1])
    # Calls that run hold a shared prefix once, however many of its group there are.
    batch = np.concatenate([[0.0], machine.batch])
    shared, prefixes = float(traffic.shared_tokens), max(1.0, float(table.traffic.shared_groups))
    held = batch * (work.context - shared) + shared * prefixes * -np.expm1(batch * np.log1p(-1 / (prefixes + 1e-9)))
    most = np.maximum(np.minimum(slots, np.interp(capacity, held, batch)), 1e-9)
    setting = _Setting(machine, replace(work, loads=loads), tiers, live / replicas, tuple(places), most)
    return setting, shape


def _answered(
    setting: _Setting, response: Any, traffic: SessionTraffic, routing: SessionRouting, shape: tuple[int, ...]
) -> SessionAnswer:
    """Return the numbers at a fixed point."""
    work, machine = setting.work, setting.machine
    at = setting.tried(response)
    rate = at["rate"]

    def shaped(value: Any) -> Any:
        found = np.broadcast_to(np.asarray(value, dtype=float), setting.users.shape).reshape(shape)
        return float(found) if shape == () else found

    # What calls wait beyond the work of others is for a place among those that run.
    placed = np.maximum(response - at["plain"], 0.0)
    queued = machine.front + at["wait"] + placed
    waiting = np.clip(at["met"], 0.0, 1.0)
    names = ["memory", *(tier.name for tier in setting.tiers)]
    parts = np.diff(np.array(at["hits"]), axis=0, prepend=0.0)
    moved = [rate * part * work.prompt * np.mean(machine.token_bytes) for part in parts[1:]]
    per_token = max(1e-12, (work.miss[0] - work.hit[0]) / max(1.0, work.prompt * work.ceiling))
    # Subagents run beside their user's own session and make calls of the same task.
    task, calls = work.calls_per_task * response + work.tool_time, work.calls_per_task * traffic.fan_out
    total = rate * routing.replicas
    tiers = setting.tiers
    return SessionAnswer(
        hit_rate=shaped(at["hits"][-1]),
        hit_by_tier={name: shaped(part) for name, part in zip(names, parts, strict=True)},
        hit_ceiling=work.ceiling,
        ttft=shaped(queued + at["latency"]),
        ttft_hit=shaped(queued + work.hit[2]),
        ttft_miss=shaped(queued + work.miss[2]),
        first_token=FirstToken(
            shaped(machine.front + placed + at["load"]),
            shaped(waiting),
            shaped(at["wait"] / np.maximum(waiting, 1e-12)),
            shaped(at["lost"]),
            *work.own,
        ),
        tpot=shaped(at["decode"] / work.output),
        call=shaped(response),
        task=shaped(task),
        calls_per_task=calls,
        call_rate=shaped(total),
        tasks_per_hour=shaped(3600 * total / calls),
        running=shaped(at["running"]),
        waiting=shaped(rate * (placed + at["wait"])),
        engine_load=shaped(np.minimum(at["busy"], 1.0)),
        tier_load={tier.name: shaped(used / np.mean(tier.bandwidth)) for tier, used in zip(tiers, moved, strict=True)},
        tier_bandwidth={tier.name: shaped(used) for tier, used in zip(tiers, moved, strict=True)},
        crossover={
            tier.name: shaped(
                caching.crossover_tokens(
                    start=tier.start, compute=per_token, load=np.mean(machine.token_bytes) / np.mean(tier.bandwidth)
                )
            )
            for tier in tiers
        },
    )


def session_cliff(
    machine: SessionMachine,
    traffic: SessionTraffic,
    users: float,
    tiers: Sequence[Tier] = (),
    routing: SessionRouting | None = None,
    share: float = 0.9,
) -> SessionCliff:
    """Return how far away the fall of the hit rate is, in users and in bytes.

    Parameters
    ----------
    machine : SessionMachine
        One replica, of fixed size.
    traffic : SessionTraffic
    users : float
        Users on all replicas together [1].
    tiers : sequence of Tier
    routing : SessionRouting, optional
    share : float
        Share of the ceiling below which a hit rate has fallen [1].

    Returns
    -------
    SessionCliff
    """
    many = np.geomspace(1.0, 1e5, 141)
    warm = session_answer(machine, traffic, many, tiers, routing)
    pools = np.geomspace(1e-3, 1e3, 141) * float(machine.pool)
    sized = session_answer(replace(machine, pool=pools), traffic, users, tiers, routing)
    good = share * warm.hit_ceiling
    slow = warm if warm.cold is None else warm.cold

    def until(values: Any, knots: Any) -> float:
        fallen = np.flatnonzero(values < good)
        if not len(fallen):
            return float("inf")
        at = int(fallen[0])
        return 0.0 if at == 0 else float(np.interp(-good, -values[at - 1 : at + 1], knots[at - 1 : at + 1]))

    # From the largest pool down, the first that is too small.
    falls = until(sized.hit_rate[::-1], pools[::-1])
    pool = 0.0 if np.isinf(falls) else (float("inf") if falls == 0.0 else falls)
    return SessionCliff(share, until(warm.hit_rate, many), until(slow.hit_rate, many), pool)

"""One replica and the tiers of its cache as the laws of sessions see them: bytes, and times by tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from perfmodel.equations import caching
from perfmodel.serving.sessions import SessionTraffic, drawn_calls
from perfmodel.serving.step_times import step_times
from perfmodel.specs.types import Scenario


@dataclass(frozen=True)
class Tier:
    """A tier of the cache below the memory of the chips.

    Attributes
    ----------
    name : str
        ``host``, ``store``, ``peer`` ...
    capacity : Number
        Of one replica, or of all where ``pooled`` [B].
    bandwidth : Number
        At which one replica loads from it, shared by its calls [B/s].
    start : float
        Time before the first byte of a load [s].
    inclusive : bool
        Whether it also holds what the tiers above hold, so that capacities do not add up.
    pooled : bool
        Whether all replicas share it.
    by_layer : bool
        Whether a load hides behind the computation of the layers before; else the engine waits for it.
    """

    name: str
    capacity: Any
    bandwidth: Any
    start: float = 0.0
    inclusive: bool = True
    pooled: bool = False
    by_layer: bool = False


@dataclass(frozen=True)
class SessionRouting:
    """Who gets the calls of a session.

    Attributes
    ----------
    replicas : float
        Replicas [1].
    policy : str
        ``sticky``: a session stays on its replica. ``random``: each call goes to any. ``groups``: to any of
        ``holders`` replicas. ``prefix``: to where its prefix lies, so that every shared prefix lies on one replica.
    holders : float
        Replicas among which the calls of a session are spread, of ``groups`` [1].
    spill : float
        Share of the calls that ``prefix`` sends to another replica for balance, where they miss [1].
    """

    replicas: float = 1.0
    policy: Literal["sticky", "random", "groups", "prefix"] = "sticky"
    holders: float = 1.0
    spill: float = 0.0

    @property
    def spread(self) -> float:
        """Replicas that hold copies of one session [1]."""
        if self.policy == "random":
            return float(self.replicas)
        return float(min(self.holders, self.replicas)) if self.policy == "groups" else 1.0


@dataclass(frozen=True)
class SessionMachine:
    """One replica as the laws of sessions see it.

    Attributes
    ----------
    pool : Number
        KV cache of the replica [B].
    token_bytes : Number
        Cache of a token, all chips of the replica together [B].
    prompt, prefill : ndarray
        Tokens of a prompt, rising, and the time that it takes from the engine [s].
    latency : ndarray
        Time until its first token, once it has started [s].
    batch, step : ndarray
        Sequences that decode together, from 1, and the time of a step at the mean context of the traffic [s].
    slots : Number
        Calls that the engine runs at once, whatever the memory [1].
    front : float
        Time of the front end for a call [s].
    checkpoint : float
        Tokens between the checkpoints at which recurrent states or windows are kept; 0 where the cache can be cut
        anywhere [1].
    """

    pool: Any
    token_bytes: Any
    prompt: Any
    prefill: Any
    latency: Any
    batch: Any
    step: Any
    slots: Any = np.inf
    front: float = 0.0
    checkpoint: float = 0.0


@dataclass(frozen=True)
class FirstToken:
    """Law of the time to the first token: a wait that many calls do not have, and a time of their own.

    Attributes
    ----------
    fixed : ndarray
        What every call takes besides [s].
    waiting, wait : ndarray
        Share of the calls that wait, and the mean of their waits, which are exponential [1, s].
    lost : ndarray
        Share of the calls whose context is lost [1].
    held_time, lost_time : ndarray
        Equally likely times of a call whose context is held, and of one whose context is lost [s].
    """

    fixed: Any
    waiting: Any
    wait: Any
    lost: Any
    held_time: Any
    lost_time: Any

    def share_below(self, time: Any) -> Any:
        """Share of the calls whose first token comes within a time.

        Parameters
        ----------
        time : ndarray
            Time [s].

        Returns
        -------
        ndarray
            Share [1].
        """
        left = (np.asarray(time, dtype=float) - self.fixed)[..., None]
        waiting, wait = np.asarray(self.waiting)[..., None], np.maximum(self.wait, 1e-12)[..., None]

        def within(own: Any) -> Any:
            after = left - own
            return np.where(after >= 0, 1 - waiting * np.exp(-np.maximum(after, 0.0) / wait), 0.0).mean(axis=-1)

        return (1 - self.lost) * within(self.held_time) + self.lost * within(self.lost_time)

    def quantile(self, share: float) -> Any:
        """Time to the first token that so large a share of the calls does not exceed.

        Parameters
        ----------
        share : float
            Share, below 1 [1].

        Returns
        -------
        ndarray
            Time [s].
        """
        low = np.zeros(np.broadcast_shapes(np.shape(self.fixed), np.shape(self.wait)))
        longest = max(float(np.max(self.held_time)), float(np.max(self.lost_time)))
        high = self.fixed + longest - np.log(1 - share) * self.wait + low
        for _ in range(40):
            middle = (low + high) / 2
            enough = self.share_below(middle) >= share
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return float(high) if np.ndim(high) == 0 else high


def prefill_time(machine: SessionMachine, times: Any, prompt: Any, cached: Any) -> Any:
    """Return the time of prompts of which a head is held: the least that a pass takes is paid once.

    Parameters
    ----------
    machine : SessionMachine
    times : ndarray
        Those of the machine, ``prefill`` or ``latency`` [s].
    prompt, cached : ndarray
        Tokens of each, and of these the head that is cached [1].

    Returns
    -------
    ndarray
        Time [s].
    """
    whole = np.interp(prompt, machine.prompt, times)
    return np.maximum(whole - np.interp(cached, machine.prompt, times) + times[0], times[0])


def load_time(machine: SessionMachine, tier: Tier, prompt: Any, cached: Any) -> tuple[Any, Any]:
    """Return what calls whose context lies in a tier take beyond those whose context is in memory.

    They load where that is faster than computing, and by layer only what the computation of the rest does not hide.

    Parameters
    ----------
    machine : SessionMachine
    tier : Tier
        Its bandwidth may be an array.
    prompt, cached : ndarray
        Tokens of each call, and of these the head that the tier holds [1].

    Returns
    -------
    tuple of ndarray
        Mean of what is added [s], and mean square of all that such a call takes [s2]; of the shape of the bandwidth.
    """
    near = prefill_time(machine, machine.prefill, prompt, cached)
    again = prefill_time(machine, machine.prefill, prompt, 0.0) - near
    size = cached * np.mean(machine.token_bytes)
    # Calls of every size are weighed at each bandwidth that is asked for.
    bandwidth = np.asarray(tier.bandwidth, dtype=float)[..., None]
    load = caching.load_time(start=tier.start, size=size, bandwidth=bandwidth)
    if tier.by_layer:
        load = np.maximum(load - near, 0.0)
    added = np.minimum(load, again)
    return added.mean(axis=-1), ((near + added) ** 2).mean(axis=-1)


def session_machine(scenario: Scenario, traffic: SessionTraffic, *, checkpoint: float = 0.0) -> SessionMachine:
    """Return one replica of a scenario, or one of its groups of attention ranks, as the laws of sessions see it.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    traffic : SessionTraffic
        Its mean context is that of the decode steps, its longest call that of the tables.
    checkpoint : float
        Tokens between the checkpoints of recurrent states and windows; 0 where the cache can be cut anywhere [1].

    Returns
    -------
    SessionMachine
    """
    calls = drawn_calls(traffic)
    whole = calls.prompt + calls.output
    times = step_times(scenario, longest_prompt=float(calls.prompt.max()), longest=float(whole.max()))
    context = float(whole.mean())
    batch = times.batch[1:]
    # Tables are of one chip of the fullest stage, tiers hold the cache of all.
    chips = float(scenario.deployment.tp) * float(scenario.deployment.pp)
    return SessionMachine(
        pool=times.pool * chips,
        token_bytes=float(times.bytes_of(context)) / context * chips,
        prompt=times.prompt,
        prefill=times.prefill(times.prompt, 1.0),
        latency=times.first_token(times.prompt, 1.0),
        batch=batch,
        step=times.step(batch, context),
        slots=times.cap,
        front=times.front,
        checkpoint=checkpoint,
    )

"""Pools of their own for prefill and decode, of the same or unlike machines, and attention apart from feed-forward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.equations import disaggregation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.machines.links import stage_link
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.fit import fit
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Loaded, Objectives, loaded, replicas_for, statistic
from perfmodel.serving.service import Service, serve
from perfmodel.serving.step_times import step_times
from perfmodel.specs.types import Scenario
from perfmodel.specs.weights import layer_count

#: Replicas of a pool beyond which a question counts as not served.
_MOST = 100_000


@dataclass(frozen=True)
class Pools:
    """Two pools under a load.

    Attributes
    ----------
    prefill, decode : Loaded
        TTFT is the prefill pool's; TPOT that of the decode pool, with what a request waits for at its door.
    chips : float
        Of both pools.
    transfer : float
        Mean time to move a prompt's cache [s].
    ratio : float
        Prefill replicas for each decode replica at capacity.
    tpot_mean : float
        With transfer and admission spread over the tokens after the first [s].
    """

    prefill: Loaded
    decode: Loaded
    chips: float
    transfer: float
    ratio: float
    tpot_mean: float


def prefill_service(scenario: Scenario, lengths: Lengths) -> Service:
    """Return what a replica that only prefills can do.

    Parameters
    ----------
    scenario : Scenario
    lengths : Lengths

    Returns
    -------
    Service
    """
    alone = Lengths(lengths.prompt, np.ones_like(lengths.output), lengths.weight)
    times = step_times(scenario, longest_prompt=float(alone.prompt.max()), longest=float(alone.prompt.max()) + 1)
    return serve(times, alone, float(scenario.traffic.prefix_hits), scenario.deployment.routing)


def decode_service(scenario: Scenario, lengths: Lengths) -> Service:
    """Return what a replica that only decodes can do; a prompt's cache comes from elsewhere.

    Parameters
    ----------
    scenario : Scenario
    lengths : Lengths

    Returns
    -------
    Service
    """
    times = step_times(
        scenario,
        longest_prompt=float(lengths.prompt.max()),
        longest=float((lengths.prompt + lengths.output).max()),
    )
    # What is left of a prefill is nothing; a tiny time keeps moments defined.
    none = np.full_like(times.occupancy, 1e-12)
    return serve(
        replace(times, occupancy=none, latency=none, slot=none, front=0.0), lengths, 0.0, scenario.deployment.routing
    )


def transfer(sender: Scenario, receiver: Scenario, tokens: Any) -> Any:
    """Time to move the cache of so many tokens from a replica to another [s].

    Parameters
    ----------
    sender, receiver : Scenario
        Layouts of a replica of either pool.
    tokens : Number
        Tokens in the cache [1].

    Returns
    -------
    Number
        Time [s].
    """
    ends = []
    for side in (sender, receiver):
        chips = float(side.deployment.tp) * float(side.deployment.pp)
        ends.append(float(stage_link(side.system).bandwidth_per_direction) * chips)
    size = request_bytes(sender, tokens) * float(sender.deployment.tp) * float(sender.deployment.pp)
    return disaggregation.transfer_time(
        size=size,
        sending=ends[0],
        receiving=ends[1],
        latency=machine_of(sender.system).stage_latency(sender.system),
    )


@dataclass(frozen=True)
class ClosedPools:
    """Two pools that a fixed number of clients keep busy.

    Attributes
    ----------
    ttft, ttft_median, tpot, latency : float
        Mean times; the median is that of a request outside the burst at the start [s].
    rate : float
        Requests finished [1/s].
    output : float
        Mean output tokens [1].
    wait, prefill, transfer : float
        Parts of TTFT: for other prompts, of its own, and of its cache [s].
    running : float
        Requests that a rank of the decode pool runs [1].
    """

    ttft: float
    ttft_median: float
    tpot: float
    latency: float
    rate: float
    output: float
    wait: float
    prefill: float
    transfer: float
    running: float


#: Rounds after which the shares of the clients between two pools do not change any more.
_ROUNDS = 60


def closed_pools(prefill: Scenario, decode: Scenario, decode_batch: float = math.inf) -> ClosedPools:
    """Return what two pools of given workers come to under a fixed number of clients.

    Each client waits for a prefill, then its cache moves, then it decodes; the clients that decode set the batch of the
    decode pool, and those that prefill the queue in front of the other, as in a closed queueing network (Bard and
    Schweitzer's mean values).  The burst at the start counts by its share of the rounds.

    Parameters
    ----------
    prefill, decode : Scenario
        The plan of each pool with its workers as replicas; both with the whole traffic.
    decode_batch : float
        Most requests of a rank that holds requests of its own [1].

    Returns
    -------
    ClosedPools
    """
    load = decode.traffic
    shorter = 1 - float(load.length_jitter) / 2
    clients, prompt, output = float(load.concurrency), float(load.prompt) * shorter, float(load.output) * shorter
    doors, seats = float(prefill.deployment.groups), float(decode.deployment.groups)
    first, second = machine_of(prefill.system), machine_of(decode.system)
    most = min(float(fit(decode).cap), decode_batch)
    together = max(1.0, PREFILL_BUDGET / prompt)
    single_prefill = float(first.prefill(prefill, 1.0, prompt, prompt, 1.0)[0].time)
    full = float(first.prefill(prefill, 1.0, prompt, prompt, together)[0].time) / together
    moved = float(transfer(prefill, decode, prompt))
    front = float(first.front_end(prefill.system).request)
    context = prompt + output / 2
    queued, rate, step, running = 0.0, 0.0, 0.0, 1.0
    admission = 0.0
    for _ in range(_ROUNDS):
        step = float(second.decode(decode, running, context).time)
        # A door serves one prompt after the other; those of the other clients are in front of it.
        wait = max(0.0, (clients - 1) / clients * queued / doors) * full
        hold_time = float(load.held_steps) * step
        decoding = max(1.0, output - 1) * step
        life = front + hold_time + wait + single_prefill + moved + decoding
        rate = min(clients / (life + admission), doors / full, most * seats / decoding)
        # What neither pool serves any faster waits in front of it.
        excess = max(0.0, clients / rate - life)
        at_door = rate * full >= rate * decoding / most * doors / seats
        admission = 0.5 * admission + 0.5 * excess
        queued = 0.5 * queued + 0.5 * rate * (wait + single_prefill + (excess if at_door else 0.0))
        running = 0.5 * running + 0.5 * max(1.0, min(most, rate * decoding / seats))
    life = front + hold_time + wait + single_prefill + moved + decoding
    wait += max(0.0, clients / rate - life)
    burst = clients / doors * full / 2
    share = 1 / float(load.rounds)
    median = front + hold_time + wait + single_prefill + moved
    return ClosedPools(
        ttft=median + share * max(0.0, burst - wait),
        ttft_median=median,
        tpot=step,
        latency=clients / rate,
        rate=rate,
        output=output,
        wait=wait,
        prefill=single_prefill,
        transfer=moved,
        running=running,
    )


def pools(
    prefill: Scenario, decode: Scenario, lengths: Lengths, rate: float, arrival_scv: float, objectives: Objectives
) -> Pools | list[tuple[str, str]]:
    """Return the fewest replicas of either pool that meet the objectives of its times.

    Objectives on TTFT size the prefill pool, those on TPOT and on the whole request the decode pool.  Of a request
    the decode pool has what the same statistic of TTFT and the mean transfer leave: exact for means, on the safe side
    for percentiles, which need not fall on the same request.

    Parameters
    ----------
    prefill, decode : Scenario
        The plan of a replica of each pool, on the same or on unlike systems.
    lengths : Lengths
    rate, arrival_scv : float
        Of all requests together.
    objectives : Objectives

    Returns
    -------
    Pools or list
        The objectives that a pool cannot meet, however large, where there are such.
    """
    sides: list[Loaded] = []
    moved = lengths.mean(transfer(prefill, decode, lengths.prompt))
    for build, scenario, times in (
        (prefill_service, prefill, ("ttft",)),
        (decode_service, decode, ("tpot", "itl", "latency")),
    ):
        service = build(scenario, lengths)
        limits = {key: limit for key, limit in objectives.limits.items() if key[0] in times}
        for time, what in limits:
            if time == "latency":
                limits[time, what] -= moved + statistic(sides[0].queue, "ttft", what)
        limits_of = Objectives(limits)
        count, failing = replicas_for(service, rate, arrival_scv, limits_of, _MOST) if service.capacity > 0 else (0, [])
        if count == 0:
            return failing
        sides.append(loaded(service, rate, arrival_scv, count, limits_of))
    prefill_side, two = sides
    output = lengths.mean(lengths.output)
    law: Any = two.queue.tpot
    door: Any = two.queue.wait
    late = (moved + door.average) / max(1.0, output - 1)
    chips = sum(
        side.replicas * float(plan.deployment.tp) * float(plan.deployment.pp)
        for side, plan in ((prefill_side, prefill), (two, decode))
    )
    ratio = disaggregation.pool_ratio(prefill_rate=prefill_side.service.capacity, decode_rate=two.service.capacity)
    return Pools(prefill_side, two, chips, moved, float(ratio), law.average + late)


def split_step(
    attention: Scenario, feed_forward: Scenario, batch: float, context: float, batches: float = 2.0
) -> float:
    """Decode step where attention runs on one machine and the feed-forward blocks on another [s].

    The head is counted on both sides, which is small beside the layers.

    Parameters
    ----------
    attention, feed_forward : Scenario
        Of the same model.
    batch : float
        Sequences of one batch.
    context : float
        Tokens in the cache of each.
    batches : float
        Batches that take turns.

    Returns
    -------
    float
        Time [s].
    """
    layers = attention.model.layers
    parts = (
        (attention, tuple(replace(run, mlp=None, moe=None) for run in layers)),
        (
            feed_forward,
            tuple(replace(run, attention=None, mla=None, linear=None, mamba1=None, mamba2=None) for run in layers),
        ),
    )
    times = []
    for scenario, kept in parts:
        part = replace(scenario, model=replace(scenario.model, layers=kept))
        times.append(float(machine_of(part.system).decode(part, batch, context).time))
    message = batch * float(attention.model.hidden) * ACTIVATION_BYTES
    hop = disaggregation.transfer_time(
        size=message,
        sending=float(stage_link(attention.system).bandwidth_per_direction) * float(attention.deployment.tp),
        receiving=float(stage_link(feed_forward.system).bandwidth_per_direction) * float(feed_forward.deployment.tp),
        latency=machine_of(attention.system).stage_latency(attention.system),
    )
    exchange = 2 * float(layer_count(attention.model)) * float(hop)
    return float(
        disaggregation.split_step(attention=times[0], feed_forward=times[1], exchange=exchange, batches=batches)
    )

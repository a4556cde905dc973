"""Failures: how long replicas are gone, how many spares hold a target, and what users feel of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.equations import reliability
from perfmodel.machines.base import machine_of
from perfmodel.serving.fit import chip_weights
from perfmodel.serving.objectives import Loaded
from perfmodel.specs.types import Reliability, Scenario

#: Spares beyond which a target counts as out of reach.
_MOST_SPARES = 1000


@dataclass(frozen=True)
class Availability:
    """Replicas that fail now and then.

    Attributes
    ----------
    target : float
        Share of time that enough replicas must work.
    unit : str
        What is spared: ``replicas``, or ``nodes`` where a pipeline skips a failed one.
    working : float
        Share of time that one of these works.
    spares : int
        How many on top, so that enough work; -1 where the target is out of reach.
    extra : float
        Spares over what is needed.
    reached : float
        Share of time that enough of them work.
    recovery_s : float
        Time until a failed replica serves again.
    mtbf_s : float
        Between failures of one replica.
    hit : float
        Share of requests during which their replica fails.
    latency_p99_s : float
        P99 of a request's time with failures, of those who wait for the recovery.
    """

    target: float
    unit: str
    working: float
    spares: int
    extra: float
    reached: float
    recovery_s: float
    mtbf_s: float
    hit: float
    latency_p99_s: float


def recovery_time(scenario: Scenario, load: Loaded, rates: Reliability) -> float:
    """Return the time until a failed replica serves again: an SRAM pipeline rotates, others start elsewhere [s].

    Parameters
    ----------
    scenario : Scenario
    load : Loaded
    rates : Reliability

    Returns
    -------
    float
        Time [s].
    """
    service = load.service
    if machine_of(scenario.system).skips_failed:
        running = load.queue.running if math.isfinite(load.queue.running) else float(service.cap)
        replay = float(service.times.entry(service.context, max(1.0, running)))
        return float(
            reliability.rotation_recovery(
                detection=rates.detection, rotation=rates.rotation, running=running, replay=replay
            )
        )
    return float(
        reliability.replica_recovery(
            detection=rates.detection,
            restart=rates.restart,
            weights=float(chip_weights(scenario)),
            bandwidth=rates.reload_bandwidth,
        )
    )


def spares_for(needed: int, share: float, target: float) -> tuple[int, float]:
    """Return the fewest spares with which enough units work, and the share of time that they do.

    Parameters
    ----------
    needed : int
        Units that must work.
    share : float
        Of time that one of them works, each by itself.
    target : float
        Share of time that enough must work.

    Returns
    -------
    tuple of int and float
    """
    from scipy.stats import binom

    extra = np.arange(0, _MOST_SPARES + 1)
    reached = np.asarray(binom.sf(needed - 1, needed + extra, share))
    enough = np.flatnonzero(reached >= target)
    return (int(enough[0]), float(reached[enough[0]])) if len(enough) else (-1, float(reached[-1]))


def with_failures(
    scenario: Scenario, load: Loaded, target: float, rates: Reliability, chips: float, chip_mtbf: float
) -> Availability:
    """Return how many spares a target takes and what failures do to latency.

    A spare takes over at once where it is there, so that a replica is gone for its recovery; the broken chips are gone
    for their repair.

    Parameters
    ----------
    scenario : Scenario
    load : Loaded
    target : float
        Share of time that enough replicas must work.
    rates : Reliability
    chips : float
        Of one replica.
    chip_mtbf : float
        Between failures of a chip [s].

    Returns
    -------
    Availability
    """
    mtbf = float(reliability.instance_mtbf(chip_mtbf=chip_mtbf, chips=chips))
    recovery = recovery_time(scenario, load, rates)
    # A pipeline of SRAM chips skips a failed node, so that whole nodes are spared; GPUs lose the replica.
    rotates = machine_of(scenario.system).skips_failed
    unit = float(scenario.system.chips_per_node) if rotates else chips
    needed = round(load.replicas * chips / unit)
    working = float(
        reliability.availability(
            mtbf=reliability.instance_mtbf(chip_mtbf=chip_mtbf, chips=unit), down=float(rates.repair)
        )
    )
    spares, reached = spares_for(needed, working, target)
    law = load.queue.latency
    hit = p99 = math.nan
    if law is not None:
        hit = float(reliability.share_hit(mtbf=mtbf, exposed=law.average + recovery))
        p99 = law.mixed(hit, recovery).quantile(0.99)
    return Availability(
        target, "nodes" if rotates else "replicas", working, spares, spares / needed, reached, recovery, mtbf, hit, p99
    )

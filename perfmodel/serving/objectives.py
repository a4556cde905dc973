"""Service-level objectives: what a load must meet, where it breaks, and how many replicas that takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.equations import queueing
from perfmodel.serving.chain import FULL, Queue, load_queue
from perfmodel.serving.laws import Law
from perfmodel.serving.service import Service

#: Times that an objective can be about, with what users call them.
#: Times of requests as answers name them, and as a queue does.
QUEUE_TIMES = {"wait_s": "wait", "ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "request_latency_s": "latency"}
TIMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "latency": "request latency"}
#: What of a time an objective can be about.
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
#: What ends a replica's growth where no objective does.
LIMITS = {
    "memory": "KV cache full",
    "engine": "the engine's limit on sequences",
    "prefill": "prefill takes all the time",
    "speed": "more requests at once bring no more tokens",
}


@dataclass(frozen=True)
class Objectives:
    """Times that must not be exceeded [s]: ``{("ttft", "p99"): 0.5}``."""

    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def named(self) -> dict[str, float]:
        """Return the limits by the names that answers give them, ``ttft_p99_s`` [s].

        Returns
        -------
        dict of str to float
        """
        return {f"{time}_{what}_s": limit for (time, what), limit in self.limits.items()}

    def failed(self, queue: Queue) -> list[tuple[str, str]]:
        """Return the objectives that a queue does not meet.

        Parameters
        ----------
        queue : Queue

        Returns
        -------
        list of tuple of str
            Keys as in ``limits``.
        """
        return [key for key, limit in self.limits.items() if not meets(queue, key, limit)]

    def share_met(self, queue: Queue) -> float:
        """Return the share of requests within every time named, as if times were independent.

        Parameters
        ----------
        queue : Queue

        Returns
        -------
        float
            Share [1].
        """
        share = 1.0
        for time in TIMES:
            named = [limit for (name, _), limit in self.limits.items() if name == time]
            law: Law | None = getattr(queue, time)
            if named and law is not None:
                share *= law.share_below(min(named))
        return share


def statistic(queue: Queue, time: str, what: str) -> float:
    """Return the mean or a percentile of a time of a queue [s]; infinite where the load is not served.

    A time between tokens that no request has is NaN.

    Parameters
    ----------
    queue : Queue
    time : str
        ``ttft``, ``tpot``, ``itl``, ``latency`` or ``wait``.
    what : str
        ``mean``, ``p50``, ``p90`` or ``p99``.

    Returns
    -------
    float
        Time [s].
    """
    if queue.saturated:
        return math.inf
    law: Law | None = getattr(queue, time)
    if law is None:
        return math.nan
    return law.average if what == "mean" else law.quantile(float(what[1:]) / 100)


def meets(queue: Queue, key: tuple[str, str], limit: float) -> bool:
    """Whether a time of a queue is within an objective.

    Parameters
    ----------
    queue : Queue
    key : tuple of str
        A time and what of it: ``("ttft", "p99")``.
    limit : float
        Time [s].

    Returns
    -------
    bool
    """
    time, what = key
    if queue.saturated:
        return False
    law: Law | None = getattr(queue, time)
    if law is None:
        # Nobody waits for a second token.
        return True
    return law.average <= limit if what == "mean" else law.share_below(limit) >= float(what[1:]) / 100


def phrase(key: tuple[str, str]) -> str:
    """Return how an objective is named to users.

    Parameters
    ----------
    key : tuple of str
        A time and what of it: ``("ttft", "p99")``.

    Returns
    -------
    str
    """
    time, what = key
    return f"{'mean ' if what == 'mean' else what.upper() + ' '}{TIMES[time]}"


@dataclass(frozen=True)
class Loaded:
    """So many equal replicas under a load that is dealt to them.

    Attributes
    ----------
    service : Service
    replicas : int
    rate, arrival_scv : float
        Of all requests together [1/s].
    queue : Queue
        Of one replica.
    goodput : float
        Requests that meet every objective [1/s].
    headroom : float
        Growth of the rate that still meets every objective; NaN where they are not met as it is.
    first_limit : str
        What breaks first as the rate grows.
    objectives : Objectives
        What was asked of it.
    """

    service: Service
    replicas: int
    rate: float
    arrival_scv: float
    queue: Queue
    goodput: float
    headroom: float
    first_limit: str
    objectives: Objectives

    @property
    def finished(self) -> float:
        """Requests that are not refused [1/s]."""
        return self.rate * (1 - self.service.refused)


def queue_of(service: Service, rate: float, arrival_scv: float, replicas: int) -> Queue:
    """Return the queue of one of so many replicas.

    A router that deals at random thins the arrivals; one that deals in turn gives each replica every so many-th of
    them; one that knows the loads keeps the replicas level besides, so that they fill as one.  Routing by prefix deals
    conversations at random.

    Parameters
    ----------
    service : Service
    rate : float
        Requests, all replicas together [1/s].
    arrival_scv : float
        Squared coefficient of variation of their arrivals [1].
    replicas : int

    Returns
    -------
    Queue
    """
    if service.routing in ("random", "prefix"):
        return load_queue(service, rate / replicas, float(queueing.split_scv(scv=arrival_scv, ways=float(replicas))))
    scv = float(queueing.dealt_scv(scv=arrival_scv, ways=float(replicas)))
    return load_queue(service, rate / replicas, scv, replicas if service.routing == "least-loaded" else 1)


def loaded(service: Service, rate: float, arrival_scv: float, replicas: int, objectives: Objectives) -> Loaded:
    """Put a load on replicas, and find what breaks first as it grows.

    Parameters
    ----------
    service : Service
    rate, arrival_scv : float
        Of all requests together.
    replicas : int
    objectives : Objectives

    Returns
    -------
    Loaded
    """
    queue = queue_of(service, rate, arrival_scv, replicas)
    goodput = 0.0 if queue.saturated else rate * objectives.share_met(queue) * (1 - service.refused)
    failing = objectives.failed(queue)
    if queue.saturated or failing:
        first = phrase(failing[0]) if failing and not queue.saturated else f"saturated: {LIMITS[service.binding]}"
        return Loaded(service, replicas, rate, arrival_scv, queue, goodput, math.nan, first, objectives)
    most, first = breaking_rate(service, arrival_scv, replicas, objectives, rate)
    return Loaded(service, replicas, rate, arrival_scv, queue, goodput, most / rate - 1, first, objectives)


def breaking_rate(
    service: Service, arrival_scv: float, replicas: int, objectives: Objectives, least: float
) -> tuple[float, str]:
    """Return the largest rate that meets every objective, and what breaks beyond it.

    Parameters
    ----------
    service : Service
    arrival_scv : float
    replicas : int
    objectives : Objectives
    least : float
        A rate at which they are met [1/s].

    Returns
    -------
    tuple of float and str
        Rate [1/s], and the limit in words.
    """
    met, most = least, service.capacity * replicas * FULL
    first = f"saturated: {LIMITS[service.binding]}"
    broken = most * (1 + 1e-9)
    if objectives.failed(queue_of(service, most * 0.999, arrival_scv, replicas)):
        broken = most * 0.999
    else:
        return most, first
    while broken / met > 1.02:
        middle = math.sqrt(met * broken)
        if failing := objectives.failed(queue_of(service, middle, arrival_scv, replicas)):
            broken, first = middle, phrase(failing[0])
        else:
            met = middle
    return met, first


def replicas_for(
    service: Service, rate: float, arrival_scv: float, objectives: Objectives, most: int, near: int = 0
) -> tuple[int, list[tuple[str, str]]]:
    """Return the fewest replicas that meet the objectives, or 0 and the objectives that fail however many there are.

    Parameters
    ----------
    service : Service
    rate, arrival_scv : float
        Of all requests together.
    objectives : Objectives
    most : int
        Replicas beyond which the search stops.
    near : int
        A guess, from which the search begins.

    Returns
    -------
    tuple of int and list of tuple of str
    """

    def failing(count: int) -> list[tuple[str, str]]:
        queue = queue_of(service, rate, arrival_scv, count)
        return [("ttft", "mean")] if queue.saturated else objectives.failed(queue)

    least = max(1, math.ceil(rate / (service.capacity * FULL) * (1 + 1e-12)))
    if least > most:
        return 0, []
    alone = objectives.failed(load_queue(service, min(rate / most, service.capacity * 1e-3), 1.0))
    if alone:
        return 0, alone
    return _fewest(failing, least, most, near)


def _fewest(
    failing: Callable[[int], list[tuple[str, str]]], least: int, most: int, near: int
) -> tuple[int, list[tuple[str, str]]]:
    """Search outwards from a guess in steps that double, then in halves."""
    reached, step = min(most, max(least, near)), 1
    broken = least - 1
    if failures := failing(reached):
        while failures:
            broken = reached
            if reached >= most:
                return 0, failures
            reached, step = min(most, reached + step), step * 2
            failures = failing(reached)
    else:
        while reached > least:
            if failing(lower := max(least, reached - step)):
                broken = lower
                break
            reached, step = lower, step * 2
    while reached - broken > 1:
        middle = (reached + broken) // 2
        if failing(middle):
            broken = middle
        else:
            reached = middle
    return reached, []


def summary(queue: Queue, time: str) -> dict[str, float | None]:
    """Return mean and percentiles of a time; all null where the load is not served.

    Parameters
    ----------
    queue : Queue
    time : str
        ``ttft``, ``tpot``, ``itl``, ``latency`` or ``wait``.

    Returns
    -------
    dict of str to float or None
        Times [s].
    """
    law: Any = None if queue.saturated else getattr(queue, time)
    if law is None:
        return dict.fromkeys(("p50", "p90", "p99", "mean"))
    found = law.summary()
    return {key: found[key] if math.isfinite(found[key]) else None for key in ("p50", "p90", "p99", "mean")}

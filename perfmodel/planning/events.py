"""Continuous batching token by token, as discrete events: what the closed forms are checked against.

Clients of a closed loop, or arrivals of a load, send requests; a router deals them to replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import numpy as np

from perfmodel.planning.engine import Replica, Requests
from perfmodel.planning.requests import Load, Simulated
from perfmodel.serving.step_times import StepTimes
from perfmodel.specs.types import Routing


class _World:
    """The clock, the clients and the router."""

    def __init__(
        self,
        requests: Requests,
        replicas: int,
        routing: Routing,
        clients: int | None,
        think: float,
        generator: Any,
        tick: Callable[[int], None] | None,
    ) -> None:
        self.requests, self.routing, self.clients, self.think = requests, routing, clients, think
        self.generator, self.tick = generator, tick
        self.now = 0.0
        self.heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.pushed = self.done = self.shown = self.turn = 0
        self.replicas = [Replica(self, requests) for _ in range(replicas)]
        self.following = iter(range(len(requests.prompt)))

    def push(self, at: float, what: Callable[..., None], *arguments: Any) -> None:
        """Have something done at a time."""
        self.pushed += 1
        heappush(self.heap, (at, self.pushed, what, arguments))

    def ended(self, at: float) -> None:
        """Count the end of a request; in a closed loop its client thinks and sends the next one."""
        self.done += 1
        if self.tick is not None and self.done - self.shown >= max(1, len(self.requests.prompt) // 200):
            self.tick(self.done - self.shown)
            self.shown = self.done
        if self.clients is not None:
            self.send(at)

    def send(self, at: float) -> None:
        """Let a client think and send its next request, which reaches the engine through the front end."""
        pause = float(self.generator.exponential(self.think)) if self.think else 0.0
        if (request := next(self.following, None)) is not None:
            self.push(at + pause + self.requests.times.front, self.deal, request)

    def deal(self, now: float, request: int) -> None:
        """Deal a request to a replica."""
        requests, replicas = self.requests, self.replicas
        requests.arrived[request] = now - requests.times.front
        if requests.bytes[request] > requests.times.pool:
            requests.refused += 1
            self.ended(now)
            return
        count = len(replicas)
        if count == 1:
            chosen = 0
        elif self.routing == "least-loaded":
            loads = [replica.inside + len(replica.queue) for replica in replicas]
            least, chosen = min(loads), self.turn % count
            while loads[chosen] > least:
                chosen = (chosen + 1) % count
        elif self.routing == "round-robin":
            chosen = self.turn % count
        else:
            chosen = int(self.generator.integers(count))
        self.turn = chosen + 1
        replicas[chosen].arrive(request, now)

    def next_arrival(self, now: float, request: int, arrival: list[float]) -> None:
        """Deal the next request of an open load."""
        if request + 1 < len(arrival):
            self.push(arrival[request + 1], self.next_arrival, request + 1, arrival)
        self.deal(now, request)

    def run(self, arrival: list[float]) -> None:
        """Run until every request has ended."""
        if self.clients is None:
            self.push(arrival[0], self.next_arrival, 0, arrival)
        else:
            for _ in range(min(self.clients, len(self.requests.prompt))):
                self.send(0.0)
        heap, total = self.heap, len(self.requests.prompt)
        while self.done < total:
            now, _, what, arguments = heappop(heap)
            self.now = now
            what(now, *arguments)


def simulate(
    times: StepTimes,
    load: Load,
    *,
    cached: float = 0.0,
    clients: int | None = None,
    think: float = 0.0,
    seed: int = 0,
    replicas: int = 1,
    routing: Routing = "least-loaded",
    tick: Callable[[int], None] | None = None,
) -> Simulated:
    """Run a load through equal replicas.

    Parameters
    ----------
    times : StepTimes
        Of one replica.
    load : Load
        With ``clients``, only the lengths count: each client sends its next request when the last one ended and it
        has thought.
    cached : float
        Share of each prompt that the prefix cache holds.
    clients : int, optional
        Of a closed loop, who all start at once.
    think : float
        Mean time between the end of a request and the next one of the same client, exponential [s].
    seed : int
        For the think times and random routing.
    replicas : int
    routing : str
        How requests are dealt to replicas: least-loaded, round-robin, random or prefix.  Independent requests have no
        prefix in common, so that routing by prefix deals them at random.
    tick : callable, optional
        Called with the number of requests that ended since the last call.

    Returns
    -------
    Simulated
    """
    requests = Requests(times, cached, load)
    world = _World(requests, replicas, routing, clients, think, np.random.default_rng(seed), tick)
    world.run((np.asarray(load.arrival, dtype=float) + times.front).tolist())
    arrived, started, finished = (np.array(part) for part in (requests.arrived, requests.started, requests.finished))
    # Clients of a closed loop send in the order of arrival, but a preempted or refused one keeps its place.
    steps = np.maximum(1.0, np.round(load.output)) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(steps > 0, (finished - started) / steps, np.nan)
    span = float(world.now - np.nanmin(arrived))
    gaps = np.array(requests.gaps).reshape(-1, 3)
    return Simulated(
        arrived=arrived,
        wait=np.array(requests.admitted) - arrived - times.front,
        ttft=started - arrived,
        tpot=tpot,
        latency=finished - arrived,
        gap_at=gaps[:, 0],
        gap=gaps[:, 1],
        gap_count=gaps[:, 2],
        running=sum(replica.area for replica in world.replicas) / span,
        busy=sum(replica.worked for replica in world.replicas) / span / replicas,
        refused=requests.refused,
        preempted=requests.preempted,
        span=span,
        rate=(len(load) - requests.refused) / span,
        hits=float(np.sum(requests.met) / np.sum(requests.prompt)),
    )

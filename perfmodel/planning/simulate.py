"""Continuous batching token by token, as discrete events: what the closed forms are checked against.

The engine of a replica takes steps.  A step decodes one token of every running sequence; where prefill alternates with
decoding it also takes in waiting prompts up to the token budget, long ones in chunks.  Requests are admitted in order,
while the engine's cap and the KV cache have room: for their full length, or, where blocks grow, for what they hold; if
a growing cache overflows, the youngest request loses its blocks and is prefilled again.  A router deals requests to
replicas.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.planning.load import about_lengths, assumptions, open_numbers, without_traffic
from perfmodel.prediction import question_of
from perfmodel.prediction import run as predict
from perfmodel.serving.chain import serve
from perfmodel.serving.lengths import Lengths, empirical
from perfmodel.serving.objectives import QUEUE_TIMES, phrase, queue_of, summary
from perfmodel.serving.steady import steady_state
from perfmodel.serving.step_times import StepTimes, step_times
from perfmodel.serving.traffic import closed_lengths, is_trace, lengths_of, read_trace, trace_scv
from perfmodel.shown import Shown
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Routing, Scenario

#: Rounds from which on a closed loop counts as steady, and its start is not looked at.
STEADY_ROUNDS = 1e5


@dataclass(frozen=True)
class Load:
    """Requests in the order of their arrival: times [s] and tokens."""

    arrival: Any
    prompt: Any
    output: Any

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Simulated:
    """What each request met [s], in the order of arrival; NaN where it was refused or did not end.

    Attributes
    ----------
    arrived, wait, ttft, tpot, latency : ndarray
        Time of arrival, time until admission, time to first token, time per output token after it (NaN for requests of
        one token), time until the last token.
    gap_at, gap, gap_count : ndarray
        When tokens came, the times between two of them, and how many gaps of that length there were then.
    running : float
        Requests in all replicas, averaged over time.
    busy : float
        Share of time with a step under way, averaged over replicas.
    refused : int
        Requests that no pool can hold.
    preempted : int
        Times that a request lost its blocks.
    span : float
        Time from the first arrival to the last token.
    rate : float
        Requests finished, all replicas together [1/s].
    """

    arrived: Any
    wait: Any
    ttft: Any
    tpot: Any
    latency: Any
    gap_at: Any
    gap: Any
    gap_count: Any
    running: float
    busy: float
    refused: int
    preempted: int
    span: float
    rate: float

    def after(self, warm_up: float) -> Simulated:
        """Return what requests met beyond a first share of them, and what they finished from then on."""
        return self.between(int(len(self.ttft) * warm_up), len(self.ttft))

    def between(self, first: int, last: int) -> Simulated:
        """Return what requests met of which the first to count and the first not to count are given.

        The rate is that from the arrival of the former to that of the latter, or to the last end.
        """
        parts = {name: getattr(self, name)[first:last] for name in ("arrived", "wait", "ttft", "tpot", "latency")}
        begin = float(self.arrived[first])
        ends = self.arrived + self.latency
        until = float(self.arrived[last]) if last < len(self.arrived) else float(np.nanmax(ends))
        kept = (self.gap_at >= begin) & (self.gap_at <= until)
        done = int(np.sum((ends > begin) & (ends <= until)))
        return Simulated(
            **parts,
            gap_at=self.gap_at[kept],
            gap=self.gap[kept],
            gap_count=self.gap_count[kept],
            running=self.running,
            busy=self.busy,
            refused=self.refused,
            preempted=self.preempted,
            span=self.span,
            rate=done / (until - begin) if until > begin else self.rate,
        )


def arrivals(rate: float, scv: float, count: int, generator: Any) -> Any:
    """Draw arrival times of a renewal process with gamma gaps [s].

    Parameters
    ----------
    rate : float
        Arrivals [1/s].
    scv : float
        Squared coefficient of variation of the gaps; 0 for equal ones.
    count : int
    generator : numpy.random.Generator
    """
    if scv == 0.0:
        return np.arange(count) / rate
    return np.cumsum(generator.gamma(1 / scv, scv / rate, size=count))


def drawn(rate: float, scv: float, lengths: Lengths, count: int, seed: int) -> Load:
    """Draw a load of renewal arrivals and independent lengths."""
    generator = np.random.default_rng(seed)
    prompt, output = lengths.draw(generator, count)
    return Load(arrivals(rate, scv, count, generator), prompt, output)


class _Requests:
    """What all replicas know of the requests: tokens, bytes, times of their prefill by company, and what they met."""

    def __init__(self, times: StepTimes, cached: float, load: Load) -> None:
        self.times, self.cached, self.grows = times, cached, times.grows
        count = len(load)
        self.prompt = np.maximum(1.0, np.round(load.prompt)).tolist()
        self.output = np.maximum(1.0, np.round(load.output)).astype(int).tolist()
        whole = np.asarray(self.prompt) + np.asarray(self.output)
        self.bytes = np.asarray(times.bytes_of(whole)).tolist()
        self.prompt_bytes = np.asarray(times.bytes_of(np.asarray(self.prompt))).tolist()
        self.companies = times.company.tolist()
        self.took = self._by_company(times.prefill)
        self.first = self._by_company(times.first_token)
        self.slot = self._by_company(times.entry) if times.rides else self.took
        self.context_knots = times.context.tolist()
        batches = np.arange(int(times.batch[-1]) + 1)
        self.rows = [np.interp(batches, times.batch, row).tolist() for row in times.decode]
        nan = [math.nan] * count
        self.arrived, self.admitted, self.started, self.finished = list(nan), list(nan), list(nan), list(nan)
        #: Tokens that a request has brought, up to date where it does not decode.
        self.brought = [0] * count
        self.gaps: list[tuple[float, float, float]] = []
        self.refused = self.preempted = 0

    def _by_company(self, form: Callable[..., Any]) -> list[list[float]]:
        return [np.asarray(form(self.prompt, company, self.cached)).tolist() for company in self.companies]

    def of(self, name: str, request: int, company: float) -> float:
        """Time of a prefill in company [s]: ``took`` from decoding, until the ``first`` token, or the ``slot``."""
        if self.brought[request]:
            form = {"took": self.times.prefill, "first": self.times.first_token, "slot": self.times.entry}[name]
            return float(form(self.tokens(request), company, self.cached))
        table: list[list[float]] = getattr(self, name)
        knots = self.companies
        if company <= knots[0]:
            return table[0][request]
        at = min(max(bisect_right(knots, company) - 1, 0), len(knots) - 2)
        share = min(max((company - knots[at]) / (knots[at + 1] - knots[at]), 0.0), 1.0)
        return float(table[at][request] * (1 - share) + table[at + 1][request] * share)

    def held(self, request: int) -> float:
        """Cache of what is to be prefilled [B]."""
        if self.brought[request]:
            return float(self.times.bytes_of(self.tokens(request)))
        found: float = self.prompt_bytes[request]
        return found

    def tokens(self, request: int) -> float:
        """Tokens to prefill: the prompt, and what a preempted request had brought."""
        return float(self.prompt[request]) + self.brought[request]


class _Leg:
    """Steps in a row that decode the same sequences: the j-th of them takes ``first + j * slope``.

    ``fresh`` are the times of first tokens of those who decode since, ``through`` the requests whose prefill ends in
    it, ``taken`` its prefill.
    """

    __slots__ = ("began", "count", "first", "fresh", "slope", "taken", "through")

    def __init__(
        self,
        began: float,
        first: float,
        fresh: list[float],
        through: list[int],
        taken: float = 0.0,
        slope: float = 0.0,
        count: int = 1,
    ) -> None:
        self.began, self.first, self.slope, self.count = began, first, slope, count
        self.fresh, self.through, self.taken = fresh, through, taken

    def time(self, steps: int) -> float:
        """Time of the first steps [s]."""
        return steps * self.first + self.slope * steps * (steps - 1) / 2

    def upto(self, now: float) -> int:
        """Steps up to the end of the one that is under way."""
        passed = now - self.began
        lead = self.first - self.slope / 2
        done = 2 * passed / (lead + math.sqrt(max(0.0, lead * lead + 2 * self.slope * passed)))
        return max(1, min(self.count, int(done) + 1))


class _Replica:
    """The engine of one replica: takes legs of steps, and ends them early where something arrives."""

    def __init__(self, world: _World, requests: _Requests) -> None:
        self.world, self.all, self.times = world, requests, requests.times
        self.queue: deque[int] = deque()
        self.entering: deque[int] = deque()
        self.left: dict[int, float] = {}
        self.joining: list[tuple[float, int]] = []
        #: Decoding requests in the order of admission: the step at which the cache of each one would have been empty.
        self.running: dict[int, float] = {}
        #: Bytes of those admitted who do not decode yet.
        self.entry: dict[int, float] = {}
        self.ending: dict[int, list[int]] = {}
        self.ends: list[int] = []
        self.inside = self.decoding = self.steps = self.version = 0
        self.full_length = self.context = 0.0
        self.leg: _Leg | None = None
        self.slot_until = 0.0
        self.slow = 1.0
        self.area = self.worked = 0.0
        self.last_token: dict[int, float] = {}

    @property
    def load(self) -> int:
        """Requests in the replica, waiting ones included."""
        return self.inside + len(self.queue)

    # --- admission and memory ---

    def _held(self, steps: int = 0) -> float:
        """Bytes that admitted requests hold after so many more steps."""
        tokens = self.steps + steps - np.fromiter(self.running.values(), float, len(self.running))
        return float(np.sum(self.times.bytes_of(tokens))) + sum(self.entry.values())

    def _admit(self, now: float) -> None:
        requests, times = self.all, self.times
        while self.queue and self.inside < times.cap:
            request = self.queue[0]
            whole = requests.bytes[request]
            if self.full_length + whole > times.pool and not (requests.grows and self.inside == 0):
                if not requests.grows:
                    return
                if self._held(1) + requests.held(request) > times.pool:
                    return
            self.queue.popleft()
            self.full_length += whole
            self.entry[request] = requests.held(request) if requests.grows else 0.0
            self.inside += 1
            if math.isnan(requests.admitted[request]):
                requests.admitted[request] = now
            self.left[request] = max(1.0, requests.tokens(request) * (1 - requests.cached))
            self.entering.append(request)

    def _preempt(self, now: float) -> None:
        """Take the blocks of the youngest requests until the others can grow by one token."""
        requests = self.all
        while self.full_length > self.times.pool and self.decoding > 1 and self._held(1) > self.times.pool:
            request = next(reversed(self.running))
            length = self.steps - self.running.pop(request)
            end = int(self.steps + requests.prompt[request] + requests.output[request] - 1 - length)
            self.ending[end].remove(request)
            self.decoding -= 1
            self.context -= length
            self.inside -= 1
            self.full_length -= requests.bytes[request]
            requests.brought[request] = requests.output[request] - (end - self.steps)
            requests.preempted += 1
            self.last_token[request] = now
            self.queue.appendleft(request)

    # --- prefill ---

    def arrive(self, request: int, now: float) -> None:
        """Take a request into the queue."""
        self.queue.append(request)
        if self.times.rides:
            if now >= self.slot_until:
                self._next_slot(now)
        elif len(self.queue) == 1:
            self._interrupt(now)

    def _take_in(self) -> tuple[float, list[int]]:
        """Return the time of the prompts of this step and those that are through."""
        requests = self.all
        room, through, parts = self.times.budget, [], []
        while self.entering and room > 0:
            request = self.entering[0]
            left = self.left[request]
            tokens = left if left < room else room
            parts.append((request, tokens / max(1.0, requests.tokens(request) * (1 - requests.cached))))
            room -= tokens
            self.left[request] -= tokens
            if self.left[request] > 0:
                break
            through.append(self.entering.popleft())
        company, took = float(len(parts)), 0.0
        for request, share in parts:
            took += share * requests.of("took", request, company)
        return took, through

    def _next_slot(self, now: float) -> None:
        """Let the next prompt ride along with decoding, where the machine does that."""
        requests = self.all
        self._admit(now)
        if not self.entering:
            self.slow = 1.0
            self._interrupt(now)
            return
        request = self.entering.popleft()
        company = float(self.decoding + 1)
        slot, taken = requests.of("slot", request, company), requests.of("took", request, company)
        self.slot_until = now + slot
        self.slow = 1 / (1 - min(0.9, taken / slot)) if self.decoding else 1.0
        self._join(request, now, requests.of("first", request, company))
        self.world.push(self.slot_until, self.slot_ends)
        self._interrupt(now)

    def slot_ends(self, now: float) -> None:
        """Let the next prompt in."""
        if now >= self.slot_until:
            self._next_slot(now)

    def _join(self, request: int, now: float, later: float) -> None:
        self.joining.append((now + later, request))
        if later > 0:
            self.world.push(now + later, self.ready)

    def ready(self, now: float) -> None:
        """Note the first tokens that are out."""
        requests = self.all
        for at in range(len(self.joining) - 1, -1, -1):
            ready, request = self.joining[at]
            if ready <= now and requests.brought[request] + 1 >= requests.output[request]:
                del self.joining[at]
                self._first_token(request, ready)
                self._leave(request, ready)
        if self.times.rides and now >= self.slot_until and self.queue:
            self._next_slot(now)
        self._interrupt(now)

    def _first_token(self, request: int, at: float) -> None:
        requests = self.all
        if requests.brought[request]:
            requests.gaps.append((at, at - self.last_token.pop(request), 1.0))
        else:
            requests.started[request] = at
        requests.brought[request] += 1
        del self.entry[request]

    def _leave(self, request: int, at: float) -> None:
        self.all.finished[request] = at
        self.inside -= 1
        self.full_length -= self.all.bytes[request]
        self.world.ended(at)

    # --- decoding ---

    def _decode_begins(self, now: float) -> list[float]:
        """Let those whose first token is out decode; return when that was."""
        requests, still, fresh = self.all, [], []
        for ready, request in self.joining:
            if ready > now:
                still.append((ready, request))
                continue
            length = requests.tokens(request)
            self._first_token(request, ready)
            left = requests.output[request] - requests.brought[request]
            if left <= 0:
                self._leave(request, ready)
                continue
            fresh.append(ready)
            self.decoding += 1
            self.context += length
            self.running[request] = self.steps - length
            end = self.steps + left
            if end not in self.ending:
                self.ending[end] = []
                heappush(self.ends, end)
            self.ending[end].append(request)
        self.joining = still
        return fresh

    def begin(self, now: float) -> None:
        """Begin the next leg, if there is anything to do."""
        requests, times = self.all, self.times
        fresh = self._decode_begins(now) if self.joining else []
        tight = requests.grows and self.full_length > times.pool
        if tight:
            self._preempt(now)
        taken = 0.0
        through: list[int] = []
        if not times.rides:
            if self.queue:
                self._admit(now)
            if self.entering:
                taken, through = self._take_in()
        batch = self.decoding
        if batch == 0:
            self.leg = None if taken == 0.0 else _Leg(now, taken, fresh, through, taken)
        else:
            knots, mean = requests.context_knots, self.context / batch
            at = min(max(bisect_right(knots, mean) - 1, 0), len(knots) - 2)
            low, high = requests.rows[at][batch], requests.rows[at + 1][batch]
            slope = (high - low) / (knots[at + 1] - knots[at])
            if mean >= knots[-1]:
                low, slope = high, 0.0
            first = (low + slope * (mean - knots[at])) * self.slow
            if taken:
                self.leg = _Leg(now, first + taken, fresh, through, taken)
            else:
                while self.ends[0] not in self.ending or not self.ending[self.ends[0]]:
                    self.ending.pop(heappop(self.ends), None)
                count = self.ends[0] - self.steps
                if slope and count > 1:
                    count = min(count, max(1, int(knots[at + 1] - mean) + 1))
                if tight:
                    while count > 1 and self._held(count) > times.pool:
                        count //= 2
                self.leg = _Leg(now, first, fresh, through, 0.0, slope * self.slow, count)
        if self.leg is not None:
            self._schedule()

    def _schedule(self) -> None:
        assert self.leg is not None
        self.version += 1
        self.world.push(self.leg.began + self.leg.time(self.leg.count), self.leg_ends, self.version)

    def _interrupt(self, now: float) -> None:
        """Let the next leg begin when the step under way ends."""
        leg = self.leg
        if leg is None:
            self.begin(now)
        elif leg.count > 1 and (count := leg.upto(now)) < leg.count:
            leg.count = count
            self._schedule()

    def leg_ends(self, now: float, version: int) -> None:
        """Hand out the tokens of a leg."""
        leg = self.leg
        if leg is None or version != self.version:
            return
        requests, span = self.all, now - leg.began
        self.area += span * self.inside
        self.worked += span
        if self.decoding:
            gaps = requests.gaps
            one = leg.first
            if leg.fresh:
                gaps.extend([(now, leg.began + one - ready, 1.0) for ready in leg.fresh])
            later = self.decoding * leg.count - len(leg.fresh)
            if later:
                gaps.append((now, span / leg.count, later))
            self.steps += leg.count
            self.context += self.decoding * leg.count
            if self.ends and self.ends[0] == self.steps:
                heappop(self.ends)
            for request in self.ending.pop(self.steps, ()):
                self.decoding -= 1
                self.context -= self.steps - self.running.pop(request)
                self._leave(request, now)
        group = float(len(leg.through))
        for request in leg.through:
            # A pipeline lets the next prompts in before the first tokens of these come out.
            passed = requests.of("first", request, group) / (group * requests.of("took", request, group))
            late = leg.taken * (passed - 1)
            self._join(request, now, late if late > 1e-9 * leg.first else 0.0)
        self.leg = None
        if self.times.rides and self.queue and now >= self.slot_until:
            self._next_slot(now)
        if self.leg is None:
            self.begin(now)


class _World:
    """The clock, the clients and the router."""

    def __init__(
        self,
        requests: _Requests,
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
        self.replicas = [_Replica(self, requests) for _ in range(replicas)]
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
    requests = _Requests(times, cached, load)
    world = _World(requests, replicas, routing, clients, think, np.random.default_rng(seed), tick)
    world.run((np.asarray(load.arrival, dtype=float) + times.front).tolist())
    arrived, started, finished = (np.array(part) for part in (requests.arrived, requests.started, requests.finished))
    # Clients of a closed loop send in the order of arrival, but a preempted or refused one keeps its place.
    steps = np.array(requests.output) - 1
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
    )


#: Times that a simulation is compared by, with the attribute of each.
_JUDGED = ("ttft_s", "tpot_s", "itl_s")
#: Difference from which on a closed form counts as failing.
FAILS = 0.15
#: Requests, or clients, that are simulated at the most.
MOST = 10_000_000
#: Standard errors at which no further seed is drawn: a third of what the closed form is held to, by time and statistic.
ENOUGH = {("ttft_s", "p99"): 0.08 / 3, ("tpot_s", "p99"): 0.06 / 3, ("itl_s", "p99"): 0.1 / 3}
#: The same of a closed loop.
ENOUGH_CLOSED = {("ttft_s", "mean"): 0.08 / 3, ("tpot_s", "mean"): 0.01 / 3}
#: Seeds at least, and at most; replicas that are simulated at most.
SEEDS = (3, 12)
_REPLICAS = 8
#: Requests of a seed, unless told otherwise.
_REQUESTS = 5000
#: Share of the requests before a replica under a rate is in its stride.
_WARM_UP = 0.1

_Times = dict[str, dict[str, float | None]]


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """A simulation beside the closed form.

    Attributes
    ----------
    scenario : Scenario
    simulated : dict
        Mean and percentiles by time [s], averaged over seeds.
    closed_form : dict
        The same of the chain under a rate; means of the steady state in a closed loop; null where there is none.
    errors : dict
        Standard errors of what was simulated, as shares of it [1].
    requests, seeds, refused, preempted : int
        Requests and replicas of each seed, and what happened in all of them.
    replicas : int
        Replicas that were simulated.
    rate, closed_rate : float
        Requests finished by each replica, and in the closed form [1/s].
    utilisation : float
        Rate over what the replica can do; NaN for a closed loop.
    reason : str
        Why nothing was simulated, else empty.
    """

    scenario: Scenario
    simulated: _Times
    closed_form: _Times
    errors: _Times
    requests: int
    seeds: int
    refused: int
    preempted: int
    replicas: int
    rate: float
    closed_rate: float
    utilisation: float
    reason: str = ""

    def differences(self) -> _Times:
        """Return closed form over simulation, less 1."""
        found: _Times = {}
        for time, parts in self.simulated.items():
            found[time] = {}
            for what, ran in parts.items():
                closed = self.closed_form.get(time, {}).get(what)
                found[time][what] = None if closed is None or not ran else closed / ran - 1
        return found

    def fails(self) -> list[str]:
        """Return where the closed form is off by more than ``FAILS``, and where the simulation does not know better."""
        found = [
            f"the closed form is off by {gap:+.0%} in {phrase((QUEUE_TIMES[time], what))}"
            for time, parts in self.differences().items()
            for what, gap in parts.items()
            if time in ("ttft_s", "tpot_s", "itl_s")
            and what in ("mean", "p99")
            and gap is not None
            and abs(gap) > FAILS
        ]
        wanted = ENOUGH if np.isfinite(self.utilisation) else ENOUGH_CLOSED
        found += [
            f"the simulation knows {phrase((QUEUE_TIMES[time], what))} to {error:.1%} only: more --requests tell more"
            for (time, what), most in wanted.items()
            if (error := self.errors.get(time, {}).get(what)) is not None and error > most
        ]
        return found

    def to_dict(self) -> shapes.Simulation:
        """Return the documented JSON object."""
        return {
            **question_of(self.scenario),
            "routing": self.scenario.deployment.routing,
            "requests": self.requests,
            "seeds": self.seeds,
            "replicas": self.replicas,
            "refused": self.refused,
            "preempted": self.preempted,
            "rate_per_s": shapes.number(self.rate),
            "closed_form_rate_per_s": shapes.number(self.closed_rate),
            "utilisation": shapes.number(self.utilisation),
            "simulated": shapes.times(self.simulated),
            "standard_error": shapes.times(self.errors),
            "closed_form": shapes.times(self.closed_form) if self.closed_form else None,
            "difference": shapes.times(self.differences()) if self.closed_form else None,
            "reason": self.reason or None,
            "assumed": list(self.scenario.assumed),
            "warnings": [*self.scenario.warnings, *self.fails()],
        }

    def to_frame(self) -> Any:
        """Return a pandas frame, one row a time and statistic: simulated and closed form [s], and their difference."""
        import pandas as pd

        gaps = self.differences()
        rows = [
            {
                "time": time,
                "what": what,
                "simulated": ran,
                "standard_error": self.errors[time][what],
                "closed_form": self.closed_form.get(time, {}).get(what),
                "difference": gaps[time][what],
            }
            for time, parts in self.simulated.items()
            for what, ran in parts.items()
        ]
        return pd.DataFrame(rows)


def measured(ran: Simulated, shares: Sequence[str] = ("p50", "p90", "p99")) -> _Times:
    """Return mean and percentiles of what requests met, by time [s]; null where nothing was met."""
    found: _Times = {}
    levels = np.array([float(share[1:]) / 100 for share in shares])
    for key, name in QUEUE_TIMES.items():
        values = ran.gap if name == "itl" else getattr(ran, name)
        weight = ran.gap_count if name == "itl" else np.ones(len(values))
        kept = ~np.isnan(values)
        values, weight = values[kept], weight[kept]
        if not len(values):
            found[key] = dict.fromkeys((*shares, "mean"))
            continue
        order = np.argsort(values)
        below = np.cumsum(weight[order])
        at = np.searchsorted(below, levels * below[-1])
        reached = values[order][np.minimum(at, len(values) - 1)]
        found[key] = dict(zip(shares, reached.tolist(), strict=True))
        found[key]["mean"] = float(np.sum(values * weight) / below[-1])
    return found


def over_seeds(runs: list[_Times]) -> tuple[_Times, _Times]:
    """Return means of statistics over seeds, and their standard errors as shares of them [1]."""
    means: _Times = {}
    errors: _Times = {}
    for time, parts in runs[0].items():
        means[time], errors[time] = {}, {}
        for what in parts:
            values = np.array([run[time][what] for run in runs if run[time][what] is not None], dtype=float)
            mean = float(values.mean()) if len(values) else None
            means[time][what] = mean
            sure = len(values) > 1 and mean
            errors[time][what] = float(values.std(ddof=1) / np.sqrt(len(values)) / mean) if sure and mean else None
    return means, errors


def is_enough(errors: _Times, wanted: Mapping[tuple[str, str], float]) -> bool:
    """Whether every standard error that counts is known and small enough."""
    found = [(errors[time][what], most) for (time, what), most in wanted.items()]
    return all(error is None or error <= most for error, most in found)


def _assumed(scenario: Scenario, trace: str | None, concurrency: float | None) -> list[str]:
    """Return what was assumed of what is simulated."""
    if trace is not None:
        return [*without_traffic(scenario, lengths=True), f"arrivals and lengths of {trace}, as they are"]
    if concurrency is None:
        return assumptions(scenario)
    traffic = scenario.traffic
    jitter = float(traffic.length_jitter)
    spread = f"lengths spread evenly over the upper {jitter:.0%}" if jitter else about_lengths(traffic)
    return [*without_traffic(scenario, not jitter and is_trace(traffic.lengths)), spread]


def ask(
    scenario: Scenario,
    *,
    rate: float | None = None,
    trace: str | None = None,
    concurrency: float | None = None,
    count: int | None = None,
    seed: int = 1,
    tick: Callable[[int], None] | None = None,
) -> Comparison:
    """Simulate a deployment, and put the closed form beside it.

    A rate or a closed loop is drawn with one seed after the other until the standard error is a third of what the
    closed form is held to, or for ``SEEDS`` at most; a loop of few rounds for as many as take ``count`` requests.

    Parameters
    ----------
    scenario : Scenario
        With ``deployment.dp`` replicas, of which ``_REPLICAS`` at most are simulated.
    rate : float, optional
        Requests, all replicas together [1/s].
    trace : str, optional
        File whose arrivals and lengths are replayed.
    concurrency : float, optional
        Clients of a closed loop, all replicas together; the scenario is that of ``predict``.
    count : int, optional
        Requests of each seed, or of all seeds of a loop of few rounds.
    seed : int
        The first one.
    tick : callable, optional
        Called with the number of requests that ended since the last call.

    Returns
    -------
    Comparison
    """
    given_count, count = count, _REQUESTS if count is None else count
    for option, given in (("--requests", count), ("--concurrency", concurrency)):
        if given is not None and given > MOST:
            raise UserError(f"{option} {given:g}: at most {MOST:,} are simulated")
    plan, traffic = scenario.deployment, scenario.traffic
    all_replicas = max(1, round(float(plan.groups)))
    replicas = min(all_replicas, _REPLICAS)
    share, scv = replicas / all_replicas, float(traffic.arrival_scv)
    replayed: Load | None = None
    if trace is not None:
        arrived, prompt, output = read_trace(trace)
        mine = np.random.default_rng(seed).random(len(arrived)) < share
        replayed = Load(arrived[mine][:count], prompt[mine][:count], output[mine][:count])
        if len(replayed) < 2:
            raise UserError(f"{trace}: fewer than 2 requests to replay")
        lengths = empirical(replayed.prompt, replayed.output)
        rate = (len(replayed) - 1) / max(1e-9, float(replayed.arrival[-1] - replayed.arrival[0])) / share
        scv = trace_scv(replayed.arrival)
    else:
        lengths = lengths_of(traffic) if concurrency is None else closed_lengths(traffic)

    def lengths_asked(asked: Scenario) -> Lengths | Load:
        if replayed is not None:
            return replayed
        return lengths_of(asked.traffic) if concurrency is None else closed_lengths(asked.traffic)

    def tables(asked: Scenario) -> StepTimes:
        mine = lengths_asked(asked)
        # A request that loses its blocks prefills what it has brought, too.
        longest = float(np.max(mine.prompt + mine.output))
        return step_times(asked, longest_prompt=longest, longest=longest)

    def drives(asked: Scenario) -> list[Any]:
        own, laid = asked.traffic, asked.deployment
        mine = [] if replayed is not None else [vars(lengths_asked(asked)), own.arrival_scv if rate else None]
        loop = [own.think_time, own.rounds] if concurrency else []
        routed = laid.routing if all_replicas > 1 else None
        return [vars(tables(asked)), *mine, own.prefix_hits, *loop, routed, laid.groups]

    def traced(asked: Scenario) -> Any:
        own = {} if replayed is None else {"traffic.prompt": 1.0, "traffic.output": 1.0}
        return open_numbers(put_all(asked, own))

    more = idle(scenario, unmoved(scenario, drives), traced)
    scenario = replace(
        scenario,
        assumed=tuple(_assumed(scenario, trace, concurrency)),
        warnings=(*scenario.warnings, *more),
    )
    times = tables(scenario)
    cached = float(traffic.prefix_hits)
    service = serve(times, lengths, cached, plan.routing)

    def nothing(reason: str, offered: float = np.nan, refused: int = 0) -> Comparison:
        used = offered / service.capacity if service.capacity > 0 else np.nan
        return Comparison(scenario, {}, {}, {}, 0, 0, refused, 0, replicas, offered, np.nan, used, reason)

    if np.isnan(service.capacity):
        return nothing(predict(scenario).reason)
    if service.capacity <= 0:
        return nothing("no request of this traffic fits a replica's cache", refused=count)
    each = np.nan if rate is None else rate / all_replicas
    if trace is None and rate is not None and each >= service.capacity:
        return nothing(f"saturated: {each:.4g} requests/s a replica against at most {service.capacity:.3g}", each)
    clients = None if concurrency is None else max(1, round(concurrency * share))
    is_burst = clients is not None and float(traffic.rounds) < STEADY_ROUNDS
    asked_for = count
    if clients is not None:
        count = round(clients * float(traffic.rounds)) if is_burst else max(count, 6 * clients)
    runs, rates, refused, preempted = [], [], 0, 0
    if is_burst and given_count is not None and asked_for <= SEEDS[0] * count:
        least = f"{SEEDS[0]} times {count:,} are drawn at least, each client for {traffic.rounds:g} rounds"
        scenario = replace(scenario, warnings=(*scenario.warnings, f"--requests did not enter this answer: {least}"))
    most = 1 if trace is not None else max(SEEDS[0], math.ceil(asked_for / count)) if is_burst else SEEDS[1]
    for turn in range(most):
        load = replayed or drawn((rate or 1.0) * share, scv, service.lengths, count, seed + turn)
        ran = simulate(
            times,
            load,
            cached=cached,
            clients=clients,
            think=float(traffic.think_time),
            seed=seed + turn,
            replicas=replicas,
            routing=plan.routing,
            tick=tick if turn == 0 else None,
        )
        refused, preempted = refused + ran.refused, preempted + ran.preempted
        counted = ran
        if clients is not None:
            # Until the first client finds no further request; without a burst from the end of the first round on.
            counted = ran.between(0 if is_burst else max(clients, count // 10), count - clients)
        elif trace is None:
            counted = ran.after(_WARM_UP)
        # The last requests of a burst count too, but not how long their end takes.
        runs.append(measured(ran if is_burst else counted))
        rates.append(counted.rate / replicas)
        simulated, errors = over_seeds(runs)
        if turn + 1 >= SEEDS[0] and is_enough(errors, ENOUGH if clients is None else ENOUGH_CLOSED):
            break
    closed: _Times
    if clients is None:
        queue = queue_of(service, rate or 0.0, scv, all_replicas)
        closed = {key: summary(queue, name) for key, name in QUEUE_TIMES.items()}
        closed_rate, used = each, queue.utilisation
    else:
        own = {"traffic.prompt": lengths.mean(lengths.prompt), "traffic.output": lengths.mean(lengths.output)}
        asked = scenario if not is_trace(traffic.lengths) else put_all(scenario, own)
        steady = steady_state(asked)
        means = {"ttft_s": steady.ttft, "tpot_s": steady.tpot, "request_latency_s": steady.latency}
        closed = {key: {"mean": shapes.number(value)} for key, value in means.items()}
        closed_rate, used = float(steady.rate) / all_replicas, np.nan
    return Comparison(
        scenario,
        simulated,
        closed,
        errors,
        len(load),
        len(runs),
        refused,
        preempted,
        replicas,
        float(np.mean(rates)),
        closed_rate,
        used,
    )

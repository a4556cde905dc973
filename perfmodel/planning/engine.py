"""The engine of one replica, token by token.

It takes steps.  A step decodes one token of every running sequence, or with a draft the mean tokens of a step, of which
the last one brings what is left; where prefill alternates with decoding it also takes in waiting prompts up to the
token budget, long ones in chunks.  Requests are admitted in order, while the engine's cap and the KV cache have room:
for their full length, or, where blocks grow, for what they hold; if a growing cache overflows, the youngest request
loses its blocks and is prefilled again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np

from perfmodel.planning.prefix_blocks import PrefixBlocks
from perfmodel.planning.requests import Load
from perfmodel.serving.step_times import StepTimes, passes_of

#: Multiples of it, less their whole numbers, fill the interval from 0 to 1 evenly.
_GOLDEN = (math.sqrt(5) - 1) / 2


class Clock(Protocol):
    """What a replica needs of the world around it."""

    def push(self, at: float, what: Callable[..., None], *arguments: Any) -> None:
        """Have something done at a time."""

    def ended(self, at: float) -> None:
        """Count the end of a request."""


class Requests:
    """What all replicas know of the requests: tokens, bytes, times of their prefill, and what they met."""

    def __init__(self, times: StepTimes, cached: float, load: Load) -> None:
        self.times, self.cached, self.grows = times, cached, times.grows
        self.blocks, self.block_tokens = load.blocks, load.block_tokens
        #: Prompt tokens of each request that its replica had when it was admitted last, and for the first time.
        self.had = [0.0] * len(load)
        self.met = [0.0] * len(load)
        count = len(load)
        self.prompt = np.maximum(1.0, np.round(load.prompt)).tolist()
        output = np.maximum(1.0, np.round(load.output))
        #: Steps that bring the tokens of a request, that of its prefill counted.
        passes = passes_of(output, times.tokens)
        # Whole numbers with the same mean: parts of a step fall to one request or the next, spread evenly.
        self.steps = np.floor(passes + np.arange(count) * _GOLDEN % 1.0 + 1e-9).astype(int).tolist()
        whole = np.asarray(self.prompt) + output
        self.bytes = np.asarray(times.bytes_of(whole)).tolist()
        self.prompt_bytes = np.asarray(times.bytes_of(np.asarray(self.prompt))).tolist()
        #: KV cache of a block [B]: its share of a request of mean length.
        self.block_bytes = float(times.bytes_of(whole.mean())) / float(whole.mean()) * load.block_tokens
        self.coscheduled = times.coscheduled.tolist()
        self.took = self._by_coscheduled(times.prefill)
        self.first = self._by_coscheduled(times.first_token)
        self.slot = self._by_coscheduled(times.entry) if times.rides else self.took
        self.context_knots = times.context.tolist()
        batches = np.arange(int(times.batch[-1]) + 1)
        self.rows = [np.interp(batches, times.batch, row).tolist() for row in times.decode]
        nan = [math.nan] * count
        self.arrived, self.admitted, self.started, self.finished = list(nan), list(nan), list(nan), list(nan)
        #: Steps that have brought tokens of a request, up to date where it does not decode.
        self.brought = [0] * count
        self.gaps: list[tuple[float, float, float]] = []
        self.refused = self.preempted = 0

    def _by_coscheduled(self, form: Callable[..., Any]) -> list[list[float]]:
        return [np.asarray(form(self.prompt, coscheduled, self.cached)).tolist() for coscheduled in self.coscheduled]

    def of(self, name: str, request: int, coscheduled: float) -> float:
        """Time of a prefill among others of its step [s]: ``took`` from decoding, until the ``first``, or ``slot``."""
        if self.brought[request] or self.blocks:
            form = {"took": self.times.prefill, "first": self.times.first_token, "slot": self.times.entry}[name]
            return float(form(self.tokens(request), coscheduled, self.share(request)))
        table: list[list[float]] = getattr(self, name)
        knots = self.coscheduled
        if coscheduled <= knots[0]:
            return table[0][request]
        at = min(max(bisect_right(knots, coscheduled) - 1, 0), len(knots) - 2)
        share = min(max((coscheduled - knots[at]) / (knots[at + 1] - knots[at]), 0.0), 1.0)
        return float(table[at][request] * (1 - share) + table[at + 1][request] * share)

    def held(self, request: int) -> float:
        """Cache of what is to be prefilled [B]."""
        if self.brought[request]:
            return float(self.times.bytes_of(self.tokens(request)))
        found: float = self.prompt_bytes[request]
        return found

    def share(self, request: int) -> float:
        """Share of what a request prefills that the prefix cache holds [1]."""
        return self.had[request] / self.tokens(request) if self.blocks else self.cached

    def tokens(self, request: int) -> float:
        """Tokens to prefill: the prompt, and what a preempted request had brought."""
        brought = self.brought[request]
        return float(self.prompt[request]) + (1 + (brought - 1) * self.times.tokens if brought else 0.0)


class _Leg:
    """Steps in a row that decode the same sequences: the j-th of them takes ``first + j * slope``.

    ``fresh`` are the times of first tokens of those who decode since, ``through`` the requests whose prefill ends in
    it.
    """

    __slots__ = ("began", "count", "first", "fresh", "slope", "taken", "through")

    def __init__(
        self,
        began: float,
        first: float,
        fresh: list[float],
        through: list[int],
        slope: float = 0.0,
        count: int = 1,
    ) -> None:
        self.began, self.first, self.slope, self.count = began, first, slope, count
        self.fresh, self.through = fresh, through

    def time(self, steps: int) -> float:
        """Time of the first steps [s]."""
        return steps * self.first + self.slope * steps * (steps - 1) / 2

    def upto(self, now: float) -> int:
        """Steps up to the end of the one that is under way."""
        passed = now - self.began
        lead = self.first - self.slope / 2
        done = 2 * passed / (lead + math.sqrt(max(0.0, lead * lead + 2 * self.slope * passed)))
        return max(1, min(self.count, int(done) + 1))


class Replica:
    """The engine of one replica: takes legs of steps, and ends them early where something arrives."""

    def __init__(self, world: Clock, requests: Requests) -> None:
        self.world, self.all, self.times = world, requests, requests.times
        self.queue: deque[int] = deque()
        self.entering: deque[int] = deque()
        self.left: dict[int, float] = {}
        self.joining: list[tuple[float, int]] = []
        #: Decoding requests in the order of admission: the step at which the cache of each one would have been empty.
        #: A step grows it by ``times.tokens``.
        self.running: dict[int, float] = {}
        #: Bytes of those admitted who do not decode yet.
        self.entry: dict[int, float] = {}
        self.ending: dict[int, list[int]] = {}
        self.end_of: dict[int, int] = {}
        self.ends: list[int] = []
        self.inside = self.decoding = self.steps = self.version = 0
        self.full_length = self.context = 0.0
        self.leg: _Leg | None = None
        self.slot_until = 0.0
        self.slow = 1.0
        self.area = self.worked = 0.0
        self.last_token: dict[int, float] = {}
        self.prefixes = PrefixBlocks(requests.block_bytes) if requests.blocks else None

    @property
    def load(self) -> int:
        """Requests in the replica, waiting ones included."""
        return self.inside + len(self.queue)

    # --- admission and memory ---

    def _held(self, steps: int = 0) -> float:
        """Bytes that admitted requests hold after so many more steps."""
        grown = self.steps + steps - np.fromiter(self.running.values(), float, len(self.running))
        tokens = grown * self.times.tokens
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
            if self.prefixes is not None:
                self._find_blocks(self.prefixes, request)
            self.left[request] = max(1.0, requests.tokens(request) * (1 - requests.share(request)))
            self.entering.append(request)

    def _find_blocks(self, prefixes: PrefixBlocks, request: int) -> None:
        """Note what the replica has of a prompt, and let the request hold its blocks."""
        requests = self.all
        blocks = requests.blocks[request]
        # The last token of a prompt is computed in any case.
        requests.had[request] = min(prefixes.found(blocks) * requests.block_tokens, requests.prompt[request] - 1)
        if not requests.brought[request]:
            requests.met[request] = requests.had[request]
        prefixes.take(blocks)
        prefixes.fit(self.times.pool - self.full_length)

    def _preempt(self, now: float) -> None:
        """Take the blocks of the youngest requests until the others can grow by one token."""
        requests = self.all
        while self.full_length > self.times.pool and self.decoding > 1 and self._held(1) > self.times.pool:
            request = next(reversed(self.running))
            length = (self.steps - self.running.pop(request)) * self.times.tokens
            end = self.end_of.pop(request)
            self.ending[end].remove(request)
            self.decoding -= 1
            self.context -= length
            self.inside -= 1
            self.full_length -= requests.bytes[request]
            requests.brought[request] = requests.steps[request] - (end - self.steps)
            if self.prefixes is not None:
                self.prefixes.give(requests.blocks[request])
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
            parts.append((request, tokens / max(1.0, requests.tokens(request) * (1 - requests.share(request)))))
            room -= tokens
            self.left[request] -= tokens
            if self.left[request] > 0:
                break
            through.append(self.entering.popleft())
        coscheduled, took = float(len(parts)), 0.0
        for request, share in parts:
            took += share * requests.of("took", request, coscheduled)
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
        coscheduled = float(self.decoding + 1)
        slot, taken = requests.of("slot", request, coscheduled), requests.of("took", request, coscheduled)
        self.slot_until = now + slot
        self.slow = 1 / (1 - min(0.9, taken / slot)) if self.decoding else 1.0
        self._join(request, now, requests.of("first", request, coscheduled))
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
            if ready <= now and requests.brought[request] + 1 >= requests.steps[request]:
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
        if self.prefixes is not None:
            self.prefixes.give(self.all.blocks[request])
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
            left = requests.steps[request] - requests.brought[request]
            if left <= 0:
                self._leave(request, ready)
                continue
            fresh.append(ready)
            self.decoding += 1
            self.context += length
            self.running[request] = self.steps - length / self.times.tokens
            end = self.end_of[request] = self.steps + left
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
            self.leg = None if taken == 0.0 else _Leg(now, taken, fresh, through)
        else:
            knots, mean = requests.context_knots, self.context / batch
            at = min(max(bisect_right(knots, mean) - 1, 0), len(knots) - 2)
            low, high = requests.rows[at][batch], requests.rows[at + 1][batch]
            slope = (high - low) / (knots[at + 1] - knots[at]) * times.tokens
            if mean >= knots[-1]:
                low, slope = high, 0.0
            first = (low + slope * (mean - knots[at]) / times.tokens) * self.slow
            if taken:
                self.leg = _Leg(now, first + taken, fresh, through)
            else:
                while self.ends[0] not in self.ending or not self.ending[self.ends[0]]:
                    self.ending.pop(heappop(self.ends), None)
                count = self.ends[0] - self.steps
                if slope and count > 1:
                    count = min(count, max(1, int((knots[at + 1] - mean) / times.tokens) + 1))
                if tight:
                    while count > 1 and self._held(count) > times.pool:
                        count //= 2
                self.leg = _Leg(now, first, fresh, through, slope * self.slow, count)
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
            self.context += self.decoding * leg.count * self.times.tokens
            if self.ends and self.ends[0] == self.steps:
                heappop(self.ends)
            for request in self.ending.pop(self.steps, ()):
                self.decoding -= 1
                self.context -= (self.steps - self.running.pop(request)) * self.times.tokens
                del self.end_of[request]
                self._leave(request, now)
        for request in leg.through:
            self._join(request, now, 0.0)
        self.leg = None
        if self.times.rides and self.queue and now >= self.slot_until:
            self._next_slot(now)
        if self.leg is None:
            self.begin(now)

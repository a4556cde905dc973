"""Continuous batching token by token, as discrete events: what the closed forms are checked against.

The engine of one replica takes steps.  A step decodes one token of every running sequence; where prefill alternates
with decoding it also takes in waiting prompts up to the token budget, long ones in chunks.  Requests are admitted in
order, while the engine's cap and the KV cache have room for them at full length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from perfmodel.entered import idle, unmoved
from perfmodel.equations import queueing
from perfmodel.errors import UserError
from perfmodel.serving.chain import closed_queue, load_queue, serve
from perfmodel.serving.lengths import Lengths, empirical
from perfmodel.serving.objectives import phrase, summary
from perfmodel.serving.step_times import StepTimes, step_times
from perfmodel.serving.traffic import is_trace, lengths_of, read_trace, trace_scv
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Scenario
from perfmodel.studies.size import about_lengths, assumptions, open_numbers, without_traffic


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
    wait, ttft, tpot, latency : ndarray
        Time until admission, time to first token, time per output token after it, time until the last token.
    running : float
        Requests in the replica, averaged over time.
    busy : float
        Share of time with a step under way.
    refused : int
        Requests that no pool can hold.
    span : float
        Time from the first arrival to the last token.
    """

    wait: Any
    ttft: Any
    tpot: Any
    latency: Any
    running: float
    busy: float
    refused: int
    span: float

    def after(self, warm_up: float) -> Simulated:
        """Return what requests met beyond a first share of them."""
        skip = int(len(self.ttft) * warm_up)
        parts = {name: getattr(self, name)[skip:] for name in ("wait", "ttft", "tpot", "latency")}
        return Simulated(**parts, running=self.running, busy=self.busy, refused=self.refused, span=self.span)


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


class _Engine:
    """One replica as a SimPy process."""

    def __init__(self, env: Any, times: StepTimes, cached: float, load: Load, ended: Callable[[int], None]) -> None:
        self.env, self.times, self.cached, self.load, self.ended = env, times, cached, load, ended
        count = len(load)
        self.prompt = np.maximum(1.0, np.round(load.prompt)).tolist()
        self.output = np.maximum(1.0, np.round(load.output)).astype(int).tolist()
        self.bytes = np.asarray(times.bytes_of(np.asarray(self.prompt) + np.asarray(self.output))).tolist()
        self.context_knots = times.context.tolist()
        whole = np.arange(int(times.batch[-1]) + 1)
        self.rows = [np.interp(whole, times.batch, row).tolist() for row in times.decode]
        self.companies = times.company.tolist()
        self.took = self._by_company(times.prefill)
        self.first = self._by_company(times.first_token)
        self.slot = self._by_company(times.entry)
        self.queue: deque[int] = deque()
        self.entering: deque[int] = deque()
        self.left: dict[int, float] = {}
        self.joining: list[tuple[float, int]] = []
        self.ending: dict[int, list[int]] = {}
        self.ends: list[int] = []
        self.pool, self.inside, self.decoding, self.context, self.steps = times.pool, 0, 0, 0.0, 0
        self.wake: Any = None
        self.door: Any = None
        self.refused = 0
        self.area = self.worked = 0.0
        self.slowed_until = 0.0
        self.slow = 1.0
        nan = [float("nan")] * count
        self.arrived, self.admitted, self.started, self.finished = list(nan), list(nan), list(nan), list(nan)

    def _by_company(self, form: Callable[..., Any]) -> list[list[float]]:
        return [np.asarray(form(self.prompt, company, self.cached)).tolist() for company in self.companies]

    def _of(self, table: list[list[float]], request: int, company: float) -> float:
        knots = self.companies
        at = min(max(bisect_right(knots, company) - 1, 0), len(knots) - 2)
        share = min(max((company - knots[at]) / (knots[at + 1] - knots[at]), 0.0), 1.0)
        return float(table[at][request] * (1 - share) + table[at + 1][request] * share)

    def _decode(self) -> float:
        if self.decoding == 0:
            return 0.0
        knots, mean = self.context_knots, self.context / self.decoding
        at = min(max(bisect_right(knots, mean) - 1, 0), len(knots) - 2)
        share = min(max((mean - knots[at]) / (knots[at + 1] - knots[at]), 0.0), 1.0)
        return float(self.rows[at][self.decoding] * (1 - share) + self.rows[at + 1][self.decoding] * share)

    def arrive(self, request: int) -> None:
        self.arrived[request] = self.env.now
        if self.bytes[request] > self.times.pool:
            self.refused += 1
            self.ended(request)
            return
        self.queue.append(request)
        self._ring()

    def _admit(self) -> None:
        while self.queue and self.inside < self.times.cap and self.bytes[self.queue[0]] <= self.pool:
            request = self.queue.popleft()
            self.pool -= self.bytes[request]
            self.inside += 1
            self.admitted[request] = self.env.now
            self.left[request] = max(1.0, self.prompt[request] * (1 - self.cached))
            self.entering.append(request)

    def _take_in(self) -> tuple[float, list[int]]:
        """Return the time of the prompts of this step and those that are through."""
        room, through, parts = self.times.budget, [], []
        while self.entering and room > 0:
            request = self.entering[0]
            tokens = min(room, self.left[request])
            parts.append((request, tokens / max(1.0, self.prompt[request] * (1 - self.cached))))
            room -= tokens
            self.left[request] -= tokens
            if self.left[request] > 0:
                break
            through.append(self.entering.popleft())
        company = float(len(parts))
        return sum(share * self._of(self.took, request, company) for request, share in parts), through

    def _join(self, request: int, at: float) -> None:
        self.started[request] = at
        if self.output[request] == 1:
            self._leave(request, at)
        else:
            self.joining.append((at, request))

    def _leave(self, request: int, at: float) -> None:
        self.finished[request] = at
        self.inside -= 1
        self.pool += self.bytes[request]
        self.ended(request)

    def _decode_begins(self) -> None:
        still = []
        for ready, request in self.joining:
            if ready > self.env.now:
                still.append((ready, request))
                continue
            self.decoding += 1
            self.context += self.prompt[request]
            end = self.steps + self.output[request] - 1
            if end not in self.ending:
                self.ending[end] = []
                heappush(self.ends, end)
            self.ending[end].append(request)
        self.joining = still

    def ride(self) -> Generator[Any, Any, None]:
        """Let prompts ride along with decoding, one after the other, where the machine does that."""
        while True:
            self._admit()
            if not self.entering:
                self.door = self.env.event()
                yield self.door
                continue
            request = self.entering.popleft()
            company = float(self.decoding + 1)
            slot, taken = self._of(self.slot, request, company), self._of(self.took, request, company)
            self.slowed_until = self.env.now + slot
            self.slow = 1 / (1 - min(0.9, taken / slot)) if self.decoding else 1.0
            self._join(request, self.env.now + self._of(self.first, request, company))
            self._ring()
            yield self.env.timeout(slot)

    def _ring(self) -> None:
        """Wake the steps, and the prompts that ride along."""
        if self.wake is not None:
            self.wake.succeed()
            self.wake = None
        if self.door is not None:
            self.door.succeed()
            self.door = None

    def _ahead(self, span: float) -> float:
        """Take the steps in which nothing but decoding happens, up to the one that something else falls into."""
        now = self.env.now
        horizon = min(self.env.peek(), *(at for at, _ in self.joining), float("inf")) - now
        slow = self.slow if now < self.slowed_until else 1.0
        knots, mean, steps = self.context_knots, self.context / self.decoding, self.steps
        while span < horizon and steps + 1 < self.ends[0]:
            # Each step adds one token to every context; between two knots its time is a line.
            mean += 1
            at = min(max(bisect_right(knots, mean) - 1, 0), len(knots) - 2)
            low, high = self.rows[at][self.decoding], self.rows[at + 1][self.decoding]
            slope = slow * (high - low) / (knots[at + 1] - knots[at])
            time = slow * low + slope * (mean - knots[at])
            edge = knots[at + 1]
            if mean >= knots[-1]:
                slope, time, edge = 0.0, slow * high, float("inf")
            steps += 1
            span += time
            while span < horizon and steps + 1 < self.ends[0] and mean + 1 < edge:
                mean += 1
                steps += 1
                time += slope
                span += time
        self.context += self.decoding * (steps - self.steps)
        self.steps = steps
        return span

    def run(self) -> Generator[Any, Any, None]:
        env, times = self.env, self.times
        while True:
            self._decode_begins()
            through: list[int] = []
            taken = 0.0
            if not times.rides:
                self._admit()
                taken, through = self._take_in()
            span = self._decode() * (self.slow if env.now < self.slowed_until else 1.0) + taken
            if span == 0.0:
                self.wake = env.event()
                ready = [at for at, _ in self.joining]
                yield self.wake if not ready else self.wake | env.timeout(max(0.0, min(ready) - env.now))
                self.wake = None
                continue
            if self.decoding and (times.rides or not (self.entering or through)):
                span = self._ahead(span)
            self.area += span * self.inside
            self.worked += span
            yield env.timeout(span)
            if self.decoding:
                self.steps += 1
                self.context += self.decoding
                if self.ends and self.ends[0] == self.steps:
                    heappop(self.ends)
                for request in self.ending.pop(self.steps, ()):
                    self.decoding -= 1
                    self.context -= self.prompt[request] + self.output[request] - 1
                    self._leave(request, env.now)
                self._ring()
            group = float(max(1, len(through)))
            for request in through:
                # A pipeline lets the next prompt in before this one's first token comes out.
                late = self._of(self.first, request, group) - group * self._of(self.took, request, group)
                self._join(request, env.now + max(0.0, late))


def simulate(
    times: StepTimes,
    load: Load,
    *,
    cached: float = 0.0,
    sessions: int | None = None,
    think: float = 0.0,
    seed: int = 0,
    tick: Callable[[int], None] | None = None,
) -> Simulated:
    """Run a load through one replica.

    Parameters
    ----------
    times : StepTimes
    load : Load
        With ``sessions``, only the lengths count: each session sends its next request when the last one ended and it
        has thought.
    cached : float
        Share of each prompt that the prefix cache holds.
    sessions : int, optional
        Clients of a closed loop, who all start at once.
    think : float
        Mean time between the end of a request and the next one of the same client, exponential [s].
    seed : int
        For the think times.
    tick : callable, optional
        Called with the number of requests that ended since the last call.

    Returns
    -------
    Simulated
    """
    try:
        import simpy
    except ImportError:
        raise UserError("simulation needs SimPy: pip install 'perfmodel[simulation]'") from None
    env = simpy.Environment()
    over = env.event()
    count, done, shown = len(load), 0, 0
    generator = np.random.default_rng(seed)
    following = iter(range(count))

    def ended(request: int) -> None:
        nonlocal done, shown
        done += 1
        if tick is not None and done - shown >= max(1, count // 200):
            tick(done - shown)
            shown = done
        if done == count:
            over.succeed()
        elif sessions is not None:
            env.process(session())

    def session() -> Generator[Any, Any, None]:
        yield env.timeout(float(generator.exponential(think)) if think else 0.0)
        request = next(following, None)
        if request is not None:
            engine.arrive(request)

    def open_load() -> Generator[Any, Any, None]:
        for request, at in enumerate(np.asarray(load.arrival, dtype=float).tolist()):
            yield env.timeout(max(0.0, at - env.now))
            engine.arrive(request)

    engine = _Engine(env, times, cached, load, ended)
    env.process(engine.run())
    if times.rides:
        env.process(engine.ride())
    if sessions is None:
        env.process(open_load())
    else:
        for _ in range(min(sessions, count)):
            env.process(session())
    env.run(until=over)
    arrived, started, finished = (np.array(part) for part in (engine.arrived, engine.started, engine.finished))
    steps = np.array(engine.output) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(steps > 0, (finished - started) / steps, np.nan)
    span = float(env.now - np.nanmin(arrived))
    return Simulated(
        wait=np.array(engine.admitted) - arrived,
        ttft=started - arrived + times.front,
        tpot=tpot,
        latency=finished - arrived + times.front,
        running=engine.area / span,
        busy=engine.worked / span,
        refused=engine.refused,
        span=span,
    )


#: Times that a simulation is compared by, with the attribute of each.
COMPARED = {"wait_s": "wait", "ttft_s": "ttft", "tpot_s": "tpot", "request_latency_s": "latency"}
#: Difference from which on a closed form counts as failing.
FAILS = 0.15
#: Requests, or clients, that are simulated at the most.
MOST = 10_000_000


@dataclass(frozen=True)
class Comparison:
    """A simulation beside the closed form, both of one replica.

    Attributes
    ----------
    scenario : Scenario
    simulated : dict
        Mean and percentiles by time [s].
    closed_form : dict
        The same of the chain; null where there is none.
    requests, refused : int
    rate : float
        Requests finished by the replica [1/s].
    utilisation : float
        Rate over what the replica can do; NaN for a closed loop.
    reason : str
        Why nothing was simulated, else empty.
    """

    scenario: Scenario
    simulated: dict[str, dict[str, float | None]]
    closed_form: dict[str, dict[str, float | None]]
    requests: int
    refused: int
    rate: float
    utilisation: float
    reason: str = ""

    def differences(self) -> dict[str, dict[str, float | None]]:
        """Return closed form over simulation, less 1."""
        found: dict[str, dict[str, float | None]] = {}
        for time, parts in self.simulated.items():
            found[time] = {}
            for what, ran in parts.items():
                closed = self.closed_form.get(time, {}).get(what)
                found[time][what] = None if closed is None or not ran else closed / ran - 1
        return found

    def fails(self) -> list[str]:
        """Return where the closed form is off by more than ``FAILS``."""
        return [
            f"the closed form is off by {gap:+.0%} in {phrase((COMPARED[time], what))}"
            for time, parts in self.differences().items()
            for what, gap in parts.items()
            if time in ("ttft_s", "tpot_s") and what in ("mean", "p99") and gap is not None and abs(gap) > FAILS
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        plan = self.scenario.deployment
        return {
            "model": self.scenario.model.name,
            "system": self.scenario.system.name,
            "plan": {"tp": float(plan.tp), "pp": float(plan.pp), "dp": float(plan.dp), "engine": plan.engine},
            "requests": self.requests,
            "refused": self.refused,
            "rate_per_s": self.rate if np.isfinite(self.rate) else None,
            "utilisation": self.utilisation if np.isfinite(self.utilisation) else None,
            "simulated": self.simulated,
            "closed_form": self.closed_form or None,
            "difference": self.differences() if self.closed_form else None,
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
                "closed_form": self.closed_form.get(time, {}).get(what),
                "difference": gaps[time][what],
            }
            for time, parts in self.simulated.items()
            for what, ran in parts.items()
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        from perfmodel.outputs.simulation import print_simulation
        from perfmodel.outputs.tables import plain

        return self.reason or plain(lambda console: print_simulation(self, console))

    def _repr_html_(self) -> str:
        from perfmodel.outputs.simulation import simulation_html

        return simulation_html(self)


def _measured(ran: Simulated) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for key, name in COMPARED.items():
        values = getattr(ran, name)
        values = values[~np.isnan(values)]
        if not len(values):
            found[key] = dict.fromkeys(("p50", "p90", "p99", "mean"))
            continue
        shares = np.percentile(values, (50, 90, 99))
        found[key] = {
            "p50": float(shares[0]),
            "p90": float(shares[1]),
            "p99": float(shares[2]),
            "mean": float(values.mean()),
        }
    return found


def _assumed(scenario: Scenario, trace: str | None, sessions: int | None) -> list[str]:
    """Return what was assumed of what is simulated."""
    if trace is not None:
        return [*without_traffic(scenario, lengths=True), f"arrivals and lengths of {trace}, as they are"]
    if sessions is None:
        return assumptions(scenario)
    clients = f"{sessions:,} clients, each with one request at a time"
    return [*without_traffic(scenario, is_trace(scenario.traffic.lengths)), clients, about_lengths(scenario.traffic)]


def ask(
    scenario: Scenario,
    *,
    rate: float | None = None,
    trace: str | None = None,
    sessions: int | None = None,
    count: int = 5000,
    seed: int = 1,
    tick: Callable[[int], None] | None = None,
) -> Comparison:
    """Simulate one replica of a deployment, and put the closed form beside it.

    Parameters
    ----------
    scenario : Scenario
        With ``deployment.dp`` replicas, of which one is simulated.
    rate : float, optional
        Requests, all replicas together [1/s].
    trace : str, optional
        File whose arrivals and lengths are replayed.
    sessions : int, optional
        Clients of a closed loop, all replicas together.
    count : int
        Requests of the replica.
    seed : int
    tick : callable, optional
        Called with the number of requests that ended since the last call.

    Returns
    -------
    Comparison
    """
    scenario = replace(scenario, assumed=tuple(_assumed(scenario, trace, sessions)))
    for option, given in (("--requests", count), ("--sessions", sessions)):
        if given is not None and given > MOST:
            raise UserError(f"{option} {given:g}: at most {MOST:,} are simulated")
    replicas = float(scenario.deployment.dp)
    scv = float(scenario.traffic.arrival_scv)
    load: Load | None = None
    if trace is not None:
        arrived, prompt, output = read_trace(trace)
        mine = np.random.default_rng(seed).random(len(arrived)) < 1 / replicas
        load = Load(arrived[mine][:count], prompt[mine][:count], output[mine][:count])
        if len(load) < 2:
            raise UserError(f"{trace}: fewer than 2 requests to replay")
        lengths = empirical(load.prompt, load.output)
        rate, scv = (len(load) - 1) / max(1e-9, float(load.arrival[-1] - load.arrival[0])), trace_scv(load.arrival)
    else:
        lengths = lengths_of(scenario.traffic)
        rate = None if rate is None else rate / replicas
        scv = float(queueing.split_scv(scv=scv, ways=replicas))
    replayed = load

    def tables(asked: Scenario) -> StepTimes:
        mine = lengths_of(asked.traffic) if replayed is None else replayed
        return step_times(
            asked, longest_prompt=float(np.max(mine.prompt)), longest=float(np.max(mine.prompt + mine.output))
        )

    def drives(asked: Scenario) -> list[Any]:
        traffic = asked.traffic
        mine = [] if replayed is not None else [vars(lengths_of(traffic)), traffic.arrival_scv if rate else None]
        thinks = traffic.think_time if sessions else None
        return [vars(tables(asked)), *mine, traffic.prefix_hits, thinks, asked.deployment.dp]

    def traced(asked: Scenario) -> Any:
        own = {} if replayed is None else {"traffic.prompt": 1.0, "traffic.output": 1.0}
        return open_numbers(put_all(asked, own))

    more = idle(scenario, unmoved(scenario, drives), traced)
    scenario = replace(scenario, warnings=(*scenario.warnings, *more))
    times = tables(scenario)
    cached = float(scenario.traffic.prefix_hits)
    service = serve(times, lengths, cached)
    if service.capacity <= 0:
        reason = "no request of this traffic fits a replica's cache"
        return Comparison(scenario, {}, {}, 0, count, np.nan, np.nan, reason)
    if rate is not None and trace is None and rate >= service.capacity:
        reason = f"saturated: {rate:.4g} requests/s a replica against at most {service.capacity:.3g}"
        return Comparison(scenario, {}, {}, 0, 0, rate, rate / service.capacity, reason)
    if load is None:
        load = drawn(rate or 1.0, scv, service.lengths, count, seed)
    clients = None if sessions is None else max(1, round(sessions / replicas))
    think = float(scenario.traffic.think_time)
    ran = simulate(times, load, cached=cached, sessions=clients, think=think, seed=seed, tick=tick)
    queue = closed_queue(service, clients or 1, think) if rate is None else load_queue(service, rate, scv)
    used = np.nan if rate is None else queue.utilisation
    closed = {key: summary(queue, name) for key, name in COMPARED.items()}
    settled = ran if trace is not None else ran.after(0.1)
    return Comparison(
        scenario, _measured(settled), closed, len(load), ran.refused, (len(load) - ran.refused) / ran.span, used
    )

"""A simulation beside the closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.planning.events import simulate
from perfmodel.planning.load import about_lengths, assumptions, open_numbers, without_traffic
from perfmodel.planning.requests import Load, Simulated, drawn
from perfmodel.prediction import question_of
from perfmodel.prediction import run as predict
from perfmodel.serving.lengths import Lengths, empirical
from perfmodel.serving.objectives import QUEUE_TIMES, phrase, queue_of, summary
from perfmodel.serving.service import Service, serve
from perfmodel.serving.steady import steady_state
from perfmodel.serving.step_times import StepTimes, step_times
from perfmodel.serving.traces import read_trace, reusable
from perfmodel.serving.traffic import closed_lengths, is_trace, lengths_of, trace_scv
from perfmodel.shown import Shown
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Scenario

#: Rounds from which on a closed loop counts as steady, and its start is not looked at.
STEADY_ROUNDS = 1e5
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
        gaps: _Times = {}
        for time, parts in self.simulated.items():
            gaps[time] = {}
            for what, ran in parts.items():
                closed = self.closed_form.get(time, {}).get(what)
                gaps[time][what] = None if closed is None or not ran else closed / ran - 1
        return gaps

    def fails(self) -> list[str]:
        """Return where the closed form is off by more than ``FAILS``, and where the simulation does not know better."""
        gaps = [
            f"the closed form is off by {gap:+.0%} in {phrase((QUEUE_TIMES[time], what))}"
            for time, parts in self.differences().items()
            for what, gap in parts.items()
            if time in _JUDGED and what in ("mean", "p99") and gap is not None and abs(gap) > FAILS
        ]
        wanted = ENOUGH if np.isfinite(self.utilisation) else ENOUGH_CLOSED
        gaps += [
            f"the simulation knows {phrase((QUEUE_TIMES[time], what))} to {error:.1%} only: more --requests tell more"
            for (time, what), most in wanted.items()
            if (error := self.errors.get(time, {}).get(what)) is not None and error > most
        ]
        return gaps

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
    times: _Times = {}
    levels = np.array([float(share[1:]) / 100 for share in shares])
    for key, name in QUEUE_TIMES.items():
        values = ran.gap if name == "itl" else getattr(ran, name)
        weight = ran.gap_count if name == "itl" else np.ones(len(values))
        kept = ~np.isnan(values)
        values, weight = values[kept], weight[kept]
        if not len(values):
            times[key] = dict.fromkeys((*shares, "mean"))
            continue
        order = np.argsort(values)
        below = np.cumsum(weight[order])
        at = np.searchsorted(below, levels * below[-1])
        reached = values[order][np.minimum(at, len(values) - 1)]
        times[key] = dict(zip(shares, reached.tolist(), strict=True))
        times[key]["mean"] = float(np.sum(values * weight) / below[-1])
    return times


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


@dataclass(frozen=True)
class _Posed:
    """What is simulated: a rate, a trace or a closed loop, dealt to all replicas or to as many as stand for them.

    Attributes
    ----------
    scenario : Scenario
    rate, concurrency : float or None
        Of all replicas together [1/s, 1].
    replayed : Load or None
        Of a trace, what falls to the replicas that are simulated.
    lengths : Lengths
    all_replicas, replicas : int
    """

    scenario: Scenario
    rate: float | None
    concurrency: float | None
    replayed: Load | None
    lengths: Lengths
    all_replicas: int
    replicas: int

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the times between arrivals."""
        if self.replayed is not None:
            return float(trace_scv(self.replayed.arrival))
        return float(self.scenario.traffic.arrival_scv)

    @property
    def clients(self) -> int | None:
        """Clients of the replicas that are simulated."""
        return None if self.concurrency is None else max(1, round(self.concurrency * self.replicas / self.all_replicas))

    @property
    def blocks(self) -> bool:
        """Whether what a prefix cache holds follows from the blocks of a trace."""
        return self.replayed is not None and bool(self.replayed.blocks)

    @property
    def cached(self) -> float:
        """Share of prompts that the prefix cache holds: that given, or at most that of a trace [1]."""
        if self.replayed is not None and self.replayed.blocks:
            return self.replayed.ceiling
        return float(self.scenario.traffic.prefix_hits)

    @property
    def is_burst(self) -> bool:
        """Whether a closed loop is too short for its start to be forgotten."""
        return self.concurrency is not None and float(self.scenario.traffic.rounds) < STEADY_ROUNDS

    def asked(self, scenario: Scenario) -> Lengths | Load:
        """Return the lengths that a scenario asks for."""
        if self.replayed is not None:
            return self.replayed
        return lengths_of(scenario.traffic) if self.concurrency is None else closed_lengths(scenario.traffic)

    def tables(self, scenario: Scenario) -> StepTimes:
        """Return the times of steps."""
        mine = self.asked(scenario)
        # A request that loses its blocks prefills what it has brought, too.
        longest = float(np.max(mine.prompt + mine.output))
        return step_times(scenario, longest_prompt=longest, longest=longest)

    def unused(self) -> list[str]:
        """Return what was given and does not enter the answer."""

        def drives(scenario: Scenario) -> list[Any]:
            own, laid = scenario.traffic, scenario.deployment
            load = [vars(self.asked(scenario)), own.arrival_scv if self.rate else None]
            own_load = [] if self.replayed is not None else load
            loop = [own.think_time, own.rounds] if self.concurrency else []
            routed = laid.routing if self.all_replicas > 1 else None
            hits = None if self.blocks else own.prefix_hits
            return [vars(self.tables(scenario)), *own_load, hits, *loop, routed, laid.groups]

        def traced(scenario: Scenario) -> Any:
            own = {} if self.replayed is None else {"traffic.prompt": 1.0, "traffic.output": 1.0}
            own |= {"traffic.prefix_hits": 0.0} if self.blocks else {}
            return open_numbers(put_all(scenario, own))

        return list(idle(self.scenario, unmoved(self.scenario, drives), traced))


def _replayed(trace: str, scenario: Scenario, share: float, count: int, seed: int) -> Load:
    """Return the requests of a trace that come to the replicas which are simulated."""
    read = read_trace(trace)
    if not np.isfinite(read.arrival).all():
        raise UserError(f"{trace}: there are no arrivals in it to replay; --lengths takes its lengths")
    indices = np.flatnonzero(np.random.default_rng(seed).random(len(read)) < share)[:count]
    # A state cannot be cut where a prefix ends, so that blocks say nothing of what is found of it.
    cut = not any(run.linear or run.mamba2 or run.mamba1 or run.recurrent for run in scenario.model.layers)
    blocks = tuple(read.blocks[at] for at in indices) if read.blocks and cut else ()
    ceiling = float(reusable(read)[indices].sum() / max(1.0, read.prompt[indices].sum())) if blocks else 0.0
    return Load(read.arrival[indices], read.prompt[indices], read.output[indices], blocks, read.block_tokens, ceiling)


def _posed(
    scenario: Scenario, rate: float | None, trace: str | None, concurrency: float | None, count: int, seed: int
) -> _Posed:
    """Return what is simulated."""
    all_replicas = max(1, round(float(scenario.deployment.groups)))
    replicas = min(all_replicas, _REPLICAS)
    replayed: Load | None = None
    if trace is not None:
        replayed = _replayed(trace, scenario, replicas / all_replicas, count, seed)
        if len(replayed) < 2:
            raise UserError(f"{trace}: fewer than 2 requests to replay")
        lengths = empirical(replayed.prompt, replayed.output)
        span = max(1e-9, float(replayed.arrival[-1] - replayed.arrival[0]))
        rate = (len(replayed) - 1) / span / (replicas / all_replicas)
    else:
        lengths = lengths_of(scenario.traffic) if concurrency is None else closed_lengths(scenario.traffic)
    return _Posed(scenario, rate, concurrency, replayed, lengths, all_replicas, replicas)


@dataclass
class _Runs:
    """What the seeds of a simulation met so far."""

    times: list[_Times]
    rates: list[float]
    requests: int = 0
    refused: int = 0
    preempted: int = 0
    hits: float = 0.0


def _run(
    posed: _Posed,
    service: Service,
    count: int,
    seeds: int,
    seed: int,
    tick: Callable[[int], None] | None,
) -> _Runs:
    """Simulate one seed after the other until enough is known, or for so many."""
    runs, clients, traffic = _Runs([], []), posed.clients, posed.scenario.traffic
    enough = ENOUGH if clients is None else ENOUGH_CLOSED
    for turn in range(seeds):
        offered = (posed.rate or 1.0) * (posed.replicas / posed.all_replicas)
        load = posed.replayed or drawn(offered, posed.scv, service.lengths, count, seed + turn)
        ran = simulate(
            service.times,
            load,
            cached=service.cached,
            clients=clients,
            think=float(traffic.think_time),
            seed=seed + turn,
            replicas=posed.replicas,
            routing=service.routing,
            tick=tick if turn == 0 else None,
        )
        counted = ran
        if clients is not None:
            # Until the first client finds no further request; without a burst from the end of the first round on.
            counted = ran.between(0 if posed.is_burst else max(clients, count // 10), count - clients)
        elif posed.replayed is None:
            counted = ran.after(_WARM_UP)
        # The last requests of a burst count too, but not how long their end takes.
        runs.times.append(measured(ran if posed.is_burst else counted))
        runs.rates.append(counted.rate / posed.replicas)
        runs.requests = len(load)
        runs.refused += ran.refused
        runs.preempted += ran.preempted
        runs.hits = ran.hits
        if turn + 1 >= SEEDS[0] and is_enough(over_seeds(runs.times)[1], enough):
            break
    return runs


def _closed(posed: _Posed, service: Service) -> tuple[_Times, float, float]:
    """Return what the closed forms say of it: times, rate of a replica [1/s] and utilisation."""
    if posed.concurrency is None:
        queue = queue_of(service, posed.rate or 0.0, posed.scv, posed.all_replicas)
        times = {key: summary(queue, name) for key, name in QUEUE_TIMES.items()}
        return times, (posed.rate or np.nan) / posed.all_replicas, queue.utilisation
    lengths = posed.lengths
    own = {"traffic.prompt": lengths.mean(lengths.prompt), "traffic.output": lengths.mean(lengths.output)}
    asked = posed.scenario if not is_trace(posed.scenario.traffic.lengths) else put_all(posed.scenario, own)
    steady = steady_state(asked)
    means = {"ttft_s": steady.ttft, "tpot_s": steady.tpot, "request_latency_s": steady.latency}
    found: _Times = {key: {"mean": shapes.number(value)} for key, value in means.items()}
    return found, float(steady.rate) / posed.all_replicas, np.nan


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
    posed = _posed(scenario, rate, trace, concurrency, count, seed)
    more = posed.unused()
    scenario = replace(
        scenario,
        assumed=tuple(_assumed(scenario, trace, concurrency)),
        warnings=(*scenario.warnings, *more),
    )
    traffic, clients, replicas = scenario.traffic, posed.clients, posed.replicas
    routing = scenario.deployment.routing
    service = serve(posed.tables(scenario), posed.lengths, posed.cached, routing)

    def nothing(reason: str, offered: float = np.nan, refused: int = 0) -> Comparison:
        used = offered / service.capacity if service.capacity > 0 else np.nan
        return Comparison(scenario, {}, {}, {}, 0, 0, refused, 0, replicas, offered, np.nan, used, reason)

    if np.isnan(service.capacity):
        return nothing(predict(scenario).reason)
    if service.capacity <= 0:
        return nothing("no request of this traffic fits a replica's cache", refused=count)
    each = np.nan if posed.rate is None else posed.rate / posed.all_replicas
    if trace is None and rate is not None and each >= service.capacity:
        return nothing(f"saturated: {each:.4g} requests/s a replica against at most {service.capacity:.3g}", each)
    asked_for = count
    if clients is not None:
        count = round(clients * float(traffic.rounds)) if posed.is_burst else max(count, 6 * clients)
    if posed.is_burst and given_count is not None and asked_for <= SEEDS[0] * count:
        least = f"{SEEDS[0]} times {count:,} are drawn at least, each client for {traffic.rounds:g} rounds"
        scenario = replace(scenario, warnings=(*scenario.warnings, f"--requests did not enter this answer: {least}"))
    seeds = max(SEEDS[0], math.ceil(asked_for / count)) if posed.is_burst else SEEDS[1]
    runs = _run(posed, service, count, 1 if trace is not None else seeds, seed, tick)
    simulated, errors = over_seeds(runs.times)
    if posed.replayed is not None and posed.blocks:
        # The closed form takes the hits that were met, so that what is left is the queue.
        said = (
            f"prefix hits by the blocks of {trace}: {runs.hits:.1%} of prompt tokens from an LRU cache of what "
            f"running requests leave of a replica's memory, {posed.replayed.ceiling:.1%} without a limit"
        )
        scenario = replace(scenario, assumed=(*scenario.assumed, said))
        service = serve(service.times, posed.lengths, runs.hits, routing)
    closed, closed_rate, used = _closed(posed, service)
    return Comparison(
        scenario,
        simulated,
        closed,
        errors,
        runs.requests,
        len(runs.times),
        runs.refused,
        runs.preempted,
        replicas,
        float(np.mean(runs.rates)),
        closed_rate,
        used,
    )

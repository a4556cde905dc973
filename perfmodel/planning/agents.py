"""Users with sessions on a deployment: hit rate by tier, times of calls and tasks, cost of a task, and the cliff."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.prediction import evaluate, question_of, run
from perfmodel.serving.cost import cost_of
from perfmodel.serving.session_loop import SessionAnswer, SessionCliff, SessionRouting, session_answer, session_cliff
from perfmodel.serving.session_machine import SessionMachine, Tier, session_machine
from perfmodel.serving.session_spec import session_traffic
from perfmodel.serving.sessions import SessionTraffic, drawn_calls
from perfmodel.shown import Shown
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import Scenario

#: Share of the ceiling below which the hit rate has fallen off the cliff.
CLIFF = 0.9
#: Start-up of a load where none is given: what vLLM's offload to host memory takes before the first byte [s].
START = 0.008
#: What a worth is asked for: bytes of host memory a replica, at the bandwidth of a PCIe 5 link one way.
_MORE, _LINK = 100e9, 50e9
#: Contexts that a cache must hold for its law to be within 0.03, and below which it is a guess.
_MANY, _FEW = 12.0, 2.0


@dataclass(frozen=True)
class Worth:
    """What a change gives: the same question with it.

    Attributes
    ----------
    change : str
    hit_rate : float
        [1]
    ttft, task : float
        [s]
    users : float
        Users up to which the hit rate holds [1].
    usd_per_task : float
        [USD]
    """

    change: str
    hit_rate: float
    ttft: float
    task: float
    users: float
    usd_per_task: float


@dataclass(frozen=True, repr=False)
class Agents(Shown):
    """What users with sessions meet on a deployment.

    Attributes
    ----------
    scenario : Scenario
    session : Session
    users : float
        People, each with ``fan_out`` sessions open [1].
    tiers : tuple of Tier
    policy : str
        Who gets the calls of a session.
    answer : SessionAnswer or None
        None where the model does not fit.
    cliff : SessionCliff or None
    usd_per_hour, usd_per_task : float
        Of the deployment, and of a task over the hours in which it is used [USD].
    chips : float
        [1]
    pool, token_bytes : float
        KV cache of a replica, and of a token [B].
    worths : tuple of Worth
    warnings : tuple of str
    reason : str
        Why there is no answer; else empty.
    """

    scenario: Scenario
    session: Session
    users: float
    tiers: tuple[Tier, ...]
    policy: str
    answer: SessionAnswer | None = None
    cliff: SessionCliff | None = None
    usd_per_hour: float = math.nan
    usd_per_task: float = math.nan
    chips: float = math.nan
    pool: float = math.nan
    token_bytes: float = math.nan
    worths: tuple[Worth, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether there is an answer."""
        return not self.reason

    @property
    def sessions_per_chip(self) -> float:
        """Live sessions of a chip [1]."""
        return self.users * float(self.session.fan_out) / self.chips

    @property
    def past_cliff(self) -> bool:
        """Whether the users asked for are beyond the fall of the hit rate."""
        return self.answer is not None and float(self.answer.hit_rate) < CLIFF * self.answer.hit_ceiling

    def row(self) -> dict[str, Any]:
        """Return the flat columns of ``--csv``."""
        told = self.to_dict()
        flat: dict[str, Any] = {"model": told["model"], "system": told["system"], "session": told["session"]}
        flat |= {f"plan_{key}": value for key, value in told["plan"].items()}
        for key, value in told.items():
            if isinstance(value, bool | int | float) or value is None:
                flat[key] = value
        flat |= {f"hit_rate_{tier['name']}": tier["hit_rate"] for tier in told["tiers"]}
        return flat

    def to_dict(self) -> shapes.Agents:
        """Return the documented JSON object."""
        asked = question_of(self.scenario)
        answer, cliff = self.answer, self.cliff
        told: dict[str, Any] = {} if answer is None else _numbers(answer)
        names = (
            "hit_rate",
            "hit_ceiling",
            "ttft_s",
            "ttft_p50_s",
            "ttft_p95_s",
            "ttft_p99_s",
            "ttft_hit_s",
            "ttft_miss_s",
            "tpot_s",
            "call_s",
            "task_s",
        )
        more = ("calls_per_task", "calls_per_s", "tasks_per_hour", "running", "waiting", "prefill_share")
        return {
            "model": asked["model"],
            "system": asked["system"],
            "plan": asked["plan"],
            "session": self.session.name,
            "users": self.users,
            "routing": self.policy,
            "reason": self.reason or None,
            **{name: shapes.number(told.get(name, math.nan)) for name in (*names, *more)},  # type: ignore[typeddict-item]
            "sessions_per_chip": shapes.number(self.sessions_per_chip),
            "usd_per_hour": shapes.number(self.usd_per_hour),
            "usd_per_task": shapes.number(self.usd_per_task),
            "cliff_share": CLIFF,
            "cliff_users": shapes.number(math.nan if cliff is None else cliff.users),
            "cliff_users_cold": shapes.number(math.nan if cliff is None else cliff.users_cold),
            "cliff_pool_bytes": shapes.number(math.nan if cliff is None else cliff.pool),
            "pool_bytes": shapes.number(self.pool),
            "past_cliff": None if answer is None else self.past_cliff,
            "tiers": self._tiers(),
            "cold": None if answer is None or answer.cold is None else _start(answer.cold),
            "worth": [
                {
                    "change": worth.change,
                    "hit_rate": worth.hit_rate,
                    "ttft_s": worth.ttft,
                    "task_s": worth.task,
                    "cliff_users": shapes.number(worth.users),
                    "usd_per_task": shapes.number(worth.usd_per_task),
                }
                for worth in self.worths
            ],
            "assumed": list(self.scenario.assumed),
            "warnings": [*self.scenario.warnings, *self.warnings],
        }

    def _tiers(self) -> list[shapes.CacheTier]:
        if self.answer is None:
            return []
        rows: list[shapes.CacheTier] = []
        limits = {tier.name: tier for tier in self.tiers}
        for name, part in self.answer.hit_by_tier.items():
            tier = limits.get(name)
            rows.append(
                {
                    "name": name,
                    "hit_rate": float(part),
                    "capacity_bytes": shapes.number(self.pool if tier is None else tier.capacity),
                    "loads_bytes_per_s": shapes.number(self.answer.tier_bandwidth.get(name)),
                    "bandwidth_bytes_per_s": shapes.number(None if tier is None else tier.bandwidth),
                    "busy": shapes.number(self.answer.tier_load.get(name)),
                    "crossover_tokens": shapes.number(self.answer.crossover.get(name)),
                }
            )
        return rows


def _numbers(answer: SessionAnswer) -> dict[str, Any]:
    names = {
        "hit_rate": "hit_rate",
        "hit_ceiling": "hit_ceiling",
        "ttft_s": "ttft",
        "ttft_hit_s": "ttft_hit",
        "ttft_miss_s": "ttft_miss",
        "tpot_s": "tpot",
        "call_s": "call",
        "task_s": "task",
        "calls_per_task": "calls_per_task",
        "calls_per_s": "call_rate",
        "tasks_per_hour": "tasks_per_hour",
        "running": "running",
        "waiting": "waiting",
        "prefill_share": "engine_load",
    }
    told = {key: float(getattr(answer, name)) for key, name in names.items()}
    return told | {f"ttft_p{share}_s": float(answer.first_token.quantile(share / 100)) for share in (50, 95, 99)}


def _start(found: SessionAnswer) -> shapes.ColdStart:
    told = _numbers(found)
    return {
        "hit_rate": told["hit_rate"],
        "ttft_s": told["ttft_s"],
        "task_s": told["task_s"],
        "tasks_per_hour": told["tasks_per_hour"],
    }


@dataclass(frozen=True, repr=False)
class AgentsBeside(Shown):
    """The same users on several deployments.

    Attributes
    ----------
    answers : tuple of Agents
    """

    answers: tuple[Agents, ...]

    def to_frame(self) -> Any:
        """Return a pandas frame, one row an answer."""
        import pandas as pd

        return pd.DataFrame([answer.row() for answer in self.answers])

    def to_dict(self) -> shapes.AgentsBeside:
        """Return the documented JSON object."""
        return {"answers": [answer.to_dict() for answer in self.answers]}


# --- what is asked ---------------------------------------------------------------------------------------------------


def routing_of(scenario: Scenario) -> SessionRouting:
    """Return who gets the calls of a session: where their prefix lies, or whoever is free, which is any of them.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    SessionRouting
    """
    replicas = max(1.0, float(scenario.deployment.groups))
    return SessionRouting(replicas, "prefix" if scenario.deployment.routing == "prefix" else "random")


def traffic_on(scenario: Scenario, session: Session) -> SessionTraffic:
    """Return what sessions look like to a machine that runs a model, which takes no longer contexts than it can.

    Parameters
    ----------
    scenario : Scenario
    session : Session

    Returns
    -------
    SessionTraffic
    """
    limit = float(scenario.model.max_context)
    return session_traffic(session, limit if limit == limit else math.inf)


def ask(
    scenario: Scenario,
    session: Session,
    users: float,
    tiers: Sequence[Tier] = (),
    worth: bool = True,
    cliff: bool = True,
) -> Agents:
    """Put users with sessions on a deployment.

    Parameters
    ----------
    scenario : Scenario
        Its ``deployment.dp`` are the replicas.
    session : Session
    users : float
        People [1].
    tiers : sequence of Tier
        Of the cache, below the memory of the chips, nearest first.
    worth, cliff : bool
        Whether changes, and the distance to the cliff, are asked for too.

    Returns
    -------
    Agents
    """
    traffic = traffic_on(scenario, session)
    routing = routing_of(scenario)
    scenario = replace(scenario, assumed=tuple(_assumed(scenario, session, tiers, routing)))
    blank = Agents(scenario, session, users, tuple(tiers), routing.policy)
    single = replace(scenario, deployment=replace(scenario.deployment, dp=1.0))
    calls = drawn_calls(traffic)
    asked = replace(
        single.traffic,
        prompt=float(calls.prompt.max()),
        output=float(calls.output.mean()),
        concurrency=1.0,
        lengths="fixed",
    )
    if not evaluate(replace(single, traffic=asked), ()).fits:
        why = run(replace(single, traffic=asked)).reason
        return replace(blank, reason=f"the longest call of a session: {why}")
    machine = session_machine(single, traffic)
    answer = session_answer(machine, traffic, users, tiers, routing)
    fall = session_cliff(machine, traffic, users, tiers, routing, CLIFF) if cliff else None
    busy = busy_with(scenario, traffic, answer)
    hourly = float(cost_of(busy).per_hour)
    agents = replace(
        blank,
        answer=answer,
        cliff=fall,
        usd_per_hour=hourly,
        usd_per_task=_per_task(scenario, hourly, answer),
        chips=float(evaluate(busy, ()).chips),
        pool=float(machine.pool),
        token_bytes=float(machine.token_bytes),
    )
    worths = tuple(_worths(agents, machine, traffic, routing)) if worth else ()
    return replace(agents, worths=worths, warnings=tuple(_mind(agents, traffic, session)))


def _assumed(scenario: Scenario, session: Session, tiers: Sequence[Tier], routing: SessionRouting) -> list[str]:
    gone = ("concurrency", "traffic ")
    said = [word for word in scenario.assumed if not word.startswith(gone)]
    said.append(f"sessions {session.name}; from a warm start")
    if session.order != "free":
        said.append(f"{float(session.population or 1):,.0f} sessions in rounds; the users are the calls in flight")
    if not tiers:
        said.append("no tier below the memory of the chips; --tier host=1TB@50GB/s has one")
    if routing.replicas > 1:
        where = "a replica that holds their prefix" if routing.policy == "prefix" else "any replica"
        said.append(f"calls go to {where}")
    return said


def busy_with(scenario: Scenario, traffic: SessionTraffic, answer: SessionAnswer) -> Scenario:
    """Return a deployment with as many mean calls at once as run there, which is what an hour of it costs.

    Parameters
    ----------
    scenario : Scenario
    traffic : SessionTraffic
    answer : SessionAnswer

    Returns
    -------
    Scenario
    """
    calls = drawn_calls(traffic)
    replicas = max(1.0, float(scenario.deployment.groups))
    asked = replace(
        scenario.traffic,
        prompt=float(calls.prompt.mean()),
        output=max(1.0, float(calls.output.mean())),
        concurrency=max(1.0, float(answer.running)) * replicas,
        prefix_hits=min(0.999, float(answer.hit_rate)),
        lengths="fixed",
    )
    return replace(scenario, traffic=asked)


def _per_task(scenario: Scenario, hourly: float, answer: SessionAnswer) -> float:
    assert scenario.economics is not None
    # The deployment serves for a share of the day and is paid for all of it.
    sold = float(answer.tasks_per_hour) * float(scenario.economics.utilisation)
    return hourly / sold if sold > 0 else math.nan


def _worths(agents: Agents, machine: SessionMachine, traffic: SessionTraffic, routing: SessionRouting) -> list[Worth]:
    """Return what more host memory, faster links, a longer TTL and routing by prefix are worth, each by itself."""
    asked: list[tuple[str, SessionTraffic, list[Tier], SessionRouting]] = []
    tiers = list(agents.tiers)
    host = next((at for at, tier in enumerate(tiers) if tier.name == "host"), None)
    if host is None:
        more = [Tier("host", float(agents.pool) + _MORE, _LINK, START), *tiers]
        asked.append(("100 GB of host memory a replica beyond its cache, at 50 GB/s", traffic, more, routing))
    else:
        more = [replace(tier, capacity=tier.capacity + _MORE) if at == host else tier for at, tier in enumerate(tiers)]
        asked.append(("100 GB more of host memory a replica", traffic, more, routing))
    if tiers:
        fast = [replace(tier, bandwidth=2 * tier.bandwidth) for tier in tiers]
        asked.append(("links to the tiers twice as fast", traffic, fast, routing))
    if math.isfinite(traffic.ttl):
        asked.append(("a TTL twice as long", replace(traffic, ttl=2 * traffic.ttl), tiers, routing))
    if routing.replicas > 1 and routing.policy != "prefix":
        asked.append(("routing by prefix", traffic, tiers, replace(routing, policy="prefix")))
    worths = []
    for change, law, below, dealt in asked:
        answer = session_answer(machine, law, agents.users, below, dealt)
        cliff = session_cliff(machine, law, agents.users, below, dealt, CLIFF)
        cost = _per_task(agents.scenario, agents.usd_per_hour, answer)
        worths.append(Worth(change, float(answer.hit_rate), float(answer.ttft), float(answer.task), cliff.users, cost))
    return worths


def _mind(agents: Agents, traffic: SessionTraffic, session: Session) -> list[str]:
    """Return what to mind of an answer."""
    assert agents.answer is not None
    said = []
    whole = drawn_calls(session_traffic(session)).prompt
    cut = float(np.mean(whole > traffic.longest))
    if cut > 0.001:
        said.append(
            f"{cut:.1%} of the calls have more than the {traffic.longest:,.0f} tokens that the model takes: cut"
        )
    calls = drawn_calls(traffic)
    held = agents.pool / agents.token_bytes / float((calls.prompt + calls.output).mean())
    if held < _MANY:
        off = "is a guess" if held < _FEW else "may be off by 0.06"
        said.append(f"{held:.1f} contexts fit a replica's memory: the hit rate {off}")
    said += [
        f"tier {tier.name} of {tier.capacity / 1e9:,.0f} GB adds nothing to {agents.pool / 1e9:,.0f} GB of memory"
        for tier in agents.tiers
        if tier.inclusive and not tier.pooled and tier.capacity <= agents.pool
    ]
    for name, load in agents.answer.tier_load.items():
        if float(load) > 1:
            said.append(
                f"loads need {float(load):.1f} times the bandwidth of tier {name}: they queue, and times are longer"
            )
    if float(agents.answer.engine_load) >= 0.999:
        said.append(
            "prefill takes all of the engine's time: calls wait without end, and users think less than they wait"
        )
    if float(agents.answer.waiting) > max(1.0, float(agents.answer.running)):
        waiting, running = float(agents.answer.waiting), float(agents.answer.running)
        said.append(f"{waiting:,.0f} calls of a replica wait while {running:,.0f} run: for room or for prefill")
    state = any(run.linear or run.mamba2 or run.mamba1 or run.recurrent for run in agents.scenario.model.layers)
    if state:
        said.append(
            "recurrent states are found at checkpoints only: hits are as if the engine kept one for every token"
        )
    if agents.past_cliff:
        said.append("past the cliff: the hit rate is below 90 % of its ceiling")
    if agents.answer.cold is not None:
        said.append("a start with an empty cache stays at a lower hit rate: see cold")
    return said

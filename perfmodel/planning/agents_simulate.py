"""The prefix cache under sessions, call by call, beside the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.planning.agents import Agents, ask, routing_of, traffic_on
from perfmodel.prediction import question_of
from perfmodel.serving.session_loop import SessionRouting
from perfmodel.serving.session_machine import Tier
from perfmodel.serving.session_replay import replay, stream
from perfmodel.serving.sessions import drawn_calls
from perfmodel.shown import Shown
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import Scenario

#: Calls of a seed, of which the first half fills the cache; seeds; and calls of a session slot at the least.
_CALLS, _SEEDS, _EACH = 40_000, 3, 40


@dataclass(frozen=True, repr=False)
class AgentsSimulated(Shown):
    """Hit rates of a simulated cache beside those of the closed form.

    Attributes
    ----------
    closed : Agents
        The closed form, whose time of a call the simulation takes.
    simulated : dict
        Hit rate by tier [1].
    errors : dict
        Standard errors over seeds [1].
    calls, seeds : int
    reason : str
        Why nothing was simulated; else empty.
    """

    closed: Agents
    simulated: dict[str, float]
    errors: dict[str, float]
    calls: int
    seeds: int
    reason: str = ""

    def differences(self) -> dict[str, float]:
        """Return closed form less simulation, by tier [1]."""
        found = self.closed.answer
        assert found is not None
        return {name: float(found.hit_by_tier[name]) - value for name, value in self.simulated.items()}

    def to_dict(self) -> shapes.AgentsSimulation:
        """Return the documented JSON object."""
        asked = question_of(self.closed.scenario)
        closed = self.closed.answer
        return {
            "model": asked["model"],
            "system": asked["system"],
            "plan": asked["plan"],
            "session": self.closed.session.name,
            "users": self.closed.users,
            "calls": self.calls,
            "seeds": self.seeds,
            "call_s": shapes.number(None if closed is None else closed.call),
            "tiers": [
                {
                    "name": name,
                    "simulated": value,
                    "standard_error": self.errors[name],
                    "closed_form": float(closed.hit_by_tier[name]),
                    "difference": self.differences()[name],
                }
                for name, value in self.simulated.items()
                if closed is not None
            ],
            "reason": self.reason or None,
            "assumed": [*self.closed.scenario.assumed, *self.assumed()],
            "warnings": [*self.closed.scenario.warnings, *self.closed.warnings],
        }

    def assumed(self) -> list[str]:
        """Return what was taken of the simulation."""
        if self.reason:
            return []
        return ["every call takes the closed form's mean time; blocks of 64 tokens, LRU from the tail"]


def simulate(
    scenario: Scenario, session: Session, users: float, tiers: Sequence[Tier] = (), seed: int = 1
) -> AgentsSimulated:
    """Replay the calls of users with sessions in caches of the size that a deployment has.

    Parameters
    ----------
    scenario : Scenario
    session : Session
    users : float
        People [1].
    tiers : sequence of Tier
    seed : int
        The first one.

    Returns
    -------
    AgentsSimulated
    """
    closed = ask(scenario, session, users, tiers, worth=False)
    if closed.answer is None:
        return AgentsSimulated(closed, {}, {}, 0, 0, closed.reason)
    traffic, routing = traffic_on(scenario, session), routing_of(scenario)
    calls = drawn_calls(traffic)
    slots = max(1, round(users * float(session.fan_out)))
    response = float(closed.answer.call)
    # As many calls as fill the cache twice over, whatever the gaps.
    span = (calls.all_thought + calls.all_called * response) / len(calls.session)
    horizon = max(_CALLS, _EACH * slots) * span / slots
    memory = closed.pool / closed.token_bytes
    runs: list[list[float]] = []
    count = 0
    for turn in range(_SEEDS):
        held = {"shared": int(traffic.shared_tokens), "groups": int(traffic.shared_groups)}
        drawn = stream(calls, slots, horizon, response, seed + turn, **held)
        late = drawn.time > horizon / 2
        asked = float(drawn.prompt[late].sum())
        count = len(drawn.time)
        reached: list[float] = []
        tokens = memory
        for tier in (None, *tiers):
            if tier is not None:
                size = float(tier.capacity) / closed.token_bytes
                tokens = max(tokens, size) if tier.inclusive else tokens + size
            where = SessionRouting() if tier is not None and tier.pooled else routing
            found = replay(drawn, [tokens], where, ttl=traffic.ttl, seed=seed + turn)[0]
            reached.append(max(float(found[late].sum()) / asked, reached[-1] if reached else 0.0))
        runs.append(list(np.diff(reached, prepend=0.0)))
    names = ["memory", *(tier.name for tier in tiers)]
    table = np.array(runs)
    means, errors = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(_SEEDS)
    return AgentsSimulated(
        replace(closed, worths=()),
        dict(zip(names, map(float, means), strict=True)),
        dict(zip(names, map(float, errors), strict=True)),
        count,
        _SEEDS,
    )


def question(model: Any, system: str, set: Any, given: Any) -> AgentsSimulated:
    """Answer a question about users with sessions by simulation; parameters as those of the closed form."""
    from perfmodel.options import SimulateQuestion
    from perfmodel.planning.agents_question import settled

    ((scenario, session, users, tiers),), rest = settled(SimulateQuestion, model, [system], set, given)
    return simulate(scenario, session, users, tiers, int(rest.get("seed", 1)))

"""Hit rate and TTFT against users: on machines side by side, and with tiers and routing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from perfmodel.planning.agents import CLIFF, routing_of, traffic_on
from perfmodel.planning.agents_question import read_tier
from perfmodel.question import Options, resolve
from perfmodel.reports.compared import compared
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.serving.session_loop import SessionAnswer, SessionRouting, session_answer, session_cliff
from perfmodel.serving.session_machine import SessionMachine, Tier, session_machine
from perfmodel.serving.sessions import SessionTraffic
from perfmodel.specs import catalog
from perfmodel.specs.types import Scenario


@dataclass(frozen=True)
class Fleet:
    """A deployment as the laws of sessions see it."""

    name: str
    scenario: Scenario
    traffic: SessionTraffic
    machine: SessionMachine

    @property
    def chips(self) -> float:
        """Chips of all replicas [1]."""
        plan = self.scenario.deployment
        return float(plan.tp) * float(plan.pp) * float(plan.dp)

    def answer(self, users: object, tiers: Sequence[Tier] = (), routing: SessionRouting | None = None) -> SessionAnswer:
        """Return what so many users meet."""
        return session_answer(self.machine, self.traffic, users, tiers, routing or routing_of(self.scenario))

    def cliff(self, tiers: Sequence[Tier] = (), routing: SessionRouting | None = None) -> float:
        """Return the users up to which the hit rate holds [1]."""
        found = session_cliff(self.machine, self.traffic, 100.0, tiers, routing or routing_of(self.scenario), CLIFF)
        return float(found.users)


def fleet(model: str, on: str, session: str) -> Fleet:
    """Return a deployment under sessions.

    Parameters
    ----------
    model, on, session : str
        Names, as a question has them.

    Returns
    -------
    Fleet
    """
    scenario = resolve(model, on, Options(prompt=1024.0, output=128.0, concurrency=1.0))
    traffic = traffic_on(scenario, catalog.load_session(session))
    one = replace(scenario, deployment=replace(scenario.deployment, dp=1.0))
    plan = scenario.deployment
    name = f"{scenario.system.name} TP {float(plan.tp):g}" + (f" DP {float(plan.dp):g}" if float(plan.dp) > 1 else "")
    return Fleet(name, scenario, traffic, session_machine(one, traffic))


def _curve(asked: Fleet, users: np.ndarray, name: str, tiers: Sequence[Tier], routing: SessionRouting) -> pd.DataFrame:
    answer = asked.answer(users, tiers, routing)
    return pd.DataFrame(
        {
            "what": name,
            "users": users / asked.chips,
            "hit_rate": answer.hit_rate,
            "ttft": answer.ttft,
            "ceiling": answer.hit_ceiling,
        }
    )


def _charts(name: str, title: str, frame: pd.DataFrame) -> tuple[Chart, ...]:
    labels = {
        "what": "system",
        "users": "users a chip",
        "hit_rate": "hit rate",
        "ttft": "TTFT [s]",
        "ceiling": "ceiling",
    }
    hits = frame[["what", "users", "hit_rate", "ceiling"]]
    times = frame[["what", "users", "ttft"]]
    return (
        Chart(
            f"{name}-hits", f"Hit rate {title}", hits, labels, "users", "hit_rate", (Layer("line"),), "what", log="x"
        ),
        Chart(f"{name}-ttft", f"Mean TTFT {title}", times, labels, "users", "ttft", (Layer("line"),), "what", log="xy"),
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@figure("agents-cliff")
def cliff(model: str, systems: Sequence[str], session: str = "coding-agent", points: int = 60) -> Figure:
    """Hit rate and TTFT against users a chip, machine by machine, without a tier below their memory."""
    frames, rows = [], []
    fleets = [fleet(model, on, session) for on in systems]
    for one in fleets:
        routing = routing_of(one.scenario)
        users = np.geomspace(0.1, 100.0, points) * one.chips
        frames.append(_curve(one, users, one.name, (), routing))
        fall = one.cliff()
        before, after = (one.answer(share * fall) for share in (0.8, 1.5))
        rows.append((one.name, fall / one.chips, float(one.machine.pool) / 1e9, float(before.ttft), float(after.ttft)))
    frame = pd.concat(frames)
    hits, *others = _charts("agents-cliff", f"against users of {session}", frame)
    least, most = min(row[1] for row in rows), max(row[1] for row in rows)
    falls = f"The hit rate falls where live contexts no longer fit: at {least:.2g} to {most:.2g} users a chip."
    words = "; ".join(f"{name} holds {users:.2g} users a chip" for name, users, *_ in rows)
    return Figure(
        "The cliff",
        f"The hit rate stays at its ceiling until the live contexts no longer fit, then falls: {words}.",
        (replace(hits, finding=falls), *others),
        tables=(
            Table(
                "Where it lies",
                ("system", "users a chip", "cache of a replica [GB]", "TTFT at 0.8 of it [s]", "at 1.5 of it [s]"),
                [[name, *(_figure(value) for value in values)] for name, *values in rows],
                numbers=(1, 2, 3, 4),
            ),
        ),
        notes=("Means from a warm start; one replica a plan, and no tier below the memory of the chips.",),
        compared=compared([(one.scenario, 1.0) for one in fleets], f", {model}, {session}"),
    )


@figure("agents-tiers")
def tiers(
    model: str,
    on: str,
    session: str = "coding-agent",
    host: str = "host=1TB@50GB/s",
    store: str = "store=20TB@20GB/s",
    points: int = 60,
) -> Figure:
    """Hit rate and TTFT of one fleet by tiers, with calls sent where their prefix lies and with calls sent anywhere."""
    each = fleet(model, on, session)
    replicas = routing_of(each.scenario).replicas
    below = {"memory": [], "host": [read_tier(host)], "host and store": [read_tier(host), read_tier(store)]}
    users = np.geomspace(0.1, 100.0, points) * each.chips
    frames, rows = [], []
    for tier, tier_bytes in below.items():
        for policy in ("prefix", "random"):
            routing = SessionRouting(replicas, policy)
            name = f"{tier}, {policy}"
            frames.append(_curve(each, users, name, tier_bytes, routing))
            rows.append(
                (
                    name,
                    each.cliff(tier_bytes, routing) / each.chips,
                    float(each.answer(each.chips, tier_bytes, routing).ttft),
                )
            )
    by = {name: fall for name, fall, _ in rows}
    return Figure(
        "Tiers and routing",
        f"{each.name} holds {by['memory, prefix']:.2g} users a chip in memory with calls sent to their prefix and "
        f"{by['memory, random']:.2g} with calls sent anywhere; a host tier makes it {by['host, prefix']:.2g}, and a "
        f"store behind it {by['host and store, prefix']:.2g}.",
        _charts("agents-tiers", f"of {each.name}", pd.concat(frames)),
        tables=(
            Table(
                "Where the cliff lies",
                ("tiers and routing", "users a chip", "TTFT at one user a chip [s]"),
                [[name, f"{fall:.3g}", f"{ttft:.3g}"] for name, fall, ttft in rows],
                numbers=(1, 2),
            ),
        ),
    )

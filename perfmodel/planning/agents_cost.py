"""What a task of an agent costs on each system that serves users with sessions, and the price at which two tie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.equations import tco
from perfmodel.errors import UserError
from perfmodel.numerics import NAN
from perfmodel.options import flag
from perfmodel.planning import agents_size
from perfmodel.planning.agents import Agents, ask, busy_with, traffic_on
from perfmodel.planning.load import open_numbers
from perfmodel.planning.tco.asking import TPOT, payable
from perfmodel.question import read_changes, split_changes
from perfmodel.serving.cost import Cost, cost_of
from perfmodel.shown import Shown
from perfmodel.specs.types import Model

#: What is about tokens at one load, which sessions do not have.
_OF_TOKENS = ("samples", "against_api", "growth", "cash")
#: Causes of cost that do not follow the price of the machine.
_BESIDES = ("space", "electricity")


@dataclass(frozen=True)
class OwnedAgents:
    """One system of a comparison of what a task costs.

    Attributes
    ----------
    answer : Agents
        The cheapest deployment found that serves the users.
    per_task : mapping
        Cost of a task by cause, adding up to ``answer.usd_per_task`` [USD].
    tie_price : float
        Price of the whole system at which its task costs what that of the cheapest other one does; NaN where it is
        rented, alone, or no price would [USD].
    """

    answer: Agents
    per_task: Mapping[str, float]
    tie_price: float = NAN


@dataclass(frozen=True, repr=False)
class OwningAgents(Shown):
    """What a task costs on each system, the cheapest first.

    Attributes
    ----------
    systems : tuple of OwnedAgents
    rejected : dict
        Why other plans lost.
    tpot : float
        Bound on the mean TPOT [s].
    """

    systems: tuple[OwnedAgents, ...]
    rejected: Mapping[str, str]
    tpot: float

    @property
    def reason(self) -> str:
        """Why there is no answer; else empty."""
        return agents_size.AgentsSizing(tuple(one.answer for one in self.systems), self.rejected, {}).reason

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row a system."""
        return [
            one.answer.row()
            | {f"usd_per_task_{cause.replace(', ', '_')}": value for cause, value in one.per_task.items()}
            | {"tie_price_usd": shapes.number(one.tie_price)}
            for one in self.systems
        ]

    def to_dict(self) -> shapes.OwningAgents:
        """Return the documented JSON object."""
        return {
            "tpot_bound_s": self.tpot,
            "systems": [
                {
                    "answer": one.answer.to_dict(),
                    "usd_per_task_by_cause": {cause: shapes.number(value) for cause, value in one.per_task.items()},
                    "tie_price_usd": shapes.number(one.tie_price),
                }
                for one in self.systems
            ],
            "rejected": [{"plan": name, "why": why} for name, why in self.rejected.items()],
            "reason": self.reason or None,
        }


def question(model: str | Model, systems: Sequence[str], set: Any, given: Mapping[str, Any]) -> OwningAgents:
    """Answer what a task costs on the least deployment of each system that serves users with sessions.

    Parameters
    ----------
    model : str or Model
    systems : sequence of str
        Each with its plan; without a degree several are tried and the cheapest task counts.
    set, given
        As of a prediction; ``tpot`` bounds the mean TPOT.

    Returns
    -------
    OwningAgents
    """
    for name in _OF_TOKENS:
        if given.get(name):
            raise UserError(f"{flag(name)}: is about the cost of tokens; leave it out beside --sessions")
    asked = {name: value for name, value in given.items() if name not in ("tpot", *_OF_TOKENS)}
    bound = TPOT if given.get("tpot") is None else given["tpot"]
    owned, rejected, read, wrong = list[OwnedAgents](), dict[str, str](), TPOT, list[UserError]()
    for system, mine in zip(systems, split_changes(systems, read_changes(set)), strict=True):
        try:
            sizing = agents_size.search(model, [system], mine, asked | {"tpot_mean": bound})
        except UserError as error:
            rejected[system] = str(error)
            wrong.append(error)
            continue
        read = sizing.limits.get("tpot_mean", read)
        rejected |= sizing.rejected
        priced = [_owned(answer) for answer in sizing.answers]
        # Comparisons with what has no price are false: it comes last.
        owned += sorted(priced, key=_order)[:1]
    if len(wrong) == len(systems):
        raise wrong[0]
    owned.sort(key=_order)
    return OwningAgents(tuple(_tied(owned)), rejected, read)


def _order(owned: OwnedAgents) -> tuple[bool, float]:
    usd = owned.answer.usd_per_task
    return usd != usd, usd


def _cost(answer: Agents) -> Cost:
    assert answer.answer is not None
    traffic = traffic_on(answer.scenario, answer.session)
    return cost_of(busy_with(answer.scenario, traffic, answer.answer))


def _sold(answer: Agents) -> float:
    """Return the tasks an hour that bear the cost: the deployment is paid for all of the day."""
    assert answer.answer is not None
    assert answer.scenario.economics is not None
    return float(answer.answer.tasks_per_hour) * float(answer.scenario.economics.utilisation)


def _owned(answer: Agents) -> OwnedAgents:
    """Return a deployment with what an hour of it costs, rented where nobody sells it."""
    answer = replace(answer, scenario=payable(answer.scenario))
    hourly, sold = _cost(answer), _sold(answer)
    per_hour = float(hourly.per_hour)
    answer = replace(answer, usd_per_hour=per_hour, usd_per_task=per_hour / sold)
    return OwnedAgents(_with_idle(answer), {cause: float(usd) / sold for cause, usd in hourly.hourly.items()})


def _with_idle(answer: Agents) -> Agents:
    """Return an answer with a line for each change that moved nothing."""

    def told(scenario: Any) -> Any:
        changed = ask(scenario, answer.session, answer.users, answer.tiers, worth=False, cliff=False)
        return changed.to_dict(), {} if changed.answer is None else dict(_cost(changed).hourly)

    lines = idle(answer.scenario, unmoved(answer.scenario, told), open_numbers)
    return replace(answer, warnings=(*lines, *answer.warnings))


def _tied(owned: Sequence[OwnedAgents]) -> list[OwnedAgents]:
    """Return systems with the price at which each ties with the cheapest other one."""
    tied = []
    for at, owner in enumerate(owned):
        other = owned[0] if at else (owned[1] if len(owned) > 1 else None)
        economics, system = owner.answer.scenario.economics, owner.answer.scenario.system
        if other is None or economics is None or economics.ownership == "rented":
            tied.append(owner)
            continue
        price = tco.price_for_cost(
            cost_per_hour=other.answer.usd_per_task * _sold(owner.answer),
            other_per_hour=sum(owner.per_task[cause] for cause in _BESIDES) * _sold(owner.answer),
            yearly_share=_cost(owner.answer).yearly_share,
        )
        whole = float(price * system.price.chips / owner.answer.chips / economics.price_level)
        tied.append(replace(owner, tie_price=whole if whole > 0 else NAN))
    return tied

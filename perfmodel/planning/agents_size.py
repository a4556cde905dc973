"""The fewest replicas that serve users with sessions within their objectives, and keep them before the cliff."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.options import Limits, PoolsQuestion, flag, options_of
from perfmodel.planning.agents import CLIFF, Agents, ask
from perfmodel.planning.agents_question import settled, with_idle
from perfmodel.question import Options, read_changes, split_changes, split_system
from perfmodel.serving.session_loop import SessionAnswer
from perfmodel.shown import Shown
from perfmodel.specs.types import Model, Scenario

#: Replicas at the most, and degrees that are tried where none is given.
_MOST, _DEGREES = 4096, (1, 2, 4, 8)


@dataclass(frozen=True, repr=False)
class AgentsSizing(Shown):
    """Deployments that serve the users, the cheapest first.

    Attributes
    ----------
    answers : tuple of Agents
        One a system and degree.
    rejected : dict
        Why each other plan lost.
    limits : dict
        Objectives by name [s].
    """

    answers: tuple[Agents, ...]
    rejected: Mapping[str, str]
    limits: Mapping[str, float]

    @property
    def reason(self) -> str:
        """Why there is no answer; else empty."""
        if self.answers:
            return ""
        return "no plan serves the users: " + "; ".join(f"{name}: {why}" for name, why in self.rejected.items())

    def to_dict(self) -> shapes.AgentsSizing:
        """Return the documented JSON object."""
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "objectives": dict(self.limits),
            "rejected": [{"plan": name, "why": why} for name, why in self.rejected.items()],
            "reason": self.reason or None,
        }


def question(model: str | Model, systems: Sequence[str], set: Any, given: Mapping[str, Any]) -> AgentsSizing:
    """Search as :func:`search` does, and name the changes that moved nothing.

    Parameters
    ----------
    model, systems, set, given
        As of :func:`search`.

    Returns
    -------
    AgentsSizing
    """
    sizing = search(model, systems, set, given)
    return replace(sizing, answers=tuple(with_idle(answer) for answer in sizing.answers))


def search(model: str | Model, systems: Sequence[str], set: Any, given: Mapping[str, Any]) -> AgentsSizing:
    """Search the least deployment of each system and degree for users with sessions.

    Parameters
    ----------
    model : str or Model
    systems : sequence of str
        Each with its plan; without a degree several are tried.
    set, given
        As of a prediction; objectives on TTFT, and the mean of TPOT.

    Returns
    -------
    AgentsSizing
    """
    limits = {name: value for name in options_of(Limits) if (value := given.get(name)) is not None}
    others = {name: value for name, value in given.items() if name not in limits}
    for name in limits:
        if not name.startswith("ttft_") and name != "tpot_mean":
            raise UserError(f"{flag(name)}: sessions have objectives on TTFT, and --tpot-mean; leave it out")
    if any(
        replicas is not None for replicas in (others.get("dp"), *(split_system(on, Options())[1].dp for on in systems))
    ):
        raise UserError("a search finds the replicas: leave --dp out")
    for name, value in others.items():
        if value and name in options_of(PoolsQuestion) and name in _SEARCHED:
            raise UserError(f"{flag(name)} is of a search over a rate; leave it out")
    plans, rejected, read, wrong = list[Agents](), dict[str, str](), dict[str, float](), list[str]()
    for system, mine in zip(systems, split_changes(systems, read_changes(set)), strict=True):
        before = len(plans)
        for on in dict.fromkeys((*_tried(system, others), system)):
            if on == system and len(plans) > before:
                break  # The layout of its own is for machines that have no other.
            try:
                ((scenario, session, users, tiers),), rest = settled(PoolsQuestion, model, [on], mine, others | limits)
                read = {name: float(rest[name]) for name in limits}
                # A router that sends calls anywhere would lose them: sticky ones are what a search assumes.
                if "routing" not in others:
                    scenario = replace(scenario, deployment=replace(scenario.deployment, routing="prefix"))
                most = int(rest.get("max_chips", _MOST * 1e3))
                search = functools.partial(ask, session=session, users=users, tiers=tiers, worth=False)
                answer, why = _least(search, scenario, read, most)
            except UserError as error:
                answer, why = None, str(error)
                wrong.append(why)
            if answer is None:
                rejected[on] = why
            else:
                plans.append(answer)
    if wrong and len(wrong) == len(rejected) and len(dict.fromkeys(wrong)) == 1 and not plans:
        # What every plan is refused for is wrong with the question.
        raise UserError(wrong[0])
    return AgentsSizing(tuple(sorted(plans, key=lambda one: one.usd_per_hour)), rejected, read)


#: Options of a search over a rate.
_SEARCHED = (
    *("least", "precisions", "ks", "allow_unmeasured", "no_objective", "confidence"),
    *("headroom", "availability", "chip_mtbf", "profile", "prefill_on", "growth", "years", "save", "separate"),
    *("active", "requests_per_minute", "peak", "max_nodes", "max_power", "max_cost"),
)


def _tried(system: str, given: Mapping[str, Any]) -> list[str]:
    """Return a system with each degree that is tried; as it is where its plan is given."""
    _, own = split_system(system, Options())
    if any(given.get(name) is not None or getattr(own, name) is not None for name in ("tp", "plan", "pp", "ep")):
        return [system]
    mark = "," if ":" in system else ":"
    return [f"{system}{mark}tp={degree}" for degree in _DEGREES]


def _least(
    asked: Callable[..., Agents], scenario: Scenario, limits: Mapping[str, float], most_chips: int
) -> tuple[Agents | None, str]:
    """Return the answer with the fewest replicas that serve, or why none does."""
    # Of the plan that was asked about, which has one replica; the answer tells how many it has.
    scenario = replace(scenario, assumed=tuple(line for line in scenario.assumed if line != "DP 1"))

    def at(replicas: int, cliff: bool = False) -> Agents:
        return asked(replace(scenario, deployment=replace(scenario.deployment, dp=float(replicas))), cliff=cliff)

    low, high = 0, 1
    answer = at(high)
    while (why := _fails(answer, limits)) and high < _MOST and not answer.reason:
        low, high = high, 2 * high
        answer = at(high)
    if why:
        return None, why
    while high - low > 1:
        middle = (low + high) // 2
        tried = at(middle)
        if _fails(tried, limits):
            low = middle
        else:
            high, answer = middle, tried
    if answer.chips > most_chips:
        return None, f"{answer.chips:,.0f} chips are more than {most_chips:,}"
    return at(high, cliff=True), ""


def _fails(answer: Agents, limits: Mapping[str, float]) -> str:
    """Return what a deployment misses; empty where it serves."""
    reached = answer.answer
    if reached is None:
        return answer.reason
    if float(reached.hit_rate) < CLIFF * reached.hit_ceiling:
        return "past the cliff of its cache"
    if reached.cold is not None and float(reached.cold.hit_rate) < CLIFF * reached.hit_ceiling:
        return "a start with an empty cache never gets before the cliff"
    for name, limit in limits.items():
        if (value := _value(reached, name)) > limit:
            return f"{flag(name)[2:]} of {value:.3g} s is more than {limit:.3g} s"
    return ""


def _value(answer: SessionAnswer, name: str) -> float:
    time, _, what = name.partition("_")
    if what == "mean":
        return float(getattr(answer, time))
    return float(answer.first_token.quantile(int(what[1:]) / 100))

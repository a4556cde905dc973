"""The search for the plan of a system that serves a rate within objectives on the fewest chips.

Every plan that fits is worked out on means.  The Pareto front of chips, speed and latency then meets the chain of
continuous batching, cheapest first; what the chain takes for enough is simulated, with more replicas where that misses
and with fewer where it has room, until nothing that is left can win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from statistics import NormalDist
from typing import Any

import numpy as np

from perfmodel.machines.base import machine_of
from perfmodel.planning.candidates import Means, Rejected, floors, means_of, plans_of
from perfmodel.planning.checked import Key
from perfmodel.planning.front import front
from perfmodel.planning.load import Sized, plan_name, priced, service_of
from perfmodel.planning.requests import Stream
from perfmodel.planning.verify import check, slower, sold, spread, within
from perfmodel.serving.chain import FULL
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Loaded, Objectives, loaded, phrase, queue_of, replicas_for, statistic
from perfmodel.serving.service import Service
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import show

#: Plans of a system that meet the chain before the search gives up on finding a better one.
_CHAINS = 16
#: Simulations of a system, and of a plan at more and more replicas, before the closed form's word is taken.
CHECKS, _CHECKS_OF_A_PLAN = 16, 6
#: Simulations at fewer replicas, where the objectives are met by as much as this.
_FEWER, _SAFE = 5, 0.9
#: Chips by the closed form, over those of the best answer, up to which a plan is tried at fewer.
_RIVALS = 1.35
#: How busy the replicas of a first guess are, as a share of what they can do.
_BUSY = 0.85


@dataclass(frozen=True)
class Demand:
    """What is asked of a deployment.

    Attributes
    ----------
    rate : float
        Requests [1/s].
    objectives : Objectives
    growth : float
        Of the rate, for which there is to be room [1].
    confidence : float or None
        Chance of meeting the objectives over the spread of the prediction; the machine as predicted where None.
    """

    rate: float
    objectives: Objectives
    growth: float = 1.0
    confidence: float | None = None

    def factor(self, scenario: Scenario) -> float:
        """Return by how much slower than predicted a plan is taken to be [1].

        Parameters
        ----------
        scenario : Scenario
        """
        if self.confidence is None:
            return 1.0
        sigma = spread(scenario)
        return math.exp(sigma * NormalDist().inv_cdf(self.confidence)) if sigma > 0 else 1.0


@dataclass
class _Tried:
    """A plan on its way: on means, then answered by the chain, then simulated at more replicas until it holds."""

    means: Means
    caps: Any
    budget: float
    chips: float
    answer: Sized | None = None
    checks: int = 0


@dataclass
class Search:
    """The search of one system, and what it finds out.

    Attributes
    ----------
    lengths : Lengths
    demand : Demand
    most_chips : float
        Chips beyond which a plan is no answer.
    beyond : str
        What a plan needs that is no answer, in words.
    simulated : bool
        Whether the simulation has the last word.
    streams : tuple of Stream
        Several traffics that share the replicas, each judged by its own requests.
    nearest : dict
        By objective that plans miss: the nearest that one comes to it [s], and which.
    rejected : list of Rejected
    candidates : int
        Plans with batch cap and token budget that were worked out.
    """

    lengths: Lengths
    demand: Demand
    most_chips: float
    beyond: str = ""
    simulated: bool = True
    streams: tuple[Stream, ...] = ()
    nearest: dict[Key, tuple[float, str]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    candidates: int = 0
    checks: int = 0

    def best(self, bases: Sequence[Scenario], fixed: bool, unmeasured: bool = True) -> Sized | None:
        """Return the best plan of a system, if any serves.

        Cost and power of one system go with its chips, so within it the fewest chips win, then the least busy ones.

        Parameters
        ----------
        bases : sequence of Scenario
            One a precision and number of drafted tokens.
        fixed : bool
            Whether their layout is the only one.
        unmeasured : bool
            Whether layouts that nobody has measured are tried too.
        """
        found = self._on_means(bases, fixed, unmeasured)
        tried = self._on_front(found) if found else []
        best = self._least(tried)
        return None if best is None else settled(best)

    def _on_means(self, bases: Sequence[Scenario], fixed: bool, unmeasured: bool) -> list[Means]:
        """Return every plan that holds a request, on means."""
        plans = []
        for base in bases:
            for scenario in [base] if fixed else plans_of(base):
                if not unmeasured and (what := machine_of(scenario.system).unmeasured(scenario)):
                    reason = f"nobody has measured {what}: --allow-unmeasured tries them"
                    self.rejected.append(Rejected(scenario, reason))
                    continue
                means = means_of(scenario, self.lengths)
                if isinstance(means, Rejected):
                    self.rejected.append(means)
                    continue
                self.candidates += len(means.cap)
                if not (reasons := self._floors(means)):
                    plans.append(means)
                else:
                    self.rejected.append(Rejected(scenario, reasons[0], len(means.cap)))
        return plans

    def _floors(self, means: Means) -> list[str]:
        """Return which objectives a plan misses with one request alone on the machine."""
        lowest, reasons = floors(means), []
        for (time, what), limit in self.demand.objectives.limits.items():
            if time in lowest and lowest[time] > limit:
                alone = f"{phrase((time, what))} is at least {show(lowest[time], 's', 3)}, alone on the machine"
                reasons.append(alone)
                self._note((time, what), lowest[time], means.scenario)
        return reasons

    def _note(self, key: Key, value: float, scenario: Scenario) -> None:
        if value < self.nearest.get(key, (math.inf, ""))[0]:
            self.nearest[key] = value, f"{scenario.system.name} {plan_name(scenario)}"

    def _on_front(self, plans: Sequence[Means]) -> list[_Tried]:
        """Return the plans that no other one beats on means, cheapest first, with what each takes at least."""
        rate = self.demand.rate * self.demand.growth
        owner = np.concatenate([np.full(len(means.cap), at) for at, means in enumerate(plans)])
        chips = np.concatenate([np.full(len(means.cap), means.chips) for means in plans])
        rates, tpots, ttfts, caps, budgets = (
            np.concatenate([getattr(means, name) for means in plans])
            for name in ("rate", "tpot", "ttft", "cap", "budget")
        )
        least = np.ceil(rate / rates) * chips
        possible = ~(least > self.most_chips)
        for at in np.unique(owner[~possible]):
            if not possible[owner == at].any():
                self.rejected.append(Rejected(plans[at].scenario, self._too_many(), len(plans[at].cap)))
        index = np.flatnonzero(possible)
        if not len(index):
            return []
        # Whole replicas decide at low rates; at high ones, where they make near ties, the chips a request takes do.
        kept = index[front(np.stack([least[index], chips[index] / rates[index], tpots[index], ttfts[index]], axis=1))]
        for at in np.unique(owner[index]):
            if not np.any(owner[kept] == at):
                reason = "another plan is as fast, as early and cheaper a request on means"
                self.rejected.append(Rejected(plans[at].scenario, reason, len(plans[at].cap)))
        # The chain meets each plan once, cheapest first, at the token budget that is cheapest on means, with the caps
        # on the own front of the plan: what it can do does not hang on the plans beside it.
        order = kept[np.lexsort((chips[kept] / rates[kept], least[kept]))]
        tried = []
        for at in dict.fromkeys(owner[order].tolist()):
            mine = index[owner[index] == at]
            mine = mine[front(np.stack([least[mine], chips[mine] / rates[mine], tpots[mine], ttfts[mine]], axis=1))]
            group = mine[np.lexsort((chips[mine] / rates[mine], least[mine]))]
            bound = float(np.min(np.ceil(rate / rates[group]))) * plans[at].chips
            tried.append(_Tried(plans[at], caps[group], float(budgets[group[0]]), bound))
        return tried

    def _too_many(self) -> str:
        return self.beyond or f"needs more than {self.most_chips:,.0f} chips"

    def _least(self, tried: Sequence[_Tried]) -> Sized | None:
        """Return the answer of the fewest chips, then of the least busy ones, whose simulation meets the objectives.

        What a plan takes on means is a bound, and what the chain says a guess: the least of them all is asked next, and
        a plan whose simulation misses comes back with more replicas.
        """
        # Ties go to the plan that came first, and answers to those that are not yet worked out.
        waiting = [(plan.chips, 0.0, at, plan) for at, plan in enumerate(tried)]
        heapify(waiting)
        chains = 0
        best: Sized | None = None
        while waiting and best is None:
            _, _, at, plan = heappop(waiting)
            if plan.answer is None:
                if chains >= _CHAINS:
                    self.rejected.append(Rejected(plan.means.scenario, _at_least(plan), len(plan.caps)))
                    continue
                chains += 1
                goes_on = self._chained(plan)
            elif not self.simulated or not self.demand.objectives.limits or self.checks >= CHECKS:
                best = plan.answer
                continue
            else:
                goes_on, best = self._checked(plan)
            if goes_on and plan.answer is not None:
                heappush(waiting, (plan.answer.chips, plan.answer.load.queue.utilisation, at, plan))
        if best is None:
            return None
        others = [entry[-1] for entry in sorted(waiting, key=lambda entry: entry[:3])]
        if best.checked is not None:
            best = self._undercut(best, others)
        for plan in others:
            reason = _at_least(plan) if plan.answer is None else loses(best, plan.answer, "chips")
            self.rejected.append(Rejected(plan.means.scenario, reason, len(plan.caps)))
        return best

    def _chained(self, plan: _Tried) -> bool:
        """Let the chain answer a plan; return whether it serves."""
        scenario = plan.means.scenario
        answer, failing = self._answer(scenario, plan.caps, plan.budget)
        plan.answer = answer
        if answer is not None:
            return True
        for failed, value in failing.items():
            self._note(failed, value, scenario)
        words = ", ".join(f"{phrase(one)} stays at {show(value, 's', 3)} or more" for one, value in failing.items())
        self.rejected.append(Rejected(scenario, words or self._too_many(), len(plan.caps)))
        return False

    def _checked(self, plan: _Tried) -> tuple[bool, Sized | None]:
        """Simulate the answer of a plan: return whether it comes back with more replicas, or the answer that holds."""
        assert plan.answer is not None
        plan.checks += 1
        now = self._simulated(plan.answer)
        assert now.checked is not None
        if now.checked.met:
            return False, self._fewer(now)
        share = 0.15 if now.checked.worst > 1.3 else 0.05
        more = sold(now.scenario, now.load.replicas + max(1, round(share * now.load.replicas)))
        if plan.checks >= _CHECKS_OF_A_PLAN or more > within(now.scenario, self.most_chips):
            reason = f"{now.checked.words()} at {now.chips:,.0f} chips"
            self.rejected.append(Rejected(now.scenario, reason, len(plan.caps)))
            return False, None
        plan.answer = _at(now, more)
        return True, None

    def _simulated(self, answer: Sized) -> Sized:
        self.checks += 1
        factor = self.demand.factor(answer.scenario)
        return replace(answer, checked=check(answer, self.demand.growth, factor, self.streams))

    def _undercut(self, best: Sized, others: Sequence[_Tried]) -> Sized:
        """Return a plan that takes fewer chips by its simulation than by the closed form, and than the best, if any."""
        tried = 0
        for plan in others:
            if plan.answer is None or plan.checks or plan.answer.chips > _RIVALS * best.chips or tried >= _FEWER:
                continue
            each = plan.answer.chips / plan.answer.load.replicas
            replicas = sold(plan.answer.scenario, math.ceil(best.chips / each), fewer=True)
            load = plan.answer.load
            if replicas < 1 or load.rate * self.demand.growth / replicas >= load.service.capacity * FULL:
                continue
            tried += 1
            less = self._simulated(_at(plan.answer, replicas))
            if less.checked is not None and less.checked.met and less.chips < best.chips:
                best = self._fewer(less)
        return best

    def _fewer(self, answer: Sized) -> Sized:
        """Return an answer with as few replicas as its simulation allows, where the closed form is on the safe side."""
        tried, load = 0, answer.load
        few = math.floor(load.rate * self.demand.growth / (load.service.capacity * FULL)) + 1
        while tried < _FEWER and answer.checked is not None and answer.checked.worst < _SAFE:
            middle = sold(answer.scenario, math.floor(math.sqrt(few * answer.load.replicas)))
            fewer = sold(answer.scenario, answer.load.replicas, fewer=True)
            replicas = middle if middle < answer.load.replicas else fewer
            if replicas < few:
                break
            tried += 1
            less = self._simulated(_at(answer, replicas))
            if less.checked is not None and less.checked.met:
                answer = less
            else:
                few = replicas + 1
        return answer

    def _answer(self, scenario: Scenario, caps: Any, budget: float) -> tuple[Sized | None, dict[Key, float]]:
        """Return the fewest replicas of a plan over the caps on the front, or what fails."""
        demand = self.demand
        scv, factor = float(scenario.traffic.arrival_scv), demand.factor(scenario)
        rate = demand.rate * demand.growth * factor
        best: Service | None = None
        fewest = 0
        failing: dict[Key, float] = {}
        # The largest cap first; a smaller one holds TPOT where more load than that would break it.
        for cap in sorted({float(max(caps)), float(math.floor(np.median(caps)))}, reverse=True):
            service = service_of(scenario, self.lengths, cap, None if math.isnan(budget) else budget)
            most = within(scenario, self.most_chips) if best is None else fewest - 1
            if most < 1:
                break
            guess = math.ceil(rate / (service.capacity * _BUSY)) if service.capacity > 0 and best is None else most
            count, failed = replicas_for(service, rate, scv, slower(demand.objectives, factor), most, guess)
            if count:
                best, fewest = service, count
            elif best is None:
                alone = loaded(service, min(rate / most, service.capacity * 1e-3), 1.0, 1, Objectives()).queue
                # What is met where there are enough replicas fails for want of chips only.
                for key in failed:
                    if (value := statistic(alone, *key)) > demand.objectives.limits.get(key, math.inf) / factor:
                        failing[key] = min(failing.get(key, math.inf), value)
        if best is None:
            return None, failing
        return _priced(scenario, best, demand.rate, scv, sold(scenario, fewest), demand.objectives, budget), {}


def _at_least(plan: _Tried) -> str:
    return f"needs at least {plan.chips:,.0f} chips on means"


def _priced(
    scenario: Scenario, service: Service, rate: float, scv: float, count: int, objectives: Objectives, budget: float
) -> Sized:
    """Return an answer without goodput and headroom, which take long to find and decide nothing."""
    queue = queue_of(service, rate, scv, count)
    load = Loaded(service, count, rate, scv, queue, math.nan, math.nan, "", objectives)
    return priced(scenario, load, budget)


def _at(answer: Sized, replicas: int) -> Sized:
    """Return an answer with another number of replicas."""
    load = answer.load
    alone = replace(answer.scenario, deployment=replace(answer.scenario.deployment, dp=1.0))
    return _priced(alone, load.service, load.rate, load.arrival_scv, replicas, load.objectives, answer.token_budget)


def settled(answer: Sized) -> Sized:
    """Return an answer with its goodput, its headroom and what breaks first.

    Parameters
    ----------
    answer : Sized
    """
    load = answer.load
    reached = loaded(load.service, load.rate, load.arrival_scv, load.replicas, load.objectives)
    if math.isnan(reached.headroom):
        # The simulation decides; the closed form, which is on the safe side here, has no more to give.
        reached = replace(reached, headroom=0.0)
    return replace(answer, load=reached)


def loses(winner: Sized, other: Sized, goal: str) -> str:
    """Return in words why an answer is not the best one.

    Parameters
    ----------
    winner, other : Sized
    goal : str
        One of ``GOALS``.
    """
    own_goal, best = other.goal(goal), winner.goal(goal)
    unit = {"cost": "USD an hour", "power": "W", "chips": "chips"}[goal]
    if math.isnan(own_goal) or math.isnan(best):
        return f"{other.chips:,.0f} chips against {winner.chips:,.0f}; {goal} is not published"
    if own_goal == best:
        busy = (one.load.queue.utilisation for one in (other, winner))
        return "as many {}, and busier: {:.0%} against {:.0%}".format(unit, *busy)
    return f"{own_goal:,.4g} {unit} against {best:,.4g}"

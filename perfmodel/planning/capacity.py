"""The most that machines which one has serve within objectives, in the plan that serves most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.machines.base import machine_of
from perfmodel.planning.candidates import Means, Rejected, means_of, plans_of
from perfmodel.planning.front import front
from perfmodel.planning.load import Sized, about_load, cautions, priced, service_of
from perfmodel.planning.size import is_fixed, without_plan
from perfmodel.planning.verdict import asked as in_words
from perfmodel.planning.verdict import came_about, floor_words
from perfmodel.planning.verify import check, floors, within
from perfmodel.question import Options, resolve, split_changes
from perfmodel.serving.chain import FULL
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Objectives, breaking_rate, loaded, phrase, queue_of, statistic
from perfmodel.serving.service import Service
from perfmodel.serving.traffic import lengths_of
from perfmodel.shown import Shown
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show

#: Plans that meet the chain, and of those the ones that are simulated, where the chain puts them this near the best.
_CHAINS, _SIMULATED, _NEAR = 8, 2, 0.85
#: Simulations of a plan, and the share of the rate to which its most is found.
_CHECKS, _PRECISION = 7, 0.03
#: Share of what a replica can do at which it is as good as idle.
_IDLE = 1e-3


@dataclass(frozen=True, repr=False)
class Capacity(Shown):
    """What machines that one has serve.

    Attributes
    ----------
    answers : tuple of Sized
        The plan of each system that serves most, at the most that it serves; those that serve most first.
    nodes : float
        Of each system.
    rate : float or None
        What is to be served, where it was given [1/s].
    objectives : Objectives
    unserved : tuple of (str, str)
        Systems on which nothing meets the objectives, and why.
    rejected : tuple of Rejected
    assumed, warnings : tuple of str
    """

    answers: tuple[Sized, ...]
    nodes: float
    rate: float | None
    objectives: Objectives
    unserved: tuple[tuple[str, str], ...]
    rejected: tuple[Rejected, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why there is no answer, else empty."""
        return "" if self.answers else "; ".join(f"{name}: {why}" for name, why in self.unserved)

    @property
    def short(self) -> bool:
        """Whether what is asked for is more than any of the systems serves."""
        return self.rate is not None and not any(self.headroom(one) >= 0 for one in self.answers)

    def headroom(self, answer: Sized) -> float:
        """Return by how much the rate may grow; negative where less than it is served, NaN where none was given [1].

        Parameters
        ----------
        answer : Sized
        """
        return math.nan if self.rate is None else answer.load.rate / self.rate - 1

    def verdict(self) -> list[str]:
        """Return a sentence a system: what it serves, with its condition."""
        sentences = []
        for answer in self.answers:
            name, most = answer.scenario.system.name, answer.load.rate
            room = self.headroom(answer)
            against = ""
            if self.rate is not None and room >= 0:
                against = f", {room:.0%} more than the {self.rate:g} asked for"
            elif self.rate is not None:
                against = f", {-room:.0%} less than the {self.rate:g} asked for"
            checked = answer.checked
            said = f"; {checked.words()}" if checked is not None else ""
            nodes = f"{self.nodes:g} node{'' if self.nodes == 1 else 's'}"
            what = in_words(self.objectives)
            verb = "serves" if self.nodes == 1 else "serve"
            sentences.append(f"{nodes} of {name} {verb} {most:.3g} requests/s with {what}{against}{said}")
        return [*sentences, *(f"{name}: nothing serves it: {why}" for name, why in self.unserved)]

    def lines(self) -> list[str]:
        """Return how each answer came about, and what its objectives cannot go below."""
        lines = []
        for answer in self.answers:
            left = self.nodes * float(answer.scenario.system.chips_per_node) - float(answer.chips)
            idle = f"; {left:g} chips are left over" if left >= 1 else ""
            lines += [f"{came_about(answer)}{idle}", *floor_words(answer)]
        return lines

    def to_dict(self) -> shapes.Capacity:
        """Return the documented JSON object."""
        return {
            "verdict": self.verdict(),
            "nodes": shapes.number(self.nodes),
            "rate_per_s": None if self.rate is None else shapes.number(self.rate),
            "objectives": shapes.numbers(self.objectives.named()),
            "answers": [
                {
                    "most_rate_per_s": shapes.number(answer.load.rate),
                    "rate_headroom": shapes.number(self.headroom(answer)),
                    **answer.to_dict(),
                }
                for answer in self.answers
            ],
            "unserved": [{"system": name, "reason": why} for name, why in self.unserved],
            "rejected": [entry.to_dict() for entry in self.rejected],
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the answers as flat columns."""
        return [
            {"most_rate_per_s": answer.load.rate, "rate_headroom": self.headroom(answer), **answer.row()}
            for answer in self.answers
        ]

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame(self.rows())


@dataclass
class _Fleet:
    """Machines of one system, and what is found out of the plans on them."""

    lengths: Lengths
    objectives: Objectives
    chips: float
    rejected: list[Rejected] = field(default_factory=list)

    def best(self, base: Scenario, fixed: bool, unmeasured: bool) -> Sized | None:
        """Return the plan that serves most by its simulation, at the most that it serves."""
        plans = [base] if fixed else plans_of(base)
        chained = [load for means in self._on_means(plans, unmeasured) if (load := self._chained(means)) is not None]
        chained.sort(key=lambda one: -one.load.rate)
        best: Sized | None = None
        for guess in chained[:_SIMULATED]:
            if guess.load.rate < _NEAR * chained[0].load.rate:
                break
            load = self._simulated(guess, 0.0 if best is None else best.load.rate)
            if load is not None and (best is None or load.load.rate > best.load.rate):
                best = load
        for other in chained:
            if best is not None and other.scenario.deployment != best.scenario.deployment:
                self.rejected.append(Rejected(other.scenario, f"serves {other.load.rate:.3g} requests/s"))
        return best

    def _on_means(self, plans: Any, unmeasured: bool) -> list[tuple[Means, Any, float]]:
        """Return the plans that serve most on means, with their batch caps and their token budget."""
        candidates = []
        for scenario in plans:
            if not unmeasured and (what := machine_of(scenario.system).unmeasured(scenario)):
                self.rejected.append(Rejected(scenario, f"nobody has measured {what}: --allow-unmeasured tries them"))
                continue
            means = means_of(scenario, self.lengths)
            replicas = within(scenario, self.chips)
            if isinstance(means, Rejected):
                self.rejected.append(means)
            elif replicas < 1:
                self.rejected.append(Rejected(scenario, f"a replica takes more than {self.chips:g} chips"))
            else:
                kept = front(np.stack([-means.rate, means.tpot, means.ttft], axis=1))
                order = kept[np.argsort(-means.rate[kept])]
                candidates.append((replicas * float(means.rate[order[0]]), (means, order)))
        candidates.sort(key=lambda one: -one[0])
        return [(means, means.cap[order], float(means.budget[order[0]])) for _, (means, order) in candidates[:_CHAINS]]

    def _chained(self, plan: tuple[Means, Any, float]) -> Sized | None:
        """Return a plan at the most that the chain says it serves."""
        means, caps, budget = plan
        scenario = means.scenario
        scv, replicas = float(scenario.traffic.arrival_scv), within(scenario, self.chips)
        most, best, missed = 0.0, None, ""
        for cap in sorted({float(max(caps)), float(math.floor(np.median(caps)))}, reverse=True):
            service = service_of(scenario, self.lengths, cap, None if math.isnan(budget) else budget)
            least = service.capacity * replicas * _IDLE
            queue = queue_of(service, least, scv, replicas)
            if failed := self.objectives.failed(queue):
                now = show(statistic(queue, *failed[0]), "s", 3)
                missed = f"{phrase(failed[0])} stays at {now} or more"
                continue
            rate, _ = breaking_rate(service, scv, replicas, self.objectives, least)
            if rate > most:
                most, best = rate, service
        if best is None:
            self.rejected.append(Rejected(scenario, missed))
            return None
        return self._at(scenario, best, most, replicas, budget)

    def _at(self, scenario: Scenario, service: Service, rate: float, replicas: int, budget: float) -> Sized:
        alone = replace(scenario, deployment=replace(scenario.deployment, dp=1.0))
        rate = min(rate, service.capacity * replicas * FULL * 0.999)
        load = loaded(service, rate, float(scenario.traffic.arrival_scv), replicas, self.objectives)
        # The simulation decides; the closed form, which is on the safe side here, has no more to give.
        return priced(alone, replace(load, headroom=0.0) if math.isnan(load.headroom) else load, budget)

    def _simulated(self, guess: Sized, beaten: float) -> Sized | None:
        """Return a plan at the most that its simulation bears out; None where that is less than another serves."""
        if not self.objectives.limits:
            return guess
        load = guess.load
        full = load.service.capacity * load.replicas * FULL * 0.999
        met, broken, best = 0.0, full * (1 + _PRECISION), None
        rate = load.rate
        for _ in range(_CHECKS):
            now = self._at(guess.scenario, load.service, rate, load.replicas, guess.token_budget)
            now = replace(now, checked=check(now))
            if now.checked is not None and now.checked.met:
                met, best = rate, now
            else:
                broken = rate
            if broken <= beaten or (met and broken / met <= 1 + _PRECISION) or met >= full:
                break
            step = math.sqrt(met * broken) if met and broken < full else min(full, rate * 1.12) if met else rate * 0.85
            rate = step
        return best


def capacity(
    model: str | Model,
    systems: Sequence[str],
    nodes: float,
    objectives: Objectives,
    options: Options,
    changes: Sequence[str] = (),
    *,
    rate: float | None = None,
    allow_unmeasured: bool = False,
    tick: Callable[[str], None] | None = None,
) -> Capacity:
    """Return the most that nodes of each system serve within objectives.

    Parameters
    ----------
    model, systems, options, changes
        The question; a layout that a system or the options fix is not searched over.
    nodes : float
        Of each system.
    objectives : Objectives
    rate : float, optional
        What is to be served; the answer says how much more, or less, is [1/s].
    allow_unmeasured : bool
        Whether layouts that nobody has measured are tried.
    tick : callable, optional
        Called with the system that is worked out next.

    Returns
    -------
    Capacity
    """
    answers: list[Sized] = []
    rejected: list[Rejected] = []
    unserved: list[tuple[str, str]] = []
    assumed: list[str] = []
    warnings: list[str] = []
    for on, mine in zip(systems, split_changes(systems, changes), strict=True):
        if tick is not None:
            tick(on)
        base = resolve(model, on, options, mine)
        fixed = is_fixed(on, options)
        assumed += without_plan(base.assumed)
        warnings += base.warnings
        fleet = _Fleet(lengths_of(base.traffic), objectives, nodes * float(base.system.chips_per_node))
        answer = fleet.best(base, fixed, fixed or allow_unmeasured)
        rejected += fleet.rejected
        if answer is None:
            reasons = [entry.reason for entry in fleet.rejected if "nobody has measured" not in entry.reason]
            unserved.append((base.system.name, reasons[0] if reasons else "its simulation misses the objectives"))
            continue
        answers.append(replace(answer, floors=floors(answer)))
        warnings += cautions(answer.scenario, answer.load)
    answers.sort(key=lambda one: -one.load.rate)
    return Capacity(
        tuple(answers),
        nodes,
        rate,
        objectives,
        tuple(unserved),
        tuple(rejected),
        tuple(dict.fromkeys([*assumed, *about_load(base)])),
        tuple(dict.fromkeys(warnings)),
    )

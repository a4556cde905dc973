"""How many systems, of which kind, in which plan, serve a traffic within objectives, at the least of something."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.planning.candidates import Rejected
from perfmodel.planning.checked import Key
from perfmodel.planning.limits import Limits
from perfmodel.planning.load import Sized, about_load, cautions, content, open_numbers, priced, service_of
from perfmodel.planning.mix import Mix, sure_of
from perfmodel.planning.search import CHECKS, Demand, Search, loses
from perfmodel.planning.verdict import verdict
from perfmodel.planning.verify import floors, prices, sure
from perfmodel.question import Options, resolve, split_changes, split_system
from perfmodel.serving.availability import with_failures
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Objectives, loaded, phrase, replicas_for
from perfmodel.serving.traffic import lengths_of
from perfmodel.shown import Shown
from perfmodel.specs import catalog
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show

#: What an answer can be chosen by.
GOALS = ("cost", "power", "chips")
#: Replicas beyond which no period is looked at.
_MANY = 1_000_000


@dataclass(frozen=True, repr=False)
class Sizing(Shown):
    """The answers of a search, best first, and what was rejected.

    Attributes
    ----------
    answers : tuple of Sized
        The best plan of each system.
    rejected : tuple of Rejected
    objectives : Objectives
    rate : float
    goal : str
        What is made least.
    candidates : int
        Plans with batch cap and token budget that were worked out.
    reason : str
        Why there is no answer, else empty.
    unserved : tuple of (str, str)
        Systems that were asked for and that no plan serves on, and why.
    assumed, warnings : tuple of str
    """

    answers: tuple[Sized, ...]
    rejected: tuple[Rejected, ...]
    objectives: Objectives
    rate: float
    goal: str
    candidates: int
    reason: str = ""
    unserved: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def verdict(self) -> str:
        """Return what to take, how many of it, and under which condition."""
        return verdict(self.answers, self.reason)

    def to_dict(self) -> shapes.Sizing:
        """Return the documented JSON object."""
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "rejected": [entry.to_dict() for entry in self.rejected],
            "objectives": shapes.numbers(self.objectives.named()),
            "rate_per_s": shapes.number(self.rate),
            "least": self.goal,
            "candidates": self.candidates,
            "reason": self.reason or None,
            "verdict": self.verdict(),
            "unserved": [{"system": name, "reason": why} for name, why in self.unserved],
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``, the best answer first."""
        import pandas as pd

        return pd.DataFrame([answer.row() for answer in self.answers])


def size(
    model: str | Model,
    systems: Sequence[str],
    rate: float,
    objectives: Objectives,
    options: Options,
    changes: Sequence[str] = (),
    *,
    goal: str = "cost",
    precisions: Sequence[str] = (),
    depths: Sequence[float] = (),
    within: Limits | None = None,
    allow_unmeasured: bool = False,
    confidence: float | None = None,
    growth: float = 1.0,
    available: float | None = None,
    chip_mtbf: float | None = None,
    profile: Sequence[float] = (),
    mix: Mix | None = None,
    tick: Callable[[str], None] | None = None,
) -> Sizing:
    """Search for the plans that serve a rate within objectives.

    Parameters
    ----------
    model, systems, options, changes
        The question; what a system or the options fix is not searched over.
    rate : float
        Requests [1/s].
    objectives : Objectives
    goal : str
        What is made least: ``cost``, ``power`` or ``chips``.
    precisions : sequence of str
        Storage of the weights to try; the checkpoint's where empty.
    depths : sequence of float
        Tokens drafted a step to try, where a draft is named.
    within : Limits
        Chips, nodes, power and price beyond which a plan is no answer.
    allow_unmeasured : bool
        Whether layouts that nobody has measured are tried beside the others; where nothing else serves they are anyway.
    confidence : float, optional
        Chance of meeting the objectives over the spread of the prediction, drawn once for all replicas of a plan; the
        machine as predicted where None.
    growth : float
        Of the rate, for which there is to be room [1].
    available : float, optional
        Share of time that enough replicas must work; spares are added for it.
    chip_mtbf : float, optional
        Time between failures of a chip; published for GPUs only [s].
    profile : sequence of float
        Shares of the rate by period, as hours of a day; the answers say what each needs.
    mix : Mix, optional
        Several traffics that share the replicas; rate and objectives are then those of all of them.
    tick : callable, optional
        Called with a word on what is worked out.

    Returns
    -------
    Sizing
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(f"--rate {rate:g}: must be more than 0 requests a second")
    each = split_changes(systems, changes)
    asked = _Asked(Demand(rate, objectives, growth, confidence), within or Limits(), goal, allow_unmeasured, mix)
    searches: list[tuple[Sized, Search]] = []
    for on, own_changes in zip(systems, each, strict=True):
        if tick is not None:
            tick(on)
        bases = [
            resolve(model, on, _asked(options, precision, depth), own_changes)
            for precision in (precisions or (options.precision,))
            for depth in (depths or (options.k,))
        ]
        if mix is not None:
            bases = [mix.laid(base) for base in bases]
        asked.assumed += without_plan(bases[0].assumed)
        asked.warnings += [word for base in bases for word in base.warnings]
        answer, search = asked.of_system(bases, is_fixed(on, options))
        if answer is None:
            continue
        if available is not None:
            answer = _spared(answer, available, chip_mtbf, asked.warnings)
        searches.append((replace(answer, periods=_periods(answer, profile, objectives)), search))
    searches.sort(key=lambda one: (math.isnan(one[0].goal(goal)), one[0].goal(goal), one[0].chips))
    answers = [answer for answer, _ in searches]
    if answers and mix is None:
        answers[0] = replace(answers[0], prices=prices(answers[0]))
    about = [*asked.assumed, *about_load(bases[0])]
    about += catalog.in_place(catalog.load_reliability()) if available else []
    return asked.answered(answers, about)


@dataclass
class _Asked:
    """A question about several systems, and what is found out on the way."""

    demand: Demand
    within: Limits
    goal: str
    allow_unmeasured: bool
    mix: Mix | None = None
    rejected: list[Rejected] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    nearest: dict[Key, tuple[float, str]] = field(default_factory=dict)
    unserved: list[tuple[str, str]] = field(default_factory=list)
    candidates: int = 0

    def of_system(self, bases: Sequence[Scenario], fixed: bool) -> tuple[Sized | None, Search]:
        """Return the best plan of a system, with how sure it is and what its objectives cost."""
        most, beyond = self.within.chips_of(bases[0])
        everything = fixed or self.allow_unmeasured
        mix = self.mix
        lengths, streams = (lengths_of(bases[0].traffic), ()) if mix is None else (mix.lengths, mix.streams)
        search = Search(lengths, self.demand, most, beyond, streams=streams)
        answer = search.best(bases, fixed, unmeasured=everything)
        if answer is None and not everything:
            search = Search(lengths, self.demand, most, beyond, streams=streams)
            answer = search.best(bases, fixed)
        self.rejected += search.rejected
        self.candidates += search.candidates
        for key, (value, where) in search.nearest.items():
            if value < self.nearest.get(key, (math.inf, ""))[0]:
                self.nearest[key] = value, where
        name = bases[0].system.name
        if answer is None:
            self.unserved.append((name, _why_not(self.demand.objectives, search.nearest, search.rejected)))
            return None, search
        if self.demand.objectives.limits and answer.checked is None:
            self.warnings.append(
                f"{name}: {CHECKS} simulations settled no plan; this one is the closed form's, and not simulated"
            )
        if what := machine_of(answer.scenario.system).unmeasured(answer.scenario):
            only = "" if everything else "no measured layout serves it; "
            self.warnings.append(f"{name}: {only}nobody has measured {what}, as in this plan")
        self.warnings += _idle_of_search(bases, answer, fixed, search)
        if mix is not None:
            return replace(answer, sure=sure_of(answer, mix, self.demand, most)), search
        return replace(answer, sure=sure(answer), floors=floors(answer)), search

    def answered(self, answers: Sequence[Sized], assumed: Sequence[str]) -> Sizing:
        """Return the answers in their order, and why the others lose."""
        goal, demand = self.goal, self.demand
        if missing := [one.scenario.system.name for one in answers if goal != "chips" and math.isnan(one.goal(goal))]:
            self.warnings.append(f"{goal} of {', '.join(missing)} is not published: ranked last")
        others = [Rejected(other.scenario, loses(answers[0], other, goal)) for other in answers[1:]]
        return Sizing(
            tuple(answers),
            (*reversed(others), *self.rejected),
            demand.objectives,
            demand.rate,
            goal,
            self.candidates,
            "" if answers else _why_not(demand.objectives, self.nearest, self.rejected),
            tuple(self.unserved),
            tuple(dict.fromkeys(assumed)),
            tuple(dict.fromkeys([*self.warnings, *_cautions(answers)])),
        )


def _idle_of_search(bases: Sequence[Scenario], best: Sized, fixed: bool, search: Search) -> list[str]:
    """Return the changes that moved nothing of an answer: neither the plan that was found, nor which one is."""
    demand = search.demand

    def lengths_as(asked: Scenario) -> Lengths:
        return search.lengths if search.streams else lengths_of(asked.traffic)

    def kept(asked: Scenario) -> list[Any]:
        plan = best.scenario
        laid = replace(asked, deployment=plan.deployment, speculation=plan.speculation)
        budget = None if best.load.service.times.rides else best.token_budget
        service = service_of(laid, lengths_as(asked), best.batch_cap, budget)
        scv, replicas = float(asked.traffic.arrival_scv), best.load.replicas
        return content(priced(laid, loaded(service, demand.rate, scv, replicas, demand.objectives), best.token_budget))

    def searched(asked: Scenario) -> list[Any]:
        tried = [replace(asked, deployment=base.deployment, speculation=base.speculation) for base in bases]
        again = Search(lengths_as(asked), demand, search.most_chips, simulated=False)
        found = again.best(tried, fixed)
        return [] if found is None else content(found)

    base = bases[0]
    suspects = unmoved(base, kept)
    changed = tuple((path, before) for path, before in base.changed if path in suspects)
    return idle(base, unmoved(replace(base, changed=changed), searched), open_numbers)


def _periods(answer: Sized, profile: Sequence[float], objectives: Objectives) -> tuple[tuple[float, int], ...]:
    """Return the replicas that each period needs, one at least."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in profile):
        raise UserError("--profile: give shares of the rate between 0 and 1, as 0.3,0.5,1")
    if not profile:
        return ()
    load = answer.load

    def needed(share: float) -> int:
        return replicas_for(load.service, load.rate * share, load.arrival_scv, objectives, _MANY)[0] if share > 0 else 0

    # The simulation may be content with other numbers than the closed form, whole units too: periods go in proportion.
    most = needed(1.0) or load.replicas
    counts = {share: math.ceil(needed(share) / most * load.replicas) for share in set(profile)}
    return tuple((share, min(load.replicas, max(1, counts[share]))) for share in profile)


def _spared(answer: Sized, target: float, chip_mtbf: float | None, warnings: list[str]) -> Sized:
    """Return an answer with the spares that a target takes, counted in chips and cost."""
    if not 0 < target < 1:
        raise UserError(f"--availability {target:g}: must be a share between 0 and 1, as 0.999")
    system, rates = answer.scenario.system, catalog.load_reliability()
    if chip_mtbf is None:
        if not machine_of(system).failures_published:
            warnings.append(f"time between failures of {system.chip} is not published: give --chip-mtbf for spares")
            return answer
        chip_mtbf = float(rates.chip_mtbf)
    replicas = answer.load.replicas
    spared = with_failures(answer.scenario, answer.load, target, rates, answer.chips / replicas, chip_mtbf)
    if spared.spares < 0:
        warnings.append(f"{target:g} is out of reach of spare {spared.unit} of {system.name}")
        return replace(answer, availability=spared)
    share = 1 + spared.extra
    return replace(
        answer,
        availability=spared,
        chips=float(round(answer.chips * share)),
        usd_per_hour=answer.usd_per_hour * share,
        usd_per_mtok=answer.usd_per_mtok * share,
    )


def is_fixed(on: str, options: Options) -> bool:
    """Whether a layout is given, so that there is none to search for.

    Parameters
    ----------
    on : str
        A system with its plan.
    options : Options
    """
    _, split = split_system(on, options)
    refuse_replicas(split)
    if (split.attention_dp or 1) > 1:
        raise UserError("a search lays out replicas that share nothing: leave --attention-dp out")
    return any(value is not None for value in (split.plan, split.tp, split.pp, split.ep))


def refuse_replicas(options: Options) -> None:
    """Refuse what a search finds itself."""
    if options.dp is not None or options.concurrency is not None:
        raise UserError("a search finds the replicas: leave --dp and --concurrency out")


def _asked(options: Options, precision: str | None, depth: float | None) -> Options:
    return replace(options, precision=precision, k=depth)


def without_plan(assumed: Sequence[str]) -> list[str]:
    """Return what was assumed but for what a search varies.

    Parameters
    ----------
    assumed : sequence of str
    """
    return [word for word in assumed if not word.startswith(("plan ", "DP ", "PP ", "concurrency"))]


def _cautions(answers: Sequence[Sized]) -> list[str]:
    """Return where the closed form is known to be far from the simulation."""
    return list(dict.fromkeys(word for answer in answers for word in cautions(answer.scenario, answer.load)))


def _why_not(objectives: Objectives, nearest: Mapping[Key, tuple[float, str]], rejected: Sequence[Rejected]) -> str:
    """Return why nothing serves the traffic, and what would be needed."""
    missed = [
        f"{phrase(key)} of {show(limit, 's', 3)} (the nearest is {found[1]} with {show(found[0], 's', 3)})"
        for key, limit in objectives.limits.items()
        if (found := nearest.get(key)) is not None
    ]
    if missed:
        return f"no plan meets {', nor '.join(missed)}: a faster system, a smaller precision or a draft model is needed"
    if rejected:
        # A plan that would do with more chips came nearer than one that cannot hold the model.
        last = next((entry for entry in rejected if entry.reason.startswith(("needs ", "costs "))), rejected[0])
        return f"no plan serves it: {last.plan} on {last.system}: {last.reason}"
    return "no plan fits"

"""How many systems, of which kind, in which plan, serve a traffic within objectives, at the least of something.

Every plan that fits is worked out on means, all batch caps and token budgets in one broadcast.  The Pareto front of
cost, speed and latency then meets the chain of continuous batching, cheapest first, until what is left cannot win.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from statistics import NormalDist
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.equations import batching
from perfmodel.equations.serving import interference_per_token
from perfmodel.errors import UserError
from perfmodel.machines import speculation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.planning.checked import Key
from perfmodel.planning.front import front
from perfmodel.planning.load import Sized, about_load, cautions, content, open_numbers, plan_name, priced, service_of
from perfmodel.planning.verify import check, slower, sold, spread, sure
from perfmodel.prediction import plan_of, run
from perfmodel.question import Options, check_plan, resolve, split_changes, split_system
from perfmodel.serving.availability import with_failures
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.chain import FULL
from perfmodel.serving.fit import fit
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import Objectives, loaded, phrase, replicas_for, statistic
from perfmodel.serving.service import Service
from perfmodel.serving.step_times import sequence_limit
from perfmodel.serving.traffic import lengths_of
from perfmodel.shown import Shown
from perfmodel.specs import catalog
from perfmodel.specs.types import Model, Scenario

#: What an answer can be chosen by.
GOALS = ("cost", "power", "chips")
#: Batch caps tried, as shares of what fits, and token budgets of a step tried where prefill alternates with decoding.
_CAPS = np.unique(np.round(np.geomspace(1.0, 4096.0, 160)))
_BUDGETS = np.round(512.0 * 2.0 ** np.arange(0, 5.5, 0.5))
#: Plans of a system that meet the chain before the search gives up on finding a better one.
_CHAINS = 16
#: Simulations of a system, and of a plan at more and more replicas, before the closed form's word is taken.
_CHECKS, _CHECKS_OF_A_PLAN = 16, 6
#: Simulations at fewer replicas, where the objectives are met by as much as this.
_FEWER, _SAFE = 5, 0.9
#: Chips by the closed form, over those of the best answer, up to which a plan is tried at fewer.
_RIVALS = 1.35
#: Replicas beyond which no period is looked at.
_MANY = 1_000_000
#: Chips beyond which a plan is no answer, unless told otherwise.
MOST_CHIPS = 100_000.0


@dataclass(frozen=True)
class Rejected:
    """A plan of one replica that is no answer, and why."""

    scenario: Scenario
    reason: str
    tried: int = 1

    @property
    def system(self) -> str:
        """Name of the system."""
        return self.scenario.system.name

    @property
    def plan(self) -> str:
        """The layout in a few words."""
        return plan_name(self.scenario)

    def to_dict(self) -> shapes.Rejected:
        """Return the documented JSON object."""
        draft = self.scenario.speculation
        return {
            "system": self.system,
            "plan": plan_of(self.scenario),
            "k": None if draft is None else shapes.number(draft.k),
            "reason": self.reason,
            "candidates": self.tried,
        }


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
    assumed, warnings : tuple of str
    """

    answers: tuple[Sized, ...]
    rejected: tuple[Rejected, ...]
    objectives: Objectives
    rate: float
    goal: str
    candidates: int
    reason: str = ""
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

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
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``, the best answer first."""
        import pandas as pd

        return pd.DataFrame([answer.row() for answer in self.answers])


@dataclass(frozen=True)
class _Demand:
    """What is asked of a deployment: a rate with room for its growth, objectives, and how surely they are to be met."""

    rate: float
    objectives: Objectives
    growth: float = 1.0
    confidence: float | None = None

    def factor(self, scenario: Scenario) -> float:
        """Return by how much slower than predicted a plan is taken to be [1]."""
        if self.confidence is None:
            return 1.0
        sigma = spread(scenario)
        return math.exp(sigma * NormalDist().inv_cdf(self.confidence)) if sigma > 0 else 1.0


@dataclass(frozen=True)
class _Means:
    """What candidates of one plan reach on means: one entry each."""

    scenario: Scenario
    cap: Any
    budget: Any
    rate: Any
    tpot: Any
    ttft: Any
    chips: float


def plans_of(scenario: Scenario) -> Iterator[Scenario]:
    """Give every layout of a model on a system that its rules allow.

    Parameters
    ----------
    scenario : Scenario
        Its own layout does not count.
    """
    system, model = scenario.system, scenario.model
    machine = machine_of(system)
    experts = machine.spreads_experts and any(run.moe is not None for run in model.layers)
    for tp, pp in machine.layouts(scenario):
        laid = replace(scenario.deployment, plan="given", tp=tp, pp=pp, ep=1.0, dp=1.0)
        for ep in [1.0, tp] if experts and tp > 1 else [1.0]:
            candidate = replace(scenario, deployment=replace(laid, ep=ep))
            try:
                check_plan(model, system, candidate.deployment)
            except UserError:
                continue
            yield candidate


def _means(scenario: Scenario, lengths: Lengths) -> _Means | Rejected:
    """Work out all batch caps and token budgets of a plan on means."""
    longest = float((lengths.prompt + lengths.output).max())
    held = fit(scenario, longest)
    if not float(held.room) > 0:
        return Rejected(scenario, "the weights do not fit")
    mean_bytes = float(request_bytes(scenario, lengths.mean(lengths.prompt + lengths.output)))
    room = float(held.room) / mean_bytes
    if not room >= 1:
        return Rejected(scenario, "no request fits beside the weights")
    most = min(room, sequence_limit(scenario))
    machine = machine_of(scenario.system)
    rides, front = machine.prefill_rides, machine.front_end(scenario.system)
    caps = np.append(_CAPS[most > _CAPS], math.floor(most))
    output, prompt = lengths.mean(lengths.output), lengths.mean(lengths.prompt)
    context = lengths.mean(lengths.output * (lengths.prompt + lengths.output / 2)) / output
    cached = float(scenario.traffic.prefix_hits)
    step = np.asarray(speculation.decode(machine, scenario, caps, context).step.time) * np.ones_like(caps)
    step = np.maximum(step, caps * float(front.stream))
    together = np.maximum(1.0, np.minimum(caps / output, PREFILL_BUDGET / prompt))
    first, occupancy = speculation.prefill(
        machine, scenario, caps if rides else 1.0, context, max(1.0, prompt * (1 - cached)), together
    )
    occupancy = np.asarray(occupancy) * np.ones_like(caps)
    latency = float(np.min(np.asarray(first.time))) + float(front.request)
    budgets = np.array([math.nan]) if rides else _BUDGETS
    rate = batching.saturated_rate(running=caps, output=output, step=step, occupancy=occupancy)[:, None]
    if not rides:
        rate = np.minimum(
            rate,
            batching.prefill_rate(
                occupancy=occupancy[:, None],
                step=step[:, None],
                prompt=prompt * (1 - cached),
                budget=budgets[None, :],
            ),
        )
    rate = rate * np.ones_like(budgets)[None, :]
    met = interference_per_token(running=caps, occupancy=occupancy, output=output, joining=0.5)
    tpot = (step + met)[:, None] * np.ones_like(budgets)[None, :]
    if np.isnan(tpot).all():
        return Rejected(scenario, run(scenario).reason)
    # A prompt longer than the budget waits for a step of decoding between its chunks.
    chunks = 0.0 if rides else np.maximum(0.0, np.ceil(prompt / budgets) - 1)
    ttft = latency + step[:, None] * (1 + chunks)
    shape = (len(caps), len(budgets))
    chips = float(scenario.deployment.tp) * float(scenario.deployment.pp) + float(speculation.extra_chips(scenario))
    grid = np.broadcast_to(caps[:, None], shape), np.broadcast_to(budgets[None, :], shape)
    return _Means(
        scenario,
        grid[0].ravel(),
        grid[1].ravel(),
        rate.ravel(),
        tpot.ravel(),
        np.broadcast_to(ttft, shape).ravel(),
        chips,
    )


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
    most_chips: float = MOST_CHIPS,
    allow_unmeasured: bool = False,
    confidence: float | None = None,
    growth: float = 1.0,
    available: float | None = None,
    chip_mtbf: float | None = None,
    profile: Sequence[float] = (),
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
    most_chips : float
        Chips beyond which a plan is no answer.
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
    tick : callable, optional
        Called with a word on what is worked out.

    Returns
    -------
    Sizing
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(f"--rate {rate:g}: must be more than 0 requests a second")
    each = split_changes(systems, changes)
    demand = _Demand(rate, objectives, growth, confidence)
    answers: list[Sized] = []
    rejected: list[Rejected] = []
    assumed: list[str] = []
    warnings: list[str] = []
    nearest: dict[tuple[str, str], tuple[float, str]] = {}
    count = 0
    for on, mine in zip(systems, each, strict=True):
        if tick is not None:
            tick(on)
        bases = [
            resolve(model, on, _asked(options, precision, depth), mine)
            for precision in (precisions or (options.precision,))
            for depth in (depths or (options.k,))
        ]
        assumed += [word for word in bases[0].assumed if word not in assumed and not _searched(word)]
        warnings += [word for base in bases for word in base.warnings if word not in warnings]
        lengths = lengths_of(bases[0].traffic)
        fixed = _is_fixed(on, options)
        everything = fixed or allow_unmeasured
        best, refused, tried = _search(bases, fixed, lengths, demand, most_chips, nearest, unmeasured=everything)
        if not best and not everything:
            best, refused, tried = _search(bases, fixed, lengths, demand, most_chips, nearest)
        for answer in best:
            if demand.objectives.limits and answer.checked is None:
                warnings.append(
                    f"{answer.scenario.system.name}: {_CHECKS} simulations settled no plan; this one is the closed "
                    "form's, and not simulated"
                )
            if what := machine_of(answer.scenario.system).unmeasured(answer.scenario):
                only = "" if everything else "no measured layout serves it; "
                warnings.append(f"{answer.scenario.system.name}: {only}nobody has measured {what}, as in this plan")
        best = [
            replace(answer, sure=sure(answer, int(most_chips // (answer.chips / answer.load.replicas))))
            for answer in best
        ]
        if available is not None:
            best = [_spared(answer, available, chip_mtbf, warnings) for answer in best]
        best = [replace(answer, periods=_periods(answer, profile, objectives)) for answer in best]
        if best:
            idle_here = _idle_of_search(bases, best[0], fixed, demand, most_chips)
            warnings += [word for word in idle_here if word not in warnings]
        answers += best
        rejected += refused
        count += tried
    if goal != "chips" and any(math.isnan(answer.goal(goal)) for answer in answers):
        missing = [answer.scenario.system.name for answer in answers if math.isnan(answer.goal(goal))]
        warnings.append(f"{goal} of {', '.join(missing)} is not published: ranked last")
    answers.sort(key=lambda answer: (math.isnan(answer.goal(goal)), answer.goal(goal), answer.chips))
    for other in answers[1:]:
        rejected.insert(0, Rejected(other.scenario, _loses(answers[0], other, goal)))
    reason = "" if answers else _why_not(objectives, nearest, rejected)
    return Sizing(
        tuple(answers),
        tuple(rejected),
        objectives,
        rate,
        goal,
        count,
        reason,
        (*assumed, *about_load(bases[0]), *(catalog.in_place(catalog.load_reliability()) if available else ())),
        (*warnings, *_cautions(answers)),
    )


def _idle_of_search(
    bases: Sequence[Scenario], best: Sized, fixed: bool, demand: _Demand, most_chips: float
) -> list[str]:
    """Return the changes that moved nothing of an answer: neither the plan that was found, nor which one is."""

    def kept(asked: Scenario) -> list[Any]:
        plan = best.scenario
        laid = replace(asked, deployment=plan.deployment, speculation=plan.speculation)
        budget = None if best.load.service.times.rides else best.token_budget
        service = service_of(laid, lengths_of(asked.traffic), best.batch_cap, budget)
        scv, replicas = float(asked.traffic.arrival_scv), best.load.replicas
        return content(priced(laid, loaded(service, demand.rate, scv, replicas, demand.objectives), best.token_budget))

    def searched(asked: Scenario) -> list[Any]:
        tried = [replace(asked, deployment=base.deployment, speculation=base.speculation) for base in bases]
        found, _, _ = _search(tried, fixed, lengths_of(asked.traffic), demand, most_chips, {}, simulated=False)
        return [content(answer) for answer in found]

    base = bases[0]
    suspects = unmoved(base, kept)
    changed = tuple((path, before) for path, before in base.changed if path in suspects)
    return idle(base, unmoved(replace(base, changed=changed), searched), open_numbers)


def _periods(answer: Sized, profile: Sequence[float], objectives: Objectives) -> tuple[tuple[float, int], ...]:
    """Return the replicas that each period needs, one at least."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in profile):
        raise UserError("--profile: give shares of the rate between 0 and 1, as 0.3,0.5,1")
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
    found = with_failures(answer.scenario, answer.load, target, rates, answer.chips / replicas, chip_mtbf)
    if found.spares < 0:
        warnings.append(f"{target:g} is out of reach of spare {found.unit} of {system.name}")
        return replace(answer, availability=found)
    share = 1 + found.extra
    return replace(
        answer,
        availability=found,
        chips=answer.chips * share,
        usd_per_hour=answer.usd_per_hour * share,
        usd_per_mtok=answer.usd_per_mtok * share,
    )


def _is_fixed(on: str, options: Options) -> bool:
    """Whether a layout is given, so that there is none to search for."""
    _, mine = split_system(on, options)
    refuse_replicas(mine)
    if (mine.attention_dp or 1) > 1:
        raise UserError("size lays out replicas that share nothing: leave --attention-dp out")
    return any(value is not None for value in (mine.plan, mine.tp, mine.pp, mine.ep))


def refuse_replicas(options: Options) -> None:
    """Refuse what a search finds itself."""
    if options.dp is not None or options.concurrency is not None:
        raise UserError("size finds the replicas: leave --dp and --concurrency out")


def _asked(options: Options, precision: str | None, depth: float | None) -> Options:
    return replace(options, precision=precision, k=depth)


def _searched(word: str) -> bool:
    """Whether an assumption is about what the search varies."""
    return word.startswith(("plan ", "DP ", "PP ", "concurrency"))


def _cautions(answers: Sequence[Sized]) -> list[str]:
    """Return where the closed form is known to be far from the simulation."""
    return list(dict.fromkeys(word for answer in answers for word in cautions(answer.scenario, answer.load)))


def _search(
    bases: Sequence[Scenario],
    fixed: bool,
    lengths: Lengths,
    demand: _Demand,
    most_chips: float,
    nearest: dict[Key, tuple[float, str]],
    *,
    simulated: bool = True,
    unmeasured: bool = True,
) -> tuple[list[Sized], list[Rejected], int]:
    """Return the best plan of a system, what was rejected, and how many candidates there were.

    ``unmeasured`` says whether layouts that nobody has measured are tried too.

    Cost and power of one system go with its chips, so within it the fewest chips win, then the most headroom.
    """
    rejected: list[Rejected] = []
    found: list[_Means] = []
    for base in bases:
        for scenario in [base] if fixed else plans_of(base):
            if not unmeasured and (what := machine_of(scenario.system).unmeasured(scenario)):
                reason = f"nobody has measured {what}: --allow-unmeasured tries them"
                rejected.append(Rejected(scenario, reason))
                continue
            means = _means(scenario, lengths)
            if isinstance(means, Rejected):
                rejected.append(means)
            else:
                found.append(means)
    if not found:
        return [], rejected, 0
    rate, objectives = demand.rate * demand.growth, demand.objectives
    count = sum(len(means.cap) for means in found)
    owner = np.concatenate([np.full(len(means.cap), at) for at, means in enumerate(found)])
    chips = np.concatenate([np.full(len(means.cap), means.chips) for means in found])
    rates, tpots, ttfts, caps, budgets = (
        np.concatenate([getattr(means, name) for means in found]) for name in ("rate", "tpot", "ttft", "cap", "budget")
    )
    floors = _floors(found)
    possible = np.ones(len(owner), dtype=bool)
    for at, means in enumerate(found):
        reasons = []
        for (time, what), limit in objectives.limits.items():
            if time in floors[at] and floors[at][time] > limit:
                reasons.append(
                    f"{phrase((time, what))} is at least {floors[at][time] * 1e3:.3g} ms, alone on the machine"
                )
                _note(
                    nearest, (time, what), floors[at][time], f"{means.scenario.system.name} {plan_name(means.scenario)}"
                )
        if reasons:
            possible[owner == at] = False
            rejected.append(Rejected(means.scenario, reasons[0], len(means.cap)))
    least = np.ceil(rate / rates) * chips
    too_many = possible & (least > most_chips)
    possible &= ~too_many
    for at in np.unique(owner[too_many]):
        if not possible[owner == at].any():
            means = found[at]
            reason = f"needs more than {most_chips:,.0f} chips"
            rejected.append(Rejected(means.scenario, reason, len(means.cap)))
    index = np.flatnonzero(possible)
    if not len(index):
        return [], rejected, count
    # Whole replicas decide at low rates; at high ones, where they make near ties, the chips a request takes do.
    kept = index[front(np.stack([least[index], chips[index] / rates[index], tpots[index], ttfts[index]], axis=1))]
    for at in np.unique(owner[index]):
        if not np.any(owner[kept] == at):
            means = found[at]
            reason = "another plan is as fast, as early and cheaper a request on means"
            rejected.append(Rejected(means.scenario, reason, len(means.cap)))
    # The chain meets each plan once, cheapest first, at the token budget that is cheapest on means, with the caps on
    # the own front of the plan: what it can do does not hang on the plans beside it.
    order = kept[np.lexsort((chips[kept] / rates[kept], least[kept]))]
    tried = []
    for at in dict.fromkeys(owner[order].tolist()):
        mine = index[owner[index] == at]
        mine = mine[front(np.stack([least[mine], chips[mine] / rates[mine], tpots[mine], ttfts[mine]], axis=1))]
        group = mine[np.lexsort((chips[mine] / rates[mine], least[mine]))]
        bound = float(np.min(np.ceil(rate / rates[group]))) * found[at].chips
        tried.append(_Tried(found[at], caps[group], float(budgets[group[0]]), bound))
    best = _least(tried, lengths, demand, most_chips, nearest, rejected, simulated)
    return ([best] if best is not None else []), rejected, count


@dataclass
class _Tried:
    """A plan on its way: on means, then answered by the chain, then simulated at more replicas until it holds."""

    means: _Means
    caps: Any
    budget: float
    chips: float
    answer: Sized | None = None
    checks: int = 0


def _least(
    tried: Sequence[_Tried],
    lengths: Lengths,
    demand: _Demand,
    most_chips: float,
    nearest: dict[Key, tuple[float, str]],
    rejected: list[Rejected],
    simulated: bool,
) -> Sized | None:
    """Return the answer of the fewest chips, then of the most headroom, whose simulation meets the objectives.

    What a plan takes on means is a bound, and what the chain says a guess: the least of them all is asked next, and a
    plan whose simulation misses comes back with more replicas.
    """
    # Ties go to the plan that came first, and answers to those that are not yet worked out.
    waiting = [(plan.chips, 0.0, at, plan) for at, plan in enumerate(tried)]
    heapify(waiting)
    chains = checks = 0
    best: Sized | None = None
    while waiting and best is None:
        _, _, at, plan = heappop(waiting)
        scenario = plan.means.scenario
        if plan.answer is None:
            if chains >= _CHAINS:
                rejected.append(Rejected(scenario, f"needs at least {plan.chips:,.0f} chips on means"))
                continue
            chains += 1
            answer, failing = _answer(scenario, lengths, plan.caps, plan.budget, demand, most_chips)
            if answer is None:
                for failed, value in failing.items():
                    _note(nearest, failed, value, f"{scenario.system.name} {plan_name(scenario)}")
                words = ", ".join(
                    f"{phrase(one)} stays at {value * 1e3:.3g} ms or more" for one, value in failing.items()
                )
                rejected.append(Rejected(scenario, words or f"needs more than {most_chips:,.0f} chips", len(plan.caps)))
                continue
            plan.answer = answer
        elif not simulated or not demand.objectives.limits or checks >= _CHECKS:
            best = plan.answer
        else:
            checks, plan.checks = checks + 1, plan.checks + 1
            now = replace(plan.answer, checked=check(plan.answer, demand.growth, demand.factor(plan.answer.scenario)))
            assert now.checked is not None
            if now.checked.met:
                best, more = _fewer(now, demand)
                checks += more
            elif plan.checks >= _CHECKS_OF_A_PLAN or now.chips * 1.05 > most_chips:
                rejected.append(Rejected(now.scenario, f"{now.checked.words()} at {now.chips:,.0f} chips"))
                continue
            else:
                share = 0.15 if now.checked.worst > 1.3 else 0.05
                more_replicas = now.load.replicas + max(1, round(share * now.load.replicas))
                plan.answer = _at(now, sold(now.scenario, more_replicas))
        if best is None:
            assert plan.answer is not None
            heappush(waiting, (plan.answer.chips, -plan.answer.load.headroom, at, plan))
    if best is not None and best.checked is not None:
        best = _undercut(best, [entry[-1] for entry in sorted(waiting, key=lambda entry: entry[:3])], demand)
    if best is not None:
        for *_, plan in sorted(waiting, key=lambda entry: entry[:3]):
            reason = (
                f"needs at least {plan.chips:,.0f} chips on means"
                if plan.answer is None
                else _loses(best, plan.answer, "chips")
            )
            rejected.append(Rejected(plan.means.scenario, reason, len(plan.caps)))
    return best


def _undercut(best: Sized, others: Sequence[_Tried], demand: _Demand) -> Sized:
    """Return a plan that takes fewer chips by its simulation than by the closed form, and than the best one, if any."""
    tried = 0
    for plan in others:
        if plan.answer is None or plan.checks or plan.answer.chips > _RIVALS * best.chips or tried >= _FEWER:
            continue
        each = plan.answer.chips / plan.answer.load.replicas
        replicas = sold(plan.answer.scenario, math.ceil(best.chips / each), fewer=True)
        load = plan.answer.load
        if replicas < 1 or load.rate * demand.growth / replicas >= load.service.capacity * FULL:
            continue
        tried += 1
        less = _at(plan.answer, replicas)
        less = replace(less, checked=check(less, demand.growth, demand.factor(less.scenario)))
        if less.checked is not None and less.checked.met and less.chips < best.chips:
            best, _ = _fewer(less, demand)
    return best


def _at(answer: Sized, replicas: int) -> Sized:
    """Return an answer with another number of replicas."""
    load = answer.load
    found = loaded(load.service, load.rate, load.arrival_scv, replicas, load.objectives)
    if math.isnan(found.headroom):
        # The simulation decides; the closed form, which is on the safe side here, has no more to give.
        found = replace(found, headroom=0.0)
    return priced(
        replace(answer.scenario, deployment=replace(answer.scenario.deployment, dp=1.0)), found, answer.token_budget
    )


def _fewer(answer: Sized, demand: _Demand) -> tuple[Sized, int]:
    """Return an answer with as few replicas as its simulation allows, where the closed form is on the safe side."""
    tried, load = 0, answer.load
    few = math.floor(load.rate * demand.growth / (load.service.capacity * FULL)) + 1
    while tried < _FEWER and answer.checked is not None and answer.checked.worst < _SAFE:
        middle = sold(answer.scenario, math.floor(math.sqrt(few * answer.load.replicas)))
        replicas = middle if middle < answer.load.replicas else sold(answer.scenario, answer.load.replicas, fewer=True)
        if replicas < few:
            break
        tried += 1
        less = _at(answer, replicas)
        less = replace(less, checked=check(less, demand.growth, demand.factor(less.scenario)))
        if less.checked is not None and less.checked.met:
            answer = less
        else:
            few = replicas + 1
    return answer, tried


def landscape(base: Scenario) -> dict[str, Any]:
    """Return every plan of a system on means, as columns: what charts of the front draw.

    Parameters
    ----------
    base : Scenario
        Its own layout does not count.
    """
    lengths = lengths_of(base.traffic)
    found = [means for scenario in plans_of(base) if isinstance(means := _means(scenario, lengths), _Means)]
    names = [plan_name(means.scenario) for means in found for _ in means.cap]
    rate, tpot, ttft = (np.concatenate([getattr(means, key) for means in found]) for key in ("rate", "tpot", "ttft"))
    cost = np.concatenate([np.full(len(means.cap), means.chips) for means in found]) / rate
    on_front = np.zeros(len(cost), dtype=bool)
    on_front[front(np.stack([cost, tpot], axis=1))] = True
    return {
        "system": [base.system.name] * len(names),
        "plan": names,
        "tpot_ms": tpot * 1e3,
        "ttft_s": ttft,
        "chips_per_rate": cost,
        "front": on_front,
    }


def _note(nearest: dict[tuple[str, str], tuple[float, str]], key: tuple[str, str], value: float, where: str) -> None:
    if value < nearest.get(key, (math.inf, ""))[0]:
        nearest[key] = value, where


def _floors(found: Sequence[_Means]) -> list[dict[str, float]]:
    """Return what no load can beat, by plan: one request alone on the machine."""
    return [{"tpot": float(means.tpot.min()), "ttft": 0.0} for means in found]


def _answer(
    scenario: Scenario,
    lengths: Lengths,
    caps: Any,
    budget: float,
    demand: _Demand,
    most_chips: float,
) -> tuple[Sized | None, dict[tuple[str, str], float]]:
    """Return the fewest replicas of a plan over the caps on the front, or what fails."""
    scv = float(scenario.traffic.arrival_scv)
    chips = float(scenario.deployment.tp) * float(scenario.deployment.pp) + float(speculation.extra_chips(scenario))
    factor = demand.factor(scenario)
    rate = demand.rate * demand.growth * factor
    best: Service | None = None
    count_best = 0
    failing: dict[tuple[str, str], float] = {}
    # The largest cap first; a smaller one holds TPOT where more load than that would break it.
    for cap in sorted({float(max(caps)), float(np.median(caps))}, reverse=True):
        service = service_of(scenario, lengths, cap, None if math.isnan(budget) else budget)
        most = int(most_chips // chips) if best is None else count_best
        count, failed = replicas_for(service, rate, scv, slower(demand.objectives, factor), most)
        if count == 0:
            alone = loaded(service, min(rate / most, service.capacity * 1e-3), 1.0, 1, Objectives()).queue
            for key in failed:
                failing[key] = min(failing.get(key, math.inf), statistic(alone, *key))
        elif best is None or count < count_best:
            best, count_best = service, count
    if best is None:
        return None, failing
    count = sold(scenario, count_best)
    return priced(scenario, loaded(best, demand.rate, scv, count, demand.objectives), budget), {}


def _loses(winner: Sized, other: Sized, goal: str) -> str:
    """Return in words why an answer is not the best one."""
    mine, best = other.goal(goal), winner.goal(goal)
    unit = {"cost": "USD an hour", "power": "W", "chips": "chips"}[goal]
    if math.isnan(mine) or math.isnan(best):
        return f"{other.chips:,.0f} chips against {winner.chips:,.0f}; {goal} is not published"
    if mine == best:
        return f"as many {unit}, less headroom: {other.load.headroom:.0%} against {winner.load.headroom:.0%}"
    return f"{mine:,.4g} {unit} against {best:,.4g}"


def _why_not(
    objectives: Objectives, nearest: dict[tuple[str, str], tuple[float, str]], rejected: Sequence[Rejected]
) -> str:
    """Return why nothing serves the traffic, and what would be needed."""
    missed = [
        f"{phrase(key)} of {limit * 1e3:.3g} ms (the nearest is {nearest[key][1]} with {nearest[key][0] * 1e3:.3g} ms)"
        for key, limit in objectives.limits.items()
        if key in nearest
    ]
    if missed:
        return f"no plan meets {', nor '.join(missed)}: a faster system, a smaller precision or a draft model is needed"
    if rejected:
        # A plan that would do with more chips came nearer than one that cannot hold the model.
        last = next((entry for entry in rejected if entry.reason.startswith("needs ")), rejected[0])
        return f"no plan serves it: {last.plan} on {last.system}: {last.reason}"
    return "no plan fits"

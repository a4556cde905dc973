"""How many systems, of which kind, in which plan, serve a traffic within objectives, at the least of something.

Every plan that fits is worked out on means, all batch caps and token budgets in one broadcast.  The Pareto front of
cost, speed and latency then meets the chain of continuous batching, cheapest first, until what is left cannot win.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from perfmodel.entered import idle, unmoved
from perfmodel.equations import queueing
from perfmodel.equations.serving import interference_per_token
from perfmodel.errors import UserError
from perfmodel.machines import speculation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.prediction import METRICS, evaluate, numbers, run
from perfmodel.question import Options, check_plan, resolve, split_changes, split_system
from perfmodel.serving.availability import Availability, with_failures
from perfmodel.serving.chain import FULL, Service, serve
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.disaggregation import Pools, pools
from perfmodel.serving.fit import fit, request_bytes
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import LIMITS, Loaded, Objectives, loaded, phrase, replicas_for, statistic, summary
from perfmodel.serving.steady import Steady, steady_state
from perfmodel.serving.step_times import sequence_limit, step_times
from perfmodel.serving.traffic import FIXED, LOGNORMAL, is_trace, lengths_of
from perfmodel.specs import catalog
from perfmodel.specs.paths import put, put_all
from perfmodel.specs.types import Model, Scenario, Traffic

#: What an answer can be chosen by.
GOALS = ("cost", "power", "chips")
#: Batch caps tried, as shares of what fits, and token budgets of a step tried where prefill alternates with decoding.
_CAPS = np.unique(np.round(np.geomspace(1.0, 4096.0, 160)))
_BUDGETS = np.round(512.0 * 2.0 ** np.arange(0, 5.5, 0.5))
#: Nodes that one replica of GPUs may span, and pipeline stages tried.
#: Plans of a system that meet the chain before the search gives up on finding a better one.
_CHAINS = 16
#: Chips beyond which a plan is no answer, unless told otherwise.
MOST_CHIPS = 100_000.0


@dataclass(frozen=True)
class Sized:
    """An answer: so many replicas of a plan of a system, under the traffic.

    Attributes
    ----------
    scenario : Scenario
        Its ``deployment.dp`` are the replicas.
    load : Loaded
        What they do under it: percentiles, goodput, headroom, and what breaks first.
    batch_cap, token_budget : float
        Requests that a replica runs at most, and tokens of a step at most.
    chips : float
        Of all replicas, spares and draft stages counted.
    usd_per_hour, power_w : float
        Of all chips, with their share of the nodes [USD], [W].
    usd_per_mtok : float
        Of input and output tokens together, at the rate for the share of the day that the economics name.
    availability : Availability or None
        Spares, where a share of working time was asked for.
    periods : tuple of (float, int)
        Shares of the rate by period, and the replicas that each needs.
    idle : tuple of str
        Changes of the question that moved nothing.
    """

    scenario: Scenario
    load: Loaded
    batch_cap: float
    token_budget: float
    chips: float
    usd_per_hour: float
    power_w: float
    usd_per_mtok: float
    availability: Availability | None = None
    periods: tuple[tuple[float, int], ...] = ()
    idle: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        plan, queue = self.scenario.deployment, self.load.queue
        return {
            "system": self.scenario.system.name,
            "plan": {
                "tp": float(plan.tp),
                "pp": float(plan.pp),
                "ep": float(plan.ep),
                "engine": plan.engine,
                "precision": plan.precision,
                "kv_precision": plan.kv_precision,
                "batch_cap": self.batch_cap,
                "token_budget": self.token_budget,
                "k": None if self.scenario.speculation is None else float(self.scenario.speculation.k),
            },
            "replicas": self.load.replicas,
            "chips": self.chips,
            "ttft_s": summary(queue, "ttft"),
            "tpot_s": summary(queue, "tpot"),
            "itl_s": summary(queue, "itl"),
            "request_latency_s": summary(queue, "latency"),
            "wait_s": summary(queue, "wait"),
            "goodput_per_s": self.load.goodput,
            "utilisation": _json(queue.utilisation),
            "headroom": _json(self.load.headroom),
            "first_limit": self.load.first_limit,
            "usd_per_hour": _json(self.usd_per_hour),
            "power_w": _json(self.power_w),
            "periods": [{"share": share, "replicas": count} for share, count in self.periods],
            "availability": None
            if self.availability is None
            else {
                key: value if isinstance(value, str) else _json(value)
                for key, value in asdict(self.availability).items()
            },
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        flat: dict[str, Any] = {}
        for key, value in self.to_dict().items():
            flat |= _spread(key, value)
        flat["assumed"] = "; ".join(assumptions(self.scenario))
        flat["warnings"] = "; ".join((*self.scenario.warnings, *cautions(self.scenario, self.load)))
        return flat

    @property
    def reason(self) -> str:
        """Why there are no times, else empty."""
        queue, service = self.load.queue, self.load.service
        if not queue.saturated:
            return ""
        most = service.capacity * self.load.replicas
        if not most > 0:
            return run(self.scenario).reason or "no request of this traffic fits a replica's cache"
        return (
            f"saturated: {self.load.rate:g} requests/s against at most {most:.3g} of {self.load.replicas} "
            f"replica{'s' if self.load.replicas > 1 else ''} ({LIMITS[service.binding]}); "
            f"{math.floor(self.load.rate / (service.capacity * FULL)) + 1} would keep up"
        )

    def goal(self, name: str) -> float:
        """Return what the search makes least.

        Parameters
        ----------
        name : str
            One of ``GOALS``.

        Returns
        -------
        float
            USD an hour, watts or chips.
        """
        return {"cost": self.usd_per_hour, "power": self.power_w, "chips": self.chips}[name]

    def to_frame(self) -> Any:
        """Return a one-row pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame([self.row()])

    def __repr__(self) -> str:
        from perfmodel.outputs.sizing import print_load
        from perfmodel.outputs.tables import plain

        return plain(lambda console: print_load([self], console))

    def _repr_html_(self) -> str:
        from perfmodel.outputs.sizing import load_html

        return load_html([self])


@dataclass(frozen=True)
class Rejected:
    """A plan that is no answer, and why."""

    system: str
    plan: str
    reason: str
    tried: int = 1


@dataclass(frozen=True)
class Sizing:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "rejected": [
                {"system": entry.system, "plan": entry.plan, "reason": entry.reason, "candidates": entry.tried}
                for entry in self.rejected
            ],
            "objectives": self.objectives.named(),
            "rate_per_s": self.rate,
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

    def __repr__(self) -> str:
        from perfmodel.outputs.sizing import print_sizing
        from perfmodel.outputs.tables import plain

        shown = plain(lambda console: print_sizing(self, console, False, "to_dict()"))
        return shown if self.answers else f"{textwrap.fill(self.reason, 100)}\n{shown}"

    def _repr_html_(self) -> str:
        from perfmodel.outputs.sizing import sizing_html

        return sizing_html(self)


def _json(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


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
    name, plan = scenario.system.name, plan_name(scenario)
    held = fit(scenario, longest)
    if not float(held.room) > 0:
        return Rejected(name, plan, "the weights do not fit")
    mean_bytes = float(request_bytes(scenario, lengths.mean(lengths.prompt + lengths.output)))
    room = float(held.room) / mean_bytes
    if not room >= 1:
        return Rejected(name, plan, "no request fits beside the weights")
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
    rate = queueing.saturated_rate(running=caps, output=output, step=step, occupancy=occupancy)[:, None]
    if not rides:
        rate = np.minimum(
            rate,
            queueing.prefill_rate(
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
        return Rejected(name, plan, run(scenario).reason)
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


def plan_name(scenario: Scenario) -> str:
    """Return a layout in a few words."""
    plan = scenario.deployment
    words = [f"TP{plan.tp:g}"]
    words += [f"PP{plan.pp:g}"] if float(plan.pp) > 1 else []
    words += [f"EP{plan.ep:g}"] if float(plan.ep) > 1 else []
    words += [f"k={scenario.speculation.k:g}"] if scenario.speculation is not None else []
    return " ".join([*words, plan.precision])


def pareto(columns: Sequence[Any]) -> Any:
    """Return which rows no other row equals or beats in every column, less being better.

    Parameters
    ----------
    columns : sequence of ndarray
    """
    points = np.stack([np.asarray(column, dtype=float) for column in columns], axis=1)
    kept = np.zeros(len(points), dtype=bool)
    left = np.flatnonzero(np.isfinite(points).all(axis=1))
    scale = np.log(np.maximum(points, 1e-300)).sum(axis=1)
    while len(left):
        # The least product is on the front; what it equals or beats is not.
        best = left[np.argmin(scale[left])]
        kept[best] = True
        left = left[np.any(points[left] < points[best], axis=1)]
    return kept


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
        best, refused, tried = _search(bases, _is_fixed(on, options), lengths, rate, objectives, most_chips, nearest)
        if available is not None:
            best = [_spared(answer, available, chip_mtbf, warnings) for answer in best]
        best = [replace(answer, periods=_periods(answer, profile, objectives)) for answer in best]
        if best:
            idle_here = _idle_of_search(bases, best[0], _is_fixed(on, options), rate, objectives, most_chips)
            warnings += [word for word in idle_here if word not in warnings]
        answers += best
        rejected += refused
        count += tried
    if goal != "chips" and any(math.isnan(answer.goal(goal)) for answer in answers):
        missing = [answer.scenario.system.name for answer in answers if math.isnan(answer.goal(goal))]
        warnings.append(f"{goal} of {', '.join(missing)} is not published: ranked last")
    answers.sort(key=lambda answer: (math.isnan(answer.goal(goal)), answer.goal(goal), answer.chips))
    for other in answers[1:]:
        rejected.insert(
            0, Rejected(other.scenario.system.name, plan_name(other.scenario), _loses(answers[0], other, goal))
        )
    reason = "" if answers else _why_not(objectives, nearest, rejected)
    return Sizing(
        tuple(answers),
        tuple(rejected),
        objectives,
        rate,
        goal,
        count,
        reason,
        (*assumed, *_about_load(bases[0]), *(catalog.in_place(catalog.load_reliability()) if available else ())),
        (*warnings, *_cautions(answers)),
    )


#: What stands for a closed loop only: a load has its own number of requests and its own bursts.
_CLOSED_LOOP = {"traffic.concurrency": 1.0, "traffic.rounds": 1e6, "traffic.length_jitter": 0.0}


def open_numbers(scenario: Scenario) -> tuple[Any, ...]:
    """Return the numbers of a closed loop that stand under a load too.

    Parameters
    ----------
    scenario : Scenario
    """
    return numbers(put_all(scenario, _CLOSED_LOOP))


def _content(answer: Sized) -> list[Any]:
    """Return all that an answer says beyond its question."""
    return [value for key, value in load_dict(answer).items() if key not in ("assumed", "traffic")]


def _idle_of_search(
    bases: Sequence[Scenario], best: Sized, fixed: bool, rate: float, objectives: Objectives, most_chips: float
) -> list[str]:
    """Return the changes that moved nothing of an answer: neither the plan that was found, nor which one is."""

    def kept(asked: Scenario) -> list[Any]:
        plan = best.scenario
        laid = replace(asked, deployment=plan.deployment, speculation=plan.speculation)
        budget = None if best.load.service.times.rides else best.token_budget
        service = _service(laid, lengths_of(asked.traffic), best.batch_cap, budget)
        scv, replicas = float(asked.traffic.arrival_scv), best.load.replicas
        return _content(_sized(laid, loaded(service, rate, scv, replicas, objectives), best.token_budget))

    def searched(asked: Scenario) -> list[Any]:
        tried = [replace(asked, deployment=base.deployment, speculation=base.speculation) for base in bases]
        found, _, _ = _search(tried, fixed, lengths_of(asked.traffic), rate, objectives, most_chips, {})
        return [_content(answer) for answer in found]

    base = bases[0]
    suspects = unmoved(base, kept)
    changed = tuple((path, before) for path, before in base.changed if path in suspects)
    return idle(base, unmoved(replace(base, changed=changed), searched), open_numbers)


def _periods(answer: Sized, profile: Sequence[float], objectives: Objectives) -> tuple[tuple[float, int], ...]:
    """Return the replicas that each period needs, one at least."""
    if not all(math.isfinite(share) and 0 <= share <= 1 for share in profile):
        raise UserError("--profile: give shares of the rate between 0 and 1, as 0.3,0.5,1")
    load = answer.load
    needed = {
        share: replicas_for(load.service, load.rate * share, load.arrival_scv, objectives, load.replicas)[0]
        for share in set(profile)
        if share > 0
    }
    return tuple((share, needed.get(share, 0) or 1) for share in profile)


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
    _refuse_replicas(mine)
    if (mine.attention_dp or 1) > 1:
        raise UserError("size lays out replicas that share nothing: leave --attention-dp out")
    return any(value is not None for value in (mine.plan, mine.tp, mine.pp, mine.ep))


def _refuse_replicas(options: Options) -> None:
    if options.dp is not None or options.concurrency is not None:
        raise UserError("size finds the replicas: leave --dp and --concurrency out")


def _asked(options: Options, precision: str | None, depth: float | None) -> Options:
    return replace(options, precision=precision, k=depth)


def _searched(word: str) -> bool:
    """Whether an assumption is about what the search varies."""
    return word.startswith(("plan ", "DP ", "PP ", "concurrency"))


def _about_load(scenario: Scenario) -> list[str]:
    """Return what is taken of arrivals and lengths."""
    scv = float(scenario.traffic.arrival_scv)
    arrivals = "Poisson arrivals" if scv == 1.0 else f"arrivals with a squared coefficient of variation of {scv:g}"
    dealt = f", dealt to replicas {scenario.deployment.routing}" if float(scenario.deployment.dp) > 1 else ""
    return [f"{arrivals}{dealt}", about_lengths(scenario.traffic)]


def about_lengths(traffic: Traffic) -> str:
    """Return what is taken of the lengths of requests."""
    if is_trace(traffic.lengths):
        return f"lengths of {traffic.lengths}, as they are"
    if traffic.lengths == FIXED:
        return "every request of the mean lengths"
    if traffic.lengths not in LOGNORMAL:
        return f"lengths spread as those of {traffic.lengths}, around the means; --lengths fixed for none"
    return f"lognormal lengths, SCV {float(traffic.prompt_scv):g} in and {float(traffic.output_scv):g} out"


def assumptions(scenario: Scenario) -> list[str]:
    """Return what was assumed of a question about a load."""
    return [*without_traffic(scenario, is_trace(scenario.traffic.lengths)), *_about_load(scenario)]


def without_traffic(scenario: Scenario, lengths: bool) -> list[str]:
    """Return what was assumed but for the number of requests at once, and for their lengths where those are others.

    Parameters
    ----------
    scenario : Scenario
    lengths : bool
        Whether the lengths are not those of the traffic.
    """
    gone = ("concurrency", "traffic ") if lengths else ("concurrency",)
    return [word for word in scenario.assumed if not word.startswith(gone)]


#: What a prediction says of itself already.
_ONCE = ("system", "plan", "chips", "usd_per_hour", "power_w")


def load_dict(answer: Sized) -> dict[str, Any]:
    """Return the JSON object of a prediction under a load: the keys of a prediction, times under the load, and more."""
    traffic = answer.scenario.traffic
    data = run(replace(answer.scenario, changed=())).to_dict()
    mine = answer.to_dict()
    if not answer.reason:
        # Rates, utilisations, power and cost are those of the arrivals, not of a closed loop at the mean number.
        steady = _steady(answer.scenario, answer.load)
        found = evaluate(answer.scenario, (*METRICS, "breakdown"), steady)
        under = found.metrics
        if is_trace(traffic.lengths):
            data["traffic"] |= {"prompt": float(steady.prompt), "output": float(steady.output)}
        data.update({key: _json(under[key]) for key in data if key in under})
        data["usd_per_mtok"] = {of: _json(under[f"usd_per_mtok_{of}"]) for of in data["usd_per_mtok"]}
        data["output_tokens_per_s_per_user"] = _json(1 / statistic(answer.load.queue, "tpot", "mean"))
        data["input_tokens_per_s_per_user"] = _json(steady.prompt / statistic(answer.load.queue, "ttft", "mean"))
    for key in ("ttft_s", "tpot_s", "request_latency_s"):
        data[key] = mine[key]["mean"]
    for phase, key in (("prefill", "ttft_s"), ("decode", "tpot_s")):
        parts = data["breakdown"][phase]
        if answer.reason:
            parts.update(dict.fromkeys(parts))
            continue
        parts.update({cause: float(value) for cause, value in found.breakdown[phase].items()})
        # What a request does not spend in its own steps it waits; where the mean over batches is below the step of the
        # mean batch, all parts give way alike.
        whole = sum(parts.values())
        parts["wait"] += max(0.0, data[key] - whole)
        parts.update({cause: value * min(1.0, data[key] / whole) for cause, value in parts.items()})
        # A closed loop of mean requests has no limits to tell where those do not fit and shorter ones do.
        data["limited_by"] = {**(data["limited_by"] or {}), phase: max(parts, key=parts.__getitem__)}
    if answer.reason:
        data.update({key: None for key in METRICS if key in data})
        data["usd_per_mtok"] = dict.fromkeys(data["usd_per_mtok"])
        data["limited_by"], data["reason"] = None, answer.reason
    # The bands are those of a closed loop, and so is a median.
    data["band"], data["ttft_median_s"] = None, mine["ttft_s"]["p50"]
    data["load"] = {
        "rate_per_s": answer.load.rate,
        "objectives": answer.load.objectives.named(),
        "saturated": answer.load.queue.saturated,
        **{
            key: value
            for key, value in mine.items()
            if key not in ("system", "plan", "chips", "usd_per_hour", "power_w")
        },
    }
    data["assumed"] = assumptions(answer.scenario)
    data["warnings"] = [*data["warnings"], *cautions(answer.scenario, answer.load), *answer.idle]
    return data


def _cautions(answers: Sequence[Sized]) -> list[str]:
    """Return where the closed form is known to be far from the simulation."""
    return list(dict.fromkeys(word for answer in answers for word in cautions(answer.scenario, answer.load)))


def cautions(scenario: Scenario, load: Loaded) -> list[str]:
    """Return where the closed form was seen to be far from the simulation.

    Parameters
    ----------
    scenario : Scenario
    load : Loaded
    """
    found = []
    queue, scv = load.queue, float(scenario.traffic.arrival_scv)
    if not queue.saturated and queue.prefilling > 0.6:
        found.append(
            f"prefill takes {queue.prefilling:.0%} of a replica's time: TPOT and P99 of the closed form are up to a "
            "factor of 2 off there; perfmodel simulate shows the spread"
        )
    if not 0.25 <= scv <= 4:
        found.append(f"arrivals with an SCV of {scv:g}: the closed form was compared with simulation from 0.25 to 4")
    if not queue.saturated and queue.utilisation > 0.9:
        found.append(f"at {queue.utilisation:.0%} of what the replicas can do waits hang on a few percent of the speed")
    if load.service.refused > 1e-6:
        found.append(f"{load.service.refused:.2%} of the requests are longer than a replica's cache and are refused")
    return found


@dataclass(frozen=True)
class Disaggregated:
    """Pools for prefill and decode, or why there are none.

    Attributes
    ----------
    prefill, decode : Scenario
        The plan of a replica of either pool.
    pools : Pools or None
    rate : float
        Requests [1/s].
    objectives : Objectives
    reason : str
        Why there are no pools, else empty.
    assumed, warnings : tuple of str
    """

    prefill: Scenario
    decode: Scenario
    pools: Pools | None
    rate: float
    objectives: Objectives
    reason: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        found = self.pools
        sides = {}
        for name, scenario, time in (("prefill", self.prefill, "ttft"), ("decode", self.decode, "tpot")):
            load = getattr(found, name) if found is not None else None
            sides[name] = {
                "system": scenario.system.name,
                "plan": plan_name(scenario),
                "replicas": None if load is None else load.replicas,
                f"{time}_s": None if load is None else summary(load.queue, time),
                "utilisation": None if load is None else load.queue.utilisation,
                "headroom": None if load is None else _json(load.headroom),
                "first_limit": None if load is None else load.first_limit,
            }
        return {
            "rate_per_s": self.rate,
            "objectives": self.objectives.named(),
            **sides,
            "chips": None if found is None else found.chips,
            "prefill_replicas_per_decode_replica": None if found is None else _json(found.ratio),
            "kv_transfer_s": None if found is None else _json(found.transfer),
            "tpot_with_transfer_s": None if found is None else _json(found.tpot_mean),
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        flat: dict[str, Any] = {}
        for key, value in self.to_dict().items():
            if key in ("prefill", "decode"):
                for part, item in value.items():
                    flat |= _spread(f"{key}_{part}", item)
            elif isinstance(value, dict):
                flat |= {f"objective_{name}": limit for name, limit in value.items()}
            else:
                flat[key] = "; ".join(value) if isinstance(value, list) else value
        return flat

    def to_frame(self) -> Any:
        """Return a one-row pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame([self.row()])

    def __repr__(self) -> str:
        from perfmodel.outputs.sizing import print_pools
        from perfmodel.outputs.tables import plain

        return plain(lambda console: print_pools(self, console))


def _spread(name: str, value: Any) -> dict[str, Any]:
    """Return a value as columns: one a part where it has parts, each with the unit of the name."""
    if not isinstance(value, dict):
        return {name: value}
    stem, unit = (name[:-2], "_s") if name.endswith("_s") else (name, "")
    return {f"{stem}_{part}{unit}": item for part, item in value.items()}


def disaggregated(
    model: str | Model,
    prefill_on: str,
    decode_on: str,
    rate: float,
    objectives: Objectives,
    options: Options,
    changes: Sequence[str] = (),
    *,
    most_chips: float = MOST_CHIPS,
) -> Disaggregated:
    """Size a pool that prefills and one that decodes, each on a plan of its own.

    Parameters
    ----------
    model, options, changes
        The question, the same for both pools.
    prefill_on, decode_on : str
        System and plan of a replica of either pool.
    rate : float
        Requests [1/s].
    objectives : Objectives
    most_chips : float
        Chips beyond which there is no answer.
    """
    for on in (prefill_on, decode_on):
        _refuse_replicas(split_system(on, options)[1])
    each = split_changes([prefill_on, decode_on], changes)
    first, second = (resolve(model, on, options, mine) for on, mine in zip((prefill_on, decode_on), each, strict=True))
    scv = float(first.traffic.arrival_scv)
    found = pools(first, second, lengths_of(first.traffic), rate, scv, objectives)
    said = [
        tuple(dict.fromkeys([*one, *two]))
        for one, two in ((assumptions(first), assumptions(second)), (first.warnings, second.warnings))
    ]
    reason = ""
    if not isinstance(found, Pools):
        words = ", ".join(phrase(key) for key in found) or "the rate"
        reason = f"{words} cannot be met with these plans, however many replicas: one request alone takes longer"
    elif found.chips > most_chips:
        reason = f"the pools need {found.chips:,.0f} chips, more than {most_chips:,.0f}"
    return Disaggregated(
        first, second, found if isinstance(found, Pools) and not reason else None, rate, objectives, reason, *said
    )


def _search(
    bases: Sequence[Scenario],
    fixed: bool,
    lengths: Lengths,
    rate: float,
    objectives: Objectives,
    most_chips: float,
    nearest: dict[tuple[str, str], tuple[float, str]],
) -> tuple[list[Sized], list[Rejected], int]:
    """Return the best plan of a system, what was rejected, and how many candidates there were.

    Cost and power of one system go with its chips, so within it the fewest chips win, then the most headroom.
    """
    rejected: list[Rejected] = []
    found: list[_Means] = []
    for base in bases:
        for scenario in [base] if fixed else plans_of(base):
            means = _means(scenario, lengths)
            if isinstance(means, Rejected):
                rejected.append(means)
            else:
                found.append(means)
    if not found:
        return [], rejected, 0
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
            rejected.append(Rejected(means.scenario.system.name, plan_name(means.scenario), reasons[0], len(means.cap)))
    least = np.ceil(rate / rates) * chips
    too_many = possible & (least > most_chips)
    possible &= ~too_many
    for at in np.unique(owner[too_many]):
        if not possible[owner == at].any():
            means = found[at]
            reason = f"needs more than {most_chips:,.0f} chips"
            rejected.append(Rejected(means.scenario.system.name, plan_name(means.scenario), reason, len(means.cap)))
    index = np.flatnonzero(possible)
    if not len(index):
        return [], rejected, count
    # Whole replicas decide at low rates; at high ones, where they make near ties, the chips a request takes do.
    keep = pareto([least[index], chips[index] / rates[index], tpots[index], ttfts[index]])
    front = index[keep]
    for at in np.unique(owner[index]):
        if not np.any(owner[front] == at):
            means = found[at]
            reason = "another plan is as fast, as early and cheaper a request on means"
            rejected.append(Rejected(means.scenario.system.name, plan_name(means.scenario), reason, len(means.cap)))
    # The chain meets each plan once, cheapest first, at the token budget that is cheapest on means, with the caps on
    # the own front of the plan: what it can do does not hang on the plans beside it.
    order = front[np.lexsort((chips[front] / rates[front], least[front]))]
    best: Sized | None = None
    for tried, at in enumerate(dict.fromkeys(owner[order].tolist())):
        mine = index[owner[index] == at]
        mine = mine[pareto([least[mine], chips[mine] / rates[mine], tpots[mine], ttfts[mine]])]
        group = mine[np.lexsort((chips[mine] / rates[mine], least[mine]))]
        budget = float(budgets[group[0]])
        means = found[at]
        name, plan = means.scenario.system.name, plan_name(means.scenario)
        bound = float(np.min(np.ceil(rate / rates[group]))) * means.chips
        if tried >= _CHAINS or (best is not None and bound > best.chips):
            rejected.append(Rejected(name, plan, f"needs at least {bound:,.0f} chips on means", len(group)))
            continue
        answer, failing = _answer(means.scenario, lengths, caps[group], budget, rate, objectives, most_chips)
        if answer is None:
            for failed, value in failing.items():
                _note(nearest, failed, value, f"{name} {plan}")
            words = ", ".join(
                f"{phrase(failed)} stays at {value * 1e3:.3g} ms or more" for failed, value in failing.items()
            )
            rejected.append(Rejected(name, plan, words or f"needs more than {most_chips:,.0f} chips", len(group)))
        elif best is None or (answer.chips, -answer.load.headroom) < (best.chips, -best.load.headroom):
            if best is not None:
                rejected.append(Rejected(name, plan_name(best.scenario), _loses(answer, best, "chips"), 1))
            best = answer
        else:
            rejected.append(Rejected(name, plan, _loses(best, answer, "chips"), len(group)))
    return ([best] if best is not None else []), rejected, count


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
    return {
        "system": [base.system.name] * len(names),
        "plan": names,
        "tpot_ms": tpot * 1e3,
        "ttft_s": ttft,
        "chips_per_rate": cost,
        "front": pareto([cost, tpot]),
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
    rate: float,
    objectives: Objectives,
    most_chips: float,
) -> tuple[Sized | None, dict[tuple[str, str], float]]:
    """Return the fewest replicas of a plan over the caps on the front, or what fails."""
    scv = float(scenario.traffic.arrival_scv)
    chips = float(scenario.deployment.tp) * float(scenario.deployment.pp) + float(speculation.extra_chips(scenario))
    best: Service | None = None
    count_best = 0
    failing: dict[tuple[str, str], float] = {}
    # The largest cap first; a smaller one holds TPOT where more load than that would break it.
    for cap in sorted({float(max(caps)), float(np.median(caps))}, reverse=True):
        service = _service(scenario, lengths, cap, None if math.isnan(budget) else budget)
        most = int(most_chips // chips) if best is None else count_best
        count, failed = replicas_for(service, rate, scv, objectives, most)
        if count == 0:
            alone = loaded(service, min(rate / most, service.capacity * 1e-3), 1.0, 1, Objectives()).queue
            for key in failed:
                failing[key] = min(failing.get(key, math.inf), statistic(alone, *key))
        elif best is None or count < count_best:
            best, count_best = service, count
    if best is None:
        return None, failing
    return _sized(scenario, loaded(best, rate, scv, count_best, objectives), budget), {}


def _service(scenario: Scenario, lengths: Lengths, cap: float | None, budget: float | None) -> Service:
    if budget is not None and scenario.system.engine is not None:
        # An engine sizes its activations, and so its cache, by the tokens of a step.
        scenario = put(scenario, "system.engine.batched_tokens", budget)
    times = step_times(
        scenario,
        longest_prompt=float(lengths.prompt.max()),
        longest=float((lengths.prompt + lengths.output).max()),
        cap=cap,
        budget=budget,
    )
    return serve(times, lengths, float(scenario.traffic.prefix_hits), scenario.deployment.routing)


def _steady(scenario: Scenario, load: Loaded) -> Steady:
    """Return what a deployment does under a load; that of a closed loop where the load is not served."""
    if load.queue.saturated:
        return steady_state(scenario)
    service = load.service
    # A trace has means of its own.
    prompt, output = (service.lengths.mean(part) for part in (service.lengths.prompt, service.lengths.output))
    traffic = replace(scenario.traffic, prompt=prompt, output=output, length_jitter=0.0, prefix_hits=0.0)
    steady = steady_state(replace(scenario, traffic=traffic))
    computed = service.occupancy(1.0) / replace(service, cached=0.0).occupancy(1.0)
    # Where fewer than one request runs, the replica idles in between: a closed loop never does.
    return replace(
        steady,
        rate=load.finished,
        prefill=steady.prefill.times(computed),
        occupancy=steady.occupancy * computed,
    )


def _sized(scenario: Scenario, load: Loaded, budget: float) -> Sized:
    laid = replace(scenario.deployment, dp=float(load.replicas))
    running = float(load.service.cap) if load.queue.saturated else load.queue.running
    traffic = replace(scenario.traffic, concurrency=max(1.0, running) * load.replicas)
    whole = replace(scenario, deployment=laid, traffic=traffic)
    steady = _steady(whole, load)
    money = cost(whole, steady, draw(whole, steady))
    fixed = machine_of(scenario.system).token_budget(scenario.system)
    return Sized(
        whole,
        load,
        float(load.service.cap),
        budget if fixed is None else float(fixed),
        float(evaluate(whole, ()).chips),
        float(money.per_hour),
        float(money.draw.mean.watts),
        math.nan if load.queue.saturated else float(money.blended),
    )


def at_rate(scenario: Scenario, rate: float, objectives: Objectives | None = None) -> Sized:
    """Put a rate on a deployment as it is laid out.

    Parameters
    ----------
    scenario : Scenario
        Its ``deployment.dp`` are the replicas.
    rate : float
        Requests, all replicas together [1/s].
    objectives : Objectives, optional

    Returns
    -------
    Sized
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(f"--rate {rate:g}: must be more than 0 requests a second")

    def answered(asked: Scenario) -> Sized:
        service = _service(asked, lengths_of(asked.traffic), None, None)
        replicas = int(float(asked.deployment.dp))
        load = loaded(service, rate, float(asked.traffic.arrival_scv), replicas, objectives or Objectives())
        return _sized(asked, load, service.times.budget)

    answer = answered(scenario)
    paths = [] if answer.reason else unmoved(scenario, lambda asked: _content(answered(asked)))
    return replace(answer, idle=tuple(idle(scenario, paths, open_numbers)))


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

"""A deployment under a load: its times, what it costs, and what was assumed of arrivals and lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.planning.checked import Checked, Key, Price, Sure
from perfmodel.prediction import METRICS, drafted, evaluate, numbers, per_mtok, question_of, run
from perfmodel.serving.availability import Availability
from perfmodel.serving.chain import FULL
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.objectives import LIMITS, QUEUE_TIMES, Loaded, Objectives, loaded, phrase, statistic, summary
from perfmodel.serving.service import Service, serve
from perfmodel.serving.steady import Steady, steady_state
from perfmodel.serving.step_times import step_times
from perfmodel.serving.traffic import FIXED, LOGNORMAL, is_trace, lengths_of
from perfmodel.shown import Shown
from perfmodel.specs.paths import put, put_all
from perfmodel.specs.types import Scenario, Traffic
from perfmodel.specs.units import show as written


@dataclass(frozen=True, repr=False)
class Sized(Shown):
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
    checked : Checked or None
        What a simulation makes of the objectives, where a search picked the answer.
    sure : Sure or None
        How many chips the spread of the prediction takes, and how likely the answer meets its objectives.
    floors : dict
        By objective: what it comes to on a machine with nothing else to do [s].
    prices : tuple of Price
        What other limits of each objective cost.
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
    checked: Checked | None = None
    sure: Sure | None = None
    floors: Mapping[Key, float] = field(default_factory=dict)
    prices: tuple[Price, ...] = ()

    def under_load(self) -> shapes.Load:
        """Return the part of the JSON object that is about the load."""
        queue, spared = self.load.queue, self.availability
        return {
            "replicas": self.load.replicas,
            "times": shapes.times({key: summary(queue, name) for key, name in QUEUE_TIMES.items()}),
            "goodput_per_s": shapes.number(self.load.goodput),
            "running": shapes.number(queue.running),
            "utilisation": shapes.number(queue.utilisation),
            "headroom": shapes.number(self.load.headroom),
            "first_limit": self.load.first_limit,
            "batch_cap": shapes.number(self.batch_cap),
            "token_budget": shapes.number(self.token_budget),
            "periods": [{"share": share, "replicas": count} for share, count in self.periods],
            "availability": None if spared is None else _spares(spared),
        }

    def to_dict(self) -> shapes.Sized:
        """Return the documented JSON object."""
        return self.plan_dict()

    def plan_dict(self) -> shapes.Sized:
        """Return what a search says of a plan."""
        return {
            **_under_rate(self.scenario),
            **self.under_load(),
            "chips": shapes.number(self.chips),
            "usd_per_hour": shapes.number(self.usd_per_hour),
            "usd_per_mtok": per_mtok({"usd_per_mtok_blended": self.usd_per_mtok}, {}),
            "power_w": shapes.number(self.power_w),
            "speculation": drafted(self.scenario, {}),
            "checked": None if self.checked is None else self.checked.to_dict(),
            "chips_band": None
            if self.sure is None
            else {"low": shapes.number(self.sure.least), "high": shapes.number(self.sure.most)},
            "probability": None if self.sure is None else shapes.number(self.sure.probability),
            "floors": {f"{time}_{what}_s": shapes.number(value) for (time, what), value in self.floors.items()},
            "prices": [price.to_dict() for price in self.prices],
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        data: dict[str, Any] = {**self.plan_dict()}
        money, draft, times, checked = (data.pop(key) for key in ("usd_per_mtok", "speculation", "times", "checked"))
        flat: dict[str, Any] = {f"floor_{key}": value for key, value in data.pop("floors").items()}
        del data["prices"]
        for key, value in (data | times).items():
            flat |= spread(key, value)
        for objective, found in (checked or {}).items():
            parts = {"value": found["value"], "standard_error": found["standard_error_s"]}
            flat |= spread(f"checked_{objective}", parts)
        flat["usd_per_mtok_blended"] = money["blended"] and money["blended"]["p50"]
        flat |= {f"speculation_{key}": draft and draft[key] for key in ("draft", "k")}
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

    @property
    def missed(self) -> str:
        """Which objectives the load misses, and by how much, else empty."""
        limits, queue = self.load.objectives.limits, self.load.queue
        failed = [] if queue.saturated else self.load.objectives.failed(queue)
        both = [(phrase(key), statistic(queue, *key), limits[key]) for key in failed]
        return ", ".join(
            f"{name} of {written(now, 's', 3)} misses {written(limit, 's', 3)}" for name, now, limit in both
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


class Rated(Sized):
    """A plan as it is laid out, under a rate: what ``predict`` answers."""

    def to_dict(self) -> shapes.Prediction:  # type: ignore[override]
        """Return the documented JSON object: that of a prediction, with the load."""
        return load_dict(self)


def _under_rate(scenario: Scenario) -> shapes.Asked:
    """Return what was asked, without the clients of a closed loop, which a rate has not."""
    question = question_of(scenario)
    question["traffic"]["concurrency"] = None
    if is_trace(scenario.traffic.lengths):
        lengths = lengths_of(scenario.traffic)
        question["traffic"] |= {
            "prompt": shapes.number(lengths.mean(lengths.prompt)),
            "output": shapes.number(lengths.mean(lengths.output)),
        }
    return question


def _spares(availability: Availability) -> shapes.Spares:
    return {
        "target": availability.target,
        "unit": availability.unit,
        "working": shapes.number(availability.working),
        "spares": availability.spares if availability.spares >= 0 else None,
        "extra": shapes.number(availability.extra),
        "reached": shapes.number(availability.reached),
        "recovery_s": shapes.number(availability.recovery_s),
        "mtbf_s": shapes.number(availability.mtbf_s),
        "hit": shapes.number(availability.hit),
        "latency_p99_s": shapes.number(availability.latency_p99_s),
    }


def plan_name(scenario: Scenario) -> str:
    """Return a layout in a few words."""
    plan = scenario.deployment
    words = [f"TP{plan.tp:g}"]
    words += [f"PP{plan.pp:g}"] if float(plan.pp) > 1 else []
    words += [f"EP{plan.ep:g}"] if float(plan.ep) > 1 else []
    words += [f"k={scenario.speculation.k:g}"] if scenario.speculation is not None else []
    return " ".join([*words, plan.precision])


#: What stands for a closed loop only: a load has its own number of requests and its own bursts.
_CLOSED_LOOP = {"traffic.concurrency": 1.0, "traffic.rounds": 1e6, "traffic.length_jitter": 0.0}


def open_numbers(scenario: Scenario) -> tuple[Any, ...]:
    """Return the numbers of a closed loop that stand under a load too.

    Parameters
    ----------
    scenario : Scenario
    """
    return numbers(put_all(scenario, _CLOSED_LOOP))


def content(answer: Sized) -> list[Any]:
    """Return all that an answer says beyond its question."""
    return [value for key, value in load_dict(answer).items() if key not in ("assumed", "traffic")]


def about_load(scenario: Scenario) -> list[str]:
    """Return what is taken of arrivals and lengths."""
    scv = float(scenario.traffic.arrival_scv)
    arrivals = "Poisson arrivals" if scv == 1.0 else f"arrivals with a squared coefficient of variation of {scv:g}"
    dealt = f", dealt to replicas {scenario.deployment.routing}" if float(scenario.deployment.dp) > 1 else ""
    return [f"{arrivals}{dealt}", about_lengths(scenario.traffic)]


def about_lengths(traffic: Traffic) -> str:
    """Return what is taken of the lengths of requests."""
    if is_trace(traffic.lengths):
        return f"lengths of {traffic.lengths}, as they are"
    if "@" in traffic.lengths:
        return f"a mix of {traffic.lengths}, each with lengths of its own; what is not simulated is of all together"
    if traffic.lengths == FIXED:
        return "every request of the mean lengths"
    if traffic.lengths not in LOGNORMAL:
        return f"lengths spread as those of {traffic.lengths}, around the means; --lengths fixed for none"
    return f"lognormal lengths, SCV {float(traffic.prompt_scv):g} in and {float(traffic.output_scv):g} out"


def assumptions(scenario: Scenario) -> list[str]:
    """Return what was assumed of a question about a load."""
    return [*without_traffic(scenario, is_trace(scenario.traffic.lengths)), *about_load(scenario)]


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


def load_dict(answer: Sized) -> shapes.Prediction:
    """Return the JSON object of a prediction under a load: the keys of a prediction, times under the load, and more."""
    data: Any = run(replace(answer.scenario, changed=())).to_dict()
    data |= _under_rate(answer.scenario)
    under_load = answer.under_load()
    times: Any = under_load["times"]
    if not answer.reason:
        # Rates, utilisations, power and cost are those of the arrivals, not of a closed loop at the mean number.
        steady = _steady(answer.scenario, answer.load)
        answered = evaluate(answer.scenario, (*METRICS, "breakdown"), steady)
        under = answered.metrics
        data.update({key: shapes.number(under[key]) for key in data if key in under})
        data["usd_per_mtok"] = per_mtok(under, {})
        data["output_tokens_per_s_per_user"] = shapes.number(1 / statistic(answer.load.queue, "tpot", "mean"))
        data["input_tokens_per_s_per_user"] = shapes.number(
            steady.prompt / statistic(answer.load.queue, "ttft", "mean")
        )
    for key in ("ttft_s", "tpot_s", "request_latency_s"):
        data[key] = times[key]["mean"]
    for phase, key in (("prefill", "ttft_s"), ("decode", "tpot_s")):
        parts = data["breakdown"][phase]
        if answer.reason:
            parts.update(dict.fromkeys(parts))
            continue
        parts.update({cause: float(value) for cause, value in answered.breakdown[phase].items()})
        # What a request does not spend in its own steps it waits; where the mean over batches is below the step of the
        # mean batch, all parts give way alike.
        whole = sum(parts.values())
        parts["wait"] += max(0.0, data[key] - whole)
        parts.update({cause: shapes.number(value * min(1.0, data[key] / whole)) for cause, value in parts.items()})
        # A closed loop of mean requests has no limits to tell where those do not fit and shorter ones do.
        unknown = dict.fromkeys(("prefill", "decode", "concurrency"))
        data["limited_by"] = {**(data["limited_by"] or unknown), phase: max(parts, key=parts.__getitem__)}
    if answer.reason:
        data.update({key: None for key in METRICS if key in data})
        data["usd_per_mtok"] = per_mtok({}, {})
        data["limited_by"], data["reason"] = None, answer.reason
    # The bands are those of a closed loop, and so is a median.
    data["band"], data["ttft_median_s"] = None, times["ttft_s"]["p50"]
    data["load"] = {
        "rate_per_s": shapes.number(answer.load.rate),
        "objectives": shapes.numbers(answer.load.objectives.named()),
        "saturated": answer.load.queue.saturated,
        **under_load,
    }
    data["assumed"] = assumptions(answer.scenario)
    data["warnings"] = [*data["warnings"], *cautions(answer.scenario, answer.load), *answer.idle]
    loaded_answer: shapes.Prediction = data
    return loaded_answer


#: Requests that a cache holds below which the laws were seen to be far off: docs/limits.md, SRAM pipelines.
FEW = 5


def cautions(scenario: Scenario, load: Loaded) -> list[str]:
    """Return where the closed form was seen to be far from the simulation.

    Parameters
    ----------
    scenario : Scenario
    load : Loaded
    """
    mind = []
    queue, scv = load.queue, float(scenario.traffic.arrival_scv)
    if not queue.saturated and queue.prefilling > 0.6:
        mind.append(
            f"prefill takes {queue.prefilling:.0%} of a replica's time: TPOT and P99 of the closed form are up to a "
            "factor of 2 off there; perfmodel simulate shows the spread"
        )
    if not 0.25 <= scv <= 4:
        mind.append(f"arrivals with an SCV of {scv:g}: the closed form was compared with simulation from 0.25 to 4")
    if not queue.saturated and queue.utilisation > 0.9:
        mind.append(f"at {queue.utilisation:.0%} of what the replicas can do waits hang on a few percent of the speed")
    if load.service.limit == "memory" and load.service.cap < FEW:
        mind.append(
            f"a replica's cache holds {load.service.cap:g} such requests: who fits beside whom decides, P99 TTFT of "
            "the closed form is up to five times off there; perfmodel simulate shows it"
        )
    if load.service.refused > 1e-6:
        mind.append(f"{load.service.refused:.2%} of the requests are longer than a replica's cache and are refused")
    return mind


def spread(name: str, value: Any) -> dict[str, Any]:
    """Return a value as columns: one a part where it has parts, each with the unit of the name."""
    if not isinstance(value, dict):
        return {name: value}
    stem, unit = (name[:-2], "_s") if name.endswith("_s") else (name, "")
    return {f"{stem}_{part}{unit}": item for part, item in value.items()}


def service_of(scenario: Scenario, lengths: Lengths, cap: float | None, budget: float | None) -> Service:
    """Return a replica of a deployment at a batch cap and a token budget, those of the engine where None."""
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


def priced(scenario: Scenario, load: Loaded, budget: float) -> Sized:
    """Return an answer: the replicas of a load with what they cost and draw."""
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


def at_rate(scenario: Scenario, rate: float, objectives: Objectives | None = None) -> Rated:
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
    Rated
    """
    if not (rate > 0 and math.isfinite(rate)):
        raise UserError(f"--rate {rate:g}: must be more than 0 requests a second")

    def answered(asked: Scenario) -> Sized:
        service = service_of(asked, lengths_of(asked.traffic), None, None)
        replicas = int(float(asked.deployment.dp))
        load = loaded(service, rate, float(asked.traffic.arrival_scv), replicas, objectives or Objectives())
        return priced(asked, load, service.times.budget)

    answer = answered(scenario)
    paths = [] if answer.reason else unmoved(scenario, lambda asked: content(answered(asked)))
    return Rated(**(vars(answer) | {"idle": tuple(idle(scenario, paths, open_numbers))}))

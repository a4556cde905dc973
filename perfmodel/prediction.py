"""The one entry: :func:`run` turns a scenario into a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import as_nodes, idle, unmoved
from perfmodel.equations import memory, power, serving
from perfmodel.machines.base import machine_of
from perfmodel.machines.power import shape_of
from perfmodel.machines.step import CAUSES
from perfmodel.numerics import NAN
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.fit import fit
from perfmodel.serving.steady import Steady, bandwidth_utilisation, breakdown, flops_utilisation, steady_state
from perfmodel.specs.paths import get, provenance_of, put, quantities
from perfmodel.specs.types import Model, Provenance, Scenario
from perfmodel.specs.units import show
from perfmodel.trace import Ledger, scope

METRICS = (
    "ttft_s",
    "ttft_median_s",
    "tpot_s",
    "request_latency_s",
    "output_tokens_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s_per_user",
    "tokens_per_s_per_chip",
    "mfu",
    "mbu",
    "power_w",
    "joules_per_output_token",
    "usd_per_mtok_input",
    "usd_per_mtok_output",
    "usd_per_mtok_blended",
)
#: Those that power and money decide, and that no time depends on.
MONEY = METRICS[-5:]
_USD = {"input": "usd_per_mtok_input", "output": "usd_per_mtok_output", "blended": "usd_per_mtok_blended"}

#: Those that a model without decoding does not have.
_OF_DECODING = (
    "tpot_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_user",
    "joules_per_output_token",
    "usd_per_mtok_output",
)
#: What :func:`evaluate` works out unless told otherwise.
ALL = (*METRICS, "breakdown")


@dataclass(frozen=True)
class Prediction:
    """The answer to a scenario; every number may be a float or an array.

    Attributes
    ----------
    scenario : Scenario
    metrics : dict
        The metrics of the JSON, by name, NaN where the model does not fit.
    breakdown : dict
        ``prefill`` and ``decode``: seconds by cause, adding up to TTFT and TPOT.
    memory : dict
        Bytes of one chip by use.
    max_concurrency : Any
        Requests that fit the deployment.
    fits : Any
    chips : Any
    limited_by : dict
        ``prefill``, ``decode`` and ``concurrency``; empty for arrays.
    band : dict
        Low and high of a metric that hold 80 % of measurements like those of the calibration.
    reason : str
        Why there is no answer, else empty.
    assumed, warnings : tuple of str
    speculation : dict
        Empty without a draft: ``tokens_per_step``, ``draft_s`` and ``verify_s`` (one step of the draft and the target's
        pass over k + 1 tokens), and ``speedup`` of TPOT over the same question without a draft.
    """

    scenario: Scenario
    metrics: Mapping[str, Any]
    breakdown: Mapping[str, Mapping[str, Any]]
    memory: Mapping[str, Any]
    max_concurrency: Any
    fits: Any
    chips: Any
    limited_by: Mapping[str, str] = field(default_factory=dict)
    band: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reason: str = ""
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    speculation: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name in METRICS:
            return self.metrics[name]
        raise AttributeError(name)

    def to_dict(self) -> shapes.Prediction:
        """Return the documented JSON object.

        Returns
        -------
        dict
            What does not exist is None.
        """
        known = {key: shapes.number(value) for key, value in self.metrics.items()}
        one_pass = self.one_pass
        phases: dict[str, Any] = {
            phase: {cause: shapes.number(value) if self.fits else None for cause, value in parts.items()}
            for phase, parts in self.breakdown.items()
        }
        limits = self.limited_by if self.fits and not self.reason else {}
        # Where the weights do not fit there is no room; the reason says how much is missing.
        held = {use: shapes.number(np.maximum(value, 0.0)) for use, value in self.memory.items()}
        return {
            **question_of(self.scenario),
            "ttft_s": known["ttft_s"],
            "ttft_median_s": known["ttft_median_s"],
            "tpot_s": known["tpot_s"],
            "request_latency_s": known["request_latency_s"],
            "output_tokens_per_s": known["output_tokens_per_s"],
            "input_tokens_per_s": known["input_tokens_per_s"],
            "output_tokens_per_s_per_user": known["output_tokens_per_s_per_user"],
            "input_tokens_per_s_per_user": known["input_tokens_per_s_per_user"],
            "tokens_per_s_per_chip": known["tokens_per_s_per_chip"],
            "requests_per_s": shapes.number(one_pass.get("requests_per_s")),
            "tokens_per_s": shapes.number(one_pass.get("tokens_per_s")),
            "mfu": known["mfu"],
            "mbu": known["mbu"],
            "power_w": known["power_w"],
            "joules_per_output_token": known["joules_per_output_token"],
            "usd_per_mtok": per_mtok(self.metrics, self.band),
            "fits": bool(self.fits),
            "max_concurrency": shapes.number(self.max_concurrency),
            "limited_by": {
                "prefill": limits["prefill"],
                "decode": limits.get("decode"),
                "concurrency": limits["concurrency"],
            }
            if limits
            else None,
            "breakdown": {"prefill": phases["prefill"], "decode": phases["decode"]},
            "memory": {
                "capacity": held["capacity"],
                "weights": held["weights"],
                "kv_cache": held["kv_cache"],
                "reserved": held["reserved"],
                "kv_room": held["kv_room"],
            },
            "band": {
                key: {"low": shapes.number(ends["low"]), "high": shapes.number(ends["high"])}
                for key, ends in self.band.items()
                if key not in _USD.values()
            }
            or None,
            "speculation": drafted(self.scenario, self.speculation),
            "chips": shapes.number(self.chips),
            "load": None,
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    @property
    def one_pass(self) -> dict[str, Any]:
        """Requests and tokens a second of a model that makes one pass over its input; empty for any other."""
        if self.scenario.model.task != "pool":
            return {}
        tokens = self.metrics["input_tokens_per_s"]
        return {"requests_per_s": tokens / self.scenario.traffic.prompt, "tokens_per_s": tokens}

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns.

        Returns
        -------
        dict
        """
        data: Any = self.to_dict()
        flat: dict[str, Any] = {"model": data["model"], "system": data["system"], "chips": data["chips"]}
        flat.update({f"plan_{key}": value for key, value in data["plan"].items()})
        flat.update({f"traffic_{key}": value for key, value in data["traffic"].items()})
        flat.update({key: shapes.number(self.metrics[key]) for key in METRICS})
        flat.update({key: data[key] for key in ("fits", "max_concurrency")})
        for phase in ("prefill", "decode"):
            flat[f"{phase}_limited_by"] = (data["limited_by"] or {}).get(phase)
            flat.update({f"{phase}_{cause}_s": value for cause, value in data["breakdown"][phase].items()})
        flat.update({f"memory_{use}_bytes": value for use, value in data["memory"].items()})
        said = data["speculation"] or {}
        flat.update({f"speculation_{key}": said.get(key) for key in ("draft", "k", "tokens_per_step", "speedup")})
        flat["reason"] = data["reason"]
        flat.update({said: "; ".join(data[said]) for said in ("assumed", "warnings")})
        return flat


def plan_of(scenario: Scenario) -> shapes.Plan:
    """Return a layout as answers name it.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    dict
    """
    plan = scenario.deployment
    return {
        "name": plan.plan,
        "tp": shapes.number(plan.tp),
        "pp": shapes.number(plan.pp),
        "ep": shapes.number(plan.ep),
        "dp": shapes.number(plan.dp),
        "attention_dp": shapes.number(plan.attention_dp),
        "engine": plan.engine,
        "precision": plan.precision,
        "kv_precision": plan.kv_precision,
    }


def question_of(scenario: Scenario) -> shapes.Asked:
    """Return model, system, plan and traffic of a question, as answers name them.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    dict
    """
    traffic = scenario.traffic
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "plan": plan_of(scenario),
        "traffic": {
            "name": traffic.name,
            "prompt": shapes.number(traffic.prompt),
            "output": shapes.number(traffic.output),
            "concurrency": shapes.number(traffic.concurrency),
        },
    }


def drafted(scenario: Scenario, found: Mapping[str, Any]) -> shapes.Speculation | None:
    """Return the draft of a question and what it brings; None without one.

    Parameters
    ----------
    scenario : Scenario
    found : mapping
        ``speculation`` of a prediction; what is not in it is None.

    Returns
    -------
    dict or None
    """
    asked = scenario.speculation
    if asked is None:
        return None
    return {
        "draft": asked.name,
        "k": shapes.number(asked.k),
        "alpha": shapes.number(asked.alpha),
        "ar": shapes.number(asked.ar),
        "accept": [shapes.number(chance) for chance in asked.accept.values()] or None,
        "host_time_s": shapes.number(asked.host_time),
        "tokens_per_step": shapes.number(found.get("tokens_per_step")),
        "draft_s": shapes.number(found.get("draft_s")),
        "verify_s": shapes.number(found.get("verify_s")),
        "speedup": shapes.number(found.get("speedup")),
    }


def per_mtok(metrics: Mapping[str, Any], band: Mapping[str, Mapping[str, float]]) -> shapes.PerMtok:
    """Return the cost of tokens with the ends of its band.

    Parameters
    ----------
    metrics, band : mapping
        Of a prediction; what they do not have is None.

    Returns
    -------
    dict
    """
    each = {
        of: shapes.spread(metrics.get(key), band.get(key, {}).get("low"), band.get(key, {}).get("high"))
        for of, key in _USD.items()
    }
    return {"input": each["input"], "output": each["output"], "blended": each["blended"]}


def _metrics(scenario: Scenario, steady: Steady, wanted: Collection[str]) -> dict[str, Any]:
    forms: dict[str, Callable[[], Any]] = {
        "ttft_s": lambda: steady.ttft,
        "ttft_median_s": lambda: steady.ttft_median,
        "tpot_s": lambda: serving.between_tokens(output=steady.output, time=steady.tpot),
        "request_latency_s": lambda: steady.latency,
        "output_tokens_per_s": lambda: steady.rate * steady.output,
        "input_tokens_per_s": lambda: steady.rate * steady.prompt,
        "output_tokens_per_s_per_user": lambda: 1 / serving.between_tokens(output=steady.output, time=steady.tpot),
        "input_tokens_per_s_per_user": lambda: steady.prompt / steady.ttft,
        "tokens_per_s_per_chip": lambda: steady.rate * (steady.prompt + steady.output) / steady.chips,
        "mfu": lambda: flops_utilisation(scenario, steady),
        "mbu": lambda: bandwidth_utilisation(scenario, steady),
    }
    if set(wanted) & set(MONEY):
        drawn = draw(scenario, steady)
        money = None if scenario.economics is None else cost(scenario, steady, drawn)
        forms |= {
            "power_w": lambda: drawn.mean.watts,
            "joules_per_output_token": lambda: power.energy_per_token(
                power=drawn.mean.watts, per_second=steady.rate * steady.output
            ),
            "usd_per_mtok_input": lambda: money.input if money else NAN,
            "usd_per_mtok_output": lambda: money.output if money else NAN,
            "usd_per_mtok_blended": lambda: money.blended if money else NAN,
        }
    if scenario.model.task == "pool":
        forms |= dict.fromkeys(_OF_DECODING, lambda: NAN)
        forms["tokens_per_s_per_chip"] = lambda: steady.rate * steady.prompt / steady.chips
        forms["usd_per_mtok_blended"] = forms.get("usd_per_mtok_input", lambda: NAN)
    with scope("results"):
        return {
            key: serving.where_it_fits(cap=steady.fit.cap, value=form()) for key, form in forms.items() if key in wanted
        }


def _answer(scenario: Scenario, steady: Steady, wanted: Collection[str]) -> Prediction:
    held = steady.fit
    return Prediction(
        scenario=scenario,
        metrics=_metrics(scenario, steady, wanted),
        breakdown=breakdown(steady) if "breakdown" in wanted else {},
        memory={
            "capacity": held.capacity,
            "weights": held.weights,
            "kv_cache": steady.running * held.per_request,
            "reserved": held.reserved,
            "kv_room": held.room,
        },
        max_concurrency=held.cap * scenario.deployment.groups,
        fits=held.cap >= 1 if isinstance(held.cap, float | np.ndarray) else True,
        chips=steady.chips,
        speculation=_speculation(steady) if scenario.speculation is not None else {},
    )


def _speculation(steady: Steady) -> dict[str, Any]:
    decoding = steady.decoding
    assert decoding.verify is not None
    draft: Any = 0.0 if decoding.draft is None else decoding.draft.time
    return {"tokens_per_step": decoding.length, "draft_s": draft, "verify_s": decoding.verify.time}


def evaluate(scenario: Scenario, wanted: Collection[str] = ALL, steady: Steady | None = None) -> Prediction:
    """Return the numbers of a scenario without words: floats, arrays or traced nodes.

    Parameters
    ----------
    scenario : Scenario
    wanted : collection of str
        Metrics to work out, and ``breakdown``; on large arrays the others are not worth their time.
    steady : Steady, optional
        What the deployment does, where it is not what a closed loop makes it do.

    Returns
    -------
    Prediction
    """
    return _answer(scenario, steady_state(scenario) if steady is None else steady, wanted)


def traced(scenario: Scenario) -> tuple[Ledger, Prediction]:
    """Evaluate a scenario with every quantity of every spec a traced node.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    ledger : Ledger
        The record: inputs with provenance, one line an equation.
    prediction : Prediction
        Its metrics are nodes.
    """
    with Ledger() as ledger:
        return ledger, evaluate(as_nodes(ledger, scenario))


def numbers(scenario: Scenario) -> tuple[Any, ...]:
    """Return every number of the answer to a scenario.

    Parameters
    ----------
    scenario : Scenario
        Floats, arrays or traced nodes.

    Returns
    -------
    tuple
        Mappings and numbers.
    """
    return _numbers(evaluate(scenario))


def _numbers(answer: Prediction) -> tuple[Any, ...]:
    return answer.metrics, answer.breakdown, answer.memory, answer.speculation, answer.max_concurrency, answer.chips


def content(answer: Prediction) -> tuple[Any, ...]:
    """Return all that an answer says beyond its question.

    Parameters
    ----------
    answer : Prediction

    Returns
    -------
    tuple
        Mappings, numbers and words.
    """
    return *_numbers(answer), answer.limited_by, answer.band, answer.warnings, answer.reason


def run(scenario: Scenario) -> Prediction:
    """Answer one scenario, with what limits it, what was assumed, what to mind and which changes moved nothing.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.

    Returns
    -------
    Prediction
    """
    answer = _run(scenario)
    if answer.reason or not scenario.changed:
        return answer
    paths = unmoved(scenario, lambda asked: content(_run(asked)))
    return replace(answer, warnings=(*answer.warnings, *idle(scenario, paths, numbers)))


def _run(scenario: Scenario) -> Prediction:
    steady = steady_state(scenario)
    answer = plain = _answer(scenario, steady, ALL)
    if scenario.speculation is not None and answer.fits:
        plain = evaluate(replace(scenario, speculation=None), ("tpot_s", "breakdown"))
    reason = ""
    limits: dict[str, str] = {}
    effects: list[_Effect] = []
    money: list[_Effect] = []
    band: dict[str, dict[str, float]] = {}
    room = float(answer.memory["kv_room"])
    if not answer.fits and room == room:
        reason = _misfit(scenario, answer)
    elif not np.isfinite(answer.metrics["request_latency_s"]):
        ledger, nodes = traced(scenario)
        times = [nodes.metrics[key] for key in _times(scenario)]
        missing = [path for path, entry in ledger.reached(times).items() if entry.value != entry.value]
        reason = (
            f"not published: {', '.join(missing)}; give a value with --set"
            if missing
            else "the times are not finite with these inputs: one of them lies far outside what machines have"
        )
    else:
        limits = {
            phase: max(CAUSES, key=lambda cause, parts=parts: float(parts[cause]))  # type: ignore[misc]
            for phase, parts in answer.breakdown.items()
            if phase == "prefill" or scenario.model.task != "pool"
        }
        effects = effects_of(scenario, answer)
        band = band_of(scenario, answer, effects)
        money = _money_effects(scenario, answer, steady)
        band |= _money_band(answer, band, money)
        offered = float(scenario.traffic.concurrency)
        if scenario.speculation is not None:
            speedup = float(plain.metrics["tpot_s"]) / float(answer.metrics["tpot_s"])
            answer = replace(answer, speculation={**answer.speculation, "speedup": speedup})
        limits["concurrency"] = "memory" if float(answer.max_concurrency) < offered else "requested"
    return replace(
        answer,
        limited_by=limits,
        reason=reason,
        assumed=scenario.assumed,
        band=band,
        warnings=(
            *scenario.warnings,
            *_warnings(scenario, answer, plain),
            *_estimates(effects),
            *_money_warnings(scenario, answer, money),
        ),
    )


def _gigabytes(value: Any) -> str:
    return f"{float(value) / 1e9:.3g} GB"


def _misfit(scenario: Scenario, answer: Prediction) -> str:
    plan, held = scenario.deployment, answer.memory
    where = f"{scenario.system.name} at TP {plan.tp:g}, PP {plan.pp:g}"
    if float(held["kv_room"]) < 0:
        budget = float(held["capacity"]) - float(held["reserved"])
        if (own := fit(scenario).weights_capacity) is not None:
            budget = float(own)
        return (
            f"{scenario.model.name} in {plan.precision} does not fit {where}: {_gigabytes(held['weights'])} of weights "
            f"a chip, {_gigabytes(budget)} usable; more chips or a smaller precision would do"
        )
    return (
        f"no request of {scenario.traffic.prompt + scenario.traffic.output:g} tokens fits {where}: "
        f"{_gigabytes(held['kv_room'])} of cache a chip, one request needs {_gigabytes(held['kv_cache'])}"
    )


def _warnings(scenario: Scenario, answer: Prediction, plain: Prediction) -> list[str]:
    found = []
    system, plan = scenario.system, scenario.deployment
    if float(scenario.traffic.prompt + scenario.traffic.output) > float(scenario.model.max_context):
        found.append(f"longer than the {scenario.model.max_context:g} tokens that {scenario.model.name} was made for")
    if not answer.fits:
        return found
    machine = machine_of(system)
    if outside := machine.outside(scenario):
        found.append(f"outside the calibrated range, so the band is wider: {', '.join(outside)}")
    if float(answer.max_concurrency) < float(scenario.traffic.concurrency):
        found.append(
            f"only {float(answer.max_concurrency):g} of {scenario.traffic.concurrency:g} requests fit the KV cache at "
            "full length: the others wait, and that wait is in TTFT"
        )
    phase = "prefill" if scenario.model.task == "pool" else "decode"
    found += machine.warnings(scenario, answer.breakdown[phase], plain.breakdown[phase])
    if scenario.speculation is not None:
        found += _draft_warnings(scenario, answer)
    waste = [
        f"{name} {lost:.0%}"
        for name, dimension in _sharded(scenario.model)
        if not machine.shards_by_head
        and (lost := float(memory.tile_waste(dimension=dimension, shards=plan.tp, tile=system.tile))) > 0.05
    ]
    if waste:
        found.append(
            f"sharding over {plan.tp:g} chips leaves tiles partly empty (not in the times): {', '.join(waste)}"
        )
    return found


def _draft_warnings(scenario: Scenario, answer: Prediction) -> list[str]:
    speculation = scenario.speculation
    assert speculation is not None
    found = ["how many drafted tokens are accepted is taken as given: the band does not hold what it leaves open"]
    if float(answer.speculation.get("speedup", 1.0)) < 1:
        found.append("slower than without a draft")
    return found + machine_of(scenario.system).draft_warnings()


def _sharded(model: Model) -> list[tuple[str, Any]]:
    """Return the dimensions that tensor parallelism splits."""
    found = [("hidden", model.hidden)]
    widths = [run.mlp.intermediate for run in model.layers if run.mlp is not None]
    widths += [run.moe.intermediate for run in model.layers if run.moe is not None]
    return found + [("feed-forward", width) for width in widths[:1]]


#: Metrics that carry a band of their own; the others follow from them.
_TIMES = ("ttft_s", "ttft_median_s", "tpot_s")


def _times(scenario: Scenario) -> tuple[str, ...]:
    """Return those of the times that a model has."""
    return _TIMES[:2] if scenario.model.task == "pool" else _TIMES


@dataclass(frozen=True)
class _Effect:
    """How far an estimate moves an answer between its low and its high: logarithms of factors by metric."""

    path: str
    text: str
    moves: Mapping[str, tuple[float, float]]
    fits: bool

    @property
    def strength(self) -> float:
        return math.inf if not self.fits else max(abs(end) for ends in self.moves.values() for end in ends)


#: Where the numbers stand that power and money alone depend on.
MONEY_ROOTS = ("economics.", "system.price.", "system.power.", "system.power_shape.", "system.carbon.", "system.die.")


def _estimated(scenario: Scenario, money: bool) -> Iterator[tuple[str, str, Provenance]]:
    """Give path, text and origin of every estimate, of those that move money or of those that move times."""
    for path, unit, value in quantities(scenario):
        origin = provenance_of(scenario, path)
        if origin.kind == "estimate" and origin.low == origin.low and path.startswith(MONEY_ROOTS) == money:
            span = f"{show(origin.low, unit, 3)} to {show(origin.high, unit, 3)}"
            yield path, f"estimate {path} = {show(float(value), unit, 3)} ({span})", origin


def _at_ends(scenario: Scenario, estimates: Sequence[tuple[str, str, Provenance]]) -> Scenario:
    """Return the scenario as arrays: each estimate at its low, then each at its high, all others as they are."""
    count = len(estimates)
    for position, (path, _, origin) in enumerate(estimates):
        values = np.full(2 * count, float(get(scenario, path)))
        values[[position, count + position]] = origin.low, origin.high
        scenario = put(scenario, path, values)
    return scenario


def _strongest(
    estimates: Sequence[tuple[str, str, Provenance]], answer: Prediction, moved: Mapping[str, Any], fits: Any
) -> list[_Effect]:
    """Return what each estimate moves, the strongest first, from the metrics at all ends."""
    count = len(estimates)
    ratios = {
        key: np.log(np.broadcast_to(values, 2 * count) / float(answer.metrics[key])).reshape(2, count).T.tolist()
        for key, values in moved.items()
        if float(answer.metrics[key]) > 0
    }
    both = np.all(np.broadcast_to(fits, 2 * count).reshape(2, count), axis=0).tolist()
    effects = [
        _Effect(path, text, {key: tuple(ends[position]) for key, ends in ratios.items()}, both[position])
        for position, (path, text, _) in enumerate(estimates)
    ]
    seen = [effect for effect in effects if effect.moves and effect.strength >= 0.01]
    return sorted(seen, key=lambda effect: effect.strength, reverse=True)


def effects_of(scenario: Scenario, answer: Prediction) -> list[_Effect]:
    """Return the estimates that move the times, the strongest first.

    Parameters
    ----------
    scenario : Scenario
        Its numbers are floats.
    answer : Prediction
        Of that scenario.

    Returns
    -------
    list
        Of each estimate its path, and the logarithms by which its low and high end move each time.
    """
    estimates = list(_estimated(scenario, money=False))
    moved = evaluate(_at_ends(scenario, estimates), _times(scenario))
    return _strongest(estimates, answer, moved.metrics, moved.fits)


def _money_effects(scenario: Scenario, answer: Prediction, steady: Steady) -> list[_Effect]:
    """Return the estimates that move power and cost, the strongest first; the steady state stays as it is."""
    estimates = list(_estimated(scenario, money=True))
    return _strongest(estimates, answer, _metrics(_at_ends(scenario, estimates), steady, MONEY), True)


def _money_band(
    answer: Prediction, band: Mapping[str, Mapping[str, float]], effects: list[_Effect]
) -> dict[str, dict[str, float]]:
    """Return the 80 % band of power and cost: the estimates, and for what is a token's the band of the rate."""
    of = "input_tokens_per_s" if answer.scenario.model.task == "pool" else "output_tokens_per_s"
    rate = answer.metrics[of]
    slower, faster = (abs(math.log(band[of][end] / float(rate))) for end in ("low", "high"))
    found = {}
    for key in MONEY:
        value = float(answer.metrics[key])
        if not value > 0:
            continue
        of_rate = (0.0, 0.0) if key == "power_w" else (faster, slower)
        moved = [effect.moves[key] for effect in effects if key in effect.moves]
        down = math.hypot(of_rate[0], *(min(0.0, *ends) for ends in moved))
        up = math.hypot(of_rate[1], *(max(0.0, *ends) for ends in moved))
        found[key] = {"low": value * math.exp(-down), "high": value * math.exp(up)}
    return found


def _money_warnings(scenario: Scenario, answer: Prediction, effects: list[_Effect]) -> list[str]:
    """Return what power and cost rest on."""
    if answer.reason or not answer.fits:
        return []
    system = scenario.system
    found = []
    shape = shape_of(system)
    if caution := shape.cautions(system)[1]:
        found.append(caution)
    needed = {path: get(scenario, path) for path in shape.needs}
    price = system.price
    rented = scenario.economics is not None and scenario.economics.ownership == "rented"
    needed |= {"system.price.rent_per_chip": price.rent_per_chip} if rented else {"system.price.system": price.system}
    missing = [path for path, value in needed.items() if value != value]
    if missing:
        found.append(f"no cost, for want of {' and '.join(missing)}: not published, so give it with --set")
    key = "usd_per_mtok_blended"
    strongest = sorted((e for e in effects if key in e.moves), key=lambda e: max(map(abs, e.moves[key])), reverse=True)
    if strongest:
        words = [
            f"{effect.path} {math.expm1(effect.moves[key][0]):+.0%} to {math.expm1(effect.moves[key][1]):+.0%}"
            for effect in strongest[:3]
        ]
        found.append(f"{len(strongest)} estimates move $/Mtok, most of all {', '.join(words)}")
    return found


def _estimates(effects: list[_Effect]) -> list[str]:
    """Return one line for each estimate that moves the answer."""
    lines = []
    for effect in effects:
        words = [] if effect.fits else ["whether it fits"]
        for key, name in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
            low, high = effect.moves.get(key, (0.0, 0.0))
            if max(abs(low), abs(high)) >= 0.01:
                words.append(f"{name} {math.expm1(low):+.0%} to {math.expm1(high):+.0%}")
        if words:
            lines.append(f"{effect.text} moves {', '.join(words)}")
    return lines


#: Logarithm of a factor that holds 80 % of the measured speed-ups of speculation, each at its measured accepted length
#: (34 of data/measured/speculative.csv, median 14 % too high).
_SPECULATION_SPREAD = 0.264


def time_spreads(scenario: Scenario) -> tuple[float, float]:
    """Return logarithms of factors on TTFT and TPOT that hold 80 % of what the models leave open, estimates apart.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    tuple of float
    """
    ttft, tpot = machine_of(scenario.system).spreads(scenario)
    if scenario.speculation is not None:
        tpot = math.hypot(tpot, _SPECULATION_SPREAD)
    return ttft, tpot


#: Share of the requests that fit from which on the cache decides who waits, and by how much bands are wider there: a
#: few percent of memory move TTFT by factors.
NEAR_CAP, TTFT_AT_CAP, TPOT_AT_CAP = 0.85, 3.0, 1.5


def band_of(scenario: Scenario, answer: Prediction, effects: list[_Effect]) -> dict[str, dict[str, float]]:
    """Return the 80 % band of each time: residuals of the calibration and estimates, in quadrature.

    Parameters
    ----------
    scenario : Scenario
    answer : Prediction
        Of that scenario, or of one point of a sweep of it.
    effects : list
        From :func:`effects_of`.

    Returns
    -------
    dict of str to dict
        ``low`` and ``high`` of each metric, in its own unit.
    """
    if machine_of(scenario.system).spread_holds_efficiencies:
        # The residuals already hold what the efficiencies leave open.
        effects = [effect for effect in effects if not effect.path.startswith("system.efficiency")]
    ttft, tpot = time_spreads(scenario)
    if float(scenario.traffic.concurrency) > NEAR_CAP * float(answer.max_concurrency):
        ttft, tpot = ttft * TTFT_AT_CAP, tpot * TPOT_AT_CAP
    spreads = {"ttft_s": ttft, "ttft_median_s": ttft, "tpot_s": tpot}
    factors = {}
    for key in _times(scenario):
        if not float(answer.metrics[key]) > 0:
            continue  # one token has no time to the next
        down = math.hypot(spreads[key], *(min(0.0, *effect.moves[key]) for effect in effects))
        up = math.hypot(spreads[key], *(max(0.0, *effect.moves[key]) for effect in effects))
        factors[key] = math.exp(-down), math.exp(up)
    found = {
        key: {"low": float(answer.metrics[key]) * low, "high": float(answer.metrics[key]) * high}
        for key, (low, high) in factors.items()
    }
    latency = float(answer.metrics["request_latency_s"])
    ends, middle = dict(found["ttft_s"]), float(answer.metrics["ttft_s"])
    steps = 0.0 if scenario.model.task == "pool" else max(0.0, float(scenario.traffic.output) - 1)
    if steps > 0:
        ends = {end: value + steps * found["tpot_s"][end] for end, value in ends.items()}
        middle += steps * float(answer.metrics["tpot_s"])
    found["request_latency_s"] = {end: latency * value / middle for end, value in ends.items()}
    for key in ("output_tokens_per_s", "input_tokens_per_s", "tokens_per_s_per_chip"):
        rate = float(answer.metrics[key])
        if rate != rate:
            continue
        found[key] = {"low": rate * middle / ends["high"], "high": rate * middle / ends["low"]}
    for key, time in (("output_tokens_per_s_per_user", "tpot_s"), ("input_tokens_per_s_per_user", "ttft_s")):
        if time not in factors:
            continue
        rate, (low, high) = float(answer.metrics[key]), factors[time]
        found[key] = {"low": rate / high, "high": rate / low}
    # What does not exist, a time between tokens where there is one, has no band.
    return {key: ends for key, ends in found.items() if not math.isnan(ends["low"])}

"""The one entry: :func:`run` turns a scenario into a prediction."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfmodel.equations import collectives, memory, serving
from perfmodel.machines.operators import ACTIVATION_BYTES, CAUSES
from perfmodel.serving.steady import Steady, bandwidth_utilisation, breakdown, flops_utilisation, steady_state
from perfmodel.specs.paths import provenance_of, put, quantities
from perfmodel.specs.types import Model, Scenario, SramEfficiency
from perfmodel.specs.units import show
from perfmodel.trace import Ledger, scope

#: Keys of the JSON that a later issue fills.
LATER = ("power_w", "joules_per_output_token")

METRICS = (
    "ttft_s",
    "tpot_s",
    "request_latency_s",
    "output_tokens_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s_per_user",
    "tokens_per_s_per_chip",
    "mfu",
    "mbu",
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
        The keys of :data:`METRICS`, NaN where the model does not fit.
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
    reason : str
        Why there is no answer, else empty.
    assumed, warnings : tuple of str
    """

    scenario: Scenario
    metrics: Mapping[str, Any]
    breakdown: Mapping[str, Mapping[str, Any]]
    memory: Mapping[str, Any]
    max_concurrency: Any
    fits: Any
    chips: Any
    limited_by: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name in METRICS:
            return self.metrics[name]
        raise AttributeError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        fits = bool(self.fits)
        plan = self.scenario.deployment
        return {
            **{key: _json(self.metrics[key]) for key in METRICS},
            "fits": fits,
            "max_concurrency": _json(self.max_concurrency),
            "limited_by": dict(self.limited_by) if fits and not self.reason else None,
            "breakdown": {
                phase: {cause: _json(value) if fits else None for cause, value in parts.items()}
                for phase, parts in self.breakdown.items()
            },
            "memory": {use: _json(value) for use, value in self.memory.items()},
            **dict.fromkeys(LATER),
            "usd_per_mtok": {"input": None, "output": None, "blended": None},
            "band": None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
            "model": self.scenario.model.name,
            "system": self.scenario.system.name,
            "plan": {
                "name": plan.plan,
                "tp": _json(plan.tp),
                "pp": _json(plan.pp),
                "ep": _json(plan.ep),
                "dp": _json(plan.dp),
                "engine": plan.engine,
                "precision": plan.precision,
                "kv_precision": plan.kv_precision,
            },
            "traffic": {
                "name": self.scenario.traffic.name,
                "prompt": _json(self.scenario.traffic.prompt),
                "output": _json(self.scenario.traffic.output),
                "concurrency": _json(self.scenario.traffic.concurrency),
            },
            "chips": _json(self.chips),
            "reason": self.reason or None,
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        data = self.to_dict()
        flat: dict[str, Any] = {"model": data["model"], "system": data["system"], "chips": data["chips"]}
        flat.update({f"plan_{key}": value for key, value in data["plan"].items()})
        flat.update({f"traffic_{key}": value for key, value in data["traffic"].items()})
        flat.update({key: data[key] for key in (*METRICS, "fits", "max_concurrency")})
        for phase in ("prefill", "decode"):
            flat[f"{phase}_limited_by"] = (data["limited_by"] or {}).get(phase)
            flat.update({f"{phase}_{cause}_s": value for cause, value in data["breakdown"][phase].items()})
        flat.update({f"memory_{use}_bytes": value for use, value in data["memory"].items()})
        flat["reason"] = data["reason"]
        return flat


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_json(item) for item in value.tolist()]
    if isinstance(value, float | int | np.generic):
        number = float(value)
        return number if np.isfinite(number) else None
    return value


def _metrics(scenario: Scenario, steady: Steady, wanted: Collection[str]) -> dict[str, Any]:
    traffic = scenario.traffic
    forms: dict[str, Callable[[], Any]] = {
        "ttft_s": lambda: steady.ttft,
        "tpot_s": lambda: steady.tpot,
        "request_latency_s": lambda: steady.latency,
        "output_tokens_per_s": lambda: steady.rate * traffic.output,
        "input_tokens_per_s": lambda: steady.rate * traffic.prompt,
        "output_tokens_per_s_per_user": lambda: 1 / steady.tpot,
        "input_tokens_per_s_per_user": lambda: traffic.prompt / steady.ttft,
        "tokens_per_s_per_chip": lambda: steady.rate * (traffic.prompt + traffic.output) / steady.chips,
        "mfu": lambda: flops_utilisation(scenario, steady),
        "mbu": lambda: bandwidth_utilisation(scenario, steady),
    }
    with scope("results"):
        return {key: serving.where_it_fits(cap=steady.fit.cap, value=forms[key]()) for key in METRICS if key in wanted}


def evaluate(scenario: Scenario, wanted: Collection[str] = ALL) -> Prediction:
    """Return the numbers of a scenario without words: floats, arrays or traced nodes.

    Parameters
    ----------
    scenario : Scenario
    wanted : collection of str
        Metrics to work out, and ``breakdown``; on large arrays the others are not worth their time.
    """
    steady = steady_state(scenario)
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
        max_concurrency=held.cap * scenario.deployment.dp,
        fits=held.cap >= 1 if isinstance(held.cap, float | np.ndarray) else True,
        chips=steady.chips,
    )


def traced(scenario: Scenario) -> tuple[Ledger, Prediction]:
    """Evaluate a scenario with every quantity of every spec a traced node.

    Returns
    -------
    ledger : Ledger
        The record: inputs with provenance, one line an equation.
    prediction : Prediction
        Its metrics are nodes.
    """
    with Ledger() as ledger:
        node_scenario = scenario
        for path, unit, value in quantities(scenario):
            source = provenance_of(scenario, path)
            node = ledger.input(path, float(value), unit, f"{source.source} ({source.kind})")
            node_scenario = put(node_scenario, path, node)
        return ledger, evaluate(node_scenario)


def run(scenario: Scenario) -> Prediction:
    """Answer one scenario, with what limits it, what was assumed and what to mind.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.

    Returns
    -------
    Prediction
    """
    answer = evaluate(scenario)
    reason = ""
    limits: dict[str, str] = {}
    if not answer.fits:
        reason = _misfit(scenario, answer)
    elif not np.isfinite(answer.metrics["tpot_s"]):
        ledger, nodes = traced(scenario)
        missing = [path for path, entry in ledger.reached(nodes.metrics.values()).items() if entry.value != entry.value]
        reason = f"not published: {', '.join(missing)}; give a value with --set"
    else:
        limits = {
            phase: max(CAUSES, key=lambda cause, parts=parts: float(parts[cause]))  # type: ignore[misc]
            for phase, parts in answer.breakdown.items()
        }
        offered = float(scenario.traffic.concurrency)
        limits["concurrency"] = "memory" if float(answer.max_concurrency) < offered else "requested"
    return replace(
        answer,
        limited_by=limits,
        reason=reason,
        assumed=scenario.assumed,
        warnings=(*scenario.warnings, *_warnings(scenario, answer)),
    )


def _gigabytes(value: Any) -> str:
    return f"{float(value) / 1e9:.3g} GB"


def _misfit(scenario: Scenario, answer: Prediction) -> str:
    plan, held = scenario.deployment, answer.memory
    where = f"{scenario.system.name} at TP {plan.tp:g}, PP {plan.pp:g}"
    if float(held["kv_room"]) < 0:
        budget = float(held["capacity"]) - float(held["reserved"])
        return (
            f"{scenario.model.name} in {plan.precision} does not fit {where}: {_gigabytes(held['weights'])} of weights "
            f"a chip, {_gigabytes(budget)} usable; more chips or a smaller precision would do"
        )
    return (
        f"no request of {scenario.traffic.prompt + scenario.traffic.output:g} tokens fits {where}: "
        f"{_gigabytes(held['kv_room'])} of cache a chip, one request needs {_gigabytes(held['kv_cache'])}"
    )


def _warnings(scenario: Scenario, answer: Prediction) -> list[str]:
    found = []
    system, plan = scenario.system, scenario.deployment
    if float(scenario.traffic.prompt + scenario.traffic.output) > float(scenario.model.max_context):
        found.append(f"longer than the {scenario.model.max_context:g} tokens that {scenario.model.name} was made for")
    if not answer.fits:
        return found
    if float(answer.max_concurrency) < float(scenario.traffic.concurrency):
        found.append(
            f"only {float(answer.max_concurrency):g} of {scenario.traffic.concurrency:g} requests fit the KV cache at "
            "full length: the others wait, and that wait is in TTFT"
        )
    if system.kind == "kernels" and float(plan.tp) > float(system.chips_per_node):
        found.append("TP across nodes: the all-reduce between nodes is a ring at the network's rate, uncalibrated")
    efficiency = system.efficiency
    if isinstance(efficiency, SramEfficiency):
        if float(plan.tp) > 64:
            found.append("the all-reduce curve is published for 8 to 64 LPUs; beyond it is extrapolated")
        if float(efficiency.layer_overhead) > 0:
            share = float(answer.breakdown["decode"]["overhead"]) / float(answer.metrics["tpot_s"])
            found.append(
                f"{share:.0%} of TPOT is a stage overhead drawn from public speeds, which the bare machine does not "
                "explain; --set system.efficiency.layer_overhead=0 leaves it out"
            )
    if system.kind == "dataflow":
        found.append(_hidden_links(scenario, answer))
    waste = [
        f"{name} {lost:.0%}"
        for name, dimension in _sharded(scenario.model)
        if system.kind != "kernels"
        and (lost := float(memory.tile_waste(dimension=dimension, shards=plan.tp, tile=system.tile))) > 0.05
    ]
    if waste:
        found.append(
            f"sharding over {plan.tp:g} chips leaves tiles partly empty (not in the times): {', '.join(waste)}"
        )
    return found + _estimates(scenario, answer)


def _sharded(model: Model) -> list[tuple[str, Any]]:
    """Return the dimensions that tensor parallelism splits."""
    found = [("hidden", model.hidden)]
    widths = [run.mlp.intermediate for run in model.layers if run.mlp is not None]
    widths += [run.moe.intermediate for run in model.layers if run.moe is not None]
    return found + [("feed-forward", width) for width in widths[:1]]


def _estimates(scenario: Scenario, answer: Prediction) -> list[str]:
    """Return one line for each estimate that moves the answer between its low and its high, the strongest first."""
    moved = []
    for path, unit, value in quantities(scenario):
        origin = provenance_of(scenario, path)
        if origin.kind != "estimate" or origin.low != origin.low:
            continue
        ends = [evaluate(put(scenario, path, bound)) for bound in (origin.low, origin.high)]
        effects = []
        for key, name in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
            changes = [float(end.metrics[key]) / float(answer.metrics[key]) - 1 for end in ends]
            if max(map(abs, changes)) >= 0.01:
                effects.append((max(map(abs, changes)), f"{name} {changes[0]:+.0%} to {changes[1]:+.0%}"))
        if any(not end.fits for end in ends):
            effects.append((math.inf, "whether it fits"))
        if effects:
            span = f"{show(origin.low, unit, 3)} to {show(origin.high, unit, 3)}"
            words = ", ".join(text for _, text in effects)
            moved.append((max(effects)[0], f"estimate {path} = {show(float(value), unit, 3)} ({span}) moves {words}"))
    return [words for _, words in sorted(moved, reverse=True)]


def _hidden_links(scenario: Scenario, answer: Prediction) -> str:
    model = scenario.model
    layers = sum(float(run.count) for run in model.layers)
    decode = answer.breakdown["decode"]
    busy = float(decode["compute"]) + float(decode["memory"])
    least = collectives.least_hiding_bandwidth(
        message=2 * model.hidden * ACTIVATION_BYTES, ranks=scenario.deployment.tp, time=busy / layers
    )
    return (
        "the link rate between sockets is not published: all-reduces are taken as hidden, "
        f"which holds from {float(least) / 1e9:.3g} GB/s a socket for one sequence"
    )

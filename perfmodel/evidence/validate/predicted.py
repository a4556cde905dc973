"""Predicting rows, those that differ only in their load together."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from perfmodel.equations import collectives, speculative
from perfmodel.evidence.validate.metrics import POWER, rate
from perfmodel.evidence.validate.reading import Unanswered, number
from perfmodel.evidence.validate.rows import LENGTHS, TRAFFIC_FIELDS, Asked
from perfmodel.evidence.validate.speedups import drafting
from perfmodel.machines.base import machine_of
from perfmodel.machines.speculation import draft_scenario, target_scenario
from perfmodel.prediction import METRICS, Prediction, band_of, effects_of, evaluate, run, time_spreads
from perfmodel.question import Options, speculation_of
from perfmodel.serving.disaggregation import closed_pools
from perfmodel.serving.fit import fit
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Scenario, Traffic

_NAN = math.nan

#: What forms and bands need of a steady state.
_WANTED = METRICS
Tick = Callable[[int], None]
#: Sequences up to which the largest throughput is sought where no scheduler is known to stop earlier.
UNLIMITED = 2048.0


def _group_key(asked: Asked, scenario: Scenario) -> tuple[Any, ...]:
    """Return what rows must share to be evaluated as arrays: all but lengths, concurrency and rounds."""
    plan, load = scenario.deployment, scenario.traffic
    switches = tuple(getattr(load, name) for name in ("prefill_first",) if name in TRAFFIC_FIELDS)
    return (asked.form.how, scenario.system.name, scenario.model.name, plan, switches)


#: What loads of one group may differ in.
STACKED = ("prompt", "output", "concurrency", "rounds", "length_jitter", "held_steps", "prefix_hits")


def stacked(traffics: Sequence[Traffic]) -> Traffic:
    """Return the loads of many rows as one load of arrays."""
    columns: dict[str, Any] = {name: np.array([float(getattr(load, name)) for load in traffics]) for name in STACKED}
    return replace(traffics[0], **columns)


def _loop(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give value, low, high (inside units) and chips of rows that share all but their load."""
    scenario = replace(scenarios[0], traffic=stacked([one.traffic for one in scenarios]))
    answer = evaluate(scenario, _WANTED)
    for at, (asked, one) in enumerate(zip(group, scenarios, strict=True)):
        yield _valued(asked, _point(answer, one, (at,), (len(group),)))


def _point(answer: Prediction, scenario: Scenario, at: tuple[int, ...], shape: tuple[int, ...]) -> Prediction:
    """Return one point of an answer of arrays as an answer of floats."""
    metrics = {key: float(np.broadcast_to(value, shape)[at]) for key, value in answer.metrics.items()}
    cap = float(np.broadcast_to(answer.max_concurrency, shape)[at])
    return replace(answer, scenario=scenario, metrics=metrics, chips=float(answer.chips), max_concurrency=cap)


_EFFECTS: dict[tuple[Any, ...], list[Any]] = {}


def _band(answer: Prediction) -> Mapping[str, Mapping[str, float]]:
    """Return the 80 % band of a point; how far estimates move it is worked out once a system and engine."""
    scenario = answer.scenario
    own = machine_of(scenario.system).spread_holds_efficiencies
    key = (scenario.system.name, scenario.deployment.engine, () if own else scenario.deployment)
    if key not in _EFFECTS:
        # What the efficiencies of a calibrated engine leave open is in its residuals.
        moved = any(
            origin.kind == "estimate" and not (own and path.startswith("efficiency."))
            for path, origin in scenario.system.provenance.items()
        )
        _EFFECTS[key] = effects_of(scenario, answer) if moved else []
    return band_of(scenario, answer, _EFFECTS[key])


def _valued(asked: Asked, answer: Prediction) -> tuple[float, float, float, float]:
    """Return value, low, high (inside units) and chips of a row."""
    value = asked.form.value or rate
    middle = float(value(answer))
    ends = []
    if asked.form.family == POWER and math.isfinite(middle):
        key = "joules_per_output_token" if "energy" in asked.key else "power_w"
        around = run(answer.scenario)
        low, high = (middle * around.band[key][side] / around.metrics[key] for side in ("low", "high"))
        return middle, low, high, float(answer.chips)
    if math.isfinite(middle):
        band = _band(answer)
        # Where a rate follows from a time, the low end of one is the high end of the other.
        for side in ("low", "high"):
            metrics = {key: band[key][side] if key in band else number for key, number in answer.metrics.items()}
            ends.append(float(value(replace(answer, metrics=metrics))) if band else _NAN)
    return middle, min(ends, default=_NAN), max(ends, default=_NAN), float(answer.chips)


def _most(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the largest output throughput over the concurrency, up to the cache and the engine's own limit."""
    plan = scenarios[0].deployment
    engine = scenarios[0].system.engine
    most = float(cast(float, engine.max_sequences)) if engine else UNLIMITED
    limit = most * float(cast(float, plan.groups))
    load = stacked([traffic.traffic for traffic in scenarios])
    column = {name: getattr(load, name)[:, None] for name in ("prompt", "output")}
    tried = np.unique(np.round(np.geomspace(1.0, limit, 48)))[None, :]
    traffic = replace(scenarios[0].traffic, **column, concurrency=tried)
    answer = evaluate(replace(scenarios[0], traffic=traffic), _WANTED)
    shape = (len(group), tried.size)
    rate = np.broadcast_to(answer.metrics["output_tokens_per_s"], shape)
    cap = np.broadcast_to(answer.max_concurrency, shape)
    held = np.where((tried <= np.maximum(cap, 1.0)) & ~np.isnan(rate), rate, -np.inf)
    for at, (asked, scenario) in enumerate(zip(group, scenarios, strict=True)):
        best = int(np.argmax(held[at]))
        load = replace(scenario.traffic, concurrency=float(tried[0, best]))
        yield _valued(asked, _point(answer, replace(scenario, traffic=load), (at, best), shape))


def _prompt(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the time of a static batch of prompts that nothing else disturbs."""
    for scenario in scenarios:
        load, plan = scenario.traffic, scenario.deployment
        time = machine_of(scenario.system).batch_prefill(scenario, load.concurrency / plan.groups, load.prompt)
        yield float(time), _NAN, _NAN, float(plan.tp * plan.pp * plan.groups)


def _step(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the time of one decode step of a static batch."""
    for scenario in scenarios:
        load, plan = scenario.traffic, scenario.deployment
        context = load.prompt + load.output / 2
        step = machine_of(scenario.system).decode(scenario, load.concurrency / plan.groups, context)
        yield float(step.time), _NAN, _NAN, float(plan.tp * plan.pp * plan.groups)


def _context(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give slope [s/token] or intercept [s] of the line through the steps over a row's contexts."""
    for asked, scenario in zip(group, scenarios, strict=True):
        written = LENGTHS.match(asked.row.given.get("isl", ""))
        first, last = (float(written[1]), float(written[2])) if written else (1024.0, 32768.0)
        contexts = np.linspace(first, last, 33)
        plan = scenario.deployment
        step = machine_of(scenario.system).decode(scenario, float(cast(float, scenario.traffic.concurrency)), contexts)
        slope, intercept = np.polyfit(contexts, np.broadcast_to(step.time, contexts.shape), 1)
        yield float(slope if asked.key == "slope" else intercept), _NAN, _NAN, float(plan.tp * plan.pp * plan.groups)


def _curve(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the share of its links' rate that an all-reduce of the row's message reaches."""
    for asked, scenario in zip(group, scenarios, strict=True):
        size = re.search(r"([\d.]+)\s*(k|m)ib", asked.row.given.get("notes", "").casefold())
        message = 0.0 if size is None else float(size[1]) * (1024.0 if size[2] == "k" else 1048576.0)
        curve = machine_of(scenario.system).all_reduce(scenario.system, message) if message else None
        if curve is None:
            asked.row.reason = "no message size in the notes, or no published curve of this machine"
            yield _NAN, _NAN, _NAN, _NAN
            continue
        share = collectives.saturation(message=message, time=curve[0], bandwidth=curve[1])
        yield float(share), _NAN, _NAN, 1.0


def _drafted(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give speed-up, or output tokens a user and second, of a step of speculation at the measured length."""
    for asked, scenario in zip(group, scenarios, strict=True):
        load, plan = scenario.traffic, scenario.deployment
        how = drafting(asked.row.given)
        options = Options(draft=how.draft, k=how.passes, ar=how.length / (how.passes + 1))
        wanted, _, _ = speculation_of(options, scenario.model, scenario.system, plan.precision)
        assert wanted is not None
        scenario = put_all(scenario, how.conditions)
        drafted = replace(scenario, speculation=wanted)
        if float(fit(drafted).cap) < 1:
            yield _NAN, _NAN, _NAN, _NAN
            continue
        machine, draft = machine_of(scenario.system), draft_scenario(drafted)
        running, context = float(load.concurrency / plan.groups), float(load.prompt + load.output / 2)
        step = speculative.speculative_step(
            draft=0.0 if draft is None else machine.decode(draft, running, context).time,
            drafted=how.passes,
            verify=machine.decode(target_scenario(drafted), running, context, how.verified).time,
            host=wanted.host_time,
        )
        alone = machine.decode(scenario, running, context).time
        speedup = speculative.speculative_speedup(length=how.length, plain=alone, step=step)
        asked.row.notes.append(how.note)
        value = speedup if asked.form.how == "speedup" else how.length / step
        yield float(value), _NAN, _NAN, float(plan.tp * plan.pp * plan.groups)


def _static(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give what a static batch comes to that nothing else disturbs, without a server in front of it."""
    for asked, scenario in zip(group, scenarios, strict=True):
        load, plan, machine = scenario.traffic, scenario.deployment, machine_of(scenario.system)
        memory, chips = fit(scenario), float(plan.tp * plan.pp * plan.groups)
        batch = float(load.concurrency / plan.groups)
        # What the cache does not hold runs after the rest.
        together = min(batch, max(1.0, float(memory.cap)))
        if not float(memory.cap) >= 1:
            yield _NAN, _NAN, _NAN, _NAN
            continue
        first = float(machine.batch_prefill(scenario, together, load.prompt))
        token = float(machine.decode(scenario, together, load.prompt + load.output / 2).time)
        whole = (first + max(0.0, float(load.output) - 1) * token) * max(1.0, batch / together)
        rate = float(load.concurrency) / whole
        metrics = {
            **dict.fromkeys(METRICS, _NAN),
            **{"ttft_s": first, "ttft_median_s": first, "tpot_s": token, "request_latency_s": whole},
            **{"output_tokens_per_s": rate * float(load.output), "input_tokens_per_s": rate * float(load.prompt)},
        }
        assert asked.form.value is not None
        answer = Prediction(scenario, metrics, {}, {}, memory.cap * plan.groups, True, chips)
        value = float(asked.form.value(answer))
        wide = math.exp(max(time_spreads(scenario)))
        yield value, value / wide, value * wide, chips


def _pools(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give what two pools come to in a closed loop."""
    for asked, scenario in zip(group, scenarios, strict=True):
        assert asked.prefill is not None
        chips = sum(float(plan.tp * plan.pp * plan.groups) for plan in (asked.prefill.deployment, scenario.deployment))
        if not min(float(fit(one).cap) for one in (asked.prefill, scenario)) >= 1:
            yield _NAN, _NAN, _NAN, _NAN
            continue
        pools = closed_pools(asked.prefill, scenario, number(asked.row.given, "decode_batch") or math.inf)
        value = {
            "ttft": pools.ttft,
            "ttft_median": pools.ttft_median,
            "tpot": pools.tpot,
            "latency": pools.latency,
            "output": pools.rate * pools.output,
            "output_chip": pools.rate * pools.output / chips,
            "user": 1 / pools.tpot,
        }[asked.key]
        ttft, tpot = time_spreads(scenario)
        wide = math.exp((ttft if asked.key.startswith("ttft") else tpot) * POOLS_WIDER)
        yield value, value / wide, value * wide, chips


#: By how much the bands of two pools are wider: nothing was fitted on them.
POOLS_WIDER = 1.5


def _collective(group: Sequence[Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the time of an all-reduce: the engine's own where the row names one, else that of NCCL."""
    for asked, scenario in zip(group, scenarios, strict=True):
        ranks, message = float(scenario.deployment.tp), float(scenario.traffic.prompt)
        times = list(machine_of(scenario.system).collective(scenario.system, "all-reduce", ranks, message).values())
        if not times:
            asked.row.reason = "the links of this machine are not published"
            yield _NAN, _NAN, _NAN, _NAN
            continue
        nccl = "nccl" in asked.row.given.get("engine", "").casefold()
        yield float(times[-1] if nccl else times[0]), _NAN, _NAN, ranks


_WAYS: dict[str, Callable[[Sequence[Asked], Sequence[Scenario]], Iterator[tuple[float, float, float, float]]]] = {
    "loop": _loop,
    "most": _most,
    "prompt": _prompt,
    "step": _step,
    "context": _context,
    "curve": _curve,
    "static": _static,
    "pools": _pools,
    "collective": _collective,
    "mtp": _drafted,
    "speedup": _drafted,
}


def _misfit(scenario: Scenario) -> str:
    plan, held = scenario.deployment, fit(scenario)
    return (
        f"does not fit {scenario.system.name} at TP {plan.tp:g}: {float(held.weights) / 1e9:.3g} GB of weights a chip, "
        f"{float(held.room) / 1e9:.3g} GB left for the cache"
    )


def answer(waiting: list[Asked], tick: Tick) -> None:
    """Predict every row: its own layout first, the next one for those that it cannot hold."""
    reasons: dict[int, str] = {}
    for _ in range(12):
        groups: dict[tuple[Any, ...], list[tuple[Asked, Scenario, str]]] = defaultdict(list)
        for asked in waiting:
            try:
                scenario, note = next(asked.layouts)
            except StopIteration:
                asked.row.reason = reasons.get(id(asked), "no layout of this model on these chips can be used")
                tick(1)
            except Unanswered as why:
                asked.row.reason = str(why)
                tick(1)
            else:
                groups[_group_key(asked, scenario)].append((asked, scenario, note))
        waiting = []
        for members in groups.values():
            group, scenarios = [one for one, _, _ in members], [scenario for _, scenario, _ in members]
            results = _WAYS[group[0].form.how](group, scenarios)
            for (asked, scenario, note), (value, low, high, chips) in zip(members, results, strict=True):
                if math.isfinite(value):
                    _fill(asked, value, low, high, chips, note)
                    tick(1)
                elif asked.row.reason:
                    tick(1)
                else:
                    reasons.setdefault(id(asked), _misfit(scenario))
                    waiting.append(asked)
        if not waiting:
            return
    for asked in waiting:
        asked.row.reason = reasons[id(asked)]
        tick(1)


def _fill(asked: Asked, value: float, low: float, high: float, chips: float, note: str) -> None:
    """Write a prediction into its row, in the row's own unit."""
    scale = asked.scale
    if asked.per == "chip" and not asked.key.endswith("_chip"):
        scale *= chips
    elif asked.per == "user" and asked.form.family == "output throughput":
        scale *= number(asked.row.given, "concurrency_or_batch") or 1.0
    asked.row.predicted, asked.row.low, asked.row.high = value / scale, low / scale, high / scale
    if note:
        asked.row.notes.append(note)

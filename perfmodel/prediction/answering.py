"""The answer to one scenario: evaluated, with its band, its warnings and which changes moved nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from perfmodel.entered import idle, unmoved
from perfmodel.machines.step import CAUSES
from perfmodel.prediction.answer import Prediction
from perfmodel.prediction.bands import (
    Effect,
    band_of,
    effects_of,
    estimates_of,
    money_band,
    money_effects,
    money_warnings,
    times_of,
)
from perfmodel.prediction.evaluation import ALL, answer_of, content, evaluate, numbers, traced
from perfmodel.prediction.notes import misfit, warnings_of
from perfmodel.serving.steady import steady_state
from perfmodel.specs.types import Scenario


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
    answer = plain = answer_of(scenario, steady, ALL)
    if scenario.speculation is not None and answer.fits:
        plain = evaluate(replace(scenario, speculation=None), ("tpot_s", "breakdown"))
    reason = ""
    limits: dict[str, str] = {}
    effects: list[Effect] = []
    money: list[Effect] = []
    band: dict[str, dict[str, float]] = {}
    room = float(answer.memory["kv_room"])
    if not answer.fits and room == room:
        reason = misfit(scenario, answer)
    elif not np.isfinite(answer.metrics["request_latency_s"]):
        ledger, nodes = traced(scenario)
        times = [nodes.metrics[key] for key in times_of(scenario)]
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
        money = money_effects(scenario, answer, steady)
        band |= money_band(answer, band, money)
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
            *warnings_of(scenario, answer, plain),
            *estimates_of(effects),
            *money_warnings(scenario, answer, money),
        ),
    )

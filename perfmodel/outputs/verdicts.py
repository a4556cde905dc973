"""The first line of an answer: what was found, its number with the range, and the condition."""

from __future__ import annotations

import re
import textwrap
from typing import Any

from perfmodel.evidence.validate import Validation
from perfmodel.outputs.tables import plan_degrees, span
from perfmodel.planning.collective import Collective
from perfmodel.planning.fit import FitAnswer
from perfmodel.planning.simulate import Comparison
from perfmodel.planning.solve import Solution
from perfmodel.results import is_better_low
from perfmodel.specs.units import show

#: What an estimate that is not known does to the tokens of a cache.
_MOVES = re.compile(r"moves the tokens ([+-]\d+)% to ([+-]\d+)%")


def print_first(said: str, console: Any) -> None:
    """Print a verdict, which stands out.

    Parameters
    ----------
    said : str
    console : rich.console.Console
    """
    from rich.text import Text

    console.print(Text(textwrap.fill(said, console.width), style="bold"))


def collective_verdict(answer: Collective) -> str:
    """Return how long a collective takes, in a sentence.

    Parameters
    ----------
    answer : Collective

    Returns
    -------
    str
    """
    (first, took), *others = answer.times.items()
    beside = "".join(f"; {show(time, 's', 3)} by {name}" for name, time in others)
    what = f"{answer.operation} of {show(answer.message, 'B', 4)} on {answer.ranks:g} ranks"
    return (
        f"{answer.system.name}, {answer.engine}: {what} takes {show(took, 's', 3)} by {first}{beside}; "
        "in a CUDA graph, nothing beside it."
    )


def fit_verdict(answer: FitAnswer) -> str:
    """Return whether a model fits and how much cache is left, in a sentence.

    Parameters
    ----------
    answer : FitAnswer

    Returns
    -------
    str
    """
    scenario = answer.scenario
    plan = scenario.deployment
    where = f"{scenario.system.name} {plan_degrees(plan)}"
    if not answer.fits:
        return f"{where} does not hold {scenario.model.name}: {answer.reason}"
    moved = [ends for line in answer.warnings for ends in _MOVES.findall(line)]
    widest = max(moved, key=lambda ends: int(ends[1]) - int(ends[0]), default=None)
    moves = f" ({widest[0]}% to {widest[1]}% by one estimate)" if widest else ""
    return (
        f"{where} holds {scenario.model.name} and {answer.kv_tokens:,.0f} tokens of KV cache{moves}: "
        f"{answer.requests:,.0f} requests of {answer.context:,.0f} tokens at once, {plan.precision} weights, "
        f"{plan.kv_precision} KV, {plan.engine}."
    )


def solution_verdict(solved: Solution) -> str:
    """Return the value of an input at which a target is met, in a sentence.

    Parameters
    ----------
    solved : Solution

    Returns
    -------
    str
    """
    side = "at most" if is_better_low(solved.metric) else "at least"
    aim = f"{solved.metric} of {side} {show(solved.target, solved.metric_unit)}"
    if solved.reason:
        return f"no {solved.path} gives {aim}: {solved.reason}"
    change = f", x{solved.value / solved.current:.4g}" if solved.current > 0 else ""
    now = show(solved.current, solved.unit, 4)
    return (
        f"{solved.path} {show(solved.value, solved.unit, 4)} (now {now}{change}; no band) "
        f"gives {aim}, {solved.question['model']} on {solved.question['system']}."
    )


def simulation_verdict(result: Comparison) -> str:
    """Return the tail of what was simulated beside that of the closed form, in a sentence.

    Parameters
    ----------
    result : Comparison

    Returns
    -------
    str
    """
    said, closed = [], []
    gaps = result.differences()
    for time, name in (("ttft_s", "TTFT"), ("tpot_s", "TPOT")):
        known = result.simulated.get(time, {})
        what = "p99" if known.get("p99") is not None else "mean"
        ran, error = known.get(what), result.errors.get(time, {}).get(what)
        if ran is None:
            continue
        word = what.upper() if what != "mean" else what
        known_to = "" if error is None else f" ({span({'low': ran * (1 - error), 'high': ran * (1 + error)}, 's')})"
        said.append(f"{word} {name} {show(ran, 's', 3)}{known_to}")
        gap = gaps.get(time, {}).get(what)
        closed += [] if gap is None else [f"{name} by {_percent(gap)}"]
    replicas = "" if result.replicas == 1 else f" on each of {result.replicas} replicas"
    beside = f"; the closed form is off in {', '.join(closed)}" if closed else ""
    where = f"{result.scenario.system.name} {plan_degrees(result.scenario.deployment)}"
    load = f"at {result.rate:.4g} requests/s{replicas}"
    # No band of the machine: what more draws would move.
    what = "simulated; ranges are standard errors of the draws"
    return f"{where} ({what}): {', '.join(said)} {load}{beside}."


def _percent(gap: float) -> str:
    said = f"{gap:+.0%}"
    return "0%" if said in ("+0%", "-0%") else said


def validation_verdict(result: Validation) -> str:
    """Return how far predictions lie from measurements, in a sentence.

    Parameters
    ----------
    result : Validation

    Returns
    -------
    str
    """
    said = []
    for data in result.files():
        scores = [one for one in result.of(data, "predicted", "metric") if one.answered]
        for one in sorted(scores, key=lambda score: -score.answered)[:2]:
            band = "" if one.in_band != one.in_band else f", {one.in_band:.0%} in the 80 % band"
            said.append(
                f"{one.group[0]} is {one.median:.0%} off in the median of {one.answered:,} predicted values of {data} "
                f"(worst {one.worst:+.0%}{band})"
            )
    return (
        f"{'; '.join(said)}."
        if said
        else "nothing was predicted: each row was fitted on, is anomalous or has no answer."
    )

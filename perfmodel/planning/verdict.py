"""The answer of a search in sentences: what to take, how its number came about, and what each system asked for says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfmodel.planning.load import Sized, plan_name
from perfmodel.serving.objectives import Objectives, phrase
from perfmodel.specs.units import show


def asked(objectives: Objectives) -> str:
    """Return objectives in words.

    Parameters
    ----------
    objectives : Objectives
    """
    words = [f"{phrase(key)} within {show(limit, 's', 3)}" for key, limit in objectives.limits.items()]
    return ", ".join(words) or "no objective"


def _money(answer: Sized) -> str:
    return f", {answer.usd_per_hour:,.4g} USD an hour" if math.isfinite(answer.usd_per_hour) else ""


def _range(answer: Sized) -> str:
    """Return the chips of an answer, with what the spread of the prediction takes."""
    sure = answer.sure
    if sure is None:
        return f"{answer.chips:,.0f} chips"
    most = f"{sure.most:,.0f}" if math.isfinite(sure.most) else "any number, none of which serves"
    return f"{answer.chips:,.0f} chips ({sure.least:,.0f} to {most})"


def condition(answer: Sized) -> str:
    """Return under which condition an answer holds, in words.

    Parameters
    ----------
    answer : Sized
    """
    if not answer.load.objectives.limits:
        return "which keeps up, however long requests wait"
    words = []
    if answer.checked is not None:
        words.append(f"{answer.checked.words()} of {show(answer.checked.limits[answer.checked.nearest], 's', 3)}")
    else:
        words.append("by the closed form, not simulated")
    if answer.sure is not None:
        words.append(f"met with a probability of {answer.sure.probability:.2f} over what is not known of the machine")
    return "; ".join(words)


def came_about(answer: Sized) -> str:
    """Return how the number of chips came about, in a sentence.

    Parameters
    ----------
    answer : Sized
    """
    system, count = answer.scenario.system, answer.load.replicas
    replicas = f"{count:,} replica{'s' if count > 1 else ''} of {plan_name(answer.scenario)}"
    units = answer.chips / float(system.chips_per_node)
    nodes = f", {units:,.0f} node{'s' if units > 1 else ''}" if system.sold_by == "node" and units == int(units) else ""
    spared = answer.availability
    spares = f", and {spared.spares:,} spare {spared.unit}" if spared is not None and spared.spares > 0 else ""
    return f"{system.name}: {answer.chips:,.0f} chips{nodes} = {replicas}{spares}"


def verdict(answers: Sequence[Sized], reason: str) -> str:
    """Return what to take, how many of it, and under which condition.

    Parameters
    ----------
    answers : sequence of Sized
        The best first.
    reason : str
        Why there is none, where there is none.
    """
    if not answers:
        return f"nothing of what was asked serves it: {reason}"
    best = answers[0]
    name = best.scenario.system.name
    return f"{name}, {_range(best)}{_money(best)}: {condition(best)}"


def lines(answers: Sequence[Sized], unserved: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line a system that was asked for: how its number came about, or why nothing serves on it.

    Parameters
    ----------
    answers : sequence of Sized
    unserved : sequence of (str, str)
        Systems on which nothing serves, and why.
    """
    found = [came_about(answer) for answer in answers]
    return [*found, *(f"{name}: nothing serves it: {why}" for name, why in unserved)]


def floor_words(answer: Sized) -> list[str]:
    """Return what objectives cannot go below on the plan of an answer.

    Parameters
    ----------
    answer : Sized
    """
    plan = plan_name(answer.scenario)
    return [
        f"{phrase(key)} cannot go below {show(value, 's', 3)} on an idle {plan} of {answer.scenario.system.name}"
        for key, value in answer.floors.items()
        if math.isfinite(value)
    ]


def price_words(answer: Sized) -> list[str]:
    """Return what other limits of each objective take, a line an objective.

    Parameters
    ----------
    answer : Sized
    """
    words = []
    for key in answer.load.objectives.limits:
        parts = []
        for price in answer.prices:
            if price.objective != key:
                continue
            money = f", {price.usd_per_hour:,.4g} USD an hour" if math.isfinite(price.usd_per_hour) else ""
            chips = f"{price.chips:,.0f} chips{money}" if price.replicas else "no number of chips"
            parts.append(f"{show(price.limit, 's', 3)}: {chips}")
        if parts:
            words.append(f"{phrase(key)} within {'; '.join(parts)}")
    return words

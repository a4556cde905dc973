"""How much each input moves a result: elasticities from derivatives, and jumps from one broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.prediction import evaluate, traced
from perfmodel.results import results
from perfmodel.specs.paths import get, put, range_at
from perfmodel.specs.types import Scenario
from perfmodel.tape.gradient import gradient
from perfmodel.tape.numbered import Numbered, number
from perfmodel.trace import Input

#: Share by which an input moves up and down.
STEP = 0.01


@dataclass(frozen=True)
class Elasticity:
    """Percent by which a result moves when one input moves by one percent; NaN where a move ends the answer.

    ``switches`` says that the result jumps within that percent, so that the number is no slope.
    """

    path: str
    unit: str
    value: float
    elasticity: float
    switches: bool = False


def elasticities(scenario: Scenario, name: str) -> list[Elasticity]:
    """Return the elasticity of a result to each input it depends on, the strongest first, jumps and ends last.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    name : str
        A name of :func:`perfmodel.results.results`.

    Returns
    -------
    list of Elasticity
        Inputs of 0, and those not published, have none and are left out.

    Notes
    -----
    Exact derivatives of the trace (:mod:`perfmodel.tape.gradient`), at the corner of a maximum those of the side that
    counts.  Whole numbers have none, and are moved to the neighbours on either side instead.  Whether a result jumps is
    seen from inputs moved 1 % up and down, and half of that: each in four points of one axis, so that one evaluation
    gives all.
    """
    ledger, answer = traced(scenario)
    result = results(answer)[name]
    reached = [entry for entry in ledger.reached([result]).values() if entry.value == entry.value and entry.value != 0]
    count = len(reached)
    moves = (1 + STEP, 1 - STEP, 1 + STEP / 2, 1 - STEP / 2)
    placed = scenario
    for at, entry in enumerate(reached):
        column = np.full((len(moves), count), entry.value)
        column[:, at] *= moves
        placed = put(placed, entry.path, column.ravel())
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = np.log(np.broadcast_to(results(evaluate(placed))[name], len(moves) * count).reshape(len(moves), count))
        slopes = (moved[0] - moved[1]) / math.log(moves[0] / moves[1])
        finer = (moved[2] - moved[3]) / math.log(moves[2] / moves[3])
        # A jump is as high over half the distance.
        jumps = np.abs(finer - slopes) > 0.3 * np.abs(slopes) + 1e-3
    exact = _exact(scenario, name, result, reached)
    elastic = [
        # Where a move of a percent ends the answer, no slope says how far one may go.
        Elasticity(
            entry.path,
            entry.unit,
            entry.value,
            float(exact.get(entry.path, slope) if slope == slope else slope),
            bool(jump),
        )
        for entry, slope, jump in zip(reached, slopes, jumps, strict=True)
    ]
    return sorted(elastic, key=_rank)


def _exact(scenario: Scenario, name: str, result: Any, reached: Sequence[Input]) -> dict[str, float]:
    """Return the elasticities that derivatives, or differences to the neighbours of whole numbers, give by path."""
    program = number({name: result})
    inputs = {path: float(get(scenario, path)) for path in program.inputs}
    try:
        slopes = gradient(program, name).evaluate(inputs)
    except ArithmeticError:
        slopes = {}
    exact = {}
    for entry in reached:
        if _is_whole(scenario, entry):
            exact[entry.path] = _to_neighbours(program, name, inputs, entry)
        elif entry.path in slopes:
            exact[entry.path] = slopes[entry.path] * entry.value / slopes[name]
    return {path: value for path, value in exact.items() if math.isfinite(value)}


def _is_whole(scenario: Scenario, entry: Input) -> bool:
    """Whether an input counts things, so that the next value it can have is a whole one away."""
    counts = range_at(scenario, entry.path).whole or entry.path == "traffic.concurrency"
    return counts and entry.value == math.floor(entry.value)


def _to_neighbours(program: Numbered, name: str, inputs: Mapping[str, float], entry: Input) -> float:
    """Return the elasticity between the whole numbers beside an input; below 1 there is none."""
    ends = (max(1.0, entry.value - 1), entry.value + 1)
    try:
        low, high = (program.evaluate({**inputs, entry.path: end})[name] for end in ends)
    except ArithmeticError:
        return math.nan
    if not high / low > 0:
        return math.nan
    return math.log(high / low) / math.log(ends[1] / ends[0])


def _rank(one: Elasticity) -> tuple[bool, bool, float]:
    ended = one.elasticity != one.elasticity
    return ended, one.switches, 0.0 if ended else -abs(one.elasticity)

"""How much each input moves a result: elasticities from one broadcast."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perfmodel.prediction import evaluate, traced
from perfmodel.results import results
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario

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
    Central differences of logarithms over inputs 1 % up and 1 % down, and over half of that.  Each input moves in four
    points of one axis, so that one evaluation gives all.  At the corner of a maximum the two sides are averaged.
    """
    ledger, answer = traced(scenario)
    reached = [
        entry
        for entry in ledger.reached([results(answer)[name]]).values()
        if entry.value == entry.value and entry.value != 0
    ]
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
    found = [
        Elasticity(entry.path, entry.unit, entry.value, float(slope), bool(jump))
        for entry, slope, jump in zip(reached, slopes, jumps, strict=True)
    ]
    return sorted(found, key=_rank)


def _rank(one: Elasticity) -> tuple[bool, bool, float]:
    ended = one.elasticity != one.elasticity
    return ended, one.switches, 0.0 if ended else -abs(one.elasticity)

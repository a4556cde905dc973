"""Break-even: the value of one input at which a result meets a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.prediction import evaluate
from perfmodel.question import check_plan
from perfmodel.specs.paths import full_path, get, in_range, put, unit_at
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse, show
from perfmodel.studies.results import is_better_low, result_name, results, unit_of

#: How far from its present value an input is searched, as a factor up and down.
REACH = 1e3
#: Where an input has no value yet: the ends of the search by unit.
_ANYWHERE = {
    "s": (1e-9, 1e3),
    "B": (1e3, 1e15),
    "B/s": (1e6, 1e17),
    "FLOP/s": (1e9, 1e19),
    "W": (1e-1, 1e6),
    "USD": (1e-2, 1e9),
    "1": (1e-6, 1e6),
}
_POINTS = 1201
#: Inputs of traffic that are whole numbers to whoever asks.
_COUNTED = ("traffic.concurrency", "traffic.prompt", "traffic.output")


@dataclass(frozen=True)
class Solution:
    """The value of an input at which a result meets a target, or why there is none.

    Attributes
    ----------
    metric, path : str
    metric_unit, unit : str
    target : float
    current, now : float
        Present values of the input and of the result; NaN where there is none.
    value : float
        The input at the target; NaN where there is no solution.
    reached : float
        The result there.
    beyond : float
        The result just on the other side, where it jumps over the target; else NaN.
    form : str
        The closed form that the result has in the input around the solution, where it has a simple one.
    limit : float
        What the closed form tends to as the input improves without end; NaN where nothing bounds it.
    reason : str
        Why there is no solution, and what bounds the result; else empty.
    """

    metric: str
    path: str
    metric_unit: str
    unit: str
    target: float
    current: float
    now: float
    value: float = math.nan
    reached: float = math.nan
    beyond: float = math.nan
    form: str = ""
    limit: float = math.nan
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object; what does not exist is null."""
        return {
            key: None if value != value or value == "" else value
            for key, value in ((key, getattr(self, key)) for key in self.__dataclass_fields__)
        }


def solve(scenario: Scenario, metric: str, path: str, target: str | float) -> Solution:
    """Find where a result meets a target as one input varies, nearest to the input's present value.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    metric : str
        A name of :func:`perfmodel.studies.results.results`, its unit suffix optional.
    path : str
        The input; its root may be left out.
    target : str or float
        With its unit: ``20 ms``.

    Returns
    -------
    Solution
        Times, bytes, power and cost are asked to be at most the target, all else at least.

    Notes
    -----
    One broadcast over six decades finds where the answer changes sides, ``brentq`` on the whole prediction finds the
    point.  Whole numbers are searched among those that can be laid out.  Around the point the prediction is tried for
    the forms a + b·x and a + b/x, also of its reciprocal; where one holds to 1e-9 it gives the value in closed form.
    """
    where = full_path(scenario, path)
    if isinstance(get(scenario, where), bool | str):
        raise UserError(f"--for {path}: is a word, not a number; compare the choices instead")
    unit = unit_at(scenario, where)
    name = result_name(metric, results(evaluate(scenario)))
    wanted = parse(target, unit_of(name)) if isinstance(target, str) else float(target)
    if not wanted > 0:
        raise UserError(f"--target {target}: must be more than 0")

    def predicted(value: Any) -> Any:
        return results(evaluate(put(scenario, where, value)))[name]

    def single(value: float) -> float:
        return float(predicted(value))

    low_is_good = is_better_low(name)

    def meets(values: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return np.less_equal(values, wanted) if low_is_good else np.greater_equal(values, wanted)

    current = float(get(scenario, where))
    asked = Solution(name, where, unit_of(name), unit, wanted, current, single(current))
    points = _points(scenario, where, unit, current)
    if not len(points):
        raise UserError(f"--for {path}: there is no value to try")
    laid_out = where.startswith("deployment.")
    values = (
        np.array([single(point) for point in points]) if laid_out else np.broadcast_to(predicted(points), len(points))
    )
    good = meets(values)
    flips = np.flatnonzero(good[1:] != good[:-1])
    if not len(flips):
        return _unsolved(scenario, asked, points, values, bool(good[0]))
    centre = current if current > 0 else float(np.sqrt(points[0] * points[-1]) or points[-1])
    at = min(flips, key=lambda flip: abs(math.log(max(points[flip + 1], 1e-300) / centre)))
    inside, outside = map(float, (points[at], points[at + 1]) if good[at] else (points[at + 1], points[at]))
    if laid_out:
        return _found(asked, inside, single, single(outside))
    if where in _COUNTED:
        while abs(inside - outside) > 1:
            middle = float(round(0.5 * (inside + outside)))
            inside, outside = (middle, outside) if bool(meets(single(middle))) else (inside, middle)
        return _found(asked, inside, single, single(outside))
    found, beyond = _cross(single, wanted, inside, outside, meets)
    return _with_form(_found(asked, found, single, beyond), single)


def _found(asked: Solution, value: float, single: Callable[[float], float], beyond: float) -> Solution:
    return replace(asked, value=value, reached=single(value), beyond=beyond)


def _points(scenario: Scenario, where: str, unit: str, current: float) -> Any:
    """Return the values of an input to try, in rising order."""

    def allowed(value: float) -> bool:
        try:
            in_range("", where, value)
            if where.startswith("deployment."):
                changed = put(scenario, where, value)
                check_plan(changed.model, changed.system, changed.deployment)
        except UserError:
            return False
        return True

    if where.startswith("deployment."):
        most = max(256, int(4 * current))
        return np.array([float(count) for count in range(1, most + 1) if allowed(float(count))])
    low, high = (current / REACH, current * REACH) if current > 0 else _ANYWHERE.get(unit, _ANYWHERE["1"])
    spread = np.geomspace(low, high, _POINTS)
    if where in _COUNTED:
        return np.unique(np.round(np.geomspace(1.0, max(high, 2.0), _POINTS)))
    if current == 0:
        spread = np.concatenate([[0.0], spread])
    kept = [point for point in spread if allowed(float(point))]
    # The end of a range, such as an efficiency of 1, is a value too.
    if len(kept) < len(spread) and kept and allowed(1.0) and kept[-1] < 1.0:
        kept.append(1.0)
    return np.array(kept)


def _cross(
    single: Callable[[float], float], wanted: float, inside: float, outside: float, meets: Callable[[float], Any]
) -> tuple[float, float]:
    """Return the last value on the side that meets the target, and the result beyond it where it jumps there."""
    from scipy.optimize import brentq

    ends = single(inside), single(outside)
    if all(map(math.isfinite, ends)) and ends[0] != wanted:
        root = float(brentq(lambda value: single(value) - wanted, inside, outside, xtol=1e-300, rtol=1e-14))
        past = root * (1 + math.copysign(1e-7, outside - inside))
        if math.isclose(single(root), wanted, rel_tol=1e-9) and not bool(meets(single(past))):
            return root, math.nan
    for _ in range(200):
        middle = 0.5 * (inside + outside)
        if middle in (inside, outside):
            break
        if bool(meets(single(middle))):
            inside = middle
        else:
            outside = middle
    beyond = single(outside)
    return inside, math.nan if math.isclose(beyond, wanted, rel_tol=1e-9) else beyond


def _with_form(solution: Solution, single: Callable[[float], float]) -> Solution:
    """Return a solution with its closed form, where the result has one in the input around it."""
    x, target = solution.value, solution.target
    if x <= 0 or solution.beyond == solution.beyond:
        return solution
    near = np.array([0.97, 0.99, 1.0, 1.004, 1.01])
    inverse_of_metric = solution.metric_unit == "1/s"
    seen = np.array([single(x * factor) for factor in near])
    if not np.all(np.isfinite(seen)):
        return solution
    values = 1 / seen if inverse_of_metric else seen
    aim = 1 / target if inverse_of_metric else target
    for inverse in (False, True):
        basis = 1 / (x * near) if inverse else x * near
        slope = (values[-1] - values[0]) / (basis[-1] - basis[0])
        offset = values[0] - slope * basis[0]
        if slope == 0 or np.max(np.abs(offset + slope * basis - values)) > 1e-10 * np.max(np.abs(values)):
            continue
        root = (aim - offset) / slope
        root = 1 / root if inverse else root
        if not math.isclose(root, x, rel_tol=1e-7):
            continue
        limit = float(offset) if inverse and offset > 0 else math.nan
        left = f"1/{solution.metric}" if inverse_of_metric else solution.metric
        name = solution.path.rpartition(".")[2]
        form = f"{left} = {offset:.6g} {'-' if slope < 0 else '+'} {abs(slope):.6g} {'/' if inverse else '*'} {name}"
        limit = 1 / limit if inverse_of_metric else limit
        return replace(solution, value=float(root), reached=single(float(root)), form=form, limit=limit)
    return solution


def _unsolved(scenario: Scenario, asked: Solution, points: Any, values: Any, all_good: bool) -> Solution:
    """Return why no value of the input meets the target, or why every one does."""
    low, high = show(float(points[0]), asked.unit, 3), show(float(points[-1]), asked.unit, 3)
    aim = f"{asked.metric} of at {'most' if is_better_low(asked.metric) else 'least'} {_text(asked, asked.target)}"
    if all_good:
        return replace(asked, reason=f"every {asked.path} from {low} to {high} gives {aim}")
    if not np.any(np.isfinite(values)):
        said = "it does not fit at any of them" if asked.now != asked.now else "there is no answer at any of them"
        return replace(asked, reason=f"no {asked.path} from {low} to {high} gives {aim}: {said}")
    best = int(np.nanargmin(values) if is_better_low(asked.metric) else np.nanargmax(values))
    answer = evaluate(put(scenario, asked.path, float(points[best])))
    phase = "prefill" if asked.metric.startswith(("ttft", "input_tokens_per_s_per_user", "prefill")) else "decode"
    parts = {cause: float(value) for cause, value in answer.breakdown[phase].items()}
    whole = sum(parts.values())
    shares = sorted(((value / whole, cause) for cause, value in parts.items() if value > 0), reverse=True)[:3]
    bounds = ", ".join(f"{cause} {share:.0%}" for share, cause in shares)
    time = "TTFT" if phase == "prefill" else "TPOT"
    return replace(
        asked,
        reason=(
            f"no {asked.path} from {low} to {high} gives {aim}: the best is {_text(asked, float(values[best]))} at "
            f"{show(float(points[best]), asked.unit, 3)}, where {time} goes to {bounds}"
        ),
    )


def _text(asked: Solution, value: float) -> str:
    return show(value, asked.metric_unit, 4)

"""Break-even: the value of one input at which a result meets a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import counts, entered, idle, unmoved
from perfmodel.errors import UserError
from perfmodel.planning.closed_form import ClosedForm, closed_form
from perfmodel.prediction import MONEY, evaluate, question_of, traced
from perfmodel.question import check_plan
from perfmodel.results import is_better_low, result_name, results, unit_of
from perfmodel.shown import Shown
from perfmodel.specs.paths import check, full_path, get, put, range_at
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse, show
from perfmodel.trace import Line

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
#: Points that are tried between two of those to find the end of a regime.
_REFINED = 64
#: Inputs of traffic that are whole numbers to whoever asks.
_COUNTED = ("traffic.concurrency", "traffic.prompt", "traffic.output")


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """The value of an input at which a result meets a target, or why there is none.

    Attributes
    ----------
    metric, path : str
    metric_unit, unit : str
    target : float
    current, now : float
        Present values of the input and of the result; NaN where there is none.
    question : dict
        Model, system, plan and traffic.
    value : float
        The input at the target; NaN where there is no solution.
    reached : float
        The result there.
    beyond : float
        The result just on the other side, where it jumps over the target; else NaN.
    method : str
        How the value was found: ``closed form``, ``brentq`` (on the whole prediction), ``bisection`` (where the result
        jumps over the target) or ``search`` (among whole numbers).
    form : str
        The closed form that the result has in the input around the solution, where it has one.
    holds_from, holds_to : float
        Inputs between which the closed form is the whole prediction, as far as was searched.
    limit : float
        What the closed form tends to as the input improves without end, or down to 0; NaN where nothing bounds it.
    equations : tuple of Line
        Those that carry the input to the result where the closed form holds.
    reason : str
        Why there is no solution, and what bounds the result; else empty.
    mind : tuple of str
        Changes of the question that moved nothing of the result, whatever the input.
    assumed, warnings : tuple of str
        Of the question.
    """

    metric: str
    path: str
    metric_unit: str
    unit: str
    target: float
    current: float
    now: float
    question: shapes.Asked
    value: float = math.nan
    reached: float = math.nan
    beyond: float = math.nan
    method: str = ""
    form: str = ""
    holds_from: float = math.nan
    holds_to: float = math.nan
    limit: float = math.nan
    equations: tuple[Line, ...] = ()
    reason: str = ""
    mind: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> shapes.Solution:
        """Return the documented JSON object; what does not exist is null."""
        return {
            **self.question,
            "metric": self.metric,
            "metric_unit": self.metric_unit,
            "path": self.path,
            "unit": self.unit,
            "target": shapes.number(self.target),
            "current": shapes.number(self.current),
            "now": shapes.number(self.now),
            "value": shapes.number(self.value),
            "reached": shapes.number(self.reached),
            "beyond": shapes.number(self.beyond),
            "method": self.method or None,
            "form": self.form or None,
            "holds_from": shapes.number(self.holds_from),
            "holds_to": shapes.number(self.holds_to),
            "limit": shapes.number(self.limit),
            "equations": [{"name": line.name, "unit": line.unit, "source": line.source} for line in self.equations],
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": [*self.warnings, *self.mind],
        }


def solve(scenario: Scenario, metric: str, path: str, target: str | float) -> Solution:
    """Find where a result meets a target as one input varies, nearest to the input's present value.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    metric : str
        A name of :func:`perfmodel.results.results`, its unit suffix optional.
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
    point.  Whole numbers are searched among those that can be laid out.  The trace of the prediction at the point, each
    switch as it lies there, is a closed form of the input wherever only arithmetic is left of it; its root that agrees
    to 1e-9 is then the value.
    """
    where = full_path(scenario, path)
    if isinstance(get(scenario, where), bool | str):
        raise UserError(f"--for {path}: is a word, not a number; compare the choices instead")
    unit = range_at(scenario, where).unit
    name = result_name(metric, results(evaluate(scenario)))
    wanted = parse(target, unit_of(name)) if isinstance(target, str) else float(target)
    if not wanted > 0:
        raise UserError(f"--target {target}: must be more than 0")

    def predicted(value: Any) -> Any:
        # Far from where it stands an input may leave nothing to divide by.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return results(evaluate(put(scenario, where, value)))[name]

    def single(value: float) -> float:
        return float(predicted(value))

    low_is_good = is_better_low(name)

    def meets(values: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return np.less_equal(values, wanted) if low_is_good else np.greater_equal(values, wanted)

    current = float(get(scenario, where))
    asked = Solution(
        *(name, where, unit_of(name), unit, wanted, current, single(current)),
        question=question_of(scenario),
        assumed=scenario.assumed,
        warnings=scenario.warnings,
    )
    points = _points(scenario, where, unit, current)
    if not len(points):
        raise UserError(f"--for {path}: there is no value to try")

    def shown(one: Scenario) -> Any:
        return [results(evaluate(one))[name]]

    # What is not published enters where it is given.
    known = scenario if current == current else put(scenario, where, float(points[len(points) // 2]))
    if where not in entered(known, shown):
        words = f": {counts(where)}" if counts(where) else ""
        return replace(asked, reason=f"{where} is no input of {name} here{words}")
    laid_out = where.startswith("deployment.")
    values = (
        np.array([single(point) for point in points]) if laid_out else np.broadcast_to(predicted(points), len(points))
    )

    def at_points(one: Scenario) -> Any:
        return shown(put(one, where, current if laid_out else points))

    asked = replace(asked, mind=tuple(idle(scenario, unmoved(scenario, at_points), shown)))
    good = meets(values)
    flips = np.flatnonzero(good[1:] != good[:-1])
    if not len(flips):
        return _unsolved(scenario, asked, points, values, bool(good[0]))
    centre = current if current > 0 else float(np.sqrt(points[0] * points[-1]) or points[-1])
    at = min(flips, key=lambda flip: abs(math.log(max(points[flip + 1], 1e-300) / centre)))
    inside, outside = map(float, (points[at], points[at + 1]) if good[at] else (points[at + 1], points[at]))
    if laid_out:
        return _found(asked, inside, single, single(outside), "search")
    if where in _COUNTED:
        while abs(inside - outside) > 1:
            middle = float(round(0.5 * (inside + outside)))
            inside, outside = (middle, outside) if bool(meets(single(middle))) else (inside, middle)
        return _found(asked, inside, single, single(outside), "search")
    found, beyond = _cross(single, wanted, inside, outside, meets)
    if beyond == beyond:
        return _found(asked, found, single, beyond, "bisection")
    return _with_form(scenario, _found(asked, found, single, beyond, "brentq"), predicted, points, values)


def _found(asked: Solution, value: float, single: Callable[[float], float], beyond: float, method: str) -> Solution:
    return replace(asked, value=value, reached=single(value), beyond=beyond, method=method)


def _points(scenario: Scenario, where: str, unit: str, current: float) -> Any:
    """Return the values of an input to try, in rising order."""
    rule = range_at(scenario, where)

    def allowed(value: float) -> bool:
        try:
            changed = put(scenario, where, value)
            check(changed, (where,))
            if where.startswith("deployment."):
                check_plan(changed.model, changed.system, changed.deployment)
        except UserError:
            return False
        return bool(rule.holds(value))

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


def _with_form(
    scenario: Scenario, solution: Solution, predicted: Callable[[Any], Any], points: Any, values: Any
) -> Solution:
    """Return a solution with its closed form, where the result has one in the input around it."""
    ledger, answer = traced(put(scenario, solution.path, solution.value))
    form = closed_form(ledger, results(answer)[solution.metric], solution.path, solution.target)
    root = (
        next((each for each in form.roots if math.isclose(each, solution.value, rel_tol=1e-9)), None) if form else None
    )
    if form is None or root is None:
        return solution

    def differs(inputs: Any, whole: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.flatnonzero(~(np.abs(form(inputs) / whole - 1) <= 1e-9))

    def end(outward: Any, whole: Any) -> float:
        """Return how far the form holds from the root, along points that lie farther and farther from it."""
        wrong = differs(outward, whole)
        if not len(wrong):
            return float(outward[-1]) if len(outward) else root
        between = np.linspace(outward[wrong[0] - 1] if wrong[0] else root, outward[wrong[0]], _REFINED)
        wrong = differs(between, predicted(between))
        return float(between[max(wrong[0] - 1, 0)])

    at = int(np.searchsorted(points, root))
    return replace(
        solution,
        value=root,
        reached=float(predicted(root)),
        method="closed form",
        form=form.text(solution.metric, solution.path.rpartition(".")[2]),
        holds_from=end(points[:at][::-1], values[:at][::-1]),
        holds_to=end(points[at:], values[at:]),
        limit=_limit(form, solution, values),
        equations=form.lines,
    )


def _limit(form: ClosedForm, solution: Solution, values: Any) -> float:
    """Return the end of a closed form that is better than the target and than all that was seen, if one is."""
    sign = 1 if is_better_low(solution.metric) else -1
    best = float(np.nanmin(sign * values))
    good = [end for end in form.ends if end > 0 and sign * end < sign * solution.target]
    return next((end for end in good if sign * end <= best * (1 + sign * 1e-9)), math.nan)


def _unsolved(scenario: Scenario, asked: Solution, points: Any, values: Any, all_good: bool) -> Solution:
    """Return why no value of the input meets the target, or why every one does."""
    low, high = show(float(points[0]), asked.unit, 3), show(float(points[-1]), asked.unit, 3)
    aim = f"{asked.metric} of at {'most' if is_better_low(asked.metric) else 'least'} {_text(asked, asked.target)}"
    if np.all(values == values[0]):
        flat = f"{asked.metric} is {_text(asked, float(values[0]))}"
        return replace(asked, reason=f"{flat} at every {asked.path} from {low} to {high}")
    if all_good:
        return replace(asked, reason=f"every {asked.path} from {low} to {high} gives {aim}")
    if not np.any(np.isfinite(values)):
        said = "it does not fit at any of them" if asked.now != asked.now else "there is no answer at any of them"
        return replace(asked, reason=f"no {asked.path} from {low} to {high} gives {aim}: {said}")
    best = int(np.nanargmin(values) if is_better_low(asked.metric) else np.nanargmax(values))
    said = f"the best is {_text(asked, float(values[best]))} at {show(float(points[best]), asked.unit, 3)}"
    if asked.metric not in MONEY:
        said += f", where {_shares(put(scenario, asked.path, float(points[best])), asked.metric)}"
    return replace(asked, reason=f"no {asked.path} from {low} to {high} gives {aim}: {said}")


def _shares(scenario: Scenario, metric: str) -> str:
    """Return what takes most of the time that a result rests on."""
    phase = "prefill" if metric.startswith(("ttft", "input_tokens_per_s_per_user", "prefill")) else "decode"
    parts = {cause: float(value) for cause, value in evaluate(scenario).breakdown[phase].items()}
    whole = sum(parts.values())
    shares = sorted(((value / whole, cause) for cause, value in parts.items() if value > 0), reverse=True)[:3]
    time = "TTFT" if phase == "prefill" else "TPOT"
    return f"{time} goes to {', '.join(f'{cause} {share:.0%}' for share, cause in shares)}"


def _text(asked: Solution, value: float) -> str:
    return show(value, asked.metric_unit, 4)

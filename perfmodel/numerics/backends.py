"""What each operator does to floats, to NumPy arrays and to SymPy expressions."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

NAN = math.nan

#: Points of a piecewise linear curve: ((x0, y0), (x1, y1), ...), x rising.
Knots = Sequence[tuple[float, float]]


# --- the operators on floats -------------------------------------------------------------------------------------


def _float_exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _float_log(x: float) -> float:
    if x > 0.0:
        return math.log(x)
    return -math.inf if x == 0.0 else NAN


def _float_sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0.0 else NAN


def _snap(x: float) -> float:
    """Distance within which a value counts as the whole number above or below it."""
    return min(0.5, 1e-9 * max(1.0, abs(x)))


def _float_floor(x: float) -> float:
    return float(math.floor(x + _snap(x))) if math.isfinite(x) else x


def _float_ceil_div(a: float, b: float) -> float:
    return -_float_floor(-(a / b))


def _float_maximum(a: float, b: float) -> float:
    return a if (a >= b or a != a) else b


def _float_minimum(a: float, b: float) -> float:
    return a if (a <= b or a != a) else b


def _float_interpolate(x: float, knots: Knots) -> float:
    if x != x:
        return NAN
    xs = [knot[0] for knot in knots]
    at = min(max(bisect_right(xs, x), 1), len(xs) - 1)
    (x0, y0), (x1, y1) = knots[at - 1], knots[at]
    return y0 + (y1 - y0) / (x1 - x0) * (min(max(x, x0), x1) - x0)


def _float_switch_at(x: float, threshold: float, below: float, above: float) -> float:
    if x != x or threshold != threshold:
        return NAN
    return below if x < threshold else above


def _float_only_if(margin: float, value: float) -> float:
    return value if margin >= 0.0 else NAN


def _float_geometric_sum(a: float, n: float) -> float:
    if a != a or n != n:
        return NAN
    e = 1.0 - a
    if abs(e) * max(n, 1.0) < 1e-3:
        # The closed form loses all its digits near a = 1; four terms of its series are exact to 1e-13 there.
        return n * (1.0 - (n - 1.0) / 2.0 * e * (1.0 - (n - 2.0) / 3.0 * e * (1.0 - (n - 3.0) / 4.0 * e)))
    return float((1.0 - a**n) / e)


def _float_complement_power(p: float, n: float) -> float:
    if p != p or n != n or p > 1.0:
        return NAN
    if n == 0.0:
        return 1.0
    if p == 1.0:
        return 0.0
    return _float_exp(n * math.log1p(-p))


def _float_erlang_b(servers: float, load: float) -> float:
    if servers != servers or load != load:
        return NAN
    blocking = 1.0
    for k in range(1, int(_float_floor(servers)) + 1):
        blocking = load * blocking / (k + load * blocking)
    return blocking


def _float_annuity(rate: float, years: float) -> float:
    if rate == 0.0:
        return 1.0 / years
    return rate / -math.expm1(-years * math.log1p(rate))


# --- the same on arrays ------------------------------------------------------------------------------------------


def _array_snap(x: Any) -> Any:
    return np.minimum(0.5, 1e-9 * np.maximum(1.0, np.abs(x)))


def _array_floor(x: Any) -> Any:
    return np.floor(x + _array_snap(x))


def _array_interpolate(x: Any, knots: Knots) -> Any:
    xs, ys = zip(*knots, strict=True)
    return np.interp(x, xs, ys)


def _array_switch_at(x: Any, threshold: Any, below: Any, above: Any) -> Any:
    chosen = np.where(np.less(x, threshold), below, above)
    # The least of an array is NaN where one of its elements is: one pass, and mostly the only one.
    if not (np.isnan(np.min(x, initial=math.inf)) or np.isnan(np.min(threshold, initial=math.inf))):
        return chosen
    return np.where(np.isnan(x) | np.isnan(threshold), NAN, chosen)


def _array_geometric_sum(a: Any, n: Any) -> Any:
    e = 1.0 - np.asarray(a, dtype=float)
    near = np.abs(e) * np.maximum(n, 1.0) < 1e-3
    series = n * (1.0 - (n - 1.0) / 2.0 * e * (1.0 - (n - 2.0) / 3.0 * e * (1.0 - (n - 3.0) / 4.0 * e)))
    closed = (1.0 - np.power(a, n)) / np.where(near | (e == 0.0), 1.0, e)
    return np.where(np.isnan(n), NAN, np.where(near, series, closed))


def _array_complement_power(p: Any, n: Any) -> Any:
    p, n = np.asarray(p, dtype=float), np.asarray(n, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN goes in and comes out
        power = np.exp(n * np.log1p(-p))
    return np.where((n == 0.0) & (p == 1.0), 1.0, power)


_erlang_b_elements = np.vectorize(_float_erlang_b, otypes=[float])


def _array_erlang_b(servers: Any, load: Any) -> Any:
    with np.errstate(invalid="ignore"):  # NaN goes in and comes out
        return _erlang_b_elements(servers, load)


def _array_annuity(rate: Any, years: Any) -> Any:
    rate = np.asarray(rate, dtype=float)
    safe = np.where(rate == 0.0, 1.0, rate)
    return np.where(rate == 0.0, 1.0 / np.asarray(years, dtype=float), safe / -np.expm1(-years * np.log1p(safe)))


FLOAT: dict[str, Callable[..., float]] = {
    "exp": _float_exp,
    "log": _float_log,
    "sqrt": _float_sqrt,
    "floor": _float_floor,
    "ceil_div": _float_ceil_div,
    "maximum": _float_maximum,
    "minimum": _float_minimum,
    "interpolate": _float_interpolate,
    "switch_at": _float_switch_at,
    "only_if": _float_only_if,
    "geometric_sum": _float_geometric_sum,
    "complement_power": _float_complement_power,
    "erlang_b": _float_erlang_b,
    "annuity": _float_annuity,
}

ARRAY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "floor": _array_floor,
    "ceil_div": lambda a, b: -_array_floor(-(a / b)),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "interpolate": _array_interpolate,
    "switch_at": _array_switch_at,
    "only_if": lambda margin, value: np.where(np.greater_equal(margin, 0.0), value, NAN),
    "geometric_sum": _array_geometric_sum,
    "complement_power": _array_complement_power,
    "erlang_b": _array_erlang_b,
    "annuity": _array_annuity,
}


# --- the same on SymPy -------------------------------------------------------------------------------------------


def sympy_call(name: str, *args: Any) -> Any:
    """Build the operator as a SymPy expression; the caller's operand proves that SymPy is already imported.

    Parameters
    ----------
    name : str
        Of the operator.
    *args : SymPy expression or float

    Returns
    -------
    SymPy expression
    """
    sp: Any = sys.modules["sympy"]
    match name:
        case "exp" | "log" | "sqrt":
            return getattr(sp, name)(args[0])
        case "maximum":
            return sp.Max(*args)
        case "minimum":
            return sp.Min(*args)
        case "interpolate":
            x, knots = args
            pieces = (
                (y1 - y0) / (x1 - x0) * (sp.Min(sp.Max(x, x0), x1) - x0) for (x0, y0), (x1, y1) in pairwise(knots)
            )
            return knots[0][1] + sum(pieces)
        case "switch_at":
            x, threshold, below, above = args
            return sp.Piecewise((below, x < threshold), (above, True))
        case "only_if":
            margin, value = args
            return sp.Piecewise((value, margin >= 0), (sp.nan, True))
        case "geometric_sum":
            a, n = args
            return sp.Piecewise((n, sp.Eq(a, 1)), ((1 - a**n) / (1 - a), True))
        case "complement_power":
            p, n = args
            return (1 - p) ** n
        case "annuity":
            rate, years = args
            return sp.Piecewise((1 / years, sp.Eq(rate, 0)), (rate / (1 - (1 + rate) ** -years), True))
        case _:
            return _opaque(sp, name)(*args)


OPAQUE: dict[str, Any] = {}


def _opaque(sp: Any, name: str) -> Any:
    """A SymPy function that stays closed until its arguments are numbers.

    Lambdified special functions have given wrong numbers (SymPy #30199), and the snapping floor has no SymPy twin.
    """
    if name not in OPAQUE:

        def evaluate(cls: Any, *args: Any) -> Any:
            if all(arg.is_number for arg in args):
                return sp.Float(FLOAT[name](*(float(arg) for arg in args)))
            return None

        OPAQUE[name] = type(name, (sp.Function,), {"eval": classmethod(evaluate)})
    return OPAQUE[name]

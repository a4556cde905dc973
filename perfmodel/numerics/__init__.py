"""The operators an equation may use besides ``+ - * / **``.

Every function here takes floats, NumPy arrays, traced nodes (:mod:`perfmodel.trace`) or SymPy expressions and gives
the same kind back.  There is no general ``where``: a quantity never chooses a branch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from perfmodel.numerics.backends import ARRAY, FLOAT, OPAQUE, Knots, sympy_call
from perfmodel.numerics.backends import NAN as NAN

# glibc hands freed arrays back to the kernel and fetches them again page by page, which took more than half the time
# of a sweep.  Once it has freed one array of nearly 32 MiB, the largest that it learns from, it keeps what is smaller.
np.empty(31 * 2**17)


class Number(Protocol):
    """A float, a NumPy array, a traced node or a SymPy expression.

    The operators take and return ``Any`` because each backend gives back its own type.
    """

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __float__(self) -> float: ...


# --- dispatch ----------------------------------------------------------------------------------------------------


def _call(name: str, *args: Any) -> Any:
    numbers = True
    for arg in args:
        kind = type(arg)
        if kind is float or kind is int or kind is tuple:
            continue
        if isinstance(arg, np.ndarray):
            numbers = False
        elif isinstance(arg, np.generic):
            continue
        elif hasattr(arg, "apply"):
            return arg.apply(name, *args)
        elif kind.__module__.partition(".")[0] == "sympy" or kind in OPAQUE.values():
            return sympy_call(name, *args)
        else:
            raise TypeError(f"{name}: cannot use a value of type {kind.__name__}")
    return FLOAT[name](*args) if numbers else ARRAY[name](*args)


def exp(x: Any) -> Any:
    """E to the power x.

    Parameters
    ----------
    x : Number
        Exponent.

    Returns
    -------
    Number
    """
    return _call("exp", x)


def log(x: Any) -> Any:
    """Natural logarithm.

    Parameters
    ----------
    x : Number
        Above 0; minus infinity at 0, NaN below.

    Returns
    -------
    Number
    """
    return _call("log", x)


def sqrt(x: Any) -> Any:
    """Square root.

    Parameters
    ----------
    x : Number
        At least 0; NaN below.

    Returns
    -------
    Number
    """
    return _call("sqrt", x)


def floor(x: Any) -> Any:
    """Largest whole number not above x; within 1e-9 relative of a whole number x counts as that number.

    Parameters
    ----------
    x : Number

    Returns
    -------
    Number
        A whole number.
    """
    return _call("floor", x)


def ceil_div(a: Any, b: Any) -> Any:
    """Smallest whole number not below a / b, with the snap of :func:`floor`.

    Parameters
    ----------
    a, b : Number
        Dividend; divisor, not 0.

    Returns
    -------
    Number
        A whole number.
    """
    return _call("ceil_div", a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two; NaN if either is NaN.

    Parameters
    ----------
    a, b : Number

    Returns
    -------
    Number
    """
    if type(a) is float and type(b) is float:
        return a if (a >= b or a != a) else b
    return _call("maximum", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two; NaN if either is NaN.

    Parameters
    ----------
    a, b : Number

    Returns
    -------
    Number
    """
    if type(a) is float and type(b) is float:
        return a if (a <= b or a != a) else b
    return _call("minimum", a, b)


def interpolate(x: Any, knots: Knots) -> Any:
    """Piecewise linear through constant knots, clamped at both ends.

    Parameters
    ----------
    x : Number
    knots : sequence of (float, float)
        Points of the curve, x rising.

    Returns
    -------
    Number
    """
    return _call("interpolate", x, tuple(knots))


def switch_at(x: Any, threshold: Any, below: Any, above: Any) -> Any:
    """``below`` where x < threshold, else ``above``; NaN where x is NaN.  Both arms must be finite.

    Parameters
    ----------
    x, threshold : Number
    below, above : Number
        What holds on either side; both finite.

    Returns
    -------
    Number
    """
    return _call("switch_at", x, threshold, below, above)


def only_if(margin: Any, value: Any) -> Any:
    """``value`` where margin >= 0, else NaN: what exists only when it fits.

    Parameters
    ----------
    margin : Number
        What is left, in any unit.
    value : Number

    Returns
    -------
    Number
    """
    return _call("only_if", margin, value)


def geometric_sum(a: Any, n: Any) -> Any:
    """1 + a + ... + a^(n-1) = (1 - a^n) / (1 - a); n at a = 1.

    Parameters
    ----------
    a : Number
        Ratio of the series.
    n : Number
        Terms.

    Returns
    -------
    Number
    """
    return _call("geometric_sum", a, n)


def complement_power(p: Any, n: Any) -> Any:
    """(1 - p)^n; 0 at p = 1, 1 at n = 0.

    Parameters
    ----------
    p : Number
        Probability, at most 1.
    n : Number
        At least 0.

    Returns
    -------
    Number
    """
    return _call("complement_power", p, n)


def erlang_b(servers: Any, load: Any) -> Any:
    """Blocking probability of M/M/c/c at an offered load in erlang.

    Parameters
    ----------
    servers : Number
        Servers; a fraction of one is cut off.
    load : Number
        Offered load, arrival rate times service time.

    Returns
    -------
    Number
        Probability.
    """
    return _call("erlang_b", servers, load)


def annuity(rate: Any, years: Any) -> Any:
    """Capital recovery factor r / (1 - (1 + r)^-n); 1 / n at rate 0.

    Parameters
    ----------
    rate : Number
        Interest a year, at least 0.
    years : Number
        Life, above 0.

    Returns
    -------
    Number
        Share of the capital a year.
    """
    return _call("annuity", rate, years)


def total(values: Iterable[Any]) -> Any:
    """Return the sum, without the 0 that ``sum`` starts from and a trace would show.

    Parameters
    ----------
    values : iterable of Number
        One at least.

    Returns
    -------
    Number
    """
    first, *rest = values
    for value in rest:
        first = first + value
    return first

"""The closed form that a result has in one input, from the trace: one rational function for the regime that holds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.trace import Ledger, Line, Node, value_of

#: Beyond these a form is no longer worth reading, and could take long: degree at the end and on the way there, and
#: binary digits of a coefficient.
_MOST_DEGREE, _MOST_ON_THE_WAY, _MOST_DIGITS = 4, 12, 4096

#: A number that depends on the input, but by no rational function of it.
_OTHER = object()


@dataclass(frozen=True)
class ClosedForm:
    """A result as a rational function of one input.

    Attributes
    ----------
    above, below : tuple of float
        Coefficients of numerator and denominator, the constant first.
    roots : tuple of float
        Inputs of more than 0 at which the function meets the target.
    lines : tuple of Line
        The equations that carry the input to the result, in the order of the ledger.
    """

    above: tuple[float, ...]
    below: tuple[float, ...]
    roots: tuple[float, ...]
    lines: tuple[Line, ...]

    def __call__(self, x: Any) -> Any:
        """Return the result at an input, a float or an array."""
        above, below = (
            sum(factor * x**power for power, factor in enumerate(part)) for part in (self.above, self.below)
        )
        return above / below

    @property
    def ends(self) -> tuple[float, float]:
        """What the function tends to as the input goes to 0 and grows without end; NaN where that is not finite."""
        size = len(self.above) - len(self.below)
        at_zero = self.above[0] / self.below[0] if self.below[0] else math.nan
        far = self.above[-1] / self.below[-1] if size == 0 else 0.0 if size < 0 else math.nan
        return at_zero, far

    def text(self, result: str, name: str) -> str:
        """Return the function as text, or that of its reciprocal where this is the simpler one."""
        if len(_terms(self.below)) > 1 and len(_terms(self.above)) == 1:
            return f"1/{result} = {_quotient(self.below, self.above, name)}"
        return f"{result} = {_quotient(self.above, self.below, name)}"


def _terms(factors: Sequence[float]) -> list[tuple[float, int]]:
    return [(factor, power) for power, factor in enumerate(factors) if factor]


def _sum(terms: Sequence[tuple[float, int]], name: str) -> str:
    text = ""
    for factor, power in sorted(terms, key=lambda term: (term[1] < 0, abs(term[1]))):
        sign = ("-" if factor < 0 else "") if not text else " - " if factor < 0 else " + "
        raised = f"{name}^{abs(power)}" if abs(power) > 1 else name
        text += f"{sign}{abs(factor):.6g}" + ("" if not power else f" * {raised}" if power > 0 else f" / {raised}")
    return text


def _quotient(above: Sequence[float], below: Sequence[float], name: str) -> str:
    (scale, lowest), *more = _terms(below)
    if not more:
        return _sum([(factor / scale, power - lowest) for factor, power in _terms(above)], name)
    parts = [_sum([(factor / scale, power) for factor, power in _terms(part)], name) for part in (above, below)]
    return f"({parts[0]}) / ({parts[1]})"


class _Walk:
    """Turns nodes into exact rational functions of one input; None for what does not depend on it."""

    def __init__(self, path: str) -> None:
        from sympy import QQ
        from sympy.polys.fields import field

        self.path = path
        self.rational = QQ
        self.field, self.x = field("x", QQ)
        self.known: dict[int, Any] = {}

    def constant(self, value: float) -> Any:
        return self.field(self.rational(*float(value).as_integer_ratio()))

    def form(self, root: Node) -> Any:
        """Return the function that a node is, walking down from it."""
        stack = [root]
        while stack:
            node = stack[-1]
            below = [each for each in _below(node) if id(each) not in self.known]
            if below:
                stack += below
                continue
            stack.pop()
            self.known[id(node)] = self._checked(self._form(node))
        return self.known[id(root)]

    def _checked(self, form: Any) -> Any:
        if form is None or form is _OTHER:
            return form
        parts = (form.numer, form.denom)
        digits = (
            max(int(c.numerator).bit_length(), int(c.denominator).bit_length()) for p in parts for c in p.coeffs()
        )
        if max(part.degree() for part in parts) > _MOST_ON_THE_WAY or max(digits, default=0) > _MOST_DIGITS:
            return _OTHER
        return form

    def _form(self, node: Node) -> Any:
        if node.kind == "input":
            return self.x if node.label == self.path else None
        if node.line is not None:
            return self.known.get(id(node.line.formula))
        args = [self.known.get(id(arg)) for arg in node.args]
        if node.kind in _STEPS or all(arg is None for arg in args):
            return None
        if node.kind in _CHOICES:
            return self.known.get(id(next(_below(node), None)))
        values = [value_of(arg) for arg in node.args]
        if node.kind == "mul" and any(arg is None and value == 0 for arg, value in zip(args, values, strict=True)):
            return None
        if node.kind == "complement_power" and args[1] is None and values[1] == 0:
            return None
        if any(arg is _OTHER for arg in args):
            return _OTHER
        if node.kind == "interpolate":
            return self._piece(args[0], *values)
        return self._arithmetic(node.kind, args, values)

    def _arithmetic(self, kind: str, args: Sequence[Any], values: Sequence[Any]) -> Any:
        if any(not math.isfinite(value) for arg, value in zip(args, values, strict=True) if arg is None):
            return _OTHER
        forms = [self.constant(value) if arg is None else arg for arg, value in zip(args, values, strict=True)]
        if kind in _ARITHMETIC:
            return _ARITHMETIC[kind](*forms)
        count = values[-1]
        if kind not in _POWERS or args[-1] is not None or count != int(count):
            return _OTHER
        if abs(count) * max(_degree(forms[0]), 1) > _MOST_ON_THE_WAY:
            return _OTHER
        return _POWERS[kind](forms[0], int(count))

    def _piece(self, form: Any, x: float, knots: Sequence[tuple[float, float]]) -> Any:
        """Return the piece of a piecewise linear curve on which a value lies."""
        at = bisect_right([knot[0] for knot in knots], x)
        if at in (0, len(knots)):
            return None
        (x0, y0), (x1, y1) = knots[at - 1], knots[at]
        return self.constant(y0) + self.constant((y1 - y0) / (x1 - x0)) * (form - self.constant(x0))


def _degree(form: Any) -> int:
    return int(max(form.numer.degree(), form.denom.degree()))


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
}
#: What is multiplied out where the exponent is a small whole number.
_POWERS: dict[str, Callable[..., Any]] = {
    "pow": lambda a, n: a**n,
    "complement_power": lambda p, n: (1 - p) ** n,
    "geometric_sum": lambda a, n: sum(a**power for power in range(n)),
}

#: Which operand a node is, by their values; the whole numbers of ``_STEPS`` hold as they are.
_CHOICES: dict[str, Callable[..., int]] = {
    "argument": lambda _: 0,
    "maximum": lambda a, b: 0 if a >= b else 1,
    "minimum": lambda a, b: 0 if a <= b else 1,
    "switch_at": lambda x, threshold, *_: 2 if x < threshold else 3,
    "only_if": lambda *_: 1,
}
_STEPS = ("floor", "ceil_div")


def _below(node: Node) -> Iterator[Node]:
    """Give the nodes that a node is a function of, in the regime that holds."""
    args: Sequence[Any] = node.args
    if node.line is not None:
        args = [node.line.formula]
    elif node.kind in _CHOICES:
        args = [node.args[_CHOICES[node.kind](*map(value_of, node.args))]]
    elif node.kind in _STEPS:
        args = ()
    return (arg for arg in args if isinstance(arg, Node))


def closed_form(ledger: Ledger, result: Node, path: str, target: float) -> ClosedForm | None:
    """Return a traced result as a function of one input, in the regime that holds at the traced values.

    Parameters
    ----------
    ledger : Ledger
    result : Node
    path : str
        The input.
    target : float
        The value whose roots are wanted.

    Returns
    -------
    ClosedForm or None
        None where the result is no rational function of the input of a degree up to 4, or does not depend on it.

    Notes
    -----
    ``maximum``, ``minimum`` and ``switch_at`` are the operand that holds, ``floor`` and ``ceil_div`` the whole number
    that they are, ``interpolate`` the line between two knots.  What is left is arithmetic on fractions of polynomials
    with exact rational coefficients, so that no digit is lost and equal terms cancel.
    """
    from sympy import Poly, Symbol, real_roots

    walk = _Walk(path)
    form = walk.form(result)
    if form is None or form is _OTHER or _degree(form) > _MOST_DEGREE:
        return None
    meets = (form - walk.constant(target)).numer
    x = Symbol("x")
    roots = [float(root.evalf(20)) for root in real_roots(Poly.from_dict(dict(meets), x))] if meets.degree() > 0 else []
    above, below = (
        tuple(_number(part.coeff(walk.x.numer**power)) for power in range(part.degree() + 1))
        for part in (form.numer, form.denom)
    )
    return ClosedForm(above, below, tuple(root for root in roots if root > 0), tuple(_carriers(ledger, result, walk)))


def _number(coefficient: Any) -> float:
    return int(coefficient.numerator) / int(coefficient.denominator)


def _carriers(ledger: Ledger, result: Node, walk: _Walk) -> Iterator[Line]:
    """Give the lines between an input and a result, those alone that the regime leaves a function of the input."""
    carriers: set[int] = set()
    seen: set[int] = set()
    stack = [result]
    while stack:
        node = stack.pop()
        if id(node) in seen or walk.known.get(id(node)) is None:
            continue
        seen.add(id(node))
        if node.line is not None:
            carriers.add(id(node.line))
        stack += _below(node)
    return (line for line in ledger.lines if id(line) in carriers)

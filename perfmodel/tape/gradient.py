"""Derivatives of one result by all inputs: reverse mode, written as more steps of the same program.

So every back end runs them.  At a kink a derivative is that of the side which the value takes (:func:`maximum` of equal
numbers goes by its first), and what jumps (:func:`floor`, :func:`ceil_div`, a threshold of :func:`switch_at`) has none:
whoever asks about an input that is a whole number by nature takes a difference to its neighbour instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from perfmodel.tape.numbered import CONSTANT, INPUT, Builder, Numbered, Step

#: Stands for 0 under a logarithm whose factor is 0 there.
_TINY = 1e-300
#: Nearer to its singular point than this a closed form is replaced by its series.
_NEAR = 1e-3


def gradient(program: Numbered, name: str) -> Numbered:
    """Return the program of a result's derivatives.

    Parameters
    ----------
    program : Numbered
    name : str
        One of its results.

    Returns
    -------
    Numbered
        Its results are ``name``, and by path the derivative by each input that the result depends on, in the unit of
        the result over that of the input.
    """
    builder = Builder()
    places: list[int] = []
    for step in program.steps:
        places.append(_copy(builder, step, places))
    return _Reverse(builder).of(name, places[program.results[name]])


def _copy(builder: Builder, step: Step, places: list[int]) -> int:
    if step.kind == CONSTANT:
        return builder.constant(step.value)
    if step.kind == INPUT:
        return builder.input(step.value)
    return builder.apply(step.kind, *(places[arg] for arg in step.args), value=step.value)


class _Reverse:
    """Goes from a result back to the inputs; ``add`` and the like write steps."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.constant = builder.constant

    def __getattr__(self, kind: str) -> Callable[..., int]:
        return lambda *args: self.builder.apply(kind, *args)

    def of(self, name: str, result: int) -> Numbered:
        """Return the program of the derivatives of a step."""
        adjoints = {result: self.constant(1.0)}
        forward = list(self.builder.steps)
        adjoint_of = {name: result}
        for at in range(result, -1, -1):
            step = forward[at]
            if at not in adjoints:
                continue
            if step.kind == INPUT:
                adjoint_of[step.value] = adjoints[at]
                continue
            for arg, part in self._parts(at, step, adjoints[at]):
                if forward[arg].kind != CONSTANT:
                    adjoints[arg] = self.add(adjoints[arg], part) if arg in adjoints else part
        return self.builder.finish(adjoint_of)

    def _parts(self, at: int, step: Step, by: int) -> Iterator[tuple[int, int]]:
        """Give each operand with what it gets of the derivative by its step."""
        rule: Callable[..., tuple[int | None, ...]] = getattr(self, f"_of_{step.kind}")
        more = () if step.value is None else (step.value,)
        for arg, part in zip(step.args, rule(by, at, *step.args, *more), strict=True):
            if part is not None:
                yield arg, part

    def _of_add(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        return by, by

    def _of_sub(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        return by, self.neg(by)

    def _of_mul(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        return self.mul(by, b), self.mul(by, a)

    def _of_div(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        part = self.div(by, b)
        return part, self.neg(self.mul(part, at))

    def _of_neg(self, by: int, at: int, a: int) -> tuple[int]:
        return (self.neg(by),)

    def _of_pow(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        slope = self.mul(b, self.pow(a, self.sub(b, self.constant(1.0))))
        return self.mul(by, slope), self.mul(by, self.mul(at, self._log(a)))

    def _log(self, x: int) -> int:
        return self.log(self.maximum(x, self.constant(_TINY)))

    def _of_exp(self, by: int, at: int, a: int) -> tuple[int]:
        return (self.mul(by, at),)

    def _of_log(self, by: int, at: int, a: int) -> tuple[int]:
        return (self.div(by, a),)

    def _of_sqrt(self, by: int, at: int, a: int) -> tuple[int]:
        return (self.div(self.mul(by, self.constant(0.5)), at),)

    def _of_floor(self, by: int, at: int, a: int) -> tuple[None]:
        return (None,)

    def _of_ceil_div(self, by: int, at: int, a: int, b: int) -> tuple[None, None]:
        return None, None

    def _of_maximum(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        none = self.constant(0.0)
        return self.switch_at(a, b, none, by), self.switch_at(a, b, by, none)

    def _of_minimum(self, by: int, at: int, a: int, b: int) -> tuple[int, int]:
        none = self.constant(0.0)
        return self.switch_at(b, a, none, by), self.switch_at(b, a, by, none)

    def _of_switch_at(self, by: int, at: int, x: int, threshold: int, below: int, above: int) -> tuple[Any, ...]:
        none = self.constant(0.0)
        return None, None, self.switch_at(x, threshold, by, none), self.switch_at(x, threshold, none, by)

    def _of_only_if(self, by: int, at: int, margin: int, value: int) -> tuple[None, int]:
        return None, self.only_if(margin, by)

    def _of_interpolate(self, by: int, at: int, x: int, knots: Any) -> tuple[int]:
        slope = self.constant(0.0)
        for (x0, y0), (x1, y1) in pairwise(knots):
            slope = self.switch_at(x, self.constant(x0), slope, self.constant((y1 - y0) / (x1 - x0)))
        return (self.mul(by, self.switch_at(x, self.constant(knots[-1][0]), slope, self.constant(0.0))),)

    def _of_geometric_sum(self, by: int, at: int, a: int, n: int) -> tuple[int, int]:
        unit = self.constant(1.0)
        e = self.sub(unit, a)
        less, power = self.sub(n, unit), self.pow(a, n)
        # Divided by 1 where the series counts, so that nothing is infinite.
        size = self.mul(self.maximum(e, self.neg(e)), self.maximum(n, unit))
        near = self.constant(_NEAR)
        safe = self.switch_at(size, near, unit, e)
        closed = self.div(self.sub(at, self.mul(n, self.pow(a, less))), safe)
        # n (n - 1) / 2 - n (n - 1) (n - 2) / 3 e + n (n - 1) (n - 2) (n - 3) / 8 e^2
        second, third = self.sub(n, self.constant(2.0)), self.sub(n, self.constant(3.0))
        inner = self.sub(self.constant(1 / 3), self.div(self.mul(third, e), self.constant(8.0)))
        series = self.mul(self.mul(n, less), self.sub(self.constant(0.5), self.mul(self.mul(second, e), inner)))
        # log(a) / (1 - a) = -(1 + e / 2 + e^2 / 3 + e^3 / 4)
        rest = self.constant(1 / 4)
        for share in (1 / 3, 1 / 2, 1.0):
            rest = self.add(self.constant(share), self.mul(e, rest))
        logs = self.switch_at(size, near, self.neg(rest), self.div(self._log(a), safe))
        return self.mul(by, self.switch_at(size, near, series, closed)), self.neg(self.mul(by, self.mul(power, logs)))

    def _of_complement_power(self, by: int, at: int, p: int, n: int) -> tuple[int, int]:
        one = self.constant(1.0)
        slope = self.mul(n, self.complement_power(p, self.sub(n, one)))
        return self.neg(self.mul(by, slope)), self.mul(by, self.mul(at, self._log(self.sub(one, p))))

    def _of_erlang_b(self, by: int, at: int, servers: int, load: int) -> tuple[None, int]:
        each = self.div(self.floor(servers), self.maximum(load, self.constant(_TINY)))
        return None, self.mul(by, self.mul(at, self.add(self.sub(each, self.constant(1.0)), at)))

    def _of_annuity(self, by: int, at: int, rate: int, years: int) -> tuple[int, int]:
        # With q = (1 + r)^-n and y = r / (1 - q): y / r - y^2 / r^2 * n q r / (1 + r) / r, and its limits at r = 0.
        unit, near = self.constant(1.0), self.constant(_NEAR**2)
        grown = self.add(unit, rate)
        left = self.pow(grown, self.neg(years))
        safe = self.switch_at(rate, near, unit, rate)
        share = self.div(at, safe)
        first = self.sub(share, self.div(self.mul(self.mul(share, at), self.mul(years, left)), grown))
        limit = self.div(self.add(years, unit), self.mul(self.constant(2.0), years))
        second = self.neg(self.mul(self.mul(share, at), self.mul(left, self.log(grown))))
        ends = self.neg(self.div(self.div(unit, years), years))
        return (
            self.mul(by, self.switch_at(rate, near, limit, first)),
            self.mul(by, self.switch_at(rate, near, ends, second)),
        )

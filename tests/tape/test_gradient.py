"""Derivatives against SymPy for every equation, and against central differences of whole predictions."""

import pytest
import sympy
from backends.test_equations import EACH, POINTS, arguments, public

from perfmodel.numerics.backends import OPAQUE
from perfmodel.prediction import METRICS
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import range_at
from perfmodel.tape import answers, kernel
from perfmodel.tape.gradient import gradient
from perfmodel.tape.numbered import Builder, number
from perfmodel.trace import OPERATIONS, Ledger


def slope(call, given, name, step):
    """A central difference of a function by one of its numbers."""
    return (call({**given, name: given[name] + step}) - call({**given, name: given[name] - step})) / (2 * step)


@EACH
def test_every_equation_against_sympy(equation):
    symbols = {name: sympy.Symbol(name, positive=True) for name in equation.parameters}
    expression = public(equation)(**symbols)
    # SymPy cannot differentiate what it does not know: floors and Erlang's formula go by differences.
    closed = not any(
        isinstance(one.func, type) and one.func.__name__ in OPAQUE for one in expression.atoms(sympy.Function)
    )

    def plain(numbers):
        return public(equation)(**numbers)

    for at in POINTS:
        # Off the corners, at which SymPy gives half a step.
        given = {
            name: value * (1 - 0.001 * place) for place, (name, value) in enumerate(arguments(equation, at).items(), 1)
        }
        with Ledger() as ledger:
            node = public(equation)(**{name: ledger.input(name, value) for name, value in given.items()})
        found = gradient(number({"is": node}), "is").evaluate(given)
        numbers = {symbols[name]: sympy.Float(value, 30) for name, value in given.items()}
        for name, symbol in symbols.items():
            if closed:
                exact = float(sympy.diff(expression, symbol).subs(numbers).evalf(25))
                expected = pytest.approx(exact, rel=1e-8, abs=1e-12)
            else:
                near = slope(plain, given, name, 1e-6 * given[name])
                expected = pytest.approx(near, rel=1e-4, abs=1e-7 * abs(found["is"]) / given[name] + 1e-12)
            assert found.get(name, 0.0) == expected, (name, given)


def values_of(program):
    return lambda inputs: program.evaluate(inputs)["is"]


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_operation_against_differences(kind):
    """Among them those near the point where a closed form loses its digits."""
    points = [(0.3, 4.0), (1.0 - 2e-5, 12.0), (1.0 + 1e-4, 3.5), (0.9, 1.5), (1.4, 2.5)]
    for pair in points:
        if kind == "complement_power" and pair[0] >= 1:
            continue
        builder = Builder()
        nodes = [builder.input("a"), builder.input("b")]
        shapes = {"interpolate": nodes[:1], "switch_at": [*nodes, *nodes[::-1]]}
        arity = 1 if kind in ("exp", "log", "sqrt", "floor", "neg") else 2
        knots = ((-1.0, 2.0), (0.5, 3.0), (1.2, -4.0)) if kind == "interpolate" else None
        result = builder.apply(kind, *shapes.get(kind, nodes[:arity]), value=knots)
        program = builder.finish({"is": result})
        given = dict(zip("ab", pair, strict=True))
        found = gradient(program, "is").evaluate(given)
        for name in program.inputs:
            expected = slope(values_of(program), given, name, 1e-6)
            assert found.get(name, 0.0) == pytest.approx(expected, rel=1e-6, abs=1e-7), (pair, name)


@pytest.mark.parametrize("on", ["dgx-h100", "sn40l-16", "lpu-v1"])
@pytest.mark.parametrize("metric", METRICS)
def test_a_prediction_against_differences(on, metric):
    """Of each machine by every input that is no whole number, where both sides of it agree."""
    scenario = resolve("llama-3.1-70b", on, Options(concurrency=31.7, prompt=1900.3, output=310.7))
    name = f"metrics.{metric}"
    program = kernel.traced(answers.asked((metric,)).results, scenario)
    found = gradient(program, name)
    given = kernel.inputs_of(program.inputs, scenario)
    slopes = found.evaluate(given)
    value, compared = slopes.pop(name), 0
    for path, mine in slopes.items():
        own = given[path]
        if range_at(scenario, path).whole or not own or own != own:
            continue
        sides = [program.evaluate({**given, path: own * (1 + step)})[name] for step in (-1e-5, -5e-6, 5e-6, 1e-5)]
        outer, inner = (sides[3] - sides[0]) / (2e-5 * own), (sides[2] - sides[1]) / (1e-5 * own)
        left, right = (value - sides[1]) / (5e-6 * own), (sides[2] - value) / (5e-6 * own)
        size = abs(value / own)
        if abs(outer - inner) > 1e-5 * size or abs(left - right) > 1e-3 * size:
            continue  # A kink or a jump lies there.
        compared += 1
        assert mine == pytest.approx(inner, rel=1e-4, abs=1e-5 * size), path
    assert compared > 0.8 * sum(not range_at(scenario, path).whole for path in slopes)

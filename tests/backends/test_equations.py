"""Every registered equation gives the same number as float, array, traced node and SymPy expression."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import numpy as np
import pytest
import sympy

import perfmodel.equations  # noqa: F401  registers them
from perfmodel.equation import REGISTRY, Equation
from perfmodel.trace import Ledger, Node

#: Three settings, each a column: rising, falling and equal arguments take both sides of every maximum and switch.
SAMPLES = np.array(
    [
        (1.3, 9.2, 3.0),
        (2.6, 7.9, 3.0),
        (3.7, 6.1, 3.0),
        (5.1, 4.8, 3.0),
        (7.4, 2.9, 3.0),
        (8.8, 1.7, 3.0),
    ]
)

#: Where an equation cannot take any positive numbers: each sample is valid with the first ones of the others.
SAMPLES_OF: dict[str, dict[str, tuple[float, float, float]]] = {
    "distinct_experts": {"experts": (128.0, 64.0, 16.0), "top_k": (8.0, 1.0, 16.0)},
    "crossover_tokens": {"compute": (5.2, 9.7, 7.7), "load": (1.3, 3.1, 4.4)},
    "exponential_wait": {"servers": (3.0, 8.0, 40.0), "load": (1.2, 2.1, 2.9)},
    "single_server_wait": {"utilisation": (0.2, 0.6, 0.95)},
    "wait_quantile": {"waiting": (0.1, 0.6, 1.0), "quantile": (0.5, 0.9, 0.99)},
    "priority_wait": {"above": (0.1, 0.5, 0.0), "through": (0.3, 0.9, 0.6)},
}

EACH = pytest.mark.parametrize(
    "equation", REGISTRY.values(), ids=lambda equation: f"{equation.subject}.{equation.name}"
)
POINTS = range(SAMPLES.shape[1])


def public(equation: Equation) -> Any:
    """Return the equation as its module has it, so that nodes leave lines."""
    return getattr(importlib.import_module(equation.function.__module__), equation.name)


def columns(equation: Equation) -> dict[str, Any]:
    special = SAMPLES_OF.get(equation.name, {})
    return {
        name: np.array(special.get(name, SAMPLES[at % len(SAMPLES)])) for at, name in enumerate(equation.parameters)
    }


def arguments(equation: Equation, point: int) -> dict[str, float]:
    return {name: float(column[point]) for name, column in columns(equation).items()}


def expected(equation: Equation) -> Any:
    values = [public(equation)(**arguments(equation, point)) for point in POINTS]
    assert all(type(value) is float for value in values)
    assert np.all(np.isfinite(values)), f"{values}: give {equation.name} valid numbers in SAMPLES_OF"
    return pytest.approx(values, rel=1e-9, abs=0)


@EACH
def test_array(equation: Equation) -> None:
    result = public(equation)(**columns(equation))
    assert result.shape == (3,)
    assert result == expected(equation)


@EACH
def test_each_argument_is_an_axis_of_its_own(equation: Equation) -> None:
    """Only one argument an array, the others floats: no equation needs its arguments to be of one kind."""
    base = arguments(equation, 0)
    for name, column in columns(equation).items():
        swept = public(equation)(**{**base, name: column})
        single = [public(equation)(**{**base, name: float(value)}) for value in column]
        assert np.broadcast_to(swept, 3) == pytest.approx(single, rel=1e-9, abs=0)


@EACH
def test_node(equation: Equation) -> None:
    ledger = Ledger()
    nodes = [
        public(equation)(
            **{name: ledger.input(f"{name}{at}", value) for name, value in arguments(equation, at).items()}
        )
        for at in POINTS
    ]
    assert [node.value for node in nodes] == expected(equation)


@EACH
def test_node_leaves_one_line(equation: Equation) -> None:
    ledger = Ledger()
    given = {name: ledger.input(name, value) for name, value in arguments(equation, 0).items()}
    node = public(equation)(**given)
    (line,) = [line for line in ledger.lines if line.name == equation.name]
    assert ledger.lines[-1] is line is node.line
    assert (line.symbol, line.unit, line.source) == (equation.symbol, equation.unit, equation.source)
    assert all((line.symbol, line.unit, line.source))
    assert isinstance(line.formula, Node)
    assert line.arguments == given
    assert line.value == node.value


@EACH
def test_sympy(equation: Equation) -> None:
    symbols = {name: sympy.Symbol(name, positive=True) for name in equation.parameters}
    expression = public(equation)(**symbols)
    values = [
        expression.subs({symbols[name]: sympy.Float(value, 30) for name, value in arguments(equation, at).items()})
        for at in POINTS
    ]
    assert [float(value.evalf(25)) for value in values] == expected(equation)


def _section(text: str, title: str) -> str:
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


@EACH
def test_docstring_names_every_parameter_with_its_unit(equation: Equation) -> None:
    text = inspect.getdoc(equation.function) or ""
    entries = re.findall(r"^(\w+(?:, \w+)*) : Number\n((?:^ +.*\n?)+)", _section(text, "Parameters"), re.MULTILINE)
    assert [name for names, _ in entries for name in names.split(", ")] == list(equation.parameters)
    assert all(re.search(r"\[[^\]]+\]\.$", description.strip()) for _, description in entries)


@EACH
def test_docstring_gives_the_registered_unit_of_the_result(equation: Equation) -> None:
    result = _section(inspect.getdoc(equation.function) or "", "Returns")
    (unit,) = re.findall(r"\[([^\]]+)\]\.$", result.strip())
    assert unit in (equation.unit, "any")


@EACH
def test_parameters_are_keyword_only_numbers_without_defaults(equation: Equation) -> None:
    for parameter in inspect.signature(equation.function).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is parameter.empty
        assert parameter.annotation == "Number"

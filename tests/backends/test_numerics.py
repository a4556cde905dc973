"""Every operator of an equation gives the same number on every backend, at its limits too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy
from programs import recalculate, run_node
from workbooks import cached, shown

from perfmodel import numerics
from perfmodel.compilers import javascript, spreadsheet
from perfmodel.trace import OPERATIONS, Ledger, Node

NAN = math.nan
KNOTS = ((0.0, 1.0), (10.0, 3.0), (100.0, 2.5))
ARITHMETIC = {"add", "sub", "mul", "div", "pow", "neg"}

#: Calls with their value, by hand.
EXACT: dict[str, list[tuple[tuple[Any, ...], float]]] = {
    "exp": [((0.0,), 1.0)],
    "log": [((1.0,), 0.0)],
    "sqrt": [((0.0,), 0.0), ((2.25,), 1.5)],
    "floor": [
        ((2.5,), 2.0),
        ((3.0,), 3.0),
        ((2.9999999999999996,), 3.0),
        ((2.999999999,), 3.0),
        ((2.99999998,), 2.0),
        ((3.0000001,), 3.0),
        ((0.0,), 0.0),
        ((1e-12,), 0.0),
        ((0.9999999995,), 1.0),
        ((0.99999999,), 0.0),
        ((-2.5,), -3.0),
        ((-2.0,), -2.0),
        ((-2.0000000000000004,), -2.0),
        ((-1.9999999999999998,), -2.0),
        ((1e12 + 0.5,), 1e12 + 1.0),  # half is less than 1e-9 of it
        ((1e8 + 0.5,), 1e8),
    ],
    "ceil_div": [
        ((10.0, 4.0), 3.0),
        ((12.0, 4.0), 3.0),
        ((0.0, 4.0), 0.0),
        ((0.3, 0.1), 3.0),  # 2.9999999999999996 in binary
        ((2.1, 0.7), 3.0),  # 3.0000000000000004 in binary
        ((3.0000001, 1.0), 4.0),
        ((-10.0, 4.0), -2.0),
        ((1e12 + 0.5, 1.0), 1e12),
    ],
    "maximum": [((1.0, 2.0), 2.0), ((2.0, 1.0), 2.0), ((-1.0, -1.0), -1.0), ((-3.0, 0.0), 0.0)],
    "minimum": [((1.0, 2.0), 1.0), ((2.0, 1.0), 1.0), ((-1.0, -1.0), -1.0), ((-3.0, 0.0), -3.0)],
    "interpolate": [
        ((-5.0, KNOTS), 1.0),
        ((0.0, KNOTS), 1.0),
        ((5.0, KNOTS), 2.0),
        ((10.0, KNOTS), 3.0),
        ((55.0, KNOTS), 2.75),
        ((100.0, KNOTS), 2.5),
        ((1e6, KNOTS), 2.5),
    ],
    "switch_at": [
        ((1.0, 2.0, 10.0, 20.0), 10.0),
        ((2.0, 2.0, 10.0, 20.0), 20.0),
        ((3.0, 2.0, 10.0, 20.0), 20.0),
        ((-1.0, 0.0, 10.0, -20.0), 10.0),
        ((1.0, 2.0, 10.0, NAN), 10.0),
        ((1.0, 2.0, NAN, 20.0), NAN),
    ],
    "only_if": [((1.0, 7.0), 7.0), ((0.0, 7.0), 7.0), ((-1.0, 7.0), NAN), ((-1e-3, -7.0), NAN)],
    "geometric_sum": [((1.0, 7.0), 7.0), ((1.0, 0.0), 0.0), ((0.0, 5.0), 1.0), ((0.0, 0.0), 0.0), ((0.5, 1.0), 1.0)],
    "complement_power": [
        ((1.0, 480.0), 0.0),
        ((1.0, 0.0), 1.0),
        ((0.0, 5.0), 1.0),
        ((0.3, 0.0), 1.0),
        ((0.875, 480.0), 0.0),  # 1e-434 underflows
        ((0.5, 1e6), 0.0),
    ],
    "erlang_b": [((0.0, 5.0), 1.0), ((0.0, 0.0), 1.0), ((1.0, 0.0), 0.0), ((1.0, 1.0), 0.5), ((2.0, 1.0), 0.2)],
    "annuity": [((0.0, 5.0), 0.2), ((0.0, 1.0), 1.0), ((0.1, 1.0), 1.1), ((1.0, 2.0), 4 / 3)],
}

#: The textbook form of a function, and where it is checked in 60 digits.
TEXTBOOK: dict[str, tuple[Callable[..., Any], list[tuple[float, ...]]]] = {
    "exp": (mpmath.exp, [(1.0,), (-30.0,), (30.0,)]),
    "log": (mpmath.log, [(10.0,), (1e-12,), (3.35e12,)]),
    "sqrt": (mpmath.sqrt, [(2.0,), (1e-18,), (1e24,)]),
    "geometric_sum": (
        lambda a, n: mpmath.fsum(a**k for k in range(int(n))),
        [
            (0.7, 5.0),
            (1.5, 20.0),
            (1 - 1e-8, 9.0),
            (1 + 1e-8, 9.0),
            (1 - 1e-8, 1e5),
            (1 - 1e-12, 400.0),
            (1 - 1.01e-4, 10.0),  # on both sides of the change to the series
            (1 - 0.99e-4, 10.0),
        ],
    ),
    "complement_power": (
        lambda p, n: (1 - p) ** n,
        [(0.1, 3.0), (1e-9, 1e9), (0.99e-4, 1e4), (1.01e-4, 1e4), (0.25, 100.0)],
    ),
    "erlang_b": (
        lambda servers, load: 1 / mpmath.fsum(mpmath.ff(servers, k) / load**k for k in range(int(servers) + 1)),
        [(1.0, 0.5), (10.0, 7.0), (10.0, 0.01), (10.0, 40.0), (300.0, 280.0), (300.0, 400.0), (300.0, 150.0)],
    ),
    "annuity": (lambda rate, years: rate / (1 - (1 + rate) ** -years), [(0.08, 4.0), (1e-3, 10.0), (0.5, 0.5)]),
}

#: Numbers at which each function is ordinary; any one of them replaced by NaN gives NaN.
ORDINARY: dict[str, list[tuple[Any, ...]]] = {
    "exp": [(1.0,)],
    "log": [(2.0,)],
    "sqrt": [(2.0,)],
    "floor": [(2.0,)],
    "ceil_div": [(10.0, 4.0)],
    "maximum": [(1.0, 2.0), (9.0, 0.0)],
    "minimum": [(1.0, 2.0), (9.0, 0.0)],
    "interpolate": [(5.0, KNOTS)],
    "only_if": [(1.0, 7.0)],
    "geometric_sum": [(0.5, 3.0), (1.0, 0.0)],
    "complement_power": [(0.5, 3.0), (1.0, 0.0)],
    "erlang_b": [(3.0, 2.0), (0.0, 0.0)],
    "annuity": [(0.1, 3.0), (0.0, 4.0)],
}

#: What brackets and signs can get wrong; plain floats say what is right.
EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "a - (b - c)": lambda a, b, c: a - (b - c),
    "a - b - c": lambda a, b, c: a - b - c,
    "a - (b + c)": lambda a, b, c: a - (b + c),
    "a / (b / c)": lambda a, b, c: a / (b / c),
    "a / (b * c)": lambda a, b, c: a / (b * c),
    "a / b * c": lambda a, b, c: a / b * c,
    "a * (b / c)": lambda a, b, c: a * (b / c),
    "(a + b) * c": lambda a, b, c: (a + b) * c,
    "-a ** b": lambda a, b, c: -(a**b),
    "(-a) ** 2": lambda a, b, c: (-a) ** 2,
    "-2 ** b": lambda a, b, c: -(2**b),
    "a ** -b": lambda a, b, c: a**-b,
    "a ** (b ** c)": lambda a, b, c: a ** (b**c),
    "(a ** b) ** c": lambda a, b, c: (a**b) ** c,
    "(a + b) ** (c - 1)": lambda a, b, c: (a + b) ** (c - 1),
    "a - (-b)": lambda a, b, c: a - (-b),
    "a * (-b)": lambda a, b, c: a * (-b),
    "-(a + b) * c": lambda a, b, c: -(a + b) * c,
    "a - (-3.5)": lambda a, b, c: a - (-3.5) * (b - c),
    "a / -ceil_div(b, c)": lambda a, b, c: a / -numerics.ceil_div(b, c),
    "a - ceil_div(b, c)": lambda a, b, c: a - numerics.ceil_div(b - a, c + 1) ** 2,
    "a - 1e-30 * b": lambda a, b, c: (a * 1e-30 - 1e-30 * b) * 1e30,
    "1e21 * a": lambda a, b, c: 1e21 * a / 7e20,
}


@dataclass(frozen=True)
class Case:
    group: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    expected: float

    @property
    def name(self) -> str:
        numbers = (repr(arg) for arg in self.args if not isinstance(arg, tuple))
        return f"{self.group} at {', '.join(numbers)}"


def _cases() -> list[Case]:
    found = [Case(name, getattr(numerics, name), *case) for name, cases in EXACT.items() for case in cases]
    with mpmath.workdps(60):
        for name, (form, points) in TEXTBOOK.items():
            for args in points:
                expected = float(form(*(mpmath.mpf(arg) for arg in args)))
                found.append(Case(name, getattr(numerics, name), args, expected))
    for name, points in ORDINARY.items():
        for args in points:
            for at in [index for index, arg in enumerate(args) if isinstance(arg, float)]:
                found.append(Case(name, getattr(numerics, name), (*args[:at], NAN, *args[at + 1 :]), NAN))
    for x, threshold in ((NAN, 1.0), (1.0, NAN)):
        found.append(Case("switch_at", numerics.switch_at, (x, threshold, 10.0, 20.0), NAN))
    for name, expression in EXPRESSIONS.items():
        found.append(Case(name, expression, (2.0, 3.5, 1.25), expression(2.0, 3.5, 1.25)))
    return found


CASES = _cases()
GROUPS = {case.group: [other for other in CASES if other.group == case.group] for case in CASES}
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def close(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=0, nan_ok=True)


def _with(case: Case, make: Callable[[int, float], Any]) -> Any:
    """Call a case's function with each number made something else."""
    return case.function(*(arg if isinstance(arg, tuple) else make(at, arg) for at, arg in enumerate(case.args)))


def test_every_function_has_cases() -> None:
    assert set(EXACT) == set(numerics.FLOAT)
    assert {*ORDINARY, "switch_at"} == set(numerics.FLOAT)


@pytest.mark.parametrize(
    "names",
    [numerics.ARRAY, spreadsheet.LANGUAGE.functions, javascript.LANGUAGE.functions, set(OPERATIONS) - ARITHMETIC],
    ids=["array", "spreadsheet", "javascript", "trace"],
)
def test_backends_know_the_same_functions(names: Any) -> None:
    assert set(names) == set(numerics.FLOAT)


@EACH
def test_float(case: Case) -> None:
    assert case.function(*case.args) == close(case.expected)


@EACH
def test_array_of_no_dimension(case: Case) -> None:
    assert float(_with(case, lambda _, arg: np.asarray(arg))) == close(case.expected)


@pytest.mark.parametrize("group", GROUPS)
def test_array_of_all_cases(group: str) -> None:
    """Elements of an array do not meet: one at its limit leaves the others alone."""
    cases = GROUPS[group]
    columns = zip(*(case.args for case in cases), strict=True)
    args = [column[0] if isinstance(column[0], tuple) else np.array(column) for column in columns]
    result = cases[0].function(*args)
    assert result.shape == (len(cases),)
    assert result == close([case.expected for case in cases])


@EACH
def test_node(case: Case) -> None:
    ledger = Ledger()
    node = _with(case, lambda at, arg: ledger.input(f"x{at}", arg))
    assert isinstance(node, Node)
    assert node.value == close(case.expected)


@pytest.mark.parametrize(
    "case", [case for case in CASES if not any(arg != arg for arg in case.args)], ids=lambda c: c.name
)
def test_sympy(case: Case) -> None:
    """SymPy serves forms, derivatives and roots; it has no order for NaN, so what does not exist is not asked of it."""
    values: dict[Any, Any] = {}

    def symbol(at: int, arg: float) -> Any:
        made = sympy.Symbol(f"x{at}", real=True)
        values[made] = sympy.Float(arg, 40)
        return made

    assert float(_with(case, symbol).subs(values).evalf(30)) == close(case.expected)


def _ledger() -> tuple[Ledger, dict[str, Node]]:
    ledger = Ledger()
    results = {
        case.name: _with(case, lambda at, arg, case=case: ledger.input(f"{case.name}: {at}", arg)) for case in CASES
    }
    return ledger, results


@pytest.fixture(scope="module")
def spreadsheet_values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    path = tmp_path_factory.mktemp("numerics") / "numerics.xlsx"
    spreadsheet.write_workbook(*_ledger(), path, zero_cached=True)
    assert cached(path) == {0}
    return shown(recalculate(path))


@pytest.mark.program
@EACH
def test_spreadsheet(case: Case, spreadsheet_values: dict[str, float]) -> None:
    assert spreadsheet_values[case.name] == close(case.expected)


@pytest.fixture(scope="module")
def javascript_values() -> dict[str, float | None]:
    ledger, results = _ledger()
    inputs = {path: entry.value for path, entry in ledger.inputs.items()}
    script = f"{javascript.PRELUDE}{javascript.function(ledger, results)}report(predict({json.dumps(inputs)}));"
    values: dict[str, float | None] = run_node(script)
    return values


@pytest.mark.program
@EACH
def test_javascript(case: Case, javascript_values: dict[str, float | None]) -> None:
    value = javascript_values[case.name]
    assert (NAN if value is None else value) == close(case.expected)


def test_a_spreadsheet_uses_only_functions_that_all_spreadsheets_have() -> None:
    """LET, LAMBDA and XLOOKUP fail in LibreOffice 7.4."""
    _, results = _ledger()
    texts = [
        spreadsheet.LANGUAGE.write(node, lambda x: "A1" if x.kind == "input" else None) for node in results.values()
    ]
    used = set(re.findall(r"([A-Z][A-Z.]*)\(", " ".join(texts)))
    assert used <= {"ABS", "EXP", "IF", "INT", "LN", "MAX", "MIN", "NA", "PMT", "POISSON", "SQRT"}


@pytest.mark.parametrize("language", [spreadsheet, javascript], ids=["spreadsheet", "javascript"])
def test_a_constant_survives_as_text(language: Any) -> None:
    for value in (0.1, 1 / 3, -2.5, 1e15, 1e-30, 6.02e23, 3.35e12, 123456789.125, -7.0):
        assert float(language.number(value)) == value


@pytest.mark.parametrize(
    "choose",
    [
        bool,
        float,
        int,
        lambda x: x < 1.0,
        lambda x: x <= 1.0,
        lambda x: x > 1.0,
        lambda x: x >= 1.0,
        lambda x: x == 1.0,
        lambda x: x != 1.0,
        lambda x: max(x, 1.0),
        lambda x: math.floor(x),
        lambda x: math.sqrt(x),
        lambda x: round(x),
        lambda x: abs(x),
    ],
)
def test_a_node_cannot_choose_a_branch(choose: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        choose(Ledger().input("x", 2.0))


def test_foreign_values_are_refused() -> None:
    with pytest.raises(TypeError, match="maximum: cannot use a value of type str"):
        numerics.maximum("1", 2.0)

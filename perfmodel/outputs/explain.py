"""How a number came about: the lines of the ledger that it rests on."""

from __future__ import annotations

from typing import Any

from perfmodel.errors import UserError
from perfmodel.outputs.formula import Language, line_of
from perfmodel.prediction import METRICS, traced
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import show
from perfmodel.trace import Line, Node

_NAMES = ("exp", "log", "sqrt", "floor", "ceil_div", "maximum", "minimum", "switch_at", "only_if")

LANGUAGE = Language(
    functions={
        **{name: (lambda *args, name=name: f"{name}({', '.join(args)})") for name in _NAMES},
        **{
            name: (lambda a, n, name=name: f"{name}({a}, {n})")
            for name in ("geometric_sum", "complement_power", "erlang_b", "annuity")
        },
        "interpolate": lambda x, knots: f"interpolate({x}, {len(knots)} knots)",
    },
    power=lambda base, exponent: f"{base}^{exponent}",
    number=lambda value: f"{value:.6g}",
)


def _by_name(node: Node) -> str | None:
    return node.label if node.kind == "argument" else line_of(node).name if line_of(node) else None  # type: ignore[union-attr]


def _by_value(node: Node) -> str | None:
    return f"{node.value:.6g}" if node.kind in ("argument", "input", "line") else None


def metric_key(metric: str) -> str:
    """Return the key of a metric; its unit suffix may be left out."""
    for key in METRICS:
        if metric in (key, key.removesuffix("_s")):
            return key
    raise UserError(f"unknown metric '{metric}': expected one of {', '.join(METRICS)}")


def explanation(scenario: Scenario, metric: str, depth: int = 12) -> str:
    """Return a metric's derivation as indented text.

    Parameters
    ----------
    scenario : Scenario
    metric : str
        A key of the JSON, with or without its unit suffix.
    depth : int
        How many lines deep.

    Returns
    -------
    str
        One line an equation: name, value, formula with names and with numbers, source; inputs with provenance.
    """
    key = metric_key(metric)
    ledger, prediction = traced(scenario)
    out: list[str] = []
    seen: set[int] = set()

    def feeds(node: Any) -> list[Node]:
        """Return the nearest lines and inputs below an expression."""
        found: list[Node] = []
        if isinstance(node, Node):
            if node.kind in ("input", "line"):
                found.append(node)
            else:
                for arg in node.args:
                    found += feeds(arg)
        return found

    def write(node: Node, level: int) -> None:
        indent = "  " * level
        if node.kind == "input":
            entry = ledger.inputs[node.label]
            out.append(f"{indent}{entry.path} = {show(entry.value, entry.unit)}  [{entry.source}]")
            return
        line = node.line
        assert isinstance(line, Line)
        again = id(line) in seen
        out.append(f"{indent}{line.name} = {show(line.value, line.unit)}" + ("  (see above)" if again else ""))
        if again or level >= depth:
            return
        seen.add(id(line))
        out.append(f"{indent}  = {LANGUAGE.write(line.formula, _by_name)}")
        out.append(f"{indent}  = {LANGUAGE.write(line.formula, _by_value)}  [{line.source}]")
        for argument in line.arguments.values():
            for below in feeds(argument):
                write(below, level + 1)

    root = prediction.metrics[key]
    out.append(f"{key} = {root.value:.6g}")
    for node in feeds(root):
        write(node, 1)
    return "\n".join(out)

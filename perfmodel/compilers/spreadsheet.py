"""Traced equations as spreadsheet formulas, in the functions that Excel, LibreOffice and Google Sheets share."""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from perfmodel.compilers.formula import Language, steps
from perfmodel.trace import Ledger, Node
from perfmodel.writing import whole


def number(value: float) -> str:
    """Return a constant; NaN is ``NA()``, the only nothing that survives a sheet's MAX."""
    if value != value:
        return "NA()"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value).replace("e", "E")


def _interpolate(x: str, knots: tuple[tuple[float, float], ...]) -> str:
    pieces = [
        f"{number((y1 - y0) / (x1 - x0))}*(MIN(MAX({x},{number(x0)}),{number(x1)})-{number(x0)})"
        for (x0, y0), (x1, y1) in pairwise(knots)
    ]
    return f"({number(knots[0][1])}+{'+'.join(pieces)})"


def _snap(x: str) -> str:
    return f"MIN(0.5,1E-9*MAX(1,ABS({x})))"


def _geometric_sum(a: str, n: str) -> str:
    e = f"(1-({a}))"
    series = f"({n})*(1-(({n})-1)/2*{e}*(1-(({n})-2)/3*{e}*(1-(({n})-3)/4*{e})))"
    return f"IF(({n})=0,0*({a}),IF(ABS{e}*MAX({n},1)<0.001,{series},(1-({a})^({n}))/{e}))"


def _complement_power(p: str, n: str) -> str:
    # Sheets have no log1p: LN(1-p) loses its digits where p is small, three more terms of the series keep them.
    log = f"IF(ABS({p})<0.0001,-({p})*(1+({p})*(1/2+({p})*(1/3+({p})/4))),LN(1-({p})))"
    return f"IF(({n})=0,1+0*({p}),IF(({p})=1,0*({n}),EXP(({n})*{log})))"


LANGUAGE = Language(
    functions={
        "exp": lambda x: f"EXP({x})",
        "log": lambda x: f"LN({x})",
        "sqrt": lambda x: f"SQRT({x})",
        "floor": lambda x: f"INT({x}+{_snap(x)})",
        "ceil_div": lambda a, b: f"-INT(-({a})/({b})+{_snap(f'({a})/({b})')})",
        "maximum": lambda a, b: f"MAX({a},{b})",
        "minimum": lambda a, b: f"MIN({a},{b})",
        "interpolate": _interpolate,
        "switch_at": lambda x, threshold, below, above: f"IF(({x})<({threshold}),{below},{above})",
        "only_if": lambda margin, value: f"IF(({margin})>=0,{value},NA())",
        "geometric_sum": _geometric_sum,
        "complement_power": _complement_power,
        "erlang_b": lambda servers, load: (
            f"IF(({load})=0,IF(({servers})=0,1,0),POISSON({servers},{load},FALSE)/POISSON({servers},{load},TRUE))"
        ),
        "annuity": lambda rate, years: f"(-PMT({rate},{years},1))",
    },
    power=lambda base, exponent: f"({base}^{exponent})",
    number=number,
    negative="(0-{})",
)


def write_workbook(
    ledger: Ledger, results: Mapping[str, Any], path: Path, *, zero_cached: bool = False
) -> dict[str, str]:
    """Write a workbook of live formulas: inputs, one row an equation, results.

    Parameters
    ----------
    ledger : Ledger
        A traced calculation.
    results : mapping of str to Node
        What to show.
    path : Path
        Written whole or not at all.
    zero_cached : bool
        Store 0 as every formula's cached value, so that only a recalculation can show the right one.

    Returns
    -------
    dict of str to str
        Cell of each result.
    """
    file = io.BytesIO()
    placed = _write(ledger, results, file, zero_cached)
    with whole(path) as partial:
        partial.write_bytes(file.getbuffer())
    return placed


def _write(ledger: Ledger, results: Mapping[str, Any], file: io.BytesIO, zero_cached: bool) -> dict[str, str]:
    import xlsxwriter

    book = xlsxwriter.Workbook(file, {"nan_inf_to_errors": True, "in_memory": True})
    inputs, model, shown = (book.add_worksheet(name) for name in ("Inputs", "Model", "Results"))
    bold = book.add_format({"bold": True})
    for sheet, columns in (
        (inputs, ("input", "value", "unit", "source")),
        (model, ("equation", "value", "unit", "source")),
        (shown, ("result", "value")),
    ):
        sheet.write_row(0, 0, columns, bold)
        sheet.set_column(0, 0, 48)
        sheet.set_column(1, 1, 18)
    cells: dict[Any, str] = {}
    for row, (name, entry) in enumerate(ledger.reached(results.values()).items(), start=1):
        inputs.write_string(row, 0, name)
        if entry.value == entry.value:
            inputs.write_number(row, 1, entry.value)
        else:
            inputs.write_formula(row, 1, "=NA()", None, "#N/A")
        inputs.write_string(row, 2, entry.unit)
        inputs.write_string(row, 3, entry.source)
        cells[name] = f"Inputs!$B${row + 1}"

    def leaf(node: Node) -> str | None:
        if node.kind == "input":
            return cells[node.label]
        if node.line is not None:
            return cells[id(node.line)]
        return cells.get(id(node))

    placed: dict[str, str] = {}
    rows = {"Model": 0, "Results": 0}
    for step in steps(ledger, results):
        name = "Results" if isinstance(step.node, str) else "Model"
        sheet = shown if name == "Results" else model
        rows[name] += 1
        row = rows[name]
        text = LANGUAGE.write(step.expression, leaf)
        cached: Any = 0 if zero_cached else step.value if step.value == step.value else "#N/A"
        sheet.write_string(row, 0, step.name)
        sheet.write_formula(row, 1, f"={text}", None, cached)
        if name == "Model":
            sheet.write_string(row, 2, step.unit)
            sheet.write_string(row, 3, step.source)
            cells[id(step.node)] = f"Model!$B${row + 1}"
        else:
            placed[step.name] = f"B{row + 1}"
    book.close()
    return placed

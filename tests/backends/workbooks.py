"""What a workbook shows."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import openpyxl


@cache
def loaded(workbook: Path, *, values: bool) -> Any:
    """Return a workbook to read, with its formulas or with the values stored beside them."""
    return openpyxl.load_workbook(workbook, data_only=values)


def shown(workbook: Path) -> dict[str, float]:
    """Return the stored values of the sheet Results; NaN where a cell says #N/A, and no other error."""
    book = loaded(workbook, values=True)
    found = dict(book["Results"].iter_rows(min_row=2, values_only=True))
    broken = {name: value for name, value in found.items() if not isinstance(value, int | float) and value != "#N/A"}
    assert not broken
    return {name: math.nan if value == "#N/A" else float(value) for name, value in found.items()}


def cached(workbook: Path) -> set[object]:
    """Return the different values that the cells with formulas have stored."""
    formulas, values = loaded(workbook, values=False), loaded(workbook, values=True)
    return {
        values[sheet.title][cell.coordinate].value
        for sheet in formulas
        for row in sheet.iter_rows(min_row=2, min_col=2, max_col=2)
        for cell in row
        if cell.data_type == "f" and cell.value != "=NA()"
    }

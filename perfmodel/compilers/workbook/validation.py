"""Cells that take only what an input can be."""

from __future__ import annotations

from typing import Any

from perfmodel.compilers.workbook.content import Content
from perfmodel.compilers.workbook.layout import column
from perfmodel.compilers.workbook.sheet import Sheet


def validate(content: Content, sheet: Sheet, row: int, col: int, path: str, rows: int = 1) -> None:
    """Let a cell take only what the input can be."""
    allowed, (unit, factor) = content.ranges[path], content.human[path]
    least, most = allowed.least / factor, allowed.most / factor
    rule: dict[str, Any] = {"validate": "integer" if allowed.whole else "decimal", "ignore_blank": True}
    if allowed.above or allowed.below:
        # A validation of this kind has no open end, so that its formula says it.
        cell = f"{column(col)}{row + 1}"
        low = f"{cell}{'>' if allowed.above else '>='}{least:.15G}"
        high = f"{cell}{'<' if allowed.below else '<='}{most:.15G}"
        rule |= {"validate": "custom", "value": f"=AND({low},{high})"}
    else:
        rule |= {"criteria": "between", "minimum": least, "maximum": most}
    typed = "" if unit == "1" else f" Type it in {unit}."
    rule |= {"error_title": "Not possible", "error_message": f"Must be {allowed.words()}.{typed}"}
    sheet.sheet.data_validation(row, col, row + rows - 1, col, rule)

"""The sheet that says how the workbook is used, what it assumes, and its sources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from perfmodel.compilers.workbook.content import (
    MISFIT,
    MISSING,
    REFUSED,
    UNKNOWN,
)
from perfmodel.compilers.workbook.layout import Layout
from perfmodel.compilers.workbook.sheet import Book
from perfmodel.prediction import run
from perfmodel.specs.release import versions


def write(layout: Layout, book: Book) -> None:
    """Write the sheet."""
    content = layout.content
    sheet, form = book.sheets["About"], book.form
    sheet.sheet.set_column(0, 0, 120)
    answer = run(content.base.scenario)
    lines: list[tuple[str, Any]] = [
        (versions(), form["title"]),
        (f"{date.today():%Y-%m-%d}", None),
    ]
    lines += [(question, None) for question in content.questions]
    parts: list[tuple[str, Sequence[str]]] = [
        (
            "How to use it",
            (
                "Choose a system and a model on the sheet Inputs, and type over any number in a yellow cell.",
                "Results and Scenarios follow by live formulas; the Model sheets show every equation.",
                f"Where there is no number a result says '{MISFIT}', '{UNKNOWN}', '{REFUSED}' or '{MISSING}'; "
                "inside the Model sheets that is #N/A.",
                "Columns headed 'at export', and bands, are values: recompute them with perfmodel after a change.",
                "Engine and precisions of a pair are fixed in a workbook: export another one for others.",
            ),
        ),
        ("Assumed", list(dict.fromkeys([*answer.assumed, *content.own_files()]))),
        ("To mind", answer.warnings),
        ("Sources", content.sources()),
    ]
    for title, words in parts:
        lines += [("", None), (title, form["bold"]), *((word, form["wrap"]) for word in words)]
    for row, (text, style) in enumerate(lines, 1):
        sheet.text(row, 0, text, style)

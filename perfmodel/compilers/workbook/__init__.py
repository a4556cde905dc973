"""The planning workbook: every number a live formula, printed from the trace.

One *Model* sheet a program holds one row an equation and one column a case: the inputs as they stand, the scenarios,
and a grid of P:D and context.  All columns have the same formulas.  Inside, what does not exist is ``NA()``; only the
cells that show a result say why there is none.  The functions are those that Excel, LibreOffice and Google Sheets
share.

:mod:`~perfmodel.compilers.workbook.content` says what it holds, :mod:`~perfmodel.compilers.workbook.layout` where
each cell stands; then each sheet is a module that writes itself, in any order.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.compilers.offers import Offer
from perfmodel.compilers.workbook import about, equations, inputs, results, scenarios, specs
from perfmodel.compilers.workbook.content import Content
from perfmodel.compilers.workbook.layout import Layout
from perfmodel.compilers.workbook.sheet import Book
from perfmodel.writing import check_file, whole


def check_path(path: Path) -> None:
    """Refuse a name or a folder that a workbook cannot be written to."""
    check_file(path, [".xlsx"], "--xlsx")


def write(
    offer: Offer, path: Path, questions: Sequence[str] = (), *, zero_cached: bool = False, **options: Any
) -> Layout:
    """Write an offer as a planning workbook, whole or not at all.

    Parameters
    ----------
    offer : Offer
    path : Path
    questions : sequence of str
        How the numbers can be had from the command line.
    zero_cached : bool
        Store 0 beside every formula, so that only a recalculation can show the right values.
    **options
        See :class:`~perfmodel.compilers.workbook.content.Content`.

    Returns
    -------
    Layout
        Where everything stands.
    """
    layout = Layout(Content(offer, questions, **options))
    file = io.BytesIO()
    book = Book(file, ["Inputs", "Results", "Scenarios", *layout.models, "Specs", "About"], zero_cached)
    for sheet in (specs, inputs, equations, results, scenarios, about):
        sheet.write(layout, book)
    book.file.close()
    with whole(path) as partial:
        partial.write_bytes(file.getbuffer())
    return layout

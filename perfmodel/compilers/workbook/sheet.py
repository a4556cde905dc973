"""The file of a workbook: its sheets, its formats, and cells that take only what an input can be."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from perfmodel.compilers.workbook.content import NAN
from perfmodel.results import unit_of
from perfmodel.writing import text_cell

#: How results are shown, by unit: digits that tell something; the cells hold all of them.
_SHOWN = {
    "s": "[=0]0;[<0.01]0.000E+00;0.00000",
    "1/s": "#,##0.00",
    "B": "#,##0",
    "W": "#,##0",
    "J": "#,##0.00",
    "USD": "#,##0.000",
}
_COUNTS = ("max_concurrency", "chips")


class Sheet:
    """A sheet that stores either the right values beside its formulas, or zeros."""

    def __init__(self, sheet: Any, zero_cached: bool) -> None:
        self.sheet = sheet
        self.zero = zero_cached

    def page(self, wide: int = 1) -> None:
        """Print the width of the sheet on so many pages."""
        self.sheet.set_landscape()
        self.sheet.fit_to_pages(wide, 0)

    def text(self, row: int, col: int, words: str, form: Any = None) -> None:
        """Write words."""
        self.sheet.write_string(row - 1, col, text_cell(words), form)

    def number(self, row: int, col: int, value: float, form: Any = None) -> None:
        """Write a number, #N/A where there is none."""
        if value == value:
            self.sheet.write_number(row - 1, col, value, form)
        else:
            self.formula(row, col, "NA()", NAN, form)

    def formula(self, row: int, col: int, text: str, value: Any, form: Any = None) -> None:
        """Write a formula, and its value beside it."""
        missing = isinstance(value, float) and value != value
        cached = 0 if self.zero else "#N/A" if missing else value
        self.sheet.write_formula(row - 1, col, f"={text}", form, cached)


class Book:
    """An open workbook: sheets by name, formats by use.

    Parameters
    ----------
    file : io.BytesIO
    names : sequence of str
        Sheets in their order.
    zero_cached : bool
        Store 0 beside every formula, so that only a recalculation can show the right values.
    """

    def __init__(self, file: io.BytesIO, names: Sequence[str], zero_cached: bool) -> None:
        import xlsxwriter

        # In memory, since the library says a full disk by a traceback of its own.
        options = {"strings_to_formulas": False, "strings_to_urls": False, "in_memory": True}
        book = self.file = xlsxwriter.Workbook(file, options)
        self.form = {
            "bold": book.add_format({"bold": True, "text_wrap": True, "valign": "top", "bottom": 1}),
            "heading": book.add_format({"bold": True}),
            "title": book.add_format({"bold": True, "font_size": 14}),
            "given": book.add_format({"bg_color": "#FFF5D6", "border": 1, "border_color": "#D9C58A"}),
            "number": book.add_format({"num_format": "[=0]0;[<0.001]0.000E+00;General"}),
            "given_number": book.add_format(
                {
                    "bg_color": "#FFF5D6",
                    "border": 1,
                    "border_color": "#D9C58A",
                    "num_format": "[=0]0;[<0.001]0.000E+00;General",
                }
            ),
            "note": book.add_format({"font_color": "#666666", "italic": True}),
            "grey": book.add_format({"font_color": "#AAAAAA"}),
            "grey_number": book.add_format(
                {"font_color": "#888888", "num_format": "[=0]0;[<0.001]0.000E+00;General", "align": "right"}
            ),
            "wrap": book.add_format({"text_wrap": True, "valign": "top"}),
            "unit": book.add_format({"indent": 1}),
            "bold_number": book.add_format({"bold": True, "valign": "top", "bottom": 1, "align": "right"}),
        }
        self.shown_as = {
            unit: book.add_format({"num_format": form}) for unit, form in {**_SHOWN, "1": "0.0000", "": "#,##0"}.items()
        }
        self.sheets = {name: Sheet(book.add_worksheet(name), zero_cached) for name in names}
        book.set_calc_mode("auto")

    def number_form(self, name: str) -> Any:
        """Return how the numbers of a result are shown."""
        return self.shown_as["" if name in _COUNTS else unit_of(name)]

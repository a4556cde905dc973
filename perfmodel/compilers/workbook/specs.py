"""The sheet that the drop-downs choose from: systems, models and pairs, with where each number comes from."""

from __future__ import annotations

from perfmodel.compilers.workbook.layout import Layout
from perfmodel.compilers.workbook.sheet import Book


def write(layout: Layout, book: Book) -> None:
    """Write the sheet."""
    sheet, form = book.sheets["Specs"], book.form
    sheet.text(1, 0, "What the drop-downs choose from", form["title"])
    sheet.sheet.set_column(0, 0, 52)
    sheet.sheet.set_column(1, 1, 10)
    sheet.sheet.set_column(2, 2 + len(layout.content.offer.pairs), 22)
    for each in layout.spec_rows:
        style = form["bold"] if each.is_head else None
        sheet.text(each.row, 0, f"{each.key}s" if each.is_head else each.key, style)
        if each.unit:
            sheet.text(each.row, 1, each.unit, style)
        for at, value in enumerate(each.values, 2):
            if isinstance(value, float):
                sheet.number(each.row, at, value, form["number"])
            else:
                sheet.text(each.row, at, value, style)

"""The sheet of results: the inputs in use, and where the time goes."""

from __future__ import annotations

from perfmodel.compilers.workbook.layout import Layout, cell_name, column
from perfmodel.compilers.workbook.sheet import Book
from perfmodel.machines.step import CAUSES
from perfmodel.prediction import run
from perfmodel.results import unit_of


def write(layout: Layout, book: Book) -> None:
    """Write the sheet."""
    content = layout.content
    sheet, form = book.sheets["Results"], book.form
    for at, width in ((0, 34), (1, 18), (2, 8), (3, 18), (4, 18), (5, 18), (6, 40)):
        sheet.sheet.set_column(at, at, width)
    sheet.text(1, 0, "Results for the inputs in use", form["title"])
    sheet.formula(
        2,
        0,
        'Inputs!$B$4&" on "&Inputs!$B$3',
        f"{content.words(content.base)['model']} on {content.words(content.base)['system']}",
    )
    heads = ("result", "value", "unit", "at export", "80 % low", "80 % high", "")
    for at, head in enumerate(heads):
        sheet.text(4, at, head, form["bold"] if head in ("result", "unit", "") else form["bold_number"])
    sheet.text(4, 6, "values at export, for the inputs of then: recompute with perfmodel", form["note"])
    answer = run(content.base.scenario)
    for name, row in layout.shown_rows.items():
        sheet.text(row, 0, name)
        sheet.formula(row, 1, layout.answer(0, name), content.cached_answer(0, name), book.number_form(name))
        sheet.text(row, 2, unit_of(name), form["unit"])
        value = content.result(0, name)
        if value == value:
            sheet.number(row, 3, value, book.number_form(name))
        for at, end in ((4, "low"), (5, "high")):
            if name in answer.band:
                sheet.number(row, at, answer.band[name][end], book.number_form(name))
        book.file.define_name(cell_name("out", name), f"=Results!$B${row}")
    _limits(layout, book, 5 + len(content.results) + 1)
    sheet.sheet.freeze_panes(4, 1)
    sheet.page()


def _limits(layout: Layout, book: Book, row: int) -> None:
    """Write TTFT and TPOT by cause, what takes most of each, and a chart of them."""
    content = layout.content
    sheet, form = book.sheets["Results"], book.form
    phases = (("prefill", "TTFT [s]"), ("decode", "TPOT [s]"))
    causes = [cause for cause in CAUSES if all(f"{phase}_{cause}_s" in layout.shown_rows for phase, _ in phases)]
    first, last = row + 1, row + len(causes)
    sheet.text(row, 0, "where the time goes", form["bold"])
    chart = book.file.add_chart({"type": "bar"})
    for at, (phase, title) in enumerate(phases):
        letters = column(1 + 2 * at)
        sheet.text(row, 1 + 2 * at, title, form["bold_number"])
        values = [content.result(0, f"{phase}_{cause}_s") for cause in causes]
        for place, cause in enumerate(causes):
            sheet.text(first + place, 0, cause)
            shown = content.cached_answer(0, f"{phase}_{cause}_s")
            text = f"$B${layout.shown_rows[f'{phase}_{cause}_s']}"
            sheet.formula(first + place, 1 + 2 * at, text, shown, book.shown_as["s"])
        known = all(value == value for value in values)
        span = f"{letters}${first}:{letters}${last}"
        text = f'IF(COUNT({span})<{len(causes)},"",INDEX($A${first}:$A${last},MATCH(MAX({span}),{span},0)))'
        sheet.text(last + 1, 0, "most of it goes to")
        sheet.formula(last + 1, 1 + 2 * at, text, causes[values.index(max(values))] if known else "")
        chart.add_series(
            {
                "name": title,
                "categories": ["Results", first - 1, 0, last - 1, 0],
                "values": ["Results", first - 1, 1 + 2 * at, last - 1, 1 + 2 * at],
            }
        )
    chart.set_title({"name": "Where the time goes"})
    chart.set_x_axis({"name": "seconds"})
    chart.set_y_axis({"reverse": True})
    chart.set_size({"width": 640, "height": 380})
    sheet.sheet.insert_chart(5, 6, chart, {"description": "Seconds of TTFT and TPOT by cause"})

"""The sheet of scenarios, and the grid of P:D and context."""

from __future__ import annotations

from perfmodel.compilers.workbook.content import (
    CHANGES,
    GRID,
)
from perfmodel.compilers.workbook.layout import Layout, column
from perfmodel.compilers.workbook.sheet import Book, Sheet
from perfmodel.compilers.workbook.validation import validate
from perfmodel.machines.step import CAUSES
from perfmodel.results import unit_of


def write(layout: Layout, book: Book) -> None:
    """Write the sheet."""
    content = layout.content
    sheet, form = book.sheets["Scenarios"], book.form
    sheet.sheet.set_column(0, 0, 34)
    sheet.sheet.set_column(1, 2, 20)
    sheet.sheet.set_column(3, 60, 16)
    sheet.sheet.set_row(6, 48)
    sheet.text(1, 0, "Scenarios: the same formulas with other inputs", form["title"])
    sheet.text(
        2,
        0,
        "A yellow cell left empty takes what the sheet Inputs has; any two inputs can be changed, in its units.",
    )
    for at, head in enumerate(layout.scenario_heads):
        sheet.text(7, at, head, form["bold"])
    for name, at in layout.scenario_columns.items():
        sheet.text(7, at, name, form["bold"])
        sheet.text(6, at, unit_of(name), form["note"])
    for place, row in enumerate(layout.scenario_rows):
        _scenario(layout, book, place, row)
    first, last = layout.scenario_rows[0], layout.scenario_rows[-1]
    for at, kind in ((1, "system"), (2, "model")):
        source = f"={layout.range(kind, kind)}"
        sheet.sheet.data_validation(first - 1, at, last - 1, at, {"validate": "list", "source": source})
    for at, (_, path) in enumerate(CHANGES):
        validate(content, sheet, first - 1, 3 + at, path, last - first + 1)
    rows = list(layout.input_rows.values())
    for at in (3 + len(CHANGES), 5 + len(CHANGES)):
        source = f"=Inputs!$A${rows[0]}:$A${rows[-1]}"
        sheet.sheet.data_validation(first - 1, at, last - 1, at, {"validate": "list", "source": source})
    sheet.sheet.freeze_panes(7, 1)
    sheet.page(3)
    _scenario_charts(layout, book, sheet)
    for table, name in enumerate(GRID):
        _grid_table(layout, book, sheet, table, name)
    _grid_chart(layout, book, sheet)


def _scenario(layout: Layout, book: Book, place: int, row: int) -> None:
    content = layout.content
    sheet, form = book.sheets["Scenarios"], book.form
    case = content.cases[place + 1]
    sheet.text(row, 0, case.name or f"scenario {place + 1}", form["given"])
    other = case.pair is not content.base
    own = content.words(case.pair)
    words = {1: own["system"], 2: own["model"]} if other else {}
    numbers = {3 + at: case.edits[path] for at, (_, path) in enumerate(CHANGES) if path in case.edits}
    known = [path for _, path in CHANGES]
    picked = [(path, value) for path, value in case.edits.items() if path not in known]
    for at, (path, value) in enumerate(picked):
        words[3 + len(CHANGES) + 2 * at] = path
        numbers[4 + len(CHANGES) + 2 * at] = value / content.human[path][1]
    for at in range(1, len(layout.scenario_heads)):
        if at in words:
            sheet.text(row, at, words[at], form["given"])
        elif at in numbers:
            sheet.number(row, at, numbers[at], form["given_number"])
        else:
            sheet.sheet.write_blank(row - 1, at, None, form["given_number"])
    for name, at in layout.scenario_columns.items():
        sheet.formula(
            row,
            at,
            layout.answer(place + 1, name),
            content.cached_answer(place + 1, name),
            book.number_form(name),
        )


def _scenario_charts(layout: Layout, book: Book, sheet: Sheet) -> None:
    content = layout.content
    first, last = layout.scenario_rows[0] - 1, layout.scenario_rows[-1 - content.spare] - 1
    place = layout.scenario_rows[-1] + 1
    stacked = book.file.add_chart({"type": "bar", "subtype": "stacked"})
    for cause in CAUSES:
        if (name := f"decode_{cause}_s") in layout.scenario_columns:
            at = layout.scenario_columns[name]
            stacked.add_series(
                {
                    "name": cause,
                    "categories": ["Scenarios", first, 0, last, 0],
                    "values": ["Scenarios", first, at, last, at],
                }
            )
    stacked.set_title({"name": "TPOT by cause"})
    stacked.set_x_axis({"name": "seconds"})
    stacked.set_y_axis({"reverse": True})
    rates = book.file.add_chart({"type": "column"})
    at = layout.scenario_columns["tokens_per_s_per_chip"]
    rates.add_series({"categories": ["Scenarios", first, 0, last, 0], "values": ["Scenarios", first, at, last, at]})
    rates.set_title({"name": "Input plus output tokens per second and chip"})
    rates.set_legend({"none": True})
    for chart, col, words in ((stacked, 0, "TPOT of each scenario by cause"), (rates, 4, "Throughput of a chip")):
        chart.set_size({"width": 620, "height": 400})
        sheet.sheet.insert_chart(place, col, chart, {"description": words})


def _grid_table(layout: Layout, book: Book, sheet: Sheet, table: int, name: str) -> None:
    content = layout.content
    head, form = layout.grid_head(table), book.form
    sheet.text(head - 1, 0, f"{name} [{unit_of(name)}] by P:D (across) and P + D (down)", form["heading"])
    sheet.text(head, 0, "P + D, tokens, and P:D", form["note"])
    for at, ratio in enumerate(content.ratios):
        if table == 0:
            sheet.number(head, 1 + at, ratio, form["given_number"])
        else:
            sheet.formula(head, 1 + at, f"${column(1 + at)}${layout.grid_head(0)}", ratio, form["number"])
    for down, context in enumerate(content.contexts):
        row = layout.grid_row(down, table)
        if table == 0:
            sheet.number(row, 0, context, form["given_number"])
        else:
            sheet.formula(row, 0, f"$A${layout.grid_row(down, 0)}", context, form["number"])
        for across in range(len(content.ratios)):
            case = len(content.cases) + down * len(content.ratios) + across
            cached = content.cached_answer(case, name)
            sheet.formula(row, 1 + across, layout.answer(case, name), cached, book.number_form(name))


def _grid_chart(layout: Layout, book: Book, sheet: Sheet) -> None:
    content = layout.content
    for table, name in ((2, "Tokens per second and chip"), (0, "TPOT [s]")):
        chart = book.file.add_chart({"type": "line"})
        head = layout.grid_head(table) - 1
        for down in range(len(content.contexts)):
            row = layout.grid_row(down, table) - 1
            chart.add_series(
                {
                    "name": ["Scenarios", row, 0],
                    "categories": ["Scenarios", head, 1, head, len(content.ratios)],
                    "values": ["Scenarios", row, 1, row, len(content.ratios)],
                    "marker": {"type": "circle"},
                }
            )
        chart.set_title({"name": f"{name} by P:D; one line a P + D"})
        chart.set_x_axis({"name": "P:D"})
        chart.set_size({"width": 560, "height": 360})
        sheet.sheet.insert_chart(
            layout.grid_head(0) - 2 + (0 if table == 2 else 20), len(content.ratios) + 2, chart, {"description": name}
        )

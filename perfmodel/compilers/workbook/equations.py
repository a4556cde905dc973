"""The sheets of equations: one a program, one row an equation, one column a case."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfmodel.compilers.explain import LANGUAGE as WORDS
from perfmodel.compilers.program import Program, is_result
from perfmodel.compilers.spreadsheet import LANGUAGE
from perfmodel.compilers.workbook.content import (
    GRID,
    NAN,
)
from perfmodel.compilers.workbook.layout import FIRST, TOP, Layout, ProgramRows, column
from perfmodel.compilers.workbook.sheet import Book
from perfmodel.results import unit_of
from perfmodel.trace import Node


def write(layout: Layout, book: Book) -> None:
    """Write one sheet a program."""
    for at in range(len(layout.content.offer.programs)):
        _program(layout, book, at)


def _program(layout: Layout, book: Book, at: int) -> None:
    content, rows = layout.content, layout.programs[at]
    program, sheet, form = content.offer.programs[at], book.sheets[layout.models[at]], book.form
    pairs = [pair for pair in content.offer.pairs if pair.program == at]
    kind = pairs[0].scenario.system.kind
    sheet.text(1, 0, f"Model {at + 1}: {kind}; {len(program.steps)} equations, one row each", form["title"])
    for col, width in ((0, 46), (1, 60), (2, 8), (3, 40)):
        sheet.sheet.set_column(col, col, width)
    for col, head in enumerate(("equation", "formula", "unit", "source")):
        sheet.text(2, col, head, form["bold"])
    _words(layout, book, at)
    for case in range(len(content.cases) + len(content.grid)):
        _top(layout, book, at, case)
    texts = program.write(
        LANGUAGE,
        lambda path: f"\x00{rows.inputs[path]}",
        lambda slot: f"\x00{rows.slots[slot]}",
        lambda place: f"\x00{rows.start + place}",
    )
    own = _grid_rows(program, texts, rows)
    for case in range(len(content.cases) + len(content.grid)):
        _column(layout, book, at, case, texts, own)
    sheet.sheet.freeze_panes(2, 1)


def _words(layout: Layout, book: Book, at: int) -> None:
    """Write names, formulas in words, units and sources."""
    content, rows = layout.content, layout.programs[at]
    program, sheet = content.offer.programs[at], book.sheets[layout.models[at]]
    top = (
        "system",
        "model",
        "column of the system",
        "column of the model",
        "column of the pair",
        "layout can run",
        "program",
    )
    for row, words in enumerate(top, TOP):
        sheet.text(row, 0, words, book.form["note"])
    for path, row in rows.inputs.items():
        sheet.text(row, 0, path)
        sheet.text(row, 2, content.units[path])
        sheet.text(row, 3, "Inputs", book.form["note"])
    for slot, row in enumerate(rows.slots):
        sheet.text(row, 0, f"choice {slot + 1}: {program.slots[slot]}")
        sheet.text(row, 1, "a constant, or one of the inputs above, by system, model and precision")
    names: dict[int, str] = {}

    def named(node: Node) -> str | None:
        if node.kind in ("argument", "input"):
            return node.label
        return names.get(id(node.line if node.line is not None else node))

    for place, step in enumerate(program.steps):
        row = rows.start + place
        words = WORDS.write(step.expression, named)
        names[id(step.node)] = step.name
        sheet.text(row, 0, step.name)
        sheet.text(row, 1, words if len(words) < 2000 else f"{words[:2000]} ...")
        sheet.text(row, 2, step.unit or (unit_of(step.name) if is_result(step) else ""))
        sheet.text(row, 3, step.source)


def _top(layout: Layout, book: Book, at: int, case: int) -> None:
    """Write what a column is about, and whether its layout can run."""
    content, rows, letters = layout.content, layout.programs[at], column(4 + case)
    sheet = book.sheets[layout.models[at]]
    col = 4 + case
    about = (*content.cases, *content.grid)[case].pair
    words = content.words(about)
    in_grid = case >= len(content.cases)
    title = "Inputs" if case == 0 else f"grid {case - len(content.cases) + 1}" if in_grid else f"scenario {case}"
    sheet.text(2, col, title, book.form["bold"])
    for row, kind, source in ((3, "system", "B"), (4, "model", "C")):
        text = f"$E${row}" if in_grid else f"Inputs!$B${row}"
        if 0 < case < len(content.cases):
            own = f"Scenarios!${source}${layout.scenario_rows[case - 1]}"
            text = f"IF(ISBLANK({own}),{text},{own})"
        sheet.formula(row, col, text, words[kind])
    for row, kind in ((5, "system"), (6, "model")):
        place = layout.columns[kind].index(words[kind]) + 1
        sheet.formula(row, col, f"MATCH({letters}${row - 2},{layout.range(kind, kind)},0)", place)
    key = layout.columns["pair"].index(words["pair"]) + 1
    sheet.formula(7, col, f'MATCH({letters}$3&" | "&{letters}$4,{layout.range("pair", "pair")},0)', key)
    # The grid has the layout of the inputs.
    laid = "$E" if in_grid else letters
    tp, pp, dp, ep, shared = (
        f"{laid}${rows.inputs[f'deployment.{name}']}" if f"deployment.{name}" in rows.inputs else "1"
        for name in ("tp", "pp", "dp", "ep", "attention_dp")
    )
    ends, layers = (f"{laid}${rows.results[name]}" for name in ("stages_ends", "stages_layers"))
    pair = f"{letters}$7"
    check = (
        f'IFERROR(IF(AND(ISNUMBER(SEARCH("|"&{tp}&"|",{layout.look("allowed tp", "pair", pair)})),'
        f'ISNUMBER(SEARCH("|"&{ep}&"|",{layout.look("allowed ep", "pair", pair)})),'
        f"OR({ep}=1,MOD({tp}*{shared},{ep})=0),OR({shared}=1,{ep}>{tp}),{shared}=INT({shared}),{shared}>=1,"
        f"{dp}=INT({dp}),{dp}>=1,{pp}=INT({pp}),{pp}>=1,"
        f"{pp}>{ends},{pp}<={layers}+{ends}),1,0),0)"
    )
    sheet.formula(8, col, check, 1.0 if about.program == at else 0.0)
    sheet.formula(9, col, layout.look("program", "pair", f"{letters}$7"), about.program + 1)


def _column(layout: Layout, book: Book, at: int, case: int, texts: Sequence[str], own: set[int]) -> None:
    """Write inputs, choices and equations of a column; one of the grid has only the rows that its lengths move."""
    content, rows, letters = layout.content, layout.programs[at], column(4 + case)
    sheet, form = book.sheets[layout.models[at]], book.form["number"]
    in_grid = case >= len(content.cases)
    for path, row in rows.inputs.items():
        if not in_grid or row in own:
            # A pair of another program leaves the sheet without inputs, so that nothing is computed by chance.
            text = f"IF({letters}$9={at + 1},{layout.fed_by(path, row, case, letters)},NA())"
            sheet.formula(row, 4 + case, text, content.fed(case, at)[0].get(path, NAN), form)
    if not in_grid:
        _choices(layout, book, at, case)
    for place, (text, value) in enumerate(zip(texts, content.values[at][case], strict=True)):
        row = rows.start + place
        if not in_grid or row in own:
            sheet.formula(row, 4 + case, _placed(text, letters, own if in_grid else None), value, form)


def _choices(layout: Layout, book: Book, at: int, case: int) -> None:
    content, rows, letters = layout.content, layout.programs[at], column(4 + case)
    fed, filled = content.fed(case, at)
    first, last = FIRST, FIRST + len(rows.inputs) - 1
    for slot, row in enumerate(rows.slots):
        leaf = filled[slot] if filled else NAN
        value = fed.get(leaf, NAN) if isinstance(leaf, str) else leaf
        chosen = layout.look(f"slot {at}.{slot}", "pair", f"{letters}$7")
        text = (
            f"IF(ISNUMBER({chosen}),{chosen},INDEX({letters}${first}:{letters}${last},"
            f"MATCH({chosen},$A${first}:$A${last},0)))"
        )
        book.sheets[layout.models[at]].formula(row, 4 + case, text, value, book.form["number"])


def _placed(text: str, letters: str, own: set[int] | None) -> str:
    """Return a formula in a column; what the grid does not vary is read from the column of the inputs."""
    return re.sub(
        "\x00(\\d+)",
        lambda found: f"{letters if own is None or int(found[1]) in own else '$E'}{found[1]}",
        text,
    )


def _grid_rows(program: Program, texts: Sequence[str], rows: ProgramRows) -> set[int]:
    """Return the rows that a column of the grid has of its own: between its lengths and what it shows."""
    reads = {rows.start + at: {int(row) for row in re.findall("\x00(\\d+)", text)} for at, text in enumerate(texts)}
    lengths = {rows.inputs["traffic.prompt"], rows.inputs["traffic.output"]}
    moved = {*lengths}
    for row in sorted(reads):
        if reads[row] & moved:
            moved.add(row)
    ends = [
        rows.start + at
        for at, step in enumerate(program.steps)
        if is_result(step) and step.name in (*GRID, "max_concurrency")
    ]
    wanted: set[int] = set()
    stack = [*ends]
    while stack:
        row = stack.pop()
        if row not in wanted:
            wanted.add(row)
            stack += reads.get(row, ())
    return (moved & wanted) | set(ends) | lengths

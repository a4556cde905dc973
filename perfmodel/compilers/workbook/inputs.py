"""The sheet of inputs: what is chosen, what is typed, what the formulas read."""

from __future__ import annotations

from perfmodel.compilers.workbook.content import (
    IDLE,
    MISSING,
    NAN,
    REFUSED,
)
from perfmodel.compilers.workbook.layout import Layout, cell_name
from perfmodel.compilers.workbook.sheet import Book
from perfmodel.compilers.workbook.validation import validate
from perfmodel.specs.paths import provenance_of
from perfmodel.writing import text_cell


def write(layout: Layout, book: Book) -> None:
    """Write the sheet."""
    content = layout.content
    sheet, form = book.sheets["Inputs"], book.form
    wide = ((0, 48), (1, 16), (2, 16), (3, 16), (4, 14), (5, 12), (6, 12), (7, 70), (8, 18))
    for at, width in wide:
        sheet.sheet.set_column(at, at, width)
    sheet.text(1, 0, "Inputs: choose a system and a model, type over any number in the yellow cells", form["title"])
    chosen = content.words(content.base)
    for row, kind in ((3, "system"), (4, "model")):
        sheet.text(row, 0, kind)
        sheet.text(row, 1, chosen[kind], form["given"])
        sheet.sheet.data_validation(
            row - 1,
            1,
            row - 1,
            1,
            {
                "validate": "list",
                "source": f"={layout.range(kind, kind)}",
                "error_title": f"Unknown {kind}",
                "error_message": f"Choose one of the {kind}s that this workbook holds; export another for more.",
            },
        )
        book.file.define_name(f"in_{kind}", f"=Inputs!$B${row}")
    for row, name in enumerate(("plan", "engine", "precision", "kv_precision"), 5):
        sheet.text(row, 0, f"{name} of this pair".replace("_", " "))
        _chosen_word(layout, book, row, name)
    sheet.text(9, 0, "layout")
    text = f'IFERROR(IF({layout.runs(0)}=1,"can run","{REFUSED}: see allowed tp in Specs"),"{MISSING}")'
    sheet.formula(9, 1, text, "can run")
    for row, kind in enumerate(("system", "model"), 10):
        sheet.text(row, 0, f"column of the {kind} in Specs", form["note"])
        place = layout.columns[kind].index(chosen[kind]) + 1
        sheet.formula(row, 1, f"MATCH($B${row - 7},{layout.range(kind, kind)},0)", place)
    sheet.text(12, 0, "column of the pair in Specs", form["note"])
    sheet.formula(12, 1, f'MATCH($B$3&" | "&$B$4,{layout.range("pair", "pair")},0)', 1)
    heads = ["input", "in use", "your value", "from the specs", "unit", "low", "high", "where it comes from"]
    heads.append("for the formulas")
    for at, head in enumerate(heads):
        sheet.text(13, at, head, form["bold"])
    sheet.sheet.freeze_panes(13, 1)
    sheet.page()
    for path, row in layout.input_rows.items():
        _input_row(layout, book, path, row)
    rows = list(layout.input_rows.values())
    grey = {"type": "errors", "format": book.form["grey"]}
    sheet.sheet.conditional_format(rows[0] - 1, 1, rows[-1] - 1, 3, grey)


def _chosen_word(layout: Layout, book: Book, row: int, name: str) -> None:
    content = layout.content
    words = text_cell(getattr(content.base.scenario.deployment, name))
    book.sheets["Inputs"].formula(row, 1, f'IFERROR({layout.look(name, "pair", "$B$12")},"{MISSING}")', words)


def _input_row(layout: Layout, book: Book, path: str, row: int) -> None:
    content = layout.content
    sheet, form = book.sheets["Inputs"], book.form
    kind = content.kind(path)
    place = {"system": "$B$10", "model": "$B$11", "pair": "$B$12"}[kind]
    value = content.base.inputs.get(path, NAN)
    origin = provenance_of(content.base.scenario, path)
    sheet.text(row, 0, path)
    unit, factor = content.human[path]
    scale = "" if factor == 1.0 else f"{factor:.17G}"
    over, times = (f"/{scale}", f"*{scale}") if scale else ("", "")
    look = layout.look(path, kind, place)
    sheet.formula(row, 1, f"IF(ISBLANK($C{row}),$D{row},$C{row})", value / factor, form["number"])
    sheet.sheet.write_blank(row - 1, 2, None, form["given_number"])
    sheet.formula(row, 3, f"{look}{over}", value / factor, form["number"])
    sheet.text(row, 4, unit, form["unit"])
    for col, end in ((5, "low"), (6, "high")):
        known = getattr(origin, end)
        text = layout.look(f"{end} {path}", kind, place)
        cached = "" if known != known else known / factor
        sheet.formula(row, col, f'IF({text}="","",{text}{over})', cached, form["number"])
    source, said = layout.look(f"source {path}", kind, place), content.origin(content.base, path)
    if (entered := f"entered {path}") in layout.specs:
        enters = layout.look(entered, "reads", layout.look("reads", "pair", "$B$12"))
        source = f'IF(IFERROR({enters},1)=1,"","{IDLE}; ")&{source}'
        said = said if path in content.offer.read(content.base) else f"{IDLE}; {said}"
    sheet.formula(row, 7, source, said)
    # What the formulas read is in the inside unit, and exactly that of the specs where nothing was typed.
    sheet.formula(row, 8, f"IF(ISBLANK($C{row}),{look},$C{row}{times})", value, form["grey_number"])
    book.file.define_name(cell_name("in", path), f"=Inputs!$I${row}")
    validate(content, sheet, row - 1, 2, path)

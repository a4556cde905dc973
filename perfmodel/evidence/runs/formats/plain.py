"""A CSV with a row a measured value, as ``validate`` reads it; rows of one run share everything but the value."""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.run import KINDS, Format, Run, each
from perfmodel.evidence.validate.reading import REQUIRED

_LABEL = "CSV"
_NEEDS = ("metric", "value", "unit")
_VALUES = ("metric", "value", "unit", "stat", "source", "origins", "run")


def _read(document: Document) -> list[Run]:
    header, *rows = document.tables[0]
    names = [name.casefold() for name in header]
    missing = [name for name in _NEEDS if name not in names]
    if missing:
        raise UserError(f"{document.name} ({_LABEL}): no column '{missing[0]}'")
    runs: dict[tuple[tuple[str, str], ...], Run] = {}
    for number, cells in enumerate(rows, 2):
        if len(cells) != len(names):
            raise UserError(
                f"{document.name} ({_LABEL}): row {number} has {len(cells)} cells, the header {len(names)}; no field "
                f"'{names[min(len(cells), len(names) - 1)]}'"
            )
        row = dict(zip(names, cells, strict=True))
        try:
            value = float(row["value"])
        except ValueError:
            raise UserError(f"{document.name} ({_LABEL}): row {number}: value '{row['value']}' is no number") from None
        setup = tuple((name, cell) for name, cell in row.items() if name not in _VALUES and cell)
        run = runs.setdefault((("run", row.get("run", "")), *setup), Run(f"{document.name} ({_LABEL})"))
        for name, cell in setup:
            run.state(name, cell, f"column {name}")
        run.kind = "collective" if row.get("message_bytes") else KINDS.get(row["metric"], "serving")
        stat = row.get("stat", "").casefold()
        metric = row["metric"].removesuffix(f"_{stat}") if stat else row["metric"]
        run.measure(metric, stat, value, row["unit"], f"row {number}")
    return list(runs.values())


def _recognises(document: Document) -> bool:
    names = {name.casefold() for name in document.header}
    return not document.objects and ("metric" in names or "value" in names) and len(names & {*REQUIRED}) >= 2


FORMAT = Format(_LABEL, _recognises, each(_read))

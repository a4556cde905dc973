"""Runs that a user has measured: what benchmark tools and servers wrote, as one file that ``validate`` reads.

A file is told by what it holds.  What a server logged (its layout) goes to the runs given with it.  A field on which
the answer depends and that no file has is asked for, never taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from perfmodel import shapes, writing
from perfmodel.errors import UserError
from perfmodel.evidence.runs import document as files
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.fields import COLUMNS, check, missing, read_fields, settle
from perfmodel.evidence.runs.formats import formats
from perfmodel.evidence.runs.run import Format, Run, Stated
from perfmodel.shown import Shown

#: Columns of the file, in their order; those without a value in any row are left out.
_VALUES = ("metric", "stat", "value", "unit", "source", "origins")


@dataclass(frozen=True, repr=False)
class Runs(Shown):
    """Measured values of runs, a row each, with the set-up of its run.

    Attributes
    ----------
    runs : list of Run
    """

    runs: list[Run]

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the measurement file, by column."""
        made = []
        for number, run in enumerate(self.runs, 1):
            setup = {name: run.fields[name].value for name in COLUMNS if name in run.fields}
            others = {name: stated.value for name, stated in run.fields.items() if name not in COLUMNS}
            origins = "; ".join(f"{name}: {stated.origin}" for name, stated in run.fields.items())
            for value in run.values:
                made.append(
                    {
                        "run": str(number),
                        **setup,
                        **others,
                        "metric": value.name,
                        "stat": value.stat,
                        "value": f"{value.value:.9g}",
                        "unit": value.unit,
                        "source": run.source,
                        "origins": f"value: {value.origin}; {origins}",
                    }
                )
        return made

    @cached_property
    def suspects(self) -> list[tuple[int, str]]:
        """Runs that do not go with those beside them, by their number from 1, and which mistake is the likeliest."""
        from perfmodel.evidence.runs import suspect
        from perfmodel.evidence.validate import score_rows

        tests = {str(number) for number, run in enumerate(self.runs, 1) if run.kind == "serving"}
        scored = score_rows(("runs", row) for row in self.rows() if row["run"] in tests).rows
        return [(int(scored[one.rows[0]].given["run"]), one.why) for one in suspect.find(scored)]

    def columns(self) -> list[str]:
        """Return the columns of the measurement file."""
        used = dict.fromkeys(name for row in self.rows() for name in row)
        ordered = [name for name in ("run", *COLUMNS) if name in used]
        return [*ordered, *(name for name in used if name not in ordered and name not in _VALUES), *_VALUES]

    def to_dict(self) -> shapes.Runs:
        """Return the documented JSON object."""
        return {
            "runs": [
                {
                    "source": run.source,
                    "kind": run.kind,
                    "fields": {name: {"value": one.value, "origin": one.origin} for name, one in run.fields.items()},
                    "values": [
                        {
                            "metric": value.name,
                            "stat": value.stat,
                            "value": shapes.number(value.value),
                            "unit": value.unit,
                            "origin": value.origin,
                        }
                        for value in run.values
                    ],
                }
                for run in self.runs
            ],
            "suspects": [{"run": number, "why": why} for number, why in self.suspects],
        }

    def to_frame(self) -> Any:
        """Return a pandas frame, one row a measured value."""
        import pandas as pd

        return pd.DataFrame(self.rows(), columns=self.columns())

    def save(self, path: str | Path) -> None:
        """Write the measurement file, which ``validate --data`` reads.

        Parameters
        ----------
        path : str or path
            Ends in ``.csv``; written whole or not at all.
        """
        import csv

        target = Path(path)
        writing.check_file(target, (".csv",), "--out")
        with writing.whole(target) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns(), lineterminator="\r\n")
            writer.writeheader()
            for row in self.rows():
                writer.writerow({name: writing.text_cell(cell) for name, cell in row.items()})


def read_runs(paths: Iterable[str | Path], fields: Mapping[str, str] | Sequence[str] = ()) -> Runs:
    """Read files of benchmark tools, servers and monitors.

    Parameters
    ----------
    paths : iterable of str or path
    fields : mapping or sequence of str
        What the files do not say, by column; ``NAME=VALUE`` each.

    Returns
    -------
    Runs

    Raises
    ------
    UserError
        Where a file is not whole or of no known format, two contradict each other, or something is missing.
    """
    given = read_fields(fields)
    grouped: dict[str, tuple[Format, list[Document]]] = {}
    for path in paths:
        document = files.read(Path(path))
        found = recognise(document)
        grouped.setdefault(found.label, (found, []))[1].append(document)
    if not grouped:
        raise UserError("runs import: no file is given")
    runs = [run for one, documents in grouped.values() for run in one.read(documents)]
    _share(runs)
    for run in runs:
        run.fields.update({name: Stated(value, _replaced(run, name)) for name, value in given.items()})
        settle(run)
    _refuse_missing(runs)
    for run in runs:
        check(run)
    return Runs(runs)


def _replaced(run: Run, name: str) -> str:
    said = run.fields.get(name)
    return "--field" if said is None else f"--field, in place of {said.value} ({said.origin})"


def recognise(document: Document) -> Format:
    """Return the format of a document.

    Raises
    ------
    UserError
        Where it is of none that is known, or is cut off; the message names the first field that is missing.
    """
    forms = [form for form in formats() if form.recognises(document)]
    if len(forms) == 1:
        if document.cut_off:
            raise UserError(f"{document.name} ({forms[0].label}): the file is cut off: {_lost(document, forms[0])}")
        return forms[0]
    if document.cut_off:
        raise UserError(f"{document.name}: begins as JSON and does not end as JSON: the file is cut off")
    labels = ", ".join(form.label for form in forms or formats())
    said = "could be any of" if forms else "none of the formats that are known"
    raise UserError(f"{document.name}: {said}: {labels}")


def _lost(document: Document, one: Format) -> str:
    lost = [name for name in one.needs if name not in document.keys]
    return f"no field '{lost[0]}'" if lost else "its last fields are missing"


def _share(runs: list[Run]) -> None:
    """Give what servers logged of themselves to the runs that were given with them."""
    known: dict[str, tuple[Stated, str]] = {}
    for run in (run for run in runs if run.kind == "server"):
        for name, stated in run.fields.items():
            other = known.setdefault(name, (stated, run.source))
            if other[0].value != stated.value:
                raise UserError(
                    f"{other[1]} says {name} {other[0].value}, {run.source} {stated.value}: import them one by one"
                )
    for run in (run for run in runs if run.kind in ("serving", "power")):
        for name, (stated, source) in known.items():
            mine = run.fields.setdefault(name, Stated(stated.value, f"{source}: {stated.origin}"))
            # A served name need not be that of the model.
            if mine.value != stated.value and name in ("tp", "pp", "ep", "dp", "attention_dp", "n_chips"):
                raise UserError(f"{run.source} says {name} {mine.value}, {source} {stated.value}: which is it?")
    tests = [run for run in runs if run.kind == "serving"]
    if len(tests) == 1:
        for run in (run for run in runs if run.kind == "power"):
            for name, stated in tests[0].fields.items():
                run.fields.setdefault(name, Stated(stated.value, f"{tests[0].source}: {stated.origin}"))


def _refuse_missing(runs: list[Run]) -> None:
    """Ask for what no file says, in one line."""
    wanted = {name: None for run in runs for name in missing(run)}
    if not wanted:
        return
    without = list(dict.fromkeys(run.source for run in runs if missing(run)))
    more = f" and {len(without) - 1} more" if len(without) > 1 else ""
    lost = {run.lacks[name]: None for run in runs for name in missing(run) if name in run.lacks}
    fields = f"no field {', '.join(map(repr, lost))}: " if lost else ""
    options = " ".join(f"--field {name}=..." for name in wanted)
    raise UserError(f"{without[0]}{more}: {fields}the answer depends on what the files do not say; give {options}")

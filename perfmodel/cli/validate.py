"""``perfmodel validate``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from perfmodel.cli import OK, common

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE.csv", help="Measurements: model, hardware, metric, value, unit and more."),
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Write validation.html and validation.csv there.")
]
Json = Annotated[bool, typer.Option("--json", help="Print rows, scores and fitted parameters as JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")]

#: Rows from which a progress bar is worth showing.
MANY = 500


def validate(data: Data = None, json: Json = False, csv: Csv = False, out: Out = None) -> int:
    """Score the models against measurements.

    Predicted against measured, by group, with coverage; bundled measurements or your own.

    Example: perfmodel validate --data my-cluster.csv
    """
    from pathlib import Path

    from perfmodel.evidence import validate as study
    from perfmodel.evidence.runs import suspect
    from perfmodel.outputs import validation, validation_page

    rows = study.load(data)
    with _progress(len(rows)) as tick:
        result = study.score_rows(rows, tick)
    doubted = suspect.mark(result.rows) if data is not None else []
    # Files first: where one cannot be written, that is the answer, and there is one.
    if out is not None:
        source = f"validate --data {Path(data).name}" if data else "validate"
        for path in validation_page.save(result, Path(out), source):
            print(f"wrote {path}", file=sys.stderr)
    if json:
        common.write_json(result.to_dict())
    elif csv:
        validation.write_rows(result, sys.stdout)
    else:
        validation.print_validation(result, common.console())
    for line in doubted:
        print(f"perfmodel: {line}", file=sys.stderr)
    return OK


@contextlib.contextmanager
def _progress(rows: int) -> Iterator[Callable[[int], None]]:
    """Give what counts rows: a bar on a terminal where there are many, else nothing."""
    if rows < MANY or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("rows", total=rows)
        yield lambda count: progress.advance(task, count)

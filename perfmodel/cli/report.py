"""``perfmodel report``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfmodel.cli import OK, common

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|RECIPE.yaml", help="ship, dataflow, tco or size, or a recipe of your own.", show_default=False
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Folder to write to; reports/build/NAME where it is not given."),
]


def report(name: Name, out: Out = None, json: common.Json = False) -> int:
    """Write a report as one page that opens offline.

    Beside it PNG, SVG and CSV of each chart.

    Example: perfmodel report ship
    """
    from pathlib import Path

    from perfmodel.reports import page as output

    folder = Path(out) if out is not None else Path("reports", "build", Path(name).stem)
    shown = sys.stderr.isatty()

    def tick(done: int, of: int) -> None:
        if shown:
            print(f"\r{done} of {of} figures", end="" if done < of else "\n", file=sys.stderr, flush=True)

    path, *files = output.save(name, folder, tick)
    if json:
        common.write_json({"written": [str(path), *map(str, files)]})
        return OK
    print(path)
    print(f"{len(files)} files of charts beside it", file=sys.stderr)
    return OK

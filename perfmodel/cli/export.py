"""``perfmodel export``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import common
from perfmodel.options import Priced

Also = Annotated[list[str] | None, typer.Option("--also", metavar="MODEL", help="Another model. Repeat it.")]
CsvFile = Annotated[
    str | None, typer.Option("--csv", metavar="FILE.csv|.parquet", help="Write one row an answer, CSV or Parquet.")
]
Dictionary = Annotated[
    str | None, typer.Option("--dictionary", metavar="FILE.csv", help="Write column, type, unit and meaning beside it.")
]
Xlsx = Annotated[
    str | None, typer.Option("--xlsx", metavar="FILE.xlsx", help="Write a planning workbook of live formulas.")
]


@common.asks(Priced)
def export(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    also: Also = None,
    csv: CsvFile = None,
    dictionary: Dictionary = None,
    xlsx: Xlsx = None,
    json: common.Json = False,
) -> int:
    """Answers to take along: a tidy file or a live workbook.

    The file has a data dictionary, the workbook formulas that recalculate.

    All models are asked on all systems.  The workbook offers all bundled systems and models of the same equations.

    Example: perfmodel export llama-3.1-70b --on dgx-h100 --on lpu-v1 --xlsx plan.xlsx
    """
    from perfmodel import api
    from perfmodel.errors import UserError
    from perfmodel.outputs import answers as output

    if csv is None and dictionary is None and xlsx is None:
        raise UserError("export: say where to, with --csv FILE or --xlsx FILE")
    models = [model, *(also or [])]
    answers = [one for name in models for one in api.compare(name, on=on, set=changes or (), **given).answers]
    for path, write in ((csv, output.save), (dictionary, output.save_dictionary)):
        if path is not None:
            write(answers, Path(path))
            print(f"wrote {path}", file=sys.stderr)
    if xlsx is not None:
        _workbook(models, on, given, changes or [], Path(xlsx))
    if json:
        common.write_json({"written": [path for path in (csv, dictionary, xlsx) if path is not None]})
    return common.code(answers)


def _workbook(models: list[str], systems: list[str], given: Any, changes: list[str], path: Path) -> None:
    from perfmodel.compilers import workbook
    from perfmodel.compilers.offers import bundled_offer
    from perfmodel.question import taken

    workbook.check_path(path)
    options, wanted, _ = taken(Priced, systems, changes, given)
    with common.progress("pairs", None) as tick:
        offer, asked = bundled_offer(models, systems, options, wanted, tick)
    question = shlex.join(["perfmodel", *sys.argv[1:]])
    workbook.write(offer, path, [question], asked=asked)
    print(f"wrote {path}: {len(offer.systems)} systems, {len(offer.models)} models", file=sys.stderr)

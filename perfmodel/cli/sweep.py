"""``perfmodel sweep``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common

Axes = Annotated[
    list[str],
    typer.Option(
        "--axis",
        metavar="PATH=VALUES",
        help="A:B:N (linear, both ends), A:B:N:log, or a,b,c; a path, or model, system, traffic. Repeat it.",
    ),
]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE.csv|.parquet", help="Write all points to a file.")]


@common.asks
def sweep(
    model: common.Model,
    on: common.OneSystem,
    axis: Axes,
    given: Any,
    changes: common.Changes = None,
    out: Out = None,
    csv: common.Csv = False,
) -> int:
    """Vary inputs over axes, millions of points at once.

    Any path of a spec, deployment or traffic is an axis; whole systems, models and traffics are too.

    The plan is settled once, before the axes vary it.

    Example: perfmodel sweep qwen3-32b --on dgx-h100 --axis concurrency=1:64:7:log
    """
    from perfmodel.errors import UserError
    from perfmodel.outputs import rows
    from perfmodel.studies import sweep as study

    pairs = []
    for text in axis:
        path, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UserError(f"--axis {text}: write PATH=A:B:N, PATH=A:B:N:log or PATH=a,b,c")
        pairs.append((path.strip(), values.strip()))
    result = study.sweep(model, on, pairs, given, changes or [])
    question = shlex.join(["perfmodel", *sys.argv[1:]])
    with common.progress("rows", len(result), least=50_000) as tick:
        if out is not None:
            rows.save(result, Path(out), question, tick)
        elif csv:
            sys.stdout.reconfigure(newline="")  # type: ignore[union-attr]
            rows.write_csv(result, sys.stdout, question, tick)
        else:
            rows.print_rows(result, common.console())
    if out is not None:
        print(f"{len(result):,} points in {out}", file=sys.stderr)
    if any(bool(_any(cell.prediction.fits)) for cell in result.cells):
        return OK
    print("perfmodel: no point of the sweep fits", file=sys.stderr)
    return DOES_NOT_FIT


def _any(fits: Any) -> bool:
    return bool(fits.any()) if hasattr(fits, "any") else bool(fits)

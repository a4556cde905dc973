"""``perfmodel sweep``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, INTERRUPTED, OK, common
from perfmodel.options import StoredQuestion

Axes = Annotated[
    list[str],
    typer.Option(
        "--axis",
        metavar="PATH=VALUES",
        help="A:B:N (linear, both ends), A:B:N:log, or a,b,c; a path, or model, system, traffic. It takes the place of "
        "an option of the same input. Repeat it.",
    ),
]


@common.asks(StoredQuestion)
def sweep(
    model: common.Model,
    on: common.OneSystem,
    axis: Axes,
    given: Any,
    changes: common.Changes = None,
    csv: common.Csv = False,
    json: common.Json = False,
    plot: common.Plot = False,
) -> int:
    """Vary inputs over axes, millions of points at once.

    Any path of a spec, deployment or traffic is an axis; whole systems, models and traffics are too.

    The plan is settled once, before the axes vary it.  A folder takes any number of points: the same command goes on
    where it was stopped.

    Example: perfmodel sweep qwen3-32b --on dgx-h100 --axis concurrency=1:64:7:log
    """
    import numpy as np

    from perfmodel import api, shapes
    from perfmodel.errors import UserError
    from perfmodel.outputs.tables import print_said
    from perfmodel.outputs.verdicts import print_first
    from perfmodel.sweeps import folder
    from perfmodel.sweeps import points as rows
    from perfmodel.sweeps.agents_table import print_sweep

    pairs = []
    for text in axis:
        path, equals, values = text.partition("=")
        if not equals or not values.strip():
            raise UserError(f"--axis {text}: write PATH=A:B:N, PATH=A:B:N:log or PATH=a,b,c")
        pairs.append((path.strip(), values.strip()))
    common.one_of(csv=csv, out=given.get("out"))
    common.one_of(json=json, csv=csv, plot=plot)
    common.one_of(plot=plot, out=given.get("out"))
    users = api.swept_users(model, on, pairs, changes or (), given)
    if users is not None and plot:
        raise UserError("--plot draws tokens a second of a load: not beside --sessions")
    if users is not None:
        if csv:
            common.write_rows(users.rows())
        elif json:
            common.write_json({"rows": [shapes.numbers(row) for row in users.rows()]})
        else:
            print_sweep(users, common.console())
        return common.code(users.answers)
    space, how = api.settled(model, on, pairs, changes or (), given)
    out = how.pop("out", None)
    question = shlex.join(["perfmodel", *sys.argv[1:]])
    if out is not None and folder.is_folder(Path(out)):
        return _into_folder(space, out, question, how, json)
    for name in how:
        raise UserError(f"--{name} needs --out DIR, a folder for the partitions")
    if len(space) > rows.MOST_AT_ONCE:
        raise UserError(f"{len(space):,} points are too many at once: --out DIR works them out in partitions")
    if out is not None:
        rows.check_path(Path(out))
    result = space.evaluate()
    with common.progress("rows", len(result), least=50_000) as tick:
        if out is not None:
            rows.save(result, Path(out), question, tick)
        elif json:
            common.write_json(rows.to_dict(result))
        elif csv:
            sys.stdout.reconfigure(newline="")  # type: ignore[union-attr]
            rows.write_csv(result, sys.stdout, question, tick)
        else:
            if said := rows.sweep_verdict(result):
                print_first(said, common.console())
            if plot:
                rows.print_plot(result, common.console())
            rows.print_rows(result, rows.first_rows(result), common.console())
            if len(result) > rows.MOST:
                print(f"the first {rows.MOST} of {len(result):,} points; --out FILE.csv writes all")
            print_said([("assumed", space.assumed), ("mind", space.warnings)], common.console())
    if out is not None:
        if json:
            common.write_json({"written": [out]})
        print(f"{len(result):,} points in {out}", file=sys.stderr)
    return _code(any(np.any(cell.prediction.fits) for cell in result.cells))


def _into_folder(space: Any, out: str, question: str, how: dict[str, Any], json: bool) -> int:
    """Work a sweep out in partitions, and print what is kept of it."""
    from perfmodel.outputs.tables import print_said
    from perfmodel.sweeps import folder
    from perfmodel.sweeps import points as rows

    try:
        with common.progress("points", len(space), least=50_000) as tick:
            stored = folder.run(space, Path(out), question, **how, tick=tick)
    except KeyboardInterrupt as stopped:
        print(f"perfmodel: interrupted: {stopped}", file=sys.stderr)
        return INTERRUPTED
    if json:
        common.write_json({"written": [out]})
    elif stored.reduction is not None:
        rows.print_kept(space, stored.reduction, stored.to_frame(), common.console())
        print_said([("assumed", space.assumed), ("mind", space.warnings)], common.console())
    else:
        for line in space.warnings:
            print(f"mind: {line}", file=sys.stderr)
    print(stored, file=sys.stderr)
    return _code(stored.fits())


def _code(fits: bool) -> int:
    if fits:
        return OK
    print("perfmodel: no point of the sweep fits", file=sys.stderr)
    return DOES_NOT_FIT

"""``perfmodel calibrate``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli import OK, common
from perfmodel.errors import UserError

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE.csv", help="Your own runs: model, hardware, engine, metric, value and more."),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Folder of your specs; with --data. The current one where not given."),
]


def calibrate(data: Data = None, out: Out = None, json: common.Json = False) -> int:
    """Fit the numbers of your chip and engine to your own runs, on top of the shipped ones.

    Writes hardware_specs/calibration/CHIP-ENGINE[-RELEASE].yaml below --out, where every verb looks first, and prints
    what moved, errors before and of runs left out, and what to measure next. A few runs move what they can tell. For a
    second cluster of the same chips write a system with extends:, a chip: of its own and kin: of the chip it is like.

    Without --data: fits everything on the committed measurements, and writes calibration/ and power/ of the checkout,
    or of the current folder where this is an installed package.

    Example: perfmodel calibrate --data my-cluster.csv
    """
    if data is None:
        if out is not None or json:
            raise UserError(f"calibrate {'--out' if out is not None else '--json'}: goes with --data FILE.csv")
        _committed()
        return OK
    from perfmodel import api
    from perfmodel.outputs import cluster

    result = api.calibrate(data, out)
    if json:
        common.write_json(result.to_dict())
    else:
        cluster.print_calibrated(result, common.console())
    return OK


def _committed() -> None:
    """Fit on the committed measurements, and print how far each kind of kernel lies from its fit."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from perfmodel.evidence import calibrate as study
    from perfmodel.evidence import kernel_fit

    console = common.console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title="kernels against their fits")
    table.title_justify = "left"
    for column in ("kernel", "chip", "form", "n", "fitted", "median", "size left out", "farthest class", "note"):
        table.add_column(column, justify="right" if column in ("n", "fitted", "median", "size left out") else "left")
    for error in kernel_fit.kernel_errors():
        table.add_row(
            error.kernel,
            error.chip,
            error.form,
            str(error.points),
            str(error.parameters),
            f"{error.median:.1%}",
            "" if error.left_out != error.left_out else f"{error.left_out:.1%}",
            f"{error.worst:+.0%} at {error.worst_class}",
            Text(error.note),
        )
    console.print(table)
    console.print()
    for path in study.calibrate():
        console.print(Text(str(path)))

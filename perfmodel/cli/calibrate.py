"""``perfmodel calibrate``."""

from __future__ import annotations

from perfmodel.cli import common


def calibrate() -> None:
    """Fit the efficiencies on the committed measurements.

    Writes hardware_specs/calibration/ and power/ of the checkout, or of the current folder where this is an installed
    package.

    Prints how far each kind of kernel lies from its fit.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from perfmodel.evidence import calibrate as study

    console = common.console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title="kernels against their fits")
    table.title_justify = "left"
    for column in ("kernel", "chip", "form", "n", "fitted", "median", "size left out", "farthest class", "note"):
        table.add_column(column, justify="right" if column in ("n", "fitted", "median", "size left out") else "left")
    for error in study.kernel_errors():
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

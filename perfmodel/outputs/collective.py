"""One collective by itself, as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from perfmodel.outputs.verdicts import collective_verdict, print_first
from perfmodel.planning.collective import Collective
from perfmodel.specs.units import show


def print_collective(answer: Collective, console: Console) -> None:
    """Print an answer as a table.

    Parameters
    ----------
    answer : Collective
    console : rich.console.Console
    """
    table = Table()
    table.add_column("Algorithm")
    for column in ("Time", "Algorithm bandwidth", "Bus bandwidth"):
        table.add_column(column, justify="right")
    for row in answer.rows():
        rates = (row["algorithm_bandwidth"], row["bus_bandwidth"])
        table.add_row(
            row["algorithm"],
            show(row["time_s"], "s", 3),
            *("-" if rate is None else show(rate, "B/s", 3) for rate in rates),
        )
    print_first(collective_verdict(answer), console)
    console.print(table)
    for line in answer.warnings:
        console.print(f"Note: {line}", style="yellow")

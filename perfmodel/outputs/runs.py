"""Runs that were read, as tables: what was measured, and where each field of the set-up stood."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfmodel.evidence.runs import Runs


def print_runs(runs: Runs, console: Console) -> None:
    """Print runs, a table each.

    Parameters
    ----------
    runs : Runs
    console : rich.console.Console
    """
    for run in runs.runs:
        table = Table(title=Text(run.source), title_justify="left")
        for column in ("Field", "Value", "From"):
            table.add_column(column, overflow="fold")
        for name, stated in run.fields.items():
            table.add_row(Text(name), Text(stated.value), Text(stated.origin))
        table.add_section()
        for value in run.values:
            table.add_row(Text(value.name), Text(f"{value.value:.6g} {value.unit}"), Text(value.origin))
        console.print(table)


def runs_text(found: Runs) -> str:
    """Return runs as the terminal shows them."""
    out = io.StringIO()
    print_runs(found, Console(file=out, width=120))
    return out.getvalue()

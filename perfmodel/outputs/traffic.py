"""What calls of sessions say by themselves, as a table."""

from __future__ import annotations

from typing import Any

from perfmodel.evidence.session_import import Imported
from perfmodel.outputs.tables import plain, print_said, side_by_side, table_html


def _title(imported: Imported) -> str:
    told = imported.figures
    return f"{imported.name}, {imported.form}: {told.sessions:,} sessions, {told.calls:,} calls, {told.tasks:,} tasks"


def _rows(imported: Imported) -> list[tuple[str, list[str]]]:
    told = imported.figures
    return [
        ("hit ceiling, a cache without limit", [f"{told.hit_ceiling:.1%}"]),
        ("tokens read for one written", [f"{told.read_per_written:.1f}"]),
        ("input for one of output", [f"{told.input_per_output:.1f}"]),
        ("prompt of a call, mean", [f"{told.mean_context:,.0f}"]),
        ("of it new", [f"{told.mean_new:,.0f}"]),
        ("output of a call, mean", [f"{told.mean_output:,.0f}"]),
        ("calls of a session, mean", [f"{told.calls / told.sessions:,.1f}"]),
    ]


def print_traffic(imported: Imported, console: Any) -> None:
    """Print a table, what was assumed, and where the file lies.

    Parameters
    ----------
    imported : Imported
    console : rich.console.Console
    """
    side_by_side(_title(imported), ("",), _rows(imported), console)
    print_said([("assumed", imported.notes)], console)
    if imported.path:
        console.print(f"wrote {imported.path}")


def traffic_html(imported: Imported) -> str:
    """Return the table as HTML."""
    return table_html(_title(imported), ("",), _rows(imported), [("assumed", imported.notes)])


def traffic_text(imported: Imported) -> str:
    """Return the table as plain text."""
    return plain(lambda console: print_traffic(imported, console))

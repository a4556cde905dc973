"""What machines that one has serve, as a table and lines."""

from __future__ import annotations

import textwrap
from typing import Any

from perfmodel.outputs.sizing import answer_rows
from perfmodel.outputs.tables import plain, print_said, side_by_side
from perfmodel.planning.capacity import Capacity
from perfmodel.planning.verdict import asked


def print_capacity(capacity: Capacity, console: Any) -> None:
    """Print what each system serves, and how that came about.

    Parameters
    ----------
    capacity : Capacity
    console : rich.console.Console
    """
    from rich.text import Text

    for line in capacity.verdict():
        console.print(Text(textwrap.fill(line, console.width), style="bold"))
    if capacity.answers:
        console.print()
        names = [answer.scenario.system.name for answer in capacity.answers]
        rates = ("requests/s", [f"{answer.load.rate:.4g}" for answer in capacity.answers])
        title = f"{capacity.answers[0].scenario.model.name}: {capacity.nodes:g} nodes, {asked(capacity.objectives)}"
        side_by_side(title, names, [rates, *answer_rows(capacity.answers)], console)
    print_said([("", capacity.lines()), ("assumed", capacity.assumed), ("mind", capacity.warnings)], console)


def capacity_text(capacity: Capacity) -> str:
    """Return what each system serves as plain text.

    Parameters
    ----------
    capacity : Capacity

    Returns
    -------
    str
    """
    return plain(lambda console: print_capacity(capacity, console))

"""What machines that one has serve, as a table and lines."""

from __future__ import annotations

import textwrap
from typing import Any

from perfmodel.outputs.sizing import answer_rows
from perfmodel.outputs.tables import plain, print_said, side_by_side
from perfmodel.planning.capacity import Capacity
from perfmodel.planning.verdict import asked


def print_capacity(found: Capacity, console: Any) -> None:
    """Print what each system serves, and how that came about.

    Parameters
    ----------
    found : Capacity
    console : rich.console.Console
    """
    from rich.text import Text

    for line in found.verdict():
        console.print(Text(textwrap.fill(line, console.width), style="bold"))
    if found.answers:
        console.print()
        names = [answer.scenario.system.name for answer in found.answers]
        rates = ("requests/s", [f"{answer.load.rate:.4g}" for answer in found.answers])
        title = f"{found.answers[0].scenario.model.name}: {found.nodes:g} nodes, {asked(found.objectives)}"
        side_by_side(title, names, [rates, *answer_rows(found.answers)], console)
    print_said([("", found.lines()), ("assumed", found.assumed), ("mind", found.warnings)], console)


def capacity_text(found: Capacity) -> str:
    """Return what each system serves as plain text.

    Parameters
    ----------
    found : Capacity

    Returns
    -------
    str
    """
    return plain(lambda console: print_capacity(found, console))

"""Checked plans as lines."""

from __future__ import annotations

from typing import Any

from perfmodel.outputs.tables import plain, print_said
from perfmodel.planning.plans import PlanChecked


def print_checked(found: PlanChecked, console: Any) -> None:
    """Print a saved plan beside the answer of today.

    Parameters
    ----------
    found : PlanChecked
    console : rich.console.Console
    """
    from rich.text import Text

    says = "still the answer" if found.holds else "no longer the answer"
    console.print(Text(f"the plan of {found.plan['written']} is {says}: {found.why()}", style="bold"))
    layout = [found.layout] if found.layout else []
    print_said(
        [
            ("then", [found.plan["verdict"]]),
            ("now", [found.now.verdict()]),
            ("what moved of the answer", [*layout, *(one.words() for one in found.answer)]),
            ("inputs that moved", [one.words() for one in found.inputs]),
        ],
        console,
    )


def checked_text(found: PlanChecked) -> str:
    """Return a saved plan beside the answer of today as plain text.

    Parameters
    ----------
    found : PlanChecked

    Returns
    -------
    str
    """
    return plain(lambda console: print_checked(found, console))

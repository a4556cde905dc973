"""Checked plans as lines."""

from __future__ import annotations

from typing import Any

from perfmodel.outputs.tables import plain, print_said
from perfmodel.planning.plans import PlanChecked


def print_checked(checked: PlanChecked, console: Any) -> None:
    """Print a saved plan beside the answer of today.

    Parameters
    ----------
    checked : PlanChecked
    console : rich.console.Console
    """
    from rich.text import Text

    says = "still the answer" if checked.holds else "no longer the answer"
    console.print(Text(f"the plan of {checked.plan['written']} is {says}: {checked.why()}", style="bold"))
    layout = [checked.layout] if checked.layout else []
    print_said(
        [
            ("then", [checked.plan["verdict"]]),
            ("now", [checked.now.verdict()]),
            ("what moved of the answer", [*layout, *(one.words() for one in checked.answer)]),
            ("inputs that moved", [one.words() for one in checked.inputs]),
        ],
        console,
    )


def checked_text(checked: PlanChecked) -> str:
    """Return a saved plan beside the answer of today as plain text.

    Parameters
    ----------
    checked : PlanChecked

    Returns
    -------
    str
    """
    return plain(lambda console: print_checked(checked, console))

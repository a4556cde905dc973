"""Points and their frontier as a plain-text chart."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import figure

#: Lines of the chart, and points of the frontier that have a letter.
_LINES, _LETTERS = 12, 8
#: Signs of the frame (side, corner, floor) and of a point that another beats, and what stands for them elsewhere.
_SIGNS, _ASCII = "│└─·", "|+-."


def frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return which points no other beats in both numbers, by the first number; of equals the first.

    Parameters
    ----------
    points : sequence of (float, float)
        More is better in both.

    Returns
    -------
    list of int
    """
    found: list[int] = []
    highest = -float("inf")
    for at in sorted(range(len(points)), key=lambda at: (-points[at][0], -points[at][1], at)):
        if points[at][1] > highest:
            highest = points[at][1]
            found.append(at)
    return found[::-1]


def _place(value: float, low: float, high: float, cells: int) -> int:
    """Return the cell of a value; the middle where all values are one."""
    return cells // 2 if high <= low else round((value - low) / (high - low) * (cells - 1))


def _signs(console: Any) -> str:
    try:
        _SIGNS.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return _ASCII
    return _SIGNS


def print_frontier(
    points: Sequence[tuple[float, float]], names: Sequence[str], across: str, up: str, console: Any
) -> None:
    """Print points, those of the frontier by letters that a list below explains.

    Parameters
    ----------
    points : sequence of (float, float)
        Finite; more is better in both.
    names : sequence of str
        One a point.
    across, up : str
        What the numbers are.
    console : rich.console.Console
    """
    from rich.text import Text

    if not points:
        return
    side, corner, floor, dot = list(_signs(console))
    low, high = ([end(point[which] for point in points) for which in (0, 1)] for end in (min, max))
    labels = [figure(end, "1") for end in (high[1], low[1])]
    left = max(map(len, labels)) + 1
    cells = max(10, min(console.width, 100) - left - 2)
    grid = [[" "] * cells for _ in range(_LINES)]

    def mark(at: int, sign: str) -> None:
        x, y = points[at]
        grid[_LINES - 1 - _place(y, low[1], high[1], _LINES)][_place(x, low[0], high[0], cells)] = sign

    best = frontier(points)
    for at in range(len(points)):
        mark(at, dot)
    step = max(1, -(-len(best) // _LETTERS))
    lettered = best[::step]
    for at in best:
        mark(at, "*")
    for letter, at in zip(string.ascii_lowercase, lettered, strict=False):
        mark(at, letter)
    console.print(Text(f"{up}, up, against {across}; * and letters: no other point beats both"))
    for line, row in enumerate(grid):
        label = labels[0] if line == 0 else labels[1] if line == _LINES - 1 else ""
        console.print(Text(f"{label:>{left}}{side}{''.join(row).rstrip()}"))
    console.print(Text(f"{'':>{left}}{corner}{floor * cells}"))
    ends = [figure(low[0], "1"), figure(high[0], "1")]
    console.print(Text(f"{'':>{left + 1}}{ends[0]}{ends[1]:>{cells - len(ends[0])}}"))
    for letter, at in zip(string.ascii_lowercase, lettered, strict=False):
        x, y = points[at]
        said = f"  {letter}  {names[at]}: {figure(x, '1')} {across}, {figure(y, '1')} {up}"
        console.print(Text(textwrap.fill(said, console.width, subsequent_indent="     ")))

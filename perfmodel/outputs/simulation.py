"""A simulation beside the closed form as a table."""

from __future__ import annotations

import textwrap
from typing import Any

from perfmodel.specs.units import show
from perfmodel.studies.simulate import Comparison

_NAMES = {"wait_s": "wait", "ttft_s": "TTFT", "tpot_s": "TPOT", "request_latency_s": "request"}


def print_simulation(found: Comparison, console: Any) -> None:
    """Print simulation, closed form and their difference, and where the closed form fails.

    Parameters
    ----------
    found : Comparison
    console : rich.console.Console
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if found.reason:
        return
    used = "" if found.utilisation != found.utilisation else f", {found.utilisation:.0%} of what it can do"
    title = (
        f"{found.scenario.model.name} on {found.scenario.system.name}: {found.requests:,} requests on one replica, "
        f"{found.rate:.4g} a second{used}"
    )
    console.print(Text(title, style="italic"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("", "simulated", "closed form", "difference"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    gaps = found.differences()
    for time, parts in found.simulated.items():
        for what in ("mean", "p50", "p90", "p99"):
            ran, gap = parts[what], gaps[time][what]
            closed = found.closed_form.get(time, {}).get(what)
            cells = [
                "-" if ran is None else show(ran, "s", 3),
                "-" if closed is None else show(closed, "s", 3),
                "-" if gap is None else f"{gap:+.0%}",
            ]
            table.add_row(Text(f"{_NAMES[time]} {what.upper() if what != 'mean' else what}"), *map(Text, cells))
        table.add_section()
    console.print(table)
    lines = [*found.scenario.warnings, *found.fails()]
    if found.refused:
        lines.append(f"{found.refused:,} requests are longer than a replica's cache and were refused")
    for heading, words in (("assumed", found.scenario.assumed), ("mind", lines)):
        if words:
            console.print()
            console.print(Text(heading))
        for line in words:
            console.print(Text(textwrap.fill(line, console.width, initial_indent="  - ", subsequent_indent="    ")))

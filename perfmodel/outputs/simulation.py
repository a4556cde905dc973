"""A simulation beside the closed form as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import plain, print_said, side_by_side, table_html
from perfmodel.outputs.verdicts import print_first, simulation_verdict
from perfmodel.planning.simulate import Comparison
from perfmodel.specs.catalog import IN_PLACE
from perfmodel.specs.units import show

_NAMES = {"wait_s": "wait", "ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "request_latency_s": "request"}
#: What there is to mind that is printed; the rest is counted.
_MOST = 3
_HEADINGS = ("simulated", "standard error", "closed form", "difference")


def _title(result: Comparison) -> str:
    used = "" if result.utilisation != result.utilisation else f", {result.utilisation:.0%} of what it can do"
    replicas = (
        "one replica" if result.replicas == 1 else f"{result.replicas} replicas, {result.scenario.deployment.routing}"
    )
    beside = "" if used else f" ({result.closed_rate:.4g} in the closed form)"
    asked = f"{result.scenario.model.name} on {result.scenario.system.name}"
    return (
        f"{asked}: {result.seeds} times {result.requests:,} requests "
        f"on {replicas}, {result.rate:.4g} a second and replica{beside}{used}"
    )


def _rows(result: Comparison) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, list[str]]] = []
    gaps = result.differences()
    for time, parts in result.simulated.items():
        if rows:
            rows.append(("", []))
        for what in ("mean", "p50", "p90", "p99"):
            ran, gap = parts[what], gaps[time][what]
            closed = result.closed_form.get(time, {}).get(what)
            cells = [
                "-" if ran is None else show(ran, "s", 3),
                "-" if (error := result.errors[time][what]) is None else f"{error:.1%}",
                "-" if closed is None else show(closed, "s", 3),
                "-" if gap is None else f"{gap:+.0%}",
            ]
            rows.append((f"{_NAMES[time]} {what.upper() if what != 'mean' else what}", cells))
    return rows


def _said(result: Comparison) -> list[tuple[str, Sequence[str]]]:
    mind = [*result.scenario.warnings, *result.fails()]
    if result.refused:
        mind.append(f"{result.refused:,} requests are longer than a replica's cache and were refused")
    if result.preempted:
        mind.append(f"{result.preempted:,} times a request lost its blocks and was prefilled again")
    return [("assumed", result.scenario.assumed), ("mind", mind)]


def print_simulation(result: Comparison, console: Any, verbose: bool = False) -> None:
    """Print the verdict, simulation beside closed form, and where the closed form fails.

    Parameters
    ----------
    result : Comparison
    console : rich.console.Console
    verbose : bool
        All times and percentiles, and all that is assumed.
    """
    from rich.text import Text

    if result.reason:
        return
    print_first(simulation_verdict(result), console)
    if verbose:
        side_by_side(_title(result), _HEADINGS, _rows(result), console)
        print_said(_said(result), console)
        return
    decides = [row for row in _rows(result) if row[0].partition(" ")[0] in ("TTFT", "TPOT", "request")]
    side_by_side("", _HEADINGS, [row for row in decides if row[0].endswith((" mean", " P99"))], console)
    (_, assumed), (_, mind) = _said(result)
    for line in [*(line for line in assumed if line.endswith(IN_PLACE)), *mind[:_MOST]]:
        console.print(Text(textwrap.fill(line, console.width, initial_indent="- ", subsequent_indent="  ")))
    more = len(assumed) + len(mind[_MOST:])
    console.print(Text(f"-v: waits, ITL, percentiles, and {more} lines more of what is assumed and to be minded"))


def simulation_html(result: Comparison) -> str:
    """Return simulation, closed form and their difference as HTML."""
    if result.reason:
        return table_html(result.reason, [], [], _said(result))
    return table_html(_title(result), _HEADINGS, _rows(result), _said(result))


def simulation_text(result: Comparison) -> str:
    """Return simulation, closed form and their difference as plain text, or why there are none."""
    return result.reason or plain(lambda console: print_simulation(result, console, verbose=True))

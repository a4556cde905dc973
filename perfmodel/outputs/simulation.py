"""A simulation beside the closed form as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import plain, print_said, side_by_side, table_html
from perfmodel.planning.simulate import Comparison
from perfmodel.specs.units import show

_NAMES = {"wait_s": "wait", "ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "request_latency_s": "request"}
_HEADINGS = ("simulated", "standard error", "closed form", "difference")


def _title(found: Comparison) -> str:
    used = "" if found.utilisation != found.utilisation else f", {found.utilisation:.0%} of what it can do"
    replicas = (
        "one replica" if found.replicas == 1 else f"{found.replicas} replicas, {found.scenario.deployment.routing}"
    )
    beside = "" if used else f" ({found.closed_rate:.4g} in the closed form)"
    return (
        f"{found.scenario.model.name} on {found.scenario.system.name}: {found.seeds} times {found.requests:,} requests "
        f"on {replicas}, {found.rate:.4g} a second and replica{beside}{used}"
    )


def _rows(found: Comparison) -> list[tuple[str, list[str]]]:
    rows: list[tuple[str, list[str]]] = []
    gaps = found.differences()
    for time, parts in found.simulated.items():
        if rows:
            rows.append(("", []))
        for what in ("mean", "p50", "p90", "p99"):
            ran, gap = parts[what], gaps[time][what]
            closed = found.closed_form.get(time, {}).get(what)
            cells = [
                "-" if ran is None else show(ran, "s", 3),
                "-" if (error := found.errors[time][what]) is None else f"{error:.1%}",
                "-" if closed is None else show(closed, "s", 3),
                "-" if gap is None else f"{gap:+.0%}",
            ]
            rows.append((f"{_NAMES[time]} {what.upper() if what != 'mean' else what}", cells))
    return rows


def _said(found: Comparison) -> list[tuple[str, Sequence[str]]]:
    mind = [*found.scenario.warnings, *found.fails()]
    if found.refused:
        mind.append(f"{found.refused:,} requests are longer than a replica's cache and were refused")
    if found.preempted:
        mind.append(f"{found.preempted:,} times a request lost its blocks and was prefilled again")
    return [("assumed", found.scenario.assumed), ("mind", mind)]


def print_simulation(found: Comparison, console: Any) -> None:
    """Print simulation, closed form and their difference, and where the closed form fails.

    Parameters
    ----------
    found : Comparison
    console : rich.console.Console
    """
    if found.reason:
        return
    side_by_side(_title(found), _HEADINGS, _rows(found), console)
    print_said(_said(found), console)


def simulation_html(found: Comparison) -> str:
    """Return simulation, closed form and their difference as HTML."""
    if found.reason:
        return table_html(found.reason, [], [], _said(found))
    return table_html(_title(found), _HEADINGS, _rows(found), _said(found))


def simulation_text(found: Comparison) -> str:
    """Return simulation, closed form and their difference as plain text, or why there are none."""
    return found.reason or plain(lambda console: print_simulation(found, console))

"""Answers about load as tables, rows and lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import side_by_side
from perfmodel.question import distinct
from perfmodel.serving.objectives import TIMES, Objectives, phrase, statistic
from perfmodel.specs.units import show
from perfmodel.studies.size import Disaggregated, Sized, Sizing, assumptions, cautions, plan_name

_NAMES = {"ttft": "TTFT", "tpot": "TPOT", "latency": "request"}
_WHAT = ("mean", "p50", "p90", "p99")


def _time(value: float) -> str:
    return show(value, "s", 3) if math.isfinite(value) else "saturated"


def _plain(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _cells(answer: Sized) -> list[tuple[str, str]]:
    load, queue = answer.load, answer.load.queue
    rows = [
        ("plan", plan_name(answer.scenario)),
        ("engine", answer.scenario.deployment.engine),
        ("replicas", f"{load.replicas:,}"),
        ("chips", f"{answer.chips:,.0f}"),
        ("batch cap", f"{answer.batch_cap:,.0f}"),
        ("token budget", f"{answer.token_budget:,.0f}"),
        ("", ""),
        ("running a replica", _plain(queue.running, ".3g")),
    ]
    for time in TIMES:
        rows += [
            (f"{_NAMES[time]} {what.upper() if what != 'mean' else what}", _time(statistic(queue, time, what)))
            for what in _WHAT
        ]
        rows.append(("", ""))
    money, power = answer.usd_per_hour, answer.power_w
    spares = answer.availability
    if spares is not None:
        rows += [
            ("spares", f"{spares.spares:,} {spares.unit}" if spares.spares >= 0 else "out of reach"),
            ("recovery", show(spares.recovery_s, "s", 3)),
            ("requests hit", f"{spares.hit:.2g}"),
            ("", ""),
        ]
    return [
        *rows,
        ("goodput /s", _plain(load.goodput, ".4g")),
        ("utilisation", f"{queue.utilisation:.0%}"),
        ("headroom", _plain(load.headroom, "+.0%")),
        ("USD an hour", _plain(money, ",.4g")),
        ("USD a Mtok", _plain(answer.usd_per_mtok, ".3g")),
        ("power", show(power, "W", 3) if math.isfinite(power) else "not published"),
    ]


def print_load(answers: Sequence[Sized], console: Any, title: str) -> None:
    """Print answers side by side.

    Parameters
    ----------
    answers : sequence of Sized
    console : rich.console.Console
    title : str
    """
    columns = [_cells(answer) for answer in answers]
    rows = [(cells[0][0], [cell for _, cell in cells] if cells[0][0] else []) for cells in zip(*columns, strict=True)]
    side_by_side(title, [answer.scenario.system.name for answer in answers], rows, console)
    for system, answer in zip(distinct([answer.scenario.system.name for answer in answers]), answers, strict=True):
        name = f"{system}: " if len(answers) > 1 else ""
        if answer.periods:
            counts = [count for _, count in answer.periods]
            mean = sum(counts) / len(counts)
            _lines(
                console,
                "",
                [
                    f"{name}by period {min(counts):,} to {max(counts):,} replicas, {mean:.3g} on average: "
                    f"{mean / answer.load.replicas:.0%} of those of the peak"
                ],
            )
        met = math.isfinite(answer.load.headroom)
        verb = "first to bind as traffic grows" if met else "not met as it is"
        _lines(console, "", [f"{name}{verb}: {answer.load.first_limit}"])


def _lines(console: Any, heading: str, lines: Sequence[str]) -> None:
    from rich.text import Text

    if heading and lines:
        console.print()
        console.print(Text(heading))
    for line in lines:
        console.print(Text(textwrap.fill(line, console.width, initial_indent="  - ", subsequent_indent="    ")))


def print_notes(answers: Sequence[Sized], console: Any) -> None:
    """Print what was assumed and what to mind, of each answer."""
    for system, answer in zip(distinct([answer.scenario.system.name for answer in answers]), answers, strict=True):
        name = f", for {system}" if len(answers) > 1 else ""
        _lines(console, f"assumed{name}", assumptions(answer.scenario))
        _lines(console, f"mind{name}", [*answer.scenario.warnings, *cautions(answer.scenario, answer.load)])


def asked(objectives: Objectives) -> str:
    """Return objectives in words."""
    words = [f"{phrase(key)} within {show(limit, 's', 3)}" for key, limit in objectives.limits.items()]
    return ", ".join(words) or "no objective"


def print_pools(found: Disaggregated, model: str, objectives: Objectives, console: Any) -> None:
    """Print the pools of a disaggregated deployment side by side.

    Parameters
    ----------
    found : Disaggregated
    model : str
    objectives : Objectives
    console : rich.console.Console
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{model}: {found.rate:g} requests/s, {asked(objectives)}", style="italic"))
    pools = found.pools
    if pools is not None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in ("", "prefill pool", "decode pool"):
            table.add_column(heading, justify="right" if heading else "left")
        loads = (pools.prefill, pools.decode)
        rows = [
            ("system", [found.prefill.system.name, found.decode.system.name]),
            ("plan", [plan_name(found.prefill), plan_name(found.decode)]),
            ("replicas", [f"{load.replicas:,}" for load in loads]),
            ("utilisation", [f"{load.queue.utilisation:.0%}" for load in loads]),
            ("headroom", [_plain(load.headroom, "+.0%") for load in loads]),
        ]
        for what in _WHAT:
            name = what if what == "mean" else what.upper()
            rows.append((f"TTFT {name}", [_time(statistic(pools.prefill.queue, "ttft", what)), ""]))
        for what in _WHAT:
            name = what if what == "mean" else what.upper()
            rows.append((f"TPOT {name}", ["", _time(statistic(pools.decode.queue, "tpot", what))]))
        for label, cells in rows:
            table.add_row(Text(label), *map(Text, cells))
        console.print(table)
        moved = show(pools.transfer, "s", 3) if math.isfinite(pools.transfer) else "not published"
        late = show(pools.tpot_mean, "s", 3) if math.isfinite(pools.tpot_mean) else "not published"
        _lines(
            console,
            "",
            [
                f"{pools.chips:,.0f} chips; at capacity {pools.ratio:.3g} prefill replicas for each that decodes",
                f"moving a prompt's cache takes {moved}; mean TPOT with it and the wait at the door {late}",
            ],
        )
    _lines(console, "assumed", found.assumed)


def print_sizing(sizing: Sizing, model: str, console: Any, explain: bool) -> None:
    """Print the answers of a search, and why the others lose.

    Parameters
    ----------
    sizing : Sizing
    model : str
    console : rich.console.Console
    explain : bool
        Whether to list every rejected plan, else only how the best of the other systems lose.
    """
    title = f"{model}: {sizing.rate:g} requests/s, {asked(sizing.objectives)}, least {sizing.goal}"
    if sizing.answers:
        print_load(sizing.answers, console, title)
    others = sizing.rejected[: max(0, len(sizing.answers) - 1)]
    _lines(console, "why the others lose", [f"{entry.system}, {entry.plan}: {entry.reason}" for entry in others])
    rest = sizing.rejected[len(others) :]
    if explain:
        _lines(
            console,
            f"rejected, of {sizing.candidates:,} candidates",
            [f"{entry.system}, {entry.plan}: {entry.reason}" for entry in rest],
        )
    elif rest:
        _lines(
            console,
            "",
            [f"{len(rest)} plans rejected, {sizing.candidates:,} candidates: --explain-rejected lists them"],
        )
    _lines(console, "assumed", sizing.assumed)
    _lines(console, "mind", sizing.warnings)

"""A sweep over users with sessions as a table."""

from __future__ import annotations

from typing import Any

from perfmodel.outputs.tables import print_said, side_by_side
from perfmodel.specs.units import show
from perfmodel.sweeps.agents import AgentsSweep

_COLUMNS = ("hit rate", "TTFT", "TPOT", "task", "tasks an hour", "USD a task", "cliff")


def print_sweep(swept: AgentsSweep, console: Any) -> None:
    """Print one row a point, and what was assumed.

    Parameters
    ----------
    swept : AgentsSweep
    console : rich.console.Console
    """
    rows = []
    for row in swept.rows():
        name = ", ".join(f"{path} {row[path]}" for path in swept.axes)
        if row.get("hit_rate") is None:
            rows.append((name, ["-"] * len(_COLUMNS)))
            continue
        cells = [f"{row['hit_rate']:.1%}", *(show(row[key], "s", 3) for key in ("ttft_s", "tpot_s", "task_s"))]
        cost = "-" if row["usd_per_task"] is None else f"{row['usd_per_task']:.3g}"
        fallen = "past" if row["past_cliff"] else ""
        rows.append((name, [*cells, f"{row['tasks_per_hour']:,.0f}", cost, fallen]))
    first = swept.answers[0]
    title = f"sessions {first.session.name} on {first.scenario.model.name}, {first.scenario.system.name}"
    side_by_side(title, _COLUMNS, rows, console)
    said = dict.fromkeys(line for answer in swept.answers for line in answer.scenario.assumed)
    mind = dict.fromkeys(line for answer in swept.answers for line in (*answer.scenario.warnings, *answer.warnings))
    print_said([("assumed", list(said)), ("mind", list(mind))], console)

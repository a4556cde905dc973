"""A plan of measurements, as a table and the commands below it."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfmodel.evidence.cluster.bench import BenchPlan, Planned
from perfmodel.outputs.tables import plain
from perfmodel.specs.units import show


def _expected(run: Planned, key: str) -> str:
    ends = run.answer.band[key]
    between = f"{show(ends['low'], 's', 3)} to {show(ends['high'], 's', 3)}"
    return f"{show(float(run.answer.metrics[key]), 's', 3)} ({between})"


def print_bench_plan(plan: BenchPlan, console: Console) -> None:
    """Print the runs of a plan, what is expected of each, and how to make it.

    Parameters
    ----------
    plan : BenchPlan
    console : rich.console.Console
    """
    deployment = plan.scenario.deployment
    title = f"{plan.scenario.model.name} on {plan.scenario.system.name}, TP {float(deployment.tp):g}"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=Text(title), title_justify="left")
    for name in ("tokens", "clients", "TPOT expected (80 %)", "TTFT expected (80 %)", "GPU hours", "bands then"):
        table.add_column(name, justify="right")
    for run in plan.runs:
        load = run.answer.scenario.traffic
        table.add_row(
            f"{load.prompt:g} / {load.output:g}",
            f"{load.concurrency:g}",
            _expected(run, "tpot_s"),
            _expected(run, "ttft_s"),
            f"{run.gpu_hours:.2g}",
            f"x{math.exp(run.tpot_band):.2f} / x{math.exp(run.ttft_band):.2f}",
        )
    console.print(table)
    hours = sum(run.gpu_hours for run in plan.runs)
    tpot, ttft = (math.exp(one) for one in plan.before)
    console.print(Text(f"\n{hours:.2g} GPU hours in all, without loading the model"))
    console.print(Text(f"bands of TPOT and TTFT over the questions without any run: x{tpot:.2f} / x{ttft:.2f}"))
    console.print(Text("\nin this order; stop where the bands are narrow enough"))
    for run in plan.runs:
        console.print(Text(f"  {run.command}"), soft_wrap=True)
    for line in plan.scenario.warnings:
        console.print(Text(f"Note: {line}"), style="yellow")
    console.print(Text("\nassumed"))
    for line in plan.scenario.assumed:
        console.print(Text(f"  - {line}"))


def text(plan: BenchPlan, width: int = 100) -> str:
    """Return it as plain text."""
    return plain(lambda console: print_bench_plan(plan, console), width)

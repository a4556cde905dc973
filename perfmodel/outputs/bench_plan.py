"""A plan of measurements, as a table and the commands below it."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfmodel.evidence.cluster.bench import BenchPlan, Planned
from perfmodel.outputs.tables import plain, span
from perfmodel.specs.units import show


def _expected(run: Planned, key: str) -> tuple[str, str]:
    """Return what is expected, and its band."""
    return show(float(run.answer.metrics[key]), "s", 3), span(run.answer.band.get(key), "s")


def print_bench_plan(plan: BenchPlan, console: Console) -> None:
    """Print the runs of a plan, what is expected of each, and how to make it.

    Parameters
    ----------
    plan : BenchPlan
    console : rich.console.Console
    """
    deployment = plan.scenario.deployment
    title = f"{plan.scenario.model.name} on {plan.scenario.system.name}, TP {float(deployment.tp):g}"
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(title),
        title_justify="left",
    )
    for name in ("tokens", "clients", "TPOT", "80 %", "TTFT", "80 %", "GPU h", "then +"):
        table.add_column(name, justify="right", no_wrap=True)
    for run in plan.runs:
        load = run.answer.scenario.traffic
        table.add_row(
            f"{load.prompt:g}/{load.output:g}",
            f"{load.concurrency:g}",
            *_expected(run, "tpot_s"),
            *_expected(run, "ttft_s"),
            f"{run.gpu_hours:.2g}",
            f"{math.expm1(run.tpot_band):.0%}/{math.expm1(run.ttft_band):.0%}",
        )
    console.print(table)
    hours = sum(run.gpu_hours for run in plan.runs)
    tpot, ttft = (math.expm1(one) for one in plan.before)
    console.print(Text(f"\n{hours:.2g} GPU hours in all, without loading the model"))
    console.print(Text(f"bands of TPOT and TTFT over the questions without any run: +{tpot:.0%} / +{ttft:.0%}"))
    console.print(Text("expected, with the 80 % band; then: how far bands of TPOT and TTFT reach up after the run"))
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

"""Beyond the paper: GPUs without CUDA graphs, and without gaps between kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pandas as pd

from perfmodel.evidence import dataflow_fit
from perfmodel.evidence.dataflow_fit import sn40
from perfmodel.machines.step import CAUSES
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.reports.dataflow.common import PAPER
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure


@figure("dataflow-eager")
def eager(
    questions: Sequence[tuple[str, str]] = (
        ("mixtral-8x7b", "dgx-h100:tp=8"),
        ("gpt-oss-120b", "dgx-h100:tp=8"),
        ("deepseek-r1", "dgx-h200:tp=8,engine=sglang"),
    ),
    users: float = 16,
) -> Figure:
    """Experts on GPUs without CUDA graphs.

    Parameters
    ----------
    questions : sequence of pairs
        Model and system.
    users : float
        Users at once.
    """
    rows, table = [], []
    for model, on in questions:
        shares = []
        for name, changes in (("graphs", ()), ("no graphs", ("system.efficiency.eager=true",))):
            answer = evaluate(resolve(model, on, Options(concurrency=users, prompt=1024, output=256), changes))
            parts = {cause: 1e3 * float(answer.breakdown["decode"][cause]) for cause in CAUSES}
            shares.append((parts["collective"] / sum(parts.values()), sum(parts.values())))
            rows += [
                {"place": f"{model}, {name}", "cause": cause, "time": value} for cause, value in parts.items() if value
            ]
        table.append([model, on, f"{shares[0][0]:.0%}", f"{shares[1][0]:.0%}", f"{shares[1][1] / shares[0][1]:.2f}"])
    return Figure(
        "Experts without CUDA graphs",
        "Without graphs collectives take "
        + ", ".join(f"{row[3]} of TPOT for {row[0]} (with them {row[2]})" for row in table)
        + "; the paper quotes 68 % for experts on GPUs.",
        charts=(
            Chart(
                "eager",
                f"TPOT by cause, {users:g} users",
                pd.DataFrame(rows),
                {"place": "model", "cause": "cause", "time": "TPOT [ms]"},
                "time",
                "place",
                (Layer("bar"),),
                color="cause",
                stacked=True,
                across=True,
            ),
        ),
        tables=(
            Table(
                "Share of collectives.",
                ("model", "system", "with graphs", "without", "TPOT without over with"),
                table,
                (2, 3, 4),
            ),
        ),
        notes=(
            f"68 % is Jiang et al. 2024 as {PAPER} quotes it, for another machine and expert parallelism over nodes.",
            "Only what collectives lose without graphs is modelled, not the gaps between kernels: the loss is more.",
        ),
    )


@figure("dataflow-megakernel")
def megakernel(
    models: Sequence[str] = ("8B", "70B"),
    gaps: Sequence[float] = (1.0, 0.75, 0.5, 0.25, 0.0),
    overlaps: Sequence[float] = (0.0, 0.5, 1.0),
) -> Figure:
    """What a GPU would reach with megakernels: gaps between kernels and exposed collectives as sliders.

    Parameters
    ----------
    models : sequence of str
        As the paper names them.
    gaps : sequence of float
        Share of the time a layer that is left.
    overlaps : sequence of float
        Share of the collectives that is hidden.
    """
    gpu, rdu = dataflow_fit.h100(), sn40()
    rows, table = [], []
    for model in models:
        step = gpu.step(model)
        own, aim = float(step.time), rdu.time(model)
        for gap, hidden in product(gaps, overlaps):
            time = float(step.busy + step.host + gap * step.overhead + (1 - hidden) * step.collective)
            rows.append({"gap": gap, "rate": 1 / time, "hidden": f"{hidden:.0%} hidden", "model": model})
        rows += [{"gap": gap, "rate": 1 / aim, "hidden": "SN40-16", "model": model} for gap in gaps]
        bare = float(step.busy + step.host)
        software = (own - max(bare, aim)) / (own - aim)
        table.append([model, f"{1 / own:,.0f}", f"{1 / bare:,.0f}", f"{1 / aim:,.0f}", f"{min(1.0, software):.0%}"])
    return Figure(
        "GPUs with megakernels",
        "With no gap between kernels and every collective hidden, DGX H100 would decode "
        + ", ".join(f"{row[0]} at {row[2]} tok/s (now {row[1]}, SN40-16 {row[3]})" for row in table)
        + ": "
        + ", ".join(f"{row[4]} of the gap for {row[0]}" for row in table)
        + " is software.",
        charts=(
            Chart(
                "megakernel",
                "Tokens a second of one user on DGX H100",
                pd.DataFrame(rows),
                {
                    "gap": "share of the gaps that is left [1]",
                    "rate": "output [tok/s]",
                    "hidden": "collectives",
                    "model": "model",
                },
                "gap",
                "rate",
                (Layer("line"), Layer("point")),
                color="hidden",
                facet="model",
                zero=True,
            ),
        ),
        tables=(
            Table(
                "One user, tokens a second.",
                ("model", "DGX H100 now", "without gaps", "SN40-16", "share of the gap that is software"),
                table,
                (1, 2, 3, 4),
            ),
        ),
        notes=(
            "Now is H100 as the paper ran it (two numbers from Figure 1a). The floor is our kernels' traffic at their "
            "measured rates, so that a fused kernel that streams better would go further.",
        ),
    )

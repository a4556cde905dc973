"""TTFT of public closed loops by the chain, beside the steady state that was fitted on them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import serving
from perfmodel.evidence import serving_fit
from perfmodel.machines.kernels_efficiency import KernelsEfficiency as Efficiency
from perfmodel.machines.kernels_efficiency import efficiency_of
from perfmodel.prediction import evaluate
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.serving.chain import closed_queue
from perfmodel.serving.lengths import lognormal
from perfmodel.serving.service import Service, serve
from perfmodel.serving.step_times import StepTimes, step_times
from perfmodel.specs import catalog
from perfmodel.specs.types import Scenario


def rows() -> pd.DataFrame:
    """Return measured TTFT of every scored row with both predictions [s]."""
    loops = []
    for group in serving_fit.groups(_efficiency):
        scenario = group.scenario
        shape = group.ttft.shape
        steady = np.broadcast_to(evaluate(scenario, ("ttft_s",)).metrics["ttft_s"], shape)
        jitter = float(scenario.traffic.length_jitter)
        mean, scv = 1 - jitter / 2, (jitter**2 / 12) / (1 - jitter / 2) ** 2
        used = group.ttft_scored & np.isfinite(group.ttft) & group.fits
        plan = scenario.deployment
        layouts = np.stack(
            [np.broadcast_to(np.asarray(part, dtype=float), shape) for part in (group.tp, plan.ep, plan.attention_dp)]
        )
        for layout in np.unique(layouts[:, used], axis=1).T:
            mine = np.flatnonzero(used & (layouts == layout[:, None]).all(axis=0))
            times = _times(_point(scenario, int(mine[0])), group.isl[mine], group.osl[mine])
            for at in mine:
                lengths = lognormal(group.isl[at] * mean, scv, group.osl[at] * mean, scv)
                service = serve(times, lengths)
                law = closed_queue(service, float(group.clients[at])).ttft
                assert law is not None
                share = 1 / float(np.broadcast_to(np.asarray(scenario.traffic.rounds, dtype=float), shape)[at])
                burst = times.front + _burst(service, float(group.clients[at]))
                loops.append(
                    {
                        "engine": group.engine,
                        "model": group.model,
                        "clients": float(group.clients[at]),
                        "lengths": "drawn" if jitter > 0 else "fixed",
                        "measured": float(group.ttft[at]),
                        "chain": law.average,
                        "chain and burst": (1 - share) * law.average + share * max(burst, law.average),
                        "steady": float(steady[at]),
                    }
                )
    return pd.DataFrame(loops)


def _burst(service: Service, clients: float) -> float:
    """Mean time to the first token where all clients start at once [s]."""
    running = min(clients, float(service.cap))
    together = serving.prompts_per_step(budget=service.times.budget, prompt=service.prompt, running=running)
    return float(serving.burst_wait(running=running, per_step=together, occupancy=service.occupancy(float(together))))


def _point(scenario: Scenario, at: int) -> Scenario:
    """Return one of the points of a scenario whose layout and traffic are arrays."""

    def one(part: Any) -> Any:
        held = {field.name: getattr(part, field.name) for field in fields(part)}
        return replace(
            part, **{name: float(value[at]) for name, value in held.items() if isinstance(value, np.ndarray)}
        )

    return replace(scenario, deployment=one(scenario.deployment), traffic=one(scenario.traffic))


def _times(scenario: Scenario, prompt: Any, output: Any) -> StepTimes:
    traffic = replace(
        scenario.traffic, prompt=float(prompt.max()), output=float(output.max()), concurrency=1.0, rounds=1e6
    )
    one = replace(scenario, traffic=traffic)
    return step_times(one, longest_prompt=float(prompt.max()), longest=float((prompt + output).max()))


def _efficiency(chip: str, engine: str) -> Efficiency:
    return efficiency_of(catalog.load_system(f"dgx-{chip}", engine)[0])


@figure("load-closed-loop")
def closed_loop() -> Figure:
    """Published TTFT of closed loops: the chain alone, and the steady state with its burst and fitted groups."""
    frame = rows()
    long = frame.melt(
        id_vars=["engine", "model", "clients", "lengths", "measured"],
        value_vars=["chain", "chain and burst", "steady"],
        var_name="form",
        value_name="predicted",
    )
    long["error"] = long.predicted / long.measured - 1
    groups = long.assign(size=long.error.abs()).groupby(["lengths", "engine", "form"])
    table = groups.agg(rows=("size", "count"), mape=("size", "mean"), median=("size", "median"), bias=("error", "mean"))
    lines = [
        [*map(str, key), f"{row.rows:.0f}", f"{row.mape:.0%}", f"{row['median']:.0%}", f"{row.bias:+.0%}"]
        for key, row in zip(table.index.tolist(), (row for _, row in table.iterrows()), strict=True)
    ]
    scores = {form: float(part.error.abs().median()) for form, part in long.groupby("form")}
    medians = table["median"].unstack("form")
    better = [" ".join(map(str, key)) for key in medians.index[medians["chain and burst"] < medians["steady"]]]
    return Figure(
        "Closed loops of public benchmarks",
        f"Median error of TTFT over {len(frame)} rows: {scores['chain']:.0%} with the chain of a loop "
        f"that runs for ever, {scores['chain and burst']:.0%} with the burst at the start added for its share of the "
        f"rounds, {scores['steady']:.0%} with the steady state. Step times, which all three use, were fitted on these "
        f"rows. The chain is nearer for {', '.join(better) or 'no group'}.",
        (
            Chart(
                "load-closed-loop",
                "TTFT measured and predicted",
                long[["form", "engine", "clients", "measured", "predicted"]],
                {
                    "form": "form",
                    "engine": "engine",
                    "clients": "clients",
                    "measured": "measured TTFT [s]",
                    "predicted": "predicted TTFT [s]",
                },
                "measured",
                "predicted",
                (Layer("point"), Layer("line", y="measured")),
                color="form",
                facet="engine",
                log="xy",
                caption="data/measured/serving.csv. All three take step times that were fitted on these rows; "
                "queue and burst of the chain were not.",
            ),
        ),
        tables=(
            Table(
                "Error of TTFT by lengths and engine",
                ("lengths", "engine", "form", "rows", "MAPE", "median", "bias"),
                lines,
                numbers=(3, 4, 5, 6),
            ),
        ),
    )

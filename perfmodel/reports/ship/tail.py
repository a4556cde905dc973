"""Tail latency of one pipeline and of GPUs that draw the same power, under the same random arrivals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfmodel.planning.load import at_rate, cautions
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, figure
from perfmodel.reports.ship.pair import power
from perfmodel.serving.objectives import queue_of, statistic

_TIMES = (("ttft", "TTFT"), ("tpot", "TPOT"))


@figure("ship-tail")
def tail(model: str, ship: str, gpus: Sequence[str], precision: str, traffic: str = "chat", points: int = 12) -> Figure:
    """P99 of TTFT and TPOT against requests a second, at equal power."""
    options = Options(traffic=traffic, precision=precision)
    pipeline = resolve(model, ship, options)
    drawn = power(pipeline)
    rows, words = [], []
    notes = ["A GPU's TTFT holds a server's front end; none is published for the LPU, which flatters it."]
    for on in (ship, *gpus):
        scenario = resolve(model, on, options)
        replicas = max(1, math.floor(drawn / power(scenario)))
        service = at_rate(scenario, 1e-6).load.service
        name = f"{scenario.system.name}, {replicas:,} replica{'s' if replicas > 1 else ''}"
        most = service.capacity * replicas
        for used in np.geomspace(0.02, 0.97, points):
            queue = queue_of(service, used * most, 1.0, replicas)
            rows.append(
                {
                    "machine": name,
                    "rate": used * most,
                    **{f"{time}_{at}": statistic(queue, time, at) for time, _ in _TIMES for at in ("p50", "p99")},
                }
            )
        half = queue_of(service, most / 2, 1.0, replicas)
        words.append(
            f"{name}: {most:,.0f} requests/s at most; at half of that P99 is {statistic(half, 'ttft', 'p99'):.3g} s to "
            f"the first token and {statistic(half, 'tpot', 'p99') * 1e3:.3g} ms a token"
        )
        notes += cautions(scenario, at_rate(scenario, service.capacity / 2).load)
    frame = pd.DataFrame(rows)
    titles = {"machine": "machine", "rate": "requests, all replicas [1/s]"}
    charts = tuple(
        Chart(
            f"ship-tail-{time}",
            f"P50 to P99 of {title} at equal power",
            frame[["machine", "rate", f"{time}_p50", f"{time}_p99"]],
            {**titles, f"{time}_p50": f"{title} P50 [s]", f"{time}_p99": f"{title} P99 [s]"},
            "rate",
            f"{time}_p99",
            (Layer("area", y=f"{time}_p50", y2=f"{time}_p99"), Layer("line")),
            color="machine",
            log="xy",
            caption=f"{model}, {precision}, {traffic}: Poisson arrivals with the lengths of a trace, "
            f"{drawn / 1e3:,.0f} kW of nameplate each; the line is P99",
        )
        for time, title in _TIMES
    )
    return Figure("Tail latency at equal power", "; ".join(words) + ".", charts, notes=tuple(dict.fromkeys(notes)))

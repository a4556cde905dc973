"""Power and energy a token at equal traffic, by nameplate and by the measured share of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfmodel.equations import power as equations
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import RATIOS, Machines, power, serve

#: Share of the nameplate that a DGX H100 was measured to draw under load (arXiv:2506.14551); none is public of the LPU.
MEASURED_SHARE = 0.76


@figure("ship-power")
def energy(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    users: float = 380,
    gpu: str = "dgx-b200:tp=8,engine=sglang",
    precision: str = "fp8",
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[float] = (2048, 32768),
    stage_budget: float = 16,
    users_per_box: float = 64,
) -> Figure:
    """Power of both machines, and joules a token at equal traffic."""
    machines = Machines(model, ship, users, gpu, precision)
    free = matrix.Free().including(stage_budget, users_per_box)
    scenarios = [resolve(model, on, Options(precision=precision)) for on in (ship, gpu)]
    watts = [power(scenario) for scenario in scenarios]
    both = serve(machines, free, matrix.fixed_load(ratios, contexts))
    budget, place = list(free.budgets).index(stage_budget), list(free.gpu_users).index(users_per_box)
    rates = {
        "SHIP, bare": (both.ship.throughput[0, 0, budget, free.overheads.index((0.0, 0.0))], watts[0]),
        "SHIP, 50 us a stage": (both.ship.throughput[0, 0, budget, free.overheads.index((50.0, 0.0))], watts[0]),
        "SGB200-16Ki": (both.gpu.throughput[0, 0, place, 0], watts[1]),
    }
    rows = []
    for name, (rate, drawn) in rates.items():
        for i, ratio in enumerate(ratios):
            for j, context in enumerate(contexts):
                joules = float(equations.energy_per_token(power=drawn, per_second=np.float64(rate[i, j])))
                rows += [
                    {
                        "series": f"{name}, {view}",
                        "ratio": float(ratio),
                        "context": f"context {context / 1024:g}Ki",
                        "joules": joules * share,
                    }
                    for view, share in (("nameplate", 1.0), (f"{MEASURED_SHARE:.0%} of it", MEASURED_SHARE))
                    if share == 1.0 or name == "SGB200-16Ki"
                ]
    frame = pd.DataFrame(rows)
    chips = [float(one.deployment.tp * one.deployment.pp) for one in scenarios]
    boxes = watts[0] / watts[1]
    near = (
        frame[frame.context == f"context {contexts[0] / 1024:g}Ki"]
        .groupby("series", sort=False)
        .joules.agg(["min", "max"])
    )
    words = "; ".join(f"{name} {row['min']:.2g} to {row['max']:.2g} J" for name, row in near.iterrows())
    return Figure(
        "Power",
        f"{chips[0]:,.0f} LPUs draw {watts[0] / 1e3:.0f} kW by nameplate, as much as {boxes:.1f} DGX B200. A token of "
        f"input or "
        f"output at {contexts[0] / 1024:g}Ki costs: {words}.",
        charts=(
            Chart(
                "ship-power",
                "Energy of a token, input and output alike",
                frame,
                {"series": "machine and view", "ratio": "P:D", "context": "context", "joules": "energy [J/token]"},
                "ratio",
                "joules",
                (Layer("line"),),
                color="series",
                facet="context",
                log="xy",
                caption=f"388 W an LPU, 1,788 W a B200, their share of the system in it (SHIP). {users:g} users on "
                f"SHIP, "
                f"{users_per_box:g} a box",
            ),
        ),
        numbers=(
            Number("power of 1,520 LPUs", watts[0] / 1e3, "kW", 590.0, "reconstructed", source="SHIP: 388 W a chip"),
            Number("the same in DGX B200", boxes, "1", 41.0, "reconstructed", source="SHIP: 1,788 W a chip"),
        ),
        tables=(
            Table(
                "Views of power",
                ("machine", "chips", "nameplate [kW]", "measured share [kW]"),
                [
                    ("SHIP", f"{chips[0]:,.0f}", f"{watts[0] / 1e3:.1f}", "not published"),
                    ("DGX B200", f"{chips[1]:,.0f}", f"{watts[1] / 1e3:.1f}", f"{MEASURED_SHARE * watts[1] / 1e3:.1f}"),
                ],
                (1, 2, 3),
            ),
        ),
        notes=(
            f"Measured share: {MEASURED_SHARE:.0%}, of DGX H100 nodes under load (arXiv:2506.14551); a B200 node is "
            f"taken to "
            "draw the same share, and nothing is published of an LPU node. Nameplate against nameplate is the paper's "
            "view.",
            "388 W is more than the 375 W that a card may draw, so that it is the system's power a chip, not the "
            "chip's.",
            "Power that follows the load is not in this figure; perfmodel predict and tco have it.",
        ),
    )

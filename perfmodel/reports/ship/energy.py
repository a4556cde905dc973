"""Power and energy a token at equal traffic, by nameplate and by the measured share of it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfmodel.equations import power as equations
from perfmodel.reports.figures import Figure, Number, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import RATIOS, Machines, serve
from perfmodel.reports.ship.traffic import over_ratio, panel, traffic_rows

#: Share of the nameplate that a DGX H100 was measured to draw under load (arXiv:2506.14551); none is public of the LPU.
MEASURED_SHARE = 0.76


def _joules_frame(
    machines: Machines,
    free: matrix.Free,
    stage_budget: float,
    users_per_box: float,
    ratios: Sequence[float],
    contexts: Sequence[float],
) -> pd.DataFrame:
    """Return joules a token by P:D and context, by nameplate, of the box also by the measured share of it."""
    ship, box = machines.watts
    both = serve(machines, free, matrix.fixed_load(ratios, contexts))
    budget, place = list(free.budgets).index(stage_budget), list(free.gpu_users).index(users_per_box)
    bare, late = (free.overheads.index((occupancy, 0.0)) for occupancy in (0.0, 50.0))
    rates = {
        "SHIP, bare": (both.ship.throughput[0, 0, budget, bare], ship),
        "SHIP, 50 us a stage": (both.ship.throughput[0, 0, budget, late], ship),
        "SGB200-16Ki": (both.gpu.throughput[0, 0, place, 0], box),
    }
    views = (("nameplate", 1.0), (f"{MEASURED_SHARE:.0%} of it", MEASURED_SHARE))
    rows = []
    for name, (rate, drawn) in rates.items():
        joules = {"joules": equations.energy_per_token(power=drawn, per_second=rate)}
        rows += [
            {**row, "series": f"{name}, {view}", "joules": row["joules"] * share}
            for row in traffic_rows(ratios, list(map(panel, contexts)), joules, series=name)
            for view, share in views
            if share == 1.0 or name == "SGB200-16Ki"
        ]
    return pd.DataFrame(rows)


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
    frame = _joules_frame(machines, free, stage_budget, users_per_box, ratios, contexts)
    watts, boxes = machines.watts, machines.scale()
    chips = [float(one.deployment.tp * one.deployment.pp) for one in machines.scenarios]
    near = frame[frame.context == panel(contexts[0])].groupby("series", sort=False).joules.agg(["min", "max"])
    words = "; ".join(f"{name} {row['min']:.2g} to {row['max']:.2g} J" for name, row in near.iterrows())
    caption = (
        f"388 W an LPU, 1,788 W a B200, their share of the system in it (SHIP). {users:g} users on SHIP, "
        f"{users_per_box:g} a box"
    )
    return Figure(
        "Power",
        f"{chips[0]:,.0f} LPUs draw {watts[0] / 1e3:.0f} kW by nameplate, as much as {boxes:.1f} DGX B200. A token of "
        f"input or output at {contexts[0] / 1024:g}Ki costs: {words}.",
        charts=(
            over_ratio(
                "ship-power",
                "Energy of a token, input and output alike",
                frame,
                {"series": "machine and view", "ratio": "P:D", "context": "context", "joules": "energy [J/token]"},
                "joules",
                "series",
                caption,
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
            "taken to draw the same share, and nothing is published of an LPU node. Nameplate against nameplate is "
            "the paper's view.",
            "388 W is more than the 375 W that a card may draw, so that it is the system's power a chip, not the "
            "chip's.",
            "Power that follows the load is not in this figure; perfmodel predict and tco have it.",
        ),
    )

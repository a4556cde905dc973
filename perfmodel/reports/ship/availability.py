"""What the paper leaves out: spare nodes with rotated partitions, and hops past dead nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from perfmodel.equations import collectives, topologies
from perfmodel.machines import sram_beat, sram_pipeline
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario


def _outage_frame(
    nodes: float, chips_per_node: float, chip_mtbf_h: Sequence[float], repair_h: float, spares: int
) -> pd.DataFrame:
    """Return the share of time in which too few nodes are up, by spare nodes and time between failures of a chip."""
    rows = []
    for mtbf in chip_mtbf_h:
        down = repair_h / (mtbf / chips_per_node + repair_h)
        count = np.arange(spares + 1)
        up: Any = special.bdtr(count, nodes + count, down)
        rows += [
            {
                "mtbf": f"{mtbf:,.0f} h a chip",
                "spares": int(extra),
                "outage": float(1 - share),
                "hours": (1 - share) * 8760,
            }
            for extra, share in zip(count, up, strict=True)
        ]
    return pd.DataFrame(rows)


def _spares_needed(outage: pd.DataFrame) -> list[str]:
    """Return in words the spare nodes for 99.9 %, by time between failures."""
    needed = []
    for mtbf, part in outage.groupby("mtbf", sort=False):
        hours = str(mtbf).removesuffix(" a chip")
        enough = part.spares[1 - part.outage >= 0.999]
        needed.append(f"{enough.iloc[0]} at {hours}" if len(enough) else f"more than {part.spares.max()} at {hours}")
    return needed


def _skipping_rows(scenario: Scenario, users: float) -> list[Sequence[str]]:
    """Return what a hop of a beat's tokens past dead nodes costs, until the chain is cut."""
    plan, link = scenario.deployment, scenario.system.link
    tokens = float(sram_pipeline.MACHINE.token_budget(scenario.system))
    beat = float(sram_beat.plain_beat(scenario, users / plan.pp, 2048.0).time)
    clear = float(sram_beat.hop_time(scenario, tokens))
    tpot = float(plan.pp) * (beat + clear)
    rows: list[Sequence[str]] = []
    for skipped in range(5):
        rate = topologies.quadfour_forward_bandwidth(
            skipped=float(skipped), port_bandwidth=link.port_bandwidth_per_direction
        )
        if rate == 0:
            rows.append((f"{skipped}", "0", "no way", "the chain is cut: rotate or restart", ""))
            continue
        message = tokens * scenario.model.hidden * ACTIVATION_BYTES
        hop = float(collectives.hop_time(message=message, hops=1.0, latency=link.hop_latency, bandwidth=rate))
        rows.append(
            (
                f"{skipped}",
                f"{rate / 1e9:.0f}",
                f"{hop * 1e6:.2f}",
                f"+{(hop - clear) / tpot:.2%}",
                "hidden" if hop < beat else "slower than a beat",
            )
        )
    return rows


def _outage_chart(outage: pd.DataFrame, caption: str) -> Chart:
    return Chart(
        "ship-availability",
        "Time without enough nodes, against spare nodes",
        outage,
        {
            "mtbf": "mean time between failures",
            "spares": "spare nodes",
            "outage": "share of time down",
            "hours": "hours a year",
        },
        "spares",
        "outage",
        (Layer("line"), Layer("point")),
        color="mtbf",
        log="y",
        caption=caption,
    )


@figure("ship-availability")
def availability(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    precision: str = "fp8",
    chip_mtbf_h: Sequence[float] = (25000, 50000, 100000),
    repair_h: float = 24,
    spares: int = 12,
    users: float = 380,
) -> Figure:
    """Spare nodes with rotated partitions, and what skipping dead nodes costs a token."""
    scenario = put(resolve(model, ship, Options(precision=precision)), "system.efficiency.layer_overhead", 0.0)
    chips = float(scenario.deployment.tp * scenario.deployment.pp)
    node = float(scenario.system.chips_per_node)
    nodes = chips / node
    outage = _outage_frame(nodes, node, chip_mtbf_h, repair_h, spares)
    skipping = _skipping_rows(scenario, users)
    tokens = float(sram_pipeline.MACHINE.token_budget(scenario.system))
    per_year = ", ".join(f"{8760 * chips / mtbf:,.0f} ({mtbf:,.0f} h)" for mtbf in chip_mtbf_h)
    caption = (
        f"{nodes:.0f} nodes needed, {repair_h:g} h to repair one, failures independent. No failure rate of an LPU is "
        "published: the middle one is that of H100 in Llama 3's training"
    )
    return Figure(
        "Availability: rotated partitions and skipped nodes",
        f"An instance of {nodes:.0f} nodes meets {per_year} failures of chips a year, by the time between failures of "
        f"one. For 99.9 % it needs these spare nodes: {', '.join(_spares_needed(outage))}. Passing three dead nodes "
        f"adds {skipping[3][3].lstrip('+')} to a token.",
        charts=(_outage_chart(outage, caption),),
        tables=(
            Table(
                "One hop past dead nodes",
                ("dead nodes", "GB/s", f"hop of {tokens:g} tokens [us]", "TPOT", "beside a beat"),
                skipping,
                (0, 1, 2, 3),
            ),
        ),
        notes=(
            "A rotated partition starts on spare nodes and replays the tokens of the requests in flight; the time of a "
            "rotation and its effect on P99 belong to capacity planning (size --availability).",
        ),
    )

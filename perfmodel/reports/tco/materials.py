"""What SRAM chips save in parts, and what their small memory costs: the other side of one argument."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perfmodel.machines.base import machine_of
from perfmodel.planning.tco import bom
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.specs import catalog
from perfmodel.specs.types import System

#: Lines of a chip that SRAM machines do without.
_SAVED = ("memory", "package", "package loss")


def _held(system: System) -> tuple[float, float]:
    """Return what a chip holds weights in: bytes, and bytes a second."""
    tier = getattr(system.memory, machine_of(system).weights_tier)
    return float(tier.capacity), float(tier.bandwidth)


def _row(name: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the parts of a chip [USD], and a row of what they buy."""
    system = catalog.load_bare_system(name)
    made = bom.bill(system)
    parts = {line.name: line.value for line in made.chip if line.kind != "not published"}
    lacking = [line.name for line in made.chip if line.kind == "not published"]
    total = sum(parts.values())
    saved = sum(parts.get(part, 0.0) for part in _SAVED)
    shelf, rate = _held(system)
    node = bom.total(made.node, "node")
    node_parts = {line.name: line.value for line in made.node if line.kind != "not published"}
    chips = node_parts.get("chips", 0.0)
    switch = "none: chips are wired to each other" if system.link.topology == "quadfour" else "not published"
    share = "-" if node.value != node.value else f"{1 - chips / node.value:.0%}"
    return parts, (
        name,
        f"{total:,.0f}" + (f" without {', '.join(lacking)}" if lacking else ""),
        f"{saved / total:.0%}",
        f"{total / (shelf / 1e9):,.1f}",
        f"{total / (rate / 1e12):,.0f}",
        share,
        switch,
    )


#: A rack of GB200 with network and storage over one without, and a board of eight H100 with its switches over the whole
#: server of 2023 [USD]: SemiAnalysis, 2025-08 and 2023-05.
_RACK_DEPLOYED, _BOARD = 3.9e6 / 3.1e6, 195e3 / 269e3


def _shares() -> str:
    """Return in words what a rack and a switch are of a price."""
    release = catalog.load_prices()
    rack, node = (
        float(release.purchase[name]["listing"]) / chips / 1e3 for name, chips in (("gb200-nvl72", 72), ("dgx-b200", 8))
    )
    return (
        f"A rack of 72 GB200 is listed at {rack:.0f} kUSD a GPU with hosts, switches and cooling, one "
        f"of eight B200 at {node:.0f}; network and storage between racks add {_RACK_DEPLOYED - 1:.0%}. A switch was "
        f"never itemised: the board of eight H100 with its four was {_BOARD:.0%} of the server, GPUs and switches "
        "together, so switches are in no total here."
    )


@figure("ship-materials")
def ship_materials(on: Sequence[str] = ("lpu-v1", "dgx-h100", "dgx-b200")) -> Figure:
    """Parts of a chip without HBM, interposer and switch, and what a byte and a byte a second of it cost in parts."""
    rows, frame = [], []
    for name in on:
        parts, row = _row(name)
        rows.append(row)
        frame += [{"system": name, "part": part, "usd": usd} for part, usd in parts.items()]
    chart = Chart(
        "ship-parts",
        "Parts of one chip",
        pd.DataFrame(frame),
        {"system": "system", "part": "part", "usd": "cost of parts [USD]"},
        "system",
        "usd",
        (Layer("bar"),),
        color="part",
        stacked=True,
        caption="What is not published is missing. Memory at prices of 2025.",
    )
    headings = (
        "system",
        "chip [USD]",
        "HBM and its package",
        "USD a GB held",
        "USD a TB/s",
        "node beyond chips",
        "switch",
    )
    answer = (
        "An SRAM chip needs no HBM, no interposer and no switch, which are most of a GPU's parts; a terabyte a second "
        "of it costs a fraction of a GPU's, a gigabyte many times as much: it saves on speed, not on capacity."
    )
    return Figure("What the parts cost", answer, (chart,), tables=(Table("Parts", headings, rows),), notes=(_shares(),))

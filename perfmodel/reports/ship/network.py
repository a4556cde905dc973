"""The network of LPUs: QuadFour as a graph against its closed forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from perfmodel.equations import topologies
from perfmodel.reports.figures import Chart, Figure, Layer, Number, figure
from perfmodel.specs import catalog

#: Chips of a node, nodes that a node reaches each way, and links to each of them.
CHIPS, REACH, LINKS = 8, 4, 4
TABLE_1 = {0: 427.0, 1: 256.0, 2: 128.0, 3: 43.0}

#: Which chip of a node holds the link of a number to the neighbour at a distance: four chips share each distance, or
#: each distance has two chips of its own.
PLACEMENTS = ("spread", "grouped")


def _ends(placement: str, distance: int, link: int) -> tuple[int, int]:
    """Return the chips of two nodes between which a link runs."""
    if placement == "grouped":
        first = 2 * (distance - 1)
        return first + link // 2, first + link % 2
    chip = 2 * link + (distance - 1) % 2
    return chip, chip


def quadfour(nodes: int, ring: bool, placement: str) -> Any:
    """Return the links between all LPUs of a QuadFour chain or ring as a sparse matrix.

    Parameters
    ----------
    nodes : int
        Nodes of 8 LPUs.
    ring : bool
        Whether the last node is followed by the first.
    placement : str
        One of :data:`PLACEMENTS`; the paper does not say which LPU of a node holds which link.
    """
    pairs = {(node * CHIPS + a, node * CHIPS + b) for node in range(nodes) for a in range(CHIPS) for b in range(a)}
    for node in range(nodes):
        for distance in range(1, REACH + 1):
            other = node + distance
            if not ring and other >= nodes:
                continue
            for link in range(LINKS):
                near, far = _ends(placement, distance, link)
                pairs.add((node * CHIPS + near, other % nodes * CHIPS + far))
    ends = np.array([pair for pair in pairs if pair[0] != pair[1]])
    size = nodes * CHIPS
    links: Any = sparse.coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(size, size))
    return (links + links.T).tocsr()


def measured_diameter(nodes: int, ring: bool, placement: str) -> float:
    """Return the most hops between two LPUs, measured on the graph."""
    return float(csgraph.shortest_path(quadfour(nodes, ring, placement), unweighted=True).max())


def measured_cut(dead: int, ring: bool, placement: str, nodes: int = 24) -> float:
    """Return the links that still cross a cut beside dead nodes, counted on the graph."""
    links = quadfour(nodes, ring, placement)
    half = nodes // 2 * CHIPS
    gone = slice(half, half + dead * CHIPS)
    near, far = np.zeros(nodes * CHIPS, dtype=bool), np.ones(nodes * CHIPS, dtype=bool)
    near[:half], far[:half] = True, False
    far[gone] = False
    return float(links[near][:, far].sum())


#: LPUs of a partition and the hops across it, as SHIP prints them.
_PRINTED_HOPS = ((72, 3.0), (136, 5.0))


def _hops_frame(nodes: int) -> pd.DataFrame:
    """Return the diameter by nodes: by the closed form, on graphs, and as printed."""
    counts = sorted({*range(1, 11), *range(11, nodes + 1, 3), 9, 17})
    counted = [
        (count, "closed form, ring", float(topologies.quadfour_ring_diameter(nodes=float(count))))
        for count in range(1, nodes + 1)
    ]
    for ring, placement in ((True, "spread"), (True, "grouped"), (False, "spread")):
        form = f"graph, {'ring' if ring else 'chain'}, links {placement}"
        counted += [(count, form, measured_diameter(count, ring, placement)) for count in counts if count <= nodes]
    rows: list[Mapping[str, Any]] = [
        {"nodes": count, "lpus": count * CHIPS, "form": form, "hops": hops, "kind": "reconstructed"}
        for count, form, hops in counted
    ]
    rows += [
        {"nodes": lpus / CHIPS, "lpus": lpus, "form": "printed", "hops": hops, "kind": "published"}
        for lpus, hops in _PRINTED_HOPS
    ]
    return pd.DataFrame(rows)


def _past_dead(dead: float, port: Any) -> Any:
    """Return the bandwidth past dead nodes by the closed form [B/s]."""
    return topologies.quadfour_forward_bandwidth(skipped=float(dead), port_bandwidth=port)


def _cut_frame(dead: int, port: Any) -> pd.DataFrame:
    """Return the bandwidth past dead nodes [GB/s]: by the closed form, as printed, and counted on graphs."""
    rows = [
        *((count, float(_past_dead(count, port) / 1e9), "closed form", "reconstructed") for count in range(dead + 1)),
        *((count, rate, "printed, table 1", "published") for count, rate in TABLE_1.items()),
        *(
            (
                count,
                measured_cut(count, ring, "spread") * float(port) / 1e9,
                f"graph, {'ring, cut twice' if ring else 'chain'}",
                "reconstructed",
            )
            for ring in (False, True)
            for count in range(dead + 1)
        ),
    ]
    return pd.DataFrame(rows, columns=["dead", "gbps", "name", "kind"])


def _topology_numbers(port: Any) -> tuple[Number, ...]:
    """Return Table 1, the printed hops and the bisection beside their closed forms."""
    past = [
        Number(
            f"forward bandwidth past {count} dead nodes",
            float(_past_dead(count, port)) / 1e9,
            "GB/s",
            rate,
            "reconstructed",
            source="SHIP, table 1",
        )
        for count, rate in TABLE_1.items()
    ]
    hops = []
    for lpus, printed in _PRINTED_HOPS:
        spread, grouped = (measured_diameter(lpus // CHIPS, True, placement) for placement in PLACEMENTS)
        hops.append(
            Number(
                f"diameter of {lpus} LPUs on the ring",
                float(topologies.quadfour_ring_diameter(nodes=lpus / CHIPS)),
                "hops",
                printed,
                "reconstructed",
                source="SHIP",
                note=f"as a graph: ring {spread:g} or {grouped:g} by which LPU holds which link, chain "
                f"{measured_diameter(lpus // CHIPS, False, 'spread'):g}",
            )
        )
    bisection = Number(
        "bisection, both directions",
        2 * float(topologies.quadfour_cut_links(skipped=0.0) * port) / 1e9,
        "GB/s",
        853.0,
        "reconstructed",
        source="SHIP",
        note="a cut through a chain; a ring is cut twice",
    )
    return (*past, *hops, bisection)


def _topology_charts(hops: pd.DataFrame, cut: pd.DataFrame) -> tuple[Chart, Chart]:
    """Return diameter against nodes, and bandwidth against dead nodes."""
    return (
        Chart(
            "ship-diameter",
            "Most hops between two LPUs",
            hops,
            {"nodes": "nodes of 8 LPUs", "lpus": "LPUs", "form": "how", "hops": "diameter [hops]", "kind": "kind"},
            "nodes",
            "hops",
            (Layer("line", rows="form != 'printed'"), Layer("point", rows="form == 'printed'")),
            color="form",
            zero=True,
            caption="Printed: SHIP, rack partitions. Which LPU of a node holds which link is not printed",
        ),
        Chart(
            "ship-skipped-nodes",
            "Forward bandwidth past dead nodes",
            cut,
            {"dead": "dead nodes in a row", "gbps": "one direction [GB/s]", "name": "value", "kind": "kind"},
            "dead",
            "gbps",
            (Layer("line", rows="kind != 'published'"), Layer("point", rows="kind == 'published'")),
            color="name",
            zero=True,
            caption="Printed: SHIP, table 1",
        ),
    )


@figure("ship-topology")
def topology(on: str = "lpu-v1", nodes: int = 40, dead: int = 4) -> Figure:
    """QuadFour as a graph against its closed forms, and bandwidth past dead nodes (Figures 4 and 5, Table 1)."""
    port = catalog.load_bare_system(on).link.port_bandwidth_per_direction
    by_placement = sorted({measured_diameter(17, True, placement) for placement in PLACEMENTS})
    return Figure(
        "Topology, and Table 1",
        "The closed form of the ring gives the printed 3 hops for 72 LPUs and 5 for 136, and 427, 256, 128 and 43 GB/s "
        "past none to three dead nodes. Four dead nodes in a row cut a chain.",
        charts=_topology_charts(_hops_frame(nodes), _cut_frame(dead, port)),
        numbers=_topology_numbers(port),
        notes=(
            "Built from LPUs, a chain of nodes has a diameter of 4 and 6 where 3 and 5 are printed. A ring gives 3 for "
            f"72, and for 136 {' or '.join(f'{hops:g}' for hops in by_placement)} by which LPU of a node holds which "
            "link.",
        ),
    )

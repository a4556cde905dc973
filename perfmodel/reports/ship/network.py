"""The network of LPUs: QuadFour as a graph, all-reduces of LPUs and GPUs, what matrix products hide of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from perfmodel.equations import collectives, roofline, transformer
from perfmodel.errors import UserError
from perfmodel.machines import kernels, sram_pipeline
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, figure
from perfmodel.reports.ship.data import only_known, table
from perfmodel.specs import catalog
from perfmodel.specs.types import PRECISION_BYTES, System

KIB = 1024.0
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


@figure("ship-topology")
def topology(on: str = "lpu-v1", nodes: int = 40, dead: int = 4) -> Figure:
    """QuadFour as a graph against its closed forms, and bandwidth past dead nodes (Figures 4 and 5, Table 1)."""
    link = catalog.load_bare_system(on).link
    port = link.port_bandwidth_per_direction
    rows = [
        {
            "nodes": count,
            "lpus": count * CHIPS,
            "form": "closed form, ring",
            "hops": float(collectives.quadfour_ring_diameter(nodes=float(count))),
            "kind": "reconstructed",
        }
        for count in range(1, nodes + 1)
    ]
    counts = sorted({*range(1, 11), *range(11, nodes + 1, 3), 9, 17})
    for ring, placement in ((True, "spread"), (True, "grouped"), (False, "spread")):
        rows += [
            {
                "nodes": count,
                "lpus": count * CHIPS,
                "form": f"graph, {'ring' if ring else 'chain'}, links {placement}",
                "hops": measured_diameter(count, ring, placement),
                "kind": "reconstructed",
            }
            for count in counts
            if count <= nodes
        ]
    rows += [
        {"nodes": lpus / CHIPS, "lpus": lpus, "form": "printed", "hops": hops, "kind": "published"}
        for lpus, hops in ((72, 3.0), (136, 5.0))
    ]
    cut = [
        {
            "dead": count,
            "gbps": float(collectives.quadfour_forward_bandwidth(skipped=float(count), port_bandwidth=port) / 1e9),
            "name": "closed form",
            "kind": "reconstructed",
        }
        for count in range(dead + 1)
    ] + [
        {"dead": count, "gbps": rate, "name": "printed, table 1", "kind": "published"}
        for count, rate in TABLE_1.items()
    ]
    cut += [
        {
            "dead": count,
            "gbps": measured_cut(count, ring, "spread") * float(port) / 1e9,
            "name": f"graph, {'ring, cut twice' if ring else 'chain'}",
            "kind": "reconstructed",
        }
        for ring in (False, True)
        for count in range(dead + 1)
    ]
    numbers = [
        Number(
            f"forward bandwidth past {count} dead nodes",
            float(collectives.quadfour_forward_bandwidth(skipped=float(count), port_bandwidth=port)) / 1e9,
            "GB/s",
            rate,
            "reconstructed",
            source="SHIP, table 1",
        )
        for count, rate in TABLE_1.items()
    ]
    numbers += [
        Number(
            f"diameter of {lpus} LPUs on the ring",
            float(collectives.quadfour_ring_diameter(nodes=lpus / CHIPS)),
            "hops",
            hops,
            "reconstructed",
            source="SHIP",
            note=f"as a graph: ring {measured_diameter(lpus // CHIPS, True, 'spread'):g} or "
            f"{measured_diameter(lpus // CHIPS, True, 'grouped'):g} by which LPU holds which link, chain "
            f"{measured_diameter(lpus // CHIPS, False, 'spread'):g}",
        )
        for lpus, hops in ((72, 3.0), (136, 5.0))
    ]
    bisection = 2 * float(collectives.quadfour_cut_links(skipped=0.0) * port) / 1e9
    numbers.append(
        Number(
            "bisection, both directions",
            bisection,
            "GB/s",
            853.0,
            "reconstructed",
            source="SHIP",
            note="a cut through a chain; a ring is cut twice",
        )
    )
    by_placement = {measured_diameter(17, True, placement) for placement in PLACEMENTS}
    return Figure(
        "Topology, and Table 1",
        "The closed form of the ring gives the printed 3 hops for 72 LPUs and 5 for 136, and 427, 256, 128 and 43 GB/s "
        "past "
        "none to three dead nodes. Four dead nodes in a row cut a chain.",
        charts=(
            Chart(
                "ship-diameter",
                "Most hops between two LPUs",
                pd.DataFrame(rows),
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
                pd.DataFrame(cut),
                {"dead": "dead nodes in a row", "gbps": "one direction [GB/s]", "name": "value", "kind": "kind"},
                "dead",
                "gbps",
                (Layer("line", rows="kind != 'published'"), Layer("point", rows="kind == 'published'")),
                color="name",
                zero=True,
                caption="Printed: SHIP, table 1",
            ),
        ),
        numbers=tuple(numbers),
        notes=(
            "Built from LPUs, a chain of nodes has a diameter of 4 and 6 where 3 and 5 are printed. A ring gives 3 for "
            "72, "
            f"and for 136 {' or '.join(f'{hops:g}' for hops in sorted(by_placement))} by which LPU of a node holds "
            f"which "
            "link.",
        ),
    )


# --- all-reduce --------------------------------------------------------------------------------------------------

#: Engines of the measured table by what people call them, and the files that are calibrated on them.
_ENGINES = {
    "TRTLLM": ("TensorRT-LLM, CUDA graph", "trtllm"),
    "vLLM_custom_graph": ("vLLM custom, CUDA graph", "vllm"),
    "SGLang_CustomAllReduce_graph": ("SGLang custom, CUDA graph", "sglang"),
    "NCCL": ("NCCL", ""),
}
_SYSTEMS = {"B200 SXM": "dgx-b200", "H100 SXM": "dgx-h100"}
_MEASURED = "aiconfigurator-core 0.12.0, medians over releases (Apache-2.0)"


def _lpu_times(system: System, sizes: Any) -> dict[str, Any]:
    efficiency, link = sram_pipeline.efficiency_of(system), system.link
    port, hop = link.port_bandwidth_per_direction, link.hop_latency
    return {
        "LPU, printed knees (8 to 64)": collectives.saturating_all_reduce(
            message=sizes,
            latency=efficiency.all_reduce_latency,
            bandwidth=efficiency.all_reduce_bandwidth,
            exponent=efficiency.all_reduce_exponent,
        ),
        "8 LPUs, RedBcast (reading)": collectives.rooted_all_reduce(
            message=sizes, ranks=8.0, hop_latency=hop, link_bandwidth=port
        ),
        "8 LPUs, TiledRedBcast (reading)": collectives.full_mesh_all_reduce(
            message=sizes, ranks=8.0, latency=2 * hop, link_bandwidth=port
        ),
        "64 LPUs, PAARD (reading)": collectives.two_level_all_reduce(
            message=sizes, local=8.0, nodes=8.0, hop_latency=hop, link_bandwidth=port, ports=4.0
        ),
    }


def _gpu_times(hardware: str, sizes: Any) -> dict[str, Any]:
    found = {}
    for label, engine in _ENGINES.values():
        if engine:
            efficiency = kernels.efficiency_of(catalog.load_system(_SYSTEMS[hardware], engine)[0])
            assert efficiency.all_reduce is not None
            found[label] = kernels.all_reduce_time(efficiency.all_reduce, sizes, 8.0)
            if engine == "vllm":
                found["vLLM custom, eager"] = collectives.eager_collective(
                    collective=found[label], launch=efficiency.eager_launch
                )
    return found


def _knee(sizes: Any, times: Any, share: float) -> float:
    """Return the size from which a curve reaches a share of its rate at the largest size [B]."""
    rate = sizes / times
    reached = rate / rate[-1]
    at = int(np.argmax(reached >= share))
    if at == 0:
        return float(sizes[0])
    low, high = reached[at - 1], reached[at]
    return float(np.exp(np.interp(share, (low, high), np.log(sizes[at - 1 : at + 1]))))


def _crossing(sizes: Any, one: Any, other: Any) -> str:
    """Return where the sign of the difference of two curves changes."""
    sign = np.sign(one - other)
    places = np.flatnonzero(sign[1:] != sign[:-1])
    if not len(places):
        return "nowhere: always faster" if sign[0] < 0 else "nowhere: always slower"
    return ", ".join(f"{sizes[at] / KIB:,.0f} KiB" for at in places)


@figure("ship-all-reduce")
def all_reduce(on: str = "lpu-v1", hardware: Sequence[str] = ("B200 SXM", "H100 SXM")) -> Figure:
    """All-reduce against tensor size (Figure 6a): LPUs, and 8 GPUs by algorithm and launch mode."""
    only_known(hardware, _SYSTEMS)
    system = catalog.load_system(on)[0]
    sizes = np.geomspace(4 * KIB, 16 * KIB**2, 97)
    lpu = _lpu_times(system, sizes)
    rows: list[dict[str, Any]] = []
    knees: list[tuple[str, ...]] = []
    crossings: list[tuple[str, ...]] = []

    def add(family: str, name: str, at: Any, times: Any, kind: str) -> None:
        peak = at[-1] / times[-1]
        rows.extend(
            {
                "family": family,
                "series": name,
                "kib": float(size / KIB),
                "us": float(time * 1e6),
                "gbps": float(size / time / 1e9),
                "share": float(size / time / peak),
                "kind": kind,
            }
            for size, time in zip(at, times, strict=True)
        )
        if kind != "published":
            knees.append(
                (
                    f"{family}: {name}",
                    *(f"{_knee(at, times, share) / KIB:,.0f}" for share in (0.5, 0.9)),
                    f"{peak / 1e9:,.0f}",
                )
            )

    for name, times in lpu.items():
        add("LPU", name, sizes, times, "reconstructed")
    printed = lpu["LPU, printed knees (8 to 64)"]
    measured = table("kernels/allreduce.csv").query("n_chips == 8")
    for chip in hardware:
        for name, times in _gpu_times(chip, sizes).items():
            add(f"8 x {chip}", name, sizes, times, "predicted")
            crossings.append((f"8 x {chip}, {name}", _crossing(sizes, printed, times)))
        for engine, (name, calibrated) in _ENGINES.items():
            part = measured[(measured.hardware == chip) & (measured.engine == engine)].sort_values("message_bytes")
            if not len(part):
                continue
            at, times = part.message_bytes.to_numpy(dtype=float), part.value.to_numpy(dtype=float) * 1e-6
            add(f"8 x {chip}", name, at, times, "published" if calibrated else "measured")
            if not calibrated:
                between = np.exp(np.interp(np.log(sizes), np.log(at), np.log(times)))
                crossings.append((f"8 x {chip}, {name}", _crossing(sizes, printed, between)))
    frame = pd.DataFrame(rows)
    frame = frame[frame.kib >= 4]
    columns = {
        "family": "chips",
        "series": "algorithm and launch",
        "kib": "tensor [KiB]",
        "us": "all-reduce [us]",
        "gbps": "tensor over time [GB/s]",
        "share": "share of the series' own rate at 16 MiB",
        "kind": "kind",
    }
    drawn = (Layer("line", rows="kind != 'published'"), Layer("point", rows="kind in ('published', 'measured')"))
    efficiency = sram_pipeline.efficiency_of(system)
    numbers = []
    for kib, share in ((32, 0.5), (80, 0.9)):
        time = collectives.saturating_all_reduce(
            message=kib * KIB,
            latency=efficiency.all_reduce_latency,
            bandwidth=efficiency.all_reduce_bandwidth,
            exponent=efficiency.all_reduce_exponent,
        )
        reached = collectives.saturation(message=kib * KIB, time=time, bandwidth=efficiency.all_reduce_bandwidth)
        numbers.append(
            Number(f"LPU, share of the peak at {kib} KiB", float(reached), "%", share, "reconstructed", True, "SHIP")
        )
    from perfmodel.reports.figures import Table

    gpus = {f"8 x {chip}, {name}": times for chip in hardware for name, times in _gpu_times(chip, sizes).items()}
    best = min(float(_knee(sizes, times, 0.5)) for times in gpus.values())
    small = sorted(float(times[0] / printed[0]) for times in gpus.values())
    large = sorted(float(printed[-1] / times[-1]) for times in gpus.values())
    return Figure(
        "All-reduce against tensor size",
        f"LPUs reach half of their rate at 32 KiB and 90 % at 80 KiB; no algorithm of 8 GPUs reaches half of its own "
        f"before "
        f"{best / KIB:,.0f} KiB. At 4 KiB the LPU's sum is {small[0]:.0f} to {small[-1]:.0f} times faster, at 16 MiB "
        f"the "
        f"GPUs' {large[0]:.1f} to {large[-1]:.1f} times.",
        charts=(
            Chart(
                "ship-all-reduce-time",
                "Time of an all-reduce",
                frame,
                columns,
                "kib",
                "us",
                drawn,
                color="series",
                facet="family",
                log="xy",
                caption=f"Points: {_MEASURED}; lines: closed forms, those of GPUs fitted on these points",
            ),
            Chart(
                "ship-all-reduce-share",
                "Saturation: rate over the rate at 16 MiB",
                frame,
                columns,
                "kib",
                "share",
                drawn,
                color="series",
                facet="family",
                log="x",
                zero=True,
                caption=f"Points: {_MEASURED}. Published knees of the LPU: 50 % at 32 KiB, 90 % at 80 KiB",
            ),
        ),
        numbers=tuple(numbers),
        claims=(
            Claim(
                "LPUs saturate at smaller tensors than GPUs",
                "holds",
                "for every algorithm and launch mode that was measured, by the printed knees; which peak the paper's "
                "percentages refer to is not stated.",
            ),
            Claim(
                "GPUs lose at small sizes",
                "depends",
                f"on the size: at 4 KiB the LPU is {small[0]:.0f} to {small[-1]:.0f} times faster, and up to 2 to 10 "
                f"MiB it stays "
                "ahead, which includes the 32 to 256 KiB of the paper's tensors; beyond, NVLink's bandwidth wins.",
            ),
        ),
        tables=(
            Table(
                "Knees of each curve, against its own rate at 16 MiB",
                ("curve", "50 % [KiB]", "90 % [KiB]", "rate [GB/s]"),
                knees,
                (1, 2, 3),
            ),
            Table("Where the LPU's printed curve stops being the faster one", ("against", "crossing"), crossings),
        ),
        notes=(
            "RedBcast, TiledRedBcast and PAARD are named in the sources and defined in none: their curves are our "
            "readings "
            "(all to one chip and back; one tile a chip; two levels that overlap).",
            "The curve through the printed knees stands for 8 to 64 LPUs at 117.5 GB/s a chip; the readings reach "
            "less, "
            "since 8 LPUs use 7 and 64 use 4 of the 11 ports at a time.",
        ),
    )


@figure("ship-overlap")
def overlap(
    model: str = "llama-3.3-70b", on: str = "lpu-v1", tp: Sequence[float] = (8, 16, 72), precision: str = "fp8"
) -> Figure:
    """All-reduces that the matrix product before them does not hide (Figure 6b)."""
    system, shapes = catalog.load_system(on)[0], catalog.load_model(model)
    efficiency, sram = sram_pipeline.efficiency_of(system), system.memory.sram
    assert sram is not None
    run = shapes.layers[0]
    if run.mlp is not None:
        width, block = run.mlp.intermediate, "second matrix of the feed-forward"
    elif run.attention is not None:
        width, block = run.attention.heads * run.attention.head_dim, "output matrix of the attention"
    else:
        raise UserError(f"{model}: the overlap is drawn for a dense feed-forward or grouped-query attention")
    weights = transformer.mlp_parameters(hidden=shapes.hidden, intermediate=width, matrices=1.0)
    tokens = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)
    rows: list[Mapping[str, Any]] = []
    for ranks in tp:
        product = roofline.operator_time(
            compute=roofline.compute_time(
                flops=transformer.gemm_flops(tokens=tokens, parameters=weights) / ranks,
                peak=system.rates[system.computes_as[precision]],
                efficiency=efficiency.compute,
            ),
            memory=roofline.memory_time(
                bytes_moved=weights * PRECISION_BYTES[precision] / ranks,
                bandwidth=sram.bandwidth,
                efficiency=efficiency.memory,
            ),
        )
        message = tokens * shapes.hidden * ACTIVATION_BYTES
        link = collectives.saturating_all_reduce(
            message=message,
            latency=efficiency.all_reduce_latency,
            bandwidth=efficiency.all_reduce_bandwidth,
            exponent=efficiency.all_reduce_exponent,
        )
        exposed = collectives.exposed_collective(collective=link, hidden_behind=product)
        rows += [
            {
                "tp": f"TP{ranks:g}",
                "tokens": count,
                "kib": size / KIB,
                "product": made * 1e6,
                "link": time * 1e6,
                "exposed": left * 1e6,
                "share": left / (made + left),
            }
            for count, size, made, time, left in zip(tokens, message, product, link, exposed, strict=True)
        ]
    frame = pd.DataFrame(rows)
    at4 = frame.query("tokens == 4").set_index("tp").share
    words = ", ".join(f"{share:.0%} at {name}" for name, share in at4.items())
    return Figure(
        "Matrix product and all-reduce together",
        f"At 4 tokens a stage the links stick out for {words} of the time of product and all-reduce. More ranks "
        f"shorten "
        "the product and not the all-reduce, so the exposed share rises with TP.",
        charts=(
            Chart(
                "ship-overlap",
                f"Share of time in which only links work: {block} of {shapes.name}",
                frame,
                {
                    "tp": "plan",
                    "tokens": "tokens",
                    "kib": "tensor [KiB]",
                    "product": "matrix product [us]",
                    "link": "all-reduce [us]",
                    "exposed": "exposed [us]",
                    "share": "exposed share",
                },
                "kib",
                "share",
                (Layer("line"), Layer("point")),
                color="tp",
                log="x",
                zero=True,
                caption=(
                    "Exposed = maximum(0, all-reduce - product), over product + exposed; the paper shows cycles only"
                ),
            ),
        ),
        claims=(
            Claim(
                "Some of the communication stays exposed",
                "depends" if frame.share.min() == 0 < frame.share.max() else "holds" if frame.share.min() else "fails",
                f"on TP and tensor: up to {frame.share.max():.0%} of the time, nothing where a chip holds enough of "
                f"the "
                "matrix that streaming it lasts longer.",
            ),
        ),
    )

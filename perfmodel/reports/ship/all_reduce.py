"""All-reduces of LPUs and GPUs against tensor size (Figure 6), and what matrix products hide of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import collectives, roofline, topologies, transformer
from perfmodel.errors import UserError
from perfmodel.machines import all_reduce as measured_all_reduce
from perfmodel.machines import kernels_efficiency, sram_beat
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship.data import only_known, table
from perfmodel.specs import catalog
from perfmodel.specs.types import PRECISION_BYTES, Model, System

KIB = 1024.0

#: Engines of the measured table by what people call them, and the files that are calibrated on them.
_ENGINES = {
    "TRTLLM": ("TensorRT-LLM, CUDA graph", "trtllm"),
    "vLLM_custom_graph": ("vLLM custom, CUDA graph", "vllm"),
    "SGLang_CustomAllReduce_graph": ("SGLang custom, CUDA graph", "sglang"),
    "NCCL": ("NCCL", ""),
}
_SYSTEMS = {"B200 SXM": "dgx-b200", "H100 SXM": "dgx-h100"}
_MEASURED = "aiconfigurator-core 0.12.0, medians over releases (Apache-2.0)"
#: The series of the LPU that is printed.
_KNEES = "LPU, printed knees (8 to 64)"


def _lpu_all_reduce(system: System, message: Any) -> Any:
    """Return the time of an all-reduce through the printed knees [s]."""
    efficiency = sram_beat.efficiency_of(system)
    return collectives.saturating_all_reduce(
        message=message,
        latency=efficiency.all_reduce_latency,
        bandwidth=efficiency.all_reduce_bandwidth,
        exponent=efficiency.all_reduce_exponent,
    )


def _lpu_times(system: System, sizes: Any) -> dict[str, Any]:
    link = system.link
    port, hop = link.port_bandwidth_per_direction, link.hop_latency
    return {
        _KNEES: _lpu_all_reduce(system, sizes),
        "8 LPUs, RedBcast (reading)": collectives.rooted_all_reduce(
            message=sizes, ranks=8.0, hop_latency=hop, link_bandwidth=port
        ),
        "8 LPUs, TiledRedBcast (reading)": topologies.full_mesh_all_reduce(
            message=sizes, ranks=8.0, latency=2 * hop, link_bandwidth=port
        ),
        "64 LPUs, PAARD (reading)": collectives.two_level_all_reduce(
            message=sizes, local=8.0, nodes=8.0, hop_latency=hop, link_bandwidth=port, ports=4.0
        ),
    }


def _gpu_times(hardware: str, sizes: Any) -> dict[str, Any]:
    times = {}
    for label, engine in _ENGINES.values():
        if engine:
            reached = kernels_efficiency.efficiency_of(catalog.load_system(_SYSTEMS[hardware], engine)[0])
            assert reached.all_reduce is not None
            times[label] = measured_all_reduce.all_reduce_time(reached.all_reduce, sizes, 8.0)
            if engine == "vllm":
                times["vLLM custom, eager"] = collectives.eager_collective(
                    collective=times[label], launch=reached.eager_launch
                )
    return times


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


def _curves_frame(system: System, hardware: Sequence[str]) -> pd.DataFrame:
    """Return time and rate against tensor size, series by series: LPUs, fitted closed forms of GPUs, measurements."""
    sizes = np.geomspace(4 * KIB, 16 * KIB**2, 97)
    curves = [("LPU", name, sizes, times, "reconstructed") for name, times in _lpu_times(system, sizes).items()]
    measured = table("kernels/allreduce.csv").query("n_chips == 8")
    for chip in hardware:
        family = f"8 x {chip}"
        curves += [(family, name, sizes, times, "predicted") for name, times in _gpu_times(chip, sizes).items()]
        for engine, (name, calibrated) in _ENGINES.items():
            part = measured[(measured.hardware == chip) & (measured.engine == engine)].sort_values("message_bytes")
            if len(part):
                at, times = part.message_bytes.to_numpy(dtype=float), part.value.to_numpy(dtype=float) * 1e-6
                curves.append((family, name, at, times, "published" if calibrated else "measured"))
    return pd.DataFrame(
        [
            {
                "family": family,
                "series": name,
                "bytes": float(size),
                "seconds": float(time),
                "kib": float(size / KIB),
                "us": float(time * 1e6),
                "gbps": float(size / time / 1e9),
                "share": float(size / time / (at[-1] / times[-1])),
                "kind": kind,
            }
            for family, name, at, times, kind in curves
            for size, time in zip(at, times, strict=True)
        ]
    )


def _knee_rows(curves: pd.DataFrame) -> list[Sequence[str]]:
    """Return where each curve that is no copy of a fitted one reaches half and 90 % of its last rate."""
    rows: list[Sequence[str]] = []
    for (family, name, _), part in curves[curves.kind != "published"].groupby(["family", "series", "kind"], sort=False):
        at, times = part.bytes.to_numpy(), part.seconds.to_numpy()
        reached = (f"{_knee(at, times, share) / KIB:,.0f}" for share in (0.5, 0.9))
        rows.append((f"{family}: {name}", *reached, f"{at[-1] / times[-1] / 1e9:,.0f}"))
    return rows


def _crossing_rows(curves: pd.DataFrame) -> list[Sequence[str]]:
    """Return where the LPU's printed curve and each of the GPUs' cross."""
    printed = curves[curves.series == _KNEES]
    sizes, ours = printed.bytes.to_numpy(), printed.seconds.to_numpy()
    rows: list[Sequence[str]] = []
    of_gpus = curves[(curves.family != "LPU") & (curves.kind != "published")]
    for (family, name, kind), part in of_gpus.groupby(["family", "series", "kind"], sort=False):
        theirs = part.seconds.to_numpy()
        if kind == "measured":
            theirs = np.exp(np.interp(np.log(sizes), np.log(part.bytes.to_numpy()), np.log(theirs)))
        rows.append((f"{family}, {name}", _crossing(sizes, ours, theirs)))
    return rows


def _saturation_numbers(system: System) -> tuple[Number, ...]:
    """Return the share of the LPU's peak at the printed knees."""
    bandwidth = sram_beat.efficiency_of(system).all_reduce_bandwidth
    return tuple(
        Number(
            f"LPU, share of the peak at {kib} KiB",
            float(
                collectives.saturation(message=kib * KIB, time=_lpu_all_reduce(system, kib * KIB), bandwidth=bandwidth)
            ),
            "%",
            share,
            "reconstructed",
            True,
            "SHIP",
        )
        for kib, share in ((32, 0.5), (80, 0.9))
    )


def _at_the_ends(curves: pd.DataFrame) -> tuple[float, list[float], list[float]]:
    """Return the least half-rate tensor of the GPUs [B], and how much faster LPUs are at 4 KiB and GPUs at 16 MiB."""
    ours = curves[curves.series == _KNEES].seconds.to_numpy()
    knees, small, large = [], [], []
    for _, part in curves[curves.kind == "predicted"].groupby(["family", "series"], sort=False):
        theirs = part.seconds.to_numpy()
        knees.append(_knee(part.bytes.to_numpy(), theirs, 0.5))
        small.append(float(theirs[0] / ours[0]))
        large.append(float(ours[-1] / theirs[-1]))
    return min(knees), sorted(small), sorted(large)


def _size_claims(small: Sequence[float]) -> tuple[Claim, ...]:
    """Return what holds of small tensors, from how much faster LPUs are at 4 KiB."""
    return (
        Claim(
            "LPUs saturate at smaller tensors than GPUs",
            "holds",
            "for every algorithm and launch mode that was measured, by the printed knees; which peak the paper's "
            "percentages refer to is not stated.",
        ),
        Claim(
            "GPUs lose at small sizes",
            "depends",
            f"on the size: at 4 KiB the LPU is {small[0]:.0f} to {small[-1]:.0f} times faster, and up to 2 to 10 MiB "
            "it stays ahead, which includes the 32 to 256 KiB of the paper's tensors; beyond, NVLink's bandwidth wins.",
        ),
    )


def _all_reduce_charts(curves: pd.DataFrame) -> tuple[Chart, Chart]:
    """Return time, and saturation, against tensor size."""
    time = Chart(
        "ship-all-reduce-time",
        "Time of an all-reduce",
        curves[curves.kib >= 4].drop(columns=["bytes", "seconds"]),
        {
            "family": "chips",
            "series": "algorithm and launch",
            "kib": "tensor [KiB]",
            "us": "all-reduce [us]",
            "gbps": "tensor over time [GB/s]",
            "share": "share of the series' own rate at 16 MiB",
            "kind": "kind",
        },
        "kib",
        "us",
        (Layer("line", rows="kind != 'published'"), Layer("point", rows="kind in ('published', 'measured')")),
        color="series",
        facet="family",
        log="xy",
        caption=f"Points: {_MEASURED}; lines: closed forms, those of GPUs fitted on these points",
    )
    share = replace(
        time,
        name="ship-all-reduce-share",
        title="Saturation: rate over the rate at 16 MiB",
        y="share",
        log="x",
        zero=True,
        caption=f"Points: {_MEASURED}. Published knees of the LPU: 50 % at 32 KiB, 90 % at 80 KiB",
    )
    return time, share


@figure("ship-all-reduce")
def all_reduce(on: str = "lpu-v1", hardware: Sequence[str] = ("B200 SXM", "H100 SXM")) -> Figure:
    """All-reduce against tensor size (Figure 6a): LPUs, and 8 GPUs by algorithm and launch mode."""
    only_known(hardware, _SYSTEMS)
    system = catalog.load_system(on)[0]
    curves = _curves_frame(system, hardware)
    best, small, large = _at_the_ends(curves)
    return Figure(
        "All-reduce against tensor size",
        "LPUs reach half of their rate at 32 KiB and 90 % at 80 KiB; no algorithm of 8 GPUs reaches half of its own "
        f"before {best / KIB:,.0f} KiB. At 4 KiB the LPU's sum is {small[0]:.0f} to {small[-1]:.0f} times faster, at "
        f"16 MiB the GPUs' {large[0]:.1f} to {large[-1]:.1f} times.",
        charts=_all_reduce_charts(curves),
        numbers=_saturation_numbers(system),
        claims=_size_claims(small),
        tables=(
            Table(
                "Knees of each curve, against its own rate at 16 MiB",
                ("curve", "50 % [KiB]", "90 % [KiB]", "rate [GB/s]"),
                _knee_rows(curves),
                (1, 2, 3),
            ),
            Table(
                "Where the LPU's printed curve stops being the faster one",
                ("against", "crossing"),
                _crossing_rows(curves),
            ),
        ),
        notes=(
            "RedBcast, TiledRedBcast and PAARD are named in the sources and defined in none: their curves are our "
            "readings (all to one chip and back; one tile a chip; two levels that overlap).",
            "The curve through the printed knees stands for 8 to 64 LPUs at 117.5 GB/s a chip; the readings reach "
            "less, since 8 LPUs use 7 and 64 use 4 of the 11 ports at a time.",
        ),
    )


# --- what matrix products hide -----------------------------------------------------------------------------------


def _block_before(model: Model) -> tuple[Any, str]:
    """Return the rows and the name of the matrix whose product an all-reduce follows."""
    run = model.layers[0]
    if run.mlp is not None:
        return run.mlp.intermediate, "second matrix of the feed-forward"
    if run.attention is not None:
        return run.attention.heads * run.attention.head_dim, "output matrix of the attention"
    raise UserError(f"{model.name}: the overlap is drawn for a dense feed-forward or grouped-query attention")


def _overlap_frame(system: System, hidden: Any, width: Any, tp: Sequence[float], precision: str) -> pd.DataFrame:
    """Return product, all-reduce and what of it nothing hides [us], by ranks and tokens."""
    efficiency, sram = sram_beat.efficiency_of(system), system.memory.sram
    assert sram is not None
    weights = transformer.mlp_parameters(hidden=hidden, intermediate=width, matrices=1.0)
    tokens = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256], dtype=float)
    message = tokens * hidden * ACTIVATION_BYTES
    link = _lpu_all_reduce(system, message)
    rows: list[dict[str, Any]] = []
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
    return pd.DataFrame(rows)


@figure("ship-overlap")
def overlap(
    model: str = "llama-3.3-70b", on: str = "lpu-v1", tp: Sequence[float] = (8, 16, 72), precision: str = "fp8"
) -> Figure:
    """All-reduces that the matrix product before them does not hide (Figure 6b)."""
    shapes = catalog.load_model(model)
    width, block = _block_before(shapes)
    frame = _overlap_frame(catalog.load_system(on)[0], shapes.hidden, width, tp, precision)
    at4 = frame.query("tokens == 4").set_index("tp").share
    words = ", ".join(f"{share:.0%} at {name}" for name, share in at4.items())
    return Figure(
        "Matrix product and all-reduce together",
        f"At 4 tokens a stage the links stick out for {words} of the time of product and all-reduce. More ranks "
        "shorten the product and not the all-reduce, so the exposed share rises with TP.",
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
                "the matrix that streaming it lasts longer.",
            ),
        ),
    )

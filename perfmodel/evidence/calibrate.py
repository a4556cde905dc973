"""Fitting efficiencies on public measurements; writes ``hardware_specs/calibration/``.

Everything is derived from the files in ``data/`` and is the same on every run.  Each number carries how many points
it was fitted on and how far those points lie from the fit.
"""

from __future__ import annotations

import csv
import functools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares

from perfmodel.equations import roofline
from perfmodel.evidence import dataflow_fit, power_fit, serving_fit
from perfmodel.evidence.validate import public
from perfmodel.machines import dataflow, kernels, sram_pipeline
from perfmodel.machines.all_reduce import all_reduce_time
from perfmodel.machines.kernels import ATTENTION_BLOCK
from perfmodel.machines.kernels_efficiency import AllReduce
from perfmodel.machines.kernels_efficiency import KernelsEfficiency as Efficiency
from perfmodel.numerics import NAN
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog, files
from perfmodel.specs.kinds import Kind
from perfmodel.specs.paths import put
from perfmodel.specs.weights import CLASSES
from perfmodel.writing import clean, whole

Array = NDArray[np.float64]

#: Chips whose kernels were measured, and the system whose rates and bandwidth the efficiencies refer to.
SYSTEM_OF_CHIP = {
    "h100": "dgx-h100",
    "h200": "dgx-h200",
    "b200": "dgx-b200",
    "a100": "dgx-a100",
    "gb200": "gb200-nvl72",
}
CHIP_OF_HARDWARE = {
    "H100 SXM": "h100",
    "H200 SXM": "h200",
    "B200 SXM": "b200",
    "A100 SXM": "a100",
    "GB200 NVL72": "gb200",
}
ENGINE_OF_ALL_REDUCE = {
    "vLLM_custom_graph": "vllm",
    "TRTLLM": "trtllm",
    "SGLang_CustomAllReduce_graph": "sglang",
}
#: Kernel data of a storage format: (rate name, bytes a weight, bytes an activation in, precision it stands for).
GEMM_FORMATS = {
    "bfloat16": ("bf16", 2.0, 2.0),
    "fp8": ("fp8", 1.0, 1.0),
    "nvfp4": ("fp4", 0.5625, 0.5625),
    "sq": ("int8", 1.0, 1.0),
}
KERNELS = "aiconfigurator-0.12"
#: Share of a table's rows that must be possible before a fit of it is believed.
LEAST_POSSIBLE = 0.95


@dataclass(frozen=True)
class Fitted:
    """A fitted number: value with unit as text, and what it rests on."""

    value: str
    note: str
    kind: str = "measured"
    source: str = KERNELS

    def quantity(self) -> dict[str, str]:
        """Return it as a spec file writes it."""
        return {"value": self.value, "source": self.source, "kind": self.kind, "note": self.note}


def _rows(name: str) -> list[dict[str, str]]:
    with (catalog.bundled() / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _columns(rows: Iterable[Mapping[str, str]], *names: str) -> list[Array]:
    return [
        np.array(column) for column in zip(*([float(row[name] or 0) for name in names] for row in rows), strict=True)
    ]


def _grouped(rows: Iterable[dict[str, str]], *names: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def _log_fit(
    model: Callable[[Array], Array], measured: Array, start: list[float], upper: list[float]
) -> tuple[Array, Array]:
    """Return the parameters that fit best in relative terms, and the signed relative errors."""

    def residuals(x: Array) -> Array:
        ratio: Array = np.log(model(x) / measured)
        return ratio

    result = least_squares(
        residuals,
        start,
        bounds=([1e-3] * len(start), upper),
        loss="soft_l1",
        f_scale=0.1,
    )
    return result.x, model(result.x) / measured - 1


def _note(errors: Array, what: str) -> str:
    return f"{what}; n {errors.size}, median error {np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}"


# --- kernels -----------------------------------------------------------------------------------------------------


def fit_gemm(
    rows: list[dict[str, str]], peak: float, bandwidth: float, bytes_in: tuple[float, float]
) -> tuple[Array, Array]:
    """Fit ``t = t0 + max(flops / (peak e_c), bytes / (bandwidth e_m))``.

    Returns
    -------
    parameters : ndarray, shape (3,)
        t0 [us], memory efficiency, compute efficiency.
    errors : ndarray
        Signed relative errors of the points.
    """
    m, n, k, latency = _columns(rows, "m", "n", "k", "value")
    flops = 2 * m * n * k
    moved = n * k * bytes_in[0] + m * k * bytes_in[1] + m * n * 2

    def model(x: Array) -> Array:
        time: Array = x[0] * 1e-6 + np.maximum(flops / (peak * x[2]), moved / (bandwidth * x[1]))
        return time

    return _log_fit(model, latency * 1e-6, [5.0, 0.8, 0.7], [50.0, 1.0, 1.0])


def _decode_attention(rows: list[dict[str, str]], bandwidth: float) -> tuple[Array, Array, Array]:
    """Return traffic [B] and time [s] of decode attention, and which rows a memory of that bandwidth allows."""
    batch, cached, kv_heads, dim, latency = _columns(
        rows, "concurrency_or_batch", "kv_len", "kv_heads", "head_dim", "value"
    )
    element = np.array([1.0 if row["dtype_kv"] == "fp8" else 2.0 for row in rows])
    moved = batch * cached * 2 * kv_heads * dim * element
    # The L2 cache holds what a small kernel reads; only a large one must come from memory.
    possible = (moved < 1e8) | (moved / (latency * 1e-6) <= bandwidth)
    return moved, latency * 1e-6, possible


def _decode_rows(rows: Iterable[dict[str, str]], cache: str) -> list[dict[str, str]]:
    return [row for row in rows if row["metric"].startswith("generation") and row["dtype_kv"] == cache]


def _prefill_rows(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return [row for row in rows if row["metric"].startswith("context") and row["dtype_weights"] == "bfloat16"]


def fit_decode_attention(rows: list[dict[str, str]], bandwidth: float) -> tuple[Array, Array]:
    """Fit ``t = t0 + bytes / (bandwidth e) + g log2(1 + bytes / block)``.

    Returns
    -------
    parameters : ndarray, shape (3,)
        t0 [us], memory efficiency, growth [us].
    errors : ndarray
        Signed relative errors of all points; those that beat the bandwidth are not fitted.
    """
    moved, latency, possible = _decode_attention(rows, bandwidth)

    def model(x: Array, moved: Array) -> Array:
        ramp = roofline.attention_ramp(growth=x[2] * 1e-6, moved=moved, block=ATTENTION_BLOCK)
        time: Array = x[0] * 1e-6 + moved / (bandwidth * x[1]) + ramp
        return time

    x, _ = _log_fit(lambda x: model(x, moved[possible]), latency[possible], [8.0, 0.7, 0.5], [50.0, 1.0, 20.0])
    return x, model(x, moved) / latency - 1


def fit_prefill_attention(rows: list[dict[str, str]], peak: float) -> tuple[Array, Array]:
    """Fit prefill attention's compute efficiency: ``t = t0 + flops / (peak e) + g log2(1 + bytes / block)``."""
    batch, tokens, heads, kv_heads, dim, latency = _columns(
        rows, "concurrency_or_batch", "isl", "heads", "kv_heads", "head_dim", "value"
    )
    flops = 4 * batch * tokens * (tokens + 1) / 2 * heads * dim
    moved = batch * tokens * 4 * kv_heads * dim

    def model(x: Array) -> Array:
        ramp = roofline.attention_ramp(growth=x[2] * 1e-6, moved=moved, block=ATTENTION_BLOCK)
        time: Array = x[0] * 1e-6 + flops / (peak * x[1]) + ramp
        return time

    return _log_fit(model, latency * 1e-6, [8.0, 0.4, 1.0], [50.0, 1.0, 50.0])


def _all_reduce_time(x: Array, threshold: float, message: Array, ranks: Array) -> Array:
    engine = AllReduce(x[0] * 1e-6, x[1], x[2] * 1e9, x[3] * 1e-6, x[4], x[5] * 1e9, threshold, NAN)
    time: Array = all_reduce_time(engine, message, ranks)
    return time


def fit_all_reduce(rows: list[dict[str, str]], thresholds: Iterable[float] = ()) -> tuple[Array, Array]:
    """Fit the engine's two algorithms and the size at which it changes between them.

    Parameters
    ----------
    rows : list of dict
    thresholds : iterable of float
        Sizes to try [B]; all measured ones if none.

    Returns
    -------
    parameters : ndarray, shape (7,)
        Latency [us], growth and bandwidth [GB/s] of each algorithm, threshold [B].
    errors : ndarray
    """
    ranks, message, latency = _columns(rows, "tp", "message_bytes", "value")
    tried = list(thresholds)
    best: tuple[float, Array, Array] | None = None
    for threshold in tried or np.unique(message)[1:].tolist():
        for start in ([5, 0.2, 300, 8, 0.3, 300], [5, 0.2, 300, 15, 0.6, 200])[: 1 if tried else 2]:
            x, errors = _log_fit(
                lambda x, threshold=threshold: _all_reduce_time(x, threshold, message, ranks),  # type: ignore[misc]
                latency * 1e-6,
                start,
                [60, 3, 5000, 60, 3, 5000],
            )
            cost = float(np.sum(np.abs(np.log1p(errors))))
            if best is None or cost < best[0]:
                best = cost, np.append(x, threshold), errors
    assert best is not None
    return best[1], best[2]


def cross_validate_all_reduce(rows: list[dict[str, str]]) -> Array:
    """Return the signed errors of each message size when it alone is left out of the fit."""
    best = fit_all_reduce(rows)[0][6]
    errors = []
    for size in sorted({row["message_bytes"] for row in rows}, key=float):
        kept = [row for row in rows if row["message_bytes"] != size]
        x, _ = fit_all_reduce(kept, thresholds=(best / 2, best, best * 2))
        ranks, message, latency = _columns(
            [row for row in rows if row["message_bytes"] == size], "tp", "message_bytes", "value"
        )
        errors.append(_all_reduce_time(x[:6], x[6], message, ranks) / (latency * 1e-6) - 1)
    return np.concatenate(errors)


@dataclass(frozen=True)
class KernelError:
    """How far a kind of kernel lies from its fit: of all points, and of the size class that lies farthest."""

    kernel: str
    chip: str
    form: str
    points: int
    parameters: int
    median: float
    worst_class: str
    worst: float
    left_out: float = float("nan")
    note: str = ""


def _worst(classes: Iterable[Any], errors: Array) -> tuple[str, float]:
    """Return the class whose median signed error is largest, and that error."""
    groups: dict[Any, list[float]] = defaultdict(list)
    for name, error in zip(classes, errors, strict=True):
        groups[name].append(error)
    medians = {name: float(np.median(found)) for name, found in groups.items()}
    name = max(medians, key=lambda key: abs(medians[key]))
    return str(name), medians[name]


def kernel_errors(leave_out: bool = True) -> Iterator[KernelError]:
    """Give the errors of every kernel fit by chip and precision or engine; the fit's parameters are counted."""
    gemm = _grouped(_rows("kernels/gemm.csv"), "hardware", "dtype_weights")
    attention = _grouped(_rows("kernels/attention.csv"), "hardware")
    for hardware, chip in CHIP_OF_HARDWARE.items():
        system = catalog.load_bare_system(SYSTEM_OF_CHIP[chip])
        assert system.memory.hbm is not None
        bandwidth = float(system.memory.hbm.bandwidth)
        for form, (rate, *element) in GEMM_FORMATS.items():
            if rows := gemm.get((hardware, form)):
                _, errors = fit_gemm(rows, float(system.rates[rate]), bandwidth, (element[0], element[1]))
                worst = _worst((f"{float(row['m']):g} rows" for row in rows), errors)
                yield KernelError("gemm", chip, rate, len(rows), 3, _middle(errors), *worst)
        for form, kind in (("bfloat16", "bf16"), ("fp8", "fp8")):
            rows = [
                row for row in attention[(hardware,)] if row["metric"].startswith("gen") and row["dtype_kv"] == form
            ]
            if rows:
                moved, _, possible = _decode_attention(rows, bandwidth)
                _, errors = fit_decode_attention(rows, bandwidth)
                worst = _worst((f"{10.0 ** np.floor(np.log10(size)):.0e} B" for size in moved), errors)
                beaten = len(rows) - int(possible.sum())
                note = f"{beaten} rows beat the bandwidth" if beaten else ""
                used = "" if beaten <= (1 - LEAST_POSSIBLE) * len(rows) else ": not used"
                yield KernelError(
                    "decode attention", chip, f"KV {kind}", len(rows), 3, _middle(errors), *worst, note=note + used
                )
        rows = [
            row
            for row in attention[(hardware,)]
            if row["metric"].startswith("con") and row["dtype_weights"] == "bfloat16"
        ]
        _, errors = fit_prefill_attention(rows, float(system.rates["bf16"]))
        worst = _worst((f"{float(row['isl']):g} tokens" for row in rows), errors)
        yield KernelError("prefill attention", chip, "bf16", len(rows), 3, _middle(errors), *worst)
    for (hardware, engine), rows in sorted(_grouped(_rows("kernels/allreduce.csv"), "hardware", "engine").items()):
        _, errors = fit_all_reduce(rows)
        worst = _worst((f"{float(row['message_bytes']) / 1024:g} KiB" for row in rows), errors)
        left_out = _middle(cross_validate_all_reduce(rows)) if leave_out else float("nan")
        chip = CHIP_OF_HARDWARE[hardware]
        name = ENGINE_OF_ALL_REDUCE.get(engine, engine.lower())
        yield KernelError("all-reduce", chip, name, len(rows), 7, _middle(errors), *worst, left_out)


def _middle(errors: Array) -> float:
    return float(np.median(np.abs(errors)))


def _kernel_block(chip: str) -> dict[str, Any]:
    """Return the GEMM and attention efficiencies of a chip, measured with TensorRT-LLM."""
    system = catalog.load_bare_system(SYSTEM_OF_CHIP[chip])
    assert system.memory.hbm is not None
    bandwidth = float(system.memory.hbm.bandwidth)
    hardware = next(name for name, known in CHIP_OF_HARDWARE.items() if known == chip)
    gemm = _grouped(_rows("kernels/gemm.csv"), "hardware", "dtype_weights")
    block: dict[str, Any] = {"gemm_memory": {}, "gemm_compute": {}}
    for form, (rate, *element) in GEMM_FORMATS.items():
        rows = gemm.get((hardware, form))
        if not rows:
            continue
        x, errors = fit_gemm(rows, float(system.rates[rate]), bandwidth, (element[0], element[1]))
        note = _note(errors, f"TensorRT-LLM kernels, 3 parameters; its {x[0]:.1f} us a kernel are in layer_time")
        block["gemm_memory"][rate] = Fitted(f"{x[1]:.4f}", note).quantity()
        block["gemm_compute"][rate] = Fitted(f"{x[2]:.4f}", note).quantity()
    attention = [row for row in _rows("kernels/attention.csv") if row["hardware"] == hardware]
    block.update({"attention_memory": {}, "attention_growth": {}})
    for kind, form in (("bf16", "bfloat16"), ("fp8", "fp8")):
        rows = _decode_rows(attention, form)
        if not rows:
            continue
        possible = int(_decode_attention(rows, bandwidth)[2].sum())
        if possible < LEAST_POSSIBLE * len(rows):
            # Too many rows beat the memory: what was measured is not what the table says, so the default stays.
            continue
        x, errors = fit_decode_attention(rows, bandwidth)
        left_out = f"; {len(rows) - possible} rows beat the bandwidth and are left out" if possible < len(rows) else ""
        note = _note(errors, f"TensorRT-LLM kernels, 3 parameters; its {x[0]:.1f} us a kernel are in layer_time")
        block["attention_memory"][kind] = Fitted(f"{x[1]:.4f}", note + left_out).quantity()
        block["attention_growth"][kind] = Fitted(f"{x[2]:.4g} us", note + left_out).quantity()
    rows = _prefill_rows(attention)
    x, errors = fit_prefill_attention(rows, float(system.rates["bf16"]))
    note = _note(errors, f"TensorRT-LLM kernels, 3 parameters; its {x[0]:.1f} us a kernel are in layer_time")
    block["attention_compute"] = Fitted(f"{x[1]:.4f}", note).quantity()
    return block


#: Chips whose all-reduces stand for those of another, by the rate of its links.
KIN_OF_LINKS = {"gb200": "b200", "a100": "h100"}


def _all_reduce_block(chip: str, engine: str) -> dict[str, Any] | None:
    wanted = next(name for name, known in ENGINE_OF_ALL_REDUCE.items() if known == engine)
    rows = [
        row
        for row in _rows("kernels/allreduce.csv")
        if row["engine"] == wanted and CHIP_OF_HARDWARE[row["hardware"]] == chip
    ]
    if not rows:
        return None
    x, errors = fit_all_reduce(rows)
    note = _note(errors, "2, 4 and 8 ranks, 2 KiB to 16 MiB, CUDA graph, 7 parameters")
    names = ("small_latency", "small_growth", "small_bandwidth", "large_latency", "large_growth", "large_bandwidth")
    units = (" us", "", " GB/s", " us", "", " GB/s")
    block = {
        name: Fitted(f"{value:.4g}{unit}", note).quantity() for name, value, unit in zip(names, x, units, strict=False)
    }
    block["threshold"] = Fitted(f"{x[6] / 1024:g} KiB", note).quantity()
    link = catalog.load_bare_system(SYSTEM_OF_CHIP[chip]).link.bandwidth_per_direction
    block["link_bandwidth"] = Fitted(_gigabytes(link), f"that of the measured {chip}", "derived").quantity()
    return block


# --- serving -----------------------------------------------------------------------------------------------------

_UNITS = dict.fromkeys(
    ("layer_time", "latent_time", "indexer_time", "recurrent_time", "expert_time", "quantise_time", "sequence_time"),
    (1e-6, "us"),
)
_UNITS |= {"step_time": (1e-6, "us"), "sequence_traffic": (1e6, "MB"), "request_time": (1e-3, "ms")}


def _quantity_text(name: str, value: float) -> str:
    size, unit = _UNITS.get(name.partition(".")[0], (1.0, ""))
    return f"{value / size:.3g} {unit}".strip()


@dataclass(frozen=True)
class Serving:
    """What the serving rows say: the fit, the rows behind each number, and the widths of bands.

    Attributes
    ----------
    coefficients : Coefficients
    rows : dict
        Values on which a number of a chip and engine bears, by ``(number, pair)``.
    known : dict
        Half-widths of TPOT and TTFT by class, of chips and engines with rows.
    elsewhere : dict
        The same of chips or engines without rows.
    fitted : dict
        The same by model and pair that was fitted.
    """

    coefficients: serving_fit.Coefficients
    rows: Mapping[tuple[str, str], int]
    known: Mapping[tuple[str, str], float]
    elsewhere: Mapping[tuple[str, str], float]
    fitted: Mapping[tuple[str, str], Mapping[str, float]]


def serving_block(chip: str, engine: str, serving: Serving, block: dict[str, Any]) -> dict[str, Any]:
    """Return the fitted serving numbers of a chip and engine; on a chip without rows they are estimates."""
    pair = f"{chip}-{engine}"
    levels = {"engine": engine, "generation": f"{engine} {serving_fit.GENERATION[chip]}", "pair": pair}
    numbers, coefficients = serving.coefficients.of(levels), serving.coefficients
    made: dict[str, Any] = {}
    for name, value in numbers.items():
        fitted, mine = serving_fit.NUMBERS[name], serving.rows.get((name, pair), 0)
        every = sum(count for (of, _), count in serving.rows.items() if of == name)
        parent = _quantity_text(name, fitted.centre * math.exp(coefficients.parent(name, levels)))
        moved = [
            f"x{math.exp(factor):.2f} of {member}"
            for level, member in levels.items()
            if abs(factor := coefficients.factors.get((name, level, member), 0.0)) > 0.005
        ]
        entry: dict[str, Any] = {"value": _quantity_text(name, value), "source": KERNELS}
        entry["kind"] = "measured" if mine else "estimate"
        if not mine:
            wide = math.exp(
                1.28 * math.hypot(fitted.engine, fitted.generation, fitted.pair, 0.2 if every else fitted.kind)
            )
            least = 1.0 if name in ("all_reduce_overlap", "expert_tile", "group") else 0.0
            entry.update(low=_quantity_text(name, max(least, value / wide)))
            top = min(1.0, fitted.most) if _is_share(name) else math.inf
            entry.update(high=_quantity_text(name, min(top, value * wide)))
        entry["note"] = f"{mine} of {every} values bear on it here; parent {parent}, {', '.join(moved) or 'not moved'}"
        _put(made, {"group": "prefill_group"}.get(name, name), entry)
    sides = serving.known if any(of == pair for _, of in serving.rows) else serving.elsewhere
    where = "models" if sides is serving.known else "chips and engines"
    for metric in ("tpot", "ttft"):
        note = f"half-width that holds 80 % of rows of left-out {where} of the class"
        widths = {kind: (sides[metric, kind], note) for kind in CLASSES}
        widths |= {
            kernels.spread_key(model): (width, "the same with its TP or its number of clients left out")
            for model, width in serving.fitted.get((metric, pair), {}).items()
        }
        made[f"{metric}_spread"] = {
            name: {"value": f"{width:.3f}", "source": KERNELS, "kind": "derived", "note": note}
            for name, (width, note) in widths.items()
        }
    if "all_reduce" in block and isinstance(block["all_reduce"], dict):
        made["all_reduce"] = {**block["all_reduce"], "overlap": made.pop("all_reduce_overlap")}
    made.pop("all_reduce_overlap", None)
    return made


def _is_share(name: str) -> bool:
    return name.partition(".")[0] in ("expert_memory", "expert_compute", "expert_evenness", "recurrent_compute")


def _put(made: dict[str, Any], name: str, entry: dict[str, Any]) -> None:
    part, _, key = name.partition(".")
    if key:
        made.setdefault(part, {})[key] = entry
    else:
        made[part] = entry


# --- machines without kernel tables ------------------------------------------------------------------------------


def lpu_block() -> dict[str, Any]:
    """Return the LPU's all-reduce curve from the two published knees, and the links that it belongs to."""
    half, most = 32 * 1024.0, 80 * 1024.0
    # T0 BW / S at the knees: (1 / share)^p - 1 = (T0 BW / S)^p.
    exponent = brentq(lambda p: (most / half) ** p - (2.0**p - 1) / ((1 / 0.9) ** p - 1), 1.0, 10.0, xtol=1e-14)
    wire = half * (2.0**exponent - 1) ** (1 / exponent)
    link = catalog.load_bare_system("lpu-v1").link
    bandwidth = float(link.bandwidth_per_direction)
    knees = "solved from the knees 50 % at 32 KiB and 90 % at 80 KiB"
    return {
        "all_reduce_exponent": Fitted(f"{exponent:.6f}", knees, "derived", "ship-paper").quantity(),
        "all_reduce_latency": Fitted(
            f"{wire / bandwidth * 1e6:.6f} us", f"{knees}; {wire / 1024:.1f} KiB at full rate", "derived", "ship-paper"
        ).quantity(),
        "all_reduce_bandwidth": Fitted(
            _gigabytes(bandwidth),
            "all ports, one direction; which peak the knees refer to is not stated",
            "derived",
            "ship-report",
        ).quantity(),
        "link_bandwidth": Fitted(_gigabytes(bandwidth), "of the chip of the curve", "derived", "ship-paper").quantity(),
        "link_latency": Fitted(
            f"{float(link.hop_latency) * 1e9:g} ns", "of the chip of the curve", "paper", "ship-paper"
        ).quantity(),
    }


def _gigabytes(rate: Any) -> str:
    return f"{float(rate) / 1e9:g} GB/s"


def sn40_block() -> dict[str, Any]:
    """Return SN40L's efficiencies from a few values of the dataflow paper; all others in it are predicted."""
    machine = dataflow_fit.fitted().efficiency
    figure_11 = "looped decoder of 21.5 us, first one 42 us, base 73 us of Figure 11 (Llama-3.1-8B, 4,096 tokens)"
    figure_13 = f"the {dataflow_fit.OFFLOADING_ROW} row of Figure 13"
    texts = {
        "memory": (f"{machine.memory:.4f}", figure_11),
        "cache_memory": (f"{machine.cache_memory:.4f}", figure_13),
        "compute": (f"{machine.compute:.4f}", f"the {dataflow_fit.TABLE_4_ROW} row of Table 4"),
        "warm_up": (_microseconds(machine.warm_up), figure_11),
        "sample_time": (_microseconds(machine.sample_time), f"the {dataflow_fit.STREAMING_ROW} row of Figure 12"),
        "kernel_boundary": (_microseconds(machine.kernel_boundary), figure_11),
        "expert_boundary": (f"{machine.expert_boundary:.4f}", f"{' '.join(dataflow_fit.LOOPING_BAR)} of Figure 10"),
        "step_time": (_microseconds(machine.step_time), "what 1,140 tok/s of Figure 1a (16 sockets) leave"),
        "host_time": (_microseconds(machine.host_time), figure_13),
    }
    return {name: Fitted(value, note, "paper", "dataflow-paper").quantity() for name, (value, note) in texts.items()}


def _microseconds(seconds: Any) -> str:
    return f"{float(seconds) * 1e6:.4g} us"


# --- writing -----------------------------------------------------------------------------------------------------


def _defaults(kind: Kind) -> Any:
    """Return what the default calibration of a kind holds."""
    return files.read_yaml(catalog.bundled() / catalog.CALIBRATION / f"default-{kind.name}.yaml")


def kernel_blocks() -> dict[tuple[str, str], dict[str, Any]]:
    """Return what kernel tables say of every chip and engine that has some, completed by the kind's defaults."""
    defaults = _without(_defaults(kernels.MACHINE))
    blocks: dict[tuple[str, str], dict[str, Any]] = {}
    for chip in SYSTEM_OF_CHIP:
        tables = _kernel_block(chip)
        for engine in ("vllm", "trtllm", "sglang"):
            measured: dict[str, Any] = dict(tables)
            all_reduce = _all_reduce_block(KIN_OF_LINKS.get(chip, chip), engine)
            if all_reduce is not None:
                measured["all_reduce"] = all_reduce
            blocks[chip, engine] = files.merge(defaults, measured)
    return blocks


def serving_groups(blocks: Mapping[tuple[str, str], dict[str, Any]]) -> list[serving_fit.Group]:
    """Return the serving rows with the kernel-level efficiencies of their chips."""

    def efficiency(chip: str, engine: str) -> Efficiency:
        made, _ = files.build(Efficiency, blocks[chip, engine], {})
        return cast(Efficiency, made)

    return serving_fit.groups(efficiency)


@functools.cache
def serving_fitted() -> tuple[list[serving_fit.Group], serving_fit.Coefficients]:
    """Return the serving rows by group, and the fit on all of them."""
    found = serving_groups(kernel_blocks())
    return found, serving_fit.fit_all(found)


@functools.cache
def cross_validation(split: str) -> list[serving_fit.LeftOut]:
    """Return the errors of serving rows when each member of a split is left out in turn."""
    found, start = serving_fitted()
    return serving_fit.cross_validate(found, split, start)


#: Values of a class and metric from two models at the least, below which its band is that of all classes of one model.
_LEAST_MODELS = 2


def _widths(parts: Iterable[serving_fit.LeftOut]) -> dict[tuple[str, str], float]:
    """Return the half-widths by metric and class; classes of one model are left out whole, and share a width."""
    parts = list(parts)
    made: dict[tuple[str, str], float] = {}
    for metric in ("tpot", "ttft"):
        errors: dict[str, list[float]] = defaultdict(list)
        models: dict[str, set[str]] = defaultdict(set)
        for part in parts:
            for error, group in zip(getattr(part, metric), getattr(part, f"{metric}_of"), strict=True):
                errors[group.kind].append(float(error))
                models[group.kind].add(group.family)
        alone = [kind for kind in CLASSES if len(models[kind]) < _LEAST_MODELS]
        pooled = np.array([error for kind in alone for error in errors[kind]])
        for kind in CLASSES:
            mine = pooled if kind in alone else np.array(errors[kind])
            made[metric, kind] = serving_fit.spread([mine]) if mine.size else NAN
    return made


def _fitted_widths(parts: Iterable[serving_fit.LeftOut]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the half-widths of models on chips and engines that they were fitted on, by metric and pair."""
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for part in parts:
        for metric in ("tpot", "ttft"):
            for error, group in zip(getattr(part, metric), getattr(part, f"{metric}_of"), strict=True):
                errors[metric, group.pair, group.family].append(float(error))
    made: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (metric, pair, model), found in sorted(errors.items()):
        made[metric, pair][model] = serving_fit.spread([np.array(found)])
    return made


def serving_numbers() -> Serving:
    """Return what the serving rows say of every chip and engine."""
    found, coefficients = serving_fitted()
    models, groups = cross_validation("model"), cross_validation("group")
    return Serving(
        coefficients,
        serving_fit.rows_behind(found, coefficients),
        _widths([*models, *groups]),
        _widths([*cross_validation("engine"), *cross_validation("chip")]),
        _fitted_widths([*cross_validation("TP"), *cross_validation("concurrency")]),
    )


def _scores(errors: Array) -> dict[str, float | int | None]:
    if not errors.size:
        return {"n": 0, "mape": None, "median": None, "bias": None}
    size = np.abs(errors)
    names = ("mape", "median", "bias")
    values = (float(np.mean(size)), float(np.median(size)), float(np.median(errors)))
    return {"n": int(errors.size), **{name: round(value, 4) for name, value in zip(names, values, strict=True)}}


def left_out_scores() -> list[dict[str, Any]]:
    """Return the scores of rows that the fit never saw, for every way of leaving some out."""
    rows: list[dict[str, Any]] = []
    for split in serving_fit.SPLITS:
        parts = cross_validation(split)
        every = {
            metric: [
                (float(error), group)
                for part in parts
                for error, group in zip(getattr(part, metric), getattr(part, f"{metric}_of"), strict=True)
            ]
            for metric in ("tpot", "ttft")
        }

        every_generation = tuple(serving_fit.GENERATION.values())
        members: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [("all", CLASSES, every_generation)]
        members += [
            (f"{kind}, {generation.capitalize()}", (kind,), (generation,))
            for kind in CLASSES
            for generation in dict.fromkeys(every_generation)
        ]
        for what, kinds, generations in members:
            errors = {
                metric: np.array([e for e, group in found if group.kind in kinds and group.generation in generations])
                for metric, found in every.items()
            }
            if errors["tpot"].size or errors["ttft"].size:
                rows.append({"left_out": split, "what": what, **{key: _scores(part) for key, part in errors.items()}})
        rows += [
            {"left_out": split, "what": part.what, "tpot": _scores(part.tpot), "ttft": _scores(part.ttft)}
            for part in parts
            if part.tpot.size or part.ttft.size
        ]
    return rows


def calibrations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the name and the content of every calibration file."""
    serving = serving_numbers()
    for (chip, engine), block in kernel_blocks().items():
        yield f"{chip}-{engine}", files.merge(block, serving_block(chip, engine, serving, block))
    pipeline = _without(_defaults(sram_pipeline.MACHINE))
    overhead = {**_LPU_ESTIMATES["layer_overhead"], "value": _microseconds(layer_overhead())}
    yield "lpu-v1-native", files.merge(pipeline, {**_LPU_ESTIMATES, "layer_overhead": overhead, **lpu_block()})
    yield "sn40l-native", files.merge(_without(_defaults(dataflow.MACHINE)), sn40_block())


#: Public output speeds of GroqCloud, lowest and highest [tokens/s], and their dates; of gpt-oss as times a layer.
PUBLIC_SPEEDS = {
    "llama-3.1-8b": (560.0, 840.0, "2024-26"),
    "gpt-oss-20b": (1 / (24 * 42e-6), 1 / (24 * 42e-6), "2025-26"),
    "llama-3.3-70b": (250.0, 300.0, "2024-26"),
    "gpt-oss-120b": (1 / (36 * 56e-6), 1 / (36 * 56e-6), "2025-26"),
}
#: Those of them, one dense and one of experts, that the time a layer is drawn from; the others are predicted.
FITTED_SPEEDS = ("llama-3.3-70b", "gpt-oss-120b")


def public_speed(model: str) -> float:
    """Return the middle of the public output speeds of a model on logarithms [tokens/s].

    Parameters
    ----------
    model : str

    Returns
    -------
    float
    """
    low, high, _ = PUBLIC_SPEEDS[model]
    return math.sqrt(low * high)


def layer_overhead() -> float:
    """Return the time a layer for which two public speeds are met on average, by the default plan for one user [s]."""
    asked = [
        (resolve(model, "lpu-v1", Options(prompt=1024.0, output=256.0)), public_speed(model)) for model in FITTED_SPEEDS
    ]

    def excess(seconds: float) -> float:
        slowed = (put(one, "system.efficiency.layer_overhead", seconds) for one, _ in asked)
        times = (float(evaluate(one, ("tpot_s",)).metrics["tpot_s"]) for one in slowed)
        return sum(math.log(time * speed) for time, (_, speed) in zip(times, asked, strict=True))

    return float(brentq(excess, 1e-6, 1e-3, xtol=1e-9))


_LPU_ESTIMATES: dict[str, Any] = {
    "memory": {
        "value": 1,
        "low": 0.75,
        "high": 1,
        "kind": "estimate",
        "source": "project-estimate",
        "note": "18.4 TB/s is the rate that the units can take",
    },
    "layer_overhead": {
        "low": "0 us",
        "high": "56 us",
        "kind": "estimate",
        "source": "groq-public-speeds",
        "note": "drawn from the public speeds of Llama-3.3-70B and gpt-oss-120b; 8 to 12 us of it can be explained",
    },
}


def _without(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults with the file's own source written on each number, as the merged file needs it."""
    source, kind = raw["source"], raw["kind_of_numbers"]

    def fill(part: Any) -> Any:
        if isinstance(part, dict) and "value" in part:
            return {"source": source, "kind": kind, **part}
        if isinstance(part, dict):
            return {key: fill(value) for key, value in part.items()}
        return part

    return {key: fill(value) for key, value in raw.items() if key not in ("source", "kind_of_numbers", "description")}


def calibrate(target: Path | None = None) -> list[Path]:
    """Fit everything and write the calibration files; return those that were written.

    They go to the checkout, or into the current folder where they are read first; never into an installed package.
    """
    own = catalog.own_folder()
    folder = target or own / catalog.CALIBRATION
    folder.mkdir(parents=True, exist_ok=True)
    clean(folder)
    written = []
    for name, content in calibrations():
        path = folder / f"{name}.yaml"
        with whole(path) as partial:
            partial.write_text(files.as_text(name, content), encoding="utf-8")
        written.append(path)
    if target is None:
        written.append(power_fit.write(own / catalog.POWER_FOLDER))
        if own == catalog.bundled():
            catalog.write_generated()
        scores = json.dumps(left_out_scores(), indent=1)
        with whole(folder / public.LEFT_OUT) as partial:
            partial.write_text(f"{scores}\n", encoding="utf-8")
    return written


def fitted_keys() -> frozenset[tuple[str, str]]:
    """Return row id and metric of every serving row on which something is fitted; ``validate`` keeps them apart."""
    return public.fitted_keys()

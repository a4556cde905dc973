"""Efficiencies of kernels, fitted on public measurements of single kernels and collectives."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel.equations import roofline
from perfmodel.machines.all_reduce import all_reduce_time
from perfmodel.machines.kernel_step import ATTENTION_BLOCK
from perfmodel.machines.kernels_efficiency import AllReduce
from perfmodel.numerics import NAN
from perfmodel.specs import catalog

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


def kernel_block(chip: str) -> dict[str, Any]:
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


def all_reduce_block(chip: str, engine: str) -> dict[str, Any] | None:
    """Return the efficiency of an engine's all-reduces on a chip as a calibration file has it; None without rows."""
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
    block["link_bandwidth"] = Fitted(gigabytes(link), f"that of the measured {chip}", "derived").quantity()
    return block


def gigabytes(rate: Any) -> str:
    """Return a rate as a specification writes it."""
    return f"{float(rate) / 1e9:g} GB/s"

"""Fitting efficiencies on public measurements; writes ``hardware_specs/calibration/``.

Everything is derived from the files in ``data/`` and is the same on every run.  Each number carries how many points
it was fitted on and how far those points lie from the fit.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares

from perfmodel.equations import roofline
from perfmodel.errors import UserError
from perfmodel.machines.kernels import ATTENTION_BLOCK, all_reduce_time
from perfmodel.machines.operators import kv_bytes_per_token_layer, tensors
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog, files
from perfmodel.specs.paths import put
from perfmodel.specs.types import AllReduce, KernelsEfficiency, Scenario

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
#: Serving rows that beat the physics or saturate a front end; see ``data/README.md``.
ANOMALIES = (("nvidia/Llama-3.1-8B-Instruct-FP8", "H200 SXM", "vllm 0.12.0"),)


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
    engine = AllReduce(x[0] * 1e-6, x[1], x[2] * 1e9, x[3] * 1e-6, x[4], x[5] * 1e9, threshold)
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
    return block


# --- time a layer ------------------------------------------------------------------------------------------------


def layer_time_rows(chip: str, engine: str) -> list[dict[str, str]]:
    """Return the serving rows on which the time a layer is fitted: dense models, at most 8 requests at once."""
    hardware = next(name for name, known in CHIP_OF_HARDWARE.items() if known == chip)
    return [
        row
        for row in _rows("measured/serving.csv")
        if row["metric"] == "tpot"
        and row["hardware"] == hardware
        and row["engine"].split()[0] == engine
        and 0 < float(row["concurrency_or_batch"] or 0) <= 8
        and (row["model"], row["hardware"], row["engine"]) not in ANOMALIES
        and _is_dense(row["model"])
    ]


def _is_dense(model: str) -> bool:
    try:
        return all(run.moe is None for run in catalog.load_model(model).layers)
    except UserError:
        return False


def serving_scenario(row: Mapping[str, str], efficiency: KernelsEfficiency) -> Scenario:
    """Return the scenario of a serving row."""
    options = Options(
        tp=float(row["tp"]),
        pp=float(row["pp"] or 1),
        precision=row["dtype_weights"] or None,
        kv_precision=row["dtype_kv"] or None,
        engine=row["engine"].split()[0],
        prompt=float(row["isl"]),
        output=float(row["osl"]),
        concurrency=float(row["concurrency_or_batch"]),
    )
    return resolve(row["model"], row["hardware"], options, efficiency=efficiency)


def fit_layer_time(rows: list[dict[str, str]], efficiency: KernelsEfficiency) -> tuple[float, Array]:
    """Fit the one time a layer on TPOT; everything else is taken from the kernels.

    TPOT is affine in it, so two evaluations a row and one division give the least squares of relative errors.
    """
    measured = np.array([float(row["value"]) * 1e-3 for row in rows])
    scenarios = [serving_scenario(row, efficiency) for row in rows]

    def tpot(layer_time: float) -> Array:
        path = "system.efficiency.layer_time"
        return np.array([float(evaluate(put(one, path, layer_time)).metrics["tpot_s"]) for one in scenarios])

    bare = tpot(0.0)
    slope = (tpot(1e-5) - bare) / 1e-5 / measured
    gap = 1 - bare / measured
    fitted = max(0.0, float(np.sum(slope * gap) / np.sum(slope**2)))
    return fitted, tpot(fitted) / measured - 1


def _layer_time(chip: str, engine: str, block: dict[str, Any]) -> dict[str, Any]:
    rows = layer_time_rows(chip, engine)
    if not rows:
        return {}
    efficiency, _ = files.build(KernelsEfficiency, block, {})
    fitted, errors = fit_layer_time(rows, efficiency)
    models = ", ".join(sorted({row["model"] for row in rows}))
    note = _note(errors, f"1 parameter on TPOT of {models} at up to 8 requests at once")
    return {"layer_time": Fitted(f"{fitted * 1e6:.4g} us", note).quantity()}


# --- machines without kernel tables ------------------------------------------------------------------------------


def lpu_block() -> dict[str, Any]:
    """Return the LPU's all-reduce curve from the two published knees."""
    half, most = 32 * 1024.0, 80 * 1024.0
    # T0 BW / S at the knees: (1 / share)^p - 1 = (T0 BW / S)^p.
    exponent = brentq(lambda p: (most / half) ** p - (2.0**p - 1) / ((1 / 0.9) ** p - 1), 1.0, 10.0, xtol=1e-14)
    wire = half * (2.0**exponent - 1) ** (1 / exponent)
    bandwidth = float(catalog.load_bare_system("lpu-v1").link.bandwidth_per_direction)
    knees = "solved from the knees 50 % at 32 KiB and 90 % at 80 KiB"
    return {
        "all_reduce_exponent": Fitted(f"{exponent:.6f}", knees, "derived", "ship-paper").quantity(),
        "all_reduce_latency": Fitted(
            f"{wire / bandwidth * 1e6:.6f} us", f"{knees}; {wire / 1024:.1f} KiB at full rate", "derived", "ship-paper"
        ).quantity(),
        "all_reduce_bandwidth": Fitted(
            f"{bandwidth / 1e9:g} GB/s",
            "all ports, one direction; which peak the knees refer to is not stated",
            "derived",
            "ship-report",
        ).quantity(),
    }


def sn40_block() -> dict[str, Any]:
    """Return SN40L's efficiencies from two figures of the dataflow paper.

    Figure 11 gives the looped decoder and the first one; what Figure 1a's 16 sockets take beyond them is host time.
    SN40-8 of Figure 1a stays unused: it is predicted.
    """
    system = catalog.load_bare_system("sn40l-16")
    model = catalog.load_model("llama-3.1-8b")
    figures = json.loads((catalog.bundled() / "data" / "paper_dataflow.json").read_text(encoding="utf-8"))
    rate = _find(figures, "SN40-16", 1140)
    looped, first, base = 21.5e-6, 42e-6, 73e-6
    assert system.memory.hbm is not None
    run = model.layers[0]
    weights = 2 * sum(float(one.held) for one in tensors(model, run) if one.kind != "norm")
    cache = 4096 * float(kv_bytes_per_token_layer(run, "bf16"))
    floor = (weights + cache) / (16 * float(system.memory.hbm.bandwidth))
    memory = floor / looped
    head = float(model.vocab) * float(model.hidden) * 2 / (16 * float(system.memory.hbm.bandwidth) * memory)
    warm_up = first - looped
    host = 1 / rate - float(run.count) * looped - head - warm_up
    figure_11 = "looped decoder of 21.5 us, first one 42 us, base 73 us of Figure 11 (Llama-3.1-8B, 4,096 tokens)"
    return {
        "memory": Fitted(f"{memory:.4f}", figure_11, "paper", "dataflow-paper").quantity(),
        "warm_up": Fitted(f"{warm_up * 1e6:.4g} us", figure_11, "paper", "dataflow-paper").quantity(),
        "kernel_boundary": Fitted(f"{(base - looped) * 1e6:.4g} us", figure_11, "paper", "dataflow-paper").quantity(),
        "host_time": Fitted(
            f"{host * 1e6:.4g} us", "what 1,140 tok/s of Figure 1a (16 sockets) leave", "paper", "dataflow-paper"
        ).quantity(),
    }


def _find(figures: Any, label: str, expected: float) -> float:
    """Return a value of the digitised figures, after checking that it stands there."""
    if str(int(expected)) not in json.dumps(figures):
        raise UserError(f"data/paper_dataflow.json: {label} {expected:g} is not there")
    return expected


# --- writing -----------------------------------------------------------------------------------------------------


def calibrations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the name and the content of every calibration file."""
    defaults = {
        kind: files.read_yaml(catalog.bundled() / catalog.CALIBRATION / f"default-{kind}.yaml")
        for kind in ("kernels", "dataflow", "sram_pipeline")
    }
    for chip, system in SYSTEM_OF_CHIP.items():
        try:
            catalog.find("system", system)
        except UserError:
            continue
        kernels = _kernel_block(chip)
        for engine in ("vllm", "trtllm", "sglang"):
            measured: dict[str, Any] = dict(kernels)
            all_reduce = _all_reduce_block(chip, engine)
            if all_reduce is not None:
                measured["all_reduce"] = all_reduce
            elif engine != "trtllm":
                # Kernels alone were measured, with TensorRT-LLM: other engines keep the kind's default.
                continue
            merged = files.merge(_without(defaults["kernels"]), measured)
            merged = files.merge(merged, _layer_time(chip, engine, merged))
            yield f"{chip}-{engine}", merged
    yield "lpu-v1-native", files.merge(_without(defaults["sram_pipeline"]), {**_LPU_ESTIMATES, **lpu_block()})
    yield "sn40l-native", files.merge(_without(defaults["dataflow"]), sn40_block())


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
        "value": "47 us",
        "low": "0 us",
        "high": "50 us",
        "kind": "estimate",
        "source": "groq-public-speeds",
        "note": "public time a layer is 42 to 56 us and hardly depends on the weights; 8 to 12 us can be explained",
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


def as_text(name: str, content: Mapping[str, Any]) -> str:
    """Return a calibration file as YAML, in a fixed order."""
    lines = [f"description: Written by 'perfmodel calibrate' for {name}; edit the data or the fit, not this file."]

    def scalar(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        text = str(value)
        return json.dumps(text) if any(mark in text for mark in ":,#{}[]'\"") else text

    def write(part: Mapping[str, Any], indent: str) -> None:
        for key, value in part.items():
            if isinstance(value, Mapping) and "value" in value:
                inner = ", ".join(f"{name}: {scalar(entry)}" for name, entry in value.items())
                lines.append(f"{indent}{key}: {{{inner}}}")
            elif isinstance(value, Mapping):
                lines.append(f"{indent}{key}:")
                write(value, indent + "  ")
            else:
                lines.append(f"{indent}{key}: {scalar(value)}")

    write(content, "")
    return "\n".join(lines) + "\n"


def calibrate(target: Path | None = None) -> list[Path]:
    """Fit everything and write the calibration files; return those that were written."""
    folder = target or catalog.bundled() / catalog.CALIBRATION
    written = []
    for name, content in calibrations():
        path = folder / f"{name}.yaml"
        partial = path.with_suffix(".partial")
        partial.write_text(as_text(name, content), encoding="utf-8")
        partial.replace(path)
        written.append(path)
    if target is None:
        catalog.write_generated()
    return written

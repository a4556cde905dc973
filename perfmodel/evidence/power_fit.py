"""Fitting what a GPU draws while arithmetic, memory or neither limits it; writes ``hardware_specs/power/kernels.yaml``.

The readings of ``data/kernels/power.csv`` come from a slow sensor over loops of short kernels: after a hot kernel an
idle one still reads high, and a short busy one still reads low.  So the fit takes edges of the cloud, not its middle:
a kernel that does next to nothing draws the lower edge of what such kernels read, and the levels of busy kernels are
medians of those that last.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.equations import experts
from perfmodel.specs import catalog, files
from perfmodel.writing import whole

Array = NDArray[np.float64]

#: The chip whose power was read, its bandwidth [TB/s], and its dense rates by storage of the weights [TFLOP/s].
CHIP = "b200"
BANDWIDTH = 8.0
RATES = {"bfloat16": 2250.0, "int4_wo": 2250.0, "fp8": 4500.0, "fp8_block": 4500.0}
BYTES = {"bfloat16": 2.0, "int4_wo": 0.53, "fp8": 1.0, "fp8_block": 1.0}
SOURCE = "aiconfigurator-0.12"
FILE = "kernels.yaml"

#: Utilisation below which a kernel does next to nothing, and shares of bandwidth and of the rate from which it is busy.
NOTHING, STREAMING, COMPUTING = 0.1, 0.5, 0.3
#: Time from which the sensor has seen a kernel [ms].
SEEN = 0.3


def readings() -> tuple[Array, Array, Array, Array, NDArray[np.str_]]:
    """Return power over its limit, use of bandwidth and of arithmetic, time [ms] and kind of every kernel."""
    with (catalog.bundled() / "data" / "kernels" / "power.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    power = np.array([float(row["value"]) / float(row["power_limit_w"]) for row in rows])
    used = np.array([_utilisation(row) for row in rows])
    times = np.array([float(row["latency_ms"]) for row in rows])
    return power, used[:, 0], used[:, 1], times, np.array([row["op"] for row in rows])


def _utilisation(row: dict[str, str]) -> tuple[float, float]:
    """Return the shares of bandwidth and of dense rate that a kernel reached; both follow from shape and time."""
    shape = dict(part.split("=", 1) for part in row["shape"].split(";"))
    seconds = float(row["latency_ms"]) / 1e3
    if row["op"] == "generation_attention":
        moved = float(row["derived_tb_s"])
        element = 1.0 if row["dtype_kv"] == "fp8" else 2.0
        # A key and a value element each meet every query head of their group once: a multiply and an add.
        intensity = 2 * float(shape["heads"]) / float(shape["kv"]) / element
        return moved / BANDWIDTH, moved * intensity / RATES["bfloat16"]
    if row["op"] == "context_attention":
        width = 2 * float(shape["heads"]) + 2 * float(shape["kv"])
        moved = float(row["concurrency_or_batch"]) * float(row["isl"]) * width * float(shape["hd"]) * 2
        return moved / seconds / 1e12 / BANDWIDTH, float(row["derived_tflops"]) / RATES["bfloat16"]
    met = experts.distinct_experts(
        experts=float(shape["experts"]), top_k=float(shape["topk"]), tokens=float(row["concurrency_or_batch"])
    )
    weights = 3 * float(shape["hidden"]) * float(shape["inter"]) / float(shape["tp"]) * BYTES[row["dtype_weights"]]
    moved = weights * met / float(shape["ep"])
    return moved / seconds / 1e12 / BANDWIDTH, float(row["derived_tflops"]) / RATES[row["dtype_weights"]]


def fit() -> dict[str, dict[str, Any]]:
    """Return the fitted shares of the TDP with their range, as a spec file writes them."""
    power, memory, compute, times, kinds = readings()
    quiet = power[(memory < NOTHING) & (compute < NOTHING)]
    streams = (memory >= STREAMING) & (times >= SEEN)
    computes = (compute >= COMPUTING) & (times >= SEEN)
    return {
        "idle": _estimate(0.12, 0.07, 0.25, "no reading of an idle chip; the lowest of a busy one is 0.25"),
        "overhead": _read(
            np.quantile(quiet, 0.1),
            (quiet.min(), np.median(quiet)),
            f"lower edge of kernels below a tenth of bandwidth and rate, n {len(quiet)}",
        ),
        "memory": _levels(power, kinds, streams, f"kernels above {STREAMING} of the bandwidth"),
        "compute": _levels(power, kinds, computes, f"kernels above {COMPUTING} of the rate"),
        "collective": _estimate(0.33, 0.25, 0.5, "no reading separates links; 0.05 above what runs between kernels"),
        "rest": {
            **_estimate(
                0.61, 0.4, 1, "of the node's nameplate beyond its chips: 8.4 kW with full GPUs, (8.4 - 5.6) / 4.6"
            ),
            "source": "h100-node-power",
        },
    }


def _estimate(value: float, low: float, high: float, note: str) -> dict[str, Any]:
    ends = {"value": value, "low": low, "high": high}
    return {**ends, "source": "project-estimate", "kind": "estimate", "note": note}


def _read(value: Any, ends: tuple[Any, Any], note: str) -> dict[str, Any]:
    low, high = (round(float(end), 3) for end in ends)
    return {**_estimate(round(float(value), 3), low, high, f"readings of B200, {note}"), "source": SOURCE}


def _levels(power: Array, kinds: NDArray[np.str_], chosen: NDArray[np.bool_], what: str) -> dict[str, Any]:
    """Return the mean over kinds of the median of their kernels, so that no kind counts for its number of rows."""
    medians = {kind: float(np.median(power[chosen & (kinds == kind)])) for kind in np.unique(kinds[chosen])}
    each = ", ".join(f"{kind.replace('_', ' ')} {median:.2f}" for kind, median in medians.items())
    note = f"{what} and {SEEN} ms, n {int(chosen.sum())}: {each}"
    return _read(np.mean(list(medians.values())), tuple(np.quantile(power[chosen], (0.1, 0.9))), note)


def text() -> str:
    """Return the file's content."""
    return files.as_text("the power of GPUs", fit())


def write(folder: Path) -> Path:
    """Fit, write the file whole into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    with whole(path) as partial:
        partial.write_text(text(), encoding="utf-8")
    return path

"""Fitting the closed-loop serving model on public benchmarks: shared physics, a few numbers a chip and engine.

Efficiencies of kernels and collectives come from kernel tables.  What those cannot say (times a layer, a sequence and a
request; how experts run; how far large all-reduces overlap) is fitted here on TTFT and TPOT together, in the logarithm,
around stated centres, so that what the rows cannot tell stays where it is believed to be.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel import shapes
from perfmodel.machines.kernels import AllReduce, efficiency_of
from perfmodel.machines.kernels import KernelsEfficiency as Efficiency
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine
from perfmodel.specs.types import Scenario, Traffic

Array = NDArray[np.float64]
#: Scores of left-out rows, stored beside the calibrations.
LEFT_OUT = "left-out.json"

ROWS = "measured/serving.csv"
#: Spread that the errors are measured against: about the noise of TPOT and of TTFT.
TPOT_SPREAD, TTFT_SPREAD = 0.08, 0.2

#: Shared numbers: centre and how far the fit may move it (standard deviation of the logarithm).  Times are in seconds,
#: traffic in bytes.  The centre of ``quantise_time`` is a third of what FP8 adds to the fixed times of four kernels in
#: the tables; a time a layer of 34 us is four BF16 kernels and attention in the tables with a fifth on top.
SHARED: dict[str, tuple[float, float]] = {
    "all_reduce_overlap": (1.0, 0.25),
    "expert_memory": (0.75, 0.15),
    "dequantised_expert_compute": (0.6, 0.3),
    "expert_tile": (64.0, 0.5),
    "expert_evenness": (0.8, 0.15),
    "expert_time": (20e-6, 0.5),
    "quantise_time": (12e-6, 0.5),
    "sequence_time": (3e-6, 0.6),
    "sequence_traffic": (0.5e6, 0.6),
    "layer_time": (34e-6, 0.25),
    "request_time": (20e-3, 0.5),
    "group": (2.5, 0.3),
}
#: Numbers of a chip and engine: how far they may lie from the shared ones.
OWN: dict[str, float] = {"layer_time": 0.2, "request_time": 0.8, "sequence_time": 0.5}

#: Prompts that the fixed-length benchmarks sent: their TTFT jumps where the concurrency comes near it.
FIXED_PROMPTS = 1000.0


@dataclass(frozen=True)
class Harness:
    """How a benchmark ran: rounds (prompts over concurrency), spread of lengths, and whether prefill goes first."""

    rounds: float
    length_jitter: float
    prefill_first: bool = False


def harness(model: str, engine: str, isl: float, concurrency: float) -> Harness:
    """Return how a public set of benchmarks ran.

    InferenceX sends ten prompts a client with lengths even in 0.8 to 1 of the nominal ones; the TensorRT-LLM 1.0.0rc3
    and SGLang sets send about a thousand of fixed length; SGLang 0.5.1 runs prefill first and so in lock-step.
    """
    release = engine.casefold()
    if release.startswith("sglang 0.5.1") and not release.startswith("sglang 0.5.1"[:-1] + "10"):
        return Harness(1.0, 0.0, True)
    fixed = "1.0.0rc3" in release or release.startswith(("sglang 0.5.6", "vllm 0.12"))
    fixed = fixed or ("gpt-oss" in model.casefold() and isl == 4000)
    if fixed:
        return Harness(max(1.0, FIXED_PROMPTS / concurrency), 0.0)
    return Harness(10.0, 0.2)


def kv_of_row(model: str, engine: str, weights: str) -> str | None:
    """Return the cache precision that a public set is known to have used, where it is not the engine's rule."""
    if engine.casefold().startswith("trt") and weights in ("fp8", "fp4", "mxfp4"):
        # Published numbers of TensorRT-LLM are of NVIDIA's checkpoints, which declare an FP8 cache.
        return "fp8"
    if engine.casefold().startswith("vllm") and "70b" in model.casefold() and weights == "fp8":
        return "fp8"
    return None


def weights_of_row(model: str, dtype: str) -> str | None:
    """Return the weight precision of a row; empty is the checkpoint's, and FP4 of gpt-oss is MXFP4."""
    if "gpt-oss" in model.casefold():
        return "mxfp4"
    return dtype or None


def anomaly(row: Mapping[str, str]) -> str:
    """Return why a row of ``serving.csv`` is listed apart from the others, else an empty text."""
    model, hardware, engine = row["model"], row["hardware"], row["engine"]
    tp, isl, osl = float(row["tp"]), float(row["isl"]), float(row["osl"])
    if not row["concurrency_or_batch"]:
        return "no concurrency is given"
    clients = float(row["concurrency_or_batch"])
    if "gpt-oss" in model and engine.startswith("vllm") and clients >= 512:
        return "hidden limit on sequences"
    if model.startswith("nvidia/Llama-3.1-8B") and engine.startswith("vllm 0.12"):
        return "needs up to 94 % of peak FLOP/s, beyond its kernels: prefix hits or fewer clients than stated"
    short = isl == osl == 1024
    vllm = engine.startswith("vllm")
    if "gpt-oss" in model and hardware == "H100 SXM" and vllm and short and (tp, clients) in ((4.0, 32.0), (8.0, 64.0)):
        return "bad run: slower than the next higher concurrency"
    if "gpt-oss" in model and engine.startswith("trtllm") and isl == 4000 and clients >= 160:
        return "attention-DP is not in the columns"
    if "8B" in model and engine.startswith("trtllm") and hardware == "H100 SXM" and tp >= 4 and clients >= 64:
        return "front end saturates near 9,000 tok/s whatever the TP"
    if "8B" in model and engine.startswith("sglang") and clients >= 512:
        return "front end saturates near 15,000 tok/s"
    slow = "70B" in model and hardware == "H200 SXM" and engine == "trtllm" and short and tp <= 4
    if slow and row["metric"] == "ttft":
        return "TTFT twice that of its neighbours: another harness"
    return ""


# --- rows as arrays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Rows of one model, chip, engine and precision, as arrays on one axis.

    ``tpot_scored`` and ``ttft_scored`` leave out what is anomalous.  The fit also leaves out what does not fit in the
    KV cache, where admission decides.
    """

    model: str
    chip: str
    engine: str
    scenario: Scenario
    rows: tuple[str, ...]
    tp: Array
    isl: Array
    osl: Array
    clients: Array
    tpot: Array
    ttft: Array
    tpot_scored: NDArray[np.bool_]
    ttft_scored: NDArray[np.bool_]
    fits: NDArray[np.bool_]

    @property
    def family(self) -> str:
        """The architecture, whatever its checkpoint."""
        return self.scenario.model.name

    @property
    def pair(self) -> str:
        """Chip and engine."""
        return f"{self.chip}-{self.engine}"


def _tensor_parallel(row: Mapping[str, str]) -> float:
    """Return the real TP: some rows hold TP x EP in their column and the TP in their id."""
    if row["engine"].startswith("trtllm gpt-oss"):
        found = re.search(r"_tp(\d+)", row["row_id"])
        if found:
            return float(found[1])
    return float(row["tp"])


@functools.cache
def _measured() -> tuple[dict[str, str], ...]:
    with (catalog.bundled() / "data" / ROWS).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def groups(efficiency: Callable[[str, str], Efficiency]) -> list[Group]:
    """Return the rows by group; ``efficiency`` gives the kernel-level efficiencies of a chip and engine."""
    found: OrderedDict[tuple[str, ...], OrderedDict[str, dict[str, Any]]] = OrderedDict()
    for row in _measured():
        if not row["concurrency_or_batch"]:
            continue
        named = find_engine(row["engine"])
        assert named is not None, row["engine"]
        engine = named.name
        weights = weights_of_row(row["model"], row["dtype_weights"]) or ""
        run = harness(row["model"], row["engine"], float(row["isl"]), float(row["concurrency_or_batch"]))
        key = (row["model"], row["hardware"], engine, weights, str(run.length_jitter))
        entry = found.setdefault(key, OrderedDict()).setdefault(row["row_id"], {"row": row, "rounds": run.rounds})
        entry[row["metric"]] = float(row["value"]) * 1e-3
        entry[f"{row['metric']}_anomaly"] = bool(anomaly(row))
    return [_group(key, list(entries.values()), efficiency) for key, entries in found.items()]


def _group(key: tuple[str, ...], entries: list[dict[str, Any]], efficiency: Callable[[str, str], Efficiency]) -> Group:
    model, hardware, engine, weights, jitter = key
    rows = [entry["row"] for entry in entries]

    def column(name: str) -> Array:
        return np.array([float(row[name]) for row in rows])

    tp, isl, osl = np.array([_tensor_parallel(row) for row in rows]), column("isl"), column("osl")
    clients = column("concurrency_or_batch")
    options = Options(
        tp=float(tp[0]),
        pp=1.0,
        engine=engine,
        precision=weights or None,
        kv_precision=kv_of_row(model, engine, weights),
    )
    system = catalog.load_bare_system(hardware)
    scenario = resolve(model, hardware, options, efficiency=efficiency(system.chip, engine))
    rounds = np.array([entry["rounds"] for entry in entries])
    traffic = Traffic("benchmark", isl, osl, clients, rounds=rounds, length_jitter=float(jitter))
    scenario = replace(scenario, traffic=traffic, deployment=replace(scenario.deployment, tp=tp))
    with np.errstate(all="ignore"):
        held = evaluate(scenario, ()).max_concurrency

    def scored(metric: str) -> NDArray[np.bool_]:
        return np.array([metric in entry and not entry[f"{metric}_anomaly"] for entry in entries])

    return Group(
        model=model,
        chip=system.chip,
        engine=engine,
        scenario=scenario,
        rows=tuple(row["row_id"] for row in rows),
        tp=tp,
        isl=isl,
        osl=osl,
        clients=clients,
        tpot=np.array([entry.get("tpot", np.nan) for entry in entries]),
        ttft=np.array([entry.get("ttft", np.nan) for entry in entries]),
        tpot_scored=scored("tpot"),
        ttft_scored=scored("ttft"),
        fits=clients <= np.broadcast_to(held, clients.shape),
    )


# --- the fit -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Fitted numbers: the shared ones, and by ``chip-engine`` the factors of its own ones."""

    shared: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]]

    def of(self, pair: str) -> dict[str, float]:
        """Return the numbers of a chip and engine; one that was never measured takes its engine's mean, else 1."""
        factors = self.own.get(pair)
        if factors is None:
            kin = [own for name, own in self.own.items() if name.partition("-")[2] == pair.partition("-")[2]]
            # What a front end takes depends on the harness, so only the times of the chip's own work are passed on.
            factors = {
                name: float(np.exp(np.mean([np.log(own[name]) for own in kin])))
                if kin and name == "layer_time"
                else 1.0
                for name in OWN
            }
        return {name: value * factors.get(name, 1.0) for name, value in self.shared.items()}


def with_coefficients(efficiency: Efficiency, numbers: Mapping[str, float]) -> Efficiency:
    """Return kernel-level efficiencies with the fitted numbers in place."""
    measured: AllReduce | None = efficiency.all_reduce
    if measured is not None:
        measured = replace(measured, overlap=numbers["all_reduce_overlap"])
    return replace(
        efficiency,
        all_reduce=measured,
        expert_memory=min(0.95, numbers["expert_memory"]),
        dequantised_expert_compute=min(1.0, numbers["dequantised_expert_compute"]),
        expert_tile=numbers["expert_tile"],
        expert_evenness=min(1.0, numbers["expert_evenness"]),
        expert_time=numbers["expert_time"],
        quantise_time=numbers["quantise_time"],
        sequence_time=numbers["sequence_time"],
        sequence_traffic=numbers["sequence_traffic"],
        layer_time=numbers["layer_time"],
        request_time=numbers["request_time"],
        prefill_group=numbers["group"],
    )


def ratios(group: Group, numbers: Mapping[str, float]) -> tuple[Array, Array]:
    """Return predicted over measured TPOT and TTFT of a group."""
    efficiency = efficiency_of(group.scenario.system)
    system = replace(group.scenario.system, efficiency=with_coefficients(efficiency, numbers))
    with np.errstate(all="ignore"):
        metrics = evaluate(replace(group.scenario, system=system), ("tpot_s", "ttft_s")).metrics
        return metrics["tpot_s"] / group.tpot, metrics["ttft_s"] / group.ttft


def _robust(squares: Array, priors: int) -> Array:
    """Return SciPy's loss: squares for the centres, soft beyond one spread for the rows."""
    soft = np.arange(squares.size) >= priors
    root = np.sqrt(1 + squares)
    return np.array(
        [
            np.where(soft, 2 * (root - 1), squares),
            np.where(soft, 1 / root, 1.0),
            np.where(soft, -0.5 / root**3, 0.0),
        ]
    )


def fit(used: Sequence[tuple[Group, NDArray[np.bool_]]]) -> Coefficients:
    """Fit the coefficients on the chosen rows of groups.

    Parameters
    ----------
    used : sequence of (Group, mask)

    Returns
    -------
    Coefficients
    """
    pairs = sorted({group.pair for group, mask in used if (mask & group.fits & group.tpot_scored).any()})
    names = [*SHARED, *(f"{pair}:{name}" for pair in pairs for name in OWN)]
    centres = np.log([*(centre for centre, _ in SHARED.values()), *(1.0 for _ in pairs for _ in OWN)])
    spreads = np.array([*(spread for _, spread in SHARED.values()), *(OWN[name] for _ in pairs for name in OWN)])

    def coefficients(x: Array) -> Coefficients:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        own = {pair: {name: values[f"{pair}:{name}"] for name in OWN} for pair in pairs}
        return Coefficients({name: values[name] for name in SHARED}, own)

    def residuals(x: Array) -> Array:
        now = coefficients(x)
        parts = [(x - centres) / spreads]
        for group, mask in used:
            tpot, ttft = ratios(group, now.of(group.pair))
            parts.append(np.log(tpot[mask & group.fits & group.tpot_scored]) / TPOT_SPREAD)
            parts.append(np.log(ttft[mask & group.fits & group.ttft_scored]) / TTFT_SPREAD)
        return np.concatenate(parts)

    def loss(squares: Any) -> Any:
        return _robust(squares, len(centres))

    steps = np.full(len(centres), 1e-3)
    found = least_squares(residuals, centres, loss=cast(Any, loss), max_nfev=30, diff_step=steps)
    return coefficients(found.x)


def fit_all(found: Sequence[Group]) -> Coefficients:
    """Fit on every row that is no anomaly."""
    return fit([(group, np.ones(group.tp.size, dtype=bool)) for group in found])


# --- leaving out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Signed relative errors of rows that the fit never saw."""

    what: str
    tpot: Array
    ttft: Array
    moe: NDArray[np.bool_]


def _band(clients: float) -> str:
    edges = (0, 5, 11, 24, 48, 100, 200)
    return next(
        (f"{low + 1} to {high} clients" for low, high in itertools.pairwise(edges) if clients <= high),
        "201 clients and more",
    )


SPLITS: dict[str, Callable[[Group], Sequence[str]]] = {
    "model": lambda group: [group.family] * group.tp.size,
    "TP": lambda group: [f"TP {tp:g}" for tp in group.tp],
    "engine": lambda group: [group.engine] * group.tp.size,
    "concurrency": lambda group: [_band(clients) for clients in group.clients],
}


def _by_number(label: str) -> list[str | int]:
    return [int(word) if word.isdigit() else word for word in label.split()]


def cross_validate(found: Sequence[Group], split: str) -> list[LeftOut]:
    """Leave out each model, TP, engine or band of concurrency in turn, fit on the rest, and predict it."""
    labels = [np.array(SPLITS[split](group)) for group in found]
    results = []
    for what in sorted({label for column in labels for label in column.tolist()}, key=_by_number):
        coefficients = fit([(group, column != what) for group, column in zip(found, labels, strict=True)])
        tpot, ttft, moe = [], [], []
        for group, column in zip(found, labels, strict=True):
            mask = column == what
            if not mask.any():
                continue
            tpot_ratio, ttft_ratio = ratios(group, coefficients.of(group.pair))
            tpot.append(tpot_ratio[mask & group.tpot_scored] - 1)
            ttft.append(ttft_ratio[mask & group.ttft_scored] - 1)
            experts = any(run.moe is not None for run in group.scenario.model.layers)
            moe.append(np.full(tpot[-1].size, experts))
        results.append(LeftOut(what, np.concatenate(tpot), np.concatenate(ttft), np.concatenate(moe)))
    return results


def spread(errors: Iterable[Array]) -> float:
    """Return the half-width that holds 80 % of signed relative errors, as the logarithm of a factor."""
    return float(np.quantile(np.abs(np.log1p(np.concatenate(list(errors)))), 0.8))


def fitted_keys() -> frozenset[tuple[str, str]]:
    """Return row id and metric of every row that the fit rests on."""
    return frozenset((row["row_id"], row["metric"]) for row in _measured() if not anomaly(row))


def stored_scores() -> list[shapes.LeftOut]:
    """Return the scores of left-out rows as ``calibrate`` stored them."""
    text = (catalog.bundled() / catalog.CALIBRATION / LEFT_OUT).read_text(encoding="utf-8")
    return cast(list[shapes.LeftOut], json.loads(text))

"""Fitting efficiencies on public measurements; writes ``hardware_specs/calibration/``.

Everything is derived from the files in ``data/`` and is the same on every run.  Each number carries how many points
it was fitted on and how far those points lie from the fit.
"""

from __future__ import annotations

import functools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq

from perfmodel.evidence import dataflow_fit, power_fit, serving_fit
from perfmodel.evidence.kernel_fit import (
    KERNELS,
    KIN_OF_LINKS,
    SYSTEM_OF_CHIP,
    Array,
    Fitted,
    all_reduce_block,
    gigabytes,
    kernel_block,
)
from perfmodel.evidence.validate import public
from perfmodel.machines import dataflow, kernel_step, kernels, sram_pipeline
from perfmodel.machines.kernels_efficiency import KernelsEfficiency as Efficiency
from perfmodel.numerics import NAN
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog, files
from perfmodel.specs.kinds import Kind
from perfmodel.specs.paths import put
from perfmodel.specs.weights import CLASSES
from perfmodel.writing import clean, whole

# --- kernels -----------------------------------------------------------------------------------------------------


# --- serving -----------------------------------------------------------------------------------------------------

#: How a time or a size of a serving file is written: what one unit is, and its name.
_UNITS = {
    "layer_time": (1e-6, "us"),
    "latent_time": (1e-6, "us"),
    "indexer_time": (1e-6, "us"),
    "recurrent_time": (1e-6, "us"),
    "expert_time": (1e-6, "us"),
    "quantise_time": (1e-6, "us"),
    "sequence_time": (1e-6, "us"),
    "step_time": (1e-6, "us"),
    "sequence_traffic": (1e6, "MB"),
    "request_time": (1e-3, "ms"),
}


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
        fitted, own = serving_fit.NUMBERS[name], serving.rows.get((name, pair), 0)
        every = sum(count for (of, _), count in serving.rows.items() if of == name)
        parent = _quantity_text(name, fitted.centre * math.exp(coefficients.parent(name, levels)))
        moved = [
            f"x{math.exp(factor):.2f} of {member}"
            for level, member in levels.items()
            if abs(factor := coefficients.factors.get((name, level, member), 0.0)) > 0.005
        ]
        entry: dict[str, Any] = {"value": _quantity_text(name, value), "source": KERNELS}
        entry["kind"] = "measured" if own else "estimate"
        if not own:
            wide = math.exp(
                1.28 * math.hypot(fitted.engine, fitted.generation, fitted.pair, 0.2 if every else fitted.kind)
            )
            least = 1.0 if name in ("all_reduce_overlap", "expert_tile", "group") else 0.0
            entry.update(low=_quantity_text(name, max(least, value / wide)))
            top = min(1.0, fitted.most) if _is_share(name) else math.inf
            entry.update(high=_quantity_text(name, min(top, value * wide)))
        entry["note"] = f"{own} of {every} values bear on it here; parent {parent}, {', '.join(moved) or 'not moved'}"
        _put(made, {"group": "prefill_group"}.get(name, name), entry)
    sides = serving.known if any(of == pair for _, of in serving.rows) else serving.elsewhere
    where = "models" if sides is serving.known else "chips and engines"
    for metric in ("tpot", "ttft"):
        note = f"half-width that holds 80 % of rows of left-out {where} of the class"
        widths = {kind: (sides[metric, kind], note) for kind in CLASSES}
        widths |= {
            kernel_step.spread_key(model): (width, "the same with its TP or its number of clients left out")
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
            gigabytes(bandwidth),
            "all ports, one direction; which peak the knees refer to is not stated",
            "derived",
            "ship-report",
        ).quantity(),
        "link_bandwidth": Fitted(gigabytes(bandwidth), "of the chip of the curve", "derived", "ship-paper").quantity(),
        "link_latency": Fitted(
            f"{float(link.hop_latency) * 1e9:g} ns", "of the chip of the curve", "paper", "ship-paper"
        ).quantity(),
    }


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
        tables = kernel_block(chip)
        for engine in ("vllm", "trtllm", "sglang"):
            measured: dict[str, Any] = dict(tables)
            all_reduce = all_reduce_block(KIN_OF_LINKS.get(chip, chip), engine)
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
    fitted, coefficients = serving_fitted()
    models, groups = cross_validation("model"), cross_validation("group")
    return Serving(
        coefficients,
        serving_fit.rows_behind(fitted, coefficients),
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

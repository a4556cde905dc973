"""Fitting the closed-loop serving model on public benchmarks: few numbers, pooled partially by level.

Efficiencies of kernels and collectives come from kernel tables.  What those cannot say (times a layer, a sequence and a
request; how experts run; how far large all-reduces overlap) is fitted here on TTFT and TPOT together, in the logarithm.
A number is a stated centre times a factor a level, from the kind of machine down to the release of an engine on a chip.
Each factor is drawn to 1, that is, to the parent, the stronger the fewer rows speak of it; what was never measured has
the parent's number.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from perfmodel.evidence.validate import public
from perfmodel.evidence.validate.reading import Unanswered
from perfmodel.evidence.validate.rows import Row, anomaly, ask, forget
from perfmodel.machines.kernels_efficiency import KernelsEfficiency as Efficiency
from perfmodel.machines.kernels_efficiency import efficiency_of
from perfmodel.prediction import evaluate
from perfmodel.specs.naming import find_engine
from perfmodel.specs.types import Scenario, Traffic
from perfmodel.specs.weights import model_class

Array = NDArray[np.float64]
#: Spread that the errors are measured against: about the noise of TPOT and of TTFT.
TPOT_SPREAD, TTFT_SPREAD = 0.08, 0.2
#: Levels, from the parent down, and what tells their members apart.
LEVELS = ("engine", "generation", "pair", "release")
#: Generation of the chips that serving was measured on; kernels and launches of one resemble each other.
GENERATION = {"h100": "hopper", "h200": "hopper", "b200": "blackwell", "gb200": "blackwell", "a100": "ampere"}


@dataclass(frozen=True)
class Fitted:
    """A fitted number: its centre, how far the kind may lie from it, and each level from its parent (sd of the log)."""

    centre: float
    kind: float
    engine: float = 0.0
    generation: float = 0.0
    pair: float = 0.0
    release: float = 0.0
    most: float = np.inf


#: Times are in seconds, traffic in bytes.  The centre of ``quantise_time`` is a third of what FP8 adds to the fixed
#: times of four kernels in the tables; a time a layer of 34 us is four BF16 kernels and attention in the tables with a
#: fifth on top.
NUMBERS: dict[str, Fitted] = {
    "all_reduce_overlap": Fitted(1.0, 0.25),
    "expert_memory": Fitted(0.9, 0.03, most=0.95),
    **{
        f"expert_compute.{kernels}": Fitted(0.6, 0.3, engine=0.3, generation=0.3)
        for kernels in ("bf16", "fp8", "fp4", "mxfp4", "dequantised")
    },
    "expert_tile": Fitted(64.0, 0.5),
    "expert_evenness": Fitted(0.8, 0.1, most=1.0),
    **{
        f"expert_time.{kernels}": Fitted(20e-6, 0.5, engine=0.3, pair=0.3)
        for kernels in ("bf16", "fp8", "fp4", "mxfp4", "dequantised")
    },
    "latent_time": Fitted(10e-6, 0.7, engine=0.4),
    "indexer_time": Fitted(60e-6, 0.5, engine=0.3),
    "recurrent_time": Fitted(20e-6, 0.5, engine=0.3),
    "recurrent_compute": Fitted(0.01, 1.0, most=1.0),
    "quantise_time": Fitted(12e-6, 0.15),
    "sequence_time": Fitted(3e-6, 0.6, engine=0.3, pair=0.3),
    "sequence_traffic": Fitted(0.5e6, 0.6),
    "step_time": Fitted(0.3e-3, 0.7, engine=0.4),
    "layer_time": Fitted(34e-6, 0.25, pair=0.2),
    "request_time": Fitted(20e-3, 0.5, engine=0.6, generation=0.3, pair=0.3),
    "group": Fitted(2.5, 0.3),
}
#: Those that dense models say nothing of.
OF_CLASSES = tuple(
    name for name in NUMBERS if name.split("_")[0] in ("expert", "dequantised", "latent", "indexer", "recurrent")
)
#: Where the numbers of a name lie in the efficiencies.
_FIELDS = {"group": "prefill_group"}

# --- rows as arrays ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Rows of one model, chip, engine, release and precision, as arrays on one axis.

    ``tpot_scored`` and ``ttft_scored`` leave out what is anomalous.  The fit also leaves out what does not fit in the
    KV cache, where admission decides.
    """

    model: str
    chip: str
    engine: str
    release: str
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

    @property
    def kind(self) -> str:
        """Class of the model."""
        return model_class(self.scenario.model)

    @property
    def generation(self) -> str:
        """Generation of the chip."""
        return GENERATION[self.chip]

    def levels(self) -> dict[str, str]:
        """Return the member of each level that this group is of."""
        return {
            "engine": self.engine,
            "generation": f"{self.engine} {self.generation}",
            "pair": self.pair,
            "release": f"{self.pair} {self.release}",
        }


def groups(efficiency: Callable[[str, str], Efficiency]) -> list[Group]:
    """Return the rows by group; ``efficiency`` gives the kernel-level efficiencies of a chip and engine."""
    # What stands for a name is that of the present folder, not of the last question.
    forget()
    runs: OrderedDict[str, dict[str, Any]] = OrderedDict()
    for given in public.fitted_rows():
        if not public.is_plain(given) or not given["concurrency_or_batch"]:
            continue
        entry = runs.setdefault(given["row_id"], {"row": given})
        entry[given["metric"]] = float(given["value"]) * 1e-3
        entry[f"{given['metric']}_anomaly"] = bool(anomaly(given))
    grouped: OrderedDict[tuple[str, ...], list[dict[str, Any]]] = OrderedDict()
    for entry in runs.values():
        given = entry["row"]
        try:
            asked = ask(_row_of(given))
            scenario, _ = next(asked.layouts)
        except (Unanswered, StopIteration):
            continue
        entry["scenario"] = scenario
        plan, load = scenario.deployment, scenario.traffic
        key = (
            *(scenario.model.name, scenario.system.name, given["engine"], plan.precision, plan.kv_precision),
            *(str(load.length_jitter), str(load.prefill_first)),
        )
        grouped.setdefault(key, []).append(entry)
    return [_group(entries, efficiency) for entries in grouped.values()]


def _row_of(given: Mapping[str, str]) -> Row:
    return Row(dict(given), "", float(given["value"]), given["metric"], given["model"], given["hardware"], "")


def _group(entries: list[dict[str, Any]], efficiency: Callable[[str, str], Efficiency]) -> Group:
    first: Scenario = entries[0]["scenario"]
    plans = [entry["scenario"].deployment for entry in entries]
    loads = [entry["scenario"].traffic for entry in entries]

    def column(parts: Sequence[Any], name: str) -> Array:
        return np.array([float(getattr(part, name)) for part in parts])

    layout: dict[str, Any] = {name: column(plans, name) for name in ("tp", "pp", "ep", "dp", "attention_dp")}
    load: dict[str, Any] = {
        name: column(loads, name) for name in ("prompt", "output", "concurrency", "rounds", "held_steps")
    }
    traffic = Traffic(
        "benchmark",
        **load,
        length_jitter=loads[0].length_jitter,
        prefill_first=loads[0].prefill_first,
    )
    chip, engine = first.system.chip, first.deployment.engine
    named = find_engine(entries[0]["row"]["engine"])
    system = replace(first.system, efficiency=efficiency(chip, engine).at_rates(first.system.rates))
    scenario = replace(first, system=system, traffic=traffic, deployment=replace(first.deployment, **layout))
    with np.errstate(all="ignore"):
        cap = evaluate(scenario, ()).max_concurrency
    # Where the budget of the engine leaves no room there is no time to compare with.
    room = np.broadcast_to(cap >= 1, (len(entries),))

    def scored(metric: str) -> NDArray[np.bool_]:
        found = np.array([metric in entry and not entry[f"{metric}_anomaly"] for entry in entries], dtype=bool)
        return cast("NDArray[np.bool_]", np.logical_and(found, room))

    clients = column(loads, "concurrency")
    return Group(
        model=entries[0]["row"]["model"],
        chip=chip,
        engine=engine,
        release=named.release if named is not None else "",
        scenario=scenario,
        rows=tuple(entry["row"]["row_id"] for entry in entries),
        tp=layout["tp"],
        isl=column(loads, "prompt"),
        osl=column(loads, "output"),
        clients=clients,
        tpot=np.array([entry.get("tpot", np.nan) for entry in entries]),
        ttft=np.array([entry.get("ttft", np.nan) for entry in entries]),
        tpot_scored=scored("tpot"),
        ttft_scored=scored("ttft"),
        fits=clients <= np.broadcast_to(cap, clients.shape),
    )


# --- the numbers of a group --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Fitted factors on logarithms by number and member: ``("layer_time", "engine", "vllm")``; kind is ``""``."""

    factors: Mapping[tuple[str, str, str], float]

    def of(self, levels: Mapping[str, str]) -> dict[str, float]:
        """Return the numbers of a chip, engine and release; a member that was never measured takes its parent's."""
        return {
            name: min(number.most, float(number.centre * np.exp(self.parent(name, levels) + self.moved(name, levels))))
            for name, number in NUMBERS.items()
        }

    def parent(self, name: str, levels: Mapping[str, str]) -> float:
        """Return the logarithm of what all members share."""
        return self.factors.get((name, "kind", ""), 0.0)

    def moved(self, name: str, levels: Mapping[str, str]) -> float:
        """Return by how much, on the logarithm, the members of the levels differ from the kind."""
        return sum(self.factors.get((name, level, member), 0.0) for level, member in levels.items())


def with_coefficients(efficiency: Efficiency, numbers: Mapping[str, Any]) -> Efficiency:
    """Return kernel-level efficiencies with the fitted numbers in place; they may be arrays."""
    flat: dict[str, Any] = {}
    for name, value in numbers.items():
        if name == "all_reduce_overlap":
            if efficiency.all_reduce is not None:
                flat["all_reduce"] = replace(efficiency.all_reduce, overlap=value)
            continue
        part, _, key = name.partition(".")
        if key:
            flat.setdefault(part, dict(getattr(efficiency, part)))[key] = value
        else:
            flat[_FIELDS.get(name, name)] = value
    return replace(efficiency, **flat)


def _logs(group: Group, numbers: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return logarithms of predicted over measured TPOT and TTFT of a group."""
    efficiency = efficiency_of(group.scenario.system)
    system = replace(group.scenario.system, efficiency=with_coefficients(efficiency, numbers))
    with np.errstate(all="ignore"):
        metrics = evaluate(replace(group.scenario, system=system), ("tpot_s", "ttft_s")).metrics
        return np.log(metrics["tpot_s"] / group.tpot), np.log(metrics["ttft_s"] / group.ttft)


def ratios(group: Group, numbers: Mapping[str, float]) -> tuple[Array, Array]:
    """Return predicted over measured TPOT and TTFT of a group."""
    tpot, ttft = _logs(group, numbers)
    return np.exp(tpot), np.exp(ttft)


_STEP = 1e-3


def _sensitivities(group: Group, logs: Array) -> tuple[Array, Array, Array, Array]:
    """Return the logarithms of both ratios and their derivatives by the logarithm of every number, in one evaluation.

    The derivatives have the shape (numbers, rows).
    """
    steps = np.vstack([np.zeros(logs.size), _STEP * np.eye(logs.size)])
    tried = np.exp(logs + steps)[:, :, None]
    numbers = {
        name: np.minimum(number.most, number.centre * tried[:, at]) for at, (name, number) in enumerate(NUMBERS.items())
    }
    both = []
    for found in _logs(group, numbers):
        found = np.broadcast_to(found, (logs.size + 1, group.clients.size))
        both += [found[0], (found[1:] - found[0]) / _STEP]
    return both[0], both[1], both[2], both[3]


# --- the fit -----------------------------------------------------------------------------------------------------


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


Used = Sequence[tuple[Group, NDArray[np.bool_]]]
Key = tuple[str, str, str]


def fit(used: Used, start: Coefficients | None = None) -> Coefficients:
    """Fit the factors on the chosen rows of groups: on dense models first, which the others then do not move.

    Parameters
    ----------
    used : sequence of (Group, mask)
    start : Coefficients, optional
        Where to begin.

    Returns
    -------
    Coefficients
    """
    chosen = [
        (group, mask & group.fits & group.tpot_scored, mask & group.fits & group.ttft_scored) for group, mask in used
    ]
    begin = {} if start is None else start.factors
    dense = [entry for entry in chosen if entry[0].kind == "dense"]
    others = [entry for entry in chosen if entry[0].kind != "dense"]
    first = _factors(dense, [name for name in NUMBERS if name not in OF_CLASSES], {}, begin)
    return Coefficients({**first, **_factors(others, list(NUMBERS), first, begin)})


def _factors(
    chosen: Sequence[tuple[Group, NDArray[np.bool_], NDArray[np.bool_]]],
    free: Sequence[str],
    known: Mapping[Key, float],
    begin: Mapping[Key, float],
) -> dict[Key, float]:
    """Fit the factors of some numbers that are not known yet."""
    chosen = [entry for entry in chosen if entry[1].any() or entry[2].any()]
    keys: dict[Key, float] = {(name, "kind", ""): NUMBERS[name].kind for name in free}
    for group, _, _ in chosen:
        for level, member in group.levels().items():
            keys |= {(name, level, member): wide for name in free if (wide := getattr(NUMBERS[name], level)) > 0}
    keys = {key: wide for key, wide in keys.items() if key not in known}
    at, spreads = {key: place for place, key in enumerate(keys)}, np.array(list(keys.values()))
    # Which factors make up each number of each group, and what the known ones add.
    parts = []
    for group, _, _ in chosen:
        part, fixed = np.zeros((len(NUMBERS), len(keys))), np.zeros(len(NUMBERS))
        for row, name in enumerate(NUMBERS):
            for key in ((name, "kind", ""), *((name, level, member) for level, member in group.levels().items())):
                if key in at:
                    part[row, at[key]] = 1.0
                fixed[row] += known.get(key, 0.0)
        parts.append((part, fixed))
    seen: dict[bytes, tuple[Array, Array]] = {}

    def both(x: Array) -> tuple[Array, Array]:
        if x.tobytes() not in seen:
            off, turned = [x / spreads], [np.diag(1 / spreads)]
            for (group, tpot_used, ttft_used), (part, fixed) in zip(chosen, parts, strict=True):
                tpot, by_tpot, ttft, by_ttft = _sensitivities(group, fixed + part @ x)
                for value, slope, mask, width in (
                    (tpot, by_tpot, tpot_used, TPOT_SPREAD),
                    (ttft, by_ttft, ttft_used, TTFT_SPREAD),
                ):
                    off.append(value[mask] / width)
                    turned.append(slope[:, mask].T @ part / width)
            seen.clear()
            seen[x.tobytes()] = np.concatenate(off), np.concatenate(turned)
        return seen[x.tobytes()]

    def residuals(x: Array) -> Array:
        return both(x)[0]

    def slopes(x: Array) -> Array:
        return both(x)[1]

    solution = least_squares(
        residuals,
        np.array([begin.get(key, 0.0) for key in keys]),
        jac=cast(Any, slopes),
        loss=cast(Any, lambda squares: _robust(squares, len(keys))),
        # From a fit on all rows it is a few steps to one on most of them.
        max_nfev=10 if begin else 25,
        xtol=1e-4,
        ftol=1e-4,
    )
    return dict(zip(keys, solution.x.tolist(), strict=True))


def fit_all(found: Sequence[Group]) -> Coefficients:
    """Fit on every row that is no anomaly."""
    return fit([(group, np.ones(group.tp.size, dtype=bool)) for group in found])


def rows_behind(found: Sequence[Group], coefficients: Coefficients) -> dict[tuple[str, str], int]:
    """Return how many values move with each number of each chip and engine."""
    counted: dict[tuple[str, str], int] = {}
    for group in found:
        levels = group.levels()
        logs = np.array([coefficients.parent(name, levels) + coefficients.moved(name, levels) for name in NUMBERS])
        _, by_tpot, _, by_ttft = _sensitivities(group, logs)
        for slopes, scored in ((by_tpot, group.tpot_scored & group.fits), (by_ttft, group.ttft_scored & group.fits)):
            for name, slope in zip(NUMBERS, slopes, strict=True):
                if some := int((np.abs(slope[scored]) > 1e-4).sum()):
                    counted[name, group.pair] = counted.get((name, group.pair), 0) + some
    return counted


# --- leaving out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeftOut:
    """Rows that the fit never saw: signed relative errors, with the class and the chip's generation of each."""

    what: str
    tpot: Array
    ttft: Array
    tpot_of: tuple[Group, ...]
    ttft_of: tuple[Group, ...]


def _band(clients: float) -> str:
    edges = (0, 5, 11, 24, 48, 100, 200)
    return next(
        (f"{low + 1} to {high} clients" for low, high in itertools.pairwise(edges) if clients <= high),
        "201 clients and more",
    )


SPLITS: dict[str, Callable[[Group], Sequence[str]]] = {
    "model": lambda group: [group.family] * group.tp.size,
    "group": lambda group: [f"{group.family} {group.pair}"] * group.tp.size,
    "engine": lambda group: [group.engine] * group.tp.size,
    "chip": lambda group: [group.chip] * group.tp.size,
    "TP": lambda group: [f"TP {tp:g}" for tp in group.tp],
    "concurrency": lambda group: [_band(clients) for clients in group.clients],
}


def _by_number(label: str) -> list[tuple[int, int | str]]:
    return [(0, int(word)) if word.isdigit() else (1, word) for word in label.split()]


def cross_validate(groups: Sequence[Group], split: str, start: Coefficients | None = None) -> list[LeftOut]:
    """Leave out each member of a split in turn, fit on the rest, and predict it."""
    labels = [np.array(SPLITS[split](group)) for group in groups]
    results = []
    for what in sorted({label for column in labels for label in column.tolist()}, key=_by_number):
        coefficients = fit([(group, column != what) for group, column in zip(groups, labels, strict=True)], start)
        errors: dict[str, list[Array]] = {"tpot": [], "ttft": []}
        of: dict[str, list[Group]] = {"tpot": [], "ttft": []}
        for group, column in zip(groups, labels, strict=True):
            mask = column == what
            if not mask.any():
                continue
            for metric, ratio, scored in zip(
                ("tpot", "ttft"),
                ratios(group, coefficients.of(group.levels())),
                (group.tpot_scored, group.ttft_scored),
                strict=True,
            ):
                errors[metric].append(ratio[mask & scored] - 1)
                of[metric] += [group] * int((mask & scored).sum())
        results.append(
            LeftOut(
                what,
                np.concatenate(errors["tpot"]),
                np.concatenate(errors["ttft"]),
                tuple(of["tpot"]),
                tuple(of["ttft"]),
            )
        )
    return results


def spread(errors: Iterable[Array]) -> float:
    """Return the half-width that holds 80 % of signed relative errors, as the logarithm of a factor."""
    return float(np.quantile(np.abs(np.log1p(np.concatenate(list(errors)))), 0.8))

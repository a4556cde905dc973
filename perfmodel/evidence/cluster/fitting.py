"""Fitting the numbers of a chip and engine to a cluster's own runs, on top of the shipped ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.errors import UserError
from perfmodel.evidence.cluster.choosing import Points, after, chosen, joined
from perfmodel.evidence.cluster.observed import Batch, batches, movable, moved, sensitivities, time_slopes
from perfmodel.evidence.cluster.pooling import EIGHTY, Posterior, noise_of, pooled
from perfmodel.evidence.validate.rows import Row
from perfmodel.prediction import NEAR_CAP
from perfmodel.serving.fit import fit
from perfmodel.specs import catalog
from perfmodel.specs.naming import EngineName, find_engine
from perfmodel.specs.paths import get, range_at
from perfmodel.specs.types import Scenario, Traffic

Array = NDArray[np.float64]
#: Clients of the loads over which bands are averaged, and which are offered to be measured.
CLIENTS = (1.0, 4.0, 16.0, 64.0, 256.0)
#: Parts that are left out in turn at the most; up to so many runs each is left out alone.
PARTS = 30
#: Standard deviations from which a value lies apart from the others.
APART = 3.0
#: Runs that are named as worth measuring next.
NEXT = 3
#: What of a slope, and of a logarithm, counts as none.
_NONE, _UNMOVED = 1e-5, 0.02


@dataclass(frozen=True)
class Errors:
    """Median absolute errors of a metric: by the shipped numbers, by the fitted ones, and of runs left out of a fit.

    Attributes
    ----------
    metric : str
    values : int
    before, fitted, left_out : float
        Relative; NaN of ``left_out`` where there is one run.
    left_out_in_band : float
        Share of the values in the 80 % band of the fit that did not see them.
    """

    metric: str
    values: int
    before: float
    fitted: float
    left_out: float
    left_out_in_band: float


@dataclass(frozen=True)
class Moved:
    """A number before and after: values in ``unit``, spreads as standard deviations of the logarithm."""

    path: str
    unit: str
    prior: float
    prior_spread: float
    posterior: float
    posterior_spread: float


@dataclass(frozen=True)
class Next:
    """A run worth measuring, and the half-widths of the bands (logarithms) once it is, with those before it."""

    model: str
    tp: float
    prompt: float
    output: float
    clients: float
    tpot_band: float
    ttft_band: float


@dataclass(frozen=True)
class Value:
    """One measured value beside what was predicted.

    Attributes
    ----------
    row : Row
    before, left_out : float
        Signed relative errors by the shipped numbers, and by a fit that did not see the run.
    width : float
        Standard deviation of the logarithm by that fit.
    apart : bool
        Whether it lies so far from the others that it hardly counts.
    """

    row: Row
    before: float
    left_out: float
    width: float
    apart: bool


@dataclass(frozen=True)
class Cluster:
    """What the runs of a chip and engine say of its numbers.

    Attributes
    ----------
    name : str
        Of the calibration: ``CHIP-ENGINE[-RELEASE]``.
    system : str
    base : str
        The shipped calibration that it stands on.
    release, newest : str
        Of the engine that was measured, and the newest whose memory is known here; empty where none is named.
    dates : tuple of str
        First and last date of the runs, where they have some.
    runs : int
    numbers : tuple of Moved
        Those that moved, the farthest first.
    errors : tuple of Errors
    bands : dict of str to tuple of float
        Half-widths of TPOT and TTFT as logarithms by model: before, and after.
    next : tuple of Next
    values : tuple of Value
    efficiency : Efficiency
        As fitted.
    """

    name: str
    system: str
    base: str
    release: str
    newest: str
    dates: tuple[str, ...]
    runs: int
    numbers: tuple[Moved, ...]
    errors: tuple[Errors, ...]
    bands: Mapping[str, tuple[tuple[float, float], tuple[float, float]]]
    next: tuple[Next, ...]
    values: tuple[Value, ...]
    efficiency: Any


def run_of(row: Row) -> tuple[str, ...]:
    """Return what tells the run of a row from others: all its cells but metric, value, unit and statistic."""
    said = {key: cell for key, cell in row.given.items() if key not in ("metric", "value", "unit", "stat", "notes")}
    return tuple(f"{key}={cell}" for key, cell in sorted(said.items()))


def key_of(row: Row, chip: str) -> tuple[str, EngineName]:
    """Return chip, and engine with release, that the numbers of a row are of."""
    named = find_engine(row.given.get("engine", ""))
    release = named.release if named is not None and named.name == row.engine else ""
    return chip, EngineName(row.engine, release)


def clusters(given: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[list[Cluster], list[Row]]:
    """Fit the numbers of every chip and engine of some rows.

    Parameters
    ----------
    given : iterable of (str, dict)
        Rows, each with the name of its file.

    Returns
    -------
    tuple of list of Cluster and list of Row
        The rows are those that say nothing, each with its ``reason``.

    Raises
    ------
    UserError
        Where no row says anything.
    """
    rows, found = batches(given)
    silent = [row for row in rows if row.reason]
    groups: dict[tuple[str, EngineName], list[Batch]] = defaultdict(list)
    for batch in found:
        keys = [key_of(row, batch.scenario.system.chip) for row in batch.rows]
        for key in dict.fromkeys(keys):
            groups[key].append(batch.only(np.array([one == key for one in keys])))
    if not groups:
        why = f": {silent[0].reason}" if silent else ""
        raise UserError(f"--data: no row says anything of the times of a machine{why}; give ttft or tpot of runs")
    return [_cluster(chip, engine, members) for (chip, engine), members in sorted(groups.items(), key=str)], silent


def _cluster(chip: str, engine: EngineName, members: Sequence[Batch]) -> Cluster:
    scenario = members[0].scenario
    efficiency, base, held = catalog.load_shipped(scenario.system.name, str(engine))
    every = [path for path in movable(efficiency) if path not in held]
    live = np.zeros(len(every), dtype=bool)
    for batch in members:
        live |= np.abs(sensitivities(batch, every, np.zeros(len(every)), efficiency)[1]).max(axis=0) > _NONE
    paths = [path for path, moves in zip(every, live, strict=True) if moves]
    posterior = pooled(members, efficiency, paths)
    fitted = moved(efficiency, dict(zip(paths, posterior.logs, strict=True)))
    values, errors = _scored(members, efficiency, paths, posterior)
    grids = [(laid.scenario, loads_of(laid)) for batch in members for laid in batch.layouts()]
    bands, following = _planned(grids, paths, posterior, efficiency)
    dates = sorted({date for batch in members for row in batch.rows if (date := row.given.get("date", ""))})
    known = list(catalog.releases(engine.name))
    return Cluster(
        name="-".join(filter(None, (chip, str(engine)))),
        system=scenario.system.name,
        base=base,
        release=engine.release,
        newest=known[-1] if known else "",
        dates=tuple(dict.fromkeys((*dates[:1], *dates[-1:]))),
        runs=len({run_of(row) for batch in members for row in batch.rows}),
        numbers=_moves(efficiency, fitted, posterior),
        errors=errors,
        bands=bands,
        next=following,
        values=values,
        efficiency=fitted,
    )


def _moves(efficiency: Any, fitted: Any, posterior: Posterior) -> tuple[Moved, ...]:
    spreads = posterior.spreads
    moves = [
        Moved(
            path,
            range_at(efficiency, path).unit,
            float(get(efficiency, path)),
            float(posterior.prior[at]),
            float(get(fitted, path)),
            float(spreads[at]),
        )
        for at, path in enumerate(posterior.paths)
    ]
    told = [one for one in moves if abs(math.log(one.posterior / one.prior)) > _UNMOVED]
    return tuple(sorted(told, key=lambda one: -abs(math.log(one.posterior / one.prior))))


# --- errors ------------------------------------------------------------------------------------------------------


def _scored(
    members: Sequence[Batch], efficiency: Any, paths: Sequence[str], posterior: Posterior
) -> tuple[tuple[Value, ...], tuple[Errors, ...]]:
    """Return every value with its errors before, and by a fit that did not see its run; and their medians."""
    names = list(dict.fromkeys(run_of(row) for batch in members for row in batch.rows))
    parts = min(PARTS, len(names))
    part_of = {name: at % parts for at, name in enumerate(names)}
    labels = [np.array([part_of[run_of(row)] for row in batch.rows]) for batch in members]
    off = [np.full(label.size, np.nan) for label in labels]
    width = [np.full(label.size, np.nan) for label in labels]
    for part in range(parts) if parts > 1 else ():
        kept = [batch.only(label != part) for batch, label in zip(members, labels, strict=True)]
        known = pooled([batch for batch in kept if batch.asked], efficiency, paths)
        for at, (batch, label) in enumerate(zip(members, labels, strict=True)):
            out = label == part
            if out.any():
                left = batch.only(out)
                off[at][out], slopes = sensitivities(left, paths, known.logs, efficiency)
                width[at][out] = np.sqrt(known.variance(slopes) + noise_of(left.first) ** 2)
    values: list[Value] = []
    inside: list[float] = []
    for batch, missed, wide in zip(members, off, width, strict=True):
        before, _ = sensitivities(batch, paths, np.zeros(len(paths)), efficiency)
        now, _ = sensitivities(batch, paths, posterior.logs, efficiency)
        inside += np.expm1(now).tolist()
        values += [
            Value(row, math.expm1(old), math.expm1(new), float(spread), abs(new) > APART * spread)
            for row, old, new, spread in zip(batch.rows, before, missed, wide, strict=True)
        ]
    return tuple(values), _medians(values, inside)


def _medians(values: Sequence[Value], inside: Sequence[float]) -> tuple[Errors, ...]:
    medians = []
    for metric in dict.fromkeys(value.row.metric for value in values):
        of_metric = [(value, now) for value, now in zip(values, inside, strict=True) if value.row.metric == metric]
        left = np.array([value.left_out for value, _ in of_metric])
        wide = np.array([value.width for value, _ in of_metric])
        medians.append(
            Errors(
                metric,
                len(of_metric),
                float(np.median([abs(value.before) for value, _ in of_metric])),
                float(np.median([abs(now) for _, now in of_metric])),
                float(np.median(np.abs(left))),
                float(np.mean(np.abs(np.log1p(left)) <= EIGHTY * wide)) if np.isfinite(left).all() else math.nan,
            )
        )
    return tuple(medians)


# --- bands, and what to measure next -----------------------------------------------------------------------------


def loads_of(batch: Batch) -> Traffic:
    """Return the loads of a layout that one may ask about: the lengths of its runs, by so many clients as fit."""
    load, shape = batch.scenario.traffic, batch.measured.shape
    columns = [np.broadcast_to(np.asarray(getattr(load, name), dtype=float), shape) for name in ("prompt", "output")]
    pairs = np.unique(np.stack(columns, axis=-1), axis=0)
    numbers: dict[str, Any] = {
        name: float(np.ravel(getattr(load, name))[0])
        for name in ("rounds", "length_jitter", "held_steps", "prefix_hits")
    }
    return loads(batch.scenario, pairs, replace(load, **numbers))


def loads(scenario: Scenario, lengths: Array, load: Traffic) -> Traffic:
    """Return loads of all pairs of lengths and numbers of clients that memory holds, as arrays.

    Parameters
    ----------
    scenario : Scenario
    lengths : ndarray, shape (pairs, 2)
        Prompt and output [1].
    load : Traffic
        What else there is of it.

    Returns
    -------
    Traffic
    """
    clients = np.array(CLIENTS)
    prompt, output = (np.repeat(lengths[:, at], clients.size) for at in (0, 1))
    together = np.tile(clients, len(lengths))
    held = replace(scenario, traffic=replace(load, prompt=prompt, output=output, concurrency=together))
    fits = together <= NEAR_CAP * np.broadcast_to(fit(held).cap * scenario.deployment.groups, together.shape)
    return replace(load, prompt=prompt[fits], output=output[fits], concurrency=together[fits])


def points(scenario: Scenario, load: Traffic, paths: Sequence[str], logs: Array, efficiency: Any) -> Points:
    """Return loads of a layout as points with derivatives; those that cannot be predicted are 0."""
    (_, tpot), (_, ttft) = time_slopes(replace(scenario, traffic=load), paths, logs, efficiency)
    columns: list[Any] = [load.concurrency, load.prompt, load.output]
    columns.append(np.full_like(columns[0], scenario.deployment.tp))
    return Points(np.nan_to_num(tpot), np.nan_to_num(ttft), np.log(np.stack(columns, axis=-1)))


def _planned(
    grids: Sequence[tuple[Scenario, Traffic]], paths: Sequence[str], posterior: Posterior, efficiency: Any
) -> tuple[dict[str, tuple[tuple[float, float], tuple[float, float]]], tuple[Next, ...]]:
    """Return the bands of each model before and after, and the runs that would shrink them most."""
    each = [(scenario, points(scenario, load, paths, posterior.logs, efficiency)) for scenario, load in grids]
    each = [(scenario, point) for scenario, point in each if point.size]
    if not each:
        return {}, ()
    bands = {}
    prior = np.diag(posterior.prior**2)
    for model in dict.fromkeys(scenario.model.name for scenario, _ in each):
        mine = joined([point for scenario, point in each if scenario.model.name == model])
        bands[model] = (mine.half_widths(prior), mine.half_widths(posterior.covariance))
    every = joined([point for _, point in each])
    models = [scenario.model.name for scenario, point in each for _ in range(point.size)]
    known, planned = posterior.covariance, []
    for at in chosen(every, every, known, NEXT):
        known = after(known, Points(every.tpot[[at]], every.ttft[[at]], every.where[[at]]))
        clients, prompt, output, tp = np.exp(every.where[at])
        planned.append(
            Next(models[at], round(tp), round(prompt), round(output), round(clients), *every.half_widths(known))
        )
    return bands, tuple(planned)

"""Runs of a cluster as arrays: what was measured, what is predicted, and how each number of the machine moves it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfmodel.evidence.validate.predicted import STACKED, stacked
from perfmodel.evidence.validate.reading import Unanswered, number
from perfmodel.evidence.validate.rows import Asked, Row, anomaly, ask, forget
from perfmodel.prediction import NEAR_CAP, evaluate
from perfmodel.serving.fit import fit
from perfmodel.specs.naming import find_engine
from perfmodel.specs.paths import get, put_all, quantities, range_at
from perfmodel.specs.types import Scenario

Array = NDArray[np.float64]
#: Metrics that say something of the numbers of a machine, by their keys in the forms of ``validate``.
SAYING = ("ttft", "ttft_median", "tpot", "latency", "output", "output_chip", "user", "requests", "both", "both_chip")
_WANTED = ("ttft_s", "ttft_median_s", "tpot_s", "request_latency_s", "output_tokens_per_s", "input_tokens_per_s")
#: Degrees of a layout that runs of one batch may differ in.
DEGREES = ("tp", "pp", "ep", "dp", "attention_dp")
#: Step of the logarithm by which derivatives are taken.
_STEP = 1e-3
#: Layouts that are tried for a run.
_LAYOUTS = 12
#: What a fit of serving does not move: widths of bands, and what a curve was measured on.
_KEPT = ("tpot_spread", "ttft_spread", "link_efficiency", "nccl", "eager", "hop_latency")
_KEPT_OF_CURVES = ("threshold", "link_bandwidth")


@dataclass(frozen=True)
class Batch:
    """Values of runs that share all but their layout and load, on one axis.

    Attributes
    ----------
    asked : tuple of Asked
    scenario : Scenario
        With degrees of the layout, lengths and concurrency as arrays.
    measured : ndarray, shape (values,)
        In the inside units of the metrics: s, tokens/s.
    first : ndarray of bool, shape (values,)
        Which are times to first token.
    room : ndarray of bool, shape (values,)
        Where the cache holds what is asked; beyond it admission decides, which no number here moves.
    """

    asked: tuple[Asked, ...]
    scenario: Scenario
    measured: Array
    first: NDArray[np.bool_]
    room: NDArray[np.bool_]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the values."""
        return tuple(one.row for one in self.asked)

    def predicted(self, efficiency: Any) -> Array:
        """Return what is predicted with some efficiencies, in the inside units.

        Parameters
        ----------
        efficiency : Efficiency
            Its numbers may have a leading axis: shape (cases, 1).

        Returns
        -------
        ndarray, shape (..., values)
        """
        system = replace(self.scenario.system, efficiency=efficiency)
        with np.errstate(all="ignore"):
            answer = evaluate(replace(self.scenario, system=system), _WANTED)
            times: dict[str, Array] = {}
            for question in self.asked:
                if question.key not in times:
                    assert question.form.value is not None
                    times[question.key] = np.asarray(question.form.value(answer), dtype=float)
        shape = np.broadcast_shapes(*(value.shape for value in times.values()), self.measured.shape)
        full = {key: np.broadcast_to(value, shape) for key, value in times.items()}
        return np.stack([full[question.key][..., at] for at, question in enumerate(self.asked)], axis=-1)

    def only(self, chosen: NDArray[np.bool_]) -> Batch:
        """Return the batch with some of its values.

        Parameters
        ----------
        chosen : ndarray of bool, shape (values,)

        Returns
        -------
        Batch
        """
        kept = tuple(one for one, use in zip(self.asked, chosen, strict=True) if use)
        return Batch(kept, self._sliced(chosen), self.measured[chosen], self.first[chosen], self.room[chosen])

    def _sliced(self, chosen: NDArray[np.bool_]) -> Scenario:
        parts: dict[str, Any] = {}
        for root, names in (("deployment", DEGREES), ("traffic", STACKED)):
            part: Any = getattr(self.scenario, root)
            parts[root] = replace(part, **{name: getattr(part, name)[chosen] for name in names})
        return replace(self.scenario, **parts)

    def layouts(self) -> list[Batch]:
        """Return the values by layout, each with its degrees as numbers."""
        plan: Any = self.scenario.deployment
        degrees = np.stack([getattr(plan, name) for name in DEGREES], axis=-1)
        batches = []
        for one in np.unique(degrees, axis=0):
            mine = self.only((degrees == one).all(axis=-1))
            numbers: dict[str, Any] = dict(zip(DEGREES, one.tolist(), strict=True))
            laid = replace(mine.scenario, deployment=replace(mine.scenario.deployment, **numbers))
            batches.append(replace(mine, scenario=laid))
        return batches


def batches(given: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[list[Row], list[Batch]]:
    """Return rows of measurements, and those of them that say something of a machine's numbers, as arrays.

    Parameters
    ----------
    given : iterable of (str, dict)
        Rows, each with the name of its file.

    Returns
    -------
    tuple of list of Row and list of Batch
        A row that is in no batch says why in its ``reason``.
    """
    forget()
    rows: list[Row] = []
    grouped: dict[tuple[Any, ...], list[tuple[Asked, Scenario]]] = {}
    for data, cells in given:
        named = find_engine(cells.get("engine", ""))
        row = Row(
            dict(cells), data, float(cells["value"] or "nan"), cells["metric"], cells["model"], cells["hardware"], ""
        )
        row.engine = named.name if named is not None else ""
        row.anomaly = anomaly(cells)
        rows.append(row)
        try:
            asked = ask(row)
            if asked.form.how != "loop" or asked.key not in SAYING:
                raise Unanswered(f"{cells['metric']} says nothing of the times of a machine under a steady load")
            scenario = _laid(asked)
        except Unanswered as why:
            row.reason = str(why)
            continue
        grouped.setdefault(_key(scenario), []).append((asked, scenario))
    return rows, [_batch(members) for members in grouped.values()]


def _laid(asked: Asked) -> Scenario:
    """Return the first layout of a row that holds the model."""
    for scenario, note in itertools.islice(asked.layouts, _LAYOUTS):
        if float(fit(scenario).cap) >= 1:
            if note:
                asked.row.notes.append(note)
            return scenario
    raise Unanswered("no layout of this model on these chips holds it")


def _key(scenario: Scenario) -> tuple[Any, ...]:
    """Return what runs must share to be evaluated as arrays: all but degrees, lengths and concurrency."""
    plan, load = scenario.deployment, scenario.traffic
    return (
        scenario.system.name,
        scenario.model.name,
        plan.engine,
        plan.precision,
        plan.kv_precision,
        load.prefill_first,
    )


def _batch(members: Sequence[tuple[Asked, Scenario]]) -> Batch:
    first = members[0][1]
    plans: list[Any] = [one.deployment for _, one in members]
    degrees: dict[str, Any] = {name: np.array([float(getattr(plan, name)) for plan in plans]) for name in DEGREES}
    load = stacked([one.traffic for _, one in members])
    scenario = replace(first, traffic=load, deployment=replace(first.deployment, **degrees))
    cap, clients = _number(fit(scenario).cap * scenario.deployment.groups), _number(load.concurrency)
    chips = [float(plan.tp * plan.pp * plan.groups) for plan in plans]
    return Batch(
        tuple(asked for asked, _ in members),
        scenario,
        np.array([asked.row.value * _inside(asked, used) for (asked, _), used in zip(members, chips, strict=True)]),
        np.array([asked.form.family == "TTFT" for asked, _ in members]),
        clients <= NEAR_CAP * np.broadcast_to(cap, clients.shape),
    )


def _number(value: Any) -> Array:
    return np.asarray(value, dtype=float)


def _inside(asked: Asked, chips: float) -> float:
    """Return the factor from a row's unit to the inside one."""
    if asked.per == "chip" and not asked.key.endswith("_chip"):
        return asked.scale * chips
    if asked.per == "user" and asked.form.family == "output throughput":
        return asked.scale * (number(asked.row.given, "concurrency_or_batch") or 1.0)
    return asked.scale


# --- numbers of a machine ----------------------------------------------------------------------------------------


def movable(efficiency: Any) -> dict[str, float]:
    """Return the numbers of efficiencies that serving runs can move, by path.

    Parameters
    ----------
    efficiency : Efficiency

    Returns
    -------
    dict of str to float
        In inside units, all above 0.
    """
    return {
        path: float(value)
        for path, _, value in quantities(efficiency)
        if not path.startswith(_KEPT) and path.rpartition(".")[2] not in _KEPT_OF_CURVES and float(value) > 0
    }


def moved(efficiency: Any, logs: Mapping[str, Any]) -> Any:
    """Return efficiencies whose numbers are moved by logarithms of factors, each within its range.

    Parameters
    ----------
    efficiency : Efficiency
    logs : mapping of str to Number
        By path [1].

    Returns
    -------
    Efficiency
    """
    made = {}
    for path, log in logs.items():
        rule = range_at(efficiency, path)
        made[path] = np.clip(get(efficiency, path) * np.exp(log), rule.least, rule.most)
    return put_all(efficiency, made)


def sensitivities(batch: Batch, paths: Sequence[str], logs: Array, efficiency: Any) -> tuple[Array, Array]:
    """Return logarithms of predicted over measured, and their derivatives by the logarithm of each number.

    Parameters
    ----------
    batch : Batch
    paths : sequence of str
    logs : ndarray, shape (numbers,)
        By how much each number is moved [1].
    efficiency : Efficiency
        Before it is moved.

    Returns
    -------
    tuple of ndarray
        Shapes (values,) and (values, numbers).
    """
    with np.errstate(all="ignore"):
        found = np.log(batch.predicted(_around(paths, logs, efficiency)) / batch.measured)
    return found[0], (found[1:] - found[0]).T / _STEP


def _around(paths: Sequence[str], logs: Array, efficiency: Any) -> Any:
    """Return efficiencies as moved, and with each number a little further, on a leading axis."""
    steps = logs + np.vstack([np.zeros(logs.size), _STEP * np.eye(logs.size)])
    return moved(efficiency, {path: steps[:, at, None] for at, path in enumerate(paths)})


def time_slopes(
    scenario: Scenario, paths: Sequence[str], logs: Array, efficiency: Any
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return TPOT and TTFT of a load of arrays, each with the derivatives of its logarithm by that of each number.

    Parameters
    ----------
    scenario : Scenario
        Its traffic has arrays of shape (points,).
    paths : sequence of str
    logs : ndarray, shape (numbers,)
        By how much each number is moved [1].
    efficiency : Efficiency
        Before it is moved.

    Returns
    -------
    tuple of (times, slopes), of TPOT and of TTFT
        Shapes (points,) [s] and (points, numbers).
    """
    system = replace(scenario.system, efficiency=_around(paths, logs, efficiency))
    shape = (logs.size + 1, np.size(_number(scenario.traffic.concurrency)))
    with np.errstate(all="ignore"):
        metrics = evaluate(replace(scenario, system=system), ("tpot_s", "ttft_s")).metrics
        times = [np.broadcast_to(metrics[key], shape) for key in ("tpot_s", "ttft_s")]
        tpot, ttft = ((time[0], (np.log(time[1:] / time[0]) / _STEP).T) for time in times)
    return tpot, ttft

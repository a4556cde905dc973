"""Errors of predicted rows, by group."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from perfmodel import shapes
from perfmodel.evidence.validate import public
from perfmodel.evidence.validate.reading import plain
from perfmodel.evidence.validate.rows import Row, load_system
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine

_NAN = math.nan
#: Shares of measured values within which the charts and the tables count.
WITHIN = 0.2
#: Rows from which a 90th percentile is worth its name.
LEAST_P90 = 20


@dataclass(frozen=True)
class Score:
    """How far predictions of a group lie from what was measured.

    Attributes
    ----------
    data : str
        File.
    part : str
        ``predicted``, ``calibrated`` (something was fitted on these rows) or ``anomalous``.
    by : str
        What the group is by: ``group``, ``metric``, ``chip``, ``engine``, ``kind`` (the model's class), ``load``,
        ``tp``, ``lengths``, ``release`` or ``calibration``.
    group : tuple of str
    rows, answered : int
    mape, median, bias, p90 : float
        Mean and median absolute, median signed, 90th percentile of the absolute relative error; P90 from 20 rows on.
    within : float
        Share of answered rows within 20 %.
    in_band : float
        Share of rows whose measured value lies in the 80 % band of the prediction, of those that have one.
    worst : float
        The largest signed relative error.
    worst_row : str
        What it belongs to.
    """

    data: str
    part: str
    by: str
    group: tuple[str, ...]
    rows: int
    answered: int
    mape: float
    median: float
    bias: float
    p90: float
    within: float
    in_band: float
    worst: float
    worst_row: str

    @property
    def coverage(self) -> float:
        """Share of rows that got a prediction."""
        return self.answered / self.rows

    def to_dict(self) -> shapes.Score:
        """Return the score as columns; None where there is nothing."""
        return {
            "data": self.data,
            "part": self.part,
            "by": self.by,
            "group": " / ".join(self.group),
            "rows": self.rows,
            "answered": self.answered,
            "coverage": shapes.number(self.coverage),
            "mape": shapes.number(self.mape),
            "median": shapes.number(self.median),
            "bias": shapes.number(self.bias),
            "p90": shapes.number(self.p90),
            "within": shapes.number(self.within),
            "in_band": shapes.number(self.in_band),
            "worst": shapes.number(self.worst),
            "worst_row": self.worst_row or None,
        }


def describe(row: Row) -> str:
    """Return where a row stands: layout, lengths, concurrency."""
    given = row.given
    parts = [row.model, row.system, row.engine]
    parts += [f"TP{given['tp']}"] if given.get("tp") else []
    parts += [f"{given['isl']}/{given.get('osl', '')}"] if given.get("isl") else []
    parts += [f"c={given['concurrency_or_batch']}"] if given.get("concurrency_or_batch") else []
    return " ".join(part for part in parts if part)


def score(rows: Sequence[Row], data: str, part: str, by: str, group: tuple[str, ...]) -> Score:
    """Score a group of rows."""
    answered = [row for row in rows if math.isfinite(row.error)]
    errors = np.array([row.error for row in answered])
    size = np.abs(errors)
    some = bool(errors.size)
    banded = [row for row in answered if math.isfinite(row.low)]
    worst = answered[int(np.argmax(size))] if some else None
    return Score(
        data,
        part,
        by,
        group,
        rows=len(rows),
        answered=len(answered),
        mape=float(size.mean()) if some else _NAN,
        median=float(np.median(size)) if some else _NAN,
        bias=float(np.median(errors)) if some else _NAN,
        p90=float(np.percentile(size, 90)) if errors.size >= LEAST_P90 else _NAN,
        within=float((size <= WITHIN).mean()) if some else _NAN,
        in_band=float(np.mean([row.low <= row.value <= row.high for row in banded])) if banded else _NAN,
        worst=worst.error if worst else _NAN,
        worst_row=describe(worst) if worst else "",
    )


def _by_number(group: tuple[str, ...]) -> list[list[tuple[int, int | str]]]:
    """Return a key that sorts what begins with a number by that."""
    return [[(0, int(word)) if word.isdigit() else (1, word) for word in label.split()] for label in group]


def _load(row: Row) -> str:
    clients = plain(row.given, "concurrency_or_batch")
    edges = (0, 8, 32, 128, 512)
    for low, high in itertools.pairwise(edges):
        if clients <= high:
            return f"{low + 1} to {high} clients"
    return "more clients" if clients == clients else "-"


def _lengths(row: Row) -> str:
    prompt, output = plain(row.given, "isl"), plain(row.given, "osl")
    return f"{prompt:g} in, {output:g} out" if (prompt, output) in public.INFERENCEX else "other lengths"


def _release(row: Row) -> str:
    named = find_engine(row.given.get("engine", ""))
    return str(named) if named is not None and named.release else "no release named"


_BY: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "metric": lambda row: (row.metric,),
    "chip": lambda row: (row.metric, row.system),
    "engine": lambda row: (row.metric, row.engine or "-"),
    "kind": lambda row: (row.metric, row.kind or "-"),
    "load": lambda row: (row.metric, _load(row)),
    "tp": lambda row: (row.metric, f"TP {row.given['tp'].removesuffix('.0')}" if row.given.get("tp") else "-"),
    "lengths": lambda row: (row.metric, _lengths(row)),
    "release": lambda row: (row.metric, _release(row)),
    "calibration": lambda row: (row.metric, "calibrated chip" if row.chip_calibrated else "no calibration"),
    "group": lambda row: (row.metric, row.model, row.system, row.engine or "-"),
}
PARTS = ("predicted", "calibrated", "anomalous")


def scores(rows: Sequence[Row]) -> list[Score]:
    """Score rows by each grouping; files and parts are never mixed."""
    scored = []
    for data in dict.fromkeys(row.data for row in rows):
        for part in PARTS:
            mine = [row for row in rows if row.data == data and row.part == part]
            for by, key in _BY.items():
                groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
                for row in mine:
                    groups[key(row)].append(row)
                scored += [score(groups[name], data, part, by, name) for name in sorted(groups, key=_by_number)]
    return scored


@dataclass(frozen=True)
class FittedFile:
    """The numbers of a calibration that were fitted, and on what."""

    name: str
    numbers: int
    notes: tuple[str, ...]


def fitted_parameters(rows: Sequence[Row]) -> list[FittedFile]:
    """Return what was fitted of the efficiencies that these rows' predictions used."""
    used = dict.fromkeys((row.system, row.engine) for row in rows if row.engine and math.isfinite(row.predicted))
    files: dict[str, FittedFile] = {}
    for system_name, engine in used:
        bare = load_system(system_name, engine)[0]
        _, origins, _ = catalog.load_efficiency(bare.kind, bare.chip, engine)
        fitted = {path: origin for path, origin in origins.items() if origin.kind in ("measured", "derived", "paper")}
        name = next((origin.file for origin in origins.values() if origin.file), f"{bare.chip}-{engine}")
        notes: dict[str, list[str]] = defaultdict(list)
        for path, origin in fitted.items():
            what = origin.note or f"from {origin.source}"
            notes[what].append(path.removeprefix("efficiency."))
        words = tuple(f"{', '.join(paths)}: {what}" for what, paths in notes.items())
        files[name] = FittedFile(name.removesuffix(".yaml"), len(fitted), words)
    return sorted(files.values(), key=lambda entry: entry.name)

"""Scoring predictions against measurements: rows in, the same rows with a prediction or a reason out.

A row is mapped to a scenario as its columns say; what it leaves open is assumed and noted in the row.  Points on which
something was fitted are flagged, and kept apart from predicted ones in every score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel import shapes
from perfmodel.evidence.validate import public
from perfmodel.evidence.validate.acceptance import accepted_lengths
from perfmodel.evidence.validate.predicted import Tick, answer
from perfmodel.evidence.validate.reading import BUNDLED, Unanswered, bundled_path, read_rows
from perfmodel.evidence.validate.rows import Row, anomaly, ask, forget
from perfmodel.evidence.validate.scoring import FittedFile, Score, fitted_parameters, scores
from perfmodel.shown import Shown
from perfmodel.specs.naming import find_engine

_NAN = math.nan


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Scored measurements.

    Attributes
    ----------
    rows : list of Row
    scores : list of Score
    fitted : list of FittedFile
        Parameters of the predictions, and what they were fitted on.
    left_out : list of dict
        Where rows were fitted on: the scores of the same rows by fits that never saw their model, TP, engine or
        concurrency, as ``calibrate`` stored them.
    """

    rows: list[Row]
    scores: list[Score]
    fitted: list[FittedFile]
    left_out: list[shapes.LeftOut]

    def of(self, data: str, part: str, by: str) -> list[Score]:
        """Return the scores of one file, part and grouping.

        Parameters
        ----------
        data : str
            Name of the file.
        part : str
            ``calibrated``, ``predicted`` or ``anomalous``.
        by : str
            What the rows are grouped by: ``metric``, ``model``, ...

        Returns
        -------
        list of Score
        """
        return [one for one in self.scores if (one.data, one.part, one.by) == (data, part, by)]

    def files(self) -> list[str]:
        """Return the names of the files that were scored."""
        return list(dict.fromkeys(row.data for row in self.rows))

    def coverage(self, data: str) -> float:
        """Return the share of a file's rows that got a prediction.

        Parameters
        ----------
        data : str
            Name of the file.

        Returns
        -------
        float
            NaN where the file has no rows.
        """
        mine = [row for row in self.rows if row.data == data]
        return sum(math.isfinite(row.predicted) for row in mine) / len(mine) if mine else _NAN

    def to_dict(self) -> shapes.Validation:
        """Return the documented JSON object; there is no NaN in it."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "scores": [one.to_dict() for one in self.scores],
            "fitted": [
                {"calibration": entry.name, "parameters": entry.numbers, "on": list(entry.notes)}
                for entry in self.fitted
            ],
            "left_out": self.left_out,
        }

    def to_frame(self) -> Any:
        """Return a pandas frame, one row a measured value."""
        import pandas as pd

        return pd.DataFrame([row.row() for row in self.rows])


def score_rows(given: Iterable[tuple[str, Mapping[str, str]]], tick: Tick = lambda _: None) -> Validation:
    """Predict and score rows, each with the name of its file."""
    fitted = public.fitted_keys()
    forget()
    rows, waiting = [], []
    for data, cells in given:
        row = Row(
            dict(cells),
            data,
            float(cells["value"] or "nan"),
            cells["metric"],
            cells["model"],
            cells["hardware"],
            named.name if (named := find_engine(cells.get("engine", ""))) else "",
            fitted=(cells.get("row_id", ""), cells["metric"]) in fitted,
            anomaly=anomaly(cells),
        )
        rows.append(row)
        try:
            asked = ask(row)
        except Unanswered as why:
            row.reason = str(why)
            tick(1)
            continue
        if asked.form.how == "curve":
            # The two knees of the curve are what its parameters were solved from.
            row.fitted = True
        waiting.append(asked)
    answer(waiting, tick)
    accepted_lengths(rows)
    left_out = public.stored_scores() if any(row.fitted for row in rows) else []
    return Validation(rows, scores(rows), fitted_parameters(rows), left_out)


def load(data: Path | str | None = None) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of a file, or of all bundled measurements, each with the name of its file."""
    if data is not None:
        path = Path(data)
        return [(path.stem, row) for row in read_rows(path)]
    return [(name, row) for name in BUNDLED for row in read_rows(bundled_path(name))]


def validate(data: Path | str | None = None, tick: Tick = lambda _: None) -> Validation:
    """Score a CSV of measurements, or the bundled ones.

    Parameters
    ----------
    data : path, optional
        A CSV with the columns model, hardware, metric, value and unit.
    tick : callable
        Called with the number of rows that got their answer.

    Returns
    -------
    Validation

    Raises
    ------
    UserError
        Where the file cannot be read.
    """
    return score_rows(load(data), tick)

"""From a traffic to the distribution of its lengths: a bundled table, a trace, or a lognormal law."""

from __future__ import annotations

import csv
import functools
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.serving.lengths import Lengths, empirical, lognormal
from perfmodel.serving.traces import is_json, read_trace
from perfmodel.specs import catalog
from perfmodel.specs.types import Traffic

#: Words in place of a table: every request of the mean lengths, or lognormal lengths, as where none is named.
FIXED = "fixed"
LOGNORMAL = ("", "lognormal")
#: Lengths that stand for an even spread of them.
_JITTERED = 24


@functools.cache
def _tables() -> dict[str, Lengths]:
    path = catalog.bundled() / "data" / "traffic" / "lengths.csv"
    tables: dict[str, list[tuple[float, float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            point = float(row["prompt_tokens"]), float(row["output_tokens"]), float(row["share"])
            tables.setdefault(row["name"], []).append(point)
    return {name: Lengths(*np.array(points).T) for name, points in tables.items()}


def length_table(name: str) -> Lengths:
    """Return a bundled table of lengths.

    Parameters
    ----------
    name : str
        ``azure-chat``, ...

    Returns
    -------
    Lengths

    Raises
    ------
    UserError
        Where there is none of that name.
    """
    tables = _tables()
    if name not in tables:
        words = ", ".join((FIXED, *LOGNORMAL[1:], *tables))
        raise UserError(f"traffic.lengths '{name}': expected one of {words}, or a trace FILE.csv")
    return tables[name]


def is_trace(lengths: str) -> bool:
    """Whether lengths are those of a trace file, and no table of a name.

    Parameters
    ----------
    lengths : str
        As in :class:`~perfmodel.specs.types.Traffic`.

    Returns
    -------
    bool
    """
    return lengths.endswith(".csv") or is_json(lengths)


def lengths_of(traffic: Traffic) -> Lengths:
    """Return the distribution of lengths of a traffic: with its means, but for a trace, which has its own.

    Parameters
    ----------
    traffic : Traffic

    Returns
    -------
    Lengths

    Raises
    ------
    UserError
        Where it names no known table and no trace.
    """
    prompt, output = float(traffic.prompt), max(1.0, float(traffic.output))
    if traffic.lengths == FIXED:
        return lognormal(prompt, 0.0, output, 0.0)
    if traffic.lengths in LOGNORMAL:
        return lognormal(prompt, float(traffic.prompt_scv), output, float(traffic.output_scv))
    if is_trace(traffic.lengths):
        trace = read_trace(traffic.lengths)
        return empirical(trace.prompt, trace.output)
    table = length_table(traffic.lengths)
    scale_in, scale_out = prompt / table.mean(table.prompt), output / table.mean(table.output)
    return Lengths(np.maximum(1.0, table.prompt * scale_in), np.maximum(1.0, table.output * scale_out), table.weight)


def closed_lengths(traffic: Traffic) -> Lengths:
    """Return the lengths that the clients of a closed loop draw: as far as they jitter, else those of a load.

    Parameters
    ----------
    traffic : Traffic

    Returns
    -------
    Lengths
    """
    jitter = min(1.0, float(traffic.length_jitter))
    if jitter == 0.0:
        return lengths_of(traffic)
    share = 1 - jitter * (np.arange(_JITTERED) + 0.5) / _JITTERED
    prompt, output = np.meshgrid(share * float(traffic.prompt), share * float(traffic.output), indexing="ij")
    weight = np.full(prompt.size, 1 / prompt.size)
    return Lengths(np.maximum(1.0, prompt.ravel()), np.maximum(1.0, output.ravel()), weight)


def trace_scv(arrival: Any) -> float:
    """Return the squared coefficient of variation of the gaps of a trace.

    Parameters
    ----------
    arrival : ndarray
        Times in rising order [s].

    Returns
    -------
    float
        [1]
    """
    gaps = np.diff(np.asarray(arrival, dtype=float))
    return float(gaps.var() / max(1e-300, gaps.mean() ** 2)) if len(gaps) > 1 else 1.0

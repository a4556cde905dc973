"""From a traffic to the distribution of its lengths: a bundled table, a trace, or a lognormal law."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.serving.lengths import Lengths, empirical, lognormal
from perfmodel.specs import catalog
from perfmodel.specs.types import Traffic

#: Bytes of a trace in JSON lines at the most, unpacked; the longest public one has 80 MB.
MOST_BYTES = 2**30
#: Tokens of a request at the most; no model takes a thousandth of it.
MOST_TOKENS = 1e9

#: Columns of a trace, by any of their usual names; the first is the time of arrival [s].
_COLUMNS = {
    "arrival": ("arrival_s", "timestamp", "arrival"),
    "prompt": ("input_tokens", "input_length", "prompt_tokens", "ContextTokens"),
    "output": ("output_tokens", "output_length", "GeneratedTokens"),
}


#: Words in place of a table: every request of the mean lengths, or lognormal lengths, as where none is named.
FIXED = "fixed"
LOGNORMAL = ("", "lognormal")
#: Lengths that stand for an even spread of them.
_JITTERED = 24


@functools.cache
def _tables() -> dict[str, Lengths]:
    path = catalog.bundled() / "data" / "traffic" / "lengths.csv"
    found: dict[str, list[tuple[float, float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            point = float(row["prompt_tokens"]), float(row["output_tokens"]), float(row["share"])
            found.setdefault(row["name"], []).append(point)
    return {name: Lengths(*np.array(points).T) for name, points in found.items()}


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


def read_trace(path: str | Path) -> tuple[Any, Any, Any]:
    """Return arrivals [s], prompt and output tokens of a trace in CSV or JSON lines, in the order of arrival.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    tuple of ndarray

    Raises
    ------
    UserError
        Where the file or a column is missing, or a row is no request.
    """
    file = Path(path)
    try:
        rows = _rows(file)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read as a trace ({why})") from None
    if not rows:
        raise UserError(f"{path}: a trace needs at least one request")
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: every line must be an object of a request")
    columns = []
    for kind, names in _COLUMNS.items():
        name = next((name for name in names if name in rows[0]), None)
        if name is None:
            raise UserError(f"{path}: no column of {kind}; name it {' or '.join(names)}")
        try:
            columns.append(np.array([float(row[name]) for row in rows]))
        except (TypeError, ValueError, KeyError):
            raise UserError(f"{path}: column {name} must be numbers in every row") from None
    arrival, prompt, output = columns
    if "timestamp" in rows[0] and file.name.endswith((".jsonl", ".jsonl.gz")):
        arrival = arrival / 1e3  # JSON lines count milliseconds
    if not (np.isfinite(arrival).all() and np.all(prompt >= 1) and np.all(output >= 0)):
        raise UserError(f"{path}: arrivals must be finite, prompts at least 1 token and outputs not negative")
    if not (np.all(prompt <= MOST_TOKENS) and np.all(output <= MOST_TOKENS)):
        raise UserError(f"{path}: prompts and outputs have at most {MOST_TOKENS:,.0f} tokens")
    order = np.argsort(arrival, kind="stable")
    return arrival[order] - arrival.min(), prompt[order], np.maximum(1.0, output[order])


def _rows(file: Path) -> list[dict[str, Any]]:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            raw = opened.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} B")
        return [json.loads(line) for line in raw.decode("utf-8-sig").splitlines() if line.strip()]
    with file.open(newline="", encoding="utf-8-sig") as table:
        return list(csv.DictReader(table))


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
    return lengths.endswith((".csv", ".jsonl", ".jsonl.gz"))


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
        _, asked, given = read_trace(traffic.lengths)
        return empirical(asked, given)
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

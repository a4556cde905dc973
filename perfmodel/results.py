"""All numbers of a prediction by one flat name each, for what walks over them: solving, explaining, exporting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.prediction import Prediction
from perfmodel.trace import Node

#: Fields whose keys are results as they stand, or with an ending; other fields give their own name first.
_ENDING = {"metrics": "", "breakdown": "_s"}
_WORDS = frozenset({"scenario", "fits", "limited_by", "band", "reason", "assumed", "warnings"})


def _flat(part: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _flat(value, f"{name}_{key}" if name else key)
    elif isinstance(part, Node | np.ndarray | np.generic | int | float) and not isinstance(part, bool):
        yield name, part


def results(answer: Prediction) -> dict[str, Any]:
    """Return every number of a prediction by name: those of its metrics, of its breakdown, of its memory and more.

    Parameters
    ----------
    answer : Prediction
        Of floats, arrays or traced nodes.

    Returns
    -------
    dict of str to (float, array or Node)
        The names are the columns of ``--csv``: ``tpot_s``, ``decode_memory_s``, ``memory_weights_bytes``.
    """
    metrics: dict[str, Any] = {}
    for entry in fields(answer):
        if entry.name in _WORDS:
            continue
        prefix = "" if entry.name in _ENDING else entry.name
        ending = "_bytes" if entry.name == "memory" else _ENDING.get(entry.name, "")
        metrics.update({f"{name}{ending}": value for name, value in _flat(getattr(answer, entry.name), prefix)})
    return metrics


def unit_of(name: str) -> str:
    """Return the unit that the name of a result ends in."""
    for part, unit in (("_per_s", "1/s"), ("usd_", "USD"), ("joules_", "J")):
        if part in name:
            return unit
    for ending, unit in (("_s", "s"), ("_bytes", "B"), ("_w", "W")):
        if name.endswith(ending):
            return unit
    return "1"


def check_priced(metric: str, given: Mapping[str, Any]) -> None:
    """Refuse prices and a region beside a metric that has no money in it.

    Parameters
    ----------
    metric : str
        Name of a metric, or a short one.
    given : mapping
        Options by name.

    Raises
    ------
    UserError
        Where one is given in vain.
    """
    for name in ("prices", "region"):
        if given.get(name) is not None and "usd" not in re.split(r"[_.]", metric):
            raise UserError(f"--{name}: {metric} has no price in it; leave it out")


def result_name(asked: str, known: Mapping[str, Any]) -> str:
    """Return the full name of a result; what says its unit may be left out."""
    for name in known:
        if asked in (name, *(name.removesuffix(ending) for ending in ("_s", "_bytes", "_w"))):
            return name
    raise UserError(f"unknown metric '{asked}': expected one of {', '.join(known)}")


def is_better_low(name: str) -> bool:
    """Whether less of a result is better: times, bytes, power, energy, money."""
    return unit_of(name) in ("s", "B", "W", "J", "USD") and "room" not in name and "capacity" not in name

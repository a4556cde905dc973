"""Axes of a sweep, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.specs.paths import full_path, get, range_at, read
from perfmodel.specs.types import Scenario

#: Values of one axis at the most: they are held as they stand, unlike the points of their product.
MOST_VALUES = 10**7


WHOLE_SPECS = ("model", "system", "traffic")


LAYOUT = ("deployment.tp", "deployment.pp", "deployment.ep", "deployment.dp", "deployment.attention_dp")


WORDS = {
    "deployment.plan": "plan",
    "deployment.engine": "engine",
    "deployment.precision": "precision",
    "deployment.kv_precision": "kv_precision",
}


@dataclass(frozen=True)
class Axis:
    """One input that a sweep varies.

    Attributes
    ----------
    path : str
    values : tuple
        Numbers in the inside unit, or words.
    unit : str
        Of the numbers.
    loops : bool
        Whether each value is a question of its own; the others broadcast through one.
    """

    path: str
    values: tuple[Any, ...]
    unit: str = ""
    loops: bool = False


def parse_axis(scenario: Scenario, path: str, written: Any) -> Axis:
    """Read an axis: ``A:B:N`` (linear, both ends included), ``A:B:N:log``, a list of numbers, or a list of words.

    Raises
    ------
    UserError
        Where the path, a value or the form is wrong.
    """
    if path in WHOLE_SPECS:
        return Axis(path, _some(path, tuple(_listed(written))), loops=True)
    try:
        where = full_path(scenario, path)
        old = get(scenario, where)
        if isinstance(old, bool | str):
            # A plan or an engine makes a question of its own, which refuses one that there is not.
            given = where in WORDS
            choices = [word if given else read(scenario, where, word) for word in _listed(written)]
            return Axis(where, _some(path, tuple(_word(choice) for choice in choices)), loops=True)
        rule = range_at(scenario, where)
        values = _numbers(scenario, where, written)
    except UserError as error:
        raise UserError(f"--axis {path}: {error}") from None
    if where == "speculation.k" and scenario.speculation is not None and scenario.speculation.ar is not None:
        raise UserError(f"--axis {path}: an AR belongs to one k; give --alpha or --accept instead of --ar")
    # Where degrees are those of plans, or stages are searched for, each layout is a question of its own.
    loops = where in LAYOUT and not machine_of(scenario.system).free_degrees
    return Axis(where, _some(path, values), rule.unit, loops=loops)


def _listed(written: Any) -> list[Any]:
    return written.split(",") if isinstance(written, str) else list(written)


def _word(choice: Any) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def _some(path: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or any(value == "" for value in values):
        raise UserError(f"--axis {path}: give at least one value, as A:B:N, A:B:N:log or a,b,c")
    return values


def _numbers(scenario: Scenario, where: str, written: Any) -> tuple[float, ...]:
    """Return the values of an axis in the inside unit, each one that the quantity can have."""
    if not isinstance(written, str):
        return tuple(read(scenario, where, value) for value in written)
    parts = written.split(":")
    if len(parts) == 1:
        return tuple(read(scenario, where, part) for part in _listed(written))
    if len(parts) not in (3, 4) or (len(parts) == 4 and parts[3] != "log"):
        raise UserError("write A:B:N, A:B:N:log or a,b,c")
    low, high = (read(scenario, where, part) for part in parts[:2])
    if not parts[2].isdigit() or int(parts[2]) < 1:
        raise UserError(f"'{parts[2]}' is no number of points")
    if int(parts[2]) > MOST_VALUES:
        raise UserError(f"an axis takes at most {MOST_VALUES:,} points")
    if len(parts) == 4 and (low <= 0 or high <= 0):
        raise UserError("a logarithmic axis needs ends above 0")
    values = (np.geomspace if len(parts) == 4 else np.linspace)(low, high, int(parts[2]))
    if fault := range_at(scenario, where).fault(values):
        raise UserError(fault)
    return tuple(values.tolist())

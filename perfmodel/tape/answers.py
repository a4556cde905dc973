"""Predictions over many points by :mod:`perfmodel.tape.kernel`, as :func:`perfmodel.prediction.evaluate` gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from perfmodel.prediction import ALL, Prediction, evaluate
from perfmodel.serving.steady import steady_state
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Scenario
from perfmodel.tape import kernel

#: Fields of a prediction that hold numbers, besides whether it fits, which follows from the cap.
FIELDS = ("metrics", "breakdown", "memory", "max_concurrency", "chips", "speculation")
_CAP = "cap"


def asked(wanted: Collection[str] = ALL) -> kernel.Asked:
    """Return what a prediction asks of a trace: its numbers by flat names, and the cap of one group.

    Parameters
    ----------
    wanted : collection of str
        Metrics, and ``breakdown``.

    Returns
    -------
    perfmodel.tape.kernel.Asked
    """

    def results(scenario: Scenario) -> dict[str, Any]:
        steady = steady_state(scenario)
        answer = evaluate(scenario, wanted, steady)
        parts = {name: getattr(answer, name) for name in FIELDS}
        return {**dict(_flat(parts)), _CAP: steady.fit.cap}

    return kernel.Asked(f"prediction {sorted(wanted)}", results)


def _flat(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _flat(value, f"{path}.{key}" if path else key)
    else:
        yield path, part


def grid(scenario: Scenario, axes: Mapping[str, Any], wanted: Collection[str] = ALL) -> dict[str, Any] | None:
    """Return the fields of a prediction over the product of axes, where that is prepared or pays.

    Parameters
    ----------
    scenario : Scenario
    axes : mapping of str to sequence of float
        Values by full path, each on an axis of its own.
    wanted : collection of str

    Returns
    -------
    dict of str to Any or None
        Each array carries only the axes that it depends on; ``fits`` too.
    """
    values = {path: np.asarray(column, dtype=float) for path, column in axes.items()}
    found = kernel.over(asked(wanted), scenario, {path: at for at, path in enumerate(axes)}, values)
    return None if found is None else _fields(found)


def points(scenario: Scenario, values: Mapping[str, Any], wanted: Collection[str] = ALL) -> Prediction:
    """Evaluate points that share nothing but the inputs that do not vary.

    Parameters
    ----------
    scenario : Scenario
    values : mapping of str to sequence of float
        Of each input that varies, by full path; all equally long.
    wanted : collection of str

    Returns
    -------
    Prediction
        Its arrays have one dimension.
    """
    columns = {path: np.asarray(column, dtype=float) for path, column in values.items()}
    placed = put_all(scenario, columns)
    found = kernel.over(asked(wanted), scenario, dict.fromkeys(columns, 0), columns)
    if found is None:
        return evaluate(placed, wanted)
    return Prediction(scenario=placed, **_fields(found))


def _fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Put flat names together again."""
    made: dict[str, Any] = {name: {} for name in ("metrics", "breakdown", "memory", "speculation")}
    for name, value in found.items():
        *path, last = name.split(".")
        into = made
        for key in path:
            into = into.setdefault(key, {})
        into[last] = value
    made["fits"] = np.asarray(made.pop(_CAP)) >= 1
    return made

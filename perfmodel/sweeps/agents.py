"""Users with sessions over axes: one answer a point."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.options import StoredQuestion
from perfmodel.planning.agents import Agents
from perfmodel.planning.agents_question import question
from perfmodel.specs.types import Model

#: Points of a sweep over users at the most: each is worked out by itself.
MOST = 10_000


@dataclass(frozen=True)
class AgentsSweep:
    """Answers over the product of axes.

    Attributes
    ----------
    axes : dict
        Values as text, by path.
    answers : tuple of Agents
        The last axis varies fastest.
    """

    axes: Mapping[str, tuple[str, ...]]
    answers: tuple[Agents, ...]

    def __len__(self) -> int:
        return len(self.answers)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a point: the axes, then the flat columns of an answer."""
        points = itertools.product(*self.axes.values())
        return [
            {**dict(zip(self.axes, point, strict=True)), **answer.row()}
            for point, answer in zip(points, self.answers, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return a pandas frame, one row a point."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def sweep(
    model: str | Model, system: str, axes: Sequence[tuple[str, Any]], set: Sequence[str], given: Mapping[str, Any]
) -> AgentsSweep:
    """Answer a question about users with sessions at every point of some axes.

    Parameters
    ----------
    model : str or Model
    system : str
        With its plan.
    axes : sequence of (str, str or list)
        ``users``, a number of the session as ``session.ttl``, or any other path.
    set : sequence of str
        Changes by path.
    given : mapping
        Options by name, as given.

    Returns
    -------
    AgentsSweep
    """
    values = {path: _values(path, written) for path, written in axes}
    if int(np.prod([len(found) for found in values.values()])) > MOST:
        raise UserError(f"more than {MOST:,} points: each is an answer by itself; give fewer")
    answers = []
    for point in itertools.product(*values.values()):
        at = dict(zip(values, point, strict=True))
        users = {"users": at.pop("users")} if "users" in at else {}
        changes = [*set, *(f"{path}={value}" for path, value in at.items())]
        answers += question(StoredQuestion, model, [system], changes, {**given, **users}, worth=False)
    return AgentsSweep(values, tuple(answers))


def _values(path: str, written: Any) -> tuple[str, ...]:
    """Return the values of an axis as text: of a range, or as they are."""
    if not isinstance(written, str):
        return tuple(str(value) for value in written)
    parts = written.split(":")
    if len(parts) == 1:
        found = tuple(part.strip() for part in written.split(","))
        if "" in found:
            raise UserError(f"--axis {path}: give at least one value, as A:B:N, A:B:N:log or a,b,c")
        return found
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        if len(parts) == 4 and parts[3] == "log":
            points = np.geomspace(low, high, count)
        elif len(parts) == 3:
            points = np.linspace(low, high, count)
        else:
            raise ValueError
    except (ValueError, IndexError):
        raise UserError(
            f"--axis {path}={written}: with --sessions write A:B:N, A:B:N:log of numbers without a unit, or a,b,c"
        ) from None
    return tuple(f"{value:.6g}" for value in points)

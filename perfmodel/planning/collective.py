"""One collective by itself: what the engine's own algorithm takes, and what the closed form of NCCL does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import shapes
from perfmodel.entered import said, unmoved
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.question import number
from perfmodel.specs import catalog
from perfmodel.specs.paths import assign
from perfmodel.specs.ranges import Range
from perfmodel.specs.types import Scenario, System

#: Wire traffic of a rank over its message, by operation: what NCCL calls the bus bandwidth over the algorithm's.
OPERATIONS = {"all-reduce": 2.0, "all-to-all": 1.0}


@dataclass(frozen=True)
class Collective:
    """Times of one collective on a system, by algorithm.

    Attributes
    ----------
    system : System
    engine, operation : str
    ranks : float
        Chips of the group [1].
    message : float
        Bytes that each rank contributes; of an all-to-all what it sends in all, its own part included [B].
    times : dict of str to float
        By algorithm [s].
    warnings : tuple of str
    """

    system: System
    engine: str
    operation: str
    ranks: float
    message: float
    times: dict[str, float]
    warnings: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row an algorithm: its time [s], and the rates that NCCL's tests print [B/s]."""
        wire = OPERATIONS[self.operation] * (self.ranks - 1) / self.ranks
        return [
            {
                "system": self.system.name,
                "engine": self.engine,
                "operation": self.operation,
                "ranks": shapes.number(self.ranks),
                "message_bytes": shapes.number(self.message),
                "algorithm": name,
                "time_s": time,
                "algorithm_bandwidth": self.message / time if time else None,
                "bus_bandwidth": wire * self.message / time if time else None,
            }
            for name, time in self.times.items()
        ]

    def to_dict(self) -> shapes.Collective:
        """Return the documented JSON object."""
        return {
            "system": self.system.name,
            "engine": self.engine,
            "operation": self.operation,
            "ranks": shapes.number(self.ranks),
            "message_bytes": shapes.number(self.message),
            "algorithms": [
                {
                    "algorithm": row["algorithm"],
                    "time_s": shapes.number(row["time_s"]),
                    "algorithm_bandwidth": shapes.number(row["algorithm_bandwidth"]),
                    "bus_bandwidth": shapes.number(row["bus_bandwidth"]),
                }
                for row in self.rows()
            ],
            "warnings": list(self.warnings),
        }


def ask(
    operation: str, on: str, tp: Any, message: Any, engine: str | None = None, changes: Sequence[str] = ()
) -> Collective:
    """Answer how long one collective takes.

    Parameters
    ----------
    operation : str
        ``all-reduce`` or ``all-to-all``.
    on : str
        System.
    tp : float or str
        Ranks [1].
    message : float or str
        Bytes that each rank contributes, with its unit where it is text [B].
    engine : str, optional
        Whose algorithm.
    changes : sequence of str
        ``PATH=VALUE`` each.

    Returns
    -------
    Collective
    """
    if operation not in OPERATIONS:
        raise UserError(f"collective {operation}: expected one of {', '.join(OPERATIONS)}")
    ranks = number("--tp", tp, Range("1", 1.0, 1e6, whole=True))
    size = number("--message", message, Range("B", 1.0, 1e15))
    system, chosen, warnings = catalog.load_system(on, engine)
    # A change is one of the system: there is no model, layout or traffic to change.
    nothing: Any = None
    asked = Scenario(system, nothing, nothing, nothing)
    for change in changes:
        asked = assign(asked, change)
    system = asked.system

    def times(one: Scenario) -> Any:
        return dict(machine_of(one.system).collective(one.system, operation, ranks, size))

    answer = times(asked)
    if not answer:
        raise UserError(f"collective {operation}: nothing is published of the links of {system.name} to answer it")
    unread = [said(path, entered=False, why="a collective is about links") for path in unmoved(asked, times)]
    mind = (*warnings, *unread, *catalog.in_place(system))
    return Collective(system, chosen, operation, ranks, size, answer, mind)

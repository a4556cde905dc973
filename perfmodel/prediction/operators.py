"""What each operator of a phase does, and the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.equations import roofline
from perfmodel.machines.step import Step
from perfmodel.serving.steady import Steady, breakdown, steady_state
from perfmodel.shapes import Operator as Row
from perfmodel.shapes import number
from perfmodel.specs.types import Scenario


@dataclass(frozen=True)
class OperatorTime:
    """One operator in all layers of a step, or a cause beside the operators.

    Attributes
    ----------
    name : str
        Of the operator, ``draft.`` before those of a draft; else ``collective``, ``overhead``, ``host``, ``wait``, or
        ``imbalance`` for stages that wait for a slower one.
    flops, moved : float
        Work [FLOP] and traffic [B] of all chips together; 0 beside the operators.
    time : float
        Time on the way of a token or first token [s].
    limit : str
        ``compute`` or ``memory``, whichever takes most of the time; else the cause.
    share : float
        Of TTFT or TPOT [1].
    """

    name: str
    flops: float
    moved: float
    time: float
    limit: str
    share: float

    @property
    def intensity(self) -> float:
        """Operational intensity [FLOP/B]."""
        return self.flops / self.moved if self.moved else math.nan

    def to_dict(self) -> Row:
        """Return the documented JSON object."""
        return {
            "operator": self.name,
            "flops": number(self.flops),
            "bytes": number(self.moved),
            "flops_per_byte": number(self.intensity),
            "limit": self.limit,
            "time_s": number(self.time),
            "share": number(self.share),
        }


def _of_step(step: Step, total: float) -> Iterator[OperatorTime]:
    """Give the operators of a step, in the order in which they run."""
    names = dict.fromkeys([part.operator for part in step.overlaps] + [load.operator for load in step.loads])
    for name in names:
        mine = [part for part in step.overlaps if part.operator == name]
        bound = {
            limit: sum(float(part.count * time(compute=part.compute, memory=part.memory)) for part in mine)
            for limit, time in (("compute", roofline.compute_bound_time), ("memory", roofline.memory_bound_time))
        }
        loads = [load for load in step.loads if load.operator == name]
        spent = sum(bound.values())
        yield OperatorTime(
            name,
            sum(float(load.count * load.flops) for load in loads),
            sum(float(load.count * load.chips * load.moved) for load in loads),
            spent,
            max(bound, key=lambda limit: bound[limit]) if mine else "",
            spent / total,
        )


def _phase(steady: Steady, phase: str) -> tuple[OperatorTime, ...]:
    step = steady.prefill if phase == "prefill" else steady.decode
    causes = {cause: float(time) for cause, time in breakdown(steady)[phase].items()}
    total = sum(causes.values())
    beside = {cause: causes[cause] for cause in ("collective", "overhead", "host", "wait")}
    beside["imbalance"] = float(step.imbalance)
    return (
        *_of_step(step, total),
        *(OperatorTime(name, 0.0, 0.0, time, name, time / total) for name, time in beside.items() if time),
    )


def operator_times(scenario: Scenario) -> dict[str, tuple[OperatorTime, ...]]:
    """Return what the operators of each phase do, and the time that each takes.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.

    Returns
    -------
    dict of str to tuple of OperatorTime
        ``prefill`` adds up to TTFT, ``decode`` to TPOT, which a model that makes one pass does not have.

    Notes
    -----
    Of one step of all sequences that run, over all chips of a replica.  A dataflow machine runs a decoder as one, an
    SRAM pipeline counts the work of a prompt's chunks as a whole.
    """
    steady = steady_state(scenario)
    phases = ("prefill",) if scenario.model.task == "pool" else ("prefill", "decode")
    return {phase: _phase(steady, phase) for phase in phases}

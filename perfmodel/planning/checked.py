"""How surely an answer meets its objectives: in the simulation, and over the spread of the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfmodel import shapes
from perfmodel.serving.objectives import phrase
from perfmodel.specs.units import show

Key = tuple[str, str]


@dataclass(frozen=True)
class Checked:
    """What a simulation makes of the objectives of an answer.

    Attributes
    ----------
    limits, values, errors : dict
        By time and statistic: the objective, its mean over seeds, and the standard error of that mean; NaN of one seed,
        which is left alone only where a value is far from its limit [s].
    requests : int
        Requests of all seeds.
    of : tuple of (str, Checked)
        Of several traffics: what each one meets. The rest is then that of the traffic that stands worst, by objective.
    """

    limits: Mapping[Key, float]
    values: Mapping[Key, float]
    errors: Mapping[Key, float]
    requests: int
    of: tuple[tuple[str, Checked], ...] = ()

    def _beyond(self, key: Key, errors: float) -> float:
        """Return a value, so many standard errors up, over its limit."""
        error = 0.0 if math.isnan(self.errors[key]) else self.errors[key]
        return (self.values[key] + errors * error) / self.limits[key]

    @property
    def worst(self) -> float:
        """The largest of the values over their limits, each two standard errors up [1]."""
        return max((self._beyond(key, 2.0) for key in self.values), default=0.0)

    @property
    def met(self) -> bool:
        """Whether every objective is met by two standard errors."""
        return self.worst <= 1.0 and all(part.met for _, part in self.of)

    @property
    def missed(self) -> bool:
        """Whether an objective is missed by two standard errors; what is neither is too close to call."""
        return any(self._beyond(key, -2.0) > 1.0 for key in self.values)

    @property
    def nearest(self) -> Key:
        """The objective that stands worst."""
        return max(self.values, key=lambda one: self._beyond(one, 2.0))

    def words(self) -> str:
        """Return the objective that stands worst, with what the simulation gives."""
        key = self.nearest
        sure = f" +- {self.errors[key] / self.values[key]:.1%}" if self.errors[key] > 0 else ""
        whose = next((f" of {name}" for name, part in self.of if part.values[key] == self.values[key]), "")
        found = f"simulated {phrase(key)}{whose} {show(self.values[key], 's', 3)}{sure}"
        return found if self.met or self.missed else f"{found}: too close to call"

    def to_dict(self) -> dict[str, shapes.Checked]:
        """Return value and standard error of each objective [s]."""
        return {
            f"{time}_{what}_s": {
                "value": shapes.number(value),
                "standard_error_s": shapes.number(self.errors[time, what]),
            }
            for (time, what), value in self.values.items()
        }


def worst_of(parts: Sequence[tuple[str, Checked]]) -> Checked:
    """Return what several traffics meet together: of each objective that of the one which stands worst.

    Parameters
    ----------
    parts : sequence of (str, Checked)
        All with the same objectives, each at its own limit.
    """
    first = parts[0][1]
    by_key = {
        key: max((part for _, part in parts), key=lambda one: one.values[key] / one.limits[key]) for key in first.limits
    }
    return Checked(
        {key: part.limits[key] for key, part in by_key.items()},
        {key: part.values[key] for key, part in by_key.items()},
        {key: part.errors[key] for key, part in by_key.items()},
        first.requests,
        tuple(parts),
    )


@dataclass(frozen=True)
class Sure:
    """What the spread of the prediction does to an answer.

    Attributes
    ----------
    least, most : float
        Chips that the objectives take where the machine is as fast, and as slow, as the ends of the 80 % band say [1].
    probability : float
        That the answer meets its objectives, the speed of chip and engine drawn once for all replicas [1].
    """

    least: float
    most: float
    probability: float


@dataclass(frozen=True)
class Price:
    """What an answer costs at another limit of one objective.

    Attributes
    ----------
    objective : tuple of str
        Time and statistic.
    limit : float
        [s]
    replicas : int
        0 where no number of them meets it.
    chips, usd_per_hour : float
        [1], [USD]
    """

    objective: Key
    limit: float
    replicas: int
    chips: float
    usd_per_hour: float

    def to_dict(self) -> shapes.PriceOfObjective:
        """Return the documented JSON object."""
        there = self.replicas > 0
        return {
            "objective": "_".join((*self.objective, "s")),
            "limit_s": shapes.number(self.limit),
            "replicas": self.replicas if there else None,
            "chips": shapes.number(self.chips) if there else None,
            "usd_per_hour": shapes.number(self.usd_per_hour) if there else None,
        }

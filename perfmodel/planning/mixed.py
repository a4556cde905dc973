"""The answer for several traffics: one fleet for all of them, and a fleet for each beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.options import flag
from perfmodel.planning.checked import Checked
from perfmodel.planning.load import Sized, plan_name
from perfmodel.planning.mix import Mix, mix_of, parts_of
from perfmodel.planning.size import Sizing, size
from perfmodel.question import Options
from perfmodel.serving.objectives import Objectives, phrase
from perfmodel.shown import Shown
from perfmodel.specs.types import Model
from perfmodel.specs.units import show

#: What has no meaning, or none yet, where several traffics share a fleet.
_REFUSED = ("rate", "users", "growth", "years", "profile", "prefill_on", "save", "no_objective")
_UNITS = {"cost": "USD an hour", "power": "W", "chips": "chips"}


@dataclass(frozen=True, repr=False)
class Mixed(Shown):
    """Several traffics on one fleet, and where it was asked for a fleet each.

    Attributes
    ----------
    mix : Mix
    together : Sizing
        The answers for all of them; load and closed forms are those of all requests, what is simulated those of the
        traffic that stands worst.
    separate : tuple of Sizing
        One a traffic; none where it was not asked for.
    """

    mix: Mix
    together: Sizing
    separate: tuple[Sizing, ...] = ()

    @property
    def answers(self) -> tuple[Sized, ...]:
        """The best plan of each system for all traffics."""
        return self.together.answers

    @property
    def apart(self) -> float:
        """What a fleet each takes of what is made least; NaN where one is not served, or none was asked for."""
        if not self.separate or not all(one.answers for one in self.separate):
            return math.nan
        return sum(one.answers[0].goal(self.together.goal) for one in self.separate)

    @property
    def cheaper(self) -> str:
        """``together``, ``separate`` or ``tie``; empty where both are not known."""
        one, each = self.answers[0].goal(self.together.goal) if self.answers else math.nan, self.apart
        if math.isnan(one) or math.isnan(each):
            return ""
        return "tie" if math.isclose(one, each, rel_tol=1e-9) else "together" if one < each else "separate"

    @property
    def reason(self) -> str:
        """Why nothing serves the traffics, else empty."""
        return (
            ""
            if self.answers or (self.separate and all(one.answers for one in self.separate))
            else self.together.reason
        )

    def verdict(self) -> str:
        """Return what to take, and whether one fleet or one each takes less."""
        whole = f"on one fleet: {self.together.verdict()}"
        if not self.separate:
            return whole
        goal = _UNITS[self.together.goal]
        if not self.cheaper:
            missing = [part.name for part, one in zip(self.mix.streams, self.separate, strict=True) if not one.answers]
            return f"{whole}; a fleet each: {', '.join(missing) or 'its cost'} is not served or not published"
        each = f"{self.apart:,.4g} {goal}"
        word = {
            "together": f"that is less than a fleet each, {each}",
            "separate": f"a fleet each takes less, {each}",
            "tie": f"a fleet each takes the same, {each}",
        }[self.cheaper]
        return f"{whole}; {word}"

    def lines(self) -> list[str]:
        """Return a line a traffic: what the simulation of the best answer gives it."""
        checked = self.answers[0].checked if self.answers else None
        found = []
        for stream, (_, part) in zip(self.mix.streams, checked.of if checked is not None else (), strict=False):
            words = ", ".join(
                f"{phrase(key)} {show(value, 's', 3)} of {show(part.limits[key], 's', 3)}"
                for key, value in part.values.items()
            )
            found.append(f"{stream.name}, {stream.rate:g}/s: simulated {words}")
        return found

    def fleets(self) -> list[str]:
        """Return a line a fleet of its own: its traffic and verdict."""
        return [
            f"{stream.name}, {stream.rate:g}/s: {one.verdict()}"
            + (f" ({plan_name(one.answers[0].scenario)})" if one.answers else "")
            for stream, one in zip(self.mix.streams, self.separate, strict=False)
        ]

    def to_dict(self) -> shapes.Mixed:
        """Return the documented JSON object."""
        return {
            "verdict": self.verdict(),
            "traffics": [
                {
                    "traffic": stream.name,
                    "rate_per_s": shapes.number(stream.rate),
                    "objectives": shapes.numbers(Objectives(stream.limits).named()),
                    "checked": {answer.scenario.system.name: _of(answer.checked, at) for answer in self.answers},
                }
                for at, stream in enumerate(self.mix.streams)
            ],
            "together": self.together.to_dict(),
            "separate": [one.to_dict() for one in self.separate],
            "least": self.together.goal,
            "separate_total": shapes.number(self.apart),
            "cheaper": self.cheaper or None,
            "reason": self.reason or None,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the answers as flat columns: those of one fleet, then those of a fleet each."""
        names = [self.mix.name, *(f"{stream.name}@{stream.rate:g}/s" for stream in self.mix.streams)]
        return [
            {"fleet": name, **answer.row()}
            for name, one in zip(names, (self.together, *self.separate), strict=False)
            for answer in one.answers
        ]

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def _of(checked: Checked | None, at: int) -> dict[str, shapes.Checked] | None:
    return checked.of[at][1].to_dict() if checked is not None and checked.of else None


def mixed(
    model: str | Model,
    systems: Sequence[str],
    options: Options,
    changes: Sequence[str],
    given: Mapping[str, Any],
    objectives: Objectives,
    searched: Mapping[str, Any],
    tick: Callable[[str], None] | None = None,
) -> Mixed:
    """Search for one fleet that serves several traffics, and for one each where that is asked.

    Parameters
    ----------
    model, systems, options, changes
        The question; the traffic of the options is the mix.
    given : mapping
        Options beyond those of every question.
    objectives : Objectives
        Of the traffics that name none of their own.
    searched : mapping
        What a search is told, as parameters of ``size``.
    tick : callable, optional
    """
    for name in _REFUSED:
        if given.get(name):
            raise UserError(f"{flag(name)} goes with one traffic: in a mix each has its rate, as --traffic chat@40")
    parts = parts_of(str(options.traffic), objectives)
    mix = mix_of(model, systems[0], parts, options, changes)
    first = replace(options, traffic=parts[0].name)
    together = size(model, systems, mix.rate, mix.objectives, first, changes, **searched, mix=mix, tick=tick)
    fleets = []
    for part in parts if given.get("separate") else ():
        own = replace(options, traffic=part.name)
        fleets.append(size(model, systems, part.rate, Objectives(part.objectives), own, changes, **searched, tick=tick))
    return Mixed(mix, together, tuple(fleets))

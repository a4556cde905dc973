"""One question at several rates, or year by year: which plan lasts, and when to buy."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.planning.load import Sized, plan_name
from perfmodel.planning.size import Sizing
from perfmodel.shown import Shown


@dataclass(frozen=True)
class Step:
    """A rate, the year in which it comes, and its answer.

    Attributes
    ----------
    rate : float
        [1/s]
    year : int or None
        From now; None where rates stand beside each other.
    sizing : Sizing or None
        Set once it is worked out.
    """

    rate: float
    year: int | None = None
    sizing: Sizing | None = None


def growth_of(text: str) -> float:
    """Read the growth a year [1].

    Parameters
    ----------
    text : str
        ``60%/year``, ``60%``, ``0.6`` or ``x1.6``.
    """
    found = re.fullmatch(r"\s*([+-]?[\d.]+)\s*(%?)\s*(?:/\s*(?:year|a|yr)|a year)?\s*", text)
    try:
        growth = float(found[1]) / (100 if found[2] else 1) if found else math.nan
    except ValueError:
        growth = math.nan
    if not -0.9 <= growth <= 100:
        raise UserError(f"--growth '{text}': expected a share a year between -90% and 10000%, as 60%/year")
    return growth


def years_of(years: float) -> range:
    """Return the years from now up to one, today first.

    Parameters
    ----------
    years : float
    """
    return range(int(years) + 1)


@dataclass(frozen=True)
class Path:
    """A system whose every step is served, in the plan of its best answer at each.

    Attributes
    ----------
    system : str
    answers : tuple of Sized
        One a step.
    """

    system: str
    answers: tuple[Sized, ...]

    @property
    def chips(self) -> list[float]:
        """Chips that each step takes."""
        return [float(answer.chips) for answer in self.answers]

    @property
    def bought(self) -> list[float]:
        """Chips that are bought for each step: what those there are do not cover."""
        owned, purchases = 0.0, []
        for chips in self.chips:
            purchases.append(max(0.0, chips - owned))
            owned = max(owned, chips)
        return purchases

    @property
    def usd(self) -> float:
        """Mean cost of an hour over the steps, of the chips that are there by then [USD]."""
        owned, total = 0.0, 0.0
        for answer in self.answers:
            owned = max(owned, float(answer.chips))
            total += answer.usd_per_hour / float(answer.chips) * owned
        return total / len(self.answers)

    def plans(self) -> list[str]:
        """Return the layout of each step."""
        return [plan_name(answer.scenario) for answer in self.answers]


@dataclass(frozen=True, repr=False)
class Course(Shown):
    """The answers of one question at several rates.

    Attributes
    ----------
    steps : tuple of Step
    """

    steps: tuple[Step, ...]

    @property
    def sizings(self) -> list[Sizing]:
        """The answer of each step."""
        return [step.sizing for step in self.steps if step.sizing is not None]

    @property
    def paths(self) -> list[Path]:
        """Systems that serve every step, the cheapest over all steps first."""
        by_step = [{answer.scenario.system.name: answer for answer in sizing.answers} for sizing in self.sizings]
        names = [name for name in by_step[0] if all(name in answers for answers in by_step)]
        found = [Path(name, tuple(answers[name] for answers in by_step)) for name in names]
        return sorted(found, key=lambda path: (math.isnan(path.usd), path.usd, path.chips[-1]))

    @property
    def reason(self) -> str:
        """Why a step has no answer, else empty."""
        return next(
            (f"at {step.rate:.4g} requests/s: {one.reason}" for step, one in self._each() if one.reason),
            "",
        )

    def _each(self) -> list[tuple[Step, Sizing]]:
        return list(zip(self.steps, self.sizings, strict=True))

    def verdict(self) -> str:
        """Return what lasts and when to buy, or how the answer changes with the rate."""
        paths = self.paths
        if not paths:
            return f"no system serves every rate; {self.reason}" if self.reason else "no one system serves every rate"
        best = paths[0]
        grows = self.steps[0].year is not None
        money = f" at {best.usd:,.4g} USD an hour on average" if math.isfinite(best.usd) else ""
        over = "over the years" if grows else "over these rates"
        layouts = list(dict.fromkeys(best.plans()))
        lasts = f"{layouts[0]} lasts" if len(layouts) == 1 else f"its plan goes {' -> '.join(best.plans())}"
        buys = [
            f"{chips:,.0f} {'now' if step.year == 0 else f'in year {step.year}' if grows else f'up to {step.rate:g}/s'}"
            for step, chips in zip(self.steps, best.bought, strict=True)
            if chips
        ]
        return f"{best.system} is cheapest {over}{money}: {lasts}; buy {', '.join(buys)}"

    def flips(self) -> list[str]:
        """Return where another system, or another layout, becomes the best."""
        flips, last = [], ""
        for step, sizing in self._each():
            if not sizing.answers:
                continue
            best = sizing.answers[0].scenario
            name = f"{best.system.name} {plan_name(best)}"
            if last and name != last:
                flips.append(f"from {step.rate:.4g} requests/s on {name} is the best, before it {last}")
            last = name
        return flips

    def to_dict(self) -> shapes.Course:
        """Return the documented JSON object."""
        return {
            "verdict": self.verdict(),
            "steps": [
                {"rate_per_s": shapes.number(step.rate), "year": step.year, **sizing.to_dict()}
                for step, sizing in self._each()
            ],
            "paths": [
                {
                    "system": path.system,
                    "plans": path.plans(),
                    "chips": [shapes.number(count) for count in path.chips],
                    "bought": [shapes.number(count) for count in path.bought],
                    "usd_per_hour": shapes.number(path.usd),
                }
                for path in self.paths
            ],
            "flips": self.flips(),
            "reason": self.reason or None,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the answers as flat columns, those of each step after the other."""
        return [
            {"rate_per_s": step.rate, "year": step.year, **answer.row()}
            for step, sizing in self._each()
            for answer in sizing.answers
        ]

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def lines(course: Course) -> Sequence[str]:
    """Return a line a step: its verdict.

    Parameters
    ----------
    course : Course
    """
    return [
        f"{f'year {step.year}, ' if step.year is not None else ''}{step.rate:.4g} requests/s: {sizing.verdict()}"
        for step, sizing in zip(course.steps, course.sizings, strict=True)
    ]

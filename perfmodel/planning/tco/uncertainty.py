"""How sure a cost is: quasi-random samples over every estimate, indices of what matters, and ends one by one.

An estimate's value is drawn between its low and its high with the value as mode: triangular on the logarithm, or on the
number itself where the low is 0.  GPUs' times are drawn from the spread of rows left out of their fit, which holds
what their efficiencies leave open; other machines' from their estimates and a spread for what no measurement tells.
What two systems share, such as the price of electricity, is drawn once for both.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from perfmodel.machines.base import machine_of
from perfmodel.machines.power import shape_of
from perfmodel.prediction import MONEY_ROOTS, time_spreads
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.steady import Steady, steady_state
from perfmodel.specs.paths import provenance_of, put, quantities
from perfmodel.specs.types import Scenario

Array = NDArray[np.float64]

#: Samples where not told otherwise, and those that are worked out at a time so that they stay in the cache.
SAMPLES, BLOCK = 2**14, 2**13
#: An estimate that moves no result by more than this from end to end is not drawn.
LEAST = 0.002
#: What is drawn besides estimates, and what it stretches.
TTFT, TPOT = "error of TTFT", "error of TPOT"
#: The part of either that all machines of one engine share, and its share of the variance: nothing published tells it.
ENGINE_TTFT, ENGINE_TPOT = "error of TTFT, the engine's", "error of TPOT, the engine's"
_ERRORS = (TTFT, TPOT, ENGINE_TTFT, ENGINE_TPOT)
OF_ENGINE = 0.5
#: What an operator sets is not unknown.
KNOBS = ("system.efficiency.token_budget",)
#: Standard deviations that hold 80 % of a normal distribution on either side of its middle.
EIGHTY = 1.2815515655446004
#: Results of one set of values.
RESULTS = ("input", "output", "blended", "joules_per_output_token", "power_w")


@dataclass(frozen=True)
class Unknown:
    """One number that is not known: an estimate by its path, or the error of a predicted time.

    One that is ``shared`` is drawn once for all systems ``with_whom`` they have the same word in common.
    """

    path: str
    low: float
    value: float
    high: float
    shared: bool
    with_whom: str = ""

    def at(self, share: Array) -> Array:
        """Return the value that so much of the distribution lies below."""
        if self.path in _ERRORS:
            return np.asarray(np.exp(self.value * ndtri(share) / EIGHTY))
        ends = np.array([self.low, self.value, self.high])
        low, mode, high = np.log(ends) if self.low > 0 else ends
        width = max(high - low, 1e-300)
        turn = (mode - low) / width
        rising = low + np.sqrt(share * width * (mode - low))
        falling = high - np.sqrt((1 - share) * width * (high - mode))
        drawn = np.where(share < turn, rising, falling)
        return np.asarray(np.exp(drawn) if self.low > 0 else drawn)


def unknowns(scenario: Scenario) -> Iterator[Unknown]:
    """Give everything about a scenario that is not known."""
    measured = machine_of(scenario.system).spread_holds_efficiencies
    # Systems whose power rests on the same readings share what is not known of it.
    shared_roots = ("economics.", "system.power_shape.") if shape_of(scenario.system).shared else ("economics.",)
    for path, _, value in quantities(scenario):
        origin = provenance_of(scenario, path)
        if origin.kind != "estimate" or origin.low != origin.low:
            continue
        if (measured and path.startswith("system.efficiency.")) or path in KNOBS:
            continue
        if path.startswith("system.efficiency."):
            # One number of one file, such as the defaults of a kind, is the same for all that read it.
            yield Unknown(path, origin.low, float(value), origin.high, True, f"{origin.file} {origin.source}")
        else:
            yield Unknown(path, origin.low, float(value), origin.high, path.startswith(shared_roots))
    engine = f"{scenario.system.kind} {scenario.deployment.engine}"
    for spread, own, common in zip(time_spreads(scenario), (TTFT, TPOT), (ENGINE_TTFT, ENGINE_TPOT), strict=True):
        for path, share, whom in ((own, 1 - OF_ENGINE, ""), (common, OF_ENGINE, engine)):
            part = spread * share**0.5
            yield Unknown(path, -part, part, part, bool(whom), whom)


def outcome(scenario: Scenario, values: Mapping[str, Any], known: Steady | None = None) -> dict[str, Any]:
    """Return the results of a scenario with other values at some paths; NaN where the model does not fit.

    Parameters
    ----------
    scenario : Scenario
    values : mapping of str to float or array
        By path; ``TTFT``, ``TPOT`` and those of the engine are factors on the predicted times.
    known : Steady, optional
        The steady state, where the values do not change it.
    """
    times = {
        TTFT: values.get(TTFT, 1.0) * values.get(ENGINE_TTFT, 1.0),
        TPOT: values.get(TPOT, 1.0) * values.get(ENGINE_TPOT, 1.0),
    }
    for path, value in values.items():
        if path not in _ERRORS:
            scenario = put(scenario, path, value)
    steady = steady_state(scenario) if known is None else known
    further = (steady.output - 1) * steady.tpot
    stretched = (steady.ttft * times[TTFT] + further * times[TPOT]) / (steady.ttft + further)
    drawn = draw(scenario, steady)
    slower = replace(steady, rate=steady.rate / stretched)
    money = cost(scenario, slower, drawn)
    watts = drawn.mean.watts
    found = (money.input, money.output, money.blended, watts / (slower.rate * slower.output), watts)
    fits = np.asarray(steady.fit.cap) >= 1
    return {key: np.where(fits, value, np.nan) for key, value in zip(RESULTS, found, strict=True)}


@dataclass(frozen=True)
class Swing:
    """How far one unknown moves a result from end to end, all others at their values."""

    path: str
    low: float
    high: float

    @property
    def width(self) -> float:
        """Distance of the ends, as a logarithm; without end where only one of them has an answer, 0 where none has."""
        ends = np.array([self.low, self.high])
        if np.isnan(ends).all():
            return 0.0
        return float(abs(np.diff(np.log(ends))[0])) if np.all(ends > 0) else np.inf


def _changes_times(unknown: Unknown) -> bool:
    return unknown.path not in _ERRORS and not unknown.path.startswith(MONEY_ROOTS)


def tornado(scenario: Scenario) -> dict[str, list[Swing]]:
    """Return the swings of every unknown by result, the widest first; errors of times between P10 and P90."""
    steady = steady_state(scenario)
    swings: dict[str, list[Swing]] = {result: [] for result in RESULTS}
    for unknown in unknowns(scenario):
        ends = unknown.at(np.array([0.1, 0.9])) if unknown.path in _ERRORS else (unknown.low, unknown.high)
        known = None if _changes_times(unknown) else steady
        low, high = (outcome(scenario, {unknown.path: float(end)}, known) for end in ends)
        for result in RESULTS:
            swings[result].append(Swing(unknown.path, float(low[result]), float(high[result])))
    return {result: sorted(found, key=lambda swing: -swing.width) for result, found in swings.items()}


@dataclass(frozen=True)
class Drawn:
    """Samples of one system: results by name, and the place of each of its unknowns among the columns drawn."""

    results: Mapping[str, Array]
    columns: Mapping[str, int]

    def percentiles(self, result: str) -> dict[str, float | None]:
        """Return P10, P50 and P90; none where the model fits in no sample."""
        values = self.results[result]
        values = values[np.isfinite(values)]
        if not len(values):
            return {"p10": None, "p50": None, "p90": None}
        return {f"p{at}": float(np.percentile(values, at)) for at in (10, 50, 90)}


@dataclass(frozen=True)
class Sample:
    """Samples of several systems over the same draws.

    Attributes
    ----------
    shares : array
        One row a sample, one column an unknown, each evenly over 0 to 1.
    systems : tuple of Drawn or None
        ``None`` for a system that has no answer.
    """

    shares: Array
    systems: tuple[Drawn | None, ...]

    def cheaper(self, index: int, other: int, result: str = "blended") -> float | None:
        """Return the probability that one system costs less than another; one that does not fit costs no end.

        ``None`` where one of them has no price at all.
        """
        drawn = self.systems[index], self.systems[other]
        if drawn[0] is None or drawn[1] is None:
            return None
        values = [part.results[result] for part in drawn if part is not None]
        if any(np.isnan(part).all() for part in values):
            return None
        mine, theirs = (np.nan_to_num(part, nan=np.inf) for part in values)
        return float(np.mean(mine < theirs))

    def indices(self, system: int, result: str = "blended") -> dict[str, float]:
        """Return the first-order Sobol index of each unknown: its share of the variance of the result's logarithm."""
        drawn = self.systems[system]
        if drawn is None:
            return {}
        values = drawn.results[result]
        fits = np.isfinite(values)
        if not fits.any():
            return {}
        found = {
            path: first_order(self.shares[fits, column], np.log(values[fits])) for path, column in drawn.columns.items()
        }
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def first_order(share: Array, values: Array, bins: int = 32) -> float:
    """Return the share of variance that one input explains alone, from samples that are there anyway.

    Parameters
    ----------
    share : array
        The input, evenly over 0 to 1.
    values : array
        The result.
    bins : int
        Slices of the input; the variance of their means is what it explains.
    """
    total = float(np.var(values))
    if total == 0:
        return 0.0
    at = np.minimum((share * bins).astype(int), bins - 1)
    counts = np.bincount(at, minlength=bins)
    means = np.bincount(at, values, minlength=bins) / np.maximum(counts, 1)
    between = float(np.average((means - values.mean()) ** 2, weights=counts))
    # Means of few samples scatter by themselves.
    return max(0.0, (between / total - bins / len(values)) / (1 - bins / len(values)))


def draw_samples(scenarios: Sequence[Scenario | None], samples: int = SAMPLES, seed: int = 0) -> Sample:
    """Draw every unknown of several systems at once.

    Parameters
    ----------
    scenarios : sequence of Scenario or None
        ``None`` for a system that has no answer.
    samples : int
        A power of 2 keeps the quasi-random points in balance.
    seed : int

    Returns
    -------
    Sample
    """
    chosen: list[list[Unknown]] = []
    columns: dict[tuple[int | str, str], int] = {}
    for at, scenario in enumerate(scenarios):
        kept = _that_matter(scenario) if scenario is not None else []
        chosen.append(kept)
        for unknown in kept:
            columns.setdefault(_drawn_for(unknown, at), len(columns))
    # The scrambled points lie inside the open interval but for rounding.
    with warnings.catch_warnings():
        # That a power of 2 is best is said where samples are asked for.
        warnings.filterwarnings("ignore", message="The balance properties")
        shares = qmc.Sobol(max(1, len(columns)), seed=seed).random(samples).clip(1e-9, 1 - 1e-9)
    systems: list[Drawn | None] = []
    for at, (scenario, kept) in enumerate(zip(scenarios, chosen, strict=True)):
        if scenario is None:
            systems.append(None)
            continue
        drawn = {unknown.path: columns[_drawn_for(unknown, at)] for unknown in kept}
        known = None if any(map(_changes_times, kept)) else steady_state(scenario)
        parts = []
        for start in range(0, samples, BLOCK):
            block = shares[start : start + BLOCK]
            values = {unknown.path: unknown.at(block[:, drawn[unknown.path]]) for unknown in kept}
            part = outcome(scenario, values, known)
            parts.append({key: np.broadcast_to(value, len(block)) for key, value in part.items()})
        results = {key: np.concatenate([part[key] for part in parts]) for key in RESULTS}
        systems.append(Drawn(results, drawn))
    return Sample(shares, tuple(systems))


def _drawn_for(unknown: Unknown, at: int) -> tuple[int | str, str]:
    """Return what an unknown is drawn by: its path, and the system or those it is shared with."""
    return (unknown.with_whom if unknown.shared else at), unknown.path


def _that_matter(scenario: Scenario) -> list[Unknown]:
    """Return the unknowns that move the blended price or the energy of a token."""
    swings = tornado(scenario)
    results = ("blended", "joules_per_output_token")
    moved = {swing.path for result in results for swing in swings[result] if swing.width >= LEAST}
    return [unknown for unknown in unknowns(scenario) if unknown.path in moved]

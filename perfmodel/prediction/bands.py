"""How sure a prediction is: the band of its class, and the effects of its estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.machines.base import machine_of
from perfmodel.machines.power import shape_of
from perfmodel.prediction.answer import MONEY, Prediction
from perfmodel.prediction.evaluation import evaluate, metrics_of
from perfmodel.serving.steady import Steady
from perfmodel.specs.paths import get, provenance_of, put, quantities
from perfmodel.specs.types import Provenance, Scenario
from perfmodel.specs.units import show

#: Metrics that carry a band of their own; the others follow from them.
TIMES = ("ttft_s", "ttft_median_s", "tpot_s")
#: Where the numbers stand that power and money alone depend on.
MONEY_ROOTS = ("economics.", "system.price.", "system.power.", "system.power_shape.", "system.carbon.", "system.die.")
#: Logarithm of a factor that holds 80 % of the measured speed-ups of speculation, each at its measured accepted length
#: (34 of data/measured/speculative.csv, median 14 % too high).
SPECULATION_SPREAD = 0.264
#: Share of the requests that fit from which on the cache decides who waits, and by how much bands are wider there: a
#: few percent of memory move TTFT by factors.
NEAR_CAP, TTFT_AT_CAP, TPOT_AT_CAP = 0.85, 3.0, 1.5


def times_of(scenario: Scenario) -> tuple[str, ...]:
    """Return those of the times that a model has.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    tuple
    """
    return TIMES[:2] if scenario.model.task == "pool" else TIMES


@dataclass(frozen=True)
class Effect:
    """How far an estimate moves an answer between its low and its high: logarithms of factors by metric."""

    path: str
    text: str
    moves: Mapping[str, tuple[float, float]]
    fits: bool

    @property
    def strength(self) -> float:
        """The largest move, infinite where an end of the estimate does not fit."""
        return math.inf if not self.fits else max(abs(end) for ends in self.moves.values() for end in ends)


def _estimated(scenario: Scenario, money: bool) -> Iterator[tuple[str, str, Provenance]]:
    """Give path, text and origin of every estimate, of those that move money or of those that move times."""
    for path, unit, value in quantities(scenario):
        origin = provenance_of(scenario, path)
        if origin.kind == "estimate" and origin.low == origin.low and path.startswith(MONEY_ROOTS) == money:
            span = f"{show(origin.low, unit, 3)} to {show(origin.high, unit, 3)}"
            yield path, f"estimate {path} = {show(float(value), unit, 3)} ({span})", origin


def _at_ends(scenario: Scenario, estimates: Sequence[tuple[str, str, Provenance]]) -> Scenario:
    """Return the scenario as arrays: each estimate at its low, then each at its high, all others as they are."""
    count = len(estimates)
    for position, (path, _, origin) in enumerate(estimates):
        values = np.full(2 * count, float(get(scenario, path)))
        values[[position, count + position]] = origin.low, origin.high
        scenario = put(scenario, path, values)
    return scenario


def _strongest(
    estimates: Sequence[tuple[str, str, Provenance]], answer: Prediction, moved: Mapping[str, Any], fits: Any
) -> list[Effect]:
    """Return what each estimate moves, the strongest first, from the metrics at all ends."""
    count = len(estimates)
    ratios = {
        key: np.log(np.broadcast_to(values, 2 * count) / float(answer.metrics[key])).reshape(2, count).T.tolist()
        for key, values in moved.items()
        if float(answer.metrics[key]) > 0
    }
    both = np.all(np.broadcast_to(fits, 2 * count).reshape(2, count), axis=0).tolist()
    effects = [
        Effect(path, text, {key: tuple(ends[position]) for key, ends in ratios.items()}, both[position])
        for position, (path, text, _) in enumerate(estimates)
    ]
    seen = [effect for effect in effects if effect.moves and effect.strength >= 0.01]
    return sorted(seen, key=lambda effect: effect.strength, reverse=True)


def effects_of(scenario: Scenario, answer: Prediction) -> list[Effect]:
    """Return the estimates that move the times, the strongest first.

    Parameters
    ----------
    scenario : Scenario
        Its numbers are floats.
    answer : Prediction
        Of that scenario.

    Returns
    -------
    list
        Of each estimate its path, and the logarithms by which its low and high end move each time.
    """
    estimates = list(_estimated(scenario, money=False))
    moved = evaluate(_at_ends(scenario, estimates), times_of(scenario))
    return _strongest(estimates, answer, moved.metrics, moved.fits)


def money_effects(scenario: Scenario, answer: Prediction, steady: Steady) -> list[Effect]:
    """Return the estimates that move power and cost, the strongest first; the steady state stays as it is.

    Parameters
    ----------
    scenario : Scenario
    answer : Prediction
    steady : Steady

    Returns
    -------
    list of Effect
    """
    estimates = list(_estimated(scenario, money=True))
    return _strongest(estimates, answer, metrics_of(_at_ends(scenario, estimates), steady, MONEY), True)


def money_band(
    answer: Prediction, band: Mapping[str, Mapping[str, float]], effects: list[Effect]
) -> dict[str, dict[str, float]]:
    """Return the 80 % band of power and cost: the estimates, and for what is a token's the band of the rate.

    Parameters
    ----------
    answer : Prediction
    band : mapping
    effects : list of Effect

    Returns
    -------
    dict
    """
    of = "input_tokens_per_s" if answer.scenario.model.task == "pool" else "output_tokens_per_s"
    rate = answer.metrics[of]
    slower, faster = (abs(math.log(band[of][end] / float(rate))) for end in ("low", "high"))
    bands = {}
    for key in MONEY:
        value = float(answer.metrics[key])
        if not value > 0:
            continue
        of_rate = (0.0, 0.0) if key == "power_w" else (faster, slower)
        moved = [effect.moves[key] for effect in effects if key in effect.moves]
        down = math.hypot(of_rate[0], *(min(0.0, *ends) for ends in moved))
        up = math.hypot(of_rate[1], *(max(0.0, *ends) for ends in moved))
        bands[key] = {"low": value * math.exp(-down), "high": value * math.exp(up)}
    return bands


def money_warnings(scenario: Scenario, answer: Prediction, effects: list[Effect]) -> list[str]:
    """Return what power and cost rest on.

    Parameters
    ----------
    scenario : Scenario
    answer : Prediction
    effects : list of Effect

    Returns
    -------
    list of str
    """
    if answer.reason or not answer.fits:
        return []
    system = scenario.system
    warnings = []
    shape = shape_of(system)
    if caution := shape.cautions(system)[1]:
        warnings.append(caution)
    needed = {path: get(scenario, path) for path in shape.needs}
    price = system.price
    rented = scenario.economics is not None and scenario.economics.ownership == "rented"
    needed |= {"system.price.rent_per_chip": price.rent_per_chip} if rented else {"system.price.system": price.system}
    missing = [path for path, value in needed.items() if value != value]
    if missing:
        lost = "no power" if rented and price.rent_per_chip == price.rent_per_chip else "no cost"
        warnings.append(f"{lost}, for want of {' and '.join(missing)}: not published, so give it with --set")
    elif np.all(scenario.traffic.concurrency == 1) and scenario.model.task != "pool":
        warnings.append("$/Mtok is that of one request at once, a machine that idles; --concurrency says the load")
    key = "usd_per_mtok_blended"
    strongest = sorted((e for e in effects if key in e.moves), key=lambda e: max(map(abs, e.moves[key])), reverse=True)
    if strongest:
        words = [
            f"{effect.path} {math.expm1(effect.moves[key][0]):+.0%} to {math.expm1(effect.moves[key][1]):+.0%}"
            for effect in strongest[:3]
        ]
        warnings.append(f"{len(strongest)} estimates move $/Mtok, most of all {', '.join(words)}")
    return warnings


def estimates_of(effects: list[Effect]) -> list[str]:
    """Return one line for each estimate that moves the answer.

    Parameters
    ----------
    effects : list of Effect

    Returns
    -------
    list of str
    """
    lines = []
    for effect in effects:
        words = [] if effect.fits else ["whether it fits"]
        for key, name in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
            low, high = effect.moves.get(key, (0.0, 0.0))
            if max(abs(low), abs(high)) >= 0.01:
                words.append(f"{name} {math.expm1(low):+.0%} to {math.expm1(high):+.0%}")
        if words:
            lines.append(f"{effect.text} moves {', '.join(words)}")
    return lines


def time_spreads(scenario: Scenario) -> tuple[float, float]:
    """Return logarithms of factors on TTFT and TPOT that hold 80 % of what the models leave open, estimates apart.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    tuple of float
    """
    ttft, tpot = machine_of(scenario.system).spreads(scenario)
    if scenario.speculation is not None:
        tpot = math.hypot(tpot, SPECULATION_SPREAD)
    return ttft, tpot


def band_of(scenario: Scenario, answer: Prediction, effects: list[Effect]) -> dict[str, dict[str, float]]:
    """Return the 80 % band of each time: residuals of the calibration and estimates, in quadrature.

    Parameters
    ----------
    scenario : Scenario
    answer : Prediction
        Of that scenario, or of one point of a sweep of it.
    effects : list
        From :func:`effects_of`.

    Returns
    -------
    dict of str to dict
        ``low`` and ``high`` of each metric, in its own unit.
    """
    if machine_of(scenario.system).spread_holds_efficiencies:
        # The residuals already hold what the efficiencies leave open.
        effects = [effect for effect in effects if not effect.path.startswith("system.efficiency")]
    ttft, tpot = time_spreads(scenario)
    if float(scenario.traffic.concurrency) > NEAR_CAP * float(answer.max_concurrency):
        ttft, tpot = ttft * TTFT_AT_CAP, tpot * TPOT_AT_CAP
    spreads = {"ttft_s": ttft, "ttft_median_s": ttft, "tpot_s": tpot}
    factors = {}
    for key in times_of(scenario):
        if not float(answer.metrics[key]) > 0:
            continue  # one token has no time to the next
        down = math.hypot(spreads[key], *(min(0.0, *effect.moves[key]) for effect in effects))
        up = math.hypot(spreads[key], *(max(0.0, *effect.moves[key]) for effect in effects))
        factors[key] = math.exp(-down), math.exp(up)
    bands = {
        key: {"low": float(answer.metrics[key]) * low, "high": float(answer.metrics[key]) * high}
        for key, (low, high) in factors.items()
    }
    latency = float(answer.metrics["request_latency_s"])
    ends, middle = dict(bands["ttft_s"]), float(answer.metrics["ttft_s"])
    if "tpot_s" in bands:
        steps = float(scenario.traffic.output) - 1
        ends = {end: value + steps * bands["tpot_s"][end] for end, value in ends.items()}
        middle += steps * float(answer.metrics["tpot_s"])
    bands["request_latency_s"] = {end: latency * value / middle for end, value in ends.items()}
    for key in ("output_tokens_per_s", "input_tokens_per_s", "tokens_per_s_per_chip"):
        rate = float(answer.metrics[key])
        if rate != rate:
            continue
        bands[key] = {"low": rate * middle / ends["high"], "high": rate * middle / ends["low"]}
    for key, time in (("output_tokens_per_s_per_user", "tpot_s"), ("input_tokens_per_s_per_user", "ttft_s")):
        if time not in factors:
            continue
        rate, (low, high) = float(answer.metrics[key]), factors[time]
        bands[key] = {"low": rate / high, "high": rate / low}
    # What does not exist, a time between tokens where there is one, has no band.
    return {key: ends for key, ends in bands.items() if not math.isnan(ends["low"])}

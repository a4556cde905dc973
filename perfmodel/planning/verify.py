"""An answer put to the simulation, and to the spread of the prediction."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from perfmodel.planning.checked import Checked, Key, Sure
from perfmodel.planning.load import Sized
from perfmodel.planning.simulate import COMPARED, drawn, measured, simulate
from perfmodel.prediction import run
from perfmodel.serving.objectives import Objectives, queue_of, replicas_for
from perfmodel.specs.types import Scenario

#: Seeds at least and at most, and requests of each at least.
SEEDS, REQUESTS = (3, 6), 4000
#: Replicas that are simulated at most: few where each runs many requests, which level what a router sees.
_REPLICAS, _FEW, _MANY_RUNNING = 8, 3, 48
#: Mean lives of a request until a replica is in its stride, and those that are looked at then.
_WARM_UP, _LOOKED_AT = 3.0, 9.0
#: Share beyond its limit from which on one seed is enough to know that an objective is missed.
_FAR = 1.25

#: Standard deviations from the middle to an end of an 80 % band.
_BAND = NormalDist().inv_cdf(0.9)


def check(answer: Sized, faster: float = 1.0) -> Checked:
    """Simulate an answer until its objectives are known to be met or missed, or for the most seeds.

    Parameters
    ----------
    answer : Sized
        With one objective at least.
    faster : float
        Requests arrive so many times as fast, and times are held to as much less: what a machine that is slower by
        this factor is asked for [1].

    Returns
    -------
    Checked
    """
    load = answer.load
    service, limits = load.service, {key: limit / faster for key, limit in load.objectives.limits.items()}
    running = load.queue.running if math.isfinite(load.queue.running) else float(service.cap)
    replicas = min(load.replicas, _FEW if running > _MANY_RUNNING else _REPLICAS)
    life = max(running, 1.0) * replicas
    first = math.ceil(_WARM_UP * life)
    # Those that come last meet a replica that empties.
    last = first + max(REQUESTS, math.ceil(_LOOKED_AT * life))
    count = last + math.ceil(life)
    rate = load.rate * faster * replicas / load.replicas
    seen: dict[Key, list[float]] = {key: [] for key in limits}
    found = Checked(limits, {}, {}, 0)
    for seed in range(SEEDS[1]):
        ran = simulate(
            service.times,
            drawn(rate, load.arrival_scv, service.lengths, count, seed),
            cached=service.cached,
            seed=seed,
            replicas=replicas,
            routing=service.routing,
        )
        met = measured(ran.between(first, last))
        for (time, what), values in seen.items():
            value = met[next(key for key, name in COMPARED.items() if name == time)][what]
            values.append(0.0 if value is None else value)
        means = {key: float(np.mean(values)) for key, values in seen.items()}
        errors = {
            key: float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
            for key, values in seen.items()
        }
        found = Checked(limits, means, errors, (seed + 1) * count)
        if any(means[key] > _FAR * limit for key, limit in limits.items()):
            break
        if seed + 1 >= SEEDS[0] and (found.met or found.missed):
            break
    return found


def spread(scenario: Scenario) -> float:
    """Return the standard deviation of the logarithm of a plan's speed, by the band of its prediction [1].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    float
        The larger of those of TTFT and TPOT; NaN where there is no band.
    """
    found = run(scenario).band
    wide = [math.log(found[of]["high"] / found[of]["low"]) / (2 * _BAND) for of in ("ttft_s", "tpot_s") if of in found]
    return max(wide, default=math.nan)


def slower(objectives: Objectives, factor: float) -> Objectives:
    """Return objectives for a machine that is not slower, but held to times shorter by a factor [1]."""
    return Objectives({key: limit / factor for key, limit in objectives.limits.items()})


def sure(answer: Sized, most: int) -> Sure | None:
    """Return how many chips the spread of the prediction takes, and how likely the answer meets its objectives.

    A machine whose every time is longer by a factor is one of the present times at a rate higher by it, with
    objectives shorter by it; all replicas are of one chip and engine, so that the factor is one for all.

    Parameters
    ----------
    answer : Sized
    most : int
        Replicas beyond which the search for the most chips stops.

    Returns
    -------
    Sure or None
        None without objectives or without a band.
    """
    load, sigma = answer.load, spread(answer.scenario)
    if not load.objectives.limits or not sigma > 0:
        return None

    def needed(factor: float) -> int:
        count, _ = replicas_for(
            load.service, load.rate * factor, load.arrival_scv, slower(load.objectives, factor), most
        )
        return count

    # What the closed form takes now stands for what the simulation was content with.
    now = needed(1.0)
    if not now:
        return None

    def holds(factor: float) -> bool:
        queue = queue_of(load.service, load.rate * factor, load.arrival_scv, now)
        return not queue.saturated and not slower(load.objectives, factor).failed(queue)

    low, high = 1.0, math.exp(4 * sigma)
    while high / low > 1.03:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    each = answer.chips / now
    slow = needed(math.exp(_BAND * sigma))
    return Sure(
        each * (needed(math.exp(-_BAND * sigma)) or 1),
        each * slow if slow else math.inf,
        NormalDist().cdf(math.log(low) / sigma),
    )

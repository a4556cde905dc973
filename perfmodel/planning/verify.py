"""An answer put to the simulation, and to the spread of the prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from perfmodel.machines import speculation
from perfmodel.planning.checked import Checked, Key, Price, Sure, worst_of
from perfmodel.planning.events import simulate
from perfmodel.planning.load import Sized
from perfmodel.planning.requests import Simulated, Stream, drawn, merged
from perfmodel.planning.simulate import measured
from perfmodel.prediction import run
from perfmodel.serving.objectives import QUEUE_TIMES, Objectives, queue_of, replicas_for, statistic
from perfmodel.specs.types import Scenario

#: Seeds at least and at most, and requests of each at least.
SEEDS, REQUESTS = (3, 6), 4000
#: Replicas that are simulated at most: few where each runs many requests, which level what a router sees.
_REPLICAS, _FEW, _MANY_RUNNING = 8, 3, 48
#: Mean lives of a request until a replica is in its stride, and those that are looked at then.
_WARM_UP, _LOOKED_AT = 3.0, 9.0
#: Ratio to its limit from which on one seed is enough to know that an objective is missed, and that all are met.
_FAR, _NEAR = 1.12, 0.75
#: Factors on an objective at which its price is told.
_PRICED = (0.8, 1.0, 1.5, 2.5)

#: Share of what a replica can do at which it counts as idle, and replicas that no price looks beyond.
_IDLE, _MANY = 1e-3, 100_000
#: Standard deviations to which the chance of meeting the objectives is told.
_STEP = 0.25
#: Times more requests that are simulated at most where one of several traffics is rare.
_RARE = 4.0
#: Standard deviations from the middle to an end of an 80 % band.
_BAND = NormalDist().inv_cdf(0.9)


def check(answer: Sized, growth: float = 1.0, factor: float = 1.0, streams: Sequence[Stream] = ()) -> Checked:
    """Simulate an answer until its objectives are known to be met or missed, or for the most seeds.

    Parameters
    ----------
    answer : Sized
        With one objective at least.
    growth : float
        Of the rate, for which there is to be room [1].
    factor : float
        By which the machine is taken to be slower: as requests that arrive faster by it and are held to shorter times
        [1].
    streams : sequence of Stream
        Several traffics, each judged by its own requests; one where there are none.

    Returns
    -------
    Checked
    """
    load = answer.load
    running = load.queue.running if math.isfinite(load.queue.running) else float(load.service.cap)
    replicas = min(load.replicas, _FEW if running > _MANY_RUNNING else _REPLICAS)
    life = max(running, 1.0) * replicas
    first = math.ceil(_WARM_UP * life)
    least = min((stream.rate / load.rate for stream in streams), default=1.0)
    # Those that come last meet a replica that empties; a rare traffic is to have requests enough of its own.
    last = first + math.ceil(
        max(REQUESTS, math.ceil(_LOOKED_AT * life)) * min(_RARE, 1 / (least * max(1, len(streams))))
    )
    seen = [
        _Seen(stream.name, slower(Objectives(stream.limits), factor).limits)
        for stream in streams
        or (Stream("", load.rate, load.arrival_scv, load.service.lengths, load.objectives.limits),)
    ]
    share = growth * factor * replicas / load.replicas
    found = Checked({}, {}, {}, 0)
    for seed in range(SEEDS[1]):
        _simulate(answer, streams, share, replicas, (first, last, last + math.ceil(life)), seed, seen)
        parts = [(one.name, one.checked((seed + 1) * (last + math.ceil(life)))) for one in seen]
        found = worst_of(parts) if streams else parts[0][1]
        ratios = [found.values[key] / limit for key, limit in found.limits.items()]
        if max(ratios) > _FAR or max(ratios) < _NEAR:
            break
        if seed + 1 >= SEEDS[0] and (found.met or found.missed):
            break
    return found


@dataclass
class _Seen:
    """What the requests of one traffic met, a value a seed."""

    name: str
    limits: Mapping[Key, float]
    values: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, ran: Simulated) -> None:
        met = measured(ran, sorted({what for _, what in self.limits if what != "mean"}))
        for time, what in self.limits:
            value = met[next(key for key, name in QUEUE_TIMES.items() if name == time)][what]
            self.values.setdefault((time, what), []).append(0.0 if value is None else value)

    def checked(self, requests: int) -> Checked:
        return Checked(
            self.limits,
            {key: float(np.mean(values)) for key, values in self.values.items()},
            {
                key: float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
                for key, values in self.values.items()
            },
            requests,
        )


def _simulate(
    answer: Sized,
    streams: Sequence[Stream],
    share: float,
    replicas: int,
    counts: tuple[int, int, int],
    seed: int,
    seen: Sequence[_Seen],
) -> None:
    """Simulate one seed: of its requests those between the first two counts are looked at."""
    load, (first, last, count) = answer.load, counts
    service = load.service
    if streams:
        requests, owner = merged(streams, share, count, seed)
    else:
        requests, owner = drawn(load.rate * share, load.arrival_scv, service.lengths, count, seed), np.zeros(count)
    ran = simulate(
        service.times, requests, cached=service.cached, seed=seed, replicas=replicas, routing=service.routing
    ).between(first, last)
    for at, one in enumerate(seen):
        one.add(ran.only(owner[first:last] == at) if streams else ran)


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
    """Return the objectives of a machine that is slower by a factor: those of the present one are shorter by it [1]."""
    return Objectives({key: limit / factor for key, limit in objectives.limits.items()})


def sure(answer: Sized, whole: bool = True) -> Sure | None:
    """Return how many chips the spread of the prediction takes, and how likely the answer meets its objectives.

    A machine whose every time is longer by a factor is one of the present times at a rate higher by it, with
    objectives shorter by it; all replicas are of one chip and engine, so that the factor is one for all.

    Parameters
    ----------
    answer : Sized
    whole : bool
        Whether only whole units of purchase count.

    Returns
    -------
    Sure or None
        None without objectives or without a band.
    """
    load, sigma = answer.load, spread(answer.scenario)
    if not load.objectives.limits or not sigma > 0:
        return None

    def needed(factor: float, near: float) -> int:
        count, _ = replicas_for(
            load.service,
            load.rate * factor,
            load.arrival_scv,
            slower(load.objectives, factor),
            _MANY,
            math.ceil(near),
        )
        return count

    now = needed(1.0, load.replicas)
    if not now:
        return None
    # Where the simulation was content with fewer, what the closed form takes stands for them.
    count = max(now, load.replicas)

    def holds(factor: float) -> bool:
        queue = queue_of(load.service, load.rate * factor, load.arrival_scv, count)
        return not queue.saturated and not slower(load.objectives, factor).failed(queue)

    low, high = 1.0, math.exp(4 * sigma)
    while high / low > math.exp(_STEP * sigma):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    each = answer.chips / count
    end = math.exp(_BAND * sigma)
    slow, fast = needed(end, now * end), needed(1 / end, now / end)
    least, most = (sold(answer.scenario, one) if whole else one for one in (fast or 1, slow))
    return Sure(
        math.ceil(each * least),
        math.ceil(each * most) if slow else math.inf,
        NormalDist().cdf(math.log(math.sqrt(low * high)) / sigma),
    )


def floors(answer: Sized) -> dict[Key, float]:
    """Return what each objective comes to on a machine with nothing else to do [s].

    Parameters
    ----------
    answer : Sized
    """
    load = answer.load
    idle = queue_of(load.service, load.service.capacity * _IDLE, 1.0, 1)
    return {key: statistic(idle, *key) for key in load.objectives.limits}


def prices(answer: Sized) -> tuple[Price, ...]:
    """Return what an answer costs at other limits of each objective, the others as they are.

    The plan stays, and what the closed form takes at each limit goes in proportion to what was simulated.

    Parameters
    ----------
    answer : Sized
        With its floors.
    """
    load, limits = answer.load, answer.load.objectives.limits
    now, _ = replicas_for(load.service, load.rate, load.arrival_scv, load.objectives, _MANY, load.replicas)
    priced = []
    for key, limit in limits.items():
        near = now or load.replicas
        for factor in _PRICED:
            other = float(f"{limit * factor:.3g}") if factor != 1.0 else limit
            changed = Objectives({**limits, key: other})
            count = now
            if factor != 1.0:
                count, _ = replicas_for(load.service, load.rate, load.arrival_scv, changed, 20 * load.replicas, near)
            near = count or near
            replicas = sold(answer.scenario, math.ceil(count / now * load.replicas - 1e-9)) if count and now else 0
            share = replicas / load.replicas
            priced.append(Price(key, other, replicas, answer.chips * share, answer.usd_per_hour * share))
    return tuple(priced)


def sold(scenario: Scenario, replicas: int, fewer: bool = False) -> int:
    """Return the replicas that whole units of purchase hold: no fewer than these, or the next fewer.

    Parameters
    ----------
    scenario : Scenario
        The plan of a replica.
    replicas : int
    fewer : bool
        Whether a unit less is wanted.
    """
    unit, each = _unit(scenario)
    units = math.ceil(replicas * each / unit * (1 - 1e-12))
    # Where a replica takes more than a unit, a unit less may hold as many.
    held = int((units - fewer) * unit / each * (1 + 1e-12))
    return held if not fewer else min(held, replicas - 1)


def within(scenario: Scenario, chips: float) -> int:
    """Return the replicas that whole units of purchase hold within a number of chips.

    Parameters
    ----------
    scenario : Scenario
        The plan of a replica.
    chips : float
    """
    unit, each = _unit(scenario)
    return int(math.floor(chips / unit * (1 + 1e-12)) * unit / each * (1 + 1e-12))


def _unit(scenario: Scenario) -> tuple[float, float]:
    """Return the chips of a unit of purchase, and of a replica."""
    system = scenario.system
    each = float(scenario.deployment.tp) * float(scenario.deployment.pp) + float(speculation.extra_chips(scenario))
    return float(system.chips_per_node) if system.sold_by == "node" else 1.0, each

"""Two pools: one that prefills, and one that decodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.machines.base import machine_of
from perfmodel.planning.candidates import plans_of
from perfmodel.planning.limits import MOST_CHIPS
from perfmodel.planning.load import Sized, assumptions, plan_name, spread
from perfmodel.planning.size import is_fixed, refuse_replicas, without_plan
from perfmodel.planning.verify import check, floors, sure
from perfmodel.prediction import evaluate, plan_of
from perfmodel.question import Options, resolve, split_changes, split_system
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.disaggregation import Pools, pools
from perfmodel.serving.objectives import QUEUE_TIMES, Loaded, Objectives, loaded, phrase, summary
from perfmodel.serving.steady import steady_state
from perfmodel.serving.traffic import lengths_of
from perfmodel.shown import Shown
from perfmodel.specs.types import Model, Scenario

#: Simulations of a pool, and how far below its objectives it may stand before a replica less is tried.
_CHECKS, _SAFE = 6, 0.9


@dataclass(frozen=True, repr=False)
class Disaggregated(Shown):
    """Pools for prefill and decode, or why there are none.

    Attributes
    ----------
    prefill, decode : Scenario
        The plan of a replica of either pool.
    pools : Pools or None
        By the closed form.
    sides : tuple of Sized
        The prefill pool and the decode pool as they are simulated, with what they cost, draw and how sure they are;
        empty without pools.
    rate : float
        Requests [1/s].
    objectives : Objectives
    reason : str
        Why there are no pools, else empty.
    assumed, warnings : tuple of str
    """

    prefill: Scenario
    decode: Scenario
    pools: Pools | None
    sides: tuple[Sized, ...]
    rate: float
    objectives: Objectives
    reason: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> shapes.Pools:
        """Return the documented JSON object."""
        pools = self.pools
        side, two = self.sides or (None, None)
        return {
            "rate_per_s": shapes.number(self.rate),
            "objectives": shapes.numbers(self.objectives.named()),
            "prefill": _pool(self.prefill, side, "ttft_s"),
            "decode": _pool(self.decode, two, "tpot_s"),
            "chips": None if pools is None else shapes.number(self.total("chips")),
            "usd_per_hour": None if pools is None else shapes.number(self.total("usd_per_hour")),
            "power_w": None if pools is None else shapes.number(self.total("power_w")),
            "prefill_replicas_per_decode_replica": None if pools is None else shapes.number(pools.ratio),
            "kv_transfer_s": None if pools is None else shapes.number(pools.transfer),
            "tpot_with_transfer_s": None if pools is None else shapes.number(pools.tpot_mean),
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def total(self, name: str) -> float:
        """Return a number of both pools together.

        Parameters
        ----------
        name : str
            ``chips``, ``usd_per_hour`` [USD] or ``power_w`` [W].

        Returns
        -------
        float
            In the unit of that number: [1], [USD] or [W].
        """
        return sum(float(getattr(side, name)) for side in self.sides)

    def verdict(self) -> str:
        """Return what to take: both pools, what they cost, and how they were checked."""
        sizing, two = self.sides
        money = self.total("usd_per_hour")
        cost = f", {money:,.4g} USD an hour" if math.isfinite(money) else ""
        said = "; ".join(
            f"{name}: {side.checked.words()}"
            for name, side in (("prefill", sizing), ("decode", two))
            if side.checked is not None
        )
        pair = " + ".join(
            f"{side.load.replicas:,} x {plan_name(side.scenario)} of {side.scenario.system.name}" for side in self.sides
        )
        return f"{self.total('chips'):,.0f} chips = {pair}{cost}{': ' if said else ''}{said}"

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        flat: dict[str, Any] = {}
        for key, value in self.to_dict().items():
            if key in ("prefill", "decode"):
                pool: Any = value
                for part, item in (pool | pool["times"]).items():
                    if part != "times" and item is not None:
                        flat |= {f"{key}_{name}": cell for name, cell in spread(part, item).items()}
            elif isinstance(value, dict):
                flat |= {f"objective_{name}": limit for name, limit in value.items()}
            else:
                flat[key] = "; ".join(value) if isinstance(value, list) else value
        return flat

    def to_frame(self) -> Any:
        """Return a one-row pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame([self.row()])


def tokens_a_chip(side: Sized) -> float:
    """Return the tokens a second of each chip of a pool: those it prefills, or those it brings.

    Parameters
    ----------
    side : Sized
    """
    lengths = side.load.service.lengths
    tokens = lengths.output if float(lengths.output.max()) > 1 else lengths.prompt
    return float(side.load.finished * lengths.mean(tokens) / side.chips)


def _pool(scenario: Scenario, side: Sized | None, time: str) -> shapes.Pool:
    """Return one pool; a pool decides one time."""
    plan = plan_of(scenario)
    load = None if side is None else side.load
    if load is not None:
        plan["dp"] = load.replicas
    sureness = None if side is None else side.sure
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "plan": plan,
        "replicas": None if load is None else load.replicas,
        "times": shapes.times({} if load is None else {time: summary(load.queue, QUEUE_TIMES[time])}),
        "utilisation": None if load is None else shapes.number(load.queue.utilisation),
        "headroom": None if load is None else shapes.number(load.headroom),
        "first_limit": None if load is None else load.first_limit,
        "chips": None if side is None else shapes.number(side.chips),
        "usd_per_hour": None if side is None else shapes.number(side.usd_per_hour),
        "power_w": None if side is None else shapes.number(side.power_w),
        "tokens_per_s_per_chip": None if side is None else shapes.number(tokens_a_chip(side)),
        "checked": None if side is None or side.checked is None else side.checked.to_dict(),
        "chips_band": None
        if sureness is None
        else {"low": shapes.number(sureness.least), "high": shapes.number(sureness.most)},
        "probability": None if sureness is None else shapes.number(sureness.probability),
    }


def _priced(scenario: Scenario, load: Loaded, decodes: bool) -> Sized:
    """Return a pool with what it costs and draws: one that decodes prefills nothing, the other brings one token."""
    laid = replace(scenario.deployment, dp=float(load.replicas))
    lengths = load.service.lengths
    traffic = replace(
        scenario.traffic,
        prompt=lengths.mean(lengths.prompt),
        output=lengths.mean(lengths.output),
        concurrency=max(1.0, load.queue.running) * load.replicas,
        length_jitter=0.0,
        prefix_hits=0.0 if decodes else scenario.traffic.prefix_hits,
    )
    whole = replace(scenario, deployment=laid, traffic=traffic)
    steady = replace(steady_state(whole), rate=load.finished)
    if decodes:
        steady = replace(steady, occupancy=steady.occupancy * 0.0)
    money = cost(whole, steady, draw(whole, steady))
    return Sized(
        whole,
        load,
        float(load.service.cap),
        float(load.service.times.budget),
        float(evaluate(whole, ()).chips),
        float(money.per_hour),
        float(money.draw.mean.watts),
        math.nan,
    )


def _simulated(scenario: Scenario, load: Loaded, decodes: bool) -> Sized:
    """Return a pool of as many replicas as its simulation takes, by one more or fewer at a time."""
    now = _priced(scenario, load, decodes)
    if not load.objectives.limits:
        return now
    best: Sized | None = None
    for _ in range(_CHECKS):
        now = replace(now, checked=check(now))
        assert now.checked is not None
        met = now.checked.met
        if met:
            best = now
        if (met and now.checked.worst > _SAFE) or (not met and best is not None):
            break
        count = now.load.replicas
        step = 1 if now.checked.worst > _SAFE and not now.checked.worst > 1.3 else max(1, round(0.15 * count))
        other = count - step if met else count + step
        if other < 1 or load.rate / other >= load.service.capacity:
            break
        found = loaded(load.service, load.rate, load.arrival_scv, other, load.objectives)
        now = _priced(scenario, replace(found, headroom=0.0) if math.isnan(found.headroom) else found, decodes)
    best = best or now
    return replace(best, sure=sure(best, whole=False), floors=floors(best))


def _layouts(base: Scenario, fixed: bool) -> list[Scenario]:
    """Return the layouts of a pool that are tried: the one that is given, or every one that was measured."""
    if fixed:
        return [base]
    return [one for one in plans_of(base) if not machine_of(one.system).unmeasured(one)] or [base]


def _said(scenario: Scenario, tried: int) -> list[str]:
    """Return what was assumed of a pool; its layout was not, where several were tried."""
    said = assumptions(scenario)
    return without_plan(said) if tried > 1 else said


def _fewest(
    first: Sequence[Scenario], second: Sequence[Scenario], rate: float, scv: float, objectives: Objectives
) -> tuple[Scenario, Scenario, Pools | list[tuple[str, str]]]:
    """Return the layouts of the pools that take the fewest chips by the closed form, one pool after the other."""
    lengths = lengths_of(first[0].traffic)
    best: tuple[Scenario, Scenario, Pools | list[tuple[str, str]]] | None = None

    def better(pair: Any) -> bool:
        if best is None or not isinstance(pair, Pools):
            return best is None
        return not isinstance(best[2], Pools) or pair.chips < best[2].chips

    for plan in first:
        if better(pair := pools(plan, second[0], lengths, rate, scv, objectives)):
            best = plan, second[0], pair
    assert best is not None
    for two in second[1:]:
        if better(pair := pools(best[0], two, lengths, rate, scv, objectives)):
            best = best[0], two, pair
    if not isinstance(best[2], Pools):
        # Neither pool alone was at fault: every pair is tried.
        for plan in first:
            for two in second[1:]:
                if better(pair := pools(plan, two, lengths, rate, scv, objectives)):
                    best = plan, two, pair
    return best


def disaggregated(
    model: str | Model,
    prefill_on: str,
    decode_on: str,
    rate: float,
    objectives: Objectives,
    options: Options,
    changes: Sequence[str] = (),
    *,
    most_chips: float = MOST_CHIPS,
) -> Disaggregated:
    """Size a pool that prefills and one that decodes, each on a plan of its own; the simulation has the last word.

    Parameters
    ----------
    model, options, changes
        The question, the same for both pools.
    prefill_on, decode_on : str
        System of either pool; where no plan is given every measured one is tried.
    rate : float
        Requests [1/s].
    objectives : Objectives
    most_chips : float
        Chips beyond which there is no answer.
    """
    for on in (prefill_on, decode_on):
        refuse_replicas(split_system(on, options)[1])
    each = split_changes([prefill_on, decode_on], changes)
    first, second = (resolve(model, on, options, mine) for on, mine in zip((prefill_on, decode_on), each, strict=True))
    scv = float(first.traffic.arrival_scv)
    tried = (_layouts(first, is_fixed(prefill_on, options)), _layouts(second, is_fixed(decode_on, options)))
    first, second, fewest = _fewest(*tried, rate, scv, objectives)
    said = [
        tuple(dict.fromkeys([*one, *two]))
        for one, two in ((_said(first, len(tried[0])), _said(second, len(tried[1]))), (first.warnings, second.warnings))
    ]
    sides: tuple[Sized, ...] = ()
    reason = ""
    if not isinstance(fewest, Pools):
        words = ", ".join(phrase(key) for key in fewest) or "the rate"
        reason = f"{words} cannot be met with these plans, however many replicas: one request alone takes longer"
    else:
        sides = (_simulated(first, fewest.prefill, False), _simulated(second, fewest.decode, True))
        chips = sum(side.chips for side in sides)
        late = [side.checked.words() for side in sides if side.checked is not None and not side.checked.met]
        if chips > most_chips:
            reason = f"the pools need {chips:,.0f} chips, more than {most_chips:,.0f}"
        elif late:
            reason = (
                f"{', '.join(late)}: no pool of up to {max(side.load.replicas for side in sides):,} replicas met it"
            )
    there = isinstance(fewest, Pools) and not reason
    assumed = (*said[0], "each pool is simulated by itself, requests reach the decode pool as they reach the other")
    return Disaggregated(
        first,
        second,
        fewest if there and isinstance(fewest, Pools) else None,
        sides if there else (),
        rate,
        objectives,
        reason,
        assumed,
        said[1],
    )

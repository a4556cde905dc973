"""What ``size`` asks: options that were read to one search, to one a rate or a year, or to two pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.options import flag
from perfmodel.planning import plans
from perfmodel.planning.course import Course, Step, growth_of, years_of
from perfmodel.planning.limits import MOST_CHIPS, Limits
from perfmodel.planning.mix import AT
from perfmodel.planning.mixed import Mixed, mixed
from perfmodel.planning.pools import Disaggregated, disaggregated
from perfmodel.planning.size import GOALS, Sizing, size
from perfmodel.question import Options, resolve, word
from perfmodel.serving.objectives import Objectives
from perfmodel.specs.types import Model
from perfmodel.specs.units import show

#: What is searched over where plans are; pools are sized on the plans that are given.
_SEARCHED = (
    *("least", "precisions", "ks", "allow_unmeasured", "no_objective", "confidence", "headroom"),
    *(
        "availability",
        "chip_mtbf",
        "profile",
        "max_nodes",
        "max_power",
        "max_cost",
        "growth",
        "years",
        "save",
        "separate",
    ),
)
#: What says how many requests people send.
_PEOPLE = ("active", "requests_per_minute", "peak")


def answered(
    model: str | Model,
    systems: Sequence[str],
    options: Options,
    changes: Sequence[str],
    given: dict[str, Any],
    objectives: Objectives,
    asked: plans.Asked,
    tick: Callable[[str], None] | None = None,
) -> Sizing | Course | Disaggregated | Mixed:
    """Answer a question of ``size``.

    Parameters
    ----------
    model, systems, options, changes
        The question.
    given : dict
        Options beyond those of every question, read.
    objectives : Objectives
    asked : dict
        The question as it was asked, for a plan's file.
    tick : callable, optional
        Called with a word on what is worked out.
    """
    if options.concurrency is not None:
        raise UserError("give either --rate or --concurrency")
    if AT in str(options.traffic):
        return mixed(model, systems, options, changes, given, objectives, _searched(options, given), tick)
    if "separate" in given:
        raise UserError("--separate is of a mix: give --traffic NAME@RATE for each")
    rates, said = _rates(model, systems[0], options, changes, given)
    if "prefill_on" in given:
        return _pools(model, systems, options, changes, given, rates, objectives)
    check_objectives("size", objectives, bool(given.get("no_objective")))
    if "confidence" in given and not objectives.limits:
        raise UserError("--confidence is about objectives: give one")
    steps = _steps(rates, given)
    if len(steps) > 1 and "save" in given:
        raise UserError("--save is of one plan: give one rate, without --growth")
    searched = _searched(options, given)
    sizings = []
    for step in steps:
        one = size(model, systems, step.rate, objectives, options, changes, **searched, tick=tick)
        sizings.append(replace(one, assumed=(*said, *one.assumed)))
    if len(steps) > 1:
        return Course(tuple(replace(step, sizing=one) for step, one in zip(steps, sizings, strict=True)))
    if "save" in given:
        plans.save(sizings[0], asked, Path(word("--save", given["save"])))
    return sizings[0]


def check_objectives(verb: str, objectives: Objectives, none: bool) -> None:
    """Refuse a search that is asked for nothing, or for objectives and for none.

    Parameters
    ----------
    verb : str
        What searches.
    objectives : Objectives
    none : bool
        Whether only the rate counts.
    """
    if not objectives.limits and not none:
        raise UserError(
            f"{verb} needs an objective, as --ttft-p99 2s or --tpot-p99 50ms (p50, p90, p95 and mean too, of ttft, "
            "tpot, itl and latency); --no-objective only keeps up with the rate, however long requests wait"
        )
    if objectives.limits and none:
        raise UserError(f"give either --no-objective or {flag(next(iter(objectives.named())).removesuffix('_s'))}")


def _rates(
    model: str | Model, on: str, options: Options, changes: Sequence[str], given: Mapping[str, Any]
) -> tuple[tuple[float, ...], list[str]]:
    """Return the rates that are asked about [1/s], and how they came about."""
    people = [name for name in _PEOPLE if name in given]
    if "users" not in given:
        if people:
            raise UserError(f"{flag(people[0])} is about people: give --users with it")
        if "rate" not in given:
            raise UserError("size needs --rate, requests a second, or --users, people")
        return given["rate"], []
    if "rate" in given:
        raise UserError("give either --rate or --users")
    # Any depth of drafting that is tried will do: people think as long.
    tried = replace(options, k=given["ks"][0]) if "ks" in given else options
    think = float(resolve(model, on, tried, changes).traffic.think_time)
    if "requests_per_minute" in given:
        each, why = given["requests_per_minute"] / 60, f"{given['requests_per_minute']:g} requests a minute each"
    elif think > 0:
        each, why = 1 / think, f"{show(think, 's')} of thinking between two requests, answers in no time"
    else:
        raise UserError(
            "--users needs --requests-per-minute, what each person sends: the traffic has no time of thinking"
        )
    active, peak = given.get("active", 1.0), given.get("peak", 1.0)
    rate = given["users"] * active * each * peak
    if not rate > 0:
        raise UserError("--active 0: nobody asks anything")
    busy = f"{active:.0%} of them at it" if "active" in given else "all of them at it (--active)"
    top = f"{peak:g} times the mean at the busiest" if "peak" in given else "at a steady pace (--peak)"
    return (rate,), [f"{given['users']:,.0f} people, {busy}, {why}, {top}: {rate:.4g} requests/s"]


def _steps(rates: Sequence[float], given: Mapping[str, Any]) -> list[Step]:
    """Return the rates to answer, with the year of each where they grow."""
    if "growth" not in given:
        if "years" in given:
            raise UserError("--years needs --growth, as 60%/year")
        return [Step(rate) for rate in rates]
    if len(rates) > 1:
        raise UserError("give either several rates or --growth")
    if "years" not in given:
        raise UserError("--growth needs --years, how far to look ahead")
    growth = growth_of(word("--growth", given["growth"]))
    return [Step(rates[0] * (1 + growth) ** year, year) for year in years_of(given["years"])]


def _searched(asked: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a search is told, by the names of its parameters."""
    goal = given.get("least", "cost")
    if goal not in GOALS:
        raise UserError(f"--least {goal}: expected one of {', '.join(GOALS)}")
    for one, several in (("precision", "precisions"), ("k", "ks")):
        if getattr(asked, one) is not None and several in given:
            raise UserError(f"give either {flag(one)} or {flag(several)}")
    if "chip_mtbf" in given and "availability" not in given:
        raise UserError("--chip-mtbf needs --availability, the share of time for which spares are counted")
    return {
        "goal": goal,
        "precisions": given.get("precisions", ()),
        "depths": given.get("ks", ()),
        "within": Limits(
            given.get("max_chips", MOST_CHIPS),
            given.get("max_nodes", math.inf),
            given.get("max_power", math.inf),
            given.get("max_cost", math.inf),
        ),
        "allow_unmeasured": given.get("allow_unmeasured", False),
        "confidence": given.get("confidence"),
        "growth": 1 + given.get("headroom", 0.0),
        "available": given.get("availability"),
        "chip_mtbf": given.get("chip_mtbf"),
        "profile": given.get("profile", ()),
    }


def _pools(
    model: str | Model,
    systems: Sequence[str],
    options: Options,
    changes: Sequence[str],
    given: Mapping[str, Any],
    rates: Sequence[float],
    objectives: Objectives,
) -> Disaggregated:
    """Size two pools."""
    if len(systems) != 1:
        raise UserError("--prefill-on needs one --on, the system of the pool that decodes")
    if len(rates) > 1:
        raise UserError("--prefill-on takes one rate")
    for name in _SEARCHED:
        if name in given:
            raise UserError(f"{flag(name)} is of a search: pools take the fewest replicas of the plans that are given")
    most = given.get("max_chips", MOST_CHIPS)
    return disaggregated(
        model, given["prefill_on"], systems[0], rates[0], objectives, options, changes, most_chips=most
    )

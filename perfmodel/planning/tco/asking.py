"""Asking what a million tokens cost on several systems, each at its cheapest setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfmodel.entered import idle, unmoved
from perfmodel.equations import tco
from perfmodel.errors import UserError
from perfmodel.machines.power import shape_of
from perfmodel.numerics import NAN
from perfmodel.planning.tco import bom
from perfmodel.planning.tco.cash import cash_flow
from perfmodel.planning.tco.market import choose, sold
from perfmodel.planning.tco.ownership import REFERENCE, Owned, Owning, costs, of_system
from perfmodel.planning.tco.prices import TokenPrice
from perfmodel.planning.tco.speed import ALONE, Setting, at_bound, limit_words
from perfmodel.planning.tco.uncertainty import SAMPLES, draw_samples, tornado
from perfmodel.prediction import Prediction, content, numbers, run
from perfmodel.question import Options, resolve, split_changes
from perfmodel.serving.cost import Cost, cost_of, electricity_per_year
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of, put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import show

#: The TPOT that is asked for where nothing is [s].
TPOT = 0.05


def own(
    model: Any,
    on: Sequence[str],
    options: Options,
    changes: Sequence[str] = (),
    tpot: float | None = None,
    samples: int = SAMPLES,
    against_api: bool = False,
    growth: float = 0.0,
) -> Owning:
    """Answer what a million tokens cost on each system.

    Parameters
    ----------
    model : str or Model
    on : sequence of str
        Systems, each with its plan after a colon.
    options : Options
        Where no concurrency is given, each system is set to what costs least under ``tpot``.
    changes : sequence of str
        ``PATH=VALUE``, ``SYSTEM:PATH=VALUE`` or ``#2:PATH=VALUE``.
    tpot : float, optional
        Bound on TPOT [s]; ``TPOT`` where neither it nor a concurrency is given.
    samples : int
    against_api : bool
        Whether to compare owning, renting and an API.
    growth : float
        Of the load a year, in the cash flows [1].

    Returns
    -------
    Owning
    """
    if tpot is not None and options.concurrency is not None:
        raise UserError("give either --concurrency or --tpot: with a bound each system is set to what keeps it")
    if tpot is not None and not tpot > 0:
        raise UserError(f"--tpot {tpot:g}: must be more than 0")
    bound = tpot or TPOT
    pairs = list(zip(on, split_changes(on, changes), strict=True))
    settings: list[Setting | None] = [None] * len(pairs)
    if options.concurrency is None:
        settings = [at_bound(model, system, options, mine, bound, payable) for system, mine in pairs]
    scenarios = [
        payable(resolve(model, system, options, mine)) if setting is None else setting.scenario
        for (system, mine), setting in zip(pairs, settings, strict=True)
    ]
    answers = [_answered(scenario) for scenario in scenarios]
    money = [cost_of(s) if not a.reason and s.economics else None for s, a in zip(scenarios, answers, strict=True)]
    reference = _reference(model, options, bound, scenarios, money)
    traffic, release = scenarios[0].traffic, catalog.load_prices(options.prices or "")
    market = sold(scenarios[0].model.name, float(traffic.prompt), float(traffic.output), release.name)
    systems = []
    for answer, cost, setting in zip(answers, money, settings, strict=True):
        owned = _owned(answer, cost, reference)
        if setting is not None:
            owned = _bounded(owned, setting, bound)
        if against_api and cost is not None:
            owned = replace(owned, choice=choose(answer, release, growth))
        if cost is not None and cost.per_hour == cost.per_hour:
            owned = replace(owned, flow=cash_flow(answer, cost, growth, NAN if market is None else market.low))
        systems.append(owned)
    priced = [s if cost is not None else None for s, cost in zip(scenarios, money, strict=True)]
    return Owning(
        tuple(systems),
        draw_samples(priced, samples),
        _assumed(answers, bound if settings[0] is not None else NAN, release.name),
        bound if any(setting is not None for setting in settings) else NAN,
        market,
    )


def payable(scenario: Scenario) -> Scenario:
    """Return a scenario that has a price where one is known: rented, where nobody sells the system.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario
    """
    price, economics = scenario.system.price, scenario.economics
    if economics is None or economics.ownership == "rented" or price.rent_per_chip != price.rent_per_chip:
        return scenario
    lacking = [
        words
        for words, value in (("purchase", price.system), ("nameplate power", scenario.system.power.system_per_chip))
        if value != value
    ]
    if not lacking:
        return scenario
    said = f"{scenario.system.name}: rented, since no {' and no '.join(lacking)} is known"
    rented: Scenario = put(scenario, "economics.ownership", "rented")
    return replace(rented, assumed=(*scenario.assumed, said))


def _answered(scenario: Scenario) -> Prediction:
    """Return the answer to a scenario, with the changes that moved neither it nor anything that owning says."""

    def numbers_said(asked: Scenario) -> Any:
        answer = run(asked)
        if answer.reason or asked.economics is None:
            return content(answer), bom.bill(asked.system)
        money = cost_of(asked)
        owned = Owned(answer, money, bom.bill(asked.system), NAN, _break_even(answer, money), (), ())
        return content(answer), costs(owned), owned.break_even, of_system(owned)

    answer = run(replace(scenario, changed=()))
    paths = [] if answer.reason else unmoved(scenario, numbers_said)
    return replace(answer, warnings=(*answer.warnings, *idle(scenario, paths, numbers)))


def _assumed(answers: Sequence[Prediction], bound: float, release: str) -> tuple[str, ...]:
    """Return what all answers assume, and how the cost is shared."""
    said = [word for word in answers[0].assumed if all(word in other.assumed for other in answers)]
    said = [word for word in said if not word.startswith("concurrency")]
    said += catalog.in_place(*(answer.scenario.system for answer in answers), catalog.load_materials())
    said = list(dict.fromkeys(said))
    if bound == bound:
        said.insert(
            0,
            f"each system at its cheapest setting whose TPOT is at most {show(bound, 's', 3)}: layout, token budget "
            "and requests at once are the operator's to choose",
        )
    economics = answers[0].scenario.economics
    if economics is not None:
        said.append(
            f"prices of {release}, purchases as {economics.basis}, rents by {economics.market}: --prices, --set "
            "economics.basis, economics.market"
        )
    said.append("a contract's rent is paid day and night; ties with rent as if it were paid for busy hours only")
    said.append(
        "input and output tokens share the cost as prefill and decoding share the chips' time; on an SRAM pipeline "
        "every token costs the same"
    )
    said.append(
        "P10, P50 and P90 over all estimates and the errors of the times, half of whose variance machines of one "
        "engine share; triangular on the logarithm, low to high"
    )
    return tuple(said)


def _bounded(owned: Owned, setting: Setting, bound: float) -> Owned:
    """Return a system with its curve, and a label where it is not at the bound."""
    owned = replace(owned, limit=limit_words(setting, bound), curve=setting.curve)
    if setting.limit != ALONE or owned.answer.reason:
        return owned
    tpot = float(owned.answer.metrics["tpot_s"])
    missed = f"misses the TPOT of {show(bound, 's', 3)}: {show(tpot, 's', 3)} with one request"
    return replace(owned, missed=missed, labels=(missed, *owned.labels))


def _reference(
    model: Any, options: Options, bound: float, scenarios: Sequence[Scenario], money: Sequence[Cost | None]
) -> TokenPrice | None:
    """Return the blended price of the reference under the same question, asked for where it is not compared."""
    for scenario, cost in zip(scenarios, money, strict=True):
        if scenario.system.name == REFERENCE:
            return None if cost is None else TokenPrice(cost.blended, "total")
    plain = replace(options, plan=None, tp=None, pp=None, ep=None, dp=None, attention_dp=None, engine=None)
    try:
        if plain.concurrency is None:
            scenario = at_bound(model, REFERENCE, plain, (), bound, payable).scenario
        else:
            scenario = resolve(model, REFERENCE, plain)
    except UserError:
        return None
    answer = run(scenario)
    return None if answer.reason else TokenPrice(cost_of(scenario).blended, "total")


def _labels_of(answer: Prediction, money: Cost, tie: float) -> tuple[str, ...]:
    """Return the labels of a system, and whether any price of it ties."""
    rented = "rent" in money.hourly
    lost = () if tie == tie or rented else (f"no price ties with {REFERENCE}: space and power alone cost more",)
    return (*_labels(answer.scenario), *lost)


def _owned(answer: Prediction, money: Cost | None, reference: TokenPrice | None) -> Owned:
    scenario = answer.scenario
    bill = bom.bill(scenario.system)
    if money is None:
        return Owned(answer, None, bill, NAN, NAN, _labels(scenario), ())
    tie = _tie(answer, money, reference)
    return Owned(
        answer,
        money,
        bill,
        tie,
        _break_even(answer, money),
        _labels_of(answer, money, tie) if reference is not None else _labels(scenario),
        tuple(tornado(scenario)["blended"]),
    )


def _tie(answer: Prediction, money: Cost, reference: TokenPrice | None) -> float:
    """Return the price of the whole system at which the blended price is the reference's; NaN where it is rented."""
    economics, system = answer.scenario.economics, answer.scenario.system
    if reference is None or economics is None or economics.ownership == "rented":
        return NAN
    sold = (answer.metrics["input_tokens_per_s"] + answer.metrics["output_tokens_per_s"]) * economics.utilisation
    other = money.hourly["space"] + money.hourly["electricity"]
    price = tco.price_for_cost(
        cost_per_hour=reference.usd * sold * 3600 / 1e6, other_per_hour=other, yearly_share=money.yearly_share
    )
    # Where space and electricity alone cost more, no price makes up for it.
    return float(price * system.price.chips / answer.chips / economics.price_level) if price > 0 else NAN


def _break_even(answer: Prediction, money: Cost) -> float:
    scenario = answer.scenario
    economics, rent = scenario.economics, scenario.system.price.rent_per_chip
    if economics is None or economics.ownership == "rented":
        return NAN
    hour = {
        key: float(tco.per_hour(per_year=electricity_per_year(drawn.at_utility(economics.pue), economics)))
        for key, drawn in (("idle_energy", money.draw.idle), ("busy_energy", money.draw.mean))
    }
    fixed = float(money.per_hour - money.hourly["electricity"])
    return float(tco.break_even_utilisation(fixed=fixed, **hour, rent=float(rent) * 3600 * float(answer.chips)))


def _labels(scenario: Scenario) -> tuple[str, ...]:
    """Return what the reader must know before any number."""
    system = scenario.system
    labels = []
    rented = scenario.economics is not None and scenario.economics.ownership == "rented"
    path = "system.price.rent_per_chip" if rented else "system.price.system"
    origin = provenance_of(scenario, path)
    if origin.kind == "estimate":
        unpublished = any(words in origin.note for words in ("no price", "no market price", "not published"))
        labels.append("price not published: estimate" if unpublished else "price from third parties: estimate")
    elif origin.kind == "unpublished":
        labels.append("price not published" + (f": {origin.note}" if origin.note else ""))
    elif origin.kind == "given":
        labels.append("price as given: a quote beside prices of the release")
    if provenance_of(scenario, "system.power.system_per_chip").kind == "estimate":
        labels.append("nameplate power estimated")
    if caution := shape_of(system).cautions(system)[0]:
        labels.append(caution)
    if system.carbon.embodied_per_chip != system.carbon.embodied_per_chip:
        labels.append("embodied carbon not published")
    return tuple(labels)

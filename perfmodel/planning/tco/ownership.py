"""What a million tokens cost on several systems, what decides it, and how sure it is."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.equations import power, tco
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.machines.power import shape_of
from perfmodel.numerics import NAN
from perfmodel.planning.tco import bom
from perfmodel.planning.tco.prices import TokenPrice
from perfmodel.planning.tco.uncertainty import SAMPLES, Sample, Swing, draw_samples, tornado
from perfmodel.prediction import Prediction, content, evaluate, numbers, question_of, run
from perfmodel.question import Options, distinct, resolve, split_changes, split_system
from perfmodel.serving.cost import YEAR, AllInPower, Cost, cost_of, electricity_per_year
from perfmodel.serving.fit import fit
from perfmodel.shown import Shown
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of, put
from perfmodel.specs.types import Economics, Scenario, System
from perfmodel.specs.units import show

#: The system against which the price of a tie is given, and the TPOT that is asked for where nothing is [s].
REFERENCE = "dgx-b200"
TPOT = 0.05
#: Results with percentiles: key of the JSON, and of the samples.
TOKENS = ("input", "output", "blended")
_CONSTANTS = {"h100": "dgx-h100", "h200": "dgx-h200", "b200": "dgx-b200", "gb200": "gb200-nvl72"}
_CONSTANTS |= {"mi300x": "mi300x-8", "mi325x": "mi325x-8", "mi355x": "mi355x-8", "b300": "b300", "gb300": "gb300-nvl72"}


@dataclass(frozen=True)
class Owned:
    """One system of a comparison of costs.

    Attributes
    ----------
    answer : Prediction
    cost : Cost or None
        ``None`` where the model does not fit or a number of its times is not published.
    bill : Bill
        What its parts cost to make.
    tie_price : float
        Price of the system at which its blended price is that of the reference [USD].
    break_even : float
        Share of the day from which owning costs no more than renting by the hour; NaN where no rent is known.
    labels : tuple of str
        What the reader must know before using a number: estimates of price and power, what is not calibrated.
    swings : tuple of Swing
        How far each unknown moves the blended price, the widest first.
    missed : str
        How far one request alone misses the bound on TPOT; empty where the bound is kept.
    """

    answer: Prediction
    cost: Cost | None
    bill: bom.Bill
    tie_price: float
    break_even: float
    labels: tuple[str, ...]
    swings: tuple[Swing, ...]
    missed: str = ""

    @property
    def scenario(self) -> Scenario:
        """The question."""
        return self.answer.scenario

    @property
    def name(self) -> str:
        """Name of the system."""
        return self.scenario.system.name


@dataclass(frozen=True, repr=False)
class Owning(Shown):
    """Costs side by side, over the same draws of what is not known.

    Attributes
    ----------
    systems : tuple of Owned
    sample : Sample
        The draws.
    assumed : tuple of str
        What all of them assume.
    """

    systems: tuple[Owned, ...]
    sample: Sample
    assumed: tuple[str, ...]

    def percentiles(self, at: int, result: str) -> dict[str, float | None]:
        """Return P10, P50 and P90 of a result of one system; none where it has none.

        Parameters
        ----------
        at : int
            Place of the system.
        result : str
            ``input``, ``output`` or ``blended`` [USD per million tokens], ``joules_per_output_token`` [J] or
            ``power_w`` [W].

        Returns
        -------
        dict of str to float or None
            ``p10``, ``p50`` and ``p90``.
        """
        drawn = self.sample.systems[at]
        return {"p10": None, "p50": None, "p90": None} if drawn is None else drawn.percentiles(result)

    def to_dict(self) -> shapes.Owning:
        """Return the documented JSON object."""
        names = distinct([owned.name for owned in self.systems])
        warnings = [f"{owned.name}: {word}" for owned in self.systems for word in owned.answer.warnings]
        return {
            "answers": [self._system(at, name) for at, name in enumerate(names)],
            "probability_cheaper": {
                one: {
                    other: shapes.number(self.sample.cheaper(mine, theirs))
                    for theirs, other in enumerate(names)
                    if one != other
                }
                for mine, one in enumerate(names)
            },
            "assumed": list(self.assumed),
            "warnings": list(dict.fromkeys(warnings)),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row a system, for CSV."""
        rows = []
        nothing = dict.fromkeys(("p10", "p50", "p90"))
        for one in self.to_dict()["answers"]:
            row: dict[str, Any] = {}
            spreads = {of: ends or nothing for of, ends in one["usd_per_mtok"].items()}
            joules = one["joules_per_output_token_spread"] or nothing
            own = {"usd_per_mtok": spreads, "joules_per_output_token_spread": joules}
            for key, value in {**one, **own}.items():
                if key in ("sobol", "tornado", "implied_capex_usd"):
                    continue
                if isinstance(value, list):
                    row[key] = "; ".join(value)
                elif isinstance(value, dict):
                    row.update(_flat(key, value))
                else:
                    row[key] = value
            rows.append({**row, "assumed": "; ".join(self.assumed)})
        columns = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in columns} for row in rows]

    def to_frame(self) -> Any:
        """Return a pandas frame with the flat columns of ``--csv``, one row a system."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def samples(self) -> Any:
        """Return a pandas frame of the draws: system, and USD per million tokens, joules and watts as columns.

        Returns
        -------
        pandas.DataFrame
            Rows of one draw have the same ``draw``, since what systems share is drawn once for all; NaN where the
            model does not fit.
        """
        import pandas as pd

        names = distinct([owned.name for owned in self.systems])
        frames = [
            pd.DataFrame({"draw": range(len(self.sample.shares)), "system": name, **drawn.results})
            for name, drawn in zip(names, self.sample.systems, strict=True)
            if drawn is not None
        ]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def _spread(self, at: int, result: str) -> shapes.Spread | None:
        ends = self.percentiles(at, result)
        return shapes.spread(ends["p50"], ends["p10"], ends["p90"])

    def _system(self, at: int, name: str) -> shapes.Owned:
        owned = self.systems[at]
        answer, money = owned.answer, owned.cost
        return {
            "name": name,
            **question_of(answer.scenario),
            "chips": shapes.number(answer.chips),
            "usd_per_mtok": {
                "input": self._spread(at, "input"),
                "output": self._spread(at, "output"),
                "blended": self._spread(at, "blended"),
            },
            "usd_per_chip_hour": shapes.number(money and money.per_hour / answer.chips),
            "usd_per_system_month": shapes.number(money and money.per_hour * 730 * _of_system(owned)),
            "capex_usd": shapes.number(money and _capex(owned)),
            "power_w": shapes.number(money and money.draw.mean.watts),
            "joules_per_output_token": shapes.number(answer.metrics["joules_per_output_token"]),
            "joules_per_output_token_spread": self._spread(at, "joules_per_output_token"),
            "tpot_s": shapes.number(answer.metrics["tpot_s"]),
            "output_tokens_per_s_per_user": shapes.number(answer.metrics["output_tokens_per_s_per_user"]),
            "tokens_per_s_per_kw": shapes.number(tokens_per_kw(owned)),
            "tokens_per_joule": shapes.number(tokens_per_kw(owned) / 1e3),
            "costs": costs(owned),
            "tie_price_usd": shapes.number(owned.tie_price),
            "break_even_utilisation": shapes.number(owned.break_even),
            "sobol": {
                path: shapes.number(round(index, 4)) for path, index in list(self.sample.indices(at).items())[:10]
            },
            "tornado": [
                {"path": swing.path, "low": shapes.number(swing.low), "high": shapes.number(swing.high)}
                for swing in owned.swings[:10]
            ],
            "implied_capex_usd": implied(owned.scenario.system, owned.scenario.economics),
            "labels": list(owned.labels),
            "reason": answer.reason or None,
        }


def _of_system(owned: Owned) -> float:
    """Return chips of a system over those of the deployment."""
    return float(owned.scenario.system.price.chips) / float(owned.answer.chips)


def _extras(owned: Owned) -> dict[str, float]:
    """Return the price of the chips and what comes on top of it [USD]."""
    economics, money = owned.scenario.economics, owned.cost
    assert economics is not None
    assert money is not None
    price = float(money.price)
    extras = {name: price * float(getattr(economics, name)) for name in ("network", "storage", "spares")}
    if economics.ownership == "owned":
        extras["building"] = float(money.draw.nameplate.watts * economics.provisioned * economics.building)
    return {"machine": price, **extras}


def _capex(owned: Owned) -> float:
    economics = owned.scenario.economics
    rented = economics is not None and economics.ownership == "rented"
    return NAN if rented else sum(_extras(owned).values())


def tokens_per_kw(owned: Owned) -> Any:
    """Return input and output tokens a second over the power of the machines in kilowatts."""
    metrics = owned.answer.metrics
    rate = metrics["input_tokens_per_s"] + metrics["output_tokens_per_s"]
    return rate / metrics["power_w"] * 1e3


def costs(owned: Owned) -> shapes.Costs:
    """Return the cost of an hour by cause, capital by part, power by view, and what a token emits."""
    money, economics = owned.cost, owned.scenario.economics
    materials = shapes.numbers({line.name: line.value for line in (*owned.bill.chip, *owned.bill.node)})
    margin = shapes.number(owned.bill.margin)
    if money is None or economics is None:
        return {
            "hourly_usd": {},
            "capex_usd": {},
            "power_w": {},
            "carbon_g_per_output_token": {},
            "materials_usd": materials,
            "margin_over_materials": margin,
        }
    drawn = money.draw
    rate = owned.answer.metrics["output_tokens_per_s"] * economics.utilisation
    embodied = power.embodied_carbon(
        embodied=owned.scenario.system.carbon.embodied_per_chip,
        chips=owned.answer.chips,
        life=economics.life,
        per_second=rate,
    )
    operational = power.operational_carbon(power=money.utility.watts, grid=economics.grid_carbon, per_second=rate)
    return {
        "hourly_usd": shapes.numbers(money.hourly),
        "capex_usd": {} if economics.ownership == "rented" else shapes.numbers(_extras(owned)),
        "power_w": shapes.numbers(
            {
                "mean": drawn.mean.watts,
                "peak": drawn.peak.watts,
                "idle": drawn.idle.watts,
                "nameplate": drawn.nameplate.watts,
                "provisioned": drawn.nameplate.watts * economics.provisioned,
                "utility_over_the_day": money.utility.watts,
                "published_at_utility": owned.scenario.system.power.all_in_per_chip * owned.answer.chips,
            }
        ),
        "carbon_g_per_output_token": shapes.numbers({"operational": operational * 1e3, "embodied": embodied * 1e3}),
        "materials_usd": materials,
        "margin_over_materials": margin,
    }


# --- asking ------------------------------------------------------------------------------------------------------


def _most_at_once(model: Any, on: str, options: Options, changes: Sequence[str], tpot: float) -> Scenario:
    """Return the scenario with the most requests at once whose TPOT keeps a bound: powers of two, and what fits."""
    best = None
    users = 1.0
    while users <= 2**14:
        scenario = resolve(model, on, replace(options, concurrency=users), changes)
        if not float(evaluate(scenario, ("tpot_s",)).metrics["tpot_s"]) <= tpot:
            break
        best = scenario
        if float(fit(scenario).cap) * float(scenario.deployment.groups) < users:
            break
        users *= 2
    return best or resolve(model, on, replace(options, concurrency=1.0), changes)


#: Tokens a beat among which an operator chooses.
_BUDGETS = np.array([4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0])


def _with_knobs(scenario: Scenario, changes: Sequence[str], tpot: float) -> Scenario:
    """Return a scenario with the token budget and the requests at once that cost least a token and keep the bound.

    Both are the operator's to choose, where the machine's program has a budget at all and nobody gave one.
    """
    path = "system.efficiency.token_budget"
    machine = machine_of(scenario.system)
    if machine.token_budget(scenario.system) is None or any("token_budget" in change for change in changes):
        return scenario
    most = float(fit(scenario).cap) * float(scenario.deployment.groups)
    users = np.unique(np.minimum(2.0 ** np.arange(15), max(1.0, np.floor(most))))
    asked = put(put(scenario, path, _BUDGETS[:, None]), "traffic.concurrency", users[None, :])
    found = evaluate(asked, ("tpot_s", "usd_per_mtok_blended")).metrics
    shape = (len(_BUDGETS), len(users))
    price, time = (np.broadcast_to(found[name], shape) for name in ("usd_per_mtok_blended", "tpot_s"))
    kept = np.where((time <= tpot) & np.isfinite(price), price, np.inf)
    if not np.isfinite(kept).any():
        return scenario
    row, column = np.unravel_index(int(np.argmin(kept)), shape)
    budget, count = float(_BUDGETS[row]), float(users[column])
    chosen: Scenario = put(put(scenario, path, budget), "traffic.concurrency", count)
    said = f"{scenario.system.name}: {budget:g} tokens a beat and {count:g} requests at once, its cheapest setting"
    return replace(chosen, assumed=(*scenario.assumed, said))


def own(
    model: Any,
    on: Sequence[str],
    options: Options,
    changes: Sequence[str] = (),
    tpot: float | None = None,
    samples: int = SAMPLES,
) -> Owning:
    """Answer what a million tokens cost on each system.

    Parameters
    ----------
    model : str or Model
    on : sequence of str
        Systems, each with its plan after a colon.
    options : Options
        Where no concurrency is given, each system runs the most requests at once that keep ``tpot``.
    changes : sequence of str
        ``PATH=VALUE``, ``SYSTEM:PATH=VALUE`` or ``#2:PATH=VALUE``.
    tpot : float, optional
        Bound on TPOT [s]; ``TPOT`` where neither it nor a concurrency is given.
    samples : int

    Returns
    -------
    Owning
    """
    if tpot is not None and options.concurrency is not None:
        raise UserError(
            "give either --concurrency or --tpot: with a bound each system runs as many requests as keep it"
        )
    if tpot is not None and not tpot > 0:
        raise UserError(f"--tpot {tpot:g}: must be more than 0")
    scenarios = []
    for system, mine in zip(on, split_changes(on, changes), strict=True):
        here = split_system(system, options)[1]
        if here.concurrency is None:
            bound = tpot or TPOT
            scenarios.append(_with_knobs(_most_at_once(model, system, options, mine, bound), mine, bound))
        else:
            scenarios.append(resolve(model, system, options, mine))
    answers = [_answered(scenario) for scenario in scenarios]
    costs = [cost_of(s) if not a.reason and s.economics else None for s, a in zip(scenarios, answers, strict=True)]
    reference = _reference(model, options, tpot, scenarios, costs)
    systems = tuple(_owned(answer, money, reference) for answer, money in zip(answers, costs, strict=True))
    if options.concurrency is None:
        systems = tuple(_bounded(owned, tpot or TPOT) for owned in systems)
    sample = draw_samples(
        [s if money is not None else None for s, money in zip(scenarios, costs, strict=True)], samples
    )
    return Owning(systems, sample, _assumed(answers, options, tpot))


def _answered(scenario: Scenario) -> Prediction:
    """Return the answer to a scenario, with the changes that moved neither it nor anything that owning says."""

    def numbers_said(asked: Scenario) -> Any:
        answer = run(asked)
        if answer.reason or asked.economics is None:
            return content(answer), bom.bill(asked.system)
        money = cost_of(asked)
        owned = Owned(answer, money, bom.bill(asked.system), NAN, _break_even(answer, money), (), ())
        return content(answer), costs(owned), owned.break_even, _of_system(owned)

    answer = run(replace(scenario, changed=()))
    paths = [] if answer.reason else unmoved(scenario, numbers_said)
    return replace(answer, warnings=(*answer.warnings, *idle(scenario, paths, numbers)))


def _assumed(answers: Sequence[Prediction], options: Options, tpot: float | None) -> tuple[str, ...]:
    """Return what all answers assume, and how the cost is shared."""
    said = [word for word in answers[0].assumed if all(word in other.assumed for other in answers)]
    said = [word for word in said if not word.startswith("concurrency")]
    said += catalog.in_place(*(answer.scenario.system for answer in answers), catalog.load_materials())
    said = list(dict.fromkeys(said))
    if options.concurrency is None:
        said.insert(
            0, f"each system runs the most requests at once, by powers of two, whose TPOT is at most {tpot or TPOT:g} s"
        )
    said.append("rent at the price of a three-year contract, as if it were paid for busy hours only")
    said.append(
        "input and output tokens share the cost as prefill and decoding share the chips' time; on an SRAM pipeline "
        "every token costs the same"
    )
    said.append(
        "P10, P50 and P90 over all estimates and the errors of the times; triangular on the logarithm, low to high"
    )
    return tuple(said)


def _bounded(owned: Owned, tpot: float) -> Owned:
    """Return a system with a label where one request alone misses the bound, which no other number shows."""
    alone = float(owned.answer.metrics["tpot_s"])
    if not alone > tpot or float(owned.scenario.traffic.concurrency) > 1:
        return owned
    missed = f"misses the TPOT of {show(tpot, 's', 3)}: {show(alone, 's', 3)} with one request"
    return replace(owned, missed=missed, labels=(missed, *owned.labels))


def _reference(
    model: Any, options: Options, tpot: float | None, scenarios: Sequence[Scenario], costs: Sequence[Cost | None]
) -> TokenPrice | None:
    """Return the blended price of the reference under the same question, asked for where it is not compared."""
    for scenario, money in zip(scenarios, costs, strict=True):
        if scenario.system.name == REFERENCE:
            return None if money is None else TokenPrice(money.blended, "total")
    plain = replace(options, plan=None, tp=None, pp=None, ep=None, dp=None, engine=None)
    try:
        if plain.concurrency is None:
            scenario = _most_at_once(model, REFERENCE, plain, (), tpot or TPOT)
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
    return float(price * system.price.chips / answer.chips) if price > 0 else NAN


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
    found = []
    rented = scenario.economics is not None and scenario.economics.ownership == "rented"
    path = "system.price.rent_per_chip" if rented else "system.price.system"
    origin = provenance_of(scenario, path)
    if origin.kind == "estimate":
        unpublished = any(words in origin.note for words in ("no price", "not published"))
        found.append("price not published: estimate" if unpublished else "price from third parties: estimate")
    elif origin.kind == "unpublished":
        found.append("price not published")
    if provenance_of(scenario, "system.power.system_per_chip").kind == "estimate":
        found.append("nameplate power estimated")
    if caution := shape_of(system).cautions(system)[0]:
        found.append(caution)
    if system.carbon.embodied_per_chip != system.carbon.embodied_per_chip:
        found.append("embodied carbon not published")
    return tuple(found)


# --- what published prices imply ---------------------------------------------------------------------------------


def capex_of_hour(usd_per_hour: float, drawn: AllInPower, economics: Economics) -> float:
    """Return the price of a chip with its share of the node that an hourly cost implies [USD].

    Parameters
    ----------
    usd_per_hour : float
        Of one chip.
    drawn : AllInPower
        Of one chip, at the utility: no PUE is put on it.
    economics : Economics

    Notes
    -----
    Space is paid by the same power, as in SemiAnalysis's formula, so the price comes out a little low.
    """
    capital = tco.yearly_capital(
        rate=economics.cost_of_capital, years=economics.life / YEAR, residual=economics.residual
    )
    extras = tco.price_with_extras(network=economics.network, storage=economics.storage, spares=economics.spares)
    share = extras * (capital + economics.maintenance + economics.staff)
    space = tco.space_per_year(power=drawn.watts, usd_per_watt_month=economics.colocation)
    other = tco.per_hour(per_year=space + electricity_per_year(drawn, economics))
    return float(tco.price_for_cost(cost_per_hour=usd_per_hour, other_per_hour=other, yearly_share=share))


def published_hours() -> Iterator[tuple[str, str, float, float]]:
    """Give chip, kind of price, dollars an hour and watts at the utility of each published GPU-hour."""
    with (catalog.bundled() / "data" / "tco_constants.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    watts = {row["hardware"]: 1e3 * float(row["value"]) for row in rows if row["metric"] == "all_in_utility_power"}
    for row in rows:
        if row["unit"] == "$/GPU-h":
            yield row["hardware"], row["metric"], float(row["value"]), watts.get(row["hardware"], NAN)


def implied(system: System, economics: Economics | None) -> dict[str, float | None]:
    """Return the price of a system that each published hour of its chip implies [USD]."""
    if economics is None:
        return {}
    return {
        kind: shapes.number(capex_of_hour(usd, AllInPower(watts), economics) * float(system.chips_per_node))
        for chip, kind, usd, watts in published_hours()
        if _CONSTANTS.get(chip) == system.name
    }


def _flat(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, part in value.items():
        label = f"{key}_{name}".replace(",", "").replace(" ", "_")
        found |= _flat(label, part) if isinstance(part, dict) else {label: part}
    return found

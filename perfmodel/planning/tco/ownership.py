"""What a million tokens cost on several systems, what decides it, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel import shapes
from perfmodel.equations import power, tco
from perfmodel.numerics import NAN
from perfmodel.planning.tco import bom
from perfmodel.planning.tco.cash import Flow, rows
from perfmodel.planning.tco.market import Choice, Sold
from perfmodel.planning.tco.published import implied
from perfmodel.planning.tco.speed import Point
from perfmodel.planning.tco.uncertainty import Sample, Swing
from perfmodel.prediction import Prediction, question_of
from perfmodel.question import distinct
from perfmodel.serving.cost import Cost
from perfmodel.shown import Shown
from perfmodel.specs.types import Scenario

#: The system against which the price of a tie is given.
REFERENCE = "dgx-b200"
#: Results with percentiles: key of the JSON, and of the samples.
TOKENS = ("input", "output", "blended")


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
    limit : str
        What keeps it from the bound; empty where it is at it, or none was asked for.
    curve : tuple of Point
        Its cheapest settings by speed, where it was free to choose.
    choice : Choice or None
        Owned, rented or an API, where that was asked for.
    flow : Flow or None
        Its cash year by year, where it has a price.
    """

    answer: Prediction
    cost: Cost | None
    bill: bom.Bill
    tie_price: float
    break_even: float
    labels: tuple[str, ...]
    swings: tuple[Swing, ...]
    missed: str = ""
    limit: str = ""
    curve: tuple[Point, ...] = ()
    choice: Choice | None = None
    flow: Flow | None = None

    @property
    def scenario(self) -> Scenario:
        """The question."""
        return self.answer.scenario

    @property
    def name(self) -> str:
        """Name of the system."""
        return self.scenario.system.name

    @property
    def rented(self) -> bool:
        """Whether its chips are paid by the hour."""
        economics = self.scenario.economics
        return economics is not None and economics.ownership == "rented"


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
    tpot : float
        Bound on TPOT [s]; NaN where requests at once were given.
    sold : Sold or None
        What the market sells the model's tokens at.
    """

    systems: tuple[Owned, ...]
    sample: Sample
    assumed: tuple[str, ...]
    tpot: float = NAN
    sold: Sold | None = None

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
                system: {
                    other: shapes.number(self.sample.cheaper(index, theirs))
                    for theirs, other in enumerate(names)
                    if system != other
                }
                for index, system in enumerate(names)
            },
            "tpot_bound_s": shapes.number(self.tpot),
            "sold_usd_per_mtok": self._sold(),
            "assumed": list(self.assumed),
            "warnings": list(dict.fromkeys(warnings)),
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row a system, for CSV."""
        rows = []
        nothing = dict.fromkeys(("p10", "p50", "p90"))
        for answer in self.to_dict()["answers"]:
            row: dict[str, Any] = {}
            spreads = {of: ends or nothing for of, ends in answer["usd_per_mtok"].items()}
            joules = answer["joules_per_output_token_spread"] or nothing
            own = {"usd_per_mtok": spreads, "joules_per_output_token_spread": joules}
            for key, value in {**answer, **own}.items():
                if key in ("sobol", "tornado", "implied_capex_usd", "curve", "ways", "cash_flow"):
                    continue
                if key == "winner_by_year":
                    row[key] = "; ".join(
                        f"{one['year']} {one['way']} ({one['machines']})" for one in answer["winner_by_year"]
                    )
                elif isinstance(value, list):
                    row[key] = "; ".join(value)
                elif isinstance(value, dict):
                    row.update(_flat(key, value))
                else:
                    row[key] = value
            rows.append({**row, "assumed": "; ".join(self.assumed)})
        columns = dict.fromkeys(name for row in rows for name in row)
        return [{name: row.get(name) for name in columns} for row in rows]

    def cash_rows(self) -> list[dict[str, Any]]:
        """Return the cash flow of each system, one flat row a year, for CSV."""
        names = distinct([owned.name for owned in self.systems])
        pairs = zip(names, self.systems, strict=True)
        return [
            {**row, **_least_in(owned.choice, row["year"])}
            for name, owned in pairs
            if owned.flow is not None
            for row in rows(name, owned.flow)
        ]

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

    def _sold(self) -> shapes.SoldAt | None:
        if self.sold is None:
            return None
        low, high = shapes.number(self.sold.low), shapes.number(self.sold.high)
        return {"low": low, "high": high, "date": self.sold.date, "providers": self.sold.providers}

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
            "usd_per_system_month": shapes.number(money and money.per_hour * 730 * of_system(owned)),
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
            "limit": owned.limit or None,
            "price": _price(owned),
            "curve": [
                {
                    "tpot_s": shapes.number(point.tpot),
                    "usd_per_mtok": shapes.number(point.usd),
                    "concurrency": shapes.number(point.users),
                    "plan": point.plan,
                }
                for point in owned.curve
            ],
            "ways": _ways(owned.choice),
            "winner_by_year": _winners(owned.choice),
            "buy_in_year": owned.choice.buy_in if owned.choice is not None else None,
            "usd_per_task": None if owned.flow is None else shapes.number(owned.flow.usd_per_task),
            "npv_usd": None if owned.flow is None else shapes.number(owned.flow.npv),
            "cash_flow": [] if owned.flow is None else rows(name, owned.flow),
            "labels": list(owned.labels),
            "reason": answer.reason or None,
        }


def _price(owned: Owned) -> shapes.PriceSaid:
    """Return what the system costs to buy and to rent, with basis, market and dates."""
    price = owned.scenario.system.price
    return {
        "system_usd": shapes.number(price.system),
        "basis": price.basis or None,
        "date": price.date or None,
        "rent_usd_per_chip_hour": shapes.number(price.rent_per_chip * 3600),
        "market": price.market or None,
        "rent_date": price.rent_date or None,
    }


def _ways(choice: Choice | None) -> list[shapes.WayToServe]:
    """Return what each way to serve costs by load, and where it costs least."""
    if choice is None:
        return []
    ways: list[shapes.WayToServe] = []
    for way in choice.ways:
        low, high = choice.wins_from.get(way.name, (NAN, NAN))
        ways.append(
            {
                "name": way.name,
                "said": way.said,
                "usd_per_mtok": [shapes.number(value) for value in choice.costs[way.name]],
                "mtok_per_day": [shapes.number(value) for value in choice.loads],
                "wins_from_mtok_per_day": shapes.number(low),
                "wins_to_mtok_per_day": shapes.number(high),
            }
        )
    return ways


def _least_in(choice: Choice | None, year: Any) -> dict[str, Any]:
    """Return the way that costs least in a year as columns, where ways were asked for."""
    if choice is None:
        return {}
    one = next((one for one in choice.years if one.year == year), None)
    return {
        "least_way": one and one.way,
        "least_usd_per_mtok": one and shapes.number(one.per_mtok),
        "least_machines": one and one.machines,
        "least_machines_usd_per_mtok": one and shapes.number(one.machines_per_mtok),
    }


def _winners(choice: Choice | None) -> list[shapes.WinnerOfYear]:
    """Return the way that costs least in each year."""
    return [
        {
            "year": one.year,
            "mtok_per_day": shapes.number(one.load),
            "deployments": one.deployments,
            "way": one.way,
            "usd_per_mtok": shapes.number(one.per_mtok),
            "machines": one.machines,
            "machines_usd_per_mtok": shapes.number(one.machines_per_mtok),
        }
        for one in (choice.years if choice is not None else ())
    ]


def of_system(owned: Owned) -> float:
    """Return chips of a system over those of the deployment.

    Parameters
    ----------
    owned : Owned
    """
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
            "water_l_per_mtok_output": None,
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
        "water_l_per_mtok_output": shapes.number(
            tco.water_per_token(power=money.utility.watts / economics.pue, water=economics.water, per_second=rate) * 1e6
        ),
        "materials_usd": materials,
        "margin_over_materials": margin,
    }


def _flat(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, part in value.items():
        label = f"{key}_{name}".replace(",", "").replace(" ", "_")
        flat |= _flat(label, part) if isinstance(part, dict) else {label: part}
    return flat

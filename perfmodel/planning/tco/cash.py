"""Cash of owning a machine, year by year: what is paid, what is written off, what is served, and what it is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfmodel import shapes
from perfmodel.equations import power, tco
from perfmodel.numerics import NAN
from perfmodel.prediction import Prediction
from perfmodel.serving.cost import YEAR, Cost, ItPower, electricity_per_year

#: Tokens that are counted and paid by the million.
_MILLION = 1e6


@dataclass(frozen=True)
class Year:
    """One year of a deployment; year 0 is the day it is bought.

    Attributes
    ----------
    year : int
    utilisation : float
        Share of the capacity that serves; growth stops where all of it does.
    deployments : int
        Deployments that the load needs.
    capital, resale : float
        Paid for machines with network, storage and spares, and fetched at the end [USD].
    space, electricity, maintenance, staff, rent : float
        Paid in the year [USD].
    depreciation : float
        Written off in a straight line over the life; no cash [USD].
    cash : float
        What leaves, below 0 [USD].
    discounted : float
        The same in money of the day it is bought [USD].
    mtok : float
        Million tokens served, input and output together.
    market : float
        What those would cost at the cheapest API; NaN where nobody sells the model [USD].
    """

    year: int
    utilisation: float
    deployments: int
    capital: float
    resale: float
    space: float
    electricity: float
    maintenance: float
    staff: float
    rent: float
    depreciation: float
    cash: float
    discounted: float
    mtok: float
    market: float


@dataclass(frozen=True)
class Flow:
    """Cash of a deployment over the life of its machines.

    Attributes
    ----------
    years : tuple of Year
    rate : float
        Cost of capital a year [1].
    npv : float
        Of all that is paid, below 0 [USD].
    usd_per_mtok : float
        Price of a million tokens at which the present value is 0 [USD].
    usd_per_task : float
        The same of one request [USD].
    saving : float
        Present value of what the cheapest API would cost, less what is paid [USD].
    """

    years: tuple[Year, ...]
    rate: float
    npv: float
    usd_per_mtok: float
    usd_per_task: float
    saving: float


def cash_flow(answer: Prediction, money: Cost, growth: float = 0.0, api: float = NAN) -> Flow:
    """Return the cash of a deployment over the life of its machines.

    Parameters
    ----------
    answer : Prediction
    money : Cost
        Of it.
    growth : float
        Of the load, a year [1].
    api : float
        Price of a million tokens at the cheapest API [USD].

    Returns
    -------
    Flow
    """
    economics, scenario = answer.scenario.economics, answer.scenario
    assert economics is not None
    life, rate = float(economics.life) / YEAR, float(economics.cost_of_capital)
    last = max(1, math.ceil(life - 1e-9))
    rented = economics.ownership == "rented"
    extras = tco.price_with_extras(network=economics.network, storage=economics.storage, spares=economics.spares)
    capital = 0.0 if rented else float(money.price * extras)
    resale = capital * float(economics.residual)
    full = float(answer.metrics["input_tokens_per_s"] + answer.metrics["output_tokens_per_s"]) * YEAR / _MILLION
    years = [_year(0, 0.0, 0.0, capital=capital)]
    for year in range(1, last + 1):
        part = min(1.0, life - (year - 1))
        load = float(economics.utilisation) * (1 + growth) ** (year - 1)
        share = min(1.0, load)
        fixed = (
            {} if rented else {key: float(money.hourly[key]) * 8760 * part for key in ("space", "maintenance", "staff")}
        )
        day = power.power_over_the_day(busy=money.draw.mean.watts, idle=money.draw.idle.watts, utilisation=share)
        paid = 0.0 if rented else float(electricity_per_year(ItPower(day).at_utility(economics.pue), economics)) * part
        rent = float(money.hourly["rent"]) * 8760 * part if rented else 0.0
        made = _year(year, share, load, electricity=paid, rent=rent, **fixed)
        end = resale if year == last else 0.0
        writes = (capital - resale) / life * part
        years.append(
            replace(made, resale=end, depreciation=writes, mtok=full * share * part, market=full * share * part * api)
        )
    flows = tuple(_settled(year, rate, life) for year in years)
    npv = sum(year.discounted for year in flows)
    at = [min(float(year.year), life) for year in flows]
    tokens = sum(_today(year.mtok, rate, when) for year, when in zip(flows, at, strict=True))
    market = sum(_today(year.market, rate, when) for year, when in zip(flows[1:], at[1:], strict=True))
    per_mtok = -npv / tokens
    task = per_mtok * float(scenario.traffic.prompt + scenario.traffic.output) / _MILLION
    return Flow(flows, rate, npv, per_mtok, task, market + npv)


def _year(year: int, share: float, load: float, **paid: float) -> Year:
    """Return a year of which only what is paid is known."""
    nothing = dict.fromkeys(
        ("capital", "resale", "space", "electricity", "maintenance", "staff", "rent", "depreciation"), 0.0
    )
    return Year(
        year, share, math.ceil(load - 1e-9), **{**nothing, **paid}, cash=0.0, discounted=0.0, mtok=0.0, market=0.0
    )


def _settled(year: Year, rate: float, life: float) -> Year:
    """Return a year with what leaves in it, as paid and in money of the day of purchase."""
    paid = year.capital + year.space + year.electricity + year.maintenance + year.staff + year.rent
    cash = year.resale - paid
    return replace(year, cash=cash, discounted=_today(cash, rate, min(float(year.year), life)))


def _today(amount: float, rate: float, years: float) -> float:
    return float(tco.present_value(amount=amount, rate=rate, years=years))


def rows(name: str, flow: Flow) -> list[dict[str, float | int | str | None]]:
    """Return one flat row a year, for CSV and the workbook.

    Parameters
    ----------
    name : str
        Of the system.
    flow : Flow

    Returns
    -------
    list of dict
    """
    units = {"year": "year", "utilisation": "utilisation", "deployments": "deployments_needed", "mtok": "mtok_served"}
    lines = []
    for year in flow.years:
        values = {units.get(key, f"{key}_usd"): value for key, value in vars(year).items()}
        clean = {key: shapes.number(value) for key, value in values.items()}
        lines.append(
            {
                "system": name,
                **clean,
                "npv_usd": shapes.number(flow.npv),
                "usd_per_mtok": shapes.number(flow.usd_per_mtok),
                "usd_per_task": shapes.number(flow.usd_per_task),
            }
        )
    return lines


def full_from(years: Sequence[Year]) -> int | None:
    """Return the first year whose load needs another deployment; none where all of it fits one.

    Parameters
    ----------
    years : sequence of Year
    """
    return next((year.year for year in years if year.deployments > 1), None)

"""Published costs of a GPU-hour, and the prices of systems that they imply."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel import shapes
from perfmodel.equations import tco
from perfmodel.serving.cost import YEAR, AllInPower, ItPower, electricity_per_year
from perfmodel.specs import catalog
from perfmodel.specs.types import Economics, System

_CONSTANTS = {"h100": "dgx-h100", "h200": "dgx-h200", "b200": "dgx-b200", "gb200": "gb200-nvl72"}
_CONSTANTS |= {"mi300x": "mi300x-8", "mi325x": "mi325x-8", "mi355x": "mi355x-8", "b300": "b300", "gb300": "gb300-nvl72"}
_CONSTANTS |= {"rtx6000pro": "rtx-pro-6000-8"}


@dataclass(frozen=True)
class Hour:
    """A published cost of an hour of one chip.

    Attributes
    ----------
    chip, kind, survey : str
    usd : float
        [USD].
    power : AllInPower or ItPower or None
        Of one chip, as that survey has it: a power of IT gets a PUE once, one at the utility none.
    """

    chip: str
    kind: str
    survey: str
    usd: float
    power: AllInPower | ItPower | None


def _powers(power: AllInPower | ItPower, pue: float) -> tuple[float, AllInPower]:
    """Return the power that space is paid by [W], and that at the utility."""
    if isinstance(power, ItPower):
        return float(power.watts), power.at_utility(pue)
    return float(power.watts), power


def _share(economics: Economics) -> float:
    """Return the cost a year of a dollar of the machine's price."""
    capital = tco.yearly_capital(
        rate=economics.cost_of_capital, years=economics.life / YEAR, residual=economics.residual
    )
    extras = tco.price_with_extras(network=economics.network, storage=economics.storage, spares=economics.spares)
    return float(extras * (capital + economics.maintenance + economics.staff))


def _other(power: AllInPower | ItPower, economics: Economics) -> float:
    """Return what an hour costs besides the machine: space, and electricity all the time [USD]."""
    watts, utility = _powers(power, float(economics.pue))
    space = tco.space_per_year(power=watts, usd_per_watt_month=economics.colocation)
    return float(tco.per_hour(per_year=space + electricity_per_year(utility, economics)))


def capex_of_hour(usd_per_hour: float, power: AllInPower | ItPower, economics: Economics) -> float:
    """Return the price of a chip with its share of the node that an hourly cost implies [USD].

    Parameters
    ----------
    usd_per_hour : float
        Of one chip.
    power : AllInPower or ItPower
        Of one chip.
    economics : Economics

    Notes
    -----
    Space is paid by the same power; where that is a power at the utility, the price comes out a little low.
    """
    other = _other(power, economics)
    return float(tco.price_for_cost(cost_per_hour=usd_per_hour, other_per_hour=other, yearly_share=_share(economics)))


def own_hour(price: float, power: AllInPower | ItPower, economics: Economics) -> float:
    """Return what an hour of one chip costs its owner, drawing its power all the time [USD].

    Parameters
    ----------
    price : float
        Of a chip with its share of the node [USD].
    power : AllInPower or ItPower
        Of one chip.
    economics : Economics

    Returns
    -------
    float
    """
    return float(tco.per_hour(per_year=price * _share(economics))) + _other(power, economics)


def published_hours() -> Iterator[Hour]:
    """Give each published GPU-hour, with the power of its own survey."""
    with (catalog.bundled() / "data" / "tco_constants.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kinds: dict[str, type[AllInPower] | type[ItPower]] = {"all_in_utility_power": AllInPower, "it_power": ItPower}
    powers = {
        (row["hardware"], row["date"]): kinds[row["metric"]](1e3 * float(row["value"]))
        for row in rows
        if row["metric"] in kinds
    }
    for row in rows:
        if row["unit"] == "$/GPU-h":
            power = powers.get((row["hardware"], row["date"]))
            yield Hour(row["hardware"], row["metric"], row["date"], float(row["value"]), power)


def implied(system: System, economics: Economics | None) -> dict[str, float | None]:
    """Return the price of a system that each published hour of its chip implies, by kind and survey [USD]."""
    if economics is None:
        return {}
    return {
        f"{hour.kind} {hour.survey}": shapes.number(
            capex_of_hour(hour.usd, hour.power, economics) * float(system.chips_per_node)
        )
        for hour in published_hours()
        if _CONSTANTS.get(hour.chip) == system.name and hour.power is not None
    }

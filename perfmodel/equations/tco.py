"""What a machine costs a year, an hour, and a token."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, annuity, maximum, only_if

_BARROSO = "Barroso, Hoelzle, Ranganathan, The Datacenter as a Computer: cost model"
_RECOVERY = "capital recovery factor; PMT of a spreadsheet"

#: An hour and a year of 365 days [s].
_HOUR, _YEAR = 3600.0, 31_536_000.0


@equation(symbol=r"c", unit="USD", source="price of an hour over what an hour gives")
def usd_per_million(*, usd_per_hour: Number, per_second: Number) -> Any:
    r"""Price of a million tokens; of those that are counted, so say input, output or all.

    Parameters
    ----------
    usd_per_hour : Number
        Price of all chips of the deployment [USD].
    per_second : Number
        Tokens, or whatever is counted, in a second on average: a peak rate times its utilisation [1/s].

    Returns
    -------
    Number
        Price [USD].
    """
    return usd_per_hour / (_HOUR * per_second) * 1e6


@equation(symbol=r"p_{h}", unit="USD", source="price of a chip times chips")
def deployment_price(*, usd_per_chip_hour: Number, chips: Number) -> Any:
    r"""Price of an hour of a deployment.

    Parameters
    ----------
    usd_per_chip_hour : Number
        Price of one chip for an hour [USD].
    chips : Number
        Chips of the deployment [1].

    Returns
    -------
    Number
        Price [USD].
    """
    return usd_per_chip_hour * chips


@equation(symbol=r"p", unit="USD", source="a system's price shared by its chips")
def price_of_chips(*, system: Number, chips_of_system: Number, chips: Number) -> Any:
    r"""Price of the chips of a deployment, each with its share of the node.

    Parameters
    ----------
    system : Number
        Price of a system [USD].
    chips_of_system : Number
        Chips that it has [1].
    chips : Number
        Chips of the deployment [1].

    Returns
    -------
    Number
        Price [USD].
    """
    return system / chips_of_system * chips


@equation(symbol=r"x", unit="1", source=_BARROSO)
def price_with_extras(*, network: Number, storage: Number, spares: Number) -> Any:
    r"""Capital expenditure over the price of the machine alone.

    Parameters
    ----------
    network, storage, spares : Number
        On top of the price, as shares of it [1].

    Returns
    -------
    Number
        Factor [1].
    """
    return 1 + network + storage + spares


@equation(symbol=r"a", unit="1", source=_RECOVERY)
def yearly_capital(*, rate: Number, years: Number, residual: Number) -> Any:
    r"""What a dollar of capital costs a year, interest and the value that is left counted.

    Parameters
    ----------
    rate : Number
        Cost of capital a year [1].
    years : Number
        Life [1].
    residual : Number
        Share of the price that the machine fetches at the end [1].

    Returns
    -------
    Number
        Share a year; (1 - residual) / years at rate 0, and 1 + rate - residual for a single year [1].
    """
    return (1 - residual * (1 + rate) ** (-years)) * annuity(rate, years)


@equation(symbol=r"C_{col}", unit="USD", source=_BARROSO)
def space_per_year(*, power: Number, usd_per_watt_month: Number) -> Any:
    r"""Rent of colocated space.

    Parameters
    ----------
    power : Number
        Power of the machines that is provided for, without PUE [W].
    usd_per_watt_month : Number
        Rent of a watt for a month [USD/W].

    Returns
    -------
    Number
        A year [USD].
    """
    return power * usd_per_watt_month * 12


@equation(symbol=r"C_{dc}", unit="USD", source=_BARROSO)
def building_per_year(*, power: Number, usd_per_watt: Number, rate: Number, years: Number) -> Any:
    r"""Capital cost of an own data centre, built for the power of the machines.

    Parameters
    ----------
    power : Number
        Power of the machines that it is built for, without PUE [W].
    usd_per_watt : Number
        Cost of building a watt [USD/W].
    rate : Number
        Cost of capital a year [1].
    years : Number
        Life of the building [1].

    Returns
    -------
    Number
        A year [USD].
    """
    return power * usd_per_watt * annuity(rate, years)


@equation(symbol=r"C_{e}", unit="USD", source="365 days of 24 hours")
def electricity_per_year(*, power: Number, usd_per_joule: Number) -> Any:
    r"""Electricity of a year.

    Parameters
    ----------
    power : Number
        Mean power at the utility [W].
    usd_per_joule : Number
        Price [USD/J].

    Returns
    -------
    Number
        A year [USD].
    """
    return power * usd_per_joule * _YEAR


@equation(symbol=r"c_{h}", unit="USD", source="365 days of 24 hours")
def per_hour(*, per_year: Number) -> Any:
    r"""Cost of an hour.

    Parameters
    ----------
    per_year : Number
        Cost of a year [USD].

    Returns
    -------
    Number
        Cost [USD].
    """
    return per_year / 8760


@equation(symbol=r"s_{in}", unit="1", source="cost follows the chip time that each phase takes")
def input_share(*, prefill_busy: Number, decode_busy: Number) -> Any:
    r"""Share of the cost that input tokens bear; the output tokens bear the rest.

    Parameters
    ----------
    prefill_busy, decode_busy : Number
        Shares of the time that the chips spend on either [1].

    Returns
    -------
    Number
        Share [1].
    """
    return prefill_busy / (prefill_busy + decode_busy)


@equation(symbol=r"\nu_{=}", unit="1", source="own cost is fixed but for energy; rent is paid by the hour of use")
def break_even_utilisation(*, fixed: Number, idle_energy: Number, busy_energy: Number, rent: Number) -> Any:
    r"""Share of the day from which owning costs no more than renting by the hour.

    Parameters
    ----------
    fixed : Number
        Cost of an hour of owning without electricity [USD].
    idle_energy, busy_energy : Number
        Electricity of an hour idle and busy [USD].
    rent : Number
        Rent of an hour of use [USD].

    Returns
    -------
    Number
        Share; above 1 renting is always cheaper, and there is none where rent does not pay for electricity [1].
    """
    saved = rent - busy_energy + idle_energy
    return only_if(saved, (fixed + idle_energy) / maximum(1e-12, saved))


@equation(symbol=r"p_{=}", unit="USD", source="the cost of an hour is linear in the price")
def price_for_cost(*, cost_per_hour: Number, other_per_hour: Number, yearly_share: Number) -> Any:
    r"""Price of a machine at which an hour of it costs so much.

    Parameters
    ----------
    cost_per_hour : Number
        All that an hour may cost [USD].
    other_per_hour : Number
        What does not depend on the price: space and electricity [USD].
    yearly_share : Number
        Cost a year of a dollar of the price: capital, extras, maintenance and staff [1].

    Returns
    -------
    Number
        Price; below 0 where space and electricity alone cost more [USD].
    """
    return (cost_per_hour - other_per_hour) * 8760 / yearly_share


@equation(symbol=r"w", unit="L", source="water usage effectiveness, The Green Grid: litres over the energy of IT")
def water_per_token(*, power: Number, water: Number, per_second: Number) -> Any:
    r"""Water that a site uses for a token.

    Parameters
    ----------
    power : Number
        Mean power of the machines, without PUE [W].
    water : Number
        Water a joule of the machines [L/J].
    per_second : Number
        Tokens in a second, on average over the same time [1/s].

    Returns
    -------
    Number
        Water [L].
    """
    return power * water / per_second


@equation(symbol=r"PV", unit="USD", source="present value of an amount at the end of a year; PV of a spreadsheet")
def present_value(*, amount: Number, rate: Number, years: Number) -> Any:
    r"""Value today of an amount that is paid later.

    Parameters
    ----------
    amount : Number
        Paid [USD].
    rate : Number
        Cost of capital a year [1].
    years : Number
        Until it is paid [1].

    Returns
    -------
    Number
        Value [USD].
    """
    return amount * (1 + rate) ** (-years)

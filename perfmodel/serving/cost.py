"""Power and cost of a steady state: what the chips draw, what an hour costs, and how tokens share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.equations import power, serving, tco
from perfmodel.machines.base import machine_of
from perfmodel.machines.power import Work, shape_of
from perfmodel.numerics import maximum
from perfmodel.serving.steady import Steady, steady_state
from perfmodel.specs.types import Economics, Scenario
from perfmodel.trace import scope

YEAR = 31_536_000.0


@dataclass(frozen=True)
class AllInPower:
    """Power at the utility [W]: cooling, network and losses are in it, and there is no way to put a PUE on it."""

    watts: Any


@dataclass(frozen=True)
class ItPower:
    """Power of machines [W], before what the building adds."""

    watts: Any

    def at_utility(self, pue: Any) -> AllInPower:
        """Return it with what the building adds, once.

        Parameters
        ----------
        pue : Number
            Power at the utility over that of the machines [1].

        Returns
        -------
        AllInPower
        """
        return AllInPower(power.utility_power(power=self.watts, pue=pue))


def electricity_per_year(drawn: AllInPower, economics: Economics) -> Any:
    """Return the price of a year's electricity [USD]; only power at the utility is paid for.

    Parameters
    ----------
    drawn : AllInPower
    economics : Economics

    Returns
    -------
    Number
        Price [USD].
    """
    if not isinstance(drawn, AllInPower):
        raise TypeError("electricity is paid at the utility: give an AllInPower, as ItPower(...).at_utility(pue)")
    return tco.electricity_per_year(power=drawn.watts, usd_per_joule=economics.electricity)


@dataclass(frozen=True)
class Draw:
    """Power of a deployment, the three views kept apart [W].

    Attributes
    ----------
    mean : ItPower
        While it serves, from what the steps predict.
    peak : ItPower
        During the step that draws most.
    idle : ItPower
        While nothing runs.
    nameplate : ItPower
        What the machines are rated for.
    chip : Any
        Mean of one chip alone, without its share of the node; NaN where only the system's power is known.
    prefill_busy, decode_busy : Any
        Shares of the time that a chip spends on either.
    """

    mean: ItPower
    peak: ItPower
    idle: ItPower
    nameplate: ItPower
    chip: Any
    prefill_busy: Any
    decode_busy: Any


@dataclass(frozen=True)
class Cost:
    """What a deployment costs.

    Attributes
    ----------
    draw : Draw
    price : Any
        Of the chips with their share of the nodes [USD].
    hourly : mapping
        Cost of an hour by cause, adding up to ``per_hour`` [USD].
    per_hour : Any
        All chips together [USD].
    yearly_share : Any
        Cost a year of a dollar of the price [1].
    utility : AllInPower
        Mean over the day.
    input_share : Any
        Share of the cost that input tokens bear.
    input, output, blended : Any
        Price of a million tokens of each kind; blended is over both [USD].
    """

    draw: Draw
    price: Any
    hourly: Mapping[str, Any]
    per_hour: Any
    yearly_share: Any
    utility: AllInPower
    input_share: Any
    input: Any
    output: Any
    blended: Any


def draw(scenario: Scenario, steady: Steady) -> Draw:
    """Return what a deployment draws in its steady state.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady

    Returns
    -------
    Draw
    """
    plate, shape, plan = scenario.system.power, shape_of(scenario.system), scenario.deployment
    rate = steady.rate / plan.groups
    with scope("power"):
        # A prefill's share of a replica's time already counts who shares a step and how many stages there are.
        prefill_busy = power.busy_share(rate=rate, time=steady.occupancy, sequences=1.0, stages=1.0)
        decode_busy = power.busy_share(
            rate=rate * (steady.output - 1),
            time=steady.decode.time,
            sequences=steady.decode.sequences,
            stages=plan.pp,
        )
        # A step that decodes and prefills is busy once.
        once = maximum(1.0, prefill_busy + decode_busy)
        prefill_busy, decode_busy = prefill_busy / once, decode_busy / once
        nameplate = power.deployment_power(chips=steady.chips, chip=plate.system_per_chip, rest=0.0)
        watts = shape.watts(
            plate, nameplate, Work(steady.chips, steady.rate, steady.prefill, steady.decode, prefill_busy, decode_busy)
        )
        return Draw(
            mean=ItPower(watts.mean),
            peak=ItPower(watts.peak),
            idle=ItPower(watts.idle),
            nameplate=ItPower(nameplate),
            chip=watts.chip,
            prefill_busy=prefill_busy,
            decode_busy=decode_busy,
        )


def cost(scenario: Scenario, steady: Steady, drawn: Draw) -> Cost:
    """Return what a deployment costs in its steady state, given what it draws.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady
    drawn : Draw

    Returns
    -------
    Cost

    Notes
    -----
    Input and output tokens share the cost as prefill and decoding share the time of the chips; a million of both
    together costs ``blended``.  In a pipeline, where both share every beat, all tokens cost the same.  The deployment
    serves for ``economics.utilisation`` of the day and is paid for all of it.
    """
    economics = scenario.economics
    assert economics is not None
    with scope("cost"):
        years = economics.life / YEAR
        paid = scenario.system.price.system * economics.price_level
        price = tco.price_of_chips(system=paid, chips_of_system=scenario.system.price.chips, chips=steady.chips)
        day = power.power_over_the_day(busy=drawn.mean.watts, idle=drawn.idle.watts, utilisation=economics.utilisation)
        utility = ItPower(day).at_utility(economics.pue)
        extras = tco.price_with_extras(network=economics.network, storage=economics.storage, spares=economics.spares)
        capital = tco.yearly_capital(rate=economics.cost_of_capital, years=years, residual=economics.residual)
        yearly_share = extras * (capital + economics.maintenance + economics.staff)
        if economics.ownership == "rented":
            rent = tco.deployment_price(
                usd_per_chip_hour=scenario.system.price.rent_per_chip * 3600, chips=steady.chips
            )
            hourly = {"rent": rent}
        else:
            provided = drawn.nameplate.watts * economics.provisioned
            if economics.ownership == "owned":
                space = tco.building_per_year(
                    power=provided,
                    usd_per_watt=economics.building,
                    rate=economics.cost_of_capital,
                    years=economics.building_life / YEAR,
                )
            else:
                space = tco.space_per_year(power=provided, usd_per_watt_month=economics.colocation)
            yearly = {
                "machine": price * capital,
                "network, storage, spares": price * (extras - 1) * capital,
                "maintenance": price * extras * economics.maintenance,
                "staff": price * extras * economics.staff,
                "space": space,
                "electricity": electricity_per_year(utility, economics),
            }
            hourly = {cause: tco.per_hour(per_year=amount) for cause, amount in yearly.items()}
        first, *others = hourly.values()
        per_hour = first
        for other in others:
            per_hour = per_hour + other
        takes: tuple[Any, Any] = drawn.prefill_busy, drawn.decode_busy
        if machine_of(scenario.system).prefill_rides:
            # Prompt and output tokens share every beat, so time tells nothing: a computed one takes a slot of it.
            hits = scenario.traffic.prefix_hits
            takes = serving.computed_prompt(prompt=steady.prompt, hits=hits), steady.output
        share = tco.input_share(prefill_busy=takes[0], decode_busy=takes[1])
        sold = steady.rate * economics.utilisation
        return Cost(
            draw=drawn,
            price=price,
            hourly=hourly,
            per_hour=per_hour,
            yearly_share=yearly_share,
            utility=utility,
            input_share=share,
            input=tco.usd_per_million(usd_per_hour=per_hour * share, per_second=sold * steady.prompt),
            output=tco.usd_per_million(usd_per_hour=per_hour * (1 - share), per_second=sold * steady.output),
            blended=tco.usd_per_million(usd_per_hour=per_hour, per_second=sold * (steady.prompt + steady.output)),
        )


def cost_of(scenario: Scenario) -> Cost:
    """Return power and cost of a scenario; where the model does not fit, its numbers mean nothing.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Cost
    """
    steady = steady_state(scenario)
    return cost(scenario, steady, draw(scenario, steady))

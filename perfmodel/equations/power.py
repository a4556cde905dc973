"""Power while serving, energy of a token, and what both emit."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, maximum, minimum

_SHARES = "time-weighted mean over what the step predicts"

#: A kilowatt-hour [J].
_KWH = 3.6e6


@equation(symbol=r"b", unit="1", source="rate times the time that each takes of a chip")
def busy_share(*, rate: Number, time: Number, sequences: Number, stages: Number) -> Any:
    r"""Share of the time that a chip spends on one kind of step.

    Parameters
    ----------
    rate : Number
        Steps that the sequences of a replica need in a second, each sequence for itself [1/s].
    time : Number
        Time of a step through all pipeline stages [s].
    sequences : Number
        Sequences that share a step [1].
    stages : Number
        Pipeline stages, of which a step keeps one busy at a time [1].

    Returns
    -------
    Number
        Share [1].
    """
    return rate * time / (sequences * stages)


@equation(symbol=r"u", unit="1", source=_SHARES)
def step_power_share(
    *,
    time: Number,
    compute: Number,
    memory: Number,
    collective: Number,
    overhead: Number,
    compute_level: Number,
    memory_level: Number,
    collective_level: Number,
    overhead_level: Number,
    idle: Number,
    cap: Number,
) -> Any:
    r"""Mean power of a chip during one step, as a share of its TDP.

    Parameters
    ----------
    time : Number
        Time of the step [s].
    compute, memory, collective, overhead : Number
        Parts of it that each cause takes; for the rest the chip waits [s].
    compute_level, memory_level, collective_level, overhead_level : Number
        Power over TDP meanwhile [1].
    idle : Number
        Power over TDP of a chip that waits [1].
    cap : Number
        Power limit over TDP [1].

    Returns
    -------
    Number
        Share [1].
    """
    drawn = (
        compute * (compute_level - idle)
        + memory * (memory_level - idle)
        + collective * (collective_level - idle)
        + overhead * (overhead_level - idle)
    )
    return minimum(cap, idle + drawn / time)


@equation(symbol=r"\bar{u}", unit="1", source=_SHARES)
def mean_power_share(
    *, idle: Number, prefill_busy: Number, decode_busy: Number, prefill_level: Number, decode_level: Number
) -> Any:
    r"""Mean power of a chip in the steady state, as a share of its TDP.

    Parameters
    ----------
    idle : Number
        Power over TDP of a chip that waits [1].
    prefill_busy, decode_busy : Number
        Shares of the time spent on either [1].
    prefill_level, decode_level : Number
        Power over TDP meanwhile [1].

    Returns
    -------
    Number
        Share [1].
    """
    return idle + prefill_busy * (prefill_level - idle) + decode_busy * (decode_level - idle)


@equation(symbol=r"P_{rest}", unit="W", source="nameplate of the node less that of its chips, a part of it drawn")
def rest_of_node(*, system: Number, tdp: Number, share: Number) -> Any:
    r"""Power of host, links, fans and losses beside one chip.

    Parameters
    ----------
    system : Number
        Nameplate power of the node over its chips [W].
    tdp : Number
        Nameplate power of a chip [W].
    share : Number
        Share of the difference that is drawn [1].

    Returns
    -------
    Number
        Power [W].
    """
    return share * maximum(0.0, system - tdp)


@equation(symbol=r"P", unit="W", source="chips, each with its share of the node")
def deployment_power(*, chips: Number, chip: Number, rest: Number) -> Any:
    r"""Power of all chips of a deployment with their share of the node; no PUE is in it.

    Parameters
    ----------
    chips : Number
        Chips [1].
    chip : Number
        Power of a chip [W].
    rest : Number
        Power of the node beside one chip [W].

    Returns
    -------
    Number
        Power [W].
    """
    return chips * (chip + rest)


@equation(symbol=r"\bar{P}_{day}", unit="W", source="busy for a share of the day, idle for the rest")
def power_over_the_day(*, busy: Number, idle: Number, utilisation: Number) -> Any:
    r"""Mean power of a deployment that serves for a share of the day.

    Parameters
    ----------
    busy : Number
        Mean power while serving [W].
    idle : Number
        Power while nothing runs [W].
    utilisation : Number
        Share of the day's capacity that serves [1].

    Returns
    -------
    Number
        Power [W].
    """
    return utilisation * busy + (1 - utilisation) * idle


@equation(symbol=r"P_{util}", unit="W", source="definition of the PUE: facility over IT power")
def utility_power(*, power: Number, pue: Number) -> Any:
    r"""Power at the utility; what is stated all-in is this already.

    Parameters
    ----------
    power : Number
        Power of the machines [W].
    pue : Number
        Power usage effectiveness [1].

    Returns
    -------
    Number
        Power [W].
    """
    return power * pue


@equation(symbol=r"e", unit="J", source="power over rate")
def energy_per_token(*, power: Number, per_second: Number) -> Any:
    r"""Energy of a token; power is the mean while serving, not the nameplate.

    Parameters
    ----------
    power : Number
        Mean power of all chips of the deployment [W].
    per_second : Number
        Tokens in a second [1/s].

    Returns
    -------
    Number
        Energy [J].
    """
    return power / per_second


@equation(symbol=r"c_{e}", unit="USD", source="3.6 MJ a kilowatt-hour")
def electricity_per_million(*, energy: Number, usd_per_kwh: Number) -> Any:
    r"""Price of the electricity of a million tokens.

    Parameters
    ----------
    energy : Number
        Energy of a token [J].
    usd_per_kwh : Number
        Price of a kilowatt-hour [USD].

    Returns
    -------
    Number
        Price [USD].
    """
    return energy * 1e6 / _KWH * usd_per_kwh


@equation(symbol=r"g_{op}", unit="kg", source="energy at the utility times the grid's intensity")
def operational_carbon(*, power: Number, grid: Number, per_second: Number) -> Any:
    r"""Emissions of the electricity of a token, CO2 equivalent.

    Parameters
    ----------
    power : Number
        Mean power at the utility [W].
    grid : Number
        Intensity of the grid [kg/J].
    per_second : Number
        Tokens in a second, on average over the same time [1/s].

    Returns
    -------
    Number
        Emissions [kg].
    """
    return power * grid / per_second


@equation(symbol=r"g_{emb}", unit="kg", source="spread evenly over the life")
def embodied_carbon(*, embodied: Number, chips: Number, life: Number, per_second: Number) -> Any:
    r"""Emissions of making the machine that fall on a token, CO2 equivalent.

    Parameters
    ----------
    embodied : Number
        Of one chip with its share of the node [kg].
    chips : Number
        Chips [1].
    life : Number
        Life of the machine [s].
    per_second : Number
        Tokens in a second, on average over the life [1/s].

    Returns
    -------
    Number
        Emissions [kg].
    """
    return embodied * chips / (life * per_second)

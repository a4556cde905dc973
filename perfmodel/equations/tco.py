"""What a token costs."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number


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
    return usd_per_hour / (3600 * per_second) * 1e6


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

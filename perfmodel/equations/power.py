"""Energy of a token."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number


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
    return energy * 1e6 / 3.6e6 * usd_per_kwh

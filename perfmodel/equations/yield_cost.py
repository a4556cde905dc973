"""From wafer to package: dies, yield, harvesting, and the bill of materials of a chip."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, exp, maximum, switch_at

_ACTUARY = "Feng, Ma, Chiplet Actuary, DAC 2022, arXiv:2203.12268"
_PI = 3.141592653589793


@equation(symbol=r"n_{die}", unit="1", source=_ACTUARY)
def dies_per_wafer(*, area: Number, diameter: Number, scribe: Number, edge: Number) -> Any:
    r"""Dies on a round wafer, those at the edge taken off.

    Parameters
    ----------
    area : Number
        Area of a die, taken as a square [mm2].
    diameter : Number
        Of the wafer [mm].
    scribe : Number
        Width of the line between dies [mm].
    edge : Number
        Ring that is not used [mm].

    Returns
    -------
    Number
        Dies, not rounded; 0 where none fits [1].
    """
    side = area**0.5 + scribe
    usable = diameter - 2 * edge
    return maximum(0.0, _PI * usable**2 / (4 * side**2) - _PI * usable / (2**0.5 * side))


@equation(symbol=r"Y_{P}", unit="1", source="Poisson: defects fall independently")
def poisson_yield(*, defects: Number, area: Number) -> Any:
    r"""Share of dies without a defect, defects spread evenly.

    Parameters
    ----------
    defects : Number
        Defect density [1/mm2].
    area : Number
        Area of a die [mm2].

    Returns
    -------
    Number
        Share; 1 at density 0 [1].
    """
    return exp(-defects * area)


@equation(symbol=r"Y_{M}", unit="1", source="Murphy 1964, doi:10.1109/PROC.1964.3442")
def murphy_yield(*, defects: Number, area: Number) -> Any:
    r"""Share of dies without a defect, the density itself spread as a triangle.

    Parameters
    ----------
    defects : Number
        Mean defect density [1/mm2].
    area : Number
        Area of a die [mm2].

    Returns
    -------
    Number
        Share; 1 at density 0 [1].
    """
    expected = defects * area
    # Near no defect at all the closed form is 0 over 0; its series is exact to 1e-13 there.
    held = maximum(1e-4, expected)
    series = 1 - expected + 7 / 12 * expected**2
    return switch_at(expected, 1e-4, series, ((1 - exp(-held)) / held) ** 2)


@equation(symbol=r"Y_{S}", unit="1", source="Seeds 1967: exponentially spread density")
def seeds_yield(*, defects: Number, area: Number) -> Any:
    r"""Share of dies without a defect, the density spread as an exponential.

    Parameters
    ----------
    defects : Number
        Mean defect density [1/mm2].
    area : Number
        Area of a die [mm2].

    Returns
    -------
    Number
        Share; 1 at density 0 [1].
    """
    return 1 / (1 + defects * area)


@equation(symbol=r"Y", unit="1", source="Stapper 1983, doi:10.1147/rd.276.0549; cluster parameter of Chiplet Actuary")
def negative_binomial_yield(*, defects: Number, area: Number, cluster: Number) -> Any:
    r"""Share of dies without a defect, defects clustered.

    Parameters
    ----------
    defects : Number
        Mean defect density [1/mm2].
    area : Number
        Area of a die [mm2].
    cluster : Number
        Cluster parameter: 1 gives Seeds', many give Poisson's [1].

    Returns
    -------
    Number
        Share; 1 at density 0 [1].
    """
    return (1 + defects * area / cluster) ** (-cluster)


@equation(symbol=r"Y_{sold}", unit="1", source="dies that are sold with spare units switched off")
def harvested_yield(*, perfect: Number, harvest: Number) -> Any:
    r"""Share of dies that can be sold.

    Parameters
    ----------
    perfect : Number
        Share without a defect [1].
    harvest : Number
        Share of the others whose defect lies where a spare unit stands in [1].

    Returns
    -------
    Number
        Share; 1 where harvest is 1 [1].
    """
    return perfect + (1 - perfect) * harvest


@equation(symbol=r"c_{die}", unit="USD", source=_ACTUARY)
def die_cost(*, wafer: Number, dies: Number, sold: Number) -> Any:
    r"""Cost of a die that can be sold.

    Parameters
    ----------
    wafer : Number
        Price of a processed wafer [USD].
    dies : Number
        Dies on it [1].
    sold : Number
        Share of them that can be sold [1].

    Returns
    -------
    Number
        Cost [USD].
    """
    return wafer / (dies * sold)


@equation(symbol=r"c_{mem}", unit="USD", source="price of a byte at its date")
def memory_cost(*, capacity: Number, usd_per_byte: Number) -> Any:
    r"""Cost of memory.

    Parameters
    ----------
    capacity : Number
        Bytes [B].
    usd_per_byte : Number
        Price of a byte at the date [USD/B].

    Returns
    -------
    Number
        Cost [USD].
    """
    return capacity * usd_per_byte


@equation(symbol=r"Y_{pkg}", unit="1", source=_ACTUARY)
def package_yield(*, bond: Number, parts: Number) -> Any:
    r"""Share of packages that come out good, every part bonded in turn.

    Parameters
    ----------
    bond : Number
        Share of bonds that hold [1].
    parts : Number
        Dies and stacks of memory [1].

    Returns
    -------
    Number
        Share; 1 where all hold [1].
    """
    return bond**parts


@equation(symbol=r"c_{loss}", unit="USD", source=_ACTUARY)
def package_loss(*, content: Number, good: Number) -> Any:
    r"""Cost of what is lost with bad packages, on each good one.

    Parameters
    ----------
    content : Number
        Dies, memory and package of one [USD].
    good : Number
        Share of packages that come out good [1].

    Returns
    -------
    Number
        Cost; 0 where all come out good [USD].
    """
    return content * (1 / good - 1)


@equation(symbol=r"p_{m}", unit="USD", source="definition of a gross margin")
def price_at_margin(*, cost: Number, margin: Number) -> Any:
    r"""Price that leaves a gross margin.

    Parameters
    ----------
    cost : Number
        Cost of materials [USD].
    margin : Number
        Share of the price that is not cost, below 1 [1].

    Returns
    -------
    Number
        Price; the cost at margin 0 [USD].
    """
    return cost / (1 - margin)

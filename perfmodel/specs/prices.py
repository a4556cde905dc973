"""Filling what a system's file leaves open of its price from a dated release, on one basis and in one market."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from perfmodel.specs.types import Basis, Market, Prices, Provenance, System

BASES: tuple[str, ...] = get_args(Basis)
MARKETS: tuple[str, ...] = get_args(Market)
#: Basis and market of a price that the user's own file or a change gives.
QUOTE = "quote"
#: How the file of a price is named that a release has filled.
RELEASE = "prices/"


def filled(system: System, release: Prices, basis: str, market: str) -> System:
    """Return a system with the prices of a release; those of its own file stay.

    Parameters
    ----------
    system : System
    release : Prices
    basis : str
        Of the purchase.
    market : str
        Of the rent; where the release has none there, the next of contract, neocloud and hyperscaler that it has.

    Returns
    -------
    System
        ``price`` says its basis, market and dates.
    """
    price, origins = system.price, dict(system.provenance)
    if _open(origins, "price.system"):
        value, origin, named = _purchase(release, price.of, basis)
        if value == value:
            price = replace(price, system=value, basis=named, date=origin.date)
            origins["price.system"] = replace(origin, file=f"{RELEASE}{release.name}.yaml")
    elif not price.basis:
        price = replace(price, basis=QUOTE)
    if _open(origins, "price.rent_per_chip"):
        here = release.rent.get(price.of, {})
        named = next((word for word in (market, *MARKETS) if word in here), "")
        if named:
            origin = release.provenance[f"rent.{price.of}.{named}"]
            price = replace(price, rent_per_chip=here[named], market=named, rent_date=origin.date)
            origins["price.rent_per_chip"] = replace(origin, file=f"{RELEASE}{release.name}.yaml")
    elif not price.market:
        price = replace(price, market=QUOTE)
    return replace(system, price=price, provenance=origins)


def _open(origins: Mapping[str, Provenance], path: str) -> bool:
    """Whether a price is to be filled: no file has it, or a release has filled it before."""
    origin = origins.get(path)
    return origin is None or origin.kind == "unpublished" or origin.file.startswith(RELEASE)


def _purchase(release: Prices, entry: str, basis: str) -> tuple[Any, Provenance, str]:
    """Return the price of an entry on a basis, moved there from another one where it has to be, and its basis."""
    here = release.purchase.get(entry, {})
    if not here:
        return float("nan"), Provenance("", "unpublished"), ""
    if basis in here:
        return here[basis], release.provenance[f"purchase.{entry}.{basis}"], basis
    other = next(word for word in ("listing", *BASES) if word in here)
    factor = release.over_listing[basis] / release.over_listing[other]
    origin = release.provenance[f"purchase.{entry}.{other}"]
    moved = replace(
        origin,
        kind="estimate",
        low=origin.low * factor,
        high=origin.high * factor,
        note=f"moved from {other} to {basis} by {factor:.2g}: {origin.note}",
    )
    return here[other] * factor, moved, basis

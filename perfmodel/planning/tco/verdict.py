"""Who is cheapest, how sure that is, and where two machines tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfmodel.planning.tco.ownership import Owned, Owning
from perfmodel.specs.paths import provenance_of

#: Two tie where it is less likely than this which one is cheaper: P10 to P90 of what they do not share, of equal width,
#: then overlap by half (a shift of 1.28 standard deviations, so of 0.91 of their difference).
SURE = 0.82
#: Of the narrower range, the overlap from which two prices tie.
HALF = 0.5


@dataclass(frozen=True)
class Verdict:
    """The order of machines by what a million tokens cost.

    Attributes
    ----------
    order : tuple of int
        Places of those that are ranked, the cheapest first.
    likely : tuple of float
        Chance that the cheapest is cheaper than each of them; 0.5 for itself.
    unranked : tuple of (int, str)
        Places of the others, and why they are not ranked.
    """

    order: tuple[int, ...]
    likely: tuple[float, ...]
    unranked: tuple[tuple[int, str], ...]

    @property
    def ties(self) -> tuple[int, ...]:
        """Places of those that tie with the cheapest."""
        return tuple(at for at, share in zip(self.order[1:], self.likely[1:], strict=True) if share < SURE)


def verdict(result: Owning) -> Verdict:
    """Return the order of the machines of a comparison; what is paid otherwise than most is not ranked.

    Parameters
    ----------
    result : Owning

    Returns
    -------
    Verdict
    """
    middles: dict[int, float] = {}
    unranked: list[tuple[int, str]] = []
    bought = [at for at, owned in enumerate(result.systems) if owned.cost is not None and not owned.rented]
    for at, owned in enumerate(result.systems):
        middle = result.percentiles(at, "blended")["p50"]
        if owned.answer.reason:
            unranked.append((at, owned.answer.reason))
        elif middle is None:
            unranked.append((at, _unpriced(owned)))
        elif owned.missed:
            unranked.append((at, owned.missed))
        elif owned.rented and bought:
            unranked.append((at, "rented, the others bought: not ranked with them"))
        else:
            middles[at] = middle
    order = tuple(sorted(middles, key=lambda at: middles[at]))
    likely = tuple(0.5 if at == order[0] else result.sample.cheaper(order[0], at) or 0.0 for at in order)
    return Verdict(order, likely, tuple(unranked))


def _unpriced(owned: Owned) -> str:
    """Return in one line why a machine has no price."""
    system = owned.scenario.system
    if owned.rented:
        return "no rent is known: give system.price.rent_per_chip with --set"
    if system.price.system != system.price.system:
        note = provenance_of(owned.scenario, "system.price.system").note
        return f"no price: {note or 'not published'}; give system.price.system with --set"
    if system.power.system_per_chip != system.power.system_per_chip:
        return "no cost: its nameplate power is not published; give system.power.system_per_chip with --set"
    return "no price: a number of its times is not published"


@dataclass(frozen=True)
class Listed:
    """What a system is sold at [USD], with the range of that basis."""

    name: str
    low: float
    value: float
    high: float
    basis: str
    date: str


def by_price(systems: Sequence[Owned]) -> list[Listed]:
    """Return the systems that are bought, by price, the cheapest first.

    Parameters
    ----------
    systems : sequence of Owned

    Returns
    -------
    list of Listed
    """
    priced = []
    for owned in systems:
        price, origin = owned.scenario.system.price, provenance_of(owned.scenario, "system.price.system")
        value = float(price.system)
        if value == value and not owned.rented:
            given = origin.kind == "given" or origin.low != origin.low
            low, high = (value, value) if given else (origin.low, origin.high)
            basis = "quote" if origin.kind == "given" else price.basis
            priced.append(Listed(owned.name, low, value, high, basis, price.date))
    return sorted(priced, key=lambda listed: listed.value)


def overlap(first: Listed, other: Listed) -> bool:
    """Whether two ranges overlap by half of the narrower one.

    Parameters
    ----------
    first, other : Listed
    """
    shared = min(first.high, other.high) - max(first.low, other.low)
    narrow = min(first.high - first.low, other.high - other.low)
    return shared >= HALF * narrow and (shared > 0 or first.value == other.value)

"""What the market sells tokens at, and the load from which machines of one's own, rented ones or an API cost least."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfmodel.prediction import Prediction
from perfmodel.serving.cost import YEAR, cost_of
from perfmodel.serving.steady import chips
from perfmodel.specs import catalog
from perfmodel.specs.paths import put
from perfmodel.specs.prices import MARKETS, filled
from perfmodel.specs.types import Economics, Prices, Scenario

#: A price that is older than so many months is said.
OLD = 6
#: Shares of what one deployment can serve at which the ways are compared.
LOADS = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
#: Of the list price, where a provider takes less for work that may wait a day; OpenAI, Anthropic and Google say half.
BATCH = 0.5
#: Ways that stand for reference: one that waits a day, and one that nobody needs to take.
_BESIDE = ("its batch rate", "dearest API")
#: Ways for which machines are placed in a room of one's own or of another.
PLACED = ("colocated", "owned")


@dataclass(frozen=True)
class Offer:
    """A provider's price of tokens.

    Attributes
    ----------
    provider, date, source : str
    input, output, cached : float
        A million tokens of each kind; ``cached`` is that of input where there is none [USD].
    """

    provider: str
    date: str
    source: str
    input: float
    output: float
    cached: float

    def blended(self, prompt: float, output: float, hits: float = 0.0) -> float:
        """Return the price of a million tokens of a traffic, input and output together [USD].

        Parameters
        ----------
        prompt, output : float
            Tokens of a request.
        hits : float
            Share of the prompt that is read from a cache.
        """
        spent = prompt * ((1 - hits) * self.input + hits * self.cached) + output * self.output
        return spent / (prompt + output)


def offers(model: str) -> list[Offer]:
    """Return the newest price of each provider of a model, the cheapest entry where a provider lists several.

    Parameters
    ----------
    model : str
        Name of a bundled model; one that nobody sells has none.
    """
    with (catalog.bundled() / "data" / "token_prices.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    newest: dict[str, Offer] = {}
    for row in rows:
        paid = float(row["input_usd_per_mtok"])
        cached = float(row["cached_usd_per_mtok"] or paid)
        offer = Offer(
            row["provider"], row["date"], row["source"], paid, float(row["output_usd_per_mtok"]), min(paid, cached)
        )
        best = newest.get(offer.provider)
        if best is None or (offer.date, -offer.output) > (best.date, -best.output):
            newest[offer.provider] = offer
    return sorted(newest.values(), key=lambda offer: offer.output)


def months(date: str) -> int:
    """Return a month as a count, from a date that begins as 2026-11 or 2026."""
    year, _, month = date.partition("-")
    return int(year[:4]) * 12 + (int(month[:2]) if month[:2].isdigit() else 6)


@dataclass(frozen=True)
class Sold:
    """What a model is sold at for one traffic: the span of the providers' blended prices [USD per million tokens]."""

    low: float
    high: float
    date: str
    providers: int
    old: tuple[str, ...]


def sold(model: str, prompt: float, output: float, release: str) -> Sold | None:
    """Return what providers sell a model's tokens at; none where nobody does.

    Parameters
    ----------
    model : str
    prompt, output : float
        Tokens of a request.
    release : str
        Of the prices, as 2026-11: those two quarters older are named.
    """
    offered = offers(model)
    if not offered:
        return None
    prices = [offer.blended(prompt, output) for offer in offered]
    old = tuple(offer.provider for offer in offered if months(release) - months(offer.date) > OLD)
    return Sold(min(prices), max(prices), max(offer.date for offer in offered), len(offered), old)


@dataclass(frozen=True)
class Way:
    """A way to serve: machines owned, colocated or rented, or an API.

    Attributes
    ----------
    name : str
    per_hour : float
        Of one deployment, paid whatever it serves [USD]; 0 for an API and for chips on demand.
    per_busy_hour : float
        Of one deployment, paid while it serves [USD].
    per_mtok : float
        Of a million tokens, paid as they are used [USD].
    said : str
        Market and date.
    """

    name: str
    per_hour: float
    per_busy_hour: float
    per_mtok: float
    said: str = ""

    def cost(self, load: float, capacity: float) -> float:
        """Return what a million tokens cost at a load [USD].

        Parameters
        ----------
        load, capacity : float
            Million tokens an hour that are asked for, and that one deployment can give.
        """
        deployments = math.ceil(load / capacity - 1e-9)
        return self.per_hour * deployments / load + self.per_busy_hour / capacity + self.per_mtok


@dataclass(frozen=True)
class Cheapest:
    """The way that costs least in one year.

    Attributes
    ----------
    year : int
    load : float
        Million tokens a day.
    deployments : int
        That the load needs.
    way : str
    per_mtok : float
        Of a million tokens [USD].
    machines, machines_per_mtok : str, float
        The same among machines only, owned, colocated or rented; empty and NaN where none has a price.
    """

    year: int
    load: float
    deployments: int
    way: str
    per_mtok: float
    machines: str
    machines_per_mtok: float


@dataclass(frozen=True)
class Choice:
    """The ways to serve one machine's load, and the load at which each wins.

    Attributes
    ----------
    system : str
    capacity : float
        Million tokens a day that one deployment gives when always busy.
    ways : tuple of Way
    costs : mapping
        By way, USD a million tokens at each of ``loads``.
    loads : tuple of float
        Million tokens a day.
    wins_from : mapping
        By way, the loads of one deployment at which it costs least: from and to, million tokens a day.
    years : tuple of Cheapest
        One a year of the life of the machines, as the load grows; prices stay as they are today.
    """

    system: str
    capacity: float
    ways: tuple[Way, ...]
    loads: tuple[float, ...]
    costs: Mapping[str, tuple[float, ...]]
    wins_from: Mapping[str, tuple[float, float]]
    years: tuple[Cheapest, ...] = ()

    @property
    def buy_in(self) -> int | None:
        """The first year from which on machines of one's own cost less than rented ones to the end, if there is one."""
        first = None
        for year in reversed(self.years):
            if year.machines not in PLACED:
                break
            first = year.year
        return first

    def when(self) -> str:
        """Return when to buy, in words."""
        if not any(way.name in PLACED for way in self.ways):
            return "machines of one's own have no price"
        if self.buy_in is None:
            said = f"rent: {self.years[-1].machines} costs less at the load of the last year"
        elif self.buy_in == 1:
            said = "buy now"
        else:
            said = f"buy for year {self.buy_in}, {self.years[0].machines} until then"
        api = [str(year.year) for year in self.years if year.way != year.machines]
        return f"{said}; in year {', '.join(api)} an API costs less than either" if api else said


def _rented(scenario: Scenario, release: Prices, market: str) -> Way | None:
    """Return the way of renting in a market; none where it has no price there."""
    system = filled(scenario.system, release, "listing", market)
    price = system.price
    if price.market != market or price.rent_per_chip != price.rent_per_chip:
        return None
    hour = float(price.rent_per_chip) * 3600 * float(chips(scenario))
    said = f"{price.rent_date}"
    # A contract is paid day and night; chips on demand while they serve.
    return Way(f"rented, {market}", *((hour, 0.0) if market == "contract" else (0.0, hour)), 0.0, said)


def choose(answer: Prediction, release: Prices, growth: float = 0.0) -> Choice:
    """Return the ways to serve the traffic of one machine's setting, and the load at which each wins.

    Parameters
    ----------
    answer : Prediction
    release : Prices
        That rents are taken from.
    growth : float
        Of the load, a year [1].

    Returns
    -------
    Choice
    """
    scenario, metrics = answer.scenario, answer.metrics
    economics = scenario.economics
    assert economics is not None
    rate = float(metrics["input_tokens_per_s"] + metrics["output_tokens_per_s"])
    capacity = rate * 3600 / 1e6
    ways = []
    for how in PLACED:
        idle, busy = _owned_hours(put(scenario, "economics.ownership", how))
        if idle == idle:
            ways.append(
                Way(how, idle, busy, 0.0, f"{scenario.system.price.basis} {scenario.system.price.date}".strip())
            )
    ways += [way for market in MARKETS if (way := _rented(scenario, release, market)) is not None]
    prompt, output = float(scenario.traffic.prompt), float(scenario.traffic.output)
    hits = float(scenario.traffic.prefix_hits)
    apis = [(offer.blended(prompt, output, hits), offer) for offer in offers(scenario.model.name)]
    for words, take in (("cheapest API", min), ("dearest API", max)):
        if apis:
            price, offer = take(apis, key=lambda entry: entry[0])
            ways.append(Way(words, 0.0, 0.0, price, f"{offer.provider} {offer.date}"))
            if take is min:
                ways.append(Way("its batch rate", 0.0, 0.0, price * BATCH, "half of the list price, within a day"))
    rivals = [way for way in ways if way.name not in _BESIDE]
    loads = tuple(share * capacity for share in LOADS)
    costs = {way.name: tuple(way.cost(load, capacity) for load in loads) for way in ways}
    return Choice(
        scenario.system.name,
        capacity * 24,
        tuple(ways),
        tuple(load * 24 for load in loads),
        costs,
        _wins(rivals, capacity),
        _by_year(rivals, capacity, economics, growth),
    )


def _by_year(ways: Sequence[Way], capacity: float, economics: Economics, growth: float) -> tuple[Cheapest, ...]:
    """Return the way that costs least in each year of a life, as the load grows."""
    found = []
    for year in range(1, max(1, math.ceil(float(economics.life) / YEAR - 1e-9)) + 1):
        load = float(economics.utilisation) * (1 + growth) ** (year - 1) * capacity
        if not (ways and load > 0):
            break
        best = min(ways, key=lambda way: way.cost(load, capacity))
        placed = [way for way in ways if not way.per_mtok]
        own = min(placed, key=lambda way: way.cost(load, capacity)) if placed else None
        found.append(
            Cheapest(
                year,
                load * 24,
                math.ceil(load / capacity - 1e-9),
                best.name,
                best.cost(load, capacity),
                own.name if own is not None else "",
                own.cost(load, capacity) if own is not None else math.nan,
            )
        )
    return tuple(found)


def _owned_hours(scenario: Scenario) -> tuple[float, float]:
    """Return what an hour of one's own machines costs idle, and what a busy one adds to it [USD]."""
    ends = [float(cost_of(put(scenario, "economics.utilisation", share)).per_hour) for share in (1e-9, 1.0)]
    return ends[0], ends[1] - ends[0]


def _wins(ways: Sequence[Way], capacity: float, points: int = 2000) -> dict[str, tuple[float, float]]:
    """Return from which to which load of one deployment each way costs least [million tokens a day]."""
    wins: dict[str, tuple[float, float]] = {}
    for step in range(1, points + 1):
        load = capacity * step / points
        best = min(ways, key=lambda way: way.cost(load, capacity)).name
        low, _ = wins.get(best, (load * 24, 0.0))
        wins[best] = (low, load * 24)
    return wins


def break_even(owned: Way, api: Way, capacity: float) -> float:
    """Return the load from which a deployment costs less than an API; NaN where it never does [million tokens an hour].

    Parameters
    ----------
    owned, api : Way
    capacity : float
        Million tokens an hour of one deployment.
    """
    left = api.per_mtok - owned.per_busy_hour / capacity
    load = owned.per_hour / left if left > 0 else math.inf
    return load if load <= capacity else math.nan

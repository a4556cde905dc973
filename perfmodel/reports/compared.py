"""What a report compares: chips, power, price and format of the weights of each machine, for its first screen."""

from __future__ import annotations

from collections.abc import Iterable

from perfmodel.reports.figures import Table
from perfmodel.specs.types import Provenance, Scenario

_HEADINGS = ("machine", "chips", "kW", "USD")


def compared(scenarios: Iterable[tuple[Scenario, float]], said: str = "") -> Table:
    """Return machines side by side: each scenario with how many of it are compared.

    Power is that of nameplates; a price is that of as many chips, with its range where it is an estimate.
    """
    asked = list(scenarios)
    formats = ", ".join(dict.fromkeys(str(scenario.deployment.precision) for scenario, _ in asked))
    caption = f"What is compared, with {formats} weights{said}. Power by nameplates, prices of the dated release."
    return Table(caption, _HEADINGS, [_row(*one) for one in asked], (1, 2, 3))


def _row(scenario: Scenario, count: float) -> list[str]:
    system, plan = scenario.system, scenario.deployment
    chips = float(plan.tp * plan.pp * plan.dp) * count
    kilowatts = chips * float(system.power.system_per_chip) / 1e3
    return [system.name, f"{chips:,.0f}", _number(kilowatts), _price(scenario, chips)]


def _number(value: float) -> str:
    return "not published" if value != value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _price(scenario: Scenario, chips: float) -> str:
    price = scenario.system.price
    where = scenario.system.provenance.get("price.system", Provenance("", ""))
    value, low, high = (float(one) * chips / float(price.chips) for one in (price.system, where.low, where.high))
    if value != value:
        return "not published"
    return _money(value) + (f" ({_money(low)} to {_money(high)})" if where.kind == "estimate" and low == low else "")


def _money(value: float) -> str:
    return f"{value / 1e6:.3g}M" if value >= 1e6 else f"{value / 1e3:.3g}k"

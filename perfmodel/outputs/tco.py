"""Costs side by side as a table and as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.outputs.tables import money_figure, notes, plain, print_said, side_by_side, table_html
from perfmodel.planning.tco.ownership import REFERENCE, Owning, implied
from perfmodel.question import distinct
from perfmodel.specs.units import show

#: Strongest unknowns that are named for each system.
NAMED = 3


def _span(ends: Mapping[str, float | None]) -> str:
    low, high = ends["p10"], ends["p90"]
    return "-" if low is None or high is None else f"{_two(low)}-{_two(high)}"


def _two(value: float) -> str:
    """Return two digits, which are more than a percentile of estimates is worth."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _usd(value: float | None) -> str:
    return "-" if value is None else show(value, "USD", 3)


def _share(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.0%}"


def _rows(result: Owning) -> list[tuple[str, list[str]]]:
    data = result.to_dict()["answers"]
    systems = result.systems
    plan = [owned.scenario.deployment for owned in systems]
    rows: list[tuple[str, list[str]]] = [
        ("plan", [f"TP{one.tp:g}" + (f" PP{one.pp:g}" if float(one.pp) > 1 else "") for one in plan]),
        ("chips", [f"{one['chips']:,g}" for one in data]),
        ("requests at once", [f"{one['traffic']['concurrency']:,g}" for one in data]),
        ("TPOT", [show(one["tpot_s"], "s", 3) if one["tpot_s"] else "-" for one in data]),
        ("", []),
    ]
    for of in ("input", "output", "blended"):
        ends = [result.percentiles(at, of) for at in range(len(systems))]
        rows.append((f"$/Mtok {of}", [_money(one["p50"]) for one in ends]))
        rows.append(("  P10-P90", [_span(one) for one in ends]))
    rows += [
        (f"cheaper than {REFERENCE}", _cheaper(result)),
        (f"ties with {REFERENCE} at", [_usd(one["tie_price_usd"]) for one in data]),
        ("price of the system", [_usd(_known(float(owned.scenario.system.price.system))) for owned in systems]),
        ("", []),
        ("$/chip-hour", [_money(one["usd_per_chip_hour"]) for one in data]),
        ("$/system-month", [_usd(one["usd_per_system_month"]) for one in data]),
        ("capital", [_usd(one["capex_usd"]) for one in data]),
    ]
    hourly = [one["costs"]["hourly_usd"] for one in data]
    for cause in dict.fromkeys(cause for one in hourly for cause in one):
        rows.append((f"  {cause}", [_part(one, cause) for one in hourly]))
    rows += [
        ("ties with rent when busy", [_share(one["break_even_utilisation"]) for one in data]),
        ("", []),
        ("power, serving", [show(one["power_w"], "W", 3) if one["power_w"] else "-" for one in data]),
        ("  at the utility, mean", [_watts(one, "utility_over_the_day") for one in data]),
        ("  nameplate", [_watts(one, "nameplate") for one in data]),
        ("J/output token", [_money(one["joules_per_output_token"]) for one in data]),
        ("  P10-P90", [_span(result.percentiles(at, "joules_per_output_token")) for at in range(len(systems))]),
        ("in+out tok/s/kW", [_money(one["tokens_per_s_per_kw"]) for one in data]),
        ("gCO2e/Mtok out, running", [_carbon(one, "operational") for one in data]),
        ("  embodied", [_carbon(one, "embodied") for one in data]),
    ]
    return rows


def _known(value: float) -> float | None:
    return None if value != value else value


def _money(value: float | None) -> str:
    return "-" if value is None else money_figure(value)


def _part(hourly: Mapping[str, float | None], cause: str) -> str:
    known = [value for value in hourly.values() if value is not None]
    value = hourly.get(cause)
    return f"{value / sum(known):.0%}" if value is not None and len(known) == len(hourly) else ""


def _watts(one: Mapping[str, Any], view: str) -> str:
    value = one["costs"]["power_w"].get(view)
    return "-" if value is None else show(value, "W", 3)


def _carbon(one: Mapping[str, Any], part: str) -> str:
    value = one["costs"]["carbon_g_per_output_token"].get(part)
    return "-" if value is None else money_figure(value * 1e6)


def _cheaper(result: Owning) -> list[str]:
    at = next((at for at, owned in enumerate(result.systems) if owned.name == REFERENCE), None)
    if at is None:
        return ["-"] * len(result.systems)
    return ["" if mine == at else _share(result.sample.cheaper(mine, at)) for mine in range(len(result.systems))]


def _decides(result: Owning, at: int) -> list[str]:
    """Return what the strongest unknowns of one system do to its blended price."""
    swings = {swing.path: swing for swing in result.systems[at].swings}
    lines = []
    for path, index in list(result.sample.indices(at).items())[:NAMED]:
        ends = (_known(swings[path].low), _known(swings[path].high))
        lines.append(f"{path}: {index:.0%} of the variance of $/Mtok, {_money(ends[0])} to {_money(ends[1])}")
    return lines


def _said(result: Owning) -> list[tuple[str, list[str]]]:
    """Return headings with their lines: what decides, labels, implied prices, assumptions and warnings."""
    found = []
    names = distinct([owned.name for owned in result.systems])
    for at, (name, owned) in enumerate(zip(names, result.systems, strict=True)):
        if owned.labels:
            found.append((f"labels of {name}", list(owned.labels)))
        if lines := _decides(result, at):
            found.append((f"what decides {name}", lines))
        prices = implied(owned.scenario.system, owned.scenario.economics)
        hours = [f"{kind.removeprefix('cost_').replace('_', ' ')} {_usd(value)}" for kind, value in prices.items()]
        if hours:
            found.append((f"price of a {name} that published GPU-hours imply", [", ".join(hours)]))
    found.append(("assumed, for all", list(result.assumed)))
    return found + [entry for entry in notes([owned.answer for owned in result.systems]) if "assumed" not in entry[0]]


def _title(result: Owning) -> str:
    first = result.systems[0].scenario
    return (
        f"{first.model.name}: {float(first.traffic.prompt):,.0f} tokens in, "
        f"{float(first.traffic.output):,.0f} out; a million tokens"
    )


def print_owning(result: Owning, console: Any) -> None:
    """Print costs side by side, with what decides them and what was assumed."""
    side_by_side(_title(result), [owned.name for owned in result.systems], _rows(result), console)
    print_said(_said(result), console)


def owning_text(result: Owning, width: int = 100) -> str:
    """Return the table as plain text."""
    return plain(lambda console: print_owning(result, console), width)


def owning_html(result: Owning) -> str:
    """Return the table as HTML."""
    return table_html(_title(result), [owned.name for owned in result.systems], _rows(result), _said(result))

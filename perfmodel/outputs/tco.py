"""Costs side by side: the verdict first, then a table, and all the rest where it is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from perfmodel.entered import is_idle
from perfmodel.outputs.plot import print_frontier
from perfmodel.outputs.tables import money_figure, notes, plain, print_said, side_by_side, table_html
from perfmodel.planning.tco.cash import full_from
from perfmodel.planning.tco.ownership import REFERENCE, Owned, Owning
from perfmodel.planning.tco.published import implied
from perfmodel.planning.tco.verdict import Verdict, by_price, overlap, verdict
from perfmodel.question import distinct
from perfmodel.specs import catalog
from perfmodel.specs.units import show

#: Strongest unknowns that are named for each system.
NAMED = 3


def sentence(result: Owning) -> str:
    """Return the answer in one sentence: the choice, its number with its range, and the condition.

    Parameters
    ----------
    result : Owning

    Returns
    -------
    str
    """
    judged, names = verdict(result), distinct([owned.name for owned in result.systems])
    if not judged.order:
        at, why = judged.unranked[0]
        return f"No answer for {names[at]}: {why}" + (f", and none for {len(names) - 1} others" if names[1:] else "")
    best = judged.order[0]
    owned, ends = result.systems[best], result.percentiles(best, "blended")
    number = f"{money_figure(ends['p50'] or 0)} USD/Mtok ({_span(ends)})"
    if len(judged.order) == 1:
        return f"{names[best]} costs {number}; {_condition(result, owned)}."
    second, share = judged.order[1], judged.likely[1]
    tie = ", a tie" if second in judged.ties else ""
    return (
        f"{names[best]} is cheapest at {number}, {share:.0%} likely before {names[second]}{tie}; "
        f"{_condition(result, owned)}."
    )


def _condition(result: Owning, owned: Owned) -> str:
    """Return at which load and speed a machine's number holds."""
    users = float(owned.scenario.traffic.concurrency)
    at = f"{users:,.0f} requests at once" if users > 1 else "one request at once, an idle machine"
    economics = owned.scenario.economics
    busy = f", busy {float(economics.utilisation):.0%} of the day" if economics is not None else ""
    speed = show(float(owned.answer.metrics["tpot_s"]), "s", 3)
    if result.tpot == result.tpot:
        return f"it keeps {show(result.tpot, 's', 3)} ({speed}) at {at}{busy}"
    return f"at {at} ({speed} a token){busy}"


def _plan(owned: Owned) -> str:
    plan = owned.scenario.deployment
    return f"TP{plan.tp:g}" + (f" PP{plan.pp:g}" if float(plan.pp) > 1 else "")


def _price(owned: Owned) -> str:
    """Return what is paid for a machine: the price of a whole system, or the rent of a chip."""
    price = owned.scenario.system.price
    if owned.rented:
        rent = float(price.rent_per_chip) * 3600
        return f"{rent:.3g} USD/h" if rent == rent else "-"
    listed = by_price([owned])
    return show(listed[0].value, "USD", 3) if listed else "-"


def _summary(result: Owning, judged: Verdict) -> tuple[list[str], list[list[str]]]:
    """Return headings, and one row a system: the ranked ones by price, then the others."""
    names = distinct([owned.name for owned in result.systems])
    likely = dict(zip(judged.order, judged.likely, strict=True))
    rows = []
    for at in (*judged.order, *(at for at, _ in judged.unranked)):
        owned = result.systems[at]
        tpot = float(owned.answer.metrics["tpot_s"])
        ends = result.percentiles(at, "blended")
        money = "-" if ends["p50"] is None else f"{money_figure(ends['p50'])} ({_span(ends)})"
        chance = "" if at not in likely or at == judged.order[0] else f"{1 - likely[at]:.0%}"
        users = f"{float(owned.scenario.traffic.concurrency):,.0f}"
        speed = show(tpot, "s", 3) if tpot == tpot else "-"
        rows.append([names[at], _plan(owned), users, speed, money, chance, _price(owned)])
    headings = ["system", "plan", "at once", "TPOT", "USD/Mtok (P10-P90)", "chance", "price"]
    return headings, rows


def _caveats(result: Owning, judged: Verdict) -> list[str]:
    """Return what the reader must know before the rest: limits, the market, what decides."""
    names = distinct([owned.name for owned in result.systems])
    lines = [f"{names[at]}: {why}" for at, why in judged.unranked]
    for name, owned in zip(names, result.systems, strict=True):
        full = None if owned.flow is None else full_from(owned.flow.years)
        if full is not None:
            lines.append(f"{name}: its load needs another deployment from year {full} on")
    lines += [f"{names[at]}: {result.systems[at].limit}" for at in judged.order if result.systems[at].limit]
    if market := _market(result, judged):
        lines.append(market)
    if judged.order:
        best = judged.order[0]
        if decides := _decides(result, best):
            lines.append(f"{names[best]}: {decides[0]}")
        lines += [f"{names[best]}: {'; '.join(result.systems[best].labels)}"] if result.systems[best].labels else []
    listed = by_price(result.systems)
    if len(listed) > 1:
        lines.append(_order(result))
    return lines


def _market(result: Owning, judged: Verdict) -> str:
    """Return what the market sells the model's tokens at, and where the cheapest machine stands."""
    if result.sold is None:
        return ""
    said = result.sold
    line = f"sold at {_two(said.low)}-{_two(said.high)} USD/Mtok blended ({said.date}, {said.providers} providers)"
    if said.old:
        line += f"; {', '.join(said.old)} older than two quarters"
    if not judged.order:
        return line
    middle = result.percentiles(judged.order[0], "blended")["p50"] or 0.0
    if middle > said.high:
        return f"{line}: the cheapest here costs more at this speed, load and price"
    return f"{line}: the cheapest here lies {'inside' if middle >= said.low else 'below'}"


def _order(result: Owning) -> str:
    """Return the systems by what one costs; ``=`` between those whose ranges overlap by half."""
    listed = by_price(result.systems)
    words = f"{listed[0].name} {show(listed[0].value, 'USD', 3)}"
    for before, here in itertools.pairwise(listed):
        words += f" {'=' if overlap(before, here) else '<'} {here.name} {show(here.value, 'USD', 3)}"
    bases = list(dict.fromkeys(one.basis for one in listed if one.basis))
    mixed = "; a quote and the release are not one basis" if "quote" in bases and len(bases) > 1 else ""
    return f"price of a whole system, {' and '.join(bases)}: {words} (= ranges overlap by half){mixed}"


def print_owning(result: Owning, console: Any, verbose: bool = False) -> None:
    """Print the verdict and a short table; all of it where that is asked for."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    judged = verdict(result)
    if all(owned.answer.reason for owned in result.systems):
        console.print(Text(sentence(result)))
        return
    console.print(Text(sentence(result), style="bold"))
    headings, rows = _summary(result, judged)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at in (0, 1) else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    lines = _caveats(result, judged)
    if len(judged.order) > 1:
        lines.insert(0, "chance: that it is cheaper than the first")
    own = [word for word in result.assumed if catalog.IN_PLACE in word or word.startswith("region ")]
    own += dict.fromkeys(line for owned in result.systems for line in owned.answer.warnings if is_idle(line))
    print_said([("mind", lines if verbose else [*lines[:6], *own])], console)
    for at in range(len(result.systems)) if verbose else judged.order[:1]:
        if result.systems[at].choice is not None:
            _print_choice(result.systems[at], console)
    if verbose:
        console.print()
        side_by_side(_title(result), [owned.name for owned in result.systems], _rows(result), console)
        print_said([*_curves(result), *_said(result)], console)
    else:
        console.print("-v: parts of an hour, power, carbon, curve against speed, what decides, what is assumed")


def _print_choice(owned: Owned, console: Any) -> None:
    """Print what each way to serve costs at each load, and where each one wins."""
    from rich.text import Text

    choice = owned.choice
    assert choice is not None
    console.print()
    console.print(Text(f"{owned.name}: USD/Mtok by load of one deployment, million tokens a day"))
    width = max(len(way.name) for way in choice.ways)
    console.print(Text(" " * width + "".join(f"{load:>9,.0f}" for load in choice.loads)))
    for way in choice.ways:
        cells = "".join(f"{money_figure(cost):>9}" for cost in choice.costs[way.name])
        low, high = choice.wins_from.get(way.name, (0.0, 0.0))
        wins = f"  least from {low:,.0f} to {high:,.0f}" if high else ""
        console.print(Text(f"{way.name:<{width}}{cells}  {way.said}{wins}"), soft_wrap=True)
    if choice.years:
        years = "; ".join(
            f"year {one.year}, {one.load:,.0f} a day: {one.way} {money_figure(one.per_mtok)}"
            + (f", of machines {one.machines} {money_figure(one.machines_per_mtok)}" if one.way != one.machines else "")
            for one in choice.years
        )
        console.print(Text(f"least by year, at today's prices: {years}"), soft_wrap=True)
        console.print(Text(f"when to buy: {choice.when()}"), soft_wrap=True)


def _curves(result: Owning) -> list[tuple[str, list[str]]]:
    """Return cost against speed of each system, and whose it is on the frontier of all."""
    names = distinct([owned.name for owned in result.systems])
    every = [(point.tpot, point.usd) for owned in result.systems for point in owned.curve]
    curves = []
    for name, owned in zip(names, result.systems, strict=True):
        words = []
        for point in owned.curve:
            beaten = any(tpot <= point.tpot and usd < point.usd for tpot, usd in every)
            words.append(f"{show(point.tpot, 's', 3)} {money_figure(point.usd)}{'' if beaten else '*'}")
        if words:
            curves.append((f"USD/Mtok by TPOT of {name} (* on the frontier of all)", [", ".join(words)]))
    return curves


def print_plot(result: Owning, console: Any) -> None:
    """Draw tokens a dollar against speed of every system's settings, and the frontier of all.

    Parameters
    ----------
    result : Owning
    console : rich.console.Console
    """
    names = distinct([owned.name for owned in result.systems])
    drawn = [
        (
            (1 / point.tpot, 1 / point.usd),
            f"{name}, TPOT {show(point.tpot, 's', 3)}, {money_figure(point.usd)} USD/Mtok",
        )
        for name, owned in zip(names, result.systems, strict=True)
        for point in owned.curve
        if 0 < point.tpot < float("inf") and 0 < point.usd < float("inf")
    ]
    if not drawn:
        console.print("no curve to draw: --concurrency fixes the setting, or nothing fits or has a price")
        return
    console.print()
    print_frontier([at for at, _ in drawn], [name for _, name in drawn], "out tok/s/user", "Mtok/USD", console)


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
        ("plan", [f"TP{answer.tp:g}" + (f" PP{answer.pp:g}" if float(answer.pp) > 1 else "") for answer in plan]),
        ("chips", [f"{answer['chips']:,g}" for answer in data]),
        ("requests at once", [f"{answer['traffic']['concurrency']:,g}" for answer in data]),
        ("TPOT", [show(answer["tpot_s"], "s", 3) if answer["tpot_s"] else "-" for answer in data]),
        ("", []),
    ]
    for of in ("input", "output", "blended"):
        ends = [result.percentiles(at, of) for at in range(len(systems))]
        rows.append((f"$/Mtok {of}", [_money(answer["p50"]) for answer in ends]))
        rows.append(("  P10-P90", [_span(answer) for answer in ends]))
    rows += [
        (f"cheaper than {REFERENCE}", _cheaper(result)),
        (f"ties with {REFERENCE} at", [_usd(answer["tie_price_usd"]) for answer in data]),
        ("price of the system", [_usd(_known(float(owned.scenario.system.price.system))) for owned in systems]),
        ("  basis, date", [f"{p.basis} {p.date}".strip() or "-" for p in (s.scenario.system.price for s in systems)]),
        ("", []),
        ("$/chip-hour", [_money(answer["usd_per_chip_hour"]) for answer in data]),
        ("$/system-month", [_usd(answer["usd_per_system_month"]) for answer in data]),
        ("capital", [_usd(answer["capex_usd"]) for answer in data]),
    ]
    hourly = [answer["costs"]["hourly_usd"] for answer in data]
    for cause in dict.fromkeys(cause for answer in hourly for cause in answer):
        rows.append((f"  {cause}", [_part(answer, cause) for answer in hourly]))
    rows += [
        ("ties with rent when busy", [_share(answer["break_even_utilisation"]) for answer in data]),
        ("$/task", [_money(answer["usd_per_task"]) for answer in data]),
        ("NPV of what is paid", [_usd(answer["npv_usd"]) for answer in data]),
        ("", []),
        ("power, serving", [show(answer["power_w"], "W", 3) if answer["power_w"] else "-" for answer in data]),
        ("  at the utility, mean", [_watts(answer, "utility_over_the_day") for answer in data]),
        ("  nameplate", [_watts(answer, "nameplate") for answer in data]),
        ("J/output token", [_money(answer["joules_per_output_token"]) for answer in data]),
        ("  P10-P90", [_span(result.percentiles(at, "joules_per_output_token")) for at in range(len(systems))]),
        ("in+out tok/s/kW", [_money(answer["tokens_per_s_per_kw"]) for answer in data]),
        ("gCO2e/Mtok out, running", [_carbon(answer, "operational") for answer in data]),
        ("  embodied", [_carbon(answer, "embodied") for answer in data]),
        ("L water/Mtok out", [_money(answer["costs"]["water_l_per_mtok_output"]) for answer in data]),
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
    said = []
    names = distinct([owned.name for owned in result.systems])
    for at, (name, owned) in enumerate(zip(names, result.systems, strict=True)):
        if owned.labels:
            said.append((f"labels of {name}", list(owned.labels)))
        if lines := _decides(result, at):
            said.append((f"what decides {name}", lines))
        prices = implied(owned.scenario.system, owned.scenario.economics)
        hours = [f"{kind.removeprefix('cost_').replace('_', ' ')} {_usd(value)}" for kind, value in prices.items()]
        if hours:
            said.append((f"price of a {name} that published GPU-hours imply", [", ".join(hours)]))
    said.append(("assumed, for all", list(result.assumed)))
    return said + [entry for entry in notes([owned.answer for owned in result.systems]) if "assumed" not in entry[0]]


def _title(result: Owning) -> str:
    first = result.systems[0].scenario
    return (
        f"{first.model.name}: {float(first.traffic.prompt):,.0f} tokens in, "
        f"{float(first.traffic.output):,.0f} out; a million tokens"
    )


def owning_text(result: Owning, width: int = 100) -> str:
    """Return the table as plain text."""
    return plain(lambda console: print_owning(result, console, verbose=True), width)


def owning_html(result: Owning) -> str:
    """Return the table as HTML."""
    return table_html(_title(result), [owned.name for owned in result.systems], _rows(result), _said(result))

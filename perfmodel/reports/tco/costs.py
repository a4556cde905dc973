"""Figures of cost: against speed, side by side, how sure, what machines are made of, and what the power rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.errors import UserError
from perfmodel.evidence import power_fit, validate
from perfmodel.evidence.validate.metrics import POWER, form_key
from perfmodel.numerics import NAN
from perfmodel.planning.tco import asking, bom, ownership, published
from perfmodel.planning.tco.uncertainty import draw_samples
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.reports.compared import compared
from perfmodel.reports.figures import Chart, Figure, Layer, Number, Table, figure
from perfmodel.serving.cost import AllInPower, cost, draw
from perfmodel.serving.steady import steady_state
from perfmodel.specs import catalog
from perfmodel.specs.types import Scenario

SYSTEMS = ("lpu-v1:plan=tp16-layers", "sn40l-16", "dgx-h100", "dgx-b200", "gb200-nvl72:tp=8", "mi355x-8")
USERS = (1, 4, 16, 64, 256)
#: Speed below which no user would wait for an answer [1/s].
LEAST = 20.0
#: Samples of a point of a curve, where a percentile need not be exact.
FEW = 2**10
_RULE = (
    "Every token pays: blended counts input and output together; machines bought and colocated unless the recipe sets "
    "otherwise, busy for a share of the day. Estimates are drawn between their ends."
)


def _name(on: str) -> str:
    return on.partition(":")[0]


def _scenarios(model: str, on: str, users: Sequence[float], options: Options, changes: Sequence[str]) -> list[Scenario]:
    """Return the question at each number of users that the system can hold."""
    scenarios = []
    for count in users:
        scenario = resolve(model, on, Options(**{**vars(options), "concurrency": float(count)}), changes)
        answer = evaluate(scenario, ("tpot_s",))
        if answer.fits and float(answer.max_concurrency) >= count and math.isfinite(answer.metrics["tpot_s"]):
            scenarios.append(scenario)
    return scenarios


def _speed_row(on: str, scenario: Scenario) -> dict[str, Any]:
    """Return price, power and speed of a system at one number of users."""
    steady = steady_state(scenario)
    drawn = draw(scenario, steady)
    sample = draw_samples([scenario], FEW).systems[0]
    assert sample is not None
    ends = {end: NAN if value is None else value for end, value in sample.percentiles("blended").items()}
    rate = float(steady.rate * (steady.prompt + steady.output))
    return {
        "system": _name(on),
        "users": float(scenario.traffic.concurrency),
        "speed": 1 / float(steady.tpot),
        "usd": ends["p50"],
        "low": ends["p10"],
        "high": ends["p90"],
        "output": float(cost(scenario, steady, drawn).output),
        "per_kw": rate / float(drawn.mean.watts) * 1e3,
        "chips": float(steady.chips),
    }


def _speed_answer(model: str, frame: pd.DataFrame) -> str:
    """Return the cheapest point of each system that users would wait for, and the fastest of all."""
    quick = frame[frame["speed"] >= LEAST]
    cheapest = quick.loc[quick.groupby("system")["usd"].idxmin()].sort_values("usd")
    words = "; ".join(
        f"{row.system} {row.usd:.2f} USD ({row.low:.2f} to {row.high:.2f}) at {row.speed:.0f} tokens/s a user"
        for row in cheapest.itertuples()
    )
    fastest = max(frame.to_dict("records"), key=lambda row: row["speed"])
    return (
        f"{model} at its cheapest from {LEAST:g} tokens/s a user on: {words}. The fastest for a user is "
        f"{fastest['system']} with {fastest['speed']:.0f} tokens/s at {fastest['usd']:.1f} USD."
    )


def _speed_verdict(model: str, frame: pd.DataFrame) -> str:
    """Return who is cheapest at a speed that users would wait for, and what the fastest costs."""
    quick = frame[frame["speed"] >= LEAST]
    if quick.empty:
        return _speed_answer(model, frame)
    cheap = min(quick.to_dict("records"), key=lambda row: row["usd"])
    fast = max(frame.to_dict("records"), key=lambda row: row["speed"])
    return (
        f"A million tokens of {model} cost least on {cheap['system']}: {cheap['usd']:.2g} USD ({cheap['low']:.2g} to "
        f"{cheap['high']:.2g}, 80 % of what the estimates leave open) at {cheap['speed']:.0f} tokens/s a user. The "
        f"fastest is {fast['system']}: {fast['speed']:.0f} tokens/s at {fast['usd']:.2g} USD ({fast['low']:.2g} to "
        f"{fast['high']:.2g})."
    )


def _speed_finding(frame: pd.DataFrame) -> str:
    """Return which machine costs least at its best setting, and which is left at the highest speeds."""
    cheapest = min(frame.to_dict("records"), key=lambda row: row["usd"])
    tops = frame.groupby("system")["speed"].max().sort_values()
    said = f"{cheapest['system']} costs least, {cheapest['usd']:.2g} USD at {cheapest['speed']:.0f} tokens/s a user"
    return said + (f"; beyond {tops.iloc[-2]:.0f} only {tops.index[-1]} is left." if len(tops) > 1 else ".")


def _speed_charts(model: str, frame: pd.DataFrame) -> tuple[Chart, Chart]:
    """Return price, and tokens a second and kW, against the speed of each user."""
    price = Chart(
        f"cost-against-speed-{model}",
        f"{model}: cost of a million tokens against the speed of each user",
        frame,
        {
            "system": "system",
            "users": "requests at once",
            "speed": "output tokens per second and user [1/s]",
            "usd": "blended price, P50 [USD per million tokens]",
            "low": "blended price, P10 [USD per million tokens]",
            "high": "blended price, P90 [USD per million tokens]",
            "output": "output price at the values [USD per million output tokens]",
            "per_kw": "input and output tokens per second and kW of machines [1/s/kW]",
            "chips": "chips",
        },
        "speed",
        "usd",
        (Layer("area", y="low", y2="high"), Layer("line"), Layer("point")),
        color="system",
        log="xy",
        caption="P50 with P10 to P90 over all estimates; points are requests at once.",
        finding=_speed_finding(frame),
    )
    per_kw = replace(
        price,
        name=f"efficiency-against-speed-{model}",
        title=f"{model}: tokens per second and kW against the speed of each user",
        y="per_kw",
        layers=(Layer("line"), Layer("point")),
        caption="Power of the machines while serving, without PUE.",
        finding="",
    )
    return price, per_kw


@figure("tco-speed")
def speed(
    model: str = "llama-3.1-70b",
    on: Sequence[str] = SYSTEMS,
    users: Sequence[float] = USERS,
    traffic: str = "chat",
    precision: str = "fp8",
    changes: Sequence[str] = (),
) -> Figure:
    """Dollars a million tokens, and tokens a second and kilowatt, against the speed that each user sees."""
    options = Options(traffic=traffic, precision=precision)
    frame = pd.DataFrame(
        [_speed_row(place, scenario) for place in on for scenario in _scenarios(model, place, users, options, changes)]
    )
    if frame.empty:
        raise UserError(f"none of {', '.join(on)} holds {model} with {min(users):g} or more users at once")
    asked = [resolve(model, place, Options(**{**vars(options), "concurrency": 1.0}), changes) for place in on]
    return Figure(
        f"{model}: cost and efficiency against speed",
        _speed_answer(model, frame),
        _speed_charts(model, frame),
        notes=(_RULE,),
        verdict=_speed_verdict(model, frame),
        compared=compared([(scenario, 1.0) for scenario in asked], f", {model}, {traffic}"),
    )


def _parts_frame(result: ownership.Owning, data: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the blended price of each system [USD per million tokens], by what an hour of it costs."""
    parts = []
    for own, said in zip(result.systems, data, strict=True):
        hourly = said["costs"]["hourly_usd"]
        total = sum(value or 0.0 for value in hourly.values())
        if total:
            parts += [
                {"system": said["name"], "cause": cause, "usd": value / total * _blended(own)}
                for cause, value in hourly.items()
                if value is not None
            ]
    return pd.DataFrame(parts)


def _blended(own: ownership.Owned) -> float:
    """Return the blended price at the value of each estimate [USD per million tokens]."""
    assert own.cost is not None
    return float(own.cost.blended)


def _swings_frame(result: ownership.Owning, data: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return what the widest unknowns of each system move its blended price by, from their low to their high."""
    return pd.DataFrame(
        [
            {
                "system": said["name"],
                "path": swing["path"],
                "end": f"at its {end}",
                "change": swing[end] / _blended(own) - 1,
            }
            for own, said in zip(result.systems, data, strict=True)
            for swing in said["tornado"][:6]
            if swing["low"] is not None and swing["high"] is not None
            for end in ("low", "high")
        ]
    )


def _systems_table(model: str, result: ownership.Owning, data: Sequence[Mapping[str, Any]]) -> Table:
    """Return price, power and what ties, system by system."""
    names = [row["name"] for row in data]
    reference = names.index(ownership.REFERENCE) if ownership.REFERENCE in names else None
    rows = []
    for at, row in enumerate(data):
        shares = [result.sample.cheaper(at, reference)] if reference is not None and at != reference else []
        rows.append(
            (
                row["name"],
                f"{row['chips']:,g}",
                f"{row['traffic']['concurrency']:,g}",
                _three(row["output_tokens_per_s_per_user"]),
                *(_ends(result.percentiles(at, of)) for of in ownership.TOKENS),
                _three(row["usd_per_chip_hour"]),
                _ends(result.percentiles(at, "joules_per_output_token")),
                _thousands(row["tie_price_usd"]),
                "; ".join(f"{share:.0%}" for share in shares if share is not None),
                "; ".join(row["labels"]),
            )
        )
    headings = [
        *("system", "chips", "requests", "tok/s/user", "USD/Mtok input, P50 (P10-P90)", "output", "blended"),
        *("USD/chip-hour", "J/output token", f"price that ties with {ownership.REFERENCE} [kUSD]"),
        *(f"P(cheaper than {ownership.REFERENCE})", "labels"),
    ]
    return Table(f"{model}: P50 with P10 to P90 over all estimates", headings, rows)


def _systems_charts(model: str, parts: pd.DataFrame, swings: pd.DataFrame) -> tuple[Chart, Chart]:
    """Return what a million tokens consists of, and what each unknown moves."""
    return (
        Chart(
            f"cost-parts-{model}",
            f"{model}: what a million tokens consists of",
            parts,
            {"system": "system", "cause": "part", "usd": "cost at the values [USD per million tokens]"},
            "system",
            "usd",
            (Layer("bar"),),
            color="cause",
            stacked=True,
            caption="Input and output tokens together, at the value of each estimate.",
        ),
        Chart(
            f"tornado-{model}",
            f"{model}: what one unknown moves, the others at their values",
            swings,
            {
                "system": "system",
                "path": "unknown",
                "end": "unknown stands",
                "change": "change of the blended price [1]",
            },
            "change",
            "path",
            (Layer("bar"),),
            color="end",
            facet="system",
            stacked=True,
            across=True,
            caption="From an estimate's low to its high; errors of times from P10 to P90. The widest of each system.",
        ),
    )


def _systems_answer(tpot: float, result: ownership.Owning, data: Sequence[Mapping[str, Any]]) -> str:
    """Return the systems by price, and what decides most on each."""
    middles = [(result.percentiles(at, "blended")["p50"], one["name"]) for at, one in enumerate(data)]
    ranked = sorted((price, name) for price, name in middles if price)
    first = {one["name"]: next(iter(one["sobol"]), "nothing") for one in data if one["sobol"]}
    return "At {:.0f} ms a token, cheapest first: {}. What decides most: {}.".format(
        tpot * 1e3,
        ", ".join(f"{name} {price:.2f} USD" for price, name in ranked),
        ", ".join(f"{_short(path)} of {name}" for name, path in first.items()),
    )


@figure("tco-systems")
def systems(
    model: str = "llama-3.1-70b",
    on: Sequence[str] = SYSTEMS,
    tpot: float = 0.05,
    traffic: str = "chat",
    precision: str = "fp8",
    changes: Sequence[str] = (),
) -> Figure:
    """Cost side by side at one bound on TPOT: what it consists of, how sure it is, and the price that ties."""
    result = asking.own(model, on, Options(traffic=traffic, precision=precision), changes, tpot)
    data = result.to_dict()["answers"]
    return Figure(
        f"{model}: side by side",
        _systems_answer(tpot, result, data),
        _systems_charts(model, _parts_frame(result, data), _swings_frame(result, data)),
        tables=(_systems_table(model, result, data),),
        notes=(*result.assumed, _RULE),
    )


def _short(path: str) -> str:
    return "the price" if path.startswith("system.price.") else path.rpartition(".")[2]


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ends(ends: dict[str, float | None]) -> str:
    if ends["p50"] is None:
        return "-"
    return f"{_three(ends['p50'])} ({_three(ends['p10'])}-{_three(ends['p90'])})"


def _thousands(value: float | None) -> str:
    return "none" if value is None else _three(value / 1e3)


@figure("tco-materials")
def materials(on: Sequence[str] = ("dgx-h100", "dgx-b200", "lpu-v1", "sn40l-16")) -> Figure:
    """Bills of materials: computed lines beside published ones, and nodes with what is not published."""
    numbers = tuple(
        Number(
            f"{entry.chip}, {entry.line}",
            entry.computed,
            "USD",
            entry.published,
            fitted=entry.copied,
            source=entry.source,
            note="copied: an input, which proves nothing" if entry.copied else "",
        )
        for entry in bom.against_published()
    )
    rows, table, prices = [], [], []
    margin = bom.bill(catalog.load_bare_system("dgx-h100")).margin
    for name in on:
        made = bom.bill(catalog.load_bare_system(name))
        asked = catalog.load_bare_system(name).price.system
        prices.append((name, _thousands(float(asked)), f"{made.margin:.0%}", _thousands(made.price_at(margin))))
        for where, lines in (("chip", made.chip), ("node", made.node)):
            for line in (*lines, bom.total(lines, f"{where} in all")):
                known = line.kind != "not published"
                cells = [_three(value) if known else "not published" for value in (line.low, line.value, line.high)]
                table.append((name, where, line.name, line.kind, *cells, line.note))
                if known and where == "node" and not line.name.endswith("in all"):
                    rows.append({"system": name, "line": line.name, "usd": line.value})
    errors = [abs(number.error) for number in numbers if not number.fitted]
    answer = (
        f"{len(errors)} computed lines of H100 and B200 lie {np.median(errors):.0%} from the published ones in the "
        f"median and {max(errors):.0%} at most; the die of SN40L and switch chips are not published and in no total."
    )
    chart = Chart(
        "materials",
        "Materials of a node",
        pd.DataFrame(rows),
        {"system": "system", "line": "part", "usd": "cost of parts [USD]"},
        "system",
        "usd",
        (Layer("bar"),),
        color="line",
        stacked=True,
        caption="What is not published is missing. Memory at prices of 2025.",
    )
    headings = ("system", "of", "line", "kind", "low [USD]", "value [USD]", "high [USD]", "note")
    margins = Table(
        "What the price leaves over the known materials, and the price at the margin of a DGX H100",
        ("system", "price taken [kUSD]", "margin", f"price at {margin:.0%} [kUSD]"),
        prices,
    )
    bills = Table("Bills", headings, table)
    return Figure("What machines are made of", answer, (chart,), numbers, tables=(margins, bills))


@figure("tco-hours")
def hours() -> Figure:
    """The price of a chip with its share of the node that each published GPU-hour implies."""
    economics = catalog.load_economics()
    table: list[tuple[str, ...]] = []
    rows: list[dict[str, Any]] = []
    for hour in published.published_hours():
        label = f"{hour.kind.removeprefix('cost_').replace('_', ' ')} {hour.survey}"
        if hour.power is None:
            table.append((hour.chip, label, f"{hour.usd:.2f}", "-", "-", "power not published"))
            continue
        implied = published.capex_of_hour(hour.usd, hour.power, economics)
        where = "at the utility" if isinstance(hour.power, AllInPower) else "of IT"
        watts = _three(float(hour.power.watts))
        table.append((hour.chip, label, f"{hour.usd:.2f}", watts, where, _thousands(implied)))
        rows.append({"chip": hour.chip, "kind": label, "usd": implied / 1e3})
    chart = Chart(
        "implied-prices",
        "Price of a chip with its share of the node that a published GPU-hour implies",
        pd.DataFrame(rows),
        {"chip": "chip", "kind": "published hour", "usd": "implied price [kUSD]"},
        "chip",
        "usd",
        (Layer("bar"),),
        color="kind",
        caption="SemiAnalysis (InferenceX): power at the utility in 2025-08, so no PUE is put on it; of IT in 2026-07.",
        kind="reconstructed",
    )
    known = [
        Number(
            "H100, own hyperscaler, against a server of eight at 190 kUSD (2025-08)",
            rows[0]["usd"] * 8,
            "kUSD",
            190.0,
            "reconstructed",
            source="SemiAnalysis 2025-08-20",
        ),
    ]
    answer = (
        f"With 5 years at 10 % and colocation, a hyperscaler's {table[0][2]} USD an hour of H100 implies "
        f"{rows[0]['usd']:.1f} kUSD a GPU; a large cloud's cheaper capital and space leave room for more."
    )
    return Figure(
        "What published GPU-hours imply",
        answer,
        (chart,),
        tuple(known),
        tables=(Table("Hours", ("chip", "hour", "USD/h", "W", "which", "implied [kUSD a chip]"), table),),
    )


@figure("tco-power")
def power() -> Figure:
    """What the power rests on: readings of kernels on one B200, and predictions beside measured powers."""
    watts, memory, compute, times, kinds = power_fit.readings()
    frame = pd.DataFrame(
        {
            "use": np.maximum(memory, compute).clip(1e-4, 1.0),
            "power": watts,
            "kind": [str(kind).replace("_", " ") for kind in kinds],
            "time": times,
        }
    )
    shape = catalog.load_system("dgx-b200")[0].power_shape
    levels = pd.DataFrame(
        [
            {"use": 1e-4, "power": float(getattr(shape, cause)), "kind": f"level: {cause}", "time": NAN}
            for cause in ("idle", "overhead", "memory", "compute")
        ]
    )
    chart = Chart(
        "power-readings",
        "Power of a B200 over its limit while one kernel runs in a loop",
        pd.concat([frame, levels.assign(use=1.0), levels], ignore_index=True),
        {
            "use": "larger of bandwidth and rate used",
            "power": "power over limit",
            "kind": "kernel",
            "time": "time of a kernel [ms]",
        },
        "use",
        "power",
        (Layer("point", rows="not kind.str.startswith('level')"), Layer("line", rows="kind.str.startswith('level')")),
        color="kind",
        log="x",
        caption="aiconfigurator-core 0.12.0, 866 readings of a slow sensor; lines are the levels taken.",
        kind="published",
    )
    keys = ("power", "power_chip", "power_share", "energy")
    scored = validate.score_rows([row for row in validate.load(None) if form_key(row[1]["metric"]) in keys]).rows
    numbers = tuple(
        Number(
            f"{row.given['hardware']}, {row.given['model']}: {row.given['metric']}",
            row.predicted,
            row.given["unit"],
            row.value,
            source=row.given["source_url"],
            note="; ".join(row.notes),
        )
        for row in scored
        if row.metric == POWER
    )
    errors = [number.error for number in numbers]
    answer = (
        f"Five measured powers and energies (n {len(errors)}), fitted on none of them: errors "
        f"{', '.join(f'{error:+.0%}' for error in errors)}. Other GPUs than B200 take its levels by their TDP."
    )
    return Figure("What the power rests on", answer, (chart,), numbers)

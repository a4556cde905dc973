"""Latency against load, plans, and what the answer hangs on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfmodel.planning.candidates import landscape
from perfmodel.planning.load import at_rate, cautions, plan_name
from perfmodel.planning.size import Sizing, size
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.reports.compared import compared
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.serving.objectives import Objectives, breaking_rate, phrase, queue_of, statistic

_TIMES = (("ttft", "TTFT"), ("tpot", "TPOT"))


def _objectives(ttft_p99: float, tpot_p99: float) -> Objectives:
    return Objectives({("ttft", "p99"): ttft_p99, ("tpot", "p99"): tpot_p99})


@figure("load-latency")
def latency(
    model: str,
    systems: Sequence[str],
    traffic: str = "chat",
    ttft_p99: float = 1.0,
    tpot_p99: float = 0.05,
    points: int = 20,
) -> Figure:
    """Times of one replica against its load, with the objectives."""
    objectives = _objectives(ttft_p99, tpot_p99)
    rows, limits, words, notes = [], [], [], []
    asked = [resolve(model, on, Options(traffic=traffic)) for on in systems]
    for scenario in asked:
        answer = at_rate(scenario, 1e-6, objectives)
        service = answer.load.service
        name = f"{scenario.system.name} {plan_name(scenario)}"
        for used in np.linspace(0.02, 0.97, points):
            rate = used * service.capacity
            queue = queue_of(service, rate, 1.0, 1)
            row = {"system": name, "rate": rate}
            for time, _ in _TIMES:
                for what in ("mean", "p50", "p99"):
                    row[f"{time}_{what}"] = statistic(queue, time, what)
            rows.append(row)
        if objectives.failed(answer.load.queue):
            words.append(f"{name} misses {phrase(objectives.failed(answer.load.queue)[0])} even for one request alone")
            continue
        most, first = breaking_rate(service, 1.0, 1, objectives, 1e-6)
        limits.append({"system": name, "rate": most})
        words.append(f"{name} serves {most:.3g} requests/s of {service.capacity:.3g}, then {first}")
        notes += cautions(scenario, at_rate(scenario, most, objectives).load)
    frame = pd.DataFrame(rows)
    charts = []
    for (time, title), limit in zip(_TIMES, (ttft_p99, tpot_p99), strict=True):
        times = frame[["system", "rate", *(f"{time}_{what}" for what in ("mean", "p50", "p99"))]].assign(limit=limit)
        charts.append(
            Chart(
                f"load-{time}",
                f"{title} of one replica against its load: mean, P50 to P99, and the objective on P99",
                times,
                {
                    "system": "system",
                    "rate": "requests [1/s]",
                    f"{time}_mean": f"{title} [s]",
                    f"{time}_p50": f"{title} P50 [s]",
                    f"{time}_p99": f"{title} P99 [s]",
                    "limit": "objective on P99 [s]",
                },
                "rate",
                f"{time}_mean",
                (
                    Layer("area", y=f"{time}_p50", y2=f"{time}_p99"),
                    Layer("line"),
                    Layer("line", y="limit"),
                ),
                color="system",
                facet="system",
                log="y",
            )
        )
    return Figure(
        "Latency against load",
        "; ".join(words) + ".",
        tuple(charts),
        notes=tuple(dict.fromkeys(notes)),
        compared=compared([(scenario, 1.0) for scenario in asked], f", {model}, {traffic}"),
    )


def _breakdown_frame(sizing: Sizing) -> pd.DataFrame:
    """Return the time of each answer by phase and cause [ms]."""
    return pd.DataFrame(
        [
            {
                "system": answer.scenario.system.name,
                "phase": "TTFT" if phase == "prefill" else "TPOT",
                "cause": cause,
                "ms": float(value) * 1e3,
            }
            for answer in sizing.answers
            for phase, causes in evaluate(answer.scenario, ("breakdown",)).breakdown.items()
            for cause, value in causes.items()
        ]
    )


def _answers_table(sizing: Sizing, caption: str) -> Table:
    """Return the answers of a search."""
    rows = []
    for answer in sizing.answers:
        fields = answer.to_dict()
        rows.append(
            [
                fields["system"],
                plan_name(answer.scenario),
                f"{fields['replicas']:,}",
                f"{fields['chips']:,.0f}",
                f"{statistic(answer.load.queue, 'ttft', 'p99'):.3g}",
                f"{statistic(answer.load.queue, 'tpot', 'p99') * 1e3:.3g}",
                "-" if fields["usd_per_hour"] is None else f"{fields['usd_per_hour']:,.4g}",
                "-" if fields["headroom"] is None else f"{fields['headroom']:+.0%}",
                fields["first_limit"],
            ]
        )
    return Table(
        caption,
        ("system", "plan", "replicas", "chips", "TTFT P99 [s]", "TPOT P99 [ms]", "USD/h", "headroom", "binds first"),
        rows,
        numbers=(2, 3, 4, 5, 6, 7),
    )


def _plans_answer(sizing: Sizing) -> str:
    """Return the plan of least cost, or why there is none."""
    if not sizing.answers:
        return sizing.reason
    best = sizing.answers[0]
    return (
        f"Least cost: {best.load.replicas} replicas of {best.scenario.system.name} {plan_name(best.scenario)}, "
        f"{best.chips:,.0f} chips, {best.load.headroom:+.0%} of headroom until {best.load.first_limit}."
    )


def _front_chart(plans: pd.DataFrame) -> Chart:
    """Return the fronts of systems."""
    kept = plans[plans.front].sort_values("tpot_ms")
    fewest, fastest = kept.iloc[kept["chips_per_rate"].argmin()]["system"], kept.iloc[0]["system"]
    return Chart(
        "load-front",
        "Plans on means: chips for a request a second against TPOT, the fronts of systems",
        kept[["system", "plan", "tpot_ms", "chips_per_rate"]],
        {
            "system": "system",
            "plan": "plan",
            "tpot_ms": "TPOT at the batch cap [ms]",
            "chips_per_rate": "chips for 1 request/s",
        },
        "tpot_ms",
        "chips_per_rate",
        (Layer("point"),),
        color="system",
        log="xy",
        finding=f"A request a second takes the fewest chips on {fewest}; a token comes soonest on {fastest}.",
    )


def _breakdown_chart(parts: pd.DataFrame) -> Chart:
    """Return where the time of the answers goes."""
    return Chart(
        "load-breakdown",
        "Where the time of the answers goes, at their mean number of requests",
        parts,
        {"system": "system", "phase": "phase", "cause": "cause", "ms": "time [ms]"},
        "system",
        "ms",
        (Layer("bar"),),
        color="cause",
        facet="phase",
        stacked=True,
    )


@figure("load-plans")
def plans(
    model: str,
    systems: Sequence[str],
    rate: float,
    traffic: str = "chat",
    ttft_p99: float = 1.0,
    tpot_p99: float = 0.05,
) -> Figure:
    """Every plan on means, the front, and the answers of the search."""
    sizing = size(model, systems, rate, _objectives(ttft_p99, tpot_p99), Options(traffic=traffic))
    landscapes = [landscape(resolve(model, on, Options(traffic=traffic))) for on in systems]
    charts = [_front_chart(pd.concat([pd.DataFrame(columns) for columns in landscapes], ignore_index=True))]
    caption = (
        f"Answers for {rate:g} requests/s, P99 TTFT within {ttft_p99:g} s and P99 TPOT within {tpot_p99 * 1e3:g} ms"
    )
    tables = []
    if sizing.answers:
        charts.append(_breakdown_chart(_breakdown_frame(sizing)))
        tables.append(_answers_table(sizing, caption))
    said = (
        f", {model}, {rate:g} requests/s of {traffic}, P99 TTFT within {ttft_p99:g} s and TPOT within "
        f"{tpot_p99 * 1e3:g} ms"
    )
    return Figure(
        "Which plan",
        _plans_answer(sizing),
        tuple(charts),
        tables=tuple(tables),
        notes=sizing.warnings,
        compared=compared([(answer.scenario, 1.0) for answer in sizing.answers], said),
    )


@figure("load-sensitivity")
def sensitivity(
    model: str,
    systems: Sequence[str],
    rate: float,
    traffic: str = "chat",
    ttft_p99: float = 1.0,
    tpot_p99: float = 0.05,
    steps: int = 3,
) -> Figure:
    """What the answer becomes if the traffic is half as much, or half as much again."""
    objectives = _objectives(ttft_p99, tpot_p99)
    rows = []
    for share in np.linspace(0.5, 1.5, steps):
        sizing = size(model, systems, rate * float(share), objectives, Options(traffic=traffic))
        rows += [
            {
                "system": answer.scenario.system.name,
                "rate": rate * float(share),
                "chips": answer.chips,
                "usd": answer.usd_per_hour,
            }
            for answer in sizing.answers
        ]
    if not rows:
        return Figure("Sensitivity to traffic", "No plan meets the objectives at any of these rates.")
    frame = pd.DataFrame(rows)
    words = []
    for name, mine in frame.groupby("system"):
        low, high = mine.iloc[0], mine.iloc[-1]
        words.append(f"{name} from {low.chips:,.0f} to {high.chips:,.0f} chips")
    return Figure(
        "Sensitivity to traffic",
        f"From half the traffic to half as much again: {', '.join(words)}.",
        (
            Chart(
                "load-sensitivity",
                "Chips of the least costly plan against traffic, from -50 % to +50 %",
                frame[["system", "rate", "chips"]],
                {"system": "system", "rate": "requests [1/s]", "chips": "chips"},
                "rate",
                "chips",
                (Layer("line"), Layer("point")),
                color="system",
                log="y",
            ),
            Chart(
                "load-cost",
                "Cost of the least costly plan against traffic",
                frame[["system", "rate", "usd"]].dropna(),
                {"system": "system", "rate": "requests [1/s]", "usd": "cost [USD/h]"},
                "rate",
                "usd",
                (Layer("line"), Layer("point")),
                color="system",
                log="y",
            ),
        ),
    )

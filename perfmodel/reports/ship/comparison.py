"""The comparison matrix: SHIP against SGLang on DGX B200 (Figure 10), its shapes, and what decides each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.prediction import time_spreads
from perfmodel.question import Options, resolve
from perfmodel.reports.compared import compared
from perfmodel.reports.figures import Chart, Figure, Layer, Number, Table, figure
from perfmodel.reports.findings import crossings
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.claims import Judged
from perfmodel.reports.ship.pair import CONTEXTS, RATIOS, Both, Machines, on_loads
from perfmodel.reports.ship.samples import SAMPLES
from perfmodel.reports.ship.shapes import shapes
from perfmodel.reports.ship.traffic import panel, traffic_rows

_SOURCE = "SHIP, figure 10: shapes in words, no values"
_GPU_SERIES = ("SGB200-16Ki", "SGB200-2Ki")


@dataclass(frozen=True)
class View:
    """A quantity of a service that is drawn over P:D for both machines.

    Attributes
    ----------
    name, title, unit : str
        Of its chart.
    read : callable
        The quantity of a :class:`matrix.Service`.
    of_samples : bool
        Whether a panel is a production sample; else it is a context of the fixed traffic.
    spread : str
        Whose calibration widens the range of the engine: ``tpot`` or ``ttft``.
    equal_power : bool
        Whether as many boxes are drawn as take the pipeline's power; else one.
    more : str
        What the caption adds.
    """

    name: str
    title: str
    unit: str
    read: Callable[[matrix.Service], Any]
    of_samples: bool = False
    spread: str = "tpot"
    equal_power: bool = False
    more: str = ""


_TOKENS, _INPUT_SPEED = "input + output [tokens/s]", "it/s/u [tokens/s]"
_RAW = View(
    "ship-throughput-raw",
    "System throughput: one pipeline against one box of 8 B200",
    _TOKENS,
    lambda service: service.throughput,
)
_EQUAL = View(
    "ship-throughput-equal-power",
    "System throughput at equal power",
    _TOKENS,
    lambda service: service.throughput,
    equal_power=True,
)
_VIEWS = (
    _RAW,
    _EQUAL,
    View(
        "ship-output-speed",
        "Output tokens per second and user",
        "ot/s/u [tokens/s]",
        lambda service: 1 / service.tpot,
    ),
    View(
        "ship-input-speed",
        "Input tokens per second and user, KV wait inside",
        _INPUT_SPEED,
        lambda service: service.input_speed(True),
        spread="ttft",
    ),
    View(
        "ship-first-token",
        "Mean TTFT, KV wait inside",
        "TTFT [s]",
        lambda service: service.first_token(True),
        spread="ttft",
    ),
    View(
        "ship-samples-throughput",
        "The production samples: system throughput at equal power",
        _TOKENS,
        lambda service: service.throughput,
        of_samples=True,
        equal_power=True,
        more=". Samples: truncated lognormals; their split into prompt and output is not published",
    ),
    View(
        "ship-samples-input-speed",
        "The production samples: it/s/u, mean of P/TTFT, KV wait inside",
        _INPUT_SPEED,
        lambda service: matrix.mixture_speeds(service, True)[0],
        of_samples=True,
        spread="ttft",
    ),
    View(
        "ship-samples-first-token",
        "The production samples: mean TTFT, KV wait inside",
        "TTFT [s]",
        lambda service: service.first_token(True),
        of_samples=True,
        spread="ttft",
    ),
)


@dataclass(frozen=True)
class Setting:
    """The one setting of the free values that is drawn as a line, by places on their axes.

    Attributes
    ----------
    budget, bare, late, users, arrival : int
        Stage token budget, stage overheads of 0 and of 50 us, users of a box, and how they arrive.
    spreads : mapping of str to float
        Of the engine's calibration, on logarithms, by ``tpot`` and ``ttft``.
    """

    budget: int
    bare: int
    late: int
    users: int
    arrival: int
    spreads: Mapping[str, float]


def _setting(machines: Machines, free: matrix.Free, stage_budget: float, users_per_box: float) -> Setting:
    first_token, token = time_spreads(resolve(machines.model, machines.gpu, Options(precision=machines.precision)))
    return Setting(
        list(free.budgets).index(stage_budget),
        free.overheads.index((0.0, 0.0)),
        free.overheads.index((50.0, 0.0)),
        list(free.gpu_users).index(users_per_box),
        free.arrivals.index("steady"),
        {"tpot": token, "ttft": first_token},
    )


def _lines(both: Both, free: matrix.Free, at: Setting, view: View) -> dict[str, tuple[Any, Any, Any]]:
    """Return the drawn setting and the range over all settings, by series.

    The engine's range is wider by the spread of its calibration, most of which is transferred from other chips.
    """
    wider = float(np.exp(at.spreads[view.spread]))
    ship, gpu = view.read(both.ship), view.read(both.gpu)
    load, bits = free.beats.index("load"), 0
    every_ship, every_gpu = tuple(range(4)), (0, 1, 2)
    lines = {}
    for name, overhead in (("SHIP, bare", at.bare), ("SHIP, 50 us a stage", at.late)):
        lines[name] = (ship[load, bits, at.budget, overhead], ship.min(axis=every_ship), ship.max(axis=every_ship))
    for place, name in enumerate(_GPU_SERIES[: gpu.shape[1]]):
        part = gpu[:, place]
        low, high = part.min(axis=every_gpu) / wider, part.max(axis=every_gpu) * wider
        lines[name] = (part[bits, at.users, at.arrival], low, high)
    return lines


def _view_frame(
    lines: Mapping[str, tuple[Any, Any, Any]], ratios: Sequence[float], panels: Sequence[str], boxes: float
) -> pd.DataFrame:
    """Return a row a series, P:D and panel: the drawn value and its range, of so many boxes of GPUs."""
    rows = []
    for name, quantities in lines.items():
        factor = boxes if name in _GPU_SERIES else 1.0
        values = {key: quantity * factor for key, quantity in zip(("value", "low", "high"), quantities, strict=True)}
        rows += traffic_rows(ratios, panels, values, by="panel", series=name)
    return pd.DataFrame(rows)


def _view_chart(view: View, frame: pd.DataFrame, caption: str) -> Chart:
    return Chart(
        view.name,
        view.title,
        frame,
        {
            "series": "machine",
            "ratio": "P:D",
            "panel": "traffic",
            "value": view.unit,
            "low": f"least over all settings, {view.unit}",
            "high": f"most over all settings, {view.unit}",
        },
        "ratio",
        "value",
        (
            Layer("area", y="low", y2="high", rows="series in ('SHIP, bare', 'SGB200-16Ki')"),
            Layer("line"),
        ),
        color="series",
        facet="panel",
        log="xy",
        caption=caption,
    )


def _throughput_table(
    raw: pd.DataFrame, ratios: Sequence[float], contexts: Sequence[float], watts: tuple[float, float], boxes: float
) -> Table:
    """Return the throughput in the four corners of the traffic, raw, by the power of pipeline and box, and equal."""
    values = raw.set_index(["series", "ratio", "panel"]).value
    rows = []
    for name in raw.series.unique():
        each, factor = (watts[1], boxes) if name in _GPU_SERIES else (watts[0], 1.0)
        for ratio, context in product((ratios[-1], ratios[0]), (contexts[0], contexts[-1])):
            value = float(values[name, float(ratio), panel(context)])
            rows.append(
                (
                    name,
                    f"{ratio:g}",
                    f"{context / 1024:g}Ki",
                    f"{value:,.0f}",
                    f"{value / each * 1e3:,.0f}",
                    f"{value * factor:,.0f}",
                )
            )
    return Table(
        "Throughput as drawn: raw, per watt, and at equal power",
        ("machine", "P:D", "context", "raw [tokens/s]", "per kW [tokens/s]", "at equal power [tokens/s]"),
        rows,
        (3, 4, 5),
    )


def _claim_maps(judged: Sequence[Judged]) -> tuple[Chart, Chart]:
    """Return the share of settings in which each claim holds, over the pipeline's free values and the engine's."""
    title = "Share of settings in which a claim holds, by the {}'s free values"
    stage = ("stage token budget",), ("beat", "stage overhead")
    engine = ("users per box",), ("arrival", "KV bits")
    return (
        _map("ship-claims-by-stage", title.format("pipeline"), judged, *stage),
        _map("ship-claims-by-engine", title.format("engine"), judged, *engine),
    )


def _map(name: str, title: str, judged: Sequence[Judged], across: Sequence[str], down: Sequence[str]) -> Chart:
    return Chart(
        name,
        title,
        pd.DataFrame([row for one in judged for row in one.map_rows(across, down)]),
        {
            "claim": "claim",
            "across": " and ".join(across),
            "down": " and ".join(down),
            "share": "share of settings",
        },
        "across",
        "down",
        (Layer("rect", color="share"),),
        facet="claim",
        caption="Light: holds nowhere; dark: holds whatever the other free values are",
    )


def _comparison_numbers(boxes: float, mixed: Both) -> tuple[Number, ...]:
    """Return the boxes of equal power and the requests of the reasoning sample that fit, beside what is printed."""
    return (
        Number(
            "boxes of 8 B200 that draw the power of one SHIP",
            boxes,
            "1",
            41.2,
            "reconstructed",
            source="SHIP: 388 and 1,788 W a chip",
        ),
        Number(
            "requests of the reasoning sample in SRAM, 16-bit cache",
            float(np.max(mixed.ship.running[0, 0, 0, 0, :, 1])),
            "requests",
            78.0,
            "reconstructed",
            source="worked out from 349.6 GB less weights",
            note="a stage of layers cannot use the SRAM that the stage of embedding and head leaves",
        ),
    )


def _comparison_notes(free: matrix.Free, at: Setting) -> tuple[str, ...]:
    tpot, ttft = (np.exp(at.spreads[time]) for time in ("tpot", "ttft"))
    return (
        f"The paper's normalisation of figure 10 is not known, so every view is given. {_SOURCE}.",
        "B200 kernel efficiencies are measured with TensorRT-LLM; SGLang's host and layer times on B200 are "
        f"transferred from H200: 80 % of TPOT within a factor of {tpot:.2f} and of TTFT within {ttft:.2f}, which the "
        "areas include.",
        "Context is P + D. 128Ki is longer than the 40,960 tokens that the model was made for.",
        "Free values: beat (load or fixed), stage token budget "
        + ", ".join(f"{budget:g}" for budget in free.budgets)
        + ", stage overhead 0 to 50 us that keeps a stage busy or delays a token, cache of 16 or 8 bits (on both "
        "sides), SGLang users a box 9, 64, 380 and KV-full, lock-step or steady arrival, KV wait inside TTFT (380 "
        "offered) or outside (what fits).",
        "SGLang prefills first and alone, its default; a queue from requests of unequal length is left out on both "
        "sides.",
    )


def _comparison_answer(raw: pd.DataFrame, judged: Sequence[Judged], boxes: float, faster: float) -> str:
    """Return what the matrix shows; ``faster`` is how many times as fast a user's tokens come."""
    ratio, panel = raw.ratio.max(), raw.panel.iloc[0]
    there = raw[(raw.ratio == ratio) & (raw.panel == panel)].set_index("series").value
    ship, box = there["SHIP, bare"], there["SGB200-16Ki"]
    verdicts = [one.verdict for one in judged]
    return (
        f"As drawn, bare SHIP serves {ship / box:,.0f} times the tokens of one box at P:D {ratio:g} and "
        f"{panel.removeprefix('context ')}, and {ship / (boxes * box):.2f} times at equal power; in the median over "
        f"P:D and context a user's tokens come {faster:,.0f} times as fast. {verdicts.count('holds')} of {len(judged)} "
        f"shapes hold whatever the free values, {verdicts.count('depends')} depend on them."
    )


def _times(over: pd.DataFrame, under: pd.DataFrame, ends: tuple[str, str]) -> str:
    """Return one machine's throughput over another's, over the traffic: at worst and at best for the first.

    Both have a row a traffic, in the same order.
    """
    least = over[ends[0]].to_numpy() / under[ends[1]].to_numpy()
    most = over[ends[1]].to_numpy() / under[ends[0]].to_numpy()
    return f"{least.min():.2g} to {most.max():.2g}"


def _verdict(equal: pd.DataFrame, faster: Any, kilowatts: float) -> str:
    """Return the answer of the report with its range, at equal power."""
    by = dict(tuple(equal.groupby("series")))
    bare, late, box = by["SHIP, bare"], by["SHIP, 50 us a stage"], by["SGB200-16Ki"]
    drawn = ("value", "value")
    return (
        f"At equal power ({kilowatts:,.0f} kW) the pipeline serves {_times(bare, box, drawn)} times the tokens of the "
        f"GPUs, by P:D and context, where a stage loses no time, and {_times(late, box, drawn)} times where it loses "
        f"50 us; over every setting that the paper leaves open {_times(bare, box, ('low', 'high'))} times. Without "
        f"loss a user's tokens come {np.min(faster):.0f} to {np.max(faster):.0f} times as fast."
    )


def _hero(equal: Chart) -> Chart:
    """Return throughput at equal power for the one context at which machines cross most, or the longest."""
    frame = equal.frame[equal.frame.series != "SGB200-2Ki"]
    panels = list(frame.panel.unique())
    drawn = {name: frame[frame.panel == name].reset_index(drop=True) for name in panels}
    crossed = {name: len(crossings(one, "ratio", "value", "series", "xy")) for name, one in drawn.items()}
    chosen = max(panels[::-1], key=lambda name: crossed[name])
    title = f"{equal.title}, {chosen}"
    return replace(equal, name="ship-hero", title=title, frame=drawn[chosen], facet="")


@figure("ship-comparison")
def comparison(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    users: float = 380,
    gpu: str = "dgx-b200:tp=8,engine=sglang",
    precision: str = "fp8",
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[float] = CONTEXTS,
    stage_budget: float = 16,
    users_per_box: float = 64,
) -> Figure:
    """System throughput, ot/s/u, it/s/u and mean TTFT over P:D and context (Figure 10)."""
    machines = Machines(model, ship, users, gpu, precision)
    free = matrix.Free().including(stage_budget, users_per_box)
    ratios, contexts = sorted(ratios), sorted(contexts)
    boxes, at = machines.scale(), _setting(machines, free, stage_budget, users_per_box)
    fixed, mixed = on_loads(machines, free, ratios, contexts)
    drawn = (
        f"Lines: load-paced stages of {stage_budget:g} tokens, cache of 16 bits; SGLang with {users_per_box:g} users a "
        "box. Areas: all settings of the free values, of SGLang with the spread of its calibration"
    )
    equal = f". {boxes:.1f} boxes of 8 B200 draw what {ship} draws"
    frames = {
        view: _view_frame(
            _lines(mixed if view.of_samples else fixed, free, at, view),
            ratios,
            [sample.name for sample in SAMPLES] if view.of_samples else list(map(panel, contexts)),
            boxes if view.equal_power else 1.0,
        )
        for view in _VIEWS
    }
    judged = shapes(machines, free, ratios, contexts, (fixed, mixed))
    faster = fixed.gpu.tpot[0, 0, at.users, at.arrival] / fixed.ship.tpot[0, 0, at.budget, at.bare]
    views = {
        view: _view_chart(view, frame, drawn + (equal if view.equal_power else "") + view.more)
        for view, frame in frames.items()
    }
    pipeline, box = machines.scenarios
    return Figure(
        "The comparison matrix",
        _comparison_answer(frames[_RAW], judged, boxes, float(np.median(faster))),
        charts=(*views.values(), *_claim_maps(judged)),
        numbers=_comparison_numbers(boxes, mixed),
        claims=tuple(one.claim() for one in judged),
        tables=(_throughput_table(frames[_RAW], ratios, contexts, machines.watts, boxes),),
        notes=_comparison_notes(free, at),
        verdict=_verdict(frames[_EQUAL], faster, machines.watts[0] / 1e3),
        compared=compared([(pipeline, 1.0), (box, boxes)], f", {model}"),
        hero=_hero(views[_EQUAL]),
    )

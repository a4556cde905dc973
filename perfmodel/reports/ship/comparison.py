"""The comparison matrix: SHIP against SGLang on DGX B200 (Figure 10), its shapes, and what decides each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.prediction import time_spreads
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.claims import Judged
from perfmodel.reports.ship.samples import SAMPLES

RATIOS = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
CONTEXTS = (2048, 8192, 32768, 131072)
#: What "steeply", "flat" and "weak" mean here; the paper gives no numbers.
STEEP, FLAT, WEAK = 3.0, 1.1, 0.25
_SOURCE = "SHIP, figure 10: shapes in words, no values"


@dataclass(frozen=True)
class Machines:
    """What is compared: a model, the pipeline with its users, and a box of GPUs."""

    model: str = "qwen3-235b-a22b"
    ship: str = "lpu-v1:plan=ship-16x95"
    users: float = 380.0
    gpu: str = "dgx-b200:tp=8,engine=sglang"
    precision: str = "fp8"

    def scale(self) -> float:
        """Return the boxes of GPUs that draw what the pipeline draws, by nameplates."""
        ship = resolve(self.model, self.ship, Options(precision=self.precision))
        gpu = resolve(self.model, self.gpu, Options(precision=self.precision))
        return float(power(ship) / power(gpu))


def power(scenario: Any) -> float:
    """Return the nameplate power of the chips that a deployment uses, with their share of the system [W]."""
    plan = scenario.deployment
    return float(plan.tp * plan.pp * plan.dp * scenario.system.power.system_per_chip)


@dataclass(frozen=True)
class Both:
    """Both machines on one load; ``wide`` puts their free values on common axes."""

    ship: matrix.Service
    gpu: matrix.Service

    def wide(self, name: str, budget: int = 0) -> tuple[Any, Any]:
        """Return a quantity of both on common axes: of the pipeline, users and arrival of the engine, and the load."""
        ship = getattr(self.ship, name)[:, :, :, :, None, None]
        gpu = getattr(self.gpu, name)[:, budget][None, :, None, None]
        wide = np.broadcast_arrays(ship, gpu)
        return wide[0], wide[1]


def serve(machines: Machines, free: matrix.Free, load: matrix.Load) -> Both:
    """Return what both machines do for a load."""
    return Both(
        matrix.pipeline_service(machines.model, machines.ship, machines.users, free, load, machines.precision),
        matrix.gpu_service(machines.model, machines.gpu, free, load, machines.precision),
    )


def common_axes(free: matrix.Free) -> dict[str, list[str]]:
    """Return the labels of the free values of both machines, in the order of :meth:`Both.wide`."""
    gpu = free.gpu
    return {**free.ship, "users per box": gpu["users per box"], "arrival": gpu["arrival"]}


def on_loads(
    machines: Machines, free: matrix.Free, ratios: Sequence[float], contexts: Sequence[float]
) -> tuple[Both, Both]:
    """Return what both machines do for fixed traffic, and for the production samples."""
    fixed, samples = matrix.fixed_load(ratios, contexts), matrix.sample_load(ratios)
    return serve(machines, free, fixed), serve(machines, free, samples)


def shapes(
    machines: Machines,
    free: matrix.Free,
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[float] = CONTEXTS,
    served: tuple[Both, Both] | None = None,
) -> list[Judged]:
    """Return the paper's claims about the matrix as truth values over the free values."""
    if served is None:
        served = on_loads(machines, free, ratios, contexts)
    both, mixed = served
    means = serve(machines, free, matrix.mean_load(ratios))
    short = serve(machines, free, matrix.fixed_load([8, 16, 32], [1024, 2048, 4096]))
    axes = common_axes(free)
    boxes = np.array([1.0, machines.scale()])
    scaled = {**axes, "scale": ["one box", "equal power"]}
    splits = {"P:D": [f"{ratio:g}" for ratio in ratios]}
    names = {"sample": [sample.name for sample in SAMPLES]}
    waits = {"KV wait": ["inside TTFT", "outside"]}
    high = [at for at, ratio in enumerate(ratios) if ratio >= 8] or [len(ratios) - 1]
    near = [at for at, context in enumerate(contexts) if context <= 8192] or [0]
    found = []

    # (1) the engine with the large budget leads at high P:D and falls steeply
    ship, large = both.wide("throughput")
    small = both.wide("throughput", 1)[1]
    more = np.stack([ship > values for values in (large, small)], -1)
    found.append(
        Judged(
            "one SHIP beats one box",
            "One SHIP out-produces one box at every P:D and context",
            np.all(more, axis=(-1, -2, -3)),
            axes,
            f"The ratio to SGB200-16Ki runs from {np.min(ship / large):.2g} to {np.max(ship / large):.2g}.",
        )
    )
    there = np.ix_(high, near)

    def part(values: Any) -> Any:
        return values[(Ellipsis, *there)]

    leads = [np.all((part(large) * box > part(ship)) & (part(large) >= part(small)), axis=(-1, -2)) for box in boxes]
    found.append(
        Judged(
            "16Ki leads at P:D >= 8",
            "SGB200-16Ki has the highest throughput at P:D of 8 and more and contexts to 8Ki",
            np.stack(leads, -1),
            scaled,
        )
    )
    alone = {name: free.gpu[name] for name in ("KV bits", "users per box", "arrival")}
    rate = both.gpu.throughput[:, 0]
    by_ratio, by_context = rate[..., -1, 0] / rate[..., 0, 0], rate[..., -1, 0] / rate[..., -1, -1]
    of_ship = both.ship.throughput
    ship_ratio, ship_context = of_ship[..., -1, 0] / of_ship[..., 0, 0], of_ship[..., -1, 0] / of_ship[..., -1, -1]
    found.append(
        Judged(
            "16Ki falls at low P:D",
            "SGB200-16Ki falls steeply at low P:D",
            by_ratio >= STEEP,
            alone,
            f"From P:D {ratios[-1]:g} to {ratios[0]:g} at {contexts[0] / 1024:g}Ki it falls {_range(by_ratio)}, SHIP "
            f"{_range(ship_ratio)} (steep: {STEEP:g} and more).",
        )
    )
    found.append(
        Judged(
            "16Ki falls at long context",
            "SGB200-16Ki falls steeply at long context",
            by_context >= STEEP,
            alone,
            f"From {contexts[0] / 1024:g}Ki to {contexts[-1] / 1024:g}Ki at P:D {ratios[-1]:g} it falls "
            f"{_range(by_context)}, SHIP {_range(ship_context)}.",
        )
    )
    wide = np.broadcast_arrays(ship_context[:, :, :, :, None, None], by_context[None, :, None, None])
    found.append(
        Judged(
            "SHIP falls more with context",
            "Against context SHIP falls further than SGB200-16Ki",
            wide[0] > wide[1],
            axes,
        )
    )

    # (2) flat
    flat = short.ship.throughput
    spread = flat.max(axis=(-1, -2)) / flat.min(axis=(-1, -2))
    found.append(
        Judged(
            "SHIP flat at P:D >= 8",
            "SHIP's throughput is flat for P:D of 8 and more and contexts to 4Ki",
            spread <= FLAT,
            free.ship,
            f"Highest over lowest is {_range(spread)} (flat: within {FLAT - 1:.0%}).",
        )
    )

    # (3) output speed
    mine, theirs = (1 / value for value in both.wide("tpot"))
    theirs = np.maximum(theirs, 1 / both.wide("tpot", 1)[1])
    higher = np.all(mine > theirs, axis=(-1, -2))
    found.append(
        Judged(
            "ot/s/u higher",
            "SHIP's ot/s/u is higher at every P:D and context",
            higher,
            axes,
            f"The ratio runs from {np.min(mine / theirs):.2g} to {np.max(mine / theirs):.2g}.",
        )
    )
    swing = [values.max(axis=(-1, -2)) / values.min(axis=(-1, -2)) for values in both.wide("tpot")]
    found.append(
        Judged(
            "ot/s/u flatter",
            "SHIP's ot/s/u is flatter over P:D and context than SGB200-16Ki's",
            swing[0] < swing[1],
            axes,
            f"Highest over lowest: SHIP {_range(swing[0])}, SGB200-16Ki {_range(swing[1])}.",
        )
    )

    # (4) weak corner
    peak = of_ship.max(axis=(-1, -2))
    corner = of_ship[..., 0, -1] / peak
    found.append(
        Judged(
            "SHIP weak in the corner",
            "SHIP is weak at low P:D with long context (share of its own peak)",
            corner <= WEAK,
            free.ship,
            f"It keeps {_percent(corner)} of its peak (weak: at most {WEAK:.0%}).",
        )
    )
    weaker = [large[..., 0, -1] * box > ship[..., 0, -1] for box in boxes]
    found.append(
        Judged(
            "SGB200 higher in the corner", "There SGB200-16Ki has the higher throughput", np.stack(weaker, -1), scaled
        )
    )

    # (5) input speed on the reasoning sample
    both_ways = [matrix.mixture_speeds(mixed.ship, inside) for inside in (True, False)]
    for which, words in ((0, "mean of P/TTFT"), (1, "sum of P over sum of TTFT")):
        speeds = np.stack([pair[which] for pair in both_ways], axis=-1)
        falls = speeds[..., 1, :] < speeds[..., 0, :]
        found.append(
            Judged(
                f"it/s/u falls: {words}",
                f"SHIP's it/s/u is lower on the reasoning sample than on the other ({words})",
                falls,
                {**free.ship, **splits, **waits},
                f"Reasoning over non-reasoning: {_range(speeds[..., 1, :] / speeds[..., 0, :], 'x')}.",
            )
        )

    # (6) first token on the samples
    below = []
    for inside in (True, False):
        one = mixed.ship.first_token(inside)[:, :, :, :, None, None]
        other = mixed.gpu.first_token(inside)[:, 0][None, :, None, None]
        below.append(np.less(*np.broadcast_arrays(one, other)))
    found.append(
        Judged(
            "TTFT lower on samples",
            "SHIP's mean TTFT on the samples is below that of SGB200-16Ki",
            np.stack(below, -1),
            {**axes, **splits, **names, **waits},
        )
    )

    # (7) the samples against the peak, and against fixed traffic of their means
    gpu_peak = rate.max(axis=(-1, -2))
    kept_ship, kept_gpu = (
        mixed.ship.throughput / peak[..., None, None],
        mixed.gpu.throughput[:, 0] / gpu_peak[..., None, None],
    )
    one, other = np.broadcast_arrays(kept_ship[:, :, :, :, None, None], kept_gpu[None, :, None, None])
    everywhere = {**axes, **splits, **names}
    found.append(
        Judged(
            "samples: drop smaller",
            "On the samples SHIP drops less from its own peak than SGB200-16Ki",
            one > other,
            everywhere,
            f"SHIP keeps {_percent(kept_ship)}, SGB200-16Ki {_percent(kept_gpu)}.",
        )
    )
    means_ship = means.ship.throughput / peak[..., None, None]
    means_gpu = means.gpu.throughput[:, 0] / gpu_peak[..., None, None]
    one, other = np.broadcast_arrays(
        (mixed.ship.throughput / means.ship.throughput)[:, :, :, :, None, None],
        (mixed.gpu.throughput / means.gpu.throughput)[:, 0][None, :, None, None],
    )
    found.append(
        Judged(
            "drop from equal means",
            "Against fixed traffic of equal mean SHIP drops less too",
            one > other,
            everywhere,
            f"The tail of the lengths costs SHIP {_percent(1 - one)} and SGB200-16Ki {_percent(1 - other)}; the fixed "
            f"traffic itself reaches {_percent(means_ship)} and {_percent(means_gpu)} of the peaks.",
        )
    )
    one, other = mixed.wide("throughput")
    absolute = [one > other * box for box in boxes]
    found.append(
        Judged(
            "samples: SHIP higher",
            "On the samples SHIP's throughput is the higher one",
            np.stack(absolute, -1),
            {**everywhere, "scale": scaled["scale"]},
        )
    )

    # the scales at which (1) and (7) hold together
    lowest = (ship / large)[(Ellipsis, *np.ix_(high, near))].max(axis=(-1, -2))[..., None, None]
    highest = one / other
    open_window = lowest < highest
    found.append(
        Judged(
            "one scale fits both",
            "Some number of boxes makes SGB200-16Ki lead at high P:D and SHIP lead on the samples",
            open_window,
            everywhere,
            f"SGB200 leads from {_range(lowest, ' boxes')} on, SHIP on the samples up to {_range(highest, ' boxes')}; "
            f"equal power is {boxes[1]:.1f}.",
        )
    )
    return found


def _range(values: Any, unit: str = "x") -> str:
    return f"{np.min(values):.3g} to {np.max(values):.3g}{unit}"


def _percent(values: Any) -> str:
    return f"{np.min(values):.0%} to {np.max(values):.0%}"


# --- the charts --------------------------------------------------------------------------------------------------

_GPU_SERIES = ("SGB200-16Ki", "SGB200-2Ki")


def _lines(
    both: Both, free: matrix.Free, at: Mapping[str, Any], value: Any, spread: str = "tpot_spread"
) -> dict[str, tuple[Any, Any, Any]]:
    """Return the drawn setting and the range over all settings, by series; ``value`` reads a quantity of a service.

    The engine's range is wider by the spread of its calibration, most of which is transferred from other chips.
    """
    wider = float(np.exp(at[spread]))
    ship, gpu = value(both.ship), value(both.gpu)
    load, bits = free.beats.index("load"), 0
    every_ship, every_gpu = tuple(range(4)), (0, 1, 2)
    found = {}
    for name, overhead in (("SHIP, bare", at["bare"]), ("SHIP, 50 us a stage", at["late"])):
        found[name] = (ship[load, bits, at["budget"], overhead], ship.min(axis=every_ship), ship.max(axis=every_ship))
    for place, name in enumerate(_GPU_SERIES[: gpu.shape[1]]):
        part = gpu[:, place]
        low, high = part.min(axis=every_gpu) / wider, part.max(axis=every_gpu) * wider
        found[name] = (part[bits, at["users"], at["arrival"]], low, high)
    return found


def _frame(lines: dict[str, tuple[Any, Any, Any]], rows: Sequence[float], panels: Sequence[Any], boxes: float) -> Any:
    made = []
    for name, (drawn, low, high) in lines.items():
        factor = boxes if name.startswith("SGB200") else 1.0
        for i, row in enumerate(rows):
            for j, panel in enumerate(panels):
                made.append(
                    {
                        "series": name,
                        "ratio": float(row),
                        "panel": panel if isinstance(panel, str) else f"context {panel / 1024:g}Ki",
                        "value": float(drawn[i, j]) * factor,
                        "low": float(low[i, j]) * factor,
                        "high": float(high[i, j]) * factor,
                    }
                )
    return pd.DataFrame(made)


def _chart(name: str, title: str, frame: Any, unit: str, caption: str) -> Chart:
    return Chart(
        name,
        title,
        frame,
        {
            "series": "machine",
            "ratio": "P:D",
            "panel": "traffic",
            "value": unit,
            "low": f"least over all settings, {unit}",
            "high": f"most over all settings, {unit}",
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
    boxes = machines.scale()
    first_token, token = time_spreads(resolve(model, gpu, Options(precision=precision)))
    at = {
        "tpot_spread": token,
        "ttft_spread": first_token,
        "budget": list(free.budgets).index(stage_budget),
        "bare": free.overheads.index((0.0, 0.0)),
        "late": free.overheads.index((50.0, 0.0)),
        "users": list(free.gpu_users).index(users_per_box),
        "arrival": free.arrivals.index("steady"),
    }
    both, mixed = on_loads(machines, free, ratios, contexts)
    drawn = (
        f"Lines: load-paced stages of {stage_budget:g} tokens, cache of 16 bits; SGLang with {users_per_box:g} users a "
        f"box. "
        "Areas: all settings of the free values, of SGLang with the spread of its calibration"
    )
    equal = f"{drawn}. {boxes:.1f} boxes of 8 B200 draw what {ship} draws"
    names = [sample.name for sample in SAMPLES]
    throughput = _lines(both, free, at, lambda service: service.throughput)
    of_samples = _lines(mixed, free, at, lambda service: service.throughput)
    charts = [
        _chart(
            "ship-throughput-raw",
            "System throughput: one pipeline against one box of 8 B200",
            _frame(throughput, ratios, contexts, 1.0),
            "input + output [tokens/s]",
            drawn,
        ),
        _chart(
            "ship-throughput-equal-power",
            "System throughput at equal power",
            _frame(throughput, ratios, contexts, boxes),
            "input + output [tokens/s]",
            equal,
        ),
        _chart(
            "ship-output-speed",
            "Output tokens per second and user",
            _frame(_lines(both, free, at, lambda service: 1 / service.tpot), ratios, contexts, 1.0),
            "ot/s/u [tokens/s]",
            drawn,
        ),
        _chart(
            "ship-input-speed",
            "Input tokens per second and user, KV wait inside",
            _frame(
                _lines(both, free, at, lambda service: service.input_speed(True), "ttft_spread"), ratios, contexts, 1.0
            ),
            "it/s/u [tokens/s]",
            drawn,
        ),
        _chart(
            "ship-first-token",
            "Mean TTFT, KV wait inside",
            _frame(
                _lines(both, free, at, lambda service: service.first_token(True), "ttft_spread"), ratios, contexts, 1.0
            ),
            "TTFT [s]",
            drawn,
        ),
        _chart(
            "ship-samples-throughput",
            "The production samples: system throughput at equal power",
            _frame(of_samples, ratios, names, boxes),
            "input + output [tokens/s]",
            f"{equal}. Samples: truncated lognormals; their split into prompt and output is not published",
        ),
        _chart(
            "ship-samples-input-speed",
            "The production samples: it/s/u, mean of P/TTFT, KV wait inside",
            _frame(
                _lines(mixed, free, at, lambda service: matrix.mixture_speeds(service, True)[0], "ttft_spread"),
                ratios,
                names,
                1.0,
            ),
            "it/s/u [tokens/s]",
            drawn,
        ),
        _chart(
            "ship-samples-first-token",
            "The production samples: mean TTFT, KV wait inside",
            _frame(
                _lines(mixed, free, at, lambda service: service.first_token(True), "ttft_spread"), ratios, names, 1.0
            ),
            "TTFT [s]",
            drawn,
        ),
    ]
    watts = [power(resolve(model, on, Options(precision=precision))) for on in (ship, gpu)]
    rows = []
    for name, (line, _, _) in throughput.items():
        each, factor = (watts[1], boxes) if name.startswith("SGB200") else (watts[0], 1.0)
        for ratio, context in (
            (ratios[-1], contexts[0]),
            (ratios[-1], contexts[-1]),
            (ratios[0], contexts[0]),
            (ratios[0], contexts[-1]),
        ):
            value = float(line[list(ratios).index(ratio), list(contexts).index(context)])
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
    judged = shapes(machines, free, ratios, contexts, (both, mixed))
    first = throughput["SHIP, bare"][0]
    other = throughput["SGB200-16Ki"][0]
    speed = float(
        np.median(both.gpu.tpot[0, 0, at["users"], at["arrival"]] / both.ship.tpot[0, 0, at["budget"], at["bare"]])
    )
    maps = pd.DataFrame(
        [row for one in judged for row in one.map_rows(("stage token budget",), ("beat", "stage overhead"))]
    )
    engines = pd.DataFrame([row for one in judged for row in one.map_rows(("users per box",), ("arrival", "KV bits"))])
    held = [one for one in judged if one.verdict == "holds"]
    return Figure(
        "The comparison matrix",
        f"As drawn, bare SHIP serves {first[-1, 0] / (other[-1, 0]):,.0f} times the tokens of one box at P:D "
        f"{ratios[-1]:g} and "
        f"{contexts[0] / 1024:g}Ki, and {first[-1, 0] / (boxes * other[-1, 0]):.2f} times at equal power; in the "
        f"median over P:D and context a user's tokens come {speed:,.0f} times as fast. {len(held)} of {len(judged)} "
        f"shapes hold whatever the free values, "
        f"{sum(one.verdict == 'depends' for one in judged)} depend on them.",
        charts=(
            *charts,
            _map(
                "ship-claims-by-stage",
                "Share of settings in which a claim holds, by the pipeline's free values",
                maps,
                "stage token budget",
                "beat and stage overhead",
            ),
            _map(
                "ship-claims-by-engine",
                "Share of settings in which a claim holds, by the engine's free values",
                engines,
                "users per box",
                "arrival and KV bits",
            ),
        ),
        numbers=(
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
        ),
        claims=tuple(one.claim() for one in judged),
        tables=(
            Table(
                "Throughput as drawn: raw, per watt, and at equal power",
                ("machine", "P:D", "context", "raw [tokens/s]", "per kW [tokens/s]", "at equal power [tokens/s]"),
                rows,
                (3, 4, 5),
            ),
        ),
        notes=(
            "The paper's normalisation of figure 10 is not known, so every view is given. " + _SOURCE + ".",
            "B200 kernel efficiencies are measured with TensorRT-LLM; SGLang's host and layer times on B200 are "
            "transferred "
            "from H200: 80 % of TPOT within a factor of "
            f"{np.exp(at['tpot_spread']):.2f} and of TTFT within {np.exp(at['ttft_spread']):.2f}, which the areas "
            f"include.",
            "Context is P + D. 128Ki is longer than the 40,960 tokens that the model was made for.",
            "Free values: beat (load or fixed), stage token budget "
            + ", ".join(f"{budget:g}" for budget in free.budgets)
            + ", stage overhead 0 to 50 us that keeps a stage busy or delays a token, cache of 16 or 8 bits (on both "
            "sides), SGLang users a box 9, 64, 380 and KV-full, lock-step or steady arrival, KV wait inside TTFT (380 "
            "offered) "
            "or outside (what fits).",
            "SGLang prefills first and alone, its default; a queue from requests of unequal length is left out on both "
            "sides.",
        ),
    )


def _map(name: str, title: str, frame: Any, across: str, down: str) -> Chart:
    return Chart(
        name,
        title,
        frame,
        {"claim": "claim", "across": across, "down": down, "share": "share of settings"},
        "across",
        "down",
        (Layer("rect", color="share"),),
        facet="claim",
        caption="Light: holds nowhere; dark: holds whatever the other free values are",
    )

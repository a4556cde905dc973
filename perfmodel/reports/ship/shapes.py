"""The shapes that SHIP describes of Figure 10, as truth values over the free values of both machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.claims import Judged
from perfmodel.reports.ship.pair import CONTEXTS, RATIOS, Both, Machines, common_axes, on_loads, serve
from perfmodel.reports.ship.samples import SAMPLES

#: What "steeply", "flat" and "weak" mean here; the paper gives no numbers.
STEEP, FLAT, WEAK = 3.0, 1.1, 0.25


@dataclass(frozen=True)
class Grid:
    """What both machines do, over their free values and all traffic that a claim is about.

    Attributes
    ----------
    free : matrix.Free
    ratios, contexts : sequence of float
        P:D and P + D of the fixed traffic.
    fixed, mixed, means, short : Both
        On fixed traffic, on the production samples, on fixed traffic of the samples' means, and on short contexts at
        P:D from 8.
    boxes : tuple of float
        Boxes of GPUs that are compared with one pipeline: one, and as many as draw its power.
    """

    free: matrix.Free
    ratios: Sequence[float]
    contexts: Sequence[float]
    fixed: Both
    mixed: Both
    means: Both
    short: Both
    boxes: tuple[float, float]

    @property
    def axes(self) -> dict[str, list[str]]:
        """Labels of the free values of both machines."""
        return common_axes(self.free)

    @property
    def scaled(self) -> dict[str, list[str]]:
        """Labels of the free values and of the boxes."""
        return {**self.axes, "scale": ["one box", "equal power"]}

    @property
    def of_samples(self) -> dict[str, list[str]]:
        """Labels of the axes of the samples: how they split into prompt and output, and which."""
        return {
            "P:D": [f"{ratio:g}" for ratio in self.ratios],
            "sample": [sample.name for sample in SAMPLES],
        }

    def near(self, values: Any) -> Any:
        """Return a quantity of the fixed traffic at P:D of 8 and more and contexts to 8Ki."""
        high = [at for at, ratio in enumerate(self.ratios) if ratio >= 8] or [len(self.ratios) - 1]
        near = [at for at, context in enumerate(self.contexts) if context <= 8192] or [0]
        return values[(Ellipsis, *np.ix_(high, near))]


def _onto(ship: Any, gpu: Any) -> tuple[Any, Any]:
    """Return quantities of both machines on the common axes of their free values, the engine's without its budget."""
    one, other = np.broadcast_arrays(ship[:, :, :, :, None, None], gpu[None, :, None, None])
    return one, other


def _swing(values: Any) -> Any:
    """Return the highest over the lowest value of the traffic."""
    return values.max(axis=(-1, -2)) / values.min(axis=(-1, -2))


def _range(values: Any, unit: str = "x") -> str:
    return f"{np.min(values):.3g} to {np.max(values):.3g}{unit}"


def _percent(values: Any) -> str:
    return f"{np.min(values):.0%} to {np.max(values):.0%}"


def _who_leads(grid: Grid) -> list[Judged]:
    """(1) One pipeline against one box, and the engine with the large budget at high P:D."""
    ship, large = grid.fixed.wide("throughput")
    small = grid.fixed.wide("throughput", 1)[1]
    more = np.stack([ship > values for values in (large, small)], -1)
    leads = [
        np.all(
            (grid.near(large) * box > grid.near(ship)) & (grid.near(large) >= grid.near(small)),
            axis=(-1, -2),
        )
        for box in grid.boxes
    ]
    return [
        Judged(
            "one SHIP beats one box",
            "One SHIP out-produces one box at every P:D and context",
            np.all(more, axis=(-1, -2, -3)),
            grid.axes,
            f"The ratio to SGB200-16Ki runs from {np.min(ship / large):.2g} to {np.max(ship / large):.2g}.",
        ),
        Judged(
            "16Ki leads at P:D >= 8",
            "SGB200-16Ki has the highest throughput at P:D of 8 and more and contexts to 8Ki",
            np.stack(leads, -1),
            grid.scaled,
        ),
    ]


def _who_falls(grid: Grid) -> list[Judged]:
    """(1) How far each falls at low P:D and at long context."""
    alone = {name: grid.free.gpu[name] for name in ("KV bits", "users per box", "arrival")}
    rates = grid.fixed.ship.throughput, grid.fixed.gpu.throughput[:, 0]
    ship_ratio, by_ratio = (rate[..., -1, 0] / rate[..., 0, 0] for rate in rates)
    ship_context, by_context = (rate[..., -1, 0] / rate[..., -1, -1] for rate in rates)
    ratios, contexts = grid.ratios, grid.contexts
    return [
        Judged(
            "16Ki falls at low P:D",
            "SGB200-16Ki falls steeply at low P:D",
            by_ratio >= STEEP,
            alone,
            f"From P:D {ratios[-1]:g} to {ratios[0]:g} at {contexts[0] / 1024:g}Ki it falls {_range(by_ratio)}, SHIP "
            f"{_range(ship_ratio)} (steep: {STEEP:g} and more).",
        ),
        Judged(
            "16Ki falls at long context",
            "SGB200-16Ki falls steeply at long context",
            by_context >= STEEP,
            alone,
            f"From {contexts[0] / 1024:g}Ki to {contexts[-1] / 1024:g}Ki at P:D {ratios[-1]:g} it falls "
            f"{_range(by_context)}, SHIP {_range(ship_context)}.",
        ),
        Judged(
            "SHIP falls more with context",
            "Against context SHIP falls further than SGB200-16Ki",
            np.greater(*_onto(ship_context, by_context)),
            grid.axes,
        ),
    ]


def _flat(grid: Grid) -> list[Judged]:
    """(2) Whether the pipeline is flat at high P:D and short context."""
    spread = _swing(grid.short.ship.throughput)
    return [
        Judged(
            "SHIP flat at P:D >= 8",
            "SHIP's throughput is flat for P:D of 8 and more and contexts to 4Ki",
            spread <= FLAT,
            grid.free.ship,
            f"Highest over lowest is {_range(spread)} (flat: within {FLAT - 1:.0%}).",
        )
    ]


def _output_speed(grid: Grid) -> list[Judged]:
    """(3) Tokens a second that a user sees."""
    speeds, theirs = (1 / value for value in grid.fixed.wide("tpot"))
    best = np.maximum(theirs, 1 / grid.fixed.wide("tpot", 1)[1])
    swing = [_swing(values) for values in grid.fixed.wide("tpot")]
    return [
        Judged(
            "ot/s/u higher",
            "SHIP's ot/s/u is higher at every P:D and context",
            np.all(speeds > best, axis=(-1, -2)),
            grid.axes,
            f"The ratio runs from {np.min(speeds / best):.2g} to {np.max(speeds / best):.2g}.",
        ),
        Judged(
            "ot/s/u flatter",
            "SHIP's ot/s/u is flatter over P:D and context than SGB200-16Ki's",
            swing[0] < swing[1],
            grid.axes,
            f"Highest over lowest: SHIP {_range(swing[0])}, SGB200-16Ki {_range(swing[1])}.",
        ),
    ]


def _corner(grid: Grid) -> list[Judged]:
    """(4) The corner of low P:D and long context."""
    own = grid.fixed.ship.throughput
    corner = own[..., 0, -1] / own.max(axis=(-1, -2))
    ship, large = (values[..., 0, -1] for values in grid.fixed.wide("throughput"))
    return [
        Judged(
            "SHIP weak in the corner",
            "SHIP is weak at low P:D with long context (share of its own peak)",
            corner <= WEAK,
            grid.free.ship,
            f"It keeps {_percent(corner)} of its peak (weak: at most {WEAK:.0%}).",
        ),
        Judged(
            "SGB200 higher in the corner",
            "There SGB200-16Ki has the higher throughput",
            np.stack([large * box > ship for box in grid.boxes], -1),
            grid.scaled,
        ),
    ]


_WAITS = {"KV wait": ["inside TTFT", "outside"]}


def _input_speed(grid: Grid) -> list[Judged]:
    """(5) Input speed on the reasoning sample, by both readings of it/s/u."""
    both_ways = [matrix.mixture_speeds(grid.mixed.ship, inside) for inside in (True, False)]
    curves = []
    for which, words in ((0, "mean of P/TTFT"), (1, "sum of P over sum of TTFT")):
        speeds = np.stack([pair[which] for pair in both_ways], axis=-1)
        other, reasoning = speeds[..., 0, :], speeds[..., 1, :]
        curves.append(
            Judged(
                f"it/s/u falls: {words}",
                f"SHIP's it/s/u is lower on the reasoning sample than on the other ({words})",
                reasoning < other,
                {**grid.free.ship, "P:D": grid.of_samples["P:D"], **_WAITS},
                f"Reasoning over non-reasoning: {_range(reasoning / other)}.",
            )
        )
    return curves


def _first_token(grid: Grid) -> list[Judged]:
    """(6) Time to first token on the samples."""
    below = [
        np.less(*_onto(grid.mixed.ship.first_token(inside), grid.mixed.gpu.first_token(inside)[:, 0]))
        for inside in (True, False)
    ]
    return [
        Judged(
            "TTFT lower on samples",
            "SHIP's mean TTFT on the samples is below that of SGB200-16Ki",
            np.stack(below, -1),
            {**grid.axes, **grid.of_samples, **_WAITS},
        )
    ]


def _drops(grid: Grid) -> list[Judged]:
    """(7) The samples against each machine's own peak, against fixed traffic of their means, and as they are."""
    everywhere = {**grid.axes, **grid.of_samples}

    def both(on: Both) -> tuple[Any, Any]:
        return on.ship.throughput, on.gpu.throughput[:, 0]

    peaks = [rate.max(axis=(-1, -2))[..., None, None] for rate in both(grid.fixed)]
    kept = [rate / peak for rate, peak in zip(both(grid.mixed), peaks, strict=True)]
    of_means = [rate / peak for rate, peak in zip(both(grid.means), peaks, strict=True)]
    tails = _onto(*(rate / mean for rate, mean in zip(both(grid.mixed), both(grid.means), strict=True)))
    ship, large = grid.mixed.wide("throughput")
    return [
        Judged(
            "samples: drop smaller",
            "On the samples SHIP drops less from its own peak than SGB200-16Ki",
            np.greater(*_onto(*kept)),
            everywhere,
            f"SHIP keeps {_percent(kept[0])}, SGB200-16Ki {_percent(kept[1])}.",
        ),
        Judged(
            "drop from equal means",
            "Against fixed traffic of equal mean SHIP drops less too",
            np.greater(*tails),
            everywhere,
            f"The tail of the lengths costs SHIP {_percent(1 - tails[0])} and SGB200-16Ki {_percent(1 - tails[1])}; "
            f"the fixed traffic itself reaches {_percent(of_means[0])} and {_percent(of_means[1])} of the peaks.",
        ),
        Judged(
            "samples: SHIP higher",
            "On the samples SHIP's throughput is the higher one",
            np.stack([ship > large * box for box in grid.boxes], -1),
            {**everywhere, "scale": grid.scaled["scale"]},
        ),
    ]


def _one_scale(grid: Grid) -> list[Judged]:
    """Return whether some number of boxes makes (1) and (7) hold together."""
    ship, large = grid.fixed.wide("throughput")
    lowest = grid.near(ship / large).max(axis=(-1, -2))[..., None, None]
    on_samples, theirs = grid.mixed.wide("throughput")
    highest = on_samples / theirs
    return [
        Judged(
            "one scale fits both",
            "Some number of boxes makes SGB200-16Ki lead at high P:D and SHIP lead on the samples",
            lowest < highest,
            {**grid.axes, **grid.of_samples},
            f"SGB200 leads from {_range(lowest, ' boxes')} on, SHIP on the samples up to {_range(highest, ' boxes')}; "
            f"equal power is {grid.boxes[1]:.1f}.",
        )
    ]


def shapes(
    machines: Machines,
    free: matrix.Free,
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[float] = CONTEXTS,
    served: tuple[Both, Both] | None = None,
) -> list[Judged]:
    """Return the paper's claims about the matrix as truth values over the free values."""
    fixed, mixed = served or on_loads(machines, free, ratios, contexts)
    means = serve(machines, free, matrix.mean_load(ratios))
    short = serve(machines, free, matrix.fixed_load([8, 16, 32], [1024, 2048, 4096]))
    grid = Grid(free, ratios, contexts, fixed, mixed, means, short, (1.0, machines.scale()))
    judges = (_who_leads, _who_falls, _flat, _output_speed, _corner, _input_speed, _first_token, _drops, _one_scale)
    return [judged for judge in judges for judged in judge(grid)]

"""Machines that the paper does not compare: GB200 NVL72 and LPX, and where they cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import power
from perfmodel.reports.ship.traffic import over_ratio, panel, traffic_rows
from perfmodel.specs.types import Scenario

#: Free values held where the machines of this file are drawn.
_BARE = matrix.Free(
    beats=("load",),
    kv_bits=(16,),
    budgets=(16,),
    overheads=((0.0, 0.0), (47.0, 0.0)),
    gpu_budgets=(16384,),
    gpu_users=(64,),
    arrivals=("steady",),
)
#: What is compared: one machine over another by a column, and that in words.
_PAIRS = (
    ("LPU, bare", "dgx-b200", "kilowatt", "tokens a kW"),
    ("LPU, 47 us a layer", "dgx-b200", "kilowatt", "tokens a kW"),
    ("LPU, bare", "gb200-nvl72", "kilowatt", "tokens a kW"),
    ("LPX, bare", "LPU, bare", "chip", "tokens a chip"),
    ("LPX, bare", "gb200-nvl72", "chip", "tokens a chip"),
    ("LPX, 47 us a layer", "gb200-nvl72", "speed", "ot/s/u"),
)


@dataclass(frozen=True)
class Served:
    """What a machine does for all traffic: input and output tokens [1/s] and time a token [s] by P:D and context."""

    name: str
    scenario: Scenario
    rate: Any
    tpot: Any


def _pipelines(
    name: str, model: str, on: str, users: float, load: matrix.Load, precision: str, changes: Sequence[str] = ()
) -> list[Served]:
    """Return a pipeline bare, and as it loses 47 us a layer."""
    service = matrix.pipeline_service(model, on, users, _BARE, load, precision, changes)
    scenario = resolve(model, on, Options(precision=precision), changes)
    return [
        Served(f"{name}, {which}", scenario, service.throughput[0, 0, 0, at], service.tpot[0, 0, 0, at])
        for at, which in enumerate(("bare", "47 us a layer"))
    ]


def _box(model: str, on: str, load: matrix.Load, precision: str) -> Served:
    service = matrix.gpu_service(model, on, _BARE, load, precision)
    scenario = resolve(model, on, Options(precision=precision))
    return Served(scenario.system.name, scenario, service.throughput[0, 0, 0, 0], service.tpot[0, 0, 0, 0])


def _machines_frame(served: Sequence[Served], ratios: Sequence[float], contexts: Sequence[float]) -> pd.DataFrame:
    """Return tokens a chip and a kW, and the speed of a user, of each machine by P:D and context."""
    rows = []
    for machine in served:
        chips = float(machine.scenario.deployment.tp * machine.scenario.deployment.pp)
        values = {
            "chips": np.full(machine.rate.shape, chips),
            "chip": machine.rate / chips,
            "kilowatt": machine.rate / power(machine.scenario) * 1e3,
            "speed": 1 / machine.tpot,
        }
        rows += traffic_rows(ratios, list(map(panel, contexts)), values, machine=machine.name)
    return pd.DataFrame(rows)


def _crossing(ratio: Any) -> str:
    """Return where a ratio over P:D passes 1."""
    above = ratio > 1
    if above.all():
        return f"always ahead, {ratio.min():.2g} to {ratio.max():.2g} times"
    if not above.any():
        return f"never ahead, {ratio.min():.2g} to {ratio.max():.2g} times"
    at = [float(value) for value in ratio.index]
    turns = []
    for (low, high), (pair, other) in zip(pairwise(at), pairwise(ratio), strict=True):
        if (pair > 1) != (other > 1):
            place = np.exp(
                np.interp(
                    0.0,
                    sorted((np.log(pair), np.log(other))),
                    np.log([low, high]) if pair < other else np.log([high, low]),
                )
            )
            turns.append(f"{'ahead' if other > 1 else 'behind'} from P:D {place:.2g} on")
    return ", ".join(turns)


def _crossover_rows(frame: pd.DataFrame) -> list[Sequence[str]]:
    """Return where over P:D one machine passes another, context by context."""
    rows: list[Sequence[str]] = []
    for context, part in frame.groupby("context", sort=False):
        for one, other, key, what in _PAIRS:
            sides = [part[part.machine == name].set_index("ratio")[key] for name in (one, other)]
            if len(sides[0]) and len(sides[1]):
                rows.append((str(context), f"{one} over {other}", what, _crossing(sides[0] / sides[1])))
    return rows


def _lpx_over_lpu(frame: pd.DataFrame, shortest: str) -> tuple[float, float]:
    """Return the least and most tokens of a bare LPX chip over an LPU's at P:D below 8 beyond the shortest context."""
    corner = frame[(frame.ratio < 8) & (frame.context != shortest)]
    later, today = (corner[corner.machine == name].chip.to_numpy() for name in ("LPX, bare", "LPU, bare"))
    return (later / today).min(), (later / today).max()


def _machines_charts(frame: pd.DataFrame, caption: str) -> tuple[Chart, ...]:
    """Return throughput a chip and a kW, and speed, over P:D."""
    columns = {
        "machine": "machine",
        "ratio": "P:D",
        "context": "context",
        "chips": "chips",
        "chip": "input + output a chip [tokens/s]",
        "kilowatt": "input + output a kW [tokens/s]",
        "speed": "ot/s/u [tokens/s]",
    }
    return tuple(
        over_ratio(f"ship-other-machines-{key}", title, frame[frame[key].notna()], columns, key, "machine", caption)
        for key, title in (("chip", "Throughput a chip"), ("kilowatt", "Throughput a kW"), ("speed", "ot/s/u"))
    )


@figure("ship-other-machines")
def other_machines(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    users: float = 380,
    gpus: Sequence[str] = ("dgx-b200:tp=8,engine=sglang", "gb200-nvl72:tp=8,engine=sglang"),
    lpx: str = "groq3-lpx:tp=8,pp=95",
    lpx_16_bit_rate: str = "600 TFLOP/s",
    lpx_hop: str = "300 ns",
    precision: str = "fp8",
    ratios: Sequence[float] = (0.125, 0.5, 1, 2, 4, 8, 32),
    contexts: Sequence[float] = (2048, 32768, 131072),
) -> Figure:
    """GB200 NVL72 as a third machine, and LPX where SHIP is weak: P:D below 8 and contexts beyond 32Ki."""
    assumed = [f"system.rates.fp16={lpx_16_bit_rate}", f"system.link.hop_latency={lpx_hop}"]
    load = matrix.fixed_load(ratios, contexts)
    served = [
        *_pipelines("LPU", model, ship, users, load, precision),
        *(_box(model, on, load, precision) for on in gpus),
        *_pipelines("LPX", model, lpx, users, load, precision, assumed),
    ]
    frame = _machines_frame(served, ratios, contexts)
    least, most = _lpx_over_lpu(frame, panel(contexts[0]))
    caption = (
        f"{model}; stages of 16 tokens, cache of 16 bits, SGLang with 64 users in 8 GPUs. LPX: 16-bit rate "
        f"{lpx_16_bit_rate} and hop {lpx_hop} are assumptions of ours, neither is published"
    )
    return Figure(
        "Other machines, and where they cross",
        f"At P:D below 8 and contexts from 32Ki, a bare LPX chip serves {least:.1f} to {most:.1f} times the tokens of "
        "an LPU: twice the memory a chip keeps more requests in flight. The table says where machines cross.",
        charts=_machines_charts(frame, caption),
        tables=(Table("Crossovers over P:D", ("traffic", "machines", "by", "where"), _crossover_rows(frame)),),
        notes=(
            "Power of LPX is not published, so it has no value a kW. That of GB200 NVL72 is an estimate (1,667 W a "
            "GPU, 833 to 3,333 W).",
            "GB200 NVL72 stands here as replicas of 8 GPUs; expert parallelism over the rack is not compared.",
        ),
    )

"""What each means of the scheduler buys, one switch at a time: the paper names them and gives no gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import memory, serving
from perfmodel.errors import UserError
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import CONTEXTS, RATIOS
from perfmodel.serving.fit import fit
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse

#: Switches of the machine by what people call them.
SWITCHES = {
    "dynamic chunked prefill": "dynamic_chunks",
    "fused context and decode batch": "fused_batches",
    "capacity-filling prefill": "fill_beats",
    "decode priority": "decode_first",
    "per-token experts": "per_token_experts",
}


def _served(scenario: Scenario, users: float, load: matrix.Load, held: Any) -> dict[str, Any]:
    """Return throughput, ot/s/u and time to first token with so many tokens of cache held by a request."""
    cap = fit(scenario, tokens=held).cap
    if not np.any(np.greater_equal(cap, 1)):
        raise UserError(f"no request of {scenario.model.name} fits {scenario.system.name} with this plan")
    running = np.maximum(1.0, memory.running_requests(offered=users, cap=cap))
    loop = matrix.closed_loop(scenario, replace(load, bias=1.0), running)
    tpot = loop.tpot
    found = {
        "throughput": loop.rate * (load.prompt + load.output),
        "speed": 1 / tpot,
        "ttft": running / loop.rate - (load.output - 1) * tpot,
    }
    return {name: serving.where_it_fits(cap=cap, value=value) for name, value in found.items()}


@figure("ship-scheduling")
def scheduling(
    model: str = "qwen3-235b-a22b",
    on: str = "lpu-v1:plan=ship-16x95",
    users: float = 380,
    precision: str = "fp8",
    stage_budget: float = 16,
    overhead: str = "0 s",
    pages: Sequence[float] = (128, 512),
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[float] = CONTEXTS,
) -> Figure:
    """Gain of each scheduling switch, on over off, per P:D and context."""
    base = resolve(model, on, Options(precision=precision))
    base = put(base, "system.efficiency.token_budget", stage_budget)
    base = put(base, "system.efficiency.layer_overhead", parse(overhead, "s"))
    load = matrix.fixed_load(ratios, contexts)
    whole = load.prompt + load.output
    reference = _served(base, users, load, whole)
    gains: dict[str, dict[str, Any]] = {}
    for name, switch in SWITCHES.items():
        off = _served(put(base, f"system.efficiency.{switch}", False), users, load, whole)
        gains[name] = {key: reference[key] / off[key] for key in ("throughput", "speed", "ttft")}
    for page in pages:
        # A request holds what it has written and half a page on average, in place of its full length.
        held = memory.paged_tokens(prompt=load.prompt, output=load.output, page=page)
        found = _served(base, users, load, np.minimum(held, whole))
        name = f"paged KV, {page:g} tokens"
        gains[name] = {key: found[key] / reference[key] for key in ("throughput", "speed", "ttft")}
    rows = []
    for name, by in gains.items():
        wide = {key: np.broadcast_to(values, whole.shape) for key, values in by.items()}
        for i, ratio in enumerate(ratios):
            for j, context in enumerate(contexts):
                rows.append(
                    {
                        "switch": name,
                        "ratio": float(ratio),
                        "context": f"context {context / 1024:g}Ki",
                        **{key: float(values[i, j]) for key, values in wide.items()},
                    }
                )
    frame = pd.DataFrame(rows)
    columns = {
        "switch": "switch",
        "ratio": "P:D",
        "context": "context",
        "throughput": "throughput, on over off",
        "speed": "ot/s/u, on over off",
        "ttft": "TTFT, on over off",
    }
    metrics = ("throughput", "speed", "ttft")
    table = [
        (str(name), *(f"{part[key].min():.2f} to {part[key].max():.2f}" for key in metrics))
        for name, part in frame.groupby("switch", sort=False)
    ]
    best = frame.sort_values("throughput").iloc[-1]
    charts = tuple(
        Chart(
            f"ship-scheduling-{key}",
            f"{columns[key]}, by switch",
            frame,
            columns,
            "ratio",
            key,
            (Layer("line"),),
            color="switch",
            facet="context",
            log="xy",
            caption=f"{model} on {on}, {users:g} users, stages of {stage_budget:g} tokens, stage overhead {overhead}",
        )
        for key in ("throughput", "speed")
    )
    return Figure(
        "Scheduling, one switch each",
        f"The largest gain in throughput is that of {best.switch}: {best.throughput:.2f} times at P:D {best.ratio:g} "
        f"and "
        f"{best.context}. Each switch is turned off alone, with the others on.",
        charts=charts,
        tables=(Table("Range over P:D and context, on over off", ("switch", "throughput", "ot/s/u", "TTFT"), table),),
        notes=(
            "Off means: chunks sized for the largest micro-batch; beats of decode or of prefill; one prompt a beat; "
            "prompts "
            "before tokens; tokens gathered by expert, each expert of a micro-batch read once; the whole length of a "
            "request "
            "reserved at its start.",
            "Per-token experts cost throughput wherever a beat picks more experts than there are: with 128 experts and "
            "8 a "
            "token from 16 tokens a beat on. They need no gathering, which a static program cannot schedule.",
            "A page wastes half of itself on average; the rest of the gain is that tokens not yet written hold no "
            "memory.",
        ),
    )

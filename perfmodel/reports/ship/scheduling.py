"""What each means of the scheduler buys, one switch at a time: the paper names them and gives no gains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import memory, paging, serving
from perfmodel.errors import UserError
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import CONTEXTS, RATIOS
from perfmodel.reports.ship.samples import SAMPLES
from perfmodel.reports.ship.traffic import over_ratio, panel, traffic_rows
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
    served = {
        "throughput": loop.rate * (load.prompt + load.output),
        "speed": 1 / tpot,
        "ttft": running / loop.rate - (load.output - 1) * tpot,
    }
    return {name: serving.where_it_fits(cap=cap, value=value) for name, value in served.items()}


_METRICS = ("throughput", "speed", "ttft")


def _gains(
    base: Scenario, users: float, load: matrix.Load, pages: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each switch gains, on over off, and what pages of the cache do over whole lengths."""
    whole = load.prompt + load.output
    reference = _served(base, users, load, whole)
    for name, switch in SWITCHES.items():
        off = _served(put(base, f"system.efficiency.{switch}", False), users, load, whole)
        yield name, {key: reference[key] / off[key] for key in _METRICS}
    for page in pages:
        # A request holds what it has written and half a page on average, in place of its full length.
        held = paging.paged_tokens(prompt=load.prompt, output=load.output, page=page)
        found = _served(base, users, load, np.minimum(held, whole))
        yield f"paged KV, {page:g} tokens", {key: found[key] / reference[key] for key in _METRICS}


def _gains_frame(
    base: Scenario, users: float, ratios: Sequence[float], contexts: Sequence[float], pages: Sequence[float]
) -> pd.DataFrame:
    """Return the gain of each switch by P:D and context."""
    load = matrix.fixed_load(ratios, contexts)
    panels = list(map(panel, contexts))
    rows = []
    for name, by in _gains(base, users, load, pages):
        wide = {key: np.broadcast_to(values, (load.prompt + load.output).shape) for key, values in by.items()}
        rows += traffic_rows(ratios, panels, wide, switch=name)
    return pd.DataFrame(rows)


def _gains_charts(gains: pd.DataFrame, caption: str) -> tuple[Chart, ...]:
    """Return the gain in throughput and in speed over P:D."""
    columns = {
        "switch": "switch",
        "ratio": "P:D",
        "context": "context",
        "throughput": "throughput, on over off",
        "speed": "ot/s/u, on over off",
        "ttft": "TTFT, on over off",
    }
    return tuple(
        over_ratio(f"ship-scheduling-{key}", f"{columns[key]}, by switch", gains, columns, key, "switch", caption)
        for key in ("throughput", "speed")
    )


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
    gains = _gains_frame(base, users, ratios, contexts, pages)
    best = gains.sort_values("throughput").iloc[-1]
    ranges = [
        (str(name), *(f"{part[key].min():.2f} to {part[key].max():.2f}" for key in _METRICS))
        for name, part in gains.groupby("switch", sort=False)
    ]
    return Figure(
        "Scheduling, one switch each",
        f"The largest gain in throughput is that of {best.switch}: {best.throughput:.2f} times at P:D {best.ratio:g} "
        f"and {best.context}. Each switch is turned off alone, with the others on.",
        charts=_gains_charts(
            gains, f"{model} on {on}, {users:g} users, stages of {stage_budget:g} tokens, stage overhead {overhead}"
        ),
        tables=(Table("Range over P:D and context, on over off", ("switch", "throughput", "ot/s/u", "TTFT"), ranges),),
        notes=(
            "Off means: chunks sized for the largest micro-batch; beats of decode or of prefill; one prompt a beat; "
            "prompts before tokens; tokens gathered by expert, each expert of a micro-batch read once; the whole "
            "length of a request reserved at its start.",
            "Per-token experts cost throughput wherever a beat picks more experts than there are: with 128 experts and "
            "8 a token from 16 tokens a beat on. They need no gathering, which a static program cannot schedule.",
            "A page wastes half of itself on average; the rest of the gain is that tokens not yet written hold no "
            "memory.",
        ),
    )


# --- adaptive budget ---------------------------------------------------------------------------------------------


def _budget_frame(
    served: matrix.Service, load: matrix.Load, budgets: Sequence[float], ratios: Sequence[float], stages: float
) -> pd.DataFrame:
    """Return the reasoning sample under fixed budgets and under one that follows its P:D."""
    sample = [one.name for one in SAMPLES].index("reasoning")
    batch = float(np.ceil(np.max(served.running[0, 0, 0, 0, :, sample]) / stages))
    fixed = [(f"fixed, {budget:g} tokens", at) for at, budget in enumerate(budgets) if budget in (16, 36, 128)]
    rows = []
    for i, ratio in enumerate(ratios):
        # The budget that balances both kinds of tokens, of those that a program is compiled for.
        chosen = int(np.argmin(np.abs(np.log(np.array(budgets) / (batch * (1 + ratio))))))
        for name, at in (*fixed, ("adaptive", chosen)):
            place = (0, 0, at, 0, i, sample)
            rows.append(
                {
                    "rule": name,
                    "ratio": float(ratio),
                    "budget": float(budgets[at]),
                    "throughput": float(served.throughput[place]),
                    "speed": float(1 / served.tpot[place]),
                    "input": float(load.prompt[i, sample] / float(served.first_token(True)[place])),
                }
            )
    return pd.DataFrame(rows)


def _budget_charts(frame: pd.DataFrame, caption: str) -> tuple[Chart, ...]:
    """Return throughput and speed under each rule over the P:D of the sample."""
    columns = {
        "rule": "stage budget",
        "ratio": "P:D of the sample",
        "budget": "tokens a beat",
        "throughput": "input + output [tokens/s]",
        "speed": "ot/s/u [tokens/s]",
        "input": "it/s/u [tokens/s]",
    }
    return tuple(
        over_ratio(f"ship-adaptive-{key}", f"Reasoning sample, {columns[key]}", frame, columns, key, "rule", caption)
        for key in ("throughput", "speed")
    )


@figure("ship-adaptive-budget")
def adaptive_budget(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    users: float = 380,
    precision: str = "fp8",
    ratios: Sequence[float] = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32),
    overhead_us: float = 0,
) -> Figure:
    """A stage budget that follows the mix of decode and prefill, on the reasoning sample."""
    free = matrix.Free(
        beats=("load",), kv_bits=(16,), budgets=(8, 16, 24, 36, 64, 128), overheads=((overhead_us, 0.0),)
    )
    load = matrix.sample_load(ratios)
    served = matrix.pipeline_service(model, ship, users, free, load, precision)
    stages = float(resolve(model, ship, Options(precision=precision)).deployment.pp)
    frame = _budget_frame(served, load, free.budgets, ratios, stages)
    rules = frame.pivot_table(index="ratio", columns="rule", values="throughput")
    kept = rules["adaptive"] / rules.drop(columns="adaptive").max(axis=1)
    speeds = frame.pivot_table(index="ratio", columns="rule", values="speed")
    faster = speeds["adaptive"] / speeds["fixed, 128 tokens"]
    return Figure(
        "An adaptive budget on the reasoning sample",
        f"Setting the budget to batch x (1 + P:D) keeps {kept.min():.0%} to {kept.max():.0%} of the best fixed "
        f"budget's throughput and decodes {faster.min():.2f} to {faster.max():.2f} times as fast as a fixed budget of "
        "128 tokens.",
        charts=_budget_charts(
            frame,
            f"{users:g} users offered, cache of 16 bits, stage overhead {overhead_us:g} us; the split of the sample "
            "is not published. The rule takes the nearest of the budgets that were compiled",
        ),
        notes=("The rule knows the mix of tokens; how fast it must follow is not modelled.",),
    )

"""Memory tiers of a gpt-oss-120B instance (Table 2), and what a prefix cache over them saves (Figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from perfmodel.equations import caching
from perfmodel.equations import memory as equations
from perfmodel.errors import UserError
from perfmodel.evidence.traces import BLOCK_TOKENS
from perfmodel.machines import kv_cache, sram_pipeline
from perfmodel.machines.base import Load, machine_of
from perfmodel.numerics import total
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship.data import only_known, table
from perfmodel.reports.ship.workload import TITLES
from perfmodel.specs.paths import put
from perfmodel.specs.types import PRECISION_BYTES, Scenario
from perfmodel.specs.units import parse
from perfmodel.specs.weights import total_parameters

#: SHIP, Table 2, and what the summary says of the cache pool.
_SRAM_LEFT, _SRAM_RATE, _DRAM_RAW, _DRAM_NET, _DRAM_RATE = 69.7e9, 10616e12, 72e12, 51e12, 18.4e12


def _instance(model: str, on: str, nodes: float) -> tuple[Scenario, float]:
    scenario = resolve(model, f"{on}:plan=tp16-layers", Options())
    return scenario, nodes * float(scenario.system.chips_per_node)


@figure("ship-tiers")
def tiers(model: str = "gpt-oss-120b", on: str = "lpu-v1", nodes: float = 72) -> Figure:
    """Memory tiers of one instance (Table 2)."""
    scenario, chips = _instance(model, on, nodes)
    sram, ddr = scenario.system.memory.sram, scenario.system.memory.ddr
    assert sram is not None
    assert ddr is not None
    parameters = float(total_parameters(scenario.model))
    capacity = float(equations.partition_capacity(chips=chips, capacity=sram.capacity))
    weights = parameters * PRECISION_BYTES[scenario.deployment.precision]
    per_token = float(kv_cache.kv_bytes_per_token(scenario.model, "bf16"))
    numbers = (
        Number(
            "SRAM left for the cache",
            (capacity - weights) / 1e9,
            "GB",
            _SRAM_LEFT / 1e9,
            "reconstructed",
            source="SHIP, table 2",
            note=(
                f"{capacity / 1e9:.1f} GB less {weights / 1e9:.1f} GB of weights, all in "
                f"{scenario.deployment.precision}"
            ),
        ),
        Number(
            "SRAM bandwidth",
            chips * float(sram.bandwidth) / 1e12,
            "TB/s",
            _SRAM_RATE / 1e12,
            "reconstructed",
            True,
            "SHIP, table 2",
            "the chip's 18.43 TB/s is this number over 576",
        ),
        Number(
            "host memory, raw",
            chips * float(ddr.capacity) / 1e12,
            "TB",
            _DRAM_RAW / 1e12,
            "reconstructed",
            True,
            "third-party reading of SHIP, table 2",
        ),
        Number(
            "host memory as a cache pool",
            float("nan"),
            "TB",
            _DRAM_NET / 1e12,
            source="summary of SHIP",
            note="71 % of the raw size; why is not published, so nothing is computed",
        ),
        Number(
            "host memory bandwidth",
            chips * float(ddr.bandwidth) / 1e12,
            "TB/s",
            _DRAM_RATE / 1e12,
            "reconstructed",
            True,
            "SHIP, table 2",
            "one PCIe Gen4 x16 a chip; equal digits to the SRAM rate of one chip by chance",
        ),
    )
    frame = pd.DataFrame(
        [
            {
                "tier": "SRAM after weights",
                "bytes": (capacity - weights) / 1e9,
                "rate": chips * float(sram.bandwidth) / 1e12,
            },
            {
                "tier": "host DRAM, raw",
                "bytes": chips * float(ddr.capacity) / 1e9,
                "rate": chips * float(ddr.bandwidth) / 1e12,
            },
            {
                "tier": "host DRAM, cache pool as printed",
                "bytes": _DRAM_NET / 1e9,
                "rate": chips * float(ddr.bandwidth) / 1e12,
            },
        ]
    ).assign(
        tokens=lambda rows: rows.bytes * 1e9 / per_token / 1e6,
        tier=lambda rows: [f"{tier}: {size:,.0f} GB" for tier, size in zip(rows.tier, rows.bytes, strict=True)],
    )
    return Figure(
        "Memory tiers",
        f"{nodes:g} nodes leave {(capacity - weights) / 1e9:.1f} GB of SRAM beside the weights of {model} at "
        f"{chips * float(sram.bandwidth) / 1e12:,.0f} TB/s, and 1,000 times as much host memory at "
        f"{chips * float(ddr.bandwidth) / 1e12:.1f} TB/s.",
        charts=(
            Chart(
                "ship-tiers",
                f"Capacity and bandwidth of the tiers of {nodes:g} nodes",
                frame,
                {
                    "tier": "tier",
                    "bytes": "capacity [GB]",
                    "rate": "bandwidth [TB/s]",
                    "tokens": "KV cache [million tokens]",
                },
                "bytes",
                "rate",
                (Layer("point"),),
                color="tier",
                log="xy",
                caption="SHIP, table 2",
                kind="reconstructed",
            ),
        ),
        numbers=numbers,
    )


# --- prefix cache ------------------------------------------------------------------------------------------------


def che_hit_rates(references: Any, blocks: Any, capacities: Any) -> Any:
    """Return the hit rate of an LRU cache by Che's approximation, from how often each block is asked for.

    Parameters
    ----------
    references, blocks : array
        How often a block is asked for, and how many such blocks there are.
    capacities : array
        Blocks that the cache holds.

    Notes
    -----
    The first look-up of a block is a miss whatever the cache, so (k - 1) of k look-ups can hit.  Requests are taken as
    independent of each other, which is what a trace with conversations is not.
    """
    asked = references * blocks
    rates = references / asked.sum()
    found = []
    for capacity in capacities:
        if capacity >= blocks.sum():
            time = np.inf
        else:
            time = brentq(
                lambda log_time, size=capacity: (
                    float((blocks * caching.renewed_hit_rate(rate=rates, time=np.exp(log_time))).sum()) - size
                ),
                -20.0,
                60.0,
            )
            time = np.exp(time)
        held = caching.renewed_hit_rate(rate=rates, time=time)
        found.append(float((blocks * (references - 1) * held).sum() / asked.sum()))
    return np.array(found)


def first_tokens(scenario: Scenario, context: Any, new: float, output: float) -> dict[str, Any]:
    """Return TTFT by where a prefix is found: in SRAM, in host memory, or nowhere [s].

    Parameters
    ----------
    scenario : Scenario
    context : array
        Prompt tokens.
    new : float
        Of them those behind the prefix.
    output : float
        Output tokens.
    """
    ddr = scenario.system.memory.ddr
    assert ddr is not None
    chips = scenario.deployment.tp * scenario.deployment.pp
    alone = Load(np.float64(1.0), context, output)
    miss = machine_of(scenario.system).closed_loop(scenario, alone).prefill.time
    hit = sram_pipeline.chunked(scenario, others=0.0, prompt=new, context=context)
    # What follows the prefix attends to all of it.
    near = sram_pipeline.prompt_step(scenario, hit).time
    held = total_cache(scenario, context - new)
    far = near + caching.reload_time(size=held, bandwidth=chips * ddr.bandwidth)
    return {"SRAM hit": near, "DRAM hit over PCIe": far, "miss": miss}


def total_cache(scenario: Scenario, tokens: Any) -> Any:
    """Return the cache of a prefix in all layers [B]."""
    return total(run.count * kv_cache.request_cache(scenario, run, tokens) for run in scenario.model.layers)


@figure("ship-prefix-cache")
def prefix_cache(
    model: str = "gpt-oss-120b",
    on: str = "lpu-v1",
    nodes: float = 72,
    traces: Sequence[str] = ("mooncake_conversation_trace", "mooncake_synthetic_trace"),
    overhead: str = "47 us",
) -> Figure:
    """Hit rate against capacity, exact and by Che's formula, time to live, isolation, and TTFT saved (Figure 7)."""
    only_known(traces, set(table("traces/reuse.csv").trace))
    scenario, chips = _instance(model, on, nodes)
    sram, ddr = scenario.system.memory.sram, scenario.system.memory.ddr
    assert sram is not None
    assert ddr is not None
    scenario = put(scenario, "system.efficiency.layer_overhead", parse(overhead, "s"))
    parameters = float(total_parameters(scenario.model))
    room = chips * float(sram.capacity) - parameters * PRECISION_BYTES[scenario.deployment.precision]
    if room <= 0:
        raise UserError(f"{model} leaves no SRAM of {nodes:g} nodes for a cache; more nodes would")
    block = float(total_cache(scenario, 4096.0 + BLOCK_TOKENS) - total_cache(scenario, 4096.0))
    near_blocks, far_blocks = room / block, _DRAM_NET / block
    rows: list[dict[str, Any]] = []
    numbers, gaps = [], []
    printed = {"mooncake_conversation_trace": 0.366, "mooncake_synthetic_trace": 0.64}
    for name in traces:
        curve = table("traces/reuse.csv").query("trace == @name")
        asked = table("traces/popularity.csv").query("trace == @name")
        che = che_hit_rates(
            asked.references.to_numpy(dtype=float), asked.blocks.to_numpy(dtype=float), curve.capacity_blocks.to_numpy()
        )
        for how, values in (("exact LRU", curve.hit_rate.to_numpy()), ("Che", che)):
            rows += [
                {
                    "trace": TITLES[name],
                    "how": how,
                    "blocks": size,
                    "gb": size * block / 1e9,
                    "hit": value,
                    "series": f"{TITLES[name]}, {how}",
                }
                for size, value in zip(curve.capacity_blocks, values, strict=True)
            ]
        worst = int(np.argmax(np.abs(che - curve.hit_rate.to_numpy())))
        gaps.append(
            f"{TITLES[name]}: at most {abs(che - curve.hit_rate.to_numpy())[worst]:.0%} points off, at "
            f"{curve.capacity_blocks.iloc[worst]:,} blocks"
        )
        numbers.append(
            Number(
                f"hits of a cache without limit, {TITLES[name]}",
                float(curve.hit_rate.max()),
                "%",
                printed.get(name),
                "reconstructed",
                source="computed from the trace with 512-token blocks",
            )
        )
    reuse = pd.DataFrame(rows)
    held = pd.DataFrame({"gb": [room / 1e9], "series": "SRAM beside the weights"})
    band = pd.DataFrame(
        {"gb": [reuse.gb.min(), reuse.gb.max()], "low": 0.5, "high": 0.75, "series": "published, 7 days"}
    )
    idle = table("traces/idle.csv").query("trace in @traces").assign(trace=lambda frame: frame.trace.map(TITLES))
    alone = (
        table("traces/isolation.csv")
        .query("trace in @traces")
        .assign(series=lambda frame: frame.trace.map(TITLES) + ", " + frame.split)
    )
    context = np.geomspace(1024, 131072, 15)
    found = first_tokens(scenario, context, 256.0, 256.0)
    waits = pd.DataFrame(
        [
            {"kind_of_hit": kind, "context": size, "ms": float(value) * 1e3}
            for kind, values in found.items()
            for size, value in zip(context, np.broadcast_to(values, context.shape), strict=True)
        ]
    )
    saved = []
    for name in traces:
        curve = table("traces/reuse.csv").query("trace == @name")
        summary = table("traces/summary.csv").set_index("trace").loc[name]
        near = float(np.interp(near_blocks, curve.capacity_blocks, curve.hit_rate))
        both = float(np.interp(far_blocks, curve.capacity_blocks, curve.hit_rate))
        prompt = float(np.asarray(summary["prompt_mean"]))
        times = {
            kind: float(np.interp(prompt, context, np.broadcast_to(v, context.shape))) for kind, v in found.items()
        }
        mean = caching.tiered_first_token(
            near_share=near,
            far_share=both - near,
            near=times["SRAM hit"],
            far=times["DRAM hit over PCIe"],
            missed=times["miss"],
        )
        saved.append(
            (
                TITLES[name],
                f"{near:.1%}",
                f"{both - near:.1%}",
                f"{1e3 * times['miss']:.0f}",
                f"{1e3 * mean:.0f}",
                f"{1 - mean / times['miss']:.0%}",
            )
        )
    crossing = float(context[0])
    slower = np.flatnonzero(np.broadcast_to(found["DRAM hit over PCIe"], context.shape) > found["miss"])
    return Figure(
        "Prefix cache",
        f"Of the traces' blocks {numbers[0].computed:.1%} and {numbers[-1].computed:.1%} can be found again. SRAM "
        f"alone "
        f"({near_blocks:,.0f} blocks) finds {saved[0][1]} and {saved[-1][1]} of them; with host memory TTFT falls by "
        f"{saved[0][5]} and {saved[-1][5]}.",
        charts=(
            Chart(
                "ship-hit-rate",
                "Hit rate against capacity: exact LRU, and Che's approximation",
                pd.concat([reuse, band, held], ignore_index=True),
                {
                    "trace": "trace",
                    "how": "how",
                    "blocks": "capacity [blocks of 512 tokens]",
                    "gb": "capacity [GB]",
                    "hit": "hit rate of blocks",
                    "series": "trace and method",
                    "low": "published, low",
                    "high": "published, high",
                },
                "gb",
                "hit",
                (
                    Layer("area", y="low", y2="high", rows="low == low"),
                    Layer("line", rows="how == how"),
                    Layer("rule", x="gb", rows="series == 'SRAM beside the weights'"),
                ),
                color="series",
                log="x",
                caption=f"Cache of {model}: {block / 1e6:.1f} MB a block; SRAM holds {room / 1e9:.0f} GB. The band: "
                "50 to 75 % that SHIP prints for host memory over 7 days of other traffic; it is not a target",
                kind="reconstructed",
            ),
            Chart(
                "ship-time-to-live",
                "Hit rate of a cache without limit that forgets after a time",
                idle[["trace", "ttl_s", "hit_rate"]],
                {"trace": "trace", "ttl_s": "time to live after the last use [s]", "hit_rate": "hit rate of blocks"},
                "ttl_s",
                "hit_rate",
                color="trace",
                log="x",
                zero=True,
                caption="Exact, from the traces; they end after an hour, so that nothing is said about hours",
                kind="reconstructed",
            ),
            Chart(
                "ship-isolation",
                "Hit rate without limit when organisations share nothing (synthetic split)",
                alone[["series", "organisations", "hit_rate"]],
                {"series": "trace and split", "organisations": "organisations", "hit_rate": "hit rate of blocks"},
                "organisations",
                "hit_rate",
                (Layer("line"), Layer("point")),
                color="series",
                log="x",
                zero=True,
                caption="The traces name no organisations: requests are split by conversation, or one by one",
                kind="reconstructed",
            ),
            Chart(
                "ship-first-token-by-tier",
                f"TTFT of {model} by where the prefix is found, 256 new tokens",
                waits,
                {"kind_of_hit": "prefix", "context": "prompt [tokens]", "ms": "TTFT [ms]"},
                "context",
                "ms",
                color="kind_of_hit",
                log="xy",
                caption=f"One request, TP{float(scenario.deployment.tp):g} x PP{float(scenario.deployment.pp):g}, "
                f"stage overhead {overhead}; the load comes over all PCIe links",
            ),
        ),
        numbers=tuple(numbers),
        claims=(
            Claim(
                "Host memory answers 50 to 75 % of prefixes over seven days",
                "depends",
                "on the traffic: one hour of the two public traces has 37 and 64 % in all, however large the cache. "
                "The "
                "paper's traffic and hours are not public.",
            ),
            Claim(
                "A hit in host memory beats prefilling again",
                "holds" if not len(slower) else "depends",
                f"loading over PCIe takes {1e3 * float(np.max(found['DRAM hit over PCIe'] - found['SRAM hit'])):.1f} "
                f"ms for the "
                f"longest prompt, prefilling it {1e3 * float(np.max(found['miss'])):,.0f} ms"
                + ("." if not len(slower) else f"; below {crossing:,.0f} tokens prefilling is as fast."),
            ),
        ),
        tables=(
            Table(
                "What the cache saves at the traces' mean prompt, hits by exact LRU",
                ("trace", "hits in SRAM", "hits in host memory", "TTFT of a miss [ms]", "mean TTFT [ms]", "saved"),
                saved,
                (1, 2, 3, 4, 5),
            ),
        ),
        notes=(
            "Che takes requests as independent. "
            + "; ".join(gaps)
            + ". Conversations come back soon, which helps a small "
            "cache more than Che allows.",
            f"One block of {BLOCK_TOKENS} tokens counts as a hit or not; hits of blocks stand for hits of prompt "
            f"tokens.",
        ),
    )

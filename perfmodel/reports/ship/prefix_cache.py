"""What a prefix cache over the memory tiers of an instance saves (Figure 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import caching
from perfmodel.errors import UserError
from perfmodel.machines import kv_cache, sram_beat
from perfmodel.machines.base import machine_of
from perfmodel.machines.closed_loop import Load
from perfmodel.numerics import total
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Table, figure
from perfmodel.reports.ship.data import only_known, table
from perfmodel.reports.ship.memory import DRAM_NET, instance_of
from perfmodel.reports.ship.workload import TITLES
from perfmodel.serving.traces import BLOCK_TOKENS
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse

#: Gaps between two look-ups over which the hit rate is summed.
_GAPS = 2000


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
    independent of each other, which is what a trace with conversations is not.  It is the law of sessions
    (:func:`~perfmodel.equations.caching.kept_tokens`) with single blocks: what others touch between two look-ups has
    the mean that Che has, and with many blocks hardly a variance.
    """
    asked = references * blocks
    rates = references / asked.sum()
    gap = np.geomspace(1e-4 / rates.max(), 30 / rates.min(), _GAPS)
    held = caching.renewed_hit_rate(rate=rates[:, None], time=gap)
    again = (blocks * (references - 1))[:, None] * np.diff(held, prepend=0.0, axis=1)
    mean = (blocks[:, None] * held).sum(axis=0)
    variance = (blocks[:, None] * held * (1 - held)).sum(axis=0)
    hit_rates = []
    for capacity in capacities:
        kept = caching.kept_tokens(context=1.0, capacity=float(capacity), mean=mean, variance=variance)
        hit_rates.append(float((again.sum(axis=0) * kept).sum() / asked.sum()))
    return np.array(hit_rates)


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
    hit = sram_beat.chunked(scenario, others=0.0, prompt=new, context=context)
    # What follows the prefix attends to all of it.
    near = sram_beat.prompt_step(scenario, hit).time
    held = total_cache(scenario, context - new)
    far = near + caching.reload_time(size=held, bandwidth=chips * ddr.bandwidth)
    return {"SRAM hit": near, "DRAM hit over PCIe": far, "miss": miss}


def total_cache(scenario: Scenario, tokens: Any) -> Any:
    """Return the cache of a prefix in all layers [B]."""
    return total(run.count * kv_cache.request_cache(scenario, run, tokens) for run in scenario.model.layers)


def _blocks_of(trace: str, name: str) -> pd.DataFrame:
    """Return the rows of a trace in a table of ``data/traces/``."""
    return table(f"traces/{name}.csv").query("trace == @trace")


def _reuse_frame(traces: Sequence[str], block: float) -> pd.DataFrame:
    """Return the hit rate of each trace against the cache's blocks of so many bytes, exact and by Che."""
    rows: list[dict[str, Any]] = []
    for name in traces:
        curve, asked = _blocks_of(name, "reuse"), _blocks_of(name, "popularity")
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
    return pd.DataFrame(rows)


def _che_gaps(reuse: pd.DataFrame) -> list[str]:
    """Return in words how far Che's approximation is from the exact hit rate of each trace at worst."""
    said = []
    for trace, part in reuse.groupby("trace", sort=False):
        exact, che = (part[part.how == how] for how in ("exact LRU", "Che"))
        gap = np.abs(che.hit.to_numpy() - exact.hit.to_numpy())
        worst = int(np.argmax(gap))
        said.append(f"{trace}: at most {gap[worst]:.0%} points off, at {exact.blocks.iloc[worst]:,} blocks")
    return said


def _unlimited_hits(traces: Sequence[str], reuse: pd.DataFrame) -> tuple[Number, ...]:
    """Return the hits of a cache without limit beside the printed ones."""
    printed = {"mooncake_conversation_trace": 0.366, "mooncake_synthetic_trace": 0.64}
    exact = reuse[reuse.how == "exact LRU"].groupby("trace").hit.max()
    return tuple(
        Number(
            f"hits of a cache without limit, {TITLES[name]}",
            float(exact[TITLES[name]]),
            "%",
            printed.get(name),
            "reconstructed",
            source="computed from the trace with 512-token blocks",
        )
        for name in traces
    )


def _savings(traces: Sequence[str], near_blocks: float, far_blocks: float, waits: pd.DataFrame) -> list[Sequence[str]]:
    """Return shares of hits by tier and the mean TTFT of each trace, with so many blocks in SRAM and in all."""
    saved: list[Sequence[str]] = []
    for name in traces:
        curve = _blocks_of(name, "reuse")
        near, both = (
            float(np.interp(blocks, curve.capacity_blocks, curve.hit_rate)) for blocks in (near_blocks, far_blocks)
        )
        prompt = float(np.asarray(table("traces/summary.csv").set_index("trace").loc[name]["prompt_mean"]))
        times = {
            str(kind): float(np.interp(prompt, part.context, part.ms)) / 1e3
            for kind, part in waits.groupby("kind_of_hit")
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
    return saved


def _waits_frame(scenario: Scenario) -> pd.DataFrame:
    """Return TTFT [ms] against the prompt by where its prefix is found, with 256 new tokens."""
    context = np.geomspace(1024, 131072, 15)
    return pd.DataFrame(
        [
            {"kind_of_hit": kind, "context": size, "ms": float(value) * 1e3}
            for kind, values in first_tokens(scenario, context, 256.0, 256.0).items()
            for size, value in zip(context, np.broadcast_to(values, context.shape), strict=True)
        ]
    )


def _reload_claims(waits: pd.DataFrame) -> tuple[Claim, ...]:
    """Return what holds of hits in host memory, from the TTFT by tier."""
    near, far, miss = (
        waits[waits.kind_of_hit == kind].ms.to_numpy() for kind in ("SRAM hit", "DRAM hit over PCIe", "miss")
    )
    slower = bool(np.any(far > miss))
    return (
        Claim(
            "Host memory answers 50 to 75 % of prefixes over seven days",
            "depends",
            "on the traffic: one hour of the two public traces has 37 and 64 % in all, however large the cache. The "
            "paper's traffic and hours are not public.",
        ),
        Claim(
            "A hit in host memory beats prefilling again",
            "depends" if slower else "holds",
            f"loading over PCIe takes {np.max(far - near):.1f} ms for the longest prompt, prefilling it "
            f"{np.max(miss):,.0f} ms"
            + (f"; below {waits.context.min():,.0f} tokens prefilling is as fast." if slower else "."),
        ),
    )


def _reuse_chart(reuse: pd.DataFrame, room: float, caption: str) -> Chart:
    """Return hit rate against capacity, with the SRAM that is left and the published band."""
    room_line = pd.DataFrame({"gb": [room / 1e9], "series": "SRAM beside the weights"})
    band = pd.DataFrame(
        {"gb": [reuse.gb.min(), reuse.gb.max()], "low": 0.5, "high": 0.75, "series": "published, 7 days"}
    )
    return Chart(
        "ship-hit-rate",
        "Hit rate against capacity: exact LRU, and Che's approximation",
        pd.concat([reuse, band, room_line], ignore_index=True),
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
        caption=caption,
        kind="reconstructed",
    )


def _trace_charts(traces: Sequence[str]) -> tuple[Chart, Chart]:
    """Return hit rates without limit: by how long a block is kept, and by how many organisations share nothing."""
    idle = table("traces/idle.csv").query("trace in @traces").assign(trace=lambda frame: frame.trace.map(TITLES))
    alone = (
        table("traces/isolation.csv")
        .query("trace in @traces")
        .assign(series=lambda frame: frame.trace.map(TITLES) + ", " + frame.split)
    )
    return (
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
    )


def _waits_chart(waits: pd.DataFrame, scenario: Scenario, overhead: str) -> Chart:
    """Return TTFT against the prompt by where its prefix is found."""
    plan = scenario.deployment
    return Chart(
        "ship-first-token-by-tier",
        f"TTFT of {scenario.model.name} by where the prefix is found, 256 new tokens",
        waits,
        {"kind_of_hit": "prefix", "context": "prompt [tokens]", "ms": "TTFT [ms]"},
        "context",
        "ms",
        color="kind_of_hit",
        log="xy",
        caption=f"One request, TP{float(plan.tp):g} x PP{float(plan.pp):g}, stage overhead {overhead}; the load comes "
        "over all PCIe links",
    )


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
    instance = instance_of(model, on, nodes)
    scenario = put(instance.scenario, "system.efficiency.layer_overhead", parse(overhead, "s"))
    room = instance.room
    if room <= 0:
        raise UserError(f"{model} leaves no SRAM of {nodes:g} nodes for a cache; more nodes would")
    block = float(total_cache(scenario, 4096.0 + BLOCK_TOKENS) - total_cache(scenario, 4096.0))
    reuse, waits = _reuse_frame(traces, block), _waits_frame(scenario)
    numbers = _unlimited_hits(traces, reuse)
    saved = _savings(traces, room / block, DRAM_NET / block, waits)
    caption = (
        f"Cache of {model}: {block / 1e6:.1f} MB a block; SRAM holds {room / 1e9:.0f} GB. The band: 50 to 75 % that "
        "SHIP prints for host memory over 7 days of other traffic; it is not a target"
    )
    return Figure(
        "Prefix cache",
        f"Of the traces' blocks {numbers[0].computed:.1%} and {numbers[-1].computed:.1%} can be found again. SRAM "
        f"alone ({room / block:,.0f} blocks) finds {saved[0][1]} and {saved[-1][1]} of them; with host memory TTFT "
        f"falls by {saved[0][5]} and {saved[-1][5]}.",
        charts=(
            _reuse_chart(reuse, room, caption),
            *_trace_charts(traces),
            _waits_chart(waits, scenario, overhead),
        ),
        numbers=numbers,
        claims=_reload_claims(waits),
        tables=(
            Table(
                "What the cache saves at the traces' mean prompt, hits by exact LRU",
                ("trace", "hits in SRAM", "hits in host memory", "TTFT of a miss [ms]", "mean TTFT [ms]", "saved"),
                saved,
                (1, 2, 3, 4, 5),
            ),
        ),
        notes=(
            f"Che takes requests as independent. {'; '.join(_che_gaps(reuse))}. Conversations come back soon, which "
            "helps a small cache more than Che allows.",
            f"One block of {BLOCK_TOKENS} tokens counts as a hit or not; hits of blocks stand for hits of prompt "
            "tokens.",
        ),
    )

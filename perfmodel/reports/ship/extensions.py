"""What the paper leaves out: other machines, attention apart from experts, adaptive budgets, dead nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from perfmodel.equations import collectives
from perfmodel.machines import kernels, sram_pipeline
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.machines.operators import Pass
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Table, figure
from perfmodel.reports.ship import matrix
from perfmodel.reports.ship.pair import power
from perfmodel.reports.ship.samples import SAMPLES
from perfmodel.serving.fit import fit
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse
from perfmodel.specs.weights import layer_count

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
    load = matrix.fixed_load(ratios, contexts)
    found: dict[str, tuple[Any, Any, Scenario]] = {}
    served = matrix.pipeline_service(model, ship, users, _BARE, load, precision)
    spec = resolve(model, ship, Options(precision=precision))
    for at, name in enumerate(("LPU, bare", "LPU, 47 us a layer")):
        found[name] = (served.throughput[0, 0, 0, at], served.tpot[0, 0, 0, at], spec)
    for on in gpus:
        box = matrix.gpu_service(model, on, _BARE, load, precision)
        system = resolve(model, on, Options(precision=precision))
        found[system.system.name] = (box.throughput[0, 0, 0, 0], box.tpot[0, 0, 0, 0], system)
    assumed = [f"system.rates.fp16={lpx_16_bit_rate}", f"system.link.hop_latency={lpx_hop}"]
    later = matrix.pipeline_service(model, lpx, users, _BARE, load, precision, assumed)
    next_spec = resolve(model, lpx, Options(precision=precision), assumed)
    for at, name in enumerate(("LPX, bare", "LPX, 47 us a layer")):
        found[name] = (later.throughput[0, 0, 0, at], later.tpot[0, 0, 0, at], next_spec)
    rows = []
    for name, (rate, tpot, scenario) in found.items():
        chips = float(scenario.deployment.tp * scenario.deployment.pp)
        watts = power(scenario)
        rows += [
            {
                "machine": name,
                "ratio": float(ratio),
                "context": f"context {context / 1024:g}Ki",
                "chips": chips,
                "chip": float(rate[i, j]) / chips,
                "kilowatt": float(rate[i, j]) / watts * 1e3,
                "speed": float(1 / tpot[i, j]),
            }
            for i, ratio in enumerate(ratios)
            for j, context in enumerate(contexts)
        ]
    frame = pd.DataFrame(rows)
    columns = {
        "machine": "machine",
        "ratio": "P:D",
        "context": "context",
        "chips": "chips",
        "chip": "input + output a chip [tokens/s]",
        "kilowatt": "input + output a kW [tokens/s]",
        "speed": "ot/s/u [tokens/s]",
    }
    table = []
    for context in frame.context.unique():
        part = frame[frame.context == context]
        for one, other, key, what in (
            ("LPU, bare", "dgx-b200", "kilowatt", "tokens a kW"),
            ("LPU, 47 us a layer", "dgx-b200", "kilowatt", "tokens a kW"),
            ("LPU, bare", "gb200-nvl72", "kilowatt", "tokens a kW"),
            ("LPX, bare", "LPU, bare", "chip", "tokens a chip"),
            ("LPX, bare", "gb200-nvl72", "chip", "tokens a chip"),
            ("LPX, 47 us a layer", "gb200-nvl72", "speed", "ot/s/u"),
        ):
            sides = [part[part.machine == name].set_index("ratio")[key] for name in (one, other)]
            if len(sides[0]) and len(sides[1]):
                table.append((context, f"{one} over {other}", what, _crossing(sides[0] / sides[1])))
    corner = frame[(frame.ratio < 8) & (frame.context != f"context {contexts[0] / 1024:g}Ki")]
    ratio = (
        corner[corner.machine == "LPX, bare"].chip.to_numpy() / corner[corner.machine == "LPU, bare"].chip.to_numpy()
    )
    return Figure(
        "Other machines, and where they cross",
        f"At P:D below 8 and contexts from 32Ki, a bare LPX chip serves {ratio.min():.1f} to {ratio.max():.1f} times "
        f"the tokens of "
        "an LPU: twice the memory a chip keeps more requests in flight. The table says where machines cross.",
        charts=tuple(
            Chart(
                f"ship-other-machines-{key}",
                title,
                frame if key != "kilowatt" else frame[frame.kilowatt.notna()],
                columns,
                "ratio",
                key,
                (Layer("line"),),
                color="machine",
                facet="context",
                log="xy",
                caption=f"{model}; stages of 16 tokens, cache of 16 bits, SGLang with 64 users in 8 GPUs. LPX: 16-bit "
                f"rate "
                f"{lpx_16_bit_rate} and hop {lpx_hop} are assumptions of ours, neither is published",
            )
            for key, title in (("chip", "Throughput a chip"), ("kilowatt", "Throughput a kW"), ("speed", "ot/s/u"))
        ),
        tables=(Table("Crossovers over P:D", ("traffic", "machines", "by", "where"), table),),
        notes=(
            "Power of LPX is not published, so it has no value a kW. That of GB200 NVL72 is an estimate (1,667 W a "
            "GPU, 833 to "
            "3,333 W).",
            "GB200 NVL72 stands here as replicas of 8 GPUs; expert parallelism over the rack is not compared.",
        ),
    )


def _crossing(ratio: Any) -> str:
    """Return where a ratio over P:D passes 1."""
    above = ratio > 1
    if above.all():
        return f"always ahead, {ratio.min():.2g} to {ratio.max():.2g} times"
    if not above.any():
        return f"never ahead, {ratio.min():.2g} to {ratio.max():.2g} times"
    at = [float(value) for value in ratio.index]
    turns = []
    for (low, high), (one, other) in zip(pairwise(at), pairwise(ratio), strict=True):
        if (one > 1) != (other > 1):
            place = np.exp(
                np.interp(
                    0.0,
                    sorted((np.log(one), np.log(other))),
                    np.log([low, high]) if one < other else np.log([high, low]),
                )
            )
            turns.append(f"{'ahead' if other > 1 else 'behind'} from P:D {place:.2g} on")
    return ", ".join(turns)


# --- attention apart from experts --------------------------------------------------------------------------------


@figure("ship-disaggregation")
def disaggregation(
    model: str = "qwen3-235b-a22b",
    lpu: str = "lpu-v1:plan=ship-16x95",
    gpu: str = "dgx-b200:tp=8,engine=sglang",
    precision: str = "fp8",
    latency: str = "5 us",
    contexts: Sequence[float] = (2048, 32768, 131072),
    batches: int = 512,
) -> Figure:
    """Attention and its cache on GPUs, experts on LPUs, and the transfers between them."""
    sizes = np.unique(np.round(np.geomspace(1, batches, 28)))
    base_gpu, base_lpu = (resolve(model, on, Options(precision=precision)) for on in (gpu, lpu))
    attention = tuple(replace(run, moe=None, mlp=None) for run in base_gpu.model.layers)
    experts = tuple(replace(run, attention=None, mla=None) for run in base_lpu.model.layers)
    near = replace(base_gpu, model=replace(base_gpu.model, layers=attention))
    far = put(replace(base_lpu, model=replace(base_lpu.model, layers=experts)), "system.efficiency.layer_overhead", 0.0)
    layers = float(layer_count(base_gpu.model))
    rates = [float(side.system.network.bandwidth_per_direction * side.deployment.tp) for side in (base_gpu, base_lpu)]
    message = sizes * float(base_gpu.model.hidden) * ACTIVATION_BYTES
    hop = collectives.hop_time(message=message, hops=1.0, latency=parse(latency, "s"), bandwidth=min(rates))
    rows = []
    words = []
    for context in contexts:
        step = kernels.step(near, (Pass(sizes, 1.0, context, decoding=True),)).time
        whole = kernels.step(base_gpu, (Pass(sizes, 1.0, context, decoding=True),)).time
        block = sram_pipeline.beat(far, (Pass(sizes, 1.0, context, decoding=True),)).time
        serial = step + layers * (block + 2 * hop)
        # With two halves of the batch taking turns, the slower side decides.
        half = sizes / 2
        halved = kernels.step(near, (Pass(half, 1.0, context, decoding=True),)).time
        small = sram_pipeline.beat(far, (Pass(half, 1.0, context, decoding=True),)).time
        way = collectives.hop_time(message=message / 2, hops=1.0, latency=parse(latency, "s"), bandwidth=min(rates))
        turns = 2 * np.maximum(halved, layers * (small + 2 * way))
        held = float(fit(near, tokens=context).cap)
        fits = np.where(sizes <= held, 1.0, np.nan)
        alone = np.where(sizes <= float(fit(base_gpu, tokens=context).cap), 1.0, np.nan)
        for name, times in (
            ("GPU alone", whole * alone),
            ("apart, one after the other", serial * fits),
            ("apart, two halves in turns", turns * fits),
        ):
            rows += [
                {
                    "series": name,
                    "batch": float(size),
                    "context": f"context {context / 1024:g}Ki",
                    "tpot": float(time) * 1e3,
                    "rate": float(size / time),
                }
                for size, time in zip(sizes, times, strict=True)
            ]
        shares = layers * 2 * hop / serial
        words.append(f"{context / 1024:g}Ki: {float(shares[-1]):.0%}")
    frame = pd.DataFrame(rows).dropna()
    best = frame.pivot_table(index=["context", "batch"], columns="series", values="tpot")
    gain = best["GPU alone"] / best[["apart, one after the other", "apart, two halves in turns"]].min(axis=1)
    return Figure(
        "Attention on GPUs, experts on LPUs",
        f"Apart, the KV cache leaves the SRAM, so that contexts of 128Ki fit; decoding is {gain.min():.2f} to "
        f"{gain.max():.2f} times "
        f"as fast as on the GPUs alone. Transfers take part of the gain back: at {sizes[-1]:.0f} sequences they last "
        f"{', '.join(words)} of the time.",
        charts=(
            Chart(
                "ship-disaggregation",
                "TPOT with attention and experts on different machines",
                frame,
                {
                    "series": "layout",
                    "batch": "batch [sequences]",
                    "context": "context",
                    "tpot": "TPOT [ms]",
                    "rate": "output [tokens/s]",
                },
                "batch",
                "tpot",
                (Layer("line"),),
                color="series",
                facet="context",
                log="xy",
                caption=f"Network {min(rates) / 1e9:.0f} GB/s between {gpu.split(':')[0]} and a stage of LPUs, "
                f"{latency} a transfer "
                "(an estimate, 2 to 10 us)",
            ),
        ),
        claims=(
            Claim(
                "Experts on LPUs beside attention on GPUs beats the GPUs alone",
                "holds" if gain.min() > 1 else "fails" if gain.max() < 1 else "depends",
                f"on the batch: {gain.min():.2f} to {gain.max():.2f} times. The LPU nodes' 100 GbE is the narrow "
                f"place: {2 * layers:.0f} "
                "transfers a token.",
            ),
        ),
    )


# --- adaptive budget ---------------------------------------------------------------------------------------------


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
    sample = [one.name for one in SAMPLES].index("reasoning")
    budgets = np.array(free.budgets, dtype=float)
    scenario = resolve(model, ship, Options(precision=precision))
    batch = float(np.ceil(np.max(served.running[0, 0, 0, 0, :, sample]) / float(scenario.deployment.pp)))
    rows = []
    for i, ratio in enumerate(ratios):
        wanted = batch * (1 + ratio)
        # The budget that balances both kinds of tokens, of those that a program is compiled for.
        chosen = int(np.argmin(np.abs(np.log(budgets / wanted))))
        for name, at in [
            *((f"fixed, {budget:g} tokens", k) for k, budget in enumerate(budgets) if budget in (16, 36, 128)),
            ("adaptive", chosen),
        ]:
            place = (0, 0, at, 0, i, sample)
            ttft = float(served.first_token(True)[place])
            rows.append(
                {
                    "rule": name,
                    "ratio": float(ratio),
                    "budget": float(budgets[at]),
                    "throughput": float(served.throughput[place]),
                    "speed": float(1 / served.tpot[place]),
                    "input": float(load.prompt[i, sample] / ttft),
                }
            )
    frame = pd.DataFrame(rows)
    rules = frame.pivot_table(index="ratio", columns="rule", values="throughput")
    kept = rules["adaptive"] / rules.drop(columns="adaptive").max(axis=1)
    columns = {
        "rule": "stage budget",
        "ratio": "P:D of the sample",
        "budget": "tokens a beat",
        "throughput": "input + output [tokens/s]",
        "speed": "ot/s/u [tokens/s]",
        "input": "it/s/u [tokens/s]",
    }
    speeds = (
        frame[frame.rule == "adaptive"].speed.to_numpy() / frame[frame.rule == "fixed, 128 tokens"].speed.to_numpy()
    )
    return Figure(
        "An adaptive budget on the reasoning sample",
        f"Setting the budget to batch x (1 + P:D) keeps {kept.min():.0%} to {kept.max():.0%} of the best fixed "
        f"budget's throughput "
        f"and decodes {speeds.min():.2f} to {speeds.max():.2f} times as fast as a fixed budget of 128 tokens.",
        charts=tuple(
            Chart(
                f"ship-adaptive-{key}",
                f"Reasoning sample, {columns[key]}",
                frame,
                columns,
                "ratio",
                key,
                (Layer("line"),),
                color="rule",
                log="xy",
                caption=f"{users:g} users offered, cache of 16 bits, stage overhead {overhead_us:g} us; the split of "
                f"the sample is "
                "not published. The rule takes the nearest of the budgets that were compiled",
            )
            for key in ("throughput", "speed")
        ),
        notes=("The rule knows the mix of tokens; how fast it must follow is not modelled.",),
    )


# --- availability ------------------------------------------------------------------------------------------------


@figure("ship-availability")
def availability(
    model: str = "qwen3-235b-a22b",
    ship: str = "lpu-v1:plan=ship-16x95",
    precision: str = "fp8",
    chip_mtbf_h: Sequence[float] = (25000, 50000, 100000),
    repair_h: float = 24,
    spares: int = 12,
    users: float = 380,
) -> Figure:
    """Spare nodes with rotated partitions, and what skipping dead nodes costs a token."""
    scenario = put(resolve(model, ship, Options(precision=precision)), "system.efficiency.layer_overhead", 0.0)
    plan, link = scenario.deployment, scenario.system.link
    chips, node = float(plan.tp * plan.pp), float(scenario.system.chips_per_node)
    nodes = chips / node
    rows = []
    needed = []
    for mtbf in chip_mtbf_h:
        down = repair_h / (mtbf / node + repair_h)
        count = np.arange(spares + 1)
        up: Any = special.bdtr(count, nodes + count, down)
        rows += [
            {
                "mtbf": f"{mtbf:,.0f} h a chip",
                "spares": int(extra),
                "outage": float(1 - share),
                "hours": (1 - share) * 8760,
            }
            for extra, share in zip(count, up, strict=True)
        ]
        enough = np.flatnonzero(up >= 0.999)
        needed.append(f"{int(enough[0])} at {mtbf:,.0f} h" if len(enough) else f"more than {spares} at {mtbf:,.0f} h")
    table = []
    tokens = float(sram_pipeline.MACHINE.token_budget(scenario.system))
    beat = sram_pipeline.plain_beat(scenario, users / plan.pp, 2048.0).time
    for skipped in range(5):
        rate = float(
            collectives.quadfour_forward_bandwidth(
                skipped=float(skipped), port_bandwidth=link.port_bandwidth_per_direction
            )
        )
        if rate == 0:
            table.append((f"{skipped}", "0", "no way", "the chain is cut: rotate or restart", ""))
            continue
        hop = float(
            collectives.hop_time(
                message=tokens * scenario.model.hidden * ACTIVATION_BYTES,
                hops=1.0,
                latency=link.hop_latency,
                bandwidth=rate,
            )
        )
        clear = float(sram_pipeline.hop_time(scenario, tokens))
        tpot = float(plan.pp) * (float(beat) + clear)
        table.append(
            (
                f"{skipped}",
                f"{rate / 1e9:.0f}",
                f"{hop * 1e6:.2f}",
                f"+{(hop - clear) / tpot:.2%}",
                "hidden" if hop < float(beat) else "slower than a beat",
            )
        )
    per_year = [f"{8760 * chips / mtbf:,.0f} ({mtbf:,.0f} h)" for mtbf in chip_mtbf_h]
    return Figure(
        "Availability: rotated partitions and skipped nodes",
        f"An instance of {nodes:.0f} nodes meets {', '.join(per_year)} failures of chips a year, by the time between "
        f"failures of one. "
        f"For 99.9 % it needs these spare nodes: {', '.join(needed)}. Passing three dead nodes adds "
        f"{table[3][3].lstrip('+')} to a token.",
        charts=(
            Chart(
                "ship-availability",
                "Time without enough nodes, against spare nodes",
                pd.DataFrame(rows),
                {
                    "mtbf": "mean time between failures",
                    "spares": "spare nodes",
                    "outage": "share of time down",
                    "hours": "hours a year",
                },
                "spares",
                "outage",
                (Layer("line"), Layer("point")),
                color="mtbf",
                log="y",
                caption=f"{nodes:.0f} nodes needed, {repair_h:g} h to repair one, failures independent. No failure "
                f"rate of an LPU is "
                "published: the middle one is that of H100 in Llama 3's training",
            ),
        ),
        tables=(
            Table(
                "One hop past dead nodes",
                ("dead nodes", "GB/s", f"hop of {tokens:g} tokens [us]", "TPOT", "beside a beat"),
                table,
                (0, 1, 2, 3),
            ),
        ),
        notes=(
            "A rotated partition starts on spare nodes and replays the tokens of the requests in flight; the time of a "
            "rotation and "
            "its effect on P99 belong to capacity planning (size --availability).",
        ),
    )

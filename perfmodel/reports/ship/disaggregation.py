"""What the paper leaves out: attention and its cache on GPUs, experts on LPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import collectives
from perfmodel.machines import kernel_step, sram_beat
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.machines.step import Pass
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, figure
from perfmodel.reports.ship.traffic import panel
from perfmodel.serving.fit import fit
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse
from perfmodel.specs.weights import layer_count

_ALONE, _SERIAL, _TURNS = "GPU alone", "apart, one after the other", "apart, two halves in turns"


@dataclass(frozen=True)
class Apart:
    """A model whose attention runs on one machine and whose experts on another.

    Attributes
    ----------
    whole : Scenario
        All of the model on the GPUs.
    near, far : Scenario
        Attention on the GPUs, experts on bare LPUs.
    bandwidth, latency : float
        Of a transfer between them [B/s], [s].
    """

    whole: Scenario
    near: Scenario
    far: Scenario
    bandwidth: float
    latency: float

    @property
    def layers(self) -> float:
        """Layers of the model; each needs a transfer there and one back."""
        return float(layer_count(self.whole.model))

    def hop(self, batch: Any) -> Any:
        """Return the time of one transfer [s]."""
        message = batch * float(self.whole.model.hidden) * ACTIVATION_BYTES
        return collectives.hop_time(message=message, hops=1.0, latency=self.latency, bandwidth=self.bandwidth)

    def sides(self, batch: Any, context: float) -> tuple[Any, Any]:
        """Return the time of attention in all layers and of the experts of one [s]."""
        work = (Pass(batch, 1.0, context, decoding=True),)
        return kernel_step.step(self.near, work).time, sram_beat.beat(self.far, work).time


def _split(model: str, gpu: str, lpu: str, precision: str, latency: str) -> Apart:
    base_gpu, base_lpu = (resolve(model, on, Options(precision=precision)) for on in (gpu, lpu))
    attention = tuple(replace(run, moe=None, mlp=None) for run in base_gpu.model.layers)
    experts = tuple(replace(run, attention=None, mla=None) for run in base_lpu.model.layers)
    far = replace(base_lpu, model=replace(base_lpu.model, layers=experts))
    return Apart(
        base_gpu,
        replace(base_gpu, model=replace(base_gpu.model, layers=attention)),
        put(far, "system.efficiency.layer_overhead", 0.0),
        min(float(side.system.network.bandwidth_per_direction * side.deployment.tp) for side in (base_gpu, base_lpu)),
        parse(latency, "s"),
    )


def _layouts(apart: Apart, batch: Any, context: float) -> dict[str, Any]:
    """Return the time a token of each layout [s], NaN where the cache does not fit."""
    attention, experts = apart.sides(batch, context)
    serial = attention + apart.layers * (experts + 2 * apart.hop(batch))
    # With two halves of the batch taking turns, the slower side decides.
    attention, experts = apart.sides(batch / 2, context)
    turns = 2 * np.maximum(attention, apart.layers * (experts + 2 * apart.hop(batch / 2)))
    whole = kernel_step.step(apart.whole, (Pass(batch, 1.0, context, decoding=True),)).time
    fits, fits_alone = (
        np.where(batch <= float(fit(side, tokens=context).cap), 1.0, np.nan) for side in (apart.near, apart.whole)
    )
    return {_ALONE: whole * fits_alone, _SERIAL: serial * fits, _TURNS: turns * fits}


def _layouts_frame(apart: Apart, batch: Any, contexts: Sequence[float]) -> pd.DataFrame:
    """Return TPOT [ms] and output [tokens/s] of each layout that fits, by batch and context."""
    return pd.DataFrame(
        [
            {
                "series": name,
                "batch": float(size),
                "context": panel(context),
                "tpot": float(time) * 1e3,
                "rate": float(size / time),
            }
            for context in contexts
            for name, times in _layouts(apart, batch, context).items()
            for size, time in zip(batch, times, strict=True)
        ]
    ).dropna()


def _gain(frame: pd.DataFrame) -> pd.Series[float]:
    """Return how many times as fast the better layout apart is, by context and batch where both fit."""
    times = frame.pivot_table(index=["context", "batch"], columns="series", values="tpot")
    return times[_ALONE] / times[[_SERIAL, _TURNS]].min(axis=1)


def _transfer_share(apart: Apart, batch: float, context: float) -> float:
    """Return the share of transfers in the time of one after the other."""
    attention, experts = apart.sides(np.array([batch]), context)
    links = apart.layers * 2 * apart.hop(batch)
    return float((links / (attention + apart.layers * (experts + 2 * apart.hop(batch))))[0])


def _layouts_chart(frame: pd.DataFrame, caption: str) -> Chart:
    return Chart(
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
        caption=caption,
    )


def _apart_wins(gain: pd.Series[float], transfers: float) -> Claim:
    return Claim(
        "Experts on LPUs beside attention on GPUs beats the GPUs alone",
        "holds" if gain.min() > 1 else "fails" if gain.max() < 1 else "depends",
        f"on the batch: {gain.min():.2f} to {gain.max():.2f} times. The LPU nodes' 100 GbE is the narrow place: "
        f"{transfers:.0f} transfers a token.",
    )


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
    batch = np.unique(np.round(np.geomspace(1, batches, 28)))
    apart = _split(model, gpu, lpu, precision, latency)
    frame = _layouts_frame(apart, batch, contexts)
    gain = _gain(frame)
    shares = {context: _transfer_share(apart, batch[-1], context) for context in contexts}
    words = ", ".join(f"{context / 1024:g}Ki: {share:.0%}" for context, share in shares.items())
    caption = (
        f"Network {apart.bandwidth / 1e9:.0f} GB/s between {gpu.split(':')[0]} and a stage of LPUs, {latency} a "
        "transfer (an estimate, 2 to 10 us)"
    )
    return Figure(
        "Attention on GPUs, experts on LPUs",
        "Apart, the KV cache leaves the SRAM, so that contexts of 128Ki fit; decoding is "
        f"{gain.min():.2f} to {gain.max():.2f} times as fast as on the GPUs alone. Transfers take part of the gain "
        f"back: at {batch[-1]:.0f} sequences they last {words} of the time.",
        charts=(_layouts_chart(frame, caption),),
        claims=(_apart_wins(gain, 2 * apart.layers),),
    )

"""Decode operational intensity against batch (Figure 3): why a dense model saturates and experts need huge batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import roofline
from perfmodel.machines.base import machine_of
from perfmodel.machines.operators import layer_operators
from perfmodel.machines.step import Operator, Pass
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, figure
from perfmodel.specs import catalog

#: Parts of a layer by the operators that make them up.
PARTS = {
    "attention": ("attention",),
    "projections": ("qkv", "out", "latents", "queries", "expand", "indexer"),
    "MLP": ("up", "down"),
    "experts": ("experts",),
}
_MODELS = ("qwen3-32b", "gpt-oss-120b")
_RIDGES = (("dgx-h100", "bf16"), ("dgx-b200", "bf16"), ("sn40l-16", "bf16"), ("lpu-v1", "fp16"))
#: Attention alone, one token a sequence, as the third-party reading of the paper prints it.
_PRINTED = {"llama-3.3-70b": 8.0, "qwen3-235b-a22b": 16.0, "deepseek-v3": 128.0}


def intensities(model: str, batch: Any, context: float, precision: str | None) -> dict[str, Any]:
    """Return operational intensity of decoding by part of the model, and of all parts together [FLOP/B].

    Weights of experts count once for all tokens that meet them, as on a machine that gathers tokens by expert.
    """
    # A system whose layout splits nothing unevenly; only shapes and precisions of the model enter.
    scenario = resolve(model, "lpu-v1:plan=tp16-layers", Options(precision=precision))
    work = (Pass(batch, 1.0, context, decoding=True),)
    flops = dict.fromkeys([*PARTS, "all"], 0.0 * batch)
    moved = dict.fromkeys([*PARTS, "all"], 0.0 * batch)
    for run in scenario.model.layers:
        for operator in layer_operators(scenario, run, work):
            for part in ("all", *(name for name, names in PARTS.items() if operator.name in names)):
                flops[part] = flops[part] + operator.count * operator.flops
                moved[part] = moved[part] + operator.count * _bytes(operator)
    return {
        part: roofline.operational_intensity(flops=flops[part], bytes_moved=moved[part])
        for part in flops
        if np.all(moved[part] > 0) and np.all(flops[part] > 0)
    }


def _bytes(operator: Operator) -> Any:
    return operator.weights + operator.cache


def _first(batch: Any, values: Any, level: float) -> float:
    """Return the least batch at which a level is reached; infinite where none does."""
    reached = np.flatnonzero(np.broadcast_to(values, batch.shape) >= level)
    return float(batch[reached[0]]) if len(reached) else np.inf


def _batch(size: float) -> str:
    return f"{size:,.0f}" if np.isfinite(size) else "more than drawn"


def _ridge_points() -> dict[str, float]:
    """Return where the roofs of each machine meet [FLOP/B]."""
    ridges = {}
    for system, rate in _RIDGES:
        spec = catalog.load_bare_system(system)
        tier = machine_of(spec).weights_memory(spec)
        ridges[spec.name] = float(roofline.ridge_point(peak=spec.rates[rate], bandwidth=tier.bandwidth))
    return ridges


def _intensity_frame(model: str, batch: Any, contexts: Sequence[float], precision: str | None) -> pd.DataFrame:
    """Return intensity against batch, by part of the model; only the whole depends on the context."""
    rows: list[dict[str, Any]] = []
    for context in contexts:
        for part, values in intensities(model, batch, context, precision).items():
            if part != "all" and context != contexts[0]:
                continue
            name = {"all": f"all, {context / 1024:g}Ki", "attention": "attention, any context"}.get(part, part)
            rows += [
                {"series": name, "batch": at, "oi": value}
                for at, value in zip(batch, np.broadcast_to(values, batch.shape), strict=True)
            ]
    return pd.DataFrame(rows)


def _dense_claim(model: str, attention: float, last: Mapping[float, float]) -> tuple[str, Claim]:
    """Return what holds of a dense model, in short and as a claim, from where its intensity ends by context."""
    longest = list(last)[-1]
    return (
        f"{model} ends at {last[longest]:.0f} FLOP/B with {longest / 1024:g}Ki of context, for attention stays at "
        f"{attention:.0f} whatever the batch",
        Claim(
            f"A dense model saturates, because attention's intensity does not grow with the batch ({model})",
            "holds",
            f"attention stays at {attention:.0f} FLOP/B at every batch; the whole ends at "
            + ", ".join(f"{value:.0f} ({context / 1024:g}Ki)" for context, value in last.items())
            + ". The about 50 that a reading of the paper gives for the longest context is not reproduced.",
        ),
    )


def _experts_claim(model: str, reach: Mapping[str, float]) -> tuple[str, Claim]:
    """Return what holds of experts, in short and as a claim, from the batch at which they pass 200 FLOP/B by bits."""
    return (
        f"the experts of {model} reach 200 FLOP/B from a batch of {_batch(reach['mxfp4'])} with 4-bit weights on",
        Claim(
            f"Experts need a batch of 1,000 and more for intensities in the hundreds ({model})",
            "holds" if all(at >= 1000 for at in reach.values()) else "depends",
            "the batch at which the experts pass 200 FLOP/B depends on the bits of a weight: "
            + ", ".join(f"{bits} {_batch(at)}" for bits, at in reach.items()),
        ),
    )


def _judged(
    model: str, frame: pd.DataFrame, batch: Any, contexts: Sequence[float], precision: str | None
) -> tuple[str, Claim]:
    """Return what holds of a model, in short and as a claim: experts, or attention, decide."""
    if "experts" in set(frame.series):
        reach = {
            bits: _first(batch, intensities(model, batch, contexts[0], bits)["experts"], 200.0)
            for bits in ("bf16", "fp8", "mxfp4")
        }
        return _experts_claim(model, reach)
    ends = frame.groupby("series").oi.last()
    attention = float(np.max(intensities(model, batch, contexts[-1], precision)["attention"]))
    return _dense_claim(model, attention, {context: float(ends[f"all, {context / 1024:g}Ki"]) for context in contexts})


def _attention_numbers() -> tuple[Number, ...]:
    """Return the printed intensities of attention beside ours."""
    return tuple(
        Number(
            f"attention of {model}, one token a sequence",
            float(np.max(intensities(model, np.array([1.0]), 8192.0, "fp8")["attention"])),
            "FLOP/B",
            printed,
            "reconstructed",
            source="third-party reading of SHIP",
            note="2 x query heads / KV heads / bytes"
            if printed < 100
            else "printed is queries over latents; keys and values share the latent, which uses each byte twice",
        )
        for model, printed in _PRINTED.items()
    )


def _intensity_chart(model: str, frame: pd.DataFrame, ridges: Mapping[str, float], precision: str | None) -> Chart:
    """Return intensity against batch with the ridge points of the machines."""
    marks = pd.DataFrame(
        [
            {"series": f"ridge of {name}", "batch": at, "oi": value}
            for name, value in ridges.items()
            for at in (frame.batch.min(), frame.batch.max())
        ]
    )
    return Chart(
        f"ship-intensity-{model}",
        f"{model}: operational intensity of decoding",
        pd.concat([frame, marks], ignore_index=True),
        {"series": "part and context", "batch": "batch [sequences]", "oi": "intensity [FLOP/B]"},
        "batch",
        "oi",
        (Layer("line"),),
        color="series",
        log="xy",
        caption=f"Bytes of weights and cache; weights {precision or 'as in the checkpoint'}, cache of 16 bits. "
        "Ridge points: dense 16-bit rate over memory bandwidth",
    )


@figure("ship-intensity")
def intensity(
    models: Sequence[str] = _MODELS,
    contexts: Sequence[float] = (2048, 8192, 32768, 131072),
    batches: int = 8192,
    precision: str | None = None,
) -> Figure:
    """Decode OI against batch and context, by part of the model, with the machines' ridge points."""
    batch = np.unique(np.round(np.geomspace(1, batches, 61)))
    ridges = _ridge_points()
    frames = {model: _intensity_frame(model, batch, contexts, precision) for model in models}
    judged = [_judged(model, frame, batch, contexts, precision) for model, frame in frames.items()]
    return Figure(
        "Decode intensity against batch",
        "; ".join(words for words, _ in judged)
        + ". Ridge points: "
        + ", ".join(f"{name} {value:.0f}" for name, value in ridges.items())
        + ".",
        charts=tuple(_intensity_chart(model, frame, ridges, precision) for model, frame in frames.items()),
        numbers=_attention_numbers(),
        claims=tuple(claim for _, claim in judged),
    )

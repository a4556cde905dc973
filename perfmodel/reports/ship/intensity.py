"""Decode operational intensity against batch (Figure 3): why a dense model saturates and experts need huge batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import roofline
from perfmodel.machines.base import machine_of
from perfmodel.machines.operators import Operator, Pass, layer_operators
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


@figure("ship-intensity")
def intensity(
    models: Sequence[str] = _MODELS,
    contexts: Sequence[float] = (2048, 8192, 32768, 131072),
    batches: int = 8192,
    precision: str | None = None,
) -> Figure:
    """Decode OI against batch and context, by part of the model, with the machines' ridge points."""
    batch = np.unique(np.round(np.geomspace(1, batches, 61)))
    rows: list[dict[str, Any]] = []
    ridges = []
    for system, rate in _RIDGES:
        spec = catalog.load_bare_system(system)
        tier = machine_of(spec).weights_memory(spec)
        ridges.append((spec.name, float(roofline.ridge_point(peak=spec.rates[rate], bandwidth=tier.bandwidth))))
    charts, numbers, claims = [], [], []
    words = []
    for model in models:
        rows = []
        last: dict[float, float] = {}
        for context in contexts:
            found = intensities(model, batch, context, precision)
            for part, values in found.items():
                # Only attention and the whole depend on the context.
                if part not in ("attention", "all") and context != contexts[0]:
                    continue
                name = f"{part}, {context / 1024:g}Ki" if part in ("all", "attention") else part
                if part == "attention" and context != contexts[0]:
                    continue
                rows += [
                    {"series": "attention, any context" if part == "attention" else name, "batch": at, "oi": value}
                    for at, value in zip(batch, np.broadcast_to(values, batch.shape), strict=True)
                ]
            last[context] = float(np.broadcast_to(found["all"], batch.shape)[-1])
        frame = pd.DataFrame(rows)
        marks = pd.DataFrame(
            [
                {"series": f"ridge of {name}", "batch": at, "oi": value}
                for name, value in ridges
                for at in (batch[0], batch[-1])
            ]
        )
        charts.append(
            Chart(
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
        )
        experts = intensities(model, batch, contexts[0], precision).get("experts")
        attention = float(np.max(intensities(model, batch, contexts[-1], precision)["attention"]))
        if experts is None:
            words.append(
                f"{model} ends at {last[contexts[-1]]:.0f} FLOP/B with {contexts[-1] / 1024:g}Ki of context, for "
                f"attention "
                f"stays at {attention:.0f} whatever the batch"
            )
            claims.append(
                Claim(
                    f"A dense model saturates, because attention's intensity does not grow with the batch ({model})",
                    "holds",
                    f"attention stays at {attention:.0f} FLOP/B at every batch; the whole ends at "
                    + ", ".join(f"{value:.0f} ({context / 1024:g}Ki)" for context, value in last.items())
                    + ". The about 50 that a reading of the paper gives for the longest context is not reproduced.",
                )
            )
        else:
            reach = {
                bits: _first(batch, intensities(model, batch, contexts[0], bits)["experts"], 200.0)
                for bits in ("bf16", "fp8", "mxfp4")
            }
            words.append(
                f"the experts of {model} reach 200 FLOP/B from a batch of {_batch(reach['mxfp4'])} with 4-bit weights "
                f"on"
            )
            claims.append(
                Claim(
                    f"Experts need a batch of 1,000 and more for intensities in the hundreds ({model})",
                    "holds" if all(at >= 1000 for at in reach.values()) else "depends",
                    "the batch at which the experts pass 200 FLOP/B depends on the bits of a weight: "
                    + ", ".join(f"{bits} {_batch(at)}" for bits, at in reach.items()),
                )
            )
    for model, printed in _PRINTED.items():
        value = float(np.max(intensities(model, np.array([1.0]), 8192.0, "fp8")["attention"]))
        numbers.append(
            Number(
                f"attention of {model}, one token a sequence",
                value,
                "FLOP/B",
                printed,
                "reconstructed",
                source="third-party reading of SHIP",
                note="2 x query heads / KV heads / bytes"
                if printed < 100
                else "printed is queries over latents; keys and values share the latent, which uses each byte twice",
            )
        )
    return Figure(
        "Decode intensity against batch",
        "; ".join(words) + ". Ridge points: " + ", ".join(f"{name} {value:.0f}" for name, value in ridges) + ".",
        charts=tuple(charts),
        numbers=tuple(numbers),
        claims=tuple(claims),
    )

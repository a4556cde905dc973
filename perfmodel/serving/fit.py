"""What fits: weights and KV cache on a chip, and the cap on concurrency that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.equations import memory, pipeline
from perfmodel.machines import sram_pipeline
from perfmodel.machines.operators import (
    cache_shards,
    layer_bytes_per_chip,
    layer_count,
    precision_of,
    request_cache,
    total,
    vocabulary,
)
from perfmodel.numerics import maximum
from perfmodel.specs.types import PRECISION_BYTES, Scenario, Tier
from perfmodel.trace import scope, value_of


@dataclass(frozen=True)
class Fit:
    """Memory of one chip of the fullest stage [B], and the requests that fit a replica."""

    capacity: Any
    weights: Any
    reserved: Any
    room: Any
    per_request: Any
    cap: Any


def model_memory(scenario: Scenario) -> Tier:
    """Return the tier that holds weights and cache."""
    tiers = scenario.system.memory
    tier = tiers.sram if scenario.system.kind == "sram_pipeline" else tiers.hbm
    assert tier is not None
    return tier


def usable(tier: Tier) -> Any:
    """Return what the driver shows of a tier, or its label where that is not published."""
    visible = value_of(tier.visible)
    return tier.capacity if isinstance(visible, float) and np.isnan(visible) else tier.visible


def fit(scenario: Scenario) -> Fit:
    """Return what the weights take of a chip, and how many requests fit beside them."""
    model, plan, efficiency = scenario.model, scenario.deployment, scenario.system.efficiency
    assert efficiency is not None
    on_sram = scenario.system.kind == "sram_pipeline"
    tables = 1.0 if model.tied_embeddings else 2.0
    with scope("memory"):
        layers = layer_count(model)
        if on_sram:
            # Embedding and head have stages of their own, so the stages of layers decide.
            held = pipeline.layers_per_stage(layers=layers, stages=plan.pp - sram_pipeline.end_stages(scenario))
            ends: Any = 0.0
        else:
            held = pipeline.layers_per_stage(layers=layers, stages=plan.pp)
            # The first stage holds the embedding and the last the head; one stage alone holds both.
            ends = memory.weight_bytes(
                parameters=vocabulary(model) * (1 + (tables - 1) * maximum(0.0, 2 - plan.pp)),
                bytes_per_parameter=PRECISION_BYTES[precision_of(scenario, "embedding")],
            )
        tokens = scenario.traffic.prompt + scenario.traffic.output
        by_head = scenario.system.kind == "kernels"
        weights = memory.weight_bytes_per_chip(
            layer_bytes=total(
                held * (run.count / layers) * layer_bytes_per_chip(scenario, run) for run in model.layers
            ),
            end_bytes=ends,
            tp=plan.tp,
        )
        per_request = total(
            memory.request_kv_bytes(
                cache=request_cache(scenario, run, tokens),
                layers=held * (run.count / layers),
                shards=cache_shards(run, plan.tp) if by_head else plan.tp,
            )
            for run in model.layers
        )
        capacity = usable(model_memory(scenario))
        room = memory.kv_room(
            visible=capacity,
            utilisation=efficiency.memory_utilisation,
            weights=weights,
            reserved=efficiency.reserved_memory,
        )
        cap = memory.concurrency_cap(room=room, per_request=per_request)
    return Fit(
        capacity=capacity,
        weights=weights,
        reserved=efficiency.reserved_memory + (1 - efficiency.memory_utilisation) * capacity,
        room=room,
        per_request=per_request,
        cap=cap,
    )

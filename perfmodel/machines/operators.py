"""The operators of one forward pass, their sizes, and the step that a machine makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from perfmodel.equations import experts, memory, transformer
from perfmodel.machines.attention import attention_operators, compressed_operators, mla_operators, recurrent_operators
from perfmodel.machines.gemm import gemm, summed_message
from perfmodel.machines.kv_cache import (
    ACTIVATION_BYTES,
)
from perfmodel.machines.step import Exchange, Operator, Work, tokens_of
from perfmodel.machines.weight_bytes import storage_of
from perfmodel.numerics import maximum, minimum, total
from perfmodel.specs.kinds import kind_of
from perfmodel.specs.types import (
    PRECISION_BYTES,
    Efficiency,
    Layers,
    Scenario,
)
from perfmodel.specs.weights import (
    expert_parameters,
    expert_width,
    experts_met,
    head_parameters,
    is_recurrent,
    layer_count,
    router_parameters,
)
from perfmodel.trace import scope

# --- parameters --------------------------------------------------------------------------------------------------


# --- bytes -------------------------------------------------------------------------------------------------------


# --- operators ---------------------------------------------------------------------------------------------------


def _mlp_operators(scenario: Scenario, layers: Layers, work: Work, width: Any, matrices: Any) -> Iterator[Operator]:
    model = scenario.model
    tokens, storage = tokens_of(work), storage_of(scenario, "mlp", layers)
    up = transformer.mlp_parameters(hidden=model.hidden, intermediate=width, matrices=matrices - 1)
    down = transformer.mlp_parameters(hidden=model.hidden, intermediate=width, matrices=1.0)
    yield gemm("up", tokens, up, model.hidden + width, layers.count, storage)
    # Beside experts, one sum serves both.
    summed = None if layers.moe is not None else summed_message(scenario, tokens)
    yield gemm("down", tokens, down, width + model.hidden, layers.count, storage, all_reduce=summed)


def _efficiency(scenario: Scenario) -> Efficiency:
    """Return the efficiencies of a system; one without any picks experts evenly."""
    return scenario.system.efficiency or Efficiency()


def _moe_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    model, moe, plan = scenario.model, layers.moe, scenario.deployment
    assert moe is not None
    tokens = tokens_of(work)
    yield gemm(
        "router",
        tokens,
        router_parameters(model, moe),
        model.hidden + moe.experts,
        layers.count,
        storage_of(scenario, "router", layers),
        shards=1.0,
    )
    hidden = expert_width(model, moe)
    if moe.latent is not None:
        down = 2 * transformer.projection_parameters(inputs=model.hidden, outputs=moe.latent, bias=0.0)
        width = 2 * (model.hidden + moe.latent)
        yield gemm("expert_latents", tokens, down, width, layers.count, storage_of(scenario, "mlp", layers))
    yield from _mlp_operators(scenario, layers, work, moe.shared, moe.matrices)
    # With more expert ranks than tensor ranks the replicas share their experts, and so their tokens.
    replicas = maximum(1.0, plan.ep / plan.tp)
    storage = storage_of(scenario, "experts", layers)
    with scope("experts"):
        expert, picked = expert_parameters(model, moe), experts_met(moe)
        expert_bytes = memory.weight_bytes(parameters=expert, bytes_per_parameter=storage.element)
        met = experts.distinct_experts(
            experts=maximum(picked, _efficiency(scenario).even_experts(moe.experts)),
            top_k=picked,
            tokens=tokens * replicas,
        )
        routed = tokens * picked
        yield Operator(
            name="experts",
            kind="gemm",
            count=layers.count,
            flops=transformer.gemm_flops(tokens=routed * replicas, parameters=expert),
            weights=met * expert_bytes,
            cache=0.0,
            activations=transformer.activation_traffic(
                tokens=routed * replicas,
                width=2 * hidden + moe.matrices * moe.intermediate,
                bytes_per_element=ACTIVATION_BYTES,
            ),
            precision=storage.precision,
            shards=maximum(plan.tp, plan.ep),
            streamed=routed * expert_bytes,
            padding=transformer.gemm_flops(
                tokens=experts.padded_rows(experts=met, tile=_efficiency(scenario).expert_rows()), parameters=expert
            ),
            all_reduce=summed_message(scenario, tokens),
            exchange=Exchange(tokens * hidden, picked, moe.node_limit, not any(part.decoding for part in work)),
        )


def layer_operators(scenario: Scenario, layers: Layers, work: Work) -> list[Operator]:
    """Return the operators of one layer, in order; several passes share one read of the weights.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    list of Operator
    """
    parts: list[Operator] = []
    if layers.attention is not None and layers.attention.cross is not None:
        # Without an image, engines skip the whole layer.
        layers = replace(layers, count=layers.count * minimum(1.0, layers.attention.cross))
    if layers.attention is not None:
        parts += attention_operators(scenario, layers, work)
    if layers.mla is not None:
        parts += mla_operators(scenario, layers, work)
    if layers.compressed is not None:
        parts += compressed_operators(scenario, layers, work)
    if is_recurrent(layers):
        parts += recurrent_operators(scenario, layers, work)
    if layers.beside is not None:
        width, storage = 2 * scenario.model.hidden, storage_of(scenario, "norm", layers)
        parts.append(gemm("beside", tokens_of(work), layers.beside.weights, width, layers.count, storage, shards=1.0))
    if layers.mlp is not None:
        parts += _mlp_operators(scenario, layers, work, layers.mlp.intermediate, layers.mlp.matrices)
    if layers.moe is not None:
        parts += _moe_operators(scenario, layers, work)
    if scenario.model.lora is not None:
        parts.append(_adapter_operator(scenario, layers, work))
    prefilled = tuple(part for part in work if not part.decoding)
    if scenario.model.vision is not None and prefilled:
        parts.append(_vision_operator(scenario, layers, prefilled))
    if kind_of(scenario.system.kind).stores_activations:
        # Fused and streaming machines pass activations on without memory in between.
        parts.append(_elementwise_operator(scenario, layers, work))
    return parts


def _vision_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return the encoder of the images of what is prefilled, a layer's share of it; its tensor ranks share it."""
    vision = scenario.model.vision
    assert vision is not None
    with scope("vision"):
        share = 1 / layer_count(scenario.model)
        images = transformer.images_of_tokens(
            tokens=tokens_of(work), images=vision.images, prompt=scenario.traffic.prompt
        )
        patches = images * vision.patches
        among = vision.layers * transformer.attention_flops(
            sequences=images,
            tokens=vision.patches,
            attended=vision.patches,
            heads=1.0,
            key_dim=vision.width,
            value_dim=vision.width,
        )
        weights = memory.weight_bytes(parameters=vision.weights, bytes_per_parameter=PRECISION_BYTES["bf16"])
        return Operator(
            name="vision",
            kind="gemm",
            count=layers.count,
            flops=share * (transformer.gemm_flops(tokens=patches, parameters=vision.weights) + among),
            weights=share * minimum(1.0, images) * weights,
            cache=0.0,
            activations=share
            * transformer.activation_traffic(
                tokens=patches, width=2 * vision.width * vision.layers, bytes_per_element=ACTIVATION_BYTES
            ),
            precision="bf16",
        )


def adapter_bytes_per_chip(scenario: Scenario) -> Any:
    """Weights of one adapter on one chip, all layers together; 0 without adapters [B].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Bytes [B].
    """
    lora = scenario.model.lora
    if lora is None:
        return 0.0
    weights = lora.replicated + lora.sharded / scenario.deployment.tp
    return memory.weight_bytes(parameters=weights, bytes_per_parameter=PRECISION_BYTES["bf16"])


def _adapter_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return the products of low-rank adapters: each sequence meets its own, and each that is met is read once."""
    lora, tp = scenario.model.lora, scenario.deployment.tp
    assert lora is not None
    tokens, sequences = tokens_of(work), total(part.sequences for part in work)
    with scope("adapters"):
        # What every chip holds whole, every chip reads and multiplies.
        weights = (lora.sharded + lora.replicated * tp) / layer_count(scenario.model)
        met = experts.distinct_experts(experts=lora.adapters, top_k=1.0, tokens=sequences)
        return Operator(
            name="adapters",
            kind="gemm",
            count=layers.count,
            flops=transformer.gemm_flops(tokens=tokens, parameters=weights),
            weights=met * memory.weight_bytes(parameters=weights, bytes_per_parameter=PRECISION_BYTES["bf16"]),
            cache=0.0,
            activations=transformer.activation_traffic(
                tokens=tokens, width=2 * scenario.model.hidden, bytes_per_element=ACTIVATION_BYTES
            ),
            precision="bf16",
        )


def _elementwise_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return what runs between the matrix products: normalisations, residuals, activation functions, quantisation."""
    model, plan = scenario.model, scenario.deployment
    tokens = tokens_of(work)
    width: Any = 0.0
    if layers.mlp is not None:
        width = layers.mlp.intermediate
    if layers.moe is not None:
        width = layers.moe.intermediate * layers.moe.top_k + layers.moe.shared
    quantised = scenario.system.computes_as[plan.precision] not in ("bf16", "fp16")
    with scope("elementwise"):
        traffic = transformer.elementwise_traffic(
            tokens=tokens, hidden=model.hidden, sharded_width=width, tp=plan.tp, quantised=float(quantised)
        )
    return Operator(
        name="elementwise",
        kind="gemm",
        count=layers.count,
        flops=0.0,
        weights=0.0,
        cache=0.0,
        activations=traffic,
        precision="bf16",
        shards=1.0,
    )


def head_operator(scenario: Scenario, work: Work) -> Operator:
    """Return the language-model head: a row for every token that decodes, one for each sequence that is prefilled.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Operator
    """
    model = scenario.model
    rows = total(part.sequences * part.tokens if part.decoding else part.sequences for part in work)
    words = model.vocab if model.head_vocab is None else model.head_vocab
    storage = storage_of(scenario, "head")
    return gemm("head", rows, head_parameters(model), model.hidden + words, 1.0, storage)

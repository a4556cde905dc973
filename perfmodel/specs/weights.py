"""The weights of a model: tensors of a layer, parameters in all and those that one token meets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import experts, transformer
from perfmodel.numerics import total
from perfmodel.specs.mixers import attention_parts, block_indexer_part, compressed_parts, mla_parts, state_parts
from perfmodel.specs.types import (
    Layers,
    LinearAttention,
    Mamba2,
    Model,
    Moe,
)


def is_recurrent(layers: Layers) -> bool:
    """Whether the mixer keeps a state of constant size.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    bool
    """
    mixers = (layers.linear, layers.mamba2, layers.mamba1, layers.recurrent)
    return any(mixer is not None for mixer in mixers)


#: Classes of models by what their layers need beyond dense products, the last that applies.
CLASSES = ("dense", "experts", "latent", "sparse", "recurrent")


def model_class(model: Model) -> str:
    """Class of a model, by which errors of predictions are told apart.

    Parameters
    ----------
    model : Model

    Returns
    -------
    str
        One of :data:`CLASSES`.
    """
    worst = "dense"
    for run in model.layers:
        part = run.mla or run.attention or run.compressed
        marks = {
            "experts": run.moe is not None,
            "latent": run.mla is not None or run.compressed is not None,
            "sparse": part is not None and part.indexer is not None,
            "recurrent": is_recurrent(run),
        }
        worst = max((worst, *(name for name, has in marks.items() if has)), key=CLASSES.index)
    return worst


def state_heads(layers: Layers) -> Any:
    """Return the heads by which a recurrent state can be split.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Heads [1].
    """
    part: LinearAttention | Mamba2 | None = layers.linear or layers.mamba2
    if isinstance(part, LinearAttention):
        return part.value_heads
    if isinstance(part, Mamba2):
        return part.heads
    if layers.recurrent is not None:
        return layers.recurrent.heads
    assert layers.mamba1 is not None
    return layers.mamba1.inner


@dataclass(frozen=True)
class Tensor:
    """Weights of a class in one layer: held, met by one token, and how GPUs split them (``tp``, ``ep`` or ``none``)."""

    kind: str
    held: Any
    active: Any
    split: str = "tp"


def tensors(model: Model, layers: Layers) -> Iterator[Tensor]:
    """Give the tensors of one layer.

    Parameters
    ----------
    model : Model
    layers : Layers
        A run of equal layers.

    Returns
    -------
    iterator of Tensor
    """
    for one in _tensors(model, layers):
        yield one if layers.own is None else replace(one, held=layers.own * one.held)


def _tensors(model: Model, layers: Layers) -> Iterator[Tensor]:
    attention = layers.attention
    if attention is not None:
        qkv, out = attention_parts(model, attention)
        extra = attention.heads * float(attention.sinks)
        if attention.indexer is not None:
            extra = extra + block_indexer_part(model, attention.indexer)
        if attention.qk_norm_full:
            extra = extra + (attention.heads + attention.kv_heads) * attention.head_dim
        elif attention.qk_norm:
            extra = extra + (1.0 if attention.shares_cache else 2.0) * attention.head_dim
        yield Tensor("attention", qkv + out + extra, qkv + out + extra)
    if (mla := layers.mla) is not None:
        parts = mla_parts(model, mla)
        alone = total(parts[name] for name in ("latents", "indexer") if name in parts)
        alone = alone + mla.kv_lora_rank + (0.0 if mla.direct_query else mla.q_lora_rank)
        by_head = total(parts[name] for name in ("queries", "expand", "out", "gate") if name in parts)
        yield Tensor("attention", by_head, by_head)
        yield Tensor("attention", alone, alone, split="none")
    if (compressed := layers.compressed) is not None:
        parts = compressed_parts(model, compressed)
        alone = total(parts[name] for name in ("latents", "compress", "indexer") if name in parts)
        alone = alone + compressed.q_lora_rank + compressed.head_dim + compressed.heads
        by_head = total(parts[name] for name in ("queries", "out_groups", "out"))
        yield Tensor("attention", by_head, by_head)
        yield Tensor("attention", alone, alone, split="none")
    if is_recurrent(layers):
        mixer = state_parts(model, layers)[0]
        yield Tensor("attention", mixer, mixer)
    if layers.mlp is not None:
        block = transformer.mlp_parameters(
            hidden=model.hidden, intermediate=layers.mlp.intermediate, matrices=layers.mlp.matrices
        )
        yield Tensor("mlp", block, block)
    if (moe := layers.moe) is not None:
        router = router_parameters(model, moe)
        yield Tensor("router", router, router, split="none")
        one = expert_parameters(model, moe)
        yield Tensor("experts", moe.experts * one, experts_met(moe) * one, split="ep")
        shared = transformer.mlp_parameters(hidden=model.hidden, intermediate=moe.shared, matrices=moe.matrices)
        if moe.latent is not None:
            shared = shared + 2 * transformer.projection_parameters(inputs=model.hidden, outputs=moe.latent, bias=0.0)
        yield Tensor("mlp", shared, shared)
    norms = transformer.norm_parameters(hidden=model.hidden, norms=layers.norms)
    if layers.beside is not None:
        norms = norms + layers.beside.weights + layers.beside.scales
    yield Tensor("norm", norms, norms, split="none")


def router_parameters(model: Model, moe: Moe) -> Any:
    """Return the weights of the router of one layer.

    Parameters
    ----------
    model : Model
    moe : Moe

    Returns
    -------
    Number
        Weights [1].
    """
    outputs = moe.experts if moe.zero_experts is None else moe.experts + moe.zero_experts
    return experts.router_parameters(
        hidden=model.hidden, experts=outputs, bias=float(moe.router_bias), shared_gate=float(moe.shared_gate)
    )


def expert_parameters(model: Model, moe: Moe) -> Any:
    """Return the weights of one expert.

    Parameters
    ----------
    model : Model
    moe : Moe

    Returns
    -------
    Number
        Weights [1].
    """
    return experts.expert_parameters(
        hidden=expert_width(model, moe),
        intermediate=moe.intermediate,
        matrices=moe.matrices,
        bias=float(moe.expert_bias),
    )


def expert_width(model: Model, moe: Moe) -> Any:
    """Return the width of a token as the experts meet it.

    Parameters
    ----------
    model : Model
    moe : Moe

    Returns
    -------
    Number
        Elements [1].
    """
    return model.hidden if moe.latent is None else moe.latent


def experts_met(moe: Moe) -> Any:
    """Return the experts with weights that a token meets.

    Parameters
    ----------
    moe : Moe

    Returns
    -------
    Number
        Experts [1].
    """
    if moe.zero_experts is None:
        return moe.top_k
    return experts.computing_experts(top_k=moe.top_k, experts=moe.experts, zero_experts=moe.zero_experts)


def vocabulary(model: Model) -> Any:
    """Weights of the embedding table, and as many again of the head.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    return transformer.vocabulary_parameters(vocab=model.vocab, hidden=model.hidden)


def layer_count(model: Model) -> Any:
    """Layers of the model.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Layers [1].
    """
    return total(layers.count for layers in model.layers)


def total_parameters(model: Model) -> Any:
    """All weights of the model; a tied embedding counts once.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    decoder = total(layers.count * one.held for layers in model.layers for one in tensors(model, layers))
    parameters = decoder + model.hidden
    if model.task != "draft":
        # A draft looks its words up in the table of its target.
        parameters = parameters + vocabulary(model)
    if not model.tied_embeddings:
        parameters = parameters + head_parameters(model)
    return parameters if model.tables is None else parameters + model.tables


def head_parameters(model: Model) -> Any:
    """Weights of the language-model head; a model that pools has none.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    if model.task == "pool":
        return 0.0
    if model.head_vocab is not None:
        return transformer.vocabulary_parameters(vocab=model.head_vocab, hidden=model.hidden)
    return vocabulary(model)


def active_parameters(model: Model) -> Any:
    """Weights that one token meets: its experts and the head, but not the look-up in an untied embedding.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    decoder = total(layers.count * one.active for layers in model.layers for one in tensors(model, layers))
    return decoder + model.hidden + head_parameters(model)

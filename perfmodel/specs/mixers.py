"""Weights of a layer's mixer, part by part: attention, latents, indexers, compressed caches, constant states."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import constant_states, latent_attention, transformer
from perfmodel.specs.types import (
    Attention,
    CompressedAttention,
    Indexer,
    Layers,
    Mla,
    Model,
)


def value_width(attention: Attention) -> Any:
    """Return the width of a value, which is that of a key where nothing else is said.

    Parameters
    ----------
    attention : Attention

    Returns
    -------
    Number
        Elements [1].
    """
    return attention.head_dim if attention.value_dim is None else attention.value_dim


def attention_parts(model: Model, attention: Attention) -> tuple[Any, Any]:
    """Return the weights before and after the attention core of one layer.

    Parameters
    ----------
    model : Model
    attention : Attention

    Returns
    -------
    tuple of Number
        Weights before it and after it [1].
    """
    out = transformer.output_parameters(
        hidden=model.hidden, heads=attention.heads, head_dim=value_width(attention), bias=float(attention.output_bias)
    )
    bias = float(attention.qkv_bias)
    query_heads = attention.heads * (2.0 if attention.gated else 1.0)
    if attention.value_dim is None and not attention.keys_are_values and not attention.shares_cache:
        qkv = transformer.qkv_parameters(
            hidden=model.hidden,
            heads=query_heads,
            kv_heads=attention.kv_heads,
            head_dim=attention.head_dim,
            bias=bias,
        )
    else:
        width = query_heads * attention.head_dim + projected_cache(attention)
        qkv = transformer.projection_parameters(inputs=model.hidden, outputs=width, bias=bias)
    if attention.head_gate:
        qkv = qkv + transformer.projection_parameters(inputs=model.hidden, outputs=attention.heads, bias=0.0)
    return qkv, out


def projected_cache(attention: Attention) -> Any:
    """Return the width of the keys and values that a layer projects.

    Parameters
    ----------
    attention : Attention

    Returns
    -------
    Number
        Elements [1].
    """
    if attention.shares_cache:
        return 0.0
    width = attention.head_dim if attention.keys_are_values else attention.head_dim + value_width(attention)
    return attention.kv_heads * width


def _indexer_part(model: Model, indexer: Indexer, query_width: Any) -> Any:
    """Return the weights of the indexer of latents: its queries are made of the query latent."""
    return latent_attention.indexer_parameters(
        hidden=model.hidden, q_lora_rank=query_width, heads=indexer.heads, head_dim=indexer.head_dim
    )


def block_indexer_part(model: Model, indexer: Indexer) -> Any:
    """Return the weights of an indexer of blocks: queries, one key and their normalisations, no weight a head.

    Parameters
    ----------
    model : Model
    indexer : Indexer

    Returns
    -------
    Number
        Weights [1].
    """
    width = indexer.heads * indexer.head_dim + indexer.head_dim
    return transformer.projection_parameters(inputs=model.hidden, outputs=width, bias=0.0) + 2 * indexer.head_dim


def compressed_parts(model: Model, part: CompressedAttention) -> dict[str, Any]:
    """Return the weights of a layer of compressed attention by operator.

    Parameters
    ----------
    model : Model
    part : CompressedAttention

    Returns
    -------
    dict of str to Number
        Weights of each operator by its name [1].
    """
    width, project = part.heads * part.head_dim, transformer.projection_parameters
    parts = {
        "latents": project(inputs=model.hidden, outputs=part.q_lora_rank + part.head_dim, bias=0.0),
        "queries": project(inputs=part.q_lora_rank, outputs=width, bias=0.0),
        "out_groups": project(inputs=width, outputs=part.output_rank, bias=0.0),
        "out": project(inputs=part.output_groups * part.output_rank, outputs=model.hidden, bias=0.0),
    }
    if part.ratio is not None:
        overlap = 1.0 if part.indexer is None else 2.0
        parts["compress"] = latent_attention.compressor_parameters(
            hidden=model.hidden, head_dim=part.head_dim, ratio=part.ratio, overlap=overlap
        )
    if part.indexer is not None:
        assert part.ratio is not None
        compress = latent_attention.compressor_parameters(
            hidden=model.hidden, head_dim=part.indexer.head_dim, ratio=part.ratio, overlap=2.0
        )
        queries = project(inputs=part.q_lora_rank, outputs=part.indexer.heads * part.indexer.head_dim, bias=0.0)
        weigh = project(inputs=model.hidden, outputs=part.indexer.heads, bias=0.0)
        parts["indexer"] = compress + queries + weigh
    return parts


def mla_parts(model: Model, mla: Mla) -> dict[str, Any]:
    """Return the weights of a latent-attention layer by operator.

    Parameters
    ----------
    model : Model
    mla : Mla

    Returns
    -------
    dict of str to Number
        Weights of each operator by its name [1].
    """
    rank = 0.0 if mla.direct_query else mla.q_lora_rank
    parts = {
        "latents": latent_attention.mla_down_parameters(
            hidden=model.hidden, q_lora_rank=rank, kv_lora_rank=mla.kv_lora_rank, rope_dim=mla.qk_rope_head_dim
        ),
        "queries": latent_attention.mla_query_parameters(
            width=model.hidden if mla.direct_query else mla.q_lora_rank,
            heads=mla.heads,
            nope_dim=mla.qk_nope_head_dim,
            rope_dim=mla.qk_rope_head_dim,
        ),
        "expand": latent_attention.mla_up_parameters(
            kv_lora_rank=mla.kv_lora_rank, heads=mla.heads, nope_dim=mla.qk_nope_head_dim, v_dim=mla.v_head_dim
        ),
        "out": transformer.output_parameters(hidden=model.hidden, heads=mla.heads, head_dim=mla.v_head_dim, bias=0.0),
    }
    if mla.indexer is not None and not mla.indexer.shared:
        parts["indexer"] = _indexer_part(model, mla.indexer, mla.q_lora_rank)
    if mla.gate is not None:
        parts["gate"] = transformer.projection_parameters(inputs=model.hidden, outputs=mla.gate, bias=0.0)
    return parts


def state_parts(model: Model, layers: Layers) -> tuple[Any, Any]:
    """Return the weights of a recurrent mixer, and the elements of its state a sequence.

    Parameters
    ----------
    model : Model
    layers : Layers

    Returns
    -------
    tuple of Number
        Weights of the mixer, and elements of the state [1].
    """
    if (linear := layers.linear) is not None:
        keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
        parameters = constant_states.linear_attention_parameters(
            hidden=model.hidden,
            key_width=keys,
            value_width=values,
            value_heads=linear.value_heads,
            value_dim=linear.value_head_dim,
            kernel=linear.conv_kernel,
        )
        return parameters, values * linear.key_head_dim + (2 * keys + values) * (linear.conv_kernel - 1)
    if (second := layers.mamba2) is not None:
        inner = second.heads * second.head_dim
        parameters = constant_states.mamba2_parameters(
            hidden=model.hidden,
            heads=second.heads,
            head_dim=second.head_dim,
            groups=second.groups,
            state=second.state,
            kernel=second.conv_kernel,
        )
        mixed = inner + 2 * second.groups * second.state
        return parameters, inner * second.state + mixed * (second.conv_kernel - 1)
    if layers.recurrent is not None:
        return layers.recurrent.weights, layers.recurrent.state
    first = layers.mamba1
    assert first is not None
    parameters = constant_states.mamba1_parameters(
        hidden=model.hidden,
        inner=first.inner,
        state=first.state,
        dt_rank=first.dt_rank,
        kernel=first.conv_kernel,
    )
    return parameters, first.inner * (first.state + first.conv_kernel - 1)

"""The weights of a model: tensors of a layer, parameters in all and those that one token meets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import constant_states, experts, latent_attention, transformer
from perfmodel.numerics import total
from perfmodel.specs.types import (
    Attention,
    CompressedAttention,
    Indexer,
    Layers,
    LinearAttention,
    Mamba2,
    Mla,
    Model,
    Moe,
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
    found = "dense"
    for run in model.layers:
        part = run.mla or run.attention or run.compressed
        marks = {
            "experts": run.moe is not None,
            "latent": run.mla is not None or run.compressed is not None,
            "sparse": part is not None and part.indexer is not None,
            "recurrent": is_recurrent(run),
        }
        found = max((found, *(name for name, has in marks.items() if has)), key=CLASSES.index)
    return found


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
    found = decoder + model.hidden
    if model.task != "draft":
        # A draft looks its words up in the table of its target.
        found = found + vocabulary(model)
    if not model.tied_embeddings:
        found = found + head_parameters(model)
    return found if model.tables is None else found + model.tables


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

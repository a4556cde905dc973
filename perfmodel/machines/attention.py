"""Operators of attention and of mixers with a state: heads, latents, indexers, compressed caches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from perfmodel.equations import constant_states, latent_attention, transformer
from perfmodel.machines.gemm import gemm, summed_message
from perfmodel.machines.kv_cache import (
    ACTIVATION_BYTES,
    cache_shards,
    index_bytes_per_token,
    row_bytes,
)
from perfmodel.machines.step import Operator, Pass, Work, tokens_of
from perfmodel.machines.weight_bytes import storage_of
from perfmodel.numerics import minimum, total
from perfmodel.specs.mixers import (
    attention_parts,
    block_indexer_part,
    compressed_parts,
    mla_parts,
    projected_cache,
    state_parts,
    value_width,
)
from perfmodel.specs.types import (
    Attention,
    CompressedAttention,
    Indexer,
    Layers,
    Mla,
    Scenario,
)
from perfmodel.trace import scope


@dataclass(frozen=True)
class _Met:
    """What the queries of a pass meet: keys on average, and entries of the cache that are read and written."""

    attended: Any
    reach: Any
    written: Any
    heads: Any
    key_dim: Any
    value_dim: Any


def _attention(
    scenario: Scenario, layers: Layers, work: Work, tokens: Any, meet: Callable[[Pass], _Met], width: Any
) -> Operator:
    """Return the attention itself, behind its projections: ``meet`` says what a pass meets, ``width`` is in and out."""
    with scope("attention"):
        row = row_bytes(layers, scenario.deployment.kv_precision)
        flops, traffic = [], []
        for part in work:
            met = meet(part)
            flops.append(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=met.attended,
                    heads=met.heads,
                    key_dim=met.key_dim,
                    value_dim=met.value_dim,
                )
            )
            traffic.append(
                transformer.kv_traffic(
                    sequences=part.sequences, context=met.reach, tokens=met.written, bytes_per_token=row
                )
            )
        return Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=total(flops),
            weights=0.0,
            cache=total(traffic),
            activations=transformer.activation_traffic(tokens=tokens, width=width, bytes_per_element=ACTIVATION_BYTES),
            precision=scenario.deployment.kv_precision,
            cache_shards=cache_shards(scenario, layers),
        )


def _met_by_heads(attention: Attention, part: Pass) -> _Met:
    """Return what queries meet where each head, or group of heads, has keys and values of its own."""
    attended, reach, written = _attended(attention, part), part.context, part.tokens
    if attention.sliding is not None:
        reach = minimum(part.context, attended if attention.sliding.chunked else attention.sliding.window)
    if attention.indexer is not None:
        reach = minimum(reach, attention.indexer.top_k)
    if attention.cross is not None:
        reach, written = attention.cross, 0.0
    return _Met(attended, reach, written, attention.heads, attention.head_dim, value_width(attention))


def attention_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Give the operators of attention with heads: projections, attention itself, output and its sum over chips.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
    work : Work

    Returns
    -------
    iterator of Operator
    """
    model, attention = scenario.model, layers.attention
    assert attention is not None
    tokens, storage = tokens_of(work), storage_of(scenario, "attention", layers)
    qkv, out = attention_parts(model, attention)
    query_width = attention.heads * attention.head_dim
    gate_width = query_width * (2.0 if attention.gated else 1.0)
    if attention.cross is not None:
        # Keys and values of an image are made once; only queries are made of each token.
        qkv = transformer.projection_parameters(inputs=model.hidden, outputs=gate_width, bias=0.0)
        qkv_width = gate_width
    else:
        qkv_width = gate_width + projected_cache(attention)
    yield gemm("qkv", tokens, qkv, model.hidden + qkv_width, layers.count, storage)
    if attention.indexer is not None and not attention.indexer.shared:
        parameters = block_indexer_part(model, attention.indexer)
        yield from _indexer_operators(scenario, layers, work, attention.indexer, parameters, model.hidden)
    output_width = attention.heads * value_width(attention)
    meet = functools.partial(_met_by_heads, attention)
    yield _attention(scenario, layers, work, tokens, meet, query_width + output_width)
    summed = summed_message(scenario, tokens)
    yield gemm("out", tokens, out, output_width + model.hidden, layers.count, storage, all_reduce=summed)


def _attended(attention: Attention, part: Pass) -> Any:
    """Return the keys that a query attends to on average."""
    if attention.cross is not None:
        return attention.cross
    if not attention.causal:
        seen = part.context + part.tokens
        return seen if attention.sliding is None else minimum(seen, attention.sliding.window)
    if attention.sliding is None:
        attended = transformer.mean_attended_tokens(context=part.context, tokens=part.tokens)
        return attended if attention.indexer is None else minimum(attended, attention.indexer.top_k)
    if attention.sliding.chunked:
        return transformer.mean_attended_in_chunk(
            context=part.context, tokens=part.tokens, chunk=attention.sliding.window
        )
    return transformer.mean_attended_in_window(
        context=part.context, tokens=part.tokens, window=attention.sliding.window
    )


def _met_latents(mla: Mla, part: Pass) -> _Met:
    """Return what queries meet of latents: themselves where it decodes, expanded keys and values in a prefill."""
    attended, reach = transformer.mean_attended_tokens(context=part.context, tokens=part.tokens), part.context
    if mla.indexer is not None:
        attended, reach = minimum(attended, mla.indexer.top_k), minimum(reach, mla.indexer.top_k)
    if part.decoding:
        return _Met(attended, reach, part.tokens, mla.heads, mla.kv_lora_rank + mla.qk_rope_head_dim, mla.kv_lora_rank)
    return _Met(attended, reach, part.tokens, mla.heads, mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim)


def mla_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Latent attention: decoding meets the latents themselves, prefill expands keys and values.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
    work : Work

    Returns
    -------
    iterator of Operator
    """
    model, mla = scenario.model, layers.mla
    assert mla is not None
    tokens, storage = tokens_of(work), storage_of(scenario, "attention", layers)
    parts = mla_parts(model, mla)
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    query_width = mla.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    rank = 0.0 if mla.direct_query else mla.q_lora_rank
    # Every chip of the group projects to the latents by itself.
    yield gemm("latents", tokens, parts["latents"], model.hidden + rank + latent, layers.count, storage, shards=1.0)
    query_input = model.hidden if mla.direct_query else mla.q_lora_rank
    yield gemm("queries", tokens, parts["queries"], query_input + query_width, layers.count, storage)
    expanded = mla.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield gemm("expand", tokens, parts["expand"], mla.kv_lora_rank + expanded, layers.count, storage)
    if mla.gate is not None:
        yield gemm("gate", tokens, parts["gate"], model.hidden + mla.gate, layers.count, storage)
    if mla.indexer is not None and not mla.indexer.shared:
        yield from _indexer_operators(scenario, layers, work, mla.indexer, parts["indexer"], mla.q_lora_rank)
    meet = functools.partial(_met_latents, mla)
    yield _attention(scenario, layers, work, tokens, meet, query_width + mla.heads * mla.v_head_dim)
    yield gemm(
        "out",
        tokens,
        parts["out"],
        mla.heads * mla.v_head_dim + model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )


def _indexer_operators(
    scenario: Scenario, layers: Layers, work: Work, indexer: Indexer, parameters: Any, query_width: Any
) -> Iterator[Operator]:
    """The indexer scores the whole context; every chip of the group does it by itself."""
    tokens, width = tokens_of(work), indexer.heads * indexer.head_dim
    yield gemm(
        "indexer",
        tokens,
        parameters,
        query_width + width,
        layers.count,
        storage_of(scenario, "attention", layers),
        shards=1.0,
    )
    ratio = layers.compressed.ratio if layers.compressed is not None else None
    with scope("index_scores"):
        scored = [transformer.mean_attended_tokens(context=part.context, tokens=part.tokens) for part in work]
        if ratio is not None:
            scored = [latent_attention.compressed_entries(tokens=seen, ratio=ratio) for seen in scored]
        yield Operator(
            name="index_scores",
            kind="attention",
            count=layers.count,
            flops=total(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=seen,
                    heads=indexer.heads,
                    key_dim=indexer.head_dim,
                    value_dim=0.0,
                )
                for part, seen in zip(work, scored, strict=True)
            ),
            weights=0.0,
            cache=total(
                transformer.kv_traffic(
                    sequences=part.sequences,
                    context=part.context,
                    tokens=part.tokens,
                    bytes_per_token=index_bytes_per_token(layers, scenario.deployment.kv_precision),
                )
                for part in work
            ),
            activations=0.0,
            precision=scenario.deployment.kv_precision if layers.attention is not None else "fp8",
            shards=1.0,
        )


def _met_compressed(attention: CompressedAttention, part: Pass) -> _Met:
    """Return what queries meet of a window and of the compressed entries behind it."""
    attended = transformer.mean_attended_in_window(context=part.context, tokens=part.tokens, window=attention.window)
    reach = minimum(part.context, attention.window)
    if attention.ratio is not None:
        entries = latent_attention.compressed_entries(
            tokens=transformer.mean_attended_tokens(context=part.context, tokens=part.tokens), ratio=attention.ratio
        )
        behind = latent_attention.compressed_entries(tokens=part.context, ratio=attention.ratio)
        if attention.indexer is not None:
            entries, behind = (minimum(some, attention.indexer.top_k) for some in (entries, behind))
        attended, reach = attended + entries, reach + behind
    return _Met(attended, reach, part.tokens, attention.heads, attention.head_dim, attention.head_dim)


def compressed_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Compressed attention: latents and compressor run on every chip, queries and outputs by heads.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
    work : Work

    Returns
    -------
    iterator of Operator
    """
    model, part = scenario.model, layers.compressed
    assert part is not None
    tokens, storage = tokens_of(work), storage_of(scenario, "attention", layers)
    parts = compressed_parts(model, part)
    width = part.heads * part.head_dim
    latent = part.q_lora_rank + part.head_dim
    yield gemm("latents", tokens, parts["latents"], model.hidden + latent, layers.count, storage, shards=1.0)
    yield gemm("queries", tokens, parts["queries"], part.q_lora_rank + width, layers.count, storage)
    if part.ratio is not None:
        compress = parts["compress"]
        yield gemm("compress", tokens, compress, model.hidden + part.head_dim, layers.count, storage, shards=1.0)
    if part.indexer is not None:
        yield from _indexer_operators(scenario, layers, work, part.indexer, parts["indexer"], part.q_lora_rank)
    yield _attention(scenario, layers, work, tokens, functools.partial(_met_compressed, part), 2 * width)
    ranks = part.output_groups * part.output_rank
    yield gemm("out_groups", tokens, parts["out_groups"], width + ranks, layers.count, storage)
    yield gemm(
        "out",
        tokens,
        parts["out"],
        ranks + model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )


def recurrent_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Give the operators of a mixer with a constant state.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
    work : Work

    Returns
    -------
    iterator of Operator
    """
    model = scenario.model
    tokens, storage = tokens_of(work), storage_of(scenario, "attention", layers)
    parameters, elements = state_parts(model, layers)
    yield gemm(
        "mixer",
        tokens,
        parameters,
        2 * model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )
    with scope("state"):
        yield Operator(
            name="state",
            kind="attention",
            count=layers.count,
            flops=constant_states.state_flops(tokens=tokens, elements=elements),
            weights=0.0,
            cache=total(
                constant_states.state_traffic(
                    sequences=part.sequences, elements=elements, bytes_per_element=ACTIVATION_BYTES
                )
                for part in work
            ),
            activations=0.0,
            precision=storage.precision,
            cache_shards=cache_shards(scenario, layers),
        )

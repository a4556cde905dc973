"""What a sequence holds in the cache: keys and values, latents, indexer keys and recurrent states."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import latent_attention, transformer
from perfmodel.numerics import minimum, total
from perfmodel.specs.mixers import state_parts, value_width
from perfmodel.specs.types import PRECISION_BYTES, Indexer, Layers, Model, Scenario
from perfmodel.specs.weights import is_recurrent, state_heads

#: Bytes of an activation, and of an element of a recurrent state; engines keep both in 16 bits.
ACTIVATION_BYTES = 2.0
#: Bytes that the indexer of sparse attention keeps of a token: an FP8 key and an FP32 scale.
INDEX_SCALE_BYTES = 4.0


def kv_bytes_per_token_layer(layers: Layers, precision: str) -> Any:
    """Cache bytes that one token leaves in one layer while it is within reach; 0 for a recurrent mixer.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    if layers.attention is not None and (layers.attention.shares_cache or layers.attention.cross is not None):
        return 0.0
    row = row_bytes(layers, precision)
    if layers.compressed is not None and layers.compressed.ratio is not None:
        return row + latent_attention.compressed_entries(tokens=row, ratio=layers.compressed.ratio)
    return row


def row_bytes(layers: Layers, precision: str) -> Any:
    """Return the bytes of one token or entry of the cache that a layer reads, whoever wrote it.

    Parameters
    ----------
    layers : Layers
    precision : str

    Returns
    -------
    Number
        Bytes [B].
    """
    element = PRECISION_BYTES[precision]
    if (attention := layers.attention) is not None:
        return transformer.kv_bytes_per_token(
            kv_heads=attention.kv_heads,
            key_dim=attention.head_dim,
            value_dim=value_width(attention),
            bytes_per_element=element,
        )
    if (mla := layers.mla) is not None:
        if mla.indexer is not None and precision == "fp8":
            return latent_attention.scaled_latent_bytes(kv_lora_rank=mla.kv_lora_rank, rope_dim=mla.qk_rope_head_dim)
        return transformer.kv_bytes_per_token(
            kv_heads=1.0, key_dim=mla.kv_lora_rank, value_dim=mla.qk_rope_head_dim, bytes_per_element=element
        )
    if (compressed := layers.compressed) is not None:
        if precision == "fp8":
            plain = compressed.head_dim - compressed.rope_dim
            return latent_attention.scaled_latent_bytes(kv_lora_rank=plain, rope_dim=compressed.rope_dim)
        return transformer.kv_bytes_per_token(
            kv_heads=1.0, key_dim=compressed.head_dim, value_dim=0.0, bytes_per_element=element
        )
    return 0.0


def indexer_of(layers: Layers) -> Indexer | None:
    """Return the indexer of a layer that keeps keys of its own.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Indexer or None
    """
    part = layers.mla or layers.attention or layers.compressed
    return part.indexer if part is not None and part.indexer is not None and not part.indexer.shared else None


def index_bytes_per_token(layers: Layers, precision: str) -> Any:
    """Bytes that an indexer keeps of one token in one layer; 0 where there is none.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    precision : str
        Of the cache; only an indexer of blocks keeps its keys in that.

    Returns
    -------
    Number
        Bytes [B].
    """
    indexer = indexer_of(layers)
    if indexer is None:
        return 0.0
    if layers.attention is not None:
        return indexer.head_dim * PRECISION_BYTES[precision]
    key = indexer.head_dim + INDEX_SCALE_BYTES
    if layers.compressed is not None:
        assert layers.compressed.ratio is not None
        return latent_attention.compressed_entries(tokens=key, ratio=layers.compressed.ratio)
    return key


def kv_bytes_per_token(model: Model, precision: str) -> Any:
    """Cache bytes that one token leaves in the whole model while it is within every window, keys of indexers apart.

    Parameters
    ----------
    model : Model
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    return total(layers.count * kv_bytes_per_token_layer(layers, precision) for layers in model.layers)


def held_tokens(layers: Layers, tokens: Any) -> Any:
    """Return the tokens of a sequence that one layer's cache holds: a window stops growing.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the sequence [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    if layers.attention is not None and layers.attention.sliding is not None:
        return minimum(tokens, layers.attention.sliding.window)
    if (compressed := layers.compressed) is not None:
        held = minimum(tokens, compressed.window)
        if compressed.ratio is None:
            return held
        return held + latent_attention.compressed_entries(tokens=tokens, ratio=compressed.ratio)
    return tokens


def request_cache(scenario: Scenario, layers: Layers, tokens: Any) -> Any:
    """Cache and state of one request of so many tokens in one layer, whole group [B].

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the request [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    return sequence_cache(scenario.model, layers, tokens, scenario.deployment.kv_precision)


def sequence_cache(model: Model, layers: Layers, tokens: Any, precision: str) -> Any:
    """Cache and state of one sequence of so many tokens in one layer [B].

    Parameters
    ----------
    model : Model
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the sequence [1].
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    if is_recurrent(layers):
        return state_parts(model, layers)[1] * ACTIVATION_BYTES
    if layers.attention is not None and layers.attention.cross is not None:
        return layers.attention.cross * row_bytes(layers, precision)
    row = row_bytes if layers.compressed is not None else kv_bytes_per_token_layer
    cache = held_tokens(layers, tokens) * row(layers, precision)
    if indexer_of(layers) is not None:
        cache = cache + tokens * index_bytes_per_token(layers, precision)
    return cache


def grows_evenly(layers: Layers) -> bool:
    """Whether every token of a sequence adds as much to the cache of a layer as any other; no cache grows evenly too.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    bool
    """
    attention = layers.attention
    bounded = attention is not None and (attention.sliding is not None or attention.cross is not None)
    return not (is_recurrent(layers) or bounded or layers.compressed is not None)


def cache_shards(scenario: Scenario, layers: Layers) -> Any:
    """Return the whole cache of a layer over that of a chip: its ranks, one a core, split it by KV heads.

    Latents have no heads, so every rank holds them.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Parts [1].
    """
    cores = scenario.system.cores
    ranks = scenario.deployment.tp * cores
    if layers.attention is not None:
        return transformer.kv_shards(tp=ranks, kv_heads=layers.attention.kv_heads) / cores
    if is_recurrent(layers):
        return transformer.kv_shards(tp=ranks, kv_heads=state_heads(layers)) / cores
    return 1.0 / cores

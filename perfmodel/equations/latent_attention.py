"""Latent attention, its indexer and compressed caches: parameters and entries."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number

_MLA = "DeepSeek-V2, arXiv:2405.04434, section 2.1"


_DSA = "DeepSeek-V3.2, arXiv:2512.02556, section 2.1"


@equation(symbol=r"N_{a}", unit="1", source=_MLA)
def mla_down_parameters(*, hidden: Number, q_lora_rank: Number, kv_lora_rank: Number, rope_dim: Number) -> Any:
    r"""Weights that project a token to its query latent and its key-value latent.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    q_lora_rank, kv_lora_rank : Number
        Widths of the two latents [1].
    rope_dim : Number
        Width of the shared rotary key [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return hidden * (q_lora_rank + kv_lora_rank + rope_dim)


@equation(symbol=r"N_{qb}", unit="1", source=_MLA)
def mla_query_parameters(*, width: Number, heads: Number, nope_dim: Number, rope_dim: Number) -> Any:
    r"""Weights that make the queries of all heads.

    Parameters
    ----------
    width : Number
        Width of the query latent, or of the model where there is none [1].
    heads : Number
        Query heads [1].
    nope_dim, rope_dim : Number
        Width of a query without and with rotary embedding [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return width * heads * (nope_dim + rope_dim)


@equation(symbol=r"N_{kvb}", unit="1", source=_MLA)
def mla_up_parameters(*, kv_lora_rank: Number, heads: Number, nope_dim: Number, v_dim: Number) -> Any:
    r"""Weights between the key-value latent and the heads; absorbed into queries and outputs while decoding.

    Parameters
    ----------
    kv_lora_rank : Number
        Width of the latent [1].
    heads : Number
        Heads [1].
    nope_dim, v_dim : Number
        Width of a key without rotary embedding, and of a value [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return kv_lora_rank * heads * (nope_dim + v_dim)


@equation(symbol=r"N_{idx}", unit="1", source=_DSA)
def indexer_parameters(*, hidden: Number, q_lora_rank: Number, heads: Number, head_dim: Number) -> Any:
    r"""Weights of the indexer of one layer: queries, one key, its normalisation, and a weight a head.

    Parameters
    ----------
    hidden, q_lora_rank : Number
        Width of the model and of the query latent [1].
    heads, head_dim : Number
        Heads of the indexer and their width [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return q_lora_rank * heads * head_dim + hidden * head_dim + 2 * head_dim + hidden * heads


_V4 = "DeepSeek-V4 in transformers 5.24: modeling_deepseek_v4.py"


@equation(symbol=r"N_{c}", unit="1", source=_V4)
def compressor_parameters(*, hidden: Number, head_dim: Number, ratio: Number, overlap: Number) -> Any:
    r"""Weights that compress so many tokens into one entry of the cache: entry, gate, positions, normalisation.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    head_dim : Number
        Width of an entry [1].
    ratio : Number
        Tokens of an entry [1].
    overlap : Number
        Spans that meet in one entry: 2 where neighbours overlap, else 1 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return overlap * head_dim * (2 * hidden + ratio) + head_dim


@equation(symbol=r"n_{c}", unit="1", source=_V4)
def compressed_entries(*, tokens: Number, ratio: Number) -> Any:
    r"""Entries that so many tokens leave in a compressed cache.

    Parameters
    ----------
    tokens : Number
        Tokens of the sequence [1].
    ratio : Number
        Tokens of an entry [1].

    Returns
    -------
    Number
        Entries; the last one is counted by its part [1].
    """
    return tokens / ratio


@equation(symbol=r"m_{lat}", unit="B", source="FlashMLA: FP8 latents, an FP32 scale for 128, BF16 keys")
def scaled_latent_bytes(*, kv_lora_rank: Number, rope_dim: Number) -> Any:
    r"""Cache of one token in one layer of latent attention where sparse attention reads it in FP8.

    Parameters
    ----------
    kv_lora_rank : Number
        Rank of the latents [1].
    rope_dim : Number
        Width of the rotated key [1].

    Returns
    -------
    Number
        Size [B].
    """
    return kv_lora_rank + 4 * kv_lora_rank / 128 + 2 * rope_dim

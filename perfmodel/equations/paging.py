"""A cache in blocks: how many a request holds, and how many requests fit."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.equations.memory import BUDGET
from perfmodel.numerics import Number, ceil_div, floor, maximum, minimum


@equation(symbol=r"n_{blk}", unit="1", source="paged caches hold whole blocks")
def kv_blocks(*, room: Number, block_bytes: Number) -> Any:
    r"""Blocks that fit the pool.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    block_bytes : Number
        One block in all layers of the chip [B].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return floor(maximum(0.0, room) / block_bytes)


@equation(symbol=r"b_{req}", unit="1", source="paged caches hold whole blocks")
def request_blocks(*, tokens: Number, block: Number) -> Any:
    r"""Blocks of one sequence in a layer that keeps every token.

    Parameters
    ----------
    tokens : Number
        Length of the sequence [1].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return ceil_div(tokens, block)


@equation(symbol=r"b_{win}", unit="1", source="vLLM, SlidingWindowSpec: a window straddles one more block")
def windowed_blocks(*, tokens: Number, window: Number, block: Number) -> Any:
    r"""Blocks of one sequence in a layer that looks back a window only.

    Parameters
    ----------
    tokens : Number
        Length of the sequence [1].
    window : Number
        Tokens that the layer looks back [1].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return minimum(ceil_div(tokens, block), ceil_div(window, block) + 1)


@equation(symbol=r"x", unit="1", source="vLLM, get_max_concurrency_for_kv_cache_config")
def max_concurrency(*, room: Number, per_request: Number) -> Any:
    r"""Requests that fit, with a fraction, as vLLM logs it.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    per_request : Number
        Cache of one request on a chip [B].

    Returns
    -------
    Number
        Requests [1].
    """
    return maximum(0.0, room) / per_request


@equation(symbol=r"T_{kv}", unit="1", source="vLLM: tokens := int(concurrency * max_model_len) where layers differ")
def kv_capacity(*, concurrency: Number, tokens: Number) -> Any:
    r"""Tokens of cache that requests of one length can use.

    Parameters
    ----------
    concurrency : Number
        Requests that fit, with a fraction [1].
    tokens : Number
        Their length [1].

    Returns
    -------
    Number
        Tokens, a whole number [1].
    """
    return floor(concurrency * tokens)


@equation(symbol=r"N_{max}", unit="1", source=BUDGET)
def longest_sequence(*, room: Number, bytes_per_token: Number, block: Number) -> Any:
    r"""Longest sequence that fits alone, in whole blocks.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    bytes_per_token : Number
        Cache of one token on a chip [B].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return floor(maximum(0.0, room) / (bytes_per_token * block)) * block


@equation(symbol=r"E_{chip}", unit="1", source="expert parallelism spreads whole experts")
def experts_per_chip(*, experts: Number, ep: Number) -> Any:
    r"""Routed experts that a chip holds of one layer.

    Parameters
    ----------
    experts : Number
        Routed experts of the layer [1].
    ep : Number
        Expert-parallel degree [1].

    Returns
    -------
    Number
        Experts on the fullest chip [1].
    """
    return ceil_div(experts, ep)


@equation(symbol=r"n_{held}", unit="1", source="mean over the life of a request that grows by pages")
def paged_tokens(*, prompt: Number, output: Number, page: Number) -> Any:
    r"""Tokens of cache that a request holds on average while it decodes.

    Parameters
    ----------
    prompt, output : Number
        Tokens of the request [1].
    page : Number
        Tokens of a page, of which the last one is half empty on average [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return prompt + output / 2 + page / 2

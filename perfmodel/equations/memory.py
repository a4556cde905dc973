"""Weights, KV cache, and what fits."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, ceil_div, floor, maximum, minimum

BUDGET = "engines' budget: utilisation of the visible memory less weights and reserve"


@equation(symbol=r"W", unit="B", source="parameters times bytes an element")
def weight_bytes(*, parameters: Number, bytes_per_parameter: Number) -> Any:
    r"""Size of a tensor.

    Parameters
    ----------
    parameters : Number
        Elements [1].
    bytes_per_parameter : Number
        Of the storage precision, block scales included [B].

    Returns
    -------
    Number
        Size [B].
    """
    return parameters * bytes_per_parameter


@equation(symbol=r"W_{chip}", unit="B", source="pipeline stages hold whole layers; embedding and head sit on the ends")
def weight_bytes_per_chip(*, layer_bytes: Number, end_bytes: Number, tp: Number) -> Any:
    r"""Weights on a chip of the fullest pipeline stage.

    Parameters
    ----------
    layer_bytes : Number
        Its share of the layers of the stage [B].
    end_bytes : Number
        Embedding and head weights of the stage [B].
    tp : Number
        Tensor-parallel degree [1].

    Returns
    -------
    Number
        Size [B].
    """
    return layer_bytes + end_bytes / tp


@equation(symbol=r"M", unit="B", source="what a driver showed over the label, taken to hold at other capacities")
def visible_memory(*, capacity: Number, share: Number) -> Any:
    r"""Memory of a chip that the driver shows.

    Parameters
    ----------
    capacity : Number
        On the label [B].
    share : Number
        What the driver shows over it; more than 1 where a label of GB means GiB [1].

    Returns
    -------
    Number
        Size [B].
    """
    return capacity * share


@equation(symbol=r"M_{kv}", unit="B", source=BUDGET)
def kv_room(*, visible: Number, utilisation: Number, weights: Number, reserved: Number) -> Any:
    r"""Memory of a chip that is left for the KV cache; negative where the weights do not fit.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    utilisation : Number
        Share of it that the engine may take [1].
    weights : Number
        Weights on the chip [B].
    reserved : Number
        Activations, communication buffers and graphs [B].

    Returns
    -------
    Number
        Room [B].
    """
    return utilisation * visible - weights - reserved


@equation(symbol=r"m_{tok}", unit="B", source="a request holds whole blocks")
def growth_per_token(*, longer: Number, held_layers: Number, tokens: Number) -> Any:
    r"""Cache that a chip adds for one more token of a request at its length.

    Parameters
    ----------
    longer : Number
        Cache of a request so many tokens longer [B].
    held_layers : Number
        Cache of the request [B].
    tokens : Number
        Tokens by which it is longer [1].

    Returns
    -------
    Number
        Size a token [B].
    """
    return (longer - held_layers) / tokens


@equation(symbol=r"m_{fix}", unit="B", source="windows and states stop growing")
def fixed_part(*, held_layers: Number, growth: Number, tokens: Number) -> Any:
    r"""Cache of a request on a chip that does not grow with its length: full windows and states.

    Parameters
    ----------
    held_layers : Number
        Cache of the request [B].
    growth : Number
        Of one more token [B].
    tokens : Number
        Tokens of the request in whole blocks [1].

    Returns
    -------
    Number
        Size [B].
    """
    return maximum(0.0, held_layers - growth * tokens)


@equation(symbol=r"m_{req}", unit="B", source="a request holds its prompt and its output until it ends")
def request_kv_bytes(*, cache: Number, layers: Number, shards: Number) -> Any:
    r"""Cache of one request at its full length on one chip.

    Parameters
    ----------
    cache : Number
        Cache and state of the request in one layer [B].
    layers : Number
        Layers of that kind on the chip [1].
    shards : Number
        Parts into which a layer's cache is split [1].

    Returns
    -------
    Number
        Size [B].
    """
    return cache * layers / shards


@equation(symbol=r"c_{max}", unit="1", source=BUDGET)
def concurrency_cap(*, room: Number, per_request: Number) -> Any:
    r"""Requests of full length that fit a replica.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    per_request : Number
        Cache of one request on a chip [B].

    Returns
    -------
    Number
        Requests, a whole number [1].
    """
    return floor(maximum(0.0, room) / per_request)


@equation(symbol=r"c_{run}", unit="1", source="requests beyond the cap wait")
def running_requests(*, offered: Number, cap: Number) -> Any:
    r"""Requests in service in one replica.

    Parameters
    ----------
    offered : Number
        Concurrent requests sent to the replica [1].
    cap : Number
        Requests that fit [1].

    Returns
    -------
    Number
        Requests [1].
    """
    return minimum(offered, cap)


@equation(symbol=r"M_{SRAM}", unit="B", source="SHIP: 72 LPUs hold 16.56 GB, 136 hold 31.28 GB")
def partition_capacity(*, chips: Number, capacity: Number) -> Any:
    r"""Memory of a group of chips that act as one.

    Parameters
    ----------
    chips : Number
        Chips [1].
    capacity : Number
        Memory of one chip [B].

    Returns
    -------
    Number
        Size [B].
    """
    return chips * capacity


@equation(symbol=r"w_{tile}", unit="1", source="a dimension split over chips is padded to whole tiles")
def tile_waste(*, dimension: Number, shards: Number, tile: Number) -> Any:
    r"""Share of the matrix unit that pads a sharded dimension.

    Parameters
    ----------
    dimension : Number
        Rows or columns of the whole matrix [1].
    shards : Number
        Chips that share it [1].
    tile : Number
        Rows or columns of the matrix unit [1].

    Returns
    -------
    Number
        0 where every tile is full [1].
    """
    return 1 - dimension / shards / (ceil_div(dimension / shards, tile) * tile)


# --- budgets of the engines --------------------------------------------------------------------------------------


# --- blocks ------------------------------------------------------------------------------------------------------

"""Reuse of the KV cache of a prefix."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number


@equation(symbol=r"t_{hit}", unit="s", source="Amdahl's law")
def time_with_hits(*, time: Number, hit_rate: Number, prefill_share: Number) -> Any:
    r"""Time of work with prefix hits, which save prefill and nothing else.

    Parameters
    ----------
    time : Number
        Of the same work without a cache [s].
    hit_rate : Number
        Share of the prompt tokens found in the cache [1].
    prefill_share : Number
        Share of prefill in the work without a cache [1].

    Returns
    -------
    Number
        Time [s].
    """
    return time * (1 - hit_rate * prefill_share)


@equation(symbol=r"t_{load}", unit="s", source="size over bandwidth")
def reload_time(*, size: Number, bandwidth: Number) -> Any:
    r"""Time to load a prefix instead of computing it.

    Parameters
    ----------
    size : Number
        KV cache of the prefix [B].
    bandwidth : Number
        Of the link to the tier that holds it [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return size / bandwidth


@equation(symbol=r"b_{load}", unit="B/s", source="size over time")
def reload_bandwidth(*, size: Number, time: Number) -> Any:
    r"""Bandwidth that a load reached.

    Parameters
    ----------
    size : Number
        KV cache of the prefix [B].
    time : Number
        Time that loading it took [s].

    Returns
    -------
    Number
        Bandwidth [B/s].
    """
    return size / time

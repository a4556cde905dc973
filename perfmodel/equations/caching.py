"""Reuse of the KV cache of a prefix."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, exp


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


_CHE = "Che et al. 2002, doi:10.1109/JSAC.2002.801752"


@equation(symbol=r"h(\lambda)", unit="1", source=f"{_CHE}; exact for a timer that every hit renews")
def renewed_hit_rate(*, rate: Number, time: Number) -> Any:
    r"""Chance that an entry asked for at random times is still held when it is asked for again.

    Parameters
    ----------
    rate : Number
        How often the entry is asked for [1/s].
    time : Number
        How long it is held after the last time: a time to live, or the characteristic time of an LRU cache [s].

    Returns
    -------
    Number
        Share, also the share of time in which the entry is held [1].
    """
    return 1 - exp(-rate * time)


@equation(symbol=r"\bar{t}_{first}", unit="s", source="mean over where the prefix is found")
def tiered_first_token(*, near_share: Number, far_share: Number, near: Number, far: Number, missed: Number) -> Any:
    r"""Mean time to first token over two tiers of a prefix cache.

    Parameters
    ----------
    near_share, far_share : Number
        Share of requests whose prefix lies in the near and in the far tier; the others miss [1].
    near, far, missed : Number
        Time to first token of each kind [s].

    Returns
    -------
    Number
        Time [s].
    """
    return near_share * near + far_share * far + (1 - near_share - far_share) * missed

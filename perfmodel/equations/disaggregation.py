"""Prefill and decode, or attention and feed-forward, on machines of their own."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, maximum, minimum


@equation(symbol=r"t_{kv}", unit="s", source="size over the slower side's bandwidth")
def transfer_time(*, size: Number, sending: Number, receiving: Number, latency: Number) -> Any:
    r"""Time to move the KV cache of a prompt from one replica to another.

    Parameters
    ----------
    size : Number
        Cache of the prompt, all chips together [B].
    sending, receiving : Number
        Bandwidth of each side, all its chips together [B/s].
    latency : Number
        Before the first byte arrives [s].

    Returns
    -------
    Number
        Time [s].
    """
    return latency + size / minimum(sending, receiving)


@equation(symbol=r"r_{pd}", unit="1", source="both pools just keep up with the same rate")
def pool_ratio(*, prefill_rate: Number, decode_rate: Number) -> Any:
    r"""Replicas that prefill for each one that decodes.

    Parameters
    ----------
    prefill_rate : Number
        Prompts that a replica of the one pool can take in [1/s].
    decode_rate : Number
        Requests that a replica of the other pool can finish [1/s].

    Returns
    -------
    Number
        Ratio [1].
    """
    return decode_rate / prefill_rate


@equation(symbol=r"t_{split}", unit="s", source="one batch in turn; two batches keep both sides busy")
def split_step(*, attention: Number, feed_forward: Number, exchange: Number, batches: Number) -> Any:
    r"""Decode step of a batch whose attention and feed-forward blocks run on different machines.

    Parameters
    ----------
    attention, feed_forward : Number
        Time of either side for one batch [s].
    exchange : Number
        Time on the links between them, all layers together [s].
    batches : Number
        Batches that take turns [1].

    Returns
    -------
    Number
        Time between two tokens of a sequence [s].
    """
    return maximum(attention + feed_forward + exchange, batches * maximum(attention, feed_forward))

"""Definitions of the metrics that benchmarks report under one name."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, maximum


@equation(symbol=r"TPOT", unit="s", source="the definition of vLLM and InferenceX: the first token is not in it")
def time_per_further_token(*, latency: Number, ttft: Number, output: Number) -> Any:
    r"""Time per output token after the first; 0 where there is only one.

    Parameters
    ----------
    latency : Number
        From request to last token [s].
    ttft : Number
        Time to first token [s].
    output : Number
        Output tokens [1].

    Returns
    -------
    Number
        Time [s].
    """
    return (latency - ttft) / maximum(1, output - 1)


@equation(symbol=r"t_{out}", unit="s", source="the definition of genai-perf and configiq: the first token is in it")
def time_per_any_token(*, latency: Number, output: Number) -> Any:
    r"""Time of a whole request by its output tokens; not to be compared with TPOT.

    Parameters
    ----------
    latency : Number
        From request to last token [s].
    output : Number
        Output tokens [1].

    Returns
    -------
    Number
        Time [s].
    """
    return latency / output


@equation(symbol=r"n_{run}", unit="1", source="Little's law: streams that run each at the rate of one alone")
def effective_streams(*, rate: Number, alone: Number) -> Any:
    r"""Streams that a rate amounts to; where it stays below what is offered, the others queue.

    Parameters
    ----------
    rate : Number
        Output tokens of all streams [1/s].
    alone : Number
        Output tokens of one stream that runs alone [1/s].

    Returns
    -------
    Number
        Streams [1].
    """
    return rate / alone


@equation(symbol=r"F", unit="FLOP/s", source="a multiply and an add a parameter that a token meets")
def achieved_rate(*, active_parameters: Number, tokens_per_s: Number) -> Any:
    r"""Arithmetic that a rate of tokens needs, attention left out.

    Parameters
    ----------
    active_parameters : Number
        Parameters that one token meets [1].
    tokens_per_s : Number
        Tokens of all streams [1/s].

    Returns
    -------
    Number
        Rate [FLOP/s].
    """
    return 2 * active_parameters * tokens_per_s


@equation(symbol=r"s_{P}", unit="1", source="work of a request in either phase")
def prefill_share(*, prefill: Number, decode: Number) -> Any:
    r"""Share of prefill in the work of a request.

    Parameters
    ----------
    prefill : Number
        Chip time of prefill of a request [s].
    decode : Number
        Chip time of decoding of a request [s].

    Returns
    -------
    Number
        Share [1].
    """
    return prefill / (prefill + decode)


@equation(symbol=r"D{:}P", unit="1", source="both groups are busy when their chips are as their work")
def decode_chips_per_prefill_chip(*, prefill: Number, decode: Number) -> Any:
    r"""Decoding chips that keep one prefilling chip busy, before what batching gains.

    Parameters
    ----------
    prefill : Number
        Chip time of prefill of a request [s].
    decode : Number
        Chip time of decoding of a request [s].

    Returns
    -------
    Number
        Chips [1].
    """
    return decode / prefill

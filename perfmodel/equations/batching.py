"""Machines that prefill and decode in turns: rates of a batch, its cycle, the variance of a life."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import (
    Number,
    floor,
    geometric_sum,
    maximum,
)

_CYCLE = "gated cycles: what arrives during a step is prefilled in the next one"


@equation(
    symbol=r"\mu_B",
    unit="1/s",
    source="work conservation: a life is an own prefill and a token a step, slowed by others",
)
def batch_rate(*, running: Number, output: Number, step: Number, own: Number, prefilling: Number) -> Any:
    r"""Requests that a replica finishes while so many run.

    Parameters
    ----------
    running : Number
        Requests in the replica, at least 1 [1].
    output : Number
        Mean output tokens a request [1].
    step : Number
        Time of a decode step, averaged over a life whose first step is the prefill [s].
    own : Number
        Time of the own prefill and of what it draws after itself [s].
    prefilling : Number
        Share of time that the replica prefills, below 1 [1].

    Returns
    -------
    Number
        Rate [1/s].
    """
    others = prefilling * (running - 1) / running
    return running / (output * step / (1 - others) + own)


@equation(symbol=r"X_B", unit="1/s", source="work conservation at saturation")
def saturated_rate(*, running: Number, output: Number, step: Number, occupancy: Number) -> Any:
    r"""Requests that a replica finishes with a queue before it, so that each end admits another one.

    Parameters
    ----------
    running : Number
        Requests in the replica, at least 1 [1].
    output : Number
        Mean output tokens a request [1].
    step : Number
        Time of a decode step, averaged over a life whose first step is the prefill [s].
    occupancy : Number
        Time of one prefill [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return running / (output * step + running * occupancy)


@equation(symbol=r"x_{pf}", unit="1/s", source="each step takes in a budget of prompt tokens")
def prefill_rate(*, occupancy: Number, step: Number, prompt: Number, budget: Number) -> Any:
    r"""Prompts that a replica can take in, if steps of decoding go on between full steps of prompt tokens.

    Parameters
    ----------
    occupancy : Number
        Time of one prefill [s].
    step : Number
        Time of a decode step [s].
    prompt : Number
        Mean prompt tokens [1].
    budget : Number
        Prompt tokens of a step [1].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return 1 / (occupancy + step * prompt / budget)


@equation(symbol=r"\bar{C}", unit="s", source=_CYCLE)
def cycle_time(*, step: Number, prefilling: Number) -> Any:
    r"""Mean time between two tokens, the prefills in between included.

    Parameters
    ----------
    step : Number
        Time of a decode step [s].
    prefilling : Number
        Share of time that the replica prefills, below 1 [1].

    Returns
    -------
    Number
        Time [s].
    """
    return step / (1 - prefilling)


@equation(symbol=r"\sigma_C^2", unit="s2", source=_CYCLE)
def cycle_variance(*, cycle: Number, rate: Number, prefill_square: Number, prefilling: Number) -> Any:
    r"""Variance of the time between two tokens: a long one collects more arrivals for the next.

    Parameters
    ----------
    cycle : Number
        Mean time between two tokens [s].
    rate : Number
        Arrivals [1/s].
    prefill_square : Number
        Variance of a prefill plus its mean squared times the squared coefficient of variation of arrivals [s2].
    prefilling : Number
        Share of time that the replica prefills, below 1 [1].

    Returns
    -------
    Number
        Variance [s2].
    """
    return rate * cycle * prefill_square / (1 - prefilling * prefilling)


@equation(symbol=r"\sigma_k^2", unit="s2", source="variance of a sum of an autoregressive sequence of order 1")
def life_variance(*, variance: Number, cycles: Number, prefilling: Number) -> Any:
    r"""Variance of the time of so many cycles in a row, each the seed of the next.

    Parameters
    ----------
    variance : Number
        Of one cycle [s2].
    cycles : Number
        Cycles, at least 1 [1].
    prefilling : Number
        Share of time that the replica prefills, below 1 [1].

    Returns
    -------
    Number
        Variance [s2].
    """
    spare = 1 - prefilling
    return variance * (cycles * (1 + prefilling) / spare - 2 * prefilling * geometric_sum(prefilling, cycles) / spare)


@equation(symbol=r"t_{aftereffect}", unit="s", source=_CYCLE)
def prefill_aftereffect(*, first: Number, cycle: Number, cycles: Number, prefilling: Number) -> Any:
    r"""Time by which the step of a request's own prefill lengthens the steps after it.

    The step of a prefill is longer than others, so that more prompts arrive during it; their step is longer too.

    Parameters
    ----------
    first : Number
        Time of the step that holds the own prefill [s].
    cycle : Number
        Mean time between two tokens [s].
    cycles : Number
        Steps that follow, at least 1 [1].
    prefilling : Number
        Share of time that the replica prefills, below 1 [1].

    Returns
    -------
    Number
        Time [s].
    """
    return (first - cycle) * prefilling * geometric_sum(prefilling, cycles)


@equation(
    symbol=r"B_{kv}", unit="1", source="the request at the head waits for room, so that a part of the pool lies idle"
)
def length_biased_cap(*, pool: Number, running: Number, idle: Number) -> Any:
    r"""Requests that a pool holds, where long ones stay longer and the next one waits until it fits.

    Parameters
    ----------
    pool : Number
        Cache of a replica [B].
    running : Number
        Cache of a request in progress: the mean over requests weighted by their output [B].
    idle : Number
        Cache that lies idle because the next request does not fit [B].

    Returns
    -------
    Number
        Requests, a whole number [1].
    """
    return floor(maximum(0.0, pool - idle) / running)

"""Reuse of the KV cache of a prefix."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, exp, log, maximum, minimum, only_if, sqrt


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


_TWO_MOMENTS = "ours: what others touch in a gap as a normal law of its two moments, on Che et al. 2002"
_TAIL = "Abramowitz, Stegun 1964, 26.2.17, error 7.5e-8"


def _shortfall(z: Any) -> Any:
    r"""Mean of what a standard normal variable falls short of z: z \Phi(z) + \varphi(z)."""
    size = maximum(z, -z)
    t = 1 / (1 + 0.2316419 * size)
    density = exp(-size * size / 2) / 2.5066282746310002
    beyond = density * t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    # At -z it falls short by z less: one tail serves both signs.
    return density - size * beyond + maximum(z, 0.0)


@equation(symbol=r"k(L)", unit="1", source=f"{_TWO_MOMENTS}; {_TAIL}")
def kept_tokens(*, context: Number, capacity: Number, mean: Number, variance: Number) -> Any:
    r"""Tokens of a context that an LRU cache, which evicts from the tail, still holds when it is asked for again.

    Parameters
    ----------
    context : Number
        Tokens that could be used again [1].
    capacity : Number
        Tokens that the cache holds [1].
    mean, variance : Number
        Of the distinct tokens that all others touch in the gap [1].

    Returns
    -------
    Number
        Mean tokens kept, from 0 to the context [1].
    """
    spread = sqrt(maximum(variance, 1e-12))
    return spread * (_shortfall((capacity - mean) / spread) - _shortfall((capacity - context - mean) / spread))


@equation(
    symbol=r"k_\rho", unit="1", source="ours: LRU under rounds in random order; ranks of a client are u and then v"
)
def round_kept(*, fit: Number) -> Any:
    r"""Share of its context that a client finds where every client asks once a round, in an order drawn anew.

    Parameters
    ----------
    fit : Number
        Capacity over what all clients hold in the middle of the round [1].

    Returns
    -------
    Number
        Mean share of what could be found [1].
    """
    held = minimum(fit, 1.0)
    out = maximum(1 - held, 1e-12)
    return held + out * log(out)


@equation(symbol=r"h_r", unit="1", source="ours: each round adds as much to every context")
def round_hit_rate(*, round: Number, fit: Number) -> Any:
    r"""Token hit rate of a round in which every client asks once, in an order drawn anew.

    Parameters
    ----------
    round : Number
        Number of the round, from 1 [1].
    fit : Number
        Capacity over what all clients hold in the middle of the round: C / (N (r - 1/2) q) [1].

    Returns
    -------
    Number
        Share of the prompt tokens [1].
    """
    return (round - 1) / round * round_kept(fit=fit)


@equation(symbol=r"p_j", unit="1", source="geometric law of the last visit")
def visited_calls_ago(*, replicas: Number, calls: Number) -> Any:
    r"""Chance that the last call of a session that met this replica was so many calls ago, at random routing.

    Parameters
    ----------
    replicas : Number
        Replicas [1].
    calls : Number
        How many calls ago, from 1 [1].

    Returns
    -------
    Number
        Probability [1].
    """
    return (1 - 1 / replicas) ** (calls - 1) / replicas


@equation(symbol=r"t_{load}(n)", unit="s", source="start-up and size over bandwidth")
def load_time(*, start: Number, size: Number, bandwidth: Number) -> Any:
    r"""Time to load a prefix from another tier.

    Parameters
    ----------
    start : Number
        Time before the first byte [s].
    size : Number
        KV cache of the prefix [B].
    bandwidth : Number
        Of the link to the tier [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return start + size / bandwidth


@equation(symbol=r"n^*", unit="1", source="where loading takes as long as computing, at a constant time a token")
def crossover_tokens(*, start: Number, compute: Number, load: Number) -> Any:
    r"""Tokens from which on loading a prefix is faster than computing it again.

    Parameters
    ----------
    start : Number
        Time before the first byte of a load [s].
    compute, load : Number
        Time of a token, computed and loaded [s].

    Returns
    -------
    Number
        Tokens; NaN where loading a token is slower than computing it [1].
    """
    return start / only_if(compute - load, compute - load)


@equation(symbol=r"X_{mix}", unit="1/s", source="one resource for both: harmonic mean")
def mixed_rate(*, loaded: Number, computing: Number, loading: Number) -> Any:
    r"""Tokens a second where a share is loaded and the rest computed, one after the other.

    Parameters
    ----------
    loaded : Number
        Share of the tokens that is loaded [1].
    computing, loading : Number
        Tokens a second of each alone [1/s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return 1 / ((1 - loaded) / computing + loaded / loading)


@equation(
    symbol=r"X",
    unit="1/s",
    source="response law of a closed loop; Lazowska et al. 1984, Quantitative System Performance",
)
def finite_source_rate(*, sessions: Number, response: Number, think: Number) -> Any:
    r"""Calls a second of sessions that think between their calls.

    Parameters
    ----------
    sessions : Number
        Live sessions [1].
    response : Number
        Mean time that a call takes [s].
    think : Number
        Mean time between the end of a call and the next one [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return sessions / (response + think)


@equation(
    symbol=r"W",
    unit="s",
    source="Pollaczek 1930, Khinchine 1932, with fewer calls while it works; one customer less: Schweitzer 1979",
)
def finite_source_wait(*, rate: Number, service: Number, variation: Number, sessions: Number, flowing: Number) -> Any:
    r"""Mean wait before one server for the calls of a finite number of sessions.

    While the server is busy only sessions that think make calls, and those soon are fewer.

    Parameters
    ----------
    rate : Number
        Calls a second [1/s].
    service : Number
        Mean time of service [s].
    variation : Number
        Its squared coefficient of variation [1].
    sessions : Number
        Live sessions [1].
    flowing : Number
        Rate of calls while the server is busy, over that while it is not [1].

    Returns
    -------
    Number
        Time; without bound where the server cannot keep up [s].
    """
    load = rate * service
    met = (1 - 1 / sessions) * flowing * load / maximum(1 - load * (1 - flowing), 1e-12)
    return met * service * (1 + variation) / 2 / maximum(1 - met, 1e-12)


@equation(
    symbol=r"n_c", unit="1", source="a state cannot be cut: what lies behind the last checkpoint is computed again"
)
def checkpointed_tokens(*, tokens: Number, spacing: Number) -> Any:
    r"""Tokens that a hit gives where recurrent states or windows are kept only at checkpoints.

    Parameters
    ----------
    tokens : Number
        Tokens of the prefix held, not rounded [1].
    spacing : Number
        Tokens between checkpoints [1].

    Returns
    -------
    Number
        Mean tokens: half a spacing is lost [1].
    """
    return maximum(tokens - spacing / 2, 0.0)

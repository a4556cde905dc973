"""Steady state of a closed loop over prompt and output lengths."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, floor, maximum, minimum, only_if

_CONSERVATION = "work conservation of a closed loop: in one life of a request every other one is prefilled once"
_LITTLE = "Little 1961, doi:10.1287/opre.9.3.383"


@equation(symbol=r"\bar{c}_{dec}", unit="1", source="mean over the output tokens")
def mean_decode_context(*, prompt: Number, output: Number) -> Any:
    r"""Tokens in the cache of a sequence, averaged over its decode steps.

    Parameters
    ----------
    prompt, output : Number
        Tokens [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return prompt + output / 2


@equation(symbol=r"\bar{L}", unit="1", source="lengths drawn evenly from (1 - jitter) to 1 of the nominal one")
def mean_length(*, nominal: Number, jitter: Number) -> Any:
    r"""Mean length of prompts or outputs of a benchmark.

    Parameters
    ----------
    nominal : Number
        Longest length [1].
    jitter : Number
        How far below it the shortest one lies [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return nominal * (1 - minimum(1.0, jitter) / 2)


@equation(symbol=r"t_{int}", unit="s", source=_CONSERVATION)
def interference_per_token(*, running: Number, occupancy: Number, output: Number, joining: Number) -> Any:
    r"""Delay of each token, the first one too, by the prefills of the other requests.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    occupancy : Number
        Time that one prefill takes from decoding [s].
    output : Number
        Output tokens a request [1].
    joining : Number
        Steps, in tokens, that a request waits for on average before it joins [1].

    Returns
    -------
    Number
        Time a token [s].
    """
    return maximum(0.0, running - 1) * occupancy / (output + joining)


@equation(symbol=r"t_{bias}", unit="s", source="an arrival finds a long step rather than a short one")
def found_longer(*, running: Number, occupancy: Number, met: Number, step: Number, joining: Number) -> Any:
    r"""Prefill that a request finds in the rest of the step under way, beyond that of half a step on average.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    occupancy : Number
        Time that one prefill takes from decoding [s].
    met : Number
        Prefill of others in a step on average [s].
    step : Number
        Time of a decode step [s].
    joining : Number
        Share of the step under way that a request waits for: a half where it comes at any time, 1 where it comes as a
        step begins [1].

    Returns
    -------
    Number
        Time [s].
    """
    return (1 - joining) * (1 - 1 / maximum(1.0, running)) * met / (met + step) * occupancy


@equation(symbol=r"t_{beside}", unit="s", source=_CONSERVATION)
def prefills_beside(*, running: Number, occupancy: Number, met: Number, found: Number, group: Number) -> Any:
    r"""Time of the other prefills that a prompt waits for, which are at most those of all others.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    occupancy : Number
        Time that one prefill takes from decoding [s].
    met : Number
        Prefill of others in a step on average [s].
    found : Number
        What a request finds beyond it [s].
    group : Number
        Prompts that return together with one's own, at least 1 [1].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(maximum(0.0, running - 1) * occupancy, met + found + (group - 1) * occupancy)


@equation(symbol=r"t_{later}", unit="s", source=_CONSERVATION)
def interference_later(
    *, running: Number, occupancy: Number, beside: Number, output: Number, joining: Number, full: Number
) -> Any:
    r"""Delay of each further token by the prefills of others that were not in the step of one's own.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    occupancy : Number
        Time that one prefill takes from decoding [s].
    beside : Number
        Time of the others' prefills in the step of one's own [s].
    output : Number
        Output tokens a request [1].
    joining : Number
        Steps, in tokens, that a request waits for on average before it joins [1].
    full : Number
        Prefill of a step that is full of prompt tokens: no token waits longer for others [s].

    Returns
    -------
    Number
        Time a token [s].
    """
    rest = maximum(0.0, maximum(0.0, running - 1) * occupancy - beside)
    return minimum(rest / (output - 1 + joining), full)


@equation(symbol=r"t_{full}", unit="s", source="an engine takes a budget of prompt tokens into one step")
def full_prefill(*, occupancy: Number, prompt: Number, budget: Number) -> Any:
    r"""Prefill of a step that is full of prompt tokens.

    Parameters
    ----------
    occupancy : Number
        Time of one prefill [s].
    prompt : Number
        Prompt tokens [1].
    budget : Number
        Tokens of a step [1].

    Returns
    -------
    Number
        Time [s].
    """
    return occupancy * budget / prompt


@equation(symbol=r"P_{new}", unit="1", source="the last token of a prompt is computed, whatever a cache holds")
def computed_prompt(*, prompt: Number, hits: Number) -> Any:
    r"""Prompt tokens that a prefill computes where a prefix cache holds the others.

    Parameters
    ----------
    prompt : Number
        Prompt tokens [1].
    hits : Number
        Share of them that is found in a cache [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return maximum(minimum(1.0, prompt), prompt * (1 - hits))


@equation(symbol=r"n_{pf}", unit="1", source="an engine prefills whole prompts up to its token budget in one step")
def prompts_per_step(*, budget: Number, prompt: Number, running: Number) -> Any:
    r"""Prompts that one step takes in when many wait.

    Parameters
    ----------
    budget : Number
        Tokens of a step [1].
    prompt : Number
        Prompt tokens [1].
    running : Number
        Requests in the replica [1].

    Returns
    -------
    Number
        Prompts [1].
    """
    return minimum(maximum(1.0, floor(budget / prompt)), maximum(1.0, running))


@equation(symbol=r"n_{new}", unit="1", source=_CONSERVATION)
def prompts_together(*, running: Number, output: Number, per_step: Number) -> Any:
    r"""Prompts that a step finds waiting in the long run: as many as requests end in a step.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    output : Number
        Output tokens a request [1].
    per_step : Number
        Prompts that one step can take in [1].

    Returns
    -------
    Number
        Prompts, at least 1 [1].
    """
    return minimum(maximum(1.0, running / output), per_step)


@equation(symbol=r"t_{burst}", unit="s", source="mean place in a queue of all clients that start at once")
def burst_wait(*, running: Number, per_step: Number, occupancy: Number) -> Any:
    r"""Time from a common start to the first token, the own prefill included.

    Parameters
    ----------
    running : Number
        Requests that start together [1].
    per_step : Number
        Prompts that one step takes in [1].
    occupancy : Number
        Time of one prefill [s].

    Returns
    -------
    Number
        Time [s].
    """
    return occupancy * (running + per_step) / 2


@equation(symbol=r"g", unit="1", source="requests of equal length that were prefilled together end and return together")
def prefill_group(*, group: Number, running: Number, jitter: Number, rounds: Number) -> Any:
    r"""Prompts that are prefilled together with one's own in the long run of a benchmark.

    Parameters
    ----------
    group : Number
        Prompts that return together where lengths are fixed [1].
    running : Number
        Requests in the replica [1].
    jitter : Number
        Spread of the lengths; from 0.1 on no groups survive [1].
    rounds : Number
        Prompts over concurrency; over thousands of rounds groups dissolve [1].

    Returns
    -------
    Number
        Prompts, at least 1 [1].
    """
    kept = maximum(0.0, 1 - 10 * jitter) * minimum(1.0, 1000 / rounds)
    return 1 + (minimum(group, maximum(1.0, running)) - 1) * kept


@equation(symbol=r"n_{dec}", unit="1", source="each step lets in a budget of prompt tokens, each prompt for a life")
def decoding_requests(*, running: Number, output: Number, prompt: Number, budget: Number) -> Any:
    r"""Requests that decode together: all that run, or as many as full steps let in during a life.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    output, prompt : Number
        Tokens of a request [1].
    budget : Number
        Prompt tokens of a step [1].

    Returns
    -------
    Number
        Requests, at least 1 [1].
    """
    return minimum(running, maximum(1.0, output * budget / prompt))


def _others(running: Number) -> Any:
    """Return how likely somebody else is in a step: hardly less than 1 from a few requests on."""
    return 1 - 1 / maximum(1.0, running) ** 2


@equation(symbol=r"t_{join}", unit="s", source="a request that arrives during a step waits for the rest of it")
def join_wait(*, running: Number, output: Number, step: Number, joining: Number) -> Any:
    r"""Wait for the running step; none where nothing else decodes.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    output : Number
        Output tokens of each, of which prefill brings the first [1].
    step : Number
        Time of a decode step [s].
    joining : Number
        Share of the step that is waited for on average [1].

    Returns
    -------
    Number
        Time [s].
    """
    return _others(running) * (1 - 1 / output) * step * joining


@equation(symbol=r"t_{ride}", unit="s", source="a prefill shares its step with the decoding of the others")
def shared_step(*, running: Number, output: Number, step: Number) -> Any:
    r"""Decode time inside the step that holds one's own prefill.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    output : Number
        Output tokens of each, of which prefill brings the first [1].
    step : Number
        Time of a decode step [s].

    Returns
    -------
    Number
        Time; 0 where nothing else decodes [s].
    """
    return _others(running) * (1 - 1 / output) * step


@equation(symbol=r"t_{back}", unit="s", source="a front end that sends tokens one by one can be slower than the steps")
def stream_backlog(*, running: Number, per_token: Number, step: Number) -> Any:
    r"""Time a token by which a serial front end falls behind the steps.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    per_token : Number
        Time to send one token of one request [s].
    step : Number
        Time of a step [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, running * per_token - step)


@equation(symbol=r"t_{adm}", unit="s", source=_LITTLE)
def admission_wait(*, offered: Number, running: Number, service: Number) -> Any:
    r"""Wait of a request for room in the KV cache.

    Parameters
    ----------
    offered : Number
        Concurrent requests sent to the replica [1].
    running : Number
        Of them in service [1].
    service : Number
        Time that a request spends in service [s].

    Returns
    -------
    Number
        Time [s].
    """
    return (offered / maximum(1.0, running) - 1) * service


@equation(symbol=r"T_{req}", unit="s", source="TTFT, then a token every TPOT")
def request_latency(*, ttft: Number, tpot: Number, output: Number) -> Any:
    r"""Time from the request to its last token.

    Parameters
    ----------
    ttft, tpot : Number
        Time to first token; time per output token after it [s].
    output : Number
        Output tokens [1].

    Returns
    -------
    Number
        Time [s].
    """
    return ttft + (output - 1) * tpot


@equation(symbol=r"X", unit="1/s", source=_LITTLE)
def requests_per_second(*, concurrency: Number, latency: Number) -> Any:
    r"""Requests that a closed loop finishes.

    Parameters
    ----------
    concurrency : Number
        Requests in the deployment, waiting ones included [1].
    latency : Number
        Time of a request [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return concurrency / latency


@equation(symbol=r"MFU", unit="1", source="Chowdhery et al. 2022 (PaLM), arXiv:2204.02311")
def utilisation(*, rate: Number, work: Number, chips: Number, peak: Number) -> Any:
    r"""Achieved share of a peak rate, of compute (MFU) or of memory bandwidth (MBU).

    Parameters
    ----------
    rate : Number
        Requests finished [1/s].
    work : Number
        FLOPs or bytes of a request, all chips together [FLOP or B].
    chips : Number
        Chips used [1].
    peak : Number
        Of one chip [FLOP/s or B/s].

    Returns
    -------
    Number
        Share [1].
    """
    return rate * work / (chips * peak)


@equation(symbol=r"x|_{fits}", unit="1", source="what does not fit has no latency")
def where_it_fits(*, cap: Number, value: Number) -> Any:
    r"""A metric, where at least one request fits.

    Parameters
    ----------
    cap : Number
        Requests that fit a replica [1].
    value : Number
        The metric [any].

    Returns
    -------
    Number
        The metric, else NaN [any].
    """
    return only_if(cap - 1, value)


@equation(symbol=r"t_{turn}", unit="s", source=f"{_LITTLE}; what a full station leaves of a closed loop's cycle")
def turn_wait(*, running: Number, life: Number, limit: Number) -> Any:
    r"""Time that a request waits for its turn in a closed loop with one station that can be full.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    life : Number
        Time that a request takes where it waits for nobody [s].
    limit : Number
        Most that the station serves [1/s].

    Returns
    -------
    Number
        Time; 0 where the requests are too few to fill the station [s].
    """
    return maximum(0.0, running / limit - life)


@equation(
    symbol=r"t_{queue}",
    unit="s",
    source="Schweitzer 1979, mean values of a closed network: one station of constant service, and a delay",
)
def station_wait(*, running: Number, life: Number, limit: Number) -> Any:
    r"""Wait of a request before a station that serves one after the other, in a closed loop.

    It is that of an open queue of constant service where the station is far from full, and at least what a full one
    leaves of the cycle (:func:`turn_wait`).

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    life : Number
        Time that a request takes where it waits for nobody [s].
    limit : Number
        Most that the station serves [1/s].

    Returns
    -------
    Number
        Time [s].
    """
    others = maximum(0.0, running - 1) / limit
    slack = life - others
    return maximum(running / limit - life, ((slack * slack + 2 * others / limit) ** 0.5 - slack) / 2)


@equation(symbol=r"\bar{t}", unit="s", source="a request of one token has no time between tokens")
def between_tokens(*, output: Number, time: Number) -> Any:
    r"""Time between tokens, where there are two.

    Parameters
    ----------
    output : Number
        Output tokens [1].
    time : Number
        Time that a further token takes [s].

    Returns
    -------
    Number
        Time; NaN for one output token [s].
    """
    return only_if(output - 1 - 1e-9, time)

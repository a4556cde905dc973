"""Steady state of a closed loop over prompt and output lengths."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, floor, maximum, minimum, only_if

_CONSERVATION = "work conservation of a closed loop: in one life of a request every other one is prefilled once"
_INDEPENDENT = "clients of a closed loop are at any step of their cycle, whatever the others do: a binomial law"
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


@equation(symbol=r"t_{+1}", unit="s", source="a line through the prefills of one prompt and of several")
def further_prompt(*, alone: Number, together: Number, group: Number) -> Any:
    r"""Time that one more prompt adds to a step that prefills.

    Parameters
    ----------
    alone : Number
        Time of the prefill of one prompt [s].
    together : Number
        Time of the prefill of a group [s].
    group : Number
        Prompts of it, more than 1 [1].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, together - alone) / (group - 1)


@equation(symbol=r"t_{met}", unit="s", source=_INDEPENDENT)
def prefill_met(*, prompts: Number, idle: Number, fixed: Number, each: Number, full: Number) -> Any:
    r"""Prefill of other clients in a step on average.

    Parameters
    ----------
    prompts : Number
        Of theirs in a step on average [1].
    idle : Number
        Chance that a step has none of them [1].
    fixed : Number
        Time of a prefill whatever the number of prompts [s].
    each : Number
        Time that each prompt adds [s].
    full : Number
        Prefill of a step that is full of prompt tokens [s].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(full, (1 - idle) * fixed + prompts * each)


@equation(symbol=r"b_{pf}", unit="B", source="prompts of a step share one read of the weights")
def prompt_traffic(*, alone: Number, shared: Number, group: Number, coscheduled: Number) -> Any:
    r"""Memory traffic of the prefill of one prompt.

    Parameters
    ----------
    alone, shared : Number
        Of a prompt that is alone in its step, and of each prompt of a group [B].
    group : Number
        Prompts of the group, more than 1 [1].
    coscheduled : Number
        Prompts of a step that has any, on average [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    return alone - (alone - shared) * (1 - 1 / coscheduled) / (1 - 1 / group)


@equation(symbol=r"t_{ret}", unit="s", source="what comes during a step waits for its end, and an end is no other time")
def return_time(*, front: Number, decode: Number, met: Number, alone: Number, idle: Number) -> Any:
    r"""Time from the last token of a request until the step begins that takes in the next prompt of its client.

    A client that comes back during the step after its last token waits for the end of that one; one that takes longer
    comes at any time, and finds a long step rather than a short one.

    Parameters
    ----------
    front : Number
        Time of the front end for a request [s].
    decode, met : Number
        Decoding and prefill of the other clients in a step on average [s].
    alone : Number
        Prefill of a step that has any [s].
    idle : Number
        Chance that a step has none [1].

    Returns
    -------
    Number
        Time [s].
    """
    step = decode + met
    rest = (step + met * alone * idle / maximum(step, 1e-15)) / 2
    return maximum(step, front + rest)


@equation(symbol=r"t_{own}", unit="s", source=_CONSERVATION)
def own_step(*, decode: Number, steps: Number, alone: Number, beside: Number, each: Number, full: Number) -> Any:
    r"""Time of the steps that hold one's own prefill.

    Parameters
    ----------
    decode : Number
        Decoding of the others in a step [s].
    steps : Number
        Steps that the prompt takes, at least 1 [1].
    alone : Number
        Time of its prefill where no other prompt is in the step [s].
    beside : Number
        Other prompts in the step [1].
    each : Number
        Time that each of them adds [s].
    full : Number
        Prefill of a step that is full of prompt tokens [s].

    Returns
    -------
    Number
        Time [s].
    """
    return steps * decode + alone + minimum(beside * each, maximum(0.0, full - alone))


@equation(symbol=r"q", unit="1", source=_INDEPENDENT)
def share_of_steps(*, cycle: Number, step: Number, waiting: Number) -> Any:
    r"""Share of the steps that hold the prefill of one client: one of those of its cycle.

    Parameters
    ----------
    cycle : Number
        Time from one request of a client to the next [s].
    step : Number
        Time of a step on average [s].
    waiting : Number
        Steps, beyond those of the cycle, that a prompt waits for its turn [1].

    Returns
    -------
    Number
        Share [1].
    """
    return minimum(1.0, 1 / (cycle / step + waiting))


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


@equation(
    symbol=r"t_{queue}",
    unit="s",
    source="Schweitzer 1979, mean values of a closed network: one station of constant service, and a delay",
)
def station_wait(*, running: Number, life: Number, limit: Number) -> Any:
    r"""Wait of a request before a station that serves one after the other, in a closed loop.

    It is that of an open queue of constant service where the station is far from full, and at least what a full one
    leaves of the cycle.

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

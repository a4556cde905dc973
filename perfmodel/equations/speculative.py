"""Speculative decoding: a draft proposes tokens, one pass of the target verifies them.

Three measures of acceptance are in use and must not be mixed.  Leviathan's alpha is the chance that a drafted token is
accepted when those before it were, alike at every position.  A vector gives that chance position by position.  The
acceptance ratio AR of the dataflow paper is the tokens of a step, the target's own one included, over k + 1.
"""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, geometric_sum, maximum, switch_at

_LEVIATHAN = "Leviathan et al. 2023, arXiv:2211.17192"
_DATAFLOW = "Dataflow Is All You Need (MLSys 2026)"


# --- tokens a step -----------------------------------------------------------------------------------------------


@equation(symbol="L", unit="1", source=f"{_LEVIATHAN}, eq. 1")
def accepted_length(*, acceptance: Number, drafted: Number) -> Any:
    r"""Tokens a verified step, its own one included, where each drafted token is accepted alike.

    .. math:: L = (1 - \alpha^{k+1}) / (1 - \alpha)

    Parameters
    ----------
    acceptance : Number
        Chance that a drafted token is accepted when those before it were [1].
    drafted : Number
        Tokens drafted a step [1].

    Returns
    -------
    Number
        Tokens a step [1].
    """
    return geometric_sum(acceptance, drafted + 1)


@equation(symbol="r_i", unit="1", source="chain rule: a position counts only where all before it were accepted")
def reached(*, before: Number, acceptance: Number) -> Any:
    r"""Chance that a position of the draft and all before it are accepted; one more than their sum is the length.

    Parameters
    ----------
    before : Number
        Chance that all earlier positions are [1].
    acceptance : Number
        Chance of this one when they are [1].

    Returns
    -------
    Number
        Chance [1].
    """
    return before * acceptance


@equation(symbol="r_i|_k", unit="1", source="positions beyond the draft bring nothing")
def counted(*, reached: Number, position: Number, drafted: Number) -> Any:
    r"""What one position of a vector adds to the length of a step.

    Parameters
    ----------
    reached : Number
        Chance that this position and all before it are accepted [1].
    position : Number
        Its place in the draft, from 1 [1].
    drafted : Number
        Tokens drafted a step [1].

    Returns
    -------
    Number
        Tokens; 0 where the draft is shorter [1].
    """
    return switch_at(drafted, position, 0.0, reached)


@equation(symbol="L_{>n}", unit="1", source="acceptance beyond the last known position is taken as that of the last")
def length_beyond(*, reached: Number, acceptance: Number, positions: Number, drafted: Number) -> Any:
    r"""Tokens that positions beyond a vector of acceptances add to a step.

    Parameters
    ----------
    reached : Number
        Chance that the last position of the vector is accepted [1].
    acceptance : Number
        Its chance when those before it are [1].
    positions : Number
        Length of the vector [1].
    drafted : Number
        Tokens drafted a step [1].

    Returns
    -------
    Number
        Tokens; 0 where the draft is no longer than the vector [1].
    """
    return reached * acceptance * geometric_sum(acceptance, maximum(0.0, drafted - positions))


@equation(symbol="L", unit="1", source=f"{_DATAFLOW}, sec. 2.1: AR = (a + 1) / (k + 1)")
def length_of_ratio(*, ratio: Number, drafted: Number) -> Any:
    r"""Tokens a step at an acceptance ratio of the dataflow paper.

    Parameters
    ----------
    ratio : Number
        AR: tokens of a step over k + 1, so at least 1 / (k + 1) [1].
    drafted : Number
        Tokens drafted a step [1].

    Returns
    -------
    Number
        Tokens a step [1].
    """
    return ratio * (drafted + 1)


@equation(symbol="AR", unit="1", source=f"{_DATAFLOW}, sec. 2.1")
def acceptance_ratio(*, length: Number, drafted: Number) -> Any:
    r"""Acceptance ratio of the dataflow paper, of the tokens that a step brings.

    Parameters
    ----------
    length : Number
        Tokens a step, the target's own one included [1].
    drafted : Number
        Tokens drafted a step [1].

    Returns
    -------
    Number
        AR [1].
    """
    return length / (drafted + 1)


# --- time of a step ----------------------------------------------------------------------------------------------


@equation(symbol=r"t_{SD}", unit="s", source="drafts run one after the other, then one pass verifies them")
def speculative_step(*, draft: Number, drafted: Number, verify: Number, host: Number) -> Any:
    r"""Time of a step of speculative decoding.

    Parameters
    ----------
    draft : Number
        Time of one step of the draft model [s].
    drafted : Number
        Tokens drafted a step [1].
    verify : Number
        Time of the target's pass over k + 1 tokens a sequence [s].
    host : Number
        Time to accept, reject and start over [s].

    Returns
    -------
    Number
        Time [s].
    """
    return drafted * draft + verify + host


@equation(symbol=r"t_{tok}", unit="s", source=f"{_DATAFLOW}, eq. 1")
def speculative_latency(*, draft: Number, target: Number, drafted: Number, ratio: Number) -> Any:
    r"""Time per token of speculative decoding.

    .. math:: t = \frac{k t_d + t_t}{AR (k + 1)}

    Parameters
    ----------
    draft, target : Number
        Time of a step of the draft and of the target [s].
    drafted : Number
        Tokens drafted a step, k [1].
    ratio : Number
        Acceptance ratio AR [1].

    Returns
    -------
    Number
        Time [s].
    """
    return (draft * drafted + target) / (ratio * (drafted + 1))


@equation(symbol="X_{SD}", unit="1/s", source=f"{_DATAFLOW}, eq. 2")
def speculative_throughput(*, latency: Number) -> Any:
    r"""Tokens that one sequence gets a second.

    Parameters
    ----------
    latency : Number
        Time per token [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return 1 / latency


@equation(symbol="n/L", unit="1", source="a step brings its tokens at once")
def runs_per_token(*, runs: Number, length: Number) -> Any:
    r"""How often a part of a step runs for each token that the step brings.

    Parameters
    ----------
    runs : Number
        Runs a step [1].
    length : Number
        Tokens a step [1].

    Returns
    -------
    Number
        Runs a token [1].
    """
    return runs / length


# --- worth -------------------------------------------------------------------------------------------------------


@equation(symbol="S", unit="1", source=f"{_LEVIATHAN}, theorem 3.8")
def leviathan_speedup(*, acceptance: Number, drafted: Number, cost: Number) -> Any:
    r"""Speed-up where verifying k + 1 tokens costs one step of the target and the host nothing.

    .. math:: S = \frac{1 - \alpha^{k+1}}{(1 - \alpha)(k c + 1)}

    Parameters
    ----------
    acceptance : Number
        Chance that a drafted token is accepted when those before it were [1].
    drafted : Number
        Tokens drafted a step [1].
    cost : Number
        Time of a draft step over that of a target step [1].

    Returns
    -------
    Number
        Factor [1].
    """
    return geometric_sum(acceptance, drafted + 1) / (drafted * cost + 1)


@equation(symbol="S", unit="1", source="tokens of a step over the plain steps that its time would hold")
def speculative_speedup(*, length: Number, plain: Number, step: Number) -> Any:
    r"""Speed-up over decoding without a draft, from times as they are.

    Parameters
    ----------
    length : Number
        Tokens a step [1].
    plain : Number
        Time of a step of the target alone, one token a sequence [s].
    step : Number
        Time of a step of speculative decoding [s].

    Returns
    -------
    Number
        Factor [1].
    """
    return length * plain / step


@equation(symbol="L^*", unit="1", source="a speed-up of 1")
def break_even_length(*, plain: Number, step: Number) -> Any:
    r"""Tokens a step from which speculation pays.

    Parameters
    ----------
    plain : Number
        Time of a step of the target alone [s].
    step : Number
        Time of a step of speculative decoding [s].

    Returns
    -------
    Number
        Tokens a step [1].
    """
    return step / plain


@equation(symbol=r"\alpha^*", unit="1", source=f"{_LEVIATHAN}, corollary 3.9, with verification and host")
def break_even_acceptance(*, plain: Number, draft: Number, verify: Number, host: Number) -> Any:
    r"""Acceptance from which drafting one token pays; more tokens need a root of :func:`speculative_speedup`.

    Parameters
    ----------
    plain : Number
        Time of a step of the target alone [s].
    draft : Number
        Time of a step of the draft [s].
    verify : Number
        Time of the target's pass over two tokens a sequence [s].
    host : Number
        Time to accept, reject and start over [s].

    Returns
    -------
    Number
        Chance; above 1 where it never pays [1].
    """
    return (draft + verify + host) / plain - 1


@equation(symbol=r"X_{RL,SD}", unit="1/s", source=f"{_DATAFLOW}, eq. 3 of draft and target, k to 1 (sec. 5.5)")
def speculative_roofline_rate(
    *, sequences: Number, length: Number, drafted: Number, draft: Number, target: Number
) -> Any:
    r"""Tokens a second that memory bandwidth allows a batch with speculation.

    .. math:: X = \frac{b L}{k T_d + T_t}

    Parameters
    ----------
    sequences : Number
        Sequences in the batch [1].
    length : Number
        Tokens a step and sequence [1].
    drafted : Number
        Tokens drafted a step [1].
    draft, target : Number
        Roofline time of a step of the draft and of the target [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return sequences * length / (drafted * draft + target)


@equation(
    symbol=r"\bar{L}_o",
    unit="1",
    source="steps of L tokens: the last one brings what is left, half a step's further tokens fewer",
)
def tokens_to_end(*, length: Number, output: Number) -> Any:
    r"""Tokens that a step brings on average over an output whose last step may bring more than is wanted.

    Parameters
    ----------
    length : Number
        Tokens a step and sequence, at least 1 [1].
    output : Number
        Output tokens, of which the prefill brings the first [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return length / (1 + (length - 1) / (2 * maximum(1.0, output - 1)))


@equation(symbol=r"T^{E}", unit="s", source=f"{_DATAFLOW}, eq. 4")
def traced_time(*, samples: Number, runs: Number, iterations: Number, rate: Number) -> Any:
    r"""Time that another machine would need for the passes of a measured run, from its stand-alone rate.

    Parameters
    ----------
    samples : Number
        Sequences in the batch [1].
    runs : Number
        Passes of this model an iteration: k for the draft, 1 for the target [1].
    iterations : Number
        Iterations of the measured run [1].
    rate : Number
        Tokens a second of this model alone on the other machine [1/s].

    Returns
    -------
    Number
        Time [s].
    """
    return samples * runs * iterations / rate


@equation(symbol=r"X^{E}_{SD}", unit="1/s", source=f"{_DATAFLOW}, eq. 4")
def traced_rate(*, tokens: Number, draft: Number, target: Number) -> Any:
    r"""Tokens a second that another machine would reach on a measured run; overheads of speculation are left out.

    Parameters
    ----------
    tokens : Number
        Tokens of the run [1].
    draft, target : Number
        Time of all passes of the draft and of the target [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return tokens / (draft + target)

"""Pipelines: balance, bubbles and the beat."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, ceil_div, maximum, minimum, sqrt

_SHIP = "SHIP (MLSys 2026), reconstructed"
_GPIPE = "Huang et al. 2019 (GPipe), arXiv:1811.06965"


@equation(symbol=r"L_s", unit="1", source="whole layers a stage; the fullest stage sets the pace")
def layers_per_stage(*, layers: Number, stages: Number) -> Any:
    r"""Layers of the fullest stage.

    Parameters
    ----------
    layers : Number
        Layers of the model [1].
    stages : Number
        Stages that hold layers [1].

    Returns
    -------
    Number
        Layers [1].
    """
    return ceil_div(layers, stages)


@equation(symbol=r"\beta", unit="1", source=f"{_GPIPE}, section 2.3")
def bubble_fraction(*, chunks: Number, stages: Number) -> Any:
    r"""Share of a pipeline that idles while one prefill fills and drains it.

    Parameters
    ----------
    chunks : Number
        Pieces that follow each other through the pipeline [1].
    stages : Number
        Pipeline stages [1].

    Returns
    -------
    Number
        Share [1].
    """
    return (stages - 1) / (chunks + stages - 1)


@equation(symbol=r"b", unit="1", source=f"{_SHIP}: B_max = ceil(KV caches that fit / pipeline depth)")
def microbatch_size(*, running: Number, stages: Number) -> Any:
    r"""Sequences in one micro-batch when a pipeline is filled as far as it can be.

    Parameters
    ----------
    running : Number
        Sequences in the replica [1].
    stages : Number
        Pipeline stages [1].

    Returns
    -------
    Number
        Sequences, a whole number, at least 1 [1].
    """
    return maximum(1.0, ceil_div(running, stages))


@equation(symbol=r"b", unit="1", source="as many micro-batches as stages, one sequence each at least")
def mean_microbatch(*, running: Number, stages: Number) -> Any:
    r"""Sequences in a micro-batch on average, where an engine deals them evenly to its stages.

    Parameters
    ----------
    running : Number
        Sequences in the replica [1].
    stages : Number
        Pipeline stages [1].

    Returns
    -------
    Number
        Sequences [1].
    """
    return maximum(1.0, running / stages)


@equation(
    symbol=r"\sigma_{PP}",
    unit="1",
    source="a cycle of as many jobs as stages lasts as the longest one's way through all of them",
)
def stalled_share(*, stages: Number, jobs: Number) -> Any:
    r"""Share of a prefill's time by which it delays the decoding of a pipeline.

    A prefill alone in its cycle stalls every other micro-batch for as long as it takes through all stages; prefills of
    the same cycle share that time, up to one a stage.

    Parameters
    ----------
    stages : Number
        Pipeline stages [1].
    jobs : Number
        Prefills that start in the cycle [1].

    Returns
    -------
    Number
        Share; 1 with one stage [1].
    """
    return 1 / stages + (1 - 1 / stages) / jobs


@equation(symbol=r"m", unit="1", source=f"{_SHIP}")
def microbatches_in_flight(*, running: Number, batch: Number) -> Any:
    r"""Micro-batches that the running sequences make up.

    Parameters
    ----------
    running : Number
        Sequences in the replica [1].
    batch : Number
        Sequences in a micro-batch [1].

    Returns
    -------
    Number
        Micro-batches, a whole number, at least 1 [1].
    """
    return maximum(1.0, ceil_div(running, batch))


@equation(symbol=r"n_{beat}", unit="1", source=f"{_SHIP}: TPOT = max(PP, m) beats")
def beats_per_token(*, stages: Number, in_flight: Number) -> Any:
    r"""Beats between two tokens of a sequence.

    Parameters
    ----------
    stages : Number
        Pipeline stages [1].
    in_flight : Number
        Micro-batches in flight [1].

    Returns
    -------
    Number
        Beats [1].
    """
    return maximum(stages, in_flight)


@equation(
    symbol=r"t_{ring}", unit="s", source="a ring of jobs goes round as fast as its slowest stage serves all of them"
)
def ring_wait(*, way: Number, beat: Number, in_flight: Number) -> Any:
    r"""Time that a micro-batch waits for others on its way round a pipeline.

    Parameters
    ----------
    way : Number
        Time through all stages and the links between them, alone [s].
    beat : Number
        Time of the slowest stage [s].
    in_flight : Number
        Micro-batches that go round [1].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, in_flight * beat - way)


@equation(symbol=r"n_{chunk}", unit="1", source=f"{_SHIP}: decode first, then prefill up to the stage's token budget")
def chunk_tokens(*, budget: Number, decode_tokens: Number, prompt: Number) -> Any:
    r"""Prompt tokens that ride along with a decode micro-batch.

    Parameters
    ----------
    budget : Number
        Tokens a stage takes in one beat [1].
    decode_tokens : Number
        Of them taken by decoding [1].
    prompt : Number
        Prompt tokens [1].

    Returns
    -------
    Number
        Tokens, at least 1 [1].
    """
    return minimum(prompt, maximum(1.0, budget - decode_tokens))


@equation(symbol=r"t_{imb}", unit="s", source="the slowest stage sets the beat")
def stage_excess(*, layers: Number, head: Number) -> Any:
    r"""Time by which the stages of embedding and head outlast those of the layers.

    Parameters
    ----------
    layers, head : Number
        Time of a stage of layers and of one of the head's [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, head - layers)


@equation(symbol=r"PP_{V}", unit="1", source="SHIP: PP95 is 94 layers and one more stage")
def head_stages(*, end_bytes: Number, stage_capacity: Number) -> Any:
    r"""Pipeline stages that embedding and head take for themselves.

    Parameters
    ----------
    end_bytes : Number
        Weights of embedding and head [B].
    stage_capacity : Number
        Memory of a stage [B].

    Returns
    -------
    Number
        Stages [1].
    """
    return ceil_div(end_bytes, stage_capacity)


@equation(symbol=r"t_{lat}", unit="s", source="Dataflow Is All You Need (MLSys 2026), BatchStreaming")
def decoder_latency(*, first: Number, sequences: Number, each: Number) -> Any:
    r"""Time until the last sample of a batch has left a decoder that starts none of the next one before.

    Parameters
    ----------
    first : Number
        Time of one sample through the decoder [s].
    sequences : Number
        Samples in the batch [1].
    each : Number
        Time that each further sample follows behind [s].

    Returns
    -------
    Number
        Time [s].
    """
    return first + maximum(0.0, sequences - 1) * each


@equation(symbol=r"t_{exp}", unit="s", source="weights of the next decoder stream in while samples pass this one")
def exposed_latency(*, latency: Number, busy: Number) -> Any:
    r"""Part of a decoder's latency that its traffic and arithmetic do not cover.

    Parameters
    ----------
    latency : Number
        Time of the samples through the decoder [s].
    busy : Number
        Time of its traffic and arithmetic [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, latency - busy)


@equation(symbol=r"\eta_{PP}", unit="1", source="the slowest stage sets the beat")
def stage_balance(*, mean: Number, longest: Number) -> Any:
    r"""Share of the chips' time that a pipeline of unequal stages uses.

    Parameters
    ----------
    mean : Number
        Mean time of a stage [s].
    longest : Number
        Time of the slowest stage, which is the cycle [s].

    Returns
    -------
    Number
        Share [1].
    """
    return mean / longest


@equation(symbol=r"S_{PP}", unit="1", source="the slowest stage sets the beat")
def pipeline_speedup(*, stages: Number, balance: Number) -> Any:
    r"""Throughput of a full pipeline over that of one chip with all stages; a token's own latency does not fall.

    Parameters
    ----------
    stages : Number
        Pipeline stages [1].
    balance : Number
        Mean over longest stage [1].

    Returns
    -------
    Number
        Factor [1].
    """
    return stages * balance


@equation(symbol=r"n_{chip}", unit="1", source="every kind of parallelism multiplies; aiconfigurator issue 1476")
def worker_chips(*, tp: Number, pp: Number, cp: Number, dp: Number) -> Any:
    r"""Chips of one worker; expert parallelism lies inside of them.

    Parameters
    ----------
    tp : Number
        Tensor-parallel degree [1].
    pp : Number
        Pipeline stages [1].
    cp : Number
        Context-parallel degree [1].
    dp : Number
        Data-parallel degree [1].

    Returns
    -------
    Number
        Chips [1].
    """
    return tp * pp * cp * dp


# --- the closed loop of a pipeline that decodes first and fills its token budget with prefill ---------------------

_FLOW = "flow balance: every request brings its prompt and leaves its output through the same beats"


@equation(symbol=r"x_{sat}", unit="1", source=_FLOW)
def requests_of_full_beats(*, prefill: Number, decode: Number) -> Any:
    r"""Requests that a pipeline finishes each beat when no beat has room left.

    Parameters
    ----------
    prefill, decode : Number
        Beats that the prompt and the output of a request fill [1].

    Returns
    -------
    Number
        Requests [1].
    """
    return 1 / (prefill + decode)


@equation(symbol=r"x", unit="1", source=f"{_FLOW}; root of n / x = P / (T - x D) + K")
def requests_per_beat(
    *, running: Number, prompt: Number, steps: Number, delay: Number, budget: Number, most: Number
) -> Any:
    r"""Requests that a pipeline finishes each beat in a closed loop.

    Parameters
    ----------
    running : Number
        Requests in the replica [1].
    prompt : Number
        Prompt tokens a request [1].
    steps : Number
        Decode steps a request [1].
    delay : Number
        Beats of a request's life besides those in which its prompt enters [1].
    budget : Number
        Tokens that a beat takes [1].
    most : Number
        Requests each beat when no beat has room left [1].

    Returns
    -------
    Number
        Requests [1].
    """
    filled, busy = running * steps, delay * budget
    root = sqrt((filled - busy) ** 2 + prompt * (prompt + 2 * (filled + busy)))
    return minimum(2 * running * budget / (filled + busy + prompt + root), most)


@equation(symbol=r"d", unit="1", source=_FLOW)
def decode_tokens_per_beat(*, requests: Number, steps: Number) -> Any:
    r"""Decode tokens that a beat carries on average.

    Parameters
    ----------
    requests : Number
        Requests that finish each beat [1].
    steps : Number
        Decode steps a request [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return requests * steps


@equation(symbol=r"s", unit="1", source=f"{_SHIP}: without overtaking a pipeline runs at its slowest micro-batch")
def chunk_presence(*, requests: Number, beats: Number) -> Any:
    r"""Share of time in which some stage works on a prefill chunk.

    Parameters
    ----------
    requests : Number
        Requests that finish each beat [1].
    beats : Number
        Beats from a prompt's first chunk entering to its last one leaving [1].

    Returns
    -------
    Number
        Share [1].
    """
    return minimum(1.0, requests * beats)


@equation(symbol=r"\lambda_{sat}", unit="1/s", source=_FLOW)
def saturated_request_rate(*, requests: Number, beat: Number) -> Any:
    r"""Requests that a pipeline finishes a second with every beat full.

    Parameters
    ----------
    requests : Number
        Requests that finish each beat [1].
    beat : Number
        Time of a full beat [s].

    Returns
    -------
    Number
        Rate [1/s].
    """
    return requests / beat

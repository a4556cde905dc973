"""Operational intensity, ridge points, attainable rates, and the times that follow from them."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, log, maximum, minimum, switch_at

_ROOFLINE = "Williams et al. 2009, doi:10.1145/1498765.1498785"
_DATAFLOW = "Dataflow Is All You Need (MLSys 2026)"


@equation(symbol=r"I", unit="FLOP/B", source=_ROOFLINE)
def operational_intensity(*, flops: Number, bytes_moved: Number) -> Any:
    r"""FLOPs done for each byte moved.

    Parameters
    ----------
    flops : Number
        Work [FLOP].
    bytes_moved : Number
        Memory traffic [B].

    Returns
    -------
    Number
        Intensity [FLOP/B].
    """
    return flops / bytes_moved


@equation(symbol=r"I^{*}", unit="FLOP/B", source=_ROOFLINE)
def ridge_point(*, peak: Number, bandwidth: Number) -> Any:
    r"""Intensity at which compute and memory time are equal.

    Parameters
    ----------
    peak : Number
        Dense compute rate [FLOP/s].
    bandwidth : Number
        Memory bandwidth [B/s].

    Returns
    -------
    Number
        Intensity [FLOP/B].
    """
    return peak / bandwidth


@equation(symbol=r"P", unit="FLOP/s", source=_ROOFLINE)
def attainable_rate(*, intensity: Number, peak: Number, bandwidth: Number) -> Any:
    r"""Compute rate that the roofline allows.

    Parameters
    ----------
    intensity : Number
        Operational intensity [FLOP/B].
    peak : Number
        Dense compute rate [FLOP/s].
    bandwidth : Number
        Memory bandwidth [B/s].

    Returns
    -------
    Number
        Rate [FLOP/s].
    """
    return minimum(peak, intensity * bandwidth)


@equation(symbol=r"t_c", unit="s", source=_ROOFLINE)
def compute_time(*, flops: Number, peak: Number, efficiency: Number) -> Any:
    r"""Time that the arithmetic takes.

    Parameters
    ----------
    flops : Number
        Work of the chip [FLOP].
    peak : Number
        Dense compute rate of the chip [FLOP/s].
    efficiency : Number
        Share of the peak that is reached [1].

    Returns
    -------
    Number
        Time [s].
    """
    return flops / (peak * efficiency)


@equation(symbol=r"t_m", unit="s", source=_ROOFLINE)
def memory_time(*, bytes_moved: Number, bandwidth: Number, efficiency: Number) -> Any:
    r"""Time that the memory traffic takes.

    Parameters
    ----------
    bytes_moved : Number
        Traffic of the chip [B].
    bandwidth : Number
        Memory bandwidth of the chip [B/s].
    efficiency : Number
        Share of the bandwidth that is reached [1].

    Returns
    -------
    Number
        Time [s].
    """
    return bytes_moved / (bandwidth * efficiency)


@equation(
    symbol=r"t_{ramp}",
    unit="s",
    source="splitting and merging a cache of many blocks; fitted",
)
def attention_ramp(*, growth: Number, moved: Number, block: Number) -> Any:
    r"""Time by which a decode-attention kernel outlasts its traffic, beyond its fixed time.

    Parameters
    ----------
    growth : Number
        Time each time that the blocks double [s].
    moved : Number
        Cache bytes that the chip reads [B].
    block : Number
        Cache bytes of a block [B].

    Returns
    -------
    Number
        Time [s].
    """
    return growth * log(1 + moved / block) / log(2.0)


@equation(symbol=r"t_{op}", unit="s", source=_ROOFLINE)
def operator_time(*, compute: Number, memory: Number) -> Any:
    r"""Time of an operator whose arithmetic and traffic overlap.

    Parameters
    ----------
    compute, memory : Number
        The two times that overlap [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(compute, memory)


@equation(symbol=r"t_{c|}", unit="s", source=_ROOFLINE)
def compute_bound_time(*, compute: Number, memory: Number) -> Any:
    r"""Time of an operator if arithmetic decides it, else 0.

    Parameters
    ----------
    compute, memory : Number
        The two times that overlap [s].

    Returns
    -------
    Number
        Time [s].
    """
    return switch_at(compute - memory, 0.0, 0.0, compute)


@equation(symbol=r"t_{m|}", unit="s", source=_ROOFLINE)
def memory_bound_time(*, compute: Number, memory: Number) -> Any:
    r"""Time of an operator if memory traffic decides it, else 0.

    Parameters
    ----------
    compute, memory : Number
        The two times that overlap [s].

    Returns
    -------
    Number
        Time [s].
    """
    return switch_at(compute - memory, 0.0, memory, 0.0)


@equation(symbol=r"T_{RL}", unit="s", source=f"{_DATAFLOW}, equation 3, as a time")
def memory_roofline_time(*, weights: Number, kv_per_sequence: Number, sequences: Number, bandwidth: Number) -> Any:
    r"""Least time of a decode step: all weights and every sequence's cache read once.

    Parameters
    ----------
    weights : Number
        All weights of the model, the embedding too [B].
    kv_per_sequence : Number
        Cache of one sequence [B].
    sequences : Number
        Sequences in the batch [1].
    bandwidth : Number
        Memory bandwidth of the whole system [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return (weights + kv_per_sequence * sequences) / bandwidth


@equation(symbol=r"Perf_{RL}", unit="1/s", source=f"{_DATAFLOW}, equation 3")
def memory_roofline_rate(*, weights: Number, kv_per_sequence: Number, sequences: Number, bandwidth: Number) -> Any:
    r"""Most output tokens a second of a batch that memory bandwidth allows.

    Parameters
    ----------
    weights : Number
        All weights of the model, the embedding too [B].
    kv_per_sequence : Number
        Cache of one sequence [B].
    sequences : Number
        Sequences in the batch [1].
    bandwidth : Number
        Memory bandwidth of the whole system [B/s].

    Returns
    -------
    Number
        Rate of the batch [1/s].
    """
    return sequences * bandwidth / (weights + kv_per_sequence * sequences)

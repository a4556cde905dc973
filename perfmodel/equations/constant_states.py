"""Layers with a constant state: linear attention and state-space layers."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number

_DELTA = "Yang et al. 2024 (Gated DeltaNet), arXiv:2412.06464; Qwen3-Next"


_MAMBA2 = "Dao and Gu 2024 (Mamba-2), arXiv:2405.21060"


_MAMBA1 = "Gu and Dao 2023 (Mamba), arXiv:2312.00752; Jamba, arXiv:2403.19887"


@equation(symbol=r"N_{\Delta}", unit="1", source=_DELTA)
def linear_attention_parameters(
    *, hidden: Number, key_width: Number, value_width: Number, value_heads: Number, value_dim: Number, kernel: Number
) -> Any:
    r"""Weights of a gated delta-rule layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    key_width, value_width : Number
        Heads times width of keys and of values [1].
    value_heads, value_dim : Number
        Value heads and their width [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    projections = hidden * (2 * key_width + 2 * value_width + 2 * value_heads) + value_width * hidden
    return projections + (2 * key_width + value_width) * kernel + 2 * value_heads + value_dim


@equation(symbol=r"N_{M2}", unit="1", source=_MAMBA2)
def mamba2_parameters(
    *, hidden: Number, heads: Number, head_dim: Number, groups: Number, state: Number, kernel: Number
) -> Any:
    r"""Weights of a Mamba-2 layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    heads, head_dim : Number
        Heads and their width [1].
    groups, state : Number
        Groups of input and output maps; width of the state [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    inner = heads * head_dim
    mixed = inner + 2 * groups * state
    return hidden * (inner + mixed + heads) + mixed * (kernel + 1) + 3 * heads + inner + inner * hidden


@equation(symbol=r"N_{M1}", unit="1", source=_MAMBA1)
def mamba1_parameters(*, hidden: Number, inner: Number, state: Number, dt_rank: Number, kernel: Number) -> Any:
    r"""Weights of a Mamba layer with Jamba's normalisations.

    Parameters
    ----------
    hidden, inner : Number
        Width of the model and inside the layer [1].
    state : Number
        Width of the state [1].
    dt_rank : Number
        Rank of the step-size projection [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    projections = 3 * hidden * inner + inner * (dt_rank + 2 * state) + dt_rank * inner
    return projections + inner * (kernel + 3 + state) + dt_rank + 2 * state


@equation(symbol=r"F_{state}", unit="FLOP", source=f"{_DELTA}: decay, update and read of each state element")
def state_flops(*, tokens: Number, elements: Number) -> Any:
    r"""FLOPs of updating and reading a recurrent state.

    Parameters
    ----------
    tokens : Number
        Tokens of all sequences [1].
    elements : Number
        Elements of the state of one sequence and layer [1].

    Returns
    -------
    Number
        Work [FLOP].
    """
    return 6 * tokens * elements


@equation(symbol=r"B_{state}", unit="B", source="a recurrent state is read and written once a pass")
def state_traffic(*, sequences: Number, elements: Number, bytes_per_element: Number) -> Any:
    r"""State bytes that one layer reads and writes in a pass.

    Parameters
    ----------
    sequences : Number
        Sequences in the batch [1].
    elements : Number
        Elements of the state of one sequence and layer [1].
    bytes_per_element : Number
        Of the state [B].

    Returns
    -------
    Number
        Traffic [B].
    """
    return 2 * sequences * elements * bytes_per_element

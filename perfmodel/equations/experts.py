"""Mixtures of experts: parameters, which experts a step meets, imbalance."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.equations.transformer import SWIGLU
from perfmodel.numerics import Number, complement_power, minimum


@equation(symbol=r"D", unit="1", source="Artetxe et al. 2021, arXiv:2112.10684: each token picks k of E experts evenly")
def distinct_experts(*, experts: Number, top_k: Number, tokens: Number) -> Any:
    r"""Experts that at least one token of a batch meets, E (1 - (1 - k/E)^B).

    Parameters
    ----------
    experts, top_k : Number
        Experts of a layer; those that a token meets [1].
    tokens : Number
        Tokens in the batch [1].

    Returns
    -------
    Number
        Experts [1].
    """
    return experts * (1 - complement_power(top_k / experts, tokens))


@equation(symbol=r"n_{pad}", unit="1", source="the last tile of each expert is half empty on average")
def padded_rows(*, experts: Number, tile: Number) -> Any:
    r"""Rows of grouped matrix products that only fill tiles.

    Parameters
    ----------
    experts : Number
        Experts that have rows at all [1].
    tile : Number
        Rows of a tile [1].

    Returns
    -------
    Number
        Rows [1].
    """
    return experts * tile / 2


@equation(symbol=r"N_{exp}", unit="1", source=SWIGLU)
def expert_parameters(*, hidden: Number, intermediate: Number, matrices: Number, bias: Number) -> Any:
    r"""Weights of one expert.

    Parameters
    ----------
    hidden, intermediate : Number
        Model width and width of the expert [1].
    matrices : Number
        3 for a gated expert, 2 for a plain one [1].
    bias : Number
        1 where its projections have a bias, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return matrices * hidden * intermediate + bias * ((matrices - 1) * intermediate + hidden)


@equation(symbol=r"N_{r}", unit="1", source="Shazeer et al. 2017, arXiv:1701.06538")
def router_parameters(*, hidden: Number, experts: Number, bias: Number, shared_gate: Number) -> Any:
    r"""Weights of the router of one layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    experts : Number
        Experts [1].
    bias : Number
        1 where the router has a bias or a correction an expert, else 0 [1].
    shared_gate : Number
        1 where the shared expert has a gate of its own, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return (hidden + bias) * experts + shared_gate * hidden


@equation(symbol=r"f_{imb}", unit="1", source="the fullest of several expert-parallel ranks decides")
def imbalance_factor(*, imbalance: Number, ep: Number) -> Any:
    r"""Load of the fullest expert-parallel rank over the mean.

    Parameters
    ----------
    imbalance : Number
        Load of the fullest rank over the mean, where there are several [1].
    ep : Number
        Expert-parallel degree [1].

    Returns
    -------
    Number
        Factor; 1 without expert parallelism [1].
    """
    return 1 + (imbalance - 1) * minimum(1.0, ep - 1)


@equation(symbol=r"k_{real}", unit="1", source="LongCat-Flash, arXiv:2509.01322: picks fall evenly on all experts")
def computing_experts(*, top_k: Number, experts: Number, zero_experts: Number) -> Any:
    r"""Experts with weights that a token meets where a router also picks some that compute nothing.

    Parameters
    ----------
    top_k : Number
        Picks a token [1].
    experts, zero_experts : Number
        Experts that compute, and those that hand a token on as it is [1].

    Returns
    -------
    Number
        Experts a token [1].
    """
    return top_k * experts / (experts + zero_experts)

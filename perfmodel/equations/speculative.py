"""Speculative decoding: how many tokens a verified draft brings, and what that is worth."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, geometric_sum

_LEVIATHAN = "Leviathan et al. 2023, arXiv:2211.17192"


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

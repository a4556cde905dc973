"""What a quantity may be: its unit and range, said once on its field and checked by the same words at every door."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from perfmodel.errors import UserError
from perfmodel.specs.units import change, parse, show

#: Beyond any machine, and small enough that no product of a few quantities leaves the range of a float.
MOST = 1e21


@dataclass(frozen=True)
class Range:
    """The unit of a quantity and the values that it can have.

    Attributes
    ----------
    unit : str
        Inside unit.
    least, most : float
        Ends of the range, in the inside unit.
    above, below : bool
        Whether the range lies above ``least``, below ``most``, without that end itself.
    whole : bool
        Whether only whole numbers are meant.
    why : str
        What the quantity is, where its range would surprise.
    """

    unit: str
    least: float = 0.0
    most: float = MOST
    above: bool = False
    below: bool = False
    whole: bool = False
    why: str = ""

    def holds(self, value: Any) -> Any:
        """Return whether values lie in the range; what is not published is left alone.

        Parameters
        ----------
        value : float or array
            In the inside unit.

        Returns
        -------
        bool or array of bool
        """
        numbers = np.asarray(value, dtype=float)
        low = numbers > self.least if self.above else numbers >= self.least
        high = numbers < self.most if self.below else numbers <= self.most
        whole = numbers == np.floor(numbers) if self.whole else True
        return (low & high & whole) | np.isnan(numbers)

    def fault(self, value: Any) -> str:
        """Return what is wrong with a value, or with the first wrong one of an array; empty where nothing is.

        Parameters
        ----------
        value : float or array
            In the inside unit.

        Returns
        -------
        str
        """
        good = self.holds(value)
        if np.all(good):
            return ""
        wrong = float(np.asarray(value, dtype=float)[~good].flat[0]) if np.ndim(good) else float(value)
        return f"{show(wrong, self.unit)} must be {self.words(wrong > self.most)}"

    def words(self, over: bool = False) -> str:
        """Return the range in words; the common upper end is only said where it was passed.

        Parameters
        ----------
        over : bool
            Whether it was.

        Returns
        -------
        str
        """
        least, most = show(self.least, self.unit), show(self.most, self.unit)
        low, high = (
            f"{'more than' if self.above else 'at least'} {least}",
            f"{'below' if self.below else 'at most'} {most}",
        )
        ends = low
        if over or self.most <= 1.0:
            ends = f"{low} and {high}" if self.above or self.below else f"between {least} and {most}"
        joined = f"a whole number {'' if ends.startswith('between') else 'of '}{ends}" if self.whole else ends
        return f"{joined}: {self.why}" if self.why else joined


def _bare(annotation: Any) -> Any:
    """Return an annotation without the None that a field may be."""
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation):
        return get_args(annotation)[0]
    return annotation


def range_of(annotation: Any) -> Range | None:
    """Return unit and range of an annotated quantity, also of one that may be left out, else None.

    Parameters
    ----------
    annotation : Any
        Resolved.

    Returns
    -------
    Range or None
    """
    bare = _bare(annotation)
    parts = get_args(bare) if get_origin(bare) is Annotated else ()
    return next((part for part in parts if isinstance(part, Range)), None)


def unit_of(annotation: Any) -> str | None:
    """Return the unit of an annotated quantity, else None; see :func:`range_of`.

    Parameters
    ----------
    annotation : Any

    Returns
    -------
    str or None
    """
    found = range_of(annotation)
    return found.unit if found else None


def choices_of(annotation: Any) -> tuple[str, ...]:
    """Return the words that a field may hold; none where any text will do.

    Parameters
    ----------
    annotation : Any
        Resolved.

    Returns
    -------
    tuple of str
    """
    bare = _bare(annotation)
    if get_origin(bare) is Annotated:
        bare = next((part for part in get_args(bare) if get_origin(part) is Literal), None)
    return get_args(bare) if get_origin(bare) is Literal else ()


def read_number(written: Any, rule: Range, old: float = float("nan")) -> float:
    """Read a quantity in its range: text with its unit or relative to what stands there, or a number inside.

    Parameters
    ----------
    written : str, int or float
    rule : Range
    old : float
        What stands there.

    Returns
    -------
    float
        In the inside unit.

    Raises
    ------
    UserError
        Where it is no such quantity, or out of its range.
    """
    value = change(written, rule.unit, old) if isinstance(written, str) else parse(written, rule.unit)
    if value != value:
        raise UserError("nothing is published to change from: give a value instead")
    if fault := rule.fault(value):
        raise UserError(fault)
    return value


def read_word(written: Any, choices: Sequence[str]) -> str:
    """Read one of some words.

    Parameters
    ----------
    written : Any
    choices : sequence of str

    Returns
    -------
    str
    """
    if not isinstance(written, str) or written not in choices:
        raise UserError(f"unknown '{written}', expected one of {', '.join(choices)}")
    return str(written)


def read_switch(written: Any) -> bool:
    """Read true or false.

    Parameters
    ----------
    written : bool or str

    Returns
    -------
    bool
    """
    if isinstance(written, bool):
        return written
    if written not in ("true", "false"):
        raise UserError(f"expected true or false, found '{written}'")
    return bool(written == "true")

"""Quantities as text: ``3.35 TB/s``, ``300 ns``, ``80 GiB``, ``+50%``, ``x2``.

Inside everything is in SI units, bytes, FLOP, tokens and USD; ``3.35e12 SI`` says so of a number.  ``GB`` is 1e9 and
``GiB`` 2^30 bytes; ``b`` is a bit and ``B`` a byte.  On counts ``k M G`` are decimal and ``Ki Mi Gi`` binary; a year
has 365 days.
"""

from __future__ import annotations

import math
import re

from perfmodel.errors import UserError

#: A year has 365 days.
YEAR = 31_536_000.0

_PREFIX = {
    "": 1.0,
    "f": 1e-15,
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "μ": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}

#: Base unit as written: (unit inside, factor, may take a prefix).
_BASE = {
    "B": ("B", 1.0, True),
    "b": ("B", 0.125, True),
    "FLOP": ("FLOP", 1.0, True),
    "OP": ("FLOP", 1.0, True),
    "W": ("W", 1.0, True),
    "J": ("J", 1.0, True),
    "Wh": ("J", 3600.0, True),
    # Rented power and energy have one dimension but are not one thing: neither is taken for the other.
    "W-month": ("W-month", 1.0, True),
    "g": ("kg", 1e-3, True),
    "Hz": ("1/s", 1.0, True),
    "USD": ("USD", 1.0, True),
    "ct": ("USD", 0.01, False),
    "L": ("L", 1.0, False),
    "token": ("1", 1.0, True),
    "tokens": ("1", 1.0, True),
    "req": ("1", 1.0, True),
    "requests": ("1", 1.0, True),
    "s": ("s", 1.0, True),
    "min": ("s", 60.0, False),
    "h": ("s", 3600.0, False),
    "hours": ("s", 3600.0, False),
    "day": ("s", 86400.0, False),
    "days": ("s", 86400.0, False),
    "year": ("s", YEAR, False),
    "years": ("s", YEAR, False),
    "mm2": ("mm2", 1.0, False),
    "cm2": ("mm2", 100.0, False),
    "%": ("1", 0.01, False),
    "1": ("1", 1.0, False),
}

_DIGITS = r"\d+(?:_\d+)*"
_THOUSANDS = re.compile(r"^\s*[+-]?\d{1,3}(?:,\d{3})+(?!\d|,)")
#: What multiplies a count, as in 4k tokens; on its own or apart from a unit, as in 300k USD.
_ON_COUNTS = ("k", "M", "G", "Ki", "Mi", "Gi")
#: Power that holds cooling, network and losses already; to multiply it by a PUE again would count them twice.
ALL_IN = " all-in"
_QUANTITY = re.compile(rf"^\s*([+-]?(?:{_DIGITS}\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\d,])\s*(.*?)\s*$")
_RELATIVE = re.compile(r"^\s*([+-])\s*(\d+\.?\d*)\s*%\s*$")
_FACTOR = re.compile(r"^\s*[x×]\s*(\d+\.?\d*(?:[eE][+-]?\d+)?)\s*$")


def _single(text: str) -> tuple[str, float] | None:
    if text in _BASE:
        unit, factor, _ = _BASE[text]
        return unit, factor
    for base, (unit, factor, prefixed) in _BASE.items():
        if prefixed and text.endswith(base) and text[: -len(base)] in _PREFIX:
            return unit, factor * _PREFIX[text[: -len(base)]]
    return None


def unit_factor(text: str) -> tuple[str, float] | None:
    """Return the inside unit and the factor of a written one, or None where it is unknown.

    Parameters
    ----------
    text : str
        A unit as written.

    Returns
    -------
    tuple of str and float, or None
    """
    if text in ("", "1"):
        return "1", 1.0
    prefix, _, rest = text.partition(" ")
    if prefix in _ON_COUNTS:
        whole = unit_factor(rest.lstrip())
        return (whole[0], _PREFIX[prefix] * whole[1]) if whole else None
    if text.endswith(ALL_IN):
        bare = unit_factor(text.removesuffix(ALL_IN))
        return (bare[0] + ALL_IN, bare[1]) if bare and bare[0] == "W" else None
    for rate in ("FLOPS", "FLOPs", "OPS", "OPs"):
        if text.endswith(rate) and text.removesuffix(rate) in _PREFIX:
            return "FLOP/s", _PREFIX[text.removesuffix(rate)]
    parts = text.split("/")
    if len(parts) > 2:
        return None
    top = _single(parts[0] or "1")
    if top is None:
        return None
    if len(parts) == 1:
        return top
    bottom = _single(parts[1])
    if bottom is None:
        return None
    return f"{top[0]}/{bottom[0]}", top[1] / bottom[1]


def examples(unit: str) -> str:
    """Return how a quantity of a unit may be written.

    Parameters
    ----------
    unit : str
        Inside unit.

    Returns
    -------
    str
    """
    return {
        "B": "'80 GB', '80 GiB'",
        "B/s": "'3.35 TB/s'",
        "FLOP/s": "'989 TFLOP/s'",
        "s": "'5 us', '0.3 s'",
        "W": "'700 W'",
        "USD": "'515 kUSD'",
        "mm2": "'814 mm2'",
        "W all-in": "'1.73 kW all-in' (at the utility: cooling, network and losses are in it)",
        "USD/J": "'0.08 USD/kWh'",
        "USD/W-month": "'150 USD/kW-month'",
        "USD/W": "'11 USD/W'",
        "USD/B": "'15 USD/GB'",
        "USD/s": "'2.9 USD/h'",
        "kg": "'164 kg'",
        "kg/J": "'370 g/kWh'",
        "L/J": "'0.27 L/kWh'",
        "1/mm2": "'0.11 1/cm2'",
        "1/s": "'8' or '480/min'",
    }.get(unit, "a plain number")


#: What stands for the inside unit, whichever it is: how a number of Python's goes through a text.
INSIDE = "SI"

#: Units that need not be written: counts and shares, and rates, which are a second.
BARE = ("1", "1/s")

#: The units that people write a quantity in, from the smallest, and a usual size, in the inside unit.
_WRITTEN: dict[str, tuple[float, tuple[tuple[str, float], ...]]] = {
    "s": (
        0.05,
        (
            *(("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)),
            *(("min", 60.0), ("h", 3600.0), ("day", 86400.0), ("year", YEAR)),
        ),
    ),
    "B": (80e9, (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))),
    "B/s": (3e12, (("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12), ("PB/s", 1e15))),
    "FLOP/s": (1e15, (("GFLOP/s", 1e9), ("TFLOP/s", 1e12), ("PFLOP/s", 1e15))),
    "W": (700.0, (("W", 1.0), ("kW", 1e3), ("MW", 1e6))),
    "W all-in": (1e3, (("W all-in", 1.0), ("kW all-in", 1e3), ("MW all-in", 1e6))),
    "USD": (3e5, (("USD", 1.0), ("kUSD", 1e3), ("MUSD", 1e6))),
    "J": (100.0, (("mJ", 1e-3), ("J", 1.0), ("kJ", 1e3))),
    "mm2": (800.0, (("mm2", 1.0),)),
    "USD/J": (2e-8, (("USD/kWh", 1 / 3.6e6),)),
    "USD/W-month": (0.15, (("USD/kW-month", 1e-3),)),
    "USD/W": (11.0, (("USD/W", 1.0),)),
    "USD/B": (1.5e-8, (("USD/GB", 1e-9),)),
    "USD/s": (8e-4, (("USD/h", 1 / 3600.0),)),
    "kg": (600.0, (("kg", 1.0),)),
    "kg/J": (1e-7, (("g/kWh", 1 / 3.6e9),)),
    "L/J": (1e-7, (("L/kWh", 1 / 3.6e6),)),
    "1/mm2": (1e-3, (("1/cm2", 0.01),)),
}


def human(unit: str, value: float) -> tuple[str, float]:
    """Return the unit that people would write a quantity of this size in, and its factor.

    Parameters
    ----------
    unit : str
        Inside unit.
    value : float
        In the inside unit; any will do where there is none.

    Returns
    -------
    tuple of str and float
        One of the unit returned is so many of the inside unit.
    """
    usual, scales = _WRITTEN.get(unit, (1.0, ((unit, 1.0),)))
    size = abs(value) if value == value and value else usual
    return next((scale for scale in reversed(scales) if size >= scale[1] * (1 - 1e-9)), scales[0])


def _likely(number: float, unit: str, old: float) -> str:
    """Return the unit with which a bare number comes nearest to what stands there, or to the usual."""
    usual, scales = _WRITTEN[unit]
    size = old if old == old and old > 0 else usual
    return min(scales, key=lambda scale: abs(math.log(max(abs(number), 1e-300) * scale[1] / size)))[0]


def parse(text: str | int | float, unit: str, old: float = math.nan) -> float:
    """Read a quantity.

    Parameters
    ----------
    text : str, int or float
        As written.  A number as such is in the inside unit; text needs its unit, unless it is a count, a share, a rate
        (a second) or 0.
    unit : str
        The inside unit that is expected.
    old : float
        What stands there, from which the nearest likely unit is told.

    Returns
    -------
    float
        Value in the inside unit.

    Raises
    ------
    UserError
        Where it is no number, not finite, without its unit or of another one.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UserError(f"expected a quantity, found {text!r}"[:100] + f"; write {examples(unit)}")
    if isinstance(text, int | float):
        try:
            value = float(text)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise UserError(f"'{text}'"[:60] + f" is not finite; write {examples(unit)}")
        if unit.endswith(ALL_IN):
            raise UserError(f"{value:g} may be power with or without cooling: write {examples(unit)}")
        return value
    match = _QUANTITY.match(text)
    if match is None:
        if _THOUSANDS.match(text):
            plain = text.replace(",", "").strip()
            short = f" or {plain[:-3]}k" if plain.endswith("000") and plain.isdigit() else ""
            raise UserError(f"'{text}': a comma separates a list; write {plain}{short}")
        finite = text.strip().lstrip("+-").casefold() not in ("nan", "inf", "infinity")
        raise UserError(f"'{text}' is not {'a quantity' if finite else 'finite'}; write {examples(unit)}")
    value, written = float(match[1].replace("_", "")), match[2]
    if not math.isfinite(value):
        raise UserError(f"'{text}' is not finite; write {examples(unit)}")
    count = _PREFIX[written] if written in _ON_COUNTS else 1.0 if written == "" else None
    if count is not None and (unit in BARE or value == 0):
        return value * count
    if count is not None:
        likely = f"{match[1]}{written} {unit}" if written else f"{match[1]} {_likely(value, unit, old)}"
        raise UserError(f"{match[1]}{written} has no unit: {likely}?")
    if written == INSIDE:
        return value
    factor = unit_factor(written)
    if factor is None:
        raise UserError(f"unknown unit '{written}' in '{text}'; write {examples(unit)}")
    if factor[0] != unit:
        raise UserError(f"'{text}' is in {factor[0]}, expected {unit}: write {examples(unit)}")
    return value * factor[1]


def change(text: str, unit: str, old: float) -> float:
    """Read a new value, which may be relative to the old one: ``+50%``, ``-10%``, ``x2``.

    Parameters
    ----------
    text : str
        As written.
    unit : str
        Inside unit.
    old : float
        In the inside unit.

    Returns
    -------
    float
        In the inside unit.
    """
    if relative := _RELATIVE.match(text):
        sign = 1.0 if relative[1] == "+" else -1.0
        return old * (1.0 + sign * float(relative[2]) / 100.0)
    if factor := _FACTOR.match(text):
        return old * float(factor[1])
    return parse(text, unit, old)


_SHOWN = (
    ("P", 1e15),
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
    ("", 1.0),
    ("m", 1e-3),
    ("u", 1e-6),
    ("n", 1e-9),
)


#: Units that are read in another one than the inside one.
_SHOWN_AS = {
    "USD/J": (3.6e6, "USD/kWh"),
    "USD/W-month": (1e3, "USD/kW-month"),
    "USD/B": (1e9, "USD/GB"),
    "USD/s": (3600.0, "USD/h"),
    "USD/W": (1.0, "USD/W"),
    "kg": (1.0, "kg"),
    "kg/J": (3.6e9, "g/kWh"),
    "L/J": (3.6e6, "L/kWh"),
    "1/mm2": (100.0, "1/cm2"),
}


def show(value: float, unit: str, digits: int = 4) -> str:
    """Return a quantity as text with a fitting prefix.

    Parameters
    ----------
    value : float
        In the inside unit.
    unit : str
        Inside unit.
    digits : int
        Significant ones.

    Returns
    -------
    str
    """
    if value != value:
        return "not published"
    if unit in _SHOWN_AS:
        factor, name = _SHOWN_AS[unit]
        return f"{value * factor:.{digits}g} {name}"
    if unit == "1" and 1000 <= abs(value) < 1e15 and value == int(value):
        return f"{value:,.0f}"
    if unit in ("1", "mm2", "1/s") or value == 0.0:
        return f"{value:.{digits}g}" + ("" if unit == "1" else f" {unit}")
    for prefix, factor in _SHOWN:
        if abs(value) >= factor:
            return f"{value / factor:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"

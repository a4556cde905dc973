"""Values as people write them, read by the rule of their option."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.options import Arrivals, Said, flag, options_of, unknown
from perfmodel.specs.files import hints
from perfmodel.specs.ranges import Range, choices_of, range_of, read_number, read_word
from perfmodel.specs.types import (
    Deployment,
    Speculation,
    Traffic,
    Vision,
)
from perfmodel.specs.units import INSIDE

#: The fields that options fill: their types say what an option can be.
FIELDS: dict[str, tuple[type[Any], str]] = {
    **{name: (Deployment, name) for name in ("tp", "pp", "ep", "dp", "attention_dp", "precision", "kv_precision")},
    **{name: (Traffic, name) for name in ("prompt", "output", "concurrency")},
    "images": (Vision, "images"),
    **{name: (Speculation, name) for name in ("k", "alpha", "ar")},
}


def read_changes(set: Any) -> list[str]:
    """Return changes as ``PATH=VALUE`` each.

    Parameters
    ----------
    set : mapping or sequence of str
        Changes by path; numbers are in the inside unit.

    Returns
    -------
    list of str
    """
    if isinstance(set, str):
        return [set]
    if isinstance(set, Mapping):
        return [f"{word('--set', path)}={_value(path, value)}" for path, value in set.items()]
    if not isinstance(set, Sequence):
        raise UserError(f"--set {reprlib.repr(set)}: expected a mapping of paths to values, or texts PATH=VALUE")
    return [word("--set", text) for text in set]


def _value(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return f"{float(value)!r} {INSIDE}"
    if not isinstance(value, str | Path | numbers.Real):
        raise UserError(f"--set {path}={reprlib.repr(value)}: expected a number or a text")
    return str(value)


def read_options(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options of a question, each as its type says.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`: which options there are.
    given : mapping of str to Any
        By name: text as a command line has it, or numbers; None is not given.

    Returns
    -------
    dict of str to Any
        Words, floats in the inside unit, and tuples of them; what is not given is not there.

    Raises
    ------
    UserError
        Where there is no such option, or a value is none of its type.
    """
    known = options_of(kind)
    for name in given:
        if name not in known:
            raise UserError(unknown(name, known))
    return {name: read_option(name, value, known[name]) for name, value in given.items() if value is not None}


def read_option(name: str, value: Any, said: Said, door: str = "") -> Any:
    """Read one option.

    Parameters
    ----------
    name : str
    value : Any
    said : Said
    door : str
        How the option was spelt, for the refusal.

    Returns
    -------
    Any
        A word, a float or a tuple of those.
    """
    door = door or flag(name)
    if said.switch and not isinstance(value, bool):
        raise UserError(f"{door} {reprlib.repr(value)}: expected True or False")
    if said.unit is None:
        return value
    if said.many:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, Mapping | Set | bytes) or not hasattr(parts, "__len__") or not len(parts):
            raise UserError(f"{door} {reprlib.repr(value)}: expected {said.metavar}")
        return tuple(read_option(name, part, said._replace(many=False), door) for part in parts)
    if (said.of or name) in FIELDS:
        return option(said.of or name, value, door)
    if name in options_of(Arrivals) and said.unit:
        return number(door, value, range_of(hints(Traffic)[name]) or Range(said.unit))
    return number(door, value, Range(said.unit, **said.span)) if said.unit else word(door, value)


def word(name: str, value: Any) -> str:
    """Read a name or a path.

    Parameters
    ----------
    name : str
        Of the option, for the refusal.
    value : str or path

    Returns
    -------
    str
    """
    if not isinstance(value, str | Path):
        raise UserError(f"{name} {reprlib.repr(value)}: expected a name, as text")
    if not str(value).strip():
        raise UserError(f"{name}: expected a name, found nothing")
    return str(value).strip()


def number(name: str, written: Any, rule: Range = Range("1")) -> float:  # noqa: B008
    """Read a number of an option.

    Parameters
    ----------
    name : str
        Of the option, for the refusal.
    written : str or float
    rule : Range
        What it can be.

    Returns
    -------
    float
    """
    try:
        if isinstance(written, numbers.Real) and not isinstance(written, bool | int):
            written = float(written)
        if isinstance(written, float) and not math.isfinite(written):
            raise UserError(f"{written} is not finite, and must be {rule.words()}")
        return read_number(written, rule)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def option(name: str, written: Any, door: str = "") -> Any:
    """Read an option that fills a field, by the type of that field.

    Parameters
    ----------
    name : str
        Of the option.
    written : Any
    door : str
        How the option was spelt, for the refusal.

    Returns
    -------
    float or str
    """
    kind, field = FIELDS[name]
    annotation, door = hints(kind)[field], door or f"--{name.replace('_', '-')}"
    if rule := range_of(annotation):
        return number(door, written, rule)
    try:
        return read_word(written, choices_of(annotation))
    except UserError as error:
        raise UserError(f"{door}: {error}") from None

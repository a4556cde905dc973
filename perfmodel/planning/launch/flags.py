"""The flags of a release, read from the table."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from perfmodel.specs.naming import release_numbers


@dataclass(frozen=True)
class Flag:
    """How a field of a plan is written for an engine.

    Attributes
    ----------
    engine, field : str
    since, until : str
        Releases that were read, the first and the last one with it; empty to the newest.
    form : str
        ``value``, ``on``, ``off``, ``json`` or ``key``, as the table says.
    flag : str
        Empty where the value stands alone.
    source : str
    """

    engine: str
    field: str
    since: str
    until: str
    form: str
    flag: str
    source: str


@functools.cache
def table() -> tuple[Flag, ...]:
    """Return the flags of all engines."""
    text = (files(__package__) / "flags.csv").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return tuple(Flag(**row) for row in csv.DictReader(lines))


def _of(engine: str) -> Iterator[Flag]:
    return (one for one in table() if one.engine == engine)


def flags_of(engine: str, release: str) -> tuple[dict[str, Flag], list[str]]:
    """Return the flags of a release by field, and what is said where that release was not read.

    Parameters
    ----------
    engine : str
    release : str
        ``MAJOR.MINOR[.PATCH]``, empty for the newest that was read.

    Returns
    -------
    tuple of dict and list of str
    """
    asked = release_numbers(release) if release else ()
    first = min(release_numbers(flag.since) for flag in _of(engine))
    notes = []
    if asked and asked[: len(first)] < first:
        notes.append(
            f"{engine} {release} is older than {'.'.join(map(str, first))}, the first release whose flags were read: "
            "flags are those of that one"
        )
        asked = first
    flags: dict[str, Flag] = {}
    for flag in _of(engine):
        since, until = release_numbers(flag.since), release_numbers(flag.until) if flag.until else ()
        if asked and asked[: len(since)] < since and flag.field in flags:
            continue
        if not asked:
            if not flag.until:
                flags[flag.field] = flag
        elif not until or asked[: len(until)] <= until:
            flags.setdefault(flag.field, flag)
    return flags, notes

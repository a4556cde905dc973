"""Reading spec files: YAML 1.2, and the frozen dataclass in the end, with the provenance of each of its numbers."""

from __future__ import annotations

import copy
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

from perfmodel.errors import UserError
from perfmodel.numerics import NAN
from perfmodel.specs.ranges import unit_of
from perfmodel.specs.types import Provenance
from perfmodel.specs.units import parse

RESERVED = frozenset({"provenance", "efficiency", "engine", "power_shape"})
_QUANTITY_KEYS = frozenset({"value", "source", "kind", "low", "high", "note", "date"})


_HINTS: dict[Any, dict[str, Any]] = {}


def hints(kind: Any) -> dict[str, Any]:
    """Return the resolved annotations of a dataclass.

    Parameters
    ----------
    kind : type
        The dataclass.

    Returns
    -------
    dict of str to Any
    """
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


# --- reading -----------------------------------------------------------------------------------------------------


#: How deep a file may nest and how many values it may hold, aliases written out; the bundled ones have 6 and 900.
MOST_DEEP, MOST_VALUES = 50, 100_000
#: Bytes of a file, and letters of a name, at the most.
MOST_BYTES, MOST_LETTERS = 2**24, 255
#: Fields whose text may be long and of several lines.
_SENTENCES = frozenset({"note", "description"})
#: Tags that change nothing; others make of a text what is none.
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq"))


@functools.lru_cache(maxsize=1024)
def _content(text: str) -> Any:
    """Return what a text says; a question asks for the same few files over and over."""
    _check_size(text)
    return YAML(typ="safe").load(text)


def _check_size(text: str) -> None:
    """Refuse a text that holds or nests too much, however short it is, before anything is made of it."""
    open_: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    total = 0
    for event in YAML(typ="safe").parse(text):
        problem = ""
        if isinstance(event, NodeEvent):
            total += 1
            if isinstance(event, AliasEvent):
                total += sizes.get(event.anchor, 0)
                if event.anchor in [anchor for anchor, _ in open_]:
                    problem = f"{event.anchor} holds itself"
            elif (tag := getattr(event, "tag", None)) is not None and tag not in _PLAIN:
                problem = f"a tag {tag.replace('tag:yaml.org,2002:', '!!')} is not read; write plain text"
            if isinstance(event, CollectionStartEvent):
                open_.append((event.anchor, total))
        elif isinstance(event, CollectionEndEvent):
            anchor, before = open_.pop()
            sizes[anchor] = total - before
        if len(open_) > MOST_DEEP:
            problem = f"nested more than {MOST_DEEP} deep"
        elif total > MOST_VALUES:
            problem = f"more than {MOST_VALUES:,} values"
        if problem:
            raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def read_yaml(path: Path) -> Any:
    """Read a YAML file with the C reader.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Any
        What the file holds.

    Raises
    ------
    UserError
        One line that names the file, the line and what is wrong.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: larger than {MOST_BYTES:,} B")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error.__class__.__name__})") from None
    try:
        return copy.deepcopy(_content(text))
    except MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = " ".join(str(error.problem).split())
        raise UserError(f"{path}{line}: {problem}") from None
    except (YAMLError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None


def check_text(raw: Any, path: Path, where: str = "") -> None:
    """Refuse names that do not print as they stand, which may be more than text where they are shown, and long ones.

    Parameters
    ----------
    raw : Any
        What a file holds.
    path : Path
        The file.
    where : str
        Path of this part.

    Raises
    ------
    UserError
        One line that names the first.
    """
    if isinstance(raw, Mapping | list | tuple):
        parts = raw.items() if isinstance(raw, Mapping) else enumerate(raw)
        for key, value in parts:
            below = f"{where}.{key}" if where else str(key)
            if isinstance(raw, Mapping):
                _check_line(str(key), path, below)
            check_text(value, path, below)
    elif isinstance(raw, str) and where.rpartition(".")[2] in _SENTENCES:
        for line in raw.split("\n"):
            _check_line(line, path, where, len(line))
    elif isinstance(raw, str):
        _check_line(raw, path, where)


def _check_line(text: str, path: Path, where: str, most: int = MOST_LETTERS) -> None:
    if fault := text_fault(text, most):
        shown = "".join(letter if letter.isprintable() else "?" for letter in where)
        raise UserError(f"{place(path, shown[:MOST_LETTERS])}: {fault}")


def text_fault(text: str, most: int = MOST_LETTERS) -> str:
    """Return why a text is no name, or no line of a note; empty where it is one.

    Parameters
    ----------
    text : str
    most : int
        Letters that it may have.

    Returns
    -------
    str
    """
    odd = next((letter for letter in text if not letter.isprintable()), None)
    if odd is not None:
        return f"holds a character that does not print (U+{ord(odd):04X})"
    return f"{len(text):,} characters, of which {most} may stand there" if len(text) > most else ""


def line_of(path: Path, keys: tuple[Any, ...]) -> int | None:
    """Return the line of a key; only errors pay for the round-trip reader.

    Parameters
    ----------
    path : Path
    keys : tuple
        From the outermost to the innermost.

    Returns
    -------
    int or None
        None where the file cannot be read or has no such key.
    """
    try:
        node = _marked(path.read_text(encoding="utf-8"))
    except (YAMLError, OSError):
        return None
    line: int | None = None
    for key in keys:
        try:
            position = node.lc.data[key]
            node = node[key]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
        line = position[0] + 1
    return line


@functools.lru_cache(maxsize=2)
def _marked(text: str) -> Any:
    """Return what a text says, with the line of each key; a file may have many errors."""
    return YAML(typ="rt").load(text)


def place(path: Path, where: str) -> str:
    """Return file, line and path of a field, as an error starts.

    Parameters
    ----------
    path : Path
    where : str
        Path of the field.

    Returns
    -------
    str
    """
    line = line_of(path, tuple(int(part) if part.isdigit() else part for part in where.split(".")))
    return f"{path}{f':{line}' if line else ''}: {where}"


def merge(base: Any, over: Any) -> Any:
    """Return ``base`` with the paths that ``over`` names replaced; a quantity is replaced whole.

    Parameters
    ----------
    base, over : Any
        What two files hold.

    Returns
    -------
    Any
    """
    if isinstance(base, dict) and isinstance(over, dict) and not (set(over) <= _QUANTITY_KEYS and "value" in over):
        return {**base, **{key: merge(base.get(key), value) for key, value in over.items()}}
    return over


# --- building ----------------------------------------------------------------------------------------------------


class Origin(NamedTuple):
    """The file that wrote a path, and the source and kind that it gives its bare numbers."""

    file: str = ""
    source: str = ""
    kind: str = ""


def build(
    kind: type[Any], raw: Mapping[str, Any], origin: Mapping[str, Origin], prefix: str = ""
) -> tuple[Any, dict[str, Provenance]]:
    """Make the dataclass of a validated file, and the provenance of each of its numbers.

    Parameters
    ----------
    kind : type
        The dataclass.
    raw : Mapping
        Content of the file, ``extends`` resolved.
    origin : Mapping
        What wrote each path.
    prefix : str
        Path of this part.

    Returns
    -------
    tuple
    """
    provenance: dict[str, Provenance] = {}
    made = _build(kind, raw, origin, prefix, provenance)
    return made, provenance


def _build(
    annotation: Any,
    raw: Any,
    origin: Mapping[str, Origin],
    path: str,
    provenance: dict[str, Provenance],
) -> Any:
    unit = unit_of(annotation)
    if unit is not None:
        return _number(raw, unit, origin, path, provenance)
    if is_dataclass(annotation):
        kind = typing.cast(type[Any], annotation)
        values = {}
        for entry in fields(kind):
            below = f"{path}.{entry.name}" if path else entry.name
            if entry.name not in RESERVED and raw.get(entry.name) is not None:
                values[entry.name] = _build(hints(kind)[entry.name], raw[entry.name], origin, below, provenance)
            elif unit_of(hints(kind)[entry.name]) and entry.default is not MISSING:
                given = entry.default == entry.default
                origins = (
                    ("project-definition", "derived", "", "default") if given else ("", "unpublished", "", "not given")
                )
                provenance[below] = Provenance(*origins)
            elif entry.default_factory is not MISSING and is_dataclass(hints(kind)[entry.name]):
                values[entry.name] = _build(hints(kind)[entry.name], {}, origin, below, provenance)
        return kind(**values)
    inner, arguments = get_origin(annotation), get_args(annotation)
    if getattr(inner, "__name__", "") == "Mapping":
        return {key: _build(arguments[1], value, origin, f"{path}.{key}", provenance) for key, value in raw.items()}
    if inner is tuple:
        return tuple(
            _build(arguments[0], value, origin, f"{path}.{index}", provenance) for index, value in enumerate(raw)
        )
    if inner in (Union, types.UnionType):
        chosen = next(arg for arg in arguments if arg is not type(None))
        return _build(chosen, raw, origin, path, provenance)
    return raw


def _number(
    raw: Any,
    unit: str,
    origin: Mapping[str, Origin],
    path: str,
    provenance: dict[str, Provenance],
) -> float:
    written = raw if isinstance(raw, dict) else {"value": raw}
    value = NAN if written["value"] is None else parse(written["value"], unit)
    bounds = [NAN if written.get(key) is None else parse(written[key], unit) for key in ("low", "high")]
    by = next((origin[part] for part in _parents(path) if part in origin), Origin())
    kind = "unpublished" if math.isnan(value) else written.get("kind") or by.kind
    source = written.get("source", "") if kind == "unpublished" else written.get("source") or by.source
    low, high = bounds
    provenance[path] = Provenance(source, kind, by.file, written.get("note", ""), low, high, written.get("date", ""))
    return value


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)] + [""]


def paths_written(raw: Any, prefix: str = "") -> list[str]:
    """Return the paths that a file's content writes.

    Parameters
    ----------
    raw : Any
        What the file holds.
    prefix : str
        Of the paths.

    Returns
    -------
    list of str
    """
    if isinstance(raw, dict) and not (raw and set(raw) <= _QUANTITY_KEYS and "value" in raw):
        return [
            path
            for key, value in raw.items()
            for path in paths_written(value, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [prefix]


def unsourced(kind: type[Any], raw: Mapping[str, Any], provenance: Mapping[str, Provenance], path: Path) -> list[str]:
    """Return one line for each number that names no source or no kind.

    Parameters
    ----------
    kind : type
        The dataclass that the file fills.
    raw : mapping
        What the file holds.
    provenance : mapping of str to Provenance
        Of the numbers, by path.
    path : Path

    Returns
    -------
    list of str
    """
    lines = []
    for where, origin in provenance.items():
        if origin.kind != "unpublished" and origin.note != "default" and not (origin.source and origin.kind):
            missing = "source" if not origin.source else "kind"
            lines.append(
                f"{place(path, where)}: a number needs a {missing}; "
                "write {value: ..., source: ..., kind: ...} or give the file one"
            )
    return lines


def as_text(name: str, content: Mapping[str, Any]) -> str:
    """Return what was fitted as the YAML of its file, in a fixed order.

    Parameters
    ----------
    name : str
    content : Mapping[str, Any]

    Returns
    -------
    str
        YAML.
    """
    lines = [f"description: Written by 'perfmodel calibrate' for {name}; edit the data or the fit, not this file."]

    def scalar(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        text = str(value)
        return json.dumps(text) if any(mark in text for mark in ":,#{}[]'\"") else text

    def write(part: Mapping[str, Any], indent: str) -> None:
        for key, value in part.items():
            if isinstance(value, Mapping) and "value" in value:
                inner = ", ".join(f"{name}: {scalar(entry)}" for name, entry in value.items())
                lines.append(f"{indent}{key}: {{{inner}}}")
            elif isinstance(value, Mapping):
                lines.append(f"{indent}{key}:")
                write(value, indent + "  ")
            else:
                lines.append(f"{indent}{key}: {scalar(value)}")

    write(content, "")
    return "\n".join(lines) + "\n"

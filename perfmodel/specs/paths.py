"""Varying an input by its path: the only way that ``--set``, an axis, a sample or a workbook cell changes a number."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

from perfmodel.errors import UserError
from perfmodel.specs import rules
from perfmodel.specs.files import hints, text_fault
from perfmodel.specs.ranges import Range, choices_of, range_of, read_number, read_switch, read_word, unit_of
from perfmodel.specs.types import Provenance, Scenario

ROOTS = ("system", "model", "traffic", "deployment", "speculation", "economics")
#: Words that an option gives, since more hangs on them than the word.
_BY_OPTION = {"deployment.engine": "--engine", "deployment.plan": "--plan"}
_SKIPPED = frozenset({"provenance", "aliases", "changed", "assumed", "warnings", "plans"})


def quantities(part: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Give path, unit and value of every quantity below a spec.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str
        Where the part stands, as a prefix of the paths.

    Returns
    -------
    iterator of (str, str, Any)
    """
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from quantities(value, f"{path}.{key}")
    elif isinstance(part, tuple):
        for index, value in enumerate(part):
            yield from quantities(value, f"{path}.{index}")
    elif is_dataclass(part):
        for entry in fields(part):
            value = getattr(part, entry.name)
            below = f"{path}.{entry.name}" if path else entry.name
            annotation = hints(type(part))[entry.name]
            if entry.name in _SKIPPED or value is None:
                continue
            if unit := unit_of(annotation):
                yield below, unit, value
            elif isinstance(value, Mapping):
                value_unit = unit_of(get_args(annotation)[1])
                if value_unit:
                    for key, number in value.items():
                        yield f"{below}.{key}", value_unit, number
            else:
                yield from quantities(value, below)


def full_path(scenario: Scenario, path: str) -> str:
    """Return a path with its root; the root may be left out where there is no doubt.

    Parameters
    ----------
    scenario : Scenario
    path : str

    Returns
    -------
    str

    Raises
    ------
    UserError
        Where no spec, or more than one, has such a path.
    """
    if path.split(".")[0] in ROOTS:
        get(scenario, path)
        return path
    matching = []
    for root in ROOTS:
        try:
            get(scenario, f"{root}.{path}")
        except UserError:
            continue
        matching.append(f"{root}.{path}")
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise UserError(f"'{path}' is ambiguous: write {' or '.join(matching)}")
    raise UserError(f"unknown path '{path}': {_suggestion(scenario, path)}")


def _suggestion(scenario: Scenario, path: str) -> str:
    known = [where for where, _, _ in quantities(scenario)]
    close = difflib.get_close_matches(path, known, n=2, cutoff=0.5)
    return (
        f"did you mean {' or '.join(close)}?"
        if close
        else "paths start with system, model, traffic, deployment, speculation or economics"
    )


def get(part: Any, path: str) -> Any:
    """Return what stands at a path.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str

    Returns
    -------
    Any
    """
    here = part
    for key in path.split("."):
        if isinstance(here, Mapping) and key in here:
            here = here[key]
        elif isinstance(here, tuple) and key.isdigit() and int(key) < len(here):
            here = here[int(key)]
        elif is_dataclass(here) and key not in _SKIPPED and hasattr(here, key) and getattr(here, key) is not None:
            here = getattr(here, key)
        else:
            known = _suggestion(part, path) if isinstance(part, Scenario) else f"no '{key}'"
            raise UserError(f"unknown path '{path}': {known}")
    return here


def put(part: Any, path: str, value: Any) -> Any:
    """Return a copy of a spec with another value at a path.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str
    value : Any
        In the inside unit; a float, an array or a node.

    Returns
    -------
    Any
        Of the type of the part.
    """
    return put_all(part, {path: value})


def put_all(part: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a spec with other values at some paths.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    values : mapping of str to Any
        By path, in the inside unit.

    Returns
    -------
    Any
        Of the type of the part.
    """
    below: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        key, _, rest = path.partition(".")
        below.setdefault(key, {})[rest] = value

    def changed(key: str, old: Any) -> Any:
        return below[key][""] if "" in below[key] else put_all(old, below[key])

    if isinstance(part, Mapping):
        return {**part, **{key: changed(key, part[key]) for key in below}}
    if isinstance(part, tuple):
        return tuple(changed(str(at), old) if str(at) in below else old for at, old in enumerate(part))
    return replace(part, **{key: changed(key, getattr(part, key)) for key in below})


def annotation_at(part: Any, path: str) -> Any:
    """Return how the field at a path is annotated; what stands in a mapping or a tuple has the annotation of all of it.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str
        Of something that is there.

    Returns
    -------
    Any
    """
    here, annotation = part, Any
    for key in path.split("."):
        if isinstance(here, Mapping):
            here, annotation = here[key], get_args(annotation)[1]
        elif isinstance(here, tuple):
            here, annotation = here[int(key)], get_args(annotation)[0]
        else:
            annotation = hints(type(here))[key]
            here = getattr(here, key)
    return annotation


def range_at(part: Any, path: str) -> Range:
    """Return unit and range of the quantity at a path.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str

    Returns
    -------
    Range

    Raises
    ------
    UserError
        Where no quantity stands there.
    """
    get(part, path)
    if rule := range_of(annotation_at(part, path)):
        return rule
    raise UserError(f"'{path}' is not a quantity; {_suggestion(part, path)}")


def unit_at(scenario: Scenario, path: str) -> str:
    """Return the unit of the quantity at a path.

    Parameters
    ----------
    scenario : Scenario
    path : str

    Returns
    -------
    str
    """
    return range_at(scenario, path).unit


def read(part: Any, path: str, written: Any) -> Any:
    """Return the value that something written is at a path, checked against the type of the field.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.
    path : str
        Of something that is there.
    written : Any
        Text with a unit, a relative change, a word, a switch; or a number in the inside unit.

    Returns
    -------
    float, bool or str

    Raises
    ------
    UserError
        Where it is no value of that field; the message names what would do.
    """
    old, annotation = get(part, path), annotation_at(part, path)
    word = written.strip() if isinstance(written, str) else written
    if rule := range_of(annotation):
        return read_number(word, rule, old)
    if isinstance(old, bool):
        return read_switch(word)
    if isinstance(old, str):
        choices = choices_of(annotation)
        if choices:
            return read_word(word, choices)
        if not isinstance(word, str):
            raise UserError(f"expected a word, found {word!r}")
        if fault := text_fault(word):
            raise UserError(fault)
        if path in _BY_OPTION:
            raise UserError(f"decides what is read: give {_BY_OPTION[path]}")
        if path != "traffic.lengths" and ".computes_as." not in path:
            raise UserError("is read from files, which it names or goes with: write a file that extends this one")
        return word
    raise UserError(f"'{path}' is a group; name one of its numbers")


def assign(scenario: Scenario, text: str) -> Scenario:
    """Apply one ``PATH=VALUE``: a quantity with its unit, a relative change, or a word for what is no quantity.

    Parameters
    ----------
    scenario : Scenario
    text : str
        ``PATH=VALUE``.

    Returns
    -------
    Scenario

    Raises
    ------
    UserError
        Where the path, the unit or the value is wrong; the message names what would do.
    """
    path, equals, written = text.partition("=")
    if not equals or not written.strip():
        raise UserError(f"--set {text}: write PATH=VALUE, for example system.memory.hbm.bandwidth=+20%")
    try:
        where = full_path(scenario, path.strip())
        return put_given(scenario, where, read(scenario, where, written))
    except UserError as error:
        raise UserError(f"--set {path.strip()}: {error}") from None


def check(scenario: Scenario, paths: Iterable[str]) -> None:
    """Refuse what does not go together in the specs that were changed at some paths.

    Parameters
    ----------
    scenario : Scenario
        As changed; numbers may be arrays.
    paths : iterable of str
        Full paths of what was changed.

    Raises
    ------
    UserError
    """
    changed = list(paths)
    for root in dict.fromkeys(path.partition(".")[0] for path in changed):
        for where, fault in rules.broken(getattr(scenario, root)):
            raise UserError(fault if changed == [f"{root}.{where}"] else f"{root}.{where}: {fault}")


def put_given(scenario: Scenario, path: str, value: Any) -> Scenario:
    """Return a scenario with a value that the user gave, checked against the rest, and what stood there before it.

    Parameters
    ----------
    scenario : Scenario
    path : str
        Full path.
    value : Any
        In the inside unit.

    Returns
    -------
    Scenario
    """
    changed: Scenario = put(scenario, path, value)
    check(changed, (path,))
    if path not in dict(scenario.changed):
        changed = replace(changed, changed=(*scenario.changed, (path, get(scenario, path))))
    root, _, rest = path.partition(".")
    part = getattr(changed, root)
    if not hasattr(part, "provenance"):
        return changed
    given = Provenance("given by the user", "given")
    return replace(changed, **{root: replace(part, provenance={**part.provenance, rest: given})})


def provenance_of(scenario: Scenario, path: str) -> Provenance:
    """Return where the number at a path came from.

    Parameters
    ----------
    scenario : Scenario
    path : str
        Full path.

    Returns
    -------
    Provenance
    """
    root, _, rest = path.partition(".")
    part = getattr(scenario, root)
    found: Provenance | None = getattr(part, "provenance", {}).get(rest)
    return found or Provenance("the plan", "given")

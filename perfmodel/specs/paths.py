"""Varying an input by its path: the only way that ``--set``, an axis, a sample or a workbook cell changes a number."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

from perfmodel.errors import UserError
from perfmodel.specs.files import hints, unit_of
from perfmodel.specs.types import OWNERSHIPS, Provenance, Scenario
from perfmodel.specs.units import change

ROOTS = ("system", "model", "traffic", "deployment", "speculation", "economics")
_SKIPPED = frozenset({"provenance", "aliases", "assumed", "warnings", "plans"})


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
    found = []
    for root in ROOTS:
        try:
            get(scenario, f"{root}.{path}")
        except UserError:
            continue
        found.append(f"{root}.{path}")
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"'{path}' is ambiguous: write {' or '.join(found)}")
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
    for where, unit, _ in quantities(scenario):
        if where == path:
            return unit
    raise UserError(f"'{path}' is not a quantity; {_suggestion(scenario, path)}")


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
    where = full_path(scenario, path.strip())
    old = get(scenario, where)
    word = written.strip()
    if isinstance(old, bool):
        if word not in ("true", "false"):
            raise UserError(f"--set {text}: expected true or false")
        return put_given(scenario, where, word == "true")
    if isinstance(old, str):
        if where == "economics.ownership" and word not in OWNERSHIPS:
            raise UserError(f"--set {text}: expected one of {', '.join(OWNERSHIPS)}")
        return put_given(scenario, where, word)
    if is_dataclass(old) or isinstance(old, Mapping | tuple):
        raise UserError(f"--set {text}: '{where}' is a group; name one of its numbers")
    try:
        value = change(word, unit_at(scenario, where), old)
    except UserError as error:
        raise UserError(f"--set {path.strip()}: {error}") from None
    if value != value:
        raise UserError(f"--set {text}: '{where}' is not published, so give it a value instead of a change")
    in_range(text, where, value)
    return put_given(scenario, where, value)


def in_range(text: str, where: str, value: float) -> None:
    """Refuse a value that the quantity at a path cannot have; ``text`` is how it was written.

    Parameters
    ----------
    text : str
        How it was written, for the refusal.
    where : str
        Full path.
    value : float
        In the inside unit.
    """
    name = where.rpartition(".")[2]
    if value < 0:
        raise UserError(f"--set {text}: must not be negative")
    whole = where.startswith("deployment.") or name in (
        "block_tokens",
        "max_sequences",
        "count",
        "heads",
        "kv_heads",
        "head_dim",
        "hidden",
        "vocab",
        "k",
    )
    if whole and (value < 1 or value != int(value)):
        raise UserError(f"--set {text}: must be a whole number of at least 1")
    if where.startswith("speculation.a") and value > 1:
        raise UserError(f"--set {text}: a share of drafted tokens is at most 1")
    if ("utilisation" in name or name in ("residual", "provisioned", "cap")) and value > 1:
        of = "the memory" if where.startswith("system.e") else "the whole"
        raise UserError(f"--set {text}: a share of {of} is at most 1")
    if where == "economics.pue" and value < 1:
        raise UserError(f"--set {text}: a PUE is at least 1")
    if value == 0 and where in ("economics.life", "economics.building_life", "economics.utilisation"):
        raise UserError(f"--set {text}: must be more than 0")
    if ".efficiency." in where and any(part in where for part in ("gemm_", "attention_")) and value > 1:
        raise UserError(f"--set {text}: an efficiency is a share of at most 1")
    divides = ("bandwidth", "rates", "visible", "prompt", "output", "concurrency", "gemm_", "attention_", "exponent")
    if name == "prefix_hits" and value >= 1:
        raise UserError(f"--set {text}: the last token of a prompt is never cached, so give a share below 1")
    if value == 0 and not name.endswith("_scv") and any(part in where for part in divides):
        raise UserError(f"--set {text}: must be more than 0")


def put_given(scenario: Scenario, path: str, value: Any) -> Scenario:
    """Return a scenario with a value that the user gave, its provenance saying so.

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

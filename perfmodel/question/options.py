"""Options of a question, and which of them may stand together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.errors import UserError
from perfmodel.options import Arrivals, Priced, flag, options_of
from perfmodel.question.reading import FIELDS, option, read_changes, read_option, read_options
from perfmodel.specs.naming import read_engine

SYSTEM_KEYS = {
    "plan": "plan",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "dp": "dp",
    "attention_dp": "attention_dp",
    "engine": "engine",
    "precision": "precision",
    "kv": "kv_precision",
}


@dataclass(frozen=True)
class Options:
    """What a question may fix besides model and system; ``None`` is assumed."""

    plan: str | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dp: float | None = None
    attention_dp: float | None = None
    engine: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    traffic: str | None = None
    prompt: float | None = None
    output: float | None = None
    concurrency: float | None = None
    images: float | None = None
    draft: str | None = None
    k: float | None = None
    alpha: float | None = None
    ar: float | None = None
    accept: str | Sequence[float] | None = None
    accept_logged: str | Sequence[float] | None = None
    prices: str | None = None
    region: str | None = None


def split_system(on: str, options: Options) -> tuple[str, Options]:
    """Read ``SYSTEM[:key=value,...]``; what stands there wins over the common options.

    Parameters
    ----------
    on : str
        System and plan.
    options : Options

    Returns
    -------
    tuple of str and Options
        Name of the system, and the options with what stood there.
    """
    name, colon, rest = on.partition(":")
    if not name:
        raise UserError(f"--on '{on}': name a system")
    if not colon:
        return name, options
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (text.strip() for text in part.partition("="))
        if key not in SYSTEM_KEYS or not equals or not value:
            raise UserError(f"--on '{on}': '{part}' is none of {', '.join(f'{key}=' for key in SYSTEM_KEYS)}")
        name_of = SYSTEM_KEYS[key]
        if name_of in given:
            raise UserError(f"--on '{on}': {key}= is given twice")
        given[name_of] = read_option(name_of, value, options_of(Priced)[name_of], f"--on {key}")
    return name, replace(options, **given)


def check_given_once(systems: Sequence[str], options: Options) -> None:
    """Refuse an option that every system overrides, so that it enters nowhere.

    Parameters
    ----------
    systems : sequence of str
        Each with its plan.
    options : Options
    """
    own = [split_system(on, Options())[1] for on in systems]
    for key, name in SYSTEM_KEYS.items():
        if getattr(options, name) is not None and own and all(getattr(mine, name) is not None for mine in own):
            raise UserError(f"{flag(name)} is given twice: {key}= of --on takes its place; leave one of them out")


def check_options(options: Options) -> None:
    """Refuse what the fields that options fill cannot have, and options that exclude each other.

    Parameters
    ----------
    options : Options
    """
    for name in FIELDS:
        if (value := getattr(options, name)) is not None:
            option(name, value)
    if options.engine is not None:
        read_engine(options.engine)
    if options.traffic and (options.prompt or options.output):
        raise UserError("give either --traffic or --prompt and --output")
    if (options.prompt is None) != (options.output is None):
        raise UserError("--prompt and --output go together")


def distinct(names: Sequence[str]) -> list[str]:
    """Return names with their place where one stands more than once.

    Parameters
    ----------
    names : sequence of str

    Returns
    -------
    list of str
    """
    return [name if names.count(name) == 1 else f"{name}#{at + 1}" for at, name in enumerate(names)]


def split_changes(systems: Sequence[str], changes: Sequence[str]) -> list[list[str]]:
    """Deal changes to systems: ``PATH=V`` to all, ``SYSTEM:PATH=V`` to those of a name, ``#2:PATH=V`` to the second.

    Parameters
    ----------
    systems : sequence of str
        Each with its plan.
    changes : sequence of str

    Returns
    -------
    list of list of str
        One list a system.
    """
    each: list[list[str]] = [[] for _ in systems]
    names = [split_system(system, Options())[0] for system in systems]
    for text in changes:
        head, colon, rest = text.partition(":")
        if not colon or "=" in head:
            for mine in each:
                mine.append(text)
            continue
        if head.startswith("#"):
            if not head[1:].isdigit() or not 1 <= int(head[1:]) <= len(systems):
                raise UserError(f"--set {text}: there is no system {head}; #1 to #{len(systems)} are given")
            each[int(head[1:]) - 1].append(rest)
            continue
        named = [index for index, name in enumerate(names) if name.casefold() == head.casefold()]
        if not named:
            raise UserError(f"--set {text}: '{head}' is none of the systems {', '.join(names)}")
        for index in named:
            each[index].append(rest)
    return each


def taken(
    kind: type, systems: Sequence[str], set: Any, given: Mapping[str, Any]
) -> tuple[Options, list[str], dict[str, Any]]:
    """Read what was given with a question.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`: which options there are.
    systems : sequence of str
        What is asked about, each with its plan.
    set : mapping or sequence of str
        Changes by path; numbers are in the inside unit.
    given : mapping of str to Any
        Options by name, as text or as numbers.

    Returns
    -------
    options : Options
    changes : list of str
        ``PATH=VALUE`` each, those that options about arrivals stand for first.
    rest : dict of str to Any
        What else was given, read.
    """
    rest = read_options(kind, given)
    options = Options(**{name: rest.pop(name) for name in options_of(Priced) if name in rest})
    check_given_once(systems, options)
    # A router belongs to the deployment, all else about arrivals to the traffic.
    part = {"routing": "deployment"}
    loaded = [f"{part.get(name, 'traffic')}.{name}={rest.pop(name)}" for name in options_of(Arrivals) if name in rest]
    return options, [*loaded, *read_changes(set)], rest

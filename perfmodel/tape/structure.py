"""What a trace depends on: the words and switches of a scenario, and which of its numbers are published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from perfmodel.specs.types import Deployment, Model, System, Traffic

#: What no equation sees.
_UNSEEN: dict[type[Any], frozenset[str]] = {
    System: frozenset({"name", "title", "chip", "plans", "default_plan", "default_engine"}),
    Model: frozenset({"name", "hf_id"}),
    Traffic: frozenset({"name"}),
    Deployment: frozenset({"plan"}),
}
_NEVER_SEEN = frozenset({"provenance", "aliases", "changed", "assumed", "warnings"})


def structure(part: Any) -> Any:
    """Return what a trace depends on: words and switches as they are, numbers as published or not.

    Parameters
    ----------
    part : Any
        A spec, or a scenario.

    Returns
    -------
    Any
        Nested tuples; an array counts as a published number.
    """
    if is_dataclass(part) and not isinstance(part, type):
        unseen = _NEVER_SEEN | _UNSEEN.get(type(part), frozenset())
        return type(part).__name__, tuple(
            (entry.name, structure(getattr(part, entry.name))) for entry in fields(part) if entry.name not in unseen
        )
    if isinstance(part, Mapping):
        return tuple((key, structure(value)) for key, value in part.items())
    if isinstance(part, tuple | list):
        return tuple(structure(value) for value in part)
    if part is None or isinstance(part, bool | str):
        return part
    return "#" if isinstance(part, np.ndarray) or part == part else "?"

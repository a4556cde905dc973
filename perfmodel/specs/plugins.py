"""What other packages add: entry points, looked up only when a name is none of ours, and loaded only when asked for.

==================== =================================================================================================
group                what an entry point names
==================== =================================================================================================
perfmodel.machines   an instance of :class:`perfmodel.machines.base.Machine`, a kind of machine
perfmodel.specs      a package whose folder is laid out like that of a user: ``hardware_specs/``, ``workloads/``
perfmodel.engines    a rule that divides memory: ``rule(scenario, engine, capacity, weights)``, a :class:`Budget`
perfmodel.figures    a module with functions under ``@figure``
==================== =================================================================================================
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfmodel.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MACHINES, SPECS, ENGINES, FIGURES = (f"perfmodel.{what}" for what in ("machines", "specs", "engines", "figures"))


@functools.cache
def _entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group; reading what is installed takes a few milliseconds, so once and late."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in sorted(entry_points(group=group), key=lambda entry: entry.name)}


def names(group: str) -> list[str]:
    """Return the names that other packages add to a group.

    Parameters
    ----------
    group : str

    Returns
    -------
    list of str
    """
    return list(_entries(group))


def load(group: str, name: str) -> Any:
    """Return what an entry point names.

    Parameters
    ----------
    group, name : str
        One of :func:`names`.

    Returns
    -------
    Any

    Raises
    ------
    UserError
        Where its package cannot be imported.
    """
    entry = _entries(group)[name]
    try:
        return entry.load()
    except Exception as error:
        package = entry.dist.name if entry.dist else "a package"
        raise UserError(f"{group}: '{name}' of {package} ({entry.value}) cannot be loaded: {error}") from None


@functools.cache
def folders() -> tuple[Path, ...]:
    """Return the folders of other packages that hold specs; none of them is imported.

    Returns
    -------
    tuple of Path
    """
    paths = []
    for entry in _entries(SPECS).values():
        spec = importlib.util.find_spec(entry.module)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{SPECS}: '{entry.name}' names {entry.module}, which is no package")
        paths += [Path(place) for place in spec.submodule_search_locations]
    return tuple(paths)

"""``perfmodel.toml``: what a project asks about where a command does not say, found in the current folder or above.

.. code-block:: toml

    model = "llama-3.3-70b"
    systems = ["dgx-h100", "dgx-b200:tp=4"]
    traffic = "chat"
    prices = "2026-11"
    region = "us-va"
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.options import unknown
from perfmodel.writing import reason

FILE = "perfmodel.toml"
#: Parameters of the verbs by the field that gives them.
_PARAMETERS = {"model": "model", "systems": "on", "traffic": "traffic", "prices": "prices", "region": "region"}
_FIELDS = {name: field for field, name in _PARAMETERS.items()}
#: What a command gives in place of a field.
_INSTEAD = {"traffic": ("prompt", "output", "context", "sessions", "trace")}


@dataclass(frozen=True)
class Project:
    """A project's defaults.

    Attributes
    ----------
    path : Path
    fields : mapping of str to Any
        By name, each of its type.
    """

    path: Path
    fields: Mapping[str, Any]

    def defaults(self, parameters: Mapping[str, bool], given: Collection[str]) -> dict[str, Any]:
        """Return the values of parameters that a command leaves open.

        Parameters
        ----------
        parameters : mapping of str to bool
            Of the verb, by name; whether it takes several values.
        given : collection of str
            Those that the command gives.
        """
        values = {}
        for field, value in self.fields.items():
            name = _PARAMETERS[field]
            if name not in parameters or {name, *_INSTEAD.get(field, ())} & set(given):
                continue
            # A verb about one system takes the first.
            values[name] = value[0] if isinstance(value, list) and not parameters[name] else value
        return values

    def notes(self, values: Mapping[str, Any]) -> list[str]:
        """Return what is assumed by the file, a line a value."""
        shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in values.items()}
        return [f"{_FIELDS[name]} {text}: {self.path.name} of the project" for name, text in shown.items()]


def blamed(message: str, values: Mapping[str, Any]) -> str:
    """Return which fields of the file a message is about, in words that end it; empty where it is about none.

    Parameters
    ----------
    message : str
        Of a refusal.
    values : mapping of str to Any
        Parameters that the file gave.
    """
    given = {_FIELDS[name]: [value] if isinstance(value, str) else value for name, value in values.items()}
    named = [field for field, texts in given.items() if any(text.partition(":")[0] in message for text in texts)]
    return f" ({FILE} gives {', '.join(named)})" if named else ""


def _field(path: Path, name: str, value: Any) -> Any:
    """Return a checked field."""
    if name not in _PARAMETERS:
        raise UserError(f"{path}: {unknown(name, _PARAMETERS).replace('there is no option', 'there is no field')}")
    if name == "systems":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
            raise UserError(f'{path}: systems: expected names of systems, as ["dgx-h100", "dgx-b200:tp=4"]')
        return names
    if not isinstance(value, str) or not value:
        raise UserError(f"{path}: {name}: expected a name in quotes")
    return value


@functools.lru_cache(maxsize=1)
def _read(path: Path, _changed: int) -> Project:
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {reason(error)}") from None
    except ValueError as error:
        raise UserError(f"{path}: no TOML: {error}") from None
    return Project(path, {name: _field(path, name, value) for name, value in raw.items()})


def project() -> Project | None:
    """Return the project of the current folder, or of the nearest one above that has the file.

    Raises
    ------
    UserError
        One line that names the file and the field.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / FILE
        if path.is_file():
            return _read(path, path.stat().st_mtime_ns)
    return None

"""One file a format; each has a ``FORMAT``, or ``FORMATS`` where two share their fields."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module

from perfmodel.evidence.runs.run import Format


@functools.cache
def formats() -> tuple[Format, ...]:
    """Return the formats of every file of this folder."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return tuple(one for module in modules for one in (getattr(module, "FORMATS", None) or (module.FORMAT,)))

"""How results show themselves: data in the rooms below, their tables in the rooms above."""

from __future__ import annotations

from importlib import import_module

#: Renderers of a result by the place of its class: of its text and, where it has one, of its HTML, each a place too.
RENDERERS: dict[str, tuple[str, str | None]] = {}


class Shown:
    """A result that a terminal and a notebook show by the renderers of its class."""

    def __repr__(self) -> str:
        return _rendered(self, 0) or object.__repr__(self)

    def _repr_html_(self) -> str | None:
        return _rendered(self, 1)


def _rendered(result: Shown, which: int) -> str | None:
    kind = type(result)
    place = RENDERERS.get(f"{kind.__module__}:{kind.__qualname__}", (None, None))[which]
    if place is None:
        return None
    module, _, name = place.partition(":")
    shown: str = getattr(import_module(module), name)(result)
    return shown

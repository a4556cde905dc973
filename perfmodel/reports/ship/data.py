"""Bundled tables as frames."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from perfmodel.errors import UserError
from perfmodel.specs import catalog

if TYPE_CHECKING:
    import pandas as pd


def only_known(asked: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that no bundled table has.

    Raises
    ------
    UserError
        One line with the names that there are.
    """
    names = list(known)
    for name in asked:
        if name not in names:
            raise UserError(f"'{name}' is not in the bundled tables: expected {', '.join(names)}")


@functools.cache
def table(name: str) -> pd.DataFrame:
    """Return a table of ``data/`` by its path there; callers copy before they change it."""
    import pandas as pd

    return pd.read_csv(catalog.bundled() / "data" / name)

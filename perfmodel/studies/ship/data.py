"""Bundled tables as frames."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from perfmodel.specs import catalog

if TYPE_CHECKING:
    import pandas as pd


@functools.cache
def table(name: str) -> pd.DataFrame:
    """Return a table of ``data/`` by its path there; callers copy before they change it."""
    import pandas as pd

    return pd.read_csv(catalog.bundled() / "data" / name)

"""Frames and charts over the traffic of the comparison: P:D and context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from perfmodel.reports.figures import Chart, Layer


def panel(context: float) -> str:
    """Return the name of the panel of a context."""
    return f"context {context / 1024:g}Ki"


def traffic_rows(
    ratios: Sequence[float], panels: Sequence[str], values: Mapping[str, Any], by: str = "context", **names: str
) -> list[dict[str, Any]]:
    """Return a row a P:D and panel of the traffic, for a frame.

    Parameters
    ----------
    ratios : sequence of float
    panels : sequence of str
    values : mapping of str to array
        Quantities with axes of ratios and panels.
    by : str
        Column of the panels.
    **names : str
        Columns that are the same in all rows.
    """
    return [
        {**names, "ratio": float(ratio), by: place, **{key: float(value[i, j]) for key, value in values.items()}}
        for i, ratio in enumerate(ratios)
        for j, place in enumerate(panels)
    ]


def over_ratio(
    name: str, title: str, frame: pd.DataFrame, columns: Mapping[str, str], y: str, color: str, caption: str
) -> Chart:
    """Return a quantity over P:D, both on logarithms, a panel a context where the frame has several."""
    return Chart(
        name,
        title,
        frame,
        columns,
        "ratio",
        y,
        (Layer("line"),),
        color=color,
        facet="context" if "context" in columns else "",
        log="xy",
        caption=caption,
    )

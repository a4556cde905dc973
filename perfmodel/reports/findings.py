"""What a chart shows, in one sentence worked out of its numbers, and where its lines cross."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from perfmodel.reports.figures import Chart

#: Share of panels or places from which a series is called the highest of most.
_MOST = 0.6
#: Share of places that lines must have in common, so that who is highest can be said place by place.
_SHARED = 0.75


def number(value: float, title: str = "") -> str:
    """Return a value to three digits with the unit that stands in brackets in the title of its column."""
    unit = re.search(r"\[([^\]]+)\]", title)
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{text} {unit[1]}" if unit and unit[1] != "1" else text


def finding(chart: Chart) -> str:
    """Return what a chart shows: its own sentence, else who is highest and where that changes, or its largest bar."""
    said = chart.finding or _said(chart)
    # A name of a machine stays as it is written.
    return said[:1].upper() + said[1:] if said.split(maxsplit=1)[0].strip(":").isalpha() else said


def _said(chart: Chart) -> str:
    marks = {layer.mark for layer in chart.layers}
    numeric = pd.api.types.is_numeric_dtype(chart.frame[chart.x]) and not chart.across
    if "rect" in marks:
        return _map(chart)
    if numeric and any(layer.mark == "line" and layer.y != chart.x for layer in chart.layers):
        return _lines(chart)
    if marks <= {"point", "text", "line"} and numeric:
        return _cloud(chart)
    return _bars(chart)


def crossings(frame: pd.DataFrame, x: str, y: str, series: str, log: str = "") -> list[dict[str, Any]]:
    """Return where two lines of a frame cross, between places that both have: ``x``, ``y`` and the two names.

    Along each stretch the lines are straight as drawn, in the logarithm where an axis is logarithmic.
    """
    warp = {axis: (math.log if axis in log else float) for axis in "xy"}
    back = {axis: (math.exp if axis in log else float) for axis in "xy"}
    table = frame.pivot_table(index=x, columns=series, values=y, aggfunc="mean").sort_index()
    names = list(table.columns)
    found = []
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            both = table[[first, second]].dropna()
            both = both[(both > 0).all(axis=1)] if "y" in log else both
            places = [warp["x"](place) for place in both.index if place > 0 or "x" not in log]
            if len(places) != len(both):
                continue
            one, two = ([warp["y"](value) for value in both[name]] for name in (first, second))
            gaps = [a - b for a, b in zip(one, two, strict=True)]
            for k in range(len(gaps) - 1):
                if gaps[k] * gaps[k + 1] < 0:
                    share = gaps[k] / (gaps[k] - gaps[k + 1])
                    place = back["x"](places[k] + share * (places[k + 1] - places[k]))
                    value = back["y"](one[k] + share * (one[k + 1] - one[k]))
                    found.append({x: place, y: value, "one": str(first), "two": str(second)})
    return found


def _y(chart: Chart) -> str:
    """Return the column that the lines show."""
    return next((layer.y for layer in chart.layers if layer.mark == "line" and layer.y), chart.y)


def _at(frame: pd.DataFrame, place: int) -> Any:
    return frame.iloc[place]


def _quantity(title: str) -> str:
    return re.sub(r"\s*\[[^\]]*\]", "", title)


def _lines(chart: Chart) -> str:
    y, frame = _y(chart), chart.frame.dropna(subset=[chart.x, _y(chart)])
    what, place = _quantity(chart.columns[y]), _quantity(chart.columns[chart.x])
    if not chart.color or frame[chart.color].nunique() < 2:
        first, last = _at(frame, int(frame[chart.x].argmin())), _at(frame, int(frame[chart.x].argmax()))
        ends = [number(row[y], chart.columns[y]) for row in (first, last)]
        places = [number(row[chart.x], chart.columns[chart.x]) for row in (first, last)]
        return f"{what}: {ends[0]} at {place} {places[0]}, {ends[1]} at {places[1]}."
    tops = _tops(frame, chart, y)
    if not tops:
        return _reach(frame, chart, y)
    names = [name for _, name in tops]
    leader = max(set(names), key=names.count)
    share = names.count(leader) / len(names)
    if share == 1:
        own = frame[frame[chart.color].astype(str) == leader][y]
        return (
            f"{what}: {leader} is highest throughout, at {number(own.min())} to {number(own.max(), chart.columns[y])}."
        )
    if not chart.facet and (said := _taking_over(chart, frame, y, tops)):
        return f"{what}: {said}."
    rest = [name for name in dict.fromkeys(names) if name != leader]
    others = f"{len(rest)} others" if len(rest) > 2 else " or ".join(rest)
    most = "mostly" if share >= _MOST else "most often"
    return f"{what}: {leader} is {most} highest ({share:.0%} of the places), else {others}."


def _tops(frame: pd.DataFrame, chart: Chart, y: str) -> list[tuple[float, str]]:
    """Return who is highest at each place, panel by panel; nothing where lines do not share most of their places."""
    panels = frame.groupby(chart.facet, sort=False) if chart.facet else [("", frame)]
    found: list[tuple[float, str]] = []
    for _, panel in panels:
        table = panel.pivot_table(index=chart.x, columns=chart.color, values=y, aggfunc="mean").sort_index()
        if table.notna().mean().mean() < _SHARED:
            return []
        found += [
            (at, str(row.idxmax()))
            for at, (_, row) in zip(table.index, table.iterrows(), strict=True)
            if row.notna().sum() > 1
        ]
    return found


def _reach(frame: pd.DataFrame, chart: Chart, y: str) -> str:
    """Return the ends of lines that share no places."""
    what, place = _quantity(chart.columns[y]), _quantity(chart.columns[chart.x])
    most, least = _at(frame, int(frame[y].argmax())), _at(frame, int(frame[y].argmin()))
    return (
        what
        + ": "
        + "; ".join(
            f"{word} {number(row[y], chart.columns[y])} for {row[chart.color]}, at {place} "
            f"{number(row[chart.x], chart.columns[chart.x])}"
            for word, row in (("most", most), ("least", least))
        )
        + "."
    )


def _taking_over(chart: Chart, frame: pd.DataFrame, y: str, tops: Sequence[tuple[float, str]]) -> str:
    """Return who is highest from where on; nothing where that changes often."""
    runs: list[tuple[float, float, str]] = []
    for before, (at, name) in zip([tops[0], *tops], tops, strict=False):
        if not runs or runs[-1][2] != name:
            runs.append((before[0], at, name))
    last = frame.groupby(frame[chart.color].astype(str))[chart.x].max()
    if len(runs) > 3 or any(last[old[2]] < new[1] for old, new in itertools.pairwise(runs)):
        return ""
    crossed = crossings(frame, chart.x, y, chart.color, chart.log)
    said = [f"{runs[0][2]} is highest at first"]
    title = chart.columns[chart.x]
    for (_, _, old), (low, high, new) in itertools.pairwise(runs):
        places = [
            one[chart.x] for one in crossed if {one["one"], one["two"]} == {old, new} and low <= one[chart.x] <= high
        ]
        said.append(f"{new} from {_quantity(title)} {number(places[0] if places else high, title)} on")
    return ", ".join(said)


def _cloud(chart: Chart) -> str:
    low, high = chart.frame[chart.y].min(), chart.frame[chart.y].max()
    title = chart.columns[chart.y]
    return f"{_quantity(title)} of {len(chart.frame):,} points: {number(low)} to {number(high, title)}."


def _map(chart: Chart) -> str:
    shade = next(layer.color for layer in chart.layers if layer.mark == "rect")
    values = chart.frame[shade]
    return (
        f"{_quantity(chart.columns[shade])}: from {number(values.min())} to {number(values.max())} over "
        f"{len(values):,} cells, half of them below {number(values.median())}."
    )


def _names(chart: Chart, row: Any, columns: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(str(row[column]) for column in columns if column))


def _bars(chart: Chart) -> str:
    value, name = (chart.x, chart.y) if chart.across else (chart.y, chart.x)
    title = chart.columns[value]
    what = _quantity(title)
    frame = chart.frame.dropna(subset=[value])
    if chart.stacked:
        keys = [column for column in (name, chart.facet) if column]
        whole = frame.groupby(keys, sort=False)[value].sum().reset_index()
    else:
        keys, whole = [name, chart.facet, chart.color], frame
    most, least = _at(whole, int(whole[value].argmax())), _at(whole, int(whole[value].argmin()))
    ends = f"{number(most[value], title)} for {_names(chart, most, keys)}"
    said = f"{what}: most {ends}; least {number(least[value], title)} for {_names(chart, least, keys)}"
    if chart.stacked and chart.color:
        parts = frame.groupby(chart.color, sort=False)[value].sum()
        said += f"; {parts.idxmax()} is the largest part"
    return f"{said}."

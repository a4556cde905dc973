"""Charts as data, drawn with Altair, which checks their schema: on a page, as PNG, as SVG, and their numbers as CSV."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any, TextIO

from perfmodel.outputs import page
from perfmodel.reports import findings
from perfmodel.reports.figures import Chart, Layer
from perfmodel.writing import text_cell

if TYPE_CHECKING:
    import altair as alt

#: Six colours, each pair at least 10 apart (CIEDE2000) for the colour-blind and in grey; dash and shape tell series
#: apart too, and names stand at the ends of lines.
COLOURS = ("#2468af", "#872610", "#468e6b", "#d984af", "#13284e", "#f1bc3d")
_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [1, 3], [12, 3], [5, 2, 1, 2])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

#: Width of a chart in a picture, and of the panels of one on a page, which shrink where there is less [px].
_WIDTH, _PAGE = 760, 1150
_HEIGHT, _PANEL = 380, 300
#: Most series whose names stand at the ends of their lines, and how far names keep apart [px].
_NAMED, _APART = 8, 15
#: Share of the width within which names of lines that end there would lie on each other.
_BESIDE = 0.25


def spec(chart: Chart) -> dict[str, Any]:
    """Return the Vega-Lite spec of a chart, as wide as a page lets it be.

    Raises
    ------
    altair.utils.schemapi.SchemaValidationError
        Where a part of it is not Vega-Lite.
    """
    import altair as alt

    layers = [_layer(chart, layer) for layer in chart.layers]
    ends = _ends(chart)
    if ends:
        layers.append(_labels(chart))
    # The rows come in last: they have no schema, and thousands of them are slow to look for one.
    whole: dict[str, Any] = {"title": chart.title, "data": alt.NamedData(name=chart.name)}
    drawn: alt.FacetChart | alt.LayerChart
    if chart.facet:
        panels = _values(chart, chart.facet)
        columns = 2 if len(panels) == 4 else min(3, len(panels))
        panel = alt.layer(*layers, width=_panel_width(_PAGE, columns), height=_PANEL)
        by = alt.Facet(field=chart.facet, type="nominal", sort=panels, title=None)
        drawn = alt.FacetChart(spec=panel, facet=by, columns=columns, **whole)
    else:
        drawn = alt.layer(*layers, width="container", height=_HEIGHT, **whole)
    made: dict[str, Any] = drawn.to_dict(context={"top_level": False})
    meta = {"columns": dict(chart.columns), "labelled": bool(ends)}
    return {**made, "data": {"values": _placed(chart, ends)}, "usermeta": meta}


def _panel_width(whole: int, columns: int) -> int:
    return whole // columns - 50


def _lined(chart: Chart) -> Layer | None:
    """Return the layer of lines whose ends can carry names."""
    lines = [layer for layer in chart.layers if layer.mark == "line" and not layer.color and layer.y != chart.x]
    named = chart.color and not chart.facet and 1 < len(_values(chart, chart.color)) <= _NAMED
    return lines[0] if named and lines and _is_number(chart, chart.x) else None


def _ends(chart: Chart) -> dict[int, Any]:
    """Return the series that end in a row, by its place in the frame; empty where names would not fit."""
    layer = _lined(chart)
    if layer is None:
        return {}
    x, y = layer.x or chart.x, layer.y or chart.y
    frame = chart.frame.assign(place_=range(len(chart.frame)))
    drawn = (frame.query(layer.rows) if layer.rows else frame).dropna(subset=[x, y])
    last = drawn.sort_values(x, kind="stable").drop_duplicates(chart.color, keep="last")
    return dict(zip(last["place_"].tolist(), last[chart.color].tolist(), strict=True))


def _shifts(chart: Chart, ends: dict[int, Any]) -> dict[int, float]:
    """Return how far each name moves from the end of its line so that none lies on another [px], up being negative."""
    layer = _lined(chart)
    if not ends or layer is None:
        return {}
    across, down = (
        _along(chart, column, axis) for column, axis in ((layer.x or chart.x, "x"), (layer.y or chart.y, "y"))
    )
    own = {at: (1 - down[at]) * _HEIGHT * 0.92 for at in ends}
    placed: dict[int, float] = {}
    for at in sorted(ends, key=lambda place: own[place]):
        beside = [placed[other] + _APART for other in placed if abs(across[other] - across[at]) < _BESIDE]
        placed[at] = max([own[at], *beside])
    return {at: round(placed[at] - own[at], 1) for at in ends}


def _along(chart: Chart, column: str, axis: str) -> list[float]:
    """Return where values lie along their axis, from 0 to 1."""
    values = [float(value) for value in chart.frame[column]]
    if axis in chart.log:
        values = [math.log(value) if value > 0 else math.nan for value in values]
    kept = [value for value in values if math.isfinite(value)]
    low, span = min(kept), (max(kept) - min(kept)) or 1.0
    return [(value - low) / span if math.isfinite(value) else 0.0 for value in values]


def _labels(chart: Chart) -> alt.Chart:
    """Return the names of series at the ends of their lines."""
    import altair as alt

    layer = _lined(chart)
    assert layer is not None
    mark = alt.MarkDef(type="text", align="left", dx=7, dy={"expr": "datum.dy_"}, fontSize=12, fontWeight=600)
    encoding = alt.FacetedEncoding(
        x=_position(chart, layer.x or chart.x, "x"),
        y=_position(chart, layer.y or chart.y, "y"),
        text=alt.Text(field="end_", type="nominal"),
        color=_series(chart, Layer("text"), chart.color)["color"],
    )
    made = alt.Chart(name="labels", mark=mark, encoding=encoding)
    made.transform = [alt.FilterTransform(filter="isValid(datum.end_)")]
    return made


def with_crossings(chart: Chart, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with a ring where two lines cross, and the place beside it."""
    layer = _lined(chart)
    found = layer and findings.crossings(chart.frame, layer.x or chart.x, layer.y or chart.y, chart.color, chart.log)
    if not found or len(found) > 4 or layer is None:
        return drawn
    x, y = layer.x or chart.x, layer.y or chart.y
    rows = [{**row, "label": findings.number(row[x], chart.columns[x])} for row in found]
    place = {axis: {"field": column, "type": "quantitative"} for axis, column in (("x", x), ("y", y))}
    ring = {"type": "point", "shape": "circle", "size": 160, "filled": False, "strokeWidth": 2, "color": "currentColor"}
    text = {"type": "text", "dy": -16, "fontSize": 12, "fontWeight": 600, "color": "currentColor"}
    named = {"text": {"field": "label", "type": "nominal"}}
    more = [
        {"name": "crossings", "data": {"values": rows}, "mark": ring, "encoding": place},
        {"data": {"values": rows}, "mark": text, "encoding": {**place, **named}},
    ]
    return {**drawn, "layer": [*drawn["layer"], *more]}


def for_picture(drawn: dict[str, Any]) -> dict[str, Any]:
    """Return a spec as wide as a picture."""
    if "facet" not in drawn:
        layers = list(map(_without_legend, drawn["layer"])) if drawn["usermeta"]["labelled"] else drawn["layer"]
        return {**drawn, "layer": layers, "width": _WIDTH}
    return {**drawn, "spec": {**drawn["spec"], "width": _panel_width(_WIDTH, drawn["columns"])}}


def _without_legend(layer: dict[str, Any]) -> dict[str, Any]:
    told = {
        channel: {**entry, "legend": None}
        for channel, entry in layer["encoding"].items()
        if channel in ("color", "strokeDash", "shape")
    }
    return {**layer, "encoding": {**layer["encoding"], **told}}


def _placed(chart: Chart, ends: dict[int, Any]) -> list[dict[str, Any]]:
    """Return the rows with their place in the frame and in the order of series, and the name where a line ends."""
    series = _values(chart, chart.color)
    shifts = _shifts(chart, ends)
    return [
        {
            **row,
            "row_": at,
            "order_": series.index(row[chart.color]) if series else 0,
            **({"end_": str(ends[at]), "dy_": shifts[at]} if at in ends else {}),
        }
        for at, row in enumerate(_rows(chart))
    ]


def _values(chart: Chart, column: str) -> list[Any]:
    """Return the values of a column in order of appearance."""
    return list(dict.fromkeys(chart.frame[column].tolist())) if column else []


def _rows(chart: Chart) -> list[dict[str, Any]]:
    """Return the frame as JSON can hold it: what is not a number is null."""
    rows = []
    for row in chart.frame.to_dict("records"):
        kept: dict[str, Any] = {}
        for name, value in row.items():
            plain = value.item() if hasattr(value, "item") else value
            kept[str(name)] = None if isinstance(plain, float) and not math.isfinite(plain) else plain
        rows.append(kept)
    return rows


def _is_number(chart: Chart, column: str) -> bool:
    import pandas as pd

    kind = chart.frame[column].dtype
    return bool(pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind))


def _tooltips(chart: Chart) -> list[alt.Tooltip]:
    import altair as alt

    shown = []
    for name in map(str, chart.frame.columns):
        number: dict[str, Any] = {"type": "nominal"}
        if _is_number(chart, name):
            number = {"type": "quantitative", "format": ".4~g"}
        shown.append(alt.Tooltip(field=name, title=chart.columns[name], **number))
    return shown


def _position(chart: Chart, column: str, which: str) -> alt.X | alt.Y:
    """Return field, type, title and scale of a position; layers of other columns share the title of the chart's own."""
    import altair as alt

    channel, own = (alt.X, chart.x) if which == "x" else (alt.Y, chart.y)
    quantity = "x" if chart.across else "y"
    named: dict[str, Any] = {"field": column, "title": chart.columns[own]}
    bars = any(layer.mark in ("bar", "rect") for layer in chart.layers)
    if not _is_number(chart, column) or (which != quantity and bars):
        order = _values(chart, column)
        slanted = which == "x" and (len(order) > 8 or sum(len(str(name)) for name in order) > 80)
        labels = alt.Axis(labelAngle=-40 if slanted else 0, labelLimit=320)
        return channel(**named, type="nominal", sort=order, axis=labels)
    # 500m for a half is not what a reader expects; 64k for 65,536 is.  All layers share the axis of the chart's column.
    shown = "~s" if chart.frame[own].abs().max() >= 10_000 else ".6~g"
    if which in chart.log:
        scale, axis = alt.Scale(type="log", nice=False), alt.Axis(format=shown, labelOverlap=True)
    else:
        filled = which == quantity and any(layer.mark in ("bar", "area") for layer in chart.layers)
        scale = alt.Scale(zero=filled or (chart.zero and which == "y"))
        axis = alt.Axis(format=shown, tickCount=8)
    return channel(**named, type="quantitative", scale=scale, axis=axis)


_MARKS: dict[str, dict[str, Any]] = {
    "line": {"type": "line", "strokeWidth": 2.2},
    "point": {"type": "point", "filled": True, "size": 70, "opacity": 0.95},
    "bar": {"type": "bar"},
    "area": {"type": "area", "opacity": 0.22},
    "rule": {"type": "rule", "strokeWidth": 1.6, "strokeDash": [5, 3]},
    "text": {"type": "text", "align": "left", "dx": 6, "dy": -6, "fontSize": 12},
    "rect": {"type": "rect"},
}


def _series(chart: Chart, layer: Layer, column: str) -> dict[str, Any]:
    """Return the encodings that tell series apart: colour, and what is left of it in grey."""
    import altair as alt

    title = chart.columns[column]
    if layer.mark == "rect":
        # Light to dark, so that a map reads in grey too.
        shades = alt.Scale(scheme="viridis", reverse=True)
        return {"color": alt.Color(field=column, type="quantitative", scale=shades, title=title)}
    names = _values(chart, column)

    def scale(values: tuple[Any, ...], turn: int = 1) -> alt.Scale:
        # Beyond six series colours come again, with another dash and shape.
        places = [(at + turn * (at // len(values))) % len(values) for at in range(len(names))]
        return alt.Scale(domain=names, range=[values[place] for place in places])

    entry: dict[str, Any] = {"field": column, "type": "nominal"}
    legend = alt.Legend(title=title, columns=4, symbolLimit=40, labelLimit=280, symbolOpacity=1)
    made: dict[str, Any] = {"color": alt.Color(**entry, scale=scale(COLOURS, 0), legend=legend)}
    if layer.mark == "line":
        made["strokeDash"] = alt.StrokeDash(**entry, scale=scale(_DASHES), legend=legend)
    if layer.mark == "point":
        made["shape"] = alt.Shape(**entry, scale=scale(_SHAPES), legend=legend)
    if layer.mark == "bar" and chart.stacked:
        # The order of the legend is the order of the pile.
        made["order"] = alt.Order(field="order_", type="quantitative")
    elif layer.mark == "bar" and column not in (chart.x, chart.y):
        if chart.across:
            made["yOffset"] = alt.YOffset(**entry, sort=names)
        else:
            made["xOffset"] = alt.XOffset(**entry, sort=names)
    return made


def _layer(chart: Chart, layer: Layer) -> alt.Chart:
    import altair as alt

    encoding: dict[str, Any] = {"tooltip": _tooltips(chart)}
    rule = layer.mark == "rule"
    if not (rule and layer.y and not layer.x):
        encoding["x"] = _position(chart, layer.x or chart.x, "x")
    if not (rule and layer.x and not layer.y):
        encoding["y"] = _position(chart, layer.y or chart.y, "y")
    if layer.y2:
        encoding["y2"] = alt.Y2(field=layer.y2)
    if color := layer.color or chart.color:
        encoding.update(_series(chart, layer, color))
    if layer.label:
        encoding["text"] = alt.Text(field=layer.label, type="nominal")
    made = alt.Chart(mark=alt.MarkDef(**_MARKS[layer.mark]), encoding=alt.FacetedEncoding(**encoding))
    if layer.rows:
        made.transform = [alt.FilterTransform(filter=_selected(chart, set(chart.frame.query(layer.rows).index)))]
    return made


def _selected(chart: Chart, kept: set[Any]) -> str:
    """Return a filter that keeps the rows of a layer, by their place in the frame."""
    places = [at for at, index in enumerate(chart.frame.index) if index in kept]
    return f"indexof({places}, datum.row_) >= 0"


def picture(drawn: dict[str, Any]) -> tuple[bytes, str]:
    """Return the spec of a chart as PNG and as SVG, black on white."""
    import vl_convert

    whole = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": page.config("#1b1f24", "#ffffff"),
        "padding": 16,
        **for_picture(drawn),
    }
    svg = vl_convert.vegalite_to_svg(whole)
    return vl_convert.svg_to_png(svg, scale=2.0), svg


def on_page(chart: Chart, drawn: dict[str, Any], command: str, level: int = 4) -> str:
    """Return a chart for a page: what it shows, its caption, how sure its numbers are, and what can be had of it."""
    sure = "" if "kind" in chart.frame.columns else f" Numbers are {chart.kind}."
    caption = f"{chart.title}. {chart.caption}.{sure}" if chart.caption else f"{chart.title}.{sure}"
    files = {end.upper(): f"{chart.name}.{end}" for end in ("csv", "png", "svg")}
    tools = page.tools(files, command)
    return page.chart(drawn, findings.finding(chart), caption.replace("..", "."), chart.name, tools, level)


def write_csv(chart: Chart, file: TextIO) -> None:
    """Write the numbers of a chart: RFC 4180, titles with units in the first row."""
    writer = csv.writer(file, lineterminator="\r\n")
    kind = "kind" not in chart.frame.columns
    writer.writerow([chart.columns[str(name)] for name in chart.frame.columns] + (["kind"] if kind else []))
    for row in _rows(chart):
        cells = [
            "" if value is None else text_cell(value) if isinstance(value, str) else value for value in row.values()
        ]
        writer.writerow(cells + ([chart.kind] if kind else []))

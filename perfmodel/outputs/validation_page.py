"""Scored measurements as a report page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.evidence.validate import Validation
from perfmodel.evidence.validate.rows import Row
from perfmodel.evidence.validate.scoring import LEAST_P90, WITHIN, describe
from perfmodel.outputs import page
from perfmodel.outputs.validation import (
    COLOUR_OF,
    COLUMNS,
    LEFT_OUT_COLUMNS,
    LEFT_OUT_SAYS,
    PART_SAYS,
    anomalies,
    assumptions,
    cells,
    figure,
    headline,
    left_out,
    reasons,
    share,
    tree,
    write_rows,
)
from perfmodel.specs.release import versions
from perfmodel.writing import make_folder, whole


def _points(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [
        {
            "measured": row.value,
            "predicted": row.predicted,
            "error": row.error,
            "shown": max(-1.0, min(1.0, row.error)),
            "part": row.part,
            "row": describe(row),
            "unit": row.given["unit"],
        }
        for row in rows
    ]


_PARTS = {
    "field": "part",
    "type": "nominal",
    "title": None,
    "scale": {"domain": list(COLOUR_OF), "range": list(COLOUR_OF.values())},
}


def _scatter(family: str, unit: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return predicted against measured, both axes logarithmic, with the diagonal and 20 % to either side."""
    ends = [value for row in rows for value in (row.value, row.predicted)]
    low, high = min(ends) * 0.8, max(ends) * 1.25
    line = [
        {"measured": at, "predicted": at, "least": at * (1 - WITHIN), "most": at * (1 + WITHIN)} for at in (low, high)
    ]
    scale = {"type": "log", "domain": [low, high], "nice": False, "clamp": True}
    axis = {"format": ",~g", "tickCount": 6, "labelOverlap": "parity"}

    def at(field: str, title: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis, "title": f"{title} [{unit}]"}

    return {
        "title": f"{family} [{unit}]",
        "height": 380,
        "layer": [
            {
                "data": {"values": line},
                "mark": {"type": "area", "opacity": 0.13, "color": page.COLOURS["green"]},
                "encoding": {"x": at("measured", "measured"), "y": at("least", "predicted"), "y2": {"field": "most"}},
            },
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": "currentColor", "strokeWidth": 1.2, "opacity": 0.6},
                "encoding": {"x": at("measured", "measured"), "y": at("predicted", "predicted")},
            },
            {
                "data": {"values": _points(sorted(rows, key=lambda row: row.part != "anomalous"))},
                "mark": {"type": "point", "filled": True, "opacity": 0.6, "size": 34},
                "encoding": {
                    "x": at("measured", "measured"),
                    "y": at("predicted", "predicted"),
                    "color": _PARTS,
                    "shape": {
                        **_PARTS,
                        "scale": {"domain": list(COLOUR_OF), "range": ["circle", "triangle-up", "cross"]},
                    },
                    "tooltip": [
                        {"field": "row", "title": "row"},
                        {"field": "measured", "type": "quantitative", "format": ",.4~g"},
                        {"field": "predicted", "type": "quantitative", "format": ",.4~g"},
                        {"field": "error", "type": "quantitative", "format": "+.1%"},
                        {"field": "part", "title": "kind"},
                    ],
                },
            },
        ],
    }


def _histogram(family: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return how the signed errors of predicted and calibrated rows are spread; what lies beyond 100 % stands there."""
    colour = {**_PARTS, "scale": {"domain": ["predicted", "calibrated"], "range": list(COLOUR_OF.values())[:2]}}
    return {
        "title": f"{family}: signed errors",
        "height": 220,
        "layer": [
            {
                "data": {"values": _points(rows)},
                "mark": {"type": "bar", "opacity": 0.85},
                "encoding": {
                    "x": {
                        "field": "shown",
                        "type": "quantitative",
                        "bin": {"step": 0.05, "extent": [-1.0, 1.05]},
                        "axis": {
                            "format": "+.0%",
                            "tickCount": 9,
                            "values": [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1],
                        },
                        "title": "predicted / measured - 1",
                    },
                    "y": {"aggregate": "count", "type": "quantitative", "title": "values", "stack": "zero"},
                    "color": colour,
                    "tooltip": [{"aggregate": "count", "type": "quantitative", "title": "values"}, {"field": "part"}],
                },
            },
            {
                "data": {"values": [{"at": 0.0}]},
                "mark": {"type": "rule", "color": "currentColor", "strokeWidth": 1.2},
                "encoding": {"x": {"field": "at", "type": "quantitative"}},
            },
        ],
    }


def _families(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Return the answered rows of each metric and unit, the largest first."""
    families: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if math.isfinite(row.error) and row.predicted > 0:
            families.setdefault((row.metric, row.given["unit"].strip()), []).append(row)
    return [(metric, unit, group) for (metric, unit), group in sorted(families.items(), key=lambda item: -len(item[1]))]


def _data_section(result: Validation, data: str, at: int) -> str:
    of_data = [row for row in result.rows if row.data == data]
    families = [family for family in _families(of_data) if len(family[2]) >= 5][:6]
    scatters, histograms = [], []
    for index, (metric, unit, rows) in enumerate(families):
        caption = (
            f"{metric} of {data}: {len(rows):,} values. The line is equality, the band 20 % to either side; "
            "the tooltip names the row."
        )
        scatters.append(page.chart(_scatter(metric, unit, rows), caption, f"scatter-{at}-{index}"))
        counted = [row for row in rows if row.part != "anomalous"]
        if len(counted) >= LEAST_P90:
            says = f"Signed errors of {metric}, without the anomalies; what lies beyond 100 % stands at the edge."
            histograms.append(page.chart(_histogram(metric, counted), says, f"histogram-{at}-{index}"))
    headings = ["", *COLUMNS, "worst row"]
    numbers = range(1, len(COLUMNS) + 1)
    tables = []
    for part, says in PART_SAYS.items():
        lines_of = tree(result, data, part)
        lines = [[label, *cells(one), one.worst_row] for _, label, one in lines_of]
        tables.append(page.table(headings, lines, says, numbers, [depth for depth, _, _ in lines_of]))
    scored = [row for row in of_data if math.isfinite(row.error) and row.part == "predicted"]
    worst = sorted(scored, key=lambda row: -abs(math.log(max(row.predicted, 1e-300) / row.value)))[:20]
    worst_table = page.table(
        ["metric", "row", "measured", "predicted", "error", "mind"],
        [
            [
                row.metric,
                describe(row),
                figure(row.value, row.given["unit"]),
                figure(row.predicted, row.given["unit"]),
                share(row.error, sign=True),
                "; ".join(row.notes),
            ]
            for row in worst
        ],
        "The 20 predicted values that lie farthest off, as a ratio.",
        (2, 3, 4),
    )
    apart = page.table(["rows", "why they are kept apart"], _split(anomalies(of_data)), "Anomalies.", (0,))
    unanswered = page.table(["rows", "why there is no prediction"], _split(reasons(of_data)), "", (0,))
    taken = page.table(["rows", "taken as, where the row does not say"], _split(assumptions(of_data)), "", (0,))
    return page.section(
        f"Measurements: {data}",
        page.paragraph(f"{headline(result, data)}."),
        page.charts(scatters) if scatters else "",
        page.charts(histograms) if histograms else "",
        *tables,
        worst_table,
        apart,
        unanswered,
        taken,
    )


def _split(lines: Sequence[str]) -> list[list[str]]:
    """Return lines of the form ``count: words`` as two cells."""
    rows = []
    for line in lines:
        head, colon, rest = line.partition(": ")
        rows.append([head, rest] if colon and head.replace(",", "").isdigit() else ["", line])
    return rows


def _headline_cards(result: Validation) -> str:
    entries = []
    for data in result.files():
        for each in result.of(data, "predicted", "metric"):
            if each.answered >= 5:
                entries.append(
                    (
                        f"{each.group[0]}",
                        share(each.mape),
                        f"MAPE, bias {share(each.bias, sign=True)}; "
                        f"{each.answered:,} of {each.rows:,} values of {data}",
                    )
                )
    return page.cards(entries[:8]) if entries else ""


def _fitted_section(result: Validation) -> str:
    rows = [[entry.name, str(entry.numbers), "; ".join(entry.notes)] for entry in result.fitted]
    return page.section(
        "What was fitted",
        page.paragraph(
            "Numbers of the calibrations that stand behind these predictions, and what each was fitted on. "
            "Everything else is a data sheet, a paper or a stated estimate."
        ),
        page.table(["calibration", "numbers", "fitted on"], rows, "", (1,)),
    )


def _left_out_section(result: Validation) -> str:
    if not result.left_out:
        return ""
    lines = left_out(result)
    return page.section(
        "Left out",
        page.table(
            ["", *LEFT_OUT_COLUMNS],
            [cells for _, cells in lines],
            f"{LEFT_OUT_SAYS}.",
            range(1, len(LEFT_OUT_COLUMNS) + 1),
            [depth for depth, _ in lines],
        ),
    )


def html_page(result: Validation, source: str) -> str:
    """Return the report page."""
    count = len(result.rows)
    answered = sum(math.isfinite(row.predicted) for row in result.rows)
    lead = (
        f"{count:,} public measurements against perfmodel's closed forms; {answered:,} have a prediction, and those "
        "that have none count against coverage. Rows on which something was fitted are kept apart from predicted ones."
    )
    cards = _headline_cards(result)
    sections = [
        page.paragraph("Mean size of the error where nothing was fitted on the rows:") if cards else "",
        cards,
        *(_data_section(result, data, at) for at, data in enumerate(result.files())),
        _left_out_section(result),
        _fitted_section(result),
    ]
    foot = [
        f"{versions()}: {source}. Errors are predicted / measured - 1. MAPE is the mean of their size, bias "
        f"their median; P90 is given from {LEAST_P90} rows on; cover is the share of rows with a prediction; in band "
        "is the share of measured values within the 80 % band of their prediction.",
        "Sources and licences of the bundled measurements stand in data/README.md. The page works offline.",
    ]
    return page.page("Predicted against measured", lead, sections, foot)


def fragment(result: Validation) -> str:
    """Return the scores by metric as HTML tables, for a notebook."""
    parts = []
    for data in result.files():
        parts.append(page.paragraph(headline(result, data)))
        for part, says in PART_SAYS.items():
            rows = [[one.group[0], *cells(one)] for one in result.of(data, part, "metric")]
            parts.append(page.table(["", *COLUMNS], rows, says, range(1, len(COLUMNS) + 1)))
    return "".join(parts)


def save(result: Validation, folder: Path, source: str) -> list[Path]:
    """Write ``validation.html`` and ``validation.csv`` to a folder; each whole or not at all."""
    make_folder(folder)
    page_path, rows_path = folder / "validation.html", folder / "validation.csv"
    with whole(page_path) as partial:
        partial.write_text(html_page(result, source), encoding="utf-8")
    with whole(rows_path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        write_rows(result, file)
    return [page_path, rows_path]

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


_POINT_COLUMNS = {
    "row": "row",
    "measured": "measured",
    "predicted": "predicted",
    "unit": "unit",
    "error": "predicted / measured - 1",
    "part": "kind",
}

_PARTS = {
    "field": "part",
    "type": "nominal",
    "title": None,
    "scale": {"domain": list(COLOUR_OF), "range": list(COLOUR_OF.values())},
}


def _scatter(unit: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Return predicted against measured, both axes logarithmic, with the diagonal and 20 % to either side."""
    ends = [value for row in rows for value in (row.value, row.predicted)]
    low, high = min(ends) * 0.8, max(ends) * 1.25
    line = [
        {"measured": at, "predicted": at, "least": at * (1 - WITHIN), "most": at * (1 + WITHIN)} for at in (low, high)
    ]
    points = _points(sorted(rows, key=lambda row: row.part != "anomalous"))
    scale = {"type": "log", "domain": [low, high], "nice": False}
    axis = {"format": ",~g", "tickCount": 6, "labelOverlap": "parity"}

    def at(field: str, title: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "scale": scale, "axis": axis, "title": f"{title} [{unit}]"}

    return {
        "height": 340,
        "data": {"values": points},
        "usermeta": {"columns": _POINT_COLUMNS},
        "layer": [
            {
                "data": {"values": line},
                "mark": {"type": "area", "opacity": 0.13, "color": page.COLOURS["green"], "clip": True},
                "encoding": {"x": at("measured", "measured"), "y": at("least", "predicted"), "y2": {"field": "most"}},
            },
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": "currentColor", "strokeWidth": 1.2, "opacity": 0.6},
                "encoding": {"x": at("measured", "measured"), "y": at("predicted", "predicted")},
            },
            {
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


def _histogram(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how the signed errors of predicted and calibrated rows are spread; what lies beyond 100 % stands there."""
    colour = {**_PARTS, "scale": {"domain": ["predicted", "calibrated"], "range": list(COLOUR_OF.values())[:2]}}
    return {
        "height": 220,
        "data": {"values": _points(rows)},
        "usermeta": {"columns": _POINT_COLUMNS},
        "layer": [
            {
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


def _families_drawn(result: Validation, data: str) -> list[tuple[str, str, list[Row]]]:
    mine = [row for row in result.rows if row.data == data]
    return [family for family in _families(mine) if len(family[2]) >= 5][:6]


def _drawn(family: tuple[str, str, list[Row]], data: str, name: str, source: str, level: int = 4) -> str:
    """Return a family of measurements against its predictions, under how many lie within the band."""
    metric, unit, rows = family
    scored = [row for row in rows if row.part == "predicted"]
    near = sum(abs(row.error) <= WITHIN for row in scored)
    finding = f"{metric}: {near:,} of {len(scored):,} predicted values lie within 20 % of the measured one."
    if not scored:
        finding = f"{metric}: something was fitted on all of these values, which prove nothing."
    caption = (
        f"{metric} of {data}: {len(rows):,} values. The line is equality, the band 20 % to either side; "
        "the tooltip names the row."
    )
    tools = page.tools({"CSV": "validation.csv"}, f"perfmodel {source}")
    return page.chart(_scatter(unit, rows), finding, caption, name, tools, level)


def _spread(family: tuple[str, str, list[Row]], name: str, source: str) -> str:
    """Return how the errors of a family are spread; nothing where there are few."""
    metric, _, rows = family
    counted = [row for row in rows if row.part != "anomalous"]
    if len(counted) < LEAST_P90:
        return ""
    errors = sorted(row.error for row in counted)
    finding = f"{metric}: half of the errors lie between {share(errors[len(errors) // 4], sign=True)} and "
    finding += f"{share(errors[3 * len(errors) // 4], sign=True)}."
    says = f"Signed errors of {metric}, without the anomalies; what lies beyond 100 % stands at the edge."
    tools = page.tools({"CSV": "validation.csv"}, f"perfmodel {source}")
    return page.chart(_histogram(counted), finding, says, name, tools)


def _worst(mine: Sequence[Row]) -> str:
    scored = [row for row in mine if math.isfinite(row.error) and row.part == "predicted"]
    worst = sorted(scored, key=lambda row: -abs(math.log(max(row.predicted, 1e-300) / row.value)))[:20]
    return page.table(
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
        "",
        (2, 3, 4),
    )


def _data_group(result: Validation, data: str, at: int, source: str) -> page.Group:
    """Return the closed parts of one file of measurements; the first screen has one chart of them."""
    mine = [row for row in result.rows if row.data == data]
    families = _families_drawn(result, data)
    scatters = [
        _drawn(family, data, f"scatter-{at}-{index}", source)
        for index, family in enumerate(families)
        if (at, index) != _hero(result)
    ]
    spreads = [_spread(family, f"histogram-{at}-{index}", source) for index, family in enumerate(families)]
    drawn = [one for one in (*scatters, *spreads) if one]
    headings = ["", *COLUMNS, "worst row"]
    folds = [("charts", "Measured against predicted", "By metric, and how errors are spread.", page.charts(drawn))]
    for part, says in PART_SAYS.items():
        lines_of = tree(result, data, part)
        lines = [[label, *cells(one), one.worst_row] for _, label, one in lines_of]
        numbers = range(1, len(COLUMNS) + 1)
        body = page.table(headings, lines, "", numbers, [depth for depth, _, _ in lines_of])
        folds.append((part, f"Scores: {part}", says.partition(": ")[2] + ".", body))
    folds += [
        ("worst", "The worst rows", "The 20 predicted values that lie farthest off, as a ratio.", _worst(mine)),
        ("apart", "Kept apart", "Anomalies, and why.", _counted("why they are kept apart", anomalies(mine))),
        ("none", "Without a prediction", "Rows that count against coverage.", _counted("why", reasons(mine))),
        ("taken", "Taken as", "What rows do not say.", _counted("taken as", assumptions(mine))),
    ]
    return page.Group(
        f"Measurements: {data}",
        [page.Fold(f"{name}-{at}", heading, says, body) for name, heading, says, body in folds if body],
        f"{headline(result, data)}.",
    )


def _counted(heading: str, lines: Sequence[str]) -> str:
    return page.table(["rows", heading], _split(lines), "", (0,))


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


def _rest(result: Validation) -> page.Group:
    """Return what was fitted and what was left out."""
    fitted = [[entry.name, str(entry.numbers), "; ".join(entry.notes)] for entry in result.fitted]
    lines = left_out(result) if result.left_out else []
    says = (
        "Numbers of the calibrations that stand behind these predictions, and what each was fitted on. Everything else "
        "is a data sheet, a paper or a stated estimate."
    )
    tables = [
        ("fitted", "What was fitted", says, page.table(["calibration", "numbers", "fitted on"], fitted, "", (1,))),
        (
            "left-out",
            "Left out",
            f"{LEFT_OUT_SAYS}.",
            page.table(
                ["", *LEFT_OUT_COLUMNS],
                [cells for _, cells in lines],
                "",
                range(1, len(LEFT_OUT_COLUMNS) + 1),
                [depth for depth, _ in lines],
            ),
        ),
    ]
    return page.Group("What stands behind them", [page.Fold(*one) for one in tables if one[3]])


def _hero(result: Validation) -> tuple[int, int]:
    """Return the file and the family in it that have most predictions."""
    counts = {
        (at, index): sum(row.part == "predicted" for row in rows)
        for at, data in enumerate(result.files())
        for index, (_, _, rows) in enumerate(_families_drawn(result, data))
    }
    return max(counts, key=lambda place: counts[place], default=(0, 0))


def _opening(result: Validation, source: str) -> page.Opening:
    answered = sum(math.isfinite(row.predicted) for row in result.rows)
    scored = [abs(row.error) for row in result.rows if row.part == "predicted" and math.isfinite(row.error)]
    said = ""
    if scored:
        low, mid, high = (sorted(scored)[int(part * (len(scored) - 1))] for part in (0.25, 0.5, 0.9))
        said = (
            f"Where nothing was fitted, half of {len(scored):,} values lie within {share(mid)} of the measured one, a "
            f"quarter within {share(low)}, nine tenths within {share(high)}. "
        )
    verdict = (
        f"{said}{answered:,} of {len(result.rows):,} public measurements have a prediction; those that have none count "
        "against coverage."
    )
    at, index = _hero(result)
    files = result.files()
    families = _families_drawn(result, files[at]) if files else []
    hero = _drawn(families[index], files[at], f"scatter-{at}-{index}", source, 2) if families else ""
    cards = _headline_cards(result)
    beside = page.paragraph("Mean size of the error where nothing was fitted on the rows:") + cards if cards else ""
    return page.Opening(
        "Predicted against measured", "How far do predictions lie from what was measured?", verdict, beside, hero
    )


def html_page(result: Validation, source: str) -> str:
    """Return the report page."""
    groups = [_data_group(result, data, at, source) for at, data in enumerate(result.files())]
    foot = [
        f"{versions()}: {source}. Errors are predicted / measured - 1. MAPE is the mean of their size, bias "
        f"their median; P90 is given from {LEAST_P90} rows on; cover is the share of rows with a prediction; in band "
        "is the share of measured values within the 80 % band of their prediction.",
        "Sources and licences of the bundled measurements stand in data/README.md. The page works offline.",
    ]
    return page.page(_opening(result, source), [*groups, _rest(result)], foot)


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

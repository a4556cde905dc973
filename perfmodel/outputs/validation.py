"""Scored measurements: tables in the terminal, rows as CSV, and a report page."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from perfmodel import __version__
from perfmodel.errors import UserError
from perfmodel.outputs import page
from perfmodel.outputs.files import text_cell, whole
from perfmodel.studies.validate import Validation
from perfmodel.studies.validate.rows import Row
from perfmodel.studies.validate.scoring import LEAST_P90, WITHIN, Score, describe

_PART_SAYS = {
    "predicted": "predicted: nothing was fitted on these rows",
    "calibrated": "calibrated: something was fitted on these very rows, so this is no validation",
    "anomalous": "anomalies: not runs of a plain closed loop, kept out of the scores above",
}
#: Columns for which a narrow terminal has no room.
_WIDE_ONLY = ("within 20 %", "in band")
_COLUMNS = ("n", "cover", "MAPE", "median", "bias", "P90", "within 20 %", "in band", "worst")
_COLOUR_OF = {
    "predicted": page.COLOURS["blue"],
    "calibrated": page.COLOURS["orange"],
    "anomalous": page.COLOURS["grey"],
}


def _share(value: float, sign: bool = False) -> str:
    if value != value:
        return "-"
    digits = 1 if abs(value) < 0.0995 else 0
    return f"{value:+.{digits}%}" if sign else f"{value:.{digits}%}"


def _cells(one: Score) -> list[str]:
    return [
        f"{one.rows:,}",
        _share(one.coverage),
        _share(one.mape),
        _share(one.median),
        _share(one.bias, sign=True),
        _share(one.p90),
        _share(one.within),
        _share(one.in_band),
        _share(one.worst, sign=True),
    ]


def figure(value: float, unit: str) -> str:
    """Return a value with its own unit, to three digits."""
    if value != value:
        return "-"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


# --- terminal ----------------------------------------------------------------------------------------------------


def _bare_table(title: str, first: str, console: Any) -> Any:
    """Return a table with its first column only."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1 if console.width >= 100 else 0))
    made.title, made.title_justify = Text(title), "left"
    made.add_column(Text(first), overflow="fold")
    return made


def _table(title: str, first: str, console: Any) -> Any:
    made = _bare_table(title, first, console)
    for name in _COLUMNS:
        if name not in _WIDE_ONLY or console.width >= 100:
            made.add_column(name, justify="right", no_wrap=True)
    if console.width >= 120:
        made.add_column("worst row", overflow="fold")
    return made


def _tree(result: Validation, data: str, part: str) -> list[tuple[int, str, Score]]:
    """Return depth, label and score of each line: a metric, its kinds, systems and engines, then its groups."""
    lines = []
    for total in result.of(data, part, "metric"):
        lines.append((0, total.group[0], total))
        for by in ("kind", "chip", "engine", "calibration"):
            found = [one for one in result.of(data, part, by) if one.group[0] == total.group[0]]
            if len(found) > 1:
                lines += [(1, one.group[1], one) for one in found if one.group[1] not in ("", "-")]
        groups = [one for one in result.of(data, part, "group") if one.group[0] == total.group[0]]
        if len(groups) > 1 and total.answered:
            # The engine is said where it tells groups apart.
            last = None if len({one.group[3] for one in groups}) > 1 else 3
            lines += [(2, " ".join(name for name in one.group[1:last] if name not in ("", "-")), one) for one in groups]
    return lines


def _score_row(label: str, one: Score, width: int) -> list[Any]:
    from rich.text import Text

    cells = [cell for name, cell in zip(_COLUMNS, _cells(one), strict=True) if width >= 100 or name not in _WIDE_ONLY]
    shown = [Text(label), *(Text(cell if width >= 100 else f"  {cell}") for cell in cells)]
    return [*shown, Text(one.worst_row)] if width >= 120 else shown


def _say(console: Any, heading: str, lines: Sequence[str]) -> None:
    import textwrap

    from rich.text import Text

    if not lines:
        return
    console.print()
    console.print(Text(heading))
    for line in lines:
        console.print(Text(textwrap.fill(line, console.width, initial_indent="  - ", subsequent_indent="    ")))


def headline(result: Validation, data: str) -> str:
    """Return one line on a file: its rows, coverage, and how many are kept apart."""
    mine = [row for row in result.rows if row.data == data]
    parts = Counter(row.part for row in mine)
    return (
        f"{data}: {len(mine):,} values, {result.coverage(data):.1%} with a prediction; "
        f"{parts['predicted']:,} predicted, {parts['calibrated']:,} fitted on, {parts['anomalous']:,} anomalous"
    )


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return why rows have no prediction, the commonest first."""
    counted = Counter(row.reason for row in rows if row.reason)
    lines = [f"{count:,}: {reason}" for reason, count in counted.most_common(12)]
    if len(counted) > 12:
        lines.append(
            f"{sum(counted.values()) - sum(n for _, n in counted.most_common(12)):,}: other reasons, in the rows"
        )
    return lines


def _anomalies(rows: Sequence[Row]) -> list[str]:
    counted: dict[str, list[Row]] = {}
    for row in rows:
        if row.anomaly:
            counted.setdefault(f"{row.model} on {row.system} with {row.engine}: {row.anomaly}", []).append(row)
    lines = []
    for what, group in counted.items():
        errors = sorted(row.error for row in group if math.isfinite(row.error))
        middle = errors[len(errors) // 2] if errors else math.nan
        lines.append(f"{len(group)}: {what} (median error {_share(middle, sign=True)})")
    return lines


def _assumptions(rows: Sequence[Row]) -> list[str]:
    counted = Counter(note for row in rows for note in row.notes)
    lines = [f"{count:,}: {note}" for note, count in counted.most_common(10)]
    return [*lines, f"{len(counted) - 10} more, in the rows"] if len(counted) > 10 else lines


def _fitted(result: Validation, most: int = 3) -> list[str]:
    lines = []
    for entry in result.fitted:
        notes = list(entry.notes)[:most]
        more = f"; and {len(entry.notes) - most} more" if len(entry.notes) > most else ""
        lines.append(f"{entry.name}: {entry.numbers} numbers. {'; '.join(notes)}{more}")
    return lines


_LEFT_OUT_SAYS = (
    "left out: the rows of serving.csv that were fitted on, each predicted by a fit that never saw its model "
    "(or TP, engine, concurrency)"
)
_LEFT_OUT_COLUMNS = [f"{name} {what}" for name in ("TPOT", "TTFT") for what in ("n", "MAPE", "median", "bias")]


def _left_out(result: Validation) -> list[tuple[int, list[str]]]:
    """Return the depth and the cells of the scores of left-out rows."""
    lines = []
    for row in result.left_out:
        whole_split = row["what"] == "all"
        cells = [f"{row['left_out']} left out" if whole_split else row["what"]]
        for one in (row["tpot"], row["ttft"]):
            if one is None:
                cells += ["-"] * 4
            else:
                cells += [f"{one['n']:,}", _share(one["mape"]), _share(one["median"]), _share(one["bias"], sign=True)]
        lines.append((0 if whole_split else 1, cells))
    return lines


def _print_left_out(result: Validation, console: Any) -> None:
    from rich.text import Text

    narrow = console.width < 100
    shown = [at for at, name in enumerate(_LEFT_OUT_COLUMNS, 1) if not (narrow and name.endswith("median"))]
    made = _bare_table(_LEFT_OUT_SAYS, "", console)
    for at in shown:
        made.add_column(_LEFT_OUT_COLUMNS[at - 1], justify="right")
    for depth, cells in _left_out(result):
        if depth == 0 and made.row_count:
            made.add_section()
        made.add_row(Text(f"{'  ' * depth}{cells[0]}"), *(Text(f" {cells[at]}") for at in shown))
    console.print()
    console.print(made)


def print_validation(result: Validation, console: Any, groups: bool = True) -> None:
    """Print scores by file, calibrated and predicted apart, and what stands behind them."""
    from rich.text import Text

    for at, data in enumerate(result.files()):
        if at:
            console.print()
        console.print(Text(headline(result, data), style="bold"))
        mine = [row for row in result.rows if row.data == data]
        for part, says in _PART_SAYS.items():
            if not any(row.part == part for row in mine):
                continue
            console.print()
            made = _table(says, "", console)
            for depth, label, one in _tree(result, data, part):
                if depth == 2 and not groups:
                    continue
                if depth == 0 and made.row_count:
                    made.add_section()
                made.add_row(*_score_row(f"{'  ' * depth}{label}", one, console.width))
            console.print(made)
        _say(console, "anomalies", _anomalies(mine))
        _say(console, "no prediction", _reasons(mine))
        _say(console, "taken as, where the row does not say", _assumptions(mine))
    if result.left_out:
        _print_left_out(result, console)
    _say(console, "fitted parameters behind these predictions", _fitted(result))


def text(result: Validation, width: int = 100) -> str:
    """Return the scores as plain text."""
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    print_validation(result, Console(file=out, width=width, color_system=None), groups=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


# --- rows --------------------------------------------------------------------------------------------------------


def write_rows(result: Validation, file: TextIO) -> None:
    """Write the rows as CSV: the input's columns and what came out."""
    made = [{"data": row.data, **row.to_dict()} for row in result.rows]
    names = list(dict.fromkeys(name for row in made for name in row))
    writer = csv.DictWriter(file, names, restval="", lineterminator="\r\n")
    writer.writerow({name: text_cell(name) for name in names})
    for row in made:
        cells = {name: "" if value is None else value for name, value in row.items()}
        writer.writerow({name: text_cell(cell) if isinstance(cell, str) else cell for name, cell in cells.items()})


# --- page --------------------------------------------------------------------------------------------------------


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
    "scale": {"domain": list(_COLOUR_OF), "range": list(_COLOUR_OF.values())},
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
                        "scale": {"domain": list(_COLOUR_OF), "range": ["circle", "triangle-up", "cross"]},
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
    colour = {**_PARTS, "scale": {"domain": ["predicted", "calibrated"], "range": list(_COLOUR_OF.values())[:2]}}
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
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if math.isfinite(row.error) and row.predicted > 0:
            found.setdefault((row.metric, row.given["unit"].strip()), []).append(row)
    return [(metric, unit, group) for (metric, unit), group in sorted(found.items(), key=lambda item: -len(item[1]))]


def _data_section(result: Validation, data: str, at: int) -> str:
    mine = [row for row in result.rows if row.data == data]
    families = [family for family in _families(mine) if len(family[2]) >= 5][:6]
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
    headings = ["", *_COLUMNS, "worst row"]
    numbers = range(1, len(_COLUMNS) + 1)
    tables = []
    for part, says in _PART_SAYS.items():
        tree = _tree(result, data, part)
        lines = [[label, *_cells(one), one.worst_row] for _, label, one in tree]
        tables.append(page.table(headings, lines, says, numbers, [depth for depth, _, _ in tree]))
    scored = [row for row in mine if math.isfinite(row.error) and row.part == "predicted"]
    worst = sorted(scored, key=lambda row: -abs(math.log(max(row.predicted, 1e-300) / row.value)))[:20]
    worst_table = page.table(
        ["metric", "row", "measured", "predicted", "error", "mind"],
        [
            [
                row.metric,
                describe(row),
                figure(row.value, row.given["unit"]),
                figure(row.predicted, row.given["unit"]),
                _share(row.error, sign=True),
                "; ".join(row.notes),
            ]
            for row in worst
        ],
        "The 20 predicted values that lie farthest off, as a ratio.",
        (2, 3, 4),
    )
    apart = page.table(["rows", "why they are kept apart"], _split(_anomalies(mine)), "Anomalies.", (0,))
    reasons = page.table(["rows", "why there is no prediction"], _split(_reasons(mine)), "", (0,))
    taken = page.table(["rows", "taken as, where the row does not say"], _split(_assumptions(mine)), "", (0,))
    return page.section(
        f"Measurements: {data}",
        page.paragraph(f"{headline(result, data)}."),
        page.charts(scatters) if scatters else "",
        page.charts(histograms) if histograms else "",
        *tables,
        worst_table,
        apart,
        reasons,
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
        for one in result.of(data, "predicted", "metric"):
            if one.answered >= 5:
                entries.append(
                    (
                        f"{one.group[0]}",
                        _share(one.mape),
                        f"MAPE, bias {_share(one.bias, sign=True)}; {one.answered:,} of {one.rows:,} values of {data}",
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
    lines = _left_out(result)
    return page.section(
        "Left out",
        page.table(
            ["", *_LEFT_OUT_COLUMNS],
            [cells for _, cells in lines],
            f"{_LEFT_OUT_SAYS}.",
            range(1, len(_LEFT_OUT_COLUMNS) + 1),
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
        f"perfmodel {__version__}: {source}. Errors are predicted / measured - 1. MAPE is the mean of their size, bias "
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
        for part, says in _PART_SAYS.items():
            rows = [[one.group[0], *_cells(one)] for one in result.of(data, part, "metric")]
            parts.append(page.table(["", *_COLUMNS], rows, says, range(1, len(_COLUMNS) + 1)))
    return "".join(parts)


def save(result: Validation, folder: Path, source: str) -> list[Path]:
    """Write ``validation.html`` and ``validation.csv`` to a folder; each whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder}: cannot make the folder ({error.strerror})") from None
    page_path, rows_path = folder / "validation.html", folder / "validation.csv"
    try:
        with whole(page_path) as partial:
            partial.write_text(html_page(result, source), encoding="utf-8")
        with whole(rows_path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            write_rows(result, file)
    except OSError as error:
        raise UserError(f"--out {folder}: cannot write there ({error.strerror})") from None
    return [page_path, rows_path]

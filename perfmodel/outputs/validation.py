"""Scored measurements: tables in the terminal, and rows as CSV."""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

from perfmodel.evidence.validate import Validation
from perfmodel.evidence.validate.rows import Row
from perfmodel.evidence.validate.scoring import Score, describe
from perfmodel.outputs import page
from perfmodel.outputs.tables import plain
from perfmodel.outputs.verdicts import print_first, validation_verdict
from perfmodel.writing import text_cell

PART_SAYS = {
    "predicted": "predicted: nothing was fitted on these rows",
    "calibrated": "calibrated: something was fitted on these very rows, so this is no validation",
    "anomalous": "anomalies: not runs of a plain closed loop, kept out of the scores above",
}
#: Columns for which a narrow terminal has no room.
_WIDE_ONLY = ("P90", "within 20 %")
#: Least width of a column of numbers in a narrow terminal.
_NARROW = 6
COLUMNS = ("n", "cover", "MAPE", "median", "bias", "P90", "within 20 %", "in band", "worst")
COLOUR_OF = {
    "predicted": page.COLOURS["blue"],
    "calibrated": page.COLOURS["orange"],
    "anomalous": page.COLOURS["grey"],
}


def share(value: float | None, sign: bool = False) -> str:
    """Return a share in percent."""
    if value is None or value != value:
        return "-"
    digits = 1 if abs(value) < 0.0995 else 0
    return f"{value:+.{digits}%}" if sign else f"{value:.{digits}%}"


def cells(score: Score) -> list[str]:
    """Return a score as the cells of its line."""
    return [
        f"{score.rows:,}",
        share(score.coverage),
        share(score.mape),
        share(score.median),
        share(score.bias, sign=True),
        share(score.p90),
        share(score.within),
        share(score.in_band),
        share(score.worst, sign=True),
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
    made.add_column(Text(first), overflow="ellipsis", no_wrap=True, max_width=console.width - 7 * (_NARROW + 1) - 1)
    return made


def _table(title: str, first: str, console: Any) -> Any:
    made = _bare_table(title, first, console)
    for name in COLUMNS:
        if name not in _WIDE_ONLY or console.width >= 100:
            made.add_column(name, justify="right", no_wrap=True, min_width=_NARROW if console.width < 100 else 0)
    if console.width >= 120:
        made.add_column("worst row", overflow="fold")
    return made


def tree(result: Validation, data: str, part: str) -> list[tuple[int, str, Score]]:
    """Return depth, label and score of each line: a metric, its kinds, systems and engines, then its groups."""
    lines = []
    for total in result.of(data, part, "metric"):
        lines.append((0, total.group[0], total))
        timed = ("load", "tp", "lengths", "release") if total.group[0] in ("TTFT", "TPOT") else ()
        for by in ("kind", "chip", "engine", *timed, "calibration"):
            found = [each for each in result.of(data, part, by) if each.group[0] == total.group[0]]
            if len(found) > 1:
                lines += [(1, each.group[1], each) for each in found if each.group[1] not in ("", "-")]
        groups = [each for each in result.of(data, part, "group") if each.group[0] == total.group[0]]
        if len(groups) > 1 and total.answered:
            # The engine is said where it tells groups apart.
            last = None if len({each.group[3] for each in groups}) > 1 else 3
            lines += [
                (2, " ".join(name for name in each.group[1:last] if name not in ("", "-")), each) for each in groups
            ]
    return lines


def _score_row(label: str, score: Score, width: int) -> list[Any]:
    from rich.text import Text

    kept = [cell for name, cell in zip(COLUMNS, cells(score), strict=True) if width >= 100 or name not in _WIDE_ONLY]
    shown = [Text(label), *(Text(cell) for cell in kept)]
    return [*shown, Text(score.worst_row)] if width >= 120 else shown


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


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return why rows have no prediction, the commonest first."""
    counted = Counter(row.reason for row in rows if row.reason)
    lines = [f"{count:,}: {reason}" for reason, count in counted.most_common(12)]
    if len(counted) > 12:
        lines.append(
            f"{sum(counted.values()) - sum(n for _, n in counted.most_common(12)):,}: other reasons, in the rows"
        )
    return lines


def anomalies(rows: Sequence[Row]) -> list[str]:
    """Return how many rows are kept apart, and why."""
    counted: dict[str, list[Row]] = {}
    for row in rows:
        if row.anomaly:
            counted.setdefault(f"{row.model} on {row.system} with {row.engine}: {row.anomaly}", []).append(row)
    lines = []
    for what, group in counted.items():
        errors = sorted(row.error for row in group if math.isfinite(row.error))
        middle = errors[len(errors) // 2] if errors else math.nan
        lines.append(f"{len(group)}: {what} (median error {share(middle, sign=True)})")
    return lines


def assumptions(rows: Sequence[Row]) -> list[str]:
    """Return what was taken most often where rows do not say."""
    counted = Counter(note for row in rows for note in row.notes)
    lines = [f"{count:,}: {note}" for note, count in counted.most_common(10)]
    return [*lines, f"{len(counted) - 10} more, in the rows"] if len(counted) > 10 else lines


def beyond(rows: Sequence[Row]) -> list[str]:
    """Return the rows whose prediction is more than three times off, the farthest first, by name."""
    ratios = [(row.predicted / row.value, row) for row in rows if math.isfinite(row.error) and row.value > 0]
    far = sorted((one for one in ratios if not 1 / 3 <= one[0] <= 3), key=lambda one: -abs(math.log(one[0])))
    return [f"x{ratio:.3g} {row.metric}, {row.part}: {describe(row)}" for ratio, row in far]


def contradictions(rows: Sequence[Row]) -> list[str]:
    """Return the runs that stand in a file twice, and those of one layout whose values differ by a quarter and more."""
    names = ("model", "hardware", "engine", "dtype_weights", "mode", "isl", "osl", "concurrency_or_batch", "metric")
    layout = ("tp", "ep", "attention_dp", "decode_workers", "decode_tp", "load", "dtype_kv", "dataset", "method", "k")
    twice: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.metric in ("TTFT", "TPOT") and math.isfinite(row.value):
            twice.setdefault(tuple(row.given.get(name, "") for name in names), []).append(row)
    lines = []
    for same in twice.values():
        for pair, other in itertools.combinations(same, 2):
            alike = all(pair.given.get(name) == other.given.get(name) for name in layout)
            if pair.value == other.value:
                lines.append(
                    f"{describe(pair)}: {pair.metric} {pair.value:g} twice{'' if alike else ', under two layouts'}"
                )
            elif alike and max(pair.value, other.value) > 1.25 * min(pair.value, other.value):
                lines.append(f"{describe(pair)}: {pair.metric} {pair.value:g} and {other.value:g} of the same layout")
    return lines


def _fitted(result: Validation) -> list[str]:
    return [f"{entry.name}: {entry.numbers} numbers, each with what it rests on in its file" for entry in result.fitted]


def _first(lines: Sequence[str], most: int = 20) -> list[str]:
    return [*lines[:most], *([f"{len(lines) - most} more, in the rows"] if len(lines) > most else [])]


LEFT_OUT_SAYS = (
    "left out: the rows that were fitted on, each predicted by a fit that never saw its model (or group, engine, chip, "
    "TP, concurrency)"
)
LEFT_OUT_COLUMNS = [f"{name} {what}" for name in ("TPOT", "TTFT") for what in ("n", "MAPE", "median", "bias")]


def left_out(result: Validation) -> list[tuple[int, list[str]]]:
    """Return the depth and the cells of the scores of left-out rows."""
    lines = []
    for row in result.left_out:
        whole_split = row["what"] == "all"
        cells = [f"{row['left_out']} left out" if whole_split else row["what"]]
        for time in (row["tpot"], row["ttft"]):
            if time is None:
                cells += ["-"] * 4
            else:
                cells += [f"{time['n']:,}", share(time["mape"]), share(time["median"]), share(time["bias"], sign=True)]
        lines.append((0 if whole_split else 1, cells))
    return lines


def _print_left_out(result: Validation, console: Any) -> None:
    from rich.text import Text

    narrow = console.width < 100
    shown = [at for at, name in enumerate(LEFT_OUT_COLUMNS, 1) if not (narrow and name.endswith("median"))]
    made = _bare_table(LEFT_OUT_SAYS, "", console)
    for at in shown:
        made.add_column(LEFT_OUT_COLUMNS[at - 1], justify="right")
    for depth, cells in left_out(result):
        if depth == 0 and made.row_count:
            made.add_section()
        made.add_row(Text(f"{'  ' * depth}{cells[0]}"), *(Text(f" {cells[at]}") for at in shown))
    console.print()
    console.print(made)


def print_validation(result: Validation, console: Any, groups: bool = True) -> None:
    """Print scores by file, calibrated and predicted apart, and what stands behind them."""
    from rich.text import Text

    print_first(validation_verdict(result), console)
    for data in result.files():
        console.print()
        console.print(Text(headline(result, data)))
        of_data = [row for row in result.rows if row.data == data]
        for part, says in PART_SAYS.items():
            if not any(row.part == part for row in of_data):
                continue
            console.print()
            made = _table(says, "", console)
            for depth, label, score in tree(result, data, part):
                if depth == 2 and not groups:
                    continue
                if depth == 0 and made.row_count:
                    made.add_section()
                made.add_row(*_score_row(f"{'  ' * depth}{label}", score, console.width))
            console.print(made)
        _say(console, "anomalies", anomalies(of_data))
        _say(console, "more than three times off", _first(beyond(of_data)))
        _say(console, "one run twice, or one layout with two values", _first(contradictions(of_data), 8))
        _say(console, "no prediction", reasons(of_data))
        _say(console, "taken as, where the row does not say", assumptions(of_data))
    if result.left_out:
        _print_left_out(result, console)
    _say(console, "fitted parameters behind these predictions", _fitted(result))


def text(result: Validation, width: int = 100) -> str:
    """Return the scores as plain text."""
    return plain(lambda console: print_validation(result, console, groups=False), width)


# --- rows --------------------------------------------------------------------------------------------------------


def write_rows(result: Validation, file: TextIO) -> None:
    """Write the rows as CSV: the input's columns and what came out."""
    made = [row.row() for row in result.rows]
    names = list(dict.fromkeys(name for row in made for name in row))
    writer = csv.DictWriter(file, names, restval="", lineterminator="\r\n")
    writer.writerow({name: text_cell(name) for name in names})
    for row in made:
        cells = {name: "" if value is None else value for name, value in row.items()}
        writer.writerow({name: text_cell(cell) if isinstance(cell, str) else cell for name, cell in cells.items()})

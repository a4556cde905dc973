"""Sweeps as rows: CSV with units and provenance, Parquet, or a table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.outputs.plot import print_frontier
from perfmodel.outputs.tables import span
from perfmodel.specs.release import versions
from perfmodel.specs.units import show
from perfmodel.sweeps.reduction import Reduction
from perfmodel.sweeps.space import Space, Sweep
from perfmodel.writing import check_file, comment, text_cell, whole

#: How names of files of rows end.
ENDINGS = (".csv", ".parquet")
Tick = Callable[[int], None]


def header(result: Space, question: str) -> list[str]:
    """Return the comment lines that say where the numbers come from."""
    units = ", ".join(f"{name} [{unit}]" for name, unit in result.columns().items() if unit and unit != "1")
    return [
        comment(f"{versions()}: {question}"),
        comment(f"assumed: {'; '.join(result.assumed)}"),
        *([comment(f"mind: {'; '.join(result.warnings)}")] if result.warnings else []),
        comment(f"units: {units}; all other columns are numbers or words"),
    ]


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return text_cell(value)
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return value


def write_csv(result: Sweep, file: TextIO, question: str, tick: Tick) -> None:
    """Write a sweep as CSV: comment lines, one header row, ISO numbers, empty where there is no answer."""
    for line in header(result, question):
        file.write(f"{line}\r\n")
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(result.columns())
    for block in result.blocks():
        columns = [column.tolist() for column in block.values()]
        for row in zip(*columns, strict=True):
            writer.writerow([_cell(value) for value in row])
        tick(len(columns[0]))


def need_parquet() -> None:
    """Refuse where the library that writes Parquet is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install 'perfmodel[distributed]'") from None


def kind(space: Space, column: str) -> str:
    """Return the type of a column in the words of a data dictionary."""
    return "boolean" if column == "fits" else "text" if space.is_text(column) else "number"


def schema(space: Space, units: Mapping[str, str], question: str) -> Any:
    """Return the Arrow schema of columns; units and provenance stand in its metadata."""
    import pyarrow as pa

    kinds = {"number": pa.float64(), "text": pa.string(), "boolean": pa.bool_()}
    meta = {"perfmodel": "\n".join(header(space, question)), **{f"unit:{name}": unit for name, unit in units.items()}}
    return pa.schema([(name, kinds[kind(space, name)]) for name in units], meta)


def write_parquet(result: Sweep, path: Path | BinaryIO, question: str, tick: Tick = lambda _: None) -> None:
    """Write a sweep as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = schema(result, result.columns(), question)
    with pq.ParquetWriter(path, columns) as writer:
        for block in result.blocks():
            writer.write_table(pa.table(block, schema=columns))
            tick(len(block["fits"]))


def check_path(path: Path) -> None:
    """Refuse a file that cannot be written."""
    check_file(path, ENDINGS, "--out", ", or of a folder, without ending")
    if path.suffix == ".parquet":
        need_parquet()


def save(result: Sweep, path: Path, question: str, tick: Tick) -> None:
    """Write a sweep to a file, by its ending; whole or not at all."""
    with whole(path) as partial:
        if path.suffix == ".parquet":
            write_parquet(result, partial, question, tick)
        else:
            with partial.open("w", encoding="utf-8", newline="") as file:
                write_csv(result, file, question, tick)


#: Points that are worked out at once at the most, without a folder for partitions.
MOST_AT_ONCE = 10**8
#: Rows that are printed at the most.
MOST = 60
#: Points that are drawn at the most.
_DRAWN = 10_000
#: Quantiles that are printed, of all that are kept.
_PRINTED = ("p5", "p25", "p50", "p75", "p95")
SHOWN = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("output_tokens_per_s_per_user", "out tok/s/user"),
    ("output_tokens_per_s", "out tok/s"),
    ("max_concurrency", "fit"),
    ("decode_limited_by", "TPOT goes to"),
)


def first_rows(result: Sweep, most: int = MOST) -> Iterator[dict[str, Any]]:
    """Give the first rows of a sweep."""
    for block in result.blocks(most):
        for index in range(min(most, len(block["fits"]))):
            yield {name: column[index] for name, column in block.items()}
        most -= len(block["fits"])
        if most <= 0:
            return


def _text(value: Any, unit: str) -> str:
    if isinstance(value, str):
        return value
    number = float(value)
    if number != number:
        return "-"
    if unit == "1/s":
        return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
    if unit in ("s", "B", "B/s", "FLOP/s", "W"):
        return show(number, unit, 3)
    return f"{number:,.4g}" if unit in ("USD", "J") else f"{number:,.6g}"


def print_plot(result: Sweep, console: Any) -> None:
    """Draw the first points of a sweep that fit, speed of a user against throughput of a chip, and their frontier.

    Parameters
    ----------
    result : Sweep
    console : rich.console.Console
    """
    across, up = "output_tokens_per_s_per_user", "tokens_per_s_per_chip"
    points, names = [], []
    for row in first_rows(result, _DRAWN):
        point = float(row[across]), float(row[up])
        if row["fits"] and all(map(math.isfinite, point)):
            points.append(point)
            names.append(_point(result, row))
    print_frontier(points, names, "out tok/s/user", "in+out tok/s/chip", console)
    if len(result) > _DRAWN:
        console.print(f"the first {_DRAWN:,} of {len(result):,} points are drawn")


def print_rows(
    space: Space, rows: Iterable[dict[str, Any]], console: Any, shown: Sequence[tuple[str, str]] = SHOWN
) -> None:
    """Print rows of a sweep as a table.

    Parameters
    ----------
    space : Space
        What was swept.
    rows : iterable of dict
    console : rich.console.Console
    shown : sequence of pairs
        Name and title of each column besides the axes.
    """
    from rich.text import Text

    units = space.columns()
    table = _table(
        [*(axis.path.rpartition(".")[2] for axis in space.axes), *(title for _, title in shown)], console.width
    )
    for row in rows:
        cells = [_text(row[axis.path], axis.unit) for axis in space.axes]
        table.add_row(*map(Text, [*cells, *(_text(row[key], units[key]) for key, _ in shown)]))
    console.print(table)


def print_kept(space: Space, kept: Reduction, frame: Any, console: Any) -> None:
    """Print what a reduction kept, its first rows where there are many."""
    from rich.text import Text

    first = frame.head(MOST).to_dict("records")
    if kept.kind == "quantiles":
        table = _table([*(path.rpartition(".")[2] for path in kept.by), "metric", *_PRINTED], console.width)
        for row in first:
            cells = [_text(row[path], space.columns()[path]) for path in kept.by]
            table.add_row(*map(Text, [*cells, row["metric"], *(_text(row[name], row["unit"]) for name in _PRINTED)]))
        console.print(table)
    else:
        print_rows(space, first, console, [(name, dict(SHOWN).get(name, name)) for name in kept.metrics])
    if len(frame) > MOST:
        console.print(Text(f"the first {MOST} of {len(frame):,}; {kept.kind}.parquet in the folder holds all"))


def _point(result: Sweep, row: Mapping[str, Any]) -> str:
    """Return where a point lies on the axes."""
    return ", ".join(f"{axis.path.rpartition('.')[2]} {_text(row[axis.path], axis.unit)}" for axis in result.axes)


def sweep_verdict(result: Sweep) -> str:
    """Return which point is fastest and which serves most, in a sentence; empty where none fits.

    Parameters
    ----------
    result : Sweep

    Returns
    -------
    str
    """
    points, fitting = 0, 0
    slowest = -math.inf
    best: dict[str, dict[str, Any]] = {}
    for block in result.blocks():
        tpot = np.asarray(block["tpot_s"], float)
        known = np.asarray(block["fits"], bool) & (tpot == tpot)
        points += len(known)
        fitting += int(known.sum())
        if not known.any():
            continue
        slowest = max(slowest, float(tpot[known].max()))
        for key, sign in (("tpot_s", 1.0), ("output_tokens_per_s", -1.0)):
            values = np.where(known, sign * np.asarray(block[key], float), np.inf)
            at = int(values.argmin())
            if key not in best or values[at] < sign * best[key][key]:
                best[key] = {name: column[at] for name, column in block.items()}
    if not best:
        return ""

    fast, most = best["tpot_s"], best["output_tokens_per_s"]
    ends = {"low": float(fast["tpot_s"]), "high": slowest}
    rate = _text(most["output_tokens_per_s"], "1/s")
    return (
        f"{_point(result, fast)} is fastest: TPOT {_text(fast['tpot_s'], 's')} ({span(ends, 's')} over the {fitting:,} "
        f"of {points:,} points that fit); {_point(result, most)} serves most: {rate} output tok/s "
        f"at TPOT {_text(most['tpot_s'], 's')}."
    )


def _table(titles: Sequence[str], width: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1 if width >= 100 else 0))
    for title in titles:
        table.add_column(Text(title), justify="right")
    return table


def to_dict(result: Sweep) -> shapes.Points:
    """Return the points of a sweep as JSON has them.

    Parameters
    ----------
    result : Sweep

    Returns
    -------
    dict
    """
    points = []
    for block in result.blocks():
        columns = {name: values.tolist() for name, values in block.items()}
        points += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {
        "units": result.columns(),
        "rows": [shapes.numbers(row) for row in points],
        "assumed": list(result.assumed),
        "warnings": list(result.warnings),
    }

"""Sweeps as rows: CSV with units and provenance, Parquet, or a table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from perfmodel import __version__
from perfmodel.errors import UserError
from perfmodel.outputs.files import text_cell, whole
from perfmodel.specs.units import show
from perfmodel.studies.sweep import Sweep

Tick = Callable[[int], None]


def header(result: Sweep, question: str) -> list[str]:
    """Return the comment lines that say where the numbers come from."""
    units = ", ".join(f"{name} [{unit}]" for name, unit in result.columns().items() if unit and unit != "1")
    return [
        f"# perfmodel {__version__}: {question}",
        f"# assumed: {'; '.join(result.assumed)}",
        f"# units: {units}; all other columns are numbers or words",
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


def write_parquet(result: Sweep, path: Path, question: str, tick: Tick) -> None:
    """Write a sweep as Parquet; units and provenance stand in the schema's metadata."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install 'perfmodel[distributed]'") from None
    meta = {
        "perfmodel": "\n".join(header(result, question)),
        **{f"unit:{name}": unit for name, unit in result.columns().items()},
    }
    writer: Any = None
    try:
        for block in result.blocks():
            table = pa.table({name: column.tolist() for name, column in block.items()})
            if writer is None:
                schema = table.schema.with_metadata(meta)
                writer = pq.ParquetWriter(path, schema)
            writer.write_table(table.cast(schema))
            tick(table.num_rows)
    finally:
        if writer is not None:
            writer.close()


def save(result: Sweep, path: Path, question: str, tick: Tick) -> None:
    """Write a sweep to a file, by its ending; whole or not at all."""
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {path}: expected a name that ends in .csv or .parquet")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no folder {path.parent}")
    with whole(path) as partial:
        if path.suffix == ".parquet":
            write_parquet(result, partial, question, tick)
        else:
            with partial.open("w", encoding="utf-8", newline="") as file:
                write_csv(result, file, question, tick)


_SHOWN = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("output_tokens_per_s_per_user", "out tok/s/user"),
    ("output_tokens_per_s", "out tok/s"),
    ("max_concurrency", "fit"),
    ("decode_limited_by", "TPOT goes to"),
)


def _first_rows(result: Sweep, most: int) -> Iterator[dict[str, Any]]:
    for block in result.blocks(most):
        for index in range(len(next(iter(block.values())))):
            yield {name: column[index] for name, column in block.items()}


def print_rows(result: Sweep, console: Any, most: int = 60) -> None:
    """Print the first rows of a sweep as a table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    units = result.columns()
    for axis in result.axes:
        table.add_column(Text(axis.path.rpartition(".")[2] if axis.path.count(".") else axis.path), justify="right")
    for _, title in _SHOWN:
        table.add_column(title, justify="right")

    def text(value: Any, unit: str, digits: int = 3) -> str:
        if isinstance(value, str):
            return value
        number = float(value)
        if number != number:
            return "-"
        return show(number, unit, digits) if unit in ("s", "B", "B/s", "FLOP/s", "W") else f"{number:,.6g}"

    for count, row in enumerate(_first_rows(result, most)):
        if count == most:
            break
        cells = [text(row[axis.path], axis.unit) for axis in result.axes]
        for key, _ in _SHOWN:
            rate = units[key] == "1/s" and not isinstance(row[key], str) and row[key] == row[key]
            number = row[key]
            cells.append((f"{number:,.0f}" if number >= 100 else f"{number:.3g}") if rate else text(number, units[key]))
        table.add_row(*map(Text, cells))
    console.print(table)
    if len(result) > most:
        console.print(Text(f"the first {most} of {len(result):,} points; --out FILE.csv writes all"))

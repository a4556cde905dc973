"""A spec as a table: every number with its provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.question import Options, check_options
from perfmodel.specs import catalog
from perfmodel.specs.paths import quantities
from perfmodel.specs.types import Provenance
from perfmodel.specs.units import show

_LOADERS: dict[str, Callable[[str], Any]] = {
    "model": catalog.load_model,
    "traffic": catalog.load_traffic,
    "session": catalog.load_session,
}


def _load(name: str, engine: str | None) -> Any:
    """Return the system, model, traffic or session of a name; a system wins over a model of the same name."""
    check_options(Options(engine=engine))
    if catalog.is_config(name):
        return catalog.load_model(name)
    errors = []
    for kind in catalog.FOLDERS:
        try:
            if kind == "system":
                return catalog.load_system(name, engine)[0]
            spec = _LOADERS[kind](name)
        except UserError as error:
            errors.append(str(error))
            continue
        if engine is not None:
            raise UserError(f"--engine {engine}: {name} is a {kind}, which has no engine")
        return spec
    hints = [error for error in errors if "did you mean" in error]
    raise UserError((hints or errors)[0])


def spec_rows(name: str, engine: str | None = None) -> list[shapes.Quantity]:
    """Return path, value, unit, kind, source, file, note, low and high of each number of a spec."""
    spec = _load(name, engine)
    origins: Mapping[str, Provenance] = spec.provenance
    rows: list[shapes.Quantity] = []
    for path, unit, value in quantities(spec):
        origin = origins.get(path, Provenance("", "derived"))
        number = float(value)
        rows.append(
            {
                "path": path,
                "value": shapes.number(number),
                "unit": unit,
                "shown": show(number, unit),
                "kind": origin.kind,
                "source": origin.source,
                "file": origin.file,
                "note": origin.note,
                "low": shapes.number(origin.low),
                "high": shapes.number(origin.high),
            }
        )
    return rows


def differences(one: str, other: str) -> list[shapes.Difference]:
    """Return path, both values and both sources of each number in which two specs differ; None where one has none."""
    sides = [{row["path"]: row for row in spec_rows(name)} for name in (one, other)]
    differing: list[shapes.Difference] = []
    for path in dict.fromkeys([*sides[0], *sides[1]]):
        first, second = (side.get(path) for side in sides)
        if first is None or second is None or first["value"] != second["value"]:
            differing.append(
                {
                    "path": path,
                    "unit": next(row["unit"] for row in (first, second) if row is not None),
                    "value_1": first and first["value"],
                    "shown_1": first and first["shown"],
                    "source_1": first and first["source"],
                    "value_2": second and second["value"],
                    "shown_2": second and second["shown"],
                    "source_2": second and second["source"],
                }
            )
    return differing


def matches(word: str) -> list[shapes.Found]:
    """Return the numbers of all specs in whose path, source or note a word stands, and the specs that it names."""
    wanted = word.casefold()
    matching: list[shapes.Found] = []
    for kind in catalog.FOLDERS:
        for name, aliases, _ in catalog.entries(kind):
            named = any(wanted in one.casefold() for one in (name, *aliases))
            kept = [
                row
                for row in spec_rows(name)
                if any(wanted in text.casefold() for text in (row["path"], row["source"], row["note"]))
            ]
            if named or kept:
                matching.append({"name": name, "kind": kind, "aliases": aliases, "numbers": kept})
    return matching


def print_spec(rows: list[shapes.Quantity], console: Any) -> None:
    """Print a spec, and the sources that it names."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("path", "value", "kind", "source", "file"):
        table.add_column(column, overflow="fold")
    for row in rows:
        unit = row["unit"]
        low, high = row["low"], row["high"]
        span = "" if low is None or high is None else f" ({show(low, unit)} to {show(high, unit)})"
        table.add_row(
            *(Text(cell) for cell in (row["path"], row["shown"] + span, row["kind"], row["source"], row["file"]))
        )
    console.print(table)
    console.print()
    known = catalog.load_sources()
    for source in dict.fromkeys(row["source"] for row in rows if row["source"] in known):
        entry = known[source]
        where = entry.get("url") or entry.get("doi") or ""
        date = f" ({entry['date']})" if entry.get("date") else ""
        console.print(Text(f"{source}: {entry['title']}{date} {where}".rstrip()))
    for row in rows:
        if row["note"] and row["value"] is None:
            console.print(Text(f"{row['path']}: {row['note']}"))

"""A spec as a table: every number with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import UserError
from perfmodel.question import Options, check_options
from perfmodel.specs import catalog
from perfmodel.specs.paths import quantities
from perfmodel.specs.types import Provenance
from perfmodel.specs.units import show


def _load(name: str, engine: str | None) -> Any:
    """Return the system, model or traffic of a name; a system wins over a model of the same name."""
    check_options(Options(engine=engine))
    if catalog.is_config(name):
        return catalog.load_model(name)
    errors = []
    for kind in catalog.FOLDERS:
        try:
            if kind == "system":
                return catalog.load_system(name, engine)[0]
            found = catalog.load_model(name) if kind == "model" else catalog.load_traffic(name)
        except UserError as error:
            errors.append(str(error))
            continue
        if engine is not None:
            raise UserError(f"--engine {engine}: {name} is a {kind}, which has no engine")
        return found
    hints = [error for error in errors if "did you mean" in error]
    raise UserError((hints or errors)[0])


def spec_rows(name: str, engine: str | None = None) -> list[dict[str, Any]]:
    """Return path, value, unit, kind, source, file, note, low and high of each number of a spec."""
    spec = _load(name, engine)
    origins: Mapping[str, Provenance] = spec.provenance
    rows = []
    for path, unit, value in quantities(spec):
        origin = origins.get(path, Provenance("", "derived"))
        number = float(value)
        rows.append(
            {
                "path": path,
                "value": number if number == number else None,
                "unit": unit,
                "shown": show(number, unit),
                "kind": origin.kind,
                "source": origin.source,
                "file": origin.file,
                "note": origin.note,
                "low": origin.low if origin.low == origin.low else None,
                "high": origin.high if origin.high == origin.high else None,
            }
        )
    return rows


def differences(one: str, other: str) -> list[dict[str, Any]]:
    """Return path, both values and both sources of each number in which two specs differ; None where one has none."""
    sides = [{row["path"]: row for row in spec_rows(name)} for name in (one, other)]
    found = []
    for path in dict.fromkeys([*sides[0], *sides[1]]):
        pair = [side.get(path) for side in sides]
        if pair[0] is None or pair[1] is None or pair[0]["value"] != pair[1]["value"]:
            values = {
                f"{key}_{at}": row and row[key]
                for at, row in enumerate(pair, 1)
                for key in ("value", "shown", "source")
            }
            unit = next(row["unit"] for row in pair if row is not None)
            found.append({"path": path, "unit": unit, **values})
    return found


def matches(word: str) -> list[dict[str, Any]]:
    """Return the numbers of all specs in whose path, source or note a word stands, and the specs that it names."""
    wanted = word.casefold()
    found = []
    for kind in catalog.FOLDERS:
        for name, aliases, _ in catalog.entries(kind):
            named = any(wanted in one.casefold() for one in (name, *aliases))
            kept = [
                row
                for row in spec_rows(name)
                if any(wanted in str(row[key]).casefold() for key in ("path", "source", "note"))
            ]
            if named or kept:
                found.append({"name": name, "kind": kind, "aliases": aliases, "numbers": kept})
    return found


def print_spec(rows: list[dict[str, Any]], console: Any) -> None:
    """Print a spec, and the sources that it names."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("path", "value", "kind", "source", "file"):
        table.add_column(column, overflow="fold")
    for row in rows:
        unit = row["unit"]
        span = f" ({show(row['low'], unit)} to {show(row['high'], unit)})" if row["low"] is not None else ""
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

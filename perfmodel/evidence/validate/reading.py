"""Rows of measurements: columns, numbers and units, checked at the border."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path

from perfmodel.errors import UserError
from perfmodel.evidence.validate.metrics import find_form
from perfmodel.specs import catalog

_NAN = math.nan

#: Tokens and requests, and chips, of a run at the most.
MOST, MOST_CHIPS = 1e9, 2**20
REQUIRED = ("model", "hardware", "metric", "value", "unit")
#: What ``validate`` reads unless told otherwise, and what each file is for.
BUNDLED = {
    "serving": "measured/serving.csv",
    "validate": "measured/validate.csv",
    "serving2": "measured/serving2.csv",
    "vendors": "measured/vendors.csv",
    "speculative": "measured/speculative.csv",
}


class Unanswered(Exception):
    """A row that gets no prediction, and why."""


_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6}
_TIMES = {
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "msec": 1e-3,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "usec": 1e-6,
    "microseconds": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
}
_SHARES = {"": 1.0, "1": 1.0, "-": 1.0, "ratio": 1.0, "fraction": 1.0, "x": 1.0, "%": 0.01, "percent": 0.01}
_TOKENS = re.compile(
    r"(k|m)?(?:output |input |total )?(?:tok|toks|token|tokens|req|reqs|request|requests|queries|samples)"
)
_WATTS = {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3}
_TOKEN = ("tok", "token", "tokens")
_EACH_CHIP = ("gpu", "chip", "rank", "device", "accelerator", "lpu", "rdu", "socket")


def read_unit(text: str) -> tuple[str, float, str] | None:
    """Return the kind of a unit, its size inside, and what it is per.

    Kinds are ``time``, ``slope``, ``rate``, ``share``, ``power`` and ``energy`` of a token.
    """
    unit = text.strip().casefold().replace(" per ", "/").removesuffix("(per user)").strip()
    if unit in ("tps", "tok/s/u"):
        unit = "tok/s"
    head, *rest = (part.strip() for part in unit.split("/"))
    if head in _WATTS and (not rest or rest[0] in _EACH_CHIP) and len(rest) <= 1:
        return "power", _WATTS[head], "chip" if rest else ""
    if head in ("j", "joule", "joules") and len(rest) == 1 and rest[0].removeprefix("output ") in _TOKEN:
        return "energy", 1.0, ""
    if not rest:
        if head in _TIMES:
            return "time", _TIMES[head], ""
        return ("share", _SHARES[head], "") if head in _SHARES else None
    if head in _TIMES:
        return ("slope", _TIMES[head], "") if rest[0] in _TOKEN and len(rest) == 1 else None
    if rest == ["step"] and head in _TOKEN:
        return "share", 1.0, ""
    made = _TOKENS.fullmatch(head)
    count = 1.0 if head == "1" else _PREFIXES[made[1] or ""] if made else None
    spans = [part for part in rest if part in _TIMES]
    others = [part for part in rest if part not in _TIMES]
    if count is None or len(spans) != 1 or len(others) > 1:
        return None
    per = others[0] if others else ""
    if per and per not in (*_EACH_CHIP, "user", "request"):
        return None
    return "rate", count / _TIMES[spans[0]], "chip" if per in _EACH_CHIP else per


#: Units that are understood, by example.
UNITS = "ms, s, us, tok/s, tok/s/user, tok/s/gpu, ms/token, ratio, W or J/token"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV with the required columns; cells are stripped, comment lines left out.

    Raises
    ------
    UserError
        Where it is no such file, lacks a column, or holds a value or a unit that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"--data {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--data {path}: not a CSV file in UTF-8 ({type(error).__name__})") from None
    lines = [line for line in io.StringIO(text, newline="") if not line.startswith("#")]
    reader = csv.reader(lines)
    try:
        table = [row for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UserError(f"--data {path}: line {reader.line_num}: {error}") from None
    if not table:
        raise UserError(f"--data {path}: the file is empty; expected the columns {', '.join(REQUIRED)}")
    names = [name.strip() for name in table[0]]
    lower = [name.casefold() for name in names]
    # A collective has no model.
    needed = REQUIRED[1:] if "message_bytes" in lower else REQUIRED
    missing = [name for name in needed if name not in lower]
    if missing:
        raise UserError(f"--data {path}: no column {', '.join(missing)}; it has {', '.join(names)[:200]}")
    # The columns that mean something answer in any case; the others keep their names.
    names = [low if low in _KNOWN else name for name, low in zip(names, lower, strict=True)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--data {path}: column {', '.join(sorted(twice))} stands there twice")
    if len(table) == 1:
        raise UserError(f"--data {path}: no rows below the header")
    rows = []
    for number, cells in enumerate(table[1:], 2):
        if len(cells) > len(names):
            raise UserError(f"--data {path}: row {number} has {len(cells)} cells, the header {len(names)}")
        row = dict(zip(names, [*(cell.strip() for cell in cells), *[""] * (len(names) - len(cells))], strict=True))
        row.setdefault("model", "")
        try:
            float(row["value"] or "nan")
        except ValueError:
            raise UserError(f"--data {path}: row {number}: value '{row['value']}' is not a number") from None
        rows.append(row)
    # One row with an odd unit gets its reason; a file without any that can be read is a mistake about the column.
    measured = [row for row in rows if (form := find_form(row["metric"])) is not None and form.units]
    if measured and all(read_unit(row["unit"]) is None for row in measured):
        raise UserError(
            f"--data {path}: unknown unit '{measured[0]['unit']}' of {measured[0]['metric']}; expected one like {UNITS}"
        )
    return rows


_KNOWN = (
    *REQUIRED,
    *("row_id", "id", "n_chips", "tp", "pp", "ep", "dp", "dtype_weights", "dtype_kv", "engine", "mode", "isl", "osl"),
    *(
        "concurrency_or_batch",
        "notes",
        "k",
        "method",
        "dataset",
        "source_url",
        "attention_dp",
        "replicas",
        "load",
        "stat",
    ),
    *("lengths", "quality", "message_bytes", "spec_decode"),
    *("run", "rate", "requests", "length_spread", "prefix_hits", "warmup", "failures", "in_flight", "accept_length"),
    *(f"{pool}_{what}" for pool in ("prefill", "decode") for what in ("workers", "tp", "attention_dp", "ep", "batch")),
)


def number(row: Mapping[str, str], name: str) -> float | None:
    """Return a positive number of a column, or None where it is empty."""
    text = row.get(name, "").replace(",", "")
    if text.casefold() in ("", "none", "nan", "null", "n/a"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise Unanswered(f"{name} '{text}' is not a number") from None
    if not 0 < value < math.inf:
        raise Unanswered(f"{name} {text} must be more than 0")
    if value > MOST:
        raise Unanswered(f"{name} {text} is more than {MOST:g}")
    return value


def whole(row: Mapping[str, str], name: str) -> float | None:
    """Return a positive whole number of chips or ranks of a column, or None where it is empty."""
    value = number(row, name)
    if value is not None and value != int(value):
        raise Unanswered(f"{name} {value:g} must be a whole number")
    if value is not None and value > MOST_CHIPS:
        raise Unanswered(f"{name} {value:g} is more than {MOST_CHIPS:,}")
    return value


def plain(row: Mapping[str, str], name: str) -> float:
    """Return a number of a column, NaN where there is none."""
    try:
        return float(row.get(name) or "nan")
    except ValueError:
        return _NAN


def bundled_path(name: str) -> Path:
    """Return the path of one of the bundled measurements."""
    return catalog.bundled() / "data" / BUNDLED[name]

"""Cash flows as a workbook whose sums, present values and prices are live formulas."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.outputs.answers import write_csv
from perfmodel.planning.tco.cash import Flow
from perfmodel.planning.tco.ownership import Owning
from perfmodel.question import distinct
from perfmodel.writing import whole

#: Columns of a sheet: heading, attribute of a year, whether it is paid.
_COLUMNS = (
    ("year", "year", 0),
    ("utilisation", "utilisation", 0),
    ("deployments needed", "deployments", 0),
    ("capital [USD]", "capital", -1),
    ("space [USD]", "space", -1),
    ("electricity [USD]", "electricity", -1),
    ("maintenance [USD]", "maintenance", -1),
    ("staff [USD]", "staff", -1),
    ("rent [USD]", "rent", -1),
    ("resale [USD]", "resale", 1),
    ("depreciation, no cash [USD]", "depreciation", 0),
    ("served [Mtok]", "mtok", 0),
    ("at the cheapest API [USD]", "market", 0),
)
_FIRST = 5


def write(flows: Sequence[tuple[str, Flow]], path: Path) -> None:
    """Write the cash flow of each system on a sheet of its own; whole or not at all.

    Parameters
    ----------
    flows : sequence of (str, Flow)
        Name of each system, and its cash.
    path : Path
        Ends in ``.xlsx``.
    """
    import xlsxwriter

    file = io.BytesIO()
    book = xlsxwriter.Workbook(file, {"strings_to_formulas": False, "strings_to_urls": False, "in_memory": True})
    forms = {
        "bold": book.add_format({"bold": True, "text_wrap": True}),
        "usd": book.add_format({"num_format": "#,##0"}),
    }
    forms["share"] = book.add_format({"num_format": "0.0%"})
    forms["price"] = book.add_format({"num_format": "0.0000"})
    for at, (name, flow) in enumerate(flows, start=1):
        kept = "".join(letter for letter in name if letter not in "[]:*?/\\")
        _sheet(book.add_worksheet(f"{at} {kept}"[:31]), flow, forms)
    book.close()
    with whole(path) as partial:
        partial.write_bytes(file.getbuffer())


def save(result: Owning, path: Path) -> None:
    """Write the cash flow of each system by year, whole or not at all.

    Parameters
    ----------
    result : Owning
    path : Path
        Ends in ``.csv``, or in ``.xlsx`` for a sheet a system.
    """
    if path.suffix == ".csv":
        write_csv(result.cash_rows(), path)
        return
    names = distinct([owned.name for owned in result.systems])
    pairs = zip(names, result.systems, strict=True)
    write([(name, owned.flow) for name, owned in pairs if owned.flow is not None], path)


def _sheet(sheet: Any, flow: Flow, forms: dict[str, Any]) -> None:
    """Write one system: its years, and the sums below what is given."""
    end = _FIRST + len(flow.years) - 1
    sheet.write_row(0, 0, ("cost of capital a year", flow.rate), forms["share"])
    letters = {attribute: chr(65 + at) for at, (_, attribute, _) in enumerate(_COLUMNS)}
    cash, worth = chr(65 + len(_COLUMNS)), chr(66 + len(_COLUMNS))
    sheet.write_string(1, 0, "present value of what is paid [USD]")
    sheet.write_formula(1, 1, f"=SUM({worth}{_FIRST + 1}:{worth}{end + 1})", forms["usd"], flow.npv)
    tokens = f"SUMPRODUCT({letters['mtok']}{_FIRST + 1}:{letters['mtok']}{end + 1},(1+$B$1)^-A{_FIRST + 1}:A{end + 1})"
    sheet.write_string(2, 0, "price that pays for it [USD/Mtok]")
    sheet.write_formula(2, 1, f"=-B2/{tokens}", forms["price"], flow.usd_per_mtok)
    sheet.set_column(0, 0, 34)
    sheet.set_column(1, len(_COLUMNS) + 1, 14)
    sheet.write_row(_FIRST - 1, 0, (*(words for words, _, _ in _COLUMNS), "cash [USD]", "today [USD]"), forms["bold"])
    for row, year in enumerate(flow.years, start=_FIRST):
        for column, (_, attribute, _) in enumerate(_COLUMNS):
            value = getattr(year, attribute)
            if value == value:
                sheet.write_number(row, column, value, forms["share" if attribute == "utilisation" else "usd"])
        parts = "".join(
            f"{'-' if sign < 0 else '+'}{letters[attribute]}{row + 1}" for _, attribute, sign in _COLUMNS if sign
        )
        sheet.write_formula(row, len(_COLUMNS), f"={parts}", forms["usd"], year.cash)
        worth_now = f"={cash}{row + 1}*(1+$B$1)^-A{row + 1}"
        sheet.write_formula(row, len(_COLUMNS) + 1, worth_now, forms["usd"], year.discounted)

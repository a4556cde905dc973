"""Where users want files, and text that is safe in them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from perfmodel.errors import UserError
from perfmodel.writing import clean, reason

#: What begins a formula in some spreadsheet; those of East Asian keyboards do too.
_STARTS = "=+\\-@＝＋－＠"
_FORMULA = re.compile(rf"\s*[{_STARTS}]|[\t\r\n]")
#: What begins one in a comment line, cell by cell, whichever separator the reader takes.
_INNER = re.compile(rf"([,;|]\s*'*(?=[{_STARTS}])|\s(?=[=@＝＠]))")


def check_file(path: Path, endings: Sequence[str], option: str, more: str = "") -> None:
    """Refuse a name that no file can be written to, and clear away what killed writers left beside it.

    Parameters
    ----------
    path : Path
    endings : sequence of str
        Of which its name must have one.
    option : str
        By which it was given.
    more : str
        What else would do.
    """
    if path.suffix not in endings:
        raise UserError(f"{option} {path}: expected a name that ends in {' or '.join(endings)}{more}")
    if not os.path.isdir(path.parent):
        raise UserError(f"{option} {path}: there is no folder {path.parent}")
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: there is a folder of that name")
    clean(path.parent)


def make_folder(path: Path, option: str = "--out") -> None:
    """Make a folder where it is missing, and clear away what killed writers left in it.

    Parameters
    ----------
    path : Path
    option : str
        By which it was given.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot make the folder ({reason(error)})") from None
    clean(path)


def text_cell(value: str) -> str:
    """Return text that a spreadsheet will not run as a formula."""
    return f"'{value}" if _FORMULA.match(value) else value


def comment(text: str) -> str:
    """Return text as a comment line of a CSV, of which no spreadsheet makes another line or a formula."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text).replace('"', "'")
    return "# " + _INNER.sub(r"\1'", plain)

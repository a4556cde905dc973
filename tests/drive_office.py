"""Types into an open workbook and reads what LibreOffice makes of it, many times in one start of the program.

For the Python that has LibreOffice's module ``uno``; ``programs.drive_office`` runs it.  The standard input is a JSON
object: ``pipe`` and ``file``, and ``steps``, each with cells to ``set`` and a range to ``read``, as SHEET.CELL.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import uno
from com.sun.star.beans import PropertyValue
from com.sun.star.connection import NoConnectException


def connect(pipe: str):
    """Return the desktop of the office that listens on a pipe, as soon as it does."""
    here = uno.getComponentContext()
    resolver = here.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", here)
    for _ in range(600):
        try:
            there = resolver.resolve(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext")
        except NoConnectException:
            time.sleep(0.1)
        else:
            return there.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", there)
    raise SystemExit("the office does not answer")


def cells(book, place: str):
    sheet, _, address = place.partition(".")
    return book.Sheets.getByName(sheet).getCellRangeByName(address)


def main() -> None:
    asked = json.load(sys.stdin)
    desktop = connect(asked["pipe"])
    try:
        hidden = PropertyValue(Name="Hidden", Value=True)
        book = desktop.loadComponentFromURL(Path(asked["file"]).as_uri(), "_blank", 0, (hidden,))
        found = []
        for step in asked["steps"]:
            for place, value in step["set"].items():
                cells(book, place).setDataArray(((value,),))
            # What is read is calculated then, with what it needs, and no more.
            found.append(cells(book, step["read"]).getDataArray())
        book.close(False)
        json.dump(found, sys.stdout)
        sys.stdout.flush()
    finally:
        desktop.terminate()
    # The office is gone, and what Python would still say to it on the way out may end in a crash.
    os._exit(0)


main()

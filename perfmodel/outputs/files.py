"""Files that are written whole or not at all, and text that is safe in them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes ``path`` only when all went well."""
    # Hidden, so that nobody who reads the folder takes it for a file of it; its own, for two may write the same.
    partial = path.with_name(f".{path.stem}-{os.urandom(4).hex()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def text_cell(value: str) -> str:
    """Return text that a spreadsheet will not run as a formula."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value

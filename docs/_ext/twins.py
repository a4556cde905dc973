"""Beside each page its Markdown, for assistants: ``guide.html`` has a ``guide.md``, and ``llms.txt`` begins them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

#: A block that the build runs, with its options: a reader runs it as a command or as Python.
_RUN = re.compile(r"^```\{(run|python)\}\n((?::.*\n)*)", re.MULTILINE)
_LANGUAGES = {"run": "sh", "python": "python"}


def plain(text: str) -> str:
    """Return Markdown in which blocks that the build runs are plain code.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
    """
    return _RUN.sub(lambda block: f"```{_LANGUAGES[block[1]]}\n", text)


def write(source: Path, out: Path) -> list[Path]:
    """Write the twin of every page, and ``llms.txt``.

    Parameters
    ----------
    source, out : Path
        ``docs/`` and the folder of the built pages.

    Returns
    -------
    list of Path
        What was written.
    """
    written = []
    for page in out.rglob("*.html"):
        text = source / page.relative_to(out).with_suffix(".md")
        if text.is_file():
            twin = page.with_suffix(".md")
            twin.write_text(plain(text.read_text("utf-8")), encoding="utf-8")
            written.append(twin)
    # Pages are at the top of what is served, and not below docs/.
    llms = (source.parent / "llms.txt").read_text("utf-8").replace("](docs/", "](")
    shutil.copy(source.parent / "README.md", out / "README.md")
    (out / "llms.txt").write_text(llms, encoding="utf-8")
    return [*written, out / "llms.txt"]


def _built(app: Any, failed: Exception | None) -> None:
    if failed is None:
        write(Path(app.srcdir), Path(app.outdir))


def setup(app: Any) -> dict[str, bool]:
    """Write the twins when the pages are built."""
    app.connect("build-finished", _built)
    return {"parallel_read_safe": True}

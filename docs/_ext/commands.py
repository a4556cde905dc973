"""Commands and programs that are run while the pages are built, so that what a page shows is what they print.

````{run}```` takes command lines and shows each with its output, ````{python}```` a program with what it prints, and
````{file} NAME```` shows a file and writes it.  All of a page happen in one folder, in their order.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: Columns of the terminal that a page shows.
_WIDTH = "88"
_FOLDERS: dict[str, tempfile.TemporaryDirectory[str]] = {}
_NAMES: dict[str, dict[str, Any]] = {}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[io.StringIO]:
    """Work in a folder; what is printed is caught, and errors with it."""
    before, width, caught = Path.cwd(), os.environ.get("COLUMNS"), io.StringIO()
    os.environ["COLUMNS"] = _WIDTH
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(caught), contextlib.redirect_stderr(caught):
            yield caught
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width


class _Runs(SphinxDirective):
    """What the three have in common: the folder of the page."""

    has_content = True

    @property
    def folder(self) -> Path:
        name = self.env.docname
        if name not in _FOLDERS:
            _FOLDERS[name] = tempfile.TemporaryDirectory(prefix="perfmodel-docs-", ignore_cleanup_errors=True)
        return Path(_FOLDERS[name].name)

    def block(self, text: str, language: str, *classes: str) -> nodes.literal_block:
        """Return a block of literal text."""
        made = nodes.literal_block(text, text, language=language, classes=list(classes))
        self.set_source_info(made)
        return made


class Run(_Runs):
    """Command lines of perfmodel.

    ``:exit:`` is the code expected, ``:head:`` how many lines of output are shown, ``:keep:`` a file that the built
    pages keep, as ``kept/NAME``.
    """

    option_spec: ClassVar = {
        "exit": directives.nonnegative_int,
        "head": directives.positive_int,
        "keep": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Run each line, show it with its output, and warn where it ends otherwise than said."""
        from perfmodel.cli import run

        shown: list[nodes.Node] = []
        for command in re.sub(r"\\\n *", "", "\n".join(self.content)).splitlines():
            program, *arguments = shlex.split(command, comments=True)
            if program != "perfmodel":
                raise self.error(f"{command}: only perfmodel is run")
            with _inside(self.folder) as caught, mock.patch.object(sys, "argv", [program, *arguments]):
                code = run(arguments)
            printed = caught.getvalue().replace(f"{self.folder}/", "").rstrip().splitlines()
            if code != self.options.get("exit", 0):
                raise self.error(f"{command}: exit code {code}\n{caught.getvalue()}")
            most = self.options.get("head", len(printed))
            lines = [*(line.rstrip() for line in printed[:most]), *(["..."] if len(printed) > most else [])]
            shown += [self.block(f"$ {command}", "console", "command"), self.block("\n".join(lines), "text", "output")]
        if kept := self.options.get("keep"):
            shutil.copy(self.folder / kept, Path(self.env.srcdir) / "generated" / "extra" / "kept")
        return shown


class Python(_Runs):
    """A program; names live on to the next one of the page."""

    def run(self) -> list[nodes.Node]:
        """Run it and show it with what it prints."""
        names = _NAMES.setdefault(self.env.docname, {"__name__": "__main__"})
        text = "\n".join(self.content)
        with _inside(self.folder) as caught:
            try:
                exec(compile(text, self.env.docname, "exec"), names)
            except Exception as error:
                raise self.error(f"{error.__class__.__name__}: {error}") from error
        printed = caught.getvalue().rstrip()
        return [self.block(text, "python"), *([self.block(printed, "text")] if printed else [])]


class File(_Runs):
    """A file that the reader writes."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Write it and show it under its name."""
        from perfmodel.specs import catalog

        name, text = self.arguments[0], "\n".join(self.content) + "\n"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        # The next command of a reader is a new process, which reads all files anew.
        for kept in vars(catalog).values():
            if hasattr(kept, "cache_clear"):
                kept.cache_clear()
        caption = nodes.caption(name, "", nodes.literal(name, name))
        language = {".json": "json", ".csv": "text"}.get(path.suffix, "yaml")
        return [
            nodes.container(
                "", caption, self.block(text, language), literal_block=True, classes=["literal-block-wrapper"]
            )
        ]


def _fresh(app: Sphinx, env: Any, name: str) -> None:
    _FOLDERS.pop(name, None)
    _NAMES.pop(name, None)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    (Path(app.srcdir) / "generated" / "extra" / "kept").mkdir(parents=True, exist_ok=True)
    app.add_directive("run", Run)
    app.add_directive("python", Python)
    app.add_directive("file", File)
    app.connect("env-purge-doc", _fresh)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

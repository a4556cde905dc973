"""Skeletons of what a user adds: a chip, a model, a session or a package with a machine kind, each with its test."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from perfmodel.errors import UserError
from perfmodel.writing import whole

#: What there is a skeleton of; each is a folder of files in which ``NAME`` and ``$name`` stand for the name.
_FOLDER = Path(__file__).parent / "skeletons"
WHAT = ("chip", "model", "machine", "session")


def write(what: str, name: str, into: Path) -> list[Path]:
    """Write a skeleton, all of it or nothing.

    Parameters
    ----------
    what : str
        One of :data:`WHAT`.
    name : str
    into : Path
        The folder that gets it: a chip, a model and a session as a user's files, a machine as a package of its own.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    UserError
        Where the name will not do, or a file is there already.
    """
    if what not in WHAT:
        raise UserError(f"'{what}': expected one of {', '.join(WHAT)}")
    allowed = r"[a-z][a-z0-9_]*" if what == "machine" else r"[a-z][a-z0-9._-]*"
    if not re.fullmatch(allowed, name):
        letters = "letters, digits and _" if what == "machine" else "letters, digits, '.', '_' and '-'"
        raise UserError(f"'{name}': a {what} is named in small {letters}, with a letter first")
    root = into / name if what == "machine" else into
    files: dict[Path, str] = {}
    for path in sorted((_FOLDER / what).glob("**/*")):
        if path.is_file():
            relative = path.relative_to(_FOLDER / what).as_posix().replace("NAME", name).removesuffix(".txt")
            files[root / relative] = Template(path.read_text(encoding="utf-8")).substitute(name=name)
    if there := next((path for path in files if path.exists()), None):
        raise UserError(f"{there}: is there already")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(files)

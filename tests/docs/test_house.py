"""The house as its picture says: every room imports rooms before it only, and none is a fifth of the lines."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import perfmodel

PACKAGE = Path(perfmodel.__file__).parent
DESIGN = PACKAGE.parent / "docs" / "design.md"
#: The picture: the lines of the layout, in which each room stands once.
ROOMS = re.findall(r"\w+", re.search(r"\n\n    (errors → .*?)\n\n", DESIGN.read_text("utf-8"), re.DOTALL)[1])
FILES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py" and "bundled" not in path.parts
]


def room_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(tree):
    """Rooms that a file imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("perfmodel."))


def test_the_picture_has_every_room_once():
    assert sorted(ROOMS) == sorted({room_of(path) for path in FILES})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_imports_no_room_above_its_own(path):
    own = ROOMS.index(room_of(path))
    assert {name for name in imported(ast.parse(path.read_text("utf-8"))) if ROOMS.index(name) > own} == set()


def test_no_room_is_a_fifth_of_the_house():
    lines = Counter()
    for path in FILES:
        lines[room_of(path)] += len(path.read_text("utf-8").splitlines())
    assert max(lines.values()) < sum(lines.values()) / 5

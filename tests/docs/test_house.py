"""The house as its picture says: rooms import rooms before them only, no file is in a circle, none is a fifth."""

import ast
import re
from collections import Counter
from graphlib import TopologicalSorter
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


def named(tree):
    """What a file imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from names


def imported(tree):
    """Rooms that a file imports."""
    return {name.split(".")[1] for name in named(tree) if name.startswith("perfmodel.")}


def module_of(path):
    return ".".join(("perfmodel", *path.relative_to(PACKAGE).with_suffix("").parts))


def test_the_picture_has_every_room_once():
    assert sorted(ROOMS) == sorted({room_of(path) for path in FILES})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_file_imports_no_room_above_its_own(path):
    own = ROOMS.index(room_of(path))
    tree = ast.parse(path.read_text("utf-8"))
    assert {name for name in imported(tree) if ROOMS.index(name) > own} == set()
    assert "perfmodel" not in named(tree)


def test_no_file_imports_itself_by_way_of_others():
    """But for the faces of packages, which hand names on."""
    trees = {module_of(path): ast.parse(path.read_text("utf-8")) for path in FILES if path.stem != "__init__"}

    def files(name):
        return name if name in trees else name.rpartition(".")[0]

    graph = {own: {files(name) for name in named(tree)} & trees.keys() - {own} for own, tree in trees.items()}
    tuple(TopologicalSorter(graph).static_order())


def test_no_room_is_a_fifth_of_the_house():
    lines = Counter()
    for path in FILES:
        lines[room_of(path)] += len(path.read_text("utf-8").splitlines())
    assert max(lines.values()) < sum(lines.values()) / 5

"""Every notebook runs from a fresh kernel without a warning, is stored stripped, and uses the public interface."""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import perfmodel

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
#: Modules that a notebook may import; of ours the package itself.
PUBLIC = {"altair", "IPython.display", "numpy", "pandas", "pathlib", "perfmodel", "tempfile"}

EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_six() -> None:
    assert len(NOTEBOOKS) == 6


@EACH
def test_outputs_and_counts_are_stripped(path: Path) -> None:
    for cell in nbformat.read(path, 4).cells:
        assert not cell.metadata
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


@EACH
def test_only_the_public_interface_is_used(path: Path) -> None:
    for cell in nbformat.read(path, 4).cells:
        for node in ast.walk(ast.parse(cell.source)) if cell.cell_type == "code" else ():
            if isinstance(node, ast.Import):
                assert {entry.name for entry in node.names} <= PUBLIC
            elif isinstance(node, ast.ImportFrom):
                assert node.module in PUBLIC
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "perfmodel":
                assert node.attr in perfmodel.__all__
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")


@EACH
def test_it_runs(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output.text
            assert "<td>nan</td>" not in output.get("data", {}).get("text/html", "")

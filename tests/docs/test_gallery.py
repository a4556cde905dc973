"""Every file of the gallery runs and leaves a chart with marks on it, or a table with rows."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pandas as pd
import pytest
import vl_convert

GALLERY = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("*.py"))


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    title, blank, *said = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()
    assert title.endswith("?")
    assert not blank
    assert said
    left = runpy.run_path(str(path))
    assert ("chart" in left) != ("table" in left), "leave a chart or a table"
    if "table" in left:
        table = left["table"]
        assert table.strip() if isinstance(table, str) else isinstance(table, pd.DataFrame) and len(table)
        return
    picture = vl_convert.vegalite_to_svg(left["chart"].to_dict())
    assert any(f"mark-{kind} role-mark" in picture for kind in ("line", "symbol", "rect", "area"))
    assert "NaN" not in picture


def test_there_are_examples() -> None:
    assert len(GALLERY) >= 8

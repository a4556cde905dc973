"""Recipes: what a user can get wrong is said in one line with file, line and fix; what is right becomes files."""

import csv

import pandas as pd
import pytest
from altair.utils.schemapi import SchemaValidationError

from perfmodel.cli import run
from perfmodel.reports import charts, figures
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number

COLUMNS = {"batch": "batch", "time": "time [ms]", "part": "part <of the step>"}


def lines(batches: list[float], name: str = "lines") -> Figure:
    frame = pd.DataFrame(
        [{"batch": b, "time": b * k, "part": f"=cmd|part {k}"} for b in batches for k in (1, 2)],
    )
    layers = (Layer("line"), Layer("point", rows="batch > 2"))
    chart = Chart(name, "Time <script>", frame, COLUMNS, "batch", "time", layers, color="part", log="xy")
    return Figure(
        "Lines",
        "Twice as long.",
        (chart,),
        (Number("printed", 2.2, "ms", 2.0, source="a paper"), Number("fitted", 1.0, published=1.0, fitted=True)),
        (Claim("it grows", "holds", "by construction"),),
    )


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_REGISTRY", {"lines": lines})
    monkeypatch.setattr(figures, "_import_reports", lambda: None)
    monkeypatch.setattr("os.cpu_count", lambda: 1)

    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


GOOD = """\
title: Mine
question: How long?
sections:
  - heading: First
    figures:
      - {figure: lines, batches: [1, 2, 4]}
"""


def test_a_recipe_becomes_a_page_and_files(recipe, tmp_path, capsys):
    assert run(["report", str(recipe(GOOD)), "--out", str(tmp_path / "out")]) == 0
    page = tmp_path / "out" / "mine.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("lines.csv", "lines.png", "lines.svg", "mine.html")
    ]
    text = page.read_text()
    assert "Time <script>" not in text
    assert "+10.0%" in text
    assert "1 predicted: median error 10.0%, worst 10.0%; 1 used to fit" in text
    with (tmp_path / "out" / "lines.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["batch", "time [ms]", "part <of the step>", "kind"]
    assert len(rows) == 6
    # What a spreadsheet would run is not text that starts with an equals sign.
    assert all(row["part <of the step>"].startswith("'=") for row in rows)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("lines, ", "line, ", "mine.yaml:6: sections.0.figures.0.figure: unknown figure 'line': did you mean lines?"),
        ("[1, 2, 4]", "[1, two]", "mine.yaml:6: sections.0.figures.0.batches.1: Input should be a valid number"),
        ("batches", "batch", "mine.yaml:6: sections.0.figures.0.batches: Field required"),
        ("[1, 2, 4]", "[1], colour: red", "mine.yaml:6: sections.0.figures.0.colour: figure lines takes batches, name"),
        ("heading: First", "head: First", "mine.yaml:4: sections.0: heading is missing"),
        ("question: How long?", "questions: no", "mine.yaml: question is missing"),
        ("[1, 2, 4]", "!!python/object/apply:os.system [echo]", "mine.yaml"),
    ],
)
def test_a_wrong_recipe_is_refused_in_one_line(wrong, right, said, recipe, tmp_path, capsys):
    path = recipe(GOOD.replace(wrong, right))
    assert run(["report", str(path), "--out", str(tmp_path / "out")]) == 2
    both = capsys.readouterr()
    assert said in both.err
    assert both.err.count("\n") == 1
    assert not both.out
    assert not (tmp_path / "out" / "mine.html").exists()


def test_a_chart_drawn_twice_needs_two_names(recipe, tmp_path, capsys):
    twice = GOOD + "      - {figure: lines, batches: [1]}\n"
    assert run(["report", str(recipe(twice)), "--out", str(tmp_path / "out")]) == 2
    assert "chart 'lines' is also drawn by" in capsys.readouterr().err


def test_an_unknown_report_names_those_there_are(capsys):
    assert run(["report", "nothing"]) == 2
    assert "unknown report 'nothing'" in capsys.readouterr().err


def test_a_chart_names_every_column():
    frame = pd.DataFrame({"batch": [1.0], "time": [1.0]})
    with pytest.raises(ValueError, match="columns without a title: time"):
        Chart("one", "One", frame, {"batch": "batch"}, "batch", "batch")


def test_what_is_not_vega_lite_is_no_chart(monkeypatch):
    (chart,) = lines([1, 2]).charts
    assert len(charts.spec(chart)["data"]["values"]) == 4
    monkeypatch.setitem(charts._MARKS, "line", {"type": "line", "strokeWidth": "thick"})
    with pytest.raises(SchemaValidationError, match="thick"):
        charts.spec(chart)

"""The SHIP report as a reader meets it: opened in a browser without network, and its files."""

import csv
import re
import struct

import pytest
from programs import open_offline

from perfmodel.errors import UserError
from perfmodel.reports import page as report
from perfmodel.reports.figures import read_recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ship")
    return report.save("ship", folder)


@pytest.fixture(scope="module")
def opened(made, tmp_path_factory):
    return open_offline(made[0], tmp_path_factory.mktemp("browser"), "#all")


@pytest.mark.program
def test_the_page_asks_for_nothing_and_complains_of_nothing(opened):
    _, console, asked = opened
    assert asked == []
    assert console == []


@pytest.mark.program
def test_every_chart_drew_marks(opened, made):
    document = opened[0]
    holders = re.split(r'<div class="chart', document)[1:]
    assert len(holders) == len(made[1:]) / 3
    for holder in holders:
        drawing, end, _ = holder.partition("</svg>")
        assert end, holder[:200]
        marks = re.findall(
            r'<path aria-roledescription="[^"]*"|class="mark-(?:rule|text|rect|symbol|line|area)', drawing
        )
        assert len(marks) > 2, holder[:200]


def test_each_chart_has_a_picture_a_drawing_and_its_numbers(made):
    by_end = {end: [path for path in made[1:] if path.suffix == end] for end in (".png", ".svg", ".csv")}
    assert len({len(paths) for paths in by_end.values()}) == 1
    for path in by_end[".png"]:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", head[16:])
        assert width > 600
        assert height > 300
    for path in by_end[".svg"]:
        assert path.read_text(encoding="utf-8").count("<path") > 3
    for path in by_end[".csv"]:
        with path.open(encoding="utf-8", newline="") as file:
            headings, *rows = list(csv.reader(file))
        assert "kind" in headings
        assert rows
        assert all(len(row) == len(headings) for row in rows)


def test_every_item_of_the_paper_stands_in_the_recipe():
    names = {wanted.name for wanted in read_recipe("ship").figures}
    assert names >= {
        "ship-latency",
        "ship-public-speeds",
        "ship-workload",
        "ship-intensity",
        "ship-topology",
        "ship-all-reduce",
        "ship-overlap",
        "ship-tiers",
        "ship-prefix-cache",
        "ship-speculation",
        "ship-comparison",
        "ship-scheduling",
        "ship-power",
        "ship-other-machines",
        "ship-disaggregation",
        "ship-adaptive-budget",
        "ship-availability",
    }


def test_a_copy_of_the_recipe_with_another_model_is_another_report(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "title: Mine\nquestion: And mine?\nsections:\n  - heading: Power\n    figures:\n"
        "      - {figure: ship-power, model: qwen3-30b-a3b, ship: 'lpu-v1:tp=16,pp=49', users: 190, ratios: [1, 8]}\n"
    )
    page, *files = report.save(str(recipe), tmp_path / "out")
    assert page.name == "mine.html"
    assert len(files) == 3


@pytest.mark.parametrize(
    ("figure", "complaint"),
    [
        ("{figure: ship-workload, traces: [mine]}", "'mine' is not in the bundled tables"),
        ("{figure: ship-all-reduce, hardware: [MI300X]}", "expected B200 SXM, H100 SXM"),
        ("{figure: ship-scheduling, model: llama-3.1-405b}", "fits"),
        ("{figure: ship-power, modell: llama-3.1-8b}", "ship-power takes model"),
        ("{figure: ship-comparison, model: llama-3.1-8b}", "--pp 95"),
    ],
)
def test_a_recipe_that_cannot_be_drawn_is_refused_in_one_line(tmp_path, figure, complaint):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(f"title: Mine\nquestion: And?\nsections:\n  - heading: One\n    figures:\n      - {figure}\n")
    with pytest.raises(UserError) as refusal:
        report.save(str(recipe), tmp_path / "out")
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)

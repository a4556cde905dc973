"""A frontier in the terminal: against brute force, at eighty columns, in ASCII, with ties and single points."""

from __future__ import annotations

import io
import random
import re

import pytest
from rich.console import Console

from perfmodel.cli import run
from perfmodel.outputs.plot import frontier, print_frontier

SWEEP = ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", "concurrency=1,8,64", "--axis", "tp=1,2,4"]


@pytest.mark.parametrize("seed", range(20))
def test_a_frontier_is_what_nothing_beats(seed: int) -> None:
    draw = random.Random(seed)
    points = [(float(draw.randint(0, 9)), float(draw.randint(0, 9))) for _ in range(draw.randint(1, 30))]
    found = {points[at] for at in frontier(points)}
    unbeaten = {
        one for one in points if not any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)
    }
    assert found == unbeaten
    assert len(frontier(points)) == len(found)


def drawn(points: list[tuple[float, float]], encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=80, color_system=None)
    print_frontier(points, [f"p{at}" for at in range(len(points))], "x", "y", console)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("points", [[(1.0, 2.0)], [(1.0, 2.0)] * 3, [(1.0, 2.0), (1.0, 3.0)], [(0.0, 0.0), (5.0, 0.0)]])
def test_ties_and_single_points_are_drawn(points: list[tuple[float, float]]) -> None:
    out = drawn(points)
    assert "  a  p" in out
    assert max(map(len, out.splitlines())) <= 80


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn([]) == ""


def test_ascii_where_the_encoding_has_no_more() -> None:
    points = [(1.0, 3.0), (2.0, 2.0), (1.0, 1.0)]
    assert drawn(points, "ascii").isascii()
    assert "│" in drawn(points)


def test_a_sweep_is_drawn_without_colour_and_within_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert run([*SWEEP, "--plot"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "  a  concurrency 64, tp 1:" in out
    # The table stands below, as without the chart.
    assert run(SWEEP) == 0
    for line in capsys.readouterr().out.splitlines():
        assert line in out


@pytest.mark.parametrize("other", [["--json"], ["--csv"], ["--out", "rows.csv"]])
def test_a_chart_is_for_a_terminal(other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SWEEP, "--plot", *other]) == 2
    assert "--plot" in capsys.readouterr().err


def test_what_costs_draw_is_their_own_frontier(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["tco", "llama-3.1-8b", "--on", "dgx-h100", "--on", "l4-8"]
    assert run([*words, "--plot"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    listed = re.findall(r"^  [a-h]  .*: ([\d.,]+) out tok/s/user, ([\d.,]+)", out.replace("\n     ", " "), re.M)
    speeds = [float(speed.replace(",", "")) for speed, _ in listed]
    assert speeds == sorted(speeds)
    assert len(speeds) >= 2
    assert run([*words, "--concurrency", "8", "--plot"]) == 0
    assert "no curve to draw" in capsys.readouterr().out

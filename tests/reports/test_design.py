"""Every report by one design, as a reader meets it: widths, keyboard, print, colours, and where lines cross."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from programs import chromium

from perfmodel.reports import charts, findings, page
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Recipe, Section, Wanted, make, read_recipe

# --- colours -----------------------------------------------------------------------------------------------------

#: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEFICIENCIES = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": [[0.2126729, 0.7151522, 0.0721750]] * 3,
    "none": np.eye(3),
}


def linear(colour: str) -> Any:
    part = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    part = np.array(xyz) @ rgb / np.array([0.95047, 1, 1.08883])
    f = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Any, two: Any) -> float:
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    c1, c2 = np.hypot(a1 * (1 + g), b1), np.hypot(a2 * (1 + g), b2)
    h1, h2 = (np.degrees(np.arctan2(b, a * (1 + g))) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = (h1 + h2 if c1 * c2 == 0 else h1 + turn / 2) % 360
    l, c = (l1 + l2) / 2, (c1 + c2) / 2  # noqa: E741
    t = 1 - 0.17 * np.cos(np.radians(hue - 30)) + 0.24 * np.cos(np.radians(2 * hue))
    t += 0.32 * np.cos(np.radians(3 * hue + 6)) - 0.2 * np.cos(np.radians(4 * hue - 63))
    light = (l2 - l1) / (1 + 0.015 * (l - 50) ** 2 / np.sqrt(20 + (l - 50) ** 2))
    chroma = (c2 - c1) / (1 + 0.045 * c)
    tint = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2) / (1 + 0.015 * c * t)
    rotation = -2 * np.sqrt(c**7 / (c**7 + 25.0**7)) * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    return float(np.sqrt(light**2 + chroma**2 + tint**2 + rotation * chroma * tint))


@pytest.mark.parametrize(
    ("one", "two", "apart"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_that_of_sharma_wu_and_dalal(one, two, apart):
    assert ciede2000(one, two) == pytest.approx(apart, abs=1e-4)


@pytest.mark.parametrize("sight", DEFICIENCIES)
def test_colours_of_series_keep_apart(sight):
    seen = [lab(np.clip(np.array(DEFICIENCIES[sight]) @ linear(colour), 0, 1)) for colour in charts.COLOURS]
    assert min(ciede2000(one, two) for one, two in itertools.combinations(seen, 2)) >= 10


def series(count: int) -> Chart:
    frame = pd.DataFrame([{"x": x, "y": x * (k + 1), "who": f"s{k}"} for k in range(count) for x in (1.0, 2.0)])
    return Chart(
        "series", "Series", frame, {"x": "x", "y": "y", "who": "who"}, "x", "y", (Layer("line"), Layer("point")), "who"
    )


@pytest.mark.parametrize("count", [2, 6, 8, 14])
def test_no_two_series_look_alike(count):
    layers = charts.spec(series(count))["layer"]
    marks = [layers[0]["encoding"][way]["scale"]["range"] for way in ("color", "strokeDash")]
    marks.append(layers[1]["encoding"]["shape"]["scale"]["range"])
    looks = list(zip(*(map(str, mark) for mark in marks), strict=True))
    assert len(set(looks)) == count
    assert any(layer.get("name") == "labels" for layer in layers) == (count <= 8)


# --- findings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log", "place"), [("", 3.0), ("xy", 3.0)])
def test_lines_cross_where_they_are_equal(log, place):
    """y = x and y = 9 / x cross at 3, between the places at which they are known."""
    xs = [1.0, 2.0, 2.9, 3.1, 5.0]
    frame = pd.DataFrame([{"x": x, "y": y, "who": who} for x in xs for who, y in (("up", x), ("down", 9 / x))])
    (found,) = findings.crossings(frame, "x", "y", "who", log)
    assert found["x"] == pytest.approx(place, rel=2e-3)
    assert found["y"] == pytest.approx(3.0, rel=2e-3)


def drawn(rows: list[tuple[float, float, str]]) -> str:
    frame = pd.DataFrame(rows, columns=["x", "y", "who"])
    return findings.finding(
        Chart("c", "C", frame, {"x": "rate [1/s]", "y": "time [ms]", "who": ""}, "x", "y", color="who")
    )


def test_who_is_highest_is_said_only_where_lines_can_be_compared():
    over = [(1.0, 5.0, "a"), (2.0, 6.0, "a"), (1.0, 1.0, "b"), (2.0, 2.0, "b")]
    assert drawn(over) == "Time: a is highest throughout, at 5 to 6 ms."
    turned = [(1.0, 3.0, "a"), (3.0, 1.0, "a"), (1.0, 1.0, "b"), (3.0, 3.0, "b")]
    assert drawn(turned) == "Time: a is highest at first, b from rate 2 1/s on."
    apart = [(1.0, 5.0, "a"), (2.0, 6.0, "a"), (3.0, 1.0, "b"), (4.0, 2.0, "b")]
    assert "highest" not in drawn(apart)
    assert "most 6 ms for a" in drawn(apart)


def test_a_diagonal_is_no_series():
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [1.5, 1.0], "who": ["a", "b"]})
    layers = (Layer("point"), Layer("line", y="x"))
    chart = Chart("c", "C", frame, {"x": "measured [ms]", "y": "predicted [ms]", "who": ""}, "x", "y", layers, "who")
    assert findings.finding(chart) == "Predicted of 2 points: 1 to 1.5 ms."
    assert all(layer.get("name") != "labels" for layer in charts.spec(chart)["layer"])


def test_a_count_of_predictions_has_predictions_only():
    numbers = [
        Number("fitted", 2.0, published=1.0, fitted=True),
        Number("worked out", 3.0, published=1.0, kind="reconstructed"),
        Number("printed", 4.0, published=1.0, kind="published"),
        Number("predicted", 1.1, published=1.0),
    ]
    said = page._errors(numbers)
    assert "1 predicted: median error 10.0%, worst 10.0%" in said
    assert "1 used to fit; 1 reconstructed; 1 printed elsewhere" in said
    assert "no prediction" in page._errors(numbers[:3])


# --- pages in a browser ------------------------------------------------------------------------------------------


def write(name: str, folder: Any) -> Any:
    recipe = read_recipe(name)
    made = []
    for wanted in recipe.figures:
        figure = make(wanted)
        made.append(page.Made(wanted, figure, [charts.spec(chart) for chart in figure.charts], 0.0))
    path = folder / f"{name}.html"
    path.write_text(page._page(recipe, made, 0.0), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["dataflow", "agents"])
def opened(request, tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api")
    path = write(request.param, tmp_path_factory.mktemp("page"))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(path.as_uri())
        tab.wait_for_selector(".opening svg")
        yield tab
        browser.close()


def widen(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    tab.evaluate("openAll()")
    tab.wait_for_timeout(400)
    tab.wait_for_function(
        "all('.chart').every((one) => one.querySelector('svg') && one.dataset.width == Math.floor(one.clientWidth))"
    )


@pytest.mark.program
def test_the_first_screen_has_the_verdict_and_its_chart(opened):
    bottoms = opened.evaluate(
        "['.verdict', '.opening svg'].map((it) => document.querySelector(it).getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= 800
    assert opened.evaluate("document.documentElement.scrollHeight") <= 51_600 / 2
    assert opened.evaluate("all('details.fold').every((fold) => !fold.open)")
    box = opened.evaluate("scrollTo(0, 1500), document.querySelector('nav.contents').getBoundingClientRect().top")
    assert abs(box) < 1


@pytest.mark.program
@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
def test_nothing_is_cut_at_any_width(opened, width):
    widen(opened, width)
    assert opened.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    cut = "all('.wide').filter((wrap) => wrap.scrollWidth > wrap.clientWidth + 1).map((wrap) => wrap.innerText)"
    assert opened.evaluate(cut) == []
    if width < 400:
        plots = opened.evaluate(
            "all('.chart').map((holder) => [holder.dataset.spec, Math.max(...all('svg .background', holder)"
            ".map((plot) => plot.getBoundingClientRect().width))])"
        )
        assert [name for name, plot in plots if plot < 0.6 * width] == []


@pytest.mark.program
def test_nothing_serious_for_those_who_use_no_mouse_or_no_eyes(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    widen(opened, 1280)
    found = axe.Axe().run(opened).response["violations"]
    assert [entry["id"] for entry in found if entry["impact"] in ("serious", "critical")] == []
    opened.evaluate("document.querySelector('details.numbers').open = true")
    opened.wait_for_selector("details.numbers table td")
    names = opened.evaluate("all('.chart').map((one) => one.getAttribute('role') + one.getAttribute('aria-label'))")
    assert all(name.startswith("img") and len(name) > 20 and "Vega" not in name for name in names)


@pytest.mark.program
def test_print_opens_everything(opened):
    # A printer does not wait: what lies in closed parts is drawn before anybody asks.
    opened.wait_for_function("all('.chart').every((holder) => holder.querySelector('svg path'))")
    opened.evaluate("all('details').forEach((fold) => { fold.open = false; }), dispatchEvent(new Event('beforeprint'))")
    assert opened.evaluate("all('details.fold').every((fold) => fold.open)")
    assert opened.evaluate("all('.chart').every((holder) => holder.querySelector('svg'))")
    opened.evaluate("dispatchEvent(new Event('afterprint'))")


def test_verdicts_can_be_filtered_and_the_first_chart_is_shown_once():
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0]})
    chart = Chart("only", "Only", frame, {"x": "x", "y": "y"}, "x", "y")
    figure = Figure(
        "One", "It grows. By half.", (chart,), claims=(Claim("<b>", "holds", "w"), Claim("c", "fails", "w"))
    )
    wanted = Wanted("one", {}, "here")
    recipe = Recipe("r", "R", "Does it?", (Section("S", "", (wanted,)),))
    text = page._page(recipe, [page.Made(wanted, figure, [charts.spec(chart)], 0.0)], 0.0)
    assert text.count('data-spec="only"') == 1
    assert re.findall(r'<tr data-verdict="(\w+)">', text) == ["holds", "fails"]
    assert 'href="only.csv" download' in text
    assert "&lt;b&gt;" in text

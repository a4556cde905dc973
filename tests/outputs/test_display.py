"""What a notebook shows of each result: text without Python's insides, well-formed HTML, and a frame."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

import perfmodel

H100 = "dgx-h100:tp=1"
RESULTS: dict[str, Callable[[], Any]] = {
    "predict": lambda: perfmodel.predict("llama-3.1-8b", on=H100),
    "does not fit": lambda: perfmodel.predict("llama-3.1-405b", on=H100),
    "compare": lambda: perfmodel.compare("llama-3.1-8b", on=[H100, H100]),
    "sweep": lambda: perfmodel.sweep("llama-3.1-8b", on=H100, axes={"traffic.concurrency": "1:64:12"}),
    "fit": lambda: perfmodel.fit("llama-3.1-8b", on=H100),
    "load": lambda: perfmodel.load("llama-3.1-8b", on=H100, rate=5),
    "size": lambda: perfmodel.size("llama-3.1-8b", on=[H100], rate=5, ttft_p99=5, profile=[0.5, 1.0]),
    "no size": lambda: perfmodel.size("llama-3.1-8b", on=[H100], rate=5, objectives={"tpot_p99": 1e-6}),
    "simulate": lambda: perfmodel.simulate("llama-3.1-8b", on=H100, rate=5, requests=50),
    "saturated": lambda: perfmodel.simulate("llama-3.1-8b", on=H100, rate=1e6, requests=50),
    "tco": lambda: perfmodel.tco("llama-3.1-8b", on=[H100, "dgx-b200:tp=1"], samples=64),
    "explain": lambda: perfmodel.explain("tpot", "llama-3.1-8b", on=H100),
    "system": lambda: perfmodel.system("dgx-h100"),
    "model": lambda: perfmodel.model("llama-3.1-8b"),
    "traffic": lambda: perfmodel.traffic("chat"),
    "solve": lambda: perfmodel.solve("tpot", "llama-3.1-8b", on=H100, for_="memory.hbm.bandwidth", target="6 ms"),
}
VOID = {"br", "hr", "img", "meta"}


class _Balance(HTMLParser):
    """Tells whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@functools.cache
def found(name: str) -> Any:
    return RESULTS[name]()


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself(name: str) -> None:
    result = found(name)
    text = repr(result)
    assert not re.search(r"\w+\(\w+=|object at|\bnan\b|\bNone\b", text), text
    assert all(len(line) <= 120 for line in text.splitlines())
    # A result without HTML of its own is shown as text.
    html = result._repr_html_() if hasattr(result, "_repr_html_") else None
    if html is not None:
        page = _Balance()
        page.feed(html)
        assert not page.open
        assert "nan" not in html.lower().split()


@pytest.mark.parametrize("name", ["predict", "compare", "sweep", "fit", "load", "size", "simulate", "tco", "explain"])
def test_a_result_is_a_frame_of_columns_with_names_and_no_nested_values(name: str) -> None:
    frame = found(name).to_frame()
    assert len(frame)
    assert frame.columns.is_unique
    assert not any(isinstance(value, dict) for value in frame.to_numpy().ravel())


def test_names_of_users_are_escaped() -> None:
    model = dataclasses.replace(perfmodel.model("llama-3.1-8b"), name="<img src=x onerror=alert(1)>")
    for result in (
        perfmodel.predict(model, on=H100),
        perfmodel.fit(model, on=H100),
        perfmodel.load(model, on=H100, rate=5),
    ):
        assert "<img" not in result._repr_html_()


def test_samples_are_those_of_the_percentiles() -> None:
    owning = found("tco")
    frame = owning.samples()
    assert len(frame) == 2 * 64
    assert frame[frame.system == "dgx-h100"].blended.quantile(0.5) == pytest.approx(
        owning.percentiles(0, "blended")["p50"]
    )


def test_specs_from_python_are_those_of_the_command_line() -> None:
    assert "dgx-h100" in perfmodel.names()
    assert "llama-3.1-70b" in perfmodel.names("model")
    shown = perfmodel.show("dgx-h100")
    assert shown.loc["memory.hbm.bandwidth", "value"] == perfmodel.system("dgx-h100").memory.hbm.bandwidth
    with pytest.raises(perfmodel.UserError, match="expected one of systems, models, traffics"):
        perfmodel.names("chips")


def test_a_wrong_spec_is_told_by_file_and_field(tmp_path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text("extends: dgx-h100\nname: chip\nmemory: {hbm: {bandwidth: fast}}\n")
    (problem,) = perfmodel.check(file)
    assert "chip.yaml" in problem
    assert "memory.hbm.bandwidth" in problem


def test_a_simulation_needs_one_kind_of_arrivals() -> None:
    with pytest.raises(perfmodel.UserError, match="one of --rate, --trace, --concurrency and --sessions"):
        perfmodel.simulate("llama-3.1-8b", on=H100, rate=5, concurrency=5)


def test_a_report_from_python_is_the_page(tmp_path) -> None:
    recipe = tmp_path / "small.yaml"
    recipe.write_text(
        "title: Small\nquestion: Does it build?\ndescription: One figure.\n"
        "sections:\n  - heading: Materials\n    figures:\n      - {figure: tco-materials}\n"
    )
    page = perfmodel.report(recipe, tmp_path / "out")
    assert page.parent == tmp_path / "out"
    assert "Does it build?" in page.read_text(encoding="utf-8")

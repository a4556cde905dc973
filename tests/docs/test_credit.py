"""What others made and we pass on is credited where it goes."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from perfmodel.outputs import page

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"
spec = importlib.util.spec_from_file_location("supply", ROOT / ".ci" / "supply.py")
assert spec is not None
supply = importlib.util.module_from_spec(spec)
assert spec.loader is not None
spec.loader.exec_module(supply)


def test_a_page_with_charts_has_the_notices_of_the_libraries_in_it() -> None:
    opening = page.Opening("t", "q", "v", hero=page.chart({"mark": "line"}, "It grows", "c", "one"))
    drawn = page.page(opening, [], [])
    for words in ("University of Washington Interactive Data Lab", "Mike Bostock", "Joachim Wester", "Simon Lydell"):
        assert words in drawn
    for library in ("vega", "vega-lite", "vega-embed", "d3-scale", "topojson-client", "semver"):
        assert re.search(rf"(^|, ){library}(,|$)", drawn, re.MULTILINE), library
    for words in (
        "THIS SOFTWARE IS PROVIDED",
        "Redistributions in binary form must reproduce",
        "without fee is hereby",
    ):
        assert words in drawn
    assert "Redistributions" not in page.page(page.Opening("t", "q", "v", hero="<p>no chart</p>"), [], [])


def test_every_configuration_names_its_source_and_licence() -> None:
    named = {}
    for folder in (CONFIGS, CONFIGS / "published"):
        with (folder / "sources.csv").open(encoding="utf-8", newline="") as file:
            named |= {(CONFIGS / row["file"]).resolve(): row for row in csv.DictReader(file)}
    files = [path for path in CONFIGS.rglob("*.json*") if path.is_file()]
    assert len(files) > 100
    for path in files:
        assert named[path.resolve()]["source"], path
        assert named[path.resolve()]["licence"], path


def test_the_release_is_pinned_to_what_was_tested() -> None:
    tested = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    tested = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in tested.items()}
    pins = supply.PINNED.findall(supply.LOCK.read_text("utf-8"))
    lines = [line for line in supply.LOCK.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(pins) == len(lines) > 30
    for name, version, digest in pins:
        assert tested[re.sub(r"[-_.]+", "-", name).lower()] == version
        assert len(digest) == 64
    for needed in ("numpy", "scipy", "pandas", "altair", "hatchling", "build"):
        assert any(name == needed for name, _, _ in pins)


def test_the_bill_of_materials_lists_the_wheel_and_its_pins(tmp_path: Path) -> None:
    wheel = tmp_path / "perfmodel-9.9.9-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    supply.sbom(wheel)
    bill = json.loads((tmp_path / "perfmodel-9.9.9-py3-none-any.cdx.json").read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", bill["serialNumber"])
    made = bill["metadata"]["component"]
    assert (made["name"], made["version"]) == ("perfmodel", "9.9.9")
    assert made["hashes"][0]["content"] == hashlib.sha256(b"a wheel").hexdigest()
    assert len(bill["components"]) == len(supply.PINNED.findall(supply.LOCK.read_text("utf-8")))
    assert all(part["purl"].startswith("pkg:pypi/") for part in bill["components"])


@pytest.mark.parametrize("name", ["NOTICE", "SECURITY.md", "LICENSE"])
def test_a_repository_says_what_it_owes(name: str) -> None:
    assert (ROOT / name).read_text("utf-8").strip()

"""Every answer and every export says which numbers were in use, and a user's own change that."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from perfmodel.cli import run
from perfmodel.specs import catalog
from perfmodel.specs.release import numbers_version
from perfmodel.version import __version__

ASK = ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1"]


def test_json_and_csv_say_package_and_numbers(capsys):
    assert run([*ASK, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["perfmodel"], answer["numbers_version"]) == (__version__, numbers_version())
    assert run(["sweep", *ASK[1:], "--axis", "traffic.concurrency=1,2", "--csv"]) == 0
    assert f"numbers {numbers_version()}" in capsys.readouterr().out.splitlines()[0]


def test_an_export_says_which_numbers_gave_it(tmp_path):
    assert run(["export", *ASK[1:], "--csv", str(tmp_path / "a.csv")]) == 0
    (row,) = csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text("utf-8")))
    assert (row["perfmodel"], row["numbers_version"]) == (__version__, numbers_version())


@pytest.mark.parametrize("file", ["calibration/h100-vllm.yaml", "prices/2026-11.yaml"])
def test_a_changed_number_is_another_version_and_the_same_bytes_elsewhere_are_not(file, tmp_path, monkeypatch):
    bundled = numbers_version()
    shipped = catalog.bundled() / "hardware_specs" / file
    own = tmp_path / "hardware_specs" / file
    own.parent.mkdir(parents=True)
    shutil.copy(shipped, own)
    monkeypatch.setenv("PERFMODEL_PATH", str(tmp_path))
    copied = numbers_version()
    assert copied != bundled
    own.write_bytes(own.read_bytes().replace(b"\n", b"\r\n"))
    assert numbers_version() == copied
    own.write_text(own.read_text("utf-8") + "\n# another\n", encoding="utf-8")
    assert numbers_version() not in (bundled, copied)


def test_a_plan_saved_with_other_numbers_says_so(tmp_path, capsys):
    plan = tmp_path / "plan.yaml"
    ask = ["size", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--rate", "5", "--ttft-p99", "2 s", "--save", str(plan)]
    assert run(ask) == 0
    text = Path(plan).read_text("utf-8")
    assert f"numbers_version: {numbers_version()}" in text
    # Another price and other numbers: what moved is said, and why.
    text = re.sub(r"usd_per_hour: ([\d.]+)", lambda price: f"usd_per_hour: {2 * float(price[1])}", text)
    plan.write_text(text.replace(numbers_version(), "2025-01.0000000000"), "utf-8")
    capsys.readouterr()
    run(["plans", "check", str(plan)])
    assert "numbers 2025-01.0000000000 were in use" in " ".join(capsys.readouterr().out.split())

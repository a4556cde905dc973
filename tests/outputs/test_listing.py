"""What ``specs list`` shows of specs: data sheets' numbers, for every one of them, without blanks at the end."""

import re

import pytest

from perfmodel.cli import run
from perfmodel.specs import catalog


@pytest.fixture(autouse=True)
def into_a_file(monkeypatch):
    """Of no width: processes of a test run may have one."""
    monkeypatch.delenv("COLUMNS", raising=False)


def listed(what, capsys):
    assert run(["specs", "list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    if what == "systems":
        assert lines.pop().startswith("~ before a number")
    return lines, {re.split(r" {2,}", line)[0]: re.split(r" {2,}", line) for line in lines[2:]}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        # Data sheets of the makers, a chip each.
        ("dgx-h200", ["8", "141 GB", "4.8 TB/s", "bf16 989 TFLOP/s, fp8 1.98 PFLOP/s", "450 GB/s"]),
        ("mi300x-8", ["8", "192 GB", "5.3 TB/s", "bf16 1.31 PFLOP/s, fp8 2.61 PFLOP/s", "448 GB/s"]),
        ("lpu-v1", ["8", "230 MB"]),
    ],
)
def test_a_system_shows_its_data_sheet(name, shown, capsys):
    _, rows = listed("systems", capsys)
    assert rows[name][1 : 1 + len(shown)] == shown


def test_an_estimate_is_marked(capsys):
    """No price of an LPU is published, and no rate of a DGX Spark in BF16."""
    _, rows = listed("systems", capsys)
    assert "~70 kUSD" in rows["lpu-v1"]
    assert rows["dgx-spark"][4].startswith("bf16 ~")


def test_an_engine_stands_where_it_is_calibrated(capsys):
    _, rows = listed("systems", capsys)
    assert "sglang, trtllm, vllm" in rows["dgx-h100"]
    assert "vllm" not in " ".join(rows["mi300x-8"])


@pytest.mark.parametrize(("what", "kind"), [("systems", "system"), ("models", "model"), ("traffics", "traffic")])
def test_every_spec_has_a_line_without_blanks_at_its_end(what, kind, capsys):
    lines, rows = listed(what, capsys)
    assert set(rows) == {name for name, _, _ in catalog.entries(kind)}
    assert all(line == line.rstrip() for line in lines)


def test_a_traffic_has_its_tokens(capsys):
    _, rows = listed("traffics", capsys)
    assert rows["rag"][1:3] == ["8,192", "256"]

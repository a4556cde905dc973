"""What ``perfmodel fit`` prints: layout, keys and exit codes, never numbers."""

import csv
import io
import json

import pytest

from perfmodel.cli import run

QUESTION = ["fit", "llama-3.1-8b", "--on", "dgx-h100:tp=1"]
TOO_LONG = ["fit", "llama-3.1-70b", "--on", "dgx-h100:tp=2"]
KEYS = {
    *("model", "system", "plan", "chips", "fits", "context", "kv_tokens"),
    *(
        "max_concurrency",
        "max_concurrency_unrounded",
        "memory_utilisation",
        "schema_version",
        "perfmodel",
        "numbers_version",
        "verb",
        "question",
    ),
    *("parts", "per_token_bytes", "fixed_bytes", "per_request_bytes", "block_tokens", "assumed", "warnings", "reason"),
}
PARTS = {"visible", "outside_budget", "weights", "activation_peak", "non_torch", "cuda_graphs", "kv_pool", "missing"}


def test_json(capsys):
    assert run([*QUESTION, "--context", "8192", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == KEYS
    assert set(found["parts"]) == PARTS
    assert found["fits"] is True
    assert found["reason"] is None
    assert found["context"] == 8192


def test_csv(capsys):
    assert run([*QUESTION, "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert {"kv_tokens", "max_concurrency", "kv_pool_bytes", "weights_bytes", "plan_engine"} <= set(row)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*QUESTION, "--context", "8192"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    for label in ("weights", "KV cache", "tokens of KV cache", "assumed", "mind"):
        assert label in printed


def test_what_does_not_fit_still_answers(capsys):
    assert run([*TOO_LONG, "--json"]) == 3
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["fits"] is False
    assert found["max_concurrency"] == 0
    assert "tokens would fit" in found["reason"]
    assert len(printed.err.splitlines()) == 1


def test_weights_too_large(capsys):
    assert run(["fit", "llama-3.1-405b", "--on", "dgx-h100:tp=1"]) == 3
    assert "of weights a chip" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--context", "0"], ["--context", "many"], ["--context", "100", "--traffic", "chat"], ["--concurrency", "1.5.2"]],
)
def test_refusals(options, capsys):
    assert run([*QUESTION, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


def test_parts_can_be_given(capsys):
    path = "system.engine.activation_peak"
    assert run([*QUESTION, "--context", "8192", "--json", "--set", f"{path}=3 GiB"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"]["activation_peak"] == 3 * 2**30


@pytest.mark.parametrize("system", ["lpu-v1", "sn40l-16", "dgx-h100"])
def test_every_kind_of_machine_answers(system, capsys):
    assert run(["fit", "llama-3.1-8b", "--on", system, "--context", "4096", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_concurrency"] >= 1

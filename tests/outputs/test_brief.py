"""What a terminal shows of predictions by default: the verdict first, few lines, and no fact that -v has not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.outputs.brief import verdict

FIVE = ["dgx-h100", "dgx-h200", "dgx-b200", "mi355x-8", "l4-8"]
MODELS = ["llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "qwen3-32b", "mixtral-8x7b"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) in (0, 3)
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def eighty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("system", ["dgx-h100", "dgx-b200", "sn40l-16", "lpu-v1"])
def test_a_prediction_is_at_most_twenty_lines(model: str, system: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "predict", model, "--on", system)
    assert len(out.splitlines()) <= 20
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("model", MODELS)
def test_a_comparison_of_five_is_at_most_thirty_five(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    on = [word for system in FIVE for word in ("--on", system)]
    assert len(printed(capsys, "compare", model, *on).splitlines()) <= 35
    assert len(printed(capsys, "tco", model, *on).splitlines()) <= 35


def test_a_misfit_is_a_line_or_three(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "predict", "llama-3.1-405b", "--on", "l4-8")
    assert 1 <= len(out.splitlines()) <= 3
    assert "does not fit" in " ".join(out.split())
    beside = printed(capsys, "compare", "llama-3.1-405b", "--on", "l4-8", "--on", "dgx-h200")
    assert beside.startswith("dgx-h200")
    assert "does not fit" in " ".join(beside.split())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("systems", [FIVE[:1], FIVE[:3], ["lpu-v1", "dgx-h100"]])
def test_the_first_words_are_choice_number_range_and_condition(model: str, systems: list[str]) -> None:
    found = perfmodel.compare(model, on=systems)
    first = " ".join(verdict(found.answers).split()[:25])
    assert first.split()[0] in systems
    assert re.search(r"TPOT [\d.]+ (s|ms|us) \([\d.]+-[\d.]+ (s|ms|us)\)", first)
    assert "at once" in first


def test_the_fastest_and_the_cheapest_are_those_of_the_numbers() -> None:
    found = perfmodel.compare("llama-3.3-70b", on=FIVE).answers
    said = verdict(found)
    fast = min(found, key=lambda one: float(one.tpot_s)).scenario.system.name
    cheap = min(
        (one for one in found if one.metrics["usd_per_mtok_blended"] == one.metrics["usd_per_mtok_blended"]),
        key=lambda one: float(one.metrics["usd_per_mtok_blended"]),
    ).scenario.system.name
    assert said.startswith(f"{fast} ")
    assert f"{cheap} (8 chips) is cheapest" in said


def test_nothing_is_lost_with_verbose(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    question = ["compare", "llama-3.3-70b", "--on", "dgx-h100", "--on", "mi355x-8"]
    short, whole = printed(capsys, *question), printed(capsys, *question, "-v")
    assert whole.splitlines()[0] == short.splitlines()[0]
    for answer in perfmodel.compare("llama-3.3-70b", on=["dgx-h100", "mi355x-8"]).answers:
        for line in (*answer.assumed, *answer.warnings):
            assert line in whole
    for row in re.findall(r"^(TTFT|TPOT|output tok/s|\$/Mtok blended|requests that fit) +(\S+)", short, re.M):
        assert re.search(rf"^{re.escape(row[0])} +{re.escape(row[1])}", whole, re.M)


def test_what_was_never_measured_comes_before_what_moves_little(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "predict", "llama-3.1-8b", "--on", "mi355x-8")
    first = next(line for line in out.splitlines() if line.startswith("- "))
    assert "no calibration" in first


def test_no_line_breaks_where_no_terminal_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    out = printed(capsys, "specs", "show", "dgx-h100")
    line = next(line for line in out.splitlines() if "gemm_memory.bf16" in line)
    assert "measured" in line
    said = printed(capsys, "predict", "llama-3.1-8b", "--on", "mi355x-8", "-v")
    for warning in perfmodel.predict("llama-3.1-8b", on="mi355x-8").warnings:
        assert f"  - {warning}\n" in said


ESCAPE = "\x1b["


@pytest.mark.parametrize(
    ("words", "environment", "coloured"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        (["--color=always"], {"NO_COLOR": "1"}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_asked_for_or_there_is_none(
    words: list[str],
    environment: dict[str, str],
    coloured: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = printed(capsys, "predict", "llama-3.1-405b", "--on", "l4-8", *words)
    assert (f"{ESCAPE}31m" in out) == coloured


def test_a_colour_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100", "--color", "blue"]) == 2
    assert capsys.readouterr().err == "perfmodel: --color blue: expected one of auto, always, never\n"


def test_one_pass_has_requests_and_tokens_and_no_tpot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "llama", "architectures": ["LlamaModel"], "hidden_size": 2048, "num_hidden_layers": 16}
    config |= {
        "num_attention_heads": 16,
        "intermediate_size": 8192,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "modules.json").write_text("[]")
    out = printed(capsys, "predict", str(tmp_path), "--on", "dgx-h100:tp=1")
    assert re.search(r"^requests/s +\d", out, re.M)
    assert re.search(r"^tokens/s +\d", out, re.M)
    assert "TPOT" not in out
    assert "output tok/s" not in out

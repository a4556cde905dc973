"""The first line of every verb is the answer: the choice, its number with the range, the condition."""

from __future__ import annotations

import re

import pytest

import perfmodel
from perfmodel.cli import run

MODEL = ["llama-3.1-8b", "--on", "dgx-h100"]
NUMBER = r"[\d.,]+ ?(s|ms|us|TB/s|GB/s|tokens)"
RANGE = r"\(.*[\d.]+(-| to |%).*"
#: A question of each verb, and what its first words hold.
QUESTIONS = {
    "solve": (["tpot", *MODEL, "--for", "memory.hbm.bandwidth", "--target", "4ms"], "tpot_s of at most 4 ms"),
    "fit": ([*MODEL], "tokens of KV cache"),
    "simulate": ([*MODEL, "--rate", "2", "--requests", "40"], "requests/s"),
    "sweep": ([*MODEL, "--axis", "concurrency=1,8", "--axis", "tp=1,2"], "over the 4 of 4 points"),
    "collective": (["all-reduce", "--on", "dgx-h100", "--tp", "8", "--message", "1MB"], "1 MB on 8 ranks"),
}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) in (0, 3)
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", QUESTIONS)
@pytest.mark.parametrize("columns", ["80", "120", "200"])
def test_the_first_words_are_the_answer(
    verb: str, columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    words, condition = QUESTIONS[verb]
    out = printed(capsys, verb, *words)
    first = " ".join(out.split()[:25])
    assert re.search(NUMBER, first)
    assert condition in first
    if verb not in ("collective", "solve"):
        assert re.search(RANGE, first), first
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "…" not in out


def test_a_sweep_names_its_least_tpot_and_most_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(printed(capsys, "sweep", *QUESTIONS["sweep"][0]).split())
    asked = [(users, ways) for users in (1, 8) for ways in (1, 2)]
    answers = [
        perfmodel.predict("llama-3.1-8b", on="dgx-h100", concurrency=users, tp=ways, steady=True)
        for users, ways in asked
    ]
    fast = asked[min(range(4), key=lambda at: float(answers[at].tpot_s))]
    most = asked[max(range(4), key=lambda at: float(answers[at].metrics["output_tokens_per_s"]))]
    assert said.startswith(f"concurrency {fast[0]}, tp {fast[1]} is fastest")
    assert f"concurrency {most[0]}, tp {most[1]} serves most" in said


def test_a_simulation_is_fifteen_lines_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ["simulate", *QUESTIONS["simulate"][0]]
    assert len(printed(capsys, *words).splitlines()) <= 15
    monkeypatch.setenv("COLUMNS", "300")
    short, whole = printed(capsys, *words), printed(capsys, *words, "-v")
    assert short.splitlines()[0] == whole.splitlines()[0]
    for label, number in re.findall(r"^((?:TTFT|TPOT|request) \S+) +(\S+ m?s)", short, re.M):
        assert re.search(rf"^{label} +{re.escape(number)}", whole, re.M)
    found = perfmodel.simulate("llama-3.1-8b", on="dgx-h100", rate=2, requests=40).to_dict()
    for line in (*found["assumed"], *found["warnings"]):
        assert line in whole


def test_what_does_not_fit_says_so_first(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "fit", "llama-3.1-405b", "--on", "l4-8")
    assert out.startswith("l4-8 TP8 does not hold llama-3.1-405b: ")

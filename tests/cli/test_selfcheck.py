"""``selfcheck``: holds here, and fails where a back end is wrong or a file of the user's is."""

import dataclasses
import json

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.compilers import javascript, selfcheck
from perfmodel.tape import arrays, library


def test_everything_holds_here():
    found = perfmodel.selfcheck()
    assert found.holds
    assert all(one.holds for one in found.checks if one.holds is not None)


@pytest.mark.parametrize("broken", ["calls", "page", "file"])
def test_what_is_wrong_is_found(broken, monkeypatch, tmp_path, capsys):
    words = ["selfcheck", "--json"]
    if broken == "calls":
        over = arrays.over
        monkeypatch.setattr(arrays, "over", lambda *given: {key: value * 1.001 for key, value in over(*given).items()})
    elif broken == "page":
        monkeypatch.setattr(javascript, "PRELUDE", javascript.PRELUDE.replace("Math.floor(x + pm", "Math.ceil(x + pm"))
        selfcheck.shutil.which("node") or pytest.skip("needs Node")
    else:
        (tmp_path / "mine.yaml").write_text("name: mine\nkind: kernels\n")
        words.insert(1, str(tmp_path / "mine.yaml"))
    assert run(words) == (2 if broken == "file" else 1)
    said = json.loads(capsys.readouterr().out)
    failed = [one for one in said["checks"] if one["holds"] is False]
    assert len(failed) == 1
    assert {"calls": "NumPy", "page": "JavaScript", "file": "mine.yaml"}[broken] in failed[0]["check"]


def test_what_is_not_here_is_said_and_no_failure(monkeypatch, capsys):
    monkeypatch.setattr(library, "compiler", lambda: ())
    monkeypatch.setattr(selfcheck.shutil, "which", lambda _: None)
    assert run(["selfcheck"]) == 0
    out = capsys.readouterr().out
    assert "no C compiler here" in out
    assert "no Node here" in out


def test_what_is_no_number_does_not_pass(monkeypatch):
    evaluate = selfcheck.evaluate

    def spoiled(scenario):
        found = evaluate(scenario)
        return dataclasses.replace(found, metrics={key: float("nan") for key in found.metrics})

    monkeypatch.setattr(selfcheck, "evaluate", spoiled)
    assert [one.holds for one in perfmodel.selfcheck().checks[:3]] == [False] * 3

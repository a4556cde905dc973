"""``selfcheck``: holds here, and fails where a back end is wrong or a file of the user's is."""

import dataclasses
import json

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.compilers import javascript, selfcheck
from perfmodel.specs import catalog
from perfmodel.tape import arrays, library


def test_everything_holds_here():
    found = perfmodel.selfcheck()
    assert found.holds
    assert all(one.holds for one in found.checks if one.holds is not None)


@pytest.mark.parametrize("broken", ["calls", "page"])
def test_what_is_wrong_is_found(broken, monkeypatch, capsys):
    if broken == "calls":
        over = arrays.over
        monkeypatch.setattr(arrays, "over", lambda *given: {key: value * 1.001 for key, value in over(*given).items()})
    else:
        monkeypatch.setattr(javascript, "PRELUDE", javascript.PRELUDE.replace("Math.floor(x + pm", "Math.ceil(x + pm"))
        selfcheck.shutil.which("node") or pytest.skip("needs Node")
    assert run(["selfcheck", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    failed = [one for one in said["checks"] if one["holds"] is False]
    assert len(failed) == 1
    assert {"calls": "NumPy", "page": "JavaScript"}[broken] in failed[0]["check"]


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


@pytest.mark.parametrize(("content", "said"), [(None, "mine.yaml"), ("name: mine\nkind: kernels\n", "mine.yaml")])
def test_a_file_that_is_wrong_is_refused_in_one_line(content, said, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_text(content)
    assert run(["selfcheck", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_file_that_loads_stands_among_what_holds(capsys):
    path = catalog.bundled() / "hardware_specs" / "dgx-h100.yaml"
    assert run(["selfcheck", str(path)]) == 0
    assert f"{path}: loads" in capsys.readouterr().out

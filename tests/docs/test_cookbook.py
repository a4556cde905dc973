"""Every task of the cookbook is one command, and runs."""

import re
import shlex
from pathlib import Path

import pytest

from perfmodel.cli import run

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text("utf-8")
TASKS = re.findall(r"^\*\*(\d+) · .*?```sh\n(perfmodel .*?)\n```", PAGE, re.M | re.S)
USES = re.findall(r"^\*\*([A-Z][A-Za-z ]+)\.\*\* .*?```sh\n(perfmodel .*?)\n```", PAGE, re.M | re.S)
#: Tasks that take seconds; the others run each night.
QUICK = {"11", "12", "13", "14", "15", "16", "17", "18", "20"}


def test_there_are_thirty_of_one_line_each():
    assert [int(number) for number, _ in TASKS] == list(range(1, 31))
    assert not [command for _, command in TASKS if "\n" in command]


def test_every_use_is_there():
    assert [use for use, _ in USES] == [
        *("Chat", "RAG", "Code completion", "Agents", "Batch", "Long reasoning", "Embedding")
    ]


@pytest.mark.parametrize(
    ("use", "command"),
    [pytest.param(*use, marks=[] if use[0] == "Embedding" else [pytest.mark.nightly]) for use in USES],
    ids=[use for use, _ in USES],
)
def test_a_use_says_which_machine_and_what_it_costs(use, command, tmp_path, monkeypatch, capsys):
    (tmp_path / "workloads" / "models").mkdir(parents=True)
    own = re.search(r"```yaml\n(name: embedder\n.*?)```", PAGE, re.S)
    (tmp_path / "workloads" / "models" / "embedder.yaml").write_text(own[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(command)[1:]) == 0
    out = capsys.readouterr().out
    assert "USD" in out
    assert any(system in out for system in re.findall(r"--on ([a-z0-9-]+)", command))


@pytest.mark.parametrize(
    ("number", "command"),
    [pytest.param(*task, marks=[] if task[0] in QUICK else [pytest.mark.nightly]) for task in TASKS],
    ids=[number for number, _ in TASKS],
)
def test_a_task_runs(number, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(shlex.split(command)[1:]) == 0
    out, err = capsys.readouterr()
    assert out or list(tmp_path.iterdir())
    assert "internal error" not in err
    if number == "10":
        assert run(["plans", "check", "plan.yaml"]) == 0

"""A project's file gives what a command leaves open, says so, and obeys the rules of the options."""

import json

import pytest

from perfmodel.cli import run

TOML = 'model = "llama-3.1-8b"\nsystems = ["dgx-h100:tp=1", "dgx-b200:tp=1"]\ntraffic = "rag"\nregion = "de"\n'


@pytest.fixture
def below(tmp_path, monkeypatch):
    (tmp_path / "perfmodel.toml").write_text(TOML)
    (tmp_path / "sub" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "sub" / "sub")
    return tmp_path


def answer(capsys, *words):
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_command_without_words_is_that_of_the_file(below, capsys, monkeypatch):
    found = answer(capsys, "predict")
    monkeypatch.chdir("/")
    given = answer(capsys, "predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", "rag", "--region", "de")
    assert found["question"] == given["question"]
    assert found["tpot_s"] == given["tpot_s"]
    said = [line for line in found["assumed"] if line.endswith(": perfmodel.toml of the project")]
    assert [line.partition(":")[0] for line in said] == [
        *("model llama-3.1-8b", "systems dgx-h100", "traffic rag", "region de")
    ]
    assert [line for line in found["assumed"] if line not in said] == given["assumed"]


def test_what_a_command_says_wins_and_is_no_longer_assumed(below, capsys):
    found = answer(capsys, "predict", "llama-3.1-70b", "--on", "dgx-h200", "--prompt", "100", "--output", "10")
    assert found["question"] == {
        **{"model": "llama-3.1-70b", "on": "dgx-h200", "prompt": "100", "output": "10"},
        "region": "de",
    }
    assert [line for line in found["assumed"] if "perfmodel.toml" in line] == [
        "region de: perfmodel.toml of the project"
    ]


def test_a_verb_about_several_systems_takes_all_of_them(below, capsys):
    assert [each["system"] for each in answer(capsys, "compare")["answers"]] == ["dgx-h100", "dgx-b200"]


def test_a_verb_that_has_no_such_option_takes_the_others(below, capsys):
    assert answer(capsys, "fit")["model"] == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('trafic = "rag"', "there is no field 'trafic': did you mean traffic?"),
        ("traffic = 3", "traffic: expected a name in quotes"),
        ("systems = []", 'systems: expected names of systems, as ["dgx-h100", "dgx-b200:tp=4"]'),
        ("systems = [3]", 'systems: expected names of systems, as ["dgx-h100", "dgx-b200:tp=4"]'),
    ],
)
def test_a_wrong_file_is_one_line(text, line, below, capsys):
    (below / "perfmodel.toml").write_text(text)
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100"]) == 2
    assert capsys.readouterr().err == f"perfmodel: {below / 'perfmodel.toml'}: {line}\n"


def test_a_file_that_is_no_toml_is_one_line(below, capsys):
    (below / "perfmodel.toml").write_text("traffic =")
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"perfmodel: {below / 'perfmodel.toml'}: no TOML: ")
    assert said.count("\n") == 1


def test_a_wrong_name_says_that_the_file_gave_it(below, capsys):
    (below / "perfmodel.toml").write_text('traffic = "no-such"')
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100"]) == 2
    assert "'no-such'" in (said := capsys.readouterr().err)
    assert said.endswith("(perfmodel.toml gives traffic)\n")


def test_a_wrong_system_of_the_file_is_named_by_its_field_and_a_wrong_option_is_not_laid_to_it(below, capsys):
    assert run(["predict", "--tp", "3.5"]) == 2
    assert "perfmodel.toml" not in capsys.readouterr().err
    (below / "perfmodel.toml").write_text('systems = ["no-such"]')
    assert run(["predict", "llama-3.1-8b"]) == 2
    assert capsys.readouterr().err.endswith("(perfmodel.toml gives systems)\n")

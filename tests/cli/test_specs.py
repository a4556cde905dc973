"""Looking into specs: what differs, where a word stands, and what an answer rests on."""

import json
import re

import pytest

from perfmodel.cli.app import invoke
from perfmodel.specs import catalog, skeleton


def said(capsys, *arguments):
    code = invoke(list(arguments))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def test_a_difference_is_what_two_files_say(capsys):
    rows = {
        row["path"]: row
        for row in json.loads(said(capsys, "specs", "diff", "dgx-h100", "dgx-h200", "--json"))["differences"]
    }
    assert (rows["memory.hbm.capacity"]["value_1"], rows["memory.hbm.capacity"]["value_2"]) == (80e9, 141e9)
    assert "memory.hbm.bandwidth" in rows
    assert "link.bandwidth_per_direction" not in rows


def test_a_spec_does_not_differ_from_itself(capsys):
    assert json.loads(said(capsys, "specs", "diff", "lpu-v1", "lpu-v1", "--json"))["differences"] == []


def test_a_word_is_found_in_names_paths_sources_and_notes(capsys):
    found = {
        entry["name"]: entry
        for entry in json.loads(said(capsys, "specs", "search", "cerebras-wse3", "--json"))["specs"]
    }
    assert {row["path"] for row in found["wse-3"]["numbers"]} >= {"die.area", "memory.sram.bandwidth"}
    assert json.loads(said(capsys, "specs", "search", "no such word", "--json"))["specs"] == []


def test_an_answer_cites_the_sources_of_its_own_numbers(capsys):
    out = said(capsys, "predict", "llama-3.1-8b", "--on", "lpu-v1", "--cite")
    keys = re.findall(r"@misc\{(.+),", out)
    assert "ship-paper" in keys
    assert "nvidia-h100-datasheet" not in keys
    assert set(keys) <= set(catalog.load_sources())
    assert len(keys) == len(set(keys))
    assert "% ".join(["", "hop_time"]) in out


def test_citations_leave_json_alone(capsys):
    assert invoke(["predict", "llama-3.1-8b", "--on", "dgx-h100", "--json", "--cite"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["tpot_s"] > 0
    assert "@misc{nvidia-h100-datasheet," in printed.err


@pytest.mark.parametrize("what", skeleton.WHAT)
def test_a_skeleton_is_written_once(tmp_path, monkeypatch, capsys, what):
    monkeypatch.chdir(tmp_path)
    written = said(capsys, "specs", "new", what, "mine").splitlines()
    assert all((tmp_path / name).is_file() for name in written)
    assert not any("$" in (tmp_path / name).read_text() for name in written)
    assert invoke(["specs", "new", what, "mine"]) == 2
    assert "is there already" in capsys.readouterr().err


def test_the_skeleton_of_a_chip_answers_nothing_before_it_is_filled_in(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said(capsys, "specs", "new", "chip", "mine")
    assert invoke(["predict", "llama-3.1-8b", "--on", "mine", "--precision", "bf16"]) == 3
    assert "not published: system.rates.bf16" in capsys.readouterr().err
    assert invoke(["specs", "check", "hardware_specs/mine.yaml"]) == 0


@pytest.mark.parametrize(("what", "name"), [("chip", "../mine"), ("machine", "my-kind"), ("model", "My"), ("car", "a")])
def test_a_name_that_will_not_do_is_refused(tmp_path, monkeypatch, capsys, what, name):
    monkeypatch.chdir(tmp_path)
    assert invoke(["specs", "new", what, name]) == 2
    assert list(tmp_path.iterdir()) == []

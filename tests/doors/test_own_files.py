"""A file of the user's own in place of a bundled one is said in every answer, and a broken one fails what needs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from openpyxl import load_workbook

import perfmodel
from perfmodel.cli import run

ROOT = Path(__file__).parents[2]
QUESTION = ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", "chat"]
#: What an own file is in place of: where it lies, and what it changes of the bundled one.
OWN = {
    "system dgx-h100": (
        "hardware_specs/mine.yaml",
        "extends: dgx-h100\nname: dgx-h100\nmemory:\n  hbm:\n    bandwidth: "
        "{value: 33.5 TB/s, source: plan-choice, kind: estimate, low: 3 TB/s, high: 40 TB/s}\n",
    ),
    "model llama-3.1-8b": ("workloads/models/llama-3.1-8b.yaml", ("max_context: 131072", "max_context: 65536")),
    "traffic chat": ("workloads/traffic/talk.yaml", ("name: chat", "name: chat")),
    "economics": ("hardware_specs/economics.yaml", ("", "")),
}
VERBS = {
    "predict": ["predict", *QUESTION],
    "compare": ["compare", *QUESTION],
    "predict at a rate": ["predict", *QUESTION, "--rate", "2"],
    "compare at a rate": ["compare", *QUESTION, "--rate", "2"],
    "fit": ["fit", *QUESTION],
    "tco": ["tco", *QUESTION, "--samples", "64"],
    "size": ["size", *QUESTION, "--rate", "2", "--ttft-p99", "5 s"],
    "size of pools": ["size", *QUESTION, "--rate", "2", "--prefill-on", "dgx-h100:tp=2"],
    "explain": ["explain", "tpot", *QUESTION],
    "solve": ["solve", "tpot", *QUESTION, "--for", "memory.hbm.bandwidth", "--target", "6 ms"],
    "simulate": ["simulate", *QUESTION, "--rate", "2", "--requests", "20"],
    "sweep": ["sweep", *QUESTION, "--axis", "concurrency=1,2"],
}
#: What makes a copy one of the user's own.
MINE = "\n# mine\n"
NO_JSON, NO_CSV = (), ("explain", "solve", "simulate")


def put(folder: Path, what: str) -> str:
    """Write an own file; return the line that an answer says of it."""
    path, content = OWN[what]
    if isinstance(content, tuple):
        name = what.split()[-1]
        content = (ROOT / Path(path).parent / f"{name}.yaml").read_text("utf-8").replace(*content) + MINE
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(content, encoding="utf-8")
    return f"{what}: {path}, in place of the bundled one"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("what", OWN)
@pytest.mark.parametrize("verb", ["predict", "sweep"])
def test_every_kind_of_file_is_said(verb, what, here, capsys) -> None:
    said = put(here, what)
    assert run(VERBS[verb]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_answer_says_it_in_every_form(verb, here, capsys) -> None:
    said = put(here, "system dgx-h100")
    for form in ([], ["--json"], ["--csv"]):
        if (verb in NO_JSON and form == ["--json"]) or (verb in NO_CSV and form == ["--csv"]):
            continue
        assert run([*VERBS[verb], *form]) == 0
        out = capsys.readouterr().out
        assert said in " ".join(out.split()), form
        if form == ["--json"]:
            found = json.loads(out)
            each = [found, *found.get("answers", [])]
            assert any(said in one.get("assumed", []) for one in each)


def test_a_file_that_others_extend_is_said_too(here, capsys) -> None:
    folder = here / "hardware_specs"
    folder.mkdir()
    bundled = (ROOT / "hardware_specs" / "dgx-h200.yaml").read_text("utf-8")
    assert "extends: dgx-h100" in bundled
    (folder / "dgx-h200-mine.yaml").write_text(bundled.replace("name: dgx-h200", "name: h200-mine", 1), "utf-8")
    (folder / "dgx-h100.yaml").write_text(
        (ROOT / "hardware_specs" / "dgx-h100.yaml").read_text("utf-8") + MINE, "utf-8"
    )
    assert run(["predict", "llama-3.1-8b", "--on", "h200-mine", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["assumed"]
    assert "system dgx-h100: hardware_specs/dgx-h100.yaml, in place of the bundled one" in said


def test_costs_of_materials_and_failures_are_said_where_they_count(here, capsys) -> None:
    folder = here / "hardware_specs"
    folder.mkdir()
    for name in ("materials.yaml", "reliability.yaml"):
        (folder / name).write_text((ROOT / "hardware_specs" / name).read_text("utf-8") + MINE, "utf-8")
    assert run([*VERBS["tco"], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["assumed"]
    assert "materials: hardware_specs/materials.yaml, in place of the bundled one" in said
    assert run([*VERBS["size"], "--availability", "0.999", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["assumed"]
    assert "reliability: hardware_specs/reliability.yaml, in place of the bundled one" in said


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("calibration/h100-vllm.yaml", "calibration h100-vllm"),
        ("engines/vllm-0.33.yaml", "engine vllm-0.33"),
        ("power/kernels.yaml", "power kernels"),
    ],
)
def test_what_engines_and_chips_are_taken_to_be_is_said(path, label, here) -> None:
    own = here / "hardware_specs" / path
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / "hardware_specs" / path).read_text("utf-8") + MINE, "utf-8")
    said = f"{label}: hardware_specs/{path}, in place of the bundled one"
    assert said in perfmodel.predict("llama-3.1-8b", on="dgx-h100", engine="vllm-0.33").assumed


def test_pages_and_workbooks_say_it(here) -> None:
    # A file that changes between two questions of one process counts in the second.
    perfmodel.whatif("before.html", "llama-3.1-8b", on="dgx-h100:tp=1")
    said = put(here, "system dgx-h100")
    perfmodel.whatif("page.html", "llama-3.1-8b", on="dgx-h100:tp=1")
    assert said in (here / "page.html").read_text("utf-8")
    perfmodel.export_xlsx("book.xlsx", "llama-3.1-8b", on="dgx-h100:tp=1")
    about = load_workbook(here / "book.xlsx")["About"]
    assert any(said in str(row[0].value) for row in about.iter_rows())


def test_what_is_ones_own_by_name_is_in_place_of_nothing(here) -> None:
    folder = here / "hardware_specs"
    folder.mkdir()
    (folder / "mine.yaml").write_text("extends: dgx-h100\nname: mine\n", "utf-8")
    assert not any("in place of" in said for said in perfmodel.predict("llama-3.1-8b", on="mine").assumed)


BROKEN = {"no YAML": "name: [broken\nx: {", "no mapping": "- a\n- b\n", "no text": "\x00\x01"}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_fails_only_what_needs_it(content, here, capsys) -> None:
    for folder, name in (("hardware_specs", "chip"), ("workloads/models", "net"), ("workloads/traffic", "talk")):
        (here / folder).mkdir(parents=True)
        (here / folder / f"{name}.yaml").write_text(content, encoding="utf-8")
    assert run(["predict", *QUESTION, "--json"]) == 0
    assert run(["specs", "list"]) == 0
    perfmodel.export_xlsx("book.xlsx", "llama-3.1-8b", on="dgx-h100:tp=1")
    perfmodel.whatif("page.html", "llama-3.1-8b", on="dgx-h100:tp=1")
    capsys.readouterr()
    for words in (["predict", "llama-3.1-8b", "--on", "chip"], ["predict", "net", "--on", "dgx-h100"]):
        assert run(words) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "chip.yaml" in err or "net.yaml" in err


def test_a_broken_file_of_a_bundled_name_is_not_passed_over(here, capsys) -> None:
    (here / "hardware_specs").mkdir()
    (here / "hardware_specs" / "mine.yaml").write_text("name: dgx-h100\nmemory: [broken\n", encoding="utf-8")
    assert run(["predict", *QUESTION]) == 2
    assert "mine.yaml" in capsys.readouterr().err
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-b200"]) == 0
    capsys.readouterr()
    assert run(["predict", "llama-3.1-8b", "--on", "no-such-chip"]) == 2
    assert "mine.yaml" in capsys.readouterr().err


def test_a_copy_of_a_bundled_file_replaces_nothing(here, capsys):
    """As in a clone of the project from which another place was installed."""
    (here / "hardware_specs").mkdir(exist_ok=True)
    text = (ROOT / "hardware_specs" / "dgx-h100.yaml").read_text("utf-8")
    for content, said in ((text, False), (text + MINE, True)):
        (here / "hardware_specs" / "dgx-h100.yaml").write_text(content, encoding="utf-8")
        assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100", "--json"]) == 0
        assumed = json.loads(capsys.readouterr().out)["assumed"]
        assert any("in place of the bundled one" in line for line in assumed) == said


def test_a_model_of_ones_own_extends_a_bundled_one(here) -> None:
    folder = here / "workloads" / "models"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "embedder.yaml").write_text("name: embedder\nextends: qwen3-8b\ntask: pool\n", "utf-8")
    for name in ("embedder", str(folder / "embedder.yaml")):
        assert perfmodel.model(name).task == "pool"
        assert perfmodel.model(name).layers == perfmodel.model("qwen3-8b").layers
    assert run(["specs", "check", str(folder / "embedder.yaml")]) == 0

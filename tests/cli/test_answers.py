"""What the verbs print: layout and keys, never numbers."""

import csv
import io
import json
import shlex

import pytest

from perfmodel.cli import run

FOUR = ["--on", "lpu-v1", "--on", "sn40l-16", "--on", "dgx-h100", "--on", "dgx-b200"]
KEYS = {
    *("ttft_s", "tpot_s", "request_latency_s", "output_tokens_per_s", "input_tokens_per_s"),
    *("output_tokens_per_s_per_user", "input_tokens_per_s_per_user", "tokens_per_s_per_chip", "mfu", "mbu", "fits"),
    *("max_concurrency", "limited_by", "breakdown", "memory", "power_w", "joules_per_output_token", "usd_per_mtok"),
    *("band", "assumed", "warnings", "model", "system", "plan", "chips", "reason"),
}


def answer(arguments, capsys):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("width", [80, 200])
def test_the_comparison_fits_the_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["compare", "llama-3.1-70b", *FOUR, "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if line.startswith(" ") and "lpu-v1" in line)
    assert head.split() == ["lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200"]
    labels = [line[: line.index("  ")] for line in lines if "  " in line.strip()]
    for label in ("TTFT", "TPOT", "output tok/s", "MFU", "MBU", "TTFT goes to", "TPOT goes to"):
        assert label in labels
    assert "assumed, for all" in lines
    assert any(line.startswith("mind, for lpu-v1") for line in lines)


def test_systems_that_find_no_room_stand_below(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    systems = ["lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200", "mi355x-8", "gb200-nvl72"]
    assert run(["compare", "llama-3.1-70b", *(word for name in systems for word in ("--on", name)), "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    table = lines[next(at for at, line in enumerate(lines) if line.startswith(" ")) : lines.index("assumed, for all")]
    assert [word for line in table for word in line.split() if word in systems] == systems
    assert sum(line.startswith("TPOT goes to") for line in table) == 2


def test_a_system_asked_twice_is_told_apart(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert run(["compare", "qwen3-32b", *("--on", "dgx-h100") * 2, "--set", "#2:system.rates.bf16=x2"]) == 0
    said, head = capsys.readouterr().out.splitlines()[:2]
    assert said.startswith("dgx-h100#")
    assert head.split() == ["dgx-h100#1", "dgx-h100#2"]


def test_the_json_has_the_documented_keys(capsys):
    one = answer(["predict", "llama-3.1-70b", "--on", "dgx-h100"], capsys)
    assert one.keys() >= KEYS
    assert set(one["limited_by"]) == {"prefill", "decode", "concurrency"}
    causes = {"compute", "memory", "collective", "overhead", "host", "wait"}
    assert set(one["breakdown"]["decode"]) == causes
    assert sum(one["breakdown"]["prefill"].values()) == pytest.approx(one["ttft_s"], rel=1e-12)
    assert sum(one["breakdown"]["decode"].values()) == pytest.approx(one["tpot_s"], rel=1e-12)
    assert set(one["usd_per_mtok"]) == {"input", "output", "blended"}
    assert any("chat" in said for said in one["assumed"])


def test_json_with_a_draft(capsys):
    one = answer(["predict", "llama-3.1-70b", "--on", "dgx-h100"], capsys)
    assert one["speculation"] is None
    drafted = ["--draft", "llama-3.2-1b", "--accept", "80%,0.7,0.6"]
    both = answer(["compare", "llama-3.1-70b", *FOUR[:4], *drafted], capsys)
    for each in both["answers"]:
        said = each["speculation"]
        assert (said["draft"], said["k"], said["accept"]) == ("llama-3.2-1b", 3, [0.8, 0.7, 0.6])
        assert said.keys() >= {"alpha", "ar", "tokens_per_step", "draft_s", "verify_s", "host_time_s", "speedup"}


def test_compare_json(capsys):
    both = answer(["compare", "llama-3.1-70b", *FOUR], capsys)
    assert [one["system"] for one in both["answers"]] == ["lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200"]
    head = {"schema_version", "perfmodel", "numbers_version", "verb", "question"}
    assert set(both) == head | {"answers", "assumed", "warnings"}


def test_csv_is_one_row_an_answer(capsys):
    assert run(["compare", "llama-3.1-8b", *FOUR, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["system"] for row in rows] == ["lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200"]
    assert all(float(row["tpot_s"]) > 0 for row in rows)


def test_set_reaches_one_system_of_two(capsys):
    same = ["--on", "dgx-h100", "--on", "dgx-h100"]
    both = answer(["compare", "llama-3.1-8b", *same, "--set", "#2:memory.hbm.bandwidth=x2"], capsys)["answers"]
    assert both[1]["tpot_s"] < both[0]["tpot_s"]
    named = ["--on", "dgx-h100", "--on", "dgx-b200"]
    plain = answer(["compare", "llama-3.1-8b", *named], capsys)["answers"]
    set_one = ["--set", "dgx-b200:system.memory.hbm.bandwidth=-50%"]
    changed = answer(["compare", "llama-3.1-8b", *named, *set_one], capsys)["answers"]
    assert changed[0]["tpot_s"] == plain[0]["tpot_s"]
    assert changed[1]["tpot_s"] > plain[1]["tpot_s"]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("LLAMA-3.1-70B", "llama-3.1-70b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
    ],
)
def test_names_of_hugging_face_and_of_data_files(asked, named, capsys):
    one = answer(["predict", asked, "--on", "H100 SXM", "--precision", "fp8"], capsys)
    assert (one["model"], one["system"]) == (named, "dgx-h100")


def test_the_default_plan_gives_way_when_it_does_not_fit(capsys):
    one = answer(["predict", "llama-3.1-405b", "--on", "dgx-h100"], capsys)
    assert one["fits"]
    assert one["chips"] > 8
    assert any("fewest chips" in said for said in one["assumed"])


def test_specs_list_json(capsys):
    assert run(["specs", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["specs"]
    assert {"name", "kind", "aliases"} == set(found[0])
    names = {entry["name"] for entry in found}
    assert names >= {"lpu-v1", "sn40l-16", "sn40l-8", "dgx-h100", "dgx-h100-paper"}
    assert names >= {"dgx-b200", "dgx-h200", "chat", "pd-32"}


def test_specs_show_says_which_file_each_value_came_from(capsys):
    assert run(["specs", "show", "dgx-h100-paper", "--json"]) == 0
    rows = {row["path"]: row for row in json.loads(capsys.readouterr().out)["numbers"]}
    assert rows["memory.hbm.bandwidth"]["file"] == "dgx-h100-paper.yaml"
    assert rows["memory.hbm.capacity"]["file"] == "dgx-h100.yaml"


def test_a_chip_of_ones_own_comes_before_the_bundled_one(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "hardware_specs"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "extends: dgx-h100\nname: mine\nmemory:\n  hbm:\n"
        "    bandwidth: {value: 6.7 TB/s, source: plan-choice, kind: estimate, low: 3 TB/s, high: 13 TB/s}\n"
    )
    monkeypatch.setenv("PERFMODEL_PATH", str(tmp_path))
    mine = answer(["predict", "llama-3.1-70b", "--on", "mine"], capsys)
    theirs = answer(["predict", "llama-3.1-70b", "--on", "dgx-h100"], capsys)
    assert mine["tpot_s"] < theirs["tpot_s"]
    assert any("system.memory.hbm.bandwidth" in said for said in mine["warnings"])


def test_the_python_interface_gives_the_same(capsys):
    import perfmodel

    one = answer(["predict", "llama-3.1-70b", "--on", "dgx-h100:tp=4", "--precision", "fp8"], capsys)
    same = perfmodel.predict("llama-3.1-70b", on="dgx-h100", tp=4, precision="fp8")
    assert same.tpot_s == one["tpot_s"]
    assert "TPOT" in repr(same)
    assert "<table>" in same._repr_html_()
    assert "kernel" in same.explain("tpot") or "memory_time" in same.explain("tpot")
    assert same.to_frame().shape[0] == 1


@pytest.mark.parametrize("verb", ["predict", "compare", "sweep", "fit", "tco", "explain", "solve", "size", "simulate"])
def test_the_example_of_the_help_answers(verb, capsys):
    assert run([verb, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    example = text.partition("Example: perfmodel ")[2].partition(" Arguments:")[0]
    assert run(shlex.split(example)) == 0
    assert capsys.readouterr().out

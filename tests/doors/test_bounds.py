"""Files that are small and hold much, or are none of what they claim: one line that names the file, at once, and no
more memory than a question takes."""

import gzip
import json
import time

import pytest

from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence import validate
from perfmodel.specs import catalog, files

MODEL = (catalog.bundled() / "workloads" / "models" / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
#: Seconds that a refusal may take, on a machine that is busy with other tests; without bounds it is hours, or memory.
AT_ONCE = 10.0


def one_line(words, capsys, *, code=2):
    start = time.perf_counter()
    assert run(words) == code
    assert time.perf_counter() - start < AT_ONCE
    err = capsys.readouterr().err
    assert len(err.splitlines()) == (code != 0), err
    assert "internal error" not in err
    return err


def bomb(kind):
    lines = ["a0: &a0 {x: 1, y: 2}" if kind == "mappings" else "a0: &a0 [1, 1, 1]"]
    for level in range(1, 25):
        inner = [f"*a{level - 1}"] * 3
        held = (
            f"{{{', '.join(f'k{at}: {one}' for at, one in enumerate(inner))}}}"
            if kind == "mappings"
            else f"[{', '.join(inner)}]"
        )
        lines.append(f"a{level}: &a{level} {held}")
    return "\n".join(lines) + "\n"


YAML = {
    "nested in brackets": ("a: " + "[" * 2000 + "]" * 2000, "nested more than 50 deep"),
    "nested till the C stack ends": ("a: " + "{a: " * 100_000, "nested more than 50 deep"),
    "nested in lines": ("\n".join(" " * at + "a:" for at in range(2000)), "nested more than 50 deep"),
    "a mapping in itself": ("a: &a {b: *a}\n", "a holds itself"),
    "a list in itself": ("a: &a [*a]\n", "a holds itself"),
    "in itself two levels up": ("a: &a {b: {c: [1, *a]}}\n", "a holds itself"),
    "a bomb of mappings": (bomb("mappings"), "more than 100,000 values"),
    "a bomb of lists": (bomb("lists"), "more than 100,000 values"),
    "many values": ("a: [" + "1," * 100_001 + "]", "more than 100,000 values"),
    "a long file": ("# " + "x" * 2**24, "larger than 16,777,216 B"),
    "a name that is bytes": ("extends: dgx-h100\nname: !!binary aGVsbG8=\n", "!!binary is not read"),
    "aliases that are a set": ("extends: dgx-h100\nname: x\naliases: !!set {a, b}\n", "!!set is not read"),
    "a tag of somebody's": ("extends: dgx-h100\nname: !thing x\n", "!thing is not read"),
    "a long name": (f"extends: dgx-h100\nname: {'n' * 256}\n", "name: 256 characters, of which 255"),
    "a long alias": (f"extends: dgx-h100\nname: x\naliases: [{'n' * 256}]\n", "aliases.0: 256 characters"),
    "a line feed in a name": ('extends: dgx-h100\nname: "ok\\n=HYPERLINK(1)"\n', "name: holds a character"),
    "an escape in an alias": ('extends: dgx-h100\nname: x\naliases: ["\\x1b[2J"]\n', "does not print (U+001B)"),
    "right to left in a title": ('extends: dgx-h100\nname: x\ntitle: "\\u202e"\n', "title: holds a character"),
    "a tab in a key": ('extends: dgx-h100\nname: x\nrates: {"a\\tb": 1 TFLOP/s}\n', "holds a character"),
    "a separator in a plan's name": ('extends: dgx-h100\nname: x\nplans: [{name: "\\u2028"}]\n', "plans.0.name: holds"),
    "an escape in a note": (
        'extends: dgx-h100\nname: x\nprice: {system: {value: 1 USD, kind: derived, note: "\\x1b"}}\n',
        "price.system.note: holds a character",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "hint"), YAML.values(), ids=YAML.keys())
def test_a_spec_that_is_refused_at_once(text, hint, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    err = one_line(["predict", "llama-3.1-8b", "--on", str(path)], capsys)
    assert str(path) in err
    assert hint in err
    # By the same words, wherever it is read.
    assert hint in one_line(["predict", str(path), "--on", "dgx-h100"], capsys)
    with pytest.raises(UserError, match=r"mine\.yaml"):
        catalog.load_traffic(str(path))
    assert run(["specs", "check", str(path)]) == 2
    assert hint in capsys.readouterr().err


def test_what_the_bundled_files_hold_is_far_from_the_bounds():
    for path in [*catalog.bundled().glob("hardware_specs/**/*.yaml"), *catalog.bundled().glob("workloads/**/*.yaml")]:
        files.check_text(files.read_yaml(path), path)


def test_a_note_may_have_lines_and_be_long(tmp_path, capsys):
    note = json.dumps("a line\nand another " + "x" * 1000)
    path = tmp_path / "mine.yaml"
    price = f"{{value: 300 kUSD, source: plan-choice, kind: derived, note: {note}}}"
    path.write_text(f"extends: dgx-h100\nname: x\nprice: {{system: {price}}}\n")
    one_line(["predict", "llama-3.1-8b", "--on", str(path)], capsys, code=0)


@pytest.mark.parametrize("count", [2, 1500])
def test_a_cycle_of_files_that_extend_each_other(count, tmp_path, capsys):
    for at in range(count):
        (tmp_path / f"c{at}.yaml").write_text(f"extends: c{(at + 1) % count}\nname: c{at}\n")
    err = one_line(["predict", "llama-3.1-8b", "--on", str(tmp_path / "c0.yaml")], capsys)
    assert "extends itself" in err or "extends more than 20 files" in err


def test_a_file_of_many_mistakes(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("name: x\n" + "".join(f"field{at}: 1\n" for at in range(300)))
    start = time.perf_counter()
    assert run(["specs", "check", str(path)]) == 2
    assert time.perf_counter() - start < AT_ONCE
    assert len(capsys.readouterr().err.splitlines()) > 300


LONG = "n" * 300


@pytest.mark.parametrize(
    "words",
    [
        ["predict", LONG, "--on", "dgx-h100"],
        ["predict", f"{LONG}.yaml", "--on", "dgx-h100"],
        ["predict", f"{LONG}.json", "--on", "dgx-h100"],
        ["predict", f"{LONG}/x.yaml", "--on", "dgx-h100"],
        ["predict", "llama-3.1-8b", "--on", LONG],
        ["predict", "llama-3.1-8b", "--on", f"{LONG}.yaml"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--traffic", LONG],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--draft", LONG, "--k", "2", "--alpha", "0.5"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--lengths", f"{LONG}.csv"],
        ["simulate", "llama-3.1-8b", "--on", "dgx-h100", "--trace", f"{LONG}.csv"],
        ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", "concurrency=1,2", "--out", f"{LONG}.csv"],
        ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", "concurrency=1,2", "--out", LONG],
        ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", "concurrency=1,2", "--out", f"{LONG}/x.csv"],
        ["report", LONG],
        ["report", f"{LONG}.yaml"],
        ["validate", "--data", f"{LONG}.csv"],
        ["specs", "show", LONG],
        ["specs", "check", f"{LONG}.yaml"],
    ],
    ids=lambda words: " ".join(word.replace(LONG, "LONG") for word in words),
)
def test_a_name_longer_than_a_file_may_have(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert "internal error" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# --- what would take all memory, or no end -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--arrival-scv", "1e6"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--arrival-scv", "1e7"],
        ["simulate", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--requests", "1e12"],
        ["predict", "{heads}", "--on", "dgx-h100", "--tp", "3"],
        ["predict", "{layers}", "--on", "lpu-v1"],
        ["predict", "{mlp}", "--on", "dgx-h100"],
        ["predict", "{mlp}", "--on", "lpu-v1"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--traffic", "{none}"],
        ["predict", "llama-3.1-8b", "--on", "{topology}"],
    ],
    ids=" ".join,
)
def test_what_is_refused_before_it_is_worked_out(words, tmp_path, capsys):
    lines = MODEL.splitlines(keepends=True)
    mixer = next(at for at, line in enumerate(lines) if "attention:" in line)
    own = {
        "heads": MODEL.replace("heads: 32", "heads: 1e12").replace("kv_heads: 8", "kv_heads: 1e12"),
        "layers": MODEL.replace("count: 32", "count: 1e12"),
        "mlp": "".join([*lines[:mixer], *lines[mixer + 4 :]]),
        "none": "name: x\nsource: plan-choice\nkind_of_numbers: derived\nprompt: 10\noutput: 0\n",
        "topology": "extends: mi355x-8\nname: x\nlink: {topology: mesh9}\n",
    }
    for name, text in own.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    one_line([word.format(**{name: tmp_path / f"{name}.yaml" for name in own}) for word in words], capsys)


def test_the_states_of_a_chain_are_bounded(capsys):
    words = ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--set", "engine.max_sequences=1e12"]
    one_line([*words, "--set", "memory.hbm.capacity=1e16 B"], capsys, code=0)


TRACE = "arrival_s,input_tokens,output_tokens\n0,100,10\n1,200,20\n2,300,10\n"
TRACES = {
    "nested": ("x.jsonl", b"[" * 100_000, "recursion"),
    "no object": ("x.jsonl", b"null\n", "must be an object"),
    "a list": ("x.jsonl", b"[1, 2]\n", "must be an object"),
    "no gzip": ("x.jsonl.gz", b"xx", "gzip"),
    "a cut gzip": ("x.jsonl.gz", gzip.compress(b"{}" * 1000)[:-12], "cannot be read as a trace"),
    "a broken gzip": ("x.jsonl.gz", gzip.compress(b"{}")[:10] + b"\xff" * 20, "cannot be read as a trace"),
    "no text": ("x.csv", b"\xff\xfe\0", "utf-8"),
    "empty": ("x.csv", b"", "at least one request"),
    "a cell without end": ("x.csv", TRACE.encode() + b"3," + b"1" * 200_000 + b",1\n", "field larger"),
    "endless tokens": ("x.csv", TRACE.encode() + b"3,inf,1\n", "at most 1,000,000,000 tokens"),
    "many tokens": ("x.csv", TRACE.encode() + b"3,1,1e300\n", "at most 1,000,000,000 tokens"),
    "no number": ("x.csv", TRACE.encode() + b"3,nan,1\n", "at least 1 token"),
}


@pytest.mark.parametrize(("name", "content", "hint"), TRACES.values(), ids=TRACES.keys())
def test_a_trace_that_is_none(name, content, hint, tmp_path, capsys):
    path = tmp_path / name
    path.write_bytes(content)
    for words in (["predict", "--rate", "1", "--lengths", str(path)], ["simulate", "--trace", str(path)]):
        err = one_line([words[0], "llama-3.1-8b", "--on", "dgx-h100", *words[1:]], capsys)
        assert str(path) in err
        assert hint in err


def test_a_trace_that_unpacks_to_more_than_memory(tmp_path, monkeypatch, capsys):
    from perfmodel.serving import traces

    monkeypatch.setattr(traces, "MOST_BYTES", 1_000)
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(b" " * 1_001))
    words = ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--lengths", str(tmp_path / "x.jsonl.gz")]
    assert "more than 1,000 B" in one_line(words, capsys)


def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path, capsys):
    (tmp_path / "plain.csv").write_text(TRACE, encoding="utf-8")
    (tmp_path / "marked.csv").write_text(TRACE, encoding="utf-8-sig")
    requests = [{"timestamp": at * 1000, "input_length": 100 * (at + 1), "output_length": 10} for at in range(3)]
    (tmp_path / "marked.jsonl").write_text("\n".join(map(json.dumps, requests)), encoding="utf-8-sig")
    answers = []
    for name in ("plain.csv", "marked.csv", "marked.jsonl"):
        words = [
            "predict",
            "llama-3.1-8b",
            "--on",
            "dgx-h100",
            "--rate",
            "1",
            "--lengths",
            str(tmp_path / name),
            "--json",
        ]
        assert run(words) == 0
        answers.append(json.loads(capsys.readouterr().out)["load"])
    assert answers[0] == answers[1]
    assert answers[2] is not None


def test_a_trace_of_one_request_is_a_distribution_of_one_point(tmp_path, capsys):
    (tmp_path / "one.csv").write_text("arrival_s,input_tokens,output_tokens\n0,100,10\n")
    for on in ("dgx-h100", "lpu-v1", "sn40l-16"):
        words = ["predict", "llama-3.1-8b", "--on", on, "--rate", "1", "--lengths", str(tmp_path / "one.csv"), "--json"]
        assert run(words) == 0
        assert json.loads(capsys.readouterr().out)["load"]["times"]["ttft_s"]["p99"] > 0


# --- rows of measurements ----------------------------------------------------------------------------------------

ROW = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "metric": "TPOT", "value": "6", "unit": "ms"}
ROW |= {"tp": "1", "isl": "100", "osl": "100", "concurrency_or_batch": "1"}


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"tp": "1e9"}, "tp 1e+09 is more than 1,048,576"),
        ({"tp": "1048576", "dp": "1048576"}, "chips are more than 1,048,576"),
        ({"n_chips": "99999999999999999999"}, "n_chips 99999999999999999999 is more than"),
        ({"isl": "1e300"}, "isl 1e300 is more than 1e+09"),
        ({"concurrency_or_batch": "1e12"}, "more than 1e+09"),
        ({"hardware": "/etc/passwd"}, "/etc/passwd: "),
        ({"hardware": "../no/such.yaml"}, "no such file"),
        ({"hardware": "{tmp}/bomb.yaml"}, "more than 100,000 values"),
        ({"model": "{tmp}/bomb.yaml"}, "more than 100,000 values"),
        ({"model": "{tmp}/no.json"}, "no such file"),
        ({"model": LONG}, "unknown model"),
        ({"hardware": LONG}, "unknown system"),
        ({"hardware": "\u2028"}, "no hardware is given"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_row_that_asks_for_too_much_gets_its_reason_and_the_others_their_numbers(changes, hint, tmp_path):
    import csv

    (tmp_path / "bomb.yaml").write_text(bomb("mappings"))
    changed = {**ROW, "dp": "", "n_chips": "", **{name: cell.format(tmp=tmp_path) for name, cell in changes.items()}}
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, changed)
        writer.writeheader()
        writer.writerows([ROW, changed])
    start = time.perf_counter()
    good, bad = validate.validate(tmp_path / "rows.csv").rows
    assert time.perf_counter() - start < AT_ONCE
    assert good.predicted > 0
    assert not bad.predicted > 0
    assert hint in bad.reason


# --- numbers next to a bound -------------------------------------------------------------------------------------


def test_one_token_but_for_its_last_digit_has_no_time_to_the_next(capsys):
    """Means of drawn lengths are sums of weights, so that a pool which brings one token brings that and a rounding."""
    found = []
    for output in ("1", "1.0000000000000002"):
        assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100", "--set", f"traffic.output={output}", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert "tpot_s" not in found[1]["band"]
    for end in ("low", "high"):
        assert found[1]["band"]["request_latency_s"][end] == pytest.approx(found[0]["band"]["ttft_s"][end], rel=1e-9)


def test_pools_of_layouts_nobody_gave(capsys):
    words = ["size", "llama-3.1-70b", "--on", "dgx-h100", "--rate", "2", "--ttft-p99", "5 s"]
    assert run([*words, "--prefill-on", "dgx-h100", "--csv"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert dict(zip(head.split(","), row.split(","), strict=False))["chips"]


def test_memory_that_an_engine_leaves_alone_is_never_less_than_nothing(capsys):
    """A share beyond the engine's own rule: parts add up to what is visible, and the answer says what is short."""
    words = ["fit", "llama-3.1-70b", "--on", "dgx-h100:tp=4,engine=sglang", "--json"]
    assert run([*words, "--set", "system.engine.memory_utilisation=0.97"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts = dict(found["parts"])
    visible = parts.pop("visible")
    assert all(size >= 0 for size in parts.values())
    assert sum(parts.values()) == pytest.approx(visible, rel=1e-9)
    assert "sets 12.00 GiB aside" in found["warnings"][0]

"""Wrong spec files: one line that names the file, the line, the field and the fix."""

import pytest

from perfmodel.errors import UserError
from perfmodel.specs import catalog

MINE = """\
extends: dgx-h100
name: mine
source: plan-choice
kind_of_numbers: derived
rates:
  bf16: {value: 1 PFLOP/s, source: nvidia-h100-datasheet, kind: datasheet}
memory:
  hbm:
    capacity: {value: 80 GB, source: nvidia-h100-datasheet, kind: datasheet}
    bandwidth: {value: 3 TB/s, source: nvidia-h100-datasheet, kind: datasheet}
"""
BANDWIDTH = "{value: 3 TB/s, source: nvidia-h100-datasheet, kind: datasheet}"
SYSTEM = (catalog.bundled() / "hardware_specs" / "dgx-h100.yaml").read_text(encoding="utf-8")
MODEL = (catalog.bundled() / "workloads" / "models" / "llama-3.1-8b.yaml").read_text(encoding="utf-8")


def line_of(text, start):
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith(start))


def refusal(tmp_path, text, load=catalog.load_system):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message.replace(f"{path}", "mine.yaml")


def test_the_right_file_loads(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    system, _, _ = catalog.load_system(str(path))
    assert system.memory.hbm.bandwidth == 3e12
    assert system.provenance["memory.hbm.bandwidth"].file == "mine.yaml"
    assert system.provenance["link.bandwidth_per_direction"].file == "dgx-h100.yaml"


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "fix"),
    [
        ("name: mine\n", "name: mine\nname: again\n", 3, "name", "duplicate key"),
        ("name: mine\n", "name: mine\ncolour: red\n", 3, "colour", "unknown field"),
        ("  hbm:\n", "  hbm:\n    speed: 3 TB/s\n", 9, "memory.hbm.speed", "unknown field"),
        ("3 TB/s", "3 parsec", 10, "memory.hbm.bandwidth", "unknown unit 'parsec' in '3 parsec'; write '3.35 TB/s'"),
        ("3 TB/s", "3 TB", 10, "memory.hbm.bandwidth", "'3 TB' is in B, expected B/s: write '3.35 TB/s'"),
        ("80 GB", "80 GB/s", 9, "memory.hbm.capacity", "expected B: write '80 GB'"),
        ("1 PFLOP/s", "1 PB/s", 6, "rates.bf16", "expected FLOP/s: write '989 TFLOP/s'"),
        ("3 TB/s", ".nan", 10, "memory.hbm.bandwidth", "not finite; write '3.35 TB/s'"),
        ("3 TB/s", ".inf", 10, "memory.hbm.bandwidth", "not finite; write '3.35 TB/s'"),
        ("3 TB/s", "fast", 10, "memory.hbm.bandwidth", "'fast' is not a quantity; write '3.35 TB/s'"),
        (BANDWIDTH, "[1, 2]", 10, "memory.hbm.bandwidth", "expected a quantity"),
        (BANDWIDTH, "null", 10, "memory.hbm.bandwidth", "{value: null, note: why}"),
        (BANDWIDTH, "{value: null}", 10, "memory.hbm.bandwidth", "a null needs a note"),
        (
            BANDWIDTH,
            "{value: 3 TB/s, source: plan-choice, kind: estimate}",
            10,
            "memory.hbm.bandwidth",
            "an estimate needs low and high",
        ),
        (
            BANDWIDTH,
            "{value: 3 TB/s, source: plan-choice, kind: estimate, low: 1 TB, high: 5 TB/s}",
            10,
            "memory.hbm.bandwidth",
            "'1 TB' is in B, expected B/s",
        ),
        (BANDWIDTH, "{value: 3 TB/s, source: plan-choice, kind: rumour}", 10, "memory.hbm.bandwidth", "'estimate'"),
        ("3 TB/s", "3.9", 10, "memory.hbm.bandwidth", "3.9 has no unit: 3.9 TB/s?"),
        ("value: 3 TB/s", "value: 3, unit: TB/s", 10, "memory.hbm.bandwidth", "with its value, as value: 3 TB/s"),
        ("    bandwidth: ", "    bandwith: ", 10, "memory.hbm.bandwith", "unknown field: did you mean bandwidth?"),
        ("name: mine\n", "name: mine\nprice: 3\n", 3, "price", "expected a mapping of fields"),
        ("name: mine\n", "name: mine\n\tkind: kernels\n", 3, "", "tab character"),
        ("80 GB, ", "80 GB: ", 9, "", "did not find expected"),
    ],
)
def test_a_mistake_is_named_with_file_line_field_and_fix(tmp_path, old, new, line, field, fix):
    assert old in MINE
    message = refusal(tmp_path, MINE.replace(old, new, 1))
    assert message.startswith(f"mine.yaml:{line}: "), message
    assert field in message
    assert fix in message


@pytest.mark.parametrize("missing", ["source", "kind"])
def test_a_number_without_provenance_does_not_load(tmp_path, missing):
    text = MODEL.replace("source: hf-config\n" if missing == "source" else "kind_of_numbers: datasheet\n", "")
    message = refusal(tmp_path, text, catalog.load_model)
    assert message.startswith(f"mine.yaml:{line_of(text, 'hidden')}: hidden: "), message
    assert f"a number needs a {missing}; write {{value: ..., source: ..., kind: ...}}" in message


def test_an_unknown_source_is_named_with_the_file_to_add_it_to(tmp_path):
    message = refusal(tmp_path, MINE.replace(BANDWIDTH, "{value: 3 TB/s, source: my-cousin, kind: measured}"))
    assert message.startswith("mine.yaml:10: memory.hbm.bandwidth: source 'my-cousin'"), message
    assert "sources.yaml; add it there" in message


@pytest.mark.parametrize(
    ("line", "field"), [("hidden: 4096\n", "hidden"), ("      kv_heads: 8\n", "layers.0.attention.kv_heads")]
)
def test_a_required_field_is_missed(tmp_path, line, field):
    assert line in MODEL
    assert f"{field}: required field is missing" in refusal(tmp_path, MODEL.replace(line, ""), catalog.load_model)


@pytest.mark.parametrize("parent", ["mine", "other"])
def test_a_file_does_not_extend_itself(tmp_path, parent):
    (tmp_path / "other.yaml").write_text("extends: mine\nname: other\n", encoding="utf-8")
    assert "extends itself" in refusal(tmp_path, f"extends: {parent}\nname: mine\n")


def test_an_unknown_parent_is_named_with_the_file_that_wants_it(tmp_path):
    message = refusal(tmp_path, "extends: dgx-h1000\nname: mine\n")
    assert "extends" in message
    assert "dgx-h1000" in message


@pytest.mark.parametrize("text", ["- a\n- b\n", "hello\n", ""])
def test_a_file_that_is_no_mapping(tmp_path, text):
    assert "expected a mapping of fields" in refusal(tmp_path, text)


@pytest.mark.parametrize(("name", "load"), [("system", catalog.load_system), ("model", catalog.load_model)])
def test_a_missing_file(tmp_path, name, load):
    path = tmp_path / f"{name}.yaml"
    with pytest.raises(UserError, match="no such file") as caught:
        load(str(path))
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        catalog.load_system(str(path))


@pytest.mark.parametrize(
    ("old", "new"), [("precision: bf16", "precision: bf17"), ("tied_embeddings: false", "tied_embeddings: perhaps")]
)
def test_a_wrong_word_in_a_model(tmp_path, old, new):
    assert new.partition(":")[0] in refusal(tmp_path, MODEL.replace(old, new), catalog.load_model)


@pytest.mark.parametrize("kind", ["gpu", "Kernels"])
def test_an_unknown_machine_kind_names_the_known_ones(tmp_path, kind):
    assert "kernels, dataflow, sram_pipeline" in refusal(tmp_path, f"{MINE}kind: {kind}\n")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("3 TB/s", "-3 TB/s", "memory.hbm.bandwidth"),
        ("3 TB/s", "0 TB/s", "memory.hbm.bandwidth"),
        (
            BANDWIDTH,
            "{value: 3 TB/s, source: plan-choice, kind: estimate, low: 4 TB/s, high: 5 TB/s}",
            "memory.hbm.bandwidth",
        ),
        ("name: mine\n", "name: mine\nplans: []\n", "plans"),
        ("name: mine\n", "name: mine\ndefault_plan: tp9\n", "default_plan"),
    ],
    ids=["negative", "zero", "estimate outside its range", "no plan", "unknown default plan"],
)
def test_what_no_machine_can_have_is_refused_when_the_file_loads(tmp_path, old, new, field):
    """Else it ends in a negative time or in a crash far from the file."""
    assert field in refusal(tmp_path, MINE.replace(old, new, 1))


def test_a_machine_of_kernels_needs_a_memory(tmp_path):
    assert "memory.hbm" in refusal(tmp_path, SYSTEM.replace("  hbm:\n", "  sram:\n"))


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("heads: 32", "heads: 0", "layers.0.attention.heads"),
        ("heads: 32", "heads: 32.5", "layers.0.attention.heads"),
        ("kv_heads: 8", "kv_heads: 7", "kv_heads"),
        ("count: 32", "count: -1", "layers.0.count"),
    ],
)
def test_what_no_model_can_have_is_refused_when_the_file_loads(tmp_path, old, new, field):
    assert old in MODEL
    assert field in refusal(tmp_path, MODEL.replace(old, new, 1), catalog.load_model)

"""What holds of every kind of machine, and that nothing else knows one by its name."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import perfmodel
from perfmodel.machines.base import machine_of
from perfmodel.machines.closed_loop import Load
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs import kinds

PACKAGE = Path(perfmodel.__file__).parent
#: A kind's own files, specs, and the report of the dataflow paper, whose name is that of a kind.
FREE = ("machines/kernel", "machines/dataflow.py", "machines/sram_", "machines/power.py", "specs/")
PAPER = ("reports/dataflow/",)
FILES = [path for path in sorted(PACKAGE.glob("**/*.py")) if "bundled" not in path.parts]


def names():
    """Names of the kinds as words, and of their classes."""
    found = [kinds.kind_of(name) for name in kinds.names()]
    return {kind.name for kind in found}, {
        part.__name__ for kind in found for part in (kind.efficiency, kind.power_shape)
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_kind_is_named_in_its_own_file_only(path):
    where = path.relative_to(PACKAGE).as_posix()
    if where.startswith((*FREE, *PAPER)):
        return
    words, classes = names()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in words]
    said += [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in classes]
    said += [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in classes]
    compared = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "kind"
        and isinstance(node.left.value, ast.Attribute)
        and node.left.value.attr == "system"
    ]
    # A folder of measurements of kernels is named as the kind is.
    said = [node for node in said if not (isinstance(node, ast.Constant) and where == "evidence/power_fit.py")]
    assert [(node.lineno, ast.unparse(node)) for node in (*said, *compared)] == []


ASKED = [
    ("llama-3.1-8b", "dgx-h100:tp=2"),
    ("llama-3.3-70b", "sn40l-16"),
    ("llama-3.1-8b", "lpu-v1"),
    ("qwen3-235b-a22b", "lpu-v1:plan=ship-16x95,precision=fp8"),
]


@pytest.mark.parametrize(("model", "on"), ASKED)
@pytest.mark.parametrize("draft", ["llama-3.2-1b", "eagle", "ngram"])
@pytest.mark.parametrize("k", [1.0, 5.0])
@pytest.mark.parametrize("concurrency", [1.0, 16.0, 200.0])
def test_a_draft_that_is_never_accepted_never_helps(model, on, draft, k, concurrency):
    options = Options(draft=draft, k=k, alpha=0.0, concurrency=concurrency, prompt=1000.0, output=300.0)
    drafted = resolve(model, on, options)
    plain = replace(drafted, speculation=None)
    wanted = ("tpot_s", "output_tokens_per_s", "tokens_per_s_per_chip")
    with_draft, alone = (evaluate(scenario, wanted).metrics for scenario in (drafted, plain))
    # In a pipeline prompts enter more slowly beside more tokens, so that fewer chunks are met: a hair of TPOT.
    assert with_draft["tpot_s"] >= alone["tpot_s"] * (1 - 1e-4)
    assert with_draft["output_tokens_per_s"] <= alone["output_tokens_per_s"] * (1 + 1e-9)
    assert with_draft["tokens_per_s_per_chip"] <= alone["tokens_per_s_per_chip"] * (1 + 1e-9)


@pytest.mark.parametrize(("model", "on"), ASKED)
def test_a_draft_whose_every_token_is_accepted_and_free_divides_the_time(model, on):
    """One request: a pass with k + 1 tokens brings them all, and costs no less than a pass with one."""
    drafted = resolve(model, on, Options(draft="ngram", k=3.0, alpha=1.0, prompt=500.0, output=400.0))
    drafted = replace(drafted, speculation=replace(drafted.speculation, host_time=0.0))
    alone = evaluate(replace(drafted, speculation=None), ("tpot_s",)).metrics["tpot_s"]
    assert alone / 4 * (1 - 1e-9) <= evaluate(drafted, ("tpot_s",)).metrics["tpot_s"] <= alone


@pytest.mark.parametrize(("model", "on"), ASKED)
@pytest.mark.parametrize("draft", [None, "eagle"])
@pytest.mark.parametrize("running", [1.0, 7.0, 150.0])
def test_requests_in_service_are_those_of_littles_law(model, on, draft, running):
    asked = {"draft": draft, "k": 3.0, "alpha": 0.6} if draft else {}
    scenario = resolve(model, on, Options(**asked, prompt=800.0, output=300.0))
    loop = machine_of(scenario.system).closed_loop(scenario, Load(running, 800.0, 300.0))
    life = float(loop.front + loop.prefill.time + loop.wait + 299 * (loop.decoding.step.time + loop.stall))
    assert float(loop.rate) * life == pytest.approx(running, rel=1e-12)

"""The example package does what its own tests say, and its figure stands in a report."""

from plugins.installed import ROOT, environment, run

EXAMPLE = ROOT / "examples" / "novel"


def test_the_example_passes_its_tests(tmp_path):
    env = environment(EXAMPLE, tmp_path / "site")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), env=env, cwd=tmp_path)


def test_its_files_have_no_problems_and_its_figure_is_found(tmp_path):
    env = environment(EXAMPLE, tmp_path / "site")
    program = (
        "from perfmodel.specs.check import check_files; from perfmodel.reports.figures import registry; "
        "checked, problems = check_files([]); assert not problems, problems; "
        "print('novel-batching' in registry(), registry('novel-batching')['novel-batching'](most=4).answer)"
    )
    assert run("-c", program, env=env, cwd=tmp_path).startswith("False 4 requests together")


RULE = '''
"""An engine that takes half of what the weights leave."""
from perfmodel.serving.fit import Budget

def rule(scenario, engine, capacity, weights):
    return Budget(1.0, 0.0, 0.0, 0.0, (capacity - weights) / 2)
'''
PROJECT = """
[project]
name = "halves"
version = "1"
[project.entry-points."perfmodel.engines"]
halves = "halves.rule:rule"
[project.entry-points."perfmodel.specs"]
halves = "halves"
"""
PROGRAM = """
from perfmodel.question import Options, resolve
from perfmodel.prediction import run
from perfmodel.serving.fit import fit
scenario = resolve("llama-3.1-8b", "dgx-h100:tp=1,engine=halves", Options())
held = fit(scenario)
print(held.room == (held.capacity - held.weights) / 2, run(scenario).fits)
"""


def test_an_engine_divides_memory_by_its_own_rule(tmp_path):
    package = tmp_path / "package"
    engines = package / "halves" / "hardware_specs" / "engines"
    engines.mkdir(parents=True)
    (package / "pyproject.toml").write_text(PROJECT)
    (package / "halves" / "__init__.py").write_text("")
    (package / "halves" / "rule.py").write_text(RULE)
    budget = (ROOT / "hardware_specs" / "engines" / "vllm-0.6.yaml").read_text(encoding="utf-8")
    (engines / "halves-0.6.yaml").write_text(budget.replace("name: vllm", "name: halves"))
    assert run("-c", PROGRAM, env=environment(package, tmp_path / "site"), cwd=tmp_path) == "True True\n"

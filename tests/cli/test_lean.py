"""The core without what a browser's Python lacks, and forms for those who report: each read by what reads it."""

import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
#: Imports and predicts with the modules of its arguments blocked.
SCRIPT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in sys.argv[1:] or name in sys.argv[1:]:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import perfmodel
answer = perfmodel.predict("llama-3.1-8b", on="dgx-h100")
assert answer.tpot_s > 0
print(answer)
assert not set(sys.argv[1:]) & set(sys.modules)
"""


NOT_IN_A_BROWSER = ["_ruamel_yaml", "ruamel.yaml.clib", "vl_convert"]
OF_REPORTS = ["altair", "pandas", "sympy", "xlsxwriter", "moocore"]
FORMS = [f".github/ISSUE_TEMPLATE/{of}.yml" for of in ("chip", "measurement", "wrong-number")]


@pytest.mark.parametrize("blocked", [NOT_IN_A_BROWSER, OF_REPORTS])
def test_the_core_predicts_without(blocked, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *blocked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["CITATION.cff", ".pre-commit-config.yaml", *FORMS])
def test_files_for_those_who_join_are_yaml(name):
    found = YAML(typ="safe").load((ROOT / name).read_text("utf-8"))
    if name.startswith(".github"):
        assert {"name", "description", "body"} <= found.keys()
        assert len({part["id"] for part in found["body"]}) == len(found["body"])
    if name.endswith(".cff"):
        import perfmodel

        assert found["version"] == perfmodel.__version__

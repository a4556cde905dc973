"""A kind of machine that perfmodel has never seen, from a package that it wrote itself, under every verb."""

import json

import pytest

from perfmodel.cli.app import VERBS
from perfmodel.specs import skeleton
from plugins.installed import environment, run

MODEL, ON = "llama-3.1-8b", "fourth-1"
#: What every verb is asked; those of ours that concern no question of a machine stand apart.
ASKED = {
    "predict": [MODEL, "--on", ON, "--json"],
    "compare": [MODEL, "--on", ON, "--on", "dgx-h100", "--json"],
    "sweep": [MODEL, "--on", ON, "--axis", "concurrency=1,8", "--axis", "deployment.tp=1,8", "--out", "out.csv"],
    "fit": [MODEL, "--on", ON, "--json"],
    "tco": [MODEL, "--on", ON, "--on", "dgx-h100", "--json"],
    "explain": ["tpot", MODEL, "--on", ON, "--json"],
    "solve": ["tpot", MODEL, "--on", ON, "--for", "memory.hbm.bandwidth", "--target", "9 ms", "--json"],
    "export": [MODEL, "--on", ON, "--xlsx", "out.xlsx"],
    "size": [MODEL, "--on", ON, "--rate", "5", "--tpot-p99", "100ms", "--json"],
    "capacity": [MODEL, "--on", ON, "--nodes", "1", "--tpot-p99", "100ms", "--json"],
    "simulate": [MODEL, "--on", ON, "--rate", "1", "--json"],
    "whatif": [MODEL, "--on", ON, "--out", "out.html"],
    "specs": ["show", ON, "--json"],
}
#: It has no links, so that nothing answers of them.
REFUSED = {
    "launch": [MODEL, "--on", ON],
    "bench-plan": [MODEL, "--on", ON],
    "collective": ["all-reduce", "--on", ON, "--tp", "8", "--message", "1MB"],
}
APART = {"calibrate", "validate", "report", "runs", "traffic", "plans", "selfcheck", "completion", "mcp"}
SCRIPT = """
import contextlib, io, json, sys
from perfmodel.cli.app import invoke
found = {}
for verb, arguments in json.load(open("asked.json")).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke([verb.split("#")[0], *arguments])
    found[verb] = [code, out.getvalue(), err.getvalue()]
json.dump(found, open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    skeleton.write("machine", "fourth", folder)
    return folder, environment(folder / "fourth", folder / "site")


@pytest.fixture(scope="module")
def answers(planted):
    folder, env = planted
    drafted = [MODEL, "--on", ON, "--draft", "llama-3.2-1b", "--k", "4", "--alpha", "0.7", "--json"]
    asked = {**ASKED, **REFUSED, "predict#draft": drafted, "predict#nobody": [MODEL, "--on", "fifth-1"]}
    (folder / "asked.json").write_text(json.dumps(asked))
    run("-c", SCRIPT, env=env, cwd=folder)
    return json.loads((folder / "found.json").read_text())


def test_no_verb_is_left_out():
    assert set(ASKED) | set(REFUSED) | APART == set(VERBS)


@pytest.mark.parametrize("verb", [*ASKED, "predict#draft"])
def test_a_verb_answers(answers, verb):
    code, out, err = answers[verb]
    assert code == 0, err
    if "--json" in ASKED.get(verb, ["--json"]):
        assert json.loads(out)
    else:
        assert "out." in err


def test_its_step_is_what_its_package_says(answers):
    """A pass of 7.5 billion weights of 2 bytes at 70 % of 2 TB/s, and 32 layers of 10 us."""
    weights = (8_030_261_248 - 128_256 * 4096) * 2
    expected = weights / (0.7 * 2e12) + 32 * 10e-6
    assert json.loads(answers["predict"][1])["tpot_s"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("verb", "named"), [("predict#nobody", "fifth-1"), ("collective", "links of fourth-1")])
def test_what_nobody_has_is_refused_in_one_line(answers, verb, named):
    code, out, err = answers[verb]
    assert code == 2
    assert not out
    assert err.count("\n") == 1
    assert named in err


def test_its_own_tests_pass(planted):
    folder, env = planted
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "fourth/tests", env=env, cwd=folder)

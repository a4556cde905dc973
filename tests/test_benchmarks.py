"""The side-by-side run: absent peers are skipped, a record becomes a table; and a step against one written by hand."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from perfmodel.machines import kernels
from perfmodel.question import Options, resolve

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run():
    return load(BENCHMARKS / "peers" / "run.py")


@pytest.fixture(scope="module")
def record(run):
    """Two peers, one absent: ours ten times as fast on scattered points, fifty times on the grid."""
    one = {"ttft_s": 0.09, "tpot_s": 0.009, "single_s": 1e-5, "per_second": 1e5, "cold_s": 0.03}
    names = ("all", "drawn", "grid", "grid_all", "step", "hand")
    ours = {**one, "per_second": 1e6, "predict_s": 0.02, "cold_s": 0.3, **{f"{name}_per_second": 5e6 for name in names}}
    return {
        "date": "2026-01-01",
        "machine": "a machine",
        "load": [[0.1, 0.2, 0.3], [1.0, 0.5, 0.3]],
        "results": {run.OURS: ours, "ridgepoint": one},
        "skipped": {"servcalc": "not installed"},
    }


@pytest.mark.parametrize("width", [80, 200])
def test_a_record_becomes_a_table(run, record, width):
    lines = run.report(record, width).splitlines()
    assert max(map(len, lines)) <= width
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["ridgepoint"].split()[-2:] == ["0.03", "s"] if width == 80 else "one request" in rows["ridgepoint"]
    assert "skipped: not installed" in rows["servcalc"]
    said = "\n".join(lines)
    assert "met     scattered points at least 10 x ridgepoint: 10.0 x" in said
    assert "missed  grid at least 100 x ridgepoint: 50.0 x" in said
    assert "met     step at most 3 x hand-written NumPy: 1.0 x" in said


def test_an_absent_peer_is_skipped(run, tmp_path):
    with pytest.raises(run.Skipped, match="not installed in"):
        run.interpreter(run.PEERS[0], tmp_path, install=False)


def test_a_peer_that_fails_is_skipped_with_its_last_line(run):
    with pytest.raises(run.Skipped, match="ModuleNotFoundError: No module named 'absent'"):
        run.called([sys.executable, "-c", "import absent"], 60)
    with pytest.raises(run.Skipped, match="answers with a time of 0"):
        run.answer([sys.executable, "-c", """print('{"ttft_s": 0.0, "tpot_s": 0.0}')"""], run.environment())


def test_every_peer_has_a_script(run):
    assert all(peer.script.is_file() for peer in run.PEERS)


def test_a_step_written_by_hand_is_that_of_the_equations():
    questions = load(BENCHMARKS / "questions.py")
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options(precision="fp8"))
    drawn = questions.scattered(scenario, 1000)
    batch, context = drawn.traffic.concurrency, drawn.traffic.prompt + drawn.traffic.output / 2
    tp, bandwidth = drawn.deployment.tp, drawn.system.memory.hbm.bandwidth
    by_hand = questions.hand_written(scenario, batch, context, tp, bandwidth)
    np.testing.assert_allclose(kernels.MACHINE.decode(drawn, batch, context).time, by_hand, rtol=1e-12)

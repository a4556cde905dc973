"""What machines serve, judged by fresh seeds: objectives are met at that rate, and not at a tenth more."""

import dataclasses

import pytest

import perfmodel
from perfmodel.cli import run
from tests.simulation.test_size import judged

ASKED = {"on": "dgx-h100:tp=1", "traffic": "chat", "tpot_p99": "25ms", "ttft_p99": "500ms"}


def test_the_most_is_met_and_a_tenth_more_is_not():
    found = perfmodel.capacity("llama-3.1-8b", nodes=1, **ASKED)
    (best,) = found.answers
    assert best.load.replicas == 8
    assert judged(best) <= 1.03
    assert judged(dataclasses.replace(best, load=dataclasses.replace(best.load, rate=1.1 * best.load.rate))) > 1


def test_size_buys_as_many_nodes_for_what_they_serve():
    most = perfmodel.capacity("llama-3.1-8b", nodes=1, **ASKED).answers[0].load.rate
    assert perfmodel.size("llama-3.1-8b", rate=0.95 * most, **ASKED).answers[0].chips == 8
    assert perfmodel.size("llama-3.1-8b", rate=1.12 * most, **ASKED).answers[0].chips == 16


@pytest.mark.parametrize(("rate", "code"), [("1", 0), ("100000", 3)])
def test_less_than_asked_for_is_negative_headroom_and_exit_3(capsys, rate, code):
    asked = ["capacity", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--nodes", "1", "--traffic", "chat"]
    assert run([*asked, "--no-objective", "--rate", rate]) == code
    out = " ".join(capsys.readouterr().out.split())
    assert ("less than that" in out) == bool(code)


def test_what_no_plan_meets_has_its_line(capsys):
    asked = ["capacity", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--nodes", "1", "--traffic", "chat"]
    assert run([*asked, "--ttft-p99", "1ms"]) == 3
    assert "nothing serves it: P99 TTFT stays at" in " ".join(capsys.readouterr().out.split())

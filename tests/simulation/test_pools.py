"""Two pools, judged by fresh seeds of each; cost, power and tokens of a pool by arithmetic of one's own."""

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.planning.pools import tokens_a_chip
from tests.simulation.test_size import judged

ASKED = {"traffic": "rag", "rate": 20, "ttft_p99": "1s", "tpot_p99": "30ms"}


def test_each_pool_meets_its_objectives_and_the_whole_is_their_sum():
    found = perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", prefill_on="dgx-b200:tp=1", **ASKED)
    prefill, decode = found.sides
    for side in found.sides:
        assert side.checked.met
        assert judged(side) <= 1.03
    said = found.to_dict()
    assert said["chips"] == prefill.load.replicas + decode.load.replicas
    assert said["usd_per_hour"] == pytest.approx(said["prefill"]["usd_per_hour"] + said["decode"]["usd_per_hour"])
    for side in found.sides:
        plate = side.scenario.system.power.system_per_chip * side.chips
        assert 0.1 * plate < side.power_w <= plate
    lengths = found.sides[0].load.service.lengths
    assert tokens_a_chip(prefill) == pytest.approx(20 * lengths.mean(lengths.prompt) / prefill.chips)


def test_a_pool_without_a_plan_takes_the_fewest_chips():
    asked = dict(ASKED, ttft_p99="4s")
    free = perfmodel.size("llama-3.1-8b", on="dgx-h100", prefill_on="dgx-h100", **asked)
    for tp in (1, 2):
        given = perfmodel.size("llama-3.1-8b", on=f"dgx-h100:tp={tp}", prefill_on=f"dgx-h100:tp={tp}", **asked)
        assert free.total("chips") <= given.total("chips")


def test_the_pools_begin_with_their_verdict(capsys):
    words = ["--traffic", "rag", "--rate", "5", "--ttft-p99", "4s", "--tpot-p99", "30ms"]
    assert run(["size", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--prefill-on", "dgx-h100:tp=1", *words]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "chips = " in out.partition("USD an hour")[0]
    assert "tokens/s a chip" in out

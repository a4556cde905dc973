"""What one token, fewer bits and a setting of the operator can do to an SRAM pipeline."""

import pytest

import perfmodel
from perfmodel.evidence.calibrate import FITTED_SPEEDS, PUBLIC_SPEEDS, public_speed
from perfmodel.machines import sram_beat
from perfmodel.machines.base import machine_of
from perfmodel.machines.closed_loop import Load
from perfmodel.machines.step import Pass
from perfmodel.question import Options, resolve


@pytest.mark.parametrize("stages", [6, 9, 18, 33])
def test_one_token_pays_the_sum_of_its_stages(stages):
    """32 layers one after the other, however they are cut, the head, and a hop from stage to stage."""
    whole, cut = (
        resolve("llama-3.1-8b", f"lpu-v1:tp=8,pp={pp}", Options(precision="int8", prompt=64.0, output=8.0))
        for pp in (33, stages)
    )
    one = (Pass(1.0, 1.0, 100.0, decoding=True),)
    layer = sram_beat.beat(whole, one)
    step = machine_of(cut.system).decode(cut, 1.0, 100.0)
    hops = stages * float(sram_beat.hop_time(cut, 1.0))
    head = float(layer.way.time) - 32 * float(layer.time)
    assert float(step.time) == pytest.approx(32 * float(layer.time) + head + hops)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-32b", "llama-3.3-70b", "gpt-oss-20b"])
def test_fewer_bits_are_never_slower_by_their_layout(model):
    def tpot(precision):
        return perfmodel.predict(model, on="lpu-v1", precision=precision, prompt=1024, output=256).tpot_s

    assert tpot("int8") <= tpot("fp8") * 1.03
    assert tpot("fp8") <= tpot("bf16") * 1.03


@pytest.mark.parametrize("model", sorted(set(PUBLIC_SPEEDS) - set(FITTED_SPEEDS)))
def test_speeds_that_the_fit_did_not_see_are_within_a_fifth(model):
    answer = perfmodel.predict(model, on="lpu-v1", prompt=1024, output=256)
    assert 1 / answer.tpot_s == pytest.approx(public_speed(model), rel=0.20)


@pytest.mark.parametrize("budget", [16, 128, 512])
@pytest.mark.parametrize("clients", [64, 1024, 4096])
def test_no_beat_carries_more_than_its_budget(budget, clients):
    changes = [f"system.efficiency.token_budget={budget}"]
    scenario = resolve(
        "llama-3.1-8b", "lpu-v1:tp=8", Options(prompt=1155.0, output=211.0, concurrency=clients), changes
    )
    loop = machine_of(scenario.system).closed_loop(scenario, Load(float(clients), 1155.0, 211.0))
    assert float(loop.rate * (1155 + 210) * loop.full) <= budget * 1.001


def test_a_draft_that_is_never_accepted_never_helps():
    question = {"on": "lpu-v1:tp=72,pp=21", "prompt": 122, "output": 953}
    for clients in (1, 40, 400, 1000):
        plain = perfmodel.predict("llama-3.1-70b", **question, concurrency=clients)
        never = perfmodel.predict("llama-3.1-70b", **question, concurrency=clients, draft="ngram", k=1, alpha=0.0)
        assert never.output_tokens_per_s <= plain.output_tokens_per_s

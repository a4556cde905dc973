"""Speculation: limits, identities, a simulated walk, and a prediction that is made of those of its two models."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.equations import speculative
from perfmodel.errors import UserError
from perfmodel.machines.speculation import tokens_per_step
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve

LIMITS = settings(derandomize=True, deadline=None, max_examples=25)
CHANCES = st.floats(0.0, 1.0)
DRAFTED = st.integers(1, 16).map(float)
#: Acceptance position by position of n-grams on ShareGPT (data/measured/speculative.csv): far from constant.
N_GRAM = (0.1322, 0.7668, 0.8155, 0.8668, 0.8786)


def spoken(**given):
    """Return the speculation of a question."""
    return resolve("llama-3.1-70b", "dgx-h100", Options(draft="llama-3.2-1b", **given)).speculation


def walk(chances, steps, seed):
    """Return the mean tokens of simulated steps: drafts count until one is refused, and the target adds its own."""
    accepted = np.random.default_rng(seed).random((steps, len(chances))) < np.array(chances)
    return 1 + np.cumprod(accepted, axis=1).sum(axis=1).mean()


# --- tokens a step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1.0, 5.0, 16.0])
def test_limits_of_acceptance(k):
    assert speculative.accepted_length(acceptance=0.0, drafted=k) == 1.0
    assert speculative.accepted_length(acceptance=1.0, drafted=k) == k + 1
    assert speculative.length_of_ratio(ratio=1 / (k + 1), drafted=k) == pytest.approx(1.0, rel=1e-12)
    assert speculative.length_of_ratio(ratio=1.0, drafted=k) == k + 1


@LIMITS
@given(CHANCES, DRAFTED, st.integers(1, 16))
def test_a_constant_vector_of_any_length_is_alpha(chance, k, positions):
    vector = spoken(k=k, accept=[chance] * positions)
    assert tokens_per_step(vector) == pytest.approx(tokens_per_step(spoken(k=k, alpha=chance)), rel=1e-12)


@LIMITS
@given(CHANCES, DRAFTED)
def test_the_three_measures_convert_into_each_other(chance, k):
    length = speculative.accepted_length(acceptance=chance, drafted=k)
    ratio = speculative.acceptance_ratio(length=length, drafted=k)
    assert tokens_per_step(spoken(k=k, ar=max(ratio, 1 / (k + 1)))) == pytest.approx(length, rel=1e-12)


@pytest.mark.parametrize("chances", [(0.8, 0.8, 0.8), (0.91, 0.67 / 0.91), N_GRAM], ids=["even", "MTP", "n-gram"])
def test_the_length_is_that_of_a_simulated_walk(chances):
    found = tokens_per_step(spoken(accept=list(chances)))
    assert found == pytest.approx(walk(chances, 400_000, 1), abs=0.01)


def test_a_shorter_draft_uses_the_first_positions_and_a_longer_one_goes_on_with_the_last():
    for k in range(1, 9):
        vector = [*N_GRAM, *[N_GRAM[-1]] * 4][:k]
        assert tokens_per_step(spoken(k=float(k), accept=N_GRAM)) == pytest.approx(
            1 + sum(math.prod(vector[:depth]) for depth in range(1, k + 1)), rel=1e-12
        )


# --- worth -------------------------------------------------------------------------------------------------------


@LIMITS
@given(CHANCES, DRAFTED, st.floats(0.001, 1.0))
def test_leviathan_is_the_case_of_free_verification_and_no_host(chance, k, cost):
    length = speculative.accepted_length(acceptance=chance, drafted=k)
    step = speculative.speculative_step(draft=cost, drafted=k, verify=1.0, host=0.0)
    general = speculative.speculative_speedup(length=length, plain=1.0, step=step)
    assert general == pytest.approx(speculative.leviathan_speedup(acceptance=chance, drafted=k, cost=cost), rel=1e-12)
    latency = speculative.speculative_latency(draft=cost, target=1.0, drafted=k, ratio=length / (k + 1))
    assert speculative.speculative_throughput(latency=latency) == pytest.approx(general, rel=1e-12)


@LIMITS
@given(st.floats(0.0, 1.0), st.floats(1.0, 2.0), st.floats(0.0, 1.0))
def test_at_the_break_even_acceptance_one_drafted_token_is_worth_nothing(draft, verify, host):
    alpha = speculative.break_even_acceptance(plain=1.0, draft=draft, verify=verify, host=host)
    step = speculative.speculative_step(draft=draft, drafted=1.0, verify=verify, host=host)
    length = speculative.accepted_length(acceptance=alpha, drafted=1.0)
    assert length == pytest.approx(speculative.break_even_length(plain=1.0, step=step), rel=1e-12)


def test_the_roofline_of_speculation_does_not_know_the_bandwidth():
    ratios = []
    for bandwidth in (24.0e12, 25.6e12):
        target, draft = 1.5e11 / bandwidth, 3e9 / bandwidth
        rate = speculative.speculative_roofline_rate(sequences=4.0, length=5.0, drafted=5.0, draft=draft, target=target)
        ratios.append(rate * target / 4.0)
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-12)


@pytest.mark.parametrize("length", [1.0, 2.0, 5.0])
def test_steps_of_an_output_are_those_counted(length):
    """Steps of so many tokens until an output is out, counted, over outputs that leave all there is to the last one."""
    outputs = np.arange(201, 201 + 5 * int(length))
    brought = speculative.tokens_to_end(length=length, output=outputs.astype(float))
    assert np.mean((outputs - 1) / brought) == pytest.approx(np.mean(np.ceil((outputs - 1) / length)), rel=1e-12)


def test_steps_of_an_output_are_near_those_of_a_walk():
    """Steps whose tokens vary need some more than their mean says; counting the last one is the nearer."""
    accepted = np.random.default_rng(3).random((4000, 80, 3)) < 0.6
    tokens = 1 + np.cumprod(accepted, axis=2).sum(axis=2)
    steps = 1 + np.argmax(np.cumsum(tokens, axis=1) >= 40, axis=1)
    length = float(speculative.accepted_length(acceptance=0.6, drafted=3.0))
    told = 40 / speculative.tokens_to_end(length=length, output=41.0)
    assert 40 / length < told < steps.mean() < told * 1.012


# --- predictions -------------------------------------------------------------------------------------------------

ALONE = {"prompt": 2000.0, "output": 500.0}
SYSTEMS = pytest.mark.parametrize("on", ["dgx-h100", "sn40l-16", "lpu-v1"])


def asked(on, model="llama-3.1-70b", changes=(), **options):
    return resolve(model, on, Options(**ALONE, **options), changes)


@SYSTEMS
def test_a_step_is_k_drafts_one_verification_and_the_host(on):
    """One user, whose tokens wait for nobody; the draft alone is another prediction of the same system."""
    answer = evaluate(asked(on, draft="llama-3.2-1b", k=5.0, alpha=0.8))
    speculation = answer.speculation
    host = answer.scenario.speculation.host_time
    # The last step may bring more than is wanted.
    brought = speculative.tokens_to_end(length=speculation["tokens_per_step"], output=ALONE["output"])
    step = answer.metrics["tpot_s"] * brought
    assert step == pytest.approx(5 * speculation["draft_s"] + speculation["verify_s"] + host, rel=1e-9)
    if on != "lpu-v1":  # where the draft's pipeline is shorter than that of a prediction of its own
        # On SN40L the host is asked after every k drafts.
        changes = ["system.efficiency.offloaded_tokens=5"] if on == "sn40l-16" else []
        alone = evaluate(asked(on, "llama-3.2-1b", changes))
        assert speculation["draft_s"] == pytest.approx(alone.metrics["tpot_s"], rel=1e-9)
    assert sum(answer.breakdown["decode"].values()) == pytest.approx(answer.metrics["tpot_s"], rel=1e-12)


@SYSTEMS
def test_verification_costs_more_than_a_plain_step_and_less_than_its_tokens_one_by_one(on):
    changes = ["system.efficiency.schedule_offloading=false"] if on == "sn40l-16" else []
    plain = evaluate(asked(on, changes=changes)).metrics["tpot_s"]
    verify = evaluate(asked(on, draft="ngram", k=7.0, alpha=0.5)).speculation["verify_s"]
    assert plain <= verify * (1 + 1e-12)
    assert verify < 8 * plain


@pytest.mark.parametrize("on", ["dgx-h100", "sn40l-16"])
def test_memory_holds_both_models_and_both_caches(on):
    both = evaluate(asked(on, draft="llama-3.2-1b", k=5.0, alpha=0.8))
    target, draft = evaluate(asked(on)), evaluate(asked(on, "llama-3.2-1b"))
    for use in ("weights", "kv_cache"):
        assert both.memory[use] == pytest.approx(target.memory[use] + draft.memory[use], rel=1e-9)
    assert both.max_concurrency < target.max_concurrency


def test_a_head_holds_neither_embedding_nor_head_twice():
    plain, eagle = (evaluate(asked("dgx-h100", **more)) for more in ({}, {"draft": "eagle", "k": 3.0, "alpha": 0.7}))
    layer = 2 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    assert eagle.memory["weights"] - plain.memory["weights"] == pytest.approx(layer / 8, rel=1e-3)


def test_the_draft_has_stages_of_its_own_on_an_sram_pipeline():
    plain, both = (
        evaluate(asked("lpu-v1", **more)) for more in ({}, {"draft": "llama-3.2-1b", "k": 3.0, "alpha": 0.7})
    )
    assert both.chips > plain.chips
    assert both.memory["weights"] == pytest.approx(plain.memory["weights"], rel=1e-12)


@pytest.mark.parametrize("on", ["dgx-h100", "dgx-b200"])
def test_the_gain_falls_with_the_batch(on):
    """With many users, arithmetic limits the verification, which then pays for each of its tokens."""
    gains = [
        perfmodel.predict(
            "llama-3.1-8b", on=on, tp=1, **ALONE, concurrency=users, draft="eagle", k=3, alpha=0.7
        ).speculation["speedup"]
        for users in (1, 16, 64, 256)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > gains[1] > gains[-1]


def test_an_axis_of_drafted_tokens_gives_single_predictions():
    question = {"on": "dgx-h100", **ALONE, "draft": "llama-3.2-1b", "alpha": 0.8}
    swept = perfmodel.sweep("llama-3.1-70b", axes={"speculation.k": [1, 4, 9]}, k=1, **question).to_frame()
    single = [perfmodel.predict("llama-3.1-70b", k=k, **question).tpot_s for k in (1, 4, 9)]
    assert list(swept["tpot_s"]) == pytest.approx(single, rel=1e-12)


def test_a_draft_whose_heads_do_not_divide_runs_on_fewer_ranks():
    scenario = resolve("llama-3.1-405b", "dgx-h100", Options(draft="qwen2.5-7b", k=3.0, alpha=0.5, precision="fp8"))
    assert scenario.speculation.max_tp == 4  # 28 heads, 4 KV heads
    assert any("4 of 8 ranks" in said for said in scenario.assumed)
    assert any("tokenizer" in said for said in scenario.warnings)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"k": 5.0}, "--k needs --draft"),
        ({"alpha": 0.5}, "--alpha needs --draft"),
        ({"draft": "llama-3.2-1b", "k": 5.0}, "give one of --alpha, --ar or --accept"),
        ({"draft": "llama-3.2-1b", "k": 5.0, "alpha": 0.5, "ar": 0.5}, "give one of"),
        ({"draft": "llama-3.2-1b", "alpha": 0.5}, "give --k"),
        ({"draft": "llama-3.2-1b", "k": 5.0, "ar": 0.1}, "at least 1 / (k + 1)"),
        ({"draft": "llama-3.2-1b", "k": 5.0, "alpha": 1.1}, "between 0 and 1"),
        ({"draft": "llama-3.2-1b", "accept": "0.8,much"}, "--accept"),
        ({"draft": "llama-3.2-1b", "accept": "0.8,1.7"}, "between 0 and 1"),
        ({"draft": "llama-3.2-2b", "k": 5.0, "alpha": 0.5}, "did you mean"),
    ],
)
def test_refusals_name_the_fix(options, complaint):
    with pytest.raises(UserError) as refusal:
        resolve("llama-3.1-70b", "dgx-h100", Options(**options))
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_band_is_wider_with_a_draft():
    """What drafting and verifying leave open comes on top, in TPOT and not in TTFT."""
    question = {"on": "dgx-h100", **ALONE}
    plain = perfmodel.predict("llama-3.1-70b", **question)
    drafted = perfmodel.predict("llama-3.1-70b", **question, draft="ngram", k=4, alpha=0.5)
    width = {
        name: [answer.band[key]["high"] / answer.band[key]["low"] for answer in (plain, drafted)]
        for name, key in (("ttft", "ttft_s"), ("tpot", "tpot_s"))
    }
    assert width["tpot"][1] > width["tpot"][0]
    assert width["ttft"][1] == pytest.approx(width["ttft"][0], rel=1e-9)


def test_without_a_draft_nothing_changes():
    scenario = asked("dgx-h100", draft="ngram", k=4.0, alpha=0.5)
    plain = evaluate(replace(scenario, speculation=None))
    assert plain.metrics == evaluate(asked("dgx-h100")).metrics
    assert plain.speculation == {}

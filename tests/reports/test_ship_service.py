"""The closed loops of a pipeline and of an engine with a token budget: identities, limits, roots, published samples."""

from collections import defaultdict, deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from perfmodel.equations import pipeline
from perfmodel.machines import sram_beat, sram_pipeline
from perfmodel.machines.base import machine_of
from perfmodel.machines.closed_loop import Load
from perfmodel.prediction import run
from perfmodel.question import Options, resolve
from perfmodel.reports.ship.samples import KI, SAMPLES
from perfmodel.serving.fit import fit
from perfmodel.serving.steady import steady_state

DETERMINISTIC = settings(derandomize=True, deadline=None, max_examples=60)


def ship(*changes, **options):
    asked = {"plan": "ship-16x95", "precision": "fp8", "concurrency": 380.0, "prompt": 1820.0, "output": 228.0}
    return resolve("qwen3-235b-a22b", "lpu-v1", Options(**{**asked, **options}), changes)


def closed_loop(scenario, **load):
    return machine_of(scenario.system).closed_loop(scenario, Load(**load))


def most_of(budget, prompt, steps):
    return pipeline.requests_of_full_beats(prefill=prompt / budget, decode=steps / budget)


@DETERMINISTIC
@given(
    running=st.floats(1, 5000),
    prompt=st.floats(1, 1e5),
    steps=st.floats(0, 1e5),
    extra=st.floats(1, 100),
    budget=st.floats(1, 128),
)
def test_requests_per_beat_is_the_root_of_the_balance(running, prompt, steps, extra, budget):
    delay = extra * (1 + steps)

    def balance(requests):
        left = budget - requests * steps
        return running * left - requests * (prompt + delay * left)

    most = budget / steps if steps else 2 * running * budget / prompt
    root = brentq(balance, 0.0, most, xtol=1e-300, rtol=1e-12)
    found = pipeline.requests_per_beat(
        running=running, prompt=prompt, steps=steps, delay=delay, budget=budget, most=most_of(budget, prompt, steps)
    )
    assert found == pytest.approx(min(root, budget / (prompt + steps)), rel=1e-6)


@pytest.mark.parametrize("beat", ["load", "fixed"])
@pytest.mark.parametrize("latency", ["0 s", "50 us"])
@pytest.mark.parametrize(
    ("prompt", "output"), [(1986.0, 62.0), (1024.0, 1024.0), (3641.0, 29127.0), (116508.0, 14564.0)]
)
def test_two_rounds_are_settled(monkeypatch, beat, latency, prompt, output):
    scenario = ship(f"system.efficiency.beat={beat}", f"system.efficiency.layer_latency={latency}")
    found = {}
    for rounds in (2, 40):
        monkeypatch.setattr(sram_pipeline, "_ROUNDS", rounds)
        loop = closed_loop(scenario, running=100.0, prompt=prompt, output=output)
        found[rounds] = [float(loop.rate), float(loop.decoding.step.time)]
    assert found[2] == pytest.approx(found[40], rel=0.01)


@DETERMINISTIC
@given(
    running=st.floats(1, 2000),
    prompt=st.floats(2, 30000),
    output=st.floats(1, 30000),
    budget=st.sampled_from([4.0, 16.0, 36.0, 128.0]),
    beat=st.sampled_from(["load", "fixed"]),
)
def test_no_beat_carries_more_than_its_budget(running, prompt, output, budget, beat):
    scenario = ship(f"system.efficiency.token_budget={budget}", f"system.efficiency.beat={beat}")
    loop = closed_loop(scenario, running=running, prompt=prompt, output=output)
    tokens_per_s = float(loop.rate) * (prompt + output - 1)
    assert tokens_per_s * float(loop.full) <= budget * (1 + 1e-9)
    # Little's law: requests in service are those that prefill, wait and decode.
    life = float(loop.prefill.time + loop.wait + (output - 1) * loop.decoding.step.time)
    assert float(loop.rate) * life == pytest.approx(running, rel=1e-9)


def test_a_saturated_pipeline_gains_nothing_from_more_users():
    one, more = (closed_loop(ship(), running=n, prompt=1986.0, output=62.0) for n in (400.0, 800.0))
    assert float(more.rate) == pytest.approx(float(one.rate), rel=1e-3)
    assert float(more.wait) > 2 * float(one.wait)


def test_a_lone_request_waits_for_nobody():
    scenario = ship(concurrency=1.0)
    steady = steady_state(scenario)
    assert float(steady.waits["prefill"]) == 0
    alone = ship("system.efficiency.beat=fixed", concurrency=1.0)
    assert float(steady_state(alone).tpot) >= float(steady.tpot)


def test_380_users_of_the_evaluated_pipeline_decode_in_micro_batches_of_4():
    """With hardly any prefill, 380 requests put 4 tokens into each of 95 stages."""
    loop = closed_loop(ship(), running=380.0, prompt=1.0, output=1e5)
    assert 380 / (float(loop.decoding.step.time) / float(loop.beat)) == pytest.approx(4, rel=0.2)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_samples_have_the_published_mean_and_share(sample):
    assert sample.tokens == pytest.approx(sample.mean, rel=0.001)
    assert sample.share_below(8 * KI) == pytest.approx(sample.below_8ki, abs=5e-4)
    lengths = sample.lengths(4000)
    assert lengths.max() < sample.longest
    assert lengths.mean() == pytest.approx(sample.tokens, rel=2e-3)
    assert (lengths**2).mean() / lengths.mean() ** 2 == pytest.approx(sample.bias, rel=0.01)


def test_the_reasoning_sample_holds_fewer_than_380_requests():
    """78 with a cache of 16 bits and 155 with 8, from all SRAM less weights; the stage of the ends keeps its share."""
    reasoning = SAMPLES[1]
    for bits, expected in (("bf16", 78), ("fp8", 155)):
        scenario = ship(kv_precision=bits)
        cap = float(fit(scenario, tokens=reasoning.bias * reasoning.tokens).cap)
        assert cap == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize(
    ("prompt", "output", "users"), [(1820.0, 228.0, 9.0), (1820.0, 228.0, 380.0), (7000.0, 1000.0, 64.0)]
)
def test_a_budget_of_8192_is_what_predict_says(prompt, output, users):
    scenario = resolve(
        "qwen3-235b-a22b",
        "dgx-b200:tp=8,engine=sglang,precision=fp8",
        Options(prompt=prompt, output=output, concurrency=users),
    )
    loop = closed_loop(scenario, running=users, prompt=prompt, output=output, budget=8192.0)
    answer = run(scenario)
    assert float(loop.tpot) == pytest.approx(answer.tpot_s, rel=1e-3)
    assert float(loop.ttft) == pytest.approx(answer.ttft_s, rel=0.01)


@pytest.mark.parametrize("lock_step", [False, True])
def test_a_larger_budget_never_costs_throughput(lock_step):
    scenario = resolve("qwen3-235b-a22b", "dgx-b200:tp=8,engine=sglang,precision=fp8", Options())
    prompt = np.array([1000.0, 1986.0, 7000.0, 31000.0])
    small, large = (
        closed_loop(scenario, running=64.0, prompt=prompt, output=prompt / 8, budget=budget, lock_step=lock_step).rate
        for budget in (2048.0, 16384.0)
    )
    assert np.all(large >= small * (1 - 1e-4))


@pytest.mark.parametrize(
    ("switch", "metric", "better"),
    [
        ("dynamic_chunks", "rate", 1),
        ("fused_batches", "rate", 1),
        ("fill_beats", "rate", 1),
        ("decode_first", "tpot", -1),
    ],
)
@pytest.mark.parametrize(("prompt", "output"), [(1986.0, 62.0), (1024.0, 1024.0), (227.0, 1821.0), (7000.0, 1000.0)])
def test_no_means_of_the_scheduler_does_harm_under_load(switch, metric, better, prompt, output):
    found = []
    for on in ("true", "false"):
        loop = closed_loop(ship(f"system.efficiency.{switch}={on}"), running=760.0, prompt=prompt, output=output)
        found.append(float(loop.rate) if metric == "rate" else float(loop.decoding.step.time + loop.stall))
    assert better * found[0] >= better * found[1] * (1 - better * 1e-3)


def test_gathering_tokens_by_expert_pays_once_a_beat_picks_more_than_all_experts():
    """128 experts, 8 a token: streaming each token's own is the cheaper one up to some 16 tokens at the latest."""
    for tokens, cheaper in ((1.0, "per token"), (128.0, "gathered")):
        times = {}
        for name, on in (("per token", "true"), ("gathered", "false")):
            scenario = ship(f"system.efficiency.per_token_experts={on}")
            times[name] = float(sram_beat.plain_beat(scenario, tokens, 1024.0).time)
        assert times[cheaper] <= min(times.values()) * (1 + 1e-9)


def simulated(running, prompt, output, budget, stages, lives):
    """Requests a beat and beats to first token of a pipeline, token by token: decode first, then prompts in order.

    A token that enters at a beat comes out so many stages later and may enter again; a request that ends is replaced.
    Requests start at even distances over one life, so that they are not in lock-step.
    """
    life = stages * output + prompt
    beats = lives * life
    ready = deque()  # decode tokens that may enter, each the number of tokens its request still needs
    waiting = deque()
    leaving = defaultdict(list)
    begun = done = first = firsts = 0
    for beat in range(beats):
        late = beat > beats / 2
        while begun < running and life * begun // running <= beat:
            waiting.append([prompt, beat])
            begun += 1
        for left, arrived in leaving.pop(beat, ()):
            if arrived is not None and late:
                first += beat - arrived
                firsts += 1
            if left:
                ready.append(left)
            else:
                done += late
                waiting.append([prompt, beat])
        room = budget
        while room and ready:
            leaving[beat + stages].append((ready.popleft() - 1, None))
            room -= 1
        while room and waiting:
            took = min(room, waiting[0][0])
            waiting[0][0] -= took
            room -= took
            if not waiting[0][0]:
                leaving[beat + stages].append((output - 1, waiting.popleft()[1]))
    return done / (beats / 2), first / firsts


@pytest.mark.parametrize(
    ("running", "prompt", "output", "budget", "lives"),
    [
        (380, 1986, 62, 16, 25),  # every beat is full, and a life is mostly waiting
        (380, 1024, 1024, 16, 6),
        (380, 227, 1821, 36, 6),
        (284, 1820, 228, 16, 6),
        (71, 7281, 910, 16, 6),
        (20, 4000, 100, 36, 12),
        (1, 500, 50, 16, 200),
    ],
)
def test_the_flow_is_what_a_pipeline_does_token_by_token(running, prompt, output, budget, lives):
    steps, stages = output - 1, 95
    rate, first = simulated(running, prompt, output, budget, stages, lives)
    found = pipeline.requests_per_beat(
        running=float(running),
        prompt=float(prompt),
        steps=float(steps),
        delay=float(stages * (1 + steps)),
        budget=float(budget),
        most=most_of(budget, prompt, steps),
    )
    assert found == pytest.approx(rate, rel=0.05)
    # What is left of a life after decoding is the time to first token.
    assert running / found - steps * stages == pytest.approx(first, rel=0.15, abs=10)

"""What must hold of loads, sizes, pools and spares whatever the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.equations import disaggregation as split
from perfmodel.equations import reliability
from perfmodel.machines.base import machine_of
from perfmodel.planning.front import front
from perfmodel.planning.load import at_rate, load_dict
from perfmodel.planning.size import size
from perfmodel.prediction import run
from perfmodel.question import Options, resolve
from perfmodel.serving.availability import spares_for
from perfmodel.serving.chain import load_queue
from perfmodel.serving.cost import cost_of
from perfmodel.serving.disaggregation import Pools, pools, split_step
from perfmodel.serving.lengths import Lengths, empirical, lognormal
from perfmodel.serving.objectives import Objectives, loaded, queue_of, replicas_for, statistic
from perfmodel.serving.service import serve
from perfmodel.serving.steady import steady_state
from perfmodel.serving.step_times import step_times
from perfmodel.serving.traffic import length_table, lengths_of

FEW = settings(derandomize=True, deadline=None, max_examples=25)


@pytest.fixture(scope="module")
def scenario():
    return resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(traffic="chat"))


@pytest.fixture(scope="module")
def service(scenario):
    lengths = lengths_of(scenario.traffic)
    times = step_times(
        scenario, longest_prompt=float(lengths.prompt.max()), longest=float((lengths.prompt + lengths.output).max())
    )
    return serve(times, lengths)


def test_tabulated_steps_are_those_of_the_machine(scenario, service):
    """At the knots and between them."""
    for batch in (1.0, 17.0, 200.0):
        for context in (100.0, 1300.0, 3777.0):
            exact = float(machine_of(scenario.system).decode(scenario, batch, context).time)
            assert float(service.times.step(batch, context)) == pytest.approx(exact, rel=0.01)
    first, _ = machine_of(scenario.system).prefill(scenario, 1.0, 1000.0, 1155.0, 1.0)
    assert float(service.times.first_token(1155.0, 1.0)) == pytest.approx(float(first.time), rel=0.03)


def test_capacity_is_that_of_a_full_closed_loop(scenario):
    """Both conserve work; fixed lengths, so that they count the same requests."""
    running = 64.0
    fixed = replace(scenario.traffic, lengths="", prompt_scv=0.0, output_scv=0.0, concurrency=running)
    steady = steady_state(replace(scenario, traffic=fixed))
    lengths = lengths_of(fixed)
    times = step_times(scenario, longest_prompt=1155.0, longest=1400.0, cap=running)
    # The closed loop's own count of tokens: the first one comes out of the prefill.
    exact = running / (float(steady.prefill.time) + 210 * float(steady.tpot))
    assert serve(times, lengths).capacity == pytest.approx(exact, rel=0.03)


@FEW
@given(st.floats(0.05, 0.9), st.floats(1.05, 1.3))
def test_times_rise_with_the_load(service, used, more):
    calm = load_queue(service, used * service.capacity)
    busy = load_queue(service, min(0.99, used * more) * service.capacity)
    for time in ("ttft", "tpot", "latency"):
        for what in ("mean", "p50", "p90", "p99"):
            assert statistic(busy, time, what) >= statistic(calm, time, what) * 0.995
    assert busy.running >= calm.running


@FEW
@given(st.floats(0.05, 0.95))
def test_little_holds(service, used):
    """Requests in the replica are the rate times the time that one spends there."""
    queue = load_queue(service, used * service.capacity)
    inside = queue.latency.average - service.times.front - queue.wait.average
    assert queue.running == pytest.approx(queue.rate * inside, rel=0.15)


def test_an_idle_replica_is_as_fast_as_one_request_alone(scenario, service):
    queue = load_queue(service, service.capacity * 1e-6)
    alone = float(machine_of(scenario.system).decode(scenario, 1.0, service.context).time)
    assert statistic(queue, "tpot", "mean") == pytest.approx(alone, rel=0.02)


def test_saturation_has_no_latency(service):
    queue = load_queue(service, service.capacity * 1.2)
    assert queue.saturated
    assert statistic(queue, "ttft", "mean") == float("inf")


def test_the_fewest_replicas_meet_the_objectives_and_one_less_does_not(service):
    objectives = Objectives({("ttft", "p99"): 0.6, ("tpot", "p99"): 0.015})
    count, failing = replicas_for(service, 60.0, 1.0, objectives, 1000)
    assert not failing
    assert not objectives.failed(queue_of(service, 60.0, 1.0, count))
    assert objectives.failed(queue_of(service, 60.0, 1.0, count - 1))
    answer = loaded(service, 60.0, 1.0, count, objectives)
    assert answer.headroom >= 0
    assert not objectives.failed(queue_of(service, 60.0 * (1 + answer.headroom), 1.0, count))
    assert 0.97 * 60 <= answer.goodput <= 60


def test_more_traffic_needs_no_fewer_chips():
    asked = {"options": Options(traffic="chat"), "objectives": Objectives({("tpot", "p99"): 0.05})}
    few, many = (size("llama-3.1-8b", ["dgx-h100"], rate, goal="chips", **asked) for rate in (10.0, 100.0))
    assert few.answers[0].chips <= many.answers[0].chips
    assert many.answers[0].load.rate / many.answers[0].load.replicas <= many.answers[0].load.service.capacity


def test_what_size_found_is_what_predict_answers():
    found = size("llama-3.1-8b", ["dgx-h100:tp=1"], 40.0, Objectives({("tpot", "p99"): 0.05}), Options(traffic="chat"))
    answer = found.answers[0]
    plan = answer.scenario.deployment
    again = at_rate(
        resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(traffic="chat", dp=float(plan.dp))), 40.0, found.objectives
    )
    assert again.load.queue.utilisation == pytest.approx(answer.load.queue.utilisation, rel=0.05)


def test_a_trace_brings_its_own_means(scenario, tmp_path):
    """Tokens a second are those of the file, whatever the traffic is called, and words say so."""
    file = tmp_path / "trace.csv"
    rows = ["arrival_s,input_tokens,output_tokens", *(f"{at},400,{50 + at % 2 * 100}" for at in range(40))]
    file.write_text("\n".join(rows))
    traced = replace(scenario, traffic=replace(scenario.traffic, lengths=str(file)))
    data = load_dict(at_rate(traced, 4.0))
    assert data["output_tokens_per_s"] == pytest.approx(4 * 100)
    assert data["input_tokens_per_s"] == pytest.approx(4 * 400)
    assert data["traffic"]["output"] == pytest.approx(100)
    assert any("trace.csv, as they are" in word for word in data["assumed"])


def test_where_only_short_requests_fit_there_is_an_answer(scenario):
    long = replace(scenario, traffic=replace(scenario.traffic, prompt=600_000.0))
    answer = at_rate(long, 0.001)
    assert 0 < answer.load.service.refused < 1
    data = load_dict(answer)
    assert data["load"]["goodput_per_s"] < 0.001
    assert {"prefill", "decode"} <= set(data["limited_by"])


def test_what_a_cache_saves_is_saved_in_power_and_work_too(scenario):
    hits = replace(scenario, traffic=replace(scenario.traffic, prefix_hits=0.9))
    whole, saved = (at_rate(asked, 10.0) for asked in (scenario, hits))
    assert saved.power_w < whole.power_w
    assert saved.usd_per_mtok < whole.usd_per_mtok
    assert load_dict(saved)["mfu"] < load_dict(whole)["mfu"]


@pytest.mark.parametrize("on", ["dgx-h100:tp=1", "sn40l-16", "lpu-v1"])
@pytest.mark.parametrize("hits", [0.5, 0.75])
def test_a_closed_loop_computes_what_a_cache_does_not_hold_and_holds_all(on, hits):
    """Attention is causal: the rest of a prompt costs what the whole does, less what its cached part would alone."""
    alone = resolve("llama-3.1-8b", on, Options(prompt=4096, output=128))

    def asked(prompt, share=0.0):
        return replace(alone, traffic=replace(alone.traffic, prompt=prompt, prefix_hits=share))

    whole, saved, part = (steady_state(one) for one in (asked(4096.0), asked(4096.0, hits), asked(4096.0 * hits)))
    # Each pass ends with the head on one token.
    model = alone.model
    head = 2 * float(model.hidden) * float(model.vocab)
    left = float(whole.prefill.flops - part.prefill.flops)
    assert float(saved.prefill.flops) == pytest.approx(left, rel=1e-9, abs=1.01 * head)
    assert saved.ttft < whole.ttft
    assert float(saved.decode.time) == pytest.approx(float(whole.decode.time), rel=0.01)
    assert saved.fit.cap == whole.fit.cap
    assert run(asked(4096.0, hits)).max_concurrency == run(asked(4096.0)).max_concurrency


@pytest.mark.parametrize(("prompt", "output"), [(1000.0, 2.0), (1000.0, 5.0), (8000.0, 10.0), (1000.0, 200.0)])
def test_one_request_alone_gets_the_step_of_one(scenario, prompt, output):
    """However few its tokens: the chain, the closed loop of one client, and what the search takes as the least."""
    fixed = replace(
        scenario.traffic, prompt=prompt, output=output, lengths="", prompt_scv=0.0, output_scv=0.0, concurrency=1.0
    )
    alone = replace(scenario, traffic=fixed)
    step = float(steady_state(alone).tpot)
    queue = at_rate(alone, 1e-4).load.queue
    assert statistic(queue, "tpot", "mean") == pytest.approx(step, rel=0.02)
    assert statistic(queue, "latency", "mean") == pytest.approx(float(steady_state(alone).latency), rel=0.02)
    (search,) = size(
        "llama-3.1-8b",
        ["dgx-h100:tp=1"],
        1e-3,
        Objectives({("tpot", "mean"): step * 1.05}),
        Options(traffic="chat"),
        [f"traffic.prompt={prompt:g}", f"traffic.output={output:g}", "traffic.lengths=fixed"],
    ).answers
    assert statistic(search.load.queue, "tpot", "mean") <= step * 1.05


@pytest.mark.parametrize("replicas", [2.0, 8.0, 32.0])
@pytest.mark.parametrize("rate", [1e-4, 1e-2, 0.1])
def test_replicas_that_are_nearly_idle_serve_as_one_alone(scenario, replicas, rate):
    """However many replicas a router keeps level: Little's law, and the times of a request that meets nobody."""
    laid = replace(scenario, deployment=replace(scenario.deployment, dp=replicas))
    queue = at_rate(laid, rate).load.queue
    alone = at_rate(scenario, 1e-5).load.queue
    assert statistic(queue, "ttft", "mean") == pytest.approx(statistic(alone, "ttft", "mean"), rel=0.05)
    assert queue.running == pytest.approx(rate / replicas * statistic(queue, "latency", "mean"), rel=0.05)


def test_rates_power_and_cost_are_those_of_the_arrivals(scenario):
    """Tokens a second are arrivals times lengths; a price of tokens counts the share of the day that serves."""
    tokens = float(scenario.traffic.prompt + scenario.traffic.output)
    for rate in (0.01, 1.0, 20.0):
        answer = at_rate(scenario, rate)
        data = load_dict(answer)
        assert data["output_tokens_per_s"] == pytest.approx(rate * float(scenario.traffic.output))
        assert data["power_w"] == pytest.approx(data["joules_per_output_token"] * data["output_tokens_per_s"])
        assert data["power_w"] == pytest.approx(answer.power_w)
        sold = rate * float(scenario.economics.utilisation) * tokens * 3600
        assert data["usd_per_mtok"]["blended"]["p50"] == pytest.approx(answer.usd_per_hour / sold * 1e6)
        assert answer.usd_per_mtok == pytest.approx(data["usd_per_mtok"]["blended"]["p50"])


def test_a_deployment_that_hardly_works_draws_what_an_idle_one_does(scenario):
    idle = float(cost_of(scenario).draw.idle.watts)
    assert at_rate(scenario, 1e-6).power_w == pytest.approx(idle, rel=1e-4)
    served, beyond = (at_rate(scenario, rate) for rate in (20.0, 1e4))
    assert beyond.load.queue.saturated
    assert idle < served.power_w < beyond.power_w
    assert load_dict(beyond)["usd_per_mtok"] == {"input": None, "output": None, "blended": None}


@pytest.mark.parametrize("rate", [1.0, 4.0, 60.0])
def test_no_plan_asked_for_by_hand_takes_fewer_chips_than_the_search(rate):
    """Over every tensor-parallel degree on one node; each answer is one that its simulation bears out."""
    limits = Objectives({("ttft", "p99"): 2.0, ("tpot", "p99"): 0.05})
    options = Options(traffic="chat")
    (best,) = size("llama-3.1-70b", ["dgx-h100"], rate, limits, options).answers
    for tp in (2, 4, 8):
        for other in size("llama-3.1-70b", [f"dgx-h100:tp={tp},pp=1"], rate, limits, options).answers:
            assert best.chips <= other.chips
            assert best.checked.met


@FEW
@given(st.lists(st.tuples(*[st.floats(0.1, 10)] * 3), min_size=1, max_size=60))
def test_the_pareto_front_is_what_brute_force_finds(points):
    rows = np.array(points)
    kept = np.zeros(len(rows), dtype=bool)
    kept[front(rows)] = True
    for at, row in enumerate(rows):
        better = np.any(np.all(rows <= row, axis=1) & np.any(rows < row, axis=1))
        if kept[at]:
            assert not better
        else:
            assert better or np.any(np.all(rows[kept] == row, axis=1))


@pytest.mark.parametrize(("name", "prompt", "output"), [("azure-chat", 1154.7, 211.1), ("azure-code", 2047.8, 27.88)])
def test_tables_of_lengths_keep_the_means_of_their_traces(name, prompt, output):
    """Means of the Azure traces, as their publication gives them."""
    table = length_table(name)
    assert table.weight.sum() == pytest.approx(1)
    assert table.mean(table.prompt) == pytest.approx(prompt, rel=1e-3)
    assert table.mean(table.output) == pytest.approx(output, rel=1e-3)


@FEW
@given(st.floats(10, 5000), st.floats(0, 3))
def test_lognormal_lengths_keep_mean_and_spread(mean, scv):
    lengths = lognormal(mean, scv, 100.0, 0.0)
    assert lengths.mean(lengths.prompt) == pytest.approx(mean, rel=0.02)
    spread = lengths.mean(lengths.prompt**2) / lengths.mean(lengths.prompt) ** 2 - 1
    assert scv * 0.6 - 1e-9 <= spread <= scv * 1.02 + 1e-9


def test_an_empirical_table_keeps_quantiles():
    generator = np.random.default_rng(0)
    prompt = generator.lognormal(6, 1, 20_000)
    table = empirical(prompt, generator.lognormal(5, 0.7, 20_000))
    order = np.argsort(table.prompt)
    share = np.cumsum(table.weight[order])
    for quantile in (0.5, 0.9, 0.99):
        found = table.prompt[order][np.searchsorted(share, quantile)]
        assert found == pytest.approx(np.quantile(prompt, quantile), rel=0.12)


# --- pools and spares --------------------------------------------------------------------------------------------


def test_pools_share_what_one_replica_would_do(scenario):
    lengths = Lengths(np.array([1000.0]), np.array([200.0]), np.array([1.0]))
    found = pools(scenario, scenario, lengths, 20.0, 1.0, Objectives())
    assert isinstance(found, Pools)
    # A replica that does both is no faster than the two halves of its work in series.
    times = step_times(scenario, longest_prompt=1000.0, longest=1200.0)
    both = serve(times, lengths).capacity
    halves = 1 / (1 / found.prefill.service.capacity + 1 / found.decode.service.capacity)
    assert both == pytest.approx(halves, rel=0.06)
    assert found.ratio == pytest.approx(found.decode.service.capacity / found.prefill.service.capacity)


def test_a_whole_request_is_prefill_transfer_and_decode_together(scenario):
    """A bound that decoding alone would keep is no bound kept."""
    lengths = Lengths(np.array([4000.0]), np.array([50.0]), np.array([1.0]))
    key = ("latency", "mean")
    free = pools(scenario, scenario, lengths, 5.0, 1.0, Objectives())
    assert isinstance(free, Pools)
    decoding = statistic(free.decode.queue, *key)
    whole = statistic(free.prefill.queue, "ttft", "mean") + free.transfer + decoding
    assert pools(scenario, scenario, lengths, 5.0, 1.0, Objectives({key: decoding * 1.001})) == [key]
    assert isinstance(pools(scenario, scenario, lengths, 5.0, 1.0, Objectives({key: whole * 1.001})), Pools)


def test_more_prompt_for_each_output_takes_more_prefill(scenario):
    ratios = []
    for prompt in (500.0, 1000.0, 2000.0, 4000.0):
        lengths = Lengths(np.array([prompt]), np.array([200.0]), np.array([1.0]))
        found = pools(scenario, scenario, lengths, 5.0, 1.0, Objectives())
        assert isinstance(found, Pools)
        ratios.append(found.ratio)
    assert ratios == sorted(ratios)


def test_a_split_layer_is_no_faster_than_its_parts(scenario):
    whole = float(machine_of(scenario.system).decode(scenario, 32.0, 1000.0).time)
    assert split_step(scenario, scenario, 32.0, 1000.0, 1.0) >= whole


def test_the_cache_moves_at_the_slower_side():
    assert split.transfer_time(size=100.0, sending=10.0, receiving=50.0, latency=1.0) == 11.0


def test_one_in_ten_broken_needs_the_binomial_spares():
    """9 of 10 replicas at 90 %: P(at least 9 of 10) = 10 x 0.9^9 x 0.1 + 0.9^10."""
    assert spares_for(9, 0.9, 0.73)[0] == 1
    assert spares_for(9, 0.9, 0.73)[1] == pytest.approx(10 * 0.9**9 * 0.1 + 0.9**10)
    assert spares_for(9, 0.9, 0.999)[0] > 3
    assert spares_for(5, 1.0, 0.9999)[0] == 0
    assert spares_for(10, 0.0, 0.9)[0] == -1


def test_the_training_cluster_of_llama_3_fails_every_three_hours():
    """419 interruptions in 54 days on 16,384 GPUs."""
    found = reliability.instance_mtbf(chip_mtbf=50677 * 3600.0, chips=16384.0)
    assert found / 3600 == pytest.approx(54 * 24 / 419, rel=1e-3)

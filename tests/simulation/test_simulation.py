"""The simulation against exact theory, and the closed form against the simulation."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("simpy")

from perfmodel.equations import queueing
from perfmodel.question import Options, resolve
from perfmodel.serving.chain import load_queue, serve
from perfmodel.serving.lengths import Lengths, lognormal
from perfmodel.serving.step_times import StepTimes, step_times
from perfmodel.studies.simulate import Load, arrivals, drawn, simulate


def constant(step: float, prefill: float, cap: float, longest: float = 4000.0) -> StepTimes:
    """Steps that take the same time whatever their batch."""
    batch = np.arange(cap + 1)
    two = np.array([1.0, longest])
    flat = np.full((2, 2), prefill)
    return StepTimes(
        batch=batch,
        context=two,
        decode=np.where(batch > 0, step, 0.0) * np.ones((2, 1)),
        prompt=two,
        company=np.array([1.0, 2.0]),
        occupancy=flat,
        latency=flat,
        slot=flat,
        rides=False,
        budget=8192.0,
        front=0.0,
        pool=1e12,
        length=two,
        held=two,
        cap=cap,
    )


def within_three_errors(values: np.ndarray, exact: float, batches: int = 20) -> None:
    """Means of batches of neighbours are nearly independent, single waits are not."""
    means = np.array([part.mean() for part in np.array_split(values, batches)])
    error = means.std(ddof=1) / np.sqrt(batches)
    assert abs(means.mean() - exact) <= 3 * error


@pytest.mark.parametrize("used", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("output", [2.0, 6.0])
def test_one_slot_is_m_d_1(used, output):
    service = 0.4 + (output - 1) * 0.1
    times = constant(0.1, 0.4, cap=1.0)
    ran = simulate(times, drawn(used / service, 1.0, lognormal(10.0, 0.0, output, 0.0), 6000, 3)).after(0.1)
    exact = queueing.single_server_wait(utilisation=used, service=service, service_scv=0.0)
    within_three_errors(ran.wait, exact)
    assert ran.tpot == pytest.approx(np.full(len(ran.tpot), 0.1))


def test_one_slot_with_two_lengths_is_m_g_1():
    lengths = Lengths(np.array([10.0, 10.0]), np.array([2.0, 40.0]), np.array([0.8, 0.2]))
    service = 0.1 + (lengths.output - 1) * 0.1
    mean = lengths.mean(service)
    scv = lengths.mean(service**2) / mean**2 - 1
    ran = simulate(constant(0.1, 0.1, cap=1.0), drawn(0.6 / mean, 1.0, lengths, 12_000, 3)).after(0.1)
    within_three_errors(ran.wait, queueing.single_server_wait(utilisation=0.6, service=mean, service_scv=scv))


def test_slots_without_interference_are_m_m_c():
    """Geometric outputs of many tokens: the wait is that of Erlang C, and half a step more where a step runs."""
    slots, output, step, count = 6, 120.0, 0.001, 12_000
    generator = np.random.default_rng(8)
    rate = 0.8 * slots / (output * step)
    load = Load(
        arrivals(rate, 1.0, count, generator), np.full(count, 5.0), generator.geometric(1 / output, size=count) * 1.0
    )
    ran = simulate(constant(step, 1e-9, cap=float(slots)), load).after(0.1)
    exact = queueing.exponential_wait(servers=float(slots), load=0.8 * slots, service=output * step)
    within_three_errors(ran.wait - step / 2, exact)


def test_enough_slots_are_m_g_infinity():
    """Little, and a number in progress that is the load, whatever the lengths."""
    lengths = lognormal(10.0, 0.0, 200.0, 1.0)
    ran = simulate(constant(0.001, 1e-9, cap=400.0), drawn(100.0, 1.0, lengths, 8000, 5))
    served = np.mean(ran.latency - ran.wait)
    assert ran.running == pytest.approx(8000 / ran.span * served, rel=1e-6)
    assert served == pytest.approx(0.001 * lengths.mean(np.round(lengths.output) - 1), rel=0.05)


def test_a_closed_loop_without_thinking_keeps_its_clients_running():
    """And conserves work: every other request is prefilled once in the life of each."""
    lengths = lognormal(10.0, 0.0, 50.0, 0.5)
    ran = simulate(constant(0.01, 0.02, cap=8.0), drawn(1.0, 1.0, lengths, 2000, 1), sessions=8)
    # A client's next request comes when the step after its last token has begun.
    assert ran.running == pytest.approx(8.0 * 50 / 51, rel=0.01)
    output = lengths.mean(np.round(lengths.output))
    exact = queueing.saturated_rate(running=8.0, output=output, step=0.01 * (1 - 1 / output), occupancy=0.02)
    assert 2000 / ran.span == pytest.approx(exact * 50 / 51, rel=0.03)


def test_what_no_pool_holds_is_refused_and_the_rest_served():
    times = constant(0.01, 0.02, cap=8.0)
    small = StepTimes(**{**times.__dict__, "pool": 100.0})
    load = Load(np.arange(3.0), np.array([20.0, 500.0, 20.0]), np.array([10.0, 10.0, 10.0]))
    ran = simulate(small, load)
    assert ran.refused == 1
    assert np.isnan(ran.ttft).tolist() == [False, True, False]


# --- the closed form ---------------------------------------------------------------------------------------------

SYSTEMS = (
    ("llama-3.1-8b", "dgx-h100:tp=1"),
    ("llama-3.1-70b", "dgx-h100:tp=8"),
    ("llama-3.1-70b", "dgx-h100:tp=2,precision=fp8"),
    ("qwen3-32b", "dgx-b200:tp=1"),
    ("gpt-oss-120b", "dgx-h200:tp=2"),
    ("qwen3-235b-a22b", "lpu-v1"),
    ("llama-3.1-70b", "sn40l-16"),
)
SETTINGS = 64


@functools.cache
def traces() -> tuple[Lengths, ...]:
    from perfmodel.serving.traffic import length_table

    return tuple(length_table(name) for name in ("azure-chat", "azure-code"))


def mix(generator: np.random.Generator) -> Lengths:
    kind = generator.integers(5)
    prompt, output = float(generator.choice([256, 1024, 4000])), float(generator.choice([64, 256, 700]))
    if kind == 0:
        return lognormal(prompt, 0.0, output, 0.0)
    if kind == 1:
        return lognormal(prompt, 1.0, output, 0.7)
    if kind == 2:
        return lognormal(8000.0, 1.0, 250.0, 0.7)
    return traces()[kind - 3]


@functools.cache
def compared() -> dict[str, np.ndarray]:
    """Relative differences of the closed form from the simulation, over settings drawn once and for all."""
    generator = np.random.default_rng(20261129)
    found: dict[str, list[float]] = {key: [] for key in ("ttft mean", "ttft p99", "tpot mean", "tpot p99")}
    for seed in range(SETTINGS):
        model, on = SYSTEMS[generator.integers(len(SYSTEMS))]
        lengths, scv = mix(generator), float(generator.choice([0.25, 0.5, 1.0, 2.0, 4.0]))
        used, cap = float(generator.uniform(0.2, 0.9)), generator.choice([16.0, 64.0, 256.0])
        scenario = resolve(model, on, Options(prompt=1024, output=256))
        times = step_times(
            scenario,
            longest_prompt=float(lengths.prompt.max()),
            longest=float((lengths.prompt + lengths.output).max()),
            cap=float(cap),
        )
        service = serve(times, lengths)
        rate = used * service.capacity
        queue = load_queue(service, rate, scv)
        assert not queue.saturated
        ran = simulate(times, drawn(rate, scv, service.lengths, 3000, seed)).after(0.15)
        for name in ("ttft", "tpot"):
            values = getattr(ran, name)
            values = values[~np.isnan(values)]
            law = getattr(queue, name).summary()
            found[f"{name} mean"].append(law["mean"] / values.mean() - 1)
            found[f"{name} p99"].append(law["p99"] / np.percentile(values, 99) - 1)
    return {key: np.array(errors) for key, errors in found.items()}


MISSED = pytest.mark.xfail(
    strict=True, reason="about 20 %: the tail of TTFT where arrivals bunch or prefill fills a replica"
)


@pytest.mark.parametrize(
    ("quantity", "target"),
    [
        ("ttft mean", 0.08),
        ("tpot mean", 0.08),
        pytest.param("ttft p99", 0.15, marks=MISSED),
        ("tpot p99", 0.15),
    ],
)
def test_the_closed_form_is_near_the_simulation(quantity, target):
    assert np.median(np.abs(compared()[quantity])) <= target


@pytest.mark.parametrize(
    ("on", "sessions", "think"),
    [("dgx-h100:tp=1", 64, 0.0), ("dgx-h100:tp=1", 64, 5.0), ("dgx-h100:tp=1", 500, 0.0), ("sn40l-16", 100, 10.0)],
)
def test_a_closed_loop_is_near_the_simulation(on, sessions, think):
    from perfmodel.studies.simulate import ask

    scenario = resolve("llama-3.1-8b", on, Options(traffic="chat"), [f"traffic.think_time={think}"])
    found = ask(scenario, sessions=sessions, count=4000)
    for time in ("ttft_s", "tpot_s", "request_latency_s"):
        assert abs(found.differences()[time]["mean"]) <= 0.1

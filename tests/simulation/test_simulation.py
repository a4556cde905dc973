"""The simulation against exact theory, and the closed form against the simulation."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.equations import batching, queueing
from perfmodel.planning.events import simulate
from perfmodel.planning.requests import Load, arrivals, drawn
from perfmodel.serving.lengths import Lengths, lognormal
from perfmodel.serving.step_times import StepTimes


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
        coscheduled=np.array([1.0, 2.0]),
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
    ran = simulate(constant(0.01, 0.02, cap=8.0), drawn(1.0, 1.0, lengths, 2000, 1), clients=8)
    # A client's next request comes when the step after its last token has begun.
    assert ran.running == pytest.approx(8.0 * 50 / 51, rel=0.01)
    output = lengths.mean(np.round(lengths.output))
    exact = batching.saturated_rate(running=8.0, output=output, step=0.01 * (1 - 1 / output), occupancy=0.02)
    assert 2000 / ran.span == pytest.approx(exact * 50 / 51, rel=0.03)


def test_what_no_pool_holds_is_refused_and_the_rest_served():
    times = constant(0.01, 0.02, cap=8.0)
    small = StepTimes(**{**times.__dict__, "pool": 100.0})
    load = Load(np.arange(3.0), np.array([20.0, 500.0, 20.0]), np.array([10.0, 10.0, 10.0]))
    ran = simulate(small, load)
    assert ran.refused == 1
    assert np.isnan(ran.ttft).tolist() == [False, True, False]

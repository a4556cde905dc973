"""Sessions on an engine: against the exact finite-source queue, and both fixed points from a warm and a cold start."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.serving.session_engine import run_sessions
from perfmodel.serving.session_loop import session_answer, session_cliff
from perfmodel.serving.session_machine import SessionMachine, SessionRouting, Tier
from perfmodel.serving.sessions import Quantiles, SessionTraffic, calls_of, drawn_calls


def machine(tokens: float, prefill: float = 3e-5, bend: float = 2e-10, slots: float = 512.0) -> SessionMachine:
    prompt = np.geomspace(1.0, 2e5, 60)
    time = 0.004 + prompt * prefill + prompt**2 * bend
    batch = np.arange(1.0, 513.0)
    return SessionMachine(tokens * 1e5, 1e5, prompt, time, time, batch, 0.008 + 1e-4 * batch, slots=slots)


def agents() -> SessionTraffic:
    shares = (0.1, 0.5, 0.9)
    return SessionTraffic(
        turns=Quantiles(shares, (20, 50, 100)),
        first=Quantiles(shares, (8e3, 15e3, 30e3)),
        growth=Quantiles(shares, (200, 700, 2500)),
        output=Quantiles(shares, (80, 200, 600)),
        tool_gap=Quantiles(shares, (1, 4, 20)),
        human_gap=Quantiles(shares, (20, 90, 400)),
        human_share=0.12,
    )


#: Contexts that the memory holds, of 47,000 tokens each in the mean.
TOKENS = 4.5e6


@pytest.mark.parametrize("users", [2, 8, 30])
def test_without_reuse_it_is_the_machine_repairman(users):
    """Exponential service and pauses: M/M/1//N (Kleinrock 1975), whose throughput is exact."""
    generator = np.random.default_rng(4)
    count, service, think = 40_000, 0.1, 1.0
    prompt = generator.exponential(service / 1e-6, count) + 1
    calls = calls_of(
        np.zeros(count, dtype=int), generator.exponential(think, count), prompt, np.ones(count), np.zeros(count),
        np.ones(count, dtype=bool),
    )  # fmt: skip
    linear = np.array([1.0, 1e8])
    server = SessionMachine(1e16, 1.0, linear, 1e-6 * linear, 1e-6 * linear, np.array([1.0, 512.0]), np.full(2, 1e-9))
    run = run_sessions(server, calls, users, 60_000, seed=5)
    weights = [1.0]
    for waiting in range(users):
        weights.append(weights[-1] * (users - waiting) * service / think)
    exact = (1 - 1 / sum(weights)) / service
    late = run.ended[20_000:]
    assert (len(late) - 1) / (late[-1] - late[0]) == pytest.approx(exact, rel=0.02)


def test_below_the_cliff_and_above_it():
    """The loop of means against the calls one by one, where only one fixed point is stable."""
    for users, apart in ((10, 0.01), (50, 0.01), (100, 0.02), (200, 0.05)):
        closed = session_answer(machine(TOKENS), agents(), float(users))
        run = run_sessions(machine(TOKENS), drawn_calls(agents()), users, 20_000)
        late = slice(10_000, None)
        assert closed.cold is None
        assert closed.hit_rate == pytest.approx(run.hit_rate(), abs=apart)
        assert closed.call == pytest.approx((run.ended - run.asked)[late].mean(), rel=0.15)
        # So many are with the machine or in a pause.
        assert closed.call_rate == pytest.approx(10_000 / np.ptp(run.ended[late]), rel=0.1)


def test_a_cold_start_stays_cold_where_a_warm_one_stays_warm():
    closed = session_answer(machine(TOKENS), agents(), 120.0)
    assert closed.cold is not None
    warm, cold = (
        run_sessions(machine(TOKENS), drawn_calls(agents()), 120, 20_000, warm=warm) for warm in (True, False)
    )
    assert closed.hit_rate == pytest.approx(warm.hit_rate(), abs=0.03)
    assert closed.cold.hit_rate == pytest.approx(cold.hit_rate(), abs=0.1)
    for found, run in ((closed, warm), (closed.cold, cold)):
        late = slice(10_000, None)
        assert found.call == pytest.approx((run.ended - run.asked)[late].mean(), rel=0.25)


def test_the_cliff_lies_where_runs_fall():
    """From a warm start; fewer users recover from a cold one."""
    cliff = session_cliff(machine(TOKENS), agents(), 100.0)
    assert cliff.users_cold <= cliff.users
    below, above = (
        run_sessions(machine(TOKENS), drawn_calls(agents()), int(cliff.users * part), 16_000) for part in (0.9, 1.2)
    )
    assert below.hit_rate() >= cliff.share * 0.95 > 0.3 > above.hit_rate()


def test_a_host_tier_takes_what_memory_lost():
    tier = Tier("host", 3 * TOKENS * 1e5, 50e9, start=0.005)
    closed = session_answer(machine(TOKENS), agents(), 160.0, [tier])
    run = run_sessions(machine(TOKENS), drawn_calls(agents()), 160, 20_000, tiers=[tier])
    late = slice(10_000, None)
    loaded = run.loaded[late].sum() / run.prompt[late].sum()
    assert closed.hit_rate == pytest.approx(run.hit_rate(), abs=0.02)
    assert closed.hit_by_tier["host"] == pytest.approx(loaded, abs=0.05)
    assert closed.call == pytest.approx((run.ended - run.asked)[late].mean(), rel=0.2)


def test_least_served_first_lets_new_sessions_start_sooner():
    """Where all wait, the first calls of sessions wait less and the mean of all does not rise by much."""
    calls = drawn_calls(agents())
    fifo, least = (
        run_sessions(machine(TOKENS), calls, 160, 12_000, scheduler=scheduler)
        for scheduler in ("arrival", "least-served")
    )
    # Whoever was served least has the shortest context.
    short = [run.prompt < np.quantile(run.prompt, 0.2) for run in (fifo, least)]
    waits = [(run.first - run.asked)[of].mean() for run, of in zip((fifo, least), short, strict=True)]
    assert waits[1] < waits[0]


@pytest.mark.parametrize("users", [50, 110])
def test_quantiles_of_the_first_token(users):
    closed = session_answer(machine(TOKENS), agents(), float(users))
    run = run_sessions(machine(TOKENS), drawn_calls(agents()), users, 30_000)
    waited = (run.first - run.asked)[10_000:]
    assert closed.ttft == pytest.approx(waited.mean(), rel=0.3)
    for share in (0.5, 0.95, 0.99):
        assert closed.first_token.quantile(share) == pytest.approx(np.quantile(waited, share), rel=0.35, abs=0.1)


def test_a_pooled_store_makes_up_for_random_routing():
    """At random over four replicas most contexts lie elsewhere, and a store that all share finds them."""
    users, store = 160.0, Tier("store", 1e15, 50e9, pooled=True)
    sticky, scattered, pooled = (
        session_answer(machine(TOKENS), agents(), users, tiers, SessionRouting(4.0, policy))
        for policy, tiers in (("sticky", []), ("random", []), ("random", [store]))
    )
    assert scattered.hit_rate < 0.9 * sticky.hit_rate
    assert scattered.hit_ceiling == sticky.hit_ceiling
    # Nothing is lost where everything is held somewhere.
    assert pooled.hit_rate == pytest.approx(pooled.hit_ceiling, abs=1e-3)
    assert sticky.ttft < pooled.ttft < scattered.ttft


def test_subagents_are_sessions_of_the_same_task():
    """Twice the sessions of half the users: the same machine, half the tasks."""
    alone = session_answer(machine(TOKENS), agents(), 100.0)
    two = session_answer(machine(TOKENS), replace(agents(), fan_out=2.0), 50.0)
    assert two.call == pytest.approx(alone.call)
    assert two.tasks_per_hour == pytest.approx(alone.tasks_per_hour / 2)

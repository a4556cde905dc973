"""Queueing equations against exact theory, and what must hold for any load."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from perfmodel.equations import batching, queueing
from perfmodel.serving.arrivals import dispersion
from perfmodel.serving.chain import stationary

EXACT = settings(derandomize=True, deadline=None, max_examples=60)
SERVERS = st.integers(1, 400)
SHARE = st.floats(0.05, 0.97)


@EXACT
@given(SERVERS, SHARE)
def test_erlang_b_is_a_truncated_poisson(servers, share):
    load = share * servers
    law = poisson(load)
    assert queueing.blocking_probability(servers=float(servers), load=load) == pytest.approx(
        law.pmf(servers) / law.cdf(servers), rel=1e-9
    )


@pytest.mark.parametrize("servers", [1e3, 1e4, 1e5])
def test_erlang_is_stable_for_many_servers(servers):
    """Halfin and Whitt 1981: with c = a + b sqrt(a) the probability to wait tends to a law of b alone."""
    beta = 1.0
    load = servers - beta * math.sqrt(servers)
    phi, density = 0.8413447460685429, math.exp(-0.5) / math.sqrt(2 * math.pi)
    limit = 1 / (1 + beta * phi / density)
    found = queueing.waiting_probability(servers=servers, load=load)
    assert found == pytest.approx(limit, abs=0.35 / math.sqrt(servers) + 1e-3)


@EXACT
@given(SERVERS, SHARE)
def test_erlang_c_sums_the_states_of_the_chain(servers, share):
    load = share * servers
    counts = np.arange(1.0, servers + 1)
    probability, beyond, excess = stationary(np.log(load) - np.log(counts), load / servers)
    waiting = probability[-1] + beyond
    assert queueing.waiting_probability(servers=float(servers), load=load) == pytest.approx(waiting, rel=1e-9)
    # Little: mean number waiting = rate x mean wait, at a service time of 1.
    assert load * queueing.exponential_wait(servers=float(servers), load=load, service=1.0) == pytest.approx(
        excess, rel=1e-9
    )


@EXACT
@given(st.floats(0.01, 0.99), st.floats(0.001, 10))
def test_one_server_is_textbook(used, service):
    wait = queueing.exponential_wait(servers=1.0, load=used, service=service)
    assert wait == pytest.approx(used * service / (1 - used), rel=1e-9)
    assert queueing.single_server_wait(utilisation=used, service=service, service_scv=1.0) == pytest.approx(wait)
    fixed = queueing.single_server_wait(utilisation=used, service=service, service_scv=0.0)
    assert fixed == pytest.approx(wait / 2)
    assert queueing.deterministic_wait(wait=wait, servers=1.0, load=used) == pytest.approx(fixed)


@EXACT
@given(SERVERS, SHARE, st.floats(0, 6))
def test_kimura_and_allen_cunneen_meet_the_exact_cases(servers, share, scv):
    count, load = float(servers), share * servers
    wait = max(1e-250, queueing.exponential_wait(servers=count, load=load, service=1.0))
    fixed = queueing.deterministic_wait(wait=wait, servers=count, load=load)
    assert queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=1.0) == pytest.approx(wait)
    assert queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=0.0) == pytest.approx(fixed)
    assert queueing.allen_cunneen_wait(wait=wait, arrival_scv=1.0, service_scv=1.0) == pytest.approx(wait)
    if servers == 1:
        exact = queueing.single_server_wait(utilisation=load, service=1.0, service_scv=scv)
        assert queueing.kimura_wait(wait=wait, deterministic=fixed, service_scv=scv) == pytest.approx(exact)
        assert queueing.allen_cunneen_wait(wait=wait, arrival_scv=1.0, service_scv=scv) == pytest.approx(exact)


#: Mean number waiting in M/D/c: Seelen, Tijms and van Hoorn 1985, Tables for Multi-Server Queues, as ratio to M/M/c.
@pytest.mark.parametrize(("servers", "share", "ratio"), [(2, 0.8, 0.5145), (5, 0.8, 0.537), (10, 0.9, 0.527)])
def test_cosmetatos_is_near_the_exact_ratio(servers, share, ratio):
    load = servers * share
    wait = queueing.exponential_wait(servers=float(servers), load=load, service=1.0)
    found = queueing.deterministic_wait(wait=wait, servers=float(servers), load=load) / wait
    assert found == pytest.approx(_fixed_ratio(servers, share), rel=0.02)


def _fixed_ratio(servers, share):
    """Exact mean wait of M/D/c over that of M/M/c, from the chain at multiples of a service (Crommelin 1932)."""
    load, most = servers * share, 40 * servers
    arrivals = poisson(load).pmf(np.arange(most + 1))
    law = np.full(most + 1, 1 / (most + 1))
    step = np.zeros((most + 1, most + 1))
    for held in range(most + 1):
        left = max(0, held - servers)
        step[held, left:] = arrivals[: most + 1 - left]
        step[held, most] += 1 - step[held].sum()
    for _ in range(4000):
        law = law @ step
    queue = float(np.sum(law * np.maximum(0, np.arange(most + 1) - servers)))
    exponential = queueing.exponential_wait(servers=float(servers), load=load, service=1.0)
    return queue / load / exponential


@EXACT
@given(SERVERS, st.floats(0.05, 1.6), st.integers(0, 300))
def test_a_finite_waiting_room_is_the_cut_chain(servers, share, places):
    load = share * servers
    counts = np.arange(1.0, servers + places + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(load) - np.log(np.minimum(counts, servers)))])
    weight = np.exp(logs - logs.max())
    found = queueing.full_probability(servers=float(servers), load=load, places=float(places))
    assert found == pytest.approx(weight[-1] / weight.sum(), rel=1e-7, abs=1e-290)


def test_priorities_keep_the_work():
    """Kleinrock's conservation law: waits weighted by utilisation add up to the same in any order."""
    rates, services = (0.3, 0.5), (1.0, 0.8)
    work = sum(
        queueing.residual_work(rate=rate, service=service, service_scv=1.0)
        for rate, service in zip(rates, services, strict=True)
    )
    used = [rate * service for rate, service in zip(rates, services, strict=True)]
    first = queueing.priority_wait(residual=work, above=0.0, through=used[0])
    second = queueing.priority_wait(residual=work, above=used[0], through=sum(used))
    in_order = work / (1 - sum(used))
    assert used[0] * first + used[1] * second == pytest.approx(sum(used) * in_order)
    assert first < in_order < second


def test_what_is_not_served_has_no_wait():
    assert math.isnan(queueing.exponential_wait(servers=4.0, load=4.0, service=1.0))
    assert math.isnan(queueing.single_server_wait(utilisation=1.0, service=1.0, service_scv=1.0))
    assert math.isnan(queueing.priority_wait(residual=1.0, above=0.5, through=1.0))
    assert queueing.waiting_probability(servers=4.0, load=5.0) == pytest.approx(1.0)


@EXACT
@given(SERVERS, SHARE, st.floats(0.01, 0.999))
def test_the_quantile_of_the_wait_is_that_of_an_exponential_tail(servers, share, quantile):
    load = share * servers
    waiting = queueing.waiting_probability(servers=float(servers), load=load)
    wait = queueing.exponential_wait(servers=float(servers), load=load, service=1.0)
    time = queueing.wait_quantile(wait=wait, waiting=waiting, quantile=quantile)
    tail = waiting * math.exp(-(servers - load) * time)
    assert tail == pytest.approx(1 - quantile) if time > 0 else waiting <= 1 - quantile + 1e-12


@EXACT
@given(st.floats(0, 0.95), st.floats(1, 2000), st.floats(0.01, 5))
def test_the_variance_of_a_life_is_that_of_an_autoregressive_sum(share, cycles, variance):
    whole = round(cycles)
    lags = np.abs(np.subtract.outer(np.arange(min(whole, 300)), np.arange(min(whole, 300))))
    exact = variance * float(np.sum(share**lags))
    found = batching.life_variance(variance=variance, cycles=float(min(whole, 300)), prefilling=share)
    assert found == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("scv", [0.25, 0.5, 2.0, 4.0])
def test_dispersion_of_a_renewal_process(scv):
    """Counted from drawn arrivals; 1 in windows in which hardly anything arrives, the SCV in long ones."""
    generator = np.random.default_rng(1)
    at = np.cumsum(generator.gamma(1 / scv, scv, size=400_000))
    for window in (0.5, 2.0, 20.0):
        counts = np.bincount((at / window).astype(int))[:-1]
        measured = counts.var() / counts.mean()
        assert float(dispersion(1.0, scv, window)) == pytest.approx(measured, rel=0.06)


def test_splitting_makes_any_arrivals_poisson():
    assert queueing.split_scv(scv=4.0, ways=1.0) == 4.0
    assert queueing.split_scv(scv=4.0, ways=1e9) == pytest.approx(1.0)

"""Pipelines on GPUs against a schedule that is played micro-batch by micro-batch, and against what none can exceed."""

import numpy as np
import pytest
from scipy.stats import poisson

import perfmodel
from perfmodel.equations import pipeline


def played(stages: int, met: float, plain: float = 1.0, extra: float = 5.0) -> float:
    """Share of a prefill's time that decoding loses: as many micro-batches as stages go round, in order."""
    chance, rounds = np.random.default_rng(1), 2000
    free, done, prefills = np.zeros(stages), np.zeros(stages), 0
    for _ in range(rounds):
        for batch in range(stages):
            joins = chance.poisson(met / stages)
            prefills += joins
            time = done[batch]
            for stage in range(stages):
                time = max(time, free[stage]) + plain + extra * joins
                free[stage] = time
            done[batch] = time
    return (done.max() / rounds - stages * plain) / (prefills / rounds * extra * stages)


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("met", [0.05, 0.5, 2.0])
def test_a_prefill_stalls_a_pipeline_as_it_does_when_it_is_played(stages, met):
    """Over a Poisson number of prefills in a cycle."""
    jobs = np.arange(1.0, 40.0)
    share = pipeline.stalled_share(stages=float(stages), jobs=jobs)
    stalled = np.sum(poisson.pmf(jobs, met) * jobs * share) / met
    assert stalled == pytest.approx(played(stages, met), rel=0.15)


def speed(model, on, clients, **options):
    return perfmodel.predict(model, on=on, prompt=1000, output=1000, concurrency=clients, **options).output_tokens_per_s


@pytest.mark.parametrize("clients", [1, 16, 64])
def test_stages_give_less_than_they_are_at_as_many_clients_each(clients):
    each = [speed("llama-3.1-8b", f"dgx-h100:tp=1,pp={stages}", clients * stages) / stages for stages in (1, 2, 4, 8)]
    assert each == sorted(each, reverse=True)
    assert each[3] < each[0]


def test_more_stages_are_less_than_linear_where_memory_holds_the_clients():
    """One card holds 11 such requests beside 33 GB of weights, two hold 88: that first step is memory's."""
    speeds = [speed("qwen3-32b", f"l40s-8:tp=1,pp={pp}", 512, precision="fp8") for pp in (2, 4, 8)]
    assert speeds[0] < speeds[1] < 2 * speeds[0]
    assert speeds[1] < speeds[2] < 2 * speeds[1]


def test_one_more_client_never_costs_throughput():
    speeds = [speed("qwen3-235b-a22b", "tpu-v7:tp=1,pp=4", clients) for clients in range(12, 26)]
    assert speeds == sorted(speeds)


def test_a_pipeline_says_that_none_was_fitted():
    assert any("pipeline stages" in line for line in perfmodel.predict("qwen3-32b", on="l40s-8:tp=1,pp=4").warnings)

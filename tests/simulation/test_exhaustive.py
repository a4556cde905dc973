"""What a search buys beside every layout simulated at every number of nodes: no more than the cheapest that meets."""

import pytest

import perfmodel
from perfmodel.question import Options, resolve
from perfmodel.serving.objectives import Objectives
from tests.simulation.spaces import fewest_nodes

QUESTIONS = [
    ("llama-3.1-8b", "dgx-h100", "chat", 150.0, {("ttft", "p99"): 0.3, ("tpot", "p99"): 0.02}),
    ("llama-3.1-8b", "dgx-h100", "rag", 30.0, {("ttft", "p99"): 3.0, ("tpot", "p99"): 0.05}),
    ("qwen3-32b", "dgx-h200", "code", 20.0, {("ttft", "p90"): 2.0, ("tpot", "p90"): 0.03}),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "system", "traffic", "rate", "limits"), QUESTIONS)
def test_a_search_buys_no_more_than_the_cheapest_that_meets(model, system, traffic, rate, limits):
    objectives = {f"{time}_{what}": limit for (time, what), limit in limits.items()}
    found = perfmodel.size(model, on=system, traffic=traffic, rate=rate, objectives=objectives).answers[0]
    bought = found.chips / found.scenario.system.chips_per_node
    base = resolve(model, system, Options(traffic=traffic))
    assert bought <= fewest_nodes(base, rate, Objectives(limits), int(bought), most=1.0)[0]

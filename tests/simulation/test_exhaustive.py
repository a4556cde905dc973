"""What a search buys beside every layout simulated at every number of nodes: no more than the cheapest that meets."""

import pytest

import perfmodel
from perfmodel.planning.candidates import plans_of
from perfmodel.planning.load import priced, service_of
from perfmodel.planning.verify import within
from perfmodel.question import Options, resolve
from perfmodel.serving.objectives import Objectives, loaded
from perfmodel.serving.traffic import lengths_of
from tests.simulation.test_size import judged

QUESTIONS = [
    ("llama-3.1-8b", "dgx-h100", "chat", 150.0, {("ttft", "p99"): 0.3, ("tpot", "p99"): 0.02}),
    ("llama-3.1-8b", "dgx-h100", "rag", 30.0, {("ttft", "p99"): 3.0, ("tpot", "p99"): 0.05}),
    ("qwen3-32b", "dgx-h200", "code", 20.0, {("ttft", "p90"): 2.0, ("tpot", "p90"): 0.03}),
]


def fewest_nodes(base, rate, objectives, most):
    """Nodes that the cheapest layout takes whose simulation meets the objectives, by trying them all."""
    lengths = lengths_of(base.traffic)
    for nodes in range(1, most + 1):
        for scenario in (one for one in plans_of(base) if float(one.deployment.pp) == 1):
            replicas = within(scenario, nodes * float(base.system.chips_per_node))
            if replicas < 1:
                continue
            service = service_of(scenario, lengths, None, None)
            if not rate < 0.99 * service.capacity * replicas:
                continue
            if judged(priced(scenario, loaded(service, rate, 1.0, replicas, objectives), service.times.budget)) <= 1:
                return nodes
    return most + 1


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "system", "traffic", "rate", "limits"), QUESTIONS)
def test_a_search_buys_no_more_than_the_cheapest_that_meets(model, system, traffic, rate, limits):
    objectives = {f"{time}_{what}": limit for (time, what), limit in limits.items()}
    found = perfmodel.size(model, on=system, traffic=traffic, rate=rate, objectives=objectives).answers[0]
    bought = found.chips / found.scenario.system.chips_per_node
    base = resolve(model, system, Options(traffic=traffic))
    assert bought <= fewest_nodes(base, rate, Objectives(limits), int(bought))

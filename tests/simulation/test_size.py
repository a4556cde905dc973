"""What a search answers, judged by fresh seeds of many requests: an objective is met within 3 %.

``PERFMODEL_EVERY_QUESTION`` sets how many questions are drawn.
"""

import os
import random

import numpy as np
import pytest

import perfmodel
from perfmodel.planning.events import simulate
from perfmodel.planning.requests import drawn
from perfmodel.planning.simulate import measured

QUESTIONS = int(os.environ.get("PERFMODEL_EVERY_QUESTION", "2"))
REQUESTS = int(os.environ.get("PERFMODEL_REQUESTS", "10000"))
MODELS = ("llama-3.1-8b", "llama-3.3-70b", "qwen3-32b", "mixtral-8x7b", "gpt-oss-120b", "qwen3-30b-a3b")
SYSTEMS = ("dgx-h100", "dgx-h200", "dgx-b200", "mi355x-8", "l40s-8")
TRAFFICS = ("chat", "rag", "code")


def question(seed):
    """A model, a system, a traffic, a rate and two objectives, from easy to hard."""
    chance = random.Random(seed)
    return {
        "model": chance.choice(MODELS),
        "on": chance.choice(SYSTEMS),
        "traffic": chance.choice(TRAFFICS),
        "rate": round(10 ** chance.uniform(-0.3, 1.8), 2),
        chance.choice(("ttft_p99", "ttft_p90", "ttft_mean")): round(10 ** chance.uniform(-0.4, 0.9), 3),
        chance.choice(("tpot_p99", "tpot_p90", "itl_p99")): round(10 ** chance.uniform(-1.7, -0.7), 4),
    }


def judged(answer):
    """The largest ratio of an objective's fresh simulation to its limit."""
    load = answer.load
    service, replicas = load.service, min(load.replicas, 12)
    life = max(1.0, load.queue.running) * replicas
    count = int(4 * life) + REQUESTS
    seen = []
    for seed in (1001, 1002):
        requests = drawn(load.rate * replicas / load.replicas, load.arrival_scv, service.lengths, count, seed)
        ran = simulate(
            service.times, requests, cached=service.cached, seed=seed, replicas=replicas, routing=service.routing
        )
        seen.append(measured(ran.between(int(3 * life), count - int(life))))
    return max(
        float(np.mean([one[f"{'request_latency' if time == 'latency' else time}_s"][what] for one in seen])) / limit
        for (time, what), limit in load.objectives.limits.items()
    )


@pytest.mark.parametrize("seed", range(QUESTIONS))
def test_an_answer_meets_its_objectives(seed):
    asked = question(seed)
    found = perfmodel.size(asked.pop("model"), **asked)
    for answer in found.answers:
        print(seed, asked, answer.chips, answer.checked.words(), round(judged(answer), 3))
        assert judged(answer) <= 1.03

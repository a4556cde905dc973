"""A judge of `size` by brute force: python -m tests.simulation.spaces --questions 12 --first 1.

Of each drawn question that at most four nodes serve every layout is simulated at every smaller number of nodes, by
fresh seeds: what a search buys beyond the fewest that meet is what it costs too much.  With --confidence 0.9 the answer
that is sized for it meets drawn machines instead: times of prompts and of tokens are each off by the band of the
prediction, half of the variance shared, which the search, with one factor for both, does not know of.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

import perfmodel
from perfmodel.planning.candidates import plans_of
from perfmodel.planning.load import priced, service_of
from perfmodel.planning.verify import check, spread, within
from perfmodel.question import Options, resolve
from perfmodel.serving.objectives import Objectives, loaded
from perfmodel.serving.traffic import lengths_of
from tests.simulation.test_size import judged, question

#: Nodes of an answer whose space is small enough.
MOST = 4
#: Largest ratio to a limit that is met beyond noise.
SURE = 0.98
#: Share of the variance of errors that times of prompts and of tokens have in common.
SHARED = 0.5


def options_of(asked):
    """The model, system, and what else a drawn question asks; its objectives by time and statistic."""
    limits = {
        tuple(name.split("_")): value for name, value in asked.items() if name.split("_")[0] in ("ttft", "tpot", "itl")
    }
    return asked["model"], asked["on"], asked["traffic"], asked["rate"], Objectives(limits)


def fewest_nodes(base, rate, objectives, bought, most=SURE):
    """Fewest nodes, no more than those bought, on which a layout comes to a share of the limits; layouts looked at."""
    lengths, tried = lengths_of(base.traffic), 0
    for nodes in range(1, bought):
        for scenario in (one for one in plans_of(base) if float(one.deployment.pp) == 1):
            replicas = within(scenario, nodes * float(base.system.chips_per_node))
            if replicas < 1:
                continue
            service = service_of(scenario, lengths, None, None)
            if not rate < 0.99 * service.capacity * replicas:
                continue
            tried += 1
            if judged(priced(scenario, loaded(service, rate, 1.0, replicas, objectives), service.times.budget)) <= most:
                return nodes, tried
    return bought, tried


def share_met(answer, draws, generator):
    """Share of drawn machines on which an answer meets its objectives within 3 %."""
    sigma, load, met = spread(answer.scenario), answer.load, 0
    for _ in range(draws):
        shared, prompt, token = generator.standard_normal(3)
        off = {
            "ttft": math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * prompt,
            "other": math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * token,
        }
        # The rate is that of a machine as slow as the slower of the two; limits shrink each by its own factor.
        factors = {name: math.exp(sigma * value) for name, value in off.items()}
        limits = {
            key: limit / factors["ttft" if key[0] == "ttft" else "other"] * 1.03
            for key, limit in load.objectives.limits.items()
        }
        slower = replace(load, rate=load.rate * max(factors.values()), objectives=Objectives(limits))
        if slower.rate / load.replicas >= 0.995 * load.service.capacity:
            continue
        checked = check(replace(answer, load=slower))
        met += all(checked.values[key] <= limit for key, limit in checked.limits.items())
    return met / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--confidence", type=float)
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    found = []
    for seed in range(given.first, given.first + given.questions):
        asked = question(seed)
        model, on, traffic, rate, objectives = options_of(asked)
        limits = {f"{time}_{what}": limit for (time, what), limit in objectives.limits.items()}
        more = {} if given.confidence is None else {"confidence": given.confidence}
        answers = perfmodel.size(model, on=on, traffic=traffic, rate=rate, objectives=limits, **more).answers
        if not answers:
            print(seed, asked, "nothing serves it", flush=True)
            continue
        answer = answers[0]
        bought = math.ceil(answer.chips / float(answer.scenario.system.chips_per_node))
        if given.confidence is not None:
            found.append(share_met(answer, given.draws, np.random.default_rng(seed)))
            print(seed, asked, f"{answer.chips:g} chips, met {found[-1]:.0%}", flush=True)
        elif bought > MOST:
            print(seed, asked, f"{bought} nodes: too large a space", flush=True)
        else:
            base = resolve(model, on, Options(traffic=traffic))
            fewest, tried = fewest_nodes(base, rate, objectives, bought)
            found.append(bought / fewest)
            print(seed, asked, f"bought {bought} nodes, {fewest} meet it, {tried} simulated", flush=True)
    if found and given.confidence is None:
        print(
            f"{np.mean(np.array(found) <= 1.05):.0%} of {len(found)} within 5 % of the cheapest; worst {max(found):.2f}"
        )
    elif found:
        print(f"met by {np.mean(found):.0%} of the machines drawn, {len(found)} questions; worst {min(found):.0%}")


if __name__ == "__main__":
    main()

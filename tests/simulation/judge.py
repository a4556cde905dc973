"""Drawn questions put to the closed forms and to the simulation: ``python -m tests.simulation.judge open``.

Prints, class by class, the median, the 95th percentile and the worst difference with its question, and the standard
error of what was simulated: its median, and in how many questions it is more than a third of the goal.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.planning.events import simulate
from perfmodel.planning.requests import drawn
from perfmodel.planning.simulate import ENOUGH, ENOUGH_CLOSED, is_enough, measured, over_seeds
from perfmodel.question import Options, resolve
from perfmodel.serving.disaggregation import decode_service, prefill_service
from perfmodel.serving.lengths import Lengths, lognormal
from perfmodel.serving.objectives import queue_of, statistic
from perfmodel.serving.service import Service, serve
from perfmodel.serving.steady import steady_state
from perfmodel.serving.step_times import step_times
from perfmodel.serving.traffic import length_table
from perfmodel.specs.types import Scenario

#: Systems and models by class.
CLASSES: dict[str, tuple[tuple[str, str], ...]] = {
    "GPU, dense": (
        ("llama-3.1-8b", "dgx-h100:tp=1"),
        ("llama-3.1-70b", "dgx-h100:tp=8"),
        ("llama-3.1-70b", "dgx-h100:tp=2,precision=fp8"),
        ("qwen3-32b", "dgx-b200:tp=1"),
        ("llama-3.1-8b", "dgx-h100:tp=1,engine=trtllm"),
        ("qwen3-32b", "dgx-h200:tp=2,engine=sglang"),
    ),
    "GPU, experts": (
        ("gpt-oss-120b", "dgx-h200:tp=2"),
        ("qwen3-235b-a22b", "dgx-h200:tp=8,precision=fp8"),
        ("gpt-oss-20b", "dgx-h100:tp=1"),
    ),
    "GPU, pipeline": (
        ("llama-3.1-70b", "dgx-h100:tp=4,pp=2"),
        ("llama-3.1-70b", "dgx-h100:tp=2,pp=4"),
        ("qwen3-32b", "dgx-h100:tp=1,pp=4"),
    ),
    "dataflow": (("llama-3.1-70b", "sn40l-16"), ("llama-3.1-8b", "sn40l-16")),
    "SRAM pipeline": (("llama-3.1-70b", "lpu-v1"), ("qwen3-235b-a22b", "lpu-v1"), ("llama-3.1-8b", "lpu-v1")),
    "GPU, draft": (("llama-3.1-70b", "dgx-h100:tp=8"), ("qwen3-32b", "dgx-h200:tp=2")),
}
#: Of the classes of a rate alone: two pools; and outputs that are all the same, whose clients march in step.
_POOLS = ("pool of prefill", "pool of decoding")
FIXED = "fixed lengths"
OPEN = (*CLASSES, *_POOLS, FIXED)
#: What the closed forms are held to: median, 95th percentile.
GOALS = {"P99 TTFT": (0.08, 0.25), "P99 TPOT": (0.06, 0.20), "P99 ITL": (0.10, 0.30)}
CLOSED_GOALS = {"rate": (0.02, 0.10), "mean TTFT": (0.08, 0.30), "mean TPOT": (0.01, 0.08)}
#: Requests of a seed over those that a replica holds.
_STRIDE = 25
_STATISTICS = {"P99 TTFT": ("ttft", "p99"), "P99 TPOT": ("tpot", "p99"), "P99 ITL": ("itl", "p99")}
_MEANS = {"mean TTFT": ("ttft", "mean"), "mean TPOT": ("tpot", "mean")}


@dataclass(frozen=True)
class Judged:
    """A question, its class, each closed form over the simulation less 1, and the standard errors of the latter."""

    name: str
    group: str
    gaps: dict[str, float]
    errors: dict[str, float]


def lengths(generator: np.random.Generator, short: bool | None = None) -> tuple[str, Lengths]:
    """Draw a law of lengths: a trace, a lognormal law or a jitter; ``short`` for up to 20 output tokens, or above."""
    kind = generator.choice(["trace", "lognormal", "lognormal", "jitter"])
    if kind == "trace" and short is None:
        name = str(generator.choice(["azure-chat", "azure-code"]))
        return name, length_table(name)
    prompt = float(np.round(np.exp(generator.uniform(np.log(128), np.log(8000)))))
    low, high = (8, 900) if short is None else (1, 20) if short else (21, 900)
    output = float(np.round(np.exp(generator.uniform(np.log(low), np.log(high)))))
    if kind != "lognormal":
        share = 1 - 0.2 * (np.arange(12) + 0.5) / 12
        grid = np.meshgrid(prompt * share, np.maximum(1.0, output * share), indexing="ij")
        return f"{prompt:g}/{output:g} jitter 0.2", Lengths(grid[0].ravel(), grid[1].ravel(), np.full(144, 1 / 144))
    one, two = (float(np.round(generator.uniform(0.2, 1.2), 2)) for _ in range(2))
    return f"{prompt:g}/{output:g} scv {one:g}/{two:g}", lognormal(prompt, one, output, two)


def scenario_of(group: str, generator: np.random.Generator) -> tuple[str, Scenario]:
    """Draw a system and a model of a class."""
    known = CLASSES.get(group) or CLASSES["GPU, dense"]
    model, on = known[generator.integers(len(known))]
    options = Options(prompt=1024, output=256)
    if group == "GPU, draft":
        options = replace(options, draft="ngram", k=3, alpha=0.6)
    return f"{model} on {on}", resolve(model, on, options)


def service_of(group: str, scenario: Scenario, table: Lengths) -> Service:
    """Return a replica of a class."""
    if group == _POOLS[0]:
        return prefill_service(scenario, table)
    if group == _POOLS[1]:
        return decode_service(scenario, table)
    longest = float((table.prompt + table.output).max())
    return serve(step_times(scenario, longest_prompt=longest, longest=longest), table)


def judge_open(group: str, generator: np.random.Generator, requests: int, seeds: int) -> Judged | None:
    """Put one question about a rate; None where no request fits."""
    where, scenario = scenario_of(group, generator)
    said, table = lengths(generator)
    if group == FIXED:
        prompt, output = table.mean(table.prompt), table.mean(table.output)
        said, table = f"{prompt:.0f}/{output:.0f} fixed", lognormal(round(prompt), 0.0, round(output), 0.0)
    used = float(np.round(generator.uniform(0.1, 0.95), 2))
    scv = float(generator.choice([1.0, 1.0, 1.0, 0.5, 2.0]))
    replicas, routing = 1, "least-loaded"
    if generator.random() < 0.2:
        replicas, routing = 3, str(generator.choice(["least-loaded", "round-robin", "random"]))
    service = replace(service_of(group, scenario, table), routing=routing)
    if service.capacity <= 0:
        return None
    rate = used * service.capacity * replicas
    queue = queue_of(service, rate, scv, replicas)
    # A replica that holds many requests takes many of them to come into its stride.
    count = requests if queue.saturated else int(min(3 * requests, max(requests, _STRIDE * queue.running)))
    runs = []
    for seed in range(seeds):
        load = drawn(rate, scv, service.lengths, count * replicas, seed)
        ran = simulate(service.times, load, seed=seed, replicas=replicas, routing=service.routing).after(0.1)
        runs.append(measured(ran))
        means, errors = over_seeds(runs)
        if seed >= 2 and is_enough(errors, ENOUGH):
            break
    gaps = {}
    for name, (met, what) in _STATISTICS.items():
        value = means[f"{met}_s"][what]
        if value:
            gaps[name] = statistic(queue, met, what) / value - 1
    routed = f", {replicas} replicas {routing}" if replicas > 1 else ""
    text = f"{where}, {said}, {used:.0%} of {service.capacity:.3g}/s by {service.binding}, SCV {scv:g}{routed}"
    return Judged(text, group, gaps, _named(errors, _STATISTICS))


def _named(errors: Any, statistics: dict[str, tuple[str, str]]) -> dict[str, float]:
    """Return the standard errors of statistics by name, as far as they are known."""
    found = {name: errors[f"{met}_s"][what] for name, (met, what) in statistics.items()}
    return {name: error for name, error in found.items() if error is not None}


def judge_closed(group: str, short: bool, generator: np.random.Generator, requests: int, seeds: int) -> Judged | None:
    """Put one question about a closed loop."""
    where, scenario = scenario_of(group, generator)
    said, table = lengths(generator, short)
    if group == FIXED:
        said = f"{table.mean(table.prompt):.0f}/{table.mean(table.output):.0f} fixed"
        table = lognormal(round(table.mean(table.prompt)), 0.0, max(1.0, round(table.mean(table.output))), 0.0)
    clients = int(np.round(np.exp(generator.uniform(0.0, np.log(300)))))
    service = service_of(group, scenario, table)
    if service.capacity <= 0 or service.refused:
        return None
    prompt, output = table.mean(table.prompt), table.mean(np.maximum(1.0, np.round(table.output)))
    asked = replace(scenario.traffic, prompt=prompt, output=output, concurrency=float(clients), length_jitter=0.0)
    steady = steady_state(replace(scenario, traffic=asked))
    count = max(requests, 8 * clients)
    runs, rates = [], []
    for seed in range(seeds):
        ran = simulate(service.times, drawn(1.0, 1.0, table, count, seed), clients=clients, seed=seed)
        ran = ran.between(max(clients, count // 10), count - clients)
        runs.append(measured(ran))
        rates.append(ran.rate)
        means, errors = over_seeds(runs)
        if seed >= 2 and is_enough(errors, ENOUGH_CLOSED):
            break
    gaps = {"rate": float(steady.rate) / float(np.mean(rates)) - 1}
    for name, (what, _) in _MEANS.items():
        if ran_mean := means[f"{what}_s"]["mean"]:
            gaps[name] = float(getattr(steady, what)) / ran_mean - 1
    in_step = len(np.unique(np.maximum(1.0, np.round(table.output)))) == 1
    said_group = FIXED if in_step else f"{group}, {'up to 20' if short else 'above 20'}"
    known = {"rate": float(np.std(rates, ddof=1) / np.sqrt(len(rates)) / np.mean(rates)), **_named(errors, _MEANS)}
    return Judged(f"{where}, {said}, {clients} clients", said_group, gaps, known)


def judged(
    kind: str,
    questions: int,
    requests: int,
    seeds: int,
    groups: Any = None,
    first: int = 20261130,
    minutes: float = float("inf"),
) -> list[Judged]:
    """Put so many questions of each class, one of each after the other, as long as there is time."""
    found = []
    names: list[tuple[str, bool]] = [(group, False) for group in OPEN]
    if kind == "closed":
        names = [(group, short) for group in (*CLASSES, FIXED) for short in (True, False)]
    drawing = {name: np.random.default_rng(first + at) for at, name in enumerate(names)}
    end = time.monotonic() + 60 * minutes
    for _ in range(questions):
        for (group, short), generator in drawing.items():
            if (groups and group not in groups) or time.monotonic() > end:
                continue
            if kind == "closed":
                one = judge_closed(group, short, generator, requests, seeds)
            else:
                one = judge_open(group, generator, requests, seeds)
            if one is not None:
                found.append(one)
                shown = ", ".join(f"{name} {gap:+.1%}" for name, gap in one.gaps.items())
                print(f"{one.group}: {one.name}: {shown}", file=sys.stderr, flush=True)
    return found


def table(rows: list[Judged], goals: dict[str, tuple[float, float]]) -> str:
    """Return the differences class by class."""
    lines = []
    whole = "all but fixed lengths"
    for group in [*sorted(dict.fromkeys(row.group for row in rows)), whole]:
        mine = [row for row in rows if row.group == group or (group == whole and row.group != FIXED)]
        lines.append(f"{group}: {len(mine)} questions")
        for name, (median, high) in goals.items():
            known = [row for row in mine if name in row.gaps]
            if not known:
                continue
            size = np.abs([row.gaps[name] for row in known])
            errors = np.array([row.errors.get(name, np.nan) for row in known])
            worst = known[int(size.argmax())]
            lines.append(
                f"  {name:9s} median {np.median(size):6.1%} of {median:.0%}, 95th {np.percentile(size, 95):6.1%} of "
                f"{high:.0%}, known to {np.nanmedian(errors):.1%} (a third of the goal is missed in "
                f"{np.sum(errors > median / 3)}), worst {worst.gaps[name]:+.0%}: {worst.name}"
            )
    return "\n".join(lines)


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["open", "closed"])
    parser.add_argument("--questions", type=int, default=25, help="of each class")
    parser.add_argument("--requests", type=int, default=6000, help="of each seed")
    parser.add_argument("--seeds", type=int, default=8, help="at most")
    parser.add_argument("--group", action="append", help="only these classes")
    parser.add_argument("--first", type=int, default=20261130, help="seed of the questions")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no question is put")
    given = parser.parse_args()
    rows = judged(given.kind, given.questions, given.requests, given.seeds, given.group, given.first, given.minutes)
    print(table(rows, GOALS if given.kind == "open" else CLOSED_GOALS))


if __name__ == "__main__":
    main()

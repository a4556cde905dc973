"""A plan of measurements: the few runs after which the questions that will be asked are answered best."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import prediction, shapes
from perfmodel.errors import UserError
from perfmodel.evidence.cluster.choosing import Points, after, chosen
from perfmodel.evidence.cluster.fitting import loads, points
from perfmodel.evidence.cluster.observed import movable
from perfmodel.evidence.cluster.pooling import prior_spread
from perfmodel.prediction import Prediction
from perfmodel.question import Options, number, resolve
from perfmodel.shown import Shown
from perfmodel.specs.ranges import Range
from perfmodel.specs.types import Scenario

#: Lengths that are asked about unless told otherwise: of chats, of long prompts, of long answers [tokens].
LENGTHS = ((1024.0, 1024.0), (8192.0, 1024.0), (1024.0, 8192.0))
#: Prompts that a run sends for each client.
ROUNDS = 10.0
#: Runs unless told otherwise, and at the most.
RUNS, _MOST = 5, 50
_PAIR = re.compile(r"([^/]+)/([^/]+)")


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    Attributes
    ----------
    answer : Prediction
        What is expected, with its band.
    seconds, gpu_hours : float
        How long its requests take, and on how many chips; loading the model comes on top.
    command : str
    tpot_band, ttft_band : float
        Half-widths that hold 80 % over the questions after this run and those before it, as logarithms.
    """

    answer: Prediction
    seconds: float
    gpu_hours: float
    command: str
    tpot_band: float
    ttft_band: float


@dataclass(frozen=True, repr=False)
class BenchPlan(Shown):
    """Runs worth measuring on a system, the one that says most first.

    Attributes
    ----------
    scenario : Scenario
        Model, system and layout.
    before : tuple of float
        Half-widths of TPOT and TTFT over the questions before any run, as logarithms.
    runs : tuple of Planned
    """

    scenario: Scenario
    before: tuple[float, float]
    runs: tuple[Planned, ...]

    def to_dict(self) -> shapes.BenchPlan:
        """Return the documented JSON object."""
        return {
            "model": self.scenario.model.name,
            "system": self.scenario.system.name,
            "assumed": list(self.scenario.assumed),
            "warnings": list(self.scenario.warnings),
            "tpot_band": shapes.number(math.exp(self.before[0])),
            "ttft_band": shapes.number(math.exp(self.before[1])),
            "runs": [_as_dict(run) for run in self.runs],
        }


def _as_dict(run: Planned) -> shapes.PlannedRun:
    load: Any = run.answer.scenario.traffic

    def times(key: str) -> shapes.Expected:
        ends = run.answer.band[key]
        return {
            "value": shapes.number(run.answer.metrics[key]),
            "low": shapes.number(ends["low"]),
            "high": shapes.number(ends["high"]),
        }

    return {
        "prompt": shapes.number(load.prompt),
        "output": shapes.number(load.output),
        "concurrency": shapes.number(load.concurrency),
        "tpot_s": times("tpot_s"),
        "ttft_s": times("ttft_s"),
        "seconds": shapes.number(run.seconds),
        "gpu_hours": shapes.number(run.gpu_hours),
        "command": run.command,
        "tpot_band": shapes.number(math.exp(run.tpot_band)),
        "ttft_band": shapes.number(math.exp(run.ttft_band)),
    }


def read_lengths(written: str | None) -> tuple[tuple[float, float], ...]:
    """Return pairs of prompt and output tokens as ``--for`` writes them: ``1024/1024,8192/1024``.

    Parameters
    ----------
    written : str, optional

    Returns
    -------
    tuple of tuple of float

    Raises
    ------
    UserError
        Where it is none.
    """
    if written is None:
        return LENGTHS
    tokens, lengths = Range("1", 1.0, 1e7, whole=True), []
    for part in written.split(","):
        if (pair := _PAIR.fullmatch(part.strip())) is None:
            raise UserError(f"--for {written}: expected PROMPT/OUTPUT tokens, several with commas: 1024/1024,8192/1024")
        lengths.append((number("--for", pair[1], tokens), number("--for", pair[2], tokens)))
    return tuple(lengths)


def plan(
    model: Any, on: str, lengths: str | None = None, runs: float | str | None = None, engine: str | None = None
) -> BenchPlan:
    """Choose the runs of a model on a system after which its times are known best.

    Parameters
    ----------
    model : str or Model
    on : str
        System with its plan, ``SYSTEM[:KEY=VALUE,...]``.
    lengths : str, optional
        Lengths of the questions that will be asked; each is asked with 1 to 256 clients.
    runs : float or str, optional
        How many.
    engine : str, optional

    Returns
    -------
    BenchPlan

    Raises
    ------
    UserError
        Where memory holds none of the loads.
    """
    most = int(number("--runs", RUNS if runs is None else runs, Range("1", 1.0, _MOST, whole=True)))
    pairs = np.array(read_lengths(lengths))
    prompt, output = (float(end) for end in pairs.max(axis=0))
    base = resolve(model, on, Options(engine=engine, prompt=prompt, output=output, concurrency=1.0))
    base = replace(base, traffic=replace(base.traffic, rounds=ROUNDS, length_jitter=0.0))
    efficiency: Any = base.system.efficiency
    asked: Any = loads(base, pairs, base.traffic)
    if not asked.concurrency.size:
        raise UserError(f"bench-plan: memory of {base.system.name} holds no request of these lengths in this plan")
    if not math.isfinite(float(prediction.run(base).metrics["tpot_s"])):
        raise UserError(f"bench-plan: {base.model.name} has no times on {base.system.name} to plan runs by")
    paths = list(movable(efficiency))
    offered = points(base, asked, paths, np.zeros(len(paths)), efficiency)
    known = np.diag([prior_spread(efficiency, path) ** 2 for path in paths])
    before, made = offered.half_widths(known), []
    for at in chosen(offered, offered, known, most):
        known = after(known, Points(offered.tpot[[at]], offered.ttft[[at]], offered.where[[at]]))
        made.append(_planned(base, [float(getattr(asked, name)[at]) for name in _LOADED], *offered.half_widths(known)))
    return BenchPlan(base, before, tuple(made))


_LOADED = ("prompt", "output", "concurrency")


def _planned(base: Scenario, load: Sequence[float], tpot_band: float, ttft_band: float) -> Planned:
    numbers: dict[str, Any] = dict(zip(_LOADED, load, strict=True))
    scenario = replace(base, traffic=replace(base.traffic, **numbers))
    answer = prediction.run(scenario)
    seconds = ROUNDS * float(answer.metrics["request_latency_s"])
    hours = seconds * float(answer.chips) / 3600
    return Planned(answer, seconds, hours, command(scenario), tpot_band, ttft_band)


def command(scenario: Scenario) -> str:
    """Return the command of vLLM's client that makes a run; other engines answer it by their OpenAI interface.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    str
    """
    load: Any = scenario.traffic
    backend = "vllm" if scenario.deployment.engine.startswith("vllm") else "openai"
    return (
        f"vllm bench serve --backend {backend} --model {scenario.model.hf_id or scenario.model.name} "
        f"--dataset-name random --random-input-len {load.prompt:.0f} --random-output-len {load.output:.0f} "
        f"--random-range-ratio 0 --ignore-eos --num-prompts {ROUNDS * load.concurrency:.0f} "
        f"--max-concurrency {load.concurrency:.0f} --save-result"
    )

"""What holds on this machine: sums that must agree, back ends that must give one number, files that must load."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.compilers import javascript
from perfmodel.errors import UserError
from perfmodel.prediction import evaluate, traced
from perfmodel.question import Options, resolve
from perfmodel.specs.check import check_files
from perfmodel.specs.paths import put_all
from perfmodel.specs.types import Scenario
from perfmodel.tape import answers, arrays, c, kernel, library

#: A question for each kind of machine.
QUESTIONS = (("llama-3.1-70b", "dgx-h100"), ("llama-3.1-70b", "sn40l-16"), ("llama-3.1-8b", "lpu-v1"))
#: The most by which two ways to one number may differ, relative to it.
CLOSE = 1e-9
#: The same for what a fixed point settles.
SETTLED = 1e-5
_METRICS = ("ttft_s", "tpot_s", "output_tokens_per_s", "power_w", "usd_per_mtok_output")


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes
    ----------
    name : str
    holds : bool or None
        None where this machine has not what it needs.
    detail : str
    """

    name: str
    holds: bool | None
    detail: str


@dataclass(frozen=True)
class SelfCheck:
    """All that was checked.

    Attributes
    ----------
    checks : tuple of Check
    seconds : float
    """

    checks: tuple[Check, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether nothing failed."""
        return all(one.holds is not False for one in self.checks)

    def to_dict(self) -> shapes.SelfCheck:
        """Return the documented JSON object."""
        return {
            "holds": self.holds,
            "seconds": self.seconds,
            "checks": [{"check": one.name, "holds": one.holds, "detail": one.detail} for one in self.checks],
        }


def selfcheck(files: Sequence[str | Path] = ()) -> SelfCheck:
    """Prove on this machine what every answer rests on, in seconds.

    Parameters
    ----------
    files : sequence of str or path
        Specs of one's own, which must load.

    Returns
    -------
    SelfCheck

    Raises
    ------
    UserError
        Where a file of one's own is wrong.
    """
    begun = time.perf_counter()
    _, wrong = check_files([str(path) for path in files]) if files else (0, [])
    if wrong:
        raise UserError(wrong[0])
    found = [*_identities(), *_back_ends(), *(Check(str(path), True, "loads") for path in files)]
    return SelfCheck(tuple(found), time.perf_counter() - begun)


def _scenarios() -> Iterator[Scenario]:
    for model, on in QUESTIONS:
        yield resolve(model, on, Options(prompt=2000.0, output=300.0, concurrency=4.0))


def _judged(name: str, offs: Sequence[float], most: float = CLOSE) -> Check:
    # NumPy's maximum, for what is no number must not pass.
    off = float(np.max(offs))
    return Check(name, bool(off <= most), f"differs by {off:.1e} at most")


def _off(one: float, other: float) -> float:
    return abs(one - other) / abs(other) if other else abs(one)


def _identities() -> Iterator[Check]:
    """Give sums that must be their wholes."""
    parts, paid, work = [], [], []
    for scenario in _scenarios():
        answer = evaluate(scenario)
        for phase, key in (("prefill", "ttft_s"), ("decode", "tpot_s")):
            parts.append(_off(sum(map(float, answer.breakdown[phase].values())), float(answer.metrics[key])))
        prompt, output = float(scenario.traffic.prompt), float(scenario.traffic.output)
        blended = prompt * float(answer.metrics["usd_per_mtok_input"])
        blended += output * float(answer.metrics["usd_per_mtok_output"])
        paid.append(_off(blended / (prompt + output), float(answer.metrics["usd_per_mtok_blended"])))
        given = float(answer.metrics["output_tokens_per_s"]) / output * float(answer.metrics["request_latency_s"])
        work.append(_off(given, float(scenario.traffic.concurrency)))
    yield _judged("parts of TTFT and TPOT add up", parts)
    yield _judged("input and output pay for all tokens", paid)
    yield _judged("as many requests at once as there are clients (Little)", work, SETTLED)


def _back_ends() -> Iterator[Check]:
    """Give the ways to one number."""
    run = _points()
    yield _judged("numbered program by NumPy calls", run(_by_calls))
    if library.compiler():
        yield _judged("compiled C", run(_by_c))
    else:
        yield Check("compiled C", None, "no C compiler here: sweeps go by NumPy calls")
    node = shutil.which("node")
    if node:
        yield _judged("JavaScript of the page", _by_javascript(node))
    else:
        yield Check("JavaScript of the page", None, "no Node here; browsers run it")


def _points() -> Callable[[Callable[..., Mapping[str, Any]]], list[float]]:
    """Return what compares a way to work out drawn settings with the equations on arrays."""
    random = np.random.default_rng(0)
    cases = []
    for scenario in _scenarios():
        values = {
            "traffic.concurrency": np.ceil(np.exp(random.uniform(0, 5, 50))),
            "traffic.prompt": np.exp(random.uniform(3, 9, 50)),
            "traffic.output": np.exp(random.uniform(1, 7, 50)),
        }
        results = answers.asked().results
        first = put_all(scenario, {path: float(column[0]) for path, column in values.items()})
        with np.errstate(all="ignore"):
            expected = results(put_all(scenario, values))
        cases.append((scenario, values, kernel.traced(results, first), expected))

    def run(way: Callable[..., Mapping[str, Any]]) -> list[float]:
        return [_worst(way(scenario, values, program), expected) for scenario, values, program, expected in cases]

    return run


def _worst(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    off = 0.0
    for name in (f"metrics.{key}" for key in _METRICS):
        one, other = np.broadcast_arrays(np.asarray(found[name], float), np.asarray(expected[name], float))
        if not np.array_equal(np.isnan(one), np.isnan(other)):
            return np.inf
        off = max(off, float(np.nanmax(np.abs(one - other) / np.abs(other), initial=0.0)))
    return off


def _by_calls(scenario: Scenario, values: Mapping[str, Any], program: Any) -> Mapping[str, Any]:
    return arrays.over(program, kernel.inputs_of(program.inputs, scenario), dict.fromkeys(values, 0), values)


def _by_c(scenario: Scenario, values: Mapping[str, Any], program: Any) -> Mapping[str, Any]:
    source = c.source(program, dict.fromkeys(values, 0))
    made = kernel.Kernel(library.compile(source.text), source.fixed, source.varying, source.results, source.tables)
    lengths = [len(values["traffic.prompt"])]
    return made(np.array(list(kernel.inputs_of(made.fixed, scenario).values())), values, lengths)


def _by_javascript(node: str) -> list[float]:
    """Return by how much the page's language differs from the equations, for each kind of machine."""
    script, expected = [javascript.PRELUDE], []
    for at, scenario in enumerate(_scenarios()):
        ledger, found = traced(scenario)
        results = {key: found.metrics[key] for key in _METRICS}
        script.append(javascript.function(ledger, results, f"predict{at}"))
        inputs = {path: entry.value for path, entry in ledger.inputs.items() if entry.value == entry.value}
        script.append(f"console.log(JSON.stringify(predict{at}({json.dumps(inputs)})));")
        plain = evaluate(scenario).metrics
        expected.append({key: float(plain[key]) for key in _METRICS})
    done = subprocess.run([node, "-"], input="\n".join(script), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        return [np.inf]
    found_there = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        float(np.max([_off(np.nan if there[key] is None else there[key], here[key]) for key in _METRICS]))
        for there, here in zip(found_there, expected, strict=True)
    ]

"""The numbered program in C and as NumPy calls beside the equations on arrays: ratios in one run.

Run with ``python benchmarks/compiled.py``; CPU time of one thread, the least of several runs that take turns, nothing
asserted.  Programs are compiled anew, into a folder of this run.
"""

from __future__ import annotations

import os
import tempfile

os.environ["OPENBLAS_NUM_THREADS"] = "1"
_FOLDER = tempfile.TemporaryDirectory()
os.environ["PERFMODEL_CACHE"] = _FOLDER.name

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from questions import BLOCK, POINTS, WANTED, axes, scattered

from perfmodel.prediction import METRICS, evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import get
from perfmodel.specs.types import Scenario
from perfmodel.sweeps.space import evaluate_grid
from perfmodel.tape import answers, c, kernel, library
from perfmodel.tape.gradient import gradient

CASES = {
    "Llama-70B FP8, dgx-h100": ("llama-3.1-70b", "dgx-h100", "fp8"),
    "DeepSeek-V3, dgx-h200": ("deepseek-v3", "dgx-h200", None),
    "Llama-70B, lpu-v1": ("llama-3.1-70b", "lpu-v1", None),
}
VARIED = tuple(axes())
ROUNDS = 5


def least(*calls: Callable[[], Any]) -> list[float]:
    """The least CPU time of each call, in turns."""
    times = [math.inf] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            start = time.process_time()
            call()
            times[at] = min(times[at], time.process_time() - start)
    return times


def by(way: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that goes one way: straight on, by NumPy calls of the program, or by C."""

    def run() -> Any:
        kernel.NUMBER_AT = math.inf if way == "numpy" else 0
        kernel.COMPILE_AT = 0 if way == "c" else math.inf
        known = dict(kernel._kernels)
        if way != "c":
            kernel._kernels.clear()
            read, kernel._read = kernel._read, lambda *_: None
        try:
            return call()
        finally:
            if way != "c":
                kernel._kernels.update(known)
                kernel._read = read

    return run


def speeds(title: str, points: int, call: Callable[[], Any]) -> None:
    began = time.perf_counter()
    by("c", call)()
    first = time.perf_counter() - began
    plain, calls, fast = least(by("numpy", call), by("calls", call), by("c", call))
    rates = [points / taken / 1e6 for taken in (plain, calls, fast)]
    print(
        f"| {title} | {rates[0]:.2f} | {rates[1]:.2f} | {rates[2]:.2f} | {rates[1] / rates[0]:.2f} x "
        f"| {rates[2] / rates[0]:.1f} x | {first:.1f} |"
    )


def derivatives(scenario: Scenario, columns: dict[str, Any]) -> None:
    """The time of a metric and its derivatives by all inputs, over that of the metric."""

    def results(asked: Scenario) -> dict[str, Any]:
        return {"tpot_s": evaluate(asked, ("tpot_s",)).metrics["tpot_s"]}

    program = kernel.traced(results, scenario)
    calls = []
    for one in (program, gradient(program, "tpot_s")):
        source = c.source(one, dict.fromkeys(columns, 0))
        run = library.compile(source.text)
        made = kernel.Kernel(run, source.fixed, source.varying, source.results, source.tables)
        fixed = np.array(list(kernel.inputs_of(source.fixed, scenario).values()))
        calls.append(lambda made=made, fixed=fixed: made(fixed, columns, [BLOCK]))
    alone, both = least(*calls)
    print(f"TPOT and its derivatives by all inputs: {both / alone:.2f} times TPOT alone")


def main() -> None:
    if not library.compiler():
        raise SystemExit("there is no C compiler")
    print("| M points/s | equations | calls | C | calls | C | trace and compile, s |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, (model, on, precision) in CASES.items():
        scenario = resolve(model, on, Options(precision=precision))
        varied = [path for path in VARIED if on != "lpu-v1" or path.startswith("traffic.")]
        drawn = scattered(resolve("llama-3.1-70b", "dgx-h100", Options()), BLOCK)
        columns = {path: get(drawn, path) for path in varied}
        for metrics, wanted in (("three metrics", WANTED), ("all metrics", METRICS)):
            speeds(f"{name}, {metrics}", BLOCK, lambda w=wanted, s=scenario, v=columns: answers.points(s, v, w))
        if name.startswith("Llama-70B FP8"):
            derivatives(scenario, columns)
            for metrics, wanted in (("three metrics", WANTED), ("all metrics", METRICS)):
                title = f"{name}, grid of a million, {metrics}"
                speeds(title, POINTS, lambda w=wanted, s=scenario: evaluate_grid(s, axes(), w))


if __name__ == "__main__":
    main()

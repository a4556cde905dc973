"""This tool on the question of the peers, and on a grid of a million points; run in the environment of the runner."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from measure import QUESTION, points, rate, single

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from questions import BLOCK, POINTS, WANTED, axes, hand_written, scattered

import perfmodel
from perfmodel.machines import kernels
from perfmodel.prediction import ALL, evaluate
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import put
from perfmodel.sweeps.space import evaluate_grid

MODEL, ON = "llama-3.1-70b", "dgx-h100:tp=8"
PATHS = ("traffic.concurrency", "traffic.prompt", "traffic.output", "deployment.tp")


def main() -> None:
    concurrency, prompt, output, _ = QUESTION
    answer = perfmodel.predict(MODEL, on=ON, precision="bf16", prompt=prompt, output=output, concurrency=concurrency)
    scenario = resolve(MODEL, ON, Options(precision="bf16", prompt=prompt, output=output, concurrency=concurrency))
    columns = np.array(points(BLOCK), dtype=float).T
    block = scenario
    for path, column in zip(PATHS, columns, strict=True):
        block = put(block, path, column)
    fp8 = resolve(MODEL, "dgx-h100", Options(precision="fp8"))
    drawn = scattered(fp8, BLOCK)
    batch, context = drawn.traffic.concurrency, drawn.traffic.prompt + drawn.traffic.output / 2
    tp, bandwidth = drawn.deployment.tp, drawn.system.memory.hbm.bandwidth
    work = {
        "per_second": (BLOCK, lambda: evaluate(block, WANTED)),
        "all_per_second": (BLOCK, lambda: evaluate(block)),
        "drawn_per_second": (BLOCK, lambda: evaluate(drawn, WANTED)),
        "grid_per_second": (POINTS, lambda: evaluate_grid(fp8, axes(), WANTED)),
        "grid_all_per_second": (POINTS, lambda: evaluate_grid(fp8, axes(), ALL)),
        "step_per_second": (BLOCK, lambda: kernels.MACHINE.decode(drawn, batch, context).time),
        "hand_per_second": (BLOCK, lambda: hand_written(fp8, batch, context, tp, bandwidth)),
    }
    found: dict[str, float] = {"ttft_s": answer.ttft_s, "tpot_s": answer.tpot_s}
    found["single_s"] = single(lambda _: evaluate(scenario, WANTED))
    found["predict_s"] = single(
        lambda _: perfmodel.predict(MODEL, on=ON, precision="bf16", prompt=prompt, output=output)
    )
    for name, (count, run) in work.items():
        found[name] = rate(run, count)
    print(json.dumps(found))


main()

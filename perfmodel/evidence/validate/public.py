"""What is known of the public sets beyond their columns: how they ran, which rows are apart, what was fitted on."""

from __future__ import annotations

import csv
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from perfmodel import shapes
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine

#: Scores of left-out rows, stored beside the calibrations.
LEFT_OUT = "left-out.json"
#: Files that something is fitted on.
FITTED = ("measured/serving.csv", "measured/serving2.csv")
#: Prompts that the fixed-length benchmarks sent: their TTFT jumps where the concurrency comes near it.
FIXED_PROMPTS = 1000.0
#: Nominal lengths of InferenceX's runs.
INFERENCEX = ((1024.0, 1024.0), (1024.0, 8192.0), (8192.0, 1024.0))


@dataclass(frozen=True)
class Harness:
    """How a benchmark ran: rounds (prompts over concurrency), spread of lengths, and whether prefill goes first."""

    rounds: float
    length_jitter: float
    prefill_first: bool = False
    held_steps: float = 0.0


def harness(model: str, engine: str, hardware: str, isl: float, osl: float, concurrency: float) -> Harness:
    """Return how a public set of benchmarks ran.

    InferenceX sends ten prompts a client with lengths even in 0.8 to 1 of the nominal ones, and is known by these; the
    others send about a thousand of fixed length.  Its scripts start DeepSeek and Qwen3.5 in SGLang on Blackwell with
    ``--scheduler-recv-interval`` 10, and 30 from 16 clients on.  With TensorRT-LLM the first token of DeepSeek comes
    after about 20 steps at every load, as if it were sent with the next 19; the cause is taken, not known.  SGLang
    0.5.1 runs prefill first and so in lock-step.
    """
    named = find_engine(engine)
    if named is not None and named.name == "sglang" and named.release == "0.5.1":
        return Harness(1.0, 0.0, True)
    if (isl, osl) in INFERENCEX:
        name, steps = model.casefold(), 0.0
        if _sglang_on_blackwell(engine, hardware) and ("deepseek" in name or "qwen3.5" in name):
            steps = ((10.0 if concurrency < 16 else 30.0) - 1) / 2
        elif named is not None and named.name == "trtllm" and "deepseek" in name:
            steps = 19.0
        return Harness(10.0, 0.2, held_steps=steps)
    return Harness(max(1.0, FIXED_PROMPTS / concurrency), 0.0)


def _sglang_on_blackwell(engine: str, hardware: str) -> bool:
    named = find_engine(engine)
    return named is not None and named.name == "sglang" and bool(re.search(r"\bg?b[23]00", hardware.casefold()))


def kv_of_row(model: str, engine: str, hardware: str, weights: str) -> str | None:
    """Return the cache precision that a public set is known to have used, where it is not the engine's rule."""
    if engine.casefold().startswith("trt") and weights in ("fp8", "fp4", "mxfp4"):
        # Published numbers of TensorRT-LLM are of NVIDIA's checkpoints, which declare an FP8 cache.
        return "fp8"
    if engine.casefold().startswith("vllm") and "70b" in model.casefold() and weights in ("fp8", "fp4"):
        return "fp8"
    if "deepseek" in model.casefold() and _sglang_on_blackwell(engine, hardware):
        # InferenceX starts it with --kv-cache-dtype fp8_e4m3.
        return "fp8"
    return None


def anomaly(row: Mapping[str, str]) -> str:
    """Return why a row of a public set is listed apart from the others, else an empty text."""
    model, hardware, engine = row["model"], row["hardware"], row["engine"]
    tp, isl, osl = float(row["tp"]), float(row["isl"]), float(row["osl"])
    if not row["concurrency_or_batch"]:
        return "no concurrency is given"
    clients = float(row["concurrency_or_batch"])
    if "gpt-oss" in model and engine.startswith("vllm") and clients >= 512:
        return "hidden limit on sequences"
    if model.startswith("nvidia/Llama-3.1-8B") and engine.startswith("vllm 0.12"):
        return "needs up to 94 % of peak FLOP/s, beyond its kernels: prefix hits or fewer clients than stated"
    if "gpt-oss" in model and engine.startswith("trtllm") and isl == 4000 and clients >= 160:
        return "attention-DP is not in the columns, only a batch a replica"
    if "DeepSeek-R1" in model and hardware == "H200 SXM" and tp == 8 and row.get("date") == "2026-01-14":
        return (
            "takes 0.5 to 0.7 of the time of the same release and layout a month before: drafting, or another release"
        )
    if "DeepSeek-R1" in model and hardware == "B200 SXM" and engine == "sglang" and row["dtype_weights"] == "fp4":
        return "TTFT of 0.4 to 12 s in no order of load: start-up inside the run" if row["metric"] == "ttft" else ""
    short = isl == osl == 1024
    vllm = engine.startswith("vllm")
    if "gpt-oss" in model and hardware == "H100 SXM" and vllm and short and (tp, clients) in ((4.0, 32.0), (8.0, 64.0)):
        return "bad run: slower than the next higher concurrency"
    if "8B" in model and engine.startswith("trtllm") and hardware == "H100 SXM" and tp >= 4 and clients >= 64:
        return "front end saturates near 9,000 tok/s whatever the TP"
    if "8B" in model and engine.startswith("sglang") and clients >= 512:
        return "front end saturates near 15,000 tok/s"
    slow = "70B" in model and hardware == "H200 SXM" and engine == "trtllm" and short and tp <= 4
    if slow and row["metric"] == "ttft":
        return "TTFT twice that of its neighbours: another harness"
    return ""


@functools.cache
def fitted_rows() -> tuple[dict[str, str], ...]:
    """Return the rows of the files that something is fitted on."""
    return tuple(row for name in FITTED for row in _read(name))


def _read(name: str) -> list[dict[str, str]]:
    with (catalog.bundled() / "data" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def fitted_keys() -> frozenset[tuple[str, str]]:
    """Return row id and metric of every row that a fit rests on."""
    serving = {(row["row_id"], row["metric"]) for row in fitted_rows() if is_plain(row) and not anomaly(row)}
    return frozenset(
        serving | {(row["row_id"], "tpot") for row in _read("measured/vendors.csv") if _of_inferentia(row)}
    )


def _of_inferentia(row: Mapping[str, str]) -> bool:
    """Whether the time a layer of Inferentia2 in its file rests on a run."""
    mine = row["hardware"] == "Inferentia2" and "Llama-3" in row["model"]
    return mine and float(row["concurrency_or_batch"] or 0) == 1


def is_plain(row: Mapping[str, str]) -> bool:
    """Whether a row is of one pool whose ranks share their requests; of attention-DP the spread is not told."""
    return row["mode"] == "agg" and float(row.get("attention_dp") or 1) <= 1


def stored_scores() -> list[shapes.LeftOut]:
    """Return the scores of left-out rows as ``calibrate`` stored them."""
    text = (catalog.bundled() / catalog.CALIBRATION / LEFT_OUT).read_text(encoding="utf-8")
    return cast(list[shapes.LeftOut], json.loads(text))

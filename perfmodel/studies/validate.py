"""Scoring predictions against measurements: rows in, the same rows with a prediction or a reason out.

A row is mapped to a scenario as its columns say; what it leaves open is assumed and noted in the row.  Points on which
something was fitted are flagged, and kept apart from predicted ones in every score.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from perfmodel import prediction
from perfmodel.equations import collectives, speculative
from perfmodel.errors import UserError
from perfmodel.machines.operators import Pass
from perfmodel.prediction import METRICS, Prediction, evaluate
from perfmodel.question import Options, check_plan, kv_rule, resolve
from perfmodel.serving.fit import fit
from perfmodel.serving.steady import MACHINES
from perfmodel.specs import catalog
from perfmodel.specs.types import Deployment, Model, Scenario, SramEfficiency, System, Traffic
from perfmodel.studies import serving_fit

REQUIRED = ("model", "hardware", "metric", "value", "unit")
#: What ``validate`` reads unless told otherwise, and what each file is for.
BUNDLED = {
    "serving": "measured/serving.csv",
    "validate": "measured/validate.csv",
    "speculative": "measured/speculative.csv",
}
#: Shares of measured values within which the charts and the tables count.
WITHIN = 0.2
#: Rows from which a 90th percentile is worth its name.
LEAST_P90 = 20

_NAN = math.nan


class Unanswered(Exception):
    """A row that gets no prediction, and why."""


# --- reading -----------------------------------------------------------------------------------------------------

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6}
_TIMES = {
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "msec": 1e-3,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "usec": 1e-6,
    "microseconds": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
}
_SHARES = {"": 1.0, "1": 1.0, "-": 1.0, "ratio": 1.0, "fraction": 1.0, "x": 1.0, "%": 0.01, "percent": 0.01}
_TOKENS = re.compile(
    r"(k|m)?(?:output |input |total )?(?:tok|toks|token|tokens|req|reqs|request|requests|queries|samples)"
)
_TOKEN = ("tok", "token", "tokens")
_EACH_CHIP = ("gpu", "chip", "rank", "device", "accelerator", "lpu", "rdu", "socket")


def read_unit(text: str) -> tuple[str, float, str] | None:
    """Return the kind of a unit (``time``, ``slope``, ``rate``, ``share``), its size inside, and what it is per."""
    unit = text.strip().casefold().replace(" per ", "/").removesuffix("(per user)").strip()
    if unit in ("tps", "tok/s/u"):
        unit = "tok/s"
    head, *rest = (part.strip() for part in unit.split("/"))
    if not rest:
        if head in _TIMES:
            return "time", _TIMES[head], ""
        return ("share", _SHARES[head], "") if head in _SHARES else None
    if head in _TIMES:
        return ("slope", _TIMES[head], "") if rest[0] in _TOKEN and len(rest) == 1 else None
    if rest == ["step"] and head in _TOKEN:
        return "share", 1.0, ""
    made = _TOKENS.fullmatch(head)
    count = 1.0 if head == "1" else _PREFIXES[made[1] or ""] if made else None
    spans = [part for part in rest if part in _TIMES]
    others = [part for part in rest if part not in _TIMES]
    if count is None or len(spans) != 1 or len(others) > 1:
        return None
    per = others[0] if others else ""
    if per and per not in (*_EACH_CHIP, "user", "request"):
        return None
    return "rate", count / _TIMES[spans[0]], "chip" if per in _EACH_CHIP else per


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV with the required columns; cells are stripped, comment lines left out.

    Raises
    ------
    UserError
        Where it is no such file, lacks a column, or holds a value or a unit that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"--data {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--data {path}: not a CSV file in UTF-8 ({type(error).__name__})") from None
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("#")]
    reader = csv.reader(lines)
    try:
        table = [row for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UserError(f"--data {path}: line {reader.line_num}: {error}") from None
    if not table:
        raise UserError(f"--data {path}: the file is empty; expected the columns {', '.join(REQUIRED)}")
    names = [name.strip() for name in table[0]]
    lower = [name.casefold() for name in names]
    missing = [name for name in REQUIRED if name not in lower]
    if missing:
        raise UserError(f"--data {path}: no column {', '.join(missing)}; it has {', '.join(names)[:200]}")
    # The columns that mean something answer in any case; the others keep their names.
    names = [low if low in _KNOWN else name for name, low in zip(names, lower, strict=True)]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--data {path}: column {', '.join(sorted(twice))} stands there twice")
    rows = []
    for number, cells in enumerate(table[1:], 2):
        if len(cells) > len(names):
            raise UserError(f"--data {path}: row {number} has {len(cells)} cells, the header {len(names)}")
        row = dict(zip(names, [*(cell.strip() for cell in cells), *[""] * (len(names) - len(cells))], strict=True))
        try:
            float(row["value"] or "nan")
        except ValueError:
            raise UserError(f"--data {path}: row {number}: value '{row['value']}' is not a number") from None
        form = find_form(row["metric"])
        if form is not None and form.units and read_unit(row["unit"]) is None:
            raise UserError(
                f"--data {path}: row {number}: unknown unit '{row['unit']}' of {row['metric']}; "
                "expected one like ms, s, us, tok/s, tok/s/user, tok/s/gpu, ms/token or ratio"
            )
        rows.append(row)
    return rows


_KNOWN = (
    *REQUIRED,
    *("row_id", "id", "n_chips", "tp", "pp", "ep", "dp", "dtype_weights", "dtype_kv", "engine", "mode", "isl", "osl"),
    *("concurrency_or_batch", "notes", "k", "method", "dataset", "source_url"),
)


def _number(row: Mapping[str, str], name: str) -> float | None:
    """Return a positive number of a column, or None where it is empty."""
    text = row.get(name, "").replace(",", "")
    if text.casefold() in ("", "none", "nan", "null", "n/a"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise Unanswered(f"{name} '{text}' is not a number") from None
    if not 0 < value < math.inf:
        raise Unanswered(f"{name} {text} must be more than 0")
    return value


def _whole(row: Mapping[str, str], name: str) -> float | None:
    value = _number(row, name)
    if value is not None and value != int(value):
        raise Unanswered(f"{name} {value:g} must be a whole number")
    return value


# --- names -------------------------------------------------------------------------------------------------------

#: Precisions by the names that data use.
PRECISION_OF = {
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_static": "fp8",
    "fp8_dynamic": "fp8",
    "float8": "fp8",
    "w8a8_fp8": "fp8",
    "e4m3": "fp8",
    "int8": "int8",
    "w8a8": "int8",
    "sq": "int8",
    "int8_sq": "int8",
    "int8_wo": "int8",
    "w8a16": "int8",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "w4a8_nvfp4": "fp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "w4a8_mxfp4_fp8": "mxfp4",
    "int4": "int4",
    "int4_wo": "int4",
    "w4a16": "int4",
    "awq": "int4",
    "gptq": "int4",
    "w4a16_awq": "int4",
    "w4a8": "int4",
}
#: Ends of a model's name that do not change its shape.
_ENDS = re.compile(
    r"[-_ ](instruct|it|hf|chat|base|thinking|dynamic|block|turbo|preview|99(\.9)?|\d{4}|v\d(\.\d)?|\d+e|tp|kv|"
    r"quantized|mlperf)$"
)
_PRECISION_END = re.compile(
    r"[-_ ](fp8|nvfp4|fp4|mxfp4|bf16|fp16|int8|int4|awq|gptq|w4a16|w8a8|w8a16|quantized\.w4a16|quantized\.w8a8)$"
)
#: Models with the shape of a listed one.
_SAME_SHAPE = {
    "llama38b": ("llama-3.1-8b", "Llama 3 8B has the shape of Llama 3.1 8B, not its long context"),
    "llama370b": ("llama-3.1-70b", "Llama 3 70B has the shape of Llama 3.1 70B, not its long context"),
    "metallama38b": ("llama-3.1-8b", "Llama 3 8B has the shape of Llama 3.1 8B, not its long context"),
    "metallama370b": ("llama-3.1-70b", "Llama 3 70B has the shape of Llama 3.1 70B, not its long context"),
    "deepseekr1distillllama8b": ("llama-3.1-8b", "a distillate in the shape of Llama 3.1 8B"),
    "deepseekr1distillllama70b": ("llama-3.3-70b", "a distillate in the shape of Llama 3.3 70B"),
    "deepseek31": ("deepseek-v3", "DeepSeek-V3.1 has the shape of DeepSeek-V3"),
    "deepseek31terminus": ("deepseek-v3", "DeepSeek-V3.1 has the shape of DeepSeek-V3"),
    "minimaxm2.1": ("minimax-m2", "MiniMax-M2.1 has the shape of MiniMax-M2"),
    "minimaxm21": ("minimax-m2", "MiniMax-M2.1 has the shape of MiniMax-M2"),
    "minimaxm25": ("minimax-m2", "MiniMax-M2.5 has the shape of MiniMax-M2"),
    "kimik25": ("kimi-k2", "the language model of Kimi K2.5 has the shape of Kimi K2"),
    "qwen3coder30ba3b": ("qwen3-30b-a3b", "Qwen3-Coder-30B-A3B has the shape of Qwen3-30B-A3B"),
    "glm46": ("glm-4.5", "GLM-4.6 has the shape of GLM-4.5"),
}
_HARDWARE_WORDS = re.compile(
    r"\b(nvidia|amd|intel|google|groq|tensor core|hgx|dgx|sxm[2-6]?|x[1-9]\d*|gpus?|server edition|server)\b|\(.*?\)"
)
#: Memory on the label of chips that come in one size only, or whose listed size is meant.
_LABELS = re.compile(r"\b(80|141|180|186|192|256|288|48|230)\s?(gb|gib|mb)\b")


def _squash(name: str) -> str:
    """Return a name without case, punctuation, and the v of a version."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"v(?=\d)", "", name.casefold()))


@functools.cache
def _squashed(kind: str) -> dict[str, str]:
    """Return the spec of every name and alias, squashed."""
    found: dict[str, str] = {}
    for name, aliases, _ in catalog.entries(kind):
        for alias in (name, *aliases):
            found.setdefault(_squash(alias), name)
            found.setdefault(_squash(alias.rpartition("/")[2]), name)
    return found


@functools.cache
def _unknown(kind: str, name: str) -> str:
    """Return why a name is none of a kind of spec, empty where it is one."""
    try:
        catalog.find(kind, name)
    except UserError as error:
        return str(error)
    return ""


@functools.cache
def find_model(name: str) -> tuple[str, str, str]:
    """Return the listed name of a model, the precision that its name ends in, and a note.

    Raises
    ------
    Unanswered
        Where nothing listed has that shape.
    """
    if not name:
        raise Unanswered("no model is given")
    known = _squashed("model")
    if (exact := known.get(_squash(name))) and not _PRECISION_END.search(name.casefold()):
        return exact, "", ""
    rest, precision = name.rpartition("/")[2].strip(), ""
    while rest:
        key = _squash(rest)
        if key in known:
            return known[key], precision, ""
        if key in _SAME_SHAPE:
            same, note = _SAME_SHAPE[key]
            return same, precision, note
        low = rest.casefold()
        if end := _PRECISION_END.search(low):
            precision = precision or PRECISION_OF[end[1].rpartition(".")[2]]
        else:
            end = _ENDS.search(low)
        if not end:
            break
        rest = rest[: end.start()]
    if (exact := known.get(_squash(name))) is not None:
        return exact, "", ""
    if unknown := _unknown("model", name):
        raise Unanswered(unknown)
    return name, "", ""


@functools.cache
def find_system(name: str) -> str:
    """Return the listed name of a system.

    Raises
    ------
    Unanswered
        Where nothing listed is it.
    """
    if not name:
        raise Unanswered("no hardware is given")
    known = _squashed("system")
    low = name.casefold().replace("-", " ").replace("_", " ")
    bare = _HARDWARE_WORDS.sub(" ", low)
    for tried in (name, low, bare, _LABELS.sub(" ", bare), re.sub(r"\bnvl ?\d+\b", " ", _LABELS.sub(" ", bare))):
        if (found := known.get(_squash(tried))) is not None:
            return found
    if unknown := _unknown("system", name):
        raise Unanswered(unknown)
    return name


def find_engine(text: str) -> str:
    """Return vllm, trtllm or sglang; empty where nothing is said or it is none of them."""
    low = text.casefold()
    for word, engine in (("vllm", "vllm"), ("sglang", "sglang"), ("trt", "trtllm"), ("tensorrt", "trtllm")):
        if word in low:
            return engine
    return ""


def find_precision(text: str, column: str) -> str:
    """Return a precision by any of its names; empty where none is given."""
    key = re.sub(r"[-\s]+", "_", text.strip().casefold())
    if not key:
        return ""
    if key in PRECISION_OF:
        return PRECISION_OF[key]
    raise Unanswered(f"{column} '{text}' is no precision that is known here")


# --- metrics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How a metric of the data is predicted.

    Attributes
    ----------
    family : str
        The name under which its scores stand.
    units : tuple of str
        Kinds of unit that it can have; none where no model of ours gives it.
    how : str
        ``loop``: steady state at the row's concurrency; ``most``: the best of all concurrencies; ``prompt``: a static
        batch; ``step``: one decode step; ``context``: decode steps over contexts; ``curve``: a collective;
        ``accepted``: speculative arithmetic; ``later``: not modelled yet, ``reason`` says what brings it.
    value : callable, optional
        The number inside, of the answer of a steady state.
    """

    family: str
    units: tuple[str, ...]
    how: str = "loop"
    value: Callable[[Prediction], Any] | None = None
    reason: str = ""


def _rate(answer: Prediction) -> Any:
    return answer.metrics["output_tokens_per_s"]


def _both(answer: Prediction) -> Any:
    return answer.metrics["output_tokens_per_s"] + answer.metrics["input_tokens_per_s"]


_FORMS: dict[str, Form] = {
    "ttft": Form("TTFT", ("time",), value=lambda answer: answer.metrics["ttft_s"]),
    "ttft_median": Form("TTFT", ("time",), value=lambda a: a.metrics.get("ttft_median_s", a.metrics["ttft_s"])),
    "tpot": Form("TPOT", ("time", "slope"), value=lambda answer: answer.metrics["tpot_s"]),
    "latency": Form("latency", ("time",), value=lambda answer: answer.metrics["request_latency_s"]),
    "output": Form("output throughput", ("rate",), value=_rate),
    "output_chip": Form("output throughput", ("rate",), value=lambda answer: _rate(answer) / answer.chips),
    "input": Form("input throughput", ("rate",), value=lambda answer: answer.metrics["input_tokens_per_s"]),
    "both": Form("total throughput", ("rate",), value=_both),
    "both_chip": Form("total throughput", ("rate",), value=lambda answer: _both(answer) / answer.chips),
    "user": Form("output speed per user", ("rate",), value=lambda answer: 1 / answer.metrics["tpot_s"]),
    "requests": Form(
        "request throughput",
        ("rate",),
        value=lambda answer: answer.scenario.traffic.concurrency / answer.metrics["request_latency_s"],
    ),
    "mfu": Form("utilisation", ("share",), value=lambda answer: answer.metrics["mfu"]),
    "mbu": Form("utilisation", ("share",), value=lambda answer: answer.metrics["mbu"]),
    "most": Form("largest throughput", ("rate",), "most"),
    "prompt": Form("prompt time", ("time",), "prompt"),
    "step": Form("decode step", ("time", "slope"), "step"),
    "slope": Form("step against context", ("slope",), "context"),
    "intercept": Form("step against context", ("time",), "context"),
    "curve": Form("all-reduce share", ("share",), "curve"),
    "accepted": Form("accepted length", (), "accepted"),
    "speculative": Form(
        "speculation", (), "later", reason="the speed of speculative decoding comes with its own models"
    ),
    "mtp": Form("output speed per user", ("rate",), "mtp"),
    "given": Form("inputs", (), "later", reason="an input of the models, not something they predict"),
    "power": Form("power and energy", (), "later", reason="power and energy come with the cost models"),
    "tail": Form("percentiles", (), "later", reason="percentiles come with the simulator"),
}
_NAMES: dict[str, tuple[str, ...]] = {
    "ttft": ("ttft", "ttft_mean", "mean_ttft", "ttft_avg", "avg_ttft", "time_to_first_token", "first_token_latency"),
    "ttft_median": ("ttft_median", "median_ttft", "ttft_p50", "p50_ttft"),
    "tpot": (
        *("tpot", "tpot_mean", "mean_tpot", "tpot_avg", "tpot_median", "median_tpot", "tpot_p50", "p50_tpot"),
        *("itl", "itl_mean", "mean_itl", "itl_avg", "itl_median", "median_itl", "itl_p50", "p50_itl", "tbt"),
        *("inter_token_latency", "time_per_output_token", "time_between_tokens"),
    ),
    "latency": (
        *("request_latency", "latency", "e2e", "e2el", "e2e_latency", "end_to_end_latency", "e2e_request_latency"),
        *("mean_e2el", "e2el_mean", "request_latency_mean", "request_latency_median", "median_e2el", "e2el_median"),
    ),
    "output": (
        *("output_throughput", "output_throughput_total", "output_token_throughput", "output_tokens_per_s"),
        *("output_tokens_per_second", "throughput", "output_tps", "generation_throughput", "decode_throughput"),
        *("output_tput", "token_throughput"),
    ),
    "output_chip": (
        *("output_throughput_per_gpu", "output_throughput_per_chip", "output_tput_per_gpu", "output_tps_per_gpu"),
        *("output_tps_per_rank", "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_chip", "output_tps_per_chip"),
    ),
    "input": ("input_throughput", "input_tokens_per_s", "input_token_throughput", "prefill_throughput", "input_tput"),
    "both": (
        *("total_token_throughput", "total_throughput", "system_throughput", "total_tokens_per_s", "total_tput"),
        "tokens_per_s",
    ),
    "both_chip": (
        *(
            "tokens_per_s_per_chip",
            "tokens_per_s_per_gpu",
            "tput_per_gpu",
            "total_tput_per_gpu",
            "total_throughput_per_gpu",
        ),
    ),
    "user": (
        *("output_tps_per_user", "tps_per_user", "output_throughput_per_user", "output_tokens_per_s_per_user"),
        *("interactivity", "tokens_per_s_per_user", "output_speed", "decode_speed"),
    ),
    "requests": ("request_throughput", "requests_per_s", "requests_per_second", "qps"),
    "mfu": ("mfu",),
    "mbu": ("mbu", "hbm_bandwidth_utilisation", "hbm_bandwidth_utilization", "memory_bandwidth_utilisation"),
    "most": (
        *("output_throughput_total_max", "output_throughput_max", "max_output_throughput", "mlperf_offline_throughput"),
        *("offline_throughput", "max_throughput"),
    ),
    "prompt": ("prompt_time", "prefill_time", "prefill_latency", "context_latency"),
    "step": ("decode_step_time", "decode_step_latency", "decode_latency", "token_time", "generation_step_latency"),
    "slope": ("itl_slope_per_context_token", "tpot_slope_per_context_token"),
    "intercept": ("itl_intercept", "tpot_intercept"),
    "curve": ("allreduce_bandwidth_fraction", "all_reduce_bandwidth_fraction"),
    "accepted": ("mean_accepted_length_tau", "accepted_length", "mean_accepted_length"),
    "speculative": (
        *("speedup", "slowdown", "throughput_ratio_vs_no_spec", "throughput_ratio_vs_eagle_3"),
        *("throughput_ratio_vs_no_spec_range_low", "throughput_ratio_vs_no_spec_range_high"),
    ),
    "given": (
        *("acceptance_rate_alpha", "acceptance_rate_second_token", "conditional_acceptance_position"),
        *("draft_cost_ratio_c", "draft_share_of_sd_step"),
    ),
}
_FORM_OF = {name: key for key, names in _NAMES.items() for name in names}
_POWER = re.compile(r"power|energy|joule|watt|tco|usd|cost|carbon")
_TAIL = re.compile(r"(^|_)(p\d\d(\.\d)?|std|max|min|p999?)(_|$)")
_GIVEN = re.compile(r"^(acceptance_rate_position_\d+|t_[a-z_]+)$")


@functools.cache
def _form_key(metric: str) -> str:
    """Return the key of a metric's form; empty where nothing here gives it."""
    name = re.sub(r"\(.*?\)", "", metric.casefold()).strip()
    name = re.sub(r"[\s\-/]+", "_", name).strip("_")
    for tried in (name, re.sub(r"_(s|ms|us|sec|seconds)$", "", name)):
        if tried in _FORM_OF:
            return _FORM_OF[tried]
    for pattern, key in ((_POWER, "power"), (_GIVEN, "given"), (_TAIL, "tail")):
        if pattern.search(name):
            return key
    return ""


def find_form(metric: str) -> Form | None:
    """Return how a metric is predicted, or None where nothing here gives it."""
    key = _form_key(metric)
    return _FORMS[key] if key else None


# --- how the benchmarks ran --------------------------------------------------------------------------------------

_INFERENCEX = re.compile(r"^\d{4}_\d{2}_\d{2}_")


def harness(row: Mapping[str, str]) -> dict[str, Any]:
    """Return how the benchmark of a row sent its requests, as fields of :class:`Traffic`.

    Known sets ran as ``calibrate`` takes them.  A row that says how many requests it sent is taken at its word.  One
    client alone, in a row that is of none of those sets, is no load test and has fixed lengths.
    """
    clients = _number(row, "concurrency_or_batch") or 1.0
    notes = row.get("notes", "").casefold()
    if asked := re.search(r"(\d+) requests", notes):
        spread = re.search(r"lengths \+/-\s*(\d+)\s*%", notes)
        half = float(spread[1]) / 100 if spread else 0.0
        # Lengths count down from the longest.
        return {"rounds": max(1.0, float(asked[1]) / clients), "length_jitter": 2 * half / (1 + half)}
    if clients <= 1 and not row.get("row_id"):
        return {"rounds": 10.0, "length_jitter": 0.0}
    ran = serving_fit.harness(row["model"], row.get("engine", ""), _plain(row, "isl"), clients)
    return {entry.name: getattr(ran, entry.name) for entry in fields(ran)}


def engine_cap(engine: str) -> float:
    """Return the sequences that an engine runs at once by default in one replica."""
    return 256.0 if engine == "vllm" else 2048.0


def anomaly(row: Mapping[str, str]) -> str:
    """Return why a public measurement is not one of a plain closed loop, else nothing."""
    if not row.get("row_id") or any(_plain(row, name) != _plain(row, name) for name in _LOADED):
        return ""
    return serving_fit.anomaly(row)


_LOADED = ("tp", "isl", "osl", "concurrency_or_batch")


def _plain(row: Mapping[str, str], name: str) -> float:
    try:
        return float(row.get(name) or "nan")
    except ValueError:
        return _NAN


# --- from a row to a scenario ------------------------------------------------------------------------------------


@functools.cache
def _model(name: str) -> Model:
    return catalog.load_model(name)


@functools.cache
def _system(name: str, engine: str) -> tuple[System, str, bool]:
    """Return a system with an engine's efficiencies, the engine, and whether they were calibrated."""
    system, chosen, warnings = catalog.load_system(name, engine or None)
    return system, chosen, not warnings


_TRAFFIC_FIELDS = frozenset(entry.name for entry in fields(Traffic))


@dataclass
class Row:
    """One measured value, what was made of it, and what came out.

    Attributes
    ----------
    given : dict
        The input's columns.
    data : str
        The file it stands in.
    value : float
        As measured, in the row's own unit.
    metric : str
        Family under which it is scored.
    model, system, engine : str
        As they are listed here; as given where they are not.
    moe : bool or None
    fitted : bool
        Whether something was fitted on it.
    chip_calibrated : bool
        Whether the chip has efficiencies of its own with this engine.
    anomaly : str
        Why it does not count, else empty.
    predicted, low, high : float
        In the row's own unit; NaN where there is none.
    reason : str
        Why there is no prediction.
    notes : list of str
        What was assumed.
    """

    given: dict[str, str]
    data: str
    value: float
    metric: str
    model: str
    system: str
    engine: str
    moe: bool | None = None
    fitted: bool = False
    chip_calibrated: bool = False
    anomaly: str = ""
    predicted: float = _NAN
    low: float = _NAN
    high: float = _NAN
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        """Signed relative error; NaN where there is no prediction."""
        return self.predicted / self.value - 1 if self.value > 0 else _NAN

    @property
    def part(self) -> str:
        """Return ``anomalous``, ``calibrated`` or ``predicted``: these are never mixed."""
        return "anomalous" if self.anomaly else "calibrated" if self.fitted else "predicted"

    def to_dict(self) -> dict[str, Any]:
        """Return the input's columns with what came out."""
        unit = read_unit(self.given["unit"])
        value = self.value if math.isfinite(self.value) else None
        return {
            **self.given,
            "value": value,
            "predicted": _finite(self.predicted),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "error": _finite(self.error) if value else None,
            "reason": self.reason or None,
            "part": self.part,
            "anomaly": self.anomaly or None,
            "metric_family": self.metric,
            "matched_model": self.model,
            "matched_system": self.system,
            "matched_engine": self.engine,
            "assumed": "; ".join(self.notes) or None,
            "unit_kind": unit[0] if unit else None,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class _Asked:
    """A row with the layouts to try, the likeliest first."""

    row: Row
    form: Form
    key: str
    scale: float
    per: str
    layouts: Iterator[tuple[Scenario, str]] = field(repr=False)


_ROW_ID_TP = re.compile(r"_tp(\d+)(?:_\d+)?_ep(\d+|none)")
_MOE_TP = re.compile(r"moe_tp=(\d+)")


def _shape(row: Mapping[str, str], notes: list[str]) -> tuple[float | None, float, float, float]:
    """Return TP (None where nothing says), PP, EP and the ranks of all replicas together, as the columns say."""
    tp, pp, ep = _whole(row, "tp"), _whole(row, "pp") or 1.0, _whole(row, "ep") or 1.0
    chips, dp = _whole(row, "n_chips"), _whole(row, "dp")
    if tp is None and chips is None:
        return None, pp, ep, 0.0
    if "gpt-oss-dev" in row.get("engine", "").casefold() and tp is not None:
        written = _ROW_ID_TP.search(row.get("row_id", ""))
        if written and float(written[1]) < tp and tp % float(written[1]) == 0:
            real = float(written[1])
            ep = max(ep, tp / real)
            notes.append(f"tp column {tp:g} is TP x EP; the row id says TP {real:g}")
            chips = max(chips or 0.0, tp * pp)
            tp = real
    ranks = max((chips or 0.0) / pp, (tp or 1.0) * (dp or 1.0), ep)
    moe_tp = _MOE_TP.search(row.get("notes", ""))
    if moe_tp and float(moe_tp[1]) * ep > ranks:
        ranks = float(moe_tp[1]) * ep
        notes.append(f"moe_tp x ep = {ranks:g} ranks: attention-DP over {ranks / (tp or 1.0):g}")
    if tp is not None and ranks % tp:
        notes.append(f"{ranks:g} chips are no multiple of TP {tp:g}: one replica is taken")
        ranks = tp
    return tp, pp, ep, ranks


def _layouts(
    base: Scenario, tp: float | None, pp: float, ep: float, ranks: float, widest: bool
) -> Iterator[tuple[Scenario, str]]:
    """Give the layout of a row, and then those that come nearest, each with what is said of it."""
    seen: set[tuple[float, float, float]] = set()

    def laid(tp: float, ep: float, ranks: float, note: str) -> Iterator[tuple[Scenario, str]]:
        key = (tp, ep, ranks)
        if key in seen or ranks % tp:
            return
        seen.add(key)
        plan = replace(base.deployment, tp=tp, pp=pp, ep=ep, dp=ranks / tp)
        try:
            check_plan(base.model, base.system, plan)
        except UserError:
            return
        yield replace(base, deployment=plan), note

    divisors = [float(count) for count in range(1, int(ranks) + 1) if ranks % count == 0]
    if tp is None:
        # Latency is measured on all chips together, throughput on as many replicas as fit.
        for wanted in reversed(divisors) if widest else divisors:
            yield from laid(wanted, ep, ranks, f"TP is not given: TP {wanted:g} x {ranks / wanted:g} replicas taken")
        tp = ranks
    moe = any(run.moe is not None for run in base.model.layers)
    yield from laid(tp, ep, ranks, "")
    if ep > 1:
        yield from laid(tp, 1.0, ranks, f"EP {ep:g} cannot be laid out here: EP 1 taken")
    elif moe and ranks > tp:
        yield from laid(tp, ranks, ranks, f"does not fit as stated: experts spread over all {ranks:g} chips")
    for other in sorted(divisors, key=lambda count: (abs(math.log(count / tp)), -count)):
        yield from laid(other, ep, ranks, f"TP {tp:g} cannot be used here: TP {other:g} taken")
        yield from laid(other, 1.0, ranks, f"TP {tp:g} cannot be used here: TP {other:g} and EP 1 taken")
    for factor in (2.0, 4.0, 8.0, 16.0):
        more = tp * factor
        yield from laid(more, 1.0, more, f"does not fit {ranks:g} chips: {more:g} taken, which the row does not say")


_LENGTHS = re.compile(r"^\s*([\d.]+)\s*\.\.\s*([\d.]+)\s*$")


def _lengths(row: Mapping[str, str], form: Form, clients: float, notes: list[str]) -> tuple[float, float]:
    """Return prompt and output tokens of a row."""
    if form.how == "context":
        return 1.0, 2.0
    prompt, output = _number(row, "isl"), _number(row, "osl")
    if form.how in ("prompt", "step"):
        if prompt is None:
            raise Unanswered("no isl is given")
        return prompt, output or 1.0
    if prompt is None and clients == 1 and form.family in ("TPOT", "output speed per user", "utilisation"):
        chat = catalog.load_traffic("chat")
        notes.append(f"lengths are not given: chat, {chat.prompt:g} in and {chat.output:g} out")
        return float(cast(float, chat.prompt)), float(cast(float, chat.output))
    if prompt is None:
        raise Unanswered("no isl is given, and no mean input length of its workload stands in the data")
    if output is None:
        if form.family != "TTFT":
            raise Unanswered("no osl is given")
        notes.append("osl is not given: 128 tokens taken")
        output = 128.0
    return prompt, output


def _ask(row: Row) -> _Asked:
    """Return what to evaluate for a row.

    Raises
    ------
    Unanswered
        Where the row lacks what a prediction needs.
    """
    given = row.given
    key = _form_key(given["metric"])
    if not key:
        raise Unanswered(f"nothing here predicts {given['metric'] or 'a metric without a name'}")
    form = _FORMS[key]
    row.metric = form.family
    unit = read_unit(given["unit"])
    # Names are resolved even where the metric has no model, so that its group is right.
    curve = form.how == "curve" and not given["model"]
    try:
        row.system = find_system(given["hardware"])
        model_name, written, note = ("", "", "") if curve else find_model(given["model"])
    except Unanswered:
        if form.how in ("later", "accepted"):
            raise Unanswered(form.reason or _NO_ACCEPTANCE) from None
        raise
    model = _NO_MODEL if curve else _model(model_name)
    if not curve:
        row.model, row.moe = model.name, any(run.moe is not None for run in model.layers)
    if form.how == "later":
        raise Unanswered(form.reason)
    if not math.isfinite(row.value) or row.value <= 0:
        raise Unanswered("no measured value, or none above 0, to compare with")
    if form.how == "accepted":
        raise Unanswered(_NO_ACCEPTANCE)
    system_name = row.system
    engine = find_engine(given.get("engine", ""))
    bare = _system(system_name, "")[0]
    if bare.kind != "kernels":
        engine = ""
    elif not engine and given.get("engine"):
        engine = "trtllm" if bare.chip[0] in "abhgl" and re.search("cuda|tensor", given["engine"].casefold()) else ""
        row.notes.append(f"engine '{given['engine']}' is taken as {engine or bare.default_engine}")
    system, row.engine, row.chip_calibrated = _system(system_name, engine)
    row.system = system.name
    if unit is None or unit[0] not in form.units:
        raise Unanswered(f"unit '{given['unit']}' is none of {given['metric']}")
    if form.how == "curve":
        return _Asked(row, form, key, unit[1], unit[2], iter([(Scenario(system, model, _NO_PLAN, _NO_LOAD), "")]))
    if note:
        row.notes.append(note)
    mode = given.get("mode", "").casefold()
    if "disagg" in mode or "disagg" in given.get("engine", "").casefold():
        raise Unanswered("disaggregated serving comes with its own model")
    if given.get("method", "").casefold() not in ("", "none") and _plain(given, "k") != 0:
        if key != "user" or system.kind != "kernels" or _measured_length(given) is None:
            raise Unanswered(_FORMS["speculative"].reason)
        form, key = _FORMS["mtp"], "mtp"
    if re.search(r"pruned|sparse", given.get("notes", "").casefold()):
        row.notes.append("the run pruned or sparsified the model; the whole model is predicted")
    asked_for = _number(given, "concurrency_or_batch") if form.how != "most" else None
    if key in ("output", "output_chip") and asked_for is None:
        form, key = _FORMS["most"], "most"
        row.metric = form.family
        row.notes.append("no concurrency is given: the largest throughput")
    if asked_for is None and form.how in ("loop", "prompt", "step"):
        raise Unanswered("no concurrency is given")
    clients = asked_for or 1.0
    prompt, output = _lengths(given, form, clients, row.notes)
    weights, cache = _precisions(row, written, model, system)
    traffic = _traffic(given, form, prompt, output, clients)
    tp, pp, ep, ranks = _shape(given, row.notes)
    deployment = Deployment("given", row.engine, weights, cache, tp=1.0)
    base = Scenario(system, model, deployment, traffic)
    if tp is None and (ranks == 0 or system.kind != "kernels"):
        layouts = _default_layout(base, ranks)
    elif system.kind != "kernels":
        layouts = _plans(base, tp or ranks, pp)
    else:
        layouts = _layouts(base, tp, pp, ep, ranks, form.how != "most")
    return _Asked(row, form, key, unit[1], unit[2], layouts)


_NO_ACCEPTANCE = "no acceptance of this run stands in the data; trees do not follow the chain formula"
_NO_MODEL = Model("", "", "fp16", 1.0, 1.0, False, 1.0, ())
_NO_PLAN = Deployment("given", "native", "fp16", "fp16", tp=1.0)
_NO_LOAD = Traffic("given", 1.0, 1.0)


def _traffic(given: Mapping[str, str], form: Form, prompt: float, output: float, clients: float) -> Traffic:
    how: Mapping[str, Any] = harness(given) if form.how == "loop" else {}
    used = {name: value for name, value in how.items() if name in _TRAFFIC_FIELDS}
    if "lengths +/-" in given.get("notes", ""):
        longest = 1 / (1 - float(used.get("length_jitter", 0.0)) / 2)
        prompt, output = prompt * longest, output * longest
    return Traffic("given", prompt, output, clients, **used)


def _precisions(row: Row, written: str, model: Model, system: System) -> tuple[str, str]:
    """Return the precisions of weights and cache, and note where a name does not say what it seems to."""
    given = row.given
    weights = find_precision(given.get("dtype_weights", ""), "dtype_weights") or written or model.precision
    if model.precision == "mxfp4" and weights in ("fp4", "int4", "fp8"):
        if weights == "fp8":
            row.notes.append(f"{model.name} is published in MXFP4: FP8 is taken to be its activations")
        weights_kept, weights = weights, "mxfp4"
    else:
        weights_kept = weights
    text = given.get("dtype_kv", "")
    if "only" in text.casefold():
        row.notes.append(f"KV cache '{text}' is taken for all layers")
        text = text.split()[0]
    cache = find_precision(text, "dtype_kv")
    if not cache:
        dated = _INFERENCEX.match(given.get("row_id", ""))
        known = serving_fit.kv_of_row(given["model"], row.engine, weights_kept) if dated else None
        if known:
            row.notes.append(f"KV cache {known}, as InferenceX runs this set")
        cache = known or kv_rule(system, row.engine, weights_kept)
    if system.computes_as.get(weights) not in system.rates:
        raise Unanswered(f"{system.name} does not compute {weights}")
    return weights, cache


def _default_layout(base: Scenario, ranks: float) -> Iterator[tuple[Scenario, str]]:
    """Give the layout that a question without one gets."""
    plan, load = base.deployment, base.traffic
    if ranks:
        for known in base.system.plans:
            if known.pp == "1" and float(cast(float, known.tp)) == ranks:
                yield from _plans(base, ranks, 1.0)
    options = Options(
        engine=plan.engine,
        precision=plan.precision,
        kv_precision=plan.kv_precision,
        prompt=math.ceil(float(cast(float, load.prompt))),
        output=math.ceil(float(cast(float, load.output))),
        concurrency=float(cast(float, load.concurrency)),
    )
    try:
        scenario = resolve(base.model, base.system.name, options)
    except UserError as error:
        raise Unanswered(str(error)) from None
    note = f"the layout is not given: {scenario.assumed[0]}" if scenario.assumed else ""
    yield replace(scenario, traffic=load, system=base.system), note


def _plans(base: Scenario, tp: float, pp: float) -> Iterator[tuple[Scenario, str]]:
    """Give the layouts of a machine that is no GPU, the one asked for first, then its own plans by nearness."""
    options = Options(
        engine=base.deployment.engine,
        precision=base.deployment.precision,
        kv_precision=base.deployment.kv_precision,
        concurrency=float(cast(float, base.traffic.concurrency)),
    )
    known = sorted({float(cast(float, plan.tp)) for plan in base.system.plans}, key=lambda at: abs(math.log(at / tp)))
    for wanted, stages in [(tp, pp if pp > 1 else None), *((other, None) for other in known)]:
        try:
            found = resolve(base.model, base.system.name, replace(options, tp=wanted, pp=stages))
        except UserError:
            continue
        note = "" if wanted == tp else f"TP {tp:g} cannot be used here: TP {wanted:g} taken"
        yield replace(found, traffic=base.traffic, system=base.system), note


# --- evaluating --------------------------------------------------------------------------------------------------

#: What forms and bands need of a steady state.
_WANTED = METRICS
Tick = Callable[[int], None]


def _group_key(asked: _Asked, scenario: Scenario) -> tuple[Any, ...]:
    """Return what rows must share to be evaluated as arrays: all but lengths, concurrency and rounds."""
    plan, load = scenario.deployment, scenario.traffic
    switches = tuple(getattr(load, name) for name in ("prefill_first",) if name in _TRAFFIC_FIELDS)
    return (asked.form.how, scenario.system.name, scenario.model.name, plan, switches)


def _stacked(traffics: Sequence[Traffic]) -> Traffic:
    """Return the loads of many rows as one load of arrays."""
    names = [name for name in ("prompt", "output", "concurrency", "rounds", "length_jitter") if name in _TRAFFIC_FIELDS]
    columns: dict[str, Any] = {name: np.array([float(getattr(load, name)) for load in traffics]) for name in names}
    return replace(traffics[0], **columns)


def _loop(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give value, low, high (inside units) and chips of rows that share all but their load."""
    scenario = replace(scenarios[0], traffic=_stacked([one.traffic for one in scenarios]))
    answer = evaluate(scenario, _WANTED)
    for at, (asked, one) in enumerate(zip(group, scenarios, strict=True)):
        yield _valued(asked, _point(answer, one, (at,), (len(group),)))


def _point(answer: Prediction, scenario: Scenario, at: tuple[int, ...], shape: tuple[int, ...]) -> Prediction:
    """Return one point of an answer of arrays as an answer of floats."""
    metrics = {key: float(np.broadcast_to(value, shape)[at]) for key, value in answer.metrics.items()}
    return replace(answer, scenario=scenario, metrics=metrics, chips=float(answer.chips))


_EFFECTS: dict[tuple[Any, ...], list[Any]] = {}


def _band(answer: Prediction) -> Mapping[str, Mapping[str, float]]:
    """Return the 80 % band of a point; how far estimates move it is worked out once a system and engine."""
    scenario = answer.scenario
    own = scenario.system.kind == "kernels"
    key = (scenario.system.name, scenario.deployment.engine, () if own else scenario.deployment)
    if key not in _EFFECTS:
        # What the efficiencies of a calibrated engine leave open is in its residuals.
        moved = any(
            origin.kind == "estimate" and not (own and path.startswith("efficiency."))
            for path, origin in scenario.system.provenance.items()
        )
        _EFFECTS[key] = prediction._effects(scenario, answer) if moved else []
    return prediction._band(scenario, answer, _EFFECTS[key])


def _valued(asked: _Asked, answer: Prediction) -> tuple[float, float, float, float]:
    """Return value, low, high (inside units) and chips of a row."""
    value = asked.form.value or _rate
    middle = float(value(answer))
    ends = []
    if math.isfinite(middle):
        band = _band(answer)
        # Where a rate follows from a time, the low end of one is the high end of the other.
        for side in ("low", "high"):
            metrics = {key: band[key][side] if key in band else number for key, number in answer.metrics.items()}
            ends.append(float(value(replace(answer, metrics=metrics))) if band else _NAN)
    return middle, min(ends, default=_NAN), max(ends, default=_NAN), float(answer.chips)


def _most(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the largest output throughput over the concurrency, up to the cache and the engine's own limit."""
    plan = scenarios[0].deployment
    limit = engine_cap(plan.engine) * float(cast(float, plan.dp))
    load = _stacked([one.traffic for one in scenarios])
    column = {name: getattr(load, name)[:, None] for name in ("prompt", "output")}
    tried = np.unique(np.round(np.geomspace(1.0, limit, 48)))[None, :]
    one = replace(scenarios[0].traffic, **column, concurrency=tried)
    answer = evaluate(replace(scenarios[0], traffic=one), _WANTED)
    shape = (len(group), tried.size)
    rate = np.broadcast_to(answer.metrics["output_tokens_per_s"], shape)
    cap = np.broadcast_to(answer.max_concurrency, shape)
    held = np.where((tried <= np.maximum(cap, 1.0)) & ~np.isnan(rate), rate, -np.inf)
    for at, (asked, scenario) in enumerate(zip(group, scenarios, strict=True)):
        best = int(np.argmax(held[at]))
        load = replace(scenario.traffic, concurrency=float(tried[0, best]))
        yield _valued(asked, _point(answer, replace(scenario, traffic=load), (at, best), shape))


def _prompt(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the time of a static batch of prompts that nothing else disturbs."""
    for scenario in scenarios:
        load, plan = scenario.traffic, scenario.deployment
        machine = MACHINES[scenario.system.kind]
        batch = load.concurrency / plan.dp
        if scenario.system.kind == "kernels":
            time = machine.step(scenario, (Pass(batch, load.prompt, 0.0),)).time
        else:
            time = batch * machine.prefill(scenario, 1.0, load.prompt, load.prompt)[0].time
        yield float(time), _NAN, _NAN, float(plan.tp * plan.pp * plan.dp)


def _step(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the time of one decode step of a static batch."""
    for scenario in scenarios:
        load, plan = scenario.traffic, scenario.deployment
        context = load.prompt + load.output / 2
        step = MACHINES[scenario.system.kind].decode(scenario, load.concurrency / plan.dp, context)
        yield float(step.time), _NAN, _NAN, float(plan.tp * plan.pp * plan.dp)


def _context(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give slope [s/token] or intercept [s] of the line through the steps over a row's contexts."""
    for asked, scenario in zip(group, scenarios, strict=True):
        written = _LENGTHS.match(asked.row.given.get("isl", ""))
        first, last = (float(written[1]), float(written[2])) if written else (1024.0, 32768.0)
        contexts = np.linspace(first, last, 33)
        plan = scenario.deployment
        step = MACHINES[scenario.system.kind].decode(
            scenario, float(cast(float, scenario.traffic.concurrency)), contexts
        )
        slope, intercept = np.polyfit(contexts, np.broadcast_to(step.time, contexts.shape), 1)
        yield float(slope if asked.key == "slope" else intercept), _NAN, _NAN, float(plan.tp * plan.pp * plan.dp)


def _curve(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give the share of its links' rate that an all-reduce of the row's message reaches."""
    for asked, scenario in zip(group, scenarios, strict=True):
        size = re.search(r"([\d.]+)\s*(k|m)ib", asked.row.given.get("notes", "").casefold())
        efficiency = scenario.system.efficiency
        if size is None or not isinstance(efficiency, SramEfficiency):
            asked.row.reason = "no message size in the notes, or no published curve of this machine"
            yield _NAN, _NAN, _NAN, _NAN
            continue
        message = float(size[1]) * (1024.0 if size[2] == "k" else 1048576.0)
        time = collectives.saturating_all_reduce(
            message=message,
            latency=efficiency.all_reduce_latency,
            bandwidth=efficiency.all_reduce_bandwidth,
            exponent=efficiency.all_reduce_exponent,
        )
        share = collectives.saturation(message=message, time=time, bandwidth=efficiency.all_reduce_bandwidth)
        yield float(share), _NAN, _NAN, 1.0


@functools.cache
def _lengths_measured() -> dict[tuple[str, ...], float]:
    """Return accepted lengths that were measured, by model, method, depth and data set."""
    found = {}
    for row in read_rows(bundled_path("speculative")):
        if _form_key(row["metric"]) == "accepted":
            found[_draft_of(row)] = float(row["value"])
    return found


def _draft_of(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row.get(name, "").casefold() for name in ("model", "method", "k", "dataset"))


def _measured_length(row: Mapping[str, str]) -> float | None:
    """Return the accepted length measured in the run of a row with multi-token prediction."""
    return _lengths_measured().get(_draft_of(row)) if row.get("method", "").casefold() == "mtp" else None


def _mtp(group: Sequence[_Asked], scenarios: Sequence[Scenario]) -> Iterator[tuple[float, float, float, float]]:
    """Give output tokens a user and second with multi-token prediction, at the accepted length that was measured.

    A step verifies k + 1 tokens of each sequence, after k passes of one layer and the head.
    """
    for asked, scenario in zip(group, scenarios, strict=True):
        load, plan = scenario.traffic, scenario.deployment
        machine, drafted = MACHINES["kernels"], _plain(asked.row.given, "k")
        length = _measured_length(asked.row.given)
        running, context = load.concurrency / plan.dp, load.prompt + load.output / 2
        verified = machine.step(scenario, (Pass(running, drafted + 1, context, decoding=True),))
        layer = replace(scenario.model, layers=(replace(scenario.model.layers[-1], count=1.0),))
        draft = machine.decode(replace(scenario, model=layer), running, context)
        if float(fit(scenario).cap) < 1 or length is None:
            yield _NAN, _NAN, _NAN, _NAN
            continue
        asked.row.notes.append(
            f"accepted length {length:g} is the measured one; k + 1 tokens verified, one layer drafts"
        )
        yield length / float(verified.time + drafted * draft.time), _NAN, _NAN, float(plan.tp * plan.pp * plan.dp)


_WAYS: dict[str, Callable[[Sequence[_Asked], Sequence[Scenario]], Iterator[tuple[float, float, float, float]]]] = {
    "loop": _loop,
    "most": _most,
    "prompt": _prompt,
    "step": _step,
    "context": _context,
    "curve": _curve,
    "mtp": _mtp,
}


def _misfit(scenario: Scenario) -> str:
    plan, held = scenario.deployment, fit(scenario)
    return (
        f"does not fit {scenario.system.name} at TP {plan.tp:g}: {float(held.weights) / 1e9:.3g} GB of weights a chip, "
        f"{float(held.room) / 1e9:.3g} GB left for the cache"
    )


def _answer(waiting: list[_Asked], tick: Tick) -> None:
    """Predict every row: its own layout first, the next one for those that it cannot hold."""
    reasons: dict[int, str] = {}
    for _ in range(12):
        groups: dict[tuple[Any, ...], list[tuple[_Asked, Scenario, str]]] = defaultdict(list)
        for asked in waiting:
            try:
                scenario, note = next(asked.layouts)
            except StopIteration:
                asked.row.reason = reasons.get(id(asked), "no layout of this model on these chips can be used")
                tick(1)
            except Unanswered as why:
                asked.row.reason = str(why)
                tick(1)
            else:
                groups[_group_key(asked, scenario)].append((asked, scenario, note))
        waiting = []
        for members in groups.values():
            group, scenarios = [one for one, _, _ in members], [scenario for _, scenario, _ in members]
            results = _WAYS[group[0].form.how](group, scenarios)
            for (asked, scenario, note), (value, low, high, chips) in zip(members, results, strict=True):
                if math.isfinite(value):
                    _fill(asked, value, low, high, chips, note)
                    tick(1)
                elif asked.row.reason:
                    tick(1)
                else:
                    reasons.setdefault(id(asked), _misfit(scenario))
                    waiting.append(asked)
        if not waiting:
            return
    for asked in waiting:
        asked.row.reason = reasons[id(asked)]
        tick(1)


def _fill(asked: _Asked, value: float, low: float, high: float, chips: float, note: str) -> None:
    """Write a prediction into its row, in the row's own unit."""
    scale = asked.scale
    if asked.per == "chip" and not asked.key.endswith("_chip"):
        scale *= chips
    elif asked.per == "user" and asked.form.family == "output throughput":
        scale *= _number(asked.row.given, "concurrency_or_batch") or 1.0
    asked.row.predicted, asked.row.low, asked.row.high = value / scale, low / scale, high / scale
    if note:
        asked.row.notes.append(note)


# --- speculation -------------------------------------------------------------------------------------------------

#: Methods that draft a chain; trees do not follow the chain formula.
_CHAIN = re.compile(r"mtp|n-gram|draft model|readme|none|chain", re.IGNORECASE)
_POSITION = re.compile(r"^acceptance_rate_position_(\d+)$")


def _accepted_lengths(rows: Sequence[Row]) -> None:
    """Predict accepted lengths from the acceptances that stand beside them, position by position or one for all."""

    def run_of(row: Row) -> tuple[str, ...]:
        return tuple(row.given.get(name, "") for name in ("source_url", "model", "method", "dataset"))

    chances: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    alphas: dict[tuple[str, ...], float] = {}
    for row in rows:
        metric = row.given["metric"].casefold()
        if not math.isfinite(row.value):
            continue
        if metric == "conditional_acceptance_position" and _plain(row.given, "k") >= 1:
            chances[run_of(row)][int(_plain(row.given, "k"))] = row.value
        elif metric == "acceptance_rate_alpha":
            alphas[(*run_of(row), row.given.get("k", ""), row.given.get("temperature", ""))] = row.value
    for row in rows:
        if _form_key(row.given["metric"]) != "accepted" or not row.value > 0:
            continue
        depth = _plain(row.given, "k")
        if depth == 0:
            row.predicted = 1.0
        elif not depth >= 1 or not _CHAIN.search(row.given.get("method", "")):
            continue
        elif vector := chances.get(run_of(row)):
            reached, length = 1.0, 1.0
            for position in range(1, int(depth) + 1):
                known = vector.get(position, vector[max(vector)])
                reached = speculative.reached(before=reached, acceptance=known)
                length += reached
            row.predicted = float(length)
            if depth > max(vector):
                row.notes.append(f"acceptance beyond position {max(vector)} is taken as that of the last")
        elif (*run_of(row), row.given.get("k", ""), row.given.get("temperature", "")) in alphas:
            alpha = alphas[(*run_of(row), row.given.get("k", ""), row.given.get("temperature", ""))]
            row.predicted = float(speculative.accepted_length(acceptance=alpha, drafted=depth))
        if math.isfinite(row.predicted):
            row.reason = ""


# --- scoring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """How far predictions of a group lie from what was measured.

    Attributes
    ----------
    data : str
        File.
    part : str
        ``predicted``, ``calibrated`` (something was fitted on these rows) or ``anomalous``.
    by : str
        What the group is by: ``group``, ``metric``, ``chip``, ``engine``, ``kind`` (dense, MoE) or ``calibration``.
    group : tuple of str
    rows, answered : int
    mape, median, bias, p90 : float
        Mean and median absolute, median signed, 90th percentile of the absolute relative error; P90 from 20 rows on.
    within : float
        Share of answered rows within 20 %.
    in_band : float
        Share of rows whose measured value lies in the 80 % band of the prediction, of those that have one.
    worst : float
        The largest signed relative error.
    worst_row : str
        What it belongs to.
    """

    data: str
    part: str
    by: str
    group: tuple[str, ...]
    rows: int
    answered: int
    mape: float
    median: float
    bias: float
    p90: float
    within: float
    in_band: float
    worst: float
    worst_row: str

    @property
    def coverage(self) -> float:
        """Share of rows that got a prediction."""
        return self.answered / self.rows

    def to_dict(self) -> dict[str, Any]:
        """Return the score as columns; None where there is nothing."""
        made: dict[str, Any] = {
            "data": self.data,
            "part": self.part,
            "by": self.by,
            "group": " / ".join(self.group),
            "rows": self.rows,
            "answered": self.answered,
            "coverage": self.coverage,
        }
        for name in ("mape", "median", "bias", "p90", "within", "in_band", "worst"):
            made[name] = _finite(getattr(self, name))
        return {**made, "worst_row": self.worst_row or None}


def describe(row: Row) -> str:
    """Return where a row stands: layout, lengths, concurrency."""
    given = row.given
    parts = [row.model, row.system, row.engine]
    parts += [f"TP{given['tp']}"] if given.get("tp") else []
    parts += [f"{given['isl']}/{given.get('osl', '')}"] if given.get("isl") else []
    parts += [f"c={given['concurrency_or_batch']}"] if given.get("concurrency_or_batch") else []
    return " ".join(part for part in parts if part)


def score(rows: Sequence[Row], data: str, part: str, by: str, group: tuple[str, ...]) -> Score:
    """Score a group of rows."""
    answered = [row for row in rows if math.isfinite(row.error)]
    errors = np.array([row.error for row in answered])
    size = np.abs(errors)
    some = bool(errors.size)
    banded = [row for row in answered if math.isfinite(row.low)]
    worst = answered[int(np.argmax(size))] if some else None
    return Score(
        data,
        part,
        by,
        group,
        rows=len(rows),
        answered=len(answered),
        mape=float(size.mean()) if some else _NAN,
        median=float(np.median(size)) if some else _NAN,
        bias=float(np.median(errors)) if some else _NAN,
        p90=float(np.percentile(size, 90)) if errors.size >= LEAST_P90 else _NAN,
        within=float((size <= WITHIN).mean()) if some else _NAN,
        in_band=float(np.mean([row.low <= row.value <= row.high for row in banded])) if banded else _NAN,
        worst=worst.error if worst else _NAN,
        worst_row=describe(worst) if worst else "",
    )


_BY: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "metric": lambda row: (row.metric,),
    "chip": lambda row: (row.metric, row.system),
    "engine": lambda row: (row.metric, row.engine or "-"),
    "kind": lambda row: (row.metric, "-" if row.moe is None else "MoE" if row.moe else "dense"),
    "calibration": lambda row: (row.metric, "calibrated chip" if row.chip_calibrated else "no calibration"),
    "group": lambda row: (row.metric, row.model, row.system, row.engine or "-"),
}
PARTS = ("predicted", "calibrated", "anomalous")


def scores(rows: Sequence[Row]) -> list[Score]:
    """Score rows by each grouping; files and parts are never mixed."""
    found = []
    for data in dict.fromkeys(row.data for row in rows):
        for part in PARTS:
            mine = [row for row in rows if row.data == data and row.part == part]
            for by, key in _BY.items():
                groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
                for row in mine:
                    groups[key(row)].append(row)
                found += [score(groups[name], data, part, by, name) for name in sorted(groups)]
    return found


@dataclass(frozen=True)
class FittedFile:
    """The numbers of a calibration that were fitted, and on what."""

    name: str
    numbers: int
    notes: tuple[str, ...]


def fitted_parameters(rows: Sequence[Row]) -> list[FittedFile]:
    """Return what was fitted of the efficiencies that these rows' predictions used."""
    used = dict.fromkeys((row.system, row.engine) for row in rows if row.engine and math.isfinite(row.predicted))
    found: dict[str, FittedFile] = {}
    for system_name, engine in used:
        bare = _system(system_name, engine)[0]
        _, origins, _ = catalog.load_efficiency(bare.kind, bare.chip, engine)
        fitted = {path: origin for path, origin in origins.items() if origin.kind in ("measured", "derived", "paper")}
        name = next((origin.file for origin in origins.values() if origin.file), f"{bare.chip}-{engine}")
        notes: dict[str, list[str]] = defaultdict(list)
        for path, origin in fitted.items():
            what = origin.note or f"from {origin.source}"
            notes[what].append(path.removeprefix("efficiency."))
        words = tuple(f"{', '.join(paths)}: {what}" for what, paths in notes.items())
        found[name] = FittedFile(name.removesuffix(".yaml"), len(fitted), words)
    return sorted(found.values(), key=lambda entry: entry.name)


@dataclass(frozen=True)
class Validation:
    """Scored measurements.

    Attributes
    ----------
    rows : list of Row
    scores : list of Score
    fitted : list of FittedFile
        Parameters of the predictions, and what they were fitted on.
    left_out : list of dict
        Where rows were fitted on: the scores of the same rows by fits that never saw their model, TP, engine or
        concurrency, as ``calibrate`` stored them.
    """

    rows: list[Row]
    scores: list[Score]
    fitted: list[FittedFile]
    left_out: list[dict[str, Any]]

    def of(self, data: str, part: str, by: str) -> list[Score]:
        """Return the scores of one file, part and grouping."""
        return [one for one in self.scores if (one.data, one.part, one.by) == (data, part, by)]

    def files(self) -> list[str]:
        """Return the names of the files that were scored."""
        return list(dict.fromkeys(row.data for row in self.rows))

    def coverage(self, data: str) -> float:
        """Return the share of a file's rows that got a prediction."""
        mine = [row for row in self.rows if row.data == data]
        return sum(math.isfinite(row.predicted) for row in mine) / len(mine) if mine else _NAN

    def to_dict(self) -> dict[str, Any]:
        """Return the documented JSON object; there is no NaN in it."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "scores": [one.to_dict() for one in self.scores],
            "fitted": [
                {"calibration": entry.name, "parameters": entry.numbers, "on": list(entry.notes)}
                for entry in self.fitted
            ],
            "left_out": self.left_out,
        }

    def to_frame(self) -> Any:
        """Return a pandas frame, one row a measured value."""
        import pandas as pd

        return pd.DataFrame([{"data": row.data, **row.to_dict()} for row in self.rows])

    def __repr__(self) -> str:
        from perfmodel.outputs.validation import text

        return text(self)

    def _repr_html_(self) -> str:
        from perfmodel.outputs.validation import fragment

        return fragment(self)


def score_rows(given: Iterable[tuple[str, Mapping[str, str]]], tick: Tick = lambda _: None) -> Validation:
    """Predict and score rows, each with the name of its file."""
    fitted = serving_fit.fitted_keys()
    rows, waiting = [], []
    for data, cells in given:
        row = Row(
            dict(cells),
            data,
            float(cells["value"] or "nan"),
            cells["metric"],
            cells["model"],
            cells["hardware"],
            find_engine(cells.get("engine", "")),
            fitted=(cells.get("row_id", ""), cells["metric"]) in fitted,
            anomaly=anomaly(cells),
        )
        rows.append(row)
        try:
            asked = _ask(row)
        except Unanswered as why:
            row.reason = str(why)
            tick(1)
            continue
        if asked.form.how == "curve":
            # The two knees of the curve are what its parameters were solved from.
            row.fitted = True
        waiting.append(asked)
    _answer(waiting, tick)
    _accepted_lengths(rows)
    left_out = serving_fit.stored_scores() if any(row.fitted for row in rows) else []
    return Validation(rows, scores(rows), fitted_parameters(rows), left_out)


def bundled_path(name: str) -> Path:
    """Return the path of one of the bundled measurements."""
    return catalog.bundled() / "data" / BUNDLED[name]


def load(data: Path | str | None = None) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of a file, or of all bundled measurements, each with the name of its file."""
    if data is not None:
        path = Path(data)
        return [(path.stem, row) for row in read_rows(path)]
    return [(name, row) for name in BUNDLED for row in read_rows(bundled_path(name))]


def validate(data: Path | str | None = None, tick: Tick = lambda _: None) -> Validation:
    """Score a CSV of measurements, or the bundled ones.

    Parameters
    ----------
    data : path, optional
        A CSV with the columns model, hardware, metric, value and unit.
    tick : callable
        Called with the number of rows that got their answer.

    Returns
    -------
    Validation

    Raises
    ------
    UserError
        Where the file cannot be read.
    """
    return score_rows(load(data), tick)

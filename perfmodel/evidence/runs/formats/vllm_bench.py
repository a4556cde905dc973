"""``vllm bench serve`` and ``vllm bench sweep`` (vLLM 0.12 to 0.33).

Latencies are in ms; failures are out of them.  ``max_concurrency`` is what was asked for, null for none;
``max_concurrent_requests`` is a peak and is not read.  TPOT is a request's, ITL pools the gaps of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import STATISTICS, Format, Run, each, whole_share

_LABEL = "vllm bench"
_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "latency"}
_RATES = {
    "output_throughput": ("output_throughput", "tok/s"),
    "total_token_throughput": ("total_token_throughput", "tok/s"),
    "request_throughput": ("request_throughput", "req/s"),
}
_KEYS = ("model_id", "num_prompts", "max_concurrency")
_NEEDS = ("num_prompts", "request_rate", "duration", "completed", "total_input_tokens", "total_output_tokens")
#: Options of the server by which a sweep names its columns.
_SERVED = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "kv_cache_dtype": "dtype_kv",
}


def _objects(document: Document) -> Iterator[Mapping[str, Any]]:
    """Give the records of JSON, or those of the ``summary.csv`` of a sweep."""
    if document.objects:
        yield from document.objects
        return
    header, *rows = document.tables[0]
    for cells in rows:
        yield {name: _cell(cell) for name, cell in zip(header, cells, strict=False) if cell}


def _cell(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _read(document: Document) -> list[Run]:
    runs = []
    for content in _objects(document):
        if content.get("run_number") == -1:
            continue  # the warm-up of a sweep, which is in no summary
        runs.append(_run(Record(document, _LABEL, content)))
    return runs


def _run(record: Record) -> Run:
    for name in (name for name in _NEEDS if name not in ("total_input_tokens", "total_output_tokens")):
        if record.find(name) is None:
            raise UserError(f"{record.name} ({_LABEL}): no field '{name}'; the file is not whole")
    run = Run(f"{record.name} ({_LABEL})")
    completed = record.need("completed")
    if completed <= 0:
        raise UserError(f"{record.name} ({_LABEL}): completed is 0: no request came back, so nothing was measured")
    run.state("date", record.text("date"), "date")
    run.state("model", record.text("model_id"), "model_id")
    mean_in = whole_share(record.number("total_input_tokens"), completed)
    run.expect("isl", mean_in, "total_input_tokens", "total_input_tokens/completed")
    mean_out = whole_share(record.number("total_output_tokens"), completed)
    run.expect("osl", mean_out, "total_output_tokens", "total_output_tokens/completed")
    run.state("requests", record.number("num_prompts"), "num_prompts")
    run.state("failures", record.number("failed"), "failed")
    run.state("concurrency_or_batch", record.number("max_concurrency"), "max_concurrency")
    run.state("rate", record.number("request_rate"), "request_rate")
    for name, column in _SERVED.items():
        run.state(column, record.text(name), name)
    spread(run, record)
    length = record.number("spec_decode_acceptance_length")
    run.state("accept_length", length, "spec_decode_acceptance_length")
    if length is not None:
        drafts, tokens = record.number("spec_decode_num_drafts"), record.number("spec_decode_draft_tokens")
        run.state("k", whole_share(tokens, drafts), "spec_decode_draft_tokens/spec_decode_num_drafts")
    for name, metric in _LATENCIES.items():
        for stat, said in STATISTICS.items():
            key = f"{stat}_{name}_ms"
            run.measure(metric, said, record.number(key), "ms", key)
    for name, (metric, unit) in _RATES.items():
        run.measure(metric, "mean", record.number(name), unit, name)
    if not any(value.metric in ("ttft", "tpot") for value in run.values):
        raise UserError(f"{record.name} ({_LABEL}): no field 'mean_ttft_ms'; the file is not whole")
    return run


def spread(run: Run, record: Record) -> None:
    """State how lengths spread, where those of every request are there: evenly, with the same variance."""
    widths = []
    for name in ("input_lens", "output_lens"):
        lengths = record.find(name)
        if not isinstance(lengths, list) or len(lengths) < 2:
            return
        mean = sum(lengths) / len(lengths)
        variance = sum((one - mean) ** 2 for one in lengths) / len(lengths)
        widths.append((3 * variance) ** 0.5 / mean if mean else 0.0)
    run.state("length_spread", min(max(widths), 1.0), "input_lens, output_lens")


FORMAT = Format(
    _LABEL,
    lambda document: (
        {*_KEYS} <= document.keys
        or bool(document.tables and {*_KEYS, "run_number"} <= {*document.header} and not document.objects)
    ),
    each(_read),
    _KEYS,
    _NEEDS,
)

"""SGLang ``bench_serving`` (0.5.6 to 0.5.23): a run a line.

Latencies are in ms.  ``concurrency`` is measured, ``max_concurrency`` what was asked for.  Lengths are drawn from
``random_range_ratio`` of the set ones to all of them.  Failures are not counted in the file.
"""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.formats import sglang_log
from perfmodel.evidence.runs.formats.vllm_bench import spread
from perfmodel.evidence.runs.run import STATISTICS, Format, Run, each, whole_share

_LABEL = "SGLang bench_serving"
_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e_latency": "latency"}
_KEYS = ("backend", "dataset_name", "request_rate", "completed")
_NEEDS = ("request_rate", "duration", "completed", "total_input_tokens", "total_output_tokens", "output_throughput")


def _read(document: Document) -> list[Run]:
    return [_run(Record(document, _LABEL, content)) for content in document.objects]


def _run(record: Record) -> Run:
    for name in (name for name in _NEEDS if name not in ("total_input_tokens", "total_output_tokens")):
        if record.find(name) is None:
            raise UserError(f"{record.name} ({_LABEL}): no field '{name}'; the file is not whole")
    run, completed = Run(f"{record.name} ({_LABEL})"), record.need("completed")
    if completed <= 0:
        raise UserError(f"{record.name} ({_LABEL}): completed is 0: no request came back, so nothing was measured")
    if (server := record.below("server_info")) is not None and server.find("tp_size") is not None:
        sglang_log.state(run, server.content, "server_info")
    if version := record.text("server_info.version"):
        run.state("engine", f"sglang {version}", "server_info.version")
    mean_in = whole_share(record.number("total_input_tokens"), completed)
    run.expect("isl", mean_in, "total_input_tokens", "total_input_tokens/completed")
    mean_out = whole_share(record.number("total_output_tokens"), completed)
    run.expect("osl", mean_out, "total_output_tokens", "total_output_tokens/completed")
    ratio = record.number("random_range_ratio")
    if str(record.text("dataset_name")).startswith("random") and ratio is not None:
        run.state("length_spread", (1 - ratio) / (1 + ratio), "random_range_ratio")
    else:
        spread(run, record)
    run.state("concurrency_or_batch", record.number("max_concurrency"), "max_concurrency")
    if record.text("request_rate") != "trace":
        run.state("rate", record.number("request_rate"), "request_rate")
    run.state("in_flight", record.number("concurrency"), "concurrency")
    run.state("requests", completed, "completed")
    run.state("accept_length", record.number("accept_length"), "accept_length")
    hits = record.number("cache_report.cache_hit_rate_pct")
    run.state("prefix_hits", None if hits is None else hits / 100, "cache_report.cache_hit_rate_pct")
    for name, metric in _LATENCIES.items():
        for stat, said in STATISTICS.items():
            key = f"{stat}_{name}_ms"
            run.measure(metric, said, record.number(key), "ms", key)
    run.measure("output_throughput", "mean", record.number("output_throughput"), "tok/s", "output_throughput")
    run.measure("total_token_throughput", "mean", record.number("total_throughput"), "tok/s", "total_throughput")
    run.measure("request_throughput", "mean", record.number("request_throughput"), "req/s", "request_throughput")
    if not any(value.metric in ("ttft", "tpot") for value in run.values):
        raise UserError(f"{record.name} ({_LABEL}): no field 'mean_ttft_ms'; the file is not whole")
    return run


FORMAT = Format(
    _LABEL,
    lambda document: {*_KEYS} <= document.keys and not {"model_id", "num_prompts"} <= document.keys,
    each(_read),
    _KEYS,
    _NEEDS,
)

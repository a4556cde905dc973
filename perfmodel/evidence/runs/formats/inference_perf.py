"""inference-perf: a file a stage.  All latencies are in seconds; the summary mixes rates and is refused."""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "inference-perf"
_KEYS = ("load_summary", "successes", "failures")
_NEEDS = ("send_duration", "successes", "latency", "time_to_first_token", "prompt_len", "output_len")
_METRICS = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "latency",
}


def _read(document: Document) -> list[Run]:
    return [_run(Record(document, _LABEL, content)) for content in document.objects]


def _run(record: Record) -> Run:
    if record.find("load_summary.requested_rate") is None and record.find("load_summary.concurrency") is None:
        raise UserError(
            f"{record.name} ({_LABEL}): no field 'load_summary.requested_rate': a summary mixes the rates of its "
            "stages; give the stage files"
        )
    run = Run(f"{record.name} ({_LABEL})")
    record.need("successes.latency.time_to_first_token.mean")
    for name, metric in _METRICS.items():
        run.statistics(metric, record.below(f"successes.latency.{name}"), "ms", f"successes.latency.{name}", 1e3)
    for name, metric, unit in (
        ("output_tokens_per_sec", "output_throughput", "tok/s"),
        ("total_tokens_per_sec", "total_token_throughput", "tok/s"),
        ("requests_per_sec", "request_throughput", "req/s"),
    ):
        run.measure(metric, "mean", record.number(f"successes.throughput.{name}"), unit, f"successes.throughput.{name}")
    run.expect("isl", record.number("successes.prompt_len.mean"), "successes.prompt_len.mean")
    run.expect("osl", record.number("successes.output_len.mean"), "successes.output_len.mean")
    run.state("requests", record.number("load_summary.count"), "load_summary.count")
    run.state("failures", record.number("failures.count"), "failures.count")
    run.state("concurrency_or_batch", record.number("load_summary.concurrency"), "load_summary.concurrency")
    run.state("rate", record.number("load_summary.requested_rate"), "load_summary.requested_rate")
    cached, total = (record.number(f"successes.prompt_tokens.{name}.mean") for name in ("cached", "total"))
    if cached is not None and total:
        run.state("prefix_hits", cached / total, "successes.prompt_tokens.cached/total")
    return run


FORMAT = Format(_LABEL, lambda document: {*_KEYS[:2]} <= document.keys, each(_read), _KEYS[:2], _NEEDS)

"""MLPerf LoadGen logs, summary and detail.  Latencies are in nanoseconds; inferred token rates are scaled ones."""

from __future__ import annotations

import json
import re

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "MLPerf LoadGen"
#: What a summary calls what the detail log has by key; and metric, statistic and unit of each.
_SUMMARY = {
    "Mean First Token latency (ns)": ("ttft", "mean", "ms", 1e-6),
    "50.00 percentile first token latency (ns)": ("ttft", "median", "ms", 1e-6),
    "99.00 percentile first token latency (ns)": ("ttft", "p99", "ms", 1e-6),
    "Mean Time per Output Token (ns)": ("tpot", "mean", "ms", 1e-6),
    "50.00 percentile time to output token (ns)": ("tpot", "median", "ms", 1e-6),
    "99.00 percentile time to output token (ns)": ("tpot", "p99", "ms", 1e-6),
    "Mean latency (ns)": ("latency", "mean", "ms", 1e-6),
    "Completed tokens per second": ("output_throughput", "mean", "tok/s", 1.0),
    "Tokens per second": ("output_throughput", "mean", "tok/s", 1.0),
    "Completed samples per second": ("request_throughput", "mean", "req/s", 1.0),
    "Samples per second": ("request_throughput", "mean", "req/s", 1.0),
}
_DETAIL = {
    "result_first_token_mean_latency_ns": ("ttft", "mean", "ms", 1e-6),
    "result_first_token_50.00_percentile_latency_ns": ("ttft", "median", "ms", 1e-6),
    "result_first_token_99.00_percentile_latency_ns": ("ttft", "p99", "ms", 1e-6),
    "result_time_per_output_token_mean": ("tpot", "mean", "ms", 1e-6),
    "result_time_to_output_token_mean": ("tpot", "mean", "ms", 1e-6),
    "result_mean_latency_ns": ("latency", "mean", "ms", 1e-6),
    "result_completed_tokens_per_second": ("output_throughput", "mean", "tok/s", 1.0),
    "result_tokens_per_second": ("output_throughput", "mean", "tok/s", 1.0),
    "result_completed_samples_per_sec": ("request_throughput", "mean", "req/s", 1.0),
    "result_samples_per_second": ("request_throughput", "mean", "req/s", 1.0),
}


def _read(document: Document) -> list[Run]:
    detail = ":::MLLOG" in document.text
    found = _details(document) if detail else _lines(document)
    record = Record(document, _LABEL, found)
    scenario = found.get("effective_scenario" if detail else "Scenario")
    valid = found.get("result_validity" if detail else "Result is")
    for name, value in (("Scenario", scenario), ("Result is", valid)):
        if value is None:
            raise UserError(f"{document.name} ({_LABEL}): no field '{name}'; the file is not whole")
    if valid != "VALID":
        raise UserError(f"{document.name} ({_LABEL}): the result is {valid}; run it again")
    run = Run(f"{document.name} ({_LABEL}, {scenario})")
    if scenario == "SingleStream":
        run.state("concurrency_or_batch", 1.0, "Scenario")
    if scenario == "Server":
        rate = record.number("effective_target_qps" if detail else "target_qps")
        run.state("rate", rate, "target_qps")
    for name, (metric, stat, unit, scale) in (_DETAIL if detail else _SUMMARY).items():
        value = record.number(name)
        most = metric == "output_throughput" and scenario == "Offline"
        run.measure(
            "output_throughput_max" if most else metric, stat, None if value is None else value * scale, unit, name
        )
    run.state("requests", record.number("result_query_count" if detail else "samples_per_query"), "query_count")
    if not run.values:
        raise UserError(f"{document.name} ({_LABEL}): no field 'Tokens per second'; the file is not whole")
    return [run]


def _lines(document: Document) -> dict[str, object]:
    pairs = (line.partition(":") for line in document.text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in pairs if mark and value.strip()}


def _details(document: Document) -> dict[str, object]:
    details: dict[str, object] = {}
    for line in document.text.splitlines():
        _, mark, rest = line.partition(":::MLLOG ")
        if not mark:
            continue
        try:
            entry = json.loads(rest)
            details[entry["key"]] = entry["value"]
        except (json.JSONDecodeError, KeyError):
            raise UserError(f"{document.name} ({_LABEL}): a line is cut off: {rest[:60]}") from None
    return details


def _recognises(document: Document) -> bool:
    # The lines of a summary can be read as YAML too.
    return ":::MLLOG" in document.text or bool(re.search(r"^Scenario *: ", document.text, re.M))


FORMAT = Format(_LABEL, _recognises, each(_read))

"""llm-d benchmark report 0.2 and 0.2.1, YAML or JSON.  Each statistic says its unit; chips and layout are there."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "llm-d benchmark report"
_KEYS = ("scenario", "results", "request_performance")
_NEEDS = ("stack", "load", "request_performance", "aggregate", "latency", "time_to_first_token")
_LATENCIES = {
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "inter_token_latency": "itl",
    "request_latency": "latency",
}
_RATES = {
    "output_token_rate": ("output_throughput", "tok/s"),
    "total_token_rate": ("total_token_throughput", "tok/s"),
    "request_rate": ("request_throughput", "req/s"),
}
_MS = {"ms": 1.0, "s": 1e3, "us": 1e-3, "ns": 1e-6, "ms/token": 1.0, "s/token": 1e3}
_PER_SECOND = ("tokens/s", "queries/s", "requests/s")
_AGGREGATE = "results.request_performance.aggregate"
_LOAD = "scenario.load.standardized"
_DEGREES = {"tp": "tp", "pp": "pp", "ep": "ep", "dp": "dp"}


def _read(document: Document) -> list[Run]:
    return [_run(Record(document, _LABEL, content)) for content in document.objects]


def _run(record: Record) -> Run:
    version = record.text("version")
    if not version.startswith("0.2"):
        raise UserError(f"{record.name} ({_LABEL}): version {version or 'missing'}: expected 0.2 or 0.2.1")
    run = Run(f"{record.name} ({_LABEL} {version})")
    record.need(f"{_AGGREGATE}.latency.time_to_first_token.mean")
    for name, metric in _LATENCIES.items():
        path = f"{_AGGREGATE}.latency.{name}"
        if (stats := record.below(path)) is None:
            continue
        if (unit := stats.text("units")) not in _MS:
            raise UserError(
                f"{record.name} ({_LABEL}): {path} has the units '{unit}'; expected one of {', '.join(_MS)}"
            )
        run.statistics(metric, stats, "ms", path, _MS[unit])
    for name, (metric, unit) in _RATES.items():
        path = f"{_AGGREGATE}.throughput.{name}"
        if (stats := record.below(path)) is not None:
            if stats.text("units") not in _PER_SECOND:
                raise UserError(f"{record.name} ({_LABEL}): {path} has the units '{stats.text('units')}'")
            run.statistics(metric, stats, unit, path)
    for name, column in (("input_length", "isl"), ("output_length", "osl")):
        run.state(column, record.number(f"{_AGGREGATE}.requests.{name}.mean"), f"{_AGGREGATE}.requests.{name}.mean")
    run.state("requests", record.number(f"{_AGGREGATE}.requests.total"), f"{_AGGREGATE}.requests.total")
    run.state("failures", record.number(f"{_AGGREGATE}.requests.failures"), f"{_AGGREGATE}.requests.failures")
    run.state("concurrency_or_batch", record.number(f"{_LOAD}.concurrency"), f"{_LOAD}.concurrency")
    run.state("rate", record.number(f"{_LOAD}.rate_qps"), f"{_LOAD}.rate_qps")
    _stack(run, record)
    return run


def _stack(run: Run, record: Record) -> None:
    """State the engines: of one role as one layout, of prefill and decode as two pools."""
    stack = record.find("scenario.stack")
    roles: list[str] = []
    for at, part in enumerate(stack if isinstance(stack, list) else ()):
        path = f"scenario.stack.{at}.standardized"
        entry = record.below(path) if isinstance(part, Mapping) else None
        if entry is None or entry.text("kind") != "inference_engine":
            continue
        role = entry.text("role")
        roles.append(role)
        tool = f"{entry.text('tool')} {entry.text('tool_version')}".strip()
        run.state("engine", tool, f"{path}.tool")
        run.state("model", entry.text("model.name"), f"{path}.model.name")
        run.state("hardware", entry.text("accelerator.model"), f"{path}.accelerator.model")
        if role in ("prefill", "decode"):
            run.state("mode", "disagg", f"{path}.role")
            run.state(f"{role}_workers", entry.number("replicas"), f"{path}.replicas")
            for name in ("tp", "ep"):
                run.state(f"{role}_{name}", entry.number(f"accelerator.parallelism.{name}"), f"{path}.{name}")
            continue
        degrees = {name: entry.number(f"accelerator.parallelism.{name}") for name in _DEGREES}
        for name, column in _DEGREES.items():
            run.state(column, degrees[name], f"{path}.accelerator.parallelism.{name}")
        if replicas := entry.number("replicas"):
            copies = replicas * (degrees["dp"] or 1.0)
            run.state("dp", copies, f"{path}.replicas x dp")
            if degrees["tp"]:
                # Whether count is of one replica or of all is not said, so that the layout is what counts.
                run.state("n_chips", degrees["tp"] * (degrees["pp"] or 1.0) * copies, f"{path}.replicas x parallelism")


FORMAT = Format(_LABEL, lambda document: {*_KEYS} <= document.keys, each(_read), _KEYS, _NEEDS)

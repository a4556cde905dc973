"""AIPerf (0.6, 0.13) and GenAI-Perf (0.0.16), JSON and CSV.

Each metric says its unit.  ``inter_token_latency`` is a request's mean gap, which others call TPOT;
``inter_chunk_latency`` pools the gaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_AIPERF, _GENAI = "AIPerf", "GenAI-Perf"
#: Metric, unit out, and whether it must be there.
_METRICS = {
    "time_to_first_token": ("ttft", "ms"),
    "inter_token_latency": ("tpot", "ms"),
    "inter_chunk_latency": ("itl", "ms"),
    "request_latency": ("latency", "ms"),
    "output_token_throughput": ("output_throughput", "tok/s"),
    "request_throughput": ("request_throughput", "req/s"),
    "nvidia_average_gpu_power": ("gpu_power", "W"),
    "amd_average_gpu_power": ("gpu_power", "W"),
}
_UNITS = {
    "ms": ("ms", 1.0),
    "sec": ("ms", 1e3),
    "s": ("ms", 1e3),
    "us": ("ms", 1e-3),
    "ns": ("ms", 1e-6),
    "tokens/sec": ("tok/s", 1.0),
    "requests/sec": ("req/s", 1.0),
    "per sec": ("", 1.0),
    "w": ("W", 1.0),
}
_NEEDS = ("request_throughput", "time_to_first_token", "output_sequence_length", "input_sequence_length")


def _json(document: Document) -> list[Run]:
    return [_run(Record(document, _label(document), content)) for content in document.objects]


def _label(document: Document) -> str:
    return _AIPERF if "aiperf_version" in document.keys or "schema_version" in document.keys else _GENAI


def _csv(document: Document) -> list[Run]:
    label = _AIPERF if "sum" in document.header or "std" in document.header else _GENAI
    content: dict[str, Any] = {}
    for table in document.tables:
        header, *rows = table
        if header[0] != "Metric":
            continue
        for name, *cells in rows:
            said = re.fullmatch(r"(.*?)(?:\s*\((.*)\))?", name)
            assert said is not None
            key = re.sub(r"\W+", "_", said[1].strip().casefold())
            stats = dict(zip(("avg",) if header[1:] == ["Value"] else header[1:], cells, strict=False))
            numbers = {stat: cell.replace(",", "") for stat, cell in stats.items() if cell}
            unit = "tokens" if key.endswith("sequence_length") else said[2] or ""
            content[key] = {"unit": unit, **numbers}
    return [_run(Record(document, f"{label} CSV", content))]


def _run(record: Record) -> Run:
    if record.find("was_cancelled") is True or record.find("is_complete") is False:
        why = record.text("incomplete_reason") or "was_cancelled"
        raise UserError(f"{record.name} ({record.label}): the run did not end ({why}); run it again")
    run = Run(f"{record.name} ({record.label})")
    for name in _NEEDS[:2]:
        record.need(f"{name}.avg")
    for name, (metric, out) in _METRICS.items():
        stats = record.below(name)
        if stats is None:
            continue
        unit = stats.text("unit")
        kind, scale = _UNITS.get(unit.casefold(), ("?", 1.0))
        if kind not in ("", out):
            raise UserError(f"{record.name} ({record.label}): {name} has the unit '{unit}'; expected one of a {out}")
        run.statistics(metric, stats, out, name, scale)
    run.expect("isl", record.number("input_sequence_length.avg"), "input_sequence_length.avg")
    run.expect("osl", record.number("output_sequence_length.avg"), "output_sequence_length.avg")
    count, errors = record.number("request_count.avg"), record.number("error_request_count.avg")
    run.state("requests", count, "request_count")
    run.state("failures", errors, "error_request_count")
    _load(run, record)
    return run


def _load(run: Run, record: Record) -> None:
    """State the load, which each release writes elsewhere."""
    for path in ("models.items.0.name", "endpoint.model_names.0", "model_names.0"):
        run.state("model", record.text(f"input_config.{path}"), f"input_config.{path}")
    for path, column in (
        ("loadgen.concurrency", "concurrency_or_batch"),
        ("loadgen.request_rate", "rate"),
        ("perf_analyzer.stimulus.concurrency", "concurrency_or_batch"),
        ("perf_analyzer.stimulus.request_rate", "rate"),
    ):
        run.state(column, record.number(f"input_config.{path}"), f"input_config.{path}")
    phases = record.find("input_config.phases")
    for at, phase in enumerate(phases if isinstance(phases, list) else ()):
        if not isinstance(phase, Mapping):
            continue
        part = record.below(f"input_config.phases.{at}")
        assert part is not None
        if part.text("name") == "warmup":
            run.state("warmup", part.number("requests") or "yes", f"input_config.phases[{at}]")
        else:
            run.state("concurrency_or_batch", part.number("concurrency"), f"input_config.phases[{at}].concurrency")
            run.state("rate", part.number("rate"), f"input_config.phases[{at}].rate")


def _has_metrics(document: Document) -> bool:
    return any(isinstance(one.get("request_throughput"), Mapping) for one in document.objects) or (
        document.cut_off and {"request_throughput", "time_to_first_token", "unit", "avg"} <= document.keys
    )


FORMATS = (
    Format("AIPerf or GenAI-Perf", _has_metrics, each(_json), ("request_throughput", "unit", "avg"), _NEEDS),
    Format("AIPerf or GenAI-Perf CSV", lambda document: document.header[:2] == ["Metric", "avg"], each(_csv)),
)

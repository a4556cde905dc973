"""GuideLLM (0.3.1, 0.5, 0.8): a file holds a point a strategy.

``request_latency`` is in seconds, the others in ms by their names.  ``inter_token_latency`` leaves the first token out,
as TPOT does elsewhere; ``time_per_output_token`` has it in and is not read.  Of ``successful`` requests only.
"""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "GuideLLM"
_KEYS = ("benchmarks", "metrics", "successful")
_NEEDS = ("prompt_token_count", "output_token_count", "time_to_first_token_ms")
_METRICS = {
    "time_to_first_token_ms": ("ttft", "ms", 1.0),
    "inter_token_latency_ms": ("tpot", "ms", 1.0),
    "request_latency": ("latency", "ms", 1e3),
    "output_tokens_per_second": ("output_throughput", "tok/s", 1.0),
    "requests_per_second": ("request_throughput", "req/s", 1.0),
}
_MODEL = ("config.spec.backend.model", "args.model")


def _read(document: Document) -> list[Run]:
    runs = []
    for content in document.objects:
        whole = Record(document, _LABEL, content)
        version = whole.text("metadata.guidellm_version") or "before 0.5"
        for at, one in enumerate(content.get("benchmarks") or ()):
            part = Record(document, f"{_LABEL} {version}, benchmark {at}", one)
            run = _run(part)
            for path in _MODEL:
                run.state("model", whole.text(path), path)
            run.state("model", part.text("config.backend.model"), f"benchmarks[{at}].config.backend.model")
            runs.append(run)
    if not runs:
        raise UserError(f"{document.name} ({_LABEL}): no field 'benchmarks'; the file is not whole")
    return runs


def _run(record: Record) -> Run:
    run = Run(f"{record.name} ({record.label})")
    record.need("metrics.time_to_first_token_ms.successful.mean")
    for name, (metric, unit, scale) in _METRICS.items():
        stats = record.below(f"metrics.{name}.successful")
        run.statistics(metric, stats, unit, f"metrics.{name}.successful", scale)
        tails = record.below(f"metrics.{name}.successful.percentiles")
        for stat in ("p90", "p95", "p99"):
            value = None if tails is None else tails.number(stat)
            run.measure(metric, stat, None if value is None else value * scale, unit, f"metrics.{name}.percentiles")
    for name, column in (("prompt_token_count", "isl"), ("output_token_count", "osl")):
        run.expect(column, record.number(f"metrics.{name}.successful.mean"), f"metrics.{name}.successful.mean")
    for kind, column in (("successful", "requests"), ("errored", "failures")):
        count = record.number(f"metrics.request_latency.{kind}.count")
        run.state(column, count, f"metrics.request_latency.{kind}.count")
    in_flight = "metrics.request_concurrency.successful.mean"
    run.state("in_flight", record.number(in_flight), in_flight)
    for where in ("config", "args"):
        strategy = f"{where}.strategy"
        if record.text(f"{strategy}.type_") == "synchronous":
            run.state("concurrency_or_batch", 1.0, f"{strategy}.type_")
        for name, column in (
            ("streams", "concurrency_or_batch"),
            ("max_concurrency", "concurrency_or_batch"),
            ("rate", "rate"),
        ):
            run.state(column, record.number(f"{strategy}.{name}"), f"{strategy}.{name}")
    warm = record.find("config.warmup")
    if isinstance(warm, int | float) and warm > 0:
        run.state("warmup", "yes", "config.warmup")
    return run


FORMAT = Format(
    _LABEL,
    lambda document: {*_KEYS} <= document.keys and "request_info" not in document.keys,
    each(_read),
    _KEYS,
    _NEEDS,
)

"""Prometheus text of a vLLM server.

Histograms count since the server started, so that a window is what lies between two scrapes; one alone is refused.
Seconds become ms.  ``inter_token_latency`` pools the gaps; ``request_time_per_output_token`` is a request's mean.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.run import Format, Run, whole_share

_LABEL = "vLLM metrics"
_LINE = re.compile(r"^(vllm:\w+)(?:\{(.*?)\})?\s+(\S+)", re.M)
_LATENCIES = {
    "vllm:time_to_first_token_seconds": "ttft",
    "vllm:request_time_per_output_token_seconds": "tpot",
    "vllm:inter_token_latency_seconds": "itl",
    "vllm:time_per_output_token_seconds": "itl",
    "vllm:e2e_request_latency_seconds": "latency",
}


def _scrape(document: Document) -> tuple[dict[str, float], set[str]]:
    """Return the samples by name, those of all engines together, and the models."""
    samples: dict[str, float] = defaultdict(float)
    models: set[str] = set()
    for name, labels, value in _LINE.findall(document.text):
        if name.endswith(("_bucket", "_info")):
            continue
        models.update(re.findall(r'model_name="([^"]*)"', labels))
        try:
            samples[name] += float(value)
        except ValueError:
            raise UserError(
                f"{document.name} ({_LABEL}): {name} '{value}' is no number; the file is not whole"
            ) from None
    return samples, models


def _read(documents: Sequence[Document]) -> list[Run]:
    if len(documents) != 2:
        said = documents[0].name if len(documents) == 1 else f"{len(documents)} scrapes"
        raise UserError(
            f"{said} ({_LABEL}): histograms count since the server started; give two scrapes, one before and one after "
            "the window"
        )
    scrapes = [_scrape(document) for document in documents]
    if len(models := scrapes[0][1] | scrapes[1][1]) > 1:
        raise UserError(
            f"{documents[0].name} ({_LABEL}): several models ({', '.join(sorted(models))}); scrape one server"
        )
    done = "vllm:e2e_request_latency_seconds_count"
    for document, (samples, _) in zip(documents, scrapes, strict=True):
        for name in (done, "vllm:time_to_first_token_seconds_sum", "vllm:request_generation_tokens_sum"):
            if name not in samples:
                raise UserError(f"{document.name} ({_LABEL}): no field '{name}'; the file is not whole")
    (before, _), (after, _) = sorted(scrapes, key=lambda one: one[0][done])
    window = {name: after[name] - before.get(name, 0.0) for name in after}
    gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    if any(value < 0 for name, value in window.items() if name not in gauges):
        raise UserError(f"{documents[0].name}, {documents[1].name} ({_LABEL}): counters fell: the server was restarted")
    if not window[done]:
        raise UserError(f"{documents[0].name}, {documents[1].name} ({_LABEL}): no request ended between the scrapes")
    return [_run(window, after, next(iter(models), ""), " - ".join(document.name for document in documents))]


def _run(window: dict[str, float], after: dict[str, float], model: str, names: str) -> Run:
    run = Run(f"{names} ({_LABEL})")
    run.state("model", model, "label model_name")
    for name, metric in _LATENCIES.items():
        mean = whole_share(window.get(f"{name}_sum"), window.get(f"{name}_count"))
        run.measure(metric, "mean", None if mean is None else mean * 1e3, "ms", f"{name} sum/count of the window")
    for name, column in (("vllm:request_prompt_tokens", "isl"), ("vllm:request_generation_tokens", "osl")):
        mean = whole_share(window.get(f"{name}_sum"), window.get(f"{name}_count"))
        run.state(column, mean, f"{name} sum/count of the window")
    run.state("requests", window["vllm:e2e_request_latency_seconds_count"], "vllm:e2e_request_latency_seconds_count")
    hits = whole_share(window.get("vllm:prefix_cache_hits_total"), window.get("vllm:prefix_cache_queries_total"))
    run.state("prefix_hits", hits, "vllm:prefix_cache_hits/queries of the window")
    run.state("in_flight", after.get("vllm:num_requests_running"), "vllm:num_requests_running of the later scrape")
    return run


FORMAT = Format(
    _LABEL, lambda document: document.is_log and bool(re.search(r"^(# \w+ )?vllm:", document.text, re.M)), _read
)

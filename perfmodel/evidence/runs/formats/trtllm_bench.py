"""``trtllm-bench`` reports (TensorRT-LLM 0.17 to 1.2).  Concurrency is measured; what was asked for is not in it."""

from __future__ import annotations

from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "trtllm-bench"
_KEYS = ("engine", "request_info", "performance")
_NEEDS = ("tp_size", "num_requests", "avg_input_length", "avg_output_length", "system_output_throughput_tok_s")


def _read(document: Document) -> list[Run]:
    return [_run(Record(document, _LABEL, content)) for content in document.objects]


def _run(record: Record) -> Run:
    run = Run(f"{record.name} ({_LABEL})")
    run.state("model", record.text("engine.model"), "engine.model")
    if version := record.text("engine.version"):
        run.state("engine", f"trtllm {version}", "engine.version")
    run.state("dtype_weights", _precision(record.text("engine.quantization")), "engine.quantization")
    run.state("dtype_kv", _precision(record.text("engine.kv_cache_dtype")), "engine.kv_cache_dtype")
    run.state("hardware", record.text("machine.name"), "machine.name")
    for name, column in (("tp_size", "tp"), ("world_size", "n_chips")):
        run.state(column, record.need(f"world_info.{name}"), f"world_info.{name}")
    for name, column in (("pp_size", "pp"), ("ep_size", "ep")):
        run.state(column, record.number(f"world_info.{name}"), f"world_info.{name}")
    run.state("isl", record.need("request_info.avg_input_length"), "request_info.avg_input_length")
    run.state("osl", record.need("request_info.avg_output_length"), "request_info.avg_output_length")
    run.state("requests", record.need("request_info.num_requests"), "request_info.num_requests")
    in_flight = "request_info.avg_num_concurrent_requests"
    run.state("in_flight", record.number(in_flight), in_flight)
    rate = "performance.system_output_throughput_tok_s"
    run.measure("output_throughput", "mean", record.need(rate), "tok/s", rate)
    for name, metric in (("ttft", "ttft"), ("tpot", "tpot")):
        mean, tails = f"streaming_metrics.avg_{name}_ms", f"streaming_metrics.{name}_percentiles"
        run.measure(metric, "mean", record.number(mean), "ms", mean)
        for stat, said in (("p50", "median"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99")):
            run.measure(metric, said, record.number(f"{tails}.{stat}"), "ms", f"{tails}.{stat}")
    latency = "performance.avg_request_latency_ms"
    run.measure("latency", "mean", record.number(latency), "ms", latency)
    return run


def _precision(text: str) -> str:
    """Return a precision that is spelled out; auto and None follow the checkpoint, of which the file says nothing."""
    return "" if text.casefold() in ("", "none", "auto", "null") else text.casefold()


FORMAT = Format(_LABEL, lambda document: {*_KEYS} <= document.keys, each(_read), _KEYS, _NEEDS)

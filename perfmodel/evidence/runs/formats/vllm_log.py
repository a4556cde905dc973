"""Start-up logs of a vLLM server (0.12 to 0.33): memory in GiB a GPU, tokens of one engine.

``non-default args`` has what differs from the release's defaults, so that a degree that is not there is 1.
"""

from __future__ import annotations

import re

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.logged import arguments, release_of
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "vLLM log"
_MARK = re.compile(r"Model loading took|GPU KV cache size:|non-default args: ?\{|vLLM API server version")
#: Lines of memory: metric, unit, and the pattern of the number; the last of a file counts.
_LINES = (
    ("weights_memory", "GiB", r"Model loading took ([\d.]+) ?Gi?B"),
    ("kv_pool_memory", "GiB", r"Available KV cache memory: ([\d.]+) GiB"),
    ("kv_pool_tokens", "tokens", r"GPU KV cache size: ([\d,]+) tokens"),
    ("kv_pool_concurrency", "requests", r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
    ("graph_memory", "GiB", r"Graph capturing finished in \d+ secs?, took (-?[\d.]+) GiB"),
    ("activation_peak", "GiB", r"([\d.]+) ?GiB for peak activation"),
)
_FIELDS = (
    ("max_model_len", r"Maximum concurrency for ([\d,]+) tokens per request"),
    ("nccl", r"using nccl==([\d.]+)"),
)
_DEGREES = {"tensor_parallel_size": "tp", "pipeline_parallel_size": "pp", "data_parallel_size": "dp"}


def _read(document: Document) -> list[Run]:
    run = Run(f"{document.name} ({_LABEL})", "server")
    text = document.text
    if release := release_of("vllm", text):
        run.state("engine", f"vllm {release}", "the log's version")
    for metric, unit, pattern in _LINES:
        hits = re.findall(pattern, text)
        run.measure(metric, "", float(hits[-1].replace(",", "")) if hits else None, unit, pattern.partition(" (")[0])
    for name, pattern in _FIELDS:
        if hits := re.findall(pattern, text):
            run.state(name, hits[-1].replace(",", ""), name)
    if not any(value.metric == "kv_pool_tokens" for value in run.values):
        raise UserError(f"{document.name} ({_LABEL}): no line 'GPU KV cache size: N tokens'; the log is not whole")
    _, given = arguments(text, document.name)
    if given:
        _state(run, given)
    return [run]


def _state(run: Run, given: dict[str, object]) -> None:
    origin = "non-default args"
    run.state("model", given.get("model") or given.get("model_tag"), origin)
    degrees = {column: int(str(given.get(name) or 1)) for name, column in _DEGREES.items()}
    run.state("pp", degrees["pp"], origin)
    run.state("tp", degrees["tp"], origin)
    # Engines of a data-parallel group share experts where those are spread, else they are replicas.
    spread = bool(given.get("enable_expert_parallel"))
    if spread:
        run.state("ep", degrees["tp"] * degrees["dp"], f"{origin}: enable_expert_parallel")
    run.state("attention_dp" if spread and degrees["dp"] > 1 else "dp", degrees["dp"], origin)
    run.state("n_chips", degrees["tp"] * degrees["pp"] * degrees["dp"], origin)
    run.state("dtype_kv", given.get("kv_cache_dtype") or "auto", origin)


FORMAT = Format(_LABEL, lambda document: document.is_log and bool(_MARK.search(document.text)), each(_read))

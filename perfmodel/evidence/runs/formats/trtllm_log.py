"""Logs of a TensorRT-LLM server, C++ and Python.  The profiling run prints smaller caches first: the last counts."""

from __future__ import annotations

import re

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "TensorRT-LLM log"
_MARK = re.compile(r"\[TensorRT-LLM\]|\[TRT-LLM\]")
_PROFILE = r"in memory usage profiling: ([\d.]+) ?GiB"
_LINES = (
    ("weights_memory", "GiB", rf"Memory used after loading model weights \(inside torch\) {_PROFILE}"),
    ("activation_peak", "GiB", r"Peak memory during memory usage profiling \(torch \+ non-torch\): ([\d.]+) ?GiB"),
    ("kv_pool_memory", "GiB", r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"),
    ("kv_pool_tokens", "tokens", r"for max tokens in paged KV cache \(([\d,]+)\)"),
)


def _read(document: Document) -> list[Run]:
    run, text = Run(f"{document.name} ({_LABEL})", "server"), document.text
    for metric, unit, pattern in _LINES:
        hits = re.findall(pattern, text)
        run.measure(metric, "", float(hits[-1].replace(",", "")) if hits else None, unit, metric)
    if not any(value.metric == "kv_pool_tokens" for value in run.values):
        line = "Allocated X GiB for max tokens in paged KV cache (T)"
        raise UserError(f"{document.name} ({_LABEL}): no line '{line}'; the log is not whole")
    if (version := re.search(r"TensorRT[- ]LLM version:? *v?(\d+\.\d+[\w.]*)", text)) is not None:
        run.state("engine", f"trtllm {version[1]}", "the log's version")
    if hits := re.findall(r"fraction is set ([\d.]+)", text):
        run.state("memory_share", hits[-1], "fraction is set")
    return [run]


FORMAT = Format(_LABEL, lambda document: document.is_log and bool(_MARK.search(document.text)), each(_read))

"""Logs of an SGLang server (0.5.6 to 0.5.23).  What it calls GB is GiB; tokens are those of a data-parallel rank."""

from __future__ import annotations

import re
from collections.abc import Mapping

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.logged import arguments, release_of
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "SGLang log"
_MARK = re.compile(r"server_args=(ServerArgs\(|\{)|KV Cache is allocated\.|max_total_num_tokens=\d")
#: The last line counts: a later release prints an upper bound first, and drafts load after the target.
_LINES = (
    ("weights_memory", "GiB", r"Load weight end\..*?mem usage=([\d.]+) GB", 0),
    ("kv_pool_tokens", "tokens", r"max_total_num_tokens=(\d+)", -1),
    ("graph_memory", "GiB", r"Capture (?:cuda graph|target decode CUDA graph) end\..*?mem usage=([\d.]+) GB", 0),
)
_POOL = re.compile(
    r"KV [Cc]ache (?:is )?allocated\.[^\n]*?(?:K size: ([\d.]+) GB, V size: ([\d.]+)|KV size: ([\d.]+)) GB"
)


def _read(document: Document) -> list[Run]:
    run, text = Run(f"{document.name} ({_LABEL})", "server"), document.text
    for metric, unit, pattern, which in _LINES:
        found = re.findall(pattern, text)
        run.measure(metric, "", float(found[which]) if found else None, unit, pattern.partition("(")[0].strip("\\."))
    if pools := _POOL.findall(text):
        run.measure(
            "kv_pool_memory", "", sum(float(part) for part in pools[-1] if part), "GiB", "KV Cache is allocated"
        )
    if not any(value.metric == "kv_pool_tokens" for value in run.values):
        raise UserError(f"{document.name} ({_LABEL}): no line 'max_total_num_tokens=N'; the log is not whole")
    _, given = arguments(text, document.name)
    if given:
        state(run, given, "server_args")
    if release := release_of("sglang", text):
        run.state("engine", f"sglang {release}", "the log's version")
    if length := re.findall(r"context_len=(\d+)", text):
        run.state("max_model_len", length[-1], "context_len")
    return [run]


def state(run: Run, given: Mapping[str, object], origin: str) -> None:
    """State the model and its layout as SGLang's arguments have them.

    Parameters
    ----------
    run : Run
    given : mapping of str to object
        By the names of the server's arguments.
    origin : str
    """

    def degree(name: str) -> int:
        return int(str(given.get(name) or 1))

    run.state("model", given.get("model_path"), origin)
    ranks, shared, pp = degree("tp_size"), degree("attn_dp_size"), degree("pp_size")
    copies = degree("dp_size")
    if given.get("enable_dp_attention"):
        shared, copies = max(shared, copies), 1
    # Groups that hold attention whole lie inside what SGLang calls TP.
    run.state("tp", ranks // shared, f"{origin}: tp_size / attention DP")
    run.state("attention_dp", shared, origin)
    run.state("pp", pp, origin)
    run.state("dp", copies, origin)
    run.state("ep", degree("ep_size"), origin)
    run.state("n_chips", ranks * pp * copies, origin)
    run.state("dtype_kv", given.get("kv_cache_dtype"), origin)


FORMAT = Format(_LABEL, lambda document: document.is_log and bool(_MARK.search(document.text)), each(_read))

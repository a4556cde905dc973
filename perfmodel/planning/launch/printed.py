"""From the arguments that a server printed to the role that it was started in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfmodel.planning.launch.roles import Drafting, Role

#: Fields of a role by the names of vLLM's arguments.
_VLLM = {
    "max_num_seqs": "sequences",
    "max_num_batched_tokens": "batched_tokens",
    "max_model_len": "context",
    "gpu_memory_utilization": "memory_share",
    "kv_cache_dtype": "kv_precision",
    "quantization": "quantization",
    "enable_prefix_caching": "prefix_caching",
}
_VLLM_DEGREES = {"tensor_parallel_size": "tp", "pipeline_parallel_size": "pp"}
_VLLM_READ = {
    "model",
    "model_tag",
    "data_parallel_size",
    "enable_expert_parallel",
    "enforce_eager",
    *_VLLM,
    *_VLLM_DEGREES,
}
_SGLANG = {
    "context_length": "context",
    "mem_fraction_static": "memory_share",
    "kv_cache_dtype": "kv_precision",
    "quantization": "quantization",
}
#: Arguments of SGLang that a plan has; it prints all others too, defaults among them.
SGLANG_READ = {
    *("model_path", "tp_size", "pp_size", "dp_size", "attn_dp_size", "enable_dp_attention", "ep_size"),
    *("max_running_requests", "chunked_prefill_size", "disable_radix_cache", "disable_cuda_graph"),
    *("speculative_algorithm", "speculative_draft_model_path", "speculative_num_draft_tokens", "disaggregation_mode"),
    *("speculative_num_steps", "speculative_eagle_topk", *_SGLANG),
}


def role_from(engine: str, given: Mapping[str, Any]) -> tuple[Role, list[str]]:
    """Return the role of the arguments that a server printed, and what is said of those that no plan has.

    Parameters
    ----------
    engine : str
        vllm or sglang.
    given : mapping of str to Any
        Arguments by the engine's own names.
    """
    return _vllm(given) if engine == "vllm" else _sglang(given)


def _vllm(given: Mapping[str, Any]) -> tuple[Role, list[str]]:
    tp, dp = int(given.get("tensor_parallel_size") or 1), int(given.get("data_parallel_size") or 1)
    spread = bool(given.get("enable_expert_parallel"))
    fields = {name: given[key] for key, name in _VLLM.items() if given.get(key) is not None}
    draft, others = None, {name: value for name, value in given.items() if name not in _VLLM_READ and value is not None}
    # The repr of an object is no value that a command line takes.
    objects = [name for name, value in others.items() if isinstance(value, str) and re.match(r"<|\w+\(", value)]
    for name in objects:
        del others[name]
    said = given.get("speculative_config")
    if isinstance(said, Mapping) and set(said) <= {"method", "num_speculative_tokens", "model"} and "method" in said:
        others.pop("speculative_config")
        draft = Drafting(str(said["method"]), int(said["num_speculative_tokens"]), str(said.get("model") or ""))
    role = Role(
        model=str(given.get("model") or given.get("model_tag")),
        tp=tp,
        pp=int(given.get("pipeline_parallel_size") or 1),
        ep=tp * dp if spread else 1,
        attention_dp=dp if spread else 1,
        dp=1 if spread else dp,
        graphs=False if given.get("enforce_eager") else None,
        drafting=draft,
        others=others,
        **fields,
    )
    return role, [f"{name} was printed as an object and is left out" for name in objects]


def _sglang(given: Mapping[str, Any]) -> tuple[Role, list[str]]:
    ranks, copies = int(given.get("tp_size") or 1), int(given.get("dp_size") or 1)
    shared = int(given.get("attn_dp_size") or 1)
    if given.get("enable_dp_attention"):
        shared, copies = max(shared, copies), 1
    requests = given.get("max_running_requests")
    fields = {name: given[key] for key, name in _SGLANG.items() if given.get(key) not in (None, "auto")}
    draft, algorithm = None, given.get("speculative_algorithm")
    if algorithm:
        words = {"EAGLE3": "eagle3", "EAGLE": "eagle", "NEXTN": "mtp", "NGRAM": "ngram", "STANDALONE": "draft_model"}
        tokens = int(given.get("speculative_num_draft_tokens") or 2) - 1
        draft = Drafting(words.get(algorithm, algorithm), tokens, str(given.get("speculative_draft_model_path") or ""))
    role = Role(
        model=str(given.get("model_path")),
        name="" if given.get("disaggregation_mode") in (None, "null") else str(given["disaggregation_mode"]),
        tp=ranks // shared,
        pp=int(given.get("pp_size") or 1),
        ep=int(given.get("ep_size") or 1),
        attention_dp=shared,
        dp=copies,
        sequences=None if requests is None else int(requests) // shared,
        # What it prints is already divided by the ranks of attention DP.
        batched_tokens=given.get("chunked_prefill_size"),
        prefix_caching=not given.get("disable_radix_cache"),
        graphs=False if given.get("disable_cuda_graph") else None,
        drafting=draft,
        **fields,
    )
    rest = [name for name, value in given.items() if name not in SGLANG_READ and value not in (None, False, [], {}, "")]
    notes = (
        [f"{len(rest)} arguments of the log are no part of a plan, defaults among them, and left out"] if rest else []
    )
    return role, notes

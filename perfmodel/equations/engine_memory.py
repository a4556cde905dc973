"""Memory budgets of the serving engines: activations, workspaces, graphs, and the pool that is left for the cache."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, ceil_div, maximum, minimum, switch_at

_VLLM = "vLLM, determine_available_memory"
_PEAKS = "vLLM 0.19 logs of 20 models on H100 (llm-d planner)"
_SGLANG = "SGLang, server_args: mem_fraction_static where none is given"
#: A mebibyte [B].
_MIB = 2.0**20
#: Bytes of an activation and of a logit.
_ACTIVATION, _LOGIT = 2.0, 4.0


@equation(symbol=r"A_{fwd}", unit="B", source=_PEAKS)
def forward_activations(*, tokens: Number, hidden: Number, intermediate: Number, streams: Number) -> Any:
    r"""Activations that a chip holds inside the widest layer of a forward pass.

    Gate, up and their product are alive at once, beside the residual stream and its copies.

    Parameters
    ----------
    tokens : Number
        Tokens of the batch that the engine sizes its memory for [1].
    hidden : Number
        Width of the residual stream [1].
    intermediate : Number
        Width of the feed-forward block on a chip [1].
    streams : Number
        Tensors of the width of the residual stream alive at once [1].

    Returns
    -------
    Number
        Size [B].
    """
    return _ACTIVATION * tokens * (3 * intermediate + streams * hidden)


@equation(symbol=r"A_{logit}", unit="B", source=_PEAKS)
def logit_activations(
    *, rows: Number, drafted: Number, vocab: Number, copies: Number, tokens: Number, hidden: Number
) -> Any:
    r"""Activations that a chip holds while it samples; every chip of the group holds all logits.

    Parameters
    ----------
    rows : Number
        Sequences that are sampled at once [1].
    drafted : Number
        Further rows of logits, one for each drafted token, which are verified and not sorted [1].
    vocab : Number
        Vocabulary [1].
    copies : Number
        FP32 copies of the logits alive at once: logits, sorted logits, probabilities and their sums [1].
    tokens : Number
        Tokens of the batch, whose hidden states are still held [1].
    hidden : Number
        Width of the residual stream [1].

    Returns
    -------
    Number
        Size [B].
    """
    return _LOGIT * (copies * rows + drafted) * vocab + _ACTIVATION * tokens * hidden


@equation(symbol=r"n_{draft}", unit="1", source="vLLM: a step samples no more rows than it takes tokens")
def drafted_rows(*, rows: Number, k: Number, tokens: Number) -> Any:
    r"""Rows of logits that drafted tokens add to those of the sequences.

    Parameters
    ----------
    rows : Number
        Sequences that are sampled at once [1].
    k : Number
        Tokens drafted a step [1].
    tokens : Number
        Tokens of the batch [1].

    Returns
    -------
    Number
        Rows [1].
    """
    return maximum(0.0, minimum(rows * k, tokens - rows))


@equation(symbol=r"p", unit="1", source="kernels of experts in MXFP4 take whole tiles of a rank's share")
def filled_up(*, dimension: Number, shards: Number, multiple: Number) -> Any:
    r"""Size of a sharded dimension as it is stored over that of the checkpoint.

    Parameters
    ----------
    dimension : Number
        Rows or columns of the whole matrix [1].
    shards : Number
        Ranks that share it [1].
    multiple : Number
        To which a rank's share is filled up [1].

    Returns
    -------
    Number
        1 where nothing is filled up [1].
    """
    return ceil_div(dimension / shards, multiple) * multiple / (dimension / shards)


@equation(symbol=r"A_{moe}", unit="B", source=_PEAKS)
def expert_workspace(*, tokens: Number, top_k: Number, intermediate: Number, hidden: Number) -> Any:
    r"""Workspace of the fused experts: the inputs and outputs of both products for every choice of every token.

    Parameters
    ----------
    tokens : Number
        Tokens of the batch [1].
    top_k : Number
        Experts of a token [1].
    intermediate : Number
        Width of one expert on a chip [1].
    hidden : Number
        Width of the residual stream [1].

    Returns
    -------
    Number
        Size [B].
    """
    return _ACTIVATION * tokens * top_k * (maximum(2 * intermediate, hidden) + maximum(intermediate, hidden))


@equation(symbol=r"A", unit="B", source=_PEAKS)
def activation_peak(*, forward: Number, logits: Number, workspace: Number) -> Any:
    r"""Peak of activations; a forward pass and the sampling that follows do not overlap, the workspace stays.

    Parameters
    ----------
    forward : Number
        Inside the widest layer [B].
    logits : Number
        While sampling [B].
    workspace : Number
        Of the experts [B].

    Returns
    -------
    Number
        Size [B].
    """
    return maximum(forward, logits) + workspace


@equation(symbol=r"N", unit="B", source="vLLM 0.19 logs: 0.25 GiB alone, 2.1 GiB in any tensor-parallel group")
def non_torch_memory(*, context: Number, communication: Number, ranks: Number) -> Any:
    r"""Memory of a chip outside the framework's allocator.

    Parameters
    ----------
    context : Number
        Driver context and libraries [B].
    communication : Number
        Buffers of collectives, in groups only [B].
    ranks : Number
        Chips of the group: of tensor or of expert parallelism, whichever is larger [1].

    Returns
    -------
    Number
        Size [B].
    """
    return context + communication * minimum(1, ranks - 1)


@equation(symbol=r"M_{kv}", unit="B", source=_VLLM)
def vllm_kv_pool(
    *,
    visible: Number,
    utilisation: Number,
    weights: Number,
    activation_peak: Number,
    non_torch: Number,
    cuda_graphs: Number,
) -> Any:
    r"""Memory of a chip that vLLM leaves to the KV cache; negative where the model does not fit.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    utilisation : Number
        ``gpu_memory_utilization`` [1].
    weights : Number
        Weights on the chip [B].
    activation_peak : Number
        Of the profiling run [B].
    non_torch : Number
        Outside the allocator [B].
    cuda_graphs : Number
        CUDA graphs, which count from release 0.20 on [B].

    Returns
    -------
    Number
        Room [B].
    """
    return utilisation * visible - weights - activation_peak - non_torch - cuda_graphs


@equation(symbol=r"M_{kv}", unit="B", source="TensorRT-LLM, kv_cache_config.free_gpu_memory_fraction")
def trtllm_kv_pool(
    *,
    visible: Number,
    utilisation: Number,
    weights: Number,
    activation_peak: Number,
    non_torch: Number,
    cuda_graphs: Number,
) -> Any:
    r"""Memory of a chip that TensorRT-LLM gives to the KV cache: a share of what is left after everything else.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    utilisation : Number
        ``free_gpu_memory_fraction`` [1].
    weights : Number
        Weights on the chip [B].
    activation_peak : Number
        Of the profiling run [B].
    non_torch : Number
        Context, workspaces and buffers [B].
    cuda_graphs : Number
        CUDA graphs [B].

    Returns
    -------
    Number
        Room [B].
    """
    return utilisation * (visible - weights - activation_peak - non_torch - cuda_graphs)


@equation(symbol=r"A", unit="B", source=_SGLANG)
def sglang_activations(*, tokens: Number) -> Any:
    r"""Memory that SGLang sets aside for activations.

    Parameters
    ----------
    tokens : Number
        ``chunked_prefill_size`` [1].

    Returns
    -------
    Number
        Size [B].
    """
    return 1.5 * _MIB * tokens


@equation(symbol=r"G", unit="B", source=_SGLANG)
def sglang_graphs(*, batch: Number) -> Any:
    r"""Memory that SGLang sets aside for CUDA graphs.

    Parameters
    ----------
    batch : Number
        ``cuda_graph_max_bs`` [1].

    Returns
    -------
    Number
        Size [B].
    """
    return 2 * _MIB * batch


@equation(symbol=r"r", unit="B", source=_SGLANG)
def sglang_reserve(*, visible: Number, activations: Number, graphs: Number, tp: Number, pp: Number) -> Any:
    r"""Memory that SGLang keeps out of weights and cache: at least 10 GiB of a chip of more than 60 GiB.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    activations : Number
        For activations [B].
    graphs : Number
        For CUDA graphs [B].
    tp : Number
        Tensor-parallel degree [1].
    pp : Number
        Pipeline stages [1].

    Returns
    -------
    Number
        Size [B].
    """
    reserve = (512 + 128 * tp * pp) * _MIB + activations + graphs
    return switch_at(visible, 61440 * _MIB, reserve, maximum(reserve, 10240 * _MIB))


@equation(symbol=r"f", unit="1", source=_SGLANG)
def static_fraction(*, visible: Number, reserve: Number) -> Any:
    r"""Share of a chip's memory for weights and cache, SGLang's ``mem_fraction_static``.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    reserve : Number
        Kept out of it [B].

    Returns
    -------
    Number
        Share [1].
    """
    return 1 - reserve / visible


@equation(symbol=r"M_{kv}", unit="B", source="SGLang, profile_max_num_token: free after loading less (1 - f) of before")
def sglang_kv_pool(*, visible: Number, utilisation: Number, weights: Number, non_torch: Number) -> Any:
    r"""Memory of a chip that SGLang gives to the KV cache.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    utilisation : Number
        ``mem_fraction_static`` [1].
    weights : Number
        Weights on the chip [B].
    non_torch : Number
        In use before the weights are loaded [B].

    Returns
    -------
    Number
        Room [B].
    """
    return utilisation * (visible - non_torch) - weights

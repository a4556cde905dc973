"""Weights, KV cache, and what fits."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, ceil_div, floor, maximum, minimum, switch_at

_BUDGET = "engines' budget: utilisation of the visible memory less weights and reserve"
_VLLM = "vLLM, determine_available_memory"
_PEAKS = "vLLM 0.19 logs of 20 models on H100 (llm-d planner)"
_SGLANG = "SGLang, server_args: mem_fraction_static where none is given"

#: A mebibyte [B].
_MIB = 2.0**20
#: Bytes of an activation and of a logit.
_ACTIVATION, _LOGIT = 2.0, 4.0


@equation(symbol=r"W", unit="B", source="parameters times bytes an element")
def weight_bytes(*, parameters: Number, bytes_per_parameter: Number) -> Any:
    r"""Size of a tensor.

    Parameters
    ----------
    parameters : Number
        Elements [1].
    bytes_per_parameter : Number
        Of the storage precision, block scales included [B].

    Returns
    -------
    Number
        Size [B].
    """
    return parameters * bytes_per_parameter


@equation(symbol=r"W_{chip}", unit="B", source="pipeline stages hold whole layers; embedding and head sit on the ends")
def weight_bytes_per_chip(*, layer_bytes: Number, end_bytes: Number, tp: Number) -> Any:
    r"""Weights on a chip of the fullest pipeline stage.

    Parameters
    ----------
    layer_bytes : Number
        Its share of the layers of the stage [B].
    end_bytes : Number
        Embedding and head weights of the stage [B].
    tp : Number
        Tensor-parallel degree [1].

    Returns
    -------
    Number
        Size [B].
    """
    return layer_bytes + end_bytes / tp


@equation(symbol=r"M", unit="B", source="what a driver showed over the label, taken to hold at other capacities")
def visible_memory(*, capacity: Number, share: Number) -> Any:
    r"""Memory of a chip that the driver shows.

    Parameters
    ----------
    capacity : Number
        On the label [B].
    share : Number
        What the driver shows over it; more than 1 where a label of GB means GiB [1].

    Returns
    -------
    Number
        Size [B].
    """
    return capacity * share


@equation(symbol=r"M_{kv}", unit="B", source=_BUDGET)
def kv_room(*, visible: Number, utilisation: Number, weights: Number, reserved: Number) -> Any:
    r"""Memory of a chip that is left for the KV cache; negative where the weights do not fit.

    Parameters
    ----------
    visible : Number
        Memory that the driver shows [B].
    utilisation : Number
        Share of it that the engine may take [1].
    weights : Number
        Weights on the chip [B].
    reserved : Number
        Activations, communication buffers and graphs [B].

    Returns
    -------
    Number
        Room [B].
    """
    return utilisation * visible - weights - reserved


@equation(symbol=r"m_{tok}", unit="B", source="a request holds whole blocks")
def growth_per_token(*, longer: Number, held: Number, tokens: Number) -> Any:
    r"""Cache that a chip adds for one more token of a request at its length.

    Parameters
    ----------
    longer : Number
        Cache of a request so many tokens longer [B].
    held : Number
        Cache of the request [B].
    tokens : Number
        Tokens by which it is longer [1].

    Returns
    -------
    Number
        Size a token [B].
    """
    return (longer - held) / tokens


@equation(symbol=r"m_{fix}", unit="B", source="windows and states stop growing")
def fixed_part(*, held: Number, growth: Number, tokens: Number) -> Any:
    r"""Cache of a request on a chip that does not grow with its length: full windows and states.

    Parameters
    ----------
    held : Number
        Cache of the request [B].
    growth : Number
        Of one more token [B].
    tokens : Number
        Tokens of the request in whole blocks [1].

    Returns
    -------
    Number
        Size [B].
    """
    return maximum(0.0, held - growth * tokens)


@equation(symbol=r"m_{req}", unit="B", source="a request holds its prompt and its output until it ends")
def request_kv_bytes(*, cache: Number, layers: Number, shards: Number) -> Any:
    r"""Cache of one request at its full length on one chip.

    Parameters
    ----------
    cache : Number
        Cache and state of the request in one layer [B].
    layers : Number
        Layers of that kind on the chip [1].
    shards : Number
        Parts into which a layer's cache is split [1].

    Returns
    -------
    Number
        Size [B].
    """
    return cache * layers / shards


@equation(symbol=r"c_{max}", unit="1", source=_BUDGET)
def concurrency_cap(*, room: Number, per_request: Number) -> Any:
    r"""Requests of full length that fit a replica.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    per_request : Number
        Cache of one request on a chip [B].

    Returns
    -------
    Number
        Requests, a whole number [1].
    """
    return floor(maximum(0.0, room) / per_request)


@equation(symbol=r"c_{run}", unit="1", source="requests beyond the cap wait")
def running_requests(*, offered: Number, cap: Number) -> Any:
    r"""Requests in service in one replica.

    Parameters
    ----------
    offered : Number
        Concurrent requests sent to the replica [1].
    cap : Number
        Requests that fit [1].

    Returns
    -------
    Number
        Requests [1].
    """
    return minimum(offered, cap)


@equation(symbol=r"M_{SRAM}", unit="B", source="SHIP: 72 LPUs hold 16.56 GB, 136 hold 31.28 GB")
def partition_capacity(*, chips: Number, capacity: Number) -> Any:
    r"""Memory of a group of chips that act as one.

    Parameters
    ----------
    chips : Number
        Chips [1].
    capacity : Number
        Memory of one chip [B].

    Returns
    -------
    Number
        Size [B].
    """
    return chips * capacity


@equation(symbol=r"w_{tile}", unit="1", source="a dimension split over chips is padded to whole tiles")
def tile_waste(*, dimension: Number, shards: Number, tile: Number) -> Any:
    r"""Share of the matrix unit that pads a sharded dimension.

    Parameters
    ----------
    dimension : Number
        Rows or columns of the whole matrix [1].
    shards : Number
        Chips that share it [1].
    tile : Number
        Rows or columns of the matrix unit [1].

    Returns
    -------
    Number
        0 where every tile is full [1].
    """
    return 1 - dimension / shards / (ceil_div(dimension / shards, tile) * tile)


# --- budgets of the engines --------------------------------------------------------------------------------------


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


# --- blocks ------------------------------------------------------------------------------------------------------


@equation(symbol=r"n_{blk}", unit="1", source="paged caches hold whole blocks")
def kv_blocks(*, room: Number, block_bytes: Number) -> Any:
    r"""Blocks that fit the pool.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    block_bytes : Number
        One block in all layers of the chip [B].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return floor(maximum(0.0, room) / block_bytes)


@equation(symbol=r"b_{req}", unit="1", source="paged caches hold whole blocks")
def request_blocks(*, tokens: Number, block: Number) -> Any:
    r"""Blocks of one sequence in a layer that keeps every token.

    Parameters
    ----------
    tokens : Number
        Length of the sequence [1].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return ceil_div(tokens, block)


@equation(symbol=r"b_{win}", unit="1", source="vLLM, SlidingWindowSpec: a window straddles one more block")
def windowed_blocks(*, tokens: Number, window: Number, block: Number) -> Any:
    r"""Blocks of one sequence in a layer that looks back a window only.

    Parameters
    ----------
    tokens : Number
        Length of the sequence [1].
    window : Number
        Tokens that the layer looks back [1].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Blocks, a whole number [1].
    """
    return minimum(ceil_div(tokens, block), ceil_div(window, block) + 1)


@equation(symbol=r"x", unit="1", source="vLLM, get_max_concurrency_for_kv_cache_config")
def max_concurrency(*, room: Number, per_request: Number) -> Any:
    r"""Requests that fit, with a fraction, as vLLM logs it.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    per_request : Number
        Cache of one request on a chip [B].

    Returns
    -------
    Number
        Requests [1].
    """
    return maximum(0.0, room) / per_request


@equation(symbol=r"T_{kv}", unit="1", source="vLLM: tokens := int(concurrency * max_model_len) where layers differ")
def kv_capacity(*, concurrency: Number, tokens: Number) -> Any:
    r"""Tokens of cache that requests of one length can use.

    Parameters
    ----------
    concurrency : Number
        Requests that fit, with a fraction [1].
    tokens : Number
        Their length [1].

    Returns
    -------
    Number
        Tokens, a whole number [1].
    """
    return floor(concurrency * tokens)


@equation(symbol=r"N_{max}", unit="1", source=_BUDGET)
def longest_sequence(*, room: Number, bytes_per_token: Number, block: Number) -> Any:
    r"""Longest sequence that fits alone, in whole blocks.

    Parameters
    ----------
    room : Number
        Memory for the cache on a chip [B].
    bytes_per_token : Number
        Cache of one token on a chip [B].
    block : Number
        Tokens of a block [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return floor(maximum(0.0, room) / (bytes_per_token * block)) * block


@equation(symbol=r"E_{chip}", unit="1", source="expert parallelism spreads whole experts")
def experts_per_chip(*, experts: Number, ep: Number) -> Any:
    r"""Routed experts that a chip holds of one layer.

    Parameters
    ----------
    experts : Number
        Routed experts of the layer [1].
    ep : Number
        Expert-parallel degree [1].

    Returns
    -------
    Number
        Experts on the fullest chip [1].
    """
    return ceil_div(experts, ep)


@equation(symbol=r"n_{held}", unit="1", source="mean over the life of a request that grows by pages")
def paged_tokens(*, prompt: Number, output: Number, page: Number) -> Any:
    r"""Tokens of cache that a request holds on average while it decodes.

    Parameters
    ----------
    prompt, output : Number
        Tokens of the request [1].
    page : Number
        Tokens of a page, of which the last one is half empty on average [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    return prompt + output / 2 + page / 2

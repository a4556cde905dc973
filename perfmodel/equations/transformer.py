"""Parameters, FLOPs and bytes of the operators of a decoder-only transformer.

All quantities are those of one instance of the operator (one layer) over the whole batch and the whole tensor-parallel
group, unless a parameter says otherwise.
"""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, complement_power, maximum, minimum, switch_at

_VASWANI = "Vaswani et al. 2017, arXiv:1706.03762"
_GQA = "Ainslie et al. 2023, arXiv:2305.13245"
_SWIGLU = "Shazeer 2020, arXiv:2002.05202"


@equation(symbol=r"N_{qkv}", unit="1", source=_GQA)
def qkv_parameters(*, hidden: Number, heads: Number, kv_heads: Number, head_dim: Number, bias: Number) -> Any:
    r"""Weights of the query, key and value projections of one layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    heads, kv_heads : Number
        Query heads; key and value heads [1].
    head_dim : Number
        Width of one head [1].
    bias : Number
        1 where the projections have a bias, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return (hidden + bias) * (heads + 2 * kv_heads) * head_dim


@equation(symbol=r"N_p", unit="1", source=_VASWANI)
def projection_parameters(*, inputs: Number, outputs: Number, bias: Number) -> Any:
    r"""Weights of one projection.

    Parameters
    ----------
    inputs, outputs : Number
        Widths of what goes in and of what comes out [1].
    bias : Number
        1 where it has a bias, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return (inputs + bias) * outputs


@equation(symbol=r"N_o", unit="1", source=_VASWANI)
def output_parameters(*, hidden: Number, heads: Number, head_dim: Number, bias: Number) -> Any:
    r"""Weights of the attention output projection of one layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    heads, head_dim : Number
        Query heads and their width [1].
    bias : Number
        1 where the projection has a bias, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return heads * head_dim * hidden + bias * hidden


@equation(symbol=r"N_{mlp}", unit="1", source=_SWIGLU)
def mlp_parameters(*, hidden: Number, intermediate: Number, matrices: Number) -> Any:
    r"""Weights of a feed-forward block.

    Parameters
    ----------
    hidden, intermediate : Number
        Model width and feed-forward width [1].
    matrices : Number
        3 for a gated block (gate, up, down), 2 for a plain one [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return matrices * hidden * intermediate


@equation(symbol=r"N_{norm}", unit="1", source="Zhang and Sennrich 2019, arXiv:1910.07467")
def norm_parameters(*, hidden: Number, norms: Number) -> Any:
    r"""Scales of the normalisations of one layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    norms : Number
        Normalisations of full width [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return norms * hidden


@equation(symbol=r"N_V", unit="1", source=_VASWANI)
def vocabulary_parameters(*, vocab: Number, hidden: Number) -> Any:
    r"""Weights of the embedding table or of the language-model head.

    Parameters
    ----------
    vocab : Number
        Vocabulary size [1].
    hidden : Number
        Model width [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return vocab * hidden


@equation(symbol=r"F_{gemm}", unit="FLOP", source="2 m n k: one multiply and one add a weight and token")
def gemm_flops(*, tokens: Number, parameters: Number) -> Any:
    r"""FLOPs of multiplying tokens with a weight matrix.

    Parameters
    ----------
    tokens : Number
        Rows of the activation matrix [1].
    parameters : Number
        Elements of the weight matrix [1].

    Returns
    -------
    Number
        Work [FLOP].
    """
    return 2 * parameters * tokens


@equation(symbol=r"\bar{c}", unit="1", source="mean over t = 1..n of context + t")
def mean_attended_tokens(*, context: Number, tokens: Number) -> Any:
    r"""Keys that a query of a causal pass attends to on average.

    Parameters
    ----------
    context : Number
        Tokens already in the cache [1].
    tokens : Number
        New tokens of the sequence in this pass [1].

    Returns
    -------
    Number
        Keys a query [1].
    """
    return context + (tokens + 1) / 2


@equation(symbol=r"\bar{c}_w", unit="1", source="mean over t = 1..n of min(context + t, window)")
def mean_attended_in_window(*, context: Number, tokens: Number, window: Number) -> Any:
    r"""Keys that a query attends to on average where attention looks back a window.

    Parameters
    ----------
    context : Number
        Tokens already in the sequence [1].
    tokens : Number
        New tokens of the sequence in this pass [1].
    window : Number
        Tokens that a query can see [1].

    Returns
    -------
    Number
        Keys a query [1].
    """
    growing = maximum(0.0, minimum(tokens, window - context))
    return (growing * (context + (growing + 1) / 2) + (tokens - growing) * window) / tokens


@equation(symbol=r"\bar{c}_{ch}", unit="1", source="once a sequence is longer, its last chunk is half full")
def mean_attended_in_chunk(*, context: Number, tokens: Number, chunk: Number) -> Any:
    r"""Keys that a query attends to on average where attention starts afresh every chunk.

    Parameters
    ----------
    context : Number
        Tokens already in the sequence [1].
    tokens : Number
        New tokens of the sequence in this pass [1].
    chunk : Number
        Tokens of a chunk [1].

    Returns
    -------
    Number
        Keys a query [1].
    """
    return switch_at(context + tokens, chunk, context + (tokens + 1) / 2, (chunk + 1) / 2)


@equation(symbol=r"F_{attn}", unit="FLOP", source=_VASWANI)
def attention_flops(
    *, sequences: Number, tokens: Number, attended: Number, heads: Number, key_dim: Number, value_dim: Number
) -> Any:
    r"""FLOPs of scores and weighted values of one layer.

    Parameters
    ----------
    sequences : Number
        Sequences in the batch [1].
    tokens : Number
        New tokens a sequence [1].
    attended : Number
        Mean keys a query attends to [1].
    heads : Number
        Query heads [1].
    key_dim, value_dim : Number
        Width of a key and of a value [1].

    Returns
    -------
    Number
        Work [FLOP].
    """
    return 2 * heads * (key_dim + value_dim) * sequences * tokens * attended


@equation(symbol=r"s_{kv}", unit="B", source=_GQA)
def kv_bytes_per_token(*, kv_heads: Number, key_dim: Number, value_dim: Number, bytes_per_element: Number) -> Any:
    r"""Key and value bytes that one token leaves in one layer's cache.

    Parameters
    ----------
    kv_heads : Number
        Key and value heads (not query heads) [1].
    key_dim, value_dim : Number
        Width of a key and of a value [1].
    bytes_per_element : Number
        Of the cache's precision [B].

    Returns
    -------
    Number
        Size [B].
    """
    return kv_heads * (key_dim + value_dim) * bytes_per_element


@equation(symbol=r"B_{kv}", unit="B", source="every cached token is read once a step, new tokens are written once")
def kv_traffic(*, sequences: Number, context: Number, tokens: Number, bytes_per_token: Number) -> Any:
    r"""Cache bytes that one layer reads and writes in a pass.

    Parameters
    ----------
    sequences : Number
        Sequences in the batch [1].
    context, tokens : Number
        Tokens already in the cache; new tokens a sequence [1].
    bytes_per_token : Number
        Cache bytes a token and layer [B].

    Returns
    -------
    Number
        Traffic [B].
    """
    return sequences * (context + tokens) * bytes_per_token


@equation(symbol=r"B_{act}", unit="B", source="inputs are read once and outputs written once")
def activation_traffic(*, tokens: Number, width: Number, bytes_per_element: Number) -> Any:
    r"""Activation bytes that an operator reads and writes.

    Parameters
    ----------
    tokens : Number
        Rows [1].
    width : Number
        Input plus output columns [1].
    bytes_per_element : Number
        Of the activations [B].

    Returns
    -------
    Number
        Traffic [B].
    """
    return tokens * (width * bytes_per_element)


@equation(
    symbol=r"n_{shard}", unit="1", source="KV heads replicate when TP exceeds them; facts of vLLM and TensorRT-LLM"
)
def kv_shards(*, tp: Number, kv_heads: Number) -> Any:
    r"""Parts into which tensor parallelism on GPUs can split the cache.

    Parameters
    ----------
    tp : Number
        Tensor-parallel degree [1].
    kv_heads : Number
        Key and value heads [1].

    Returns
    -------
    Number
        Shards; with more chips than heads each head is held more than once [1].
    """
    return maximum(1.0, minimum(tp, kv_heads))


@equation(
    symbol=r"B_{el}",
    unit="B",
    source="two normalisations with residual, activation function, quantisation: each reads and writes",
)
def elementwise_traffic(*, tokens: Number, hidden: Number, sharded_width: Number, tp: Number, quantised: Number) -> Any:
    r"""Bytes that the kernels between the matrix products of one layer move on one chip.

    Parameters
    ----------
    tokens : Number
        Rows [1].
    hidden : Number
        Model width, which every rank of a group handles whole [1].
    sharded_width : Number
        Width of the feed-forward block, of which a rank handles its part [1].
    tp : Number
        Tensor-parallel degree [1].
    quantised : Number
        1 where activations are quantised before each product, else 0 [1].

    Returns
    -------
    Number
        Traffic of 16-bit activations [B].
    """
    return tokens * (hidden * (16 + 6 * quantised) + sharded_width / tp * (6 + 3 * quantised))


@equation(symbol=r"n_{img}", unit="1", source="images lie evenly in the prompt")
def images_of_tokens(*, tokens: Number, images: Number, prompt: Number) -> Any:
    r"""Images that so many prompt tokens hold.

    Parameters
    ----------
    tokens : Number
        Prompt tokens of a pass, those of images included [1].
    images : Number
        Images of a request [1].
    prompt : Number
        Prompt tokens of a request, those of images included [1].

    Returns
    -------
    Number
        Images [1].
    """
    return tokens * images / prompt


# --- experts -----------------------------------------------------------------------------------------------------


@equation(symbol=r"D", unit="1", source="Artetxe et al. 2021, arXiv:2112.10684: each token picks k of E experts evenly")
def distinct_experts(*, experts: Number, top_k: Number, tokens: Number) -> Any:
    r"""Experts that at least one token of a batch meets, E (1 - (1 - k/E)^B).

    Parameters
    ----------
    experts, top_k : Number
        Experts of a layer; those that a token meets [1].
    tokens : Number
        Tokens in the batch [1].

    Returns
    -------
    Number
        Experts [1].
    """
    return experts * (1 - complement_power(top_k / experts, tokens))


@equation(symbol=r"n_{pad}", unit="1", source="the last tile of each expert is half empty on average")
def padded_rows(*, experts: Number, tile: Number) -> Any:
    r"""Rows of grouped matrix products that only fill tiles.

    Parameters
    ----------
    experts : Number
        Experts that have rows at all [1].
    tile : Number
        Rows of a tile [1].

    Returns
    -------
    Number
        Rows [1].
    """
    return experts * tile / 2


@equation(symbol=r"N_{exp}", unit="1", source=_SWIGLU)
def expert_parameters(*, hidden: Number, intermediate: Number, matrices: Number, bias: Number) -> Any:
    r"""Weights of one expert.

    Parameters
    ----------
    hidden, intermediate : Number
        Model width and width of the expert [1].
    matrices : Number
        3 for a gated expert, 2 for a plain one [1].
    bias : Number
        1 where its projections have a bias, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return matrices * hidden * intermediate + bias * ((matrices - 1) * intermediate + hidden)


@equation(symbol=r"N_{r}", unit="1", source="Shazeer et al. 2017, arXiv:1701.06538")
def router_parameters(*, hidden: Number, experts: Number, bias: Number, shared_gate: Number) -> Any:
    r"""Weights of the router of one layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    experts : Number
        Experts [1].
    bias : Number
        1 where the router has a bias or a correction an expert, else 0 [1].
    shared_gate : Number
        1 where the shared expert has a gate of its own, else 0 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return (hidden + bias) * experts + shared_gate * hidden


@equation(symbol=r"f_{imb}", unit="1", source="the fullest of several expert-parallel ranks decides")
def imbalance_factor(*, imbalance: Number, ep: Number) -> Any:
    r"""Load of the fullest expert-parallel rank over the mean.

    Parameters
    ----------
    imbalance : Number
        Load of the fullest rank over the mean, where there are several [1].
    ep : Number
        Expert-parallel degree [1].

    Returns
    -------
    Number
        Factor; 1 without expert parallelism [1].
    """
    return 1 + (imbalance - 1) * minimum(1.0, ep - 1)


@equation(symbol=r"k_{real}", unit="1", source="LongCat-Flash, arXiv:2509.01322: picks fall evenly on all experts")
def computing_experts(*, top_k: Number, experts: Number, zero_experts: Number) -> Any:
    r"""Experts with weights that a token meets where a router also picks some that compute nothing.

    Parameters
    ----------
    top_k : Number
        Picks a token [1].
    experts, zero_experts : Number
        Experts that compute, and those that hand a token on as it is [1].

    Returns
    -------
    Number
        Experts a token [1].
    """
    return top_k * experts / (experts + zero_experts)


# --- latent attention --------------------------------------------------------------------------------------------

_MLA = "DeepSeek-V2, arXiv:2405.04434, section 2.1"
_DSA = "DeepSeek-V3.2, arXiv:2512.02556, section 2.1"


@equation(symbol=r"N_{a}", unit="1", source=_MLA)
def mla_down_parameters(*, hidden: Number, q_lora_rank: Number, kv_lora_rank: Number, rope_dim: Number) -> Any:
    r"""Weights that project a token to its query latent and its key-value latent.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    q_lora_rank, kv_lora_rank : Number
        Widths of the two latents [1].
    rope_dim : Number
        Width of the shared rotary key [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return hidden * (q_lora_rank + kv_lora_rank + rope_dim)


@equation(symbol=r"N_{qb}", unit="1", source=_MLA)
def mla_query_parameters(*, width: Number, heads: Number, nope_dim: Number, rope_dim: Number) -> Any:
    r"""Weights that make the queries of all heads.

    Parameters
    ----------
    width : Number
        Width of the query latent, or of the model where there is none [1].
    heads : Number
        Query heads [1].
    nope_dim, rope_dim : Number
        Width of a query without and with rotary embedding [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return width * heads * (nope_dim + rope_dim)


@equation(symbol=r"N_{kvb}", unit="1", source=_MLA)
def mla_up_parameters(*, kv_lora_rank: Number, heads: Number, nope_dim: Number, v_dim: Number) -> Any:
    r"""Weights between the key-value latent and the heads; absorbed into queries and outputs while decoding.

    Parameters
    ----------
    kv_lora_rank : Number
        Width of the latent [1].
    heads : Number
        Heads [1].
    nope_dim, v_dim : Number
        Width of a key without rotary embedding, and of a value [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return kv_lora_rank * heads * (nope_dim + v_dim)


@equation(symbol=r"N_{idx}", unit="1", source=_DSA)
def indexer_parameters(*, hidden: Number, q_lora_rank: Number, heads: Number, head_dim: Number) -> Any:
    r"""Weights of the indexer of one layer: queries, one key, its normalisation, and a weight a head.

    Parameters
    ----------
    hidden, q_lora_rank : Number
        Width of the model and of the query latent [1].
    heads, head_dim : Number
        Heads of the indexer and their width [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return q_lora_rank * heads * head_dim + hidden * head_dim + 2 * head_dim + hidden * heads


_V4 = "DeepSeek-V4 in transformers 5.24: modeling_deepseek_v4.py"


@equation(symbol=r"N_{c}", unit="1", source=_V4)
def compressor_parameters(*, hidden: Number, head_dim: Number, ratio: Number, overlap: Number) -> Any:
    r"""Weights that compress so many tokens into one entry of the cache: entry, gate, positions, normalisation.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    head_dim : Number
        Width of an entry [1].
    ratio : Number
        Tokens of an entry [1].
    overlap : Number
        Spans that meet in one entry: 2 where neighbours overlap, else 1 [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    return overlap * head_dim * (2 * hidden + ratio) + head_dim


@equation(symbol=r"n_{c}", unit="1", source=_V4)
def compressed_entries(*, tokens: Number, ratio: Number) -> Any:
    r"""Entries that so many tokens leave in a compressed cache.

    Parameters
    ----------
    tokens : Number
        Tokens of the sequence [1].
    ratio : Number
        Tokens of an entry [1].

    Returns
    -------
    Number
        Entries; the last one is counted by its part [1].
    """
    return tokens / ratio


# --- constant states ---------------------------------------------------------------------------------------------

_DELTA = "Yang et al. 2024 (Gated DeltaNet), arXiv:2412.06464; Qwen3-Next"
_MAMBA2 = "Dao and Gu 2024 (Mamba-2), arXiv:2405.21060"
_MAMBA1 = "Gu and Dao 2023 (Mamba), arXiv:2312.00752; Jamba, arXiv:2403.19887"


@equation(symbol=r"N_{\Delta}", unit="1", source=_DELTA)
def linear_attention_parameters(
    *, hidden: Number, key_width: Number, value_width: Number, value_heads: Number, value_dim: Number, kernel: Number
) -> Any:
    r"""Weights of a gated delta-rule layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    key_width, value_width : Number
        Heads times width of keys and of values [1].
    value_heads, value_dim : Number
        Value heads and their width [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    projections = hidden * (2 * key_width + 2 * value_width + 2 * value_heads) + value_width * hidden
    return projections + (2 * key_width + value_width) * kernel + 2 * value_heads + value_dim


@equation(symbol=r"N_{M2}", unit="1", source=_MAMBA2)
def mamba2_parameters(
    *, hidden: Number, heads: Number, head_dim: Number, groups: Number, state: Number, kernel: Number
) -> Any:
    r"""Weights of a Mamba-2 layer.

    Parameters
    ----------
    hidden : Number
        Model width [1].
    heads, head_dim : Number
        Heads and their width [1].
    groups, state : Number
        Groups of input and output maps; width of the state [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    inner = heads * head_dim
    mixed = inner + 2 * groups * state
    return hidden * (inner + mixed + heads) + mixed * (kernel + 1) + 3 * heads + inner + inner * hidden


@equation(symbol=r"N_{M1}", unit="1", source=_MAMBA1)
def mamba1_parameters(*, hidden: Number, inner: Number, state: Number, dt_rank: Number, kernel: Number) -> Any:
    r"""Weights of a Mamba layer with Jamba's normalisations.

    Parameters
    ----------
    hidden, inner : Number
        Width of the model and inside the layer [1].
    state : Number
        Width of the state [1].
    dt_rank : Number
        Rank of the step-size projection [1].
    kernel : Number
        Taps of the convolution [1].

    Returns
    -------
    Number
        Parameters [1].
    """
    projections = 3 * hidden * inner + inner * (dt_rank + 2 * state) + dt_rank * inner
    return projections + inner * (kernel + 3 + state) + dt_rank + 2 * state


@equation(symbol=r"F_{state}", unit="FLOP", source=f"{_DELTA}: decay, update and read of each state element")
def state_flops(*, tokens: Number, elements: Number) -> Any:
    r"""FLOPs of updating and reading a recurrent state.

    Parameters
    ----------
    tokens : Number
        Tokens of all sequences [1].
    elements : Number
        Elements of the state of one sequence and layer [1].

    Returns
    -------
    Number
        Work [FLOP].
    """
    return 6 * tokens * elements


@equation(symbol=r"B_{state}", unit="B", source="a recurrent state is read and written once a pass")
def state_traffic(*, sequences: Number, elements: Number, bytes_per_element: Number) -> Any:
    r"""State bytes that one layer reads and writes in a pass.

    Parameters
    ----------
    sequences : Number
        Sequences in the batch [1].
    elements : Number
        Elements of the state of one sequence and layer [1].
    bytes_per_element : Number
        Of the state [B].

    Returns
    -------
    Number
        Traffic [B].
    """
    return 2 * sequences * elements * bytes_per_element


@equation(symbol=r"m_{lat}", unit="B", source="FlashMLA: FP8 latents, an FP32 scale for 128, BF16 keys")
def scaled_latent_bytes(*, kv_lora_rank: Number, rope_dim: Number) -> Any:
    r"""Cache of one token in one layer of latent attention where sparse attention reads it in FP8.

    Parameters
    ----------
    kv_lora_rank : Number
        Rank of the latents [1].
    rope_dim : Number
        Width of the rotated key [1].

    Returns
    -------
    Number
        Size [B].
    """
    return kv_lora_rank + 4 * kv_lora_rank / 128 + 2 * rope_dim

"""Parameters, FLOPs and bytes of the operators of a decoder-only transformer.

All quantities are those of one instance of the operator (one layer) over the whole batch and the whole tensor-parallel
group, unless a parameter says otherwise.
"""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, maximum, minimum, switch_at

_VASWANI = "Vaswani et al. 2017, arXiv:1706.03762"
_GQA = "Ainslie et al. 2023, arXiv:2305.13245"
SWIGLU = "Shazeer 2020, arXiv:2002.05202"


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


@equation(symbol=r"N_{mlp}", unit="1", source=SWIGLU)
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


# --- latent attention --------------------------------------------------------------------------------------------


# --- constant states ---------------------------------------------------------------------------------------------

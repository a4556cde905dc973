"""What stands beside a layer's mixer and block: biases, scales, inputs of layers, extra normalisations."""

from __future__ import annotations

from perfmodel.specs.config import Config, Part, Parts
from perfmodel.specs.types import (
    Beside,
)


def plus(weights: float = 0.0, scales: float = 0.0) -> Part:
    """Return weights and scales beside a layer, where there are any."""
    return {"beside": Beside(weights, scales)} if weights or scales else {}


def biases(config: Config) -> Parts:
    """Count the biases of an MLP of two matrices."""
    config.get("use_bias")
    return lambda _: plus(
        scales=config.count("intermediate_size", default=4 * config.count("hidden_size")) + config.count("hidden_size")
    )


def layer_inputs(config: Config) -> Parts:
    """Read Gemma's inputs of each layer: a table, a projection, and what runs in the layer."""
    width = config.count("hidden_size_per_layer_input", default=0.0, least=0)
    hidden, experts = config.count("hidden_size"), config.flag("enable_moe_block")
    scales = 0.0
    if experts:
        scales += 3 * hidden + hidden + config.count("num_experts")
    config.get("vocab_size_per_layer_input")
    if not width:
        return lambda _: plus(scales=scales)
    words = config.count("vocab_size_per_layer_input", default=config.count("vocab_size"))
    config.tables += words * width * config.layers + width
    # The projection of the token to the inputs of all layers is counted with each layer.
    return lambda _: plus(3 * hidden * width, scales + hidden)


def gemma3n_beside(config: Config) -> Parts:
    """Read what Gemma 3n adds: inputs of each layer, low-rank residuals and several streams."""
    inputs = layer_inputs(config)
    hidden, streams = config.count("hidden_size"), config.count("altup_num_inputs")
    rank = config.count("laurel_rank")
    config.tables += 2 * (streams - 1) * hidden * hidden

    def part(index: int) -> Part:
        found = inputs(index)["beside"]
        weights = found.weights + 2 * hidden * rank + hidden * streams
        return plus(weights, found.scales + 3 * hidden + streams**2 + streams**3)

    return part


def hyper_connections(config: Config) -> Parts:
    """Read DeepSeek-V4's residual streams: two mixings of all streams a layer, and one before the head."""
    hidden, streams = config.count("hidden_size"), config.count("hc_mult")
    mixes = (2 + streams) * streams
    config.tables += streams * streams * hidden + streams + 1
    return lambda _: plus(2 * mixes * streams * hidden, 2 * (mixes + 3))


def residual_blocks(config: Config) -> Parts:
    """Read Kimi-K3's attention over earlier residuals, and the scale of its latent experts."""
    hidden, latent = config.count("hidden_size"), config.get("routed_expert_hidden_size") or 0
    scales = 4 * hidden if config.get("attn_res_block_size") is not None else 0.0
    return lambda index: plus(scales=scales + (float(latent) if config.flag("latent_moe_use_norm") else 0.0))


def falcon_norms(config: Config) -> Parts:
    """Count the second normalisation that some of Falcon's layers have."""
    newer, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn", True)
    several = config.get("num_ln_in_parallel_attn")
    two = several == 2 or (newer and several is None) or not (newer or parallel)
    bias = config.count("intermediate_size", default=4 * config.count("hidden_size")) + config.count("hidden_size")
    scales = 2 * config.count("hidden_size") * float(two) + bias * float(config.flag("bias"))
    return lambda _: plus(scales=scales)


def mllama_words(config: Config) -> Parts:
    """Count the eight words of images, the scales of cross-attention, and its gates."""
    layers = config.list_of("cross_attention_layers", int) or []
    config.tables += 8 * config.count("hidden_size")
    return lambda index: plus(scales=2.0) if index in layers else {}


def type_words(config: Config) -> Parts:
    """Count the words of types."""
    config.tables += config.count("type_vocab_size", default=2.0, least=0) * config.count("hidden_size")
    return lambda _: {}


def first_norm_missing(config: Config) -> Parts:
    """Say that ModernBERT's first layer has one normalisation only."""
    return lambda index: {} if index else {"norms": 1.0}

"""Mixers with a constant state: delta rules, state-space layers, short convolutions, lightning attention."""

from __future__ import annotations

from collections.abc import Mapping

from perfmodel.specs.architectures.attention import head_dim_of
from perfmodel.specs.architectures.patterns import Reader
from perfmodel.specs.config import Config, Parts
from perfmodel.specs.types import (
    LinearAttention,
    Mamba1,
    Mamba2,
    Recurrent,
)


def delta_rule(config: Config) -> Parts:
    """Read the gated delta rule of Qwen3-Next and Qwen3.5."""
    linear = LinearAttention(
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_head_dim=config.count("linear_key_head_dim"),
        value_head_dim=config.count("linear_value_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim"),
    )
    return lambda _: {"linear": linear}


def by_channel(config: Config) -> Parts:
    """Read a delta rule with a gate a channel: Kimi Delta Attention, and Ling's."""
    nested = config.get("linear_attn_config") is not None
    source = config.inner("linear_attn_config") if nested else config
    heads = source.count("num_heads" if nested else "linear_num_heads")
    width = source.count("head_dim" if nested else "linear_head_dim")
    taps = source.count("short_conv_kernel_size" if nested else "linear_conv_kernel_dim")
    hidden, inner = config.count("hidden_size"), heads * width
    low_rank = width * (hidden + inner)
    full_gate = source.flag("use_full_rank_gate") or config.get("model_type") == "bailing_hybrid"
    gate = hidden * inner if full_gate else low_rank
    forget = hidden * inner if config.get("model_type") == "bailing_hybrid" else low_rank
    scales = inner + heads + width
    weights = 4 * hidden * inner + 3 * inner * taps + hidden * heads + gate + forget + scales
    recurrent = Recurrent(weights, inner * width + 3 * inner * (taps - 1), heads)
    return lambda _: {"recurrent": recurrent}


def short_convolution(config: Config) -> Parts:
    """Read a gated convolution over the last few tokens: LFM2."""
    hidden, taps = config.count("hidden_size"), config.count("conv_L_cache")
    bias = 5.0 * float(config.flag("conv_bias"))
    recurrent = Recurrent(hidden * (4 * hidden + taps + bias), hidden * (taps - 1), hidden)
    return lambda _: {"recurrent": recurrent}


def lightning_mixer(config: Config) -> Parts:
    """Read lightning attention: MiniMax-Text-01."""
    heads = config.count("num_attention_heads")
    width = head_dim_of(config, heads)
    hidden, inner = config.count("hidden_size"), heads * width
    recurrent = Recurrent(5 * hidden * inner + inner, inner * width, heads)
    return lambda _: {"recurrent": recurrent}


def mamba2(names: Mapping[str, str]) -> Reader:
    """Return a reader of a second-generation state-space mixer, whose fields have these names."""

    def read(config: Config) -> Parts:
        heads, width = config.count(names["heads"]), config.get(names["head_dim"])
        config.get(names["expand"])
        for name in ("use_conv_bias", "mamba_conv_bias"):
            if not config.flag(name, True):
                config.note(f"{name}: this bias is counted all the same")
        if width in (None, "auto"):
            inner = config.count(names["expand"]) * config.count("hidden_size")
            width = inner / heads
            config.derived["head_dim"] = "expanded width / heads"
        else:
            width = config.count(names["head_dim"])
        mamba = Mamba2(
            heads=heads,
            head_dim=float(width),
            groups=config.count(names["groups"]),
            state=config.count(names["state"]),
            conv_kernel=config.count(names["conv"]),
        )
        return lambda _: {"mamba2": mamba}

    return read


BAMBA = {
    "heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "expand": "mamba_expand",
    "groups": "mamba_n_groups",
    "state": "mamba_d_state",
    "conv": "mamba_d_conv",
}


NEMOTRON_H = {
    "heads": "mamba_num_heads",
    "head_dim": "mamba_head_dim",
    "expand": "expand",
    "groups": "n_groups",
    "state": "ssm_state_size",
    "conv": "conv_kernel",
}


MAMBA2 = {**NEMOTRON_H, "heads": "num_heads", "head_dim": "head_dim", "state": "state_size"}


ZAMBA2 = {**BAMBA, "heads": "n_mamba_heads", "head_dim": "mamba_headdim", "groups": "mamba_ngroups"}


def mamba1(config: Config) -> Parts:
    """Read a first-generation state-space mixer with the normalisations of Jamba."""
    hidden = config.count("hidden_size")
    automatic = config.get("mamba_dt_rank") in (None, "auto")
    mamba = Mamba1(
        inner=config.count("mamba_expand") * hidden,
        state=config.count("mamba_d_state"),
        dt_rank=-(-hidden // 16) if automatic else config.count("mamba_dt_rank"),
        conv_kernel=config.count("mamba_d_conv"),
    )
    config.derived["inner"] = "mamba_expand x hidden_size"
    return lambda _: {"mamba1": mamba}


def plain_mamba1(config: Config) -> Parts:
    """Read a first-generation state-space mixer without normalisations: Mamba, Falcon-Mamba."""
    hidden = config.count("hidden_size")
    inner, state = config.count("expand") * hidden, config.count("state_size")
    given = config.get("time_step_rank")
    rank = -(-hidden // 16) if given in (None, "auto") else config.count("time_step_rank")
    taps = config.count("conv_kernel")
    weights = 3 * hidden * inner + inner * (taps + float(config.flag("use_conv_bias", True)))
    weights += inner * (rank + 2 * state) + (rank + 1) * inner + inner * state + inner
    recurrent = Recurrent(weights, inner * (state + taps - 1), inner)
    return lambda _: {"recurrent": recurrent}

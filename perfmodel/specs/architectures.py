"""Architectures by their ``model_type``: one table of which mixer and which block each layer has.

What a field does follows the modelling code of its ``model_type`` in transformers 5.24, or of the model's own files
where transformers has none; a field that real files leave out has the default of that type's configuration class.
A new model is a row of :data:`TYPES`, made of the readers above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.specs.config import Config, Part, Parts, Which, shown
from perfmodel.specs.types import (
    Attention,
    Beside,
    CompressedAttention,
    Indexer,
    Layers,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mla,
    Mlp,
    Moe,
    Recurrent,
    Sliding,
)

FULL, SLIDING, CHUNKED, LINEAR, CONV = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
)
#: Other words for a kind of layer.
_ALSO = {"attention": FULL, "mamba": LINEAR, "indexed_attention": FULL, "minimax_m3_sparse": "sparse"}

#: Reads one part of _every layer.
Reader = Callable[[Config], Parts]


# --- which layers ------------------------------------------------------------------------------------------------


def _every(count: float, offset: float = 0.0) -> Which:
    """Return whether a layer is one of every so many."""
    return lambda index: index % count == offset


def _last_of_every(count: float) -> Which:
    """Return whether a layer is the last of every so many."""
    return _every(count, count - 1)


def _always(config: Config) -> Which:
    return lambda index: True


def _alternate(config: Config) -> Which:
    return _every(2.0)


def _upper(config: Config) -> Which:
    if not config.flag("use_sliding_window"):
        return lambda index: False
    first = config.count("max_window_layers", least=0)
    return lambda index: index >= first


def _all_but_every(count: float, name: str = "sliding_window_pattern") -> Callable[[Config], Which]:
    def which(config: Config) -> Which:
        written = config.get(name)
        if isinstance(written, str):
            return lambda index: written[index % len(written)] == "L"
        full = _last_of_every(config.count(name, default=count))
        return lambda index: not full(index)

    return which


def _periodic(config: Config, name: str) -> Which:
    period, offset = config.count(f"{name}_period"), config.count(f"{name}_offset", least=0)
    if offset >= period:
        raise config.refusal(f"{name}_offset", f"{offset:g} is not below {name}_period {period:g}")
    return _every(period, offset)


def _kinds_of(config: Config, special: Which = lambda index: False, kind: str = SLIDING) -> list[str]:
    """Return the kind of each layer: what ``layer_types`` says, else the rule of the model type."""
    given = config.one_a_layer("layer_types", str)
    if given:
        return [_ALSO.get(one, one) for one in given]
    return [kind if special(index) else FULL for index in range(config.layers)]


def _sparse_layers(config: Config, rule: Which) -> Which:
    """Return which layers have experts: what a list says, else the rule of the model type."""
    if given := config.one_a_layer("mlp_layer_types", str):
        return lambda index: given[index] not in ("dense", "mlp")
    flags = config.get("moe_layer_freq")
    if isinstance(flags, list):
        flags = config.one_a_layer("moe_layer_freq", int)
        return lambda index: bool(flags[index]) if flags else False
    return rule


def _after_dense(config: Config) -> Which:
    """Return whether a layer has experts: those behind the first dense ones, every so many."""
    step = config.get("moe_layer_freq")
    first = config.count("first_k_dense_replace", default=0.0, least=0)
    at = _every(config.count("moe_layer_freq", default=1.0) if not isinstance(step, list) else 1.0)
    return _sparse_layers(config, lambda index: index >= first and at(index))


# --- attention ---------------------------------------------------------------------------------------------------


def _head_dim(config: Config, heads: float) -> float:
    for name in ("attention_head_dim", "head_dim"):
        if config.get(name) is not None:
            return config.count(name)
    hidden = config.count("hidden_size")
    if hidden % heads:
        raise config.refusal("head_dim", f"is missing, and {heads:g} heads do not divide hidden_size {hidden:g}")
    config.derived["head_dim"] = "hidden_size / num_attention_heads"
    return hidden / heads


def _plain_attention(config: Config, **traits: Any) -> Attention:
    """Return the attention that a file describes, without windows."""
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    if config.get("num_key_value_heads") is None:
        config.derived["kv_heads"] = "num_attention_heads"
    if heads % kv_heads:
        raise config.refusal("num_key_value_heads", f"{kv_heads:g} do not divide the {heads:g} num_attention_heads")
    bias = config.flag("attention_bias")
    return Attention(heads, kv_heads, _head_dim(config, heads), **{"qkv_bias": bias, "output_bias": bias, **traits})


def _attention(config: Config, kinds: list[str] | None = None, **traits: Any) -> Parts:
    """Read grouped-query attention, with a window where the kind of the layer says so."""
    plain = _plain_attention(config, **traits)
    windows = _windows(config, kinds or _kinds_of(config))
    return lambda index: {"attention": replace(plain, sliding=windows[index])}


def _windows(config: Config, kinds: list[str]) -> list[Sliding | None]:
    if unknown := set(kinds) - {FULL, SLIDING, CHUNKED}:
        raise config.refusal("layer_types", f"unknown '{min(unknown)}'; write the model as YAML instead")
    windows: dict[str, Sliding] = {}
    if SLIDING in kinds and config.flag("use_sliding_window", True) and config.get("sliding_window") is not None:
        windows[SLIDING] = Sliding(config.count("sliding_window"))
    if CHUNKED in kinds:
        windows[CHUNKED] = Sliding(config.count("attention_chunk_size"), chunked=True)
    return [windows.get(kind) for kind in kinds]


def _attends(slides: Callable[[Config], Which] | None = None, **traits: Any) -> Reader:
    """Return a reader of attention whose windows follow a rule; a trait that is a name of a field is read there."""

    def read(config: Config) -> Parts:
        return _attention(config, _kinds_of(config, slides(config)) if slides else None, **_flags(config, traits))

    return read


def _by_kind(
    readers: Mapping[str, Reader], special: Callable[[Config], Which] | None = None, kind: str = LINEAR
) -> Reader:
    """Return a reader of layers whose kind says which reader: the table of kinds of one model type."""

    def read(config: Config) -> Parts:
        kinds = _kinds_of(config, special(config), kind) if special else _kinds_of(config)
        if unknown := set(kinds) - set(readers):
            raise config.refusal("layer_types", f"unknown '{min(unknown)}', expected {' or '.join(readers)}")
        made = {one: readers[one](config) for one in dict.fromkeys(kinds)}
        return lambda index: made[kinds[index]](index)

    return read


def _full(**traits: Any) -> Reader:
    """Return a reader of attention without windows, for layers that a table of kinds picks."""
    return lambda config: _attention(config, [FULL] * config.layers, **_flags(config, traits))


def _mla(config: Config, **traits: Any) -> Mla:
    direct = config.get("q_lora_rank") is None
    # Latents have no heads of keys and values, whatever a file says beside.
    for name in ("num_key_value_heads", "head_dim"):
        config.get(name)
    return Mla(
        heads=config.count("num_attention_heads"),
        q_lora_rank=0.0 if direct else config.count("q_lora_rank"),
        kv_lora_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
        direct_query=direct,
        **traits,
    )


def _latents(config: Config) -> Parts:
    """Read latent attention."""
    mla = _mla(config)
    return lambda _: {"mla": mla}


def _gated_latents(config: Config) -> Parts:
    """Read latent attention whose output has a gate: one a head, or of full width."""
    mla = _mla(config)
    width = mla.heads * (mla.v_head_dim if config.flag("mla_use_output_gate") else 1.0)
    mla = replace(mla, gate=width)
    config.derived["gate"] = "heads, or heads x v_head_dim"
    return lambda _: {"mla": mla}


def _indexed_latents(config: Config) -> Parts:
    """Read sparse latent attention; a layer may take the choice of an earlier one's indexer."""
    indexer = Indexer(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))
    config.get("layer_types")
    mla = _mla(config, indexer=indexer)
    shared = replace(mla, indexer=replace(indexer, shared=True))
    types = config.one_a_layer("indexer_types", str)
    return lambda index: {"mla": shared if types and types[index] == "shared" else mla}


def _cross_or_self(config: Config) -> Parts:
    """Read layers of which some attend to an image: Llama 3.2 Vision."""
    layers = config.list_of("cross_attention_layers", int) or []
    plain = _plain_attention(config)
    cross = replace(plain, qk_norm=True, cross=0.0)
    config.derived["cross"] = "tokens of the images of a request"
    return lambda index: {"attention": cross if index in layers else plain}


def _compressed(config: Config) -> Parts:
    """Read the window and the compressed cache of DeepSeek-V4: one key that is the value too."""
    if config.count("num_key_value_heads", default=1.0) != 1:
        raise config.refusal("num_key_value_heads", "compressed attention has one; write the model as YAML instead")
    rates = {"compressed_sparse_attention": 4.0, "heavily_compressed_attention": 128.0}
    if config.get("compress_rates") is not None:
        given = config.inner("compress_rates")
        rates = {name: given.count(name, default=rate) for name, rate in rates.items()}
    ratios = config.list_of("compress_ratios", int)
    kinds: list[str]
    if ratios is not None and not config.has("layer_types"):
        by_rate = {0.0: SLIDING, **{rate: name for name, rate in rates.items()}}
        if unknown := {ratio for ratio in ratios if float(ratio) not in by_rate}:
            raise config.refusal("compress_ratios", f"unknown {min(unknown)}, expected one of 0, 4 and 128")
        kinds = [by_rate[float(ratio)] for ratio in ratios][: config.layers]
    elif config.has("layer_types"):
        kinds = config.one_a_layer("layer_types", str) or []
    else:
        heavy, sparse = "heavily_compressed_attention", "compressed_sparse_attention"
        kinds = [heavy if index < 2 or index % 2 == 0 else sparse for index in range(config.layers)]
    if len(kinds) != config.layers:
        raise config.refusal("compress_ratios", f"{len(kinds)} entries for {config.layers} layers")
    if unknown_kinds := set(kinds) - {SLIDING, *rates}:
        raise config.refusal("layer_types", f"unknown '{min(unknown_kinds)}'; write the model as YAML instead")
    plain = CompressedAttention(
        heads=config.count("num_attention_heads"),
        head_dim=config.count("head_dim"),
        rope_dim=config.count("qk_rope_head_dim", default=config.count("head_dim") / 8),
        q_lora_rank=config.count("q_lora_rank"),
        output_groups=config.count("o_groups"),
        output_rank=config.count("o_lora_rank"),
        window=config.count("sliding_window"),
    )
    config.derived["ratio"] = "compress_ratios or layer_types"
    indexer = Indexer(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))
    made = {
        SLIDING: plain,
        "compressed_sparse_attention": replace(plain, ratio=rates["compressed_sparse_attention"], indexer=indexer),
        "heavily_compressed_attention": replace(plain, ratio=rates["heavily_compressed_attention"]),
    }
    return lambda index: {"compressed": made[kinds[index]]}


def _block_sparse(config: Config) -> Parts:
    """Read attention to blocks that an indexer of each group picks: MiniMax-M3."""
    plain = _plain_attention(config, qk_norm=config.flag("use_qk_norm", True))
    block: dict[str, str] = {
        "heads": "index_n_heads",
        "dim": "index_head_dim",
        "top": "index_topk_blocks",
        "size": "index_block_size",
    }
    source, flags = config, None
    if config.get("sparse_attention_config") is not None:
        source = config.inner("sparse_attention_config")
        block = {
            "heads": "sparse_num_index_heads",
            "dim": "sparse_index_dim",
            "top": "sparse_topk_blocks",
            "size": "sparse_block_size",
        }
        flags = source.list_of("sparse_attention_freq", int)
    sizes = {key: source.count(name) for key, name in block.items()}
    config.derived["top_k"] = "blocks picked x tokens of a block"
    sparse = replace(plain, indexer=Indexer(sizes["heads"], sizes["dim"], sizes["top"] * sizes["size"]))
    kinds = _kinds_of(config)
    picks = [bool(flag) for flag in flags] if flags else [kind == "sparse" for kind in kinds]
    if len(picks) != config.layers:
        raise config.refusal(
            "sparse_attention_config.sparse_attention_freq", f"{len(picks)} entries for {config.layers} layers"
        )
    return lambda index: {"attention": sparse if picks[index] else plain}


def _wide_keys(config: Config) -> Parts:
    """Read attention whose keys and values differ in width, and in heads where it has a window: MiMo-V2."""
    value = config.count("v_head_dim")
    plain = _plain_attention(config, value_dim=value, output_bias=False)
    windowed = replace(
        plain,
        heads=config.count("swa_num_attention_heads", default=plain.heads),
        kv_heads=config.count("swa_num_key_value_heads", default=2 * plain.kv_heads),
        head_dim=config.count("swa_head_dim", default=plain.head_dim),
        value_dim=config.count("swa_v_head_dim", default=value),
        sinks=config.flag("add_swa_attention_sink_bias", True),
        sliding=Sliding(config.count("sliding_window")),
    )
    plain = replace(plain, sinks=config.flag("add_full_attention_sink_bias"))
    pattern = config.one_a_layer("hybrid_layer_pattern", int)
    kinds = [SLIDING if flag else FULL for flag in pattern] if pattern else _kinds_of(config)
    return lambda index: {"attention": windowed if kinds[index] == SLIDING else plain}


def _gemma4_attention(config: Config) -> Parts:
    """Read Gemma 3n's and 4's attention: wider heads where it is full, and layers that share an earlier cache."""
    plain = _plain_attention(config, qk_norm=True)
    kinds = _kinds_of(config, _all_but_every(6.0)(config))
    windows = _windows(config, kinds)
    equal = config.flag("attention_k_eq_v")
    wide = replace(
        plain,
        head_dim=config.count("global_head_dim", default=plain.head_dim),
        kv_heads=config.count("num_global_key_value_heads", default=plain.kv_heads) if equal else plain.kv_heads,
        keys_are_values=equal,
    )
    first = config.layers - config.count("num_kv_shared_layers", default=0.0, least=0)

    def part(index: int) -> Part:
        one = wide if kinds[index] == FULL else plain
        return {"attention": replace(one, sliding=windows[index], shares_cache=index >= first)}

    return part


def _step_attention(config: Config) -> Parts:
    """Read the attention of Step-3.7 and Laguna: heads that differ by layer, and a gate a head or a channel."""
    by_head = config.get("gating") in (None, True, "per-head")
    plain = _plain_attention(config, qk_norm=True, head_gate=by_head, gated=not by_head)
    kinds, other = _kinds_of(config), plain.heads
    each = config.one_a_layer("num_attention_heads_per_layer", int)
    if each:
        windows = _windows(config, kinds)
        return lambda index: {"attention": replace(plain, heads=float(each[index]), sliding=windows[index])}
    if config.get("attention_other_setting") is not None:
        other = config.inner("attention_other_setting").count("num_attention_heads", default=other)
    windowed = replace(plain, heads=config.count("num_sliding_attention_heads", default=other))
    windows = _windows(config, kinds)
    return lambda index: {"attention": replace(windowed if windows[index] else plain, sliding=windows[index])}


# --- mixers with a state -----------------------------------------------------------------------------------------


def _delta_rule(config: Config) -> Parts:
    """Read the gated delta rule of Qwen3-Next and Qwen3.5."""
    linear = LinearAttention(
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_head_dim=config.count("linear_key_head_dim"),
        value_head_dim=config.count("linear_value_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim"),
    )
    return lambda _: {"linear": linear}


def _by_channel(config: Config) -> Parts:
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


def _short_convolution(config: Config) -> Parts:
    """Read a gated convolution over the last few tokens: LFM2."""
    hidden, taps = config.count("hidden_size"), config.count("conv_L_cache")
    bias = 5.0 * float(config.flag("conv_bias"))
    recurrent = Recurrent(hidden * (4 * hidden + taps + bias), hidden * (taps - 1), hidden)
    return lambda _: {"recurrent": recurrent}


def _lightning(config: Config) -> Parts:
    """Read lightning attention: MiniMax-Text-01."""
    heads = config.count("num_attention_heads")
    width = _head_dim(config, heads)
    hidden, inner = config.count("hidden_size"), heads * width
    recurrent = Recurrent(5 * hidden * inner + inner, inner * width, heads)
    return lambda _: {"recurrent": recurrent}


def _mamba2(names: Mapping[str, str]) -> Reader:
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


_BAMBA = {
    "heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "expand": "mamba_expand",
    "groups": "mamba_n_groups",
    "state": "mamba_d_state",
    "conv": "mamba_d_conv",
}
_NEMOTRON_H = {
    "heads": "mamba_num_heads",
    "head_dim": "mamba_head_dim",
    "expand": "expand",
    "groups": "n_groups",
    "state": "ssm_state_size",
    "conv": "conv_kernel",
}
_MAMBA2 = {**_NEMOTRON_H, "heads": "num_heads", "head_dim": "head_dim", "state": "state_size"}
_ZAMBA2 = {**_BAMBA, "heads": "n_mamba_heads", "head_dim": "mamba_headdim", "groups": "mamba_ngroups"}


def _mamba1(config: Config) -> Parts:
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


def _plain_mamba1(config: Config) -> Parts:
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


# --- blocks ------------------------------------------------------------------------------------------------------


def _mlp(config: Config, width: str = "intermediate_size", matrices: float = 3.0) -> Parts:
    """Read a feed-forward block, whose width may differ from layer to layer."""
    written = config.get(width)
    if isinstance(written, list):
        given = config.one_a_layer(width, int) or []
        return lambda index: {"mlp": Mlp(float(given[index]), matrices)}
    if written is None and width == "intermediate_size" and matrices == 2.0:
        config.derived["intermediate"] = "4 x hidden_size"
        return lambda _: {"mlp": Mlp(4 * config.count("hidden_size"), matrices)}
    return lambda _: {"mlp": Mlp(config.count(width), matrices)}


def _two(config: Config) -> Parts:
    return _mlp(config, matrices=2.0)


def _moe(
    config: Config,
    width: str = "moe_intermediate_size",
    shared: float = 0.0,
    experts: str = "num_experts",
    **traits: Any,
) -> Parts:
    """Read a block of experts; ``experts`` is what the type calls their number."""
    held, met = config.count(experts), config.count("num_experts_per_tok")
    zero = traits.get("zero_experts") or 0.0
    if met > held + zero:
        raise config.refusal(config.named("num_experts_per_tok"), f"{met:g} of only {held:g} {config.named(experts)}")
    if config.get("topk_group") and config.count("n_group", default=1.0) > 1:
        # Groups of experts are laid on nodes of their own.
        traits["node_limit"] = config.count("topk_group")
    found = Moe(held, met, config.count(width), shared, **traits)
    return lambda _: {"moe": found}


def _either(first: Which, then: Parts, otherwise: Parts) -> Parts:
    """Return one part where a rule says so, else the other."""
    return lambda index: then(index) if first(index) else otherwise(index)


def _experts(width: str = "moe_intermediate_size", **traits: Any) -> Reader:
    """Return a reader of experts in every layer; a trait that is a name of a field is read there."""
    return lambda config: _moe(config, width, shared=_shared(config), **_flags(config, traits))


def _flags(config: Config, traits: Mapping[str, Any]) -> dict[str, Any]:
    return {key: config.flag(*value) if isinstance(value, tuple) else value for key, value in traits.items()}


def _shared(config: Config, width: str = "moe_intermediate_size") -> float:
    """Return the width of the experts that _every token meets: said outright, or so many of the others' width."""
    several = config.count("n_shared_experts", default=0.0, least=0)
    if config.get("shared_intermediate_size") is not None:
        return config.count("shared_intermediate_size", least=0)
    if several == 0:
        return 0.0
    config.derived["shared"] = f"{config.named('n_shared_experts')} x {config.named(width)}"
    return several * config.count(width)


def _after(dense: str = "intermediate_size", width_of: str = "moe_intermediate_size", **traits: Any) -> Reader:
    """Return a reader of experts behind some dense layers."""

    def read(config: Config) -> Parts:
        sparse = _after_dense(config)
        width = width_of if not config.has("moe_intermediate_size") else "moe_intermediate_size"
        block = _moe(config, width, shared=_shared(config, width), **_flags(config, traits))
        if all(sparse(index) for index in range(config.layers)):
            config.get(dense)
            return block
        return _either(sparse, block, _mlp(config, dense))

    return read


def _deepseek_block(config: Config) -> Parts:
    config.count("first_k_dense_replace", least=0)
    return _after(router_bias=config.get("topk_method") == "noaux_tc")(config)


def _qwen_block(config: Config) -> Parts:
    shared = config.count("shared_expert_intermediate_size", default=0.0, least=0)
    block = _moe(config, shared=shared, shared_gate=shared > 0)
    sparse = _last_of_every(config.count("decoder_sparse_step", default=1.0))
    dense = config.list_of("mlp_only_layers", int) or []
    first = _sparse_layers(config, lambda index: sparse(index) and index not in dense)
    if all(first(index) for index in range(config.layers)):
        config.get("intermediate_size")
        return block
    return _either(first, block, _mlp(config))


def _qwen_block_without_gate(config: Config) -> Parts:
    """Read Laguna's block: one shared expert of a width of its own."""
    sparse = _after_dense(config)
    shared = config.count("shared_expert_intermediate_size", default=0.0, least=0)
    block = _moe(config, shared=shared, router_bias=True)
    return _either(sparse, block, _mlp(config))


def _gemma4_block(config: Config) -> Parts:
    """Read Gemma 4's block: experts beside an MLP, or an MLP that is twice as wide where the cache is shared."""
    if config.flag("enable_moe_block"):
        config.experts_apart = True
        beside = config.count("intermediate_size")
        config.derived["shared"] = "intermediate_size"
        return _moe(config, shared=beside)
    first = config.layers - config.count("num_kv_shared_layers", default=0.0, least=0)
    plain = _mlp(config)
    if not config.flag("use_double_wide_mlp"):
        return plain

    def part(index: int) -> Part:
        found = plain(index)["mlp"]
        return {"mlp": replace(found, intermediate=2 * found.intermediate) if index >= first else found}

    return part


def _lfm2_width(config: Config) -> float:
    width = config.count("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    factor = config.get("block_ffn_dim_multiplier")
    if factor is not None:
        of = config.count("block_multiple_of", default=256.0)
        width = of * (-(-int(float(factor) * width) // of))
    config.derived["intermediate"] = "intermediate_size adjusted as block_auto_adjust_ff_dim says"
    return float(width)


def _lfm2_block(config: Config) -> Parts:
    width = _lfm2_width(config)
    return lambda _: {"mlp": Mlp(width)}


def _lfm2_moe_block(config: Config) -> Parts:
    first = config.count("num_dense_layers", default=2.0, least=0)
    block = _moe(config, router_bias=config.flag("use_expert_bias", True))
    return _either(lambda index: index >= first, block, _mlp(config))


def _nemotron_experts(config: Config) -> Parts:
    latent = config.count("moe_latent_size") if config.get("moe_latent_size") is not None else None
    shared = config.count("n_shared_experts", default=1.0, least=0)
    shared *= config.count("moe_shared_expert_intermediate_size", least=0)
    return _moe(config, shared=shared, router_bias=True, matrices=2.0, latent=latent)


def _kimi_block(config: Config) -> Parts:
    """Read Kimi's block; Kimi-K3 has experts of a latent width."""
    latent = None
    if config.get("routed_expert_hidden_size") is not None:
        latent = config.count("routed_expert_hidden_size")
    return _after(router_bias=True, latent=latent)(config)


def _granite_hybrid_block(config: Config) -> Parts:
    shared = config.count("shared_intermediate_size", default=1024.0, least=0)
    if config.count("num_experts", default=0.0, least=0) == 0:
        return lambda _: {"mlp": Mlp(shared)}
    return _moe(config, "intermediate_size", shared=shared)


def _ernie_block(config: Config) -> Parts:
    start, step = (
        config.count("moe_layer_start_index", default=0.0, least=0),
        config.count("moe_layer_interval", default=1.0),
    )
    end = config.get("moe_layer_end_index")
    last = config.layers - 1 if end in (None, -1) else int(config.count("moe_layer_end_index", least=0))
    block = _moe(config, shared=_shared(config), router_bias=True)
    return _either(lambda index: start <= index <= last and (index + 1) % step == 0, block, _mlp(config))


def _hunyuan_block(config: Config) -> Parts:
    """Read Hunyuan's experts, whose sizes may be lists with one entry a layer."""

    def first(name: str, default: float | None = None) -> float:
        value = config.get(name)
        if isinstance(value, list) and value:
            if len(set(value)) > 1:
                raise config.refusal(config.named(name), "layers of several widths are not modelled")
            value = value[0]
        if value is None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise config.refusal(config.named(name), f"expected a whole number, found {shown(value)}")
        return float(value)

    experts = first("num_experts", 1.0)
    if experts <= 1:
        return _mlp(config)
    width = first("moe_intermediate_size", first("intermediate_size"))
    shared = first("n_shared_experts", 1.0) * width if config.flag("use_mixed_mlp_moe", True) else 0.0
    config.derived["shared"] = "shared experts x their width"
    found = Moe(experts, first("num_experts_per_tok", 1.0), width, shared)
    skip = config.count("moe_layer_num_skipped", default=0.0, least=0)
    return _either(lambda index: index >= skip, lambda _: {"moe": found}, _mlp(config))


def _afmoe_block(config: Config) -> Parts:
    first = config.count("num_dense_layers", default=1.0, least=0)
    block = _moe(config, shared=_shared(config), router_bias=True)
    return _either(lambda index: index >= first, block, _mlp(config))


def _jamba_block(config: Config) -> Parts:
    block = _mlp(config)
    if config.count("num_experts") > 1:
        block = _either(_periodic(config, "expert_layer"), _moe(config, "intermediate_size"), block)
    return block


def _llama4_block(config: Config) -> Parts:
    block = _moe(config, "intermediate_size", shared=config.count("intermediate_size"))
    step = _last_of_every(config.count("interleave_moe_layer_step", default=1.0))
    routed = config.list_of("moe_layers", int)
    which: Which = step if routed is None else lambda index: index in routed
    if all(which(index) for index in range(config.layers)):
        config.get("intermediate_size_mlp")
        return block
    return _either(which, block, _mlp(config, "intermediate_size_mlp"))


def _llama4_attention(config: Config) -> Parts:
    full = _last_of_every(config.count("no_rope_layer_interval", default=4.0))
    rope = config.one_a_layer("no_rope_layers", int) or [not full(index) for index in range(config.layers)]
    chunks = config.get("attention_chunk_size") is not None
    kinds = _kinds_of(config, lambda index: chunks and bool(rope[index]), CHUNKED)
    # The queries and keys are normalised without weights.
    return _attention(config, kinds)


# --- beside ------------------------------------------------------------------------------------------------------


def _plus(weights: float = 0.0, scales: float = 0.0) -> Part:
    return {"beside": Beside(weights, scales)} if weights or scales else {}


def _biases(config: Config) -> Parts:
    """Count the biases of an MLP of two matrices."""
    config.get("use_bias")
    return lambda _: _plus(
        scales=config.count("intermediate_size", default=4 * config.count("hidden_size")) + config.count("hidden_size")
    )


def _layer_inputs(config: Config) -> Parts:
    """Read Gemma's inputs of each layer: a table, a projection, and what runs in the layer."""
    width = config.count("hidden_size_per_layer_input", default=0.0, least=0)
    hidden, experts = config.count("hidden_size"), config.flag("enable_moe_block")
    scales = 0.0
    if experts:
        scales += 3 * hidden + hidden + config.count("num_experts")
    config.get("vocab_size_per_layer_input")
    if not width:
        return lambda _: _plus(scales=scales)
    words = config.count("vocab_size_per_layer_input", default=config.count("vocab_size"))
    config.tables += words * width * config.layers + width
    # The projection of the token to the inputs of all layers is counted with each layer.
    return lambda _: _plus(3 * hidden * width, scales + hidden)


def _gemma3n_beside(config: Config) -> Parts:
    """Read what Gemma 3n adds: inputs of each layer, low-rank residuals and several streams."""
    inputs = _layer_inputs(config)
    hidden, streams = config.count("hidden_size"), config.count("altup_num_inputs")
    rank = config.count("laurel_rank")
    config.tables += 2 * (streams - 1) * hidden * hidden

    def part(index: int) -> Part:
        found = inputs(index)["beside"]
        weights = found.weights + 2 * hidden * rank + hidden * streams
        return _plus(weights, found.scales + 3 * hidden + streams**2 + streams**3)

    return part


def _hyper_connections(config: Config) -> Parts:
    """Read DeepSeek-V4's residual streams: two mixings of all streams a layer, and one before the head."""
    hidden, streams = config.count("hidden_size"), config.count("hc_mult")
    mixes = (2 + streams) * streams
    config.tables += streams * streams * hidden + streams + 1
    return lambda _: _plus(2 * mixes * streams * hidden, 2 * (mixes + 3))


def _residual_blocks(config: Config) -> Parts:
    """Read Kimi-K3's attention over earlier residuals, and the scale of its latent experts."""
    hidden, latent = config.count("hidden_size"), config.get("routed_expert_hidden_size") or 0
    scales = 4 * hidden if config.get("attn_res_block_size") is not None else 0.0
    return lambda index: _plus(scales=scales + (float(latent) if config.flag("latent_moe_use_norm") else 0.0))


# --- layers that are not one mixer and one block --------------------------------------------------------------------


#: Letters of ``hybrid_override_pattern``, and the words that newer files have in their place.
_NEMOTRON = {"M": LINEAR, "mamba": LINEAR, "*": FULL, "attention": FULL, "-": "mlp", "E": "moe"}


def _nemotron_h(config: Config) -> list[Layers]:
    name = "hybrid_override_pattern" if config.get("hybrid_override_pattern") else "layers_block_type"
    given = config.get(name)
    written = list(given) if isinstance(given, str) else config.list_of(name, str) or []
    kinds = [_NEMOTRON.get(kind, kind) for kind in written]
    unknown = set(kinds) - set(_NEMOTRON.values())
    if unknown or not kinds:
        found = f"unknown '{min(unknown)}'" if unknown else "required field is missing"
        raise config.refusal(name, f"{found}; expected M, -, * or E for each layer")
    config.fields.setdefault("num_hidden_layers", len(kinds))
    if len(kinds) != config.layers:
        raise config.refusal(name, f"{len(kinds)} entries for {config.layers} num_hidden_layers")
    parts: dict[str, Callable[[], Parts]] = {
        LINEAR: lambda: _mamba2(_NEMOTRON_H)(config),
        FULL: lambda: _attention(config, [FULL]),
        "mlp": lambda: _mlp(config, matrices=2.0),
        "moe": lambda: _nemotron_experts(config),
    }
    config.get("intermediate_size")
    made = {kind: Layers(1.0, 1.0, **parts[kind]()(0)) for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def _searched(config: Config) -> list[Layers]:
    """Read layers that a search left: each says its own heads and widths, or has nothing (Nemotron-NAS)."""
    blocks = config.list_of("block_configs", dict)
    if not blocks or len(blocks) != config.layers:
        raise config.refusal("block_configs", f"{len(blocks or [])} entries for {config.layers} layers")
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    found = []
    for index, block in enumerate(blocks):
        one = Config(config.path, block, f"{config.where}block_configs.{index}.")
        mixer, feed = one.inner("attention"), one.inner("ffn")
        parts: Part = {}
        if mixer.flag("replace_with_linear"):
            parts["beside"] = Beside(weights=hidden * hidden)
        elif not mixer.flag("no_op"):
            group = mixer.count("n_heads_in_group", default=float(heads / (mixer.get("num_key_value_heads") or heads)))
            parts["attention"] = Attention(heads, heads / group, _head_dim(config, heads))
        if feed.flag("replace_with_linear"):
            known = parts.get("beside", Beside())
            parts["beside"] = replace(known, weights=known.weights + hidden * hidden)
        elif not feed.flag("no_op"):
            parts["mlp"] = Mlp(_searched_width(feed, hidden))
        norms = 2.0 - float(mixer.flag("no_op")) - float(feed.flag("no_op"))
        if parts:
            found.append(Layers(1.0, norms, **parts))
    config.derived["kv_heads"] = "num_attention_heads / n_heads_in_group"
    config.derived["intermediate"] = "ffn_mult of each layer"
    return found


def _searched_width(feed: Config, hidden: float) -> float:
    if feed.get("intermediate_size") is not None:
        return feed.count("intermediate_size")
    factor = feed.get("ffn_mult")
    if not isinstance(factor, int | float) or isinstance(factor, bool) or not factor > 0:
        raise feed.refusal("ffn_mult", f"expected a number above 0, found {shown(factor)}")
    return 256.0 * (-(-int(2 * factor * hidden / 3) // 256))


def _without_norm(config: Config, mamba: Mamba2) -> Parts:
    """Return a state-space mixer without the normalisation of its output."""
    hidden, inner = config.count("hidden_size"), float(mamba.heads) * float(mamba.head_dim)
    mixed, taps = inner + 2 * float(mamba.groups) * float(mamba.state), float(mamba.conv_kernel)
    weights = hidden * (2 * inner + mixed + float(mamba.heads)) + mixed * (taps + 1) + 3 * float(mamba.heads)
    recurrent = Recurrent(weights, inner * float(mamba.state) + mixed * (taps - 1), mamba.heads)
    return lambda _: {"recurrent": recurrent}


def _parallel_mixers(config: Config) -> list[Layers]:
    """Read Falcon-H1: attention beside a state-space mixer, then an MLP; each is a run of its own here."""
    heads = config.get("mamba_d_ssm")
    mixer, state = _attention(config, [FULL] * config.layers), _mamba2(_BAMBA)(config)
    block, found = _mlp(config), []
    if heads is not None:
        config.count("mamba_d_ssm")
    if not config.flag("mamba_rms_norm"):
        state = _without_norm(config, state(0)["mamba2"])
    for index in range(config.layers):
        found.append(Layers(1.0, 1.0, **mixer(index)))
        found.append(Layers(1.0, 1.0, **state(index), **block(index)))
    config.note("attention and state-space mixer of a layer run side by side: they are read as two layers")
    return found


def _shortcut_experts(config: Config) -> list[Layers]:
    """Read LongCat: two latent attentions and two MLPs a layer, with experts beside the second."""
    mixer, dense = _latents(config), config.count("intermediate_size")
    zero = config.count("zero_expert_num", default=0.0, least=0) or None
    experts = _moe(config, shared=dense, router_bias=config.flag("router_bias"), zero_experts=zero)
    config.derived["shared"] = "ffn_hidden_size"
    found = []
    for index in range(config.layers):
        found.append(Layers(1.0, 2.0, **mixer(index), mlp=Mlp(dense)))
        found.append(Layers(1.0, 2.0, **mixer(index), **experts(index)))
    config.note("a layer has two attentions and two blocks: it is read as two layers")
    return found


def _shared_blocks(config: Config) -> list[Layers]:
    """Read Zamba2: state-space layers, and few transformer blocks that many layers share."""
    kinds = config.one_a_layer("layers_block_type", str) or []
    if config.flag("use_shared_attention_adapter"):
        raise config.refusal("use_shared_attention_adapter", "adapters of shared attention are not modelled")
    state, hidden = _mamba2(_ZAMBA2)(config), config.count("hidden_size")
    heads = config.count("num_attention_heads")
    wide = config.count("attention_hidden_size", default=2 * hidden)
    width = config.count("attention_head_dim", default=wide / heads)
    kv_heads = config.count("num_key_value_heads", default=heads)
    block, rank = _mlp(config), config.count("adapter_rank", default=128.0)
    shared = config.count("num_mem_blocks", default=1.0)
    uses = sum(kind == "hybrid" for kind in kinds)
    if not uses:
        raise config.refusal("layers_block_type", "no layer is hybrid; write the model as YAML instead")
    extra = (wide - hidden) * (heads + 2 * kv_heads) * width
    found = []
    for index, kind in enumerate(kinds):
        if kind == "hybrid":
            mixer = Attention(heads, kv_heads, width)
            found.append(Layers(1.0, 1.0, attention=mixer, **block(index), **_plus(extra, wide), own=shared / uses))
            inner = 2 * block(index)["mlp"].intermediate
            found.append(Layers(1.0, 0.0, beside=Beside(weights=hidden * hidden + rank * (hidden + inner))))
        found.append(Layers(1.0, 1.0, **state(index)))
    config.note(f"{uses} layers run {shared:g} shared blocks: their weights are held once")
    return found


# --- the table ---------------------------------------------------------------------------------------------------


def _one_key(config: Config) -> Parts:
    """Read attention whose heads share one key and one value: GPT-BigCode."""
    plain = _plain_attention(config, qkv_bias=True, output_bias=True)
    one = replace(plain, kv_heads=1.0 if config.flag("multi_query", True) else plain.heads)
    config.derived["kv_heads"] = "multi_query"
    return lambda _: {"attention": one}


def _falcon_attention(config: Config) -> Parts:
    """Read Falcon's attention: one key for all heads, unless the newer form says how many."""
    heads, bias = config.count("num_attention_heads"), config.flag("bias")
    kv_heads = heads
    if config.flag("new_decoder_architecture"):
        kv_heads = config.count("num_kv_heads", default=heads)
    elif config.flag("multi_query", True):
        kv_heads = 1.0
    config.derived["kv_heads"] = "new_decoder_architecture, multi_query"
    plain = Attention(heads, kv_heads, _head_dim(config, heads), qkv_bias=bias, output_bias=bias)
    return lambda _: {"attention": plain}


def _falcon_norms(config: Config) -> Parts:
    """Count the second normalisation that some of Falcon's layers have."""
    newer, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn", True)
    several = config.get("num_ln_in_parallel_attn")
    two = several == 2 or (newer and several is None) or not (newer or parallel)
    bias = config.count("intermediate_size", default=4 * config.count("hidden_size")) + config.count("hidden_size")
    scales = 2 * config.count("hidden_size") * float(two) + bias * float(config.flag("bias"))
    return lambda _: _plus(scales=scales)


def _mllama_words(config: Config) -> Parts:
    """Count the eight words of images, the scales of cross-attention, and its gates."""
    layers = config.list_of("cross_attention_layers", int) or []
    config.tables += 8 * config.count("hidden_size")
    return lambda index: _plus(scales=2.0) if index in layers else {}


def _encoder(types: float, pooler: bool = True, buckets: str = "") -> Form:
    """Return the form of a BERT: biases everywhere, learned positions, words of types, a pooler."""

    def beside(config: Config) -> Parts:
        hidden = config.count("hidden_size")
        config.tables += config.count("type_vocab_size", default=types, least=0) * hidden if types else 0.0
        config.tables += (hidden + 1) * hidden if pooler else 0.0
        if buckets:
            config.tables += config.count(buckets, default=32.0) * config.count("num_attention_heads")
        return _biases(config)

    mixer = _attends(causal=False, qkv_bias=True, output_bias=True)
    return Form(mixer, _two, 4.0, {"max_position_embeddings": 512}, beside, final_norm=2.0, positions=0.0, pools=True)


def _type_words(config: Config) -> Parts:
    """Count the words of types."""
    config.tables += config.count("type_vocab_size", default=2.0, least=0) * config.count("hidden_size")
    return lambda _: {}


def _modern_windows(config: Config) -> Parts:
    """Read ModernBERT's attention: full in one of three layers, else within a window around each token."""
    plain = _plain_attention(config, causal=False)
    step = config.count("global_attn_every_n_layers", default=3.0)
    kinds = _kinds_of(config, lambda index: index % step != 0)
    window = Sliding(config.count("local_attention", default=128.0) + 1)
    config.derived["window"] = "local_attention + 1"
    return lambda index: {"attention": replace(plain, sliding=window if kinds[index] == SLIDING else None)}


def _first_norm_missing(config: Config) -> Parts:
    """Say that ModernBERT's first layer has one normalisation only."""
    return lambda index: {} if index else {"norms": 1.0}


_PLAIN = _attends()
#: Longest context of a model that has no positions [tokens].
_ENDLESS = 2**20


@dataclass(frozen=True)
class Form:
    """How a model type reads, and what its configuration class says where a file is silent.

    Either ``layers`` reads all, or ``mixer``, ``block`` and what is ``beside`` them are read for each layer.
    """

    mixer: Reader | None = None
    block: Reader | None = None
    norms: float = 2.0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    beside: Reader | None = None
    layers: Callable[[Config], list[Layers]] | None = None
    final_norm: float = 1.0
    positions: float | None = None
    head_bias: bool = False
    pools: bool = False
    endless: bool = False

    def read(self, config: Config) -> list[Layers]:
        """Return the layers that a configuration describes, one after the other.

        Parameters
        ----------
        config : Config

        Returns
        -------
        list of Layers
        """
        if self.endless and not config.has("max_position_embeddings"):
            config.note(f"the file sets no longest context: taken as {_ENDLESS:,} tokens")
            config.fields["max_position_embeddings"] = _ENDLESS
        hidden = config.count("hidden_size")
        config.tables += (self.final_norm - 1) * hidden
        if self.positions is not None:
            config.tables += (config.count("max_position_embeddings") + self.positions) * hidden
        if self.head_bias:
            config.tables += config.count("vocab_size")
        if self.layers is not None:
            return self.layers(config)
        parts = [(self.mixer or _PLAIN)(config), (self.block or _mlp)(config)]
        if self.beside is not None:
            parts.append(self.beside(config))
        return [
            Layers(1.0, **{"norms": self.norms, **{key: value for part in parts for key, value in part(index).items()}})
            for index in range(config.layers)
        ]


_TIED = {"tie_word_embeddings": True}
_NO_WINDOW = {"use_sliding_window": False, "sliding_window": 4096}
_GEMMA3 = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
_NOAUX = {"topk_method": "noaux_tc"}
_QWEN_HYBRID = _by_kind(
    {FULL: _full(qk_norm=True, gated=("attn_output_gate", True)), LINEAR: _delta_rule},
    _all_but_every(4.0, "full_attention_interval"),
)


def _kimi_kinds(config: Config) -> Parts:
    """Read which layers of Kimi-Linear are latent attention: by a list of kinds, or by numbers from 1."""
    nested = config.get("linear_attn_config")
    full = _gated_latents(config) if config.flag("mla_use_output_gate") else _latents(config)
    delta = _by_channel(config)
    if isinstance(nested, dict) and not config.has("layer_types"):
        listed = config.inner("linear_attn_config").list_of("full_attn_layers", int) or []
        return _either(lambda index: index + 1 in listed, full, delta)
    kinds = _kinds_of(config)
    return _either(lambda index: kinds[index] == FULL, full, delta)


def _bailing_kinds(config: Config) -> Parts:
    """Read which layers of Ling are latent attention: by a list, or the last of each group and those behind them."""
    full, delta, group = _gated_latents(config), _by_channel(config), config.count("layer_group_size", default=6.0)
    if config.has("layer_types"):
        kinds = _kinds_of(config)
        return _either(lambda index: kinds[index] == FULL, full, delta)
    whole = config.layers // group * group
    return _either(lambda index: (index + 1) % group == 0 or index >= whole, full, delta)


def _lfm2_kinds(config: Config) -> list[str]:
    """Return the kinds of LFM2's layers: by a list, or by the numbers of those with attention."""
    if config.has("layer_types"):
        return _kinds_of(config)
    listed = config.list_of("full_attn_idxs", int)
    if listed is None:
        raise config.refusal("full_attn_idxs", "required field is missing, as is layer_types")
    return [FULL if index in listed else CONV for index in range(config.layers)]


def _lfm2_mixer(config: Config) -> Parts:
    kinds = _lfm2_kinds(config)
    if unknown := set(kinds) - {FULL, CONV}:
        raise config.refusal("layer_types", f"unknown '{min(unknown)}', expected {FULL} or {CONV}")
    full, short = _attention(config, [FULL] * config.layers, qk_norm=True), _short_convolution(config)
    return _either(lambda index: kinds[index] == FULL, full, short)


def _bamba_mixer(config: Config) -> Parts:
    """Read which of Bamba's layers are attention: by a list of kinds, or by their numbers."""
    full, state = _attention(config, [FULL] * config.layers), _mamba2(_BAMBA)(config)
    if config.has("layer_types"):
        kinds = _kinds_of(config)
        return _either(lambda index: kinds[index] == FULL, full, state)
    listed = config.list_of("attn_layer_indices", int) or []
    return _either(lambda index: index in listed, full, state)


def _minimax_mixer(config: Config) -> Parts:
    """Read which of MiniMax-01's layers are lightning attention: by a list of kinds or of switches."""
    full, lightning = _attention(config, [FULL] * config.layers), _lightning(config)
    if config.has("layer_types"):
        kinds = _kinds_of(config)
    elif (flags := config.one_a_layer("attn_type_list", int)) is not None:
        kinds = [FULL if flag else LINEAR for flag in flags]
    else:
        kinds = [FULL if index % 2 else LINEAR for index in range(config.layers)]
    return _either(lambda index: kinds[index] == FULL, full, lightning)


def _jamba_mixer(config: Config) -> Parts:
    full, state = _attention(config, [FULL] * config.layers), _mamba1(config)
    return _either(_periodic(config, "attn_layer"), full, state)


def _qwen2_moe_mixer(config: Config) -> Parts:
    upper = _upper(config)
    kinds = _kinds_of(config, lambda index: index % 2 == 0 and not upper(index))
    return _attention(config, kinds, qkv_bias=config.flag("qkv_bias", True))


def _cohere_attention(config: Config) -> Parts:
    """Read Command R's attention, whose normalisations have a scale for each channel of each head."""
    plain = _plain_attention(config)
    return lambda _: {"attention": replace(plain, qk_norm_full=config.flag("use_qk_norm"))}


TYPES: dict[str, Form] = {
    # Dense, grouped-query attention.
    "llama": Form(),
    "phi3": Form(_attends(_always)),
    "mistral": Form(_attends(_always), defaults={"sliding_window": 4096}),
    "ministral": Form(_attends()),
    "ministral3": Form(_attends()),
    "qwen2": Form(_attends(_upper, qkv_bias=True), defaults=_NO_WINDOW),
    "qwen3": Form(_attends(_upper, qk_norm=True), defaults={**_NO_WINDOW, "head_dim": 128}),
    "gemma": Form(defaults={**_TIED, "head_dim": 256}),
    "gemma2": Form(_attends(_alternate), norms=4.0, defaults={**_TIED, "head_dim": 256, "sliding_window": 4096}),
    "vaultgemma": Form(_attends(_alternate), norms=2.0, defaults={**_TIED, "head_dim": 256, "sliding_window": 4096}),
    "gemma3": Form(_attends(_all_but_every(6.0), qk_norm=True), norms=4.0, defaults={**_TIED, **_GEMMA3}),
    "gemma3n": Form(_gemma4_attention, norms=4.0, beside=_gemma3n_beside, defaults={**_TIED, "head_dim": 256}),
    "gemma4": Form(
        _gemma4_attention,
        _gemma4_block,
        norms=4.0,
        beside=_layer_inputs,
        defaults={**_TIED, "head_dim": 256, "global_head_dim": 512},
    ),
    "smollm3": Form(_attends(_upper), defaults={**_TIED, **_NO_WINDOW}),
    "seed_oss": Form(_attends(output_bias=("attention_out_bias", False)), defaults={"attention_bias": True}),
    "granite": Form(),
    "helium": Form(),
    "arcee": Form(block=_two),
    "apertus": Form(_attends(qk_norm=True), _two, beside=lambda config: lambda _: _plus(scales=2.0)),
    "nemotron": Form(block=_two, norms=4.0, final_norm=2.0),
    "olmo": Form(norms=0.0),
    "olmo2": Form(_attends(qk_norm_full=True)),
    "olmo3": Form(_attends(_all_but_every(4.0), qk_norm_full=True)),
    "cohere": Form(_cohere_attention, norms=1.0, defaults=_TIED),
    "cohere2": Form(_attends(_all_but_every(4.0)), norms=1.0, defaults={**_TIED, "sliding_window": 4096}),
    "exaone": Form(),
    "exaone4": Form(_attends(_all_but_every(4.0), qk_norm=True)),
    "glm": Form(_attends(output_bias=False), defaults={"attention_bias": True, "head_dim": 128}),
    "glm4": Form(_attends(output_bias=False), norms=4.0, defaults={"attention_bias": True, "head_dim": 128}),
    "ernie4_5": Form(defaults={**_TIED, "head_dim": 128}),
    "hunyuan_v1_dense": Form(_attends(qk_norm=True)),
    "internlm2": Form(),
    "internlm3": Form(),
    "starcoder2": Form(_attends(_always, qkv_bias=True, output_bias=True), _two, 4.0, _TIED, _biases, final_norm=2.0),
    "phi": Form(_attends(qkv_bias=True, output_bias=True), _two, 2.0, {}, _biases, final_norm=2.0, head_bias=True),
    "stablelm": Form(_attends(qkv_bias=("use_qkv_bias", False)), norms=4.0, final_norm=2.0),
    "gpt2": Form(_attends(qkv_bias=True, output_bias=True), _two, 4.0, _TIED, _biases, final_norm=2.0, positions=0.0),
    "gpt_neox": Form(
        _attends(qkv_bias=("attention_bias", True), output_bias=("attention_bias", True)),
        _two,
        4.0,
        {},
        _biases,
        final_norm=2.0,
    ),
    "opt": Form(
        _attends(qkv_bias=("enable_bias", True), output_bias=("enable_bias", True)),
        _two,
        4.0,
        _TIED,
        _biases,
        final_norm=2.0,
        positions=2.0,
    ),
    "gptj": Form(_attends(), _two, 2.0, {}, _biases, final_norm=2.0, head_bias=True),
    "codegen": Form(_attends(), _two, 2.0, {}, _biases, final_norm=2.0, head_bias=True),
    "bloom": Form(_attends(qkv_bias=True, output_bias=True), _two, 4.0, _TIED, _biases, final_norm=4.0, endless=True),
    "gpt_bigcode": Form(_one_key, _two, 4.0, _TIED, _biases, final_norm=2.0, positions=0.0),
    "falcon": Form(_falcon_attention, _two, defaults=_TIED, beside=_falcon_norms, final_norm=2.0),
    "mllama": Form(_cross_or_self, beside=_mllama_words),
    # Encoders: no cache, no head, one pass.
    "bert": _encoder(types=2.0),
    "roberta": _encoder(types=1.0),
    "mpnet": _encoder(types=0.0, pooler=True, buckets="relative_attention_num_buckets"),
    "distilbert": _encoder(types=0.0, pooler=False),
    "nomic_bert": Form(
        _attends(causal=False),
        norms=4.0,
        final_norm=2.0,
        defaults={"type_vocab_size": 2},
        beside=_type_words,
        pools=True,
    ),
    "eurobert": Form(_attends(causal=False), pools=True),
    "modernbert": Form(_modern_windows, beside=_first_norm_missing, final_norm=2.0, pools=True),
    "nemotron-nas": Form(layers=_searched),
    # Latent attention.
    "minicpm3": Form(_latents),
    "youtu": Form(_latents, defaults=_TIED),
    "deepseek_v2": Form(_latents, _deepseek_block),
    "deepseek_v3": Form(_latents, _deepseek_block, defaults=_NOAUX),
    "kimi_k2": Form(_latents, _deepseek_block, defaults=_NOAUX),
    "deepseek_v32": Form(_indexed_latents, _deepseek_block, defaults=_NOAUX),
    "glm_moe_dsa": Form(_indexed_latents, _after(router_bias=True), defaults={"first_k_dense_replace": 3}),
    "glm4_moe_lite": Form(_latents, _after(router_bias=True), defaults={"first_k_dense_replace": 1}),
    "mistral4": Form(_latents, _after(), defaults={}),
    "longcat_flash": Form(layers=_shortcut_experts),
    "deepseek_v4": Form(_compressed, _after(router_bias=True), beside=_hyper_connections),
    # Experts, grouped-query attention.
    "mixtral": Form(_attends(_always), _experts("intermediate_size", experts="num_local_experts")),
    "qwen2_moe": Form(_qwen2_moe_mixer, _qwen_block, defaults=_NO_WINDOW),
    "qwen3_moe": Form(_attends(_always, qk_norm=True), _qwen_block, defaults=_NO_WINDOW),
    "gpt_oss": Form(
        _attends(_alternate, sinks=True),
        _experts("intermediate_size", experts="num_local_experts", router_bias=True, expert_bias=True),
        defaults={"head_dim": 64, "sliding_window": 128, "attention_bias": True},
    ),
    "llama4": Form(_llama4_attention, _llama4_block, defaults={"head_dim": 128, "attention_chunk_size": 8192}),
    "minimax_m2": Form(
        _attends(qk_norm_full=("use_qk_norm", True)),
        _experts("intermediate_size", router_bias=True),
        defaults={"head_dim": 128},
    ),
    "minimax_m3": Form(
        _block_sparse,
        _after("dense_intermediate_size", "intermediate_size", router_bias=True),
        defaults={"head_dim": 128},
    ),
    "glm4_moe": Form(
        _attends(qk_norm=("use_qk_norm", False), output_bias=False),
        _after(router_bias=True),
        defaults={"first_k_dense_replace": 1},
    ),
    "solar_open": Form(_attends(), _after(router_bias=True)),
    "dots1": Form(_attends(qk_norm=True), _deepseek_block, defaults=_NOAUX),
    "mimo_v2": Form(_wide_keys, _after(router_bias=True)),
    "step3p7": Form(
        _step_attention,
        _after(router_bias=("use_moe_router_bias", True)),
        defaults={"first_k_dense_replace": 3, "shared_intermediate_size": 1280},
    ),
    "olmoe": Form(_attends(qk_norm_full=True), _experts("intermediate_size")),
    "flex_olmo": Form(_attends(qk_norm_full=True), _experts("intermediate_size")),
    "phimoe": Form(
        _attends(_always),
        _experts("intermediate_size"),
        4.0,
        final_norm=2.0,
    ),
    "granitemoe": Form(block=_experts("intermediate_size")),
    "granitemoeshared": Form(block=_experts("intermediate_size")),
    "ernie4_5_moe": Form(block=_ernie_block, defaults=_TIED),
    "hunyuan_v1_moe": Form(_attends(qk_norm=True), _hunyuan_block),
    "afmoe": Form(
        _attends(_all_but_every(4.0, "global_attn_every_n_layers"), qk_norm=True, gated=True), _afmoe_block, norms=4.0
    ),
    "exaone_moe": Form(_attends(_all_but_every(4.0), qk_norm=True), _after(router_bias=True)),
    "hy_v3": Form(_attends(qk_norm=True), _after(router_bias=True)),
    "bailing_moe": Form(
        _attends(qkv_bias=("use_qkv_bias", False), output_bias=("use_bias", False), qk_norm=("use_qk_norm", False)),
        _after(router_bias=("moe_router_enable_expert_bias", False)),
    ),
    "axk1": Form(_latents, _after(router_bias=True), norms=3.0, defaults={"first_k_dense_replace": 1}),
    "cohere2_moe": Form(
        _attends(_all_but_every(4.0)),
        _after("prefix_dense_intermediate_size", "intermediate_size"),
        norms=1.0,
        defaults={**_TIED, "sliding_window": 4096},
    ),
    "laguna": Form(_step_attention, _qwen_block_without_gate),
    "mellum": Form(_attends(qk_norm=True), _after()),
    # Mixers with a state.
    "qwen3_next": Form(_QWEN_HYBRID, _qwen_block, defaults={"head_dim": 256}),
    "qwen3_5": Form(_QWEN_HYBRID, defaults={"head_dim": 256}),
    "qwen3_5_moe": Form(_QWEN_HYBRID, _qwen_block, defaults={"head_dim": 256}),
    "kimi_linear": Form(_kimi_kinds, _kimi_block, beside=_residual_blocks),
    "bailing_hybrid": Form(_bailing_kinds, _after(router_bias=True)),
    "lfm2": Form(_lfm2_mixer, _lfm2_block, defaults=_TIED),
    "lfm2_moe": Form(_lfm2_mixer, _lfm2_moe_block, defaults=_TIED),
    "bamba": Form(_bamba_mixer),
    "granitemoehybrid": Form(_by_kind({FULL: _full(), LINEAR: _mamba2(_BAMBA)}), _granite_hybrid_block),
    "jamba": Form(_jamba_mixer, _jamba_block),
    "minimax": Form(_minimax_mixer, _experts("intermediate_size")),
    "nemotron_h": Form(layers=_nemotron_h, defaults={"head_dim": 128}),
    "falcon_h1": Form(layers=_parallel_mixers),
    "zamba2": Form(layers=_shared_blocks, defaults=_TIED),
    "olmo_hybrid": Form(
        _by_kind({FULL: _full(qk_norm_full=True), LINEAR: _delta_rule}, _all_but_every(4.0, "full_attention_interval")),
    ),
    "mamba": Form(_plain_mamba1, lambda config: lambda _: {}, 1.0, _TIED, endless=True),
    "falcon_mamba": Form(_plain_mamba1, lambda config: lambda _: {}, 1.0, _TIED, endless=True),
    "mamba2": Form(_mamba2(_MAMBA2), lambda config: lambda _: {}, 1.0, endless=True),
}
#: Types that read as another.
SAME_AS = {
    "mllama_text_model": "mllama",
    "gemma4_unified": "gemma4",
    "camembert": "roberta",
    "xlm-roberta": "roberta",
    "data2vec": "roberta",
    "sarvam_moe": "glm4_moe",
    "sarvam_mla": "deepseek_v3",
    "aquila": "llama",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_omni_moe": "qwen3_moe",
    "qwen3_omni_moe_thinker": "qwen3_moe",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_omni": "qwen2",
    "qwen2_audio": "qwen2",
    "glm4v": "glm4",
    "glm46v": "glm4",
    "glm4v_moe": "glm4_moe",
    "mimo": "qwen2",
    "mimo_v2_flash": "mimo_v2",
    "minimax_m3_vl": "minimax_m3",
    "step3p5": "step3p7",
    "deepseek_ref": "deepseek_v4",
    "bailing_moe_v2": "bailing_moe",
    "bailing_moe_linear": "bailing_hybrid",
    "minimax_text_01": "minimax",
    "kimi_k25": "kimi_k2",
    "hunyuan": "hunyuan_v1_moe",
    "iquestcoder": "llama",
    "hyperclovax": "llama",
    "cwm": "llama",
}

#: Fields that a Llama does not have; a model that has them is not one.
_NOT_A_LLAMA = re.compile(
    r"expert|moe|lora_rank|ssm|mamba|linear_(?!bias)|conv_kernel|hybrid|block_config|layer_types|sliding_window"
    r"|chunk_size$|multi_query|kv_shared|per_layer|index_topk|is_encoder_decoder|rwkv|recurrent|cross_attention_layers"
)


def form_of(config: Config, written: str) -> Form:
    """Return how a model type reads; an unknown one reads as a Llama where nothing in the file speaks against it.

    Parameters
    ----------
    config : Config
    written : str
        The ``model_type`` of the file.

    Returns
    -------
    Form

    Raises
    ------
    UserError
        Where the type is unknown and a field says that it is no Llama.
    """
    kind = re.sub(r"[_-]text$", "", written.casefold())
    known = TYPES.get(SAME_AS.get(kind, kind))
    if known is not None:
        config.defaults = known.defaults
        return known
    unknown = f"model_type '{written}' is not known here"
    for key, value in config.fields.items():
        full = key == "layer_types" and isinstance(value, list) and all(kind == FULL for kind in value)
        unused = "sliding_window" in key and config.get("use_sliding_window") is False
        if full or unused:
            config.get(key)
        elif value and _NOT_A_LLAMA.search(key):
            raise config.refusal(key, f"{unknown}, and a Llama has no such field; write the model as YAML instead")
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if (value := config.get(key)) not in (None, "silu", "swish", "swiglu"):
            raise config.refusal(key, f"{unknown}, so whether {shown(value)} is gated; write the model as YAML instead")
    if config.flag("is_encoder_decoder"):
        raise config.refusal("is_encoder_decoder", "an encoder with a decoder behind it is not modelled")
    config.note(f"{unknown}: it is read as a Llama")
    config.is_guess = True
    if config.get("tie_word_embeddings") is None:
        config.note("tie_word_embeddings is not in the file: true is the default of transformers")
        config.fields["tie_word_embeddings"] = True
    return TYPES["llama"]

"""Attention as configurations describe it: grouped heads, windows, latents, indexers, compressed and cross."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from perfmodel.specs.architectures.patterns import (
    CHUNKED,
    FULL,
    LINEAR,
    SLIDING,
    Reader,
    all_but_every,
    flags_of,
    kinds_of,
    last_of_every,
)
from perfmodel.specs.config import Config, Part, Parts, Which
from perfmodel.specs.types import (
    Attention,
    CompressedAttention,
    Indexer,
    Mla,
    Sliding,
)


def head_dim_of(config: Config, heads: float) -> float:
    """Return the width of a head: what the file says, else the hidden size shared among the heads."""
    for name in ("attention_head_dim", "head_dim"):
        if config.get(name) is not None:
            return config.count(name)
    hidden = config.count("hidden_size")
    if hidden % heads:
        raise config.refusal("head_dim", f"is missing, and {heads:g} heads do not divide hidden_size {hidden:g}")
    config.derived["head_dim"] = "hidden_size / num_attention_heads"
    return hidden / heads


def plain_attention(config: Config, **traits: Any) -> Attention:
    """Return the attention that a file describes, without windows."""
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    if config.get("num_key_value_heads") is None:
        config.derived["kv_heads"] = "num_attention_heads"
    if heads % kv_heads:
        raise config.refusal("num_key_value_heads", f"{kv_heads:g} do not divide the {heads:g} num_attention_heads")
    bias = config.flag("attention_bias")
    return Attention(heads, kv_heads, head_dim_of(config, heads), **{"qkv_bias": bias, "output_bias": bias, **traits})


def attention_mixer(config: Config, kinds: list[str] | None = None, **traits: Any) -> Parts:
    """Read grouped-query attention, with a window where the kind of the layer says so."""
    plain = plain_attention(config, **traits)
    windows = _windows(config, kinds or kinds_of(config))
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


def attends(slides: Callable[[Config], Which] | None = None, **traits: Any) -> Reader:
    """Return a reader of attention whose windows follow a rule; a trait that is a name of a field is read there."""

    def read(config: Config) -> Parts:
        return attention_mixer(config, kinds_of(config, slides(config)) if slides else None, **flags_of(config, traits))

    return read


def by_kind(
    readers: Mapping[str, Reader], special: Callable[[Config], Which] | None = None, kind: str = LINEAR
) -> Reader:
    """Return a reader of layers whose kind says which reader: the table of kinds of one model type."""

    def read(config: Config) -> Parts:
        kinds = kinds_of(config, special(config), kind) if special else kinds_of(config)
        if unknown := set(kinds) - set(readers):
            raise config.refusal("layer_types", f"unknown '{min(unknown)}', expected {' or '.join(readers)}")
        made = {one: readers[one](config) for one in dict.fromkeys(kinds)}
        return lambda index: made[kinds[index]](index)

    return read


def full_mixer(**traits: Any) -> Reader:
    """Return a reader of attention without windows, for layers that a table of kinds picks."""
    return lambda config: attention_mixer(config, [FULL] * config.layers, **flags_of(config, traits))


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


def latents(config: Config) -> Parts:
    """Read latent attention."""
    mla = _mla(config)
    return lambda _: {"mla": mla}


def gated_latents(config: Config) -> Parts:
    """Read latent attention whose output has a gate: one a head, or of full width."""
    mla = _mla(config)
    width = mla.heads * (mla.v_head_dim if config.flag("mla_use_output_gate") else 1.0)
    mla = replace(mla, gate=width)
    config.derived["gate"] = "heads, or heads x v_head_dim"
    return lambda _: {"mla": mla}


def indexed_latents(config: Config) -> Parts:
    """Read sparse latent attention; a layer may take the choice of an earlier one's indexer."""
    indexer = Indexer(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))
    config.get("layer_types")
    mla = _mla(config, indexer=indexer)
    shared = replace(mla, indexer=replace(indexer, shared=True))
    types = config.one_a_layer("indexer_types", str)
    return lambda index: {"mla": shared if types and types[index] == "shared" else mla}


def cross_or_self(config: Config) -> Parts:
    """Read layers of which some attend to an image: Llama 3.2 Vision."""
    layers = config.list_of("cross_attention_layers", int) or []
    plain = plain_attention(config)
    cross = replace(plain, qk_norm=True, cross=0.0)
    config.derived["cross"] = "tokens of the images of a request"
    return lambda index: {"attention": cross if index in layers else plain}


def compressed(config: Config) -> Parts:
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


def block_sparse(config: Config) -> Parts:
    """Read attention to blocks that an indexer of each group picks: MiniMax-M3."""
    plain = plain_attention(config, qk_norm=config.flag("use_qk_norm", True))
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
    kinds = kinds_of(config)
    picks = [bool(flag) for flag in flags] if flags else [kind == "sparse" for kind in kinds]
    if len(picks) != config.layers:
        raise config.refusal(
            "sparse_attention_config.sparse_attention_freq", f"{len(picks)} entries for {config.layers} layers"
        )
    return lambda index: {"attention": sparse if picks[index] else plain}


def wide_keys(config: Config) -> Parts:
    """Read attention whose keys and values differ in width, and in heads where it has a window: MiMo-V2."""
    value = config.count("v_head_dim")
    plain = plain_attention(config, value_dim=value, output_bias=False)
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
    kinds = [SLIDING if flag else FULL for flag in pattern] if pattern else kinds_of(config)
    return lambda index: {"attention": windowed if kinds[index] == SLIDING else plain}


def gemma4_attention(config: Config) -> Parts:
    """Read Gemma 3n's and 4's attention: wider heads where it is full, and layers that share an earlier cache."""
    plain = plain_attention(config, qk_norm=True)
    kinds = kinds_of(config, all_but_every(6.0)(config))
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


def step_attention(config: Config) -> Parts:
    """Read the attention of Step-3.7 and Laguna: heads that differ by layer, and a gate a head or a channel."""
    by_head = config.get("gating") in (None, True, "per-head")
    plain = plain_attention(config, qk_norm=True, head_gate=by_head, gated=not by_head)
    kinds, other = kinds_of(config), plain.heads
    each = config.one_a_layer("num_attention_heads_per_layer", int)
    if each:
        windows = _windows(config, kinds)
        return lambda index: {"attention": replace(plain, heads=float(each[index]), sliding=windows[index])}
    if config.get("attention_other_setting") is not None:
        other = config.inner("attention_other_setting").count("num_attention_heads", default=other)
    windowed = replace(plain, heads=config.count("num_sliding_attention_heads", default=other))
    windows = _windows(config, kinds)
    return lambda index: {"attention": replace(windowed if windows[index] else plain, sliding=windows[index])}


def one_key(config: Config) -> Parts:
    """Read attention whose heads share one key and one value: GPT-BigCode."""
    plain = plain_attention(config, qkv_bias=True, output_bias=True)
    one = replace(plain, kv_heads=1.0 if config.flag("multi_query", True) else plain.heads)
    config.derived["kv_heads"] = "multi_query"
    return lambda _: {"attention": one}


def falcon_attention(config: Config) -> Parts:
    """Read Falcon's attention: one key for all heads, unless the newer form says how many."""
    heads, bias = config.count("num_attention_heads"), config.flag("bias")
    kv_heads = heads
    if config.flag("new_decoder_architecture"):
        kv_heads = config.count("num_kv_heads", default=heads)
    elif config.flag("multi_query", True):
        kv_heads = 1.0
    config.derived["kv_heads"] = "new_decoder_architecture, multi_query"
    plain = Attention(heads, kv_heads, head_dim_of(config, heads), qkv_bias=bias, output_bias=bias)
    return lambda _: {"attention": plain}


def llama4_attention(config: Config) -> Parts:
    """Read Llama 4's attention: chunked, but for layers without positions."""
    full = last_of_every(config.count("no_rope_layer_interval", default=4.0))
    rope = config.one_a_layer("no_rope_layers", int) or [not full(index) for index in range(config.layers)]
    chunks = config.get("attention_chunk_size") is not None
    kinds = kinds_of(config, lambda index: chunks and bool(rope[index]), CHUNKED)
    # The queries and keys are normalised without weights.
    return attention_mixer(config, kinds)

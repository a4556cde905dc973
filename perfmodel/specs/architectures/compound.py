"""Layers that are not one mixer and one block: parallel, shared, searched and single mixers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfmodel.specs.architectures.additions import plus
from perfmodel.specs.architectures.attention import attention_mixer, head_dim_of, latents
from perfmodel.specs.architectures.blocks import mlp_block, moe, nemotron_experts
from perfmodel.specs.architectures.patterns import FULL, LINEAR
from perfmodel.specs.architectures.recurrent import BAMBA, NEMOTRON_H, ZAMBA2, mamba2
from perfmodel.specs.config import Config, Part, Parts, shown
from perfmodel.specs.types import (
    Attention,
    Beside,
    Layers,
    Mamba2,
    Mlp,
    Recurrent,
)

#: Letters of ``hybrid_override_pattern``, and the words that newer files have in their place.
_NEMOTRON = {"M": LINEAR, "mamba": LINEAR, "*": FULL, "attention": FULL, "-": "mlp", "E": "moe"}


def nemotron_h(config: Config) -> list[Layers]:
    """Read Nemotron-H: each layer is one mixer or one block."""
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
        LINEAR: lambda: mamba2(NEMOTRON_H)(config),
        FULL: lambda: attention_mixer(config, [FULL]),
        "mlp": lambda: mlp_block(config, matrices=2.0),
        "moe": lambda: nemotron_experts(config),
    }
    config.get("intermediate_size")
    made = {kind: Layers(1.0, 1.0, **parts[kind]()(0)) for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def searched(config: Config) -> list[Layers]:
    """Read layers that a search left: each says its own heads and widths, or has nothing (Nemotron-NAS)."""
    blocks = config.list_of("block_configs", dict)
    if not blocks or len(blocks) != config.layers:
        raise config.refusal("block_configs", f"{len(blocks or [])} entries for {config.layers} layers")
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    layers = []
    for index, block in enumerate(blocks):
        one = Config(config.path, block, f"{config.where}block_configs.{index}.")
        mixer, feed = one.inner("attention"), one.inner("ffn")
        parts: Part = {}
        if mixer.flag("replace_with_linear"):
            parts["beside"] = Beside(weights=hidden * hidden)
        elif not mixer.flag("no_op"):
            group = mixer.count("n_heads_in_group", default=float(heads / (mixer.get("num_key_value_heads") or heads)))
            parts["attention"] = Attention(heads, heads / group, head_dim_of(config, heads))
        if feed.flag("replace_with_linear"):
            known = parts.get("beside", Beside())
            parts["beside"] = replace(known, weights=known.weights + hidden * hidden)
        elif not feed.flag("no_op"):
            parts["mlp"] = Mlp(_searched_width(feed, hidden))
        norms = 2.0 - float(mixer.flag("no_op")) - float(feed.flag("no_op"))
        if parts:
            layers.append(Layers(1.0, norms, **parts))
    config.derived["kv_heads"] = "num_attention_heads / n_heads_in_group"
    config.derived["intermediate"] = "ffn_mult of each layer"
    return layers


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


def parallel_mixers(config: Config) -> list[Layers]:
    """Read Falcon-H1: attention beside a state-space mixer, then an MLP; each is a run of its own here."""
    heads = config.get("mamba_d_ssm")
    mixer, state = attention_mixer(config, [FULL] * config.layers), mamba2(BAMBA)(config)
    block, mixers = mlp_block(config), []
    if heads is not None:
        config.count("mamba_d_ssm")
    if not config.flag("mamba_rms_norm"):
        state = _without_norm(config, state(0)["mamba2"])
    for index in range(config.layers):
        mixers.append(Layers(1.0, 1.0, **mixer(index)))
        mixers.append(Layers(1.0, 1.0, **state(index), **block(index)))
    config.note("attention and state-space mixer of a layer run side by side: they are read as two layers")
    return mixers


def shortcut_experts(config: Config) -> list[Layers]:
    """Read LongCat: two latent attentions and two MLPs a layer, with experts beside the second."""
    mixer, dense = latents(config), config.count("intermediate_size")
    zero = config.count("zero_expert_num", default=0.0, least=0) or None
    experts = moe(config, shared=dense, router_bias=config.flag("router_bias"), zero_experts=zero)
    config.derived["shared"] = "ffn_hidden_size"
    layers = []
    for index in range(config.layers):
        layers.append(Layers(1.0, 2.0, **mixer(index), mlp=Mlp(dense)))
        layers.append(Layers(1.0, 2.0, **mixer(index), **experts(index)))
    config.note("a layer has two attentions and two blocks: it is read as two layers")
    return layers


def shared_blocks(config: Config) -> list[Layers]:
    """Read Zamba2: state-space layers, and few transformer blocks that many layers share."""
    kinds = config.one_a_layer("layers_block_type", str) or []
    if config.flag("use_shared_attention_adapter"):
        raise config.refusal("use_shared_attention_adapter", "adapters of shared attention are not modelled")
    state, hidden = mamba2(ZAMBA2)(config), config.count("hidden_size")
    heads = config.count("num_attention_heads")
    wide = config.count("attention_hidden_size", default=2 * hidden)
    width = config.count("attention_head_dim", default=wide / heads)
    kv_heads = config.count("num_key_value_heads", default=heads)
    block, rank = mlp_block(config), config.count("adapter_rank", default=128.0)
    shared = config.count("num_mem_blocks", default=1.0)
    uses = sum(kind == "hybrid" for kind in kinds)
    if not uses:
        raise config.refusal("layers_block_type", "no layer is hybrid; write the model as YAML instead")
    extra = (wide - hidden) * (heads + 2 * kv_heads) * width
    blocks = []
    for index, kind in enumerate(kinds):
        if kind == "hybrid":
            mixer = Attention(heads, kv_heads, width)
            blocks.append(Layers(1.0, 1.0, attention=mixer, **block(index), **plus(extra, wide), own=shared / uses))
            inner = 2 * block(index)["mlp"].intermediate
            blocks.append(Layers(1.0, 0.0, beside=Beside(weights=hidden * hidden + rank * (hidden + inner))))
        blocks.append(Layers(1.0, 1.0, **state(index)))
    config.note(f"{uses} layers run {shared:g} shared blocks: their weights are held once")
    return blocks

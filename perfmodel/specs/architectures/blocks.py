"""Feed-forward blocks as configurations describe them: MLPs and experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.specs.architectures.patterns import (
    Reader,
    after_dense,
    either,
    flags_of,
    last_of_every,
    periodic,
    sparse_layers,
)
from perfmodel.specs.config import Config, Part, Parts, Which, shown
from perfmodel.specs.types import (
    Mlp,
    Moe,
)


def mlp_block(config: Config, width: str = "intermediate_size", matrices: float = 3.0) -> Parts:
    """Read a feed-forward block, whose width may differ from layer to layer."""
    written = config.get(width)
    if isinstance(written, list):
        given = config.one_a_layer(width, int) or []
        return lambda index: {"mlp": Mlp(float(given[index]), matrices)}
    if written is None and width == "intermediate_size" and matrices == 2.0:
        config.derived["intermediate"] = "4 x hidden_size"
        return lambda _: {"mlp": Mlp(4 * config.count("hidden_size"), matrices)}
    return lambda _: {"mlp": Mlp(config.count(width), matrices)}


def ungated_block(config: Config) -> Parts:
    """Read a feed-forward block of two matrices."""
    return mlp_block(config, matrices=2.0)


def moe(
    config: Config,
    width: str = "moe_intermediate_size",
    shared: float = 0.0,
    experts: str = "num_experts",
    **traits: Any,
) -> Parts:
    """Read a block of experts; ``experts`` is what the type calls their number."""
    total, met = config.count(experts), config.count("num_experts_per_tok")
    zero = traits.get("zero_experts") or 0.0
    if met > total + zero:
        raise config.refusal(config.named("num_experts_per_tok"), f"{met:g} of only {total:g} {config.named(experts)}")
    if config.get("topk_group") and config.count("n_group", default=1.0) > 1:
        # Groups of experts are laid on nodes of their own.
        traits["node_limit"] = config.count("topk_group")
    found = Moe(total, met, config.count(width), shared, **traits)
    return lambda _: {"moe": found}


def experts_block(width: str = "moe_intermediate_size", **traits: Any) -> Reader:
    """Return a reader of experts in every layer; a trait that is a name of a field is read there."""
    return lambda config: moe(config, width, shared=_shared(config), **flags_of(config, traits))


def _shared(config: Config, width: str = "moe_intermediate_size") -> float:
    """Return the width of the experts that every token meets: said outright, or so many of the others' width."""
    several = config.count("n_shared_experts", default=0.0, least=0)
    if config.get("shared_intermediate_size") is not None:
        return config.count("shared_intermediate_size", least=0)
    if several == 0:
        return 0.0
    config.derived["shared"] = f"{config.named('n_shared_experts')} x {config.named(width)}"
    return several * config.count(width)


def after(dense: str = "intermediate_size", width_of: str = "moe_intermediate_size", **traits: Any) -> Reader:
    """Return a reader of experts behind some dense layers."""

    def read(config: Config) -> Parts:
        sparse = after_dense(config)
        width = width_of if not config.has("moe_intermediate_size") else "moe_intermediate_size"
        block = moe(config, width, shared=_shared(config, width), **flags_of(config, traits))
        if all(sparse(index) for index in range(config.layers)):
            config.get(dense)
            return block
        return either(sparse, block, mlp_block(config, dense))

    return read


def deepseek_block(config: Config) -> Parts:
    """Read DeepSeek's block: experts behind the first dense layers, with a bias of the router."""
    config.count("first_k_dense_replace", least=0)
    return after(router_bias=config.get("topk_method") == "noaux_tc")(config)


def qwen_block(config: Config) -> Parts:
    """Read Qwen's block of experts, with a gated shared expert where there is one."""
    shared = config.count("shared_expert_intermediate_size", default=0.0, least=0)
    block = moe(config, shared=shared, shared_gate=shared > 0)
    sparse = last_of_every(config.count("decoder_sparse_step", default=1.0))
    dense = config.list_of("mlp_only_layers", int) or []
    first = sparse_layers(config, lambda index: sparse(index) and index not in dense)
    if all(first(index) for index in range(config.layers)):
        config.get("intermediate_size")
        return block
    return either(first, block, mlp_block(config))


def qwen_block_without_gate(config: Config) -> Parts:
    """Read Laguna's block: one shared expert of a width of its own."""
    sparse = after_dense(config)
    shared = config.count("shared_expert_intermediate_size", default=0.0, least=0)
    block = moe(config, shared=shared, router_bias=True)
    return either(sparse, block, mlp_block(config))


def gemma4_block(config: Config) -> Parts:
    """Read Gemma 4's block: experts beside an MLP, or an MLP that is twice as wide where the cache is shared."""
    if config.flag("enable_moe_block"):
        config.experts_apart = True
        beside = config.count("intermediate_size")
        config.derived["shared"] = "intermediate_size"
        return moe(config, shared=beside)
    first = config.layers - config.count("num_kv_shared_layers", default=0.0, least=0)
    plain = mlp_block(config)
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


def lfm2_block(config: Config) -> Parts:
    """Read LFM2's block, whose width is rounded."""
    width = _lfm2_width(config)
    return lambda _: {"mlp": Mlp(width)}


def lfm2_moe_block(config: Config) -> Parts:
    """Read LFM2's block of experts behind the first dense layers."""
    first = config.count("num_dense_layers", default=2.0, least=0)
    block = moe(config, router_bias=config.flag("use_expert_bias", True))
    return either(lambda index: index >= first, block, mlp_block(config))


def nemotron_experts(config: Config) -> Parts:
    """Read Nemotron's experts, which may work in a narrower space."""
    latent = config.count("moe_latent_size") if config.get("moe_latent_size") is not None else None
    shared = config.count("n_shared_experts", default=1.0, least=0)
    shared *= config.count("moe_shared_expert_intermediate_size", least=0)
    return moe(config, shared=shared, router_bias=True, matrices=2.0, latent=latent)


def kimi_block(config: Config) -> Parts:
    """Read Kimi's block; Kimi-K3 has experts of a latent width."""
    latent = None
    if config.get("routed_expert_hidden_size") is not None:
        latent = config.count("routed_expert_hidden_size")
    return after(router_bias=True, latent=latent)(config)


def granite_hybrid_block(config: Config) -> Parts:
    """Read Granite's block: experts where it has some, beside a shared one."""
    shared = config.count("shared_intermediate_size", default=1024.0, least=0)
    if config.count("num_experts", default=0.0, least=0) == 0:
        return lambda _: {"mlp": Mlp(shared)}
    return moe(config, "intermediate_size", shared=shared)


def ernie_block(config: Config) -> Parts:
    """Read ERNIE's block: experts between two layers, every so many."""
    start, step = (
        config.count("moe_layer_start_index", default=0.0, least=0),
        config.count("moe_layer_interval", default=1.0),
    )
    end = config.get("moe_layer_end_index")
    last = config.layers - 1 if end in (None, -1) else int(config.count("moe_layer_end_index", least=0))
    block = moe(config, shared=_shared(config), router_bias=True)
    return either(lambda index: start <= index <= last and (index + 1) % step == 0, block, mlp_block(config))


def hunyuan_block(config: Config) -> Parts:
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
        return mlp_block(config)
    width = first("moe_intermediate_size", first("intermediate_size"))
    shared = first("n_shared_experts", 1.0) * width if config.flag("use_mixed_mlp_moe", True) else 0.0
    config.derived["shared"] = "shared experts x their width"
    found = Moe(experts, first("num_experts_per_tok", 1.0), width, shared)
    skip = config.count("moe_layer_num_skipped", default=0.0, least=0)
    return either(lambda index: index >= skip, lambda _: {"moe": found}, mlp_block(config))


def afmoe_block(config: Config) -> Parts:
    """Read AFMoE's block: experts behind the first dense layers."""
    first = config.count("num_dense_layers", default=1.0, least=0)
    block = moe(config, shared=_shared(config), router_bias=True)
    return either(lambda index: index >= first, block, mlp_block(config))


def jamba_block(config: Config) -> Parts:
    """Read Jamba's block: experts every so many layers."""
    block = mlp_block(config)
    if config.count("num_experts") > 1:
        block = either(periodic(config, "expert_layer"), moe(config, "intermediate_size"), block)
    return block


def llama4_block(config: Config) -> Parts:
    """Read Llama 4's block: experts every so many layers."""
    block = moe(config, "intermediate_size", shared=config.count("intermediate_size"))
    step = last_of_every(config.count("interleave_moe_layer_step", default=1.0))
    routed = config.list_of("moe_layers", int)
    which: Which = step if routed is None else lambda index: index in routed
    if all(which(index) for index in range(config.layers)):
        config.get("intermediate_size_mlp")
        return block
    return either(which, block, mlp_block(config, "intermediate_size_mlp"))

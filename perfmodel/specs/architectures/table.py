"""Architectures by their ``model_type``: one table of which mixer and which block each layer has.

What a field does follows the modelling code of its ``model_type`` in transformers 5.24, or of the model's own files
where transformers has none; a field that real files leave out has the default of that type's configuration class.
A new model is a row of :data:`TYPES`, made of the readers in the modules beside it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from perfmodel.specs.architectures.additions import (
    biases,
    falcon_norms,
    first_norm_missing,
    gemma3n_beside,
    hyper_connections,
    layer_inputs,
    mllama_words,
    plus,
    residual_blocks,
    type_words,
)
from perfmodel.specs.architectures.attention import (
    attends,
    attention_mixer,
    block_sparse,
    by_kind,
    compressed,
    cross_or_self,
    falcon_attention,
    full_mixer,
    gated_latents,
    gemma4_attention,
    indexed_latents,
    latents,
    llama4_attention,
    one_key,
    plain_attention,
    step_attention,
    wide_keys,
)
from perfmodel.specs.architectures.blocks import (
    afmoe_block,
    after,
    deepseek_block,
    ernie_block,
    experts_block,
    gemma4_block,
    granite_hybrid_block,
    hunyuan_block,
    jamba_block,
    kimi_block,
    lfm2_block,
    lfm2_moe_block,
    llama4_block,
    qwen_block,
    qwen_block_without_gate,
    ungated_block,
)
from perfmodel.specs.architectures.compound import (
    nemotron_h,
    parallel_mixers,
    searched,
    shared_blocks,
    shortcut_experts,
)
from perfmodel.specs.architectures.forms import Form, encoder, modern_windows
from perfmodel.specs.architectures.patterns import (
    CONV,
    FULL,
    LINEAR,
    all_but_every,
    alternate,
    always,
    either,
    kinds_of,
    periodic,
    upper_layers,
)
from perfmodel.specs.architectures.recurrent import (
    BAMBA,
    MAMBA2,
    by_channel,
    delta_rule,
    lightning_mixer,
    mamba1,
    mamba2,
    plain_mamba1,
    short_convolution,
)
from perfmodel.specs.config import Config, Parts, shown

# --- which layers ------------------------------------------------------------------------------------------------


# --- attention ---------------------------------------------------------------------------------------------------


# --- mixers with a state -----------------------------------------------------------------------------------------


# --- blocks ------------------------------------------------------------------------------------------------------


# --- beside ------------------------------------------------------------------------------------------------------


# --- layers that are not one mixer and one block --------------------------------------------------------------------


# --- the table ---------------------------------------------------------------------------------------------------


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
_QWEN_HYBRID = by_kind(
    {FULL: full_mixer(qk_norm=True, gated=("attn_output_gate", True)), LINEAR: delta_rule},
    all_but_every(4.0, "full_attention_interval"),
)


def _kimi_kinds(config: Config) -> Parts:
    """Read which layers of Kimi-Linear are latent attention: by a list of kinds, or by numbers from 1."""
    nested = config.get("linear_attn_config")
    full = gated_latents(config) if config.flag("mla_use_output_gate") else latents(config)
    delta = by_channel(config)
    if isinstance(nested, dict) and not config.has("layer_types"):
        listed = config.inner("linear_attn_config").list_of("full_attn_layers", int) or []
        return either(lambda index: index + 1 in listed, full, delta)
    kinds = kinds_of(config)
    return either(lambda index: kinds[index] == FULL, full, delta)


def _bailing_kinds(config: Config) -> Parts:
    """Read which layers of Ling are latent attention: by a list, or the last of each group and those behind them."""
    full, delta, group = gated_latents(config), by_channel(config), config.count("layer_group_size", default=6.0)
    if config.has("layer_types"):
        kinds = kinds_of(config)
        return either(lambda index: kinds[index] == FULL, full, delta)
    whole = config.layers // group * group
    return either(lambda index: (index + 1) % group == 0 or index >= whole, full, delta)


def _lfm2_kinds(config: Config) -> list[str]:
    """Return the kinds of LFM2's layers: by a list, or by the numbers of those with attention."""
    if config.has("layer_types"):
        return kinds_of(config)
    listed = config.list_of("full_attn_idxs", int)
    if listed is None:
        raise config.refusal("full_attn_idxs", "required field is missing, as is layer_types")
    return [FULL if index in listed else CONV for index in range(config.layers)]


def _lfm2_mixer(config: Config) -> Parts:
    kinds = _lfm2_kinds(config)
    if unknown := set(kinds) - {FULL, CONV}:
        raise config.refusal("layer_types", f"unknown '{min(unknown)}', expected {FULL} or {CONV}")
    full, short = attention_mixer(config, [FULL] * config.layers, qk_norm=True), short_convolution(config)
    return either(lambda index: kinds[index] == FULL, full, short)


def _bamba_mixer(config: Config) -> Parts:
    """Read which of Bamba's layers are attention: by a list of kinds, or by their numbers."""
    full, state = attention_mixer(config, [FULL] * config.layers), mamba2(BAMBA)(config)
    if config.has("layer_types"):
        kinds = kinds_of(config)
        return either(lambda index: kinds[index] == FULL, full, state)
    listed = config.list_of("attn_layer_indices", int) or []
    return either(lambda index: index in listed, full, state)


def _minimax_mixer(config: Config) -> Parts:
    """Read which of MiniMax-01's layers are lightning attention: by a list of kinds or of switches."""
    full, lightning = attention_mixer(config, [FULL] * config.layers), lightning_mixer(config)
    if config.has("layer_types"):
        kinds = kinds_of(config)
    elif (flags := config.one_a_layer("attn_type_list", int)) is not None:
        kinds = [FULL if flag else LINEAR for flag in flags]
    else:
        kinds = [FULL if index % 2 else LINEAR for index in range(config.layers)]
    return either(lambda index: kinds[index] == FULL, full, lightning)


def _jamba_mixer(config: Config) -> Parts:
    full, state = attention_mixer(config, [FULL] * config.layers), mamba1(config)
    return either(periodic(config, "attn_layer"), full, state)


def _qwen2_moe_mixer(config: Config) -> Parts:
    upper = upper_layers(config)
    kinds = kinds_of(config, lambda index: index % 2 == 0 and not upper(index))
    return attention_mixer(config, kinds, qkv_bias=config.flag("qkv_bias", True))


def _cohere_attention(config: Config) -> Parts:
    """Read Command R's attention, whose normalisations have a scale for each channel of each head."""
    plain = plain_attention(config)
    return lambda _: {"attention": replace(plain, qk_norm_full=config.flag("use_qk_norm"))}


TYPES: dict[str, Form] = {
    # Dense, grouped-query attention.
    "llama": Form(),
    "phi3": Form(attends(always)),
    "mistral": Form(attends(always), defaults={"sliding_window": 4096}),
    "ministral": Form(attends()),
    "ministral3": Form(attends()),
    "qwen2": Form(attends(upper_layers, qkv_bias=True), defaults=_NO_WINDOW),
    "qwen3": Form(attends(upper_layers, qk_norm=True), defaults={**_NO_WINDOW, "head_dim": 128}),
    "gemma": Form(defaults={**_TIED, "head_dim": 256}),
    "gemma2": Form(attends(alternate), norms=4.0, defaults={**_TIED, "head_dim": 256, "sliding_window": 4096}),
    "vaultgemma": Form(attends(alternate), norms=2.0, defaults={**_TIED, "head_dim": 256, "sliding_window": 4096}),
    "gemma3": Form(attends(all_but_every(6.0), qk_norm=True), norms=4.0, defaults={**_TIED, **_GEMMA3}),
    "gemma3n": Form(gemma4_attention, norms=4.0, beside=gemma3n_beside, defaults={**_TIED, "head_dim": 256}),
    "gemma4": Form(
        gemma4_attention,
        gemma4_block,
        norms=4.0,
        beside=layer_inputs,
        defaults={**_TIED, "head_dim": 256, "global_head_dim": 512},
    ),
    "smollm3": Form(attends(upper_layers), defaults={**_TIED, **_NO_WINDOW}),
    "seed_oss": Form(attends(output_bias=("attention_out_bias", False)), defaults={"attention_bias": True}),
    "granite": Form(),
    "helium": Form(),
    "arcee": Form(block=ungated_block),
    "apertus": Form(attends(qk_norm=True), ungated_block, beside=lambda config: lambda _: plus(scales=2.0)),
    "nemotron": Form(block=ungated_block, norms=4.0, final_norm=2.0),
    "olmo": Form(norms=0.0),
    "olmo2": Form(attends(qk_norm_full=True)),
    "olmo3": Form(attends(all_but_every(4.0), qk_norm_full=True)),
    "cohere": Form(_cohere_attention, norms=1.0, defaults=_TIED),
    "cohere2": Form(attends(all_but_every(4.0)), norms=1.0, defaults={**_TIED, "sliding_window": 4096}),
    "exaone": Form(),
    "exaone4": Form(attends(all_but_every(4.0), qk_norm=True)),
    "glm": Form(attends(output_bias=False), defaults={"attention_bias": True, "head_dim": 128}),
    "glm4": Form(attends(output_bias=False), norms=4.0, defaults={"attention_bias": True, "head_dim": 128}),
    "ernie4_5": Form(defaults={**_TIED, "head_dim": 128}),
    "hunyuan_v1_dense": Form(attends(qk_norm=True)),
    "internlm2": Form(),
    "internlm3": Form(),
    "starcoder2": Form(
        attends(always, qkv_bias=True, output_bias=True), ungated_block, 4.0, _TIED, biases, final_norm=2.0
    ),
    "phi": Form(
        attends(qkv_bias=True, output_bias=True), ungated_block, 2.0, {}, biases, final_norm=2.0, head_bias=True
    ),
    "stablelm": Form(attends(qkv_bias=("use_qkv_bias", False)), norms=4.0, final_norm=2.0),
    "gpt2": Form(
        attends(qkv_bias=True, output_bias=True), ungated_block, 4.0, _TIED, biases, final_norm=2.0, positions=0.0
    ),
    "gpt_neox": Form(
        attends(qkv_bias=("attention_bias", True), output_bias=("attention_bias", True)),
        ungated_block,
        4.0,
        {},
        biases,
        final_norm=2.0,
    ),
    "opt": Form(
        attends(qkv_bias=("enable_bias", True), output_bias=("enable_bias", True)),
        ungated_block,
        4.0,
        _TIED,
        biases,
        final_norm=2.0,
        positions=2.0,
    ),
    "gptj": Form(attends(), ungated_block, 2.0, {}, biases, final_norm=2.0, head_bias=True),
    "codegen": Form(attends(), ungated_block, 2.0, {}, biases, final_norm=2.0, head_bias=True),
    "bloom": Form(
        attends(qkv_bias=True, output_bias=True), ungated_block, 4.0, _TIED, biases, final_norm=4.0, endless=True
    ),
    "gpt_bigcode": Form(one_key, ungated_block, 4.0, _TIED, biases, final_norm=2.0, positions=0.0),
    "falcon": Form(falcon_attention, ungated_block, defaults=_TIED, beside=falcon_norms, final_norm=2.0),
    "mllama": Form(cross_or_self, beside=mllama_words),
    # Encoders: no cache, no head, one pass.
    "bert": encoder(types=2.0),
    "roberta": encoder(types=1.0),
    "mpnet": encoder(types=0.0, pooler=True, buckets="relative_attention_num_buckets"),
    "distilbert": encoder(types=0.0, pooler=False),
    "nomic_bert": Form(
        attends(causal=False),
        norms=4.0,
        final_norm=2.0,
        defaults={"type_vocab_size": 2},
        beside=type_words,
        pools=True,
    ),
    "eurobert": Form(attends(causal=False), pools=True),
    "modernbert": Form(modern_windows, beside=first_norm_missing, final_norm=2.0, pools=True),
    "nemotron-nas": Form(layers=searched),
    # Latent attention.
    "minicpm3": Form(latents),
    "youtu": Form(latents, defaults=_TIED),
    "deepseek_v2": Form(latents, deepseek_block),
    "deepseek_v3": Form(latents, deepseek_block, defaults=_NOAUX),
    "kimi_k2": Form(latents, deepseek_block, defaults=_NOAUX),
    "deepseek_v32": Form(indexed_latents, deepseek_block, defaults=_NOAUX),
    "glm_moe_dsa": Form(indexed_latents, after(router_bias=True), defaults={"first_k_dense_replace": 3}),
    "glm4_moe_lite": Form(latents, after(router_bias=True), defaults={"first_k_dense_replace": 1}),
    "mistral4": Form(latents, after(), defaults={}),
    "longcat_flash": Form(layers=shortcut_experts),
    "deepseek_v4": Form(compressed, after(router_bias=True), beside=hyper_connections),
    # Experts, grouped-query attention.
    "mixtral": Form(attends(always), experts_block("intermediate_size", experts="num_local_experts")),
    "qwen2_moe": Form(_qwen2_moe_mixer, qwen_block, defaults=_NO_WINDOW),
    "qwen3_moe": Form(attends(always, qk_norm=True), qwen_block, defaults=_NO_WINDOW),
    "gpt_oss": Form(
        attends(alternate, sinks=True),
        experts_block("intermediate_size", experts="num_local_experts", router_bias=True, expert_bias=True),
        defaults={"head_dim": 64, "sliding_window": 128, "attention_bias": True},
    ),
    "llama4": Form(llama4_attention, llama4_block, defaults={"head_dim": 128, "attention_chunk_size": 8192}),
    "minimax_m2": Form(
        attends(qk_norm_full=("use_qk_norm", True)),
        experts_block("intermediate_size", router_bias=True),
        defaults={"head_dim": 128},
    ),
    "minimax_m3": Form(
        block_sparse,
        after("dense_intermediate_size", "intermediate_size", router_bias=True),
        defaults={"head_dim": 128},
    ),
    "glm4_moe": Form(
        attends(qk_norm=("use_qk_norm", False), output_bias=False),
        after(router_bias=True),
        defaults={"first_k_dense_replace": 1},
    ),
    "solar_open": Form(attends(), after(router_bias=True)),
    "dots1": Form(attends(qk_norm=True), deepseek_block, defaults=_NOAUX),
    "mimo_v2": Form(wide_keys, after(router_bias=True)),
    "step3p7": Form(
        step_attention,
        after(router_bias=("use_moe_router_bias", True)),
        defaults={"first_k_dense_replace": 3, "shared_intermediate_size": 1280},
    ),
    "olmoe": Form(attends(qk_norm_full=True), experts_block("intermediate_size")),
    "flex_olmo": Form(attends(qk_norm_full=True), experts_block("intermediate_size")),
    "phimoe": Form(
        attends(always),
        experts_block("intermediate_size"),
        4.0,
        final_norm=2.0,
    ),
    "granitemoe": Form(block=experts_block("intermediate_size")),
    "granitemoeshared": Form(block=experts_block("intermediate_size")),
    "ernie4_5_moe": Form(block=ernie_block, defaults=_TIED),
    "hunyuan_v1_moe": Form(attends(qk_norm=True), hunyuan_block),
    "afmoe": Form(
        attends(all_but_every(4.0, "global_attn_every_n_layers"), qk_norm=True, gated=True), afmoe_block, norms=4.0
    ),
    "exaone_moe": Form(attends(all_but_every(4.0), qk_norm=True), after(router_bias=True)),
    "hy_v3": Form(attends(qk_norm=True), after(router_bias=True)),
    "bailing_moe": Form(
        attends(qkv_bias=("use_qkv_bias", False), output_bias=("use_bias", False), qk_norm=("use_qk_norm", False)),
        after(router_bias=("moe_router_enable_expert_bias", False)),
    ),
    "axk1": Form(latents, after(router_bias=True), norms=3.0, defaults={"first_k_dense_replace": 1}),
    "cohere2_moe": Form(
        attends(all_but_every(4.0)),
        after("prefix_dense_intermediate_size", "intermediate_size"),
        norms=1.0,
        defaults={**_TIED, "sliding_window": 4096},
    ),
    "laguna": Form(step_attention, qwen_block_without_gate),
    "mellum": Form(attends(qk_norm=True), after()),
    # Mixers with a state.
    "qwen3_next": Form(_QWEN_HYBRID, qwen_block, defaults={"head_dim": 256}),
    "qwen3_5": Form(_QWEN_HYBRID, defaults={"head_dim": 256}),
    "qwen3_5_moe": Form(_QWEN_HYBRID, qwen_block, defaults={"head_dim": 256}),
    "kimi_linear": Form(_kimi_kinds, kimi_block, beside=residual_blocks),
    "bailing_hybrid": Form(_bailing_kinds, after(router_bias=True)),
    "lfm2": Form(_lfm2_mixer, lfm2_block, defaults=_TIED),
    "lfm2_moe": Form(_lfm2_mixer, lfm2_moe_block, defaults=_TIED),
    "bamba": Form(_bamba_mixer),
    "granitemoehybrid": Form(by_kind({FULL: full_mixer(), LINEAR: mamba2(BAMBA)}), granite_hybrid_block),
    "jamba": Form(_jamba_mixer, jamba_block),
    "minimax": Form(_minimax_mixer, experts_block("intermediate_size")),
    "nemotron_h": Form(layers=nemotron_h, defaults={"head_dim": 128}),
    "falcon_h1": Form(layers=parallel_mixers),
    "zamba2": Form(layers=shared_blocks, defaults=_TIED),
    "olmo_hybrid": Form(
        by_kind(
            {FULL: full_mixer(qk_norm_full=True), LINEAR: delta_rule}, all_but_every(4.0, "full_attention_interval")
        ),
    ),
    "mamba": Form(plain_mamba1, lambda config: lambda _: {}, 1.0, _TIED, endless=True),
    "falcon_mamba": Form(plain_mamba1, lambda config: lambda _: {}, 1.0, _TIED, endless=True),
    "mamba2": Form(mamba2(MAMBA2), lambda config: lambda _: {}, 1.0, endless=True),
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

"""Reading a Hugging Face ``config.json`` into an architecture.

What a field does follows the modelling code of its ``model_type`` in transformers 5.24; a field that real files leave
out has the default of that type's configuration class.  An unknown type reads as a Llama where nothing in the file
speaks against it, and every number's provenance says so.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.specs.paths import quantities
from perfmodel.specs.types import (
    TENSOR_CLASSES,
    Attention,
    Indexer,
    Layers,
    LinearAttention,
    Mamba1,
    Mamba2,
    Mla,
    Mlp,
    Model,
    Moe,
    Provenance,
    Sliding,
)

CONFIG = "config.json"
#: Where ModelOpt writes the quantisation that its config.json does not mention.
QUANTISATION = "hf_quant_config.json"
SOURCE = "hf-config"

_MOST, _MOST_LAYERS = 10**9, 10_000
_FULL, _SLIDING, _CHUNKED, _LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"

#: Mixer or feed-forward block of a layer, as keywords of ``Layers``.
Part = dict[str, Any]
Parts = Callable[[int], Part]
#: Whether the layer of an index is special.
Which = Callable[[int], bool]


class _Config:
    """Fields of a text model, checked as they are read; ``notes`` is what the reader must know of the result."""

    def __init__(self, path: Path, fields: Mapping[str, Any], where: str) -> None:
        self.path = path
        self.fields = dict(fields)
        self.where = where
        self.defaults: Mapping[str, Any] = {}
        self.notes: list[str] = []
        #: Field of the dataclasses: how it follows from the file.
        self.derived = {"norms": "by model_type", "matrices": "by model_type", "count": "layers that are alike"}

    def refusal(self, name: str, problem: str) -> UserError:
        line = " ".join(f"{self.where}{name}: {problem}".split())
        return UserError(f"{self.path}: {line}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def get(self, name: str) -> Any:
        return self.fields[name] if name in self.fields else self.defaults.get(name)

    def count(self, name: str, default: float | None = None, least: int = 1, most: int = _MOST) -> float:
        value = self.get(name)
        if value is None:
            value = default
        elif name not in self.fields:
            self.note(f"{name} is not in the file: {value:g} is the default of transformers")
        if value is None:
            raise self.refusal(name, "required field is missing; give a whole number")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most or value != int(value):
            raise self.refusal(name, f"expected a whole number from {least} to {most:,}, found {_shown(value)}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(name, f"expected true or false, found {_shown(value)}")
        return value

    def list_of(self, name: str, kind: type[Any]) -> list[Any] | None:
        value = self.get(name)
        if value is not None and not (isinstance(value, list) and all(type(entry) is kind for entry in value)):
            raise self.refusal(name, f"expected a list of {kind.__name__}, found {_shown(value)}")
        return value

    def one_a_layer(self, name: str, kind: type[Any]) -> list[Any] | None:
        found = self.list_of(name, kind)
        if found and len(found) != self.layers:
            raise self.refusal(name, f"{len(found)} entries for {self.layers} layers")
        return found or None

    def uncounted(self, *flags: str) -> None:
        for name in flags:
            if self.get(name) is True:
                self.note(f"{name}: these biases are not counted")

    @property
    def layers(self) -> int:
        return int(self.count("num_hidden_layers", most=_MOST_LAYERS))

    def stack(self, mixer: Parts, block: Parts, norms: float = 2.0) -> list[Layers]:
        return [Layers(1.0, norms, **mixer(index), **block(index)) for index in range(self.layers)]


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


# --- parts of a layer --------------------------------------------------------------------------------------------


def _head_dim(config: _Config, heads: float) -> float:
    for name in ("attention_head_dim", "head_dim"):
        if config.get(name) is not None:
            return config.count(name)
    hidden = config.count("hidden_size")
    if hidden % heads:
        raise config.refusal("head_dim", f"is missing, and {heads:g} heads do not divide hidden_size {hidden:g}")
    config.derived["head_dim"] = "hidden_size / num_attention_heads"
    return hidden / heads


def _attention(config: _Config, kinds: list[str] | None = None, **traits: Any) -> Parts:
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    if config.get("num_key_value_heads") is None:
        config.derived["kv_heads"] = "num_attention_heads"
    if heads % kv_heads:
        raise config.refusal("num_key_value_heads", f"{kv_heads:g} do not divide the {heads:g} num_attention_heads")
    bias = config.flag("attention_bias")
    plain = Attention(heads, kv_heads, _head_dim(config, heads), **{"qkv_bias": bias, "output_bias": bias, **traits})
    windows = _windows(config, kinds or _kinds(config))
    return lambda index: {"attention": replace(plain, sliding=windows[index])}


def _kinds(config: _Config, special: Which = lambda index: False, kind: str = _SLIDING) -> list[str]:
    """Return the kind of attention of each layer: what ``layer_types`` says, else the rule of the model type."""
    given = config.one_a_layer("layer_types", str)
    return given or [kind if special(index) else _FULL for index in range(config.layers)]


def _windows(config: _Config, kinds: list[str]) -> list[Sliding | None]:
    if unknown := set(kinds) - {_FULL, _SLIDING, _CHUNKED}:
        raise config.refusal("layer_types", f"unknown '{min(unknown)}'; write the model as YAML instead")
    windows: dict[str, Sliding] = {}
    if _SLIDING in kinds and config.flag("use_sliding_window", True) and config.get("sliding_window") is not None:
        windows[_SLIDING] = Sliding(config.count("sliding_window"))
    if _CHUNKED in kinds:
        windows[_CHUNKED] = Sliding(config.count("attention_chunk_size"), chunked=True)
    return [windows.get(kind) for kind in kinds]


def _mlp(config: _Config, width: str = "intermediate_size", matrices: float = 3.0) -> Parts:
    return lambda _: {"mlp": Mlp(config.count(width), matrices)}


def _moe(config: _Config, experts: str, width: str, shared: float = 0.0, **traits: Any) -> Parts:
    held, met = config.count(experts), config.count("num_experts_per_tok")
    if met > held:
        raise config.refusal("num_experts_per_tok", f"{met:g} of only {held:g} {experts}")
    moe = Moe(held, met, config.count(width), shared, **traits)
    return lambda _: {"moe": moe}


def _either(first: Which, then: Parts, otherwise: Parts) -> Parts:
    return lambda index: then(index) if first(index) else otherwise(index)


# --- which layers ------------------------------------------------------------------------------------------------


def _every(count: float, offset: float = 0.0) -> Which:
    return lambda index: index % count == offset


def _last_of_every(count: float) -> Which:
    return _every(count, count - 1)


def _always(config: _Config) -> Which:
    return lambda index: True


def _alternate(config: _Config) -> Which:
    return _every(2.0)


def _upper(config: _Config) -> Which:
    if not config.flag("use_sliding_window"):
        return lambda index: False
    first = config.count("max_window_layers", least=0)
    return lambda index: index >= first


def _all_but_every(config: _Config) -> Which:
    full = _last_of_every(config.count("sliding_window_pattern", default=6.0))
    return lambda index: not full(index)


def _periodic(config: _Config, name: str) -> Which:
    period, offset = config.count(f"{name}_period"), config.count(f"{name}_offset", least=0)
    if offset >= period:
        raise config.refusal(f"{name}_offset", f"{offset:g} is not below {name}_period {period:g}")
    return _every(period, offset)


# --- model types -------------------------------------------------------------------------------------------------


def _dense(
    config: _Config, slides: Callable[[_Config], Which] | None = None, norms: float = 2.0, **traits: Any
) -> list[Layers]:
    kinds = _kinds(config, slides(config)) if slides else None
    return config.stack(_attention(config, kinds, **traits), _mlp(config), norms)


def _mixtral(config: _Config) -> list[Layers]:
    block = _moe(config, "num_local_experts", "intermediate_size")
    return config.stack(_attention(config, _kinds(config, _always(config))), block)


def _minimax_m2(config: _Config) -> list[Layers]:
    shared = config.count("shared_intermediate_size", default=0.0, least=0)
    block = _moe(config, "num_local_experts", "intermediate_size", shared, router_bias=True)
    return config.stack(_attention(config, qk_norm_full=config.flag("use_qk_norm", True)), block)


def _gpt_oss(config: _Config) -> list[Layers]:
    block = _moe(config, "num_local_experts", "intermediate_size", router_bias=True, expert_bias=True)
    return config.stack(_attention(config, _kinds(config, _alternate(config)), sinks=True), block)


def _qwen_block(config: _Config) -> Parts:
    shared = config.count("shared_expert_intermediate_size", default=0.0, least=0)
    block = _moe(config, "num_experts", "moe_intermediate_size", shared, shared_gate=shared > 0)
    sparse = _last_of_every(config.count("decoder_sparse_step", default=1.0))
    dense = config.list_of("mlp_only_layers", int) or []
    return _either(lambda index: sparse(index) and index not in dense, block, _mlp(config))


def _qwen2_moe(config: _Config) -> list[Layers]:
    upper = _upper(config)
    kinds = _kinds(config, lambda index: index % 2 == 0 and not upper(index))
    return config.stack(_attention(config, kinds, qkv_bias=config.flag("qkv_bias", True)), _qwen_block(config))


def _qwen3_moe(config: _Config) -> list[Layers]:
    return config.stack(_attention(config, _kinds(config, _always(config)), qk_norm=True), _qwen_block(config))


def _qwen3_next(config: _Config) -> list[Layers]:
    linear = LinearAttention(
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_head_dim=config.count("linear_key_head_dim"),
        value_head_dim=config.count("linear_value_head_dim"),
        conv_kernel=config.count("linear_conv_kernel_dim"),
    )
    full = _last_of_every(config.count("full_attention_interval", default=4.0))
    kinds = _kinds(config, lambda index: not full(index), _LINEAR)
    attention = _attention(config, [_FULL] * config.layers, qk_norm=True, gated=True)
    if unknown := set(kinds) - {_FULL, _LINEAR}:
        raise config.refusal("layer_types", f"unknown '{min(unknown)}', expected {_FULL} or {_LINEAR}")
    mixer = _either(lambda index: kinds[index] == _LINEAR, lambda _: {"linear": linear}, attention)
    return config.stack(mixer, _qwen_block(config))


def _llama4(config: _Config) -> list[Layers]:
    block = _moe(config, "num_local_experts", "intermediate_size", shared=config.count("intermediate_size"))
    step = _last_of_every(config.count("interleave_moe_layer_step", default=1.0))
    routed = config.list_of("moe_layers", int)
    which: Which = step if routed is None else lambda index: index in routed
    feed = _either(which, block, _mlp(config, "intermediate_size_mlp"))
    full = _last_of_every(config.count("no_rope_layer_interval", default=4.0))
    rope = config.one_a_layer("no_rope_layers", int) or [not full(index) for index in range(config.layers)]
    chunks = config.get("attention_chunk_size") is not None
    kinds = _kinds(config, lambda index: chunks and bool(rope[index]), _CHUNKED)
    # The queries and keys are normalised without weights.
    return config.stack(_attention(config, kinds), feed)


def _glm4_moe(config: _Config) -> list[Layers]:
    mixer = _attention(config, qk_norm=config.flag("use_qk_norm"), output_bias=False)
    return config.stack(mixer, _deepseek_block(config, router_bias=True))


def _deepseek_block(config: _Config, router_bias: bool) -> Parts:
    shared = config.count("n_shared_experts", default=0.0, least=0) * config.count("moe_intermediate_size")
    config.derived["shared"] = "n_shared_experts x moe_intermediate_size"
    block = _moe(config, "n_routed_experts", "moe_intermediate_size", shared, router_bias=router_bias)
    first = config.count("first_k_dense_replace", least=0)
    every = _every(config.count("moe_layer_freq", default=1.0))
    return _either(lambda index: index >= first and every(index), block, _mlp(config))


def _deepseek(config: _Config, indexed: bool = False) -> list[Layers]:
    direct = config.get("q_lora_rank") is None and not indexed
    mla = Mla(
        heads=config.count("num_attention_heads"),
        q_lora_rank=0.0 if direct else config.count("q_lora_rank"),
        kv_lora_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
        direct_query=direct,
    )
    if indexed:
        indexer = Indexer(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))
        mla = replace(mla, indexer=indexer)
    config.uncounted("attention_bias")
    block = _deepseek_block(config, router_bias=config.get("topk_method") == "noaux_tc")
    return config.stack(lambda _: {"mla": mla}, block)


#: Letters of ``hybrid_override_pattern``, and the words that newer files have in their place.
_NEMOTRON = {"M": _LINEAR, "mamba": _LINEAR, "*": _FULL, "attention": _FULL, "-": "mlp", "E": "moe"}


def _nemotron_h(config: _Config) -> list[Layers]:
    name = "hybrid_override_pattern" if config.get("hybrid_override_pattern") else "layers_block_type"
    given = config.get(name)
    written = list(given) if isinstance(given, str) else config.list_of(name, str) or []
    kinds = [_NEMOTRON.get(kind, kind) for kind in written]
    unknown = set(kinds) - set(_NEMOTRON.values())
    if unknown or not kinds:
        found = f"unknown '{min(unknown)}'" if unknown else "required field is missing"
        raise config.refusal(name, f"{found}; expected M, -, * or E for each layer")
    if len(kinds) != config.count("num_hidden_layers", default=float(len(kinds))):
        raise config.refusal(name, f"{len(kinds)} entries for {config.layers} num_hidden_layers")
    parts: dict[str, Callable[[], Parts]] = {
        _LINEAR: lambda: _mamba2(config),
        _FULL: lambda: _attention(config, [_FULL]),
        "mlp": lambda: _mlp(config, matrices=2.0),
        "moe": lambda: _nemotron_experts(config),
    }
    made = {kind: Layers(1.0, 1.0, **parts[kind]()(0)) for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def _mamba2(config: _Config) -> Parts:
    mamba = Mamba2(
        heads=config.count("mamba_num_heads"),
        head_dim=config.count("mamba_head_dim"),
        groups=config.count("n_groups"),
        state=config.count("ssm_state_size"),
        conv_kernel=config.count("conv_kernel"),
    )
    return lambda _: {"mamba2": mamba}


def _nemotron_experts(config: _Config) -> Parts:
    if config.get("moe_latent_size") is not None:
        raise config.refusal("moe_latent_size", "experts of a latent width are not modelled")
    shared = config.count("moe_shared_expert_intermediate_size", least=0)
    return _moe(config, "n_routed_experts", "moe_intermediate_size", shared, router_bias=True, matrices=2.0)


def _jamba(config: _Config) -> list[Layers]:
    hidden = config.count("hidden_size")
    automatic = config.get("mamba_dt_rank") in (None, "auto")
    mamba = Mamba1(
        inner=config.count("mamba_expand") * hidden,
        state=config.count("mamba_d_state"),
        dt_rank=-(-hidden // 16) if automatic else config.count("mamba_dt_rank"),
        conv_kernel=config.count("mamba_d_conv"),
    )
    config.derived["inner"] = "mamba_expand x hidden_size"
    attention = _attention(config, [_FULL] * config.layers)
    mixer = _either(_periodic(config, "attn_layer"), attention, lambda _: {"mamba1": mamba})
    block = _mlp(config)
    if config.count("num_experts") > 1:
        experts = _moe(config, "num_experts", "intermediate_size")
        block = _either(_periodic(config, "expert_layer"), experts, block)
    return config.stack(mixer, block)


@dataclass(frozen=True)
class _Type:
    """How a model type reads, and what its configuration class says where a file is silent."""

    layers: Callable[[_Config], list[Layers]]
    defaults: Mapping[str, Any] = field(default_factory=dict)


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

_TYPES = {
    "llama": _Type(_dense),
    "phi3": _Type(partial(_dense, slides=_always)),
    "mistral": _Type(partial(_dense, slides=_always), {"sliding_window": 4096}),
    "qwen2": _Type(partial(_dense, slides=_upper, qkv_bias=True), _NO_WINDOW),
    "qwen3": _Type(partial(_dense, slides=_upper, qk_norm=True), {**_NO_WINDOW, "head_dim": 128}),
    "gemma2": _Type(partial(_dense, slides=_alternate, norms=4.0), {**_TIED, "head_dim": 256, "sliding_window": 4096}),
    "gemma3": _Type(partial(_dense, slides=_all_but_every, norms=4.0, qk_norm=True), {**_TIED, **_GEMMA3}),
    "mixtral": _Type(_mixtral),
    "qwen2_moe": _Type(_qwen2_moe, _NO_WINDOW),
    "qwen3_moe": _Type(_qwen3_moe, _NO_WINDOW),
    "qwen3_next": _Type(_qwen3_next, {"head_dim": 256}),
    "gpt_oss": _Type(_gpt_oss, {"head_dim": 64, "sliding_window": 128, "attention_bias": True}),
    "llama4": _Type(_llama4, {"head_dim": 128, "attention_chunk_size": 8192}),
    "minimax_m2": _Type(_minimax_m2, {"head_dim": 128}),
    "glm4_moe": _Type(_glm4_moe),
    "deepseek_v2": _Type(_deepseek),
    "deepseek_v3": _Type(_deepseek, {"topk_method": "noaux_tc"}),
    "deepseek_v32": _Type(partial(_deepseek, indexed=True), {"topk_method": "noaux_tc"}),
    "kimi_k2": _Type(_deepseek, {"topk_method": "noaux_tc"}),
    "nemotron_h": _Type(_nemotron_h, {"head_dim": 128}),
    "jamba": _Type(_jamba),
}
#: Text towers that read as another type.
_SAME_AS = {"qwen3_vl": "qwen3", "qwen3_vl_moe": "qwen3_moe"}

#: Fields that a Llama does not have; a model that has them is not one.
_NOT_A_LLAMA = re.compile(
    r"expert|moe|lora_rank|ssm|mamba|linear_(?!bias)|conv_kernel|hybrid|block_config|layer_types|sliding_window"
    r"|chunk_size$|multi_query|kv_shared|per_layer|index_topk|is_encoder_decoder|rwkv|recurrent"
)


def _as_llama(config: _Config, name: str) -> list[Layers]:
    """Read an unknown type as a Llama, unless a field says that it is something else."""
    unknown = f"model_type '{name}' is not known here"
    for key, value in config.fields.items():
        full = key == "layer_types" and isinstance(value, list) and all(kind == _FULL for kind in value)
        unused = "sliding_window" in key and config.get("use_sliding_window") is False
        if value and _NOT_A_LLAMA.search(key) and not (full or unused):
            raise config.refusal(key, f"{unknown}, and a Llama has no such field; write the model as YAML instead")
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if (value := config.get(key)) not in (None, "silu", "swish", "swiglu"):
            raise config.refusal(
                key, f"{unknown}, so whether {_shown(value)} is gated; write the model as YAML instead"
            )
    config.note(f"{unknown}: it is read as a Llama")
    if config.get("tie_word_embeddings") is None:
        config.note("tie_word_embeddings is not in the file: true is the default of transformers")
        config.fields["tie_word_embeddings"] = True
    return _dense(config)


# --- quantisation ------------------------------------------------------------------------------------------------

_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}
_ALGORITHMS = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "NVFP4": "fp4",
    "NVFP4_AWQ": "fp4",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "W8A16": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
}
_KEPT_LISTS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "bf16", "float": "bf16"}

#: Entries of these lists that change nothing: small tensors, what stays in BF16 anyway, and what is no text decoder.
_NOTHING = re.compile(r"norm|bias|mtp|vis|projector|audio|head|embed|(?:gate|router)(?:\.weight)?[.*$]*$")
#: Name within an entry: classes that it covers; the first that is found counts.
_MODULES = (
    (re.compile(r"shared_expert"), ("mlp",)),
    (re.compile(r"experts"), ("experts",)),
    (re.compile(r"attn|attention|mamba|conv1d|mixer\.(?:[qkvo]|in|out)_proj"), ("attention",)),
    (re.compile(r"(?:mlp|feed_forward|ffn|mixer)\..*(?:_proj|fc\d|w\d)"), ("mlp",)),
    (re.compile(r"mlp|feed_forward|ffn|moe"), ("mlp", "experts")),
    (re.compile(r"mixer|layers\.\d+[.*$]*$"), ("attention", "mlp", "experts")),
)
_A_PART = re.compile(r"_proj|conv1d|indexer|fc\d|w\d|experts\.\d")
#: A block counts as kept where its last matrix is: the lists name either all matrices of a block or not this one.
_LAST_MATRIX = re.compile(r"(?<![a-z])(?:o|out|down)(?:_proj|\W)|w2|fc2")


def _quantisation(config: _Config) -> _Config | None:
    for name in ("quantization_config", "compression_config"):
        if isinstance(found := config.get(name), dict) and found:
            return _Config(config.path, found, f"{config.where}{name}.")
    beside = config.path.parent / QUANTISATION
    if config.path.name == CONFIG and beside.is_file():
        found = _read(beside).get("quantization")
        if isinstance(found, dict) and found.get("quant_algo"):
            return _Config(beside, found, "quantization.")
    return None


def _storage(config: _Config, layers: list[Layers]) -> tuple[str, tuple[str, ...]]:
    """Return the precision of the weights, and the classes of tensors that stay in BF16."""
    entry = _quantisation(config)
    if entry is None:
        return _dtype(config), ("router", "embedding", "head")
    precision = _quantised(entry)
    kept = {"router", "embedding"} | _kept(config, entry, precision, layers)
    if not _head_is_quantised(config, entry):
        kept.add("head")
    if entry.get("quant_method") == "mxfp4":
        kept.add("attention")
    return precision, tuple(kind for kind in TENSOR_CLASSES if kind in kept)


def _head_is_quantised(config: _Config, entry: _Config) -> bool:
    """Whether the head is, which only GPTQModel and a list of exceptions without it can say."""
    if config.flag("tie_word_embeddings"):
        return False
    listed = entry.get("config_groups") is not None and entry.get("ignore") is not None
    return entry.flag("lm_head") or (listed and not any("head" in text for text in _entries(entry)))


def _dtype(config: _Config) -> str:
    written = config.get("torch_dtype") or config.get("dtype")
    if written is None:
        config.note("torch_dtype is not in the file: taken as bfloat16")
        return "bf16"
    name = str(written).removeprefix("torch.")
    if name not in _DTYPES:
        raise config.refusal("torch_dtype", f"unknown {_shown(written)}, expected one of {', '.join(_DTYPES)}")
    if name in ("float32", "float"):
        config.note(f"torch_dtype is {name}: taken as bfloat16, as engines serve it")
    return _DTYPES[name]


def _quantised(entry: _Config) -> str:
    method = entry.get("quant_method")
    if entry.get("quant_algo") is not None:
        return _one_of(entry, "quant_algo", _ALGORITHMS)
    if method == "compressed-tensors" or entry.get("config_groups") is not None:
        return _grouped(entry)
    if method in ("gptq", "awq"):
        if any(not name.startswith("-:") for name in _dynamic(entry)):
            raise entry.refusal("dynamic", "modules of several widths are not modelled")
        return _one_of(entry, "bits", {4: "int4", 8: "int8"})
    if method == "bitsandbytes":
        for name, precision in (("load_in_4bit", "int4"), ("load_in_8bit", "int8")):
            if entry.flag(name):
                return precision
        raise entry.refusal("load_in_4bit", "neither this nor load_in_8bit is true")
    others = dict.fromkeys(("gptq", "awq", "compressed-tensors", "modelopt", "bitsandbytes"), "")
    return _one_of(entry, "quant_method", {**_METHODS, **others})


def _dynamic(entry: _Config) -> list[str]:
    """Return the rules of GPTQModel by module; ``-:`` leaves a module as it is."""
    found = entry.get("dynamic")
    return list(found) if isinstance(found, dict) else []


def _one_of(entry: _Config, name: str, known: Mapping[Any, str]) -> str:
    value = entry.get(name)
    found = known.get(value) if type(value) in (int, str) else None
    if not found:
        expected = ", ".join(str(one) for one in known)
        raise entry.refusal(name, f"unknown {_shown(value)}, expected one of {expected}")
    return found


def _grouped(entry: _Config) -> str:
    """Return the one precision of ``config_groups``."""
    groups = entry.get("config_groups")
    found = set()
    for name, group in groups.items() if isinstance(groups, dict) else ():
        where = f"config_groups.{name}"
        weights = group.get("weights") if isinstance(group, dict) else None
        if not isinstance(weights, dict):
            raise entry.refusal(f"{where}.weights", "expected num_bits and type")
        if "Linear" not in (group.get("targets") or ["Linear"]):
            raise entry.refusal(f"{where}.targets", "only Linear is understood")
        width = f"{weights.get('num_bits')} bits of {weights.get('type')}"
        known = {
            "8 bits of float": "fp8",
            "4 bits of float": "mxfp4" if weights.get("group_size") == 32 else "fp4",
            "8 bits of int": "int8",
            "4 bits of int": "int4",
        }
        if width not in known:
            raise entry.refusal(f"{where}.weights", f"unknown {width}, expected one of {', '.join(known)}")
        found.add(known[width])
    if len(found) != 1:
        raise entry.refusal("config_groups", f"expected one precision, found {', '.join(sorted(found)) or 'none'}")
    return found.pop()


def _kept(config: _Config, entry: _Config, precision: str, layers: list[Layers]) -> set[str]:
    """Return the classes that most layers leave unquantised, and note where only some do."""
    holders = {
        "attention": {i for i, one in enumerate(layers) if _has_mixer(one)},
        "mlp": {i for i, one in enumerate(layers) if one.mlp or (one.moe and one.moe.shared != 0)},
        "experts": {i for i, one in enumerate(layers) if one.moe},
    }
    whole: dict[str, set[int]] = {kind: set() for kind in holders}
    partly: set[str] = set()
    for text in _entries(entry):
        classes, is_whole, layer = _covered(text)
        for kind in classes:
            if is_whole:
                whole[kind] |= holders[kind] if layer is None else holders[kind] & {layer}
            elif holders[kind]:
                partly.add(kind)
    kept = {kind for kind, found in whole.items() if 2 * len(found) > len(holders[kind])}
    for kind, found in whole.items():
        if kind in kept and found != holders[kind]:
            config.note(f"{kind} counts as bf16: {len(found)} of {len(holders[kind])} layers leave it unquantised")
        elif kind not in kept and (found or kind in partly):
            config.note(f"{kind} counts as {precision}: some of it stays unquantised")
    return kept


def _has_mixer(one: Layers) -> bool:
    return any(part is not None for part in (one.attention, one.mla, one.linear, one.mamba1, one.mamba2))


def _entries(entry: _Config) -> Iterable[str]:
    for name in _KEPT_LISTS:
        yield from entry.list_of(name, str) or []
    yield from (name.removeprefix("-:") for name in _dynamic(entry))


def _covered(text: str) -> tuple[tuple[str, ...], bool, int | None]:
    """Return the classes that an entry of a list names, whether whole, and the one layer where it names one."""
    text = text.removeprefix("re:").replace("\\", "")
    layer = re.search(r"layers\.(\d{1,6})", text)
    if _NOTHING.search(text):
        return (), False, None
    classes = next((classes for pattern, classes in _MODULES if pattern.search(text)), ())
    is_whole = not _A_PART.search(text) or bool(_LAST_MATRIX.search(text))
    return classes, is_whole, int(layer[1]) if layer else None


# --- the whole file ----------------------------------------------------------------------------------------------


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error.__class__.__name__})") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is no JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: is no JSON that can be read") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected a mapping of fields")
    return raw


def _text_model(path: Path, raw: Mapping[str, Any]) -> _Config:
    """Return the fields of the text model: a multimodal file nests them."""
    shared = ("model_type", "quantization_config", "tie_word_embeddings", "torch_dtype", "dtype")
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(inner := raw.get(name), dict):
            outer = {key: raw[key] for key in shared if key in raw and inner.get(key) is None}
            config = _Config(path, {**inner, **outer}, f"{name}.")
            config.note("only the text model is read")
            return config
    return _Config(path, raw, "")


def _names(path: Path, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and Hugging Face id: those of the download cache, the folder, ``_name_or_path`` or the file."""
    folder = path.parent.resolve()
    cached = next((part for part in folder.parts if part.startswith("models--")), "")
    called = "/".join(cached.split("--", 2)[1:]) or str(raw.get("_name_or_path") or "")
    hf_id = called if re.fullmatch(r"\w[\w.-]*/[\w.-]+", called) else ""
    last = called.rstrip("/").rpartition("/")[2] or path.stem
    name = folder.name if path.name == CONFIG and not cached else last
    return name.casefold() or "model", hf_id


def _provenance(config: _Config, model: Model) -> dict[str, Provenance]:
    folder = f"{config.path.parent.resolve().name}/" if config.path.name == CONFIG else ""
    file = f"{folder}{config.path.name}"
    found = {}
    for path, _, _ in quantities(model):
        derived = config.derived.get(path.rpartition(".")[2], "")
        notes = [derived, *config.notes] if derived else config.notes
        found[path] = Provenance(SOURCE, "derived" if derived else "datasheet", file, "; ".join(notes))
    return found


def load(path: Path) -> Model:
    """Load the architecture of a ``config.json``, or of the folder that holds one.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Model

    Raises
    ------
    UserError
        One line that names the file, the field and the fix; also for what would be modelled as something else.
    """
    path = path / CONFIG if os.path.isdir(path) else path
    raw = _read(path)
    config = _text_model(path, raw)
    written = str(config.get("model_type") or "")
    kind = written.removesuffix("_text")
    known = _TYPES.get(_SAME_AS.get(kind, kind))
    config.defaults = known.defaults if known else {}
    layers = known.layers(config) if known else _as_llama(config, written)
    config.uncounted("mlp_bias", "use_bias", "mamba_proj_bias")
    if config.get("num_nextn_predict_layers") or config.get("num_mtp_modules"):
        config.note("the layers that predict several tokens are left out")
    precision, unquantised = _storage(config, layers)
    name, hf_id = _names(path, raw)
    model = Model(
        name=name,
        hf_id=hf_id,
        precision=precision,
        hidden=config.count("hidden_size"),
        vocab=config.count("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_context=config.count("max_position_embeddings"),
        layers=tuple(replace(one, count=float(count)) for one, count in Counter(layers).items()),
        unquantised=unquantised,
    )
    return replace(model, provenance=_provenance(config, model))

"""What people have in a folder: a configuration, an adapter, a GGUF file, Mistral's parameters, or something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.specs import gguf, huggingface
from perfmodel.specs.config import Config, shown
from perfmodel.specs.huggingface import SOURCE, Reading, read_json
from perfmodel.specs.storage import Stored
from perfmodel.specs.types import PRECISION_BYTES, TENSOR_CLASSES, Lora, Model, Provenance

ADAPTER, PARAMETERS, PIPELINE = "adapter_config.json", "params.json", "model_index.json"


def read(path: Path, load_model: Callable[[str], Model]) -> Reading:
    """Read the model that a path holds.

    Parameters
    ----------
    path : Path
        A file, or a folder.
    load_model : callable
        Loads the base model of an adapter by its name.

    Returns
    -------
    Reading

    Raises
    ------
    UserError
        One line that names the file and says what was found, and what is wrong with it or missing.
    """
    if path.is_dir():
        path = _of_folder(path)
    if path.name == ADAPTER:
        return _adapter(path, load_model)
    if path.name == PARAMETERS:
        return _parameters(path)
    if path.name == PIPELINE:
        raise UserError(_pipeline(path))
    if path.suffix == ".gguf":
        return _gguf(path)
    return huggingface.read(path)


def _of_folder(folder: Path) -> Path:
    """Return the file of a folder that says what is in it."""
    for name in (huggingface.CONFIG, ADAPTER, PARAMETERS, PIPELINE):
        if (folder / name).is_file():
            return folder / name
    files = sorted(part for part in folder.glob("*.gguf") if part.is_file())
    whole = [part for part in files if not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", part.name)]
    whole = [part for part in whole if "mmproj" not in part.name]
    if len(whole) == 1:
        return whole[0]
    if whole:
        raise UserError(f"{folder}: holds {len(whole)} GGUF models; give one of {', '.join(one.name for one in whole)}")
    names = sorted(part.name for part in folder.iterdir() if not part.name.startswith("."))
    found = f"only {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" if names else "nothing"
    raise UserError(f"{folder}: holds no config.json, {found}; copy the config.json of the model into it")


def _pipeline(path: Path) -> str:
    raw = read_json(path)
    parts = [name for name, value in raw.items() if isinstance(value, list)]
    called = raw.get("_class_name") or "a pipeline"
    return f"{path}: {called} of diffusers, made of {', '.join(parts) or 'nothing'}: only language models are modelled"


# --- adapters ----------------------------------------------------------------------------------------------------


def _adapter(path: Path, load_model: Callable[[str], Model]) -> Reading:
    """Read a LoRA adapter: its base model, with what the adapter adds."""
    config = Config(path, read_json(path))
    kind = config.get("peft_type")
    if kind != "LORA":
        raise config.refusal("peft_type", f"unknown {shown(kind)}, expected LORA")
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise config.refusal("base_model_name_or_path", "required field is missing; give the base model")
    beside = path.parent / base
    try:
        model = load_model(str(beside) if beside.exists() else base)
    except UserError as error:
        raise config.refusal(
            "base_model_name_or_path", f"the base model of this adapter is not found: {error}"
        ) from None
    rank = config.count("r")
    targets = _targets(config)
    patterns = config.get("rank_pattern")
    ranks = {name: float(value) for name, value in patterns.items()} if isinstance(patterns, dict) else {}
    replicated = sharded = 0.0
    met: set[str] = set()
    for name, inputs, outputs, count, row_parallel in _projections(model):
        if targets is not None and not any(_is_target(name, one) for one in targets):
            continue
        met.add(name)
        own = ranks.get(name, rank)
        # The side of the full width stays whole on each chip; the other is cut as the projection is.
        whole, cut = (own * outputs, own * inputs) if row_parallel else (own * inputs, own * outputs)
        replicated, sharded = replicated + count * whole, sharded + count * cut
    if not met:
        raise config.refusal("target_modules", f"none of {shown(targets)} is a projection of {model.name}")
    lora = Lora(replicated=replicated, sharded=sharded)
    note = f"a LoRA adapter of rank {rank:g} on {', '.join(sorted(met))}, over {model.name}"
    said = Provenance(SOURCE, "derived", f"{path.parent.name}/{path.name}", note)
    given = Provenance(SOURCE, "datasheet", f"{path.parent.name}/{path.name}", note)
    provenance = {**model.provenance, "lora.replicated": said, "lora.sharded": said, "lora.adapters": given}
    found = replace(model, name=path.parent.resolve().name.casefold() or model.name, lora=lora, provenance=provenance)
    used = {name: config.fields[name] for name in config.asked.values() if config.fields.get(name) is not None}
    return Reading(found, used, ())


def _targets(config: Config) -> list[str] | None:
    """Return the modules that an adapter changes; ``None`` is every linear one."""
    written = config.get("target_modules")
    if written == "all-linear":
        return None
    if isinstance(written, str):
        return [written]
    found = config.list_of("target_modules", str)
    if not found:
        raise config.refusal("target_modules", "required field is missing; give a list of modules")
    return found


def _is_target(name: str, target: str) -> bool:
    """Whether a module is one that an adapter names: by its last part, or by a regular expression."""
    if target.rpartition(".")[2] == name:
        return True
    try:
        return re.fullmatch(target, f"model.layers.0.self_attn.{name}") is not None or bool(
            re.fullmatch(target, f"model.layers.0.mlp.{name}")
        )
    except re.error:
        return False


def _projections(model: Model) -> list[tuple[str, float, float, float, bool]]:
    """Return name, inputs, outputs, layers and whether inputs are cut of the projections that an adapter can change."""
    hidden, matrices = float(model.hidden), []
    for run in model.layers:
        count = float(run.count)
        if (mixer := run.attention) is not None:
            queries = float(mixer.heads) * float(mixer.head_dim)
            keys = float(mixer.kv_heads) * float(mixer.head_dim)
            values = float(mixer.heads) * float(mixer.value_dim or mixer.head_dim)
            matrices += [
                ("q_proj", hidden, queries * (2.0 if mixer.gated else 1.0), count, False),
                ("k_proj", hidden, keys, count, False),
                ("v_proj", hidden, float(mixer.kv_heads) * float(mixer.value_dim or mixer.head_dim), count, False),
                ("o_proj", values, hidden, count, True),
            ]
        if (mla := run.mla) is not None:
            heads, rank = float(mla.heads), float(mla.q_lora_rank)
            width = heads * (float(mla.qk_nope_head_dim) + float(mla.qk_rope_head_dim))
            latent, values = float(mla.kv_lora_rank), heads * float(mla.v_head_dim)
            matrices += [
                ("q_a_proj", hidden, rank, count, False),
                ("q_b_proj", rank or hidden, width, count, False),
                ("kv_a_proj_with_mqa", hidden, latent + float(mla.qk_rope_head_dim), count, False),
                ("kv_b_proj", latent, heads * float(mla.qk_nope_head_dim) + values, count, False),
                ("o_proj", values, hidden, count, True),
            ]
        width = 0.0
        if run.mlp is not None:
            width, gated = float(run.mlp.intermediate), float(run.mlp.matrices) == 3
        elif run.moe is not None and float(run.moe.shared):
            width, gated = float(run.moe.shared), float(run.moe.matrices) == 3
        if width:
            matrices += [("gate_proj", hidden, width, count, False)] if gated else []
            matrices += [("up_proj", hidden, width, count, False), ("down_proj", width, hidden, count, True)]
    return matrices


# --- Mistral's and Meta's own files ------------------------------------------------------------------------------

_PARAMETERS = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "tied_embeddings": "tie_word_embeddings",
    "max_seq_len": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
}
_EXPERTS = {
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size",
    "num_shared_experts": "n_shared_experts",
    "first_k_dense_replace": "first_k_dense_replace",
}


def _parameters(path: Path) -> Reading:
    """Read ``params.json``, which Mistral and Meta publish with the weights in their own layout."""
    raw = read_json(path)
    fields = {_PARAMETERS.get(name, name): value for name, value in raw.items() if value is not None}
    notes = []
    config = Config(path, raw)
    if "intermediate_size" not in fields and raw.get("multiple_of") is not None:
        of, factor = config.count("multiple_of"), raw.get("ffn_dim_multiplier") or 1.0
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            raise config.refusal("ffn_dim_multiplier", f"expected a number, found {shown(factor)}")
        width = int(int(8 * config.count("dim") / 3) * float(factor))
        fields["intermediate_size"] = int(of * (-(-width // of)))
    experts = raw.get("moe")
    if isinstance(experts, dict):
        fields.update({_EXPERTS[name]: value for name, value in experts.items() if name in _EXPERTS})
    kind = "mistral"
    if raw.get("kv_lora_rank") is not None:
        kind = "deepseek_v3" if isinstance(experts, dict) else "minicpm3"
        fields.setdefault("topk_method", "greedy")
    elif isinstance(experts, dict):
        kind = "mixtral"
    fields["model_type"] = kind
    fields.setdefault("sliding_window", None)
    fields.setdefault("tie_word_embeddings", False)
    fields.setdefault("torch_dtype", "bfloat16")
    vision = raw.get("vision_encoder")
    if isinstance(vision, dict):
        fields["vision_config"] = {"model_type": "pixtral", **vision}
        fields["spatial_merge_size"] = vision.get("spatial_merge_size") or 1
    written = raw.get("quantization")
    if isinstance(written, dict):
        form = str(written.get("qformat_weight") or "")
        if not form.startswith("fp8"):
            raise config.refusal("quantization.qformat_weight", f"unknown {shown(form)}, expected fp8_e4m3")
        fields["quantization_config"] = {"quant_method": "fp8"}
    if "max_position_embeddings" not in fields:
        fields["max_position_embeddings"] = 32768
        notes.append("the file does not say the longest context: taken as 32,768 tokens")
    for name in ("moe", "vision_encoder", "quantization", "multiple_of", "ffn_dim_multiplier", "rope_scaling"):
        fields.pop(name, None)
    return huggingface.read_fields(path, fields, notes=("read from Mistral's or Meta's params.json", *notes))


# --- GGUF --------------------------------------------------------------------------------------------------------

#: Model types by the architecture that a GGUF file names.
_ARCHITECTURES = {
    "llama": "llama",
    "llama4": "llama4",
    "mistral3": "mistral",
    "qwen2": "qwen2",
    "qwen2vl": "qwen2",
    "qwen3": "qwen3",
    "qwen3vl": "qwen3",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    "qwen3vlmoe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "phi3": "phi3",
    "deepseek2": "deepseek_v3",
    "gpt-oss": "gpt_oss",
    "glm4": "glm4",
    "glm4moe": "glm4_moe",
    "granite": "granite",
    "command-r": "cohere",
    "cohere2": "cohere2",
    "exaone4": "exaone4",
    "olmo2": "olmo2",
    "smollm3": "smollm3",
    "starcoder2": "starcoder2",
    "seed_oss": "seed_oss",
}
_FIELDS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
}
#: Class of a tensor by its name; the first that is found counts.
_CLASSES = (
    (re.compile(r"^token_embd"), "embedding"),
    (re.compile(r"^output\.weight"), "head"),
    (re.compile(r"norm|\.bias$|rope_freqs|sinks"), ""),
    (re.compile(r"ffn_gate_inp"), "router"),
    (re.compile(r"_exps\."), "experts"),
    (re.compile(r"ffn_"), "mlp"),
    (re.compile(r"^blk\.\d+\.(?:attn|ssm|shortconv|indexer)"), "attention"),
)


def _gguf(path: Path) -> Reading:
    """Read a GGUF file: sizes by its fields, bytes by its tensors."""
    header = gguf.read_header(path)
    kind = header.fields.get("general.architecture")
    if kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise UserError(f"{path}: general.architecture: unknown {shown(kind)}, expected one of {known}")
    prefix = f"{kind}."
    said = {name.removeprefix(prefix): value for name, value in header.fields.items() if name.startswith(prefix)}
    fields: dict[str, Any] = {_FIELDS[name]: value for name, value in said.items() if name in _FIELDS}
    tensors = {tensor.name: tensor for tensor in header.tensors}
    for name, value in list(fields.items()):
        if isinstance(value, list) and len(set(value)) == 1:
            fields[name] = value[0]
    words = tensors.get("token_embd.weight")
    if words is not None:
        fields["vocab_size"] = words.sizes[-1]
    fields["model_type"] = _ARCHITECTURES[kind]
    if kind == "llama" and fields.get("num_experts"):
        fields["model_type"] = "mixtral"
    if kind == "deepseek2":
        rope = said.get("rope.dimension_count", 64)
        fields |= {
            "qk_rope_head_dim": rope,
            "qk_nope_head_dim": said.get("attention.key_length_mla", 192) - rope,
            "v_head_dim": said.get("attention.value_length_mla", said.get("attention.value_length", 128)),
        }
    fields["tie_word_embeddings"] = "output.weight" not in tensors
    fields["torch_dtype"] = "float16"
    if fields["model_type"] in ("qwen2", "qwen3"):
        fields["use_sliding_window"] = False
    fields = {name: value for name, value in fields.items() if value is not None}
    stored, mix = _stored(header)
    reading = huggingface.read_fields(
        path, fields, stored=stored, notes=(f"stored as {mix}, by the tensors of the file",)
    )
    _check_total(path, reading.model, header)
    return reading


def _stored(header: gguf.Header) -> tuple[Stored, str]:
    """Return how the tensors of a file are stored, class by class, and their types in words."""
    weights: dict[str, float] = {}
    sizes: dict[str, float] = {}
    types: dict[str, float] = {}
    for tensor in header.tensors:
        part = next((part for pattern, part in _CLASSES if pattern.search(tensor.name)), "")
        types[gguf.TYPES[tensor.type][0]] = types.get(gguf.TYPES[tensor.type][0], 0.0) + tensor.weights
        if part:
            weights[part] = weights.get(part, 0.0) + tensor.weights
            sizes[part] = sizes.get(part, 0.0) + tensor.stored
    means = {part: sizes[part] / weights[part] for part in weights}
    names = {part: _precision(mean, types) for part, mean in means.items()}
    most = max((part for part in names if part in ("attention", "mlp", "experts")), key=lambda part: weights[part])
    precision = names[most]
    unquantised = tuple(part for part in TENSOR_CLASSES if names.get(part, "fp16") in ("bf16", "fp16"))
    if precision in ("bf16", "fp16"):
        unquantised = ("router", "embedding", "head")
    classes = {part: name for part, name in names.items() if name != precision and part not in unquantised}
    elements = {part: mean for part, mean in means.items() if abs(mean / PRECISION_BYTES[names[part]] - 1) > 1e-3}
    whole = sum(types.values())
    mix = ", ".join(
        f"{share / whole:.0%} {name}"
        for name, share in sorted(types.items(), key=lambda one: -one[1])
        if share / whole >= 0.005
    )
    return Stored(precision, unquantised, classes, elements, ""), mix


def _precision(mean: float, types: Mapping[str, float]) -> str:
    """Return the precision that comes nearest to so many bytes a weight; all of them compute in 16 bits."""
    if mean >= 1.5:
        return "bf16" if types.get("BF16") else "fp16"
    if mean > 0.75:
        return "int8"
    return "mxfp4" if types.get("MXFP4") and mean < 0.56 else "int4"


def _check_total(path: Path, model: Model, header: gguf.Header) -> None:
    """Refuse a file whose tensors do not add up to what its fields describe."""
    from perfmodel.specs.weights import total_parameters

    weights = sum(tensor.weights for tensor in header.tensors if not tensor.name.startswith("rope_freqs"))
    described = float(total_parameters(model))
    if abs(weights / described - 1) > 0.01:
        raise UserError(
            f"{path}: its tensors hold {weights / 1e9:.3f} billion weights, its fields describe {described / 1e9:.3f}; "
            "write the model as YAML instead"
        )

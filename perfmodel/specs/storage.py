"""How a checkpoint stores its weights and asks for its cache: quantisation blocks of the tools that write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfmodel.specs.config import Config, shown
from perfmodel.specs.formats import ALGORITHMS, BF16, Format, one_of, plain_format, sized, weight_format
from perfmodel.specs.quantization import HEAD, Rule, entries, rules_of
from perfmodel.specs.types import PRECISION_BYTES, TENSOR_CLASSES, Layers

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "bf16", "float": "bf16"}


@dataclass(frozen=True)
class Stored:
    """How the weights are stored, and the cache that the checkpoint asks for.

    Attributes
    ----------
    precision : str
        Of most of the weights.
    unquantised : tuple of str
        Classes of tensors that stay in 16 bits.
    classes : dict of str to str
        Precision of the classes that have another.
    element_bytes : dict of str to float
        Bytes of a weight by class, where they are not those of its precision [B].
    cache : str
        Precision of the cache that the checkpoint asks for; empty where it says nothing.
    """

    precision: str
    unquantised: tuple[str, ...]
    classes: Mapping[str, str]
    element_bytes: Mapping[str, float]
    cache: str


def read_storage(config: Config, blocks: Sequence[Config], layers: Sequence[Layers]) -> Stored:
    """Return how a checkpoint stores its weights.

    Parameters
    ----------
    config : Config
        Of the model.
    blocks : sequence of Config
        What it says of quantisation, the binding block first.
    layers : sequence of Layers
        One after the other.

    Returns
    -------
    Stored
    """
    cache = next((found for block in blocks if (found := _cache(block))), "")
    if not blocks:
        return Stored(_dtype(config), ("router", "embedding", "head"), {}, {}, cache)
    entry = blocks[0]
    default, rules = rules_of(config, entry)
    expert = config.get("expert_dtype") or entry.get("expert_dtype")
    mixed = entry.get("quant_algo") == "MIXED_PRECISION"
    if expert is not None and not mixed:
        formats = {
            "fp4": plain_format("mxfp4"),
            "mxfp4": plain_format("mxfp4"),
            "fp8": plain_format("fp8"),
            "bf16": BF16,
        }
        if expert not in formats:
            raise config.refusal("expert_dtype", f"unknown {shown(expert)}, expected one of {', '.join(formats)}")
        rules = [*rules, Rule(("experts",), None, "", formats[expert])]
    head = _head(config, entry, default)
    return _sum_up(config, default, rules, head, layers, cache)


def _sum_up(
    config: Config, default: Format, rules: Sequence[Rule], head: Format, layers: Sequence[Layers], cache: str
) -> Stored:
    """Return the precision of each class of tensors as most of its weights have it, and their mean bytes."""
    weights: dict[str, dict[Format, float]] = {}
    by_layer: dict[int, list[Rule]] = {}
    for rule in rules:
        by_layer.setdefault(-1 if rule.layer is None else rule.layer, []).append(rule)
    step = len(layers) / config.layers
    for index, run in enumerate(layers):
        at = int(index // step)
        for kind, part, size in _matrices(config, run):
            said = [rule for rule in (*by_layer.get(-1, ()), *by_layer.get(at, ())) if _covers(rule, kind, part)]
            stored = said[-1].format if said else default
            shares = weights.setdefault(kind, {})
            shares[stored] = shares.get(stored, 0.0) + size
    unquantised, classes, elements = {"router", "embedding"}, {}, {}
    totals: dict[str, float] = {}
    for shares in weights.values():
        for stored, size in shares.items():
            totals[stored.precision] = totals.get(stored.precision, 0.0) + size
    quantised = {name: size for name, size in totals.items() if name != "bf16"}
    precision = max(quantised, key=lambda name: quantised[name]) if quantised else default.precision
    for kind, shares in weights.items():
        total = sum(shares.values())
        most = _most(shares)
        mean = sum(stored.element * size for stored, size in shares.items()) / total
        if most == "bf16":
            unquantised.add(kind)
        elif most != precision:
            classes[kind] = most
        if abs(mean / PRECISION_BYTES[most] - 1) > 1e-4:
            elements[kind] = mean
        other = 1 - sum(size for stored, size in shares.items() if stored.precision == most) / total
        if other > 1e-3:
            config.note(f"{kind} counts as {most}: {other:.0%} of it is stored otherwise, so its bytes are the mean")
    if head.precision == "bf16":
        unquantised.add("head")
    elif head.precision != precision:
        classes["head"] = head.precision
    if head.precision != "bf16" and abs(head.element / PRECISION_BYTES[head.precision] - 1) > 1e-4:
        elements["head"] = head.element
    kept = tuple(kind for kind in TENSOR_CLASSES if kind in unquantised)
    return Stored(precision, kept, classes, elements, cache)


def _most(shares: Mapping[Format, float]) -> str:
    by_name: dict[str, float] = {}
    for found, size in shares.items():
        by_name[found.precision] = by_name.get(found.precision, 0.0) + size
    return max(by_name, key=lambda name: by_name[name])


def _covers(rule: Rule, kind: str, part: str) -> bool:
    return kind in rule.classes and (not rule.part or not part or rule.part == part)


def _matrices(config: Config, run: Layers) -> Iterator[tuple[str, str, float]]:
    """Give class, name and weights of the matrices of a layer; a mixer without names is one matrix."""
    hidden = float(config.count("hidden_size"))
    if (mixer := run.attention) is not None:
        heads, kv = float(mixer.heads) * float(mixer.head_dim), float(mixer.kv_heads) * float(mixer.head_dim)
        values = float(mixer.kv_heads) * float(mixer.value_dim or mixer.head_dim)
        yield "attention", "q_proj", hidden * heads * (2.0 if mixer.gated else 1.0)
        if not mixer.shares_cache:
            yield "attention", "k_proj", hidden * kv
            yield "attention", "v_proj", 0.0 if mixer.keys_are_values else hidden * values
        yield "attention", "o_proj", float(mixer.heads) * float(mixer.value_dim or mixer.head_dim) * hidden
    elif (mla := run.mla) is not None:
        heads, width = float(mla.heads), float(mla.qk_nope_head_dim) + float(mla.qk_rope_head_dim)
        rank, latent = float(mla.q_lora_rank), float(mla.kv_lora_rank)
        yield "attention", "q_a_proj", hidden * rank
        yield "attention", "q_b_proj", (hidden if mla.direct_query else rank) * heads * width
        yield "attention", "kv_a_proj_with_mqa", hidden * (latent + float(mla.qk_rope_head_dim))
        yield "attention", "kv_b_proj", latent * heads * (float(mla.qk_nope_head_dim) + float(mla.v_head_dim))
        yield "attention", "o_proj", heads * float(mla.v_head_dim) * hidden
    elif (linear := run.linear) is not None:
        keys = float(linear.key_heads) * float(linear.key_head_dim)
        values = float(linear.value_heads) * float(linear.value_head_dim)
        yield "attention", "in_proj_qkv", hidden * (2 * keys + values)
        yield "attention", "in_proj_z", hidden * values
        yield "attention", "in_proj_ba", hidden * 2 * float(linear.value_heads)
        yield "attention", "out_proj", values * hidden
    elif (mamba := run.mamba2) is not None:
        inner, mixed = float(mamba.heads) * float(mamba.head_dim), 2 * float(mamba.groups) * float(mamba.state)
        yield "attention", "in_proj", hidden * (2 * inner + mixed + float(mamba.heads))
        yield "attention", "out_proj", inner * hidden
    elif any(part is not None for part in (run.mamba1, run.recurrent, run.compressed)):
        yield "attention", "", hidden * hidden
    if run.mlp is not None:
        yield from _block("mlp", hidden, float(run.mlp.intermediate), float(run.mlp.matrices))
    if (moe := run.moe) is not None:
        width = float(moe.latent) if moe.latent is not None else hidden
        each = float(moe.experts) * float(moe.intermediate)
        yield from _block("experts", width, each, float(moe.matrices))
        if float(moe.shared):
            yield from _block("mlp", hidden, float(moe.shared), float(moe.matrices))


def _block(kind: str, hidden: float, width: float, matrices: float) -> Iterator[tuple[str, str, float]]:
    names = ("gate_proj", "up_proj", "down_proj") if matrices == 3 else ("up_proj", "down_proj")
    for name in names:
        yield kind, name, hidden * width


# --- what a block says -------------------------------------------------------------------------------------------


# --- ends and cache ----------------------------------------------------------------------------------------------


def _head(config: Config, entry: Config, default: Format) -> Format:
    """Return how the head is stored: quantised where a rule names it, or a list of exceptions leaves it out."""
    if config.flag("tie_word_embeddings"):
        return BF16
    listed = entry.get("quantized_layers")
    for name, said in listed.items() if isinstance(listed, dict) else ():
        if HEAD.search(name):
            inner = Config(entry.path, said, f"{entry.where}quantized_layers.{name}.")
            return sized(inner, one_of(inner, "quant_algo", ALGORITHMS))
    if entry.get("quant_algo") == "MIXED_PRECISION":
        return BF16
    groups = entry.get("config_groups")
    if isinstance(groups, dict):
        for name, group in groups.items():
            named = [inner for inner in group.get("targets") or [] if HEAD.search(inner.removeprefix("re:"))]
            if named and isinstance(group.get("weights"), dict):
                where = f"{entry.where}config_groups.{name}.weights"
                return weight_format(Config(entry.path, group["weights"], f"{where}."), where)
    leaves = any("head" in text for text in entries(entry))
    grouped = groups is not None and entry.get("ignore") is not None
    return default if entry.flag("lm_head") or (grouped and not leaves) else BF16


def _dtype(config: Config) -> str:
    written = config.get("torch_dtype") or config.get("dtype")
    if written is None:
        config.note("torch_dtype is not in the file: taken as bfloat16")
        return "bf16"
    name = str(written).removeprefix("torch.")
    if name not in _DTYPES:
        raise config.refusal("torch_dtype", f"unknown {shown(written)}, expected one of {', '.join(_DTYPES)}")
    if name in ("float32", "float"):
        config.note(f"torch_dtype is {name}: taken as bfloat16, as engines serve it")
    return _DTYPES[name]


def _cache(entry: Config) -> str:
    """Return the precision of the cache that a quantisation asks for."""
    written = entry.get("kv_cache_quant_algo")
    if written is None:
        written = entry.get("kv_cache_scheme")
    if written is None:
        written = _quark_cache(entry)
    if isinstance(written, dict):
        width = (written.get("num_bits"), written.get("type"))
        known = {(8, "float"): "fp8", (4, "float"): "fp4", (8, "int"): "int8"}
        if width not in known:
            raise entry.refusal("kv_cache_scheme", f"unknown {width[0]} bits of {width[1]}, expected 8 bits of float")
        return known[width]
    if written in (None, "", "NONE", "none", "auto"):
        return ""
    names = {"fp8": "fp8", "nvfp4": "fp4", "int8": "int8"}
    if not isinstance(written, str) or written.casefold() not in names:
        raise entry.refusal("kv_cache_quant_algo", f"unknown {shown(written)}, expected one of FP8, NVFP4, INT8")
    return names[written.casefold()]


def _quark_cache(entry: Config) -> str | None:
    """Return FP8 where Quark says that keys and values leave their projections so."""
    for name in ("kv_cache_quant_config", "layer_quant_config"):
        found = entry.get(name)
        for module, said in found.items() if isinstance(found, dict) else ():
            outputs = said.get("output_tensors") if isinstance(said, dict) else None
            if re.search(r"[kv]_proj|kv", module) and isinstance(outputs, dict):
                return "fp8" if str(outputs.get("dtype")).startswith("fp8") else None
    return None

"""How a checkpoint stores its weights and asks for its cache: quantisation blocks of the tools that write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfmodel.specs.config import Config, shown
from perfmodel.specs.types import PRECISION_BYTES, TENSOR_CLASSES, Layers


class Format(NamedTuple):
    """A precision, and the bytes of a weight with its share of the scales [B]."""

    precision: str
    element: float


def _plain(precision: str) -> Format:
    return Format(precision, PRECISION_BYTES[precision])


BF16 = _plain("bf16")
#: FP8 with an exponent for 32 weights.
MXFP8 = Format("fp8", 1 + 1 / 32)

_ALGORITHMS = {
    "FP8": _plain("fp8"),
    "FP8_PB_WO": _plain("fp8"),
    "FP8_PB_REAL": _plain("fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": _plain("fp8"),
    "FP8_BLOCK_SCALES": _plain("fp8"),
    "MXFP8": MXFP8,
    "NVFP4": _plain("fp4"),
    "NVFP4_AWQ": _plain("fp4"),
    "NVFP4_SVDQUANT": _plain("fp4"),
    "W4A16_NVFP4": _plain("fp4"),
    "W4A8_NVFP4_FP8": _plain("fp4"),
    "MXFP4": _plain("mxfp4"),
    "W4A16_MXFP4": _plain("mxfp4"),
    "W4A8_MXFP4_FP8": _plain("mxfp4"),
    "W4A8_MXFP4_MXFP8": _plain("mxfp4"),
    "W4A16_AWQ": _plain("int4"),
    "W4A8_AWQ": _plain("int4"),
    "W4A16": _plain("int4"),
    "W8A16": _plain("int8"),
    "INT8_SQ": _plain("int8"),
    "W8A8_SQ_PER_CHANNEL": _plain("int8"),
    "NONE": BF16,
}
#: Methods that say their precision by their name.
_METHODS = {"fp8": _plain("fp8"), "fbgemm_fp8": _plain("fp8"), "mxfp4": _plain("mxfp4"), "eetq": _plain("int8")}
_KEPT_LISTS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude",
    "exclude_modules",
    "exclude_layers",
    "llm_int8_skip_modules",
)
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "bf16", "float": "bf16"}

#: Entries of these lists that change nothing: small tensors, and what is no text decoder.
_NOTHING = re.compile(r"norm|bias|mtp|vis|projector|audio|embed|patch_merge|(?:gate|router)(?:\.weight)?[.*$]*$")
_HEAD = re.compile(r"(?:^|[._])(?:lm_)?head[*$]*$")
#: Name within an entry: classes that it covers; the first that is found counts.
_MODULES = (
    (re.compile(r"shared_expert"), ("mlp",)),
    (re.compile(r"experts"), ("experts",)),
    (re.compile(r"attn|attention|mamba|conv1d|mixer\.(?:[qkvo]|in|out)_proj"), ("attention",)),
    (re.compile(r"(?:mlp|feed_forward|ffn|mixer)\..*(?:_proj|fc\d|w\d)"), ("mlp",)),
    (re.compile(r"mlp|feed_forward|ffn|moe"), ("mlp", "experts")),
    (re.compile(r"(?<![a-z])(?:[qkvo]|qkv|q_[ab]|kv_[ab])_proj"), ("attention",)),
    (re.compile(r"(?:gate|up|down|gate_up)_proj"), ("mlp", "experts")),
    (re.compile(r"mixer|layers\.\d+[.*$]*$"), ("attention", "mlp", "experts")),
)
_PART = re.compile(r"(\w*_proj\w*|conv1d|indexer|fc\d|w\d)[.*$]*(?:\.weight)?$")
#: Where a regular expression names several matrices, its last one stands for the block.
_LAST_MATRIX = re.compile(r"(?<![a-z])(?:o|out|down)(?:_proj|\W)|w2|fc2")
_LINEAR = "Linear"


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


@dataclass(frozen=True)
class _Rule:
    """What a quantisation says of modules: those of some classes, of one layer or all, and of one matrix or all."""

    classes: tuple[str, ...]
    layer: int | None
    part: str
    format: Format


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
    default, rules = _rules(config, entry)
    expert = config.get("expert_dtype") or entry.get("expert_dtype")
    mixed = entry.get("quant_algo") == "MIXED_PRECISION"
    if expert is not None and not mixed:
        formats = {"fp4": _plain("mxfp4"), "mxfp4": _plain("mxfp4"), "fp8": _plain("fp8"), "bf16": BF16}
        if expert not in formats:
            raise config.refusal("expert_dtype", f"unknown {shown(expert)}, expected one of {', '.join(formats)}")
        rules = [*rules, _Rule(("experts",), None, "", formats[expert])]
    head = _head(config, entry, default)
    return _sum_up(config, default, rules, head, layers, cache)


def _sum_up(
    config: Config, default: Format, rules: Sequence[_Rule], head: Format, layers: Sequence[Layers], cache: str
) -> Stored:
    """Return the precision of each class of tensors as most of its weights have it, and their mean bytes."""
    weights: dict[str, dict[Format, float]] = {}
    by_layer: dict[int, list[_Rule]] = {}
    for rule in rules:
        by_layer.setdefault(-1 if rule.layer is None else rule.layer, []).append(rule)
    step = len(layers) / config.layers
    for index, run in enumerate(layers):
        at = int(index // step)
        for kind, part, size in _matrices(config, run):
            said = [rule for rule in (*by_layer.get(-1, ()), *by_layer.get(at, ())) if _covers(rule, kind, part)]
            found = said[-1].format if said else default
            shares = weights.setdefault(kind, {})
            shares[found] = shares.get(found, 0.0) + size
    unquantised, classes, elements = {"router", "embedding"}, {}, {}
    totals: dict[str, float] = {}
    for shares in weights.values():
        for found, size in shares.items():
            totals[found.precision] = totals.get(found.precision, 0.0) + size
    quantised = {name: size for name, size in totals.items() if name != "bf16"}
    precision = max(quantised, key=lambda name: quantised[name]) if quantised else default.precision
    for kind, shares in weights.items():
        total = sum(shares.values())
        most = _most(shares)
        mean = sum(found.element * size for found, size in shares.items()) / total
        if most == "bf16":
            unquantised.add(kind)
        elif most != precision:
            classes[kind] = most
        if abs(mean / PRECISION_BYTES[most] - 1) > 1e-4:
            elements[kind] = mean
        other = 1 - sum(size for found, size in shares.items() if found.precision == most) / total
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


def _covers(rule: _Rule, kind: str, part: str) -> bool:
    return kind in rule.classes and (not rule.part or not part or rule.part == part)


def _matrices(config: Config, run: Layers) -> Iterator[tuple[str, str, float]]:
    """Give class, name and weights of the matrices of a layer; a mixer without names is one matrix."""
    hidden = float(config.count("hidden_size"))
    if (one := run.attention) is not None:
        heads, kv = float(one.heads) * float(one.head_dim), float(one.kv_heads) * float(one.head_dim)
        values = float(one.kv_heads) * float(one.value_dim or one.head_dim)
        yield "attention", "q_proj", hidden * heads * (2.0 if one.gated else 1.0)
        if not one.shares_cache:
            yield "attention", "k_proj", hidden * kv
            yield "attention", "v_proj", 0.0 if one.keys_are_values else hidden * values
        yield "attention", "o_proj", float(one.heads) * float(one.value_dim or one.head_dim) * hidden
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


def _rules(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Return the format of linear layers, and what is said of some of them; the last that covers one counts."""
    method = entry.get("quant_method")
    if entry.get("quant_algo") == "MIXED_PRECISION":
        return _mixed(config, entry)
    readers = {"quark": _quark, "auto-round": _auto_round, "torchao": _torchao}
    if isinstance(method, str) and method in readers:
        default, rules = readers[method](config, entry)
    elif entry.get("quant_algo") is not None:
        algorithm = _one_of(entry, "quant_algo", _ALGORITHMS)
        default, rules = _sized(entry, algorithm), []
    elif method == "compressed-tensors" or entry.get("config_groups") is not None:
        default, rules = _grouped(config, entry)
    elif method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        default, rules = _integers(entry, _one_of(entry, "bits", {4: 4, 8: 8})), _dynamic(config, entry)
    elif method == "bitsandbytes":
        default, rules = _bitsandbytes(entry), []
    else:
        others = ("gptq", "awq", "compressed-tensors", "modelopt", "bitsandbytes", *readers)
        default = _one_of(entry, "quant_method", {**_METHODS, **dict.fromkeys(others, None)})
        rules = []
    if method == "mxfp4":
        # Only experts are stored so, whatever the list of exceptions says.
        rules = [*rules, _Rule(("attention",), None, "", BF16)]
    return default, [*rules, *_kept(config, entry)]


def _kept(config: Config, entry: Config) -> list[_Rule]:
    found = []
    for text in _entries(entry):
        classes, part, layer = _covered(config, text)
        if classes:
            found.append(_Rule(classes, layer, part, BF16))
    return found


def _entries(entry: Config) -> Iterator[str]:
    for name in _KEPT_LISTS:
        yield from entry.list_of(name, str) or []
    dynamic = entry.get("dynamic")
    for name in dynamic if isinstance(dynamic, dict) else ():
        if name.startswith("-:"):
            yield name.removeprefix("-:")


def _covered(config: Config, text: str) -> tuple[tuple[str, ...], str, int | None]:
    """Return the classes that an entry names, the one matrix where it names one, and the one layer."""
    text = text.removeprefix("re:").replace("\\", "")
    layer = re.search(r"layers\.(\d{1,6})", text)
    at = int(layer[1]) if layer else None
    if _NOTHING.search(text) or _HEAD.search(text):
        return (), "", None
    classes = next((classes for pattern, classes in _MODULES if pattern.search(text)), ())
    if config.experts_apart and classes == ("mlp", "experts"):
        classes = ("mlp",)
    part = _PART.search(text)
    if "|" in text or part is None:
        # A list of alternatives covers the block where it covers its last matrix.
        whole = part is None or bool(_LAST_MATRIX.search(text))
        return (classes, "", at) if whole else ((), "", None)
    return classes, _canonical(part[1]), at


#: Other names of a matrix.
_SAME = {
    "out_proj": "out_proj",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "fc1": "up_proj",
    "fc2": "down_proj",
    "in_proj_qkvz": "in_proj_qkv",
    "in_proj_b": "in_proj_ba",
    "in_proj_a": "in_proj_ba",
    "q_a_proj_with_mqa": "q_a_proj",
    "dense": "o_proj",
}


def _canonical(part: str) -> str:
    return _SAME.get(part, part)


def _mixed(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Read ModelOpt's list of which layer has which algorithm; what it does not name stays as it was."""
    listed = entry.get("quantized_layers")
    if not isinstance(listed, dict) or not listed:
        raise entry.refusal("quantized_layers", "MIXED_PRECISION needs a mapping of layers to algorithms")
    default = _plain("fp8") if entry.get("quant_method") == "fp8" else BF16
    rules = []
    for name, said in listed.items():
        one = Config(entry.path, said if isinstance(said, dict) else {}, f"{entry.where}quantized_layers.{name}.")
        algorithm = _sized(one, _one_of(one, "quant_algo", _ALGORITHMS))
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(_Rule(classes, layer, part, algorithm))
    return default, rules


def _sized(entry: Config, plain: Format) -> Format:
    """Return a format with the size of groups that an entry gives."""
    size = entry.get("group_size")
    if plain.precision not in ("int4", "int8") or size is None:
        return plain
    return _integers(entry, 4 if plain.precision == "int4" else 8)


def _integers(entry: Config, bits: int) -> Format:
    """Return the format of integers with an FP16 scale a group, and a zero point where they are not symmetric."""
    precision = "int4" if bits == 4 else "int8"
    size = entry.get("group_size")
    if size is None and bits == 4 and entry.get("strategy") not in ("channel", "tensor"):
        size = 128
    if size is None or size == -1:
        return Format(precision, bits / 8)
    group = entry.count("group_size", default=128.0)
    asymmetric = entry.get("zero_point") is True or entry.get("sym") is False or entry.get("symmetric") is False
    return Format(precision, bits / 8 + (2 + (bits / 8 if asymmetric else 0.0)) / group)


def _bitsandbytes(entry: Config) -> Format:
    """Return NF4 or FP4 with an FP32 scale for 64 weights, itself in 8 bits where it is quantised twice; or INT8."""
    if entry.flag("load_in_4bit"):
        twice = entry.flag("bnb_4bit_use_double_quant")
        return Format("int4", 0.5 + (1 / 64 + 4 / (64 * 256) if twice else 4 / 64))
    if entry.flag("load_in_8bit"):
        return _plain("int8")
    raise entry.refusal("load_in_4bit", "neither this nor load_in_8bit is true")


def _one_of(entry: Config, name: str, known: Mapping[Any, Any]) -> Any:
    value = entry.get(name)
    found = known.get(value) if type(value) in (int, str) else None
    if not found:
        expected = ", ".join(str(one) for one in known)
        raise entry.refusal(name, f"unknown {shown(value)}, expected one of {expected}")
    return found


def _weights(entry: Config, known_as: str) -> Format:
    """Return the format of the ``weights`` of a group of compressed-tensors."""
    bits, kind, size = entry.get("num_bits"), entry.get("type"), entry.get("group_size")
    if bits == 8 and kind == "float":
        return MXFP8 if size == 32 else _plain("fp8")
    if bits == 4 and kind == "float":
        return _plain("mxfp4" if size == 32 else "fp4")
    if bits in (4, 8) and kind == "int":
        return _integers(entry, int(bits)) if size is not None or bits == 4 else _plain("int8")
    known = "8 bits of float, 4 bits of float, 8 bits of int, 4 bits of int"
    raise entry.refusal_at(known_as, f"unknown {bits} bits of {kind}, expected one of {known}")


def _grouped(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Read ``config_groups``: one of all linear layers, and others of the modules that they name."""
    groups = entry.get("config_groups")
    defaults: dict[Format, None] = {}
    rules: list[_Rule] = []
    for name, group in groups.items() if isinstance(groups, dict) else ():
        where = f"config_groups.{name}"
        if not isinstance(group, dict):
            raise entry.refusal(f"{where}.weights", "expected num_bits and type")
        if "weights" in group and group["weights"] is None:
            continue
        if not isinstance(group.get("weights"), dict):
            raise entry.refusal(f"{where}.weights", "expected num_bits and type")
        found = _weights(
            Config(entry.path, group["weights"], f"{entry.where}{where}.weights."), f"{entry.where}{where}.weights"
        )
        targets = group.get("targets") or [_LINEAR]
        if not isinstance(targets, list) or not all(isinstance(one, str) for one in targets):
            raise entry.refusal(f"{where}.targets", "expected a list of modules")
        if _LINEAR in targets:
            defaults[found] = None
            continue
        for target in targets:
            classes, part, layer = _covered(config, target)
            if not classes and not (_NOTHING.search(target) or _HEAD.search(target)):
                raise entry.refusal(
                    f"{where}.targets", f"'{target}' is no module that is known; expected {_LINEAR} or names of modules"
                )
            if classes:
                rules.append(_Rule(classes, layer, part, found))
    if len(defaults) > 1 or not (defaults or rules):
        names = ", ".join(sorted(one.precision for one in defaults)) or "none"
        raise entry.refusal("config_groups", f"expected one precision, found {names}")
    return next(iter(defaults), BF16), rules


def _dynamic(config: Config, entry: Config) -> list[_Rule]:
    """Read GPTQModel's rules by module: other bits or another size of groups."""
    found = entry.get("dynamic")
    rules = []
    for name, said in found.items() if isinstance(found, dict) else ():
        if name.startswith("-:"):
            continue
        one = Config(
            entry.path, {**entry.fields, **(said if isinstance(said, dict) else {})}, f"{entry.where}dynamic.{name}."
        )
        classes, part, layer = _covered(config, name.removeprefix("+:"))
        if classes:
            rules.append(_Rule(classes, layer, part, _integers(one, _one_of(one, "bits", {4: 4, 8: 8}))))
    return rules


def _auto_round(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Read Intel's auto-round: bits and size of groups, and other ones by module."""

    def format_of(one: Config) -> Format:
        kind, bits = str(one.get("data_type") or "int"), one.get("bits")
        if bits in (16, 32):
            return BF16
        if kind.startswith("mx_fp") or kind.startswith("mxfp"):
            return _plain("mxfp4") if bits == 4 else MXFP8
        if kind.startswith("nv_fp") or kind.startswith("nvfp"):
            return _plain("fp4")
        if kind.startswith("fp") and bits == 8:
            return _plain("fp8")
        return _integers(one, _one_of(one, "bits", {4: 4, 8: 8}))

    rules = []
    extra = entry.get("extra_config")
    for name, said in extra.items() if isinstance(extra, dict) else ():
        one = Config(
            entry.path,
            {**entry.fields, **(said if isinstance(said, dict) else {})},
            f"{entry.where}extra_config.{name}.",
        )
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(_Rule(classes, layer, part, format_of(one)))
    return format_of(entry), rules


def _quark(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Read AMD's Quark: a block for all layers, and others by name."""

    def format_of(said: Any, where: str) -> Format:
        one = Config(entry.path, said if isinstance(said, dict) else {}, f"{entry.where}{where}.")
        weight = one.get("weight")
        if isinstance(weight, list) and weight:
            weight = weight[0]
        if weight is None:
            return BF16
        inner = Config(entry.path, weight if isinstance(weight, dict) else {}, f"{entry.where}{where}.weight.")
        kind, size = str(inner.get("dtype")), inner.get("group_size")
        if kind.startswith("fp8"):
            return MXFP8 if size == 32 else _plain("fp8")
        if kind.startswith("fp4") or kind == "mx":
            return _plain("fp4" if size == 16 else "mxfp4")
        if kind in ("int4", "uint4"):
            asymmetric = {"symmetric": False} if kind == "uint4" or inner.get("symmetric") is False else {}
            return _integers(Config(entry.path, {"group_size": size or -1, **asymmetric}, inner.where), 4)
        if kind == "int8":
            return _plain("int8")
        raise inner.refusal("dtype", f"unknown {shown(inner.get('dtype'))}, expected fp8, fp4, int4 or int8")

    default = format_of(entry.get("global_quant_config"), "global_quant_config")
    rules = []
    by_name = entry.get("layer_quant_config")
    for name, said in by_name.items() if isinstance(by_name, dict) else ():
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(_Rule(classes, layer, part, format_of(said, f"layer_quant_config.{name}")))
    return default, rules


#: What torchao calls its formats, by a part of the name.
_TORCHAO = (
    (re.compile(r"mxfp8|mx_?fp8"), MXFP8),
    (re.compile(r"nvfp4"), _plain("fp4")),
    (re.compile(r"mxfp4|mx_?fp4"), _plain("mxfp4")),
    (re.compile(r"int4|uint4"), _plain("int4")),
    (re.compile(r"float8|fp8"), _plain("fp8")),
    (re.compile(r"int8"), _plain("int8")),
)


def _torchao(config: Config, entry: Config) -> tuple[Format, list[_Rule]]:
    """Read PyTorch's torchao: the name of a configuration, and its size of groups."""
    said = entry.get("quant_type")
    sizes: dict[str, Any] = dict(entry.get("quant_type_kwargs") or {})
    if isinstance(said, dict):
        said = said.get("default", said)
        sizes = dict(said.get("_data") or {}) if isinstance(said, dict) else {}
        said = said.get("_type") if isinstance(said, dict) else said
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "", str(said)).casefold()
    for pattern, found in _TORCHAO:
        if pattern.search(name):
            if found.precision == "int4":
                size = sizes.get("group_size", 128)
                return _integers(Config(entry.path, {"group_size": size}, f"{entry.where}quant_type."), 4), []
            return found, []
    raise entry.refusal(
        "quant_type", f"unknown {shown(entry.get('quant_type'))}, expected a configuration of int4, int8 or float8"
    )


# --- ends and cache ----------------------------------------------------------------------------------------------


def _head(config: Config, entry: Config, default: Format) -> Format:
    """Return how the head is stored: quantised where a rule names it, or a list of exceptions leaves it out."""
    if config.flag("tie_word_embeddings"):
        return BF16
    listed = entry.get("quantized_layers")
    for name, said in listed.items() if isinstance(listed, dict) else ():
        if _HEAD.search(name):
            one = Config(entry.path, said, f"{entry.where}quantized_layers.{name}.")
            return _sized(one, _one_of(one, "quant_algo", _ALGORITHMS))
    if entry.get("quant_algo") == "MIXED_PRECISION":
        return BF16
    groups = entry.get("config_groups")
    if isinstance(groups, dict):
        for name, group in groups.items():
            named = [one for one in group.get("targets") or [] if _HEAD.search(one.removeprefix("re:"))]
            if named and isinstance(group.get("weights"), dict):
                where = f"{entry.where}config_groups.{name}.weights"
                return _weights(Config(entry.path, group["weights"], f"{where}."), where)
    leaves = any("head" in text for text in _entries(entry))
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

"""Which tensors a checkpoint quantises, and how: the rules of each method."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perfmodel.specs.config import Config, shown
from perfmodel.specs.formats import (
    ALGORITHMS,
    BF16,
    METHODS,
    MXFP8,
    Format,
    bitsandbytes,
    integers,
    one_of,
    plain_format,
    sized,
    weight_format,
)

_KEPT_LISTS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude",
    "exclude_modules",
    "exclude_layers",
    "llm_int8_skip_modules",
)


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


_LINEAR = "Linear"


@dataclass(frozen=True)
class Rule:
    """What a quantisation says of modules: those of some classes, of one layer or all, and of one matrix or all."""

    classes: tuple[str, ...]
    layer: int | None
    part: str
    format: Format


def rules_of(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
    """Return the format of linear layers, and what is said of some of them; the last that covers one counts.

    Parameters
    ----------
    config, entry : Config

    Returns
    -------
    tuple
    """
    method = entry.get("quant_method")
    if entry.get("quant_algo") == "MIXED_PRECISION":
        return _mixed(config, entry)
    readers = {"quark": _quark, "auto-round": _auto_round, "torchao": _torchao}
    if isinstance(method, str) and method in readers:
        default, rules = readers[method](config, entry)
    elif entry.get("quant_algo") is not None:
        algorithm = one_of(entry, "quant_algo", ALGORITHMS)
        default, rules = sized(entry, algorithm), []
    elif method == "compressed-tensors" or entry.get("config_groups") is not None:
        default, rules = _grouped(config, entry)
    elif method in ("gptq", "awq", "gptq_marlin", "awq_marlin"):
        default, rules = integers(entry, one_of(entry, "bits", {4: 4, 8: 8})), _dynamic(config, entry)
    elif method == "bitsandbytes":
        default, rules = bitsandbytes(entry), []
    else:
        others = ("gptq", "awq", "compressed-tensors", "modelopt", "bitsandbytes", *readers)
        default = one_of(entry, "quant_method", {**METHODS, **dict.fromkeys(others, None)})
        rules = []
    if method == "mxfp4":
        # Only experts are stored so, whatever the list of exceptions says.
        rules = [*rules, Rule(("attention",), None, "", BF16)]
    return default, [*rules, *_kept(config, entry)]


def _kept(config: Config, entry: Config) -> list[Rule]:
    kept = []
    for text in entries(entry):
        classes, part, layer = _covered(config, text)
        if classes:
            kept.append(Rule(classes, layer, part, BF16))
    return kept


def entries(entry: Config) -> Iterator[str]:
    """Give the names of modules that stay as they were.

    Parameters
    ----------
    entry : Config

    Returns
    -------
    iterator of str
    """
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
    if NOTHING.search(text) or HEAD.search(text):
        return (), "", None
    classes = next((classes for pattern, classes in _MODULES if pattern.search(text)), ())
    if config.experts_apart and classes == ("mlp", "experts"):
        classes = ("mlp",)
    part = _PART.search(text)
    if "|" in text or part is None:
        # A list of alternatives covers the block where it covers its last matrix.
        whole = part is None or bool(LAST_MATRIX.search(text))
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


def _mixed(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
    """Read ModelOpt's list of which layer has which algorithm; what it does not name stays as it was."""
    listed = entry.get("quantized_layers")
    if not isinstance(listed, dict) or not listed:
        raise entry.refusal("quantized_layers", "MIXED_PRECISION needs a mapping of layers to algorithms")
    default = plain_format("fp8") if entry.get("quant_method") == "fp8" else BF16
    rules = []
    for name, said in listed.items():
        one = Config(entry.path, said if isinstance(said, dict) else {}, f"{entry.where}quantized_layers.{name}.")
        algorithm = sized(one, one_of(one, "quant_algo", ALGORITHMS))
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(Rule(classes, layer, part, algorithm))
    return default, rules


def _grouped(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
    """Read ``config_groups``: one of all linear layers, and others of the modules that they name."""
    groups = entry.get("config_groups")
    defaults: dict[Format, None] = {}
    rules: list[Rule] = []
    for name, group in groups.items() if isinstance(groups, dict) else ():
        where = f"config_groups.{name}"
        if not isinstance(group, dict):
            raise entry.refusal(f"{where}.weights", "expected num_bits and type")
        if "weights" in group and group["weights"] is None:
            continue
        if not isinstance(group.get("weights"), dict):
            raise entry.refusal(f"{where}.weights", "expected num_bits and type")
        formats = weight_format(
            Config(entry.path, group["weights"], f"{entry.where}{where}.weights."), f"{entry.where}{where}.weights"
        )
        targets = group.get("targets") or [_LINEAR]
        if not isinstance(targets, list) or not all(isinstance(matched, str) for matched in targets):
            raise entry.refusal(f"{where}.targets", "expected a list of modules")
        if _LINEAR in targets:
            defaults[formats] = None
            continue
        for target in targets:
            classes, part, layer = _covered(config, target)
            if not classes and not (NOTHING.search(target) or HEAD.search(target)):
                raise entry.refusal(
                    f"{where}.targets", f"'{target}' is no module that is known; expected {_LINEAR} or names of modules"
                )
            if classes:
                rules.append(Rule(classes, layer, part, formats))
    if len(defaults) > 1 or not (defaults or rules):
        names = ", ".join(sorted(matched.precision for matched in defaults)) or "none"
        raise entry.refusal("config_groups", f"expected one precision, found {names}")
    return next(iter(defaults), BF16), rules


def _dynamic(config: Config, entry: Config) -> list[Rule]:
    """Read GPTQModel's rules by module: other bits or another size of groups."""
    found = entry.get("dynamic")
    rules = []
    for name, said in found.items() if isinstance(found, dict) else ():
        if name.startswith("-:"):
            continue
        inner = Config(
            entry.path, {**entry.fields, **(said if isinstance(said, dict) else {})}, f"{entry.where}dynamic.{name}."
        )
        classes, part, layer = _covered(config, name.removeprefix("+:"))
        if classes:
            rules.append(Rule(classes, layer, part, integers(inner, one_of(inner, "bits", {4: 4, 8: 8}))))
    return rules


def _auto_round(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
    """Read Intel's auto-round: bits and size of groups, and other ones by module."""

    def format_of(inner: Config) -> Format:
        kind, bits = str(inner.get("data_type") or "int"), inner.get("bits")
        if bits in (16, 32):
            return BF16
        if kind.startswith("mx_fp") or kind.startswith("mxfp"):
            return plain_format("mxfp4") if bits == 4 else MXFP8
        if kind.startswith("nv_fp") or kind.startswith("nvfp"):
            return plain_format("fp4")
        if kind.startswith("fp") and bits == 8:
            return plain_format("fp8")
        return integers(inner, one_of(inner, "bits", {4: 4, 8: 8}))

    rules = []
    extra = entry.get("extra_config")
    for name, said in extra.items() if isinstance(extra, dict) else ():
        inner = Config(
            entry.path,
            {**entry.fields, **(said if isinstance(said, dict) else {})},
            f"{entry.where}extra_config.{name}.",
        )
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(Rule(classes, layer, part, format_of(inner)))
    return format_of(entry), rules


def _quark(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
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
            return MXFP8 if size == 32 else plain_format("fp8")
        if kind.startswith("fp4") or kind == "mx":
            return plain_format("fp4" if size == 16 else "mxfp4")
        if kind in ("int4", "uint4"):
            asymmetric = {"symmetric": False} if kind == "uint4" or inner.get("symmetric") is False else {}
            return integers(Config(entry.path, {"group_size": size or -1, **asymmetric}, inner.where), 4)
        if kind == "int8":
            return plain_format("int8")
        raise inner.refusal("dtype", f"unknown {shown(inner.get('dtype'))}, expected fp8, fp4, int4 or int8")

    default = format_of(entry.get("global_quant_config"), "global_quant_config")
    rules = []
    by_name = entry.get("layer_quant_config")
    for name, said in by_name.items() if isinstance(by_name, dict) else ():
        classes, part, layer = _covered(config, name)
        if classes:
            rules.append(Rule(classes, layer, part, format_of(said, f"layer_quant_config.{name}")))
    return default, rules


#: What torchao calls its formats, by a part of the name.
_TORCHAO = (
    (re.compile(r"mxfp8|mx_?fp8"), MXFP8),
    (re.compile(r"nvfp4"), plain_format("fp4")),
    (re.compile(r"mxfp4|mx_?fp4"), plain_format("mxfp4")),
    (re.compile(r"int4|uint4"), plain_format("int4")),
    (re.compile(r"float8|fp8"), plain_format("fp8")),
    (re.compile(r"int8"), plain_format("int8")),
)


def _torchao(config: Config, entry: Config) -> tuple[Format, list[Rule]]:
    """Read PyTorch's torchao: the name of a configuration, and its size of groups."""
    said = entry.get("quant_type")
    sizes: dict[str, Any] = dict(entry.get("quant_type_kwargs") or {})
    if isinstance(said, dict):
        said = said.get("default", said)
        sizes = dict(said.get("_data") or {}) if isinstance(said, dict) else {}
        said = said.get("_type") if isinstance(said, dict) else said
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "", str(said)).casefold()
    for pattern, known in _TORCHAO:
        if pattern.search(name):
            if known.precision == "int4":
                size = sizes.get("group_size", 128)
                return integers(Config(entry.path, {"group_size": size}, f"{entry.where}quant_type."), 4), []
            return known, []
    raise entry.refusal(
        "quant_type", f"unknown {shown(entry.get('quant_type'))}, expected a configuration of int4, int8 or float8"
    )


#: Entries of these lists that change nothing: small tensors, and what is no text decoder.
NOTHING = re.compile(r"norm|bias|mtp|vis|projector|audio|embed|patch_merge|(?:gate|router)(?:\.weight)?[.*$]*$")


HEAD = re.compile(r"(?:^|[._])(?:lm_)?head[*$]*$")


#: Where a regular expression names several matrices, its last one stands for the block.
LAST_MATRIX = re.compile(r"(?<![a-z])(?:o|out|down)(?:_proj|\W)|w2|fc2")

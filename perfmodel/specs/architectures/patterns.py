"""Which layers are of a kind: what a configuration lists, else the rule of its model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.specs.config import Config, Parts, Which

FULL, SLIDING, CHUNKED, LINEAR, CONV = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
)


#: Other words for a kind of layer.
_ALSO = {"attention": FULL, "mamba": LINEAR, "indexed_attention": FULL, "minimax_m3_sparse": "sparse"}


#: Reads one part of every layer.
Reader = Callable[[Config], Parts]


def every(count: float, offset: float = 0.0) -> Which:
    """Return whether a layer is one of every so many."""
    return lambda index: index % count == offset


def last_of_every(count: float) -> Which:
    """Return whether a layer is the last of every so many."""
    return every(count, count - 1)


def always(config: Config) -> Which:
    """Return that every layer is of the kind."""
    return lambda index: True


def alternate(config: Config) -> Which:
    """Return every second layer, from the first."""
    return every(2.0)


def upper_layers(config: Config) -> Which:
    """Return the layers above ``max_window_layers``, where windows are used."""
    if not config.flag("use_sliding_window"):
        return lambda index: False
    first = config.count("max_window_layers", least=0)
    return lambda index: index >= first


def all_but_every(count: float, name: str = "sliding_window_pattern") -> Callable[[Config], Which]:
    """Return all layers but the last of every so many; a written pattern of letters wins."""

    def which(config: Config) -> Which:
        written = config.get(name)
        if isinstance(written, str):
            return lambda index: written[index % len(written)] == "L"
        full = last_of_every(config.count(name, default=count))
        return lambda index: not full(index)

    return which


def periodic(config: Config, name: str) -> Which:
    """Return the layers of a period, from an offset."""
    period, offset = config.count(f"{name}_period"), config.count(f"{name}_offset", least=0)
    if offset >= period:
        raise config.refusal(f"{name}_offset", f"{offset:g} is not below {name}_period {period:g}")
    return every(period, offset)


def kinds_of(config: Config, special: Which = lambda index: False, kind: str = SLIDING) -> list[str]:
    """Return the kind of each layer: what ``layer_types`` says, else the rule of the model type."""
    given = config.one_a_layer("layer_types", str)
    if given:
        return [_ALSO.get(one, one) for one in given]
    return [kind if special(index) else FULL for index in range(config.layers)]


def sparse_layers(config: Config, rule: Which) -> Which:
    """Return which layers have experts: what a list says, else the rule of the model type."""
    if given := config.one_a_layer("mlp_layer_types", str):
        return lambda index: given[index] not in ("dense", "mlp")
    flags = config.get("moe_layer_freq")
    if isinstance(flags, list):
        flags = config.one_a_layer("moe_layer_freq", int)
        return lambda index: bool(flags[index]) if flags else False
    return rule


def after_dense(config: Config) -> Which:
    """Return whether a layer has experts: those behind the first dense ones, every so many."""
    step = config.get("moe_layer_freq")
    first = config.count("first_k_dense_replace", default=0.0, least=0)
    at = every(config.count("moe_layer_freq", default=1.0) if not isinstance(step, list) else 1.0)
    return sparse_layers(config, lambda index: index >= first and at(index))


def either(first: Which, then: Parts, otherwise: Parts) -> Parts:
    """Return one part where a rule says so, else the other."""
    return lambda index: then(index) if first(index) else otherwise(index)


def flags_of(config: Config, traits: Mapping[str, Any]) -> dict[str, Any]:
    """Return traits of a block; one that is a name and a default is read from the file."""
    return {key: config.flag(*value) if isinstance(value, tuple) else value for key, value in traits.items()}

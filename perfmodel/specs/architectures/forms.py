"""How a model type reads: its mixer, block, additions and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perfmodel.specs.architectures.additions import biases
from perfmodel.specs.architectures.attention import attends, plain_attention
from perfmodel.specs.architectures.blocks import mlp_block, ungated_block
from perfmodel.specs.architectures.patterns import SLIDING, Reader, kinds_of
from perfmodel.specs.config import Config, Parts
from perfmodel.specs.types import (
    Layers,
    Sliding,
)


def encoder(types: float, pooler: bool = True, buckets: str = "") -> Form:
    """Return the form of a BERT: biases everywhere, learned positions, words of types, a pooler."""

    def beside(config: Config) -> Parts:
        hidden = config.count("hidden_size")
        config.tables += config.count("type_vocab_size", default=types, least=0) * hidden if types else 0.0
        config.tables += (hidden + 1) * hidden if pooler else 0.0
        if buckets:
            config.tables += config.count(buckets, default=32.0) * config.count("num_attention_heads")
        return biases(config)

    mixer = attends(causal=False, qkv_bias=True, output_bias=True)
    return Form(
        mixer, ungated_block, 4.0, {"max_position_embeddings": 512}, beside, final_norm=2.0, positions=0.0, pools=True
    )


def modern_windows(config: Config) -> Parts:
    """Read ModernBERT's attention: full in one of three layers, else within a window around each token."""
    plain = plain_attention(config, causal=False)
    step = config.count("global_attn_every_n_layers", default=3.0)
    kinds = kinds_of(config, lambda index: index % step != 0)
    window = Sliding(config.count("local_attention", default=128.0) + 1)
    config.derived["window"] = "local_attention + 1"
    return lambda index: {"attention": replace(plain, sliding=window if kinds[index] == SLIDING else None)}


_PLAIN = attends()


#: Longest context of a model that has no positions [tokens].
_ENDLESS = 2**20


@dataclass(frozen=True)
class Form:
    """How a model type reads, and what its configuration class says where a file is silent.

    Either ``layers`` reads all, or ``mixer``, ``block`` and what is ``beside`` them are read for each layer.
    """

    mixer: Reader | None = None
    block: Reader | None = None
    norms: float = 2.0
    defaults: Mapping[str, Any] = field(default_factory=dict)
    beside: Reader | None = None
    layers: Callable[[Config], list[Layers]] | None = None
    final_norm: float = 1.0
    positions: float | None = None
    head_bias: bool = False
    pools: bool = False
    endless: bool = False

    def read(self, config: Config) -> list[Layers]:
        """Return the layers that a configuration describes, one after the other.

        Parameters
        ----------
        config : Config

        Returns
        -------
        list of Layers
        """
        if self.endless and not config.has("max_position_embeddings"):
            config.note(f"the file sets no longest context: taken as {_ENDLESS:,} tokens")
            config.fields["max_position_embeddings"] = _ENDLESS
        hidden = config.count("hidden_size")
        config.tables += (self.final_norm - 1) * hidden
        if self.positions is not None:
            config.tables += (config.count("max_position_embeddings") + self.positions) * hidden
        if self.head_bias:
            config.tables += config.count("vocab_size")
        if self.layers is not None:
            return self.layers(config)
        parts = [(self.mixer or _PLAIN)(config), (self.block or mlp_block)(config)]
        if self.beside is not None:
            parts.append(self.beside(config))
        return [
            Layers(1.0, **{"norms": self.norms, **{key: value for part in parts for key, value in part(index).items()}})
            for index in range(config.layers)
        ]

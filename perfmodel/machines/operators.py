"""The operators of one forward step, and the step that a machine makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from perfmodel.equations import memory, transformer
from perfmodel.numerics import Number
from perfmodel.specs.types import PRECISION_BYTES, Attention, Layers, Model, Scenario
from perfmodel.trace import scope

#: Bytes of an activation; engines keep activations in BF16 between operators.
ACTIVATION_BYTES = 2.0

CAUSES = ("compute", "memory", "collective", "overhead", "host", "wait")


@dataclass(frozen=True)
class Pass:
    """One forward pass: so many sequences, each with new tokens on top of a context."""

    sequences: Number
    tokens: Number
    context: Number


#: Passes that a machine runs in one step, as a mixed batch does.
Work = tuple[Pass, ...]


@dataclass(frozen=True)
class Operator:
    """Work of one instance of an operator over the whole tensor-parallel group.

    Attributes
    ----------
    name : str
    kind : str
        ``gemm`` or ``attention``: which efficiencies apply.
    count : Number
        Instances in the model.
    flops : Number
        Work [FLOP].
    weights, cache, activations : Number
        Bytes of weights, of KV cache and of activations that one instance moves [B].
    precision : str
        Storage of the weights.
    kv_heads : Number
        Heads by which the cache can be split.
    all_reduce : Number
        Message of the sum over the tensor-parallel group that follows; 0 where none does [B].
    """

    name: str
    kind: str
    count: Number
    flops: Number
    weights: Number
    cache: Number
    activations: Number
    precision: str
    kv_heads: Number = 1.0
    all_reduce: Number = 0.0


@dataclass(frozen=True)
class Step:
    """Time of a forward step by cause [s], and what it did on all chips together."""

    compute: Any = 0.0
    memory: Any = 0.0
    collective: Any = 0.0
    overhead: Any = 0.0
    host: Any = 0.0
    flops: Any = 0.0
    bytes_moved: Any = 0.0
    sequences: Any = 1.0

    @property
    def time(self) -> Any:
        """Seconds of the whole step."""
        return self.compute + self.memory + self.collective + self.overhead + self.host


# --- sizes -------------------------------------------------------------------------------------------------------


def attention_parameters(model: Model, attention: Attention) -> Any:
    """Weights of the attention block of one layer, its normalisations not included."""
    qkv = transformer.qkv_parameters(
        hidden=model.hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        bias=float(attention.qkv_bias),
    )
    return qkv + transformer.output_parameters(
        hidden=model.hidden, heads=attention.heads, head_dim=attention.head_dim, bias=float(attention.output_bias)
    )


def layer_parameters(model: Model, layers: Layers) -> Any:
    """Weights of one layer."""
    norms = transformer.norm_parameters(
        hidden=model.hidden,
        norms=2.0,
        head_dim=layers.attention.head_dim,
        head_norms=2.0 * layers.attention.qk_norm,
    )
    mlp = transformer.mlp_parameters(
        hidden=model.hidden, intermediate=layers.mlp.intermediate, matrices=layers.mlp.matrices
    )
    return attention_parameters(model, layers.attention) + mlp + norms


def vocabulary(model: Model) -> Any:
    """Weights of the embedding table, and as many again of the head."""
    return transformer.vocabulary_parameters(vocab=model.vocab, hidden=model.hidden)


def layer_count(model: Model) -> Any:
    """Layers of the model."""
    count: Any = 0.0
    for layers in model.layers:
        count = count + layers.count
    return count


def decoder_parameters(model: Model) -> Any:
    """Weights of all layers and of the last normalisation."""
    total = model.hidden
    for layers in model.layers:
        total = total + layer_parameters(model, layers) * layers.count
    return total


def total_parameters(model: Model) -> Any:
    """All weights of the model; a tied embedding counts once."""
    return decoder_parameters(model) + vocabulary(model) * (1.0 if model.tied_embeddings else 2.0)


def active_parameters(model: Model) -> Any:
    """Weights that one token meets: the head, but not the look-up in an untied embedding."""
    return decoder_parameters(model) + vocabulary(model)


def kv_bytes_per_token_layer(attention: Attention, precision: str) -> Any:
    """Cache bytes that one token leaves in one layer."""
    return transformer.kv_bytes_per_token(
        kv_heads=attention.kv_heads,
        key_dim=attention.head_dim,
        value_dim=attention.head_dim,
        bytes_per_element=PRECISION_BYTES[precision],
    )


def kv_bytes_per_token(model: Model, precision: str) -> Any:
    """Cache bytes that one token leaves in the whole model."""
    total: Any = 0.0
    for layers in model.layers:
        total = total + kv_bytes_per_token_layer(layers.attention, precision) * layers.count
    return total


def end_precision(scenario: Scenario) -> str:
    """Storage of embedding and head: GPU engines leave them as the checkpoint has them."""
    if scenario.system.quantised == "all":
        return scenario.deployment.precision
    return scenario.model.precision


# --- operators ---------------------------------------------------------------------------------------------------


def _gemm(name: str, tokens: Any, parameters: Any, width: Any, count: Any, precision: str, **more: Any) -> Operator:
    with scope(name):
        return Operator(
            name=name,
            kind="gemm",
            count=count,
            flops=transformer.gemm_flops(tokens=tokens, parameters=parameters),
            weights=memory.weight_bytes(parameters=parameters, bytes_per_parameter=PRECISION_BYTES[precision]),
            cache=0.0,
            activations=transformer.activation_traffic(tokens=tokens, width=width, bytes_per_element=ACTIVATION_BYTES),
            precision=precision,
            **more,
        )


def _total(values: Iterable[Any]) -> Any:
    first, *rest = values
    for value in rest:
        first = first + value
    return first


def layer_operators(scenario: Scenario, layers: Layers, work: Work) -> list[Operator]:
    """Return the operators of one layer, in order; several passes share one read of the weights."""
    model, attention, mlp = scenario.model, layers.attention, layers.mlp
    precision, kv_precision = scenario.deployment.precision, scenario.deployment.kv_precision
    tokens = _total(part.sequences * part.tokens for part in work)
    qkv_width = (attention.heads + 2 * attention.kv_heads) * attention.head_dim
    query_width = attention.heads * attention.head_dim
    qkv = transformer.qkv_parameters(
        hidden=model.hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        bias=float(attention.qkv_bias),
    )
    out = transformer.output_parameters(
        hidden=model.hidden, heads=attention.heads, head_dim=attention.head_dim, bias=float(attention.output_bias)
    )
    up = transformer.mlp_parameters(hidden=model.hidden, intermediate=mlp.intermediate, matrices=mlp.matrices - 1)
    down = transformer.mlp_parameters(hidden=model.hidden, intermediate=mlp.intermediate, matrices=1.0)
    summed = transformer.activation_traffic(tokens=tokens, width=model.hidden, bytes_per_element=ACTIVATION_BYTES)
    with scope("attention"):
        kv_bytes = kv_bytes_per_token_layer(attention, kv_precision)
        core = Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=_total(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=transformer.mean_attended_tokens(context=part.context, tokens=part.tokens),
                    heads=attention.heads,
                    key_dim=attention.head_dim,
                    value_dim=attention.head_dim,
                )
                for part in work
            ),
            weights=0.0,
            cache=_total(
                transformer.kv_traffic(
                    sequences=part.sequences, context=part.context, tokens=part.tokens, bytes_per_token=kv_bytes
                )
                for part in work
            ),
            activations=transformer.activation_traffic(
                tokens=tokens, width=2 * query_width, bytes_per_element=ACTIVATION_BYTES
            ),
            precision=kv_precision,
            kv_heads=attention.kv_heads,
        )
    return [
        _gemm("qkv", tokens, qkv, model.hidden + qkv_width, layers.count, precision),
        core,
        _gemm("out", tokens, out, query_width + model.hidden, layers.count, precision, all_reduce=summed),
        _gemm("up", tokens, up, model.hidden + mlp.intermediate, layers.count, precision),
        _gemm("down", tokens, down, mlp.intermediate + model.hidden, layers.count, precision, all_reduce=summed),
    ]


def head_operator(scenario: Scenario, work: Work) -> Operator:
    """Return the language-model head: one row a sequence, in prefill too."""
    model = scenario.model
    rows = _total(part.sequences for part in work)
    return _gemm("head", rows, vocabulary(model), model.hidden + model.vocab, 1.0, end_precision(scenario))

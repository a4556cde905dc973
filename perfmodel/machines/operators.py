"""The operators of one forward pass, their sizes, and the step that a machine makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from perfmodel.equations import memory, roofline, transformer
from perfmodel.numerics import Number, maximum, minimum
from perfmodel.specs.kinds import kind_of
from perfmodel.specs.types import (
    PRECISION_BYTES,
    Attention,
    CompressedAttention,
    Efficiency,
    Indexer,
    Layers,
    LinearAttention,
    Mamba2,
    Mla,
    Model,
    Moe,
    Scenario,
)
from perfmodel.trace import scope

#: Bytes of an activation, and of an element of a recurrent state; engines keep both in 16 bits.
ACTIVATION_BYTES = 2.0
#: Bytes that the indexer of sparse attention keeps of a token: an FP8 key and an FP32 scale.
INDEX_SCALE_BYTES = 4.0

CAUSES = ("compute", "memory", "collective", "overhead", "host", "wait")


@dataclass(frozen=True)
class Pass:
    """One forward pass: so many sequences, each with new tokens on top of a context.

    ``decoding`` says which form of latent attention runs: the absorbed one, which reads latents, or the expanded one.
    """

    sequences: Number
    tokens: Number
    context: Number
    decoding: bool = False


@dataclass(frozen=True)
class Exchange:
    """Vectors that go to the ranks of their experts, and back.

    Attributes
    ----------
    elements : Number
        Of the vectors of all tokens of the tensor-parallel group, each once [1].
    copies : Number
        Experts of a token [1].
    node_limit : Number or None
        Most nodes on which the experts of a token lie; None where the router does not care [1].
    forwarded : bool
        Whether a vector crosses to a node once and is handed on there, as kernels for many tokens do; those for few
        tokens send every copy by itself.
    """

    elements: Any
    copies: Any
    node_limit: Any
    forwarded: bool


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
        Bytes of weights, of KV cache or state, and of activations that one instance moves [B].
    precision : str
        Storage of the weights.
    shards : Number or None
        Chips among which the weights are split, where that is not the tensor-parallel degree.
    cache_shards : Number
        Parts into which GPUs can split the cache.
    streamed : Number or None
        Weights read where every token runs its own experts [B].
    padding : Number
        Work on rows that only fill a tile [FLOP].
    all_reduce : Number or None
        Message of the sum over the tensor-parallel group that follows [B].
    exchange : Exchange or None
        What goes to the other expert-parallel ranks and back.
    """

    name: str
    kind: str
    count: Number
    flops: Number
    weights: Number
    cache: Number
    activations: Number
    precision: str
    shards: Any = None
    cache_shards: Number = 1.0
    streamed: Any = None
    padding: Any = 0.0
    all_reduce: Any = None
    exchange: Exchange | None = None


@dataclass(frozen=True)
class Overlap:
    """Arithmetic and traffic that overlap, so many times over [s]."""

    count: Any
    compute: Any
    memory: Any


@dataclass(frozen=True)
class Load:
    """FLOPs of all chips and bytes that each of so many chips moves, so many times over."""

    count: Any
    flops: Any
    moved: Any
    chips: Any = 1.0


@dataclass(frozen=True)
class Step:
    """Time of a forward step by cause [s], and what it did on all chips together.

    ``busy`` is the time of all overlaps; to which side each of them goes, and how much work the loads are, is worked
    out only when asked for.
    """

    busy: Any = 0.0
    overlaps: tuple[Overlap, ...] = ()
    imbalance: Any = 0.0
    collective: Any = 0.0
    overhead: Any = 0.0
    host: Any = 0.0
    loads: tuple[Load, ...] = ()
    sequences: Any = 1.0

    @cached_property
    def flops(self) -> Any:
        """Work of all chips [FLOP]."""
        return total(load.count * load.flops for load in self.loads)

    @cached_property
    def bytes_moved(self) -> Any:
        """Memory traffic of all chips [B]."""
        return total(load.count * load.chips * load.moved for load in self.loads)

    @cached_property
    def compute(self) -> Any:
        """Seconds of the operators that arithmetic decides."""
        return _repeated(self.overlaps, roofline.compute_bound_time)

    @cached_property
    def memory(self) -> Any:
        """Seconds of the operators that traffic decides, and of stages that wait for a slower one's traffic."""
        return _repeated(self.overlaps, roofline.memory_bound_time) + self.imbalance

    @cached_property
    def time(self) -> Any:
        """Seconds of the whole step."""
        return self.busy + self.overhead + (self.imbalance + self.collective + self.host)

    def times(self, runs: Any) -> Step:
        """Return this step run so many times over, for the same sequences.

        Parameters
        ----------
        runs : Number
            How often [1].

        Returns
        -------
        Step
        """
        return Step(
            busy=runs * self.busy,
            overlaps=tuple(replace(part, count=runs * part.count) for part in self.overlaps),
            imbalance=runs * self.imbalance,
            collective=runs * self.collective,
            overhead=runs * self.overhead,
            host=runs * self.host,
            loads=tuple(replace(load, count=runs * load.count) for load in self.loads),
            sequences=self.sequences,
        )

    def after(self, other: Step) -> Step:
        """Return this step and another one before it; work is counted for the sequences of this one.

        Parameters
        ----------
        other : Step
            The one before.

        Returns
        -------
        Step
        """
        share = self.sequences / other.sequences
        return Step(
            busy=other.busy + self.busy,
            overlaps=(*other.overlaps, *self.overlaps),
            imbalance=other.imbalance + self.imbalance,
            collective=other.collective + self.collective,
            overhead=other.overhead + self.overhead,
            host=other.host + self.host,
            loads=(*(replace(load, count=share * load.count) for load in other.loads), *self.loads),
            sequences=self.sequences,
        )


def busy_time(overlaps: Iterable[Overlap]) -> Any:
    """Return the time of overlaps, each as long as its slower side [s].

    Parameters
    ----------
    overlaps : iterable of Overlap

    Returns
    -------
    Number
        Time [s].
    """
    return _repeated(overlaps, roofline.operator_time)


def _repeated(overlaps: Iterable[Overlap], time: Callable[..., Any]) -> Any:
    """Return the time of overlaps; those of a layer add up before its count multiplies them, which on arrays counts."""
    layers = (list(group) for _, group in groupby(overlaps, key=lambda part: id(part.count)))
    return total(
        parts[0].count * total(time(compute=part.compute, memory=part.memory) for part in parts) for parts in layers
    )


def total(values: Iterable[Any]) -> Any:
    """Return the sum, without the 0 that ``sum`` starts from and a trace would show.

    Parameters
    ----------
    values : iterable of Number
        One at least.

    Returns
    -------
    Number
    """
    first, *rest = values
    for value in rest:
        first = first + value
    return first


# --- parameters --------------------------------------------------------------------------------------------------


def _value_dim(attention: Attention) -> Any:
    """Return the width of a value, which is that of a key where nothing else is said."""
    return attention.head_dim if attention.value_dim is None else attention.value_dim


def _attention_parts(model: Model, attention: Attention) -> tuple[Any, Any]:
    """Return the weights before and after the attention core of one layer."""
    out = transformer.output_parameters(
        hidden=model.hidden, heads=attention.heads, head_dim=_value_dim(attention), bias=float(attention.output_bias)
    )
    bias = float(attention.qkv_bias)
    query_heads = attention.heads * (2.0 if attention.gated else 1.0)
    if attention.value_dim is None and not attention.keys_are_values and not attention.shares_cache:
        qkv = transformer.qkv_parameters(
            hidden=model.hidden,
            heads=query_heads,
            kv_heads=attention.kv_heads,
            head_dim=attention.head_dim,
            bias=bias,
        )
    else:
        width = query_heads * attention.head_dim + _projected_cache(attention)
        qkv = transformer.projection_parameters(inputs=model.hidden, outputs=width, bias=bias)
    if attention.head_gate:
        qkv = qkv + transformer.projection_parameters(inputs=model.hidden, outputs=attention.heads, bias=0.0)
    return qkv, out


def _projected_cache(attention: Attention) -> Any:
    """Return the width of the keys and values that a layer projects."""
    if attention.shares_cache:
        return 0.0
    width = attention.head_dim if attention.keys_are_values else attention.head_dim + _value_dim(attention)
    return attention.kv_heads * width


def _indexer_part(model: Model, indexer: Indexer, query_width: Any) -> Any:
    """Return the weights of the indexer of latents: its queries are made of the query latent."""
    return transformer.indexer_parameters(
        hidden=model.hidden, q_lora_rank=query_width, heads=indexer.heads, head_dim=indexer.head_dim
    )


def _block_indexer_part(model: Model, indexer: Indexer) -> Any:
    """Return the weights of an indexer of blocks: queries, one key and their normalisations, no weight a head."""
    width = indexer.heads * indexer.head_dim + indexer.head_dim
    return transformer.projection_parameters(inputs=model.hidden, outputs=width, bias=0.0) + 2 * indexer.head_dim


def _compressed_parts(model: Model, part: CompressedAttention) -> dict[str, Any]:
    """Return the weights of a layer of compressed attention by operator."""
    width, project = part.heads * part.head_dim, transformer.projection_parameters
    parts = {
        "latents": project(inputs=model.hidden, outputs=part.q_lora_rank + part.head_dim, bias=0.0),
        "queries": project(inputs=part.q_lora_rank, outputs=width, bias=0.0),
        "out_groups": project(inputs=width, outputs=part.output_rank, bias=0.0),
        "out": project(inputs=part.output_groups * part.output_rank, outputs=model.hidden, bias=0.0),
    }
    if part.ratio is not None:
        overlap = 1.0 if part.indexer is None else 2.0
        parts["compress"] = transformer.compressor_parameters(
            hidden=model.hidden, head_dim=part.head_dim, ratio=part.ratio, overlap=overlap
        )
    if part.indexer is not None:
        assert part.ratio is not None
        compress = transformer.compressor_parameters(
            hidden=model.hidden, head_dim=part.indexer.head_dim, ratio=part.ratio, overlap=2.0
        )
        queries = project(inputs=part.q_lora_rank, outputs=part.indexer.heads * part.indexer.head_dim, bias=0.0)
        weigh = project(inputs=model.hidden, outputs=part.indexer.heads, bias=0.0)
        parts["indexer"] = compress + queries + weigh
    return parts


def _mla_parts(model: Model, mla: Mla) -> dict[str, Any]:
    """Return the weights of a latent-attention layer by operator."""
    rank = 0.0 if mla.direct_query else mla.q_lora_rank
    parts = {
        "latents": transformer.mla_down_parameters(
            hidden=model.hidden, q_lora_rank=rank, kv_lora_rank=mla.kv_lora_rank, rope_dim=mla.qk_rope_head_dim
        ),
        "queries": transformer.mla_query_parameters(
            width=model.hidden if mla.direct_query else mla.q_lora_rank,
            heads=mla.heads,
            nope_dim=mla.qk_nope_head_dim,
            rope_dim=mla.qk_rope_head_dim,
        ),
        "expand": transformer.mla_up_parameters(
            kv_lora_rank=mla.kv_lora_rank, heads=mla.heads, nope_dim=mla.qk_nope_head_dim, v_dim=mla.v_head_dim
        ),
        "out": transformer.output_parameters(hidden=model.hidden, heads=mla.heads, head_dim=mla.v_head_dim, bias=0.0),
    }
    if mla.indexer is not None and not mla.indexer.shared:
        parts["indexer"] = _indexer_part(model, mla.indexer, mla.q_lora_rank)
    if mla.gate is not None:
        parts["gate"] = transformer.projection_parameters(inputs=model.hidden, outputs=mla.gate, bias=0.0)
    return parts


def _state_parts(model: Model, layers: Layers) -> tuple[Any, Any]:
    """Return the weights of a recurrent mixer, and the elements of its state a sequence."""
    if (linear := layers.linear) is not None:
        keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
        parameters = transformer.linear_attention_parameters(
            hidden=model.hidden,
            key_width=keys,
            value_width=values,
            value_heads=linear.value_heads,
            value_dim=linear.value_head_dim,
            kernel=linear.conv_kernel,
        )
        return parameters, values * linear.key_head_dim + (2 * keys + values) * (linear.conv_kernel - 1)
    if (second := layers.mamba2) is not None:
        inner = second.heads * second.head_dim
        parameters = transformer.mamba2_parameters(
            hidden=model.hidden,
            heads=second.heads,
            head_dim=second.head_dim,
            groups=second.groups,
            state=second.state,
            kernel=second.conv_kernel,
        )
        mixed = inner + 2 * second.groups * second.state
        return parameters, inner * second.state + mixed * (second.conv_kernel - 1)
    if layers.recurrent is not None:
        return layers.recurrent.weights, layers.recurrent.state
    first = layers.mamba1
    assert first is not None
    parameters = transformer.mamba1_parameters(
        hidden=model.hidden,
        inner=first.inner,
        state=first.state,
        dt_rank=first.dt_rank,
        kernel=first.conv_kernel,
    )
    return parameters, first.inner * (first.state + first.conv_kernel - 1)


def is_recurrent(layers: Layers) -> bool:
    """Whether the mixer keeps a state of constant size.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    bool
    """
    mixers = (layers.linear, layers.mamba2, layers.mamba1, layers.recurrent)
    return any(mixer is not None for mixer in mixers)


def state_heads(layers: Layers) -> Any:
    """Return the heads by which a recurrent state can be split.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Heads [1].
    """
    part: LinearAttention | Mamba2 | None = layers.linear or layers.mamba2
    if isinstance(part, LinearAttention):
        return part.value_heads
    if isinstance(part, Mamba2):
        return part.heads
    if layers.recurrent is not None:
        return layers.recurrent.heads
    assert layers.mamba1 is not None
    return layers.mamba1.inner


@dataclass(frozen=True)
class Tensor:
    """Weights of a class in one layer: held, met by one token, and how GPUs split them (``tp``, ``ep`` or ``none``)."""

    kind: str
    held: Any
    active: Any
    split: str = "tp"


def tensors(model: Model, layers: Layers) -> Iterator[Tensor]:
    """Give the tensors of one layer.

    Parameters
    ----------
    model : Model
    layers : Layers
        A run of equal layers.

    Returns
    -------
    iterator of Tensor
    """
    for one in _tensors(model, layers):
        yield one if layers.own is None else replace(one, held=layers.own * one.held)


def _tensors(model: Model, layers: Layers) -> Iterator[Tensor]:
    attention = layers.attention
    if attention is not None:
        qkv, out = _attention_parts(model, attention)
        extra = attention.heads * float(attention.sinks)
        if attention.indexer is not None:
            extra = extra + _block_indexer_part(model, attention.indexer)
        if attention.qk_norm_full:
            extra = extra + (attention.heads + attention.kv_heads) * attention.head_dim
        elif attention.qk_norm:
            extra = extra + (1.0 if attention.shares_cache else 2.0) * attention.head_dim
        yield Tensor("attention", qkv + out + extra, qkv + out + extra)
    if (mla := layers.mla) is not None:
        parts = _mla_parts(model, mla)
        alone = total(parts[name] for name in ("latents", "indexer") if name in parts)
        alone = alone + mla.kv_lora_rank + (0.0 if mla.direct_query else mla.q_lora_rank)
        by_head = total(parts[name] for name in ("queries", "expand", "out", "gate") if name in parts)
        yield Tensor("attention", by_head, by_head)
        yield Tensor("attention", alone, alone, split="none")
    if (compressed := layers.compressed) is not None:
        parts = _compressed_parts(model, compressed)
        alone = total(parts[name] for name in ("latents", "compress", "indexer") if name in parts)
        alone = alone + compressed.q_lora_rank + compressed.head_dim + compressed.heads
        by_head = total(parts[name] for name in ("queries", "out_groups", "out"))
        yield Tensor("attention", by_head, by_head)
        yield Tensor("attention", alone, alone, split="none")
    if is_recurrent(layers):
        mixer = _state_parts(model, layers)[0]
        yield Tensor("attention", mixer, mixer)
    if layers.mlp is not None:
        block = transformer.mlp_parameters(
            hidden=model.hidden, intermediate=layers.mlp.intermediate, matrices=layers.mlp.matrices
        )
        yield Tensor("mlp", block, block)
    if (moe := layers.moe) is not None:
        router = _router(model, moe)
        yield Tensor("router", router, router, split="none")
        one = _expert(model, moe)
        yield Tensor("experts", moe.experts * one, _met_experts(moe) * one, split="ep")
        shared = transformer.mlp_parameters(hidden=model.hidden, intermediate=moe.shared, matrices=moe.matrices)
        if moe.latent is not None:
            shared = shared + 2 * transformer.projection_parameters(inputs=model.hidden, outputs=moe.latent, bias=0.0)
        yield Tensor("mlp", shared, shared)
    norms = transformer.norm_parameters(hidden=model.hidden, norms=layers.norms)
    if layers.beside is not None:
        norms = norms + layers.beside.weights + layers.beside.scales
    yield Tensor("norm", norms, norms, split="none")


def _router(model: Model, moe: Moe) -> Any:
    """Return the weights of the router of one layer."""
    experts = moe.experts if moe.zero_experts is None else moe.experts + moe.zero_experts
    return transformer.router_parameters(
        hidden=model.hidden, experts=experts, bias=float(moe.router_bias), shared_gate=float(moe.shared_gate)
    )


def _expert(model: Model, moe: Moe) -> Any:
    """Return the weights of one expert."""
    return transformer.expert_parameters(
        hidden=_expert_hidden(model, moe),
        intermediate=moe.intermediate,
        matrices=moe.matrices,
        bias=float(moe.expert_bias),
    )


def _expert_hidden(model: Model, moe: Moe) -> Any:
    """Return the width of a token as the experts meet it."""
    return model.hidden if moe.latent is None else moe.latent


def _met_experts(moe: Moe) -> Any:
    """Return the experts with weights that a token meets."""
    if moe.zero_experts is None:
        return moe.top_k
    return transformer.computing_experts(top_k=moe.top_k, experts=moe.experts, zero_experts=moe.zero_experts)


def vocabulary(model: Model) -> Any:
    """Weights of the embedding table, and as many again of the head.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    return transformer.vocabulary_parameters(vocab=model.vocab, hidden=model.hidden)


def layer_count(model: Model) -> Any:
    """Layers of the model.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Layers [1].
    """
    return total(layers.count for layers in model.layers)


def total_parameters(model: Model) -> Any:
    """All weights of the model; a tied embedding counts once.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    decoder = total(layers.count * one.held for layers in model.layers for one in tensors(model, layers))
    found = decoder + model.hidden
    if model.task != "draft":
        # A draft looks its words up in the table of its target.
        found = found + vocabulary(model)
    if not model.tied_embeddings:
        found = found + head_parameters(model)
    return found if model.tables is None else found + model.tables


def head_parameters(model: Model) -> Any:
    """Weights of the language-model head; a model that pools has none.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    if model.task == "pool":
        return 0.0
    if model.head_vocab is not None:
        return transformer.vocabulary_parameters(vocab=model.head_vocab, hidden=model.hidden)
    return vocabulary(model)


def active_parameters(model: Model) -> Any:
    """Weights that one token meets: its experts and the head, but not the look-up in an untied embedding.

    Parameters
    ----------
    model : Model

    Returns
    -------
    Number
        Weights [1].
    """
    decoder = total(layers.count * one.active for layers in model.layers for one in tensors(model, layers))
    return decoder + model.hidden + head_parameters(model)


# --- bytes -------------------------------------------------------------------------------------------------------


def precision_of(scenario: Scenario, tensor: str, layers: Layers | None = None) -> str:
    """Return the storage of a class of tensors: GPU engines leave some as the checkpoint has them.

    Parameters
    ----------
    scenario : Scenario
    tensor : str
        Class of tensors: ``attention``, ``mlp``, ``experts``, ``router``, ``embedding``, ``head`` or ``norm``.
    layers : Layers, optional
        The run of layers that the tensor belongs to, where some keep a precision of their own.

    Returns
    -------
    str
        Name of a precision.
    """
    if scenario.system.quantised == "all":
        return scenario.deployment.precision
    model, precision = scenario.model, scenario.deployment.precision
    kept = (*model.unquantised, "norm", *(layers.unquantised if layers is not None else ()))
    if tensor in kept:
        return "bf16"
    return model.stored.get(tensor, precision) if precision == model.precision else precision


class Storage(NamedTuple):
    """How a tensor is stored: its precision, and the bytes of a weight with its share of the scales [B]."""

    precision: str
    element: Any


def storage_of(scenario: Scenario, tensor: str, layers: Layers | None = None) -> Storage:
    """Return how a class of tensors is stored: as the checkpoint has it, where that is what runs.

    Parameters
    ----------
    scenario : Scenario
    tensor : str
        Class of tensors, as :func:`precision_of` has them.
    layers : Layers, optional
        The run of layers that the tensor belongs to.

    Returns
    -------
    Storage
    """
    precision, model = precision_of(scenario, tensor, layers), scenario.model
    as_stored = scenario.system.quantised != "all" and scenario.deployment.precision == model.precision
    if as_stored and tensor in model.element_bytes and tensor not in (layers.unquantised if layers else ()):
        return Storage(precision, model.element_bytes[tensor])
    return Storage(precision, PRECISION_BYTES[precision])


def layer_bytes_per_chip(scenario: Scenario, layers: Layers) -> Any:
    """Weights of one layer on one chip [B]; machines that shard by tile split everything evenly.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Bytes [B].
    """
    plan = scenario.deployment
    # Every core of a chip is a rank, and holds what cannot be split.
    alone = 1 / scenario.system.cores if kind_of(scenario.system.kind).shards_by_head else plan.tp
    shards = {"tp": plan.tp, "ep": maximum(plan.tp, plan.ep), "none": alone}
    return total(
        memory.weight_bytes(parameters=one.held, bytes_per_parameter=storage_of(scenario, one.kind, layers).element)
        * (expert_padding(scenario, layers) if one.kind == "experts" else 1.0)
        / shards[one.split]
        for one in tensors(scenario.model, layers)
    )


def expert_padding(scenario: Scenario, layers: Layers) -> Any:
    """Return the size of experts as an engine stores them over that of the checkpoint.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Ratio [1].
    """
    engine, moe, plan = scenario.system.engine, layers.moe, scenario.deployment
    if engine is None or moe is None or precision_of(scenario, "experts", layers) != "mxfp4":
        return 1.0
    return memory.filled_up(
        dimension=scenario.model.hidden, shards=1.0, multiple=engine.expert_hidden
    ) * memory.filled_up(
        dimension=moe.intermediate, shards=maximum(1.0, plan.tp / plan.ep), multiple=engine.expert_width
    )


def kv_bytes_per_token_layer(layers: Layers, precision: str) -> Any:
    """Cache bytes that one token leaves in one layer while it is within reach; 0 for a recurrent mixer.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    if layers.attention is not None and (layers.attention.shares_cache or layers.attention.cross is not None):
        return 0.0
    row = _row_bytes(layers, precision)
    if layers.compressed is not None and layers.compressed.ratio is not None:
        return row + transformer.compressed_entries(tokens=row, ratio=layers.compressed.ratio)
    return row


def _row_bytes(layers: Layers, precision: str) -> Any:
    """Return the bytes of one token or entry of the cache that a layer reads, whoever wrote it."""
    element = PRECISION_BYTES[precision]
    if (attention := layers.attention) is not None:
        return transformer.kv_bytes_per_token(
            kv_heads=attention.kv_heads,
            key_dim=attention.head_dim,
            value_dim=_value_dim(attention),
            bytes_per_element=element,
        )
    if (mla := layers.mla) is not None:
        if mla.indexer is not None and precision == "fp8":
            return transformer.scaled_latent_bytes(kv_lora_rank=mla.kv_lora_rank, rope_dim=mla.qk_rope_head_dim)
        return transformer.kv_bytes_per_token(
            kv_heads=1.0, key_dim=mla.kv_lora_rank, value_dim=mla.qk_rope_head_dim, bytes_per_element=element
        )
    if (compressed := layers.compressed) is not None:
        if precision == "fp8":
            plain = compressed.head_dim - compressed.rope_dim
            return transformer.scaled_latent_bytes(kv_lora_rank=plain, rope_dim=compressed.rope_dim)
        return transformer.kv_bytes_per_token(
            kv_heads=1.0, key_dim=compressed.head_dim, value_dim=0.0, bytes_per_element=element
        )
    return 0.0


def indexer_of(layers: Layers) -> Indexer | None:
    """Return the indexer of a layer that keeps keys of its own.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Indexer or None
    """
    part = layers.mla or layers.attention or layers.compressed
    return part.indexer if part is not None and part.indexer is not None and not part.indexer.shared else None


def index_bytes_per_token(layers: Layers, precision: str) -> Any:
    """Bytes that an indexer keeps of one token in one layer; 0 where there is none.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    precision : str
        Of the cache; only an indexer of blocks keeps its keys in that.

    Returns
    -------
    Number
        Bytes [B].
    """
    indexer = indexer_of(layers)
    if indexer is None:
        return 0.0
    if layers.attention is not None:
        return indexer.head_dim * PRECISION_BYTES[precision]
    key = indexer.head_dim + INDEX_SCALE_BYTES
    if layers.compressed is not None:
        assert layers.compressed.ratio is not None
        return transformer.compressed_entries(tokens=key, ratio=layers.compressed.ratio)
    return key


def kv_bytes_per_token(model: Model, precision: str) -> Any:
    """Cache bytes that one token leaves in the whole model while it is within every window, keys of indexers apart.

    Parameters
    ----------
    model : Model
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    return total(layers.count * kv_bytes_per_token_layer(layers, precision) for layers in model.layers)


def held_tokens(layers: Layers, tokens: Any) -> Any:
    """Return the tokens of a sequence that one layer's cache holds: a window stops growing.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the sequence [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    if layers.attention is not None and layers.attention.sliding is not None:
        return minimum(tokens, layers.attention.sliding.window)
    if (compressed := layers.compressed) is not None:
        held = minimum(tokens, compressed.window)
        if compressed.ratio is None:
            return held
        return held + transformer.compressed_entries(tokens=tokens, ratio=compressed.ratio)
    return tokens


def request_cache(scenario: Scenario, layers: Layers, tokens: Any) -> Any:
    """Cache and state of one request of so many tokens in one layer, whole group [B].

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the request [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    return sequence_cache(scenario.model, layers, tokens, scenario.deployment.kv_precision)


def sequence_cache(model: Model, layers: Layers, tokens: Any, precision: str) -> Any:
    """Cache and state of one sequence of so many tokens in one layer [B].

    Parameters
    ----------
    model : Model
    layers : Layers
        A run of equal layers.
    tokens : Number
        Tokens of the sequence [1].
    precision : str
        Of the cache.

    Returns
    -------
    Number
        Bytes [B].
    """
    if is_recurrent(layers):
        return _state_parts(model, layers)[1] * ACTIVATION_BYTES
    if layers.attention is not None and layers.attention.cross is not None:
        return layers.attention.cross * _row_bytes(layers, precision)
    row = _row_bytes if layers.compressed is not None else kv_bytes_per_token_layer
    cache = held_tokens(layers, tokens) * row(layers, precision)
    if indexer_of(layers) is not None:
        cache = cache + tokens * index_bytes_per_token(layers, precision)
    return cache


def grows_evenly(layers: Layers) -> bool:
    """Whether every token of a sequence adds as much to the cache of a layer as any other; no cache grows evenly too.

    Parameters
    ----------
    layers : Layers
        A run of equal layers.

    Returns
    -------
    bool
    """
    attention = layers.attention
    bounded = attention is not None and (attention.sliding is not None or attention.cross is not None)
    return not (is_recurrent(layers) or bounded or layers.compressed is not None)


def cache_shards(scenario: Scenario, layers: Layers) -> Any:
    """Return the whole cache of a layer over that of a chip: its ranks, one a core, split it by KV heads.

    Latents have no heads, so every rank holds them.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Parts [1].
    """
    cores = scenario.system.cores
    ranks = scenario.deployment.tp * cores
    if layers.attention is not None:
        return transformer.kv_shards(tp=ranks, kv_heads=layers.attention.kv_heads) / cores
    if is_recurrent(layers):
        return transformer.kv_shards(tp=ranks, kv_heads=state_heads(layers)) / cores
    return 1.0 / cores


# --- operators ---------------------------------------------------------------------------------------------------


def _tokens(work: Work) -> Any:
    return total(part.sequences * part.tokens for part in work)


def _gemm(name: str, tokens: Any, parameters: Any, width: Any, count: Any, storage: Storage, **more: Any) -> Operator:
    with scope(name):
        return Operator(
            name=name,
            kind="gemm",
            count=count,
            flops=transformer.gemm_flops(tokens=tokens, parameters=parameters),
            weights=memory.weight_bytes(parameters=parameters, bytes_per_parameter=storage.element),
            cache=0.0,
            activations=transformer.activation_traffic(tokens=tokens, width=width, bytes_per_element=ACTIVATION_BYTES),
            precision=storage.precision,
            **more,
        )


def summed_message(scenario: Scenario, tokens: Any) -> Any:
    """Message of the sum over the tensor-parallel group after a block [B].

    Parameters
    ----------
    scenario : Scenario
    tokens : Number
        Tokens of the step [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    return transformer.activation_traffic(
        tokens=tokens, width=scenario.model.hidden, bytes_per_element=ACTIVATION_BYTES
    )


def _attention_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    model, attention = scenario.model, layers.attention
    assert attention is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    qkv, out = _attention_parts(model, attention)
    query_width = attention.heads * attention.head_dim
    gate_width = query_width * (2.0 if attention.gated else 1.0)
    if attention.cross is not None:
        # Keys and values of an image are made once; only queries are made of each token.
        qkv = transformer.projection_parameters(inputs=model.hidden, outputs=gate_width, bias=0.0)
        qkv_width = gate_width
    else:
        qkv_width = gate_width + _projected_cache(attention)
    yield _gemm("qkv", tokens, qkv, model.hidden + qkv_width, layers.count, storage)
    if attention.indexer is not None and not attention.indexer.shared:
        parameters = _block_indexer_part(model, attention.indexer)
        yield from _indexer_operators(scenario, layers, work, attention.indexer, parameters, model.hidden)
    output_width = attention.heads * _value_dim(attention)
    with scope("attention"):
        kv_bytes = _row_bytes(layers, scenario.deployment.kv_precision)
        flops, traffic = [], []
        for part in work:
            attended = _attended(attention, part)
            flops.append(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=attended,
                    heads=attention.heads,
                    key_dim=attention.head_dim,
                    value_dim=_value_dim(attention),
                )
            )
            reach, written = part.context, part.tokens
            if attention.sliding is not None:
                reach = minimum(part.context, attended if attention.sliding.chunked else attention.sliding.window)
            if attention.indexer is not None:
                reach = minimum(reach, attention.indexer.top_k)
            if attention.cross is not None:
                reach, written = attention.cross, 0.0
            traffic.append(
                transformer.kv_traffic(
                    sequences=part.sequences, context=reach, tokens=written, bytes_per_token=kv_bytes
                )
            )
        yield Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=total(flops),
            weights=0.0,
            cache=total(traffic),
            activations=transformer.activation_traffic(
                tokens=tokens, width=query_width + output_width, bytes_per_element=ACTIVATION_BYTES
            ),
            precision=scenario.deployment.kv_precision,
            cache_shards=cache_shards(scenario, layers),
        )
    summed = summed_message(scenario, tokens)
    yield _gemm("out", tokens, out, output_width + model.hidden, layers.count, storage, all_reduce=summed)


def _attended(attention: Attention, part: Pass) -> Any:
    """Return the keys that a query attends to on average."""
    if attention.cross is not None:
        return attention.cross
    if not attention.causal:
        seen = part.context + part.tokens
        return seen if attention.sliding is None else minimum(seen, attention.sliding.window)
    if attention.sliding is None:
        attended = transformer.mean_attended_tokens(context=part.context, tokens=part.tokens)
        return attended if attention.indexer is None else minimum(attended, attention.indexer.top_k)
    if attention.sliding.chunked:
        return transformer.mean_attended_in_chunk(
            context=part.context, tokens=part.tokens, chunk=attention.sliding.window
        )
    return transformer.mean_attended_in_window(
        context=part.context, tokens=part.tokens, window=attention.sliding.window
    )


def _mla_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Latent attention: decoding meets the latents themselves, prefill expands keys and values."""
    model, mla = scenario.model, layers.mla
    assert mla is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    parts = _mla_parts(model, mla)
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    query_width = mla.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    rank = 0.0 if mla.direct_query else mla.q_lora_rank
    # Every chip of the group projects to the latents by itself.
    yield _gemm("latents", tokens, parts["latents"], model.hidden + rank + latent, layers.count, storage, shards=1.0)
    query_input = model.hidden if mla.direct_query else mla.q_lora_rank
    yield _gemm("queries", tokens, parts["queries"], query_input + query_width, layers.count, storage)
    expanded = mla.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield _gemm("expand", tokens, parts["expand"], mla.kv_lora_rank + expanded, layers.count, storage)
    if mla.gate is not None:
        yield _gemm("gate", tokens, parts["gate"], model.hidden + mla.gate, layers.count, storage)
    if mla.indexer is not None and not mla.indexer.shared:
        yield from _indexer_operators(scenario, layers, work, mla.indexer, parts["indexer"], mla.q_lora_rank)
    with scope("attention"):
        kv_bytes = kv_bytes_per_token_layer(layers, scenario.deployment.kv_precision)
        flops, traffic = [], []
        for part in work:
            attended = transformer.mean_attended_tokens(context=part.context, tokens=part.tokens)
            reach = part.context
            if mla.indexer is not None:
                attended = minimum(attended, mla.indexer.top_k)
                reach = minimum(reach, mla.indexer.top_k)
            flops.append(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=attended,
                    heads=mla.heads,
                    key_dim=latent if part.decoding else mla.qk_nope_head_dim + mla.qk_rope_head_dim,
                    value_dim=mla.kv_lora_rank if part.decoding else mla.v_head_dim,
                )
            )
            traffic.append(
                transformer.kv_traffic(
                    sequences=part.sequences, context=reach, tokens=part.tokens, bytes_per_token=kv_bytes
                )
            )
        yield Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=total(flops),
            weights=0.0,
            cache=total(traffic),
            activations=transformer.activation_traffic(
                tokens=tokens, width=query_width + mla.heads * mla.v_head_dim, bytes_per_element=ACTIVATION_BYTES
            ),
            precision=scenario.deployment.kv_precision,
            cache_shards=cache_shards(scenario, layers),
        )
    yield _gemm(
        "out",
        tokens,
        parts["out"],
        mla.heads * mla.v_head_dim + model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )


def _indexer_operators(
    scenario: Scenario, layers: Layers, work: Work, indexer: Indexer, parameters: Any, query_width: Any
) -> Iterator[Operator]:
    """The indexer scores the whole context; every chip of the group does it by itself."""
    tokens, width = _tokens(work), indexer.heads * indexer.head_dim
    yield _gemm(
        "indexer",
        tokens,
        parameters,
        query_width + width,
        layers.count,
        storage_of(scenario, "attention", layers),
        shards=1.0,
    )
    ratio = layers.compressed.ratio if layers.compressed is not None else None
    with scope("index_scores"):
        scored = [transformer.mean_attended_tokens(context=part.context, tokens=part.tokens) for part in work]
        if ratio is not None:
            scored = [transformer.compressed_entries(tokens=seen, ratio=ratio) for seen in scored]
        yield Operator(
            name="index_scores",
            kind="attention",
            count=layers.count,
            flops=total(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=seen,
                    heads=indexer.heads,
                    key_dim=indexer.head_dim,
                    value_dim=0.0,
                )
                for part, seen in zip(work, scored, strict=True)
            ),
            weights=0.0,
            cache=total(
                transformer.kv_traffic(
                    sequences=part.sequences,
                    context=part.context,
                    tokens=part.tokens,
                    bytes_per_token=index_bytes_per_token(layers, scenario.deployment.kv_precision),
                )
                for part in work
            ),
            activations=0.0,
            precision=scenario.deployment.kv_precision if layers.attention is not None else "fp8",
            shards=1.0,
        )


def _compressed_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Compressed attention: latents and compressor run on every chip, queries and outputs by heads."""
    model, part = scenario.model, layers.compressed
    assert part is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    parts = _compressed_parts(model, part)
    width = part.heads * part.head_dim
    latent = part.q_lora_rank + part.head_dim
    yield _gemm("latents", tokens, parts["latents"], model.hidden + latent, layers.count, storage, shards=1.0)
    yield _gemm("queries", tokens, parts["queries"], part.q_lora_rank + width, layers.count, storage)
    if part.ratio is not None:
        compress = parts["compress"]
        yield _gemm("compress", tokens, compress, model.hidden + part.head_dim, layers.count, storage, shards=1.0)
    if part.indexer is not None:
        yield from _indexer_operators(scenario, layers, work, part.indexer, parts["indexer"], part.q_lora_rank)
    with scope("attention"):
        row = _row_bytes(layers, scenario.deployment.kv_precision)
        flops, traffic = [], []
        for one in work:
            attended = transformer.mean_attended_in_window(context=one.context, tokens=one.tokens, window=part.window)
            reach = minimum(one.context, part.window)
            if part.ratio is not None:
                entries = transformer.compressed_entries(
                    tokens=transformer.mean_attended_tokens(context=one.context, tokens=one.tokens), ratio=part.ratio
                )
                behind = transformer.compressed_entries(tokens=one.context, ratio=part.ratio)
                if part.indexer is not None:
                    entries = minimum(entries, part.indexer.top_k)
                    behind = minimum(behind, part.indexer.top_k)
                attended, reach = attended + entries, reach + behind
            flops.append(
                transformer.attention_flops(
                    sequences=one.sequences,
                    tokens=one.tokens,
                    attended=attended,
                    heads=part.heads,
                    key_dim=part.head_dim,
                    value_dim=part.head_dim,
                )
            )
            traffic.append(
                transformer.kv_traffic(sequences=one.sequences, context=reach, tokens=one.tokens, bytes_per_token=row)
            )
        yield Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=total(flops),
            weights=0.0,
            cache=total(traffic),
            activations=transformer.activation_traffic(
                tokens=tokens, width=2 * width, bytes_per_element=ACTIVATION_BYTES
            ),
            precision=scenario.deployment.kv_precision,
            cache_shards=cache_shards(scenario, layers),
        )
    ranks = part.output_groups * part.output_rank
    yield _gemm("out_groups", tokens, parts["out_groups"], width + ranks, layers.count, storage)
    yield _gemm(
        "out",
        tokens,
        parts["out"],
        ranks + model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )


def _recurrent_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    model = scenario.model
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    parameters, elements = _state_parts(model, layers)
    yield _gemm(
        "mixer",
        tokens,
        parameters,
        2 * model.hidden,
        layers.count,
        storage,
        all_reduce=summed_message(scenario, tokens),
    )
    with scope("state"):
        yield Operator(
            name="state",
            kind="attention",
            count=layers.count,
            flops=transformer.state_flops(tokens=tokens, elements=elements),
            weights=0.0,
            cache=total(
                transformer.state_traffic(
                    sequences=part.sequences, elements=elements, bytes_per_element=ACTIVATION_BYTES
                )
                for part in work
            ),
            activations=0.0,
            precision=storage.precision,
            cache_shards=cache_shards(scenario, layers),
        )


def _mlp_operators(scenario: Scenario, layers: Layers, work: Work, width: Any, matrices: Any) -> Iterator[Operator]:
    model = scenario.model
    tokens, storage = _tokens(work), storage_of(scenario, "mlp", layers)
    up = transformer.mlp_parameters(hidden=model.hidden, intermediate=width, matrices=matrices - 1)
    down = transformer.mlp_parameters(hidden=model.hidden, intermediate=width, matrices=1.0)
    yield _gemm("up", tokens, up, model.hidden + width, layers.count, storage)
    # Beside experts, one sum serves both.
    summed = None if layers.moe is not None else summed_message(scenario, tokens)
    yield _gemm("down", tokens, down, width + model.hidden, layers.count, storage, all_reduce=summed)


def _efficiency(scenario: Scenario) -> Efficiency:
    """Return the efficiencies of a system; one without any picks experts evenly."""
    return scenario.system.efficiency or Efficiency()


def _moe_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    model, moe, plan = scenario.model, layers.moe, scenario.deployment
    assert moe is not None
    tokens = _tokens(work)
    yield _gemm(
        "router",
        tokens,
        _router(model, moe),
        model.hidden + moe.experts,
        layers.count,
        storage_of(scenario, "router", layers),
        shards=1.0,
    )
    hidden = _expert_hidden(model, moe)
    if moe.latent is not None:
        down = 2 * transformer.projection_parameters(inputs=model.hidden, outputs=moe.latent, bias=0.0)
        width = 2 * (model.hidden + moe.latent)
        yield _gemm("expert_latents", tokens, down, width, layers.count, storage_of(scenario, "mlp", layers))
    yield from _mlp_operators(scenario, layers, work, moe.shared, moe.matrices)
    # With more expert ranks than tensor ranks the replicas share their experts, and so their tokens.
    replicas = maximum(1.0, plan.ep / plan.tp)
    storage = storage_of(scenario, "experts", layers)
    with scope("experts"):
        one, picked = _expert(model, moe), _met_experts(moe)
        expert_bytes = memory.weight_bytes(parameters=one, bytes_per_parameter=storage.element)
        met = transformer.distinct_experts(
            experts=maximum(picked, _efficiency(scenario).even_experts(moe.experts)),
            top_k=picked,
            tokens=tokens * replicas,
        )
        routed = tokens * picked
        yield Operator(
            name="experts",
            kind="gemm",
            count=layers.count,
            flops=transformer.gemm_flops(tokens=routed * replicas, parameters=one),
            weights=met * expert_bytes,
            cache=0.0,
            activations=transformer.activation_traffic(
                tokens=routed * replicas,
                width=2 * hidden + moe.matrices * moe.intermediate,
                bytes_per_element=ACTIVATION_BYTES,
            ),
            precision=storage.precision,
            shards=maximum(plan.tp, plan.ep),
            streamed=routed * expert_bytes,
            padding=transformer.gemm_flops(
                tokens=transformer.padded_rows(experts=met, tile=_efficiency(scenario).expert_rows()), parameters=one
            ),
            all_reduce=summed_message(scenario, tokens),
            exchange=Exchange(tokens * hidden, picked, moe.node_limit, not any(part.decoding for part in work)),
        )


def layer_operators(scenario: Scenario, layers: Layers, work: Work) -> list[Operator]:
    """Return the operators of one layer, in order; several passes share one read of the weights.

    Parameters
    ----------
    scenario : Scenario
    layers : Layers
        A run of equal layers.
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    list of Operator
    """
    found: list[Operator] = []
    if layers.attention is not None and layers.attention.cross is not None:
        # Without an image, engines skip the whole layer.
        layers = replace(layers, count=layers.count * minimum(1.0, layers.attention.cross))
    if layers.attention is not None:
        found += _attention_operators(scenario, layers, work)
    if layers.mla is not None:
        found += _mla_operators(scenario, layers, work)
    if layers.compressed is not None:
        found += _compressed_operators(scenario, layers, work)
    if is_recurrent(layers):
        found += _recurrent_operators(scenario, layers, work)
    if layers.beside is not None:
        width, storage = 2 * scenario.model.hidden, storage_of(scenario, "norm", layers)
        found.append(_gemm("beside", _tokens(work), layers.beside.weights, width, layers.count, storage, shards=1.0))
    if layers.mlp is not None:
        found += _mlp_operators(scenario, layers, work, layers.mlp.intermediate, layers.mlp.matrices)
    if layers.moe is not None:
        found += _moe_operators(scenario, layers, work)
    if scenario.model.lora is not None:
        found.append(_adapter_operator(scenario, layers, work))
    prefilled = tuple(part for part in work if not part.decoding)
    if scenario.model.vision is not None and prefilled:
        found.append(_vision_operator(scenario, layers, prefilled))
    if kind_of(scenario.system.kind).stores_activations:
        # Fused and streaming machines pass activations on without memory in between.
        found.append(_elementwise_operator(scenario, layers, work))
    return found


def _vision_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return the encoder of the images of what is prefilled, a layer's share of it; its tensor ranks share it."""
    vision = scenario.model.vision
    assert vision is not None
    with scope("vision"):
        share = 1 / layer_count(scenario.model)
        images = transformer.images_of_tokens(
            tokens=_tokens(work), images=vision.images, prompt=scenario.traffic.prompt
        )
        patches = images * vision.patches
        among = vision.layers * transformer.attention_flops(
            sequences=images,
            tokens=vision.patches,
            attended=vision.patches,
            heads=1.0,
            key_dim=vision.width,
            value_dim=vision.width,
        )
        weights = memory.weight_bytes(parameters=vision.weights, bytes_per_parameter=PRECISION_BYTES["bf16"])
        return Operator(
            name="vision",
            kind="gemm",
            count=layers.count,
            flops=share * (transformer.gemm_flops(tokens=patches, parameters=vision.weights) + among),
            weights=share * minimum(1.0, images) * weights,
            cache=0.0,
            activations=share
            * transformer.activation_traffic(
                tokens=patches, width=2 * vision.width * vision.layers, bytes_per_element=ACTIVATION_BYTES
            ),
            precision="bf16",
        )


def adapter_bytes_per_chip(scenario: Scenario) -> Any:
    """Weights of one adapter on one chip, all layers together; 0 without adapters [B].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Bytes [B].
    """
    lora = scenario.model.lora
    if lora is None:
        return 0.0
    weights = lora.replicated + lora.sharded / scenario.deployment.tp
    return memory.weight_bytes(parameters=weights, bytes_per_parameter=PRECISION_BYTES["bf16"])


def _adapter_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return the products of low-rank adapters: each sequence meets its own, and each that is met is read once."""
    lora, tp = scenario.model.lora, scenario.deployment.tp
    assert lora is not None
    tokens, sequences = _tokens(work), total(part.sequences for part in work)
    with scope("adapters"):
        # What every chip holds whole, every chip reads and multiplies.
        weights = (lora.sharded + lora.replicated * tp) / layer_count(scenario.model)
        met = transformer.distinct_experts(experts=lora.adapters, top_k=1.0, tokens=sequences)
        return Operator(
            name="adapters",
            kind="gemm",
            count=layers.count,
            flops=transformer.gemm_flops(tokens=tokens, parameters=weights),
            weights=met * memory.weight_bytes(parameters=weights, bytes_per_parameter=PRECISION_BYTES["bf16"]),
            cache=0.0,
            activations=transformer.activation_traffic(
                tokens=tokens, width=2 * scenario.model.hidden, bytes_per_element=ACTIVATION_BYTES
            ),
            precision="bf16",
        )


def _elementwise_operator(scenario: Scenario, layers: Layers, work: Work) -> Operator:
    """Return what runs between the matrix products: normalisations, residuals, activation functions, quantisation."""
    model, plan = scenario.model, scenario.deployment
    tokens = _tokens(work)
    width: Any = 0.0
    if layers.mlp is not None:
        width = layers.mlp.intermediate
    if layers.moe is not None:
        width = layers.moe.intermediate * layers.moe.top_k + layers.moe.shared
    quantised = scenario.system.computes_as[plan.precision] not in ("bf16", "fp16")
    with scope("elementwise"):
        traffic = transformer.elementwise_traffic(
            tokens=tokens, hidden=model.hidden, sharded_width=width, tp=plan.tp, quantised=float(quantised)
        )
    return Operator(
        name="elementwise",
        kind="gemm",
        count=layers.count,
        flops=0.0,
        weights=0.0,
        cache=0.0,
        activations=traffic,
        precision="bf16",
        shards=1.0,
    )


def head_operator(scenario: Scenario, work: Work) -> Operator:
    """Return the language-model head: a row for every token that decodes, one for each sequence that is prefilled.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Operator
    """
    model = scenario.model
    rows = total(part.sequences * part.tokens if part.decoding else part.sequences for part in work)
    words = model.vocab if model.head_vocab is None else model.head_vocab
    storage = storage_of(scenario, "head")
    return _gemm("head", rows, head_parameters(model), model.hidden + words, 1.0, storage)

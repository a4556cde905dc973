"""The operators of one forward pass, their sizes, and the step that a machine makes of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from perfmodel.equations import constant_states, engine_memory, experts, latent_attention, memory, roofline, transformer
from perfmodel.machines.kv_cache import (
    ACTIVATION_BYTES,
    cache_shards,
    index_bytes_per_token,
    row_bytes,
)
from perfmodel.numerics import Number, maximum, minimum, total
from perfmodel.specs.kinds import kind_of
from perfmodel.specs.types import (
    PRECISION_BYTES,
    Attention,
    CompressedAttention,
    Efficiency,
    Indexer,
    Layers,
    Mla,
    Scenario,
)
from perfmodel.specs.weights import (
    attention_parts,
    block_indexer_part,
    compressed_parts,
    expert_parameters,
    expert_width,
    experts_met,
    head_parameters,
    is_recurrent,
    layer_count,
    mla_parts,
    projected_cache,
    router_parameters,
    state_parts,
    tensors,
    value_width,
)
from perfmodel.trace import scope

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

    @functools.cached_property
    def flops(self) -> Any:
        """Work of all chips [FLOP]."""
        return total(load.count * load.flops for load in self.loads)

    @functools.cached_property
    def bytes_moved(self) -> Any:
        """Memory traffic of all chips [B]."""
        return total(load.count * load.chips * load.moved for load in self.loads)

    @functools.cached_property
    def compute(self) -> Any:
        """Seconds of the operators that arithmetic decides."""
        return _repeated(self.overlaps, roofline.compute_bound_time)

    @functools.cached_property
    def memory(self) -> Any:
        """Seconds of the operators that traffic decides, and of stages that wait for a slower one's traffic."""
        return _repeated(self.overlaps, roofline.memory_bound_time) + self.imbalance

    @functools.cached_property
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


# --- parameters --------------------------------------------------------------------------------------------------


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
    return engine_memory.filled_up(
        dimension=scenario.model.hidden, shards=1.0, multiple=engine.expert_hidden
    ) * engine_memory.filled_up(
        dimension=moe.intermediate, shards=maximum(1.0, plan.tp / plan.ep), multiple=engine.expert_width
    )


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


@dataclass(frozen=True)
class _Met:
    """What the queries of a pass meet: keys on average, and entries of the cache that are read and written."""

    attended: Any
    reach: Any
    written: Any
    heads: Any
    key_dim: Any
    value_dim: Any


def _attention(
    scenario: Scenario, layers: Layers, work: Work, tokens: Any, meet: Callable[[Pass], _Met], width: Any
) -> Operator:
    """Return the attention itself, behind its projections: ``meet`` says what a pass meets, ``width`` is in and out."""
    with scope("attention"):
        row = row_bytes(layers, scenario.deployment.kv_precision)
        flops, traffic = [], []
        for part in work:
            met = meet(part)
            flops.append(
                transformer.attention_flops(
                    sequences=part.sequences,
                    tokens=part.tokens,
                    attended=met.attended,
                    heads=met.heads,
                    key_dim=met.key_dim,
                    value_dim=met.value_dim,
                )
            )
            traffic.append(
                transformer.kv_traffic(
                    sequences=part.sequences, context=met.reach, tokens=met.written, bytes_per_token=row
                )
            )
        return Operator(
            name="attention",
            kind="attention",
            count=layers.count,
            flops=total(flops),
            weights=0.0,
            cache=total(traffic),
            activations=transformer.activation_traffic(tokens=tokens, width=width, bytes_per_element=ACTIVATION_BYTES),
            precision=scenario.deployment.kv_precision,
            cache_shards=cache_shards(scenario, layers),
        )


def _met_by_heads(attention: Attention, part: Pass) -> _Met:
    """Return what queries meet where each head, or group of heads, has keys and values of its own."""
    attended, reach, written = _attended(attention, part), part.context, part.tokens
    if attention.sliding is not None:
        reach = minimum(part.context, attended if attention.sliding.chunked else attention.sliding.window)
    if attention.indexer is not None:
        reach = minimum(reach, attention.indexer.top_k)
    if attention.cross is not None:
        reach, written = attention.cross, 0.0
    return _Met(attended, reach, written, attention.heads, attention.head_dim, value_width(attention))


def _attention_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    model, attention = scenario.model, layers.attention
    assert attention is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    qkv, out = attention_parts(model, attention)
    query_width = attention.heads * attention.head_dim
    gate_width = query_width * (2.0 if attention.gated else 1.0)
    if attention.cross is not None:
        # Keys and values of an image are made once; only queries are made of each token.
        qkv = transformer.projection_parameters(inputs=model.hidden, outputs=gate_width, bias=0.0)
        qkv_width = gate_width
    else:
        qkv_width = gate_width + projected_cache(attention)
    yield _gemm("qkv", tokens, qkv, model.hidden + qkv_width, layers.count, storage)
    if attention.indexer is not None and not attention.indexer.shared:
        parameters = block_indexer_part(model, attention.indexer)
        yield from _indexer_operators(scenario, layers, work, attention.indexer, parameters, model.hidden)
    output_width = attention.heads * value_width(attention)
    meet = functools.partial(_met_by_heads, attention)
    yield _attention(scenario, layers, work, tokens, meet, query_width + output_width)
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


def _met_latents(mla: Mla, part: Pass) -> _Met:
    """Return what queries meet of latents: themselves where it decodes, expanded keys and values in a prefill."""
    attended, reach = transformer.mean_attended_tokens(context=part.context, tokens=part.tokens), part.context
    if mla.indexer is not None:
        attended, reach = minimum(attended, mla.indexer.top_k), minimum(reach, mla.indexer.top_k)
    if part.decoding:
        return _Met(attended, reach, part.tokens, mla.heads, mla.kv_lora_rank + mla.qk_rope_head_dim, mla.kv_lora_rank)
    return _Met(attended, reach, part.tokens, mla.heads, mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim)


def _mla_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Latent attention: decoding meets the latents themselves, prefill expands keys and values."""
    model, mla = scenario.model, layers.mla
    assert mla is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    parts = mla_parts(model, mla)
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
    meet = functools.partial(_met_latents, mla)
    yield _attention(scenario, layers, work, tokens, meet, query_width + mla.heads * mla.v_head_dim)
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
            scored = [latent_attention.compressed_entries(tokens=seen, ratio=ratio) for seen in scored]
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


def _met_compressed(attention: CompressedAttention, part: Pass) -> _Met:
    """Return what queries meet of a window and of the compressed entries behind it."""
    attended = transformer.mean_attended_in_window(context=part.context, tokens=part.tokens, window=attention.window)
    reach = minimum(part.context, attention.window)
    if attention.ratio is not None:
        entries = latent_attention.compressed_entries(
            tokens=transformer.mean_attended_tokens(context=part.context, tokens=part.tokens), ratio=attention.ratio
        )
        behind = latent_attention.compressed_entries(tokens=part.context, ratio=attention.ratio)
        if attention.indexer is not None:
            entries, behind = (minimum(some, attention.indexer.top_k) for some in (entries, behind))
        attended, reach = attended + entries, reach + behind
    return _Met(attended, reach, part.tokens, attention.heads, attention.head_dim, attention.head_dim)


def _compressed_operators(scenario: Scenario, layers: Layers, work: Work) -> Iterator[Operator]:
    """Compressed attention: latents and compressor run on every chip, queries and outputs by heads."""
    model, part = scenario.model, layers.compressed
    assert part is not None
    tokens, storage = _tokens(work), storage_of(scenario, "attention", layers)
    parts = compressed_parts(model, part)
    width = part.heads * part.head_dim
    latent = part.q_lora_rank + part.head_dim
    yield _gemm("latents", tokens, parts["latents"], model.hidden + latent, layers.count, storage, shards=1.0)
    yield _gemm("queries", tokens, parts["queries"], part.q_lora_rank + width, layers.count, storage)
    if part.ratio is not None:
        compress = parts["compress"]
        yield _gemm("compress", tokens, compress, model.hidden + part.head_dim, layers.count, storage, shards=1.0)
    if part.indexer is not None:
        yield from _indexer_operators(scenario, layers, work, part.indexer, parts["indexer"], part.q_lora_rank)
    yield _attention(scenario, layers, work, tokens, functools.partial(_met_compressed, part), 2 * width)
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
    parameters, elements = state_parts(model, layers)
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
            flops=constant_states.state_flops(tokens=tokens, elements=elements),
            weights=0.0,
            cache=total(
                constant_states.state_traffic(
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
        router_parameters(model, moe),
        model.hidden + moe.experts,
        layers.count,
        storage_of(scenario, "router", layers),
        shards=1.0,
    )
    hidden = expert_width(model, moe)
    if moe.latent is not None:
        down = 2 * transformer.projection_parameters(inputs=model.hidden, outputs=moe.latent, bias=0.0)
        width = 2 * (model.hidden + moe.latent)
        yield _gemm("expert_latents", tokens, down, width, layers.count, storage_of(scenario, "mlp", layers))
    yield from _mlp_operators(scenario, layers, work, moe.shared, moe.matrices)
    # With more expert ranks than tensor ranks the replicas share their experts, and so their tokens.
    replicas = maximum(1.0, plan.ep / plan.tp)
    storage = storage_of(scenario, "experts", layers)
    with scope("experts"):
        one, picked = expert_parameters(model, moe), experts_met(moe)
        expert_bytes = memory.weight_bytes(parameters=one, bytes_per_parameter=storage.element)
        met = experts.distinct_experts(
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
                tokens=experts.padded_rows(experts=met, tile=_efficiency(scenario).expert_rows()), parameters=one
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
        met = experts.distinct_experts(experts=lora.adapters, top_k=1.0, tokens=sequences)
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

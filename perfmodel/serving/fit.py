"""What fits: weights and KV cache on a chip, and the cap on concurrency that follows.

GPU engines each size their cache by a budget of their own (:class:`~perfmodel.specs.types.Engine`); other machines
have a utilisation and a reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import engine_memory, memory, paging, serving
from perfmodel.machines.base import machine_of
from perfmodel.machines.kv_cache import (
    grows_evenly,
)
from perfmodel.machines.operators import adapter_bytes_per_chip
from perfmodel.machines.speculation import draft_scenario
from perfmodel.machines.weight_bytes import layer_bytes_per_chip, precision_of, storage_of
from perfmodel.numerics import maximum, minimum, switch_at, total
from perfmodel.serving.cache_bytes import bytes_per_token, draft_beside, held_layers, request_bytes
from perfmodel.specs import plugins
from perfmodel.specs.types import ENGINES, PRECISION_BYTES, Engine, Layers, Scenario, Tier
from perfmodel.specs.weights import head_parameters, is_recurrent, layer_count, vocabulary
from perfmodel.trace import is_given, scope

#: Experts in these precisions run in kernels that keep no workspace between the products.
_FUSED_EXPERTS = ("fp4", "mxfp4")


#: Requests at once of a model that keeps nothing of them, where no engine sets a limit.
_MANY = 1024.0
#: Engines that admit a request on the blocks of its prompt and preempt when none are left.
_GROWING = ("vllm", "sglang")


@dataclass(frozen=True)
class Fit:
    """Memory of one chip of the fullest stage [B], and the requests that fit a replica.

    Attributes
    ----------
    capacity, weights, reserved, room : Number
        What the driver shows, weights, everything else that is no cache, and the pool of the cache.  Weights that
        stream in from a memory of their own take nothing of the capacity.
    per_request : Number
        Cache of one request at its full length, in whole blocks.
    cap : Number
        Requests that fit, a whole number.
    utilisation : Number
        Share of the capacity that the engine may take.
    activation_peak, non_torch, cuda_graphs : Number
        Parts of what is reserved; where there is no engine's budget, all of it is ``non_torch``.
    per_token : Number
        Cache that one more token takes while it is within every window.
    block_tokens : Number
        Tokens of a block.
    concurrency : Number
        Requests that fit, with a fraction.
    weights_capacity : Number or None
        Memory that the weights stream in from, where they do not lie beside the cache.
    """

    capacity: Any
    weights: Any
    reserved: Any
    room: Any
    per_request: Any
    cap: Any
    utilisation: Any = 1.0
    activation_peak: Any = 0.0
    non_torch: Any = 0.0
    cuda_graphs: Any = 0.0
    per_token: Any = 0.0
    block_tokens: Any = 1.0
    concurrency: Any = 0.0
    weights_capacity: Any = None

    @property
    def spare(self) -> Any:
        """Bytes that are left for activations beside the pool; less than was set aside where a share is given."""
        weights = self.weights if self.weights_capacity is None else 0.0
        return self.capacity - weights - self.non_torch - self.cuda_graphs - self.room


@dataclass(frozen=True)
class Budget:
    """How an engine divides the memory of a chip [B]."""

    utilisation: Any
    activation_peak: Any
    non_torch: Any
    cuda_graphs: Any
    room: Any


def usable(tier: Tier) -> Any:
    """Return what the driver shows of a tier, or its label where that is not published.

    Parameters
    ----------
    tier : Tier

    Returns
    -------
    Number
        Bytes [B].
    """
    if not is_given(tier.visible):
        return tier.capacity
    return memory.visible_memory(capacity=tier.capacity, share=tier.visible)


# --- weights -----------------------------------------------------------------------------------------------------


def chip_weights(scenario: Scenario, ends_elsewhere: bool = False) -> Any:
    """Return the weights on a chip of the fullest stage [B], with or without embedding and head.

    Parameters
    ----------
    scenario : Scenario
    ends_elsewhere : bool
        Whether embedding and head lie on stages of their own.

    Returns
    -------
    Number
        Bytes [B].
    """
    model, plan = scenario.model, scenario.deployment
    engine = scenario.system.engine
    if engine is not None and is_given(engine.weights):
        return engine.weights
    layers, held_layer_count = layer_count(model), held_layers(scenario)
    ends: Any = 0.0
    if not machine_of(scenario.system).ends_apart and not ends_elsewhere:
        # The first stage holds the embedding and the last the head; one stage alone holds both.
        ends = _end_bytes(scenario, maximum(0.0, 2 - plan.pp))
        ends = ends + memory.weight_bytes(parameters=model.towers, bytes_per_parameter=PRECISION_BYTES["bf16"])
    body = total(held_layer_count * (run.count / layers) * layer_bytes_per_chip(scenario, run) for run in model.layers)
    if model.lora is not None:
        body = body + held_layer_count / layers * (model.lora.adapters * adapter_bytes_per_chip(scenario))
    return memory.weight_bytes_per_chip(
        layer_bytes=body,
        end_bytes=ends,
        tp=plan.tp,
    )


def _end_bytes(scenario: Scenario, both: Any) -> Any:
    """Return the bytes of the embedding, and of the head as far as ``both`` lie on one stage [B]."""
    model = scenario.model
    own, head = storage_of(scenario, "embedding"), storage_of(scenario, "head")
    tables = 1.0 if model.tied_embeddings else 2.0
    alike = own.element == head.element and model.task == "generate" and model.tables is None
    if alike and model.head_vocab is None:
        parameters = vocabulary(model) * (1 + (tables - 1) * both)
        return memory.weight_bytes(parameters=parameters, bytes_per_parameter=own.element)
    entries = vocabulary(model) if model.tables is None else vocabulary(model) + model.tables
    if model.task == "draft":
        # The words of a draft are looked up in the table of its target.
        both, entries = 1.0, 0.0
    found = memory.weight_bytes(parameters=entries, bytes_per_parameter=own.element)
    if model.tied_embeddings:
        return found
    return found + both * memory.weight_bytes(parameters=head_parameters(model), bytes_per_parameter=head.element)


def all_weights(scenario: Scenario) -> Any:
    """Return the weights on a chip of the fullest stage, those of a draft beside it included [B].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Bytes [B].
    """
    weights, draft = chip_weights(scenario), draft_beside(scenario)
    engine = scenario.system.engine
    if draft is None or (engine is not None and is_given(engine.weights)):
        return weights
    assert scenario.speculation is not None
    with scope("draft"):
        return weights + chip_weights(draft, ends_elsewhere=scenario.speculation.shares_ends)


# --- cache -------------------------------------------------------------------------------------------------------


# --- budgets -----------------------------------------------------------------------------------------------------


def peak_of_activations(scenario: Scenario, engine: Engine) -> Any:
    """Return the activations for which an engine sizes its memory [B].

    Parameters
    ----------
    scenario : Scenario
    engine : Engine

    Returns
    -------
    Number
        Bytes [B].
    """
    if is_given(engine.activation_peak):
        return engine.activation_peak
    if engine.name == "sglang":
        return engine_memory.sglang_activations(tokens=engine.batched_tokens)
    model, plan = scenario.model, scenario.deployment
    tokens = engine.batched_tokens
    drafted: Any = 0.0
    if scenario.speculation is not None:
        drafted = engine_memory.drafted_rows(rows=engine.sequences, k=scenario.speculation.k, tokens=tokens)
    workspace: Any = 0.0
    for run in model.layers:
        if run.moe is None:
            continue
        if precision_of(scenario, "experts", run) not in _FUSED_EXPERTS:
            width = run.moe.intermediate / maximum(1.0, plan.tp / plan.ep)
            workspace = maximum(
                workspace,
                engine_memory.expert_workspace(
                    tokens=tokens, top_k=run.moe.top_k, intermediate=width, hidden=model.hidden
                ),
            )
    return engine_memory.activation_peak(
        forward=activations_of_a_layer(scenario, engine),
        logits=engine_memory.logit_activations(
            rows=engine.sequences,
            drafted=drafted,
            vocab=model.vocab,
            copies=engine.logit_copies,
            tokens=tokens,
            hidden=model.hidden,
        ),
        workspace=engine.expert_workspaces * workspace,
    )


def activations_of_a_layer(scenario: Scenario, engine: Engine) -> Any:
    """Return what the widest layer of a step holds at once, which no engine does without [B].

    Parameters
    ----------
    scenario : Scenario
    engine : Engine

    Returns
    -------
    Number
        Bytes [B].
    """
    model, plan = scenario.model, scenario.deployment
    widths: Any = 0.0
    for run in model.layers:
        if run.mlp is not None:
            widths = maximum(widths, run.mlp.intermediate / plan.tp)
        if run.moe is not None:
            widths = maximum(widths, run.moe.shared / plan.tp)
    return engine_memory.forward_activations(
        tokens=engine.batched_tokens, hidden=model.hidden, intermediate=widths, streams=engine.hidden_streams
    )


def budget(scenario: Scenario, capacity: Any, weights: Any) -> Budget:
    """Return how the memory of a chip is divided, by the rule of its engine.

    Parameters
    ----------
    scenario : Scenario
    capacity : Number
        What the driver shows [B].
    weights : Number
        On the chip [B].

    Returns
    -------
    Budget
    """
    engine, plan = scenario.system.engine, scenario.deployment
    if engine is None:
        share, reserved = machine_of(scenario.system).reserve(scenario.system)
        room = memory.kv_room(visible=capacity, utilisation=share, weights=weights, reserved=reserved)
        return Budget(share, 0.0, reserved, 0.0, room)
    if engine.name not in ENGINES:
        rule: Callable[..., Budget] = plugins.load(plugins.ENGINES, engine.name)
        return rule(scenario, engine, capacity, weights)
    peak = peak_of_activations(scenario, engine)
    outside = engine_memory.non_torch_memory(
        context=engine.context_memory,
        communication=engine.communication_memory,
        ranks=maximum(plan.tp, plan.ep),
    )
    if engine.name == "sglang":
        graphs = engine.cuda_graphs
        if not is_given(graphs):
            batch = switch_at(plan.tp, 4.0, engine.sequences, engine.group_sequences)
            graphs = engine_memory.sglang_graphs(batch=batch)
        share = engine.memory_utilisation
        if not is_given(share):
            reserve = engine_memory.sglang_reserve(
                visible=capacity, activations=peak, graphs=graphs, tp=plan.tp, pp=plan.pp
            )
            share = engine_memory.static_fraction(visible=capacity, reserve=reserve)
        room = engine_memory.sglang_kv_pool(visible=capacity, utilisation=share, weights=weights, non_torch=outside)
        return Budget(share, peak, outside, graphs, room)
    pool = engine_memory.trtllm_kv_pool if engine.name == "trtllm" else engine_memory.vllm_kv_pool
    room = pool(
        visible=capacity,
        utilisation=engine.memory_utilisation,
        weights=weights,
        activation_peak=peak,
        non_torch=outside,
        cuda_graphs=engine.cuda_graphs,
    )
    return Budget(engine.memory_utilisation, peak, outside, engine.cuda_graphs, room)


def fit(scenario: Scenario, tokens: Any = None) -> Fit:
    """Return what the weights take of a chip, and how many requests fit beside them.

    Parameters
    ----------
    scenario : Scenario
    tokens : Number, optional
        Length of a request; the mean of the traffic where not given [1].

    Returns
    -------
    Fit
    """
    machine, engine = machine_of(scenario.system), scenario.system.engine
    with scope("memory"):
        held_context: Any = None
        if tokens is None:
            traffic = scenario.traffic
            prompt = serving.mean_length(nominal=traffic.prompt, jitter=traffic.length_jitter)
            output = serving.mean_length(nominal=traffic.output, jitter=traffic.length_jitter)
            tokens = prompt + output
            if blocks_grow(scenario):
                held_context = serving.mean_decode_context(prompt=prompt, output=output)
        capacity = usable(machine.cache_memory(scenario.system))
        weights = all_weights(scenario)
        streamed = machine.weights_tier != machine.cache_tier
        parts = budget(scenario, capacity, 0.0 if streamed else weights)
        own = None
        if streamed:
            own = usable(machine.weights_memory(scenario.system))
            spare = own - weights
            parts = replace(parts, room=switch_at(spare, 0.0, spare, parts.room))
        if engine is not None and is_given(engine.kv_pool):
            parts = replace(parts, room=engine.kv_pool)
        per_token = bytes_per_token(scenario)
        per_request = request_bytes(scenario, tokens)
        room = parts.room
        block = 1.0 if engine is None else engine.block_tokens
        pool = room
        if engine is not None and not all(is_recurrent(run) for run in _cached(scenario)):
            page = per_token * block
            pool = paging.kv_blocks(room=room, block_bytes=page) * page
        cap = memory.concurrency_cap(room=pool, per_request=per_request)
        if held_context is not None:
            # One request fits at its full length; of more, each holds what it has brought so far.
            growing = memory.concurrency_cap(room=pool, per_request=request_bytes(scenario, held_context))
            cap = minimum(growing, cap * growing)
        concurrency = paging.max_concurrency(room=pool, per_request=per_request)
        if scenario.model.task == "pool":
            # Nothing is kept of a request: as many run as the engine schedules, if the weights fit at all.
            most = _MANY if engine is None else engine.max_sequences
            cap = minimum(most, memory.concurrency_cap(room=room, per_request=1.0))
            per_token = per_request = 0.0
            concurrency = cap
        if machine.drafts_apart and (draft := draft_scenario(scenario)) is not None:
            with scope("draft"):
                beside = fit(draft, tokens)
            cap, concurrency = minimum(cap, beside.cap), minimum(concurrency, beside.concurrency)
    return Fit(
        capacity=capacity,
        weights=weights,
        reserved=capacity - room if streamed else capacity - weights - room,
        room=room,
        per_request=per_request,
        cap=cap,
        utilisation=parts.utilisation,
        activation_peak=parts.activation_peak,
        non_torch=parts.non_torch,
        cuda_graphs=parts.cuda_graphs,
        per_token=per_token,
        block_tokens=block,
        concurrency=concurrency,
        weights_capacity=own,
    )


def _cached(scenario: Scenario) -> list[Layers]:
    """Return the runs of layers that have a mixer."""
    return [run for run in scenario.model.layers if run.attention or run.mla or run.compressed or is_recurrent(run)]


def blocks_grow(scenario: Scenario) -> bool:
    """Whether a request gets blocks as it grows, and may lose them; TensorRT-LLM sets its full length aside.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    bool
    """
    engine = scenario.system.engine
    return engine is not None and engine.name in _GROWING


def is_uniform(scenario: Scenario) -> bool:
    """Whether every layer with a cache keeps every token.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    bool
    """
    return all(grows_evenly(run) for run in _cached(scenario))


def kv_tokens(scenario: Scenario, memory: Fit, tokens: Any) -> Any:
    """Return the tokens of cache of a replica: whole blocks, or what requests of one length can use.

    Parameters
    ----------
    scenario : Scenario
    memory : Fit
        For requests of that length.
    tokens : Number
        Length of a request [1].

    Returns
    -------
    Number
        Tokens [1].
    """
    if scenario.model.task == "pool":
        return 0.0
    if is_uniform(scenario):
        return paging.longest_sequence(room=memory.room, bytes_per_token=memory.per_token, block=memory.block_tokens)
    return paging.kv_capacity(concurrency=memory.concurrency, tokens=tokens)

"""Bytes that requests hold in the cache of a chip."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import memory, paging, pipeline
from perfmodel.machines.base import machine_of
from perfmodel.machines.kv_cache import (
    cache_shards,
    grows_evenly,
    index_bytes_per_token,
    indexer_of,
    kv_bytes_per_token_layer,
    request_cache,
)
from perfmodel.machines.speculation import draft_scenario
from perfmodel.numerics import ceil_div, total
from perfmodel.specs.types import Layers, Scenario
from perfmodel.specs.weights import layer_count


def held_layers(scenario: Scenario) -> Any:
    """Return the layers of the fullest stage.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Layers [1].
    """
    stages = machine_of(scenario.system).layer_stages(scenario)
    return pipeline.layers_per_stage(layers=layer_count(scenario.model), stages=stages)


def _stored_tokens(run: Layers, tokens: Any, block: Any) -> Any:
    """Return the tokens whose blocks one request occupies in a layer."""
    if run.attention is not None and run.attention.sliding is not None:
        window = run.attention.sliding.window
        return paging.windowed_blocks(tokens=tokens, window=window, block=block) * block
    return paging.request_blocks(tokens=tokens, block=block) * block


def request_bytes(scenario: Scenario, tokens: Any) -> Any:
    """Return the cache of a request of so many tokens on a chip of the fullest stage, in whole blocks [B].

    Parameters
    ----------
    scenario : Scenario
    tokens : Number
        Length of the request [1].

    Returns
    -------
    Number
        Bytes [B].
    """
    engine = scenario.system.engine
    parts = []
    for run in scenario.model.layers:
        windowed = run.attention is not None and run.attention.sliding is not None
        if engine is None or not (windowed or grows_evenly(run)):
            cache = request_cache(scenario, run, tokens)
        else:
            stored = _stored_tokens(run, tokens, engine.block_tokens)
            # A window's blocks are one more than the window, so the blocks decide and not the window.
            cache = stored * token_bytes(scenario, run)
        parts.append(on_chip(scenario, run, cache))
    if (draft := draft_beside(scenario)) is not None:
        parts.append(request_bytes(draft, tokens))
    return total(parts)


def draft_beside(scenario: Scenario) -> Scenario | None:
    """Return the draft that lies on the chips of the target; None where it has stages of its own.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario | None
    """
    return None if machine_of(scenario.system).drafts_apart else draft_scenario(scenario)


def token_bytes(scenario: Scenario, run: Layers) -> Any:
    """Return the cache that one token leaves in one layer, keys of an indexer included [B].

    Parameters
    ----------
    scenario : Scenario
    run : Layers
        A run of equal layers.

    Returns
    -------
    Number
        Bytes [B].
    """
    precision = scenario.deployment.kv_precision
    cache = kv_bytes_per_token_layer(run, precision)
    if indexer_of(run) is not None:
        cache = cache + index_bytes_per_token(run, precision)
    return cache


def bytes_per_token(scenario: Scenario) -> Any:
    """Return the cache that one more token takes on a chip while it is within every window [B].

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Bytes [B].
    """
    own = total(on_chip(scenario, run, token_bytes(scenario, run)) for run in scenario.model.layers)
    draft = draft_beside(scenario)
    return own if draft is None else own + bytes_per_token(draft)


def growth(scenario: Scenario, tokens: Any) -> tuple[Any, Any]:
    """Return what a request adds to a chip's cache for one more token at its length, and what of it does not grow.

    The first times the tokens in whole blocks, plus the second, is what the request takes.

    Parameters
    ----------
    scenario : Scenario
    tokens : Number
        Length of the request [1].

    Returns
    -------
    tuple of Number
        Growth a token and fixed part [B].
    """
    if scenario.model.task == "pool":
        return 0.0, 0.0
    engine = scenario.system.engine
    block = 1.0 if engine is None else engine.block_tokens
    whole = ceil_div(tokens, block) * block
    held = request_bytes(scenario, tokens)
    grows = memory.growth_per_token(longer=request_bytes(scenario, whole + block), held_layers=held, tokens=block)
    return grows, memory.fixed_part(held_layers=held, growth=grows, tokens=whole)


def on_chip(scenario: Scenario, run: Layers, cache: Any) -> Any:
    """Return the share of a chip of the cache of a run of layers [B].

    Parameters
    ----------
    scenario : Scenario
    run : Layers
    cache : Number

    Returns
    -------
    Number
    """
    tp = scenario.deployment.tp
    return memory.request_kv_bytes(
        cache=cache,
        layers=held_layers(scenario) * (run.count / layer_count(scenario.model)),
        shards=cache_shards(scenario, run) if machine_of(scenario.system).shards_by_head else tp,
    )

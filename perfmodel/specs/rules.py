"""What must hold between the fields of a spec; one small rule each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.specs import kinds
from perfmodel.specs.naming import read_engine
from perfmodel.specs.sessions import RULES as OF_SESSIONS
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import (
    PRECISIONS,
    TENSOR_CLASSES,
    Model,
    System,
    Traffic,
)


def _known_kind(system: System) -> Iterator[tuple[str, str]]:
    if system.kind not in kinds.names():
        yield "kind", f"unknown '{system.kind}', expected one of {', '.join(kinds.names())}"


def _memory_of_its_kind(system: System) -> Iterator[tuple[str, str]]:
    if system.kind not in kinds.names():
        return
    kind = kinds.kind_of(system.kind)
    for tier in dict.fromkeys((kind.weights_tier, kind.cache_tier)):
        if getattr(system.memory, tier) is None:
            yield f"memory.{tier}", f"a machine of kind {system.kind} needs this memory"


def _plans(system: System) -> Iterator[tuple[str, str]]:
    names = [plan.name for plan in system.plans]
    if not names:
        yield "plans", "give at least one plan"
    elif system.default_plan not in names:
        yield "default_plan", f"unknown '{system.default_plan}', expected one of {', '.join(names)}"
    for index, plan in enumerate(system.plans):
        if plan.pp not in ("fewest", "layers") and not (plan.pp.isdigit() and int(plan.pp) >= 1):
            yield f"plans.{index}.pp", f"unknown '{plan.pp}', expected a number of stages, fewest or layers"
        known = system.kind in kinds.names()
        if plan.pp in ("fewest", "layers") and known and not kinds.kind_of(system.kind).finds_stages:
            yield f"plans.{index}.pp", f"a machine of kind {system.kind} finds no stages itself: write a number"


def _rates(system: System) -> Iterator[tuple[str, str]]:
    for precision, rate in system.computes_as.items():
        if precision not in PRECISIONS:
            yield f"computes_as.{precision}", f"unknown precision, expected one of {', '.join(PRECISIONS)}"
        elif rate not in system.rates:
            yield f"computes_as.{precision}", f"'{rate}' is none of the rates {', '.join(system.rates)}"
    for needed in ("bf16", "fp16"):
        if needed not in system.computes_as:
            yield f"computes_as.{needed}", "attention runs at 16 bits: say at which rate"


def _engine(system: System) -> Iterator[tuple[str, str]]:
    try:
        read_engine(system.default_engine)
    except UserError as error:
        yield "default_engine", str(error)


def _first(where: Any, *values: Any) -> list[float]:
    """Return the values at the first point where something holds."""
    at = np.unravel_index(int(np.argmax(where)), np.shape(where))
    return [float(np.broadcast_to(value, np.shape(where))[at]) for value in values]


def _classes(model: Model) -> Iterator[tuple[str, str]]:
    for where, found in (("stored", model.stored), ("element_bytes", model.element_bytes)):
        for kind in set(found) - set(TENSOR_CLASSES):
            yield f"{where}.{kind}", f"unknown class, expected some of {', '.join(TENSOR_CLASSES)}"


def _layers(model: Model) -> Iterator[tuple[str, str]]:
    if not model.layers:
        yield "layers", "give at least one run of layers"
    mixing = 0
    for index, run in enumerate(model.layers):
        parts = (run.attention, run.mla, run.compressed, run.linear, run.mamba2, run.mamba1, run.recurrent)
        mixers = [part for part in parts if part is not None]
        mixing += len(mixers)
        blocks = [part for part in (run.mlp, run.moe) if part is not None]
        if len(mixers) > 1 or len(blocks) > 1 or not (mixers or blocks or run.beside):
            yield f"layers.{index}", "a layer has at most one mixer and at most one feed-forward block, and one of them"
        if run.attention is not None:
            uneven = np.asarray(run.attention.heads) % np.asarray(run.attention.kv_heads) != 0
            if np.any(uneven):
                kv_heads, heads = _first(uneven, run.attention.kv_heads, run.attention.heads)
                yield f"layers.{index}.attention.kv_heads", f"{kv_heads:g} do not divide the {heads:g} heads"
        if run.moe is not None:
            beyond = np.asarray(run.moe.top_k) > np.asarray(run.moe.experts)
            if np.any(beyond):
                top_k, experts = _first(beyond, run.moe.top_k, run.moe.experts)
                yield f"layers.{index}.moe.top_k", f"{top_k:g} is more than the {experts:g} experts"
    if model.layers and not mixing:
        yield "layers", "no layer looks back: give some of them attention, latents or a state"


def _lengths(traffic: Traffic) -> Iterator[tuple[str, str]]:
    known = {entry.name: entry.default for entry in fields(Traffic)}
    for name in ("prompt_scv", "output_scv"):
        if traffic.lengths not in ("", "lognormal") and np.any(getattr(traffic, name) != known[name]):
            yield (
                name,
                f"lengths of {traffic.lengths} have a spread of their own: set traffic.lengths=lognormal before it, or "
                "leave it out",
            )


_RULES: dict[type[Any], tuple[Callable[[Any], Iterator[tuple[str, str]]], ...]] = {
    System: (_known_kind, _memory_of_its_kind, _plans, _rates, _engine),
    Model: (_layers, _classes),
    Traffic: (_lengths,),
    Session: OF_SESSIONS,
}


def broken(spec: Any) -> list[tuple[str, str]]:
    """Return path and message of every rule that a spec breaks.

    Parameters
    ----------
    spec : Any
        A dataclass of :mod:`perfmodel.specs.types`.

    Returns
    -------
    list of (str, str)
    """
    return [found for rule in _RULES.get(type(spec), ()) for found in rule(spec)]

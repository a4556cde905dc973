"""Weights as a chip stores and reads them: precision, scales, bytes of a layer."""

from __future__ import annotations

from typing import Any, NamedTuple

from perfmodel.equations import engine_memory, memory
from perfmodel.numerics import maximum, total
from perfmodel.specs.kinds import kind_of
from perfmodel.specs.types import (
    PRECISION_BYTES,
    Layers,
    Scenario,
)
from perfmodel.specs.weights import tensors


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

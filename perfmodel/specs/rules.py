"""What must hold between the fields of a spec; one small rule each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from perfmodel.specs.types import (
    EFFICIENCY_OF_KIND,
    ENGINES,
    OWNERSHIPS,
    PRECISIONS,
    TENSOR_CLASSES,
    YIELD_MODELS,
    Economics,
    Materials,
    Model,
    System,
)

_MEMORY_OF_KIND = {"kernels": "hbm", "dataflow": "hbm", "sram_pipeline": "sram"}


def _known_kind(system: System) -> Iterator[tuple[str, str]]:
    if system.kind not in EFFICIENCY_OF_KIND:
        yield "kind", f"unknown '{system.kind}', expected one of {', '.join(EFFICIENCY_OF_KIND)}"


def _memory_of_its_kind(system: System) -> Iterator[tuple[str, str]]:
    tier = _MEMORY_OF_KIND.get(system.kind)
    if tier and getattr(system.memory, tier) is None:
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
        if plan.pp in ("fewest", "layers") and system.kind != "sram_pipeline":
            yield f"plans.{index}.pp", "only a pipeline of SRAM chips finds its stages itself; write a number"


def _rates(system: System) -> Iterator[tuple[str, str]]:
    for precision, rate in system.computes_as.items():
        if precision not in PRECISIONS:
            yield f"computes_as.{precision}", f"unknown precision, expected one of {', '.join(PRECISIONS)}"
        elif rate not in system.rates:
            yield f"computes_as.{precision}", f"'{rate}' is none of the rates {', '.join(system.rates)}"
    for needed in ("bf16", "fp16"):
        if needed not in system.computes_as:
            yield f"computes_as.{needed}", "attention runs at 16 bits: say at which rate"


def _quantised(system: System) -> Iterator[tuple[str, str]]:
    if system.quantised not in ("linear", "all"):
        yield "quantised", f"unknown '{system.quantised}', expected linear or all"


def _engine(system: System) -> Iterator[tuple[str, str]]:
    if system.default_engine not in ENGINES:
        yield "default_engine", f"unknown '{system.default_engine}', expected one of {', '.join(ENGINES)}"


def _precision(model: Model) -> Iterator[tuple[str, str]]:
    if model.precision not in PRECISIONS:
        yield "precision", f"unknown '{model.precision}', expected one of {', '.join(PRECISIONS)}"
    for kind in (*model.unquantised, *(kind for run in model.layers for kind in run.unquantised)):
        if kind not in TENSOR_CLASSES:
            yield "unquantised", f"unknown '{kind}', expected some of {', '.join(TENSOR_CLASSES)}"


def _layers(model: Model) -> Iterator[tuple[str, str]]:
    if not model.layers:
        yield "layers", "give at least one run of layers"
    for index, run in enumerate(model.layers):
        mixers = [part for part in (run.attention, run.mla, run.linear, run.mamba2, run.mamba1) if part is not None]
        blocks = [part for part in (run.mlp, run.moe) if part is not None]
        if len(mixers) > 1 or len(blocks) > 1 or not (mixers or blocks):
            yield f"layers.{index}", "a layer has at most one mixer and at most one feed-forward block, and one of them"
        if run.attention is not None and float(run.attention.heads) % float(run.attention.kv_heads):
            yield (
                f"layers.{index}.attention.kv_heads",
                f"{run.attention.kv_heads:g} do not divide the {run.attention.heads:g} heads",
            )
        if run.moe is not None and float(run.moe.top_k) > float(run.moe.experts):
            yield f"layers.{index}.moe.top_k", f"more than the {run.moe.experts:g} experts"


def _ownership(economics: Economics) -> Iterator[tuple[str, str]]:
    if economics.ownership not in OWNERSHIPS:
        yield "ownership", f"unknown '{economics.ownership}', expected one of {', '.join(OWNERSHIPS)}"


def _money(economics: Economics) -> Iterator[tuple[str, str]]:
    if float(economics.pue) < 1:
        yield "pue", "a PUE is power at the utility over that of the machines, so at least 1"
    for name in ("life", "building_life", "utilisation"):
        if float(getattr(economics, name)) <= 0:
            yield name, "must be more than 0"
    for name in ("utilisation", "residual", "provisioned"):
        if float(getattr(economics, name)) > 1:
            yield name, "a share is at most 1"


def _yield_model(materials: Materials) -> Iterator[tuple[str, str]]:
    if materials.yield_model not in YIELD_MODELS:
        yield "yield_model", f"unknown '{materials.yield_model}', expected one of {', '.join(YIELD_MODELS)}"


_RULES: dict[type[Any], tuple[Callable[[Any], Iterator[tuple[str, str]]], ...]] = {
    System: (_known_kind, _memory_of_its_kind, _plans, _rates, _quantised, _engine),
    Model: (_precision, _layers),
    Economics: (_ownership, _money),
    Materials: (_yield_model,),
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

"""Specs side by side: what decides of systems, models and traffics, a row each."""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.specs import catalog
from perfmodel.specs.prices import filled
from perfmodel.specs.types import System
from perfmodel.specs.units import show
from perfmodel.specs.weights import model_class

#: Before a number that is estimated.
ESTIMATE = "~"
SYSTEM = ("system", "chips", "memory", "bandwidth", "dense rates", "link", "price", "calibrated for")
MODEL = ("model", "class", "precision", "longest context")
TRAFFIC = ("traffic", "tokens in", "tokens out")


def _shown(system: System, path: str, value: float, unit: str) -> str:
    """Return a number of a system, with a mark where it is an estimate."""
    text = f"{value / 1e3:,.4g} kUSD" if unit == "USD" else show(value, unit, 3)
    return f"{ESTIMATE if system.provenance[path].kind == 'estimate' else ''}{text}" if value == value else "-"


def _system(name: str) -> tuple[str, ...]:
    economics = catalog.load_economics()
    bare = catalog.load_bare_system(name)
    system = filled(bare, catalog.load_prices(), economics.basis, economics.market)
    known = {precision: float(rate) for precision, rate in system.rates.items()}
    told = {precision: known[precision] for precision in ("bf16", "fp8", "fp4") if precision in known} or known
    rates = [f"{name} {_shown(system, f'rates.{name}', rate, 'FLOP/s')}" for name, rate in told.items()]
    memory = machine_of(system).weights_tier
    tier = getattr(system.memory, memory)
    return (
        name,
        f"{float(system.chips_per_node):g}",
        _shown(system, f"memory.{memory}.capacity", float(tier.capacity), "B"),
        _shown(system, f"memory.{memory}.bandwidth", float(tier.bandwidth), "B/s"),
        ", ".join(rates),
        _shown(system, "link.bandwidth_per_direction", float(system.link.bandwidth_per_direction), "B/s"),
        _shown(system, "price.system", float(system.price.system), "USD"),
        ", ".join(catalog.engines(system.chip)) or "-",
    )


def _model(name: str) -> tuple[str, ...]:
    model = catalog.load_model(name)
    return name, model_class(model), model.precision, f"{float(model.max_context):,.0f}"


def _traffic(name: str) -> tuple[str, ...]:
    traffic = catalog.load_traffic(name)
    return name, f"{float(traffic.prompt):,.0f}", f"{float(traffic.output):,.0f}"


_OF = {"system": (SYSTEM, _system), "model": (MODEL, _model), "traffic": (TRAFFIC, _traffic)}


def listing(kind: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns and rows of all specs of a kind, the user's own first; the aliases of a spec come last.

    Parameters
    ----------
    kind : str
        ``system``, ``model``, ``traffic`` or ``session``.

    Returns
    -------
    tuple of str, and list of tuple of str
    """
    columns, row = _OF.get(kind, ((kind,), lambda name: (name,)))
    rows = []
    for name, aliases, path in catalog.entries(kind):
        try:
            rows.append((*row(name), ", ".join(aliases)))
        except UserError as error:
            rows.append((f"{name} ({path}): {error}", *[""] * len(columns)))
    return (*columns, "aliases"), rows

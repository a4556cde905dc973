"""The kinds of machines by name.

Specs lie left of machines, so they know of a kind only what a file needs, and load it by name when a system is read.
"""

from __future__ import annotations

import functools
import importlib
from typing import ClassVar

from perfmodel.errors import UserError
from perfmodel.specs import plugins
from perfmodel.specs.types import ENGINES, Efficiency, PowerShape

#: Our own; those of other packages are entry points.
_OWN = {
    "kernels": "perfmodel.machines.kernels",
    "dataflow": "perfmodel.machines.dataflow",
    "sram_pipeline": "perfmodel.machines.sram_pipeline",
}


class Kind:
    """What the files of a kind of machine need.

    Its default efficiencies are in ``hardware_specs/calibration/default-NAME.yaml`` and its power in
    ``hardware_specs/power/NAME.yaml``, ours or in a folder of the package that the kind comes from.

    Attributes
    ----------
    name : str
        As ``kind:`` of a system has it.
    efficiency : type
        The dataclass that a calibration file fills.
    power_shape : type
        The dataclass that the kind's power file fills.
    weights_tier, cache_tier : str
        Memory tiers of a chip that hold weights and KV cache; where they differ, weights stream in.
    engines : tuple of str
        What runs on it.
    finds_stages : bool
        Whether a plan may leave the number of stages open: as few as fit, or a layer each.
    shards_by_head : bool
        Whether tensor ranks split heads, so that what has none lies whole on each; else everything splits evenly.
    stores_activations : bool
        Whether activations pass through memory between operators.
    """

    name: ClassVar[str]
    efficiency: ClassVar[type[Efficiency]]
    power_shape: ClassVar[type[PowerShape]]
    weights_tier: ClassVar[str] = "hbm"
    cache_tier: ClassVar[str] = "hbm"
    engines: ClassVar[tuple[str, ...]] = ("native",)
    finds_stages: ClassVar[bool] = False
    shards_by_head: ClassVar[bool] = False
    stores_activations: ClassVar[bool] = False


def names() -> list[str]:
    """Return the names of all kinds, our own first.

    Returns
    -------
    list of str
    """
    return [*_OWN, *(name for name in plugins.names(plugins.MACHINES) if name not in _OWN)]


@functools.cache
def kind_of(name: str) -> Kind:
    """Return a kind of machine.

    Parameters
    ----------
    name : str

    Returns
    -------
    Kind

    Raises
    ------
    UserError
        Where no kind has that name.
    """
    if name in _OWN:
        machine = importlib.import_module(_OWN[name]).MACHINE
    elif name in plugins.names(plugins.MACHINES):
        machine = plugins.load(plugins.MACHINES, name)
    else:
        raise UserError(f"unknown kind '{name}', expected one of {', '.join(names())}")
    if not isinstance(machine, Kind) or machine.name != name:
        raise UserError(f"{plugins.MACHINES}: '{name}' must name a Machine whose name is '{name}'")
    return machine


def engines(kind: Kind | None = None) -> tuple[str, ...]:
    """Return the engines that there are, or those that run on a kind of machine.

    Parameters
    ----------
    kind : Kind, optional

    Returns
    -------
    tuple of str
        Those of other packages run where ours do.
    """
    ours = ENGINES if kind is None else kind.engines
    return ours if ours == ("native",) else (*ours, *plugins.names(plugins.ENGINES))

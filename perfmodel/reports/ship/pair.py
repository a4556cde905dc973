"""The two machines of the comparison, a pipeline and boxes of GPUs, on one load and over all free values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.question import Options, resolve
from perfmodel.reports.ship import matrix
from perfmodel.specs.types import Scenario

RATIOS = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
CONTEXTS = (2048, 8192, 32768, 131072)


@dataclass(frozen=True)
class Machines:
    """What is compared: a model, the pipeline with its users, and a box of GPUs."""

    model: str = "qwen3-235b-a22b"
    ship: str = "lpu-v1:plan=ship-16x95"
    users: float = 380.0
    gpu: str = "dgx-b200:tp=8,engine=sglang"
    precision: str = "fp8"

    @property
    def scenarios(self) -> tuple[Scenario, Scenario]:
        """The pipeline and the box as they are asked for."""
        options = Options(precision=self.precision)
        return resolve(self.model, self.ship, options), resolve(self.model, self.gpu, options)

    @property
    def watts(self) -> tuple[float, float]:
        """Nameplate power of the pipeline and of the box [W]."""
        ship, gpu = self.scenarios
        return power(ship), power(gpu)

    def scale(self) -> float:
        """Return the boxes of GPUs that draw what the pipeline draws, by nameplates."""
        ship, gpu = self.watts
        return ship / gpu


def power(scenario: Scenario) -> float:
    """Return the nameplate power of the chips that a deployment uses, with their share of the system [W]."""
    plan = scenario.deployment
    return float(plan.tp * plan.pp * plan.dp * scenario.system.power.system_per_chip)


@dataclass(frozen=True)
class Both:
    """Both machines on one load; ``wide`` puts their free values on common axes."""

    ship: matrix.Service
    gpu: matrix.Service

    def wide(self, name: str, budget: int = 0) -> tuple[Any, Any]:
        """Return a quantity of both on common axes: of the pipeline, users and arrival of the engine, and the load."""
        ship = getattr(self.ship, name)[:, :, :, :, None, None]
        gpu = getattr(self.gpu, name)[:, budget][None, :, None, None]
        wide = np.broadcast_arrays(ship, gpu)
        return wide[0], wide[1]


def serve(machines: Machines, free: matrix.Free, load: matrix.Load) -> Both:
    """Return what both machines do for a load."""
    return Both(
        matrix.pipeline_service(machines.model, machines.ship, machines.users, free, load, machines.precision),
        matrix.gpu_service(machines.model, machines.gpu, free, load, machines.precision),
    )


def common_axes(free: matrix.Free) -> dict[str, list[str]]:
    """Return the labels of the free values of both machines, in the order of :meth:`Both.wide`."""
    gpu = free.gpu
    return {**free.ship, "users per box": gpu["users per box"], "arrival": gpu["arrival"]}


def on_loads(
    machines: Machines, free: matrix.Free, ratios: Sequence[float], contexts: Sequence[float]
) -> tuple[Both, Both]:
    """Return what both machines do for fixed traffic, and for the production samples."""
    fixed, samples = matrix.fixed_load(ratios, contexts), matrix.sample_load(ratios)
    return serve(machines, free, fixed), serve(machines, free, samples)

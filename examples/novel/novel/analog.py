"""Analog compute-in-memory: weights are conductances that never move, and a read of all arrays is one matrix product.

A layer's matrices lie in arrays that are read in parallel, so that a product takes one read a token, however large the
matrix is.  Attention has no weights: it runs in digital units, which stream the KV cache from memory beside the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.equation import equation
from perfmodel.equations import roofline
from perfmodel.errors import UserError
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.power import MeanPower
from perfmodel.machines.step import Load, Operator, Overlap, Step, Work, busy_time
from perfmodel.numerics import Number, total
from perfmodel.specs.types import Bytes, Deployment, Efficiency, Model, PositiveShare, Scenario, Seconds, System
from perfmodel.specs.weights import layer_count
from perfmodel.trace import scope


@equation(symbol=r"t_{read}", unit="s", source="one read of a crossbar is one product with a vector; tokens follow")
def read_time(*, tokens: Number, read: Number) -> Any:
    r"""Time of a matrix product in arrays that are read in parallel.

    Parameters
    ----------
    tokens : Number
        Vectors, one after the other [1].
    read : Number
        One read, conversions included [s].

    Returns
    -------
    Number
        Time [s].
    """
    return tokens * read


@dataclass(frozen=True)
class AnalogEfficiency(Efficiency):
    """What an analog card reaches: a read of its arrays, shares of its digital side, and a time a layer."""

    read: Seconds
    compute: PositiveShare
    memory: PositiveShare
    layer_time: Seconds
    memory_utilisation: PositiveShare
    reserved_memory: Bytes


def efficiency_of(system: System) -> AnalogEfficiency:
    """Return what is reached on a system of this kind."""
    found = system.efficiency
    assert isinstance(found, AnalogEfficiency)
    return found


class Analog(Alternating):
    """Analog compute-in-memory."""

    name = "analog"
    efficiency = AnalogEfficiency
    power_shape = MeanPower
    weights_tier = "sram"
    cache_tier = "hbm"

    def step(self, scenario: Scenario, work: Work) -> Step:
        """Return one forward step of a replica."""
        efficiency = efficiency_of(scenario.system)
        tokens = total(part.sequences * part.tokens for part in work)
        overlaps: list[Overlap] = []
        loads: list[Load] = []

        def run(operator: Operator, count: Any, vectors: Any) -> None:
            with scope(operator.name):
                if operator.kind == "attention":
                    overlaps.append(self._digital(scenario, operator, count))
                else:
                    overlaps.append(Overlap(count, read_time(tokens=vectors, read=efficiency.read), 0.0, operator.name))
            loads.append(Load(count, operator.flops, operator.cache, operator=operator.name))

        for layers in scenario.model.layers:
            for operator in layer_operators(scenario, layers, work):
                run(operator, layers.count, tokens)
        # A prompt needs the words after its last token only.
        run(head_operator(scenario, work), 1.0, total(p.sequences * (p.tokens if p.decoding else 1.0) for p in work))
        return Step(
            busy=busy_time(overlaps),
            overlaps=tuple(overlaps),
            overhead=layer_count(scenario.model) * efficiency.layer_time,
            loads=tuple(loads),
            sequences=work[0].sequences,
        )

    def _digital(self, scenario: Scenario, operator: Operator, count: Any) -> Overlap:
        """Return arithmetic and cache traffic of attention, which the cards of a replica share."""
        system, tp, efficiency = scenario.system, scenario.deployment.tp, efficiency_of(scenario.system)
        return Overlap(
            count,
            roofline.compute_time(
                flops=operator.flops / tp,
                peak=system.rates[system.computes_as["bf16"]],
                efficiency=efficiency.compute,
            ),
            roofline.memory_time(
                bytes_moved=operator.cache / tp,
                bandwidth=self.cache_memory(system).bandwidth,
                efficiency=efficiency.memory,
            ),
            operator.name,
        )

    def reserve(self, system: System) -> tuple[Any, Any]:
        """Return the share of the cache's memory that may be taken, and what is reserved of it [B]."""
        found = efficiency_of(system)
        return found.memory_utilisation, found.reserved_memory

    def check_plan(self, model: Model, system: System, plan: Deployment) -> None:
        """Refuse weights that the cells cannot hold."""
        super().check_plan(model, system, plan)
        if plan.precision != "int8":
            raise UserError(f"--precision {plan.precision}: the cells of {system.name} hold 8 bits, so give int8")


MACHINE = Analog()

"""A wafer that streams its weights: they come from a memory outside, layer by layer, and the cache stays in SRAM.

A layer lasts as long as the slower of its weights' way in and its arithmetic; its cache is read from SRAM besides.  All
sequences of a step share one pass of the weights, so that a step is long and large batches are cheap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfmodel.equations import roofline
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.power import MeanPower
from perfmodel.machines.step import Load, Operator, Overlap, Step, Work, busy_time
from perfmodel.specs.types import Bytes, Efficiency, PositiveShare, Scenario, Seconds, System
from perfmodel.specs.weights import layer_count
from perfmodel.trace import scope


@dataclass(frozen=True)
class StreamingEfficiency(Efficiency):
    """What a streaming wafer reaches: shares of its rates, and a time a layer."""

    stream: PositiveShare
    compute: PositiveShare
    memory: PositiveShare
    layer_time: Seconds
    memory_utilisation: PositiveShare
    reserved_memory: Bytes


def efficiency_of(system: System) -> StreamingEfficiency:
    """Return what is reached on a system of this kind."""
    found = system.efficiency
    assert isinstance(found, StreamingEfficiency)
    return found


class Streaming(Alternating):
    """A wafer that streams its weights."""

    name = "streaming"
    efficiency = StreamingEfficiency
    power_shape = MeanPower
    weights_tier = "ddr"
    cache_tier = "sram"

    def step(self, scenario: Scenario, work: Work) -> Step:
        """Return one forward step of a replica."""
        overlaps: list[Overlap] = []
        loads: list[Load] = []

        def run(operator: Operator, count: Any) -> None:
            with scope(operator.name):
                overlaps.extend(self._overlaps(scenario, operator, count))
            loads.append(Load(count, operator.flops, operator.weights, operator=operator.name))

        for layers in scenario.model.layers:
            for operator in layer_operators(scenario, layers, work):
                run(operator, layers.count)
        run(head_operator(scenario, work), 1.0)
        return Step(
            busy=busy_time(overlaps),
            overlaps=tuple(overlaps),
            overhead=layer_count(scenario.model) * efficiency_of(scenario.system).layer_time,
            loads=tuple(loads),
            sequences=work[0].sequences,
        )

    def _overlaps(self, scenario: Scenario, operator: Operator, count: Any) -> list[Overlap]:
        system, tp, efficiency = scenario.system, scenario.deployment.tp, efficiency_of(scenario.system)
        precision = "bf16" if operator.kind == "attention" else operator.precision
        compute = roofline.compute_time(
            flops=operator.flops / tp,
            peak=system.rates[system.computes_as[precision]],
            efficiency=efficiency.compute,
        )
        stream = roofline.memory_time(
            bytes_moved=operator.weights / tp,
            bandwidth=self.weights_memory(system).bandwidth,
            efficiency=efficiency.stream,
        )
        cache = roofline.memory_time(
            bytes_moved=operator.cache / tp,
            bandwidth=self.cache_memory(system).bandwidth,
            efficiency=efficiency.memory,
        )
        return [Overlap(count, compute, stream, operator.name), Overlap(count, 0.0, cache, operator.name)]

    def reserve(self, system: System) -> tuple[Any, Any]:
        """Return the share of the SRAM that the cache may take, and what is reserved for a layer's weights [B]."""
        found = efficiency_of(system)
        return found.memory_utilisation, found.reserved_memory


MACHINE = Streaming()

"""Reconfigurable dataflow: the whole decoder is one fused pipeline.

A decoder lasts as long as its weights and cache stream in, and its arithmetic on top: public measurements of batched
speculation tell that the two do not hide each other.  It never lasts less than a sample takes to pass through.
Collectives are hidden.  KernelLooping replaces a boundary in every decoder by one fill of the loop; BatchStreaming lets
the samples of a batch follow each other into the next decoder; ScheduleOffloading asks the host once in several tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.equations import collectives, pipeline, roofline
from perfmodel.machines.alternating import Alternating
from perfmodel.machines.base import UNMEASURED_SPREAD
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.machines.operators import head_operator, layer_operators
from perfmodel.machines.power import MeanPower
from perfmodel.machines.step import Load, Operator, Overlap, Step, Work, busy_time
from perfmodel.specs.types import (
    AtLeastOne,
    Bytes,
    Efficiency,
    PositiveShare,
    Provenance,
    Scenario,
    Seconds,
    Share,
    System,
)
from perfmodel.trace import scope

#: Logarithm of a factor that holds 80 % of a time to first token where no prefill was measured: that of the default
#: calibration of GPUs, which no row of their chip was fitted on.
PREFILL_SPREAD = 0.7
#: Calls of the host in a verification.  Left free, Table 4's row for 70B-1B gives 1.99 of them.
HOST_CALLS = 2.0


@dataclass(frozen=True)
class DataflowEfficiency(Efficiency):
    """How a dataflow machine runs a fused decoder.

    ``warm_up`` is the time of one sample through a decoder, ``sample_time`` what each further one adds where batches
    are not streamed.  A layer of experts keeps ``expert_boundary`` of its kernel boundary in a loop.  ``step_time``
    is what a step takes outside the decoders and the head, ``host_time`` a call of the host.
    """

    memory: PositiveShare
    cache_memory: PositiveShare
    compute: PositiveShare
    warm_up: Seconds
    sample_time: Seconds
    kernel_boundary: Seconds
    expert_boundary: Share
    step_time: Seconds
    host_time: Seconds
    memory_utilisation: PositiveShare
    reserved_memory: Bytes
    kernel_looping: bool = True
    batch_streaming: bool = True
    schedule_offloading: bool = True
    offloaded_tokens: AtLeastOne = 20.0


def efficiency_of(system: System) -> DataflowEfficiency:
    """Return what is reached on a system of this kind.

    Parameters
    ----------
    system : System

    Returns
    -------
    DataflowEfficiency
    """
    found = system.efficiency
    assert isinstance(found, DataflowEfficiency), system.name
    return found


def _fused(scenario: Scenario, name: str, operators: list[Operator], count: Any) -> tuple[list[Overlap], Load]:
    """Return arithmetic and traffic of operators that run as one, so many times over, and their work."""
    system, tp = scenario.system, scenario.deployment.tp
    efficiency = efficiency_of(system)
    hbm = system.memory.hbm
    assert hbm is not None
    compute: Any = 0.0
    flops: Any = 0.0
    weights: Any = 0.0
    cache: Any = 0.0
    for operator in operators:
        with scope(operator.name):
            precision = "bf16" if operator.kind == "attention" else operator.precision
            compute = compute + roofline.compute_time(
                flops=operator.flops / tp,
                peak=system.rates[system.computes_as[precision]],
                efficiency=efficiency.compute,
            )
        flops = flops + operator.flops
        # Activations flow from unit to unit without passing through memory.
        weights = weights + operator.weights
        cache = cache + operator.cache
    memory = roofline.memory_time(bytes_moved=weights / tp, bandwidth=hbm.bandwidth, efficiency=efficiency.memory)
    memory = memory + roofline.memory_time(
        bytes_moved=cache / tp, bandwidth=hbm.bandwidth, efficiency=efficiency.cache_memory
    )
    return (
        [Overlap(count, compute, 0.0, name), Overlap(count, 0.0, memory, name)],
        Load(count, flops, weights + cache, operator=name),
    )


def step(scenario: Scenario, work: Work) -> Step:
    """Return one forward step of a replica.

    The rate of the links between sockets is not published: collectives are taken as hidden, and the prediction names
    the least rate for which that holds.

    Parameters
    ----------
    scenario : Scenario
    work : tuple of Pass
        What runs in the step: passes that share one read of the weights.

    Returns
    -------
    Step
    """
    model = scenario.model
    efficiency = efficiency_of(scenario.system)
    sequences = work[0].sequences
    # The tokens of a verification follow each other as samples do; a prompt is one product of matrices.
    samples = work[0].tokens if work[0].decoding else 1.0
    if not efficiency.batch_streaming:
        samples = samples * sequences
    latency = pipeline.decoder_latency(first=efficiency.warm_up, sequences=samples, each=efficiency.sample_time)
    overlaps: list[Overlap] = []
    overhead: Any = efficiency.step_time
    if efficiency.kernel_looping:
        overhead = overhead + efficiency.warm_up
    loads: list[Load] = []
    for run in model.layers:
        with scope("decoder"):
            parts, load = _fused(scenario, "decoder", layer_operators(scenario, run, work), run.count)
            if not efficiency.kernel_looping:
                overhead = overhead + run.count * efficiency.kernel_boundary
            else:
                busy = busy_time(parts) / run.count
                overhead = overhead + run.count * pipeline.exposed_latency(latency=latency, busy=busy)
                if run.moe is not None:
                    # Which experts to fetch is known only when the router has run.
                    overhead = overhead + run.count * efficiency.expert_boundary * efficiency.kernel_boundary
        overlaps += parts
        loads.append(load)
    with scope("head"):
        parts, load = _fused(scenario, "head", [head_operator(scenario, work)], 1.0)
    overlaps += parts
    loads.append(load)
    host = efficiency.host_time
    if efficiency.schedule_offloading:
        host = host / efficiency.offloaded_tokens
    return Step(
        busy=busy_time(overlaps),
        overlaps=tuple(overlaps),
        overhead=overhead,
        host=host,
        loads=tuple(loads),
        sequences=sequences,
    )


def verifying(efficiency: DataflowEfficiency) -> DataflowEfficiency:
    """Return how a pass verifies: the host starts every one, and is called again to accept and reject.

    Parameters
    ----------
    efficiency : DataflowEfficiency

    Returns
    -------
    DataflowEfficiency
    """
    return replace(efficiency, host_time=HOST_CALLS * efficiency.host_time, schedule_offloading=False)


class Dataflow(Alternating):
    """Machines whose whole decoder is one fused pipeline."""

    name = "dataflow"
    efficiency = DataflowEfficiency
    power_shape = MeanPower
    draft_host_source = Provenance("two calls of the host, inside the verification", "derived")

    def step(self, scenario: Scenario, work: Work) -> Step:
        return step(scenario, work)

    def reserve(self, system: System) -> tuple[Any, Any]:
        found = efficiency_of(system)
        return found.memory_utilisation, found.reserved_memory

    def drafting(self, target: Scenario, draft: Scenario) -> Scenario:
        # A draft whose host is needed after every k tokens, when the target has its turn.
        assert target.speculation is not None
        efficiency = replace(efficiency_of(draft.system), offloaded_tokens=target.speculation.k)
        return replace(draft, system=replace(draft.system, efficiency=efficiency))

    def verifying(self, system: System) -> System:
        return replace(system, efficiency=verifying(efficiency_of(system)))

    def warnings(self, scenario: Scenario, token: Mapping[str, Any], plain: Mapping[str, Any]) -> list[str]:
        # From which rates of the links on the collectives are hidden, and that no prefill was measured.
        model = scenario.model
        layers = sum(float(run.count) for run in model.layers)
        least = collectives.least_hiding_bandwidth(
            message=2 * model.hidden * ACTIVATION_BYTES,
            ranks=scenario.deployment.tp,
            time=(float(plain["compute"]) + float(plain["memory"])) / layers,
        )
        prompt = float(scenario.traffic.prompt)
        first, _ = self.prefill(scenario, 1.0, prompt, prompt, 1.0)
        most = collectives.least_hiding_bandwidth(
            message=2 * prompt * model.hidden * ACTIVATION_BYTES,
            ranks=scenario.deployment.tp,
            time=float(first.busy) / layers,
        )
        return [
            "the link rate between sockets is not published: all-reduces are taken as hidden, which holds from "
            f"{float(least) / 1e9:.3g} GB/s a socket in decoding of one sequence and from {float(most) / 1e9:.3g} GB/s "
            "in prefill",
            "no time to first token of this machine was measured, and a front end is not in it",
        ]

    def spreads(self, scenario: Scenario) -> tuple[float, float]:
        """Return what is left open: of a prefill, of which nothing was measured, as much as of a machine never seen.

        Parameters
        ----------
        scenario : Scenario

        Returns
        -------
        tuple of float
        """
        return PREFILL_SPREAD, UNMEASURED_SPREAD


MACHINE = Dataflow()

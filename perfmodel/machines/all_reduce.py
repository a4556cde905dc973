"""All-reduce among the chips of an engine: a measured curve, NCCL's call, or the topology's law."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import collectives, topologies
from perfmodel.machines.kernels_efficiency import AllReduce, efficiency_of
from perfmodel.machines.links import scale_up_link, stage_link
from perfmodel.numerics import maximum, minimum
from perfmodel.specs.types import (
    Scenario,
    System,
)
from perfmodel.trace import is_given


def all_reduce_time(engine: AllReduce, message: Any, ranks: Any, faster: Any = 1.0, later: Any = 0.0) -> Any:
    """All-reduce of an engine: one-shot below its threshold, two-shot from there on [s].

    Parameters
    ----------
    engine : AllReduce
        Its latencies, bandwidths and threshold.
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].
    faster : Number
        Rate of the links over that of those on which it was measured [1].
    later : Number
        Time by which an exchange takes longer than on those [s].

    Returns
    -------
    Number
        Time [s].
    """
    small = collectives.one_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.small_latency, growth=engine.small_growth, ranks=ranks) + later,
        bandwidth=engine.small_bandwidth * faster,
    )
    large = collectives.two_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=collectives.call_latency(base=engine.large_latency, growth=engine.large_growth, ranks=ranks)
        + 2 * later,
        bandwidth=engine.large_bandwidth * engine.overlap * faster,
    )
    return collectives.switched_all_reduce(message=message, threshold=engine.threshold, small=small, large=large)


def later_hop(system: System, ranks: Any) -> Any:
    """Time by which a hop takes longer than one of those that the latencies of calls hold [s].

    Parameters
    ----------
    system : System
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time; 0 for one rank, and where the hops of the system are not published [s].
    """
    hop = system.link.hop_latency
    return minimum(1.0, ranks - 1) * (hop - efficiency_of(system).hop_latency) if is_given(hop) else 0.0


def launched(scenario: Scenario, time: Any, ranks: Any) -> Any:
    """Return a collective's time with or without a CUDA graph; one rank alone launches none.

    Parameters
    ----------
    scenario : Scenario
    time, ranks : Number

    Returns
    -------
    Number
    """
    efficiency = efficiency_of(scenario.system)
    if not efficiency.eager:
        return time
    return collectives.eager_collective(collective=time, launch=efficiency.eager_launch * minimum(1.0, ranks - 1))


def reach(system: System, ranks: Any) -> Any:
    """Return the chips of a group that its scale-up links join; a torus has no node boundary, its links go on.

    Parameters
    ----------
    system : System
    ranks : Number

    Returns
    -------
    Number
    """
    return ranks if system.link.topology.startswith("torus") else minimum(ranks, system.chips_per_node)


#: Topologies on which chips share a bus.
BUSES = ("pcie", "pcie_host")


def nccl_call(system: System, ranks: Any) -> Any:
    """Fixed time of a collective of NCCL [s].

    Parameters
    ----------
    system : System
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    return collectives.call_latency(base=efficiency.nccl_latency, growth=efficiency.nccl_growth, ranks=ranks)


def nccl_all_reduce(system: System, message: Any, ranks: Any) -> Any:
    """All-reduce of NCCL over the links of a node, whatever the engine has of its own [s].

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    link = scale_up_link(system)
    return collectives.two_shot_all_reduce(
        message=message,
        ranks=ranks,
        latency=nccl_call(system, ranks) + 2 * later_hop(system, ranks),
        bandwidth=link.bandwidth_per_direction * efficiency_of(system).link_efficiency[link.topology],
    )


def topology_all_reduce(system: System, message: Any, ranks: Any) -> Any:
    """All-reduce by the closed form of the topology, where the engine's own was not measured [s].

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].

    Returns
    -------
    Number
        Time [s].
    """
    efficiency, link = efficiency_of(system), scale_up_link(system)
    if link.topology in BUSES:
        return nccl_all_reduce(system, message, ranks)
    bandwidth = link.bandwidth_per_direction * efficiency.link_efficiency[link.topology]
    latency = collectives.call_latency(base=efficiency.call_latency, growth=0.0, ranks=ranks)
    later = later_hop(system, ranks)
    if link.topology.startswith("torus"):
        # The call's latency is per call and carries its hops: only what they take beyond those counts here.
        return topologies.torus_all_reduce(
            message=message,
            ranks=ranks,
            dimensions=float(link.topology[-2]),
            latency=latency,
            hop_latency=later,
            bandwidth=bandwidth,
        )
    latency = latency + 2 * later
    if link.topology == "mesh":
        return topologies.full_mesh_all_reduce(
            message=message,
            ranks=ranks,
            latency=latency,
            link_bandwidth=bandwidth / maximum(1.0, system.chips_per_node - 1),
        )
    return collectives.two_shot_all_reduce(message=message, ranks=ranks, latency=latency, bandwidth=bandwidth)


def group_all_reduce(system: System, message: Any, ranks: Any, nccl: bool = False) -> Any:
    """All-reduce of a group in a CUDA graph [s]: inside a node, or hierarchical over several.

    Parameters
    ----------
    system : System
    message : Number
        Bytes that each rank contributes [B].
    ranks : Number
        Chips of the group [1].
    nccl : bool
        Whether it is NCCL's, whatever the engine has of its own.

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    inside = reach(system, ranks)
    if nccl:
        local = nccl_all_reduce(system, message, inside)
    elif efficiency.all_reduce is None:
        local = topology_all_reduce(system, message, inside)
    else:
        measured = efficiency.all_reduce
        local = all_reduce_time(
            measured,
            message,
            inside,
            faster=scale_up_link(system).bandwidth_per_direction / measured.link_bandwidth,
            later=later_hop(system, inside),
        )
    across = collectives.ring_all_reduce(
        message=message / inside,
        ranks=ranks / inside,
        hop_latency=efficiency.stage_latency,
        bandwidth=stage_link(system).bandwidth_per_direction,
    )
    return collectives.hierarchical_all_reduce(local=local, across=across)

"""The exchange of tokens among ranks that hold experts: inside a node, across nodes."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import collectives
from perfmodel.machines.all_reduce import BUSES, later_hop, nccl_call, reach
from perfmodel.machines.kernels_efficiency import efficiency_of
from perfmodel.machines.links import scale_up_link, stage_link
from perfmodel.machines.step import Exchange
from perfmodel.numerics import minimum
from perfmodel.specs.types import (
    Scenario,
    System,
)

#: Bytes of an element on the way to experts that compute in 8 bits or fewer: FP8 and an FP32 scale for 128 of them.
DISPATCH_BYTES = 1 + 4 / 128


def expert_exchange(scenario: Scenario, exchange: Exchange, element: float) -> Any:
    """Exchange of tokens between the expert ranks, one way [s].

    Parameters
    ----------
    scenario : Scenario
    exchange : Exchange
    element : float
        Bytes of an element on the way [B].

    Returns
    -------
    Number
        Time [s].
    """
    plan = scenario.deployment
    # Each tensor rank sends its part of the tokens that the group shares.
    once = exchange.elements * element / plan.tp
    return exchanged(scenario.system, once, exchange, plan.ep)


def exchanged(system: System, once: Any, exchange: Exchange, ranks: Any) -> Any:
    """Exchange between ranks of which each sends so many bytes of vectors to the experts of their tokens, one way [s].

    Parameters
    ----------
    system : System
    once : Number
        Bytes of the vectors that a rank sends, each counted once [B].
    exchange : Exchange
        How many copies of a vector go where.
    ranks : Number
        Chips that share the experts [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    efficiency = efficiency_of(system)
    node = reach(system, ranks)
    crossing = collectives.crossing_share(ranks=ranks, node=node)
    copies = exchange.copies
    if exchange.forwarded:
        nodes = ranks / node if exchange.node_limit is None else minimum(ranks / node, exchange.node_limit)
        across = collectives.reached_nodes(copies=copies, nodes=nodes) * crossing
        inside = copies * (node - 1) / node
    else:
        across, inside = copies * crossing, copies * (node - 1) / ranks
    call = efficiency.call_latency if efficiency.all_reduce is None else efficiency.all_reduce.small_latency
    latency = minimum(1.0, ranks - 1) * call
    if system.link.topology in BUSES:
        latency = nccl_call(system, node)
    latency = latency + later_hop(system, ranks)
    link = scale_up_link(system)
    return collectives.hierarchical_all_to_all(
        inside=inside * once,
        across=across * once,
        latency=latency + minimum(1.0, ranks / node - 1) * efficiency.stage_latency,
        bandwidth=link.bandwidth_per_direction * efficiency.link_efficiency[link.topology],
        network=stage_link(system).bandwidth_per_direction,
    )

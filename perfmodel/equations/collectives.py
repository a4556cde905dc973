"""Collectives, topologies and point-to-point hops."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, log, maximum, minimum, switch_at

THAKUR = "Thakur et al. 2005, doi:10.1177/1094342005051521"
SHIP = "SHIP (MLSys 2026), reconstructed"


@equation(symbol=r"t_{hop}", unit="s", source="Hockney 1994, doi:10.1016/S0167-8191(06)80021-9")
def hop_time(*, message: Number, hops: Number, latency: Number, bandwidth: Number) -> Any:
    r"""Point-to-point transfer, alpha-beta form.

    Parameters
    ----------
    message : Number
        Payload [B].
    hops : Number
        Links on the way [1].
    latency : Number
        Of one hop [s].
    bandwidth : Number
        Of the path, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return hops * latency + message / bandwidth


@equation(symbol=r"t_{ring}", unit="s", source=f"{THAKUR}, ring")
def ring_all_reduce(*, message: Number, ranks: Number, hop_latency: Number, bandwidth: Number) -> Any:
    r"""All-reduce around a ring: reduce-scatter, then all-gather.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    hop_latency : Number
        Latency of one step [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    return 2 * (ranks - 1) * hop_latency + 2 * (ranks - 1) / ranks * message / bandwidth


@equation(symbol=r"\alpha_n", unit="s", source="latency of a call rises with the logarithm of its ranks; fitted")
def call_latency(*, base: Number, growth: Number, ranks: Number) -> Any:
    r"""Fixed time of a collective call; per call, not per hop.

    Parameters
    ----------
    base : Number
        For two ranks [s].
    growth : Number
        Relative rise each time that the ranks double [1].
    ranks : Number
        Chips [1].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    return minimum(1.0, ranks - 1) * base * (1 + growth * maximum(0.0, log(ranks) / log(2.0) - 1))


@equation(symbol=r"t_{one}", unit="s", source="one-shot: every chip reads the whole message of every other")
def one_shot_all_reduce(*, message: Number, ranks: Number, latency: Number, bandwidth: Number) -> Any:
    r"""All-reduce in one exchange.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    latency : Number
        Of the call [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(1.0, ranks - 1) * latency + (ranks - 1) * message / bandwidth


@equation(symbol=r"t_{two}", unit="s", source=f"{THAKUR}, reduce-scatter and all-gather")
def two_shot_all_reduce(*, message: Number, ranks: Number, latency: Number, bandwidth: Number) -> Any:
    r"""All-reduce in two exchanges.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    latency : Number
        Of the call [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(1.0, ranks - 1) * latency + 2 * (ranks - 1) / ranks * message / bandwidth


@equation(symbol=r"t_{AR}", unit="s", source=f"{THAKUR}, two levels: sums inside the nodes, then between them")
def hierarchical_all_reduce(*, local: Number, across: Number) -> Any:
    r"""All-reduce over several nodes.

    Parameters
    ----------
    local : Number
        All-reduce inside a node, its scatter before and its gather after [s].
    across : Number
        All-reduce of a shard between the nodes [s].

    Returns
    -------
    Number
        Time [s].
    """
    return local + across


@equation(symbol=r"t_{sw}", unit="s", source="in-switch reduction: each chip sends and receives the message once")
def in_switch_all_reduce(*, message: Number, ranks: Number, latency: Number, bandwidth: Number) -> Any:
    r"""All-reduce that the switch adds up.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    latency : Number
        Of the call [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(1.0, ranks - 1) * (latency + (ranks + 1) / ranks * message / bandwidth)


@equation(symbol=r"t_{AG}", unit="s", source=f"{THAKUR}, ring")
def all_gather(*, message: Number, ranks: Number, hop_latency: Number, bandwidth: Number) -> Any:
    r"""All-gather around a ring; a reduce-scatter takes as long.

    Parameters
    ----------
    message : Number
        Gathered payload [B].
    ranks : Number
        Chips [1].
    hop_latency : Number
        Latency of one step [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    return (ranks - 1) * hop_latency + (ranks - 1) / ranks * message / bandwidth


@equation(symbol=r"t_{A2A}", unit="s", source=f"{THAKUR}, direct exchange")
def all_to_all(*, message: Number, ranks: Number, latency: Number, bandwidth: Number) -> Any:
    r"""All-to-all: each chip sends every other one its part of a message.

    Parameters
    ----------
    message : Number
        What a chip sends in all, its own part included [B].
    ranks : Number
        Chips [1].
    latency : Number
        Of the call [s].
    bandwidth : Number
        Of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    return minimum(1.0, ranks - 1) * latency + (ranks - 1) / ranks * message / bandwidth


@equation(
    symbol=r"\sigma_{net}", unit="1", source="experts lie evenly on the ranks, and ranks fill one node after the other"
)
def crossing_share(*, ranks: Number, node: Number) -> Any:
    r"""Share of the copies of a token that leave its node.

    Parameters
    ----------
    ranks : Number
        Chips that share the experts [1].
    node : Number
        Of them in one node [1].

    Returns
    -------
    Number
        Share [1].
    """
    return 1 - node / ranks


@equation(symbol=r"n_{node}", unit="1", source="DeepSeek-V3, arXiv:2412.19437, 2.1.2: node-limited routing")
def reached_nodes(*, copies: Number, nodes: Number) -> Any:
    r"""Nodes on which the experts of a token lie, its own one counted.

    Parameters
    ----------
    copies : Number
        Experts of a token [1].
    nodes : Number
        Nodes among which the router picks them; at least 1 [1].

    Returns
    -------
    Number
        Nodes on average [1].
    """
    return nodes * (1 - (1 - 1 / nodes) ** copies)


@equation(symbol=r"t_{EP}", unit="s", source="links inside and between nodes carry their shares at the same time")
def hierarchical_all_to_all(
    *, inside: Number, across: Number, latency: Number, bandwidth: Number, network: Number
) -> Any:
    r"""Exchange of tokens between the ranks that hold their experts, one way.

    Parameters
    ----------
    inside, across : Number
        What a chip sends to others of its node, and to those of other nodes [B].
    latency : Number
        Of the call, its hops between nodes included [s].
    bandwidth, network : Number
        Of a chip inside a node and between nodes, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return latency + maximum(inside / bandwidth, across / network)


@equation(symbol=r"t_{eager}", unit="s", source="measured eager all-reduces are flat at the launch time of the host")
def eager_collective(*, collective: Number, launch: Number) -> Any:
    r"""Collective that the host launches by itself instead of a CUDA graph.

    Parameters
    ----------
    collective : Number
        Time of the collective in a graph [s].
    launch : Number
        Time that the host takes to launch it [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(collective, launch)


@equation(symbol=r"t_{AR}", unit="s", source="the engine changes its algorithm at a message size")
def switched_all_reduce(*, message: Number, threshold: Number, small: Number, large: Number) -> Any:
    r"""All-reduce as an engine runs it.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    threshold : Number
        Size from which the second algorithm is used [B].
    small, large : Number
        Times of the two algorithms [s].

    Returns
    -------
    Number
        Time [s].
    """
    return switch_at(message, threshold, small, large)


@equation(symbol=r"t_{AR}", unit="s", source=f"{SHIP} from its knees: 50 % at 32 KiB, 90 % at 80 KiB")
def saturating_all_reduce(*, message: Number, latency: Number, bandwidth: Number, exponent: Number) -> Any:
    r"""All-reduce of 8 to 64 LPUs: the p-norm of latency and wire time.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    latency : Number
        Time of an empty message [s].
    bandwidth : Number
        Rate of a very large message [B/s].
    exponent : Number
        How sharply one gives way to the other [1].

    Returns
    -------
    Number
        Time; monotone in the message [s].

    Notes
    -----
    An alpha-beta line through the 50 % knee gives 71 % at 80 KiB, where 90 % is published.
    """
    return (latency**exponent + (message / bandwidth) ** exponent) ** (1 / exponent)


@equation(symbol=r"t_{root}", unit="s", source=f"{SHIP}: RedBcast, a reading of the name, defined nowhere in print")
def rooted_all_reduce(*, message: Number, ranks: Number, hop_latency: Number, link_bandwidth: Number) -> Any:
    r"""All-reduce at one chip of a clique: every other sends it the whole message, and it sends the sum back.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips, each with a link to every other [1].
    hop_latency : Number
        Latency of one hop [s].
    link_bandwidth : Number
        Of one link, one direction [B/s].

    Returns
    -------
    Number
        Time; 0 for one rank [s].
    """
    return 2 * minimum(1.0, ranks - 1) * (hop_latency + message / link_bandwidth)


@equation(symbol=r"t_{PAARD}", unit="s", source=f"{SHIP}: PAARD, a reading of the name, defined nowhere in print")
def two_level_all_reduce(
    *, message: Number, local: Number, nodes: Number, hop_latency: Number, link_bandwidth: Number, ports: Number
) -> Any:
    r"""All-reduce over nodes that are cliques, its two levels working on different pieces at the same time.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    local : Number
        Chips of a node, each with a link to every other [1].
    nodes : Number
        Nodes, each a hop from every other [1].
    hop_latency : Number
        Latency of one hop; scatter and gather take one each inside and between the nodes [s].
    link_bandwidth : Number
        Of one link, one direction [B/s].
    ports : Number
        Links of a chip to other nodes [1].

    Returns
    -------
    Number
        Time [s].
    """
    inside = 2 * message / local / link_bandwidth
    across = 2 * (nodes - 1) / nodes * message / local / (ports * link_bandwidth)
    return minimum(1.0, local * nodes - 1) * (4 * hop_latency + maximum(inside, across))


@equation(symbol=r"\eta_{AR}", unit="1", source="wire time over time")
def saturation(*, message: Number, time: Number, bandwidth: Number) -> Any:
    r"""Share of the peak that a collective reaches.

    Parameters
    ----------
    message : Number
        Payload [B].
    time : Number
        Of the collective [s].
    bandwidth : Number
        Peak [B/s].

    Returns
    -------
    Number
        Share [1].
    """
    return message / (time * bandwidth)


@equation(symbol=r"t_{sync}", unit="s", source="LIMINAL, arXiv:2507.14397, exposed synchronisation")
def exposed_sync_time(*, layers: Number, per_layer: Number, latency: Number) -> Any:
    r"""Synchronisation that nothing hides.

    Parameters
    ----------
    layers : Number
        Layers [1].
    per_layer : Number
        Synchronisations a layer [1].
    latency : Number
        Of one synchronisation [s].

    Returns
    -------
    Number
        Time [s].
    """
    return layers * per_layer * latency


@equation(symbol=r"BW_{hide}", unit="B/s", source="the rate at which wire time equals the time that hides it")
def least_hiding_bandwidth(*, message: Number, ranks: Number, time: Number) -> Any:
    r"""Least link bandwidth of a chip for which an overlapped all-reduce stays hidden.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    time : Number
        Time that the collective may take [s].

    Returns
    -------
    Number
        Bandwidth, one direction [B/s].
    """
    return 2 * (ranks - 1) / ranks * message / time


@equation(symbol=r"t_{exp}", unit="s", source=f"{SHIP}: what the matrix product does not cover")
def exposed_collective(*, collective: Number, hidden_behind: Number) -> Any:
    r"""Part of a collective that sticks out of the work it overlaps.

    Parameters
    ----------
    collective, hidden_behind : Number
        Times of the collective and of the work [s].

    Returns
    -------
    Number
        Time [s].
    """
    return maximum(0.0, collective - hidden_behind)

"""Collectives of a topology: full mesh, torus, fat tree, the quad-four of SRAM nodes."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.equations.collectives import SHIP, THAKUR
from perfmodel.numerics import Number, ceil_div, floor, maximum, minimum


@equation(symbol=r"t_{mesh}", unit="s", source="direct exchange over a link to every other chip, twice")
def full_mesh_all_reduce(*, message: Number, ranks: Number, latency: Number, link_bandwidth: Number) -> Any:
    r"""All-reduce where every pair of chips has a link of its own.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    latency : Number
        Of the call [s].
    link_bandwidth : Number
        Of one link, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return minimum(1.0, ranks - 1) * (latency + 2 * message / ranks / link_bandwidth)


@equation(symbol=r"t_{torus}", unit="s", source=f"{THAKUR}, rings along each dimension, all ports busy")
def torus_all_reduce(
    *, message: Number, ranks: Number, dimensions: Number, latency: Number, hop_latency: Number, bandwidth: Number
) -> Any:
    r"""All-reduce on a torus, the message cut into one part for each direction of each dimension.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips, side to the power of the dimensions [1].
    dimensions : Number
        Dimensions of the torus [1].
    latency : Number
        Of the call [s].
    hop_latency : Number
        Of one step around a ring [s].
    bandwidth : Number
        Of all ports of a chip, one direction [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    steps = 2 * dimensions * (ranks ** (1 / dimensions) - 1)
    return minimum(1.0, ranks - 1) * latency + steps * hop_latency + 2 * (ranks - 1) / ranks * message / bandwidth


@equation(symbol=r"D_{torus}", unit="1", source="half of each ring")
def torus_diameter(*, side: Number, dimensions: Number) -> Any:
    r"""Most hops between two chips of a torus.

    Parameters
    ----------
    side : Number
        Chips along a dimension [1].
    dimensions : Number
        Dimensions [1].

    Returns
    -------
    Number
        Hops [1].
    """
    return dimensions * floor(side / 2)


@equation(symbol=r"L_{torus}", unit="1", source="a cut through a torus meets each ring twice")
def torus_bisection_links(*, side: Number, dimensions: Number) -> Any:
    r"""Links across the middle of a torus of even side.

    Parameters
    ----------
    side : Number
        Chips along a dimension; more than 2 [1].
    dimensions : Number
        Dimensions [1].

    Returns
    -------
    Number
        Links, one way [1].
    """
    return 2 * side ** (dimensions - 1)


@equation(symbol=r"L_{mesh}", unit="1", source="each chip of one half has a link to each of the other")
def full_mesh_bisection_links(*, chips: Number) -> Any:
    r"""Links across the middle of a full mesh of an even number of chips.

    Parameters
    ----------
    chips : Number
        Chips [1].

    Returns
    -------
    Number
        Links, one way [1].
    """
    return chips * chips / 4


@equation(symbol=r"D_{ft}", unit="1", source="Leiserson 1985, doi:10.1109/TC.1985.6312192: up to the root and down")
def fat_tree_hops(*, levels: Number) -> Any:
    r"""Links between two chips of a fat tree that meet at its root.

    Parameters
    ----------
    levels : Number
        Levels of switches [1].

    Returns
    -------
    Number
        Links [1].
    """
    return 2 * levels


@equation(symbol=r"t_{ft}", unit="s", source="two-shot over links that upper levels share")
def fat_tree_all_reduce(
    *, message: Number, ranks: Number, levels: Number, hop_latency: Number, bandwidth: Number, oversubscription: Number
) -> Any:
    r"""All-reduce over a fat tree: reduce-scatter and all-gather, each across the root.

    Parameters
    ----------
    message : Number
        Payload of a rank [B].
    ranks : Number
        Chips [1].
    levels : Number
        Levels of switches [1].
    hop_latency : Number
        Of one link [s].
    bandwidth : Number
        Of a chip, one direction [B/s].
    oversubscription : Number
        Bandwidth below a switch over that above it; 1 for full bisection [1].

    Returns
    -------
    Number
        Time [s].
    """
    exchange = 2 * levels * hop_latency + (ranks - 1) / ranks * message * oversubscription / bandwidth
    return 2 * minimum(1.0, ranks - 1) * exchange


@equation(symbol=r"L_{cut}", unit="1", source=f"{SHIP}: 4 links to each of the 4 next nodes; reproduces Table 1")
def quadfour_cut_links(*, skipped: Number) -> Any:
    r"""Links that still cross a cut of a QuadFour chain past dead nodes.

    Parameters
    ----------
    skipped : Number
        Consecutive nodes that are down [1].

    Returns
    -------
    Number
        Links, one way; 0 from four dead nodes on [1].
    """
    alive = maximum(0.0, 4 - skipped)
    return 4 * alive * (alive + 1) / 2


@equation(symbol=r"BW_{cut}", unit="B/s", source=f"{SHIP}, Table 1")
def quadfour_forward_bandwidth(*, skipped: Number, port_bandwidth: Number) -> Any:
    r"""Forward bandwidth of a QuadFour chain past dead nodes.

    Parameters
    ----------
    skipped : Number
        Consecutive nodes that are down [1].
    port_bandwidth : Number
        Payload of one port, one direction [B/s].

    Returns
    -------
    Number
        Bandwidth, one direction [B/s].
    """
    alive = maximum(0.0, 4 - skipped)
    return 4 * alive * (alive + 1) / 2 * port_bandwidth


@equation(symbol=r"D", unit="1", source=f"{SHIP}: ring of nodes with 4 neighbours forward and backward")
def quadfour_ring_diameter(*, nodes: Number) -> Any:
    r"""Most hops between two LPUs of a ring of nodes.

    Parameters
    ----------
    nodes : Number
        Nodes of 8 LPUs [1].

    Returns
    -------
    Number
        Hops; 3 for 9 nodes (72 LPUs), 5 for 17 (136 LPUs) [1].
    """
    return 2 * ceil_div(floor(nodes / 2), 4.0) + 1

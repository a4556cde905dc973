"""Links that a plan runs over."""

from __future__ import annotations

from dataclasses import replace

from perfmodel.specs.types import Link, Network, System
from perfmodel.trace import is_given


def stage_link(system: System) -> Link | Network:
    """Return the link between pipeline stages: the network, or the scale-up links where no network is published.

    Parameters
    ----------
    system : System

    Returns
    -------
    Link or Network
    """
    return system.network if is_given(system.network.bandwidth_per_direction) else scale_up_link(system)


def scale_up_link(system: System) -> Link:
    """Return the links between the chips of a node; their rate is that of all ports where only those are given.

    Parameters
    ----------
    system : System

    Returns
    -------
    Link
    """
    link = system.link
    if is_given(link.bandwidth_per_direction) or not is_given(link.ports):
        return link
    return replace(link, bandwidth_per_direction=link.ports * link.port_bandwidth_per_direction)

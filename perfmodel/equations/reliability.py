"""How often a deployment fails, and what that does to those whom it serves."""

from __future__ import annotations

from typing import Any

from perfmodel.equation import equation
from perfmodel.numerics import Number, exp


@equation(symbol=r"T_{inst}", unit="s", source="chips in lock-step fail together; independent exponential failures")
def instance_mtbf(*, chip_mtbf: Number, chips: Number) -> Any:
    r"""Mean time between failures of an instance that needs all its chips.

    Parameters
    ----------
    chip_mtbf : Number
        Mean time between failures of a chip with its share of the node [s].
    chips : Number
        Chips of the instance [1].

    Returns
    -------
    Number
        Time [s].
    """
    return chip_mtbf / chips


@equation(symbol=r"A", unit="1", source="renewal theory: share of a cycle of working and repair")
def availability(*, mtbf: Number, down: Number) -> Any:
    r"""Share of time that something works.

    Parameters
    ----------
    mtbf : Number
        Mean time between the end of a repair and the next failure [s].
    down : Number
        Mean time from a failure until it works again [s].

    Returns
    -------
    Number
        Share [1].
    """
    return mtbf / (mtbf + down)


@equation(symbol=r"t_{rec}", unit="s", source="detection, restart and reading the weights follow each other")
def replica_recovery(*, detection: Number, restart: Number, weights: Number, bandwidth: Number) -> Any:
    r"""Time until a replica of GPUs serves again on other chips.

    Parameters
    ----------
    detection : Number
        Until the failure is seen [s].
    restart : Number
        Until processes run and are warm [s].
    weights : Number
        Weights that a chip reads [B].
    bandwidth : Number
        At which it reads them [B/s].

    Returns
    -------
    Number
        Time [s].
    """
    return detection + restart + weights / bandwidth


@equation(
    symbol=r"t_{rot}",
    unit="s",
    source="SHIP (MLSys 2026): partitions rotate, tokens are replayed",
)
def rotation_recovery(*, detection: Number, rotation: Number, running: Number, replay: Number) -> Any:
    r"""Time until an SRAM pipeline serves again after its partitions moved past a failed node.

    Parameters
    ----------
    detection : Number
        Until the failure is seen [s].
    rotation : Number
        Until the partitions hold their weights again [s].
    running : Number
        Requests whose cache was lost [1].
    replay : Number
        Time to prefill the tokens of one of them again [s].

    Returns
    -------
    Number
        Time [s].
    """
    return detection + rotation + running * replay


@equation(symbol=r"h", unit="1", source="exponential failures over the time that a request is exposed")
def share_hit(*, mtbf: Number, exposed: Number) -> Any:
    r"""Share of requests during which their instance fails.

    Parameters
    ----------
    mtbf : Number
        Mean time between failures of the instance [s].
    exposed : Number
        Time of a request, and the outage that it would have to wait for [s].

    Returns
    -------
    Number
        Share [1].
    """
    return 1 - exp(-exposed / mtbf)

"""How the power of a chip follows its work: one form a dataclass, which a kind of machine names."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

from perfmodel.equations import power
from perfmodel.machines.step import Step
from perfmodel.numerics import NAN, maximum, only_if
from perfmodel.specs.types import Power, PowerShape, Share, System
from perfmodel.trace import scope


@dataclass(frozen=True)
class Work:
    """What the chips of a deployment do in its steady state.

    Attributes
    ----------
    chips : Number
        Chips used [1].
    rate : Number
        Requests finished [1/s].
    prefill, decode : Step
        One of each.
    prefill_busy, decode_busy : Number
        Shares of the time that a chip spends on either [1].
    """

    chips: Any
    rate: Any
    prefill: Step
    decode: Step
    prefill_busy: Any
    decode_busy: Any


@dataclass(frozen=True)
class Watts:
    """Power of the machines of a deployment, without what the building adds [W].

    Attributes
    ----------
    mean, peak, idle : Number
        While it serves, during the step that draws most, and while nothing runs [W].
    chip : Number
        Mean of one chip alone, without its share of the node; NaN where only the system's power is known [W].
    """

    mean: Any
    peak: Any
    idle: Any
    chip: Any


class Shape(PowerShape, abc.ABC):
    """A form in which power follows work.

    Attributes
    ----------
    needs : tuple of str
        The powers of a system without which there is no cost.
    shared : bool
        Whether all systems of the form rest on the same readings, so that what those leave open is the same for all.
    """

    needs: ClassVar[tuple[str, ...]] = ("system.power.system_per_chip",)
    shared: ClassVar[bool] = False

    @abc.abstractmethod
    def watts(self, plate: Power, nameplate: Any, work: Work) -> Watts:
        """Return what a deployment draws.

        Parameters
        ----------
        plate : Power
            Of a chip with its share of the node.
        nameplate : Number
            What the machines of the deployment are rated for [W].
        work : Work

        Returns
        -------
        Watts
        """

    @abc.abstractmethod
    def cautions(self, system: System) -> tuple[str, str]:
        """Return what to mind of the power of a system, in a few words and in a sentence; empty where nothing.

        Parameters
        ----------
        system : System

        Returns
        -------
        tuple of str
        """


@dataclass(frozen=True)
class CausePower(Shape):
    """Power of a chip while each cause takes its time, in shares of its TDP; it waits for the host idle.

    ``rest`` is the share of the node's nameplate beyond its chips that host, links, fans and losses draw.
    """

    needs = ("system.power.chip_tdp", "system.power.system_per_chip")
    shared = True

    idle: Share
    overhead: Share
    memory: Share
    compute: Share
    collective: Share
    rest: Share

    def _level(self, cap: Any, step: Step) -> Any:
        """Return the power of a chip during a step, over its TDP."""
        return power.step_power_share(
            time=step.time,
            compute=step.compute,
            memory=step.memory,
            collective=step.collective,
            overhead=step.overhead,
            compute_level=self.compute,
            memory_level=self.memory,
            collective_level=self.collective,
            overhead_level=self.overhead,
            idle=self.idle,
            cap=cap,
        )

    def watts(self, plate: Power, nameplate: Any, work: Work) -> Watts:
        # What a deployment draws, from what the causes take of its steps.
        with scope("prefill"):
            prefill = self._level(plate.cap, work.prefill)
        with scope("decode"):
            decode = self._level(plate.cap, work.decode)
        share = power.mean_power_share(
            idle=self.idle,
            prefill_busy=work.prefill_busy,
            prefill_level=prefill,
            decode_busy=work.decode_busy,
            decode_level=decode,
        )
        rest = power.rest_of_node(system=plate.system_per_chip, tdp=plate.chip_tdp, share=self.rest)

        def whole(level: Any) -> Any:
            return power.deployment_power(chips=work.chips, chip=plate.chip_tdp * level, rest=rest)

        return Watts(whole(share), whole(maximum(prefill, decode)), whole(self.idle), plate.chip_tdp * share)

    def cautions(self, system: System) -> tuple[str, str]:
        # The levels were read off one chip, for all others.
        if system.chip == "b200":
            return "", ""
        return (
            "power uncalibrated",
            f"power follows the work as kernels of B200 do, scaled by the TDP: uncalibrated for {system.chip}",
        )


@dataclass(frozen=True)
class MeanPower(Shape):
    """Mean power as a share of the system's power over chips, where nothing tells how it depends on the work."""

    mean: Share

    def watts(self, plate: Power, nameplate: Any, work: Work) -> Watts:
        # What a deployment draws: a share of its nameplate, whatever it does.
        # Without a rate there is no service, and so no power of one.
        mean = only_if(work.rate, self.mean * nameplate)
        return Watts(mean, mean, mean, NAN)

    def cautions(self, system: System) -> tuple[str, str]:
        # Power does not follow the load.
        return (
            "power a mean whatever the load",
            "power is a mean share of the system's nameplate, whatever the load: nobody has published its shape",
        )


def shape_of(system: System) -> Shape:
    """Return the form in which the power of a system follows its work.

    Parameters
    ----------
    system : System

    Returns
    -------
    Shape
    """
    shape = system.power_shape
    assert isinstance(shape, Shape), system.name
    return shape

"""What a deployment may not exceed, in chips of a system."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfmodel.equations import tco
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import show

#: Chips beyond which a plan is no answer, unless told otherwise.
MOST_CHIPS = 100_000.0


@dataclass(frozen=True)
class Limits:
    """Chips, nodes, power and price beyond which a plan is no answer.

    Attributes
    ----------
    chips, nodes : float
        [1]
    power : float
        Of machines, by their nameplate [W].
    cost : float
        Of machines with their network, storage and spares, to buy [USD].
    """

    chips: float = MOST_CHIPS
    nodes: float = math.inf
    power: float = math.inf
    cost: float = math.inf

    def chips_of(self, scenario: Scenario) -> tuple[float, str]:
        """Return the chips of a system that keep within, and what a plan with more of them needs, in words.

        Parameters
        ----------
        scenario : Scenario
            A plan of the system.
        """
        system, economics = scenario.system, scenario.economics
        bounds = [(self.chips, f"needs more than {self.chips:,.0f} chips")]
        if self.nodes < math.inf:
            bounds.append(
                (self.nodes * float(system.chips_per_node), f"needs more than {self.nodes:,.0f} nodes (--max-nodes)")
            )
        if self.power < math.inf:
            watts = float(system.power.system_per_chip)
            said = f"needs more than {show(self.power, 'W')} by the nameplate, {show(watts, 'W')} a chip (--max-power)"
            bounds.append(_within(self.power, watts, said, f"power of {system.name}", "--max-power"))
        if self.cost < math.inf:
            assert economics is not None
            extras = tco.price_with_extras(
                network=economics.network, storage=economics.storage, spares=economics.spares
            )
            each = float(system.price.system) / float(system.price.chips) * float(extras)
            said = (
                f"costs more than {show(self.cost, 'USD')} to buy, {show(each, 'USD')} a chip with network, storage "
                "and spares (--max-cost)"
            )
            bounds.append(_within(self.cost, each, said, f"price of {system.name}", "--max-cost"))
        return min(bounds, key=lambda one: one[0])


def _within(limit: float, each: float, said: str, what: str, option: str) -> tuple[float, str]:
    """Return how many of something keep within a limit, and what more of them do; none where it is not known."""
    if math.isnan(each):
        return 0.0, f"the {what} is not published, so that nothing can be said of {option}"
    return math.floor(limit / each * (1 + 1e-12)), said

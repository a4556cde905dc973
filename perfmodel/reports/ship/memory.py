"""Memory tiers of a gpt-oss-120B instance (Table 2)."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from perfmodel.equations import memory as equations
from perfmodel.machines import kv_cache
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Figure, Layer, Number, figure
from perfmodel.specs.types import PRECISION_BYTES, Scenario, Tier
from perfmodel.specs.weights import total_parameters

#: SHIP, Table 2, and what the summary says of the cache pool.
_SRAM_LEFT, _SRAM_RATE, _DRAM_RAW, DRAM_NET, _DRAM_RATE = 69.7e9, 10616e12, 72e12, 51e12, 18.4e12


@dataclass(frozen=True)
class Instance:
    """A model on a number of nodes, and the memory of all their chips.

    Attributes
    ----------
    scenario : Scenario
    chips : float
    sram, ddr : Tier
        Of one chip.
    weights : float
        Of the model [B].
    """

    scenario: Scenario
    chips: float
    sram: Tier
    ddr: Tier
    weights: float

    @property
    def capacity(self) -> float:
        """SRAM of all chips [B]."""
        return float(equations.partition_capacity(chips=self.chips, capacity=self.sram.capacity))

    @property
    def room(self) -> float:
        """SRAM that the weights leave to the cache [B]."""
        return self.capacity - self.weights

    @property
    def sram_rate(self) -> float:
        """Bandwidth of the SRAM of all chips [B/s]."""
        return self.chips * float(self.sram.bandwidth)

    @property
    def ddr_rate(self) -> float:
        """Bandwidth of the host memory of all chips [B/s]."""
        return self.chips * float(self.ddr.bandwidth)


def instance_of(model: str, on: str, nodes: float) -> Instance:
    """Return a model on nodes of a pipeline."""
    scenario = resolve(model, f"{on}:plan=tp16-layers", Options())
    memory = scenario.system.memory
    assert memory.sram is not None
    assert memory.ddr is not None
    weights = float(total_parameters(scenario.model)) * PRECISION_BYTES[scenario.deployment.precision]
    return Instance(scenario, nodes * float(scenario.system.chips_per_node), memory.sram, memory.ddr, weights)


def _tiers_frame(of: Instance) -> pd.DataFrame:
    """Return capacity [GB], bandwidth [TB/s] and cache [million tokens] of each tier."""
    per_token = float(kv_cache.kv_bytes_per_token(of.scenario.model, "bf16"))
    tiers = (
        ("SRAM after weights", of.room, of.sram_rate),
        ("host DRAM, raw", of.chips * float(of.ddr.capacity), of.ddr_rate),
        ("host DRAM, cache pool as printed", DRAM_NET, of.ddr_rate),
    )
    return pd.DataFrame(
        [{"tier": tier, "bytes": size / 1e9, "rate": rate / 1e12} for tier, size, rate in tiers]
    ).assign(
        tokens=lambda rows: rows.bytes * 1e9 / per_token / 1e6,
        tier=lambda rows: [f"{tier}: {size:,.0f} GB" for tier, size in zip(rows.tier, rows.bytes, strict=True)],
    )


def _tiers_against_printed(of: Instance) -> tuple[Number, ...]:
    """Return Table 2 beside what the chips of the instance add up to."""
    printed = "SHIP, table 2"
    return (
        Number(
            "SRAM left for the cache",
            of.room / 1e9,
            "GB",
            _SRAM_LEFT / 1e9,
            "reconstructed",
            source=printed,
            note=(
                f"{of.capacity / 1e9:.1f} GB less {of.weights / 1e9:.1f} GB of weights, all in "
                f"{of.scenario.deployment.precision}"
            ),
        ),
        Number(
            "SRAM bandwidth",
            of.sram_rate / 1e12,
            "TB/s",
            _SRAM_RATE / 1e12,
            "reconstructed",
            True,
            printed,
            "the chip's 18.43 TB/s is this number over 576",
        ),
        Number(
            "host memory, raw",
            of.chips * float(of.ddr.capacity) / 1e12,
            "TB",
            _DRAM_RAW / 1e12,
            "reconstructed",
            True,
            f"third-party reading of {printed}",
        ),
        Number(
            "host memory as a cache pool",
            float("nan"),
            "TB",
            DRAM_NET / 1e12,
            source="summary of SHIP",
            note="71 % of the raw size; why is not published, so nothing is computed",
        ),
        Number(
            "host memory bandwidth",
            of.ddr_rate / 1e12,
            "TB/s",
            _DRAM_RATE / 1e12,
            "reconstructed",
            True,
            printed,
            "one PCIe Gen4 x16 a chip; equal digits to the SRAM rate of one chip by chance",
        ),
    )


@figure("ship-tiers")
def tiers(model: str = "gpt-oss-120b", on: str = "lpu-v1", nodes: float = 72) -> Figure:
    """Memory tiers of one instance (Table 2)."""
    instance = instance_of(model, on, nodes)
    chart = Chart(
        "ship-tiers",
        f"Capacity and bandwidth of the tiers of {nodes:g} nodes",
        _tiers_frame(instance),
        {
            "tier": "tier",
            "bytes": "capacity [GB]",
            "rate": "bandwidth [TB/s]",
            "tokens": "KV cache [million tokens]",
        },
        "bytes",
        "rate",
        (Layer("point"),),
        color="tier",
        log="xy",
        caption="SHIP, table 2",
        kind="reconstructed",
    )
    return Figure(
        "Memory tiers",
        f"{nodes:g} nodes leave {instance.room / 1e9:.1f} GB of SRAM beside the weights of {model} at "
        f"{instance.sram_rate / 1e12:,.0f} TB/s, and 1,000 times as much host memory at "
        f"{instance.ddr_rate / 1e12:.1f} TB/s.",
        charts=(chart,),
        numbers=_tiers_against_printed(instance),
    )

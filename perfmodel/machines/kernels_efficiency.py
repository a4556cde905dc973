"""Efficiencies of engines that launch kernels: what calibration files hold, with units and sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.specs.types import (
    AtLeastOne,
    Bandwidth,
    Bytes,
    Efficiency,
    PositiveShare,
    Ratio,
    Seconds,
    System,
)


@dataclass(frozen=True)
class KernelsEfficiency(Efficiency):
    """How a GPU engine runs: efficiencies by rate name, and times that neither TP nor bandwidth moves.

    Where no all-reduce was measured, the topology's closed form applies with ``call_latency`` and ``link_efficiency``;
    over PCIe, where engines have no kernels of their own, a call is one of NCCL.
    Latencies of calls hold hops of ``hop_latency``; those of a system whose own are known take their place.
    """

    gemm_memory: Mapping[str, PositiveShare]
    gemm_compute: Mapping[str, PositiveShare]
    attention_memory: Mapping[str, PositiveShare]
    attention_growth: Mapping[str, Seconds]
    attention_compute: PositiveShare
    expert_memory: PositiveShare
    expert_compute: Mapping[str, PositiveShare]
    expert_evenness: PositiveShare
    expert_tile: AtLeastOne
    layer_time: Seconds
    latent_time: Seconds
    indexer_time: Seconds
    recurrent_time: Seconds
    recurrent_compute: PositiveShare
    expert_time: Mapping[str, Seconds]
    quantise_time: Seconds
    step_time: Seconds
    sequence_time: Seconds
    sequence_traffic: Bytes
    request_time: Seconds
    stream_time: Seconds
    prefill_group: AtLeastOne
    tpot_spread: Mapping[str, Ratio]
    ttft_spread: Mapping[str, Ratio]
    stage_latency: Seconds
    expert_imbalance: AtLeastOne
    call_latency: Seconds
    nccl_latency: Seconds
    nccl_growth: Ratio
    hop_latency: Seconds
    link_efficiency: Mapping[str, PositiveShare]
    eager_launch: Seconds
    all_reduce: AllReduce | None = None
    eager: bool = False

    def at_rates(self, rates: Iterable[str]) -> KernelsEfficiency:
        """Return what is reached at the rates that a system has.

        Parameters
        ----------
        rates : iterable of str

        Returns
        -------
        KernelsEfficiency
        """
        known = set(rates)
        memory, compute = (
            {rate: share for rate, share in part.items() if rate in known}
            for part in (self.gemm_memory, self.gemm_compute)
        )
        # Experts in 4 bits run as they are stored where a chip computes in 4 bits.
        unused = () if "fp4" in known else ("fp4", "mxfp4")
        time, share = (
            {kernels: value for kernels, value in part.items() if kernels not in unused}
            for part in (self.expert_time, self.expert_compute)
        )
        return replace(self, gemm_memory=memory, gemm_compute=compute, expert_time=time, expert_compute=share)

    def even_experts(self, experts: Any) -> Any:
        """Return how many evenly picked experts would be met as often as the real, unevenly picked ones.

        Parameters
        ----------
        experts : Number
            Of a layer [1].

        Returns
        -------
        Number
            Experts [1].
        """
        return self.expert_evenness * experts

    def expert_rows(self) -> Any:
        """Return the rows of a tile of grouped matrix products."""
        return self.expert_tile


def efficiency_of(system: System) -> KernelsEfficiency:
    """Return what the engine reaches on a system of this kind.

    Parameters
    ----------
    system : System

    Returns
    -------
    KernelsEfficiency
    """
    found = system.efficiency
    assert isinstance(found, KernelsEfficiency), system.name
    return found


@dataclass(frozen=True)
class AllReduce:
    """All-reduce of an engine: a one-shot algorithm below the threshold, a two-shot one from there on.

    It was measured over links of ``link_bandwidth``; on others its bandwidths go with the rate of the links.  By
    ``overlap`` a large one takes less time beside a prefill, which hides a part of it, than by itself.
    """

    small_latency: Seconds
    small_growth: Ratio
    small_bandwidth: Bandwidth
    large_latency: Seconds
    large_growth: Ratio
    large_bandwidth: Bandwidth
    threshold: Bytes
    link_bandwidth: Bandwidth
    overlap: AtLeastOne = 1.0

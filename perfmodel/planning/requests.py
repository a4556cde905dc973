"""Requests of a simulation: how they arrive, and what they met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.serving.lengths import Lengths


@dataclass(frozen=True)
class Load:
    """Requests in the order of their arrival: times [s] and tokens.

    Where a trace has them also the blocks of prompts, and the share of prompt tokens that a cache without limit holds.
    """

    arrival: Any
    prompt: Any
    output: Any
    blocks: Sequence[tuple[Any, ...]] = ()
    block_tokens: float = 1.0
    ceiling: float = 0.0

    def __len__(self) -> int:
        return len(self.arrival)


@dataclass(frozen=True)
class Simulated:
    """What each request met [s], in the order of arrival; NaN where it was refused or did not end.

    Attributes
    ----------
    arrived, wait, ttft, tpot, latency : ndarray
        Time of arrival, time until admission, time to first token, time per output token after it (NaN for requests of
        one token), time until the last token.
    gap_at, gap, gap_count : ndarray
        When steps brought tokens, the times between two of them, and how many gaps of that length there were then.
    running : float
        Requests in all replicas, averaged over time.
    busy : float
        Share of time with a step under way, averaged over replicas.
    refused : int
        Requests that no pool can hold.
    preempted : int
        Times that a request lost its blocks.
    span : float
        Time from the first arrival to the last token.
    rate : float
        Requests finished, all replicas together [1/s].
    hits : float
        Share of prompt tokens found in the blocks that a replica had [1]; 0 where prompts have no blocks.
    """

    arrived: Any
    wait: Any
    ttft: Any
    tpot: Any
    latency: Any
    gap_at: Any
    gap: Any
    gap_count: Any
    running: float
    busy: float
    refused: int
    preempted: int
    span: float
    rate: float
    hits: float = 0.0

    def after(self, warm_up: float) -> Simulated:
        """Return what requests met beyond a first share of them, and what they finished from then on."""
        return self.between(int(len(self.ttft) * warm_up), len(self.ttft))

    def between(self, first: int, last: int) -> Simulated:
        """Return what requests met of which the first to count and the first not to count are given.

        The rate is that from the arrival of the former to that of the latter, or to the last end.
        """
        parts = {name: getattr(self, name)[first:last] for name in ("arrived", "wait", "ttft", "tpot", "latency")}
        begin = float(self.arrived[first])
        ends = self.arrived + self.latency
        until = float(self.arrived[last]) if last < len(self.arrived) else float(np.nanmax(ends))
        kept = (self.gap_at >= begin) & (self.gap_at <= until)
        done = int(np.sum((ends > begin) & (ends <= until)))
        return Simulated(
            **parts,
            gap_at=self.gap_at[kept],
            gap=self.gap[kept],
            gap_count=self.gap_count[kept],
            running=self.running,
            busy=self.busy,
            refused=self.refused,
            preempted=self.preempted,
            span=self.span,
            rate=done / (until - begin) if until > begin else self.rate,
        )


def arrivals(rate: float, scv: float, count: int, generator: Any) -> Any:
    """Draw arrival times of a renewal process with gamma gaps [s].

    Parameters
    ----------
    rate : float
        Arrivals [1/s].
    scv : float
        Squared coefficient of variation of the gaps; 0 for equal ones.
    count : int
    generator : numpy.random.Generator
    """
    if scv == 0.0:
        return np.arange(count) / rate
    return np.cumsum(generator.gamma(1 / scv, scv / rate, size=count))


def drawn(rate: float, scv: float, lengths: Lengths, count: int, seed: int) -> Load:
    """Draw a load of renewal arrivals and independent lengths."""
    generator = np.random.default_rng(seed)
    prompt, output = lengths.draw(generator, count)
    return Load(arrivals(rate, scv, count, generator), prompt, output)

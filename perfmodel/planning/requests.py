"""Requests of a simulation: how they arrive, and what they met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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

    def only(self, kept: Any) -> Simulated:
        """Return what some of the requests met; gaps between tokens are of all of them."""
        names = ("arrived", "wait", "ttft", "tpot", "latency")
        return replace(self, **{name: getattr(self, name)[kept] for name in names})

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


@dataclass(frozen=True)
class Stream:
    """Requests of one traffic among those of others.

    Attributes
    ----------
    name : str
    rate, scv : float
        Requests, all replicas together [1/s], and squared coefficient of variation of their gaps.
    lengths : Lengths
    limits : dict
        By time and statistic: what its requests are held to [s].
    """

    name: str
    rate: float
    scv: float
    lengths: Lengths
    limits: Mapping[tuple[str, str], float]


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


def merged(streams: Sequence[Stream], share: float, count: int, seed: int) -> tuple[Load, Any]:
    """Draw what comes of several traffics, in the order of arrival.

    Parameters
    ----------
    streams : sequence of Stream
    share : float
        Of the rate of each [1].
    count : int
        Requests of all of them.
    seed : int

    Returns
    -------
    tuple of Load and ndarray
        The requests, and the place of each one's stream among the streams.
    """
    total = sum(stream.rate for stream in streams)
    loads = [
        # More of each than come on average, so that no stream ends before the last request that is kept.
        drawn(stream.rate * share, stream.scv, stream.lengths, _enough(count * stream.rate / total, stream.scv), part)
        for stream, part in zip(streams, np.random.SeedSequence(seed).generate_state(len(streams)), strict=True)
    ]
    owner = np.repeat(np.arange(len(loads)), [len(load) for load in loads])
    arrival, prompt, output = (
        np.concatenate([getattr(load, name) for load in loads]) for name in ("arrival", "prompt", "output")
    )
    order = np.argsort(arrival, kind="stable")[:count]
    return Load(arrival[order], prompt[order], output[order]), owner[order]


def _enough(mean: float, scv: float) -> int:
    return int(np.ceil(mean + 6 * np.sqrt(mean * max(1.0, scv)) + 6))

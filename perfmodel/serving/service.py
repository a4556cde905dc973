"""What one replica can do for a mix of lengths, whatever the load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.equations import batching
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.step_times import StepTimes, passes_of
from perfmodel.specs.types import Routing

#: Rounds that settle the prompts of a step.
_ROUNDS = 12


@dataclass(frozen=True)
class Service:
    """What one replica can do for a mix of lengths, whatever the load.

    Attributes
    ----------
    times : StepTimes
    lengths : Lengths
        Of the requests that some pool can hold.
    cap : int
        Requests in the replica at once.
    limit : str
        What sets the cap: ``memory`` or ``engine``.
    cached : float
        Share of each prompt that the prefix cache holds.
    capacity : float
        Requests that it finishes with a queue before it [1/s].
    binding : str
        What sets the capacity: ``memory``, ``engine``, ``prefill`` or ``speed``.
    refused : float
        Share of requests that no pool can hold.
    cap_deviation : float
        Standard deviation of the requests that the memory holds, for they are not all of one size.
    routing : str
        How requests are dealt to replicas like this one.
    """

    times: StepTimes
    lengths: Lengths
    cap: int
    limit: str
    cached: float
    capacity: float
    binding: str
    refused: float
    cap_deviation: float = 0.0
    routing: Routing = "least-loaded"

    @property
    def context(self) -> float:
        """Tokens in the cache of a running sequence, averaged over its tokens."""
        lengths = self.lengths
        steps = lengths.output
        return lengths.mean(steps * (lengths.prompt + lengths.output / 2)) / lengths.mean(steps)

    @cached_property
    def passes(self) -> Any:
        """Steps that bring the tokens of each kind of request, that of its prefill counted."""
        return passes_of(np.maximum(1.0, np.round(self.lengths.output)), self.times.tokens)

    @cached_property
    def output(self) -> float:
        """Mean steps of a request, that of its prefill counted."""
        return self.lengths.mean(self.passes)

    @property
    def prompt(self) -> float:
        """Mean prompt tokens that have to be computed."""
        return self.lengths.mean(np.maximum(1.0, self.lengths.prompt * (1 - self.cached)))

    def steps(self, running: Any) -> Any:
        """Mean decode step of a life whose first step is the prefill, with so many requests in the replica [s].

        Parameters
        ----------
        running : Number
            Requests in the replica [1].

        Returns
        -------
        Number
            Time [s].
        """
        return self.times.step(running * (1 - 1 / self.output), self.context)

    def seen(self, running: Any) -> Any:
        """Mean decode step that a decoding request sees; the others decode outside their prefill only [s].

        Parameters
        ----------
        running : Number
            Requests in the replica [1].

        Returns
        -------
        Number
            Time [s].
        """
        others = np.maximum(0.0, running - 1)
        return self.times.step(1 + others * (1 - 1 / self.output), self.context)

    def occupancy(self, coscheduled: float) -> float:
        """Mean time that a prompt takes from decoding [s].

        Parameters
        ----------
        coscheduled : float
            See :meth:`coscheduled` [1].

        Returns
        -------
        float
            Time [s].
        """
        return float(np.interp(coscheduled, self.times.coscheduled, self._occupancies))

    @cached_property
    def _occupancies(self) -> Any:
        """Mean time that a prompt takes from decoding, at each coscheduled of the tables [s]."""
        prompt, times = self.lengths.prompt, self.times
        return np.array(
            [self.lengths.mean(times.prefill(prompt, one, self.cached)) for one in times.coscheduled.tolist()]
        )

    def entry(self, coscheduled: float) -> float:
        """Mean time until the next prompt can start [s].

        Parameters
        ----------
        coscheduled : float
            See :meth:`coscheduled` [1].

        Returns
        -------
        float
            Time [s].
        """
        return self.lengths.mean(self.times.entry(self.lengths.prompt, coscheduled, self.cached))

    def coscheduled(self, running: float, arriving: float) -> float:
        """Return what counts as coscheduled in the tables: prompts in one step, or requests that decode meanwhile.

        Parameters
        ----------
        running : float
            Requests in the replica [1].
        arriving : float
            Prompts that arrive during a step [1].

        Returns
        -------
        float
            [1]
        """
        if self.times.rides:
            return running
        return max(1.0, min(arriving, max(1.0, self.times.budget / self.prompt), running))

    def shared(self, rate: float, step: float, running: float) -> float:
        """Return what counts as coscheduled in the tables where prompts of an open load share the steps.

        Parameters
        ----------
        rate : float
            Arrivals [1/s].
        step : float
            Time of a decode step [s].
        running : float
            Requests in the replica [1].

        Returns
        -------
        float
            [1]
        """
        if self.times.rides:
            return running
        most, cycle = max(1.0, self.times.budget / self.prompt), step
        for _ in range(_ROUNDS):
            # From below: the more prompts come in one step, the less each of them takes.
            coscheduled = min(most, 1 + rate * cycle)
            cycle = step + rate * cycle * self.occupancy(coscheduled)
        return coscheduled

    def rates(self, running: Any) -> Any:
        """Requests that the replica finishes with a queue before it, by requests that run [1/s].

        Parameters
        ----------
        running : Number
            Requests that run [1].

        Returns
        -------
        ndarray
            Rates [1/s].
        """
        running = np.atleast_1d(np.asarray(running, dtype=float))
        step = self.steps(running)
        rates = np.empty(len(running))
        for at, (count, time) in enumerate(zip(running, step, strict=True)):
            coscheduled = self.coscheduled(float(count), float(count) / self.output)
            occupancy = self.occupancy(coscheduled)
            rates[at] = batching.saturated_rate(running=count, output=self.output, step=time, occupancy=occupancy)
            rates[at] = min(rates[at], self.intake(coscheduled, occupancy, float(time)))
        return rates

    def intake(self, coscheduled: float, occupancy: float, step: float) -> float:
        """Prompts that the replica can take in while it decodes [1/s].

        Parameters
        ----------
        coscheduled : float
            See :meth:`coscheduled` [1].
        occupancy : float
            Time that a prompt takes from decoding [s].
        step : float
            Time of a decode step [s].

        Returns
        -------
        float
            Rate [1/s].
        """
        if self.times.rides:
            return 1 / self.entry(coscheduled)
        return float(
            batching.prefill_rate(occupancy=occupancy, step=step, prompt=self.prompt, budget=self.times.budget)
        )


def serve(times: StepTimes, lengths: Lengths, cached: float = 0.0, routing: Routing = "least-loaded") -> Service:
    """Work out what a replica can do for a mix of lengths.

    Parameters
    ----------
    times : StepTimes
    lengths : Lengths
    cached : float
        Share of each prompt that the prefix cache holds.
    routing : str
        How requests are dealt to replicas like this one.

    Returns
    -------
    Service
    """
    request_bytes = times.bytes_of(lengths.prompt + lengths.output)
    fits = request_bytes <= times.pool
    refused = max(0.0, 1 - float(lengths.weight[fits].sum()))
    if not fits.any():
        return Service(times, lengths, 0, "memory", cached, 0.0, "memory", 1.0)
    kept = Lengths(lengths.prompt[fits], lengths.output[fits], lengths.weight[fits] / lengths.weight[fits].sum())
    request_bytes = request_bytes[fits]
    life, swing = request_bytes, 0.0 * request_bytes
    if times.grows:
        # A request holds its prompt at first and its full length at last.
        entry = times.bytes_of(kept.prompt)
        life, swing = times.bytes_of(kept.prompt + kept.output / 2), (request_bytes - entry) ** 2 / 12
    else:
        entry = request_bytes
    stays = kept.output / kept.mean(kept.output)
    biased = kept.mean(life * stays)
    deviation = np.sqrt(max(0.0, kept.mean((life**2 + swing) * stays) - biased**2))
    mean = kept.mean(entry)
    idle = kept.mean(entry * entry) / (2 * mean) - mean / 2 * (1 if len(kept.weight) == 1 else 0)
    room = float(batching.length_biased_cap(pool=times.pool, running=biased, idle=idle))
    cap = int(max(1.0, min(room, times.cap)))
    cap_deviation = float(np.sqrt(cap) * deviation / biased) if room < times.cap else 0.0
    limit = "memory" if room < times.cap else "engine"
    service = Service(times, kept, cap, limit, cached, 0.0, "", refused, cap_deviation, routing)
    tried = np.unique(np.round(np.geomspace(1.0, cap, 24)))
    rates = service.rates(tried)
    best = int(np.argmax(rates))
    step = float(service.steps(tried[best]))
    coscheduled = service.coscheduled(float(tried[best]), float(tried[best]) / service.output)
    binding = service.limit
    if rates[best] >= 0.999 * service.intake(coscheduled, service.occupancy(coscheduled), step):
        binding = "prefill"
    elif best < len(tried) - 1:
        binding = "speed"
    return replace(service, capacity=float(rates[best]), binding=binding)

"""How long the steps of one replica last, at each batch size: what the chain and the simulation both run on."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.equations import speculative
from perfmodel.errors import UserError
from perfmodel.machines import speculation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.fit import blocks_grow, fit
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario

#: Prompts prefilled in one step for which times are worked out; others are interpolated.
_GROUPS = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0])
#: Batch sizes up to here are each worked out; larger ones at steps of 2 %.
_EACH = 256


@dataclass(frozen=True)
class StepTimes:
    """Times of one replica [s], tabulated once.

    Attributes
    ----------
    batch : ndarray
        Sequences that decode together, from 0.
    context : ndarray
        Tokens in the cache of each.
    decode : ndarray
        Time of a decode step by context and batch; 0 where nothing decodes.
    prompt : ndarray
        Tokens of a prompt.
    coscheduled : ndarray
        Prompts prefilled together; on machines whose prefill rides along, requests that decode meanwhile.
    occupancy, latency, slot : ndarray
        Time that a prompt takes from decoding, time until its first token, and time until the next prompt can start,
        by coscheduled and prompt.
    rides : bool
        Whether prompts ride along with decoding, chunk by chunk, instead of alternating with it.
    budget : float
        Prompt tokens of a step where prefill alternates with decoding.
    front : float
        Time of the front end for a request.
    pool : float
        KV cache of a replica [B].
    length, held : ndarray
        Tokens of a request and the cache that it holds [B].
    cap : float
        Requests that the engine runs at once, whatever the memory.
    grows : bool
        Whether a request holds the cache of what it has brought so far, and not that of its full length.
    tokens : float
        Tokens that a decode step brings of each sequence, more than 1 with a draft.
    """

    batch: Any
    context: Any
    decode: Any
    prompt: Any
    coscheduled: Any
    occupancy: Any
    latency: Any
    slot: Any
    rides: bool
    budget: float
    front: float
    pool: float
    length: Any
    held: Any
    cap: float
    grows: bool = False
    tokens: float = 1.0

    def step(self, batch: Any, context: float) -> Any:
        """Time of a decode step of so many sequences with so many tokens in each one's cache [s].

        Parameters
        ----------
        batch : Number
            Sequences [1].
        context : float
            Tokens in the cache of each [1].

        Returns
        -------
        Number
            Time [s].
        """
        at = between(self.context, context)
        column = self.decode[at[0]] * (1 - at[1]) + self.decode[at[0] + 1] * at[1]
        return np.interp(batch, self.batch, column)

    def prefill(self, prompt: Any, coscheduled: float, cached: float = 0.0) -> Any:
        """Time that prompts take from decoding [s]; tokens of a prefix that is ``cached`` cost nothing.

        Parameters
        ----------
        prompt : Number
            Tokens of the prompt [1].
        coscheduled : float
            Prompts together, or requests that decode meanwhile [1].
        cached : float
            Share of the prompt found in a prefix cache [1].

        Returns
        -------
        Number
            Time [s].
        """
        return self._prompt(self.occupancy, prompt, coscheduled, cached)

    def first_token(self, prompt: Any, coscheduled: float, cached: float = 0.0) -> Any:
        """Time from the start of a prefill to its first token [s].

        Parameters
        ----------
        prompt : Number
            Tokens of the prompt [1].
        coscheduled : float
            Prompts together, or requests that decode meanwhile [1].
        cached : float
            Share of the prompt found in a prefix cache [1].

        Returns
        -------
        Number
            Time [s].
        """
        return self._prompt(self.latency, prompt, coscheduled, cached)

    def entry(self, prompt: Any, coscheduled: float, cached: float = 0.0) -> Any:
        """Time from the start of a prefill until the next one can start [s].

        Parameters
        ----------
        prompt : Number
            Tokens of the prompt [1].
        coscheduled : float
            Prompts together, or requests that decode meanwhile [1].
        cached : float
            Share of the prompt found in a prefix cache [1].

        Returns
        -------
        Number
            Time [s].
        """
        return self._prompt(self.slot, prompt, coscheduled, cached)

    def _prompt(self, table: Any, prompt: Any, coscheduled: float, cached: float) -> Any:
        at = between(self.coscheduled, coscheduled)
        row = table[at[0]] * (1 - at[1]) + table[at[0] + 1] * at[1]
        whole = np.interp(prompt, self.prompt, row)
        if cached == 0.0:
            return whole
        # The last token is always computed, and the least that a pass takes is paid once.
        tokens = np.asarray(prompt, dtype=float)
        return np.maximum(row[0], whole - np.interp(tokens * cached, self.prompt, row) + row[0])

    def bytes_of(self, tokens: Any) -> Any:
        """Cache that a request of so many tokens holds [B].

        Parameters
        ----------
        tokens : Number
            Tokens of the request [1].

        Returns
        -------
        Number
            Bytes [B].
        """
        return np.interp(tokens, self.length, self.held)


def between(knots: Any, value: float) -> tuple[int, float]:
    """Return the interval of a value and the share of its upper end, clamped.

    Parameters
    ----------
    knots : ndarray
        Rising values, two at least.
    value : float

    Returns
    -------
    tuple of int and float
    """
    if len(knots) == 1:
        raise ValueError("two knots at least")
    at = min(max(bisect_left(knots, value) - 1, 0), len(knots) - 2)
    return at, min(max(float((value - knots[at]) / (knots[at + 1] - knots[at])), 0.0), 1.0)


def passes_of(output: Any, tokens: float) -> Any:
    """Return the mean number of steps that bring so many tokens, that of the prefill counted, which brings the first.

    Parameters
    ----------
    output : ndarray
        Tokens, whole numbers of at least 1 [1].
    tokens : float
        Tokens that a decode step brings [1].

    Returns
    -------
    ndarray
        Steps [1].
    """
    more = output - 1
    brought = speculative.tokens_to_end(length=tokens, output=output)
    return 1 + np.where(more > 0, np.maximum(1.0, more / brought), 0.0)


def batch_sizes(cap: float) -> Any:
    """Return the batch sizes for which steps are worked out, from 0 to the cap.

    Parameters
    ----------
    cap : float
        Most sequences at once [1].

    Returns
    -------
    ndarray
        Sequences [1].
    """
    few = np.arange(0.0, min(cap, _EACH) + 1)
    if cap <= _EACH:
        return few
    more = np.unique(np.round(np.geomspace(_EACH, cap, max(2, int(np.log(cap / _EACH) / 0.02)))))
    return np.concatenate([few, more[1:]])


def _companies(most: float) -> Any:
    """Return numbers of requests beside a prompt that rides along; the first ones change most."""
    return np.unique(np.minimum(most, np.concatenate([np.arange(1.0, 25.0), np.round(np.geomspace(24.0, 1e4, 40))])))


def sequence_limit(scenario: Scenario) -> float:
    """Return the sequences that an engine runs at once by default; machines without one have no such limit.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    float
        Sequences; infinite where there is no limit [1].
    """
    engine = scenario.system.engine
    return float("inf") if engine is None else float(engine.max_sequences)


def step_times(
    scenario: Scenario, *, longest_prompt: float, longest: float, cap: float | None = None, budget: float | None = None
) -> StepTimes:
    """Tabulate the steps of one replica.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    longest_prompt, longest : float
        Tokens of the longest prompt and of the longest request.
    cap : float, optional
        Requests at once; the engine's own limit where not given.
    budget : float, optional
        Prompt tokens of a step; the engine's default where not given.

    Returns
    -------
    StepTimes
    """
    if scenario.model.task == "pool":
        raise UserError(
            f"{scenario.model.name} makes one pass over its input and decodes nothing: ask for a number of requests at "
            "once, without a rate"
        )
    machine = machine_of(scenario.system)
    rides = machine.prefill_rides
    if machine.token_budget(scenario.system) is not None and budget is not None:
        scenario = put(scenario, "system.efficiency.token_budget", budget)
    held = fit(scenario, longest)
    length = np.unique(np.round(np.geomspace(1.0, max(2.0, longest), 48)))
    bytes_held = np.asarray(request_bytes(scenario, length), dtype=float) * np.ones_like(length)
    pool = float(held.room)
    most = max(1.0, pool / float(bytes_held[min(len(length) - 1, 4)]))
    limit = min(sequence_limit(scenario) if cap is None else cap, most, 65536.0)
    batch = batch_sizes(max(1.0, np.floor(limit)))
    context = np.unique(np.round(np.geomspace(1.0, max(2.0, longest), 12)))
    decode = np.zeros((len(context), len(batch)))
    decoding = speculation.decode(machine, scenario, batch[None, 1:], context[:, None])
    tokens = float(decoding.length)
    decode[:, 1:] = decoding.step.time * tokens
    front = machine.front_end(scenario.system)
    # A front end that sends token by token is a second server: steps cannot outrun it for long.
    decode = np.maximum(decode, batch[None, :] * float(front.stream) * tokens)
    prompt = np.unique(np.round(np.geomspace(1.0, max(2.0, longest_prompt), 40)))
    coscheduled = _companies(float(batch[-1])) if rides else _GROUPS
    if len(coscheduled) == 1:
        coscheduled = np.array([coscheduled[0], coscheduled[0] + 1])
    mean_context = float(context[len(context) // 2])
    running = coscheduled[:, None] if rides else 1.0
    first, occupancy = speculation.prefill(
        machine, scenario, running, mean_context, prompt[None, :], coscheduled[:, None]
    )
    shape = (len(coscheduled), len(prompt))
    latency = np.broadcast_to(np.asarray(first.time, dtype=float), shape)
    taken = np.broadcast_to(np.asarray(occupancy, dtype=float), shape)
    slot = machine.next_prompt(scenario, coscheduled[:, None], prompt[None, :], latency, taken)
    return StepTimes(
        batch=batch,
        context=context,
        decode=decode,
        prompt=prompt,
        coscheduled=coscheduled,
        occupancy=taken,
        latency=latency,
        slot=slot,
        rides=rides,
        # Each micro-batch of a pipeline takes in a budget of its own.
        budget=(PREFILL_BUDGET if budget is None else budget) * float(scenario.deployment.pp),
        front=float(front.request),
        pool=pool,
        length=length,
        held=bytes_held,
        cap=limit,
        grows=blocks_grow(scenario),
        tokens=tokens,
    )

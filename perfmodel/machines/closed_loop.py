"""What a closed loop is given and what it gives back, for all kinds of machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfmodel.machines.step import Step


@dataclass(frozen=True)
class Load:
    """A closed loop on one replica.

    Attributes
    ----------
    running : Number
        Requests in service [1].
    prompt, output : Number
        Mean tokens of a request [1].
    cached : Number
        Tokens of the prompt that a prefix cache holds: they are attended to and not computed [1].
    rounds : Number
        Prompts over concurrency: the first of them start together [1].
    jitter : Number
        Spread of the lengths [1].
    lock_step : bool
        Whether every round starts together.
    held : Number
        Decode steps for which a request is held beside the one under way [1].
    budget : Number or None
        Prompt tokens that a step takes, where longer prompts are cut to it; the engine's own where not given [1].
    bias : Number
        Factor by which a request in flight is longer than the mean of all requests [1].
    """

    running: Any
    prompt: Any
    output: Any
    rounds: Any = math.inf
    jitter: Any = 0.0
    lock_step: bool = False
    held: Any = 0.0
    budget: Any = None
    bias: Any = 1.0
    cached: Any = 0.0

    @property
    def computed(self) -> Any:
        """Prompt tokens that a prefill computes [1]."""
        return self.prompt - self.cached

    @property
    def burst_share(self) -> Any:
        """Share of the rounds in which all requests start at once."""
        return 1.0 if self.lock_step else 1 / self.rounds


@dataclass(frozen=True)
class Decoding:
    """Decoding of a replica: what one token of every running request takes, and how it comes about.

    Attributes
    ----------
    step : Step
        The share of a step that a token takes.
    length : Number
        Tokens that a step brings each request; 1 without speculation.
    draft, verify : Step or None
        One step of the draft where it costs anything, and the target's pass over k + 1 tokens.
    """

    step: Step
    length: Any = 1.0
    draft: Step | None = None
    verify: Step | None = None


@dataclass(frozen=True)
class SharedPrefill:
    """Prompts of one step, which share a read of the weights.

    Attributes
    ----------
    step : Step
        The prefill of a group.
    group, coscheduled : Number
        Prompts of the group, and of a step that has any on average [1].
    """

    step: Step
    group: Any
    coscheduled: Any


@dataclass(frozen=True)
class Loop:
    """What a closed loop comes to on one replica.

    Attributes
    ----------
    prefill : Step
        Of a prompt that waits for nobody.
    decoding : Decoding
        What a token takes.
    front : Number
        Time that the front end takes for a request [s].
    wait, median_wait : Number
        Part of the time to first token in which a prompt waits for others, and that of one outside a burst [s].
    stall : Number
        Time by which others delay a token [s].
    life : Number
        Time that a request spends in service in the long run, beyond a burst at the start [s].
    occupancy : Number
        Time that one prefill takes from decoding; 0 where both share every beat [s].
    entry : Number
        Time by which one more prompt token delays the first output token [s].
    running, output : Number
        Of the load [1].
    shared : SharedPrefill or None
        How prompts share a step, where prefill does not ride along with decoding.
    """

    prefill: Step
    decoding: Decoding
    front: Any
    wait: Any
    median_wait: Any
    stall: Any
    life: Any
    occupancy: Any
    entry: Any
    running: Any
    output: Any
    shared: SharedPrefill | None = None

    @property
    def tpot(self) -> Any:
        """Time between tokens [s]."""
        return self.decoding.step.time + self.stall

    @property
    def ttft(self) -> Any:
        """Time to first token of a request in service [s]."""
        return self.front + self.prefill.time + self.wait

    @property
    def rate(self) -> Any:
        """Requests that the replica finishes in the long run [1/s]."""
        return self.running / self.life

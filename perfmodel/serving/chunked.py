"""The closed loop of a GPU engine that cuts prefill to a token budget a step.

Prefill goes first and alone, as SGLang runs it unless told to mix: while prompts wait, nobody decodes.  The budget says
how many prompts share a step and into how many steps a long one is cut; a small one reads the weights more often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from perfmodel.equations import serving
from perfmodel.machines import kernels
from perfmodel.machines.operators import Pass
from perfmodel.numerics import ceil_div, maximum, minimum
from perfmodel.specs.types import KernelsEfficiency, Scenario
from perfmodel.trace import scope


@dataclass(frozen=True)
class ChunkedLoop:
    """The closed loop of one replica: times to first token and between tokens, life of a request [s], rate [1/s].

    ``occupancy`` is the time of one prefill, ``plain`` that of a decode step, ``entry`` the time by which one more
    prompt token delays the first output token [s].
    """

    ttft: Any
    tpot: Any
    life: Any
    rate: Any
    occupancy: Any
    plain: Any
    entry: Any


def chunked_loop(
    scenario: Scenario,
    *,
    running: Any,
    prompt: Any,
    output: Any,
    budget: Any,
    lock_step: bool = False,
    bias: Any = 1.0,
) -> ChunkedLoop:
    """Return the closed loop of one replica of a GPU engine.

    Parameters
    ----------
    scenario : Scenario
    running : Number
        Requests in service [1].
    prompt, output : Number
        Mean tokens of a request [1].
    budget : Number
        Prompt tokens that a step takes [1].
    lock_step : bool
        Whether all requests start together, as those of equal length do that were sent at once.
    bias : Number
        Factor by which a request in flight is longer than the mean of all requests [1].

    Returns
    -------
    ChunkedLoop
    """
    efficiency = cast(KernelsEfficiency, scenario.system.efficiency)
    steps = maximum(0.0, output - 1)
    with scope("flow"):
        context = serving.mean_decode_context(prompt=bias * prompt, output=bias * output)
        per_step = serving.prompts_per_step(budget=budget, prompt=prompt, running=running)
        together = per_step
        if not lock_step:
            together = serving.prompts_together(running=running, output=output, per_step=per_step)
        chunks = ceil_div(prompt, minimum(prompt, budget))
        chunk = prompt / chunks
    with scope("prefill"):
        piece = kernels.step(scenario, (Pass(together, chunk, bias * (prompt - chunk) / 2),)).time
    with scope("decode"):
        plain = kernels.step(scenario, (Pass(running, 1.0, context, decoding=True),)).time
    occupancy = chunks * piece / together
    entry = piece / chunk
    if lock_step:
        queued = serving.burst_wait(running=running, per_step=together, occupancy=occupancy)
        ttft = efficiency.request_time + queued
        # Prefill first: nobody decodes before the last prompt is in.
        life = efficiency.request_time + running * occupancy + steps * plain
        tpot = plain + (running * occupancy - queued) / maximum(1.0, steps)
        return ChunkedLoop(ttft, tpot, life, running / life, occupancy, plain, entry)
    met = serving.interference_per_token(running=running, occupancy=occupancy, output=output)
    tpot = plain + met
    waiting = serving.join_wait(running=running, step=tpot) + serving.shared_step(running=running, step=plain) + met
    ttft = efficiency.request_time + chunks * piece + waiting
    life = ttft + steps * tpot
    return ChunkedLoop(ttft, tpot, life, running / life, occupancy, plain, entry)

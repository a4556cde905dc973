"""The steady state of a closed loop: a fixed number of requests, each replaced by a new one when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.equations import memory, serving
from perfmodel.machines import speculation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.machines.closed_loop import Decoding, Load, SharedPrefill
from perfmodel.machines.step import CAUSES, Step
from perfmodel.numerics import NAN, maximum
from perfmodel.serving.fit import Fit, fit
from perfmodel.specs.types import Scenario
from perfmodel.trace import scope


@dataclass(frozen=True)
class Steady:
    """What a deployment does for a traffic in the long run.

    Attributes
    ----------
    ttft, tpot, latency : Any
        Time to first token, time per output token after it, time of a request [s]; not yet masked by what fits.
    rate : Any
        Requests finished in the long run, beyond a burst at the start [1/s].
    chips : Any
        Chips used.
    fit : Fit
        Memory, and the cap on concurrency.
    running : Any
        Requests in service in one replica.
    prefill, decode : Step
        One prefill, and what one token of every running request takes.
    decoding : Decoding
        How the tokens come about.
    shared : SharedPrefill or None
        How prompts share a step.
    occupancy : Any
        Time that one prefill takes from decoding; 0 in a pipeline, where both share every beat [s].
    ttft_median : Any
        Time to first token of a request that is not in a burst [s].
    front : Any
        Time that the front end takes for a request [s].
    prompt, output : Any
        Mean lengths [1].
    waits : mapping
        Seconds that a ``prefill`` waits (part of TTFT) and a ``decode`` step (part of TPOT).
    """

    ttft: Any
    tpot: Any
    latency: Any
    rate: Any
    chips: Any
    fit: Fit
    running: Any
    prefill: Step
    decode: Step
    occupancy: Any
    waits: Mapping[str, Any]
    ttft_median: Any
    front: Any
    prompt: Any
    output: Any
    decoding: Decoding
    shared: SharedPrefill | None = None


def chips(scenario: Scenario) -> Any:
    """Chips that a deployment uses.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Chips [1].
    """
    plan = scenario.deployment
    if scenario.speculation is not None:
        return (plan.tp * plan.pp + speculation.extra_chips(scenario)) * plan.groups
    return plan.tp * plan.pp * plan.groups


def peak_rate(scenario: Scenario) -> Any:
    """Dense rate at which the weights' precision computes [FLOP/s]; MFU refers to it.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Rate [FLOP/s].
    """
    system = scenario.system
    return system.rates[system.computes_as[scenario.deployment.precision]]


def steady_state(scenario: Scenario) -> Steady:
    """Return the steady state of a closed loop.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Steady

    Notes
    -----
    How decoding and prefill share a replica is the machine's law.  Requests that the KV cache cannot hold wait for
    admission, and that wait is part of TTFT.  What a prefix cache holds of a prompt is not prefilled, but attended to
    and held.
    """
    if scenario.model.task == "pool":
        return _one_pass(scenario)
    traffic, plan = scenario.traffic, scenario.deployment
    memory_fit = fit(scenario)
    with scope("load"):
        prompt = serving.mean_length(nominal=traffic.prompt, jitter=traffic.length_jitter)
        output = maximum(1.0, serving.mean_length(nominal=traffic.output, jitter=traffic.length_jitter))
        offered = maximum(1.0, traffic.concurrency / plan.groups)
        running = maximum(1.0, memory.running_requests(offered=offered, cap=memory_fit.cap))
        cached = prompt - serving.computed_prompt(prompt=prompt, hits=traffic.prefix_hits)
    loop = machine_of(scenario.system).closed_loop(
        scenario,
        Load(
            running,
            prompt,
            output,
            traffic.rounds,
            traffic.length_jitter,
            lock_step=traffic.prefill_first,
            held=traffic.held_steps,
            cached=cached,
        ),
    )
    with scope("steady"):
        admission = serving.admission_wait(offered=offered, running=running, service=loop.life)
        ttft, tpot = loop.ttft + admission, loop.tpot
        latency = serving.request_latency(ttft=ttft, tpot=tpot, output=output)
        rate = serving.requests_per_second(concurrency=traffic.concurrency, latency=loop.life + admission)
        used = chips(scenario)
    return Steady(
        ttft=ttft,
        ttft_median=loop.front + loop.prefill.time + loop.median_wait + admission,
        tpot=tpot,
        latency=latency,
        rate=rate,
        chips=used,
        fit=memory_fit,
        running=running,
        prefill=loop.prefill,
        decode=loop.decoding.step,
        occupancy=loop.occupancy,
        waits={"prefill": loop.wait + admission, "decode": loop.stall},
        front=loop.front,
        prompt=prompt,
        output=output,
        decoding=loop.decoding,
        shared=loop.shared,
    )


def _one_pass(scenario: Scenario) -> Steady:
    """Return the steady state of a model that makes one pass over its input: groups of prompts, and no decoding."""
    traffic, machine = scenario.traffic, machine_of(scenario.system)
    front = machine.front_end(scenario.system)
    memory_fit = fit(scenario)
    with scope("load"):
        prompt = serving.mean_length(nominal=traffic.prompt, jitter=traffic.length_jitter)
        offered = maximum(1.0, traffic.concurrency / scenario.deployment.groups)
        running = maximum(1.0, memory.running_requests(offered=offered, cap=memory_fit.cap))
        group = serving.prompts_per_step(budget=PREFILL_BUDGET, prompt=prompt, running=running)
    first, occupancy = machine.prefill(scenario, 1.0, 0.0, prompt, group)
    with scope("steady"):
        # What is offered beyond one group waits for the groups before it.
        service = maximum(first.time, offered * occupancy)
        latency = front.request + service
        rate = serving.requests_per_second(concurrency=traffic.concurrency, latency=latency)
        used = chips(scenario)
    return Steady(
        ttft=latency,
        ttft_median=latency,
        tpot=NAN,
        latency=latency,
        rate=rate,
        chips=used,
        fit=memory_fit,
        running=running,
        prefill=first,
        decode=first,
        occupancy=occupancy,
        waits={"prefill": service - first.time, "decode": NAN},
        front=front.request,
        prompt=prompt,
        # One vector or score a request: what decoding would take is counted for the tokens after it.
        output=1.0,
        decoding=Decoding(first),
    )


def flops_utilisation(scenario: Scenario, steady: Steady) -> Any:
    """MFU over the steady state and all chips used.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady

    Returns
    -------
    Number
        Share [1].
    """
    work = (
        steady.prefill.flops / steady.prefill.sequences
        + (steady.output - 1) * steady.decode.flops / steady.decode.sequences
    )
    return serving.utilisation(rate=steady.rate, work=work, chips=steady.chips, peak=peak_rate(scenario))


def bandwidth_utilisation(scenario: Scenario, steady: Steady) -> Any:
    """MBU over the steady state and all chips used.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady

    Returns
    -------
    Number
        Share [1].
    """
    prefill, decode, shared = steady.prefill, steady.decode, steady.shared
    of_prompt = prefill.bytes_moved / prefill.sequences
    if shared is not None:
        of_prompt = serving.prompt_traffic(
            alone=of_prompt,
            shared=shared.step.bytes_moved / shared.step.sequences,
            group=shared.group,
            coscheduled=shared.coscheduled,
        )
    work = of_prompt + (steady.output - 1) * decode.bytes_moved / decode.sequences
    peak = machine_of(scenario.system).weights_memory(scenario.system).bandwidth
    return serving.utilisation(rate=steady.rate, work=work, chips=steady.chips, peak=peak)


def breakdown(steady: Steady) -> dict[str, dict[str, Any]]:
    """Return seconds by cause of ``prefill``, adding up to TTFT, and of ``decode``, adding up to TPOT.

    Parameters
    ----------
    steady : Steady

    Returns
    -------
    dict of str to dict of str to Number
        Times [s].
    """
    parts = {}
    for phase, step in (("prefill", steady.prefill), ("decode", steady.decode)):
        with scope(f"{phase}_causes"):
            parts[phase] = {cause: steady.waits[phase] if cause == "wait" else getattr(step, cause) for cause in CAUSES}
    if steady.tpot is NAN:
        parts["decode"] = dict.fromkeys(CAUSES, NAN)
    parts["prefill"]["host"] = parts["prefill"]["host"] + steady.front
    return parts

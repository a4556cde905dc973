"""The steady state of a closed loop: a fixed number of requests, each replaced by a new one when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from perfmodel.equations import memory, serving
from perfmodel.machines import dataflow, kernels, sram_pipeline
from perfmodel.machines.operators import CAUSES, Step
from perfmodel.numerics import maximum
from perfmodel.serving import speculation
from perfmodel.serving.fit import Fit, fit, model_memory
from perfmodel.serving.pipeline import closed_loop
from perfmodel.specs.types import KernelsEfficiency, Scenario
from perfmodel.trace import scope

MACHINES: dict[str, ModuleType] = {
    "kernels": kernels,
    "dataflow": dataflow,
    "sram_pipeline": sram_pipeline,
}


@dataclass(frozen=True)
class Steady:
    """What a deployment does for a traffic in the long run.

    Attributes
    ----------
    ttft, tpot, latency : Any
        Time to first token, time per output token after it, time of a request [s]; not yet masked by what fits.
    rate : Any
        Requests finished [1/s].
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
    decoding: speculation.Decoding


#: Prompt tokens that an engine takes into one step by default: vLLM's and TensorRT-LLM's 8,192.
PREFILL_BUDGET = 8192.0
#: Share of a streaming backlog that shows before the first token; the rest spreads over the later ones.
STREAM_DELAYED = 0.3


@dataclass(frozen=True)
class FrontEnd:
    """What an engine's front end takes for a request and for a token that it sends [s], and how prompts flock."""

    request: Any = 0.0
    stream: Any = 0.0
    group: Any = 1.0


def front_end(scenario: Scenario) -> FrontEnd:
    """Return the front end of the engine; machines without measurements of one have none.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    FrontEnd
    """
    efficiency = scenario.system.efficiency
    if isinstance(efficiency, KernelsEfficiency):
        return FrontEnd(efficiency.request_time, efficiency.stream_time, efficiency.prefill_group)
    return FrontEnd()


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
        return (plan.tp * plan.pp + speculation.extra_chips(scenario)) * plan.dp
    return plan.tp * plan.pp * plan.dp


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
    In one life of a request every other running request is prefilled once, so that each of its tokens waits for
    (running - 1) / output prefills on average.  Requests that the KV cache cannot hold wait for admission, and
    that wait is part of TTFT.
    """
    if scenario.system.kind == "sram_pipeline" and scenario.speculation is None:
        return _pipelined(scenario)
    machine = MACHINES[scenario.system.kind]
    traffic, plan, front = scenario.traffic, scenario.deployment, front_end(scenario)
    memory_fit = fit(scenario)
    with scope("load"):
        prompt = serving.mean_length(nominal=traffic.prompt, jitter=traffic.length_jitter)
        output = maximum(1.0, serving.mean_length(nominal=traffic.output, jitter=traffic.length_jitter))
        offered = maximum(1.0, traffic.concurrency / plan.dp)
        running = maximum(1.0, memory.running_requests(offered=offered, cap=memory_fit.cap))
        context = serving.mean_decode_context(prompt=prompt, output=output)
    decoding = speculation.decode(machine, scenario, running, context)
    step, length = decoding.step, decoding.length
    with scope("load"):
        per_step = serving.prompts_per_step(budget=PREFILL_BUDGET, prompt=prompt, running=running)
        together = serving.prompts_together(running=running, output=output, per_step=per_step)
    first, occupancy = speculation.prefill(machine, scenario, running, context, prompt, together)
    with scope("steady"):
        # In lock-step every round is a burst; else only the first one is.
        lock_step = traffic.prefill_first
        burst_share: Any = 1.0 if lock_step else 1 / traffic.rounds
        burst = serving.burst_wait(running=running, per_step=per_step, occupancy=occupancy)
        met = serving.interference_per_token(running=running, occupancy=occupancy, output=output)
        # What a burst prefills before the first token does not delay the later ones.
        interference = met * (1 - burst_share / 2)
        on_chip = step.time + interference
        backlog = serving.stream_backlog(running=running, per_token=front.stream, step=on_chip)
        tpot = on_chip + (1 - STREAM_DELAYED) * backlog
        group = serving.prefill_group(
            group=front.group, running=running, jitter=traffic.length_jitter, rounds=traffic.rounds
        )
        # A request joins between steps, each of which brings ``length`` tokens.
        join = serving.join_wait(running=running, step=length * on_chip)
        ride = serving.shared_step(running=running, step=length * step.time)
        calm = join + ride + met + (group - 1) * occupancy
        started = maximum(0.0, burst - occupancy)
        wait = (1 - burst_share) * calm + burst_share * started + STREAM_DELAYED * output * backlog
        service = front.request + first.time + wait + (output - 1) * tpot
        admission = serving.admission_wait(offered=offered, running=running, service=service)
        ttft = front.request + first.time + wait + admission
        median = front.request + first.time + calm + STREAM_DELAYED * output * backlog + admission
        if lock_step:
            median = ttft
        latency = serving.request_latency(ttft=ttft, tpot=tpot, output=output)
        rate = serving.requests_per_second(concurrency=traffic.concurrency, latency=latency)
        used = chips(scenario)
    return Steady(
        ttft=ttft,
        ttft_median=median,
        tpot=tpot,
        latency=latency,
        rate=rate,
        chips=used,
        fit=memory_fit,
        running=running,
        prefill=first,
        decode=step,
        occupancy=occupancy,
        waits={"prefill": wait + admission, "decode": tpot - step.time},
        front=front.request,
        prompt=prompt,
        output=output,
        decoding=decoding,
    )


def _pipelined(scenario: Scenario) -> Steady:
    """Return the steady state of a pipeline, where decoding and prefill share every beat."""
    traffic = scenario.traffic
    memory_fit = fit(scenario)
    with scope("load"):
        prompt = serving.mean_length(nominal=traffic.prompt, jitter=traffic.length_jitter)
        output = maximum(1.0, serving.mean_length(nominal=traffic.output, jitter=traffic.length_jitter))
        offered = maximum(1.0, traffic.concurrency / scenario.deployment.dp)
        running = maximum(1.0, memory.running_requests(offered=offered, cap=memory_fit.cap))
    burst_share: Any = 1.0 if traffic.prefill_first else 1 / traffic.rounds
    loop = closed_loop(scenario, running=running, prompt=prompt, output=output, burst_share=burst_share)
    with scope("steady"):
        admission = serving.admission_wait(offered=offered, running=running, service=loop.life)
        wait = loop.wait + admission
        ttft = loop.prefill.time + wait
        tpot = loop.decode.time + loop.stall
        latency = serving.request_latency(ttft=ttft, tpot=tpot, output=output)
        rate = serving.requests_per_second(concurrency=traffic.concurrency, latency=latency)
        used = chips(scenario)
    return Steady(
        ttft=ttft,
        ttft_median=ttft,
        tpot=tpot,
        latency=latency,
        rate=rate,
        chips=used,
        fit=memory_fit,
        running=running,
        prefill=loop.prefill,
        decode=loop.decode,
        occupancy=0.0,
        waits={"prefill": wait, "decode": loop.stall},
        front=0.0,
        prompt=prompt,
        output=output,
        decoding=speculation.Decoding(loop.decode),
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
    decode = steady.decode
    work = (
        steady.prefill.bytes_moved / steady.prefill.sequences
        + (steady.output - 1) * decode.bytes_moved / decode.sequences
    )
    peak = model_memory(scenario).bandwidth
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
    found = {}
    for phase, step in (("prefill", steady.prefill), ("decode", steady.decode)):
        with scope(f"{phase}_causes"):
            found[phase] = {cause: steady.waits[phase] if cause == "wait" else getattr(step, cause) for cause in CAUSES}
    found["prefill"]["host"] = found["prefill"]["host"] + steady.front
    return found

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
from perfmodel.serving.fit import Fit, fit, model_memory
from perfmodel.specs.types import Scenario
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
        One prefill and one step between tokens.
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
    waits: Mapping[str, Any]


def chips(scenario: Scenario) -> Any:
    """Chips that a deployment uses."""
    plan = scenario.deployment
    return plan.tp * plan.pp * plan.dp


def peak_rate(scenario: Scenario) -> Any:
    """Dense rate at which the weights' precision computes [FLOP/s]; MFU refers to it."""
    system = scenario.system
    return system.rates[system.computes_as[scenario.deployment.precision]]


def steady_state(scenario: Scenario) -> Steady:
    """Return the steady state of a closed loop.

    Notes
    -----
    In one life of a request every other running request is prefilled once, so that each of its tokens waits for
    (running - 1) / output prefills on average.  Requests that the KV cache cannot hold wait for admission, and
    that wait is part of TTFT.
    """
    machine = MACHINES[scenario.system.kind]
    traffic, plan = scenario.traffic, scenario.deployment
    memory_fit = fit(scenario)
    with scope("load"):
        offered = maximum(1.0, traffic.concurrency / plan.dp)
        running = maximum(1.0, memory.running_requests(offered=offered, cap=memory_fit.cap))
        context = serving.mean_decode_context(prompt=traffic.prompt, output=traffic.output)
    step = machine.decode(scenario, running, context)
    first, occupancy = machine.prefill(scenario, running, context, traffic.prompt)
    with scope("steady"):
        interference = serving.interference_per_token(running=running, occupancy=occupancy, output=traffic.output)
        tpot = step.time + interference
        join = serving.join_wait(running=running, step=step.time)
        service = first.time + join + interference + (traffic.output - 1) * tpot
        admission = serving.admission_wait(offered=offered, running=running, service=service)
        wait = join + interference + admission
        ttft = first.time + wait
        latency = serving.request_latency(ttft=ttft, tpot=tpot, output=traffic.output)
        rate = serving.requests_per_second(concurrency=traffic.concurrency, latency=latency)
        used = chips(scenario)
    return Steady(
        ttft=ttft,
        tpot=tpot,
        latency=latency,
        rate=rate,
        chips=used,
        fit=memory_fit,
        running=running,
        prefill=first,
        decode=step,
        waits={"prefill": wait, "decode": interference},
    )


def flops_utilisation(scenario: Scenario, steady: Steady) -> Any:
    """MFU over the steady state and all chips used."""
    work = steady.prefill.flops + (scenario.traffic.output - 1) * steady.decode.flops / steady.decode.sequences
    return serving.utilisation(rate=steady.rate, work=work, chips=steady.chips, peak=peak_rate(scenario))


def bandwidth_utilisation(scenario: Scenario, steady: Steady) -> Any:
    """MBU over the steady state and all chips used."""
    decode = steady.decode
    work = steady.prefill.bytes_moved + (scenario.traffic.output - 1) * decode.bytes_moved / decode.sequences
    peak = model_memory(scenario).bandwidth
    return serving.utilisation(rate=steady.rate, work=work, chips=steady.chips, peak=peak)


def breakdown(steady: Steady) -> dict[str, dict[str, Any]]:
    """Return seconds by cause of ``prefill``, adding up to TTFT, and of ``decode``, adding up to TPOT."""
    found = {}
    for phase, step in (("prefill", steady.prefill), ("decode", steady.decode)):
        with scope(f"{phase}_causes"):
            found[phase] = {cause: steady.waits[phase] if cause == "wait" else getattr(step, cause) for cause in CAUSES}
    return found

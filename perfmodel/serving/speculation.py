"""Speculative decoding as part of a prediction: a step drafts k tokens, and one pass of the target verifies them.

The draft runs on the same chips under the same plan, except on SRAM pipelines, where it takes stages of its own.  All
times are those of the machine: k decode steps of the draft, then one decode step of the target with k + 1 tokens a
sequence, so that verification costs what it costs where arithmetic and not memory limits it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from perfmodel.equations import pipeline, speculative
from perfmodel.machines import sram_pipeline
from perfmodel.machines.operators import Step, layer_count
from perfmodel.numerics import ceil_div, minimum
from perfmodel.specs.types import UNPUBLISHED, DataflowEfficiency, Scenario, Speculation
from perfmodel.trace import scope

#: Calls of the host in a verification on a dataflow machine.  Left free, Table 4's row for 70B-1B gives 1.99 of them.
HOST_CALLS = 2.0


def tokens_per_step(speculation: Speculation) -> Any:
    """Return the tokens that a step brings on average, the target's own one included.

    Parameters
    ----------
    speculation : Speculation

    Returns
    -------
    Number
        Tokens [1].
    """
    if speculation.ar is not None:
        return speculative.length_of_ratio(ratio=speculation.ar, drafted=speculation.k)
    if speculation.alpha is not None:
        return speculative.accepted_length(acceptance=speculation.alpha, drafted=speculation.k)
    length: Any = 1.0
    reached: Any = 1.0
    last: Any = 0.0
    for position, last in enumerate(speculation.accept.values(), 1):
        reached = speculative.reached(before=reached, acceptance=last)
        length = length + speculative.counted(reached=reached, position=float(position), drafted=speculation.k)
    return length + speculative.length_beyond(
        reached=reached, acceptance=last, positions=float(len(speculation.accept)), drafted=speculation.k
    )


def draft_scenario(scenario: Scenario) -> Scenario | None:
    """Return the draft as a scenario of its own, or None where nothing drafts or drafting costs nothing.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario or None
    """
    speculation, plan, system = scenario.speculation, scenario.deployment, scenario.system
    if speculation is None or speculation.model is None:
        return None
    tp, pp = plan.tp, plan.pp
    if system.kind == "kernels":
        tp = minimum(plan.tp, speculation.max_tp)
    if system.engine is not None:
        # Weights, peak and pool that an engine logged are those of the target.
        own = replace(system.engine, weights=UNPUBLISHED, activation_peak=UNPUBLISHED, kv_pool=UNPUBLISHED)
        system = replace(system, engine=own)
    efficiency = system.efficiency
    if isinstance(efficiency, DataflowEfficiency):
        # The host is needed after every k tokens, when the target has its turn.
        efficiency = replace(efficiency, offloaded_tokens=minimum(efficiency.offloaded_tokens, speculation.k))
        system = replace(system, efficiency=efficiency)
    draft = replace(
        scenario,
        system=system,
        model=speculation.model,
        deployment=replace(plan, tp=tp, pp=pp, precision=speculation.precision),
        speculation=None,
    )
    if system.kind == "sram_pipeline":
        # As many layers a stage as the target has.
        held = pipeline.layers_per_stage(
            layers=layer_count(scenario.model), stages=plan.pp - sram_pipeline.end_stages(scenario)
        )
        pp = sram_pipeline.end_stages(draft) + ceil_div(layer_count(draft.model), held)
        draft = replace(draft, deployment=replace(draft.deployment, pp=pp))
    return draft


def verifying(efficiency: DataflowEfficiency) -> DataflowEfficiency:
    """Return how a dataflow machine verifies: the host starts every pass, and is called again to accept and reject.

    Parameters
    ----------
    efficiency : DataflowEfficiency

    Returns
    -------
    DataflowEfficiency
    """
    return replace(efficiency, host_time=HOST_CALLS * efficiency.host_time, schedule_offloading=False)


def target_scenario(scenario: Scenario) -> Scenario:
    """Return the target as it verifies.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario
    """
    efficiency = scenario.system.efficiency
    if isinstance(efficiency, DataflowEfficiency):
        efficiency = verifying(efficiency)
    return replace(scenario, system=replace(scenario.system, efficiency=efficiency), speculation=None)


def plain_scenario(scenario: Scenario) -> Scenario:
    """Return the target without a draft, for a speed-up: a dataflow machine's host is then asked for each token.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario
    """
    efficiency = scenario.system.efficiency
    if isinstance(efficiency, DataflowEfficiency):
        # Its schedules are offloaded for drafts only.
        efficiency = replace(efficiency, schedule_offloading=False)
    return replace(scenario, system=replace(scenario.system, efficiency=efficiency), speculation=None)


def extra_chips(scenario: Scenario) -> Any:
    """Return the chips of a replica that only the draft uses: stages of its own on an SRAM pipeline.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Chips [1].
    """
    draft = draft_scenario(scenario)
    if draft is None or scenario.system.kind != "sram_pipeline":
        return 0.0
    assert scenario.speculation is not None
    stages = draft.deployment.pp
    if scenario.speculation.shares_ends:
        stages = stages - sram_pipeline.end_stages(draft)
    return draft.deployment.tp * stages


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


def decode(machine: ModuleType, scenario: Scenario, running: Any, context: Any) -> Decoding:
    """Return how a replica decodes, with or without speculation.

    Parameters
    ----------
    machine : module
        Of :mod:`perfmodel.machines`, the one of the system's kind.
    scenario : Scenario
    running : Number
        Sequences that the replica runs [1].
    context : Number
        Mean tokens in the cache of a sequence [1].

    Returns
    -------
    Decoding
    """
    speculation, draft = scenario.speculation, draft_scenario(scenario)
    if speculation is None:
        return Decoding(machine.decode(scenario, running, context))
    drafting = None
    if draft is not None:
        with scope("draft"):
            drafting = machine.decode(draft, running, context)
    with scope("verify"):
        verifying = machine.decode(target_scenario(scenario), running, context, speculation.k + 1)
    with scope("speculation"):
        length = tokens_per_step(speculation)
        share = speculative.runs_per_token(runs=1.0, length=length)
        step = verifying.times(share)
        step = replace(step, host=step.host + share * speculation.host_time)
        if drafting is not None:
            step = step.after(drafting.times(speculative.runs_per_token(runs=speculation.k, length=length)))
    return Decoding(step, length, drafting, verifying)


def prefill(
    machine: ModuleType, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any
) -> tuple[Step, Any]:
    """Return the prefill of a group of prompts by target and draft, and the time that each takes from decoding.

    Parameters
    ----------
    machine : module
        Of :mod:`perfmodel.machines`, the one of the system's kind.
    scenario : Scenario
    running : Number
        Sequences that the replica runs [1].
    context : Number
        Mean tokens in the cache of a sequence [1].
    prompt : Number
        Tokens of each prompt [1].
    group : Number
        Prompts that are taken in at once [1].

    Returns
    -------
    tuple of Step and Number
        The step, and the time that one prompt takes from decoding [s].
    """
    first, occupancy = machine.prefill(scenario, running, context, prompt, group)
    draft = draft_scenario(scenario)
    if draft is None:
        return first, occupancy
    with scope("draft"):
        own, taken = machine.prefill(draft, running, context, prompt, group)
    return first.after(own), occupancy + taken

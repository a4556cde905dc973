"""Speculative decoding as part of a prediction: a step drafts k tokens, and one pass of the target verifies them.

The draft runs on the same chips under the same plan, except where the machine gives it stages of its own.  All
times are those of the machine: k decode steps of the draft, then one decode step of the target with k + 1 tokens a
sequence, so that verification costs what it costs where arithmetic and not memory limits it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.equations import speculative
from perfmodel.machines.base import Machine, machine_of
from perfmodel.machines.closed_loop import Decoding
from perfmodel.machines.step import Step
from perfmodel.specs.types import UNPUBLISHED, Scenario, Speculation
from perfmodel.trace import scope


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
    if system.engine is not None:
        # Weights, peak and pool that an engine logged are those of the target.
        own = replace(system.engine, weights=UNPUBLISHED, activation_peak=UNPUBLISHED, kv_pool=UNPUBLISHED)
        system = replace(system, engine=own)
    draft = replace(
        scenario,
        system=system,
        model=speculation.model,
        deployment=replace(plan, precision=speculation.precision),
        speculation=None,
    )
    return machine_of(system).drafting(scenario, draft)


def target_scenario(scenario: Scenario) -> Scenario:
    """Return the target as it verifies.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Scenario
    """
    return replace(scenario, system=machine_of(scenario.system).verifying(scenario.system), speculation=None)


def extra_chips(scenario: Scenario) -> Any:
    """Return the chips of a replica that only the draft uses, where it has stages of its own.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    Number
        Chips [1].
    """
    machine, draft = machine_of(scenario.system), draft_scenario(scenario)
    if draft is None or not machine.drafts_apart:
        return 0.0
    assert scenario.speculation is not None
    stages = draft.deployment.pp
    if scenario.speculation.shares_ends:
        stages = stages - machine.end_stages(draft)
    return draft.deployment.tp * stages


def decode(machine: Machine, scenario: Scenario, running: Any, context: Any) -> Decoding:
    """Return how a replica decodes, with or without speculation.

    Parameters
    ----------
    machine : Machine
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
        return stepped(speculation, verifying, drafting)


def stepped(speculation: Speculation, verify: Step, draft: Step | None) -> Decoding:
    """Return what a token takes of steps of speculation.

    Parameters
    ----------
    speculation : Speculation
    verify : Step
        The target's pass over k + 1 tokens.
    draft : Step or None
        One step of the draft, where it costs anything.

    Returns
    -------
    Decoding
    """
    length = tokens_per_step(speculation)
    share = speculative.runs_per_token(runs=1.0, length=length)
    step = verify.times(share)
    step = replace(step, host=step.host + share * speculation.host_time)
    if draft is not None:
        step = step.after(draft.of("draft").times(speculative.runs_per_token(runs=speculation.k, length=length)))
    return Decoding(step, length, draft, verify)


def to_end(decoding: Decoding, output: Any) -> tuple[Decoding, Any]:
    """Return decoding over a whole output, whose last step may bring more than is wanted, and tokens of a step.

    Parameters
    ----------
    decoding : Decoding
    output : Number
        Output tokens of a request [1].

    Returns
    -------
    tuple of Decoding and Number
        Tokens a step [1].
    """
    if decoding.verify is None:
        return decoding, decoding.length
    brought = speculative.tokens_to_end(length=decoding.length, output=output)
    return replace(decoding, step=decoding.step.times(decoding.length / brought)), brought


def prefill(
    machine: Machine, scenario: Scenario, running: Any, context: Any, prompt: Any, group: Any, before: Any = 0.0
) -> tuple[Step, Any]:
    """Return the prefill of a group of prompts by target and draft, and the time that each takes from decoding.

    Parameters
    ----------
    machine : Machine
    scenario : Scenario
    running : Number
        Sequences that the replica runs [1].
    context : Number
        Mean tokens in the cache of a sequence [1].
    prompt : Number
        Tokens of each prompt that are computed [1].
    group : Number
        Prompts that are taken in at once [1].
    before : Number
        Tokens of each prompt that are in the cache already [1].

    Returns
    -------
    tuple of Step and Number
        The step, and the time that one prompt takes from decoding [s].
    """
    first, occupancy = machine.prefill(scenario, running, context, prompt, group, before)
    draft = draft_scenario(scenario)
    if draft is None:
        return first, occupancy
    with scope("draft"):
        own, taken = machine.prefill(draft, running, context, prompt, group, before)
    return first.after(own.of("draft")), occupancy + taken

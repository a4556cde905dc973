"""What a prediction warns of: what does not fit, what is read beside its measurements."""

from __future__ import annotations

from typing import Any

from perfmodel.equations import memory
from perfmodel.machines.base import machine_of
from perfmodel.prediction.answer import Prediction
from perfmodel.serving.fit import fit
from perfmodel.specs.types import Model, Scenario


def _gigabytes(value: Any) -> str:
    return f"{float(value) / 1e9:.3g} GB"


def misfit(scenario: Scenario, answer: Prediction) -> str:
    """Return why a scenario does not fit, with what it needs and what there is.

    Parameters
    ----------
    scenario : Scenario
    answer : Prediction

    Returns
    -------
    str
    """
    plan, uses = scenario.deployment, answer.memory
    where = f"{scenario.system.name} at TP {plan.tp:g}, PP {plan.pp:g}"
    if float(uses["kv_room"]) < 0:
        budget = float(uses["capacity"]) - float(uses["reserved"])
        if (own := fit(scenario).weights_capacity) is not None:
            budget = float(own)
        return (
            f"{scenario.model.name} in {plan.precision} does not fit {where}: {_gigabytes(uses['weights'])} of weights "
            f"a chip, {_gigabytes(budget)} usable; more chips or a smaller precision would do"
        )
    return (
        f"no request of {scenario.traffic.prompt + scenario.traffic.output:g} tokens fits {where}: "
        f"{_gigabytes(uses['kv_room'])} of cache a chip, one request needs {_gigabytes(uses['kv_cache'])}"
    )


def warnings_of(scenario: Scenario, answer: Prediction, plain: Prediction) -> list[str]:
    """Return what to mind about an answer.

    Parameters
    ----------
    scenario : Scenario
    answer, plain : Prediction

    Returns
    -------
    list of str
    """
    mind = []
    system, plan = scenario.system, scenario.deployment
    if float(scenario.traffic.prompt + scenario.traffic.output) > float(scenario.model.max_context):
        mind.append(f"longer than the {scenario.model.max_context:g} tokens that {scenario.model.name} was made for")
    if not answer.fits:
        return mind
    machine = machine_of(system)
    if outside := machine.outside(scenario):
        mind.append(f"outside the calibrated range, so the band is wider: {', '.join(outside)}")
    if float(answer.max_concurrency) < float(scenario.traffic.concurrency):
        mind.append(
            f"only {float(answer.max_concurrency):g} of {scenario.traffic.concurrency:g} requests fit the KV cache at "
            "full length: the others wait, and that wait is in TTFT"
        )
    phase = "prefill" if scenario.model.task == "pool" else "decode"
    mind += machine.warnings(scenario, answer.breakdown[phase], plain.breakdown[phase])
    if scenario.speculation is not None:
        mind += _draft_warnings(scenario, answer)
    waste = [
        f"{name} {lost:.0%}"
        for name, dimension in _sharded(scenario.model)
        if not machine.shards_by_head
        and (lost := float(memory.tile_waste(dimension=dimension, shards=plan.tp, tile=system.tile))) > 0.05
    ]
    if waste:
        mind.append(f"sharding over {plan.tp:g} chips leaves tiles partly empty (not in the times): {', '.join(waste)}")
    return mind


def _draft_warnings(scenario: Scenario, answer: Prediction) -> list[str]:
    speculation = scenario.speculation
    assert speculation is not None
    found = ["how many drafted tokens are accepted is taken as given: the band does not hold what it leaves open"]
    if float(answer.speculation.get("speedup", 1.0)) < 1:
        found.append("slower than without a draft")
    return found + machine_of(scenario.system).draft_warnings()


def _sharded(model: Model) -> list[tuple[str, Any]]:
    """Return the dimensions that tensor parallelism splits."""
    found = [("hidden", model.hidden)]
    widths = [run.mlp.intermediate for run in model.layers if run.mlp is not None]
    widths += [run.moe.intermediate for run in model.layers if run.moe is not None]
    return found + [("feed-forward", width) for width in widths[:1]]

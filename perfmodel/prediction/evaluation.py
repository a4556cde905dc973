"""The one entry: :func:`run` turns a scenario into a prediction."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from perfmodel.entered import as_nodes
from perfmodel.equations import power, serving
from perfmodel.numerics import NAN
from perfmodel.prediction.answer import METRICS, MONEY, OF_DECODING, Prediction
from perfmodel.serving.cost import cost, draw
from perfmodel.serving.steady import Steady, bandwidth_utilisation, breakdown, flops_utilisation, steady_state
from perfmodel.specs.types import Scenario
from perfmodel.trace import Ledger, scope

#: What :func:`evaluate` works out unless told otherwise.
ALL = (*METRICS, "breakdown")


def metrics_of(scenario: Scenario, steady: Steady, wanted: Collection[str]) -> dict[str, Any]:
    """Return metrics of a steady state, those that are wanted.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady
    wanted : sequence of str

    Returns
    -------
    dict
    """
    forms: dict[str, Callable[[], Any]] = {
        "ttft_s": lambda: steady.ttft,
        "ttft_median_s": lambda: steady.ttft_median,
        "tpot_s": lambda: serving.between_tokens(output=steady.output, time=steady.tpot),
        "request_latency_s": lambda: steady.latency,
        "output_tokens_per_s": lambda: steady.rate * steady.output,
        "input_tokens_per_s": lambda: steady.rate * steady.prompt,
        "output_tokens_per_s_per_user": lambda: 1 / serving.between_tokens(output=steady.output, time=steady.tpot),
        "input_tokens_per_s_per_user": lambda: steady.prompt / steady.ttft,
        "tokens_per_s_per_chip": lambda: steady.rate * (steady.prompt + steady.output) / steady.chips,
        "mfu": lambda: flops_utilisation(scenario, steady),
        "mbu": lambda: bandwidth_utilisation(scenario, steady),
    }
    if set(wanted) & set(MONEY):
        drawn = draw(scenario, steady)
        money = None if scenario.economics is None else cost(scenario, steady, drawn)
        forms |= {
            "power_w": lambda: drawn.mean.watts,
            "joules_per_output_token": lambda: power.energy_per_token(
                power=drawn.mean.watts, per_second=steady.rate * steady.output
            ),
            "usd_per_mtok_input": lambda: money.input if money else NAN,
            "usd_per_mtok_output": lambda: money.output if money else NAN,
            "usd_per_mtok_blended": lambda: money.blended if money else NAN,
        }
    if scenario.model.task == "pool":
        forms |= dict.fromkeys(OF_DECODING, lambda: NAN)
        forms["tokens_per_s_per_chip"] = lambda: steady.rate * steady.prompt / steady.chips
        forms["usd_per_mtok_blended"] = forms.get("usd_per_mtok_input", lambda: NAN)
    with scope("results"):
        return {
            key: serving.where_it_fits(cap=steady.fit.cap, value=form()) for key, form in forms.items() if key in wanted
        }


def answer_of(scenario: Scenario, steady: Steady, wanted: Collection[str]) -> Prediction:
    """Return the answer of a steady state, without what is said about it.

    Parameters
    ----------
    scenario : Scenario
    steady : Steady
    wanted : sequence of str

    Returns
    -------
    Prediction
    """
    memory = steady.fit
    return Prediction(
        scenario=scenario,
        metrics=metrics_of(scenario, steady, wanted),
        breakdown=breakdown(steady) if "breakdown" in wanted else {},
        memory={
            "capacity": memory.capacity,
            "weights": memory.weights,
            "kv_cache": steady.running * memory.per_request,
            "reserved": memory.reserved,
            "kv_room": memory.room,
        },
        max_concurrency=memory.cap * scenario.deployment.groups,
        fits=memory.cap >= 1 if isinstance(memory.cap, float | np.ndarray) else True,
        chips=steady.chips,
        speculation=_speculation(steady) if scenario.speculation is not None else {},
    )


def _speculation(steady: Steady) -> dict[str, Any]:
    decoding = steady.decoding
    assert decoding.verify is not None
    draft: Any = 0.0 if decoding.draft is None else decoding.draft.time
    return {"tokens_per_step": decoding.length, "draft_s": draft, "verify_s": decoding.verify.time}


def evaluate(scenario: Scenario, wanted: Collection[str] = ALL, steady: Steady | None = None) -> Prediction:
    """Return the numbers of a scenario without words: floats, arrays or traced nodes.

    Parameters
    ----------
    scenario : Scenario
    wanted : collection of str
        Metrics to work out, and ``breakdown``; on large arrays the others are not worth their time.
    steady : Steady, optional
        What the deployment does, where it is not what a closed loop makes it do.

    Returns
    -------
    Prediction
    """
    return answer_of(scenario, steady_state(scenario) if steady is None else steady, wanted)


def traced(scenario: Scenario) -> tuple[Ledger, Prediction]:
    """Evaluate a scenario with every quantity of every spec a traced node.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    ledger : Ledger
        The record: inputs with provenance, one line an equation.
    prediction : Prediction
        Its metrics are nodes.
    """
    with Ledger() as ledger:
        return ledger, evaluate(as_nodes(ledger, scenario))


def numbers(scenario: Scenario) -> tuple[Any, ...]:
    """Return every number of the answer to a scenario.

    Parameters
    ----------
    scenario : Scenario
        Floats, arrays or traced nodes.

    Returns
    -------
    tuple
        Mappings and numbers.
    """
    return _numbers(evaluate(scenario))


def _numbers(answer: Prediction) -> tuple[Any, ...]:
    return answer.metrics, answer.breakdown, answer.memory, answer.speculation, answer.max_concurrency, answer.chips


def content(answer: Prediction) -> tuple[Any, ...]:
    """Return all that an answer says beyond its question.

    Parameters
    ----------
    answer : Prediction

    Returns
    -------
    tuple
        Mappings, numbers and words.
    """
    return *_numbers(answer), answer.limited_by, answer.band, answer.warnings, answer.reason

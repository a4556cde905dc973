"""Every layout of a model on a system, worked out on means: all batch caps and token budgets in one broadcast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.equations import batching
from perfmodel.equations.serving import interference_per_token
from perfmodel.errors import UserError
from perfmodel.machines import speculation
from perfmodel.machines.alternating import PREFILL_BUDGET
from perfmodel.machines.base import machine_of
from perfmodel.planning.front import front
from perfmodel.planning.load import plan_name
from perfmodel.prediction import plan_of, run
from perfmodel.question import check_plan
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.fit import fit
from perfmodel.serving.lengths import Lengths
from perfmodel.serving.step_times import sequence_limit
from perfmodel.serving.traffic import lengths_of
from perfmodel.specs.types import Scenario

#: Batch caps tried, as shares of what fits, and token budgets of a step tried where prefill alternates with decoding.
_CAPS = np.unique(np.round(np.geomspace(1.0, 4096.0, 160)))
_BUDGETS = np.round(512.0 * 2.0 ** np.arange(0, 5.5, 0.5))


@dataclass(frozen=True)
class Rejected:
    """A plan of one replica that is no answer, and why."""

    scenario: Scenario
    reason: str
    tried: int = 1

    @property
    def system(self) -> str:
        """Name of the system."""
        return self.scenario.system.name

    @property
    def plan(self) -> str:
        """The layout in a few words."""
        return plan_name(self.scenario)

    def to_dict(self) -> shapes.Rejected:
        """Return the documented JSON object."""
        draft = self.scenario.speculation
        return {
            "system": self.system,
            "plan": plan_of(self.scenario),
            "k": None if draft is None else shapes.number(draft.k),
            "reason": self.reason,
            "candidates": self.tried,
        }


@dataclass(frozen=True)
class Means:
    """What candidates of one plan reach on means: one entry each."""

    scenario: Scenario
    cap: Any
    budget: Any
    rate: Any
    tpot: Any
    ttft: Any
    chips: float


def plans_of(scenario: Scenario) -> Iterator[Scenario]:
    """Give every layout of a model on a system that its rules allow.

    Parameters
    ----------
    scenario : Scenario
        Its own layout does not count.
    """
    system, model = scenario.system, scenario.model
    machine = machine_of(system)
    experts = machine.spreads_experts and any(run.moe is not None for run in model.layers)
    for tp, pp in machine.layouts(scenario):
        laid = replace(scenario.deployment, plan="given", tp=tp, pp=pp, ep=1.0, dp=1.0)
        for ep in [1.0, tp] if experts and tp > 1 else [1.0]:
            candidate = replace(scenario, deployment=replace(laid, ep=ep))
            try:
                check_plan(model, system, candidate.deployment)
            except UserError:
                continue
            yield candidate


def means_of(scenario: Scenario, lengths: Lengths) -> Means | Rejected:
    """Work out all batch caps and token budgets of a plan on means.

    Parameters
    ----------
    scenario : Scenario
    lengths : Lengths
    """
    longest = float((lengths.prompt + lengths.output).max())
    memory = fit(scenario, longest)
    if not float(memory.room) > 0:
        return Rejected(scenario, "the weights do not fit")
    mean_bytes = float(request_bytes(scenario, lengths.mean(lengths.prompt + lengths.output)))
    room = float(memory.room) / mean_bytes
    if not room >= 1:
        return Rejected(scenario, "no request fits beside the weights")
    most = min(room, sequence_limit(scenario))
    machine = machine_of(scenario.system)
    rides, door = machine.prefill_rides, machine.front_end(scenario.system)
    caps = np.append(_CAPS[most > _CAPS], math.floor(most))
    output, prompt = lengths.mean(lengths.output), lengths.mean(lengths.prompt)
    context = lengths.mean(lengths.output * (lengths.prompt + lengths.output / 2)) / output
    cached = float(scenario.traffic.prefix_hits)
    step = np.asarray(speculation.decode(machine, scenario, caps, context).step.time) * np.ones_like(caps)
    step = np.maximum(step, caps * float(door.stream))
    together = np.maximum(1.0, np.minimum(caps / output, PREFILL_BUDGET / prompt))
    first, occupancy = speculation.prefill(
        machine, scenario, caps if rides else 1.0, context, max(1.0, prompt * (1 - cached)), together
    )
    occupancy = np.asarray(occupancy) * np.ones_like(caps)
    latency = float(np.min(np.asarray(first.time))) + float(door.request)
    budgets = np.array([math.nan]) if rides else _BUDGETS
    rate = batching.saturated_rate(running=caps, output=output, step=step, occupancy=occupancy)[:, None]
    if not rides:
        rate = np.minimum(
            rate,
            batching.prefill_rate(
                occupancy=occupancy[:, None],
                step=step[:, None],
                prompt=prompt * (1 - cached),
                budget=budgets[None, :],
            ),
        )
    rate = rate * np.ones_like(budgets)[None, :]
    met = interference_per_token(running=caps, occupancy=occupancy, output=output, joining=0.5)
    tpot = (step + met)[:, None] * np.ones_like(budgets)[None, :]
    if np.isnan(tpot).all():
        return Rejected(scenario, run(scenario).reason)
    # A prompt longer than the budget waits for a step of decoding between its chunks.
    chunks = 0.0 if rides else np.maximum(0.0, np.ceil(prompt / budgets) - 1)
    ttft = latency + step[:, None] * (1 + chunks)
    shape = (len(caps), len(budgets))
    chips = float(scenario.deployment.tp) * float(scenario.deployment.pp) + float(speculation.extra_chips(scenario))
    grid = np.broadcast_to(caps[:, None], shape), np.broadcast_to(budgets[None, :], shape)
    return Means(
        scenario,
        grid[0].ravel(),
        grid[1].ravel(),
        rate.ravel(),
        tpot.ravel(),
        np.broadcast_to(ttft, shape).ravel(),
        chips,
    )


def floors(means: Means) -> dict[str, float]:
    """Return what no load can beat, by time: one request alone on the machine [s].

    Parameters
    ----------
    means : Means
    """
    return {"tpot": float(means.tpot.min()), "ttft": 0.0}


def landscape(base: Scenario) -> dict[str, Any]:
    """Return every plan of a system on means, as columns: what charts of the front draw.

    Parameters
    ----------
    base : Scenario
        Its own layout does not count.
    """
    lengths = lengths_of(base.traffic)
    found = [means for scenario in plans_of(base) if isinstance(means := means_of(scenario, lengths), Means)]
    names = [plan_name(means.scenario) for means in found for _ in means.cap]
    rate, tpot, ttft = (np.concatenate([getattr(means, key) for means in found]) for key in ("rate", "tpot", "ttft"))
    cost = np.concatenate([np.full(len(means.cap), means.chips) for means in found]) / rate
    on_front = np.zeros(len(cost), dtype=bool)
    on_front[front(np.stack([cost, tpot], axis=1))] = True
    return {
        "system": [base.system.name] * len(names),
        "plan": names,
        "tpot_ms": tpot * 1e3,
        "ttft_s": ttft,
        "chips_per_rate": cost,
        "front": on_front,
    }

"""Two pools: one that prefills, and one that decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel import shapes
from perfmodel.planning.limits import MOST_CHIPS
from perfmodel.planning.load import assumptions, spread
from perfmodel.planning.size import refuse_replicas
from perfmodel.prediction import plan_of
from perfmodel.question import Options, resolve, split_changes, split_system
from perfmodel.serving.disaggregation import Pools, pools
from perfmodel.serving.objectives import QUEUE_TIMES, Loaded, Objectives, phrase, summary
from perfmodel.serving.traffic import lengths_of
from perfmodel.shown import Shown
from perfmodel.specs.types import Model, Scenario


@dataclass(frozen=True, repr=False)
class Disaggregated(Shown):
    """Pools for prefill and decode, or why there are none.

    Attributes
    ----------
    prefill, decode : Scenario
        The plan of a replica of either pool.
    pools : Pools or None
    rate : float
        Requests [1/s].
    objectives : Objectives
    reason : str
        Why there are no pools, else empty.
    assumed, warnings : tuple of str
    """

    prefill: Scenario
    decode: Scenario
    pools: Pools | None
    rate: float
    objectives: Objectives
    reason: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> shapes.Pools:
        """Return the documented JSON object."""
        found = self.pools
        return {
            "rate_per_s": shapes.number(self.rate),
            "objectives": shapes.numbers(self.objectives.named()),
            "prefill": _pool(self.prefill, None if found is None else found.prefill, "ttft_s"),
            "decode": _pool(self.decode, None if found is None else found.decode, "tpot_s"),
            "chips": None if found is None else shapes.number(found.chips),
            "prefill_replicas_per_decode_replica": None if found is None else shapes.number(found.ratio),
            "kv_transfer_s": None if found is None else shapes.number(found.transfer),
            "tpot_with_transfer_s": None if found is None else shapes.number(found.tpot_mean),
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        flat: dict[str, Any] = {}
        for key, value in self.to_dict().items():
            if key in ("prefill", "decode"):
                pool: Any = value
                for part, item in (pool | pool["times"]).items():
                    if part != "times" and item is not None:
                        flat |= {f"{key}_{name}": cell for name, cell in spread(part, item).items()}
            elif isinstance(value, dict):
                flat |= {f"objective_{name}": limit for name, limit in value.items()}
            else:
                flat[key] = "; ".join(value) if isinstance(value, list) else value
        return flat

    def to_frame(self) -> Any:
        """Return a one-row pandas frame with the flat columns of ``--csv``."""
        import pandas as pd

        return pd.DataFrame([self.row()])


def _pool(scenario: Scenario, load: Loaded | None, time: str) -> shapes.Pool:
    """Return one pool; a pool decides one time."""
    plan = plan_of(scenario)
    if load is not None:
        plan["dp"] = load.replicas
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "plan": plan,
        "replicas": None if load is None else load.replicas,
        "times": shapes.times({} if load is None else {time: summary(load.queue, QUEUE_TIMES[time])}),
        "utilisation": None if load is None else shapes.number(load.queue.utilisation),
        "headroom": None if load is None else shapes.number(load.headroom),
        "first_limit": None if load is None else load.first_limit,
    }


def disaggregated(
    model: str | Model,
    prefill_on: str,
    decode_on: str,
    rate: float,
    objectives: Objectives,
    options: Options,
    changes: Sequence[str] = (),
    *,
    most_chips: float = MOST_CHIPS,
) -> Disaggregated:
    """Size a pool that prefills and one that decodes, each on a plan of its own.

    Parameters
    ----------
    model, options, changes
        The question, the same for both pools.
    prefill_on, decode_on : str
        System and plan of a replica of either pool.
    rate : float
        Requests [1/s].
    objectives : Objectives
    most_chips : float
        Chips beyond which there is no answer.
    """
    for on in (prefill_on, decode_on):
        refuse_replicas(split_system(on, options)[1])
    each = split_changes([prefill_on, decode_on], changes)
    first, second = (resolve(model, on, options, mine) for on, mine in zip((prefill_on, decode_on), each, strict=True))
    scv = float(first.traffic.arrival_scv)
    found = pools(first, second, lengths_of(first.traffic), rate, scv, objectives)
    said = [
        tuple(dict.fromkeys([*one, *two]))
        for one, two in ((assumptions(first), assumptions(second)), (first.warnings, second.warnings))
    ]
    reason = ""
    if not isinstance(found, Pools):
        words = ", ".join(phrase(key) for key in found) or "the rate"
        reason = f"{words} cannot be met with these plans, however many replicas: one request alone takes longer"
    elif found.chips > most_chips:
        reason = f"the pools need {found.chips:,.0f} chips, more than {most_chips:,.0f}"
    return Disaggregated(
        first, second, found if isinstance(found, Pools) and not reason else None, rate, objectives, reason, *said
    )

"""A prediction: its metrics, and the shape in which it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.specs.types import Scenario

METRICS = (
    "ttft_s",
    "ttft_median_s",
    "tpot_s",
    "request_latency_s",
    "output_tokens_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s_per_user",
    "tokens_per_s_per_chip",
    "mfu",
    "mbu",
    "power_w",
    "joules_per_output_token",
    "usd_per_mtok_input",
    "usd_per_mtok_output",
    "usd_per_mtok_blended",
)


#: Those that power and money decide, and that no time depends on.
MONEY = METRICS[-5:]


_USD = {"input": "usd_per_mtok_input", "output": "usd_per_mtok_output", "blended": "usd_per_mtok_blended"}


#: Those that a model without decoding does not have.
OF_DECODING = (
    "tpot_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_user",
    "joules_per_output_token",
    "usd_per_mtok_output",
)


@dataclass(frozen=True)
class Prediction:
    """The answer to a scenario; every number may be a float or an array.

    Attributes
    ----------
    scenario : Scenario
    metrics : dict
        The metrics of the JSON, by name, NaN where the model does not fit.
    breakdown : dict
        ``prefill`` and ``decode``: seconds by cause, adding up to TTFT and TPOT.
    memory : dict
        Bytes of one chip by use.
    max_concurrency : Any
        Requests that fit the deployment.
    fits : Any
    chips : Any
    limited_by : dict
        ``prefill``, ``decode`` and ``concurrency``; empty for arrays.
    band : dict
        Low and high of a metric that hold 80 % of measurements like those of the calibration.
    reason : str
        Why there is no answer, else empty.
    assumed, warnings : tuple of str
    speculation : dict
        Empty without a draft: ``tokens_per_step``, ``draft_s`` and ``verify_s`` (one step of the draft and the target's
        pass over k + 1 tokens), and ``speedup`` of TPOT over the same question without a draft.
    """

    scenario: Scenario
    metrics: Mapping[str, Any]
    breakdown: Mapping[str, Mapping[str, Any]]
    memory: Mapping[str, Any]
    max_concurrency: Any
    fits: Any
    chips: Any
    limited_by: Mapping[str, str] = field(default_factory=dict)
    band: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reason: str = ""
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    speculation: Mapping[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        if name in METRICS:
            return self.metrics[name]
        raise AttributeError(name)

    def to_dict(self) -> shapes.Prediction:
        """Return the documented JSON object.

        Returns
        -------
        dict
            What does not exist is None.
        """
        known = {key: shapes.number(value) for key, value in self.metrics.items()}
        one_pass = self.one_pass
        phases: dict[str, Any] = {
            phase: {cause: shapes.number(value) if self.fits else None for cause, value in parts.items()}
            for phase, parts in self.breakdown.items()
        }
        limits = self.limited_by if self.fits and not self.reason else {}
        # Where the weights do not fit there is no room; the reason says how much is missing.
        memory = {use: shapes.number(np.maximum(value, 0.0)) for use, value in self.memory.items()}
        return {
            **question_of(self.scenario),
            "ttft_s": known["ttft_s"],
            "ttft_median_s": known["ttft_median_s"],
            "tpot_s": known["tpot_s"],
            "request_latency_s": known["request_latency_s"],
            "output_tokens_per_s": known["output_tokens_per_s"],
            "input_tokens_per_s": known["input_tokens_per_s"],
            "output_tokens_per_s_per_user": known["output_tokens_per_s_per_user"],
            "input_tokens_per_s_per_user": known["input_tokens_per_s_per_user"],
            "tokens_per_s_per_chip": known["tokens_per_s_per_chip"],
            "requests_per_s": shapes.number(one_pass.get("requests_per_s")),
            "tokens_per_s": shapes.number(one_pass.get("tokens_per_s")),
            "mfu": known["mfu"],
            "mbu": known["mbu"],
            "power_w": known["power_w"],
            "joules_per_output_token": known["joules_per_output_token"],
            "usd_per_mtok": per_mtok(self.metrics, self.band),
            "fits": bool(self.fits),
            "max_concurrency": shapes.number(self.max_concurrency),
            "limited_by": {
                "prefill": limits["prefill"],
                "decode": limits.get("decode"),
                "concurrency": limits["concurrency"],
            }
            if limits
            else None,
            "breakdown": {"prefill": phases["prefill"], "decode": phases["decode"]},
            "memory": {
                "capacity": memory["capacity"],
                "weights": memory["weights"],
                "kv_cache": memory["kv_cache"],
                "reserved": memory["reserved"],
                "kv_room": memory["kv_room"],
            },
            "band": {
                key: {"low": shapes.number(ends["low"]), "high": shapes.number(ends["high"])}
                for key, ends in self.band.items()
                if key not in _USD.values()
            }
            or None,
            "speculation": drafted(self.scenario, self.speculation),
            "chips": shapes.number(self.chips),
            "load": None,
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    @property
    def one_pass(self) -> dict[str, Any]:
        """Requests and tokens a second of a model that makes one pass over its input; empty for any other."""
        if self.scenario.model.task != "pool":
            return {}
        tokens = self.metrics["input_tokens_per_s"]
        return {"requests_per_s": tokens / self.scenario.traffic.prompt, "tokens_per_s": tokens}

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns.

        Returns
        -------
        dict
        """
        data: Any = self.to_dict()
        flat: dict[str, Any] = {"model": data["model"], "system": data["system"], "chips": data["chips"]}
        flat.update({f"plan_{key}": value for key, value in data["plan"].items()})
        flat.update({f"traffic_{key}": value for key, value in data["traffic"].items()})
        flat.update({key: shapes.number(self.metrics[key]) for key in METRICS})
        flat.update({key: data[key] for key in ("fits", "max_concurrency")})
        for phase in ("prefill", "decode"):
            flat[f"{phase}_limited_by"] = (data["limited_by"] or {}).get(phase)
            flat.update({f"{phase}_{cause}_s": value for cause, value in data["breakdown"][phase].items()})
        flat.update({f"memory_{use}_bytes": value for use, value in data["memory"].items()})
        said = data["speculation"] or {}
        flat.update({f"speculation_{key}": said.get(key) for key in ("draft", "k", "tokens_per_step", "speedup")})
        flat["reason"] = data["reason"]
        flat.update({said: "; ".join(data[said]) for said in ("assumed", "warnings")})
        return flat


def plan_of(scenario: Scenario) -> shapes.Plan:
    """Return a layout as answers name it.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    dict
    """
    plan = scenario.deployment
    return {
        "name": plan.plan,
        "tp": shapes.number(plan.tp),
        "pp": shapes.number(plan.pp),
        "ep": shapes.number(plan.ep),
        "dp": shapes.number(plan.dp),
        "attention_dp": shapes.number(plan.attention_dp),
        "engine": plan.engine,
        "precision": plan.precision,
        "kv_precision": plan.kv_precision,
    }


def question_of(scenario: Scenario) -> shapes.Asked:
    """Return model, system, plan and traffic of a question, as answers name them.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    dict
    """
    traffic = scenario.traffic
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "plan": plan_of(scenario),
        "traffic": {
            "name": traffic.name,
            "prompt": shapes.number(traffic.prompt),
            "output": shapes.number(traffic.output),
            "concurrency": shapes.number(traffic.concurrency),
        },
    }


def drafted(scenario: Scenario, fields: Mapping[str, Any]) -> shapes.Speculation | None:
    """Return the draft of a question and what it brings; None without one.

    Parameters
    ----------
    scenario : Scenario
    fields : mapping
        ``speculation`` of a prediction; what is not in it is None.

    Returns
    -------
    dict or None
    """
    asked = scenario.speculation
    if asked is None:
        return None
    return {
        "draft": asked.name,
        "k": shapes.number(asked.k),
        "alpha": shapes.number(asked.alpha),
        "ar": shapes.number(asked.ar),
        "accept": [shapes.number(chance) for chance in asked.accept.values()] or None,
        "host_time_s": shapes.number(asked.host_time),
        "tokens_per_step": shapes.number(fields.get("tokens_per_step")),
        "draft_s": shapes.number(fields.get("draft_s")),
        "verify_s": shapes.number(fields.get("verify_s")),
        "speedup": shapes.number(fields.get("speedup")),
    }


def per_mtok(metrics: Mapping[str, Any], band: Mapping[str, Mapping[str, float]]) -> shapes.PerMtok:
    """Return the cost of tokens with the ends of its band.

    Parameters
    ----------
    metrics, band : mapping
        Of a prediction; what they do not have is None.

    Returns
    -------
    dict
    """
    each = {
        of: shapes.spread(metrics.get(key), band.get(key, {}).get("low"), band.get(key, {}).get("high"))
        for of, key in _USD.items()
    }
    return {"input": each["input"], "output": each["output"], "blended": each["blended"]}

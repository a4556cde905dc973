"""What fits, as an answer of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel import shapes
from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.options import flag
from perfmodel.prediction import plan_of
from perfmodel.question import Options, resolve, split_system
from perfmodel.serving.cache_bytes import growth, request_bytes
from perfmodel.serving.fit import Fit, fit, kv_tokens
from perfmodel.serving.steady import chips
from perfmodel.shown import Shown
from perfmodel.specs.paths import provenance_of, put, quantities
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show

_GIB = 2.0**30


@dataclass(frozen=True, repr=False)
class FitAnswer(Shown):
    """Whether a model fits a system, and with how much cache.

    Attributes
    ----------
    scenario : Scenario
    held : Fit
        Memory of one chip of the fullest stage [B].
    context : float
        Tokens of a request.
    per_token, fixed : float
        Cache of a chip that a request takes for one more token at that length, and what of it does not grow [B].
    kv_tokens, requests, concurrency : float
        Of all replicas together: tokens of cache, requests of that length, and the same with a fraction.
    fits : bool
    reason : str
        Why not, else empty.
    assumed, warnings : tuple of str
    """

    scenario: Scenario
    held: Fit
    context: float
    per_token: float
    fixed: float
    kv_tokens: float
    requests: float
    concurrency: float
    fits: bool
    reason: str
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def parts(self) -> dict[str, float]:
        """Return the bytes of one chip by use; they add up to what the engine sees and what is missing."""
        memory = self.held
        visible, room = float(memory.capacity), float(memory.room)
        taken = {
            "weights": float(memory.weights) if memory.weights_capacity is None else 0.0,
            "activation_peak": min(float(memory.activation_peak), max(0.0, float(memory.spare))),
            "non_torch": float(memory.non_torch),
            "cuda_graphs": float(memory.cuda_graphs),
        }
        return {
            "visible": visible,
            **taken,
            "kv_pool": max(0.0, room),
            "outside_budget": visible - sum(taken.values()) - room,
            "missing": max(0.0, -room),
        }

    def to_dict(self) -> shapes.Fit:
        """Return the documented JSON object."""
        parts = {use: shapes.number(size) for use, size in self.parts.items()}
        return {
            "model": self.scenario.model.name,
            "system": self.scenario.system.name,
            "plan": plan_of(self.scenario),
            "chips": shapes.number(chips(self.scenario)),
            "fits": self.fits,
            "context": shapes.number(self.context),
            "kv_tokens": shapes.number(self.kv_tokens),
            "max_concurrency": shapes.number(self.requests),
            "max_concurrency_unrounded": shapes.number(self.concurrency),
            "memory_utilisation": shapes.number(self.held.utilisation),
            "parts": {
                "visible": parts["visible"],
                "weights": parts["weights"],
                "activation_peak": parts["activation_peak"],
                "non_torch": parts["non_torch"],
                "cuda_graphs": parts["cuda_graphs"],
                "kv_pool": parts["kv_pool"],
                "outside_budget": parts["outside_budget"],
                "missing": parts["missing"],
            },
            "per_token_bytes": shapes.number(self.per_token),
            "fixed_bytes": shapes.number(self.fixed),
            "per_request_bytes": shapes.number(self.held.per_request),
            "block_tokens": shapes.number(self.held.block_tokens),
            "reason": self.reason or None,
            "assumed": list(self.assumed),
            "warnings": list(self.warnings),
        }

    def row(self) -> dict[str, Any]:
        """Return the answer as flat columns."""
        data: dict[str, Any] = {**self.to_dict()}
        plan, parts = data.pop("plan"), data.pop("parts")
        said = ("assumed", "warnings", "reason")
        flat: dict[str, Any] = {key: value for key, value in data.items() if key not in said}
        flat.update({f"plan_{key}": value for key, value in plan.items()})
        flat.update({f"{use}_bytes": value for use, value in parts.items()})
        flat["reason"] = data["reason"]
        flat.update({name: "; ".join(data[name]) for name in ("assumed", "warnings")})
        return flat

    def to_frame(self) -> Any:
        """Return a pandas frame with one row."""
        import pandas as pd

        return pd.DataFrame([self.row()])


def ask(
    model: str | Model, on: str, options: Options, changes: Sequence[str] = (), context: float | None = None
) -> FitAnswer:
    """Answer whether a model fits, with how many tokens of cache and how many requests.

    Parameters
    ----------
    model, on, options, changes
        As in :func:`perfmodel.question.resolve`.
    context : float, optional
        Tokens of a request; prompt and output of the traffic where one is given, else the most that the model takes.

    Raises
    ------
    UserError
        Where the question cannot be answered as asked.
    """
    has_traffic = options.traffic is not None or options.prompt is not None
    if context is not None and has_traffic:
        raise UserError("give either --context or a traffic")
    if context is not None and (not context >= 1 or context != int(context)):
        raise UserError(f"--context {context:g}: must be a whole number of at least 1")
    assumed = []
    if not has_traffic:
        if context is None:
            architecture = resolve(model, on, options, changes).model
            context = float(architecture.max_context)
            assumed.append(f"context {context:g}, the most that {architecture.name} takes")
        # The plan is chosen for requests of this length.
        options = replace(options, prompt=max(1.0, context - 1), output=1.0)
    scenario = resolve(model, on, options, changes)

    def tokens(asked: Scenario) -> float:
        if has_traffic:
            return float(asked.traffic.prompt + asked.traffic.output)
        return float(asked.model.max_context) if assumed or context is None else context

    def said(asked: Scenario) -> Any:
        found = _answer(asked, tokens(asked)).to_dict()
        return [value for key, value in found.items() if key not in ("plan", "assumed")]

    def traced(asked: Scenario) -> Any:
        return list(vars(fit(asked, tokens(scenario))).values())

    told = [line for line in scenario.assumed if not line.startswith(("concurrency", "money"))]
    answer = _answer(replace(scenario, assumed=(*told, *assumed)), tokens(scenario))
    paths = unmoved(scenario, said) if answer.fits else []
    aside = _aside(split_system(on, options)[1], answer)
    return replace(answer, warnings=(*answer.warnings, *idle(scenario, paths, traced, "fit is about memory"), *aside))


#: Options that say how fast a draft is, which takes the same memory at any speed.
_OF_SPEED = ("k", "alpha", "ar", "accept", "accept_logged")


def _aside(options: Options, answer: FitAnswer) -> list[str]:
    """Return what became of options that memory does not depend on."""
    told = [
        f"{flag(name)} did not enter this answer: it is about speed"
        for name in _OF_SPEED
        if getattr(options, name) is not None
    ]
    if options.concurrency is not None:
        enough = answer.requests >= options.concurrency
        told.append(f"{options.concurrency:g} requests at once {'fit' if enough else 'do not fit'}")
    return told


def _answer(scenario: Scenario, context: float) -> FitAnswer:
    memory = fit(scenario, context)
    replicas = float(scenario.deployment.groups)
    fits = float(memory.cap) >= 1
    grows, fixed = growth(scenario, context)
    tokens = max(0.0, float(kv_tokens(scenario, memory, context)))
    return FitAnswer(
        scenario=scenario,
        held=memory,
        context=context,
        per_token=float(grows),
        fixed=float(fixed),
        kv_tokens=tokens * replicas,
        requests=float(memory.cap) * replicas,
        concurrency=float(memory.concurrency) * replicas,
        fits=fits,
        reason="" if fits else _misfit(scenario, memory, context),
        assumed=scenario.assumed,
        warnings=(*scenario.warnings, *_warnings(scenario, context, tokens)),
    )


def longest_request(scenario: Scenario, most: float) -> float:
    """Return the most tokens of one request that fit alone, up to ``most``; 0 where none does."""
    room = float(fit(scenario, most).room)
    low, high = 0.0, most
    while high - low > 1:
        middle = float(int((low + high) / 2))
        if float(request_bytes(scenario, middle)) <= room:
            low = middle
        else:
            high = middle
    return low


def _misfit(scenario: Scenario, memory: Fit, context: float) -> str:
    plan = scenario.deployment
    where = f"{scenario.system.name} at TP {plan.tp:g}, PP {plan.pp:g}"
    if float(memory.room) <= 0:
        rest = float(memory.activation_peak) + float(memory.non_torch) + float(memory.cuda_graphs)
        taken = f"{gib(memory.weights)} of weights a chip and {gib(rest)} beside them"
        if (own := memory.weights_capacity) is not None:
            why = f"{gib(memory.weights)} of weights a chip do not leave room in {gib(own)}"
        else:
            why = f"{taken} leave no room for a cache in {memory.utilisation:.0%} of {gib(memory.capacity)}"
        return (
            f"{scenario.model.name} in {plan.precision} does not fit {where}: {why}; "
            "more chips or a smaller precision would do"
        )
    longest = longest_request(scenario, context)
    return (
        f"no request of {context:,.0f} tokens fits {where}: it needs {gib(memory.per_request)} of cache a chip and "
        f"{gib(memory.room)} are free; {longest:,.0f} tokens would fit"
    )


def _warnings(scenario: Scenario, context: float, tokens: float) -> list[str]:
    mind = []
    if context > float(scenario.model.max_context):
        mind.append(f"longer than the {scenario.model.max_context:g} tokens that {scenario.model.name} was made for")
    fits = tokens >= context
    moved = []
    for path, unit, value in quantities(scenario):
        origin = provenance_of(scenario, path)
        if origin.kind != "estimate" or origin.low != origin.low:
            continue
        ends = []
        for bound in (origin.low, origin.high):
            other = put(scenario, path, bound)
            ends.append(max(0.0, float(kv_tokens(other, fit(other, context), context))))
        span = f"estimate {path} = {show(float(value), unit, 3)} ({show(origin.low, unit, 3)} to "
        span += f"{show(origin.high, unit, 3)})"
        turned = [bound for bound, end in zip((origin.low, origin.high), ends, strict=True) if (end >= context) != fits]
        if turned:
            verdict = "fit" if not fits else "not fit"
            moved.append((math.inf, f"the verdict hangs on {span}: at {show(turned[0], unit, 3)} it would {verdict}"))
        elif tokens:
            shifts = [end / tokens - 1 for end in ends]
            if max(map(abs, shifts)) >= 0.005:
                moved.append((max(map(abs, shifts)), f"{span} moves the tokens {shifts[0]:+.0%} to {shifts[1]:+.0%}"))
    return mind + [text for _, text in sorted(moved, reverse=True)]


def gib(value: Any) -> str:
    """Return bytes in GiB."""
    return f"{float(value) / _GIB:,.2f} GiB"

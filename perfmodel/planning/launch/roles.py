"""What an engine is started with: the numbers of a plan, by role, in our words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.serving.fit import fit
from perfmodel.specs.types import Model, Scenario


@dataclass(frozen=True)
class Drafting:
    """Speculative decoding: ``method`` is eagle3, mtp, ngram or draft_model; ``model`` drafts, where it is one."""

    method: str
    tokens: int
    model: str = ""


@dataclass(frozen=True)
class Role:
    """Engines that are alike.  What is None was not said, and the engine takes its own.

    Attributes
    ----------
    model : str
        As the engine finds it: an id of Hugging Face, or a path.
    name : str
        ``prefill`` or ``decode`` of two pools, else empty.
    workers : int
        Engines of this kind.
    tp, pp, ep, attention_dp : int
        Tensor ranks of a group, stages, ranks that share experts, and groups that hold attention whole.
    dp : int
        Replicas inside of one engine, where that starts them itself.
    sequences, batched_tokens : int or None
        Requests at once, and tokens of a step, of a group.
    context : int or None
        Tokens of a request at the most.
    memory_share : float or None
        By the engine's own definition.
    kv_precision, quantization : str or None
    prefix_caching, graphs : bool or None
    drafting : Drafting or None
    others : mapping
        Arguments that no plan has, by the engine's own names.
    """

    model: str
    name: str = ""
    workers: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    attention_dp: int = 1
    dp: int = 1
    sequences: int | None = None
    batched_tokens: int | None = None
    context: int | None = None
    memory_share: float | None = None
    kv_precision: str | None = None
    quantization: str | None = None
    prefix_caching: bool | None = None
    graphs: bool | None = None
    drafting: Drafting | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> int:
        """Chips of one engine."""
        return self.tp * self.pp * self.attention_dp * self.dp


def called(model: Model, asked: str) -> str:
    """Return what an engine is to load: the id that was asked for, else that of the architecture, else its name."""
    return asked if "/" in asked else model.hf_id or model.name


#: Methods by the words of ``--draft``; any other is a draft model.
_METHODS = {"mtp": "mtp", "eagle": "eagle3", "ngram": "ngram"}


def drafting(scenario: Scenario, draft: str) -> Drafting | None:
    """Return how a scenario drafts, as engines name it; ``draft`` is how the draft was asked for."""
    speculation = scenario.speculation
    if speculation is None:
        return None
    tokens, method = int(float(speculation.k)), _METHODS.get(draft.casefold())
    if method is not None or speculation.model is None:
        return Drafting(method or "ngram", tokens)
    return Drafting("draft_model", tokens, called(speculation.model, draft))


@dataclass(frozen=True)
class Wanted:
    """What a question says beside its scenario.

    Attributes
    ----------
    model, draft : str
        As they were asked for.
    context : float or None
        Tokens of a request at the most [1].
    sequences : float or None
        Requests at once of all replicas; what fits, up to the engine's own limit, where not given [1].
    """

    model: str
    draft: str = ""
    context: float | None = None
    sequences: float | None = None


def role_of(scenario: Scenario, wanted: Wanted, name: str = "") -> tuple[Role, list[str]]:
    """Return the role of a scenario, and what has to be said of it.

    Parameters
    ----------
    scenario : Scenario
    wanted : Wanted
    name : str
        Of a pool.
    """
    plan, engine, model = scenario.deployment, scenario.system.engine, scenario.model
    notes = []
    cap = math.floor(float(fit(scenario).cap))
    if engine is not None:
        cap = min(cap, int(float(engine.max_sequences)))
    if wanted.sequences is not None:
        clients = math.ceil(wanted.sequences / float(plan.groups))
        if clients > cap:
            notes.append(f"{clients} requests a group are asked for, of which {cap} run at once")
        cap = min(cap, clients)
    quantized = plan.precision != model.precision
    if quantized:
        notes.append(
            f"weights in {plan.precision}: {called(model, wanted.model)} is stored in {model.precision}; a checkpoint "
            f"in {plan.precision} in its place needs no --quantization"
        )
    if wanted.context is None:
        notes.append(f"--context is not given: the engine takes the model's {float(model.max_context):,.0f} tokens")
    share = math.nan if engine is None else float(engine.memory_utilisation)
    if math.isnan(share):
        notes.append(f"the share of memory is left to {plan.engine}, whose own rule the numbers stand on")
    hits = float(scenario.traffic.prefix_hits)
    role = Role(
        model=called(model, wanted.model),
        name=name,
        workers=int(float(plan.dp)),
        tp=int(float(plan.tp)),
        pp=int(float(plan.pp)),
        ep=int(float(plan.ep)),
        attention_dp=int(float(plan.attention_dp)),
        sequences=cap,
        batched_tokens=None if engine is None else int(float(engine.batched_tokens)),
        context=None if wanted.context is None else int(wanted.context),
        memory_share=None if math.isnan(share) else share,
        kv_precision=str(plan.kv_precision),
        quantization=str(plan.precision) if quantized else None,
        prefix_caching=hits > 0,
        drafting=drafting(scenario, wanted.draft),
    )
    return role, notes

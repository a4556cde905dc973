"""Drafts of a question: what is drafted, and what is accepted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.machines.speculation import draft_scenario
from perfmodel.options import Priced, flag, options_of
from perfmodel.question.options import Options
from perfmodel.question.plans import most_ranks
from perfmodel.question.reading import read_option
from perfmodel.specs import catalog
from perfmodel.specs.types import (
    Model,
    Provenance,
    Scenario,
    Speculation,
    System,
)

#: What drafts without a model of its own: a head of one layer of the target, or look-up in the text so far.
HEADS = ("eagle", "mtp")
LOOK_UP = "ngram"


def speculation_of(
    options: Options, target: Model, system: System, precision: str
) -> tuple[Speculation | None, list[str], list[str]]:
    """Return the speculation that options ask for, what is assumed, and what to mind.

    Parameters
    ----------
    options : Options
    target : Model
    system : System
    precision : str
        Of the target's weights.

    Returns
    -------
    tuple of Speculation or None, and two lists of str

    Raises
    ------
    UserError
        Where no draft, no k or no acceptance is given, or two that exclude each other.
    """
    given = _acceptance_given(options)
    if options.draft is None:
        return None, [], []
    if target.task == "pool":
        raise UserError(
            f"--draft {options.draft}: {target.name} makes one pass over its input and decodes nothing to draft"
        )
    accept, logged_alike = _positions(options)
    k, assumed = _tokens_drafted(options, accept)
    draft = draft_of(options.draft, target, system, precision)
    machine = machine_of(system)
    measured = [f"accept.{at}" for at in range(1, len(accept) + 1)] or [given]
    provenance = {f"model.{path}": origin for path, origin in (draft.model.provenance if draft.model else {}).items()}
    provenance |= dict.fromkeys(("k", *measured), Provenance("given by the user", "given"))
    provenance |= {
        "host_time": machine.draft_host_source,
        "max_tp": Provenance("the draft's heads", "derived"),
    }
    return (
        Speculation(
            name=draft.model.name if draft.model else LOOK_UP,
            model=draft.model,
            precision=draft.precision,
            max_tp=most_ranks(machine, draft.model) if draft.model else 1.0,
            shares_ends=draft.shares_ends,
            k=k,
            host_time=machine.draft_host_time,
            alpha=options.alpha,
            ar=options.ar,
            accept={str(at): chance for at, chance in enumerate(accept, 1)},
            provenance=provenance,
        ),
        [*assumed, draft.assumed],
        [*filter(None, (logged_alike,)), *draft.warnings],
    )


def _acceptance_given(options: Options) -> str:
    """Return which measure of acceptance goes with the draft, empty where there is no draft."""
    measures = ("alpha", "ar", "accept", "accept_logged")
    given = [name for name in measures if getattr(options, name) is not None]
    if options.draft is None:
        if given or options.k is not None:
            raise UserError(f"{flag((['k'] if options.k is not None else given)[0])} needs --draft MODEL")
        return ""
    if len(given) != 1:
        raise UserError(
            f"--draft {options.draft}: give one of --alpha, --ar or --accept (--accept-logged as an engine logs it); "
            "how many drafted tokens are accepted depends on the pair of models and on the text"
        )
    return given[0]


def _tokens_drafted(options: Options, accept: Sequence[float]) -> tuple[float, list[str]]:
    """Return k, given or as many as there are acceptances by position, and what is assumed where these differ."""
    k = options.k if options.k is not None else float(len(accept)) or None
    if k is None:
        raise UserError(f"--draft {options.draft}: give --k, the tokens drafted a step")
    if options.ar is not None and options.ar < 1 / (k + 1) - 1e-9:
        raise UserError(
            f"--ar {options.ar:g}: AR counts the target's own token, so it is at least 1 / (k + 1) = {1 / (k + 1):.3g}"
        )
    if accept and k > len(accept):
        return float(k), [f"acceptance beyond position {len(accept)} is that of the last"]
    if len(accept) > k:
        return float(k), [
            f"of the acceptances of {len(accept)} positions the first {k:g} count, as many as are drafted"
        ]
    return float(k), []


@dataclass(frozen=True)
class _Draft:
    """What drafts: a model or none, the precision of its weights, and whether it uses the target's ends."""

    model: Model | None
    precision: str
    assumed: str
    shares_ends: bool = False
    warnings: Sequence[str] = ()


def draft_of(name: str, target: Model, system: System, precision: str) -> _Draft:
    """Return what drafts by its name; ``precision`` is that of the target's weights.

    Parameters
    ----------
    name : str
    target : Model
    system : System
    precision : str

    Returns
    -------
    _Draft
    """
    word = name.casefold()
    if word in HEADS:
        last = replace(target.layers[-1], count=1.0)
        head = replace(target, name=f"one layer of {target.name}", layers=(last,), towers=0.0)
        said = f"{name}: one layer of {target.name} drafts, with the target's embedding and head"
        return _Draft(head, precision, said, shares_ends=True)
    if word == LOOK_UP:
        return _Draft(None, precision, "ngram: looking up drafts costs nothing beyond the host time of a step")
    model = catalog.load_model(name)
    if model.task == "pool":
        raise UserError(f"--draft {name}: it makes one pass over its input and drafts nothing")
    own = model.precision if model.precision in system.computes_as else precision
    warnings = list(catalog.model_notes(model))
    if float(model.vocab) != float(target.vocab):
        warnings.append(
            f"draft {model.name} has {model.vocab:,.0f} words and {target.name} {target.vocab:,.0f}: a draft needs "
            "the tokenizer of its target"
        )
    return _Draft(model, own, f"draft {model.name} in {own} on the chips and plan of the target", warnings=warnings)


def check_draft(scenario: Scenario) -> list[str]:
    """Return what is assumed of the ranks of a draft; refuse where they do not divide its heads.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    list of str
    """
    asked = scenario.speculation
    if asked is not None and asked.ar is not None and asked.ar < 1 / (asked.k + 1) - 1e-9:
        raise UserError(f"--set speculation.ar={asked.ar:g}: it is at least 1 / (k + 1) = {1 / (asked.k + 1):.3g}")
    draft = draft_scenario(scenario)
    if draft is None:
        return []
    tp, most = float(draft.deployment.tp), float(scenario.deployment.tp)
    if not machine_of(scenario.system).splits(draft.model, tp * float(scenario.system.cores)):
        raise UserError(f"--draft {draft.model.name}: its heads cannot be split over {tp:g} ranks; use another --tp")
    return [f"the draft on {tp:g} of {most:g} ranks, as many as divide its heads"] if tp < most else []


def _positions(options: Options) -> tuple[tuple[float, ...], str]:
    """Return the chance of each position when those before it were accepted, and what to mind of how it was given."""
    name = "accept" if options.accept is not None else "accept_logged"
    if getattr(options, name) is None:
        return (), ""
    read = read_option(name, getattr(options, name), options_of(Priced)[name])
    written = f"{flag(name)} {','.join(f'{share:g}' for share in read)}"
    shares = _conditional(read)
    if name == "accept_logged":
        if any(share > 1 for share in shares):
            raise UserError(f"{written}: the share of steps that accept a position cannot rise from one to the next")
        return shares, ""
    falls = len(read) > 1 and all(later < earlier for earlier, later in itertools.pairwise(read))
    if falls and min(shares) / max(shares) > min(read) / max(read):
        return read, (
            f"{written} falls as the rates do that engines log, which are of all steps: where it is such a log, give "
            "it as --accept-logged"
        )
    return read, ""


def _conditional(logged: Sequence[float]) -> tuple[float, ...]:
    """Return the chance of each position when those before it were accepted, of shares of all steps."""
    before = (1.0, *logged)
    return tuple(now / last if last else math.inf if now else 0.0 for last, now in zip(before, logged, strict=False))

"""From the options of a question to users with sessions on a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfmodel.entered import idle, unmoved
from perfmodel.errors import UserError
from perfmodel.planning.agents import START, Agents, ask
from perfmodel.planning.load import open_numbers
from perfmodel.question import resolve, split_changes, taken
from perfmodel.serving.session_machine import Tier
from perfmodel.serving.session_spec import session_traffic
from perfmodel.serving.sessions import drawn_calls
from perfmodel.specs import catalog, files, rules
from perfmodel.specs.paths import annotation_at, get, put
from perfmodel.specs.ranges import Range, range_of, read_number
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import Model, Provenance, Scenario

#: Tiers that there are; the store is shared by all replicas.
_TIERS = ("host", "disk", "store")


def read_tier(text: str) -> Tier:
    """Read a tier as it is written: ``host=1TB@50GB/s``, with ``@8ms`` behind it where a load takes a while to start.

    Parameters
    ----------
    text : str

    Returns
    -------
    Tier
    """
    name, equals, rest = (part.strip() for part in text.partition("="))
    parts = [part.strip() for part in rest.split("@")]
    if name not in _TIERS or not equals or len(parts) not in (2, 3):
        raise UserError(f"--tier {text}: write {'|'.join(_TIERS)}=CAPACITY@BANDWIDTH, as host=1TB@50GB/s or ...@8ms")
    try:
        capacity = read_number(parts[0], Range("B", 1.0, 1e18))
        bandwidth = read_number(parts[1], Range("B/s", 1.0))
        start = read_number(parts[2], Range("s", most=1e3)) if len(parts) == 3 else START
    except UserError as error:
        raise UserError(f"--tier {text}: {error}") from None
    return Tier(name, capacity, bandwidth, start, pooled=name == "store")


def read_tiers(texts: Sequence[str]) -> tuple[Tier, ...]:
    """Read tiers, nearest first.

    Parameters
    ----------
    texts : sequence of str

    Returns
    -------
    tuple of Tier
    """
    tiers = tuple(read_tier(text) for text in texts)
    if len({tier.name for tier in tiers}) < len(tiers):
        raise UserError("--tier: a tier is given twice")
    return tiers


def changed(session: Session, changes: Sequence[str]) -> tuple[Session, list[str]]:
    """Return a session with what ``--set session.PATH=VALUE`` changes, and the other changes.

    Parameters
    ----------
    session : Session
    changes : sequence of str
        ``PATH=VALUE`` each.

    Returns
    -------
    tuple of Session and list of str
    """
    others = []
    for text in changes:
        path, equals, written = (part.strip() for part in text.partition("="))
        if not path.startswith("session."):
            others.append(text)
            continue
        where = path.removeprefix("session.")
        try:
            if where == "ttl" and session.ttl is None:
                session = replace(session, ttl=read_number(written, _ttl_rule()))
            else:
                get(session, where)
                rule = range_of(annotation_at(session, where))
                if rule is None or not equals:
                    raise UserError("names no number of a session")
                session = put(session, where, read_number(written, rule, float(get(session, where))))
            broken = rules.broken(session)
            if broken:
                raise UserError(f"{broken[0][0]}: {broken[0][1]}")
        except UserError as error:
            raise UserError(f"--set {path}: {error}") from None
        given = Provenance("given by the user", "given")
        session = replace(session, provenance={**session.provenance, where: given})
    return session, others


def _ttl_rule() -> Range:
    rule = range_of(files.hints(Session)["ttl"])
    assert rule is not None
    return rule


def question(
    kind: type, model: str | Model, systems: Sequence[str], set: Any, given: Mapping[str, Any], worth: bool = True
) -> list[Agents]:
    """Answer a question about users with sessions on each of some systems.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`.
    model : str or Model
    systems : sequence of str
        Each with its plan.
    set, given
        As :func:`perfmodel.question.taken` takes them.
    worth : bool
        Whether changes are asked for too.

    Returns
    -------
    list of Agents
    """
    asked = settled(kind, model, systems, set, given)[0]
    return [with_idle(ask(scenario, session, users, tiers, worth)) for scenario, session, users, tiers in asked]


def with_idle(answer: Agents) -> Agents:
    """Return an answer with a line for each change that moved nothing.

    Parameters
    ----------
    answer : Agents

    Returns
    -------
    Agents
    """
    if answer.reason:
        return answer

    def told(one: Scenario) -> Any:
        return ask(one, answer.session, answer.users, answer.tiers, False).to_dict()

    lines = idle(answer.scenario, unmoved(answer.scenario, told), open_numbers)
    return replace(answer, warnings=(*lines, *answer.warnings))


_Settled = tuple[Scenario, Session, float, tuple[Tier, ...]]


def settled(
    kind: type, model: str | Model, systems: Sequence[str], set: Any, given: Mapping[str, Any]
) -> tuple[list[_Settled], dict[str, Any]]:
    """Return what a question about users with sessions asks of each system, and what else was given.

    Parameters
    ----------
    kind, model, systems, set, given
        As of :func:`question`.

    Returns
    -------
    list of tuple
        Scenario, session, users and tiers.
    dict
        Other options, read.
    """
    asked, changes, rest = taken(kind, systems, set, given)
    session, users = catalog.load_session(rest.pop("sessions")), float(rest.pop("users"))
    tiers = read_tiers(rest.pop("tier", ()))
    session, changes = changed(session, changes)
    calls = drawn_calls(session_traffic(session))
    prompt, output = (max(1.0, round(float(part.mean()))) for part in (calls.prompt, calls.output))
    # A plan that nobody chose is that of the mean call.
    asked = replace(asked, prompt=prompt, output=output, concurrency=1.0)
    questions = [
        (resolve(model, system, asked, mine), session, users, tiers)
        for system, mine in zip(systems, split_changes(systems, changes), strict=True)
    ]
    return questions, rest

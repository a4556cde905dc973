"""What a session of an agent or of a conversation asks for: many calls that share their context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from perfmodel.numerics import Number
from perfmodel.specs import quantiles
from perfmodel.specs.ranges import Range
from perfmodel.specs.types import AtLeastOne, Degree, Provenance, Share, ShareBelowOne, Whole

Tokens = Annotated[Number, Range("1", most=1e9)]
Lifespan = Annotated[Number, Range("s", 0.0, 1e12, above=True)]
Pause = Annotated[Number, Range("s", most=1e12)]

#: In which order the calls of different sessions come: as their pauses let them, or once a round, in an order that is
#: drawn anew each round (bench_multiturn) or always the same (AgentPerfBench).
Order = Annotated[str, Literal["free", "random", "fixed"]]


@dataclass(frozen=True)
class SharedPrefix:
    """Tokens with which all sessions of a group begin: tools, system prompt, a document.

    Attributes
    ----------
    tokens : Number
        Of one prefix [1].
    groups : Number
        Different prefixes; a session has one of them [1].
    """

    tokens: Tokens
    groups: Degree = 1.0


@dataclass(frozen=True)
class Compaction:
    """What a client does when a context grows too long: it sends a summary in place of all but the shared prefix.

    Attributes
    ----------
    to : Number
        Tokens that it then sends, the shared prefix in them [1].
    at : Number, optional
        Tokens of a context from which on it does so [1].
    share : Number
        Calls before which it does so, whatever their context [1].
    """

    to: AtLeastOne
    at: AtLeastOne | None = None
    share: ShareBelowOne = 0.0


@dataclass(frozen=True)
class Session:
    """Sessions of one kind; tables hold quantiles (``p50``, ``p99``, ...) and, where known, the ``mean``.

    Attributes
    ----------
    name : str
    calls : mapping of str to Number
        Calls of the model in a session [1].
    first_context : mapping of str to Number
        Prompt of the first call [1].
    growth : mapping of str to Number
        By how much a prompt is longer than the one before it [1].
    output : mapping of str to Number
        Tokens of an answer [1].
    tool_gap, human_gap : mapping of str to Number
        From the end of a call to the start of the next, where a tool or a person lies between them [s].
    human_share : Number
        Gaps in which a person lies [1].
    context : mapping of str to Number
        Prompts of all calls [1], where they are known: what grows call by call is brought to them, rank by rank.
    appended : mapping of str to Number
        Tokens of a prompt that the one before and its answer do not hold, so that no cache has them [1]; without it,
        the growth less what of the answer is found again.
    resent_output : Number
        Share of an answer that the next prompt holds in other tokens, so that it is prefilled again [1].
    shared_prefix : SharedPrefix, optional
    compaction : Compaction, optional
    fan_out : Number
        Sessions that one user has open at a time: agents that work beside each other [1].
    ttl : Number, optional
        Time after which a cache forgets what nobody touched [s].
    order : str
        ``free``, or rounds in a ``random`` or ``fixed`` order.
    population : Number, optional
        Sessions of a benchmark in rounds, whatever the number of calls in flight [1].
    aliases : tuple of str
    provenance : dict of str to Provenance
    """

    name: str
    calls: Mapping[str, AtLeastOne]
    first_context: Mapping[str, AtLeastOne]
    growth: Mapping[str, Tokens]
    output: Mapping[str, AtLeastOne]
    tool_gap: Mapping[str, Pause] = field(default_factory=dict)
    human_gap: Mapping[str, Pause] = field(default_factory=dict)
    human_share: Share = 0.0
    context: Mapping[str, AtLeastOne] = field(default_factory=dict)
    appended: Mapping[str, Tokens] = field(default_factory=dict)
    resent_output: Share = 0.0
    shared_prefix: SharedPrefix | None = None
    compaction: Compaction | None = None
    fan_out: AtLeastOne = 1.0
    ttl: Lifespan | None = None
    order: Order = "free"
    population: Whole | None = None
    aliases: tuple[str, ...] = ()
    provenance: Mapping[str, Provenance] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return f"<Session {self.name}>"


def _tables(session: Session) -> Iterator[tuple[str, str]]:
    for name in ("calls", "first_context", "growth", "output"):
        if not getattr(session, name):
            yield name, "give quantiles such as p50 and p90, or mean"
    for name in ("calls", "first_context", "growth", "output", "tool_gap", "human_gap", "context", "appended"):
        table: Mapping[str, Any] = getattr(session, name)
        if table and (found := quantiles.fault(table)):
            yield f"{name}.{found[0]}".rstrip("."), found[1]


def _gaps(session: Session) -> Iterator[tuple[str, str]]:
    share = float(session.human_share)
    if (session.population is None) != (session.order == "free"):
        why = "rounds need the number of sessions in them" if session.population is None else "counts in rounds only"
        yield "population", f"{why}: {'give it' if session.population is None else 'leave it out'}"
    if session.order != "free":
        given = [name for name in ("tool_gap", "human_gap") if getattr(session, name)]
        given += ["human_share"] if share else []
        for name in given:
            yield name, f"would move nothing: in rounds of {session.order} order the others make the gap; leave it out"
        if session.ttl is not None:
            yield "ttl", f"would move nothing: rounds of {session.order} order are by capacity alone; leave it out"
        for name in ("context", "compaction"):
            if getattr(session, name):
                yield name, "would move nothing: rounds grow by the same tokens to their end; leave it out"
        return
    for name, used in (("tool_gap", share < 1), ("human_gap", share > 0)):
        if used and not getattr(session, name):
            yield name, f"with a human_share of {share:g} there are such gaps: give quantiles or mean"
        elif getattr(session, name) and not used:
            yield name, f"would move nothing: with a human_share of {share:g} there is no such gap; leave it out"


def _context(session: Session) -> Iterator[tuple[str, str]]:
    if session.appended and float(session.resent_output):
        yield "resent_output", "would move nothing: appended says already what is prefilled; leave one of them out"
    first = float(quantiles.at(session.first_context, 0.5)) if session.first_context else 0.0
    shared = 0.0 if session.shared_prefix is None else float(session.shared_prefix.tokens)
    if first and shared > first:
        yield "shared_prefix.tokens", f"{shared:,.0f} is more than the median first_context of {first:,.0f}"
    if session.compaction is not None:
        start, end = session.compaction.at, float(session.compaction.to)
        if start is None and not float(session.compaction.share):
            yield "compaction", "would move nothing: say at which context, or before which share of the calls"
        if end < shared or (start is not None and end >= float(start)):
            yield "compaction.to", f"{end:,.0f} must be at least the shared prefix of {shared:,.0f} and below at"


#: What must hold between the fields of a session.
RULES = (_tables, _gaps, _context)

"""Calls of sessions, drawn from the tables of a session or taken from a trace, and what they say by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.specs import quantiles
from perfmodel.specs.sessions import Session

#: Sessions that are drawn, and calls of one at the most.
SESSIONS, MOST_CALLS = 512, 4096


@dataclass(frozen=True)
class Calls:
    """Calls of sessions, one after the other, the first of a session first.

    Attributes
    ----------
    session : ndarray
        Number of the session that a call belongs to [1].
    prompt, output : ndarray
        Tokens [1].
    reusable : ndarray
        Tokens of the prompt that a cache without limit holds [1]; of a first call those of the shared prefix.
    gap : ndarray
        From the end of the session's call before to the start of this one [s]; NaN of first calls and where unknown.
    by_user : ndarray
        1 where a person sent what is new, 0 where a tool did; NaN where unknown.
    """

    session: Any
    prompt: Any
    output: Any
    reusable: Any
    gap: Any
    by_user: Any

    def __len__(self) -> int:
        return len(self.session)

    @property
    def first(self) -> Any:
        """Whether a call is the first of its session."""
        return np.diff(self.session, prepend=-1) != 0


@dataclass(frozen=True)
class CallFigures:
    """What calls say without any machine.

    Attributes
    ----------
    sessions, calls, tasks : int
        A task lies between two messages of a person; where nobody knows who sent what, it is a session.
    hit_ceiling : float
        Share of prompt tokens that a cache without limit holds [1].
    read_per_written : float
        Tokens that such a cache gives for one that is prefilled [1].
    input_per_output : float
        Prompt tokens for one of an answer [1].
    mean_context, mean_new, mean_output : float
        Prompt, prefilled and answered tokens of a call [1].
    """

    sessions: int
    calls: int
    tasks: int
    hit_ceiling: float
    read_per_written: float
    input_per_output: float
    mean_context: float
    mean_new: float
    mean_output: float


def figures(calls: Calls) -> CallFigures:
    """Return hit ceiling, read over written and input over output of calls."""
    asked, held = float(calls.prompt.sum()), float(calls.reusable.sum())
    count, sessions = len(calls), int(calls.first.sum())
    # The first call of a session begins a task whoever sent it.
    tasks = int(np.sum(calls.first | (calls.by_user == 1)))
    return CallFigures(
        sessions,
        count,
        tasks,
        held / asked,
        held / max(1.0, asked - held),
        asked / max(1.0, float(calls.output.sum())),
        asked / count,
        (asked - held) / count,
        float(calls.output.sum()) / count,
    )


class _Draws:
    """Values of tables, each at shares that lie evenly and in an order of their own, so that every table is met."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def shares(self, count: int) -> Any:
        return (self.generator.permutation(count) + 0.5) / count

    def of(self, table: Mapping[str, Any], count: int) -> Any:
        return quantiles.at(table, self.shares(count))


def drawn(session: Session, longest: float = np.inf, sessions: int = SESSIONS, seed: int = 1) -> Calls:
    """Return calls of sessions drawn from the tables of one kind of session.

    Parameters
    ----------
    session : Session
    longest : float
        Tokens of prompt and answer that the model takes [1]; a session that would pass it ends its context there: it is
        compacted as its spec says, else only a prompt of half that length with the shared prefix is sent.
    sessions : int
    seed : int

    Returns
    -------
    Calls
    """
    draws = _Draws(seed)
    counts = np.clip(np.round(draws.of(session.calls, sessions)), 1, MOST_CALLS).astype(int)
    total = int(counts.sum())
    number = np.repeat(np.arange(sessions), counts)
    start = np.cumsum(counts) - counts
    first = np.zeros(total, dtype=bool)
    first[start] = True
    output = np.maximum(1.0, np.round(draws.of(session.output, total)))
    growth = np.round(draws.of(session.growth, total))
    by_user = draws.shares(total) < float(session.human_share)
    gap = np.where(first, np.nan, 0.0)
    if session.order == "free":
        for table, mine in ((session.human_gap, by_user & ~first), (session.tool_gap, ~by_user & ~first)):
            gap[mine] = draws.of(table, int(mine.sum())) if table else 0.0
    shared = 0.0 if session.shared_prefix is None else float(session.shared_prefix.tokens)
    prompt, cut = _contexts(
        session, draws, draws.of(session.first_context, sessions), growth, output, start, counts, longest
    )
    if session.context:
        prompt = np.minimum(np.maximum(1.0, np.round(_ranked(session.context, prompt))), longest)
    before = np.concatenate(([0.0], prompt[:-1]))
    answered = np.concatenate(([0.0], output[:-1]))
    if session.appended:
        new = np.round(draws.of(session.appended, total))
    else:
        new = growth - (1 - float(session.resent_output)) * answered
    reusable = np.clip(prompt - np.maximum(1.0, new), 0.0, np.minimum(before + answered, prompt - 1))
    begins = np.minimum(shared, prompt - 1)
    reusable = np.where(first | cut, begins, np.maximum(reusable, begins))
    return Calls(number, prompt, output, reusable, gap, by_user.astype(float))


def _ranked(table: Mapping[str, Any], values: Any) -> Any:
    """Return values of a table in the order of given ones."""
    shares = np.empty(len(values))
    shares[np.argsort(values, kind="stable")] = (np.arange(len(values)) + 0.5) / len(values)
    return quantiles.at(table, shares)


def _contexts(
    session: Session, draws: _Draws, begins: Any, growth: Any, output: Any, start: Any, counts: Any, longest: float
) -> tuple[Any, Any]:
    """Return the prompt of every call and whether it was compacted, call by call, all sessions at once."""
    shared = 0.0 if session.shared_prefix is None else float(session.shared_prefix.tokens)
    limit, to = longest, max(shared, longest / 2)
    prompt, cut = np.zeros(len(growth)), np.zeros(len(growth), dtype=bool)
    if session.compaction is not None:
        limit = longest if session.compaction.at is None else min(longest, float(session.compaction.at))
        to = min(float(session.compaction.to), max(shared, limit / 2))
        cut = draws.shares(len(growth)) < float(session.compaction.share)
    # A first context that no model takes is one that was compacted before.
    context = np.where(begins + output[start] > limit, np.minimum(begins, to), np.round(begins))
    for turn in range(int(counts.max())):
        mine = np.flatnonzero(counts > turn)
        at = start[mine] + turn
        if turn:
            longer = context[mine] + growth[at]
            cut[at] |= longer + output[at] > limit
            context[mine] = np.where(cut[at], np.minimum(to, longer), longer)
        prompt[at] = np.maximum(1.0, context[mine])
    return prompt, cut

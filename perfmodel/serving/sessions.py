"""Sessions that come back with a longer context: their law as tables of quantiles, and the calls that stand for it."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import logit, ndtri

from perfmodel.errors import UserError

#: Calls that stand for a traffic, and sessions that they come from at the least.
_CALLS, _SESSIONS = 8000, 160
#: Calls of a session at the most; what is longer is followed so far.
_MOST_TURNS = 2000
#: Score at which shares of 0 and 1 stand, those of the least and the largest that was seen: one in 20,000.
_END = 9.9
#: Share of a call's time that goes with its output tokens, and time of a token that it is at the most [s]; the rest is
#: the same for all calls.  No source: chosen with the calls of WEKA and the simulation of the engine in view.
_DECODING, _TOKEN = 0.7, 0.05
_SEED = 20260701
#: What stands for 0 among logarithms, and shares over which a law is averaged.
_NOTHING = 1e-9
_EVENLY = (np.arange(20000) + 0.5) / 20000


@dataclass(frozen=True)
class Quantiles:
    """A law of a positive quantity as a table of quantiles, between which its logarithm is logistic.

    So the tails beyond the outer quantiles but the last are power laws, as gaps and contexts of sessions have them.

    Attributes
    ----------
    shares : tuple of float
        Rising probabilities from 0 to 1 [1].
    values : tuple of float
        The quantity at each; not falling, not negative.
    average : float, optional
        Its mean, where known: it bends the law between the last two quantiles, where most of a mean may lie.
    """

    shares: tuple[float, ...]
    values: tuple[float, ...]
    average: float | None = None

    def __post_init__(self) -> None:
        shares, values = np.asarray(self.shares, dtype=float), np.asarray(self.values, dtype=float)
        if len(shares) != len(values) or not len(shares):
            raise UserError("quantiles need as many values as shares, one at the least")
        if not (np.all(np.diff(shares) > 0) and shares[0] >= 0 and shares[-1] <= 1):
            raise UserError(f"quantiles {self.shares}: shares must rise, from 0 to 1")
        if not (np.all(np.diff(values) >= 0) and values[0] >= 0 and np.isfinite(values).all()):
            raise UserError(f"quantiles {self.values}: values must be finite, not negative and not fall")

    @classmethod
    def fixed(cls, value: float) -> Quantiles:
        """Return the law of a quantity that is always the same.

        Parameters
        ----------
        value : float
            The quantity.

        Returns
        -------
        Quantiles
        """
        return cls((0.5,), (float(value),))

    def at(self, share: Any) -> Any:
        """Return the quantity at shares, by interpolation of its logarithm over the log odds.

        Parameters
        ----------
        share : ndarray
            Probabilities [1].

        Returns
        -------
        ndarray
        """
        return self._bent(np.asarray(share, dtype=float), self._bend)

    def _bent(self, share: Any, bend: float) -> Any:
        with np.errstate(divide="ignore"):
            knots = np.clip(logit(np.asarray(self.shares, dtype=float)), -_END, _END)
            score = np.clip(logit(share), -_END, _END)
        logs = np.log(np.maximum(self.values, _NOTHING))
        if len(knots) > 1:
            low, high = knots[-2:]
            along = np.clip((score - low) / (high - low), 0.0, 1.0)
            score = np.where(score > low, low + (high - low) * along**bend, score)
        found = np.exp(np.interp(score, knots, logs))
        return np.where(found <= 2 * _NOTHING, 0.0, found)

    @functools.cached_property
    def _bend(self) -> float:
        """Power by which the last interval is bent so that the mean is as stated, as far as it can be."""
        if self.average is None or len(self.shares) == 1:
            return 1.0
        bends = np.geomspace(0.02, 20.0, 61)
        means = [float(self._bent(_EVENLY, bend).mean()) for bend in bends]
        return float(np.exp(np.interp(-self.average, -np.array(means), np.log(bends))))

    @functools.cached_property
    def mean(self) -> float:
        """Mean of the law."""
        return float(self.at(_EVENLY).mean())


@dataclass(frozen=True)
class SessionTraffic:
    """What sessions look like to an engine: the form between a session file and the laws.

    Attributes
    ----------
    turns : Quantiles
        Calls of a session [1].
    first : Quantiles
        Prompt tokens of its first call, shared prefix included [1].
    growth : Quantiles
        Tokens by which the prompt grows from a call to the next, the output of the call included [1].
    output : Quantiles
        Output tokens of a call [1].
    tool_gap : Quantiles
        Time from the end of a call to the next one that a tool's result starts [s].
    human_gap : Quantiles
        Time from the end of a call to the next one that a person starts [s].
    human_share : float
        Share of the calls after the first that a person starts [1].
    context : Quantiles, optional
        Prompt tokens of all calls.  Where given, the contexts that growth makes are stretched to this law, in their
        order: sessions that are long do not grow as fast, which independent laws do not know [1].
    new : Quantiles, optional
        Prompt tokens of a call after the first that no cache can hold; by growth, output and ``resent`` where not
        given [1].
    resent : float
        Share of the output that comes back in other tokens, so that it has to be computed again; counts where ``new``
        is not given [1].
    shared_tokens : float
        Tokens at the head of every context that sessions have in common [1].
    shared_groups : float
        How many such prefixes there are, one a session [1].
    compaction_share : float
        Share of the calls before which the context is compacted [1].
    compacted_to : float
        Tokens that are left of it; all behind the shared prefix is new [1].
    longest : float
        Prompt tokens at which a context is compacted in any case [1].
    fan_out : float
        Sessions that one user keeps open at the same time: itself and its subagents [1].
    ttl : float
        Time for which a cache keeps a context that nobody asks for [s].
    rounds : str
        How benchmarks come back that send one call of every session before the next one: in an order drawn anew
        (``random``) or always the same (``fixed``).  Pauses then do not count for what is found.
    population : float
        Sessions of such a benchmark, whatever the number of calls in flight [1].
    """

    turns: Quantiles
    first: Quantiles
    growth: Quantiles
    output: Quantiles
    tool_gap: Quantiles = field(default_factory=lambda: Quantiles.fixed(0.0))
    human_gap: Quantiles = field(default_factory=lambda: Quantiles.fixed(0.0))
    human_share: float = 1.0
    context: Quantiles | None = None
    new: Quantiles | None = None
    resent: float = 0.0
    shared_tokens: float = 0.0
    shared_groups: float = 1.0
    compaction_share: float = 0.0
    compacted_to: float = 20000.0
    longest: float = math.inf
    fan_out: float = 1.0
    ttl: float = math.inf
    rounds: Literal["", "random", "fixed"] = ""
    population: float = 1.0


@dataclass(frozen=True)
class SessionCalls:
    """Calls of whole sessions, one session behind the other, as one slot runs them.

    Attributes
    ----------
    session : ndarray
        Number of the session of each call, rising.
    thought : ndarray
        Time that the slot has thought when the call starts [s].
    called : ndarray
        Calls that it has made by then [1].
    written : ndarray
        Output tokens that it has written by then, over their mean [1].
    prompt, output : ndarray
        Tokens of the call [1].
    reusable : ndarray
        Prompt tokens that a cache may hold from the call before, or of a prefix that all share [1].
    human : ndarray of bool
        Whether a person started the call.
    all_thought, all_called : float
        Both clocks when the last session ends [s, 1].
    """

    session: Any
    thought: Any
    called: Any
    written: Any
    prompt: Any
    output: Any
    reusable: Any
    human: Any
    all_thought: float
    all_called: float

    @property
    def first(self) -> Any:
        """Which calls are the first of their session."""
        return np.concatenate([[True], np.diff(self.session) != 0])

    @property
    def last(self) -> Any:
        """Which calls are the last of their session."""
        return np.concatenate([np.diff(self.session) != 0, [True]])

    def _writing(self, response: float) -> float:
        """Part of a mean response that goes with the output tokens; what a call waits for does not."""
        return min(_DECODING * response, _TOKEN * float(self.output.mean()))

    def clock(self, response: float) -> Any:
        """Return when each call starts.

        Parameters
        ----------
        response : float
            Mean time of a call [s].

        Returns
        -------
        ndarray
            Time of the slot [s].
        """
        writing = self._writing(response)
        return self.thought + self.called * (response - writing) + self.written * writing

    def took(self, response: float) -> Any:
        """Return how long each call takes.

        Parameters
        ----------
        response : float
            Mean time of a call [s].

        Returns
        -------
        ndarray
            Time [s].
        """
        writing = self._writing(response)
        return response - writing + writing * self.output / self.output.mean()

    def total(self, response: float) -> float:
        """Return the time of the slot at the end of its last session.

        Parameters
        ----------
        response : float
            Mean time of a call [s].

        Returns
        -------
        float
            Time [s].
        """
        return self.all_thought + self.all_called * response

    @functools.cached_property
    def ceiling(self) -> float:
        """Share of the prompt tokens that a cache without bound holds [1]."""
        return float(self.reusable.sum() / self.prompt.sum())

    def seen(self, share: float) -> SessionCalls:
        """Return what one of several replicas sees of the sessions where each call goes to any of them.

        Parameters
        ----------
        share : float
            Chance that a call comes to this replica [1].

        Returns
        -------
        SessionCalls
            What can be used again reaches as far as the least of all calls since; the clocks run on.
        """
        here = np.random.default_rng(_SEED).random(len(self.session)) < share
        here[0] = True
        # The least since the last call that came here: a running minimum that starts anew behind each call here.
        group = np.cumsum(np.concatenate([[1], (here | np.roll(self.first, -1))[:-1]]))
        least = np.minimum.reduceat(self.reusable, np.flatnonzero(np.diff(group, prepend=0)))[group - 1]
        session = self.session[here]
        first = np.concatenate([[True], np.diff(session) != 0])
        shared = float(self.reusable[self.first].mean())
        return SessionCalls(
            session,
            self.thought[here],
            self.called[here],
            self.written[here],
            self.prompt[here],
            self.output[here],
            np.where(first, np.minimum(shared, self.prompt[here]), least[here]),
            self.human[here],
            self.all_thought,
            self.all_called,
        )


def _stratified(generator: Any, law: Quantiles, count: int) -> Any:
    return law.at(generator.permutation((np.arange(count) + 0.5) / count))


@functools.lru_cache(maxsize=64)
def drawn_calls(traffic: SessionTraffic) -> SessionCalls:
    """Return calls that stand for a traffic: evenly spread over each of its laws, which are taken as independent.

    Parameters
    ----------
    traffic : SessionTraffic

    Returns
    -------
    SessionCalls
    """
    generator = np.random.default_rng(_SEED)
    sessions = int(max(_SESSIONS, min(_CALLS, _CALLS / max(1.0, traffic.turns.mean))))
    turns = np.clip(np.round(_stratified(generator, traffic.turns, sessions)), 1, _MOST_TURNS).astype(int)
    count = int(turns.sum())
    session = np.repeat(np.arange(sessions), turns)
    first = np.concatenate([[True], np.diff(session) != 0])
    human = first | (generator.permutation((np.arange(count) + 0.5) / count) < traffic.human_share)
    gaps = _stratified(generator, traffic.tool_gap, count), _stratified(generator, traffic.human_gap, count)
    think = np.where(first, 0.0, np.where(human, gaps[1], gaps[0]))
    output = np.maximum(1.0, _stratified(generator, traffic.output, count))
    growth = _stratified(generator, traffic.growth, count)
    cut = generator.permutation((np.arange(count) + 0.5) / count) < traffic.compaction_share
    shared = float(traffic.shared_tokens)
    opened = np.clip(_stratified(generator, traffic.first, sessions), max(1.0, shared), traffic.longest)
    cut &= ~first
    if traffic.context is None:
        prompt, cut = _contexts(traffic, opened, growth, turns, cut)
    else:
        tried = (_contexts(traffic, order, growth, turns, cut) for order in _orders(generator, opened, turns))
        middle = traffic.context.mean
        prompt, cut = min(tried, key=lambda found: abs(float(found[0].mean()) - middle))
        rank = (np.argsort(np.argsort(prompt, kind="stable")) + 0.5) / count
        prompt = np.clip(traffic.context.at(rank), max(1.0, shared), traffic.longest)
    if traffic.new is None:
        new = growth - (1 - traffic.resent) * np.roll(output, 1)
    else:
        new = _stratified(generator, traffic.new, count)
    held = np.roll(prompt + output, 1)
    reusable = np.clip(np.minimum(prompt - np.maximum(0.0, new), held), shared, prompt)
    reusable = np.where(first | cut, np.minimum(shared, prompt), reusable)
    return calls_of(session, think, prompt, output, reusable, human)


def _orders(generator: Any, opened: Any, turns: Any) -> list[Any]:
    """Return the first contexts in orders from against that of the turns to along with it."""
    score = ndtri((np.argsort(np.argsort(turns, kind="stable")) + 0.5) / len(turns))
    noise = generator.permutation(score)
    orders = (np.argsort(np.argsort(r * score + np.sqrt(1 - r * r) * noise)) for r in np.linspace(-1, 1, 9))
    return [np.sort(opened)[order] for order in orders]


def _contexts(traffic: SessionTraffic, opened: Any, growth: Any, turns: Any, cut: Any) -> tuple[Any, Any]:
    """Return the prompts of sessions that grow, and before which of them the context was compacted."""
    prompt, cut = np.empty(len(growth)), cut.copy()
    at = 0
    for context, calls in zip(opened, turns, strict=True):
        for step in range(at, at + calls):
            if step > at:
                context += growth[step]
                if cut[step] or context > traffic.longest:
                    cut[step] = True
                    context = max(min(traffic.compacted_to, context), traffic.shared_tokens, 1.0)
            prompt[step] = context
        at += calls
    return prompt, cut


def calls_of(session: Any, think: Any, prompt: Any, output: Any, reusable: Any, human: Any) -> SessionCalls:
    """Return the calls of sessions of which each call is known, a recorded trace for instance.

    Parameters
    ----------
    session : ndarray
        Number of the session of each call, rising.
    think : ndarray
        Time between the end of the call before and the start of this one; that of the first of a session does not
        count [s].
    prompt, output, reusable : ndarray
        Tokens [1].
    human : ndarray of bool
        Whether a person started the call.

    Returns
    -------
    SessionCalls
    """
    first = np.concatenate([[True], np.diff(session) != 0])
    thought = np.cumsum(np.where(first, 0.0, think))
    written = np.cumsum(output) / output.mean()
    return SessionCalls(
        session,
        thought,
        np.arange(len(thought), dtype=float),
        written - output / output.mean(),
        prompt,
        output,
        reusable,
        human,
        float(thought[-1]),
        float(len(thought)),
    )

"""Steps of an engine whose prefill alternates with decoding, as a Markov chain of prefill work.

A step takes in the prompts that arrived during the one before: its work is a compound sum over the arrivals within that
one (a number of Panjer's class, sizes from the table of lengths, each prompt's time by how many share the step), and
what is beyond the token budget waits.  The stationary law gives the gaps between tokens; the step that an arrival
finds, the prompts beside it and its own give the time to its first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from perfmodel.serving.arrivals import counts
from perfmodel.serving.lattice import PLACES, STATES, folded, on_lattice, transform
from perfmodel.serving.laws import Law
from perfmodel.serving.step_times import between

#: Groups of states by which an arrival finds a step.
_FOUND = 16
#: Ages of that step, for prompts that are ahead in a full one.
_AGES = np.array([1 / 6, 0.5, 5 / 6])
#: Rounds that settle the time of a mean step.
_ROUNDS = 12
#: Steps until the own arrival is forgotten.
WAKE = 12

#: Chance below which a state is not left.
_NEVER = 1e-100


@dataclass(frozen=True)
class Prompts:
    """Prompts of a load: their arrivals, and what each takes.

    Attributes
    ----------
    rate : float
        Arrivals [1/s].
    weight : ndarray
        Shares of kinds of prompts [1].
    coscheduled : sequence of float
        Numbers of prompts in a step for which times are told, rising, two at least [1].
    times : ndarray
        Time that a prompt takes from decoding, by coscheduled and kind [s].
    dispersion : callable
        Variance over mean of the arrivals in a window, by its length [1].
    excess : callable
        Arrivals in a time after an arrival, beyond those at any time, by that time [1].
    """

    rate: float
    weight: Any
    coscheduled: Sequence[float]
    times: Any
    dispersion: Any
    excess: Any

    @cached_property
    def _means(self) -> tuple[Any, Any]:
        return self.times @ self.weight, self.times**2 @ self.weight

    def took(self, coscheduled: float) -> Any:
        """Time of a prompt of each kind in a step of so many [s].

        Parameters
        ----------
        coscheduled : float
            Prompts [1].

        Returns
        -------
        ndarray
            Times [s].
        """
        at, part = between(self.coscheduled, coscheduled)
        return self.times[at] * (1 - part) + self.times[at + 1] * part

    def mean(self, coscheduled: float) -> float:
        """Mean time of a prompt in a step of so many [s].

        Parameters
        ----------
        coscheduled : float
            Prompts [1].

        Returns
        -------
        float
            Time [s].
        """
        return float(np.interp(coscheduled, self.coscheduled, self._means[0]))

    def square(self, coscheduled: float) -> float:
        """Mean square of it [s2].

        Parameters
        ----------
        coscheduled : float
            Prompts [1].

        Returns
        -------
        float
            Mean square [s2].
        """
        return float(np.interp(coscheduled, self.coscheduled, self._means[1]))


@dataclass(frozen=True)
class Steps:
    """Stationary law of the prefill work before a step.

    Attributes
    ----------
    step, full : float
        Decoding in a step, and the prefill that it takes at most [s].
    unit : float
        Of the lattice [s].
    law : ndarray
        Probability of the work that waits as a step begins, on the lattice [1].
    chain : ndarray
        Probability of the work of the next step, one row a state [1].
    sums : ndarray
        Law of the work of 0, 1, 2, ... prompts, on the lattice [1].
    prompts : Prompts
    """

    step: float
    full: float
    unit: float
    law: Any
    chain: Any
    sums: Any
    prompts: Prompts

    @property
    def lengths(self) -> Any:
        """Time of a step at each work that waits [s]."""
        return self.step + np.minimum(np.arange(len(self.law)) * self.unit, self.full)

    @property
    def mean(self) -> float:
        """Mean time of a step [s]."""
        return float(np.sum(self.law * self.lengths))

    def arriving(self, window: Any) -> Any:
        """Law of the work that arrives in windows, on the lattice.

        Parameters
        ----------
        window : ndarray
            Times [s].

        Returns
        -------
        ndarray
            Probabilities, one row a window [1].
        """
        spread = np.maximum(0.05, self.prompts.dispersion(window))
        return counts(self.prompts.rate * window, spread, len(self.sums) - 1) @ self.sums

    def joined(self, window: Any) -> Any:
        """Law of the work of a prompt and of those that arrive in the window in which it does, on the lattice.

        Parameters
        ----------
        window : ndarray
            Times [s].

        Returns
        -------
        ndarray
            Probabilities, one row a window [1].
        """
        spread = np.maximum(0.05, self.prompts.dispersion(window))
        others = np.maximum(0.0, self.prompts.rate * window + spread - 1)
        # What a prompt takes hangs on how many there are, so that its own is in their sum.
        return counts(others, spread, len(self.sums) - 2) @ self.sums[1:]


def steps_of(prompts: Prompts, step: float, full: float) -> Steps:
    """Work out the stationary law of the work before a step.

    Parameters
    ----------
    prompts : Prompts
    step, full : float
        Decoding in a step, and the prefill that it takes at most [s].

    Returns
    -------
    Steps
    """
    rate = prompts.rate
    longest = float(prompts.took(1.0).max())
    cycle = step
    for _ in range(_ROUNDS):
        # From below: the more prompts come in one step, the less each of them takes.
        mean = prompts.mean(1 + rate * cycle)
        cycle = min(step + full, max(step, 1e-3 * mean) + rate * cycle * mean)
    square, used = prompts.square(1 + rate * cycle), min(0.97, rate * mean)
    bunch = max(1.0, float(prompts.dispersion(np.array([10 * cycle]))[0]))
    spread = np.sqrt(rate * cycle * square * bunch / (1 - used * used)) + square / mean
    most = used * cycle + 6 * spread + 1.5 * longest
    if most > full:
        load = min(0.99, rate * prompts.mean(1 + rate * (step + full)) * (1 + step / full))
        most = min(most, full) + 2 * longest + 3 * bunch * rate * square * (1 + step / full) / (1 - load)
    # Places of the lattice reach beyond a step without prefill, too.
    unit = max(most / STATES, step / (PLACES - STATES))
    # A limit that takes no time is none.
    full = max(full, unit)
    if full < most:
        # A full step ends on a place of the lattice.
        unit = full / np.ceil(full / unit)
    arriving = rate * (step + min(full, most))
    number = int(min(96, arriving + 5 * np.sqrt(arriving * bunch) + 5))
    sums = np.zeros((number + 1, PLACES))
    sums[0, 0] = 1.0
    known = np.unique(np.round(np.geomspace(1.0, number, 12)))
    each = np.array([on_lattice(prompts.took(one), prompts.weight, unit, PLACES) for one in known.tolist()])
    powers = np.arange(1, number + 1)
    sums[1:] = folded(transform(each)[np.searchsorted(known, powers, side="right") - 1] ** powers[:, None], PLACES)
    sums[:, -1] += 1 - sums.sum(axis=1)
    found = Steps(step, full, unit, np.zeros(STATES), np.zeros((1, 1)), sums, prompts)
    lengths = found.lengths
    last = min(STATES - 1, int(np.ceil(full / unit - 1e-9)))
    rows = found.arriving(lengths[: last + 1])
    if step <= 1e-6 * mean:
        # Nothing decodes: the next step begins as a prompt arrives.
        rows[0] = sums[1]
    chain = np.zeros((STATES, STATES))
    chain[: last + 1] = rows[:, :STATES]
    for state in range(last + 1, STATES):
        left = state - last
        chain[state, left:] = rows[last, : STATES - left]
    chain[:, -1] += 1 - chain.sum(axis=1)
    law = stationary_law(chain)
    return Steps(step, full, unit, law / law.sum(), chain, sums, prompts)


def following(steps: Steps, own_work: Any, most: int) -> tuple[Any, Any]:
    """Return the laws of the work of the steps after the one with the own prefill, and the arrivals that they hold.

    Parameters
    ----------
    steps : Steps
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].
    most : int
        Steps.

    Returns
    -------
    tuple of ndarray
        Probabilities, one row a step [1], and arrivals over those at any time, which differ where arrivals bunch [1].
    """
    lengths, prompts = steps.lengths, steps.prompts
    last = min(STATES - 1, int(np.ceil(steps.full / steps.unit - 1e-9)))
    half, own = float(np.sum(steps.law * lengths**2)) / (2 * steps.mean), float(own_work @ lengths)
    ages = half + np.concatenate([[0.0], own + steps.mean * np.arange(WAKE)])
    known = np.maximum(0.0, 1 + np.diff(prompts.excess(ages)) / (prompts.rate * np.diff(ages)))
    state, laws, shares = own_work, np.empty((most, STATES)), np.ones(most)
    for index in range(most):
        after = state @ steps.chain
        if index < WAKE and known[index] != 1.0:
            share = shares[index] = float(known[index])
            # Fewer or more arrivals than at any time: less or more of a step like that, for one with none.
            none = np.concatenate([[state[: last + 1].sum()], state[last + 1 :], np.zeros(last)])
            after = np.maximum(0.0, share * after + (1 - share) * none)
            after = after / after.sum()
        state = laws[index] = after
    return laws, shares


def gaps(steps: Steps, own_work: Any, survival: Any) -> Law:
    """Return the law of the time between two tokens, over all tokens of all requests.

    Parameters
    ----------
    steps : Steps
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].
    survival : ndarray
        Gaps of a request that are its 1st, 2nd, ... over all; what is left is far from the prefill [1].

    Returns
    -------
    Law
    """
    mass = survival @ following(steps, own_work, len(survival))[0]
    mass = mass + max(0.0, 1 - float(survival.sum())) * steps.law
    lengths = steps.lengths
    return Law(lengths, np.cumsum(mass), float(np.sum(mass * lengths)))


def residuals(steps: Steps) -> Law:
    """Return the law of the rest of the step that an arrival finds under way.

    Parameters
    ----------
    steps : Steps

    Returns
    -------
    Law
    """
    lengths, mean = steps.lengths, steps.mean
    longer = 1 - np.concatenate([[0.0], np.cumsum(steps.law)[:-1]])
    # A rest is as likely to be each time as a step is to last longer.
    shares = np.cumsum(np.diff(lengths, prepend=0.0) * longer) / mean
    rest = float(np.sum(steps.law * lengths**2)) / (2 * mean)
    return Law(np.concatenate([[0.0], lengths]), np.concatenate([[0.0], np.minimum(1.0, shares)]), rest)


def _groups(steps: Steps, group: Any, last: int) -> tuple[Any, Any, Any]:
    """Return chance, mean length [s] and work before them of groups of steps that an arrival finds, by length.

    ``found`` is the chance of each length, ``last`` the first one that holds work for later steps too.
    """
    lengths = steps.lengths
    # Groups thin out towards the long steps, in which percentiles are read.
    level = np.minimum(_FOUND - 1, (_FOUND * (1 - np.maximum(0.0, 1 - np.cumsum(group)) ** 0.4)).astype(int))
    level[last + 1 :] = _FOUND
    chance, window, before = [], [], []
    for value in np.unique(level):
        same = level == value
        total = float(group[same].sum())
        if total <= 1e-9:
            continue
        chance.append(total)
        window.append(float(np.sum(group[same] * lengths[same])) / total)
        left = np.zeros(PLACES)
        left[0] = 1.0
        if value == _FOUND:
            left[:] = 0.0
            rest = group * same / total
            left[: len(group) - last] = rest[last:]
        before.append(left)
    return np.array(chance), np.maximum(np.array(window), 1e-6 * steps.unit), np.array(before)


def first_tokens(steps: Steps) -> tuple[Law, Any]:
    """Return the laws of the time to the first token of a request that finds a step under way, and of its step's work.

    Parameters
    ----------
    steps : Steps

    Returns
    -------
    tuple of Law and ndarray
        The latter on the states of the chain.
    """
    unit, full, step = steps.unit, steps.full, steps.step
    lengths = steps.lengths
    law = steps.law * lengths
    law = law / law.sum()
    # Of arrivals that keep apart, or bunch, the step that one finds holds fewer prompts, or more.
    half = float(law @ lengths) / 2
    earlier = np.diff(steps.prompts.excess(np.array([half, half + steps.mean])))
    share = max(0.0, 1 + float(earlier[0]) / (steps.prompts.rate * steps.mean))
    law = np.maximum(0.0, share * law)
    law[0] = max(0.0, law[0] + 1 - share)
    law = law / law.sum()
    last = min(len(law) - 1, int(np.ceil(full / unit - 1e-9)))
    chances, windows, before = _groups(steps, law, last)
    ahead_of = transform(before)
    beside = folded(ahead_of * transform(steps.joined(windows)), PLACES)
    work = (chances @ beside)[:STATES]
    # Of full steps, which hold work for later ones too, each is as likely as the next.
    over = steps.law[last:] / max(1e-300, float(steps.law[last:].sum()))
    work[last:] = over * max(0.0, 1 - float(work[:last].sum()))
    place = np.arange(PLACES)
    # What is ahead and the own prompt decide in which step it is through; those behind fill that step up.
    within = place * unit < full - unit / 2
    if float(np.sum(chances @ (beside * ~within))) > 1e-4:
        ahead = sum(steps.joined(windows * age) for age in _AGES) / len(_AGES)
        ahead = folded(ahead_of * transform(ahead), PLACES)
        taken = np.maximum(1.0, np.ceil(place * unit / full - 1e-9))
        share = min(1.0, steps.prompts.rate * steps.prompts.mean(1 + steps.prompts.rate * steps.mean))
        fill = share * (float(chances @ windows) / 2 + (taken - 1) * (full + step))
        through = place * unit + np.minimum(fill, taken * full - place * unit) + (taken - 1) * step
        stretched = np.zeros_like(beside)
        stretched[:, within] = beside[:, within]
        topped = np.maximum(0.0, np.sum(ahead * within, axis=1) - np.sum(beside * within, axis=1))
        spill = np.array([on_lattice(through[~within], row[~within], unit, PLACES) for row in ahead])
        stretched += spill
        stretched[:, min(PLACES - 1, round(full / unit))] += topped
        beside = stretched
    residual = np.clip((windows[:, None] - place * unit) / unit, 0.0, 1.0) * (unit / windows[:, None])
    residual /= residual.sum(axis=1, keepdims=True)
    sums = transform(beside) * transform(residual)
    mass = np.maximum(0.0, chances @ np.fft.irfft(sums, 2 * PLACES))
    times = (np.arange(len(mass)) + 0.5) * unit + step
    shares = np.cumsum(mass)
    shares /= shares[-1]
    return Law(times, shares, float(np.sum(mass * times) / mass.sum())), work / work.sum()


def stationary_law(chain: Any) -> Any:
    """Return the law that a chain keeps, state by state taken out without a subtraction (Grassmann, Taksar, Heyman).

    Parameters
    ----------
    chain : ndarray
        Probability of the next state, one row a state [1].

    Returns
    -------
    ndarray
        Probabilities [1].
    """
    left = chain.copy()
    for last in range(len(left) - 1, 0, -1):
        # A state that no lower one is reached from is as good as absorbing.
        left[:last, last] /= max(float(left[last, :last].sum()), _NEVER)
        left[:last, :last] += left[:last, last, None] * left[last, None, :last]
    law = np.zeros(len(left))
    law[0] = 1.0
    for state in range(1, len(left)):
        law[state] = law[:state] @ left[:state, state]
        if law[state] > 1 / _NEVER:
            law /= law[state]
    return law / law.sum()

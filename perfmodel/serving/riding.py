"""Laws of what a request meets where prompts ride along with decoding.

Prompts wait in a queue of one server, whose law is a geometric sum of residual slots (Pollaczek and Khinchine).  Steps
that a prompt rides along with are longer, and bring the arrivals of that time: the total over a request is a branching
sum, whose characteristic function follows from one recursion over the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.equations import batching, queueing
from perfmodel.serving.lattice import PLACES, on_lattice
from perfmodel.serving.laws import Law, gamma_quantiles
from perfmodel.serving.lives import MANY
from perfmodel.serving.steps import Prompts

#: Times of a prompt that stand for its law in the recursion over steps.
_SIZES = 28
#: Arrivals over which their spread is that of the long run.
_LONG = 1e3


@dataclass(frozen=True)
class Riding:
    """Where prompts ride along with decoding: the wait for one's turn, and what rides cost tokens."""

    wait: Law
    gaps: Law
    prompts: Prompts
    step: float
    full: float

    @property
    def mean(self) -> float:
        """Mean time of a step [s]."""
        return self.gaps.average

    def lives(self, number: Any) -> list[Law]:
        """Return the laws of the mean time between tokens over numbers of steps.

        Parameters
        ----------
        number : ndarray
            Steps, whole numbers of at least 1 [1].

        Returns
        -------
        list of Law
        """
        return riding_lives(self.prompts, self.step, self.full, number)


def riding_lives(prompts: Prompts, step: float, full: float, number: Any) -> list[Law]:
    """Return the law of the mean time between tokens over each number of steps, where prompts ride along.

    Parameters
    ----------
    prompts : Prompts
    step, full : float
        Decoding in a step, and what rides at most add to it [s].
    number : ndarray
        Steps, whole numbers of at least 1 [1].

    Returns
    -------
    list of Law
    """
    rate, longest = prompts.rate, step + full
    mean, square = prompts.mean(1.0), prompts.square(1.0)
    used = min(0.97, rate * mean)
    drawn = used * (1 - used**number) / (1 - used)
    usual = step / (1 - used)
    totals = number * usual + (step + mean - usual) * drawn
    single = batching.cycle_variance(cycle=usual, rate=rate, prefill_square=square, prefilling=used)
    spreads = batching.life_variance(variance=single, cycles=number, prefilling=used)
    spreads = np.maximum(single * 0.1, spreads) + drawn**2 * (square - mean**2)
    # Arrivals that bunch bring their prefills together: the spread about the mean grows.
    bunch = np.maximum(0.05, prompts.dispersion(totals))
    stretch = np.sqrt(np.maximum(0.05, 1 + (bunch - 1) * mean * mean / square))
    later = np.maximum(0.0, bunch - 1) / 2 * mean / (1 - used)
    few = rate * totals <= MANY
    reach = totals - number * step + 8 * np.sqrt(spreads)
    sums = _branching(prompts, step, number[few], float(reach[few].max())) if few.any() else []
    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    laws, at = [], iter(sums)
    for count, total, spread, wide, more, exact in zip(number, totals, spreads, stretch, later, few, strict=True):
        if exact:
            times, shares, average = next(at)
        else:
            least = 0.8 * count * step
            times, shares, average = least + gamma_quantiles(total - least, spread, edge), edge, total
        times = np.maximum(count * step, more + average + (times - average) * wide) / count
        laws.append(Law(np.minimum(times, longest), shares, min(longest, (average + more) / count)))
    return laws


def _branching(prompts: Prompts, step: float, number: Any, reach: float) -> list[tuple[Any, Any, float]]:
    """Return times, shares and mean of the total of each number of steps, for Poisson arrivals."""
    took = prompts.took(1.0)
    longest = float(took.max())
    unit, size = (reach + 2 * longest) / PLACES, longest / _SIZES
    # Times of a prompt lie on places of the lattice of sums.
    unit, size = (size / np.floor(size / unit), size) if unit <= size else (unit, unit)
    most = int(np.ceil(longest / size)) + 2
    sizes = on_lattice(took, prompts.weight, size, most)
    angle = 2j * np.pi * np.fft.rfftfreq(2 * PLACES, d=unit)

    def of(masses: Any, exponent: Any) -> Any:
        """Return the transform of a prompt's time at an exponent: a polynomial in one exponential."""
        base = np.exp(exponent * size)
        value = np.full_like(base, masses[-1])
        for mass in masses[-2::-1]:
            value = value * base + mass
        return value

    wanted = sorted({int(count) for count in number})
    growth, total = np.zeros_like(angle), np.zeros_like(angle)
    states: dict[int, tuple[Any, Any]] = {}
    for index in range(1, wanted[-1] + 1):
        before = growth
        # What the steps take without prefill is left out of the total.
        total = total + growth * step
        growth = prompts.rate * (of(sizes, growth - angle) - 1)
        states[index] = total, growth
        if index > 2 and float(np.max(np.abs(growth - before))) * wanted[-1] * step < 1e-2:
            break
    last = max(states)
    branches = []
    for count in (int(count) for count in number):
        at = min(count, last)
        total, growth = states[at]
        total = total + (count - at) * growth * step
        mass = np.maximum(0.0, np.fft.irfft(np.exp(total + growth * step) * of(sizes, growth), 2 * PLACES))
        times = count * step + np.arange(2 * PLACES) * unit
        shares = np.cumsum(mass)
        branches.append((times, shares / shares[-1], float(np.sum(mass * times) / shares[-1])))
    return branches


def single_file(prompts: Prompts, slot: Any) -> tuple[Law, float]:
    """Return the law of the wait for one's turn where prompts follow each other, and the share of time it is taken.

    Parameters
    ----------
    prompts : Prompts
    slot : ndarray
        Time until the next prompt can start, each kind [s].

    Returns
    -------
    tuple of Law and float
    """
    mean, square = float(np.sum(prompts.weight * slot)), float(np.sum(prompts.weight * slot**2))
    used = min(0.995, prompts.rate * mean)
    wait = prompts.rate * square / 2 / (1 - used)
    unit = (8 * wait / used + 2 * float(slot.max())) / PLACES
    mass = on_lattice(slot, prompts.weight, unit, PLACES)
    # The residual time is as likely to lie in each place as the slot is to reach beyond it.
    residual = (1 - np.cumsum(mass) + mass / 2) * unit / mean
    residual = np.maximum(0.0, residual) / max(1e-300, float(np.maximum(0.0, residual).sum()))
    transform = (1 - used) / (1 - used * np.fft.rfft(residual, 4 * PLACES))
    law = np.maximum(0.0, np.fft.irfft(transform, 4 * PLACES))
    scv = float(prompts.dispersion(np.array([_LONG / prompts.rate]))[0])
    spread = max(0.05, square / mean**2 - 1)
    factor = (scv + spread) / (1 + spread)
    factor *= float(queueing.arrival_correction(utilisation=used, arrival_scv=scv, service_scv=spread))
    shares = np.cumsum(law)
    times = np.arange(len(law)) * unit * factor
    return Law(times, shares / shares[-1], wait * factor), used

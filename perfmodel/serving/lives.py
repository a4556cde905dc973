"""Laws of the mean time between tokens over a request, where prefill alternates with decoding.

A request of n tokens spans n - 1 steps, each the seed of the next.  Few prompts in them are followed by their number,
step by step, at each frequency of the characteristic function; many make a gamma law of the right moments; where steps
are often full a beta law between an empty and a full step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perfmodel.serving.arrivals import counts
from perfmodel.serving.laws import Law, gamma_quantiles
from perfmodel.serving.steps import WAKE, Steps, following

#: Prefills that a request meets from which on their sum is near a gamma law.
MANY = 24.0
#: Prompts in a step up to which their number is followed, and frequencies at which that is done.
_TOGETHER, _FREQUENCIES = 14, 192
#: Share of full steps from which on their limit shapes the law of a life, and steps of which it is followed.
_OFTEN_FULL, _EACH = 0.02, 64


def _prefill_after(steps: Steps, number: Any, own_work: Any) -> tuple[Any, Any, Any]:
    """Return mean and variance of the prefill in numbers of steps after the own one, and their arrivals [s, s2, 1]."""
    chain, lengths = steps.chain, steps.lengths - steps.step
    most = int(min(_EACH, number.max()))
    moments = np.zeros((len(lengths), 2))
    mean, variance = [0.0], [0.0]
    for index in range(1, most + 1):
        # The total over one step more: that step, and then the total from where it leads.
        first, second = moments.T
        moments = chain @ np.stack([lengths + first, lengths**2 + 2 * lengths * first + second], axis=1)
        mean.append(float(own_work @ moments[:, 0]))
        variance.append(max(0.0, float(own_work @ moments[:, 1]) - mean[-1] ** 2))
        if index > WAKE and abs(mean[-1] - 2 * mean[-2] + mean[-3]) <= 1e-4 * (mean[-1] - mean[-2]):
            break
    most = len(mean) - 1
    laws, shares = following(steps, own_work, min(most, WAKE))
    if np.any(shares != 1.0):
        laws, shares = following(steps, own_work, most)
        shift = np.concatenate([[0.0], np.cumsum(laws @ lengths)]) - np.array(mean)
    else:
        shift = np.zeros(most + 1)
    known = np.minimum(number, most).astype(int)
    more = np.maximum(0.0, number - known)
    means, variances = np.array(mean), np.array(variance)
    return (
        means[known] + more * (means[known] - means[known - 1]) + shift[known],
        variances[known] + more * np.maximum(0.0, variances[known] - variances[known - 1]),
        shares,
    )


def lives(steps: Steps, number: Any, own_work: Any) -> list[Law]:
    """Return the law of the mean time between tokens over each number of steps that follow a prefill.

    Parameters
    ----------
    steps : Steps
    number : ndarray
        Steps, whole numbers of at least 1 [1].
    own_work : ndarray
        Law of the work as the step begins that holds the own prefill [1].

    Returns
    -------
    list of Law
    """
    mean, variance, shares = _prefill_after(steps, number, own_work)
    if float(steps.law[steps.lengths >= steps.step + steps.full - steps.unit / 2].sum()) > _OFTEN_FULL:
        return [_between_full(steps, *each) for each in zip(number, mean, variance, strict=True)]
    prompts, step, longest = steps.prompts, steps.step, steps.step + steps.full
    took = prompts.took(1 + prompts.rate * steps.mean)
    alike = float(np.sum(took * prompts.weight)) ** 2 / float(np.sum(took**2 * prompts.weight))
    # Arrivals that bunch bring their prefills together, beyond those of one step, which the chain knows.
    bunch, known = (np.maximum(0.05, prompts.dispersion(span)) for span in (number * step + mean, steps.mean))
    wider = np.sqrt(np.maximum(0.05, 1 + (bunch - 1) * alike) / np.maximum(0.05, 1 + (known - 1) * alike))
    arriving = prompts.rate * float(np.sum(steps.law * steps.lengths**2)) / steps.mean
    most = int(np.ceil(arriving + 4 * np.sqrt(arriving * max(1.0, float(known)))) + 3)
    few = (prompts.rate * (number * step + mean) <= MANY) & (most <= _TOGETHER)
    reach = mean + 8 * np.sqrt(variance)
    sums = _followed(steps, number[few], own_work, shares, float(reach[few].max()), most) if few.any() else []
    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    laws, at = [], iter(sums)
    for index, count in enumerate(number):
        if few[index]:
            times, level, average = next(at)
        else:
            # Steps of decoding differ less than prefills do.
            least = -0.2 * count * step
            times, level = least + gamma_quantiles(mean[index] - least, variance[index], edge), edge
            average = mean[index]
        times = np.maximum(0.0, average + (times - average) * wider[index])
        laws.append(Law(np.minimum(step + times / count, longest), level, min(longest, step + average / count)))
    return laws


def _between_full(steps: Steps, count: float, mean: float, variance: float) -> Law:
    """Return a law of :func:`lives` where steps are often full: a beta law between an empty and a full step."""
    from scipy.special import betaincinv

    edge = 1 - (1 - (np.arange(200) + 0.5) / 200) ** 1.5
    part = min(1 - 1e-6, max(1e-6, mean / count / steps.full))
    spread = max(1e-9, variance / (count * steps.full) ** 2)
    size = max(1e-3, part * (1 - part) / spread - 1)
    times = steps.step + steps.full * betaincinv(part * size, (1 - part) * size, edge)
    return Law(times, edge, steps.step + part * steps.full)


def _followed(
    steps: Steps, number: Any, own_work: Any, shares: Any, reach: float, most: int
) -> list[tuple[Any, Any, float]]:
    """Return times, shares and mean of the prefill in each number of steps, by the chain of prompts in a step.

    Prompts of a step bring its work, which brings the arrivals of its time: the transform of the total is a product of
    matrices over the number of prompts, at each frequency.
    """
    places = _FREQUENCIES
    # A coarser lattice, where the total reaches beyond the places.
    unit = steps.unit * max(1.0, np.ceil(reach / places / steps.unit))
    # A full step leaves work to the next one, which changes where it lies but not how much there is.
    work = np.arange(len(steps.law)) * steps.unit
    kept = max(2, int(np.ceil(work[-1] / unit)) + 2)
    into = np.maximum(0.0, 1 - np.abs(work[:, None] / unit - np.arange(kept)))
    brought = steps.sums[: most + 1, : len(work)] @ into
    brought[:, -1] += 1 - brought.sum(axis=1)
    lengths = steps.step + np.arange(kept) * unit
    spread = np.maximum(0.05, steps.prompts.dispersion(lengths))
    arriving = counts(steps.prompts.rate * lengths, spread, most)
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(2 * places)[:, None] * np.arange(kept))
    both = (brought.T[:, :, None] * arriving[:, None, :]).reshape(kept, -1)
    matrix = (turn @ both).reshape(-1, most + 1, most + 1)
    alone = turn @ brought.T
    none = np.zeros(most + 1)
    none[0] = 1.0
    state = np.broadcast_to(shares[0] * (own_work @ into @ arriving) + (1 - shares[0]) * none, (len(turn), most + 1))
    wanted = sorted({int(count) for count in number})
    values = [np.ones(len(turn), dtype=complex)]
    for index in range(1, wanted[-1] + 1):
        share = shares[index] if index < len(shares) else 1.0
        leads = (state[:, None, :] @ matrix)[:, 0, :]
        values.append(leads.sum(axis=1))
        state = leads if share == 1.0 else share * leads + (1 - share) * np.sum(state * alone, axis=1)[:, None] * none
        if index > WAKE:
            ratio = values[-1] / np.where(np.abs(values[-2]) < 1e-12, 1.0, values[-2])
            before = values[-2] / np.where(np.abs(values[-3]) < 1e-12, 1.0, values[-3])
            if float(np.max(np.abs(values[-1]) * np.abs(ratio - before))) * wanted[-1] < 1e-2:
                break
    last, states = len(values) - 1, []
    for count in (int(count) for count in number):
        value = values[count] if count <= last else values[last] * ratio ** (count - last)
        mass = np.maximum(0.0, np.fft.irfft(value, 2 * places))
        times, shares = np.arange(2 * places) * unit, np.cumsum(mass)
        states.append((times, shares / shares[-1], float(np.sum(mass * times) / shares[-1])))
    return states

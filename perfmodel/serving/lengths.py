"""How long prompts and outputs are: weighted points of their joint distribution, never only means."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

#: Points along each of prompt and output of a distribution given by mean and spread.
_POINTS = 24


@dataclass(frozen=True)
class Lengths:
    """A joint distribution of prompt and output tokens as weighted points.

    Attributes
    ----------
    prompt, output, weight : ndarray
        One entry a point; the weights add up to 1.
    """

    prompt: Any
    output: Any
    weight: Any

    def mean(self, values: Any) -> float:
        """Mean of something that each point has.

        Parameters
        ----------
        values : ndarray
            One entry a point.

        Returns
        -------
        float
        """
        return float(np.sum(self.weight * values))

    def draw(self, generator: Any, count: int) -> tuple[Any, Any]:
        """Draw so many requests.

        Parameters
        ----------
        generator : numpy.random.Generator
        count : int

        Returns
        -------
        tuple of ndarray
            Prompt and output tokens [1].
        """
        at = generator.choice(len(self.weight), size=count, p=self.weight)
        return self.prompt[at], self.output[at]

    def upto(self, longest: float) -> Lengths:
        """Return the requests of no more tokens than given.

        Parameters
        ----------
        longest : float
            Tokens of prompt and output together [1].

        Returns
        -------
        Lengths
        """
        fits = self.prompt + self.output <= longest
        weight = self.weight[fits]
        return Lengths(self.prompt[fits], self.output[fits], weight / max(1e-300, float(weight.sum())))


def spread(mean: float, scv: float, points: int = _POINTS) -> tuple[Any, Any]:
    """Return values and weights of a lognormal: means of its slices, so that its mean is kept.

    Parameters
    ----------
    mean, scv : float
        Mean and squared coefficient of variation.
    points : int
        Slices; the upper tail is cut finer.

    Returns
    -------
    tuple of ndarray
    """
    if scv <= 0:
        return np.array([mean]), np.array([1.0])
    from scipy.special import ndtr, ndtri

    sigma = np.sqrt(np.log1p(scv))
    half = np.linspace(0.0, 1.0, points + 1)
    # Slices thin out towards the tail, where P99 is read.
    edge = 1 - (1 - half) ** 1.7
    with np.errstate(divide="ignore"):
        z = ndtri(edge)
    weight = np.diff(edge)
    share = np.diff(ndtr(z - sigma))
    return mean * share / weight, weight


def lognormal(prompt: float, prompt_scv: float, output: float, output_scv: float) -> Lengths:
    """Return independent lognormal lengths; 0 spread gives fixed ones.

    Parameters
    ----------
    prompt, output : float
        Mean tokens [1].
    prompt_scv, output_scv : float
        Squared coefficients of variation [1].

    Returns
    -------
    Lengths
    """
    p, wp = spread(prompt, prompt_scv)
    d, wd = spread(max(1.0, output), output_scv)
    grid = np.meshgrid(p, d, indexing="ij")
    return Lengths(np.maximum(1.0, grid[0].ravel()), np.maximum(1.0, grid[1].ravel()), np.outer(wp, wd).ravel())


def empirical(prompt: Any, output: Any, points: int = _POINTS) -> Lengths:
    """Return the lengths of a trace: groups of equal size by prompt and, within each, by output, at their means.

    Parameters
    ----------
    prompt, output : ndarray
        Tokens of each request [1].
    points : int
        Groups by prompt, and by output within each.

    Returns
    -------
    Lengths
    """
    prompt, output = np.asarray(prompt, dtype=float), np.asarray(output, dtype=float)
    order = np.argsort(prompt, kind="stable")
    p, d, w = [], [], []
    for group in _slices(order, points):
        inner = group[np.argsort(output[group], kind="stable")]
        for part in _slices(inner, points):
            p.append(prompt[part].mean())
            d.append(output[part].mean())
            w.append(len(part) / len(prompt))
    return Lengths(np.array(p), np.maximum(1.0, np.array(d)), np.array(w))


def _slices(order: Any, points: int) -> list[Any]:
    """Cut an order into slices that thin out towards its end."""
    edges = np.unique(np.round(len(order) * (1 - (1 - np.linspace(0.0, 1.0, points + 1)) ** 1.7)).astype(int))
    return [order[low:high] for low, high in pairwise(edges)]

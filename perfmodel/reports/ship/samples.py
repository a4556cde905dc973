"""The two production samples of the paper, as truncated lognormals of the total length of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

KI = 1024.0


@dataclass(frozen=True)
class Sample:
    """Total tokens of a request: a lognormal cut at the longest request seen.

    ``mean``, ``longest`` and ``below_8ki`` are published; ``mu`` and ``sigma`` are fitted to mean and share.
    """

    name: str
    mu: float
    sigma: float
    longest: float
    mean: float
    below_8ki: float

    def _moment(self, power: float, upto: float | None = None) -> float:
        """Return E[L^power; L < upto] over P(L < longest)."""
        at = (np.log(self.longest if upto is None else upto) - self.mu) / self.sigma
        whole = special.ndtr((np.log(self.longest) - self.mu) / self.sigma)
        shifted = special.ndtr(at - power * self.sigma)
        return float(np.exp(power * self.mu + power**2 * self.sigma**2 / 2) * shifted / whole)

    @property
    def tokens(self) -> float:
        """Mean tokens of a request."""
        return self._moment(1.0)

    @property
    def bias(self) -> float:
        """Factor by which a request in flight is longer than the mean: E[L^2] / E[L]^2."""
        return self._moment(2.0) / self._moment(1.0) ** 2

    def share_below(self, tokens: float) -> float:
        """Return the share of requests that are shorter."""
        return self._moment(0.0, tokens)

    def lengths(self, count: int = 400) -> Any:
        """Return equally likely lengths, the middles of so many slices of the distribution."""
        whole = special.ndtr((np.log(self.longest) - self.mu) / self.sigma)
        middles = (np.arange(count) + 0.5) / count * whole
        return np.exp(self.mu + self.sigma * special.ndtri(middles))


REASONING = Sample("reasoning", 7.758, 0.892, 98.9 * KI, 3.4 * KI, 0.92)
NON_REASONING = Sample("non-reasoning", 6.294, 1.502, 24.3 * KI, 1.4 * KI, 0.97)
SAMPLES = (NON_REASONING, REASONING)

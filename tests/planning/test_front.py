"""The front of many points, which few strong points sieve first, against all pairs."""

import numpy as np
import pytest

from perfmodel.planning.front import front


def beaten_or_repeated(costs):
    """Whether another point beats each, or an earlier one equals it; every pair compared."""
    found = np.zeros(len(costs), dtype=bool)
    order = np.arange(len(costs))
    for at in np.flatnonzero(np.isfinite(costs).all(axis=1)):
        no_worse = (costs[at] <= costs).all(axis=1)
        better = (costs[at] < costs).any(axis=1)
        found |= no_worse & (better | (order > at))
    return found


@pytest.mark.parametrize("metrics", [2, 3])
@pytest.mark.parametrize("digits", [1, 2, 6])
def test_front_is_that_of_all_pairs(metrics, digits):
    """Few digits make many points equal."""
    random = np.random.default_rng(digits)
    costs = np.round(random.uniform(0, 1, (6000, metrics)) + random.uniform(0, 0.2, (6000, 1)), digits)
    costs[random.integers(0, 6000, 50), 0] = np.nan
    costs[random.integers(0, 6000, 50), 1] = np.inf
    expected = np.flatnonzero(np.isfinite(costs).all(axis=1) & ~beaten_or_repeated(costs))
    np.testing.assert_array_equal(front(costs), expected)

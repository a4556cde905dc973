"""The cache of lengths against one of blocks, hit by hit."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.serving.session_replay import SessionCache
from tests.sessions.plain import BlockCache


@pytest.mark.parametrize("seed", range(20))
def test_lengths_hit_as_blocks_do(seed):
    generator = np.random.default_rng(seed)
    sessions, groups = int(generator.integers(2, 30)), int(generator.integers(1, 4))
    shared = int(generator.integers(0, 6)) if seed % 2 else 0
    capacity = int(generator.integers(10, 40 * sessions))
    ttl = float(generator.choice([np.inf, 5.0, 50.0]))
    ours, plain = SessionCache(capacity, ttl), BlockCache(capacity, ttl)
    context = generator.integers(shared, shared + 30, sessions)
    time = 0.0
    for _ in range(1500):
        time += generator.exponential(1.0)
        # Some sessions come back at once and some rarely.
        session = int(sessions * generator.random() ** 2)
        reusable = int(context[session])
        if generator.random() < 0.1:
            reusable = int(generator.integers(shared, reusable + 1))
        whole = reusable + int(generator.integers(0, 12))
        if whole > 120:
            reusable, whole = shared, shared + 10
        context[session] = whole
        asked = (session, -1 - session % groups, time, reusable, whole, shared)
        assert ours.call(*asked) == plain.call(*asked)

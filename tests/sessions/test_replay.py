"""The cache of lengths against one of blocks, hit by hit."""

from __future__ import annotations

import numpy as np
import pytest

from perfmodel.equations import caching
from perfmodel.serving.session_machine import SessionRouting
from perfmodel.serving.session_replay import BLOCK, SessionCache, Stream, replay
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


def test_an_exclusive_tier_is_one_longer_list():
    """What the memory evicts goes to the end of the tier's list: together they hit as one cache of both sizes does."""
    generator = np.random.default_rng(3)
    near, far, whole = BlockCache(60), BlockCache(90), BlockCache(150)
    for time in range(2000):
        session = int(12 * generator.random() ** 2)
        asked = (session, -1, float(time), 8 + session, 10 + session, 0)
        context = [(session, at, 0.0) for at in range(10 + session)]
        present = [block in near.blocks or block in far.blocks for block in context[: 8 + session]]
        for block in reversed(context):
            far.blocks.pop(block, None)
            near.blocks[block] = time
            near.blocks.move_to_end(block)
        while len(near.blocks) > near.capacity:
            far.blocks[near.blocks.popitem(last=False)[0]] = time
        while len(far.blocks) > far.capacity:
            far.blocks.popitem(last=False)
        names = whole.names.setdefault(session, [])
        names[:] = context
        found = whole.call(*asked[:3], 10 + session, 10 + session, 0)
        assert min(found, 8 + session) == (present.index(False) if False in present else len(present))


def test_one_replica_a_group_holds_what_all_would_hold_of_it():
    """Shared prefixes that fit once over all replicas but not on each (M = 8 of 16 blocks, 4 replicas of 40)."""
    generator = np.random.default_rng(5)
    count = 4000
    group = generator.integers(0, 8, count)
    calls = Stream(
        np.arange(count, dtype=float), np.arange(count), group, np.full(count, 17.0 * BLOCK), np.zeros(count),
        np.full(count, 16.0 * BLOCK), 16 * BLOCK,
    )  # fmt: skip
    late = slice(count // 2, None)
    hit = {
        policy: replay(calls, [40.0 * BLOCK], SessionRouting(4.0, policy))[0][late].mean() / (16 * BLOCK)
        for policy in ("prefix", "random")
    }
    assert hit["prefix"] > 0.99
    # Two of eight prefixes, drawn evenly, lie on a replica.
    assert hit["random"] == pytest.approx(2 / 8, abs=0.04)


def test_checkpoints_lose_half_their_spacing():
    tokens = np.random.default_rng(1).uniform(2e4, 4e4, 100_000)
    exact = np.floor(tokens / 2048) * 2048
    assert caching.checkpointed_tokens(tokens=tokens, spacing=2048.0).mean() == pytest.approx(exact.mean(), rel=1e-3)

"""Replayed traces hit the blocks that they share: against an exact LRU, the ceiling, the trace without hashes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.evidence.traces import reuse_distances
from perfmodel.planning.prefix_blocks import PrefixBlocks

ASKED = {"on": "dgx-h100:tp=1"}


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=5, unique=True), min_size=1, max_size=30),
    st.integers(1, 12),
)
def test_blocks_of_requests_one_after_the_other_are_an_lru_cache(requests, capacity):
    cache, found = PrefixBlocks(1.0), []
    for blocks in requests:
        first = cache.found(blocks)
        there = [block in cache.held or block in cache.idle for block in blocks]
        assert first == (there.index(False) if False in there else len(blocks))
        found += there
        cache.take(blocks)
        cache.give(blocks)
        cache.fit(capacity)
    assert found == (reuse_distances(requests) < capacity).tolist()


def trace(path, hashed, gap=5000.0):
    """Write requests of 41 blocks of which the first 26 are the same in all of them."""
    rows = []
    for at in range(40):
        row = {"timestamp": at * gap, "input_length": 41 * 512, "output_length": 50}
        if hashed:
            row["hash_ids"] = [*range(26), *(1000 * (at + 1) + block for block in range(15))]
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows))
    return str(path)


def hits(answer):
    (line,) = [line for line in answer.to_dict()["assumed"] if line.startswith("prefix hits by the blocks")]
    return [float(word.rstrip("%")) / 100 for word in line.split() if word.endswith("%")]


def test_a_trace_is_not_answered_as_if_its_requests_shared_nothing(tmp_path):
    shared = perfmodel.simulate("llama-3.1-8b", trace=trace(tmp_path / "shared.jsonl", hashed=True), **ASKED)
    alone = perfmodel.simulate("llama-3.1-8b", trace=trace(tmp_path / "alone.jsonl", hashed=False), **ASKED)
    met, ceiling = hits(shared)
    # All but the first find 26 of 41 blocks; an idle card forgets nothing.
    assert met == ceiling == pytest.approx(39 / 40 * 26 / 41, abs=6e-4)
    ratio = shared.simulated["ttft_s"]["p50"] / alone.simulated["ttft_s"]["p50"]
    assert 15 / 41 * 0.8 < ratio < 0.6
    assert not any("concurrency" in line or line.startswith("traffic") for line in shared.to_dict()["assumed"])


def test_prefix_hits_beside_hashes_are_said_to_count_nowhere(tmp_path):
    file = trace(tmp_path / "shared.jsonl", hashed=True)
    answer = perfmodel.simulate("llama-3.1-8b", trace=file, prefix_hits="0.3", **ASKED)
    assert any("prefix" in line and "did not enter" in line for line in answer.to_dict()["warnings"])


def test_a_cache_that_runs_full_forgets(tmp_path):
    rng = np.random.default_rng(3)
    rows = [
        json.dumps(
            {
                "timestamp": 3000.0 * at,
                "input_length": 512 * 20,
                "output_length": 9,
                "hash_ids": [1000 * int(session) + block for block in range(20)],
            }
        )
        for at, session in enumerate(rng.integers(0, 120, 240))
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    met, ceiling = hits(perfmodel.simulate("llama-3.1-8b", trace=str(tmp_path / "x.jsonl"), **ASKED))
    assert 0.05 < met < ceiling - 0.1

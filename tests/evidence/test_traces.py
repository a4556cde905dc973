"""Tables derived from traces: exact LRU against a plain simulation, the published hit rates, the bundled tables."""

import csv
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.errors import UserError
from perfmodel.evidence import traces

RAW = Path(__file__).parents[2].parent / "shared" / "data" / "traces"
BUNDLED = Path(__file__).parents[2] / "data" / "traces"
FILES = (
    "azure_llm_2023_conv.csv",
    "azure_llm_2023_code.csv",
    "mooncake_conversation_trace.jsonl.gz",
    "mooncake_synthetic_trace.jsonl.gz",
)


def raw(name):
    if not (RAW / name).is_file():
        pytest.skip(f"the raw trace {name} is not here")
    return RAW / name


def table(name):
    with (BUNDLED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=5, unique=True), min_size=1, max_size=30),
    st.integers(1, 12),
)
def test_stack_distances_are_an_lru_cache_of_every_size(requests, capacity):
    hits = []
    cache = OrderedDict()
    for blocks in requests:
        hits += [block in cache for block in blocks]
        for block in reversed(blocks):
            cache[block] = None
            cache.move_to_end(block)
        while len(cache) > capacity:
            cache.popitem(last=False)
    assert traces.hit_rate(traces.reuse_distances(requests), capacity) == pytest.approx(np.mean(hits))


@pytest.mark.parametrize(
    ("trace", "percent"), [("mooncake_conversation_trace", 36.6), ("mooncake_synthetic_trace", 64.0)]
)
def test_a_cache_without_limit_hits_what_is_published(trace, percent):
    (row,) = [row for row in table("summary") if row["trace"] == trace]
    assert 100 * float(row["prefix_hit_rate"]) == pytest.approx(percent, abs=0.05)
    largest = max((row for row in table("reuse") if row["trace"] == trace), key=lambda row: int(row["capacity_blocks"]))
    assert 100 * float(largest["hit_rate"]) == pytest.approx(percent, abs=0.05)


def test_means_of_azure_are_the_documented_ones():
    rows = {row["trace"]: row for row in table("summary")}
    assert float(rows["azure_llm_2023_conv"]["prompt_mean"]) == pytest.approx(1154.7, abs=0.1)
    assert float(rows["azure_llm_2023_code"]["output_mean"]) == pytest.approx(27.88, abs=0.01)


@pytest.mark.parametrize("file", FILES)
def test_the_bundled_tables_are_what_the_raw_traces_give(file):
    path = raw(file)
    derived = traces.derive([path])
    name = path.name.split(".")[0]
    for title, rows in derived.items():
        expected = [{key: str(value) for key, value in row.items()} for row in rows]
        assert [row for row in table(title) if row["trace"] == name] == expected, title


def test_a_file_of_another_form_is_refused_in_one_line(tmp_path):
    (tmp_path / "other.csv").write_text("time,tokens\n1,2\n")
    with pytest.raises(UserError, match=r"no column of arrival; name it arrival_s"):
        traces.read_trace(tmp_path / "other.csv")
    with pytest.raises(UserError, match="no such file"):
        traces.read_trace(tmp_path / "missing.csv")

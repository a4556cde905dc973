"""Runs with a mistake planted among clean ones: another layout, another unit, a warm cache, a cold start.

What was measured is that of serving2.csv; three of its groups, for all of them take minutes.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from pathlib import Path

import pytest

from perfmodel.evidence.runs import suspect
from perfmodel.evidence.validate import score_rows

DATA = Path(__file__).parents[2] / "data" / "measured" / "serving2.csv"


@pytest.fixture(scope="module")
def groups() -> list[list[dict[str, str]]]:
    """Return the rows of three groups: dense, experts, and a small one."""
    found = defaultdict(list)
    with DATA.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["hardware"], row["engine"], row["model"], row["dtype_weights"]].append(row)
    return [
        found["B200 SXM", "trtllm", "meta-llama/Llama-3.1-70B", "fp8"],
        found["H200 SXM", "vllm 0.18.0", "MiniMaxAI/MiniMax-M2.5", "fp8"],
        found["H200 SXM", "sglang 0.5.9", "Qwen/Qwen3.5-397B-A17B", "fp8"],
    ]


def flagged(rows: list[dict[str, str]]) -> set[str]:
    scored = score_rows(("mine", row) for row in rows).rows
    return {scored[at].given["row_id"] for one in suspect.find(scored) for at in one.rows}


def test_few_clean_runs_are_suspect(groups):
    runs = [{row["row_id"] for row in rows} for rows in groups]
    assert sum(len(flagged(rows)) for rows in groups) <= 0.05 * sum(map(len, runs))


def test_seconds_for_milliseconds_are_found_in_every_group(groups):
    for rows in groups:
        bad = random.Random(1).choice(rows)["row_id"]
        planted = [{**row, "value": str(float(row["value"]) / 1e3)} if row["row_id"] == bad else row for row in rows]
        assert bad in flagged(planted)


def test_a_first_token_of_a_tenth_and_one_of_ten_times_are_found(groups):
    """A prefix cache that serves nine tenths of a prompt, and a start-up inside the run."""
    for factor in (0.1, 10.0):
        for rows in groups:
            bad = random.Random(2).choice(rows)["row_id"]
            planted = [
                {**row, "value": str(float(row["value"]) * factor)}
                if row["row_id"] == bad and row["metric"] == "ttft"
                else row
                for row in rows
            ]
            assert bad in flagged(planted)


def test_a_layout_that_cannot_hold_the_model_is_found(groups):
    """MiniMax-M2.5 in FP8 takes 230 GB, and one H200 has 141."""
    rows = groups[1]
    bad = rows[0]["row_id"]
    wrong = {"tp": "1", "n_chips": "1", "ep": "1", "row_id": "mine"}
    assert "mine" in flagged([{**row, **wrong} if row["row_id"] == bad else row for row in rows])

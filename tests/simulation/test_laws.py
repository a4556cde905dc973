"""The closed forms against the simulation, over drawn questions of every class; the judge prints the whole table."""

from __future__ import annotations

import functools
import os

import numpy as np
import pytest

from tests.simulation import judge

#: Questions of each class; the tables of the documentation take 300.
QUESTIONS = int(os.environ.get("PERFMODEL_EVERY_QUESTION", "2"))


@functools.cache
def rows(kind: str) -> list[judge.Judged]:
    found = judge.judged(kind, QUESTIONS if kind == "open" else max(1, QUESTIONS // 2), 4000, 3)
    print(judge.table(found, judge.GOALS if kind == "open" else judge.CLOSED_GOALS))
    return [row for row in found if row.group != judge.FIXED]


@pytest.mark.parametrize("name", judge.GOALS)
def test_percentiles_under_a_rate(name: str) -> None:
    gaps = np.abs([row.gaps[name] for row in rows("open") if name in row.gaps])
    assert np.median(gaps) <= judge.GOALS[name][0]


@pytest.mark.parametrize("name", judge.CLOSED_GOALS)
def test_means_of_a_closed_loop(name: str) -> None:
    gaps = np.abs([row.gaps[name] for row in rows("closed") if name in row.gaps])
    assert np.median(gaps) <= judge.CLOSED_GOALS[name][0]

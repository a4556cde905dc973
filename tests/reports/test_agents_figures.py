"""Figures of the report on agents: orders that must hold, and a replay of the cache beside the closed form."""

import numpy as np
import pytest

import perfmodel
from perfmodel.reports.agents import cliff, cost

MODEL, ON = "llama-3.3-70b", "dgx-h200:tp=8"


@pytest.fixture(scope="module")
def tiers():
    return cliff.tiers(MODEL, "dgx-h200:tp=4,dp=4", points=12)


def test_more_users_never_hit_more_and_the_cliff_is_where_the_hits_fall():
    found = cliff.cliff(MODEL, [ON], points=24)
    hits = found.charts[0].frame
    column = next(name for name in hits.columns if "hit" in name)
    users = next(name for name in hits.columns if "users" in name)
    order = hits.sort_values(users)[column].to_numpy()
    # The loop settles to a few millionths.
    assert (np.diff(order) <= 1e-5).all()
    fall = float(found.tables[0].rows[0][1])
    before, after = (hits[column][hits[users] * side < fall * side] for side in (1.0, -1.0))
    assert before.min() > 0.8
    assert after.max() < before.min()


def test_tiers_hold_more_and_the_router_of_prefixes_never_less(tiers):
    falls = {row[0]: float(row[1].replace(",", "")) for row in tiers.tables[0].rows}
    for policy in ("prefix", "random"):
        assert falls[f"memory, {policy}"] <= falls[f"host, {policy}"] <= falls[f"host and store, {policy}"]
    for tier in ("memory", "host", "host and store"):
        assert falls[f"{tier}, random"] <= falls[f"{tier}, prefix"]


def test_a_replay_of_the_cache_stands_on_the_same_side_of_the_cliff():
    fall = float(cliff.cliff(MODEL, [ON], points=6).tables[0].rows[0][1]) * 8
    before, after = (
        sum(perfmodel.simulate(MODEL, on=ON, sessions="coding-agent", users=round(share * fall)).simulated.values())
        for share in (0.6, 1.6)
    )
    assert before > 0.8
    assert after < 0.5


def test_a_task_costs_more_past_the_cliff():
    rows = cost.cost(MODEL, [ON]).tables[0].rows
    usd = [float(row[-1]) for row in rows]
    assert usd[-1] > 2 * min(usd)

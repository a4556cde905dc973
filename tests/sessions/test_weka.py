"""The laws of the hit rate against replays of recorded coding-agent sessions."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from perfmodel.serving.lengths import spread
from perfmodel.serving.session_cache import Reuses, Windows, hit_rate, ttl_hit_rate
from perfmodel.serving.session_table import hit_table
from perfmodel.serving.sessions import Quantiles, SessionTraffic

DATA = Path(__file__).parents[1] / "data" / "sessions"
#: Mean time of a call in the recording [s].
CALL = 8.94


def table(name):
    return np.genfromtxt(DATA / f"weka_{name}.csv", delimiter=",", names=True)


def recorded():
    """Return windows and reuses of the recording; sizes within a bin of gaps by its mean and spread."""
    window, gaps = table("window"), table("gaps")
    windows = Windows(*(window[name] for name in window.dtype.names[:3]), window["mean_sessions_touched"],
                      window["share_of_windows_touched"])  # fmt: skip
    share = np.diff(gaps["cum_share_prompt_tokens"], prepend=0.0)
    rows = []
    for gap, mean, sd, part in zip(
        gaps["bin_reusable_weighted_mean_gap_s"],
        gaps["bin_mean_reusable_prefix_tokens"],
        gaps["bin_sd_reusable_prefix_tokens"],
        share,
        strict=True,
    ):
        tokens, weight = spread(mean, (sd / mean) ** 2, 16)
        rows += [(gap, gap, size, part * size * w / mean) for size, w in zip(tokens, weight, strict=True)]
    return windows, Reuses(*np.array(rows).T)


def laws() -> dict[str, Quantiles]:
    """Return the published quantiles; the largest of n stands at 1 - 1 / 2n."""
    shares = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    names = ("p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "max")
    with (DATA / "weka_quantiles.csv").open(encoding="utf-8") as file:
        return {
            row["variable"]: Quantiles(
                (*shares, 1 - 0.5 / float(row["n"])), tuple(float(row[name]) for name in names), float(row["mean"])
            )
            for row in csv.DictReader(file)
        }


def traffic() -> SessionTraffic:
    law = laws()
    return SessionTraffic(
        turns=law["requests_per_session"],
        first=law["first_input_tokens"],
        growth=law["context_growth_per_request_nonfirst"],
        output=law["output_tokens_per_request"],
        tool_gap=law["gap_before_request_tool_result"],
        human_gap=law["gap_before_request_user"],
        human_share=6486 / 47948,
        context=law["input_tokens_per_request"],
        new=law["uncached_tokens_per_request_nonfirst"],
    )


@pytest.mark.parametrize(("sessions", "within"), [(256, 0.015), (32, 0.04)])
def test_lru_curve_from_windows_and_gaps(sessions, within):
    curve = table("lru_curve_stationary")
    found = hit_rate(curve["capacity_tokens_per_concurrent_session"] * sessions, sessions, *recorded())
    assert np.abs(found - curve[f"token_hit_lru_stationary_{sessions}_sessions"]).max() <= within


@pytest.mark.parametrize("sessions", [256, 32])
def test_lru_curve_from_quantiles_alone(sessions):
    curve = table("lru_curve_stationary")
    capacity = curve["capacity_tokens_per_concurrent_session"] * sessions
    found = hit_table(traffic()).law(CALL, np.full_like(capacity, sessions), capacity)
    assert np.abs(found - curve[f"token_hit_lru_stationary_{sessions}_sessions"]).max() <= 0.08


def test_ttl_curve():
    """Gaps of the recording run from start to start; those from end to start have the same order."""
    curve, gaps = table("ttl_curve"), table("gaps")
    _, reuses = recorded()
    order = np.interp(curve["frac_gaps_le_ttl"], gaps["cum_share_gaps"], gaps["gap_s"])
    # Within a bin gaps are spread evenly: what a bin holds is reached bit by bit.
    reached = np.interp(order, gaps["gap_s"], gaps["cum_share_prompt_tokens"])
    assert ttl_hit_rate(gaps["gap_s"], reuses) == pytest.approx(gaps["cum_share_prompt_tokens"], abs=1e-3)
    assert np.abs(reached - curve["token_hit_ratio"]).max() <= 0.03


@pytest.mark.parametrize(("column", "replicas"), [("R4_sticky", 4), ("R8_sticky", 8), ("R16_sticky", 16)])
def test_sticky_sessions_have_their_share_of_sessions_and_capacity(column, replicas):
    curve = table("routing")
    sessions = 128 / replicas
    found = hit_rate(curve["capacity_tokens_per_concurrent_session"] * sessions, sessions, *recorded())
    assert np.abs(found - curve[column]).max() <= 0.03


def random_routing(replicas):
    """Return what is found off by, at each capacity of the replay."""
    curve = table("routing")
    capacity = curve["capacity_tokens_per_concurrent_session"] * 128 / replicas
    found = hit_table(traffic(), float(replicas)).law(CALL, np.full_like(capacity, 128.0), capacity)
    return found - curve[f"R{replicas}_random"]


@pytest.mark.parametrize("replicas", [4, 8, 16])
def test_random_routing_from_quantiles_alone(replicas):
    """Laws that are independent know less of how contexts shrink within as many calls."""
    off = np.abs(random_routing(replicas))
    print(replicas, np.round(off, 3))
    assert off[:-1].max() <= 0.03
    if replicas < 16:
        assert off[-1] <= 0.03


@pytest.mark.xfail(strict=True, reason="contexts that shrink or branch within 16 calls: 0.06 too high where all fits")
def test_random_routing_over_16_replicas_where_all_fits():
    assert abs(random_routing(16)[-1]) <= 0.05

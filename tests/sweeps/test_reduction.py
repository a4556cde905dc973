"""A reduction of parts is that of the whole, and that of the whole is what pandas and NumPy make of all rows."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.errors import UserError
from perfmodel.sweeps.axes import Axis
from perfmodel.sweeps.reduction import ERROR, QUANTILES, parse
from perfmodel.sweeps.space import Corner, Space

AXES = {
    "system": "dgx-h100,dgx-b200",
    "system.memory.hbm.bandwidth": "2 TB/s:8 TB/s:5",
    "traffic.concurrency": "1:200:6:log",
    "economics.electricity": [0.0, 1e-8],
    "traffic.prompt": "100:100000:7",
    "deployment.tp": [1.0, 2.0, 8.0],
}


@pytest.fixture(scope="module")
def whole():
    result = perfmodel.sweep("llama-3.1-70b", on="dgx-h100", axes=AXES)
    frame = result.to_frame()
    assert 0 < frame["fits"].sum() < len(frame)
    return result, frame


def reduced(space, text, most):
    """Reduce part by part, merging as the parts come."""
    kept = parse(text, space)
    merged = None
    for number in range(space.parts(most)):
        columns = kept.part(space.part(number, most))
        frames = [pd.DataFrame(columns)] if columns else []
        frames += [merged] if merged is not None else []
        merged = kept.merge(pd.concat(frames[::-1])) if frames else None
    return kept.finish(merged)


@settings(deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4), most=st.integers(1, 100))
def test_parts_are_the_points_in_order(lengths, most):
    axes = tuple(Axis(f"a{at}", tuple(range(n)), loops=loops) for at, (n, loops) in enumerate(lengths))
    words = [axis for axis in axes if axis.loops]
    corners = [
        Corner(dict(zip([axis.path for axis in words], values, strict=True)), None)
        for values in itertools.product(*(axis.values for axis in words))
    ]
    space = Space(axes, tuple(corners), (), ())
    seen = []
    for number in range(space.parts(most)):
        part = space.part(number, most)
        assert 1 <= len(part) <= most
        (corner,) = part.corners
        seen += [(tuple(corner.words.values()), point) for point in itertools.product(*(a.values for a in part.grid))]
    grid = list(itertools.product(*(axis.values for axis in space.grid)))
    assert seen == [(tuple(corner.words.values()), point) for corner in corners for point in grid]
    assert len(space) == len(seen)


def beaten(costs):
    """Return which rows another row beats: no worse in any column, better in one; the slow way."""
    no_worse = (costs[None, :, :] <= costs[:, None, :]).all(axis=2)
    better = (costs[None, :, :] < costs[:, None, :]).any(axis=2)
    return (no_worse & better).any(axis=1)


@pytest.mark.parametrize("most", [211, 10**6])
@pytest.mark.parametrize("by", [(), ("system",), ("traffic.concurrency", "system")])
@pytest.mark.parametrize(
    "senses",
    [
        {"tpot_s": 1, "usd_per_mtok_blended": 1},
        {"ttft_s": 1, "tokens_per_s_per_chip": -1, "chips": 1},
        {"tpot_s": 1, "output_tokens_per_s": -1, "power_w": -1},
    ],
)
def test_a_front_is_that_of_all_pairs(whole, senses, by, most):
    space, frame = whole
    words = [name + ("=most" if name == "power_w" else "") for name in senses]
    found = reduced(space, f"pareto:{','.join(words)}" + (f":by={','.join(by)}" if by else ""), most)
    there = frame[frame["fits"]]
    expected = []
    for _, group in there.groupby(list(by), sort=False) if by else [((), there)]:
        distinct = group.drop_duplicates(list(senses))
        expected.append(distinct[~beaten(distinct[list(senses)].to_numpy() * list(senses.values()))])
    expected = pd.concat(expected)
    assert len(found) == len(expected)
    order = [*by, *senses]
    pd.testing.assert_frame_equal(
        found.sort_values(order).reset_index(drop=True),
        expected.sort_values(order).reset_index(drop=True),
        check_dtype=False,
        rtol=1e-12,
    )
    first = next(iter(senses))
    for _, group in found.groupby(list(by)) if by else [((), found)]:
        assert group[first].is_monotonic_increasing


@pytest.mark.parametrize("most", [211, 10**6])
@pytest.mark.parametrize(
    ("text", "metric", "pick", "by"),
    [
        ("best:output_tokens_per_s", "output_tokens_per_s", "idxmax", []),
        ("best:tpot_s:by=system", "tpot_s", "idxmin", ["system"]),
        ("best:tpot_s=most:by=concurrency,system", "tpot_s", "idxmax", ["traffic.concurrency", "system"]),
        ("best:max_concurrency:by=tp,traffic.prompt", "max_concurrency", "idxmax", ["deployment.tp", "traffic.prompt"]),
        ("best:mfu:by=electricity,prompt,tp,bandwidth,concurrency", "mfu", "idxmax", list(AXES)[1:]),
    ],
)
def test_the_best_of_each_group_is_that_of_pandas(whole, text, metric, pick, by, most):
    space, frame = whole
    there = frame[frame["fits"]]
    groups = there.groupby(by, sort=False)[metric] if by else there[metric]
    expected = there.loc[getattr(groups, pick)() if by else [getattr(groups, pick)()]]
    found = reduced(space, text, most)
    order = [*by, metric]
    pd.testing.assert_frame_equal(
        found.sort_values(order).reset_index(drop=True),
        expected.sort_values(order).reset_index(drop=True),
        check_dtype=False,
        rtol=1e-12,
    )
    assert set(found[metric]) <= set(frame[metric])


@pytest.mark.parametrize("most", [97, 10**6])
def test_quantiles_lie_within_their_bound_of_numpy(whole, most):
    space, frame = whole
    found = reduced(space, "quantiles:tpot_s,usd_per_mtok_output,chips:by=system,tp", most)
    assert len(found) == 2 * 3 * 3
    for row in found.to_dict("records"):
        group = frame[(frame["system"] == row["system"]) & (frame["deployment.tp"] == row["deployment.tp"])]
        values = group.loc[group["fits"], row["metric"]].to_numpy()
        assert (row["points"], row["with_value"]) == (len(group), len(values))
        for share in QUANTILES:
            quantile = row[f"p{share * 100:g}"]
            if not len(values):
                assert math.isnan(quantile)
                continue
            assert quantile == pytest.approx(np.quantile(values, share, method="lower"), rel=ERROR)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=200))
def test_quantiles_of_any_numbers(values):
    from perfmodel.sweeps import reduction

    bins, counts = np.unique(reduction._bins(np.array(values)), return_counts=True)
    found = reduction._quantiles(bins, counts)
    for share, value in found.items():
        # Below the smallest normal number floats have fewer digits.
        assert value == pytest.approx(np.quantile(values, share, method="lower"), rel=ERROR, abs=1e-300)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("front:tpot_s,mfu", "write pareto:"),
        ("pareto:tpot_s", "two metrics"),
        ("pareto:tpot,mfu", "expected one of ttft_s"),
        ("pareto:tpot_s,tpot_s", "twice"),
        ("best:tpot_s,mfu", "one metric"),
        ("best:tpot_s=more", "=least or =most"),
        ("quantiles:tpot_s=least", "=least or =most"),
        ("quantiles:", "unknown metric ''"),
        ("best:tpot_s:system", "by=AXIS"),
        ("best:tpot_s:by=output", "no axis of the sweep"),
    ],
)
def test_a_wrong_reduction_lists_what_would_do(whole, text, hint):
    with pytest.raises(UserError) as refused:
        parse(text, whole[0])
    assert hint in str(refused.value)
    assert text in str(refused.value)


def test_too_many_groups_are_refused():
    axes = tuple(Axis(name, tuple(range(1000))) for name in ("a", "b"))
    with pytest.raises(UserError, match="1,000,000 groups"):
        parse("best:tpot_s:by=a,b", Space(axes, (Corner({}, None),), (), ()))

"""Figures of the SHIP report against what is printed, against graphs and simulations, and what holds everywhere."""

from collections import OrderedDict

import networkx as nx
import numpy as np
import pytest

from perfmodel.equations import topologies
from perfmodel.reports import figures
from perfmodel.reports.ship import intensity, matrix, network, pair, prefix_cache
from perfmodel.reports.ship.claims import Judged
from perfmodel.reports.ship.shapes import shapes

EVERYTHING = pair.Machines(), matrix.Free()


@pytest.fixture(scope="module")
def grid():
    return pair.serve(*EVERYTHING, matrix.fixed_load(pair.RATIOS, pair.CONTEXTS))


@pytest.fixture(scope="module")
def judged():
    return {one.short: one for one in shapes(*EVERYTHING)}


# --- topology ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("placement", network.PLACEMENTS)
@pytest.mark.parametrize("nodes", [1, 2, 9, 12, 17])
def test_the_graph_of_lpus_has_as_many_ports_as_an_lpu(nodes, ring, placement):
    graph = nx.from_scipy_sparse_array(network.quadfour(nodes, ring, placement))
    assert graph.number_of_nodes() == 8 * nodes
    if not ring or nodes > 8:  # on a small ring both ways meet the same node
        assert max(dict(graph.degree).values()) <= 11
    assert network.measured_diameter(nodes, ring, placement) == nx.diameter(graph)


@pytest.mark.parametrize(("nodes", "ring", "chain"), [(9, 3, 4), (17, (4, 5), 6)])
def test_printed_diameters_are_those_of_a_ring_and_not_of_a_chain(nodes, ring, chain):
    """Printed: 3 for 72 LPUs and 5 for 136."""
    found = {network.measured_diameter(nodes, True, placement) for placement in network.PLACEMENTS}
    assert topologies.quadfour_ring_diameter(nodes=float(nodes)) in found
    assert min(network.measured_diameter(nodes, False, placement) for placement in network.PLACEMENTS) >= chain


@pytest.mark.parametrize("dead", range(5))
@pytest.mark.parametrize("placement", network.PLACEMENTS)
def test_the_cut_of_the_graph_of_lpus_is_table_1(dead, placement):
    graph = nx.from_scipy_sparse_array(network.quadfour(24, False, placement))
    graph.remove_nodes_from(range(10 * 8, (10 + dead) * 8))
    crossing = nx.cut_size(graph, range(10 * 8))
    assert network.measured_cut(dead, False, placement) == crossing
    assert crossing == topologies.quadfour_cut_links(skipped=float(dead))


# --- published numbers -------------------------------------------------------------------------------------------

#: Largest relative error of a figure's published numbers; what is left out has no exact form.
TOLERANCE = {
    "ship-topology": 0.01,
    "ship-tiers": 0.015,
    "ship-power": 0.01,
    "ship-prefix-cache": 0.002,
    "ship-workload": 0.002,
    "ship-comparison": 0.04,
}


@pytest.mark.parametrize("name", TOLERANCE)
def test_published_numbers_are_met(name):
    figure = figures.registry()[name]()
    errors = {one.what: one.error for one in figure.numbers if one.error == one.error}
    assert errors
    assert max(map(abs, errors.values())) < TOLERANCE[name], errors


def test_attention_intensity_is_printed_for_8_and_16_query_heads_a_kv_head():
    for model, printed in (("llama-3.3-70b", 8), ("qwen3-235b-a22b", 16)):
        found = intensity.intensities(model, np.array([1.0, 64.0]), 8192.0, "fp8")["attention"]
        assert np.broadcast_to(found, 2) == pytest.approx(printed, rel=1e-9)


def test_dense_intensity_is_bounded_by_attention_at_long_context():
    batch = np.array([1.0, 1e3, 1e6, 1e9])
    found = intensity.intensities("qwen3-32b", batch, 131072.0, "bf16")
    limit = float(np.max(found["attention"]))
    assert found["all"][-1] == pytest.approx(found["all"][-2], rel=0.01)
    assert found["all"][-1] < 2 * limit
    assert found["MLP"][-1] > 1e3 * limit


def test_knees_of_the_all_reduce_are_the_printed_ones():
    (one, other) = figures.registry()["ship-all-reduce"]().numbers
    assert one.error == pytest.approx(0, abs=1e-3)
    assert other.error == pytest.approx(0, abs=1e-3)


# --- caches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [20, 100, 400])
def test_che_is_what_an_lru_cache_does_with_independent_requests(capacity):
    generator = np.random.default_rng(7)
    weights = 1 / np.arange(1, 1001) ** 0.8
    requests = generator.choice(1000, size=60_000, p=weights / weights.sum())
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in requests.tolist():
        hits += block in cache
        cache[block] = None
        cache.move_to_end(block)
        if len(cache) > capacity:
            cache.popitem(last=False)
    counts = np.bincount(requests)
    references, blocks = np.unique(counts[counts > 0], return_counts=True)
    (found,) = prefix_cache.che_hit_rates(references.astype(float), blocks.astype(float), [capacity])
    assert found == pytest.approx(hits / len(requests), abs=0.02)


# --- the comparison: only what holds whatever the free values are --------------------------------------------------


def test_output_speed_is_higher_for_stage_budgets_up_to_36(judged):
    shares = judged["ot/s/u higher"].by("stage token budget")
    assert all(share == 1 for budget, share in shares.items() if float(budget) <= 36)


def test_one_ship_out_produces_one_box_at_its_peak_and_at_2ki_with_as_many_users(grid):
    """At longer contexts, and at 2Ki with more than SHIP's own 380 users in one box, it does not hold everywhere."""
    ship, box = grid.wide("throughput")
    assert np.all(ship.max(axis=(-1, -2)) > box.max(axis=(-1, -2)))
    users = [at for at, count in enumerate(matrix.Free().gpu_users) if count <= 380]
    assert np.all(ship[..., 0][:, :, :, :, users] > box[..., 0][:, :, :, :, users])


def test_16ki_is_at_least_2ki_in_throughput_from_p_to_d_of_8(grid):
    high = [at for at, ratio in enumerate(pair.RATIOS) if ratio >= 8]
    large, small = (grid.gpu.throughput[:, budget][..., high, :] for budget in (0, 1))
    # A client's cycle is a root: one in a hundred is lower by up to 0.06 %.
    assert np.all(large >= small * (1 - 1e-3))


def test_more_room_and_fewer_microseconds_never_cost_throughput(grid):
    rate = grid.ship.throughput
    assert np.all(rate[:, 1] >= rate[:, 0] * (1 - 1e-2))  # 8 bits against 16
    bare = rate[:, :, :, :1]
    assert np.all(bare >= rate * (1 - 1e-9))


def test_equal_power_is_41_boxes():
    assert pair.Machines().scale() == pytest.approx(41.2, abs=0.05)


def test_a_claim_says_what_decides():
    truth = np.zeros((2, 3), dtype=bool)
    truth[1] = True
    one = Judged("short", "text", truth, {"which": ["a", "b"], "other": ["x", "y", "z"]})
    assert one.verdict == "depends"
    assert one.share == 0.5
    assert one.deciders() == [("which", 1.0)]
    assert "which (a 0%, b 100%)" in one.claim().why
    assert Judged("s", "t", np.ones((2, 3), dtype=bool), one.axes).verdict == "holds"
    assert Judged("s", "t", np.zeros((2, 3), dtype=bool), one.axes).verdict == "fails"
    assert {row["share"] for row in one.map_rows(("other",), ("which",))} == {0.0, 1.0}

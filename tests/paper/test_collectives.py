"""Collectives against graphs, limits and measured kernels."""

import networkx as nx
import pytest

from perfmodel.equations import collectives
from perfmodel.machines import kernels
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import put
from perfmodel.studies.calibrate import kernel_errors


@pytest.mark.parametrize(("side", "dimensions"), [(4, 2), (8, 2), (4, 3), (6, 2)])
def test_torus_against_its_graph(side, dimensions):
    graph = nx.grid_graph([side] * dimensions, periodic=True)
    assert collectives.torus_diameter(side=float(side), dimensions=float(dimensions)) == nx.diameter(graph)
    half = {node for node in graph if node[0] < side // 2}
    links = collectives.torus_bisection_links(side=float(side), dimensions=float(dimensions))
    assert links == nx.cut_size(graph, half)


@pytest.mark.parametrize("chips", [2, 4, 8])
def test_full_mesh_against_its_graph(chips):
    graph = nx.complete_graph(chips)
    cut = nx.cut_size(graph, range(chips // 2))
    assert collectives.full_mesh_bisection_links(chips=float(chips)) == cut


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_fat_tree_against_its_graph(levels):
    """Chips are the leaves of a tree of switches."""
    graph = nx.balanced_tree(4, levels)
    leaves = [node for node in graph if graph.degree[node] == 1]
    farthest = max(nx.shortest_path_length(graph, leaves[0]).get(leaf) for leaf in leaves)
    assert collectives.fat_tree_hops(levels=float(levels)) == farthest


#: Each all-reduce with everything but the payload free: what a rank must at least send and receive.
LARGE = {
    "ring": (collectives.ring_all_reduce, {"hop_latency": 0.0, "bandwidth": 1e9}),
    "two-shot": (collectives.two_shot_all_reduce, {"latency": 0.0, "bandwidth": 1e9}),
    "torus": (
        collectives.torus_all_reduce,
        {"latency": 0.0, "hop_latency": 0.0, "bandwidth": 1e9, "dimensions": 2.0},
    ),
    "full mesh": (collectives.full_mesh_all_reduce, {"latency": 0.0, "link_bandwidth": 1e9 / 15}),
    "fat tree": (
        collectives.fat_tree_all_reduce,
        {"levels": 2.0, "hop_latency": 0.0, "bandwidth": 1e9, "oversubscription": 1.0},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_bandwidth_optimal_forms_move_two_messages_less_a_share(name):
    """Reduce-scatter and all-gather: 2 (n - 1) / n of the message a rank, whatever the topology."""
    form, rest = LARGE[name]
    assert form(message=1e9, ranks=16.0, **rest) == pytest.approx(2 * 15 / 16)


def test_one_shot_moves_all_other_messages():
    assert collectives.one_shot_all_reduce(message=1e9, ranks=8.0, latency=0.0, bandwidth=1e9) == pytest.approx(7)


def test_the_switch_adds_up_for_half_the_traffic():
    rest = {"message": 1e9, "ranks": 8.0, "latency": 0.0, "bandwidth": 1e9}
    ratio = collectives.two_shot_all_reduce(**rest) / collectives.in_switch_all_reduce(**rest)
    assert 1.5 < ratio < 2


def test_gather_is_half_of_a_ring_all_reduce():
    rest = {"message": 3e6, "ranks": 8.0, "hop_latency": 2e-6, "bandwidth": 1e11}
    assert 2 * collectives.all_gather(**rest) == pytest.approx(collectives.ring_all_reduce(**rest))


def test_all_to_all_keeps_its_own_part():
    time = collectives.all_to_all(message=8e9, ranks=8.0, latency=0.0, bandwidth=1e9)
    assert time == pytest.approx(7)


@pytest.mark.parametrize("name", ["ring", "two-shot", "torus", "full mesh", "fat tree"])
def test_one_rank_needs_no_all_reduce(name):
    form, rest = LARGE[name]
    assert form(message=1e9, ranks=1.0, **rest) == 0


def test_per_hop_latency_is_ten_times_off_on_nvlink():
    """8 us a call as if it were per hop makes 112 us for 8 ranks, where 5 to 8 us are measured."""
    per_hop = collectives.ring_all_reduce(message=65536.0, ranks=8.0, hop_latency=8e-6, bandwidth=450e9)
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options())
    per_call = kernels.tensor_all_reduce(scenario, 65536.0)
    assert per_hop > 10 * per_call
    assert per_call == pytest.approx(6.4e-6, rel=0.15)


def test_without_a_graph_small_collectives_last_as_long_as_their_launch():
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options())
    eager = put(scenario, "system.efficiency.eager", True)
    assert kernels.tensor_all_reduce(eager, 8192.0) == pytest.approx(30e-6)
    large = 2.0**26
    assert kernels.tensor_all_reduce(eager, large) == kernels.tensor_all_reduce(scenario, large)
    # One rank sums nothing, so there is nothing to launch.
    assert kernels.tensor_all_reduce(put(eager, "deployment.tp", 1.0), 8192.0) == 0.0


def test_tensor_parallelism_over_nodes_is_hierarchical():
    inside = resolve("llama-3.1-405b", "dgx-h100", Options(tp=8.0))
    across = resolve("llama-3.1-405b", "dgx-h100", Options(tp=16.0))
    message = 2.0**20
    extra = kernels.tensor_all_reduce(across, message) - kernels.tensor_all_reduce(inside, message)
    ring = collectives.ring_all_reduce(message=message / 8, ranks=2.0, hop_latency=10e-6, bandwidth=50e9)
    assert extra == pytest.approx(ring)


@pytest.fixture(scope="module")
def errors():
    return list(kernel_errors())


def test_all_reduce_of_every_engine_is_within_15_percent(errors):
    found = [error for error in errors if error.kernel == "all-reduce"]
    assert {(error.chip, error.form) for error in found} >= {
        (chip, engine) for chip in ("h100", "h200", "b200") for engine in ("vllm", "trtllm", "sglang", "nccl")
    }
    for error in found:
        assert error.median <= 0.15, error
        assert error.left_out <= 0.15, error
        assert error.parameters < error.points / 5


def test_no_size_class_of_gemm_or_attention_is_off_by_more_than_30_percent(errors):
    for error in errors:
        if error.kernel != "all-reduce" and "not used" not in error.note:
            assert abs(error.worst) <= 0.30, error


def test_a_table_that_beats_the_bandwidth_is_not_used(errors):
    refused = [error for error in errors if "not used" in error.note]
    assert [(error.kernel, error.chip) for error in refused] == [("decode attention", "a100")]
    efficiency = resolve("llama-3.1-8b", "dgx-a100", Options(engine="trtllm")).system.efficiency
    assert efficiency.attention_memory["bf16"] < 1

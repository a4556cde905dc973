"""Collectives against graphs, limits and measured kernels."""

import itertools
import re

import networkx as nx
import numpy as np
import pytest

import perfmodel
from perfmodel.equations import collectives, topologies
from perfmodel.errors import UserError
from perfmodel.evidence import kernel_fit
from perfmodel.evidence.kernel_fit import kernel_errors
from perfmodel.machines import expert_exchange, kernel_step
from perfmodel.machines.step import Exchange
from perfmodel.prediction import run
from perfmodel.question import Options, resolve
from perfmodel.specs.paths import put


@pytest.mark.parametrize(("side", "dimensions"), [(4, 2), (8, 2), (4, 3), (6, 2)])
def test_torus_against_its_graph(side, dimensions):
    graph = nx.grid_graph([side] * dimensions, periodic=True)
    assert topologies.torus_diameter(side=float(side), dimensions=float(dimensions)) == nx.diameter(graph)
    half = {node for node in graph if node[0] < side // 2}
    links = topologies.torus_bisection_links(side=float(side), dimensions=float(dimensions))
    assert links == nx.cut_size(graph, half)


@pytest.mark.parametrize("chips", [2, 4, 8])
def test_full_mesh_against_its_graph(chips):
    graph = nx.complete_graph(chips)
    cut = nx.cut_size(graph, range(chips // 2))
    assert topologies.full_mesh_bisection_links(chips=float(chips)) == cut


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_fat_tree_against_its_graph(levels):
    """Chips are the leaves of a tree of switches."""
    graph = nx.balanced_tree(4, levels)
    leaves = [node for node in graph if graph.degree[node] == 1]
    farthest = max(nx.shortest_path_length(graph, leaves[0]).get(leaf) for leaf in leaves)
    assert topologies.fat_tree_hops(levels=float(levels)) == farthest


#: Each all-reduce with everything but the payload free: what a rank must at least send and receive.
LARGE = {
    "ring": (collectives.ring_all_reduce, {"hop_latency": 0.0, "bandwidth": 1e9}),
    "two-shot": (collectives.two_shot_all_reduce, {"latency": 0.0, "bandwidth": 1e9}),
    "torus": (
        topologies.torus_all_reduce,
        {"latency": 0.0, "hop_latency": 0.0, "bandwidth": 1e9, "dimensions": 2.0},
    ),
    "full mesh": (topologies.full_mesh_all_reduce, {"latency": 0.0, "link_bandwidth": 1e9 / 15}),
    "fat tree": (
        topologies.fat_tree_all_reduce,
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
    per_call = kernel_step.tensor_all_reduce(scenario, 65536.0)
    assert per_hop > 10 * per_call
    assert per_call == pytest.approx(6.4e-6, rel=0.15)


def test_without_a_graph_small_collectives_last_as_long_as_their_launch():
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options())
    eager = put(scenario, "system.efficiency.eager", True)
    assert kernel_step.tensor_all_reduce(eager, 8192.0) == pytest.approx(30e-6)
    large = 2.0**26
    assert kernel_step.tensor_all_reduce(eager, large) == kernel_step.tensor_all_reduce(scenario, large)
    # One rank sums nothing, so there is nothing to launch.
    assert kernel_step.tensor_all_reduce(put(eager, "deployment.tp", 1.0), 8192.0) == 0.0


def test_tensor_parallelism_over_nodes_is_hierarchical():
    inside = resolve("llama-3.1-405b", "dgx-h100", Options(tp=8.0))
    across = resolve("llama-3.1-405b", "dgx-h100", Options(tp=16.0))
    message = 2.0**20
    extra = kernel_step.tensor_all_reduce(across, message) - kernel_step.tensor_all_reduce(inside, message)
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


# --- experts over nodes ------------------------------------------------------------------------------------------

DEEPSEEK = Options(precision="fp8", prompt=4096.0, output=1024.0, concurrency=2048.0)


def test_nodes_that_a_token_reaches_against_all_its_choices():
    """Every way in which 5 experts can lie on 3 nodes, each as likely."""
    ways = list(itertools.product(range(3), repeat=5))
    mean = sum(len(set(way)) for way in ways) / len(ways)
    assert collectives.reached_nodes(copies=5.0, nodes=3.0) == pytest.approx(mean)


@pytest.mark.parametrize("forwarded", [False, True])
def test_what_crosses_nodes_against_copies_that_are_counted_one_by_one(forwarded):
    """Experts of 20,000 tokens drawn over 32 ranks of 4 nodes; a rank's network and its links each at its own rate."""
    chance, system = np.random.default_rng(3), resolve("deepseek-v3", "dgx-h200", Options(tp=8.0)).system
    tokens, copies = 20_000, 8
    nodes = chance.integers(32, size=(tokens, copies)) // 8
    others = [len(set(row) - {0}) if forwarded else int((row != 0).sum()) for row in nodes]
    system = put(put(system, "link.bandwidth_per_direction", 1e30), "efficiency.stage_latency", 0.0)
    once = tokens * 7168 * 2.0
    found = expert_exchange.exchanged(system, once, Exchange(1.0, 8.0, None, forwarded), 32.0)
    wire = float(found) - float(expert_exchange.exchanged(system, 0.0, Exchange(1.0, 8.0, None, forwarded), 32.0))
    assert wire == pytest.approx(sum(others) / tokens * once / 50e9, rel=0.01)


def test_experts_over_four_nodes_wait_for_the_network():
    """24 of 32 ranks lie across 50 GB/s: by hand 64 x 8 x 7168 x (1 + 2) B x 24/32 in 58 layers."""
    on = "dgx-h200:tp=1,attention_dp=32,ep=32"
    slow = run(resolve("deepseek-v3", on, DEEPSEEK, ["system.network.bandwidth_per_direction=x0.01"]))
    by_hand = 58 * 64 * 8 * 7168 * 3 * 24 / 32 / 0.5e9
    assert slow.breakdown["decode"]["collective"] == pytest.approx(by_hand, rel=0.03)
    assert slow.metrics["mfu"] < 1
    inside = "dgx-h200:tp=1,attention_dp=8,ep=8,dp=4"
    same = [
        run(resolve("deepseek-v3", inside, DEEPSEEK, [f"system.network.bandwidth_per_direction=x{x}"]))
        for x in (0.01, 1)
    ]
    assert same[0].metrics == same[1].metrics


def test_one_way_is_less_than_both_and_one_rank_exchanges_nothing():
    system = resolve("deepseek-v3", "dgx-h200", Options(tp=8.0)).system
    both = Exchange(1.0, 8.0, 4.0, forwarded=True)
    there, back = (
        expert_exchange.exchanged(system, 1e6 * size, both, 32.0) for size in (expert_exchange.DISPATCH_BYTES, 2.0)
    )
    assert 0 < there < back < there + back
    assert expert_exchange.exchanged(system, 1e6, both, 1.0) == 0


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("dgx-h200:tp=1,dp=32,ep=32", "TP x attention-DP = 1"),
        ("dgx-h200:tp=8,attention_dp=4", "--ep is more than --tp"),
    ],
)
def test_experts_are_shared_only_by_ranks_of_one_replica(on, said):
    with pytest.raises(UserError, match=re.escape(said)):
        resolve("deepseek-v3", on, DEEPSEEK)


# --- one rank, buses, and a collective by itself -----------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda: collectives.ring_all_reduce(message=1e6, ranks=1.0, hop_latency=1e-6, bandwidth=1e9),
        lambda: collectives.one_shot_all_reduce(message=1e6, ranks=1.0, latency=1e-6, bandwidth=1e9),
        lambda: collectives.two_shot_all_reduce(message=1e6, ranks=1.0, latency=1e-6, bandwidth=1e9),
        lambda: collectives.in_switch_all_reduce(message=1e6, ranks=1.0, latency=1e-6, bandwidth=1e9),
        lambda: collectives.all_gather(message=1e6, ranks=1.0, hop_latency=1e-6, bandwidth=1e9),
        lambda: collectives.all_to_all(message=1e6, ranks=1.0, latency=1e-6, bandwidth=1e9),
        lambda: topologies.full_mesh_all_reduce(message=1e6, ranks=1.0, latency=1e-6, link_bandwidth=1e9),
        lambda: topologies.torus_all_reduce(
            message=1e6, ranks=1.0, dimensions=2.0, latency=1e-6, hop_latency=1e-6, bandwidth=1e9
        ),
        lambda: topologies.fat_tree_all_reduce(
            message=1e6, ranks=1.0, levels=2.0, hop_latency=1e-6, bandwidth=1e9, oversubscription=1.0
        ),
        lambda: collectives.rooted_all_reduce(message=1e6, ranks=1.0, hop_latency=1e-6, link_bandwidth=1e9),
        lambda: collectives.two_level_all_reduce(
            message=1e6, local=1.0, nodes=1.0, hop_latency=1e-6, link_bandwidth=1e9, ports=4.0
        ),
    ],
)
def test_one_rank_has_nothing_to_reduce(form):
    assert form() == 0


@pytest.mark.parametrize("name", ["dgx-h100", "rtx-4090-8", "mi300x-8", "tpu-v6e"])
@pytest.mark.parametrize("eager", ["true", "false"])
def test_no_machine_pays_for_a_collective_of_one_chip(name, eager):
    one = resolve("llama-3.1-8b", name, Options(tp=1.0), [f"system.efficiency.eager={eager}"])
    assert run(one).breakdown["decode"]["collective"] == 0


#: Public measurements of NCCL [B, us]: aiconfigurator-core 0.12 (Apache-2.0), as the calibration's source lists it.
NCCL = {
    "dgx-h100": {8192.0: 15.96, 262144.0: 19.15, 1048576.0: 25.40},
    "dgx-b200": {8192.0: 26.02, 262144.0: 28.32, 1048576.0: 30.14},
    "rtx-pro-6000-8": {8192.0: 26.7, 262144.0: 85.0, 1048576.0: 132.0},
}


@pytest.mark.parametrize("name", NCCL)
def test_the_closed_form_of_nccl_is_within_half_of_what_was_measured(name):
    for size, measured in NCCL[name].items():
        found = perfmodel.collective("all-reduce", on=name, tp=8, message=size).times["NCCL, closed form"]
        assert found * 1e6 == pytest.approx(measured, rel=0.5), size


def test_a_collective_by_itself_takes_what_its_engine_was_measured_to_take():
    """TensorRT-LLM on eight H100: 25.96 us at 1 MiB; what prefill hides is no part of it."""
    times = perfmodel.collective("all-reduce", on="dgx-h100", tp=8, message="1 MiB", engine="trtllm").times
    assert times["the engine's own, measured"] * 1e6 == pytest.approx(25.96, rel=0.15)


def test_tensor_parallelism_over_pcie_gains_throughput():
    """Public runs on cards without NVLink rise with TP, if by far less than in proportion."""
    options = {"prompt": 500, "output": 500, "concurrency": 64}
    speeds = [
        perfmodel.predict("llama-3.1-8b", on=f"rtx-4090-8:tp={tp}", **options).output_tokens_per_s
        for tp in (1, 2, 4, 8)
    ]
    assert speeds == sorted(speeds)
    assert speeds[3] < 8 * speeds[0]


@pytest.mark.parametrize("engine", ["vLLM_custom_graph", "TRTLLM", "SGLang_CustomAllReduce_graph"])
def test_the_curve_of_a_kin_stands_for_that_of_a_chip(engine):
    """H200's measured all-reduces by the curve fitted on H100's, and their links' rates."""
    every = kernel_fit._rows("kernels/allreduce.csv")
    of = {
        chip: [row for row in every if (row["hardware"], row["engine"]) == (chip, engine)]
        for chip in ("H100 SXM", "H200 SXM")
    }
    x, _ = kernel_fit.fit_all_reduce(of["H100 SXM"])
    ranks, message, latency = kernel_fit._columns(of["H200 SXM"], "tp", "message_bytes", "value")
    found = kernel_fit._all_reduce_time(x[:6], x[6], message, ranks)
    assert np.mean(np.abs(found / (latency * 1e-6) - 1)) <= 0.2

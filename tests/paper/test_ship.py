"""SHIP (MLSys 2026): partitions, topology, skipped nodes, the all-reduce curve, the evaluated pipeline."""

import json
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfmodel.equations import collectives, memory, pipeline, topologies, transformer
from perfmodel.question import Options, resolve
from perfmodel.serving.steady import chips
from perfmodel.specs import catalog

KIB = 1024.0
LPU = catalog.load_system("lpu-v1")[0]
PORT = 32e9 / 3  # 85.3 of 100 Gb/s a port, one direction


def chain(nodes):
    """Nodes in a row, 4 links to each of the 4 next ones."""
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(
        (node, node + step, {"links": 4}) for node in range(nodes) for step in range(1, 5) if node + step < nodes
    )
    return graph


@pytest.mark.parametrize(("lpus", "gigabytes"), [(72, 16.56), (136, 31.28)])
def test_partition_memory(lpus, gigabytes):
    held = memory.partition_capacity(chips=float(lpus), capacity=LPU.memory.sram.capacity)
    assert held == pytest.approx(gigabytes * 1e9, rel=1e-12)


@pytest.mark.parametrize(("lpus", "hops"), [(8, 1), (72, 3), (136, 5)])
def test_printed_diameters(lpus, hops):
    assert topologies.quadfour_ring_diameter(nodes=lpus / 8) == hops


@pytest.mark.parametrize("nodes", range(5, 41))
def test_diameter_is_that_of_a_ring_with_4_neighbours_each_way(nodes):
    """Between two nodes one hop each, and inside each node one hop to the LPU that holds the link."""
    ring = nx.circulant_graph(nodes, [1, 2, 3, 4])
    assert topologies.quadfour_ring_diameter(nodes=float(nodes)) == 2 * nx.diameter(ring) + 1


@pytest.mark.parametrize(("skipped", "printed"), [(0, 427), (1, 256), (2, 128), (3, 43), (4, 0), (7, 0)])
def test_table_1_forward_bandwidth_past_dead_nodes(skipped, printed):
    rate = topologies.quadfour_forward_bandwidth(
        skipped=float(skipped), port_bandwidth=LPU.link.port_bandwidth_per_direction
    )
    assert rate / 1e9 == pytest.approx(printed, abs=0.5)


@pytest.mark.parametrize("dead", range(5))
def test_cut_links_are_those_of_a_graph(dead):
    graph = chain(40)
    graph.remove_nodes_from(range(20, 20 + dead))
    crossing = nx.cut_size(graph, range(20), weight="links")
    assert topologies.quadfour_cut_links(skipped=float(dead)) == crossing


def test_bisection_of_a_partition_counts_both_directions():
    """Printed: 853 GB/s."""
    links = topologies.quadfour_cut_links(skipped=0.0)
    assert 2 * links * LPU.link.port_bandwidth_per_direction / 1e9 == pytest.approx(853, abs=0.5)


def test_a_chip_has_11_ports_and_235_gb_s_in_both_directions():
    """Printed, and compared there with the 1,800 GB/s of a B200, which are both directions."""
    assert LPU.link.ports == 7 + 4
    assert LPU.link.port_bandwidth_per_direction == pytest.approx(PORT, rel=1e-4)
    assert 2 * LPU.link.bandwidth_per_direction / 1e9 == pytest.approx(235, abs=0.5)
    assert LPU.link.bandwidth_per_direction == pytest.approx(11 * PORT, rel=2e-3)


def test_sram_bandwidth_is_that_of_table_2():
    """72 nodes: 10,616 TB/s, which is also 64 streams of 320 B at 0.9 GHz a chip."""
    assert LPU.memory.sram.bandwidth * 576 == pytest.approx(10_616e12, rel=1e-3)
    assert LPU.memory.sram.bandwidth == pytest.approx(64 * 320 * 0.9e9, rel=1e-3)


# --- the all-reduce of figure 6a --------------------------------------------------------------------------------


def all_reduce(message):
    return collectives.saturating_all_reduce(
        message=message,
        latency=LPU.efficiency.all_reduce_latency,
        bandwidth=LPU.efficiency.all_reduce_bandwidth,
        exponent=LPU.efficiency.all_reduce_exponent,
    )


@pytest.mark.parametrize(("kib", "percent"), [(32, 50), (80, 90)])
def test_all_reduce_meets_both_knees(kib, percent):
    share = collectives.saturation(
        message=kib * KIB, time=all_reduce(kib * KIB), bandwidth=LPU.link.bandwidth_per_direction
    )
    assert 100 * share == pytest.approx(percent, abs=0.1)


def test_an_alpha_beta_line_misses_the_second_knee():
    """Through 50 % at 32 KiB it gives 71 % at 80 KiB, where 90 % are printed: the reason for the p-norm."""
    bandwidth = LPU.link.bandwidth_per_direction
    time = collectives.hop_time(message=80 * KIB, hops=1.0, latency=32 * KIB / bandwidth, bandwidth=bandwidth)
    assert 100 * collectives.saturation(message=80 * KIB, time=time, bandwidth=bandwidth) == pytest.approx(71, abs=0.5)


@settings(derandomize=True, deadline=None)
@given(st.floats(1, 1e9), st.floats(1, 1e9))
def test_all_reduce_time_is_monotone_and_above_latency_and_wire(one, other):
    small, large = sorted((one, other))
    assert all_reduce(small) <= all_reduce(large) * (1 + 1e-12)
    for message in (small, large):
        wire = message / LPU.efficiency.all_reduce_bandwidth
        assert all_reduce(message) >= max(wire, LPU.efficiency.all_reduce_latency) * (1 - 1e-12)


# --- the evaluated pipeline --------------------------------------------------------------------------------------


def test_the_evaluated_pipeline_has_1520_lpus_and_349_6_gb():
    # A model of at least 93 layers; what runs on it there is Qwen3-235B.
    scenario = resolve("llama-3.1-405b", "lpu-v1", Options(plan="ship-16x95", precision="int4"))
    assert (scenario.deployment.tp, scenario.deployment.pp) == (16, 95)
    assert chips(scenario) == 1520
    held = memory.partition_capacity(chips=chips(scenario), capacity=LPU.memory.sram.capacity)
    assert held == pytest.approx(349.6e9, rel=1e-12)


def test_380_users_are_micro_batches_of_4_and_32_kib_of_activations():
    """B_max = ceil(caches that fit / depth); 32 KiB is the low end of the printed message sizes."""
    batch = pipeline.microbatch_size(running=380.0, stages=95.0)
    assert batch == 4
    assert batch * 4096 * 2 == 32 * KIB


def test_a_72_lpu_partition_holds_one_qwen3_235b_layer_and_1380_users():
    """Printed for 4,096 tokens of context; weights and cache of 16 bits."""
    file = Path(__file__).parent.parent / "data" / "models.json"
    model = json.loads(file.read_text(encoding="utf-8"))["models"]["Qwen3-235B-A22B"]
    layer = (model["total_params"] - (2 * model["vocab"] + 1) * model["hidden"]) / model["layers"]
    room = memory.kv_room(visible=16.56e9, utilisation=1.0, weights=2 * layer, reserved=0.0)
    user = 4096 * transformer.kv_bytes_per_token(
        kv_heads=model["kv_heads"], key_dim=model["head_dim"], value_dim=model["head_dim"], bytes_per_element=2.0
    )
    assert memory.concurrency_cap(room=room, per_request=user) == 1380

"""What the two machines must do whatever their numbers are."""

import pytest

import perfmodel

ANALOG = {"model": "llama-3.2-1b", "on": "analog-card", "precision": "int8", "prompt": 200, "output": 200}
WAFER = {"model": "llama-3.1-8b", "on": "streaming-wafer", "precision": "fp16", "prompt": 200, "output": 200}


def test_an_analog_product_takes_one_read_a_token():
    """4 products a layer and the head: 16 layers of qkv, out, up and down, and one of the words."""
    slow, fast = (perfmodel.predict(**ANALOG, set=[f"system.efficiency.read={read} ns"]).tpot_s for read in (1200, 200))
    assert slow - fast == pytest.approx((16 * 4 + 1) * 1000e-9, rel=1e-6)


def test_weights_in_arrays_do_not_move():
    wide = perfmodel.predict(**ANALOG, set=["system.memory.sram.bandwidth=1 EB/s"])
    narrow = perfmodel.predict(**ANALOG, set=["system.memory.sram.bandwidth=1 GB/s"])
    assert wide.tpot_s == narrow.tpot_s


def test_cells_hold_eight_bits():
    with pytest.raises(perfmodel.UserError, match="hold 8 bits"):
        perfmodel.predict(**{**ANALOG, "precision": "bf16"})


def test_a_step_of_the_wafer_is_a_pass_of_the_weights_at_least():
    """8.0 billion weights of 2 bytes, less the embedding, of which a step reads rows only."""
    answer = perfmodel.predict(**WAFER)
    weights = (8_030_261_248 - 128_256 * 4096) * 2
    assert weights / (0.8 * 150e9) <= answer.tpot_s <= 1.05 * weights / (0.8 * 150e9) + 32 * 10e-6


def test_requests_share_a_pass_of_the_weights():
    one, many = (perfmodel.predict(**WAFER, concurrency=count).output_tokens_per_s for count in (1, 32))
    assert many > 20 * one


def test_the_cache_of_the_wafer_does_not_lie_with_the_weights():
    less = perfmodel.predict(**WAFER, set=["system.memory.ddr.capacity=12 GB"])
    assert "does not fit" in less.reason
    assert "usable" in less.reason
    twice = perfmodel.predict(**WAFER, set=["system.memory.sram.capacity=+100%"])
    assert twice.max_concurrency > 2 * perfmodel.predict(**WAFER).max_concurrency

"""What moved between two versions is found, by number, and what did not is left out."""

from tests.moved import NUMBERS, moved


def test_what_moved_is_named_with_both_numbers():
    before = {"a": {"ttft_s": 1.0, "tpot_s": 2.0}, "b": {"answers": [{"ttft_s": 1.0}]}}
    after = {"a": {"ttft_s": 1.004, "tpot_s": 2.1}, "b": {"answers": [{"ttft_s": None}]}, "c": {"power_w": 5.0}}
    assert moved(before, after, 0.005) == [
        ("a", "tpot_s", 2.0, 2.1),
        ("b", "ttft_s", 1.0, None),
        ("c", "power_w", None, 5.0),
    ]
    assert moved(after, after, 0.0) == []
    assert {"ttft_s", "tpot_s"} <= set(NUMBERS)

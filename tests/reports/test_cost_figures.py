"""Figures of cost: published numbers beside ours, and what a recipe may set."""

import math

import pytest

from perfmodel.reports import figures
from perfmodel.reports.figures import Wanted


def made(name, **arguments):
    return figures.make(Wanted(name, arguments, "here"))


def test_lines_of_the_bill_that_are_computed_lie_near_the_published_ones():
    found = made("tco-materials", on=["dgx-b200", "sn40l-16"])
    proving = [number for number in found.numbers if not number.fitted]
    assert len(proving) == 8
    assert max(abs(number.error) for number in proving) <= 0.25
    assert any("not published" in cell for row in found.tables[1].rows for cell in row)


def test_every_published_hour_stands_in_the_table():
    found = made("tco-hours")
    assert len(found.tables[0].rows) == 28 + 11 * 2
    assert "power not published" in {row[-1] for row in found.tables[0].rows}


def test_measured_powers_stand_with_their_errors():
    found = made("tco-power")
    assert len(found.numbers) == 5
    assert all(math.isfinite(number.error) and not number.fitted for number in found.numbers)
    assert len(found.charts[0].frame) == 866 + 2 * 4


def test_cost_falls_and_speed_too_with_more_users():
    found = made("tco-speed", model="llama-3.1-8b", on=["dgx-h100:tp=1"], users=[1, 8, 64])
    frame = found.charts[0].frame
    assert list(frame.users) == [1, 8, 64]
    assert frame.usd.is_monotonic_decreasing
    assert frame.speed.is_monotonic_decreasing
    assert ((frame.low < frame.usd) & (frame.usd < frame.high)).all()


@pytest.mark.parametrize("name", ["tco", "ship", "dataflow"])
def test_the_recipes_ask_for_cost(name):
    assert any(wanted.name.startswith("tco-") for wanted in figures.read_recipe(name).figures)

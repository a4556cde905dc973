"""Bills of materials against published ones, and what is not published."""

import math
from dataclasses import replace
from typing import get_args

import pytest

from perfmodel.planning.tco import bom
from perfmodel.specs import catalog
from perfmodel.specs.types import YieldModel

COMPUTED = [entry for entry in bom.against_published() if not entry.copied]


@pytest.mark.parametrize("entry", COMPUTED, ids=lambda entry: f"{entry.chip} {entry.line} {entry.published:g}")
def test_a_computed_line_is_near_the_published_one(entry):
    """Die from wafer, area, defects and harvest; memory from the other chip's price a byte; loss from bonds."""
    assert abs(entry.error) <= 0.25


def test_lines_that_were_copied_are_not_counted_as_proof():
    assert {entry.line for entry in bom.against_published() if entry.copied} == {"package", "test"}
    assert {entry.line for entry in COMPUTED} == {"logic", "memory", "package loss", "chip"}


def test_what_nobody_has_published_is_said_in_the_total():
    made = bom.bill(catalog.load_bare_system("sn40l-16"))
    assert made.missing == ("logic", "package loss")
    chips = made.node[0]
    assert "without logic" in chips.note
    assert chips.value > 0
    assert all(math.isnan(line.value) for line in made.chip if line.kind == "not published")
    assert "logic" in bom.total(made.node, "node").note


def test_a_node_of_unknown_parts_has_no_total():
    made = bom.bill(catalog.load_bare_system("mi355x-8"))
    assert bom.total(made.node, "node").kind == "not published"
    assert math.isnan(made.margin)


@pytest.mark.parametrize("system", ["dgx-h100", "dgx-h200", "dgx-b200", "lpu-v1", "sn40l-16"])
def test_every_line_lies_in_its_range(system):
    made = bom.bill(catalog.load_bare_system(system))
    for line in (*made.chip, *made.node):
        if line.kind != "not published":
            assert 0 <= line.low <= line.value <= line.high, line


def test_yield_models_of_a_die_are_ordered():
    """Clustered defects leave more dies whole, so a die costs less: Poisson, Murphy, negative binomial, Seeds."""
    stock, system = catalog.load_materials(), catalog.load_bare_system("dgx-h100")
    costs = {model: bom.bill(system, replace(stock, yield_model=model)).chip[0].value for model in get_args(YieldModel)}
    assert costs["seeds"] < costs["negative_binomial"] < costs["poisson"]
    assert costs["seeds"] < costs["murphy"] < costs["poisson"]


def test_the_price_at_its_own_margin_is_the_price():
    made = bom.bill(catalog.load_bare_system("dgx-b200"))
    assert made.price_at(made.margin) == pytest.approx(made.price)


def test_memory_follows_its_year():
    """24 TB at 2.4 and at 12 dollars a gigabyte."""
    system = catalog.load_bare_system("sn40l-16")
    by_year = {year: bom.bill(system, ddr_year=year).node[-1].value for year in ("2023", "2025")}
    assert by_year == pytest.approx({"2023": 57600.0, "2025": 288000.0})

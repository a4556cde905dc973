"""Dataflow Is All You Need: values of its figures and tables that nothing was fitted on, and those that were."""

import math
import statistics

import numpy as np
import pytest

from perfmodel.equations import speculative
from perfmodel.evidence import dataflow_fit
from perfmodel.reports import figures
from perfmodel.reports.dataflow import batches, optimisations, speculation, systems
from perfmodel.reports.dataflow.common import copied

PRINTED = dataflow_fit.figures()


def errors(figure, part=""):
    """Return the errors of published values that nothing was fitted on."""
    return [abs(one.error) for one in figure.numbers if one.published and not one.fitted and part in one.what]


def median_error(figure, part=""):
    return statistics.median(errors(figure, part))


def test_figure_1a_h100_of_four_and_sn40_of_eight():
    made = systems.figure_1a()
    assert len(errors(made)) == 2
    assert max(errors(made)) <= 0.08


def test_figure_1b_four_times_and_both_shares():
    made = systems.figure_1b()
    times = [one for one in made.numbers if one.unit == "ms"]
    assert [one.published for one in times] == [12.6, 33, 6.7, 9]
    assert max(abs(one.error) for one in times) <= 0.15
    shares = [one for one in made.numbers if one.unit == "%"]
    assert [round(one.published, 2) for one in shares] == [0.72, 0.57]
    assert max(abs(one.computed - one.published) for one in shares) <= 0.05


def test_table_1_twelve_of_fifteen():
    made = systems.table_1()
    assert len(errors(made)) == 15
    assert sum(row[-1] == "yes" for row in made.tables[0].rows) == 12


@pytest.mark.parametrize(("ratio", "k", "alpha"), [(0.63, 5, 0.810), (0.95, 5, 0.979), (0.47, 9, 0.815)])
def test_alpha_of_an_acceptance_ratio(ratio, k, alpha):
    """Values worked out by hand from Table 1."""
    assert systems.alpha_of_ratio(ratio, float(k)) == pytest.approx(alpha, abs=6e-4)


def test_figure_10_geometric_mean():
    made = optimisations.figure_10()
    assert len(errors(made)) == 32  # 31 bars and the mean
    (mean,) = [one for one in made.numbers if one.what == "geometric mean"]
    assert mean.computed == pytest.approx(1.6, abs=0.1)
    assert median_error(made) < 0.15  # short of the target, half of the best constant's 0.11


def test_figure_11_agrees_on_the_axis_of_the_figure():
    """Its limit is drawn at 1,800 GB/s, not 1,600: the same factor brings both averages within 5 %."""
    made = optimisations.figure_11()
    scaled = [one for one in made.numbers if "axis" in one.what]
    assert [one.published for one in scaled] == [455, 1500]
    assert max(abs(one.error) for one in scaled) < 0.05


def test_figure_12_half_the_mean_error_of_copying():
    made = optimisations.figure_12()
    rows = {name: PRINTED["fig12_batchstreaming"][name] for name in ("1B", "3B", "8B")}
    naive = [abs(one) for one in copied(rows, "1B")]
    assert len(errors(made)) == len(naive) == 8
    assert statistics.mean(errors(made)) <= statistics.mean(naive) / 2


def test_figure_13_three_models_from_the_row_of_a_fourth():
    made = optimisations.figure_13()
    assert len(errors(made)) == 13
    assert median_error(made) < 0.05
    at_20, most = (dataflow_fit.schedule_offloading(dataflow_fit.sn40(), "1B", 1.0, m) for m in (20.0, 1e9))
    assert at_20 - 1 >= 0.85 * (most - 1)  # the plateau near M = 20


def test_table_4_against_copying_and_the_roofline():
    made = batches.table_4()
    rows = {row: PRINTED["table4_speedup"][row] for row in dataflow_fit.TABLE_4}
    assert len(errors(made)) == 36
    assert median_error(made) < statistics.median(map(abs, copied(rows, dataflow_fit.TABLE_4_ROW)))
    assert median_error(made) < 0.15  # short of the target of 0.12


def test_figure_14():
    made = batches.figure_14()
    above = [one for one in made.numbers if "Figure 14a" in one.source]
    assert len(above) == 37
    assert statistics.median(abs(one.error) for one in above if one.what.startswith("70B")) <= 0.12
    assert statistics.median(abs(one.error) for one in above if one.what.startswith("405B")) <= 0.05


@pytest.mark.xfail(
    strict=True,
    reason="1.87: our bars of SN40L stand 4 to 14 % high, those of H100 on both sides; draft, k and acceptance are not "
    "printed",
)
def test_the_ratio_of_figure_14():
    (ratio,) = [one for one in batches.figure_14().numbers if one.published == 1.7]
    assert ratio.computed == pytest.approx(1.7, abs=0.15)


def test_equation_4_is_what_it_says():
    """One iteration of two sequences: five draft tokens at 1,000 tok/s each and one target token at 100 tok/s."""
    draft = speculative.traced_time(samples=2.0, runs=5.0, iterations=10.0, rate=1000.0)
    target = speculative.traced_time(samples=2.0, runs=1.0, iterations=10.0, rate=100.0)
    assert (draft, target) == (0.1, 0.2)
    assert speculative.traced_rate(tokens=90.0, draft=draft, target=target) == pytest.approx(300.0)


def test_what_was_fitted_is_flagged():
    """20 printed values of SN40L and two of H100: each counts as fitted where it stands in a figure."""
    counts = {
        figure: sum(one.fitted for one in figure().numbers)
        for figure in (optimisations.figure_10, optimisations.figure_12, optimisations.figure_13, batches.table_4)
    }
    assert list(counts.values()) == [1, 4, 5, 6]


def test_every_figure_and_table_is_in_the_recipe():
    wanted = {entry.name for entry in figures.read_recipe("dataflow").figures}
    parts = ("1a", "1b", "2", "table-1", "tables-2-3", "10", "11", "12", "13", "table-4", "14", "15")
    assert wanted >= {f"dataflow-{part}" for part in parts}


# --- beyond the paper --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "k", "output"), [(0.8, 5, 256), (0.95, 9, 128), (0.5, 3, 64)])
def test_the_slow_requests_are_those_of_a_simulation(alpha, k, output):
    """20,000 simulated requests, one step after another until all tokens are there; a step more or less of some 20."""
    random = np.random.default_rng(7)
    accepted = np.cumprod(random.random((20_000, output, k)) < alpha, axis=2).sum(axis=2) + 1
    steps = (np.cumsum(accepted, axis=1) < output).sum(axis=1) + 1
    expected = np.quantile(steps, 0.99) / output
    assert speculation.slow_tpot(1.0, alpha, float(k), float(output)) == pytest.approx(expected, abs=1.2 / output)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.7])
def test_one_token_pays_from_an_acceptance_of_its_cost(cost):
    """Leviathan's corollary 3.9."""
    assert speculation.break_even_alpha(1.0, cost) == pytest.approx(cost, abs=1e-9)
    assert speculation.best_drafted(cost - 0.02, cost) == 0
    assert speculation.best_drafted(cost + 0.02, cost) >= 1


def test_a_draft_that_costs_more_than_all_its_tokens_never_pays():
    assert math.isnan(speculation.break_even_alpha(5.0, 1.1))

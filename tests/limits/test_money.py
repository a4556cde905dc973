"""Power, yield and cost: published worked examples, exact limits, and unit mistakes that must be refused."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.equations import power, tco, yield_cost
from perfmodel.errors import UserError
from perfmodel.evidence import power_fit
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.serving.cost import AllInPower, ItPower, cost_of, electricity_per_year
from perfmodel.specs import catalog
from perfmodel.specs.units import parse, show

DETERMINISTIC = settings(derandomize=True, deadline=None, max_examples=50)
#: Chiplet Actuary's wafer: 300 mm, 5 mm lost at the edge, 0.2 mm between dies.
WAFER = {"diameter": 300.0, "scribe": 0.2, "edge": 5.0}


# --- yield -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("area", "dies"), [(725.0, 66), (814.0, 57.6), (800.0, 58.7), (826.0, 56.5)])
def test_dies_of_known_chips(area, dies):
    """Worked with the same formula elsewhere, from their real sides where known."""
    assert yield_cost.dies_per_wafer(area=area, **WAFER) == pytest.approx(dies, rel=0.01)


@pytest.mark.parametrize(
    ("area", "density", "expected"), [(725.0, 0.08, 0.569), (814.0, 0.11, 0.424), (800.0, 0.11, 0.430)]
)
def test_negative_binomial_of_known_chips(area, density, expected):
    found = yield_cost.negative_binomial_yield(defects=density / 100, area=area, cluster=10.0)
    assert found == pytest.approx(expected, abs=0.001)


YIELDS = (yield_cost.poisson_yield, yield_cost.murphy_yield, yield_cost.seeds_yield)


@pytest.mark.parametrize("form", YIELDS)
def test_no_defects_means_all_dies(form):
    assert form(defects=0.0, area=800.0) == 1.0
    assert yield_cost.negative_binomial_yield(defects=0.0, area=800.0, cluster=10.0) == 1.0


@DETERMINISTIC
@given(st.floats(1e-9, 0.05), st.floats(10.0, 900.0))
def test_yield_models_are_ordered(defects, area):
    """Clustering leaves more dies whole: Poisson <= Murphy <= Seeds, and the negative binomial between the ends."""
    poisson, murphy, seeds = (form(defects=defects, area=area) for form in YIELDS)
    clustered = yield_cost.negative_binomial_yield(defects=defects, area=area, cluster=10.0)
    assert 0 <= poisson <= murphy * (1 + 1e-9) <= seeds * (1 + 2e-9) <= 1 + 1e-8
    assert poisson <= clustered * (1 + 1e-9) <= seeds * (1 + 2e-9)
    assert yield_cost.negative_binomial_yield(defects=defects, area=area, cluster=1.0) == pytest.approx(seeds)
    assert yield_cost.negative_binomial_yield(defects=defects, area=area, cluster=1e7) == pytest.approx(
        poisson, rel=1e-3
    )


@pytest.mark.parametrize("x", [1e-6, 9.9e-5, 1.01e-4, 1e-3, 0.1, 1.0])
def test_murphy_against_its_closed_form(x):
    assert yield_cost.murphy_yield(defects=x, area=1.0) == pytest.approx((-math.expm1(-x) / x) ** 2, rel=1e-9)


def test_harvest_and_package_at_their_ends():
    assert yield_cost.harvested_yield(perfect=0.4, harvest=0.0) == 0.4
    assert yield_cost.harvested_yield(perfect=0.4, harvest=1.0) == 1.0
    assert yield_cost.package_loss(content=4900.0, good=yield_cost.package_yield(bond=1.0, parts=10.0)) == 0.0
    assert yield_cost.price_at_margin(cost=6400.0, margin=0.0) == 6400.0


# --- money -------------------------------------------------------------------------------------------------------


def test_capital_at_its_limits():
    """Without interest a fourth a year for four years; a single year pays all back with its interest."""
    assert tco.yearly_capital(rate=0.0, years=4.0, residual=0.0) == 0.25
    assert tco.yearly_capital(rate=0.0, years=4.0, residual=0.2) == pytest.approx(0.2)
    assert tco.yearly_capital(rate=0.1, years=1.0, residual=0.0) == pytest.approx(1.1)
    assert tco.yearly_capital(rate=0.1, years=1.0, residual=0.3) == pytest.approx(1.1 - 0.3)
    assert tco.yearly_capital(rate=0.0, years=1.0, residual=1.0) == 0.0


@DETERMINISTIC
@given(st.floats(0.0, 0.5), st.integers(1, 30), st.floats(0.0, 1.0))
def test_capital_pays_back_to_the_cent(rate, years, residual):
    """A loan that is paid off year by year leaves just the residual value."""
    payment = tco.yearly_capital(rate=rate, years=float(years), residual=residual)
    owed = 1.0
    for _ in range(years):
        owed = owed * (1 + rate) - payment
    assert owed == pytest.approx(residual, abs=1e-6)


def test_price_for_cost_turns_the_cost_around():
    scenario = resolve("llama-3.1-70b", "dgx-b200", Options(concurrency=32.0))
    found = cost_of(scenario)
    other = found.hourly["space"] + found.hourly["electricity"]
    price = tco.price_for_cost(cost_per_hour=found.per_hour, other_per_hour=other, yearly_share=found.yearly_share)
    assert price == pytest.approx(float(scenario.system.price.system), rel=1e-9)


def test_break_even_is_where_both_cost_the_same():
    given_ = {"fixed": 2.0, "idle_energy": 0.05, "busy_energy": 0.2, "rent": 3.0}
    share = tco.break_even_utilisation(**given_)
    own = 2.0 + share * 0.2 + (1 - share) * 0.05
    assert own == pytest.approx(share * 3.0)
    assert math.isnan(tco.break_even_utilisation(**{**given_, "rent": 0.1}))


MACHINES = ["dgx-h100", "dgx-b200", "sn40l-16", "lpu-v1"]


@pytest.mark.parametrize("ownership", ["colocated", "owned", "rented"])
@pytest.mark.parametrize("on", MACHINES)
def test_input_and_output_pay_for_everything(on, ownership):
    """Tokens sold in an hour at their prices make the cost of the hour, and the parts of the hour add up."""
    scenario = resolve("llama-3.1-70b", on, Options(concurrency=16.0), [f"economics.ownership={ownership}"])
    found, answer = cost_of(scenario), evaluate(scenario)
    if ownership == "rented" and on in ("sn40l-16", "lpu-v1"):
        assert math.isnan(found.per_hour)
        return
    sold = scenario.economics.utilisation * 3600 / 1e6
    earned = sold * (answer.input_tokens_per_s * found.input + answer.output_tokens_per_s * found.output)
    assert earned == pytest.approx(found.per_hour)
    assert sum(found.hourly.values()) == pytest.approx(found.per_hour)
    total = answer.input_tokens_per_s + answer.output_tokens_per_s
    assert sold * total * found.blended == pytest.approx(found.per_hour)
    assert 0 < found.input_share < 1


@pytest.mark.parametrize("on", MACHINES)
def test_power_lies_between_idle_and_nameplate(on):
    for concurrency in (1.0, 64.0):
        drawn = cost_of(resolve("llama-3.1-70b", on, Options(concurrency=concurrency))).draw
        assert drawn.idle.watts <= drawn.mean.watts <= drawn.peak.watts <= drawn.nameplate.watts
        assert 0 < drawn.prefill_busy + drawn.decode_busy <= 1 + 1e-9


def test_a_power_cap_holds():
    scenario = resolve("llama-3.1-70b", "dgx-h100", Options(concurrency=64.0))
    free = cost_of(scenario).draw
    capped = cost_of(resolve("llama-3.1-70b", "dgx-h100", Options(concurrency=64.0), ["system.power.cap=40%"])).draw
    assert free.chip > 0.4 * 700
    assert capped.chip <= 0.4 * 700


def test_joules_follow_from_power_and_rate():
    answer = perfmodel.predict("llama-3.1-8b", on="dgx-b200", tp=1, concurrency=8)
    assert answer.joules_per_output_token == pytest.approx(answer.power_w / answer.output_tokens_per_s)


def test_an_idle_year_costs_more_a_token():
    half, full = (
        perfmodel.predict("llama-3.1-8b", on="dgx-h100", tp=1, set={"economics.utilisation": share})
        for share in ("50%", "100%")
    )
    assert full.usd_per_mtok_blended < half.usd_per_mtok_blended < 2 * full.usd_per_mtok_blended


def test_the_fit_of_power_has_not_drifted():
    path = catalog.bundled() / catalog.POWER_FOLDER / power_fit.FILE
    assert path.read_text(encoding="utf-8") == power_fit.text()


def test_readings_agree_with_what_the_data_derive():
    """Bandwidth of decode attention stands in the file; the lowest reading is that of the file."""
    power_, memory, _, _, kinds = power_fit.readings()
    assert len(power_) == 866
    assert power_.min() == pytest.approx(0.2477, abs=1e-4)
    assert memory[kinds == "generation_attention"].max() == pytest.approx(7.328213 / 8, rel=1e-6)


# --- unit mistakes -----------------------------------------------------------------------------------------------


def test_no_pue_on_power_at_the_utility():
    """1.73 kW of InferenceX holds cooling already; a PUE on top would make 2.16 kW of it."""
    figure = AllInPower(1730.0)
    with pytest.raises(AttributeError):
        figure.at_utility(1.25)  # type: ignore[attr-defined]
    assert ItPower(1384.0).at_utility(1.25).watts == pytest.approx(1730.0)


def test_electricity_is_not_paid_without_the_building():
    economics = catalog.load_economics()
    with pytest.raises(TypeError, match="at the utility"):
        electricity_per_year(ItPower(1000.0), economics)  # type: ignore[arg-type]
    year = electricity_per_year(AllInPower(1000.0), replace(economics, electricity=parse("0.1 USD/kWh", "USD/J")))
    assert year == pytest.approx(876.0)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("1.73 kW", "W all-in"),
        ("1.73 kW all-in", "W"),
        ("1730", "W all-in"),
        (1730, "W all-in"),
        ("0.08 USD/kW", "USD/J"),
        ("150 USD/kWh", "USD/W-month"),
        ("150 USD/kW", "USD/W-month"),
        ("0.08 USD/kW-month", "USD/J"),
        ("10 kWh", "W"),
        ("10 kW", "J"),
        ("3 GB all-in", "W all-in"),
    ],
)
def test_units_that_look_alike_are_refused(text, unit):
    with pytest.raises(UserError):
        parse(text, unit)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("0.08 USD/kWh", "USD/J", 0.08 / 3.6e6),
        ("150 USD/kW-month", "USD/W-month", 0.15),
        ("1.73 kW all-in", "W all-in", 1730.0),
        ("15 USD/GB", "USD/B", 15e-9),
        ("2.9 USD/h", "USD/s", 2.9 / 3600),
        ("370 g/kWh", "kg/J", 0.37 / 3.6e6),
        ("0.11 1/cm2", "1/mm2", 0.0011),
    ],
)
def test_units_of_money(text, unit, value):
    assert parse(text, unit) == pytest.approx(value)
    assert parse(show(value, unit, 17), unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        "system.power.all_in_per_chip=1.73 kW",
        "system.power.system_per_chip=1.73 kW all-in",
        "economics.electricity=0.08 USD/kW",
        "economics.colocation=0.08 USD/kWh",
        "economics.pue=0.9",
        "economics.utilisation=140%",
        "economics.utilisation=0",
        "economics.life=0 year",
        "economics.ownership=stolen",
    ],
)
def test_wrong_changes_are_refused(change):
    with pytest.raises(UserError):
        resolve("llama-3.1-8b", "dgx-h100", Options(), [change])


def test_a_file_that_mixes_power_with_energy_does_not_load(tmp_path):
    bundled = (catalog.bundled() / "hardware_specs" / "economics.yaml").read_text(encoding="utf-8")
    wrong = tmp_path / "economics.yaml"
    wrong.write_text(bundled.replace("value: 0.0862 USD/kWh", "value: 0.0862 USD/kW"), encoding="utf-8")
    from perfmodel.specs.types import Economics

    (problem,) = catalog.problems(wrong, Economics)
    assert "electricity" in problem
    assert "USD/kWh" in problem


def test_power_at_the_utility_of_published_constants_is_not_multiplied():
    """The specs hold what the published constants say, in the unit that no PUE takes."""
    with (catalog.bundled() / "data" / "tco_constants.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "all_in_utility_power"]
    names = {"h100": "dgx-h100", "b200": "dgx-b200", "gb200": "gb200-nvl72", "mi300x": "mi300x-8", "mi355x": "mi355x-8"}
    for row in rows:
        if row["hardware"] in names:
            system = catalog.load_bare_system(names[row["hardware"]])
            assert system.power.all_in_per_chip == pytest.approx(1000 * float(row["value"]))


def test_power_equations_take_arrays():
    found = power.power_over_the_day(busy=np.array([1.0, 2.0]), idle=0.5, utilisation=0.5)
    assert found.tolist() == [0.75, 1.25]

"""Costs side by side and how sure they are: against other libraries, by hand, and by turning them around."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.planning.tco import asking, published, uncertainty
from perfmodel.planning.tco.prices import TokenPrice
from perfmodel.planning.tco.uncertainty import Unknown
from perfmodel.question import Options, resolve
from perfmodel.serving.cost import AllInPower, ItPower, cost_of
from perfmodel.specs import catalog
from perfmodel.specs.units import parse

SHARES = stats.qmc.Sobol(1, seed=1).random(4096)[:, 0]


# --- draws -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "value", "high"), [(1.0, 2.0, 8.0), (1.0, 1.0, 3.0), (0.5, 3.0, 3.0)])
def test_an_estimate_is_triangular_on_its_logarithm(low, value, high):
    drawn = np.log(Unknown("x", low, value, high, False).at(SHARES))
    width = math.log(high / low)
    other = stats.triang(math.log(value / low) / width, loc=math.log(low), scale=width)
    assert drawn == pytest.approx(other.ppf(SHARES), abs=1e-9)


def test_an_estimate_from_nothing_is_triangular_itself():
    drawn = Unknown("x", 0.0, 0.1, 0.3, False).at(SHARES)
    assert drawn == pytest.approx(stats.triang(1 / 3, loc=0, scale=0.3).ppf(SHARES), abs=1e-9)


def test_errors_of_times_hold_eighty_percent_within_their_spread():
    drawn = Unknown(uncertainty.TPOT, -0.2, 0.2, 0.2, False).at(SHARES)
    assert np.mean(np.abs(np.log(drawn)) <= 0.2) == pytest.approx(0.8, abs=0.01)


def test_indices_against_the_analytic_ones_of_ishigami():
    shares = stats.qmc.Sobol(3, seed=2).random(2**15)
    x = np.pi * (2 * shares - 1)
    values = np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
    found = [uncertainty.first_order(shares[:, at], values, bins=64) for at in range(3)]
    assert found == pytest.approx([0.3139, 0.4424, 0.0], abs=0.01)


def test_indices_against_another_library():
    def linear(x):
        return 3 * x[0] + 2 * x[1] + x[2]

    other = stats.sobol_indices(func=linear, n=4096, dists=[stats.uniform()] * 3, rng=np.random.default_rng(3))
    shares = stats.qmc.Sobol(3, seed=4).random(2**14)
    found = [uncertainty.first_order(shares[:, at], linear(shares.T)) for at in range(3)]
    assert found == pytest.approx(other.first_order.tolist(), abs=0.01)


# --- samples of systems ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    on = ["lpu-v1", "sn40l-16", "dgx-h100", "dgx-b200", "mi355x-8"]
    return asking.own("llama-3.1-70b", on, Options(concurrency=32.0), samples=1024)


def test_probabilities_add_up(result):
    shares = result.to_dict()["probability_cheaper"]
    for one, others in shares.items():
        for other, share in others.items():
            assert share + shares[other][one] == pytest.approx(1)


def test_what_is_shared_cancels_between_equal_systems():
    """Two machines that differ in price alone, the price given: the cheaper one is cheaper in every sample."""
    changes = ["#1:system.price.system=300 kUSD", "#2:system.price.system=310 kUSD"]
    systems = [resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0), [change[3:]]) for change in changes]
    sample = uncertainty.draw_samples(systems, 256)
    shared = ("economics.", "system.power_shape.", uncertainty.ENGINE_TPOT, uncertainty.ENGINE_TTFT)
    own = {path for path in sample.systems[0].columns if not path.startswith(shared)}
    assert own == {uncertainty.TTFT, uncertainty.TPOT}
    common = [path for path in sample.systems[0].columns if path not in own]
    assert all(sample.systems[0].columns[path] == sample.systems[1].columns[path] for path in common)
    assert all(sample.systems[0].columns[path] != sample.systems[1].columns[path] for path in own)


def test_percentiles_stand_in_order_and_near_the_point(result):
    for at, owned in enumerate(result.systems):
        ends = result.percentiles(at, "blended")
        assert ends["p10"] < ends["p50"] < ends["p90"]
        assert ends["p10"] < owned.cost.blended * 1.3
        assert ends["p90"] > owned.cost.blended * 0.8


def test_blended_lies_between_input_and_output(result):
    for one in result.to_dict()["answers"]:
        point = one["usd_per_mtok"]
        ends = sorted(point[of]["p50"] for of in ("input", "output"))
        assert ends[0] * (1 - 1e-9) <= point["blended"]["p50"] <= ends[1] * (1 + 1e-9)


def test_the_tie_price_ties(result):
    """Asked again at that price, the machine costs what the reference does."""
    costs = {owned.name: owned for owned in result.systems}
    reference = costs["dgx-b200"].cost.blended
    for name in ("sn40l-16", "dgx-h100", "mi355x-8"):
        price = costs[name].tie_price
        again = cost_of(resolve("llama-3.1-70b", name, Options(concurrency=32.0), [f"system.price.system={price} USD"]))
        assert again.blended == pytest.approx(reference, rel=1e-6)
    assert costs["dgx-b200"].tie_price == pytest.approx(float(costs["dgx-b200"].scenario.system.price.system))


def test_estimates_of_a_price_are_labelled(result):
    labels = {owned.name: owned.labels for owned in result.systems}
    assert "price not published: estimate" in labels["lpu-v1"]
    assert "price not published: estimate" in labels["sn40l-16"]
    assert "price not published: estimate" in labels["mi355x-8"]
    assert "price from third parties: estimate" in labels["dgx-b200"]
    assert not any("uncalibrated" in label for label in labels["dgx-b200"])


def test_the_parts_of_an_hour_and_of_capital_add_up(result):
    for one in result.to_dict()["answers"]:
        hourly, capital = one["costs"]["hourly_usd"], one["costs"]["capex_usd"]
        assert sum(hourly.values()) == pytest.approx(one["usd_per_chip_hour"] * one["chips"])
        assert sum(capital.values()) == pytest.approx(one["capex_usd"])


# --- published hours ---------------------------------------------------------------------------------------------


def test_capex_of_a_published_hour_by_hand():
    """1.30 dollars an hour of an H100 that draws 1.73 kW at the utility: all parts written out."""
    economics = catalog.load_economics()
    price = published.capex_of_hour(1.30, AllInPower(1730.0), economics)
    capital = 0.1 / (1 - 1.1**-5)
    year = price * (1 + 0.2 + 0.03 + 0.03) * (capital + 0.005 + 0.005)
    year += 1.73 * 195 * 12 + 1.73 * 8760 * 0.0862
    assert year / 8760 == pytest.approx(1.30)


def test_a_power_of_machines_gets_its_pue_once():
    """The survey of July 2026 has power without PUE, that of August 2025 with it: 1.37 kW and 1.37 x 1.25."""
    economics = catalog.load_economics()
    machines, utility = (
        published.capex_of_hour(1.17, power, economics) for power in (ItPower(1370.0), AllInPower(1370.0))
    )
    further = 1.37 * 0.25 * 8760 * 0.0862 / (1.26 * (0.1 / (1 - 1.1**-5) + 0.01))
    assert utility - machines == pytest.approx(further)


def test_every_published_hour_has_its_power_or_says_why_not():
    hours = list(published.published_hours())
    assert [hour.chip for hour in hours if hour.power is None] == ["H800"]
    assert {hour.survey for hour in hours if isinstance(hour.power, ItPower)} == {"2026-07"}
    assert {hour.survey for hour in hours if isinstance(hour.power, AllInPower)} == {"2025-08"}


#: Capital with network and storage [USD a chip], power of IT [kW], own cost [USD/h]: SemiAnalysis, 2025-08-20, and
#: InferenceX, 2026-07; the capital of the last three is that of the release's volume prices.
OWN = {
    "H100 server of 190 kUSD": (190e3 / 8, 1.37, 1.42),
    "GB200 rack of 3.1 million": (3.1e6 / 72, 1.87, 2.21),
    "H200": (163e3 / 8, 1.37, 1.22),
    "B200": (245e3 / 8, 1.71, 1.73),
    "MI355X": (175e3 / 8, 2.09, 1.50),
}


@pytest.mark.parametrize("name", OWN)
def test_overheads_give_the_published_own_cost(name):
    """At the publisher's site (150 USD/kW-month, 8 ct, PUE 1.25) our overheads give its cost within 5 %."""
    price, kilowatts, hour = OWN[name]
    site = replace(catalog.load_economics(), colocation=0.15, electricity=0.08 / 3.6e6, pue=1.25)
    assert published.own_hour(price, ItPower(1e3 * kilowatts), site) == pytest.approx(hour, rel=0.05)


def test_prices_of_different_tokens_are_not_compared():
    """DeepSeek-R1 on H200: 0.876 a million in all and 1.752 a million out are the same price."""
    total, output = TokenPrice(0.8758, "total"), TokenPrice(1.7516, "output")
    with pytest.raises(UserError, match="output tokens cannot be compared with one of total"):
        output.over(total)
    assert TokenPrice(1.7516, "output").over(output) == 1.0


# --- the command -------------------------------------------------------------------------------------------------


KEYS = {"system", "usd_per_mtok", "usd_per_chip_hour", "capex_usd", "power_w", "joules_per_output_token", "costs"}
KEYS |= {"tie_price_usd", "labels"}
ASK = ["tco", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--on", "dgx-b200:tp=1", "--samples", "64"]


def test_json_has_the_documented_keys(capsys):
    assert run([*ASK, "--concurrency", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    keys = {"schema_version", "verb", "question", "answers", "probability_cheaper", "tpot_bound_s", "sold_usd_per_mtok"}
    assert set(found) == keys | {"assumed", "warnings"}
    for one in found["answers"]:
        assert set(one) >= KEYS
        assert set(one["usd_per_mtok"]) == {"input", "output", "blended"}
        assert set(one["usd_per_mtok"]["input"]) == {"p10", "p50", "p90"}
    assert set(found["probability_cheaper"]) == {"dgx-h100", "dgx-b200"}


def test_the_table_names_what_it_must(capsys):
    assert run([*ASK, "--tpot", "20 ms", "-v"]) == 0
    out = capsys.readouterr().out
    for words in ("$/Mtok output", "P10-P90", "ties with dgx-b200 at", "what decides", "gCO2e", "20 ms"):
        assert words in out


def test_csv_is_one_row_a_system(capsys):
    assert run([*ASK, "--concurrency", "8", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "usd_per_mtok_output_p50" in lines[0]


def test_the_bound_is_kept(capsys):
    found = perfmodel.tco("llama-3.1-8b", on=["dgx-h100:tp=1"], tpot=0.02, samples=64)
    (owned,) = found.systems
    assert owned.answer.tpot_s <= 0.02
    more = perfmodel.predict(
        "llama-3.1-8b", on="dgx-h100:tp=1", concurrency=1 + owned.answer.scenario.traffic.concurrency
    )
    assert more.tpot_s > 0.02


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--concurrency", "8", "--tpot", "20ms"], "either --concurrency or --tpot"),
        (["--tpot", "20 kW"], "--tpot"),
        (["--samples", "3"], "--samples"),
        (["--set", "economics.electricity=80 USD/kW"], "USD/kWh"),
        (["--set", "system.power.all_in_per_chip=1.73 kW"], "all-in"),
    ],
)
def test_refusals_are_one_line(capsys, more, words):
    assert run([*ASK, *more]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert words in captured.err


def test_a_bound_that_one_request_alone_misses_is_said(capsys):
    slow, kept = (asking.own("llama-3.3-70b", ["dgx-h100"], Options(), tpot=t, samples=64) for t in (0.003, 0.05))
    (missed,), (met,) = slow.systems, kept.systems
    assert float(missed.answer.metrics["tpot_s"]) > 0.003
    assert any("misses the TPOT of 3 ms" in word for word in missed.labels)
    assert run(["tco", "llama-3.3-70b", "--on", "dgx-h100", "--tpot", "3ms", "--samples", "64", "--json"]) == 3
    assert "dgx-h100 misses the TPOT of 3 ms" in capsys.readouterr().err
    assert not any("misses" in word for word in met.labels)


def test_what_does_not_fit_has_no_price(capsys):
    assert (
        run(["tco", "llama-3.1-405b", "--on", "dgx-h100:tp=1", "--concurrency", "1", "--samples", "64", "--json"]) == 3
    )
    (one,) = json.loads(capsys.readouterr().out)["answers"]
    assert one["usd_per_mtok"]["blended"] is None
    assert one["usd_per_chip_hour"] is None
    assert "does not fit" in one["reason"]


def test_a_machine_without_a_price_is_neither_cheaper_nor_dearer(capsys):
    ask = ["tco", "llama-3.1-8b", "--on", "dgx-b200", "--on", "v100-8", "--concurrency", "8", "--samples", "64"]
    assert run([*ask, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probability_cheaper"] == {"dgx-b200": {"v100-8": None}, "v100-8": {"dgx-b200": None}}
    assert any("price not published" in label for label in found["answers"][1]["labels"])


@pytest.mark.parametrize("form", ["--json", "--csv", ""])
def test_a_machine_without_a_price_stands_alone(capsys, form):
    ask = ["tco", "llama-3.1-8b", "--on", "v100-8", "--concurrency", "8", "--samples", "64", form]
    assert run([word for word in ask if word]) == 0
    assert capsys.readouterr().out


def test_a_rented_machine_costs_its_rent():
    found = cost_of(resolve("llama-3.1-8b", "dgx-b200", Options(tp=4.0), ["economics.ownership=rented"]))
    rent = float(catalog.load_prices().rent["dgx-b200"]["contract"]) * 3600
    assert found.per_hour == pytest.approx(4 * rent)
    assert parse("2.9 USD/h", "USD/s") * 3600 == pytest.approx(2.9)

"""Costs side by side and how sure they are: against other libraries, by hand, and by turning them around."""

import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.planning.tco import asking, market, published, uncertainty
from perfmodel.planning.tco.cash import cash_flow, full_from
from perfmodel.planning.tco.prices import TokenPrice
from perfmodel.planning.tco.uncertainty import Unknown
from perfmodel.prediction import evaluate
from perfmodel.prediction import run as predicted
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
    keys = {"schema_version", "perfmodel", "numbers_version", "verb", "question", "answers"}
    keys |= {"probability_cheaper", "tpot_bound_s", "sold_usd_per_mtok"}
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
        "llama-3.1-8b", on="dgx-h100:tp=1", concurrency=1 + owned.answer.scenario.traffic.concurrency, steady=True
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


# --- at one speed ------------------------------------------------------------------------------------------------


def test_a_budget_is_at_least_as_good_as_each_tried_by_hand():
    ask = {"on": ["lpu-v1"], "tpot": 0.03, "samples": 64, "plan": "partition-72"}
    (best,) = perfmodel.tco("llama-3.1-70b", **ask).systems
    for budget in (16, 32, 64, 128, 256):
        (tried,) = perfmodel.tco("llama-3.1-70b", **ask, set=[f"system.efficiency.token_budget={budget}"]).systems
        assert best.cost.blended <= tried.cost.blended * 1.002
    assert not any("token_budget" in swing.path for swing in best.swings)


@pytest.mark.parametrize("on", ["dgx-h100", "dgx-b200", "sn40l-16"])
def test_a_machine_is_at_the_bound_or_names_its_limit(on):
    (owned,) = perfmodel.tco("llama-3.1-70b", on=[on], tpot=0.03, samples=64).systems
    one_more = replace(
        owned.scenario, traffic=replace(owned.scenario.traffic, concurrency=owned.scenario.traffic.concurrency + 1)
    )
    assert owned.limit == ""
    assert owned.answer.tpot_s <= 0.03
    assert owned.answer.tpot_s >= 0.0297 or float(evaluate(one_more).metrics["tpot_s"]) > 0.03


def test_every_point_of_a_curve_undercuts_the_faster_ones():
    (owned,) = perfmodel.tco("llama-3.1-8b", on=["dgx-h100"], tpot=0.03, samples=64).systems
    assert all(b.tpot > a.tpot and b.usd < a.usd for a, b in itertools.pairwise(owned.curve))


# --- prices ------------------------------------------------------------------------------------------------------


HGX = ("dgx-h100", "dgx-h200", "mi355x-8", "dgx-b200")


@pytest.mark.parametrize("basis", ["listing", "volume", "retail"])
def test_servers_of_one_basis_stand_in_their_order(basis):
    prices = []
    for name in HGX:
        system = resolve("llama-3.1-8b", name, Options(), [f"economics.basis={basis}"]).system
        assert system.price.basis == basis
        prices.append(float(system.price.system))
    assert prices == sorted(prices)
    assert prices[0] < prices[1] <= prices[2] < prices[3]


def test_a_quote_wins_over_the_release_and_is_said():
    found = perfmodel.tco(
        "llama-3.1-8b", on=["dgx-h100:tp=1"], concurrency=8, samples=64, set=["system.price.system=300 kUSD"]
    )
    (owned,) = found.systems
    assert float(owned.scenario.system.price.system) == 300e3
    assert any("quote" in label for label in owned.labels)


def test_a_server_of_four_costs_half_of_the_eight_it_extends(tmp_path, monkeypatch):
    folder = tmp_path / "hardware_specs"
    folder.mkdir()
    (folder / "half.yaml").write_text(
        "extends: dgx-h100\nname: half\nchips_per_node: {value: 4, source: plan-choice, kind: derived}\naliases: []\n"
    )
    monkeypatch.chdir(tmp_path)
    half, whole = (cost_of(resolve("llama-3.1-8b", name, Options(tp=4.0))) for name in ("half", "dgx-h100"))
    assert half.price == whole.price


def test_an_older_release_has_its_own_rents():
    ask = ("llama-3.1-8b", "dgx-h100")
    old, new = (resolve(*ask, Options(prices=month)).system.price for month in ("2025-08", "2026-11"))
    assert (float(old.rent_per_chip) * 3600, old.rent_date) == (pytest.approx(1.30), "2025-08")
    assert (float(new.rent_per_chip) * 3600, new.rent_date) == (pytest.approx(2.00), "2026-07")


def test_a_rent_follows_its_market():
    rents = [
        float(resolve("llama-3.1-8b", "dgx-h100", Options(), [f"economics.market={m}"]).system.price.rent_per_chip)
        for m in ("contract", "neocloud", "hyperscaler")
    ]
    assert np.array(rents) * 3600 == pytest.approx([2.00, 4.02, 10.68])


@pytest.mark.parametrize("change", ["--prices=1999-01", "--region=atlantis", "--set=economics.basis=wish"])
def test_a_release_or_a_region_that_is_not_there_is_refused_in_one_line(capsys, change):
    assert run(["tco", "llama-3.1-8b", "--on", "dgx-h100", *change.split("=", 1)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_region_moves_electricity_space_and_carbon():
    virginia, norway = (resolve("llama-3.1-8b", "dgx-h100", Options(region=r)).economics for r in ("us-va", "no"))
    assert virginia.electricity * 3.6e6 == pytest.approx(0.0945)
    assert virginia.colocation * 1e3 == pytest.approx(212.5)
    assert virginia.grid_carbon * 3.6e9 == pytest.approx(245)
    assert norway.grid_carbon * 3.6e9 == pytest.approx(30)
    assert norway.colocation == catalog.load_economics().colocation


def test_every_system_has_a_price_or_says_why():
    for name, _, _ in catalog.entries("system"):
        system = catalog.load_bare_system(name)
        price = system.price
        if math.isnan(float(price.system)) and math.isnan(float(price.rent_per_chip)):
            assert system.provenance["price.system"].note, name


# --- cash --------------------------------------------------------------------------------------------------------


def _flow(changes=(), growth=0.0):
    scenario = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, concurrency=32.0), changes)
    return cash_flow(predicted(scenario), cost_of(scenario), growth), cost_of(scenario)


@pytest.mark.parametrize("ownership", ["colocated", "owned", "rented"])
@pytest.mark.parametrize("residual", [0.0, 0.15])
def test_the_price_that_pays_for_the_cash_is_the_annuity_s(ownership, residual):
    """Discounted year by year, the price comes out as by capital recovery: two ways of one sum."""
    flow, money = _flow([f"economics.ownership={ownership}", f"economics.residual={residual}"])
    assert flow.usd_per_mtok == pytest.approx(float(money.blended), rel=1e-9)
    assert sum(year.depreciation for year in flow.years) == pytest.approx(flow.years[0].capital * (1 - residual))


def test_net_present_value_against_a_hand_made_one():
    flow, _ = _flow()
    assert flow.npv == pytest.approx(sum(year.cash / 1.1**year.year for year in flow.years))


def test_growth_fills_a_deployment_and_says_when():
    flow, _ = _flow(growth=0.5)
    assert [round(year.utilisation, 3) for year in flow.years] == [0, 0.6, 0.9, 1.0, 1.0, 1.0]
    assert full_from(flow.years) == 3


def test_a_workbook_of_cash_recalculates(tmp_path):
    path = tmp_path / "cash.xlsx"
    ask = ["tco", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--concurrency", "8", "--samples", "64"]
    assert run([*ask, "--cash", str(path)]) == 0
    assert path.stat().st_size > 1000
    table = tmp_path / "cash.csv"
    assert run([*ask, "--cash", str(table)]) == 0
    assert len(table.read_text().splitlines()) == 1 + 6


# --- the market --------------------------------------------------------------------------------------------------


def test_the_market_sells_llama_at_what_providers_list():
    """Cheapest and dearest of llama-3.3-70b at 1,000 in and 1,000 out, worked by hand from the list."""
    found = market.sold("llama-3.3-70b", 1000.0, 1000.0, "2026-11")
    assert found.low == pytest.approx((0.10 + 0.32) / 2)
    assert found.high == pytest.approx(1.04)
    assert "groq" in found.old


def test_owning_beats_an_api_from_the_load_that_pays_for_it():
    owned, api = market.Way("owned", 10.0, 2.0, 0.0), market.Way("API", 0.0, 0.0, 0.5)
    load = market.break_even(owned, api, 50.0)
    assert owned.cost(load, 50.0) == pytest.approx(api.cost(load, 50.0))
    assert math.isnan(market.break_even(owned, market.Way("API", 0.0, 0.0, 0.1), 50.0))


# --- sampling ----------------------------------------------------------------------------------------------------


def test_percentiles_against_another_monte_carlo():
    """NumPy's own generator and triangular draws, one scenario a draw and no Sobol points: within 1 %."""
    scenario = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, concurrency=32.0))
    sample = uncertainty.draw_samples([scenario])
    found = sample.systems[0].percentiles("blended")
    rng, count, values = np.random.default_rng(7), 2**18, {}
    for unknown in uncertainty.unknowns(scenario):
        if unknown.path.startswith("error of"):
            values[unknown.path] = np.exp(rng.normal(0, unknown.value / uncertainty.EIGHTY, count))
        elif unknown.low > 0:
            ends = np.log([unknown.low, unknown.value, unknown.high])
            values[unknown.path] = np.exp(rng.triangular(*ends, count)) if ends[0] < ends[2] else unknown.value
        else:
            values[unknown.path] = rng.triangular(unknown.low, unknown.value, unknown.high, count)
    other = uncertainty.outcome(scenario, values)["blended"]
    for at in (10, 50, 90):
        assert found[f"p{at}"] == pytest.approx(float(np.percentile(other, at)), rel=0.01)


def test_variance_follows_what_is_scrambled():
    """With one unknown's draws dealt anew, it explains nothing, and the others what they did."""
    scenario = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, concurrency=32.0))
    sample = uncertainty.draw_samples([scenario])
    before = sample.indices(0)
    strongest = next(iter(before))
    column = sample.systems[0].columns[strongest]
    dealt = sample.shares.copy()
    dealt[:, column] = np.random.default_rng(1).permutation(dealt[:, column])
    after = replace(sample, shares=dealt).indices(0)
    assert before[strongest] > 0.2
    assert after[strongest] < 0.01
    rest = [path for path in before if path != strongest]
    assert [after[path] for path in rest] == pytest.approx([before[path] for path in rest])


# --- the verdict -------------------------------------------------------------------------------------------------


def test_the_first_line_is_the_answer(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    ask = ["tco", "llama-3.1-8b", *(word for name in HGX for word in ("--on", name)), "--on", "sn40l-16"]
    assert run([*ask, "--tpot", "20ms", "--samples", "256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = " ".join(lines[0].split()[:25])
    assert len(lines) <= 35
    assert " is cheapest at " in first
    assert "USD/Mtok (" in first
    assert "likely before" in first
    assert "keeps 20 ms" in lines[0]


@pytest.mark.parametrize("name", sorted(name for name, _, _ in catalog.entries("system")))
def test_every_system_has_an_answer_or_one_line(name, capsys):
    code = run(["tco", "llama-3.1-8b", "--on", name, "--samples", "64", "-v"])
    captured = capsys.readouterr()
    assert code in (0, 3)
    assert not re.search(r"\bnan\b", captured.out.casefold())
    assert len(captured.err.strip().splitlines()) <= 1
    if code:
        assert captured.err.startswith("perfmodel: ")


def test_sn40l_over_h100_at_equal_speed():
    """0.92 was found at an H100 of 375 kUSD and the overheads of then; on one basis the H100 is 255 kUSD."""
    before = ["dgx-h100:system.price.system=375 kUSD", "economics.life=4 year", "economics.maintenance=5%"]
    before += ["economics.staff=2%", "economics.network=23.5%", "economics.residual=10%"]
    before += ["economics.colocation=160 USD/kW-month", "economics.electricity=0.08 USD/kWh"]
    found = perfmodel.tco("llama-3.1-70b", on=["sn40l-16", "dgx-h100:tp=8"], tpot=0.03, samples=64, set=before)
    one, other = (owned.cost.blended for owned in found.systems)
    assert one / other == pytest.approx(0.92, abs=0.05)


def test_the_way_of_each_year_is_the_cheapest_by_hand():
    """Ways are added up here from their parts: owned machines are paid whole, rented ones while they serve."""
    found = perfmodel.tco(
        "llama-3.3-70b",
        on="dgx-h100:tp=4,precision=fp8",
        concurrency=32,
        against_api=True,
        growth="100%",
        set={"economics.utilisation": 0.2},
    )
    choice = found.systems[0].choice
    hour = choice.capacity / 24
    for year in choice.years:
        load = 0.2 * 2 ** (year.year - 1) * hour
        assert year.load == pytest.approx(load * 24)
        assert year.deployments == -(-round(load / hour, 9) // 1)
        totals = {
            way.name: (way.per_hour * year.deployments + way.per_busy_hour * load / hour + way.per_mtok * load) / load
            for way in choice.ways
            if way.name not in ("its batch rate", "dearest API")
        }
        machines = {name: usd for name, usd in totals.items() if "API" not in name}
        assert year.per_mtok == pytest.approx(min(totals.values()))
        assert totals[year.way] == pytest.approx(min(totals.values()))
        assert machines[year.machines] == pytest.approx(min(machines.values()))
    rented = [year for year in choice.years if year.machines.startswith("rented")]
    assert rented
    assert choice.buy_in == len(rented) + 1
    told = found.to_dict()["answers"][0]
    assert [one["way"] for one in told["winner_by_year"]] == [year.way for year in choice.years]
    assert found.cash_rows()[1]["least_machines"] == choice.years[0].machines

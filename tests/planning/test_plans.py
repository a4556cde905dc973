"""Saved plans, checked again; limits, rates and people of ``size``, against arithmetic of one's own."""

import re

import pytest

import perfmodel
from perfmodel.cli import run

CHAT = {"traffic": "chat", "tpot_p99": "50ms"}
SAVED = ["size", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", "chat", "--rate", "30", "--tpot-p99", "50ms"]


def test_a_plan_that_is_checked_at_once_still_holds(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    assert run([*SAVED, "--save", str(path)]) == 0
    assert run(["plans", "check", str(path)]) == 0
    assert "still the answer: nothing moved" in capsys.readouterr().out


def test_an_input_that_moved_is_named_with_its_values(tmp_path, capsys):
    path = tmp_path / "plan.yaml"
    run([*SAVED, "--save", str(path)])
    text = path.read_text("utf-8")
    assert "system.memory.hbm.bandwidth: 3350000000000.0" in text
    text = text.replace("system.memory.hbm.bandwidth: 3350000000000.0", "system.memory.hbm.bandwidth: 6700000000000.0")
    path.write_text(re.sub(r"(?m)^  chips: .*$", "  chips: 4.0", text), "utf-8")
    capsys.readouterr()
    assert run(["plans", "check", str(path)]) == 3
    out = capsys.readouterr().out
    assert "no longer the answer: 1 input moved" in out
    assert "system.memory.hbm.bandwidth: 6.7 TB/s -> 3.35 TB/s (-50.0%)" in out


@pytest.mark.parametrize(
    ("text", "what"),
    [("a: 1\n", "no plan"), ("perfmodel_plan: 9\n", "this version reads 1"), ("perfmodel_plan: 1\n", "field required")],
)
def test_what_is_no_plan_is_refused_in_one_line(tmp_path, capsys, text, what):
    path = tmp_path / "plan.yaml"
    path.write_text(text, "utf-8")
    assert run(["plans", "check", str(path)]) == 2
    err = capsys.readouterr().err
    assert what in err
    assert err.count("\n") == 1


def test_limits_bind_where_a_division_says_so():
    each = float(perfmodel.system("dgx-h100").power.system_per_chip)
    asked = dict(CHAT, on="dgx-h100:tp=1", rate=400)
    chips = perfmodel.size("llama-3.1-8b", **asked).answers[0].chips
    assert perfmodel.size("llama-3.1-8b", **asked, max_power=f"{chips * each} W").answers
    for limit in ({"max_power": f"{(chips - 1) * each} W"}, {"max_nodes": 1}, {"max_cost": "100 kUSD"}):
        found = perfmodel.size("llama-3.1-8b", **asked, **limit)
        assert not found.answers
        assert "--" + next(iter(limit)).replace("_", "-") in found.reason


def test_people_are_a_rate():
    people = perfmodel.size(
        "llama-3.1-8b", on="dgx-h100:tp=1", users=600, active="25%", requests_per_minute=2, peak=2, **CHAT
    )
    rate = perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", rate=600 * 0.25 * 2 / 60 * 2, **CHAT)
    assert people.rate == pytest.approx(10)
    assert people.answers[0].chips == rate.answers[0].chips


def test_a_growing_rate_is_bought_year_by_year():
    found = perfmodel.size(
        "llama-3.1-8b", on=["dgx-h100:tp=1", "dgx-b200:tp=1"], rate=100, growth="100%/year", years=2, **CHAT
    )
    assert [step.rate for step in found.steps] == pytest.approx([100, 200, 400])
    for path in found.paths:
        assert sum(path.bought) == max(path.chips)
    each = perfmodel.size("llama-3.1-8b", on=["dgx-h100:tp=1", "dgx-b200:tp=1"], rate="100,200,400", **CHAT)
    assert [path.chips for path in each.paths] == [path.chips for path in found.paths]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"users": 5}, "--requests-per-minute"),
        ({"rate": 5, "peak": 2}, "--users"),
        ({"rate": 5, "growth": "60%/year"}, "--years"),
        ({"rate": 5, "growth": "much", "years": 3}, "60%/year"),
        ({"rate": "1,000"}, "1000 or 1k"),
        ({}, "--rate"),
        ({"rate": "5,6", "save": "plan.yaml"}, "--save"),
    ],
)
def test_questions_that_mean_nothing_are_refused(given, what):
    with pytest.raises(perfmodel.UserError, match=what):
        perfmodel.size("llama-3.1-8b", on="dgx-h100:tp=1", **CHAT, **given)


def test_an_objective_is_never_below_its_floor_and_costs_no_less_when_tighter():
    (best,) = perfmodel.size("llama-3.3-70b", on="dgx-h100:tp=8", rate=20, traffic="rag", ttft_p95="3s").answers
    key = ("ttft", "p95")
    assert best.floors[key] < best.checked.values[key] <= 3
    costs = [price.chips if price.replicas else float("inf") for price in best.prices]
    assert costs == sorted(costs, reverse=True)
    tighter = perfmodel.size(
        "llama-3.3-70b", on="dgx-h100:tp=8", rate=20, traffic="rag", ttft_p95=0.5 * best.floors[key]
    )
    assert not tighter.answers


def test_a_system_that_was_asked_for_has_its_line(capsys):
    assert run([*SAVED, "--on", "l4-8:tp=1", "--ttft-p99", "150ms"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "l4-8: nothing serves it" in out
    assert out.startswith("dgx-h100, ")


def test_a_missed_objective_of_a_rate_is_exit_3(capsys):
    asked = ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", "chat", "--rate", "10"]
    assert run([*asked, "--ttft-p99", "10ms"]) == 3
    assert "misses 10 ms" in capsys.readouterr().err
    assert run([*asked, "--ttft-p99", "10s"]) == 0

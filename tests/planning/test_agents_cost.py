"""What a task costs: sums, the price of a tie asked again, the deployment of a prediction, refusals, the schema."""

import csv
import io
import json
import re

import pytest

import perfmodel
from perfmodel import UserError
from perfmodel.cli import OK, run, schemas

ASKED = {"on": ["dgx-h200:tp=8", "dgx-h100:tp=8"], "sessions": "swe-bench", "users": 60}
WORDS = ["tco", "llama-3.1-70b", "--on", "dgx-h200:tp=8", "--on", "dgx-h100:tp=8", "--sessions", "swe-bench"]


def owned(**more):
    return perfmodel.tco("llama-3.1-70b", **(ASKED | more))


def test_a_task_costs_the_sum_of_its_causes_and_what_a_prediction_says():
    found = owned()
    costs = [one.answer.usd_per_task for one in found.systems]
    assert len(costs) == 2
    assert costs == sorted(costs)
    for one in found.systems:
        assert sum(one.per_task.values()) == pytest.approx(one.answer.usd_per_task)
        deployment = one.answer.scenario.deployment
        on = f"{one.answer.scenario.system.name}:tp=8,dp={deployment.dp:g}"
        alone = perfmodel.predict("llama-3.1-70b", on=on, sessions="swe-bench", users=60, routing="prefix")
        assert alone.usd_per_task == pytest.approx(one.answer.usd_per_task)


def test_at_the_price_of_a_tie_two_systems_cost_the_same():
    cheap, dear = owned().systems
    name = dear.answer.scenario.system.name
    tied = owned(set=[f"{name}:system.price.system={dear.tie_price!r} USD"])
    one, other = (each.answer.usd_per_task for each in tied.systems)
    assert one == pytest.approx(other)
    assert other == pytest.approx(cheap.answer.usd_per_task)


def test_a_bound_on_tpot_takes_more_of_what_is_too_slow():
    def slowest(bound):
        (one,) = owned(on="dgx-h100:tp=4", tpot=bound, users=200).systems
        return one.answer

    loose, tight = slowest("1 s"), slowest("20 ms")
    assert tight.chips > loose.chips
    assert tight.answer.tpot <= 0.020 < loose.answer.tpot


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"samples": 64}, "--samples"),
        ({"growth": "30%/year"}, "--growth"),
        ({"concurrency": 8}, "--concurrency"),
        ({"dp": 2}, "leave --dp out"),
        ({"users": None}, "needs --users"),
        ({"sessions": None}, "--users is about sessions"),
    ],
)
def test_what_is_of_tokens_or_of_a_search_is_refused_by_its_name(more, words):
    with pytest.raises(UserError, match=re.escape(words)):
        owned(**more)


def test_a_change_that_moves_no_cost_is_named():
    (one,) = owned(on="dgx-h200:tp=8", set=["traffic.arrival_scv=3"]).systems
    assert any("traffic.arrival_scv did not enter" in line for line in one.answer.warnings)


def test_the_doors_say_the_same(capsys):
    jsonschema = pytest.importorskip("jsonschema")
    assert run([*WORDS, "--users", "60", "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, schemas.schema("tco"))
    assert told["systems"] == json.loads(json.dumps(owned().to_dict()))["systems"]
    assert run([*WORDS, "--users", "60", "--csv"]) == OK
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["usd_per_task"]) for row in rows] == pytest.approx(
        [one["answer"]["usd_per_task"] for one in told["systems"]]
    )
    assert run([*WORDS, "--users", "60"]) == OK
    assert "USD a task" in capsys.readouterr().out.splitlines()[0]

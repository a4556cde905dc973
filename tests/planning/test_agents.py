"""Users with sessions: exact limits, each field of a session alive, refusals in one line, and the schema of answers."""

import json
import re

import pytest

import perfmodel
from perfmodel.cli import DOES_NOT_FIT, run, schemas
from perfmodel.errors import UserError

ASKED = {"on": "dgx-h200:tp=8", "sessions": "swe-bench"}


def asked(users=4, set=(), **more):
    return perfmodel.predict("llama-3.1-70b", users=users, set=set, **(ASKED | more))


def test_few_users_in_a_large_cache_are_at_the_ceiling():
    found = asked(users=1)
    assert found.answer.hit_rate == pytest.approx(found.answer.hit_ceiling, rel=1e-3)
    assert found.answer.ttft_hit < found.answer.ttft_miss
    assert not found.past_cliff


def test_what_a_task_costs_is_an_hour_over_its_tasks():
    found = asked()
    sold = found.answer.tasks_per_hour * float(found.scenario.economics.utilisation)
    assert found.usd_per_task * sold == pytest.approx(found.usd_per_hour)


def test_little_holds_between_calls_tasks_and_users():
    # Every user is in a call or in a gap: N = X (R + Z), tool time of SWE-bench agents being all of Z.
    found = asked(users=20)
    task = found.answer.task
    assert found.answer.tasks_per_hour * task / 3600 == pytest.approx(20, rel=0.02)


def test_beyond_the_cliff_the_hit_rate_has_fallen_and_before_it_not():
    cliff = asked().cliff.users
    good = 0.9 * asked().answer.hit_ceiling
    assert asked(users=0.93 * cliff).answer.hit_rate > good > asked(users=1.07 * cliff).answer.hit_rate
    assert asked(users=1.07 * cliff).past_cliff


def test_a_host_tier_moves_the_cliff_and_holds_what_memory_does_not():
    plain, more = asked(users=60), asked(users=60, tier="host=2TB@50GB/s")
    assert more.cliff.users > plain.cliff.users
    assert more.answer.hit_by_tier["host"] > 0
    assert more.answer.ttft < plain.answer.ttft


def test_routing_by_prefix_is_worth_what_it_then_gives():
    plain = asked(users=30, on="dgx-h200:tp=4,dp=2")
    routed = asked(users=30, on="dgx-h200:tp=4,dp=2", routing="prefix")
    (worth,) = [worth for worth in plain.worths if worth.change == "routing by prefix"]
    assert worth.hit_rate == pytest.approx(routed.answer.hit_rate)
    assert worth.users == pytest.approx(routed.cliff.users)


ALIVE = (
    "calls.p50=20",
    "first_context.p50=13000",
    "growth.p50=1000",
    "output.p50=500",
    "tool_gap.p50=15s",
    "appended.p50=3000",
    "fan_out=3",
    "ttl=5s",
)


@pytest.mark.parametrize("change", ALIVE)
def test_a_number_of_a_session_moves_the_answer(change):
    def told(**more):
        return {**asked(users=40, **more).to_dict(), "warnings": None}

    assert told(set=[f"session.{change}"]) != told()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"users": None}, "needs --users"),
        ({"sessions": None}, "--users is about sessions"),
        ({"sessions": "coding-agant"}, "did you mean coding-agent"),
        ({"traffic": "chat"}, "--traffic"),
        ({"rate": 3}, "--rate"),
        ({"ttft_p99": "1s"}, "--ttft-p99"),
        ({"tier": "host=1TB"}, "write host|disk|store=CAPACITY@BANDWIDTH"),
        ({"tier": "host=1TB@50"}, "--tier host=1TB@50"),
        ({"tier": "host=1TB@50GB/s,host=2TB@50GB/s"}, "given twice"),
        ({"set": ["session.turns=3"]}, "--set session.turns"),
        ({"set": ["session.human_share=0.5"]}, "human_gap"),
        ({"set": ["session.tool_gap.p50=3"]}, "unit"),
    ],
)
def test_what_does_not_go_together_is_refused_by_its_name(more, words):
    with pytest.raises(UserError, match=re.escape(words)):
        asked(**more)


def test_a_change_that_moves_nothing_is_named():
    found = asked(set=["traffic.arrival_scv=3"])
    assert any("traffic.arrival_scv did not enter" in line for line in found.to_dict()["warnings"])


@pytest.mark.parametrize("verb", ["predict", "compare"])
def test_json_is_what_its_schema_says(verb, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    words = [verb, "llama-3.1-70b", "--on", "dgx-h200:tp=8", "--sessions", "swe-bench", "--users", "30", "--json"]
    assert run(words) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schemas.schema(verb))


def test_a_model_that_does_not_fit_says_why(capsys):
    words = ["llama-3.1-405b", "--on", "dgx-h100:tp=1", "--sessions", "swe-bench", "--users", "3"]
    assert run(["predict", *words]) == DOES_NOT_FIT
    assert capsys.readouterr().err.count("\n") == 1


def test_a_sweep_over_users_is_what_each_of_them_meets(capsys):
    axes = {"users": "10:40:2", "session.tool_gap.p50": "5s,20s"}
    swept = perfmodel.sweep("llama-3.1-70b", axes=axes, **ASKED)
    assert len(swept) == 4
    found = swept.to_frame()
    one = asked(users=40, set=["session.tool_gap.p50=20s"])
    assert found.iloc[-1]["hit_rate"] == pytest.approx(one.answer.hit_rate)
    assert found.iloc[-1]["task_s"] == pytest.approx(one.answer.task)
    words = ["sweep", "llama-3.1-70b", "--on", "dgx-h200:tp=8", "--sessions", "swe-bench", "--axis", "users=10,40"]
    assert run(words) == 0
    assert "hit rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("axes", "more", "words"),
    [
        ({"users": "1:a:3"}, {}, "--axis users=1:a:3"),
        ({"users": "1,2"}, {"users": 3}, "given twice"),
        ({"users": "1,2"}, {"out": "x.csv"}, "--out"),
        ({"session.ttl": "1m,2m"}, {}, "needs --users"),
    ],
)
def test_axes_of_users_are_refused_in_one_line(axes, more, words):
    with pytest.raises(UserError, match=re.escape(words)):
        perfmodel.sweep("llama-3.1-70b", axes=axes, **(ASKED | more))


def test_the_simulated_cache_hits_as_the_closed_form_says(capsys):
    ran = perfmodel.simulate("llama-3.1-70b", users=60, tier="host=2TB@50GB/s", **ASKED)
    assert set(ran.simulated) == {"memory", "host"}
    assert all(abs(gap) < 0.05 for gap in ran.differences().values())
    jsonschema = pytest.importorskip("jsonschema")
    words = ["simulate", "llama-3.1-70b", "--on", "dgx-h200:tp=8", "--sessions", "swe-bench", "--users", "30", "--json"]
    assert run(words) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schemas.schema("simulate"))


def test_a_number_of_sessions_in_a_simulation_is_the_concurrency():
    with pytest.raises(UserError, match="--concurrency"):
        perfmodel.simulate("llama-3.1-70b", on="dgx-h200:tp=8", sessions=40, users=4)


def test_a_tier_that_holds_no_more_than_the_memory_says_so():
    found = asked(tier="host=1GB@50GB/s")
    assert any("adds nothing" in line for line in found.warnings)


def test_a_search_finds_the_fewest_replicas_that_serve(capsys):
    found = perfmodel.size("llama-3.1-70b", on="dgx-h200:tp=8", sessions="swe-bench", users=150, ttft_p90="5 s")
    (best,) = found.answers
    replicas = float(best.scenario.deployment.dp)
    assert best.answer.first_token.quantile(0.9) <= 5
    assert not best.past_cliff
    fewer = asked(users=150, on=f"dgx-h200:tp=8,dp={replicas - 1:g}", routing="prefix")
    slow = fewer.answer if fewer.answer.cold is None else fewer.answer.cold
    assert slow.hit_rate < 0.9 * slow.hit_ceiling or fewer.answer.first_token.quantile(0.9) > 5
    jsonschema = pytest.importorskip("jsonschema")
    words = ["size", "llama-3.1-70b", "--on", "dgx-h200:tp=8", "--sessions", "swe-bench", "--users", "50", "--json"]
    assert run(words) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schemas.schema("size"))


def test_objectives_that_sessions_have_none_of_are_refused():
    with pytest.raises(UserError, match="--tpot-p99"):
        perfmodel.size("llama-3.1-70b", on="dgx-h200:tp=8", sessions="swe-bench", users=50, tpot_p99="50ms")


def test_a_change_of_one_system_is_one_of_that_system():
    asked_of = {"on": ["dgx-h200:tp=8", "dgx-h100:tp=8"], "sessions": "swe-bench", "users": 20}
    plain = perfmodel.size("llama-3.1-70b", **asked_of)
    less = perfmodel.size(
        "llama-3.1-70b", set=["dgx-h100:economics.network=0", "dgx-h100:economics.storage=0"], **asked_of
    )
    costs = [{one.scenario.system.name: one.usd_per_hour for one in found.answers} for found in (plain, less)]
    assert costs[1]["dgx-h200"] == costs[0]["dgx-h200"]
    assert costs[1]["dgx-h100"] < costs[0]["dgx-h100"]


def test_replicas_that_a_search_finds_are_not_given_and_not_assumed():
    for more in ({"on": "dgx-h200:tp=8,dp=2"}, {"on": "dgx-h200:tp=8", "dp": 2}):
        with pytest.raises(UserError, match="leave --dp out"):
            perfmodel.size("llama-3.1-70b", sessions="swe-bench", users=150, **more)
    (best,) = perfmodel.size("llama-3.1-70b", on="dgx-h200:tp=8", sessions="swe-bench", users=150).answers
    assert "DP 1" not in best.to_dict()["assumed"]


def test_a_search_names_a_change_that_moved_nothing():
    asked_of = {"on": "dgx-h200:tp=8", "sessions": "swe-bench", "users": 20, "set": ["traffic.arrival_scv=3"]}
    (best,) = perfmodel.size("llama-3.1-70b", **asked_of).answers
    assert any("traffic.arrival_scv did not enter" in line for line in best.warnings)

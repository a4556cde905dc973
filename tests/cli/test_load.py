"""``size``, ``simulate`` and ``--rate``: layout, keys and refusals."""

from __future__ import annotations

import json

import pytest

from perfmodel.cli import DOES_NOT_FIT, OK, REFUSED
from perfmodel.cli.app import invoke

TIMES = ("ttft_s", "tpot_s", "request_latency_s")
STATISTICS = {"p50", "p90", "p99", "mean"}
ASKED = ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", "chat"]


def asked(capsys, *arguments):
    code = invoke(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def leaves(tree):
    return [leaf for value in tree.values() for leaf in (leaves(value) if isinstance(value, dict) else [value])]


def test_size_answers_with_the_documented_keys(capsys):
    code, out, _ = asked(
        capsys,
        "size",
        *ASKED,
        "--on",
        "dgx-b200:tp=1",
        "--rate",
        "10",
        "--ttft-p99",
        "1 s",
        "--tpot-p99",
        "40 ms",
        "--json",
    )
    found = json.loads(out)
    assert code == OK
    assert {"answers", "rejected", "assumed", "warnings"} <= set(found)
    assert len(found["answers"]) == 2
    for answer in found["answers"]:
        keys = ("system", "plan", "replicas", "chips", "goodput_per_s", "utilisation", "headroom", "first_limit")
        assert all(answer[key] is not None for key in (*keys, "usd_per_hour", "power_w"))
        for time in TIMES:
            assert set(answer["times"][time]) == STATISTICS
            assert answer["times"][time]["p50"] <= answer["times"][time]["p90"] <= answer["times"][time]["p99"]
        assert answer["times"]["ttft_s"]["p99"] <= 1
        assert answer["times"]["tpot_s"]["p99"] <= 0.04
        assert answer["utilisation"] < 1
        assert answer["headroom"] >= 0
    assert all(entry["reason"] for entry in found["rejected"])


def test_a_comparison_under_a_rate_says_once_what_all_assume(capsys):
    for systems in ([], ["--on", "dgx-b200:tp=1"]):
        code, out, _ = asked(capsys, "compare", *ASKED, *systems, "--rate", "2", "--json")
        found = json.loads(out)
        assert code == OK
        head = {"schema_version", "perfmodel", "numbers_version", "verb", "question"}
        assert set(found) == head | {"answers", "assumed", "warnings"}
        assert len(found["answers"]) == 1 + len(systems) // 2
        assert found["assumed"]


def test_what_cannot_be_met_says_which_objective_and_what_is_near(capsys):
    code, out, err = asked(capsys, "size", *ASKED, "--rate", "10", "--tpot-p99", "1 ms", "--json")
    assert code == DOES_NOT_FIT
    assert json.loads(out)["answers"] == []
    assert "P99 TPOT of 1 ms" in err
    assert "nearest" in err
    assert err.count("\n") == 1


def test_a_saturated_replica_has_no_latency(capsys):
    code, out, err = asked(capsys, "predict", *ASKED, "--rate", "1000", "--json")
    found = json.loads(out)
    assert code == DOES_NOT_FIT
    assert found["load"]["saturated"] is True
    assert all(found[time] is None for time in TIMES)
    assert all(value is None for time in TIMES for value in found["load"]["times"][time].values())
    assert all(value is None for key in ("breakdown", "usd_per_mtok") for value in leaves(found[key]))
    assert found["limited_by"] is None
    assert "saturated" in err
    code, out, _ = asked(capsys, "predict", *ASKED, "--rate", "1000")
    assert "saturated" in out


def test_predict_at_a_rate_keeps_its_keys(capsys):
    _, plain, _ = asked(capsys, "predict", *ASKED, "--json")
    code, loaded, _ = asked(capsys, "predict", *ASKED, "--rate", "2", "--json")
    assert code == OK
    assert set(json.loads(plain)) <= set(json.loads(loaded))
    assert json.loads(loaded)["load"]["times"]["ttft_s"]["mean"] == json.loads(loaded)["ttft_s"]


@pytest.mark.parametrize("rate", ["0.1", "2", "20"])
def test_causes_at_a_rate_add_up(rate, capsys):
    _, out, _ = asked(capsys, "predict", *ASKED, "--rate", rate, "--json")
    found = json.loads(out)
    for phase, key in (("prefill", "ttft_s"), ("decode", "tpot_s")):
        parts = found["breakdown"][phase]
        assert sum(parts.values()) == pytest.approx(found[key], rel=1e-12)
        assert parts[found["limited_by"][phase]] == max(parts.values())


def test_at_a_rate_what_does_not_fit_says_so(capsys):
    code, _, err = asked(capsys, "predict", "llama-3.1-405b", "--on", "dgx-h100:tp=4", "--rate", "1")
    assert code == DOES_NOT_FIT
    assert "does not fit" in err


def test_tables_show_percentiles_and_what_binds(capsys):
    code, out, _ = asked(capsys, "compare", *ASKED, "--on", "dgx-b200:tp=1", "--rate", "2", "--ttft-p99", "0.5s")
    assert code == OK
    for words in ("TTFT P99", "TPOT P50", "utilisation", "headroom", "first to bind", "Poisson arrivals"):
        assert words in out


def test_the_rejected_are_explained_when_asked(capsys):
    arguments = ["size", "llama-3.1-70b", "--on", "dgx-h100", "--rate", "2", "--least", "chips", "--no-objective"]
    _, short, _ = asked(capsys, *arguments)
    _, long, _ = asked(capsys, *arguments, "--explain-rejected")
    assert "--explain-rejected" in short
    assert "the weights do not fit" in long


def test_simulate_puts_the_closed_form_beside(capsys):
    code, out, _ = asked(capsys, "simulate", *ASKED, "--rate", "4", "--requests", "300", "--json")
    found = json.loads(out)
    assert code == OK
    assert set(found["simulated"]) == set(found["closed_form"]) == {*TIMES, "wait_s", "itl_s"}
    assert found["requests"] == 300
    code, out, _ = asked(capsys, "simulate", *ASKED, "--concurrency", "8", "--requests", "100")
    assert code == OK
    assert "simulated" in out


def test_a_trace_is_replayed(capsys, tmp_path):
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"{at * 0.3},{200 + at},{20 + at % 7}" for at in range(60))
    trace.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}\n", encoding="utf-8")
    code, out, _ = asked(capsys, "simulate", *ASKED, "--trace", str(trace), "--json")
    assert code == OK
    assert json.loads(out)["requests"] == 60
    code, _, _ = asked(capsys, "predict", *ASKED, "--rate", "2", "--set", f"traffic.lengths={trace}")
    assert code == OK


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["predict", *ASKED, "--rate", "0"], "--rate"),
        (["predict", *ASKED, "--rate", "2", "--concurrency", "4"], "either --rate or --concurrency"),
        (["predict", *ASKED, "--ttft-p99", "1 s"], "give --rate"),
        (["size", *ASKED, "--rate", "2", "--ttft-p99", "3 GB"], "--ttft-p99"),
        (["size", *ASKED, "--rate", "2", "--no-objective", "--least", "beauty"], "cost, power, chips"),
        (["size", *ASKED, "--rate", "2", "--no-objective", "--dp", "2"], "leave --dp"),
        (["size", *ASKED, "--rate", "2", "--no-objective", "--ks", "4"], "--k"),
        (["simulate", *ASKED], "one of --rate, --trace, --concurrency and --sessions"),
        (["simulate", *ASKED, "--trace", "nowhere.csv"], "no such file"),
        (["predict", *ASKED, "--rate", "2", "--set", "traffic.lengths=azur"], "azure-chat"),
        (["predict", *ASKED, "--rate", "2", "--set", "traffic.prefix_hits=1"], "below 1"),
    ],
)
def test_refusals_name_the_fix(capsys, arguments, complaint):
    code, out, err = asked(capsys, *arguments)
    assert code == REFUSED
    assert out == ""
    assert complaint in err
    assert err.count("\n") == 1


def test_pools_and_spares_answer(capsys):
    code, out, _ = asked(capsys, "size", *ASKED, "--prefill-on", "dgx-h100:tp=2", "--rate", "10", "--json")
    found = json.loads(out)
    assert code == OK
    assert found["prefill"]["replicas"] >= 1
    assert set(found["decode"]["times"]["tpot_s"]) == STATISTICS
    assert found["kv_transfer_s"] > 0
    code, out, _ = asked(capsys, "size", *ASKED, "--rate", "10", "--no-objective", "--availability", "0.999", "--json")
    (answer,) = json.loads(out)["answers"]
    assert code == OK
    assert answer["availability"]["reached"] >= 0.999
    assert answer["chips"] == answer["replicas"] + answer["availability"]["spares"]
    code, _, err = asked(capsys, "size", *ASKED, "--rate", "10", "--no-objective", "--availability", "99.9")
    assert code == REFUSED
    assert "--availability" in err


def test_a_profile_needs_no_more_than_its_peak(capsys):
    code, out, _ = asked(
        capsys, "size", *ASKED, "--rate", "80", "--tpot-p99", "30 ms", "--profile", "0.1,0.5,1", "--json"
    )
    (answer,) = json.loads(out)["answers"]
    assert code == OK
    counts = [period["replicas"] for period in answer["periods"]]
    assert counts == sorted(counts)
    assert counts[-1] == answer["replicas"]
    code, _, err = asked(capsys, "size", *ASKED, "--rate", "80", "--no-objective", "--profile", "0.1,5")
    assert code == REFUSED
    assert "--profile" in err


def test_python_mirrors_the_command_line():
    import perfmodel

    found = perfmodel.size("llama-3.1-8b", on=["dgx-h100:tp=1"], rate=20, objectives={"tpot_p99": 0.05})
    again = perfmodel.load(
        "llama-3.1-8b", on="dgx-h100:tp=1", dp=found.answers[0].load.replicas, rate=20, objectives={"tpot_p99": 0.05}
    )
    assert again.load.headroom >= 0
    with pytest.raises(perfmodel.UserError, match="ttft_p99"):
        perfmodel.size("llama-3.1-8b", on=["dgx-h100:tp=1"], rate=20, objectives={"speed": 1})


def test_a_layout_that_is_given_is_not_searched_over(capsys):
    code, out, _ = asked(
        capsys, "size", "llama-3.1-8b", "--on", "dgx-h100", "--tp", "2", "--rate", "10", "--no-objective", "--json"
    )
    found = json.loads(out)
    assert code == OK
    assert {answer["plan"]["tp"] for answer in found["answers"]} == {2.0}
    assert all(entry["plan"]["tp"] == 2 for entry in found["rejected"])


def test_spares_stand_beside_a_system_whose_failures_nobody_has_published(capsys):
    ask = [
        "size",
        "llama-3.1-8b",
        "--on",
        "dgx-h100",
        "--on",
        "lpu-v1",
        "--rate",
        "5",
        "--no-objective",
        "--availability",
        "0.999",
    ]
    assert invoke(ask) == OK
    (spares,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("spares")]
    assert sorted(cell == "-" for cell in spares.split()[1:]).count(True) == 1

"""Explanations recompute, elasticities obey dimensions, break-evens meet their target."""

import itertools
import json
import math
import re

import pytest

from perfmodel.cli import run
from perfmodel.compilers.explain import explain
from perfmodel.errors import UserError
from perfmodel.numerics import FLOAT
from perfmodel.planning.sensitivity import elasticities
from perfmodel.planning.solve import solve
from perfmodel.prediction import METRICS, evaluate
from perfmodel.prediction.operators import operator_times
from perfmodel.question import Options, resolve
from perfmodel.results import results
from perfmodel.specs.paths import put

SYSTEMS = ("dgx-h100", "sn40l-16", "lpu-v1")


def question(on, *changes, model="llama-3.1-70b", **options):
    return resolve(model, on, Options(**{"concurrency": 7.0, "prompt": 1500.0, "output": 300.0, **options}), changes)


def lines(tree):
    yield tree
    for below in tree.get("inputs", ()):
        yield from lines(below)


# --- explanations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", SYSTEMS)
@pytest.mark.parametrize("metric", ["tpot_s", "ttft", "tokens_per_s_per_chip", "mbu", "decode_memory"])
def test_every_line_with_its_numbers_put_in_gives_its_value(on, metric):
    found = explain(question(on), metric, depth=30).to_dict()
    equations = [line for line in lines(found["tree"]) if "numbers" in line and not line["repeated"]]
    assert len(equations) > 3
    for line in equations:
        value = eval(line["numbers"].replace("^", "**"), {"__builtins__": {}}, dict(FLOAT))
        # The text holds six digits of each number; a difference of near ones keeps fewer.
        digits = [float(number) for number in re.findall(r"\d+\.?\d*(?:e[+-]?\d+)?", line["numbers"])]
        kept = 5e-6 * max(digits) if abs(line["value"]) < 1e-3 * max(digits) and "-" in line["numbers"] else 1e-9
        assert value == pytest.approx(line["value"], rel=2e-3, abs=kept), line


def test_an_explanation_reaches_every_input_with_its_provenance():
    asked = question("dgx-h100")
    found = explain(asked, "tpot_s", depth=99).to_dict()
    inputs = {line["name"]: line for line in lines(found["tree"]) if "kind" in line}
    bandwidth = inputs["system.memory.hbm.bandwidth"]
    assert bandwidth["value"] == 3.35e12
    assert (bandwidth["kind"], bandwidth["source"]) == ("datasheet", "nvidia-h100-datasheet")
    estimates = [line for line in inputs.values() if line["kind"] == "estimate"]
    assert estimates
    assert all(line["low"] <= line["value"] <= line["high"] for line in estimates)
    assert not any(line["omitted"] for line in lines(found["tree"]) if "omitted" in line)


def test_depth_cuts_and_says_how_much():
    asked = question("dgx-h100")
    shallow = explain(asked, "tpot_s", depth=1).to_dict()["tree"]
    cut = [line for line in lines(shallow) if line.get("omitted")]
    assert cut
    assert all(
        "inputs" not in leaf or not leaf["inputs"] for below in shallow["inputs"] for leaf in below.get("inputs", ())
    )


def test_what_does_not_fit_is_explained_as_such(capsys):
    assert run(["explain", "tpot", "llama-3.1-405b", "--on", "dgx-h100:tp=4", "--json"]) == 3
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["value"] is found["tree"]["numbers"] is None
    assert found["elasticities"] == []
    assert "does not fit" in err
    assert err.count("\n") == 1
    assert run(["explain", "memory_weights", "llama-3.1-405b", "--on", "dgx-h100:tp=4"]) == 3
    assert "\nmemory_weights_bytes = 202.9 GB" in capsys.readouterr().out


def test_what_does_not_fit_and_what_is_not_published_are_told_apart(capsys):
    assert run(["explain", "tpot", "llama-3.1-405b", "--on", "dgx-h100:tp=4"]) == 3
    assert capsys.readouterr().out.startswith("tpot_s = does not fit\n")
    assert run(["explain", "tpot", "llama-3.1-8b", "--on", "groq3-lpx", "--depth", "30"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("tpot_s = not published\n")
    assert "does not fit\n" not in out
    assert run(["explain", "tpot", "llama-3.1-8b", "--on", "groq3-lpx", "--depth", "30", "--json"]) == 3
    missing = [line for line in lines(json.loads(capsys.readouterr().out)["tree"]) if line["value"] is None]
    assert all(line["numbers"] is None for line in missing if "numbers" in line and not line["repeated"])


@pytest.mark.parametrize("width", [80, 200])
def test_the_tree_fits_the_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert run(["explain", "tpot", "llama-3.1-8b", "--on", "dgx-h100"]) == 0
    out = capsys.readouterr().out.splitlines()
    long = [line for line in out if len(line) > width]
    # A path is never broken.
    assert all(max(map(len, line.split())) > width - 60 for line in long)
    # The answer in a sentence, with its range, before the tree.
    assert re.match(r"tpot_s of llama-3.1-8b on dgx-h100 TP8 is [\d.]+ ms \([\d.]+-[\d.]+ ms\) at 1 at once,", out[0])
    assert out[out.index("") + 1].startswith("tpot_s = ")
    assert any(line.startswith("inputs that matter most") for line in out)


# --- operators ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", SYSTEMS)
@pytest.mark.parametrize("model", ["llama-3.1-70b", "gpt-oss-120b"])
@pytest.mark.parametrize("draft", [{}, {"draft": "llama-3.2-1b", "k": 4.0, "alpha": 0.7}])
def test_operators_add_up_to_the_times_of_their_phase(on, model, draft):
    asked = question(on, model=model, **draft)
    answer = evaluate(asked)
    if not answer.fits:
        pytest.skip("does not fit")
    times = operator_times(asked)
    for phase, metric in (("prefill", "ttft_s"), ("decode", "tpot_s")):
        assert sum(row.time for row in times[phase]) == pytest.approx(float(answer.metrics[metric]), rel=1e-12)
        assert sum(row.share for row in times[phase]) == pytest.approx(1.0, rel=1e-12)
    assert any(row.name.startswith("draft.") for row in times["decode"]) == bool(draft)


def test_operators_do_the_work_that_a_count_by_hand_gives():
    # Llama-3.1-8B, config.json of the checkpoint: 32 layers of 4,096, 8 KV heads of 128, MLP of 14,336, 128,256 words.
    layers, hidden, kv, inner, words = 32, 4096, 1024, 14336, 128256
    found = {row.name: row for row in operator_times(question("dgx-h100:tp=1", model="llama-3.1-8b"))["decode"]}
    # Of seven clients those decode that are not being prefilled.
    tokens = found["head"].flops / (2 * hidden * words)
    assert 6 < tokens < 7
    by_hand = {
        "qkv": layers * hidden * (hidden + 2 * kv),
        "out": layers * hidden * hidden,
        "up": layers * hidden * 2 * inner,
        "down": layers * hidden * inner,
        "head": hidden * words,
    }
    for name, weights in by_hand.items():
        assert found[name].flops == pytest.approx(2 * tokens * weights, rel=1e-9)
        # BF16 weights are read once, whatever else moves.
        assert found[name].moved > 2 * weights
        assert found[name].limit == "memory"
    # Scores and values of 32 heads of 128, over the mean context of 1,500 tokens in and 300 out.
    assert found["attention"].flops == pytest.approx(4 * tokens * layers * hidden * (1500 + 150), rel=0.01)


def test_a_table_of_operators_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["explain", "tpot", "gpt-oss-120b", "--on", "dgx-h100", "--operators"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert max(map(len, out)) <= 80
    assert [line.split()[0] for line in out if line.startswith(("TTFT", "TPOT", "experts"))] == [
        *("experts", "TTFT", "experts", "TPOT")
    ]


def test_explain_json(capsys):
    assert run(["explain", "ttft", "llama-3.1-8b", "--on", "lpu-v1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"metric", "value", "unit", "tree", "elasticities", "warnings", "assumed", "plan"}
    assert set(found["elasticities"][0]) == {"path", "value", "unit", "elasticity", "switches", "source", "kind"}


@pytest.mark.parametrize("on", SYSTEMS)
def test_latex_is_balanced_and_its_text_escaped(on):
    text = explain(question(on), "tpot_s", depth=30).latex()
    assert text.startswith("\\begin{align*}\n")
    assert text.endswith("\n\\end{align*}")
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")
    assert text.count("\\left") == text.count("\\right")
    assert text.count("\\begin{cases}") == text.count("\\end{cases}")
    for words in re.findall(r"\\text\{([^{}]*)\}", text):
        assert not re.search(r"(?<!\\)[_%&#$]", words)


def test_an_unknown_metric_is_refused(capsys):
    assert run(["explain", "speed", "llama-3.1-8b", "--on", "dgx-h100"]) == 2
    assert "expected one of ttft_s" in capsys.readouterr().err


# --- elasticities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", SYSTEMS)
@pytest.mark.parametrize(("metric", "power"), [("tpot_s", 1.0), ("ttft_s", 1.0), ("output_tokens_per_s", -1.0)])
def test_elasticities_obey_dimensions(on, metric, power):
    """Counting time in another unit scales seconds up and rates down, and a time with them."""
    found = [one for one in elasticities(question(on), metric) if not one.switches]
    seconds = math.fsum(one.elasticity for one in found if one.unit == "s")
    rates = math.fsum(one.elasticity for one in found if one.unit.endswith("/s"))
    assert seconds - rates == pytest.approx(power, abs=1e-9)


def test_elasticities_of_what_is_known_by_hand():
    found = {one.path: one for one in elasticities(question("dgx-h100"), "memory_weights_bytes")}
    assert found["deployment.tp"].elasticity == pytest.approx(-1, abs=1e-3)  # norms are not split
    assert found["model.hidden"].elasticity == pytest.approx(1, abs=1e-3)
    assert not found["deployment.tp"].switches
    assert found["deployment.pp"].switches  # whole layers a stage


def test_a_switch_within_a_percent_is_no_slope():
    # 32 sequences of 8,192 values of 2 bytes are the 524,288 bytes at which the engine changes its all-reduce: of 32.4
    # clients that many decode.
    found = elasticities(question("dgx-h100", concurrency=32.4), "tpot_s")
    threshold = next(one for one in found if one.path.endswith("all_reduce.threshold"))
    assert threshold.switches
    assert found.index(threshold) >= 10


# --- break-even --------------------------------------------------------------------------------------------------

BREAK_EVENS = [
    ("dgx-h100", "tpot", "memory.hbm.bandwidth", 0.8),
    ("dgx-h100", "ttft", "traffic.prompt", 2.5),
    ("dgx-h100", "output_tokens_per_s", "traffic.concurrency", 3.0),
    ("dgx-h100", "mbu", "memory.hbm.bandwidth", 0.9),
    ("dgx-h100", "output_tokens_per_s_per_user", "system.efficiency.layer_time", 1.1),
    ("dgx-h100", "max_concurrency", "memory.hbm.capacity", 0.5),
    ("sn40l-16", "tpot", "memory.hbm.bandwidth", 0.5),
    ("sn40l-16", "output_tokens_per_s", "traffic.concurrency", 2.0),
    ("lpu-v1", "tpot", "system.efficiency.layer_overhead", 0.3),
    ("lpu-v1", "ttft", "system.efficiency.token_budget", 0.5),
]


@pytest.mark.parametrize(("on", "metric", "path", "factor"), BREAK_EVENS)
def test_a_break_even_meets_its_target_and_nothing_beyond_it_does(on, metric, path, factor):
    asked = question(on)
    name = metric if metric in results(evaluate(asked)) else f"{metric}_s"
    target = factor * float(results(evaluate(asked))[name])
    found = solve(asked, metric, path, target)
    assert not found.reason

    def predicted(value):
        return float(results(evaluate(put(asked, found.path, value)))[name])

    at_most = name.endswith("_s") and "per_s" not in name
    reached = predicted(found.value)
    assert reached == found.reached
    assert (reached <= target * (1 + 1e-9)) if at_most else (reached >= target * (1 - 1e-9))
    if math.isnan(found.beyond):
        assert reached == pytest.approx(target, rel=1e-9)
        sides = [predicted(found.value * factor) - target for factor in (1 - 1e-5, 1 + 1e-5)]
        assert sides[0] * sides[1] < 0
    else:
        assert (found.beyond > target) if at_most else (found.beyond < target)


def test_the_closed_form_holds_and_bounds():
    asked = question("dgx-h100", concurrency=1.0)
    found = solve(asked, "tpot", "memory.hbm.bandwidth", "9 ms")
    assert found.form
    offset, slope = map(float, re.findall(r"[\d.]+(?:e[+-]\d+)?(?= [+/])", found.form))
    assert offset + slope / found.value == pytest.approx(0.009, rel=1e-4)
    # Beyond the regime compute takes over, so that the machine never beats the form's limit.
    endless = float(evaluate(put(asked, "system.memory.hbm.bandwidth", 1e30)).metrics["tpot_s"])
    assert found.limit <= endless
    assert endless == pytest.approx(found.limit, rel=0.2)
    below = solve(asked, "tpot", "memory.hbm.bandwidth", 0.999 * found.limit)
    assert math.isnan(below.value)
    assert "where TPOT goes to" in below.reason


def test_a_layout_is_searched_among_those_that_can_run():
    found = solve(question("dgx-h100"), "tpot", "deployment.tp", "20 ms")
    assert found.value in (1.0, 2.0, 4.0, 8.0, 16.0)
    assert float(found.reached) <= 0.020 < found.beyond


def test_an_unpublished_input_is_solved_for():
    asked = question("dgx-h100")
    unknown = put(asked, "system.memory.hbm.bandwidth", math.nan)
    assert math.isnan(float(evaluate(unknown).metrics["tpot_s"]))
    target = float(evaluate(asked).metrics["tpot_s"])
    assert solve(unknown, "tpot", "memory.hbm.bandwidth", target).value == pytest.approx(3.35e12, rel=1e-8)


def test_solve_says_when_every_value_will_do():
    found = solve(question("dgx-h100"), "tpot", "memory.hbm.bandwidth", "100 s")
    assert found.reason.startswith("every system.memory.hbm.bandwidth from ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--for", "memory.hbm.bandwidth", "--target", "9 ms"], 0, ""),
        (["--for", "memory.hbm.bandwidth", "--target", "1 us"], 3, "the best is"),
        (["--for", "memory.hbm.bandwith", "--target", "9 ms"], 2, "did you mean"),
        (["--for", "memory.hbm.bandwidth", "--target", "9 GB"], 2, "expected s"),
        (["--for", "deployment.engine", "--target", "9 ms"], 2, "is a word"),
        (["--for", "memory.hbm.bandwidth", "--target", "0"], 2, "more than 0"),
    ],
)
def test_solve_on_the_command_line(arguments, code, said, capsys):
    assert run(["solve", "tpot", "llama-3.1-70b", "--on", "dgx-h100", *arguments, "--json"]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert len(err.splitlines()) == (1 if code else 0)
    if code != 2:
        assert set(json.loads(out)) >= {"metric", "path", "target", "value", "reached", "form", "limit", "reason"}
        assert run(["solve", "tpot", "llama-3.1-70b", "--on", "dgx-h100", *arguments]) == code
        assert capsys.readouterr().out.count("\ntarget ") == 1


def test_every_metric_can_be_explained_and_solved():
    asked = question("dgx-h100")
    for metric in METRICS:
        assert explain(asked, metric, depth=1).value == evaluate(asked).metrics[metric]
    with pytest.raises(UserError):
        solve(asked, "nothing", "memory.hbm.bandwidth", 1.0)
    names = [name.removesuffix("_s") for name in METRICS]
    assert len(set(itertools.chain(METRICS, names))) >= len(METRICS)

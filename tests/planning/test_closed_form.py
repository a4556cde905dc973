"""Break-evens in closed form against algebra done by hand and against a root finder on the whole prediction."""

import math
import re

import numpy as np
import pytest
from scipy.optimize import brentq

from perfmodel import numerics as pm
from perfmodel.cli import run
from perfmodel.planning.closed_form import closed_form
from perfmodel.planning.solve import solve
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.results import results
from perfmodel.specs.paths import put
from perfmodel.trace import Ledger


def question(on, *changes, model="llama-3.1-70b", **options):
    return resolve(model, on, Options(**{"concurrency": 1.0, "prompt": 1000.0, "output": 200.0, **options}), changes)


def numbers(scenario):
    return {name: float(value) for name, value in results(evaluate(scenario)).items()}


def close(value):
    return pytest.approx(value, rel=1e-9)


# --- a graph of which the algebra is known -----------------------------------------------------------------------

#: (the function, where it is traced, target, roots by hand).
BY_HAND = [
    (lambda x: 2 * x + 3, 1.0, 11.0, [4.0]),
    (lambda x: 3 + 8 / x, 1.0, 5.0, [4.0]),
    (lambda x: x + 6 / x, 4.0, 5.0, [2.0, 3.0]),
    (lambda x: (x + 1) / (2 * x + 5), 1.0, 0.25, [0.5]),
    (lambda x: pm.maximum(12 / x, x), 2.0, 4.0, [3.0]),
    (lambda x: pm.maximum(12 / x, x), 4.0, 4.0, [4.0]),
    (lambda x: pm.minimum(12 / x, x), 4.0, 2.0, [6.0]),
    (lambda x: pm.switch_at(x, 10.0, 2 * x, 5 * x), 3.0, 8.0, [4.0]),
    (lambda x: pm.switch_at(x, 10.0, 2 * x, 5 * x), 12.0, 60.0, [12.0]),
    (lambda x: pm.only_if(x - 1, x / 2), 3.0, 2.0, [4.0]),
    (lambda x: pm.floor(2.5 * x) * x, 3.0, 21.0, [3.0]),
    (lambda x: pm.ceil_div(x, 2.0) + x, 3.0, 5.0, [3.0]),
    (lambda x: pm.interpolate(x, [(0, 0), (2, 4), (4, 6)]), 3.0, 5.5, [3.5]),
    (lambda x: pm.geometric_sum(x, 3.0), 0.5, 1.75, [0.5]),
    (lambda x: pm.complement_power(x, 2.0), 0.5, 0.25, [0.5, 1.5]),
    (lambda x: x**-2, 1.0, 0.25, [2.0]),
    # What multiplies a square root is 0, so that the root does not matter.
    (lambda x: x + pm.maximum(0.0, 1 - x) * pm.sqrt(x), 2.0, 3.0, [3.0]),
]
#: No rational function, or no function of the input at all.
WITHOUT = [
    lambda x: pm.sqrt(x) + x,
    lambda x: pm.exp(x) * x,
    lambda x: pm.annuity(x, 4.0),
    lambda x: 1.1**x,
    lambda x: x**0.5,
    lambda x: pm.erlang_b(3.0, x),
    lambda x: x**3 * (x + 1) ** 3,
    lambda x: pm.floor(x),
    lambda x: pm.interpolate(x, [(0, 0), (1, 1)]),
]


@pytest.mark.parametrize(("function", "at", "target", "roots"), BY_HAND)
def test_roots_are_those_of_algebra_by_hand(function, at, target, roots):
    with Ledger() as ledger:
        found = closed_form(ledger, function(ledger.input("x", at)), "x", target)
    assert found.roots == pytest.approx(roots, rel=1e-14)
    assert found(at) == pytest.approx(float(function(at)), rel=1e-14)


@pytest.mark.parametrize("function", WITHOUT)
def test_what_is_no_short_rational_function_has_no_closed_form(function):
    with Ledger() as ledger:
        assert closed_form(ledger, function(ledger.input("x", 2.0)), "x", 1.0) is None


def test_a_form_reads_as_one_writes_it():
    def text(function):
        with Ledger() as ledger:
            return closed_form(ledger, function(ledger.input("a.x", 1.0)), "a.x", 1.0).text("y", "x")

    assert text(lambda x: 0.5 / x - 3) == "y = -3 + 0.5 / x"
    assert text(lambda x: 2 - x - x * x) == "y = 2 - 1 * x - 1 * x^2"
    assert text(lambda x: 1 / (2 + 4 / x)) == "1/y = 2 + 4 / x"
    assert text(lambda x: 1 / (2 + 4 * x)) == "1/y = 2 + 4 * x"
    assert text(lambda x: (1 + x) / (2 + 4 * x)) == "y = (0.5 + 0.5 * x) / (1 + 2 * x)"


# --- whole predictions -------------------------------------------------------------------------------------------


def sn40l_bandwidth():
    """TPOT = a + bytes / bandwidth, the bytes counted by hand: Llama 70B in BF16 on 16 sockets."""
    asked = question("sn40l-16")
    efficiency = asked.system.efficiency
    layer = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    weights = 2 * (80 * layer + 8192 * 128256)
    # A token reads the cache of the prompt and of half the output, and writes its own.
    cache = 2 * 80 * 2 * 8 * 128 * (1000 + 200 / 2 + 1)
    moved = (weights / efficiency.memory + cache / efficiency.cache_memory) / 16
    rest = numbers(asked)["tpot_s"] - moved / asked.system.memory.hbm.bandwidth
    return asked, "tpot_s", "system.memory.hbm.bandwidth", 6e-3, moved / (6e-3 - rest)


def h100_layer_time():
    """TPOT has the time of a layer 80 times."""
    asked = question("dgx-h100")
    target = 1.1 * numbers(asked)["tpot_s"]
    path = "system.efficiency.layer_time"
    return asked, "tpot_s", path, target, asked.system.efficiency.layer_time + 0.1 * numbers(asked)["tpot_s"] / 80


def h100_tariff():
    """A joule is paid once, with the PUE; by day the machine idles while nobody asks."""
    asked = question("dgx-h100", "economics.utilisation=100%")
    now, economics = numbers(asked), asked.economics
    joules = now["power_w"] / (now["tokens_per_s_per_chip"] * 8) * 1e6 * economics.pue
    target = now["usd_per_mtok_blended"] + 0.05
    return asked, "usd_per_mtok_blended", "economics.electricity", target, economics.electricity + 0.05 / joules


def lpu_price():
    """USD/Mtok is affine in the price of the system: its slope is the capital of a year over a year's tokens."""
    asked = question("lpu-v1")
    now, economics = numbers(asked), asked.economics
    years = economics.life / (365 * 86400)
    growth = (1 + economics.cost_of_capital) ** years
    annuity = economics.cost_of_capital * growth / (growth - 1)
    extras = 1 + economics.network + economics.storage + economics.spares
    yearly = extras * (annuity * (1 - economics.residual / growth) + economics.maintenance + economics.staff)
    tokens = now["tokens_per_s_per_chip"] * 365 * 86400 * economics.utilisation / 1e6
    slope = yearly / asked.system.chips_per_node / tokens
    price = asked.system.price.system
    return (
        asked,
        "usd_per_mtok_blended",
        "system.price.system",
        100.0,
        price + (100 - now["usd_per_mtok_blended"]) / slope,
    )


def utilisation():
    """What is paid for all day costs in inverse proportion to the share of the day in which it serves."""
    asked = question("sn40l-16")
    now = numbers(asked)["usd_per_mtok_blended"]
    return asked, "usd_per_mtok_blended", "economics.utilisation", 0.75 * now, 0.6 / 0.75


def acceptance():
    """A step of k + 1 tokens brings L = 1 + a + ... + a^k of them, the last one (L + 1) / 2 on average."""
    asked = question("dgx-h100", draft="llama-3.2-1b", k=4.0, alpha=0.7)
    last = 1 / (2 * (asked.traffic.output - 1))
    step = numbers(asked)["tpot_s"] / ((1 - last) / sum(0.7**power for power in range(5)) + last)
    length = (1 - last) / (6e-3 / step - last)
    root = next(root.real for root in np.roots([1, 1, 1, 1, 1 - length]) if root.real > 0 and not root.imag)
    return asked, "tpot_s", "speculation.alpha", 6e-3, root


@pytest.mark.parametrize("case", [sn40l_bandwidth, h100_layer_time, h100_tariff, lpu_price, utilisation, acceptance])
def test_a_break_even_is_that_of_algebra_by_hand(case):
    asked, metric, path, target, right = case()
    found = solve(asked, metric, path, target)
    assert found.method == "closed form"
    assert found.value == close(right)
    assert found.holds_from <= found.value <= found.holds_to
    assert found.equations[-1].name == "results.where_it_fits"
    assert all(line.source for line in found.equations)


#: (system, metric, input, factor on the result, whether there is a closed form).
AGREEING = [
    ("dgx-h100", "tpot_s", "system.memory.hbm.bandwidth", 0.85, True),
    ("dgx-h100", "tpot_s", "system.memory.hbm.bandwidth", 0.8, False),
    ("dgx-h100", "ttft_s", "system.rates.bf16", 0.9, False),
    ("dgx-h100", "mbu", "system.efficiency.gemm_compute.bf16", 0.99, False),
    ("dgx-h100", "output_tokens_per_s_per_user", "system.memory.hbm.bandwidth", 1.2, True),
    ("dgx-h100", "usd_per_mtok_blended", "system.memory.hbm.bandwidth", 0.9, False),
    ("dgx-h100", "usd_per_mtok_blended", "economics.cost_of_capital", 1.1, False),
    ("sn40l-16", "tokens_per_s_per_chip", "system.rates.bf16", 1.05, False),
    ("lpu-v1", "tpot_s", "system.efficiency.layer_overhead", 0.7, False),
    ("lpu-v1", "ttft_s", "system.efficiency.all_reduce_bandwidth", 0.999, False),
]


@pytest.mark.parametrize(("on", "metric", "path", "factor", "closed"), AGREEING)
def test_a_break_even_agrees_with_a_root_finder_on_the_whole_prediction(on, metric, path, factor, closed):
    # What several clients share of their prefills is a root, so that one client alone has a form.
    asked = question(on, concurrency=1.0 if closed else 9.0)
    target = factor * numbers(asked)[metric]
    found = solve(asked, metric, path, target)
    assert found.method == ("closed form" if closed else "brentq")
    assert bool(found.form) == bool(found.equations) == closed

    def missed(value):
        return numbers(put(asked, path, value))[metric] - target

    assert brentq(missed, found.value * 0.999, found.value * 1.001, rtol=1e-14) == close(found.value)
    if closed:
        assert abs(found.reached / target - 1) < 1e-9


def test_a_form_holds_up_to_where_the_regime_ends():
    """Beyond a bandwidth the decoder of the dataflow machine waits for its pipeline to fill."""
    asked, path = question("sn40l-16"), "system.memory.hbm.bandwidth"
    found = solve(asked, "tpot", path, "6 ms")
    offset, moved = map(float, re.findall(r"[\d.]+(?:e[+-]\d+)?(?= /|$| \+)", found.form.replace("/ bandwidth", "/")))

    def tpot(bandwidth):
        return numbers(put(asked, path, bandwidth))["tpot_s"]

    assert found.holds_to < 1e13
    assert tpot(0.999 * found.holds_to) == pytest.approx(offset + moved / (0.999 * found.holds_to), rel=1e-5)
    assert tpot(1.01 * found.holds_to) > (offset + moved / (1.01 * found.holds_to)) * (1 + 1e-5)
    # At the corner both forms hold, and just past it only the other one.
    for bandwidth in (found.holds_to, 1.02 * found.holds_to):
        target = tpot(bandwidth)
        there = solve(asked, "tpot", path, target)
        assert there.value == close(bandwidth)
        assert there.reached == close(target)
    assert there.form != found.form
    assert there.holds_from >= found.holds_to * (1 - 1e-3)


def test_an_end_that_the_whole_prediction_goes_past_is_no_limit():
    asked = question("dgx-h100", concurrency=9.0)
    free = numbers(put(asked, "economics.electricity", 0.0))["usd_per_mtok_blended"]
    target = (free + numbers(asked)["usd_per_mtok_blended"]) / 2
    found = solve(asked, "usd_per_mtok_blended", "economics.electricity", target)
    assert found.limit == close(free)
    # Utilisation divides the whole of the cost of a machine that draws nothing: without end it would cost nothing.
    asked, metric, path, target, _ = utilisation()
    assert math.isnan(solve(asked, metric, path, target).limit)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "dgx-h100", "--for", "memory.hbm.bandwidth", "--target", "9 ms"], "/ bandwidth, bandwidth in B/s"),
        (["--on", "lpu-v1", "--concurrency", "8", "--for", "layer_overhead", "--target", "3 ms"], "none: the value is"),
    ],
)
def test_the_terminal_says_how_the_value_was_found(arguments, said, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    asked = [f"system.efficiency.{word}" if word == "layer_overhead" else word for word in arguments]
    assert run(["solve", "tpot", "llama-3.1-70b", *asked]) == 0
    out = capsys.readouterr().out
    assert said in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80

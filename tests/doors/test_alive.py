"""Every number that a question can set moves an answer, or the answer says that it did not.

A number is tried at twice, half, a hundredth and thirty times its value, or where its range allows; one that nobody has
published is given.  It need not move every answer: models with experts, other precisions and layouts, drafts, rates and
costs are asked about until one moves.
"""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import perfmodel
from perfmodel.cli import run as command
from perfmodel.entered import SHOWN_ONLY, counts, said, same
from perfmodel.errors import UserError
from perfmodel.evidence import kernel_fit
from perfmodel.machines import all_reduce, kernel_step
from perfmodel.planning.load import at_rate, load_dict
from perfmodel.planning.pools import disaggregated
from perfmodel.planning.simulate import ask as simulate
from perfmodel.planning.tco import asking, bom, ownership
from perfmodel.prediction import content, evaluate, run
from perfmodel.question import Options, resolve
from perfmodel.results import results
from perfmodel.serving.availability import with_failures
from perfmodel.serving.cost import cost_of
from perfmodel.serving.disaggregation import transfer
from perfmodel.serving.objectives import Objectives
from perfmodel.specs import catalog, files
from perfmodel.specs.paths import assign, get, put, put_all, put_given, quantities, range_at
from perfmodel.specs.types import PRECISION_BYTES, Scenario
from perfmodel.specs.weights import model_class

#: All bundled files with PERFMODEL_EVERY_PATH=1 (some minutes), else one of each kind and every so many models.
EVERY = os.environ.get("PERFMODEL_EVERY_PATH") == "1"
SYSTEMS = [name for name, _, _ in catalog.entries("system")] if EVERY else ["dgx-h100", "tpu-v5e", "lpu-v1", "sn40l-16"]
MODELS = [name for name, _, _ in catalog.entries("model")][:: 1 if EVERY else 9]
#: Reasons why a number may move nothing on a kind of machine, whatever the question, and on a machine.
NEVER = (
    SHOWN_ONLY,
    "it counts where power follows the work",
    "it counts where nodes bound a group of chips, or are spared",
    "it counts where queries go through latents",
)
LISTED = (
    *NEVER,
    "it counts for links over which nothing was measured",
    "it counts for weights of less than 16 bits",
    "it counts in the bands of such models",
    "it counts where chips share a layer",
)
#: What numbers are where nobody has published them, by unit.
GIVEN = {
    **{"1": 2.0, "B": 1e9, "B/s": 1e11, "FLOP/s": 5e14, "s": 1e-5, "W": 700.0, "W all-in": 1700.0},
    **{"USD": 3e5, "USD/s": 1e-3, "kg": 500.0, "mm2": 800.0},
}
#: What an engine logs or a system has in place of what is worked out: where it is given, nothing else decides.
IN_PLACE = ("engine.weights", "engine.activation_peak", "engine.kv_pool", "engine.memory_utilisation")
IN_PLACE += ("engine.cuda_graphs", ".visible", "efficiency.link_bandwidth", "efficiency.link_latency")
MANY = {"concurrency": 64.0}


# --- what a number moves -----------------------------------------------------------------------------------------


def published(scenario: Scenario) -> Scenario:
    """Return a scenario with a number for what nobody has published, so that it has an answer."""
    kernel_hops = scenario.system.kind == "kernels"
    values = {
        path: 1800.0 if path.endswith("system_per_chip") else GIVEN[unit]
        for path, unit, value in quantities(scenario)
        if value != value and not path.endswith(IN_PLACE) and not (kernel_hops and path.endswith("hop_latency"))
    }
    return put_all(scenario, values) if values else scenario


def others(scenario: Scenario, path: str) -> Iterator[float]:
    """Give other values that a number can have."""
    value, rule = float(get(scenario, path)), range_at(scenario, path)
    if value != value:
        yield 0.9 if path.endswith(".visible") else 0.7 * GIVEN[rule.unit] if not rule.whole else 3.0
        return
    for factor in (2.0, 0.5, 0.01, 30.0):
        other = value * factor or factor
        if rule.whole:
            other = max(1.0, float(round(other)))
        other = min(max(other, rule.least), rule.most)
        if rule.holds(other) and other != value:
            yield other


def moved_together(scenario: Scenario, paths: Iterable[str]) -> set[str]:
    """Return which numbers move a prediction: each changed alone, all in one broadcast, once for each other value."""
    tries = {path: list(others(scenario, path)) for path in paths if get(scenario, path) == get(scenario, path)}
    found: set[str] = set()
    for turn in range(4):
        mine = [path for path, values in tries.items() if path not in found and len(values) > turn]
        if not mine:
            break
        arrays = {}
        for at, path in enumerate(mine):
            arrays[path] = np.full(len(mine) + 1, float(get(scenario, path)))
            arrays[path][at] = tries[path][turn]
        with np.errstate(all="ignore"):
            answers = results(evaluate(put_all(scenario, arrays))).values()
        for answer in answers:
            values = np.broadcast_to(np.asarray(answer, dtype=float), len(mine) + 1)
            differs = ~((values == values[-1]) | (np.isnan(values) & np.isnan(values[-1])))
            found |= {mine[at] for at in np.flatnonzero(differs[:-1])}
    return found


def moved_alone(scenario: Scenario, paths: Iterable[str], numbers: Callable[[Scenario], Any]) -> set[str]:
    """Return which numbers move something of an answer, one after the other."""
    found: set[str] = set()
    with np.errstate(all="ignore"):
        now = numbers(scenario)
        for path in paths:
            for other in others(scenario, path):
                if not same(now, numbers(put(scenario, path, other))):
                    found.add(path)
                    break
    return found


def banded(scenario: Scenario) -> Any:
    return [end for ends in run(scenario).band.values() for end in ends.values()]


def shown(scenario: Scenario) -> Any:
    return {name: float(value) for name, value in results(evaluate(scenario)).items()}


def owned(scenario: Scenario) -> Any:
    """Return what predict and tco say."""
    answer = run(scenario)
    assert not answer.reason
    money = cost_of(scenario)
    owned = ownership.Owned(answer, money, bom.bill(scenario.system), np.nan, asking._break_even(answer, money), (), ())
    return [content(answer), ownership.costs(owned), owned.break_even]


def loaded(scenario: Scenario) -> Any:
    return {key: value for key, value in load_dict(at_rate(scenario, 1.0)).items() if key not in ("traffic", "assumed")}


def pooled(scenario: Scenario) -> Any:
    """Return the time that a prompt's cache takes between pools of such systems, with a network and without."""
    alone = put(scenario, "system.network.bandwidth_per_direction", np.nan)
    return [float(transfer(one, one, 1024.0)) for one in (scenario, alone, ports(alone))]


def spared(scenario: Scenario) -> Any:
    """Return the spares that a share of working time takes."""
    load = at_rate(scenario, 1.0)
    return with_failures(scenario, load.load, 0.999, catalog.load_reliability(), load.chips, 1e8)


#: Models of every class, those among them that were fitted somewhere.
FITTED = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "gpt-oss-120b", "minimax-m2", "qwen3-235b-a22b", "deepseek-r1")
FITTED += ("glm-5", "qwen3.5-397b-a17b", "mixtral-8x7b", "deepseek-v3", "deepseek-v3.2", "qwen3-next-80b-a3b")


def widths(scenario: Scenario, paths: set[str]) -> set[str]:
    """Return the widths of bands that are those of a question: of its model where it has one, else of its class."""
    mine = scenario.model.name.replace(".", "_"), model_class(scenario.model)
    return {path for path in paths if "_spread." in path and path.rpartition(".")[2] in mine}


def with_experts(on: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    for model in ("gpt-oss-120b", "deepseek-v3", "mixtral-8x7b"):
        yield model, MANY, []
        yield model, {**MANY, "tp": 1.0, "ep": 8.0, "attention_dp": 8.0}, []


def questions(on: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Give model, options and changes of questions about a system."""
    bare = catalog.load_bare_system(on)
    node = float(bare.chips_per_node)
    yield "llama-3.1-8b", MANY, []
    yield from with_experts(on)
    yield "qwen3-next-80b-a3b", MANY, []
    yield from (("qwen3-30b-a3b", {**MANY, "precision": name}, []) for name in bare.computes_as)
    shared = 4.0 if node % 8 else 8.0
    yield from ((model, {"tp": shared, "pp": 32 / shared}, []) for model in ("glm-5", "deepseek-v3.2"))
    for engine in ("vllm", "sglang", "trtllm"):
        yield from ((model, {**MANY, "tp": 8.0, "engine": engine}, []) for model in FITTED)
    yield from (("llama-3.1-8b", {**MANY, "precision": name}, []) for name in bare.computes_as)
    yield "llama-3.1-8b", {"kv_precision": "fp8"}, []
    yield from (("llama-3.1-8b", {**MANY, "engine": engine}, []) for engine in ("sglang", "trtllm"))
    yield from (("llama-3.1-8b", {"engine": "sglang", "tp": tp}, []) for tp in (4.0, max(4.0, node)))
    yield "llama-3.1-8b", {"concurrency": 512.0}, ["system.efficiency.stream_time=x50"]
    yield "llama-3.1-405b", {"tp": 2.0, "pp": 2.0}, []
    yield "llama-3.1-405b", {"tp": 2 * node}, []
    spread = {**MANY, "tp": 1.0, "ep": 8.0, "attention_dp": 8.0}
    yield "llama-3.1-70b", {}, ["system.link.hop_latency=5 us"]
    yield "mixtral-8x7b", spread, ["system.link.hop_latency=5 us"]
    yield "mixtral-8x7b", {**MANY, "ep": 8.0, "tp": 8.0}, []
    yield from (("llama-3.1-8b", {}, [f"economics.ownership={word}"]) for word in ("owned", "rented"))
    yield "llama-3.1-8b", {}, ["system.power.system_per_chip=5 kW"]
    for switch in ("cuda_graphs", "kernel_looping", "batch_streaming", "schedule_offloading", "dynamic_chunks"):
        yield "llama-3.1-8b", MANY, [f"system.efficiency.{switch}=false"]
        yield "llama-3.1-8b", {"tp": 2.0}, [f"system.efficiency.{switch}=false"]
        yield "mixtral-8x7b", MANY, [f"system.efficiency.{switch}=false"]
    yield from (("llama-3.1-8b", options, ["system.efficiency.eager=true"]) for options in (MANY, {"tp": 2.0}))
    for word in ("switch", "mesh", "torus2d", "torus3d", "pcie", "pcie_host"):
        yield "llama-3.1-8b", MANY, [f"system.link.topology={word}"]
        yield "mixtral-8x7b", spread, [f"system.link.topology={word}"]
    yield from (("llama-3.1-8b", {"precision": "fp16"}, [f"system.computes_as.fp16={rate}"]) for rate in bare.rates)
    yield from ((model, MANY, ["system.computes_as.mxfp4=bf16"]) for model in ("gpt-oss-120b", "gpt-oss-20b"))


def ports(scenario: Scenario) -> Scenario:
    """Return a scenario whose links are known by their ports only."""
    return put(scenario, "system.link.bandwidth_per_direction", np.nan)


def asked(on: str, model: str, options: dict[str, Any], changes: Iterable[str] = ()) -> Scenario | None:
    """Return a question as it can be answered, None where it is none about such a system."""
    try:
        scenario = resolve(model, on, Options(**options))
        for change in changes:
            scenario = assign(scenario, change)
    except UserError:
        return None
    return replace(published(scenario), changed=())


def out_of_reach(on: str, path: str) -> bool:
    """Whether no question about a system can use a number: its node has one chip, or its chip has no such rate."""
    bare = catalog.load_bare_system(on)
    if path.startswith("system.efficiency.all_reduce."):
        return bare.chips_per_node == 1
    experts = re.fullmatch(r"system[.]efficiency[.]expert_(?:compute|time)[.](\w+)", path)
    return experts is not None and experts[1] in PRECISION_BYTES and experts[1] not in bare.computes_as.values()


def still(paths: set[str], alive: set[str]) -> set[str]:
    """Return the numbers that moved nothing yet, but those whose reason may be that nothing does."""
    return {path for path in paths - alive if counts(path) not in NEVER}


@cache
def walked(on: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return all numbers of a system, and those that moved an answer."""
    paths: set[str] = set()
    alive: set[str] = set()
    for model, options, changes in questions(on):
        scenario = asked(on, model, options, changes)
        if scenario is None:
            continue
        mine = {path for path, _, _ in quantities(scenario) if path.startswith("system.")}
        paths |= mine
        alive |= moved_together(scenario, mine - alive)
        alive |= moved_alone(scenario, widths(scenario, mine - alive), banded)
        unknown = {path for path in mine - alive if get(scenario, path) != get(scenario, path)}
        alive |= moved_alone(scenario, unknown, shown) if unknown else set()
        if not still(paths, alive):
            break
    first = asked(on, "llama-3.1-8b", {"concurrency": 8.0})
    assert first is not None
    every, paths = paths, paths & {path for path, _, _ in quantities(first)}
    alive |= moved_together(ports(first), {path for path in still(paths, alive) if path.startswith("system.link.port")})
    silicon = {"wafer": "n4", "package": "cowos-s", "area": 800.0}
    priced = put_all(first, {f"system.die.{name}": value for name, value in silicon.items()})
    alive |= moved_alone(priced, still(paths, alive), owned)
    alive |= moved_alone(priced, {path for path in paths - alive if path == "system.tile"}, owned)
    alive |= moved_alone(first, still(paths, alive), loaded)
    alive |= moved_alone(first, still(paths, alive), pooled)
    alive |= moved_alone(first, {path for path in paths - alive if path == "system.chips_per_node"}, spared)
    return frozenset(every), frozenset(alive)


# --- systems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", SYSTEMS)
def test_every_number_of_a_system_moves_an_answer_or_is_listed_and_named(on):
    paths, alive = walked(on)
    dead = paths - alive
    assert {path for path in dead if counts(path) not in LISTED and not out_of_reach(on, path)} == set()
    scenario = resolve("llama-3.1-8b", on, Options())
    here = {path for path, _, _ in quantities(scenario)}
    dead &= here
    for path in dead:
        scenario = put_given(scenario, path, next(others(scenario, path)))
    answer = run(scenario)
    if not answer.reason:
        named = {*answer.warnings}
        assert {path for path in dead if not named & {said(path, entered) for entered in (True, False)}} == set()


def test_at_most_one_number_in_twenty_is_listed():
    found = [walked(on) for on in SYSTEMS]
    dead = sum(len(paths - alive) for paths, alive in found)
    # A few systems have none but themselves to stand for their kind.
    assert dead <= (0.05 if EVERY else 0.08) * sum(len(paths) for paths, _ in found)


# --- models, traffic, money, layout ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_number_of_a_model_moves_an_answer_or_is_listed(name):
    scenario = resolve(name, "dgx-b200", Options(concurrency=8))
    # On as many chips as it takes; nothing is laid out anew.
    scenario = put_all(scenario, {"deployment.tp": 8.0, "deployment.pp": 8.0})
    paths = {path for path, _, _ in quantities(scenario) if path.startswith("model.")}
    dead = paths - moved_together(scenario, paths) - {"model.max_context"}
    nodes = {"deployment.tp": 1.0, "deployment.pp": 1.0, "deployment.attention_dp": 64.0, "deployment.ep": 64.0}
    dead -= moved_together(put_all(scenario, {**nodes, "traffic.concurrency": 8192.0}), dead)
    assert {path for path in dead if counts(path) not in LISTED} == set()
    assert len(dead) <= 0.1 * len(paths)


def test_the_most_that_a_model_takes_decides_what_fits():
    long, short = (
        perfmodel.fit("llama-3.1-8b", on="dgx-h100:tp=1", set={"model.max_context": tokens}) for tokens in (16384, 4096)
    )
    assert short.concurrency == pytest.approx(4 * long.concurrency, rel=0.01)
    assert not any("max_context" in line for line in long.warnings)


def test_every_number_of_a_traffic_moves_an_answer():
    scenario = resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(concurrency=32))
    scenario = put_all(scenario, {"traffic.lengths": "lognormal", "traffic.rounds": 10.0})
    paths = {path for path, _, _ in quantities(scenario) if path.startswith("traffic.")}
    left = paths - moved_together(scenario, paths)
    left -= moved_alone(scenario, left, loaded)
    assert left == {"traffic.think_time"}

    def clients(one: Scenario) -> Any:
        return simulate(one, concurrency=4, count=50).simulated

    assert moved_alone(scenario, left, clients) == left


def test_every_number_of_money_layout_and_drafts_moves_an_answer():
    options = Options(concurrency=32, draft="llama-3.2-1b", k=4, alpha=0.7)
    scenario = resolve("mixtral-8x7b", "dgx-h100", options)
    roots = ("economics.", "deployment.", "speculation.")
    paths = {path for path, _, _ in quantities(scenario) if path.startswith(roots)}
    left = paths - moved_together(scenario, paths)
    for word in ("owned", "rented"):
        left -= moved_together(put(scenario, "economics.ownership", word), left)
    left -= moved_together(
        put_all(scenario, {"deployment.tp": 1.0, "deployment.attention_dp": 8.0, "deployment.ep": 4.0}), left
    )
    left -= moved_alone(scenario, left, owned)
    # A draft's own context length: the target's is the one that is looked at.
    assert left <= {"speculation.model.max_context"}


# --- what came alive ---------------------------------------------------------------------------------------------

SEEN = ["dgx-h100", "dgx-h200", "dgx-b200", "dgx-a100", "b300", "gb200-nvl72", "gb300-nvl72", "l40s-8", "rtx-4090-8"]


@pytest.mark.parametrize("on", SEEN)
def test_twice_the_capacity_is_twice_the_memory(on):
    once, twice = (
        perfmodel.predict("llama-3.1-8b", on=on, tp=1, set=changes) for changes in ((), ["memory.hbm.capacity=x2"])
    )
    assert twice.memory["capacity"] == pytest.approx(2 * once.memory["capacity"])
    assert twice.max_concurrency > 2 * once.max_concurrency


def block(chip: str, engine: str) -> all_reduce.AllReduce:
    made, _ = files.build(all_reduce.AllReduce, kernel_fit.all_reduce_block(chip, engine), {})
    return made


@pytest.mark.parametrize(("engine", "bias"), [("trtllm", 0.2), ("vllm", 0.35), ("sglang", 0.6)])
def test_a_curve_scaled_to_other_links_is_as_far_off_as_a_warning_says(engine, bias):
    """Measured on H100, scaled to the links of B200, against what was measured there: messages of 4 MiB and more."""
    mine, its = block("h100", engine), block("b200", engine)
    with (catalog.bundled() / "data/kernels/allreduce.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["hardware"] == "B200 SXM"]
    rows = [row for row in rows if kernel_fit.ENGINE_OF_ALL_REDUCE.get(row["engine"]) == engine]
    ranks, message, time_us = (np.array([float(row[key]) for row in rows]) for key in ("tp", "message_bytes", "value"))
    faster = its.link_bandwidth / mine.link_bandwidth
    scaled = 1e6 * all_reduce.all_reduce_time(mine, message, ranks, faster=faster) / time_us
    large = message >= 4 * 2**20
    assert faster == 2
    assert abs(float(np.median(scaled[large])) - 1) < bias


@pytest.mark.parametrize("on", ["dgx-h100", "dgx-h200", "dgx-b200", "lpu-v1", "mi300x-8"])
def test_links_carry_large_messages_in_proportion(on):
    def taken(share: str, **options: Any) -> float:
        answer = perfmodel.predict("llama-3.1-70b", on=on, set=[f"link.bandwidth_per_direction={share}"], **options)
        return float(answer.breakdown["prefill"]["collective"])

    slow, slower = (taken(share, prompt=8192, output=1) for share in ("x0.001", "x0.0005"))
    assert slower == pytest.approx(2 * slow, rel=0.02)


@pytest.mark.parametrize("on", ["dgx-h100", "mi300x-8", "tpu-v5e"])
def test_each_exchange_waits_for_its_hops(on):
    """Two exchanges a call of two-shot, mesh; the hops of a torus; none at all on one chip."""
    scenario = resolve("llama-3.1-8b", f"{on}:tp=8", Options())

    def call(hop: float, ranks: float) -> float:
        one = put_all(scenario, {"system.link.hop_latency": hop, "deployment.tp": ranks})
        return float(kernel_step.tensor_all_reduce(one, 2.0**24))

    steps = 2 * 2 * (8**0.5 - 1) if on.startswith("tpu") else 2
    assert call(3e-6, 8.0) - call(2e-6, 8.0) == pytest.approx(steps * 1e-6)
    assert call(3e-6, 1.0) == call(2e-6, 1.0) == 0


def test_chips_of_a_smaller_node_cost_as_much_each():
    whole, half = (
        perfmodel.predict("llama-3.1-8b", on="dgx-h100:tp=4", set=changes) for changes in ((), ["chips_per_node=4"])
    )
    assert half.usd_per_mtok_output == pytest.approx(whole.usd_per_mtok_output)
    dear = perfmodel.predict("llama-3.1-8b", on="dgx-h100:tp=4", set=["price.chips=4"])
    assert dear.usd_per_mtok_output > 1.5 * whole.usd_per_mtok_output


def test_lengths_have_one_spread(capsys):
    rate = ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--rate", "5", "--prompt", "1000", "--output", "200"]
    assert command([*rate, "--set", "traffic.prompt_scv=5"]) == 2
    assert "lengths of azure-chat have a spread of their own" in capsys.readouterr().err
    assert command([*rate, "--set", "traffic.lengths=lognormal", "--set", "traffic.prompt_scv=5"]) == 0
    assert "SCV 5 in" in capsys.readouterr().out
    assert command([*rate, "--lengths", "fixed"]) == 0
    assert "every request of the mean lengths" in capsys.readouterr().out
    fixed, none = (
        perfmodel.load("llama-3.1-8b", on="dgx-h100:tp=1", rate=5, prompt=1000, output=200, set=changes)
        for changes in (
            ["traffic.lengths=fixed"],
            ["traffic.lengths=lognormal", "traffic.prompt_scv=0", "traffic.output_scv=0"],
        )
    )
    said = ("assumed", "warnings")
    fixed, none = ({key: value for key, value in one.row().items() if key not in said} for one in (fixed, none))
    assert fixed == none


def test_a_file_gives_lengths_one_spread(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nprompt: {value: 100, source: plan-choice, kind: derived}\n"
        "output: {value: 10, source: plan-choice, kind: derived}\nlengths: azure-chat\n"
        "prompt_scv: {value: 3, source: plan-choice, kind: derived}\n",
        encoding="utf-8",
    )
    with pytest.raises(UserError, match="have a spread of their own"):
        perfmodel.traffic(str(tmp_path / "mine.yaml"))


def test_what_is_assumed_of_a_replay_is_what_is_replayed(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,500,50\n1,700,60\n2,300,20\n", encoding="utf-8")
    ran = perfmodel.simulate(
        "llama-3.1-8b", on="dgx-h100:tp=1", trace=trace, set=["traffic.prompt=5000", "traffic.arrival_scv=2"]
    ).to_dict()
    assert not any(line.startswith(("traffic ", "concurrency")) for line in ran["assumed"])
    assert f"arrivals and lengths of {trace}, as they are" in ran["assumed"]
    assert sum("did not enter" in line or "moved nothing" in line for line in ran["warnings"]) == 2
    clients = perfmodel.simulate("llama-3.1-8b", on="dgx-h100:tp=1", concurrency=2, requests=20).to_dict()
    assert "concurrency 1" not in clients["assumed"]


# --- every verb says it ------------------------------------------------------------------------------------------

IDLE = ["--set", "system.memory.hbm.bandwidth=x1.1", "--set", "system.tile=2"]
VERBS = {
    "predict": ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=2"],
    "predict --rate": ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--rate", "2"],
    "compare": ["compare", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--on", "dgx-h200:tp=2"],
    "tco": ["tco", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--samples", "64"],
    "explain": ["explain", "tpot", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--depth", "1"],
    "solve": ["solve", "tpot", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--for", "rates.bf16", "--target", "1s"],
    "sweep": ["sweep", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--axis", "concurrency=1,8"],
    "size": ["size", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--rate", "2", "--ttft-p99", "5 s"],
    "simulate": ["simulate", "llama-3.1-8b", "--on", "dgx-h100:tp=2", "--rate", "2", "--requests", "20"],
    "fit": ["fit", "llama-3.1-8b", "--on", "dgx-h100:tp=2"],
    "collective": ["collective", "all-reduce", "--on", "dgx-h100", "--tp", "2", "--message", "1MB"],
    "launch": ["launch", "llama-3.1-8b", "--on", "dgx-h100:tp=2"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_change_that_did_not_enter_is_named_by_every_verb(verb, capsys):
    command([*VERBS[verb], *IDLE])
    said_all = " ".join(capsys.readouterr().out.split())
    assert "system.tile did not enter this answer" in said_all
    enters = verb not in ("fit", "collective", "launch")
    assert ("system.memory.hbm.bandwidth did not enter this answer" in said_all) is not enters


def test_an_export_names_it_too(tmp_path):
    target = tmp_path / "answers.csv"
    assert command(["export", "llama-3.1-8b", "--on", "dgx-h100:tp=2", *IDLE, "--csv", str(target)]) == 0
    assert "system.tile did not enter this answer" in target.read_text(encoding="utf-8")


def test_what_enters_and_decides_nothing_is_told_from_what_does_not_enter():
    answer = perfmodel.predict(
        "llama-3.1-8b", on="dgx-h100:tp=1", set=["system.efficiency.stream_time=x2", "link.hop_latency=5us"]
    )
    assert "system.efficiency.stream_time moved nothing in this answer: something else decides" in answer.warnings
    assert any(line.startswith("system.link.hop_latency did not enter this answer: ") for line in answer.warnings)


def test_an_axis_that_did_not_enter_is_named():
    axes = {"link.ports": "1:4:4", "concurrency": [1, 8], "system.efficiency.expert_time.fp8": "1us:9us:3"}
    found = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes=axes, set=["die.area=x2"])
    named = {line.split()[0] for line in found.warnings}
    assert named == {"system.link.ports", "system.efficiency.expert_time.fp8", "system.die.area"}
    across = perfmodel.sweep(
        "llama-3.1-8b",
        on="dgx-h100",
        axes={"network.bandwidth_per_direction": "10GB/s:90GB/s:3", "deployment.tp": "8,16"},
    )
    assert across.warnings == ()


def test_a_plan_that_is_held_along_an_axis_is_said():
    axes = {"memory.sram.capacity": "230MB:2GB:5"}
    found = perfmodel.sweep("llama-3.1-70b", on="lpu-v1", axes=axes)
    alone = resolve("llama-3.1-70b", "lpu-v1", Options(), ["memory.sram.capacity=2GB"])
    held_ = [line for line in found.assumed if "is held along system.memory.sram.capacity" in line]
    assert len(held_) == 1
    assert f"PP{alone.deployment.pp:g} at 2 GB" in held_[0]
    fixed = perfmodel.sweep("llama-3.1-70b", on="lpu-v1", axes=axes, pp=60)
    assert not any("is held along" in line for line in fixed.assumed)


@pytest.mark.parametrize(
    ("metric", "path"), [("tpot", "die.area"), ("max_concurrency", "memory.hbm.bandwidth"), ("tpot", "system.tile")]
)
def test_solve_says_at_once_that_an_input_is_none_of_its_metric(metric, path):
    start = time.perf_counter()
    found = perfmodel.solve(metric, "llama-3.1-8b", on="dgx-h100:tp=1", for_=path, target=1.0)
    assert time.perf_counter() - start < 20
    assert "is no input of" in found.reason


def test_pools_and_loads_read_what_they_say(capsys):
    pair = disaggregated(
        "llama-3.1-8b", "dgx-h100:tp=1", "dgx-h100:tp=1", 2.0, Objectives(), Options(traffic="chat")
    ).to_dict()
    assert any(line.startswith("lengths spread as those of azure-chat") for line in pair["assumed"])

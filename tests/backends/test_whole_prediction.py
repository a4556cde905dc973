"""A whole prediction of each kind of machine is the same number on every backend."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest
from programs import recalculate_all, run_chromium, run_node
from workbooks import cached, loaded, shown

from perfmodel.compilers import javascript, spreadsheet
from perfmodel.machines.base import machine_of
from perfmodel.prediction import METRICS, evaluate, traced
from perfmodel.question import Options, resolve
from perfmodel.specs import catalog
from perfmodel.specs.paths import put, quantities
from perfmodel.specs.types import Scenario
from perfmodel.trace import Ledger, Node

NAN = math.nan
MACHINE_OF = {"dgx-h100": "kernels", "sn40l-16": "dataflow", "lpu-v1": "sram_pipeline"}


def question(on: str, *changes: str, model: str = "llama-3.1-70b", **options: Any) -> Scenario:
    asked = {"concurrency": 40.0, "prompt": 2000.0, "output": 300.0, **options}
    return resolve(model, on, Options(**asked), changes)


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    **{
        f"{on}, {prompt:g} in, {concurrency:g} users": partial(question, on, prompt=prompt, concurrency=concurrency)
        for on in MACHINE_OF
        for prompt in (200.0, 30000.0)
        for concurrency in (1.0, 40.0)
    },
    "kernels over two nodes": partial(question, "dgx-h100", tp=8.0, pp=2.0),
    "kernels twice in fp8": partial(question, "dgx-h100", tp=2.0, dp=2.0, engine="trtllm", precision="fp8"),
    "dataflow without kernel looping": partial(question, "sn40l-16", "system.efficiency.kernel_looping=false"),
    "dataflow without batch streaming": partial(question, "sn40l-16", "system.efficiency.batch_streaming=false"),
    "dataflow with offloading": partial(question, "sn40l-16", "system.efficiency.schedule_offloading=true"),
    "sram pipeline with a fixed beat": partial(question, "lpu-v1", "system.efficiency.beat=fixed"),
    "sram pipeline of one layer a stage": partial(question, "lpu-v1", plan="tp16-layers"),
    "kernels with a draft model": partial(question, "dgx-h100", draft="llama-3.2-1b", k=5.0, alpha=0.8),
    "kernels with a head that drafts": partial(question, "dgx-h100", draft="eagle", accept="0.7,0.6,0.5", k=2.0),
    "dataflow with a draft and offloading": partial(
        question, "sn40l-16", "system.efficiency.schedule_offloading=true", draft="llama-3.2-1b", k=5.0, ar=0.8
    ),
    "sram pipeline with a draft model": partial(question, "lpu-v1", draft="llama-3.2-1b", accept="0.9,0.8", k=4.0),
    **{
        f"{model} on {on}": partial(question, on, model=model)
        for on, model in (
            ("dgx-h100", "llama-3.2-1b"),  # a tied embedding
            ("dgx-h100", "gpt-oss-120b"),  # experts, sliding windows
            ("dgx-h200", "deepseek-v3.2"),  # latent and sparse attention
            ("sn40l-16", "jamba-v0.1"),  # state space
            ("lpu-v1", "deepseek-v3.2"),
            ("lpu-v1", "qwen3-next-80b-a3b"),  # linear attention
            ("lpu-v1", "llama-4-maverick"),  # the most kinds of layers
        )
    },
}

#: What has no answer: the numbers are NaN, #N/A in a sheet and null in JSON.
MISFITS: dict[str, Callable[[], Scenario]] = {
    "kernels, weights too large": partial(question, "dgx-h100", tp=1.0, model="llama-3.1-405b"),
    "kernels, prompt too long": partial(question, "dgx-h100", tp=2.0, prompt=110000.0),
    "dataflow, weights too large": partial(question, "sn40l-8", model="llama-3.1-405b"),
    "sram pipeline, prompt too long": partial(question, "lpu-v1", plan="tp8", prompt=1e6),
    "sram pipeline, memory not published": lambda: put(question("lpu-v1"), "system.memory.sram.bandwidth", NAN),
}
ALL = {**SCENARIOS, **MISFITS}
EACH = pytest.mark.parametrize("name", ALL)

#: Other values for several inputs at once: past switches, caps and the limits of batches.
CHANGES: dict[str, dict[str, float]] = {
    "kernels": {
        "system.memory.hbm.bandwidth": 4.9e12,
        "system.efficiency.step_time": 3.3e-4,
        "traffic.concurrency": 700.0,
        "traffic.prompt": 9000.0,
        "deployment.tp": 16.0,
    },
    "dataflow": {
        "system.memory.hbm.bandwidth": 4.9e12,
        "system.efficiency.warm_up": 3.3e-5,
        "traffic.concurrency": 7.0,
        "traffic.prompt": 9000.0,
        "deployment.dp": 3.0,
    },
    "sram_pipeline": {
        "system.memory.sram.bandwidth": 49e12,
        "system.efficiency.layer_overhead": 3.3e-6,
        "traffic.concurrency": 3.0,
        "traffic.prompt": 9000.0,
        "deployment.pp": 120.0,
    },
}
#: One cell makes the model too large for the machine.
NO_ROOM = {
    "kernels": {"system.memory.hbm.capacity": 1e9},
    "dataflow": {"system.efficiency.memory_utilisation": 0.01},
    "sram_pipeline": {"system.memory.sram.capacity": 2.3e7},
}
EDITS: dict[str, tuple[str, dict[str, float]]] = {
    f"{kind}, {title}": (f"{on}, 200 in, 40 users", edits[kind])
    for on, kind in MACHINE_OF.items()
    for title, edits in (("changed", CHANGES), ("without room", NO_ROOM))
}


def close(expected: Any) -> Any:
    # A cause that is the difference of two equal times is a rounding error of either, or 0.
    return pytest.approx(expected, rel=1e-9, abs=1e-15, nan_ok=True)


def numbers(answer: Any) -> dict[str, Any]:
    """Return all that a prediction holds, and one decode step of seven sequences."""
    step = machine_of(answer.scenario.system).decode(answer.scenario, 7.0, 2000.0)
    return {
        **answer.metrics,
        "max_concurrency": answer.max_concurrency,
        **{f"{phase} {cause}": part for phase, parts in answer.breakdown.items() for cause, part in parts.items()},
        **{f"memory {use}": value for use, value in answer.memory.items()},
        **{f"step {part}": getattr(step, part) for part in ("time", "compute", "memory", "flops", "bytes_moved")},
    }


def floats(asked: Scenario) -> dict[str, float]:
    return numbers(evaluate(asked))


def changed(asked: Scenario, edits: Mapping[str, Any]) -> Scenario:
    for path, value in edits.items():
        asked = put(asked, path, value)
    return asked


@cache
def scenario(name: str) -> Scenario:
    return ALL[name]()


@cache
def nodes(name: str) -> tuple[Ledger, dict[str, Node]]:
    """Return the traced numbers of a scenario; constants, such as a host time of 0, are no nodes."""
    ledger, answer = traced(scenario(name))
    return ledger, {key: value for key, value in numbers(answer).items() if isinstance(value, Node)}


def expected(name: str, edits: Mapping[str, float] | None = None) -> Any:
    known = floats(changed(scenario(name), edits or {}))
    return close({key: known[key] for key in nodes(name)[1]})


@EACH
def test_float(name: str) -> None:
    """So that the other tests compare numbers where there are some, and NaN only where it is due."""
    found = floats(scenario(name))
    assert {*METRICS, "step time", "memory weights"} <= set(nodes(name)[1])
    if name in SCENARIOS:
        assert all(math.isfinite(value) for value in found.values())
        assert all(found[metric] > 0 for metric in METRICS)
    else:
        assert all(math.isnan(found[metric]) for metric in METRICS)
        assert math.isfinite(found["max_concurrency"])


@EACH
def test_node(name: str) -> None:
    assert {key: node.value for key, node in nodes(name)[1].items()} == expected(name)


@pytest.mark.parametrize("system", [name for name, _, _ in catalog.entries("system")])
def test_node_of_every_system(system: str) -> None:
    asked = question(system, model="llama-3.1-8b")
    _, answer = traced(asked)
    assert {metric: node.value for metric, node in answer.metrics.items()} == close(evaluate(asked).metrics)


@pytest.mark.parametrize("model", [name for name, _, _ in catalog.entries("model")])
@pytest.mark.parametrize("on", MACHINE_OF)
def test_node_of_every_model(on: str, model: str) -> None:
    asked = question(on, model=model)
    _, answer = traced(asked)
    assert {metric: node.value for metric, node in answer.metrics.items()} == close(evaluate(asked).metrics)


@pytest.mark.parametrize("on", MACHINE_OF)
def test_array_on_every_quantity(on: str) -> None:
    asked = question(on)
    for path, _, value in quantities(asked):
        if math.isnan(value):
            continue
        values = np.array([1.0, 2.0, 3.0]) * value if value else np.array([0.0, 1.0, 2.0])
        swept = numbers(evaluate(put(asked, path, values)))
        single = [floats(put(asked, path, float(one))) for one in values]
        for key, result in swept.items():
            assert np.broadcast_to(result, 3) == close([one[key] for one in single]), f"{key} over {path}"


@pytest.mark.parametrize("on", MACHINE_OF)
def test_array_carries_only_the_axes_it_depends_on(on: str) -> None:
    concurrency = np.array([1.0, 2.0, 7.0, 40.0, 5000.0])[:, None]
    prompt = np.array([1.0, 50.0, 400.0, 2000.0, 9000.0, 30000.0, 1e5])[None, :]
    answer = evaluate(changed(question(on), {"traffic.concurrency": concurrency, "traffic.prompt": prompt}))
    assert {np.shape(answer.metrics[metric]) for metric in METRICS} == {(5, 7)}
    assert np.shape(answer.max_concurrency) == (1, 7)
    assert {np.shape(answer.memory[use]) for use in ("capacity", "weights", "reserved", "kv_room")} == {()}
    for row, column in np.ndindex(5, 7):
        edits = {"traffic.concurrency": float(concurrency[row, 0]), "traffic.prompt": float(prompt[0, column])}
        single = evaluate(changed(question(on), edits))
        assert {metric: answer.metrics[metric][row, column] for metric in METRICS} == close(single.metrics)


def test_array_of_a_gpu_prefill_does_not_carry_the_batch() -> None:
    """It is that of a prompt alone; what prompts of the same step take is in the wait."""
    batch, prompt = np.array([[1.0], [2.0], [4000.0]]), np.array([[100.0, 2000.0]])
    answer = evaluate(changed(question("dgx-h100"), {"traffic.concurrency": batch, "traffic.prompt": prompt}))
    assert np.shape(answer.breakdown["prefill"]["compute"]) == (1, 2)
    assert np.shape(answer.breakdown["decode"]["compute"]) == (3, 2)
    assert (np.diff(answer.breakdown["prefill"]["wait"], axis=0) > 0).all()


# --- spreadsheets ------------------------------------------------------------------------------------------------


def _edit(workbook: Path, edits: Mapping[str, float], into: Path) -> Path:
    """Type other values into the cells of inputs, as a user would."""
    book = openpyxl.load_workbook(workbook)
    cells = {row[0].value: row[1] for row in book["Inputs"].iter_rows(min_row=2)}
    for path, value in edits.items():
        cells[path].value = value
    book.save(into)
    return into


@pytest.fixture(scope="module")
def workbooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("workbooks")
    files = {name: folder / f"{at}.xlsx" for at, name in enumerate(ALL)}
    for name, file in files.items():
        spreadsheet.write_workbook(*nodes(name), file, zero_cached=True)
    return files


@pytest.fixture(scope="module")
def sheets(workbooks: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """What LibreOffice makes of all workbooks, edited ones too, in one start."""
    folder = tmp_path_factory.mktemp("edited")
    edited = {
        name: _edit(workbooks[base], edits, folder / f"edited-{at}.xlsx")
        for at, (name, (base, edits)) in enumerate(EDITS.items())
    }
    files = {**workbooks, **edited}
    return dict(zip(files, map(shown, recalculate_all(files.values(), folder / "recalculated")), strict=True))


@EACH
def test_workbook_to_recalculate_holds_only_zeros(name: str, workbooks: dict[str, Path]) -> None:
    """Else the next test could read our own numbers back."""
    assert cached(workbooks[name]) == {0}
    assert set(shown(workbooks[name]).values()) == {0.0}


@pytest.mark.program
@EACH
def test_spreadsheet(name: str, sheets: dict[str, dict[str, float]]) -> None:
    assert sheets[name] == expected(name)


@pytest.mark.program
@pytest.mark.parametrize("name", EDITS)
def test_spreadsheet_after_an_edit(name: str, sheets: dict[str, dict[str, float]]) -> None:
    base, edits = EDITS[name]
    assert sheets[name] == expected(base, edits)
    assert sheets[name] != expected(base)
    assert math.isnan(sheets[name]["tpot_s"]) == name.endswith("without room")


def test_workbook_keeps_the_limits_of_excel(workbooks: dict[str, Path]) -> None:
    for file in workbooks.values():
        for sheet in loaded(file, values=False):
            for (cell,) in sheet.iter_rows(min_row=2, min_col=2, max_col=2):
                assert len(str(cell.value)) <= 8192


@pytest.mark.parametrize("key", ["tpot_s", "max_concurrency", "memory weights", "step time"])
def test_a_workbook_of_one_result_has_only_what_it_needs(key: str, tmp_path: Path) -> None:
    ledger, results = nodes("kernels over two nodes")
    spreadsheet.write_workbook(ledger, {key: results[key]}, tmp_path / "one.xlsx")
    book = loaded(tmp_path / "one.xlsx", values=False)
    rows = [(sheet.title, row) for sheet in book for row in range(2, sheet.max_row + 1)]
    formulas = " ".join(str(book[title].cell(row, 2).value) for title, row in rows)
    present = {f"{title}!$B${row}" for title, row in rows if title != "Results"}
    assert present == set(re.findall(r"\w+!\$B\$\d+", formulas))
    assert shown(tmp_path / "one.xlsx") == close({key: results[key].value})


# --- JavaScript --------------------------------------------------------------------------------------------------


def _script() -> str:
    """A function for each scenario, called with its inputs and with the edited ones."""
    functions, calls = [javascript.PRELUDE], []
    for at, name in enumerate(ALL):
        ledger, results = nodes(name)
        functions.append(javascript.function(ledger, results, f"predict{at}"))
        inputs = {path: entry.value for path, entry in ledger.inputs.items()}
        variants = {name: {}, **{edit: edits for edit, (base, edits) in EDITS.items() if base == name}}
        for key, edits in variants.items():
            calls.append(f"{json.dumps(key)}: predict{at}({json.dumps({**inputs, **edits})})")
    return "".join(functions) + f"report({{{', '.join(calls)}}});"


@pytest.fixture(scope="module", params=["node", "chromium"])
def scripts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    script = _script()
    found = run_node(script) if request.param == "node" else run_chromium(script, tmp_path_factory.mktemp("page"))
    return {
        name: {key: NAN if value is None else value for key, value in values.items()} for name, values in found.items()
    }


@pytest.mark.program
@EACH
def test_javascript(name: str, scripts: dict[str, dict[str, float]]) -> None:
    assert scripts[name] == expected(name)


@pytest.mark.program
@pytest.mark.parametrize("name", EDITS)
def test_javascript_with_other_inputs(name: str, scripts: dict[str, dict[str, float]]) -> None:
    base, edits = EDITS[name]
    assert scripts[name] == expected(base, edits)

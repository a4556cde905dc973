"""The planning workbook, recalculated by other programs: every live cell is what Python says."""

from __future__ import annotations

import math
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from programs import drive_office, recalculate_all

from perfmodel.cli import run
from perfmodel.compilers import workbook
from perfmodel.compilers.offers import Offer, ask_each, bundled_offer, offer
from perfmodel.compilers.workbook.content import GRID
from perfmodel.compilers.workbook.layout import Layout, cell_name
from perfmodel.prediction import METRICS, evaluate
from perfmodel.question import Options
from perfmodel.results import results, unit_of
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import unit_factor

#: Few columns of scenarios and grid, so that a recalculation takes seconds.
SMALL: dict[str, Any] = {"contexts": (2048.0,), "ratios": (1.0, 8.0), "spare": 1}


def asked(models: list[str], systems: list[str], **options: Any) -> list[Scenario]:
    return ask_each(models, systems, Options(**{"concurrency": 8.0, **options}))


@cache
def offers() -> dict[str, tuple[Offer, int]]:
    """Return offers by name, each with how many pairs were asked about."""
    every = asked(["llama-3.1-8b"], ["dgx-h100", "sn40l-16", "lpu-v1"])
    experts = asked(["qwen3-30b-a3b"], ["dgx-h100"])
    more = asked(["llama-3.1-70b", "qwen2.5-7b"], ["dgx-h100", "dgx-h200", "sn40l-8", "lpu-v1"])
    drafted = asked(["llama-3.1-70b"], ["dgx-h100", "sn40l-16"], draft="llama-3.2-1b", k=4.0, alpha=0.7)
    return {
        "kinds": (offer(every), 2),
        "pairs": (offer([*every, *experts], more), 1),
        "drafts": (offer(drafted), 2),
        "unpublished": (offer([*asked(["llama-3.1-8b"], ["groq3-lpx"]), *every[:1]]), 2),
    }


#: Workbooks as `perfmodel export MODEL... --xlsx FILE` makes them, with all bundled systems and models that they offer.
#: Each pair of the first is chosen in LibreOffice, with PERFMODEL_EVERY_PAIR=1 of all of them.
EXPORTS = {
    "a GPU": (["llama-3.1-70b"], ["dgx-h100"], Options()),
    "each kind, dense and experts": (["llama-3.1-8b", "gpt-oss-20b"], ["dgx-h100", "sn40l-16", "lpu-v1"], Options()),
    "a draft": (["llama-3.1-70b"], ["dgx-h100", "sn40l-16"], Options(draft="llama-3.2-1b", k=4.0, alpha=0.7)),
}
EVERY = os.environ.get("PERFMODEL_EVERY_PAIR") == "1"
#: What a user types: into cells of the sheet Inputs by path, and which pair the drop-downs choose.
EDITS: dict[str, tuple[str, int, dict[str, float]]] = {
    "kernels, typed": (
        "kinds",
        0,
        {
            "system.memory.hbm.bandwidth": 4.9e12,
            "traffic.concurrency": 700.0,
            "deployment.tp": 2.0,
            "system.efficiency.step_time": 3e-4,
            "model.layers.0.count": 40.0,
        },
    ),
    "dataflow, chosen and typed": ("kinds", 1, {"system.efficiency.warm_up": 3e-5, "traffic.prompt": 9000.0}),
    "sram pipeline, chosen and typed": ("kinds", 2, {"system.efficiency.layer_overhead": 0.0, "deployment.dp": 2.0}),
    "no room": ("kinds", 0, {"system.memory.hbm.capacity": 1e9}),
    "a draft, chosen and typed": ("drafts", 1, {"speculation.alpha": 0.9, "speculation.k": 2.0}),
    "three ranks": ("drafts", 0, {"deployment.tp": 3.0}),
    "published after all": ("unpublished", 0, {"system.link.hop_latency": 3e-7, "system.rates.fp16": 5e14}),
}
#: Layouts that the command line would refuse too.
REFUSED = ("three ranks",)


def answers(scenario: Scenario) -> dict[str, float]:
    return {name: float(value) for name, value in results(evaluate(scenario)).items()}


def changed(scenario: Scenario, edits: dict[str, float]) -> Scenario:
    for path, value in edits.items():
        scenario = put(scenario, path, value)
    return scenario


def _edit(file: Path, into: Path, pair: Any, edits: dict[str, float], rows: dict[int, Any]) -> Path:
    book = openpyxl.load_workbook(file)
    inputs, scenarios = book["Inputs"], book["Scenarios"]
    inputs["B3"], inputs["B4"] = pair.scenario.system.name, pair.scenario.model.name
    cells = {row[0].value: (row[2], row[4].value) for row in inputs.iter_rows(min_row=14)}
    for path, value in edits.items():
        cell, unit = cells[path]
        cell.value = value / unit_factor(unit)[1]
    for row, other in rows.items():
        scenarios.cell(row, 2).value, scenarios.cell(row, 3).value = (
            other.scenario.system.name,
            other.scenario.model.name,
        )
    book.save(into)
    return into


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Layout, Path]]:
    folder = tmp_path_factory.mktemp("workbooks")
    found = {}
    for name, (held, count) in offers().items():
        small = SMALL if name != "pairs" else {**SMALL, "ratios": (1.0,), "spare": len(held.pairs)}
        found[name] = workbook.write(held, folder / f"{name}.xlsx", zero_cached=True, asked=count, **small)
    return {name: (book, folder / f"{name}.xlsx") for name, book in found.items()}


@pytest.fixture(scope="module")
def recalculated(written: dict[str, tuple[Layout, Path]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What LibreOffice makes of all workbooks and of their edited copies, in one start."""
    folder = tmp_path_factory.mktemp("edited")
    files = {name: file for name, (_, file) in written.items() if name != "pairs"}
    for at, (title, (name, pair, edits)) in enumerate(EDITS.items()):
        book, file = written[name]
        files[title] = _edit(file, folder / f"edited-{at}.xlsx", book.content.offer.pairs[pair], edits, {})
    book, file = written["pairs"]
    spare = dict(zip(book.scenario_rows[-len(book.content.offer.pairs) :], book.content.offer.pairs, strict=True))
    files["pairs"] = _edit(file, folder / "every-pair.xlsx", book.content.base, {}, spare)
    done = recalculate_all(files.values(), folder / "recalculated")
    return {title: openpyxl.load_workbook(path, data_only=True) for title, path in zip(files, done, strict=True)}


def close(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=0)


def shown(book: Any) -> dict[str, Any]:
    rows = book["Results"].iter_rows(min_row=5, max_col=2, values_only=True)
    found = {}
    for name, value in rows:
        if name is None:
            break
        found[name] = value
    return found


def expected(scenario: Scenario, names: Any) -> dict[str, Any]:
    """Return what result cells show: a number, or the word for why there is none."""
    known = answers(scenario)
    word = "does not fit" if known["max_concurrency"] < 1 else "not published"
    return {name: known[name] if known.get(name, math.nan) == known.get(name) else word for name in names}


def compare(found: dict[str, Any], right: dict[str, Any]) -> None:
    assert found.keys() == right.keys()
    for name, value in right.items():
        if isinstance(value, str):
            assert found[name] == value, name
        else:
            assert found[name] == close(value), name


@pytest.mark.program
@pytest.mark.parametrize("name", ["kinds", "drafts", "unpublished"])
def test_every_cell_recalculates_to_what_perfmodel_stores(name, written, recalculated, tmp_path):
    """All sheets: inputs, equations, results, scenarios, the grid; the copy that was recalculated held only zeros."""
    book, file = written[name]
    stored_file = tmp_path / "stored.xlsx"
    workbook.write(book.content.offer, stored_file, asked=offers()[name][1], **SMALL)
    stored, zeros = (openpyxl.load_workbook(path, data_only=True) for path in (stored_file, file))
    formulas = openpyxl.load_workbook(file)
    live = 0
    for sheet in formulas:
        pages = (stored[sheet.title], zeros[sheet.title], recalculated[name][sheet.title])
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type != "f" or cell.value == "=NA()":
                    continue
                right, zero, found = (page[cell.coordinate].value for page in pages)
                live += 1
                assert zero == 0
                if isinstance(right, int | float) and not isinstance(right, bool):
                    assert found == close(right), (sheet.title, cell.coordinate)
                else:
                    assert (found or "") == (right or ""), (sheet.title, cell.coordinate)
    assert live > 2000


@pytest.mark.program
@pytest.mark.parametrize("name", ["kinds", "drafts", "unpublished"])
def test_results_are_those_of_a_prediction(name, written, recalculated):
    book = written[name][0]
    compare(shown(recalculated[name]), expected(book.content.base.scenario, book.content.results))


@pytest.mark.program
def test_an_input_that_the_chosen_pair_does_not_read_says_so(written, recalculated):
    """Every other chosen pair too: the words follow the choice."""
    for title in ("kinds", "dataflow, chosen and typed", "sram pipeline, chosen and typed"):
        name, pair, _ = EDITS.get(title, (title, 0, {}))
        held = written[name][0].content.offer
        read = held.read(held.pairs[pair])
        rows = recalculated[title]["Inputs"].iter_rows(min_row=14, max_col=8, values_only=True)
        said = {row[0]: str(row[7]).startswith("did not enter this answer") for row in rows if row[0]}
        assert {path for path, idle in said.items() if idle} == {path for path in said if path not in read}


@pytest.mark.program
@pytest.mark.parametrize("title", EDITS)
def test_results_follow_what_is_typed_and_chosen(title, written, recalculated):
    name, pair, edits = EDITS[title]
    book = written[name][0]
    found = shown(recalculated[title])
    if title in REFUSED:
        assert set(found.values()) == {"layout refused"}
        return
    compare(found, expected(changed(book.content.offer.pairs[pair].scenario, edits), book.content.results))


@pytest.mark.program
def test_scenarios_and_grid_are_those_of_predictions(written, recalculated):
    book = written["kinds"][0]
    sheet = recalculated["kinds"]["Scenarios"]
    for row, case in zip(book.scenario_rows, book.content.cases[1:], strict=True):
        found = {name: sheet.cell(row, at + 1).value for name, at in book.scenario_columns.items()}
        compare(found, expected(changed(case.pair.scenario, case.edits), found))
    for table, name in enumerate(GRID):
        for at, case in enumerate(book.content.grid):
            down, across = divmod(at, len(book.content.ratios))
            value = sheet.cell(book.grid_row(down, table), 2 + across).value
            compare({name: value}, expected(changed(case.pair.scenario, case.edits), [name]))


@pytest.mark.program
def test_every_offered_pair_gives_its_prediction(written, recalculated):
    book = written["pairs"][0]
    assert len({pair.program for pair in book.content.offer.pairs}) == 4
    assert len(book.content.offer.pairs) > 8
    sheet = recalculated["pairs"]["Scenarios"]
    rows = book.scenario_rows[-len(book.content.offer.pairs) :]
    for row, pair in zip(rows, book.content.offer.pairs, strict=True):
        assert sheet.cell(row, 2).value == pair.scenario.system.name
        found = {name: sheet.cell(row, at + 1).value for name, at in book.scenario_columns.items()}
        compare(found, expected(pair.scenario, found))


@pytest.mark.program
@pytest.mark.parametrize("title", EXPORTS if EVERY else ["a GPU"])
def test_every_pair_of_an_export_can_be_chosen(title, tmp_path):
    """LibreOffice opens the workbook once, and each pair is chosen in its drop-downs."""
    models, systems, options = EXPORTS[title]
    held, count = bundled_offer(models, systems, options)
    book = workbook.write(held, tmp_path / "book.xlsx", zero_cached=True, asked=count)
    place = f"Results.A{min(book.shown_rows.values())}:B{max(book.shown_rows.values())}"
    words = [book.content.words(pair) for pair in held.pairs]
    steps = [{"set": {"Inputs.B3": one["system"], "Inputs.B4": one["model"]}, "read": place} for one in words]
    numbers, worst = 0, 0.0
    for pair, rows in zip(held.pairs, drive_office(tmp_path / "book.xlsx", steps), strict=True):
        found, right = dict(rows), expected(pair.scenario, book.content.results)
        compare(found, right)
        known = [(found[name], value) for name, value in right.items() if isinstance(value, float)]
        numbers += len(known)
        worst = max([worst, *(abs(shown / value - 1) for shown, value in known if value)])
    print(
        f"{title}: {len(held.pairs)} pairs, {len(held.programs)} programs, {numbers} numbers, largest relative "
        f"difference {worst:.1e}"
    )
    assert numbers > 20 * len(held.pairs)


@pytest.mark.program
def test_what_is_not_published_is_said_and_never_0(written, recalculated):
    found = shown(recalculated["unpublished"])
    assert {found[name] for name in METRICS} == {"not published"}
    assert found["memory_weights_bytes"] > 0
    fixed = shown(recalculated["published after all"])
    assert all(isinstance(fixed[name], float) for name in ("ttft_s", "tpot_s", "mfu", "mbu"))


def test_another_implementation_agrees(tmp_path):
    """The package formulas, on a workbook with few columns."""
    formulas = pytest.importorskip("formulas")
    # The package rounds cells to 16 decimals, so a joule gets a price of few digits.
    priced = ask_each(
        ["llama-3.1-8b"], ["sn40l-16"], Options(concurrency=8.0), [["economics.electricity=2.5e-8 USD/J"]]
    )
    held = offer(priced)
    options = {"asked": 0, "contexts": (4096.0,), "ratios": (4.0,), "spare": 0}
    book = workbook.write(held, tmp_path / "book.xlsx", zero_cached=True, **options)
    solution = formulas.ExcelModel().loads(str(tmp_path / "book.xlsx")).finish().calculate()
    cells = {}
    for key, found in solution.items():
        place = re.fullmatch(r"'\[book\.xlsx\](.+)'!([A-Z]+\d+)", str(key))
        if place and hasattr(found, "value"):
            cells[place[1], place[2]] = found.value[0, 0]
    right = expected(book.content.base.scenario, book.content.results)
    compare({name: cells["RESULTS", f"B{row}"] for name, row in book.shown_rows.items()}, right)
    sheet = openpyxl.load_workbook(tmp_path / "book.xlsx")["Model 1"]
    start = next(
        row[0].row
        for row in sheet.iter_rows(min_row=10)
        if row[0].value == book.content.offer.programs[0].steps[0].name
    )
    for at, value in enumerate(book.content.values[0][0]):
        assert float(cells["MODEL 1", f"E{start + at}"]) == close(value)


def test_the_workbook_keeps_to_what_spreadsheets_share(written):
    """Functions that Excel, LibreOffice and Google Sheets have, short formulas, legal names, no macro."""
    known = {
        *("IF", "INDEX", "MATCH", "ISBLANK", "ISNUMBER", "IFERROR", "_xlfn.IFNA", "CHOOSE", "NA", "AND", "OR", "MOD"),
        *("INT", "MIN", "MAX", "ABS", "EXP", "LN", "SQRT", "POISSON", "PMT", "SEARCH", "COUNT"),
    }
    for name in ("drafts", "unpublished"):
        book, file = written[name]
        sheets = openpyxl.load_workbook(file)
        for sheet in sheets:
            for row in sheet.iter_rows():
                for cell in row:
                    if cell.data_type == "f":
                        assert len(cell.value) <= 8192
                        text = re.sub(r'"[^"]*"', "", cell.value)
                        assert set(re.findall(r"([A-Za-z_.]+)\(", text)) <= known
        for defined in sheets.defined_names:
            assert re.fullmatch(r"(in|out)_[A-Za-z0-9_]+", defined)
        assert {cell_name("in", path) for path in book.content.paths} <= set(sheets.defined_names)
        assert len(sheets["Inputs"].data_validations.dataValidation) >= len(book.content.paths)
        for name, row in book.shown_rows.items():
            assert sheets["Results"].cell(row, 3).value == unit_of(name)


def test_export_writes_a_workbook_or_says_why_not(tmp_path, capsys):
    assert run(["export", "llama-3.1-8b", "--on", "dgx-h100", "--xlsx", str(tmp_path / "plan.ods")]) == 2
    assert run(["export", "llama-3.1-8b", "--on", "sn40l-16", "--xlsx", str(tmp_path / "plan.xlsx")]) == 0
    assert "2 systems" in capsys.readouterr().err
    sheets = openpyxl.load_workbook(tmp_path / "plan.xlsx").sheetnames
    assert sheets == ["Inputs", "Results", "Scenarios", "Model 1", "Specs", "About"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.xlsx"]

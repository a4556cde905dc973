"""The what-if page: its numbers are Python's, and it works offline, by keyboard and for screen readers."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from programs import chromium, run_node

import perfmodel
from perfmodel.cli import run
from perfmodel.compilers import whatif
from perfmodel.compilers.offers import Offer, Pair, ask_each, layouts, offer
from perfmodel.compilers.program import Program, is_result, limits
from perfmodel.prediction import evaluate
from perfmodel.question import Options
from perfmodel.results import results
from perfmodel.specs import catalog
from perfmodel.specs.paths import put_all, quantities, range_at

#: Random settings of each program that are compared; with PERFMODEL_EVERY_PROGRAM=1 those of every bundled system and
#: model too, of so many pairs a program.
SETTINGS, PAIRS = 200, 4
EVERY = os.environ.get("PERFMODEL_EVERY_PROGRAM") == "1"
#: (models, systems, options): every machine kind, dense and experts, unpublished numbers, a draft.
ASKED: tuple[tuple[list[str], list[str], dict[str, Any]], ...] = (
    (["llama-3.1-8b", "gpt-oss-20b"], ["dgx-h100", "sn40l-16", "lpu-v1", "groq3-lpx"], {"concurrency": 8.0}),
    (["llama-3.1-70b"], ["dgx-h100", "sn40l-16", "lpu-v1"], {"draft": "llama-3.2-1b", "k": 4.0, "alpha": 0.7}),
)
PHASES = ("prefill", "decode")
TRAFFICS = ("chat", "code", "reasoning")
OPTIONS = [Options(**options) for _, _, options in ASKED]


@cache
def offers() -> list[Offer]:
    return [
        offer(ask_each(models, systems, options)) for (models, systems, _), options in zip(ASKED, OPTIONS, strict=True)
    ]


@dataclass
class Settings:
    """Random settings of a pair: the values of its inputs, one array each, and what Python makes of them."""

    held: Offer
    at: int
    values: dict[str, Any]

    @property
    def pair(self) -> Pair:
        return self.held.pairs[self.at]

    def states(self) -> list[dict[str, Any]]:
        own = self.pair.inputs
        names, columns = list(self.values), zip(*self.values.values(), strict=True)
        return [
            state(self.held, self.at, {name: float(v) for name, v in zip(names, column, strict=True) if v != own[name]})
            for column in columns
        ]

    def python(self) -> dict[str, Any]:
        """Return the results by name, one evaluation for all settings."""
        scenario = put_all(self.pair.scenario, self.values)
        count = len(next(iter(self.values.values())))
        with np.errstate(all="ignore"):
            found = {**results(evaluate(scenario)), **limits(scenario)}
        return {name: np.broadcast_to(np.asarray(value, dtype=float), count) for name, value in found.items()}

    def compare(self, answers: list[Any]) -> tuple[int, float]:
        """Compare with what the page says; return how many numbers there are, and their largest relative difference."""
        right = self.python()
        ends = right["stages_ends"]
        stages = np.broadcast_to(self.pair.scenario.deployment.pp, ends.shape)
        laid = (ends < stages) & (stages <= ends + right["stages_layers"])
        where = (self.pair.scenario.system.name, self.pair.scenario.model.name)
        for (_, reason), runs, tpot, cap in zip(answers, laid, right["tpot_s"], right["max_concurrency"], strict=True):
            unfit = "does not fit" if cap < 1 else "needs a number that is not published"
            assert reason.startswith("PP must lie between") if not runs else reason == (unfit if tpot != tpot else "")
        numbers, worst = 0, 0.0
        for at, name in enumerate(result_names(self.held.programs[self.pair.program])):
            shown = np.array([found[at] for found, _ in answers], dtype=float)[laid]
            wanted = right[name][laid]
            assert np.array_equal(np.isnan(shown), np.isnan(wanted)), (name, where)
            known = ~np.isnan(wanted)
            # A wait is the small difference of two times; its digits are theirs.
            phase = name.partition("_")[0]
            parts = [np.abs(right[part][laid][known]) for part in right if part.startswith(f"{phase}_")]
            slack = 1e-12 * np.max(parts, axis=0) if phase in PHASES else 0.0
            off = np.maximum(np.abs(shown[known] - wanted[known]) - slack, 0.0)
            off = np.divide(off, np.abs(wanted[known]), out=np.where(off > 0, np.inf, 0.0), where=wanted[known] != 0)
            numbers, worst = numbers + int(known.sum()), max(worst, float(np.max(off, initial=0.0)))
            assert worst <= 1e-9, (name, where)
        return numbers, worst


def result_names(program: Program) -> list[str]:
    return [step.name for step in program.steps if is_result(step)]


def settings(held: Offer, count: int, most: int = PAIRS) -> Iterator[Settings]:
    """Give random settings of some pairs of each program: lengths, requests, layout and twelve other inputs of each."""
    chance = random.Random(20261129)
    for number, program in enumerate(held.programs):
        pairs = [at for at, pair in enumerate(held.pairs) if pair.program == number]
        chosen = chance.sample(pairs, min(most, len(pairs)))
        for at in chosen:
            pair, size = held.pairs[at], -(-count // len(chosen))
            degrees = layouts(pair.scenario)[0]
            drawn = {path: np.full(size, pair.inputs[path]) for path in pair.inputs}
            for place in range(size):
                edits = {
                    "traffic.prompt": float(chance.randint(1, 20000)),
                    "traffic.output": float(chance.randint(1, 4000)),
                    "traffic.concurrency": float(round(10 ** chance.uniform(0, 3))),
                    "deployment.dp": float(chance.randint(1, 4)),
                    "deployment.tp": chance.choice(degrees),
                }
                read = [path for path in program.paths if path.split(".")[0] != "deployment"]
                for path in chance.sample(read, 12):
                    value = pair.inputs[path] * 2 ** chance.uniform(-1, 1)
                    if path not in edits and value == value and range_at(pair.scenario, path).holds(value):
                        edits[path] = value
                for path, value in edits.items():
                    drawn[path][place] = value
            moved = {path: column for path, column in drawn.items() if np.any(column != pair.inputs[path])}
            yield Settings(held, at, {path: column for path, column in moved.items() if not np.all(np.isnan(column))})


def python(held: Offer, at: int) -> dict[str, float]:
    """Return the numbers of a pair as it stands."""
    return {name: float(value) for name, value in results(evaluate(held.pairs[at].scenario)).items()}


def state(held: Offer, at: int, edits: dict[str, float]) -> dict[str, Any]:
    scenario = held.pairs[at].scenario
    return {"system": scenario.system.name, "model": scenario.model.name, "traffic": "chat", "set": edits}


#: What the page answers to a state: its numbers in the order of the program's results, and why there are none.
ANSWER = """(one) => {
  const a = perfmodel_engine.answer(one), names = a.pair ? DATA.programs[a.pair.program].results : [];
  return [names.map((name) => a.found[name] ?? null), a.reason];
}"""


def compared(asked: list[Settings], script: str) -> tuple[int, float]:
    """Run settings in node; return how many numbers were compared, and their largest relative difference."""
    states = [state for each in asked for state in each.states()]
    ask = ANSWER.replace("perfmodel_engine", "engine")
    answers = iter(run_node(f"{script}report({json.dumps(states)}.map({ask}));"))
    found = [each.compare([next(answers) for _ in each.states()]) for each in asked]
    return sum(numbers for numbers, _ in found), max(worst for _, worst in found)


@pytest.mark.program
@pytest.mark.parametrize("which", range(len(ASKED)))
def test_numbers_are_those_of_python(which: int) -> None:
    """The page's own functions, in node: every program at random settings."""
    held = offers()[which]
    numbers, _ = compared(list(settings(held, SETTINGS)), whatif.scripts(held, OPTIONS[which], TRAFFICS))
    assert numbers > 20 * SETTINGS * len(held.programs)


@pytest.mark.program
def test_a_changed_input_that_moves_nothing_is_named() -> None:
    """Not read by the pair, read and without an effect, and with one."""
    held = offers()[0]
    at = next(at for at, pair in enumerate(held.pairs) if pair.scenario.system.name == "lpu-v1")
    inputs = held.pairs[at].inputs
    edits = {
        "system.efficiency.warm_up": 1e-3,
        "system.link.hop_latency": 2 * inputs["system.link.hop_latency"],
        "traffic.rounds": 10.0,
        "traffic.output": inputs["traffic.output"],
    }
    one = {**state(held, at, edits), "set": {**edits, "traffic.concurrency": 1.0}}
    script = whatif.scripts(held, OPTIONS[0], TRAFFICS)
    assert run_node(f"{script}report(engine.idle({json.dumps(one)}));") == [
        "system.efficiency.warm_up did not enter this answer",
        "traffic.rounds moved nothing in this answer: something else decides",
    ]


if EVERY:

    @pytest.mark.program
    def test_every_program_of_the_bundled_files_computes_what_python_does() -> None:
        """Takes some minutes: all systems with all models, in batches of programs that node holds at once."""
        names = {kind: [name for name, _, _ in catalog.entries(kind)] for kind in ("system", "model")}
        options = Options(concurrency=8.0)
        held = offer(ask_each(names["model"], names["system"], options))
        script = whatif.scripts(held, options, TRAFFICS)
        every = list(settings(held, SETTINGS))
        found = [compared(batch, script) for batch in (every[at : at + 40] for at in range(0, len(every), 40))]
        states = sum(len(each.states()) for each in every)
        print(
            f"{len(held.pairs)} pairs, {len(held.programs)} programs, {len(every)} pairs at {states} settings, "
            f"{sum(numbers for numbers, _ in found)} numbers, largest relative difference "
            f"{max(worst for _, worst in found):.1e}"
        )
        assert {each.pair.program for each in every} == set(range(len(held.programs)))


# --- in the browser ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = []
    for at, (held, options) in enumerate(zip(offers(), OPTIONS, strict=True)):
        path = folder / f"page-{at}.html"
        path.write_text(whatif.html(held, options, TRAFFICS))
        found.append(path)
    return found


@pytest.fixture(scope="module")
def browser():
    program = chromium()
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser, pages):
    """Open pages; what they ask for or complain about fails the test."""
    contexts, heard = [], []

    def open_page(which: int = 0, fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url) if request.url.startswith("http") else None)
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(pages[which].as_uri() + fragment)
        assert page.evaluate("window.perfmodel !== undefined")
        assert [url for url in requests if not url.startswith("data:")] == [pages[which].as_uri()]
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


def cell(page: Any, key: str) -> str:
    return page.inner_text(f"td[data-key='{key}'] >> nth=0")


def settle(page: Any) -> None:
    """Wait until the page shows its state and the link holds it."""
    page.evaluate("window.perfmodel.draw()")
    for _ in range(100):
        if page.evaluate("location.hash.slice(1) === window.perfmodel.link()"):
            return
        page.wait_for_timeout(50)
    pytest.fail("the link does not follow the state")


@pytest.mark.program
@pytest.mark.parametrize("which", range(len(ASKED)))
def test_numbers_in_the_browser_are_those_of_python(which, opened):
    page = opened(which)
    ask = ANSWER.replace("perfmodel_engine", "window.perfmodel.engine")
    for each in settings(offers()[which], 5, most=1):
        # Through JSON, where NaN is null as it is from node.
        answers = json.loads(page.evaluate(f"(states) => JSON.stringify(states.map({ask}))", each.states()))
        assert each.compare(answers)[0] > 0


@pytest.mark.program
def test_the_command_gives_the_same_numbers(opened, capsys):
    page = opened(0)
    held = offers()[0]
    edits = {
        "system.memory.hbm.bandwidth": 4.123e12,
        "traffic.prompt": 3001.0,
        "traffic.length_jitter": 0.25,
        "deployment.tp": 4.0,
        "deployment.dp": 2.0,
        "economics.utilisation": 0.4,
    }
    cases = [(0, edits, "chat"), (0, {}, "code"), (2, {"traffic.concurrency": 3.0}, "reasoning"), (5, {}, "chat")]
    for at, changes, traffic in cases:
        one = {**state(held, at, changes), "traffic": traffic}
        words = shlex.split(page.evaluate("(one) => window.perfmodel.engine.command(one)", one))
        found = page.evaluate("(one) => window.perfmodel.engine.answer(one).found", one)
        assert words[:2] == ["perfmodel", "predict"]
        assert run([*words[1:], "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        for key in ("ttft_s", "tpot_s", "output_tokens_per_s", "mbu", "max_concurrency", "power_w"):
            if answer[key] is not None:
                assert found[key] == pytest.approx(answer[key], rel=1e-9), (key, words)


@pytest.mark.program
def test_the_command_of_a_draft_gives_the_same_numbers(opened, capsys):
    page = opened(1)
    words = shlex.split(page.input_value("#command"))
    assert run([*words[1:], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    found = page.evaluate("window.perfmodel.engine.answer(window.perfmodel.state()).found")
    assert found["tpot_s"] == pytest.approx(answer["tpot_s"], rel=1e-9)
    assert found["speculation_tokens_per_step"] == pytest.approx(answer["speculation"]["tokens_per_step"], rel=1e-9)


@pytest.mark.program
def test_a_link_brings_back_the_state(opened):
    page = opened()
    page.select_option("#model", "gpt-oss-20b")
    page.click("#pin-A")
    page.select_option("#system", "sn40l-16")
    page.select_option("#traffic", "code")
    page.fill("#key input[type=number] >> nth=2", "33")
    settle(page)
    fragment = page.evaluate("location.hash")
    words = parse_qs(fragment[1:])
    assert words["s"] == ["sn40l-16"]
    assert words["traffic.concurrency"] == ["33"]
    again = opened(0, fragment)
    for key in ("ttft_s", "tpot_s", "max_concurrency"):
        assert (
            again.locator(f"td[data-key={key}]").all_inner_texts()
            == page.locator(f"td[data-key={key}]").all_inner_texts()
        )
    assert again.locator("td[data-key=tpot_s]").count() == 2
    assert again.input_value("#command") == page.input_value("#command")


@pytest.mark.program
def test_typing_sliding_resetting_and_refusing(opened):
    page = opened()
    before = cell(page, "tpot_s")
    number, slider = (
        page.locator("#key .field >> nth=2 >> input[type=number]"),
        page.locator("#key .field >> nth=2 >> input[type=range]"),
    )
    slider.focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert float(number.input_value()) > 8
    assert cell(page, "tpot_s") != before
    page.click("#key .field >> nth=2 >> button")
    settle(page)
    assert cell(page, "tpot_s") == before
    page.fill("#key .field >> nth=3 >> input[type=number]", "3")
    settle(page)
    assert cell(page, "tpot_s") == "-"
    assert "TP 3 is not among" in page.inner_text("#reason")
    page.click("#reset")
    page.fill("#key .field >> nth=0 >> input[type=number]", "-5")
    settle(page)
    assert "must be" in page.inner_text("#reason")


@pytest.mark.program
def test_any_input_can_be_found_and_changed(opened):
    page = opened()
    page.fill("#filter", "hbm.bandwidth")
    shown = page.locator("#all .field:visible")
    assert shown.count() == 1
    before = cell(page, "tpot_s")
    shown.locator("input[type=number]").fill("6.7")
    settle(page)
    assert cell(page, "tpot_s") != before
    assert "system.memory.hbm.bandwidth=6.7 TB/s" in page.input_value("#command")


@pytest.mark.program
def test_what_is_not_published_is_said(opened):
    page = opened()
    page.select_option("#system", "groq3-lpx")
    settle(page)
    assert cell(page, "tpot_s") == "-"
    assert "not published" in page.inner_text("#reason")


@pytest.mark.program
def test_the_csv_is_rfc_4180(opened):
    page = opened()
    page.click("#pin-A")
    settle(page)
    with page.expect_download() as download:
        page.click("#csv")
    text = Path(download.value.path()).read_bytes().decode()
    assert text.count("\n") == text.count("\r\n") == 3
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["scenario"] for row in rows] == ["now", "A"]
    assert float(rows[0]["tpot_s"]) == pytest.approx(python(offers()[0], 0)["tpot_s"], rel=1e-12)


@pytest.mark.program
@pytest.mark.parametrize(
    ("width", "scheme"), [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark"), (320, "light")]
)
def test_axe_finds_nothing_serious_and_nothing_sticks_out(width, scheme, opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.click("#pin-B")
    for group in page.locator("#all summary").all():
        group.click()
    settle(page)
    found = [
        (one["id"], one["impact"], [node["html"] for node in one["nodes"]][:3])
        for one in axe.run(page).response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert found == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.program
def test_everything_is_reached_by_keyboard(opened):
    page = opened()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
    assert {
        "system",
        "model",
        "traffic",
        "reset",
        "filter",
        "pin-A",
        "pin-B",
        "ratio-metric",
        "command",
        "copy",
    } <= reached
    assert {"copy-link", "csv"} <= reached


def test_whatif_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "page.html"
    asked = ["whatif", "llama-3.1-8b", "--on", "sn40l-8", "--out"]
    assert run([*asked, str(tmp_path / "page.txt")]) == 2
    assert run([*asked, str(tmp_path / "no" / "page.html")]) == 2
    assert run(["whatif", "llama-3.1-8b", "--on", "nothing", "--out", str(path)]) == 2
    capsys.readouterr()
    assert run([*asked, str(path)]) == 0
    assert capsys.readouterr().err == f"wrote {path}: 1 systems, 1 models\n"
    assert [found.name for found in tmp_path.iterdir()] == ["page.html"]
    again = tmp_path / "again.html"
    perfmodel.whatif(again, ["llama-3.1-8b"], on=["sn40l-8"])
    made = [one.read_text().partition("const DATA")[2].partition("<script>")[0] for one in (path, again)]
    assert made[0] == made[1] != ""


def test_a_program_stands_for_every_scenario_of_its_structure() -> None:
    """Evaluated with a pair's own inputs and choices, the shared steps give that pair's prediction."""
    for held in offers():
        for pair in held.pairs:
            program = held.programs[pair.program]
            values = program.evaluate(pair.inputs, pair.filled)
            right = {**results(evaluate(pair.scenario)), **limits(pair.scenario)}
            found = dict(zip([step.name for step in program.steps][-len(right) :], values[-len(right) :], strict=True))
            assert found == pytest.approx({key: float(value) for key, value in right.items()}, rel=1e-9, nan_ok=True)
            assert {path for path, _, _ in quantities(pair.scenario)} >= set(program.paths)

"""Names and notes of users' files run nothing and reach nothing: not in a page, a workbook, a CSV, a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import openpyxl
import pytest
from programs import chromium, recalculate

from perfmodel.cli import run

SYSTEMS = {
    "html": '<img src=x onerror="window.hacked=1">"\'&',
    "script": "</script><script>window.hacked=1</script><!--",
    "formula": "=cmd|' /C calc'!A0",
    "wild": "~*?",
    "proto": "__proto__",
}
MODELS = {
    "html": "<svg/onload=window.hacked=1>",
    "formula": "@SUM(1+1)*cmd|'!A0",
    "path": "../../../../etc/passwd",
    "wide": "\uff1dcmd, =1+1;@SUM(1)|+1",
}
NOTE = '=HYPERLINK("http://example.invalid")</script><script>window.hacked=1</script>'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder of specs with such names."""
    systems, models = tmp_path / "hardware_specs", tmp_path / "workloads" / "models"
    systems.mkdir()
    models.mkdir(parents=True)
    for title, name in SYSTEMS.items():
        bandwidth = {"value": "4 TB/s", "source": "nvidia-h100-datasheet", "kind": "estimate", "note": NOTE}
        bandwidth |= {"low": "2 TB/s", "high": "8 TB/s"}
        spec = {"extends": "sn40l-16", "name": name, "title": name, "memory": {"hbm": {"bandwidth": bandwidth}}}
        (systems / f"{title}.yaml").write_text(json.dumps(spec))
    bundled = Path(__file__).parents[2] / "workloads" / "models" / "llama-3.1-8b.yaml"
    lines = [line for line in bundled.read_text().splitlines() if not line.startswith(("name:", "aliases:", "hf_id:"))]
    for title, name in MODELS.items():
        head = [f"name: {json.dumps(name)}", f"hf_id: {json.dumps(name)}"]
        (models / f"{title}.yaml").write_text("\n".join([*head, *lines]) + "\n")
    monkeypatch.setenv("PERFMODEL_PATH", str(tmp_path))
    return tmp_path


def asked() -> list[str]:
    return [*(word for title in SYSTEMS for word in ("--on", title)), "--concurrency", "4"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    found = tmp_path / "out"
    found.mkdir()
    return found


@pytest.mark.program
def test_a_page_shows_such_names_as_text(folder, out):
    playwright = pytest.importorskip("playwright.sync_api")
    assert run(["whatif", *MODELS, *asked(), "--out", str(out / "page.html")]) == 0
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        heard = []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto((out / "page.html").as_uri())
        values = page.eval_on_selector_all("#system option", "found => found.map((one) => one.value)")
        assert sorted(values) == sorted(SYSTEMS.values())
        for system in SYSTEMS.values():
            for model in MODELS.values():
                page.select_option("#system", system)
                page.select_option("#model", model)
                page.evaluate("window.perfmodel.draw()")
                assert page.inner_text("td[data-key=tpot_s] >> nth=0").endswith("s")
        page.click("#pin-A")
        page.evaluate("window.perfmodel.draw()")
        page.wait_for_timeout(400)
        text = page.evaluate("window.perfmodel.csv()")
        assert page.evaluate("[window.hacked, document.querySelectorAll('img, body script ~ svg').length]") == [None, 0]
        assert not [line for line in heard if "perfmodel" not in line]
        browser.close()
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "\t", "\uff1d"))]


@pytest.mark.program
def test_a_workbook_holds_such_names_as_text_and_finds_the_right_column(folder, out):
    book = out / "book.xlsx"
    some = ["--on", "formula", "--on", "wild", "--on", "proto"]
    assert run(["export", "html", "--also", "formula", *some, "--xlsx", str(book)]) == 0
    formulas, done = openpyxl.load_workbook(book), openpyxl.load_workbook(recalculate(book), data_only=True)
    for sheet in formulas:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    assert "hacked" not in cell.value
                    assert "cmd" not in cell.value
                    assert "HYPERLINK" not in cell.value
                elif isinstance(cell.value, str):
                    assert cell.value[:1] not in ("=", "+", "-", "@", "\t")
    assert not any(sheet._hyperlinks for sheet in formulas)
    stored = openpyxl.load_workbook(book, data_only=True)["Scenarios"]
    for row in stored.iter_rows(min_row=8, max_row=13):
        assert sum(isinstance(cell.value, float) for cell in row) > 10
        for cell in row:
            if isinstance(cell.value, float):
                assert done["Scenarios"][cell.coordinate].value == pytest.approx(cell.value, rel=1e-9)


def test_a_csv_neutralises_such_names(folder, out, capsys):
    more = [word for title in list(MODELS)[1:] for word in ("--also", title)]
    files = ["--csv", str(out / "rows.csv"), "--dictionary", str(out / "dictionary.csv")]
    assert run(["export", "html", *more, *asked(), *files]) == 0
    for name in ("rows.csv", "dictionary.csv"):
        rows = list(csv.reader(io.StringIO((out / name).read_bytes().decode(), newline="")))
        assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "@", "\t", "\r")]
    assert sorted(path.name for path in out.iterdir()) == ["dictionary.csv", "rows.csv"]


def test_what_a_terminal_obeys_is_no_name(folder, capsys):
    """It neither loads, as a model or as a draft, nor is it printed where names are listed, suggested or refused."""
    name = "\x1b[2Jred\n\u202e"
    model = folder / "workloads" / "models" / "path.yaml"
    model.write_text(model.read_text().replace(json.dumps(MODELS["path"]), json.dumps(name)))
    for words in (
        ["predict", "path", "--on", "dgx-h100"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--draft", "path", "--k", "2", "--alpha", "0.5"],
        ["predict", name, "--on", "dgx-h100"],
        ["predict", "?[2Jred", "--on", "dgx-h100"],
        ["predict", "llama-3.1-8b", "--on", name],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--set", f"system.title={name}x"],
        ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", f"system.title=a,{name}x"],
        ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--rate", "1", "--lengths", f"{name}.csv"],
    ):
        assert run(words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.rstrip("\n").isprintable()
    assert run(["specs", "list", "models"]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_comment_lines_of_a_csv_make_no_cell_that_runs(separator, folder, out, capsys, monkeypatch):
    """Whichever separator a spreadsheet takes; what was asked and what was assumed hold names of files and specs."""
    words = ["sweep", "wide", "--on", "formula", "--axis", "concurrency=1,2", "--out", str(out / "rows.csv")]
    hostile = '--set=x=1,=HYPERLINK("http://example.invalid"),\n=1+1;"=1+1\t@SUM(A1)|\uff1dcmd, +1'
    monkeypatch.setattr("sys.argv", ["perfmodel", *words, hostile])
    assert run(words) == 0
    text = (out / "rows.csv").read_bytes().decode()
    comments = [line for line in text.split("\r\n") if line.startswith("#")]
    assert len(comments) == 3
    assert "HYPERLINK" in comments[0]
    for row in csv.reader(io.StringIO("\r\n".join(comments), newline=""), delimiter=separator):
        assert not [cell for cell in row if cell.lstrip(" '").startswith(STARTS) and not cell.startswith(("'", " '"))]
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if not row[0].startswith("#")]
    assert len(rows) == 3
    assert not [cell for row in rows for cell in row if cell.startswith(STARTS)]


@pytest.mark.program
def test_a_spreadsheet_makes_no_formula_of_a_sweep(folder, out, monkeypatch, capsys):
    words = ["sweep", "wide", "--on", "formula", "--axis", "concurrency=1,2", "--out", str(out / "rows.csv")]
    monkeypatch.setattr("sys.argv", ["perfmodel", *words, 'x,=HYPERLINK("http://example.invalid"),\n=1+1,"=1+1'])
    assert run(words) == 0
    (out / "runs.csv").write_text('# assumed: x,=HYPERLINK("http://example.invalid")\r\n')
    for name, runs in (("rows", 0), ("runs", 1)):
        sheet = openpyxl.load_workbook(recalculate(out / f"{name}.csv")).active
        assert sum(cell.data_type == "f" for row in sheet.iter_rows() for cell in row) == runs


@pytest.mark.parametrize(
    "text",
    [
        '!!python/object/apply:os.system ["touch {}"]',
        'name: !!python/object/apply:os.system ["touch {}"]',
        "name: x\nextends: !!python/object/new:os.system [touch {}]",
        "name: !include {}",
        "extends: ../../../../etc/passwd\nname: x",
        "extends: /etc/passwd\nname: x",
        "extends: ..\\..\\secret\nname: x",
    ],
)
@pytest.mark.parametrize("what", ["system", "model", "recipe"])
def test_no_file_runs_code_or_reads_beyond_its_folder(what, text, tmp_path, capsys):
    trap = tmp_path / "trap"
    file = tmp_path / "evil.yaml"
    file.write_text(text.replace("{}", str(trap)))
    arguments = {
        "system": ["predict", "llama-3.1-8b", "--on", str(file)],
        "model": ["predict", str(file), "--on", "dgx-h100"],
        "recipe": ["report", str(file), "--out", str(tmp_path / "out")],
    }[what]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "root:" not in err
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("figure", ["../../evil", "os.system", "__import__", "perfmodel.reports.figures"])
def test_a_recipe_reaches_registered_figures_only(figure, tmp_path, capsys):
    file = tmp_path / "evil.yaml"
    recipe = {
        "title": "x",
        "question": "x",
        "sections": [{"heading": "x", "text": "x", "figures": [{"figure": figure}]}],
    }
    file.write_text(json.dumps(recipe))
    assert run(["report", str(file), "--out", str(tmp_path / "out")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1

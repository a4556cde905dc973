"""What every verb writes is written whole or not at all: a disk that is full, a folder that takes nothing, a folder in
place of a file and a file in place of a folder end in one line that names the place, and leave what was there."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

from perfmodel import writing
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence import calibrate, kernel_fit
from perfmodel.reports import figures
from perfmodel.reports.figures import Chart, Figure, Layer
from perfmodel.specs import catalog

ROOT = Path(__file__).resolve().parents[2]
#: A folder of the system in which nobody, not even root, makes a file.
TAKES_NOTHING = Path("/sys")
ASKED = ["llama-3.1-8b", "--on", "dgx-h100"]
AXIS = ["--axis", "concurrency=1,2"]
#: What writes a file: the command, to which its name comes last.
FILES = {
    "export csv": ("x.csv", ["export", *ASKED, "--csv"]),
    "export parquet": ("x.parquet", ["export", *ASKED, "--csv"]),
    "export dictionary": ("x.csv", ["export", *ASKED, "--dictionary"]),
    "export xlsx": ("x.xlsx", ["export", *ASKED, "--xlsx"]),
    "whatif": ("x.html", ["whatif", *ASKED, "--out"]),
    "sweep csv": ("x.csv", ["sweep", *ASKED, *AXIS, "--out"]),
    "sweep parquet": ("x.parquet", ["sweep", *ASKED, *AXIS, "--out"]),
}
#: What writes a folder.
FOLDERS = {
    "sweep": ["sweep", *ASKED, *AXIS, "--out"],
    "sweep best": ["sweep", *ASKED, *AXIS, "--keep", "best:tpot_s", "--out"],
    "report": ["report", "{tmp}/mine.yaml", "--out"],
    "validate": ["validate", "--data", "{tmp}/rows.csv", "--out"],
}
BOTH = {**FILES, **{name: ("x", words) for name, words in FOLDERS.items()}}


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Return a folder with a recipe of a figure that costs nothing and a row of measurements."""
    import pandas as pd

    def drawn():
        frame = pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0]})
        return Figure(
            "Lines", "A line.", (Chart("lines", "A line", frame, {"x": "x", "y": "y"}, "x", "y", (Layer("line"),)),)
        )

    # A workbook offers all that is bundled, which takes its time.
    few = {"model": ["llama-3.1-8b"], "system": ["dgx-h100"]}
    every = catalog.entries
    monkeypatch.setattr(
        catalog, "entries", lambda kind: (one for one in every(kind) if one[0] in few.get(kind, [one[0]]))
    )
    monkeypatch.setattr(figures, "_REGISTRY", {"drawn": drawn})
    monkeypatch.setattr(figures, "_import_reports", lambda: None)
    (tmp_path / "mine.yaml").write_text("title: x\nquestion: x\nsections: [{heading: x, figures: [{figure: drawn}]}]\n")
    (tmp_path / "rows.csv").write_text(
        "model,hardware,metric,value,unit,isl,osl,concurrency_or_batch\nllama-3.1-8b,dgx-h100,TPOT,6,ms,100,100,1\n"
    )
    (tmp_path / "there").mkdir()
    return tmp_path


@contextlib.contextmanager
def full_disk():
    """Let no file grow beyond some bytes, which the system says as it says that a disk is full."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def refused(words, place, tmp, capsys):
    assert run([*(word.format(tmp=tmp) for word in words), str(place)]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1, err
    assert str(place) in err
    for never in ("internal error", "Traceback", "Exception"):
        assert never not in err
    return err


@pytest.mark.parametrize("verb", BOTH)
def test_a_full_disk(verb, given, capsys):
    name, words = BOTH[verb]
    place = given / "there" / name
    with full_disk():
        assert "File too large" in refused(words, place, given, capsys)
    assert not [path for path in (given / "there").rglob("*") if path.is_file() and path.name != "_digests.txt"]


@pytest.mark.parametrize("verb", BOTH)
def test_a_folder_that_takes_nothing(verb, given, capsys):
    name, words = BOTH[verb]
    assert "not permitted" in (err := refused(words, TAKES_NOTHING / name, given, capsys)) or "denied" in err


@pytest.mark.parametrize("verb", FILES)
def test_a_folder_in_place_of_a_file(verb, given, capsys):
    name, words = FILES[verb]
    (given / "there" / name).mkdir()
    assert "folder" in refused(words, given / "there" / name, given, capsys)


@pytest.mark.parametrize("verb", FOLDERS)
def test_a_file_in_place_of_a_folder(verb, given, capsys):
    (given / "there" / "x").write_text("mine")
    refused(FOLDERS[verb], given / "there" / "x", given, capsys)
    refused(FOLDERS[verb], given / "there" / "x" / "y", given, capsys)
    assert (given / "there" / "x").read_text() == "mine"


@pytest.mark.parametrize("verb", FILES)
def test_what_killed_writers_left_goes_with_the_next_run(verb, given, capsys):
    name, words = FILES[verb]
    (given / "there" / ".s-1234abcd.partial.csv").write_text("half")
    (given / "there" / ".mine.csv").write_text("whole")
    assert run([*words, str(given / "there" / name)]) == 0
    assert sorted(path.name for path in (given / "there").iterdir()) == [".mine.csv", name]


def test_a_full_disk_leaves_the_old_calibration(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "calibrations", lambda: iter([("x", {"a": {"value": "1" * 100}})]))
    monkeypatch.setattr(kernel_fit, "kernel_errors", lambda: [])
    monkeypatch.setattr(calibrate, "calibrate", partial(calibrate.calibrate, tmp_path))
    (tmp_path / "x.yaml").write_text("old")
    with full_disk():
        assert run(["calibrate"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert str(tmp_path / "x.yaml") in err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.yaml", "old")]
    assert run(["calibrate"]) == 0
    assert "1111" in (tmp_path / "x.yaml").read_text()


def test_a_full_disk_and_a_new_chip(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with full_disk():
        assert run(["specs", "new", "chip", "mine"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "cannot be written (File too large)" in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("more", [[], ["--csv"], ["--json"]])
def test_an_output_that_takes_nothing(more):
    command = [sys.executable, str(ROOT / "cli.py"), "predict", *ASKED, *more]
    with open("/dev/full", "w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert found.returncode == 2
    assert found.stderr == "perfmodel: the output: No space left on device\n"


# --- one writer --------------------------------------------------------------------------------------------------


def test_an_error_leaves_what_was_there(tmp_path):
    (tmp_path / "x.csv").write_text("old")

    def broken():
        with writing.whole(tmp_path / "x.csv") as part:
            part.write_text("new")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.csv", "old")]


def test_two_may_write_the_same_and_one_is_there_whole(tmp_path):
    with writing.whole(tmp_path / "x.csv") as one, writing.whole(tmp_path / "x.csv") as two:
        one.write_text("one")
        two.write_text("two")
        writing.clean(tmp_path)
        assert one.exists()
        assert two.exists()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.csv", "one")]


def test_a_name_as_long_as_the_file_system_takes(tmp_path):
    place = tmp_path / f"{'x' * 251}.csv"
    with writing.whole(place) as part:
        part.write_text("long")
    assert place.read_text() == "long"
    with pytest.raises(UserError, match="File name too long"), writing.whole(tmp_path / f"{'x' * 252}.csv"):
        pass


WRITER = """
    import sys, time
    from pathlib import Path
    from perfmodel.writing import alone, whole

    folder = Path(sys.argv[1])
    with alone(folder / "_lock", "no two"), whole(folder / "x.csv") as part:
        part.write_text("half")
        time.sleep(600)
"""


def test_a_writer_that_lives_is_left_alone_and_one_that_was_killed_is_not(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    writer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)], env=environment)
    try:
        for _ in range(1200):
            if any(path.read_text() == "half" for path in tmp_path.glob(".x-*")):
                break
            time.sleep(0.05)
        writing.clean(tmp_path)
        assert len(list(tmp_path.glob(".x-*"))) == 1
        with (
            pytest.raises(UserError, match=f"no two: process {writer.pid} on "),
            writing.alone(tmp_path / "_lock", "no two"),
        ):
            pass
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    writing.clean(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["_lock"]
    with writing.alone(tmp_path / "_lock", "no two"):
        pass
    assert not list(tmp_path.iterdir())

"""The CSV is RFC 4180 with right types, described by its dictionary, and safe to open."""

import csv
import io
import math

import pandas as pd
import pyarrow.parquet as pq
import pytest

from perfmodel.cli import run
from perfmodel.writing import text_cell

ASKED = ["llama-3.1-70b", "--also", "gpt-oss-120b", "--on", "dgx-h100", "--on", "lpu-v1:plan=tp8", "--on", "groq3-lpx"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    found = {name: folder / name for name in ("answers.csv", "dictionary.csv", "answers.parquet")}
    given = ["--csv", str(found["answers.csv"]), "--dictionary", str(found["dictionary.csv"])]
    assert run(["export", *ASKED, *given]) == 0
    assert run(["export", *ASKED, "--csv", str(found["answers.parquet"])]) == 0
    return found


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8"), newline="")))


def test_lines_end_and_quote_as_rfc_4180_has_it(files):
    raw = files["answers.csv"].read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n") == 7
    assert not raw.startswith(b"\xef\xbb\xbf")
    parsed = rows(files["answers.csv"])
    assert len(parsed) == 6
    assert all(None not in row and None not in row.values() for row in parsed)
    again = io.StringIO(newline="")
    writer = csv.DictWriter(again, list(parsed[0]), lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(parsed)
    assert again.getvalue().encode() == raw


def test_the_dictionary_describes_every_column(files):
    described = {row["column"]: row for row in rows(files["dictionary.csv"])}
    parsed = rows(files["answers.csv"])
    assert list(described) == list(parsed[0])
    for name, entry in described.items():
        assert entry["meaning"]
        for row in parsed:
            if entry["type"] == "number" and row[name]:
                assert entry["unit"]
                assert math.isfinite(float(row[name]))
            elif entry["type"] == "boolean":
                assert row[name] in ("True", "False")


def test_pandas_reads_the_types(files):
    frame = pd.read_csv(files["answers.csv"])
    described = {row["column"]: row["type"] for row in rows(files["dictionary.csv"])}
    for name, kind in described.items():
        if kind == "number":
            assert pd.api.types.is_numeric_dtype(frame[name]), name
    assert frame["fits"].dtype == bool
    assert frame.loc[~frame["fits"], "tpot_s"].isna().all()
    assert frame.loc[frame["reason"].isna(), "tpot_s"].gt(0).all()


def test_parquet_holds_the_same(files):
    table = pq.read_table(files["answers.parquet"])
    frame = pd.read_csv(files["answers.csv"])
    assert table.column_names == list(frame.columns)
    assert table.schema.field("tpot_s").metadata[b"unit"] == b"s"
    stored = table.column("tpot_s").to_pandas()
    assert stored.to_list() == pytest.approx(frame["tpot_s"].to_list(), nan_ok=True)


def test_no_file_is_half_written(tmp_path, capsys):
    assert run(["export", "llama-3.1-8b", "--on", "dgx-h100", "--csv", str(tmp_path / "no" / "x.csv")]) == 2
    assert run(["export", "llama-3.1-8b", "--on", "dgx-h100", "--csv", str(tmp_path / "x.txt")]) == 2
    assert run(["export", "llama-3.1-8b", "--on", "dgx-h100"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"),
        *("\n=1+1", "\nx", " =1+1", "\u3000=1+1", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)"),
    ],
)
def test_text_that_a_spreadsheet_would_run_is_neutralised(text):
    assert text_cell(text) == "'" + text

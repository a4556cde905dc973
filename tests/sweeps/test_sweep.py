"""A sweep gives the same numbers as single predictions."""

import csv
import io
import random

import numpy as np
import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.prediction import METRICS

#: Question, axes of every kind, and how a row becomes the options of a single prediction.
SWEEPS = {
    "GPU": (
        {"model": "llama-3.1-70b", "on": "dgx-h100", "tp": 8, "precision": "fp8"},
        {
            "traffic.concurrency": [1.0, 3.0, 20.0, 64.0],
            "traffic.prompt": "100:9000:5",
            "traffic.output": "16:1024:4:log",
            "system.memory.hbm.bandwidth": "2 TB/s:5 TB/s:4",
            "deployment.tp": [2.0, 4.0, 8.0],
            "system.rates.fp8": "1 PFLOP/s,2 PFLOP/s",
        },
    ),
    "experts": (
        {"model": "qwen3-235b-a22b", "on": "dgx-h200", "tp": 8, "dp": 1},
        {
            "traffic.concurrency": [1.0, 16.0, 200.0],
            "model.layers.0.moe.top_k": [4.0, 8.0],
            "deployment.ep": [1.0, 2.0, 8.0],
            "system.efficiency.layer_time": "0 s:60 us:5",
            "deployment.kv_precision": "bf16,fp8",
        },
    ),
    "dataflow": (
        {"model": "llama-3.1-8b", "on": "sn40l-16", "tp": 16},
        {
            "traffic.prompt": "64:8000:6",
            "system.efficiency.memory": [0.5, 0.8],
            "system.efficiency.kernel_looping": "true,false",
            "traffic.concurrency": [1.0, 2.0, 9.0],
        },
    ),
    "SRAM": (
        {"model": "llama-3.1-8b", "on": "lpu-v1", "precision": "fp8", "tp": 16, "pp": 33},
        {
            "traffic.concurrency": [1.0, 40.0, 300.0],
            "traffic.prompt": [17.0, 400.0, 3000.0],
            "system.efficiency.token_budget": [4.0, 64.0],
            "system.efficiency.beat": "load,fixed",
            "system.efficiency.layer_overhead": "0 s:50 us:3",
        },
    ),
    "categories": (
        {"model": "llama-3.1-8b", "on": "dgx-h100", "tp": 4},
        {
            "system": "dgx-h100,dgx-b200,mi300x-8",
            "model": "llama-3.1-8b,qwen3-8b",
            "traffic": "chat,code,pd-8",
            "deployment.precision": "bf16,fp8",
            "deployment.engine": "vllm,sglang",
            "traffic.concurrency": [1.0, 30.0],
        },
    ),
}


def single(question, row, axes):
    """Answer one point by itself."""
    question = dict(question)
    changes = {}
    for path in axes:
        value = row[path]
        name = path.rpartition(".")[2]
        if path == "system":
            question["on"] = value
        elif path in ("model", "traffic") or path.startswith("deployment."):
            question[name] = value
        else:
            changes[path] = value
    return perfmodel.predict(question.pop("model"), on=question.pop("on"), set=changes, steady=True, **question)


@pytest.mark.parametrize("kind", SWEEPS)
def test_the_same_numbers_as_single_predictions(kind):
    question, axes = SWEEPS[kind]
    asked = dict(question)
    result = perfmodel.sweep(asked.pop("model"), on=asked.pop("on"), axes=axes, **asked)
    rows = result.to_frame().to_dict("records")
    assert len(rows) == len(result)
    for row in random.Random(1).sample(rows, min(50, len(rows))):
        one = single(question, row, axes)
        assert bool(one.fits) == bool(row["fits"])
        for key in METRICS:
            assert row[key] == pytest.approx(float(one.metrics[key]), rel=1e-9, nan_ok=True), (key, row)
        assert row["max_concurrency"] == float(one.max_concurrency)
        if one.fits:
            assert row["decode_limited_by"] == one.limited_by["decode"]


def test_a_result_carries_only_the_axes_it_depends_on():
    axes = {"traffic.concurrency": [1.0, 2.0, 3.0], "system.memory.hbm.bandwidth": [1e12, 2e12]}
    cell = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", tp=1, axes=axes).cells[0].prediction
    assert np.shape(cell.metrics["tpot_s"]) == (3, 2)
    assert np.shape(cell.memory["weights"]) == ()


def test_best_is_a_row_of_the_frame():
    axes = {"traffic.concurrency": [1.0, 8.0, 64.0], "deployment.tp": [1.0, 2.0, 4.0, 8.0]}
    result = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes=axes)
    frame = result.to_frame()
    assert result.best("tpot_s")["tpot_s"] == frame["tpot_s"].min()
    assert result.best("output_tokens_per_s")["output_tokens_per_s"] == frame["output_tokens_per_s"].max()
    assert result.plot("concurrency", "tpot_s", color="tp").to_dict()["mark"]["type"] == "line"


def test_short_names_are_the_last_words_of_the_paths_unless_two_are_alike():
    axes = {"traffic.concurrency": [1.0, 8.0], "deployment.tp": [4.0, 8.0]}
    short = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes=axes).to_frame(short=True)
    assert list(short.columns[:2]) == ["concurrency", "tp"]
    assert short.columns.is_unique
    alike = {"system.efficiency.gemm_memory.bf16": [0.8], "system.rates.bf16": [1e15]}
    names = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes=alike).to_frame(short=True).columns
    assert list(names[:2]) == ["system efficiency gemm_memory bf16", "system rates bf16"]


def test_what_does_not_fit_is_empty_and_never_best():
    result = perfmodel.sweep("llama-3.1-70b", on="dgx-h100", axes={"deployment.tp": [1.0, 2.0, 4.0, 8.0]})
    frame = result.to_frame().set_index("deployment.tp")
    assert not frame.loc[1.0, "fits"]
    assert np.isnan(frame.loc[1.0, "tpot_s"])
    assert result.best("tpot_s")["tp"] > 1


def test_csv_has_provenance_units_and_every_point(tmp_path, capsys):
    path = tmp_path / "sweep.csv"
    axes = ["--axis", "concurrency=1:64:4:log", "--axis", "deployment.tp=1,8", "--axis", "system=dgx-h100,dgx-b200"]
    assert run(["sweep", "llama-3.1-70b", "--on", "dgx-h100", *axes, "--out", str(path)]) == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines if line.startswith("#")]
    assert "perfmodel" in comments[0]
    assert "ttft_s [s]" in comments[2]
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines if not line.startswith("#")))))
    assert len(rows) == 16
    assert {row["fits"] for row in rows} == {"True", "False"}
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.csv"]


def test_parquet_holds_the_same_and_its_units(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "sweep.parquet"
    arguments = ["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", "traffic.prompt=100:9000:7", "--out", str(path)]
    assert run(arguments) == 0
    table = pq.read_table(path)
    assert table.num_rows == 7
    assert table.schema.metadata[b"unit:tpot_s"] == b"s"
    same = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes={"traffic.prompt": "100:9000:7"}).to_frame()
    assert table.column("tpot_s").to_pylist() == same["tpot_s"].tolist()


@pytest.mark.parametrize(
    ("axis", "hint"),
    [
        ("concurrency", "PATH=A:B:N"),
        ("concurency=1,2", "did you mean"),
        ("concurrency=1:9", "A:B:N"),
        ("concurrency=1:9:x", "number of points"),
        ("concurrency=0:9:3:log", "at least 1"),
        ("concurrency=0,4", "at least 1"),
        ("memory.hbm.bandwidth=1 GB,2 GB", "expected B/s"),
        ("deployment.tp=1,3", "use one of"),
        ("deployment.tp=1.5", "whole"),
        ("system=dgx-h100,dgx-x", "did you mean"),
    ],
)
def test_a_wrong_axis_is_one_line(axis, hint, capsys):
    assert run(["sweep", "llama-3.1-8b", "--on", "dgx-h100", "--axis", axis]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert hint in err


def test_an_axis_may_be_relative_to_the_spec():
    result = perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes={"memory.hbm.bandwidth": "x1,x2"})
    assert result.grid[0].values == (3.35e12, 6.7e12)


def test_the_same_axis_twice_is_refused():
    with pytest.raises(UserError, match="twice"):
        perfmodel.sweep("llama-3.1-8b", on="dgx-h100", axes={"concurrency": "1,2", "traffic.concurrency": "1,2"})

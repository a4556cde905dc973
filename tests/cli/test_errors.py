"""Wrong input: one clear line, the documented exit code, never a traceback."""

import json
import subprocess
import sys

import pytest

from perfmodel.cli import run
from perfmodel.specs import catalog

H100 = ["predict", "llama-3.1-8b", "--on", "dgx-h100"]

REFUSED = {
    "unknown model": (["predict", "lama-3.1-8b", "--on", "dgx-h100"], "did you mean llama-3.1-8b"),
    "unknown system": (["predict", "llama-3.1-8b", "--on", "dgx-h10"], "did you mean dgx-h100"),
    "unknown traffic": ([*H100, "--traffic", "chatt"], "did you mean chat"),
    "unknown plan": (["predict", "llama-3.1-8b", "--on", "dgx-h100:plan=tp3"], "expected one of tp1"),
    "unknown engine": ([*H100, "--engine", "vlm"], "vllm"),
    "unknown precision": ([*H100, "--precision", "fp9"], "bf16"),
    "unknown option": ([*H100, "--bogus"], "--bogus"),
    "unknown verb": (["predcit"], "predcit"),
    "unknown key of a system": (["predict", "llama-3.1-8b", "--on", "dgx-h100:tpp=8"], "tp="),
    "missing model": (["predict"], "MODEL"),
    "missing file": (["predict", "my-model.yaml", "--on", "dgx-h100"], "no such file"),
    "negative batch": ([*H100, "--concurrency", "-4"], "at least 1"),
    "no number": ([*H100, "--concurrency", "many"], "many"),
    "NaN": ([*H100, "--concurrency", "nan"], "nan"),
    "infinite": ([*H100, "--set", "traffic.prompt=1e999"], "not finite"),
    "thousands": ([*H100, "--prompt", "1,000", "--output", "4"], "write 1000 or 1k"),
    "prompt alone": ([*H100, "--prompt", "10"], "--output"),
    "bad unit": ([*H100, "--set", "system.memory.hbm.bandwidth=3 parsec"], "parsec"),
    "unit of another kind": ([*H100, "--set", "system.memory.hbm.bandwidth=3 GB"], "expected B/s"),
    "bad path": ([*H100, "--set", "memory.hbm.bandwith=3 TB/s"], "did you mean system.memory.hbm.bandwidth"),
    "no value": ([*H100, "--set", "memory.hbm.bandwidth"], "PATH=VALUE"),
    "negative value": ([*H100, "--set", "system.rates.bf16=-3 TFLOP/s"], "at least"),
    "zero bandwidth": ([*H100, "--set", "system.memory.hbm.bandwidth=0"], "at least 1 B/s"),
    "efficiency above 1": ([*H100, "--set", "system.efficiency.gemm_memory.bf16=1.2"], "at most 1"),
    "TP that does not divide the heads": ([*H100, "--tp", "3"], "use one of 1, 2, 4, 8"),
    "TP set by path": ([*H100, "--set", "deployment.tp=3"], "use one of 1, 2, 4, 8"),
    "TP that the machine lacks": (["predict", "llama-3.1-8b", "--on", "lpu-v1", "--tp", "5"], "8, 16, 72, 136"),
    "too many stages": ([*H100, "--pp", "40"], "32 stages"),
    "experts of a dense model": ([*H100, "--ep", "4"], "dense"),
    "engine of another machine": ([*H100, "--engine", "native"], "vllm"),
    "change for another system": (["compare", *H100[1:], "--set", "dgx-b200:system.rates.bf16=x2"], "dgx-b200"),
    "draft without acceptance": ([*H100, "--draft", "llama-3.2-1b", "--k", "5"], "--alpha, --ar or --accept"),
    "acceptance without draft": ([*H100, "--alpha", "0.8"], "--alpha needs --draft"),
    "fraction of a drafted token": ([*H100, "--draft", "ngram", "--k", "2.5", "--alpha", "0.8"], "whole number"),
    "acceptance above 1": ([*H100, "--draft", "ngram", "--k", "2", "--alpha", "80"], "between 0 and 1"),
    "unknown draft": ([*H100, "--draft", "lama-3.2-1b", "--k", "2", "--alpha", "0.8"], "did you mean llama-3.2-1b"),
    "axis of k at an AR": (
        ["sweep", *H100[1:], "--draft", "ngram", "--k", "2", "--ar", "0.6", "--axis", "speculation.k=1,2"],
        "belongs to one k",
    ),
    "other k at an AR": (
        [*H100, "--draft", "ngram", "--k", "2", "--ar", "0.6", "--set", "speculation.k=4"],
        "belongs to one k",
    ),
    "AR below its least": (
        [*H100, "--draft", "ngram", "--k", "2", "--ar", "0.6", "--set", "speculation.ar=0.2"],
        "at least 1 / (k + 1)",
    ),
    "unknown spec": (["specs", "show", "dgx-h10"], "did you mean"),
}


@pytest.mark.parametrize(("arguments", "hint"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_before_computing(arguments, hint, capsys):
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert hint in err
    assert "Traceback" not in err


def test_a_model_that_does_not_fit_still_answers(capsys):
    assert run(["predict", "llama-3.1-405b", "--on", "dgx-h100:tp=8", "--json"]) == 3
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["fits"] is False
    assert answer["tpot_s"] is None
    assert "does not fit" in answer["reason"]
    assert answer["limited_by"] is None
    assert len(err.splitlines()) == 1


def test_a_request_that_does_not_fit(capsys):
    assert run(["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--prompt", "10000000", "--output", "10"]) == 3
    assert "no request of" in capsys.readouterr().err


def test_what_is_not_published_is_named(capsys):
    assert run(["predict", "llama-3.1-8b", "--on", "wse-3", "--json"]) == 3
    out, err = capsys.readouterr()
    assert "not published: system.rates.fp16" in err
    assert json.loads(out)["tpot_s"] is None
    assert run(["size", "llama-3.1-8b", "--on", "wse-3", "--rate", "1", "--tpot-p99", "1s"]) == 3
    assert "not published: system.rates.fp16" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["predict", "llama-3.1-8b", "--on", "dgx-h100", "--lengths", "fixed"], "--lengths is about a load"),
        (["compare", "llama-3.1-8b", "--on", "dgx-h100", "--arrival-scv", "2"], "give --rate with it"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(command, words, capsys):
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err


def test_compare_answers_if_any_system_does(capsys):
    systems = ["--on", "dgx-h100:tp=1", "--on", "dgx-h100:tp=8"]
    assert run(["compare", "llama-3.1-70b", *systems]) == 0
    assert "does not fit" in capsys.readouterr().out
    assert run(["compare", "llama-3.1-70b", *systems[:2], *systems[:2]]) == 3


def test_specs_check_lists_every_problem_at_once(tmp_path, capsys):
    path = tmp_path / "chip.yaml"
    path.write_text("name: x\nprompt: {value: 3 GB, source: hf-config, kind: paper}\noutput: {value: -}\nextra: 1\n")
    assert run(["specs", "check", str(path)]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) >= 3
    assert all(str(path) in line for line in err)


@pytest.mark.parametrize("wrong", ["llama-3.1-70", "gpt-oss-12b", "qwen3-32"])
def test_near_names_are_those_of_different_models(wrong, capsys):
    assert run(["predict", wrong, "--on", "dgx-h100"]) == 2
    names = capsys.readouterr().err.strip().removesuffix("?").partition("did you mean ")[2].split(" or ")
    assert len({catalog.find("model", name) for name in names}) == len(names) > 1


def test_a_reader_that_leaves_early_is_no_fault():
    command = [
        sys.executable,
        "-c",
        "import sys; from perfmodel.cli import run; sys.exit(run(sys.argv[1:]))",
        "predict",
        "llama-3.1-8b",
        "--on",
        "dgx-h100",
    ]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    client.stdout.close()
    assert client.wait(timeout=60) == 0
    assert client.stderr.read() == b""

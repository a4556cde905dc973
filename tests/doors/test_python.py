"""Python takes what the command line takes, and refuses the rest in its words."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import perfmodel
from perfmodel.cli import run
from perfmodel.cli.app import application
from perfmodel.options import CostQuestion, Limits, LoopQuestion, PoolsQuestion, Priced, SimulateQuestion, options_of
from perfmodel.question import Options
from perfmodel.serving.objectives import STATISTICS, TIMES

COMMANDS = typer.main.get_command(application()).commands
MODEL, H100 = "llama-3.1-8b", "dgx-h100:tp=1"
#: What the command line has for the way an answer leaves, and Python for the way it is asked.
OUT = {"json", "csv", "latex", "operators", "plot", "explain_rejected", "verbose"}
IN = {"objectives", "tick"}
#: Names that are no words of Python's, or stand for several.
CALLED = {"changes": "set", "axis": "axes"}
VERBS = (
    "predict",
    "compare",
    "sweep",
    "fit",
    "tco",
    "explain",
    "solve",
    "size",
    "simulate",
    "whatif",
    "report",
    "validate",
    "collective",
)
WAY_OUT = {"whatif": {"out": "path"}, "validate": {"out": None}}


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_has_the_parameters_of_its_verb(verb: str) -> None:
    parameters = inspect.signature(getattr(perfmodel, verb)).parameters
    assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    named = {WAY_OUT.get(verb, {}).get(p.name, CALLED.get(p.name, p.name)) for p in COMMANDS[verb].params} - {None}
    assert named - OUT == set(parameters) - IN


def test_load_is_predict_at_a_rate() -> None:
    predict, load = (set(inspect.signature(one).parameters) for one in (perfmodel.predict, perfmodel.load))
    assert load - predict == {"objectives"}
    assert predict <= load
    assert inspect.signature(perfmodel.load).parameters["rate"].default is inspect.Parameter.empty


@pytest.mark.parametrize("verb", VERBS)
def test_what_python_says_of_an_option_is_what_the_command_line_says(verb: str) -> None:
    text = " ".join((inspect.getdoc(getattr(perfmodel, verb)) or "").split())
    for parameter in COMMANDS[verb].params:
        if parameter.name in options_of(Priced):
            assert parameter.help.removesuffix(".") in text


def test_the_table_of_options_is_whole() -> None:
    assert set(options_of(Priced)) == set(Options.__dataclass_fields__)
    assert set(options_of(Limits)) == {f"{time}_{what}" for time, what in itertools.product(TIMES, STATISTICS)}


def line(ask: Callable[[], Any]) -> str:
    with pytest.raises(perfmodel.UserError) as error:
        ask()
    assert "\n" not in str(error.value)
    return str(error.value)


def command(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(list(words)) == 2
    return capsys.readouterr().err.removeprefix("perfmodel: ").strip()


REFUSED = {
    "word for a number": ({"concurrency": "many"}, ["--concurrency", "many"]),
    "fraction": ({"tp": 1.5}, ["--tp", "1.5"]),
    "too small": ({"dp": 0}, ["--dp", "0"]),
    "unknown word": ({"precision": "fp9"}, ["--precision", "fp9"]),
    "not finite": ({"concurrency": "inf"}, ["--concurrency", "inf"]),
    "time without a unit": ({"rate": "2", "ttft_p99": "1"}, ["--rate", "2", "--ttft-p99", "1"]),
    "objective without a rate": ({"ttft_p99": 1.0}, ["--ttft-p99", "1 s"]),
    "rate and concurrency": ({"rate": 2, "concurrency": 8}, ["--rate", "2", "--concurrency", "8"]),
    "two of one input": ({"tp": 2, "set": {"deployment.tp": "4"}}, ["--tp", "2", "--set", "deployment.tp=4"]),
    "draft without acceptance": ({"draft": "ngram", "k": 3}, ["--draft", "ngram", "--k", "3"]),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_is_the_line_of_the_command(options, words, capsys) -> None:
    said = line(lambda: perfmodel.predict(MODEL, on="dgx-h100", **options))
    assert said == command("predict", MODEL, "--on", "dgx-h100", *words, capsys=capsys)


def test_an_option_that_is_none_names_the_near_one() -> None:
    assert "did you mean concurrency?" in line(lambda: perfmodel.predict(MODEL, on=H100, concurency=3))
    assert "did you mean ttft_p99" in line(lambda: perfmodel.size(MODEL, on=H100, rate=3, ttft_p9=1))
    assert "'on'" in line(lambda: perfmodel.predict(MODEL))
    assert "positional" in line(lambda: perfmodel.predict(MODEL, H100))


def test_text_numbers_and_paths_are_taken() -> None:
    one = perfmodel.predict(MODEL, on="dgx-h100", tp=4, prompt=1000, output=100).tpot_s
    spec = Path(__file__).parents[2] / "hardware_specs" / "dgx-h100.yaml"
    assert perfmodel.predict(MODEL, on=spec, tp="4", prompt="1k", output=np.int64(100)).tpot_s == one
    loaded = perfmodel.load(MODEL, on=H100, rate=4, ttft_p99="1 s")
    for options in ({"rate": "4", "ttft_p99": 1.0}, {"rate": "240/min", "ttft_p99": "1000ms"}):
        again = perfmodel.predict(MODEL, on=H100, **options)
        assert again.load.objectives == loaded.load.objectives
        assert again.load.rate == 4
    both = perfmodel.load(MODEL, on=H100, rate=4, objectives={"ttft_p99": 1.0, "tpot_p99": "50 ms"})
    assert both.load.objectives.named() == {"ttft_p99_s": 1.0, "tpot_p99_s": 0.05}


def test_several_answers_under_a_load() -> None:
    found = perfmodel.compare(MODEL, on=[H100, "dgx-b200:tp=1"], rate=2)
    assert len(found.to_frame()) == len(found.answers) == 2
    assert set(found.to_dict()) == {"answers", "assumed", "warnings"}
    assert "Poisson" in repr(found)
    assert "<table>" in found._repr_html_()


def test_an_axis_is_text_a_number_or_a_list_of_either() -> None:
    def swept(values: Any) -> list[float]:
        return perfmodel.sweep(MODEL, on=H100, axes={"traffic.concurrency": values}).to_frame()["tpot_s"].tolist()

    whole = swept("1,8,64")
    assert swept([1, 8, 64]) == swept(["1", "8", 64.0]) == swept(np.array([1, 8, 64])) == whole
    assert swept(8) == whole[1:2]
    for wrong in ([], {}, [[1]], [None], object(), {"a": 1}, b"1"):
        assert line(lambda wrong=wrong: swept(wrong)).startswith("--axis traffic.concurrency")
    assert "mapping" in line(lambda: perfmodel.sweep(MODEL, on=H100, axes=[("traffic.concurrency", [1])]))


def test_names_of_a_kind_in_the_plural() -> None:
    assert perfmodel.names("systems") == perfmodel.names("system") == perfmodel.names()
    assert "chat" in perfmodel.names("traffics")
    assert "systems, models, traffics" in line(lambda: perfmodel.names("chips"))


class Odd:
    """Something that is neither text nor a number."""


#: What no parameter takes.
WRONG = (True, b"8", [], {}, (), Odd(), Odd, print, {1, 2}, 1j, [[1]], {"a": 1}, np.array([1.0, 2.0]), slice(1))
#: Parameters that may be several, may be true, or are called.
SEVERAL = {"on", "models", "objectives", "set", "axes", "tick"}


def questions() -> list[tuple[str, str, dict[str, Any]]]:
    """Return function, parameter and a question that is right but for it."""
    base: dict[str, dict[str, Any]] = {
        "predict": {"model": MODEL, "on": H100},
        "compare": {"model": MODEL, "on": [H100]},
        "fit": {"model": MODEL, "on": H100},
        "load": {"model": MODEL, "on": H100, "rate": 2},
        "tco": {"model": MODEL, "on": [H100], "samples": 64},
        "explain": {"metric": "tpot", "model": MODEL, "on": H100},
        "solve": {"metric": "tpot", "model": MODEL, "on": H100, "for_": "memory.hbm.bandwidth", "target": 0.006},
        "size": {"model": MODEL, "on": [H100], "rate": 2, "ttft_p99": 5},
        "simulate": {"model": MODEL, "on": H100, "rate": 2, "requests": 20},
        "sweep": {"model": MODEL, "on": H100, "axes": {"traffic.concurrency": "1,2"}},
    }
    return [
        (name, parameter, asked)
        for name, asked in base.items()
        for parameter in inspect.signature(getattr(perfmodel, name)).parameters
        if parameter not in SEVERAL
    ]


#: What is on or off.
SWITCHES = {
    name
    for kind in (CostQuestion, LoopQuestion, PoolsQuestion, SimulateQuestion)
    for name, one in options_of(kind).items()
    if one.switch
}


@pytest.mark.parametrize("name", sorted({name for name, _, _ in questions()}))
def test_a_wrong_type_is_refused_in_one_line(name: str) -> None:
    tried = 0
    for verb, parameter, asked in questions():
        if verb == name:
            for wrong in WRONG:
                if isinstance(wrong, bool) and parameter in SWITCHES:
                    continue
                if (verb, parameter) == ("size", "rate") and isinstance(wrong, np.ndarray):
                    continue  # several rates, an answer each
                line(lambda wrong=wrong, p=parameter, a=asked: getattr(perfmodel, name)(**{**a, p: wrong}))
                tried += 1
    assert tried >= 50


@pytest.mark.parametrize(
    "parameter", ["on", "set", "objectives", "axes", "models", "path", "name", "kind", "engine", "data"]
)
def test_a_wrong_type_of_what_may_be_several_is_refused_too(parameter: str, tmp_path: Path) -> None:
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (perfmodel.predict, {"model": MODEL, "on": H100}),
        (perfmodel.compare, {"model": MODEL, "on": [H100]}),
        (perfmodel.size, {"model": MODEL, "on": [H100], "rate": 2, "objectives": {}}),
        (perfmodel.sweep, {"model": MODEL, "on": H100, "axes": {"traffic.concurrency": "1"}}),
        (perfmodel.export_xlsx, {"path": tmp_path / "a.xlsx", "models": MODEL, "on": H100}),
        (perfmodel.whatif, {"path": tmp_path / "a.html", "models": MODEL, "on": H100}),
        (perfmodel.system, {"name": "dgx-h100", "engine": "vllm"}),
        (perfmodel.model, {"name": MODEL}),
        (perfmodel.show, {"name": MODEL}),
        (perfmodel.collective, {"operation": "all-reduce", "on": "dgx-h100", "tp": 8, "message": "1MB"}),
        (perfmodel.names, {"kind": "systems"}),
        (perfmodel.report, {"name": "tco"}),
        (perfmodel.validate, {"data": "x.csv"}),
    ]
    tried = 0
    for function, asked in calls:
        if parameter not in inspect.signature(function).parameters:
            continue
        for wrong in (True, 8, 1.5, b"8", Odd(), print, 1j, [Odd()], [True], [[H100]]):
            line(lambda wrong=wrong, f=function, a=asked: f(**{**a, parameter: wrong}))
            tried += 1
    assert tried

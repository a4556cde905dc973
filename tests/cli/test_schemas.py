"""What verbs print under ``--json`` against their closed schemas, judged by the jsonschema package."""

import copy
import json
import os
import random
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import perfmodel
from perfmodel import api, shapes
from perfmodel.cli import DOES_NOT_FIT, INTERRUPTED, OK, OUR_FAULT, REFUSED, run
from perfmodel.cli.schemas import ANSWERS, ERROR, commands, schema

#: Questions that are drawn; more with the variable.
QUESTIONS = int(os.environ.get("PERFMODEL_DRAWN_QUESTIONS", "100"))
FAULTS = 30

RUNS = Path(__file__).parents[1] / "data" / "runs"
MODELS = [
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen3-32b",
    "gpt-oss-120b",
    "deepseek-v3",
    "llama-3.1-405b",
    "nobodys-model",
]
SYSTEMS = ["dgx-h100", "dgx-h100:tp=1", "dgx-b200:tp=4", "mi300x-8", "lpu-v1", "sn40l-16", "tpu-v6e", "h100-pcie:tp=2"]
#: A model that makes one pass over its input.
EMBEDS = {"model_type": "llama", "architectures": ["LlamaModel"], "hidden_size": 2048, "num_hidden_layers": 16}
EMBEDS |= {"num_attention_heads": 16, "intermediate_size": 8192, "vocab_size": 32000, "max_position_embeddings": 8192}
ROWS = """model,hardware,metric,value,unit,tp,isl,osl,concurrency_or_batch,mine
llama-3.1-8b,dgx-h100,TPOT,6,ms,1,100,100,1,x
llama-3.1-8b,dgx-h100,TTFT,20,ms,1,100,100,1,y
llama-3.1-8b,nobody,TTFT,20,ms,1,100,100,1,
"""


def refuse(word):
    raise ValueError(f"{word} is no JSON")


def read(text):
    return json.loads(text, parse_constant=refuse)


def faults(answer, verb):
    return [error.message for error in Draft202012Validator(schema(verb)).iter_errors(answer)]


def asked(capsys, words):
    code = run([*words, "--json"])
    told = capsys.readouterr()
    return code, told.out, told.err


def draw(rng, folder):
    """A question in the words of the command line: one verb, one or two systems, some of the options that it takes."""
    model, on = rng.choice([*MODELS, str(folder / "embeds")]), ["--on", rng.choice(SYSTEMS)]
    more = ["--on", rng.choice(SYSTEMS)]
    loop = rng.choice([[], ["--concurrency", rng.choice(["1", "7", "64", "4096"])], ["--steady"]])
    lengths = rng.choice([[], ["--traffic", "code"], ["--prompt", "1000", "--output", "1"], ["--traffic", "pd-8"]])
    draft = rng.choice(
        [[], [], ["--draft", "eagle", "--k", "3", "--alpha", "0.7"], ["--draft", "ngram", "--ar", "0.5"]]
    )
    changed = rng.choice([[], [], ["--set", "system.memory.hbm.bandwidth=+20%"], ["--set", "traffic.output=99"]])
    rate = ["--rate", rng.choice(["0.3", "2", "30", "9000"])]
    limits = rng.choice([[], ["--tpot-p99", "50ms"], ["--ttft-p99", "1s", "--tpot-p99", "20ms"]])
    small = ["llama-3.1-8b", "--on", rng.choice(["dgx-h100:tp=1", "dgx-b200:tp=1", "lpu-v1"])]
    forms = {
        "predict": (30, [model, *on, *loop, *lengths, *draft, *changed]),
        "predict ": (14, [model, *on, *rate, *lengths, *limits, *changed]),
        "compare": (8, [model, *on, *more, *loop, *draft]),
        "compare ": (3, [model, *on, *more, *rate]),
        "fit": (10, [model, *on, *rng.choice([[], ["--context", "4096"], ["--traffic", "chat"]]), *changed]),
        "collective": (
            5,
            [rng.choice(["all-reduce", "all-to-all"]), "--on", "dgx-h100", "--tp", "8", "--message", "1MB"],
        ),
        "tco": (3, [model, *on, *more, *loop, "--samples", "64"]),
        "explain": (5, [rng.choice(["tpot", "ttft", "power", "mfu"]), model, *on, *loop, "--depth", rng.choice("39")]),
        "solve": (4, ["tpot", *small, "--for", "memory.hbm.bandwidth", "--target", rng.choice(["4ms", "9ms", "1us"])]),
        "size": (1.5, [*small, *rate, *(limits or ["--no-objective"]), *rng.choice([[], ["--availability", "0.999"]])]),
        "size ": (1.5, ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--prefill-on", "dgx-h100:tp=2", *rate, *limits]),
        "capacity": (1, [*small, "--nodes", "1", *(limits or ["--no-objective"]), *rng.choice([[], rate])]),
        "size  ": (0.5, [*small, "--rate", "2,9", *(limits or ["--no-objective"])]),
        "simulate": (3, [*small, *rng.choice([["--rate", "2"], ["--concurrency", "4"]]), "--requests", "50"]),
        "validate": (1, ["--data", str(folder / "rows.csv")]),
        "launch": (
            2,
            [model, *on, *draft, *changed, "--format", rng.choice(["shell", "kubernetes", "llm-d", "dynamo"])],
        ),
        "runs import": (1, [str(RUNS / "plain-v1.csv")]),
        "sweep": (2, [*small, "--axis", rng.choice(["concurrency=1:9:3", "system=dgx-h100,dgx-h200"])]),
        "export": (0.5, [*small, "--csv", str(folder / "answers.csv")]),
        "selfcheck": (0.3, []),
        "specs list": (1, [rng.choice(["systems", "models", "traffics"])]),
        "specs show": (2, [rng.choice([model, "dgx-h100", "lpu-v1", "chat"])]),
        "specs show ": (2, [model, "--counts"]),
        "specs diff": (1, ["dgx-h100", rng.choice(["dgx-h200", "dgx-h100", "lpu-v1"])]),
        "specs search": (0.3, ["wafer"]),
    }
    verb = rng.choices(list(forms), [weight for weight, _ in forms.values()])[0]
    return verb.strip(), [*verb.split(), *forms[verb][1]]


def test_the_json_of_drawn_questions_is_valid(capsys, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    (tmp_path / "embeds").mkdir()
    (tmp_path / "embeds" / "config.json").write_text(json.dumps(EMBEDS))
    (tmp_path / "embeds" / "modules.json").write_text("[]")
    rng, codes, verbs = random.Random(20261201), set(), set()
    for _ in range(QUESTIONS):
        verb, words = draw(rng, tmp_path)
        code, out, err = asked(capsys, words)
        assert code in (OK, REFUSED, DOES_NOT_FIT), (words, err)
        found = read(out)
        assert faults(found, ERROR if code == REFUSED else verb) == [], words
        assert not re.search(r"[ :\[]-?\d+\.0[,\n\]]", out), words
        codes.add(code)
        verbs.add(verb)
    assert codes == {OK, REFUSED, DOES_NOT_FIT}
    assert len(verbs) >= 10


# --- planted faults ----------------------------------------------------------------------------------------------


def places(value, form, whole):
    """Each object of an answer that is closed, with its keys; what stands in a map by free names is left out."""
    if "$ref" in form:
        form = whole["$defs"][form["$ref"].rpartition("/")[2]]
    for branch in form.get("anyOf", ()):
        if Draft202012Validator({**branch, "$defs": whole["$defs"]}).is_valid(value):
            yield from places(value, branch, whole)
            return
    if isinstance(value, list):
        for item in value:
            yield from places(item, form["items"], whole)
    elif isinstance(value, dict) and "properties" in form:
        yield from ((value, key) for key in value)
        for key, inner in value.items():
            yield from places(inner, form["properties"][key], whole)


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def plant(rng, kind, found, verb):
    """Spoil one place of an answer, whichever; a question may leave an option out, so nothing goes there."""
    whole = schema(verb)
    there = [(box, key) for box, key in places(found, whole, whole) if box is not found["question"]]
    if kind == "missing key":
        box, key = rng.choice(there)
        del box[key]
    elif kind == "extra key":
        box, _ = rng.choice(there)
        box["nobody_knows"] = 1
    elif kind in ("text for a number", "NaN", "a truth for a number"):
        box, key = rng.choice([(box, key) for box, key in there if is_number(box[key])])
        box[key] = {"text for a number": str(box[key]), "NaN": float("nan")}.get(kind, True)
    else:
        box, key = rng.choice([(box, key) for box, key in there if isinstance(box[key], str | list | dict)])
        box[key] = 1.5


ASKS = {
    "predict": ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--rate", "2"],
    "compare": ["llama-3.1-8b", "--on", "dgx-h100", "--on", "lpu-v1", "--draft", "eagle", "--k", "3", "--alpha", "0.7"],
    "fit": ["llama-3.1-8b", "--on", "dgx-h100:tp=1"],
    "tco": ["llama-3.1-8b", "--on", "dgx-h100", "--on", "dgx-b200", "--samples", "64"],
    "explain": ["tpot", "llama-3.1-8b", "--on", "dgx-h100"],
    "solve": ["tpot", "llama-3.1-8b", "--on", "dgx-h100", "--for", "memory.hbm.bandwidth", "--target", "4ms"],
    "size": ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--rate", "20", "--tpot-mean", "30ms"],
    "capacity": ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--nodes", "1", "--no-objective"],
    "simulate": ["llama-3.1-8b", "--on", "dgx-h100:tp=1", "--rate", "2", "--requests", "50"],
    "collective": ["all-reduce", "--on", "dgx-h100", "--tp", "8", "--message", "1MB"],
}


@pytest.fixture(scope="module")
def answers():
    found = {}
    for verb, words in ASKS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("perfmodel.cli.common.print_json", lambda content, verb=verb: found.update({verb: content}))
            assert run([verb, *words, "--json"]) == OK
    return {verb: read(json.dumps(content)) for verb, content in found.items()}


@pytest.mark.parametrize(
    "kind", ["missing key", "extra key", "text for a number", "NaN", "a truth for a number", "wrong type"]
)
def test_planted_faults_are_refused(kind, answers):
    rng = random.Random(kind)
    for _ in range(FAULTS // 6):
        verb = rng.choice(list(answers))
        assert faults(answers[verb], verb) == []
        spoiled = copy.deepcopy(answers[verb])
        plant(rng, kind, spoiled, verb)
        if kind == "NaN":
            with pytest.raises(ValueError, match="NaN"):
                read(json.dumps(spoiled))
        else:
            assert faults(spoiled, verb), (verb, spoiled)


# --- the schemas themselves --------------------------------------------------------------------------------------


def test_every_verb_that_prints_json_has_a_schema():
    assert {name for name, command in commands() if any(option.name == "json" for option in command.params)} == set(
        ANSWERS
    )


@pytest.mark.parametrize("verb", [*ANSWERS, ERROR])
def test_a_schema_is_closed_and_needs_every_key(verb):
    whole = schema(verb)
    Draft202012Validator.check_schema(whole)
    bodies = [*whole.get("anyOf", [whole]), *whole["$defs"].values()]
    for body in bodies:
        assert body["additionalProperties"] is False
        assert set(body["required"]) == set(body["properties"])
    if verb != ERROR:
        question = bodies[0]["properties"]["question"]
        assert question["additionalProperties"] is False
        assert all(field["description"] for field in question["properties"].values())


def test_the_command_line_prints_a_schema(capsys):
    assert run(["specs", "schema", "specs", "show"]) == OK
    assert read(capsys.readouterr().out) == schema("specs show")
    assert run(["specs", "schema"]) == OK
    assert capsys.readouterr().out.split("\n")[:-1] == [*ANSWERS, ERROR]
    assert run(["specs", "schema", "specs check"]) == REFUSED
    assert "no JSON of 'specs check'" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ASKS)
def test_the_echoed_question_asks_the_same_in_python(verb, answers):
    head = {"schema_version", "perfmodel", "numbers_version", "verb", "question"}
    again = getattr(perfmodel, verb)(**answers[verb]["question"]).to_dict()
    assert read(json.dumps(again)) == {key: value for key, value in answers[verb].items() if key not in head}


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "code", "kind"),
    [
        (perfmodel.UserError("no\tsuch thing"), REFUSED, "refused"),
        (RuntimeError("ours"), OUR_FAULT, "internal"),
        (KeyboardInterrupt(), INTERRUPTED, "interrupted"),
        (PermissionError(13, "denied", "file.csv"), REFUSED, "refused"),
    ],
)
def test_an_error_is_json_too(trouble, code, kind, capsys, monkeypatch):
    def fails(*_, **__):
        raise trouble

    monkeypatch.setattr(api, "predict", fails)
    words = ["predict", "llama-3.1-8b", "--on", "dgx-h100"]
    assert asked(capsys, words)[0] == code
    told = asked(capsys, words)
    found = read(told[1])
    assert faults(found, ERROR) == []
    assert (found["schema_version"], found["error"]["kind"]) == (shapes.VERSION, kind)
    assert told[2].count("\n") == 1
    assert run(words) == code
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("words", [["predict", "--foo"], ["nothing"], ["predict", "no-model", "--on", "dgx-h100"]])
def test_what_is_refused_before_a_verb_runs_is_json_too(words, capsys):
    code, out, err = asked(capsys, words)
    assert code == REFUSED
    assert faults(read(out), ERROR) == []
    assert err.count("\n") == 1

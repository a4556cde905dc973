"""An option that is given counts: in company of every other one its value moves the answer, or it is refused.

The options are those that the command line has; each needs two values here, between which the answer must change.
Pairs stand together in a few large questions, so that what one option does to another shows without asking for each
pair: of each question every option is changed in turn.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer

from perfmodel.cli import run
from perfmodel.cli.app import application

#: Minutes of two cores: by hand, with -m nightly.
pytestmark = pytest.mark.nightly

COMMANDS = typer.main.get_command(application()).commands
MIXTRAL = ["mixtral-8x7b", "--on", "dgx-h100"]
TIMES = [
    f"--{time}-{what}" for time in ("ttft", "tpot", "itl", "latency") for what in ("p50", "p90", "p95", "p99", "mean")
]

#: A release of prices in which the machine costs more.
DEARER = str(Path(tempfile.mkdtemp()) / "dearer.yaml")
Path(DEARER).write_text(
    (Path(__file__).parents[2] / "hardware_specs" / "prices" / "2026-11.yaml")
    .read_text("utf-8")
    .replace("255 kUSD", "355 kUSD"),
    encoding="utf-8",
)
#: Limits that a load keeps, and those that it is near to.
LIMITS = {"ttft": ("2 s", "4 s"), "tpot": ("60 ms", "120 ms"), "itl": ("2 s", "4 s"), "latency": ("20 s", "40 s")}
NEAR = {"ttft": ("0.5 s", "1 s"), "tpot": ("25 ms", "50 ms"), "itl": ("0.3 s", "0.6 s"), "latency": ("6 s", "12 s")}
#: The question of each verb; the options below are added to it.
BASE = {
    "predict": ["predict", *MIXTRAL],
    "compare": ["compare", *MIXTRAL, "--on", "dgx-b200"],
    "fit": ["fit", *MIXTRAL],
    "tco": ["tco", *MIXTRAL],
    "explain": ["explain", "usd_per_mtok_output", *MIXTRAL],
    "solve": ["solve", "request_latency", *MIXTRAL],
    "sweep": ["sweep", *MIXTRAL, "--axis", "memory.hbm.bandwidth=2TB/s,3TB/s"],
    "size": ["size", *MIXTRAL],
    "simulate": ["simulate", *MIXTRAL],
    "capacity": ["capacity", *MIXTRAL],
    "launch": ["launch", *MIXTRAL],
    "bench-plan": ["bench-plan", *MIXTRAL],
}
#: Two values of each option.
VALUES: dict[str, tuple[list[str], list[str]]] = {
    option: ([option, first], [option, second])
    for option, first, second in [
        ("--plan", "tp4", "tp8"),
        ("--tp", "2", "4"),
        ("--pp", "2", "4"),
        ("--ep", "4", "8"),
        ("--attention-dp", "4", "8"),
        ("--routing", "random", "round-robin"),
        ("--dp", "2", "4"),
        ("--engine", "vllm", "sglang"),
        ("--precision", "bf16", "fp8"),
        ("--kv-precision", "bf16", "fp8"),
        ("--traffic", "rag", "agent"),
        ("--prompt", "300", "600"),
        ("--output", "100", "200"),
        ("--concurrency", "8", "32"),
        ("--draft", "llama-3.2-1b", "ngram"),
        ("--k", "3", "5"),
        ("--alpha", "0.6", "0.7"),
        ("--ar", "0.6", "0.7"),
        ("--accept", "0.8,0.7,0.6", "0.8,0.7,0.5"),
        ("--accept-logged", "0.8,0.6,0.5", "0.8,0.6,0.4"),
        ("--rate", "4", "6"),
        ("--arrival-scv", "1", "2"),
        ("--prefix-hits", "0.2", "0.4"),
        ("--lengths", "azure-chat", "azure-code"),
        *((time, *LIMITS[time.split("-")[2]]) for time in TIMES),
        ("--set", "system.efficiency.layer_time=x1", "system.efficiency.layer_time=x0.9"),
        ("--context", "2000", "3000"),
        ("--tpot", "40ms", "60ms"),
        ("--samples", "64", "128"),
        ("--depth", "2", "3"),
        ("--for", "memory.hbm.bandwidth", "rates.bf16"),
        ("--target", "4 s", "5 s"),
        ("--least", "cost", "chips"),
        ("--precisions", "bf16", "bf16,fp8"),
        ("--ks", "3", "3,5"),
        ("--max-chips", "100", "1"),
        ("--confidence", "0.5", "0.95"),
        ("--headroom", "10%", "9900%"),
        ("--availability", "0.9", "0.9999999"),
        ("--chip-mtbf", "50000h", "50h"),
        ("--profile", "0.3,1", "0.3,0.6,1"),
        ("--prefill-on", "dgx-h100:tp=8", "dgx-b200:tp=4"),
        ("--requests", "30", "40"),
        ("--seed", "1", "2"),
        ("--prices", "2026-11", DEARER),
        ("--region", "us-va", "de"),
        ("--users", "100", "200"),
        ("--active", "0.1", "0.2"),
        ("--requests-per-minute", "1", "2"),
        ("--peak", "1", "2"),
        ("--growth", "10%/year", "60%/year"),
        ("--years", "2", "3"),
        ("--max-nodes", "100", "1"),
        ("--max-power", "1 MW", "1 kW"),
        ("--max-cost", "100M USD", "1k USD"),
        ("--nodes", "1", "2"),
        ("--format", "shell", "kubernetes"),
        ("--runs", "3", "5"),
    ]
} | {option: ([], [option]) for option in ("--steady", "--allow-unmeasured", "--no-objective", "--against-api")}

#: What an option cannot be asked without; where none of them is there the first comes along.
NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "--prompt": (("--output",),),
    "--output": (("--prompt",),),
    "--ep": (("--attention-dp",),),
    "--attention-dp": (("--ep",), ("--tp",)),
    "--routing": (("--dp",),),
    "--draft": (("--alpha", "--ar", "--accept", "--accept-logged"),),
    "--k": (("--draft",),),
    "--ks": (("--draft",),),
    "--alpha": (("--k", "--ks"),),
    "--ar": (("--k", "--ks"),),
    "--accept": (("--draft",),),
    "--accept-logged": (("--draft",),),
    "--chip-mtbf": (("--availability",),),
    "--confidence": (("--ttft-p99",),),
    "--steady": (("--concurrency",),),
    "--active": (("--users",),),
    "--requests-per-minute": (("--users",),),
    "--peak": (("--users",),),
    "--years": (("--growth",),),
}
Needs = tuple[tuple[str, ...], ...]
OF_LOADS = (*TIMES, "--arrival-scv", "--prefix-hits", "--lengths")
UNDER_LOAD: dict[str, Needs] = dict.fromkeys(OF_LOADS, (("--rate",),))
OF_VERB: dict[str, dict[str, Needs]] = {
    "predict": UNDER_LOAD | {"--routing": (("--rate",), ("--dp",))},
    "compare": UNDER_LOAD | {"--routing": (("--rate",), ("--dp",))},
    "solve": {"--dp": (("--concurrency",),)},
    "size": {"--routing": (), "--ep": (), "--growth": (("--years",),), "--users": (("--requests-per-minute",),)},
    "capacity": {"--routing": (), "--ep": (), "--pp": (("--allow-unmeasured",), ("--tp",)), "--arrival-scv": ()},
}
#: What each question of a verb has, whatever else: what arrives, and for a search one plan, for all of them take long.
ALWAYS = {
    "size": (("--rate", "--users"), ("--tp", "--plan", "--pp", "--ep", "--prefill-on")),
    "simulate": (("--rate", "--concurrency"), ("--requests",)),
    "solve": (("--for",), ("--target",)),
    "tco": (("--samples",),),
    "capacity": (("--nodes",),),
}
#: Pairs that the answer refuses, and says why.
EXCLUDED = {
    frozenset(pair)
    for pair in (
        ("--plan", "--tp"),
        ("--plan", "--pp"),
        ("--plan", "--ep"),
        ("--plan", "--attention-dp"),
        ("--traffic", "--prompt"),
        ("--traffic", "--output"),
        ("--context", "--traffic"),
        ("--context", "--prompt"),
        ("--context", "--output"),
        *itertools.combinations(("--alpha", "--ar", "--accept", "--accept-logged"), 2),
        ("--rate", "--concurrency"),
        ("--rate", "--steady"),
        ("--arrival-scv", "--concurrency"),
        ("--tpot", "--concurrency"),
        ("--precision", "--precisions"),
        ("--k", "--ks"),
        ("--prefill-on", "--plan"),
        *(
            ("--prefill-on", other)
            for other in (
                *("--least", "--precisions", "--ks", "--availability", "--chip-mtbf", "--profile"),
                *("--allow-unmeasured", "--no-objective", "--confidence", "--headroom"),
                *("--max-nodes", "--max-power", "--max-cost", "--growth", "--years"),
            )
        ),
        *(("--no-objective", time) for time in TIMES),
        ("--no-objective", "--confidence"),
        *(("--rate", of_people) for of_people in ("--users", "--active", "--requests-per-minute", "--peak")),
    )
}
#: Options that a verb has for the sake of a line that says what to ask instead.
REFUSED = {
    "size": ("--dp", "--attention-dp", "--concurrency"),
    "capacity": ("--dp", "--attention-dp", "--concurrency"),
    "launch": (),
    "solve": ("--prices", "--region"),
    "explain": (),
    "simulate": ("--sessions",),
}
#: What says how an answer leaves, and files: tests of their own.
APART = ("--on", "--axis", "--images", "--json", "--csv", "--latex", "--explain-rejected", "--trace")
APART += ("--cash", "--verbose", "--save", "--operators", "--plot", "--separate")
#: What makes a question one about sessions, which most other options are refused beside.
OF_SESSIONS = ("--sessions", "--tier")
FOLDER = ("--out", "--keep", "--executor", "--scheduler", "--workers")


#: What stands for others of its kind in company, unless all pairs are asked for: a few minutes.
LIKE_OTHERS = (
    ()
    if os.environ.get("PERFMODEL_EVERY_PAIR")
    else (*(time for time in TIMES if "p99" not in time), "--ar", "--accept")
)


def options_of(verb: str, apart: Iterable[str] = ()) -> list[str]:
    found = [each.opts[0] for each in COMMANDS[verb].params if each.param_type_name == "option"]
    left = (*APART, *FOLDER, *OF_SESSIONS, *REFUSED.get(verb, ()), *apart)
    # Elsewhere users are those of sessions.
    left += () if verb == "size" else ("--users",)
    return [option for option in found if option not in left]


def whole(verb: str, options: Iterable[str]) -> frozenset[str]:
    """Return options with those that they cannot be asked without."""
    found = set(options)
    while True:
        needs = [need for option in found for need in OF_VERB.get(verb, {}).get(option, NEEDS.get(option, ()))]
        missing = [need[0] for need in (*needs, *ALWAYS.get(verb, ())) if not found & set(need)]
        if not missing:
            return frozenset(found)
        found.add(missing[0])


def excluded(options: Iterable[str]) -> bool:
    return any(frozenset(pair) in EXCLUDED for pair in itertools.combinations(options, 2))


def questions(verb: str) -> Iterator[frozenset[str]]:
    """Give questions in which each pair of options that may stand together does."""
    options = options_of(verb, LIKE_OTHERS)
    open_pairs = {frozenset(pair) for pair in itertools.combinations(options, 2)}
    for pair in sorted(open_pairs, key=sorted):
        if pair not in open_pairs:
            continue
        question = whole(verb, pair)
        if not excluded(question):
            for option in options:
                more = whole(verb, question | {option})
                question = question if excluded(more) else more
            yield question
        open_pairs -= {frozenset(two) for two in itertools.combinations(question, 2)} | {pair}


def refused_pairs(verb: str) -> list[tuple[str, str]]:
    pairs = itertools.combinations(options_of(verb), 2)
    # An engine is started for the longest context, whatever the traffic; what excludes EP elsewhere is attention-DP.
    both = {"launch": ("--context",), "size": ("--ep",), "capacity": ("--ep",)}.get(verb, ())
    return [(one, two) for one, two in pairs if frozenset((one, two)) in EXCLUDED and not {one, two} & {*both}]


#: Where another input is what matters.
SPECIAL = {
    ("size", "--no-objective"): (["--ttft-p99", "10 s"], ["--no-objective"]),
    ("size", "--ep"): (["--ep", "1"], ["--ep", "2"]),
    ("capacity", "--ep"): (["--ep", "1"], ["--ep", "8"]),
    ("capacity", "--no-objective"): (["--ttft-p99", "10 s"], ["--no-objective"]),
    # Of few short requests as many fit as an engine takes at all.
    ("launch", "--prompt"): (["--prompt", "4000"], ["--prompt", "8000"]),
    ("launch", "--output"): (["--output", "4000"], ["--output", "8000"]),
    # What is searched for must need more than one node.
    ("size", "--rate"): (["--rate", "400"], ["--rate", "600"]),
    # Attention-DP of either pool wants more ranks of experts than of tensors.
    ("launch", "--prefill-on"): (["--prefill-on", "dgx-h100:tp=2"], ["--prefill-on", "dgx-b200:tp=2"]),
    ("bench-plan", "--for"): (["--for", "1024/1024"], ["--for", "8192/1024"]),
    ("fit", "--set"): [["--set", f"system.engine.memory_utilisation=x{by}"] for by in ("1", "0.9")],
}


def words(verb: str, options: Iterable[str], changed: str = "", near: bool = False) -> tuple[str, ...]:
    values = VALUES | ({time: [[time, limit] for limit in NEAR[time.split("-")[2]]] for time in TIMES} if near else {})
    given = [SPECIAL.get((verb, option), values[option])[option == changed] for option in sorted(options)]
    form = ["--csv"] if verb == "sweep" else ["--json"]
    if verb in ("size", "capacity") and not {*options} & {*TIMES, "--no-objective", "--prefill-on"}:
        form = ["--no-objective", *form]
    return (*BASE[verb], *itertools.chain.from_iterable(given), *form)


@functools.cache
def answer(command: tuple[str, ...]) -> tuple[int, str, str]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(command))
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, *texts


def told(command: tuple[str, ...]) -> tuple[int, str]:
    """Return an answer without the words of the question."""
    code, out, err = answer(command)
    assert code in (0, 2, 3), err
    assert "Traceback" not in err
    if code == 2:
        assert err.count("\n") == 1, err
        if out:  # The line as JSON, and nothing beside it.
            assert f"perfmodel: {json.loads(out)['error']['message']}\n" == err
        return code, err
    return code, "\n".join(line for line in out.splitlines() if not line.startswith("# perfmodel "))


#: What an answer repeats of the question.
ECHO = ("question", "plan", "traffic", "objectives", "least", "speculation", "assumed", "depth", "target")


def numbers(command: tuple[str, ...]) -> str:
    """Return the numbers of an answer, without what it repeats of the question."""
    code, out = told(command)
    if code == 2 or not out.startswith("{"):
        return out

    def kept(part: object) -> object:
        if isinstance(part, dict):
            return {key: kept(value) for key, value in part.items() if key not in ECHO}
        return [kept(each) for each in part] if isinstance(part, list) else part

    return json.dumps(kept(json.loads(out)))


def says_so(command: tuple[str, ...], option: str) -> bool:
    """Whether an answer names an option as one that did not enter it, or moved nothing."""
    name = option.removeprefix("--").replace("-", "_")
    return bool(re.search(rf"({option}|[.]{name}) (did not enter|moved nothing)", told(command)[1]))


#: What may leave all numbers alone, for it is about which of them is said.
WITHOUT_NUMBERS = {
    "fit": ("--concurrency", "--k", "--alpha", "--ar", "--accept", "--accept-logged"),
    **dict.fromkeys(("predict", "compare"), TIMES),
    "size": ("--least", "--ep", "--allow-unmeasured", "--no-objective", *TIMES),
    "solve": ("--attention-dp",),
    "explain": ("--steady",),
    # How many drafts are accepted changes no flag, which is said.
    "launch": ("--alpha", "--ar", "--accept", "--accept-logged"),
    # An objective that is met with ease and none are the same numbers.
    "capacity": ("--no-objective",),
}
SINGLE = [(verb, option) for verb in BASE for option in options_of(verb, LIKE_OTHERS)]


@pytest.mark.parametrize(("verb", "option"), SINGLE)
def test_each_option_moves_the_numbers(verb: str, option: str) -> None:
    question = whole(verb, [option])
    one, other = words(verb, question, near=True), words(verb, question, option, near=True)
    assert told(one)[0] != 2, told(one)
    moved = numbers(one) != numbers(other) or option in WITHOUT_NUMBERS.get(verb, ())
    assert moved or says_so(one, option), "swallowed"


def varied(verb: str) -> set[str]:
    """Return the options that are varied: of a verb that hands a question on as it is, those of its own."""
    options = set(options_of(verb))
    shared = {parameter.opts[0] for parameter in COMMANDS["whatif"].params}
    hands_on = verb in ("explain", "solve", "tco", "size") and not os.environ.get("PERFMODEL_EVERY_PAIR")
    return options - shared | options & {"--precision", "--k", "--concurrency"} if hands_on else options


@pytest.mark.parametrize("verb", [verb for verb in BASE if verb != "compare"])  # predict of several
def test_each_option_counts_in_company_of_each_other(verb: str) -> None:
    met: dict[str, set[str]] = defaultdict(set)
    for question in questions(verb):
        one = words(verb, question)
        assert told(one)[0] != 2, (one, told(one))
        for option in sorted(question & varied(verb)):
            if question - met[option] and not says_so(one, option):
                assert told(words(verb, question, option)) != told(one), f"{option} is swallowed in {' '.join(one)}"
                met[option] |= question


@pytest.mark.parametrize("verb", BASE)
def test_what_excludes_each_other_is_refused(verb: str) -> None:
    for one, two in refused_pairs(verb):
        switch = next((option for option in (one, two) if not VALUES[option][0] or (verb, option) in SPECIAL), "")
        code, said = told(words(verb, whole(verb, [one, two]), switch))
        assert code == 2, (one, two)
        assert said


@pytest.mark.parametrize(("verb", "option"), [(verb, option) for verb in REFUSED for option in REFUSED[verb]])
def test_what_a_verb_does_not_take_says_what_does(verb: str, option: str) -> None:
    code, said = told((*words(verb, whole(verb, [])), option, "8"))
    assert code == 2
    assert re.search(r"--concurrency|dp|no price", said)


ONCE = [(verb, option) for verb in BASE for option in options_of(verb) if option != "--set" and VALUES[option][0]]


@pytest.mark.parametrize(("verb", "option"), ONCE)
def test_an_option_is_given_once(verb: str, option: str) -> None:
    code, said = told((*words(verb, whole(verb, [option])), *VALUES[option][1]))
    assert code == 2
    assert f"{option} is given twice" in said


FORMS = {
    "predict": ["--json", "--csv"],
    "compare": ["--json", "--csv"],
    "fit": ["--json", "--csv"],
    "tco": ["--json", "--csv"],
    "explain": ["--json", "--latex", "--operators"],
    "size": ["--json", "--csv", "--explain-rejected"],
}


@pytest.mark.parametrize("verb", FORMS)
def test_an_answer_leaves_in_one_form(verb: str) -> None:
    # A search has something to reject.
    base = (*BASE[verb], "--rate", "2", "--no-objective") if verb == "size" else words(verb, whole(verb, []))[:-1]
    printed = {told(base)[1], *(told((*base, form))[1] for form in FORMS[verb])}
    assert len(printed) == 1 + len(FORMS[verb])
    for pair in itertools.combinations(FORMS[verb], 2):
        code, said = told((*base, *pair))
        assert code == 2, pair
        assert all(form in said for form in pair)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--csv", "--out", "rows.csv"], "--csv or --out"),
        (["--keep", "best:tpot_s"], "--keep needs --out"),
        (["--keep", "best:tpot_s", "--out", "rows.csv"], "--keep needs --out"),
        (["--executor", "dask"], "--executor needs --out"),
        (["--workers", "2", "--out", "folder"], "--workers needs --executor dask"),
        (["--scheduler", "tcp://nowhere:1", "--workers", "2", "--executor", "dask", "--out", "folder"], "--scheduler"),
        (["--workers", "0", "--out", "folder"], "--workers"),
    ],
)
def test_what_a_folder_is_for_needs_one(given, said, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, err = told((*BASE["sweep"], *given))
    assert code == 2
    assert said in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--on", "dgx-h100", "--on", "dgx-b200"], "--on is given twice"),
        (["--on", "dgx-h100:tp=4", "--tp", "8"], "--tp is given twice"),
        (["--on", "dgx-h100:tp=4,tp=8"], "tp= is given twice"),
        (["--on", "dgx-h100", "--tp", "4", "--set", "deployment.tp=8"], "--tp is given too"),
        (["--on", "dgx-h100", "--set", "economics.pue=1.2", "--set", "pue=1.3"], "is given too"),
        (["--on", "dgx-h100", "--set", "traffic.prompt=5", "--prompt", "9", "--output", "2"], "--prompt is given too"),
    ],
)
def test_one_input_is_given_once(given, said) -> None:
    code, err = told(("predict", "llama-3.1-8b", *given))
    assert code == 2
    assert said in err


def test_changes_that_build_on_each_other_both_count() -> None:
    def bandwidth(*changes: str) -> str:
        return numbers(("predict", "llama-3.1-8b", "--on", "dgx-h100", *changes, "--json"))

    twice = bandwidth("--set", "memory.hbm.bandwidth=x2", "--set", "memory.hbm.bandwidth=x3")
    assert twice == bandwidth("--set", "memory.hbm.bandwidth=x6")
    four = numbers(("predict", "llama-3.1-8b", "--on", "dgx-h100", "--set", "tp=4", "--json"))
    assert four == numbers(("predict", "llama-3.1-8b", "--on", "dgx-h100", "--set", "deployment.tp=4", "--json"))
    assert four != numbers(("predict", "llama-3.1-8b", "--on", "dgx-h100", "--json"))


def test_plans_of_compared_systems_win_over_the_common_one() -> None:
    code, out = told(("compare", "llama-3.1-8b", "--on", "dgx-h100:tp=4", "--on", "dgx-h200", "--tp", "8", "--json"))
    assert code == 0
    assert [answer["plan"]["tp"] for answer in json.loads(out)["answers"]] == [4, 8]


def test_pools_obey_chips_and_leave_as_rows() -> None:
    pools = (*BASE["size"], "--rate", "2", "--prefill-on", "dgx-h100:tp=8")
    code, out = told((*pools, "--csv"))
    assert code == 0
    head, row = out.splitlines()
    chips = float(dict(zip(head.split(","), row.split(","), strict=False))["chips"])
    assert told((*pools, "--max-chips", f"{chips:g}", "--json"))[0] == 0
    assert told((*pools, "--max-chips", f"{chips - 1:g}", "--json"))[0] == 3


def test_what_a_search_lacks_is_said_by_what_would_do() -> None:
    command = (
        "size",
        "llama-3.1-70b",
        "--on",
        "dgx-h100",
        "--rate",
        "500",
        "--no-objective",
        "--max-chips",
        "8",
        "--json",
    )
    assert "needs more than 8 chips" in json.loads(told(command)[1])["reason"]


def test_acceptance_as_engines_log_it() -> None:
    """GSM8K with EAGLE-3 at k = 5: of 18,712 steps 12,476, 8,064, 5,126, 3,376 reach the next; tau 2.6655."""
    draft = ["predict", "llama-3.1-8b", "--on", "dgx-h100", "--draft", "eagle", "--json"]
    shares = [share / 18712 for share in (12476, 8064, 5126, 3376, 0.6289 * 3376)]
    logged = ",".join(map(repr, shares))
    found = json.loads(told((*draft, "--accept-logged", logged))[1])
    assert found["speculation"]["tokens_per_step"] == pytest.approx(2.6655, rel=1e-4)
    assert found["speculation"]["accept"] == pytest.approx([0.6667, 0.6464, 0.6357, 0.6586, 0.6289], rel=1e-3)
    given = ",".join(map(repr, found["speculation"]["accept"]))
    assert json.loads(told((*draft, "--accept", given))[1])["tpot_s"] == pytest.approx(found["tpot_s"], rel=1e-12)
    as_chances = json.loads(told((*draft, "--accept", logged))[1])
    assert any("--accept-logged" in said for said in as_chances["warnings"])
    assert not any("--accept-logged" in said for said in found["warnings"])
    assert told((*draft, "--accept-logged", "0.5,0.6"))[0] == 2


#: A question about sessions of each verb that takes one.
WITH_SESSIONS = {
    verb: [*BASE[verb], *more, "--sessions", "multi-turn-chat", "--users", "40"]
    for verb, more in {"predict": [], "compare": [], "size": [], "tco": [], "simulate": ["--requests", "400"]}.items()
}
SESSION_VALUES = VALUES | {
    "--tier": (["--tier", "host=1TB@50GB/s"], ["--tier", "host=1GB@1GB/s"]),
    "--users": ([], ["--users", "80"]),
    # What bounds nothing moves nothing.
    "--tpot": (["--tpot", "50 ms"], ["--tpot", "1 ms"]),
    "--ttft-p99": (["--ttft-p99", "60 s"], ["--ttft-p99", "0.3 s"]),
    "--routing": (["--routing", "prefix"], ["--routing", "random"]),
}


@pytest.mark.parametrize(
    ("verb", "option"),
    [(verb, option) for verb in WITH_SESSIONS for option in [*options_of(verb, LIKE_OTHERS), "--tier"]],
)
def test_beside_sessions_an_option_counts_or_is_refused(verb: str, option: str) -> None:
    one, other = ((*WITH_SESSIONS[verb], *added, "--json") for added in SESSION_VALUES[option])
    if told(other)[0] != 2:
        assert numbers(one) != numbers(other) or says_so(other, option), "swallowed"

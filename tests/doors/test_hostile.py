"""Random invocations, mutated specs and wrong Python types: an answer or one line, and never a number that cannot be.

``PERFMODEL_HOSTILE`` sets how many times as many are drawn as by default, and ``PERFMODEL_HOSTILE_SEED`` the first
seed: 25 draws 1,000 invocations, 4,000 specs and 500 types.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import os
import random
import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
import pytest
import typer.main
from ruamel.yaml import YAML

import perfmodel
from perfmodel.cli import run
from perfmodel.cli.app import VERBS, application
from perfmodel.specs import catalog
from perfmodel.specs.files import read_yaml

MANY = int(os.environ.get("PERFMODEL_HOSTILE", "1"))
SEED = int(os.environ.get("PERFMODEL_HOSTILE_SEED", "0"))
#: Seconds that one call may take.
LONGEST = 20.0

MODELS = ["llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "deepseek-v3", "qwen3-8b", "no-such-model", "", "../x"]
SYSTEMS = [
    *("dgx-h100", "dgx-h100:tp=1", "dgx-h100:tp=4,engine=sglang", "dgx-b200:precision=fp4", "lpu-v1", "sn40l-16"),
    *("lpu-v1:plan=tp16-layers", "mi300x-8", "wse-3", "groq3-lpx", "rtx-4090-8:tp=2", "dgx-h100:tp=3", "nothing", ":"),
    *("dgx-h100:tp", "dgx-h100:tp=0,tp=1", "dgx-h100#2"),
]
PATHS = [
    *("system.memory.hbm.bandwidth", "memory.hbm.capacity", "rates.bf16", "chips_per_node", "economics.utilisation"),
    *("economics.life", "traffic.prompt", "traffic.output", "traffic.rounds", "model.layers.0.count", "system.kind"),
    *("link.bandwidth_per_direction", "efficiency.layer_time", "engine.memory_utilisation", "deployment.dp", "power"),
    *(
        "system.price.system",
        "traffic.prefix_hits",
        "traffic.length_jitter",
        "model.hidden",
        "system.name",
        "x.y.z",
        "",
    ),
]
VALUES = [
    *(
        "1",
        "0",
        "-1",
        "1.5",
        "4",
        "64",
        "1e9",
        "1e250",
        "1e-300",
        "nan",
        "inf",
        "x2",
        "x0",
        "+50%",
        "-100%",
        "4k",
        "1,000",
    ),
    *(
        "3 TB/s",
        "80 GB",
        "5 us",
        "1 year",
        "300k USD",
        "0.5 s",
        "true",
        "false",
        "bf16",
        "chat",
        "=1+1",
        "\n",
        "",
        " ",
        "é",
    ),
    *("0.1:0.9:3", "1:64:4:log", "1,2,4", "a,b", "1:2", "::", "9" * 400, "--set", "../../etc/passwd", "%s%n", "0x10"),
]
#: Verbs that write files or take many seconds: drawn apart, with a longer limit.
WRITING = ("export", "whatif", "report", "calibrate", "validate")
LONGEST_WRITING = 120.0
METRICS_MAY_BE_NEGATIVE = ("headroom", "room_tokens", "elasticit", "change", "delta", "off", "bias", "error")


COMMANDS = typer.main.get_command(application(VERBS)).commands
ASKED = [name for name in VERBS if name not in (*WRITING, "specs")]
#: What makes sense for an option that nonsense alone would never get past its border.
SENSE = {
    "--prefill-on": ["dgx-h100", "dgx-h100:tp=1", "dgx-b200:tp=4", "lpu-v1", "sn40l-16"],
    "--sessions": ["coding-agent", "multi-turn-chat", "rag-documents", "deep-research", "agentperfbench"],
    "--tier": ["host=500GB", "host=1TB,55GB/s", "store=10TB,5GB/s"],
    "--users": ["1", "20", "200", "2000"],
    "--prices": ["2026-11"],
    "--region": ["us-va", "de"],
    "--lengths": ["azure-chat", "azure-code", "fixed"],
    "--routing": ["random", "round-robin", "least-loaded", "prefix"],
    "--engine": ["vllm", "sglang", "tensorrt-llm"],
    "--precision": ["bf16", "fp8", "fp4"],
    "--plan": ["tp1", "tp4", "tp8"],
    "--growth": ["60%/year", "-10%/year", "0"],
    "--years": ["1", "3"],
    "--profile": ["0.3,1", "0.3,0.6,1"],
    "--headroom": ["30%", "0"],
    "--confidence": ["0.5", "0.9"],
    "--availability": ["0.99", "0.999"],
    "--nodes": ["1", "4"],
    "--context": ["2000", "8k"],
    "--format": ["shell", "kubernetes", "llm-d", "dynamo"],
    "--least": ["cost", "chips", "power"],
    "--tpot": ["30 ms", "1 s"],
    "--message": ["1MB", "8"],
    "--runs": ["3"],
}
ARGUMENTS = {
    "metric": ["tpot", "ttft", "power_w", "zz"],
    "operation": ["all-reduce", "all-to-all", "zz"],
    "name": ["ship", "dataflow", "tco", "size", "agents", "zz", ""],
    "files": ["nowhere.yaml", ""],
}


def words(chance: random.Random, verbs: Sequence[str] = ASKED) -> list[str]:
    """Draw a command: a question that mostly makes sense, with options half of which do."""
    verb = chance.choice(list(verbs))
    likely = chance.random() < 0.7
    found = [verb]
    command = COMMANDS[verb]
    if isinstance(command, click.Group):
        found.append(chance.choice(list(command.commands)))
        command = command.commands[found[-1]]
    for parameter in command.params:
        name = parameter.opts[0]
        if parameter.param_type_name == "argument":
            found.append(chance.choice(ARGUMENTS.get(parameter.name, MODELS[:4] if likely else MODELS)))
            continue
        wanted = parameter.required or name == "--on" or chance.random() < 0.12
        if not wanted or name == "--help":
            continue
        if parameter.is_flag:
            found.append(name)
        elif name == "--on":
            for _ in range(1 if verb not in ("compare", "tco", "size") else chance.randint(1, 2)):
                found += [name, chance.choice(SYSTEMS[:7] if likely else SYSTEMS)]
        elif name in ("--set", "--axis"):
            value = chance.choice(VALUES) if name == "--set" or chance.random() < 0.4 else chance.choice(VALUES[31:35])
            found += [name, f"{chance.choice(PATHS)}={value}"]
        elif name in ("--trace", "--scheduler", "--executor", "--workers"):
            continue
        elif name in ("--out", "--save", "--csv", "--xlsx", "--dictionary", "--data"):
            found += [name, chance.choice(["made", "made.csv", ".", "no/where/at/all", "", "/dev/full"])]
        elif name == "--draft":
            found += [
                name,
                chance.choice(["ngram", "llama-3.2-1b", "eagle", "nobody"]),
                "--k",
                chance.choice(VALUES[:8]),
            ]
            found += chance.choice([["--alpha", "0.7"], ["--ar", "0.5"], ["--accept", "0.8,0.5"], []])
        elif name == "--requests":
            found += [name, chance.choice(["50", "200", "0", "-1", "x"])]
        elif name == "--samples":
            found += [name, chance.choice(["64", "128", "0", "1e9"])]
        elif name == "--rate":
            found += [name, chance.choice(["1", "5", "0", "-1", "480/min", "1e9", *VALUES[:4]])]
        elif name == "--for":
            found += [name, chance.choice(PATHS)]
        elif name == "--target":
            found += [name, chance.choice(["9 ms", "1", "0", *VALUES])]
        elif name == "--traffic":
            found += [name, chance.choice(["chat", "code", "rag", "pd-4", "zz"])]
        elif name.rpartition("-")[0] in ("--ttft", "--tpot", "--itl", "--latency") and chance.random() < 0.5:
            found += [name, chance.choice(["2 s", "60 ms"])]
        elif name in SENSE and chance.random() < 0.6:
            found += [name, chance.choice(SENSE[name])]
        else:
            found += [name, chance.choice(VALUES)]
    return found


def numbers(part: Any, path: str = ""):
    if isinstance(part, dict):
        for key, value in part.items():
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(part, list):
        for value in part:
            yield from numbers(value, path)
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield path, float(part)


def judged(arguments: list[str], capsys: pytest.CaptureFixture[str], longest: float = LONGEST) -> str:
    """Return what is wrong with how a command ended, or nothing."""
    start = time.process_time()
    try:
        code = run(arguments)
    except BaseException as error:
        return f"raised {error!r}"[:300]
    took = time.process_time() - start
    out, err = capsys.readouterr()
    if code not in (0, 2, 3):
        return f"exit {code}: {err[:300]}"
    if took > longest:
        return f"took {took:.0f} s of CPU"
    if out and code == 2 and "--json" in arguments and f"perfmodel: {json.loads(out)['error']['message']}\n" == err:
        out = ""  # The line as JSON, and nothing beside it.
    if code == 2 and arguments[0] != "specs" and (out or err.count("\n") != 1):
        return f"refused, but not in one line: {err[:300]!r} {out[:100]!r}"
    if "Traceback" in err or "Warning" in err:
        return f"stderr: {err[:300]}"
    if "--json" in arguments and code == 0:
        answer = json.loads(out, parse_constant=lambda word: math.nan)
        for path, value in numbers(answer):
            if value != value or math.isinf(value):
                return f"{path} is {value}"
            if value < 0 and not any(word in path for word in METRICS_MAY_BE_NEGATIVE):
                return f"{path} is {value}"
    elif code == 0 and (" nan" in out.casefold() or "\ninf" in out.casefold()):
        return "a NaN stands in the answer"
    return ""


def test_random_invocations(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for seed in range(SEED, SEED + 40 * MANY):
        arguments = words(random.Random(seed))
        if fault := judged(arguments, capsys):
            wrong.append(f"{seed}: {arguments}: {fault}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.nightly
def test_random_invocations_of_verbs_that_write(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for seed in range(SEED, SEED + 2 * MANY):
        arguments = words(random.Random(seed), WRITING)
        if fault := judged(arguments, capsys, LONGEST_WRITING):
            wrong.append(f"{seed}: {arguments}: {fault}")
    assert not wrong, "\n".join(wrong)


# --- specs -------------------------------------------------------------------------------------------------------

FILES = {
    "system": ["hardware_specs/dgx-h100.yaml", "hardware_specs/lpu-v1.yaml", "hardware_specs/sn40l-16.yaml"],
    "model": ["workloads/models/llama-3.1-8b.yaml", "workloads/models/deepseek-v3.yaml"],
    "traffic": ["workloads/traffic/chat.yaml"],
}
ODD = [
    None,
    "",
    0,
    -1,
    1.5,
    1e300,
    True,
    [],
    {},
    [1, 2],
    {"value": 1},
    "3 TB/s",
    "nan",
    "x2",
    "\u0000",
    "=1+1",
    "a" * 999,
]
#: A question that opens the mutated file.
ASK = {
    "system": lambda file: ["predict", "llama-3.1-8b", "--on", str(file), "--json"],
    "model": lambda file: ["predict", str(file), "--on", "dgx-h100", "--json"],
    "traffic": lambda file: ["predict", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--traffic", file.stem, "--json"],
}


def mutated(content: Any, chance: random.Random) -> Any:
    """Return a copy with one to three places taken out, put elsewhere, renamed, or made something else."""
    made = copy.deepcopy(content)
    for _ in range(chance.randint(1, 3)):
        here, steps = made, []
        while isinstance(here, dict | list) and here and (not steps or chance.random() < 0.7):
            key = chance.choice(list(here)) if isinstance(here, dict) else chance.randrange(len(here))
            steps.append((here, key))
            here = here[key]
        if not steps:
            return made
        parent, key = steps[-1]
        act = chance.choice(["odd", "drop", "rename", "move", "scale"])
        if act == "odd":
            parent[key] = copy.deepcopy(chance.choice(ODD))
        elif act == "drop":
            del parent[key]
        elif act == "rename" and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif act == "move" and isinstance(parent, dict):
            made[str(key)] = parent[key] if isinstance(made, dict) else None
        elif isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = parent[key] * chance.choice([0, -1, 1e-9, 1e9, 0.5])
    return made


def test_mutated_specs(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PERFMODEL_PATH", str(tmp_path))
    bundled = {kind: [read_yaml(catalog.roots()[-1] / file) for file in files] for kind, files in FILES.items()}
    (tmp_path / "workloads" / "traffic").mkdir(parents=True)
    wrong = []
    for seed in range(SEED, SEED + 160 * MANY):
        chance = random.Random(seed)
        kind = chance.choice(list(FILES))
        content = mutated(chance.choice(bundled[kind]), chance)
        if kind == "traffic" and isinstance(content, dict):
            content["name"] = "mutant" if isinstance(content.get("name"), str) else content.get("name")
        file = (tmp_path / "workloads" / "traffic" if kind == "traffic" else tmp_path) / "mutant.yaml"
        with file.open("w") as stream:
            YAML(typ="safe").dump(content, stream)
        if fault := judged(["specs", "check", str(file)], capsys) or judged(ASK[kind](file), capsys):
            wrong.append(f"{seed}: {kind}: {fault}")
        file.unlink()
    assert not wrong, "\n".join(wrong)


# --- Python ------------------------------------------------------------------------------------------------------

TYPES: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        3,
        1.5,
        math.nan,
        math.inf,
        10**400,
        "8",
        "many",
        "",
        b"8",
        [],
        [1, "a"],
        {},
        {"a": 1},
        object(),
    ),
    *((), {1}, 1 + 2j, np.float64(4), np.array([1.0, 2.0]), np.int64(2), range(3), len, type, ...),
]
CALLS = {
    "predict": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1"},
    "compare": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1", "lpu-v1"]},
    "sweep": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1", "axes": {"traffic.concurrency": [1, 2]}},
    "fit": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1"},
    "solve": {
        "metric": "tpot",
        "model": "llama-3.1-8b",
        "on": "dgx-h100:tp=1",
        "for_": "memory.hbm.bandwidth",
        "target": "9 ms",
    },
    "explain": {"metric": "tpot", "model": "llama-3.1-8b", "on": "dgx-h100:tp=1"},
    "size": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1"], "rate": 5.0, "ttft_p99": 5.0},
    "capacity": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1"], "nodes": 1, "ttft_p99": 5.0},
    "simulate": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1", "rate": 5.0, "requests": 50},
    "tco": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1", "dgx-h200:tp=1"], "samples": 64},
    "load": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1", "rate": 5.0},
    "launch": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1", "context": 8192},
    "bench_plan": {"model": "llama-3.1-8b", "on": "dgx-h100:tp=1", "runs": 1},
    "collective": {"operation": "all-reduce", "on": "dgx-h100", "tp": 8, "message": 1e6},
    "check_plan": {"path": "nowhere.yaml"},
    "read_runs": {},
    "read_traffic": {"path": "nowhere.jsonl"},
    "calibrate": {"data": "nowhere.csv"},
    "selfcheck": {},
}


def test_wrong_python_types():
    wrong = []
    for seed in range(SEED, SEED + 20 * MANY):
        chance = random.Random(seed)
        name = chance.choice(list(CALLS))
        call = getattr(perfmodel, name)
        known = inspect.signature(call).parameters
        arguments = {key: value for key, value in CALLS[name].items() if key in known}
        more = [*known, "tp", "concurrency", "prompt", "precision", "engine", "set", "draft", "concurency"]
        key = chance.choice(
            [*arguments, *(word for word in more if word not in ("options", "kwargs", "out", "executor"))]
        )
        value = chance.choice(TYPES)
        try:
            call(**{**arguments, key: value})
        except perfmodel.UserError as error:
            if "\n" in str(error) or not str(error):
                wrong.append(f"{seed}: {name}({key}={value!r}): {error}")
        except Exception as error:
            wrong.append(f"{seed}: {name}({key}={value!r}): {error!r}"[:300])
    assert not wrong, "\n".join(wrong)

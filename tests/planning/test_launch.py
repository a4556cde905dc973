"""Commands of a plan: flags of the release's table, arguments of servers given back, manifests that validate."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence.runs.logged import release_of
from perfmodel.planning.launch.flags import flags_of, table

LOGS = sorted((Path(__file__).parents[1] / "data" / "launch").iterdir())
YAMLS = YAML(typ="safe")


def parsed(words: list[str]) -> dict[str, object]:
    """Read a command as argparse would: names with underscores, switches, JSON, and lists of what has several words."""
    found: dict[str, object] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = True
            if name.startswith("no_"):
                found[name[3:]] = False
        elif name and found[name] is True:
            found[name] = word
        elif name:
            found[name] = [found[name], word]
    return found


@pytest.mark.parametrize("path", [path for path in LOGS if "vllm" in path.name], ids=lambda path: path.name)
def test_a_log_of_vllm_gives_its_arguments_back(path):
    """The dict that the server printed, read here by Python itself."""
    text = path.read_text()
    printed = ast.literal_eval(re.search(r"non-default args: (\{.*\})", text)[1])
    (one,) = perfmodel.launch(path).commands
    assert one.words[:3] == ("vllm", "serve", printed.pop("model"))
    found = parsed(list(one.words[3:]))
    printed.pop("model_tag", None)
    for name, value in printed.items():
        said = found.pop(name)
        assert (
            said == value
            if isinstance(value, bool)
            else said in (str(value), value[0] if isinstance(value, list) else 0)
        )
    # What is left are degrees, which are 1 where a server does not print them.
    assert {name: value for name, value in found.items() if not name.startswith("no_")} == {
        name: "1" for name in ("tensor_parallel_size", "pipeline_parallel_size") if name in found
    }
    assert one.unsaid == ()


def test_a_log_of_sglang_gives_its_arguments_back():
    """SGLang divides the chunk by the ranks of attention DP before it prints it, as the log says itself."""
    (path,) = (path for path in LOGS if "sglang" in path.name)
    call = ast.parse(re.search(r"server_args=(ServerArgs\(.*\))", path.read_text())[1], mode="eval").body
    printed = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    answer = perfmodel.launch(path)
    (one,) = answer.commands
    found = parsed(list(one.words[3:]))
    assert int(found.pop("chunked_prefill_size")) // int(found["dp_size"]) == printed["chunked_prefill_size"]
    for name, value in found.items():
        assert printed[name] is True if value is True else str(printed[name]) == value
    carried = {"model_path", "tp_size", "dp_size", "enable_dp_attention", "max_running_requests", "mem_fraction_static"}
    assert carried | {"kv_cache_dtype", "disable_radix_cache", "disable_cuda_graph"} <= set(found)
    assert any("no part of a plan" in note for note in answer.notes)


def test_releases_are_read_off_the_logs():
    said = {path.name: release_of("vllm", path.read_text()) for path in LOGS if "vllm" in path.name}
    assert said == {name: name.split("-")[1] for name in said}


ASKED = [
    (engine, release, layout, more)
    for engine, releases in (("vllm", ("0.18", "0.33")), ("sglang", ("0.5.6", "0.5.23")), ("trtllm", ("1.2",)))
    for release in releases
    for layout in ({"tp": 8}, {"tp": 1, "attention_dp": 8, "ep": 8}, {"tp": 4, "pp": 2})
    for more in ({}, {"draft": "mtp", "k": 3, "alpha": 0.8}, {"draft": "ngram", "k": 4, "alpha": 0.5})
]


@pytest.mark.parametrize(("engine", "release", "layout", "more"), ASKED)
def test_every_flag_is_in_the_table_of_its_release(engine, release, layout, more):
    answer = perfmodel.launch(
        "deepseek-v3", on="dgx-b200", engine=f"{engine}-{release}", context=8192, **layout, **more
    )
    known = {flag for one in table() if one.engine == engine for flag in one.flag.split()}
    mine = {flag for one in flags_of(engine, release)[0].values() for flag in one.flag.split()}
    for one in answer.commands:
        used = {word for word in one.words if word.startswith("--")}
        assert used <= mine <= known
        keys = {flag for flag in mine if not flag.startswith("-")}
        assert all(any(key.split(".")[0] == name for key in keys) for name in one.config)


def test_degrees_mean_what_each_engine_means_by_them():
    """Eight ranks that hold attention whole: vLLM's are engines, SGLang's lie inside TP, TensorRT-LLM has a switch."""
    asked = {"tp": 1, "attention_dp": 8, "ep": 8, "concurrency": 512, "context": 4096, "on": "dgx-b200"}
    words = {
        name: parsed(list(perfmodel.launch("deepseek-v3", engine=name, **asked).commands[0].words))
        for name in ("vllm", "sglang-0.5.6", "sglang-0.5.23", "trtllm")
    }
    vllm, old, new, trt = words.values()
    assert (vllm["tensor_parallel_size"], vllm["data_parallel_size"], vllm["enable_expert_parallel"]) == (
        "1",
        "8",
        True,
    )
    assert (old["tp_size"], old["dp_size"], old["enable_dp_attention"]) == ("8", "8", True)
    assert (new["tp_size"], new["attn_dp_size"]) == ("8", "8")
    assert trt["tp_size"] == "8"
    # 512 clients are 64 a rank; SGLang counts all ranks together.
    assert (vllm["max_num_seqs"], old["max_running_requests"], trt["max_batch_size"]) == ("64", "512", "64")


def test_drafts_are_counted_as_each_engine_counts_them():
    """k tokens: vLLM's k, SGLang's k steps and k + 1 tokens, TensorRT-LLM's max_draft_len k (facts of each source)."""
    asked = {"on": "dgx-b200:tp=8", "draft": "mtp", "k": 3, "alpha": 0.8}
    vllm, sglang, trt = (
        perfmodel.launch("deepseek-v3", engine=name, **asked).commands[0] for name in ("vllm", "sglang", "trtllm")
    )
    assert json.loads(parsed(list(vllm.words))["speculative_config"]) == {"method": "mtp", "num_speculative_tokens": 3}
    found = parsed(list(sglang.words))
    assert (found["speculative_algorithm"], found["speculative_num_steps"]) == ("NEXTN", "3")
    assert found["speculative_num_draft_tokens"] == "4"
    assert YAMLS.load(next(iter(trt.files.values())))["speculative_config"] == {
        "decoding_type": "MTP",
        "max_draft_len": 3,
    }


def test_what_an_engine_cannot_be_told_is_said():
    assert "EP 4" in perfmodel.launch("deepseek-v3", on="dgx-b200:tp=8,ep=4").unsaid[0]
    assert (
        "groups of 2"
        in perfmodel.launch("deepseek-v3", on="dgx-b200", engine="trtllm", tp=2, attention_dp=4, ep=8).unsaid[0]
    )
    assert (
        "draft model" in perfmodel.launch("llama-3.1-8b", on="dgx-h100:tp=1", draft="eagle", k=2, alpha=0.7).unsaid[0]
    )
    assert "int8" in perfmodel.launch("llama-3.1-8b", on="dgx-h100:tp=1", precision="int8").unsaid[0]
    old = perfmodel.launch("llama-3.1-8b", on="dgx-h100:tp=1", engine="vllm-0.8")
    assert any("older than 0.12" in note for note in old.notes)


PLAN = """perfmodel_plan: 1
question: {model: llama-3.3-70b, on: [dgx-h100], set: [], options: {rate: '40'}}
answer:
  model: llama-3.3-70b
  system: dgx-h100
  plan: {name: given, tp: 4, pp: 1, ep: 1, dp: 3, attention_dp: 1, engine: vllm, precision: fp8, kv_precision: fp8}
  engine: vllm-0.33
  replicas: 3
  batch_cap: 96.0
  token_budget: 4096.0
  longest_request: 9000.0
  prefix_hits: 0.4
  speculation: null
"""


def test_a_saved_plan_is_started_with_its_own_numbers(tmp_path, capsys):
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert run(["launch", str(tmp_path / "plan.yaml")]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    found = parsed(shlex.split(line))
    assert found | {"tensor_parallel_size": "4", "max_num_seqs": "96", "max_num_batched_tokens": "4096"} == found
    assert found | {"max_model_len": "9000", "kv_cache_dtype": "fp8", "quantization": "fp8"} == found
    assert "no_enable_prefix_caching" not in found
    with pytest.raises(UserError, match="a file has its own"):
        perfmodel.launch(tmp_path / "plan.yaml", tp=2)
    (tmp_path / "plan.yaml").write_text(PLAN.partition("answer:")[0])
    with pytest.raises(UserError, match=r"no field 'answer\.system'"):
        perfmodel.launch(tmp_path / "plan.yaml")


FORMS = [
    ("vllm", {"on": "dgx-b200:tp=8"}),
    ("sglang", {"on": "dgx-b200", "tp": 1, "attention_dp": 8, "ep": 8}),
    ("trtllm", {"on": "dgx-b200:tp=8", "prefill_on": "dgx-b200:tp=8"}),
    ("vllm", {"on": "dgx-b200:tp=8", "prefill_on": "dgx-b200:tp=8", "draft": "mtp", "k": 2, "alpha": 0.7}),
]


@pytest.mark.parametrize(("engine", "asked"), FORMS)
def test_manifests_pass_the_schemas_of_kubernetes(engine, asked):
    validator = pytest.importorskip("kubernetes_validate")
    text = perfmodel.launch("deepseek-v3", engine=engine, format="kubernetes", **asked).text()
    kinds = []
    for one in YAMLS.load_all(text):
        validator.validate(one, validator.latest_version(), strict=True)
        kinds.append(one["kind"])
    assert {"Deployment", "Service"} <= set(kinds)
    assert ("ConfigMap" in kinds) == (engine == "trtllm")


@pytest.mark.parametrize(("engine", "asked"), FORMS)
def test_values_of_llm_d_and_dynamo_have_the_keys_of_their_charts(engine, asked):
    values = YAMLS.load(perfmodel.launch("deepseek-v3", engine=engine, format="llm-d", **asked).text())
    assert values["modelArtifacts"]["uri"] == "hf://deepseek-ai/DeepSeek-V3"
    assert (values["prefill"]["replicas"] > 0) == ("prefill_on" in asked)
    decode = values["decode"]
    assert decode["parallelism"]["tensor"] * decode["parallelism"]["dataLocal"] == 8
    assert decode["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 8
    graph = YAMLS.load(perfmodel.launch("deepseek-v3", engine=engine, format="dynamo", **asked).text())
    workers = [one for name, one in graph["spec"]["services"].items() if name != "Frontend"]
    assert [one["resources"]["limits"]["gpu"] for one in workers] == ["8"] * len(workers)
    line = shlex.split(workers[0]["extraPodSpec"]["mainContainer"]["args"][0])
    assert line[:2] == ["python3", "-m"]
    if engine == "trtllm":
        assert json.loads(parsed(line)["override_engine_args"])["enable_chunked_prefill"] is True


@pytest.mark.parametrize(
    ("model", "asked", "said"),
    [
        ("llama-3.1-8b", {}, "give --on"),
        ("llama-3.1-8b", {"on": "dgx-h100", "format": "helm"}, "--format helm"),
        ("llama-3.1-8b", {"on": "lpu-v1"}, "no flags of native"),
        ("llama-3.1-405b", {"on": "dgx-h100:tp=1", "precision": "bf16"}, "does not fit"),
    ],
)
def test_what_cannot_be_started_is_refused(model, asked, said):
    with pytest.raises(UserError, match=said):
        perfmodel.launch(model, **asked)

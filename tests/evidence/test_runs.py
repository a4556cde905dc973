"""Files of benchmark tools and servers: each format in two releases; what is missing is asked for.

The files of tests/data/runs have the fields that the tools' sources name, with numbers of ours.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence.runs import document, recognise
from perfmodel.evidence.runs.formats import formats

DATA = Path(__file__).parents[1] / "data" / "runs"
#: What none of the files may lack; a file's own word counts where it has one.
SETUP = {
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "hardware": "H100 SXM",
    "engine": "vllm 0.18.0",
    "dtype_weights": "fp8",
    "dtype_kv": "auto",
}
LAID_OUT = {"n_chips": "4", "tp": "4"}
LOAD = {
    "isl": "1024",
    "osl": "256",
    "requests": "320",
    "length_spread": "0",
    "warmup": "yes",
    "prefix_hits": "0",
    "failures": "0",
    "concurrency_or_batch": "32",
}


#: Of files of other sizes.
OWN = {"power-nvidia-smi.csv": {"tp": "2"}}


def read(*names: str, **fields: str) -> list:
    return perfmodel.read_runs(*(DATA / name for name in names), fields=fields).runs


def complete(*names: str) -> list:
    """Read files, giving what they lack as they ask for it."""
    answers = {**SETUP, **LAID_OUT, **LOAD, **OWN.get(names[0], {}), "ep": "1"}
    given: dict[str, str] = {}
    # EP is asked for of a model with experts, once the model is known.
    for _ in range(2):
        wanted = asked(*names, **given)
        given |= {name: answers[name] for name in wanted}
    return read(*names, **given)


def asked(*names: str, **given: str) -> list[str]:
    try:
        read(*names, **given)
    except UserError as refused:
        return re.findall(r"--field (\w+)=", str(refused))
    return []


GROUPS = sorted(
    {(path.name,) for path in DATA.iterdir() if "metrics" not in path.name}
    | {(f"vllm-metrics-{release}-before.txt", f"vllm-metrics-{release}-after.txt") for release in ("0.12", "0.33")}
)


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_every_file_is_one_format_and_is_read_once_what_it_lacks_is_given(names):
    for name in names:
        found = document.read(DATA / name)
        assert [one.label for one in formats() if one.recognises(found)] == [recognise(found).label]
    for one in complete(*names):
        assert one.values
        assert all(stated.origin for stated in one.fields.values())
        assert all(value.origin and value.unit for value in one.values)


def test_every_format_has_two_files():
    labels = [recognise(document.read(path)).label for path in DATA.iterdir()]
    assert {one.label for one in formats() if labels.count(one.label) < 2} == set()


def values(one):
    return {value.name: (value.value, value.unit) for value in one.values}


def fields(one):
    return {name: stated.value for name, stated in one.fields.items()}


def test_units_of_each_format_are_those_of_its_source():
    """Seconds, nanoseconds and milliseconds by the facts of each tool; each number below stands in a file."""
    expected = {
        "vllm-bench-0.12.json": {
            "ttft": (310.4, "ms"),
            "tpot_p99": (24.4, "ms"),
            "output_throughput": (788.8, "tok/s"),
        },
        "vllm-bench-0.33.json": {"latency": (4870.0, "ms"), "ttft_p90": (500.0, "ms")},
        "sglang-bench-0.5.23.jsonl": {"ttft": (142.3, "ms"), "latency": (5610.0, "ms")},
        "aiperf-0.13.json": {
            "ttft": (120.5, "ms"),
            "tpot": (14.8, "ms"),
            "itl": (14.9, "ms"),
            "gpu_power": (512.0, "W"),
        },
        "genai-perf-0.0.16.csv": {
            "latency": (3890.0, "ms"),
            "ttft_p99": (401.0, "ms"),
            "request_throughput": (4.1, "req/s"),
        },
        "aiperf-0.13.csv": {"ttft_p99": (401.0, "ms"), "tpot": (14.8, "ms")},
        "guidellm-0.3.1.json": {"tpot": (13.0, "ms"), "latency": (3420.0, "ms"), "ttft_p99": (98.1 * 1.9, "ms")},
        "inference-perf-old.json": {"ttft": (41.0, "ms"), "tpot": (8.1, "ms"), "itl": (6.1, "ms")},
        "llm-d-0.2.yaml": {"ttft": (137.0, "ms"), "tpot": (17.9, "ms"), "latency": (4800.0, "ms")},
        "llm-d-0.2.1.json": {"ttft": (137.0, "ms"), "tpot": (17.9, "ms")},
        "trtllm-bench-1.2.json": {
            "ttft_p90": (300.0, "ms"),
            "tpot": (6.6, "ms"),
            "output_throughput": (8755.2, "tok/s"),
        },
        "inferencex-old.json": {"ttft": (310.0, "ms"), "output_throughput": (724.8 * 8, "tok/s")},
        "inferencex-2026.json": {"output_throughput": (724.8 * 8, "tok/s"), "gpu_power": (712.0, "W")},
        "mlperf-summary-4.txt": {"ttft": (512.345678, "ms"), "tpot_p99": (98.223117, "ms")},
        "mlperf-detail-6.txt": {"output_throughput_max": (91203.5, "tok/s")},
        "vllm-log-0.33.txt": {"kv_pool_tokens": (931008.0, "tokens"), "weights_memory": (84.21, "GiB")},
        "vllm-log-0.12.txt": {"kv_pool_concurrency": (116.51, "requests"), "graph_memory": (0.92, "GiB")},
        "sglang-log-0.5.6.txt": {"kv_pool_memory": (31.44, "GiB"), "weights_memory": (88.21, "GiB")},
        "sglang-log-0.5.23.txt": {"kv_pool_memory": (34.36, "GiB"), "kv_pool_tokens": (900512.0, "tokens")},
        "trtllm-log-1.2.txt": {"kv_pool_tokens": (948992.0, "tokens"), "activation_peak": (38.11, "GiB")},
        "power-nvidia-smi.csv": {"gpu_power": (606.5, "W")},
        "nccl-tests-2.19.json": {"all_reduce_time": (812.4, "us")},
        "nccl-tests-2.13.txt": {"all_reduce_time": (38.1, "us")},
    }
    for name, numbers in expected.items():
        found = values(complete(name)[0])
        assert {key: found[key] for key in numbers} == {
            key: (pytest.approx(value), unit) for key, (value, unit) in numbers.items()
        }, name


def test_what_a_set_up_is_worked_out_from():
    sglang = fields(complete("sglang-bench-0.5.6.jsonl")[0])
    # Lengths even in 0.8 to 1 of the longest: half the width is a ninth of the mean.
    assert float(sglang["length_spread"]) == pytest.approx(1 / 9)
    assert (sglang["isl"], sglang["concurrency_or_batch"], sglang["in_flight"]) == ("921.6", "32", "61.7")
    nominal = fields(read("inferencex-old.json", length_spread=str(1 / 9), dtype_kv="fp8", requests="640", warmup="yes",
                          prefix_hits="0", failures="0")[0])  # fmt: skip
    assert float(nominal["isl"]) == pytest.approx(1024 * 0.9)
    pools = fields(complete("inferencex-2026.json")[0])
    assert (pools["decode_tp"], pools["decode_attention_dp"], pools["n_chips"]) == ("1", "8", "16")
    shared = fields(complete("sglang-log-0.5.6.txt")[0])
    assert (shared["tp"], shared["attention_dp"], shared["dp"], shared["n_chips"]) == ("1", "8", "1", "8")
    spread = fields(complete("vllm-log-0.33.txt")[0])
    assert (spread["tp"], spread["attention_dp"], spread["ep"], spread["n_chips"]) == ("1", "8", "8", "8")
    assert fields(complete("nccl-tests-2.13.txt")[0])["tp"] == "8"
    assert fields(complete("nccl-tests-2.19.json")[0])["tp"] == "8"
    assert [one.fields["concurrency_or_batch"].value for one in complete("vllm-sweep-0.16.json")] == ["16", "16", "64"]
    assert fields(complete("aiperf-0.13.json")[0])["warmup"] == "10"


def test_two_scrapes_are_a_window_and_one_is_none():
    """The window has what lies between: 400 requests, of whose sums the first 100 are taken off."""
    for release in ("0.12", "0.33"):
        names = (f"vllm-metrics-{release}-before.txt", f"vllm-metrics-{release}-after.txt")
        found = values(complete(*names)[0])
        assert found["ttft"][0] == pytest.approx((500 * 0.1 * 1.2 - 100 * 0.1 * 2.0) / 400 * 1e3)
        assert fields(complete(*reversed(names))[0])["requests"] == "400"
        with pytest.raises(UserError, match="give two scrapes"):
            read(names[1])
    with pytest.raises(UserError, match="give two scrapes"):
        read(*(f"vllm-metrics-{release}-after.txt" for release in ("0.12", "0.33")), "vllm-metrics-0.33-before.txt")


def test_a_log_gives_its_layout_to_the_runs_beside_it_and_may_not_contradict_them(tmp_path):
    joined = read("vllm-bench-0.12.json", "vllm-log-0.12.txt", hardware="H100 SXM", dtype_weights="fp8",
                  length_spread="0", warmup="yes", prefix_hits="0")  # fmt: skip
    assert {one.kind for one in joined} == {"serving", "server"}
    assert fields(joined[0])["tp"] == "4"
    assert fields(joined[0])["engine"] == "vllm 0.12.0"
    assert "vllm-log-0.12.txt" in joined[0].fields["tp"].origin
    with pytest.raises(UserError, match="which is it"):
        read("trtllm-bench-1.2.json", "vllm-log-0.33.txt", hardware="H100 SXM")


def test_what_is_missing_is_asked_for_in_one_line(capsys):
    assert run(["runs", "import", str(DATA / "vllm-bench-0.12.json")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    wanted = {
        "hardware",
        "n_chips",
        "tp",
        "engine",
        "dtype_weights",
        "dtype_kv",
        "length_spread",
        "warmup",
        "prefix_hits",
    }
    assert set(re.findall(r"--field (\w+)=", said)) == wanted


#: The first field that each format must name where its file stops short of it, and what is taken away.
CUT = [
    (path.name, mark)
    for path, mark in (
        (DATA / "vllm-bench-0.12.json", "total_output_tokens"),
        (DATA / "vllm-bench-0.33.json", "total_output_tokens"),
        (DATA / "vllm-sweep-0.16.json", "total_input_tokens"),
        (DATA / "sglang-bench-0.5.6.jsonl", "total_output_tokens"),
        (DATA / "sglang-bench-0.5.23.jsonl", "output_throughput"),
        (DATA / "aiperf-0.6.json", "input_sequence_length"),
        (DATA / "aiperf-0.13.json", "input_sequence_length"),
        (DATA / "genai-perf-0.0.16.json", "input_sequence_length"),
        (DATA / "guidellm-0.3.1.json", "time_to_first_token_ms"),
        (DATA / "inference-perf-old.json", "prompt_len"),
        (DATA / "inference-perf-0.6.json", "prompt_len"),
        (DATA / "llm-d-0.2.1.json", "latency"),
        (DATA / "trtllm-bench-0.17.json", "system_output_throughput_tok_s"),
        (DATA / "trtllm-bench-1.2.json", "system_output_throughput_tok_s"),
        (DATA / "inferencex-old.json", "output_tput_per_gpu"),
        (DATA / "inferencex-2026.json", "output_tput_per_gpu"),
    )
]


@pytest.mark.parametrize(("name", "field"), CUT)
def test_a_file_that_is_cut_off_is_refused_with_the_missing_field(name, field, tmp_path):
    """Cut before the field, and whole but without it."""
    text = (DATA / name).read_text()
    (tmp_path / "cut.json").write_text(text[: text.index(f'"{field}"')])
    with pytest.raises(UserError, match=rf"no field '{field}'"):
        perfmodel.read_runs(tmp_path / "cut.json")


@pytest.mark.parametrize(
    ("name", "keep", "said"),
    [
        ("vllm-bench-0.12.json", None, "mean_ttft_ms"),
        ("guidellm-0.8.1.yaml", "output_token_count:", "time_to_first_token_ms"),
        ("llm-d-0.2.yaml", "latency:", "time_to_first_token"),
        ("mlperf-summary-4.txt", "Result is", "Result is"),
        ("mlperf-detail-6.txt", ':::MLLOG {"key": "result_validity"', "Result is"),
        ("plain-v1.csv", ",ttft,110", "metric"),
        ("vllm-log-0.12.txt", "INFO 11-30 10:16:31 [kv_cache", "GPU KV cache size"),
        ("vllm-log-0.33.txt", "(EngineCore_DP0 pid=7) INFO GPU KV", "GPU KV cache size"),
        ("sglang-log-0.5.6.txt", "[2026-11-30 10:16:26", "max_total_num_tokens"),
        ("sglang-log-0.5.23.txt", "[2026-11-30 10:16:26", "max_total_num_tokens"),
        ("trtllm-log-1.2.txt", "[TensorRT-LLM][INFO] [Mem", "Allocated X GiB"),
        ("nccl-tests-2.13.txt", "  289.12", "busbw"),
        ("power-nvidia-smi.csv", " 600.00 W", "power.draw"),
        ("genai-perf-0.0.16.csv", "Output Sequence Length", "request_throughput"),
        ("aiperf-0.13.csv", "Output Sequence", "request_throughput"),
        ("power-dcgm.csv", ",610.5", "DCGM_FI_DEV_POWER_USAGE"),
    ],
)  # fmt: skip
def test_text_that_is_cut_off_is_refused_with_what_is_missing(name, keep, said, tmp_path):
    text = (DATA / name).read_text()
    if keep is None:
        content = {key: value for key, value in json.loads(text).items() if "ttft" not in key and "tpot" not in key}
        text = json.dumps(content)
    else:
        text = text[: text.index(keep)]
    (tmp_path / "cut").write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        perfmodel.read_runs(tmp_path / "cut", fields={**SETUP, **LAID_OUT, **LOAD})


def test_a_scrape_that_is_cut_off_names_what_it_lacks(tmp_path):
    whole = (DATA / "vllm-metrics-0.33-after.txt").read_text()
    (tmp_path / "cut").write_text(whole[: whole.index("# TYPE vllm:request_generation_tokens")])
    with pytest.raises(UserError, match="no field 'vllm:request_generation_tokens_sum'"):
        perfmodel.read_runs(DATA / "vllm-metrics-0.33-before.txt", tmp_path / "cut")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("aiperf-0.13.json", ('"is_complete": true', '"is_complete": false'), "did not end"),
        ("mlperf-summary-4.txt", ("is : VALID", "is : INVALID"), "INVALID"),
        ("inference-perf-old.json", ('"requested_rate": 1.0', '"requested_rate": null'), "stage files"),
        ("llm-d-0.2.yaml", ("units: s\n", "units: furlongs\n"), "furlongs"),
        ("nccl-tests-2.13.txt", ("48.16", "24.08"), "no all-reduce"),
        ("power-nvidia-smi.csv", ("600.00 W", "80.00 W"), "under load"),
        ("vllm-bench-0.12.json", ('"completed": 318', '"completed": 0'), "no request came back"),
    ],
)
def test_what_is_no_measurement_of_a_run_is_refused(name, change, said, tmp_path):
    (tmp_path / "file").write_text((DATA / name).read_text().replace(*change))
    with pytest.raises(UserError, match=said):
        perfmodel.read_runs(tmp_path / "file", fields={**SETUP, **LAID_OUT, **LOAD})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tp": "0"}, "whole number from 1"),
        ({"colour": "red"}, "no field of that name"),
        ({"hardware": "no such chip"}, "no such chip"),
        ({"prefix_hits": "90"}, "share from 0 to 1"),
        ({"engine": "llama"}, "vllm 0.18.0"),
        ({**SETUP, **LAID_OUT, **LOAD, "n_chips": "16"}, "n_chips 16 but"),
    ],
)
def test_a_field_that_is_none_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        read("vllm-bench-0.12.json", **fields)


def test_the_file_is_one_that_validate_reads_and_import_reads_again(tmp_path):
    names = [DATA / name for name in ("vllm-bench-0.12.json", "vllm-log-0.12.txt")]
    given = {"hardware": "H100 SXM", "dtype_weights": "fp8", "length_spread": "0", "warmup": "yes", "prefix_hits": "0"}
    found = perfmodel.read_runs(*names, fields=given)
    found.save(tmp_path / "mine.csv")
    again = perfmodel.read_runs(tmp_path / "mine.csv")
    assert next((values(one), fields(one)) for one in again.runs if one.kind == "serving") == (
        values(found.runs[0]),
        fields(found.runs[0]),
    )
    scored = perfmodel.validate(tmp_path / "mine.csv").rows
    assert {row.given["metric"] for row in scored if row.predicted > 0} >= {"ttft", "tpot", "output_throughput"}
    assert any("2 requests failed" in note for row in scored for note in row.notes)


def test_what_a_row_says_of_its_load_moves_its_prediction(tmp_path):
    header, *rows = csv.reader((DATA / "plain-v1.csv").read_text().splitlines())
    plain = dict(zip(header, rows[0], strict=True))
    seen = set()
    changes = ({}, {"requests": "32"}, {"length_spread": "0.9"}, {"prefix_hits": "0.5"})
    for number, change in enumerate(changes):
        path = tmp_path / f"{number}.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, header)
            writer.writeheader()
            writer.writerow(plain | change)
        seen.add(perfmodel.validate(path).rows[0].predicted)
    assert len(seen) == len(changes)


def test_a_run_at_a_rate_is_not_scored_as_a_closed_loop():
    rows = perfmodel.validate(DATA / "plain-v2.csv").rows
    assert [row.reason for row in rows] == [
        "percentiles come with the simulator",
        "requests were sent at 4/s: closed loops are compared here; predict --rate answers it",
    ]

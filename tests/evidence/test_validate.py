"""Scoring measurements: every row gets a prediction or a reason, and nothing fitted counts as validation."""

import csv
import json
import math
import re

import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.equations import speculative
from perfmodel.errors import UserError
from perfmodel.evidence import serving_fit, validate
from perfmodel.evidence.validate import public
from perfmodel.evidence.validate.metrics import form_key
from perfmodel.evidence.validate.names import _squash, find_model, find_system
from perfmodel.evidence.validate.scoring import PARTS
from perfmodel.outputs import validation, validation_page
from perfmodel.specs.naming import find_engine

HEADER = (
    "row_id,model,hardware,n_chips,tp,pp,ep,dtype_weights,dtype_kv,engine,mode,isl,osl,concurrency_or_batch,metric,value,"
    "unit,notes,colour"
)
#: A plain row; tests change some of its cells.
PLAIN = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "H100 SXM",
    "n_chips": "1",
    "tp": "1",
    "engine": "vllm 0.18.0",
    "isl": "1024",
    "osl": "256",
    "concurrency_or_batch": "16",
    "metric": "tpot",
    "value": "10",
    "unit": "ms",
}
HOSTILE = "<script>alert('x')</script>\"&"


def write(path, rows, header=HEADER):
    names = header.split(",")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def scored(tmp_path, *changes, header=HEADER):
    rows = [{**PLAIN, **change} for change in changes]
    return validate.validate(write(tmp_path / "rows.csv", rows, header)).rows


def first(tmp_path, **change):
    return scored(tmp_path, change)[0]


@pytest.fixture(scope="module")
def bundled():
    return validate.validate()


# --- the truth ---------------------------------------------------------------------------------------------------


def test_nothing_of_validate_csv_is_fitted_on():
    """Compared by what was run, not by an id, so that a copy under another name is found too."""

    def run_of(row):
        names = ("model", "hardware", "engine", "tp", "isl", "osl", "concurrency_or_batch", "metric")
        text = [row.get(name, "").casefold() for name in names]
        return (_squash(text[0].rpartition("/")[2]), _squash(text[1]), *text[2:])

    fitted = public.fitted_keys()
    serving = validate.read_rows(validate.bundled_path("serving"))
    trained = {run_of(row) for row in serving if (row["row_id"], row["metric"]) in fitted}
    assert trained
    for name in ("validate", "speculative"):
        rows = validate.read_rows(validate.bundled_path(name))
        assert not trained & {run_of(row) for row in rows}
        assert not any((row.get("row_id", ""), row["metric"]) in fitted for row in rows)


def test_the_fit_reads_the_serving_files_alone():
    assert public.FITTED == ("measured/serving.csv", "measured/serving2.csv")
    source = open(serving_fit.__file__, encoding="utf-8").read()  # noqa: SIM115
    assert ".csv" not in source


def test_calibrated_and_predicted_are_never_mixed(bundled):
    fitted = public.fitted_keys()
    for row in bundled.rows:
        key = (row.given.get("row_id", ""), row.given["metric"])
        assert (key in fitted) <= row.fitted
        if row.data == "serving" and row.fitted:
            assert row.part in ("calibrated", "anomalous")
    for part in PARTS:
        counted = sum(one.rows for one in bundled.scores if one.part == part and one.by == "metric")
        assert counted == sum(row.part == part for row in bundled.rows)


def test_every_row_has_a_prediction_or_a_reason(bundled):
    for row in bundled.rows:
        assert math.isfinite(row.predicted) != bool(row.reason), row.given


def test_coverage_of_the_public_measurements(bundled):
    assert bundled.coverage("serving") >= 0.99
    assert bundled.coverage("serving2") >= 0.99
    assert bundled.coverage("validate") >= 0.9


def test_scores_are_those_of_the_rows(bundled):
    (one,) = [one for one in bundled.of("validate", "predicted", "metric") if one.group == ("largest throughput",)]
    mine = [row for row in bundled.rows if row.data == "validate" and row.metric == "largest throughput"]
    errors = sorted(abs(row.predicted / row.value - 1) for row in mine if math.isfinite(row.predicted))
    assert one.rows == len(mine)
    assert one.answered == len(errors)
    assert one.mape == pytest.approx(sum(errors) / len(errors))
    assert abs(one.worst) == pytest.approx(errors[-1])


def test_a_percentile_needs_twenty_rows(tmp_path):
    few = validate.validate(write(tmp_path / "few.csv", [PLAIN] * 19))
    many = validate.validate(write(tmp_path / "many.csv", [PLAIN] * 20))
    assert math.isnan(few.scores[0].p90)
    assert many.scores[0].p90 == pytest.approx(abs(many.rows[0].error))


# --- units and metrics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "size"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("µs", 1e6), ("MS", 1e3)])
@pytest.mark.parametrize("metric", ["tpot", "ttft", "TTFT_median", "itl", "request latency", "e2e"])
def test_the_prediction_is_in_the_rows_own_unit(tmp_path, metric, unit, size):
    seconds, own = scored(tmp_path, {"metric": metric, "unit": "s"}, {"metric": metric, "unit": unit})
    assert own.predicted == pytest.approx(seconds.predicted * size)


def test_rates_agree_with_each_other(tmp_path):
    parallel = {"tp": "2", "n_chips": "4"}
    total, chip, by_unit, user, tpot = scored(
        tmp_path,
        {**parallel, "metric": "output_throughput", "unit": "tok/s"},
        {**parallel, "metric": "output_throughput_per_gpu", "unit": "tok/s/GPU"},
        {**parallel, "metric": "output_throughput", "unit": "ktok/s/gpu"},
        {**parallel, "metric": "output_tps_per_user", "unit": "tok/s/user"},
        {**parallel, "metric": "tpot", "unit": "s"},
    )
    assert chip.predicted == pytest.approx(total.predicted / 4)
    assert by_unit.predicted == pytest.approx(total.predicted / 4000)
    assert user.predicted == pytest.approx(1 / tpot.predicted)


def test_the_largest_throughput_is_none_smaller_than_any(tmp_path):
    some = [
        {"metric": "output_throughput", "unit": "tok/s", "concurrency_or_batch": str(count), "notes": "500 requests"}
        for count in (1, 8, 64, 256)
    ]
    most, *rest = scored(tmp_path, {"metric": "output_throughput_total_max", "unit": "tok/s"}, *some)
    assert all(most.predicted >= row.predicted * 0.99 for row in rest)


def test_slope_and_intercept_make_the_step(tmp_path):
    over = {"isl": "1000..9000", "osl": "2", "concurrency_or_batch": "1"}
    slope, intercept, step = scored(
        tmp_path,
        {**over, "metric": "itl_slope_per_context_token", "unit": "ms/token"},
        {**over, "metric": "itl_intercept", "unit": "ms"},
        {"metric": "decode_step_time", "unit": "ms", "isl": "4999", "osl": "2", "concurrency_or_batch": "1"},
    )
    assert intercept.predicted + 5000 * slope.predicted == pytest.approx(step.predicted, rel=0.02)


def test_a_batch_of_prompts_takes_longer_than_one_but_not_in_proportion(tmp_path):
    one, four = scored(
        tmp_path,
        {"metric": "prompt_time (batch prefill latency)", "concurrency_or_batch": "1"},
        {"metric": "prompt_time (batch prefill latency)", "concurrency_or_batch": "4"},
    )
    assert 1 < four.predicted / one.predicted < 4


def test_accepted_lengths_follow_the_chain():
    assert float(speculative.accepted_length(acceptance=0.8, drafted=4.0)) == pytest.approx((1 - 0.8**5) / (1 - 0.8))
    assert float(speculative.accepted_length(acceptance=1.0, drafted=4.0)) == pytest.approx(5)
    assert float(speculative.accepted_length(acceptance=0.0, drafted=4.0)) == pytest.approx(1)
    assert float(speculative.reached(before=0.5, acceptance=0.4)) == pytest.approx(0.2)


@pytest.mark.parametrize(("metric", "unit"), [("tpot", "ms"), ("ttft", "s"), ("output_tps_per_user", "tok/s/user")])
def test_a_band_holds_its_prediction(tmp_path, metric, unit):
    row = first(tmp_path, metric=metric, unit=unit)
    assert 0 < row.low < row.predicted < row.high


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name", "precision"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b", ""),
        ("LLaMA v3.1 70B", "llama-3.1-70b", ""),
        ("llama2-70b-99.9", "llama-2-70b", ""),
        ("DeepSeek-R1-FP4", "deepseek-r1", "fp4"),
        ("nvidia/DeepSeek-R1-0528-NVFP4", "deepseek-r1", "fp4"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b", "fp4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8"),
        ("Llama 4 Scout", "llama-4-scout", ""),
        ("Mistral 7B", "mistral-7b-v0.3", ""),
        ("GPT-OSS-120B", "gpt-oss-120b", ""),
        ("Qwen3-235B-A22B", "qwen3-235b-a22b", ""),
        ("qwen3-32b", "qwen3-32b", ""),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8"),
        ("Kimi-K2.5-NVFP4", "kimi-k2.5", "fp4"),
        ("DeepSeek-R1-0528-FP4-v2", "deepseek-r1", "fp4"),
        ("Vicuna-7B-v1.3", "vicuna-7b-v1.3", ""),
        ("QwQ-32B-AWQ", "qwen2.5-32b", "int4"),
    ],
)
def test_models_answer_to_what_data_call_them(written, name, precision):
    assert find_model(written)[:2] == (name, precision)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("NVIDIA H100-SXM-80GB", "dgx-h100"),
        ("H100", "dgx-h100"),
        ("H100 SXM", "dgx-h100"),
        ("nvidia h100 80GB HBM3 SXM5".replace(" HBM3", ""), "dgx-h100"),
        ("A100 SXM4 80GB", "dgx-a100"),
        ("B200", "dgx-b200"),
        ("B200 SXM", "dgx-b200"),
        ("H200 SXM 141GB x8 (MaxQ)", "dgx-h200"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("MI300X", "mi300x-8"),
        ("AMD Instinct MI300X", "mi300x-8"),
        ("mi355x-atom", "mi355x-8"),
        ("b200-trt", "dgx-b200"),
        ("8x H100 80GB", "dgx-h100"),
        ("NVIDIA H100 80GB HBM3", "dgx-h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb-8"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-8"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("LPUv1", "lpu-v1"),
    ],
)
def test_systems_answer_to_what_data_call_them(written, name):
    assert find_system(written) == name


@pytest.mark.parametrize("written", ["A100 48GB", "H20 141GB", "H100 96GB", "V100 16GB", "A10G", "Vicuna"])
def test_another_chip_is_not_taken_for_a_listed_one(written):
    with pytest.raises(validate.Unanswered):
        find_system(written)


def test_a_card_is_not_taken_for_the_module():
    try:
        found = find_system("H100 PCIe")
    except validate.Unanswered:
        return
    assert found != "dgx-h100"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vLLM 0.10.1", "vllm-0.10.1"),
        ("TensorRT-LLM v0.14", "trtllm-0.14"),
        ("trtllm 1.0.0rc3", "trtllm-1.0.0"),
        ("TRTLLM", "trtllm"),
        ("SGLang", "sglang"),
        ("sglang 0.5.6.post2", "sglang-0.5.6"),
        ("", ""),
    ],
)
def test_engines(text, name):
    assert str(find_engine(text) or "") == name


def test_empty_precisions_are_the_checkpoints_and_the_engines(tmp_path):
    empty, given = scored(
        tmp_path, {"dtype_weights": "", "dtype_kv": ""}, {"dtype_weights": "bfloat16", "dtype_kv": "bf16"}
    )
    assert empty.predicted == given.predicted
    left, right = scored(
        tmp_path,
        {"engine": "TRTLLM", "dtype_weights": "fp8"},
        {"engine": "TensorRT-LLM v1.0", "dtype_weights": "FP8", "dtype_kv": "FP8"},
    )
    assert left.predicted == right.predicted


# --- rows that are not plain -------------------------------------------------------------------------------------

BAD = {
    "unknown model": ({"model": "abacus-7b"}, "unknown model"),
    "no model": ({"model": ""}, "no model"),
    "unknown hardware": ({"hardware": "Abacus"}, "unknown system"),
    "no hardware": ({"hardware": ""}, "no hardware"),
    "unknown metric": ({"metric": "happiness", "unit": "smiles"}, "nothing here predicts"),
    "somebody's model of cost": ({"metric": "cost_output", "unit": "$/Mtok"}, "no measurement"),
    "energy for power": ({"metric": "system_power", "unit": "J/token"}, "none of system_power"),
    "percentile": ({"metric": "ttft_p99"}, "simulator"),
    "unit of another kind": ({"unit": "tok/s"}, "none of tpot"),
    "no value": ({"value": ""}, "no measured value"),
    "value of 0": ({"value": "0"}, "no measured value"),
    "precision": ({"dtype_weights": "fp3"}, "no precision"),
    "no concurrency": ({"concurrency_or_batch": ""}, "no concurrency"),
    "words for a number": ({"concurrency_or_batch": "2 per rank"}, "is not a number"),
    "no lengths": ({"isl": ""}, "no isl"),
    "negative length": ({"osl": "-4"}, "more than 0"),
    "half a chip": ({"tp": "1.5"}, "whole number"),
    "disaggregated without its pools": ({"mode": "disagg"}, "prefill_workers"),
    "far too large": ({"model": "deepseek-r1", "hardware": "l40s", "tp": "1"}, ""),
}


@pytest.mark.parametrize(("change", "hint"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_gets_a_reason_and_no_exception(tmp_path, change, hint):
    bad, good = scored(tmp_path, change, {})
    assert math.isfinite(good.predicted)
    if hint:
        assert hint in bad.reason
        assert math.isnan(bad.predicted)
    else:
        assert bad.reason or bad.notes


def test_power_and_energy_in_their_units(tmp_path):
    watts, kilowatts, each, chip, joules = scored(
        tmp_path,
        {"metric": "system_power_mean", "unit": "W"},
        {"metric": "system_power_mean", "unit": "kW"},
        {"metric": "system_power_mean", "unit": "W/GPU", "tp": "2"},
        {"metric": "gpu_avg_power", "unit": "W"},
        {"metric": "energy_per_token", "unit": "J/token"},
    )
    assert kilowatts.predicted == pytest.approx(watts.predicted / 1000)
    assert chip.predicted < watts.predicted
    assert each.predicted < watts.predicted
    assert all(row.low < row.predicted < row.high for row in (watts, chip, joules))


def test_every_bundled_power_has_a_prediction_and_is_counted():
    """MLPerf's wall power and energy, and Splitwise's share of the TDP; nothing is fitted on them."""
    powers = ("power", "power_chip", "power_share", "energy")
    rows = [row for row in validate.load(None) if form_key(row[1]["metric"]) in powers]
    assert len(rows) == 5
    found = validate.score_rows(rows)
    assert all(math.isfinite(row.predicted) for row in found.rows)
    assert {row.part for row in found.rows} == {"predicted"}


def test_a_layout_that_cannot_be_is_replaced_and_said(tmp_path):
    row = first(tmp_path, model="qwen3-32b", tp="3", n_chips="3")
    assert math.isfinite(row.predicted)
    assert any("TP 3 cannot be used" in note for note in row.notes)
    large = first(tmp_path, model="llama-3.1-70b")
    assert math.isfinite(large.predicted)
    assert any("does not fit 1 chips: 2 taken" in note for note in large.notes)


def test_tp_times_ep_in_the_column_is_read_from_the_row_id(tmp_path):
    both, real = scored(
        tmp_path,
        {
            "row_id": "x_gpt_oss_120b_c8_tp4_ep2_1",
            "model": "openai/gpt-oss-120b",
            "engine": "trtllm gpt-oss-dev",
            "tp": "8",
            "n_chips": "8",
        },
        {"model": "openai/gpt-oss-120b", "engine": "trtllm", "tp": "4", "ep": "2", "n_chips": "4", "row_id": "x"},
    )
    assert any("row id says TP 4" in note for note in both.notes)
    assert both.predicted == pytest.approx(real.predicted)


def test_machines_that_are_no_gpus(tmp_path):
    rows = scored(
        tmp_path,
        {"hardware": "LPUv1", "engine": "", "tp": "", "n_chips": "", "dtype_weights": "fp16"},
        {"hardware": "SN40L-16", "engine": "", "tp": "16", "n_chips": "16"},
    )
    assert all(math.isfinite(row.predicted) for row in rows)
    assert {row.engine for row in rows} == {"native"}


# --- files -------------------------------------------------------------------------------------------------------


def test_only_five_columns_are_needed_and_others_pass_through(tmp_path, capsys):
    path = write(
        tmp_path / "five.csv",
        [{**PLAIN, "colour": "green"}, {**PLAIN, "metric": "mood", "colour": "=1+1"}],
        "colour,Model,hardware,metric,value,unit,ISL,osl,concurrency_or_batch".replace("Model", "model"),
    )
    assert run(["validate", "--data", str(path), "--json"]) == 0
    text = capsys.readouterr().out
    assert "NaN" not in text
    answered, unanswered = json.loads(text)["rows"]
    assert answered["given"]["colour"] == "green"
    assert answered["reason"] or answered["predicted"] > 0
    assert unanswered["predicted"] is None
    assert unanswered["reason"]
    assert {"model", "hardware", "metric", "value", "unit"} <= set(answered["given"])
    assert {"value", "predicted", "low", "high", "reason"} <= set(answered)


def test_header_case_and_a_byte_order_mark_do_not_matter(tmp_path):
    plain = write(tmp_path / "plain.csv", [PLAIN])
    names, rest = plain.read_text().split("\n", 1)
    odd = tmp_path / "odd.csv"
    odd.write_bytes(b"\xef\xbb\xbf# from a spreadsheet\n" + (names.upper() + "\n" + rest).encode())
    assert validate.validate(odd).rows[0].predicted == validate.validate(plain).rows[0].predicted


REFUSED = {
    "no file": (None, "no such file"),
    "empty": ("", "empty"),
    "no rows": ("model,hardware,metric,value,unit\n", "no rows"),
    "no header": ("a,b\n1,2\n", "no column model, hardware, metric, value, unit"),
    "no unit": ("model,hardware,metric,value\na,b,c,1\n", "no column unit"),
    "column twice": ("model,hardware,metric,value,unit,unit\n", "twice"),
    "value": ("model,hardware,metric,value,unit\na,b,tpot,many,ms\n", "'many' is not a number"),
    "unit": ("model,hardware,metric,value,unit\na,b,tpot,1,parsec\n", "unknown unit 'parsec'"),
    "ragged": ("model,hardware,metric,value,unit\na,b,tpot,1,ms,2,3\n", "7 cells"),
    "binary": (b"\xff\xfe\x00model", "UTF-8"),
}


@pytest.mark.parametrize(("content", "hint"), REFUSED.values(), ids=REFUSED.keys())
def test_a_wrong_file_gives_one_line(tmp_path, content, hint, capsys):
    path = tmp_path / "wrong.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(["validate", "--data", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert hint in err


def test_one_row_with_an_odd_unit_gets_its_reason(tmp_path):
    odd, plain = scored(tmp_path, {"unit": "parsec"}, {})
    assert "unknown unit 'parsec'" in odd.reason
    assert math.isfinite(plain.predicted)


def test_a_folder_is_no_file(tmp_path, capsys):
    assert run(["validate", "--data", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# --- what leaves -------------------------------------------------------------------------------------------------


def hostile(tmp_path):
    rows = [{**PLAIN, "value": str(5 + count), "notes": HOSTILE} for count in range(25)]
    rows += [{**PLAIN, "model": HOSTILE}, {**PLAIN, "hardware": HOSTILE}, {**PLAIN, "metric": HOSTILE}]
    rows += [{**PLAIN, "unit": "ms", "engine": f"vllm {HOSTILE}", "tp": "3"}]
    return validate.validate(write(tmp_path / "hostile.csv", rows))


def test_the_page_asks_no_host_and_shows_names_as_they_stand(tmp_path):
    result = hostile(tmp_path)
    text = validation_page.html_page(result, f"validate --data {HOSTILE}.csv")
    assert "alert('x')</script>" not in text
    assert "<script>alert" not in text
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"""src\s*=|href\s*=\s*"(?!#|validation\.csv")|@import|url\(""", own)
    assert "default-src 'none'" in text
    assert text.count("<title>") == 1
    for spec in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, flags=re.DOTALL):
        assert json.loads(spec)["layer"]


def test_page_and_rows_are_written(tmp_path, capsys):
    path = write(tmp_path / "rows.csv", [{**PLAIN, "notes": "=cmd()"}] * 6)
    assert run(["validate", "--data", str(path), "--out", str(tmp_path / "new" / "report")]) == 0
    assert "=cmd()" not in [row["notes"] for row in csv.DictReader((tmp_path / "new/report/validation.csv").open())]
    assert (tmp_path / "new/report/validation.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert {file.name for file in (tmp_path / "new/report").iterdir()} == {"validation.html", "validation.csv"}
    capsys.readouterr()


def test_csv_to_the_terminal(tmp_path, capsys):
    path = write(tmp_path / "rows.csv", [PLAIN, {**PLAIN, "model": "vicuna"}])
    assert run(["validate", "--data", str(path), "--csv"]) == 0
    answered, unanswered = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(answered["predicted"]) > 0
    assert unanswered["predicted"] == ""
    assert "vicuna" in unanswered["reason"]


@pytest.mark.parametrize("width", [80, 200])
def test_the_tables_fit_the_terminal(bundled, width):
    for line in validation.text(bundled, width).splitlines():
        assert len(line) <= width
    assert "calibrated" in validation.text(bundled, width)


def test_python_mirrors_the_command(tmp_path):
    result = perfmodel.validate(write(tmp_path / "rows.csv", [PLAIN]))
    frame = result.to_frame()
    assert list(frame["matched_model"]) == ["llama-3.1-8b"]
    assert "TPOT" in repr(result)
    assert "<table>" in result._repr_html_()
    with pytest.raises(UserError, match="no such file"):
        perfmodel.validate(tmp_path / "none.csv")


# --- columns of public files -------------------------------------------------------------------------------------

POOLS = {
    **{"model": "deepseek-r1", "hardware": "H200 SXM", "mode": "disagg", "tp": "", "engine": "trtllm", "osl": "1024"},
    **{"dtype_weights": "fp8", "prefill_workers": "1", "prefill_tp": "8", "prefill_ep": "8"},
    **{"decode_workers": "9", "decode_tp": "8", "decode_ep": "8", "n_chips": "80"},
}
WIDE = f"{HEADER},attention_dp,load,message_bytes," + ",".join(
    f"{pool}_{what}" for pool in ("prefill", "decode") for what in ("workers", "tp", "attention_dp", "ep", "batch")
)


def test_two_pools_conserve_their_clients(tmp_path):
    """Clients are those that wait, prefill and decode (Little), and more of them never serve less."""
    rates = []
    for clients in ("4", "64", "512"):
        same = {**POOLS, "concurrency_or_batch": clients}
        ttft, tpot, rate = scored(
            tmp_path,
            {**same, "metric": "ttft", "unit": "s"},
            {**same, "metric": "tpot", "unit": "s"},
            {**same, "metric": "output_throughput", "unit": "tok/s"},
            header=WIDE,
        )
        output = 0.9 * 1024
        inside = rate.predicted / output * (ttft.predicted + (output - 1) * tpot.predicted)
        assert inside == pytest.approx(float(clients), rel=0.15)
        rates.append(rate.predicted)
    assert rates == sorted(rates)


def test_measured_pools_within_the_goal():
    """TPOT of two pools of DeepSeek-R1 on H200 and GB200, on which nothing was fitted."""
    rows = [row for row in validate.load(None) if row[1].get("mode") == "disagg" and row[1]["metric"] == "tpot"]
    found = validate.score_rows(rows).rows
    assert len(found) == 67
    assert {row.part for row in found} == {"predicted"}
    assert sum(abs(row.error) for row in found) / len(found) <= 0.2


def test_an_all_reduce_needs_no_model(tmp_path):
    row = {
        **{"model": "", "hardware": "H200 SXM", "tp": "8", "engine": "vllm", "message_bytes": "16384"},
        **{"metric": "all_reduce_latency", "value": "7", "unit": "us"},
    }
    own, nccl = scored(tmp_path, row, {**row, "engine": "NCCL"}, header=WIDE)
    assert 0 < own.predicted < nccl.predicted


def test_a_label_of_tp_times_ep_is_read_as_its_id_says(tmp_path):
    """Eight GPUs that spread experts over the same ranks stand as TP 64 in some tables."""
    row = {"model": "deepseek-r1", "hardware": "H200 SXM", "dtype_weights": "fp8", "ep": "8", "row_id": "a_tp8_ep8_1"}
    label, plain = scored(tmp_path, {**row, "tp": "64", "n_chips": "64"}, {**row, "tp": "8", "n_chips": "8"})
    assert label.predicted == plain.predicted
    assert any("TP x EP" in note for note in label.notes)


def test_a_static_batch_has_no_queue(tmp_path):
    same = {"load": "static batch, no server", "concurrency_or_batch": "16", "osl": "128", "unit": "s"}
    whole, first, token = scored(
        tmp_path, {**same, "metric": "e2el"}, {**same, "metric": "ttft"}, {**same, "metric": "tpot"}, header=WIDE
    )
    assert whole.predicted == pytest.approx(first.predicted + 127 * token.predicted)


@pytest.mark.parametrize(("written", "name"), [("SN40L x16 RDU", "sn40l-16"), ("DGX Spark (GB10)", "dgx-spark")])
def test_nodes_answer_to_what_public_files_call_them(written, name):
    assert find_system(written) == name

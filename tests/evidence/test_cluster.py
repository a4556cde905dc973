"""A cluster's own runs: what they say of the numbers of its machine, and of how well it is predicted."""

import csv
import functools
import itertools
import json

import numpy as np
import pytest

from perfmodel import api
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence.cluster import choosing, pooling
from perfmodel.evidence.cluster.choosing import Points, chosen
from perfmodel.specs import catalog
from perfmodel.specs.check import check_files
from tests.evidence import learning

#: Runs of a cluster whose front end takes 90 ms, whose layers take a half more than those of the shipped numbers.
SLOWER = {"system.efficiency.layer_time": "x1.5", "system.efficiency.request_time": "90 ms"}
LOADS = [(1024, 1024, 1), (1024, 1024, 32), (4096, 256, 8), (512, 2048, 64), (8192, 512, 4), (2048, 2048, 16)]
COLUMNS = ("model", "hardware", "engine", "tp", "n_chips", "dtype_weights", "isl", "osl", "concurrency_or_batch")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, loads, engine="vllm", hardware="dgx-h100", changes=None, scale=1.0):
    """Write runs that the model itself made with other numbers."""
    rows = []
    for prompt, output, clients in loads:
        made = api.predict(
            "llama-3.1-8b", on=f"{hardware}:tp=1", prompt=prompt, output=output, concurrency=clients,
            precision="fp8", engine="vllm", steady=False, set=SLOWER if changes is None else changes,
        )  # fmt: skip
        cells = ("llama-3.1-8b", hardware, engine, 1, 1, "fp8", prompt, output, clients)
        row = dict(zip(COLUMNS, cells, strict=True), load=f"{10 * clients} prompts", lengths="fixed", unit="ms")
        for metric in ("ttft", "tpot"):
            rows.append({**row, "metric": metric, "value": f"{made.metrics[f'{metric}_s'] * 1e3 * scale:.6f}"})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_posterior_is_that_of_a_normal_law_where_errors_are_small():
    draw = np.random.default_rng(3)
    slopes, prior, noise = draw.normal(size=(7, 4)), np.array([0.4, 0.3, 0.2, 0.1]), np.full(7, 0.1)
    constant = 1e-4 * draw.normal(size=7)
    found = pooling.settle(lambda logs: (constant + slopes @ logs, slopes), prior, noise)
    precision = np.diag(prior**-2.0) + slopes.T @ np.diag(noise**-2.0) @ slopes
    assert found.logs == pytest.approx(-np.linalg.solve(precision, slopes.T @ (constant / noise**2)), rel=1e-3)
    assert found.covariance == pytest.approx(np.linalg.inv(precision), rel=1e-3, abs=1e-9)


def test_what_no_run_speaks_of_stays_and_one_bad_run_among_many_bends_little():
    slopes = np.c_[np.ones(12), np.zeros(12)]
    constant = np.r_[np.full(11, -0.2), -3.0]
    found = pooling.settle(lambda logs: (constant + slopes @ logs, slopes), np.full(2, 0.5), np.full(12, 0.05))
    assert found.logs[0] == pytest.approx(0.2, abs=0.02)
    assert found.logs[1] == 0.0
    assert found.spreads[1] == pytest.approx(0.5)
    assert found.weights[-1] < 0.05 < 0.9 < found.weights[0]


def test_the_first_chosen_run_leaves_the_least_variance_by_brute_force():
    draw = np.random.default_rng(5)
    points = Points(draw.normal(size=(9, 3)), draw.normal(size=(9, 3)), draw.uniform(0, 5, size=(9, 4)))
    covariance = np.diag([0.16, 0.09, 0.04])
    slopes = np.concatenate([points.tpot / pooling.TOKEN_NOISE, points.ttft / pooling.FIRST_NOISE])
    apart = np.array([[np.sum((one - other) ** 2) for other in points.where] for one in points.where])
    alike = np.exp(-apart / (2 * choosing.ALIKE**2))
    whole = slopes @ covariance @ slopes.T
    whole[:9, :9] += (choosing.TOKEN_FORM / pooling.TOKEN_NOISE) ** 2 * alike
    whole[9:, 9:] += (choosing.FIRST_FORM / pooling.FIRST_NOISE) ** 2 * alike

    def left(at):
        held = np.zeros((2, 18))
        held[0, at] = held[1, 9 + at] = 1.0
        noisy = whole @ held.T @ np.linalg.inv(held @ whole @ held.T + np.eye(2)) @ held @ whole
        return np.trace(whole - noisy)

    assert chosen(points, points, covariance, 1) == [min(range(9), key=left)]


def test_a_few_runs_find_the_cluster_that_made_them(here):
    data = write(here / "mine.csv", LOADS[:4])
    result = api.calibrate(data)
    (found,) = result.clusters
    assert (found.name, found.base, found.runs) == ("h100-vllm", "h100-vllm", 4)
    layers, front = (next(one for one in found.numbers if one.path == path) for path in ("layer_time", "request_time"))
    assert layers.posterior / layers.prior == pytest.approx(1.5, rel=0.2)
    assert front.posterior == pytest.approx(90e-3, rel=0.25)
    assert {one.metric: one.left_out < one.before / 2 for one in found.errors} == {"TTFT": True, "TPOT": True}
    # Runs that it has not seen, under other loads, by what every verb reads now.
    fresh = write(here / "fresh.csv", LOADS[4:], changes=SLOWER)
    assert check_files([str(result.files[0])]) == (1, [])
    scored = api.validate(fresh)
    assert max(abs(row.error) for row in scored.rows) < 0.2
    said = "calibration h100-vllm: hardware_specs/calibration/h100-vllm.yaml, in place of the bundled one"
    for answer in (
        api.predict("llama-3.1-8b", on="dgx-h100"),
        api.size("llama-3.1-8b", on="dgx-h100", rate=1, ttft_p99="5s", tpot_p99="100ms"),
    ):
        assert said in answer.to_dict()["assumed"]


def test_a_second_fit_stands_on_the_shipped_numbers_too(here):
    data = write(here / "mine.csv", LOADS[:3])
    first, second = (api.calibrate(data).clusters[0] for _ in range(2))
    assert [one.posterior for one in first.numbers] == [one.posterior for one in second.numbers]


def test_a_release_has_a_file_of_its_own_and_the_nearest_earlier_one_stands(here):
    for release, slower in (("0.10", 1.0), ("0.20", 3.0)):
        api.calibrate(write(here / "mine.csv", LOADS[:3], engine=f"vllm {release}", scale=slower))
    names = sorted(path.name for path in (here / "hardware_specs" / "calibration").iterdir())
    assert names == ["h100-vllm-0.10.yaml", "h100-vllm-0.20.yaml"]

    def layer_time(engine):
        return catalog.load_system("dgx-h100", engine)[0].efficiency.layer_time

    assert layer_time("vllm-0.15") == layer_time("vllm-0.10") < layer_time("vllm-0.20") == layer_time("vllm")
    assert catalog.engines("h100") == ["sglang", "trtllm", "vllm"]


def test_a_second_cluster_is_a_second_system(here):
    (here / "hardware_specs").mkdir()
    (here / "hardware_specs" / "lab.yaml").write_text("extends: dgx-h100\nname: lab\nchip: lab100\nkin: h100\n")
    api.calibrate(write(here / "mine.csv", LOADS[:3], hardware="lab", scale=2.0))
    bundled, mine = (catalog.load_system(name, "vllm")[0].efficiency for name in ("dgx-h100", "lab"))
    assert mine.layer_time > bundled.layer_time
    assert "lab100-vllm" in " ".join(api.predict("llama-3.1-8b", on="lab", engine="vllm").to_dict()["assumed"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "none.csv"], "no such file"),
        (["--json"], "--json: goes with --data"),
        (["--out", "x"], "--out: goes with --data"),
        (["--data", "power.csv"], "no row says anything"),
    ],
)
def test_what_says_nothing_is_refused_in_one_line(here, capsys, words, said):
    (here / "power.csv").write_text("model,hardware,metric,value,unit\nllama-3.1-8b,dgx-h100,power,3,kW\n")
    assert run(["calibrate", *words]) == 2
    assert said in capsys.readouterr().err
    assert not (here / "hardware_specs").exists()


def test_the_answer_as_json_and_as_text(here, capsys):
    data = str(write(here / "mine.csv", LOADS[:2]))
    assert run(["calibrate", "--data", data, "--json"]) == 0
    (cluster,) = json.loads(capsys.readouterr().out)["clusters"]
    assert cluster["calibration"] == "h100-vllm"
    assert all(band["tpot_after"] < band["tpot_before"] for band in cluster["bands"])
    assert run(["calibrate", "--data", data]) == 0
    out = capsys.readouterr().out
    assert all(words in out for words in ("what moved", "each run left out", "worth measuring next", "name no release"))


def test_a_plan_of_measurements_says_what_to_run_and_what_to_expect(here, capsys):
    asked = ["bench-plan", "llama-3.1-8b", "--on", "dgx-h100:tp=1", "--for", "1024/256", "--runs", "3"]
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    bands = [found["tpot_band"], *(one["tpot_band"] for one in found["runs"])]
    assert bands == sorted(bands, reverse=True)
    for one in found["runs"]:
        same = api.predict(
            "llama-3.1-8b", on="dgx-h100:tp=1", prompt=1024, output=256, concurrency=one["concurrency"], steady=False
        )
        assert one["tpot_s"]["value"] == pytest.approx(same.tpot_s, rel=0.05)
        assert (
            f"--num-prompts {10 * one['concurrency']:.0f} --max-concurrency {one['concurrency']:.0f}" in one["command"]
        )
        assert one["gpu_hours"] == pytest.approx(one["seconds"] / 3600)
    assert run(asked) == 0
    assert "vllm bench serve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--for", "1024"], "expected PROMPT/OUTPUT"),
        (["--for", "1024/0"], "--for"),
        (["--runs", "0"], "--runs"),
        (["--for", "9000000/9000000"], "holds no request"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_one_line(capsys, words, said):
    assert run(["bench-plan", "llama-3.1-8b", "--on", "dgx-h100:tp=1", *words]) == 2
    assert said in capsys.readouterr().err


def test_unusable_folder_is_said(here):
    (here / "hardware_specs").write_text("")
    with pytest.raises(UserError, match="cannot make the folder"):
        api.calibrate(write(here / "mine.csv", LOADS[:1]))


def test_learning_curve_of_every_fifth_group():
    made = learning.curves(2, (0, 3), only=range(0, 21, 5))
    assert len(made) == 5
    none, three = (learning.over_groups(made, "TPOT", size) for size in (0, 3))
    assert three <= min(none, 0.07)


def missed(metric, *goal):
    return pytest.param(metric, *goal, marks=pytest.mark.xfail(strict=True, reason="see docs/limits.md"))


@functools.cache
def learned():
    return learning.curves(50)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("metric", "runs", "most"), [("TPOT", 3, 0.07), ("TPOT", 10, 0.055), ("TTFT", 3, 0.18), missed("TTFT", 10, 0.13)]
)
def test_learning_curves_reach_their_goals(metric, runs, most):
    assert learning.over_groups(learned(), metric, runs) <= most


@pytest.mark.nightly
@pytest.mark.parametrize("metric", ["TPOT", "TTFT"])
def test_more_runs_are_not_worse_and_bands_hold_what_they_say(metric):
    medians = [learning.over_groups(learned(), metric, size) for size in learning.SIZES]
    # Half a point is what 50 draws leave of a median.
    assert all(later <= before + 0.005 for before, later in itertools.pairwise(medians))
    for size in (3, 10):
        assert 0.7 <= np.mean([one.coverage(metric, size) for one in learned()]) <= 0.9


@pytest.mark.nightly
@pytest.mark.parametrize(("runs", "slack"), [missed(3, 0.0), missed(5, 0.0), (10, 0.005)])
def test_planned_runs_say_more_of_tpot_than_drawn_ones(runs, slack):
    planned = np.median([one.planned[runs]["TPOT"] for one in learned()])
    assert planned < learning.over_groups(learned(), "TPOT", runs) + slack

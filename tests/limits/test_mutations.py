"""Planted mistakes: each must be caught by the test that is named beside it.

The mistakes are those that public models of this kind have made.  A copy of the project gets one, and the test runs
there.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfmodel.specs import catalog

PROJECT = catalog.bundled()
TESTS = Path(__file__).parent.parent
UNITS = "tests/limits/test_units.py::test_a_written_quantity_is_what_pint_reads"
PARAMETERS = "tests/paper/test_models.py::test_total_parameters"
CACHE = "tests/paper/test_models.py::test_cache_bytes_of_a_token"
SECOND = "tests/specs/test_second_sources.py::test_a_second_source_agrees"

#: What the mistake is: (file, old text, new text, test that catches it).
MUTATIONS = {
    "GiB for GB": ("perfmodel/specs/units.py", '"G": 1e9', '"G": 2.0**30', UNITS),
    "GB for GiB": ("perfmodel/specs/units.py", '"Gi": 2.0**30', '"Gi": 1e9', UNITS),
    "bits for bytes": ("perfmodel/specs/units.py", '("B", 0.125, True)', '("B", 1.0, True)', UNITS),
    "gated MLP of two matrices": (
        "perfmodel/equations/transformer.py",
        "return matrices * hidden * intermediate",
        "return 2 * hidden * intermediate",
        PARAMETERS,
    ),
    "query heads for KV heads": (
        "perfmodel/machines/kv_cache.py",
        "kv_heads=attention.kv_heads",
        "kv_heads=attention.heads",
        CACHE,
    ),
    "keys without values": (
        "perfmodel/equations/transformer.py",
        "return kv_heads * (key_dim + value_dim) * bytes_per_element",
        "return kv_heads * key_dim * bytes_per_element",
        CACHE,
    ),
    "one FLOP a multiply-add": (
        "perfmodel/equations/transformer.py",
        "return 2 * parameters * tokens",
        "return parameters * tokens",
        "tests/paper/test_models.py::test_one_token_through_16_bit_weights_has_an_intensity_of_1",
    ),
    "half the work of attention": (
        "perfmodel/equations/transformer.py",
        "return 2 * heads * (key_dim + value_dim) * sequences * tokens * attended",
        "return heads * (key_dim + value_dim) * sequences * tokens * attended",
        "tests/paper/test_models.py::test_attention_intensity_is_the_number_of_query_heads_a_kv_head",
    ),
    "sparse FLOPs of the H100": ("hardware_specs/dgx-h100.yaml", "989.4 TFLOP/s", "1979 TFLOP/s", SECOND),
    "sparse FLOPs of the B200": ("hardware_specs/dgx-b200.yaml", "2250 TFLOP/s", "4500 TFLOP/s", SECOND),
    "both directions of NVLink 4": ("hardware_specs/dgx-h100.yaml", "value: 450 GB/s", "value: 900 GB/s", SECOND),
    "both directions of the LPU": ("hardware_specs/lpu-v1.yaml", "value: 117.5 GB/s", "value: 235 GB/s", SECOND),
    "SRAM bandwidth of the marketing": ("hardware_specs/lpu-v1.yaml", "value: 18.43 TB/s", "value: 80 TB/s", SECOND),
    "alpha-beta line for the p-norm": (
        "perfmodel/equations/collectives.py",
        "return (latency**exponent + (message / bandwidth) ** exponent) ** (1 / exponent)",
        "return latency + message / bandwidth",
        "tests/paper/test_ship.py::test_all_reduce_meets_both_knees",
    ),
    "one synchronisation a layer": (
        "perfmodel/equations/collectives.py",
        "return layers * per_layer * latency",
        "return layers * latency",
        "tests/paper/test_liminal.py::test_user_tokens_per_second",
    ),
    "batch left out of equation 3": (
        "perfmodel/equations/roofline.py",
        "return sequences * bandwidth / (weights + kv_per_sequence * sequences)",
        "return bandwidth / (weights + kv_per_sequence)",
        "tests/paper/test_dataflow.py::test_equation_3_as_a_time_is_its_inverse",
    ),
}


def copy_of_the_project(folder):
    for part in ("perfmodel", "hardware_specs", "workloads"):
        shutil.copytree(PROJECT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "bundled"))
    for part in ("paper", "specs", "data"):
        shutil.copytree(TESTS / part, folder / "tests" / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests" / "limits").mkdir()
    for part in ("limits/__init__.py", "limits/test_units.py"):
        shutil.copy(TESTS / part, folder / "tests" / part)
    (folder / "data").symlink_to(PROJECT / "data")
    if (settings := TESTS.parent / "pyproject.toml").is_file():
        shutil.copy(settings, folder)
    return folder


def run(folder, *tests):
    # Without plugins and rewritten assertions a run takes half the time.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def plant_and_run(folder, name):
    path, old, new, test = MUTATIONS[name]
    copy_of_the_project(folder)
    source = (folder / path).read_text(encoding="utf-8")
    if old not in source:
        return None, f"{path} no longer says '{old}'"
    (folder / path).write_text(source.replace(old, new), encoding="utf-8")
    return run(folder, test)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """All mutations, a few at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = {name: pool.submit(plant_and_run, tmp_path_factory.mktemp("planted"), name) for name in MUTATIONS}
        return {name: future.result() for name, future in started.items()}


def test_the_copy_without_a_mistake_passes(tmp_path):
    """Else the failures below would say nothing."""
    code, output = run(copy_of_the_project(tmp_path), *sorted({mutation[3] for mutation in MUTATIONS.values()}))
    assert code == 0, output


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_mistake_is_caught(outcomes, name):
    code, output = outcomes[name]
    assert code == 1, output

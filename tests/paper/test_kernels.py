"""GPUs against public measurements."""

import csv

import numpy as np
import pytest

import perfmodel
from perfmodel.machines import all_reduce
from perfmodel.specs import catalog

CHIPS = {"H100 SXM": "dgx-h100", "H200 SXM": "dgx-h200", "B200 SXM": "dgx-b200"}
ENGINES = {"vLLM_custom_graph": "vllm", "TRTLLM": "trtllm", "SGLang_CustomAllReduce_graph": "sglang"}


def measured_all_reduces():
    """Return message [B] and latency [s] of the 8-rank rows of each chip and engine."""
    groups = {}
    with (catalog.bundled() / "data" / "kernels" / "allreduce.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["hardware"] in CHIPS and row["engine"] in ENGINES and row["tp"] == "8":
                group = groups.setdefault((CHIPS[row["hardware"]], ENGINES[row["engine"]]), [])
                group.append((float(row["message_bytes"]), float(row["value"]) * 1e-6))
    return groups


ALL_REDUCES = measured_all_reduces()


@pytest.mark.parametrize(("tp", "measured_ms"), [(2, 17.4), (4, 11.8), (8, 9.1)])
def test_decode_of_llama_70b_on_h100_with_vllm(tp, measured_ms):
    """A sanity check, not a statement of accuracy: these InferenceX rows are among those that were fitted on.

    One time a layer has to serve TP 2, 4 and 8 alike: no bandwidth efficiency alone can.
    """
    answer = perfmodel.predict(
        "llama-3.1-70b", on="dgx-h100", engine="vllm", precision="fp8", tp=tp, prompt=1024, output=1024, concurrency=4
    )
    fitted = catalog.load_system("dgx-h100", "vllm")[0].efficiency.layer_time
    assert answer.scenario.system.efficiency.layer_time == fitted > 0
    assert 1e3 * answer.tpot_s == pytest.approx(measured_ms, rel=0.12)


def test_all_reduces_were_measured_on_every_chip_and_engine():
    assert set(ALL_REDUCES) == {(chip, engine) for chip in CHIPS.values() for engine in ENGINES.values()}


@pytest.mark.parametrize(("system", "engine"), sorted(ALL_REDUCES))
def test_all_reduce_of_8_ranks(system, engine):
    message, latency = np.array(ALL_REDUCES[system, engine]).T
    block = catalog.load_system(system, engine)[0].efficiency.all_reduce
    error = np.abs(all_reduce.all_reduce_time(block, message, 8.0) / latency - 1)
    assert np.median(error) <= 0.15

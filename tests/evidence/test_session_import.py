"""Session files from traces of every form: counts by hand, published ceilings, and the way there and back."""

import json
from pathlib import Path

import numpy as np
import pytest

import perfmodel
from perfmodel.cli import run
from perfmodel.errors import UserError
from perfmodel.evidence.session_import import drawn, figures
from perfmodel.specs import catalog

RAW = Path(__file__).parents[2].parent / "shared" / "data" / "traces"


def written(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


#: Two calls of one session, of 128 and 192 tokens, of which the second holds the first two blocks; answers of 10.
WEKA = {
    "id": "a",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        {"t": 0, "type": "n", "in": 128, "out": 10, "hash_ids": [1, 2], "input_types": ["text"], "api_time": 2},
        {
            "t": 9,
            "type": "n",
            "in": 192,
            "out": 10,
            "hash_ids": [1, 2, 3],
            "input_types": ["tool_result"],
            "api_time": 2,
        },
    ],
}


def dynamo(at, tokens, hashes, trigger):
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "agent_context": {"session_id": "a", "input_trigger": trigger},
        "request": {
            "request_received_ms": at,
            "total_time_ms": 2000,
            "output_tokens": 10,
            "replay": {"trace_block_size": 64, "input_length": tokens, "input_sequence_hashes": hashes},
        },
    }


def aiperf(start, tokens):
    return {
        "metadata": {"x_correlation_id": "a", "request_start_ns": start * 10**9, "request_end_ns": (start + 2) * 10**9},
        "metrics": {
            "input_sequence_length": {"value": tokens, "unit": "tokens"},
            "output_sequence_length": {"value": 10, "unit": "tokens"},
        },
    }


MOONCAKE = [
    {"timestamp": 0, "input_length": 1024, "output_length": 80, "hash_ids": [1, 2]},
    {"timestamp": 9000, "input_length": 1536, "output_length": 80, "hash_ids": [1, 2, 3]},
]
FORMS = {
    "weka": ([WEKA], 128 / 320, 7.0, 1),
    "dynamo": ([dynamo(0, 128, [5, 6], "user"), dynamo(9000, 192, [5, 6, 7], "tool_result")], 128 / 320, 7.0, 1),
    "aiperf": ([aiperf(0, 128), aiperf(9, 192)], 138 / 320, 7.0, 1),
    "mooncake": (MOONCAKE, 1024 / 2560, 9.0, 1),
    "sessions": (
        [
            {"timestamp": 0, "input_length": 128, "output_length": 10, "session_id": 7},
            {"delay": 9000, "input_length": 192, "output_length": 10, "session_id": 7},
        ],
        138 / 320,
        9.0,
        1,
    ),
    "two users": ([WEKA, {**WEKA, "id": "b"}], 256 / 640, 7.0, 2),
}


@pytest.mark.parametrize(("rows", "ceiling", "gap", "sessions"), FORMS.values(), ids=FORMS)
def test_a_trace_says_what_was_counted_by_hand(tmp_path, rows, ceiling, gap, sessions):
    found = perfmodel.read_traffic(written(tmp_path / "x.jsonl", rows), out=tmp_path / "mine.yaml")
    assert found.figures.hit_ceiling == pytest.approx(ceiling)
    assert found.figures.sessions == found.figures.tasks == sessions
    assert found.content["tool_gap"]["p50"] == pytest.approx(gap)
    assert catalog.load_session(str(tmp_path / "mine.yaml")).name == "mine"


@pytest.mark.parametrize(("name", "published"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_ceilings_of_mooncake_are_the_published_ones(name, published, tmp_path):
    file = RAW / f"mooncake_{name}_trace.jsonl.gz"
    if not file.is_file():
        pytest.skip("the raw trace is not here")
    # What is published counts blocks, of which the last of a prompt is not full.
    found = perfmodel.read_traffic(file, out=tmp_path / "mine.yaml")
    assert found.figures.hit_ceiling == pytest.approx(published, abs=0.015)


def test_what_was_imported_is_drawn_again(tmp_path):
    session = catalog.load_session("swe-bench")
    calls = drawn(session)
    rows = [
        {"timestamp": 1e3 * at, "input_length": int(prompt), "output_length": int(output), "session_id": int(number)}
        for at, (number, prompt, output) in enumerate(zip(calls.session, calls.prompt, calls.output, strict=True))
    ]
    found = perfmodel.read_traffic(written(tmp_path / "x.jsonl", rows), out=tmp_path / "mine.yaml")
    again = figures(drawn(catalog.load_session(str(tmp_path / "mine.yaml"))))
    assert again.hit_ceiling == pytest.approx(found.figures.hit_ceiling, abs=0.02)
    assert again.input_per_output == pytest.approx(found.figures.input_per_output, rel=0.1)
    assert np.isclose(again.calls / again.sessions, found.figures.calls / found.figures.sessions, rtol=0.05)


def test_a_trace_without_sessions_is_refused_in_one_line(tmp_path, capsys):
    rows = [{"timestamp": 0, "input_length": 10, "output_length": 1}]
    with pytest.raises(UserError, match="session_id, or hash_ids"):
        perfmodel.read_traffic(written(tmp_path / "x.jsonl", rows))
    assert run(["traffic", "import", str(tmp_path / "x.jsonl"), "--json"]) == 2
    assert capsys.readouterr().err.count("\n") == 1

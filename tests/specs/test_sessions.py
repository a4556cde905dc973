"""Specs of sessions: published ceilings, tables that a law goes through, and fields that would move nothing."""

from dataclasses import replace

import numpy as np
import pytest

from perfmodel.evidence.session_import import drawn, figures
from perfmodel.serving.session_spec import session_traffic
from perfmodel.serving.sessions import drawn_calls
from perfmodel.specs import catalog, quantiles
from perfmodel.specs.check import check_files
from perfmodel.specs.sessions import Compaction, SharedPrefix


@pytest.mark.parametrize(
    ("name", "ceiling", "input_per_output"),
    [("coding-agent-weka", 0.9631, 281.1), ("swe-bench", 0.942, 131.0), ("bench-multiturn", 45 / 55, None)],
)
def test_drawn_calls_have_the_ceiling_that_was_measured(name, ceiling, input_per_output):
    found = figures(drawn(catalog.load_session(name)))
    assert found.hit_ceiling == pytest.approx(ceiling, abs=0.021)
    if input_per_output:
        assert found.input_per_output == pytest.approx(input_per_output, rel=0.15)


def test_deep_research_does_not_cache_and_agents_do():
    research, coding = (figures(drawn(catalog.load_session(name))) for name in ("deep-research", "coding-agent"))
    assert research.hit_ceiling == pytest.approx(0.478, abs=0.035)
    assert coding.hit_ceiling > 0.95


@pytest.mark.parametrize("table", [{"p10": 2.0, "p50": 8.0, "p99": 900.0}, {"p50": 15.0, "p90": 135.0, "mean": 83.7}])
def test_a_law_goes_through_its_table(table):
    values = quantiles.at(table, (np.arange(2_000_000) + 0.5) / 2_000_000)
    for key, value in table.items():
        found = values.mean() if key == "mean" else np.quantile(values, int(key[1:]) / 100)
        assert found == pytest.approx(value, rel=0.02)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("growth: {median: 3}", "growth.median"),
        ("growth: {p50: 9, p90: 3}", "growth.p90"),
        ("growth: {p50: 9, p90: 30, mean: 1}", "growth.mean"),
        ("tool_gap: {}", "tool_gap"),
        ("human_gap: {p50: 3 s}", "human_gap"),
        ("human_share: 0.5", "human_gap"),
        ("order: fixed", "tool_gap"),
        ("order: random", "population"),
        ("population: 80", "population"),
        ("appended: {p50: 5}\nresent_output: 0.5", "resent_output"),
        ("shared_prefix: {tokens: 200}", "shared_prefix.tokens"),
        ("compaction: {at: 100, to: 200}", "compaction.to"),
        ("compaction: {to: 50}", "compaction"),
        ("fan_out: 0", "fan_out"),
        ("turns: 3", "turns"),
    ],
)
def test_what_would_move_nothing_is_refused_with_its_field(tmp_path, change, where):
    lines = {
        "name": "name: x",
        "source": "source: weka-traces-2026\nkind_of_numbers: measured",
        "calls": "calls: {p50: 4}",
        "first_context": "first_context: {p50: 100}",
        "growth": "growth: {p50: 10}",
        "output": "output: {p50: 5}",
        "tool_gap": "tool_gap: {p50: 3 s}",
    }
    lines[change.split(":")[0]] = change
    path = tmp_path / "x.yaml"
    path.write_text("\n".join(lines.values()))
    _, problems = check_files([str(path)])
    assert any(f": {where}: " in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({"resent_output": 1.0}, -1),
        ({"shared_prefix": SharedPrefix(3000.0)}, +1),
        ({"compaction": Compaction(2000.0, 6000.0)}, -1),
        ({"compaction": Compaction(2000.0, share=0.1)}, -1),
        ({"growth": {"p50": 2000.0}}, -1),
        ({"context": {"p5": 2000.0, "p50": 60000.0}}, -1),
    ],
)
def test_fields_move_the_ceiling_the_way_they_must(change, moves):
    plain = replace(
        catalog.load_session("multi-turn-chat"), shared_prefix=None, calls={"mean": 20.0}, growth={"mean": 600.0}
    )
    gap = figures(drawn(replace(plain, **change))).hit_ceiling - figures(drawn(plain)).hit_ceiling
    assert gap * moves > 0


def test_a_context_that_no_model_takes_is_compacted():
    calls = drawn_calls(session_traffic(catalog.load_session("coding-agent"), longest=131072))
    assert float(np.max(calls.prompt)) <= 131072

"""The tools of an assistant, asked by the client of the protocol's own SDK over standard input and output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

import perfmodel
from perfmodel.cli import mcp, run, schemas

QUESTIONS: dict[str, dict[str, Any]] = {
    "predict": {"model": "llama-3.1-8b", "on": "dgx-h100", "concurrency": 8},
    "compare": {"model": "llama-3.1-8b", "on": ["dgx-h100", "dgx-b200"]},
    "size": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1"], "rate": "20", "ttft_p99": "1s"},
    "capacity": {"model": "llama-3.1-8b", "on": ["dgx-h100:tp=1"], "nodes": 1, "no_objective": True},
    "fit": {"model": "llama-3.1-8b", "on": "dgx-h100"},
    "tco": {"model": "llama-3.1-8b", "on": ["dgx-h100"], "samples": "64"},
    "explain": {"metric": "tpot", "model": "llama-3.1-8b", "on": "dgx-h100"},
    "specs": {"what": "systems"},
    "specs_show": {"name": "dgx-h100"},
    "specs_search": {"word": "h100"},
}
WRONG = {"model": "llama-3.1-8b", "on": "dgx-h1000"}


async def _asked() -> tuple[list[Any], dict[str, Any], Any, Any]:
    started = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).parents[2] / "cli.py"), "mcp"])
    async with (
        stdio_client(started) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        tools = (await session.list_tools()).tools
        answers = {tool.name: await session.call_tool(tool.name, QUESTIONS[tool.name]) for tool in tools}
        return tools, answers, await session.call_tool("predict", WRONG), await session.call_tool("predict", {"x": 1})


@pytest.fixture(scope="module")
def asked() -> Any:
    return anyio.run(_asked)


def test_every_tool_is_listed_and_answers(asked: Any) -> None:
    tools, answers, _, _ = asked
    assert {tool.name for tool in tools} == set(mcp.TOOLS) == set(QUESTIONS)
    for tool in tools:
        assert tool.description
        found = answers[tool.name]
        assert not found.is_error, found.content
        jsonschema.validate(found.structured_content, schemas.schema(mcp.TOOLS[tool.name]))
        assert set(tool.input_schema["required"]) <= set(QUESTIONS[tool.name]) <= set(tool.input_schema["properties"])
        assert json.loads(found.content[0].text) == found.structured_content


def test_a_tool_gives_what_python_gives_with_band_and_warnings(asked: Any) -> None:
    found = asked[1]["predict"].structured_content
    answer = perfmodel.predict("llama-3.1-8b", on="dgx-h100", concurrency=8)
    assert found["tpot_s"] == answer.to_dict()["tpot_s"]
    assert found["band"]["tpot_s"]["low"] < found["tpot_s"] < found["band"]["tpot_s"]["high"]
    assert found["assumed"]
    assert found["warnings"]


def test_a_wrong_call_gets_the_line_of_the_command(asked: Any) -> None:
    _, _, unknown, other = asked
    assert unknown.is_error
    assert unknown.content[0].text == "unknown system 'dgx-h1000': did you mean dgx-h100 or dgx-h200 or dgx-a100?"
    assert other.is_error
    assert other.content[0].text.startswith("x: no input of predict")


def test_options_of_tools_are_those_of_the_verbs() -> None:
    wanted = mcp.tool("predict")["input_schema"]["properties"]
    assert {"model", "on", "set", "concurrency", "precision", "rate", "ttft_p99"} <= set(wanted)
    assert all(each["description"] for each in wanted.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steady": "yes"}, "steady: expected true or false"),
        ({"traffic": "--cite"}, "unknown traffic '--cite'"),
        ({"concurrency": [1, 2]}, "--concurrency is given twice"),
        ({"consurrency": 2}, "consurrency: no input of predict; did you mean concurrency"),
    ],
)
def test_no_value_is_swallowed_or_taken_for_an_option(given: dict[str, Any], said: str) -> None:
    asked = {"model": "llama-3.1-8b", "on": "dgx-h100", "concurrency": 2} | given
    assert said in mcp.call("predict", asked)["error"]["message"]
    assert "error" not in mcp.call("predict", {"model": "llama-3.1-8b", "on": "dgx-h100", "traffic": None})


def test_who_starts_it_by_hand_is_told_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mcp"]) == 2
    assert capsys.readouterr().err.startswith("perfmodel: mcp talks to an assistant")

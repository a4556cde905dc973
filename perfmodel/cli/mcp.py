"""``perfmodel mcp``: the verbs as tools of an assistant, over standard input and output (Model Context Protocol)."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, run
from perfmodel.errors import UserError
from perfmodel.version import __version__

#: Tools, and the verb that each of them is.
TOOLS = {
    "predict": "predict",
    "compare": "compare",
    "size": "size",
    "capacity": "capacity",
    "fit": "fit",
    "tco": "tco",
    "explain": "explain",
    "specs": "specs list",
    "specs_show": "specs show",
    "specs_search": "specs search",
}
INSTRUCTIONS = (
    "Predictions of LLM inference: speed, memory, power and cost of a model on machines. Quote a value with its band "
    "(80 %) and what is assumed; say a warning that changes the decision; never quote a value whose band is missing "
    "without saying so. Names of models, systems and traffics: specs, specs_search. Numbers take units: '50ms', '8/s'."
)


def mcp() -> int:
    """Serve the verbs as tools to an assistant, over standard input and output (Model Context Protocol).

    Each tool takes the options of its verb and gives its JSON. Needs the extra mcp.

    Example: perfmodel mcp
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise UserError("mcp needs the SDK of the protocol: pip install 'perfmodel[mcp]'") from None

    try:
        watched = sys.stdin.isatty() or sys.stdin.fileno() < 0 or sys.stdout.fileno() < 0
    except (OSError, ValueError, AttributeError):
        watched = True
    if watched:
        raise UserError("mcp talks to an assistant over standard input and output: give it this command to start")

    async def serve() -> None:
        made = server()
        async with stdio_server() as (incoming, outgoing):
            await made.run(incoming, outgoing, made.create_initialization_options())

    anyio.run(serve)
    return OK


def server() -> Any:
    """Return the server with its tools.

    Returns
    -------
    mcp.server.Server
    """
    import anyio
    from mcp import types
    from mcp.server import Server

    one_at_a_time = anyio.Lock()

    async def listed(_context: Any, _asked: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(**tool(name)) for name in TOOLS])

    async def called(_context: Any, asked: Any) -> Any:
        async with one_at_a_time:
            result = await anyio.to_thread.run_sync(call, asked.name, asked.arguments or {})
        failed = "error" in result
        text = result["error"]["message"] if failed else json.dumps(result, allow_nan=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=None if failed else result,
            is_error=failed,
        )

    return Server(
        "perfmodel", version=__version__, instructions=INSTRUCTIONS, on_list_tools=listed, on_call_tool=called
    )


@functools.cache
def _command(verb: str) -> Any:
    from perfmodel.cli.schemas import commands

    return dict(commands())[verb]


def tool(name: str) -> dict[str, Any]:
    """Return name, description and schemas of a tool: the help and the options of its verb, and the shape of its JSON.

    Parameters
    ----------
    name : str

    Returns
    -------
    dict
    """
    from perfmodel.cli.schemas import question, schema

    command = _command(TOOLS[name])
    return {
        "name": name,
        "description": (command.help or "").partition("\n\nExample:")[0],
        "input_schema": question(command),
        "output_schema": {"type": "object"} | schema(TOOLS[name]),
    }


def _words(verb: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line; the verb itself judges what they say."""
    from perfmodel.cli.common import question_name

    by_name = {question_name(option.name): option for option in _command(verb).params}
    words, places = verb.split(), []
    for name, value in arguments.items():
        option = by_name.get(name)
        if option is None or name is None:
            near = get_close_matches(name, filter(None, by_name), 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "its schema has them all"
            raise UserError(f"{name}: no input of {verb}; {hint}")
        given = value if isinstance(value, list) else [] if value is None else [value]
        if option.param_type_name == "argument":
            places += [str(part) for part in given]
        elif getattr(option, "is_flag", False):
            if value not in (True, False, None):
                raise UserError(f"{name}: expected true or false")
            words += [option.opts[0]] if value else []
        else:
            # Bound to its option: a value that begins with a dash is none itself.
            words += [f"{option.opts[0]}={part}" for part in given]
    return [*words, "--json", "--", *places]


def call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the verb of a tool prints as JSON; what is wrong as the documented error.

    Parameters
    ----------
    name : str
    arguments : mapping
        By the names of the tool's schema; text as on the command line, or numbers.

    Returns
    -------
    dict
    """
    if name not in TOOLS:
        return {"error": {"kind": "refused", "message": f"no tool '{name}': expected one of {', '.join(TOOLS)}"}}
    try:
        words = _words(TOOLS[name], arguments)
    except UserError as error:
        return {"error": {"kind": "refused", "message": str(error)}}
    # The protocol has the real standard output.
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(words)
    if out.getvalue():
        found: dict[str, Any] = json.loads(out.getvalue())
        return found
    kind = "missed" if code == DOES_NOT_FIT else "refused"
    return {"error": {"kind": kind, "message": said.getvalue().strip() or "no answer"}}

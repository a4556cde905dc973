"""``perfmodel traffic``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli import OK, common

traffic = typer.Typer(
    help="What traces and sessions hold by themselves.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

File = Annotated[
    str, typer.Argument(metavar="FILE", help="CSV, Mooncake, WEKA, Dynamo, AIPerf or conversations of vLLM.")
]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE.yaml", help="The session file to write.")]


@traffic.command("import", cls=common.Verb)
def import_traffic(file: File, out: Out = None, json: common.Json = False) -> int:
    """Make a session file of a trace, and print hit ceiling, reads over writes, input over output.

    A task lies between two messages of a person; where the trace tells none, it is a session.

    Example: perfmodel traffic import trace.jsonl --out workloads/sessions/mine.yaml
    """
    from perfmodel import api

    return _answer(api.read_traffic(file, out=out), json)


@traffic.command("show", cls=common.Verb)
def show_traffic(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name, alias or path of a session.")],
    json: common.Json = False,
) -> int:
    """What the calls of a kind of session say by themselves.

    Example: perfmodel traffic show coding-agent
    """
    from perfmodel.evidence import session_import

    return _answer(session_import.show(name), json)


def _answer(result: object, json: bool) -> int:
    from perfmodel.evidence.session_import import Imported
    from perfmodel.outputs.traffic import print_traffic

    assert isinstance(result, Imported)
    if json:
        common.write_json(result.to_dict())
    else:
        print_traffic(result, common.console())
    return OK

"""``perfmodel launch``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from perfmodel.cli import OK, common
from perfmodel.options import LaunchQuestion

Model = Annotated[
    str, typer.Argument(metavar="MODEL|FILE", help="A model with --on; else a saved plan, or a server's log.")
]
System = Annotated[str | None, typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=common.SYSTEM_HELP)]


@common.asks(LaunchQuestion)
def launch(
    model: Model, given: Any, on: System = None, changes: common.Changes = None, json: common.Json = False
) -> int:
    """The commands that start the engines of a plan.

    Printed and never run, with every number of the plan, by the flags of the engine's release; what they cannot say is
    said.

    Example: perfmodel launch llama-3.3-70b --on dgx-h100:tp=4 --precision fp8 --context 8192
    """
    from perfmodel import api
    from perfmodel.outputs.launch import launch_text

    answer = api.launch(model, on=on, set=changes or (), **given)
    if json:
        common.write_json(answer.to_dict())
    else:
        print(launch_text(answer), end="")
    return OK

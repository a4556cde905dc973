"""``perfmodel collective``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli import OK, common

Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="all-reduce or all-to-all.")]
System = Annotated[str, typer.Option("--on", metavar="SYSTEM", help="System whose chips exchange.")]
Ranks = Annotated[str, typer.Option("--tp", metavar="N", help="Ranks of the group.")]
Message = Annotated[str, typer.Option("--message", metavar="BYTES", help="What each rank contributes: 1MB, 512KiB.")]
Engine = Annotated[str | None, typer.Option("--engine", metavar="ENGINE", help="Whose algorithm.")]


def collective(
    operation: Operation,
    on: System,
    tp: Ranks,
    message: Message,
    engine: Engine = None,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """How long one collective takes: the engine's own algorithm, and NCCL by its closed form.

    In a CUDA graph, with nothing beside it.

    Example: perfmodel collective all-reduce --on dgx-h100 --tp 8 --message 1MB
    """
    from perfmodel import api
    from perfmodel.outputs import collective as output

    common.one_of(json=json, csv=csv)
    answer = api.collective(operation, on=on, tp=tp, message=message, engine=engine, set=changes or ())
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_rows(answer.rows())
    else:
        output.print_collective(answer, common.console())
    return OK

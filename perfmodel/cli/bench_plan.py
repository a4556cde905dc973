"""``perfmodel bench-plan``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli import OK, common

For = Annotated[
    str | None,
    typer.Option("--for", metavar="P/D,...", help="Prompt and output tokens that will be asked about."),
]
Runs = Annotated[str | None, typer.Option("--runs", metavar="N", help="How many runs; 5 where not given.")]
Engine = Annotated[str | None, typer.Option("--engine", metavar="ENGINE", help="The serving engine, with a release.")]


def bench_plan(
    model: common.Model,
    on: common.OneSystem,
    for_: For = None,
    runs: Runs = None,
    engine: Engine = None,
    json: common.Json = False,
) -> int:
    """What to measure, so that a cluster is known: the few runs that say most, what is expected, and the commands.

    The runs leave the least mean variance over the lengths of --for with 1 to 256 clients.

    Example: perfmodel bench-plan llama-3.3-70b --on dgx-h100:tp=4 --for 1024/1024,8192/1024
    """
    from perfmodel import api
    from perfmodel.outputs import bench_plan as output

    answer = api.bench_plan(model, on=on, for_=for_, runs=runs, engine=engine)
    if json:
        common.write_json(answer.to_dict())
    else:
        output.print_bench_plan(answer, common.console())
    return OK

"""``perfmodel runs``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perfmodel.cli import OK, common

runs = typer.Typer(
    help="Read what benchmark tools and servers wrote.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

Files = Annotated[
    list[str], typer.Argument(metavar="FILE...", help="Results, logs and tables, told by what they hold.")
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="NAME=VALUE", help="What the files do not say, by column: tp=8. Repeat it."),
]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE.csv", help="Write the measurement file.")]


@runs.command("import", cls=common.Verb)
def import_runs(
    files: Files, field: Fields = None, out: Out = None, json: common.Json = False, csv: common.Csv = False
) -> int:
    """One tidy measurement file of what benchmark tools, servers and monitors wrote.

    vLLM bench and sweep, SGLang, AIPerf, GenAI-Perf, GuideLLM, inference-perf, llm-d, trtllm-bench, InferenceX, MLPerf,
    CSV; logs of vLLM, SGLang and TensorRT-LLM; vLLM's metrics, GPU power, nccl-tests.

    Example: perfmodel runs import bench.json server.log --field hardware=dgx-h100 --out mine.csv
    """
    from perfmodel import api
    from perfmodel.outputs import runs as output

    common.one_of(json=json, csv=csv)
    imported = api.read_runs(*files, fields=field or ())
    if out is not None:
        imported.save(out)
        print(f"wrote {out}", file=sys.stderr)
    if json:
        common.write_json(imported.to_dict())
    elif csv:
        common.write_rows([{name: row.get(name, "") for name in imported.columns()} for row in imported.rows()])
    else:
        output.print_runs(imported, common.console())
    for number, why in imported.suspects:
        print(f"perfmodel: run {number} ({imported.runs[number - 1].source}) is suspect: {why}", file=sys.stderr)
    return OK

"""``perfmodel fit``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common

Context = Annotated[
    str | None,
    typer.Option("--context", metavar="N", help="Tokens of a request; by default the most that the model takes."),
]


@common.asks
def fit(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    context: Context = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """Whether a model fits, and how many tokens and requests.

    The KV cache as the engine sizes it, part by part.

    Example: perfmodel fit deepseek-v3 --on dgx-h200 --precision fp8 --context 32768
    """
    from perfmodel.outputs import fit as output
    from perfmodel.question import number

    length = None if context is None else number("--context", context)
    answer = output.ask(model, on, given, changes or [], length)
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_csv([answer])
    else:
        output.print_fit(answer, common.console())
    if answer.fits:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

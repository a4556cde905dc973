"""``perfmodel explain``."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common

Metric = Annotated[
    str, typer.Argument(metavar="METRIC", help="A key of --json or a column of --csv; its unit may be left out.")
]
Depth = Annotated[int, typer.Option("--depth", metavar="N", min=1, help="How many equations deep.")]
Latex = Annotated[bool, typer.Option("--latex", help="Print the equations as LaTeX, an align* environment.")]


@common.asks
def explain(
    metric: Metric,
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    depth: Depth = 4,
    latex: Latex = False,
    json: common.Json = False,
) -> int:
    """How a number came about: each equation with its numbers.

    Each input stands with its source, and at the end the inputs that matter most.

    Example: perfmodel explain tpot llama-3.1-70b --on sn40l-16
    """
    from perfmodel.outputs import explain as output
    from perfmodel.prediction import run
    from perfmodel.question import resolve

    scenario = resolve(model, on, given, changes or [])
    found = output.explain(scenario, metric, depth)
    if json:
        common.write_json(found.to_dict())
    elif latex:
        print(found.latex())
    else:
        print(output.safe_terminal(found.text(common.console().width)))
    answer = run(scenario)
    if answer.fits and not math.isnan(found.value):
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

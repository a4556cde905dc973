"""``perfmodel explain``."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import ExplainQuestion

Metric = Annotated[
    str, typer.Argument(metavar="METRIC", help="A key of --json or a column of --csv; its unit may be left out.")
]
Operators = Annotated[
    bool,
    typer.Option(
        "--operators", help="Print operator, FLOP, bytes, what limits it, time and share for each phase instead."
    ),
]
Latex = Annotated[bool, typer.Option("--latex", help="Print the equations as LaTeX, an align* environment.")]


@common.asks(ExplainQuestion)
def explain(
    metric: Metric,
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    operators: Operators = False,
    latex: Latex = False,
    json: common.Json = False,
) -> int:
    """How a number came about: each equation with its numbers.

    Each input stands with its source, and at the end the inputs that matter most; or what each operator does.

    Example: perfmodel explain tpot llama-3.1-70b --on sn40l-16
    """
    from perfmodel import api
    from perfmodel.compilers.explain import safe_terminal
    from perfmodel.prediction import run

    common.one_of(json=json, latex=latex, operators=operators)
    explanation = api.explain(metric, model, on=on, set=changes or (), **given)
    if json:
        common.write_json(explanation.to_dict())
    elif operators:
        print(safe_terminal(explanation.operators_text(common.console().width)))
    elif latex:
        print(explanation.latex())
    else:
        print(safe_terminal(explanation.text(common.console().width)))
    answer = run(explanation.scenario)
    if answer.fits and not math.isnan(explanation.value):
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

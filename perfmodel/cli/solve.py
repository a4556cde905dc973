"""``perfmodel solve``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.cli.explain import Metric

For = Annotated[str, typer.Option("--for", metavar="INPUT", help="Path of the input to vary.")]
Target = Annotated[str, typer.Option("--target", metavar="VALUE", help="What the metric shall be, with its unit.")]


@common.asks
def solve(
    metric: Metric,
    model: common.Model,
    on: common.OneSystem,
    for_: For,
    target: Target,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
) -> int:
    """The value of an input at which a metric meets a target.

    Such as the bandwidth at which TPOT is 20 ms.

    Example: perfmodel solve tpot llama-3.1-70b --on dgx-h100 --for memory.hbm.bandwidth --target 9ms
    """
    from perfmodel.outputs.explain import safe_terminal, solution_text
    from perfmodel.question import resolve
    from perfmodel.studies.solve import solve as find

    found = find(resolve(model, on, given, changes or []), metric, for_, target)
    if json:
        common.write_json(found.to_dict())
    else:
        print(safe_terminal(solution_text(found, common.console().width)))
    if not found.reason:
        return OK
    print(f"perfmodel: {found.reason}", file=sys.stderr)
    return DOES_NOT_FIT

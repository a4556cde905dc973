"""``perfmodel solve``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.cli.explain import Metric
from perfmodel.options import SolveQuestion


@common.asks(SolveQuestion, "for_", "target")
def solve(
    metric: Metric,
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
) -> int:
    """The value of an input at which a metric meets a target.

    Such as the bandwidth at which TPOT is 20 ms.

    Example: perfmodel solve tpot llama-3.1-70b --on dgx-h100 --for memory.hbm.bandwidth --target 9ms
    """
    from perfmodel import api
    from perfmodel.compilers.explain import safe_terminal, solution_text

    answer = api.solve(metric, model, on=on, set=changes or (), **given)
    if json:
        common.write_json(answer.to_dict())
    else:
        print(safe_terminal(solution_text(answer, common.console().width)))
    if not answer.reason:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

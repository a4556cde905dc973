"""``perfmodel predict``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common


@common.asks
def predict(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """TTFT, TPOT, throughput, MFU, MBU and the breakdown of a model on a system under a traffic."""
    from perfmodel.prediction import run
    from perfmodel.question import resolve

    answer = run(resolve(model, on, given, changes or []))
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_csv([answer])
    else:
        from perfmodel.outputs.tables import print_comparison

        print_comparison([answer], common.console())
    if not answer.reason:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

"""``perfmodel capacity``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import CapacityQuestion


@common.asks(CapacityQuestion, "nodes")
def capacity(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """The most requests a second that machines which one has serve within objectives.

    With --rate also how much more than that, or, where it is less, what they serve instead (exit code 3).

    Example: perfmodel capacity llama-3.3-70b --on dgx-h100 --nodes 4 --traffic chat --ttft-p99 1s --tpot-p99 50ms
    """
    from perfmodel import api

    common.one_of(json=json, csv=csv)
    with common.watching() as tick:
        answer = api.capacity(model, on=on, set=changes or (), tick=tick, **given)
    if json:
        common.write_json(answer.to_dict())
    elif csv:
        common.write_rows(answer.rows())
    else:
        from perfmodel.outputs.capacity import print_capacity

        print_capacity(answer, common.console())
    if answer.reason:
        print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT if answer.reason or answer.short else OK

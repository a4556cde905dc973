"""``perfmodel compare``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common, load


@common.asks
@load.objectives
def compare(
    model: common.Model,
    on: common.Systems,
    given: Any,
    limits: Any,
    rate: load.Rate = None,
    arrival_scv: load.Scv = None,
    prefix_hits: load.Hits = None,
    lengths: load.Lengths = None,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """Answer the same question on several systems, side by side.

    --set SYSTEM:PATH=VALUE changes one of them, --set '#2:PATH=VALUE' the second.

    Example: perfmodel compare llama-3.1-70b --on lpu-v1 --on dgx-h100
    """
    from perfmodel.api import compare_options

    loaded = load.load_changes(arrival_scv, prefix_hits, lengths)
    wanted = [*loaded, *(changes or [])]
    if rate is not None:
        return load.answer(model, on, rate, given, wanted, limits, json=json, csv=csv, compared=True)
    load.refuse_without_rate(limits, loaded)

    comparison = compare_options(model, on, given, wanted)
    answers = comparison.answers
    if json:
        common.write_json(comparison.to_dict())
    elif csv:
        common.write_csv(answers)
    else:
        from perfmodel.outputs.tables import print_comparison

        print_comparison(answers, common.console())
    missing = [answer for answer in answers if answer.reason]
    if len(missing) < len(answers):
        return OK
    print(f"perfmodel: {missing[0].reason}", file=sys.stderr)
    return DOES_NOT_FIT

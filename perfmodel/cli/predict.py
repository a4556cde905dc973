"""``perfmodel predict``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common, load


@common.asks
@load.objectives
def predict(
    model: common.Model,
    on: common.OneSystem,
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
    """Speed, memory, power and cost of a model on a system.

    TTFT, TPOT, throughput, MFU and MBU with their breakdown, what limits them, what was assumed and how sure they are.

    With --rate, requests arrive at random: percentiles, goodput, headroom and what breaks first.

    Example: perfmodel predict llama-3.1-70b --on dgx-h100:tp=4 --concurrency 32
    """
    from perfmodel.prediction import run
    from perfmodel.question import resolve

    loaded = load.load_changes(arrival_scv, prefix_hits, lengths)
    wanted = [*loaded, *(changes or [])]
    if rate is not None:
        return load.answer(model, [on], rate, given, wanted, limits, json=json, csv=csv)
    load.refuse_without_rate(limits, loaded)

    answer = run(resolve(model, on, given, wanted))
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

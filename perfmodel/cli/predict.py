"""``perfmodel predict``."""

from __future__ import annotations

from typing import Any

from perfmodel.cli import common
from perfmodel.options import RateQuestion


@common.asks(RateQuestion)
def predict(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
    verbose: common.Verbose = False,
) -> int:
    """Speed, memory, power and cost of a model on a system.

    TTFT, TPOT, throughput, MFU and MBU with their breakdown, what limits them, what was assumed and how sure they are.

    With --rate, requests arrive at random: percentiles, goodput, headroom and what breaks first.

    With --sessions, users come back with a longer context: hit rates, times of calls and tasks, and the cliff.

    Example: perfmodel predict llama-3.1-70b --on dgx-h100:tp=4 --concurrency 32
    """
    from perfmodel import api

    common.one_of(json=json, csv=csv)
    answer = api.predict(model, on=on, set=changes or (), **given)
    if csv:
        common.write_csv([answer])
    elif json:
        common.write_json(answer.to_dict())
    elif isinstance(answer, api.Answer):
        common.print_predictions([answer], verbose)
    elif "sessions" in given:
        from perfmodel.outputs.agents import print_agents

        print_agents([answer], common.console())
    else:
        from perfmodel.outputs.sizing import print_load

        print_load([answer], common.console())
    return common.code([answer])

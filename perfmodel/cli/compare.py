"""``perfmodel compare``."""

from __future__ import annotations

from typing import Any

from perfmodel.cli import common
from perfmodel.options import RateQuestion


@common.asks(RateQuestion)
def compare(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
    verbose: common.Verbose = False,
) -> int:
    """Answer the same question on several systems, side by side.

    --set SYSTEM:PATH=VALUE changes one of them, --set '#2:PATH=VALUE' the second.

    Example: perfmodel compare llama-3.1-70b --on lpu-v1 --on dgx-h100
    """
    from perfmodel import api
    from perfmodel.planning.agents import AgentsBeside

    common.one_of(json=json, csv=csv)
    comparison = api.compare(model, on=on, set=changes or (), **given)
    answers = comparison.answers
    if json:
        common.write_json(comparison.to_dict())
    elif csv:
        common.write_csv(answers)
    elif isinstance(comparison, AgentsBeside):
        from perfmodel.outputs.agents import print_agents

        print_agents(comparison.answers, common.console())
    elif isinstance(comparison, api.Comparison):
        common.print_predictions(comparison.answers, verbose)
    else:
        from perfmodel.outputs.sizing import print_load

        print_load(comparison.answers, common.console())
    return common.code(answers)

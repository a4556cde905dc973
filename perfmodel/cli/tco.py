"""``perfmodel tco``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import CostQuestion


@common.asks(CostQuestion)
def tco(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    csv: common.Csv = False,
    verbose: common.Verbose = False,
    plot: common.Plot = False,
) -> int:
    """What a million tokens cost on each system, and how sure.

    The cheapest first, what dominates the cost, and the price at which two systems tie.

    Without --concurrency each system is set to what costs least under the bound on TPOT.

    With --sessions and --users: what a task costs on the fewest replicas that keep people with sessions before the
    cliff, and the mean TPOT within --tpot.

    Example: perfmodel tco llama-3.1-70b --on dgx-h100 --on dgx-b200 --tpot 30ms
    """
    from perfmodel import api
    from perfmodel.errors import UserError
    from perfmodel.outputs import tco as output
    from perfmodel.outputs.agents import print_cost
    from perfmodel.planning.agents_cost import OwningAgents

    common.one_of(json=json, csv=csv, plot=plot)
    result = api.tco(model, on=on, set=changes or (), **given)
    if json:
        common.write_json(result.to_dict())
    elif csv:
        common.write_rows(result.rows())
    elif isinstance(result, OwningAgents):
        if plot:
            raise UserError("--plot draws settings of a load: not beside --sessions")
        print_cost(result, common.console())
    else:
        output.print_owning(result, common.console(), verbose)
        if plot:
            output.print_plot(result, common.console())
    if isinstance(result, OwningAgents):
        if not result.reason:
            return OK
        print(f"perfmodel: {result.reason}", file=sys.stderr)
        return DOES_NOT_FIT
    missing = [
        owned.answer.reason or f"{owned.name} {owned.missed}"
        for owned in result.systems
        if owned.answer.reason or owned.missed
    ]
    if len(missing) < len(result.systems):
        return OK
    print(f"perfmodel: {missing[0]}", file=sys.stderr)
    return DOES_NOT_FIT

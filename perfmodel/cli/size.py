"""``perfmodel size``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import PoolsQuestion

Explain = Annotated[bool, typer.Option("--explain-rejected", help="List every rejected plan and why.")]


@common.asks(PoolsQuestion)
def size(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    explain_rejected: Explain = False,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """How many systems serve a rate within objectives.

    Of which kind and in which plan, at the least cost.

    Objectives: --ttft-p99, --tpot-p99, --itl-p99, --latency-p99, and p50, p90, p95 and mean of each.

    Several rates, or --growth with --years, say which plan lasts; --users stands for a rate.

    Several traffics on one fleet: --traffic chat@40:ttft_p99=1s --traffic rag@10:ttft_p99=5s, requests a
    second and, where they are its own, objectives of each; --separate asks for a fleet each too.

    With --sessions and --users: the fewest replicas that keep people with sessions before the cliff and within
    objectives on TTFT.

    Example: perfmodel size llama-3.3-70b --on dgx-h100 --rate 20 --ttft-p99 1s --tpot-p99 50ms
    """
    from perfmodel import api
    from perfmodel.errors import UserError
    from perfmodel.outputs.agents import print_agents
    from perfmodel.outputs.sizing import print_course, print_mixed, print_pools, print_sizing
    from perfmodel.planning.agents_size import AgentsSizing
    from perfmodel.planning.course import Course
    from perfmodel.planning.mixed import Mixed
    from perfmodel.planning.pools import Disaggregated

    common.one_of(json=json, csv=csv)
    if explain_rejected and (json or csv):
        raise UserError("--explain-rejected is for the table: --json lists them always, --csv has answers only")
    if explain_rejected and "prefill_on" in given:
        raise UserError("--explain-rejected is of a search: pools are sized on the plans that are given")
    with common.watching() as tick:
        answer = api.size(model, on=on, set=changes or (), tick=tick, **given)
    if json:
        common.write_json(answer.to_dict())
    elif isinstance(answer, AgentsSizing):
        if csv:
            common.write_csv(answer.answers)
        elif answer.answers:
            print_agents(answer.answers[:4], common.console())
    elif isinstance(answer, Disaggregated):
        if csv:
            common.write_csv([answer])
        else:
            print_pools(answer, common.console())
    elif isinstance(answer, Mixed):
        if csv:
            common.write_rows(answer.rows())
        else:
            print_mixed(answer, common.console(), explain_rejected)
    elif isinstance(answer, Course):
        if csv:
            common.write_rows(answer.rows())
        else:
            print_course(answer, common.console(), explain_rejected)
    elif csv:
        common.write_csv(answer.answers)
    else:
        print_sizing(answer, common.console(), explain_rejected)
    if not answer.reason:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

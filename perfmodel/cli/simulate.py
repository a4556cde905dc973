"""``perfmodel simulate``."""

from __future__ import annotations

import sys
from typing import Any

from perfmodel.cli import DOES_NOT_FIT, OK, common
from perfmodel.options import SimulateQuestion


@common.asks(SimulateQuestion)
def simulate(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    changes: common.Changes = None,
    json: common.Json = False,
    verbose: common.Verbose = False,
) -> int:
    """Serve a load token by token, beside the closed form.

    Continuous batching as an engine does it: next to what predict --rate says, with --concurrency in a closed loop.

    Up to eight replicas are simulated, with a router before them.  With --sessions the prefix cache is.

    Example: perfmodel simulate llama-3.1-8b --on dgx-h100:tp=1 --rate 10
    """
    from perfmodel import api
    from perfmodel.outputs.agents import print_simulated
    from perfmodel.outputs.simulation import print_simulation
    from perfmodel.planning.agents_simulate import AgentsSimulated
    from perfmodel.question import read_options

    requests = read_options(SimulateQuestion, given).get("requests")
    with common.progress("requests", None if requests is None else int(requests)) as tick:
        answer = api.simulate(model, on=on, set=changes or (), tick=tick, **given)
    if json:
        common.write_json(answer.to_dict())
    elif isinstance(answer, AgentsSimulated):
        print_simulated(answer, common.console())
    else:
        print_simulation(answer, common.console(), verbose)
    if not answer.reason:
        return OK
    print(f"perfmodel: {answer.reason}", file=sys.stderr)
    return DOES_NOT_FIT

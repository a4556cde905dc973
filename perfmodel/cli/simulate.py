"""``perfmodel simulate``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common, load

Trace = Annotated[
    str | None,
    typer.Option("--trace", metavar="FILE", help="Replay arrivals and lengths of a CSV or JSON-lines trace."),
]
Count = Annotated[str, typer.Option("--requests", metavar="N", help="Requests to draw, or to take of the trace.")]
Sessions = Annotated[
    str | None, typer.Option("--sessions", metavar="N", help="A closed loop of so many clients instead of a rate.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of the random draws.")]


@common.asks
def simulate(
    model: common.Model,
    on: common.OneSystem,
    given: Any,
    rate: load.Rate = None,
    trace: Trace = None,
    sessions: Sessions = None,
    requests: Count = "5000",
    seed: Seed = 1,
    arrival_scv: load.Scv = None,
    prefix_hits: load.Hits = None,
    lengths: load.Lengths = None,
    changes: common.Changes = None,
    json: common.Json = False,
) -> int:
    """Serve a rate token by token, beside the closed form.

    Continuous batching as an engine does it, next to what predict --rate says.

    One replica is simulated: with --dp N it gets every N-th request at random.

    Example: perfmodel simulate llama-3.1-8b --on dgx-h100:tp=1 --rate 10
    """
    from perfmodel.errors import UserError
    from perfmodel.outputs.simulation import print_simulation
    from perfmodel.question import number, resolve
    from perfmodel.studies import simulate as study

    if sum(value is not None for value in (rate, trace, sessions)) != 1:
        raise UserError("give one of --rate, --trace and --sessions")
    count = number("--requests", requests)
    if not (count >= 1 and count == int(count)):
        raise UserError(f"--requests {requests}: must be a whole number of at least 1")
    mine = [*load.load_changes(arrival_scv, prefix_hits, lengths), *(changes or [])]
    scenario = resolve(model, on, given, mine)
    with common.progress("requests", int(count)) as tick:
        found = study.ask(
            scenario,
            rate=None if rate is None else load.read_rate(rate),
            trace=trace,
            sessions=None if sessions is None else int(number("--sessions", sessions)),
            count=int(count),
            seed=seed,
            tick=tick,
        )
    if json:
        common.write_json(found.to_dict())
    else:
        print_simulation(found, common.console())
    if not found.reason:
        return OK
    print(f"perfmodel: {found.reason}", file=sys.stderr)
    return DOES_NOT_FIT

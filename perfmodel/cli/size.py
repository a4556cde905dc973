"""``perfmodel size``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common, load

Asked = Annotated[str, typer.Option("--rate", metavar="R", help="Requests a second.")]
Least = Annotated[str, typer.Option("--least", metavar="GOAL", help="What to make least: cost, power or chips.")]
Precisions = Annotated[
    str | None, typer.Option("--precisions", metavar="P,P,...", help="Storage of the weights to try.")
]
Depths = Annotated[str | None, typer.Option("--ks", metavar="K,K,...", help="Tokens drafted a step to try.")]
Most = Annotated[str | None, typer.Option("--max-chips", metavar="N", help="Chips beyond which a plan is no answer.")]
Available = Annotated[
    str | None, typer.Option("--availability", metavar="A", help="Share of time that enough must work: 0.999.")
]
Mtbf = Annotated[str | None, typer.Option("--chip-mtbf", metavar="T", help="Time between failures of a chip: 50000 h.")]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="S,S,...", help="Shares of the rate by period, as hours of a day.")
]
Prefill = Annotated[
    str | None,
    typer.Option("--prefill-on", metavar="SYSTEM[:...]", help="A pool for prefill only; --on is the one for decode."),
]
Explain = Annotated[bool, typer.Option("--explain-rejected", help="List every rejected plan and why.")]


@common.asks
@load.objectives
def size(
    model: common.Model,
    on: common.Systems,
    rate: Asked,
    given: Any,
    limits: Any,
    least: Least = "cost",
    precisions: Precisions = None,
    ks: Depths = None,
    max_chips: Most = None,
    availability: Available = None,
    chip_mtbf: Mtbf = None,
    profile: Profile = None,
    prefill_on: Prefill = None,
    arrival_scv: load.Scv = None,
    prefix_hits: load.Hits = None,
    lengths: load.Lengths = None,
    changes: common.Changes = None,
    explain_rejected: Explain = False,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """How many systems serve a rate within objectives.

    Of which kind and in which plan, at the least cost.

    Objectives: --ttft-p99, --tpot-p99, --latency-p99, and p50, p90 and mean of each.

    Example: perfmodel size llama-3.3-70b --on dgx-h100 --rate 20 --ttft-p99 1s --tpot-p99 50ms
    """
    from perfmodel.errors import UserError
    from perfmodel.outputs.sizing import print_pools, print_sizing
    from perfmodel.question import number
    from perfmodel.serving.objectives import Objectives
    from perfmodel.studies import size as study

    if least not in study.GOALS:
        raise UserError(f"--least {least}: expected one of {', '.join(study.GOALS)}")
    objectives = Objectives(limits)
    wanted = [*load.load_changes(arrival_scv, prefix_hits, lengths), *(changes or [])]
    if prefill_on is not None:
        if len(on) != 1:
            raise UserError("--prefill-on needs one --on, the system of the pool that decodes")
        pair = study.disaggregated(model, prefill_on, on[0], load.read_rate(rate), objectives, given, wanted)
        if json:
            common.write_json(pair.to_dict())
        else:
            print_pools(pair, model, objectives, common.console())
        if pair.reason:
            print(f"perfmodel: {pair.reason}", file=sys.stderr)
        return DOES_NOT_FIT if pair.reason else OK
    with _watching() as tick:
        found = study.size(
            model,
            on,
            load.read_rate(rate),
            objectives,
            given,
            wanted,
            goal=least,
            precisions=[part.strip() for part in precisions.split(",")] if precisions else (),
            depths=[number("--ks", part) for part in ks.split(",")] if ks else (),
            most_chips=number("--max-chips", max_chips) if max_chips else study.MOST_CHIPS,
            available=number("--availability", availability) if availability else None,
            chip_mtbf=load.seconds("--chip-mtbf", chip_mtbf) if chip_mtbf else None,
            profile=[number("--profile", part) for part in profile.split(",")] if profile else (),
            tick=tick,
        )
    if json:
        common.write_json(found.to_dict())
    elif csv:
        common.write_csv(found.answers)
    else:
        print_sizing(found, common.console(), explain_rejected)
    if found.answers:
        return OK
    print(f"perfmodel: {found.reason}", file=sys.stderr)
    return DOES_NOT_FIT


class _watching:
    """A line on stderr that says which system is being worked out, where somebody watches."""

    def __init__(self) -> None:
        self.status: Any = None

    def __enter__(self) -> Any:
        if not sys.stderr.isatty():
            return None
        from rich.console import Console
        from rich.status import Status

        self.status = Status("plans", console=Console(stderr=True))
        self.status.start()
        return lambda word: self.status.update(f"plans of {word}")

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

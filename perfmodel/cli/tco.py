"""``perfmodel tco``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common, load

Tpot = Annotated[
    str | None,
    typer.Option(
        "--tpot", metavar="S", help="Bound on TPOT, such as 30ms: each system runs the most requests that keep it."
    ),
]
Samples = Annotated[
    str | None, typer.Option("--samples", metavar="N", help="Quasi-random samples over all that is not known.")
]


@common.asks
def tco(
    model: common.Model,
    on: common.Systems,
    given: Any,
    changes: common.Changes = None,
    tpot: Tpot = None,
    samples: Samples = None,
    json: common.Json = False,
    csv: common.Csv = False,
) -> int:
    """What a million tokens cost on each system, and how sure.

    What dominates the cost, and the price at which two systems tie.

    Without --concurrency each system runs as many requests at once as keep the bound on TPOT.

    Example: perfmodel tco llama-3.1-70b --on dgx-h100 --on dgx-b200 --tpot 30ms
    """
    from perfmodel.errors import UserError
    from perfmodel.outputs import tco as output
    from perfmodel.question import number
    from perfmodel.studies.cost import ownership, uncertainty

    bound = None if tpot is None else load.seconds("--tpot", tpot)
    count = uncertainty.SAMPLES if samples is None else number("--samples", samples)
    if not 64 <= count <= 2**20 or count != int(count):
        raise UserError(f"--samples {count:g}: must be a whole number from 64 to {2**20:,}; a power of 2 is best")
    result = ownership.own(model, on, given, changes or [], bound, int(count))
    if json:
        common.write_json(result.to_dict())
    elif csv:
        common.write_rows(output.flat_rows(result))
    else:
        output.print_owning(result, common.console())
    missing = [
        owned.answer.reason or f"{owned.name} {owned.missed}"
        for owned in result.systems
        if owned.answer.reason or owned.missed
    ]
    if len(missing) < len(result.systems):
        return OK
    print(f"perfmodel: {missing[0]}", file=sys.stderr)
    return DOES_NOT_FIT

"""Options about load that verbs share: objectives and arrivals."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common

#: Seconds by time and statistic: what objectives the command line names.
Limits = Mapping[tuple[str, str], float]
Rate = Annotated[str | None, typer.Option("--rate", metavar="R", help="Requests a second, all replicas together.")]
Scv = Annotated[
    str | None,
    typer.Option("--arrival-scv", metavar="C", help="Squared coefficient of variation of arrivals; 1 is Poisson."),
]
Hits = Annotated[
    str | None, typer.Option("--prefix-hits", metavar="H", help="Share of the prompt tokens found in a cache.")
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths", metavar="NAME|FILE", help="azure-chat, azure-code, mooncake-..., fixed, lognormal, a trace."
    ),
]

_TIMES = ("ttft", "tpot", "latency")
_WHAT = ("p50", "p90", "p99", "mean")


def objectives(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb one option for each objective in place of its parameter ``limits``."""
    signature = inspect.signature(verb, eval_str=True)
    names = [(time, what) for time in _TIMES for what in _WHAT]
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "limits":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for time, what in names:
            kind = Annotated[
                str | None,
                typer.Option(f"--{time}-{what}", metavar="S", help="Objective: 0.5, 500 ms.", hidden=what != "p99"),
            ]
            parameters.append(
                inspect.Parameter(f"{time}_{what}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            )

    def call(**arguments: Any) -> int:
        given = {(time, what): arguments.pop(f"{time}_{what}") for time, what in names}
        return verb(limits=_read(given), **arguments)

    call.__name__, call.__doc__, call.__module__ = verb.__name__, verb.__doc__, verb.__module__
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _read(given: dict[tuple[str, str], str | None]) -> dict[tuple[str, str], float]:
    return {(time, what): seconds(f"--{time}-{what}", text) for (time, what), text in given.items() if text is not None}


def seconds(name: str, text: str) -> float:
    """Read a time of an option [s]."""
    from perfmodel.question import number
    from perfmodel.specs.ranges import Range

    return number(name, text, Range("s", 0.0, 1e12, above=True))


def read_rate(text: str) -> float:
    """Read a rate of requests [1/s]."""
    from perfmodel.question import number
    from perfmodel.specs.ranges import Range

    return number("--rate", text, Range("1/s", 0.0, 1e9, above=True))


def load_changes(scv: str | None, hits: str | None, lengths: str | None) -> list[str]:
    """Return the changes of the traffic that options about load stand for."""
    found = []
    for path, value in (("arrival_scv", scv), ("prefix_hits", hits), ("lengths", lengths)):
        if value is not None:
            found.append(f"traffic.{path}={value}")
    return found


def refuse_without_rate(limits: Limits, changes: Sequence[str]) -> None:
    """Refuse objectives, and changes that only a load reads, where no requests arrive."""
    from perfmodel.errors import UserError

    for time, what in limits:
        raise UserError(f"--{time}-{what} is an objective of a load: give --rate with it")
    for change in changes:
        option = change.partition("=")[0].rpartition(".")[2].replace("_", "-")
        if option != "prefix-hits":
            raise UserError(f"--{option} is about a load: give --rate with it")


def answer(
    model: str,
    systems: Sequence[str],
    rate: str,
    given: Any,
    changes: Sequence[str],
    limits: Limits,
    *,
    json: bool,
    csv: bool,
    compared: bool = False,
) -> int:
    """Answer a question about a rate on given plans: the steady state at the mean number of requests, and the load."""
    from perfmodel.errors import UserError
    from perfmodel.outputs.sizing import asked, load_title, print_load
    from perfmodel.outputs.tables import shared
    from perfmodel.question import resolve, split_changes
    from perfmodel.serving.objectives import Objectives
    from perfmodel.studies.size import at_rate, load_dict

    if given.concurrency is not None:
        raise UserError("give either --rate or --concurrency")
    each = split_changes(systems, changes)
    scenarios = [resolve(model, on, given, mine) for on, mine in zip(systems, each, strict=True)]
    objectives = Objectives(limits)
    answers = [at_rate(scenario, read_rate(rate), objectives) for scenario in scenarios]
    if json:
        found = [load_dict(one) for one in answers]
        said = {key: shared([one[key] for one in found]) for key in ("assumed", "warnings")}
        common.write_json({"answers": found, **said} if compared else found[0])
    elif csv:
        common.write_csv(answers)
    else:
        print_load(answers, common.console(), f"{load_title(answers)}, {asked(objectives)}")
    missing = [one.reason for one in answers if one.reason]
    if len(missing) < len(answers):
        return OK
    print(f"perfmodel: {missing[0]}", file=sys.stderr)
    return DOES_NOT_FIT

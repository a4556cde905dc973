"""Options that the verbs share, and the ways an answer leaves."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from perfmodel.cli import DOES_NOT_FIT, OK
from perfmodel.errors import UserError
from perfmodel.options import Said, flag, options_of
from perfmodel.shapes import VERSION
from perfmodel.version import __version__

if TYPE_CHECKING:
    from perfmodel.planning.agents import Agents
    from perfmodel.planning.fit import FitAnswer
    from perfmodel.planning.load import Sized
    from perfmodel.planning.pools import Disaggregated
    from perfmodel.prediction import Prediction

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Name, alias, Hugging Face id or path of an architecture.")]
SYSTEM_HELP = (
    "System, if wanted with a plan: dgx-h100:tp=8,engine=vllm. Keys: plan tp pp ep dp attention_dp engine precision kv."
)
OneSystem = Annotated[str, typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=SYSTEM_HELP)]
Systems = Annotated[list[str], typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=f"{SYSTEM_HELP} Repeat it.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Vary an input: system.memory.hbm.bandwidth=+20%. Repeat it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the documented JSON object.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="All of it, not only the verdict.")]
Plot = Annotated[bool, typer.Option("--plot", help="Draw the frontier in the terminal.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV, one row an answer.")]


#: When answers have colour, which says what is met, what is missed and what decides.
COLORS = ("auto", "always", "never")
COLOR: ContextVar[str] = ContextVar("color", default="auto")
#: Characters of a line where no terminal breaks it.
_OF_A_FILE = 2000
#: The verb that runs, and what it was asked, as JSON has them.
ASKED: ContextVar[Mapping[str, Any]] = ContextVar("asked", default=MappingProxyType({}))
#: Parameters by the name that they have in a question, where that is another; None for ways out.
_IN_QUESTION = {"changes": "set", "json": None, "csv": None, "verbose": None}


def question_name(parameter: str) -> str | None:
    """Return the name of a parameter of a verb in the question of its JSON, which is that in Python; None for none."""
    return _IN_QUESTION.get(parameter, parameter)


class Verb(TyperCommand):
    """A verb whose question a project's file completes, and which refuses an option that is given twice for one.

    The parser would take the last.
    """

    def _take_project(self, ctx: Any, values: Mapping[str, Any]) -> None:
        """Let a project's file give what a command leaves open."""
        from perfmodel.cli.project import project

        if (of := project()) is None:
            return
        several = {each.name: bool(getattr(each, "multiple", False)) for each in self.params}
        given = {name for name, value in values.items() if isinstance(value, str | list | tuple | bool) and value}
        ctx.default_map = of.defaults(several, given)
        ctx.meta["notes"] = of.notes(ctx.default_map)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; its question is known to what prints the answer."""
        if not (notes := ctx.meta.get("notes")):
            return self._invoke(ctx)
        from perfmodel.cli.project import blamed
        from perfmodel.question.scenario import noting

        try:
            with noting(notes):
                return self._invoke(ctx)
        except UserError as error:
            raise UserError(f"{error}{blamed(str(error), ctx.default_map)}") from None

    def _invoke(self, ctx: Any) -> Any:
        given = {name: value for key, value in ctx.params.items() if value and (name := question_name(key))}
        token = ASKED.set({"verb": ctx.command_path.partition(" ")[2], "question": given})
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            # Typer would end with its code and without a word.
            raise typer.Abort from stopped
        finally:
            ASKED.reset(token)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of a verb; traffics of a mix, each with its rate, are one option."""
        if any(each.name == "separate" for each in self.params):
            args = _mixed(args)
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        self._take_project(ctx, values)
        for option in order:
            if (
                isinstance(option, TyperOption)
                and not option.multiple
                and not option.is_flag
                and order.count(option) > 1
            ):
                more = "; compare takes several" if option.name == "on" else ""
                raise UserError(f"{option.opts[0]} is given twice: {self.name} takes one{more}")
        return super().parse_args(ctx, args)


def _mixed(args: Sequence[str]) -> list[str]:
    """Return arguments with repeated ``--traffic NAME@RATE`` as one, with commas."""
    parts, rest = [], []
    waiting = iter(args)
    for arg in waiting:
        name, equals, value = arg.partition("=")
        if name != "--traffic":
            rest.append(arg)
        elif equals or (value := next(waiting, "")):
            parts.append(value)
    if len(parts) < 2 or not all("@" in part for part in parts):
        return list(args)
    return [*rest, "--traffic", ",".join(parts)]


def asks(kind: type, *needed: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a verb the options of a question in place of its parameter ``given``, which gets those that were given.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`.
    *needed : str
        Options that the verb cannot do without.
    """

    def give(verb: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(verb, eval_str=True)
        names = list(options_of(kind))
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.name == "given":
                parameters += [_option(name, said, name in needed) for name, said in options_of(kind).items()]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        def call(**arguments: Any) -> int:
            given = {name: text for name in names if (text := arguments.pop(name)) not in (None, False)}
            return verb(given=given, **arguments)

        call.__name__, call.__doc__, call.__module__ = verb.__name__, verb.__doc__, verb.__module__
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return give


def _option(name: str, said: Said, needed: bool) -> inspect.Parameter:
    """Return an option of a question as a parameter of a verb: text, which is read behind the border, or a switch."""
    if said.switch:
        switch = Annotated[bool, typer.Option(flag(name), help=said.help, hidden=said.hidden)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=switch)
    option = typer.Option(flag(name), metavar=said.metavar, help=said.help, hidden=said.hidden)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if needed else None,
        annotation=Annotated[str, option] if needed else Annotated[str | None, option],
    )


def one_of(**given: object) -> None:
    """Refuse ways out that exclude each other: one answer leaves in one form.

    Parameters
    ----------
    **given
        What was given of each, by the name of its option.
    """
    found = [flag(name) for name, value in given.items() if value]
    if len(found) > 1:
        raise UserError(f"give either {' or '.join(found)}: an answer leaves in one form")


def code(answers: Sequence[Prediction | Sized | Agents]) -> int:
    """Return the exit code of answers: where none has numbers, or meets its objectives, standard error says why."""
    missing = [why for answer in answers if (why := answer.reason or getattr(answer, "missed", ""))]
    if len(missing) < len(answers):
        return OK
    print(f"perfmodel: {missing[0]}", file=sys.stderr)
    return DOES_NOT_FIT


class _Trimmed:
    """A file to which lines go without the blanks that fill a table's last column."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


def console() -> Any:
    """Return what to print tables on: a terminal with its width, or a file, in which no line is broken."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _OF_A_FILE
    forced = {"auto": None, "always": True, "never": False}[COLOR.get()]
    out: Any = sys.stdout if sys.stdout.isatty() else _Trimmed()
    return Console(file=out, highlight=False, soft_wrap=False, width=width, force_terminal=forced)


def print_predictions(answers: Sequence[Prediction], verbose: bool) -> None:
    """Print predictions: the verdict and what decides, or all of it."""
    if verbose:
        from perfmodel.outputs.brief import print_verdict
        from perfmodel.outputs.tables import print_comparison

        print_verdict(answers, console())
        print_comparison(answers, console())
    else:
        from perfmodel.outputs.brief import print_brief

        print_brief(answers, console())


def write_csv(answers: Sequence[Prediction | FitAnswer | Sized | Disaggregated | Agents]) -> None:
    """Print answers as CSV: RFC 4180, ISO numbers."""
    write_rows([answer.row() for answer in answers])


def write_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as CSV; what a row does not have stays empty."""
    import csv

    from perfmodel.writing import text_cell

    if not rows:
        return
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\r\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: text_cell(value) if isinstance(value, str) else value for key, value in row.items()})


def write_json(answer: Mapping[str, Any]) -> None:
    """Print an answer as JSON, after the question that it answers; there is no NaN in it."""
    from perfmodel.specs.release import numbers_version

    head = {"schema_version": VERSION, "perfmodel": __version__, "numbers_version": numbers_version()}
    print_json({**head, **ASKED.get(), **answer})


def print_json(content: Mapping[str, Any]) -> None:
    """Print an object as JSON."""
    import json

    print(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False))


class progress:
    """A bar on stderr while something long goes on, nothing where it is short or nobody watches."""

    def __init__(self, what: str, total: int | None, least: int = 0) -> None:
        self.what, self.total, self.least = what, total, least
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], Any]:
        if (self.total is not None and self.total < self.least) or not sys.stderr.isatty():
            return lambda _: None
        from rich.console import Console
        from rich.progress import Progress

        self.bar = Progress(console=Console(stderr=True), transient=True)
        self.bar.start()
        task = self.bar.add_task(self.what, total=self.total)
        return lambda done: self.bar.advance(task, done)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


class watching:
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

"""``perfmodel specs``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from perfmodel.cli import OK, REFUSED, common

specs = typer.Typer(
    help="List, show and check the spec files.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


Engine = Annotated[str | None, typer.Option("--engine", metavar="ENGINE", help="Of a system: vllm, trtllm, ...")]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@specs.command("list", cls=common.Verb)
def list_specs(
    what: Annotated[str, typer.Argument(metavar="[systems|models|traffics|sessions]", help="What to list.")] = "",
    json: common.Json = False,
) -> None:
    """All specs with what decides of them, the user's own first: memory, rates, price; class and precision; tokens."""
    from perfmodel.specs import catalog

    kinds = [catalog.kind_named(what)] if what else list(catalog.FOLDERS)
    rows = [
        {"name": name, "kind": kind, "aliases": aliases} for kind in kinds for name, aliases, _ in catalog.entries(kind)
    ]
    if json:
        common.write_json({"specs": rows})
        return
    from perfmodel.outputs.listing import ESTIMATE, listing

    for kind in kinds:
        _print(*listing(kind))
    if "system" in kinds:
        print(f"{ESTIMATE} before a number: an estimate; specs show NAME has its source and range")


@specs.command("show", cls=common.Verb)
def show_spec(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name, alias or path of a spec.")],
    engine: Engine = None,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts",
            help="Of a model: parameters by part, bytes by precision, cache by context, fields that were read.",
        ),
    ] = False,
    context: Annotated[
        list[str] | None,
        typer.Option("--context", metavar="N", help="With --counts: tokens of a sequence. Repeat it."),
    ] = None,
    json: common.Json = False,
) -> None:
    """Every number of a spec: value, where it came from, and which file says so."""
    from perfmodel.errors import UserError
    from perfmodel.outputs.specs import print_spec, spec_rows

    if context and not counts:
        raise UserError("--context goes with --counts")
    if counts and engine is not None:
        raise UserError("--counts is of a model, which has no engine")
    if counts:
        from perfmodel.outputs import counts as counted
        from perfmodel.question import number
        from perfmodel.specs.ranges import Range

        tokens = [number("--context", written, Range("1", 1.0, 1e9, whole=True)) for written in context or ()]
        counted_spec = counted.counts(name, tokens)
        if json:
            common.write_json(counted_spec)
        else:
            counted.print_counts(counted_spec, common.console())
        return
    rows = spec_rows(name, engine)
    if json:
        common.write_json({"numbers": rows})
    else:
        print_spec(rows, common.console())


@specs.command("check", cls=common.Verb)
def check_specs(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help="Files; all specs if none.")] = None,
) -> int:
    """Every error of spec files at once, each with file, line, field and what was expected."""
    from perfmodel.specs.check import check_files

    checked, problems = check_files(paths or [])
    for problem in problems:
        print(f"perfmodel: {problem}", file=sys.stderr)
    print(f"{_counted(checked, 'file')} checked, {_counted(len(problems), 'problem')}")
    return REFUSED if problems else OK


@specs.command("new", cls=common.Verb)
def new_spec(
    what: Annotated[str, typer.Argument(metavar="chip|model|machine|session", help="What to write a skeleton of.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
) -> None:
    """Write the skeleton of a chip, a model, a session or a package with a kind of machine, with its test."""
    from pathlib import Path

    from perfmodel.specs.skeleton import write

    for path in write(what, name, Path()):
        print(path)


@specs.command("diff", cls=common.Verb)
def diff_specs(
    first: Annotated[str, typer.Argument(metavar="NAME", help="Name, alias or path of a spec.")],
    other: Annotated[str, typer.Argument(metavar="NAME", help="The one to compare with.")],
    json: common.Json = False,
) -> None:
    """Every number in which two specs differ, with the source of both."""
    from perfmodel.outputs.specs import differences

    rows = differences(first, other)
    if json:
        common.write_json({"differences": rows})
        return
    _print(
        ("path", first, other, "sources"),
        [
            (
                row["path"],
                row["shown_1"] or "-",
                row["shown_2"] or "-",
                f"{row['source_1'] or '-'}, {row['source_2'] or '-'}",
            )
            for row in rows
        ],
    )


@specs.command("search", cls=common.Verb)
def search_specs(
    word: Annotated[str, typer.Argument(metavar="WORD", help="Part of a name, a path, a source or a note.")],
    json: common.Json = False,
) -> None:
    """Names, paths, sources and notes of all specs in which a word stands."""
    from perfmodel.outputs.specs import matches

    matching = matches(word)
    if json:
        common.write_json({"specs": matching})
        return
    _print(
        ("spec", "path", "value", "source", "note"),
        [
            cells
            for entry in matching
            for cells in [
                (f"{entry['name']} ({entry['kind']})", "", "", "", ", ".join(entry["aliases"])),
                *((entry["name"], row["path"], row["shown"], row["source"], row["note"]) for row in entry["numbers"]),
            ]
        ],
    )


@specs.command("schema", cls=common.Verb)
def print_schema(
    verb: Annotated[
        list[str] | None, typer.Argument(metavar="[VERB]", help="A verb, or error; the names of all if none.")
    ] = None,
) -> None:
    """The JSON Schema of what a verb prints under --json: closed, draft 2020-12.

    Example: perfmodel specs schema predict
    """
    from perfmodel.cli import schemas

    if verb:
        common.print_json(schemas.schema(" ".join(verb)))
    else:
        print("\n".join((*schemas.ANSWERS, schemas.ERROR)))


def _print(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    common.console().print(table)

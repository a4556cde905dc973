"""The application: its verbs, and how errors leave it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from perfmodel.cli import INTERRUPTED, OK, OUR_FAULT, REFUSED, common
from perfmodel.errors import UserError
from perfmodel.shapes import VERSION
from perfmodel.writing import reason

#: Each verb is a module of its name with a function of its name, or a group of commands.
VERBS = (
    "predict",
    "compare",
    "sweep",
    "fit",
    "collective",
    "tco",
    "explain",
    "solve",
    "export",
    "size",
    "capacity",
    "simulate",
    "whatif",
    "bench-plan",
    "calibrate",
    "validate",
    "launch",
    "runs",
    "report",
    "specs",
    "traffic",
    "plans",
    "selfcheck",
    "completion",
    "mcp",
)


def _version(wanted: bool) -> None:
    if wanted:
        from perfmodel.specs.release import versions

        print(versions())
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    color: Annotated[
        str, typer.Option("--color", metavar="WHEN", help="With any verb: auto, always or never; NO_COLOR counts too.")
    ] = "auto",
    cite: Annotated[
        bool, typer.Option("--cite", help="With any verb: print the sources behind the answer after it, as BibTeX.")
    ] = False,
) -> None:
    """Which inference hardware, how much of it, at what speed and what cost."""


def application(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """Return the application with some of its verbs; reading the options of all takes longer than a prediction."""
    app = typer.Typer(
        name="perfmodel",
        help=_root.__doc__,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for name in verbs:
        word = name.replace("-", "_")
        verb = getattr(import_module(f"perfmodel.cli.{word}"), word)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb, name=name)
        else:
            app.command(cls=common.Verb)(verb)
    return app


def _coloured(arguments: list[str]) -> list[str]:
    """Return the words of a command without --color, which stands anywhere and holds for all that is printed."""
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if word == "--":
            break
        if name == "--color":
            value = value if equals else "".join(arguments[at + 1 : at + 2])
            if value not in common.COLORS:
                raise UserError(f"--color {value}: expected one of {', '.join(common.COLORS)}")
            common.COLOR.set(value)
            return arguments[:at] + arguments[at + (1 if equals else 2) :]
    common.COLOR.set("auto")
    return arguments


@functools.cache
def command(verbs: tuple[str, ...]) -> Any:
    """Return the command line of some verbs; who asks in one process asks again."""
    return typer.main.get_command(application(verbs))


def _line(message: str) -> str:
    """Return a message as one line; names may hold anything, and a terminal obeys control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(message.split()))


def _complain(message: str) -> None:
    print(f"perfmodel: {_line(message)}", file=sys.stderr)


#: What went wrong, in the JSON of an error.
_KINDS = {REFUSED: "refused", OUR_FAULT: "internal", INTERRUPTED: "interrupted"}


def _failed(arguments: list[str], message: str, code: int) -> int:
    """Say what went wrong, where JSON was asked for as JSON too, and return the exit code."""
    _complain(message)
    if "--json" in arguments:
        common.print_json({"schema_version": VERSION, "error": {"kind": _KINDS[code], "message": _line(message)}})
    return code


def _write_no_more() -> None:
    """Print nothing more, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _citing(arguments: list[str]) -> int:
    """Run a verb, and print the sources behind its answer: after a table, else on standard error."""
    from perfmodel.outputs.citations import cited, text
    from perfmodel.question import asked

    rest = [argument for argument in arguments if argument != "--cite"]
    with asked() as scenarios:
        code = invoke(rest)
    if code == OK:
        out = sys.stderr if {"--json", "--csv"} & set(rest) else sys.stdout
        print(f"\n{text(cited(scenarios))}", end="", file=out)
    return code


def invoke(arguments: list[str]) -> int:
    """Run the application and turn every error into one line and an exit code."""
    if "--cite" in arguments:
        return _citing(arguments)
    try:
        arguments = _coloured(arguments)
        verbs = tuple(arguments[:1]) if arguments and arguments[0] in VERBS else VERBS
        code = command(verbs)(args=arguments, prog_name="perfmodel", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except UserError as error:
        return _failed(arguments, str(error), REFUSED)
    except (BrokenPipeError, SystemExit):
        # The reader of a pipe has seen enough, for which rich exits.
        _write_no_more()
        return OK
    except OSError as error:
        # Files are checked where they are written; what has no name is the output, which fails once more at exit.
        if error.filename is None:
            _complain(f"the output: {reason(error)}")
            _write_no_more()
            return REFUSED
        return _failed(arguments, f"{error.filename}: {reason(error)}", REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return _failed(arguments, "interrupted", INTERRUPTED)
    except Exception as error:
        if hasattr(error, "format_message"):
            if error.__class__.__name__ == "NoArgsIsHelpError":
                print(error.format_message())
                return OK
            return _failed(arguments, f"{error.format_message()} (perfmodel --help)", REFUSED)
        if os.environ.get("PERFMODEL_DEBUG"):
            raise
        what = f"internal error: {error.__class__.__name__}: {error}"
        return _failed(arguments, f"{what} (PERFMODEL_DEBUG=1 shows where; please report it)", OUR_FAULT)

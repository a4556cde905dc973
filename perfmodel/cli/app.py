"""The application: its verbs, and how errors leave it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from perfmodel import __version__
from perfmodel.cli import OK, OUR_FAULT, REFUSED
from perfmodel.cli.calibrate import calibrate
from perfmodel.cli.compare import compare
from perfmodel.cli.explain import explain
from perfmodel.cli.export import export
from perfmodel.cli.fit import fit
from perfmodel.cli.predict import predict
from perfmodel.cli.report import report
from perfmodel.cli.simulate import simulate
from perfmodel.cli.size import size
from perfmodel.cli.solve import solve
from perfmodel.cli.specs import specs_app
from perfmodel.cli.sweep import sweep
from perfmodel.cli.tco import tco
from perfmodel.cli.validate import validate
from perfmodel.cli.whatif import whatif
from perfmodel.errors import UserError

app = typer.Typer(
    name="perfmodel",
    help="Which inference hardware, how much of it, at what speed and what cost.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"perfmodel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which inference hardware, how much of it, at what speed and what cost."""


_VERBS: tuple[Callable[..., Any], ...] = (
    predict,
    compare,
    sweep,
    fit,
    tco,
    explain,
    solve,
    export,
    size,
    simulate,
    whatif,
    calibrate,
    validate,
    report,
)
for verb in _VERBS:
    app.command()(verb)
app.add_typer(specs_app, name="specs")


def _complain(message: str) -> None:
    print(f"perfmodel: {' '.join(message.split())}", file=sys.stderr)


def invoke(arguments: list[str]) -> int:
    """Run the application and turn every error into one line and an exit code."""
    try:
        code = app(args=arguments, prog_name="perfmodel", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except UserError as error:
        _complain(str(error))
        return REFUSED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (KeyboardInterrupt, typer.Abort):
        _complain("interrupted")
        return 130
    except Exception as error:
        if hasattr(error, "format_message"):
            if error.__class__.__name__ == "NoArgsIsHelpError":
                print(error.format_message())
                return OK
            _complain(f"{error.format_message()} (perfmodel --help)")
            return REFUSED
        if os.environ.get("PERFMODEL_DEBUG"):
            raise
        _complain(
            f"internal error: {error.__class__.__name__}: {error} (PERFMODEL_DEBUG=1 shows where; please report it)"
        )
        return OUR_FAULT

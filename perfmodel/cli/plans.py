"""``perfmodel plans``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfmodel.cli import DOES_NOT_FIT, OK, common

plans = typer.Typer(
    help="Check plans that size --save wrote.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@plans.callback()
def _group() -> None:
    """Check plans that size --save wrote."""


@plans.command("check", cls=common.Verb)
def check_plan(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A plan that size --save wrote.")],
    json: common.Json = False,
) -> int:
    """Answer the question of a plan again, and say what moved and why.

    Exit code 3 where another plan, or another number of replicas, is the answer now.

    Example: perfmodel plans check plan.yaml
    """
    from perfmodel import api

    checked = api.check_plan(Path(path))
    if json:
        common.write_json(checked.to_dict())
    else:
        from perfmodel.outputs.plans import print_checked

        print_checked(checked, common.console())
    return OK if checked.holds else DOES_NOT_FIT

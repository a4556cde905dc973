"""``perfmodel selfcheck``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfmodel.cli import OK, OUR_FAULT, common

Files = Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help="Specs of one's own, which must load.")]
_WORDS = {True: "holds", False: "FAILS", None: "not here"}


def selfcheck(files: Files = None, json: common.Json = False) -> int:
    """Prove on this machine what every answer rests on, in seconds.

    Sums that must be their wholes, and one number from every back end: arrays, the numbered program, C, JavaScript.

    A file of yours that is wrong is refused before anything runs.

    Example: perfmodel selfcheck my-chip.yaml
    """
    from perfmodel import api

    answer = api.selfcheck(*files or ())
    if json:
        common.write_json(answer.to_dict())
    else:
        failed = sum(check.holds is False for check in answer.checks)
        tried = sum(check.holds is not None for check in answer.checks)
        verdict = f"{failed} of {tried} checks fail" if failed else f"all {tried} checks hold"
        console = common.console()
        console.print(f"{verdict}, in {answer.seconds:.2g} s", style="red" if failed else "bold")
        for check in answer.checks:
            console.print(f"{_WORDS[check.holds]:8}  {check.name}: {check.detail}", markup=False)
    return OK if answer.holds else OUR_FAULT

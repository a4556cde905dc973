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

    found = api.selfcheck(*files or ())
    if json:
        common.write_json(found.to_dict())
    else:
        failed = sum(one.holds is False for one in found.checks)
        tried = sum(one.holds is not None for one in found.checks)
        verdict = f"{failed} of {tried} checks fail" if failed else f"all {tried} checks hold"
        console = common.console()
        console.print(f"{verdict}, in {found.seconds:.2g} s", style="red" if failed else "bold")
        for one in found.checks:
            console.print(f"{_WORDS[one.holds]:8}  {one.name}: {one.detail}", markup=False)
    return OK if found.holds else OUR_FAULT

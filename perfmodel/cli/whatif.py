"""``perfmodel whatif``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import OK, common

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL...]", help="Models that the page offers; all bundled ones if none."),
]
On = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=f"{common.SYSTEM_HELP} Repeat it; all if none."),
]
Out = Annotated[str, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")]


@common.asks
def whatif(given: Any, models: Models = None, on: On = None, out: Out = "whatif.html") -> int:
    """Write one page that works offline: pick a system, a model and a traffic, move any number, compare, share a link.

    With all bundled systems and models it takes a minute or two.
    """
    from perfmodel.errors import UserError
    from perfmodel.outputs import whatif as output
    from perfmodel.outputs.offers import ask_each, offer
    from perfmodel.specs import catalog

    path = Path(out)
    output.check_path(path)
    every = {kind: [name for name, _, _ in catalog.entries(kind)] for kind in ("system", "model", "traffic")}
    asked = models or every["model"], on or every["system"]
    with common.progress("pairs", len(asked[0]) * len(asked[1])) as tick:
        scenarios = ask_each(*asked, given, tick=tick)
    if not scenarios:
        raise UserError("whatif: none of the models can be laid out on any of the systems as asked")
    first = given.traffic or "chat"
    traffics = [first, *(name for name in every["traffic"] if name != first)]
    held = offer(scenarios)
    output.save(output.html(held, given, traffics, sys.argv[1:]), path)
    print(f"wrote {path}: {len(held.systems)} systems, {len(held.models)} models", file=sys.stderr)
    return OK

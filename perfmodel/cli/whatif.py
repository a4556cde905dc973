"""``perfmodel whatif``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfmodel.cli import OK, common
from perfmodel.options import Priced

Models = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODEL...]", help="Models that the page offers; all bundled ones if none."),
]
On = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="SYSTEM[:KEY=VALUE,...]", help=f"{common.SYSTEM_HELP} Repeat it; a dozen if none."),
]
Out = Annotated[str, typer.Option("--out", metavar="FILE.html", help="Where to write the page.")]


@common.asks(Priced)
def whatif(
    given: Any, models: Models = None, on: On = None, out: Out = "whatif.html", json: common.Json = False
) -> int:
    """Write a calculator page that works offline.

    Pick a system, a model and a traffic, move any number, compare, share a link.

    With a dozen systems and all bundled models it takes about a minute.

    Example: perfmodel whatif llama-3.1-70b --on dgx-h100 --on lpu-v1 --out whatif.html
    """
    from perfmodel.compilers import whatif as output
    from perfmodel.question import taken

    options, _, _ = taken(Priced, on or [], (), given)
    with common.progress("pairs", None) as tick:
        held = output.write(models or [], on or [], options, Path(out), sys.argv[1:], tick)
    if json:
        common.write_json({"written": [out]})
    print(f"wrote {out}: {len(held.systems)} systems, {len(held.models)} models", file=sys.stderr)
    return OK

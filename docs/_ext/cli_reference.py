"""``docs/cli.md`` from the commands themselves: ``python docs/_ext/cli_reference.py`` writes it, a test compares."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "cli.md"

_HEAD = """\
<!-- Written by `python docs/_ext/cli_reference.py` from the commands: edit their help instead. -->
# Command line

`perfmodel VERB --help` prints the same in a terminal. An answer goes to standard output; an error is one line on
standard error, and with `--json` [an object](json.md). [Exit codes](quickstart.md#exit-codes) are 0 answered, 2 refused
before computing, 3 does not fit, 1 our fault.

## Options of a question

Verbs that ask a question take these beside their own. What is not given is assumed, and the answer says as what.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Give the name and the click command of every verb, sub-verbs spelled out."""
    from perfmodel.cli import schemas

    yield from ((f"perfmodel {name}", command) for name, command in schemas.commands())


def _escaped(words: str) -> str:
    """Return words that Markdown shows as they stand."""
    said, example, command = " ".join(words.split()).partition("Example: ")
    return re.sub(r"([*_<>\[\]`|\\])", r"\\\1", said) + (f"{example}`{command}`" if example else "")


def _typed(parameter: Any) -> str:
    """Return an argument or option as it is typed."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    value = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in parameter.opts)


def _entries(parameters: list[Any]) -> Iterator[str]:
    """Give parameters as terms and what they mean; neighbours that mean the same share an entry."""
    for (words, required, default), same in groupby(parameters, lambda p: (p.help, p.required, p.default)):
        notes = ["required"] if required else []
        if not required and isinstance(default, str | int | float) and not isinstance(default, bool):
            notes.append(f"default {default}")
        said = f" ({', '.join(notes)})" if notes else ""
        yield f"{', '.join(map(_typed, same))}{said}\n: {_escaped(words or '')}"


def reference() -> str:
    """Return the page."""
    from perfmodel.options import Question, options_of

    found, asked = dict(commands()), options_of(Question)
    asking = {name for name, command in found.items() if asked.keys() <= {p.name for p in command.params}}
    shared = [p for p in found["perfmodel predict"].params if p.name in asked]
    parts = [_HEAD, *_entries(shared)]
    for name, command in found.items():
        parts += [f"## {name}", *(_escaped(words) for words in inspect.cleandoc(command.help or "").split("\n\n"))]
        parts += _entries([p for p in command.params if name not in asking or p.name not in asked])
        if name in asking:
            listed = " ".join(f"`{option}`" for p in shared for option in p.opts)
            parts.append(f"[Options of a question](#options-of-a-question)\n: {listed}")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")

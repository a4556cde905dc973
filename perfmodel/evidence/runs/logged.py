"""What a server printed of its arguments when it started: a Python repr, of which some values are no literals."""

from __future__ import annotations

import ast
import re
from typing import Any

from perfmodel.errors import UserError

_VLLM = re.compile(r"non-default args: ?(?=\{)")
_SGLANG = re.compile(r"server_args=(?:ServerArgs(?=\()|(?=\{))")
#: How logs name the release of their engine; newer ones of vLLM do so in a banner.
_RELEASES = {
    "vllm": re.compile(r"(?:vLLM API server version|LLM engine \(v?|█ +version)\s*v?(\d+\.\d+(?:\.\d+)?)"),
    "sglang": re.compile(r"sglang[ =:]+v?(\d+\.\d+\.\d+)", re.IGNORECASE),
}
_OPEN, _CLOSE = "([{<", ")]}>"


def _parts(text: str, start: int) -> list[str] | None:
    """Return what commas part inside the brackets that open at a place; None where they do not close."""
    depth, quote, begin = 0, "", start + 1
    parts: list[str] = []
    for at in range(start, len(text)):
        letter = text[at]
        if quote:
            quote = "" if letter == quote and text[at - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
            if depth == 0:
                return [*parts, text[begin:at]]
        elif letter == "," and depth == 1:
            parts.append(text[begin:at])
            begin = at + 1
    return None


def _argument(part: str) -> tuple[str, Any]:
    """Return name and value of ``'name': value`` or ``name=value``; the repr of an object stays as text."""
    found = re.match(r"\s*(?:'(\w+)'\s*:|(\w+)=)\s*(.*)", part, re.DOTALL)
    if found is None:
        return "", None
    name, value = found[1] or found[2], found[3].strip()
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def arguments(text: str, name: str) -> tuple[str, dict[str, Any]]:
    """Return the engine of a log and the arguments that it printed.

    Parameters
    ----------
    text : str
    name : str
        Of the file, for a refusal.

    Returns
    -------
    tuple of str and dict
        ``vllm`` or ``sglang``, empty where none is printed; arguments by the name that the engine gives them.
    """
    for engine, mark in (("vllm", _VLLM), ("sglang", _SGLANG)):
        if (found := mark.search(text)) is None:
            continue
        parts = _parts(text, found.end())
        if parts is None:
            raise UserError(f"{name}: the {engine} log ends inside its arguments; give it whole")
        pairs = map(_argument, parts)
        return engine, {name: value for name, value in pairs if name}
    return "", {}


def release_of(engine: str, text: str) -> str:
    """Return the release that a log names, empty where it names none.

    Parameters
    ----------
    engine : str
        ``vllm`` or ``sglang``.
    text : str
    """
    found = _RELEASES[engine].search(text)
    return "" if found is None else found[1]

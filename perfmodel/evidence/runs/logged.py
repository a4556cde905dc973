"""What a server printed of its arguments when it started: a Python repr, of which some values are no literals."""

from __future__ import annotations

import ast
import re
from typing import Any

from perfmodel.errors import UserError

_VLLM = re.compile(r"non-default args: ?(?=\{)")
_SGLANG = re.compile(r"server_args=(?:ServerArgs(?=\()|(?=\{))")
_PAIRS = re.compile(r"(?:'(\w+)': |(?<=[(,\s])(\w+)=)('[^']*'|\"[^\"]*\"|[-\w.+]+)")
_OPEN, _CLOSE = "([{", ")]}"


def _balanced(text: str, start: int) -> str:
    """Return what stands in the brackets that open at a place, with them; empty where they do not close."""
    depth, quote = 0, ""
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
                return text[start : at + 1]
    return ""


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.strip("'\"")


def _read(text: str) -> dict[str, Any]:
    """Return the arguments of a dict's or a dataclass's repr; what is no literal stays as text."""
    try:
        tree = ast.parse(f"f{text}" if text.startswith("(") else text, mode="eval").body
    except SyntaxError:
        # Objects in angle brackets; the plain arguments around them can still be read.
        return {one or other: _literal(value) for one, other, value in _PAIRS.findall(text)}
    if isinstance(tree, ast.Dict):
        pairs = [
            (key.value, value)
            for key, value in zip(tree.keys, tree.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    elif isinstance(tree, ast.Call):
        pairs = [(word.arg, word.value) for word in tree.keywords]
    else:
        return {}
    return {str(name): _literal(ast.unparse(value)) for name, value in pairs}


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
        body = _balanced(text, found.end())
        if not body:
            raise UserError(f"{name}: the {engine} log ends inside its arguments; give it whole")
        return engine, _read(body)
    return "", {}

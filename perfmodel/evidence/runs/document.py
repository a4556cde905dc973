"""A file that a user gives: its text, and what JSON, YAML or CSV it holds.  What it is called says nothing."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError

#: Bytes of a file at the most; logs of a day are smaller.
MOST_BYTES = 512 * 2**20
_MAPPING = re.compile(r"\s*(---|[\w'\"]+[\w .'\"-]*:(\s|$))")
#: How JSON begins; a line of a log may begin with a bracket too.
_JSON = re.compile(r"\s*(\{|\[\s*[\[{\"\]])")
_COLUMN = re.compile(r"[\w. ()\[\]/-]{1,60}")
_KEY = re.compile(r'"([^"\\]{1,80})"\s*:')


@dataclass(frozen=True)
class Document:
    """One file.

    Attributes
    ----------
    name : str
        Of the file, for what is said of it.
    text : str
    """

    name: str
    text: str

    @cached_property
    def objects(self) -> list[Mapping[str, Any]]:
        """JSON objects, alone, in a list or a line each, or those of a YAML file; none where it is neither."""
        if _JSON.match(self.text):
            return self._json()
        if not _MAPPING.match(self.text):
            return []
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            found = YAML(typ="safe").load(self.text)
        except (YAMLError, ValueError, RecursionError):
            return []
        return [found] if isinstance(found, Mapping) else []

    def _json(self) -> list[Mapping[str, Any]]:
        decoder, entries, at = json.JSONDecoder(), [], 0
        text = self.text.strip()
        try:
            while at < len(text):
                entry, at = decoder.raw_decode(text, at)
                entries += entry if isinstance(entry, list) else [entry]
                at = len(text) - len(text[at:].lstrip(" \r\n\t,"))
        except (json.JSONDecodeError, RecursionError):
            return []
        return [entry for entry in entries if isinstance(entry, Mapping)]

    @property
    def cut_off(self) -> bool:
        """Whether it begins as JSON and does not end as JSON."""
        return bool(_JSON.match(self.text)) and not self.objects

    @property
    def is_log(self) -> bool:
        """Whether it is neither JSON nor YAML nor a table, in whose cells a line of a log may stand."""
        table = len(self.header) >= 4 and all(_COLUMN.fullmatch(cell) for cell in self.header)
        return not (self.objects or self.cut_off or table)

    @cached_property
    def keys(self) -> frozenset[str]:
        """Keys of JSON or YAML at any depth; of JSON that is cut off those that are there."""
        if self.cut_off:
            return frozenset(_KEY.findall(self.text))
        return frozenset(_keys(self.objects))

    @cached_property
    def tables(self) -> list[list[list[str]]]:
        """Blocks of a CSV between empty lines, each with its header; cells are stripped."""
        lines = (line for line in io.StringIO(self.text, newline="") if not line.startswith("#"))
        blocks: list[list[list[str]]] = [[]]
        try:
            for row in csv.reader(lines, skipinitialspace=True):
                if any(cell.strip() for cell in row):
                    blocks[-1].append([cell.strip() for cell in row])
                elif blocks[-1]:
                    blocks.append([])
        except csv.Error:
            return []
        return [block for block in blocks if block]

    @property
    def header(self) -> list[str]:
        """Cells of the first line of a CSV."""
        first = next((line for line in self.text.splitlines() if line.strip() and not line.startswith("#")), "")
        return [cell.strip() for cell in next(csv.reader([first], skipinitialspace=True), [])]


def _keys(content: Any) -> set[str]:
    """Return the keys at any depth; what a file holds twice by an alias is looked at once."""
    keys: set[str] = set()
    seen: set[int] = set()
    waiting = [content]
    while waiting:
        entry = waiting.pop()
        if id(entry) in seen:
            continue
        if isinstance(entry, Mapping):
            seen.add(id(entry))
            keys.update(map(str, entry))
            waiting += entry.values()
        elif isinstance(entry, list):
            seen.add(id(entry))
            # Lists of a request each are long and hold numbers.
            waiting += entry[:100]
    return keys


def read(path: Path) -> Document:
    """Read a file.

    Raises
    ------
    UserError
        Where it cannot be read.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"{path}: more than {MOST_BYTES // 2**20} MiB; give the part with the run")
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not text.strip():
        raise UserError(f"{path}: the file is empty")
    return Document(path.name, text)


class Record:
    """One object of a file, whose fields are asked for by dotted paths.

    Parameters
    ----------
    document : Document
    label : str
        What the format is called.
    content : mapping
    """

    def __init__(self, document: Document, label: str, content: Mapping[str, Any]) -> None:
        self.name, self.label, self.content = document.name, label, content

    def find(self, path: str) -> Any:
        """Return what stands at a path, None where nothing does."""
        if path in self.content:
            return self.content[path]
        value: Any = self.content
        for part in path.split("."):
            if isinstance(value, Sequence) and not isinstance(value, str) and part.isdigit():
                value = value[int(part)] if int(part) < len(value) else None
            elif isinstance(value, Mapping):
                value = value.get(part)
            else:
                return None
        return value

    def text(self, path: str) -> str:
        """Return a text or a number as text, empty where there is none."""
        found = self.find(path)
        return "" if found is None or isinstance(found, Mapping | list) else str(found)

    def number(self, path: str) -> float | None:
        """Return a finite number, None where there is none.

        Raises
        ------
        UserError
            Where something else stands there.
        """
        text = self.find(path)
        if text is None or isinstance(text, bool):
            return None
        try:
            value = float(text)
        except (TypeError, ValueError):
            raise UserError(f"{self.name} ({self.label}): {path} {text!r} is not a number") from None
        return value if math.isfinite(value) else None

    def need(self, path: str) -> float:
        """Return a number that a whole file has.

        Raises
        ------
        UserError
            Where it is missing; the message names it.
        """
        value = self.number(path)
        if value is None:
            raise UserError(f"{self.name} ({self.label}): no field '{path}'; the file is not whole")
        return value

    def below(self, path: str) -> Record | None:
        """Return the object at a path as a record."""
        found = self.find(path)
        return Record(Document(self.name, ""), self.label, found) if isinstance(found, Mapping) else None

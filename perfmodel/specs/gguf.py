"""The header of a GGUF file: its fields, and how each tensor is stored.

Layout and sizes of blocks follow ggml's ``docs/gguf.md`` and ``ggml.c`` (MIT).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError

_MAGIC = b"GGUF"
#: A header holds vocabularies; what is larger is none.
_MOST_ENTRIES, _MOST_TEXT = 10**7, 10**8
#: Sizes of the plain values of the metadata, by their number.
_PLAIN = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
#: Name, weights and bytes of a block of each type of tensor, by its number.
TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: its name, its sizes and its type."""

    name: str
    sizes: tuple[int, ...]
    type: int

    @property
    def weights(self) -> float:
        """Number of weights."""
        count = 1
        for size in self.sizes:
            count *= size
        return float(count)

    @property
    def stored(self) -> float:
        """Bytes of the tensor [B]."""
        _, weights, size = TYPES[self.type]
        return self.weights / weights * size


@dataclass(frozen=True)
class Header:
    """Fields and tensors of one file, or of all shards."""

    fields: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


class _Reader:
    def __init__(self, path: Path, file: BufferedReader) -> None:
        self.path, self.file = path, file

    def broken(self, why: str) -> UserError:
        return UserError(f"{self.path}: is no GGUF file that can be read: {why}")

    def plain(self, form: str) -> Any:
        data = self.file.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise self.broken("it ends within its header")
        return struct.unpack(form, data)[0]

    def count(self, most: int) -> int:
        found = int(self.plain("<Q"))
        if found > most:
            raise self.broken(f"a length of {found:,}")
        return found

    def text(self) -> str:
        length = self.count(_MOST_TEXT)
        data = self.file.read(length)
        if len(data) < length:
            raise self.broken("it ends within its header")
        return data.decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            inner, length = int(self.plain("<I")), self.count(_MOST_ENTRIES)
            return [self.value(inner) for _ in range(length)]
        if kind not in _PLAIN:
            raise self.broken(f"a value of unknown kind {kind}")
        return self.plain(_PLAIN[kind])


def read_header(path: Path) -> Header:
    """Read the header of a file, and of the other shards where it is one of several.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Header

    Raises
    ------
    UserError
        Where it is no GGUF file, or a shard is missing.
    """
    shard = _SHARD.search(path.name)
    if shard is None:
        return _read(path)
    stem, several = path.name[: shard.start()], int(shard[2])
    parts = [path.with_name(f"{stem}-{at:05d}-of-{several:05d}.gguf") for at in range(1, several + 1)]
    if missing := [part for part in parts if not part.is_file()]:
        raise UserError(f"{missing[0]}: this shard is missing; all {several} hold the model together")
    headers = [_read(part) for part in parts]
    return Header(headers[0].fields, tuple(tensor for header in headers for tensor in header.tensors))


def _read(path: Path) -> Header:
    try:
        with path.open("rb") as file:
            reader = _Reader(path, file)
            if file.read(4) != _MAGIC:
                raise reader.broken("it does not begin with GGUF")
            version = int(reader.plain("<I"))
            if version not in (2, 3):
                raise reader.broken(f"version {version}, expected 2 or 3")
            tensors, entries = reader.count(_MOST_ENTRIES), reader.count(_MOST_ENTRIES)
            fields = {}
            for _ in range(entries):
                name = reader.text()
                fields[name] = reader.value(int(reader.plain("<I")))
            stored = []
            for _ in range(tensors):
                name, rank = reader.text(), int(reader.plain("<I"))
                if rank > 8:
                    raise reader.broken(f"a tensor of {rank} dimensions")
                sizes = tuple(int(reader.plain("<Q")) for _ in range(rank))
                kind = int(reader.plain("<I"))
                reader.plain("<Q")
                if kind not in TYPES:
                    raise reader.broken(f"tensor {name} has a type of unknown number {kind}")
                stored.append(Tensor(name, sizes, kind))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.__class__.__name__})") from None
    return Header(fields, tuple(stored))

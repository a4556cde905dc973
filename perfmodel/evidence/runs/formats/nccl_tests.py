"""Tables of nccl-tests: time in us out of place, message in bytes, ranks from the ``#  Rank`` lines.

Which collective it was is told by what the tests call bus bandwidth, 2 (n - 1) / n of the algorithm's for all-reduce.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "nccl-tests"
_HEADER = re.compile(r"^#\s+size\s+count\s+type\s+redop\s+root\b.*$", re.M)


def _rows(document: Document) -> Iterator[tuple[float, float, float, float]]:
    """Give message [B], time [us], algorithm and bus bandwidth [GB/s] out of place."""
    if document.objects:
        record = Record(document, _LABEL, document.objects[0])
        for at in range(len(record.find("results") or ())):
            part = f"results.{at}"
            values = [
                record.need(f"{part}.{name}")
                for name in ("size", *(f"out_of_place.{n}" for n in ("time", "alg_bw", "bus_bw")))
            ]
            yield values[0], values[1], values[2], values[3]
        return
    header = _HEADER.search(document.text)
    assert header is not None
    names = header[0].lstrip("# ").split()
    places = [names.index(name) for name in ("size", "time", "algbw", "busbw")]
    for line in document.text[header.end() :].splitlines():
        cells = line.split()
        if not cells or line.startswith("#"):
            continue
        if len(cells) < len(names):
            missing = names[len(cells)]
            raise UserError(f"{document.name} ({_LABEL}): a row ends before the field '{missing}': {line.strip()[:60]}")
        size, time, algorithm, bus = (float(cells[place]) for place in places)
        yield size, time, algorithm, bus


def _read(document: Document) -> list[Run]:
    ranks = len(re.findall(r"^#\s+Rank\s+\d+", document.text, re.M))
    runs = []
    for size, time, algorithm, bus in _rows(document):
        if not time or not algorithm:
            continue
        factor = bus / algorithm
        # 2 (n - 1) / n is 1 or more, (n - 1) / n of other collectives less.
        if factor < 0.99:
            raise UserError(f"{document.name} ({_LABEL}): bus over algorithm bandwidth is {factor:.2f}: no all-reduce")
        run = Run(f"{document.name} ({_LABEL})", "collective")
        run.state("engine", "nccl", "format")
        run.state(
            "tp", ranks or round(2 / (2 - factor)) if factor < 2 else None, "# Rank lines" if ranks else "busbw/algbw"
        )
        run.state("message_bytes", size, "size")
        run.measure("all_reduce_time", "mean", time, "us", "time, out of place")
        runs.append(run)
    if not runs:
        raise UserError(f"{document.name} ({_LABEL}): no row below the header; no field 'time'")
    return runs


FORMAT = Format(
    _LABEL,
    lambda document: (
        bool(_HEADER.search(document.text)) or {"nccl_version", "results", "out_of_place"} <= document.keys
    ),
    each(_read),
)

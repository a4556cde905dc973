"""A sweep as a folder of Parquet partitions: worked out piece by piece, here or on a Dask cluster, and resumable.

A partition is a part of the design space, named by its number.  Its file appears whole or not at all, and its digest is
written down, so that what is there and holds what was written is done, whatever was killed or broken since.  A
folder is of one question: the manifest has a fingerprint of every number and word that enters.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.outputs import answers
from perfmodel.specs.release import numbers_version
from perfmodel.specs.units import show
from perfmodel.sweeps import points as rows
from perfmodel.sweeps import reduction
from perfmodel.sweeps.reduction import Reduction
from perfmodel.sweeps.space import Space
from perfmodel.version import __version__
from perfmodel.writing import alone, clean, reason, whole

#: Points of a partition at the most: what a worker holds in its memory, and what is lost with it.  Of a partition that
#: is reduced little is held, and the larger it is the less it costs beside its points.
POINTS, REDUCED_POINTS = 2**18, 2**21
#: Partitions of a large sweep that is reduced: enough of them for many workers.
_PARTITIONS = 2**8
#: Pieces, and points of each, from which the size of a table is told.
_SAMPLES, _SAMPLE = 8, 2**14
EXECUTORS = ("local", "dask")
#: Columns of a sweep that rows of answers have under another name.
_PLAN = {"plan": "plan_name", "tp": "plan_tp", "pp": "plan_pp"}
_SHARES = [f"p{share * 100:g}" for share in reduction.QUANTILES]
_COUNTED = {"metric": "", "unit": "", "points": "1", "with_value": "1", **dict.fromkeys(_SHARES, "")}
_MEANINGS = {
    "metric": "what the quantiles are of",
    "unit": "unit of the quantiles",
    "points": "points of the group",
    "with_value": "those that fit and have a value",
    **{
        name: f"value, in the unit of the metric, that {name[1:]} % of them do not exceed; "
        f"off by at most {reduction.ERROR:.2%} of itself"
        for name in _SHARES
    },
}
#: Names that readers of Parquet folders pass over.
MANIFEST, DICTIONARY, PARTIAL, LOCK = "_sweep.json", "_columns.csv", "_partial", "_lock"
#: Digests of the partitions of a sweep that is under way, a line each; the manifest has them once it is finished.
DIGESTS = "_digests.txt"


@dataclass(frozen=True)
class Job:
    """One partition, with all that a worker needs to work it out and to write it."""

    path: Path
    manifest: Path
    space: Space
    reduction: Reduction | None
    question: str
    version: str


@dataclass(frozen=True)
class Stored:
    """A sweep in a folder.

    Attributes
    ----------
    folder : Path
        Readers of Parquet folders find in it what was kept.
    points : int
        Points of the design space.
    partitions : int
        Pieces in which it was worked out.
    found : int
        Partitions that were there already.
    broken : int
        Partitions that were there and did not hold what had been written, so that they were worked out again.
    reduction : Reduction or None
        What was kept; None where all points were.
    """

    folder: Path
    points: int
    partitions: int
    found: int
    broken: int
    reduction: Reduction | None

    def to_frame(self) -> Any:
        """Return what was kept as a pandas frame.

        Returns
        -------
        pandas.DataFrame
            In inside units; ``_columns.csv`` in the folder names them.
        """
        import pandas as pd

        return pd.read_parquet(self.folder)

    def to_dask(self) -> Any:
        """Return what was kept as a Dask frame, of which nothing is read yet.

        Returns
        -------
        dask.dataframe.DataFrame
        """
        import dask.dataframe as dd

        return dd.read_parquet(self.folder)

    def fits(self) -> bool:
        """Tell whether any point fits.

        Returns
        -------
        bool
        """
        if self.reduction is not None:
            frame = self.to_frame()
            return bool(len(frame) and (self.reduction.kind != "quantiles" or frame["with_value"].any()))
        import pyarrow.dataset as ds

        return bool(ds.dataset(self.folder, format="parquet").head(1, filter=ds.field("fits")).num_rows)

    def __repr__(self) -> str:
        kept = f", of which is kept {self.reduction}" if self.reduction else ""
        there = f", {self.found:,} of them there already" if self.found else ""
        broken = f", {self.broken:,} of them broken and worked out again" if self.broken else ""
        return f"{self.points:,} points in {self.folder}{kept}: {self.partitions:,} partitions{there}{broken}"


def is_folder(path: Path) -> bool:
    """Whether a path is meant as a folder: it has no ending, or is one and has no ending of a file of rows."""
    return not path.suffix or (os.path.isdir(path) and path.suffix not in rows.ENDINGS)


def look(file: Path) -> tuple[str, bool]:
    """Return which version runs here, and whether a file in the folder of a sweep is seen."""
    return __version__, file.exists()


def work(job: Job) -> str:
    """Work out one partition, write it, and return its digest.

    Raises
    ------
    UserError
        Where this machine does not see the folder, has another version, or cannot write.
    """
    version, seen = look(job.manifest)
    if version != job.version:
        raise UserError(f"a worker runs perfmodel {version}, and the sweep is one of {job.version}")
    if not seen:
        raise UserError(f"a worker does not see {job.manifest.parent}: --out needs a folder that all workers share")
    with whole(job.path) as partial:
        if job.reduction is None:
            rows.write_parquet(job.space.evaluate(), partial, job.question)
        else:
            _write(job.reduction.part(job.space), partial, job.space, job.reduction, job.question)
        return _digest(partial)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(columns: Any, path: Path, space: Space, kept: Reduction, question: str) -> None:
    """Write what is kept, columns or a frame, as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = rows.schema(space, kept.columns(space), question)
    if kept.kind == "quantiles":
        table = pa.table(dict(columns)).replace_schema_metadata(schema.metadata)
    else:
        table = pa.table(dict(columns), schema=schema) if len(columns) else schema.empty_table()
    pq.write_table(table, path)


def run(
    space: Space,
    folder: Path,
    question: str,
    *,
    keep: str | None = None,
    executor: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    tick: rows.Tick = lambda _: None,
    points: int | None = None,
) -> Stored:
    """Work out a sweep into a folder; what is there already of the same sweep stays.

    Parameters
    ----------
    space : Space
    folder : Path
        New, empty, or with a part of the same sweep.
    question : str
        How the sweep was asked for.
    keep : str, optional
        A reduction, see :func:`perfmodel.sweeps.reduction.parse`; without it every point is written.
    executor : {'local', 'dask'}
    scheduler : str, optional
        Address of a Dask cluster; without it one is started on this machine.
    workers : int, optional
        Processes of the cluster that is started; one a core where not given.
    tick : callable, optional
        Told the points of each partition when it is there.
    points : int, optional
        Points of a partition at the most; where not given, as many as the sweep and its reduction suit.

    Returns
    -------
    Stored

    Raises
    ------
    UserError
        Where the folder cannot be used, a table of all points does not fit the disk, or the workers cannot do it.
    """
    rows.need_parquet()
    _check_executor(executor, scheduler, workers)
    kept = None if keep is None else reduction.parse(keep, space)
    folder = folder.absolute()
    if points is None:
        points = POINTS if kept is None else min(REDUCED_POINTS, max(POINTS, len(space) // _PARTITIONS))
    try:
        with _opened(folder):
            return _run(space, folder, question, kept, executor, scheduler, workers, tick, points)
    except OSError as error:
        raise UserError(f"--out {folder}: {error.filename or folder}: {reason(error)}") from None


def _run(
    space: Space,
    folder: Path,
    question: str,
    kept: Reduction | None,
    executor: str,
    scheduler: str | None,
    workers: int | None,
    tick: rows.Tick,
    points: int,
) -> Stored:
    """Work out a sweep into a folder whose lock is held, see :func:`run`."""
    manifest = _manifest(space, kept, question, points)
    old = _old(folder, manifest["fingerprint"])
    # What was asked first stays, here and in the files of the partitions.
    question = manifest["question"] = old.get("question", question)
    parts = folder if kept is None else folder / PARTIAL
    count = space.parts(points)
    digits = max(5, len(str(count - 1)))
    paths = [parts / f"part-{number:0{digits}}.parquet" for number in range(count)]
    digests, broken = _sound(parts, paths, _digests(folder, old))
    missing = [number for number, path in enumerate(paths) if path.name not in digests]
    left = len(space) - sum(len(space.part(number, points)) for number in set(range(count)).difference(missing))
    if kept is None and missing:
        _check_disk(space, folder, left, points)
    tick(len(space) - left)

    jobs = (
        Job(paths[number], folder / MANIFEST, space.part(number, points), kept, question, __version__)
        for number in missing
    )
    try:
        with contextlib.ExitStack() as stack:
            done: Iterator[tuple[Job, str]] = ((job, work(job)) for job in jobs)
            if executor == "dask" and missing:
                from perfmodel.sweeps import cluster

                client = stack.enter_context(cluster.connect(scheduler, workers))
                cluster.check(client, look, folder / LOCK)
                done = cluster.each(client, work, jobs)
            parts.mkdir(exist_ok=True)
            with whole(folder / DIGESTS) as partial:
                partial.write_text("".join(map(_line, digests.items())), encoding="utf-8")
            _write_manifest(folder, manifest)
            noted = stack.enter_context((folder / DIGESTS).open("a", encoding="utf-8"))
            for job, digest in done:
                digests[job.path.name] = digest
                noted.write(_line((job.path.name, digest)))
                noted.flush()
                tick(len(job.space))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{len(digests):,} of {count:,} partitions are in {folder}; the same command goes on from there"
        ) from None
    if kept is not None:
        _merge(paths, folder, space, kept, question)
    answers.write_csv(_dictionary(space, kept), folder / DICTIONARY)
    _write_manifest(folder, {**manifest, "finished": True, "digests": dict(sorted(digests.items()))})
    (folder / DIGESTS).unlink()
    return Stored(folder, len(space), count, count - len(missing), broken, kept)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Make a folder where it is missing, and hold its lock; if nothing came to lie in a new one it goes again."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: there is a file of that name; a sweep in partitions needs a folder")
    if not folder.parent.is_dir():
        raise UserError(f"--out {folder}: there is no folder {folder.parent}")
    new = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        with alone(folder / LOCK, f"--out {folder}: one sweep at a time writes a folder"):
            clean(folder)
            clean(folder / PARTIAL)
            yield
    finally:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _old(folder: Path, fingerprint: str) -> dict[str, Any]:
    """Return the manifest that is there, empty in an empty folder; refuse a folder that holds something else."""
    if not any(path.name != LOCK for path in folder.iterdir()):
        return {}
    if not (folder / MANIFEST).exists():
        raise UserError(f"--out {folder}: it holds other files; give a new or an empty folder")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known, question, version = (str(manifest[key]) for key in ("fingerprint", "question", "perfmodel"))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--out {folder}: its {MANIFEST} cannot be read; give a new or an empty folder") from None
    if known != fingerprint:
        raise UserError(
            f"--out {folder}: it holds another sweep, by perfmodel {version}: {question}; give a new or an empty folder"
        )
    return dict(manifest)


def _digests(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of partitions by name, as the manifest and what came after it have them."""
    found = manifest.get("digests")
    digests = dict(found) if isinstance(found, dict) else {}
    if (folder / DIGESTS).exists():
        lines = (folder / DIGESTS).read_text(encoding="utf-8", errors="replace").splitlines()
        # The last line of a writer that was killed may be cut short, and then fits no file.
        digests.update((name, digest) for digest, _, name in (line.partition(" ") for line in lines))
    return digests


def _line(entry: tuple[str, str]) -> str:
    name, digest = entry
    return f"{digest} {name}\n"


def _sound(parts: Path, paths: list[Path], digests: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Return the digests of partitions that hold what was written, and how many do not; those and strangers go."""
    names, sound, broken = {path.name for path in paths}, {}, 0
    for path in parts.glob("part-*.parquet"):
        digest = digests.get(path.name)
        if path.name in names and digest is not None and _digest(path) == digest:
            sound[path.name] = digest
        else:
            broken += digest is not None
            path.unlink()
    return sound, broken


def _check_executor(executor: str, scheduler: str | None, workers: int | None) -> None:
    if executor not in EXECUTORS:
        raise UserError(f"--executor {executor}: expected one of {', '.join(EXECUTORS)}")
    if executor == "local" and (scheduler is not None or workers is not None):
        raise UserError(f"--{'workers' if scheduler is None else 'scheduler'} needs --executor dask")
    if scheduler is not None and workers is not None:
        raise UserError("give either --scheduler, whose cluster has its workers, or --workers for one on this machine")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: must be at least 1")


def fingerprint(*parts: Any) -> str:
    """Return a digest of every number and word of dataclasses, also of those that their ``repr`` leaves out.

    Fields that two specs may differ in and still be equal, such as provenance, do not enter.
    """
    digest = hashlib.sha256()
    for piece in _pieces(parts):
        digest.update(len(piece).to_bytes(8, "little") + piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterator[bytes]:
    """Give what a value is made of, in an order that depends on nothing else."""
    if is_dataclass(value):
        entries = [entry.name for entry in fields(value) if entry.compare]
        yield f"{type(value).__name__} {len(entries)}".encode()
        for name in entries:
            yield name.encode()
            yield from _pieces(getattr(value, name))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=str):
            yield from _pieces(key)
            yield from _pieces(value[key])
    elif isinstance(value, tuple) and not all(isinstance(one, float) for one in value):
        yield f"tuple {len(value)}".encode()
        for one in value:
            yield from _pieces(one)
    elif isinstance(value, float | tuple):
        # An axis may have millions of values.
        yield b"numbers"
        yield np.asarray(value, dtype=float).tobytes()
    else:
        yield f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")


def _manifest(space: Space, kept: Reduction | None, question: str, points: int) -> dict[str, Any]:
    """Return what the folder holds, in words and as a fingerprint of every number that enters."""
    return {
        "perfmodel": __version__,
        "numbers_version": numbers_version(),
        "question": question,
        "assumed": list(space.assumed),
        "axes": {
            axis.path: {"unit": axis.unit, "values": len(axis.values), "first": axis.values[0], "last": axis.values[-1]}
            for axis in space.axes
        },
        "points": len(space),
        "partitions": space.parts(points),
        "kept": None if kept is None else str(kept),
        "fingerprint": fingerprint(__version__, space, kept, points),
        "finished": False,
    }


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    with whole(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _check_disk(space: Space, folder: Path, left: int, points: int) -> None:
    """Refuse a table that is larger than what is free, by the size of a few pieces of it."""
    count, written, size = space.parts(points), 0, 0
    for sample in range(min(_SAMPLES, count)):
        part = space.part(sample * count // min(_SAMPLES, count), points)
        piece = part.part(sample * part.parts(_SAMPLE) // _SAMPLES, _SAMPLE)
        with io.BytesIO() as file:
            rows.write_parquet(piece.evaluate(), file, "")
            size += len(file.getvalue())
        written += len(piece)
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    needed = size / written * left
    if needed > free:
        raise UserError(
            f"--out {folder}: {left:,} points are about {show(needed, 'B', 3)} as Parquet and {show(free, 'B', 3)} are "
            "free there: keep a reduction (--keep pareto:..., best:... or quantiles:...) or write elsewhere"
        )


def _merge(paths: list[Path], folder: Path, space: Space, kept: Reduction, question: str) -> None:
    """Reduce the partitions' reductions to one file, never with more rows in memory than a few partitions keep."""
    import pandas as pd
    import pyarrow.parquet as pq

    merged, waiting, buffered = None, [], 0
    for path in paths:
        waiting.append(pq.read_table(path).to_pandas())
        buffered += len(waiting[-1])
        if buffered > POINTS or path is paths[-1]:
            merged = kept.merge(pd.concat([frame for frame in (merged, *waiting) if frame is not None]))
            waiting, buffered = [], 0
    with whole(folder / f"{kept.kind}.parquet") as partial:
        _write(kept.finish(merged), partial, space, kept, question)


def _dictionary(space: Space, kept: Reduction | None) -> list[dict[str, str]]:
    """Return name, type, unit and meaning of each column of what was kept."""
    if kept is not None and kept.kind == "quantiles":
        units = {**{path: space.columns()[path] for path in kept.by}, **_COUNTED}
    else:
        units = space.columns()
    axes = [axis.path for axis in space.axes]
    entries = []
    for name, unit in units.items():
        kind = "text" if name in ("metric", "unit") else rows.kind(space, name)
        words = "axis of the sweep" if name in axes else _MEANINGS.get(name) or answers.meaning(_PLAN.get(name, name))
        entries.append({"column": name, "type": kind, "unit": unit, "meaning": words})
    return entries

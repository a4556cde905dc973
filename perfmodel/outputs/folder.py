"""A sweep as a folder of Parquet partitions: worked out piece by piece, here or on a Dask cluster, and resumable.

A partition is a part of the design space, named by its number.  Its file appears whole or not at all, so that the
files which are there say what is done, whoever wrote them and whatever was killed since.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel import __version__
from perfmodel.errors import UserError
from perfmodel.outputs import answers, rows
from perfmodel.outputs.files import whole
from perfmodel.specs.units import show
from perfmodel.studies import reduction
from perfmodel.studies.reduction import Reduction
from perfmodel.studies.sweep import Space

#: Points of a partition at the most: what a worker holds in its memory, and what is lost with it.
POINTS = 2**18
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
MANIFEST, DICTIONARY, PARTIAL = "_sweep.json", "_columns.csv", "_partial"


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
    reduction : Reduction or None
        What was kept; None where all points were.
    """

    folder: Path
    points: int
    partitions: int
    found: int
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
        return f"{self.points:,} points in {self.folder}{kept}: {self.partitions:,} partitions{there}"


def is_folder(path: Path) -> bool:
    """Whether a path is meant as a folder: it is one, or has no ending."""
    return path.is_dir() or not path.suffix


def look(manifest: Path) -> tuple[str, bool]:
    """Return which version runs here, and whether the folder of a sweep is seen."""
    return __version__, manifest.exists()


def work(job: Job) -> None:
    """Work out one partition and write it, unless it is there.

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
    if not job.path.exists():
        try:
            with whole(job.path) as partial:
                if job.reduction is None:
                    rows.write_parquet(job.space.evaluate(), partial, job.question)
                else:
                    _write(job.reduction.part(job.space), partial, job.space, job.reduction, job.question)
        except OSError as error:
            raise UserError(f"{job.path}: {error.strerror or error}") from None


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
    points: int = POINTS,
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
        A reduction, see :func:`perfmodel.studies.reduction.parse`; without it every point is written.
    executor : {'local', 'dask'}
    scheduler : str, optional
        Address of a Dask cluster; without it one is started on this machine.
    workers : int, optional
        Processes of the cluster that is started; one a core where not given.
    tick : callable, optional
        Told the points of each partition when it is there.
    points : int, optional
        Points of a partition at the most.

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
    if kept is not None:
        kept.need()
    folder = folder.absolute()
    manifest = _manifest(space, kept, question, points)
    _check_folder(folder, manifest)
    parts = folder if kept is None else folder / PARTIAL
    count = space.parts(points)
    digits = max(5, len(str(count - 1)))
    paths = [parts / f"part-{number:0{digits}}.parquet" for number in range(count)]
    there = {path.name for path in parts.glob("part-*.parquet")}
    missing = [number for number, path in enumerate(paths) if path.name not in there]
    left = len(space) - sum(len(space.part(number, points)) for number in set(range(count)).difference(missing))
    if kept is None and missing:
        _check_disk(space, folder, left, points)
    tick(len(space) - left)

    parts.mkdir(parents=True, exist_ok=True)
    _write_manifest(folder, manifest)
    jobs = (
        Job(paths[number], folder / MANIFEST, space.part(number, points), kept, question, __version__)
        for number in missing
    )
    try:
        if executor == "dask" and missing:
            from perfmodel.outputs import cluster

            with cluster.connect(scheduler, workers) as client:
                cluster.check(client, look, folder / MANIFEST)
                for job in cluster.each(client, work, jobs):
                    tick(len(job.space))
        else:
            for job in jobs:
                work(job)
                tick(len(job.space))
    except KeyboardInterrupt:
        finished = sum(path.exists() for path in paths)
        raise KeyboardInterrupt(
            f"{finished:,} of {count:,} partitions are in {folder}; the same command goes on from there"
        ) from None
    for stale in parts.glob(".part-*"):
        stale.unlink(missing_ok=True)
    if kept is not None:
        _merge(paths, folder, space, kept, question)
    answers.write_csv(_dictionary(space, kept), folder / DICTIONARY)
    _write_manifest(folder, {**manifest, "finished": True})
    return Stored(folder, len(space), count, count - len(missing), kept)


def _check_executor(executor: str, scheduler: str | None, workers: int | None) -> None:
    if executor not in EXECUTORS:
        raise UserError(f"--executor {executor}: expected one of {', '.join(EXECUTORS)}")
    if executor == "local" and (scheduler is not None or workers is not None):
        raise UserError(f"--{'workers' if scheduler is None else 'scheduler'} needs --executor dask")
    if scheduler is not None and workers is not None:
        raise UserError("give either --scheduler, whose cluster has its workers, or --workers for one on this machine")
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: must be at least 1")


def _manifest(space: Space, kept: Reduction | None, question: str, points: int) -> dict[str, Any]:
    """Return what the folder holds, in words and as a fingerprint of every number that enters."""
    written = repr((__version__, space, kept, points)).encode()
    return {
        "perfmodel": __version__,
        "question": question,
        "assumed": list(space.assumed),
        "axes": {
            axis.path: {"unit": axis.unit, "values": len(axis.values), "first": axis.values[0], "last": axis.values[-1]}
            for axis in space.axes
        },
        "points": len(space),
        "partitions": space.parts(points),
        "kept": None if kept is None else str(kept),
        "fingerprint": hashlib.sha256(written).hexdigest(),
        "finished": False,
    }


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    with whole(folder / MANIFEST) as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _check_folder(folder: Path, manifest: dict[str, Any]) -> None:
    """Refuse a folder that cannot be written, or that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder}: there is a file of that name; a sweep in partitions needs a folder")
    if not folder.parent.is_dir():
        raise UserError(f"--out {folder}: there is no folder {folder.parent}")
    if not folder.exists() or not any(folder.iterdir()):
        return
    old = folder / MANIFEST
    if not old.exists():
        raise UserError(f"--out {folder}: it holds other files; give a new or an empty folder")
    try:
        found = json.loads(old.read_text(encoding="utf-8"))
        fingerprint, question, version = (found[key] for key in ("fingerprint", "question", "perfmodel"))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--out {folder}: its {MANIFEST} cannot be read; give a new or an empty folder") from None
    if fingerprint != manifest["fingerprint"]:
        raise UserError(
            f"--out {folder}: it holds another sweep, by perfmodel {version}: {question}; give a new or an empty folder"
        )


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

    merged, waiting, held = None, [], 0
    for path in paths:
        waiting.append(pq.read_table(path).to_pandas())
        held += len(waiting[-1])
        if held > POINTS or path is paths[-1]:
            merged = kept.merge(pd.concat([frame for frame in (merged, *waiting) if frame is not None]))
            waiting, held = [], 0
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

"""Throughput and memory of sweeps in partitions, by points and workers, as the tables of docs/scale.md.

Run with ``python benchmarks/scale.py``; absolute numbers, nothing asserted.  Each run is a process of its own, so that
peaks of memory are its own.  Libraries are loaded before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

#: The outermost axis grows with the points; what is kept decides which metrics are worked out.
INNER = {
    "traffic.concurrency": "1:64:32",
    "traffic.prompt": "100:16000:32",
    "traffic.output": "16:2000:16:log",
    "deployment.tp": "1,2,4,8",
}
KEPT = {
    "front of TPOT and TTFT": "pareto:tpot_s,ttft_s",
    "front of TPOT and $/Mtok": "pareto:tpot_s,usd_per_mtok_blended",
    "quantiles of TPOT": "quantiles:tpot_s",
    "every point": None,
}
#: An axis that TPOT does not depend on, innermost: what does not vary along it is worked out once.
SPARSE = "quantiles of TPOT, over 64 prices of electricity too"
KEPT[SPARSE] = "quantiles:tpot_s"
RUNS = [
    *(("front of TPOT and TTFT", points, workers) for points in (1e6, 1e7, 1e8) for workers in (0, 1, 2)),
    *((kept, 1e7, workers) for kept in list(KEPT)[1:-1] for workers in (0, 2)),
    *((SPARSE, points, 2) for points in (1e8, 1e9)),
]


def peak() -> float:
    """Return the largest memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def busy() -> float:
    """Return the seconds of a core that this process has had; other load does not count in them."""
    return time.process_time()


def loaded() -> float:
    """Load what a sweep needs and return the memory that a process holds then, in MB."""
    import moocore  # noqa: F401
    import pandas  # noqa: F401

    from perfmodel.outputs import rows

    rows.need_parquet()
    return peak()


def one(kept: str, points: float, workers: int) -> dict[str, Any]:
    """Run one sweep in this process, or on so many workers."""
    from perfmodel.question import Options
    from perfmodel.sweeps import folder
    from perfmodel.sweeps.asking import space

    inner = dict(INNER) | ({"economics.electricity": "x0.5:x2:64"} if kept == SPARSE else {})
    each = 32 * 32 * 16 * 4 * (64 if kept == SPARSE else 1)
    axes = {"system.memory.hbm.bandwidth": f"2 TB/s:8 TB/s:{round(points / each)}", **inner}
    asked = space("llama-3.1-70b", "dgx-h100", axes, Options(precision="fp8"))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as place:
        arguments: dict[str, Any] = {"keep": KEPT[kept]}
        if workers == 0:
            idle, before, start = loaded(), busy(), time.perf_counter()
            stored = folder.run(asked, Path(place) / "sweep", "benchmark", **arguments)
            seconds, cpu, peaks = time.perf_counter() - start, busy() - before, [peak()]
        else:
            from perfmodel.sweeps import cluster

            with cluster.connect(None, workers) as client:
                loaded()
                idle = max(client.run(loaded).values())
                before, start = busy() + sum(client.run(busy).values()), time.perf_counter()
                arguments |= {"executor": "dask", "scheduler": client.scheduler.address}
                stored = folder.run(asked, Path(place) / "sweep", "benchmark", **arguments)
                seconds = time.perf_counter() - start
                cpu = busy() + sum(client.run(busy).values()) - before
                peaks = list(client.run(peak).values())
        size = sum(file.stat().st_size for file in Path(place).rglob("*.parquet"))
    return {
        "kept": kept,
        "points": len(asked),
        "workers": workers,
        "partitions": stored.partitions,
        "seconds": seconds,
        "cpu": cpu,
        "peak": max(peaks),
        "idle": idle,
        "client": peak(),
        "size": size,
        "load": load,
    }


def alone(kept: str, points: float, workers: int) -> dict[str, Any]:
    """Run one sweep in a new process."""
    command = [sys.executable, __file__, "--one", kept, str(points), str(workers)]
    done = subprocess.run(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=3, metavar=("KEPT", "POINTS", "WORKERS"), help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, nargs="*", help="only these, by their place")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one[0], float(given.one[1]), int(given.one[2]))))
        return
    runs = [RUNS[at] for at in given.runs] if given.runs is not None else RUNS
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ", end="")
    print(", ".join(f"{name} {version(name)}" for name in ("numpy", "dask", "pyarrow")))
    print()
    print(
        "| kept | points | workers | s | M points/s | core-s | peak, MB | over loaded, B a point | files, MB | load |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for run in runs:
        found = alone(*run)
        each = found["points"] / found["partitions"]
        over = f"{(found['peak'] - found['idle']) * 2**20 / each:,.0f}"
        cells = [found["kept"], f"{found['points']:,}", found["workers"] or "none", f"{found['seconds']:.1f}"]
        cells += [
            f"{found['points'] / found['seconds'] / 1e6:.2f}",
            f"{found['cpu']:.1f}",
            f"{found['peak']:,.0f}",
            over,
            f"{found['size'] / 1e6:,.3g}",
            f"{found['load']:.1f}",
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()

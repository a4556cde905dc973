"""Tables derived from request traces: lengths, P:D over time, reuse of prefix blocks.

The bundled tables in ``data/traces`` come from :func:`derive`, which reads traces that a user has::

    python -m perfmodel.evidence.traces azure_llm_2023_conv.csv mooncake_conversation_trace.jsonl.gz --out data/traces

They are read as every trace is (:mod:`perfmodel.serving.traces`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.serving.traces import Trace, read_trace
from perfmodel.writing import whole

#: Width of the moving average of P:D [s], and the distance of its points [s].
WINDOW, STEP = 600.0, 60.0
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
#: Organisations among which the requests are split to see what isolation costs.
SPLITS = (1, 2, 4, 8, 16, 32, 64)
_SHORT = 8192


def length_quantiles(trace: Trace) -> list[dict[str, Any]]:
    """Return quantiles of prompt, output and their sum, one row a quantile."""
    total = trace.prompt + trace.output
    return [
        {
            "trace": trace.name,
            "quantile": q,
            **{
                key: round(float(np.quantile(values, q)), 1)
                for key, values in (("prompt", trace.prompt), ("output", trace.output), ("total", total))
            },
        }
        for q in QUANTILES
    ]


def summary(trace: Trace) -> dict[str, Any]:
    """Return requests, means, P:D of all tokens and the share of requests below 8 Ki tokens."""
    total = trace.prompt + trace.output
    return {
        "trace": trace.name,
        "requests": len(total),
        "duration_s": round(float(trace.arrival[-1] - trace.arrival[0]), 1),
        "prompt_mean": round(float(trace.prompt.mean()), 2),
        "output_mean": round(float(trace.output.mean()), 2),
        "total_mean": round(float(total.mean()), 2),
        "length_bias": round(float((total**2).mean() / total.mean() ** 2), 4),
        "pd_ratio": round(float(trace.prompt.sum() / trace.output.sum()), 4),
        "share_below_8ki": round(float((total < _SHORT).mean()), 4),
        "prefix_hit_rate": round(hit_rate(reuse_distances(trace.blocks), np.inf), 6) if trace.blocks else "",
    }


def ratio_over_time(trace: Trace) -> list[dict[str, Any]]:
    """Return P:D, mean context and the share of short requests in a moving window of ten minutes."""
    rows = []
    total = trace.prompt + trace.output
    for end in np.arange(WINDOW, trace.arrival[-1] + STEP, STEP):
        inside = (trace.arrival >= end - WINDOW) & (trace.arrival < end)
        if inside.any():
            rows.append(
                {
                    "trace": trace.name,
                    "end_s": float(end),
                    "requests": int(inside.sum()),
                    "pd_ratio": round(float(trace.prompt[inside].sum() / trace.output[inside].sum()), 4),
                    "context_mean": round(float(total[inside].mean()), 1),
                    "share_below_8ki": round(float((total[inside] < _SHORT).mean()), 4),
                }
            )
    return rows


# --- reuse of prefix blocks --------------------------------------------------------------------------------------


def reuse_distances(requests: Iterable[Sequence[Any]]) -> Any:
    """Return the exact LRU stack distance of every block looked up; infinite where it was never seen.

    A request looks all its blocks up, then touches them from the last to the first, as engines do, so that a prefix
    outlives what hangs on it and every hit is a hit of a whole prefix.

    Notes
    -----
    Mattson et al. 1970, doi:10.1147/sj.92.0078, with a Fenwick tree over the times of the last touches: one pass gives
    the hits of every cache size.
    """
    sequences = [tuple(blocks) for blocks in requests]
    size = sum(map(len, sequences)) + 1
    tree = [0] * (size + 1)
    last: dict[Any, int] = {}

    def add(at: int, value: int) -> None:
        while at <= size:
            tree[at] += value
            at += at & -at

    def below(at: int) -> int:
        count = 0
        while at > 0:
            count += tree[at]
            at -= at & -at
        return count

    distances: list[float] = []
    now = 0
    for blocks in sequences:
        for block in blocks:
            seen = last.get(block)
            distances.append(np.inf if seen is None else len(last) - below(seen))
        for block in reversed(blocks):
            now += 1
            if block in last:
                add(last[block], -1)
            last[block] = now
            add(now, 1)
    return np.array(distances)


def hit_rate(distances: Any, capacity: float) -> float:
    """Return the share of look-ups that an LRU cache of so many blocks answers."""
    return float((distances < capacity).mean()) if np.isfinite(capacity) else float(np.isfinite(distances).mean())


def idle_times(trace: Trace) -> Any:
    """Return the time since the last touch of every block looked up [s]; infinite where it was never seen."""
    last: dict[int, float] = {}
    gaps = []
    for at, blocks in zip(trace.arrival, trace.blocks, strict=True):
        gaps += [at - last[block] if block in last else np.inf for block in blocks]
        last.update(dict.fromkeys(blocks, at))
    return np.array(gaps)


def _grid(limit: float, points: int) -> Any:
    return np.unique(np.round(np.geomspace(1, limit, points)))


def reuse_curve(trace: Trace) -> list[dict[str, Any]]:
    """Return the hit rate of an LRU cache against its capacity in blocks."""
    distances = reuse_distances(trace.blocks)
    distinct = len({block for blocks in trace.blocks for block in blocks})
    return [
        {"trace": trace.name, "capacity_blocks": int(size), "hit_rate": round(hit_rate(distances, size), 6)}
        for size in _grid(distinct, 49)
    ]


def popularity(trace: Trace) -> list[dict[str, Any]]:
    """Return how many blocks were looked up how often: all that the Che approximation knows of a trace."""
    references = Counter(block for blocks in trace.blocks for block in blocks)
    return [
        {"trace": trace.name, "references": count, "blocks": blocks}
        for count, blocks in sorted(Counter(references.values()).items())
    ]


def idle_curve(trace: Trace) -> list[dict[str, Any]]:
    """Return the hit rate of a cache without limit that forgets a block so long after its last touch."""
    idle = idle_times(trace)
    return [
        {"trace": trace.name, "ttl_s": int(ttl), "hit_rate": round(float((idle <= ttl).mean()), 6)}
        for ttl in _grid(float(trace.arrival[-1]), 25)
    ]


def isolation(trace: Trace) -> list[dict[str, Any]]:
    """Return the hit rate without a limit when requests are split among organisations that share nothing.

    The split is synthetic, for the traces carry no organisations: by conversation (all requests with the same second
    block stay together) and, as the worst case, request by request in turn.
    """
    rows = []
    for count in SPLITS:
        for rule in ("by conversation", "by request"):
            keyed = []
            for index, blocks in enumerate(trace.blocks):
                conversation = blocks[1] if len(blocks) > 1 else blocks[0]
                owner = (conversation if rule == "by conversation" else index) % count
                keyed.append(tuple((owner, block) for block in blocks))
            seen: set[Any] = set()
            hits = total = 0
            for keys in keyed:
                hits += sum(key in seen for key in keys)
                total += len(keys)
                seen.update(keys)
            rate = round(hits / total, 6)
            rows.append({"trace": trace.name, "split": rule, "organisations": count, "hit_rate": rate})
    return rows


TABLES: dict[str, Any] = {
    "lengths": length_quantiles,
    "ratio": ratio_over_time,
    "summary": lambda trace: [summary(trace)],
    "reuse": reuse_curve,
    "popularity": popularity,
    "idle": idle_curve,
    "isolation": isolation,
}
_OF_BLOCKS = ("reuse", "popularity", "idle", "isolation")


def derive(paths: Sequence[str | Path]) -> dict[str, list[dict[str, Any]]]:
    """Return all tables of some traces by name.

    Parameters
    ----------
    paths : sequence of path
        Raw traces, in a form that :func:`~perfmodel.serving.traces.read_trace` takes.

    Returns
    -------
    dict
        Rows by table: ``lengths``, ``ratio``, ``summary``, and of traces with blocks ``reuse``, ``popularity``,
        ``idle`` and ``isolation``.
    """
    traces = [read_trace(path) for path in paths]
    return {
        name: [row for trace in traces if trace.blocks or name not in _OF_BLOCKS for row in table(trace)]
        for name, table in TABLES.items()
    }


def _main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description="Derive the tables of data/traces from raw traces.")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for name, rows in derive(given.traces).items():
        if rows:
            # A break leaves the old table.
            with (
                whole(given.out / f"{name}.csv") as partial,
                partial.open("w", encoding="utf-8", newline="") as file,
            ):
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    _main()

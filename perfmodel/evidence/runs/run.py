"""A run as a file tells it: what was set up, what was measured, and where each stood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfmodel.evidence.runs.document import Document, Record

#: Statistics by the names that tools give them.
STATISTICS = {
    "mean": "mean",
    "avg": "mean",
    "average": "mean",
    "median": "median",
    "p50": "median",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
}


#: Kinds of run by metrics that no load test has.
KINDS = {
    **dict.fromkeys(("weights_memory", "kv_pool_memory", "kv_pool_tokens", "kv_pool_concurrency"), "server"),
    **dict.fromkeys(("graph_memory", "activation_peak"), "server"),
    "gpu_power": "power",
}


@dataclass(frozen=True)
class Stated:
    """A field of a set-up, as text, and where it stood."""

    value: str
    origin: str


@dataclass(frozen=True)
class Value:
    """A measured value: its metric without the statistic, in its unit, and where it stood."""

    metric: str
    stat: str
    value: float
    unit: str
    origin: str

    @property
    def name(self) -> str:
        """The metric as a column holds it: a mean has the bare name, another statistic its own behind it."""
        return self.metric if self.stat in ("", "mean") else f"{self.metric}_{self.stat}"


@dataclass
class Run:
    """What one file says of one run.

    Attributes
    ----------
    source : str
        File and format.
    kind : str
        ``serving``: a load test; ``server``: what a server logged of itself; ``power``; ``collective``.
    fields : dict of str to Stated
        By column.
    values : list of Value
    longest : bool
        Whether its lengths are those that were asked for, from which they spread down; else they are means.
    lacks : dict of str to str
        Fields of the file that would say a column, and are not there.
    """

    source: str
    kind: str = "serving"
    fields: dict[str, Stated] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    longest: bool = False
    lacks: dict[str, str] = field(default_factory=dict)

    def expect(self, column: str, value: float | None, path: str, origin: str = "") -> None:
        """Note a field that a whole file has: where it is missing, it is asked for by the file's own name."""
        self.state(column, value, origin or path)
        if value is None:
            self.lacks[column] = path

    def state(self, column: str, value: Any, origin: str) -> None:
        """Note a field; nothing where the file has nothing."""
        if value is None or value == "" or isinstance(value, bool):
            return
        self.fields[column] = Stated(f"{value:.9g}" if isinstance(value, float) else str(value), origin)

    def measure(self, metric: str, stat: str, value: float | None, unit: str, origin: str) -> None:
        """Note a measured value; nothing where the file has none."""
        if value is not None:
            self.values.append(Value(metric, stat, value, unit, origin))

    def statistics(self, metric: str, stats: Record | None, unit: str, origin: str, scale: float = 1.0) -> None:
        """Note every statistic of an object that has them by name."""
        for name in () if stats is None else stats.content:
            if name in STATISTICS and stats is not None and (value := stats.number(name)) is not None:
                self.measure(metric, STATISTICS[name], value * scale, unit, f"{origin}.{name}")


def whole_share(part: float | None, whole: float | None) -> float | None:
    """Return a quotient, None where one is missing or nothing is divided by."""
    return None if part is None or not whole else part / whole


@dataclass(frozen=True)
class Format:
    """A format of files: how it is told from others by what it holds, and its reader.

    Attributes
    ----------
    label : str
    recognises : callable
        Whether a document is of this format.
    read : callable
        Returns the runs of documents of this format that were given together.
    keys : tuple of str
        Keys of JSON by which it is told, also where the file is cut off; none where it is no JSON.
    needs : tuple of str
        Keys that a whole file has, in the order in which they are written.
    """

    label: str
    recognises: Callable[[Document], bool]
    read: Callable[[Sequence[Document]], list[Run]]
    keys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def each(read: Callable[[Document], list[Run]]) -> Callable[[Sequence[Document]], list[Run]]:
    """Return a reader of documents that are read one by one."""
    return lambda documents: [run for document in documents for run in read(document)]

"""What is kept of a sweep when not every point is: a Pareto front, the best of each group, or quantiles.

Every reduction of a whole is that of the reductions of its parts, so that parts may be worked out anywhere, in any
number and once more: the front of united fronts is the front, the best of the bests is the best, and the counts of
histograms add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.planning.front import front
from perfmodel.prediction import METRICS, evaluate
from perfmodel.results import is_better_low, unit_of
from perfmodel.specs.paths import put
from perfmodel.sweeps.space import Space, evaluate_grid

KINDS = ("pareto", "best", "quantiles")
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
#: Metrics that a reduction may be about.
REDUCED = (*METRICS, "chips", "max_concurrency")
#: The most groups that are kept apart.
MOST_GROUPS = 100_000

#: Bits of the fraction of a number that its bin leaves out: 2^10 bins an octave.
_DROPPED = 42
#: A quantile is the middle of its bin, so off by at most this share of itself.
ERROR = 2.0**-11
#: The bin of points that have no value.
_NOTHING = -1


@dataclass(frozen=True)
class Reduction:
    """What to keep.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    metrics : tuple of str
    least : tuple of bool
        Of each metric, whether less is better.
    by : tuple of str
        Axes whose values are kept apart.
    """

    kind: str
    metrics: tuple[str, ...]
    least: tuple[bool, ...]
    by: tuple[str, ...]

    def __str__(self) -> str:
        if self.kind == "quantiles":
            what = ", ".join(self.metrics)
        else:
            what = ", ".join(
                f"{'least' if least else 'most'} {name}" for name, least in zip(self.metrics, self.least, strict=True)
            )
        return f"{self.kind} of {what}" + (f" by {', '.join(self.by)}" if self.by else "")

    def columns(self, space: Space) -> dict[str, str]:
        """Return the unit of every column of a part of the reduction."""
        units = space.columns()
        if self.kind != "quantiles":
            return units
        return {**{path: units[path] for path in self.by}, "metric": "", "bin": "1", "points": "1"}

    def part(self, space: Space) -> dict[str, Any]:
        """Work out one part of a space and return what is kept of it as columns; none where nothing is.

        Parameters
        ----------
        space : Space
            Of one corner.
        """
        words, scenario = space.corners[0].words, space.corners[0].scenario
        answer = evaluate_grid(scenario, {axis.path: axis.values for axis in space.grid}, self.metrics)
        values = [answer.metrics[name] if name in METRICS else getattr(answer, name) for name in self.metrics]
        values = [np.where(answer.fits, value, np.nan) for value in values]
        if self.kind == "quantiles":
            return self._counted(space, values)
        at, numbers = self._kept(space, values)
        placed = scenario
        for axis, index in zip(space.grid, at, strict=True):
            placed = put(placed, axis.path, np.array(axis.values)[index])
        count = len(numbers[0])
        if not count:
            return {}
        found = space.rows(words, evaluate(placed), lambda value: np.array(np.broadcast_to(value, count)))
        return {**found, **dict(zip(self.metrics, numbers, strict=True))}

    def _groups(self, space: Space, values: Sequence[Any]) -> tuple[list[int], tuple[int, ...], list[Any]]:
        """Return the axes of groups, the shape that the values have together, and the values, a row a group."""
        grid = [axis.path for axis in space.grid]
        places = [grid.index(path) for path in self.by if path in grid]
        joint = np.broadcast_shapes(*(np.shape(value) for value in values), (1,) * len(grid))
        joint = tuple(space.shape[place] if place in places else length for place, length in enumerate(joint))
        groups = math.prod(joint[place] for place in places)
        dense = [np.moveaxis(np.broadcast_to(value, joint), places, range(len(places))) for value in values]
        return places, joint, [array.reshape(groups, -1) for array in dense]

    def _kept(self, space: Space, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return where the points that are kept lie on each broadcasting axis, and their metrics.

        On an axis that no metric depends on, the first value stands for all.
        """
        places, joint, rows = self._groups(space, values)
        lengths = [joint[place] for place in places]
        rest = [place for place in range(len(joint)) if place not in places]
        rows_kept: list[list[Any]] = [[] for _ in joint]
        numbers: list[list[Any]] = [[] for _ in values]
        for group in range(len(rows[0])):
            of_group = [row[group] for row in rows]
            kept = self.choose(of_group)
            for place, at in zip(places, np.unravel_index(group, lengths), strict=True):
                rows_kept[place].append(np.full(len(kept), at))
            # The axis of length 1 is for where there is no other.
            for place, at in zip(rest, np.unravel_index(kept, [1, *(joint[place] for place in rest)])[1:], strict=True):
                rows_kept[place].append(at)
            for into, row in zip(numbers, of_group, strict=True):
                into.append(row[kept])
        return [np.concatenate(at) for at in rows_kept], [np.concatenate(number) for number in numbers]

    def choose(self, values: Sequence[Any]) -> Any:
        """Return which points of one group are kept, the best in the first metric first.

        Points of the same metrics are one: the first stands for them.

        Parameters
        ----------
        values : sequence of ndarray
            Of each metric; NaN where there is none.
        """
        costs = np.stack(
            [value if least else -value for value, least in zip(values, self.least, strict=True)], axis=-1
        ).astype(float)
        if self.kind == "best":
            there = np.flatnonzero(np.isfinite(costs).all(axis=-1))
            return there[[np.argmin(costs[there, 0])]] if len(there) else there
        kept = front(costs)
        return kept[np.argsort(costs[kept, 0], kind="stable")]

    def _counted(self, space: Space, values: Sequence[Any]) -> dict[str, Any]:
        """Return the points in each bin of each metric."""
        words = space.corners[0].words
        blocks = []
        for name, value in zip(self.metrics, values, strict=True):
            places, joint, (rows,) = self._groups(space, [value])
            each = math.prod(space.shape) // math.prod(joint)
            for group, row in enumerate(rows):
                bins, counts = np.unique(_bins(row), return_counts=True)
                at = dict(zip(places, np.unravel_index(group, [joint[place] for place in places]), strict=True))
                numbers = {axis.path: axis.values[at[place]] for place, axis in enumerate(space.grid) if place in at}
                block = {path: np.full(len(bins), {**words, **numbers}[path]) for path in self.by}
                blocks.append({**block, "metric": np.full(len(bins), name), "bin": bins, "points": counts * each})
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}

    def merge(self, frame: Any) -> Any:
        """Reduce united parts, as a pandas frame in the order of the parts, to one."""
        if self.kind == "quantiles":
            keys = [*self.by, "metric", "bin"]
            return frame.groupby(keys, sort=False, as_index=False)["points"].sum()
        if not self.by:
            return frame.iloc[self.choose([frame[name].to_numpy() for name in self.metrics])]
        groups = sorted(frame.groupby(list(self.by)).indices.values(), key=lambda at: int(at[0]))
        kept = [at[self.choose([frame[name].to_numpy()[at] for name in self.metrics])] for at in groups]
        return frame.iloc[np.concatenate(kept)] if kept else frame

    def finish(self, frame: Any) -> Any:
        """Return what a user reads, from the one frame that all parts were merged to."""
        if self.kind != "quantiles":
            return frame.reset_index(drop=True)
        import pandas as pd

        rows = []
        for key, group in frame.groupby([*self.by, "metric"], sort=False):
            valued = group[group["bin"] != _NOTHING].sort_values("bin")
            read = _quantiles(valued["bin"].to_numpy(), valued["points"].to_numpy())
            names = {**dict(zip([*self.by, "metric"], key, strict=True)), "unit": unit_of(key[-1])}
            counts = {"points": group["points"].sum(), "with_value": valued["points"].sum()}
            rows.append({**names, **counts, **{f"p{share * 100:g}": value for share, value in read.items()}})
        return pd.DataFrame(rows)


def _bins(values: Any) -> Any:
    """Return the bin of each value: its sign, exponent and first bits of the fraction, read as one whole number.

    Numbers of at least 0 lie in the order of their bits, so that the bins do too, and no logarithm rounds
    differently on another machine.
    """
    array = np.ascontiguousarray(values, dtype=float)
    there = np.isfinite(array)
    bins = np.abs(np.where(there, array, 0.0)).view(np.int64) >> _DROPPED
    return np.where(there, bins, _NOTHING)


def _quantiles(bins: Any, counts: Any) -> dict[float, float]:
    """Return the value at the rank floor(q (n - 1)), off by at most :data:`ERROR` of itself."""
    total = int(counts.sum())
    if not total:
        return dict.fromkeys(QUANTILES, math.nan)
    ranks = np.array([math.floor(share * (total - 1)) for share in QUANTILES])
    found = bins[np.searchsorted(np.cumsum(counts), ranks, side="right")].astype(np.int64)
    low, high = (np.ascontiguousarray(at << _DROPPED).view(float) for at in (found, found + 1))
    # The bin of 0 holds 0 and nothing that a model gives: its other numbers are below 1e-300.
    return dict(zip(QUANTILES, np.where(found == 0, 0.0, (low + high) / 2).tolist(), strict=True))


def parse(text: str, space: Space) -> Reduction:
    """Read a reduction: ``pareto:METRIC,METRIC``, ``best:METRIC``, ``quantiles:METRIC``, each with ``:by=AXIS,...``.

    Parameters
    ----------
    text : str
        A metric may end in ``=least`` or ``=most``; else times, power, energy, money and chips are best least, all
        others most.
    space : Space
        What is swept.

    Returns
    -------
    Reduction

    Raises
    ------
    UserError
        Where a word is wrong; the message lists those that would do.
    """
    kind, _, rest = text.partition(":")
    written, _, grouping = rest.partition(":")
    if kind not in KINDS:
        raise UserError(f"--keep {text}: write pareto:METRIC,METRIC, best:METRIC or quantiles:METRIC, and :by=AXIS,...")
    senses: dict[str, bool] = {}
    for word in written.split(","):
        name, equals, sense = word.strip().partition("=")
        if name not in REDUCED:
            raise UserError(f"--keep {text}: unknown metric '{name}': expected one of {', '.join(REDUCED)}")
        if name in senses:
            raise UserError(f"--keep {text}: {name} is given twice")
        if equals and (sense not in ("least", "most") or kind == "quantiles"):
            raise UserError(f"--keep {text}: only =least or =most follows a metric, of pareto or best")
        senses[name] = sense == "least" if equals else name == "chips" or is_better_low(name)
    if kind == "pareto" and len(senses) < 2:
        raise UserError(f"--keep {text}: a front is of two metrics or more; best:{next(iter(senses))} keeps the best")
    if kind == "best" and len(senses) > 1:
        raise UserError(f"--keep {text}: best is of one metric; pareto keeps the front of several")
    by = _groups(text, grouping, space) if grouping else ()
    return Reduction(kind, tuple(senses), tuple(senses.values()), by)


def _groups(text: str, written: str, space: Space) -> tuple[str, ...]:
    """Return the axes that ``by=`` names, by path or by the last part of it."""
    known = {axis.path: axis for axis in space.axes}
    short = {word: path for path, word in space.short_names().items()}
    if not written.startswith("by="):
        raise UserError(f"--keep {text}: '{written}' should be by=AXIS,...")
    grouped = []
    for word in written.removeprefix("by=").split(","):
        path = short.get(word.strip(), word.strip())
        if path not in known:
            raise UserError(f"--keep {text}: '{word}' is no axis of the sweep: expected one of {', '.join(known)}")
        grouped.append(path)
    groups = math.prod(len(known[path].values) for path in grouped)
    if groups > MOST_GROUPS:
        raise UserError(f"--keep {text}: {groups:,} groups are more than {MOST_GROUPS:,}: group by fewer axes")
    return tuple(dict.fromkeys(grouped))

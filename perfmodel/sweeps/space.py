"""Sweeps: numeric axes broadcast sparsely through one evaluation, categories loop.

The plan is settled once from the question, before the axes vary it, and said; a single prediction with that plan
gives the same numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfmodel.errors import UserError
from perfmodel.machines.step import CAUSES
from perfmodel.prediction import ALL, METRICS, Prediction, evaluate
from perfmodel.results import is_better_low, unit_of
from perfmodel.specs.paths import get, put
from perfmodel.specs.types import Scenario
from perfmodel.sweeps.axes import Axis
from perfmodel.tape import answers
from perfmodel.tape.arrays import blocks

#: Rows that are worked out at a time when a sweep leaves as rows.
BLOCK = 65536
#: Rows and columns that a notebook shows.
_SHOWN = 10
_HEAD = ("ttft_s", "tpot_s", "output_tokens_per_s", "usd_per_mtok_blended", "fits", "decode_limited_by")
#: Points that are evaluated at a time: few enough that intermediate results stay in the cache of a core.
EVALUATED = 2**16


@dataclass(frozen=True)
class Corner:
    """One combination of the looping axes.

    Attributes
    ----------
    words : dict
        Its values by path.
    scenario : Scenario
        The question that the broadcasting axes vary.
    """

    words: Mapping[str, Any]
    scenario: Scenario


@dataclass(frozen=True)
class Cell:
    """One combination of the looping axes.

    Attributes
    ----------
    words : dict
        Its values by path.
    prediction : Prediction
        Over the broadcasting axes; each array carries only those that it depends on.
    """

    words: Mapping[str, Any]
    prediction: Prediction


@dataclass(frozen=True)
class Space:
    """What a sweep will work out: the axes alone, however many points their product has.

    Attributes
    ----------
    axes : tuple of Axis
    corners : tuple of Corner
        One a combination of the axes that loop.
    assumed : tuple of str
        What the question left open.
    warnings : tuple of str
        Axes and changes that moved nothing.
    """

    axes: tuple[Axis, ...]
    corners: tuple[Corner, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def grid(self) -> tuple[Axis, ...]:
        """The axes that broadcast."""
        return tuple(axis for axis in self.axes if not axis.loops)

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each broadcasting axis."""
        return tuple(len(axis.values) for axis in self.grid)

    def __len__(self) -> int:
        return len(self.corners) * math.prod(self.shape)

    def columns(self) -> dict[str, str]:
        """Return the unit of every column of the rows."""
        units = {axis.path: axis.unit for axis in self.axes}
        units.update({"plan": "", "tp": "1", "pp": "1", "chips": "1"})
        units.update({key: unit_of(key) for key in METRICS})
        units.update({"fits": "", "max_concurrency": "1", "prefill_limited_by": "", "decode_limited_by": ""})
        return units

    def short_names(self) -> dict[str, str]:
        """Return the last word of each axis' path; where two end in the same, the whole paths with blanks."""
        words = [axis.path.rpartition(".")[2] for axis in self.axes]
        return {
            axis.path: word if words.count(word) == 1 else axis.path.replace(".", " ")
            for axis, word in zip(self.axes, words, strict=True)
        }

    def is_text(self, column: str) -> bool:
        """Whether a column of the rows holds words."""
        words = next((axis.values for axis in self.axes if axis.path == column), ())
        return column == "plan" or column.endswith("_limited_by") or any(isinstance(word, str) for word in words)

    def parts(self, most: int) -> int:
        """Return how many parts of at most so many points the space has; see :meth:`part`."""
        return len(self.corners) * math.prod(self._cuts(most))

    def part(self, number: int, most: int) -> Space:
        """Return one part: a run of points of one corner, in the order of the rows.

        The outermost axes are cut, so that an inner axis is whole and what does not depend on the outer ones stays
        small.
        """
        cuts = self._cuts(most)
        corner, inside = divmod(number, math.prod(cuts))
        pieces = (
            slice(length * int(at) // cut, length * (int(at) + 1) // cut)
            for length, at, cut in zip(self.shape, np.unravel_index(inside, cuts), cuts, strict=True)
        )
        axes = [axis if axis.loops else replace(axis, values=axis.values[next(pieces)]) for axis in self.axes]
        return Space(tuple(axes), (self.corners[corner],), self.assumed, self.warnings)

    def _cuts(self, most: int) -> list[int]:
        """Return into how many pieces each broadcasting axis is cut."""
        cuts, inner = [], 1
        for length in reversed(self.shape):
            cuts.append(math.ceil(length / max(1, most // inner)))
            inner *= length
        return cuts[::-1]

    def evaluate(self) -> Sweep:
        """Work out every point."""
        axes = {axis.path: axis.values for axis in self.grid}
        cells = tuple(Cell(corner.words, evaluate_grid(corner.scenario, axes)) for corner in self.corners)
        return Sweep(self.axes, self.corners, self.assumed, self.warnings, cells)

    def rows(self, words: Mapping[str, Any], answer: Prediction, pick: Callable[[Any], Any]) -> dict[str, Any]:
        """Return rows of one corner as columns; ``pick`` takes from an array of an answer the values of those rows."""
        columns: dict[str, Any] = {}
        for axis in self.axes:
            value = words[axis.path] if axis.loops else get(answer.scenario, axis.path)
            columns[axis.path] = pick(np.array(value, dtype=object) if axis.loops else value)
        plan = answer.scenario.deployment
        columns["plan"] = pick(np.array(plan.plan, dtype=object))
        columns.update({"tp": pick(plan.tp), "pp": pick(plan.pp), "chips": pick(answer.chips)})
        columns.update({key: pick(answer.metrics[key]) for key in METRICS})
        fits = pick(answer.fits)
        columns.update({"fits": fits, "max_concurrency": pick(answer.max_concurrency)})
        for phase in ("prefill", "decode"):
            shares = np.stack([pick(answer.breakdown[phase][cause]) for cause in CAUSES])
            named = np.array(CAUSES, dtype=object)[np.argmax(np.nan_to_num(shares), axis=0)]
            columns[f"{phase}_limited_by"] = np.where(fits, named, "")
        return columns


@dataclass(frozen=True)
class Sweep(Space):
    """The labelled result of a sweep.

    Attributes
    ----------
    axes : tuple of Axis
    corners : tuple of Corner
        One a combination of the axes that loop.
    assumed : tuple of str
        What the question left open.
    warnings : tuple of str
        Axes and changes that moved nothing.
    cells : tuple of Cell
        The answer of each corner.
    """

    cells: tuple[Cell, ...]

    def blocks(self, size: int = BLOCK) -> Iterator[dict[str, Any]]:
        """Give the rows as columns, a block at a time, the last axis fastest.

        Parameters
        ----------
        size : int
            Rows of a block.

        Returns
        -------
        iterator of dict
            Arrays by column.
        """
        points = math.prod(self.shape)
        for cell in self.cells:
            for start in range(0, points, size):
                yield self._block(cell, start, min(start + size, points))

    def _block(self, cell: Cell, start: int, stop: int) -> dict[str, Any]:
        index = np.unravel_index(np.arange(start, stop), self.shape) if self.shape else ()

        def pick(value: Any) -> Any:
            array = np.asarray(value)
            if array.ndim == 0:
                return np.full(stop - start, array)
            where = tuple(
                at if length > 1 else np.zeros_like(at) for at, length in zip(index, array.shape, strict=True)
            )
            return array[where]

        return self.rows(cell.words, cell.prediction, pick)

    def to_frame(self, short: bool = False) -> Any:
        """Return a pandas frame, one row a point.

        Parameters
        ----------
        short : bool
            Whether axes go by the last word of their paths, ``concurrency`` for ``traffic.concurrency``: charts read a
            dot as a field inside a field.  Where two axes end in the same word both keep their paths, with blanks.

        Returns
        -------
        pandas.DataFrame
            In inside units, which ``columns()`` names.
        """
        import pandas as pd

        frame = pd.concat([pd.DataFrame(block) for block in self.blocks()], ignore_index=True)
        if not short:
            return frame
        frame = frame.rename(columns=self.short_names())
        # An axis of the layout is a column of every sweep already.
        return frame.loc[:, ~frame.columns.duplicated()]

    def best(self, metric: str = "output_tokens_per_s") -> dict[str, Any]:
        """Return the row where a metric is best: least for times, power and cost, most for rates and utilisations.

        Parameters
        ----------
        metric : str
            A metric of a prediction.

        Returns
        -------
        dict
            The row, by column.

        Raises
        ------
        UserError
            Where the metric is unknown or no point fits.
        """
        if metric not in METRICS:
            raise UserError(f"unknown metric '{metric}': expected one of {', '.join(METRICS)}")
        sign = 1.0 if is_better_low(metric) else -1.0
        best: tuple[float, dict[str, Any]] | None = None
        for block in self.blocks():
            values = sign * np.where(block["fits"], block[metric], np.nan)
            if np.isnan(values).all():
                continue
            at = int(np.nanargmin(values))
            if best is None or values[at] < best[0]:
                best = float(values[at]), {name: column[at] for name, column in block.items()}
        if best is None:
            raise UserError("no point of the sweep fits")
        return best[1]

    def plot(self, x: str, y: str = "tpot_s", color: str | None = None) -> Any:
        """Return an Altair line chart of a metric against an axis.

        Parameters
        ----------
        x, y, color : str
            Columns, axes by the last word of their path or the whole path.

        Returns
        -------
        altair.Chart
        """
        import altair as alt

        if len(self) > 5000:
            raise UserError(f"a chart of {len(self):,} points is not readable: sweep fewer, or use to_frame()")
        short = self.short_names()
        units = {short.get(path, path): unit for path, unit in self.columns().items()}
        frame = self.to_frame(short=True)

        def field(name: str) -> tuple[str, str]:
            column = short.get(name, name)
            if column not in units:
                raise UserError(f"unknown column '{name}': expected one of {', '.join([*short.values(), *METRICS])}")
            unit = units[column]
            return column, f"{name} [{unit}]" if unit and unit != "1" else name

        (x_field, x_title), (y_field, y_title) = field(x), field(y)
        encoding: dict[str, Any] = {
            "x": alt.X(f"{x_field}:Q", title=x_title),
            "y": alt.Y(f"{y_field}:Q", title=y_title),
        }
        if color is not None:
            color_field, color_title = field(color)
            encoding["color"] = alt.Color(f"{color_field}:N", title=color_title)
        return alt.Chart(frame).mark_line(point=True).encode(**encoding)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{axis.path} ({len(axis.values)})" for axis in self.axes)
        return f"Sweep of {len(self):,} points: {sizes}"

    def _repr_html_(self) -> str:
        import html

        import pandas as pd

        some = itertools.islice(self.blocks(_SHOWN), _SHOWN)
        head = pd.concat(map(pd.DataFrame, some), ignore_index=True).head(_SHOWN)
        columns = [axis.path for axis in self.axes] + [name for name in _HEAD if name in head]
        table = head[columns].to_html(index=False, float_format="{:.4g}".format)
        more = f", of which {_SHOWN} are shown" if len(self) > _SHOWN else ""
        return f"<p>{html.escape(repr(self))}{more}</p>{table}"


def evaluate_grid(scenario: Scenario, axes: Mapping[str, Any], wanted: Collection[str] = ALL) -> Prediction:
    """Evaluate the product of numeric axes, a block at a time.

    Parameters
    ----------
    scenario : Scenario
    axes : mapping of str to sequence of float
        Values by full path, each on an axis of its own.
    wanted : collection of str
        Metrics to work out, and ``breakdown``.

    Returns
    -------
    Prediction
        Its arrays carry only the axes they depend on.

    """
    lengths = [len(values) for values in axes.values()]
    placed = placed_on(scenario, axes)
    if (done := answers.grid(scenario, axes, wanted)) is not None:
        return Prediction(scenario=placed, **done)
    if math.prod(lengths) <= EVALUATED:
        return evaluate(placed, wanted)

    def part(slices: Sequence[slice]) -> Prediction:
        cut = {path: values[piece] for (path, values), piece in zip(axes.items(), slices, strict=True)}
        return evaluate(placed_on(scenario, cut), wanted)

    def room(results: Any) -> Any:
        if isinstance(results, Mapping):
            return {key: room(value) for key, value in results.items()}
        if np.ndim(results) == 0:
            return results
        varies = zip(np.shape(results), lengths, strict=True)
        return np.empty([length if extent > 1 else 1 for extent, length in varies], dtype=results.dtype)

    def fill(target: Any, results: Any, slices: Sequence[slice]) -> None:
        if isinstance(results, Mapping):
            for key, value in results.items():
                fill(target[key], value, slices)
        elif np.ndim(results):
            varies = zip(slices, target.shape, strict=True)
            target[tuple(piece if extent > 1 else slice(None) for piece, extent in varies)] = results

    # Two values of each axis tell which axes each number depends on.
    probe = part([slice(2)] * len(lengths))
    whole = {name: room(getattr(probe, name)) for name in _ARRAYS}
    for slices in blocks(lengths, EVALUATED):
        answer = part(slices)
        for name in _ARRAYS:
            fill(whole[name], getattr(answer, name), slices)
    return replace(probe, scenario=placed, **whole)


#: Fields of a prediction that hold numbers.
_ARRAYS = ("metrics", "breakdown", "memory", "max_concurrency", "fits", "chips", "speculation")


def placed_on(scenario: Scenario, axes: Mapping[str, Any]) -> Scenario:
    """Return a scenario with each axis as an array on a dimension of its own."""
    for position, (path, values) in enumerate(axes.items()):
        shape = [-1 if place == position else 1 for place in range(len(axes))]
        scenario = put(scenario, path, np.asarray(values, dtype=float).reshape(shape))
    return scenario

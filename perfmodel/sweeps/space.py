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

from perfmodel.entered import idle, said, same, unmoved
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.machines.step import CAUSES
from perfmodel.prediction import ALL, METRICS, Prediction, evaluate, numbers
from perfmodel.question import Options, check_plan, resolve
from perfmodel.results import is_better_low, results, unit_of
from perfmodel.specs import catalog
from perfmodel.specs.paths import check, full_path, get, put, range_at, read
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show
from perfmodel.tape import answers
from perfmodel.tape.arrays import blocks

#: Rows that are worked out at a time when a sweep leaves as rows.
BLOCK = 65536
#: Rows and columns that a notebook shows.
_SHOWN = 10
_HEAD = ("ttft_s", "tpot_s", "output_tokens_per_s", "usd_per_mtok_blended", "fits", "decode_limited_by")
#: Points that are evaluated at a time: few enough that intermediate results stay in the cache of a core.
EVALUATED = 2**16
#: Values of one axis at the most: they are held as they stand, unlike the points of their product.
MOST_VALUES = 10**7

_WHOLE_SPECS = ("model", "system", "traffic")
_LAYOUT = ("deployment.tp", "deployment.pp", "deployment.ep", "deployment.dp", "deployment.attention_dp")
#: What decides whether a model can be laid out.
_LAID_OUT = (*_LAYOUT, "heads", ".count", ".experts", ".chips_per_node")
_WORDS = {
    "deployment.plan": "plan",
    "deployment.engine": "engine",
    "deployment.precision": "precision",
    "deployment.kv_precision": "kv_precision",
}


@dataclass(frozen=True)
class Axis:
    """One input that a sweep varies.

    Attributes
    ----------
    path : str
    values : tuple
        Numbers in the inside unit, or words.
    unit : str
        Of the numbers.
    loops : bool
        Whether each value is a question of its own; the others broadcast through one.
    """

    path: str
    values: tuple[Any, ...]
    unit: str = ""
    loops: bool = False


def parse_axis(scenario: Scenario, path: str, written: Any) -> Axis:
    """Read an axis: ``A:B:N`` (linear, both ends included), ``A:B:N:log``, a list of numbers, or a list of words.

    Raises
    ------
    UserError
        Where the path, a value or the form is wrong.
    """
    if path in _WHOLE_SPECS:
        return Axis(path, _some(path, tuple(_listed(written))), loops=True)
    try:
        where = full_path(scenario, path)
        old = get(scenario, where)
        if isinstance(old, bool | str):
            # A plan or an engine makes a question of its own, which refuses one that there is not.
            given = where in _WORDS
            choices = [word if given else read(scenario, where, word) for word in _listed(written)]
            return Axis(where, _some(path, tuple(_word(choice) for choice in choices)), loops=True)
        rule = range_at(scenario, where)
        values = _numbers(scenario, where, written)
    except UserError as error:
        raise UserError(f"--axis {path}: {error}") from None
    if where == "speculation.k" and scenario.speculation is not None and scenario.speculation.ar is not None:
        raise UserError(f"--axis {path}: an AR belongs to one k; give --alpha or --accept instead of --ar")
    # Where degrees are those of plans, or stages are searched for, each layout is a question of its own.
    loops = where in _LAYOUT and not machine_of(scenario.system).free_degrees
    return Axis(where, _some(path, values), rule.unit, loops=loops)


def _listed(written: Any) -> list[Any]:
    return written.split(",") if isinstance(written, str) else list(written)


def _word(choice: Any) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def _some(path: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values or any(value == "" for value in values):
        raise UserError(f"--axis {path}: give at least one value, as A:B:N, A:B:N:log or a,b,c")
    return values


def _numbers(scenario: Scenario, where: str, written: Any) -> tuple[float, ...]:
    """Return the values of an axis in the inside unit, each one that the quantity can have."""
    if not isinstance(written, str):
        return tuple(read(scenario, where, value) for value in written)
    parts = written.split(":")
    if len(parts) == 1:
        return tuple(read(scenario, where, part) for part in _listed(written))
    if len(parts) not in (3, 4) or (len(parts) == 4 and parts[3] != "log"):
        raise UserError("write A:B:N, A:B:N:log or a,b,c")
    low, high = (read(scenario, where, part) for part in parts[:2])
    if not parts[2].isdigit() or int(parts[2]) < 1:
        raise UserError(f"'{parts[2]}' is no number of points")
    if int(parts[2]) > MOST_VALUES:
        raise UserError(f"an axis takes at most {MOST_VALUES:,} points")
    if len(parts) == 4 and (low <= 0 or high <= 0):
        raise UserError("a logarithmic axis needs ends above 0")
    values = (np.geomspace if len(parts) == 4 else np.linspace)(low, high, int(parts[2]))
    if fault := range_at(scenario, where).fault(values):
        raise UserError(fault)
    return tuple(values.tolist())


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
        found = {axis.path: axis.unit for axis in self.axes}
        found.update({"plan": "", "tp": "1", "pp": "1", "chips": "1"})
        found.update({key: unit_of(key) for key in METRICS})
        found.update({"fits": "", "max_concurrency": "1", "prefill_limited_by": "", "decode_limited_by": ""})
        return found

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


def sweep(
    model: str | Model,
    on: str,
    axes: Mapping[str, Any] | Sequence[tuple[str, Any]],
    options: Options,
    changes: Sequence[str] = (),
) -> Sweep:
    """Evaluate a question over the product of axes; the parameters are those of :func:`space`.

    Returns
    -------
    Sweep
    """
    return space(model, on, axes, options, changes).evaluate()


def space(
    model: str | Model,
    on: str,
    axes: Mapping[str, Any] | Sequence[tuple[str, Any]],
    options: Options,
    changes: Sequence[str] = (),
) -> Space:
    """Settle a question and its axes, and work out nothing yet.

    Parameters
    ----------
    model, on, options, changes
        The question, as in :func:`perfmodel.question.resolve`; an axis replaces what it names.
    axes : mapping or sequence of pairs
        Path and values of each axis, see :func:`parse_axis`.

    Returns
    -------
    Space
    """
    pairs = list(axes.items()) if isinstance(axes, Mapping) else list(axes)
    if not pairs:
        raise UserError("a sweep needs at least one --axis PATH=A:B:N or PATH=a,b,c")
    base = _base(model, on, pairs, options, changes)
    parsed = tuple(parse_axis(base, path, values) for path, values in pairs)
    paths = [axis.path for axis in parsed]
    if len(set(paths)) < len(paths):
        raise UserError(f"--axis {next(path for path in paths if paths.count(path) > 1)} is given twice")
    loops = [axis for axis in parsed if axis.loops]
    grid = [axis for axis in parsed if not axis.loops]
    corners = []
    for combination in itertools.product(*(axis.values for axis in loops)):
        words = {axis.path: value for axis, value in zip(loops, combination, strict=True)}
        scenario = _looped(model, on, words, grid, options, changes)
        _check_layouts(scenario, grid)
        corners.append(Corner(words, scenario))
    assumed = [word for word in _assumed(corners) if not _varied(word, paths)]
    held = _held(corners[0], grid, lambda more: _looped(model, on, corners[0].words, grid, options, [*changes, *more]))
    return Space(parsed, tuple(corners), (*assumed, _LONG_RUN, *held), tuple(_idle(parsed, corners)))


def _held(corner: Corner, grid: Sequence[Axis], asked: Callable[[list[str]], Scenario]) -> list[str]:
    """Return where the layout is held along an axis at one of whose ends alone another would be assumed."""

    def words(scenario: Scenario) -> str:
        return f"TP{scenario.deployment.tp:g} PP{scenario.deployment.pp:g}"

    found = []
    for axis in grid:
        if axis.path.startswith("deployment."):
            continue
        others = []
        for end in dict.fromkeys((axis.values[0], axis.values[-1])):
            try:
                other = words(asked([f"{axis.path}={end!r}" + ("" if axis.unit == "1" else f" {axis.unit}")]))
            except UserError:
                continue
            if other != words(corner.scenario):
                others.append(f"{other} at {show(end, axis.unit, 3)}")
        if others:
            said = f"{words(corner.scenario)} is held along {axis.path}"
            found.append(f"{said}; alone it would be {' and '.join(others)}: ask for one value with --set")
    return found


def _idle(axes: Sequence[Axis], corners: Sequence[Corner]) -> list[str]:
    """Return a line for each axis, and each change of the question, that moves nothing at any corner.

    An axis is tried at its ends, the others at theirs.
    """
    grid = [axis for axis in axes if not axis.loops]

    def ends(scenario: Scenario, axis: Axis) -> tuple[float, float]:
        own = get(scenario, axis.path) if len(axis.values) == 1 else axis.values[-1]
        return axis.values[0], float(own)

    def probed(scenario: Scenario) -> list[Any]:
        placed = _placed(scenario, {axis.path: ends(scenario, axis) for axis in grid})
        return list(results(evaluate(placed)).values())

    still = {at: axis for at, axis in enumerate(grid) if len(set(ends(corners[0].scenario, axis))) > 1}
    paths = {axis.path for axis in axes}
    changed = tuple(change for change in corners[0].scenario.changed if change[0] not in paths)
    for corner in corners:
        scenario = replace(corner.scenario, changed=changed)
        numbers_here = [np.asarray(value) for value in probed(scenario)]
        still = {
            at: axis
            for at, axis in still.items()
            if all(value.ndim == 0 or same(*value.take([0, -1], at).swapaxes(0, at)) for value in numbers_here)
        }
        unmoved_here = unmoved(scenario, probed)
        changed = tuple(change for change in changed if change[0] in unmoved_here)
        if not still and not changed:
            break
    idle_here = [axis.path for axis in still.values()] + [path for path, _ in changed]
    return [*idle(corners[0].scenario, idle_here, numbers), *_idle_words(axes, corners, probed)]


def _idle_words(
    axes: Sequence[Axis], corners: Sequence[Corner], probed: Callable[[Scenario], list[Any]]
) -> Iterator[str]:
    """Give a line for each axis of words between none of whose values anything moves."""
    for axis in axes:
        if not axis.loops or axis.path in _WHOLE_SPECS or axis.path.startswith("deployment.") or len(axis.values) < 2:
            continue
        first: dict[tuple[Any, ...], list[Any]] = {}
        for corner in corners:
            others = tuple(value for path, value in corner.words.items() if path != axis.path)
            mine = probed(corner.scenario)
            if not same(first.setdefault(others, mine), mine):
                break
        else:
            yield said(axis.path, entered=True)


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
    placed = _placed(scenario, axes)
    if (done := answers.grid(scenario, axes, wanted)) is not None:
        return Prediction(scenario=placed, **done)
    if math.prod(lengths) <= EVALUATED:
        return evaluate(placed, wanted)

    def part(slices: Sequence[slice]) -> Prediction:
        cut = {path: values[piece] for (path, values), piece in zip(axes.items(), slices, strict=True)}
        return evaluate(_placed(scenario, cut), wanted)

    def room(found: Any) -> Any:
        if isinstance(found, Mapping):
            return {key: room(value) for key, value in found.items()}
        if np.ndim(found) == 0:
            return found
        varies = zip(np.shape(found), lengths, strict=True)
        return np.empty([length if extent > 1 else 1 for extent, length in varies], dtype=found.dtype)

    def fill(target: Any, found: Any, slices: Sequence[slice]) -> None:
        if isinstance(found, Mapping):
            for key, value in found.items():
                fill(target[key], value, slices)
        elif np.ndim(found):
            varies = zip(slices, target.shape, strict=True)
            target[tuple(piece if extent > 1 else slice(None) for piece, extent in varies)] = found

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


def _placed(scenario: Scenario, axes: Mapping[str, Any]) -> Scenario:
    """Return a scenario with each axis as an array on a dimension of its own."""
    for position, (path, values) in enumerate(axes.items()):
        shape = [-1 if place == position else 1 for place in range(len(axes))]
        scenario = put(scenario, path, np.asarray(values, dtype=float).reshape(shape))
    return scenario


#: What holds of the times of every point.
_LONG_RUN = "times of the long run, without a start, as predict --steady has them"
#: Corners that are named behind an assumption that not all of them share.
_NAMED = 3


def _assumed(corners: Sequence[Corner]) -> list[str]:
    """Return what is assumed: what all corners say as it is, the rest with the words of the corners that say it."""
    said: dict[str, list[str]] = {}
    for corner in corners:
        for word in corner.scenario.assumed:
            said.setdefault(word, []).append(" ".join(map(str, corner.words.values())))
    found = []
    for word, names in said.items():
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        found.append(word if len(names) == len(corners) else f"{word} ({', '.join(names[:_NAMED])}{more})")
    return found


def _varied(word: str, paths: Sequence[str]) -> bool:
    """Whether an assumption is about something that the axes vary."""
    about = {"concurrency": "traffic.concurrency", "precision": "deployment.precision", "DP": "deployment.dp"}
    about |= {"engine": "deployment.engine", "KV": "deployment.kv_precision", "plan": "deployment.tp"}
    first = word.split()[0]
    if word.endswith(catalog.IN_PLACE):
        return False
    if first == "traffic":
        return "traffic" in paths or {"traffic.prompt", "traffic.output"} <= set(paths)
    return about.get(first) in paths


def _first(written: Any) -> Any:
    return written.split(",")[0].split(":")[0] if isinstance(written, str) else next(iter(written))


def _base(
    model: str | Model, on: str, pairs: list[tuple[str, Any]], options: Options, changes: Sequence[str]
) -> Scenario:
    """Return the question itself, its whole specs and layout taken from the first values of their axes."""
    words = {path: _first(values) for path, values in pairs if path in _WHOLE_SPECS or path in _WORDS}
    layout = {path: float(_first(values)) for path, values in pairs if path in _LAYOUT and _is_number(_first(values))}
    return _looped(model, on, {**words, **layout}, [], options, changes)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _looped(
    model: str | Model, on: str, words: Mapping[str, Any], grid: list[Axis], options: Options, changes: Sequence[str]
) -> Scenario:
    """Return the scenario of one combination of the looping axes."""
    name, _, rest = on.partition(":")
    system = words.get("system", name)
    asked = f"{system}:{rest}" if rest else str(system)
    given: dict[str, Any] = {option: words[path] for path, option in _WORDS.items() if path in words}
    given.update({path.rpartition(".")[2]: float(words[path]) for path in _LAYOUT if path in words})
    given.update({axis.path.rpartition(".")[2]: axis.values[0] for axis in grid if axis.path in _LAYOUT})
    # The plan must do for the most requests that the sweep asks about.
    for axis in grid:
        if axis.path == "traffic.concurrency":
            given["concurrency"] = max(axis.values)
    if "traffic" in words:
        given.update({"traffic": words["traffic"], "prompt": None, "output": None})
    known = (*_WHOLE_SPECS, *_WORDS, *_LAYOUT)
    more = [f"{path}={value}" for path, value in words.items() if path not in known]
    return resolve(words.get("model", model), asked, replace(options, **given), [*changes, *more])


def _check_layouts(scenario: Scenario, grid: list[Axis]) -> None:
    """Refuse axes of which any combination breaks a rule between fields, or cannot be laid out."""
    paths = [axis.path for axis in grid]
    try:
        check(_placed(scenario, {axis.path: axis.values for axis in grid}), paths)
    except UserError as error:
        raise UserError(f"--axis {', '.join(paths)}: {error}") from None
    layouts = [axis for axis in grid if axis.path.endswith(_LAID_OUT)]
    for values in itertools.product(*(axis.values for axis in layouts)):
        changed = scenario
        for axis, value in zip(layouts, values, strict=True):
            changed = put(changed, axis.path, value)
        check_plan(changed.model, changed.system, changed.deployment)

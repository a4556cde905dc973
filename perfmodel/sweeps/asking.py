"""From a question and its axes to the space of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perfmodel.entered import idle, said, same, unmoved
from perfmodel.errors import UserError
from perfmodel.prediction import evaluate, numbers
from perfmodel.question import Options, check_plan, resolve
from perfmodel.results import results
from perfmodel.specs import catalog
from perfmodel.specs.paths import check, get, put
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show
from perfmodel.sweeps.axes import LAYOUT, WHOLE_SPECS, WORDS, Axis, parse_axis
from perfmodel.sweeps.space import Corner, Space, Sweep, placed_on

#: What decides whether a model can be laid out.
_LAID_OUT = (*LAYOUT, "heads", ".count", ".experts", ".chips_per_node")


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

    held_words = []
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
            held_words.append(f"{said}; alone it would be {' and '.join(others)}: ask for one value with --set")
    return held_words


def _idle(axes: Sequence[Axis], corners: Sequence[Corner]) -> list[str]:
    """Return a line for each axis, and each change of the question, that moves nothing at any corner.

    An axis is tried at its ends, the others at theirs.
    """
    grid = [axis for axis in axes if not axis.loops]

    def ends(scenario: Scenario, axis: Axis) -> tuple[float, float]:
        own = get(scenario, axis.path) if len(axis.values) == 1 else axis.values[-1]
        return axis.values[0], float(own)

    def probed(scenario: Scenario) -> list[Any]:
        placed = placed_on(scenario, {axis.path: ends(scenario, axis) for axis in grid})
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
        if not axis.loops or axis.path in WHOLE_SPECS or axis.path.startswith("deployment.") or len(axis.values) < 2:
            continue
        first: dict[tuple[Any, ...], list[Any]] = {}
        for corner in corners:
            others = tuple(value for path, value in corner.words.items() if path != axis.path)
            mine = probed(corner.scenario)
            if not same(first.setdefault(others, mine), mine):
                break
        else:
            yield said(axis.path, entered=True)


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
    assumed = []
    for word, names in said.items():
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        assumed.append(word if len(names) == len(corners) else f"{word} ({', '.join(names[:_NAMED])}{more})")
    return assumed


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
    words = {path: _first(values) for path, values in pairs if path in WHOLE_SPECS or path in WORDS}
    layout = {path: float(_first(values)) for path, values in pairs if path in LAYOUT and _is_number(_first(values))}
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
    given: dict[str, Any] = {option: words[path] for path, option in WORDS.items() if path in words}
    given.update({path.rpartition(".")[2]: float(words[path]) for path in LAYOUT if path in words})
    given.update({axis.path.rpartition(".")[2]: axis.values[0] for axis in grid if axis.path in LAYOUT})
    # The plan must do for the most requests that the sweep asks about.
    for axis in grid:
        if axis.path == "traffic.concurrency":
            given["concurrency"] = max(axis.values)
    if "traffic" in words:
        given.update({"traffic": words["traffic"], "prompt": None, "output": None})
    known = (*WHOLE_SPECS, *WORDS, *LAYOUT)
    more = [f"{path}={value}" for path, value in words.items() if path not in known]
    return resolve(words.get("model", model), asked, replace(options, **given), [*changes, *more])


def _check_layouts(scenario: Scenario, grid: list[Axis]) -> None:
    """Refuse axes of which any combination breaks a rule between fields, or cannot be laid out."""
    paths = [axis.path for axis in grid]
    try:
        check(placed_on(scenario, {axis.path: axis.values for axis in grid}), paths)
    except UserError as error:
        raise UserError(f"--axis {', '.join(paths)}: {error}") from None
    layouts = [axis for axis in grid if axis.path.endswith(_LAID_OUT)]
    for values in itertools.product(*(axis.values for axis in layouts)):
        changed = scenario
        for axis, value in zip(layouts, values, strict=True):
            changed = put(changed, axis.path, value)
        check_plan(changed.model, changed.system, changed.deployment)

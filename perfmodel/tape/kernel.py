"""Results of a scenario over many points, by whatever runs its program fastest here.

A program that lies compiled in the cache is used at once.  Else the first points go the way that needs no preparation,
and a structure is prepared when it was asked about so often that preparing would have paid: numbered for NumPy after
:data:`NUMBER_AT` points, compiled after :data:`COMPILE_AT`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.entered import as_nodes
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.specs.paths import get, put_all
from perfmodel.specs.types import Scenario
from perfmodel.tape import arrays, c, library
from perfmodel.tape.numbered import Numbered, number
from perfmodel.tape.structure import structure
from perfmodel.trace import Ledger
from perfmodel.version import __version__
from perfmodel.writing import whole

#: Points of one structure from which on its program is numbered, and from which on it is compiled.
NUMBER_AT, COMPILE_AT = 2**17, 2**20
#: Points that a compiled program works out at a time, so that its tables stay small.
_AT_ONCE = 2**20
#: An axis of so many points is long enough for the innermost loop.
_LONG = 32
#: What a trace goes through, in this package: other code, other programs.
_TRACED = ("", "equations", "machines", "prediction", "serving", "specs", "tape")

#: Results by name of a scenario whose numbers are nodes.
Results = Callable[[Scenario], Mapping[str, Any]]


@dataclass(frozen=True)
class Kernel:
    """A compiled program.

    Attributes
    ----------
    run : Any
        The function of the library.
    fixed, varying, results, tables
        See :class:`perfmodel.tape.c.Source`.
    """

    run: Any
    fixed: tuple[str, ...]
    varying: tuple[str, ...]
    results: Mapping[str, tuple[int, ...]]
    tables: tuple[tuple[int, ...], ...]

    def __call__(self, fixed: Any, values: Mapping[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
        """Work a grid out.

        Parameters
        ----------
        fixed : ndarray
            The fixed inputs.
        values : mapping of str to ndarray
            Of each input that varies, along its axis.
        lengths : sequence of int
            Of the axes.

        Returns
        -------
        dict of str to ndarray
            Each over the axes that it depends on, the others being of length 1.
        """
        sizes = {name: math.prod(lengths[at] for at in own) for name, own in self.results.items()}
        made = {name: np.empty(size + c.PAD) for name, size in sizes.items()}
        columns = [np.append(values[path], np.ones(c.PAD)) for path in self.varying]
        scratch = np.empty(sum(math.prod(lengths[at] for at in own) + c.PAD for own in self.tables))
        self.run(
            (ctypes.c_long * len(lengths))(*lengths),
            fixed.ctypes.data,
            _addresses(columns),
            _addresses(made.values()),
            scratch.ctypes.data,
        )
        return {
            name: found[: sizes[name]].reshape(
                [length if at in self.results[name] else 1 for at, length in enumerate(lengths)]
            )
            for name, found in made.items()
        }


def _addresses(found: Any) -> Any:
    where = [array.ctypes.data for array in found]
    return (ctypes.c_void_p * max(1, len(where)))(*where)


@dataclass(frozen=True)
class Asked:
    """What is asked about a scenario.

    Attributes
    ----------
    name : str
        Of the results and of which of them: with the structure it decides the program.
    results : callable
        Gives them of traced nodes.
    """

    name: str
    results: Results


_points: dict[str, int] = {}
_kernels: dict[str, Kernel | None] = {}
_numbered: dict[str, Numbered | None] = {}
_last: list[tuple[Scenario, str]] = []


def over(asked: Asked, scenario: Scenario, axes: Mapping[str, int], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return results over a grid, where something is prepared for them or should be.

    Parameters
    ----------
    asked : Asked
    scenario : Scenario
        All numbers floats.
    axes : mapping of str to int
        The axis of each input that varies, by path.
    values : mapping of str to ndarray
        Its values, one-dimensional; those on one axis are equally long.

    Returns
    -------
    dict of str to (float or ndarray) or None
        Arrays of one dimension an axis, of length 1 along those that a result does not depend on.  None where the
        points are too few for anything but evaluating them straight on.
    """
    lengths = [0] * (1 + max(axes.values(), default=-1))
    for path, at in axes.items():
        lengths[at] = len(values[path])
    if not lengths or not math.prod(lengths):
        return None
    order = _order(lengths)
    turned = {path: order.index(at) for path, at in axes.items()}
    key = library.digest(asked.name, _structure(scenario), repr(sorted(turned.items())), _stamp())
    points = _points[key] = _points.get(key, 0) + math.prod(lengths)

    def program() -> Numbered | None:
        # An input that varies has values, also where the scenario has none.
        return _program(key, asked, put_all(scenario, {path: float(values[path][0]) for path in axes}))

    kernel = _kernel(key, scenario, turned, program, points >= COMPILE_AT)
    if kernel is not None:
        outputs = _in_parts(kernel, scenario, turned, values, [lengths[at] for at in order])
    elif points >= NUMBER_AT and (calls := program()) is not None:
        outputs = arrays.over(calls, inputs_of(calls.inputs, scenario), turned, values)
    else:
        return None
    back = np.argsort(order)
    return {name: _turned(value, back) for name, value in outputs.items()}


def _structure(scenario: Scenario) -> str:
    """Return the digest of a scenario's structure; the last one is asked about again and again."""
    if not _last or _last[0][0] is not scenario:
        _last[:] = [(scenario, library.digest(repr(structure(scenario))))]
    return _last[0][1]


def _turned(value: Any, back: Any) -> Any:
    return float(value.reshape(())) if value.size == 1 and value.ndim else np.transpose(value, back)


def inputs_of(paths: Sequence[str], scenario: Scenario) -> dict[str, float]:
    """Return the values of inputs by path.

    Parameters
    ----------
    paths : sequence of str
    scenario : Scenario

    Returns
    -------
    dict of str to float
    """
    return {path: float(get(scenario, path)) for path in paths}


def _order(lengths: Sequence[int]) -> list[int]:
    """Return the axes as loops nest: as they stand, but the longest innermost where the last is short."""
    order = list(range(len(lengths)))
    if lengths[-1] < _LONG:
        longest = max(order, key=lambda at: lengths[at])
        order.append(order.pop(longest))
    return order


def _in_parts(
    kernel: Kernel, scenario: Scenario, axes: Mapping[str, int], values: Mapping[str, Any], lengths: list[int]
) -> dict[str, Any]:
    """Work a grid out a part at a time, cut along its longest axes."""
    fixed = np.array(list(inputs_of(kernel.fixed, scenario).values()))
    if math.prod(lengths) <= _AT_ONCE:
        return kernel(fixed, values, lengths)
    whole_of = {
        name: np.empty([length if at in own else 1 for at, length in enumerate(lengths)])
        for name, own in kernel.results.items()
    }
    cuts = list(lengths)
    while math.prod(cuts) > _AT_ONCE:
        longest = max(range(len(cuts)), key=lambda at: cuts[at])
        cuts[longest] = math.ceil(cuts[longest] / 2)
    for at in np.ndindex(*(math.ceil(length / cut) for length, cut in zip(lengths, cuts, strict=True))):
        pieces = [
            slice(place * cut, min((place + 1) * cut, length))
            for place, cut, length in zip(at, cuts, lengths, strict=True)
        ]
        part = {path: values[path][pieces[axis]] for path, axis in axes.items()}
        found = kernel(fixed, part, [piece.stop - piece.start for piece in pieces])
        for name, value in found.items():
            own = kernel.results[name]
            whole_of[name][tuple(piece if axis in own else slice(None) for axis, piece in enumerate(pieces))] = value
    return whole_of


def _program(key: str, asked: Asked, scenario: Scenario) -> Numbered | None:
    if key not in _numbered:
        try:
            _numbered[key] = traced(asked.results, scenario)
        except ArithmeticError:
            # A step divides by 0 at these values; arrays go on where a trace cannot.
            _numbered[key] = None
    return _numbered[key]


def traced(results: Results, scenario: Scenario) -> Numbered:
    """Return the numbered program of some results of a scenario.

    Parameters
    ----------
    results : callable
        Gives them of the scenario with nodes.
    scenario : Scenario
        All numbers floats.

    Returns
    -------
    Numbered
    """
    with Ledger() as ledger:
        return number(results(as_nodes(ledger, scenario)))


def _kernel(
    key: str, scenario: Scenario, axes: Mapping[str, int], program: Callable[[], Numbered | None], pays: bool
) -> Kernel | None:
    """Return a compiled program: of this process, of the cache, or a new one where that pays."""
    if key in _kernels:
        return _kernels[key]
    stored = _read(key, scenario)
    if stored is None and not pays:
        return None
    if stored is None and (traced_now := program()) is not None:
        source = c.source(traced_now, axes)
        run = library.compile(source.text)
        if run is not None:
            stored = Kernel(run, source.fixed, source.varying, source.results, source.tables)
            _write(key, scenario, source)
    _kernels[key] = stored
    return stored


# --- which library belongs to a structure --------------------------------------------------------------------------


def _entry(key: str, scenario: Scenario) -> Path | None:
    """Return the file that says which library is that of a structure.

    None for a kind of machine of somebody else, whose code may change without us seeing it.
    """
    folder = library.folder()
    ours = type(machine_of(scenario.system)).__module__.startswith("perfmodel.")
    return folder / f"{library.digest(key, library.machine())}.json" if folder is not None and ours else None


def _read(key: str, scenario: Scenario) -> Kernel | None:
    path = _entry(key, scenario)
    if path is None or not path.exists():
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        run = library.load(said["library"])
        results = {name: tuple(own) for name, own in said["results"].items()}
        if run is None:
            return None
        return Kernel(run, tuple(said["fixed"]), tuple(said["varying"]), results, tuple(map(tuple, said["tables"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # A file that somebody cut short is as good as none.


def _write(key: str, scenario: Scenario, source: c.Source) -> None:
    path = _entry(key, scenario)
    if path is None:
        return
    said = {
        "library": library.name_of(source.text),
        "fixed": source.fixed,
        "varying": source.varying,
        "results": source.results,
        "tables": source.tables,
    }
    try:
        with whole(path) as partial:
            partial.write_text(json.dumps(said), encoding="utf-8")
    except UserError:
        pass  # A folder that cannot be written keeps nothing.


@functools.cache
def _stamp() -> str:
    """Return what tells the code that a trace goes through from any other."""
    root = os.path.dirname(os.path.dirname(__file__))
    files = []
    for room in _TRACED:
        for folder, below, names in os.walk(os.path.join(root, room)):
            if not room:
                below.clear()
            for name in names:
                if name.endswith(".py"):
                    state = os.stat(os.path.join(folder, name))
                    files.append(f"{os.path.relpath(folder, root)}/{name} {state.st_size} {state.st_mtime_ns}")
    return library.digest(__version__, *sorted(files))

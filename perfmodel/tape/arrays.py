"""A numbered program as calls of NumPy into buffers that are used again, a block of points at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from perfmodel.numerics.backends import ARRAY
from perfmodel.tape.numbered import CONSTANT, INPUT, Numbered, Step

#: Points that are worked out at a time: few, so that what lies between stays in the cache of a core.
BLOCK = 2**15
#: Operations that NumPy writes into a buffer.
_INTO = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "pow": np.power,
    "neg": np.negative,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
}


def over(
    program: Numbered, inputs: Mapping[str, float], axes: Mapping[str, int], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the results of a program over a grid.

    Parameters
    ----------
    program : Numbered
    inputs : mapping of str to float
        Those that do not vary, by path.
    axes : mapping of str to int
        The axis of each input that varies, by path.
    values : mapping of str to ndarray
        Its values along that axis.

    Returns
    -------
    dict of str to ndarray
        Of one dimension an axis, of length 1 along those that a result does not depend on.
    """
    rank = 1 + max(axes.values())
    lengths = [0] * rank
    for path, axis in axes.items():
        lengths[axis] = len(values[path])
    masks = program.dependence(axes)
    outputs = {
        name: np.empty([length if masks[at] >> axis & 1 else 1 for axis, length in enumerate(lengths)])
        for name, at in program.results.items()
    }

    def placed(pieces: Sequence[slice]) -> dict[str, Any]:
        return {
            path: np.asarray(values[path][pieces[axis]], dtype=float).reshape(
                [-1 if place == axis else 1 for place in range(rank)]
            )
            for path, axis in axes.items()
        }

    cuts = list(blocks(lengths, BLOCK))
    cut = sum(1 << axis for axis in range(rank) if len({pieces[axis].start for pieces in cuts}) > 1)
    with np.errstate(all="ignore"):  # NaN goes in and comes out
        runner = _Runner(program, masks, cut, {**inputs, **placed(cuts[0])})
        for pieces in cuts:
            done = runner.run(placed(pieces), [piece.stop - piece.start for piece in pieces])
            for name, at in program.results.items():
                where = tuple(piece if masks[at] >> axis & 1 else slice(None) for axis, piece in enumerate(pieces))
                outputs[name][where] = done[at]
    return outputs


def blocks(lengths: Sequence[int], most: int) -> Iterator[tuple[slice, ...]]:
    """Give the blocks of a grid, each as long as it may be along the inner axes, so that loops stay long.

    Parameters
    ----------
    lengths : sequence of int
        Of the axes.
    most : int
        Points of a block.

    Returns
    -------
    iterator of tuple of slice
    """
    extents, left = [], most
    for length in reversed(lengths):
        extents.append(min(length, max(1, left)))
        left //= extents[-1]
    cuts = zip(lengths, reversed(extents), strict=True)
    return itertools.product(
        *([slice(at, min(at + extent, length)) for at in range(0, length, extent)] for length, extent in cuts)
    )


class _Runner:
    """Works blocks out; what no axis that is cut decides is done once."""

    def __init__(self, program: Numbered, masks: Sequence[int], cut: int, inputs: Mapping[str, Any]) -> None:
        self.masks = masks
        #: The value of every step, of those in a block from block to block.
        self.values: list[Any] = [None] * len(program.steps)
        self.steps: list[tuple[int, Step]] = []
        for at, step in enumerate(program.steps):
            if masks[at] & cut or (masks[at] and not cut):
                self.steps.append((at, step))
            elif step.kind == CONSTANT:
                self.values[at] = np.float64(step.value)
            elif step.kind == INPUT:
                self.values[at] = inputs[step.value] if masks[at] else np.float64(inputs[step.value])
            else:
                self.values[at] = _called(step, [self.values[arg] for arg in step.args])
        inside = {at for at, step in self.steps if step.kind != INPUT}
        last = {arg: at for at, step in self.steps for arg in step.args}
        #: Those of a block that nothing reads after a step, so that their buffers are free.
        self.freed: dict[int, list[int]] = {at: [] for at, _ in self.steps}
        for arg, at in last.items():
            if arg in inside and arg not in program.results.values():
                self.freed[at].append(arg)
        self.kept = [at for at in program.results.values() if at in inside]
        self.pools: dict[int, list[Any]] = {}
        self.shape: list[int] = []

    def run(self, columns: Mapping[str, Any], shape: list[int]) -> list[Any]:
        """Return the value of every step, of which those of the results are those of a block."""
        masks, values, pools = self.masks, self.values, self.pools
        if shape != self.shape:
            self.shape = shape
            pools.clear()
        for at, step in self.steps:
            if step.kind == INPUT:
                values[at] = columns[step.value]
                continue
            args = [values[arg] for arg in step.args]
            into = _INTO.get(step.kind)
            if into is None:
                values[at] = _called(step, args)
            else:
                pool = pools.setdefault(masks[at], [])
                values[at] = into(*args, out=pool.pop() if pool else self._room(masks[at]))
            for arg in self.freed[at]:
                pools.setdefault(masks[arg], []).append(values[arg])
        for at in set(self.kept):
            # They are read before the next block begins.
            pools.setdefault(masks[at], []).append(values[at])
        return values

    def _room(self, mask: int) -> Any:
        return np.empty([length if mask >> axis & 1 else 1 for axis, length in enumerate(self.shape)])


def _called(step: Step, args: Sequence[Any]) -> Any:
    if step.kind in _INTO:
        return _INTO[step.kind](*args)
    more = () if step.value is None else (step.value,)
    return ARRAY[step.kind](*args, *more)

"""The numbered program of a trace: every operation once, in order, with the numbers of its operands.

Equal operations are one, operations on constants are done, and what changes no bit of a number (times 1, less 0) is
left out.  Inputs stay inputs, so that one program serves every scenario of a structure.  It is a Wengert list, which
every back end of this room reads, and which derivatives are taken of (:mod:`perfmodel.tape.gradient`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfmodel.trace import OPERATIONS, Node

#: Steps that compute nothing: a constant, and an input by its path.
CONSTANT, INPUT = "constant", "input"
_COMMUTE = frozenset({"add", "mul"})
#: What gives back its first operand when the second is this.
_NEUTRAL = {"sub": 0.0, "mul": 1.0, "div": 1.0, "pow": 1.0}


@dataclass(frozen=True)
class Step:
    """One step of a program.

    Attributes
    ----------
    kind : str
        ``constant``, ``input``, or an operation of :data:`perfmodel.trace.OPERATIONS`.
    args : tuple of int
        Numbers of the steps that are its operands.
    value : float or str or tuple
        Of a constant the number, of an input the path, of ``interpolate`` the knots; else nothing.
    """

    kind: str
    args: tuple[int, ...] = ()
    value: Any = None


@dataclass(frozen=True)
class Numbered:
    """A program.

    Attributes
    ----------
    steps : tuple of Step
        Each after its operands.
    results : dict of str to int
        The step of each result.
    """

    steps: tuple[Step, ...]
    results: Mapping[str, int]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Paths of the inputs, in order."""
        return tuple(step.value for step in self.steps if step.kind == INPUT)

    def evaluate(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return the results at one set of inputs.

        Parameters
        ----------
        inputs : mapping of str to float
            By path.

        Returns
        -------
        dict of str to float

        Raises
        ------
        ArithmeticError
            Where a step has no value, as Python divides by 0.
        """
        values: list[float] = []
        for step in self.steps:
            if step.kind == CONSTANT:
                values.append(step.value)
            elif step.kind == INPUT:
                values.append(inputs[step.value])
            else:
                values.append(_done(step, values))
        return {name: values[at] for name, at in self.results.items()}

    def dependence(self, axes: Mapping[str, int]) -> list[int]:
        """Return the set of axes that each step depends on, as bits.

        Parameters
        ----------
        axes : mapping of str to int
            The number of the axis that an input varies along, by path; other inputs are fixed.

        Returns
        -------
        list of int
        """
        masks: list[int] = []
        for step in self.steps:
            bits = 1 << axes[step.value] if step.kind == INPUT and step.value in axes else 0
            for arg in step.args:
                bits |= masks[arg]
            masks.append(bits)
        return masks


def _done(step: Step, values: Sequence[float] | Mapping[int, float]) -> float:
    more = () if step.value is None else (step.value,)
    return float(OPERATIONS[step.kind](*(values[arg] for arg in step.args), *more))


class Builder:
    """Numbers steps as they come; a step that is there already keeps its number."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._known: dict[Any, int] = {}

    def constant(self, value: float) -> int:
        """Return the step of a constant."""
        # Zeros of either sign differ, and all NaN are one.
        return self._step(Step(CONSTANT, value=float(value)), (CONSTANT, repr(float(value))))

    def input(self, path: str) -> int:
        """Return the step of an input."""
        return self._step(Step(INPUT, value=path), (INPUT, path))

    def apply(self, kind: str, *args: int, value: Any = None) -> int:
        """Return the step of an operation."""
        if kind in _COMMUTE:
            args = tuple(sorted(args, key=lambda at: (self.steps[at].kind == CONSTANT, at)))
        if kind in _NEUTRAL and self._is(args[1], _NEUTRAL[kind]):
            return args[0]
        if kind == "pow" and self._is(args[1], 0.5):
            return self.apply("sqrt", args[0])
        step = Step(kind, args, value)
        if all(self.steps[arg].kind == CONSTANT for arg in args):
            try:
                return self.constant(_done(step, {arg: self.steps[arg].value for arg in args}))
            except ArithmeticError:
                pass  # What has no value as Python divides may have one where it is run.
        return self._step(step, (kind, args, value))

    def _is(self, at: int, value: float) -> bool:
        step = self.steps[at]
        return step.kind == CONSTANT and step.value == value

    def _step(self, step: Step, key: Any) -> int:
        if key not in self._known:
            self._known[key] = len(self.steps)
            self.steps.append(step)
        return self._known[key]

    def finish(self, results: Mapping[str, int]) -> Numbered:
        """Return the program of some results: the steps that they need, numbered anew, the inputs first."""
        needed: set[int] = set()
        stack = list(results.values())
        while stack:
            at = stack.pop()
            if at not in needed:
                needed.add(at)
                stack.extend(self.steps[at].args)
        order = sorted(needed, key=lambda at: (self.steps[at].kind != INPUT, at))
        places = {at: number for number, at in enumerate(order)}
        steps = tuple(
            Step(one.kind, tuple(places[arg] for arg in one.args), one.value)
            for one in (self.steps[at] for at in order)
        )
        return Numbered(steps, {name: places[at] for name, at in results.items()})


def number(results: Mapping[str, Any]) -> Numbered:
    """Return the program of traced results.

    Parameters
    ----------
    results : mapping of str to (Node or float)

    Returns
    -------
    Numbered
    """
    builder = Builder()
    places: dict[int, int] = {}

    def place(node: Any) -> int:
        return places[id(node)] if isinstance(node, Node) else builder.constant(float(node))

    for node in _ordered(results.values()):
        if node.kind == "input":
            places[id(node)] = builder.input(node.label)
        elif node.kind in ("line", "argument"):
            places[id(node)] = place(_behind(node))
        else:
            knots = next((arg for arg in node.args if isinstance(arg, tuple)), None)
            args = [place(arg) for arg in node.args if not isinstance(arg, tuple)]
            places[id(node)] = builder.apply(node.kind, *args, value=knots)
    return builder.finish({name: place(node) for name, node in results.items()})


def _behind(node: Node) -> Any:
    """Return what a line or an argument stands for."""
    return node.line.formula if node.line is not None else node.args[0]


def _ordered(roots: Iterable[Any]) -> Iterator[Node]:
    """Give the nodes that roots depend on, each after its operands."""
    done: set[int] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if not isinstance(node, Node) or id(node) in done:
                continue
            if ready:
                done.add(id(node))
                yield node
                continue
            stack.append((node, True))
            below = (_behind(node),) if node.kind in ("line", "argument") else node.args
            stack.extend((arg, False) for arg in below)

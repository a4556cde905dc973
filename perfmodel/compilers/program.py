"""Scenarios of one structure share one program: the same steps in the same order, fed by other inputs.

A trace depends on the words and switches of a scenario, and on which of its numbers are published, never on the numbers
themselves.  So one trace stands for every scenario of a structure, and scenarios whose steps read alike share a
program even where their words differ: what differs, such as the rate that a precision computes at or its bytes, is a
slot that each scenario fills with a constant or with the path of an input.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.compilers.formula import Language, Step, steps
from perfmodel.compilers.javascript import LANGUAGE as PLAIN
from perfmodel.machines.base import machine_of
from perfmodel.prediction import traced
from perfmodel.results import results
from perfmodel.serving.steady import peak_rate
from perfmodel.specs.types import Scenario
from perfmodel.specs.weights import layer_count
from perfmodel.tape.structure import structure
from perfmodel.trace import OPERATIONS, Ledger, Node

#: A constant, or the path of an input.
Leaf = float | str


@dataclass(frozen=True)
class Trace:
    """The steps of a scenario as text without its leaves; the leaves in the order of the text, and the step of each."""

    steps: tuple[Step, ...]
    text: str
    leaves: tuple[Leaf, ...]
    owners: tuple[str, ...]


def trace(scenario: Scenario) -> Trace:
    """Trace a scenario, its constants and inputs taken out of its steps."""
    ledger, answer = traced(scenario)
    steps = all_steps(ledger, {**results(answer), **limits(answer.scenario)})
    leaves: list[Leaf] = []

    def constant(value: float) -> str:
        leaves.append(float(value))
        return "@"

    def path(label: str) -> str:
        leaves.append(label)
        return "@"

    texts: list[str] = []
    owners: list[str] = []
    for step, text in zip(
        steps, _write(steps, replace(PLAIN, number=constant), path, lambda at: f"v{at}"), strict=True
    ):
        owners += [step.name] * (len(leaves) - len(owners))
        texts.append(f"{step.name if is_result(step) else ''}: {text}")
    return Trace(steps, "\n".join(texts), tuple(leaves), tuple(owners))


def limits(scenario: Scenario) -> dict[str, Any]:
    """Return what bounds a scenario besides its results.

    The stages that hold only embedding and head, and the layers, between which the number of stages lies; peak rate and
    memory bandwidth of a chip.
    """
    machine = machine_of(scenario.system)
    return {
        "stages_ends": machine.end_stages(scenario),
        "stages_layers": layer_count(scenario.model),
        "roofline_peak": peak_rate(scenario),
        "roofline_bandwidth": machine.weights_memory(scenario.system).bandwidth,
    }


def all_steps(ledger: Ledger, shown: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the steps of a calculation, then one for each result, those that are constants too."""
    inner = [step for step in steps(ledger, shown) if not is_result(step)]
    ends = [
        Step(name, name, "", "", value, value.value if isinstance(value, Node) else float(value))
        for name, value in shown.items()
    ]
    return (*inner, *ends)


def is_result(step: Step) -> bool:
    """Whether a step is one of the results."""
    return isinstance(step.node, str)


def _write(
    steps: Sequence[Step], language: Language, path: Callable[[str], str], place: Callable[[int], str]
) -> Iterator[str]:
    """Give the expressions of steps; ``path`` names an input, ``place`` an earlier step."""
    places: dict[int, int] = {}

    def leaf(node: Node) -> str | None:
        if node.kind == "input":
            return path(node.label)
        at = places.get(id(node.line if node.line is not None else node))
        return None if at is None else place(at)

    for at, step in enumerate(steps):
        yield language.write(step.expression, leaf)
        places[id(step.node)] = at


@dataclass(frozen=True)
class Program:
    """The steps that several scenarios share.

    Attributes
    ----------
    steps : tuple of Step
        As the first of them has them; the results come last.
    occurrences : tuple
        For each leaf in the order of the text: a constant, the path of an input, or the number of a slot.
    slots : tuple of str
        For each slot, what it is for: the step that first needs it.
    """

    steps: tuple[Step, ...]
    occurrences: tuple[Leaf | int, ...]
    slots: tuple[str, ...]

    @functools.cached_property
    def paths(self) -> tuple[str, ...]:
        """The inputs that every scenario of the program reads at the same place."""
        return tuple(dict.fromkeys(leaf for leaf in self.occurrences if isinstance(leaf, str)))

    def write(
        self,
        language: Language,
        path: Callable[[str], str],
        slot: Callable[[int], str],
        place: Callable[[int], str],
    ) -> list[str]:
        """Return the expression of every step in a language."""
        left = iter(self.occurrences)

        def following(*_: Any) -> str:
            leaf = next(left)
            if isinstance(leaf, float):
                return language.number(leaf)
            return path(leaf) if isinstance(leaf, str) else slot(leaf)

        return list(_write(self.steps, replace(language, number=following), following, place))

    def evaluate(self, inputs: Mapping[str, float], filled: Sequence[Leaf]) -> list[float]:
        """Return the value of every step; an input that is not there is NaN, and so is what needs it."""
        left = iter(self.occurrences)
        places: dict[int, float] = {}

        def following() -> float:
            leaf = next(left)
            if isinstance(leaf, int):
                leaf = filled[leaf] if filled else math.nan
            return inputs.get(leaf, math.nan) if isinstance(leaf, str) else leaf

        def value(node: Any) -> Any:
            if not isinstance(node, Node):
                return node if isinstance(node, tuple) else following()
            if node.kind == "input":
                return following()
            place = places.get(id(node.line if node.line is not None else node))
            if place is not None:
                return place
            if node.kind == "argument":
                return value(node.args[0])
            numbers = [value(arg) for arg in node.args]
            if any(number != number for number in numbers if isinstance(number, float)) and node.kind != "switch_at":
                return math.nan
            return float(OPERATIONS[node.kind](*numbers))

        results = []
        for step in self.steps:
            results.append(value(step.expression))
            places[id(step.node)] = results[-1]
        return results


def _named(leaf: Leaf) -> tuple[str, str]:
    return type(leaf).__name__, repr(leaf)


def share(traces: Sequence[Trace]) -> tuple[Program, list[tuple[Leaf, ...]]]:
    """Return the program of traces that read alike, and what each puts into its slots."""
    first = traces[0]
    slots: dict[tuple[tuple[str, str], ...], int] = {}
    purposes: list[str] = []
    filled: list[list[Leaf]] = [[] for _ in traces]
    occurrences: list[Leaf | int] = []
    for owner, column in zip(first.owners, zip(*(each.leaves for each in traces), strict=True), strict=True):
        key = tuple(map(_named, column))
        if len(set(key)) == 1:
            occurrences.append(column[0])
            continue
        if key not in slots:
            slots[key] = len(slots)
            purposes.append(owner)
            for mine, leaf in zip(filled, column, strict=True):
                mine.append(leaf)
        occurrences.append(slots[key])
    return Program(first.steps, tuple(occurrences), tuple(purposes)), [tuple(mine) for mine in filled]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no garbage meanwhile: among the nodes of the traces that are kept it takes longer than making one."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Programs:
    """Gathers scenarios into as few programs as their structures allow."""

    def __init__(self) -> None:
        self._traces: dict[Any, Trace] = {}
        self._first: dict[str, Trace] = {}

    def trace_of(self, scenario: Scenario) -> Trace:
        """Return the trace of a scenario's structure, made once."""
        key = structure(scenario)
        if key not in self._traces:
            with _no_collection():
                made = trace(scenario)
            first = self._first.setdefault(made.text, made)
            # Traces that read alike keep the steps of one of them: each holds thousands of nodes.
            self._traces[key] = replace(first, leaves=made.leaves)
        return self._traces[key]

    def gather(self, scenarios: Iterable[Scenario]) -> tuple[list[Program], list[tuple[int, tuple[Leaf, ...]]]]:
        """Return the programs of scenarios; for each scenario the number of its own, and what fills the slots."""
        traces = [self.trace_of(scenario) for scenario in scenarios]
        groups: dict[str, dict[int, Trace]] = {}
        for each in traces:
            groups.setdefault(each.text, {})[id(each)] = each
        programs, fills = [], {}
        for number, group in enumerate(groups.values()):
            program, filled = share(list(group.values()))
            programs.append(program)
            fills.update({key: (number, fill) for key, fill in zip(group, filled, strict=True)})
        return programs, [fills[id(each)] for each in traces]

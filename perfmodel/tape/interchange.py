"""A numbered program as JSON that any language can run: a list of operations, each on the numbers of earlier ones.

::

    {"format": "perfmodel-program", "version": 1,
     "inputs": [["traffic.prompt", "tok"], ...],
     "steps": [["input", 0], ["constant", 2.0], ["mul", 0, 1], ["interpolate", 2, [[0, 1], [5, 3]]], ...],
     "results": {"ttft_s": 412, ...}}

A step is an operation and the numbers of the steps it takes, from 0; ``input`` takes the number of an input instead,
``constant`` a number, and ``interpolate`` its knots behind the step it takes.  A constant that is no number of JSON is
``"nan"``, ``"inf"`` or ``"-inf"``.  The operations are ``add``, ``sub``, ``mul``, ``div``, ``pow``, ``neg`` and those
of :mod:`perfmodel.numerics`, whose docstrings say what they give; NaN stands for what does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from perfmodel.prediction import ALL
from perfmodel.specs.paths import quantities
from perfmodel.specs.types import Scenario
from perfmodel.tape import answers, kernel
from perfmodel.tape.numbered import CONSTANT, INPUT, Numbered, Step

FORMAT, VERSION = "perfmodel-program", 1


def of(scenario: Scenario, wanted: Collection[str] = ALL) -> dict[str, Any]:
    """Return the program of a prediction as JSON.

    Parameters
    ----------
    scenario : Scenario
        Whose structure the program is of; its numbers are the inputs.
    wanted : collection of str
        Metrics, and ``breakdown``.

    Returns
    -------
    dict
    """
    program = kernel.traced(answers.asked(wanted).results, scenario)
    return to_dict(program, {path: unit for path, unit, _ in quantities(scenario)})


def to_dict(program: Numbered, units: Mapping[str, str]) -> dict[str, Any]:
    """Return a program as JSON.

    Parameters
    ----------
    program : Numbered
    units : mapping of str to str
        Of its inputs, by path.

    Returns
    -------
    dict
    """
    places = {path: at for at, path in enumerate(program.inputs)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "inputs": [[path, units[path]] for path in places],
        "steps": [_step(step, places) for step in program.steps],
        "results": dict(program.results),
    }


def _step(step: Step, places: Mapping[str, int]) -> list[Any]:
    if step.kind == CONSTANT:
        return [CONSTANT, step.value if math.isfinite(step.value) else str(step.value)]
    if step.kind == INPUT:
        return [INPUT, places[step.value]]
    return [step.kind, *step.args, *([] if step.value is None else [[list(knot) for knot in step.value]])]

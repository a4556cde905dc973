"""JSON Schemas of what verbs print under ``--json``: answers from their shapes, questions from the options of verbs."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import typer
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import is_typeddict

from perfmodel import shapes
from perfmodel.cli.common import question_name
from perfmodel.errors import UserError

#: Shapes that a verb answers with.
ANSWERS: dict[str, tuple[type, ...]] = {
    "predict": (shapes.Prediction, shapes.Agents),
    "compare": (shapes.Comparison, shapes.AgentsBeside),
    "fit": (shapes.Fit,),
    "collective": (shapes.Collective,),
    "sweep": (shapes.Points, shapes.UserPoints, shapes.Written),
    "export": (shapes.Written,),
    "whatif": (shapes.Written,),
    "report": (shapes.Written,),
    "selfcheck": (shapes.SelfCheck,),
    "tco": (shapes.Owning, shapes.OwningAgents),
    "explain": (shapes.Explanation,),
    "solve": (shapes.Solution,),
    "size": (shapes.Sizing, shapes.Course, shapes.Mixed, shapes.Pools, shapes.AgentsSizing),
    "capacity": (shapes.Capacity,),
    "simulate": (shapes.Simulation, shapes.AgentsSimulation),
    "plans check": (shapes.PlanChecked,),
    "bench-plan": (shapes.BenchPlan,),
    "calibrate": (shapes.Clusters,),
    "validate": (shapes.Validation,),
    "traffic import": (shapes.TrafficImport,),
    "traffic show": (shapes.TrafficImport,),
    "launch": (shapes.Launch,),
    "runs import": (shapes.Runs,),
    "specs list": (shapes.Listed,),
    "specs show": (shapes.Spec, shapes.Counts),
    "specs diff": (shapes.Differences,),
    "specs search": (shapes.Matches,),
}
#: What stands in place of an answer.
ERROR = "error"
_PACKAGE = {"type": "string", "description": "Version of the package that gave the answer."}
_NUMBERS = {
    "type": "string",
    "description": "Release of prices, and a digest of calibrations, power models, engines and prices in use.",
}
_VERSION = {"const": shapes.VERSION, "description": "Raised where a key goes or changes its meaning."}

for _shape in vars(shapes).values():
    if is_typeddict(_shape):
        _shape.__pydantic_config__ = {"extra": "forbid", "use_attribute_docstrings": True}


class _Untitled(GenerateJsonSchema):
    """Schemas without a title a field, which would say its name again."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return whether a field gets a title."""
        return False


def _of(shape: type) -> dict[str, Any]:
    """Return the schema of a shape, its inherited fields described too."""
    return copy.deepcopy(_made(shape))


@functools.cache
def _made(shape: type) -> dict[str, Any]:
    made = TypeAdapter(shape).json_schema(schema_generator=_Untitled)
    for body in (made, *made.get("$defs", {}).values()):
        for base in getattr(getattr(shapes, body.get("title", ""), None), "__orig_bases__", ()):
            for name, field in _made(base)["properties"].items() if is_typeddict(base) else ():
                if "description" in field:
                    body["properties"][name].setdefault("description", field["description"])
    return made


def commands() -> Iterator[tuple[str, Any]]:
    """Give the name and the command of every verb, sub-verbs spelled out."""
    from perfmodel.cli.app import application

    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        verbs = getattr(command, "commands", None)
        if verbs is None:
            yield name, command
        for verb, inner in (verbs or {}).items():
            yield from below(f"{name} {verb}".strip(), inner)

    yield from below("", typer.main.get_command(application()))


def question(command: Any) -> dict[str, Any]:
    """Return the schema of a question: the options of its verb, as they were written.

    Parameters
    ----------
    command : click.Command

    Returns
    -------
    dict
    """
    fields, needed = {}, []
    for option in command.params:
        name = question_name(option.name)
        if name is None:
            continue
        if option.multiple or option.nargs != 1:
            fields[name] = {"type": "array", "items": {"type": "string"}}
        else:
            fields[name] = {"type": "boolean" if getattr(option, "is_flag", False) else "string"}
        fields[name]["description"] = option.help or ""
        needed += [name] if option.required else []
    return {"type": "object", "properties": fields, "required": needed, "additionalProperties": False}


@functools.cache
def schema(verb: str) -> dict[str, Any]:
    """Return the closed JSON Schema of what a verb prints under ``--json``.

    Parameters
    ----------
    verb : str
        ``predict``, ``specs show``, or ``error`` for what stands in place of an answer.

    Raises
    ------
    UserError
        Where the verb prints no JSON.
    """
    head: dict[str, Any] = {"schema_version": _VERSION}
    if verb == ERROR:
        answers: tuple[type, ...] = (shapes.Error,)
    elif verb in ANSWERS:
        answers = ANSWERS[verb]
        head |= {"perfmodel": _PACKAGE, "numbers_version": _NUMBERS}
        head |= {"verb": {"const": verb}, "question": question(dict(commands())[verb])}
    else:
        raise UserError(f"no JSON of '{verb}': expected one of {', '.join((*ANSWERS, ERROR))}")
    bodies: list[dict[str, Any]] = []
    defs: dict[str, Any] = {}
    for answer in answers:
        body = _of(answer)
        defs |= body.pop("$defs", {})
        body["properties"] = head | body["properties"]
        body["required"] = [*head, *body["required"]]
        bodies.append(body)
    said = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return said | (bodies[0] if len(bodies) == 1 else {"anyOf": bodies}) | {"$defs": defs}

"""What users call says of each parameter what it is, and what comes back; everywhere else a section fits its signature.

Ruff sees to it that every public module, class, function and method has a docstring, and mypy that every signature has
types.  Neither compares the sections of a docstring with the signature.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

import perfmodel
from perfmodel.cli.app import application
from perfmodel.compilers.explain import Explanation
from perfmodel.evidence.validate import Validation
from perfmodel.planning.load import Sized
from perfmodel.planning.pools import Disaggregated
from perfmodel.planning.simulate import Comparison
from perfmodel.planning.size import Sizing
from perfmodel.planning.solve import Solution
from perfmodel.planning.tco.ownership import Owned, Owning
from perfmodel.specs.types import Model, System, Traffic
from perfmodel.sweeps.axes import Axis
from perfmodel.sweeps.folder import Stored
from perfmodel.sweeps.space import Cell, Sweep

#: Where every public function is documented in full.
ROOMS = ("numerics", "trace", "equation", "machines.", "specs.", "serving.", "prediction", "question")
#: But readers of configurations, which have one signature: that of ``specs.architectures.patterns.Reader``.
READERS = tuple(
    f"specs.architectures.{name}." for name in ("patterns", "attention", "recurrent", "blocks", "additions")
)
READERS += ("specs.architectures.compound.", "specs.architectures.forms.")
#: Classes of the results of the public functions.
RESULTS = (
    Axis,
    Cell,
    Comparison,
    Disaggregated,
    Explanation,
    Model,
    Owned,
    Owning,
    Sized,
    Sizing,
    Solution,
    Stored,
    Sweep,
    System,
)
RESULTS += (
    Traffic,
    Validation,
    *(value for name in perfmodel.__all__ if inspect.isclass(value := getattr(perfmodel, name))),
)


def section(text: str, title: str) -> str | None:
    """Return a numpydoc section of a docstring."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return found and found[1]


def entries(text: str) -> list[tuple[list[str], str]]:
    """Return names and words of the entries of a section."""
    heads = re.findall(r"^([^\s][^\n]*)\n?((?:^(?: +.*)?\n?)*)", text, re.MULTILINE)
    return [([name.strip().lstrip("*") for name in head.split(" : ")[0].split(",")], said) for head, said in heads]


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def methods(of: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(of).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{of.__name__}.{name}", function


def functions(module: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in vars(module).items():
        if not name.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__:
            yield f"{module.__name__.removeprefix('perfmodel.')}.{name}", inspect.unwrap(value)


def interface() -> dict[str, Callable[..., Any]]:
    """Return what users call, and all public functions of the rooms from the numerics to the question."""
    found = {name: value for name in perfmodel.__all__ if inspect.isfunction(value := getattr(perfmodel, name))}
    for of in dict.fromkeys(RESULTS):
        found.update(methods(of))
    found.update(
        {
            name: function
            for name, function in EVERYTHING.items()
            if name.startswith(ROOMS) and not name.startswith(READERS)
        }
    )
    return found


def everything() -> dict[str, Callable[..., Any]]:
    """Return every public function and method of the package."""
    found: dict[str, Callable[..., Any]] = {}
    for info in pkgutil.walk_packages(perfmodel.__path__, "perfmodel."):
        module, short = importlib.import_module(info.name), info.name.removeprefix("perfmodel.")
        found.update(functions(module))
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == module.__name__ and not value.__name__.startswith("_"):
                found.update({f"{short}.{name}": function for name, function in methods(value)})
    return found


EVERYTHING = everything()
INTERFACE = interface()


def documented(function: Callable[..., Any], title: str = "Parameters") -> list[str]:
    text = section(inspect.getdoc(function) or "", title) or ""
    return [name for names, _ in entries(text) for name in names]


@pytest.mark.parametrize("name", INTERFACE)
def test_every_parameter_is_documented(name: str) -> None:
    assert sorted(documented(INTERFACE[name])) == sorted(parameters(INTERFACE[name]))


@pytest.mark.parametrize("name", INTERFACE)
def test_what_comes_back_is_documented(name: str) -> None:
    function = INTERFACE[name]
    if inspect.signature(function).return_annotation in (None, "None"):
        return
    text = inspect.getdoc(function) or ""
    # A method without parameters may say all in its one sentence.
    in_one = not parameters(function) and re.match(r"(Return|Give|Whether) ", text)
    assert section(text, "Returns") or in_one, text


@pytest.mark.parametrize("of", dict.fromkeys(RESULTS), ids=lambda of: of.__name__)
def test_every_attribute_of_a_result_is_documented(of: type) -> None:
    if dataclasses.is_dataclass(of) and "__annotations__" in vars(of):
        assert sorted(documented(of, "Attributes")) == sorted(field.name for field in dataclasses.fields(of))


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_section_fits_its_signature(name: str) -> None:
    """Of whatever is no interface a sentence may say all; but what a section names exists, and all of it is named."""
    function = EVERYTHING[name]
    told = documented(function)
    assert not told or sorted(told) == sorted(parameters(function))


def test_every_argument_and_option_of_the_command_line_has_help() -> None:
    def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield name, command
        for verb, below in getattr(command, "commands", {}).items():
            yield from commands(below, f"{name} {verb}")

    for name, command in commands(typer.main.get_command(application()), "perfmodel"):
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name}: {parameter.name}"

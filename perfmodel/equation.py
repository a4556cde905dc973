"""The registry of equations: ``@equation`` marks a pure, keyword-only function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from perfmodel.trace import Node

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Equation:
    """What the equation book, the trace and the tests know of an equation."""

    name: str
    symbol: str
    unit: str
    source: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The file it lives in: ``roofline``, ``collectives``, ..."""
        return self.function.__module__.rpartition(".")[2]


REGISTRY: dict[str, Equation] = {}


def equation(*, symbol: str, unit: str, source: str) -> Callable[[F], F]:
    """Register a closed form.

    With numbers the result is the function itself; with a traced node among its arguments the call leaves a line in
    the node's ledger.

    Parameters
    ----------
    symbol : str
        LaTeX symbol of the result.
    unit : str
        Unit of the result: ``s``, ``B``, ``FLOP``, ``B/s``, ``1`` ...
    source : str
        Paper and equation or table, or how it was derived.

    Returns
    -------
    callable
        A decorator of a keyword-only function.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        if any(p.kind is not p.KEYWORD_ONLY for p in parameters.values()):
            raise TypeError(f"equation {function.__name__}: all parameters must be keyword-only")
        if function.__name__ in REGISTRY:
            raise TypeError(f"equation {function.__name__} is registered twice")
        name = function.__name__
        REGISTRY[name] = Equation(name, symbol, unit, source, function, tuple(parameters))

        def call(**arguments: Any) -> Any:
            for argument in arguments.values():
                if type(argument) is Node:
                    return argument.ledger.record(name, symbol, unit, source, function, arguments)
            return function(**arguments)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = function.__doc__
        call.__module__ = function.__module__
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return cast(F, call)

    return decorate

"""The traced node, and the ledger it writes.

A node stands for a number and remembers how it came about.  Arithmetic on nodes builds an expression; an equation
called with a node leaves one named :class:`Line` in the :class:`Ledger`.  Explanations, spreadsheet formulas and
JavaScript are all printed from those lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NoReturn

from perfmodel.numerics.backends import FLOAT, NAN

_ARITHMETIC: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    # A fractional power of a negative number does not exist, as it does not on arrays.
    "pow": lambda a, b: power if isinstance(power := a**b, float | int) else NAN,
    "neg": lambda a: -a,
}

#: Every operation a node can hold; a printer that lacks one is incomplete, and a test says so.
OPERATIONS: dict[str, Callable[..., float]] = {**_ARITHMETIC, **FLOAT}


class Node:
    """A number that remembers how it was made.

    Parameters
    ----------
    ledger : Ledger
        Where equations that meet this node write their lines.
    kind : str
        ``input`` (a spec's number), ``argument`` (an equation's parameter), ``line`` (the result of an equation) or
        the name of an operation.
    args : tuple
        Operands: nodes, floats, or the knots of ``interpolate``.
    value : float
        The number itself.
    label : str
        Path of an input, name of an argument.
    """

    __slots__ = ("args", "kind", "label", "ledger", "line", "value")

    def __init__(
        self, ledger: Ledger, kind: str, args: tuple[Any, ...], value: float, label: str = "", line: Line | None = None
    ) -> None:
        self.ledger = ledger
        self.kind = kind
        self.args = args
        self.value = value
        self.label = label
        self.line = line

    def apply(self, name: str, *args: Any) -> Node:
        """Return the node of an operation on this and other operands.

        Parameters
        ----------
        name : str
            An operator of :mod:`perfmodel.numerics`.
        *args : Node or float
            Its operands.

        Returns
        -------
        Node
        """
        numbers = [arg.value if isinstance(arg, Node) else arg for arg in args]
        return Node(self.ledger, name, args, float(OPERATIONS[name](*numbers)))

    def __add__(self, other: Any) -> Node:
        return self.apply("add", self, other)

    def __radd__(self, other: Any) -> Node:
        return self.apply("add", other, self)

    def __sub__(self, other: Any) -> Node:
        return self.apply("sub", self, other)

    def __rsub__(self, other: Any) -> Node:
        return self.apply("sub", other, self)

    def __mul__(self, other: Any) -> Node:
        return self.apply("mul", self, other)

    def __rmul__(self, other: Any) -> Node:
        return self.apply("mul", other, self)

    def __truediv__(self, other: Any) -> Node:
        return self.apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return self.apply("div", other, self)

    def __pow__(self, other: Any) -> Node:
        return self.apply("pow", self, other)

    def __rpow__(self, other: Any) -> Node:
        return self.apply("pow", other, self)

    def __neg__(self) -> Node:
        return self.apply("neg", self)

    def _no_branch(self, *_: object) -> NoReturn:
        raise TypeError("a traced number cannot choose a branch: use maximum, minimum, switch_at or only_if")

    __bool__ = __float__ = __int__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _no_branch
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Node({self.kind} {self.label or (self.line.name if self.line else '')} = {self.value!r})"


@dataclass(frozen=True)
class Input:
    """A number that came from a spec."""

    path: str
    unit: str
    value: float
    source: str = ""


@dataclass(eq=False)
class Line:
    """One application of one equation.

    Attributes
    ----------
    name : str
        Where it happened: scopes and equation, joined with dots.
    symbol, unit, source : str
        As registered with the equation.
    arguments : dict of str to (Node or float)
        What the parameters were bound to.
    formula : Node or float
        The expression in the author's own term order, over ``argument`` nodes.
    value : float
    children : list of (Line or Scope)
        Lines written by equations that this one called.
    """

    name: str
    symbol: str
    unit: str
    source: str
    arguments: dict[str, Any]
    formula: Any = None
    value: float = float("nan")
    children: list[Line | Scope] = field(default_factory=list)


@dataclass(eq=False)
class Scope:
    """A named part of the calculation: a phase, a layer, an operator."""

    name: str
    children: list[Line | Scope] = field(default_factory=list)


_active: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


class Ledger:
    """The record of a traced calculation; use it as a context manager.

    Attributes
    ----------
    inputs : dict of str to Input
    lines : list of Line
        In order of completion: a line only refers to lines before it.
    root : Scope
        The same lines as a tree.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, Input] = {}
        self.lines: list[Line] = []
        self.root = Scope("")
        self._stack: list[Line | Scope] = [self.root]
        self._token: Any = None

    def __enter__(self) -> Ledger:
        self._token = _active.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        _active.reset(self._token)

    def input(self, path: str, value: float, unit: str = "", source: str = "") -> Node:
        """Return a node for a spec's number.

        Parameters
        ----------
        path : str
            Of the number in the scenario.
        value : float
        unit : str
        source : str
            Where it comes from.

        Returns
        -------
        Node
        """
        self.inputs[path] = Input(path, unit, value, source)
        return Node(self, "input", (), value, label=path)

    def scope(self, name: str) -> _OpenScope:
        """Open a named part of the calculation.

        Parameters
        ----------
        name : str

        Returns
        -------
        context manager
        """
        return _OpenScope(self, name)

    def record(
        self, name: str, symbol: str, unit: str, source: str, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> Any:
        """Call an equation and write its line.

        Parameters
        ----------
        name, symbol, unit, source : str
            As the equation is registered.
        function : callable
            The equation.
        arguments : dict of str to Node or float

        Returns
        -------
        Node
        """
        place = [part.name.rpartition(".")[2] for part in self._stack if part.name]
        line = Line(".".join([*place, name]), symbol, unit, source, arguments)
        bound = {
            key: Node(self, "argument", (arg,), arg.value if isinstance(arg, Node) else float(arg), label=key)
            if isinstance(arg, Node | int | float) and not isinstance(arg, bool)
            else arg
            for key, arg in arguments.items()
        }
        self._stack.append(line)
        try:
            line.formula = function(**bound)
        finally:
            self._stack.pop()
        line.value = line.formula.value if isinstance(line.formula, Node) else float(line.formula)
        self._stack[-1].children.append(line)
        self.lines.append(line)
        return Node(self, "line", (), line.value, line=line)

    def reached(self, nodes: Iterable[Any], acting: bool = False) -> dict[str, Input]:
        """Return the inputs that nodes depend on, by path, in the order of the specs.

        Parameters
        ----------
        nodes : iterable
            What is no node reaches nothing.
        acting : bool
            Whether what a factor of zero or a switch takes out at these values is left out.

        Returns
        -------
        dict of str to Input
        """
        names: set[str] = set()
        seen: set[int] = set()
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if not isinstance(node, Node) or id(node) in seen:
                continue
            seen.add(id(node))
            if node.kind == "input":
                names.add(node.label)
            stack.extend(_acting(node) if acting else node.args)
            if node.line is not None:
                stack.append(node.line.formula)
        return {path: entry for path, entry in self.inputs.items() if path in names}

    def walk(self) -> Iterator[tuple[int, Line | Scope]]:
        """Give every scope and line with its depth, outermost first.

        Returns
        -------
        iterator of (int, Line or Scope)
        """

        def below(part: Line | Scope, depth: int) -> Iterator[tuple[int, Line | Scope]]:
            for child in part.children:
                yield depth, child
                yield from below(child, depth + 1)

        yield from below(self.root, 0)


def _acting(node: Node) -> tuple[Any, ...]:
    """Return the operands that a node goes by at their values: of a product with a zero that zero alone."""
    args = node.args
    if node.kind == "mul":
        zeros = tuple(arg for arg in args if value_of(arg) == 0)
        return zeros or args
    if node.kind == "div" and value_of(args[0]) == 0:
        return args[:1]
    if node.kind == "switch_at":
        x, threshold, below, above = args
        return x, threshold, below if value_of(x) < value_of(threshold) else above
    return args


class _OpenScope:
    def __init__(self, ledger: Ledger, name: str) -> None:
        self.ledger = ledger
        self.scope = Scope(name)

    def __enter__(self) -> None:
        stack = self.ledger._stack
        stack[-1].children.append(self.scope)
        stack.append(self.scope)

    def __exit__(self, *_: object) -> None:
        self.ledger._stack.pop()


_NO_SCOPE: AbstractContextManager[None] = nullcontext()


def scope(name: str) -> AbstractContextManager[None]:
    """Name a part of the calculation in the ledger; nothing at all when no ledger is open.

    Parameters
    ----------
    name : str

    Returns
    -------
    context manager
    """
    ledger = _active.get()
    return _NO_SCOPE if ledger is None else ledger.scope(name)


def value_of(number: Any) -> Any:
    """Return the plain number behind a node, and anything else as it is.

    Parameters
    ----------
    number : Any

    Returns
    -------
    Any
    """
    return number.value if isinstance(number, Node) else number


def is_given(number: Any) -> bool:
    """Whether a spec gives a number: what nobody has published is NaN.

    Parameters
    ----------
    number : Any
        A float, an array or a node.

    Returns
    -------
    bool
        True for arrays, whose elements are numbers.
    """
    found = value_of(number)
    return not (isinstance(found, float) and found != found)

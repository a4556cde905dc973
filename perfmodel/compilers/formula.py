"""Printing traced expressions; each language is a table of templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfmodel.trace import Ledger, Line, Node

#: How tightly the arithmetic operators bind; what calls a function binds tightest.
_BINDS = {"add": 1, "sub": 1, "mul": 2, "div": 2, "neg": 3, "pow": 4}
_CALL = 9
_SIGNS = {"add": " + ", "sub": " - ", "mul": " * ", "div": " / "}


@dataclass(frozen=True)
class Language:
    """How a language writes the operations.

    Attributes
    ----------
    functions : mapping
        Text of a named operation, from the texts of its operands.
    power : callable
        Text of a power, from base and exponent in brackets.
    number : callable
        Text of a constant.
    negative : str
        Template of a negated, bracketed operand.
    signs : mapping
        Signs of the four operations of arithmetic.
    quotient : callable, optional
        Text of a division that needs no brackets, from its unbracketed operands.
    """

    functions: Mapping[str, Callable[..., str]]
    power: Callable[[str, str], str]
    number: Callable[[float], str]
    negative: str = "-{}"
    signs: Mapping[str, str] = field(default_factory=lambda: _SIGNS)
    quotient: Callable[[str, str], str] | None = None

    def write(self, node: Any, leaf: Callable[[Node], str | None]) -> str:
        """Return an expression as text; ``leaf`` names the nodes that stand for themselves."""
        return self._write(node, leaf)[0]

    def _write(self, node: Any, leaf: Callable[[Node], str | None]) -> tuple[str, int]:
        if not isinstance(node, Node):
            text = self.number(float(node))
            return text, _CALL if not text.startswith("-") else 0
        name = leaf(node)
        if name is not None:
            return name, _CALL
        if node.kind == "argument":
            return self._write(node.args[0], leaf)
        if node.kind == "div" and self.quotient is not None:
            return self.quotient(*(self.write(arg, leaf) for arg in node.args)), _CALL
        if node.kind in _SIGNS:
            (left, left_binds), (right, right_binds) = (self._write(arg, leaf) for arg in node.args)
            binds = _BINDS[node.kind]
            left = f"({left})" if left_binds < binds else left
            tight = right_binds > binds or (right_binds == binds and node.kind in ("add", "mul"))
            return left + self.signs[node.kind] + (right if tight else f"({right})"), binds
        if node.kind == "pow":
            base, exponent = (f"({self.write(arg, leaf)})" for arg in node.args)
            return self.power(base, exponent), _CALL
        if node.kind == "neg":
            return self.negative.format(f"({self.write(node.args[0], leaf)})"), 0
        texts = [arg if isinstance(arg, tuple) else self.write(arg, leaf) for arg in node.args]
        return self.functions[node.kind](*texts), _CALL


@dataclass(frozen=True)
class Step:
    """One cell or one assignment: a line of the ledger, or an expression that feeds one."""

    node: Any
    name: str
    unit: str
    source: str
    expression: Any
    value: float


def _is_expression(node: Any) -> bool:
    return isinstance(node, Node) and node.kind not in ("input", "line", "argument")


def _needed(results: Mapping[str, Any]) -> tuple[set[int], set[str]]:
    """Return the ids of the nodes and lines that the results depend on, and the paths of the inputs."""
    seen: set[int] = set()
    paths: set[str] = set()
    stack: list[Any] = list(results.values())
    while stack:
        node = stack.pop()
        if not isinstance(node, Node) or id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == "input":
            paths.add(node.label)
        stack.extend(node.args)
        if node.line is not None:
            seen.add(id(node.line))
            stack.append(node.line.formula)
    return seen, paths


#: Leaves from which a part of an expression becomes a step of its own: a cell of Excel holds 8,192 characters.
_MOST_LEAVES = 40


def _parts(root: Node, name: str, seen: set[int]) -> Iterator[Step]:
    """Give the parts of a long expression that must be computed before it."""
    sizes: dict[int, int] = {}

    def visit(node: Any) -> Iterator[Step]:
        if not isinstance(node, Node):
            return
        if not _is_expression(node) and node.kind != "argument":
            sizes[id(node)] = 1
            return
        for arg in node.args:
            if id(arg) not in sizes:
                yield from visit(arg)
        size = sum(sizes.get(id(arg), 0) for arg in node.args)
        if id(node) in seen:
            size = 1
        elif size > _MOST_LEAVES and node is not root and _is_expression(node):
            seen.add(id(node))
            yield Step(node, f"{name}.part", "", "", node, node.value)
            size = 1
        sizes[id(node)] = size

    yield from visit(root)


def steps(ledger: Ledger, results: Mapping[str, Any]) -> Iterator[Step]:
    """Give what the results need, in order: the lines, each after the expressions it is fed, then the results."""
    needed, _ = _needed(results)
    seen: set[int] = set()
    for line in ledger.lines:
        if id(line) not in needed:
            continue
        for argument, node in line.arguments.items():
            if _is_expression(node) and id(node) in needed and id(node) not in seen:
                name = f"{line.name}.{argument}"
                yield from _parts(node, name, seen)
                seen.add(id(node))
                yield Step(node, name, "", "", node, node.value)
        yield Step(line, line.name, line.unit, line.source, line.formula, line.value)
    for name, node in results.items():
        if isinstance(node, Node):
            yield Step(name, name, "", "", node, node.value)


def line_of(node: Node) -> Line | None:
    """Return the line behind a node, through the argument that stands for it."""
    while node.kind == "argument" and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.line

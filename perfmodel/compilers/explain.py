"""How a number came about: the lines of the ledger that it rests on, with numbers put in."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

from perfmodel import shapes
from perfmodel.compilers.formula import Language, Step, steps
from perfmodel.entered import idle, unmoved
from perfmodel.outputs.brief import load_words
from perfmodel.outputs.tables import plan_words, span
from perfmodel.outputs.verdicts import solution_verdict
from perfmodel.planning.sensitivity import Elasticity, elasticities
from perfmodel.planning.solve import Solution
from perfmodel.prediction import evaluate, question_of, run, traced
from perfmodel.prediction.operators import OperatorTime, operator_times
from perfmodel.results import is_better_low, result_name, results, unit_of
from perfmodel.specs.paths import provenance_of, range_at
from perfmodel.specs.types import Provenance, Scenario
from perfmodel.specs.units import show
from perfmodel.trace import Ledger, Line, Node

#: Levels that are shown where nobody says how many.
DEPTH = 4
#: Inputs that are shown as those that matter most.
MOST = 10

_NAMES = ("exp", "log", "sqrt", "floor", "ceil_div", "maximum", "minimum", "switch_at", "only_if")

#: How a number that does not exist is written.
_NOTHING = "n/a"

LANGUAGE = Language(
    functions={
        **{name: (lambda *args, name=name: f"{name}({', '.join(args)})") for name in _NAMES},
        **{
            name: (lambda a, n, name=name: f"{name}({a}, {n})")
            for name in ("geometric_sum", "complement_power", "erlang_b", "annuity")
        },
        "interpolate": lambda x, knots: f"interpolate({x}, {len(knots)} knots)",
    },
    power=lambda base, exponent: f"{base}^{exponent}",
    number=lambda value: _NOTHING if value != value else f"{value:.6g}",
)


def latex_text(text: str) -> str:
    """Return text that LaTeX shows as it stands."""
    marks = {"\\": r"\textbackslash ", "~": r"\textasciitilde ", "^": r"\textasciicircum "}
    return "".join(marks.get(sign) or (f"\\{sign}" if sign in "_%&#${}" else sign) for sign in text)


def _latex_number(value: float) -> str:
    mantissa, _, exponent = f"{value:.6g}".partition("e")
    return (
        f"{mantissa} \\times 10^{{{int(exponent)}}}" if exponent else mantissa.replace("nan", f"\\text{{{_NOTHING}}}")
    )


LATEX = Language(
    functions={
        "exp": lambda x: f"\\exp\\left({x}\\right)",
        "log": lambda x: f"\\ln\\left({x}\\right)",
        "sqrt": lambda x: f"\\sqrt{{{x}}}",
        "floor": lambda x: f"\\left\\lfloor {x} \\right\\rfloor",
        "ceil_div": lambda a, b: f"\\left\\lceil \\frac{{{a}}}{{{b}}} \\right\\rceil",
        "maximum": lambda a, b: f"\\max\\left({a}, {b}\\right)",
        "minimum": lambda a, b: f"\\min\\left({a}, {b}\\right)",
        "interpolate": lambda x, knots: f"\\mathrm{{interpolate}}_{{{len(knots)}}}\\left({x}\\right)",
        "switch_at": lambda x, threshold, below, above: (
            f"\\begin{{cases}} {below} & {x} < {threshold} \\\\ {above} & \\text{{else}} \\end{{cases}}"
        ),
        "only_if": lambda margin, value: f"\\left[{value}\\right]_{{{margin} \\geq 0}}",
        "geometric_sum": lambda a, n: f"\\sum_{{k=0}}^{{{n} - 1}} \\left({a}\\right)^k",
        "complement_power": lambda p, n: f"\\left(1 - {p}\\right)^{{{n}}}",
        "erlang_b": lambda servers, load: f"B\\left({servers}, {load}\\right)",
        "annuity": lambda rate, years: f"\\mathrm{{annuity}}\\left({rate}, {years}\\right)",
    },
    power=lambda base, exponent: f"{base}^{{{exponent[1:-1]}}}",
    number=_latex_number,
    signs={"add": " + ", "sub": " - ", "mul": r" \cdot ", "div": " / "},
    quotient=lambda above, below: f"\\frac{{{above}}}{{{below}}}",
)


@dataclass
class Entry:
    """One line of an explanation: an equation, or an input with its provenance.

    ``repeated`` lines are explained further up; ``cut`` counts the equations below that the depth leaves out;
    ``missing`` says why there is no value.
    """

    name: str
    value: float
    unit: str
    missing: str = "not published"
    symbol: str = ""
    formula: str = ""
    numbers: str = ""
    latex: str = ""
    source: str = ""
    origin: Provenance | None = None
    repeated: bool = False
    cut: int = 0
    below: list[Entry] = field(default_factory=list)

    def to_dict(self) -> shapes.Line | shapes.Input:
        """Return the documented JSON object."""
        if self.origin is not None:
            origin = self.origin
            return {
                "name": self.name,
                "value": shapes.number(self.value),
                "unit": self.unit,
                "source": origin.source,
                "kind": origin.kind,
                "file": origin.file or None,
                "note": origin.note or None,
                "low": shapes.number(origin.low),
                "high": shapes.number(origin.high),
            }
        return {
            "name": self.name,
            "value": shapes.number(self.value),
            "unit": self.unit,
            "symbol": self.symbol or None,
            "formula": self.formula,
            "numbers": None if _NOTHING in self.numbers else self.numbers,
            "source": self.source,
            "repeated": self.repeated,
            "omitted": self.cut,
            "inputs": [entry.to_dict() for entry in self.below],
        }


@dataclass(frozen=True)
class Explanation:
    """A result, the tree of equations and inputs that it rests on, and the inputs that matter most.

    Attributes
    ----------
    scenario : Scenario
        What was asked, with what was assumed.
    metric, unit : str
    value : float
    root : Entry
        The tree, the result on top.
    elasticities : sequence of Elasticity
        Of each input that the result depends on, the strongest first.
    origins : dict of str to Provenance
        Where those inputs come from, by path.
    operators : dict of str to tuple of OperatorTime
        By phase; the first adds up to TTFT, the second to TPOT.
    mind : tuple of str
        Changes of the question that moved nothing of the result.
    """

    scenario: Scenario
    metric: str
    value: float
    unit: str
    root: Entry
    elasticities: Sequence[Elasticity]
    origins: Mapping[str, Provenance]
    operators: Mapping[str, tuple[OperatorTime, ...]]
    mind: tuple[str, ...] = ()

    def to_dict(self) -> shapes.Explanation:
        """Return the documented JSON object."""
        return {
            **question_of(self.scenario),
            "metric": self.metric,
            "value": shapes.number(self.value),
            "unit": self.unit,
            "tree": self.root.to_dict(),
            "elasticities": [
                {
                    "path": elasticity.path,
                    "value": shapes.number(elasticity.value),
                    "unit": elasticity.unit,
                    "elasticity": shapes.number(elasticity.elasticity),
                    "switches": elasticity.switches,
                    "source": self.origins[elasticity.path].source,
                    "kind": self.origins[elasticity.path].kind,
                }
                for elasticity in self.elasticities
            ],
            "operators": {
                "prefill": [row.to_dict() for row in self.operators.get("prefill", ())],
                "decode": [row.to_dict() for row in self.operators.get("decode", ())],
            },
            "assumed": list(self.scenario.assumed),
            "warnings": [*self.scenario.warnings, *self.mind],
        }

    def to_frame(self) -> Any:
        """Return a pandas frame of the inputs that matter, the strongest first, with their provenance."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["elasticities"])

    def text(self, width: int = 100) -> str:
        """Return the explanation as a tree of plain text.

        Parameters
        ----------
        width : int
            Characters of a line.

        Returns
        -------
        str
        """
        return "\n".join(self._lines(width))

    def __repr__(self) -> str:
        return self.text()

    @property
    def verdict(self) -> str:
        """The number with its range, what takes most of it, and the input that moves it most."""
        if self.value != self.value:
            return ""
        answer = run(self.scenario)
        ends = answer.band.get(self.metric)
        said = f"{self.metric} of {self.scenario.model.name} on {answer.scenario.system.name} {plan_words(answer)} is "
        said += show(self.value, self.unit)
        if ends:
            wide = f"{show(ends['low'], self.unit, 3)} to {show(ends['high'], self.unit, 3)}"
            said += f" ({span(ends, 's') if self.unit == 's' else wide})"
        said += f" at {load_words(answer)}"
        rows = self.operators.get({"ttft_s": "prefill", "tpot_s": "decode"}.get(self.metric, ""))
        if rows:
            most = max(rows, key=lambda row: row.time)
            said += f"; {most.name} takes {most.share:.0%}"
        moves = [each for each in self.elasticities if self._can_change(each.path)]
        if moves and moves[0].elasticity == moves[0].elasticity:
            said += f"; 1 % more {moves[0].path} moves it most, by {moves[0].elasticity:+.2f} %"
        return f"{said}."

    def _lines(self, width: int) -> Iterator[str]:
        if self.verdict:
            yield from (*_wrapped(self.verdict, "", "", width), "")
        yield from _tree(self.root, None, True, width)
        if self.elasticities:
            yield ""
            yield "inputs that matter most and can change: 1 % more moves the result by"
        for elasticity in [each for each in self.elasticities if self._can_change(each.path)][:MOST]:
            move = "ends it" if elasticity.elasticity != elasticity.elasticity else f"{elasticity.elasticity:+.3f} %"
            said = f"{show(elasticity.value, elasticity.unit)}, {self.origins[elasticity.path].kind}"
            said += "; a switch lies within 1 %" if elasticity.switches else ""
            yield from _wrapped(f"{move:>10}  {elasticity.path} = {said}", "", " " * 12, width)
        yield from _said("assumed", self.scenario.assumed, width)
        yield from _said("mind", [*self.scenario.warnings, *self.mind], width)

    def _can_change(self, path: str) -> bool:
        """Whether a percent can be added to an input: not to a model's shape, nor to a count but that of clients."""
        return path == "traffic.concurrency" or not (
            path.startswith("model.") or range_at(self.scenario, path).whole or path == "traffic.rounds"
        )

    def operators_text(self, width: int = 100) -> str:
        """Return a table for each phase: operator, work, traffic, what limits it, and its time.

        Parameters
        ----------
        width : int
            Characters of a line.

        Returns
        -------
        str
        """
        tables = [_operator_table(phase, rows) for phase, rows in self.operators.items()]
        return "\n\n".join(["\n".join(_wrapped(self.verdict, "", "", width)), *tables])

    def latex(self) -> str:
        """Return the equations, each once, as an ``align*`` environment."""
        rows: list[str] = []

        def write(entry: Entry) -> None:
            for below in entry.below:
                write(below)
            if entry.latex:
                rows.append(entry.latex)

        write(self.root)
        return "\\begin{align*}\n" + " \\\\[1ex]\n".join(rows) + "\n\\end{align*}"


def _operator_table(phase: str, rows: Sequence[OperatorTime]) -> str:
    """Return the operators of a phase as aligned columns, which fit into 80."""
    whole = "TTFT" if phase == "prefill" else "TPOT"
    cells: list[tuple[str, ...]] = [("operator", "FLOP", "bytes", "FLOP/B", "limit", "time", f"of {whole}")]
    for row in rows:
        work = (show(row.flops, "FLOP", 3), show(row.moved, "B", 3), show(row.intensity, "1", 3))
        shown = tuple(
            text if number else "" for text, number in zip(work, (row.flops, row.moved, row.flops), strict=True)
        )
        cells.append((row.name, *shown, row.limit, show(row.time, "s", 3), f"{row.share:.1%}"))
    spent = sum(row.time for row in rows)
    cells.append((whole, *["" for _ in range(4)], show(spent, "s", 4), "100.0%"))
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    left = (0, 4)
    lines = [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join([f"{phase}: one step of what runs, all chips of a replica together", *lines])


def _said(heading: str, lines: Sequence[str], width: int) -> Iterator[str]:
    """Give a heading and the lines below it, where there are any."""
    if lines:
        yield from ("", heading)
    for line in lines:
        yield from _wrapped(line, "  - ", "    ", width)


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, len(rest) + 30), initial_indent=first, subsequent_indent=rest, break_long_words=False
    ) or [first]


def _tree(entry: Entry, indent: str | None, last: bool, width: int) -> Iterator[str]:
    mark, more = ("", "") if indent is None else ("└─ ", "   ") if last else ("├─ ", "│  ")
    outer = indent or ""
    inner = outer + more
    head = f"{entry.name} = {show(entry.value, entry.unit) if entry.value == entry.value else entry.missing}"
    if entry.origin is not None:
        origin = entry.origin
        span = f", {show(origin.low, entry.unit, 3)} to {show(origin.high, entry.unit, 3)}"
        said = f"{origin.kind}{span if origin.low == origin.low else ''}"
        said += f": {origin.source}" if origin.source else ""
        yield from _wrapped(f"{head}  [{said}]", outer + mark, inner + "  ", width)
        return
    yield from _wrapped(head + ("  (explained above)" if entry.repeated else ""), outer + mark, inner, width)
    if entry.repeated:
        return
    bar = "│  " if entry.below or entry.cut else "   "
    yield from _wrapped(f"= {entry.formula}", inner + bar, f"{inner}{bar}  ", width)
    cited = f"  [{entry.source}]" if entry.source else ""
    yield from _wrapped(f"= {entry.numbers}{cited}", inner + bar, f"{inner}{bar}  ", width)
    if entry.cut:
        yield f"{inner}└─ {entry.cut} more equations (--depth)"
    for at, below in enumerate(entry.below):
        yield from _tree(below, inner, at == len(entry.below) - 1, width)


class _Writer:
    """Makes the tree of a result from the steps that a workbook would have rows for."""

    def __init__(self, scenario: Scenario, ledger: Ledger, name: str, root: Node) -> None:
        self.scenario = scenario
        self.ledger = ledger
        self.unit = unit_of(name)
        self.steps = {id(step.node): step for step in steps(ledger, {name: root})}
        self.root = next(step for step in self.steps.values() if isinstance(step.node, str))
        inner = self.step_of(self.root.expression, self.root)
        if inner is not None and inner.value == inner.value:
            # The name of the result stands for what gives it.
            self.root = self.steps[id(inner.node)] = replace(inner, name=name)
        self.seen: set[int] = set()

    def past_guards(self, step: Step) -> Step:
        """Return what a step lets through, where all that it does is to say whether there is an answer at all."""
        while step.value == step.value and isinstance(guard := step.expression, Node):
            while guard.kind == "argument" and isinstance(guard.args[0], Node):
                guard = guard.args[0]
            passed = guard.args[1] if guard.kind == "only_if" else None
            inner = self.step_of(passed, step) if isinstance(passed, Node) else None
            if inner is None:
                break
            step = inner
        return step

    def step_of(self, node: Node, own: Step) -> Step | None:
        """Return the step that stands for a node in the expression of another one, past guards that let it through."""
        while node.kind == "argument" and isinstance(node.args[0], Node):
            node = node.args[0]
        step = self.steps.get(id(node if node.line is None else node.line))
        return None if step is None or step is own else self.past_guards(step)

    def feeds(self, expression: Any, own: Step) -> Iterator[Step | Node]:
        """Give the nearest steps and inputs below an expression."""
        if not isinstance(expression, Node):
            return
        if expression.kind == "input":
            yield expression
        elif step := self.step_of(expression, own):
            yield step
        else:
            for arg in expression.args:
                yield from self.feeds(arg, own)

    def below(self, step: Step) -> list[Step | Node]:
        """Return what a step rests on, each once."""
        nodes = step.node.arguments.values() if isinstance(step.node, Line) else [step.expression]
        inner: dict[int | str, Step | Node] = {}
        for node in nodes:
            for feed in self.feeds(node, step):
                inner.setdefault(id(feed.node) if isinstance(feed, Step) else feed.label, feed)
        return list(inner.values())

    def rest(self, step: Step) -> int:
        """Return how many equations a step rests on that were not shown before."""
        reached: set[int] = set()
        stack = [step]
        while stack:
            for feed in self.below(stack.pop()):
                if isinstance(feed, Step) and id(feed.node) not in reached | self.seen:
                    reached.add(id(feed.node))
                    stack.append(feed)
        return len(reached)

    def entry(self, part: Step | Node, depth: int) -> Entry:
        """Return a step or an input with what it rests on, so many steps deep."""
        if isinstance(part, Node):
            given = self.ledger.inputs[part.label]
            origin = provenance_of(self.scenario, part.label)
            return Entry(given.path, given.value, given.unit, origin=origin)
        unit = self.unit if part is self.root else part.unit or "1"
        made = Entry(part.name, part.value, unit, source=part.source, repeated=id(part.node) in self.seen)
        if made.repeated:
            return made
        self.seen.add(id(part.node))
        if made.value != made.value:
            reached = self.ledger.reached([part.expression]).values()
            made.missing = "not published" if any(given.value != given.value for given in reached) else "does not fit"

        def name(node: Node) -> str | None:
            if node.kind in ("argument", "input"):
                return node.label
            step = self.step_of(node, part)
            return step.name if step else None

        def number(node: Node) -> str | None:
            return LANGUAGE.number(node.value) if name(node) else None

        def latex_number(node: Node) -> str | None:
            if not name(node):
                return None
            text = _latex_number(node.value)
            return f"\\left({text}\\right)" if "times" in text or text.startswith("-") else text

        def symbol(node: Node) -> str | None:
            step = self.step_of(node, part)
            if step is not None and isinstance(step.node, Line):
                return f"{{{step.node.symbol}}}"
            text = name(node)
            return None if text is None else f"\\text{{{latex_text(text)}}}"

        made.symbol = part.node.symbol if isinstance(part.node, Line) else ""
        made.formula = LANGUAGE.write(part.expression, name)
        made.numbers = LANGUAGE.write(part.expression, number)
        tail = f"\\,\\text{{{latex_text(unit)}}}" if unit != "1" else ""
        said = f" && \\text{{{latex_text(f'{part.name}: {part.source}')}}}" if part.source else ""
        left = made.symbol or f"\\text{{{latex_text(part.name)}}}"
        made.latex = (
            f"{left} &= {LATEX.write(part.expression, symbol)}{said} \\\\\n"
            f"&= {LATEX.write(part.expression, latex_number)} = {_latex_number(part.value)}{tail}"
        )
        if depth > 0:
            made.below = [self.entry(feed, depth - 1) for feed in self.below(part)]
        else:
            made.cut = self.rest(part)
        return made


def explain(scenario: Scenario, metric: str, depth: int = DEPTH) -> Explanation:
    """Return how a result came about.

    Parameters
    ----------
    scenario : Scenario
        All numbers floats.
    metric : str
        A key of the JSON or a column of ``--csv``, its unit suffix optional.
    depth : int
        How many equations deep.

    Returns
    -------
    Explanation
    """
    ledger, answer = traced(scenario)
    known = {name: value for name, value in results(answer).items() if isinstance(value, Node)}
    name = result_name(metric, known)
    writer = _Writer(scenario, ledger, name, known[name])
    value = known[name].value
    # A result that is not there, or 0, moves by no percents.
    strongest = elasticities(scenario, name) if value == value and value != 0 else []

    def shown(asked: Scenario) -> Any:
        return [results(evaluate(asked))[name]]

    return Explanation(
        scenario=scenario,
        metric=name,
        value=value,
        unit=unit_of(name),
        root=writer.entry(writer.root, depth),
        elasticities=strongest,
        origins={one.path: provenance_of(scenario, one.path) for one in strongest},
        operators=operator_times(scenario) if value == value else {},
        mind=tuple(idle(scenario, unmoved(scenario, shown), shown)) if value == value else (),
    )


def safe_terminal(text: str) -> str:
    """Return text without control characters: names come from users' files."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)


def solution_text(solved: Solution, width: int = 100) -> str:
    """Return a break-even as lines of text."""

    def metric(value: float) -> str:
        return show(value, solved.metric_unit) if value == value else "no answer"

    aim = f"{solved.metric} of at {'most' if is_better_low(solved.metric) else 'least'} {metric(solved.target)}"
    now = show(solved.current, solved.unit, 6)
    rows = [("target", aim)]
    if solved.reason:
        rows += [(solved.path, f"none (now {now})"), (solved.metric, f"now {metric(solved.now)}")]
    else:
        change = f", x{solved.value / solved.current:.4g}" if solved.current > 0 else ""
        rows += [
            (solved.path, f"{show(solved.value, solved.unit, 6)} (now {now}{change})"),
            (solved.metric, f"{metric(solved.reached)} (now {metric(solved.now)})"),
        ]
    if solved.beyond == solved.beyond:
        rows.append(("next to it", f"{metric(solved.beyond)}: it jumps over the target there"))
    if solved.form:
        name = solved.path.rpartition(".")[2]
        rows.append(("in closed form", solved.form + (f", {name} in {solved.unit}" if solved.unit != "1" else "")))
        span = f"{show(solved.holds_from, solved.unit, 3)} to {show(solved.holds_to, solved.unit, 3)}"
        rows.append(("which holds from", span))
        rows += zip(chain(("and goes through",), repeat("")), _counted(solved.equations), strict=False)
    if solved.method == "brentq":
        rows.append(("in closed form", "none: the value is that of brentq on the whole prediction"))
    if solved.limit == solved.limit:
        rows.append(("no input of this goes past", metric(solved.limit)))
    left = max(len(name) for name, _ in rows)
    lines = [*_wrapped(solution_verdict(solved), "", "", width), ""]
    lines += [line for name, said in rows for line in _wrapped(said, f"{name:<{left}}  ", " " * (left + 4), width)]
    lines += [*_said("assumed", solved.assumed, width), *_said("mind", [*solved.warnings, *solved.mind], width)]
    return "\n".join(lines)


def _counted(lines: Sequence[Line]) -> list[str]:
    """Return equations by name, each once, with how often it stands in the ledger and its source."""
    found = Counter((line.name.rpartition(".")[2], line.source) for line in lines)
    return [f"{name}{f' ({count} times)' if count > 1 else ''}: {source}" for (name, source), count in found.items()]


def solved_text(solved: Solution) -> str:
    """Return a solution in words, or why there is none."""
    return textwrap.fill(solved.reason, 100) or solution_text(solved)

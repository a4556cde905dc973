"""What a report is made of: a recipe names figures, a figure is one function, and it returns data.

A figure says what it shows in words, charts as data over tidy frames, the numbers that somebody published beside the
computed ones, and claims that hold, fail or depend on something.  Drawing and files are the outputs' business.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from perfmodel.errors import UserError
from perfmodel.specs import catalog, plugins
from perfmodel.specs.files import place, read_yaml

if TYPE_CHECKING:
    import pandas as pd

#: How sure a number is: printed somewhere, worked out from what is printed, or from the models.
Kind = Literal["published", "reconstructed", "predicted"]
Mark = Literal["line", "point", "bar", "area", "rule", "text", "rect"]
Verdict = Literal["holds", "fails", "depends"]

NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Layer:
    """One mark of a chart.

    Attributes
    ----------
    mark : str
        ``line``, ``point``, ``bar``, ``area``, ``rule``, ``text``, or ``rect`` for a map over two columns of names,
        whose colour is a column of numbers.
    y, y2, x, color : str, optional
        Columns; the chart's own where empty.  ``y2`` is the other edge of an area or a bar; a rule without ``y`` stands
        upright at ``x``.
    label : str
        Column of a text mark.
    rows : str
        pandas query that selects the rows to draw; all where empty.
    """

    mark: Mark
    y: str = ""
    y2: str = ""
    x: str = ""
    color: str = ""
    label: str = ""
    rows: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart as data.

    Attributes
    ----------
    name : str
        Unique in a report, of small letters, digits and dashes; names the files.
    title, caption : str
        Plain text: what is drawn; the caption names the source of published points.
    finding : str
        What it shows, in one sentence; worked out of the frame where empty (:mod:`perfmodel.reports.findings`).
    frame : pandas.DataFrame
        Tidy, one row a mark; at most a few thousand rows.
    columns : mapping of str to str
        Title of every column, with the unit in square brackets where it has one: ``"TPOT [ms]"``.
    x, y : str
        Columns of the axes.
    layers : tuple of Layer
    color, facet : str
        Columns that tell series and panels apart.
    log : str
        ``"x"``, ``"y"``, ``"xy"`` or empty.
    stacked : bool
        Whether bars of one place pile up; else they stand side by side.
    zero : bool
        Whether the y axis starts at 0; bars always do.
    across : bool
        Whether bars lie on their side.
    kind : str
        How sure the numbers are, where no column ``kind`` says it by row.
    """

    name: str
    title: str
    frame: pd.DataFrame
    columns: Mapping[str, str]
    x: str
    y: str
    layers: tuple[Layer, ...] = (Layer("line"),)
    color: str = ""
    facet: str = ""
    log: str = ""
    stacked: bool = False
    zero: bool = False
    across: bool = False
    caption: str = ""
    finding: str = ""
    kind: Kind = "predicted"

    def __post_init__(self) -> None:
        missing = [str(name) for name in self.frame.columns if name not in self.columns]
        if missing:
            raise ValueError(f"chart {self.name}: columns without a title: {', '.join(missing)}")
        if any(layer.rows for layer in self.layers) and not self.frame.index.is_unique:
            raise ValueError(f"chart {self.name}: rows of layers need an index without repeats")
        used = {self.x, self.y, self.color, self.facet}
        used |= {name for layer in self.layers for name in (layer.x, layer.y, layer.y2, layer.color, layer.label)}
        unknown = used - {""} - set(self.frame.columns)
        if unknown:
            raise ValueError(f"chart {self.name}: no such column: {', '.join(sorted(unknown))}")


@dataclass(frozen=True)
class Number:
    """A published value beside the computed one.

    Attributes
    ----------
    what : str
    computed : float
        NaN where the models give none; then ``note`` says why.
    unit : str
        ``"1"`` for a plain number, ``"%"`` shows a share of 1 in percent.
    published : float, optional
        ``None`` where nobody printed one.
    kind : str
        How the computed value came about.
    fitted : bool
        Whether the value was used to fit what computes it; then its error proves nothing.
    source, note : str
    """

    what: str
    computed: float
    unit: str = "1"
    published: float | None = None
    kind: Kind = "predicted"
    fitted: bool = False
    source: str = ""
    note: str = ""

    @property
    def error(self) -> float:
        """Signed error, computed over published less one; NaN where there is none."""
        if self.published is None or not self.published:
            return float("nan")
        return self.computed / self.published - 1


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds over the range of the free values, and what decides."""

    text: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Table:
    """A table of words and figures that are formatted already."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class Figure:
    """What one figure of a report shows.

    Attributes
    ----------
    title : str
    answer : str
        What it shows, in one or two sentences with numbers; the head of the report repeats it.
    charts : tuple of Chart
    numbers : tuple of Number
    claims : tuple of Claim
    tables : tuple of Table
    notes : tuple of str
        Assumptions and warnings that the reader must know.
    verdict : str
        The answer to the question of a report with its range, short; ``answer`` where empty.
    compared : Table, optional
        What is compared, on the first screen of a report.
    hero : Chart, optional
        The chart of the first screen; the first of ``charts`` where there is none.
    """

    title: str
    answer: str
    charts: tuple[Chart, ...] = ()
    numbers: tuple[Number, ...] = ()
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: str = ""
    compared: Table | None = None
    hero: Chart | None = None


_REGISTRY: dict[str, Callable[..., Figure]] = {}


def figure(name: str) -> Callable[[Callable[..., Figure]], Callable[..., Figure]]:
    """Register a function as a figure; its keyword arguments are what a recipe may set."""

    def register(function: Callable[..., Figure]) -> Callable[..., Figure]:
        _REGISTRY[name] = function
        return function

    return register


def _import_reports() -> None:
    """Import every report, a package of this room, so that its figures register themselves."""
    room = __name__.rpartition(".")[0]
    for module in pkgutil.walk_packages(sys.modules[room].__path__, f"{room}."):
        if module.name.count(".") > room.count(".") + 1:
            importlib.import_module(module.name)


def registry(name: str = "") -> Mapping[str, Callable[..., Figure]]:
    """Return every figure by name; those of other packages too where ``name`` is none of ours."""
    _import_reports()
    if name and name not in _REGISTRY:
        for entry in plugins.names(plugins.FIGURES):
            plugins.load(plugins.FIGURES, entry)
    return _REGISTRY


@dataclass(frozen=True)
class Wanted:
    """A figure that a recipe asks for, and where it stands there."""

    name: str
    arguments: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class Section:
    """A heading of a report, what stands under it, and its figures."""

    heading: str
    text: str
    figures: tuple[Wanted, ...]


@dataclass(frozen=True)
class Recipe:
    """A report as data; ``first`` is the place of the figure that answers its question, among all of them."""

    name: str
    title: str
    question: str
    sections: tuple[Section, ...] = field(default=())
    first: int = 0

    @property
    def figures(self) -> list[Wanted]:
        """Every figure, in order."""
        return [wanted for section in self.sections for wanted in section.figures]


def make(wanted: Wanted) -> Figure:
    """Return a figure; an unknown name of a model or system is reported with its place in the recipe."""
    try:
        return registry()[wanted.name](**wanted.arguments)
    except UserError as error:
        raise UserError(f"{wanted.place}: {error}") from None


# --- reading -----------------------------------------------------------------------------------------------------


def find_recipe(name: str) -> Path:
    """Return the file of a recipe: a path, or the name of one in ``reports/`` of a user's folder or bundled."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    roots = [root / "reports" for root in catalog.roots()]
    for root in roots:
        if NAME.fullmatch(name) and os.path.isfile(root / f"{name}.yaml"):
            return root / f"{name}.yaml"
    known = sorted({path.stem for root in roots for path in root.glob("*.yaml")})
    raise UserError(f"unknown report '{name}': expected a path ending in .yaml, or one of {', '.join(known)}")


def read_recipe(name: str) -> Recipe:
    """Read and check a recipe.

    Parameters
    ----------
    name : str
        A path ending in ``.yaml``, or the name of a file in a folder ``reports/``.

    Raises
    ------
    UserError
        One line with file, line, field and what was expected.
    """
    path = find_recipe(name)
    raw = read_yaml(path)
    _fields(path, "", raw, {"title", "question", "sections"}, {"description", "first"})
    sections = []
    for at, section in enumerate(_list(path, "sections", raw["sections"])):
        where = f"sections.{at}"
        _fields(path, where, section, {"heading", "figures"}, {"text"})
        wanted = [
            _wanted(path, f"{where}.figures.{number}", entry)
            for number, entry in enumerate(_list(path, f"{where}.figures", section["figures"]))
        ]
        sections.append(Section(str(section["heading"]), str(section.get("text", "")), tuple(wanted)))
    names = [wanted.name for section in sections for wanted in section.figures]
    first = raw.get("first", names[0])
    if first not in names:
        raise UserError(f"{place(path, 'first')}: no figure of this report is '{first}', expected {', '.join(names)}")
    return Recipe(path.stem, str(raw["title"]), str(raw["question"]), tuple(sections), names.index(first))


def _list(path: Path, where: str, raw: Any) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        raise UserError(f"{place(path, where)}: expected a list with at least one entry")
    return raw


def _fields(path: Path, where: str, raw: Any, needed: set[str], free: set[str]) -> None:
    start = place(path, where) if where else str(path)
    if not isinstance(raw, dict):
        raise UserError(f"{start}: expected a mapping with {', '.join(sorted(needed))}")
    if missing := sorted(needed - set(raw)):
        raise UserError(f"{start}: {missing[0]} is missing")
    if unknown := sorted(set(map(str, raw)) - needed - free):
        raise UserError(f"{start}: unknown field '{unknown[0]}', expected {', '.join(sorted(needed | free))}")


def _wanted(path: Path, where: str, raw: Any) -> Wanted:
    """Return a checked entry; pydantic reads the arguments against the function's signature."""
    from pydantic import ConfigDict, ValidationError, create_model

    if not isinstance(raw, dict) or not isinstance(raw.get("figure"), str):
        raise UserError(f"{place(path, where)}: expected 'figure: NAME' and its arguments")
    name = raw["figure"]
    known = registry(name)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"expected one of {', '.join(sorted(known))}"
        raise UserError(f"{place(path, f'{where}.figure')}: unknown figure '{name}': {hint}")
    parameters = inspect.signature(known[name], eval_str=True).parameters
    shape: dict[str, Any] = {
        key: (entry.annotation, ... if entry.default is inspect.Parameter.empty else entry.default)
        for key, entry in parameters.items()
    }
    checked = create_model(name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True), **shape)
    try:
        read = checked(**{key: value for key, value in raw.items() if key != "figure"})
    except ValidationError as error:
        first = error.errors()[0]
        field_path = ".".join([where, *map(str, first["loc"])])
        if first["type"] == "extra_forbidden":
            raise UserError(
                f"{place(path, field_path)}: figure {name} takes {', '.join(parameters) or 'no arguments'}"
            ) from None
        raise UserError(f"{place(path, field_path)}: {first['msg']}") from None
    return Wanted(name, {key: getattr(read, key) for key in parameters}, place(path, where))

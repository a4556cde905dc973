"""Where everything of a workbook stands: each cell has its place before any sheet is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from perfmodel.compilers.offers import Pair, layouts
from perfmodel.compilers.program import is_result
from perfmodel.compilers.workbook.content import CHANGES, MISFIT, MISSING, NAN, REFUSED, UNKNOWN, Content
from perfmodel.specs.paths import provenance_of

#: Row of a Model sheet on which the choice of its columns begins, and the one of the first input.
TOP, FIRST = 3, 10


def column(index: int) -> str:
    """Return the letters of a column, from 0."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def cell_name(prefix: str, path: str) -> str:
    """Return a name for a cell: letters, digits and underscores, as Google Sheets has it too."""
    return f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', path)}"


@dataclass(frozen=True)
class SpecRow:
    """A row of the Specs sheet: its key, its unit, and a value for each name of its block."""

    row: int
    key: str
    unit: str
    values: Sequence[Any]
    is_head: bool = False


@dataclass(frozen=True)
class ProgramRows:
    """Rows of the sheet of a program: inputs by path, choices by slot, the first equation, results by name."""

    inputs: dict[str, int]
    slots: list[int]
    start: int
    results: dict[str, int]


class Layout:
    """Rows and columns of every sheet, and the formulas that refer to them.

    Parameters
    ----------
    content : Content
    """

    def __init__(self, content: Content) -> None:
        self.content = content
        self.columns: dict[str, list[str]] = {}
        self.spec_rows = list(self._spec_rows())
        self.specs = {each.key: each.row for each in self.spec_rows}
        self.input_rows = {path: 14 + at for at, path in enumerate(content.paths)}
        self.scenario_rows = [8 + at for at in range(len(content.cases) - 1)]
        self.models = [f"Model {at + 1}" for at in range(len(content.offer.programs))]
        self.programs = [self._program_rows(at) for at in range(len(content.offer.programs))]
        self.shown_rows = {name: row for row, name in enumerate(content.results, 5)}
        self.scenario_heads = ["name", "system", "model", *(title for title, _ in CHANGES)]
        self.scenario_heads += ["changed input", "its value", "changed input", "its value"]
        shown = [name for name in content.results if not name.startswith("memory_")]
        self.scenario_columns = {name: len(self.scenario_heads) + at for at, name in enumerate(shown)}

    # --- rows ----------------------------------------------------------------------------------------------------

    def _spec_rows(self) -> Iterator[SpecRow]:
        """Give systems, models and pairs as blocks: one row a path, one column a name."""
        content, row = self.content, count(3)
        first: dict[str, dict[str, Pair]] = {"system": {}, "model": {}, "pair": {}}
        for pair in content.offer.pairs:
            for kind, name in content.words(pair).items():
                first[kind].setdefault(name, pair)
        self.columns = {kind: list(field) for kind, field in first.items()}
        for kind, field in first.items():
            paths = [path for path in content.paths if content.kind(path) == kind]
            yield SpecRow(next(row), kind, "unit", list(field), is_head=True)
            for path in paths:
                values = [pair.inputs.get(path, NAN) for pair in field.values()]
                yield SpecRow(next(row), path, content.units[path], values)
            for end in ("low", "high"):
                for path in paths:
                    ends = [getattr(provenance_of(pair.scenario, path), end) for pair in field.values()]
                    yield SpecRow(next(row), f"{end} {path}", "", ["" if e != e else e for e in ends])
            for path in paths:
                origins = [content.origin(pair, path) for pair in field.values()]
                yield SpecRow(next(row), f"source {path}", "", origins)
            next(row)
        for key, each in self._pair_rows():
            yield SpecRow(next(row), key, "", each)

    def _pair_rows(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """Give what a pair has beside its inputs: program, what that reads, layouts, words, choices."""
        content, pairs = self.content, self.content.offer.pairs
        yield "program", [float(pair.program + 1) for pair in pairs]
        # Those of pairs whose programs read the same stand once.
        sets = list(dict.fromkeys(map(content.offer.read, pairs)))
        yield "reads", [sets.index(content.offer.read(pair)) + 1.0 for pair in pairs]
        self.columns["reads"] = [str(at) for at in range(len(sets))]
        for path in content.paths:
            if not all(path in read for read in sets):
                yield f"entered {path}", [float(path in read) for read in sets]
        degrees = [layouts(pair.scenario) for pair in pairs]
        for name, at in (("allowed tp", 0), ("allowed ep", 1)):
            yield name, [f"|{'|'.join(f'{d:g}' for d in each[at])}|" for each in degrees]
        for name in ("plan", "engine", "precision", "kv_precision"):
            yield name, [getattr(pair.scenario.deployment, name) for pair in pairs]
        for number, program in enumerate(content.offer.programs):
            for slot in range(len(program.slots)):
                filled = [pair.filled[slot] if pair.program == number else NAN for pair in pairs]
                yield f"slot {number}.{slot}", filled

    def _program_rows(self, at: int) -> ProgramRows:
        program, paths = self.content.offer.programs[at], self.program_paths(at)
        inputs = {path: FIRST + place for place, path in enumerate(paths)}
        slots = [FIRST + len(paths) + place for place in range(len(program.slots))]
        start = FIRST + len(paths) + len(slots) + 1
        results = {step.name: start + place for place, step in enumerate(program.steps) if is_result(step)}
        return ProgramRows(inputs, slots, start, results)

    # --- formulas ------------------------------------------------------------------------------------------------

    def range(self, key: str, kind: str) -> str:
        """Return the cells of the Specs sheet that hold a row of a block."""
        row = self.specs[key]
        return f"Specs!$C${row}:${column(1 + len(self.columns[kind]))}${row}"

    def look(self, key: str, kind: str, place: str) -> str:
        """Return the formula that reads a row of the Specs sheet at a place of its block."""
        return f"INDEX({self.range(key, kind)},{place})"

    def program_paths(self, at: int) -> list[str]:
        """Return the inputs that the sheet of a program has rows for."""
        program = self.content.offer.programs[at]
        needed = set(program.paths) | {path for _, path in CHANGES} | {"deployment.ep", "deployment.attention_dp"}
        for pair in self.content.offer.pairs:
            if pair.program == at:
                needed |= {leaf for leaf in pair.filled if isinstance(leaf, str)}
        return [path for path in self.content.paths if path in needed]

    def chosen(self, case: int, name: str) -> str:
        """Return the formula of a result in a column: of the program that the column's pair has."""
        letters = column(4 + case)
        arms = [
            f"'{sheet}'!${letters}${rows[name]}" if name in rows else "NA()"
            for sheet, rows in zip(self.models, (rows.results for rows in self.programs), strict=True)
        ]
        program = f"'{self.models[0]}'!${letters}$9"
        return f"CHOOSE({program},{','.join(arms)})"

    def runs(self, case: int) -> str:
        """Return the formula that says whether the layout of a column can run."""
        letters = column(4 + case)
        program = f"'{self.models[0]}'!${letters}$9"
        arms = [f"'{sheet}'!${letters}$8" for sheet in self.models]
        return f"CHOOSE({program},{','.join(arms)})"

    def answer(self, case: int, name: str) -> str:
        """Return a formula that shows a result, or why there is none."""
        letters = column(4 + case)
        held = self.chosen(case, "max_concurrency")
        value = self.chosen(case, name)
        none = f'IF(IFERROR({held},1)<1,"{MISFIT}","{UNKNOWN}")'
        return (
            f"IF(ISNUMBER('{self.models[0]}'!${letters}$7),IF({self.runs(case)}=1,_xlfn.IFNA({value},{none}),"
            f'"{REFUSED}"),"{MISSING}")'
        )

    def grid_head(self, table: int) -> int:
        """Return the row of the ratios of a table of the grid."""
        return 8 + len(self.content.cases) + 24 + table * (len(self.content.contexts) + 4)

    def grid_row(self, context: int, table: int) -> int:
        """Return the row of a context in a table of the grid."""
        return self.grid_head(table) + 1 + context

    def fed_by(self, path: str, row: int, case: int, letters: str) -> str:
        """Return the formula that feeds an input of a column."""
        name = cell_name("in", path)
        if case == 0:
            return name
        if case >= len(self.content.cases):
            at = case - len(self.content.cases)
            context = f"Scenarios!$A${self.grid_row(at // len(self.content.ratios), 0)}"
            ratio = f"Scenarios!${column(1 + at % len(self.content.ratios))}${self.grid_head(0)}"
            return f"{context}*{ratio}/(1+{ratio})" if path == "traffic.prompt" else f"{context}/(1+{ratio})"
        line = self.scenario_rows[case - 1]
        kind = self.content.kind(path)
        place = {"system": f"{letters}$5", "model": f"{letters}$6", "pair": f"{letters}$7"}[kind]
        look = self.look(path, kind, place)
        same = {
            "system": f"{letters}$3=Inputs!$B$3",
            "model": f"{letters}$4=Inputs!$B$4",
            "pair": f"AND({letters}$3=Inputs!$B$3,{letters}$4=Inputs!$B$4)",
        }[kind]
        text = name if path.startswith("traffic.") else f"IF({same},{name},{look})"
        for at, (_, changed) in enumerate(CHANGES):
            if changed == path:
                own = f"Scenarios!${column(3 + at)}${line}"
                text = f"IF(ISBLANK({own}),{text},{own})"
        pick = 3 + len(CHANGES)
        factor = self.content.human[path][1]
        times = "" if factor == 1.0 else f"*{factor:.17G}"
        for at in (pick + 2, pick):
            text = f"IF($A{row}=Scenarios!${column(at)}${line},Scenarios!${column(at + 1)}${line}{times},{text})"
        return text

"""The planning workbook: every number a live formula, printed from the trace.

One *Model* sheet a program holds one row an equation and one column a case: the inputs as they stand, the scenarios,
and a grid of P:D and context.  All columns have the same formulas.  Inside, what does not exist is ``NA()``; only the
cells that show a result say why there is none.  The functions are those that Excel, LibreOffice and Google Sheets
share.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain, count
from pathlib import Path
from typing import Any

from perfmodel.compilers.explain import LANGUAGE as WORDS
from perfmodel.compilers.offers import Offer, Pair, layouts
from perfmodel.compilers.program import Program, is_result
from perfmodel.compilers.spreadsheet import LANGUAGE
from perfmodel.machines.step import CAUSES
from perfmodel.prediction import run
from perfmodel.results import unit_of
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of, quantities, range_at
from perfmodel.specs.units import human
from perfmodel.trace import Node
from perfmodel.version import __version__
from perfmodel.writing import check_file, text_cell, whole

NAN = math.nan
#: Prompt to output, and prompt plus output, of the grid.
RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
CONTEXTS = (1024.0, 4096.0, 16384.0, 65536.0)
#: What the grid shows.
GRID = ("tpot_s", "ttft_s", "tokens_per_s_per_chip")
#: Scenarios that are left to the user.
SPARE = 4
#: The scenario's own columns, and what each may change.
_CHANGES = (
    ("prompt", "traffic.prompt"),
    ("output", "traffic.output"),
    ("requests at once", "traffic.concurrency"),
    ("TP", "deployment.tp"),
    ("PP", "deployment.pp"),
    ("DP", "deployment.dp"),
)
#: Row of a Model sheet on which the choice of its columns begins, and the one of the first input.
_TOP, _FIRST = 3, 10
#: How results are shown, by unit: digits that tell something; the cells hold all of them.
_SHOWN = {
    "s": "[=0]0;[<0.01]0.000E+00;0.00000",
    "1/s": "#,##0.00",
    "B": "#,##0",
    "W": "#,##0",
    "J": "#,##0.00",
    "USD": "#,##0.000",
}
_COUNTS = ("max_concurrency", "chips")
#: Said beside an input that the equations of the pair do not read.
_IDLE = "did not enter this answer"
_REFUSED, _MISFIT, _UNKNOWN, _MISSING = "layout refused", "does not fit", "not published", "pair not offered"


def column(index: int) -> str:
    """Return the letters of a column, from 0."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def shown_names(names: Sequence[str]) -> dict[str, str]:
    """Return names as cells hold them: no formula, none of the wildcards of MATCH, short, each once."""
    found: dict[str, str] = {}
    for name in names:
        plain = text_cell(re.sub(r"[*?~|]|[\x00-\x1f]", "_", name))[:80]
        taken = {one.casefold() for one in found.values()}
        numbered = (f"{plain} ({at})" for at in count(2))
        found[name] = next(one for one in chain([plain], numbered) if one.casefold() not in taken)
    return found


def cell_name(prefix: str, path: str) -> str:
    """Return a name for a cell: letters, digits and underscores, as Google Sheets has it too."""
    return f"{prefix}_{re.sub(r'[^A-Za-z0-9]', '_', path)}"


@dataclass
class Case:
    """A column of the Model sheets: the pair that it is about, and the inputs that differ from the pair's own."""

    pair: Pair
    edits: dict[str, float]

    @property
    def inputs(self) -> dict[str, float]:
        """All inputs by path."""
        return {**self.pair.inputs, **self.edits}


class _Sheet:
    """A sheet that stores either the right values beside its formulas, or zeros."""

    def __init__(self, sheet: Any, zero_cached: bool) -> None:
        self.sheet = sheet
        self.zero = zero_cached

    def page(self, wide: int = 1) -> None:
        """Print the width of the sheet on so many pages."""
        self.sheet.set_landscape()
        self.sheet.fit_to_pages(wide, 0)

    def text(self, row: int, col: int, words: str, form: Any = None) -> None:
        self.sheet.write_string(row - 1, col, text_cell(words), form)

    def number(self, row: int, col: int, value: float, form: Any = None) -> None:
        if value == value:
            self.sheet.write_number(row - 1, col, value, form)
        else:
            self.formula(row, col, "NA()", NAN, form)

    def formula(self, row: int, col: int, text: str, value: Any, form: Any = None) -> None:
        missing = isinstance(value, float) and value != value
        cached = 0 if self.zero else "#N/A" if missing else value
        self.sheet.write_formula(row - 1, col, f"={text}", form, cached)


class Workbook:
    """Writes an offer as a workbook.

    Parameters
    ----------
    offer : Offer
        What the drop-downs hold; the first pair is the one that is chosen.
    questions : sequence of str
        How the numbers can be had from the command line.
    zero_cached : bool
        Store 0 beside every formula, so that only a recalculation can show the right values.
    asked : int
        How many pairs, from the first, the question was about: each has a scenario, and the first two changes more.
    contexts, ratios : sequence of float
        Axes of the grid.
    spare : int
        Scenarios that are left to the user.
    """

    def __init__(
        self,
        offer: Offer,
        questions: Sequence[str] = (),
        *,
        zero_cached: bool = False,
        asked: int = 1,
        contexts: Sequence[float] = CONTEXTS,
        ratios: Sequence[float] = RATIOS,
        spare: int = SPARE,
    ) -> None:
        self.offer = offer
        self.questions = questions
        self.zero = zero_cached
        self.contexts = tuple(contexts)
        self.ratios = tuple(ratios)
        self.spare = spare
        self.base = offer.pairs[0]
        self.shown_system = shown_names(offer.systems)
        self.shown_model = shown_names(offer.models)
        self.results = [name for name in self._result_names() if not name.startswith(("stages_", "roofline_"))]
        self.paths = self._paths()
        self.ranges = {
            path: range_at(pair.scenario, path) for pair in offer.pairs for path, _, _ in quantities(pair.scenario)
        }
        self.units = {path: allowed.unit for path, allowed in self.ranges.items()}
        self.human = {path: self._human(path) for path in self.paths}
        self.cases = self._cases(asked)
        self.grid = [Case(self.base, self._grid_edits(at)) for at in range(len(self.contexts) * len(self.ratios))]
        self.rows: dict[str, int] = {}
        self.values = [
            [program.evaluate(*self._fed(case, number)) for case in range(len(self.cases) + len(self.grid))]
            for number, program in enumerate(offer.programs)
        ]

    def _words(self, pair: Pair) -> dict[str, str]:
        """Return what the drop-downs show of a pair, and what they select together."""
        system = self.shown_system[pair.scenario.system.name]
        model = self.shown_model[pair.scenario.model.name]
        return {"system": system, "model": model, "pair": f"{system} | {model}"}

    def _human(self, path: str) -> tuple[str, float]:
        """Return the unit in which an input is shown and typed, that of the first value there is, and its factor."""
        known = (pair.inputs.get(path, NAN) for pair in self.offer.pairs)
        return human(self.units[path], next((value for value in known if value == value and value), NAN))

    # --- what there is -------------------------------------------------------------------------------------------

    def _result_names(self) -> list[str]:
        names = [step.name for program in self.offer.programs for step in program.steps if is_result(step)]
        return list(dict.fromkeys(names))

    def _paths(self) -> list[str]:
        """Return all inputs that any program reads, those of traffic and deployment first."""
        found = {path for program in self.offer.programs for path in program.paths}
        found |= {leaf for pair in self.offer.pairs for leaf in pair.filled if isinstance(leaf, str)}
        found |= {path for _, path in _CHANGES}
        known = dict.fromkeys(path for pair in self.offer.pairs for path in pair.inputs if path in found)
        order = ("traffic", "deployment", "speculation", "economics", "system", "model")
        return sorted(known, key=lambda path: order.index(path.split(".")[0]) if path.split(".")[0] in order else 9)

    def _cases(self, asked: int) -> list[Case]:
        """Return the inputs as they stand, and the scenarios: other pairs that were asked about, and two changes."""
        base = self.base.inputs
        tier = "system.memory.sram.bandwidth" if "system.memory.sram.bandwidth" in self.paths else ""
        tier = "system.memory.hbm.bandwidth" if "system.memory.hbm.bandwidth" in base else tier
        self.names = ["as Inputs"]
        cases = [Case(self.base, {}), Case(self.base, {})]
        for pair in self.offer.pairs[1:asked]:
            self.names.append(self._words(pair)["pair"])
            cases.append(Case(pair, {}))
        if asked:
            self.names += ["four times the requests", "half again the memory bandwidth"]
            cases.append(Case(self.base, {"traffic.concurrency": 4 * base["traffic.concurrency"]}))
            cases.append(Case(self.base, {tier: 1.5 * base[tier]} if tier else {}))
        self.names += [""] * self.spare
        cases += [Case(self.base, {}) for _ in range(self.spare)]
        return cases

    def _grid_edits(self, at: int) -> dict[str, float]:
        context, ratio = self.contexts[at // len(self.ratios)], self.ratios[at % len(self.ratios)]
        return {"traffic.prompt": context * ratio / (1 + ratio), "traffic.output": context / (1 + ratio)}

    def _fed(self, case: int, program: int) -> tuple[dict[str, float], tuple[Any, ...]]:
        """Return the inputs and choices of a case on the sheet of a program; none where its pair has another."""
        about = (*self.cases, *self.grid)[case]
        return (about.inputs, about.pair.filled) if about.pair.program == program else ({}, ())

    def _result(self, case: int, name: str) -> float:
        pair = (*self.cases, *self.grid)[case].pair
        steps = self.offer.programs[pair.program].steps
        at = next((at for at, step in enumerate(steps) if is_result(step) and step.name == name), None)
        return NAN if at is None else self.values[pair.program][case][at]

    # --- writing -------------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write the workbook, whole or not at all."""
        file = io.BytesIO()
        self._write(file)
        with whole(path) as partial:
            partial.write_bytes(file.getbuffer())

    def _write(self, file: io.BytesIO) -> None:
        import xlsxwriter

        # In memory, since the library says a full disk by a traceback of its own.
        options = {"strings_to_formulas": False, "strings_to_urls": False, "in_memory": True}
        book = xlsxwriter.Workbook(file, options)
        self.book = book
        self.form = {
            "bold": book.add_format({"bold": True, "text_wrap": True, "valign": "top", "bottom": 1}),
            "heading": book.add_format({"bold": True}),
            "title": book.add_format({"bold": True, "font_size": 14}),
            "given": book.add_format({"bg_color": "#FFF5D6", "border": 1, "border_color": "#D9C58A"}),
            "number": book.add_format({"num_format": "[=0]0;[<0.001]0.000E+00;General"}),
            "given_number": book.add_format(
                {
                    "bg_color": "#FFF5D6",
                    "border": 1,
                    "border_color": "#D9C58A",
                    "num_format": "[=0]0;[<0.001]0.000E+00;General",
                }
            ),
            "note": book.add_format({"font_color": "#666666", "italic": True}),
            "grey": book.add_format({"font_color": "#AAAAAA"}),
            "grey_number": book.add_format(
                {"font_color": "#888888", "num_format": "[=0]0;[<0.001]0.000E+00;General", "align": "right"}
            ),
            "wrap": book.add_format({"text_wrap": True, "valign": "top"}),
            "unit": book.add_format({"indent": 1}),
            "bold_number": book.add_format({"bold": True, "valign": "top", "bottom": 1, "align": "right"}),
        }
        self.shown_as = {
            unit: book.add_format({"num_format": form}) for unit, form in {**_SHOWN, "1": "0.0000", "": "#,##0"}.items()
        }
        names = ["Inputs", "Results", "Scenarios"]
        self.models = [f"Model {at + 1}" for at in range(len(self.offer.programs))]
        self.sheets = {
            name: _Sheet(book.add_worksheet(name), self.zero) for name in (*names, *self.models, "Specs", "About")
        }
        book.set_calc_mode("auto")
        self.specs: dict[str, int] = {}
        self._specs()
        self.input_rows = {path: 14 + at for at, path in enumerate(self.paths)}
        self.scenario_rows = [8 + at for at in range(len(self.cases) - 1)]
        self._inputs()
        self.result_rows = [self._model(at) for at in range(len(self.offer.programs))]
        self._results()
        self._scenarios()
        self._about()
        book.close()

    # --- Specs ---------------------------------------------------------------------------------------------------

    def _specs(self) -> None:
        """Write systems, models and pairs as blocks: one row a path, one column a name."""
        sheet = self.sheets["Specs"]
        sheet.text(1, 0, "What the drop-downs choose from", self.form["title"])
        sheet.sheet.set_column(0, 0, 52)
        sheet.sheet.set_column(1, 1, 10)
        sheet.sheet.set_column(2, 2 + len(self.offer.pairs), 22)
        row = count(3)
        first: dict[str, dict[str, Pair]] = {"system": {}, "model": {}, "pair": {}}
        for pair in self.offer.pairs:
            for kind, name in self._words(pair).items():
                first[kind].setdefault(name, pair)
        self.columns = {kind: list(found) for kind, found in first.items()}
        for kind, found in first.items():
            mine = [path for path in self.paths if self._kind(path) == kind]
            self.specs[kind] = next(row)
            sheet.text(self.specs[kind], 0, f"{kind}s", self.form["bold"])
            sheet.text(self.specs[kind], 1, "unit", self.form["bold"])
            for at, name in enumerate(found):
                sheet.text(self.specs[kind], 2 + at, name, self.form["bold"])
            for path in mine:
                self._spec_row(next(row), path, path, [pair.inputs.get(path, NAN) for pair in found.values()])
            for end in ("low", "high"):
                for path in mine:
                    ends = [getattr(provenance_of(pair.scenario, path), end) for pair in found.values()]
                    self._words_row(next(row), f"{end} {path}", ["" if e != e else e for e in ends])
            for path in mine:
                self._words_row(next(row), f"source {path}", [self._origin(pair, path) for pair in found.values()])
            next(row)
        self._pair_rows(row)

    def _pair_rows(self, row: Iterator[int]) -> None:
        pairs = self.offer.pairs
        self._words_row(next(row), "program", [float(pair.program + 1) for pair in pairs])
        self._read_rows(row)
        degrees = [layouts(pair.scenario) for pair in pairs]
        for name, at in (("allowed tp", 0), ("allowed ep", 1)):
            self._words_row(next(row), name, [f"|{'|'.join(f'{d:g}' for d in each[at])}|" for each in degrees])
        for name in ("plan", "engine", "precision", "kv_precision"):
            self._words_row(next(row), name, [getattr(pair.scenario.deployment, name) for pair in pairs])
        for number_, program in enumerate(self.offer.programs):
            for slot in range(len(program.slots)):
                filled = [pair.filled[slot] if pair.program == number_ else NAN for pair in pairs]
                self._words_row(next(row), f"slot {number_}.{slot}", filled)

    def _read_rows(self, row: Iterator[int]) -> None:
        """Write which inputs enter the answers of a pair; those of pairs whose programs read the same stand once."""
        sets = list(dict.fromkeys(map(self.offer.read, self.offer.pairs)))
        self._words_row(next(row), "reads", [sets.index(self.offer.read(pair)) + 1.0 for pair in self.offer.pairs])
        self.columns["reads"] = [str(at) for at in range(len(sets))]
        for path in self.paths:
            if not all(path in read for read in sets):
                self._words_row(next(row), f"entered {path}", [float(path in read) for read in sets])

    def _spec_row(self, row: int, key: str, shown: str, values: Sequence[float]) -> None:
        sheet = self.sheets["Specs"]
        self.specs[key] = row
        sheet.text(row, 0, shown)
        sheet.text(row, 1, self.units[key])
        for at, value in enumerate(values):
            sheet.number(row, 2 + at, value, self.form["number"])

    def _words_row(self, row: int, key: str, values: Sequence[Any]) -> None:
        sheet = self.sheets["Specs"]
        self.specs[key] = row
        sheet.text(row, 0, key)
        for at, value in enumerate(values):
            if isinstance(value, float):
                sheet.number(row, 2 + at, value, self.form["number"])
            else:
                sheet.text(row, 2 + at, value)

    def _kind(self, path: str) -> str:
        root = path.split(".")[0]
        return root if root in ("system", "model") else "pair"

    def _origin(self, pair: Pair, path: str) -> str:
        if path not in pair.inputs:
            return f"not an input of this {self._kind(path)}"
        origin = provenance_of(pair.scenario, path)
        unknown = "not published; " if pair.inputs[path] != pair.inputs[path] else ""
        note = f" ({origin.note})" if origin.note else ""
        return text_cell(f"{unknown}{origin.kind}{': ' if origin.source else ''}{origin.source}{note}")

    def _range(self, key: str, kind: str) -> str:
        row = self.specs[key]
        return f"Specs!$C${row}:${column(1 + len(self.columns[kind]))}${row}"

    def _look(self, key: str, kind: str, place: str) -> str:
        return f"INDEX({self._range(key, kind)},{place})"

    # --- Inputs --------------------------------------------------------------------------------------------------

    def _inputs(self) -> None:
        sheet, form = self.sheets["Inputs"], self.form
        wide = ((0, 48), (1, 16), (2, 16), (3, 16), (4, 14), (5, 12), (6, 12), (7, 70), (8, 18))
        for at, width in wide:
            sheet.sheet.set_column(at, at, width)
        sheet.text(1, 0, "Inputs: choose a system and a model, type over any number in the yellow cells", form["title"])
        chosen = self._words(self.base)
        for row, kind in ((3, "system"), (4, "model")):
            sheet.text(row, 0, kind)
            sheet.text(row, 1, chosen[kind], form["given"])
            sheet.sheet.data_validation(
                row - 1,
                1,
                row - 1,
                1,
                {
                    "validate": "list",
                    "source": f"={self._range(kind, kind)}",
                    "error_title": f"Unknown {kind}",
                    "error_message": f"Choose one of the {kind}s that this workbook holds; export another for more.",
                },
            )
            self.book.define_name(f"in_{kind}", f"=Inputs!$B${row}")
        for row, name in enumerate(("plan", "engine", "precision", "kv_precision"), 5):
            sheet.text(row, 0, f"{name} of this pair".replace("_", " "))
            self._chosen_word(row, name)
        sheet.text(9, 0, "layout")
        text = f'IFERROR(IF({self._runs(0)}=1,"can run","{_REFUSED}: see allowed tp in Specs"),"{_MISSING}")'
        sheet.formula(9, 1, text, "can run")
        for row, kind in enumerate(("system", "model"), 10):
            sheet.text(row, 0, f"column of the {kind} in Specs", form["note"])
            place = self.columns[kind].index(chosen[kind]) + 1
            sheet.formula(row, 1, f"MATCH($B${row - 7},{self._range(kind, kind)},0)", place)
        sheet.text(12, 0, "column of the pair in Specs", form["note"])
        sheet.formula(12, 1, f'MATCH($B$3&" | "&$B$4,{self._range("pair", "pair")},0)', 1)
        heads = ["input", "in use", "your value", "from the specs", "unit", "low", "high", "where it comes from"]
        heads.append("for the formulas")
        for at, head in enumerate(heads):
            sheet.text(13, at, head, form["bold"])
        sheet.sheet.freeze_panes(13, 1)
        sheet.page()
        for path, row in self.input_rows.items():
            self._input_row(path, row)
        rows = list(self.input_rows.values())
        grey = {"type": "errors", "format": self.form["grey"]}
        sheet.sheet.conditional_format(rows[0] - 1, 1, rows[-1] - 1, 3, grey)

    def _chosen_word(self, row: int, name: str) -> None:
        words = text_cell(getattr(self.base.scenario.deployment, name))
        self.sheets["Inputs"].formula(row, 1, f'IFERROR({self._look(name, "pair", "$B$12")},"{_MISSING}")', words)

    def _input_row(self, path: str, row: int) -> None:
        sheet, form = self.sheets["Inputs"], self.form
        kind = self._kind(path)
        place = {"system": "$B$10", "model": "$B$11", "pair": "$B$12"}[kind]
        value = self.base.inputs.get(path, NAN)
        origin = provenance_of(self.base.scenario, path)
        sheet.text(row, 0, path)
        unit, factor = self.human[path]
        scale = "" if factor == 1.0 else f"{factor:.17G}"
        over, times = (f"/{scale}", f"*{scale}") if scale else ("", "")
        look = self._look(path, kind, place)
        sheet.formula(row, 1, f"IF(ISBLANK($C{row}),$D{row},$C{row})", value / factor, form["number"])
        sheet.sheet.write_blank(row - 1, 2, None, form["given_number"])
        sheet.formula(row, 3, f"{look}{over}", value / factor, form["number"])
        sheet.text(row, 4, unit, form["unit"])
        for col, end in ((5, "low"), (6, "high")):
            known = getattr(origin, end)
            text = self._look(f"{end} {path}", kind, place)
            cached = "" if known != known else known / factor
            sheet.formula(row, col, f'IF({text}="","",{text}{over})', cached, form["number"])
        source, said = self._look(f"source {path}", kind, place), self._origin(self.base, path)
        if (entered := f"entered {path}") in self.specs:
            enters = self._look(entered, "reads", self._look("reads", "pair", "$B$12"))
            source = f'IF(IFERROR({enters},1)=1,"","{_IDLE}; ")&{source}'
            said = said if path in self.offer.read(self.base) else f"{_IDLE}; {said}"
        sheet.formula(row, 7, source, said)
        # What the formulas read is in the inside unit, and exactly that of the specs where nothing was typed.
        sheet.formula(row, 8, f"IF(ISBLANK($C{row}),{look},$C{row}{times})", value, form["grey_number"])
        self.book.define_name(cell_name("in", path), f"=Inputs!$I${row}")
        self._validate(sheet, row - 1, 2, path)

    def _validate(self, sheet: _Sheet, row: int, col: int, path: str, rows: int = 1) -> None:
        """Let a cell take only what the input can be."""
        allowed, (unit, factor) = self.ranges[path], self.human[path]
        least, most = allowed.least / factor, allowed.most / factor
        rule: dict[str, Any] = {"validate": "integer" if allowed.whole else "decimal", "ignore_blank": True}
        if allowed.above or allowed.below:
            # A validation of this kind has no open end, so that its formula says it.
            cell = f"{column(col)}{row + 1}"
            low = f"{cell}{'>' if allowed.above else '>='}{least:.15G}"
            high = f"{cell}{'<' if allowed.below else '<='}{most:.15G}"
            rule |= {"validate": "custom", "value": f"=AND({low},{high})"}
        else:
            rule |= {"criteria": "between", "minimum": least, "maximum": most}
        typed = "" if unit == "1" else f" Type it in {unit}."
        rule |= {"error_title": "Not possible", "error_message": f"Must be {allowed.words()}.{typed}"}
        sheet.sheet.data_validation(row, col, row + rows - 1, col, rule)

    # --- Model ---------------------------------------------------------------------------------------------------

    def _model(self, at: int) -> dict[str, int]:
        """Write the sheet of a program; return the rows of its results."""
        program, sheet, form = self.offer.programs[at], self.sheets[self.models[at]], self.form
        pairs = [pair for pair in self.offer.pairs if pair.program == at]
        kind = pairs[0].scenario.system.kind
        sheet.text(1, 0, f"Model {at + 1}: {kind}; {len(program.steps)} equations, one row each", form["title"])
        for col, width in ((0, 46), (1, 60), (2, 8), (3, 40)):
            sheet.sheet.set_column(col, col, width)
        for col, head in enumerate(("equation", "formula", "unit", "source")):
            sheet.text(2, col, head, form["bold"])
        paths = self._program_paths(at)
        rows = {path: _FIRST + place for place, path in enumerate(paths)}
        slots = [_FIRST + len(paths) + place for place in range(len(program.slots))]
        start = _FIRST + len(paths) + len(slots) + 1
        result_rows = {step.name: start + place for place, step in enumerate(program.steps) if is_result(step)}
        columns = [column(4 + case) for case in range(len(self.cases) + len(self.grid))]
        self._model_words(at, rows, slots, start)
        for case, letters in enumerate(columns):
            self._model_top(at, case, letters, rows, result_rows)
        texts = program.write(
            LANGUAGE,
            lambda path: f"\x00{rows[path]}",
            lambda slot: f"\x00{slots[slot]}",
            lambda place: f"\x00{start + place}",
        )
        self._model_columns(at, rows, slots, start, texts, columns)
        sheet.sheet.freeze_panes(2, 1)
        return result_rows

    def _program_paths(self, at: int) -> list[str]:
        program = self.offer.programs[at]
        needed = set(program.paths) | {path for _, path in _CHANGES} | {"deployment.ep", "deployment.attention_dp"}
        for pair in self.offer.pairs:
            if pair.program == at:
                needed |= {leaf for leaf in pair.filled if isinstance(leaf, str)}
        return [path for path in self.paths if path in needed]

    def _model_words(self, at: int, rows: Mapping[str, int], slots: Sequence[int], start: int) -> None:
        """Write names, formulas in words, units and sources."""
        program, sheet = self.offer.programs[at], self.sheets[self.models[at]]
        top = (
            "system",
            "model",
            "column of the system",
            "column of the model",
            "column of the pair",
            "layout can run",
            "program",
        )
        for row, words in enumerate(top, _TOP):
            sheet.text(row, 0, words, self.form["note"])
        for path, row in rows.items():
            sheet.text(row, 0, path)
            sheet.text(row, 2, self.units[path])
            sheet.text(row, 3, "Inputs", self.form["note"])
        for slot, row in enumerate(slots):
            sheet.text(row, 0, f"choice {slot + 1}: {program.slots[slot]}")
            sheet.text(row, 1, "a constant, or one of the inputs above, by system, model and precision")
        names: dict[int, str] = {}

        def named(node: Node) -> str | None:
            if node.kind in ("argument", "input"):
                return node.label
            return names.get(id(node.line if node.line is not None else node))

        for place, step in enumerate(program.steps):
            row = start + place
            words = WORDS.write(step.expression, named)
            names[id(step.node)] = step.name
            sheet.text(row, 0, step.name)
            sheet.text(row, 1, words if len(words) < 2000 else f"{words[:2000]} ...")
            sheet.text(row, 2, step.unit or (unit_of(step.name) if is_result(step) else ""))
            sheet.text(row, 3, step.source)

    def _model_top(
        self, at: int, case: int, letters: str, rows: Mapping[str, int], result_rows: Mapping[str, int]
    ) -> None:
        """Write what a column is about, and whether its layout can run."""
        sheet = self.sheets[self.models[at]]
        col = 4 + case
        about = (*self.cases, *self.grid)[case].pair
        words = self._words(about)
        in_grid = case >= len(self.cases)
        title = "Inputs" if case == 0 else f"grid {case - len(self.cases) + 1}" if in_grid else f"scenario {case}"
        sheet.text(2, col, title, self.form["bold"])
        for row, kind, source in ((3, "system", "B"), (4, "model", "C")):
            text = f"$E${row}" if in_grid else f"Inputs!$B${row}"
            if 0 < case < len(self.cases):
                own = f"Scenarios!${source}${self.scenario_rows[case - 1]}"
                text = f"IF(ISBLANK({own}),{text},{own})"
            sheet.formula(row, col, text, words[kind])
        for row, kind in ((5, "system"), (6, "model")):
            place = self.columns[kind].index(words[kind]) + 1
            sheet.formula(row, col, f"MATCH({letters}${row - 2},{self._range(kind, kind)},0)", place)
        key = self.columns["pair"].index(words["pair"]) + 1
        sheet.formula(7, col, f'MATCH({letters}$3&" | "&{letters}$4,{self._range("pair", "pair")},0)', key)
        # The grid has the layout of the inputs.
        laid = "$E" if in_grid else letters
        tp, pp, dp, ep, shared = (
            f"{laid}${rows[f'deployment.{name}']}" if f"deployment.{name}" in rows else "1"
            for name in ("tp", "pp", "dp", "ep", "attention_dp")
        )
        ends, layers = (f"{laid}${result_rows[name]}" for name in ("stages_ends", "stages_layers"))
        pair = f"{letters}$7"
        check = (
            f'IFERROR(IF(AND(ISNUMBER(SEARCH("|"&{tp}&"|",{self._look("allowed tp", "pair", pair)})),'
            f'ISNUMBER(SEARCH("|"&{ep}&"|",{self._look("allowed ep", "pair", pair)})),'
            f"OR({ep}=1,MOD({tp}*{shared},{ep})=0),OR({shared}=1,{ep}>{tp}),{shared}=INT({shared}),{shared}>=1,"
            f"{dp}=INT({dp}),{dp}>=1,{pp}=INT({pp}),{pp}>=1,"
            f"{pp}>{ends},{pp}<={layers}+{ends}),1,0),0)"
        )
        sheet.formula(8, col, check, 1.0 if about.program == at else 0.0)
        sheet.formula(9, col, self._look("program", "pair", f"{letters}$7"), about.program + 1)

    def _model_columns(
        self,
        at: int,
        rows: Mapping[str, int],
        slots: Sequence[int],
        start: int,
        texts: Sequence[str],
        columns: Sequence[str],
    ) -> None:
        """Write inputs, choices and equations of every column."""
        sheet, form = self.sheets[self.models[at]], self.form["number"]
        program = self.offer.programs[at]
        needed = self._grid_rows(program, texts, start, rows)
        for case, letters in enumerate(columns):
            in_grid = case >= len(self.cases)
            col = 4 + case
            for path, row in rows.items():
                if in_grid and row not in needed:
                    continue
                # A pair of another program leaves the sheet without inputs, so that nothing is computed by chance.
                text = f"IF({letters}$9={at + 1},{self._fed_by(path, row, case, letters)},NA())"
                sheet.formula(row, col, text, self._fed(case, at)[0].get(path, NAN), form)
            if not in_grid:
                for slot, row in enumerate(slots):
                    fed, filled = self._fed(case, at)
                    leaf = filled[slot] if filled else NAN
                    value = fed.get(leaf, NAN) if isinstance(leaf, str) else leaf
                    chosen = self._look(f"slot {at}.{slot}", "pair", f"{letters}$7")
                    first, last = _FIRST, _FIRST + len(rows) - 1
                    sheet.formula(
                        row,
                        col,
                        f"IF(ISNUMBER({chosen}),{chosen},INDEX({letters}${first}:{letters}${last},"
                        f"MATCH({chosen},$A${first}:$A${last},0)))",
                        value,
                        form,
                    )
            for place, (text, value) in enumerate(zip(texts, self.values[at][case], strict=True)):
                row = start + place
                if in_grid and row not in needed:
                    continue
                sheet.formula(row, col, self._placed(text, letters, needed if in_grid else None), value, form)

    def _placed(self, text: str, letters: str, own: set[int] | None) -> str:
        """Return a formula in a column; what the grid does not vary is read from the column of the inputs."""
        return re.sub(
            "\x00(\\d+)",
            lambda found: f"{letters if own is None or int(found[1]) in own else '$E'}{found[1]}",
            text,
        )

    def _grid_rows(self, program: Program, texts: Sequence[str], start: int, rows: Mapping[str, int]) -> set[int]:
        """Return the rows that a column of the grid has of its own: between its lengths and what it shows."""
        reads = {start + at: {int(row) for row in re.findall("\x00(\\d+)", text)} for at, text in enumerate(texts)}
        moved = {rows["traffic.prompt"], rows["traffic.output"]}
        for row in sorted(reads):
            if reads[row] & moved:
                moved.add(row)
        ends = [
            start + at
            for at, step in enumerate(program.steps)
            if is_result(step) and step.name in (*GRID, "max_concurrency")
        ]
        wanted: set[int] = set()
        stack = [*ends]
        while stack:
            row = stack.pop()
            if row not in wanted:
                wanted.add(row)
                stack += reads.get(row, ())
        return (moved & wanted) | set(ends) | {rows["traffic.prompt"], rows["traffic.output"]}

    def _fed_by(self, path: str, row: int, case: int, letters: str) -> str:
        """Return the formula that feeds an input of a column."""
        name = cell_name("in", path)
        if case == 0:
            return name
        if case >= len(self.cases):
            at = case - len(self.cases)
            context = f"Scenarios!$A${self._grid_row(at // len(self.ratios), 0)}"
            ratio = f"Scenarios!${column(1 + at % len(self.ratios))}${self._grid_head(0)}"
            return f"{context}*{ratio}/(1+{ratio})" if path == "traffic.prompt" else f"{context}/(1+{ratio})"
        mine = self.scenario_rows[case - 1]
        kind = self._kind(path)
        place = {"system": f"{letters}$5", "model": f"{letters}$6", "pair": f"{letters}$7"}[kind]
        look = self._look(path, kind, place)
        same = {
            "system": f"{letters}$3=Inputs!$B$3",
            "model": f"{letters}$4=Inputs!$B$4",
            "pair": f"AND({letters}$3=Inputs!$B$3,{letters}$4=Inputs!$B$4)",
        }[kind]
        text = name if path.startswith("traffic.") else f"IF({same},{name},{look})"
        for at, (_, changed) in enumerate(_CHANGES):
            if changed == path:
                own = f"Scenarios!${column(3 + at)}${mine}"
                text = f"IF(ISBLANK({own}),{text},{own})"
        pick = 3 + len(_CHANGES)
        factor = self.human[path][1]
        times = "" if factor == 1.0 else f"*{factor:.17G}"
        for at in (pick + 2, pick):
            text = f"IF($A{row}=Scenarios!${column(at)}${mine},Scenarios!${column(at + 1)}${mine}{times},{text})"
        return text

    # --- Results -------------------------------------------------------------------------------------------------

    def _chosen(self, case: int, name: str) -> str:
        """Return the formula of a result in a column: of the program that the column's pair has."""
        letters = column(4 + case)
        arms = [
            f"'{sheet}'!${letters}${rows[name]}" if name in rows else "NA()"
            for sheet, rows in zip(self.models, self.result_rows, strict=True)
        ]
        program = f"'{self.models[0]}'!${letters}$9"
        return f"CHOOSE({program},{','.join(arms)})"

    def _runs(self, case: int) -> str:
        letters = column(4 + case)
        program = f"'{self.models[0]}'!${letters}$9"
        arms = [f"'{sheet}'!${letters}$8" for sheet in self.models]
        return f"CHOOSE({program},{','.join(arms)})"

    def _answer(self, case: int, name: str) -> str:
        """Return a formula that shows a result, or why there is none."""
        letters = column(4 + case)
        held = self._chosen(case, "max_concurrency")
        value = self._chosen(case, name)
        none = f'IF(IFERROR({held},1)<1,"{_MISFIT}","{_UNKNOWN}")'
        return (
            f"IF(ISNUMBER('{self.models[0]}'!${letters}$7),IF({self._runs(case)}=1,_xlfn.IFNA({value},{none}),"
            f'"{_REFUSED}"),"{_MISSING}")'
        )

    def _form(self, name: str) -> Any:
        """Return how the numbers of a result are shown."""
        return self.shown_as["" if name in _COUNTS else unit_of(name)]

    def _cached_answer(self, case: int, name: str) -> Any:
        value = self._result(case, name)
        if value == value:
            return value
        held = self._result(case, "max_concurrency")
        return _MISFIT if held < 1 else _UNKNOWN

    def _results(self) -> None:
        sheet, form = self.sheets["Results"], self.form
        for at, width in ((0, 34), (1, 18), (2, 8), (3, 18), (4, 18), (5, 18), (6, 40)):
            sheet.sheet.set_column(at, at, width)
        sheet.text(1, 0, "Results for the inputs in use", form["title"])
        sheet.formula(
            2,
            0,
            'Inputs!$B$4&" on "&Inputs!$B$3',
            f"{self._words(self.base)['model']} on {self._words(self.base)['system']}",
        )
        heads = ("result", "value", "unit", "at export", "80 % low", "80 % high", "")
        for at, head in enumerate(heads):
            sheet.text(4, at, head, form["bold"] if head in ("result", "unit", "") else form["bold_number"])
        sheet.text(4, 6, "values at export, for the inputs of then: recompute with perfmodel", form["note"])
        answer = run(self.base.scenario)
        self.shown_rows: dict[str, int] = {}
        for row, name in enumerate(self.results, 5):
            self.shown_rows[name] = row
            sheet.text(row, 0, name)
            sheet.formula(row, 1, self._answer(0, name), self._cached_answer(0, name), self._form(name))
            sheet.text(row, 2, unit_of(name), form["unit"])
            value = self._result(0, name)
            if value == value:
                sheet.number(row, 3, value, self._form(name))
            for at, end in ((4, "low"), (5, "high")):
                if name in answer.band:
                    sheet.number(row, at, answer.band[name][end], self._form(name))
            self.book.define_name(cell_name("out", name), f"=Results!$B${row}")
        self._limits(5 + len(self.results) + 1)
        sheet.sheet.freeze_panes(4, 1)
        sheet.page()

    def _limits(self, row: int) -> None:
        """Write TTFT and TPOT by cause, what takes most of each, and a chart of them."""
        sheet, form = self.sheets["Results"], self.form
        phases = (("prefill", "TTFT [s]"), ("decode", "TPOT [s]"))
        causes = [cause for cause in CAUSES if all(f"{phase}_{cause}_s" in self.shown_rows for phase, _ in phases)]
        first, last = row + 1, row + len(causes)
        sheet.text(row, 0, "where the time goes", form["bold"])
        chart = self.book.add_chart({"type": "bar"})
        for at, (phase, title) in enumerate(phases):
            letters = column(1 + 2 * at)
            sheet.text(row, 1 + 2 * at, title, form["bold_number"])
            values = [self._result(0, f"{phase}_{cause}_s") for cause in causes]
            for place, cause in enumerate(causes):
                sheet.text(first + place, 0, cause)
                shown = self._cached_answer(0, f"{phase}_{cause}_s")
                text = f"$B${self.shown_rows[f'{phase}_{cause}_s']}"
                sheet.formula(first + place, 1 + 2 * at, text, shown, self.shown_as["s"])
            known = all(value == value for value in values)
            span = f"{letters}${first}:{letters}${last}"
            text = f'IF(COUNT({span})<{len(causes)},"",INDEX($A${first}:$A${last},MATCH(MAX({span}),{span},0)))'
            sheet.text(last + 1, 0, "most of it goes to")
            sheet.formula(last + 1, 1 + 2 * at, text, causes[values.index(max(values))] if known else "")
            chart.add_series(
                {
                    "name": title,
                    "categories": ["Results", first - 1, 0, last - 1, 0],
                    "values": ["Results", first - 1, 1 + 2 * at, last - 1, 1 + 2 * at],
                }
            )
        chart.set_title({"name": "Where the time goes"})
        chart.set_x_axis({"name": "seconds"})
        chart.set_y_axis({"reverse": True})
        chart.set_size({"width": 640, "height": 380})
        sheet.sheet.insert_chart(5, 6, chart, {"description": "Seconds of TTFT and TPOT by cause"})

    # --- Scenarios -----------------------------------------------------------------------------------------------

    def _grid_head(self, table: int) -> int:
        """Return the row of the ratios of a table of the grid."""
        return 8 + len(self.cases) + 24 + table * (len(self.contexts) + 4)

    def _grid_row(self, context: int, table: int) -> int:
        return self._grid_head(table) + 1 + context

    def _scenarios(self) -> None:
        sheet, form = self.sheets["Scenarios"], self.form
        sheet.sheet.set_column(0, 0, 34)
        sheet.sheet.set_column(1, 2, 20)
        sheet.sheet.set_column(3, 60, 16)
        sheet.sheet.set_row(6, 48)
        sheet.text(1, 0, "Scenarios: the same formulas with other inputs", form["title"])
        sheet.text(
            2,
            0,
            "A yellow cell left empty takes what the sheet Inputs has; any two inputs can be changed, in its units.",
        )
        changes = [title for title, _ in _CHANGES]
        heads = ["name", "system", "model", *changes, "changed input", "its value", "changed input", "its value"]
        shown = [name for name in self.results if not name.startswith("memory_")]
        self.scenario_columns = {name: len(heads) + at for at, name in enumerate(shown)}
        for at, head in enumerate([*heads, *shown]):
            sheet.text(7, at, head, form["bold"])
            if at >= len(heads):
                sheet.text(6, at, unit_of(head), form["note"])
        for place, row in enumerate(self.scenario_rows):
            self._scenario(place, row, heads, shown)
        first, last = self.scenario_rows[0], self.scenario_rows[-1]
        for at, kind in ((1, "system"), (2, "model")):
            source = f"={self._range(kind, kind)}"
            sheet.sheet.data_validation(first - 1, at, last - 1, at, {"validate": "list", "source": source})
        for at, (_, path) in enumerate(_CHANGES):
            self._validate(sheet, first - 1, 3 + at, path, last - first + 1)
        rows = list(self.input_rows.values())
        for at in (3 + len(_CHANGES), 5 + len(_CHANGES)):
            source = f"=Inputs!$A${rows[0]}:$A${rows[-1]}"
            sheet.sheet.data_validation(first - 1, at, last - 1, at, {"validate": "list", "source": source})
        sheet.sheet.freeze_panes(7, 1)
        sheet.page(3)
        self._scenario_charts(sheet)
        for table, name in enumerate(GRID):
            self._grid_table(sheet, table, name)
        self._grid_chart(sheet)

    def _scenario(self, place: int, row: int, heads: Sequence[str], shown: Sequence[str]) -> None:
        sheet, form = self.sheets["Scenarios"], self.form
        case = self.cases[place + 1]
        sheet.text(row, 0, self.names[place] or f"scenario {place + 1}", form["given"])
        other = case.pair is not self.base
        own = self._words(case.pair)
        words = {1: own["system"], 2: own["model"]} if other else {}
        numbers = {3 + at: case.edits[path] for at, (_, path) in enumerate(_CHANGES) if path in case.edits}
        known = [path for _, path in _CHANGES]
        picked = [(path, value) for path, value in case.edits.items() if path not in known]
        for at, (path, value) in enumerate(picked):
            words[3 + len(_CHANGES) + 2 * at] = path
            numbers[4 + len(_CHANGES) + 2 * at] = value / self.human[path][1]
        for at in range(1, len(heads)):
            if at in words:
                sheet.text(row, at, words[at], form["given"])
            elif at in numbers:
                sheet.number(row, at, numbers[at], form["given_number"])
            else:
                sheet.sheet.write_blank(row - 1, at, None, form["given_number"])
        for name in shown:
            sheet.formula(
                row,
                self.scenario_columns[name],
                self._answer(place + 1, name),
                self._cached_answer(place + 1, name),
                self._form(name),
            )

    def _scenario_charts(self, sheet: _Sheet) -> None:
        first, last = self.scenario_rows[0] - 1, self.scenario_rows[-1 - self.spare] - 1
        place = self.scenario_rows[-1] + 1
        stacked = self.book.add_chart({"type": "bar", "subtype": "stacked"})
        for cause in CAUSES:
            if (name := f"decode_{cause}_s") in self.scenario_columns:
                at = self.scenario_columns[name]
                stacked.add_series(
                    {
                        "name": cause,
                        "categories": ["Scenarios", first, 0, last, 0],
                        "values": ["Scenarios", first, at, last, at],
                    }
                )
        stacked.set_title({"name": "TPOT by cause"})
        stacked.set_x_axis({"name": "seconds"})
        stacked.set_y_axis({"reverse": True})
        rates = self.book.add_chart({"type": "column"})
        at = self.scenario_columns["tokens_per_s_per_chip"]
        rates.add_series({"categories": ["Scenarios", first, 0, last, 0], "values": ["Scenarios", first, at, last, at]})
        rates.set_title({"name": "Input plus output tokens per second and chip"})
        rates.set_legend({"none": True})
        for chart, col, words in ((stacked, 0, "TPOT of each scenario by cause"), (rates, 4, "Throughput of a chip")):
            chart.set_size({"width": 620, "height": 400})
            sheet.sheet.insert_chart(place, col, chart, {"description": words})

    def _grid_table(self, sheet: _Sheet, table: int, name: str) -> None:
        head, form = self._grid_head(table), self.form
        sheet.text(head - 1, 0, f"{name} [{unit_of(name)}] by P:D (across) and P + D (down)", form["heading"])
        sheet.text(head, 0, "P + D, tokens, and P:D", form["note"])
        for at, ratio in enumerate(self.ratios):
            if table == 0:
                sheet.number(head, 1 + at, ratio, form["given_number"])
            else:
                sheet.formula(head, 1 + at, f"${column(1 + at)}${self._grid_head(0)}", ratio, form["number"])
        for down, context in enumerate(self.contexts):
            row = self._grid_row(down, table)
            if table == 0:
                sheet.number(row, 0, context, form["given_number"])
            else:
                sheet.formula(row, 0, f"$A${self._grid_row(down, 0)}", context, form["number"])
            for across in range(len(self.ratios)):
                case = len(self.cases) + down * len(self.ratios) + across
                cached = self._cached_answer(case, name)
                sheet.formula(row, 1 + across, self._answer(case, name), cached, self._form(name))

    def _grid_chart(self, sheet: _Sheet) -> None:
        for table, name in ((2, "Tokens per second and chip"), (0, "TPOT [s]")):
            chart = self.book.add_chart({"type": "line"})
            head = self._grid_head(table) - 1
            for down in range(len(self.contexts)):
                row = self._grid_row(down, table) - 1
                chart.add_series(
                    {
                        "name": ["Scenarios", row, 0],
                        "categories": ["Scenarios", head, 1, head, len(self.ratios)],
                        "values": ["Scenarios", row, 1, row, len(self.ratios)],
                        "marker": {"type": "circle"},
                    }
                )
            chart.set_title({"name": f"{name} by P:D; one line a P + D"})
            chart.set_x_axis({"name": "P:D"})
            chart.set_size({"width": 560, "height": 360})
            sheet.sheet.insert_chart(
                self._grid_head(0) - 2 + (0 if table == 2 else 20), len(self.ratios) + 2, chart, {"description": name}
            )

    # --- About ---------------------------------------------------------------------------------------------------

    def _about(self) -> None:
        sheet, form = self.sheets["About"], self.form
        sheet.sheet.set_column(0, 0, 120)
        answer = run(self.base.scenario)
        lines: list[tuple[str, Any]] = [(f"perfmodel {__version__}", form["title"]), (f"{date.today():%Y-%m-%d}", None)]
        lines += [(question, None) for question in self.questions]
        parts: list[tuple[str, Sequence[str]]] = [
            (
                "How to use it",
                (
                    "Choose a system and a model on the sheet Inputs, and type over any number in a yellow cell.",
                    "Results and Scenarios follow by live formulas; the Model sheets show every equation.",
                    f"Where there is no number a result says '{_MISFIT}', '{_UNKNOWN}', '{_REFUSED}' or '{_MISSING}'; "
                    "inside the Model sheets that is #N/A.",
                    "Columns headed 'at export', and bands, are values: recompute them with perfmodel after a change.",
                    "Engine and precisions of a pair are fixed in a workbook: export another one for others.",
                ),
            ),
            ("Assumed", list(dict.fromkeys([*answer.assumed, *self._own_files()]))),
            ("To mind", answer.warnings),
            ("Sources", self._sources()),
        ]
        for title, words in parts:
            lines += [("", None), (title, form["bold"]), *((word, form["wrap"]) for word in words)]
        for row, (text, style) in enumerate(lines, 1):
            sheet.text(row, 0, text, style)

    def _own_files(self) -> list[str]:
        scenarios = [pair.scenario for pair in self.offer.pairs]
        return [word for scenario in scenarios for word in scenario.assumed if word.endswith(catalog.IN_PLACE)]

    def _sources(self) -> list[str]:
        known = catalog.load_sources()
        named = dict.fromkeys(
            provenance_of(pair.scenario, path).source for pair in self.offer.pairs for path in self.paths
        )
        found = []
        for name in filter(None, named):
            entry = known.get(name, {})
            where = " ".join(str(entry[key]) for key in ("title", "url", "doi", "date") if entry.get(key))
            found.append(f"{name}: {where}" if where else name)
        return sorted(found)


def check_path(path: Path) -> None:
    """Refuse a name or a folder that a workbook cannot be written to."""
    check_file(path, [".xlsx"], "--xlsx")


def write(offer: Offer, path: Path, questions: Sequence[str] = (), **options: Any) -> Workbook:
    """Write an offer as a planning workbook; see :class:`Workbook`."""
    book = Workbook(offer, questions, **options)
    book.write(path)
    return book

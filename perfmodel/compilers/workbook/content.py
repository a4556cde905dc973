"""What a workbook holds, before it has a place: pairs, cases, inputs and their results."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from perfmodel.compilers.offers import Offer, Pair
from perfmodel.compilers.program import is_result
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of, quantities, range_at
from perfmodel.specs.units import human
from perfmodel.writing import text_cell

NAN = math.nan
#: Said beside an input that the equations of the pair do not read.
IDLE = "did not enter this answer"
#: Prompt to output, and prompt plus output, of the grid.
RATIOS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
CONTEXTS = (1024.0, 4096.0, 16384.0, 65536.0)
#: What the grid shows.
GRID = ("tpot_s", "ttft_s", "tokens_per_s_per_chip")
#: Scenarios that are left to the user.
SPARE = 4
#: The scenario's own columns, and what each may change.
CHANGES = (
    ("prompt", "traffic.prompt"),
    ("output", "traffic.output"),
    ("requests at once", "traffic.concurrency"),
    ("TP", "deployment.tp"),
    ("PP", "deployment.pp"),
    ("DP", "deployment.dp"),
)
#: Why a cell shows no number.
REFUSED, MISFIT, UNKNOWN, MISSING = "layout refused", "does not fit", "not published", "pair not offered"


def shown_names(names: Sequence[str]) -> dict[str, str]:
    """Return names as cells hold them: no formula, none of the wildcards of MATCH, short, each once."""
    shown: dict[str, str] = {}
    for name in names:
        plain = text_cell(re.sub(r"[*?~|]|[\x00-\x1f]", "_", name))[:80]
        taken = {one.casefold() for one in shown.values()}
        numbered = (f"{plain} ({at})" for at in count(2))
        shown[name] = next(one for one in chain([plain], numbered) if one.casefold() not in taken)
    return shown


@dataclass
class Case:
    """A column of the Model sheets: the pair that it is about, and the inputs that differ from the pair's own."""

    pair: Pair
    edits: dict[str, float]
    name: str = ""

    @property
    def inputs(self) -> dict[str, float]:
        """All inputs by path."""
        return {**self.pair.inputs, **self.edits}


class Content:
    """What a workbook holds of an offer, with every result already worked out.

    Parameters
    ----------
    offer : Offer
        What the drop-downs hold; the first pair is the one that is chosen.
    questions : sequence of str
        How the numbers can be had from the command line.
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
        asked: int = 1,
        contexts: Sequence[float] = CONTEXTS,
        ratios: Sequence[float] = RATIOS,
        spare: int = SPARE,
    ) -> None:
        self.offer = offer
        self.questions = questions
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
        self.values = [
            [program.evaluate(*self.fed(case, number)) for case in range(len(self.cases) + len(self.grid))]
            for number, program in enumerate(offer.programs)
        ]

    def words(self, pair: Pair) -> dict[str, str]:
        """Return what the drop-downs show of a pair, and what they select together."""
        system = self.shown_system[pair.scenario.system.name]
        model = self.shown_model[pair.scenario.model.name]
        return {"system": system, "model": model, "pair": f"{system} | {model}"}

    def _human(self, path: str) -> tuple[str, float]:
        """Return the unit in which an input is shown and typed, that of the first value there is, and its factor."""
        known = (pair.inputs.get(path, NAN) for pair in self.offer.pairs)
        return human(self.units[path], next((value for value in known if value == value and value), NAN))

    def _result_names(self) -> list[str]:
        names = [step.name for program in self.offer.programs for step in program.steps if is_result(step)]
        return list(dict.fromkeys(names))

    def _paths(self) -> list[str]:
        """Return all inputs that any program reads, those of traffic and deployment first."""
        found = {path for program in self.offer.programs for path in program.paths}
        found |= {leaf for pair in self.offer.pairs for leaf in pair.filled if isinstance(leaf, str)}
        found |= {path for _, path in CHANGES}
        known = dict.fromkeys(path for pair in self.offer.pairs for path in pair.inputs if path in found)
        order = ("traffic", "deployment", "speculation", "economics", "system", "model")
        return sorted(known, key=lambda path: order.index(path.split(".")[0]) if path.split(".")[0] in order else 9)

    def _cases(self, asked: int) -> list[Case]:
        """Return the inputs as they stand, and the scenarios: other pairs that were asked about, and two changes."""
        base = self.base.inputs
        tier = "system.memory.sram.bandwidth" if "system.memory.sram.bandwidth" in self.paths else ""
        tier = "system.memory.hbm.bandwidth" if "system.memory.hbm.bandwidth" in base else tier
        cases = [Case(self.base, {}), Case(self.base, {}, "as Inputs")]
        for pair in self.offer.pairs[1:asked]:
            cases.append(Case(pair, {}, self.words(pair)["pair"]))
        if asked:
            more = {"traffic.concurrency": 4 * base["traffic.concurrency"]}
            cases.append(Case(self.base, more, "four times the requests"))
            cases.append(Case(self.base, {tier: 1.5 * base[tier]} if tier else {}, "half again the memory bandwidth"))
        cases += [Case(self.base, {}) for _ in range(self.spare)]
        return cases

    def _grid_edits(self, at: int) -> dict[str, float]:
        context, ratio = self.contexts[at // len(self.ratios)], self.ratios[at % len(self.ratios)]
        return {"traffic.prompt": context * ratio / (1 + ratio), "traffic.output": context / (1 + ratio)}

    def fed(self, case: int, program: int) -> tuple[dict[str, float], tuple[Any, ...]]:
        """Return the inputs and choices of a case on the sheet of a program; none where its pair has another."""
        about = (*self.cases, *self.grid)[case]
        return (about.inputs, about.pair.filled) if about.pair.program == program else ({}, ())

    def result(self, case: int, name: str) -> float:
        """Return a result of a case, of the program that its pair has."""
        pair = (*self.cases, *self.grid)[case].pair
        steps = self.offer.programs[pair.program].steps
        at = next((at for at, step in enumerate(steps) if is_result(step) and step.name == name), None)
        return NAN if at is None else self.values[pair.program][case][at]

    def cached_answer(self, case: int, name: str) -> Any:
        """Return what a cell shows of a result: the number, or why there is none."""
        value = self.result(case, name)
        if value == value:
            return value
        held = self.result(case, "max_concurrency")
        return MISFIT if held < 1 else UNKNOWN

    def kind(self, path: str) -> str:
        """Return which of the blocks of the specs an input stands in."""
        root = path.split(".")[0]
        return root if root in ("system", "model") else "pair"

    def origin(self, pair: Pair, path: str) -> str:
        """Return where a number comes from, in words."""
        if path not in pair.inputs:
            return f"not an input of this {self.kind(path)}"
        origin = provenance_of(pair.scenario, path)
        unknown = "not published; " if pair.inputs[path] != pair.inputs[path] else ""
        note = f" ({origin.note})" if origin.note else ""
        return text_cell(f"{unknown}{origin.kind}{': ' if origin.source else ''}{origin.source}{note}")

    def own_files(self) -> list[str]:
        """Return which bundled files have one of the user's in their place."""
        scenarios = [pair.scenario for pair in self.offer.pairs]
        return [word for scenario in scenarios for word in scenario.assumed if word.endswith(catalog.IN_PLACE)]

    def sources(self) -> list[str]:
        """Return the sources of all inputs."""
        known = catalog.load_sources()
        named = dict.fromkeys(
            provenance_of(pair.scenario, path).source for pair in self.offer.pairs for path in self.paths
        )
        sources = []
        for name in filter(None, named):
            entry = known.get(name, {})
            where = " ".join(str(entry[key]) for key in ("title", "url", "doi", "date") if entry.get(key))
            sources.append(f"{name}: {where}" if where else name)
        return sorted(sources)

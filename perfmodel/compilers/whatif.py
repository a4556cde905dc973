"""The what-if page: one HTML file that works offline, a calculator on the traced equations as JavaScript."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from string import Template
from typing import Any

from perfmodel.compilers.javascript import LANGUAGE, PRELUDE
from perfmodel.compilers.offers import Offer, Pair, ask_each, layouts, offer
from perfmodel.compilers.program import Program, is_result
from perfmodel.errors import UserError
from perfmodel.machines.step import CAUSES
from perfmodel.numerics import NAN
from perfmodel.options import flag
from perfmodel.outputs.page import escape, json_text
from perfmodel.question import Options
from perfmodel.specs import catalog
from perfmodel.specs.paths import provenance_of, quantities, range_at
from perfmodel.specs.ranges import Range
from perfmodel.specs.release import versions
from perfmodel.specs.types import Scenario, Traffic
from perfmodel.specs.units import human
from perfmodel.version import __version__
from perfmodel.writing import check_file, whole

_ASSETS = Path(__file__).parent / "assets"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: Charts of P:D can show these.
_RATIO_METRICS = (
    ("tokens_per_s_per_chip", "In+out tok/s/chip"),
    ("output_tokens_per_s", "Output tok/s"),
    ("tpot_s", "TPOT, s"),
    ("ttft_s", "TTFT, s"),
    ("usd_per_mtok_blended", "USD per million tokens"),
)


#: Inputs that every page has, whatever its programs read.
_ALWAYS = (
    *("traffic.prompt", "traffic.output", "traffic.concurrency"),
    *("deployment.tp", "deployment.pp", "deployment.dp", "deployment.ep", "deployment.attention_dp"),
)


@functools.cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _rule(allowed: Range) -> dict[str, Any]:
    """Return what numbers an input can be."""
    return {
        "whole": allowed.whole,
        "least": allowed.least,
        "most": allowed.most,
        "above": allowed.above,
        "below": allowed.below,
        "said": allowed.words(),
    }


class _Page:
    """Gathers what the page needs to know of an offer."""

    def __init__(self, offer: Offer, options: Options, traffics: Mapping[str, Traffic]) -> None:
        self.offer = offer
        self.options = options
        self.traffics = traffics
        self.ranges: dict[str, Range] = {}
        for pair in offer.pairs:
            asked = pair.scenario
            read = [path for path, _, _ in quantities(asked) if path in offer.read(pair)]
            self.ranges.update({path: range_at(asked, path) for path in read if path not in self.ranges})
        for path in _ALWAYS:
            self.ranges.setdefault(path, range_at(offer.pairs[0].scenario, path))
        self.units = {path: allowed.unit for path, allowed in self.ranges.items()}
        self.paths = list(self.ranges)
        self.place = {path: at for at, path in enumerate(self.paths)}
        self.notes: dict[str, int] = {}

    def _human(self) -> dict[str, tuple[str, float]]:
        """Return the unit in which each input is shown and typed, and its factor."""
        units = {}
        for path, unit in self.units.items():
            known = (pair.inputs.get(path, NAN) for pair in self.offer.pairs)
            units[path] = human(unit, next((value for value in known if value == value and value), NAN))
        return units

    def _part(self, values: Mapping[str, float]) -> dict[str, Any]:
        mine = {path: value for path, value in values.items() if path in self.place}
        return {
            "at": [self.place[path] for path in mine],
            "value": [value if value == value else None for value in mine.values()],
        }

    def _info(self, scenario: Scenario, root: str) -> dict[str, dict[str, Any]]:
        """Return where each input of a root comes from, and the range of an estimate."""
        info = {}
        for path in self.paths:
            if not path.startswith(f"{root}."):
                continue
            origin = provenance_of(scenario, path)
            span = [origin.low, origin.high] if origin.low == origin.low else None
            info[path] = {"said": f"{origin.kind}{': ' if origin.source else ''}{origin.source}", "span": span}
        return info

    def _note(self, words: str) -> int:
        return self.notes.setdefault(words, len(self.notes))

    def data(self) -> dict[str, Any]:
        """Return the page's data."""
        first = self.offer.pairs[0]
        systems: dict[str, Any] = {}
        models: dict[str, Any] = {}
        pairs: dict[str, dict[str, Any]] = {}
        info: dict[str, Any] = {}
        for pair in self.offer.pairs:
            scenario = pair.scenario
            system, model = scenario.system.name, scenario.model.name
            known = {path: value for path, value in pair.inputs.items() if path in self.place}
            if system not in systems:
                of_system = {path: value for path, value in known.items() if path.startswith("system.")}
                systems[system] = {
                    "title": scenario.system.title,
                    "kind": scenario.system.kind,
                    "inputs": self._part(of_system),
                    "info": self._info(scenario, "system"),
                }
            if model not in models:
                of_system = {path: value for path, value in known.items() if path.startswith("model.")}
                models[model] = {
                    "title": scenario.model.hf_id,
                    "inputs": self._part(of_system),
                    "info": self._info(scenario, "model"),
                }
            for root in ("traffic", "deployment", "economics", "speculation"):
                for path, said in self._info(scenario, root).items():
                    info.setdefault(path, said)
            pairs.setdefault(system, {})[model] = self._pair(pair, known)
        return {
            "version": __version__,
            "paths": self.paths,
            "units": self.units,
            "human": self._human(),
            "rules": {path: _rule(allowed) for path, allowed in self.ranges.items()},
            "causes": list(CAUSES),
            "info": info,
            "common": self._part({"traffic.concurrency": first.inputs["traffic.concurrency"]}),
            "systems": systems,
            "models": models,
            "pairs": pairs,
            "traffics": {
                name: {
                    "title": f"{float(traffic.prompt):,.0f} in, {float(traffic.output):,.0f} out",
                    "inputs": self._part(_lengths(traffic)),
                }
                for name, traffic in self.traffics.items()
            },
            "plain": self._part(_lengths(catalog.load_traffic("chat"))),
            "programs": [self._program(program) for program in self.offer.programs],
            "notes": list(self.notes),
            "words": self._words(),
            "start": {
                "system": first.scenario.system.name,
                "model": first.scenario.model.name,
                "traffic": next(iter(self.traffics)),
                "set": {},
            },
        }

    def _pair(self, pair: Pair, known: Mapping[str, float]) -> dict[str, Any]:
        tensor, expert = layouts(pair.scenario)
        plan = pair.scenario.deployment
        own = {path: value for path, value in known.items() if not path.startswith(("system.", "model.", "traffic."))}
        return {
            "program": pair.program,
            "filled": [{"p": self.place[leaf]} if isinstance(leaf, str) else {"v": leaf} for leaf in pair.filled],
            "inputs": self._part(own),
            "tp": tensor,
            "ep": expert,
            "engine": plan.engine,
            "precision": plan.precision,
            "kv": plan.kv_precision,
            "notes": [self._note(words) for words in (*pair.scenario.warnings, *_own_files(pair.scenario))],
        }

    def _program(self, program: Program) -> dict[str, Any]:
        return {
            "results": [step.name for step in program.steps if is_result(step)],
            "reads": [self.place[path] for path in program.paths],
        }

    def _words(self) -> list[str]:
        """Return the words of a command that the page cannot change."""
        given = self.options
        # The page has the long run, not the rounds of a benchmark.
        words = ["--steady"]
        for name in ("draft", "k", "alpha", "ar", "accept", "accept_logged"):
            value = getattr(given, name)
            if value is not None:
                text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
                words += [flag(name), text]
        return words

    def script(self) -> str:
        """Return the programs: each from the inputs ``x`` and its choices ``s`` to its results."""
        return "const PROGRAMS = [\n" + ",\n".join(map(self._function, self.offer.programs)) + "];\n"

    def _function(self, program: Program) -> str:
        texts = program.write(
            LANGUAGE, lambda path: f"x[{self.place[path]}]", lambda slot: f"s[{slot}]", lambda at: f"v{at}"
        )
        lines = [
            f"const v{at}={text};"
            for at, (step, text) in enumerate(zip(program.steps, texts, strict=True))
            if not is_result(step)
        ]
        ends = [text for step, text in zip(program.steps, texts, strict=True) if is_result(step)]
        return "(x, s) => {\n" + "\n".join(lines) + f"\nreturn [{', '.join(ends)}];\n}}"


def _own_files(scenario: Scenario) -> list[str]:
    return [word for word in scenario.assumed if word.endswith(catalog.IN_PLACE)]


def _lengths(traffic: Traffic) -> dict[str, float]:
    """Return the numbers of a traffic but for how many requests there are at once."""
    return {f"traffic.{path}": float(value) for path, _, value in quantities(traffic) if path != "concurrency"}


def engine_script(page: _Page) -> str:
    """Return the part of the page that computes; it needs no document."""
    # Parsed and not written as a literal, where a name such as __proto__ would be no key.
    data = f"JSON.parse({json_text(json_text(page.data()))})"
    return f"{PRELUDE}const DATA = {data};\n{page.script()}{_asset('engine.js')}"


def scripts(held: Offer, options: Options, traffics: Sequence[str]) -> str:
    """Return the part of the page that computes, for an offer."""
    return engine_script(_Page(held, options, {name: catalog.load_traffic(name) for name in traffics}))


def html(offer: Offer, options: Options, traffics: Sequence[str], question: Sequence[str] = ("whatif",)) -> str:
    """Return the page.

    Parameters
    ----------
    offer : Offer
        Its first pair is the one that the page begins with.
    options : Options
        What the offer was asked with.
    traffics : sequence of str
        Names; the first is the one that the page begins with.
    question : sequence of str
        The words of the command that made the page.
    """
    metrics = "".join(f'<option value="{key}">{escape(title)}</option>' for key, title in _RATIO_METRICS)
    causes = "".join(f'<li><i class="{cause}"></i>{cause}</li>' for cause in CAUSES)
    pins = "".join(
        f'<button type="button" id="pin-{name}">Pin as {name}</button>'
        f'<button type="button" id="unpin-{name}" hidden>Remove pin {name}</button>'
        for name in ("A", "B")
    )
    made = escape(f"{versions()}, {date.today():%Y-%m-%d}: {shlex.join(['perfmodel', *question])}")
    return Template(_asset("whatif.html")).substitute(
        policy=_POLICY,
        style=_asset("whatif.css"),
        metrics=metrics,
        causes=causes,
        pins=pins,
        made=made,
        computes=scripts(offer, options, traffics),
        shows=_asset("whatif.js"),
    )


#: What a page offers where nothing is named, and what it begins with: systems with a price, measurements, or a paper.
SYSTEMS = (
    *("dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "gb300-nvl72", "dgx-a100", "mi300x-8", "mi325x-8", "mi355x-8"),
    *("lpu-v1", "sn40l-16", "sn40l-8"),
)
_BEGINS_WITH = "llama-3.1-70b"


def write(
    models: Sequence[str],
    systems: Sequence[str],
    options: Options,
    path: Path,
    question: Sequence[str] = ("whatif",),
    tick: Callable[[int], Any] = lambda _: None,
) -> Offer:
    """Write the page of models on systems, all models and ``SYSTEMS`` where none are named; return what it offers."""
    check_path(path)
    names = {"model": [name for name, _, _ in catalog.entries("model")], "traffic": _readable_traffics()}
    every = [_BEGINS_WITH, *(name for name in names["model"] if name != _BEGINS_WITH)]
    scenarios = ask_each(models or every, systems or SYSTEMS, options, tick=tick)
    if not scenarios:
        raise UserError("whatif: none of the models can be laid out on any of the systems as asked")
    first = options.traffic or "chat"
    offered = offer(scenarios)
    page = html(offered, options, [first, *(name for name in names["traffic"] if name != first)], question)
    with whole(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return offered


def _readable_traffics() -> list[str]:
    """Return the traffics that can be offered: a broken file of the user's own is none."""
    traffics = []
    for name, _, _ in catalog.entries("traffic"):
        with contextlib.suppress(UserError):
            traffics.append(catalog.load_traffic(name).name)
    return traffics


def check_path(path: Path) -> None:
    """Refuse a name or a folder that a page cannot be written to."""
    check_file(path, [".html", ".htm"], "--out")

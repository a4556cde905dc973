"""A plan as a file: the question, the answer, and the inputs that it stood on, so that it is checked again later."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NotRequired

import numpy as np
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.planning.load import Sized
from perfmodel.planning.size import Sizing
from perfmodel.prediction import drafted, plan_of
from perfmodel.question import read_changes
from perfmodel.serving.objectives import statistic
from perfmodel.shown import Shown
from perfmodel.specs.files import check_text, read_yaml
from perfmodel.specs.paths import provenance_of, quantities
from perfmodel.specs.release import numbers_version
from perfmodel.specs.types import Model, Scenario
from perfmodel.specs.units import show
from perfmodel.version import __version__
from perfmodel.writing import whole

#: Raised where a key of the file goes or changes its meaning.
FORMAT = 1
#: Share by which an input or an answer is to differ before it counts as moved.
_MOVED = 1e-6
#: Numbers of an answer that are compared, with their units.
_COMPARED = {"replicas": "1", "chips": "1", "usd_per_hour": "USD", "power_w": "W"}


class Asked(TypedDict):
    """The question as it was asked, as ``perfmodel.size`` takes it."""

    model: str
    on: list[str]
    set: list[str]
    options: dict[str, Any]


class Drafted(TypedDict):
    """Speculative decoding of a plan."""

    draft: str
    k: float


class Planned(TypedDict):
    """One replica, and how many of them; what an engine needs to be started with."""

    model: str
    system: str
    plan: shapes.Plan
    """Of all replicas: ``dp`` are the replicas, each of which is an engine of its own."""
    engine: str
    """With the release whose numbers were taken."""
    replicas: int
    chips: float
    nodes: float
    batch_cap: float
    """Requests that a replica runs at once."""
    token_budget: float
    """Tokens of a step."""
    longest_request: float
    """Tokens in and out of the longest request of the traffic."""
    routing: str
    """Of requests to replicas."""
    prefix_hits: float
    """Share of the prompt tokens found in a cache."""
    speculation: Drafted | None
    rate_per_s: float
    objectives: dict[str, float]
    """Limits by name, as ``ttft_p99_s``."""
    times: dict[str, float]
    """What each objective comes to: simulated, where ``simulated`` says so."""
    simulated: bool
    usd_per_hour: float | None
    power_w: float | None


class Plan(TypedDict):
    """What a plan's file holds."""

    perfmodel_plan: int
    version: str
    numbers_version: NotRequired[str]
    """Release of prices, and a digest of calibrations, power models, engines and prices in use."""
    written: str
    verdict: str
    question: Asked
    answer: Planned
    sources: list[str]
    inputs: dict[str, float]
    """Every input of the answer by its path, in the inside unit."""


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def planned(answer: Sized) -> Planned:
    """Return an answer as a plan's file has it.

    Parameters
    ----------
    answer : Sized
    """
    scenario, load = answer.scenario, answer.load
    system, draft, lengths = scenario.system, drafted(scenario, {}), load.service.lengths
    release = system.engine.release if system.engine is not None else ""
    checked = answer.checked
    values = {key: statistic(load.queue, *key) for key in load.objectives.limits} if checked is None else checked.values
    return {
        "model": scenario.model.name,
        "system": system.name,
        "plan": plan_of(scenario),
        "engine": f"{scenario.deployment.engine}-{release}" if release else scenario.deployment.engine,
        "replicas": load.replicas,
        "chips": float(answer.chips),
        "nodes": float(answer.chips) / float(system.chips_per_node),
        "batch_cap": float(answer.batch_cap),
        "token_budget": float(answer.token_budget),
        "longest_request": float(np.ceil((lengths.prompt + lengths.output).max())),
        "routing": scenario.deployment.routing,
        "prefix_hits": float(scenario.traffic.prefix_hits),
        "speculation": None if draft is None else {"draft": str(draft["draft"]), "k": float(draft["k"] or 0)},
        "rate_per_s": float(load.rate),
        "objectives": load.objectives.named(),
        "times": {f"{time}_{what}_s": float(value) for (time, what), value in values.items()},
        "simulated": checked is not None,
        "usd_per_hour": _number(answer.usd_per_hour),
        "power_w": _number(answer.power_w),
    }


def inputs_of(scenario: Scenario) -> tuple[dict[str, float], list[str]]:
    """Return every number of a scenario by its path, and where they come from.

    Parameters
    ----------
    scenario : Scenario
    """
    inputs: dict[str, float] = {}
    sources: dict[str, None] = {}
    for path, _, value in quantities(scenario):
        if math.isnan(float(value)):
            continue
        inputs[path] = float(value)
        source = provenance_of(scenario, path)
        sources[f"{source.source} ({source.kind})"] = None
    return inputs, list(sources)


def as_asked(model: Any, systems: list[str], changes: Any, options: Mapping[str, Any]) -> Asked:
    """Return a question as a plan's file has it.

    Parameters
    ----------
    model : str, Path or Model
    systems : list of str
    changes : mapping or sequence of str
    options : mapping of str to Any
        As they were given; what is None was not.
    """
    written = {
        name: value if isinstance(value, bool | int | float) else _text(value)
        for name, value in options.items()
        if value is not None and name != "save"
    }
    return {
        "model": model.name if isinstance(model, Model) else str(model),
        "on": list(systems),
        "set": read_changes(changes),
        "options": written,
    }


def _text(value: Any) -> str:
    return (
        ",".join(str(one) for one in value)
        if isinstance(value, Iterable) and not isinstance(value, str)
        else str(value)
    )


def save(sizing: Sizing, asked: Asked, path: Path) -> None:
    """Write the best answer of a search to a file, with its question.

    Parameters
    ----------
    sizing : Sizing
    asked : dict
        The question as it was asked.
    path : Path
    """
    from ruamel.yaml import YAML

    if not sizing.answers:
        raise UserError(f"{path}: not written, for there is no plan: {sizing.reason}")
    best = sizing.answers[0]
    inputs, sources = inputs_of(best.scenario)
    content: Plan = {
        "perfmodel_plan": FORMAT,
        "version": __version__,
        "numbers_version": numbers_version(),
        "written": date.today().isoformat(),
        "verdict": sizing.verdict(),
        "question": asked,
        "answer": planned(best),
        "sources": sources,
        "inputs": inputs,
    }
    writer = YAML(typ="safe", pure=True)
    settings: Any = writer
    settings.default_flow_style, settings.sort_base_mapping_type_on_output, settings.width = False, False, 120
    with whole(path) as partial, partial.open("w", encoding="utf-8") as file:
        writer.dump(content, file)


def read(path: Path) -> Plan:
    """Read a plan's file.

    Parameters
    ----------
    path : Path

    Raises
    ------
    UserError
        One line that names the file, the field and what is wrong.
    """
    raw = read_yaml(path)
    if not isinstance(raw, Mapping) or "perfmodel_plan" not in raw:
        raise UserError(f"{path}: no plan: perfmodel size ... --save {path.name} writes one")
    check_text(raw, path)
    if raw["perfmodel_plan"] != FORMAT:
        raise UserError(f"{path}: perfmodel_plan {raw['perfmodel_plan']}: this version reads {FORMAT}")
    try:
        plan: Plan = TypeAdapter(Plan).validate_python(dict(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {where}: {first['msg'].lower()}") from None
    return plan


@dataclass(frozen=True)
class Moved:
    """A number that is no longer what it was.

    Attributes
    ----------
    name : str
        Path of an input, or name of a number of the answer.
    before, now : float
        NaN where there is none, in the inside unit.
    unit : str
    """

    name: str
    before: float
    now: float
    unit: str

    def words(self) -> str:
        """Return it in words."""
        before, now = ("none" if math.isnan(one) else show(one, self.unit) for one in (self.before, self.now))
        share = (
            f" ({self.now / self.before - 1:+.1%})" if self.before and not math.isnan(self.now / self.before) else ""
        )
        return f"{self.name}: {before} -> {now}{share}"

    def to_dict(self) -> shapes.Moved:
        """Return the documented JSON object."""
        return {"name": self.name, "before": shapes.number(self.before), "now": shapes.number(self.now)}


@dataclass(frozen=True, repr=False)
class PlanChecked(Shown):
    """A saved plan beside what its question is answered with today.

    Attributes
    ----------
    plan : dict
        What the file holds.
    now : Sizing
        The answer of today.
    layout : str
        How the layout changed, else empty.
    answer, inputs : tuple of Moved
        What moved of the answer, and of the inputs of the same system.
    """

    plan: Plan
    now: Sizing
    layout: str
    answer: tuple[Moved, ...]
    inputs: tuple[Moved, ...]

    @property
    def holds(self) -> bool:
        """Whether the same replicas of the same plan are still the answer."""
        moved = {one.name for one in self.answer}
        return bool(self.now.answers) and not self.layout and not moved & {"replicas", "chips"}

    def why(self) -> str:
        """Return why the answer moved, in a sentence."""
        version = self.plan["version"]
        if not (self.layout or self.answer):
            return "nothing moved"
        words = []
        if self.inputs:
            words.append(f"{len(self.inputs)} input{'s' if len(self.inputs) > 1 else ''} moved")
        if version != __version__:
            words.append(f"perfmodel {version} wrote it, {__version__} checks it")
        numbers = self.plan.get("numbers_version", "")
        if numbers and numbers != numbers_version():
            words.append(f"numbers {numbers} were in use, {numbers_version()} are now")
        return " and ".join(words) or "its inputs are as they were: the equations of perfmodel changed"

    def to_dict(self) -> shapes.PlanChecked:
        """Return the documented JSON object."""
        return {
            "holds": self.holds,
            "written": self.plan["written"],
            "version": self.plan["version"],
            "verdict_then": self.plan["verdict"],
            "verdict_now": self.now.verdict(),
            "layout": self.layout or None,
            "why": self.why(),
            "answer": [one.to_dict() for one in self.answer],
            "inputs": [one.to_dict() for one in self.inputs],
        }


def _moved(before: Mapping[str, float], now: Mapping[str, float], units: Mapping[str, str]) -> tuple[Moved, ...]:
    """Return the numbers that differ, those that are gone or new too."""
    moved = []
    for name in dict.fromkeys((*before, *now)):
        old, new = before.get(name, math.nan), now.get(name, math.nan)
        if not (old == new or abs(new - old) <= _MOVED * abs(old)):
            moved.append(Moved(name, old, new, units.get(name, "1")))
    return tuple(moved)


def _words(answer: Planned) -> str:
    plan = answer["plan"]
    parts = [f"TP{plan['tp']:g}", f"PP{plan['pp']:g}", f"EP{plan['ep']:g}", plan["precision"], plan["kv_precision"]]
    draft = answer["speculation"]
    drafted = f", {draft['draft']} k={draft['k']:g}" if draft else ""
    return f"{answer['system']}, {' '.join(parts)}, {answer['engine']}{drafted}"


def checked(plan: Plan, now: Sizing) -> PlanChecked:
    """Put a saved plan beside the answer of today.

    Parameters
    ----------
    plan : dict
        Of a file.
    now : Sizing
        What its question is answered with.
    """
    old = plan["answer"]
    if not now.answers:
        return PlanChecked(plan, now, f"{_words(old)} -> nothing serves it", (), ())
    best = next((one for one in now.answers if one.scenario.system.name == old["system"]), now.answers[0])
    first = planned(now.answers[0])
    layout = f"{_words(old)} -> {_words(first)}" if _words(old) != _words(first) else ""

    def numbers(one: Planned) -> dict[str, float]:
        named: Mapping[str, Any] = one
        found = {name: float(named[name]) for name in _COMPARED if named[name] is not None}
        return found | one["times"]

    units = {**_COMPARED, **dict.fromkeys(old["times"], "s")}
    inputs, _ = inputs_of(best.scenario)
    # What the search lays out is of the answer, not of its inputs.
    kept = {name: value for name, value in plan["inputs"].items() if not _found(name)}
    there = {name: value for name, value in inputs.items() if not _found(name)}
    paths = {path: unit for path, unit, _ in quantities(best.scenario)}
    return PlanChecked(plan, now, layout, _moved(numbers(old), numbers(first), units), _moved(kept, there, paths))


def _found(path: str) -> bool:
    return path.startswith("deployment.") or path == "traffic.concurrency"


def check(path: Path, size: Callable[..., Sizing]) -> PlanChecked:
    """Answer the question of a plan again, and say what moved and why.

    Parameters
    ----------
    path : Path
    size : callable
        Answers a question as it was asked.
    """
    plan = read(path)
    asked = plan["question"]
    return checked(plan, size(asked["model"], on=asked["on"], set=asked["set"], **asked["options"]))

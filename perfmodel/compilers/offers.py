"""The pairs of system and model that a workbook or a page offers, and what each pair may be set to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfmodel.compilers.program import Leaf, Program, Programs
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.question import (
    Options,
    ask,
    check_layout,
    check_options,
    named_precision,
    resolve,
    split_changes,
    split_system,
)
from perfmodel.specs import catalog
from perfmodel.specs.paths import quantities
from perfmodel.specs.types import Scenario

#: Degrees of parallelism that are tried for the lists of what can be laid out.
_DEGREES = [
    float(count) for count in (*range(1, 17), 18, 20, 24, 28, 32, 36, 40, 48, 56, 64, 72, 80, 96, 128, 136, 144)
]


@dataclass(frozen=True)
class Pair:
    """A system with a model: its scenario, the number of its program, and what fills the program's slots."""

    scenario: Scenario
    program: int
    filled: tuple[Leaf, ...]

    @functools.cached_property
    def inputs(self) -> dict[str, float]:
        """The numbers of the scenario by path."""
        return {path: float(value) for path, _, value in quantities(self.scenario)}


@dataclass(frozen=True)
class Offer:
    """Pairs, and the programs that they share."""

    pairs: tuple[Pair, ...]
    programs: tuple[Program, ...]

    def read(self, pair: Pair) -> frozenset[str]:
        """Return the inputs that the program of a pair reads."""
        return _read(self.programs[pair.program].paths, pair.filled)

    @property
    def systems(self) -> list[str]:
        """Names of systems, each once."""
        return list(dict.fromkeys(pair.scenario.system.name for pair in self.pairs))

    @property
    def models(self) -> list[str]:
        """Names of models, each once."""
        return list(dict.fromkeys(pair.scenario.model.name for pair in self.pairs))


@functools.lru_cache(maxsize=4096)
def _read(paths: tuple[str, ...], filled: tuple[Leaf, ...]) -> frozenset[str]:
    return frozenset({*paths, *(leaf for leaf in filled if isinstance(leaf, str))})


def ask_each(
    models: Iterable[str],
    systems: Iterable[str],
    options: Options,
    changes: Sequence[Sequence[str]] = (),
    tick: Callable[[int], Any] = lambda _: None,
) -> list[Scenario]:
    """Ask the same question of every model on every system; pairs that cannot be laid out are left out.

    Parameters
    ----------
    models, systems : iterable of str
        Names; systems with ``:key=value,...`` if wanted.
    options : Options
    changes : sequence of sequence of str, optional
        ``PATH=VALUE`` for each of the systems; one that a pair does not have leaves the pair out.
    tick : callable
        Called after each pair.
    """
    check_options(options)
    scenarios: list[Scenario] = []
    names = list(systems)
    # Once for all pairs of this question: a file of the user's own may change before the next.
    load_system, load_model = functools.cache(catalog.load_system), functools.cache(catalog.load_model)
    for on, own_changes in zip(names, changes or [()] * len(names), strict=True):
        name, own = split_system(on, options)
        system, engine, warnings = load_system(name, own.engine)
        for model in models:
            try:
                scenarios.append(
                    ask(
                        load_model(model),
                        system,
                        engine,
                        own,
                        own_changes,
                        warnings,
                        named_precision(model, load_model(model)),
                    )
                )
            except UserError:
                continue
            finally:
                tick(1)
    return scenarios


def offer(asked: Sequence[Scenario], more: Iterable[Scenario] = (), programs: Programs | None = None) -> Offer:
    """Return an offer of what was asked, and of more scenarios as far as their programs are among those.

    Parameters
    ----------
    asked : sequence of Scenario
        These decide which programs there are; a pair that is there already is not offered again.
    more : iterable of Scenario
    programs : Programs, optional
        Where traces are kept.
    """
    gathered = programs or Programs()
    scenarios: dict[tuple[str, str], Scenario] = {}
    for scenario in asked:
        scenarios.setdefault((scenario.system.name, scenario.model.name), scenario)
    others = list(more)
    texts = {gathered.trace_of(scenario).text for scenario in scenarios.values()} if others else set()
    for scenario in others:
        place = (scenario.system.name, scenario.model.name)
        if place not in scenarios and gathered.trace_of(scenario).text in texts:
            scenarios[place] = scenario
    held, filled = gathered.gather(scenarios.values())
    pairs = (Pair(one, number, fill) for one, (number, fill) in zip(scenarios.values(), filled, strict=True))
    return Offer(tuple(pairs), tuple(held))


def bundled_offer(
    models: Sequence[str],
    systems: Sequence[str],
    options: Options,
    changes: Sequence[str] = (),
    tick: Callable[[int], Any] = lambda _: None,
) -> tuple[Offer, int]:
    """Return an offer of models on systems and of all bundled ones that share their programs, and how many were asked.

    Parameters
    ----------
    models, systems : sequence of str
        What was asked about; every one of its pairs must have an answer to the question how it is laid out.
    options : Options
    changes : sequence of str
        ``PATH=VALUE`` for all, ``SYSTEM:PATH=VALUE`` for one of the systems that were asked about.
    tick : callable
        Called after each pair that is looked at.
    """
    each = split_changes(systems, changes)
    asked = [resolve(model, on, options, mine) for model in models for on, mine in zip(systems, each, strict=True)]
    programs = Programs()
    texts = {programs.trace_of(scenario).text for scenario in asked}

    def shared(found: Iterable[Scenario]) -> list[Scenario]:
        return [scenario for scenario in found if programs.trace_of(scenario).text in texts]

    for_all = [change for change in changes if ":" not in change.partition("=")[0]]
    every_model = [name for name, _, _ in catalog.entries("model")]
    kinds = {scenario.system.kind for scenario in asked}
    every_system = [name for name, _, _ in catalog.entries("system") if _kind(name, options.engine) in kinds]
    named = {scenario.system.name for scenario in asked}
    others = [name for name in every_system if name not in named]
    more = shared(ask_each(every_model, systems, options, each, tick))
    beside = shared(ask_each(models, others, options, [for_all] * len(others), tick))
    wide = list(dict.fromkeys(scenario.model.name for scenario in more))
    far = list(dict.fromkeys(scenario.system.name for scenario in beside))
    rest = shared(ask_each(wide, far, options, [for_all] * len(far), tick))
    return offer(asked, [*more, *beside, *rest], programs), len({(s.system.name, s.model.name) for s in asked})


def _kind(name: str, engine: str | None) -> str:
    """Return the kind of a system, none of a file of the user's own that is broken."""
    try:
        return catalog.load_system(name, engine)[0].kind
    except UserError:
        return ""


def layouts(scenario: Scenario) -> tuple[list[float], list[float]]:
    """Return the tensor-parallel and the expert-parallel degrees that a system can lay a model out for."""

    def runs(changed: Scenario) -> bool:
        try:
            check_layout(changed)
        except UserError:
            return False
        return True

    plan = scenario.deployment
    stages = [plan.pp]
    if machine_of(scenario.system).finds_stages:
        # How many stages embedding and head take depends on TP and is checked apart from it: any that are right do.
        stages += [*(float(planned.pp) for planned in scenario.system.plans if planned.pp.isdigit()), 2.0, 10.0]
    tensor = []
    for tp in sorted({*_DEGREES, float(plan.tp)}):
        laid = (replace(scenario, deployment=replace(plan, tp=tp, pp=pp, ep=1.0)) for pp in stages)
        if any(runs(one) for one in laid):
            tensor.append(tp)
    expert = [
        ep for ep in _DEGREES if runs(replace(scenario, deployment=replace(plan, tp=1.0, ep=ep, attention_dp=ep)))
    ]
    return tensor, expert or [1.0]

"""From names and options to a scenario: what is not given is assumed, and said."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace

from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.options import flag
from perfmodel.question.drafts import check_draft, speculation_of
from perfmodel.question.options import Options, check_options, split_system
from perfmodel.question.plans import check_plan, deployment_of, kv_rule, squeezed
from perfmodel.question.reading import FIELDS
from perfmodel.question.traffic import traffic_of
from perfmodel.specs import catalog, kinds
from perfmodel.specs.naming import read_engine, written_precision
from perfmodel.specs.paths import assign, full_path, unit_at
from perfmodel.specs.prices import filled
from perfmodel.specs.types import (
    Deployment,
    Efficiency,
    Model,
    Scenario,
    System,
    Traffic,
)
from perfmodel.specs.units import YEAR, change, show

_LISTENING: list[list[Scenario]] = []
_NOTED: ContextVar[tuple[str, ...]] = ContextVar("noted", default=())


@contextlib.contextmanager
def asked() -> Iterator[list[Scenario]]:
    """Gather the scenarios that are asked meanwhile, for what concerns all answers of a command.

    Returns
    -------
    context manager
        Of the list that they are put into.
    """
    scenarios: list[Scenario] = []
    _LISTENING.append(scenarios)
    try:
        yield scenarios
    finally:
        _LISTENING.remove(scenarios)


@contextlib.contextmanager
def noting(notes: Sequence[str]) -> Iterator[None]:
    """Say under *assumed* of every scenario that is asked meanwhile where a part of the question came from.

    Parameters
    ----------
    notes : sequence of str

    Returns
    -------
    context manager
    """
    token = _NOTED.set(tuple(notes))
    try:
        yield
    finally:
        _NOTED.reset(token)


def named_precision(model: str | Model, architecture: Model) -> str:
    """Return the precision that an alias such as ``Qwen/Qwen3-32B-FP8`` asks for; a file speaks for itself.

    Parameters
    ----------
    model : str or Model
        As it was asked for.
    architecture : Model
        What that names.

    Returns
    -------
    str
        Empty where the name asks for none.
    """
    if not isinstance(model, str) or model.casefold() == architecture.name.casefold() or os.path.exists(model):
        return ""
    return written_precision(model)


def resolve(
    model: str | Model,
    on: str,
    options: Options,
    changes: Sequence[str] = (),
    efficiency: Efficiency | None = None,
) -> Scenario:
    """Return the scenario that a question asks about.

    Parameters
    ----------
    model : str or Model
        Name, alias, Hugging Face id or path.
    on : str
        ``SYSTEM[:KEY=VALUE,...]`` with plan, tp, pp, ep, dp, attention_dp, engine, precision or kv; an engine may
        name a release.
    options : Options
        Common options; what ``on`` says wins.
    changes : sequence of str
        ``PATH=VALUE`` each.
    efficiency : Efficiency, optional
        In place of the engine's calibrated one.

    Returns
    -------
    Scenario

    Raises
    ------
    UserError
        Where a name, a number or a layout cannot be used.
    """
    system_name, options = split_system(on, options)
    check_options(options)
    architecture = catalog.load_model(model) if isinstance(model, str) else model
    if efficiency is None:
        system, engine, warnings = catalog.load_system(system_name, options.engine)
    else:
        system, warnings = replace(catalog.load_bare_system(system_name), efficiency=efficiency), []
        engine = options.engine or system.default_engine
        system = catalog.with_power(catalog.with_engine(system, engine))
    return ask(architecture, system, engine, options, changes, warnings, named_precision(model, architecture))


def ask(
    architecture: Model,
    system: System,
    engine: str,
    options: Options,
    changes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    named: str = "",
) -> Scenario:
    """Return the scenario of a loaded architecture on a loaded system; see :func:`resolve`.

    Parameters
    ----------
    architecture : Model
    system : System
        With the efficiencies of the engine.
    engine : str
    options : Options
    changes : sequence of str
        ``PATH=VALUE`` each.
    warnings : sequence of str
        What loading had to say.
    named : str
        The precision that the name by which the architecture was asked for ends in.

    Returns
    -------
    Scenario
    """
    warnings = [*warnings, *catalog.model_notes(architecture)]
    assumed = _engine_assumed(system, engine, options)
    traffic, architecture, said = traffic_of(architecture, options)
    base, of_plan = _deployment_asked(architecture, system, engine, options, named)
    speculation, of_draft, notes = speculation_of(options, architecture, system, base.precision)
    assumed, warnings = [*_NOTED.get(), *assumed, *said, *of_plan, *of_draft], [*warnings, *notes]
    asked = Scenario(system, architecture, base, traffic, speculation, catalog.load_economics(options.region or ""))
    asked = _priced(asked, options, changes)
    scenario, why = _changed(asked, options, changes)
    if why:
        assumed.insert(0, why)
    assumed += check_layout(scenario)
    warnings += squeezed(scenario)
    assumed.append(_money(scenario))
    assumed += catalog.in_place(system, architecture, traffic, speculation, scenario.economics)
    scenario = replace(scenario, assumed=tuple(assumed), warnings=tuple(warnings))
    for gathered in _LISTENING:
        gathered.append(scenario)
    return scenario


def _priced(asked: Scenario, options: Options, changes: Sequence[str]) -> Scenario:
    """Return a scenario with the prices of the release, basis and market that are asked for."""
    for text in changes:
        if text.partition("=")[0].strip().removeprefix("economics.") in ("basis", "market"):
            asked = assign(asked, text)
    economics = asked.economics
    assert economics is not None
    release = catalog.load_prices(options.prices or "")
    return replace(asked, system=filled(asked.system, release, economics.basis, economics.market))


def _engine_assumed(system: System, engine: str, options: Options) -> list[str]:
    """Refuse an engine that the system does not run; return what is assumed of the one that it does."""
    named = read_engine(engine)
    engines = machine_of(system).engines
    if named.name not in engines and named.name not in (engines := kinds.engines(machine_of(system))):
        fitting = " or ".join(filter(None, (", ".join(engines[:-1]), engines[-1])))
        raise UserError(f"--engine {engine}: {system.name} runs {fitting}")
    default = f"engine {engine}, the default of {system.name}" if options.engine is None else ""
    return [*filter(None, (default, catalog.release_note(system, named)))]


def _deployment_asked(
    architecture: Model, system: System, engine: str, options: Options, named: str
) -> tuple[Deployment, list[str]]:
    """Return the deployment as options give it, degrees of 1 where they do not, and what is assumed of it."""
    assumed = []
    precision = options.precision or named or architecture.precision
    if options.precision is None:
        assumed.append(f"precision {precision}, " + ("as the name says" if named else "the checkpoint's"))
    by_rule, reason = kv_rule(system, engine, architecture)
    kv_precision = options.kv_precision or by_rule
    if options.kv_precision is None and architecture.task != "pool":
        assumed.append(f"KV precision {kv_precision}, {reason}")
    if options.dp is None:
        assumed.append("DP 1")
    deployment = Deployment(
        plan="given",
        engine=engine,
        precision=precision,
        kv_precision=kv_precision,
        tp=float(options.tp or 1),
        pp=float(options.pp or 1),
        ep=float(options.ep or 1),
        dp=float(options.dp or 1),
        attention_dp=float(options.attention_dp or 1),
    )
    return deployment, assumed


def _changed(asked: Scenario, options: Options, changes: Sequence[str]) -> tuple[Scenario, str]:
    """Return the scenario with its plan and its changes, those of the plan last, and why it is that plan."""
    paths = [full_path(asked, text.partition("=")[0].strip()) for text in changes]
    scenario = asked
    for text, path in zip(changes, paths, strict=True):
        if not path.startswith("deployment."):
            scenario = assign(scenario, text)
    deployment, why = deployment_of(scenario, options)
    scenario = replace(scenario, deployment=deployment)
    for text, path in zip(changes, paths, strict=True):
        if path.startswith("deployment."):
            scenario = assign(scenario, text)
    _refuse_swallowed(scenario, options, changes, paths)
    before, after = asked.speculation, scenario.speculation
    if after is not None and after.ar is not None and before is not None and after.k != before.k:
        raise UserError("--set speculation.k: an AR belongs to one k; give --k with the --ar that goes with it")
    return scenario, why


#: Inputs that an option gives.
_GIVEN = {
    **{
        f"{kind.__name__.lower()}.{field}": name
        for name, (kind, field) in FIELDS.items()
        if kind in (Deployment, Traffic)
    },
    "deployment.engine": "engine",
    "model.vision.images": "images",
}


def _refuse_swallowed(scenario: Scenario, options: Options, changes: Sequence[str], paths: Sequence[str]) -> None:
    """Refuse a change that takes the place of an option, or of another change, of the same input."""
    by = {path: flag(name) for path, name in _GIVEN.items() if getattr(options, name) is not None}
    for text, path in zip(changes, paths, strict=True):
        if path in by and not _is_relative(scenario, path, text.partition("=")[2]):
            raise UserError(f"--set {text}: {by[path]} is given too; leave one of them out")
        by.setdefault(path, f"--set {path}=")


def _is_relative(scenario: Scenario, path: str, written: str) -> bool:
    """Whether a new value builds on the old one, so that both count."""
    try:
        unit = unit_at(scenario, path)
        return change(written.strip(), unit, 1.0) != change(written.strip(), unit, 2.0)
    except UserError:
        return False


def _money(scenario: Scenario) -> str:
    """Return what the cost of a token assumes, in one line."""
    economics = scenario.economics
    assert economics is not None
    busy = f"money: {economics.ownership}, busy {float(economics.utilisation):.0%} of the day"
    if economics.ownership == "rented":
        return busy
    years, rate = show(float(economics.life) / YEAR, "1", 3), f"{float(economics.cost_of_capital):.0%}"
    price, pue = show(float(economics.electricity), "USD/J", 3), f"{float(economics.pue):g}"
    return f"{busy}, {years} years at {rate}, {price}, PUE {pue}"


def check_layout(scenario: Scenario) -> list[str]:
    """Refuse a layout that target or draft cannot run; return what is assumed of the draft's.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    list of str
    """
    check_plan(scenario.model, scenario.system, scenario.deployment)
    return check_draft(scenario)

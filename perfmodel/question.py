"""From names and options to a scenario: what is not given is assumed, and said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from perfmodel.errors import UserError
from perfmodel.machines import sram_pipeline
from perfmodel.prediction import evaluate
from perfmodel.serving.fit import fit
from perfmodel.specs import catalog
from perfmodel.specs.paths import assign
from perfmodel.specs.types import ENGINES, PRECISIONS, Deployment, Efficiency, Model, Plan, Scenario, System
from perfmodel.specs.units import parse


@dataclass(frozen=True)
class Options:
    """What a question may fix besides model and system; ``None`` is assumed."""

    plan: str | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dp: float | None = None
    engine: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    traffic: str | None = None
    prompt: float | None = None
    output: float | None = None
    concurrency: float | None = None


_SYSTEM_KEYS = {
    "plan": "plan",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "dp": "dp",
    "engine": "engine",
    "precision": "precision",
    "kv": "kv_precision",
}
#: Options that are whole numbers.
WHOLE = ("tp", "pp", "ep", "dp", "prompt", "output", "concurrency")


def split_system(on: str, options: Options) -> tuple[str, Options]:
    """Read ``SYSTEM[:key=value,...]``; what stands there wins over the common options."""
    name, colon, rest = on.partition(":")
    if not name:
        raise UserError(f"--on '{on}': name a system")
    if not colon:
        return name, options
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key.strip() not in _SYSTEM_KEYS or not equals or not value.strip():
            raise UserError(f"--on '{on}': '{part}' is none of {', '.join(f'{key}=' for key in _SYSTEM_KEYS)}")
        option = _SYSTEM_KEYS[key.strip()]
        given[option] = number(f"--on {key.strip()}", value) if option in WHOLE else value.strip()
    return name, replace(options, **given)


def number(name: str, text: str) -> float:
    """Read a number of an option."""
    try:
        return parse(text, "1")
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def check_options(options: Options) -> None:
    """Refuse counts below 1 or with a fraction, and unknown words."""
    for entry in fields(options):
        value = getattr(options, entry.name)
        if value is None or entry.name not in WHOLE:
            continue
        if not value >= 1 or (value != int(value) and entry.name != "concurrency"):
            raise UserError(f"--{entry.name} {value:g}: must be a whole number of at least 1")
    for name, known in (("engine", ENGINES), ("precision", PRECISIONS), ("kv_precision", PRECISIONS)):
        value = getattr(options, name)
        if value is not None and value not in known:
            raise UserError(f"--{name.replace('_', '-')} {value}: expected one of {', '.join(known)}")
    if options.traffic and (options.prompt or options.output):
        raise UserError("give either --traffic or --prompt and --output")
    if (options.prompt is None) != (options.output is None):
        raise UserError("--prompt and --output go together")


def kv_rule(system: System, engine: str, precision: str) -> str:
    """Return the cache precision that an engine takes when none is given."""
    if engine == "trtllm" and precision in ("fp8", "fp4", "mxfp4"):
        return "fp8"
    return "fp16" if system.computes_as.get("bf16") == "fp16" else "bf16"


def check_plan(model: Model, system: System, plan: Deployment) -> None:
    """Refuse a layout that cannot run, before anything is computed."""
    node = float(system.chips_per_node)
    tp, pp = float(plan.tp), float(plan.pp)
    if system.kind == "kernels":
        for run in model.layers:
            if run.attention is None and run.mla is None:
                continue
            part = run.attention or run.mla
            heads = float(part.heads) if part else 1.0
            # Latents have no heads to split: every rank holds them.
            kv_heads = float(run.attention.kv_heads) if run.attention else 1.0
            if heads % tp or (kv_heads % tp and tp % kv_heads):
                raise UserError(
                    f"--tp {tp:g} does not divide the {heads:g} heads ({kv_heads:g} KV heads) of {model.name}; "
                    f"use one of {_words(t for t in _divisors(heads) if not (kv_heads % t and t % kv_heads))}"
                )
        if node % tp and tp % node:
            raise UserError(
                f"--tp {tp:g} neither divides nor is a multiple of the {node:g} chips of a {system.name} node"
            )
    else:
        allowed = sorted({float(known.tp) for known in system.plans})
        if tp not in allowed:
            raise UserError(f"--tp {tp:g}: {system.name} is laid out for TP {_words(allowed)}")
    layers = sum(float(run.count) for run in model.layers)
    ends = 0.0
    if system.kind == "sram_pipeline":
        probe = Scenario(system, model, plan, _ANY_TRAFFIC)
        ends = float(sram_pipeline.end_stages(probe))
        if pp <= ends:
            raise UserError(f"--pp {pp:g}: embedding and head of {model.name} take {ends:g} stages, so use more")
    if pp > layers + ends:
        raise UserError(f"--pp {pp:g} is more than the {layers + ends:g} stages that {model.name} can be cut into")
    _check_experts(model, system, plan)
    if plan.precision not in system.computes_as or system.computes_as[plan.precision] not in system.rates:
        usable = [name for name in PRECISIONS if system.computes_as.get(name) in system.rates]
        raise UserError(f"--precision {plan.precision}: {system.name} computes {', '.join(usable)}")


def _check_experts(model: Model, system: System, plan: Deployment) -> None:
    """Refuse an expert-parallel degree that no engine can lay out."""
    ep, ranks = float(plan.ep), float(plan.tp) * float(plan.dp)
    if ep == 1:
        return
    experts = [float(run.moe.experts) for run in model.layers if run.moe is not None]
    if not experts:
        raise UserError(f"--ep {ep:g}: {model.name} is dense and has no experts to spread; leave --ep out")
    if system.kind != "kernels":
        raise UserError(f"--ep {ep:g}: {system.name} shards experts by tile; leave --ep out")
    if ranks % ep:
        raise UserError(f"--ep {ep:g} must divide TP x DP = {ranks:g}")
    if any(count % ep for count in experts):
        raise UserError(f"--ep {ep:g} does not divide the {experts[0]:g} experts of {model.name}")


def _divisors(whole: float) -> list[float]:
    return [float(tp) for tp in range(1, int(whole) + 1) if whole % tp == 0]


def _words(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _laid_out(scenario: Scenario, plan: Plan) -> Deployment:
    """Return the deployment of a plan; ``fewest`` and ``layers`` stages become numbers here."""
    layers = sum(float(run.count) for run in scenario.model.layers)
    base = replace(scenario.deployment, plan=plan.name, tp=float(plan.tp))
    if plan.pp not in ("fewest", "layers"):
        return replace(base, pp=float(plan.pp))
    ends = float(sram_pipeline.end_stages(replace(scenario, deployment=base)))
    most = replace(base, pp=layers + ends)
    if plan.pp == "layers":
        return most
    wanted = float(scenario.traffic.concurrency) / float(base.dp)
    for held in range(int(layers), 0, -1):
        stages = -(-layers // held)
        candidate = replace(base, pp=stages + ends)
        if -(-layers // stages) == held and float(fit(replace(scenario, deployment=candidate)).cap) >= wanted:
            return candidate
    return most


def _choose_plan(scenario: Scenario) -> tuple[Deployment, str]:
    """Return the deployment that is assumed where no plan is given, and why."""
    system = scenario.system
    default = next((plan for plan in system.plans if plan.name == system.default_plan), system.plans[0])
    candidates = []
    for plan in system.plans:
        laid = _laid_out(scenario, plan)
        try:
            check_plan(scenario.model, system, laid)
        except UserError:
            continue
        answer = evaluate(replace(scenario, deployment=laid))
        if answer.fits:
            if plan is default:
                return laid, f"plan {plan.name}, the default of {system.name}"
            candidates.append((float(answer.chips), float(answer.metrics["tpot_s"]), laid))
    if not candidates:
        return _laid_out(scenario, default), f"plan {default.name}, the default of {system.name}"
    chosen = min(candidates, key=lambda candidate: candidate[:2])[2]
    return chosen, f"plan {chosen.plan}, the fewest chips that fit ({default.name} does not)"


_ANY_TRAFFIC: Any = None


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
        ``SYSTEM[:plan=...,tp=...,pp=...,ep=...,dp=...,engine=...,precision=...,kv=...]``.
    options : Options
        Common options; what ``on`` says wins.
    changes : sequence of str
        ``PATH=VALUE`` each.
    efficiency : Efficiency, optional
        In place of the engine's calibrated one.

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
        system = catalog.with_engine(system, engine)
    if (engine == "native" and system.kind == "kernels") or (engine != "native" and system.kind != "kernels"):
        fitting = "native" if system.kind != "kernels" else "vllm, trtllm or sglang"
        raise UserError(f"--engine {engine}: {system.name} runs {fitting}")
    warnings = [*warnings, *catalog.model_notes(architecture)]
    assumed = []
    if options.engine is None:
        assumed.append(f"engine {engine}, the default of {system.name}")
    if options.prompt is not None and options.output is not None:
        traffic = replace(
            catalog.load_traffic("chat"), name="given", prompt=float(options.prompt), output=float(options.output)
        )
        traffic = replace(traffic, provenance={})
    else:
        traffic = catalog.load_traffic(options.traffic or "chat")
        if options.traffic is None:
            assumed.append(f"traffic chat: {traffic.prompt:g} tokens in, {traffic.output:g} out")
    if options.concurrency is None:
        assumed.append("concurrency 1")
    traffic = replace(traffic, concurrency=float(options.concurrency or 1))
    precision = options.precision or architecture.precision
    if options.precision is None:
        assumed.append(f"precision {precision}, the checkpoint's")
    kv_precision = options.kv_precision or kv_rule(system, engine, precision)
    if options.kv_precision is None:
        assumed.append(f"KV precision {kv_precision}, by the rule of {engine}")
    if options.dp is None:
        assumed.append("DP 1")
    base = Deployment(
        plan="given",
        engine=engine,
        precision=precision,
        kv_precision=kv_precision,
        tp=float(options.tp or 1),
        pp=float(options.pp or 1),
        ep=float(options.ep or 1),
        dp=float(options.dp or 1),
    )
    scenario = Scenario(system, architecture, base, traffic)
    for change in changes:
        if not change.lstrip().startswith("deployment."):
            scenario = assign(scenario, change)
    deployment, why = _deployment(scenario, options)
    if why:
        assumed.insert(0, why)
    scenario = replace(scenario, deployment=deployment)
    for change in changes:
        if change.lstrip().startswith("deployment."):
            scenario = assign(scenario, change)
    check_plan(scenario.model, scenario.system, scenario.deployment)
    return replace(scenario, assumed=tuple(assumed), warnings=tuple(warnings))


def _deployment(scenario: Scenario, options: Options) -> tuple[Deployment, str]:
    """Return the layout asked for, or an assumed one and why."""
    system = scenario.system
    if options.plan is not None:
        if options.tp is not None or options.pp is not None:
            raise UserError("give either a plan or --tp and --pp")
        for plan in system.plans:
            if plan.name == options.plan:
                return _laid_out(scenario, plan), ""
        names = ", ".join(plan.name for plan in system.plans)
        raise UserError(f"unknown plan '{options.plan}' of {system.name}: expected one of {names}")
    if options.tp is None and options.pp is None:
        return _choose_plan(scenario)
    default = next((plan for plan in system.plans if plan.name == system.default_plan), system.plans[0])
    tp = float(options.tp if options.tp is not None else default.tp)
    if options.pp is not None:
        return replace(scenario.deployment, plan="given", tp=tp, pp=float(options.pp)), ""
    if system.kind != "sram_pipeline":
        return replace(scenario.deployment, plan="given", tp=tp, pp=1.0), "PP 1"
    allowed = {float(plan.tp) for plan in system.plans}
    if tp not in allowed:
        check_plan(scenario.model, system, replace(scenario.deployment, tp=tp))
    laid = _laid_out(scenario, Plan("given", tp, "fewest"))
    return laid, f"PP {laid.pp:g}, the fewest stages that fit"


def split_changes(systems: Sequence[str], changes: Sequence[str]) -> list[list[str]]:
    """Deal changes to systems: ``PATH=V`` to all, ``SYSTEM:PATH=V`` to those of a name, ``#2:PATH=V`` to the second."""
    each: list[list[str]] = [[] for _ in systems]
    names = [split_system(system, Options())[0] for system in systems]
    for change in changes:
        head, colon, rest = change.partition(":")
        if not colon or "=" in head:
            for mine in each:
                mine.append(change)
            continue
        if head.startswith("#"):
            if not head[1:].isdigit() or not 1 <= int(head[1:]) <= len(systems):
                raise UserError(f"--set {change}: there is no system {head}; #1 to #{len(systems)} are given")
            each[int(head[1:]) - 1].append(rest)
            continue
        named = [index for index, name in enumerate(names) if name.casefold() == head.casefold()]
        if not named:
            raise UserError(f"--set {change}: '{head}' is none of the systems {', '.join(names)}")
        for index in named:
            each[index].append(rest)
    return each

"""Layouts of a question: degrees that can be, and the one that is taken where none is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfmodel.errors import UserError
from perfmodel.machines.base import Machine, machine_of
from perfmodel.prediction import evaluate
from perfmodel.question.options import Options
from perfmodel.serving.fit import activations_of_a_layer, fit
from perfmodel.serving.steady import chips
from perfmodel.specs.types import (
    PRECISIONS,
    Deployment,
    Model,
    Plan,
    Scenario,
    System,
)
from perfmodel.trace import is_given

ANY_TRAFFIC: Any = None
GIB = 2.0**30


def most_ranks(machine: Machine, model: Model) -> float:
    """Return the largest power of two of tensor ranks into which a machine can split a model.

    Parameters
    ----------
    machine : Machine
    model : Model

    Returns
    -------
    float
    """
    most = 1.0
    while most < 1024 and machine.splits(model, 2 * most):
        most *= 2
    return most


def kv_rule(system: System, engine: str, model: Model) -> tuple[str, str]:
    """Return the cache precision that an engine takes when none is given, and why.

    "auto" of every engine follows what the checkpoint declares, and else keeps the cache in 16 bits, whatever the
    precision of the weights.

    Parameters
    ----------
    system : System
    engine : str
    model : Model

    Returns
    -------
    tuple of str and str
        Name of a precision, and the reason in words.
    """
    if model.kv_cache:
        return model.kv_cache, "as the checkpoint declares"
    plain = "fp16" if system.computes_as.get("bf16") == "fp16" else "bf16"
    return plain, f"by the rule of {engine}: the checkpoint declares none"


def check_plan(model: Model, system: System, plan: Deployment) -> None:
    """Refuse a layout that cannot run, before anything is computed.

    Parameters
    ----------
    model : Model
    system : System
    plan : Deployment
    """
    machine, pp = machine_of(system), float(plan.pp)
    machine.check_plan(model, system, plan)
    layers = sum(float(run.count) for run in model.layers)
    ends = float(machine.end_stages(Scenario(system, model, plan, ANY_TRAFFIC)))
    if ends and pp <= ends:
        raise UserError(f"--pp {pp:g}: embedding and head of {model.name} take {ends:g} stages, so use more")
    if pp > layers + ends:
        raise UserError(f"--pp {pp:g} is more than the {layers + ends:g} stages that {model.name} can be cut into")
    _check_experts(model, system, plan)
    stored = model.stored.values() if plan.precision == model.precision and system.quantised != "all" else ()
    for name in (plan.precision, *stored):
        if system.computes_as.get(name) not in system.rates:
            usable = [one for one in PRECISIONS if system.computes_as.get(one) in system.rates]
            raise UserError(f"--precision {name}: {system.name} computes {', '.join(usable)}")


def _check_experts(model: Model, system: System, plan: Deployment) -> None:
    """Refuse an expert-parallel degree that no engine can lay out."""
    ep, ranks = float(plan.ep), float(plan.tp) * float(plan.attention_dp)
    if float(plan.attention_dp) > 1 and ep <= float(plan.tp):
        raise UserError(
            f"--attention-dp {plan.attention_dp:g}: its ranks share experts, so --ep is more than --tp; "
            "--dp is for replicas that share nothing"
        )
    if ep == 1:
        return
    experts = [float(run.moe.experts) for run in model.layers if run.moe is not None]
    if not experts:
        raise UserError(f"--ep {ep:g}: {model.name} is dense and has no experts to spread; leave --ep out")
    if not machine_of(system).spreads_experts:
        raise UserError(f"--ep {ep:g}: {system.name} shards experts by tile; leave --ep out")
    if ranks % ep:
        raise UserError(
            f"--ep {ep:g} must divide TP x attention-DP = {ranks:g}: --attention-dp counts the groups of ranks that "
            "hold attention whole and share experts"
        )
    if any(count % ep for count in experts):
        raise UserError(f"--ep {ep:g} does not divide the {experts[0]:g} experts of {model.name}")


def _laid_out(scenario: Scenario, plan: Plan) -> Deployment:
    """Return the deployment of a plan; ``fewest`` and ``layers`` stages become numbers here."""
    layers = sum(float(run.count) for run in scenario.model.layers)
    base = replace(scenario.deployment, plan=plan.name, tp=float(plan.tp))
    if plan.pp not in ("fewest", "layers"):
        return replace(base, pp=float(plan.pp))
    ends = float(machine_of(scenario.system).end_stages(replace(scenario, deployment=base)))
    most = replace(base, pp=layers + ends)
    if plan.pp == "layers":
        return most
    wanted = float(scenario.traffic.concurrency) / float(base.groups)
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
    fitting: dict[str, Scenario] = {}
    for plan in system.plans:
        laid = replace(scenario, deployment=_laid_out(scenario, plan))
        try:
            check_plan(scenario.model, system, laid.deployment)
        except UserError:
            continue
        if fit(laid).cap >= 1:
            fitting[plan.name] = laid
    if default.name in fitting or not fitting:
        usual = _laid_out(scenario, default)
        if default.name not in fitting or not machine_of(system).finds_stages:
            return usual, f"plan {default.name}, the default of {system.name}"
        # Another layout of no more chips may be faster.
        room, wanted = float(chips(fitting[default.name])), float(fit(fitting[default.name]).cap)
        held = min(wanted, float(scenario.traffic.concurrency) / float(usual.groups))
        rivals = [one for one in fitting.values() if float(chips(one)) <= room and float(fit(one).cap) >= held]
        fastest = min(rivals, key=lambda one: float(evaluate(one, ("request_latency_s",)).metrics["request_latency_s"]))
        if fastest.deployment.plan == default.name:
            return usual, f"plan {default.name}, the default of {system.name}"
        return (
            fastest.deployment,
            f"plan {fastest.deployment.plan}, the fastest on the chips of {default.name}",
        )

    def cost(laid: Scenario) -> tuple[float, float]:
        answer = evaluate(laid, ("tpot_s",))
        return float(answer.chips), float(answer.metrics["tpot_s"])

    chosen = min(fitting.values(), key=cost).deployment
    return chosen, f"plan {chosen.plan}, the fewest chips that fit ({default.name} does not)"


def squeezed(scenario: Scenario) -> list[str]:
    """Return what to mind where a share of the memory leaves less for activations than the engine would set aside.

    Parameters
    ----------
    scenario : Scenario

    Returns
    -------
    list of str
    """
    engine = scenario.system.engine
    if engine is None or not is_given(engine.memory_utilisation) or is_given(engine.kv_pool):
        return []
    held = fit(scenario)
    share, left, kept = (float(part) for part in (engine.memory_utilisation, held.spare, held.activation_peak))
    if not left < kept * (1 - 1e-9) or float(held.room) <= 0:
        return []
    least = float(activations_of_a_layer(scenario, engine))
    if left < least:
        raise UserError(
            f"--set system.engine.memory_utilisation={share:g}: does not fit, {(least - left) / GIB:.2f} GiB a chip "
            "are missing for the activations of one layer; give a smaller share"
        )
    return [
        f"a share of {share:g} leaves {left / GIB:.2f} GiB a chip for activations, where {engine.name} by its own "
        f"rule sets {kept / GIB:.2f} GiB aside: long prompts may run out of memory"
    ]


def deployment_of(scenario: Scenario, options: Options) -> tuple[Deployment, str]:
    """Return the layout asked for, or an assumed one and why.

    Parameters
    ----------
    scenario : Scenario
    options : Options

    Returns
    -------
    tuple
    """
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
    if not machine_of(system).finds_stages:
        return replace(scenario.deployment, plan="given", tp=tp, pp=1.0), "PP 1"
    allowed = {float(plan.tp) for plan in system.plans}
    if tp not in allowed:
        check_plan(scenario.model, system, replace(scenario.deployment, tp=tp))
    laid = _laid_out(scenario, Plan("given", tp, "fewest"))
    return laid, f"PP {laid.pp:g}, the fewest stages that fit"

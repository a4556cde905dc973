"""From names and options to a scenario: what is not given is assumed, and said."""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
import os
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.machines.base import Machine, machine_of
from perfmodel.machines.speculation import draft_scenario
from perfmodel.options import Arrivals, Question, Said, flag, options_of, unknown
from perfmodel.prediction import evaluate
from perfmodel.serving.fit import activations_of_a_layer, fit
from perfmodel.serving.steady import chips
from perfmodel.specs import catalog, kinds
from perfmodel.specs.files import hints
from perfmodel.specs.naming import read_engine, written_precision
from perfmodel.specs.paths import assign, full_path, unit_at
from perfmodel.specs.ranges import Range, choices_of, range_of, read_number, read_word
from perfmodel.specs.types import (
    PRECISIONS,
    Deployment,
    Efficiency,
    Model,
    Plan,
    Provenance,
    Scenario,
    Speculation,
    System,
    Traffic,
    Vision,
)
from perfmodel.specs.units import INSIDE, YEAR, change, show
from perfmodel.trace import is_given


@dataclass(frozen=True)
class Options:
    """What a question may fix besides model and system; ``None`` is assumed."""

    plan: str | None = None
    tp: float | None = None
    pp: float | None = None
    ep: float | None = None
    dp: float | None = None
    attention_dp: float | None = None
    engine: str | None = None
    precision: str | None = None
    kv_precision: str | None = None
    traffic: str | None = None
    prompt: float | None = None
    output: float | None = None
    concurrency: float | None = None
    images: float | None = None
    draft: str | None = None
    k: float | None = None
    alpha: float | None = None
    ar: float | None = None
    accept: str | Sequence[float] | None = None
    accept_logged: str | Sequence[float] | None = None


_SYSTEM_KEYS = {
    "plan": "plan",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "dp": "dp",
    "attention_dp": "attention_dp",
    "engine": "engine",
    "precision": "precision",
    "kv": "kv_precision",
}
#: The fields that options fill: their types say what an option can be.
FIELDS: dict[str, tuple[type[Any], str]] = {
    **{name: (Deployment, name) for name in ("tp", "pp", "ep", "dp", "attention_dp", "precision", "kv_precision")},
    **{name: (Traffic, name) for name in ("prompt", "output", "concurrency")},
    "images": (Vision, "images"),
    **{name: (Speculation, name) for name in ("k", "alpha", "ar")},
}


def split_system(on: str, options: Options) -> tuple[str, Options]:
    """Read ``SYSTEM[:key=value,...]``; what stands there wins over the common options.

    Parameters
    ----------
    on : str
        System and plan.
    options : Options

    Returns
    -------
    tuple of str and Options
        Name of the system, and the options with what stood there.
    """
    name, colon, rest = on.partition(":")
    if not name:
        raise UserError(f"--on '{on}': name a system")
    if not colon:
        return name, options
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = (text.strip() for text in part.partition("="))
        if key not in _SYSTEM_KEYS or not equals or not value:
            raise UserError(f"--on '{on}': '{part}' is none of {', '.join(f'{key}=' for key in _SYSTEM_KEYS)}")
        name_of = _SYSTEM_KEYS[key]
        if name_of in given:
            raise UserError(f"--on '{on}': {key}= is given twice")
        given[name_of] = read_option(name_of, value, options_of(Question)[name_of], f"--on {key}")
    return name, replace(options, **given)


def check_given_once(systems: Sequence[str], options: Options) -> None:
    """Refuse an option that every system overrides, so that it enters nowhere.

    Parameters
    ----------
    systems : sequence of str
        Each with its plan.
    options : Options
    """
    own = [split_system(on, Options())[1] for on in systems]
    for key, name in _SYSTEM_KEYS.items():
        if getattr(options, name) is not None and own and all(getattr(mine, name) is not None for mine in own):
            raise UserError(f"{flag(name)} is given twice: {key}= of --on takes its place; leave one of them out")


def taken(
    kind: type, systems: Sequence[str], set: Any, given: Mapping[str, Any]
) -> tuple[Options, list[str], dict[str, Any]]:
    """Read what was given with a question.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`: which options there are.
    systems : sequence of str
        What is asked about, each with its plan.
    set : mapping or sequence of str
        Changes by path; numbers are in the inside unit.
    given : mapping of str to Any
        Options by name, as text or as numbers.

    Returns
    -------
    options : Options
    changes : list of str
        ``PATH=VALUE`` each, those that options about arrivals stand for first.
    rest : dict of str to Any
        What else was given, read.
    """
    rest = read_options(kind, given)
    options = Options(**{name: rest.pop(name) for name in options_of(Question) if name in rest})
    check_given_once(systems, options)
    # A router belongs to the deployment, all else about arrivals to the traffic.
    part = {"routing": "deployment"}
    loaded = [f"{part.get(name, 'traffic')}.{name}={rest.pop(name)}" for name in options_of(Arrivals) if name in rest]
    return options, [*loaded, *read_changes(set)], rest


def read_changes(set: Any) -> list[str]:
    """Return changes as ``PATH=VALUE`` each.

    Parameters
    ----------
    set : mapping or sequence of str
        Changes by path; numbers are in the inside unit.

    Returns
    -------
    list of str
    """
    if isinstance(set, str):
        return [set]
    if isinstance(set, Mapping):
        return [f"{word('--set', path)}={_value(path, value)}" for path, value in set.items()]
    if not isinstance(set, Sequence):
        raise UserError(f"--set {reprlib.repr(set)}: expected a mapping of paths to values, or texts PATH=VALUE")
    return [word("--set", text) for text in set]


def _value(path: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return f"{float(value)!r} {INSIDE}"
    if not isinstance(value, str | Path | numbers.Real):
        raise UserError(f"--set {path}={reprlib.repr(value)}: expected a number or a text")
    return str(value)


def read_options(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the options of a question, each as its type says.

    Parameters
    ----------
    kind : type
        Of :mod:`perfmodel.options`: which options there are.
    given : mapping of str to Any
        By name: text as a command line has it, or numbers; None is not given.

    Returns
    -------
    dict of str to Any
        Words, floats in the inside unit, and tuples of them; what is not given is not there.

    Raises
    ------
    UserError
        Where there is no such option, or a value is none of its type.
    """
    known = options_of(kind)
    for name in given:
        if name not in known:
            raise UserError(unknown(name, known))
    return {name: read_option(name, value, known[name]) for name, value in given.items() if value is not None}


def read_option(name: str, value: Any, said: Said, door: str = "") -> Any:
    """Read one option.

    Parameters
    ----------
    name : str
    value : Any
    said : Said
    door : str
        How the option was spelt, for the refusal.

    Returns
    -------
    Any
        A word, a float or a tuple of those.
    """
    door = door or flag(name)
    if said.switch and not isinstance(value, bool):
        raise UserError(f"{door} {reprlib.repr(value)}: expected True or False")
    if said.unit is None:
        return value
    if said.many:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, Mapping) or not hasattr(parts, "__len__") or not len(parts):
            raise UserError(f"{door} {reprlib.repr(value)}: expected {said.metavar}")
        return tuple(read_option(name, part, said._replace(many=False), door) for part in parts)
    if (said.of or name) in FIELDS:
        return option(said.of or name, value, door)
    if name in options_of(Arrivals) and said.unit:
        return number(door, value, range_of(hints(Traffic)[name]) or Range(said.unit))
    return number(door, value, Range(said.unit, **said.span)) if said.unit else word(door, value)


def word(name: str, value: Any) -> str:
    """Read a name or a path.

    Parameters
    ----------
    name : str
        Of the option, for the refusal.
    value : str or path

    Returns
    -------
    str
    """
    if not isinstance(value, str | Path):
        raise UserError(f"{name} {reprlib.repr(value)}: expected a name, as text")
    if not str(value).strip():
        raise UserError(f"{name}: expected a name, found nothing")
    return str(value).strip()


def number(name: str, written: Any, rule: Range = Range("1")) -> float:  # noqa: B008
    """Read a number of an option.

    Parameters
    ----------
    name : str
        Of the option, for the refusal.
    written : str or float
    rule : Range
        What it can be.

    Returns
    -------
    float
    """
    try:
        if isinstance(written, numbers.Real) and not isinstance(written, bool | int):
            written = float(written)
        if isinstance(written, float) and not math.isfinite(written):
            raise UserError(f"{written} is not finite, and must be {rule.words()}")
        return read_number(written, rule)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def option(name: str, written: Any, door: str = "") -> Any:
    """Read an option that fills a field, by the type of that field.

    Parameters
    ----------
    name : str
        Of the option.
    written : Any
    door : str
        How the option was spelt, for the refusal.

    Returns
    -------
    float or str
    """
    kind, field = FIELDS[name]
    annotation, door = hints(kind)[field], door or f"--{name.replace('_', '-')}"
    if rule := range_of(annotation):
        return number(door, written, rule)
    try:
        return read_word(written, choices_of(annotation))
    except UserError as error:
        raise UserError(f"{door}: {error}") from None


def check_options(options: Options) -> None:
    """Refuse what the fields that options fill cannot have, and options that exclude each other.

    Parameters
    ----------
    options : Options
    """
    for name in FIELDS:
        if (value := getattr(options, name)) is not None:
            option(name, value)
    if options.engine is not None:
        read_engine(options.engine)
    if options.traffic and (options.prompt or options.output):
        raise UserError("give either --traffic or --prompt and --output")
    if (options.prompt is None) != (options.output is None):
        raise UserError("--prompt and --output go together")


#: What drafts without a model of its own: a head of one layer of the target, or look-up in the text so far.
HEADS = ("eagle", "mtp")
LOOK_UP = "ngram"


def speculation_of(
    options: Options, target: Model, system: System, precision: str
) -> tuple[Speculation | None, list[str], list[str]]:
    """Return the speculation that options ask for, what is assumed, and what to mind.

    Parameters
    ----------
    options : Options
    target : Model
    system : System
    precision : str
        Of the target's weights.

    Returns
    -------
    tuple of Speculation or None, and two lists of str

    Raises
    ------
    UserError
        Where no draft, no k or no acceptance is given, or two that exclude each other.
    """
    given = _acceptance_given(options)
    if options.draft is None:
        return None, [], []
    if target.task == "pool":
        raise UserError(
            f"--draft {options.draft}: {target.name} makes one pass over its input and decodes nothing to draft"
        )
    accept, logged_alike = _positions(options)
    k, assumed = _tokens_drafted(options, accept)
    draft = _draft(options.draft, target, system, precision)
    machine = machine_of(system)
    measured = [f"accept.{at}" for at in range(1, len(accept) + 1)] or [given]
    provenance = {f"model.{path}": origin for path, origin in (draft.model.provenance if draft.model else {}).items()}
    provenance |= dict.fromkeys(("k", *measured), Provenance("given by the user", "given"))
    provenance |= {
        "host_time": machine.draft_host_source,
        "max_tp": Provenance("the draft's heads", "derived"),
    }
    return (
        Speculation(
            name=draft.model.name if draft.model else LOOK_UP,
            model=draft.model,
            precision=draft.precision,
            max_tp=_most_ranks(machine, draft.model) if draft.model else 1.0,
            shares_ends=draft.shares_ends,
            k=k,
            host_time=machine.draft_host_time,
            alpha=options.alpha,
            ar=options.ar,
            accept={str(at): chance for at, chance in enumerate(accept, 1)},
            provenance=provenance,
        ),
        [*assumed, draft.assumed],
        [*filter(None, (logged_alike,)), *draft.warnings],
    )


def _acceptance_given(options: Options) -> str:
    """Return which measure of acceptance goes with the draft, empty where there is no draft."""
    measures = ("alpha", "ar", "accept", "accept_logged")
    given = [name for name in measures if getattr(options, name) is not None]
    if options.draft is None:
        if given or options.k is not None:
            raise UserError(f"{flag((['k'] if options.k is not None else given)[0])} needs --draft MODEL")
        return ""
    if len(given) != 1:
        raise UserError(
            f"--draft {options.draft}: give one of --alpha, --ar or --accept (--accept-logged as an engine logs it); "
            "how many drafted tokens are accepted depends on the pair of models and on the text"
        )
    return given[0]


def _tokens_drafted(options: Options, accept: Sequence[float]) -> tuple[float, list[str]]:
    """Return k, given or as many as there are acceptances by position, and what is assumed where these differ."""
    k = options.k if options.k is not None else float(len(accept)) or None
    if k is None:
        raise UserError(f"--draft {options.draft}: give --k, the tokens drafted a step")
    if options.ar is not None and options.ar < 1 / (k + 1) - 1e-9:
        raise UserError(
            f"--ar {options.ar:g}: AR counts the target's own token, so it is at least 1 / (k + 1) = {1 / (k + 1):.3g}"
        )
    if accept and k > len(accept):
        return float(k), [f"acceptance beyond position {len(accept)} is that of the last"]
    if len(accept) > k:
        return float(k), [
            f"of the acceptances of {len(accept)} positions the first {k:g} count, as many as are drafted"
        ]
    return float(k), []


@dataclass(frozen=True)
class _Draft:
    """What drafts: a model or none, the precision of its weights, and whether it uses the target's ends."""

    model: Model | None
    precision: str
    assumed: str
    shares_ends: bool = False
    warnings: Sequence[str] = ()


def _draft(name: str, target: Model, system: System, precision: str) -> _Draft:
    """Return what drafts by its name; ``precision`` is that of the target's weights."""
    word = name.casefold()
    if word in HEADS:
        last = replace(target.layers[-1], count=1.0)
        head = replace(target, name=f"one layer of {target.name}", layers=(last,), towers=0.0)
        said = f"{name}: one layer of {target.name} drafts, with the target's embedding and head"
        return _Draft(head, precision, said, shares_ends=True)
    if word == LOOK_UP:
        return _Draft(None, precision, "ngram: looking up drafts costs nothing beyond the host time of a step")
    model = catalog.load_model(name)
    if model.task == "pool":
        raise UserError(f"--draft {name}: it makes one pass over its input and drafts nothing")
    own = model.precision if model.precision in system.computes_as else precision
    warnings = list(catalog.model_notes(model))
    if float(model.vocab) != float(target.vocab):
        warnings.append(
            f"draft {model.name} has {model.vocab:,.0f} words and {target.name} {target.vocab:,.0f}: a draft needs "
            "the tokenizer of its target"
        )
    return _Draft(model, own, f"draft {model.name} in {own} on the chips and plan of the target", warnings=warnings)


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
    return _check_draft(scenario)


def _check_draft(scenario: Scenario) -> list[str]:
    """Return what is assumed of the ranks of a draft; refuse where they do not divide its heads."""
    asked = scenario.speculation
    if asked is not None and asked.ar is not None and asked.ar < 1 / (asked.k + 1) - 1e-9:
        raise UserError(f"--set speculation.ar={asked.ar:g}: it is at least 1 / (k + 1) = {1 / (asked.k + 1):.3g}")
    draft = draft_scenario(scenario)
    if draft is None:
        return []
    tp, most = float(draft.deployment.tp), float(scenario.deployment.tp)
    if not machine_of(scenario.system).splits(draft.model, tp * float(scenario.system.cores)):
        raise UserError(f"--draft {draft.model.name}: its heads cannot be split over {tp:g} ranks; use another --tp")
    return [f"the draft on {tp:g} of {most:g} ranks, as many as divide its heads"] if tp < most else []


def _positions(options: Options) -> tuple[tuple[float, ...], str]:
    """Return the chance of each position when those before it were accepted, and what to mind of how it was given."""
    name = "accept" if options.accept is not None else "accept_logged"
    if getattr(options, name) is None:
        return (), ""
    found = read_option(name, getattr(options, name), options_of(Question)[name])
    written = f"{flag(name)} {','.join(f'{share:g}' for share in found)}"
    shares = _conditional(found)
    if name == "accept_logged":
        if any(share > 1 for share in shares):
            raise UserError(f"{written}: the share of steps that accept a position cannot rise from one to the next")
        return shares, ""
    falls = len(found) > 1 and all(later < earlier for earlier, later in itertools.pairwise(found))
    if falls and min(shares) / max(shares) > min(found) / max(found):
        return found, (
            f"{written} falls as the rates do that engines log, which are of all steps: where it is such a log, give "
            "it as --accept-logged"
        )
    return found, ""


def _conditional(logged: Sequence[float]) -> tuple[float, ...]:
    """Return the chance of each position when those before it were accepted, of shares of all steps."""
    before = (1.0, *logged)
    return tuple(now / last if last else math.inf if now else 0.0 for last, now in zip(before, logged, strict=False))


def _most_ranks(machine: Machine, model: Model) -> float:
    """Return the largest power of two of tensor ranks into which a machine can split a model."""
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
    ends = float(machine.end_stages(Scenario(system, model, plan, _ANY_TRAFFIC)))
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


_ANY_TRAFFIC: Any = None
_LISTENING: list[list[Scenario]] = []


@contextlib.contextmanager
def asked() -> Iterator[list[Scenario]]:
    """Gather the scenarios that are asked meanwhile, for what concerns all answers of a command.

    Returns
    -------
    context manager
        Of the list that they are put into.
    """
    found: list[Scenario] = []
    _LISTENING.append(found)
    try:
        yield found
    finally:
        _LISTENING.remove(found)


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
    traffic, architecture, said = _traffic(architecture, options)
    base, of_plan = _deployment_asked(architecture, system, engine, options, named)
    speculation, of_draft, notes = speculation_of(options, architecture, system, base.precision)
    assumed, warnings = [*assumed, *said, *of_plan, *of_draft], [*warnings, *notes]
    asked = Scenario(system, architecture, base, traffic, speculation, catalog.load_economics())
    scenario, why = _changed(asked, options, changes)
    if why:
        assumed.insert(0, why)
    assumed += check_layout(scenario)
    warnings += _squeezed(scenario)
    assumed.append(_money(scenario))
    assumed += catalog.in_place(system, architecture, traffic, speculation, scenario.economics)
    scenario = replace(scenario, assumed=tuple(assumed), warnings=tuple(warnings))
    for gathered in _LISTENING:
        gathered.append(scenario)
    return scenario


def _engine_assumed(system: System, engine: str, options: Options) -> list[str]:
    """Refuse an engine that the system does not run; return what is assumed of the one that it does."""
    named = read_engine(engine)
    engines = machine_of(system).engines
    if named.name not in engines and named.name not in (engines := kinds.engines(machine_of(system))):
        fitting = " or ".join(filter(None, (", ".join(engines[:-1]), engines[-1])))
        raise UserError(f"--engine {engine}: {system.name} runs {fitting}")
    default = f"engine {engine}, the default of {system.name}" if options.engine is None else ""
    return [*filter(None, (default, catalog.release_note(system, named)))]


def _traffic(architecture: Model, options: Options) -> tuple[Traffic, Model, list[str]]:
    """Return the traffic that options ask for, the model with the images of its prompts, and what is assumed."""
    assumed = []
    if options.prompt is not None and options.output is not None:
        traffic = replace(
            catalog.load_traffic("chat"), name="given", prompt=float(options.prompt), output=float(options.output)
        )
        traffic = replace(traffic, provenance={})
    else:
        traffic = catalog.load_traffic(options.traffic or "chat")
        if options.traffic is None:
            assumed.append(f"traffic chat: {traffic.prompt:g} tokens in, {traffic.output:g} out")
    assumed += thousands(architecture, ("prompt", options.prompt))
    if options.concurrency is None:
        assumed.append("concurrency 1")
    traffic = replace(traffic, concurrency=float(options.concurrency or 1))
    if architecture.task == "draft":
        raise UserError(f"{architecture.name} drafts for another model: name that one, and give this as --draft")
    if options.images is not None:
        architecture, traffic, of_images = _with_images(architecture, traffic, options.images)
        assumed.append(of_images)
    return traffic, architecture, assumed


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
    deployment, why = _deployment(scenario, options)
    scenario = replace(scenario, deployment=deployment)
    for text, path in zip(changes, paths, strict=True):
        if path.startswith("deployment."):
            scenario = assign(scenario, text)
    _refuse_swallowed(scenario, options, changes, paths)
    before, after = asked.speculation, scenario.speculation
    if after is not None and after.ar is not None and before is not None and after.k != before.k:
        raise UserError("--set speculation.k: an AR belongs to one k; give --k with the --ar that goes with it")
    return scenario, why


#: Rounds that public benchmarks run: ten prompts a client.
BENCHMARK_ROUNDS = 10.0
#: Where nothing says how many rounds there are.
_LONG_RUN = Traffic("", 1.0, 1.0).rounds


def started(scenario: Scenario, steady: bool) -> Scenario:
    """Return a closed loop that starts as public benchmarks do: all clients at once, for ten rounds.

    Parameters
    ----------
    scenario : Scenario
        What says itself how many rounds there are stays as it is.
    steady : bool
        Whether the start is to be left out.

    Returns
    -------
    Scenario
    """
    traffic = scenario.traffic
    if float(traffic.rounds) != _LONG_RUN:
        if steady:
            raise UserError(
                f"--steady: traffic.rounds={traffic.rounds:g} says how the loop starts; leave one of them out"
            )
        return scenario
    if scenario.model.task == "pool" or float(traffic.concurrency) == 1:
        idle = ("--steady did not enter this answer: it counts for several clients that decode",) if steady else ()
        return replace(scenario, warnings=(*scenario.warnings, *idle))
    said = "times of the long run, without a start"
    if not steady:
        traffic = replace(traffic, rounds=BENCHMARK_ROUNDS)
        said = (
            f"times of a benchmark: all clients start at once, {BENCHMARK_ROUNDS:g} rounds; --steady leaves the start "
            "out, and rates, power and cost are those of the long run"
        )
    return replace(scenario, traffic=traffic, assumed=(*scenario.assumed, said))


def thousands(model: Model, *lengths: tuple[str, float | None]) -> list[str]:
    """Return what to say of lengths that were meant as a model's context and missed it: k is 1,000 and Ki 1,024.

    Parameters
    ----------
    model : Model
    *lengths : tuple of str and float or None
        Name and tokens.

    Returns
    -------
    list of str
    """
    most = float(model.max_context)
    return [
        f"{name} {length:,.0f} tokens, for k is 1,000; the model's {most:,.0f} are {most / 1024:g}Ki"
        for name, length in lengths
        if length is not None and length != most and length / 1000 == most / 1024
    ]


def _with_images(model: Model, traffic: Traffic, images: float) -> tuple[Model, Traffic, str]:
    """Return model and traffic of requests with so many images each, and what is assumed of those."""
    vision = model.vision
    if vision is None:
        raise UserError(f"--images {images:g}: {model.name} has no encoder of images that its file describes")
    tokens = float(vision.tokens) * images
    size = "of the size that the file gives, else of 1,024 x 1,024 pixels"
    said = f"{images:g} images of {float(vision.tokens):,.0f} tokens a request, {size}"
    model = replace(model, vision=replace(vision, images=float(images)))
    if any(run.attention is not None and run.attention.cross is not None for run in model.layers):
        layers = tuple(
            replace(run, attention=replace(run.attention, cross=tokens))
            if run.attention is not None and run.attention.cross is not None
            else run
            for run in model.layers
        )
        return replace(model, layers=layers), traffic, f"{said}, met by cross-attention"
    provenance = {**traffic.provenance, "prompt": Provenance("text and images", "derived")}
    prompt = traffic.prompt + tokens
    return model, replace(traffic, prompt=prompt, provenance=provenance), f"{said}, added to the prompt"


_GIB = 2.0**30
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


def _squeezed(scenario: Scenario) -> list[str]:
    """Return what to mind where a share of the memory leaves less for activations than the engine would set aside."""
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
            f"--set system.engine.memory_utilisation={share:g}: does not fit, {(least - left) / _GIB:.2f} GiB a chip "
            "are missing for the activations of one layer; give a smaller share"
        )
    return [
        f"a share of {share:g} leaves {left / _GIB:.2f} GiB a chip for activations, where {engine.name} by its own "
        f"rule sets {kept / _GIB:.2f} GiB aside: long prompts may run out of memory"
    ]


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
    if not machine_of(system).finds_stages:
        return replace(scenario.deployment, plan="given", tp=tp, pp=1.0), "PP 1"
    allowed = {float(plan.tp) for plan in system.plans}
    if tp not in allowed:
        check_plan(scenario.model, system, replace(scenario.deployment, tp=tp))
    laid = _laid_out(scenario, Plan("given", tp, "fewest"))
    return laid, f"PP {laid.pp:g}, the fewest stages that fit"


def distinct(names: Sequence[str]) -> list[str]:
    """Return names with their place where one stands more than once.

    Parameters
    ----------
    names : sequence of str

    Returns
    -------
    list of str
    """
    return [name if names.count(name) == 1 else f"{name}#{at + 1}" for at, name in enumerate(names)]


def split_changes(systems: Sequence[str], changes: Sequence[str]) -> list[list[str]]:
    """Deal changes to systems: ``PATH=V`` to all, ``SYSTEM:PATH=V`` to those of a name, ``#2:PATH=V`` to the second.

    Parameters
    ----------
    systems : sequence of str
        Each with its plan.
    changes : sequence of str

    Returns
    -------
    list of list of str
        One list a system.
    """
    each: list[list[str]] = [[] for _ in systems]
    names = [split_system(system, Options())[0] for system in systems]
    for text in changes:
        head, colon, rest = text.partition(":")
        if not colon or "=" in head:
            for mine in each:
                mine.append(text)
            continue
        if head.startswith("#"):
            if not head[1:].isdigit() or not 1 <= int(head[1:]) <= len(systems):
                raise UserError(f"--set {text}: there is no system {head}; #1 to #{len(systems)} are given")
            each[int(head[1:]) - 1].append(rest)
            continue
        named = [index for index, name in enumerate(names) if name.casefold() == head.casefold()]
        if not named:
            raise UserError(f"--set {text}: '{head}' is none of the systems {', '.join(names)}")
        for index in named:
            each[index].append(rest)
    return each

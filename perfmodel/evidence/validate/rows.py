"""From a row to the scenarios that it may mean."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.evidence import serving_fit
from perfmodel.evidence.validate import names
from perfmodel.evidence.validate.metrics import FORMS, POWER, PREDICTED, Form, form_key
from perfmodel.evidence.validate.names import find_model, find_precision, find_system
from perfmodel.evidence.validate.reading import MOST_CHIPS, UNITS, Unanswered, number, plain, read_unit, whole
from perfmodel.evidence.validate.speedups import drafting, measured_length, target_of
from perfmodel.machines.base import machine_of
from perfmodel.question import Options, check_plan, kv_rule, resolve
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine, read_engine
from perfmodel.specs.types import Deployment, Model, Scenario, System, Traffic

_NAN = math.nan

_INFERENCEX = re.compile(r"^\d{4}_\d{2}_\d{2}_")


def harness(row: Mapping[str, str]) -> dict[str, Any]:
    """Return how the benchmark of a row sent its requests, as fields of :class:`Traffic`.

    Known sets ran as ``calibrate`` takes them.  A row that says how many requests it sent is taken at its word.  One
    client alone, in a row that is of none of those sets, is no load test and has fixed lengths.
    """
    clients = number(row, "concurrency_or_batch") or 1.0
    notes = row.get("notes", "").casefold()
    if asked := re.search(r"(\d+) requests", notes):
        spread = re.search(r"lengths \+/-\s*(\d+)\s*%", notes)
        half = float(spread[1]) / 100 if spread else 0.0
        # Lengths count down from the longest.
        return {"rounds": max(1.0, float(asked[1]) / clients), "length_jitter": 2 * half / (1 + half)}
    if clients <= 1 and not row.get("row_id"):
        return {"rounds": 10.0, "length_jitter": 0.0}
    ran = serving_fit.harness(row["model"], row.get("engine", ""), plain(row, "isl"), clients)
    return {entry.name: getattr(ran, entry.name) for entry in fields(ran)}


def anomaly(row: Mapping[str, str]) -> str:
    """Return why a public measurement is not one of a plain closed loop, else nothing."""
    if not row.get("row_id") or any(plain(row, name) != plain(row, name) for name in _LOADED):
        return ""
    return serving_fit.anomaly(row)


_LOADED = ("tp", "isl", "osl", "concurrency_or_batch")


@functools.cache
def _model(name: str) -> Model:
    return catalog.load_model(name)


@functools.cache
def load_system(name: str, engine: str) -> tuple[System, str, bool]:
    """Return a system with an engine's efficiencies and budget, its bare name, and whether they were calibrated."""
    system, chosen, warnings = catalog.load_system(name, engine or None)
    return system, read_engine(chosen).name, not warnings


def forget() -> None:
    """Read specs again: a file of the user's own may have changed since the last question."""
    for cached in (_model, load_system):
        cached.cache_clear()
    names.forget()


TRAFFIC_FIELDS = frozenset(entry.name for entry in fields(Traffic))


@dataclass
class Row:
    """One measured value, what was made of it, and what came out.

    Attributes
    ----------
    given : dict
        The input's columns.
    data : str
        The file it stands in.
    value : float
        As measured, in the row's own unit.
    metric : str
        Family under which it is scored.
    model, system, engine : str
        As they are listed here; as given where they are not.
    moe : bool or None
    fitted : bool
        Whether something was fitted on it.
    chip_calibrated : bool
        Whether the chip has efficiencies of its own with this engine.
    anomaly : str
        Why it does not count, else empty.
    predicted, low, high : float
        In the row's own unit; NaN where there is none.
    reason : str
        Why there is no prediction.
    notes : list of str
        What was assumed.
    """

    given: dict[str, str]
    data: str
    value: float
    metric: str
    model: str
    system: str
    engine: str
    moe: bool | None = None
    fitted: bool = False
    chip_calibrated: bool = False
    anomaly: str = ""
    predicted: float = _NAN
    low: float = _NAN
    high: float = _NAN
    reason: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        """Signed relative error; NaN where there is no prediction."""
        return self.predicted / self.value - 1 if self.value > 0 else _NAN

    @property
    def part(self) -> str:
        """Return ``anomalous``, ``calibrated`` or ``predicted``: these are never mixed."""
        return "anomalous" if self.anomaly else "calibrated" if self.fitted else "predicted"

    def row(self) -> dict[str, Any]:
        """Return the input's columns with what came out."""
        found: dict[str, Any] = {**self.to_dict()}
        given = found.pop("given")
        found["assumed"] = "; ".join(found["assumed"]) or None
        return {"data": self.data, **given, **found}

    def to_dict(self) -> shapes.Row:
        """Return the documented JSON object."""
        unit = read_unit(self.given["unit"])
        return {
            "data": self.data,
            "given": dict(self.given),
            "value": shapes.number(self.value),
            "predicted": shapes.number(self.predicted),
            "low": shapes.number(self.low),
            "high": shapes.number(self.high),
            "error": shapes.number(self.error),
            "reason": self.reason or None,
            "part": self.part,
            "anomaly": self.anomaly or None,
            "metric_family": self.metric,
            "matched_model": self.model,
            "matched_system": self.system,
            "matched_engine": self.engine,
            "assumed": list(self.notes),
            "unit_kind": unit[0] if unit else None,
        }


@dataclass(frozen=True)
class Asked:
    """A row with the layouts to try, the likeliest first."""

    row: Row
    form: Form
    key: str
    scale: float
    per: str
    layouts: Iterator[tuple[Scenario, str]] = field(repr=False)


_ROW_ID_TP = re.compile(r"_tp(\d+)(?:_\d+)?_ep(\d+|none)")
_MOE_TP = re.compile(r"moe_tp=(\d+)")


def _shape(row: Mapping[str, str], notes: list[str]) -> tuple[float | None, float, float, float]:
    """Return TP (None where nothing says), PP, EP and the ranks of all replicas together, as the columns say."""
    tp, pp, ep = whole(row, "tp"), whole(row, "pp") or 1.0, whole(row, "ep") or 1.0
    chips, dp = whole(row, "n_chips"), whole(row, "dp")
    if tp is None and chips is None:
        return None, pp, ep, 0.0
    if "gpt-oss-dev" in row.get("engine", "").casefold() and tp is not None:
        written = _ROW_ID_TP.search(row.get("row_id", ""))
        if written and float(written[1]) < tp and tp % float(written[1]) == 0:
            real = float(written[1])
            ep = max(ep, tp / real)
            notes.append(f"tp column {tp:g} is TP x EP; the row id says TP {real:g}")
            chips = max(chips or 0.0, tp * pp)
            tp = real
    ranks = max((chips or 0.0) / pp, (tp or 1.0) * (dp or 1.0), ep)
    moe_tp = _MOE_TP.search(row.get("notes", ""))
    if moe_tp and float(moe_tp[1]) * ep > ranks:
        ranks = float(moe_tp[1]) * ep
        notes.append(f"moe_tp x ep = {ranks:g} ranks: attention-DP over {ranks / (tp or 1.0):g}")
    if tp is not None and ranks % tp:
        notes.append(f"{ranks:g} chips are no multiple of TP {tp:g}: one replica is taken")
        ranks = tp
    if ranks * pp > MOST_CHIPS:
        raise Unanswered(f"{ranks * pp:g} chips are more than {MOST_CHIPS:,}")
    return tp, pp, ep, ranks


def _layouts(
    base: Scenario, tp: float | None, pp: float, ep: float, ranks: float, widest: bool
) -> Iterator[tuple[Scenario, str]]:
    """Give the layout of a row, and then those that come nearest, each with what is said of it."""
    seen: set[tuple[float, float, float]] = set()

    def laid(tp: float, ep: float, ranks: float, note: str) -> Iterator[tuple[Scenario, str]]:
        key = (tp, ep, ranks)
        if key in seen or ranks % max(tp, ep):
            return
        seen.add(key)
        # Experts over more ranks than a tensor group has are shared by groups that hold attention whole.
        shared = max(1.0, ep / tp)
        plan = replace(base.deployment, tp=tp, pp=pp, ep=ep, attention_dp=shared, dp=ranks / tp / shared)
        try:
            check_plan(base.model, base.system, plan)
        except UserError:
            return
        yield replace(base, deployment=plan), note

    low = [float(count) for count in range(1, math.isqrt(int(ranks)) + 1) if ranks % count == 0]
    counts = sorted({*low, *(ranks / count for count in low)})
    if tp is None:
        # Latency is measured on all chips together, throughput on as many replicas as fit.
        for wanted in reversed(counts) if widest else counts:
            yield from laid(wanted, ep, ranks, f"TP is not given: TP {wanted:g} x {ranks / wanted:g} replicas taken")
        tp = ranks
    moe = any(run.moe is not None for run in base.model.layers)
    yield from laid(tp, ep, ranks, "")
    if ep > 1:
        yield from laid(tp, 1.0, ranks, f"EP {ep:g} cannot be laid out here: EP 1 taken")
    elif moe and ranks > tp:
        yield from laid(tp, ranks, ranks, f"does not fit as stated: experts spread over all {ranks:g} chips")
    for other in sorted(counts, key=lambda count: (abs(math.log(count / tp)), -count)):
        yield from laid(other, ep, ranks, f"TP {tp:g} cannot be used here: TP {other:g} taken")
        yield from laid(other, 1.0, ranks, f"TP {tp:g} cannot be used here: TP {other:g} and EP 1 taken")
    for factor in (2.0, 4.0, 8.0, 16.0):
        more = tp * factor
        yield from laid(more, 1.0, more, f"does not fit {ranks:g} chips: {more:g} taken, which the row does not say")


LENGTHS = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*\.\.\s*(\d+(?:\.\d+)?)\s*$")


def _lengths(row: Mapping[str, str], form: Form, clients: float, notes: list[str]) -> tuple[float, float]:
    """Return prompt and output tokens of a row."""
    if form.how == "context":
        return 1.0, 2.0
    prompt, output = number(row, "isl"), number(row, "osl")
    if form.how in ("prompt", "step"):
        if prompt is None:
            raise Unanswered("no isl is given")
        return prompt, output or 1.0
    if form.how == "speedup" and (prompt is None or output is None):
        notes.append(f"lengths are not given: {prompt or 1024.0:g} tokens in and {output or 256.0:g} out taken")
        return prompt or 1024.0, output or 256.0
    if prompt is None and clients == 1 and form.family in ("TPOT", "output speed per user", "utilisation"):
        chat = catalog.load_traffic("chat")
        notes.append(f"lengths are not given: chat, {chat.prompt:g} in and {chat.output:g} out")
        return float(cast(float, chat.prompt)), float(cast(float, chat.output))
    if prompt is None and output is not None and form.family == POWER:
        # A full machine draws much the same whatever share of its time prefill takes.
        notes.append("isl is not given: prompts as long as the output taken")
        prompt = output
    if prompt is None:
        raise Unanswered("no isl is given, and no mean input length of its workload stands in the data")
    if output is None:
        if form.family != "TTFT":
            raise Unanswered("no osl is given")
        notes.append("osl is not given: 128 tokens taken")
        output = 128.0
    return prompt, output


def ask(row: Row) -> Asked:
    """Return what to evaluate for a row.

    Raises
    ------
    Unanswered
        Where the row lacks what a prediction needs.
    """
    given = row.given
    key = form_key(given["metric"])
    if not key:
        named = given["metric"] or "a metric without a name"
        raise Unanswered(f"nothing here predicts {named}; known are {', '.join(PREDICTED)}")
    form = FORMS[key]
    row.metric = form.family
    unit = read_unit(given["unit"])
    # Names are resolved even where the metric has no model, so that its group is right.
    curve = form.how == "curve" and not given["model"]
    try:
        row.system = find_system(given["hardware"])
        model_name, written, note = ("", "", "") if curve else find_model(target_of(given["model"]))
    except Unanswered:
        if form.how in ("later", "accepted"):
            raise Unanswered(form.reason or _NO_ACCEPTANCE) from None
        raise
    model = _NO_MODEL if curve else _model(model_name)
    if not curve:
        row.model, row.moe = model.name, any(run.moe is not None for run in model.layers)
    if form.how == "later":
        raise Unanswered(form.reason)
    if not math.isfinite(row.value) or row.value <= 0:
        raise Unanswered("no measured value, or none above 0, to compare with")
    if form.how == "accepted":
        raise Unanswered(_NO_ACCEPTANCE)
    system_name = row.system
    engine = str(find_engine(given.get("engine", "")) or "")
    bare = load_system(system_name, "")[0]
    machine = machine_of(bare)
    if not machine.free_degrees:
        engine = ""
    elif not engine and given.get("engine"):
        engine = "trtllm" if bare.chip[0] in "abhgl" and re.search("cuda|tensor", given["engine"].casefold()) else ""
        row.notes.append(f"engine '{given['engine']}' is taken as {engine or bare.default_engine}")
    system, row.engine, row.chip_calibrated = load_system(system_name, engine)
    row.system = system.name
    row.notes += catalog.in_place(system, model)
    if unit is None:
        raise Unanswered(f"unknown unit '{given['unit']}' of {given['metric']}; expected one like {UNITS}")
    if unit[0] not in form.units:
        raise Unanswered(f"unit '{given['unit']}' is none of {given['metric']}")
    if form.how == "curve":
        return Asked(row, form, key, unit[1], unit[2], iter([(Scenario(system, model, _NO_PLAN, _NO_LOAD), "")]))
    if note:
        row.notes.append(note)
    mode = given.get("mode", "").casefold()
    if "disagg" in mode or "disagg" in given.get("engine", "").casefold():
        raise Unanswered("disaggregated: the columns do not give both pools, which 'size --prefill-on' asks for")
    if form.how == "speedup":
        row.fitted = drafting(given).fitted
    elif given.get("method", "").casefold() not in ("", "none") and plain(given, "k") != 0:
        if key != "user" or not machine.free_degrees or measured_length(given) is None:
            raise Unanswered("only the speed of one user is predicted for runs with a draft, at a measured length")
        form, key = FORMS["mtp"], "mtp"
    if re.search(r"pruned|sparse", given.get("notes", "").casefold()):
        row.notes.append("the run pruned or sparsified the model; the whole model is predicted")
    asked_for = number(given, "concurrency_or_batch") if form.how != "most" else None
    if key in ("output", "output_chip") and asked_for is None:
        form, key = FORMS["most"], "most"
        row.metric = form.family
        row.notes.append("no concurrency is given: the largest throughput")
    if key in ("power", "energy") and asked_for is None:
        form = FORMS[f"{key}_most"]
        row.notes.append("no concurrency is given: at the largest throughput")
    if asked_for is None and form.how in ("loop", "prompt", "step", "speedup"):
        raise Unanswered("no concurrency is given")
    clients = asked_for or 1.0
    prompt, output = _lengths(given, form, clients, row.notes)
    weights, cache = _precisions(row, written, model, system)
    traffic = _traffic(given, form, prompt, output, clients)
    tp, pp, ep, ranks = _shape(given, row.notes)
    deployment = Deployment("given", row.engine, weights, cache, tp=1.0)
    base = Scenario(system, model, deployment, traffic)
    if tp is None and (ranks == 0 or not machine.free_degrees):
        layouts = _default_layout(base, ranks)
    elif not machine.free_degrees:
        layouts = _plans(base, tp or ranks, pp)
    else:
        layouts = _layouts(base, tp, pp, ep, ranks, form.how != "most")
    return Asked(row, form, key, unit[1], unit[2], layouts)


_NO_ACCEPTANCE = "no acceptance of this run stands in the data; trees do not follow the chain formula"
_NO_MODEL = Model("", "", "fp16", 1.0, 1.0, False, 1.0, ())
_NO_PLAN = Deployment("given", "native", "fp16", "fp16", tp=1.0)
_NO_LOAD = Traffic("given", 1.0, 1.0)


def _traffic(given: Mapping[str, str], form: Form, prompt: float, output: float, clients: float) -> Traffic:
    how: Mapping[str, Any] = harness(given) if form.how == "loop" else {}
    used = {name: value for name, value in how.items() if name in TRAFFIC_FIELDS}
    if "lengths +/-" in given.get("notes", ""):
        longest = 1 / (1 - float(used.get("length_jitter", 0.0)) / 2)
        prompt, output = prompt * longest, output * longest
    return Traffic("given", prompt, output, clients, **used)


def _precisions(row: Row, written: str, model: Model, system: System) -> tuple[str, str]:
    """Return the precisions of weights and cache, and note where a name does not say what it seems to."""
    given = row.given
    weights = find_precision(given.get("dtype_weights", ""), "dtype_weights") or written or model.precision
    if model.precision == "mxfp4" and weights in ("fp4", "int4", "fp8"):
        if weights == "fp8":
            row.notes.append(f"{model.name} is published in MXFP4: FP8 is taken to be its activations")
        weights_kept, weights = weights, "mxfp4"
    else:
        weights_kept = weights
    text = given.get("dtype_kv", "")
    if "only" in text.casefold():
        row.notes.append(f"KV cache '{text}' is taken for all layers")
        text = text.split()[0]
    cache = find_precision(text, "dtype_kv")
    if not cache:
        dated = _INFERENCEX.match(given.get("row_id", ""))
        listed = dated or row.engine.startswith("trt")
        known = serving_fit.kv_of_row(given["model"], row.engine, weights_kept) if listed else None
        if known and dated:
            row.notes.append(f"KV cache {known}, as InferenceX runs this set")
        cache = known or kv_rule(system, row.engine, model)[0]
    if system.computes_as.get(weights) not in system.rates:
        raise Unanswered(f"{system.name} does not compute {weights}")
    return weights, cache


def _default_layout(base: Scenario, ranks: float) -> Iterator[tuple[Scenario, str]]:
    """Give the layout that a question without one gets."""
    plan, load = base.deployment, base.traffic
    if ranks:
        for known in base.system.plans:
            if known.pp == "1" and float(cast(float, known.tp)) == ranks:
                yield from _plans(base, ranks, 1.0)
    options = Options(
        engine=plan.engine,
        precision=plan.precision,
        kv_precision=plan.kv_precision,
        prompt=math.ceil(float(cast(float, load.prompt))),
        output=math.ceil(float(cast(float, load.output))),
        concurrency=float(cast(float, load.concurrency)),
    )
    try:
        scenario = resolve(base.model, base.system.name, options)
    except UserError as error:
        raise Unanswered(str(error)) from None
    note = f"the layout is not given: {scenario.assumed[0]}" if scenario.assumed else ""
    yield replace(scenario, traffic=load, system=base.system), note


def _plans(base: Scenario, tp: float, pp: float) -> Iterator[tuple[Scenario, str]]:
    """Give the layouts of a machine that is no GPU, the one asked for first, then its own plans by nearness."""
    options = Options(
        engine=base.deployment.engine,
        precision=base.deployment.precision,
        kv_precision=base.deployment.kv_precision,
        concurrency=float(cast(float, base.traffic.concurrency)),
    )
    known = sorted({float(cast(float, plan.tp)) for plan in base.system.plans}, key=lambda at: abs(math.log(at / tp)))
    for wanted, stages in [(tp, pp if pp > 1 else None), *((other, None) for other in known)]:
        try:
            found = resolve(base.model, base.system.name, replace(options, tp=wanted, pp=stages))
        except UserError:
            continue
        note = "" if wanted == tp else f"TP {tp:g} cannot be used here: TP {wanted:g} taken"
        yield replace(found, traffic=base.traffic, system=base.system), note

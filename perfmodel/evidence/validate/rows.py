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
from perfmodel.evidence.validate import names, public
from perfmodel.evidence.validate.metrics import FORMS, POWER, PREDICTED, Form, form_key
from perfmodel.evidence.validate.names import find_model, find_precision, find_system
from perfmodel.evidence.validate.reading import MOST_CHIPS, UNITS, Unanswered, number, plain, read_unit, whole
from perfmodel.evidence.validate.speedups import drafting, measured_length, target_of
from perfmodel.machines.base import machine_of
from perfmodel.question import Options, check_plan, kv_rule, resolve
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine, read_engine
from perfmodel.specs.types import Deployment, Model, Scenario, System, Traffic
from perfmodel.specs.weights import model_class

_NAN = math.nan

_INFERENCEX = re.compile(r"^\d{4}_\d{2}_\d{2}_")


def harness(row: Mapping[str, str]) -> dict[str, Any]:
    """Return how the benchmark of a row sent its requests, as fields of :class:`Traffic`; its own columns win."""
    sent = number(row, "requests")
    found = _set_harness(row) if sent is None else {"length_jitter": 0.0}
    if sent is not None:
        found["rounds"] = max(1.0, sent / (number(row, "concurrency_or_batch") or 1.0))
    if row.get("length_spread"):
        half = plain(row, "length_spread")
        found["length_jitter"] = 2 * half / (1 + half)
    if row.get("prefix_hits"):
        found["prefix_hits"] = plain(row, "prefix_hits")
    return found


def _set_harness(row: Mapping[str, str]) -> dict[str, Any]:
    """Return how the set that a row is of sent its requests.

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
    load, lengths = row.get("load", "").casefold(), row.get("lengths", "").casefold()
    prompts = re.search(r"(\d+) prompts", load)
    if prompts or "at once" in load:
        jitter = 0.2 if "0.8 to 1" in lengths else 0.0
        return {"rounds": max(1.0, float(prompts[1]) / clients) if prompts else 1.0, "length_jitter": jitter}
    ran = public.harness(
        row["model"], row.get("engine", ""), row["hardware"], plain(row, "isl"), plain(row, "osl"), clients
    )
    return {entry.name: getattr(ran, entry.name) for entry in fields(ran)}


def anomaly(row: Mapping[str, str]) -> str:
    """Return why a public measurement is not one of a plain closed loop, else nothing."""
    if not row.get("row_id") or any(plain(row, name) != plain(row, name) for name in _LOADED):
        return ""
    return public.anomaly(row)


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
    kind : str
        Class of the model, one of :data:`perfmodel.machines.operators.CLASSES`; empty where none was found.
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
    kind: str = ""
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
            "model_class": self.kind or None,
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
    prefill: Scenario | None = None


_TAIL = re.compile(r"p(?!50$)\d+(\.\d+)?|min|max|std")
_ROW_ID_TP = re.compile(r"_tp(\d+)(?:_\d+)?_ep(\d+|none)")
_MOE_TP = re.compile(r"moe_tp=(\d+)")
_RANK_BATCH = re.compile(r"per-(?:replica|rank) batch_size=(\d+)")


@dataclass(frozen=True)
class Shape:
    """How the columns of a row lay a model out: ``tp`` None where nothing says, ``ranks`` of all replicas together."""

    tp: float | None
    pp: float = 1.0
    ep: float = 1.0
    ranks: float = 0.0
    attention_dp: float = 1.0


def _stated(row: Mapping[str, str], name: str) -> float | None:
    """Return a whole number of a column; 0 is not stated, as some sets have it."""
    return None if plain(row, name) == 0 else whole(row, name)


def _shape(row: Mapping[str, str], notes: list[str]) -> Shape:
    """Return the layout of a row as its columns say, and note where labels are not what they seem."""
    tp, pp, ep = _stated(row, "tp"), whole(row, "pp") or 1.0, _stated(row, "ep") or 1.0
    chips, dp = _stated(row, "n_chips"), _stated(row, "dp") or _stated(row, "replicas")
    attention_dp = _stated(row, "attention_dp") or 1.0
    if tp is None and chips is None:
        return Shape(None, pp, ep)
    written = _ROW_ID_TP.search(row.get("row_id", ""))
    if written and written[2] != "none":
        real, spread = float(written[1]), float(written[2])
        if spread > 1 and real * spread in (tp, attention_dp):
            which = "tp" if real * spread == tp else "attention_dp"
            notes.append(f"{which} column {real * spread:g} is TP x EP; the row id says TP {real:g} and EP {spread:g}")
            tp, ep, attention_dp = real, spread, 1.0
            chips = max(real, spread) * pp
    batch = _RANK_BATCH.search(row.get("notes", ""))
    clients = number(row, "concurrency_or_batch")
    if batch and clients and tp is not None and clients % float(batch[1]) == 0 and clients > float(batch[1]):
        copies = clients / float(batch[1])
        if copies == tp and attention_dp == 1:
            notes.append(f"a batch of {batch[1]} a rank at {clients:g} clients: attention-DP over {copies:g} ranks")
            tp, attention_dp = 1.0, copies
        else:
            notes.append(f"a batch of {batch[1]} a replica at {clients:g} clients: {copies:g} replicas")
            chips = max(tp * attention_dp, ep) * pp * copies / attention_dp
    if attention_dp > 1:
        # Groups that hold attention whole share the experts between all of their ranks.
        ep = max(ep, (tp or 1.0) * attention_dp)
    ranks = max((chips or 0.0) / pp, (tp or 1.0) * attention_dp * (dp or 1.0), ep)
    moe_tp = _MOE_TP.search(row.get("notes", ""))
    if moe_tp and float(moe_tp[1]) * ep > ranks and attention_dp == 1:
        ranks = float(moe_tp[1]) * ep
        notes.append(f"moe_tp x ep = {ranks:g} ranks: attention-DP over {ranks / (tp or 1.0):g}")
    if tp is not None and ranks % tp:
        notes.append(f"{ranks:g} chips are no multiple of TP {tp:g}: one replica is taken")
        ranks = tp
    if ranks * pp > MOST_CHIPS:
        raise Unanswered(f"{ranks * pp:g} chips are more than {MOST_CHIPS:,}")
    return Shape(tp, pp, ep, ranks, attention_dp)


def _layouts(base: Scenario, shape: Shape, widest: bool) -> Iterator[tuple[Scenario, str]]:
    """Give the layout of a row, and then those that come nearest, each with what is said of it."""
    tp, pp, ep, ranks = shape.tp, shape.pp, shape.ep, shape.ranks
    seen: set[tuple[float, float, float]] = set()

    def laid(tp: float, ep: float, ranks: float, note: str) -> Iterator[tuple[Scenario, str]]:
        key = (tp, ep, ranks)
        if key in seen or ranks % max(tp, ep):
            return
        seen.add(key)
        # Experts over more ranks than a tensor group has are shared by groups that hold attention whole.
        shared = max(1.0, ep / tp)
        if ranks % (tp * shared):
            return
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


#: Mean prompt of MLPerf's data sets by their published mean output: OpenOrca [tokens].
_MLPERF_PROMPTS = {294.45: 294.0}
LENGTHS = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*\.\.\s*(\d+(?:\.\d+)?)\s*$")


def _collective_of(given: Mapping[str, str], system: System, model: Model) -> Scenario:
    """Return the question of an all-reduce: the message and the ranks of a row."""
    size, ranks = number(given, "message_bytes"), whole(given, "tp") or whole(given, "n_chips")
    if size is None or ranks is None:
        raise Unanswered("an all-reduce needs message_bytes and tp, the ranks")
    return Scenario(system, model, replace(_NO_PLAN, tp=ranks), replace(_NO_LOAD, prompt=size))


def _pool(given: Mapping[str, str], which: str) -> dict[str, Any]:
    """Return the layout of a pool, as fields of a deployment."""
    of = {name: _stated(given, f"{which}_{name}") for name in ("workers", "tp", "attention_dp", "ep")}
    if of["workers"] is None or of["tp"] is None:
        raise Unanswered(f"disaggregated: {which}_workers and {which}_tp are not both given")
    tp, shared = of["tp"], of["attention_dp"] or 1.0
    ep = max(of["ep"] or 1.0, tp * shared if shared > 1 else 1.0)
    return {"tp": tp, "attention_dp": shared, "ep": ep, "dp": of["workers"]}


def _two_pools(
    row: Row, form: Form, key: str, unit: tuple[str, float, str], written: str, model: Model, system: System
) -> Asked:
    """Return what to evaluate for a run with prefill and decode on workers of their own."""
    given = row.given
    if key not in ("ttft", "ttft_median", "tpot", "latency", "output", "output_chip", "user"):
        raise Unanswered(f"{given['metric']} of two pools is not predicted")
    clients = number(given, "concurrency_or_batch")
    if clients is None:
        raise Unanswered("no concurrency is given")
    prompt, output = _lengths(given, form, clients, row.notes)
    weights, cache = _precisions(row, written, model, system)
    sides = {}
    for which in ("prefill", "decode"):
        plan = Deployment("given", row.engine, weights, cache, **_pool(given, which))
        try:
            check_plan(model, system, plan)
        except UserError as error:
            raise Unanswered(f"{which}: {error}") from None
        sides[which] = Scenario(system, model, plan, _traffic(given, form, prompt, output, clients))
    form = replace(form, how="pools")
    return Asked(row, form, key, unit[1], unit[2], iter([(sides["decode"], "")]), sides["prefill"])


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
    if prompt is None and output is not None and (mean := _MLPERF_PROMPTS.get(round(output, 2))):
        notes.append(f"isl is not given: {mean:g}, the mean of MLPerf's OpenOrca")
        prompt = mean
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
    curve = form.how in ("curve", "collective") and not given["model"]
    try:
        row.system = find_system(given["hardware"])
        model_name, written, note = ("", "", "") if curve else find_model(target_of(given["model"]))
    except Unanswered:
        if form.how in ("later", "accepted"):
            raise Unanswered(form.reason or _NO_ACCEPTANCE) from None
        raise
    model = _NO_MODEL if curve else _model(model_name)
    if not curve:
        row.model, row.kind = model.name, model_class(model)
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
    if form.how == "collective":
        return Asked(row, form, key, unit[1], unit[2], iter([(_collective_of(given, system, model), "")]))
    if form.how == "curve":
        return Asked(row, form, key, unit[1], unit[2], iter([(Scenario(system, model, _NO_PLAN, _NO_LOAD), "")]))
    if note:
        row.notes.append(note)
    mode = given.get("mode", "").casefold()
    if "disagg" in mode or "disagg" in given.get("engine", "").casefold():
        return _two_pools(row, form, key, unit, written, model, system)
    if _TAIL.fullmatch(given.get("stat", "").casefold()):
        raise Unanswered(FORMS["tail"].reason)
    if key == "ttft" and given.get("stat", "").casefold() in ("median", "p50"):
        form, key = FORMS["ttft_median"], "ttft_median"
    if "static batch" in given.get("load", "").casefold() and form.value is not None and machine.free_degrees:
        form = replace(form, how="static")
    if form.how == "speedup":
        row.fitted = drafting(given).fitted
    elif given.get("method", "").casefold() not in ("", "none") and plain(given, "k") != 0:
        if key != "user" or not machine.free_degrees or measured_length(given) is None:
            raise Unanswered("only the speed of one user is predicted for runs with a draft, at a measured length")
        form, key = FORMS["mtp"], "mtp"
    if re.search(r"pruned|sparse", given.get("notes", "").casefold()):
        row.notes.append("the run pruned or sparsified the model; the whole model is predicted")
    asked_for = number(given, "concurrency_or_batch") if form.how != "most" else None
    _conditions(row)
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
    shape = _shape(given, row.notes)
    tp, pp, ranks = shape.tp, shape.pp, shape.ranks
    deployment = Deployment("given", row.engine, weights, cache, tp=1.0)
    base = Scenario(system, model, deployment, traffic)
    if tp is None and (ranks == 0 or not machine.free_degrees):
        layouts = _default_layout(base, ranks)
    elif not machine.free_degrees:
        layouts = _plans(base, tp or ranks, pp)
    else:
        layouts = _layouts(base, shape, form.how != "most")
    return Asked(row, form, key, unit[1], unit[2], layouts)


def _conditions(row: Row) -> None:
    """Refuse a run that was no closed loop, and note what a run says of itself that no prediction takes in."""
    rate = number(row.given, "rate")
    if rate is not None:
        raise Unanswered(f"requests were sent at {rate:g}/s: closed loops are compared here; predict --rate answers it")
    if (lost := plain(row.given, "failures")) > 0:
        row.notes.append(f"{lost:g} requests failed, and are in none of the numbers")
    if row.given.get("warmup", "").casefold() in ("no", "0"):
        row.notes.append("without warm-up: what starts up inside the run is in its TTFT")


_NO_ACCEPTANCE = "no acceptance of this run stands in the data; trees do not follow the chain formula"
_NO_MODEL = Model("", "", "fp16", 1.0, 1.0, False, 1.0, ())
_NO_PLAN = Deployment("given", "native", "fp16", "fp16", tp=1.0)
_NO_LOAD = Traffic("given", 1.0, 1.0)


def _traffic(given: Mapping[str, str], form: Form, prompt: float, output: float, clients: float) -> Traffic:
    how: Mapping[str, Any] = harness(given) if form.how == "loop" else {}
    used = {name: value for name, value in how.items() if name in TRAFFIC_FIELDS}
    if "lengths +/-" in given.get("notes", "") or given.get("length_spread"):
        longest = 1 / (1 - float(used.get("length_jitter", 0.0)) / 2)
        prompt, output = prompt * longest, output * longest
    return Traffic("given", prompt, output, clients, **used)


def _precisions(row: Row, written: str, model: Model, system: System) -> tuple[str, str]:
    """Return the precisions of weights and cache, and note where a name does not say what it seems to."""
    given = row.given
    weights = find_precision(given.get("dtype_weights", ""), "dtype_weights") or written
    if not weights:
        weights = model.precision
        row.notes.append(f"the precision of the weights is not given: {weights}, the checkpoint's")
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
        lengths = (plain(given, "isl"), plain(given, "osl"))
        dated = given.get("row_id") and (_INFERENCEX.match(given["row_id"]) or lengths in public.INFERENCEX)
        listed = dated or row.engine.startswith("trt")
        known = public.kv_of_row(given["model"], row.engine, given["hardware"], weights_kept) if listed else None
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

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
from perfmodel.evidence.validate.layouts import default_layout, layout_of, nearest_layouts, plans, stated
from perfmodel.evidence.validate.metrics import FORMS, POWER, PREDICTED, Form, form_key
from perfmodel.evidence.validate.names import find_model, find_precision, find_system
from perfmodel.evidence.validate.reading import UNITS, Unanswered, number, plain, read_unit, whole
from perfmodel.evidence.validate.speedups import drafting, measured_length, target_of
from perfmodel.machines.base import machine_of
from perfmodel.question import check_plan, kv_rule
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine, read_engine
from perfmodel.specs.types import Deployment, Model, Scenario, System, Traffic
from perfmodel.specs.weights import model_class

_NAN = math.nan

_INFERENCEX = re.compile(r"^\d{4}_\d{2}_\d{2}_")


def harness(row: Mapping[str, str]) -> dict[str, Any]:
    """Return how the benchmark of a row sent its requests, as fields of :class:`Traffic`; its own columns win."""
    sent = number(row, "requests")
    settings = _set_harness(row) if sent is None else {"length_jitter": 0.0}
    if sent is not None:
        settings["rounds"] = max(1.0, sent / (number(row, "concurrency_or_batch") or 1.0))
    if row.get("length_spread"):
        half = plain(row, "length_spread")
        settings["length_jitter"] = 2 * half / (1 + half)
    if row.get("prefix_hits"):
        settings["prefix_hits"] = plain(row, "prefix_hits")
    return settings


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
    of = {name: stated(given, f"{which}_{name}") for name in ("workers", "tp", "attention_dp", "ep")}
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
    model, written, note = _named(row, form)
    _answerable(row, form)
    system = _settled(row, model)
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
    free = machine_of(system).free_degrees
    form, key = _narrowed(row, form, key, free)
    asked_for = number(given, "concurrency_or_batch") if form.how != "most" else None
    _conditions(row)
    form, key = _without_clients(row, form, key, asked_for)
    clients = asked_for or 1.0
    prompt, output = _lengths(given, form, clients, row.notes)
    weights, cache = _precisions(row, written, model, system)
    traffic = _traffic(given, form, prompt, output, clients)
    shape = layout_of(given, row.notes)
    deployment = Deployment("given", row.engine, weights, cache, tp=1.0)
    base = Scenario(system, model, deployment, traffic)
    if shape.tp is None and (shape.ranks == 0 or not free):
        layouts = default_layout(base, shape.ranks)
    elif not free:
        layouts = plans(base, shape.tp or shape.ranks, shape.pp)
    else:
        layouts = nearest_layouts(base, shape, form.how != "most")
    return Asked(row, form, key, unit[1], unit[2], layouts)


def _named(row: Row, form: Form) -> tuple[Model, str, str]:
    """Return the model of a row, the precision that its name says, and what is said of it; notes the system."""
    given = row.given
    curve = form.how in ("curve", "collective") and not given["model"]
    try:
        row.system = find_system(given["hardware"])
        name, written, note = ("", "", "") if curve else find_model(target_of(given["model"]))
    except Unanswered:
        if form.how in ("later", "accepted"):
            raise Unanswered(form.reason or _NO_ACCEPTANCE) from None
        raise
    if curve:
        return _NO_MODEL, written, note
    model = _model(name)
    row.model, row.kind = model.name, model_class(model)
    return model, written, note


def _answerable(row: Row, form: Form) -> None:
    """Refuse a metric that has no model, and a value that nothing can be compared with."""
    if form.how == "later":
        raise Unanswered(form.reason)
    if not math.isfinite(row.value) or row.value <= 0:
        raise Unanswered("no measured value, or none above 0, to compare with")
    if form.how == "accepted":
        raise Unanswered(_NO_ACCEPTANCE)


def _settled(row: Row, model: Model) -> System:
    """Return the system with the engine that ran, as the row names it."""
    written = row.given.get("engine", "")
    engine = str(find_engine(written) or "")
    bare = load_system(row.system, "")[0]
    if not machine_of(bare).free_degrees:
        engine = ""
    elif not engine and written:
        # What a row calls CUDA or TensorRT without more is NVIDIA's own engine.
        engine = "trtllm" if re.search("cuda|tensorrt", written.casefold()) else ""
        row.notes.append(f"engine '{written}' is taken as {engine or bare.default_engine}")
    system, row.engine, row.chip_calibrated = load_system(row.system, engine)
    row.system = system.name
    row.notes += catalog.in_place(system, model)
    return system


def _narrowed(row: Row, form: Form, key: str, free: bool) -> tuple[Form, str]:
    """Return the form of a row's metric as its statistic, load and draft narrow it."""
    given = row.given
    if _TAIL.fullmatch(given.get("stat", "").casefold()):
        raise Unanswered(FORMS["tail"].reason)
    if key == "ttft" and given.get("stat", "").casefold() in ("median", "p50"):
        form, key = FORMS["ttft_median"], "ttft_median"
    if "static batch" in given.get("load", "").casefold() and form.value is not None and free:
        form = replace(form, how="static")
    if form.how == "speedup":
        row.fitted = drafting(given).fitted
    elif given.get("method", "").casefold() not in ("", "none") and plain(given, "k") != 0:
        if key != "user" or not free or measured_length(given) is None:
            raise Unanswered("only the speed of one user is predicted for runs with a draft, at a measured length")
        form, key = FORMS["mtp"], "mtp"
    if re.search(r"pruned|sparse", given.get("notes", "").casefold()):
        row.notes.append("the run pruned or sparsified the model; the whole model is predicted")
    return form, key


def _without_clients(row: Row, form: Form, key: str, asked_for: float | None) -> tuple[Form, str]:
    """Return the form of a row that may not say its clients: what is largest then stands for it."""
    if asked_for is not None:
        return form, key
    if key in ("output", "output_chip"):
        form, key = FORMS["most"], "most"
        row.metric = form.family
        row.notes.append("no concurrency is given: the largest throughput")
    if key in ("power", "energy"):
        form = FORMS[f"{key}_most"]
        row.notes.append("no concurrency is given: at the largest throughput")
    if form.how in ("loop", "prompt", "step", "speedup"):
        raise Unanswered("no concurrency is given")
    return form, key


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

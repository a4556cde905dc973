"""From the columns of a row to the layouts that it may mean."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from perfmodel.errors import UserError
from perfmodel.evidence.validate.reading import MOST_CHIPS, Unanswered, number, plain, whole
from perfmodel.question import Options, check_plan, resolve
from perfmodel.specs.types import Scenario

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


def stated(row: Mapping[str, str], name: str) -> float | None:
    """Return a whole number of a column; 0 is not stated, as some sets have it."""
    return None if plain(row, name) == 0 else whole(row, name)


def layout_of(row: Mapping[str, str], notes: list[str]) -> Shape:
    """Return the layout of a row as its columns say, and note where labels are not what they seem."""
    tp, pp, ep = stated(row, "tp"), whole(row, "pp") or 1.0, stated(row, "ep") or 1.0
    chips, dp = stated(row, "n_chips"), stated(row, "dp") or stated(row, "replicas")
    attention_dp = stated(row, "attention_dp") or 1.0
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


def nearest_layouts(base: Scenario, shape: Shape, widest: bool) -> Iterator[tuple[Scenario, str]]:
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


def default_layout(base: Scenario, ranks: float) -> Iterator[tuple[Scenario, str]]:
    """Give the layout that a question without one gets."""
    plan, load = base.deployment, base.traffic
    if ranks:
        for known in base.system.plans:
            if known.pp == "1" and float(cast(float, known.tp)) == ranks:
                yield from plans(base, ranks, 1.0)
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


def plans(base: Scenario, tp: float, pp: float) -> Iterator[tuple[Scenario, str]]:
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
            scenario = resolve(base.model, base.system.name, replace(options, tp=wanted, pp=stages))
        except UserError:
            continue
        note = "" if wanted == tp else f"TP {tp:g} cannot be used here: TP {wanted:g} taken"
        yield replace(scenario, traffic=base.traffic, system=base.system), note

"""Request latency of served models (Figure 1), and the bare machine against public speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from perfmodel.errors import UserError
from perfmodel.evidence.calibrate import FITTED_SPEEDS, PUBLIC_SPEEDS, public_speed
from perfmodel.machines.base import machine_of
from perfmodel.machines.kv_cache import ACTIVATION_BYTES
from perfmodel.numerics import NAN
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Number, Table, Verdict, figure
from perfmodel.reports.ship.data import only_known
from perfmodel.specs import catalog
from perfmodel.specs.paths import put
from perfmodel.specs.types import PRECISION_BYTES
from perfmodel.specs.weights import layer_count

MODELS = (
    "llama-3.1-8b",
    "gpt-oss-20b",
    "qwen3-32b",
    "llama-3.3-70b",
    "gpt-oss-120b",
    "llama-4-scout",
    "llama-4-maverick",
    "kimi-k2",
)
#: Layouts of the pipeline, the first that holds a model is taken.
LAYOUTS = ("lpu-v1:plan=tp16-layers", "lpu-v1:plan=partition-72", "lpu-v1:plan=partition-136")
SYSTEMS = ("dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72:tp=8")
_WANTED = ("ttft_s", "tpot_s", "request_latency_s")


def _latency(scenario: Any) -> dict[str, float]:
    answer = evaluate(scenario, _WANTED)
    return {name: float(answer.metrics[name]) for name in _WANTED}


def _fitting(model: str, places: Sequence[str], options: Options) -> Any:
    """Return the scenario of the first layout that holds the model, or None."""
    for place in places:
        try:
            scenario = resolve(model, place, options)
        except UserError:
            continue
        if evaluate(scenario, ("tpot_s",)).fits:
            return scenario
    return None


def _stored(model: str, precision: str) -> str:
    """Return the smaller of the checkpoint's precision and the one asked for."""
    own = catalog.load_model(model).precision
    return min(own, precision, key=lambda name: PRECISION_BYTES[name])


def _on_gpus(model: str, on: str, options: Options) -> Any:
    """Return a scenario that fits, on two nodes where one is too small."""
    return _fitting(model, [on, f"{_short(on)}:tp=8,pp=2"], options)


def _row(model: str, system: str, scenario: Any) -> dict[str, Any]:
    """Return the times of one request on a system, NaN where the model does not fit."""
    if scenario is None:
        return {
            "model": model,
            "system": system,
            "precision": "does not fit",
            "chips": NAN,
            **dict.fromkeys(_WANTED, NAN),
        }
    plan = scenario.deployment
    chips = float(plan.tp * plan.pp)
    return {"model": model, "system": system, "precision": plan.precision, "chips": chips, **_latency(scenario)}


def _latency_frame(
    models: Sequence[str], on: Sequence[str], against: Sequence[str], beside: str, options: Options
) -> pd.DataFrame:
    """Return the times of one request: of the pipeline as calibrated and bare, of a dataflow machine, and of GPUs.

    ``side`` says which of them a row is; ``overhead`` is the time a layer that the calibrated pipeline loses [s].
    """
    rows: list[dict[str, Any]] = []
    for model in models:
        asked = replace(options, precision=_stored(model, str(options.precision)))
        base = _fitting(model, on, asked)
        if base is None:
            raise UserError(f"{model} fits none of {', '.join(on)}")
        overhead = float(base.system.efficiency.layer_overhead)
        for name, value in (("as calibrated", overhead), ("bare", 0.0)):
            scenario = put(base, "system.efficiency.layer_overhead", value)
            rows.append({**_row(model, f"{base.system.name}, {name}", scenario), "side": name, "overhead": overhead})
        rival = _fitting(model, [beside], asked)
        if rival is not None:
            rows.append({**_row(model, _short(beside), rival), "side": "beside"})
        gpus = [_row(model, _short(system), _on_gpus(model, system, asked)) for system in against]
        if all(row["precision"] == "does not fit" for row in gpus):
            raise UserError(f"{model} fits none of {', '.join(against)}")
        rows += [{**row, "side": "GPUs"} for row in gpus]
    return pd.DataFrame(rows)


def _short(on: str) -> str:
    return on.split(":")[0]


def _sides_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row a model: the request of each side [s], factors over the pipeline, the overhead that ties [us]."""
    rows = []
    for model, part in frame.groupby("model", sort=False):
        time = part.groupby("side").request_latency_s.min()
        gpus = part[part.side == "GPUs"].set_index("system").request_latency_s
        calibrated, bare, theirs = time["as calibrated"], time["bare"], time["GPUs"]
        # The request is affine in the overhead, so that the tie has a closed form.
        overhead = part.overhead.max()
        slope = (calibrated - bare) / overhead
        rows.append(
            {
                "model": model,
                "fastest": gpus.idxmin(),
                "gpus": theirs,
                "calibrated": calibrated,
                "bare": bare,
                "beside": time.get("beside", NAN),
                "factor": theirs / calibrated,
                "factor_bare": theirs / bare,
                "tie": (theirs - bare) / slope * 1e6,
                "overhead": overhead * 1e6,
            }
        )
    return pd.DataFrame(rows)


def _against_gpus(sides: pd.DataFrame) -> Claim:
    """Return what holds of the lowest latency against GPUs."""
    slower = sides.model[sides.factor < 1]
    return Claim(
        "The LPU pipeline has a lower latency than GPUs for every model it serves",
        "depends" if len(slower) or sides.factor_bare.min() < 1 else "holds",
        f"one request at a time, with 0 to {sides.overhead.iloc[-1]:.0f} us a layer that the bare machine does not "
        "explain"
        + (f", but as calibrated not for {', '.join(slower)}" if len(slower) else "")
        + f". A GPU system ties at {sides.tie.min():.0f} to {sides.tie.max():.0f} us, by model: the overhead decides.",
    )


def _with_dataflow(rival: str, sides: pd.DataFrame) -> Claim:
    """Return what holds of the lowest latency once a dataflow machine is compared."""
    both = sides[sides.beside.notna()]
    lost, bare = both[both.beside < both.calibrated], both[both.beside < both.bare]
    verdict: Verdict = "fails" if len(bare) else "depends" if len(lost) else "holds"
    flips = "; ".join(
        f"{one['model']} {one['beside']:.2f} against {one['calibrated']:.2f} s" for one in lost.to_dict("records")
    )
    return Claim(
        f"... and lower than {rival}'s",
        verdict,
        f"of {len(both)} models that both hold, {rival} is faster for {len(lost)} as the LPU is calibrated"
        + (f" ({flips})" if flips else "")
        + f" and for {len(bare)} against the bare machine. The paper compares with providers of its day.",
    )


def _latency_chart(frame: pd.DataFrame, traffic: str) -> Chart:
    """Return the time of one request by model and system."""
    titles = {
        "model": "model",
        "system": "system",
        "precision": "weights",
        "chips": "chips",
        "ttft_s": "TTFT [s]",
        "tpot_s": "TPOT [s]",
        "request_latency_s": "request latency [s]",
    }
    return Chart(
        "ship-latency",
        f"Time of one request, {traffic}",
        frame[list(titles)],
        titles,
        "model",
        "request_latency_s",
        (Layer("bar"),),
        color="system",
        caption="The paper's figure 1 has no readable values: it shows the LPU's service as the fastest",
    )


def _sides_table(sides: pd.DataFrame) -> Table:
    """Return the fastest GPU system of each model beside the pipeline."""
    return Table(
        "Fastest GPU system, and the overhead a layer at which it ties",
        (
            "model",
            "fastest GPUs",
            "GPUs [s]",
            "LPU, calibrated [s]",
            "LPU, bare [s]",
            "factor",
            "factor bare",
            "tie [us a layer]",
        ),
        [
            (
                side["model"],
                side["fastest"],
                f"{side['gpus']:.2f}",
                f"{side['calibrated']:.2f}",
                f"{side['bare']:.3f}",
                f"{side['factor']:.1f}x",
                f"{side['factor_bare']:.0f}x",
                f"{side['tie']:.0f}",
            )
            for side in sides.to_dict("records")
        ],
        (2, 3, 4, 5, 6, 7),
    )


@figure("ship-latency")
def latency(
    models: Sequence[str] = MODELS,
    on: Sequence[str] = LAYOUTS,
    against: Sequence[str] = SYSTEMS,
    beside: str = "sn40l-16",
    traffic: str = "chat",
    concurrency: float = 1,
    precision: str = "fp8",
) -> Figure:
    """End-to-end latency by model (Figure 1): the LPU pipeline against GPU systems, and beside a dataflow machine."""
    options = Options(traffic=traffic, concurrency=concurrency, precision=precision)
    frame = _latency_frame(models, on, against, beside, options)
    sides = _sides_frame(frame)
    return Figure(
        "End-to-end latency by model",
        f"One request of {traffic} at a time: with the overhead drawn from public speeds the pipeline is "
        f"{sides.factor.min():.1f} to {sides.factor.max():.1f} times as fast as the fastest GPU system, bare "
        f"{sides.factor_bare.min():.0f} to {sides.factor_bare.max():.0f} times. It flips where a layer loses more than "
        f"{sides.tie.min():.0f} to {sides.tie.max():.0f} us, by model.",
        charts=(_latency_chart(frame, traffic),),
        claims=(_against_gpus(sides), _with_dataflow(_short(beside), sides)),
        tables=(_sides_table(sides),),
        notes=(
            f"Weights have {precision} on every system, or what the checkpoint has where that is smaller.",
            "The public service's queues, network and other users are not in these times.",
            "GPU times include a server's front end; no public number gives one for the LPU.",
        ),
    )


#: Public output speeds of GroqCloud as time a layer [us].  Speeds of the 8B range from 560 to 840 tokens/s, of the 70B
#: from 250 to 300.
PUBLIC = {"llama-3.1-8b": 56.0, "llama-3.3-70b": 45.0, "gpt-oss-120b": 56.0, "gpt-oss-20b": 42.0}
#: Causes that can be estimated [us a layer], low and high; what they leave is named as unexplained.
_CAUSES = (
    ("16-bit conversion of weights", 0.5, 1.0),
    ("partly empty tiles", 0.3, 1.0),
    ("filling the matrix units", 1.5, 2.0),
    ("12 to 15 dependent vector operations", 3.0, 5.0),
)


def _calibrated_speeds(models: Sequence[str]) -> tuple[list[tuple[str, ...]], list[Number]]:
    """Return the calibrated LPU beside public speeds, model by model, and those that the fit did not see."""
    table: list[tuple[str, ...]] = []
    numbers: list[Number] = []
    for model in models:
        scenario = resolve(model, "lpu-v1", Options(prompt=1024.0, output=256.0))
        speed = 1 / float(evaluate(scenario, ("tpot_s",)).metrics["tpot_s"])
        low, high, date = PUBLIC_SPEEDS[model]
        public, seen = public_speed(model), model in FITTED_SPEEDS
        plan = f"TP{float(scenario.deployment.tp):g} PP{float(scenario.deployment.pp):g}"
        given = f"{low:.0f}" if low == high else f"{low:.0f}-{high:.0f}"
        table.append((model, plan, date, given, f"{speed:.0f}", f"{speed / public:.2f}", "yes" if seen else "no"))
        if not seen:
            numbers.append(
                Number(
                    f"{model}, calibrated, one user",
                    speed,
                    "tok/s",
                    public,
                    "predicted",
                    source="public output speeds of GroqCloud",
                    note=f"{given} tok/s, {date}; not seen by the fit",
                )
            )
    return table, numbers


def _causes(model: str, on: str, options: Options) -> tuple[float, list[tuple[str, float]]]:
    """Return the layers of a model, and what of the public time a layer each cause explains [us]."""
    asked = resolve(model, on, options)
    scenario = put(asked, "system.efficiency.layer_overhead", 0.0)
    system, layers = scenario.system, float(layer_count(scenario.model))
    answer = evaluate(scenario)
    bare = float(answer.metrics["tpot_s"]) / layers * 1e6
    links = float(answer.breakdown["decode"]["collective"]) / layers * 1e6
    curve = machine_of(system).all_reduce(system, scenario.model.hidden * ACTIVATION_BYTES)
    assert curve is not None
    hidden = 2e6 * float(curve[0]) + float(system.link.hop_latency) * 1e6 - links
    parts = [
        ("bare: SRAM and matrix units", bare - links),
        ("bare: exposed all-reduces and hop", links),
        ("two all-reduces, if nothing hides them", max(0.0, hidden)),
        *((name, (low + high) / 2) for name, low, high in _CAUSES),
    ]
    parts.append(("unexplained", PUBLIC[model] - sum(value for _, value in parts)))
    return layers, parts


def _causes_frame(models: Sequence[str], on: str, options: Options) -> pd.DataFrame:
    """Return the public time a layer by cause [us]."""
    rows: list[dict[str, Any]] = []
    for model in models:
        layers, parts = _causes(model, on, options)
        rows += [
            {
                "model": model,
                "cause": name,
                "us": value,
                "public": PUBLIC[model],
                "kind": "predicted" if name.startswith("bare") else "estimate",
                "layers": layers,
            }
            for name, value in parts
        ]
    return pd.DataFrame(rows)


def _bare_numbers(causes: pd.DataFrame) -> list[Number]:
    """Return the bare time a layer of each model beside the public one."""
    return [
        Number(
            f"{model}, bare, a layer",
            float(part.us[part.kind == "predicted"].sum()),
            "us",
            float(part.public.iloc[0]),
            "predicted",
            source="public output speeds of GroqCloud",
            note=f"uncalibrated; {part.layers.iloc[0]:g} layers",
        )
        for model, part in causes.groupby("model", sort=False)
    ]


def _causes_chart(causes: pd.DataFrame) -> Chart:
    """Return the time a layer of each model, cause by cause."""
    titles = {
        "model": "model",
        "cause": "cause",
        "us": "time a layer [us]",
        "public": "public time a layer [us]",
        "kind": "kind",
    }
    return Chart(
        "ship-public-speeds",
        "Time a layer: the bare model, causes that can be estimated, and the rest",
        causes[list(titles)],
        titles,
        "us",
        "model",
        (Layer("bar"),),
        color="cause",
        stacked=True,
        across=True,
        caption=(
            "Uncalibrated. Public: output speeds of GroqCloud 2024-26, middle of the range. Every cause but "
            "the bare model is an estimate"
        ),
    )


@figure("ship-public-speeds")
def public_speeds(
    models: Sequence[str] = ("llama-3.1-8b", "gpt-oss-20b", "llama-3.3-70b", "gpt-oss-120b"),
    on: str = "lpu-v1:plan=tp16-layers",
    precision: str = "fp8",
    context: float = 1024,
) -> Figure:
    """The bare LPU model against public speeds, in microseconds a layer, uncalibrated."""
    only_known(models, PUBLIC)
    causes = _causes_frame(models, on, Options(precision=precision, prompt=context, output=64.0))
    table, calibrated = _calibrated_speeds(models)
    bare = _bare_numbers(causes)
    least, most = (pick(number.computed for number in bare) for pick in (min, max))
    explained = causes[causes.cause != "unexplained"].groupby("model").us.sum()
    return Figure(
        "The bare LPU against public speeds",
        f"Public speeds take {causes.public.min():.0f} to {causes.public.max():.0f} us a layer, hardly moved by the "
        f"weights; the bare model takes {least:.1f} to {most:.1f} us and all estimated causes together "
        f"{explained.min():.0f} to {explained.max():.0f} us.",
        charts=(_causes_chart(causes),),
        tables=(
            Table(
                "Calibrated, the default plan, one user of 1,024 tokens in and 256 out, against public speeds",
                (
                    "model",
                    "plan",
                    "date",
                    "public [tok/s]",
                    "predicted [tok/s]",
                    "predicted / public",
                    "seen by the fit",
                ),
                table,
                (3, 4, 5),
            ),
        ),
        numbers=(*bare, *calibrated),
        notes=(
            "The time a layer of the calibrated LPU is drawn from two of the public speeds; two are predictions.",
            "Public data cannot tell a fixed beat from queued micro-batches; the overhead is carried as an estimate of "
            "0 to 50 us and both ends are shown.",
            "The estimated causes: " + ", ".join(f"{name} {low:g} to {high:g} us" for name, low, high in _CAUSES) + ".",
        ),
    )

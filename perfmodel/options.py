"""What a question may fix beside its model and its systems: one table for the command line and for Python.

Each option stands once, with its type, how it is written and what it means.  The command line makes ``--max-chips`` of
``max_chips`` and reads text; Python takes the same text, or numbers.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Required, TypedDict, get_args, get_origin, get_type_hints

#: Ranges of what fills no field.
_MOST = {"most": 1e12, "above": True}
_COUNT = {"least": 1.0, "whole": True}
_SHARE = {"most": 1.0}
_INSIDE = {"most": 1.0, "above": True, "below": True}
_TIME = _MOST
_PACE = {"most": 1e9, "above": True}
_SEED = {"whole": True}
_SAMPLES = {"least": 64.0, "most": 2.0**20, "whole": True}

#: A number, or a quantity as text.
Quantity = float | str
#: Some of them, or their text with commas.
Quantities = str | Sequence[float | str]
#: A name, or a file.
Name = str | Path


class Said(NamedTuple):
    """How an option is written, and what it means.

    ``unit`` is that of a number, empty for a word, and None for what is read where it is used; ``span`` are the ends of
    its range, where the option fills no field that has one; several of them may be ``of`` another option.  A ``switch``
    has no value.
    """

    metavar: str
    help: str
    unit: str | None = ""
    span: Mapping[str, Any] = MappingProxyType({})
    of: str = ""
    many: bool = False
    hidden: bool = False
    switch: bool = False


class Question(TypedDict, total=False):
    """What every question may fix; what is not given is assumed, and the answer says as what."""

    plan: Annotated[str | None, Said("NAME", "Plan of the system by its name, in place of TP and PP.")]
    tp: Annotated[Quantity | None, Said("N", "Tensor-parallel degree.", "1")]
    pp: Annotated[Quantity | None, Said("N", "Pipeline stages.", "1")]
    ep: Annotated[Quantity | None, Said("N", "Expert-parallel degree.", "1")]
    dp: Annotated[Quantity | None, Said("N", "Replicas.", "1")]
    attention_dp: Annotated[
        Quantity | None, Said("N", "Groups of ranks that hold attention whole and share experts.", "1")
    ]
    engine: Annotated[str | None, Said("ENGINE", "vllm, trtllm, sglang or native, with a release as in vllm-0.12.")]
    precision: Annotated[str | None, Said("P", "Storage of the weights: bf16 fp16 fp8 int8 fp4 mxfp4 int4.")]
    kv_precision: Annotated[str | None, Said("P", "Storage of the KV cache.")]
    traffic: Annotated[Name | None, Said("NAME", "chat, code, rag, reasoning, agent, pd-1 ... pd-32.")]
    prompt: Annotated[Quantity | None, Said("P", "Prompt tokens, with the output tokens.", "1")]
    output: Annotated[Quantity | None, Said("D", "Output tokens, with the prompt tokens.", "1")]
    concurrency: Annotated[Quantity | None, Said("N", "Requests at once, all replicas together.", "1")]
    images: Annotated[
        Quantity | None, Said("N", "Images of a request; their tokens are added to the prompt.", "1", _COUNT)
    ]
    draft: Annotated[
        Name | None, Said("MODEL", "Draft model of speculative decoding; eagle, mtp: one layer; ngram: look-up.")
    ]
    k: Annotated[Quantity | None, Said("N", "Tokens drafted a step, with a draft.", "1")]
    alpha: Annotated[
        Quantity | None,
        Said("A", "Chance that a drafted token is accepted if those before it were, at every position.", "1"),
    ]
    ar: Annotated[Quantity | None, Said("A", "Tokens of a step, the target's own included, over k + 1.", "1")]
    accept: Annotated[
        Quantities | None,
        Said(
            "A1,A2,...", "The chance position by position, each if all before it were accepted.", "1", _SHARE, many=True
        ),
    ]
    accept_logged: Annotated[
        Quantities | None,
        Said(
            "R1,R2,...",
            "The same as engines log it: the share of steps in which a position was accepted, of all steps.",
            "1",
            _SHARE,
            many=True,
        ),
    ]


class Priced(Question, total=False):
    """The same where the answer has money in it."""

    prices: Annotated[
        Name | None, Said("DATE|FILE", "Release of prices, as 2026-11; the newest if none. Bases: economics.basis.")
    ]
    region: Annotated[
        Name | None, Said("NAME", "Where machines stand: electricity, space, carbon, PUE and water of it; us-va, de.")
    ]


class Arrivals(TypedDict, total=False):
    """How requests arrive, where a rate is given."""

    arrival_scv: Annotated[
        Quantity | None, Said("C", "Squared coefficient of variation of arrivals; 1 is Poisson.", "1")
    ]
    prefix_hits: Annotated[Quantity | None, Said("H", "Share of the prompt tokens found in a cache.", "1")]
    lengths: Annotated[
        Name | None, Said("NAME|FILE", "azure-chat, azure-code, mooncake-..., fixed, lognormal, or a trace.")
    ]
    routing: Annotated[
        str | None, Said("R", "Of requests to replicas: least-loaded (the default), round-robin, random or prefix.")
    ]


class Started(TypedDict, total=False):
    """How a closed loop starts."""

    steady: Annotated[
        bool | None,
        Said(
            "",
            "Times of the long run; without it all clients start at once and run ten rounds, as public benchmarks do.",
            unit=None,
            switch=True,
        ),
    ]


class LoopQuestion(Priced, Started, total=False):
    """A question about a closed loop."""


_LIMIT = Said("T", "Objective, a time not to exceed: 500ms.", "s", _TIME)
_BESIDE = _LIMIT._replace(hidden=True)


class Limits(TypedDict, total=False):
    """Times that a load shall not exceed."""

    ttft_p50: Annotated[Quantity | None, _BESIDE]
    ttft_p90: Annotated[Quantity | None, _BESIDE]
    ttft_p95: Annotated[Quantity | None, _BESIDE]
    ttft_p99: Annotated[Quantity | None, _LIMIT]
    ttft_mean: Annotated[Quantity | None, _BESIDE]
    tpot_p50: Annotated[Quantity | None, _BESIDE]
    tpot_p90: Annotated[Quantity | None, _BESIDE]
    tpot_p95: Annotated[Quantity | None, _BESIDE]
    tpot_p99: Annotated[Quantity | None, _LIMIT]
    tpot_mean: Annotated[Quantity | None, _BESIDE]
    itl_p50: Annotated[Quantity | None, _BESIDE]
    itl_p90: Annotated[Quantity | None, _BESIDE]
    itl_p95: Annotated[Quantity | None, _BESIDE]
    itl_p99: Annotated[Quantity | None, _LIMIT]
    itl_mean: Annotated[Quantity | None, _BESIDE]
    latency_p50: Annotated[Quantity | None, _BESIDE]
    latency_p90: Annotated[Quantity | None, _BESIDE]
    latency_p95: Annotated[Quantity | None, _BESIDE]
    latency_p99: Annotated[Quantity | None, _LIMIT]
    latency_mean: Annotated[Quantity | None, _BESIDE]


_RATE = Said("R", "Requests a second, all replicas together.", "1/s", _PACE)


class Rated(TypedDict):
    """What arrives."""

    rate: Annotated[Quantity, _RATE]


class WithSessions(TypedDict, total=False):
    """Sessions in place of a traffic, and what holds their prefixes."""

    sessions: Annotated[
        Name | None, Said("NAME|FILE", "Sessions of agents or conversations, in place of a traffic: coding-agent.")
    ]
    tier: Annotated[
        Quantities | None,
        Said(
            "NAME=SIZE@RATE,...",
            "Tiers of the prefix cache below the chips' memory, nearest first: host=1TB@50GB/s, disk, store (shared by "
            "all replicas); @8ms behind it is the time before the first byte.",
            many=True,
        ),
    ]


class Visits(WithSessions, total=False):
    """Who comes with sessions, in place of a traffic."""

    users: Annotated[
        Quantity | None,
        Said("N", "People with such sessions, all replicas together.", "1", {"least": 1.0, "most": 1e7}),
    ]


class RateQuestion(Priced, Rated, Limits, Arrivals, Started, Visits, total=False):
    """A question about requests that arrive at a rate, or about users with sessions."""


class Within(TypedDict, total=False):
    """What a deployment may not exceed."""

    max_chips: Annotated[Quantity | None, Said("N", "Chips beyond which a plan is no answer.", "1", _COUNT)]
    max_nodes: Annotated[Quantity | None, Said("N", "Nodes beyond which a plan is no answer.", "1", _COUNT)]
    max_power: Annotated[
        Quantity | None,
        Said("W", "Power of the machines by their nameplate: 100kW.", "W", _MOST),
    ]
    max_cost: Annotated[
        Quantity | None,
        Said(
            "USD",
            "Price of the machines, with network, storage and spares: 2M USD.",
            "USD",
            {"most": 1e12, "above": True},
        ),
    ]


class Coming(TypedDict, total=False):
    """Requests that come: at one rate or several, or from people, and how they grow."""

    rate: Annotated[
        Quantities | None,
        Said("R[,R...]", "Requests a second, all replicas together; several: an answer each.", "1/s", _PACE, many=True),
    ]
    users: Annotated[
        Quantity | None, Said("N", "People, in place of a rate; with --sessions those who have them.", "1", _COUNT)
    ]
    active: Annotated[
        Quantity | None, Said("SHARE", "Share of the people who are at it at the same time.", "1", _SHARE)
    ]
    requests_per_minute: Annotated[
        Quantity | None, Said("N", "Requests a minute of each person who is at it.", "1", _PACE)
    ]
    peak: Annotated[
        Quantity | None, Said("F", "Busiest time over the mean of what people ask.", "1", {"least": 1.0, "most": 1e3})
    ]
    growth: Annotated[Name | None, Said("G/year", "Growth of the rate a year, with --years: 60%/year.")]
    years: Annotated[Quantity | None, Said("N", "Years to look ahead, with --growth.", "1", {**_COUNT, "most": 30.0})]


_UNMEASURED = Said(
    "", "Try layouts that nobody has measured too: stages on GPUs, TP over nodes.", unit=None, switch=True
)
_NO_OBJECTIVE = Said("", "Only keep up with the rate, however long requests wait.", unit=None, switch=True)


class SizeQuestion(Priced, Coming, Limits, Arrivals, WithSessions, Within, total=False):
    """What a search for the least deployment may fix."""

    least: Annotated[str | None, Said("GOAL", "What to make least: cost (the default), power or chips.")]
    precisions: Annotated[
        Quantities | None, Said("P,P,...", "Storage of the weights to try.", of="precision", many=True)
    ]
    ks: Annotated[Quantities | None, Said("K,K,...", "Tokens drafted a step to try.", "1", of="k", many=True)]
    allow_unmeasured: Annotated[bool | None, _UNMEASURED]
    no_objective: Annotated[bool | None, _NO_OBJECTIVE]
    confidence: Annotated[
        Quantity | None,
        Said("P", "Chance of meeting the objectives, over what is not known of chip and engine: 0.9.", "1", _INSIDE),
    ]
    headroom: Annotated[
        Quantity | None, Said("SHARE", "Growth of the rate to leave room for: 30%.", "1", {"most": 100.0})
    ]
    availability: Annotated[
        Quantity | None,
        Said(
            "A",
            "Share of time that enough must work: 0.999.",
            "1",
            _INSIDE,
        ),
    ]
    chip_mtbf: Annotated[
        Quantity | None, Said("T", "Time between failures of a chip, with an availability: 50000h.", "s", _TIME)
    ]
    profile: Annotated[
        Quantities | None, Said("S,S,...", "Shares of the rate by period, as hours of a day.", "1", _SHARE, many=True)
    ]
    separate: Annotated[
        bool | None,
        Said("", "A mix (--traffic NAME@RATE, repeated) on a fleet each too.", unit=None, switch=True),
    ]
    save: Annotated[
        Name | None, Said("FILE", "Write question and best plan to a file, which plans check reads.", unit=None)
    ]


class CapacityQuestion(Priced, Limits, Arrivals, total=False):
    """What the most that machines can serve may fix."""

    nodes: Required[Annotated[Quantity, Said("N", "Nodes that there are, of each system.", "1", _COUNT)]]
    rate: Annotated[Quantity | None, _RATE]
    allow_unmeasured: Annotated[bool | None, _UNMEASURED]
    no_objective: Annotated[bool | None, _NO_OBJECTIVE]


class PoolsQuestion(SizeQuestion, total=False):
    """A search for two pools, each on a plan of its own."""

    prefill_on: Required[
        Annotated[
            Name,
            Said("SYSTEM[:...]", "A pool for prefill only; the one system of the question is the pool for decode."),
        ]
    ]


class SimulateQuestion(Question, Arrivals, Started, Visits, total=False):
    """What a simulation may fix: one of rate, trace, concurrency and sessions says what arrives."""

    rate: Annotated[Quantity | None, _RATE]
    trace: Annotated[Name | None, Said("FILE", "Replay arrivals and lengths of a CSV or JSON-lines trace.")]
    requests: Annotated[
        Quantity | None,
        Said(
            "N",
            "Requests to draw a seed, or in all of a loop of few rounds, or to take of the trace; 5000.",
            "1",
            _COUNT,
        ),
    ]
    seed: Annotated[Quantity | None, Said("N", "The first of the random draws; 1.", "1", _SEED)]


class FitQuestion(Question, total=False):
    """What a question about memory may fix."""

    context: Annotated[
        Quantity | None, Said("N", "Tokens of a request; by default the most that the model takes.", "1", _COUNT)
    ]


class LaunchQuestion(FitQuestion, total=False):
    """What a command that starts engines may fix."""

    prefill_on: Annotated[
        Name | None,
        Said("SYSTEM[:...]", "A pool for prefill only; the one system of the question is the pool for decode."),
    ]
    format: Annotated[str | None, Said("TOOL", "What reads it: shell (the default), kubernetes, llm-d or dynamo.")]


class CostQuestion(Priced, Visits, total=False):
    """What a question about cost may fix."""

    tpot: Annotated[
        Quantity | None,
        Said("T", "Bound on TPOT, 30ms: each system is set to what costs least under it.", "s", _TIME),
    ]
    samples: Annotated[
        Quantity | None,
        Said("N", "Quasi-random samples over all that is not known; a power of 2 is best.", "1", _SAMPLES),
    ]
    against_api: Annotated[
        bool | None,
        Said("", "Compare owning, renting and token prices, and say at which load each wins.", unit=None, switch=True),
    ]
    growth: Annotated[Name | None, Said("G/year", "Growth of the load a year, in the cash flow: 30%/year.")]
    cash: Annotated[
        Name | None, Said("FILE.csv|.xlsx", "Write the cash flow of each system by year to a file.", unit=None)
    ]


class ExplainQuestion(Priced, Started, total=False):
    """What a derivation may fix."""

    depth: Annotated[Quantity | None, Said("N", "How many equations deep; 4.", "1", _COUNT)]


class SolveQuestion(Priced, total=False):
    """What a break-even needs."""

    for_: Required[Annotated[str, Said("INPUT", "Path of the input to vary.")]]
    target: Required[Annotated[Quantity, Said("VALUE", "What the metric shall be, with its unit.", unit=None)]]


class StoredQuestion(Priced, Visits, total=False):
    """How a sweep is written to a folder."""

    out: Required[
        Annotated[Name, Said("FILE.csv|.parquet|DIR", "Write to a file, or in partitions to a folder.", unit=None)]
    ]
    keep: Annotated[
        str | None,
        Said(
            "REDUCTION",
            "Of all points keep pareto:METRIC,METRIC or best:METRIC or quantiles:METRIC, each with :by=AXIS,... if "
            "wanted; with a folder.",
        ),
    ]
    executor: Annotated[str | None, Said("local|dask", "Where partitions are worked out; with a folder.")]
    scheduler: Annotated[str | None, Said("ADDRESS", "A Dask cluster that runs; else one starts here.")]
    workers: Annotated[
        Quantity | None,
        Said("N", "Processes of a Dask cluster that starts here; one a core if not given.", "1", _COUNT),
    ]


@functools.cache
def options_of(kind: type) -> dict[str, Said]:
    """Return what each option of a question is, by its name in Python.

    Parameters
    ----------
    kind : type
        :class:`Question` or one that has more.

    Returns
    -------
    dict of str to Said
    """
    options = {}
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        if get_origin(annotation) is Required:
            (annotation,) = get_args(annotation)
        options[name] = next(part for part in get_args(annotation) if isinstance(part, Said))
    return options


def flag(name: str) -> str:
    """Return an option as the command line writes it: ``--max-chips`` of ``max_chips``.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
    """
    return f"--{name.rstrip('_').replace('_', '-')}"


def unknown(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    """Return what is wrong with the name of an option, and which may be meant.

    Parameters
    ----------
    name : str
    known : mapping or sequence of str
        Names that there are.

    Returns
    -------
    str
    """
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    return f"there is no option '{name}': " + (f"did you mean {' or '.join(close)}?" if close else "help() lists them")

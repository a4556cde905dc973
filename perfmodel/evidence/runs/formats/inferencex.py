"""InferenceX's ``agg_*.json``.  Times are in seconds, without the unit in the key; lengths are the set ones.

Throughput a GPU: of two pools the output counts decoding GPUs only, the input prefill ones, so it is taken times those.
"""

from __future__ import annotations

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document, Record
from perfmodel.evidence.runs.run import STATISTICS, Format, Run, each

_LABEL = "InferenceX"
_KEYS = ("hw", "conc", "isl", "osl", "framework")
_NEEDS = ("hw", "conc", "model", "framework", "precision", "isl", "osl", "tput_per_gpu", "output_tput_per_gpu")
_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "latency"}
_POOL = {"num_workers": "workers", "tp": "tp", "ep": "ep"}


def _read(document: Document) -> list[Run]:
    return [_run(Record(document, _LABEL, content)) for content in document.objects]


def _run(record: Record) -> Run:
    for name in _NEEDS:
        if record.find(name) is None:
            raise UserError(f"{record.name} ({_LABEL}): no field '{name}'; the file is not whole")
    run = Run(f"{record.name} ({_LABEL})", longest=True)
    for name, column in (("hw", "hardware"), ("model", "model"), ("precision", "dtype_weights")):
        run.state(column, record.text(name), name)
    # The image is the one thing that says the release.
    image = record.text("image").rpartition(":")[2].lstrip("v")
    run.state("engine", f"{record.text('framework')} {image}".strip(), "framework, image")
    for name, column in (("isl", "isl"), ("osl", "osl"), ("conc", "concurrency_or_batch")):
        run.state(column, record.need(name), name)
    two_pools = record.text("disagg").casefold() == "true"
    decoding = _pools(run, record) if two_pools or record.find("prefill_tp") is not None else _one(run, record)
    rate = record.need("output_tput_per_gpu") * decoding
    run.measure("output_throughput", "mean", rate, "tok/s", "output_tput_per_gpu x GPUs")
    for name, metric in _LATENCIES.items():
        for stat, said in STATISTICS.items():
            value = record.number(f"{stat}_{name}")
            run.measure(metric, said, None if value is None else value * 1e3, "ms", f"{stat}_{name}")
    if record.number("power_valid") != 0:
        run.measure("gpu_power", "mean", record.number("avg_power_w"), "W", "avg_power_w")
    if not any(value.metric in ("ttft", "tpot") for value in run.values):
        raise UserError(f"{record.name} ({_LABEL}): no field 'mean_ttft'; the file is not whole")
    return run


def _one(run: Run, record: Record) -> float:
    """State the layout of one pool and return its GPUs [1]."""
    tp, ep = record.need("tp"), record.number("ep")
    pp, prefill_context = record.number("pp") or 1.0, record.number("pcp_size") or 1.0
    chips = tp * pp * prefill_context
    run.state("ep", ep, "ep")
    run.state("pp", pp, "pp")
    run.state("n_chips", chips, "tp x pp x pcp_size")
    if record.text("dp_attention").casefold() == "true":
        # Ranks that hold attention whole, all of those that the file calls tp.
        run.state("tp", 1.0, "dp_attention")
        run.state("attention_dp", tp, "tp, dp_attention")
    else:
        run.state("tp", tp, "tp")
    return chips


def _pools(run: Run, record: Record) -> float:
    """State the layouts of two pools and return the GPUs that decode [1]."""
    run.state("mode", "disagg", "disagg")
    for pool in ("prefill", "decode"):
        for name, column in _POOL.items():
            run.state(f"{pool}_{column}", record.number(f"{pool}_{name}"), f"{pool}_{name}")
        if record.text(f"{pool}_dp_attention").casefold() == "true":
            ranks = record.need(f"{pool}_tp")
            run.state(f"{pool}_tp", 1.0, f"{pool}_dp_attention")
            run.state(f"{pool}_attention_dp", ranks, f"{pool}_tp, {pool}_dp_attention")
    decoding = record.need("num_decode_gpu")
    run.state("n_chips", record.need("num_prefill_gpu") + decoding, "num_prefill_gpu + num_decode_gpu")
    return decoding


FORMAT = Format(_LABEL, lambda document: {*_KEYS} <= document.keys, each(_read), _KEYS, _NEEDS)

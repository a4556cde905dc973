"""What no machine can beat, and what must hold of every answer.

Bytes and FLOPs are counted here from the models' dimensions, and peaks are those of the data sheets: nothing of the
project's own equations stands on this side of a comparison.
"""

import functools
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.equations import pipeline
from perfmodel.errors import UserError
from perfmodel.machines.base import machine_of
from perfmodel.machines.dataflow import DataflowEfficiency
from perfmodel.machines.kernels_efficiency import AllReduce, KernelsEfficiency
from perfmodel.prediction import evaluate
from perfmodel.question import Options, resolve
from perfmodel.serving import fit
from perfmodel.specs import catalog

REFERENCE = json.loads((Path(__file__).parent.parent / "data" / "models.json").read_text(encoding="utf-8"))["models"]
#: The own count below is one of dense models with full attention in every layer.
PLAIN = {
    entry["hf_id"].casefold()
    for entry in REFERENCE.values()
    if entry["type"] == "dense" and not entry["sliding_window"]
}
MODELS = sorted(name for name, _, _ in catalog.entries("model") if catalog.load_model(name).hf_id.casefold() in PLAIN)
#: Published memory bandwidth [B/s] and dense rates [FLOP/s] of a chip; what is not named runs at the BF16 rate.
PUBLISHED = {
    "dgx-h100": (3.35e12, {"bf16": 989.4e12, "fp8": 1979e12, "int8": 1979e12}),
    "dgx-h200": (4.8e12, {"bf16": 989.4e12, "fp8": 1979e12, "int8": 1979e12}),
    "dgx-b200": (8.0e12, {"bf16": 2250e12, "fp8": 4500e12, "int8": 4500e12, "fp4": 9000e12, "mxfp4": 4500e12}),
    "sn40l-16": (1.6e12, {"bf16": 638e12}),
    "lpu-v1": (18.432e12, {"bf16": 188e12, "int8": 750e12}),
}
GPU = ("tp1", "tp2", "tp4", "tp8", "2x8", "4x8")
LAYOUTS = {
    "dgx-h100": GPU,
    "dgx-h200": GPU,
    "dgx-b200": GPU,
    "sn40l-16": ("tp16",),
    "lpu-v1": ("partition-72", "partition-136", "tp8", "tp16", "tp16-layers", "ship-16x95"),
}
BITS = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "fp4": 4, "mxfp4": 4, "int4": 4}
#: Nothing is lost to rounding beyond this.
SHORT = 1 + 1e-9

LAID_OUT = {
    "model": st.sampled_from(MODELS),
    "question": st.sampled_from([(system, plan) for system, plans in LAYOUTS.items() for plan in plans]),
    "precision": st.sampled_from(["bf16", "fp8", "int8", "fp4", "int4"]),
    "cache": st.sampled_from(["bf16", "fp8"]),
}
BATCHES = st.integers(1, 1024).map(float)
CONTEXTS = st.integers(1, 131072).map(float)


def limits(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


@functools.cache
def asked(model, system, plan, precision):
    """Return the scenario of a plan, or None where the model cannot be cut so or the system has no such rate."""
    given = {"precision": precision, "kv_precision": "bf16", "prompt": 1024, "output": 128}
    try:
        return resolve(loaded(model), system, Options(plan=plan, **given))
    except UserError:
        return None


@functools.cache
def loaded(model):
    return catalog.load_model(model)


def fitting(model, question, precision, cache="bf16", **traffic):
    """Return a scenario that fits; cases that do not are no cases."""
    scenario = asked(model, *question, precision)
    assume(scenario is not None)
    scenario = replace(
        scenario,
        deployment=replace(scenario.deployment, kv_precision=cache, dp=traffic.pop("dp", 1.0)),
        traffic=replace(scenario.traffic, **traffic),
    )
    assume(fit.fit(scenario).cap >= 1)
    return scenario


# --- an own count ------------------------------------------------------------------------------------------------


def layer_weights(model, run):
    """Matrices of one layer: Q and O, K and V, and three of a gated MLP; biases and scales are left out."""
    attention = run.attention
    q, kv = attention.heads * attention.head_dim, attention.kv_heads * attention.head_dim
    return 2 * model.hidden * q + 2 * model.hidden * kv + 3 * model.hidden * run.mlp.intermediate


def weight_bytes(scenario):
    """Decoder and head; GPU engines leave the head in BF16."""
    model, bits = scenario.model, BITS[scenario.deployment.precision]
    head_bits = 16 if scenario.system.kind == "kernels" else bits
    decoder = sum(run.count * layer_weights(model, run) for run in model.layers)
    return decoder * bits / 8 + model.vocab * model.hidden * head_bits / 8


def cache_bytes(scenario, tokens):
    """Keys and values of one sequence."""
    bits = BITS[scenario.deployment.kv_precision]
    return tokens * sum(
        run.count * 2 * run.attention.kv_heads * run.attention.head_dim * bits / 8 for run in scenario.model.layers
    )


def token_flops(scenario, context):
    """One multiply and one add a weight, scores and weighted values over the context."""
    model = scenario.model
    weights = sum(run.count * layer_weights(model, run) for run in model.layers) + model.vocab * model.hidden
    attention = sum(run.count * 4 * run.attention.heads * run.attention.head_dim for run in model.layers)
    return 2 * weights + attention * context


def peaks(scenario):
    bandwidth, rates = PUBLISHED[scenario.system.name]
    tp = scenario.deployment.tp
    bf16 = rates["bf16"]
    return tp * bandwidth, tp * bf16, tp * max(bf16, rates.get(scenario.deployment.precision, bf16))


def step_floor(scenario, running, context):
    """Least time between two tokens: each passes all stages, and ``running`` sequences share the stages."""
    bandwidth, _, rate = peaks(scenario)
    sequences = max(1.0, running / scenario.deployment.pp)
    moved = weight_bytes(scenario) + sequences * cache_bytes(scenario, context)
    return max(moved / bandwidth, sequences * token_flops(scenario, context) / rate)


# --- the machine without losses ----------------------------------------------------------------------------------


def ideal(scenario):
    """Return the scenario with all efficiencies 1, no overhead and free collectives."""
    efficiency, link = scenario.system.efficiency, scenario.system.link
    if isinstance(efficiency, KernelsEfficiency):
        made = replace(
            efficiency,
            gemm_memory=dict.fromkeys(efficiency.gemm_memory, 1.0),
            gemm_compute=dict.fromkeys(efficiency.gemm_compute, 1.0),
            attention_memory=dict.fromkeys(efficiency.attention_memory, 1.0),
            attention_growth=dict.fromkeys(efficiency.attention_growth, 0.0),
            attention_compute=1.0,
            expert_memory=1.0,
            expert_compute=dict.fromkeys(efficiency.expert_compute, 1.0),
            expert_evenness=1.0,
            expert_tile=0.0,
            layer_time=0.0,
            latent_time=0.0,
            indexer_time=0.0,
            recurrent_time=0.0,
            recurrent_compute=1.0,
            expert_time=dict.fromkeys(efficiency.expert_time, 0.0),
            quantise_time=0.0,
            step_time=0.0,
            sequence_time=0.0,
            sequence_traffic=0.0,
            request_time=0.0,
            stream_time=0.0,
            stage_latency=0.0,
            all_reduce=AllReduce(0.0, 0.0, 1e30, 0.0, 0.0, 1e30, efficiency.all_reduce.threshold, 1.0),
        )
    elif isinstance(efficiency, DataflowEfficiency):
        made = replace(
            efficiency,
            memory=1.0,
            cache_memory=1.0,
            compute=1.0,
            warm_up=0.0,
            kernel_boundary=0.0,
            step_time=0.0,
            host_time=0.0,
        )
    else:
        made = replace(
            efficiency,
            memory=1.0,
            compute=1.0,
            layer_overhead=0.0,
            all_reduce_latency=0.0,
            all_reduce_bandwidth=1e30,
        )
        link = replace(link, hop_latency=0.0, port_bandwidth_per_direction=1e30)
    network = replace(scenario.system.network, bandwidth_per_direction=1e30)
    return replace(scenario, system=replace(scenario.system, efficiency=made, link=link, network=network))


def decode_time(scenario, running, context):
    return machine_of(scenario.system).decode(scenario, running, context).time


def with_bandwidth(scenario, factor):
    tiers = scenario.system.memory
    name = "sram" if scenario.system.kind == "sram_pipeline" else "hbm"
    tier = getattr(tiers, name)
    faster = replace(tiers, **{name: replace(tier, bandwidth=tier.bandwidth * factor)})
    return replace(scenario, system=replace(scenario.system, memory=faster))


@limits(200)
@given(**LAID_OUT, running=BATCHES, context=CONTEXTS)
def test_no_ideal_step_beats_bytes_or_flops(running, context, **layout):
    scenario = fitting(**layout)
    assert decode_time(ideal(scenario), running, context) * SHORT >= step_floor(scenario, running, context)


@limits(120)
@given(**LAID_OUT, running=st.integers(1, 32).map(float), context=CONTEXTS)
def test_an_ideal_step_of_one_stage_does_nothing_else(running, context, **layout):
    """Not above the sum of weights, cache and FLOPs by more than activations move: nothing is counted twice."""
    scenario = fitting(**layout | {"precision": "fp8" if layout["precision"] == "fp8" else "bf16"})
    assume(scenario.deployment.pp == 1 and scenario.system.kind != "sram_pipeline")
    bandwidth, bf16, _ = peaks(scenario)
    # GPUs with more tensor ranks than KV heads hold and read each head several times.
    copies = max(1.0, scenario.deployment.tp / scenario.model.layers[0].attention.kv_heads)
    moved = (weight_bytes(scenario) + running * copies * cache_bytes(scenario, context)) / bandwidth
    computed = running * token_flops(scenario, context) / bf16
    assert decode_time(ideal(scenario), running, context) <= 1.15 * (moved + computed)


@limits(200)
@given(**LAID_OUT, batches=st.tuples(BATCHES, BATCHES), contexts=st.tuples(CONTEXTS, CONTEXTS))
def test_an_ideal_step_is_monotone_in_batch_and_context(batches, contexts, **layout):
    scenario = ideal(fitting(**layout))
    (small, large), (short, long) = sorted(batches), sorted(contexts)
    assert decode_time(scenario, small, short) <= decode_time(scenario, large, short) * SHORT
    assert decode_time(scenario, small, short) <= decode_time(scenario, small, long) * SHORT


@limits(120)
@given(**LAID_OUT, running=BATCHES, context=CONTEXTS, factor=st.floats(1.0, 100.0))
def test_an_ideal_step_is_monotone_in_bandwidth(running, context, factor, **layout):
    scenario = ideal(fitting(**layout))
    slower = decode_time(scenario, running, context)
    faster = decode_time(with_bandwidth(scenario, factor), running, context)
    assert faster <= slower * SHORT
    assert slower <= factor * faster * SHORT


@limits(120)
@given(**LAID_OUT, running=BATCHES, context=CONTEXTS)
def test_fp8_is_never_slower_than_bf16(running, context, **layout):
    """On the same chips: weights and cache halve, and no machine computes FP8 slower."""
    wide = fitting(**layout | {"precision": "bf16", "cache": "bf16"})
    narrow = replace(wide, deployment=replace(wide.deployment, precision="fp8", kv_precision="fp8"))
    if wide.system.kind == "sram_pipeline":  # stages are whole: compare where both cut the model alike
        table = 2 if not wide.model.tied_embeddings else 1
        ends = table * wide.model.vocab * wide.model.hidden / (wide.deployment.tp * 230e6)
        assume(math.ceil(2 * ends) == math.ceil(ends))
    assert decode_time(ideal(narrow), running, context) <= decode_time(ideal(wide), running, context) * SHORT


@pytest.mark.parametrize("system", ["dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "lpu-v1"])
@pytest.mark.parametrize("model", MODELS)
def test_more_tensor_parallelism_never_means_more_bytes_a_chip(model, system):
    plans = catalog.load_system(system)[0].plans
    base = next(found for plan in plans if (found := asked(model, system, plan.name, "bf16")))
    # Embedding and head take stages of their own on the LPU: one stage a layer, and what they need.
    stages = 1.0 if base.system.kind == "kernels" else loaded(model).layers[0].count + 5
    held = [
        fit.fit(replace(base, deployment=replace(base.deployment, tp=tp, pp=stages)))
        for tp in sorted({float(plan.tp) for plan in plans})
    ]
    for fewer, more in itertools.pairwise(held):
        assert more.weights <= fewer.weights * SHORT
        assert more.per_request <= fewer.per_request * SHORT


@pytest.mark.parametrize("pp", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "qwen2.5-72b"])
def test_the_fullest_stage_holds_its_layers_and_one_table(model, pp):
    """One stage holds both tables; of several the first holds the embedding and the last the head."""
    base = asked(model, "dgx-h100", "tp8", "bf16")
    scenario = replace(base, deployment=replace(base.deployment, pp=pp))
    architecture = scenario.model
    layers = math.ceil(architecture.layers[0].count / pp)
    tables = 2 if pp == 1 and not architecture.tied_embeddings else 1
    elements = layers * layer_weights(architecture, architecture.layers[0])
    elements += tables * architecture.vocab * architecture.hidden
    # Biases and scales, less than a part in a thousand, are not in the count.
    assert fit.fit(scenario).weights == pytest.approx(2 * elements / 8, rel=1e-3)


# --- whole answers -----------------------------------------------------------------------------------------------


def check_floors(answer):
    scenario, traffic = answer.scenario, answer.scenario.traffic
    bandwidth, _, rate = peaks(scenario)
    running = min(traffic.concurrency, answer.max_concurrency) / scenario.deployment.dp
    assert answer.tpot_s * SHORT >= step_floor(scenario, running, traffic.prompt)
    assert answer.ttft_s * SHORT >= weight_bytes(scenario) / bandwidth
    head = 2 * scenario.model.vocab * scenario.model.hidden
    prompt = traffic.prompt * (token_flops(scenario, traffic.prompt / 2) - head) + head
    assert answer.ttft_s * SHORT >= prompt / (rate * scenario.deployment.pp)


def check_causes(answer):
    for phase, total in (("prefill", answer.ttft_s), ("decode", answer.tpot_s)):
        causes = answer.breakdown[phase]
        assert sum(causes.values()) == pytest.approx(total, rel=1e-9)
        assert all(value >= 0 for value in causes.values()), causes


def check_closed_loop(answer):
    """Little: concurrency = rate x latency, and every request brings its tokens in and out.

    Rates are those of the long run; one round in a million is a burst in the times.
    """
    traffic, plan = answer.scenario.traffic, answer.scenario.deployment
    latency = answer.ttft_s + (traffic.output - 1) * answer.tpot_s
    rate = answer.output_tokens_per_s / traffic.output
    assert answer.request_latency_s == pytest.approx(latency, rel=1e-9)
    assert rate == pytest.approx(traffic.concurrency / latency, rel=1e-5)
    assert answer.input_tokens_per_s == pytest.approx(rate * traffic.prompt, rel=1e-9)
    assert answer.chips == plan.tp * plan.pp * plan.dp
    tokens = rate * (traffic.prompt + traffic.output)
    assert answer.tokens_per_s_per_chip * answer.chips == pytest.approx(tokens, rel=1e-9)


def check_utilisations(answer):
    assert 0 < answer.mfu <= 1
    assert 0 < answer.mbu <= 1


def check_full_cache(answer):
    """Where the cache is the limit, more users only wait."""
    scenario = answer.scenario
    full, more = (
        evaluate(replace(scenario, traffic=replace(scenario.traffic, concurrency=users * answer.max_concurrency)))
        for users in (1.0, 3.0)
    )
    assert full.max_concurrency == more.max_concurrency == answer.max_concurrency
    assert more.output_tokens_per_s <= full.output_tokens_per_s * SHORT
    assert more.ttft_s > full.ttft_s
    assert more.tpot_s == pytest.approx(full.tpot_s, rel=1e-9)


@pytest.mark.parametrize("check", [check_floors, check_causes, check_closed_loop, check_utilisations, check_full_cache])
@limits(200)
@given(
    **LAID_OUT,
    prompt=st.integers(1, 32768).map(float),
    output=st.integers(2, 4096).map(float),
    concurrency=st.integers(1, 512).map(float),
    dp=st.sampled_from([1.0, 2.0]),
)
def test_every_answer(check, **question):
    check(evaluate(fitting(**question)))


def test_a_full_cache_is_said():
    answer = perfmodel.predict("llama-3.1-8b", on="dgx-h100", tp=1, prompt=8192, output=1024, concurrency=500)
    assert answer.max_concurrency < 500
    assert answer.limited_by["concurrency"] == "memory"
    assert any("requests fit the KV cache" in warning for warning in answer.warnings)


@pytest.mark.parametrize("output", [1, 2, 16])
@pytest.mark.parametrize(("system", "plan"), [("dgx-h100", "tp1"), ("sn40l-16", "tp16"), ("lpu-v1", "tp16-layers")])
def test_short_outputs_do_not_beat_the_peak(system, plan, output):
    """Prefills of different requests share the chips, also where a request asks for one token only."""
    precision = "fp8" if system == "lpu-v1" else "bf16"
    answer = perfmodel.predict(
        "llama-3.1-8b", on=system, plan=plan, precision=precision, prompt=1000, output=output, concurrency=64
    )
    assert answer.fits
    utilisation = answer.mfu
    assert utilisation <= 1


@pytest.mark.parametrize("concurrency", [1, 100, 1000, 4000])
def test_a_fixed_beat_is_no_faster_than_a_beat_as_long_as_its_tokens(concurrency):
    """A static program may idle; it cannot do more than its token budget in a beat, or take time back."""
    question = {"on": "lpu-v1", "plan": "tp16-layers", "precision": "fp8", "prompt": 100, "output": 100}
    load = perfmodel.predict("llama-3.1-8b", **question, concurrency=concurrency)
    fixed = perfmodel.predict("llama-3.1-8b", **question, concurrency=concurrency, set=["system.efficiency.beat=fixed"])
    assert fixed.fits
    assert load.fits
    assert fixed.metrics["tpot_s"] * SHORT >= load.metrics["tpot_s"]
    assert min(fixed.breakdown["decode"].values()) >= 0


@pytest.mark.parametrize("running", [1.0, 7.0, 95.0, 96.0, 380.0, 381.0])
def test_micro_batches_hold_every_sequence(running):
    batch = pipeline.microbatch_size(running=running, stages=95.0)
    in_flight = pipeline.microbatches_in_flight(running=running, batch=batch)
    assert batch * in_flight >= running
    assert (batch - 1) * 95 < running

"""Caches, states and experts of architectures beyond dense attention, against configurations and published figures."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfmodel.equations import experts, memory, transformer
from perfmodel.machines import kv_cache, operators, weight_bytes
from perfmodel.machines.step import Pass
from perfmodel.question import Options, resolve
from perfmodel.serving.cache_bytes import request_bytes
from perfmodel.serving.fit import fit
from perfmodel.specs import catalog, weights

REFERENCE = json.loads((Path(__file__).parent.parent / "data" / "models.json").read_text(encoding="utf-8"))["models"]


def cache_of_request(name, tokens, system="dgx-b200", **options):
    """Bytes that one request of so many tokens takes on one chip, without the rounding to an engine's blocks."""
    scenario = resolve(name, system, Options(prompt=float(tokens - 1), output=1.0, kv_precision="bf16", **options))
    scenario = replace(scenario, system=replace(scenario.system, engine=None))
    return float(request_bytes(scenario, float(tokens)))


def test_deepseek_keeps_576_elements_a_token_and_layer():
    model = catalog.load_model("deepseek-v3")
    assert all(kv_cache.kv_bytes_per_token_layer(run, "bf16") == 576 * 2 for run in model.layers)
    assert kv_cache.kv_bytes_per_token(model, "bf16") == 61 * 576 * 2


@pytest.mark.parametrize("tp", [1.0, 2.0, 8.0])
def test_latents_replicate_over_tensor_ranks(tp):
    assert cache_of_request("deepseek-v3", 1000, tp=tp) == 61 * 576 * 2 * 1000


def test_kv_heads_replicate_when_tp_exceeds_them():
    """Qwen3-235B has 4 KV heads: 8 ranks hold as much a chip as 4."""
    assert cache_of_request("qwen3-235b-a22b", 1000, tp=8.0) == cache_of_request("qwen3-235b-a22b", 1000, tp=4.0)
    assert cache_of_request("qwen3-235b-a22b", 1000, tp=2.0) == 2 * cache_of_request("qwen3-235b-a22b", 1000, tp=4.0)


def test_head_dim_is_not_hidden_over_heads():
    attention = catalog.load_model("qwen3-32b").layers[0].attention
    assert attention.head_dim == 128 != 5120 / 64


# One cached token in one layer [B] at 16 bits, layers that see everything, layers of a window, its size.
WINDOWED = {
    "gpt-oss-20b": (2 * 8 * 64 * 2, 12, 12, 128),
    "gpt-oss-120b": (2 * 8 * 64 * 2, 18, 18, 128),
    "gemma-2-27b": (2 * 16 * 128 * 2, 23, 23, 4096),
    "gemma-3-27b": (2 * 16 * 128 * 2, 10, 52, 1024),
    "llama-4-scout": (2 * 8 * 128 * 2, 12, 36, 8192),
    "llama-4-maverick": (2 * 8 * 128 * 2, 12, 36, 8192),
}


@pytest.mark.parametrize("tokens", [100, 4096, 60_000])
@pytest.mark.parametrize("name", WINDOWED)
def test_windowed_layers_stop_growing(name, tokens):
    token, full, windowed, window = WINDOWED[name]
    expected = token * (full * tokens + windowed * min(tokens, window))
    assert cache_of_request(name, tokens, tp=1.0) == expected


def test_recurrent_layers_do_not_grow():
    """Qwen3-Next: 36 gated delta layers; state of 32 x 128 x 128 and three steps of an 8,192-wide convolution."""
    attention = 12 * 2 * 2 * 256 * 2
    state = 36 * (32 * 128 * 128 + 8192 * 3) * 2
    for tokens in (100, 100_000):
        assert cache_of_request("qwen3-next-80b-a3b", tokens, tp=1.0) == attention * tokens + state


def test_nemotron_and_jamba_cache_only_their_attention_layers():
    nemotron = cache_of_request("nemotron-h-56b", 2000, tp=1.0) - cache_of_request("nemotron-h-56b", 1000, tp=1.0)
    assert nemotron == 1000 * 10 * 2 * 8 * 128 * 2
    jamba = cache_of_request("jamba-v0.1", 2000, tp=1.0) - cache_of_request("jamba-v0.1", 1000, tp=1.0)
    assert jamba == 1000 * 4 * 2 * 8 * 128 * 2


def test_the_indexer_keeps_a_key_and_a_scale_beside_the_latent():
    per_token = cache_of_request("deepseek-v3.2", 2, tp=1.0) / 2
    assert per_token == 61 * (576 * 2 + 128 + 4)


@pytest.mark.parametrize("tokens", [1.0, 7.0, 50.0])
@pytest.mark.parametrize("context", [0.0, 100.0, 5000.0])
def test_mean_attended_in_a_window_is_a_plain_mean(context, tokens):
    window = 128.0
    expected = sum(min(context + t, window) for t in range(1, int(tokens) + 1)) / tokens
    assert transformer.mean_attended_in_window(context=context, tokens=tokens, window=window) == pytest.approx(expected)


def test_distinct_experts_of_gpt_oss():
    """Published with SHIP: 82 of 128 experts at batch 32, 126 at 128."""
    assert experts.distinct_experts(experts=128.0, top_k=4.0, tokens=32.0) == pytest.approx(82, abs=0.5)
    assert experts.distinct_experts(experts=128.0, top_k=4.0, tokens=128.0) == pytest.approx(126, abs=0.5)
    assert experts.distinct_experts(experts=128.0, top_k=4.0, tokens=1.0) == pytest.approx(4, rel=1e-12)


def experts_of(system, sequences, **options):
    scenario = resolve("qwen3-235b-a22b", system, Options(**options))
    run = scenario.model.layers[0]
    work = (Pass(float(sequences), 1.0, 1000.0, decoding=True),)
    return next(one for one in operators.layer_operators(scenario, run, work) if one.name == "experts")


def test_the_lpu_runs_experts_token_by_token():
    one, many = experts_of("lpu-v1", 1), experts_of("lpu-v1", 64)
    assert many.streamed == 64 * one.streamed
    assert many.weights < 64 * one.weights


def test_expert_parallelism_over_replicas_shares_the_experts():
    """With EP 16 over two groups of TP 8 a chip holds half the experts of TP 8 alone."""
    alone = resolve("qwen3-235b-a22b", "dgx-h200", Options(tp=8.0))
    spread = resolve("qwen3-235b-a22b", "dgx-h200", Options(tp=8.0, attention_dp=2.0, ep=16.0))
    held = 94 * 128 * 3 * 4096 * 1536 * 2
    assert float(fit(alone).weights) - float(fit(spread).weights) == held / 16


def test_what_a_checkpoint_leaves_unquantised_stays_in_16_bits():
    scenario = resolve("gpt-oss-120b", "dgx-h100", Options())
    assert weight_bytes.precision_of(scenario, "experts") == "mxfp4"
    assert {weight_bytes.precision_of(scenario, kind) for kind in ("attention", "router", "embedding", "head")} == {
        "bf16"
    }


@pytest.mark.parametrize(
    ("name", "precision"),
    [("Qwen/Qwen3-32B-FP8", "fp8"), ("nvidia/Kimi-K2.5-NVFP4", "fp4"), ("Qwen/Qwen3-32B", "bf16"), ("kimi-k2", "fp8")],
)
def test_an_id_that_names_a_precision_asks_for_it(name, precision):
    assert resolve(name, "dgx-b200", Options()).deployment.precision == precision
    assert resolve(name, "dgx-b200", Options(precision="bf16")).deployment.precision == "bf16"


def test_embedding_and_head_sit_on_the_ends_of_a_pipeline():
    one = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, pp=1.0))
    two = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, pp=2.0))
    table = 128256 * 4096 * 2
    assert float(fit(one).weights) - 2 * float(fit(two).weights) == pytest.approx(0, abs=1)
    layers = float(fit(two).weights) - table
    assert layers == pytest.approx((8030261248 - 2 * 128256 * 4096 - 4096) * 2 / 2)


# --- SHIP's Qwen3-235B-A22B on TP16 x PP95, 8-bit weights, 380 users -------------------------------------------------


@pytest.mark.parametrize(("kv", "tokens"), [("fp16", 1565), ("fp8", 3131)])
def test_ship_kv_room_a_user(kv, tokens):
    """SHIP's figure divides what all SRAM leaves after the weights."""
    sram = memory.partition_capacity(chips=1520.0, capacity=0.23e9)
    model = catalog.load_model("qwen3-235b-a22b")
    room = memory.kv_room(visible=sram, utilisation=1.0, weights=weights.total_parameters(model), reserved=0.0)
    assert round(room / 380 / kv_cache.kv_bytes_per_token(model, kv)) == tokens


@pytest.mark.parametrize(("kv", "tokens"), [("fp16", 1565), ("fp8", 3131)])
def test_the_fit_of_a_stage_is_a_little_tighter(kv, tokens):
    """A stage of one layer cannot use what the stage of embedding and head leaves: 2 % less than the pooled figure."""
    base = resolve("qwen3-235b-a22b", "lpu-v1", Options(plan="ship-16x95", precision="fp8", kv_precision=kv))
    assert float(base.deployment.tp) * float(base.deployment.pp) == 1520
    held = fit(replace(base, traffic=replace(base.traffic, prompt=1000.0, output=0.0)))
    room = float(held.room) / (float(held.per_request) / 1000) / 380
    assert 0.97 * tokens < room < tokens


def test_ship_layer_and_users_of_72_lpus():
    """One layer of Qwen3-235B and 1,380 users of 4 Ki tokens, everything in 16 bits."""
    model = catalog.load_model("qwen3-235b-a22b")
    layer = sum(float(one.held) for one in weights.tensors(model, model.layers[0]))
    room = memory.partition_capacity(chips=72.0, capacity=0.23e9) - 2 * layer
    assert int(room / (4096 * float(kv_cache.kv_bytes_per_token_layer(model.layers[0], "fp16")))) == 1380


def test_all_thirty_architectures_are_there():
    names = {name for name, _, _ in catalog.entries("model")}
    assert {name.lower() for name in REFERENCE} <= names

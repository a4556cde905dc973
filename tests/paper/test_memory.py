"""Memory of engines against their logs, and what must hold of every budget."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfmodel
from perfmodel.equations import engine_memory, paging
from perfmodel.errors import UserError
from perfmodel.question import Options, resolve
from perfmodel.serving.cache_bytes import bytes_per_token, request_bytes
from perfmodel.serving.fit import fit, is_uniform
from perfmodel.specs import catalog
from perfmodel.specs.paths import put
from perfmodel.specs.types import Engine

GIB = 2.0**30
LOGGED = "llm-d planner, vLLM 0.19 on H100-80GB at a utilisation of 0.95, 8,192 tokens a step"

#: Model, TP: weights, activation peak [GiB] of LOGGED.  Those of FITTED set the two coefficients.
PEAKS = {
    ("llama-3.1-8b", 1): (14.99, 1.89),
    ("llama-3.1-8b", 2): (7.51, 1.89),
    ("llama-3.1-8b", 4): (3.77, 1.89),
    ("qwen2.5-7b", 1): (14.25, 2.21),
    ("qwen2.5-7b", 2): (7.12, 2.21),
    ("qwen2.5-7b", 4): (3.55, 2.21),
    ("qwen3-8b", 1): (15.27, 2.21),
    ("codellama-7b", 1): (None, 0.77),
    ("phi-4", 1): (None, 1.52),
    ("gemma-2-27b", 1): (None, 3.66),
    ("qwen3-30b-a3b", 1): (None, 2.68),
    ("deepseek-v2-lite", 1): (None, 1.93),
    ("mistral-small-3.2-24b", 1): (44.76, 2.12),
    ("gpt-oss-120b", 1): (None, 2.87),
    ("mixtral-8x7b", 2): (None, 1.21),
    ("llama-4-scout", 4): (None, 3.19),
}
FITTED = {"llama-3.1-8b", "gemma-2-27b", "codellama-7b"}


def budget(name, tp, **options):
    options = {"engine": "vllm-0.19", **options}
    return fit(resolve(name, "dgx-h100", Options(tp=float(tp), prompt=4096.0, output=4096.0, **options)))


@pytest.mark.parametrize(("name", "tp"), PEAKS)
def test_activation_peak_of_vllm(name, tp):
    tolerance = 0.03 if name in FITTED else 0.10
    assert float(budget(name, tp).activation_peak) / GIB == pytest.approx(PEAKS[name, tp][1], rel=tolerance)


@pytest.mark.parametrize(("name", "tp"), [key for key, (weights, _) in PEAKS.items() if weights])
def test_weights_of_vllm(name, tp):
    assert float(budget(name, tp).weights) / GIB == pytest.approx(PEAKS[name, tp][0], rel=0.01)


@pytest.mark.parametrize(("tp", "logged"), [(1, 0.25), (2, 2.07), (4, 2.13)])
def test_memory_outside_the_allocator(tp, logged):
    assert float(budget("llama-3.1-8b", tp).non_torch) / GIB == pytest.approx(logged, rel=0.05)


@pytest.mark.parametrize(
    ("name", "precision", "pool", "tokens"),
    [
        ("llama-3.1-8b", "bf16", 58.11, 476_016),
        ("llama-3.1-8b", "fp8", 58.11, 952_032),
        ("qwen2.5-7b", "bf16", 58.53, 1_096_000),
    ],
)
def test_pool_of_vllm_from_nothing_but_the_model(name, precision, pool, tokens):
    """LOGGED."""
    found = perfmodel.fit(
        name,
        on="dgx-h100",
        tp=1,
        kv_precision=precision,
        context=8192,
        engine="vllm-0.19",
        set={"system.engine.memory_utilisation": "0.95"},
    )
    assert found.parts["kv_pool"] / GIB == pytest.approx(pool, rel=0.005)
    assert found.kv_tokens == pytest.approx(tokens, rel=0.005)


#: Model, card, TP, release and share: pool [GiB] that vLLM printed, and where.  Nothing but the share is given.
POOLS = [
    ("llama-3.1-8b", "A100-40GB", 1, "0.15", 0.9, 19.28, "ilseokoh/vllm-gce, README"),
    ("llama-3.1-8b", "RTX 6000 Ada", 1, "0.15", 0.9, 26.43, "a log of 48 GB, 2,048 tokens a step"),
    ("qwen2.5-7b", "RTX 4090", 1, "0.6", 0.9, 5.77, "a log of 23.57 GiB"),
    ("qwen2.5-14b", "RTX 4090", 2, "0.7", 0.98, 8.69, "vLLM issue 13061"),
    ("qwen3-next-80b-a3b", "dgx-h200", 2, "0.11", 0.9, 44.59, "a log of 139.81 GiB, 5.58 GiB of it activations"),
    ("llama-3.1-8b", "A100", 1, "0.30", 0.92, 56.21, "a log of 79.25 GiB"),
    ("qwen3-0.6b", "DGX Spark", 1, "0.27", 0.6, 69.4, "a log of 121.69 GiB"),
]


@pytest.mark.parametrize(("name", "card", "tp", "release", "share", "pool", "source"), POOLS)
def test_pools_of_vllm_on_other_cards(name, card, tp, release, share, pool, source):
    found = perfmodel.fit(
        name,
        on=card,
        tp=tp,
        context=8192,
        engine=f"vllm-{release}",
        set={"system.engine.memory_utilisation": str(share)},
    )
    near = 0.10 if found.parts["visible"] >= 75 * GIB else 0.15
    assert found.parts["kv_pool"] / GIB == pytest.approx(pool, rel=near), source


def test_gpt_oss_120b_misses_as_much_as_vllm_said():
    """vLLM issue 23278: 65.97 GiB of weights on one H100 at 0.9, and -2.14 GiB for the cache."""
    found = perfmodel.fit("gpt-oss-120b", on="dgx-h100", tp=1, context=8192, engine="vllm-0.10")
    assert not found.fits
    assert found.parts["weights"] / GIB == pytest.approx(65.97, rel=0.005)
    assert found.parts["missing"] / GIB == pytest.approx(2.14, abs=0.1)
    assert found.parts["kv_pool"] == 0
    assert not re.search(r"\s-\d", str(found).partition("assumed")[0])


@pytest.mark.parametrize(
    ("card", "tp", "release", "weights"), [("A100", 1, "0.15", 13.72), ("dgx-h100", 2, "0.19", 7.01)]
)
def test_experts_in_mxfp4_are_stored_in_whole_tiles(card, tp, release, weights):
    """gpt-oss-20b: 2,880 becomes 3,072 by 2,944 on a rank of one, 3,072 by 1,536 on each of two."""
    found = perfmodel.fit("gpt-oss-20b", on=card, tp=tp, context=8192, engine=f"vllm-{release}")
    assert found.parts["weights"] / GIB == pytest.approx(weights, rel=0.01)


@pytest.mark.parametrize(
    ("card", "release", "tokens", "sequences"),
    [
        ("dgx-h100", "0.12", 8192, 1024),
        ("A100", "0.33", 2048, 256),
        ("RTX 4090", "0.19", 2048, 256),
        ("dgx-b200", "0.26", 8192, 1024),
        ("dgx-b200", "0.29", 16384, 1024),
        ("MI300X", "0.33", 16384, 1024),
        ("DGX Spark", "0.29", 8192, 1024),
        ("DGX Spark", "0.33", 2048, 256),
    ],
)
def test_defaults_of_vllm_by_card(card, release, tokens, sequences):
    """vllm/engine/arg_utils.py: get_batch_defaults of the API server."""
    engine = perfmodel.system(card, engine=f"vllm-{release}").engine
    assert (engine.batched_tokens, engine.sequences, engine.max_sequences) == (tokens, sequences, sequences)


@pytest.mark.parametrize(
    ("card", "tp", "graphs"), [("RTX 4090", 1, 24), ("RTX 4090", 4, 80), ("dgx-h100", 2, 256), ("dgx-h100", 8, 512)]
)
def test_graphs_of_sglang_by_card_and_tp(card, tp, graphs):
    """SGLang 0.5.6, server_args.py: cuda_graph_max_bs by memory and TP, 2 MiB each."""
    found = perfmodel.fit("llama-3.1-8b", on=card, tp=tp, context=8192, engine="sglang-0.5.6")
    assert found.parts["cuda_graphs"] == 2 * 2**20 * graphs


def test_the_buffer_of_collectives_depends_on_the_link():
    """RTX 4090 in a group of two: 0.25 GiB outside the allocator (vLLM issue 13061); H100: 2.07."""
    pcie, nvlink = (
        perfmodel.fit("qwen2.5-14b", on=card, tp=2, context=8192, engine="vllm-0.15").parts["non_torch"] / GIB
        for card in ("RTX 4090", "dgx-h100")
    )
    assert pcie == pytest.approx(0.25, abs=0.05)
    assert nvlink == pytest.approx(2.07, rel=0.06)


# --- releases ----------------------------------------------------------------------------------------------------


def release_of(engine):
    scenario = resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, engine=engine))
    return scenario.system.engine.release, "; ".join(scenario.assumed)


def test_without_a_release_the_newest_is_taken_and_said():
    newest = list(catalog.releases("vllm"))[-1]
    release, said = release_of("vllm")
    assert release == newest
    assert f"vllm {newest}, the newest release" in said


@pytest.mark.parametrize(
    ("asked", "held", "words"),
    [
        ("0.19", "0.18", "nearest earlier"),
        ("0.12.0", "0.8", "nearest earlier"),
        ("1", "0.33", "nearest earlier"),
        ("0.2", "0.6", "earliest"),
    ],
)
def test_the_nearest_earlier_release_stands_in_and_is_named(asked, held, words):
    release, said = release_of(f"vllm-{asked}")
    assert release == held
    assert f"vllm {asked} by the numbers of release {held}, the {words}" in said


def test_a_release_with_numbers_of_its_own_says_nothing():
    assert "release" not in release_of("vllm-0.20")[1]


@pytest.mark.parametrize("name", ["vllm-", "vllm-x", "vllm-0.1.2.3", "vllm 0.12", "native-1", "llama.cpp"])
def test_names_that_are_no_engine(name):
    with pytest.raises(UserError, match=r"as in vllm-0\.12"):
        resolve("llama-3.1-8b", "dgx-h100", Options(tp=1.0, engine=name))


def test_efficiencies_belong_to_the_engine_whatever_its_release():
    assert perfmodel.system("dgx-h100", engine="vllm-0.12").efficiency == perfmodel.system("dgx-h100").efficiency


# --- what a budget is made of ------------------------------------------------------------------------------------


def test_drafted_tokens_add_rows_of_logits():
    """1,024 sequences of six rows of 128,256 words in FP32 are 2.93 GiB, five sixths of it those of drafts."""
    plain, drafting = (
        fit(resolve("llama-3.1-70b", "dgx-h100", Options(tp=4.0, engine="vllm", **options))).activation_peak
        for options in ({}, {"draft": "ngram", "k": 5.0, "alpha": 0.7})
    )
    assert drafting - plain == pytest.approx(5 * 1024 * 128256 * 4)


def test_an_engine_shards_over_the_cores_of_a_chip():
    """Sixteen cores on four chips and eight KV heads: each chip holds twice its share."""
    held = perfmodel.fit("llama-3.1-8b", on="trainium2", tp=4, context=8192).per_token
    assert held == pytest.approx(2 * 2 * 32 * 8 * 128 * 2 / 4)
    with pytest.raises(UserError, match="4 cores"):
        perfmodel.fit("llama-3.1-8b", on="trainium2", tp=16, context=8192)


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v2-lite"]
)
@settings(derandomize=True, deadline=None, max_examples=20)
@given(context=st.integers(1, 100_000))
def test_growth_and_fixed_part_agree_with_the_tokens(name, context):
    found = perfmodel.fit(name, on="dgx-h200", tp=1, context=context)
    whole = math.ceil(context / 16) * 16
    each = found.to_dict()["per_request_bytes"]
    assert found.fixed + found.per_token * whole == pytest.approx(each, rel=1e-9)
    page = found.held.per_token * found.held.block_tokens
    token = found.per_token if is_uniform(found.scenario) else each / context
    assert found.kv_tokens * token == pytest.approx(found.parts["kv_pool"], abs=page + token)


def test_a_verdict_that_hangs_on_an_estimate_says_so():
    found = perfmodel.fit("gemma-2-9b", on="RTX 4090", tp=1, context=8192)
    assert found.fits
    assert any(line.startswith("the verdict hangs on") and "cuda_graphs" in line for line in found.warnings)


def test_budget_of_vllm_adds_up():
    """vLLM pull request 10511: 79.22 GiB x 0.9 less 14.96, 1.79 and 1.26 leaves 53.29."""
    pool = engine_memory.vllm_kv_pool(
        visible=79.22, utilisation=0.9, weights=14.96, activation_peak=1.26, non_torch=1.79, cuda_graphs=0.0
    )
    assert pool == pytest.approx(53.29, abs=0.01)


def test_pool_of_tensorrt_llm():
    """TensorRT-LLM issue 6294: 52.51 GiB at a share of 0.8 beside an 8B in FP8 on H100."""
    found = perfmodel.fit(
        "llama-3.1-8b",
        on="dgx-h100",
        tp=1,
        engine="trtllm",
        precision="fp8",
        context=8192,
        set={"system.engine.memory_utilisation": "0.8"},
    )
    assert found.parts["kv_pool"] / GIB == pytest.approx(52.51, rel=0.01)


def test_share_that_sglang_chooses():
    """8,192 tokens, graphs of 256 and TP 1 on 81,920 MiB keep 13,440 MiB; below 60 GiB there is no floor."""
    mib = 2.0**20
    activations, graphs = engine_memory.sglang_activations(tokens=8192.0), engine_memory.sglang_graphs(batch=256.0)
    kept = engine_memory.sglang_reserve(visible=81920 * mib, activations=activations, graphs=graphs, tp=1.0, pp=1.0)
    assert kept / mib == 13440
    assert engine_memory.static_fraction(visible=81920 * mib, reserve=kept) == pytest.approx(0.836, abs=5e-4)
    small = engine_memory.sglang_activations(tokens=2048.0)
    for visible, least in ((81920, 10240), (24564, 3760)):
        graphs = engine_memory.sglang_graphs(batch=24.0)
        kept = engine_memory.sglang_reserve(visible=visible * mib, activations=small, graphs=graphs, tp=1.0, pp=1.0)
        assert kept / mib == least


def test_pool_of_sglang():
    """vLLM issue 21348: Qwen3-235B in FP8 on four H100 at 0.93 has a pool of 2 x 8.23 GiB and 367,404 tokens."""
    found = perfmodel.fit(
        "qwen3-235b-a22b",
        on="dgx-h100",
        tp=4,
        engine="sglang",
        precision="fp8",
        context=8192,
        set={"system.engine.memory_utilisation": "0.93"},
    )
    assert found.kv_tokens == pytest.approx(367_404, rel=0.05)


# --- floors, blocks and monotony ---------------------------------------------------------------------------------


SHARES = st.floats(0.5, 1.0)
CONTEXTS = st.integers(1, 200_000).map(float)


def asked(name="gpt-oss-20b", engine="vllm", tp=1.0, **options):
    return resolve(name, "dgx-h100", Options(tp=tp, engine=engine, prompt=1000.0, output=24.0, **options))


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
@settings(derandomize=True, deadline=None, max_examples=30)
@given(low=SHARES, high=SHARES, context=CONTEXTS)
def test_a_larger_share_never_holds_less(engine, low, high, context):
    low, high = sorted((low, high))
    scenario = asked(engine=engine)
    less, more = (fit(put(scenario, "system.engine.memory_utilisation", share), context) for share in (low, high))
    assert less.room <= more.room
    assert less.cap <= more.cap


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
@settings(derandomize=True, deadline=None, max_examples=30)
@given(short=CONTEXTS, long=CONTEXTS)
def test_longer_requests_never_fit_more_often(engine, short, long):
    short, long = sorted((short, long))
    scenario = asked(engine=engine)
    assert fit(scenario, short).cap >= fit(scenario, long).cap


@pytest.mark.parametrize("path", ["weights", "activation_peak", "context_memory", "cuda_graphs"])
def test_what_is_taken_is_missing_from_the_pool(path):
    scenario = asked(name="llama-3.1-8b")
    less, more = (fit(put(scenario, f"system.engine.{path}", size * GIB)).room for size in (1.0, 3.0))
    assert less - more == pytest.approx(2 * GIB)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v2-lite", "qwen3-next-80b-a3b"])
@settings(derandomize=True, deadline=None, max_examples=30)
@given(context=st.integers(1, 100_000).map(float))
def test_the_requests_that_fit_do_and_one_more_does_not(name, context):
    held = fit(asked(name, tp=4.0), context)
    assert held.cap * held.per_request <= held.room
    page = held.per_token * held.block_tokens
    assert (held.cap + 1) * held.per_request > held.room - page


@settings(derandomize=True, deadline=None, max_examples=50)
@given(tokens=st.integers(1, 10_000), block=st.sampled_from([1, 16, 32, 64, 128]))
def test_blocks_hold_all_tokens_and_waste_less_than_one(tokens, block):
    blocks = paging.request_blocks(tokens=float(tokens), block=float(block))
    assert blocks == math.ceil(tokens / block)
    assert tokens <= blocks * block < tokens + block


def test_a_window_stops_growing_a_block_beyond_it():
    scenario = asked("gpt-oss-20b")
    token = float(bytes_per_token(scenario))
    assert float(request_bytes(scenario, 16.0)) == pytest.approx(16 * token)
    long, longer = (float(request_bytes(scenario, tokens)) for tokens in (16_000.0, 32_000.0))
    assert longer - long == pytest.approx(16_000 * token / 2)
    assert long == pytest.approx((16_000 + 128 + 16) * token / 2)


def test_an_array_of_utilisations_is_an_axis():
    shares = np.array([0.8, 0.9, 0.95])
    held = fit(put(asked("llama-3.1-8b"), "system.engine.memory_utilisation", shares))
    single = [fit(put(asked("llama-3.1-8b"), "system.engine.memory_utilisation", float(one))).cap for one in shares]
    assert list(held.cap) == single


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
def test_the_files_of_an_engines_releases_have_no_problems(engine):
    for release, path in catalog.releases(engine).items():
        assert catalog.problems(path, Engine) == []
        assert catalog.with_engine(perfmodel.system("dgx-h100"), f"{engine}-{release}").engine.release == release


def test_machines_that_are_no_gpus_have_no_engine():
    assert perfmodel.system("lpu-v1").engine is None
    assert perfmodel.system("sn40l-16").engine is None


def test_image_encoders_are_weights():
    model = perfmodel.model("mistral-small-3.2-24b")
    bare = perfmodel.fit(replace(model, towers=0.0), on="dgx-h100", tp=1, context=8192).parts["weights"]
    assert perfmodel.fit(model, on="dgx-h100", tp=1, context=8192).parts["weights"] - bare == 2 * model.towers


def test_parts_add_up_to_what_is_visible():
    for engine in ("vllm", "trtllm", "sglang"):
        parts = perfmodel.fit("llama-3.1-8b", on="dgx-h100", tp=2, engine=engine, context=8192).parts
        assert parts.pop("missing") == 0
        visible = parts.pop("visible")
        assert sum(parts.values()) == pytest.approx(visible)


def test_replicas_of_latent_attention_hold_more_than_one_group():
    """Latents have no heads to split: a group of eight keeps eight copies, eight replicas keep eight pools."""
    options = {"on": "dgx-b200", "kv_precision": "fp8", "context": 131072, "ep": 8}
    group = perfmodel.fit("deepseek-v3.2", tp=8, **options)
    replicas = perfmodel.fit("deepseek-v3.2", tp=1, attention_dp=8, **options)
    assert 5 < replicas.concurrency / group.concurrency < 8


# --- the answer --------------------------------------------------------------------------------------------------


def test_default_context_is_what_the_model_takes():
    found = perfmodel.fit("llama-3.1-8b", on="dgx-h100", tp=1)
    assert found.context == 131072
    assert any("131072" in line for line in found.assumed)


def test_a_traffic_gives_the_context():
    assert perfmodel.fit("llama-3.1-8b", on="dgx-h100", tp=1, prompt=1000, output=24).context == 1024


def test_context_and_traffic_exclude_each_other():
    with pytest.raises(UserError, match="either --context or a traffic"):
        perfmodel.fit("llama-3.1-8b", on="dgx-h100", tp=1, context=100, traffic="chat")


@pytest.mark.parametrize("context", [0, 1.5, -3, math.nan])
def test_a_context_is_a_whole_number(context):
    with pytest.raises(UserError, match="whole number"):
        perfmodel.fit("llama-3.1-8b", on="dgx-h100", tp=1, context=context)


def test_the_longest_request_of_a_refusal_fits_and_one_block_more_does_not():
    found = perfmodel.fit("llama-3.1-70b", on="dgx-h100", tp=2, context=131072)
    assert not found.fits
    longest = float(found.reason.rpartition("; ")[2].split()[0].replace(",", ""))
    assert perfmodel.fit("llama-3.1-70b", on="dgx-h100", tp=2, context=longest).fits
    assert not perfmodel.fit("llama-3.1-70b", on="dgx-h100", tp=2, context=longest + 16).fits


def test_a_prediction_is_capped_by_the_same_budget():
    found = perfmodel.fit("llama-3.1-70b", on="dgx-h100", tp=2, precision="fp8", context=9216)
    answer = perfmodel.predict(
        "llama-3.1-70b", on="dgx-h100", tp=2, precision="fp8", prompt=8192, output=1024, concurrency=64
    )
    # Blocks grow: more run at once than would fit at full length, each holding what it has brought.
    assert answer.max_concurrency >= found.requests
    assert answer.memory["kv_room"] == found.parts["kv_pool"]

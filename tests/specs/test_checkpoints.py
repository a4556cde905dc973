"""Checkpoints as they are published and as they lie in folders, against counts and formulas that we did not write."""

import csv
import json
import struct
from pathlib import Path

import pytest

from perfmodel.errors import UserError
from perfmodel.machines import kv_cache
from perfmodel.numerics import total
from perfmodel.outputs import counts
from perfmodel.planning import fit
from perfmodel.prediction import run
from perfmodel.question import Options, resolve
from perfmodel.serving.fit import chip_weights
from perfmodel.specs import catalog, paths, rules, weights

DATA = Path(__file__).parent.parent / "data" / "configs"
PUBLISHED = DATA / "published"
NAMES = sorted(path.name for path in PUBLISHED.iterdir() if path.is_dir())
COUNTS = {row["config"]: row for row in csv.DictReader((PUBLISHED / "counts.csv").open(encoding="utf-8"))}
#: Counted without its head, which the file does not tie to the embedding.
HEADLESS = {"stepfun-ai--Step-3.7-Flash": 128_896 * 4096}
CLASSES = [json.loads(line) for line in (DATA / "classes.jsonl").read_text(encoding="utf-8").splitlines()]
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_8B = 8_030_261_248


def load(folder, content, name="config.json", **beside):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    for file, inner in beside.items():
        (folder / f"{file}.json").write_text(json.dumps(inner), encoding="utf-8")
    return catalog.load_model(str(folder))


def refusal(folder):
    with pytest.raises(UserError) as caught:
        catalog.load_model(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def notes(model):
    return " ".join(catalog.model_notes(model))


# --- published files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_published_configuration_is_read(name):
    model = catalog.load_model(str(PUBLISHED / name))
    assert rules.broken(model) == []
    assert set(model.provenance) == {path for path, _, _ in paths.quantities(model)}


@pytest.mark.parametrize("name", sorted(COUNTS))
def test_parameters_are_those_of_the_class(name):
    model = catalog.load_model(str(PUBLISHED / name))
    found = float(weights.total_parameters(model)) - HEADLESS.get(name, 0)
    assert found == pytest.approx(int(COUNTS[name]["text"]), rel=2e-5)
    if "vision_config" in json.loads((PUBLISHED / name / "config.json").read_text(encoding="utf-8")):
        towers = int(COUNTS[name]["of_which_vision_or_audio"])
        # Kimi-K2.5 was counted as its text model.
        assert model.towers == (towers or 471_143_920)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        (name, base)
        for name in NAMES
        for base in (name.replace("nvidia--", owner) for owner in ("Qwen--", "deepseek-ai--", "zai-org--", "google--"))
        for base in (base.removesuffix("-NVFP4").removesuffix("-FP8"),)
        if base != name and base in COUNTS
    ],
)
def test_a_quantised_model_has_the_parameters_of_its_base(name, base):
    model, other = (catalog.load_model(str(PUBLISHED / one)) for one in (name, base))
    assert weights.total_parameters(model) == weights.total_parameters(other)


def raw_of(name):
    raw = json.loads((PUBLISHED / name / "config.json").read_text(encoding="utf-8"))
    return {**raw, **raw.get("text_config", {})}


def cache_by_hand(raw):
    """Return the elements that a token within every window leaves, from the fields of the file alone."""
    layers = raw.get("num_hidden_layers") or len(raw["layers_block_type"])
    if "compress_ratios" in raw:
        return sum(512 + (512 / ratio if ratio else 0) for ratio in raw["compress_ratios"][:layers])
    if "linear_attn_config" in raw:
        return len(raw["linear_attn_config"]["full_attn_layers"]) * (raw["kv_lora_rank"] + raw["qk_rope_head_dim"])
    if raw.get("kv_lora_rank"):
        return layers * (raw["kv_lora_rank"] + raw["qk_rope_head_dim"])
    heads = raw["num_attention_heads"]
    width = raw.get("head_dim") or raw.get("attention_head_dim") or raw["hidden_size"] // heads
    if "block_configs" in raw:
        groups = [one["attention"]["n_heads_in_group"] for one in raw["block_configs"]]
        return sum(2 * heads // group * width for group in groups if group)
    if "swa_v_head_dim" in raw:
        windows = sum(raw["hybrid_layer_pattern"])
        each = raw["head_dim"] + raw["v_head_dim"]
        return each * (windows * raw["swa_num_key_value_heads"] + (layers - windows) * raw["num_key_value_heads"])
    if "global_head_dim" in raw and "num_global_key_value_heads" in raw:
        full = raw["layer_types"].count("full_attention")
        wide = raw["num_global_key_value_heads"] * raw["global_head_dim"]
        return 2 * (full * wide + (layers - full) * raw["num_key_value_heads"] * raw["head_dim"])
    pattern = raw.get("hybrid_override_pattern")
    if pattern or "layers_block_type" in raw:
        layers = pattern.count("*") if pattern else raw["layers_block_type"].count("attention")
    elif "linear_num_key_heads" in raw:
        layers = raw["layer_types"].count("full_attention")
    return 2 * layers * raw["num_key_value_heads"] * width


@pytest.mark.parametrize("name", NAMES)
def test_cache_bytes_of_a_token_by_hand(name):
    model = catalog.load_model(str(PUBLISHED / name))
    assert kv_cache.kv_bytes_per_token(model, "bf16") == pytest.approx(2 * cache_by_hand(raw_of(name)))


@pytest.mark.parametrize("entry", CLASSES, ids=[f"{one['config']['model_type']}-{one['class']}" for one in CLASSES])
def test_the_default_of_a_class_has_its_parameters(tmp_path, entry):
    model = load(tmp_path / "any", entry["config"])
    found = float(weights.total_parameters(model))
    assert found == pytest.approx(entry["text"], rel=1e-4)
    if entry["towers"]:
        assert float(model.towers) == pytest.approx(entry["towers"], rel=1e-4)


#: Parameters that the models' cards give, in billions, and those that a token meets.
CARDS = {
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": (120, 12),
    "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (550, 55),
    "deepseek-ai--DeepSeek-V4-Flash": (284, 13),
    "deepseek-ai--DeepSeek-V4-Pro": (1600, 49),
    "XiaomiMiMo--MiMo-V2-Flash": (309, 15),
    "Qwen--Qwen3.5-397B-A17B": (397, 17),
}


@pytest.mark.parametrize("name", CARDS)
def test_active_parameters_are_those_of_the_card(name):
    total, active = CARDS[name]
    model = catalog.load_model(str(PUBLISHED / name))
    assert float(weights.total_parameters(model)) == pytest.approx(total * 1e9, rel=0.03)
    assert float(weights.active_parameters(model)) == pytest.approx(active * 1e9, rel=0.1)


# --- forms -------------------------------------------------------------------------------------------------------


def test_cross_attention_has_no_growing_cache(tmp_path):
    """Llama-3.2-11B-Vision: 8 of 40 layers attend to an image, 10.67 billion parameters in all on its card."""
    text = {
        **LLAMA,
        "model_type": "mllama_text_model",
        "num_hidden_layers": 40,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    }
    vision = {"hidden_size": 1280, "image_size": 560, "num_hidden_layers": 32, "patch_size": 14, "max_num_tiles": 4}
    model = load(tmp_path / "any", {"model_type": "mllama", "text_config": text, "vision_config": vision})
    assert kv_cache.kv_bytes_per_token(model, "bf16") == 131_072
    assert float(weights.total_parameters(model) + model.towers) == pytest.approx(10.67e9, rel=1e-3)
    # The cache of an image is four tiles of 1,601 tokens, however long the text.
    seen = resolve(model, "dgx-h100:tp=1", Options(images=1.0))
    run_of = next(one for one in seen.model.layers if one.attention.cross is not None)
    assert kv_cache.request_cache(seen, run_of, 100.0) == kv_cache.request_cache(seen, run_of, 9e4)
    assert kv_cache.request_cache(seen, run_of, 1.0) == 4 * 1601 * 2 * 8 * 128 * 2
    # Without an image those layers do not run.
    blind = resolve(model, "dgx-h100:tp=1", Options())
    assert run(seen).tpot_s > run(blind).tpot_s


def test_lfm2_by_the_numbers_of_its_layers_with_attention(tmp_path):
    """LFM2-1.2B: 1,170,340,608 parameters in its safetensors file, 12,288 bytes of cache a token."""
    config = {
        "model_type": "lfm2",
        "hidden_size": 2048,
        "intermediate_size": 12288,
        "block_auto_adjust_ff_dim": True,
        "block_ffn_dim_multiplier": 1.0,
        "block_multiple_of": 256,
        "conv_L_cache": 3,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 128000,
        "vocab_size": 65536,
        "dtype": "bfloat16",
    }
    model = load(tmp_path / "any", config)
    assert weights.total_parameters(model) == 1_170_340_608
    assert kv_cache.kv_bytes_per_token(model, "bf16") == 12_288
    written = {**config, "block_ff_dim": config.pop("intermediate_size")}
    written.pop("intermediate_size", None)
    assert weights.total_parameters(load(tmp_path / "other", written)) == 1_170_340_608


def test_a_compressed_cache_grows_by_its_entries():
    model = catalog.load_model(str(PUBLISHED / "deepseek-ai--DeepSeek-V4-Flash"))
    whole = [
        float(total(run.count * kv_cache.sequence_cache(model, run, at, "bf16") for run in model.layers))
        for at in (1e5, 1e5 + 128)
    ]
    # 21 layers keep one latent of 512 for 4 tokens and an FP8 key of 128 with its scale, 20 one latent for 128.
    assert whole[1] - whole[0] == pytest.approx(21 * 32 * (1024 + 132) + 20 * 1024)


def test_zero_computation_experts_hold_nothing(tmp_path):
    """LongCat-Flash: 560 billion parameters, 18.6 to 31.3 billion and 27 on average active, on its card."""
    config = {
        "model_type": "longcat_flash",
        "hidden_size": 6144,
        "num_layers": 28,
        "num_attention_heads": 64,
        "ffn_hidden_size": 12288,
        "expert_ffn_hidden_size": 2048,
        "n_routed_experts": 512,
        "zero_expert_num": 256,
        "moe_topk": 12,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
    }
    model = load(tmp_path / "any", config)
    assert float(weights.total_parameters(model)) == pytest.approx(560e9, rel=0.01)
    assert float(weights.active_parameters(model)) == pytest.approx(27e9, rel=0.02)
    # Two latent caches a layer.
    assert kv_cache.kv_bytes_per_token(model, "bf16") == 28 * 2 * (512 + 64) * 2


def test_a_field_that_nothing_reads_is_said(tmp_path):
    model = load(tmp_path / "any", {**LLAMA, "extra_blocks": 4})
    assert "fields that nothing reads: extra_blocks" in notes(model)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text(json.dumps({**LLAMA, "model_type": "newcomer", "extra_blocks": 4}))
    assert "extra_blocks: model_type 'newcomer' is not known here" in refusal(tmp_path / "new")


# --- what a model is for -----------------------------------------------------------------------------------------


def test_a_reward_model_has_no_head_and_no_decode(tmp_path):
    """Skywork-Reward-Llama-3.1-8B: 7.505 billion parameters."""
    model = load(tmp_path / "rm", {**LLAMA, "architectures": ["LlamaForSequenceClassification"]})
    assert model.task == "pool"
    assert float(weights.total_parameters(model)) == 7_504_924_672
    answer = run(resolve(model, "dgx-h100:tp=1", Options(prompt=1000.0, output=1.0, concurrency=32.0)))
    data = answer.to_dict()
    assert not answer.reason
    assert data["tpot_s"] is None
    assert data["output_tokens_per_s"] is None
    assert data["requests_per_s"] * 1000 == pytest.approx(data["tokens_per_s"])
    # A pass cannot beat the peak of the arithmetic.
    assert data["tokens_per_s"] * 2 * 6.98e9 < 989e12
    assert data["usd_per_mtok"]["input"] == data["usd_per_mtok"]["blended"]
    held = fit.ask(model, "dgx-h100:tp=1", Options(), context=4096.0)
    assert held.fits
    assert held.to_dict()["per_request_bytes"] == 0


def test_one_pass_costs_what_a_prefill_does(tmp_path):
    """At so many requests that groups are full, the rate is a group over its time, and latency follows Little."""
    model = load(tmp_path / "rm", {**LLAMA, "architectures": ["LlamaModel"]})
    many, more = (
        run(resolve(model, "dgx-h100:tp=1", Options(prompt=2048.0, output=1.0, concurrency=clients)))
        for clients in (64.0, 128.0)
    )
    # A request's front end runs beside the passes: it is in the latency, not in their rate.
    assert more.one_pass["requests_per_s"] == pytest.approx(many.one_pass["requests_per_s"], rel=0.02)
    assert more.ttft_s * more.one_pass["requests_per_s"] == pytest.approx(128.0)


def test_an_encoder_has_no_cache(tmp_path):
    """bge-large-en-v1.5: 335,141,888 parameters in its safetensors file."""
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "vocab_size": 30522,
        "torch_dtype": "float32",
    }
    model = load(tmp_path / "bge", config)
    assert model.task == "pool"
    assert weights.total_parameters(model) == 335_141_888
    assert counts.count(model)["cache"]["bytes_per_token"] == 0


def test_an_embedding_model_is_known_by_what_lies_beside(tmp_path):
    assert load(tmp_path / "plain", LLAMA).task == "generate"
    assert load(tmp_path / "embeds", LLAMA, modules=[]).task == "pool"


def test_an_eagle_draft_drafts(tmp_path):
    """EAGLE-3 of Llama-3.1-8B: 0.42 billion weights of its own, its embedding being the target's."""
    config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}
    model = load(tmp_path / "eagle3", config)
    assert model.task == "draft"
    own = 4096 * (3 * 4096 + 2 * 4096 * 6144 // 4096 + 4096 + 3 * 14336 + 32000 + 4)
    assert weights.total_parameters(model) == own
    with pytest.raises(UserError, match="give this as --draft"):
        resolve(model, "dgx-h100:tp=1", Options())
    target = resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(draft=str(tmp_path / "eagle3"), k=3.0, alpha=0.7))
    assert run(target).speculation["speedup"] > 1.5


# --- storage -----------------------------------------------------------------------------------------------------

GIB = 2.0**30
LINEAR = 32 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 14336)


def ints(**weights):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize(
    ("entry", "element"),
    [
        (ints(num_bits=4, type="int", strategy="group", group_size=32), 0.5 + 2 / 32),
        (ints(num_bits=4, type="int", strategy="group", group_size=64), 0.5 + 2 / 64),
        (ints(num_bits=4, type="int", strategy="group", group_size=128), 0.5 + 2 / 128),
        (ints(num_bits=4, type="int", strategy="channel"), 0.5),
        (ints(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), 0.5 + 2.5 / 32),
        (ints(num_bits=8, type="float", strategy="group", group_size=32), 1 + 1 / 32),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, 0.5 + 2 / 32),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}, 0.5 + 2.5 / 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, 0.5 + 4 / 64),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            0.5 + 1 / 64 + 4 / (64 * 256),
        ),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 1 + 1 / 32),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True}, 0.5 + 2 / 64),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}},
            },
            0.5 + 2 / 64,
        ),
        ({"quant_method": "torchao", "quant_type": "float8_weight_only"}, 1.0),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}},
                "exclude": ["lm_head"],
            },
            0.5 + 1 / 32,
        ),
    ],
)
def test_bytes_are_those_of_the_file(tmp_path, entry, element):
    model = load(tmp_path / "any", {**LLAMA, "quantization_config": entry})
    found = float(chip_weights(resolve(model, "dgx-h100:tp=1", Options())))
    assert found == pytest.approx(LINEAR * element + (LLAMA_8B - LINEAR - 4096) * 2, rel=1e-6)


def test_int4_in_groups_of_32_weighs_5_61_gib(tmp_path):
    model = load(
        tmp_path / "any", {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    )
    assert float(chip_weights(resolve(model, "dgx-h100:tp=1", Options()))) / GIB == pytest.approx(5.61, abs=0.01)


@pytest.mark.parametrize("block", [7, "fp8", ["fp8"], True])
def test_a_block_that_cannot_be_read_is_no_bf16(tmp_path, block):
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": block}), encoding="utf-8")
    assert "quantization_config: expected a mapping of fields" in refusal(tmp_path)


#: Bytes on disk of the published checkpoints' text model, layers that predict ahead left out, in GB.
DISK = {
    "nvidia--Qwen3.6-35B-A3B-NVFP4": {"attention": "fp8", "experts": "fp4", "head": "fp4", "embedding": "bf16"},
    "nvidia--MiniMax-M3-NVFP4": {"attention": "fp8", "mlp": "fp8", "experts": "fp4", "head": "bf16"},
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": {"experts": "fp4", "mlp": "fp4", "attention": "fp8"},
    "nvidia--DeepSeek-V4-Flash-NVFP4": {"attention": "fp8", "mlp": "fp8", "experts": "fp4"},
    "deepseek-ai--DeepSeek-V4-Flash": {"attention": "fp8", "mlp": "fp8", "experts": "mxfp4"},
    "sgl-project--DeepSeek-V4-Flash-FP8": {"attention": "fp8", "mlp": "fp8", "experts": "fp8"},
    "moonshotai--Kimi-K2.5": {"attention": "bf16", "mlp": "bf16", "experts": "int4"},
    "nvidia--Gemma-4-26B-A4B-NVFP4": {"attention": "bf16", "mlp": "bf16", "experts": "fp4"},
}


@pytest.mark.parametrize("name", DISK)
def test_each_class_of_tensors_has_its_precision(name):
    model = catalog.load_model(str(PUBLISHED / name))
    assert {part: counts.stored(model, part)[0] for part in DISK[name]} == DISK[name]


def test_mixed_precision_counts_each_matrix(tmp_path):
    """Of Lightning's attention class the six layers of attention stay in BF16, the projections of Mamba are FP8."""
    model = catalog.load_model(str(PUBLISHED / "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"))
    mamba = 23 * 2688 * (2 * 4096 + 2 * 8 * 128 + 64 + 4096)
    attention = 6 * 2688 * 128 * (32 + 2 + 2 + 32)
    assert model.element_bytes["attention"] == pytest.approx((mamba + 2 * attention) / (mamba + attention), rel=1e-3)


# --- cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
        {**ints(num_bits=8, type="float"), "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"}},
        {"quant_method": "fp8", "kv_cache_scheme": "FP8"},
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_auto_follows_what_the_checkpoint_declares(tmp_path, entry, engine):
    declared = load(tmp_path / "declared", {**LLAMA, "quantization_config": entry})
    silent = {key: value for key, value in entry.items() if not key.startswith("kv_cache")}
    other = load(tmp_path / "silent", {**LLAMA, "quantization_config": silent})
    options = Options(engine=engine)
    first, second = (fit.ask(model, "H100:tp=1", options, context=8192.0) for model in (declared, other))
    assert first.scenario.deployment.kv_precision == "fp8"
    assert second.scenario.deployment.kv_precision == "bf16"
    assert first.kv_tokens / second.kv_tokens == pytest.approx(2.0, rel=2e-3)
    assert any("as the checkpoint declares" in line for line in first.assumed)
    told = resolve(declared, "H100:tp=1", Options(engine=engine, kv_precision="bf16"))
    assert told.deployment.kv_precision == "bf16"


def test_a_checkpoint_that_declares_nothing_keeps_16_bits_under_every_engine():
    for engine in ("vllm", "sglang", "trtllm"):
        model = str(PUBLISHED / "Qwen--Qwen3-32B-FP8")
        assert resolve(model, "dgx-h100:tp=1", Options(engine=engine)).deployment.kv_precision == "bf16"


def test_the_published_files_that_declare_an_fp8_cache():
    declared = [name for name in NAMES if catalog.load_model(str(PUBLISHED / name)).kv_cache]
    written = [
        name
        for name in NAMES
        for file in ("config.json", "hf_quant_config.json")
        if (PUBLISHED / name / file).is_file()
        and (
            '"kv_cache_quant_algo": "FP8"' in (text := (PUBLISHED / name / file).read_text())
            or "kv_cache_scheme" in text
        )
        and '"kv_cache_scheme": null' not in text
    ]
    assert declared == sorted(set(written))


# --- folders -----------------------------------------------------------------------------------------------------


def test_an_adapter_adds_its_bytes_and_its_time(tmp_path):
    """Rank 16 on all seven projections of Llama-3.1-8B: 41,943,040 parameters, as PEFT prints."""
    adapter = {
        "peft_type": "LORA",
        "base_model_name_or_path": "meta-llama/Llama-3.1-8B-Instruct",
        "r": 16,
        "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    }
    model = load(tmp_path / "mine", adapter, "adapter_config.json")
    assert model.lora.replicated + model.lora.sharded == 41_943_040
    assert "rank 16" in notes(model)
    plain = resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(concurrency=32.0))
    with_one = resolve(model, "dgx-h100:tp=1", Options(concurrency=32.0))
    many = resolve(model, "dgx-h100:tp=1", Options(concurrency=32.0), ["model.lora.adapters=16"])
    assert chip_weights(with_one) - chip_weights(plain) == 41_943_040 * 2
    assert chip_weights(many) - chip_weights(plain) == 16 * 41_943_040 * 2
    assert run(plain).tpot_s < run(with_one).tpot_s < run(many).tpot_s


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"base_model_name_or_path": "nobody/nothing"}, "base_model_name_or_path"),
        ({"target_modules": ["c_attn"]}, "target_modules"),
        ({"r": 0}, "r"),
    ],
)
def test_an_adapter_that_is_not_understood(tmp_path, fields, field):
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "llama-3.1-8b", "r": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps({**adapter, **fields}), encoding="utf-8")
    assert f"adapter_config.json: {field}: " in refusal(tmp_path)


def test_parameters_in_mistrals_own_file(tmp_path):
    mistral = {
        "dim": 4096,
        "n_layers": 32,
        "head_dim": 128,
        "hidden_dim": 14336,
        "n_heads": 32,
        "n_kv_heads": 8,
        "norm_eps": 1e-05,
        "vocab_size": 32768,
    }
    model = load(tmp_path / "mistral-7b", mistral, "params.json")
    assert weights.total_parameters(model) == weights.total_parameters(catalog.load_model("mistral-7b-v0.3"))
    meta = {"dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32, "n_kv_heads": 8, "n_layers": 32}
    model = load(tmp_path / "llama", {**meta, "vocab_size": 128256}, "params.json")
    assert weights.total_parameters(model) == LLAMA_8B
    assert "the longest context" in notes(model)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path, layers, down, layers_of_tensors=None):
    """Write the header of a GGUF file of a small Llama: version 3, no data."""
    plain = {"block_count": layers, "embedding_length": 256, "feed_forward_length": 1024, "context_length": 4096}
    plain |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    fields = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for name, value in plain.items():
        fields += text(f"llama.{name}") + struct.pack("<II", 4, value)
    f32, q4_k, q6_k = 0, 12, 14
    tensors = [
        ("token_embd.weight", (256, 1000), q4_k),
        ("output.weight", (256, 1000), q6_k),
        ("output_norm.weight", (256,), f32),
    ]
    for at in range(layers_of_tensors or layers):
        tensors += [
            (f"blk.{at}.{name}.weight", sizes, kind)
            for name, sizes, kind in (
                ("attn_q", (256, 256), q4_k),
                ("attn_k", (256, 128), q4_k),
                ("attn_v", (256, 128), q4_k),
                ("attn_output", (256, 256), q4_k),
                ("ffn_gate", (256, 1024), q4_k),
                ("ffn_up", (256, 1024), q4_k),
                ("ffn_down", (1024, 256), down),
                ("attn_norm", (256,), f32),
                ("ffn_norm", (256,), f32),
            )
        ]
    body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1 + len(plain)) + fields
    for name, sizes, kind in tensors:
        body += text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes)
        body += struct.pack("<IQ", kind, 0)
    path.write_bytes(body)


def test_a_gguf_file_is_read_by_its_tensors(tmp_path):
    write_gguf(tmp_path / "small.gguf", 3, down=14)
    model = catalog.load_model(str(tmp_path))
    assert weights.total_parameters(model) == 2 * 256_000 + 3 * (196_608 + 786_432 + 512) + 256
    # Q4_K has 144 bytes for 256 weights, Q6_K 210.
    assert model.element_bytes["attention"] == 144 / 256
    assert model.element_bytes["mlp"] == pytest.approx((2 * 144 + 210) / 3 / 256)
    assert counts.stored(model, "head") == ("int8", 210 / 256)
    share = (256_000 + 3 * 262_144) / float(weights.total_parameters(model))
    assert f"{share:.0%} Q6_K" in notes(model)


def test_a_gguf_file_that_is_broken_or_another_model(tmp_path):
    path = tmp_path / "small.gguf"
    write_gguf(path, 3, down=14)
    whole = path.read_bytes()
    for broken, why in ((whole[:40], "ends within its header"), (b"PK" + whole, "does not begin with GGUF")):
        path.write_bytes(broken)
        assert why in refusal(tmp_path)
    write_gguf(path, 3, down=14, layers_of_tensors=2)
    assert "billion weights, its fields describe" in refusal(tmp_path)
    write_gguf(tmp_path / "other.gguf", 3, down=12)
    assert "holds 2 GGUF models" in refusal(tmp_path)


def test_a_folder_says_what_is_in_it(tmp_path):
    assert "holds no config.json, nothing" in refusal(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert "only model.safetensors" in refusal(tmp_path)
    index = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    assert "FluxPipeline of diffusers, made of transformer" in refusal(tmp_path)


# --- images ------------------------------------------------------------------------------------------------------


def test_images_run_through_the_encoder_in_prefill_only():
    name = str(PUBLISHED / "Qwen--Qwen3-VL-8B-Instruct")
    seen = run(resolve(name, "dgx-h100:tp=1", Options(prompt=500.0, output=200.0, images=2.0)))
    same = run(resolve(name, "dgx-h100:tp=1", Options(prompt=500.0 + 2 * 1024, output=200.0)))
    assert seen.scenario.traffic.prompt == 500 + 2 * 1024
    assert seen.tpot_s == pytest.approx(same.tpot_s, rel=1e-6)
    # 4,096 patches of 16 pixels an image, each through 0.43 billion weights, and attention of 1,152 among them.
    work = 2 * 4096 * 2 * 0.43e9 + 2 * 27 * 4 * 1152 * 4096**2
    least = work / 989e12
    assert least < seen.ttft_s - same.ttft_s < 4 * least
    with pytest.raises(UserError, match="has no encoder of images"):
        resolve("llama-3.1-8b", "dgx-h100:tp=1", Options(images=1.0))


# --- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "base", "precision", "cache"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b", "bf16", "bf16"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "qwen3-next-80b-a3b", "fp8", "bf16"),
        ("Qwen/Qwen3-Coder-Next", "qwen3-next-80b-a3b", "bf16", "bf16"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3.5-35b-a3b", "bf16", "bf16"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2.5", "int4", "bf16"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b", "fp8", "bf16"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "llama-3.1-8b", "fp8", "bf16"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16", "llama-3.3-70b", "int4", "bf16"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b", "int4", "bf16"),
        ("unsloth/Llama-3.3-70B-Instruct", "llama-3.3-70b", "bf16", "bf16"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b", "bf16", "bf16"),
        ("unsloth/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b", "bf16", "bf16"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b", "fp4", "fp8"),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "llama-3.1-70b", "fp8", "fp8"),
    ],
)
def test_a_name_stands_for_its_base(name, base, precision, cache):
    scenario = resolve(name, "dgx-b200:tp=8", Options())
    assert scenario.model.name == base
    assert (scenario.deployment.precision, scenario.deployment.kv_precision) == (precision, cache)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("openai/whisper-large-v3", ""),
        ("allenai/Olmo-3-7B-Think", ""),
        ("Qwen3-VL-8B", "qwen"),
        ("lama-3.1-8b", "llama"),
    ],
)
def test_suggestions_never_cross_families(name, family):
    with pytest.raises(UserError) as caught:
        catalog.load_model(name)
    _, found, words = str(caught.value).partition("did you mean ")
    assert bool(found) is bool(family)
    assert all(family in word for word in words.split(" or "))


def test_a_repository_of_gguf_files_is_no_precision():
    with pytest.raises(UserError, match="many precisions"):
        catalog.load_model("unsloth/gemma-3-27b-it-GGUF")


# --- counts ------------------------------------------------------------------------------------------------------


def test_counts_say_what_was_read():
    found = counts.counts(str(PUBLISHED / "nvidia--Qwen3.6-35B-A3B-NVFP4"), [1024.0])
    assert found["parameters"]["text"] == int(COUNTS["Qwen--Qwen3.5-35B-A3B"]["text"])
    assert sum(part["active"] for part in found["by_part"].values()) == found["active_parameters"]
    assert found["read"]["text_config.num_experts"] == 256
    assert found["cache"]["precision"] == "fp8"
    # Ten layers of attention with two heads of 256, and the states of the other thirty.
    assert found["cache"]["per_sequence"]["1024"]["next_token"] == 10 * 2 * 2 * 256
    states = 30 * 2 * (32 * 128 * 128 + (2 * 16 * 128 + 32 * 128) * 3)
    assert found["cache"]["per_sequence"]["1024"]["bytes"] == 1024 * 10 * 2 * 2 * 256 + states


def test_counts_of_a_bundled_model_add_up():
    found = counts.counts("llama-3.1-8b")
    assert found["parameters"]["total"] == sum(part["held"] for part in found["by_part"].values()) == LLAMA_8B
    assert found["bytes"]["total"] == 2 * LLAMA_8B
    assert found["cache"]["bytes_per_token"] == 131_072

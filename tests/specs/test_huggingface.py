"""A Hugging Face config.json against the bundled architecture of the same model, and against published counts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from perfmodel.errors import UserError
from perfmodel.machines import kv_cache
from perfmodel.specs import catalog, paths, rules, weights
from perfmodel.specs.types import Sliding

CONFIGS = Path(__file__).parent.parent / "data" / "configs"
KEPT = ("router", "embedding", "head")
#: SigLIP of Gemma 3: 27 layers of width 1152, patches of 14 x 14 pixels, 4,096 positions; and the projector.
LAYER = 4 * 1152 * 1153 + 1152 * 4304 + 4304 + 4304 * 1152 + 1152 + 4 * 1152
VISION = 27 * LAYER + (14 * 14 * 3 + 1 + 4096 + 2) * 1152 + 1152 * 5376 + 1152
#: Tensor totals of the safetensors files on Hugging Face.
CHECKPOINTS = {
    "phi-3-mini-4k": 3_821_079_552,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "deepseek-v2-lite": 15_706_484_224,
    "gemma-3-27b": 27_432_406_640 - VISION,
}
#: Bundled models; their YAML is made from other sources where these have one.
BUNDLED = sorted(
    path.stem for path in CONFIGS.glob("*.json") if path.stem not in CHECKPOINTS or path.stem == "gemma-3-27b"
)


def written(name):
    return json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))


def load(folder, content, quantisation=None):
    """Load a config as a download has it: a folder with a config.json."""
    here = folder / "Org-Some-Model"
    here.mkdir(exist_ok=True)
    (here / "config.json").write_text(json.dumps(content), encoding="utf-8")
    if quantisation is not None:
        (here / "hf_quant_config.json").write_text(json.dumps({"quantization": quantisation}), encoding="utf-8")
    return catalog.load_model(str(here))


def refusal(folder, content):
    with pytest.raises(UserError) as caught:
        load(folder, content)
    message = str(caught.value)
    assert "\n" not in message
    start, _, rest = message.partition("config.json: ")
    assert start.startswith(str(folder))
    return rest


def notes(model):
    return " ".join(dict.fromkeys(origin.note for origin in model.provenance.values()))


# --- architectures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUNDLED)
def test_a_config_is_the_bundled_architecture(name):
    bundled = catalog.load_model(name)
    if name == "gemma-3-27b":
        # The file names no vocabulary; litgpt has that of the tokenizer, the checkpoint 64 rows more.
        bundled = replace(bundled, vocab=262_208.0)
    model = catalog.load_model(str(CONFIGS / f"{name}.json"))
    assert model.name == name
    assert weights.total_parameters(model) == weights.total_parameters(bundled)
    assert weights.active_parameters(model) == weights.active_parameters(bundled)
    assert kv_cache.kv_bytes_per_token(model, "bf16") == kv_cache.kv_bytes_per_token(bundled, "bf16")
    assert set(model.layers) == set(bundled.layers)
    assert len(model.layers) == len(bundled.layers)
    same = ("precision", "unquantised", "hidden", "vocab", "tied_embeddings", "max_context")
    assert {key: getattr(model, key) for key in same} == {key: getattr(bundled, key) for key in same}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_total_parameters_are_those_of_the_checkpoint(name):
    assert weights.total_parameters(catalog.load_model(str(CONFIGS / f"{name}.json"))) == CHECKPOINTS[name]


@pytest.mark.parametrize("name", [path.stem for path in sorted(CONFIGS.glob("*.json"))])
def test_what_is_loaded_keeps_every_rule_and_every_number_has_a_source(name):
    model = catalog.load_model(str(CONFIGS / f"{name}.json"))
    assert rules.broken(model) == []
    assert set(model.provenance) == {path for path, _, _ in paths.quantities(model)}
    assert {origin.source for origin in model.provenance.values()} <= set(catalog.load_sources())
    assert {origin.file for origin in model.provenance.values()} == {f"{name}.json"}


def test_the_head_width_of_the_file_wins_over_the_quotient(tmp_path):
    config = written("mistral-small-24b")
    assert config["head_dim"] != config["hidden_size"] / config["num_attention_heads"]
    assert load(tmp_path, config).layers[0].attention.head_dim == config["head_dim"]
    del config["head_dim"]
    model = load(tmp_path, config)
    assert model.layers[0].attention.head_dim == 5120 / 32
    assert model.provenance["layers.0.attention.head_dim"].kind == "derived"


def test_without_key_value_heads_every_head_has_its_own(tmp_path):
    config = written("llama-3.1-8b")
    del config["num_key_value_heads"]
    assert load(tmp_path, config).layers[0].attention.kv_heads == 32


@pytest.mark.parametrize(("name", "tied"), [("llama-3.1-8b", False), ("qwen3-8b", False), ("gemma-2-27b", True)])
def test_whether_embeddings_are_tied_is_a_matter_of_type_where_the_file_is_silent(tmp_path, name, tied):
    config = written(name)
    config.pop("tie_word_embeddings", None)
    assert load(tmp_path, config).tied_embeddings is tied


# --- windows -----------------------------------------------------------------------------------------------------


def windows(model):
    return {run.attention.sliding.window if run.attention.sliding else None: run.count for run in model.layers}


def test_mistral_slides_where_it_says_so(tmp_path):
    config = {**written("mistral-7b-v0.3"), "sliding_window": 4096}
    assert windows(load(tmp_path, config)) == {4096: 32}
    # The class has a window where the file says nothing at all.
    del config["sliding_window"]
    model = load(tmp_path, config)
    assert windows(model) == {4096: 32}
    assert "sliding_window is not in the file" in notes(model)


def test_qwen_slides_only_where_the_switch_is_on(tmp_path):
    config = {**written("qwen3-8b"), "sliding_window": 4096, "max_window_layers": 28}
    assert windows(load(tmp_path, config)) == {None: 36}
    assert windows(load(tmp_path, {**config, "use_sliding_window": True})) == {None: 28, 4096: 8}
    kinds = ["full_attention", "sliding_attention"] * 18
    assert windows(load(tmp_path, {**config, "use_sliding_window": True, "layer_types": kinds})) == {None: 18, 4096: 18}


def test_gemma_3_slides_by_its_pattern_or_by_its_list(tmp_path):
    config = written("gemma-3-27b")
    config["text_config"]["sliding_window_pattern"] = 2
    assert windows(load(tmp_path, config)) == {1024: 31, None: 31}
    config["text_config"]["layer_types"] = ["sliding_attention"] * 61 + ["full_attention"]
    assert windows(load(tmp_path, config)) == {1024: 61, None: 1}


def test_llama_4_attends_within_chunks_where_it_has_positions(tmp_path):
    config = written("llama-4-scout")
    config["text_config"]["no_rope_layers"] = [1] * 24 + [0] * 24
    model = load(tmp_path, config)
    assert {run.attention.sliding: run.count for run in model.layers} == {Sliding(8192.0, chunked=True): 24, None: 24}


def test_an_unknown_kind_of_layer_is_refused(tmp_path):
    config = {**written("qwen3-8b"), "layer_types": ["linear_attention"] * 36}
    assert "layer_types: unknown 'linear_attention'" in refusal(tmp_path, config)
    config = {**written("qwen3-8b"), "layer_types": ["full_attention"] * 35}
    assert "layer_types: 35 entries for 36 layers" in refusal(tmp_path, config)


# --- other types -------------------------------------------------------------------------------------------------


def test_an_unknown_type_reads_as_a_llama_and_says_so(tmp_path):
    config = {**written("llama-3.1-8b"), "model_type": "newcomer"}
    model = load(tmp_path, config)
    assert weights.total_parameters(model) == 8_030_261_248
    assert all("model_type 'newcomer' is not known here" in origin.note for origin in model.provenance.values())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_experts", 64),
        ("n_routed_experts", 64),
        ("num_local_experts", 8),
        ("moe_intermediate_size", 768),
        ("kv_lora_rank", 512),
        ("ssm_state_size", 128),
        ("mamba_d_state", 16),
        ("linear_num_value_heads", 32),
        ("sliding_window", 4096),
        ("layer_types", ["sliding_attention"] * 32),
        ("hybrid_override_pattern", "M-"),
        ("block_configs", [{}]),
        ("is_encoder_decoder", True),
        ("hidden_act", "gelu"),
    ],
)
def test_an_unknown_type_that_is_no_llama_is_refused(tmp_path, field, value):
    config = {**written("llama-3.1-8b"), "model_type": "newcomer", field: value}
    message = refusal(tmp_path, config)
    assert message.startswith(f"{field}: model_type 'newcomer' is not known here"), message
    assert "YAML" in message


@pytest.mark.parametrize(
    "harmless",
    [
        {"num_experts": 0},
        {"num_local_experts": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"layer_types": ["full_attention"] * 32},
        {"chunk_size_feed_forward": 0, "is_encoder_decoder": False},
    ],
)
def test_a_field_that_is_off_does_no_harm(tmp_path, harmless):
    config = {**written("llama-3.1-8b"), "model_type": "newcomer", **harmless}
    assert weights.total_parameters(load(tmp_path, config)) == 8_030_261_248


def test_an_unknown_type_inside_a_multimodal_one_is_named_with_its_place(tmp_path):
    inner = {**written("llama-3.1-8b"), "model_type": "newcomer_text", "num_experts": 8}
    message = refusal(tmp_path, {"model_type": "newcomer", "text_config": inner})
    assert message.startswith("text_config.num_experts: "), message


def test_a_multimodal_model_is_its_text_model(tmp_path):
    outer = {"model_type": "wrapper", "quantization_config": {"quant_method": "fp8"}}
    model = load(tmp_path, {**outer, "text_config": written("llama-3.1-8b")})
    assert weights.total_parameters(model) == 8_030_261_248
    assert model.precision == "fp8"
    assert model.towers == 0


def test_an_encoder_of_images_weighs_what_the_class_has(tmp_path):
    """Qwen3-VL-8B: 576,388,336 weights beside the text model, counted with transformers 5.24 on the meta device."""
    vision = {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "out_hidden_size": 4096,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    }
    outer = {"model_type": "qwen3_vl", "text_config": written("qwen3-8b"), "vision_config": vision}
    model = load(tmp_path, outer)
    assert model.towers == 576_388_336
    assert model.vision.tokens == (1024 / 32) ** 2


def test_layers_that_predict_several_tokens_are_noted():
    assert "predict several tokens are left out" in notes(catalog.load_model(str(CONFIGS / "deepseek-v3.json")))


# --- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "precision", "note"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16", ""),
        ({"torch_dtype": "float16"}, "fp16", ""),
        ({"torch_dtype": None, "dtype": "float16"}, "fp16", ""),
        ({"torch_dtype": "float32"}, "bf16", "torch_dtype is float32"),
        ({"torch_dtype": None}, "bf16", "torch_dtype is not in the file"),
    ],
)
def test_the_type_of_the_tensors_is_the_precision(tmp_path, fields, precision, note):
    model = load(tmp_path, {**written("llama-3.1-8b"), **fields})
    assert model.precision == precision
    assert note in notes(model)
    assert model.unquantised == KEPT


def grouped(bits, kind, **more):
    weights = {"num_bits": bits, "type": kind, **more}
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def by_layer(count, *names):
    return [f"model.layers.{index}.{name}" for index in range(count) for name in names]


KIMI = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


@pytest.mark.parametrize(
    ("name", "entry", "precision", "kept"),
    [
        # FP8 in blocks, as DeepSeek and Qwen publish it.
        ("deepseek-v3", {"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", KEPT),
        (
            "qwen3-30b-a3b",
            {
                "quant_method": "fp8",
                "modules_to_not_convert": ["lm_head", *by_layer(48, "mlp.gate", "input_layernorm")],
            },
            "fp8",
            KEPT,
        ),
        # FBGEMM as in Llama-3.1-405B-FP8: no attention at all, and no feed-forward block in the first layer.
        (
            "llama-3.1-8b",
            {
                "quant_method": "fbgemm_fp8",
                "modules_to_not_convert": [
                    *by_layer(32, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
                    *by_layer(1, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
                ],
            },
            "fp8",
            ("attention", *KEPT),
        ),
        # compressed-tensors.
        (
            "llama-3.1-8b",
            {"quant_method": "compressed-tensors", **grouped(8, "float"), "ignore": ["lm_head"]},
            "fp8",
            KEPT,
        ),
        (
            "llama-3.1-8b",
            {"quant_method": "compressed-tensors", **grouped(8, "int"), "ignore": []},
            "int8",
            ("router", "embedding"),
        ),
        ("llama-3.2-1b", {"quant_method": "compressed-tensors", **grouped(8, "int"), "ignore": []}, "int8", KEPT),
        ("llama-3.1-8b", {"quant_method": "compressed-tensors", **grouped(4, "int", group_size=128)}, "int4", KEPT),
        ("llama-3.1-8b", {"quant_method": "compressed-tensors", **grouped(4, "float", group_size=16)}, "fp4", KEPT),
        ("llama-3.1-8b", {"quant_method": "compressed-tensors", **grouped(4, "float", group_size=32)}, "mxfp4", KEPT),
        (
            "kimi-k2",
            {"quant_method": "compressed-tensors", **grouped(4, "int", group_size=32), "ignore": KIMI},
            "int4",
            ("attention", "mlp", *KEPT),
        ),
        # GPTQ and AWQ.
        ("llama-3.1-8b", {"quant_method": "awq", "bits": 4, "modules_to_not_convert": None}, "int4", KEPT),
        ("mixtral-8x7b", {"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["gate"]}, "int4", KEPT),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 8, "lm_head": False}, "int8", KEPT),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 4, "lm_head": True}, "int4", ("router", "embedding")),
        (
            "qwen3-30b-a3b",
            {"quant_method": "gptq", "bits": 4, "dynamic": {r"-:.*self_attn.*": {}}},
            "int4",
            ("attention", *KEPT),
        ),
        # ModelOpt.
        (
            "minimax-m2",
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["lm_head", *by_layer(62, "self_attn*", "block_sparse_moe.gate")],
            },
            "fp4",
            ("attention", *KEPT),
        ),
        ("qwen3-32b", {"quant_algo": "FP8", **grouped(8, "float"), "ignore": ["lm_head"]}, "fp8", KEPT),
        # bitsandbytes, and MXFP4 that does not say what it leaves.
        ("llama-3.1-8b", {"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", KEPT),
        ("llama-3.1-8b", {"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", KEPT),
        ("gpt-oss-20b", {"quant_method": "mxfp4"}, "mxfp4", ("attention", *KEPT)),
    ],
)
def test_quantisation(tmp_path, name, entry, precision, kept):
    model = load(tmp_path, {**written(name), "quantization_config": entry})
    assert (model.precision, model.unquantised) == (precision, kept)


def test_modelopt_says_it_in_a_file_beside(tmp_path):
    entry = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    model = load(tmp_path, written("llama-3.1-8b"), entry)
    assert (model.precision, model.unquantised) == ("fp8", KEPT)


def test_what_only_some_layers_leave_unquantised_is_noted(tmp_path):
    """DeepSeek-V3.1-NVFP4 leaves four of five attention matrices, not the largest, and the layer of the prediction."""
    left = by_layer(61, *(f"self_attn.{part}" for part in ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")))
    entry = {"quant_algo": "NVFP4", "exclude_modules": [*left, "lm_head", "model.layers.61*"]}
    config = written("deepseek-v3")
    del config["quantization_config"]
    model = load(tmp_path, config, entry)
    assert (model.precision, model.unquantised) == ("fp4", KEPT)
    # Of a layer's 186.6 million weights 69.6 million stay.
    kept = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256
    share = kept / (kept + 128 * 128 * 7168)
    assert f"attention counts as fp4: {share:.0%} of it is stored otherwise" in notes(model)
    assert model.element_bytes["attention"] == pytest.approx(2 * share + 0.5625 * (1 - share))
    entry["exclude_modules"] = by_layer(60, "self_attn*")
    model = load(tmp_path, config, entry)
    assert model.unquantised == ("attention", *KEPT)
    assert f"attention counts as bf16: {1 / 61:.0%} of it is stored otherwise" in notes(model)


@pytest.mark.parametrize(
    ("entry", "field", "what"),
    [
        ({"quant_method": "exl3", "bits": 3.5}, "quant_method", 'unknown "exl3"'),
        ({"quant_method": None, "bits": 4}, "quant_method", "unknown null"),
        ({"quant_method": ["fp8"]}, "quant_method", 'unknown ["fp8"]'),
        ({"quant_method": "gptq", "bits": 3}, "bits", "unknown 3, expected one of 4, 8"),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down_proj.*": {"bits": 3}}},
            "dynamic.+:.*down_proj.*.bits",
            "unknown 3, expected one of 4, 8",
        ),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit", "neither this nor load_in_8bit"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
            "quantized_layers",
            "needs a mapping of layers",
        ),
        ({"quant_method": "compressed-tensors"}, "config_groups", "found none"),
        ({"quant_method": "compressed-tensors", **grouped(2, "int")}, "config_groups.group_0.weights", "2 bits of int"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {}}}, "config_groups.a.weights", "num_bits"),
        (
            {
                "config_groups": {
                    "a": {"weights": {"num_bits": 8, "type": "float"}},
                    "b": {"weights": {"num_bits": 4, "type": "int"}},
                }
            },
            "config_groups",
            "expected one precision, found fp8, int4",
        ),
        (
            {"config_groups": {"a": {"targets": ["re:.*something"], "weights": {"num_bits": 8, "type": "int"}}}},
            "config_groups.a.targets",
            "is no module that is known",
        ),
        ({"quant_method": "fp8", "modules_to_not_convert": [1]}, "modules_to_not_convert", "expected a list of str"),
    ],
)
def test_a_quantisation_that_is_not_understood_is_refused(tmp_path, entry, field, what):
    message = refusal(tmp_path, {**written("llama-3.1-8b"), "quantization_config": entry})
    assert message.startswith(f"quantization_config.{field}: "), message
    assert what in message


# --- mistakes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llama-3.1-8b", "hidden_size"),
        ("llama-3.1-8b", "num_attention_heads"),
        ("llama-3.1-8b", "num_hidden_layers"),
        ("llama-3.1-8b", "intermediate_size"),
        ("llama-3.1-8b", "vocab_size"),
        ("llama-3.1-8b", "max_position_embeddings"),
        ("mixtral-8x7b", "num_local_experts"),
        ("mixtral-8x7b", "num_experts_per_tok"),
        ("qwen3-30b-a3b", "moe_intermediate_size"),
        ("deepseek-v3", "kv_lora_rank"),
        ("deepseek-v3", "first_k_dense_replace"),
        ("deepseek-v3.2", "index_topk"),
        ("qwen3-next-80b-a3b", "linear_num_value_heads"),
        ("nemotron-h-56b", "ssm_state_size"),
        ("jamba-v0.1", "attn_layer_period"),
    ],
)
@pytest.mark.parametrize("gone", [True, False], ids=["missing", "null"])
def test_a_required_field_is_missed(tmp_path, name, field, gone):
    config = written(name)
    if gone:
        del config[field]
    else:
        config[field] = None
    assert refusal(tmp_path, config).startswith(f"{field}: required field is missing")


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, float("nan"), float("inf"), 10**400, True, "4096", [1], {"a": 1}],
    ids=lambda value: str(value)[:9],
)
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_key_value_heads", "vocab_size"])
def test_a_number_that_cannot_be_is_refused(tmp_path, field, value):
    message = refusal(tmp_path, {**written("llama-3.1-8b"), field: value})
    assert message.startswith(f"{field}: expected a whole number from 1 to "), message


@pytest.mark.parametrize(
    ("name", "fields", "field", "what"),
    [
        ("llama-3.1-8b", {"num_key_value_heads": 7}, "num_key_value_heads", "7 do not divide the 32"),
        ("llama-3.1-8b", {"num_attention_heads": 24}, "head_dim", "24 heads do not divide hidden_size 4096"),
        ("llama-3.1-8b", {"tie_word_embeddings": "yes"}, "tie_word_embeddings", "expected true or false"),
        ("llama-3.1-8b", {"torch_dtype": "int3"}, "torch_dtype", 'unknown "int3"'),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok", "9 of only 8 num_local_experts"),
        ("qwen3-30b-a3b", {"mlp_only_layers": "none"}, "mlp_only_layers", "expected a list of int"),
        ("jamba-v0.1", {"attn_layer_offset": 8}, "attn_layer_offset", "8 is not below attn_layer_period 8"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M-X"}, "hybrid_override_pattern", "unknown 'X'"),
        ("nemotron-h-56b", {"hybrid_override_pattern": "M-*"}, "hybrid_override_pattern", "3 entries for 118"),
        ("nemotron-h-56b", {"hybrid_override_pattern": None}, "layers_block_type", "required field is missing"),
    ],
)
def test_fields_that_do_not_fit_are_refused(tmp_path, name, fields, field, what):
    message = refusal(tmp_path, {**written(name), **fields})
    assert message.startswith(f"{field}: "), message
    assert what in message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1: is no JSON"),
        ('{"hidden_size": 4096,\n "vocab_size" 5}', ":2: is no JSON"),
        ("hidden_size: 4096", ":1: is no JSON"),
        ("[1, 2]", "expected a mapping of fields"),
        ("[" * 100_000, "is no JSON that can be read"),
    ],
    ids=["empty", "comma", "YAML", "list", "deep"],
)
def test_a_file_that_is_no_config(tmp_path, text, what):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        catalog.load_model(str(path))
    assert str(caught.value).startswith(str(path))
    assert what in str(caught.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    path = tmp_path / "config.json"
    with pytest.raises(UserError, match="no such file"):
        catalog.load_model(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        catalog.load_model(str(path))


# --- names -------------------------------------------------------------------------------------------------------


def test_a_model_has_the_name_of_its_folder_its_path_or_its_file(tmp_path):
    config = written("llama-3.1-8b")
    assert load(tmp_path, config).name == "org-some-model"
    for content, name, hf_id in [
        (config, "mine", ""),
        ({**config, "_name_or_path": "meta-llama/Llama-3.1-8B"}, "llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ({**config, "_name_or_path": "/raid/run/step-500/"}, "step-500", ""),
    ]:
        (tmp_path / "Mine.json").write_text(json.dumps(content), encoding="utf-8")
        model = catalog.load_model(str(tmp_path / "Mine.json"))
        assert (model.name, model.hf_id) == (name, hf_id)


def test_a_model_of_the_download_cache_has_its_name(tmp_path):
    folder = tmp_path / "models--meta-llama--Llama-3.1-8B" / "snapshots"
    folder.mkdir(parents=True)
    model = load(folder, written("llama-3.1-8b"))
    assert (model.name, model.hf_id) == ("llama-3.1-8b", "meta-llama/Llama-3.1-8B")


def test_a_folder_does_not_hide_the_bundled_model_of_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "llama-3.1-70b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(written("llama-3.1-8b")), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert weights.total_parameters(catalog.load_model("llama-3.1-70b")) == 70_553_706_496
    assert weights.total_parameters(catalog.load_model("./llama-3.1-70b")) == 8_030_261_248

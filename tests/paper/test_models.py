"""Parameter counts and cache sizes against the models' published configurations."""

import json
from pathlib import Path

import pytest

from perfmodel.equations import transformer
from perfmodel.machines import kv_cache
from perfmodel.specs import catalog, weights

PUBLISHED = json.loads((Path(__file__).parent.parent / "data" / "models.json").read_text(encoding="utf-8"))["models"]
BY_NAME = {
    key.casefold(): entry for name, entry in PUBLISHED.items() for key in (name, entry["hf_id"].partition(" ")[0])
}
CATALOG = sorted(name for name, _, _ in catalog.entries("model"))
FIRST_RELEASE = (
    "llama-3.1-8b",
    "llama-3.1-70b",
    "llama-3.1-405b",
    "llama-3.2-1b",
    "llama-3.2-3b",
    "llama-3.3-70b",
    "qwen2.5-72b",
    "qwen3-8b",
    "qwen3-32b",
)


def published(name):
    model = catalog.load_model(name)
    entry = BY_NAME.get(model.hf_id.casefold()) or BY_NAME.get(model.name.casefold())
    assert entry is not None, f"tests/data/models.json has no reference for {name}"
    return model, entry


def has_full_attention(name):
    entry = published(name)[1]
    return entry["type"] in ("dense", "searched") and not entry["sliding_window"]


def test_the_models_of_the_first_release_are_there():
    assert set(FIRST_RELEASE) <= set(CATALOG)


@pytest.mark.parametrize("name", CATALOG)
def test_total_parameters(name):
    model, entry = published(name)
    assert weights.total_parameters(model) == entry["total_params"]


@pytest.mark.parametrize("name", CATALOG)
def test_active_parameters(name):
    model, entry = published(name)
    assert weights.active_parameters(model) == entry["active_params_per_token"]


@pytest.mark.parametrize("name", [name for name in CATALOG if has_full_attention(name)])
def test_cache_bytes_of_a_token(name):
    model, entry = published(name)
    assert kv_cache.kv_bytes_per_token(model, "bf16") == entry["kv_bytes_per_token_bf16"]


def test_llama_70b_leaves_320_kib_a_token():
    assert kv_cache.kv_bytes_per_token(catalog.load_model("llama-3.1-70b"), "bf16") == 327_680


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # Tensor totals of the safetensors files on Hugging Face.
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("qwen2.5-72b", 72_706_203_648),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
    ],
)
def test_total_parameters_are_those_of_the_checkpoint(name, total):
    assert weights.total_parameters(catalog.load_model(name)) == total


@pytest.mark.parametrize(("name", "intensity"), [("llama-3.3-70b", 8.0)])
def test_attention_intensity_is_the_number_of_query_heads_a_kv_head(name, intensity):
    """SHIP: the operational intensity of self-attention at 16 bits and one token is 8 for Llama-3.3-70B."""
    attention = catalog.load_model(name).layers[0].attention
    context = 4096.0
    flops = transformer.attention_flops(
        sequences=1.0,
        tokens=1.0,
        attended=transformer.mean_attended_tokens(context=context, tokens=1.0),
        heads=attention.heads,
        key_dim=attention.head_dim,
        value_dim=attention.head_dim,
    )
    moved = transformer.kv_traffic(
        sequences=1.0,
        context=context,
        tokens=1.0,
        bytes_per_token=transformer.kv_bytes_per_token(
            kv_heads=attention.kv_heads,
            key_dim=attention.head_dim,
            value_dim=attention.head_dim,
            bytes_per_element=2.0,
        ),
    )
    assert flops / moved == pytest.approx(intensity, rel=1e-12)


def test_one_token_through_16_bit_weights_has_an_intensity_of_1():
    """SHIP: an expert that runs token by token has an operational intensity of about 1."""
    weights = transformer.mlp_parameters(hidden=4096.0, intermediate=1536.0, matrices=3.0)
    assert transformer.gemm_flops(tokens=1.0, parameters=weights) / (2 * weights) == pytest.approx(1.0)

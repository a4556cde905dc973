"""Every class of transformers that we read, counted on the meta device: run with ``-m nightly`` and the extra.

``pip install -e '.[transformers]'`` brings what it needs; nothing is downloaded and no weight is made.
"""

import json

import pytest

from perfmodel.specs import catalog, weights
from perfmodel.specs.architectures import table as architectures

pytestmark = pytest.mark.nightly

#: Weights of a module that runs over images or sound.
TOWER = ("visual", "vision", "audio", "projector", "image", "embed_vision")
#: What the class holds and no checkpoint does, or the other way round, by how much [weights].
KNOWN = {
    # Rooms for experts that compute nothing.
    "longcat_flash": lambda config: 28 * 256 * 2 * config.expert_ffn_hidden_size * config.hidden_size,
}
#: Connectors that the names of modules do not tell from the text model, and ends of encoders trained to fill gaps.
APART = {
    "blip-2",
    "deepseek_vl",
    "deepseek_vl_hybrid",
    "gemma4_unified_assistant",
    "granite_speech",
    "granite_speech_plus",
    "idefics2",
    "idefics3",
    "instructblip",
    "instructblipvideo",
    "janus",
    "minicpm_ocr",
    "minicpmv4_6",
    "minicpmv4_7",
    "nemo_speechlm",
    "smolvlm",
    "vibevoice_asr",
    "video_llava",
}


def types():
    """Return the model types of transformers that our table reads, empty where transformers is not there."""
    try:
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT,
        )
        from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGES
    except ImportError:
        return []
    known = {*architectures.TYPES, *architectures.SAME_AS}
    return sorted(
        name
        for name in {*TEXT, *IMAGES}
        if name.removesuffix("_text") in known and name not in APART and not is_encoder(name)
    )


def is_encoder(name):
    form = architectures.TYPES.get(architectures.SAME_AS.get(name, name))
    return form is not None and form.pools


def counted(name):
    """Return the default configuration of a type, and its weights of text and of towers on the meta device."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as TEXT
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGES

    called = TEXT.get(name) or IMAGES.get(name)
    try:
        config = CONFIG_MAPPING[name]()
        with torch.device("meta"):
            model = getattr(transformers, called if isinstance(called, str) else called[0])(config)
    except Exception as error:
        pytest.skip(f"its default configuration makes no model: {error}")
    weights = {id(one): (key, one.numel()) for key, one in model.named_parameters()}
    towers = sum(size for key, size in weights.values() if any(word in key for word in TOWER))
    return config, type(model).__name__, sum(size for _, size in weights.values()) - towers, towers


def test_transformers_is_there():
    pytest.importorskip("transformers")
    assert len(types()) > 80


@pytest.mark.parametrize("name", types())
def test_a_class_has_the_parameters_that_we_read(name, tmp_path):
    config, called, text, _ = counted(name)
    written = {**json.loads(config.to_json_string(use_diff=False)), "architectures": [called]}
    if name == "deepseek_v2":
        written["num_experts_per_tok"] = 6
    (tmp_path / "config.json").write_text(json.dumps(written), encoding="utf-8")
    if any(one.get("head_dim") is None and one["hidden_size"] % one["num_attention_heads"] for one in texts(written)):
        pytest.skip("its default heads do not divide its width")
    model = catalog.load_model(str(tmp_path))
    surplus = KNOWN[name](config) if name in KNOWN else 0
    assert float(weights.total_parameters(model)) == pytest.approx(text - surplus, rel=1e-4)


def texts(written):
    inner = written.get("text_config") or written
    return [inner] if "num_attention_heads" in inner and "hidden_size" in inner else []

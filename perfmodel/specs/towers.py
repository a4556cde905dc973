"""Encoders of images and sound beside a text model: their weights, and what an image costs.

Sizes follow the encoders of transformers 5.24; a field that real files leave out has the default of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfmodel.errors import UserError
from perfmodel.specs.config import Config
from perfmodel.specs.types import Vision

#: Side of an image where neither the tower nor its processor says how large one is [pixels].
ANY_SIDE = 1024.0


@dataclass(frozen=True)
class Tower:
    """An encoder: all its weights, those that meet each patch, its layers, and the patches and tokens of an image."""

    weights: float
    each: float
    layers: float
    width: float
    patches: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True)
class _Layer:
    """What a layer of an encoder has: biases, a gated MLP, and scales of full width."""

    attention_bias: float = 1.0
    mlp_bias: float = 1.0
    matrices: float = 2.0
    scales: float = 4.0

    def weights(self, width: float, inner: float, heads: float = 0.0) -> float:
        """Return the weights of one layer; ``heads`` is the width of the queries where it is another."""
        query = heads or width
        attention = 4 * width * query + self.attention_bias * (3 * query + width)
        biases = self.mlp_bias * ((self.matrices - 1) * inner + width)
        return attention + self.matrices * width * inner + biases + self.scales * width


_PLAIN = _Layer()
_BARE = _Layer(attention_bias=0.0, mlp_bias=0.0, matrices=3.0, scales=2.0)


def _linear(inputs: float, outputs: float, bias: float = 1.0) -> float:
    return (inputs + bias) * outputs


def _merged(vision: Config, text: Config, taps: float, each_layer: _Layer, conv_bias: float, norm: float) -> Tower:
    """Read the encoders of Qwen: patches of two frames, and a projector of four merged patches."""
    width, layers = vision.count("hidden_size"), vision.count("num_hidden_layers")
    inner = vision.count("intermediate_size")
    patch, merge = vision.count("patch_size"), vision.count("spatial_merge_size", default=2.0)
    out = vision.count("out_hidden_size", default=text.count("hidden_size"))
    wide = merge**2 * width
    projector = _linear(wide, wide) + _linear(wide, out)
    first = 3 * taps * patch**2 * width + conv_bias * width
    body = layers * each_layer.weights(width, inner)
    positions = vision.count("num_position_embeddings", default=0.0, least=0) * width
    several = vision.get("deepstack_visual_indexes") or []
    deep = float(len(several)) * (projector + 2 * wide)
    weights = first + body + positions + projector + norm * width + deep
    each = first + body + (projector * (1 + len(several))) / merge**2
    patches = (ANY_SIDE / patch) ** 2
    return Tower(weights, each, layers, width, patches, patches / merge**2)


def _qwen2(vision: Config, text: Config) -> Tower:
    width = vision.count("embed_dim", default=1280.0)
    fields = {
        **vision.fields,
        "hidden_size": width,
        "out_hidden_size": vision.get("hidden_size") or text.count("hidden_size"),
    }
    inner = {"intermediate_size": int(float(vision.get("mlp_ratio") or 4) * width), "patch_size": 14, "depth": 32}
    return _merged(_with(vision, {**inner, **fields}), text, 2.0, _PLAIN, 0.0, 2.0)


def _qwen2_5(vision: Config, text: Config) -> Tower:
    given = _with(
        vision, {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "patch_size": 14, **vision.fields}
    )
    return _merged(given, text, 2.0, _Layer(matrices=3.0, scales=2.0), 0.0, 1.0)


def _qwen3(vision: Config, text: Config) -> Tower:
    default = {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "patch_size": 16,
        "num_position_embeddings": 2304,
    }
    return _merged(_with(vision, {**default, **vision.fields}), text, 2.0, _PLAIN, 1.0, 2.0)


def _with(config: Config, fields: Mapping[str, Any]) -> Config:
    renamed = dict(fields)
    if "depth" in renamed:
        renamed.setdefault("num_hidden_layers", renamed.pop("depth"))
    return Config(config.path, renamed, config.where)


def _vit(vision: Config, layer: _Layer = _PLAIN, **more: float) -> Tower:
    """Read an encoder of square images: patches, positions, layers."""
    width, layers = vision.count("hidden_size"), vision.count("num_hidden_layers")
    inner = vision.count("intermediate_size", default=4 * width)
    patch = vision.count("patch_size")
    side = vision.count("image_size", default=ANY_SIDE)
    patches = (side // patch) ** 2
    first = 3 * patch**2 * width * more.get("frames", 1.0) + more.get("conv_bias", 1.0) * width
    body = layers * layer.weights(width, inner, more.get("query", 0.0))
    extra = (more.get("positions", patches) + more.get("ends", 2.0)) * width
    return Tower(first + body + extra, first + body, layers, width, patches, patches)


def _join(tower: Tower, projector: float, tokens: float) -> Tower:
    """Return a tower with its projector, which runs on the tokens of an image."""
    each = tower.each + projector * tokens / tower.patches if tower.patches else tower.each
    return Tower(tower.weights + projector, each, tower.layers, tower.width, tower.patches, tokens)


def _siglip(vision: Config, text: Config) -> Tower:
    """Read Gemma 3's encoder; its head, which pools an image, is there unless the file says otherwise."""
    tower = _vit(
        _with(
            vision, {"hidden_size": 768, "num_hidden_layers": 12, "patch_size": 16, "image_size": 224, **vision.fields}
        )
    )
    width, inner = tower.width, vision.count("intermediate_size", default=4 * tower.width)
    if vision.flag("vision_use_head", True):
        head = width + _PLAIN.weights(width, inner) - 2 * width
        tower = Tower(tower.weights + head, tower.each, tower.layers, width, tower.patches, tower.tokens)
    tokens = text.count("mm_tokens_per_image", default=256.0)
    return _join(tower, width * text.count("hidden_size") + width, tokens)


def _gemma4(vision: Config, text: Config) -> Tower:
    layer = _Layer(attention_bias=0.0, mlp_bias=0.0, matrices=3.0, scales=4.0)
    places = vision.count("position_embedding_size", default=10240.0)
    tower = _vit(vision, layer, conv_bias=0.0, positions=2 * places, ends=0.0)
    heads = tower.layers * 2 * vision.count("head_dim", default=72.0)
    tokens = text.count("vision_soft_tokens_per_image", default=280.0)
    pool = vision.count("pooling_kernel_size", default=3.0) ** 2
    tower = Tower(tower.weights + heads, tower.each, tower.layers, tower.width, tokens * pool, tokens)
    return _join(tower, tower.width * text.count("hidden_size"), tokens)


def _clip(vision: Config, text: Config) -> Tower:
    tower = _vit(vision, conv_bias=0.0, ends=6.0)
    hidden = text.count("hidden_size")
    return _join(tower, _linear(tower.width, hidden) + _linear(hidden, hidden), tower.patches)


def _pixtral(vision: Config, text: Config) -> Tower:
    tower = _vit(vision, _BARE, conv_bias=0.0, positions=0.0, ends=1.0)
    hidden, merge = text.count("hidden_size"), text.count("spatial_merge_size", default=2.0)
    bias = float(text.flag("multimodal_projector_bias"))
    merger = merge**2 * tower.width**2 if merge > 1 else 0.0
    projector = tower.width + merger + _linear(tower.width, hidden, bias) + _linear(hidden, hidden, bias)
    return _join(tower, projector, tower.patches / merge**2)


def _llama4(vision: Config, text: Config) -> Tower:
    tower = _vit(vision, conv_bias=0.0, ends=6.0)
    inner, wide = vision.count("intermediate_size"), vision.count("projector_output_dim", default=4096.0)
    narrow = vision.count("projector_input_dim", default=4096.0)
    out = vision.count("vision_output_dim", default=wide)
    projector = inner * narrow + narrow * wide + out * text.count("hidden_size")
    ratio = vision.get("pixel_shuffle_ratio")
    share = float(ratio) ** 2 if isinstance(ratio, int | float) else 0.25
    return _join(tower, projector, tower.patches * share)


def _mllama(vision: Config, text: Config) -> Tower:
    tower = _vit(vision, _Layer(attention_bias=0.0), conv_bias=0.0, ends=6.0)
    width, layers = tower.width, vision.count("num_global_layers", default=8.0)
    tiles = vision.count("max_num_tiles", default=4.0)
    shapes = float(len(vision.get("supported_aspect_ratios") or [0] * 8)) + 1
    tables = shapes * tiles * ((tower.patches + 1) * width + 2 * width)
    more = layers * _Layer(attention_bias=0.0).weights(width, vision.count("intermediate_size", default=4 * width))
    levels = float(len(vision.get("intermediate_layers_indices") or [0] * 5)) + 1
    projector = _linear(levels * width, text.count("hidden_size"))
    tokens = tiles * (tower.patches + 1)
    return Tower(
        tower.weights + tables + more + projector,
        tower.each + more + projector,
        tower.layers + layers,
        width,
        tokens,
        tokens,
    )


def _moonvit(vision: Config, text: Config) -> Tower:
    """Read Kimi's encoder; newer files write its fields with a prefix, and its queries may be wider."""
    fields = {key.removeprefix("vt_"): value for key, value in vision.fields.items()}
    places = float(fields.get("pos_emb_height") or fields.get("init_pos_emb_height") or 64.0)
    wide = float(fields.get("pos_emb_width") or fields.get("init_pos_emb_width") or 64.0)
    fields.setdefault("patch_size", 14)
    tower = _vit(_with(vision, fields), positions=places * wide, query=float(fields.get("qkv_hidden_size") or 0.0))
    merge = fields.get("merge_kernel_size") or [2, 2]
    four = tower.width * float(merge[0]) * float(merge[1])
    hidden = text.count("hidden_size")
    projector = 2 * tower.width + _linear(four, four) + _linear(four, hidden)
    return _join(tower, projector, tower.patches * tower.width / four)


def _step(vision: Config, text: Config) -> Tower:
    width = vision.count("hidden_size", default=vision.count("width", default=1536.0))
    fields = {"hidden_size": width, "num_hidden_layers": 47, "patch_size": 14, "image_size": 728, **vision.fields}
    fields.setdefault("intermediate_size", 8960)
    tower = _vit(
        _with(vision, {key: value for key, value in fields.items() if key != "layers"}),
        _Layer(scales=6.0),
        conv_bias=0.0,
    )
    down = 9 * width * 2 * width + 2 * width + 9 * 2 * width * 4 * width + 4 * width
    return _join(tower, down + 4 * width * text.count("hidden_size"), tower.patches / 16)


def _minimax(vision: Config, text: Config) -> Tower:
    tower = _vit(vision, conv_bias=0.0, positions=0.0, frames=2.0)
    hidden = text.count("hidden_size")
    inner = text.count("projector_hidden_size", default=hidden)
    merge = vision.count("spatial_merge_size", default=2.0) ** 2
    projector = _linear(tower.width, inner) + _linear(inner, hidden)
    merger = _linear(merge * hidden, inner) + _linear(inner, hidden)
    return _join(tower, projector + merger, tower.patches / merge)


def _internvit(vision: Config, text: Config) -> Tower:
    side, patch = vision.get("image_size"), vision.get("patch_size")
    fields = dict(vision.fields)
    if isinstance(side, list) and isinstance(patch, list):
        fields |= {"image_size": side[0], "patch_size": patch[0]}
    # Queries, keys and values have no bias of their own; the output and both matrices of the MLP do, and two scales.
    tower = _vit(_with(vision, fields), _Layer(attention_bias=0.25, scales=6.0))
    hidden, ratio = text.count("hidden_size"), text.get("downsample_ratio") or 0.5
    merged = tower.width / float(ratio) ** 2
    projector = 2 * merged + _linear(merged, hidden) + _linear(hidden, hidden)
    return _join(tower, projector, tower.patches * float(ratio) ** 2)


def _glm4v(vision: Config, text: Config) -> Tower:
    given = _with(vision, {"depth": 24, "hidden_size": 1536, "patch_size": 14, "image_size": 336, **vision.fields})
    out, inner = vision.count("out_hidden_size", default=4096.0), vision.count("intermediate_size", default=13696.0)
    block = _with(given, {**given.fields, "intermediate_size": out})
    tower = _vit(block, _BARE, frames=2.0, ends=2.0)
    merge = vision.count("spatial_merge_size", default=2.0) ** 2
    projector = out * out + 2 * out + 3 * inner * out + merge * tower.width * out + out
    return _join(tower, projector, tower.patches / merge)


def _whisper(audio: Config, text: Config) -> Tower:
    """Read an encoder of sound: two convolutions over the spectrum, places, layers."""
    width, layers = audio.count("d_model"), audio.count("encoder_layers", default=32.0)
    inner = audio.count("encoder_ffn_dim", default=4 * width)
    places = audio.count("max_source_positions", default=1500.0)
    first = 3 * audio.count("num_mel_bins", default=128.0) * width + width + 3 * width * width + width
    # Keys have no bias.
    body = layers * (_PLAIN.weights(width, inner) - width)
    projector = _linear(width, text.count("hidden_size"))
    return Tower(first + body + places * width + 2 * width + projector, first + body + projector, layers, width)


Reader = Callable[[Config, Config], Tower]
#: Encoders by the type of the whole model, or by their own.
_READERS: Mapping[str, Reader] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen2_5_omni_vision_encoder": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "qwen3_omni_moe_vision_encoder": _qwen3,
    "gemma3": _siglip,
    "siglip_vision_model": _siglip,
    "clip_vision_model": _clip,
    "pixtral": _pixtral,
    "gemma4": _gemma4,
    "gemma4_vision": _gemma4,
    "llama4": _llama4,
    "llama4_vision_model": _llama4,
    "mllama": _mllama,
    "mllama_vision_model": _mllama,
    "kimi_k25": _moonvit,
    "kimi_k3": _moonvit,
    "kimi_vl": _moonvit,
    "moonvit": _moonvit,
    "step3p7": _step,
    "minimax_m3_vl": _minimax,
    "internvl": _internvit,
    "internvl_chat": _internvit,
    "internvl_vision": _internvit,
    "intern_vit_6b": _internvit,
    "glm4v": _glm4v,
    "glm4v_moe": _glm4v,
    "glm46v": _glm4v,
    "glm4v_vision": _glm4v,
    "glm4v_moe_vision": _glm4v,
    "qwen2_audio": _whisper,
    "qwen2_audio_encoder": _whisper,
    "voxtral": _whisper,
    "voxtral_encoder": _whisper,
    "whisper": _whisper,
}
#: Where files put their encoders.
_PLACES = ("vision_config", "audio_config", "speech_config", "vision_tower_config", "sound_config")
#: Fields of a text model that carries an encoder which the file does not describe.
_HINTS = ("img_processor", "embd_layer", "audio_processor", "vision_lora", "mm_vision_tower", "visual")


def read_towers(config: Config, raw: Mapping[str, Any]) -> tuple[float, Vision | None]:
    """Return the weights of the encoders of a file, and what an image costs.

    Parameters
    ----------
    config : Config
        Of the text model, where notes go.
    raw : mapping
        The whole file.

    Returns
    -------
    tuple of float and Vision or None
    """
    text = Config(config.path, {**raw, "hidden_size": config.count("hidden_size")})
    outer, total, vision = str(raw.get("model_type") or ""), 0.0, None
    for place in _PLACES:
        fields = raw.get(place)
        if not isinstance(fields, dict) or not fields:
            continue
        block = Config(config.path, fields, f"{place}.")
        own = str(fields.get("model_type") or "")
        reader = _READERS.get(outer) if place != "audio_config" else None
        reader = reader or _READERS.get(own) or _READERS.get(outer)
        try:
            tower = reader(block, text) if reader is not None else _by_sizes(block, text)
        except UserError as error:
            missing = str(error).removeprefix(f"{config.path}: ")
            config.note(f"{missing.partition(';')[0]}, so the weights of this encoder are left out")
            continue
        if tower is None:
            config.note(f"{place}: this encoder is not read, so its weights are left out")
            continue
        if reader is None:
            config.note(f"{place}: '{own or outer}' is not known here, so its weights are worked out from its sizes")
        total += tower.weights
        if tower.tokens:
            vision = Vision(tower.tokens, tower.patches, tower.each, tower.width, tower.layers)
        for note in block.notes:
            config.note(f"{place}: {note}")
    hints = [name for name in _HINTS if config.get(name) is not None]
    if hints and not total:
        config.note(f"{hints[0]}: the file describes an encoder without its sizes, so its weights are left out")
    return total, vision


def _by_sizes(block: Config, text: Config) -> Tower | None:
    """Return an unknown encoder as its width, depth and inner width say, or None where it gives none."""
    fields = {key.removeprefix("vt_").removeprefix("encoder_"): value for key, value in block.fields.items()}
    for name, others in {
        "hidden_size": ("embed_dim", "d_model", "width"),
        "num_hidden_layers": ("depth", "layers", "num_layers"),
        "intermediate_size": ("ffn_dim", "mlp_dim"),
    }.items():
        found = [fields[key] for key in (name, *others) if isinstance(fields.get(key), int) and fields[key]]
        if found:
            fields[name] = found[0]
    if not isinstance(fields.get("hidden_size"), int) or not isinstance(fields.get("num_hidden_layers"), int):
        return None
    patch = fields.get("patch_size")
    fields["patch_size"] = patch if isinstance(patch, int) and patch else 14
    if not isinstance(fields.get("image_size"), int):
        fields.pop("image_size", None)
    tower = _vit(Config(block.path, fields, block.where))
    return _join(tower, _linear(tower.width, text.count("hidden_size")), tower.patches / 4)

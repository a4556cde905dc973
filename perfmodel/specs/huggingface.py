"""Reading a Hugging Face ``config.json`` into an architecture."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.specs.architectures.forms import Form
from perfmodel.specs.architectures.table import form_of
from perfmodel.specs.config import Config, shown
from perfmodel.specs.paths import quantities
from perfmodel.specs.storage import Stored, read_storage
from perfmodel.specs.towers import read_towers
from perfmodel.specs.types import Beside, Layers, Model, Provenance

CONFIG = "config.json"
#: Where ModelOpt writes the quantisation that its config.json does not mention.
QUANTISATION = "hf_quant_config.json"
SOURCE = "hf-config"

# --- the whole file ----------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict

    Raises
    ------
    UserError
        Where it cannot be read, or holds something else.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error.__class__.__name__})") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is no JSON: {error.msg}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path}: is no JSON that can be read") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected a mapping of fields")
    return raw


def _text_model(path: Path, raw: Mapping[str, Any]) -> Config:
    """Return the fields of the text model: a multimodal file nests them, and says outside whether ends are tied."""
    shared = ("model_type", "torch_dtype", "dtype")
    for name in ("text_config", "llm_config", "language_config"):
        if isinstance(inner := raw.get(name), dict):
            outer = {key: raw[key] for key in shared if key in raw and inner.get(key) is None}
            if raw.get("tie_word_embeddings") is not None:
                outer["tie_word_embeddings"] = raw["tie_word_embeddings"]
            outer["architectures"] = raw.get("architectures")
            return Config(path, {**inner, **outer}, f"{name}.")
    return Config(path, raw, "")


def _quantisations(config: Config, raw: Mapping[str, Any]) -> list[Config]:
    """Return what the files say of quantisation, the binding block first; one that is no mapping is an error."""
    entries: list[Config] = []
    for name in ("quantization_config", "compression_config"):
        for fields, where in ((raw, ""), (config.fields, config.where)):
            block = fields.get(name)
            if block is None or block == {}:
                continue
            if not isinstance(block, dict):
                raise config.refusal_at(f"{where}{name}", f"expected a mapping of fields, found {shown(block)}")
            if all(block != one.fields for one in entries):
                entries.append(Config(config.path, block, f"{where}{name}."))
    beside = config.path.parent / QUANTISATION
    if config.path.name == CONFIG and beside.is_file():
        block = read_json(beside).get("quantization")
        if not isinstance(block, dict):
            raise UserError(f"{beside}: quantization: expected a mapping of fields, found {shown(block)}")
        if block.get("quant_algo") or block.get("kv_cache_quant_algo"):
            entries.append(Config(beside, block, "quantization."))
    return entries


#: What the end of the name of a class says of its task.
_POOLING = re.compile(
    r"(?:Model|ForSequenceClassification|ForTokenClassification|ForMaskedLM|ForRewardModel|RewardModel|ProcessRewardModel"
    r"|ForTextEncoding|ForEmbedding|EmbeddingModel|Encoder|ForMultipleChoice|ForQuestionAnswering)$"
)
_DRAFTING = re.compile(r"eagle|medusa|speculator|draft", re.IGNORECASE)
#: What sentence-transformers puts beside the configuration of an embedding model.
_SENTENCES = ("modules.json", "config_sentence_transformers.json", "1_Pooling")


def _task(config: Config, form: Form) -> str:
    """Return what a model is for: by its form, its class, or what lies beside its file."""
    written = config.get("architectures")
    classes = [name for name in written if isinstance(name, str)] if isinstance(written, list) else []
    if config.get("draft_vocab_size") is not None or any(_DRAFTING.search(name) for name in classes):
        return "draft"
    if form.pools or any(_POOLING.search(name) for name in classes):
        return "pool"
    embeds = [name for name in _SENTENCES if config.path.name == CONFIG and (config.path.parent / name).exists()]
    if embeds:
        config.note(f"{embeds[0]} lies beside the file: it is read as an embedding model")
        return "pool"
    return "generate"


def _as_draft(config: Config, layers: list[Layers]) -> tuple[list[Layers], float | None]:
    """Return the layers of an EAGLE draft with what joins them to the target, and the words of its head."""
    hidden = config.count("hidden_size")
    written = config.get("draft_vocab_size")
    third = written is not None or any("3" in str(layer) for layer in config.get("architectures") or [])
    streams = 3.0 if third else 2.0
    joined = config.get("target_hidden_size")
    width = config.count("target_hidden_size") if joined is not None else hidden
    draft_layers = []
    for index, layer in enumerate(layers):
        weights = scales = 0.0
        if index == 0:
            weights += streams * (width if third else hidden) * hidden
            scales += hidden if third else 0.0
            layer = layer if third else replace(layer, norms=float(layer.norms) - 1)
            if third and (attention := layer.attention) is not None:
                # The first layer attends from the embedding and the state of the target side by side.
                query = float(attention.heads) * float(attention.head_dim)
                weights += hidden * (query + 2 * float(attention.kv_heads) * float(attention.head_dim))
        draft_layers.append(replace(layer, beside=Beside(weights, scales)) if weights else layer)
    config.note("it drafts for another model, whose embedding it looks its words up in")
    if not third:
        config.note("its head is that of its target")
        config.fields["tie_word_embeddings"] = True
        return draft_layers, None
    config.fields["tie_word_embeddings"] = False
    return draft_layers, config.count("draft_vocab_size") if written is not None else None


def _names(path: Path, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and Hugging Face id: those of the download cache, the folder, ``_name_or_path`` or the file."""
    folder = path.parent.resolve()
    cached = next((part for part in folder.parts if part.startswith("models--")), "")
    called = "/".join(cached.split("--", 2)[1:]) or str(raw.get("_name_or_path") or "")
    hf_id = called if re.fullmatch(r"\w[\w.-]*/[\w.-]+", called) else ""
    last = called.rstrip("/").rpartition("/")[2] or path.stem
    name = folder.name if path.name in (CONFIG, "params.json") and not cached else last
    return name.casefold() or "model", hf_id


def _provenance(config: Config, model: Model) -> dict[str, Provenance]:
    folder = f"{config.path.parent.resolve().name}/" if config.path.name == CONFIG else ""
    file = f"{folder}{config.path.name}"
    origins = {}
    for path, _, _ in quantities(model):
        derived = config.derived.get(path.rpartition(".")[2], "")
        notes = [derived, *config.notes] if derived else config.notes
        origins[path] = Provenance(SOURCE, "derived" if derived else "datasheet", file, "; ".join(notes))
    return origins


@dataclass(frozen=True)
class Reading:
    """What was read of a file: the model, the fields that it was read from, and those that nothing read."""

    model: Model
    fields: Mapping[str, Any]
    unread: tuple[str, ...]


def load(path: Path) -> Model:
    """Load the architecture of a ``config.json``, or of the folder that holds one.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Model

    Raises
    ------
    UserError
        One line that names the file, the field and the fix; also for what would be modelled as something else.
    """
    return read(path).model


def read(path: Path) -> Reading:
    """Read a ``config.json``, or the folder that holds one, with the fields that were used.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Reading

    Raises
    ------
    UserError
        One line that names the file, the field and the fix; also for what would be modelled as something else.
    """
    path = path / CONFIG if os.path.isdir(path) else path
    return read_fields(path, read_json(path))


def read_fields(path: Path, raw: Mapping[str, Any], stored: Stored | None = None, notes: Sequence[str] = ()) -> Reading:
    """Read fields as a ``config.json`` has them, wherever they came from.

    Parameters
    ----------
    path : Path
        Of the file, for refusals and provenance.
    raw : mapping
    stored : Stored, optional
        How the weights are stored, where that is not said by the fields.
    notes : sequence of str
        What the reader must know besides.

    Returns
    -------
    Reading
    """
    config = _text_model(path, raw)
    for note in notes:
        config.note(note)
    if not isinstance(config.get("model_type") or "", str):
        raise config.refusal("model_type", f"expected a name, found {shown(config.get('model_type'))}")
    form = form_of(config, str(config.get("model_type") or ""))
    layers = form.read(config)
    for name in ("mlp_bias", "mamba_proj_bias"):
        if config.get(name) is True:
            config.note(f"{name}: these biases are not counted")
    ahead = [config.get(name) for name in ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")]
    if any(ahead):
        config.note("the layers that predict several tokens are left out")
    task = _task(config, form)
    blocks = _quantisations(config, raw) if stored is None else []
    stored = read_storage(config, blocks, layers) if stored is None else stored
    towers, vision = read_towers(config, raw)
    head_vocab = None
    if task == "draft":
        layers, head_vocab = _as_draft(config, layers)
    if task == "pool":
        config.note("it makes one pass over its input: no head, no cache that grows, no tokens after the first")
    name, hf_id = _names(path, raw)
    model = Model(
        name=name,
        hf_id=hf_id,
        precision=stored.precision,
        hidden=config.count("hidden_size"),
        vocab=config.count("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        max_context=_longest(config),
        layers=tuple(replace(entry, count=float(count)) for entry, count in Counter(layers).items()),
        unquantised=stored.unquantised,
        towers=towers,
        vision=vision,
        task=task,
        kv_cache=stored.cache,
        stored=stored.classes,
        element_bytes=stored.element_bytes,
        tables=config.tables or None,
        head_vocab=head_vocab,
    )
    unread = config.unread()
    if unread and config.is_guess:
        raise config.refusal(
            unread[0],
            f"model_type '{config.get('model_type')}' is not known here, nor what this field does; write the model as "
            "YAML instead",
        )
    if unread:
        config.note(f"fields that nothing reads: {', '.join(unread)}")
    used = {
        f"{entry.where}{name}": entry.fields[name]
        for entry in (config, *blocks)
        for name in dict.fromkeys(entry.asked.values())
        if entry.fields.get(name) is not None
    }
    return Reading(replace(model, provenance=_provenance(config, model)), used, tuple(unread))


def _longest(config: Config) -> float:
    """Return the longest context; a model that only keeps states has none, and its file says none."""
    if config.get("max_position_embeddings") is None and config.get("model_max_length") is not None:
        return config.count("model_max_length")
    return config.count("max_position_embeddings")

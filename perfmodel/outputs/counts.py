"""What a model weighs: parameters by part, bytes by precision, cache by context, and where each number was read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel import shapes
from perfmodel.machines.kv_cache import index_bytes_per_token, kv_bytes_per_token, sequence_cache
from perfmodel.numerics import total
from perfmodel.specs import catalog
from perfmodel.specs.types import PRECISION_BYTES, Layers, Model
from perfmodel.specs.units import show
from perfmodel.specs.weights import head_parameters, tensors, vocabulary

#: Classes of tensors in the order of the table, and what they are called.
_PARTS = {
    "embedding": "embedding",
    "attention": "attention and states",
    "mlp": "feed-forward and shared experts",
    "experts": "routed experts",
    "router": "routers",
    "norm": "normalisations and what lies beside",
    "head": "head",
    "tables": "further tables",
    "towers": "encoders of images and sound",
    "adapters": "low-rank adapters",
}
#: Contexts of which a sequence is shown unless one is asked for, with the longest that the model takes [tokens].
_CONTEXTS = (1024.0, 8192.0, 32768.0, 131072.0)


def stored(model: Model, part: str, layers: Layers | None = None) -> tuple[str, float]:
    """Return the precision of a class of tensors in the checkpoint, and the bytes of a weight [B]."""
    kept = (*model.unquantised, "norm", "towers", "adapters", *(layers.unquantised if layers is not None else ()))
    part = "embedding" if part == "tables" else part
    precision = "bf16" if part in kept else model.stored.get(part, model.precision)
    return precision, float(model.element_bytes.get(part, PRECISION_BYTES[precision]))


def _cache(model: Model, contexts: Sequence[float]) -> shapes.Cache:
    """Return the bytes of the cache by token and by sequence."""
    cache = model.kv_cache or "bf16"
    grows = float(kv_bytes_per_token(model, cache))
    index = float(total(run.count * index_bytes_per_token(run, cache) for run in model.layers))
    asked = list(contexts) or [*(one for one in _CONTEXTS if one < float(model.max_context)), float(model.max_context)]

    def sequence(tokens: float) -> float:
        if model.task == "pool":
            return 0.0
        return float(total(run.count * sequence_cache(model, run, tokens, cache) for run in model.layers))

    return {
        "precision": cache,
        "declared": bool(model.kv_cache),
        "bytes_per_token": 0 if model.task == "pool" else shapes.number(grows + index),
        "of_which_indexers": 0 if model.task == "pool" else shapes.number(index),
        "per_sequence": {
            str(int(tokens)): {
                "bytes": shapes.number(sequence(tokens)),
                "next_token": shapes.number(sequence(tokens + 1) - sequence(tokens)),
            }
            for tokens in asked
        },
    }


def count(model: Model, contexts: Sequence[float] = ()) -> shapes.Counts:
    """Return parameters by part, bytes by precision, and cache by context, as the JSON has them.

    Parameters
    ----------
    model : Model
    contexts : sequence of float
        Tokens of a sequence [1]; a few and the longest where none is given.
    """
    by_precision: dict[str, float] = dict.fromkeys(_PARTS, 0.0)
    active: dict[str, float] = dict.fromkeys(_PARTS, 0.0)
    sizes: dict[str, float] = {}

    def add(part: str, weights: float, met: float, layers: Layers | None = None) -> None:
        precision, element = stored(model, part, layers)
        by_precision[part] += weights
        active[part] += met
        sizes[precision] = sizes.get(precision, 0.0) + weights * element

    for run in model.layers:
        for one in tensors(model, run):
            add(one.kind, float(run.count * one.held), float(run.count * one.active), run)
    add("norm", float(model.hidden), float(model.hidden))
    if model.task != "draft":
        add("embedding", float(vocabulary(model)), 0.0)
    head = float(head_parameters(model))
    add("head", 0.0 if model.tied_embeddings else head, head)
    add("tables", float(model.tables or 0.0), 0.0)
    add("towers", float(model.towers), 0.0)
    if model.lora is not None:
        one_adapter = float(model.lora.replicated + model.lora.sharded)
        add("adapters", float(model.lora.adapters) * one_adapter, one_adapter)
    parts: dict[str, shapes.Held] = {
        part: {"held": shapes.number(by_precision[part]), "active": shapes.number(active[part])}
        for part in _PARTS
        if by_precision[part] or active[part]
    }
    text = sum(weights for part, weights in by_precision.items() if part not in ("towers", "adapters"))
    return {
        "model": model.name,
        "task": model.task,
        "parameters": {
            "text": shapes.number(text),
            "towers": shapes.number(by_precision["towers"]),
            "total": shapes.number(text + by_precision["towers"]),
        },
        "active_parameters": shapes.number(sum(active.values())),
        "by_part": parts,
        "bytes": shapes.numbers({"total": sum(sizes.values()), **{name: size for name, size in sizes.items() if size}}),
        "cache": _cache(model, contexts),
        "read": {},
        "not_read": [],
        "notes": [],
    }


def counts(name: str, contexts: Sequence[float] = ()) -> shapes.Counts:
    """Return the counts of a model by name or path, with what was read from which field.

    Parameters
    ----------
    name : str
    contexts : sequence of float
        Tokens of a sequence [1].
    """
    if catalog.is_config(name):
        from perfmodel.specs import checkpoints

        reading = checkpoints.read(Path(name), catalog.load_model)
        answer = count(reading.model, contexts)
        answer["read"] = {field: _short(value) for field, value in reading.fields.items()}
        answer["not_read"] = list(reading.unread)
        answer["notes"] = [note.partition(": ")[2] for note in catalog.model_notes(reading.model)]
        return answer
    model = catalog.load_model(name)
    origins = {path: f"{one.file} ({one.source})" for path, one in model.provenance.items() if one.file}
    return {**count(model, contexts), "read": origins}


def _short(value: Any) -> Any:
    """Return a value of a file, a long list by its length and its kinds."""
    if isinstance(value, list) and len(value) > 8:
        kinds = list(dict.fromkeys(map(str, value)))
        return f"{len(value)} entries: {', '.join(kinds[:6])}{', ...' if len(kinds) > 6 else ''}"
    if isinstance(value, dict):
        return f"{len(value)} fields"
    return value


def print_counts(counted: shapes.Counts, console: Any) -> None:
    """Print the counts of a model."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    def table(*rows: tuple[str, ...], head: tuple[str, ...]) -> None:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for at, name in enumerate(head):
            made.add_column(name, justify="right" if at else "left", overflow="fold")
        for row in rows:
            made.add_row(*map(Text, row))
        console.print(made)
        console.print()

    each = [
        (_PARTS[part], _whole(stored["held"]), _whole(stored["active"])) for part, stored in counted["by_part"].items()
    ]
    whole = counted["parameters"]
    each.append(("text model", _whole(whole["text"]), _whole(counted["active_parameters"])))
    if whole["towers"]:
        each.append(("with its encoders", _whole(whole["total"]), ""))
    table(*each, head=(f"{counted['model']} ({counted['task']})", "parameters", "met by a token"))
    sizes = [(name, show(size, "B", 4)) for name, size in counted["bytes"].items() if name != "total"]
    table(*sizes, ("in all", show(counted["bytes"]["total"], "B", 4)), head=("stored as", "bytes"))
    cache = counted["cache"]
    said = "as declared" if cache["declared"] else "none declared"
    rows = [("one token, while within every window", f"{cache['bytes_per_token']:,.0f} B")]
    if cache["of_which_indexers"]:
        rows.append(("  of which keys of indexers", f"{cache['of_which_indexers']:,.0f} B"))
    rows += [
        (
            f"a sequence of {int(tokens):,}",
            f"{show(stored['bytes'], 'B', 4)}, and {stored['next_token']:,.0f} B a token more",
        )
        for tokens, stored in cache["per_sequence"].items()
    ]
    table(*rows, head=(f"cache in {cache['precision']}, {said}", ""))
    table(*((name, str(value)) for name, value in counted["read"].items()), head=("read from", ""))
    for note in counted["notes"]:
        console.print(Text(f"  - {note}"))


def _whole(value: float) -> str:
    return f"{value:,.0f}"

"""What data call models, systems, engines and precisions."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from perfmodel.errors import UserError
from perfmodel.evidence.validate.reading import Unanswered
from perfmodel.specs import catalog
from perfmodel.specs.naming import PRECISION_OF, shorter, written_precision

#: Models with the shape of a listed one.
_SAME_SHAPE = {
    "deepseekr1distillllama8b": ("llama-3.1-8b", "a distillate in the shape of Llama 3.1 8B"),
    "deepseekr1distillllama70b": ("llama-3.3-70b", "a distillate in the shape of Llama 3.3 70B"),
    "deepseek31terminus": ("deepseek-v3", "DeepSeek-V3.1 has the shape of DeepSeek-V3"),
    "qwen3coder30ba3b": ("qwen3-30b-a3b", "Qwen3-Coder-30B-A3B has the shape of Qwen3-30B-A3B"),
}
_HARDWARE_WORDS = re.compile(
    r"\b(nvidia|amd|instinct|intel|google|aws|groq|cerebras|geforce|tesla|tensor core|hgx|dgx|sxm[2-6]?|hbm3e?|"
    r"x[1-9]\d*|gpus?|rdus?|server edition|server|vllm|sglang|trt|dynamo|atom|mori|disagg)\b|\(.*?\)|"
    r"\b\d+ ?x ?(?=[a-z])|(?<=\d)x\d+$"
)
#: Memory on the label; it must be that of the system.
_LABEL = re.compile(r"\b(\d+) ?([gm])i?b\b")


def _squash(name: str) -> str:
    """Return a name without case, punctuation, and the v of a version."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"v(?=\d)", "", name.casefold()))


@functools.cache
def _squashed(kind: str) -> dict[str, str]:
    """Return the spec of every name and alias, squashed."""
    names: dict[str, str] = {}
    for name, aliases, _ in catalog.entries(kind):
        for alias in (name, *aliases):
            names.setdefault(_squash(alias), name)
            names.setdefault(_squash(alias.rpartition("/")[2]), name)
    return names


@functools.cache
def _unknown(kind: str, name: str) -> str:
    """Return why a name, or a path, is none of a kind of spec, empty where it is one."""
    load: Callable[[str], Any] = catalog.load_model if kind == "model" else catalog.load_bare_system
    try:
        load(name)
    except UserError as error:
        return str(error)
    return ""


@functools.cache
def find_model(name: str) -> tuple[str, str, str]:
    """Return the listed name of a model, the precision that its name ends in, and a note.

    Raises
    ------
    Unanswered
        Where nothing listed has that shape.
    """
    if not name:
        raise Unanswered("no model is given")
    known, precision = _squashed("model"), written_precision(name)
    if (exact := known.get(_squash(name))) is not None:
        return exact, precision, ""
    rest = name.rpartition("/")[2].strip()
    while rest:
        key = _squash(rest)
        for tried in (key, key.removeprefix("meta")):
            if tried in known:
                return known[tried], precision, ""
        if key in _SAME_SHAPE:
            same, note = _SAME_SHAPE[key]
            return same, precision, note
        rest = shorter(rest)
    if unknown := _unknown("model", name):
        raise Unanswered(unknown)
    return name, "", ""


def _has_memory(system: str, name: str) -> bool:
    """Whether a system has the memory that a name says; labels and decimal or binary units differ by up to 8 %."""
    label = _LABEL.search(name)
    memory = catalog.load_bare_system(system).memory
    tier = memory.hbm or memory.sram
    if label is None or tier is None:
        return True
    said = float(label[1]) * {"g": 1e9, "m": 1e6}[label[2]]
    return abs(said / float(tier.capacity) - 1) < 0.08


@functools.cache
def find_system(name: str) -> str:
    """Return the listed name of a system.

    Raises
    ------
    Unanswered
        Where nothing listed is it.
    """
    if not name:
        raise Unanswered("no hardware is given")
    known = _squashed("system")
    low = name.casefold().replace("-", " ").replace("_", " ")
    bare = _HARDWARE_WORDS.sub(" ", low)
    # "SN40L x16" is a node of that size, where there is one.
    sized = re.sub(r" x ?([1-9][0-9]*)\b.*", r" \1", low)
    for tried in (name, low, sized, re.sub(r"\(.*?\)", " ", low), bare):
        if (spelt := known.get(_squash(tried))) is not None:
            return spelt
    unlabelled = _LABEL.sub(" ", bare)
    for tried in (unlabelled, re.sub(r"\bnvl ?\d+\b", " ", unlabelled)):
        if (spelt := known.get(_squash(tried))) is not None and _has_memory(spelt, low):
            return spelt
    if unknown := _unknown("system", name):
        raise Unanswered(unknown)
    return name


def find_precision(text: str, column: str) -> str:
    """Return a precision by any of its names; empty where none is given, or ``auto``, the engine's own choice."""
    key = re.sub(r"[-\s]+", "_", text.strip().casefold())
    if key in ("", "auto"):
        return ""
    if key in PRECISION_OF:
        return PRECISION_OF[key]
    raise Unanswered(f"{column} '{text}' is no precision that is known here")


def forget() -> None:
    """Read the names of specs again at the next question."""
    for cached in (_squashed, _unknown, find_model, find_system):
        cached.cache_clear()

"""Formats of stored tensors, by the names that checkpoints give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from perfmodel.specs.config import Config, shown
from perfmodel.specs.types import PRECISION_BYTES


class Format(NamedTuple):
    """A precision, and the bytes of a weight with its share of the scales [B]."""

    precision: str
    element: float


def plain_format(precision: str) -> Format:
    """Return the format that has nothing beside its elements.

    Parameters
    ----------
    precision : str

    Returns
    -------
    Format
    """
    return Format(precision, PRECISION_BYTES[precision])


BF16 = plain_format("bf16")
#: FP8 with an exponent for 32 weights.
MXFP8 = Format("fp8", 1 + 1 / 32)


ALGORITHMS = {
    "FP8": plain_format("fp8"),
    "FP8_PB_WO": plain_format("fp8"),
    "FP8_PB_REAL": plain_format("fp8"),
    "FP8_PER_CHANNEL_PER_TOKEN": plain_format("fp8"),
    "FP8_BLOCK_SCALES": plain_format("fp8"),
    "MXFP8": MXFP8,
    "NVFP4": plain_format("fp4"),
    "NVFP4_AWQ": plain_format("fp4"),
    "NVFP4_SVDQUANT": plain_format("fp4"),
    "W4A16_NVFP4": plain_format("fp4"),
    "W4A8_NVFP4_FP8": plain_format("fp4"),
    "MXFP4": plain_format("mxfp4"),
    "W4A16_MXFP4": plain_format("mxfp4"),
    "W4A8_MXFP4_FP8": plain_format("mxfp4"),
    "W4A8_MXFP4_MXFP8": plain_format("mxfp4"),
    "W4A16_AWQ": plain_format("int4"),
    "W4A8_AWQ": plain_format("int4"),
    "W4A16": plain_format("int4"),
    "W8A16": plain_format("int8"),
    "INT8_SQ": plain_format("int8"),
    "W8A8_SQ_PER_CHANNEL": plain_format("int8"),
    "NONE": BF16,
}


#: Methods that say their precision by their name.
METHODS = {
    "fp8": plain_format("fp8"),
    "fbgemm_fp8": plain_format("fp8"),
    "mxfp4": plain_format("mxfp4"),
    "eetq": plain_format("int8"),
}


def sized(entry: Config, plain: Format) -> Format:
    """Return a format with the size of groups that an entry gives.

    Parameters
    ----------
    entry : Config
    plain : Format

    Returns
    -------
    Format
    """
    size = entry.get("group_size")
    if plain.precision not in ("int4", "int8") or size is None:
        return plain
    return integers(entry, 4 if plain.precision == "int4" else 8)


def integers(entry: Config, bits: int) -> Format:
    """Return the format of integers with an FP16 scale a group, and a zero point where they are not symmetric.

    Parameters
    ----------
    entry : Config
    bits : int

    Returns
    -------
    Format
    """
    precision = "int4" if bits == 4 else "int8"
    size = entry.get("group_size")
    if size is None and bits == 4 and entry.get("strategy") not in ("channel", "tensor"):
        size = 128
    if size is None or size == -1:
        return Format(precision, bits / 8)
    group = entry.count("group_size", default=128.0)
    asymmetric = entry.get("zero_point") is True or entry.get("sym") is False or entry.get("symmetric") is False
    return Format(precision, bits / 8 + (2 + (bits / 8 if asymmetric else 0.0)) / group)


def bitsandbytes(entry: Config) -> Format:
    """Return NF4 or FP4 with an FP32 scale for 64 weights, itself in 8 bits where it is quantised twice; or INT8.

    Parameters
    ----------
    entry : Config

    Returns
    -------
    Format
    """
    if entry.flag("load_in_4bit"):
        twice = entry.flag("bnb_4bit_use_double_quant")
        return Format("int4", 0.5 + (1 / 64 + 4 / (64 * 256) if twice else 4 / 64))
    if entry.flag("load_in_8bit"):
        return plain_format("int8")
    raise entry.refusal("load_in_4bit", "neither this nor load_in_8bit is true")


def one_of(entry: Config, name: str, known: Mapping[Any, Any]) -> Any:
    """Return what a word or number of a file stands for, or refuse it.

    Parameters
    ----------
    entry : Config
    name : str
    known : mapping

    Returns
    -------
    Number
    """
    value = entry.get(name)
    meaning = known.get(value) if type(value) in (int, str) else None
    if not meaning:
        expected = ", ".join(str(one) for one in known)
        raise entry.refusal(name, f"unknown {shown(value)}, expected one of {expected}")
    return meaning


def weight_format(entry: Config, known_as: str) -> Format:
    """Return the format of the ``weights`` of a group of compressed-tensors.

    Parameters
    ----------
    entry : Config
    known_as : str

    Returns
    -------
    Format
    """
    bits, kind, size = entry.get("num_bits"), entry.get("type"), entry.get("group_size")
    if bits == 8 and kind == "float":
        return MXFP8 if size == 32 else plain_format("fp8")
    if bits == 4 and kind == "float":
        return plain_format("mxfp4" if size == 32 else "fp4")
    if bits in (4, 8) and kind == "int":
        return integers(entry, int(bits)) if size is not None or bits == 4 else plain_format("int8")
    known = "8 bits of float, 4 bits of float, 8 bits of int, 4 bits of int"
    raise entry.refusal_at(known_as, f"unknown {bits} bits of {kind}, expected one of {known}")

"""What names say: of a model its precision and ends that do not change its shape, of an engine its release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from perfmodel.errors import UserError
from perfmodel.specs import kinds

#: Precisions by the names that data use.
PRECISION_OF = {
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_static": "fp8",
    "fp8_dynamic": "fp8",
    "float8": "fp8",
    "w8a8_fp8": "fp8",
    "e4m3": "fp8",
    "int8": "int8",
    "w8a8": "int8",
    "sq": "int8",
    "int8_sq": "int8",
    "int8_wo": "int8",
    "w8a16": "int8",
    "fp4": "fp4",
    "nvfp4": "fp4",
    "w4a8_nvfp4": "fp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "w4a8_mxfp4_fp8": "mxfp4",
    "int4": "int4",
    "int4_wo": "int4",
    "w4a16": "int4",
    "awq": "int4",
    "gptq": "int4",
    "w4a16_awq": "int4",
    "w4a8": "int4",
    "nvfp4a16": "fp4",
    "4bit": "int4",
    "8bit": "int8",
    "nf4": "int4",
    "q4": "int4",
    "q8": "int8",
}
#: Ends of a model's name that do not change its shape.
_ENDS = re.compile(
    r"[-_ ](instruct|it|hf|chat|base|thinking|dynamic|block|turbo|preview|99(\.9)?|\d{4}|v\d(\.\d)?|\d+e|tp|kv|"
    r"quantized|mlperf|gguf|mlx|bnb|unsloth|qat|static|per[-_]tensor|per[-_]channel|g\d+|sym|asym|ar|test)$"
)
#: What some put before a model's name.
_STARTS = re.compile(r"^(?:meta|nvidia|c4ai|google|qwen_)-")
#: Who uploads the models of others in other precisions, under their names.
_RE_UPLOADS = frozenset(
    (
        "amd",
        "bartowski",
        "casperhansen",
        "cyankiwi",
        "ggml-org",
        "hugging-quants",
        "intel",
        "lmstudio-community",
        "mlx-community",
        "neuralmagic",
        "nm-testing",
        "nvidia",
        "openvino",
        "quanttrio",
        "redhatai",
        "thebloke",
        "unsloth",
    )
)
_PRECISION_END = re.compile(
    r"[-_ ](fp8|nvfp4|nvfp4a16|fp4|mxfp4|bf16|fp16|int8|int4|awq|gptq|w4a16|w8a8|w8a16|nf4|4bit|8bit|q[48](?=_|$)"
    r"|quantized\.w4a16|quantized\.w8a8)(?:_[0-9a-z_]+)?$"
)


def shorter(name: str) -> str:
    """Return a name without its last end, empty where no end is known.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
    """
    low = name.casefold()
    end = _PRECISION_END.search(low) or _ENDS.search(low)
    return name[: end.start()] if end else ""


def written_precision(name: str) -> str:
    """Return the precision that a name ends in, before ends that do not matter; empty where it names none.

    Parameters
    ----------
    name : str

    Returns
    -------
    str
    """
    rest = name.rpartition("/")[2].strip()
    while rest:
        if end := _PRECISION_END.search(rest.casefold()):
            return PRECISION_OF[end[1].rpartition(".")[2]]
        rest = shorter(rest)
    return ""


def bases(name: str) -> Iterator[str]:
    """Give the names that a longer one may stand for: without its precision, its tuning, and who uploaded it again.

    Parameters
    ----------
    name : str
        A name, or a Hugging Face id.

    Returns
    -------
    iterator of str
        In small letters, the longest first.
    """
    owner, slash, last = name.casefold().rpartition("/")
    last = re.sub(r"(?<=-)(\d)_(\d)(?=-)", r"\1.\2", last)
    rest = last
    while rest:
        if slash and owner not in _RE_UPLOADS:
            yield f"{owner}/{rest}"
        else:
            yield rest
            yield _STARTS.sub("", rest)
        rest = shorter(rest)


def family(name: str) -> str:
    """Return the letters that a model's name begins with: the family that it belongs to.

    Parameters
    ----------
    name : str
        A name, or a Hugging Face id.

    Returns
    -------
    str
    """
    found = re.match(r"[a-z]+", _STARTS.sub("", name.casefold().rpartition("/")[2]))
    return found[0] if found else ""


def declares_fp8_cache(name: str) -> bool:
    """Whether checkpoints of this name declare an FP8 cache: NVIDIA's quantised ones, and those that say ``-KV``.

    Parameters
    ----------
    name : str
        A name, or a Hugging Face id.

    Returns
    -------
    bool
    """
    owner, slash, last = name.casefold().rpartition("/")
    return last.endswith("-fp8-kv") or (bool(slash) and owner == "nvidia" and written_precision(name) in ("fp8", "fp4"))


_RELEASE = r"(?P<release>\d+(?:\.\d+){0,2})"
_ENGINE = re.compile(
    rf"(?P<name>vllm|sglang|tensorrt[-_ ]?llm|trt[-_ ]?llm|trt|native)(?:[-_ =:]+v?{_RELEASE})?", re.IGNORECASE
)


@dataclass(frozen=True)
class EngineName:
    """An engine and the release that was named with it, empty where none was."""

    name: str
    release: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.release}" if self.release else self.name


def find_engine(text: str) -> EngineName | None:
    """Return the engine that a text names anywhere, as data and logs write it: ``vLLM 0.19.1``, ``trtllm 1.0.0rc3``.

    Parameters
    ----------
    text : str

    Returns
    -------
    EngineName or None
        None where it names none that is known.
    """
    match = _ENGINE.search(text)
    if match is None:
        return None
    name = match["name"].casefold()
    return EngineName("trtllm" if name.startswith(("trt", "tensorrt")) else name, match["release"] or "")


def read_engine(text: str) -> EngineName:
    """Return the engine of a name ``NAME[-MAJOR[.MINOR[.PATCH]]]``.

    Parameters
    ----------
    text : str
        Of one of our engines, or of one that another package adds.

    Returns
    -------
    EngineName

    Raises
    ------
    UserError
        Where it is no name of that form.
    """
    name, release = text.strip(), ""
    if (found := re.fullmatch(rf"(.+)-{_RELEASE}", name)) is not None and name not in kinds.engines():
        name, release = found[1], found["release"]
    if name not in kinds.engines() or (name == "native" and release):
        raise UserError(
            f"engine '{text}': expected one of {', '.join(kinds.engines())}; a release is written behind it, as in "
            "vllm-0.12"
        )
    return EngineName(name, release)


def release_numbers(release: str) -> tuple[int, ...]:
    """Return the numbers of a release, by which releases are ordered.

    Parameters
    ----------
    release : str
        ``MAJOR[.MINOR[.PATCH]]``.

    Returns
    -------
    tuple of int
    """
    return tuple(int(part) for part in release.split(".") if part)
